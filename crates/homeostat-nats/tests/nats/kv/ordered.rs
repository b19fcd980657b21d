//! The consumer of a watch: it is deleted, lost or cut off, and its server restarts.
//!
//! `ordered_test.go` has these faults for each of its ways to read. A watch has only one way.

use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, KvWatchOptions, NatsConnection};

use super::{bucket, next, take, watching};
use crate::forwarder::{Flow, Forwarder};
use crate::support::server::TestServer;
use crate::support::{options, spawn};
use crate::until::until;

/// Returns the names of the bucket's consumers.
fn consumers(connection: &NatsConnection) -> Vec<String> {
    let answer = connection.request("$JS.API.CONSUMER.NAMES.KV_TEST", b"").unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    let names = answer["consumers"].as_array().cloned().unwrap_or_default();
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// A bucket behind a proxy, and a direct connection to its server.
struct Proxied {
    /// Connected through the proxy.
    kv: KvBucket,
    connection: NatsConnection,
    direct: NatsConnection,
    /// The bucket on the direct connection.
    writer: KvBucket,
    proxy: Forwarder,
    _server: TestServer,
}

fn proxied() -> Proxied {
    let server = TestServer::start();
    let proxy = Forwarder::to(&server.address());
    let direct = options(&server.url()).connect().unwrap();
    let connection = options(&proxy.address).connect().unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST")).unwrap();
    let writer = KvBucket::bind(&direct, "TEST").unwrap();
    Proxied { kv, connection, direct, writer, proxy, _server: server }
}

fn delete_consumers(connection: &NatsConnection) {
    for name in consumers(connection) {
        connection.request(&format!("$JS.API.CONSUMER.DELETE.KV_TEST.{name}"), b"").unwrap();
    }
}

/// Removes a key with its marker, as other programs do.
fn purge(connection: &NatsConnection, key: &str) {
    let body = format!("{{\"filter\":\"$KV.TEST.{key}\"}}");
    let answer = connection.request("$JS.API.STREAM.PURGE.KV_TEST", body.as_bytes()).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(answer["success"], true, "{answer}");
}

/// "base usage, delete consumer", "reset consumer before receiving any messages".
#[test]
fn a_deleted_consumer_is_replaced_and_nothing_is_missing() {
    let (_server, connection, kv) = bucket(1);
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    for round in 0..10_u64 {
        delete_consumers(&connection);
        let revision = kv.put("a", b"1").unwrap();
        assert_eq!((revision, next(&mut watch)), (round + 1, format!("a=1@{}", round + 1)));
    }
    assert_eq!(consumers(&connection).len(), 1);
}

/// "stop consume during reset".
#[test]
fn a_stop_while_a_consumer_is_replaced_ends_the_watch() {
    let (_server, connection, kv) = bucket(1);
    for _ in 0..10 {
        let mut watch = kv.watch(&watching()).unwrap();
        assert_eq!(next(&mut watch), "synced");
        let stopper = watch.stopper();
        let blocked = spawn(move || watch.recv().unwrap_err());
        delete_consumers(&connection);
        stopper.stop();
        assert!(blocked.join().unwrap().is_closed());
        until("no consumer", || consumers(&connection).is_empty().then_some(()));
    }
    assert_eq!(connection.status().subscriptions, 0);
}

/// "with custom start seq".
#[test]
fn a_consumer_that_is_deleted_before_its_first_message_starts_at_the_same_place() {
    let (_server, connection, kv) = bucket(5);
    for number in 1..=3 {
        kv.put("a", number.to_string().as_bytes()).unwrap();
    }
    let mut first = kv.watch(&watching().with_history()).unwrap();
    assert_eq!(next(&mut first), "a=1@1");
    let mut watch = kv.watch(&watching().after(first.position().unwrap())).unwrap();
    assert_eq!(next(&mut watch), "a=2@2");
    delete_consumers(&connection);
    assert_eq!(take(&mut watch, 2), ["a=3@3", "synced"]);
    kv.put("b", b"4").unwrap();
    assert_eq!(next(&mut watch), "b=4@4");
    assert_eq!(take(&mut first, 4), ["a=2@2", "a=3@3", "b=4@4", "synced"]);
}

/// "base usage, server restart", "base usage, server shutdown".
#[test]
fn a_watch_survives_restarts_of_the_server() {
    let (mut server, connection, kv) = bucket(1);
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    for round in 1..=5 {
        server.restart();
        // The connection may not have noticed its end yet.
        until("reconnect", || (connection.status().connects > round).then_some(()));
        kv.put("a", b"1").unwrap();
        assert_eq!(next(&mut watch), format!("a=1@{round}"));
    }
    until("one consumer", || (consumers(&connection).len() == 1).then_some(()));
}

/// "base usage, missing heartbeat": the server is alive, but its consumer is silent.
#[test]
fn missed_heartbeats_lead_to_a_new_consumer() {
    let Proxied { kv, direct, writer, proxy, .. } = &proxied();
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    let first = consumers(direct);
    proxy.set_flow(Flow::Held);
    writer.put("a", b"1").unwrap();
    // Two and a half intervals without any message.
    assert!(watch.recv_timeout(Duration::from_millis(600)).unwrap_err().is_timeout());
    proxy.set_flow(Flow::Passing);
    assert_eq!(next(&mut watch), "a=1@1");
    writer.put("a", b"2").unwrap();
    assert_eq!(next(&mut watch), "a=2@2");
    until("another consumer", || {
        let present = consumers(direct);
        (present.len() == 1 && present != first).then_some(())
    });
}

/// A storm of reconnects leaves one consumer.
#[test]
fn a_storm_of_reconnects_leaves_one_consumer() {
    let Proxied { kv, connection, direct, writer, proxy, .. } = &proxied();
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    let mut most = 0;
    for round in 1..=100_u64 {
        let connects = connection.status().connects;
        proxy.cut();
        writer.put("a", b"1").unwrap();
        assert_eq!(next(&mut watch), format!("a=1@{round}"));
        assert!(connection.status().connects > connects);
        most = most.max(consumers(direct).len());
    }
    until("one consumer", || (consumers(direct).len() == 1).then_some(()));
    println!("at most {most} consumers at once in 100 reconnects");
    assert!(most <= 2, "{most} consumers");
    drop(watch);
    until("no consumer", || consumers(direct).is_empty().then_some(()));
}

/// nats-server#5785: a consumer that starts beyond the end of a stream is accepted, but receives nothing.
#[test]
fn a_stream_that_is_recreated_lower_while_the_watch_is_away_is_gone() {
    let Proxied { kv, direct, proxy, .. } = &proxied();
    for number in 0..20 {
        kv.put("a", &[number]).unwrap();
    }
    let mut watch = kv.watch(&watching()).unwrap();
    next(&mut watch);
    assert_eq!(next(&mut watch), "synced");
    proxy.refuse(true);
    proxy.cut();
    KvBucket::delete_bucket(direct, "TEST").unwrap();
    let again = KvBucket::create(direct, &KvConfig::new("TEST")).unwrap();
    again.put("a", b"new").unwrap();
    proxy.refuse(false);
    let error = watch.recv_timeout(crate::support::LONG).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(error.to_string().contains("was replaced by one of"), "{error}");
}

/// The same while the watch is connected: its consumer ends with the stream.
#[test]
fn a_stream_that_is_recreated_under_a_watch_is_gone() {
    let (_server, connection, kv) = bucket(1);
    kv.put("a", b"1").unwrap();
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(take(&mut watch, 2), ["a=1@1", "synced"]);
    KvBucket::delete_bucket(&connection, "TEST").unwrap();
    KvBucket::create(&connection, &KvConfig::new("TEST")).unwrap().put("a", b"2").unwrap();
    let error = watch.recv_timeout(crate::support::LONG).unwrap_err();
    assert!(error.is_gone(), "{error}");
}

/// While the watch is away, the key is deleted and its marker removed.
#[test]
fn markers_that_are_removed_while_the_watch_is_away_make_it_gone() {
    let Proxied { kv, direct, writer, proxy, .. } = &proxied();
    kv.put("a", b"1").unwrap();
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(take(&mut watch, 2), ["a=1@1", "synced"]);
    proxy.refuse(true);
    proxy.cut();
    writer.delete("a").unwrap();
    purge(direct, "a");
    proxy.refuse(false);
    let error = watch.recv_timeout(crate::support::LONG).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(kv.list(">").unwrap().entries.is_empty(), "the listing shows the deletion");
}

/// Another key holds the start of the stream, so only the length of the absence shows the loss.
#[test]
fn an_absence_longer_than_markers_live_makes_the_watch_gone() {
    let Proxied { kv, direct, writer, proxy, .. } = &proxied();
    kv.put("old", b"1").unwrap();
    kv.put("a", b"2").unwrap();
    let mut watch = kv.watch(&watching().marker_life(Duration::from_millis(300))).unwrap();
    assert_eq!(take(&mut watch, 3), ["old=1@1", "a=2@2", "synced"]);
    proxy.refuse(true);
    proxy.cut();
    writer.delete("a").unwrap();
    purge(direct, "a");
    crate::support::pause(Duration::from_millis(400));
    proxy.refuse(false);
    let error = watch.recv_timeout(crate::support::LONG).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(error.to_string().contains("but delete markers are only sure to stay for 300ms"), "{error}");
}

/// The reader is so slow that the server does not send it everything. Its consumer still exists.
#[test]
fn a_marker_stays_until_a_slow_watch_has_received_it() {
    let Proxied { kv, connection, writer, proxy, .. } = &proxied();
    if !crate::support::removes_markers(connection) {
        return;
    }
    kv.put("a", b"1").unwrap();
    kv.put("b", b"2").unwrap();
    let options = KvWatchOptions::new().heartbeat(crate::support::LONG);
    let mut watch = kv.watch(&options).unwrap();
    assert_eq!(take(&mut watch, 3), ["a=1@1", "b=2@2", "synced"]);
    let mut other = writer.watch(&options.clone().filter("b")).unwrap();
    assert_eq!(take(&mut other, 2), ["b=2@2", "synced"]);
    proxy.set_flow(Flow::Held);
    // More than a consumer sends without a sign of life from its client.
    let large = vec![b'x'; 1 << 19];
    for _ in 0..24 {
        writer.put("large", &large).unwrap();
    }
    let revision = writer.delete("a").unwrap();
    let deleted = writer.delete("b").unwrap();
    assert_eq!(next(&mut other), format!("b DEL@{deleted}"));
    assert_eq!(writer.remove_markers(Duration::ZERO).unwrap(), 0);
    proxy.set_flow(Flow::Passing);
    let mut found = String::new();
    while !found.starts_with("a ") {
        found = match watch.recv_timeout(crate::support::LONG).unwrap() {
            homeostat_nats::KvUpdate::Entry(entry) => super::show(&entry),
            _ => String::new(),
        };
        assert!(!found.starts_with("b "), "the deletion of a comes first");
    }
    assert_eq!((found, next(&mut watch)), (format!("a DEL@{revision}"), format!("b DEL@{deleted}")));
    assert_eq!(writer.remove_markers(Duration::ZERO).unwrap(), 2);
    assert_eq!(connection.status().connects, 1);
}
