//! `update` and `update_status`, versions and generations.

use serde_json::{Value, json};

use super::ZONE;
use super::fixture::{Outcome, Refusal, Subject, holds, meta, same, version, widget, with, without, zone};
use crate::objects::{ClientError, ObjectKey, Query};

const A: &str = "Widget default/a";

fn generation(object: &Value) -> Option<i64> {
    object["metadata"]["generation"].as_i64()
}

/// The two ways to write an object that is there, and something for each to change.
type Write = fn(&Subject, Value) -> Result<Value, ClientError>;
const WRITES: [(&str, Write, &str); 2] = [
    ("update", |s, object| s.update(object), "/spec/size"),
    ("update_status", |s, object| s.update_status(object), "/status/size"),
];

pub(super) fn update_replaces_all_but_status(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/metadata/labels/old", json!("1")))?;
    let with_status = subject.update_status(with(created, "/status/ready", json!(true)))?;
    let mut said = with(without(without(with_status, "/spec/size"), "/status"), "/data", json!([1]));
    said = with(without(said, "/metadata/labels"), "/metadata/annotations/new", json!("2"));
    let updated = subject.update(said.clone())?;
    let expected = with(said, "/status/ready", json!(true));
    let expected = with(expected, "/metadata/resourceVersion", json!(version(&updated)));
    same("what is written", &updated, &with(expected, "/metadata/generation", json!(2)))?;
    same("what is kept", subject.get("a")?, updated)
}

pub(super) fn update_ignores_a_status(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let updated = subject.update(with(with(created, "/status/ready", json!(true)), "/spec/size", json!(2)))?;
    same("a status that was said", updated.get("status"), None)?;
    let written = subject.update_status(with(updated, "/status/ready", json!(true)))?;
    let updated = subject.update(with(with(written.clone(), "/status/ready", json!(false)), "/spec/size", json!(3)))?;
    same("the status", &updated["status"], &json!({"ready": true}))?;
    let same_spec = subject.update(with(updated.clone(), "/status/ready", json!(false)))?;
    same("an update of a status alone", same_spec, updated)
}

pub(super) fn update_status_writes_nothing_else(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/metadata/labels/app", json!("web")))?;
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
    let written = subject.update_status(with(said, "/status", json!({"ready": true, "seen": [1, {"x": null}]})))?;
    holds("the version is another", version(&written) != version(&created))?;
    let expected = with(created, "/status", json!({"ready": true, "seen": [1, {"x": null}]}));
    same("what is written", &written, &with(expected, "/metadata/resourceVersion", json!(version(&written))))?;
    same("what is kept", subject.get("a")?, written)
}

pub(super) fn update_status_replaces_and_removes(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let written = subject.update_status(with(created, "/status", json!({"a": 1, "b": 2})))?;
    let written = subject.update_status(with(written, "/status", json!({"b": 3})))?;
    same("the status", &written["status"], &json!({"b": 3}))?;
    let removed = subject.update_status(without(written.clone(), "/status"))?;
    same("no status", removed.get("status"), None)?;
    holds("the version is another", version(&removed) != version(&written))?;
    same("what is kept", subject.get("a")?, removed)
}

pub(super) fn update_in_no_namespace(subject: &Subject) -> Outcome {
    let created = subject.create(zone("a"))?;
    let updated = subject.update(with(created, "/spec/size", json!(2)))?;
    let written = subject.update_status(with(updated, "/status/ready", json!(true)))?;
    same("what is kept", &*subject.client.get(&ZONE, &ObjectKey::cluster("a"))?, &written)?;
    same("the size", &written["spec"]["size"], &json!(2))
}

pub(super) fn update_of_nothing_is_not_found(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    subject.delete("a")?;
    subject.create(with(widget("b"), "/metadata/namespace", json!("other")))?;
    for (name, write, path) in WRITES {
        let said = with(created.clone(), path, json!(2));
        subject.refused(Refusal::NotFound, A, || write(subject, said)).map_err(|stop| stop.of(name))?;
    }
    Ok(())
}

pub(super) fn update_of_a_stale_version_is_a_conflict(subject: &Subject) -> Outcome {
    let stale = subject.create(widget("a"))?;
    let current = subject.update(with(stale.clone(), "/data", json!(1)))?;
    let current = subject.update_status(with(current, "/status/x", json!(1)))?;
    for (name, write, path) in WRITES {
        let said = with(stale.clone(), path, json!(2));
        subject.refused(Refusal::Conflict, A, || write(subject, said)).map_err(|stop| stop.of(name))?;
        let said = with(with(stale.clone(), path, json!(2)), "/metadata/resourceVersion", json!("no-version"));
        subject.refused(Refusal::Conflict, A, || write(subject, said)).map_err(|stop| stop.of(name))?;
    }
    // What changes nothing is no less a conflict.
    let said = with(current, "/metadata/resourceVersion", json!(version(&stale)));
    for (name, write, _) in WRITES {
        subject.refused(Refusal::Conflict, A, || write(subject, said.clone())).map_err(|stop| stop.of(name))?;
    }
    Ok(())
}

