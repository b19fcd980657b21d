//! `create`, and the fields that the client sets.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fixture::{CaseResult, Refusal, TestedClient, failed, holds, same};
use super::objects::{ZONE, meta, version, widget, widget_in, with, without, zone};
use super::threads::{only_one_succeeds, together};
use homeostat_objects::{ObjectKey, Query};

pub(super) fn create_sets_what_the_client_sets(client: &TestedClient) -> CaseResult {
    let said =
        with(with(widget("a"), "/metadata/labels/app", json!("web")), "/metadata/annotations/note", json!("x y"));
    let created = client.create(said.clone())?;
    holds("the object has a uid", !meta(&created, "uid").is_empty())?;
    holds("the object has a version", !version(&created).is_empty())?;
    same("generation", &created["metadata"]["generation"], &json!(1))?;
    same("deletionTimestamp", meta(&created, "deletionTimestamp"), "")?;
    let mut rest = created;
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
        rest = without(rest, &format!("/metadata/{field}"));
    }
    same("the other fields", rest, said)
}

pub(super) fn create_ignores_what_the_client_sets(client: &TestedClient) -> CaseResult {
    let said = with(widget("a"), "/metadata/generation", json!(7));
    let said = with(said, "/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z"));
    let created = client.create(with(said, "/metadata/deletionTimestamp", json!("2001-01-01T00:00:00Z")))?;
    same("generation", &created["metadata"]["generation"], &json!(1))?;
    holds("the creation time is not the given one", !meta(&created, "creationTimestamp").starts_with("2001"))?;
    same("deletionTimestamp", created["metadata"].get("deletionTimestamp"), None)
}

/// A new object gets a new uid, even if the caller sends the uid of a deleted object.
pub(super) fn create_makes_the_uid(client: &TestedClient) -> CaseResult {
    let first = client.create(widget("a"))?;
    client.delete("a")?;
    let again = client.create(with(widget("a"), "/metadata/uid", json!(meta(&first, "uid"))))?;
    holds("the uid is new", meta(&again, "uid") != meta(&first, "uid") && !meta(&again, "uid").is_empty())
}

pub(super) fn create_sets_a_time_in_whole_seconds(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    let text = meta(&created, "creationTimestamp");
    let time: Timestamp = text.parse().map_err(failed)?;
    same("nanoseconds", time.subsec_nanosecond(), 0)?;
    holds(&format!("{text} has the form of Kubernetes"), text.len() == 20 && text.ends_with('Z'))?;
    let updated = client.update(with(created.clone(), "/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z")))?;
    same("creationTimestamp after an update", meta(&updated, "creationTimestamp"), text)?;
    let updated = client.update(without(with(updated, "/spec/size", json!(2)), "/metadata/creationTimestamp"))?;
    same("creationTimestamp after an update without it", meta(&updated, "creationTimestamp"), text)
}

pub(super) fn create_of_a_name_that_is_there_already_exists(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    client.create(zone("a"))?;
    client
        .refused(Refusal::AlreadyExists, "Widget default/a", || client.create(with(widget("a"), "/spec", json!({}))))?;
    client.refused(Refusal::AlreadyExists, "Zone a", || client.create(zone("a")))?;
    Ok(())
}

pub(super) fn create_of_one_name_in_two_namespaces_and_kinds(client: &TestedClient) -> CaseResult {
    let all = [client.create(widget("a"))?, client.create(widget_in("other", "a"))?, client.create(zone("a"))?];
    let uids: BTreeSet<_> = all.iter().map(|object| meta(object, "uid")).collect();
    same("uids", uids.len(), 3)?;
    client.delete("a")?;
    same("the remaining objects", client.all()?.len(), 2)
}

pub(super) fn create_after_a_deletion_makes_another_object(client: &TestedClient) -> CaseResult {
    let first = client.create(with(widget("a"), "/spec/size", json!(9)))?;
    let first = client.update(with(first, "/spec/size", json!(8)))?;
    let first = client.update_status(with(first, "/status/ready", json!(true)))?;
    client.delete("a")?;
    let second = client.create(widget("a"))?;
    holds("the uid is new", meta(&first, "uid") != meta(&second, "uid"))?;
    same("generation", &second["metadata"]["generation"], &json!(1))?;
    same("status", second.get("status"), None)?;
    same("spec", &second["spec"], &json!({"size": 1}))
}

