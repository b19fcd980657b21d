//! Owners: which there may be, and the deletion of what belongs to them, in the background.

use serde_json::{Value, json};

use super::ZONE;
use super::fixture::{
    Outcome, Subject, holds, meta, owned_answer, owner, same, version, widget, widget_in, with, zone,
};
use crate::objects::{DeleteOptions, ObjectKey, Query, WatchEvent};

const B: &str = "Widget default/b";
const PATH: &str = "metadata.ownerReferences";

/// A widget that belongs to these objects.
pub(super) fn of(name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<_> = owners.iter().map(|object| owner(object)).collect();
    with(widget(name), "/metadata/ownerReferences", json!(owners))
}

pub(super) fn owners_are_kept(subject: &Subject) -> Outcome {
    let a = subject.create(widget("a"))?;
    let zone = subject.create(zone("z"))?;
    let said = of("b", &[&a, &zone]);
    let said = with(said, "/metadata/ownerReferences/0/controller", json!(true));
    let b = subject.create(said.clone())?;
    same("owners", &b["metadata"]["ownerReferences"], &said["metadata"]["ownerReferences"])?;
    same("what is kept", subject.get("b")?, b)
}

pub(super) fn owners_in_another_namespace_are_invalid(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget_in("other", "a"))?;
    subject.invalid(B, PATH, "", || subject.create(of("b", &[&a])))?;
    let b = subject.create(widget("b"))?;
    let said = with(b, "/metadata/ownerReferences", json!([owner(&a)]));
    subject.invalid(B, PATH, "", || subject.update(said))?;
    subject.invalid(B, PATH, "", || subject.merge("b", json!({"metadata": {"ownerReferences": [owner(&a)]}})))
}

pub(super) fn owners_are_one_controller_at_most(subject: &Subject) -> Outcome {
    let (a, c) = (subject.create(widget("a"))?, subject.create(widget("c"))?);
    let managed = |object: &Value| with(owner(object), "/controller", json!(true));
    let two = json!([managed(&a), managed(&c)]);
    let said = with(widget("b"), "/metadata/ownerReferences", two.clone());
    subject.invalid(B, PATH, "", || subject.create(said))?;
    let b = subject.create(with(widget("b"), "/metadata/ownerReferences", json!([managed(&a), owner(&c)])))?;
    subject.invalid(B, PATH, "", || subject.update(with(b, "/metadata/ownerReferences", two.clone())))?;
    subject.invalid(B, PATH, "", || subject.merge("b", json!({"metadata": {"ownerReferences": two}})))
}

pub(super) fn owners_are_named_in_full(subject: &Subject) -> Outcome {
    let a = subject.create(widget("a"))?;
    for field in ["apiVersion", "kind", "name", "uid"] {
        let path = format!("/metadata/ownerReferences/0/{field}");
        let said = with(of("b", &[&a]), "/metadata/ownerReferences", json!([owner(&a)]));
        subject.invalid(B, PATH, "", || subject.create(with(said, &path, json!("")))).map_err(|stop| stop.of(field))?;
    }
    Ok(())
}

/// A version is a way to write an object. Whoever names an owner in another version means the same owner.
pub(super) fn owners_are_found_in_any_version(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let version = format!("{}/v0alpha1", super::WIDGET.group());
    let owner = with(owner(&a), "/apiVersion", json!(version));
    let b = subject.create(with(widget("b"), "/metadata/ownerReferences", json!([owner])))?;
    // What surely goes shows that owners have been looked for.
    let never = with(a, "/metadata/uid", json!("6ee5b3a0-8f1f-4f3a-9c5e-2f6c1f3c9d10"));
    subject.create(of("z", &[&with(never, "/metadata/name", json!("never"))]))?;
    subject.vanishes("z")?;
    same("what belongs to it", subject.get("b")?, b)
}

pub(super) fn what_belongs_to_a_deleted_object_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let b = subject.create(of("b", &[&a]))?;
    subject.create(of("c", &[&a]))?;
    subject.create(widget("d"))?;
    let told = subject.watch(&Query::all().field("metadata.name", "b"), Some(version(&b)))?;
    subject.delete("a")?;
    for name in ["a", "b", "c"] {
        subject.vanishes(name)?;
    }
    let gone = told.tells(&["Deleted default/b"])?;
    let time = gone[0].object().map(|gone| meta(gone, "deletionTimestamp").is_empty());
    same("the last state of what belonged to it is without a time", time, Some(false))?;
    holds("what did not belong to it stays", subject.get("d").is_ok())
}

pub(super) fn what_belongs_to_a_purged_object_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(with(widget("a"), "/metadata/finalizers", json!(["example.com/a"])))?;
    subject.create(of("b", &[&a]))?;
    subject.create(with(of("c", &[&a]), "/metadata/finalizers", json!(["example.com/c"])))?;
    subject.delete_with("a", &DeleteOptions::default().purge())?;
    subject.vanishes("b")?;
    // Only the one that was meant is purged.
    subject.becomes("c", |c| c.is_some_and(|c| !meta(c, "deletionTimestamp").is_empty()))
}

