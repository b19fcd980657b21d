//! Converts the normal form of a schema to a structural schema, the only form that a definition accepts.
//!
//! A structural schema gives each field one type, and allows either `properties` or `additionalProperties`. The
//! alternatives of an enum become one object with the properties of all variants, and a list of the properties that
//! each variant requires. A field with several types becomes a field of any type.
//!
//! # Invariants
//!
//! A server drops each field that the structural schema does not name, and adds the schema's defaults. Therefore:
//!
//! - The structural schema keeps each field that a value of the JSON schema may have.
//! - It has no default for a field that some values of the JSON schema never have.
//! - An object is closed if its JSON schema names properties and does not explicitly allow others, as for a struct.

use serde_json::{Value, json};

use super::alternatives::either;
use super::both::{both, with_null};
use super::defaults::remove_refused_defaults;
use super::rules::exact_rule;
use super::shape::{
    ANY_FIELDS, Fields, LIMITS, any, any_but_null, has_any_fields, is_any, is_nullable, is_typed, of_type, properties,
};
use homeostat_objects::{SchemaError, normal_schema};

/// Keywords that are copied, in addition to the [limits](LIMITS).
const COPIED: [&str; 6] = ["default", "description", "exclusiveMaximum", "exclusiveMinimum", "nullable", "required"];

/// Keywords that are converted elsewhere, and formats that servers do not know.
const ELSEWHERE: [&str; 11] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "format",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "type",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Keywords that only describe.
const DROPPED: [&str; 2] = ["example", "title"];

/// The formats that an API server knows. Newer servers warn about others.
const FORMATS: [&str; 14] = [
    "byte",
    "cidr",
    "date",
    "date-time",
    "double",
    "email",
    "float",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "uri",
    "uuid",
];

/// Converts the schema of a complete object. Returns the properties and required fields of the object, without
/// `apiVersion`, `kind` and `metadata`.
pub(super) fn structural(schema: &Value) -> Result<Fields, SchemaError> {
    let normal = normal_schema(schema)?;
    let mut converter = Converter { path: Vec::new() };
    let mut fields = converter.convert(&normal)?;
    if fields.get("type") != Some(&"object".into()) {
        return Err(converter.error("an object of Kubernetes must be a struct with named fields"));
    }
    // A complete object is neither `null` nor a map.
    fields.remove("default");
    fields.remove("nullable");
    if fields.remove("additionalProperties").is_some() {
        fields.insert(ANY_FIELDS.to_owned(), true.into());
    }
    remove_refused_defaults(&mut fields);
    Ok(fields)
}

struct Converter {
    /// The path to the current schema.
    path: Vec<String>,
}

impl Converter {
    /// Converts a schema.
    fn convert(&mut self, schema: &Value) -> Result<Fields, SchemaError> {
        Ok(completed(self.part(schema)?))
    }

    /// Converts a schema that may leave the type to the schemas around it.
    fn part(&mut self, schema: &Value) -> Result<Fields, SchemaError> {
        let Value::Object(fields) = schema else { return Ok(Fields::new()) };
        if is_null(schema) || is_true_or_false(fields) {
            return Ok(any());
        }
        let mut out = self.own_keywords(fields)?;
        if is_any(&out) {
            out.insert("nullable".to_owned(), true.into());
        }
        for branch in array(fields, "allOf") {
            out = both(out, self.part(branch)?);
        }
        for keyword in ["oneOf", "anyOf"] {
            if fields.contains_key(keyword) {
                out = self.with_alternatives(out, keyword, array(fields, keyword))?;
            }
        }
        if let Some(excluded) = fields.get("not") {
            let rule = exact_rule(excluded, &out).map_err(|part| {
                self.error(format!(
                    "a schema of Kubernetes cannot have {part} within the keyword \"not\"; use a rule in CEL \
                     (x-kubernetes-validations) instead"
                ))
            })?;
            out = both(out, Fields::from_iter([("not".to_owned(), Value::Object(rule))]));
        }
        if is_nullable(fields) {
            // The other keywords do not restrict `null`.
            out.insert("nullable".to_owned(), true.into());
        }
        Ok(out)
    }

