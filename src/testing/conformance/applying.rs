//! `apply`: fields, and who owns them.

use serde_json::{Value, json};

use super::fixture::{
    Outcome, Refusal, Subject, failed, holds, meta, owner as owner_of, same, version, widget, with, without, zone,
};
use crate::objects::{ClientError, FieldOwner, Query};

const A: &str = "Widget default/a";

fn one() -> FieldOwner {
    FieldOwner::new("owner-one")
}

fn two() -> FieldOwner {
    FieldOwner::new("owner-two")
}

/// The widget `a` with these fields in its spec.
fn a(spec: Value) -> Value {
    with(widget("a"), "/spec", spec)
}

/// Fails unless the fields of the spec are these.
#[track_caller]
fn spec(what: &str, object: &Value, expected: &Value) -> Outcome {
    same(what, &object["spec"], expected)
}

/// Fails unless the call is a conflict that names an owner and a field, and nothing is written.
#[track_caller]
fn contested(subject: &Subject, object: Value, by: &FieldOwner, with: &str, field: &str) -> Outcome {
    let error = subject.refused(Refusal::Conflict, A, || subject.apply(object, by))?;
    let ClientError::Conflict { reason, .. } = error else { return Ok(()) };
    holds(&format!("{reason:?} names {with}"), reason.contains(with))?;
    holds(&format!("{reason:?} names {field}"), reason.contains(field))
}

pub(super) fn apply_creates(subject: &Subject) -> Outcome {
    let said = with(a(json!({"size": 2})), "/metadata/labels/app", json!("web"));
    let created = subject.apply(with(said, "/status/ready", json!(true)), &one())?;
    spec("spec", &created, &json!({"size": 2}))?;
    same("labels", &created["metadata"]["labels"], &json!({"app": "web"}))?;
    same("generation", &created["metadata"]["generation"], &json!(1))?;
    same("status", created.get("status"), None)?;
    holds("it has a uid and a version", !meta(&created, "uid").is_empty() && !version(&created).is_empty())?;
    same("what is kept", subject.get("a")?, created)?;
    same("a zone", meta(&subject.apply(zone("a"), &one())?, "name"), "a")
}

pub(super) fn apply_changes_its_fields(subject: &Subject) -> Outcome {
    let created = subject.create(with(a(json!({"size": 1, "other": 1})), "/data", json!("x")))?;
    let applied = subject.apply(a(json!({"size": 2, "new": {"deep": 3}})), &one())?;
    spec("spec", &applied, &json!({"size": 2, "other": 1, "new": {"deep": 3}}))?;
    same("what it does not name", &applied["data"], &json!("x"))?;
    same("the uid", meta(&applied, "uid"), meta(&created, "uid"))?;
    same("generation", &applied["metadata"]["generation"], &json!(2))?;
    let applied = subject.apply(a(json!({"size": 3, "new": {"deep": 3}})), &one())?;
    spec("spec", &applied, &json!({"size": 3, "other": 1, "new": {"deep": 3}}))?;
    same("what is kept", subject.get("a")?, applied)
}

pub(super) fn apply_removes_what_it_no_longer_has(subject: &Subject) -> Outcome {
    subject.create(a(json!({"mine": 0})))?;
    let said = with(
        with(a(json!({"x": 1, "y": {"z": 2, "w": 3}})), "/metadata/labels", json!({"a": "1", "b": "2"})),
        "/data",
        json!("d"),
    );
    subject.apply(said, &one())?;
    let said = with(a(json!({"y": {"w": 3}})), "/metadata/labels", json!({"b": "2"}));
    let applied = subject.apply(said, &one())?;
    spec("spec", &applied, &json!({"mine": 0, "y": {"w": 3}}))?;
    same("labels", &applied["metadata"]["labels"], &json!({"b": "2"}))?;
    same("data", applied.get("data"), None)?;
    same("what is kept", subject.get("a")?, applied)
}

pub(super) fn apply_of_what_is_there_keeps_the_version(subject: &Subject) -> Outcome {
    let applied = subject.apply(a(json!({"x": 1, "y": [1, {"z": 2}]})), &one())?;
    let told = subject.watch(&Query::all(), Some(version(&applied)))?;
    same("applied again", subject.apply(a(json!({"x": 1, "y": [1, {"z": 2}]})), &one())?, applied.clone())?;
    same("what is kept", subject.get("a")?, applied)?;
    subject.create(widget("b"))?;
    told.tells(&["Added default/b"]).map(drop)
}

