//! Reads and writes.

use std::time::{Duration, SystemTime};

use homeostat_nats::{KvBucket, KvConfig, NatsErrorKind};

use super::{bucket, show, watching};
use crate::support::server::TestServer;
use crate::support::{options, removes_markers, spawn};

/// `TestKeyValueBasics`.
#[test]
fn values_are_put_read_updated_and_deleted() {
    let (_server, _connection, kv) = bucket(5);
    let before = SystemTime::now_for_test();
    assert_eq!(kv.put("name", b"derek").unwrap(), 1);
    let entry = kv.get("name").unwrap().unwrap();
    assert_eq!(show(&entry), "name=derek@1");
    assert!((before..=SystemTime::now_for_test()).contains(&entry.created), "written at {:?}", entry.created);
    assert_eq!(kv.get_latest("name").unwrap(), Some(entry));

    assert_eq!(kv.delete("name").unwrap(), 2);
    assert_eq!(kv.get("name").unwrap(), None);
    assert_eq!(kv.get_latest("name").unwrap(), None);
    assert_eq!(show(&kv.entry("name").unwrap().unwrap()), "name DEL@2");
    // A deleted key can be created again.
    assert_eq!(kv.create_key("name", b"derek").unwrap(), 3);
    let error = kv.delete_revision("name", 4).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!(kv.delete_revision("name", 3).unwrap(), 4);
    // This update expects the marker's revision.
    assert_eq!(kv.update("name", b"rip", 4).unwrap(), 5);
    let error = kv.update("name", b"ik", 3).unwrap_err();
    assert!(error.is_conflict());
    assert_eq!(
        error.to_string(),
        "key \"name\" of bucket \"TEST\" has another revision than expected: revision 3 was expected; \
         wrong last sequence: 5"
    );
    assert_eq!(kv.update("name", b"ik", 5).unwrap(), 6);
    assert_eq!(kv.create_key("age", b"22").unwrap(), 7);
    assert_eq!(kv.update("age", b"33", 7).unwrap(), 8);
    assert_eq!(kv.get("nothing").unwrap(), None);

    let status = kv.status().unwrap();
    assert_eq!((status.history, status.entries, status.revision), (5, 7, 8));
    assert_eq!(kv.name(), "TEST");
}

/// `TestKeyValueCreate`.
#[test]
fn a_key_is_created_once_until_it_is_deleted() {
    let (_server, _connection, kv) = bucket(1);
    assert_eq!(kv.create_key("a", b"1").unwrap(), 1);
    let error = kv.create_key("a", b"1").unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::AlreadyExists);
    assert_eq!(error.to_string(), "key \"a\" of bucket \"TEST\" already exists");
    kv.purge("a").unwrap();
    assert_eq!(kv.create_key("a", b"2").unwrap(), 3);
    // Only a conflict leads to a repetition.
    assert!(kv.create_key("a.>", b"2").unwrap_err().is_invalid());
}

/// `TestKeyValueUpdateRevisionMismatch`, `TestKeyValueDeleteRevisionMismatch`.
#[test]
fn writes_with_another_revision_change_nothing() {
    let (_server, _connection, kv) = bucket(1);
    let first = kv.put("a", b"1").unwrap();
    let last = kv.put("a", b"2").unwrap();
    for error in [
        kv.update("a", b"x", first).unwrap_err(),
        kv.delete_revision("a", first).unwrap_err(),
        kv.purge_revision("a", first).unwrap_err(),
        kv.update("a", b"x", 0).unwrap_err(),
        kv.update("other", b"x", last).unwrap_err(),
    ] {
        assert!(error.is_conflict(), "{error}");
    }
    assert_eq!(show(&kv.get("a").unwrap().unwrap()), "a=2@2");
    assert_eq!(kv.purge_revision("a", last).unwrap(), 3);
}

/// `TestKeyValueHistory`.
#[test]
fn the_history_keeps_the_configured_number_of_revisions() {
    let (_server, _connection, kv) = bucket(10);
    for number in 0..50 {
        kv.put("age", number.to_string().as_bytes()).unwrap();
    }
    let history = kv.history("age").unwrap();
    let expected: Vec<_> = (40..50).map(|number| format!("age={number}@{}", number + 1)).collect();
    assert_eq!(history.iter().map(show).collect::<Vec<_>>(), expected);
    assert!(kv.history("other").unwrap().is_empty());
}