    /// Adds the alternatives of an enum, or alternative rules for the values that the other keywords describe.
    fn with_alternatives(&mut self, base: Fields, keyword: &str, branches: &[Value]) -> Result<Fields, SchemaError> {
        let is_struct = properties(&base).next().is_some();
        if is_typed(&base)
            && (is_struct || base.get("type").is_some_and(|of| of != "object"))
            && let Ok(rules) = branches.iter().map(|branch| exact_rule(branch, &base)).collect::<Result<Vec<_>, _>>()
            // An empty schema may mean any fields.
            && rules.iter().all(|rule| !rule.is_empty())
        {
            return Ok(both(base, Fields::from_iter([(keyword.to_owned(), rules.into())])));
        }
        let converted = branches.iter().map(|branch| self.convert(branch)).collect::<Result<Vec<_>, _>>()?;
        let mut combined = either(converted, keyword);
        // Fields beside an enum may look like another variant's fields.
        let is_alone = !has_any_fields(&base)
            && !combined.contains_key(ANY_FIELDS)
            && properties(&base).all(|(name, _)| !properties(&combined).any(|(other, _)| other == name));
        if !is_alone && let Some(rules) = combined.remove("oneOf") {
            combined.insert("anyOf".to_owned(), rules);
        }
        Ok(both(base, combined))
    }

    /// Converts all keywords except alternatives.
    fn own_keywords(&mut self, fields: &Fields) -> Result<Fields, SchemaError> {
        let mut out = fields.get("type").map(of_types).unwrap_or_default();
        for (keyword, value) in fields {
            match keyword.as_str() {
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    out.insert(keyword.clone(), value.clone());
                }
                "properties" => drop(self.properties(value)?.map(|named| out.insert(keyword.clone(), named))),
                "items" => drop(out.insert(keyword.clone(), self.items(fields)?)),
                _ if COPIED.contains(&keyword.as_str())
                    || LIMITS.contains(&keyword.as_str())
                    || keyword.starts_with("x-kubernetes-") =>
                {
                    out.insert(keyword.clone(), value.clone());
                }
                _ if ELSEWHERE.contains(&keyword.as_str()) => {}
                _ if DROPPED.contains(&keyword.as_str()) => {}
                _ => {
                    return Err(self.error(format!(
                        "the keyword {keyword:?} is not supported by Kubernetes; leave it out, and use a rule in CEL \
                         (x-kubernetes-validations) instead"
                    )));
                }
            }
        }
        if fields.contains_key("prefixItems") && !out.contains_key("items") {
            out.insert("items".to_owned(), self.items(fields)?);
        }
        self.add_other_fields(fields, &mut out)?;
        if let Some(Value::Object(items)) = out.get("items") {
            let is_scalar = items.get("type").is_some_and(|of| of != "object" && of != "array");
            if fields.get("uniqueItems") == Some(&true.into()) && is_scalar && !is_nullable(items) {
                out.entry("x-kubernetes-list-type").or_insert_with(|| "set".into());
            }
        }
        Ok(out)
    }

    /// Converts named fields. Returns `None` if there are no fields.
    fn properties(&mut self, properties: &Value) -> Result<Option<Value>, SchemaError> {
        let properties = properties.as_object().into_iter().flatten();
        let converted = properties.map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?.into())));
        let converted = converted.collect::<Result<Fields, _>>()?;
        Ok((!converted.is_empty()).then_some(Value::Object(converted)))
    }

    /// Converts the elements of an array. Combines a tuple's elements.
    fn items(&mut self, fields: &Fields) -> Result<Value, SchemaError> {
        let items = fields.get("items").filter(|items| **items != json!({"not": {}}));
        let all = array(fields, "prefixItems").iter().chain(items);
        let all = all.map(|schema| self.at("items", schema)).collect::<Result<Vec<_>, _>>()?;
        Ok(Value::Object(either(all, "anyOf")))
    }

    /// Converts the schemas of fields that an object may have besides the named ones.
    fn add_other_fields(&mut self, fields: &Fields, out: &mut Fields) -> Result<(), SchemaError> {
        let patterns = fields.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Fields::values);
        let others = ["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(|name| fields.get(name));
        let schemas: Vec<_> = patterns.chain(others.filter(|one| **one != false)).collect();
        if schemas.is_empty() {
            if fields.contains_key("additionalProperties") {
                // A closed object without properties must not become an open one.
                out.entry("properties").or_insert_with(|| json!({}));
            }
            return Ok(());
        }
        let values = schemas.into_iter().map(|schema| self.at("*", schema)).collect::<Result<Vec<_>, _>>()?;
        let values = either(values, "anyOf");
        if out.contains_key("properties") || is_any(&values) {
            out.insert(ANY_FIELDS.to_owned(), true.into());
        } else {
            out.insert("additionalProperties".to_owned(), Value::Object(values));
        }
        Ok(())
    }

    fn at(&mut self, name: &str, schema: &Value) -> Result<Fields, SchemaError> {
        self.path.push(name.to_owned());
        let converted = self.convert(schema);
        self.path.pop();
        converted
    }

    fn error(&self, fault: impl Into<String>) -> SchemaError {
        SchemaError::new(&self.path, fault)
    }
}

