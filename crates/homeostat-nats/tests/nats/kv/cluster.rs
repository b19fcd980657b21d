//! Leader changes in a replicated bucket, while one thread writes and others list and watch.
//!
//! `HOMEOSTAT_NATS_LEADERS` sets the number of leader changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, KvEntry, KvUpdate, KvWatchOptions, NatsError};
use parking_lot::Mutex;

use crate::support::cluster::{REPLICATED, TestCluster, change_leader};
use crate::support::{LONG, is_at_least, number_of, pause, spawn, wait_for_long};

/// With this many keys, the history holds all changes of some seconds.
const KEYS: u64 = 50;

/// The last acknowledged value of each key, with its revision. Values rise.
type Acknowledged = BTreeMap<String, (u64, u64)>;

fn value(entry: &KvEntry) -> u64 {
    String::from_utf8_lossy(&entry.value).parse().unwrap()
}

/// Repeats a call until it succeeds, even after a watch that was gone.
fn answered<R>(mut call: impl FnMut() -> Result<R, NatsError>) -> R {
    wait_for_long("answer", || call().ok())
}

/// Lists the bucket again and again. Each listing must contain all writes acknowledged before it began, and a watch
/// that continues after it must report the later ones.
fn list(bucket: &KvBucket, acknowledged: &Mutex<Acknowledged>, stop: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !stop.load(Ordering::SeqCst) {
        let before = acknowledged.lock().clone();
        let listing = answered(|| bucket.list(">"));
        let listed: BTreeMap<_, _> = listing.entries.iter().map(|entry| (&entry.key, value(entry))).collect();
        for (key, (revision, value)) in &before {
            assert!(listing.position.revision() >= *revision, "{listing:?} is from before {before:?}");
            assert!(listed.get(key).is_some_and(|listed| listed >= value), "{listing:?} does not have {before:?}");
        }
        // Each key has a value in the listing, or one after the listing's position.
        let now = acknowledged.lock().clone();
        let options = KvWatchOptions::new().heartbeat(Duration::from_millis(500)).after(listing.position.clone());
        let mut known: BTreeMap<_, _> = listed.into_iter().map(|(key, value)| (key.clone(), value)).collect();
        let Ok(mut watch) = bucket.watch(&options) else { continue };
        let is_complete = |known: &BTreeMap<String, u64>| {
            now.iter().all(|(key, (_, value))| known.get(key).is_some_and(|known| known >= value))
        };
        loop {
            match watch.recv_timeout(LONG * 3) {
                Ok(KvUpdate::Entry(entry)) => {
                    assert!(entry.revision > listing.position.revision(), "{entry:?} is in {listing:?}");
                    known.insert(entry.key.clone(), value(&entry));
                }
                Ok(_) => {
                    assert!(is_complete(&known), "{known:?} is synced without {now:?}");
                    rounds += 1;
                    break;
                }
                Err(error) => {
                    assert!(!error.is_timeout(), "{error}");
                    break;
                }
            }
        }
    }
    rounds
}

#[test]
fn a_replicated_bucket_whose_leader_changes_loses_nothing() {
    let changes = number_of("HOMEOSTAT_NATS_LEADERS", 2);
    let mut cluster = TestCluster::start();
    let base = cluster.options().request_timeout(Duration::from_secs(3));
    let connect = |name: &str| base.clone().name(name).connect().unwrap();
    let (control, writing) = (connect("control"), connect("writer"));
    let kv = answered(|| KvBucket::create(&writing, &KvConfig::new("TEST").history(64).replicas(3)));
    let acknowledged: Arc<Mutex<Acknowledged>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));

    let (told, stopped) = (Arc::clone(&acknowledged), Arc::clone(&stop));
    let writer = spawn(move || {
        let mut value = 0;
        while !stopped.load(Ordering::SeqCst) {
            value += 1;
            let key = format!("key-{}", value % KEYS);
            if let Ok(revision) = kv.put(&key, value.to_string().as_bytes()) {
                told.lock().insert(key, (revision, value));
            }
            pause(Duration::from_millis(5));
        }
        answered(|| kv.put("end", b"0"));
    });
    let (bucket, told, stopped) =
        (answered(|| KvBucket::bind(&connect("lister"), "TEST")), Arc::clone(&acknowledged), Arc::clone(&stop));
    let lister = spawn(move || list(&bucket, &told, &stopped));
    let source = answered(|| KvBucket::bind(&connect("watcher"), "TEST"));
    let watcher = spawn(move || {
        let options = KvWatchOptions::new().heartbeat(Duration::from_millis(500)).with_history();
        let (mut seen, mut watch) = (Vec::new(), answered(|| source.watch(&options)));
        loop {
            match watch.recv_timeout(LONG * 6).unwrap() {
                KvUpdate::Entry(entry) if entry.key == "end" => return seen,
                KvUpdate::Entry(entry) => seen.push((entry.revision, entry.key.clone(), value(&entry))),
                _ => {}
            }
        }
    });
    for change in 0..changes {
        let before = acknowledged.lock().clone();
        change_leader(&mut cluster, &control, "TEST", change % 2 == 1);
        wait_for_long("more writes", || (*acknowledged.lock() != before).then_some(()));
    }
    stop.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    let (listings, seen) = (lister.join().unwrap(), watcher.join().unwrap());
    println!("{changes} changes: {} seen, {listings} listings", seen.len());
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "a change is reported twice or out of order");
    for (key, (revision, value)) in &*acknowledged.lock() {
        assert!(seen.contains(&(*revision, key.clone(), *value)), "{key}={value}@{revision} was not told");
    }
    assert!(listings > 0);
}

/// Many writers expect the same revision of a key, on different connections. Servers before version 2.10.19 accept
/// several of them.
#[test]
fn of_the_writers_that_expect_the_same_revision_one_succeeds() {
    let cluster = TestCluster::start();
    let connect = || cluster.options().connect().unwrap();
    if !is_at_least(&connect().status().version, REPLICATED) {
        return;
    }
    let kv = answered(|| KvBucket::create(&connect(), &KvConfig::new("TEST").history(64).replicas(3)));
    let mut revision = kv.put("a", b"0").unwrap();
    let writers: Vec<_> = (0..4).map(|_| KvBucket::bind(&connect(), "TEST").unwrap()).collect();
    for round in 0..number_of("HOMEOSTAT_NATS_RACES", 50) {
        let start = std::sync::Barrier::new(writers.len());
        let write = |kv: &KvBucket| {
            start.wait();
            kv.update("a", b"1", revision)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = writers.iter().map(|kv| scope.spawn(|| write(kv))).collect();
            started.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let stored: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        assert!(stored.len() == 1, "round {round}: {results:?}");
        assert!(results.iter().filter_map(|result| result.as_ref().err()).all(NatsError::is_conflict), "{results:?}");
        revision = *stored[0];
    }
}
