//! Compares recorded writes with the expected ones.

use serde_json::{Value, json};

use super::client::{Write, json_of};
use super::difference::{Mismatch, Pair, align, name_of, pretty};
use super::factory::Sample;
use homeostat_objects::json::meta_mut;
use homeostat_objects::{ClientCall, DeleteOptions, FieldOwner, Object, ObjectRef, Patch, PatchTarget, Propagation};

/// An expected write.
#[derive(Debug)]
pub(super) struct Expected {
    write: Write,
    /// Whether the preconditions of a deletion are compared.
    preconditions: bool,
}

impl Expected {
    fn new(write: Write) -> Self {
        Self { write, preconditions: true }
    }
}

fn of(object: &impl Sample, write: fn(ObjectRef, Value) -> Write) -> Expected {
    let object = object.sample();
    let json = json_of(&object);
    let named = ClientCall::Create(json.clone()).object(&object.kind());
    Expected::new(write(named, json))
}

pub(super) fn create(object: &impl Sample) -> Expected {
    of(object, Write::Create)
}

pub(super) fn update(object: &impl Sample) -> Expected {
    of(object, Write::Update)
}

pub(super) fn update_status(object: &impl Sample) -> Expected {
    of(object, Write::UpdateStatus)
}

pub(super) fn patch(object: &impl Sample, patch: Patch, target: PatchTarget) -> Expected {
    Expected::new(Write::Patch(object.sample().object_ref(), patch, target))
}

pub(super) fn apply(fields: &impl Sample, owner: FieldOwner) -> Expected {
    let fields = fields.sample();
    Expected::new(Write::Apply(fields.object_ref(), json_of(&fields), owner))
}

pub(super) fn delete(object: &impl Sample, options: Option<DeleteOptions>) -> Expected {
    let preconditions = options.is_some();
    let write = Write::Delete(object.sample().object_ref(), options.unwrap_or_default());
    Expected { write, preconditions }
}

/// The metadata fields that a client sets and writers send back.
const OF_THE_CLIENT: [&str; 5] =
    ["uid", "generation", "creationTimestamp", "deletionGracePeriodSeconds", "managedFields"];

/// Removes the fields that are not compared: versions always; fields that a client sets and the times of conditions,
/// unless the expected object has them. Conditions are compared by type, in any order.
pub(super) fn comparable(expected: &Value, actual: &Value) -> (Value, Value) {
    let (mut expected, mut actual) = (expected.clone(), actual.clone());
    let (own, other) = (meta_mut(&mut expected), meta_mut(&mut actual));
    own.remove("resourceVersion");
    other.remove("resourceVersion");
    for field in OF_THE_CLIENT {
        if !own.contains_key(field) {
            other.remove(field);
        }
    }
    match_conditions(&expected, &mut actual);
    (expected, actual)
}

/// Matches the conditions of two objects by type: puts the actual ones into the order of the expected ones, and removes
/// the times of those that have no time in the expected status.
fn match_conditions(expected: &Value, actual: &mut Value) {
    let (Some(expected), Some(actual)) = (
        expected.pointer("/status/conditions").and_then(Value::as_array),
        actual.pointer_mut("/status/conditions").and_then(Value::as_array_mut),
    ) else {
        return;
    };
    let place = |condition: &Value| expected.iter().position(|known| known["type"] == condition["type"]);
    actual.sort_by_key(|condition| place(condition).unwrap_or(expected.len()));
    for condition in actual {
        let timeless = |known: &Value| known["type"] == condition["type"] && known["lastTransitionTime"].is_null();
        if expected.iter().any(timeless)
            && let Some(fields) = condition.as_object_mut()
        {
            fields.remove("lastTransitionTime");
        }
    }
}

fn verb_and_object(write: &Write) -> (&'static str, &ObjectRef) {
    match write {
        Write::Create(object, _) => ("create", object),
        Write::Update(object, _) => ("update", object),
        Write::UpdateStatus(object, _) => ("status update", object),
        Write::Patch(object, _, PatchTarget::Object) => ("patch", object),
        Write::Patch(object, _, PatchTarget::Status) => ("status patch", object),
        Write::Apply(object, _, FieldOwner { target: PatchTarget::Object, .. }) => ("apply", object),
        Write::Apply(object, _, FieldOwner { target: PatchTarget::Status, .. }) => ("status apply", object),
        Write::Delete(object, _) => ("delete", object),
    }
}

