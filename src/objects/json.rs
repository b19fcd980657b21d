//! What is read of an object's JSON where the object itself is not made of it.

use jiff::Timestamp;
use serde_json::Value;

use super::key::ObjectKey;
use super::kind::Kind;

/// A text of the metadata; empty if there is none.
pub(crate) fn text_of<'a>(json: &'a Value, field: &str) -> &'a str {
    json["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn key_of(json: &Value) -> ObjectKey {
    ObjectKey::new(text_of(json, "namespace"), text_of(json, "name"))
}

/// The kind that it names.
pub(crate) fn kind_of(json: &Value) -> Kind {
    Kind::of(json["apiVersion"].as_str().unwrap_or_default(), json["kind"].as_str().unwrap_or_default())
}

/// As `metadata` has times: without fractions of a second.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