pub(super) fn apply_against_another_owner_is_a_conflict(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"size": 1, "deep": {"er": 1}})), &one())?;
    contested(subject, a(json!({"size": 2})), &two(), "owner-one", "spec.size")?;
    contested(subject, a(json!({"deep": {"er": 2}, "new": 1})), &two(), "owner-one", "spec.deep.er")?;
    contested(subject, a(json!({"deep": 7})), &two(), "owner-one", "spec.deep")?;
    let said = with(a(json!({"x": 1})), "/metadata/labels/app", json!("web"));
    subject.apply(said, &two())?;
    let said = with(a(json!({"size": 1, "deep": {"er": 1}})), "/metadata/labels/app", json!("db"));
    contested(subject, said, &one(), "owner-two", "metadata.labels.app")?;
    // The owner itself is in no conflict.
    let applied = subject.apply(a(json!({"size": 2, "deep": {"er": 2}})), &one())?;
    spec("spec", &applied, &json!({"size": 2, "deep": {"er": 2}, "x": 1}))
}

pub(super) fn apply_of_the_same_value_shares_it(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"size": 1, "x": 1})), &one())?;
    subject.apply(a(json!({"size": 1, "y": 1})), &two())?;
    contested(subject, a(json!({"size": 2, "x": 1})), &one(), "owner-two", "spec.size")?;
    let applied = subject.apply(a(json!({"x": 1})), &one())?;
    spec("one has left it to two", &applied, &json!({"size": 1, "x": 1, "y": 1}))?;
    let applied = subject.apply(a(json!({"size": 3, "y": 1})), &two())?;
    spec("two owns it alone", &applied, &json!({"size": 3, "x": 1, "y": 1}))?;
    let applied = subject.apply(a(json!({"y": 1})), &two())?;
    spec("nobody has it", &applied, &json!({"x": 1, "y": 1}))
}

pub(super) fn apply_with_force_takes_fields(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"size": 1, "x": 1})), &one())?;
    let taken = subject.apply(a(json!({"size": 2})), &two().force())?;
    spec("spec", &taken, &json!({"size": 2, "x": 1}))?;
    contested(subject, a(json!({"size": 1, "x": 1})), &one(), "owner-two", "spec.size")?;
    let left = subject.apply(a(json!({"x": 1})), &one())?;
    spec("what one leaves is not one's to remove", &left, &json!({"size": 2, "x": 1}))?;
    let gone = subject.apply(a(json!({})), &two())?;
    spec("what two leaves is", &gone, &json!({"x": 1}))
}

pub(super) fn apply_owns_arrays_as_a_whole(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"list": [1, {"x": 1}]})), &one())?;
    let applied = subject.apply(a(json!({"list": [2]})), &one())?;
    spec("an array is replaced", &applied, &json!({"list": [2]}))?;
    contested(subject, a(json!({"list": [2, 3]})), &two(), "owner-one", "spec.list")?;
    contested(subject, a(json!({"list": []})), &two(), "owner-one", "spec.list")?;
    subject.apply(a(json!({"list": [2]})), &two())?;
    let applied = subject.apply(a(json!({"list": [3]})), &two().force())?;
    spec("an array is taken", &applied, &json!({"list": [3]}))?;
    spec("an array is removed", &subject.apply(a(json!({})), &two())?, &json!({}))
}

/// An object is no value: many have their fields in it, and one may have it empty.
pub(super) fn apply_of_an_empty_object_leaves_place_for_others(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"empty": {}, "mine": {"x": 1}})), &one())?;
    let both = json!({"empty": {"y": 2}, "mine": {"x": 1}});
    spec("two in the empty one", &subject.apply(a(json!({"empty": {"y": 2}, "mine": {}})), &two())?, &both)?;
    spec("one again", &subject.apply(a(json!({"empty": {}, "mine": {"x": 1}})), &one())?, &both)?;
    let applied = subject.apply(a(json!({"mine": {}})), &two())?;
    spec("one keeps it, empty", &applied, &json!({"empty": {}, "mine": {"x": 1}}))?;
    contested(subject, a(json!({"mine": 1})), &two(), "owner-one", "spec.mine")?;
    let applied = subject.apply(a(json!({})), &one())?;
    spec("two keeps the other one, empty", &applied, &json!({"mine": {}}))?;
    subject.merge("a", json!({"spec": {"mine": {"foreign": 1}}}))?;
    spec("what is nobody's stays", &subject.apply(a(json!({})), &two())?, &json!({"mine": {"foreign": 1}}))
}

pub(super) fn apply_has_no_conflict_with_other_writers(subject: &Subject) -> Outcome {
    let said = a(json!({"size": 1}));
    subject.apply(said.clone(), &one())?;
    let updated = subject.update(with(subject.get("a")?, "/spec/size", json!(5)))?;
    spec("an update", &updated, &json!({"size": 5}))?;
    spec("applied again", &subject.apply(said.clone(), &one())?, &json!({"size": 1}))?;
    subject.merge("a", json!({"spec": {"size": null, "more": 1}}))?;
    spec("and after a patch", &subject.apply(said, &one())?, &json!({"size": 1, "more": 1}))
}