/// Returns a write in one line.
fn title(write: &Write) -> String {
    let (verb, object) = verb_and_object(write);
    format!("{verb} {}", name_of(object.kind(), object.key()))
}

/// Returns a write in one line, with the API version and without the data.
fn full_title(write: &Write) -> String {
    let (verb, object) = verb_and_object(write);
    format!("{verb} {} {}", object.kind(), object.key())
}

/// Returns the sent data as JSON.
fn body(write: &Write) -> Value {
    match write {
        Write::Create(_, object) | Write::Update(_, object) => object.clone(),
        Write::UpdateStatus(_, object) => json!({"status": object["status"]}),
        Write::Patch(_, Patch::Merge(patch), _) => json!({"merge": patch}),
        Write::Patch(_, Patch::Json(patch), _) => json!({"json": patch}),
        Write::Apply(_, fields, owner) => json!({"owner": owner.name, "force": owner.force, "fields": fields}),
        Write::Delete(_, DeleteOptions { uid, resource_version, propagation, purge, grace_period, .. }) => json!({
            "uid": uid, "resourceVersion": resource_version, "purge": purge,
            "gracePeriod": grace_period.map(|time| format!("{time:?}")),
            "propagation": match propagation {
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
                Propagation::Orphan => "Orphan",
            },
        }),
    }
}

/// Returns the data of both writes, without the fields that are not compared.
fn bodies(expected: &Expected, actual: &Write) -> (Value, Value) {
    let (mut own, mut other) = (body(&expected.write), body(actual));
    match (&expected.write, actual) {
        (Write::Update(..), Write::Update(..)) => return comparable(&own, &other),
        (Write::UpdateStatus(..), Write::UpdateStatus(..)) => match_conditions(&own, &mut other),
        (Write::Patch(_, Patch::Merge(_), _), Write::Patch(_, Patch::Merge(_), _)) => {
            if own.pointer("/merge/metadata/resourceVersion").is_none()
                && let Some(Value::Object(meta)) = other.pointer_mut("/merge/metadata")
            {
                meta.remove("resourceVersion");
                if meta.is_empty() && own.pointer("/merge/metadata").is_none() {
                    other["merge"].as_object_mut().map(|fields| fields.remove("metadata"));
                }
            }
            match_conditions(&own["merge"], &mut other["merge"]);
        }
        (Write::Apply(..), Write::Apply(..)) => match_conditions(&own["fields"], &mut other["fields"]),
        (Write::Delete(..), Write::Delete(..)) if !expected.preconditions => {
            for fields in [&mut own, &mut other].into_iter().filter_map(Value::as_object_mut) {
                fields.retain(|field, _| field != "uid" && field != "resourceVersion");
            }
        }
        _ => {}
    }
    (own, other)
}

/// Adds the differences between the expected and the actual writes.
pub(super) fn check(expected: &[Expected], actual: &[Write], mismatches: &mut Vec<Mismatch>) {
    let expected_titles: Vec<_> = expected.iter().map(|expected| title(&expected.write)).collect();
    let actual_titles: Vec<_> = actual.iter().map(title).collect();
    for pair in align(&expected_titles, &actual_titles) {
        mismatches.extend(match pair {
            Pair::Both(own, other) => differs(&expected_titles[own], &expected[own], &actual[other]),
            Pair::Missing(own) => {
                let body = pretty(&body(&expected[own].write));
                Some(Mismatch::new(format!("missing {}", expected_titles[own]), body))
            }
            Pair::Unexpected(other) => {
                Some(Mismatch::new(format!("unexpected {}", actual_titles[other]), pretty(&body(&actual[other]))))
            }
        });
    }
}

fn differs(what: &str, expected: &Expected, actual: &Write) -> Option<Mismatch> {
    let bodies = bodies(expected, actual);
    let (mut own, mut other) = (pretty(&bodies.0), pretty(&bodies.1));
    let titles = (full_title(&expected.write), full_title(actual));
    if titles.0 != titles.1 {
        own = format!("{}\n{own}", titles.0);
        other = format!("{}\n{other}", titles.1);
    }
    Mismatch::differs(what, &own, &other)
}
