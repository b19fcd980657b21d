//! Deletions in the foreground, and without what belongs to the object.

use serde_json::{Value, json};

use super::fixture::{Outcome, Refusal, Subject, brief, holds, meta, owner, same, version, widget, with, without};
use super::owners::of;
use crate::objects::{DeleteOptions, Propagation, Query, WatchEvent};

const A: &str = "Widget default/a";

fn propagation(propagation: Propagation) -> DeleteOptions {
    DeleteOptions::default().propagation(propagation)
}

fn is_deleting(object: Option<&Value>) -> bool {
    object.is_some_and(|object| !meta(object, "deletionTimestamp").is_empty())
}

/// A widget that belongs to this one, and blocks its deletion; perhaps with a finalizer.
fn blocking(name: &str, owner: &Value, held: bool) -> Value {
    let object =
        with(of(name, &[owner]), "/metadata/finalizers", if held { json!(["example.com/x"]) } else { json!([]) });
    block(object)
}

fn block(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    object
}

pub(super) fn in_the_foreground_the_owner_goes_last(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let b = subject.create(blocking("b", &a, false))?;
    let last = subject.create(blocking("c", &a, false))?;
    subject.create(blocking("d", &b, false))?;
    let told = subject.watch(&Query::all(), Some(version(&last)))?;
    let state = subject.delete_with("a", &propagation(Propagation::Foreground))?;
    holds("its last state has the time of its deletion", is_deleting(Some(&state)))?;
    for name in ["a", "b", "c", "d"] {
        subject.vanishes(name)?;
    }
    subject.create(widget("z"))?;
    let told: Vec<_> = told.changes_until("z")?.iter().map(brief).filter(|told| told.starts_with("Deleted")).collect();
    same("how many are deleted", told.len(), 4)?;
    same("the last that is deleted", told.last().map(String::as_str), Some("Deleted default/a"))
}

pub(super) fn in_the_foreground_the_owner_waits_for_what_blocks(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    for (name, held) in [("b", true), ("c", true), ("d", false)] {
        subject.create(blocking(name, &a, held))?;
    }
    subject.delete_with("a", &propagation(Propagation::Foreground))?;
    for name in ["b", "c"] {
        subject.becomes(name, is_deleting)?;
    }
    subject.vanishes("d")?;
    holds("it is there, and deleting", is_deleting(Some(&subject.get("a")?)))?;
    let stays = subject.refused(Refusal::AlreadyExists, A, || subject.create(widget("a")));
    stays?;
    subject.merge("b", json!({"metadata": {"finalizers": null}}))?;
    subject.vanishes("b")?;
    holds("it waits for the other one", is_deleting(Some(&subject.get("a")?)))?;
    subject.merge("c", json!({"metadata": {"finalizers": null}}))?;
    subject.vanishes("c")?;
    subject.vanishes("a")
}

pub(super) fn in_the_foreground_the_owner_waits_for_nothing_else(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(widget("a"))?;
    let b = subject.create(with(of("b", &[&a]), "/metadata/finalizers", json!(["example.com/x"])))?;
    subject.create(blocking("c", &a, false))?;
    subject.delete_with("a", &propagation(Propagation::Foreground))?;
    subject.vanishes("c")?;
    subject.vanishes("a")?;
    subject.becomes("b", is_deleting)?;
    same("what is held", meta(&subject.get("b")?, "uid"), meta(&b, "uid"))
}

pub(super) fn in_the_foreground_an_owner_without_any_goes_at_once(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    subject.create(widget("a"))?;
    subject.delete_with("a", &propagation(Propagation::Foreground))?;
    subject.vanishes("a")
}

pub(super) fn in_the_foreground_finalizers_hold_the_owner_too(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(with(widget("a"), "/metadata/finalizers", json!(["example.com/a"])))?;
    subject.create(blocking("b", &a, false))?;
    subject.delete_with("a", &propagation(Propagation::Foreground))?;
    subject.vanishes("b")?;
    let left = |a: Option<&Value>| a.is_some_and(|a| a["metadata"]["finalizers"] == json!(["example.com/a"]));
    subject.becomes("a", left)?;
    subject.merge("a", json!({"metadata": {"finalizers": null}}))?;
    subject.vanishes("a")
}