/// Returns the schemas of a keyword.
fn array<'a>(fields: &'a Fields, keyword: &str) -> &'a [Value] {
    fields.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the schema for one type, or for several.
fn of_types(types: &Value) -> Fields {
    let Value::Array(types) = types else { return Fields::from_iter([("type".to_owned(), types.clone())]) };
    either(types.iter().filter_map(Value::as_str).map(of_type).collect(), "anyOf")
}

/// Returns whether a schema accepts only `null`.
fn is_null(schema: &Value) -> bool {
    schema["type"] == "null" || schema["enum"] == json!([null])
}

/// Returns whether a schema accepts all values or none.
fn is_true_or_false(schema: &Fields) -> bool {
    let is_only = |keyword: &str| schema.len() == 1 && schema.contains_key(keyword);
    is_only(ANY_FIELDS) || (is_only("not") && schema["not"] == json!({}))
}

/// Completes a schema that will not be combined with another one.
fn completed(mut schema: Fields) -> Fields {
    if !is_typed(&schema) {
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| schema.contains_key(*keyword));
        let of = if has(&["properties", "additionalProperties", "required", "maxProperties", "minProperties"]) {
            of_type("object")
        } else if has(&["items"]) {
            of_type("array")
        } else {
            type_of_values(&schema)
        };
        schema.extend(of);
    }
    if is_nullable(&schema) {
        schema = with_null(schema);
    }
    let is = |schema: &Fields, name: &str| schema.get("type").is_some_and(|of| of == name);
    if is(&schema, "object") {
        if !schema.contains_key("properties") && !schema.contains_key("additionalProperties") {
            // The fields are unknown, so keep all.
            schema.insert(ANY_FIELDS.to_owned(), true.into());
        }
    } else if schema.contains_key("type") {
        schema.remove(ANY_FIELDS);
    }
    if is(&schema, "array") {
        schema.entry("items").or_insert_with(|| any().into());
    }
    schema
}

/// Returns the common type of an `enum`'s values. If the types differ, returns any type except null. Without an
/// `enum`, returns any type.
fn type_of_values(schema: &Fields) -> Fields {
    let name = |value: &Value| match value {
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        _ => None,
    };
    let Some(Value::Array(values)) = schema.get("enum") else { return any() };
    let mut types = values.iter().map(name);
    match types.next() {
        Some(Some(first)) if types.all(|other| other == Some(first)) => of_type(first),
        _ => any_but_null(),
    }
}
