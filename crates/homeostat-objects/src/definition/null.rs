//! Whether schemas accept `null`. Plain values.

use serde_json::{Map, Value, json};

/// Whether a schema accepts `null`, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NullRule {
    Refused,
    /// No keyword is about `null`, so it is accepted.
    Ignored,
    /// A keyword names `null` as a value, or a reference or an alternative does.
    Named,
}

impl NullRule {
    /// Returns the rule of a schema without references. Ignores `not`, except the one that refuses all values.
    pub(super) fn of(schema: &Map<String, Value>) -> Self {
        if schema.get("nullable") == Some(&true.into()) {
            return Self::Named;
        }
        let named = |has_null: bool| if has_null { Self::Named } else { Self::Refused };
        let branches = |branches: &Value| -> Vec<Self> {
            let schemas = branches.as_array().into_iter().flatten();
            schemas.map(|branch| branch.as_object().map_or(Self::Ignored, Self::of)).collect()
        };
        Self::all(schema.iter().map(|(keyword, value)| match &**keyword {
            "type" => named(*value == "null" || includes(value, &"null".into())),
            "enum" => named(includes(value, &Value::Null)),
            "x-kubernetes-int-or-string" if *value == true => Self::Refused,
            "not" if *value == json!({}) => Self::Refused,
            "allOf" => Self::all(branches(value)),
            "anyOf" | "oneOf" => branches(value).into_iter().max().unwrap_or(Self::Refused),
            _ => Self::Ignored,
        }))
    }

    /// Returns the rule of schemas that apply together.
    pub(super) fn all(rules: impl IntoIterator<Item = Self>) -> Self {
        rules.into_iter().fold(Self::Ignored, |one, other| match (one, other) {
            (Self::Refused, _) | (_, Self::Refused) => Self::Refused,
            (one, other) => one.max(other),
        })
    }
}

fn includes(array: &Value, value: &Value) -> bool {
    array.as_array().is_some_and(|all| all.contains(value))
}

/// Removes `null` from the types, values and alternatives of a schema that has others.
pub(super) fn remove_null(schema: &mut Map<String, Value>) {
    let is_object = schema.get("type").is_some_and(|of| of == "object");
    if let Some(types) = schema.get_mut("type") {
        keep_others(types, |name| name == "null");
        if let Some([one]) = types.as_array().map(Vec::as_slice) {
            *types = one.clone();
        }
    }
    if let Some(values) = schema.get_mut("enum") {
        keep_others(values, Value::is_null);
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(branches) = schema.get_mut(keyword) else { continue };
        if let ("anyOf", true, Value::Array(branches)) = (keyword, is_object, &mut *branches) {
            // A flattened unit has no fields.
            let unit = || json!({"type": "object", "properties": {}});
            branches.iter_mut().filter(|branch| is_null(branch)).for_each(|branch| *branch = unit());
        }
        keep_others(branches, is_null);
    }
}

/// Removes the elements that have a property, unless all have it.
fn keep_others(array: &mut Value, has_property: impl Fn(&Value) -> bool) {
    if let Value::Array(all) = array
        && !all.iter().all(&has_property)
    {
        all.retain(|one| !has_property(one));
    }
}

/// Returns whether a schema accepts only `null`.
pub(super) fn is_null(schema: &Value) -> bool {
    let is_part = || schema["allOf"].as_array().is_some_and(|all| all.iter().any(is_null));
    schema["type"] == "null" || schema["enum"] == json!([null]) || is_part()
}
