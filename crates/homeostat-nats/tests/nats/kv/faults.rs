//! A server that is killed again and again while one thread writes and another watches, and a checker.
//!
//! `HOMEOSTAT_NATS_KILLS` sets the number of kills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, KvOperation, KvUpdate, KvWatchOptions, NatsErrorKind};

use crate::support::server::TestServer;
use crate::support::{LONG, now, number_of, options, pause, spawn};

/// A write of the test. Each value is a unique number.
#[derive(Debug)]
struct Written {
    key: String,
    value: u64,
    /// `None` if the server has not acknowledged it.
    revision: Option<u64>,
}

#[test]
fn a_killed_server_loses_no_acknowledged_write_and_repeats_no_change() {
    let kills = number_of("HOMEOSTAT_NATS_KILLS", 10);
    // So many that the history keeps each write until a reader that connects late has seen it.
    let keys = 5 * u64::try_from(kills.max(1)).unwrap();
    let mut server = TestServer::start();
    let base = options(&server.url()).request_timeout(Duration::from_secs(30));
    let connection = base.clone().name("writer").connect().unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST").history(64)).unwrap();
    let reading = base.name("reader").connect().unwrap();
    let watched = KvBucket::bind(&reading, "TEST").unwrap();
    let stop = Arc::new(AtomicBool::new(false));

    let (writer, stopped) = (kv.clone(), Arc::clone(&stop));
    let writing = spawn(move || {
        let mut written = Vec::new();
        let mut value = 0;
        while !stopped.load(Ordering::SeqCst) {
            value += 1;
            let key = format!("key-{}", value % keys);
            let result = writer.put(&key, value.to_string().as_bytes());
            if let Err(error) = &result {
                assert_eq!(error.kind(), NatsErrorKind::Disconnected, "{error}");
            }
            written.push(Written { key, value, revision: result.ok() });
        }
        writer.put("end", b"0").unwrap();
        written
    });
    let watching = spawn(move || {
        let mut seen: Vec<(String, u64, u64)> = Vec::new();
        // The revisions between the end of a watch and the following listing.
        let mut relists: Vec<(u64, u64)> = Vec::new();
        let base = KvWatchOptions::new().heartbeat(Duration::from_millis(200));
        let mut options = base.clone().with_history();
        loop {
            let mut watch = watched.watch(&options).unwrap();
            loop {
                match watch.recv_timeout(LONG) {
                    Ok(KvUpdate::Entry(entry)) if entry.key == "end" => return (seen, relists),
                    Ok(KvUpdate::Entry(entry)) => {
                        assert_eq!(entry.operation, KvOperation::Put);
                        let value = String::from_utf8(entry.value).unwrap().parse().unwrap();
                        seen.push((entry.key, value, entry.revision));
                    }
                    Ok(_) => {}
                    Err(error) if error.is_gone() => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let from = watched.list(">").unwrap();
            relists.push((seen.last().map_or(0, |(_, _, revision)| *revision), from.position.revision()));
            if from.entries.iter().any(|entry| entry.key == "end") {
                return (seen, relists);
            }
            options = base.clone().after(from.position);
        }
    });
    let start = now();
    for kill in 0..kills {
        // The kill happens at varying points of a write.
        pause(Duration::from_millis(20 + u64::try_from(kill * 7 % 60).unwrap()));
        server.kill();
        server.restart();
    }
    pause(Duration::from_millis(50));
    stop.store(true, Ordering::SeqCst);
    let written = writing.join().unwrap();
    let (seen, relists) = watching.join().unwrap();

    let acknowledged = written.iter().filter(|write| write.revision.is_some()).count();
    println!(
        "{kills} kills in {:?}: {} writes, {acknowledged} acknowledged, {} seen, {} relists, {} and {} connects",
        start.elapsed(),
        written.len(),
        seen.len(),
        relists.len(),
        connection.status().connects,
        reading.status().connects,
    );
    assert!(kills == 0 || acknowledged > 0);
    // Each revision is reported once and in order, even across several watches.
    assert!(seen.windows(2).all(|pair| pair[0].2 < pair[1].2), "a change is reported twice or out of order");
    let by_revision: BTreeMap<_, _> = seen.iter().map(|(key, value, revision)| (*revision, (key, *value))).collect();
    let stored: BTreeMap<_, _> = (0..keys)
        .flat_map(|key| kv.history(&format!("key-{key}")).unwrap())
        .map(|entry| (entry.revision, String::from_utf8(entry.value).unwrap().parse::<u64>().unwrap()))
        .collect();
    let mut last = BTreeMap::new();
    for Written { key, value, revision } in &written {
        let Some(revision) = revision else { continue };
        if let Some((seen_key, seen_value)) = by_revision.get(revision) {
            assert_eq!((*seen_key, seen_value), (key, value), "revision {revision}");
        } else {
            let listed = relists.iter().any(|(end, listed)| (end + 1..=*listed).contains(revision));
            assert!(listed, "revision {revision} was never told, and no watch was gone then");
        }
        if let Some(stored) = stored.get(revision) {
            assert_eq!(stored, value, "revision {revision}");
        }
        last.insert(key, (*revision, *value));
    }
    // Each key has its last acknowledged write, or a later one that was not acknowledged.
    for (key, (revision, value)) in last {
        let entry = kv.get_latest(key).unwrap().unwrap();
        assert!(entry.revision >= revision, "{key}: revision {revision} is lost");
        let found: u64 = String::from_utf8(entry.value).unwrap().parse().unwrap();
        assert!(found >= value, "{key}: value {value} is lost");
    }
}
