//! Several clients that write to one bucket at the same time, and a checker.

use homeostat_objects::{Client, ClientError, DeleteOptions, FieldOwner, Patch, PatchTarget, Query};
use serde_json::json;

use super::{WIDGET, client, key, widget};
use crate::support::server::TestServer;
use crate::support::spawn;

const CLIENTS: usize = 4;
const EACH: usize = 40;

#[test]
fn no_update_is_lost_and_no_acknowledged_write_is_missing() {
    let server = TestServer::start();
    let checker = client(&server);
    checker.create(&WIDGET, widget("shared", 0)).unwrap();
    let writers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = client(&server);
            spawn(move || {
                let mut versions = Vec::new();
                for round in 0..EACH {
                    // An optimistic update: only the caller's version can conflict.
                    loop {
                        let mut read = client.get(&WIDGET, &key("shared")).unwrap().to_value();
                        read["spec"]["size"] = json!(read["spec"]["size"].as_u64().unwrap() + 1);
                        match client.update(&WIDGET, read) {
                            Ok(written) => break versions.push(written.resource_version().to_owned()),
                            Err(error) => assert!(error.is_conflict(), "{error}"),
                        }
                    }
                    // Writes without a version are repeated until they succeed.
                    let field = format!("f-{number}-{round}");
                    let patch = Patch::Merge(json!({"data": {field: round}}));
                    let patched = client.patch(&WIDGET, &key("shared"), &patch, PatchTarget::Object).unwrap();
                    let mut applied = widget("shared", 0);
                    applied["spec"] = json!({format!("owner-{number}"): round});
                    let owner = FieldOwner::new(format!("owner-{number}")).force();
                    let applied = client.apply(&WIDGET, applied, &owner).unwrap();
                    for written in [patched, applied] {
                        versions.push(written.resource_version().to_owned());
                    }
                    let own = client.create(&WIDGET, widget(&format!("own-{number}-{round}"), 1)).unwrap();
                    versions.push(own.resource_version().to_owned());
                }
                versions
            })
        })
        .collect();
    let mut versions: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    let count = versions.len();
    versions.sort();
    versions.dedup();
    assert_eq!((versions.len(), count), (CLIENTS * EACH * 4, CLIENTS * EACH * 4), "each write has its own version");
    let shared = checker.get(&WIDGET, &key("shared")).unwrap().to_value();
    assert_eq!(shared["spec"]["size"], json!(CLIENTS * EACH));
    assert_eq!(shared["data"].as_object().unwrap().len(), CLIENTS * EACH);
    for number in 0..CLIENTS {
        assert_eq!(shared["spec"][format!("owner-{number}")], json!(EACH - 1));
    }
    assert_eq!(checker.list(&WIDGET, &Query::all()).unwrap().items.len(), CLIENTS * EACH + 1);
}

#[test]
fn one_of_many_clients_creates_an_object_and_one_deletes_it() {
    let server = TestServer::start();
    for round in 0..10 {
        let run = |call: fn(&homeostat_nats::NatsClient, usize) -> Result<(), ClientError>| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let client = client(&server);
                    spawn(move || call(&client, number))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        };
        let created = run(|client, number| client.create(&WIDGET, widget("a", number as u64)).map(drop));
        let refused: Vec<_> = created.iter().filter_map(|result| result.as_ref().err()).collect();
        assert_eq!(refused.len(), CLIENTS - 1, "round {round}");
        assert!(refused.iter().all(|error| error.is_already_exists()), "{refused:?}");
        let deleted = run(|client, _| client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).map(drop));
        let refused: Vec<_> = deleted.iter().filter_map(|result| result.as_ref().err()).collect();
        assert_eq!(refused.len(), CLIENTS - 1, "round {round}");
        assert!(refused.iter().all(|error| error.is_not_found()), "{refused:?}");
    }
}
