//! The test client: given objects, generated names, reactors, and recorded writes.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{CancellationToken, ManualClock};
use homeostat_objects::{
    Api, Client, ClientError, DeleteOptions, DynamicObject, FieldOwner, Object, ObjectKey, Patch, Propagation, Query,
    ValueRef, Verb, WatchEvent,
};
use homeostat_testing::{Call, Factory, Reactor, Sample, TestClient, Write};
use serde_json::json;

use super::support::{APP, app};

fn client() -> (TestClient, Api<DynamicObject>) {
    let client = TestClient::new(ManualClock::new().clock());
    (client.clone(), Api::of_kind(Arc::new(client), APP))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

#[test]
fn given_objects_are_stored_unchanged() {
    let (client, apps) = client();
    let odd = app("shop").created(5).deleted(9).uid("no uuid").generation(7).field("/status/ready", true);
    client.give(&odd);
    assert_eq!(apps.get(&key("shop")).unwrap(), odd.build());
    assert_eq!(client.writes(), []);
    client.give(&app("shop").field("/spec", json!({})));
    let whole = apps.get(&key("shop")).unwrap();
    assert_eq!(whole, app("shop").field("/spec", json!({})).created(0).build());
}

/// It has the rules of the embedded clients: versions, conflicts, generations, finalizers, owners.
#[test]
fn given_objects_follow_the_rules_of_the_client() {
    let (client, apps) = client();
    client.give(&app("shop").finalizer("example.com/a"));
    client.give(&app("part").controlled_by(&app("shop")));
    let shop = apps.get(&key("shop")).unwrap();
    let mut changed = shop.clone();
    changed.fields_mut().insert("spec".to_owned(), json!({"size": 1}));
    let updated = apps.update(&changed).unwrap();
    assert_eq!((&*updated.meta().resource_version, updated.meta().generation), ("1000", 2));
    assert!(apps.update(&changed).unwrap_err().is_conflict());
    let deletion = apps.delete(&key("shop"), &DeleteOptions::default()).unwrap();
    assert!(deletion.object().unwrap().meta().is_deleting());
    assert!(apps.get(&key("part")).is_ok());
    let mut free = apps.get(&key("shop")).unwrap();
    free.meta_mut().finalizers.clear();
    apps.update(&free).unwrap();
    assert!(apps.get(&key("shop")).unwrap_err().is_not_found());
    assert!(apps.get(&key("part")).unwrap_err().is_not_found());
}

/// A watch of one clone shows the writes of another clone. A client with other objects is another store.
#[test]
fn clones_count_as_one_store() {
    let (client, apps) = client();
    assert_eq!(client.store_id(), apps.client().store_id());
    assert_ne!(client.store_id(), client.beside(ManualClock::new().clock()).store_id());
    assert_eq!(client.capabilities(), homeostat_objects::Capabilities::all());
}

/// An object does not inherit the owners of the object that it replaces.
#[test]
fn an_object_that_is_given_again_is_a_new_object() {
    let (client, apps) = client();
    client.give(&app("shop"));
    client.give(&app("part").controlled_by(&app("shop")));
    client.give(&app("part"));
    let orphans = DeleteOptions::default().propagation(Propagation::Orphan);
    apps.delete(&key("shop"), &orphans).unwrap();
    assert_eq!(apps.get(&key("part")).unwrap().meta().resource_version, "999");
}

/// Giving an object ends a watch: its reader must list again.
#[test]
fn a_given_object_ends_the_history_of_a_watch() {
    let (client, apps) = client();
    let versions =
        ["shop", "mill"].map(|name| apps.create(&app(name).build()).unwrap().meta().resource_version.clone());
    client.give(&app("bank").resource_version("4"));
    let stop = CancellationToken::new();
    for version in ["1", &versions[0], &versions[1]] {
        let watch = client.watch(&APP, &Query::all(), Some(version), &stop);
        assert!(watch.is_err_and(|error| error.is_gone()), "from {version}");
    }
    let list = apps.list(&Query::all()).unwrap();
    assert_eq!((list.items.len(), &*list.version), (3, "4"));
    apps.delete(&key("shop"), &DeleteOptions::default()).unwrap();
    let next = apps.watch(&Query::all(), Some(&list.version), &stop).unwrap().next().unwrap().unwrap();
    assert!(matches!(next, WatchEvent::Deleted(object) if object.key() == key("shop")));
}

/// Uids are unique across the clients of a set.
#[test]
fn uids_are_reproducible_and_unique_to_a_client() {
    let uids = || {
        let (client, apps) = client();
        let beside = Api::of_kind(Arc::new(client.beside(ManualClock::new().clock())), APP);
        [apps, beside].map(|apps| apps.create(&app("shop").build()).unwrap().meta().uid.clone())
    };
    let [one, other] = uids();
    assert_ne!(one, other);
    assert_eq!(uids(), [one, other]);
}

#[test]
fn times_come_from_the_clock() {
    let clock = ManualClock::at(std::time::UNIX_EPOCH + Duration::from_secs(90));
    let apps = Api::<DynamicObject>::of_kind(Arc::new(TestClient::new(clock.clock())), APP);
    let created = apps.create(&app("shop").build()).unwrap();
    assert_eq!(created.meta().creation_timestamp, app("shop").created(90).build().meta().creation_timestamp);
}

#[test]
fn generated_names_are_numbered_by_prefix() {
    let (_, apps) = client();
    let names = ["web-", "db-", "web-"]
        .map(|start| apps.create(&app("").generate_name(start).build()).unwrap().meta().name.clone());
    assert_eq!(names, ["web-001", "db-001", "web-002"]);
    // A given name is kept.
    assert_eq!(apps.create(&app("").generate_name("web-").name("x").build()).unwrap().meta().name, "x");
}

#[test]
fn all_writes_are_recorded_as_sent() {
    let (client, apps) = client();
    let shop = apps.create(&app("shop").build()).unwrap();
    let object = shop.object_ref();
    apps.update(&shop).unwrap();
    apps.update_status(&shop).unwrap();
    let patch = Patch::Merge(json!({"spec": {}}));
    apps.patch(&key("shop"), &patch).unwrap();
    apps.patch_status(&key("shop"), &patch).unwrap();
    let fields = app("shop").build().to_json().unwrap();
    apps.apply(fields.clone(), &FieldOwner::new("me")).unwrap();
    apps.get(&key("shop")).unwrap();
    apps.list(&Query::all()).unwrap();
    apps.purge(&key("shop")).unwrap();
    let sent = shop.to_json().unwrap();
    let expected = [
        Write::Create(object.clone(), fields.clone()),
        Write::Update(object.clone(), sent.clone()),
        Write::UpdateStatus(object.clone(), sent),
        Write::Patch(object.clone(), patch.clone(), homeostat_objects::PatchTarget::Object),
        Write::Patch(object.clone(), patch, homeostat_objects::PatchTarget::Status),
        Write::Apply(object.clone(), fields, FieldOwner::new("me")),
        Write::Delete(object, DeleteOptions::default().purge()),
    ];
    assert_eq!(client.writes(), expected);
    assert_eq!(client.take_writes(), expected);
    assert_eq!(client.writes(), []);
}

/// Calls each method.
fn call_all(client: &TestClient) -> Vec<(Verb, Result<(), ClientError>)> {
    let apps = Api::<DynamicObject>::of_kind(Arc::new(client.clone()), APP);
    let given = || {
        client.give(&app("shop"));
        apps.get(&key("shop"))
    };
    let patch = Patch::Merge(json!({}));
    let shop = app("shop").created(0).build();
    let all = Query::all();
    drop(given());
    vec![
        (Verb::Get, apps.get(&key("shop")).map(drop)),
        (Verb::List, apps.list(&all).map(drop)),
        (Verb::Create, apps.create(&app("new").build()).map(drop)),
        (Verb::Update, apps.update(&shop).map(drop)),
        (Verb::UpdateStatus, apps.update_status(&shop).map(drop)),
        (Verb::Patch, apps.patch(&key("shop"), &patch).map(drop)),
        (Verb::PatchStatus, apps.patch_status(&key("shop"), &patch).map(drop)),
        (Verb::Apply, apps.apply(app("shop").build().to_json().unwrap(), &FieldOwner::new("me")).map(drop)),
        (
            Verb::ApplyStatus,
            apps.apply(app("shop").build().to_json().unwrap(), &FieldOwner::new("me").status()).map(drop),
        ),
        (Verb::Delete, apps.delete(&key("shop"), &DeleteOptions::default()).map(drop)),
        (Verb::Watch, apps.watch(&all, None, &CancellationToken::new()).map(drop)),
    ]
}

#[test]
fn a_reactor_fails_only_the_calls_of_its_verb() {
    let verbs: Vec<_> =
        call_all(&client().0).into_iter().map(|(verb, result)| result.map(|()| verb).unwrap()).collect();
    for failing in verbs {
        let (client, _) = client();
        client.react(&Reactor::fail(failing));
        for (verb, result) in call_all(&client) {
            assert_eq!(result.is_err(), verb == failing, "{verb:?} where {failing:?} fails");
        }
    }
    let (client, _) = client();
    client.react(&Reactor::fail(None));
    assert!(call_all(&client).iter().all(|(_, result)| result.is_err()));
}

#[test]
fn a_reactor_can_be_limited_to_a_kind_a_name_and_a_number_of_calls() {
    let (client, apps) = client();
    let creates = |name: &str| apps.create(&app(name).build()).is_ok();
    let create = || Reactor::fail(Verb::Create);
    client.react(&create().kind(&Factory::pod("", "").sample().kind()));
    client.react(&create().kind(&APP).name("bank"));
    assert_eq!(["shop", "bank", "bank"].map(creates), [true, false, false]);
    client.react(&create().name("web-*").once());
    let generated = || apps.create(&app("").generate_name("web-").build());
    assert!(generated().is_err());
    assert_eq!(generated().unwrap().meta().name, "web-001");
    client.react(&create().name("x").times(2));
    assert_eq!(["x", "y", "x", "x"].map(creates), [false, true, false, true]);
}

#[test]
fn a_reactor_fails_with_the_given_error() {
    let (client, apps) = client();
    client.react(&Reactor::fail(Verb::Get).error(|object| ClientError::not_found(object.clone())));
    client.give(&app("shop"));
    let error = apps.get(&key("shop")).unwrap_err();
    assert!(error.is_not_found() && *error.object() == app("shop").build().object_ref());
    // The latest reactor sees the call first.
    client.react(&Reactor::fail(Verb::Get).once());
    assert!(apps.get(&key("shop")).unwrap_err().is_transport());
    assert!(apps.get(&key("shop")).unwrap_err().is_not_found());
}

#[test]
fn a_reactor_answers_instead_of_the_client() {
    let (client, apps) = client();
    let ghost = app("ghost").created(1).build().to_json().unwrap();
    let answer = ghost.clone();
    client.react(&Reactor::answer(Verb::Get, move |call| {
        (call.object.key().name() == "ghost").then(|| Ok(answer.clone()))
    }));
    client.react(&Reactor::answer(Verb::List, move |_| Some(Ok(json!([ghost])))));
    client.react(&Reactor::answer(Verb::Create, |call| {
        let sent = call.sent.unwrap();
        (sent["spec"]["size"] == 13).then(|| Err(ClientError::already_exists(call.object.clone())))
    }));
    client.give(&app("shop"));
    assert_eq!(apps.get(&key("ghost")).unwrap().key(), key("ghost"));
    assert_eq!(apps.get(&key("shop")).unwrap().key(), key("shop"));
    assert_eq!(apps.list(&Query::all()).unwrap().items.len(), 1);
    assert!(apps.create(&app("a").field("/spec/size", 13).build()).unwrap_err().is_already_exists());
    assert!(apps.create(&app("a").field("/spec/size", 12).build()).is_ok());
}

#[test]
fn a_reactor_without_an_answer_passes_the_call_on() {
    for verb in [Verb::List, Verb::Watch] {
        let client = TestClient::new(ManualClock::new().clock());
        client.react(&Reactor::answer(verb, |_| Some(Ok(json!({})))));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match verb {
            Verb::List => client.list(&APP, &Query::all()).map(drop),
            _ => client.watch(&APP, &Query::all(), None, &CancellationToken::new()).map(drop),
        }));
        assert!(panic.is_err(), "{verb:?}");
    }
}

