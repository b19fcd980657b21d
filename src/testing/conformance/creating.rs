//! `create`, and what the client sets.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ZONE;
use super::fixture::{
    Outcome, Refusal, Subject, failed, holds, meta, same, together, version, widget, widget_in, with, without, zone,
};
use crate::objects::{ObjectKey, Query};

pub(super) fn create_sets_what_the_client_sets(subject: &Subject) -> Outcome {
    let said =
        with(with(widget("a"), "/metadata/labels/app", json!("web")), "/metadata/annotations/note", json!("x y"));
    let created = subject.create(said.clone())?;
    holds("it has a uid", !meta(&created, "uid").is_empty())?;
    holds("it has a version", !version(&created).is_empty())?;
    same("generation", &created["metadata"]["generation"], &json!(1))?;
    same("deletionTimestamp", meta(&created, "deletionTimestamp"), "")?;
    let mut rest = created;
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
        rest = without(rest, &format!("/metadata/{field}"));
    }
    same("the rest", rest, said)
}

pub(super) fn create_ignores_what_the_client_sets(subject: &Subject) -> Outcome {
    let said = with(widget("a"), "/metadata/generation", json!(7));
    let said = with(said, "/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z"));
    let created = subject.create(with(said, "/metadata/deletionTimestamp", json!("2001-01-01T00:00:00Z")))?;
    same("generation", &created["metadata"]["generation"], &json!(1))?;
    holds("it is not created in 2001", !meta(&created, "creationTimestamp").starts_with("2001"))?;
    same("deletionTimestamp", created["metadata"].get("deletionTimestamp"), None)
}

/// Nobody chooses a uid: not that of an object that was there, to be taken for it.
pub(super) fn create_makes_the_uid(subject: &Subject) -> Outcome {
    let first = subject.create(widget("a"))?;
    subject.delete("a")?;
    let again = subject.create(with(widget("a"), "/metadata/uid", json!(meta(&first, "uid"))))?;
    holds("the uid is another", meta(&again, "uid") != meta(&first, "uid") && !meta(&again, "uid").is_empty())
}

pub(super) fn create_sets_a_time_in_whole_seconds(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let text = meta(&created, "creationTimestamp");
    let time: Timestamp = text.parse().map_err(failed)?;
    same("nanoseconds", time.subsec_nanosecond(), 0)?;
    holds(&format!("{text} is as Kubernetes writes it"), text.len() == 20 && text.ends_with('Z'))?;
    let updated =
        subject.update(with(created.clone(), "/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z")))?;
    same("what an update makes of it", meta(&updated, "creationTimestamp"), text)?;
    let updated = subject.update(without(with(updated, "/spec/size", json!(2)), "/metadata/creationTimestamp"))?;
    same("what an update without it makes of it", meta(&updated, "creationTimestamp"), text)
}

pub(super) fn create_gives_no_status(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/status/ready", json!(true)))?;
    same("status", created.get("status"), None)?;
    same("status as it is kept", subject.get("a")?.get("status"), None)
}

pub(super) fn create_of_a_name_that_is_there_already_exists(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    subject.create(zone("a"))?;
    subject.refused(Refusal::AlreadyExists, "Widget default/a", || {
        subject.create(with(widget("a"), "/spec", json!({})))
    })?;
    subject.refused(Refusal::AlreadyExists, "Zone a", || subject.create(zone("a")))?;
    Ok(())
}

pub(super) fn create_of_one_name_in_two_namespaces_and_kinds(subject: &Subject) -> Outcome {
    let all = [subject.create(widget("a"))?, subject.create(widget_in("other", "a"))?, subject.create(zone("a"))?];
    let uids: BTreeSet<_> = all.iter().map(|object| meta(object, "uid")).collect();
    same("uids", uids.len(), 3)?;
    subject.delete("a")?;
    same("what is left", subject.all()?.len(), 2)
}

pub(super) fn create_after_a_deletion_makes_another_object(subject: &Subject) -> Outcome {
    let first = subject.create(with(widget("a"), "/spec/size", json!(9)))?;
    let first = subject.update(with(first, "/spec/size", json!(8)))?;
    let first = subject.update_status(with(first, "/status/ready", json!(true)))?;
    subject.delete("a")?;
    let second = subject.create(widget("a"))?;
    holds("its uid is another", meta(&first, "uid") != meta(&second, "uid"))?;
    same("generation", &second["metadata"]["generation"], &json!(1))?;
    same("status", second.get("status"), None)?;
    same("spec", &second["spec"], &json!({"size": 1}))
}

