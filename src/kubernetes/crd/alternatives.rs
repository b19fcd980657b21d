//! Combines the alternatives of an enum into one structural schema.

use serde_json::{Map, Value, json};

/// The keywords of a schema.
pub(super) type Fields = Map<String, Value>;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The schema of any value.
pub(super) fn any() -> Fields {
    Fields::from_iter([(PRESERVE.to_owned(), true.into())])
}

/// Returns whether a schema accepts any value, apart from its description.
pub(super) fn is_any(schema: &Fields) -> bool {
    schema.contains_key(PRESERVE) && !schema.contains_key("type")
}

/// Returns a structural schema that accepts each value that one of the schemas accepts. It may accept more.
pub(super) fn combine(mut schemas: Vec<Fields>, keyword: &str) -> Fields {
    if schemas.len() == 1 {
        return schemas.swap_remove(0);
    }
    let is_nullable = schemas.iter().any(|schema| schema.get("nullable") == Some(&true.into()));
    let mut types: Vec<_> = schemas.iter().map(|schema| schema.get("type").and_then(Value::as_str)).collect();
    types.sort_unstable();
    types.dedup();
    let mut combined = match types[..] {
        [Some("object")] => objects(schemas, keyword),
        [Some("array")] => arrays(schemas),
        [Some(name)] => scalars(name, &schemas, keyword),
        [Some("integer"), Some("number")] => typed("number"),
        [Some("integer"), Some("string")] => {
            Fields::from_iter([("x-kubernetes-int-or-string".to_owned(), true.into())])
        }
        _ => any(),
    };
    if is_nullable {
        combined.insert("nullable".to_owned(), true.into());
    }
    combined
}

fn typed(name: &str) -> Fields {
    Fields::from_iter([("type".to_owned(), name.into())])
}

fn arrays(schemas: Vec<Fields>) -> Fields {
    let items = schemas.into_iter().filter_map(|mut schema| schema.remove("items"));
    let items = items.filter_map(|items| if let Value::Object(items) = items { Some(items) } else { None });
    let mut array = typed("array");
    array.insert("items".to_owned(), Value::Object(same_or_combined(items.collect())));
    array
}

/// Combines values of one type: the values of enums, or the rules of each alternative.
fn scalars(name: &str, schemas: &[Fields], keyword: &str) -> Fields {
    let mut scalar = typed(name);
    let enums: Option<Vec<_>> = schemas.iter().map(|schema| schema.get("enum")?.as_array()).collect();
    if let Some(enums) = enums {
        let mut values: Vec<Value> = Vec::new();
        for value in enums.into_iter().flatten() {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        scalar.insert("enum".to_owned(), values.into());
        return scalar;
    }
    let rules = |schema: &Fields| -> Fields {
        let rules = schema.iter().filter(|(keyword, _)| {
            ["enum", "maximum", "minimum", "maxLength", "minLength", "pattern"].contains(&keyword.as_str())
        });
        rules.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
    };
    with_rules(scalar, schemas.iter().map(rules).collect(), keyword)
}

/// Combines objects: they may have the properties of all, and must have the required ones of an alternative.
fn objects(schemas: Vec<Fields>, keyword: &str) -> Fields {
    let mut names: Vec<(String, Vec<Fields>)> = Vec::new();
    let mut maps = Vec::new();
    let (mut rules, mut keeps_unknown) = (Vec::new(), false);
    for mut schema in schemas {
        keeps_unknown |= schema.contains_key(PRESERVE);
        rules.push(rules_of(&schema));
        maps.push(schema.remove("additionalProperties"));
        let description = schema.remove("description");
        let Some(Value::Object(properties)) = schema.remove("properties") else { continue };
        let is_single = properties.len() == 1;
        for (name, property) in properties {
            let Value::Object(mut property) = property else { continue };
            // The comment of a variant belongs to the property that holds it.
            if let (true, Some(description)) = (is_single, &description) {
                property.entry("description").or_insert_with(|| description.clone());
            }
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(property),
                None => names.push((name, vec![property])),
            }
        }
    }
    let mut object = typed("object");
    let is_map = names.is_empty() && maps.iter().all(|values| *values == maps[0]);
    match maps.swap_remove(0) {
        Some(values) if is_map => drop(object.insert("additionalProperties".to_owned(), values)),
        first => keeps_unknown |= first.is_some() || maps.iter().any(Option::is_some),
    }
    if keeps_unknown {
        object.insert(PRESERVE.to_owned(), true.into());
    }
    if !names.is_empty() {
        let properties = names.into_iter().map(|(name, all)| (name, Value::Object(same_or_combined(all))));
        object.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    with_rules(object, rules, keyword)
}

/// Returns the rules that tell an alternative from others: its required fields, and its tags.
fn rules_of(schema: &Fields) -> Fields {
    let mut rules = Fields::new();
    if let Some(required) = schema.get("required") {
        rules.insert("required".to_owned(), required.clone());
    }
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let tags = properties.filter_map(|(name, property)| {
        let values = property.get("enum")?.as_array().filter(|values| values.len() == 1)?;
        Some((name.clone(), json!({"enum": values})))
    });
    let tags: Fields = tags.collect();
    if !tags.is_empty() {
        rules.insert("properties".to_owned(), Value::Object(tags));
    }
    rules
}

/// Demands the rules of one alternative, unless one has no rules.
fn with_rules(mut schema: Fields, rules: Vec<Fields>, keyword: &str) -> Fields {
    if !rules.iter().any(Fields::is_empty) {
        schema.insert(keyword.to_owned(), rules.into());
    }
    schema
}

/// Returns the only schema, or all combined. Descriptions that differ are dropped.
fn same_or_combined(schemas: Vec<Fields>) -> Fields {
    let bare = |schema: &Fields| {
        let mut bare = schema.clone();
        bare.remove("description");
        bare
    };
    match &schemas[..] {
        [] => any(),
        [first, others @ ..] if others.iter().all(|other| bare(other) == bare(first)) => {
            if others.iter().all(|other| other == first) { first.clone() } else { bare(first) }
        }
        _ => combine(schemas, "anyOf"),
    }
}

/// Returns a schema that demands both. Where they differ, `one` decides.
pub(super) fn merged(mut one: Fields, other: Fields) -> Fields {
    if is_any(&other) && (one.contains_key("type") || one.contains_key("x-kubernetes-int-or-string")) {
        return one;
    }
    for (keyword, value) in other {
        match (one.get_mut(&keyword), value) {
            (None, value) => drop(one.insert(keyword, value)),
            (Some(Value::Object(known)), Value::Object(more)) if keyword == "properties" => {
                for (name, schema) in more {
                    known.entry(name).or_insert(schema);
                }
            }
            (Some(Value::Array(known)), Value::Array(more)) if keyword == "required" => {
                known.extend(more.into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>());
            }
            (Some(_), more @ Value::Array(_)) if keyword == "oneOf" || keyword == "anyOf" => {
                let all = one.entry("allOf").or_insert_with(|| json!([]));
                all.as_array_mut().into_iter().for_each(|all| all.push(json!({&*keyword: more.clone()})));
            }
            (Some(_), _) => {}
        }
    }
    one
}
