//! Dependents of owners, when a client is killed between two writes, or when clients write at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homeostat_nats::{KvBucket, NatsClient, NatsHeaders};
use homeostat_objects::{Client, DeleteOptions, Ignore, Kind, Patch, PatchTarget, Propagation, Query, SharedObject};
use serde_json::{Value, json};

use super::{WIDGET, client, client_of, connect, entry, key, names, owned, widget};
use crate::support::server::TestServer;
use crate::support::{number_of, options, removes_markers, spawn};
use crate::until::until;

/// Returns a server, a client, and the client's bucket.
fn world() -> (TestServer, NatsClient, KvBucket) {
    let server = TestServer::start();
    let client = client(&server);
    let bucket = KvBucket::bind(&connect(&server), "TEST").unwrap();
    (server, client, bucket)
}

/// A mirror of the stream answers direct reads late. The server sends all of them to a program that has no entries.
#[test]
fn a_copy_that_lags_behind_hides_no_object_and_no_dependent() {
    let server = TestServer::with_config("jetstream: {}\nmappings: { \"$JS.API.DIRECT.GET.KV_TEST.>\": \"late.>\" }\n");
    let late = connect(&server);
    let requests = late.subscribe("late.>").unwrap();
    late.flush().unwrap();
    let answers = spawn(move || {
        let empty = NatsHeaders::with_status(404, "Message Not Found");
        while let Ok(request) = requests.recv() {
            if let Some(reply) = &request.reply {
                let _ = late.publish_with_headers(reply, &empty, b"");
            }
        }
    });
    let client = client(&server);
    let a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    assert_eq!(client.get(&WIDGET, &key("a")).unwrap().to_value(), a);
    client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&client), Vec::<String>::new());
    drop((client, server));
    drop(answers);
}

#[test]
fn a_dependent_that_is_imported_before_its_owner_into_a_new_bucket_stays() {
    const GADGET: Kind = Kind::namespaced("example.com", "v1", "Gadget");
    let (server, client, _bucket) = world();
    let mut gadget = widget("a", 1);
    gadget["kind"] = json!("Gadget");
    let gadget = client.create(&GADGET, gadget).unwrap().to_value();
    create(&client, owned("b", &gadget));
    client.delete(&GADGET, &key("a"), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&client), Vec::<String>::new(), "its kind is known");
    KvBucket::delete_bucket(&connect(&server), "TEST").unwrap();
    drop(super::client(&server));
    create(&client, owned("b", &gadget));
    assert_eq!(names(&client), ["b"]);
}

/// The user may not remove the key that names a dependent, so this step fails after each deletion of a dependent.
#[test]
fn a_step_that_cannot_succeed_does_not_keep_later_dependents() {
    let server = TestServer::with_config(
        "jetstream: {}\nauthorization: { users: [ { user: u, password: p, permissions: { publish: { deny: \"$JS.API.STREAM.PURGE.>\" } } } ] }\n",
    );
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    let client = client_of(&connection);
    let a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    client.delete(&WIDGET, &key("b"), &DeleteOptions::default()).unwrap();
    let c = create(&client, widget("c", 1));
    create(&client, owned("d", &c));
    client.delete(&WIDGET, &key("c"), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&client), ["a"]);
}

fn create(client: &NatsClient, object: Value) -> Value {
    client.create(&WIDGET, object).unwrap().to_value()
}

/// Returns the keys that name dependents.
fn references(bucket: &KvBucket) -> Vec<String> {
    bucket.keys("_owners.*.>").unwrap()
}

/// Puts an object as another step would have left it.
fn put(bucket: &KvBucket, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    bucket.put(&entry(name), object.to_string().as_bytes()).unwrap();
}

fn waiting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    object
}

#[test]
fn the_keys_that_name_dependents_end_with_them() {
    let (_server, client, bucket) = world();
    let a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    create(&client, owned("c", &a));
    assert_eq!(references(&bucket).len(), 2);
    let free = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    client.patch(&WIDGET, &key("c"), &free, PatchTarget::Object).unwrap();
    assert_eq!(references(&bucket).len(), 1);
    client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap();
    assert_eq!((names(&client), references(&bucket)), (vec!["c".to_owned()], vec![]));
    assert_eq!(bucket.keys("_owners.*").unwrap(), Vec::<String>::new());
}

