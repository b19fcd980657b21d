//! Reads single fields from the JSON of an object.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::key::ObjectKey;
use super::kind::Kind;

/// Returns a text of the metadata; empty if it is missing.
pub(crate) fn text_of<'a>(json: &'a Value, field: &str) -> &'a str {
    json["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn key_of(json: &Value) -> ObjectKey {
    ObjectKey::new(text_of(json, "namespace"), text_of(json, "name"))
}

/// Returns the kind of an object or of an owner reference.
pub(crate) fn kind_of(json: &Value) -> Kind {
    Kind::of(json["apiVersion"].as_str().unwrap_or_default(), json["kind"].as_str().unwrap_or_default())
}

/// Cuts off the fractions of a second, as times in `metadata` have none.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns the uid of a `metadata` or of an owner reference.
pub(crate) fn uid_of(meta: &Value) -> &str {
    meta["uid"].as_str().unwrap_or_default()
}

pub(crate) fn owners_of(json: &Value) -> impl Iterator<Item = &Value> {
    json["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

pub(crate) fn finalizers_of(json: &Value) -> impl Iterator<Item = &str> {
    json["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

pub(crate) fn is_deleting(json: &Value) -> bool {
    !json["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the metadata for changes, created if it is missing.
pub(crate) fn meta_mut(json: &mut Value) -> &mut Map<String, Value> {
    if !json["metadata"].is_object() {
        json["metadata"] = Value::Object(Map::new());
    }
    match &mut json["metadata"] {
        Value::Object(meta) => meta,
        _ => unreachable!("made just now"),
    }
}
