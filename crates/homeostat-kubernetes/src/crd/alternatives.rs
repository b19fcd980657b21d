//! Combines the alternatives of an enum into one structural schema.

use serde_json::{Value, json};

use super::shape::{
    ANY_FIELDS, Fields, INT_OR_STRING, any, any_but_null, has_any_fields, is_nullable, of_type, properties, texts,
    type_name,
};

/// Returns a structural schema that accepts and keeps every value that one of the schemas accepts. It may accept more.
pub(super) fn either(mut schemas: Vec<Fields>, keyword: &str) -> Fields {
    if schemas.len() < 2 {
        return schemas.pop().unwrap_or_else(any);
    }
    let accepts_null = schemas.iter().any(is_nullable);
    let mut types: Vec<_> = schemas.iter().map(type_name).collect();
    types.sort_unstable();
    types.dedup();
    let mut combined = match types[..] {
        ["object"] => objects(&schemas, keyword),
        ["array"] => arrays(schemas),
        ["integer", "number"] => of_type("number"),
        [name @ ("boolean" | "integer" | "number" | "string")] => scalars(name, &schemas),
        _ if types.iter().all(|name| ["integer", "string", INT_OR_STRING].contains(name)) => {
            Fields::from_iter([(INT_OR_STRING.to_owned(), true.into())])
        }
        _ => any_but_null(),
    };
    if accepts_null {
        combined.insert("nullable".to_owned(), true.into());
    }
    combined
}

fn arrays(schemas: Vec<Fields>) -> Fields {
    let items = schemas.into_iter().map(|mut schema| match schema.remove("items") {
        Some(Value::Object(items)) => items,
        _ => any(),
    });
    let mut array = of_type("array");
    array.insert("items".to_owned(), Value::Object(same_or_either(items.collect())));
    array
}

/// Combines values of one type: the values of several enums, or the rules of each alternative.
fn scalars(name: &str, schemas: &[Fields]) -> Fields {
    let mut scalar = of_type(name);
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
    let is_rule = |keyword: &str| {
        let bounds = ["maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"];
        bounds.contains(&keyword) || ["enum", "pattern"].contains(&keyword)
    };
    let rules = |schema: &Fields| -> Fields {
        let rules = schema.iter().filter(|(keyword, _)| is_rule(keyword));
        rules.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
    };
    // Formats are dropped, so a value may satisfy the rules of several alternatives.
    with_rules(scalar, schemas.iter().map(rules).collect(), "anyOf")
}

/// Combines objects. They may have the properties of all alternatives, and need the required ones of one alternative.
fn objects(schemas: &[Fields], keyword: &str) -> Fields {
    let keyword = if keyword == "oneOf" && are_exclusive(schemas) { "oneOf" } else { "anyOf" };
    let rules = schemas.iter().map(rules_of).collect();
    let keeps_any = schemas.iter().any(has_any_fields);
    let maps: Vec<_> = schemas.iter().filter_map(values_of_map).collect();

    let mut names: Vec<&String> = Vec::new();
    for (name, _) in schemas.iter().flat_map(properties) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut object = of_type("object");
    if keeps_any || (!names.is_empty() && !maps.is_empty()) {
        object.insert(ANY_FIELDS.to_owned(), true.into());
    } else if !maps.is_empty() {
        object.insert("additionalProperties".to_owned(), Value::Object(same_or_either(maps)));
    }
    if !object.contains_key("additionalProperties") {
        let properties = names.into_iter().map(|name| (name.clone(), Value::Object(property(schemas, name))));
        object.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    with_rules(object, rules, keyword)
}

/// Combines the schemas that several alternatives have for one property.
fn property(schemas: &[Fields], name: &str) -> Fields {
    let mut all = Vec::new();
    let mut defaults = Vec::new();
    for schema in schemas {
        if let Some(Value::Object(property)) = schema.get("properties").and_then(|all| all.get(name)) {
            let mut property = property.clone();
            defaults.push(property.remove("default"));
            // A variant's comment moves to the property that holds the variant.
            if let (1, Some(description)) = (properties(schema).count(), schema.get("description")) {
                property.entry("description").or_insert_with(|| description.clone());
            }
            all.push(property);
        } else if has_any_fields(schema) {
            all.push(any());
        } else {
            all.extend(values_of_map(schema));
        }
    }
    let mut combined = same_or_either(all);
    // A server would add one alternative's default to all of them.
    if defaults.len() == schemas.len()
        && let Some(Some(default)) = defaults.first()
        && defaults.iter().all(|other| other.as_ref() == Some(default))
    {
        combined.insert("default".to_owned(), default.clone());
    }
    combined
}

fn values_of_map(schema: &Fields) -> Option<Fields> {
    schema.get("additionalProperties").and_then(Value::as_object).cloned()
}

/// Returns the fields that identify an alternative by their only value.
fn tags(schema: &Fields) -> impl Iterator<Item = (&String, &Value)> {
    let tags = properties(schema).filter_map(|(name, property)| {
        let values = property.get("enum").filter(|values| values.as_array().is_some_and(|values| values.len() == 1))?;
        Some((name, values))
    });
    // A server allows no rules for a field of this name.
    tags.filter(|(name, _)| *name != "metadata")
}

/// Returns the rules that identify an alternative: its required fields and its tags.
fn rules_of(schema: &Fields) -> Fields {
    let mut rules = Fields::new();
    if let Some(required) = schema.get("required") {
        rules.insert("required".to_owned(), required.clone());
    }
    let tags: Fields = tags(schema).map(|(name, values)| (name.clone(), json!({"enum": values}))).collect();
    if !tags.is_empty() {
        rules.insert("properties".to_owned(), Value::Object(tags));
    }
    rules
}

/// Returns whether an object of one alternative always violates the rules of the others. Either their tags differ, or
/// it cannot have the fields that the others require.
fn are_exclusive(schemas: &[Fields]) -> bool {
    let requires = |schema: &Fields, name: &str| texts(schema, "required").any(|required| required == name);
    let have_tags = |one: &Fields, other: &Fields| {
        tags(one).any(|(name, values)| {
            let differ = tags(other).any(|(other, others)| other == name && others != values);
            differ && requires(one, name) && requires(other, name)
        })
    };
    let lacks_required = |one: &Fields, other: &Fields| {
        let is_closed = !has_any_fields(one) && values_of_map(one).is_none();
        is_closed && texts(other, "required").any(|name| !properties(one).any(|(known, _)| known == name))
    };
    schemas.iter().enumerate().all(|(at, one)| {
        let mut others = schemas[at + 1..].iter();
        others.all(|other| have_tags(one, other) || (lacks_required(one, other) && lacks_required(other, one)))
    })
}

/// Adds the rules of the alternatives, one of which must hold. Adds nothing if one alternative has no rules.
fn with_rules(mut schema: Fields, rules: Vec<Fields>, keyword: &str) -> Fields {
    if !rules.iter().any(Fields::is_empty) {
        schema.insert(keyword.to_owned(), rules.into());
    }
    schema
}

/// Returns the only schema, or a combination of all. Drops descriptions that differ.
fn same_or_either(schemas: Vec<Fields>) -> Fields {
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
        _ => either(schemas, "anyOf"),
    }
}