/// Who writes a field otherwise takes it from those who have applied it.
pub(super) fn apply_leaves_alone_what_others_have_written_since(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"size": 1, "x": 1, "deep": {"er": 1}, "mine": 1})), &one())?;
    subject.update(with(subject.get("a")?, "/spec/size", json!(5)))?;
    subject.merge("a", json!({"spec": {"x": 2, "deep": {"er": 3}}}))?;
    let applied = subject.apply(a(json!({})), &one())?;
    spec("what others have written is not one's to remove", &applied, &json!({"size": 5, "x": 2, "deep": {"er": 3}}))?;

    subject.apply(a(json!({"new": 1})), &one())?;
    subject.merge("a", json!({"spec": {"new": 2}}))?;
    same("what two shares", &subject.apply(a(json!({"new": 2})), &two())?["spec"]["new"], &json!(2))?;
    contested(subject, a(json!({"new": 1})), &one(), "owner-two", "spec.new")
}

pub(super) fn apply_leaves_the_status(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"x": 1})), &one())?;
    let written = subject.merge_status("a", json!({"status": {"ready": true}}))?;
    let applied = subject.apply(with(a(json!({"x": 1})), "/status/ready", json!(false)), &one())?;
    same("the object", &applied, &written)?;
    let applied = subject.apply(a(json!({"x": 2})), &one())?;
    same("status", &applied["status"], &json!({"ready": true}))
}

pub(super) fn apply_to_a_new_object_of_the_name_forgets_owners(subject: &Subject) -> Outcome {
    subject.apply(a(json!({"size": 1, "old": 1})), &one())?;
    subject.delete("a")?;
    subject.create(a(json!({"size": 2, "old": 2})))?;
    spec("no conflict", &subject.apply(a(json!({"size": 3})), &two())?, &json!({"size": 3, "old": 2}))?;
    spec("nothing to remove", &subject.apply(a(json!({"x": 1})), &one())?, &json!({"size": 3, "old": 2, "x": 1}))
}

pub(super) fn apply_of_a_stale_version_or_another_uid_is_a_conflict(subject: &Subject) -> Outcome {
    let stale = subject.apply(a(json!({"size": 1})), &one())?;
    let current = subject.merge("a", json!({"spec": {"x": 1}}))?;
    let of = |field: &str, value: &str| with(a(json!({"size": 2})), &format!("/metadata/{field}"), json!(value));
    for object in [of("resourceVersion", version(&stale)), of("uid", "another")] {
        subject.refused(Refusal::Conflict, A, || subject.apply(object, &one()))?;
    }
    let applied = subject.apply(of("resourceVersion", version(&current)), &one())?;
    let applied = subject.apply(with(of("uid", meta(&applied, "uid")), "/spec/size", json!(3)), &one())?;
    spec("spec", &applied, &json!({"size": 3, "x": 1}))
}

/// It was meant for an object that is no more, and makes no other of its name.
pub(super) fn apply_of_the_uid_of_a_gone_object_is_a_conflict(subject: &Subject) -> Outcome {
    let gone = subject.create(a(json!({})))?;
    subject.delete("a")?;
    let said = with(a(json!({"size": 2})), "/metadata/uid", json!(meta(&gone, "uid")));
    for by in [one(), one().force()] {
        subject.refused(Refusal::Conflict, A, || subject.apply(said.clone(), &by))?;
    }
    same("what is there", subject.all()?.len(), 0)
}

pub(super) fn apply_without_a_name_is_invalid(subject: &Subject) -> Outcome {
    let said = without(a(json!({})), "/metadata/name");
    for said in [said.clone(), with(said, "/metadata/generateName", json!("a-"))] {
        match subject.apply(said, &one()) {
            Err(ClientError::Invalid { field, .. }) => same("field", field.as_str(), "metadata.name")?,
            other => return Err(failed(format_args!("not refused as invalid: {other:?}"))),
        }
    }
    same("what is kept", subject.all()?.len(), 0)
}

pub(super) fn apply_of_finalizers_and_owners(subject: &Subject) -> Outcome {
    let parent = subject.create(widget("parent"))?;
    let said = with(a(json!({})), "/metadata/finalizers", json!(["example.com/a"]));
    let applied = subject.apply(with(said.clone(), "/metadata/ownerReferences", json!([owner_of(&parent)])), &one())?;
    same("owners", &applied["metadata"]["ownerReferences"], &json!([owner_of(&parent)]))?;
    let applied = subject.apply(said.clone(), &one())?;
    same("owners", applied["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len), 0)?;
    let deleting = subject.delete("a")?;
    holds("it is deleting", !meta(&deleting, "deletionTimestamp").is_empty())?;
    let more = with(said, "/metadata/finalizers", json!(["example.com/a", "example.com/b"]));
    subject.invalid(A, "metadata.finalizers", "example.com/b", || subject.apply(more, &one()))?;
    let last = subject.apply(a(json!({})), &one())?;
    holds("its last state has the time of its deletion", !meta(&last, "deletionTimestamp").is_empty())?;
    subject.refused(Refusal::NotFound, A, || subject.get("a")).map(drop)
}
