//! A server that is killed again and again while clients write and watch, and a checker.
//!
//! `HOMEOSTAT_NATS_KILLS` sets the number of kills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use homeostat::CancellationToken;
use homeostat_nats::NatsClient;
use homeostat_objects::{
    Api, Client, ClientError, DeleteOptions, DynamicObject, Ignore, ObjectWatch, Patch, PatchTarget, Query,
    SharedObject, WatchEvent,
};
use serde_json::json;

use super::{WIDGET, client, client_of, connect, key, owned, widget};
use crate::support::server::TestServer;
use crate::support::{number_of, options, pause, spawn};
use crate::until::until;

/// Repeats a call until the server answers. Counts calls with an unknown outcome.
pub(super) fn answered<T>(
    unknown: &mut u64,
    mut call: impl FnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    loop {
        match call() {
            Err(error) if error.is_transport() => *unknown += 1,
            answer => return answer,
        }
    }
}

/// Writes the object with this name, and the shared one. Returns how many increments were acknowledged and how many
/// have an unknown outcome.
pub(super) fn write(client: &NatsClient, name: &str, stop: &AtomicBool, rounds: &AtomicU64) -> (u64, u64) {
    let (mut acknowledged, mut unknown, mut ignored) = (0, 0, 0);
    while !stop.load(Ordering::SeqCst) {
        // The client's own object has exactly the acknowledged writes, because no other client writes it.
        let mut lost = 0;
        if let Err(error) = answered(&mut lost, || client.create(&WIDGET, widget(name, 0))) {
            assert!(error.is_already_exists() && lost > 0, "{error}");
        }
        let owner = answered(&mut ignored, || client.get(&WIDGET, &key(name))).unwrap().to_value();
        let child = owned(&format!("{name}-child-{}", rounds.load(Ordering::SeqCst)), &owner);
        let mut lost = 0;
        if let Err(error) = answered(&mut lost, || client.create(&WIDGET, child.clone())) {
            assert!(error.is_already_exists() && lost > 0, "{error}");
        }
        for size in 0..4 {
            let mut lost = 0;
            let mut read = answered(&mut ignored, || client.get(&WIDGET, &key(name))).unwrap().to_value();
            let found = read["spec"]["size"].as_u64().unwrap();
            assert_eq!(found, size, "the last write of {name}");
            read["spec"]["size"] = json!(size + 1);
            match answered(&mut lost, || client.update(&WIDGET, read.clone())) {
                Ok(_) => {}
                // An earlier attempt was executed.
                Err(error) => assert!(error.is_conflict() && lost > 0, "{error}"),
            }
            let mark = Patch::Json(json!([
                {"op": "add", "path": format!("/data/{name}-{}", rounds.fetch_add(1, Ordering::SeqCst)), "value": 1},
            ]));
            let mut lost = 0;
            answered(&mut lost, || client.patch(&WIDGET, &key("shared"), &mark, PatchTarget::Object)).unwrap();
            acknowledged += 1;
            unknown += lost;
        }
        answered(&mut ignored, || client.delete(&WIDGET, &key(name), &DeleteOptions::default()))
            .ignore_not_found()
            .unwrap();
        let gone = answered(&mut ignored, || client.get(&WIDGET, &key(name))).ignore_not_found().unwrap();
        assert!(gone.is_none(), "{gone:?}");
    }
    // A write completes failed deletions of dependents.
    let last = widget(&format!("{name}-last"), 0);
    if let Err(error) = answered(&mut ignored, || client.create(&WIDGET, last.clone())) {
        assert!(error.is_already_exists() && ignored > 0, "{error}");
    }
    (acknowledged, unknown)
}

/// The objects that the reader of a watch knows.
#[derive(Default)]
pub(super) struct Known {
    pub(super) objects: BTreeMap<String, String>,
    version: String,
    pub(super) events: usize,
    relists: usize,
}

impl Known {
    fn take(&mut self, event: WatchEvent<SharedObject>) {
        let object = match event {
            WatchEvent::Bookmark(version) => {
                assert!(version >= self.version, "{version} after {}", self.version);
                self.version = version;
                return;
            }
            WatchEvent::Added(object) => {
                let old = self.objects.insert(object.name().to_owned(), object.uid().to_owned());
                assert_eq!(old, None, "added twice: {object}");
                object
            }
            WatchEvent::Modified(object) => {
                let old = self.objects.insert(object.name().to_owned(), object.uid().to_owned());
                assert_eq!(old.as_deref(), Some(object.uid()), "changed without an addition: {object}");
                object
            }
            WatchEvent::Deleted(object) => {
                let old = self.objects.remove(object.name());
                assert_eq!(old.as_deref(), Some(object.uid()), "deleted without an addition: {object}");
                object
            }
        };
        assert!(object.resource_version() > self.version.as_str(), "{object} after {}", self.version);
        object.resource_version().clone_into(&mut self.version);
        self.events += 1;
    }
}

