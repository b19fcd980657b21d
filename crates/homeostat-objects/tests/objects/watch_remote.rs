//! Watches of a client that is not local: streaming lists, silent streams, and objects that cannot be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use homeostat::watch::{EventKind, SourceStatus};
use homeostat::{Exponential, Manager, ManualClock, Running, Subscriber, Watch, WorkQueue};
use homeostat_objects::{
    Api, Capabilities, Client, ClientError, DeleteOptions, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectStream,
    ObjectWatch, Patch, PatchTarget, WatchEvent,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::hooked_client::HookedClient;
use crate::waits::until;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Lamp {
    metadata: ObjectMeta,
    watts: u32,
}

homeostat_objects::object!(Lamp, namespaced, "example.com", "v1");

fn lamp(name: &str, watts: u32) -> Lamp {
    Lamp { metadata: ObjectMeta::new("default", name), watts }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// The fault of a stream.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// After this number of items, nothing arrives until the stream is cancelled.
    Silent(usize),
    /// After this number of items, the stream does not end even when it is cancelled. The test ends it.
    Stuck(usize),
    /// A bookmark arrives after this number of items.
    Bookmark(usize),
    /// Both: a bookmark, then silence.
    BookmarkThenSilence(usize),
}

/// Returns a remote client with these faults in its streams. Dropping the sender ends stuck streams. A thread that
/// blocks on another stream sleeps on the clock.
fn remote(clock: &ManualClock, faults: &[Fault]) -> (Arc<HookedClient>, crossbeam_channel::Sender<()>) {
    let client = HookedClient::new(MemoryClient::builder().clock(clock.clock()).build());
    client.declare(Capabilities::all().local(false));
    let (go_on, stuck) = crossbeam_channel::bounded::<()>(0);
    let (faults, opened) = (faults.to_vec(), AtomicUsize::new(0));
    client.on_stream(move |_, mut stream| {
        let fault = faults.get(opened.fetch_add(1, SeqCst)).copied().unwrap_or(Fault::None);
        let (mut items, mut bookmark, stuck) = (0, String::new(), stuck.clone());
        Ok(ObjectStream::new(std::iter::from_fn(move || {
            items += 1;
            match fault {
                Fault::Bookmark(at) | Fault::BookmarkThenSilence(at) if items == at + 1 => {
                    return Some(Ok(WatchEvent::Bookmark(bookmark.clone())));
                }
                Fault::Silent(at) if items > at => return stream.by_ref().find(|_| false),
                Fault::BookmarkThenSilence(at) if items > at => return stream.by_ref().find(|_| false),
                Fault::Stuck(at) if items > at => {
                    let _ = stuck.recv();
                    return None;
                }
                _ => {}
            }
            let item = stream.next();
            if let Some(Ok(event)) = &item {
                bookmark = match event {
                    WatchEvent::Bookmark(version) => version.clone(),
                    other => other.object().unwrap().resource_version().to_owned(),
                };
            }
            item
        })))
    });
    (client, go_on)
}

fn lamps(client: &HookedClient) -> Api<Lamp> {
    Api::new(Arc::new(client.inner.clone()))
}

fn watch(client: &Arc<HookedClient>, clock: &ManualClock) -> Running<Watch<ObjectKey, Lamp>> {
    let client: Arc<dyn Client> = client.clone();
    let backoff = Exponential::new(SECOND, 4 * SECOND).jitter(0.0);
    ObjectWatch::new(Api::new(client)).name("lamps").backoff(backoff).clock(clock.clock()).start().unwrap()
}

/// Returns how many lists and watches a client was asked for.
fn counts(client: &HookedClient) -> [usize; 2] {
    ["list", "watch"].map(|verb| client.count(verb))
}

fn status(watch: &Watch<ObjectKey, Lamp>) -> SourceStatus {
    watch.source().status()
}

/// Advances the clock once the watch and its watchdog sleep.
fn pass(clock: &ManualClock, time: Duration) {
    clock.wait_for_sleepers(2);
    clock.advance(time);
}

#[test]
fn objects_are_listed_by_a_stream() {
    let clock = ManualClock::new();
    let (client, _go_on) = remote(&clock, &[]);
    lamps(&client).create(&lamp("a", 1)).unwrap();
    let running = watch(&client, &clock);
    let store = running.watch().store();
    until!(store.has_synced());
    assert_eq!(store.get(&key("a")).unwrap().watts, 1);
    lamps(&client).create(&lamp("b", 2)).unwrap();
    lamps(&client).delete(&key("a"), &DeleteOptions::default()).unwrap();
    until!(store.keys() == [key("b")]);
    assert_eq!(counts(&client), [0, 1]);
    assert_eq!(status(running.watch()).to_string(), "lamps: ok");
}

#[test]
fn a_streaming_list_without_an_end_marker_is_replaced_by_a_list() {
    let clock = ManualClock::new();
    let (client, _go_on) = remote(&clock, &[Fault::Silent(1)]);
    for name in ["a", "b"] {
        lamps(&client).create(&lamp(name, 1)).unwrap();
    }
    let running = watch(&client, &clock);
    pass(&clock, Duration::from_secs(30) - Duration::from_nanos(1));
    clock.wait_for_sleepers(2);
    assert!(counts(&client) == [0, 1] && running.watch().store().is_empty());
    clock.advance(Duration::from_nanos(1));
    until!(running.watch().store().len() == 2);
    until!(counts(&client) == [1, 2]);
    let error = status(running.watch()).last_error.unwrap();
    assert_eq!(error, "a streaming list of 1 objects has no end marker after 30s: listing them");
    assert_eq!(status(running.watch()).failing_for, None);
}

/// The connection is dead, but nothing reports that. During the silence one object is deleted, and one is created.
#[test]
fn changes_during_a_silent_stream_are_delivered_once_it_is_reopened() {
    let clock = ManualClock::new();
    let (client, _go_on) = remote(&clock, &[Fault::BookmarkThenSilence(3)]);
    for name in ["a", "b"] {
        lamps(&client).create(&lamp(name, 1)).unwrap();
    }
    let running = watch(&client, &clock);
    let notice = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&notice);
    let subscriber = Subscriber::to(&WorkQueue::<u8>::new(), move |event: &homeostat::Event<ObjectKey, Lamp>| {
        if event.kind() != EventKind::Synced {
            to.lock().push(format!("{} {}", event.kind(), event.key().unwrap().name()));
        }
        None
    });
    let _subscription = running.watch().subscribe(subscriber).unwrap();
    clock.wait_for_sleepers(2);
    lamps(&client).delete(&key("a"), &DeleteOptions::default()).unwrap();
    lamps(&client).create(&lamp("c", 1)).unwrap();
    pass(&clock, Duration::from_nanos(119_999_999_999));
    clock.wait_for_sleepers(2);
    assert!(counts(&client) == [0, 1] && notice.lock().len() == 2, "a quiet stream may still be alive");
    clock.advance(Duration::from_nanos(1));
    // The pause after a failure.
    until!(status(running.watch()).failures == 1);
    pass(&clock, SECOND);
    until!(notice.lock().len() == 4);
    assert_eq!(notice.lock()[2..], ["deleted a", "created c"]);
    assert_eq!(counts(&client), [1, 2], "the list shows that the server has reached the version");
    assert_eq!(status(running.watch()).last_error.as_deref(), Some("a stream has been silent for 120s"));
}

