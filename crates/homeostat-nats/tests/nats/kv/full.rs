//! Full buckets, accounts and servers. A deletion makes room.

use homeostat_nats::{KvBucket, KvConfig, KvOperation, KvUpdate, NatsConnection, NatsError, NatsErrorKind};

use super::{next, take, watching};
use crate::support::server::TestServer;
use crate::support::{LONG, options, removes_markers};

fn connect(server: &TestServer) -> NatsConnection {
    options(&server.url()).connect().unwrap()
}

/// Writes keys until the server refuses one, first large ones, then small ones. Returns the first refusal.
fn fill(bucket: &KvBucket, size: usize) -> NatsError {
    let put = |(size, number): (usize, u32)| bucket.put(&format!("fill.{size}-{number}"), &vec![b'x'; size]).err();
    let [first, ..] = [size, 100, 0].map(|size| (0..10_000).map(|number| (size, number)).find_map(put).unwrap());
    first
}

/// Deletes all keys, each in a full bucket.
fn empty(bucket: &KvBucket) {
    for (number, key) in bucket.keys(">").unwrap().into_iter().enumerate() {
        let revision = bucket.get_latest(&key).unwrap().unwrap().revision;
        let deleted = match number % 4 {
            0 => bucket.delete(&key),
            1 => bucket.purge(&key),
            2 => bucket.delete_revision(&key, revision),
            _ => bucket.purge_revision(&key, revision),
        };
        let marker = deleted.unwrap_or_else(|error| panic!("{key}: {error}"));
        // A marker is larger than an empty value, so it may not fit into the value's place.
        assert!(marker > revision || key.starts_with("fill.0-"), "{key}");
    }
    assert_eq!(bucket.keys(">").unwrap(), Vec::<String>::new());
}

/// On a server before version 2.9.12, removing entries would make watches miss changes, so deletions need free room
/// there.
fn is_too_old(connection: &NatsConnection) -> bool {
    !removes_markers(connection)
}

#[test]
fn a_full_bucket_is_emptied_with_and_without_history() {
    let server = TestServer::start();
    let connection = connect(&server);
    for (number, config) in [
        KvConfig::new("a"),
        KvConfig::new("b").in_memory(),
        KvConfig::new("c").history(8),
        KvConfig::new("d").history(8).in_memory(),
    ]
    .into_iter()
    .enumerate()
    {
        let bucket = KvBucket::create(&connection, &config.max_bytes(60_000)).unwrap();
        let error = fill(&bucket, 1_000);
        assert!(matches!(error.kind(), NatsErrorKind::Full { code: 10_077, .. }), "{error}");
        assert!(error.to_string().contains("maximum bytes exceeded"), "{error}");
        assert!(error.to_string().ends_with("the bucket is full: delete keys, or raise its limit"), "{error}");
        if is_too_old(&connection) {
            continue;
        }
        empty(&bucket);
        assert!(bucket.remove_markers(std::time::Duration::ZERO).unwrap() > 10, "{number}");
        assert_eq!(bucket.status().unwrap().entries, 0);
        bucket.put("a", &[0; 1_000]).unwrap();
    }
}

#[test]
fn a_watch_reports_deletions_in_a_full_bucket() {
    let server = TestServer::start();
    let connection = connect(&server);
    if is_too_old(&connection) {
        return;
    }
    let bucket = KvBucket::create(&connection, &KvConfig::new("TEST").max_bytes(20_000)).unwrap();
    let first = bucket.put("a", &[b'x'; 200]).unwrap();
    fill(&bucket, 1_000);
    let mut watch = bucket.watch(&watching().filter("a")).unwrap();
    take(&mut watch, 2);
    assert!(bucket.delete_revision("a", first + 1).unwrap_err().is_conflict());
    let marker = bucket.delete("a").unwrap();
    assert_eq!(next(&mut watch), format!("a DEL@{marker}"));
    fill(&bucket, 1_000);
    // A deleted key needs no second marker, but some servers replace it.
    assert!(bucket.delete("a").unwrap() >= marker);
    assert!(bucket.delete("never").unwrap_err().is_full(), "no marker is needed, and none fits");
    assert_eq!(bucket.entry("a").unwrap().unwrap().operation, KvOperation::Delete);
}

