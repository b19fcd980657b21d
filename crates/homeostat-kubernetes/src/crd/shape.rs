//! The parts of a structural schema.

use serde_json::{Map, Value};

/// The keywords of a schema.
pub(super) type Fields = Map<String, Value>;

/// Marks a schema that keeps fields that it does not name.
pub(super) const ANY_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";
/// Marks a schema for integers and texts.
pub(super) const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
/// Marks a schema for complete objects.
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Keywords that limit values. Schemas and rules have the same ones.
pub(super) const LIMITS: [&str; 11] = [
    "enum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
];

/// The schema for any value. Without `nullable`, a server would drop a field that is `null`.
pub(super) fn any() -> Fields {
    Fields::from_iter([(ANY_FIELDS.to_owned(), true.into()), ("nullable".to_owned(), true.into())])
}

/// The schema for any value except `null`.
pub(super) fn any_but_null() -> Fields {
    Fields::from_iter([(ANY_FIELDS.to_owned(), true.into())])
}

/// The schema for values of one type.
pub(super) fn of_type(name: &str) -> Fields {
    Fields::from_iter([("type".to_owned(), name.into())])
}

/// Returns whether a schema states the type of its values, or allows any type.
pub(super) fn is_typed(schema: &Fields) -> bool {
    schema.contains_key("type") || schema.contains_key(INT_OR_STRING) || schema.contains_key(ANY_FIELDS)
}

/// Returns the type of a schema's values: [`INT_OR_STRING`] for both of these, empty if the schema states none.
pub(super) fn type_name(schema: &Fields) -> &str {
    match schema.get("type").and_then(Value::as_str) {
        None if schema.contains_key(INT_OR_STRING) => INT_OR_STRING,
        name => name.unwrap_or_default(),
    }
}

/// Returns whether a schema accepts null.
pub(super) fn is_nullable(schema: &Fields) -> bool {
    schema.get("nullable") == Some(&true.into())
}

/// Returns whether a schema keeps values of any type.
pub(super) fn is_any(schema: &Fields) -> bool {
    schema.contains_key(ANY_FIELDS) && !schema.contains_key("type")
}

/// Returns whether a schema keeps fields with any name and value.
pub(super) fn has_any_fields(schema: &Fields) -> bool {
    schema.contains_key(ANY_FIELDS) || schema.contains_key(EMBEDDED)
}

/// Returns the properties of a schema.
pub(super) fn properties(schema: &Fields) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Returns the texts in an array, such as `required`.
pub(super) fn texts<'a>(schema: &'a Fields, keyword: &str) -> impl Iterator<Item = &'a str> {
    schema.get(keyword).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
