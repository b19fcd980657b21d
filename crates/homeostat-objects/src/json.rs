//! Reads single fields from the JSON of an object, and finds what `serde_json` would alter.
//!
//! ```
//! use homeostat_objects::json;
//! use serde_json::json;
//!
//! let mut pod = json!({"kind": "Pod", "metadata": {"namespace": "default", "name": "web"}});
//! json::meta_mut(&mut pod).insert("uid".to_owned(), "4d6f".into());
//! assert_eq!((json::string(&pod, "kind"), json::meta_string(&pod, "uid")), ("Pod", "4d6f"));
//! assert_eq!(json::key_of(&pod).to_string(), "default/web");
//! ```

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::key::ObjectKey;
use super::kind::Kind;
use super::value_ref::ValueRef;

pub use super::json_text::{JsonToken, altered_integer, tokens};

/// Returns a field of the metadata.
pub(crate) fn meta_field<'a>(json: impl Into<ValueRef<'a>>, field: &str) -> Option<ValueRef<'a>> {
    json.into().get("metadata")?.get(field)
}

/// Returns a string field of an object; empty if it is missing.
pub fn string<'a>(json: impl Into<ValueRef<'a>>, field: &str) -> &'a str {
    json.into().get(field).and_then(ValueRef::as_str).unwrap_or_default()
}

/// Returns a string field of the metadata; empty if it is missing.
pub fn meta_string<'a>(json: impl Into<ValueRef<'a>>, field: &str) -> &'a str {
    meta_field(json, field).and_then(ValueRef::as_str).unwrap_or_default()
}

/// Returns the namespace and name of an object as its key.
pub fn key_of<'a>(json: impl Into<ValueRef<'a>>) -> ObjectKey {
    let (namespace, name) = names_of(json);
    ObjectKey::new(namespace, name)
}

/// Returns the namespace and name of an object; empty if missing.
pub fn names_of<'a>(json: impl Into<ValueRef<'a>>) -> (&'a str, &'a str) {
    json.into().get("metadata").map_or(("", ""), |meta| (string(meta, "namespace"), string(meta, "name")))
}

/// Returns the kind of an object or of an owner reference.
pub(crate) fn kind_of<'a>(json: impl Into<ValueRef<'a>>) -> Kind {
    let json = json.into();
    Kind::of(string(json, "apiVersion"), string(json, "kind"))
}

/// Drops the fraction of the second, because times in `metadata` have none.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns a time with six decimal places of the second: a server reads a `MicroTime` only in this form.
pub(crate) fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns the uid of an owner reference.
pub(crate) fn uid_of<'a>(owner: impl Into<ValueRef<'a>>) -> &'a str {
    string(owner, "uid")
}

/// Returns the entries of `ownerReferences`.
pub fn owners_of<'a>(json: impl Into<ValueRef<'a>>) -> impl Iterator<Item = ValueRef<'a>> {
    meta_field(json, "ownerReferences").into_iter().flat_map(ValueRef::items)
}

pub(crate) fn finalizers_of<'a>(json: impl Into<ValueRef<'a>>) -> impl Iterator<Item = &'a str> {
    meta_field(json, "finalizers").into_iter().flat_map(ValueRef::items).filter_map(ValueRef::as_str)
}

pub(crate) fn is_deleting<'a>(json: impl Into<ValueRef<'a>>) -> bool {
    meta_field(json, "deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Returns the metadata for changes, and creates it if it is missing.
pub fn meta_mut(json: &mut Value) -> &mut Map<String, Value> {
    if !json["metadata"].is_object() {
        json["metadata"] = Value::Object(Map::new());
    }
    match &mut json["metadata"] {
        Value::Object(meta) => meta,
        _ => unreachable!("made just now"),
    }
}
