//! The deletion of dependents: in the foreground, in the background, and not at all.

use serde_json::{Value, json};

use super::fixture::{CaseResult, InPart, Refusal, TestedClient, held_back, holds, same};
use super::objects::{
    A, WIDGET, ZONE, brief, held, is_deleting, meta, owned_by, owner, version, widget, with, without, zone,
};
use homeostat_objects::{DeleteOptions, ObjectKey, Propagation, Query, WatchEvent};

/// Returns a widget that blocks the deletion of its owner, optionally with a finalizer.
fn blocking(name: &str, owner: &Value, has_finalizer: bool) -> Value {
    let object = block(owned_by(name, &[owner]));
    if has_finalizer { held(object) } else { object }
}

fn block(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    object
}

pub(super) fn in_the_foreground_the_owner_goes_last(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(blocking("b", &a, false))?;
    let last = client.create(blocking("c", &a, false))?;
    client.create(blocking("d", &b, false))?;
    let watch = client.watch(&Query::all(), Some(version(&last)))?;
    client.delete_in("a", Propagation::Foreground)?;
    for name in ["a", "b", "c", "d"] {
        client.vanishes(name)?;
    }
    client.create(widget("z"))?;
    let watch: Vec<_> =
        watch.changes_until("z")?.iter().map(brief).filter(|watch| watch.starts_with("Deleted")).collect();
    same("the count of deletions", watch.len(), 4)?;
    same("the last deletion", watch.last().map(String::as_str), Some("Deleted default/a"))
}

pub(super) fn in_the_foreground_the_owner_waits_for_what_blocks(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    for (name, held) in [("b", true), ("c", true), ("d", false)] {
        client.create(blocking(name, &a, held))?;
    }
    client.delete_in("a", Propagation::Foreground)?;
    for name in ["b", "c"] {
        client.is_deleted_soon(name)?;
    }
    client.vanishes("d")?;
    holds("the owner exists and is deleting", is_deleting(&client.get("a")?))?;
    let stays = client.refused(Refusal::AlreadyExists, A, || client.create(widget("a")));
    stays?;
    client.release("b")?;
    client.vanishes("b")?;
    holds("the owner waits for the other dependent", is_deleting(&client.get("a")?))?;
    client.release("c")?;
    client.vanishes("c")?;
    client.vanishes("a")
}

pub(super) fn in_the_foreground_the_owner_waits_for_nothing_else(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(held(owned_by("b", &[&a])))?;
    client.create(blocking("c", &a, false))?;
    client.delete_in("a", Propagation::Foreground)?;
    client.vanishes("c")?;
    client.vanishes("a")?;
    client.is_deleted_soon("b")?;
    same("the uid of the object with a finalizer", meta(&client.get("b")?, "uid"), meta(&b, "uid"))
}

pub(super) fn in_the_foreground_an_owner_without_any_goes_at_once(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    client.delete_in("a", Propagation::Foreground)?;
    client.vanishes("a")
}

pub(super) fn in_the_foreground_finalizers_hold_the_owner_too(client: &TestedClient) -> CaseResult {
    let a = client.create(held(widget("a")))?;
    client.create(blocking("b", &a, false))?;
    client.delete_in("a", Propagation::Foreground)?;
    client.vanishes("b")?;
    let left = |a: Option<&Value>| a.is_some_and(|a| a["metadata"]["finalizers"] == json!(["example.com/a"]));
    client.becomes("a", left)?;
    client.release("a")?;
    client.vanishes("a")
}

pub(super) fn in_the_foreground_what_has_another_owner_stays(client: &TestedClient) -> CaseResult {
    let (a, c) = (client.create(widget("a"))?, client.create(widget("c"))?);
    let b = client.create(block(owned_by("b", &[&a, &c])))?;
    client.create(blocking("d", &a, false))?;
    client.delete_in("a", Propagation::Foreground)?;
    client.vanishes("d")?;
    client.vanishes("a")?;
    let left = client.get("b")?;
    same("the remaining objects", (meta(&left, "uid"), meta(&left, "deletionTimestamp")), (meta(&b, "uid"), ""))?;
    client.delete("c")?;
    client.vanishes("b")
}

