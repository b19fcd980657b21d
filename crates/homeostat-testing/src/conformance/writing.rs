//! The rules of all methods that write.

use serde_json::{Map, Value, json};

use super::fixture::{CaseResult, DeleteResult, InPart, Refusal, TestedClient, same};
use super::objects::{A, ZONE, held, meta, version, widget, widget_in, with, without};
use homeostat_objects::{ClientError, DeleteOptions, FieldOwner, ObjectKey, Patch, PatchTarget, Query};

/// Writes a size into the widget `a`, on condition that it has the version and the uid of a known object. Returns the
/// object; `null` if it is gone.
type WriteSize = fn(&TestedClient, &Value, u32) -> Result<Value, ClientError>;

/// Writes the widget `a` without a condition.
type Unconditional = fn(&TestedClient) -> Result<Value, ClientError>;

const CHANGES: [(&str, WriteSize); 5] = [
    ("update", |client, known, size| client.update(with(known.clone(), "/spec/size", json!(size)))),
    ("update_status", |client, known, size| client.update_status(with(known.clone(), "/status/size", json!(size)))),
    ("merge patch", |client, known, size| {
        client.merge("a", json!({"metadata": identity(known), "spec": {"size": size}}))
    }),
    ("merge patch of the status", |client, known, size| {
        client.merge_status("a", json!({"metadata": identity(known), "status": {"size": size}}))
    }),
    ("JSON patch", |client, known, size| {
        let replace = |(field, value)| json!({"op": "replace", "path": format!("/metadata/{field}"), "value": value});
        let mut steps: Vec<_> = identity(known).into_iter().map(replace).collect();
        steps.push(json!({"op": "add", "path": "/data", "value": size}));
        client.patch("a", &Patch::Json(json!(steps)))
    }),
];
const APPLY: (&str, WriteSize) = ("apply", |client, known, size| {
    let mut fields = with(widget("a"), "/spec/size", json!(size));
    for (field, value) in identity(known) {
        fields["metadata"][field] = value;
    }
    client.apply(fields, &FieldOwner::new("one").force())
});
const DELETE: (&str, WriteSize) = ("delete", |client, known, _| left(client.delete_with("a", &preconditions(known))));
const PURGE: (&str, WriteSize) =
    ("purge", |client, known, _| left(client.delete_with("a", &preconditions(known).purge())));

fn left(deletion: DeleteResult) -> Result<Value, ClientError> {
    Ok(deletion?.into_object().unwrap_or_default())
}

fn deletions(client: &TestedClient) -> impl Iterator<Item = (&'static str, WriteSize)> + use<> {
    [DELETE].into_iter().chain(client.can_purge().then_some(PURGE))
}

fn all_methods(client: &TestedClient) -> impl Iterator<Item = (&'static str, WriteSize)> + use<> {
    CHANGES.into_iter().chain([APPLY]).chain(deletions(client))
}

/// Returns the version and the uid of an object, if it has them.
fn identity(object: &Value) -> Map<String, Value> {
    let fields = ["resourceVersion", "uid"].map(|field| (field.to_owned(), json!(meta(object, field))));
    fields.into_iter().filter(|(_, value)| *value != json!("")).collect()
}

fn preconditions(object: &Value) -> DeleteOptions {
    let mut options = DeleteOptions::default();
    for (field, value) in identity(object) {
        let value = value.as_str().unwrap_or_default().to_owned();
        options = if field == "uid" { options.uid(value) } else { options.resource_version(value) };
    }
    options
}

/// Removes the widget `a`, if it exists, and creates it again.
fn renew(client: &TestedClient) -> Result<Value, ClientError> {
    let _ = client.remove("a");
    client.create(held(widget("a")))
}

pub(super) fn writes_of_nothing_are_not_found(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    client.delete("a")?;
    client.create(widget_in("other", "a"))?;
    for (name, write) in CHANGES.into_iter().chain(deletions(client)) {
        client.refused(Refusal::NotFound, A, || write(client, &created, 2)).in_part(name)?;
    }
    let unconditional: [(&str, Unconditional); 4] = [
        ("delete", |client| left(client.delete("a"))),
        ("merge patch", |client| client.merge("a", json!({"metadata": {"labels": {"a": "b"}}}))),
        ("merge patch of the status", |client| client.merge_status("a", json!({"status": {}}))),
        ("JSON patch without steps", |client| client.patch("a", &Patch::Json(json!([])))),
    ];
    for (name, write) in unconditional {
        client.refused(Refusal::NotFound, A, || write(client)).in_part(name)?;
    }
    let patch = Patch::Merge(json!({"spec": {"size": 2}}));
    let call = || client.inner.patch(&ZONE, &ObjectKey::cluster("a"), &patch, PatchTarget::Object);
    client.refused(Refusal::NotFound, "Zone a", call).map(drop)
}

pub(super) fn writes_of_a_stale_version_are_conflicts(client: &TestedClient) -> CaseResult {
    for (name, write) in all_methods(client) {
        let stale = renew(client)?;
        client.merge("a", json!({"spec": {"size": 2}, "data": 2}))?;
        let current = client.merge_status("a", json!({"status": {"size": 2}}))?;
        // The size 2 changes nothing, but is still a conflict.
        for size in [2, 3] {
            client.refused(Refusal::Conflict, A, || write(client, &stale, size)).in_part(name)?;
        }
        write(client, &current, 3)?;
    }
    Ok(())
}

