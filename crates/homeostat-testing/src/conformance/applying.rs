//! `apply`: fields and their owners.

use serde_json::{Value, json};

use super::fixture::{CaseResult, Refusal, TestedClient, failed, holds, same};
use super::objects::{A, meta, owner, version, widget, with, without, zone};
use homeostat_objects::FieldOwner;

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

/// Fails unless the spec is as expected.
#[track_caller]
fn spec(what: &str, object: &Value, expected: &Value) -> CaseResult {
    same(what, &object["spec"], expected)
}

/// Fails unless `apply` returns a conflict that names an owner and a field.
#[track_caller]
fn contested(client: &TestedClient, object: Value, by: &FieldOwner, with: &str, field: &str) -> CaseResult {
    let error = client.refused(Refusal::Conflict, A, || client.apply(object, by))?;
    let reason = error.reason();
    holds(&format!("{reason:?} names {with}"), reason.contains(with))?;
    holds(&format!("{reason:?} names {field}"), reason.contains(field))
}

pub(super) fn apply_creates(client: &TestedClient) -> CaseResult {
    let said = with(a(json!({"size": 2})), "/metadata/labels/app", json!("web"));
    let created = client.apply(with(said, "/status/ready", json!(true)), &one())?;
    spec("spec", &created, &json!({"size": 2}))?;
    same("labels", &created["metadata"]["labels"], &json!({"app": "web"}))?;
    same("generation", &created["metadata"]["generation"], &json!(1))?;
    same("status", created.get("status"), None)?;
    holds("the object has a uid and a version", !meta(&created, "uid").is_empty() && !version(&created).is_empty())?;
    same("the stored object", client.get("a")?, created)?;
    same("a zone", meta(&client.apply(zone("a"), &one())?, "name"), "a")
}

pub(super) fn apply_changes_its_fields(client: &TestedClient) -> CaseResult {
    let created = client.create(with(a(json!({"size": 1, "other": 1})), "/data", json!("x")))?;
    let applied = client.apply(a(json!({"size": 2, "new": {"deep": 3}})), &one().force())?;
    spec("spec", &applied, &json!({"size": 2, "other": 1, "new": {"deep": 3}}))?;
    same("a field that is not applied", &applied["data"], &json!("x"))?;
    same("the uid", meta(&applied, "uid"), meta(&created, "uid"))?;
    same("generation", &applied["metadata"]["generation"], &json!(2))?;
    let applied = client.apply(a(json!({"size": 3, "new": {"deep": 3}})), &one())?;
    spec("spec", &applied, &json!({"size": 3, "other": 1, "new": {"deep": 3}}))?;
    same("the stored object", client.get("a")?, applied)
}

pub(super) fn apply_removes_what_it_no_longer_has(client: &TestedClient) -> CaseResult {
    client.create(a(json!({"mine": 0})))?;
    let said = with(
        with(a(json!({"x": 1, "y": {"z": 2, "w": 3}})), "/metadata/labels", json!({"a": "1", "b": "2"})),
        "/data",
        json!("d"),
    );
    client.apply(said, &one())?;
    let said = with(a(json!({"y": {"w": 3}})), "/metadata/labels", json!({"b": "2"}));
    let applied = client.apply(said, &one())?;
    spec("spec", &applied, &json!({"mine": 0, "y": {"w": 3}}))?;
    same("labels", &applied["metadata"]["labels"], &json!({"b": "2"}))?;
    same("data", applied.get("data"), None)?;
    same("the stored object", client.get("a")?, applied)
}

pub(super) fn apply_against_another_owner_is_a_conflict(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"size": 1, "deep": {"er": 1}})), &one())?;
    contested(client, a(json!({"size": 2})), &two(), "owner-one", "spec.size")?;
    contested(client, a(json!({"deep": {"er": 2}, "new": 1})), &two(), "owner-one", "spec.deep.er")?;
    contested(client, a(json!({"deep": 7})), &two(), "owner-one", "spec.deep")?;
    let said = with(a(json!({"x": 1})), "/metadata/labels/app", json!("web"));
    client.apply(said, &two())?;
    let said = with(a(json!({"size": 1, "deep": {"er": 1}})), "/metadata/labels/app", json!("db"));
    contested(client, said, &one(), "owner-two", "metadata.labels.app")?;
    // The owner of a field may change it.
    let applied = client.apply(a(json!({"size": 2, "deep": {"er": 2}})), &one())?;
    spec("spec", &applied, &json!({"size": 2, "deep": {"er": 2}, "x": 1}))
}