#[test]
fn a_remote_watch_stops_in_each_state() {
    let ends =
        |client: &Arc<HookedClient>, clock: &ManualClock, is_reached: &dyn Fn(&Watch<ObjectKey, Lamp>) -> bool| {
            let running = watch(client, clock);
            until!(is_reached(running.watch()));
            clock.wait_for_sleepers(2);
            running.shutdown(Duration::MAX).unwrap();
        };
    // Before the end marker.
    let clock = ManualClock::new();
    ends(&remote(&clock, &[Fault::Silent(0)]).0, &clock, &|_| true);
    // On a quiet stream, without and with bookmarks.
    ends(&remote(&clock, &[]).0, &clock, &|watch| watch.store().has_synced());
    ends(&remote(&clock, &[Fault::Bookmark(1)]).0, &clock, &|watch| watch.store().has_synced());
    // In a pause.
    let (client, _go_on) = remote(&clock, &[]);
    client.cut_off(true);
    ends(&client, &clock, &|watch| status(watch).failures > 0);
    // On a stream that was cancelled but continues. The client ends it later.
    let (client, go_on) = remote(&clock, &[Fault::Stuck(0)]);
    let running = watch(&client, &clock);
    until!(client.count("watch") == 1);
    let expected = "a silent stream was cancelled but does not end";
    // The stream may begin after the first steps.
    until!({
        clock.wait_for_sleepers(1);
        clock.advance(SECOND);
        status(running.watch()).last_error.as_deref() == Some(expected)
    });
    running.stop();
    drop(go_on);
    running.shutdown(Duration::MAX).unwrap();
    assert_eq!(counts(&client), [0, 1]);
}