pub(super) fn in_the_foreground_after_a_deletion_in_the_background(client: &TestedClient) -> CaseResult {
    let a = client.create(held(widget("a")))?;
    client.create(blocking("b", &a, false))?;
    let deleting = client.begin_deletion("a")?;
    let again = held_back(client.delete_in("a", Propagation::Foreground)?)?;
    let time = meta(&deleting, "deletionTimestamp");
    same("deletionTimestamp", meta(&again, "deletionTimestamp"), time)?;
    client.vanishes("b")?;
    client.becomes("a", |a| a.is_some_and(|a| a["metadata"]["finalizers"] == json!(["example.com/a"])))
}

/// Two deletions. The second one counts.
pub(super) fn in_the_background_after_a_deletion_in_the_foreground(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    client.create(blocking("b", &a, true))?;
    let waiting = held_back(client.delete_in("a", Propagation::Foreground)?)?;
    holds("the owner waits", is_deleting(&waiting))?;
    client.is_deleted_soon("b")?;
    client.delete_in("a", Propagation::Background)?;
    client.vanishes("a")?;
    holds("the dependent has a finalizer and stays", is_deleting(&client.get("b")?))
}

/// An object may have the finalizers of the garbage collector from its creation.
pub(super) fn a_deletion_replaces_the_finalizers_for_dependents(client: &TestedClient) -> CaseResult {
    for finalizer in ["foregroundDeletion", "orphan"] {
        for propagation in [Propagation::Foreground, Propagation::Background] {
            let what = format!("{propagation:?} deletion of an object with the finalizer {finalizer}");
            let a = client.create(with(widget("a"), "/metadata/finalizers", json!([finalizer])))?;
            client.create(blocking("b", &a, false))?;
            client.delete_in("a", propagation)?;
            client.vanishes("b").in_part(&what)?;
            client.vanishes("a").in_part(&what)?;
        }
    }
    Ok(())
}

/// The choice for an owner applies to everything that it owns.
pub(super) fn in_the_foreground_the_finalizers_of_dependents_are_replaced(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(with(blocking("b", &a, false), "/metadata/finalizers", json!(["orphan"])))?;
    client.create(blocking("c", &b, false))?;
    client.delete_in("a", Propagation::Foreground)?;
    for name in ["c", "b", "a"] {
        client.vanishes(name)?;
    }
    Ok(())
}

