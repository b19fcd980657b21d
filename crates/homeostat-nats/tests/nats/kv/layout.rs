//! The configuration of buckets, and unsuitable servers and streams.

use homeostat_nats::{KvBucket, KvConfig, NatsConnection, NatsErrorKind};

use super::bucket;
use crate::support::options;
use crate::support::server::TestServer;

/// Creates a stream by hand.
fn stream(connection: &NatsConnection, config: &serde_json::Value) {
    let method = format!("$JS.API.STREAM.CREATE.{}", config["name"].as_str().unwrap());
    let answer = connection.request(&method, config.to_string().as_bytes()).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
}

/// `TestCreateKeyValue`, `TestCreateOrUpdateKeyValue`, `TestKeyValueBindStore`.
#[test]
fn an_existing_bucket_is_bound_if_equal_and_refused_by_the_differing_option() {
    let (_server, connection, first) = bucket(5);
    first.put("a", b"1").unwrap();
    let again = KvBucket::create(&connection, &KvConfig::new("TEST").history(5)).unwrap();
    assert!(again.get("a").unwrap().is_some());
    assert!(KvBucket::bind(&connection, "TEST").unwrap().get("a").unwrap().is_some());
    let refused = |config: KvConfig| {
        let error = KvBucket::create(&connection, &config).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        error.to_string()
    };
    let base = KvConfig::new("TEST").history(5);
    let of = "of the existing bucket \"TEST\" is";
    assert_eq!(refused(KvConfig::new("TEST")), format!("history {of} 5, but must be 1, as configured"));
    assert_eq!(refused(base.clone().in_memory()), format!("storage {of} file, but must be memory, as configured"));
    let hour = std::time::Duration::from_secs(3600);
    assert_eq!(refused(base.clone().max_age(hour)), format!("max_age {of} 0ns, but must be 3600s, as configured"));
    assert_eq!(refused(base.clone().max_bytes(9)), format!("max_bytes {of} -1, but must be 9, as configured"));
    assert_eq!(refused(base.max_value_size(7)), format!("max_value_size {of} -1, but must be 7, as configured"));
}

#[test]
fn invalid_options_are_refused_by_name_and_value() {
    let (_server, connection, kv) = bucket(1);
    let refused = |config: KvConfig| KvBucket::create(&connection, &config).unwrap_err().to_string();
    let milli = std::time::Duration::from_millis(1);
    assert_eq!(refused(KvConfig::new("a.b")), "bucket is \"a.b\", but must be letters, digits, - and _");
    assert_eq!(refused(KvConfig::new("a").history(0)), "history is 0, but must be from 1 to 64");
    assert_eq!(refused(KvConfig::new("a").history(65)), "history is 65, but must be from 1 to 64");
    assert_eq!(refused(KvConfig::new("a").replicas(6)), "replicas is 6, but must be from 1 to 5");
    assert_eq!(refused(KvConfig::new("a").max_age(milli)), "max_age is 1ms, but must be at least 100ms");
    assert_eq!(refused(KvConfig::new("a").max_bytes(0)), "max_bytes is 0, but must be from 1 to 2^63 - 1 bytes");
    assert_eq!(
        kv.put("a b", b"").unwrap_err().to_string(),
        "key is \"a b\", but must be parts of letters, digits and - / _ =, joined by single dots"
    );
    assert!(KvBucket::bind(&connection, "").unwrap_err().is_invalid());
}

/// `TestKeyValueDuplicatesWindow`: servers refuse a window that is longer than the maximum age.
#[test]
fn the_window_of_duplicates_is_at_most_the_age() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    for (name, age, window) in [("never", 0, 120), ("second", 1, 1), ("hour", 3_600, 120)] {
        let age = std::time::Duration::from_secs(age);
        KvBucket::create(&connection, &KvConfig::new(name).max_age(age)).unwrap();
        let info = connection.request(&format!("$JS.API.STREAM.INFO.KV_{name}"), b"").unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
        assert_eq!(info["config"]["duplicate_window"], window * 1_000_000_000_u64, "{name}");
    }
}