/// The account's limit counts the bytes of all its buckets.
#[test]
fn a_full_account_is_emptied_although_another_bucket_fills_it() {
    let server = TestServer::with_config(
        "jetstream: {}\naccounts: { A: { jetstream: { max_file: 60000 }, users: [ { user: u, password: p } ] } }\n",
    );
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    let [small, large] =
        ["small", "large"].map(|name| KvBucket::create(&connection, &KvConfig::new(name).history(2)).unwrap());
    small.put("a", &[b'x'; 500]).unwrap();
    let error = fill(&large, 1_000);
    assert!(matches!(error.kind(), NatsErrorKind::Full { code: 10_002, .. }), "{error}");
    assert!(error.to_string().contains("the account is full"), "{error}");
    if is_too_old(&connection) {
        return;
    }
    let mut watch = small.watch(&watching()).unwrap();
    take(&mut watch, 2);
    let marker = small.delete("a").unwrap();
    assert_eq!(next(&mut watch), format!("a DEL@{marker}"));
    empty(&large);
}

/// The server's limit counts the bytes of all accounts.
#[test]
fn a_full_server_is_emptied() {
    let server = TestServer::with_config("jetstream: { max_file: 60000, max_mem: 60000 }\n");
    let connection = connect(&server);
    for config in [KvConfig::new("file"), KvConfig::new("memory").in_memory()] {
        let bucket = KvBucket::create(&connection, &config.history(2)).unwrap();
        let error = fill(&bucket, 1_000);
        assert!(matches!(error.kind(), NatsErrorKind::Full { code: 10_002 | 10_023, .. }), "{error}");
        if !is_too_old(&connection) {
            empty(&bucket);
        }
    }
}

/// Another program has limited the number of entries.
#[test]
fn a_bucket_with_a_limit_of_entries_is_emptied() {
    let server = TestServer::start();
    let connection = connect(&server);
    let stream = serde_json::json!({
        "name": "KV_TEST", "subjects": ["$KV.TEST.>"], "retention": "limits", "max_consumers": -1, "max_msgs": 20,
        "max_msgs_per_subject": 4, "max_bytes": -1, "max_age": 0, "max_msg_size": -1, "storage": "file",
        "discard": "new", "num_replicas": 1, "deny_delete": true, "allow_rollup_hdrs": true, "allow_direct": true,
    });
    connection.request("$JS.API.STREAM.CREATE.KV_TEST", stream.to_string().as_bytes()).unwrap();
    let bucket = KvBucket::bind(&connection, "TEST").unwrap();
    let error = fill(&bucket, 10);
    assert!(error.is_full() && error.to_string().contains("maximum messages exceeded"), "{error}");
    if !is_too_old(&connection) {
        let mut watch = bucket.watch(&watching()).unwrap();
        take(&mut watch, 21);
        empty(&bucket);
        for _ in 0..20 {
            let KvUpdate::Entry(entry) = watch.recv_timeout(LONG).unwrap() else { panic!() };
            assert!(entry.is_marker());
        }
    }
}

#[test]
fn too_many_buckets_and_watches_are_limits_too() {
    let server = TestServer::with_config(
        "jetstream: {}\naccounts: { A: { jetstream: { max_streams: 1, max_consumers: 1 }, users: [ { user: u, password: p } ] } }\n",
    );
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    let bucket = KvBucket::create(&connection, &KvConfig::new("a")).unwrap();
    let error = KvBucket::create(&connection, &KvConfig::new("b")).unwrap_err();
    assert!(error.is_full() && error.to_string().contains("maximum number of streams"), "{error}");
    let mut first = bucket.watch(&watching()).unwrap();
    assert_eq!(next(&mut first), "synced");
    let error = bucket.watch(&watching()).unwrap().recv_timeout(LONG).unwrap_err();
    assert!(error.is_full() && error.to_string().contains("end other watches"), "{error}");
}
