//! `delete`: finalizers, purges, preconditions.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ZONE;
use super::fixture::{
    Outcome, Refusal, Subject, failed, holds, key, meta, owned_answer, same, together, version, widget, with, without,
    zone,
};
use crate::objects::{DeleteOptions, ObjectKey, Patch, PatchTarget, Query, WatchEvent};

const A: &str = "Widget default/a";

fn held(finalizers: &[&str]) -> Value {
    with(widget("a"), "/metadata/finalizers", json!(finalizers))
}

fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").parse::<Timestamp>().is_ok_and(|time| time.subsec_nanosecond() == 0)
}

pub(super) fn delete_removes(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let told = subject.watch(&Query::all(), Some(version(&created)))?;
    let last = subject.delete("a")?;
    holds("its last state has the time of its deletion", is_deleting(&last))?;
    let spec = (&last["spec"], meta(&last, "uid"));
    same("the rest of its last state", spec, (&created["spec"], meta(&created, "uid")))?;
    subject.refused(Refusal::NotFound, A, || subject.get("a"))?;
    same("what is listed", subject.list(&Query::all())?.1.len(), 0)?;
    let WatchEvent::Deleted(gone) = told.change()? else { return Err(failed("the event is no Deleted")) };
    same("what the event has", &*gone, &last)?;
    holds("its version is another", version(&gone) != version(&created))
}

/// By the clock that the times of creation are of.
pub(super) fn delete_sets_a_time_after_that_of_the_creation(subject: &Subject) -> Outcome {
    let time = |object: &Value, field: &str| meta(object, field).parse::<Timestamp>().map_err(failed);
    let created = time(&subject.create(held(&["example.com/a"]))?, "creationTimestamp")?;
    let deleted = time(&subject.delete("a")?, "deletionTimestamp")?;
    let next = time(&subject.create(widget("b"))?, "creationTimestamp")?;
    holds(&format!("{deleted} is between {created} and {next}"), created <= deleted && deleted <= next)
}

pub(super) fn delete_in_no_namespace(subject: &Subject) -> Outcome {
    subject.create(zone("a"))?;
    subject.create(widget("a"))?;
    let last = subject.client.delete(&ZONE, &ObjectKey::cluster("a"), &DeleteOptions::default())?;
    holds("its last state has the time of its deletion", is_deleting(&last))?;
    same("what is left", subject.all()?.len(), 1)
}

pub(super) fn delete_of_nothing_is_not_found(subject: &Subject) -> Outcome {
    subject.create(with(widget("a"), "/metadata/namespace", json!("other")))?;
    subject.refused(Refusal::NotFound, A, || subject.delete("a"))?;
    let uid = DeleteOptions::default().uid("x");
    subject.refused(Refusal::NotFound, A, || subject.delete_with("a", &uid))?;
    let purge = DeleteOptions::default().purge();
    subject.refused(Refusal::NotFound, A, || subject.delete_with("a", &purge))?;
    Ok(())
}

pub(super) fn delete_waits_for_finalizers(subject: &Subject) -> Outcome {
    let created = subject.create(held(&["example.com/a", "example.com/b"]))?;
    let told = subject.watch(&Query::all(), Some(version(&created)))?;
    let deleting = subject.delete("a")?;
    holds("it has the time of its deletion", is_deleting(&deleting))?;
    holds("its version is another", version(&deleting) != version(&created))?;
    same("what is kept", subject.get("a")?, deleting.clone())?;
    let one = subject.update(with(deleting.clone(), "/metadata/finalizers", json!(["example.com/b"])))?;
    same("what is kept with one finalizer", subject.get("a")?, one.clone())?;
    let last = subject.update(without(one, "/metadata/finalizers"))?;
    same("its last state: the time", meta(&last, "deletionTimestamp"), meta(&deleting, "deletionTimestamp"))?;
    same("its last state: finalizers", last["metadata"]["finalizers"].as_array().map_or(0, Vec::len), 0)?;
    subject.refused(Refusal::NotFound, A, || subject.get("a"))?;
    let changes = told.tells(&["Modified default/a", "Modified default/a", "Deleted default/a"])?;
    same("what the last event has", changes[2].object().map(|gone| (**gone).clone()), Some(last.clone()))?;
    let versions: Vec<_> = changes.iter().filter_map(WatchEvent::object).map(|object| version(object)).collect();
    holds("the last version is another", versions[2] != versions[1])?;
    subject.refused(Refusal::NotFound, A, || subject.update(last))?;
    Ok(())
}