pub(super) fn create_of_an_object_with_a_version_is_invalid(subject: &Subject) -> Outcome {
    let deleted = subject.create(widget("b"))?;
    subject.delete("b")?;
    let path = "metadata.resourceVersion";
    subject.invalid("Widget default/b", path, version(&deleted), || subject.create(deleted.clone()))
}

fn nameless(prefix: &str) -> Value {
    with(without(widget(""), "/metadata/name"), "/metadata/generateName", json!(prefix))
}

pub(super) fn create_makes_a_name(subject: &Subject) -> Outcome {
    let mut names = BTreeSet::new();
    for _ in 0..30 {
        let created = subject.create(nameless("web-"))?;
        let name = meta(&created, "name");
        holds(&format!("{name} begins with web-, and goes on"), name.len() > 4 && name.starts_with("web-"))?;
        same("generateName", meta(&created, "generateName"), "web-")?;
        same("what is got by that name", subject.get(name)?, created.clone())?;
        names.insert(name.to_owned());
    }
    same("names", names.len(), 30)?;
    let given = subject.create(with(nameless("web-"), "/metadata/name", json!("a")))?;
    same("a name that was given", meta(&given, "name"), "a")?;
    let empty = subject.create(with(nameless("web-"), "/metadata/name", json!("")))?;
    holds("an empty name is none", meta(&empty, "name").starts_with("web-"))
}

pub(super) fn create_makes_names_in_no_namespace(subject: &Subject) -> Outcome {
    let created = subject.create(with(without(zone(""), "/metadata/name"), "/metadata/generateName", json!("z-")))?;
    let got = subject.client.get(&ZONE, &ObjectKey::cluster(meta(&created, "name")))?;
    same("what is got by that name", &*got, &created)
}

/// The name stays short enough for the value of a label.
pub(super) fn create_cuts_the_start_of_a_long_name(subject: &Subject) -> Outcome {
    for (length, kept) in [(57, 57), (58, 58), (59, 58), (200, 58)] {
        let start = "a".repeat(length);
        let created = subject.create(nameless(&start))?;
        let name = meta(&created, "name");
        same(&format!("the length of a name from a start of {length}"), name.len(), kept + 5)?;
        holds(&format!("{name} begins with the start"), name.starts_with(&start[..kept]))?;
        same("generateName", meta(&created, "generateName"), &*start)?;
    }
    Ok(())
}

/// Metadata that is empty and metadata that is not there are the same.
pub(super) fn empty_metadata_is_not_kept(subject: &Subject) -> Outcome {
    let empty = [
        ("labels", json!({})),
        ("annotations", json!({})),
        ("finalizers", json!([])),
        ("ownerReferences", json!([])),
        ("generateName", json!("")),
    ];
    let all = |object: Value| {
        empty.iter().fold(object, |object, (field, value)| with(object, &format!("/metadata/{field}"), value.clone()))
    };
    let created = subject.create(all(widget("a")))?;
    for (field, _) in &empty {
        same(field, created["metadata"].get(*field), None)?;
    }
    same("an update", subject.update(all(created.clone()))?, created.clone())?;
    same("a patch", subject.merge("a", json!({"metadata": {"annotations": {}, "labels": {}}}))?, created.clone())?;
    let labelled = subject.merge("a", json!({"metadata": {"labels": {"app": "web"}}}))?;
    same("labels", &labelled["metadata"]["labels"], &json!({"app": "web"}))?;
    let again = subject.merge("a", json!({"metadata": {"labels": {"app": null}}}))?;
    same("labels after the last one has gone", again["metadata"].get("labels"), None)
}

pub(super) fn create_by_many_at_once_succeeds_once(subject: &Subject) -> Outcome {
    let shared = subject.clone();
    let created = together(8, move |thread| match shared.create(with(widget("a"), "/spec/size", json!(thread))) {
        Ok(created) => Ok(Some(created)),
        Err(error) => same("why not", Refusal::of(&error), Refusal::AlreadyExists).map(|()| None),
    })?;
    let created: Vec<_> = created.into_iter().flatten().collect();
    same("how many have created it", created.len(), 1)?;
    same("what is kept", subject.get("a")?, created[0].clone())
}

pub(super) fn create_by_many_at_once_makes_names_and_uids_once(subject: &Subject) -> Outcome {
    let shared = subject.clone();
    let created = together(8, move |_| {
        (0..20).map(|_| shared.create(nameless("web-")).map_err(Into::into)).collect::<Outcome<Vec<_>>>()
    })?;
    for field in ["name", "uid", "resourceVersion"] {
        let values: BTreeSet<_> = created.iter().flatten().map(|object| meta(object, field)).collect();
        same(field, values.len(), 160)?;
    }
    same("how many are kept", subject.list(&Query::all())?.1.len(), 160)
}
