//! A model of a Kubernetes API server with a structural schema. It checks the schema, and prunes, defaults and checks
//! objects. It follows `pkg/apiserver/schema` of apiextensions-apiserver 0.36.

use regex_lite::Regex;
use serde_json::{Map, Value};

type Fields = Map<String, Value>;

fn is(schema: &Value, keyword: &str) -> bool {
    schema[keyword] == true
}

fn array<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema[keyword].as_array().map_or(&[], Vec::as_slice)
}

fn fields<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema[keyword].as_object().into_iter().flatten()
}

/// Returns the reasons why a server refuses a schema.
pub(crate) fn faults(schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check_schema(schema, "", &mut faults);
    faults
}

fn check_schema(schema: &Value, path: &str, faults: &mut Vec<String>) {
    let mut fault = |holds: bool, fault: &str| {
        if !holds {
            faults.push(format!("{path}: {fault}: {schema}"));
        }
    };
    let of = schema["type"].as_str();
    let preserves = is(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = is(schema, "x-kubernetes-int-or-string");
    fault(of.is_some() || preserves || int_or_string, "has no type");
    fault(of.is_none_or(|of| of != "null"), "has the type null");
    fault(!(preserves && int_or_string), "has two marks that exclude each other");
    fault(of != Some("array") || schema["items"].is_object(), "has no items");
    fault(!is(schema, "uniqueItems"), "has uniqueItems");
    fault(!array(schema, "enum").contains(&Value::Null), "has null in an enum");
    let has_properties = fields(schema, "properties").next().is_some();
    fault(!has_properties || schema.get("additionalProperties").is_none(), "is a struct and a map");
    let known = ["$ref", "$defs", "patternProperties", "const", "if", "prefixItems", "additionalItems", "definitions"];
    fault(known.iter().all(|keyword| schema.get(keyword).is_none()), "has a forbidden keyword");
    let items = &schema["items"];
    let item_type = items["type"].as_str().unwrap_or_default();
    if let Some(list) = schema["x-kubernetes-list-type"].as_str() {
        fault(of == Some("array"), "is no list");
        fault(list == "atomic" || !is(items, "nullable"), "is a set or map of nullable items");
        fault(list != "set" || !["array", "object"].contains(&item_type), "is a set of objects");
        for key in array(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
            let is_required = array(items, "required").iter().any(|name| name == key);
            fault(list == "map" && item_type == "object", "is no list of objects");
            fault(is_required || items["properties"][key].get("default").is_some(), "has an optional key");
        }
    }
    if let Some(default) = schema.get("default") {
        let mut pruned = default.clone();
        prune(&mut pruned, schema);
        fault(pruned == *default, "has a default with unknown fields");
        if let Err(why) = validate(default, schema) {
            fault(false, &format!("has a default that is refused: {why}"));
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for rule in array(schema, keyword) {
            check_rule(rule, schema, &format!("{path}.{keyword}"), faults);
        }
    }
    if let Some(rule) = schema.get("not") {
        check_rule(rule, schema, &format!("{path}.not"), faults);
    }
    fields(schema, "properties").for_each(|(name, inner)| check_schema(inner, &format!("{path}.{name}"), faults));
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(keyword) {
            check_schema(inner, &format!("{path}.{keyword}"), faults);
        }
    }
}

/// Checks a schema in `allOf`, `anyOf`, `oneOf` or `not`.
fn check_rule(rule: &Value, base: &Value, path: &str, faults: &mut Vec<String>) {
    let forbidden = |keyword: &str| {
        ["type", "default", "description", "nullable", "additionalProperties", "title", "format"].contains(&keyword)
    };
    for (keyword, _) in rule.as_object().unwrap() {
        if forbidden(keyword) || keyword.starts_with("x-") {
            faults.push(format!("{path}: a rule has {keyword}: {rule}"));
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for rule in array(rule, keyword) {
            check_rule(rule, base, path, faults);
        }
    }
    if let Some(not) = rule.get("not") {
        check_rule(not, base, path, faults);
    }
    for (name, inner) in fields(rule, "properties") {
        match base["properties"].get(name) {
            Some(base) if name != "metadata" => check_rule(inner, base, &format!("{path}.{name}"), faults),
            _ => faults.push(format!("{path}: a rule has the unknown field {name}")),
        }
    }
    if let Some(items) = rule.get("items") {
        check_rule(items, &base["items"], path, faults);
    }
}

/// Stores a value. Returns it as clients would read it, or the reason why the server refuses it.
pub(crate) fn store(value: &Value, schema: &Value) -> Result<Value, String> {
    let mut value = value.clone();
    prune(&mut value, schema);
    drop_nulls(&mut value, schema);
    add_defaults(&mut value, schema);
    validate(&value, schema)?;
    Ok(value)
}

/// Returns the schema of a field.
fn schema_of<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))
}

fn prune(value: &mut Value, schema: &Value) {
    let preserves = is(schema, "x-kubernetes-preserve-unknown-fields");
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| preserves || schema_of(schema, name).is_some());
            for (name, value) in fields {
                if let Some(schema) = schema_of(schema, name) {
                    prune(value, schema);
                }
            }
        }
        Value::Array(items) => match schema.get("items") {
            Some(schema) => items.iter_mut().for_each(|item| prune(item, schema)),
            None if preserves => {}
            None => items.iter_mut().for_each(|item| prune(item, &Value::Null)),
        },
        _ => {}
    }
}