pub(super) fn delete_of_what_is_deleted_changes_nothing(subject: &Subject) -> Outcome {
    subject.create(held(&["example.com/a"]))?;
    let deleting = subject.delete("a")?;
    same("the second time", subject.delete("a")?, deleting.clone())?;
    same("what is kept", subject.get("a")?, deleting.clone())?;
    // Nor does a writer who does not know of it call it off.
    let updated =
        subject.update(with(without(deleting.clone(), "/metadata/deletionTimestamp"), "/spec/size", json!(2)))?;
    same("the time after an update", meta(&updated, "deletionTimestamp"), meta(&deleting, "deletionTimestamp"))?;
    let patched = subject.merge("a", json!({"metadata": {"deletionTimestamp": null}}))?;
    same("after a patch", patched, updated)
}

pub(super) fn delete_takes_no_new_finalizers(subject: &Subject) -> Outcome {
    subject.create(held(&["example.com/a"]))?;
    let deleting = subject.delete("a")?;
    for finalizers in [json!(["example.com/a", "example.com/new"]), json!(["example.com/new"])] {
        let said = with(deleting.clone(), "/metadata/finalizers", finalizers.clone());
        subject.invalid(A, "metadata.finalizers", "example.com/new", || subject.update(said))?;
        let patch = json!({"metadata": {"finalizers": finalizers}});
        subject.invalid(A, "metadata.finalizers", "example.com/new", || subject.merge("a", patch))?;
    }
    Ok(())
}

/// As for any change of what is wanted, so that a controller that looks at generations alone sees it.
pub(super) fn generation_rises_when_a_deletion_begins(subject: &Subject) -> Outcome {
    let created = subject.create(held(&["example.com/a"]))?;
    let told = subject.watch(&Query::all(), Some(version(&created)))?;
    let deleting = subject.delete("a")?;
    same("generation", &deleting["metadata"]["generation"], &json!(2))?;
    same("deletionGracePeriodSeconds", &deleting["metadata"]["deletionGracePeriodSeconds"], &json!(0))?;
    let changes = told.tells(&["Modified default/a"])?;
    same("what the event has", changes[0].object().map(|object| &**object), Some(&deleting))?;
    same("generation after a second deletion", &subject.delete("a")?["metadata"]["generation"], &json!(2))
}

pub(super) fn deleting_objects_are_written_as_others(subject: &Subject) -> Outcome {
    subject.create(held(&["example.com/a"]))?;
    let deleting = subject.delete("a")?;
    let updated = subject.update(with(with(deleting, "/spec/size", json!(2)), "/metadata/labels/app", json!("web")))?;
    same("generation", &updated["metadata"]["generation"], &json!(3))?;
    let written = subject.update_status(with(updated, "/status/gone", json!(false)))?;
    same("status", &written["status"], &json!({"gone": false}))?;
    let refused = subject.refused(Refusal::AlreadyExists, A, || subject.create(widget("a")));
    refused.map(drop)
}

pub(super) fn a_patch_takes_the_last_finalizer_away(subject: &Subject) -> Outcome {
    let steps = Patch::Json(json!([{"op": "remove", "path": "/metadata/finalizers/0"}]));
    for (name, patch) in [
        ("merge with null", Patch::Merge(json!({"metadata": {"finalizers": null}}))),
        ("merge with none", Patch::Merge(json!({"metadata": {"finalizers": []}}))),
        ("steps", steps),
    ] {
        subject
            .create(held(&["example.com/a"]))
            .map_err(Into::into)
            .map_err(|stop: super::fixture::Stop| stop.of(name))?;
        subject.delete("a")?;
        let last = subject.patch("a", &patch)?;
        holds(&format!("its last state has the time of its deletion ({name})"), is_deleting(&last))?;
        subject.refused(Refusal::NotFound, A, || subject.get("a")).map_err(|stop| stop.of(name))?;
    }
    Ok(())
}

pub(super) fn finalizers_without_a_deletion_hold_nothing(subject: &Subject) -> Outcome {
    let created = subject.create(held(&["example.com/a"]))?;
    let updated = subject.update(without(created, "/metadata/finalizers"))?;
    same("what is kept", subject.get("a")?, updated)?;
    subject.delete("a")?;
    subject.refused(Refusal::NotFound, A, || subject.get("a")).map(drop)
}