/// `TestKeyValueDeleteStore`.
#[test]
fn a_missing_bucket_is_named() {
    let server = TestServer::start();
    // Old servers do not answer direct reads of a missing bucket.
    let connection = options(&server.url()).request_timeout(std::time::Duration::from_secs(2)).connect().unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST")).unwrap();
    KvBucket::delete_bucket(&connection, "TEST").unwrap();
    let text = "bucket \"TEST\" does not exist";
    for error in [
        KvBucket::bind(&connection, "TEST").unwrap_err(),
        KvBucket::delete_bucket(&connection, "TEST").unwrap_err(),
        kv.get("a").unwrap_err(),
        kv.get_latest("a").unwrap_err(),
        kv.put("a", b"").unwrap_err(),
        kv.keys(">").unwrap_err(),
        kv.status().unwrap_err(),
    ] {
        assert_eq!(error.kind(), NatsErrorKind::NotFound, "{error}");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn streams_without_the_layout_of_a_bucket_are_refused() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    let refused = |name: &str| {
        let error = KvBucket::bind(&connection, name).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        error.to_string()
    };
    stream(&connection, &serde_json::json!({"name": "KV_subjects", "subjects": ["other.>"], "storage": "memory"}));
    assert_eq!(
        refused("subjects"),
        "subjects of bucket \"subjects\" is [\"other.>\"], but must be [\"$KV.subjects.>\"]"
    );
    stream(&connection, &serde_json::json!({"name": "KV_history", "subjects": ["$KV.history.>"], "storage": "memory"}));
    assert_eq!(refused("history"), "history of bucket \"history\" is -1, but must be from 1 to 64");
    stream(
        &connection,
        &serde_json::json!({
            "name": "KV_rollup", "subjects": ["$KV.rollup.>"], "storage": "memory", "max_msgs_per_subject": 1,
        }),
    );
    assert!(refused("rollup").starts_with("allow_rollup_hdrs of bucket \"rollup\" is false, but must be true"));
}

/// An old bucket without direct reads is read from its leader (`TestKeyValueCreateRepairOldKV` changes the bucket
/// instead).
#[test]
fn an_old_bucket_without_direct_reads_works() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    stream(
        &connection,
        &serde_json::json!({
            "name": "KV_old", "subjects": ["$KV.old.>"], "max_msgs_per_subject": 2, "allow_rollup_hdrs": true,
            "storage": "memory",
        }),
    );
    let kv = KvBucket::bind(&connection, "old").unwrap();
    kv.put("a", b"1").unwrap();
    kv.put("a", b"2").unwrap();
    assert_eq!(kv.get("a").unwrap().unwrap().value, b"2");
    assert_eq!(kv.get_revision("a", 1).unwrap().unwrap().value, b"1");
    assert_eq!(kv.get("b").unwrap(), None);
    assert_eq!(kv.get_revision("b", 1).unwrap(), None);
    assert_eq!(kv.get_revision("a", 9).unwrap(), None);
}

#[test]
fn a_server_or_an_account_without_jetstream_is_named() {
    let plain = TestServer::with_arguments(&[]);
    let account = TestServer::with_config(
        "jetstream: enabled\naccounts { A { jetstream: enabled, users: [ { user: a, password: a } ] }, \
         B { users: [ { user: b, password: b } ] } }",
    );
    let servers = [(options(&plain.url()), &plain), (options(&account.url()).user("b", "b"), &account)];
    for (options, server) in servers {
        let connection = options.connect().unwrap();
        let host = server.url().replace("nats://", "");
        let text = format!("JetStream is not enabled on server {host} for this account");
        for error in [
            KvBucket::create(&connection, &KvConfig::new("a")).unwrap_err(),
            KvBucket::bind(&connection, "a").unwrap_err(),
            KvBucket::delete_bucket(&connection, "a").unwrap_err(),
        ] {
            assert_eq!(error.kind(), NatsErrorKind::NoJetStream, "{error}");
            assert_eq!(error.to_string(), text);
        }
    }
}
