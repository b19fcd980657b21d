//! `delete`: finalizers, purges and grace periods.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fixture::{
    CaseResult, InPart, ObjectEvent, Refusal, TestedClient, failed, held_back, holds, owned_answer, same,
};
use super::objects::{A, FINALIZER, WIDGET, ZONE, held, is_deleting, key, meta, version, widget, with, without, zone};
use super::threads::only_one_succeeds;
use homeostat_objects::{DeleteOptions, Deletion, ObjectKey, Patch, PatchTarget, Query, SharedObject, WatchEvent};

pub(super) fn delete_removes(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    let watch = client.watch(&Query::all(), Some(version(&created)))?;
    same("the outcome", client.delete("a")?, Deletion::Gone)?;
    client.refused(Refusal::NotFound, A, || client.get("a"))?;
    same("the listed objects", client.list(&Query::all())?.1.len(), 0)?;
    let WatchEvent::Deleted(last) = watch.change()? else { return Err(failed("the event is not a deletion")) };
    same("deletionTimestamp", last["metadata"].get("deletionTimestamp"), None)?;
    let spec = (&last["spec"], meta(&last, "uid"));
    same("spec and uid of the last state", spec, (&created["spec"], meta(&created, "uid")))?;
    holds("the version has changed", version(&last) != version(&created))
}

/// Deletion times and creation times are read from the same clock.
pub(super) fn delete_sets_a_time_after_that_of_the_creation(client: &TestedClient) -> CaseResult {
    let time = |object: &Value, field: &str| meta(object, field).parse::<Timestamp>().map_err(failed);
    let created = time(&client.create(held(widget("a")))?, "creationTimestamp")?;
    let deleted = time(&client.begin_deletion("a")?, "deletionTimestamp")?;
    let next = time(&client.create(widget("b"))?, "creationTimestamp")?;
    holds(&format!("{deleted} is between {created} and {next}"), created <= deleted && deleted <= next)
}

pub(super) fn delete_in_no_namespace(client: &TestedClient) -> CaseResult {
    client.create(zone("a"))?;
    client.create(widget("a"))?;
    let deletion = client.inner.delete(&ZONE, &ObjectKey::cluster("a"), &DeleteOptions::default())?;
    holds("the object is gone", deletion.is_gone())?;
    same("the remaining objects", client.all()?.len(), 1)
}

pub(super) fn delete_waits_for_finalizers(client: &TestedClient) -> CaseResult {
    let created = client.create(with(widget("a"), "/metadata/finalizers", json!([FINALIZER, "example.com/b"])))?;
    let watch = client.watch(&Query::all(), Some(version(&created)))?;
    let deleting = client.begin_deletion("a")?;
    holds("the object has a deletion time", is_deleting(&deleting))?;
    holds("the version has changed", version(&deleting) != version(&created))?;
    same("the stored object", client.get("a")?, deleting.clone())?;
    let one = client.update(with(deleting.clone(), "/metadata/finalizers", json!(["example.com/b"])))?;
    same("the stored object with one finalizer", client.get("a")?, one.clone())?;
    let last = client.update(without(one, "/metadata/finalizers"))?;
    same(
        "deletionTimestamp of the last state",
        meta(&last, "deletionTimestamp"),
        meta(&deleting, "deletionTimestamp"),
    )?;
    same("finalizers of the last state", last["metadata"]["finalizers"].as_array().map_or(0, Vec::len), 0)?;
    client.refused(Refusal::NotFound, A, || client.get("a"))?;
    let changes = watch.expect_changes(&["Modified default/a", "Modified default/a", "Deleted default/a"])?;
    let gone = changes[2].object().map(|gone| (meta(gone, "uid"), meta(gone, "deletionTimestamp")));
    let expected = (meta(&created, "uid"), meta(&deleting, "deletionTimestamp"));
    same("uid and deletionTimestamp of the last event", gone, Some(expected))?;
    let versions: Vec<_> = changes.iter().filter_map(WatchEvent::object).map(version).collect();
    holds("the last version is new", versions[2] != versions[1])?;
    client.refused(Refusal::NotFound, A, || client.update(last))?;
    Ok(())
}

