//! Watches on one server that keeps running.

use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, KvUpdate};

use super::{bucket, next, take, watching};
use crate::support::{LONG, spawn};
use crate::until::until;

/// `TestKeyValueWatch`, "default watcher".
#[test]
fn a_watch_reports_present_values_and_then_all_changes() {
    let (_server, _connection, kv) = bucket(5);
    kv.create_key("name", b"first").unwrap();
    kv.put("name", b"derek").unwrap();
    kv.put("age", b"22").unwrap();
    kv.delete("age").unwrap();
    let mut watch = kv.watch(&watching()).unwrap();
    assert!(watch.position().is_none());
    assert_eq!(take(&mut watch, 3), ["name=derek@2", "age DEL@4", "synced"]);
    assert_eq!(watch.position().unwrap().revision(), 4);
    kv.put("name", b"rip").unwrap();
    kv.put("name", b"ik").unwrap();
    kv.put("age", b"33").unwrap();
    kv.purge("age").unwrap();
    assert_eq!(take(&mut watch, 4), ["name=rip@5", "name=ik@6", "age=33@7", "age PURGE@8"]);
    let error = watch.recv_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(error.to_string(), "a change in bucket \"TEST\" took longer than 20ms");
    kv.put("a", b"1").unwrap();
    assert_eq!(next(&mut watch), "a=1@9", "a timeout ends nothing");
}

#[test]
fn a_stopped_watch_reports_no_change_that_was_not_read() {
    let (_server, connection, kv) = bucket(1);
    for number in 0..100 {
        kv.put(&format!("key-{number}"), b"1").unwrap();
    }
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "key-0=1@1");
    // The other changes arrive meanwhile.
    kv.list(">").unwrap();
    connection.flush().unwrap();
    watch.stopper().stop();
    for _ in 0..2 {
        let error = watch.recv_timeout(LONG).unwrap_err();
        assert!(error.is_closed(), "{error}");
    }
}

#[test]
fn an_empty_bucket_is_synced_at_once() {
    let (_server, _connection, kv) = bucket(1);
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    kv.put("a", b"1").unwrap();
    assert_eq!(next(&mut watch), "a=1@1");
}

/// `TestKeyValueWatch`, "watcher with history included".
#[test]
fn a_watch_with_history_reports_all_kept_revisions() {
    let (_server, _connection, kv) = bucket(3);
    for value in ["1", "2", "3", "4"] {
        kv.put("a", value.as_bytes()).unwrap();
    }
    kv.put("b", b"5").unwrap();
    let mut watch = kv.watch(&watching().with_history()).unwrap();
    assert_eq!(take(&mut watch, 5), ["a=2@2", "a=3@3", "a=4@4", "b=5@5", "synced"]);
    let mut filtered = kv.watch(&watching().with_history().filter("a")).unwrap();
    assert_eq!(take(&mut filtered, 4), ["a=2@2", "a=3@3", "a=4@4", "synced"]);
    kv.put("b", b"6").unwrap();
    kv.put("a", b"7").unwrap();
    assert_eq!(next(&mut filtered), "a=7@7");
}

/// `TestKeyValueWatch`, "watcher with updates only".
#[test]
fn a_watch_of_updates_begins_with_the_next_change() {
    let (_server, _connection, kv) = bucket(5);
    kv.put("a", b"1").unwrap();
    let mut watch = kv.watch(&watching().updates_only()).unwrap();
    // Changes after the start of the watch count, even before its consumer exists.
    kv.put("a", b"2").unwrap();
    assert_eq!(take(&mut watch, 2), ["synced", "a=2@2"]);
    kv.put("b", b"3").unwrap();
    assert_eq!(next(&mut watch), "b=3@3");
}

/// `TestKeyValueWatch`, "watcher with start revision".
#[test]
fn a_watch_continues_after_the_position_of_another() {
    let (_server, _connection, kv) = bucket(5);
    let mut first = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut first), "synced");
    kv.put("a", b"1").unwrap();
    kv.put("b", b"2").unwrap();
    assert_eq!(next(&mut first), "a=1@1");
    let position = first.position().unwrap();
    drop(first);
    kv.put("a", b"3").unwrap();
    let mut second = kv.watch(&watching().after(position)).unwrap();
    assert_eq!(take(&mut second, 3), ["b=2@2", "a=3@3", "synced"]);
    let mut at_end = kv.watch(&watching().after(second.position().unwrap())).unwrap();
    assert_eq!(next(&mut at_end), "synced");
}

