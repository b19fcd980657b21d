//! Many objects and many watches: case 25.

use std::thread;
use std::time::Instant;

use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Client, Query};
use serde_json::json;

use crate::cases::{CONFIG_MAP, Follower, PATIENCE, fresh, map};
use crate::cluster::{self, Options, Servers};
use crate::process_usage::{Usage, usage};
use crate::until::within;

const OBJECTS: usize = 10_000;
const MIB: u64 = 1_024 * 1_024;

fn in_default() -> Query {
    Query::all().namespace("default")
}

/// Creates config maps of about 1 KiB.
fn create(servers: &Servers, count: usize) {
    const THREADS: usize = 4;
    let http = servers.http();
    let fill = |first: usize| {
        for number in (first..count).step_by(THREADS) {
            let mut object = map("default", &format!("map-{number:05}"), 0);
            object["data"]["text"] = json!("x".repeat(500));
            http.create("/api/v1/namespaces/default/configmaps", &object);
        }
    };
    thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || fill(first));
        }
    });
}

/// Returns the size of the objects as JSON.
fn json_size(client: &KubernetesClient) -> u64 {
    let items = client.list(&CONFIG_MAP, &in_default()).unwrap().items;
    items.iter().map(|object| object.to_string().len() as u64).sum()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reports real times, and decides nothing by them")]
fn case_25_ten_thousand_objects_and_fifty_watches_stop_under_a_silent_server() {
    let mut servers = cluster::private(&Options::default());
    create(&servers, OBJECTS);
    let client = servers.client();
    let before = usage();
    let start = Instant::now();
    let follower = Follower::start(&client, &CONFIG_MAP, in_default()).synced();
    let listed = start.elapsed();
    let after = usage();
    assert_eq!(follower.watch.watch().store().len(), OBJECTS);
    let grown = |usage: &Usage| usage.peak_memory.saturating_sub(before.memory);
    println!(
        "{OBJECTS} objects: in sync after {listed:?}, {} MiB, at most {} MiB",
        (after.memory - before.memory) / MIB,
        grown(&after) / MIB
    );
    let json = json_size(&client);
    println!("the objects have {} KiB as JSON", json / 1_024);
    assert!(grown(&after) <= 3 * json, "{after:?}, before {before:?}, {json} bytes as JSON");

    // The restarted server has an empty cache, so the watch may have to list again.
    servers.api_server.kill();
    servers.api_server.start();
    servers.wait_until_ready();
    follower.waits_until_equal(|| Some(fresh(&client, &CONFIG_MAP, &in_default())));
    println!("after a second list at most {} MiB", grown(&usage()) / MIB);
    // Old and new objects, and a list for the comparison.
    assert!(grown(&usage()) <= 6 * json, "{:?}, before {before:?}, {json} bytes as JSON", usage());

    let few = || in_default().field("metadata.name", "map-00000");
    let watches: Vec<_> = (0..50).map(|_| Follower::start(&client, &CONFIG_MAP, few())).collect();
    let watches: Vec<_> = watches.into_iter().map(Follower::synced).collect();
    within(PATIENCE, "each watch has its connection", || (usage().sockets >= before.sockets + 50).then_some(()));
    servers.api_server.pause();
    let start = Instant::now();
    // A stop that waits for the server would wait forever.
    let stop = thread::spawn(|| drop(watches));
    within(PATIENCE, "the watches have stopped", || stop.is_finished());
    println!("50 watches stopped in {:?}, while the server was silent", start.elapsed());
    servers.api_server.resume();
}
