//! `update` and `update_status`, versions and generations.

use serde_json::{Value, json};

use super::fixture::{CaseResult, InPart, TestedClient, holds, same};
use super::objects::{A, FINALIZER, ZONE, held, version, widget, with, without, zone};
use homeostat_objects::{ClientError, ObjectKey};

fn generation(object: &Value) -> Option<i64> {
    object["metadata"]["generation"].as_i64()
}

/// Both update methods, and a field that each of them writes.
type WriteMethod = fn(&TestedClient, Value) -> Result<Value, ClientError>;
const WRITES: [(&str, WriteMethod, &str); 2] = [
    ("update", |s, object| s.update(object), "/spec/size"),
    ("update_status", |s, object| s.update_status(object), "/status/size"),
];

pub(super) fn update_replaces_all_but_status(client: &TestedClient) -> CaseResult {
    let created = client.create(with(widget("a"), "/metadata/labels/old", json!("1")))?;
    let with_status = client.update_status(with(created, "/status/ready", json!(true)))?;
    let mut said = with(without(without(with_status, "/spec/size"), "/status"), "/data", json!([1]));
    said = with(without(said, "/metadata/labels"), "/metadata/annotations/new", json!("2"));
    let updated = client.update(said.clone())?;
    let expected = with(said, "/status/ready", json!(true));
    let expected = with(expected, "/metadata/resourceVersion", json!(version(&updated)));
    same("the written object", &updated, &with(expected, "/metadata/generation", json!(2)))?;
    same("the stored object", client.get("a")?, updated)
}

pub(super) fn update_status_writes_nothing_else(client: &TestedClient) -> CaseResult {
    let created = client.create(with(widget("a"), "/metadata/labels/app", json!("web")))?;
    let mut said = with(with(created.clone(), "/spec/size", json!(9)), "/data", json!(1));
    for (path, value) in [
        ("/metadata/labels/app", json!("db")),
        ("/metadata/annotations/x", json!("y")),
        ("/metadata/finalizers", json!(["example.com/a"])),
        ("/metadata/generation", json!(9)),
        ("/metadata/deletionTimestamp", json!("2001-01-01T00:00:00Z")),
    ] {
        said = with(said, path, value);
    }
    let written = client.update_status(with(said, "/status", json!({"ready": true, "seen": [1, {"x": null}]})))?;
    holds("the version has changed", version(&written) != version(&created))?;
    let expected = with(created, "/status", json!({"ready": true, "seen": [1, {"x": null}]}));
    same("the written object", &written, &with(expected, "/metadata/resourceVersion", json!(version(&written))))?;
    same("the stored object", client.get("a")?, written)
}

pub(super) fn update_status_replaces_and_removes(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    let written = client.update_status(with(created, "/status", json!({"a": 1, "b": 2})))?;
    let written = client.update_status(with(written, "/status", json!({"b": 3})))?;
    same("the status", &written["status"], &json!({"b": 3}))?;
    let removed = client.update_status(without(written.clone(), "/status"))?;
    same("the removed status", removed.get("status"), None)?;
    holds("the version has changed", version(&removed) != version(&written))?;
    same("the stored object", client.get("a")?, removed)
}

pub(super) fn update_in_no_namespace(client: &TestedClient) -> CaseResult {
    let created = client.create(zone("a"))?;
    let updated = client.update(with(created, "/spec/size", json!(2)))?;
    let written = client.update_status(with(updated, "/status/ready", json!(true)))?;
    same("the stored object", &client.inner.get(&ZONE, &ObjectKey::cluster("a"))?, &written)?;
    same("the size", &written["spec"]["size"], &json!(2))
}

pub(super) fn update_without_a_version_is_invalid(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    for (name, write, path) in WRITES {
        for said in [
            without(created.clone(), "/metadata/resourceVersion"),
            with(created.clone(), "/metadata/resourceVersion", json!("")),
        ] {
            let said = with(said, path, json!(2));
            let refused = client.invalid(A, "metadata.resourceVersion", "", || write(client, said));
            refused.in_part(name)?;
        }
    }
    Ok(())
}

pub(super) fn generation_rises_with_what_is_wanted(client: &TestedClient) -> CaseResult {
    let mut object = client.create(widget("a"))?;
    for (path, value, expected) in [
        ("/spec/size", json!(2), 2),
        ("/metadata/labels/app", json!("web"), 2),
        ("/metadata/annotations/x", json!("y"), 2),
        ("/metadata/finalizers", json!(["example.com/a"]), 2),
        ("/data/x", json!("y"), 3),
        ("/metadata/generation", json!(17), 3),
        ("/spec/size", json!(2), 3),
        ("/spec", json!(null), 4),
    ] {
        object = client.update(with(object, path, value))?;
        same(&format!("generation after {path}"), generation(&object), Some(expected))?;
    }
    object = client.update_status(with(object, "/status/ready", json!(true)))?;
    same("generation after a status", generation(&object), Some(4))?;
    object = client.update(without(object, "/spec"))?;
    same("generation after a removal", generation(&object), Some(5))?;
    for (patch, expected) in [
        (json!({"metadata": {"labels": {"app": "db"}}}), 5),
        (json!({"spec": {"size": 5}}), 6),
        (json!({"spec": {"size": 5}}), 6),
        (json!({"metadata": {"generation": 40}}), 6),
    ] {
        same(&format!("generation after {patch}"), generation(&client.merge("a", patch.clone())?), Some(expected))?;
    }
    let patched = client.merge_status("a", json!({"status": {"ready": false}}))?;
    same("generation after a patch of the status", generation(&patched), Some(6))?;
    client.merge("a", json!({"metadata": {"finalizers": [FINALIZER]}}))?;
    same("generation after a deletion", generation(&client.begin_deletion("a")?), Some(7))
}

pub(super) fn what_the_client_sets_stays_as_it_is(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    let mut said = with(created.clone(), "/spec/size", json!(2));
    for field in ["uid", "creationTimestamp", "generation"] {
        said = without(said, &format!("/metadata/{field}"));
    }
    let updated = client.update(said)?;
    let expected = with(with(created, "/spec/size", json!(2)), "/metadata/generation", json!(2));
    same("the written object", &updated, &with(expected, "/metadata/resourceVersion", json!(version(&updated))))?;
    let patch = json!({"metadata": {"creationTimestamp": null, "generation": 0, "deletionTimestamp": null}});
    same("the object after a patch", client.merge("a", patch)?, updated)
}

/// Only a deletion call begins a deletion.
pub(super) fn update_with_a_deletion_time_is_invalid(client: &TestedClient) -> CaseResult {
    let created = client.create(held(widget("a")))?;
    let (path, time) = ("metadata.deletionTimestamp", json!("2001-01-01T00:00:00Z"));
    let said = with(created.clone(), "/metadata/deletionTimestamp", time.clone());
    client.invalid(A, path, "2001-01-01", || client.update(said))?;
    client.invalid(A, path, "2001-01-01", || client.merge("a", json!({"metadata": {"deletionTimestamp": time}})))?;
    same("the stored object", client.get("a")?, created)
}