pub(super) fn apply_of_the_same_value_shares_it(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"size": 1, "x": 1})), &one())?;
    client.apply(a(json!({"size": 1, "y": 1})), &two())?;
    contested(client, a(json!({"size": 2, "x": 1})), &one(), "owner-two", "spec.size")?;
    let applied = client.apply(a(json!({"x": 1})), &one())?;
    spec("after one gives the field up", &applied, &json!({"size": 1, "x": 1, "y": 1}))?;
    let applied = client.apply(a(json!({"size": 3, "y": 1})), &two())?;
    spec("after two changes the field", &applied, &json!({"size": 3, "x": 1, "y": 1}))?;
    let applied = client.apply(a(json!({"y": 1})), &two())?;
    spec("after both give the field up", &applied, &json!({"x": 1, "y": 1}))
}

pub(super) fn apply_with_force_takes_fields(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"size": 1, "x": 1})), &one())?;
    let taken = client.apply(a(json!({"size": 2})), &two().force())?;
    spec("spec", &taken, &json!({"size": 2, "x": 1}))?;
    contested(client, a(json!({"size": 1, "x": 1})), &one(), "owner-two", "spec.size")?;
    let left = client.apply(a(json!({"x": 1})), &one())?;
    spec("after one gives up a lost field", &left, &json!({"size": 2, "x": 1}))?;
    let gone = client.apply(a(json!({})), &two())?;
    spec("after two gives up its field", &gone, &json!({"x": 1}))
}

pub(super) fn apply_owns_arrays_as_a_whole(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"list": [1, {"x": 1}], "x": 1})), &one())?;
    let applied = client.apply(a(json!({"list": [2], "x": 1})), &one())?;
    spec("a replaced array", &applied, &json!({"list": [2], "x": 1}))?;
    contested(client, a(json!({"list": [2, 3]})), &two(), "owner-one", "spec.list")?;
    contested(client, a(json!({"list": []})), &two(), "owner-one", "spec.list")?;
    client.apply(a(json!({"list": [2]})), &two())?;
    let applied = client.apply(a(json!({"list": [3]})), &two().force())?;
    spec("a forced array", &applied, &json!({"list": [3], "x": 1}))?;
    spec("a removed array", &client.apply(a(json!({})), &two())?, &json!({"x": 1}))
}

/// Several owners can have fields in one object, and an owner can own an empty object.
pub(super) fn apply_of_an_empty_object_leaves_place_for_others(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"empty": {}, "mine": {"x": 1}})), &one())?;
    let both = json!({"empty": {"y": 2}, "mine": {"x": 1}});
    spec(
        "after two writes into the empty object",
        &client.apply(a(json!({"empty": {"y": 2}, "mine": {}})), &two())?,
        &both,
    )?;
    spec("after one applies again", &client.apply(a(json!({"empty": {}, "mine": {"x": 1}})), &one())?, &both)?;
    contested(client, a(json!({"mine": 1})), &two(), "owner-one", "spec.mine")
}

/// If another method wrote a field, an apply without force either succeeds or is a conflict. With force it succeeds.
pub(super) fn apply_with_force_wins_over_other_writers(client: &TestedClient) -> CaseResult {
    let said = a(json!({"size": 1}));
    client.apply(said.clone(), &one())?;
    let updated = client.update(with(client.get("a")?, "/spec/size", json!(5)))?;
    spec("the object after an update", &updated, &json!({"size": 5}))?;
    match client.apply(said.clone(), &one()) {
        Ok(applied) => spec("after applying again", &applied, &json!({"size": 1}))?,
        Err(error) => {
            same("the kind of the error", Refusal::of(&error), Refusal::Conflict)?;
            same("the object after a conflict", client.get("a")?, updated)?;
        }
    }
    spec("after applying by force", &client.apply(said.clone(), &one().force())?, &json!({"size": 1}))?;
    client.merge("a", json!({"spec": {"size": null, "more": 1}}))?;
    spec("after a patch", &client.apply(said, &one().force())?, &json!({"size": 1, "more": 1}))
}

/// A write by another method takes a field from its owners.
pub(super) fn apply_leaves_alone_what_others_have_written_since(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"size": 1, "x": 1, "mine": 1})), &one())?;
    client.update(with(client.get("a")?, "/spec/size", json!(5)))?;
    client.merge("a", json!({"spec": {"x": 2}}))?;
    let applied = client.apply(a(json!({})), &one())?;
    spec("fields that others wrote", &applied, &json!({"size": 5, "x": 2}))?;

    client.apply(a(json!({"new": 1})), &one())?;
    client.merge("a", json!({"spec": {"new": 2}}))?;
    same("the field that both applied", &client.apply(a(json!({"new": 2})), &two())?["spec"]["new"], &json!(2))?;
    contested(client, a(json!({"new": 1})), &one(), "owner-two", "spec.new")
}

