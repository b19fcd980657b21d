//! Properties of the embedded clients beyond the rules for every client.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{CancellationToken, ManualClock};
use homeostat_objects::{
    Api, Client, DeleteOptions, Deletion, DynamicObject, FieldOwner, Kind, MemoryClient, Object, ObjectKey, Patch,
    PatchTarget, Propagation, Query, SharedObject, WatchEvent,
};
use serde_json::{Value, json};

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");

fn api(client: &MemoryClient) -> Api<DynamicObject> {
    Api::of_kind(Arc::new(client.clone()), THING)
}

fn thing(name: &str) -> DynamicObject {
    DynamicObject::new(&THING, "default", name).with("spec", json!({"size": 1}))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn names(api: &Api<DynamicObject>) -> Vec<String> {
    api.list(&Query::all()).unwrap().items.into_iter().map(|object| object.meta().name.clone()).collect()
}

fn owned(name: &str, owners: &[&DynamicObject], blocks: bool) -> DynamicObject {
    let mut object = thing(name);
    object.meta_mut().owner_references = owners.iter().map(|owner| owner.owner_reference()).collect();
    for owner in &mut object.meta_mut().owner_references {
        owner.block_owner_deletion = Some(blocks);
    }
    object
}

#[test]
fn times_are_those_of_the_clock_in_whole_seconds() {
    let clock = ManualClock::new();
    let api = api(&MemoryClient::builder().clock(clock.clock()).seed(7).build());
    clock.advance(Duration::from_millis(90_500));
    let mut a = thing("a");
    a.meta_mut().finalizers = vec!["example.com/x".into()];
    let a = api.create(&a).unwrap();
    assert_eq!(a.meta().creation_timestamp.unwrap().to_string(), "1970-01-01T00:01:30Z");
    assert_eq!(a.meta().uid, "00000000-0000-0007-0000-000000000002", "a seed makes uids known");
    clock.advance(Duration::from_secs(10));
    let a = api.delete(&a.key(), &DeleteOptions::default()).unwrap().into_object().unwrap();
    assert_eq!(a.meta().deletion_timestamp.unwrap().to_string(), "1970-01-01T00:01:40Z");
}

#[test]
fn a_chain_of_owners_of_any_length_is_deleted_at_once() {
    let api = api(&MemoryClient::new());
    let first = api.create(&thing("first")).unwrap();
    let mut last = first.clone();
    for number in 0..2_000 {
        last = api.create(&owned(&format!("link-{number}"), &[&last], false)).unwrap();
    }
    api.delete(&first.key(), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&api), Vec::<String>::new());
}

#[test]
fn objects_that_own_each_other_can_be_deleted_in_the_foreground() {
    let api = api(&MemoryClient::new());
    let a = api.create(&thing("a")).unwrap();
    let b = api.create(&owned("b", &[&a], true)).unwrap();
    let mut a = a;
    a.meta_mut().owner_references = owned("a", &[&b], true).meta().owner_references.clone();
    let a = api.update(&a).unwrap();
    let foreground = DeleteOptions::default().propagation(Propagation::Foreground);
    api.delete(&a.key(), &foreground).unwrap();
    assert_eq!(names(&api), Vec::<String>::new());
}

#[test]
fn a_child_is_deleted_with_an_owner_named_in_another_version() {
    let api = api(&MemoryClient::new());
    let a = api.create(&thing("a")).unwrap();
    let mut b = owned("b", &[&a], true);
    b.meta_mut().owner_references[0].api_version = "example.com/v1beta1".into();
    api.create(&b).unwrap();
    assert_eq!(names(&api), ["a", "b"]);
    api.delete(&a.key(), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&api), Vec::<String>::new());
}

/// An object inside an applied object has no owner itself. It is removed with its last field.
#[test]
fn an_applied_object_stays_while_others_have_fields_in_it() {
    let client = MemoryClient::new();
    let apply = |owner: &str, spec: Value| {
        let said = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "a"},
            "spec": spec});
        client.apply(&THING, said, &FieldOwner::new(owner)).unwrap().to_value()["spec"].clone()
    };
    let merge = |spec: Value| {
        client.patch(&THING, &key("a"), &Patch::Merge(json!({"spec": spec})), PatchTarget::Object).unwrap();
    };
    apply("one", json!({"empty": {}, "mine": {"x": 1}, "deep": {"er": 1}}));
    apply("two", json!({"empty": {"y": 2}, "mine": {}}));
    let given_up = apply("two", json!({"mine": {}}));
    assert_eq!(given_up, json!({"empty": {}, "mine": {"x": 1}, "deep": {"er": 1}}));
    merge(json!({"deep": {"er": 3}}));
    assert_eq!(apply("one", json!({})), json!({"mine": {}, "deep": {"er": 3}}));
    merge(json!({"mine": {"foreign": 1}}));
    assert_eq!(apply("two", json!({})), json!({"mine": {"foreign": 1}, "deep": {"er": 3}}));
}