pub(super) fn what_belongs_to_a_zone_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let zone_a = subject.create(zone("a"))?;
    subject.create(of("b", &[&zone_a]))?;
    let mut zone_b = zone("b");
    zone_b["metadata"]["ownerReferences"] = json!([owner(&zone_a)]);
    subject.create(zone_b)?;
    subject.create(with(of("b", &[&zone_a]), "/metadata/namespace", json!("other")))?;
    let told = subject.watch(&Query::all().namespace("other"), Some(&subject.version()?))?;
    owned_answer(subject.client.delete(&ZONE, &ObjectKey::cluster("a"), &DeleteOptions::default()))?;
    subject.vanishes("b")?;
    told.tells(&["Deleted other/b"]).map(drop)
}

pub(super) fn what_belongs_to_several_goes_with_the_last(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let (a, c) = (subject.create(widget("a"))?, subject.create(widget("c"))?);
    let b = subject.create(of("b", &[&a, &c]))?;
    subject.create(of("z", &[&a]))?;
    subject.delete("a")?;
    subject.vanishes("z")?;
    let left = subject.get("b")?;
    same("what is left", (meta(&left, "uid"), meta(&left, "deletionTimestamp")), (meta(&b, "uid"), ""))?;
    let owners = left["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    holds("the owner that is left is among its owners", owners.clone().any(|left| *left == owner(&c)))?;
    subject.delete("c")?;
    subject.vanishes("b")
}

pub(super) fn what_belongs_to_no_object_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let never = json!({"metadata": {"name": "never", "uid": "6ee5b3a0-8f1f-4f3a-9c5e-2f6c1f3c9d10"}, "kind": "Widget",
        "apiVersion": a["apiVersion"]});
    subject.create(of("b", &[&never]))?;
    subject.create(of("c", &[&never, &a]))?;
    subject.vanishes("b")?;
    holds("what has another owner stays", subject.get("c").is_ok())?;
    // An owner that is gone, and another object of its name.
    subject.delete("a")?;
    subject.vanishes("c")?;
    let again = subject.create(widget("a"))?;
    subject.create(of("b", &[&a]))?;
    subject.vanishes("b")?;
    same("the other object of its name", subject.get("a")?, again)
}

pub(super) fn what_comes_to_belong_to_no_object_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    subject.delete("a")?;
    let b = subject.create(widget("b"))?;
    subject.update(with(b, "/metadata/ownerReferences", json!([owner(&a)])))?;
    subject.vanishes("b")
}

pub(super) fn what_no_longer_belongs_to_it_stays(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let b = subject.create(of("b", &[&a]))?;
    subject.create(of("z", &[&a]))?;
    let freed = subject.update(with(b, "/metadata/ownerReferences", json!([])))?;
    let came = subject.create(widget("c"))?;
    subject.update(with(came, "/metadata/ownerReferences", json!([owner(&a)])))?;
    subject.delete("a")?;
    subject.vanishes("z")?;
    subject.vanishes("c")?;
    same("what no longer belongs to it", subject.get("b")?, freed)
}

pub(super) fn a_chain_of_owners_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let mut last = subject.create(widget("n-0"))?;
    for number in 1..=10 {
        last = subject.create(of(&format!("n-{number}"), &[&last]))?;
    }
    let told = subject.watch(&Query::all(), Some(version(&last)))?;
    subject.delete("n-0")?;
    let changes = told.changes_until("n-10")?;
    let gone: Vec<_> = changes
        .iter()
        .filter(|change| matches!(change, WatchEvent::Deleted(_)))
        .filter_map(|change| change.object().map(|object| meta(object, "name").to_owned()))
        .collect();
    same("in the order of the chain", gone, (0..=10).map(|number| format!("n-{number}")).collect::<Vec<_>>())
}

pub(super) fn a_circle_of_owners_is_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let b = subject.create(of("b", &[&a]))?;
    subject.update(with(a, "/metadata/ownerReferences", json!([owner(&b)])))?;
    subject.delete("a")?;
    subject.vanishes("a")?;
    subject.vanishes("b")
}

pub(super) fn finalizers_hold_what_belongs_to_a_deleted_object(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let b = subject.create(with(of("b", &[&a]), "/metadata/finalizers", json!(["example.com/b"])))?;
    subject.create(of("c", &[&b]))?;
    subject.delete("a")?;
    subject.vanishes("a")?;
    subject.becomes("b", |b| b.is_some_and(|b| !meta(b, "deletionTimestamp").is_empty()))?;
    holds("what belongs to what is held stays", subject.get("c").is_ok())?;
    subject.merge("b", json!({"metadata": {"finalizers": null}}))?;
    subject.vanishes("b")?;
    subject.vanishes("c")
}
