//! Garbage collection deletes only the objects that have lost their owners.

use std::cell::RefCell;
use std::sync::Arc;

use homeostat_objects::{
    Api, Collected, DeleteOptions, DynamicObject, Kind, MemoryClient, Object, ObjectKey, ObjectRef, OwnedBy, Owner,
    Ownership, Query, garbage_collect, owner_exists,
};
use serde_json::json;

use crate::hooked_client::{HookedClient, unreachable};
use homeostat::rt::Chain;

const MODEL: Kind = Kind::namespaced("example.com", "v1", "Model");
const OTHER: Kind = Kind::namespaced("example.org", "v1", "Model");
const POD: Kind = Kind::namespaced("", "v1", "Pod");

/// Models in one client, and the pods that belong to them in another.
struct World {
    models: Arc<HookedClient>,
    pods: Arc<HookedClient>,
}

fn world() -> World {
    let client = || HookedClient::new(MemoryClient::builder().cascade(false).build());
    World { models: client(), pods: client() }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("a", name)
}

impl World {
    fn model(&self, name: &str) -> DynamicObject {
        self.models.api(&MODEL).create(&DynamicObject::new(&MODEL, "a", name)).unwrap()
    }

    fn delete_model(&self, name: &str) {
        self.models.api(&MODEL).delete(&key(name), &DeleteOptions::default()).unwrap();
    }

    fn pods(&self) -> Api<DynamicObject> {
        self.pods.inner(&POD)
    }

    /// Returns a pod that is marked with this owner.
    fn marked(&self, name: &str, kind: &Kind, owner: &str) -> DynamicObject {
        let mut pod = DynamicObject::new(&POD, "a", name);
        Ownership::new().mark(&ObjectRef::new(kind, &key(owner)), &mut pod).unwrap();
        self.pods().create(&pod).unwrap()
    }

    /// Creates a pod that refers to these owners.
    fn referring(&self, name: &str, owners: &[&DynamicObject]) {
        let mut pod = DynamicObject::new(&POD, "a", name);
        pod.meta_mut().owner_references = owners.iter().map(|owner| owner.owner_reference()).collect();
        self.pods().create(&pod).unwrap();
    }

    fn collect(&self, by: OwnedBy<'_>) -> Collected {
        let exists = |owner: &Owner| owner_exists(&**self.models.api(&MODEL).client(), &MODEL, owner);
        garbage_collect(&*self.pods, &POD, &Query::all(), by, &MODEL, exists).unwrap()
    }

    fn collect_marked(&self) -> Collected {
        self.collect(OwnedBy::Marks(&Ownership::new()))
    }

    fn left(&self) -> Vec<String> {
        let pods = self.pods().list(&Query::all()).unwrap().items;
        pods.into_iter().map(|pod| pod.meta().name.clone()).collect()
    }
}

#[test]
fn marked_objects_of_lost_owners_are_deleted() {
    let world = world();
    world.model("lives");
    for (name, kind, owner) in
        [("a", &MODEL, "gone"), ("b", &MODEL, "lives"), ("c", &OTHER, "gone"), ("d", &MODEL, "gone-too")]
    {
        world.marked(name, kind, owner);
    }
    let labels_alone = DynamicObject::new(&POD, "a", "e");
    let mut half = world.marked("f", &MODEL, "gone");
    half.meta_mut().annotations.clear();
    world.pods().update(&half).unwrap();
    world.pods().create(&labels_alone).unwrap();
    world.referring("g", &[&world.model("gone")]);
    world.delete_model("gone");

    let collected = world.collect_marked();
    assert_eq!(collected.deleted, [key("a"), key("d")]);
    assert!(collected.failed.is_empty() && collected.unknown.is_empty());
    assert_eq!(world.left(), ["b", "c", "e", "f", "g"]);
    assert_eq!(world.collect_marked().deleted, []);
    world.delete_model("lives");
    assert_eq!(world.collect_marked().deleted, [key("b")]);
}

#[test]
fn objects_that_refer_only_to_lost_owners_are_deleted() {
    let world = world();
    let [gone, lives, was] = ["gone", "lives", "was"].map(|name| world.model(name));
    let other = world.models.api(&OTHER).create(&DynamicObject::new(&OTHER, "a", "other")).unwrap();
    world.delete_model("gone");
    world.delete_model("was");
    world.model("was");
    world.referring("a", &[&gone]);
    world.referring("b", &[&gone, &lives]);
    world.referring("c", &[&gone, &other]);
    world.referring("d", &[&was, &gone]);
    world.referring("e", &[]);
    world.marked("f", &MODEL, "gone");

    assert_eq!(world.collect(OwnedBy::References).deleted, [key("a"), key("d")]);
    assert_eq!(world.left(), ["b", "c", "e", "f"]);
}

#[test]
fn only_selected_objects_are_considered() {
    let world = world();
    world.marked("a", &MODEL, "gone");
    let mut pod = world.marked("b", &MODEL, "gone");
    pod.meta_mut().labels.insert("keep".into(), String::new());
    world.pods().update(&pod).unwrap();
    let query = Query::all().labels("!keep".parse().unwrap());
    let ownership = Ownership::new();
    let collected =
        garbage_collect(&*world.pods, &POD, &query, OwnedBy::Marks(&ownership), &MODEL, |_| Ok(false)).unwrap();
    assert_eq!((collected.deleted, world.left()), (vec![key("a")], vec!["b".to_owned()]));

    world.pods.cut_off(true);
    let by = OwnedBy::Marks(&ownership);
    assert!(garbage_collect(&*world.pods, &POD, &query, by, &MODEL, |_| Ok(false)).unwrap_err().is_transport());
}