pub(super) fn delete_of_what_is_deleted_changes_nothing(client: &TestedClient) -> CaseResult {
    client.create(held(widget("a")))?;
    let deleting = client.begin_deletion("a")?;
    same("the object after a second deletion", client.begin_deletion("a")?, deleting.clone())?;
    same("the stored object", client.get("a")?, deleting.clone())?;
    // A writer that does not know of the deletion does not cancel it.
    let updated =
        client.update(with(without(deleting.clone(), "/metadata/deletionTimestamp"), "/spec/size", json!(2)))?;
    same(
        "deletionTimestamp after an update",
        meta(&updated, "deletionTimestamp"),
        meta(&deleting, "deletionTimestamp"),
    )?;
    let patched = client.merge("a", json!({"metadata": {"deletionTimestamp": null}}))?;
    same("the object after a patch", patched, updated)
}

pub(super) fn delete_takes_no_new_finalizers(client: &TestedClient) -> CaseResult {
    client.create(held(widget("a")))?;
    let deleting = client.begin_deletion("a")?;
    for finalizers in [json!(["example.com/a", "example.com/new"]), json!(["example.com/new"])] {
        let said = with(deleting.clone(), "/metadata/finalizers", finalizers.clone());
        client.invalid(A, "metadata.finalizers", "example.com/new", || client.update(said))?;
        let patch = json!({"metadata": {"finalizers": finalizers}});
        client.invalid(A, "metadata.finalizers", "example.com/new", || client.merge("a", patch))?;
    }
    Ok(())
}

/// A controller that looks only at generations must see the deletion.
pub(super) fn generation_rises_when_a_deletion_begins(client: &TestedClient) -> CaseResult {
    let created = client.create(held(widget("a")))?;
    let watch = client.watch(&Query::all(), Some(version(&created)))?;
    let deleting = client.begin_deletion("a")?;
    same("generation", &deleting["metadata"]["generation"], &json!(2))?;
    same("deletionGracePeriodSeconds", &deleting["metadata"]["deletionGracePeriodSeconds"], &json!(0))?;
    let changes = watch.expect_changes(&["Modified default/a"])?;
    same("the object of the event", changes[0].object(), Some(&deleting))?;
    same("generation after a second deletion", &client.begin_deletion("a")?["metadata"]["generation"], &json!(2))
}

pub(super) fn deleting_objects_are_written_as_others(client: &TestedClient) -> CaseResult {
    client.create(held(widget("a")))?;
    let deleting = client.begin_deletion("a")?;
    let updated = client.update(with(with(deleting, "/spec/size", json!(2)), "/metadata/labels/app", json!("web")))?;
    same("generation", &updated["metadata"]["generation"], &json!(3))?;
    let written = client.update_status(with(updated, "/status/gone", json!(false)))?;
    same("status", &written["status"], &json!({"gone": false}))?;
    let refused = client.refused(Refusal::AlreadyExists, A, || client.create(widget("a")));
    refused.map(drop)
}

pub(super) fn a_patch_takes_the_last_finalizer_away(client: &TestedClient) -> CaseResult {
    let steps = Patch::Json(json!([{"op": "remove", "path": "/metadata/finalizers/0"}]));
    for (name, patch) in [
        ("merge with null", Patch::Merge(json!({"metadata": {"finalizers": null}}))),
        ("merge with none", Patch::Merge(json!({"metadata": {"finalizers": []}}))),
        ("steps", steps),
    ] {
        client.create(held(widget("a")))?;
        client.delete("a")?;
        let last = client.patch("a", &patch)?;
        holds(&format!("the last state has a deletion time ({name})"), is_deleting(&last))?;
        client.refused(Refusal::NotFound, A, || client.get("a")).in_part(name)?;
    }
    Ok(())
}

pub(super) fn finalizers_without_a_deletion_hold_nothing(client: &TestedClient) -> CaseResult {
    let created = client.create(held(widget("a")))?;
    let updated = client.update(without(created, "/metadata/finalizers"))?;
    same("the stored object", client.get("a")?, updated)?;
    client.delete("a")?;
    client.refused(Refusal::NotFound, A, || client.get("a")).map(drop)
}