pub(super) fn apply_to_a_new_object_of_the_name_forgets_owners(client: &TestedClient) -> CaseResult {
    client.apply(a(json!({"size": 1, "old": 1})), &one())?;
    client.delete("a")?;
    client.create(a(json!({"size": 2, "old": 2})))?;
    spec("no conflict", &client.apply(a(json!({"size": 3})), &two().force())?, &json!({"size": 3, "old": 2}))?;
    spec("nothing to remove", &client.apply(a(json!({"x": 1})), &one())?, &json!({"size": 3, "old": 2, "x": 1}))
}

/// The apply was meant for the deleted object, so it must not create a new object with that name.
pub(super) fn apply_of_the_uid_of_a_gone_object_is_a_conflict(client: &TestedClient) -> CaseResult {
    let gone = client.create(a(json!({})))?;
    client.delete("a")?;
    let said = with(a(json!({"size": 2})), "/metadata/uid", json!(meta(&gone, "uid")));
    for by in [one(), one().force()] {
        client.refused(Refusal::Conflict, A, || client.apply(said.clone(), &by))?;
    }
    same("the existing objects", client.all()?.len(), 0)
}

pub(super) fn apply_without_a_name_is_invalid(client: &TestedClient) -> CaseResult {
    let said = without(a(json!({})), "/metadata/name");
    for said in [said.clone(), with(said, "/metadata/generateName", json!("a-"))] {
        match client.apply(said, &one()) {
            Err(error) if error.is_invalid() => {
                let is_named = error.causes().iter().any(|cause| cause.field == "metadata.name");
                holds(&format!("{error} names the field"), is_named)?;
            }
            other => return Err(failed(format_args!("expected Invalid: {other:?}"))),
        }
    }
    same("the stored object", client.all()?.len(), 0)
}

/// Each finalizer and each owner reference has its own owners.
pub(super) fn apply_owns_finalizers_and_owners_one_by_one(client: &TestedClient) -> CaseResult {
    let (p, q) = (client.create(widget("p"))?, client.create(widget("q"))?);
    let said = |finalizer: &str, parent: &Value| {
        let said = with(a(json!({})), "/metadata/finalizers", json!([finalizer]));
        with(said, "/metadata/ownerReferences", json!([owner(parent)]))
    };
    client.apply(said("example.com/a", &p), &one())?;
    let both = client.apply(said("example.com/b", &q), &two())?;
    same("finalizers of both", &both["metadata"]["finalizers"], &json!(["example.com/a", "example.com/b"]))?;
    same("owners of both", &both["metadata"]["ownerReferences"], &json!([owner(&p), owner(&q)]))?;
    let left = client.apply(a(json!({})), &one())?;
    same("finalizers after one gives its own up", &left["metadata"]["finalizers"], &json!(["example.com/b"]))?;
    same("owners after one gives its own up", &left["metadata"]["ownerReferences"], &json!([owner(&q)]))?;
    let bare = client.apply(a(json!({})), &two())?;
    same("finalizers after two gives its own up", bare["metadata"].get("finalizers"), None)?;
    same("owners after two gives its own up", bare["metadata"].get("ownerReferences"), None)
}

