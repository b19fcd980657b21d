//! Widens the schema for reading with the schema for writing.
//!
//! They differ if the type has fields with `skip_deserializing` or `skip_serializing`, different names for each
//! direction, or a `from` and an `into`.

use serde_json::Value;

use super::both::with_null;
use super::shape::{
    ANY_FIELDS, Fields, INT_OR_STRING, any_but_null, has_any_fields, is_any, is_nullable, of_type, type_name,
};

/// Makes the schema `read` accept and keep every value that the schema `written` accepts. Keeps the defaults and
/// required fields of `read`, except fields that are never written.
pub(super) fn widen(read: &mut Fields, written: &Fields) {
    if read == written || is_any(read) {
        return;
    }
    match (type_name(read).to_owned().as_str(), type_name(written)) {
        ("object", "object") => widen_object(read, written),
        ("array", "array") => widen_at(read, written, "items"),
        (one, other) if one == other => widen_scalar(read, written),
        ("number", "integer") | (INT_OR_STRING, "integer" | "string") => {}
        ("integer", "number") => replace(read, of_type("number")),
        _ => replace(read, any_but_null()),
    }
    if is_nullable(written) {
        *read = with_null(std::mem::take(read));
    }
}

fn widen_object(read: &mut Fields, written: &Fields) {
    let mut has_new = false;
    let none = Fields::new();
    let named = written.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let is_map = read.contains_key("additionalProperties");
    if !(is_map || named.is_empty())
        && let Value::Object(known) = read.entry("properties").or_insert_with(|| Fields::new().into())
    {
        for (name, schema) in named {
            match (known.get_mut(name), schema) {
                (Some(Value::Object(read)), Value::Object(written)) => widen(read, written),
                (Some(_), _) => {}
                (None, schema) => {
                    has_new = true;
                    known.insert(name.clone(), without_defaults(schema.clone()));
                }
            }
        }
    }
    if let Some(Value::Array(required)) = read.get_mut("required")
        && !has_any_fields(written)
        && !written.contains_key("additionalProperties")
    {
        required.retain(|name| name.as_str().is_some_and(|name| named.contains_key(name)));
        if required.is_empty() {
            read.remove("required");
        }
    }
    if is_map && written.contains_key("additionalProperties") {
        widen_at(read, written, "additionalProperties");
    } else if has_any_fields(written) || is_map || written.contains_key("additionalProperties") {
        read.remove("additionalProperties");
        read.insert(ANY_FIELDS.to_owned(), true.into());
    }
    if has_new {
        // They only name the fields of alternatives for reading.
        read.remove("oneOf");
        read.remove("anyOf");
    }
}

fn widen_at(read: &mut Fields, written: &Fields, keyword: &str) {
    if let (Some(Value::Object(read)), Some(Value::Object(written))) = (read.get_mut(keyword), written.get(keyword)) {
        widen(read, written);
    }
}

/// Adds the values of an enum. A variant may have different names for reading and writing.
fn widen_scalar(read: &mut Fields, written: &Fields) {
    let new = written.get("enum").and_then(Value::as_array);
    match (read.get_mut("enum"), new) {
        (Some(Value::Array(known)), Some(new)) => {
            known.extend(new.iter().filter(|value| !known.contains(value)).cloned().collect::<Vec<_>>());
        }
        (Some(_), _) => drop(read.remove("enum")),
        (None, _) => {}
    }
    if read.get("anyOf") != written.get("anyOf") {
        read.remove("anyOf");
    }
}

/// Replaces everything except the description.
fn replace(read: &mut Fields, by: Fields) {
    let accepts_null = is_nullable(read);
    read.retain(|keyword, _| keyword == "description");
    read.extend(by);
    if accepts_null {
        read.insert("nullable".to_owned(), true.into());
    }
}

fn without_defaults(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.remove("default");
        for keyword in ["items", "additionalProperties"] {
            if let Some(inner) = fields.get_mut(keyword) {
                *inner = without_defaults(inner.take());
            }
        }
        if let Some(Value::Object(named)) = fields.get_mut("properties") {
            named.values_mut().for_each(|inner| *inner = without_defaults(inner.take()));
        }
    }
    schema
}
