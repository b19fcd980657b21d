//! Full buckets and accounts: no object can be created or changed, and all can be deleted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homeostat::CancellationToken;
use homeostat_nats::{KvBucket, NatsClient, NatsConnection, NatsError};
use homeostat_objects::{Client, ClientError, DeleteOptions, Patch, PatchTarget, Propagation, Query, WatchEvent};
use serde_json::{Value, json};

use super::{WIDGET, connect, key, names, owned, widget};
use crate::support::cluster::{REPLICATED, TestCluster};
use crate::support::server::TestServer;
use crate::support::{is_at_least, options, removes_markers, wait_for_long};
use std::error::Error;

/// Returns an object of about this many bytes.
fn large(name: &str, bytes: usize) -> Value {
    let mut object = widget(name, 1);
    object["spec"]["text"] = "x".repeat(bytes).into();
    object
}

fn with_finalizer(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

fn patch(client: &NatsClient, name: &str, patch: Value) -> Result<(), ClientError> {
    client.patch(&WIDGET, &key(name), &Patch::Merge(patch), PatchTarget::Object).map(drop)
}

/// Deletes these objects and removes their finalizers. No object remains.
fn remove_all(client: &NatsClient, created: &[String]) {
    for name in created {
        client.delete(&WIDGET, &key(name), &DeleteOptions::default()).unwrap();
        patch(client, name, json!({"metadata": {"finalizers": null}})).unwrap();
    }
    assert_eq!(names(client), Vec::<String>::new());
}

/// Asserts that the bucket refused a write, and that the error names the limit and a remedy.
fn assert_full(error: &ClientError) {
    assert!(error.is_transport(), "{error:?}");
    let cause: &NatsError = error.source().unwrap().downcast_ref().unwrap();
    assert!(cause.is_full() && cause.to_string().contains("is full: delete keys"), "{error:?}");
}

/// Creates objects until one is refused. Returns their names.
fn fill(client: &NatsClient, bytes: usize, make: impl Fn(Value) -> Value) -> Vec<String> {
    let mut created = Vec::new();
    loop {
        let name = format!("{}", created.len());
        match client.create(&WIDGET, make(large(&name, bytes))) {
            Ok(_) => created.push(name),
            Err(error) => {
                assert_full(&error);
                return created;
            }
        }
    }
}

/// Another program fills the rest of the bucket. An old server then drops its first entries.
fn fill_the_rest(bucket: &KvBucket) {
    for size in [1_000, 100, 0] {
        let put = |number| bucket.put(&format!("fill.{size}-{number}"), &vec![0; size]).err();
        assert!((0..10_000).find_map(put).unwrap().is_full());
    }
}

#[test]
fn a_bucket_that_objects_have_filled_is_emptied() {
    let server = TestServer::start();
    let connection = connect(&server);
    for (bucket, bytes) in [("small", 400), ("large", 6_000)] {
        let client = NatsClient::create(&connection, &NatsClient::bucket(bucket).max_bytes(100_000)).unwrap();
        let mut created = fill(&client, bytes, |object| object);
        assert_full(&patch(&client, "0", json!({"spec": {"text": "x".repeat(bytes + 300)}})).unwrap_err());
        assert!(
            client.get(&WIDGET, &key("0")).unwrap().pointer("/spec/text").unwrap().as_str().unwrap().len() == bytes
        );
        if !removes_markers(&connection) {
            // The markers stay, so they can only use the reserve.
            created.truncate(10);
        }
        for name in &created {
            client.delete(&WIDGET, &key(name), &DeleteOptions::default()).unwrap();
        }
        let left = names(&client).len();
        if removes_markers(&connection) {
            assert_eq!(left, 0);
            assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), created.len() as u64);
            assert_eq!(fill(&client, bytes, |object| object).len(), created.len(), "all room is there again");
        }
    }
}

/// Each object needs two more changes before it can be removed, and the bucket has no history to remove.
#[test]
fn objects_with_finalizers_leave_a_full_bucket() {
    let server = TestServer::start();
    let connection = connect(&server);
    if !removes_markers(&connection) {
        return;
    }
    let client = NatsClient::create(&connection, &NatsClient::bucket("TEST").max_bytes(100_000)).unwrap();
    let created = fill(&client, 6_000, with_finalizer);
    fill_the_rest(&KvBucket::bind(&connection, "TEST").unwrap());
    for name in &created {
        let deleted = client.delete(&WIDGET, &key(name), &DeleteOptions::default()).unwrap();
        assert!(!deleted.is_gone(), "{name}");
    }
    assert_full(&client.create(&WIDGET, large("more", 6_000)).unwrap_err());
    for name in &created {
        patch(&client, name, json!({"metadata": {"finalizers": null}})).unwrap();
    }
    assert_eq!(names(&client), Vec::<String>::new());
    assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), created.len() as u64);
}