pub(super) fn apply_of_finalizers_and_owners(client: &TestedClient) -> CaseResult {
    let parent = client.create(widget("parent"))?;
    let said = with(a(json!({})), "/metadata/finalizers", json!(["example.com/a"]));
    let applied = client.apply(with(said.clone(), "/metadata/ownerReferences", json!([owner(&parent)])), &one())?;
    same("owners", &applied["metadata"]["ownerReferences"], &json!([owner(&parent)]))?;
    let applied = client.apply(said.clone(), &one())?;
    same("owners", applied["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len), 0)?;
    let deleting = client.begin_deletion("a")?;
    holds("the object has a deletion time", !meta(&deleting, "deletionTimestamp").is_empty())?;
    let more = with(said, "/metadata/finalizers", json!(["example.com/a", "example.com/b"]));
    client.invalid(A, "metadata.finalizers", "example.com/b", || client.apply(more, &one()))?;
    let last = client.apply(a(json!({})), &one())?;
    holds("the last state has a deletion time", !meta(&last, "deletionTimestamp").is_empty())?;
    client.refused(Refusal::NotFound, A, || client.get("a")).map(drop)
}

/// The widget `a` with this status.
fn said(status: Value) -> Value {
    with(a(json!({"size": 9})), "/status", status)
}

/// An owner that applies the status. Old servers do not distinguish it from an owner of the same name that applies
/// objects.
fn of_status(name: &str) -> FieldOwner {
    FieldOwner::new(format!("status-{name}")).status()
}

pub(super) fn apply_of_the_status_leaves_the_rest(client: &TestedClient) -> CaseResult {
    let by = of_status("one");
    client.refused(Refusal::NotFound, A, || client.apply(said(json!({"ready": true})), &by))?;
    let created = client.create(with(a(json!({"size": 1})), "/metadata/labels/app", json!("web")))?;
    let fields = with(said(json!({"ready": true, "seen": [1]})), "/metadata/labels", json!({"app": "db", "x": "y"}));
    // Old servers look for conflicts in fields that they do not write.
    let applied = client.apply(fields.clone(), &by.clone().force())?;
    same("the status", &applied["status"], &json!({"ready": true, "seen": [1]}))?;
    for field in ["/spec", "/metadata/labels", "/metadata/generation", "/metadata/uid"] {
        same(field, applied.pointer(field), created.pointer(field))?;
    }
    holds("the version has changed", version(&applied) != version(&created))?;
    same("applied again", &client.apply(fields, &by.clone().force())?, &applied)?;
    same("the stored object", client.get("a")?, applied)?;
    let old = with(said(json!({"ready": false})), "/metadata/resourceVersion", json!(version(&created)));
    client.refused(Refusal::Conflict, A, || client.apply(old, &by.force())).map(drop)
}

/// Owners of the status conflict with each other, and lose their fields one by one.
pub(super) fn apply_of_the_status_has_its_own_owners(client: &TestedClient) -> CaseResult {
    let (first, second) = (of_status("one"), of_status("two"));
    let status = |status: Value| with(without(widget("a"), "/spec"), "/status", status);
    client.apply(a(json!({"size": 1, "x": 1})), &one())?;
    let applied = client.apply(status(json!({"ready": true, "count": 1})), &first)?;
    spec("spec", &applied, &json!({"size": 1, "x": 1}))?;
    contested(client, status(json!({"ready": false})), &second, "status-one", "status.ready")?;
    let applied = client.apply(a(json!({"x": 1})), &one())?;
    same("the status after an apply of the object", &applied["status"], &json!({"ready": true, "count": 1}))?;
    spec("the field that is given up", &applied, &json!({"x": 1}))?;
    let applied = client.apply(status(json!({"count": 2})), &first)?;
    same("the status without the field that is given up", &applied["status"], &json!({"count": 2}))?;
    spec("spec after an apply of the status", &applied, &json!({"x": 1}))?;
    let taken = client.apply(status(json!({"count": 3})), &second.clone().force())?;
    same("the status that is taken over", &taken["status"], &json!({"count": 3}))?;
    client.merge_status("a", json!({"status": {"count": 4}}))?;
    let left = client.apply(status(json!({"more": 1})), &second)?;
    same("the field that others wrote", &left["status"], &json!({"count": 4, "more": 1}))
}

/// A server around the client admits the state that an apply stores.
pub(super) fn apply_of_an_admitted_state_stores_it(client: &TestedClient) -> CaseResult {
    let created = client.apply(a(json!({"size": 1})), &one().admitted(a(json!({"size": 1, "more": 1}))))?;
    spec("spec of the new object", &created, &json!({"size": 1, "more": 1}))?;
    same("the stored object", client.get("a")?, created.clone())?;
    let again = || client.apply(a(json!({"size": 2})), &one().admitted(a(json!({"size": 2}))));
    client.refused(Refusal::AlreadyExists, A, again)?;
    let state = with(created.clone(), "/spec", json!({"size": 2, "other": 1}));
    let applied = client.apply(a(json!({"size": 2})), &one().force().admitted(state.clone()))?;
    spec("spec of the changed object", &applied, &json!({"size": 2, "other": 1}))?;
    let outdated = || client.apply(a(json!({"size": 2})), &one().force().admitted(state));
    client.refused(Refusal::Conflict, A, outdated)?;
    let state = with(with(applied, "/spec", json!({"size": 3})), "/status", json!({"ready": true, "seen": 1}));
    let applied = client.apply(said(json!({"ready": true})), &of_status("one").force().admitted(state))?;
    same("the status", &applied["status"], &json!({"ready": true, "seen": 1}))?;
    spec("spec after an apply of the status", &applied, &json!({"size": 2, "other": 1}))?;
    same("the stored object", client.get("a")?, applied)
}