#[test]
fn a_client_killed_after_it_removed_an_owner_leaves_nothing_behind() {
    let (server, client, bucket) = world();
    let a = create(&client, widget("a", 1));
    let b = create(&client, owned("b", &a));
    create(&client, owned("c", &b));
    create(&client, widget("d", 1));
    bucket.delete(&entry("a")).unwrap();
    assert_eq!(names(&client), ["b", "c", "d"]);
    let next = super::client(&server);
    assert_eq!((names(&next), references(&bucket)), (vec!["d".to_owned()], vec![]));
}

#[test]
fn a_client_killed_after_it_created_an_orphan_leaves_nothing_behind() {
    let (server, client, bucket) = world();
    let a = create(&client, widget("a", 1));
    let b = create(&client, owned("b", &a));
    let reference = bucket.get(&references(&bucket)[0]).unwrap().unwrap();
    client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&client).len(), 0);
    bucket.put(&reference.key, &reference.value).unwrap();
    put(&bucket, &b);
    assert_eq!(names(&client), ["b"]);
    assert_eq!(names(&super::client(&server)).len(), 0);
}

#[test]
fn a_client_killed_in_a_foreground_deletion_leaves_nothing_behind() {
    let (server, client, bucket) = world();
    let a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    put(&bucket, &waiting(a));
    assert_eq!(names(&client), ["a", "b"]);
    assert_eq!(names(&super::client(&server)).len(), 0, "no dependent was deleted yet");

    let a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    put(&bucket, &waiting(a));
    bucket.delete(&entry("b")).unwrap();
    assert_eq!(names(&client), ["a"]);
    assert_eq!(names(&super::client(&server)).len(), 0, "the last dependent was deleted");
}

#[test]
fn a_client_that_is_killed_before_it_creates_a_dependent_harms_nothing() {
    let (server, client, bucket) = world();
    let a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    let reference = bucket.get(&references(&bucket)[0]).unwrap().unwrap();
    client.delete(&WIDGET, &key("b"), &DeleteOptions::default()).unwrap();
    bucket.put(&reference.key, &reference.value).unwrap();
    create(&client, widget("b", 2));
    let next = super::client(&server);
    assert_eq!(names(&next), ["a", "b"]);
    next.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&next), ["b"], "it has no owner");
}

#[test]
fn owners_of_unknown_kinds_keep_their_dependents_when_a_client_starts() {
    let (server, client, _) = world();
    let mut elsewhere = owned("b", &widget("a", 1));
    elsewhere["metadata"]["ownerReferences"][0]["uid"] = json!("of another store");
    elsewhere["metadata"]["ownerReferences"][0]["kind"] = json!("Machine");
    create(&client, elsewhere);
    assert_eq!(names(&client), ["b"]);
    assert_eq!(names(&super::client(&server)), ["b"]);
}

/// A connection is closed at a random point of a deletion. `HOMEOSTAT_NATS_DELETIONS` sets the number of rounds.
#[test]
fn a_deletion_that_ends_at_any_moment_is_finished_by_the_next_client() {
    let rounds = number_of("HOMEOSTAT_NATS_DELETIONS", 6);
    let (server, checker, bucket) = world();
    for round in 0..rounds {
        for (propagation, left) in
            [(Propagation::Background, 0), (Propagation::Foreground, 0), (Propagation::Orphan, 12)]
        {
            let a = create(&checker, widget("a", 1));
            for number in 0..10 {
                create(&checker, owned(&format!("b-{number}"), &a));
            }
            create(&checker, owned("c", &create(&checker, owned("b", &a))));
            let connection = connect(&server);
            let killed = client_of(&connection);
            let deleting = spawn(move || {
                let options = DeleteOptions::default().propagation(propagation);
                let _ = killed.delete(&WIDGET, &key("a"), &options);
            });
            // Close the connection after a number of writes.
            let start = bucket.status().unwrap().revision;
            let until = start + (round * 7) % 30;
            while bucket.status().unwrap().revision < until && !deleting.is_finished() {}
            connection.close();
            deleting.join().unwrap();
            let next = client(&server);
            let deleted = next.get(&WIDGET, &key("a")).ignore_not_found().unwrap().is_none_or(|a| a.is_deleting());
            if !deleted {
                // If the call has not begun, the caller repeats it.
                let options = DeleteOptions::default().propagation(propagation);
                next.delete(&WIDGET, &key("a"), &options).ignore_not_found().unwrap();
            }
            let found = names(&next);
            assert_eq!(found.len(), left, "round {round}, {propagation:?}: {found:?}");
            for name in found {
                next.delete(&WIDGET, &key(&name), &DeleteOptions::default()).ignore_not_found().unwrap();
            }
            assert_eq!(names(&next), Vec::<String>::new());
        }
    }
}