#[test]
fn an_owner_that_cannot_be_checked_counts_as_existing() {
    let world = world();
    for name in ["a", "b"] {
        world.marked(name, &MODEL, "unknown");
    }
    world.marked("c", &MODEL, "gone");
    world.models.before(|_, object| (*object.key() == key("unknown")).then(|| unreachable(object)));
    let collected = world.collect_marked();
    assert_eq!(collected.deleted, [key("c")]);
    let unknown: Vec<_> = collected.unknown.iter().map(|error| Chain(error).to_string()).collect();
    assert_eq!((unknown, collected.failed.len()), (vec!["Model a/unknown: the call failed: no answer".to_owned()], 0));
    assert_eq!(world.left(), ["a", "b"]);
}

#[test]
fn each_owner_is_checked_once_after_the_listing() {
    let world = world();
    for name in ["a", "b", "c"] {
        world.marked(name, &MODEL, if name == "c" { "two" } else { "one" });
    }
    let asked = RefCell::new(vec![]);
    world.pods.before(|verb, _| (verb == "delete").then(|| panic!("nothing is lost")));
    let exists = |owner: &Owner| {
        asked.borrow_mut().push(owner.key.clone());
        Ok(true)
    };
    let ownership = Ownership::new();
    garbage_collect(&*world.pods, &POD, &Query::all(), OwnedBy::Marks(&ownership), &MODEL, exists).unwrap();
    assert_eq!(asked.into_inner(), [key("one"), key("two")]);
}

/// They change in several ways between the check and the deletion.
#[test]
fn changed_objects_are_not_deleted() {
    type Change = fn(&Api<DynamicObject>);
    let changes: [(&str, Change); 2] = [
        ("adopted anew", |pods| {
            let mut pod = pods.get(&key("a")).unwrap();
            Ownership::new().unmark(&mut pod);
            Ownership::new().mark(&ObjectRef::new(&MODEL, &key("lives")), &mut pod).unwrap();
            pods.update(&pod).unwrap();
        }),
        ("created anew", |pods| {
            let pod = pods.get(&key("a")).unwrap();
            pods.delete(&key("a"), &DeleteOptions::default()).unwrap();
            let mut anew = DynamicObject::new(&POD, "a", "a");
            anew.meta_mut().labels = pod.meta().labels.clone();
            anew.meta_mut().annotations = pod.meta().annotations.clone();
            pods.create(&anew).unwrap();
        }),
    ];
    for (case, change) in changes {
        let world = world();
        world.marked("a", &MODEL, "gone");
        world.marked("b", &MODEL, "gone");
        let pods = world.pods();
        world.pods.before(move |verb, object| {
            if verb == "delete" && *object.key() == key("a") {
                change(&pods);
            }
            None
        });
        let collected = world.collect_marked();
        assert_eq!(collected.deleted, [key("b")], "{case}");
        assert!(collected.failed.len() == 1 && collected.failed[0].is_conflict(), "{case}: {:?}", collected.failed);
        assert_eq!(world.left(), ["a"], "{case}");
    }
}

#[test]
fn one_failure_does_not_stop_the_others() {
    let world = world();
    for name in ["a", "b", "c", "d"] {
        world.marked(name, &MODEL, "gone");
    }
    let pods = world.pods();
    world.pods.before(move |verb, object| match (verb, object.key().name()) {
        ("delete", "a") => Some(unreachable(object)),
        ("delete", "c") => {
            pods.purge(object.key()).unwrap();
            None
        }
        _ => None,
    });
    let collected = world.collect_marked();
    assert_eq!(collected.deleted, [key("b"), key("d")]);
    assert!(
        matches!(&collected.failed[..], [error] if error.is_transport() && *error.object().key() == key("a")),
        "{:?}",
        collected.failed
    );
    assert_eq!(world.left(), ["a"]);
}

#[test]
fn objects_being_deleted_are_left_alone() {
    let world = world();
    let mut pod = world.marked("a", &MODEL, "gone");
    pod.meta_mut().finalizers = vec!["example.com/x".into()];
    world.pods().update(&pod).unwrap();
    assert_eq!(world.collect_marked().deleted, [key("a")]);
    assert_eq!(world.left(), ["a"], "held by its finalizer");
    world.pods.writes();
    assert_eq!(world.collect_marked().deleted, []);
    assert_eq!(world.pods.writes(), [""; 0]);
}

/// Some clients return fields that are present but empty.
#[test]
fn empty_metadata_is_read_and_invalid_metadata_is_an_error() {
    let world = world();
    world.marked("a", &MODEL, "gone");
    world.marked("b", &MODEL, "gone");
    world.pods.on_list(|list| {
        for item in &mut list.items {
            let mut pod = item.to_value();
            let wrong = pod["metadata"]["name"] == "b";
            pod["metadata"]["finalizers"] = if wrong { json!("none") } else { json!(null) };
            *item = pod.into();
        }
    });
    let collected = world.collect_marked();
    assert_eq!(collected.deleted, [key("a")]);
    assert!(collected.failed.len() == 1 && collected.failed[0].is_invalid(), "{:?}", collected.failed);
    assert_eq!(collected.failed[0].object(), &ObjectRef::new(&POD, &key("b")));
}