#[test]
fn owners_and_their_dependents_leave_a_full_bucket() {
    let server = TestServer::start();
    let connection = connect(&server);
    if !removes_markers(&connection) {
        return;
    }
    for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
        let name = format!("{propagation:?}");
        let client = NatsClient::create(&connection, &NatsClient::bucket(&name).max_bytes(100_000)).unwrap();
        let owner = client.create(&WIDGET, widget("owner", 1)).unwrap().to_value();
        for number in 0..5 {
            client.create(&WIDGET, owned(&format!("child-{number}"), &owner)).unwrap();
        }
        fill(&client, 400, |object| object);
        let bucket = KvBucket::bind(&connection, &name).unwrap();
        fill_the_rest(&bucket);
        let options = DeleteOptions::default().propagation(propagation);
        assert!(client.delete(&WIDGET, &key("owner"), &options).unwrap().is_gone());
        let children: Vec<_> = names(&client).into_iter().filter(|name| name.starts_with("child")).collect();
        assert_eq!(children.len(), if propagation == Propagation::Orphan { 5 } else { 0 }, "{propagation:?}");
        let is_owned =
            |name: &String| client.get(&WIDGET, &key(name)).unwrap().pointer("/metadata/ownerReferences").is_some();
        assert!(!children.iter().any(is_owned));
        assert_eq!(bucket.keys("_owners.*.>").unwrap(), Vec::<String>::new());
    }
}

/// The other client takes all room that a deletion leaves, except the reserve.
#[test]
fn objects_leave_a_full_bucket_while_another_client_fills_it() {
    let server = TestServer::start();
    let connection = connect(&server);
    if !removes_markers(&connection) {
        return;
    }
    let create = |connection: &NatsConnection| {
        NatsClient::create(connection, &NatsClient::bucket("TEST").max_bytes(100_000)).unwrap()
    };
    let client = create(&connection);
    let created = fill(&client, 3_000, with_finalizer);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = create(&connect(&server));
            for number in 0.. {
                if let Err(error) = other.create(&WIDGET, large(&format!("more-{number}"), 3_000)) {
                    assert_full(&error);
                }
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for name in &created {
                client.delete(&WIDGET, &key(name), &DeleteOptions::default()).unwrap();
                patch(&client, name, json!({"metadata": {"finalizers": null}})).unwrap();
            }
        }));
        is_over.store(true, Ordering::SeqCst);
        result.unwrap();
    });
    let left = names(&client);
    assert!(left.iter().all(|name| name.starts_with("more-")), "{left:?}");
}

/// The bucket was filled before this library version kept a reserve, and a watch is running.
#[test]
fn a_bucket_without_a_reserve_that_other_programs_have_filled_is_emptied() {
    let server = TestServer::start();
    let connection = connect(&server);
    if !removes_markers(&connection) {
        return;
    }
    let client = NatsClient::create(&connection, &NatsClient::bucket("TEST").max_bytes(50_000)).unwrap();
    for name in ["a", "b", "c"] {
        client.create(&WIDGET, large(name, 2_000)).unwrap();
    }
    let bucket = KvBucket::bind(&connection, "TEST").unwrap();
    bucket.purge("_reserve").unwrap();
    fill_the_rest(&bucket);
    let stop = CancellationToken::new();
    let mut events = client.watch(&WIDGET, &Query::all(), None, &stop).unwrap();
    assert!((0..4).all(|_| events.next().unwrap().is_ok()));
    for name in ["a", "b", "c"] {
        assert!(client.delete(&WIDGET, &key(name), &DeleteOptions::default()).unwrap().is_gone());
        let Some(Ok(WatchEvent::Deleted(object))) = events.next() else { panic!("{name}") };
        assert_eq!(object.name(), name);
    }
    assert_full(&client.create(&WIDGET, large("d", 40_000)).unwrap_err());
    assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), 3);
}