#[test]
fn metadata_of_another_type_are_invalid_and_named() {
    let client = MemoryClient::new();
    for (field, value) in [
        ("labels", json!({"ok": "1", "bad": 1})),
        ("labels", json!([])),
        ("annotations", json!({"bad": true})),
        ("finalizers", json!([1])),
        ("finalizers", json!({"a": "b"})),
        ("ownerReferences", json!([1])),
        ("ownerReferences", json!("a")),
        ("namespace", json!("Default")),
    ] {
        let mut said = thing("a").to_json().unwrap();
        said["metadata"][field] = value.clone();
        let error = client.create(&THING, said).unwrap_err();
        let [cause] = error.causes() else { panic!("{error}") };
        assert!(cause.field.starts_with(&format!("metadata.{field}")), "{error}");
        assert!(error.to_string().contains(&cause.field) && !cause.rule.is_empty(), "{error}");
    }
}

/// The owner may exist in another client. The client knows only kinds that it has had.
#[test]
fn a_dependent_of_an_owner_of_an_unknown_kind_stays() {
    const OTHER: Kind = Kind::namespaced("example.com", "v1", "Other");
    let client = MemoryClient::new();
    let (api, others) = (api(&client), Api::<DynamicObject>::of_kind(Arc::new(client.clone()), OTHER));
    let mut elsewhere = DynamicObject::new(&OTHER, "default", "elsewhere");
    elsewhere.meta_mut().uid = "6ee5b3a0-8f1f-4f3a-9c5e-2f6c1f3c9d10".into();
    let known = api.create(&thing("known")).unwrap();
    api.create(&owned("a", &[&elsewhere], false)).unwrap();
    api.create(&owned("b", &[&elsewhere, &known], false)).unwrap();
    api.delete(&known.key(), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&api), ["a", "b"]);
    // Now the client knows the kind, so the owner is missing.
    let other = others.create(&DynamicObject::new(&OTHER, "default", "other")).unwrap();
    others.delete(&other.key(), &DeleteOptions::default()).unwrap();
    api.create(&owned("c", &[&elsewhere], false)).unwrap();
    assert_eq!(names(&api), ["a", "b"]);
}

#[test]
fn without_cascades_dependents_stay() {
    let api = api(&MemoryClient::builder().cascade(false).build());
    let a = api.create(&thing("a")).unwrap();
    api.create(&owned("b", &[&a], true)).unwrap();
    api.delete(&a.key(), &DeleteOptions::default()).unwrap();
    assert_eq!(names(&api), ["b"]);
    // Nothing waits for them either.
    let b = api.get(&key("b")).unwrap();
    api.create(&owned("c", &[&b], true)).unwrap();
    let foreground = DeleteOptions::default().propagation(Propagation::Foreground);
    assert_eq!(api.delete(&b.key(), &foreground).unwrap(), Deletion::Gone);
    assert_eq!(names(&api), ["c"]);
}

#[test]
fn a_taken_generated_name_is_replaced_by_another() {
    // With a seed, two clients generate the same names. One client takes the names before the other generates them.
    let made = |client: &MemoryClient| {
        let mut object = thing("");
        object.meta_mut().generate_name = "web-".into();
        api(client).create(&object).map(|object| object.meta().name.clone())
    };
    let first = made(&MemoryClient::builder().seed(1).build()).unwrap();
    let client = MemoryClient::builder().seed(1).build();
    let taken = MemoryClient::builder().seed(1).build();
    api(&taken).create(&thing("x")).unwrap();
    let second = made(&taken).unwrap();
    api(&client).create(&thing(&second)).unwrap();
    let other = made(&client).unwrap();
    assert!(other.starts_with("web-") && other != second && other != first, "{first} {second} {other}");
}

/// Fields have an order only with `preserve_order` of `serde_json`.
#[test]
fn another_order_of_the_fields_does_not_raise_the_generation() {
    let api = api(&MemoryClient::new());
    let empty = || DynamicObject::new(&THING, "default", "a");
    let created = api.create(&empty().with("spec", json!({"x": 1, "y": 2})).with("data", json!(1))).unwrap();
    let mut other = empty().with("data", json!(1)).with("spec", json!({"y": 2, "x": 1}));
    *other.meta_mut() = created.meta().into_owned();
    other.meta_mut().labels.insert("app".into(), "web".into());
    assert_eq!(api.update(&other).unwrap().meta().generation, 1);
}