pub(super) fn a_status_does_not_remove(subject: &Subject) -> Outcome {
    subject.create(held(&["example.com/a"]))?;
    let deleting = subject.delete("a")?;
    let said = with(without(deleting, "/metadata/finalizers"), "/status/ready", json!(true));
    subject.update_status(said)?;
    same("finalizers", &subject.get("a")?["metadata"]["finalizers"], &json!(["example.com/a"]))?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}, "status": {"ready": false}}));
    owned_answer(subject.client.patch(&super::WIDGET, &key("a"), &patch, PatchTarget::Status))?;
    same("finalizers", &subject.get("a")?["metadata"]["finalizers"], &json!(["example.com/a"]))
}

pub(super) fn purge_removes_at_once(subject: &Subject) -> Outcome {
    let purge = DeleteOptions::default().purge();
    let created = subject.create(held(&["example.com/a"]))?;
    let told = subject.watch(&Query::all(), Some(version(&created)))?;
    let last = subject.delete_with("a", &purge)?;
    same("the time of a deletion", last["metadata"].get("deletionTimestamp"), None)?;
    subject.refused(Refusal::NotFound, A, || subject.get("a"))?;
    let changes = told.tells(&["Deleted default/a"])?;
    same("what the event has", changes[0].object().map(|gone| (**gone).clone()), Some(last))?;

    subject.create(held(&["example.com/a"]))?;
    let deleting = subject.delete("a")?;
    let last = subject.delete_with("a", &purge)?;
    let time = meta(&deleting, "deletionTimestamp");
    same("the time of a deletion that had begun", meta(&last, "deletionTimestamp"), time)?;
    subject.refused(Refusal::NotFound, A, || subject.get("a"))?;

    subject.create(widget("a"))?;
    let last = subject.delete_with("a", &purge)?;
    same("the time of a deletion without finalizers", last["metadata"].get("deletionTimestamp"), None)
}

pub(super) fn preconditions_are_kept(subject: &Subject) -> Outcome {
    let stale = subject.create(held(&["example.com/a"]))?;
    let current = subject.update(with(stale.clone(), "/spec/size", json!(2)))?;
    let (uid, now) = (meta(&current, "uid").to_owned(), version(&current).to_owned());
    for purge in [false, true] {
        for (uid, version) in [
            (Some("another"), None),
            (None, Some(version(&stale))),
            (Some(&*uid), Some(version(&stale))),
            (Some("another"), Some(&*now)),
        ] {
            let (uid, resource_version) = (uid.map(str::to_owned), version.map(str::to_owned));
            let options = DeleteOptions { uid, resource_version, purge, ..DeleteOptions::default() };
            subject.refused(Refusal::Conflict, A, || subject.delete_with("a", &options))?;
        }
    }
    let options = DeleteOptions::default().uid(uid).resource_version(now);
    holds("it is deleting", is_deleting(&subject.delete_with("a", &options)?))
}

pub(super) fn delete_collection_deletes_what_is_selected(subject: &Subject) -> Outcome {
    let labelled = |name: &str, app: &str| with(widget(name), "/metadata/labels/app", json!(app));
    subject.create(labelled("a", "web"))?;
    subject.create(with(labelled("b", "web"), "/metadata/finalizers", json!(["example.com/b"])))?;
    subject.create(labelled("c", "db"))?;
    subject.create(with(labelled("d", "web"), "/metadata/namespace", json!("other")))?;
    let query = Query::all().namespace("default").labels("app=web".parse().map_err(failed)?);
    let deleted = subject.client.delete_collection(&super::WIDGET, &query, &DeleteOptions::default())?;
    same("the deleted", deleted.iter().map(|last| meta(last, "name")).collect::<Vec<_>>(), ["a", "b"])?;
    subject.refused(Refusal::NotFound, A, || subject.get("a"))?;
    same("the one that a finalizer holds", &*deleted[1], &subject.get("b")?)?;
    holds("it is deleting", is_deleting(&deleted[1]))?;
    holds("one of other labels stays", subject.get("c").is_ok_and(|c| !is_deleting(&c)))?;
    same("what is left", subject.list(&Query::all())?.1.len(), 3)?;
    let none = Query::all().namespace("none");
    let deleted = subject.client.delete_collection(&super::WIDGET, &none, &DeleteOptions::default())?;
    same("how many are deleted where none is", deleted.len(), 0)
}

pub(super) fn delete_by_many_at_once_succeeds_once(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let shared = subject.clone();
    let deleted = together(8, move |_| match shared.delete("a") {
        Ok(_) => Ok(1),
        Err(error) => same("why not", Refusal::of(&error), Refusal::NotFound).map(|()| 0),
    })?;
    same("how many have deleted it", deleted.iter().sum::<usize>(), 1)
}
