//! A day of operation in miniature: tokens and certificates rotate, connections break, watches expire, and nothing
//! leaks.

use std::time::{Duration, Instant};

use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, DeleteOptions, Ignore, ObjectKey, Patch, PatchTarget, Query};
use serde_json::{Value, json};

use crate::cases::{CONFIG_MAP, Follower, fresh, map};
use crate::cluster::servers::{ADMIN, OTHER_ADMIN};
use crate::cluster::{self, Options, Servers};
use crate::forwarder::Forwarder;
use crate::process_usage::usage;
use homeostat_test_support::system::{number_of, pause};

const MIB: u64 = 1_024 * 1_024;
/// How many more threads and sockets a later point may have than an earlier one.
const MORE_THREADS: usize = 8;
const MORE_SOCKETS: usize = 16;

/// Returns a client that connects through the forwarder, and gives up silent watches after two seconds.
fn client_of(servers: &Servers, forwarder: &Forwarder, user: &Value) -> KubernetesClient {
    let mut kubeconfig: Value = serde_json::from_str(&servers.kubeconfig(user)).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", forwarder.address));
    let config = Kubeconfig::parse(&kubeconfig.to_string(), servers.directory.path()).unwrap().config().unwrap();
    KubernetesClient::builder(config).watch_read_timeout(Duration::from_secs(2)).build().unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the variable names a real time")]
fn a_day_in_miniature_leaks_nothing() {
    let length = Duration::from_secs(number_of("HOMEOSTAT_TEST_SOAK_SECONDS", 12));
    let servers = cluster::private(&Options::default());
    let target = servers.url.strip_prefix("https://").unwrap();
    let forwarder = Forwarder::to(target);
    servers.directory.write("token", ADMIN);
    let by_token = client_of(&servers, &forwarder, &json!({"tokenFile": "token"}));
    let files = json!({"client-certificate": "client.pem", "client-key": "client.pem"});
    let by_certificate = client_of(&servers, &forwarder, &files);
    let direct = servers.client();
    let query = Query::all().namespace("default");
    let followers: Vec<_> = [&by_token, &by_certificate, &by_token, &by_certificate]
        .map(|client| Follower::start(client, &CONFIG_MAP, query.clone()))
        .into_iter()
        .map(Follower::synced)
        .collect();

    // Returns the usage after all connections were cut and each watch has a new one.
    let settled = |name: &str| {
        forwarder.cut();
        let key = ObjectKey::new("default", name);
        direct.create(&CONFIG_MAP, map("default", key.name(), 0)).unwrap();
        for follower in &followers {
            follower.waits_for(&key, true);
        }
        // The calls in the wait below fill the connection pools. Fill them here too, so that both measurements are
        // comparable.
        for _ in 0..60 {
            for client in [&by_token, &by_certificate] {
                client.list(&CONFIG_MAP, &query).unwrap();
            }
            pause(Duration::from_millis(50));
        }
        usage()
    };

    let start = Instant::now();
    let mut early = None;
    let mut round: u64 = 0;
    while start.elapsed() < length || early.is_none() {
        round += 1;
        let key = ObjectKey::new("default", &format!("map-{}", round % 20));
        let client = if round.is_multiple_of(2) { &by_token } else { &by_certificate };
        match round % 3 {
            0 => drop(client.delete(&CONFIG_MAP, &key, &DeleteOptions::default()).ignore_not_found().unwrap()),
            1 => drop(client.create(&CONFIG_MAP, map("default", key.name(), round)).ignore_already_exists().unwrap()),
            _ => {
                let patch = Patch::Merge(json!({"data": {"number": round.to_string()}}));
                client.patch(&CONFIG_MAP, &key, &patch, PatchTarget::Object).ignore_not_found().unwrap();
            }
        }
        if round.is_multiple_of(10) {
            servers
                .directory
                .write("token", format!("{}\n", if round.is_multiple_of(20) { ADMIN } else { OTHER_ADMIN }));
            servers.rotate_client_certificate();
        }
        if round.is_multiple_of(25) {
            forwarder.cut();
        }
        if round.is_multiple_of(50) {
            for follower in &followers {
                follower.waits_until_equal(|| Some(fresh(&direct, &CONFIG_MAP, &query)));
            }
            // By now, buffers have reached their size.
            early.get_or_insert_with(|| settled("early"));
        }
        pause(Duration::from_millis(20));
    }
    for follower in &followers {
        follower.waits_until_equal(|| Some(fresh(&direct, &CONFIG_MAP, &query)));
    }
    let (early, mut late) = (early.expect("some 50 rounds"), settled("late"));
    // Cut connections end a little later, and a client drops them with its next calls. A leak would stay.
    for _ in 0..200 {
        if late.threads <= early.threads + MORE_THREADS && late.sockets <= early.sockets + MORE_SOCKETS {
            break;
        }
        for client in [&by_token, &by_certificate] {
            client.list(&CONFIG_MAP, &query).unwrap();
        }
        pause(Duration::from_millis(100));
        late = usage();
    }
    println!("{round} rounds, {} connections: {early:?} became {late:?}", forwarder.accepted());
    assert!(late.threads <= early.threads + MORE_THREADS, "{early:?} became {late:?}");
    assert!(late.sockets <= early.sockets + MORE_SOCKETS, "{early:?} became {late:?}");
    assert!(late.memory <= early.memory + 32 * MIB, "{early:?} became {late:?}");
}
