//! Removes the defaults that a server refuses.

use regex_lite::Regex;
use serde_json::Value;

use super::shape::{Fields, INT_OR_STRING, has_any_fields, is_nullable, is_typed, properties, texts};

/// Removes defaults that violate their own schema, because a server refuses a definition with them. Also removes
/// defaults with an empty text, which mean the same as a missing field, and which some servers read as `null`. The
/// type still sets all of them when it reads an object.
pub(super) fn remove_refused_defaults(schema: &mut Fields) {
    if schema.get("default").is_some_and(|default| has_empty_text(default) || !accepts(schema, default)) {
        schema.remove("default");
    }
    for keyword in ["items", "additionalProperties"] {
        schema.get_mut(keyword).and_then(Value::as_object_mut).map(remove_refused_defaults);
    }
    if let Some(Value::Object(named)) = schema.get_mut("properties") {
        named.values_mut().filter_map(Value::as_object_mut).for_each(remove_refused_defaults);
    }
}

fn has_empty_text(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.iter().any(has_empty_text),
        Value::Object(fields) => fields.values().any(has_empty_text),
        _ => false,
    }
}

/// Returns whether a value satisfies a schema or a rule. Does not check formats and CEL rules.
fn accepts(schema: &Fields, value: &Value) -> bool {
    if let Some(Value::Array(values)) = schema.get("enum")
        && !values.contains(value)
    {
        return false;
    }
    if value.is_null() {
        // For `null`, a server checks nothing else.
        return is_nullable(schema) || !schema.contains_key("type");
    }
    let number = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let is_within = |size: usize, of: &str| {
        let limit = |keyword: String| schema.get(&keyword).and_then(Value::as_u64);
        limit(format!("min{of}")).is_none_or(|least| size as u64 >= least)
            && limit(format!("max{of}")).is_none_or(|most| size as u64 <= most)
    };
    let branches = |keyword: &str| schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice);
    let is_kept = |rule: &Value| rule.as_object().is_none_or(|rule| accepts(rule, value));
    has_type(schema, value)
        && branches("allOf").is_none_or(|all| all.iter().all(is_kept))
        && branches("anyOf").is_none_or(|all| all.iter().any(is_kept))
        && branches("oneOf").is_none_or(|all| all.iter().filter(|rule| is_kept(rule)).count() == 1)
        && schema.get("not").is_none_or(|rule| !is_kept(rule))
        && match value {
            Value::Null | Value::Bool(_) => true,
            Value::Number(value) => {
                let value = value.as_f64().unwrap_or_default();
                let excludes = |keyword: &str| schema.get(keyword) == Some(&true.into());
                number("minimum").is_none_or(|least| value > least || (value >= least && !excludes("exclusiveMinimum")))
                    && number("maximum")
                        .is_none_or(|most| value < most || (value <= most && !excludes("exclusiveMaximum")))
                    && number("multipleOf").is_none_or(|step| (value / step).fract() == 0.0)
            }
            Value::String(text) => {
                let pattern =
                    schema.get("pattern").and_then(Value::as_str).and_then(|pattern| Regex::new(pattern).ok());
                is_within(text.chars().count(), "Length") && pattern.is_none_or(|pattern| pattern.is_match(text))
            }
            Value::Array(items) => {
                let of = schema.get("items").and_then(Value::as_object);
                is_within(items.len(), "Items") && items.iter().all(|item| of.is_none_or(|of| accepts(of, item)))
            }
            Value::Object(fields) => {
                is_within(fields.len(), "Properties")
                    && texts(schema, "required").all(|name| fields.contains_key(name))
                    && fields.iter().all(|(name, value)| accepts_field(schema, name, value))
            }
        }
}

fn accepts_field(schema: &Fields, name: &str, value: &Value) -> bool {
    let named = properties(schema).find(|(known, _)| *known == name).map(|(_, named)| named);
    match named.or_else(|| schema.get("additionalProperties")) {
        Some(of) => of.as_object().is_none_or(|of| accepts(of, value)),
        None => has_any_fields(schema) || !is_typed(schema),
    }
}

fn has_type(schema: &Fields, value: &Value) -> bool {
    let is_integer = || value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => is_integer(),
        Some("number") => value.is_number(),
        Some(_) => false,
        None => !schema.contains_key(INT_OR_STRING) || value.is_string() || is_integer(),
    }
}