#[test]
fn a_reactor_changes_the_sent_data() {
    let (client, apps) = client();
    client.react(&Reactor::change(Verb::Create, |app| app["spec"]["size"] = 1.into()));
    client.react(&Reactor::change(Verb::Patch, |patch| patch["spec"]["size"] = 2.into()));
    assert_eq!(
        apps.create(&app("shop").build()).unwrap().pointer("/spec/size").map(ValueRef::to_value),
        Some(json!(1))
    );
    // The data that was sent is recorded.
    assert!(matches!(&client.writes()[..], [Write::Create(_, sent)] if sent["spec"].is_null()));
    let patched = apps.patch(&key("shop"), &Patch::Merge(json!({}))).unwrap();
    assert_eq!(patched.pointer("/spec/size").map(ValueRef::to_value), Some(json!(2)));
}

/// A second client has separate objects and shares the recorded writes.
#[test]
fn clients_of_one_set_share_recorded_writes() {
    let (client, apps) = client();
    let beside = client.beside(ManualClock::new().clock());
    client.give(&app("shop"));
    assert!(beside.get(&APP, &key("shop")).unwrap_err().is_not_found());
    beside.create(&APP, app("bank").build().to_json().unwrap()).unwrap();
    assert_eq!(client.writes().len(), 1);
    client.react(&Reactor::fail(Verb::Get));
    assert!(beside.get(&APP, &key("bank")).unwrap_err().is_transport());
    assert!(apps.get(&key("shop")).unwrap_err().is_transport());
}

/// A call that a reactor leaves unchanged does not count.
#[test]
fn a_reactor_counts_only_the_calls_that_it_affects() {
    let (client, apps) = client();
    let create = |name: &str| apps.create(&app(name).build());
    let taken = |call: &Call<'_>| Err(ClientError::already_exists(call.object.clone()));
    client.react(&Reactor::answer(None, move |call| (call.object.key().name() == "bank").then(|| taken(call))).once());
    assert_eq!(["shop", "bank", "bank"].map(|name| create(name).is_ok()), [true, false, true]);
    client.react(&Reactor::change(None, |app| app["spec"]["size"] = 1.into()).once());
    apps.get(&key("shop")).unwrap();
    let [one, other] = ["mill", "port"].map(|name| create(name).unwrap());
    let size = |app: &DynamicObject| app.pointer("/spec/size").and_then(ValueRef::as_u64);
    assert_eq!([size(&one), size(&other)], [Some(1), None]);
}