fn drop_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let is_dropped = |schema: Option<&Value>| {
                schema.is_some_and(|schema| !is(schema, "nullable") && schema.get("default").is_none())
            };
            fields.retain(|name, value| !(value.is_null() && is_dropped(schema_of(schema, name))));
            for (name, value) in fields {
                drop_nulls(value, schema_of(schema, name).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(item, &schema["items"])),
        _ => {}
    }
}

fn add_defaults(value: &mut Value, schema: &Value) {
    let replaces = |value: &Value, schema: &Value| value.is_null() && !is(schema, "nullable");
    match value {
        Value::Object(object) => {
            for (name, schema) in fields(schema, "properties") {
                if let Some(default) = schema.get("default")
                    && object.get(name).is_none_or(|value| replaces(value, schema))
                {
                    object.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in object {
                if let Some(schema) = schema_of(schema, name) {
                    add_defaults(value, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    if let (true, Some(default)) = (replaces(item, schema), schema.get("default")) {
                        *item = default.clone();
                    }
                    add_defaults(item, schema);
                }
            }
        }
        _ => {}
    }
}

/// Returns an error if a server refuses a value.
fn validate(value: &Value, schema: &Value) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{value} {why}: {schema}"));
    let of = schema["type"].as_str();
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return refuse("is not in the enum");
    }
    if value.is_null() {
        return if of.is_some() && !is(schema, "nullable") { refuse("has the wrong type") } else { Ok(()) };
    }
    let is_integer = value.is_i64() || value.is_u64();
    let has_type = match of {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => is_integer,
        Some("number") => value.is_number(),
        _ => !is(schema, "x-kubernetes-int-or-string") || value.is_string() || is_integer,
    };
    if !has_type {
        return refuse("has the wrong type");
    }
    let limit = |keyword: &str| schema[keyword].as_f64();
    let size = |keyword: &str| schema[keyword].as_u64();
    let is_kept = |rule: &Value| validate(value, rule).is_ok();
    if !array(schema, "allOf").iter().all(is_kept) {
        return refuse("breaks a rule of allOf");
    }
    if schema.get("anyOf").is_some() && !array(schema, "anyOf").iter().any(is_kept) {
        return refuse("keeps no rule of anyOf");
    }
    if schema.get("oneOf").is_some() && array(schema, "oneOf").iter().filter(|rule| is_kept(rule)).count() != 1 {
        return refuse("does not keep one rule of oneOf");
    }
    if schema.get("not").is_some_and(is_kept) {
        return refuse("is excluded");
    }
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let (least, most) = (limit("minimum"), limit("maximum"));
            let is_low =
                least.is_some_and(|least| number < least || (is(schema, "exclusiveMinimum") && number <= least));
            let is_high = most.is_some_and(|most| number > most || (is(schema, "exclusiveMaximum") && number >= most));
            if is_low || is_high {
                return refuse("is out of bounds");
            }
        }
        Value::String(text) => {
            let length = text.chars().count() as u64;
            let pattern = schema["pattern"].as_str().map(|pattern| Regex::new(pattern).unwrap());
            if size("minLength").is_some_and(|least| length < least)
                || size("maxLength").is_some_and(|most| length > most)
                || pattern.is_some_and(|pattern| !pattern.is_match(text))
            {
                return refuse("is another text");
            }
        }
        Value::Array(items) => {
            let length = items.len() as u64;
            if size("minItems").is_some_and(|least| length < least)
                || size("maxItems").is_some_and(|most| length > most)
            {
                return refuse("has another length");
            }
            let keys = array(schema, "x-kubernetes-list-map-keys");
            let key = |item: &Value| match &schema["x-kubernetes-list-type"] {
                list if list == "set" => item.clone(),
                list if list == "map" => keys.iter().map(|key| item[key.as_str().unwrap()].clone()).collect(),
                _ => Value::Null,
            };
            let all: Vec<_> = items.iter().map(key).filter(|key| !key.is_null()).collect();
            if (1..all.len()).any(|at| all[..at].contains(&all[at])) {
                return refuse("repeats an element");
            }
            if let Some(schema) = schema.get("items") {
                items.iter().try_for_each(|item| validate(item, schema))?;
            }
        }
        Value::Object(object) => validate_object(object, schema)?,
        _ => {}
    }
    Ok(())
}

fn validate_object(object: &Fields, schema: &Value) -> Result<(), String> {
    let size = object.len() as u64;
    if schema["minProperties"].as_u64().is_some_and(|least| size < least)
        || schema["maxProperties"].as_u64().is_some_and(|most| size > most)
    {
        return Err(format!("{object:?} has another size: {schema}"));
    }
    if let Some(missing) = array(schema, "required").iter().find(|name| !object.contains_key(name.as_str().unwrap())) {
        return Err(format!("{object:?} lacks {missing}: {schema}"));
    }
    for (name, value) in object {
        if let Some(schema) = schema_of(schema, name) {
            validate(value, schema)?;
        }
    }
    Ok(())
}
