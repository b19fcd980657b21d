//! Combines schemas that apply together: a `$ref` or `allOf`, and the keywords beside it.

use serde_json::{Value, json};

use super::shape::{ANY_FIELDS, Fields, INT_OR_STRING, any, is_nullable, is_typed, type_name};

/// Keywords that describe the shape of values.
const SHAPE: [&str; 6] = ["type", "nullable", "properties", "additionalProperties", "items", INT_OR_STRING];

/// The outer schema decides these keywords, because it describes the field. The inner schema describes the field's
/// type.
const OUTER: [&str; 3] = ["default", "description", "format"];

const LIST_TYPE: &str = "x-kubernetes-list-type";

/// Returns a schema for the values that both schemas accept. It keeps each field that one of them keeps. `outer`
/// determines descriptions and defaults.
pub(super) fn both(outer: Fields, inner: Fields) -> Fields {
    let mut out = match both_types(outer, inner) {
        Ok((outer, inner)) => extended(outer, inner),
        Err(()) => return any(),
    };
    if out.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty())
        && out.remove("additionalProperties").is_some()
    {
        // A structural schema must not have both.
        out.insert(ANY_FIELDS.to_owned(), true.into());
    }
    if out.get("type").is_some_and(|of| of != "object") {
        out.remove(ANY_FIELDS);
    }
    out
}

/// Gives both schemas the narrower type. Fails if they have no type in common.
fn both_types(mut outer: Fields, mut inner: Fields) -> Result<(Fields, Fields), ()> {
    if is_typed(&outer) && is_typed(&inner) {
        if !(is_nullable(&outer) && is_nullable(&inner)) {
            outer.remove("nullable");
            inner.remove("nullable");
        }
        let (of_outer, of_inner) = (type_name(&outer).to_owned(), type_name(&inner).to_owned());
        let narrower = match (&*of_outer, &*of_inner) {
            (one, other) if one == other || other.is_empty() => one,
            ("", other) => other,
            ("integer", "number") | ("number", "integer") => "integer",
            (INT_OR_STRING, one @ ("integer" | "string")) | (one @ ("integer" | "string"), INT_OR_STRING) => one,
            _ => return Err(()),
        };
        for schema in [&mut outer, &mut inner] {
            schema.remove("type");
            schema.remove(INT_OR_STRING);
            match narrower {
                "" => {}
                INT_OR_STRING => drop(schema.insert(INT_OR_STRING.to_owned(), true.into())),
                name => drop(schema.insert("type".to_owned(), name.into())),
            }
        }
    }
    Ok((outer, inner))
}

fn extended(mut out: Fields, mut inner: Fields) -> Fields {
    // A bound consists of two keywords if it is exclusive.
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if out.contains_key(bound)
            && let Some(limit) = inner.remove(bound)
        {
            let mark = inner.remove(exclusive);
            if out.get(bound) != Some(&limit) || out.get(exclusive) != mark.as_ref() {
                let mut rule = Fields::from_iter([(bound.to_owned(), limit)]);
                rule.extend(mark.map(|mark| (exclusive.to_owned(), mark)));
                add_rule(&mut out, rule);
            }
        }
    }
    if out.contains_key(LIST_TYPE) && out.get(LIST_TYPE) != inner.get(LIST_TYPE) {
        // Only a list of type `map` has keys.
        inner.remove("x-kubernetes-list-map-keys");
    }
    for (keyword, value) in inner {
        let Some(known) = out.get_mut(&keyword) else {
            out.insert(keyword, value);
            continue;
        };
        match (&*keyword, known, value) {
            (_, known, value) if *known == value => {}
            ("properties", Value::Object(known), Value::Object(more)) => {
                for (name, schema) in more {
                    let schema = match known.remove(&name) {
                        Some(outer) => both_values(outer, schema),
                        None => schema,
                    };
                    known.insert(name, schema);
                }
            }
            ("items" | "additionalProperties", known, schema) => *known = both_values(known.take(), schema),
            ("required" | "allOf" | "x-kubernetes-validations", Value::Array(known), Value::Array(more)) => {
                known.extend(more.into_iter().filter(|one| !known.contains(one)).collect::<Vec<_>>());
            }
            (keyword, _, value) if is_rule(keyword) => {
                add_rule(&mut out, Fields::from_iter([(keyword.to_owned(), value)]));
            }
            _ => {}
        }
    }
    out
}

/// Makes a schema also accept `null`.
///
/// A server compares `null` with the values of an `enum`, and refuses an `enum` that contains `null`. It does not
/// check `null` against alternatives, so the values move there.
pub(super) fn with_null(mut schema: Fields) -> Fields {
    schema.insert("nullable".to_owned(), true.into());
    if let Some(values) = schema.remove("enum") {
        schema = both(schema, Fields::from_iter([("anyOf".to_owned(), json!([{"enum": values}]))]));
    }
    schema
}

fn both_values(outer: Value, inner: Value) -> Value {
    match (outer, inner) {
        (Value::Object(outer), Value::Object(inner)) => Value::Object(both(outer, inner)),
        (outer, _) => outer,
    }
}

/// Returns whether a keyword only refuses values, so that it may appear in an `allOf`.
fn is_rule(keyword: &str) -> bool {
    !SHAPE.contains(&keyword) && !OUTER.contains(&keyword) && !keyword.starts_with("x-")
}

/// Adds a rule next to one with the same keyword.
fn add_rule(schema: &mut Fields, rule: Fields) {
    if let Value::Array(rules) = schema.entry("allOf").or_insert_with(|| json!([])) {
        rules.push(rule.into());
    }
}
