//! Buckets that cannot keep objects, and the names of objects in a bucket.

use homeostat_nats::{KvBucket, KvConfig, KvOperation, NatsClient, NatsError, NatsErrorKind, NatsOptions};
use homeostat_objects::{Client, DeleteOptions, Kind, ObjectKey, Patch, PatchTarget, Query, SharedObject};
use serde_json::{Value, json};
use std::time::Duration;

use super::{WIDGET, client, client_of, connect, entry, key, widget};
use crate::support::server::TestServer;
use crate::support::{options, removes_markers};

fn refused(result: Result<NatsClient, NatsError>, named: &[&str]) {
    let error = result.unwrap_err();
    for text in named {
        assert!(error.to_string().contains(text), "{error} names {text}");
    }
}

#[test]
fn a_bucket_that_cannot_keep_objects_is_refused_with_the_option_and_its_value() {
    let server = TestServer::start();
    let connection = connect(&server);
    let create = |config: &KvConfig| NatsClient::create(&connection, config);
    refused(create(&NatsClient::bucket("a.b")), &["bucket", "\"a.b\""]);
    refused(create(&NatsClient::bucket("a").history(1)), &["history", "1"]);
    refused(create(&NatsClient::bucket("a").max_age(Duration::from_secs(60))), &["max_age", "60s"]);
    create(&NatsClient::bucket("objects")).unwrap();
    create(&NatsClient::bucket("objects")).unwrap();
    refused(create(&NatsClient::bucket("objects").history(20)), &["history", "objects", "16", "20"]);
    refused(create(&NatsClient::bucket("objects").in_memory()), &["storage", "objects", "file", "memory"]);
    KvBucket::create(&connection, &KvConfig::new("others").history(16)).unwrap();
    refused(create(&NatsClient::bucket("others")), &["description", "others", "layout 1"]);
}

#[test]
fn a_server_without_jetstream_and_a_wrong_address_are_errors_that_say_so() {
    let server = TestServer::with_arguments(&[]);
    let error = NatsClient::create(&connect(&server), &NatsClient::bucket("a")).unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::NoJetStream, "{error}");
    let error = NatsOptions::new("http://localhost").connect().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("http://localhost"), "{error}");
}

/// Watches of objects would silently miss deletions.
#[test]
fn markers_of_objects_are_not_removed_like_markers_of_values() {
    let server = TestServer::start();
    drop(client(&server));
    let connection = connect(&server);
    let bucket = KvBucket::bind(&connection, "TEST").unwrap();
    let error = bucket.remove_markers(Duration::ZERO).unwrap_err();
    assert!(error.is_invalid() || error.kind() == NatsErrorKind::Unsupported, "{error}");
    assert!(!removes_markers(&connection) || error.to_string().contains("NatsClient"), "{error}");
}

#[test]
fn an_object_is_one_entry_that_other_tools_can_read() {
    let server = TestServer::start();
    let client = client(&server);
    let bucket = KvBucket::bind(&connect(&server), "TEST").unwrap();
    let created = client.create(&WIDGET, widget("a", 1)).unwrap();
    let stored: Value = serde_json::from_slice(&bucket.get(&entry("a")).unwrap().unwrap().value).unwrap();
    let mut expected = created.to_value();
    expected["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(stored, expected);
    client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap();
    assert_eq!(bucket.get(&entry("a")).unwrap(), None);
    let marker = bucket.entry(&entry("a")).unwrap().unwrap();
    assert_eq!(marker.operation, KvOperation::Delete);
    assert_eq!(serde_json::from_slice::<Value>(&marker.value).unwrap(), expected, "the last state");
}

#[test]
fn names_with_dots_and_kinds_with_like_names_are_kept_apart() {
    let server = TestServer::start();
    let client = client(&server);
    let kinds = [
        WIDGET,
        Kind::namespaced("", "v1", "Widget"),
        Kind::namespaced("core", "v1", "Widget"),
        Kind::namespaced("example.com", "v1", "Widgets"),
        Kind::namespaced("com", "v1", "Widget"),
    ];
    for kind in &kinds {
        for name in ["a", "a.b", "b", "a-b"] {
            let mut object = widget(name, 0);
            object["apiVersion"] = json!(kind.api_version());
            object["kind"] = json!(kind.name());
            client.create(kind, object).unwrap();
        }
        let names: Vec<_> = client.list(kind, &Query::all()).unwrap().items;
        let names: Vec<_> = names.iter().map(SharedObject::name).collect();
        assert_eq!(names, ["a", "a-b", "a.b", "b"], "{kind}");
        assert_eq!(client.get(kind, &key("a.b")).unwrap().name(), "a.b");
    }
    assert!(client.get(&WIDGET, &ObjectKey::cluster("a")).unwrap_err().is_not_found());
    assert!(client.get(&WIDGET, &key("")).unwrap_err().is_not_found());
}

#[test]
fn an_object_is_the_same_in_all_versions_of_its_kind() {
    let server = TestServer::start();
    let client = client(&server);
    let later = Kind::namespaced("example.com", "v2", "Widget");
    client.create(&WIDGET, widget("a", 1)).unwrap();
    let mut shown = client.get(&later, &key("a")).unwrap().to_value();
    assert_eq!(shown["apiVersion"], "example.com/v2");
    shown["spec"]["size"] = json!(2);
    client.update(&later, shown).unwrap();
    let again = client.get(&WIDGET, &key("a")).unwrap();
    assert_eq!(again.pointer("/apiVersion").unwrap(), json!("example.com/v1"));
    assert_eq!(again.pointer("/spec/size").unwrap(), json!(2));
}

#[test]
fn a_value_above_a_limit_is_refused_with_both_sizes_and_nothing_is_sent() {
    let server = TestServer::with_config("max_payload: 65536\njetstream: {}\n");
    let connection = options(&server.url()).connect().unwrap();
    for (config, limit) in [
        (NatsClient::bucket("server"), 65_536 - 512),
        (NatsClient::bucket("bucket").max_value_size(8_192), 8_192 - 512),
    ] {
        let client = NatsClient::create(&connection, &config).unwrap();
        let mut object = widget("a", 1);
        client.create(&WIDGET, object.clone()).unwrap();
        object["metadata"]["name"] = json!("big");
        object["spec"]["text"] = json!("x".repeat(70_000));
        let error = client.create(&WIDGET, object).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        let text = error.to_string();
        assert!(text.contains(&limit.to_string()) && text.contains("70"), "{text}");
        let patch = Patch::Merge(json!({"spec": {"text": "x".repeat(limit - 400)}}));
        let target = PatchTarget::Object;
        client.patch(&WIDGET, &key("a"), &patch, target).unwrap();
        assert!(client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap().is_gone(), "a full object");
    }
}

/// A server closes a connection that sends a long line, which would disturb all other calls.
#[test]
fn an_owner_whose_uid_makes_no_key_is_refused() {
    let server = TestServer::start();
    let connection = connect(&server);
    let client = client_of(&connection);
    let mut object = widget("a", 1);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u".repeat(5_000)}]);
    let error = client.create(&WIDGET, object).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("at most 3000 bytes"), "{error}");
    assert_eq!(connection.status().connects, 1);
}