pub(super) fn update_of_another_uid_is_a_conflict(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    for (name, write, path) in WRITES {
        let said = with(with(created.clone(), path, json!(2)), "/metadata/uid", json!("another"));
        subject.refused(Refusal::Conflict, A, || write(subject, said)).map_err(|stop| stop.of(name))?;
    }
    let mut current = created;
    for (name, write, path) in WRITES {
        let uid = meta(&current, "uid").to_owned();
        current = write(subject, with(without(current, "/metadata/uid"), path, json!(2)))?;
        same(&format!("the uid after {name} without one"), meta(&current, "uid"), &*uid)?;
    }
    Ok(())
}

pub(super) fn update_of_the_object_before_a_deletion_is_a_conflict(subject: &Subject) -> Outcome {
    let first = subject.create(widget("a"))?;
    subject.delete("a")?;
    let second = subject.create(widget("a"))?;
    let said = with(first, "/metadata/resourceVersion", json!(version(&second)));
    for (name, write, path) in WRITES {
        let said = with(said.clone(), path, json!(2));
        subject.refused(Refusal::Conflict, A, || write(subject, said)).map_err(|stop| stop.of(name))?;
    }
    Ok(())
}

pub(super) fn update_without_a_version_is_invalid(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    for (name, write, path) in WRITES {
        for said in [
            without(created.clone(), "/metadata/resourceVersion"),
            with(created.clone(), "/metadata/resourceVersion", json!("")),
        ] {
            let said = with(said, path, json!(2));
            let refused = subject.invalid(A, "metadata.resourceVersion", "", || write(subject, said));
            refused.map_err(|stop| stop.of(name))?;
        }
    }
    Ok(())
}

pub(super) fn update_to_what_is_there_keeps_the_version(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/metadata/labels/app", json!("web")))?;
    let current = subject.update_status(with(created, "/status/ready", json!(true)))?;
    let told = subject.watch(&Query::all(), Some(version(&current)))?;
    for (name, write, _) in WRITES {
        same(name, &write(subject, current.clone())?, &current)?;
        let said =
            with(with(current.clone(), "/metadata/generation", json!(9)), "/metadata/creationTimestamp", json!(null));
        same(name, &write(subject, said)?, &current)?;
    }
    same("what is kept", &subject.get("a")?, &current)?;
    subject.create(widget("b"))?;
    told.tells(&["Added default/b"]).map(drop)
}

pub(super) fn generation_rises_with_what_is_wanted(subject: &Subject) -> Outcome {
    let mut object = subject.create(widget("a"))?;
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
        object = subject.update(with(object, path, value))?;
        same(&format!("generation after {path}"), generation(&object), Some(expected))?;
    }
    object = subject.update_status(with(object, "/status/ready", json!(true)))?;
    same("generation after a status", generation(&object), Some(4))?;
    object = subject.update(without(object, "/spec"))?;
    same("generation after a removal", generation(&object), Some(5))?;
    for (patch, expected) in [
        (json!({"metadata": {"labels": {"app": "db"}}}), 5),
        (json!({"spec": {"size": 5}}), 6),
        (json!({"spec": {"size": 5}}), 6),
        (json!({"metadata": {"generation": 40}}), 6),
    ] {
        same(&format!("generation after {patch}"), generation(&subject.merge("a", patch.clone())?), Some(expected))?;
    }
    let patched = subject.merge_status("a", json!({"status": {"ready": false}}))?;
    same("generation after a patch of the status", generation(&patched), Some(6))?;
    same("generation after a deletion", generation(&subject.delete("a")?), Some(7))
}

pub(super) fn what_the_client_sets_stays_as_it_is(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let mut said = with(created.clone(), "/spec/size", json!(2));
    for field in ["uid", "creationTimestamp", "generation"] {
        said = without(said, &format!("/metadata/{field}"));
    }
    let updated = subject.update(with(said, "/metadata/deletionTimestamp", json!("2001-01-01T00:00:00Z")))?;
    let expected = with(with(created, "/spec/size", json!(2)), "/metadata/generation", json!(2));
    same("what is written", &updated, &with(expected, "/metadata/resourceVersion", json!(version(&updated))))?;
    let patch =
        json!({"metadata": {"creationTimestamp": null, "generation": 0, "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    same("a patch of them", subject.merge("a", patch)?, updated)
}