#[test]
fn a_kind_that_is_gone_keeps_its_objects_until_it_is_served_again() {
    let clock = ManualClock::new();
    let client = HookedClient::new(MemoryClient::builder().clock(clock.clock()).build());
    lamps(&client).create(&lamp("a", 1)).unwrap();
    let served = Arc::new(AtomicUsize::new(1));
    let is_served = Arc::clone(&served);
    client.before(move |_, object| {
        let is_served = is_served.load(SeqCst) == 1;
        (!is_served).then(|| ClientError::kind_not_served(object.clone(), "no such kind"))
    });
    client.on_stream(|_, stream| {
        // Ends after the deletion of "a".
        let is_last = |item: &Result<WatchEvent<_>, _>| matches!(item, Ok(WatchEvent::Deleted(_)));
        Ok(ObjectStream::new(stream.take_while(move |item| !is_last(item))))
    });
    let running = watch(&client, &clock);
    let manager = Manager::builder().clock(clock.clock()).threads(1).unready_after(10 * SECOND).build().unwrap();
    let store = running.watch().store().clone();
    manager.add(running).unwrap();
    let _manager = manager.start().unwrap();
    until!(store.len() == 1);
    served.store(0, SeqCst);
    lamps(&client).delete(&key("a"), &DeleteOptions::default()).unwrap();
    let source = manager.source("lamps").unwrap();
    for (failures, pause) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        until!(source.status().failures == failures);
        // The watch, the pool with its watchdog, and the driver.
        clock.wait_for_sleepers(4);
        clock.advance(pause * SECOND);
    }
    until!(source.status().failures == 5);
    assert_eq!(store.len(), 1, "nobody knows whether the object exists");
    let report = manager.ready().to_string();
    assert!(report.contains("lamps: failing for ") && report.contains("no such kind"), "{report}");
    served.store(1, SeqCst);
    clock.wait_for_sleepers(4);
    clock.advance(4 * SECOND);
    until!(store.is_empty());
    until!(manager.ready().is_ok());
}

#[test]
fn the_status_names_objects_that_do_not_match_the_type() {
    let clock = ManualClock::new();
    let (client, _go_on) = remote(&clock, &[]);
    let patch = |name: &str, watts: serde_json::Value| {
        let patch = Patch::Merge(json!({"watts": watts}));
        client.inner.patch(&Lamp::KIND, &key(name), &patch, PatchTarget::Object).unwrap();
    };
    for name in ["a", "b", "c"] {
        lamps(&client).create(&lamp(name, 1)).unwrap();
    }
    patch("a", json!("bright"));
    let running = watch(&client, &clock);
    let now = || status(running.watch());
    until!(now().synced);
    assert_eq!(now().undecodable, 1);
    patch("b", json!("dim"));
    until!(now().undecodable == 2);
    let text = now().to_string();
    assert!(text.starts_with("lamps: ok; 2 objects do not match their type: ") && text.contains("dim"), "{text}");
    // The second version of one object counts once.
    patch("b", json!("dark"));
    until!(now().undecodable_error.is_some_and(|error| error.contains("dark")));
    assert_eq!(now().undecodable, 2);
    patch("b", json!(3));
    until!(now().undecodable == 1);
    lamps(&client).delete(&key("c"), &DeleteOptions::default()).unwrap();
    client.inner.delete(&Lamp::KIND, &key("a"), &DeleteOptions::default()).unwrap();
    until!(now().undecodable == 0);
    assert_eq!((now().undecodable_error, now().failures, now().to_string()), (None, 0, "lamps: ok".to_owned()));
    until!(running.watch().store().keys() == [key("b")]);
}