#[test]
fn a_position_of_another_life_of_the_bucket_is_gone() {
    let (_server, connection, kv) = bucket(1);
    kv.put("a", b"1").unwrap();
    let position = kv.list(">").unwrap().position;
    KvBucket::delete_bucket(&connection, "TEST").unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST")).unwrap();
    for number in 0..10 {
        kv.put(&format!("b{number}"), b"").unwrap();
    }
    let mut watch = kv.watch(&watching().after(position)).unwrap();
    let error = watch.recv_timeout(LONG).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(
        error.to_string().contains("the watch of bucket \"TEST\" may have missed changes: its stream of "),
        "{error}"
    );
    assert!(watch.recv_timeout(LONG).unwrap_err().is_gone(), "it stays gone");
    until("end of its consumer", || (kv.status().unwrap().consumers == 0).then_some(()));
}

#[test]
fn a_position_before_removed_entries_is_gone() {
    let (_server, connection, kv) = bucket(1);
    kv.put("a", b"1").unwrap();
    let position = kv.list(">").unwrap().position;
    kv.put("b", b"2").unwrap();
    kv.delete("b").unwrap();
    kv.purge("a").unwrap();
    connection.request("$JS.API.STREAM.PURGE.KV_TEST", b"").unwrap();
    let mut watch = kv.watch(&watching().after(position)).unwrap();
    let error = watch.recv_timeout(LONG).unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(error.to_string().ends_with("its stream begins at revision 5, but only revision 1 was read"), "{error}");
}

#[test]
fn options_leave_out_deletions_values_and_other_keys() {
    let (_server, _connection, kv) = bucket(5);
    kv.put("a.one", b"1").unwrap();
    kv.put("b.one", b"2").unwrap();
    kv.delete("a.one").unwrap();
    let mut no_deletes = kv.watch(&watching().ignore_deletes()).unwrap();
    let mut keys = kv.watch(&watching().keys_only()).unwrap();
    let mut filtered = kv.watch(&watching().filter("a.*")).unwrap();
    assert_eq!(take(&mut no_deletes, 2), ["b.one=2@2", "synced"]);
    assert_eq!(take(&mut keys, 3), ["b.one=@2", "a.one DEL@3", "synced"]);
    assert_eq!(take(&mut filtered, 2), ["a.one DEL@3", "synced"]);
    kv.put("a.two", b"4").unwrap();
    kv.delete("a.two").unwrap();
    kv.put("a.two", b"6").unwrap();
    assert_eq!(take(&mut no_deletes, 2), ["a.two=4@4", "a.two=6@6"]);
    assert_eq!(take(&mut keys, 3), ["a.two=@4", "a.two DEL@5", "a.two=@6"]);
    assert_eq!(take(&mut filtered, 3), ["a.two=4@4", "a.two DEL@5", "a.two=6@6"]);
}

/// The last entry of the start is a marker that the watch omits.
#[test]
fn a_start_that_ends_with_a_left_out_marker_is_synced() {
    let (_server, _connection, kv) = bucket(1);
    kv.put("a", b"1").unwrap();
    kv.delete("b").unwrap();
    let mut watch = kv.watch(&watching().ignore_deletes()).unwrap();
    assert_eq!(take(&mut watch, 2), ["a=1@1", "synced"]);
}

/// `TestKeyValueWatch`, "invalid watchers".
#[test]
fn invalid_options_are_refused() {
    let (_server, _connection, kv) = bucket(1);
    for filter in ["", "a.", ".>", "a..b", "a b"] {
        let error = kv.watch(&watching().filter(filter)).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().starts_with(&format!("filter is {filter:?}, but must be")), "{error}");
    }
    let error = kv.watch(&watching().heartbeat(Duration::from_millis(99))).unwrap_err();
    assert_eq!(error.to_string(), "heartbeat is 99ms, but must be at least 100ms");
}

/// `TestKeyValueWatch`, "stop watcher should not block"; `TestKeyValueWatchContext`.
#[test]
fn a_stop_and_a_close_end_a_blocked_watch() {
    let (_server, connection, kv) = bucket(1);
    let mut watch = kv.watch(&watching()).unwrap();
    let stopper = watch.stopper();
    assert_eq!(next(&mut watch), "synced");
    let blocked = spawn(move || {
        let error = watch.recv().unwrap_err();
        (watch, error)
    });
    stopper.stop();
    let (mut watch, error) = blocked.join().unwrap();
    assert!(error.is_closed());
    assert!(watch.recv().unwrap_err().is_closed());
    until("end of its consumer", || (kv.status().unwrap().consumers == 0).then_some(()));

    let mut other = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut other), "synced");
    let blocked = spawn(move || other.recv().unwrap_err());
    connection.close();
    assert!(blocked.join().unwrap().is_closed());
}

