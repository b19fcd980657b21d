//! Applies fields under an owner: a simple form of Kubernetes' "Server-Side Apply".
//!
//! As in Kubernetes, `metadata.managedFields` records the owners of the fields. A write other than apply ends the ownership of
//! the fields that it changes. An owned field therefore always has the value that its owners applied.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::objects::FieldOwner;
use crate::objects::json::meta_mut;

/// The names from the top of an object to a field.
type Path = Vec<String>;

/// A field that another owner has applied with another value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Clash {
    pub(super) field: String,
    pub(super) owner: String,
}

/// Fields of the metadata that cannot be owned.
const UNOWNED: [&str; 10] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "selfLink",
];

/// Returns the object with the applied fields, and its new `managedFields`.
pub(super) fn apply(
    current: Option<&Value>,
    applied: &Value,
    owner: &FieldOwner,
    api_version: &str,
    now: Timestamp,
) -> Result<(Value, Value), Clash> {
    let fields = fields_of(applied);
    let Some(current) = current else {
        return Ok((applied.clone(), json!([entry(owner, api_version, now, &fields)])));
    };
    let (mut before, mut own) = (BTreeSet::new(), None);
    let mut others = BTreeSet::new();
    let mut entries = Vec::new();
    for known in current["metadata"]["managedFields"].as_array().into_iter().flatten() {
        if known["operation"] != "Apply" {
            entries.push(known.clone());
            continue;
        }
        let mut theirs = BTreeSet::new();
        read(&known["fieldsV1"], &mut Vec::new(), &mut theirs);
        if known["manager"] == owner.name {
            (before, own) = (theirs, Some(known.clone()));
            continue;
        }
        let clash = |path: &Path| fields.iter().any(|field| takes(current, applied, field, path));
        if owner.force {
            theirs.retain(|path| !clash(path));
        } else if let Some(path) = theirs.iter().find(|path| clash(path)) {
            let owner = known["manager"].as_str().unwrap_or_default().to_owned();
            return Err(Clash { field: path.join("."), owner });
        }
        if !theirs.is_empty() {
            let mut known = known.clone();
            known["fieldsV1"] = written(&theirs);
            entries.push(known);
        }
        others.extend(theirs);
    }
    let mut next = current.clone();
    merge(&mut next, applied);
    let is_kept = |path: &[String]| fields.iter().chain(&others).any(|kept| kept.starts_with(path));
    for path in before.iter().filter(|path| !is_kept(path)) {
        remove(&mut next, path, 1, &is_kept);
    }
    // If nothing changes, keep the old time, so that applying again writes nothing.
    let own = own.filter(|_| before == fields && next == *current);
    let location = entries.partition_point(|entry| entry["manager"].as_str() < Some(&owner.name));
    entries.insert(location, own.unwrap_or_else(|| entry(owner, api_version, now, &fields)));
    meta_mut(&mut next).remove("managedFields");
    Ok((next, Value::Array(entries)))
}

/// Returns the new `managedFields` after a write other than apply, or `None` if they stay. Owners lose the fields that the write
/// has changed.
pub(super) fn disown(current: &Value, next: &Value) -> Option<Value> {
    let mut entries = current["metadata"]["managedFields"].as_array()?.clone();
    let mut lost = false;
    entries.retain_mut(|entry| {
        let mut fields = BTreeSet::new();
        read(&entry["fieldsV1"], &mut Vec::new(), &mut fields);
        let before = fields.len();
        fields.retain(|path| !differs(at(current, path), at(next, path)));
        if fields.len() < before {
            lost = true;
            entry["fieldsV1"] = written(&fields);
        }
        !fields.is_empty() || before == 0
    });
    lost.then_some(Value::Array(entries))
}

/// Returns whether two values of a field differ. Two objects count as equal, because fields can be added to either.
fn differs(one: Option<&Value>, other: Option<&Value>) -> bool {
    one != other && !(one.is_some_and(Value::is_object) && other.is_some_and(Value::is_object))
}

fn entry(owner: &FieldOwner, api_version: &str, now: Timestamp, fields: &BTreeSet<Path>) -> Value {
    json!({
        "manager": owner.name, "operation": "Apply", "apiVersion": api_version, "time": now.to_string(),
        "fieldsType": "FieldsV1", "fieldsV1": written(fields),
    })
}

/// Returns the fields that an applied object sets: values that are no objects, and empty objects.
fn fields_of(applied: &Value) -> BTreeSet<Path> {
    fn walk(value: &Value, path: &mut Path, fields: &mut BTreeSet<Path>) {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                for (name, value) in inner {
                    let skip = match path.as_slice() {
                        [] => matches!(name.as_str(), "apiVersion" | "kind" | "status"),
                        [top] => top == "metadata" && UNOWNED.contains(&name.as_str()),
                        _ => false,
                    };
                    if !skip {
                        path.push(name.clone());
                        walk(value, path, fields);
                        path.pop();
                    }
                }
            }
            _ => drop(fields.insert(path.clone())),
        }
    }
    let mut fields = BTreeSet::new();
    walk(applied, &mut Vec::new(), &mut fields);
    fields.remove(&Vec::new());
    fields
}

/// Returns whether applying `field` changes the value that an owner has at `path`.
fn takes(current: &Value, applied: &Value, field: &Path, path: &Path) -> bool {
    if path.starts_with(field) {
        differs(at(current, field), at(applied, field))
    } else {
        field.starts_with(path) && at(current, path).is_some_and(|is| !is.is_object())
    }
}

fn at<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Removes the field at a path, unless it is kept, and then the objects around it that are empty now.
fn remove(object: &mut Value, path: &[String], depth: usize, is_kept: &dyn Fn(&[String]) -> bool) {
    let Some(fields) = object.as_object_mut() else { return };
    let (way, name) = (&path[..depth], &path[depth - 1]);
    let Some(inner) = fields.get_mut(name) else { return };
    if depth < path.len() {
        remove(inner, path, depth + 1, is_kept);
    }
    let is_empty = inner.as_object().map(Map::is_empty);
    if is_empty.unwrap_or(depth == path.len()) && !is_kept(way) {
        fields.remove(name);
    }
}

/// `{"f:spec": {"f:replicas": {}}}`
fn written(fields: &BTreeSet<Path>) -> Value {
    let mut json = json!({});
    for path in fields {
        let mut inner = &mut json;
        for name in path {
            inner = &mut inner[format!("f:{name}")];
            if inner.is_null() {
                *inner = json!({});
            }
        }
    }
    json
}

fn read(json: &Value, path: &mut Path, fields: &mut BTreeSet<Path>) {
    let inner = json.as_object();
    if inner.is_none_or(Map::is_empty) && !path.is_empty() {
        fields.insert(path.clone());
    }
    for (name, value) in inner.into_iter().flatten() {
        path.push(name.strip_prefix("f:").unwrap_or(name).to_owned());
        read(value, path, fields);
        path.pop();
    }
}