pub(super) fn create_of_an_object_with_a_version_is_invalid(client: &TestedClient) -> CaseResult {
    let deleted = client.create(widget("b"))?;
    client.delete("b")?;
    let path = "metadata.resourceVersion";
    client.invalid("Widget default/b", path, version(&deleted), || client.create(deleted.clone()))
}

fn nameless(prefix: &str) -> Value {
    with(without(widget(""), "/metadata/name"), "/metadata/generateName", json!(prefix))
}

pub(super) fn create_makes_a_name(client: &TestedClient) -> CaseResult {
    let mut names = BTreeSet::new();
    for _ in 0..30 {
        let created = client.create(nameless("web-"))?;
        let name = meta(&created, "name");
        holds(&format!("{name} is web- and a suffix"), name.len() > 4 && name.starts_with("web-"))?;
        same("generateName", meta(&created, "generateName"), "web-")?;
        same("the object of that name", client.get(name)?, created.clone())?;
        names.insert(name.to_owned());
    }
    same("names", names.len(), 30)?;
    let given = client.create(with(nameless("web-"), "/metadata/name", json!("a")))?;
    same("the given name", meta(&given, "name"), "a")?;
    let empty = client.create(with(nameless("web-"), "/metadata/name", json!("")))?;
    holds("an empty name counts as missing", meta(&empty, "name").starts_with("web-"))
}

pub(super) fn create_makes_names_in_no_namespace(client: &TestedClient) -> CaseResult {
    let created = client.create(with(without(zone(""), "/metadata/name"), "/metadata/generateName", json!("z-")))?;
    let got = client.inner.get(&ZONE, &ObjectKey::cluster(meta(&created, "name")))?;
    same("the object of that name", &got, &created)
}

/// A generated name is short enough for a label value.
pub(super) fn create_cuts_the_start_of_a_long_name(client: &TestedClient) -> CaseResult {
    for (length, kept) in [(57, 57), (58, 58), (59, 58), (200, 58)] {
        let start = "a".repeat(length);
        let created = client.create(nameless(&start))?;
        let name = meta(&created, "name");
        same(&format!("the length of a name from a start of {length}"), name.len(), kept + 5)?;
        holds(&format!("{name} begins with the start"), name.starts_with(&start[..kept]))?;
        same("generateName", meta(&created, "generateName"), &*start)?;
    }
    Ok(())
}

/// Empty metadata fields are the same as missing fields.
pub(super) fn empty_metadata_is_not_kept(client: &TestedClient) -> CaseResult {
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
    let created = client.create(all(widget("a")))?;
    for (field, _) in &empty {
        same(field, created["metadata"].get(*field), None)?;
    }
    same("the object after an update", client.update(all(created.clone()))?, created.clone())?;
    same(
        "the object after a patch",
        client.merge("a", json!({"metadata": {"annotations": {}, "labels": {}}}))?,
        created.clone(),
    )?;
    let labelled = client.merge("a", json!({"metadata": {"labels": {"app": "web"}}}))?;
    same("labels", &labelled["metadata"]["labels"], &json!({"app": "web"}))?;
    let again = client.merge("a", json!({"metadata": {"labels": {"app": null}}}))?;
    same("labels after the last is removed", again["metadata"].get("labels"), None)
}

pub(super) fn create_by_many_at_once_succeeds_once(client: &TestedClient) -> CaseResult {
    let shared = client.clone();
    let create = move |thread| shared.create(with(widget("a"), "/spec/size", json!(thread)));
    let created = only_one_succeeds(8, Refusal::AlreadyExists, create)?;
    same("the stored object", client.get("a")?, created)
}

pub(super) fn create_by_many_at_once_makes_names_and_uids_once(client: &TestedClient) -> CaseResult {
    let shared = client.clone();
    let created = together(8, move |_| {
        (0..20).map(|_| shared.create(nameless("web-")).map_err(Into::into)).collect::<CaseResult<Vec<_>>>()
    })?;
    for field in ["name", "uid", "resourceVersion"] {
        let values: BTreeSet<_> = created.iter().flatten().map(|object| meta(object, field)).collect();
        same(field, values.len(), 160)?;
    }
    same("the count of objects", client.list(&Query::all())?.1.len(), 160)
}