#[test]
fn dropped_watches_and_listings_leave_no_consumers() {
    let (_server, connection, kv) = bucket(1);
    kv.put("a", b"1").unwrap();
    for _ in 0..20 {
        let mut watch = kv.watch(&watching()).unwrap();
        assert_eq!(next(&mut watch), "a=1@1");
        assert_eq!(kv.keys(">").unwrap(), ["a"]);
        // This watch is never read.
        drop(kv.watch(&watching()).unwrap());
    }
    until("end of all consumers", || (kv.status().unwrap().consumers == 0).then_some(()));
    assert_eq!(connection.status().subscriptions, 0);
}

#[test]
fn a_deleted_bucket_ends_its_watch() {
    let (_server, connection, kv) = bucket(1);
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    KvBucket::delete_bucket(&connection, "TEST").unwrap();
    let error = watch.recv_timeout(LONG).unwrap_err();
    assert!(error.is_gone());
    assert_eq!(error.to_string(), "the watch of bucket \"TEST\" may have missed changes: its stream was deleted");
}

/// The reader is slow: flow control slows the server down, and nothing is lost.
#[test]
fn a_slow_reader_misses_nothing() {
    let (_server, _connection, kv) = bucket(64);
    let value = vec![b'x'; 100_000];
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    let writer = kv.clone();
    let writing = spawn(move || {
        for number in 0..600_u32 {
            writer.put(&format!("key-{}", number % 20), &value).unwrap();
        }
    });
    writing.join().unwrap();
    for expected in 1..=600 {
        let KvUpdate::Entry(entry) = watch.recv_timeout(LONG).unwrap() else { panic!("not an entry") };
        assert_eq!((entry.revision, entry.value.len()), (expected, 100_000));
    }
}

/// The reader stalls for longer than markers live. Its buffer drops a marker, which is then removed.
#[test]
fn a_marker_removed_while_a_reader_stalls_is_not_missed_silently() {
    let server = crate::support::server::TestServer::start();
    let writing = crate::support::options(&server.url()).connect().unwrap();
    if !crate::support::removes_markers(&writing) {
        return;
    }
    let clock = homeostat::ManualClock::new();
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let reading = crate::support::options(&server.url()).clock(clock.clock()).ping_interval(hour).write_timeout(hour);
    let reading = reading.subscription_buffer(4, 1 << 20).connect().unwrap();
    let kv = KvBucket::create(&writing, &KvConfig::new("TEST")).unwrap();
    let watched = KvBucket::bind(&reading, "TEST").unwrap();
    kv.put("z", b"").unwrap();
    let mut watch = watched.watch(&watching().marker_life(minute)).unwrap();
    assert_eq!(take(&mut watch, 2), ["z=@1", "synced"]);
    for key in ["a", "b", "c", "d", "e"] {
        kv.put(key, b"").unwrap();
    }
    kv.delete("a").unwrap();
    kv.put("f", b"").unwrap();
    until("removal", || (kv.remove_markers(Duration::ZERO).unwrap() == 1).then_some(()));
    reading.flush().unwrap();
    clock.advance(minute + Duration::from_secs(1));
    let reader = spawn(move || {
        let mut seen = Vec::new();
        loop {
            match watch.recv() {
                Ok(KvUpdate::Entry(entry)) => seen.push(entry.key),
                Ok(other) => panic!("{other:?}"),
                Err(error) => return (seen, error),
            }
        }
    });
    until("end of the watch", || {
        // Advance slowly, so that the server's answers arrive in time.
        clock.advance(Duration::from_millis(1));
        reader.is_finished().then_some(())
    });
    let (seen, error) = reader.join().unwrap();
    assert!(error.is_gone(), "{error}");
    assert!(!seen.contains(&"f".to_owned()), "{seen:?}");
}

#[test]
fn a_watch_with_a_full_buffer_continues_after_the_gap() {
    let server = crate::support::server::TestServer::start();
    let connection = crate::support::options(&server.url()).subscription_buffer(8, 1 << 20).connect().unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST").history(64)).unwrap();
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    for _ in 0..60 {
        kv.put("a", b"").unwrap();
    }
    let revisions: Vec<_> = (0..60)
        .map(|_| match watch.recv_timeout(LONG).unwrap() {
            KvUpdate::Entry(entry) => entry.revision,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(revisions, (1..=60).collect::<Vec<_>>());
}