pub(super) fn orphans_stay(client: &TestedClient) -> CaseResult {
    let (a, c) = (client.create(widget("a"))?, client.create(widget("c"))?);
    let b = client.create(owned_by("b", &[&a]))?;
    let d = client.create(owned_by("d", &[&a, &c]))?;
    client.create(owned_by("e", &[&b]))?;
    let watch = client.watch(&Query::all(), Some(&client.version()?))?;
    client.delete_in("a", Propagation::Orphan)?;
    client.vanishes("a")?;
    let free =
        |b: Option<&Value>| b.is_some_and(|b| b["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
    client.becomes("b", free)?;
    let of_c = json!([owner(&c)]);
    client.becomes("d", |d| d.is_some_and(|d| d["metadata"]["ownerReferences"] == of_c))?;
    for before in [b, d] {
        let name = meta(&before, "name").to_owned();
        let mut now = without(without(client.get(&name)?, "/metadata/ownerReferences"), "/metadata/resourceVersion");
        let then = without(without(before, "/metadata/ownerReferences"), "/metadata/resourceVersion");
        now["metadata"]["ownerReferences"].take();
        same(&format!("the other fields of {name}"), without(now, "/metadata/ownerReferences"), then)?;
    }
    client.create(widget("z"))?;
    let watch = watch.changes_until("z")?;
    let gone: Vec<_> = watch.iter().filter(|watch| matches!(watch, WatchEvent::Deleted(_))).map(brief).collect();
    same("the deleted objects", gone, vec!["Deleted default/a".to_owned()])
}

pub(super) fn orphans_of_an_owner_with_finalizers_stay(client: &TestedClient) -> CaseResult {
    let a = client.create(held(widget("a")))?;
    let b = client.create(owned_by("b", &[&a]))?;
    client.delete_in("a", Propagation::Orphan)?;
    // The client may have added its own finalizer.
    let rest = |a: &Value| {
        a["metadata"]["finalizers"]
            .as_array()
            .map(|all| all.iter().filter(|f| **f != json!("example.com/a")).cloned().collect::<Vec<_>>())
    };
    loop {
        let held = client.get("a")?;
        match client.update(with(held.clone(), "/metadata/finalizers", json!(rest(&held)))) {
            Err(error) if error.is_conflict() => {}
            done => break done.map(drop)?,
        }
    }
    client.vanishes("a")?;
    client
        .becomes("b", |b| b.is_some_and(|b| b["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)))?;
    let left = client.get("b")?;
    same("the remaining objects", (meta(&left, "uid"), meta(&left, "deletionTimestamp")), (meta(&b, "uid"), ""))
}

/// The client deletes no dependent on a guess: an owner of an unknown kind may exist elsewhere, and an owner that is
/// named in an unknown version exists.
pub(super) fn owners_of_unknown_kinds_count_as_existing(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let version = with(owner(&a), "/apiVersion", json!(format!("{}/v0alpha1", WIDGET.group())));
    let kind = with(with(owner(&a), "/kind", json!("Gadget")), "/uid", json!(NEVER));
    let group = with(with(owner(&a), "/apiVersion", json!("elsewhere.example.com/v1")), "/uid", json!(NEVER));
    let mut dependents = Vec::new();
    for (name, owner) in [("b", version), ("c", kind), ("d", group)] {
        dependents.push(client.create(with(widget(name), "/metadata/ownerReferences", json!([owner])))?);
    }
    // `z` has an owner that never existed. Its deletion shows that the client has checked the owners.
    let never = with(with(a, "/metadata/uid", json!(NEVER)), "/metadata/name", json!("never"));
    client.create(owned_by("z", &[&never]))?;
    client.vanishes("z")?;
    for before in dependents {
        same("the dependent", client.get(meta(&before, "name"))?, before)?;
    }
    Ok(())
}

/// A uid that no object has.
const NEVER: &str = "6ee5b3a0-8f1f-4f3a-9c5e-2f6c1f3c9d10";

pub(super) fn what_belongs_to_a_deleted_object_is_deleted(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(owned_by("b", &[&a]))?;
    client.create(owned_by("c", &[&a]))?;
    client.create(widget("d"))?;
    let watch = client.watch(&Query::all().field("metadata.name", "b"), Some(version(&b)))?;
    client.delete("a")?;
    for name in ["a", "b", "c"] {
        client.vanishes(name)?;
    }
    watch.expect_changes(&["Deleted default/b"])?;
    holds("an object of no owner stays", client.get("d").is_ok())
}

pub(super) fn what_belongs_to_a_purged_object_is_deleted(client: &TestedClient) -> CaseResult {
    let a = client.create(held(widget("a")))?;
    client.create(owned_by("b", &[&a]))?;
    client.create(held(owned_by("c", &[&a])))?;
    client.needs_purge()?;
    client.purge("a")?;
    client.vanishes("b")?;
    // The purge applies only to the owner, not to its dependents.
    client.is_deleted_soon("c")
}

pub(super) fn what_belongs_to_a_zone_is_deleted(client: &TestedClient) -> CaseResult {
    let zone_a = client.create(zone("a"))?;
    client.create(owned_by("b", &[&zone_a]))?;
    let mut zone_b = zone("b");
    zone_b["metadata"]["ownerReferences"] = json!([owner(&zone_a)]);
    client.create(zone_b)?;
    client.create(with(owned_by("b", &[&zone_a]), "/metadata/namespace", json!("other")))?;
    let watch = client.watch(&Query::all().namespace("other"), Some(&client.version()?))?;
    client.inner.delete(&ZONE, &ObjectKey::cluster("a"), &DeleteOptions::default())?;
    client.vanishes("b")?;
    watch.expect_changes(&["Deleted other/b"]).map(drop)
}

pub(super) fn what_belongs_to_several_goes_with_the_last(client: &TestedClient) -> CaseResult {
    let (a, c) = (client.create(widget("a"))?, client.create(widget("c"))?);
    let b = client.create(owned_by("b", &[&a, &c]))?;
    client.create(owned_by("z", &[&a]))?;
    client.delete("a")?;
    client.vanishes("z")?;
    let left = client.get("b")?;
    same("the remaining objects", (meta(&left, "uid"), meta(&left, "deletionTimestamp")), (meta(&b, "uid"), ""))?;
    let owners = left["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    holds("the owner that exists is still an owner", owners.clone().any(|left| *left == owner(&c)))?;
    client.delete("c")?;
    client.vanishes("b")
}

pub(super) fn what_belongs_to_no_object_is_deleted(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let never = json!({"metadata": {"name": "never", "uid": NEVER}, "kind": "Widget",
        "apiVersion": a["apiVersion"]});
    client.create(owned_by("b", &[&never]))?;
    client.create(owned_by("c", &[&never, &a]))?;
    client.vanishes("b")?;
    holds("a dependent of another owner stays", client.get("c").is_ok())?;
    // The owner was deleted, and a new object has its name.
    client.delete("a")?;
    client.vanishes("c")?;
    let again = client.create(widget("a"))?;
    client.create(owned_by("b", &[&a]))?;
    client.vanishes("b")?;
    same("the new object of the same name", client.get("a")?, again)
}

pub(super) fn what_comes_to_belong_to_no_object_is_deleted(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    client.delete("a")?;
    let b = client.create(widget("b"))?;
    client.update(with(b, "/metadata/ownerReferences", json!([owner(&a)])))?;
    client.vanishes("b")
}

pub(super) fn what_no_longer_belongs_to_it_stays(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(owned_by("b", &[&a]))?;
    client.create(owned_by("z", &[&a]))?;
    let freed = client.update(with(b, "/metadata/ownerReferences", json!([])))?;
    let came = client.create(widget("c"))?;
    client.update(with(came, "/metadata/ownerReferences", json!([owner(&a)])))?;
    client.delete("a")?;
    client.vanishes("z")?;
    client.vanishes("c")?;
    same("the object that has lost its owner", client.get("b")?, freed)
}

pub(super) fn a_chain_of_owners_is_deleted(client: &TestedClient) -> CaseResult {
    let mut last = client.create(widget("n-0"))?;
    for number in 1..=10 {
        last = client.create(owned_by(&format!("n-{number}"), &[&last]))?;
    }
    let watch = client.watch(&Query::all(), Some(version(&last)))?;
    client.delete("n-0")?;
    let changes = watch.changes_until("n-10")?;
    let gone: Vec<_> = changes
        .iter()
        .filter(|change| matches!(change, WatchEvent::Deleted(_)))
        .filter_map(|change| change.object().map(|object| meta(object, "name").to_owned()))
        .collect();
    same("the order of the deletions", gone, (0..=10).map(|number| format!("n-{number}")).collect::<Vec<_>>())
}

pub(super) fn a_circle_of_owners_is_deleted(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(owned_by("b", &[&a]))?;
    client.update(with(a, "/metadata/ownerReferences", json!([owner(&b)])))?;
    client.delete("a")?;
    client.vanishes("a")?;
    client.vanishes("b")
}

pub(super) fn finalizers_hold_what_belongs_to_a_deleted_object(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(held(owned_by("b", &[&a])))?;
    client.create(owned_by("c", &[&b]))?;
    client.delete("a")?;
    client.vanishes("a")?;
    client.is_deleted_soon("b")?;
    holds("the dependent of an object with a finalizer stays", client.get("c").is_ok())?;
    client.release("b")?;
    client.vanishes("b")?;
    client.vanishes("c")
}
