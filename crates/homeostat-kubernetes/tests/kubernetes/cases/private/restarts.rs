//! Servers that restart, expire versions and lose data: cases 2, 3, 7, 8 and 10.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homeostat::CancellationToken;
use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, Kind, ObjectKey, Query};
use homeostat_testing::conformance::WIDGET;
use serde_json::{Value, json};

use crate::cases::{CONFIG_MAP, Follower, PATIENCE, Versions, delete, fresh};
use crate::cluster::http::Http;
use crate::cluster::{self, Options, Programs, Servers};
use crate::kinds;
use crate::until::within;
use homeostat_test_support::system::{number_of, pause};

/// The kind of the objects, and their path: config maps, if the server has core kinds.
fn kind() -> (Kind, &'static str) {
    if Programs::find().are_complete() {
        (CONFIG_MAP, "/api/v1/namespaces/default/configmaps")
    } else {
        (WIDGET, "/apis/conformance.example.com/v1/namespaces/default/widgets")
    }
}

/// Returns an object with a number.
fn map(name: &str, number: u64) -> Value {
    let (kind, _) = kind();
    json!({
        "apiVersion": kind.api_version(), "kind": kind.name(),
        "metadata": {"namespace": "default", "name": name}, "data": {"number": number.to_string()},
    })
}

/// Starts servers with the kind.
fn started(options: &Options) -> Servers {
    let servers = cluster::private(options);
    kinds::install(&servers.client());
    servers
}

fn in_default() -> Query {
    Query::all().namespace("default")
}

/// Returns the objects on the server without using the client under test. `None` if the server is down.
fn listed(http: &Http) -> Option<Versions> {
    let (status, text) = http.send("GET", kind().1, None).ok()?;
    let list: Value = serde_json::from_str(&text).ok().filter(|_| status == 200)?;
    let entry = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
        (ObjectKey::new(&text("namespace"), &text("name")), text("resourceVersion"))
    };
    Some(list["items"].as_array()?.iter().map(entry).collect())
}

/// Writes objects until `stop` is set. The server may fail at any time.
fn write(http: &Http, writer: usize, stop: &AtomicBool) -> usize {
    let (mut written, maps) = (0, kind().1);
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("object-{writer}-{}", number % 17);
        let path = format!("{maps}/{name}");
        let object = map(&name, number);
        let answer = match number % 5 {
            0 | 1 => http.send("POST", maps, Some(&object)),
            2 | 3 => http.send("PATCH", &path, Some(&object)),
            _ => http.send("DELETE", &path, None),
        };
        match answer {
            Ok((status, _)) => written += usize::from(status < 300),
            // The server is down.
            Err(_) => pause(Duration::from_millis(20)),
        }
    }
    written
}

#[test]
fn case_08_servers_restart_in_mid_watch() {
    let restarts = number_of("HOMEOSTAT_TEST_RESTARTS", 5);
    let mut servers = started(&Options::default());
    let http = servers.http();
    let follower = Follower::start(&servers.client(), &kind().0, in_default()).synced();
    let mut written = 0;
    for round in 0..restarts {
        let stop = AtomicBool::new(false);
        written += thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    scope.spawn({
                        let (http, stop) = (&http, &stop);
                        move || write(http, writer, stop)
                    })
                })
                .collect();
            // The server dies while it writes. In every second round, its storage dies too.
            pause(Duration::from_millis(200 + 37 * (round % 7)));
            servers.api_server.kill();
            if round % 2 == 1 {
                servers.etcd.kill();
                servers.etcd.start();
            }
            servers.api_server.start();
            servers.wait_until_ready();
            pause(Duration::from_millis(100));
            stop.store(true, Ordering::SeqCst);
            writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
        });
        follower.waits_until_equal(|| listed(&http));
    }
    assert!(written > 0);
    let deletions = follower.deletions().len();
    println!("{restarts} restarts, {written} writes, {deletions} deletions delivered");
}

#[test]
fn case_10_the_storage_is_restored_to_an_older_revision() {
    let mut servers = started(&Options::default());
    let http = servers.http();
    let client = servers.client();
    for name in ["kept", "changed", "deleted"] {
        client.create(&kind().0, map(name, 0)).unwrap();
    }
    servers.save_etcd();
    let follower = Follower::start(&client, &kind().0, in_default()).synced();
    for number in 1..=50 {
        http.send("PATCH", &format!("{}/changed", kind().1), Some(&map("changed", number))).unwrap();
    }
    delete(&client, &kind().0, &ObjectKey::new("default", "deleted"));
    client.create(&kind().0, map("lost", 0)).unwrap();
    follower.waits_until_equal(|| listed(&http));
    servers.restore_etcd();
    follower.waits_until_equal(|| listed(&http));
    assert!(follower.deletions().contains(&ObjectKey::new("default", "lost")));
    client.create(&kind().0, map("later", 0)).unwrap();
    // The new versions overtake the old ones.
    for number in 100..=200 {
        http.send("PATCH", &format!("{}/changed", kind().1), Some(&map("changed", number))).unwrap();
    }
    follower.waits_until_equal(|| listed(&http));
}

/// Starts servers that discard old versions within seconds.
fn forgetful() -> Servers {
    let api_server = vec!["--etcd-compaction-interval=1s", "--watch-cache=false"];
    started(&Options { api_server, ..Options::default() })
}

#[test]
fn case_02_and_03_versions_and_pages_expire() {
    let servers = forgetful();
    let client = servers.client();
    for number in 0..6 {
        client.create(&kind().0, map(&format!("map-{number}"), 0)).unwrap();
    }
    let first = client.list(&kind().0, &in_default().limit(2)).unwrap();
    let next = in_default().limit(2).continue_from(first.continue_token.unwrap());
    let mut number = 0;
    let error = within(PATIENCE, "the page expires", || {
        number += 1;
        servers.http().send("PATCH", &format!("{}/map-0", kind().1), Some(&map("map-0", number))).unwrap();
        client.list(&kind().0, &next).err()
    });
    assert!(error.is_gone(), "{error:?}");
    // A watch from a version needs only the changes after it, so it may expire one compaction later than the page.
    let error = within(PATIENCE, "the version expires", || {
        let stop = CancellationToken::new();
        let watch = client.watch(&kind().0, &in_default(), Some(&first.version), &stop);
        watch.and_then(|mut events| events.next().unwrap()).err()
    });
    assert!(error.is_gone(), "{error:?}");
}

#[test]
fn case_07_a_paused_server_delays_a_watch_but_does_not_end_it() {
    let servers = started(&Options::default());
    let path = servers.directory.path().join("kubeconfig");
    let config = Kubeconfig::read(path).unwrap().config().unwrap();
    let silence = Duration::from_secs(2);
    let builder = KubernetesClient::builder(config).watch_read_timeout(silence).connect_timeout(silence);
    let client = builder.read_timeout(silence).build().unwrap();
    let follower = Follower::start(&client, &kind().0, in_default()).synced();
    servers.api_server.pause();
    pause(3 * silence);
    servers.api_server.resume();
    let created = servers.client().create(&kind().0, map("a", 0)).unwrap();
    follower.waits_for(&created.key(), true);
    follower.waits_until_equal(|| Some(fresh(&client, &kind().0, &in_default())));
}
