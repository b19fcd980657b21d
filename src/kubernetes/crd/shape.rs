//! The parts of a structural schema.

use serde_json::{Map, Value};

/// The keywords of a schema.
pub(super) type Fields = Map<String, Value>;

/// The mark of a schema that keeps the fields that it does not name.
pub(super) const ANY_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";
/// The mark of a schema of integers and texts.
pub(super) const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
/// The mark of a schema of whole objects.
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// The schema of any value. A server drops a field that is `null` unless its schema has the mark `nullable`.
pub(super) fn any() -> Fields {
    Fields::from_iter([(ANY_FIELDS.to_owned(), true.into()), ("nullable".to_owned(), true.into())])
}

/// The schema of any value except for `null`.
pub(super) fn any_but_null() -> Fields {
    Fields::from_iter([(ANY_FIELDS.to_owned(), true.into())])
}

/// The schema of a type.
pub(super) fn of_type(name: &str) -> Fields {
    Fields::from_iter([("type".to_owned(), name.into())])
}

/// Returns whether a schema says which type its values have, or that they may have any.
pub(super) fn is_typed(schema: &Fields) -> bool {
    schema.contains_key("type") || schema.contains_key(INT_OR_STRING) || schema.contains_key(ANY_FIELDS)
}

/// Returns whether a schema keeps values of any type.
pub(super) fn is_any(schema: &Fields) -> bool {
    schema.contains_key(ANY_FIELDS) && !schema.contains_key("type")
}

/// Returns whether a schema keeps fields of any name and with any value.
pub(super) fn has_any_fields(schema: &Fields) -> bool {
    schema.contains_key(ANY_FIELDS) || schema.contains_key(EMBEDDED)
}

/// Returns the properties of a schema.
pub(super) fn properties(schema: &Fields) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Returns the texts of an array, such as `required`.
pub(super) fn texts<'a>(schema: &'a Fields, keyword: &str) -> impl Iterator<Item = &'a str> {
    schema.get(keyword).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