pub(super) fn a_status_does_not_remove(client: &TestedClient) -> CaseResult {
    client.create(held(widget("a")))?;
    let deleting = client.begin_deletion("a")?;
    let said = with(without(deleting, "/metadata/finalizers"), "/status/ready", json!(true));
    client.update_status(said)?;
    same("finalizers", &client.get("a")?["metadata"]["finalizers"], &json!(["example.com/a"]))?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}, "status": {"ready": false}}));
    owned_answer(client.inner.patch(&WIDGET, &key("a"), &patch, PatchTarget::Status))?;
    same("finalizers", &client.get("a")?["metadata"]["finalizers"], &json!(["example.com/a"]))
}

pub(super) fn purge_removes_at_once(client: &TestedClient) -> CaseResult {
    client.needs_purge()?;
    let created = client.create(held(widget("a")))?;
    let watch = client.watch(&Query::all(), Some(version(&created)))?;
    same("the outcome", client.purge("a")?, Deletion::Gone)?;
    client.refused(Refusal::NotFound, A, || client.get("a"))?;
    let last = last_state(&watch.expect_changes(&["Deleted default/a"])?)?;
    same("deletionTimestamp", last["metadata"].get("deletionTimestamp"), None)?;
    same("finalizers", &last["metadata"]["finalizers"], &json!([FINALIZER]))?;

    client.create(held(widget("a")))?;
    let deleting = client.begin_deletion("a")?;
    same("the outcome for an object that was already deleting", client.purge("a")?, Deletion::Gone)?;
    let last = last_state(&watch.expect_changes(&["Added default/a", "Modified default/a", "Deleted default/a"])?)?;
    let time = meta(&deleting, "deletionTimestamp");
    same("deletionTimestamp of an object that was already deleting", meta(&last, "deletionTimestamp"), time)?;
    client.refused(Refusal::NotFound, A, || client.get("a"))?;

    client.create(widget("a"))?;
    same("the outcome without finalizers", client.purge("a")?, Deletion::Gone)?;
    client.refused(Refusal::NotFound, A, || client.get("a")).map(drop)
}

/// Only kinds that end gracefully have a grace period.
pub(super) fn a_grace_period_holds_no_widget(client: &TestedClient) -> CaseResult {
    for time in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(3600)] {
        let options = DeleteOptions::default().grace_period(time);
        client.create(widget("a"))?;
        same("the outcome", client.delete_with("a", &options)?, Deletion::Gone).in_part(&format!("{time:?}"))?;
        client.refused(Refusal::NotFound, A, || client.get("a"))?;
        client.create(held(widget("a")))?;
        let held = held_back(client.delete_with("a", &options)?)?;
        same("the grace period", &held["metadata"]["deletionGracePeriodSeconds"], &json!(0))?;
        client.merge("a", json!({"metadata": {"finalizers": null}}))?;
    }
    Ok(())
}

/// Returns the object of the last change.
fn last_state(changes: &[ObjectEvent]) -> CaseResult<Value> {
    changes.last().and_then(WatchEvent::object).cloned().ok_or_else(|| failed("there is no change"))
}

pub(super) fn delete_collection_deletes_what_is_selected(client: &TestedClient) -> CaseResult {
    let labelled = |name: &str, app: &str| with(widget(name), "/metadata/labels/app", json!(app));
    client.create(labelled("a", "web"))?;
    client.create(held(labelled("b", "web")))?;
    client.create(labelled("c", "db"))?;
    client.create(with(labelled("d", "web"), "/metadata/namespace", json!("other")))?;
    let query = Query::all().namespace("default").labels("app=web".parse().map_err(failed)?);
    let deleted = client.inner.delete_collection(&WIDGET, &query, &DeleteOptions::default())?;
    client.refused(Refusal::NotFound, A, || client.get("a"))?;
    let b = client.get("b")?;
    same("the outcomes", deleted, [Deletion::Gone, Deletion::Deleting(SharedObject::from(b.clone()))])?;
    holds("the object has a deletion time", is_deleting(&b))?;
    holds("an object with other labels stays", client.get("c").is_ok_and(|c| !is_deleting(&c)))?;
    same("the remaining objects", client.list(&Query::all())?.1.len(), 3)?;
    let none = Query::all().namespace("none");
    let deleted = client.inner.delete_collection(&WIDGET, &none, &DeleteOptions::default())?;
    same("the count of deletions in an empty namespace", deleted.len(), 0)
}

pub(super) fn delete_by_many_at_once_succeeds_once(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let shared = client.clone();
    only_one_succeeds(8, Refusal::NotFound, move |_| shared.delete("a")).map(drop)
}