#[test]
fn dependents_that_other_clients_create_during_a_deletion_are_deleted() {
    let (server, checker, bucket) = world();
    for propagation in [Propagation::Background, Propagation::Foreground] {
        let a = create(&checker, widget("a", 1));
        let created = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (client, a, created) = (client(&server), a.clone(), Arc::clone(&created));
                spawn(move || {
                    for number in 0..20 {
                        client.create(&WIDGET, owned(&format!("b-{writer}-{number}"), &a)).unwrap();
                        created.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        until("twenty dependents exist", || created.load(Ordering::SeqCst) >= 20);
        let options = DeleteOptions::default().propagation(propagation);
        checker.delete(&WIDGET, &key("a"), &options).unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
        let left: Vec<SharedObject> = checker.list(&WIDGET, &Query::all()).unwrap().items;
        assert_eq!(left, Vec::<SharedObject>::new(), "{propagation:?}");
        assert_eq!(references(&bucket).len(), 0);
    }
}

/// One client orphans the dependents of a waiting owner, while another client removes one of them. A conflict between
/// the two must not leave the owner waiting forever.
#[test]
fn a_waiting_owner_ends_although_two_clients_treat_its_dependents_differently() {
    let (server, one, _bucket) = world();
    let other = client(&server);
    let options = |propagation| DeleteOptions::default().propagation(propagation);
    for round in 0..number_of("HOMEOSTAT_NATS_ORPHANS", 30) {
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}-{round}"));
        let owner = create(&one, widget(&a, 1));
        for name in [&b, &c] {
            let mut dependent = owned(name, &owner);
            dependent["metadata"]["finalizers"] = json!(["example.com/hold"]);
            create(&one, dependent);
        }
        one.delete(&WIDGET, &key(&a), &options(Propagation::Foreground)).unwrap();
        assert!(names(&one).contains(&a), "it waits");
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        std::thread::scope(|scope| {
            let released = scope.spawn(|| other.patch(&WIDGET, &key(&c), &release, PatchTarget::Object));
            one.delete(&WIDGET, &key(&a), &options(Propagation::Orphan)).ignore_not_found().unwrap();
            released.join().unwrap().ignore_not_found().unwrap();
        });
        assert!(!names(&one).contains(&a), "round {round}: {:?}", names(&one));
        one.patch(&WIDGET, &key(&b), &release, PatchTarget::Object).ignore_not_found().unwrap();
    }
}

/// Another client changes the owner during the calls. A refused call has changed no dependent.
#[test]
fn a_refused_deletion_orphans_nothing() {
    let (server, one, _bucket) = world();
    let other = client(&server);
    let mut refused = 0;
    for round in 0..number_of("HOMEOSTAT_NATS_REFUSALS", 10) {
        let name = format!("a-{round}");
        let owner = create(&one, widget(&name, 1));
        let dependents: Vec<_> = (0..10).map(|number| format!("b-{round}-{number}")).collect();
        for dependent in &dependents {
            create(&one, owned(dependent, &owner));
        }
        let version = owner["metadata"]["resourceVersion"].as_str().unwrap();
        let options = DeleteOptions::default().propagation(Propagation::Orphan).resource_version(version);
        let options = if round % 2 == 0 { options } else { options.purge() };
        let start = one.list(&WIDGET, &Query::all()).unwrap().version;
        let grow = Patch::Merge(json!({"spec": {"size": 2}}));
        let deleted = std::thread::scope(|scope| {
            let deleting = scope.spawn(|| one.delete(&WIDGET, &key(&name), &options));
            // After the first write of the call.
            while other.list(&WIDGET, &Query::all()).unwrap().version == start && !deleting.is_finished() {}
            other.patch(&WIDGET, &key(&name), &grow, PatchTarget::Object).ignore_not_found().unwrap();
            deleting.join().unwrap()
        });
        let is_owned =
            |name: &String| one.get(&WIDGET, &key(name)).unwrap().pointer("/metadata/ownerReferences").is_some();
        match deleted {
            Ok(outcome) => {
                assert!(outcome.is_gone(), "round {round}: {outcome:?}");
                assert!(!names(&one).contains(&name), "round {round}");
                assert!(!dependents.iter().any(is_owned), "round {round}: all are free");
            }
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                refused += 1;
                assert!(dependents.iter().all(is_owned), "round {round}: no dependent has changed");
            }
        }
    }
    println!("{refused} calls were refused");
}

#[test]
fn a_precondition_that_does_not_hold_orphans_nothing() {
    let (_server, client, _bucket) = world();
    let a = create(&client, widget("a", 1));
    let b = create(&client, owned("b", &a));
    for options in [DeleteOptions::default().uid("other"), DeleteOptions::default().resource_version("7")] {
        let options = options.propagation(Propagation::Orphan);
        for options in [options.clone(), options.purge()] {
            let error = client.delete(&WIDGET, &key("a"), &options).unwrap_err();
            assert!(error.is_conflict(), "{error}");
        }
    }
    assert_eq!([a, b], ["a", "b"].map(|name| client.get(&WIDGET, &key(name)).unwrap().to_value()));
}

/// The first write of an orphaning deletion marks the owner. If the client is killed then, the next client does the
/// rest.
#[test]
fn a_client_killed_while_it_orphans_leaves_nothing_behind() {
    let (server, client, bucket) = world();
    let mut a = create(&client, widget("a", 1));
    create(&client, owned("b", &a));
    a["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    a["metadata"]["finalizers"] = json!(["orphan"]);
    put(&bucket, &a);
    let next = super::client(&server);
    assert_eq!(names(&next), ["b"]);
    assert_eq!(next.get(&WIDGET, &key("b")).unwrap().pointer("/metadata/ownerReferences"), None);
    assert_eq!(references(&bucket), Vec::<String>::new());
}

/// The owner's marker is the only sign that the bucket ever had its kind.
#[test]
fn the_removal_of_markers_first_finishes_the_deletions_of_killed_clients() {
    const GADGET: Kind = Kind::namespaced("example.com", "v1", "Gadget");
    let (server, client, bucket) = world();
    if !removes_markers(&connect(&server)) {
        return;
    }
    let mut gadget = widget("a", 1);
    gadget["kind"] = json!("Gadget");
    let gadget = client.create(&GADGET, gadget).unwrap().to_value();
    let b = create(&client, owned("b", &gadget));
    create(&client, owned("c", &b));
    bucket.delete("example=2Ecom.Gadget.default.a").unwrap();
    assert_eq!(names(&client), ["b", "c"], "the client that has deleted the owner was killed");
    assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), 1);
    assert_eq!(names(&super::client(&server)), Vec::<String>::new());
}