#[test]
fn applying_twice_changes_nothing() {
    let clock = ManualClock::new();
    let client = MemoryClient::builder().clock(clock.clock()).build();
    let fields = json!({"apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"namespace": "default", "name": "a", "labels": {"x": "y"}}, "spec": {"size": 2, "ports": [1, 2]}});
    let owner = FieldOwner::new("me");
    let first = client.apply(&THING, fields.clone(), &owner).unwrap();
    clock.advance(Duration::from_secs(60));
    let again = client.apply(&THING, fields, &owner).unwrap();
    assert_eq!(first, again);
    assert_eq!(
        first.to_value()["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:ports": {}, "f:size": {}}})
    );
}

/// Kubernetes has no entry for an owner without fields either. If each of two owners replaced the entries, both would
/// write forever.
#[test]
fn applying_no_fields_beside_another_owner_changes_nothing() {
    let clock = ManualClock::new();
    let client = MemoryClient::builder().clock(clock.clock()).build();
    let name_only =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "a"}});
    let (one, two) = (FieldOwner::new("one"), FieldOwner::new("two"));
    let apply = |fields: &Value, owner: &FieldOwner| {
        clock.advance(Duration::from_secs(60));
        client.apply(&THING, fields.clone(), owner).unwrap()
    };
    let created = apply(&name_only, &one);
    assert_eq!(created.to_value()["metadata"].get("managedFields"), None, "one owns nothing");
    let mut with_size = name_only.clone();
    with_size["spec"] = json!({"size": 2});
    let owned = apply(&with_size, &two);
    for _ in 0..2 {
        assert_eq!(apply(&name_only, &one), owned);
        assert_eq!(apply(&with_size, &two), owned);
    }
    // An owner that gives up all its fields loses its entry.
    let left = apply(&name_only, &two).to_value();
    assert_eq!((left.get("spec"), left["metadata"].get("managedFields")), (None, None));
}