/// `TestKeyValueGetRevision`.
#[test]
fn a_revision_is_read_only_for_its_own_key() {
    let (_server, _connection, kv) = bucket(5);
    kv.put("a", b"1").unwrap();
    kv.put("b", b"2").unwrap();
    kv.put("a", b"3").unwrap();
    kv.delete("a").unwrap();
    assert_eq!(show(&kv.get_revision("a", 1).unwrap().unwrap()), "a=1@1");
    assert_eq!(show(&kv.get_revision("a", 3).unwrap().unwrap()), "a=3@3");
    for (key, revision) in [("a", 0), ("a", 2), ("a", 4), ("a", 5), ("c", 1)] {
        assert_eq!(kv.get_revision(key, revision).unwrap(), None, "{key} {revision}");
    }
}

/// `TestKeyValueDeleteVsPurge`.
#[test]
fn a_purge_ends_the_history_and_a_deletion_keeps_it() {
    let (_server, _connection, kv) = bucket(10);
    for (key, value) in [("name", "derek"), ("age", "22"), ("name", "ivan"), ("age", "33"), ("name", "rip")] {
        kv.put(key, value.as_bytes()).unwrap();
    }
    kv.delete("age").unwrap();
    assert_eq!(kv.history("age").unwrap().iter().map(show).collect::<Vec<_>>(), ["age=22@2", "age=33@4", "age DEL@6"]);
    kv.purge("name").unwrap();
    assert_eq!(kv.get("name").unwrap(), None);
    assert_eq!(kv.history("name").unwrap().iter().map(show).collect::<Vec<_>>(), ["name PURGE@7"]);
}

/// `TestKeyValueDeleteTombstones`, `TestKeyValuePurgeDeletesMarkerThreshold`.
#[test]
fn old_markers_are_removed_and_young_ones_and_values_stay() {
    let (_server, connection, kv) = bucket(1);
    for number in 0..100 {
        kv.put(&format!("key-{number}"), &[b'x'; 1000]).unwrap();
    }
    for number in 0..99 {
        kv.delete(&format!("key-{number}")).unwrap();
    }
    if !removes_markers(&connection) {
        let error = kv.remove_markers(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), NatsErrorKind::Unsupported, "{error}");
        assert_eq!(kv.status().unwrap().entries, 100, "each marker stays");
        return;
    }
    assert_eq!(kv.remove_markers(Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(kv.status().unwrap().entries, 100);
    assert_eq!(kv.remove_markers(Duration::ZERO).unwrap(), 99);
    assert_eq!(kv.status().unwrap().entries, 1);
    assert_eq!(kv.keys(">").unwrap(), ["key-99"]);
}

/// `TestKeyValueKeys`, `TestKeyValueListKeys`, `TestListKeysFiltered`.
#[test]
fn keys_are_listed_by_filter_without_the_deleted_ones() {
    let (_server, _connection, kv) = bucket(5);
    assert!(kv.keys(">").unwrap().is_empty());
    for key in ["a", "b", "a.one", "a.two", "a.two.deep", "gone.one", "c.purged"] {
        kv.put(key, key.as_bytes()).unwrap();
        kv.put(key, b"second").unwrap();
    }
    kv.delete("gone.one").unwrap();
    kv.purge("c.purged").unwrap();
    assert_eq!(kv.keys(">").unwrap(), ["a", "a.one", "a.two", "a.two.deep", "b"]);
    assert_eq!(kv.keys("a.*").unwrap(), ["a.one", "a.two"]);
    assert_eq!(kv.keys("a.>").unwrap(), ["a.one", "a.two", "a.two.deep"]);
    assert_eq!(kv.keys("*.two.*").unwrap(), ["a.two.deep"]);
    assert!(kv.keys("none.>").unwrap().is_empty());
    let listing = kv.list("a.*").unwrap();
    assert_eq!(listing.entries.iter().map(show).collect::<Vec<_>>(), ["a.one=second@6", "a.two=second@8"]);
    assert!(kv.keys("a..b").unwrap_err().is_invalid());
}

/// `TestKeyValueKeysDeduplicate`: keys change while they are listed.
#[test]
fn a_listing_has_each_key_once_while_keys_change() {
    let (_server, _connection, kv) = bucket(5);
    let keys: Vec<_> = (0..50).map(|number| format!("key-{number:02}")).collect();
    for key in &keys {
        assert!(kv.put(key, b"first").unwrap() > 0);
    }
    let (writer, written) = (kv.clone(), keys.clone());
    let writing = spawn(move || {
        for round in 0..10_u8 {
            for key in &written {
                assert!(writer.put(key, &[round]).unwrap() > 0);
            }
        }
    });
    while !writing.is_finished() {
        assert_eq!(kv.keys(">").unwrap(), keys);
    }
    writing.join().unwrap();
}

/// A listing and a watch that continues after it report each change once.
#[test]
fn a_watch_continues_after_a_listing_without_a_gap() {
    let (_server, _connection, kv) = bucket(64);
    let writer = kv.clone();
    let writing = spawn(move || {
        for number in 0..300_u32 {
            writer.put(&format!("key-{}", number % 7), number.to_string().as_bytes()).unwrap();
        }
        writer.put("end", b"").unwrap()
    });
    let mut seen = std::collections::BTreeMap::new();
    let listing = kv.list(">").unwrap();
    for entry in listing.entries {
        seen.insert(entry.key, entry.revision);
    }
    let mut watch = kv.watch(&watching().after(listing.position)).unwrap();
    while !seen.contains_key("end") {
        if let homeostat_nats::KvUpdate::Entry(entry) = watch.recv_timeout(crate::support::LONG).unwrap() {
            let before = seen.insert(entry.key, entry.revision);
            assert!(before < Some(entry.revision), "each change once and in order");
        }
    }
    let end = writing.join().unwrap();
    assert_eq!(seen.remove("end"), Some(end));
    let mut revisions: Vec<_> = seen.into_values().collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (294..=300).collect::<Vec<_>>());
}