pub(super) fn writes_of_another_uid_are_conflicts(client: &TestedClient) -> CaseResult {
    // A patch of the status may ignore the uid.
    for (name, write) in all_methods(client).filter(|(name, _)| *name != "merge patch of the status") {
        let before = renew(client)?;
        let current = renew(client)?;
        // An object that was deleted and replaced by another object.
        let before = with(before, "/metadata/resourceVersion", json!(version(&current)));
        for known in [&before, &with(before.clone(), "/metadata/uid", json!("another"))] {
            client.refused(Refusal::Conflict, A, || write(client, known, 2)).in_part(name)?;
        }
        if !name.starts_with("update") {
            let known = with(without(current.clone(), "/metadata/resourceVersion"), "/metadata/uid", json!("another"));
            client.refused(Refusal::Conflict, A, || write(client, &known, 2)).in_part(name)?;
        }
        let written = write(client, &without(current.clone(), "/metadata/uid"), 2)?;
        if !written.is_null() {
            same(&format!("the uid after {name} without a uid"), meta(&written, "uid"), meta(&current, "uid"))?;
        }
    }
    Ok(())
}

pub(super) fn writes_of_what_is_there_keep_the_version(client: &TestedClient) -> CaseResult {
    let one = FieldOwner::new("one");
    let applied =
        with(with(widget("a"), "/metadata/labels/app", json!("web")), "/spec", json!({"size": 2, "y": [1, {"z": 2}]}));
    client.apply(applied.clone(), &one)?;
    client.merge("a", json!({"data": 2}))?;
    let current = client.merge_status("a", json!({"status": {"size": 2}}))?;
    let watch = client.watch(&Query::all(), Some(version(&current)))?;
    let ignored =
        with(with(current.clone(), "/metadata/generation", json!(9)), "/metadata/creationTimestamp", json!(null));
    for known in [&current, &ignored] {
        for (name, write) in CHANGES {
            same(name, &write(client, known, 2)?, &current)?;
        }
    }
    same("apply", &client.apply(applied, &one)?, &current)?;
    for patch in
        [json!({}), json!({"spec": {"size": 2, "none": null}}), json!({"metadata": {"labels": {"app": "web"}}})]
    {
        same(&patch.to_string(), &client.merge("a", patch.clone())?, &current)?;
    }
    same("a JSON patch without steps", &client.patch("a", &Patch::Json(json!([])))?, &current)?;
    same("the stored object", &client.get("a")?, &current)?;
    client.create(widget("b"))?;
    watch.expect_changes(&["Added default/b"]).map(drop)
}

/// `create`, `update`, patches of the object and `apply` ignore a status.
pub(super) fn status_is_written_by_its_methods_only(client: &TestedClient) -> CaseResult {
    type WriteBoth = fn(&TestedClient, &Value, &Value, u32) -> Result<Value, ClientError>;
    let methods: [(&str, WriteBoth); 4] = [
        ("update", |client, known, status, size| {
            client.update(with(with(known.clone(), "/status", status.clone()), "/spec/size", json!(size)))
        }),
        ("merge patch", |client, _, status, size| client.merge("a", json!({"status": status, "spec": {"size": size}}))),
        ("JSON patch", |client, _, status, size| {
            let step = |path: &str, value: &Value| json!({"op": "add", "path": path, "value": value});
            let status =
                if status.is_null() { json!({"op": "remove", "path": "/status"}) } else { step("/status", status) };
            client.patch("a", &Patch::Json(json!([status, step("/spec/size", &json!(size))])))
        }),
        ("apply", |client, _, status, size| {
            let fields = with(with(widget("a"), "/status", status.clone()), "/spec/size", json!(size));
            client.apply(fields, &FieldOwner::new("one").force())
        }),
    ];
    let (ready, unready) = (json!({"ready": true}), json!({"ready": false}));
    for (name, write) in methods {
        let _ = client.delete("a");
        let created = client.create(with(widget("a"), "/status", ready.clone()))?;
        same("the status after create", created.get("status"), None)?;
        same("the stored object", client.get("a")?, created.clone())?;
        let written = write(client, &created, &ready, 2)?;
        same(&format!("the status after {name}"), written.get("status"), None)?;
        client.merge_status("a", json!({"status": ready}))?;
        let written = write(client, &client.get("a")?, &unready, 3)?;
        let found = (&written["status"], &written["spec"]["size"]);
        same(&format!("the status and the size after {name}"), found, (&ready, &json!(3)))?;
        let unversioned = |object: &Value| without(object.clone(), "/metadata/resourceVersion");
        for status in [&unready, &json!(null)] {
            // The client may record the sender of the status, as a new version.
            let again = write(client, &client.get("a")?, status, 3)?;
            let what = format!("the object after {name} of another status only");
            same(&what, unversioned(&again), unversioned(&written))?;
        }
    }
    Ok(())
}