pub(super) fn in_the_foreground_what_has_another_owner_stays(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let (a, c) = (subject.create(widget("a"))?, subject.create(widget("c"))?);
    let b = subject.create(block(of("b", &[&a, &c])))?;
    subject.create(blocking("d", &a, false))?;
    subject.delete_with("a", &propagation(Propagation::Foreground))?;
    subject.vanishes("d")?;
    subject.vanishes("a")?;
    let left = subject.get("b")?;
    same("what is left", (meta(&left, "uid"), meta(&left, "deletionTimestamp")), (meta(&b, "uid"), ""))?;
    subject.delete("c")?;
    subject.vanishes("b")
}

pub(super) fn in_the_foreground_after_a_deletion_in_the_background(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(with(widget("a"), "/metadata/finalizers", json!(["example.com/a"])))?;
    subject.create(blocking("b", &a, false))?;
    let deleting = subject.delete("a")?;
    let again = subject.delete_with("a", &propagation(Propagation::Foreground))?;
    let time = meta(&deleting, "deletionTimestamp");
    same("the time of its deletion", meta(&again, "deletionTimestamp"), time)?;
    subject.vanishes("b")?;
    subject.becomes("a", |a| a.is_some_and(|a| a["metadata"]["finalizers"] == json!(["example.com/a"])))
}

pub(super) fn orphans_stay(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let (a, c) = (subject.create(widget("a"))?, subject.create(widget("c"))?);
    let b = subject.create(of("b", &[&a]))?;
    let d = subject.create(of("d", &[&a, &c]))?;
    subject.create(of("e", &[&b]))?;
    let told = subject.watch(&Query::all(), Some(&subject.version()?))?;
    let state = subject.delete_with("a", &propagation(Propagation::Orphan))?;
    holds("its last state has the time of its deletion", is_deleting(Some(&state)))?;
    subject.vanishes("a")?;
    let free =
        |b: Option<&Value>| b.is_some_and(|b| b["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
    subject.becomes("b", free)?;
    let of_c = json!([owner(&c)]);
    subject.becomes("d", |d| d.is_some_and(|d| d["metadata"]["ownerReferences"] == of_c))?;
    for before in [b, d] {
        let name = meta(&before, "name").to_owned();
        let mut now = without(without(subject.get(&name)?, "/metadata/ownerReferences"), "/metadata/resourceVersion");
        let then = without(without(before, "/metadata/ownerReferences"), "/metadata/resourceVersion");
        now["metadata"]["ownerReferences"].take();
        same(&format!("what else {name} has"), without(now, "/metadata/ownerReferences"), then)?;
    }
    subject.create(widget("z"))?;
    let told = told.changes_until("z")?;
    let gone: Vec<_> = told.iter().filter(|told| matches!(told, WatchEvent::Deleted(_))).map(brief).collect();
    same("what is deleted", gone, vec!["Deleted default/a".to_owned()])
}

pub(super) fn orphans_of_an_owner_with_finalizers_stay(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let a = subject.create(with(widget("a"), "/metadata/finalizers", json!(["example.com/a"])))?;
    let b = subject.create(of("b", &[&a]))?;
    subject.delete_with("a", &propagation(Propagation::Orphan))?;
    // A client may hold it with a finalizer of its own.
    let rest = |a: &Value| {
        a["metadata"]["finalizers"]
            .as_array()
            .map(|all| all.iter().filter(|f| **f != json!("example.com/a")).cloned().collect::<Vec<_>>())
    };
    loop {
        let held = subject.get("a")?;
        match subject.update(with(held.clone(), "/metadata/finalizers", json!(rest(&held)))) {
            Err(error) if error.is_conflict() => {}
            done => break done.map(drop)?,
        }
    }
    subject.vanishes("a")?;
    subject
        .becomes("b", |b| b.is_some_and(|b| b["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)))?;
    let left = subject.get("b")?;
    same("what is left", (meta(&left, "uid"), meta(&left, "deletionTimestamp")), (meta(&b, "uid"), ""))
}