#[test]
fn compare_and_swap_of_many_threads_loses_no_update() {
    let (_server, _connection, kv) = bucket(1);
    kv.create_key("counter", b"0").unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let kv = kv.clone();
            spawn(move || {
                for _ in 0..50 {
                    loop {
                        let entry = kv.get_latest("counter").unwrap().unwrap();
                        let count: u32 = String::from_utf8(entry.value).unwrap().parse().unwrap();
                        match kv.update("counter", (count + 1).to_string().as_bytes(), entry.revision) {
                            Ok(_) => break,
                            Err(error) => assert!(error.is_conflict(), "{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(kv.get_latest("counter").unwrap().unwrap().value, b"200");
}

#[test]
fn values_over_a_limit_are_refused_with_both_sizes() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    let config = KvConfig::new("small").max_value_size(100).max_bytes(5_000).in_memory();
    let kv = KvBucket::create(&connection, &config).unwrap();
    kv.put("a", &[0; 100]).unwrap();
    let error = kv.put("a", &[0; 101]).unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::TooLarge);
    let text = "key \"a\" of bucket \"small\" has 101 bytes, but max_value_size of the bucket allows 100 bytes";
    assert_eq!(error.to_string(), text);
    let large = KvBucket::create(&connection, &KvConfig::new("large")).unwrap();
    let error = large.put("a", &vec![0; (1 << 20) + 1]).unwrap_err();
    assert!(error.to_string().contains("1048577 bytes, but max_payload of the server allows 1048576 bytes"), "{error}");
    // A full bucket refuses writes and keeps its entries.
    let error = (0..1_000).find_map(|number| kv.put(&format!("key-{number}"), &[0; 90]).err()).unwrap();
    assert!(matches!(error.kind(), NatsErrorKind::Full { code: 10_077, .. }), "{error}");
    assert!(error.to_string().contains("maximum bytes exceeded"), "{error}");
    assert!(kv.get("a").unwrap().is_some());
}

/// `TestKeyValueStatusBytes`.
#[test]
fn the_status_counts_entries_and_bytes() {
    let (_server, _connection, kv) = bucket(2);
    assert_eq!((kv.status().unwrap().entries, kv.status().unwrap().bytes), (0, 0));
    for _ in 0..3 {
        kv.put("a", &[b'x'; 1_000]).unwrap();
    }
    let status = kv.status().unwrap();
    assert_eq!((status.entries, status.revision, status.history, status.consumers), (2, 3, 2, 0));
    assert!((2_000..4_000).contains(&status.bytes), "{status:?}");
}

/// `TestKeyValueTTL`.
#[test]
fn entries_expire_at_the_age_of_the_bucket() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("short").max_age(Duration::from_millis(100))).unwrap();
    kv.put("a", b"1").unwrap();
    crate::until::until("expiry", || kv.get("a").unwrap().is_none().then_some(()));
}

trait NowForTest {
    fn now_for_test() -> SystemTime;
}

impl NowForTest for SystemTime {
    #[expect(clippy::disallowed_methods, reason = "servers know no held clock")]
    fn now_for_test() -> SystemTime {
        SystemTime::now()
    }
}