/// The ignored fields are a status, and metadata that the client sets itself.
#[test]
fn applying_fields_that_are_ignored_changes_nothing() {
    let clock = ManualClock::new();
    let client = MemoryClient::builder().clock(clock.clock()).build();
    let fields = json!({"apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"namespace": "default", "name": "a"}, "spec": {"size": 2}});
    let owner = FieldOwner::new("me");
    let first = client.apply(&THING, fields.clone(), &owner).unwrap();
    clock.advance(Duration::from_secs(60));
    let metadata = |field: &str, value: Value| {
        let mut metadata = json!({"namespace": "default", "name": "a"});
        metadata[field] = value;
        ("metadata", metadata)
    };
    for (field, value) in [
        ("status", json!({"ready": false})),
        metadata("generation", json!(7)),
        metadata("creationTimestamp", json!("2001-01-01T00:00:00Z")),
        metadata("deletionTimestamp", json!("2001-01-01T00:00:00Z")),
        metadata("deletionGracePeriodSeconds", json!(5)),
        metadata("managedFields", json!([])),
        metadata("uid", first.to_value()["metadata"]["uid"].clone()),
        metadata("resourceVersion", first.to_value()["metadata"]["resourceVersion"].clone()),
    ] {
        let mut fields = fields.clone();
        fields[field] = value;
        assert_eq!(client.apply(&THING, fields.clone(), &owner).unwrap(), first, "{fields}");
    }
}

#[test]
fn a_plain_write_ends_the_conflict_about_a_field() {
    let client = MemoryClient::new();
    let fields = |size: u32| {
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "a"},
            "spec": {"size": size}})
    };
    let (one, two) = (FieldOwner::new("one"), FieldOwner::new("two"));
    client.apply(&THING, fields(1), &one).unwrap();
    let merge = Patch::Merge(json!({"spec": {"size": 5}}));
    let patched = client.patch(&THING, &key("a"), &merge, PatchTarget::Object).unwrap();
    assert_eq!(patched.to_value()["metadata"].get("managedFields"), None, "one no longer owns anything");
    let applied = client.apply(&THING, fields(1), &two).unwrap();
    assert_eq!(applied.to_value()["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert!(client.apply(&THING, fields(2), &one).unwrap_err().is_conflict());
}

#[test]
fn bookmarks_about_other_changes_let_a_watch_resume() {
    let client = MemoryClient::builder().history(8).build();
    let other = Kind::cluster("", "v1", "Other");
    let stop = CancellationToken::new();
    let mut watch = client.watch(&THING, &Query::all(), None, &stop).unwrap();
    assert_eq!(watch.next().unwrap().unwrap(), WatchEvent::Bookmark("1".into()));
    let create = |number: usize| {
        let json = json!({"apiVersion": "v1", "kind": "Other", "metadata": {"name": format!("o-{number}")}});
        client.create(&other, json).unwrap();
    };
    (0..3).for_each(create);
    assert_eq!(watch.next().unwrap().unwrap(), WatchEvent::Bookmark("4".into()));
    (3..20).for_each(create);
    let error = watch.next().unwrap().unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(watch.next().is_none());
    assert!(client.watch(&THING, &Query::all(), Some("12"), &stop).unwrap_err().is_gone());
    assert!(client.watch(&THING, &Query::all(), Some("13"), &stop).is_ok());
    assert!(client.watch(&THING, &Query::all(), Some("22"), &stop).unwrap_err().is_gone(), "it has not been yet");
    assert!(client.watch(&THING, &Query::all(), Some("x"), &stop).unwrap_err().is_gone());
}

#[test]
fn returned_objects_are_shared() {
    let client = MemoryClient::new();
    let created = client.create(&THING, thing("a").to_json().unwrap()).unwrap();
    let got: SharedObject = client.get(&THING, &key("a")).unwrap();
    assert!(created.ptr_eq(&got));
    assert!(got.ptr_eq(&client.list(&THING, &Query::all()).unwrap().items[0]));
}

/// Changes an object many times, with this many bytes each time, and counts the versions that are still in memory.
fn versions_in_memory(client: &MemoryClient, changes: usize, bytes: usize) -> usize {
    client.create(&THING, thing("a").to_json().unwrap()).unwrap();
    let changes = (0..changes).map(|number| {
        let patch = Patch::Merge(json!({"data": format!("{number}{}", "x".repeat(bytes))}));
        client.patch(&THING, &key("a"), &patch, PatchTarget::Object).unwrap()
    });
    let seen: Vec<_> = changes.collect();
    seen.iter().filter(|version| version.is_shared()).count()
}

#[test]
fn the_history_keeps_to_its_limit_of_bytes() {
    let client = MemoryClient::builder().history_bytes(2_000_000).build();
    let versions = versions_in_memory(&client, 50, 200_000);
    assert!((5..=10).contains(&versions), "{versions} versions of 200 kB");
    let stop = CancellationToken::new();
    let watch = |version: u64| client.watch(&THING, &Query::all(), Some(&version.to_string()), &stop);
    assert!(watch(40).unwrap_err().is_gone());
    let mut watch = watch(48).unwrap();
    let notice = (0..3).map(|_| match watch.next().unwrap().unwrap() {
        WatchEvent::Modified(object) => object.to_value()["metadata"]["resourceVersion"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    });
    assert_eq!(notice.collect::<Vec<_>>(), ["49", "50", "51"]);

    let versions = versions_in_memory(&MemoryClient::new(), 52, 1_400_000);
    assert!((42..=48).contains(&versions), "{versions} versions of 1.4 MB, of 64 MiB by default");
}

#[test]
fn a_watch_of_other_objects_gets_bookmarks_while_large_changes_are_forgotten() {
    let client = MemoryClient::builder().history_bytes(2_000_000).build();
    let other = Kind::cluster("", "v1", "Other");
    let stop = CancellationToken::new();
    let mut watch = client.watch(&THING, &Query::all(), None, &stop).unwrap();
    assert_eq!(watch.next().unwrap().unwrap(), WatchEvent::Bookmark("1".into()));
    client.create(&other, json!({"apiVersion": "v1", "kind": "Other", "metadata": {"name": "o"}})).unwrap();
    for number in 0..8 {
        let patch = Patch::Merge(json!({"data": format!("{number}{}", "x".repeat(200_000))}));
        client.patch(&other, &ObjectKey::cluster("o"), &patch, PatchTarget::Object).unwrap();
    }
    assert_eq!(watch.next().unwrap().unwrap(), WatchEvent::Bookmark("10".into()));
}

/// Hooks of a server may return anything.
#[test]
fn an_admitted_state_follows_the_rules() {
    let client = MemoryClient::new();
    let said = |name: &str, spec: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": name},
            "spec": spec})
    };
    let mut deep = json!(1);
    for _ in 0..120 {
        deep = json!([deep]);
    }
    let mut labelled = said("a", json!({"size": 1}));
    labelled["metadata"]["labels"] = json!({"": "x"});
    for state in [said("b", json!({"size": 1})), said("a", deep), labelled, json!(null)] {
        let owner = FieldOwner::new("me").admitted(state);
        let error = client.apply(&THING, said("a", json!({"size": 1})), &owner).unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    let mut gone = said("a", json!({"size": 1}));
    gone["metadata"]["resourceVersion"] = json!("7");
    let error = client.apply(&THING, said("a", json!({"size": 1})), &FieldOwner::new("me").admitted(gone)).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert!(client.list(&THING, &Query::all()).unwrap().items.is_empty());
}
