//! Writes of status and finalizers, and competing writers: cases 20 to 22.

use std::thread;

use homeostat_objects::{
    Client, DeleteOptions, Deletion, Kind, ObjectKey, Patch, PatchTarget, Propagation, SharedObject,
};
use serde_json::{Value, json};

use super::{CONFIG_MAP, Scratch, at, exists};
use crate::kinds::{self, definition};
use crate::until::within;

const GADGET: Kind = Kind::namespaced("cases.example.com", "v1", "Gadget");

#[test]
fn case_20_a_status_leaves_the_generation_and_needs_the_current_version() {
    let scratch = Scratch::new("case-20");
    let client = &scratch.client;
    kinds::define(client, &definition(&GADGET));
    let gadget = json!({
        "apiVersion": "cases.example.com/v1", "kind": "Gadget",
        "metadata": {"namespace": scratch.namespace, "name": "a"}, "spec": {"size": 1}, "status": {"ready": false},
    });
    let created = client.create(&GADGET, gadget).unwrap();
    assert_eq!((at(&created, "/metadata/generation"), at(&created, "/status")), (json!(1), Value::Null));
    let status = Patch::Merge(json!({"status": {"ready": true}, "spec": {"size": 2}}));
    let patched = client.patch(&GADGET, &scratch.key("a"), &status, PatchTarget::Status).unwrap();
    assert_eq!((at(&patched, "/metadata/generation"), at(&patched, "/spec/size")), (json!(1), json!(1)));
    assert_eq!(at(&patched, "/status/ready"), json!(true));
    let mut stale = created.to_value();
    stale["status"] = json!({"ready": "stale"});
    assert!(client.update_status(&GADGET, stale).unwrap_err().is_conflict());
    let resized = client
        .patch(&GADGET, &scratch.key("a"), &Patch::Merge(json!({"spec": {"size": 3}})), PatchTarget::Object)
        .unwrap();
    assert_eq!((at(&resized, "/metadata/generation"), at(&resized, "/status/ready")), (json!(2), json!(true)));
}

/// Creates an owner with a finalizer, and a dependent that blocks the owner's foreground deletion.
fn family(scratch: &Scratch, name: &str) -> (ObjectKey, ObjectKey) {
    let mut owner = scratch.map(&format!("{name}-owner"));
    owner["metadata"]["finalizers"] = json!(["example.com/held"]);
    let owner = scratch.client.create(&CONFIG_MAP, owner).unwrap();
    let mut child = scratch.map(&format!("{name}-child"));
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name(), "uid": owner.uid(), "blockOwnerDeletion": true,
    }]);
    child["metadata"]["finalizers"] = json!(["example.com/held"]);
    let child = scratch.client.create(&CONFIG_MAP, child).unwrap();
    (owner.key(), child.key())
}

fn release(scratch: &Scratch, key: &ObjectKey) {
    let finalizers = at(&scratch.client.get(&CONFIG_MAP, key).unwrap(), "/metadata/finalizers");
    let kept: Vec<_> = finalizers.as_array().into_iter().flatten().filter(|name| *name != "example.com/held").collect();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": kept}}));
    scratch.client.patch(&CONFIG_MAP, key, &patch, PatchTarget::Object).unwrap();
}

fn waits_for(what: &str, holds: impl Fn() -> bool) {
    within(super::PATIENCE, what, || holds().then_some(()));
}

#[test]
fn case_21_in_the_foreground_the_owner_waits_for_its_dependent() {
    let scratch = Scratch::new("case-21-foreground");
    let client = &scratch.client;
    let (owner, child) = family(&scratch, "a");
    let foreground = DeleteOptions::default().propagation(Propagation::Foreground);
    assert!(matches!(client.delete(&CONFIG_MAP, &owner, &foreground).unwrap(), Deletion::Deleting(_)));
    let is_deleting =
        |key: &ObjectKey| client.get(&CONFIG_MAP, key).is_ok_and(|object: SharedObject| object.is_deleting());
    waits_for("the dependent is being deleted", || is_deleting(&child));
    release(&scratch, &owner);
    assert!(exists(client, &CONFIG_MAP, &owner), "the dependent blocks its owner");
    release(&scratch, &child);
    waits_for("both are gone", || !exists(client, &CONFIG_MAP, &child) && !exists(client, &CONFIG_MAP, &owner));
}

#[test]
fn case_21_orphans_stay_and_lose_their_reference() {
    let scratch = Scratch::new("case-21-orphan");
    let client = &scratch.client;
    let (owner, child) = family(&scratch, "a");
    let orphan = DeleteOptions::default().propagation(Propagation::Orphan);
    client.delete(&CONFIG_MAP, &owner, &orphan).unwrap();
    let references = || at(&client.get(&CONFIG_MAP, &child).unwrap(), "/metadata/ownerReferences");
    waits_for("the dependent has no owner", || references().is_null());
    waits_for("only the finalizer of the test is left", || {
        at(&client.get(&CONFIG_MAP, &owner).unwrap(), "/metadata/finalizers") == json!(["example.com/held"])
    });
    release(&scratch, &owner);
    waits_for("the owner is gone", || !exists(client, &CONFIG_MAP, &owner));
    assert!(!client.get(&CONFIG_MAP, &child).unwrap().is_deleting());
    release(&scratch, &child);
}

#[test]
fn case_22_two_writers_with_many_conflicts_lose_no_update() {
    const WRITES: usize = 1_000;
    let scratch = Scratch::new("case-22");
    let key = scratch.key("counter");
    scratch.client.create(&CONFIG_MAP, scratch.map("counter")).unwrap();
    let count = || {
        let mut conflicts = 0;
        for _ in 0..WRITES {
            loop {
                let mut object = scratch.client.get(&CONFIG_MAP, &key).unwrap().to_value();
                let number: usize = object["data"]["number"].as_str().unwrap().parse().unwrap();
                object["data"]["number"] = json!((number + 1).to_string());
                match scratch.client.update(&CONFIG_MAP, object) {
                    Ok(_) => break,
                    Err(error) if error.is_conflict() => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        conflicts
    };
    let conflicts: usize = thread::scope(|scope| {
        let writers = [scope.spawn(count), scope.spawn(count)];
        writers.map(|writer| writer.join().unwrap()).iter().sum()
    });
    let counted = scratch.client.get(&CONFIG_MAP, &key).unwrap();
    assert_eq!(at(&counted, "/data/number"), json!((2 * WRITES).to_string()));
    assert!(conflicts > 0, "the writers never met");
    println!("{} updates, {conflicts} conflicts", 2 * WRITES);
}