/// The account's limit counts the bytes of all its buckets.
#[test]
fn objects_leave_a_full_account() {
    let server = TestServer::with_config(
        "jetstream: {}\naccounts: { A: { jetstream: { max_file: 100000 }, users: [ { user: u, password: p } ] } }\n",
    );
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    let client = super::client_of(&connection);
    let created = fill(&client, 3_000, with_finalizer);
    if !removes_markers(&connection) {
        return;
    }
    remove_all(&client, &created);
    client.remove_markers(Duration::ZERO).unwrap();
}

/// If these changes failed, a full bucket would end leases, and with them the controllers that could make room.
#[test]
fn an_object_that_does_not_grow_can_be_changed_in_a_full_bucket() {
    let server = TestServer::start();
    let connection = connect(&server);
    if !removes_markers(&connection) {
        return;
    }
    let client = NatsClient::create(&connection, &NatsClient::bucket("TEST").max_bytes(50_000)).unwrap();
    fill(&client, 2_000, |object| object);
    fill_the_rest(&KvBucket::bind(&connection, "TEST").unwrap());
    for round in 0..50 {
        patch(&client, "0", json!({"spec": {"size": round % 10}})).unwrap();
        patch(&client, "1", json!({"spec": {"size": round % 10}})).unwrap();
    }
    assert_full(&patch(&client, "0", json!({"spec": {"text": "x".repeat(2_200)}})).unwrap_err());
    assert_full(&client.create(&WIDGET, widget("more", 1)).unwrap_err());
}

#[test]
fn objects_leave_a_full_replicated_bucket() {
    let cluster = TestCluster::start();
    let connection = cluster.options().connect().unwrap();
    if !is_at_least(&connection.status().version, REPLICATED) {
        return;
    }
    let config = NatsClient::bucket("TEST").replicas(3).max_bytes(60_000);
    let client = wait_for_long("bucket", || NatsClient::create(&connection, &config).ok());
    let created = fill(&client, 3_000, with_finalizer);
    fill_the_rest(&KvBucket::bind(&connection, "TEST").unwrap());
    remove_all(&client, &created);
    assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), created.len() as u64);
}

/// A refused deletion of an owner must not count as one that may have happened.
#[test]
fn a_refused_deletion_leaves_no_work_behind() {
    let server = TestServer::start();
    let connection = connect(&server);
    if !removes_markers(&connection) {
        return;
    }
    let all = NatsClient::create(&connection, &NatsClient::bucket("TEST").max_bytes(50_000)).unwrap();
    let owner = all.create(&WIDGET, widget("a", 1)).unwrap().to_value();
    all.create(&WIDGET, owned("b", &owner)).unwrap();
    all.create(&WIDGET, widget("c", 1)).unwrap();
    all.delete(&WIDGET, &key("c"), &DeleteOptions::default()).unwrap();
    KvBucket::bind(&connection, "TEST").unwrap().purge("_reserve").unwrap();
    fill_the_rest(&KvBucket::bind(&connection, "TEST").unwrap());
    assert_full(&patch(&all, "a", json!({"spec": {"text": "x".repeat(3_000)}})).unwrap_err());
    assert_eq!(
        all.remove_markers(Duration::ZERO).unwrap(),
        2,
        "no work is left, and the reserve has left a marker too"
    );
    assert_eq!(names(&all), ["a", "b"]);
}

/// At first the user may not remove the key that names a dependent, and later may.
#[test]
fn the_removal_of_markers_does_the_work_that_was_postponed() {
    let config = |rights: &str| {
        format!(
            "jetstream: {{}}\nauthorization: {{ users: [ {{ user: u, password: p, permissions: {{ publish: {{ {rights} }} }} }} ] }}\n"
        )
    };
    let mut server = TestServer::with_config(&config("deny: \"$JS.API.STREAM.PURGE.>\""));
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    if !removes_markers(&connection) {
        return;
    }
    let client = super::client_of(&connection);
    let owner = client.create(&WIDGET, widget("a", 1)).unwrap().to_value();
    client.create(&WIDGET, owned("b", &owner)).unwrap();
    client.delete(&WIDGET, &key("b"), &DeleteOptions::default()).unwrap();
    let error = client.remove_markers(Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("$JS.API.STREAM.PURGE.KV_TEST"), "the cause: {error}");
    std::fs::write(server.folder().join("server.conf"), config("allow: \">\"")).unwrap();
    server.restart();
    assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), 1);
    let bucket = KvBucket::bind(&connection, "TEST").unwrap();
    assert_eq!(bucket.keys("_owners.*.>").unwrap(), Vec::<String>::new());
}