#[test]
fn an_entry_that_cannot_be_read_does_not_keep_the_other_dependents() {
    let (server, client, bucket) = world();
    let a = create(&client, widget("a", 1));
    for name in ["b", "c", "d"] {
        create(&client, owned(name, &a));
    }
    let other = create(&client, widget("other", 1));
    create(&client, owned("e", &other));
    let unreadable = references(&bucket).into_iter().find(|key| key.ends_with("default.d")).unwrap();
    let reference = bucket.get(&unreadable).unwrap().unwrap();
    bucket.put(&unreadable, b"7").unwrap();
    bucket.put(&entry("b"), b"no object").unwrap();
    bucket.delete(&entry("a")).unwrap();
    bucket.delete(&entry("other")).unwrap();
    let keys = |client: &NatsClient| {
        ["b", "c", "d", "e"].map(|name| client.get(&WIDGET, &key(name)).is_err_and(|error| error.is_not_found()))
    };
    assert_eq!(keys(&super::client(&server)), [false, true, false, true]);
    bucket.put(&unreadable, &reference.value).unwrap();
    assert_eq!(keys(&super::client(&server)), [false, true, true, true]);

    // The same while the owner is being deleted.
    bucket.delete(&entry("b")).unwrap();
    let a = create(&client, widget("a", 1));
    for name in ["b", "c"] {
        create(&client, owned(name, &a));
    }
    bucket.put(&entry("b"), b"no object").unwrap();
    assert!(client.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap().is_gone());
    assert_eq!(keys(&client), [false, true, true, true]);
}
