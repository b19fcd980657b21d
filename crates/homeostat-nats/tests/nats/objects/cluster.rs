//! Leader changes in a replicated bucket with objects, while clients write and watch.
//!
//! `HOMEOSTAT_NATS_LEADERS` sets the number of leader changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use homeostat_nats::{NatsClient, NatsConnection, NatsErrorKind};
use homeostat_objects::{Client, Query};
use serde_json::json;

use super::faults::{answered, follow, write};
use super::{WIDGET, key, widget};
use crate::support::cluster::{REPLICATED, TestCluster, change_leader};
use crate::support::{is_at_least, number_of, spawn, wait_for_long};

fn client_of(connection: &NatsConnection) -> NatsClient {
    let config = NatsClient::bucket("TEST").history(64).replicas(3);
    wait_for_long("bucket", || NatsClient::create(connection, &config).ok())
}

/// Servers before version 2.10.19 lose updates.
#[test]
fn writers_lose_no_update_and_watches_no_change_while_the_leader_changes() {
    let changes = number_of("HOMEOSTAT_NATS_LEADERS", 2);
    let mut cluster = TestCluster::start();
    let base = cluster.options().request_timeout(Duration::from_secs(3));
    let connect = |name: &str| base.clone().name(name).connect().unwrap();
    let connection = connect("checker");
    if !is_at_least(&connection.status().version, REPLICATED) {
        let error = NatsClient::create(&connection, &NatsClient::bucket("TEST").replicas(3)).unwrap_err();
        assert_eq!(error.kind(), NatsErrorKind::Unsupported, "{error}");
        assert!(error.to_string().starts_with("replicas needs a server of version 2.10.19 or later, but "), "{error}");
        return;
    }
    let checker = client_of(&connection);
    let mut shared = widget("shared", 0);
    shared["data"] = json!({});
    checker.create(&WIDGET, shared).unwrap();
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..2)
        .map(|number| {
            let client = client_of(&connect(&format!("writer-{number}")));
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            spawn(move || write(&client, &format!("own-{number}"), &stop, &rounds))
        })
        .collect();
    let reader = client_of(&connect("reader"));
    let watching = spawn(move || follow(&reader));
    let control = connect("control");
    for change in 0..changes {
        let seen = rounds.load(Ordering::SeqCst);
        wait_for_long("more writes", || (rounds.load(Ordering::SeqCst) >= seen + 3).then_some(()));
        change_leader(&mut cluster, &control, "TEST", change % 2 == 1);
    }
    stop.store(true, Ordering::SeqCst);
    let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let mut unknown = 0;
    if let Err(error) = answered(&mut unknown, || checker.create(&WIDGET, widget("end", 0))) {
        assert!(error.is_already_exists() && unknown > 0, "{error}");
    }
    let acknowledged: u64 = counts.iter().map(|(acknowledged, _)| acknowledged).sum();
    let shared = answered(&mut 0, || checker.get(&WIDGET, &key("shared"))).unwrap();
    assert_eq!(shared.to_value()["data"].as_object().unwrap().len() as u64, acknowledged, "each name is written once");
    let known = watching.join().unwrap();
    let list = answered(&mut 0, || checker.list(&WIDGET, &Query::all())).unwrap();
    let fresh: BTreeMap<_, _> = list.items.iter().map(|item| (item.name().to_owned(), item.uid().to_owned())).collect();
    assert_eq!(known.objects, fresh);
    assert_eq!(fresh.keys().filter(|name| name.contains("-child-")).count(), 0, "{fresh:?}");
    println!("{changes} changes: {acknowledged} updates, {} events", known.events);
}