/// Reads a watch until the object `end` arrives. Each change must arrive once and in order, unless the version is
/// gone.
pub(super) fn follow(client: &NatsClient) -> Known {
    let mut known = Known::default();
    let stop = CancellationToken::new();
    loop {
        let list = answered(&mut 0, || client.list(&WIDGET, &Query::all())).unwrap();
        known.objects = list.items.iter().map(|item| (item.name().to_owned(), item.uid().to_owned())).collect();
        known.version = list.version;
        'resumed: loop {
            if known.objects.contains_key("end") {
                return known;
            }
            let stream = match answered(&mut 0, || client.watch(&WIDGET, &Query::all(), Some(&known.version), &stop)) {
                Ok(stream) => stream,
                Err(error) => {
                    assert!(error.is_gone(), "{error}");
                    break 'resumed;
                }
            };
            for item in stream {
                match item {
                    Ok(event) => known.take(event),
                    Err(error) if error.is_gone() => break 'resumed,
                    Err(error) => {
                        assert!(error.is_transport(), "{error}");
                        continue 'resumed;
                    }
                }
                if known.objects.contains_key("end") {
                    return known;
                }
            }
        }
        known.relists += 1;
    }
}

#[test]
fn a_server_that_is_killed_loses_no_acknowledged_write_and_watches_stay_right() {
    let kills = number_of("HOMEOSTAT_NATS_KILLS", 10);
    let mut server = TestServer::start();
    let connect =
        |server: &TestServer| options(&server.url()).request_timeout(Duration::from_secs(30)).connect().unwrap();
    let checker = client_of(&connect(&server));
    let mut shared = widget("shared", 0);
    shared["data"] = json!({});
    checker.create(&WIDGET, shared).unwrap();
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let (client, stop, rounds) = (client_of(&connect(&server)), Arc::clone(&stop), Arc::clone(&rounds));
            spawn(move || write(&client, &format!("own-{number}"), &stop, &rounds))
        })
        .collect();
    let reader = client_of(&connect(&server));
    let watching = spawn(move || follow(&reader));
    let stored = client_of(&connect(&server));
    let store = ObjectWatch::new(Api::<DynamicObject>::of_kind(Arc::new(stored), WIDGET)).start().unwrap();
    for kill in 0..kills {
        let seen = rounds.load(Ordering::SeqCst);
        until("more writes", || (rounds.load(Ordering::SeqCst) >= seen + 3).then_some(()));
        pause(Duration::from_millis((kill as u64 * 7) % 20));
        server.kill();
        server.restart();
    }
    stop.store(true, Ordering::SeqCst);
    let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    checker.create(&WIDGET, widget("end", 0)).unwrap();
    let (acknowledged, unknown) = counts.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    let shared = checker.get(&WIDGET, &key("shared")).unwrap();
    let found = shared.to_value()["data"].as_object().unwrap().len() as u64;
    assert_eq!(found, acknowledged, "each name is written once, though perhaps tried again ({unknown} times)");
    let known = watching.join().unwrap();
    let list = checker.list(&WIDGET, &Query::all()).unwrap();
    let fresh: BTreeMap<_, _> = list.items.iter().map(|item| (item.name().to_owned(), item.uid().to_owned())).collect();
    assert_eq!(known.objects, fresh);
    assert_eq!(fresh.keys().filter(|name| name.contains("-child-")).count(), 0, "{fresh:?}");
    assert!(known.events > kills, "{} events, {} relists", known.events, known.relists);
    until("store that equals a fresh list", || {
        let mut names: Vec<_> = store.watch().store().keys().iter().map(|key| key.name().to_owned()).collect();
        names.sort();
        (names == fresh.keys().cloned().collect::<Vec<_>>()).then_some(())
    });
}

#[test]
fn a_write_without_a_server_fails_and_names_the_object() {
    let mut server = TestServer::start();
    let short = client(&server).with_timeout(Duration::from_millis(200)).unwrap();
    client(&server).create(&WIDGET, widget("a", 1)).unwrap();
    server.kill();
    let error = short.create(&WIDGET, widget("b", 1)).unwrap_err();
    assert!(error.is_transport() && error.to_string().contains("default/b"), "{error}");
    let error = short.list(&WIDGET, &Query::all()).unwrap_err();
    assert!(error.is_transport() && error.to_string().contains("Widget"), "{error}");
    server.restart();
    assert!(client_of(&connect(&server)).get(&WIDGET, &key("a")).is_ok());
}
