//! Converts the JSON schema of a Rust type to a structural schema, the only form that a definition accepts.
//!
//! A structural schema gives each field one type, has no references, and allows either `properties` or
//! `additionalProperties`. The alternatives of an enum become one object with the properties of all variants, and a
//! list of the properties that each variant requires. A field with several types becomes a field of any type.
//!
//! # Invariants
//!
//! A server drops each field that the structural schema does not name, and adds the schema's defaults. Therefore:
//!
//! - The structural schema keeps each field that a value of the JSON schema may have.
//! - It has no default for a field that some values of the JSON schema never have.
//! - An object is closed if its JSON schema names properties and does not explicitly allow others, as for a struct.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::alternatives::either;
use super::both::{both, with_null};
use super::defaults::remove_refused_defaults;
use super::error::SchemaError;
use super::rules::{exact_rule, exclude_bounds};
use super::shape::{
    ANY_FIELDS, Fields, LIMITS, any, any_but_null, has_any_fields, is_any, is_nullable, is_typed, of_type, properties,
};
use homeostat_objects::Condition;

/// Keywords that are copied, in addition to the [limits](LIMITS).
const COPIED: [&str; 4] = ["default", "description", "nullable", "required"];

/// Keywords that are converted elsewhere, and formats that servers do not know.
const ELSEWHERE: [&str; 12] = [
    "$ref",
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
const DROPPED: [&str; 12] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "deprecated",
    "example",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

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

/// Converts the schema of a complete type. Returns the properties and required fields of its objects, without
/// `apiVersion`, `kind` and `metadata`.
pub(super) fn structural(schema: &Value) -> Result<Fields, SchemaError> {
    let root_name = schema["title"].as_str().unwrap_or("the type");
    let mut converter = Converter { root: schema, open: vec![root_name], path: Vec::new() };
    let mut fields = converter.convert(schema)?;
    if fields.get("type") != Some(&"object".into()) {
        return Err(converter.error("an object of Kubernetes must be a struct with named fields"));
    }
    let own = |name: &str| !["apiVersion", "kind", "metadata"].contains(&name);
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.retain(|name, _| own(name));
        // Only writes of the status set it, so a default has no use.
        properties.get_mut("status").and_then(Value::as_object_mut).map(|status| status.remove("default"));
    }
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|name| name.as_str().is_some_and(|name| own(name) && name != "status"));
        if required.is_empty() {
            fields.remove("required");
        }
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

struct Converter<'a> {
    root: &'a Value,
    /// The names of the types that enclose the current schema.
    open: Vec<&'a str>,
    /// The path to the current schema.
    path: Vec<String>,
}

impl<'a> Converter<'a> {
    /// Converts a schema.
    fn convert(&mut self, schema: &'a Value) -> Result<Fields, SchemaError> {
        Ok(completed(self.part(schema)?))
    }

    /// Converts a schema that may leave the type to the schemas around it.
    fn part(&mut self, schema: &'a Value) -> Result<Fields, SchemaError> {
        let Value::Object(fields) = schema else { return Ok(Fields::new()) };
        if is_null(schema) {
            return Ok(any());
        }
        let mut out = self.own_keywords(fields)?;
        if let Some(reference) = fields.get("$ref") {
            out = both(out, self.referred(reference)?);
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
        Ok(out)
    }

    /// Adds the alternatives of an enum, or alternative rules for the values that the other keywords describe.
    fn with_alternatives(&mut self, base: Fields, keyword: &str, branches: &'a [Value]) -> Result<Fields, SchemaError> {
        if is_typed(&base)
            && let Ok(rules) = branches.iter().map(|branch| exact_rule(branch, &base)).collect::<Result<Vec<_>, _>>()
            // An empty schema may mean any fields.
            && rules.iter().all(|rule| !rule.is_empty())
        {
            return Ok(both(base, Fields::from_iter([(keyword.to_owned(), rules.into())])));
        }
        let values: Vec<_> = branches.iter().filter(|branch| !is_null(branch)).collect();
        let is_nullable = values.len() < branches.len();
        let mut converted = values.into_iter().map(|branch| self.convert(branch)).collect::<Result<Vec<_>, _>>()?;
        if is_nullable && is_typed(&base) {
            // A flattened unit has no fields.
            converted
                .push(Fields::from_iter([("type".to_owned(), "object".into()), ("properties".to_owned(), json!({}))]));
        }
        let mut combined = either(converted, keyword);
        if is_nullable {
            combined = with_null(combined);
        }
        // Fields beside an enum may look like another variant's fields.
        let is_alone = !has_any_fields(&base)
            && !combined.contains_key(ANY_FIELDS)
            && properties(&base).all(|(name, _)| !properties(&combined).any(|(other, _)| other == name));
        if !is_alone && let Some(rules) = combined.remove("oneOf") {
            combined.insert("anyOf".to_owned(), rules);
        }
        Ok(both(base, combined))
    }

    /// Converts the type that a `$ref` names.
    fn referred(&mut self, reference: &'a Value) -> Result<Fields, SchemaError> {
        let reference = reference.as_str().unwrap_or_default();
        let (name, schema) = match reference.strip_prefix("#/$defs/").map(|name| self.definition(name)) {
            Some(Some((name, schema))) => (name, schema),
            None if reference == "#" => (self.open[0], self.root),
            _ => return Err(self.error(format!("the schema refers to {reference:?}, which it does not define"))),
        };
        if self.open.contains(&name) {
            return Err(self.error(format!(
                "the type {name} contains itself, and a schema of Kubernetes cannot express that; give the field \
                 #[schemars(with = \"serde_json::Value\")]"
            )));
        }
        self.open.push(name);
        let converted = self.convert(schema);
        self.open.pop();
        converted
    }

    /// Returns the definition with an encoded name, such as `List%3CString%3E`.
    fn definition(&self, encoded: &str) -> Option<(&'a str, &'a Value)> {
        let decoded: Cow<'_, str> = percent_decode_str(encoded).decode_utf8().ok()?;
        let name = decoded.replace("~1", "/").replace("~0", "~");
        self.root["$defs"].as_object()?.get_key_value(&name).map(|(name, schema)| (&**name, schema))
    }

    /// Converts all keywords except references and alternatives.
    fn own_keywords(&mut self, fields: &'a Fields) -> Result<Fields, SchemaError> {
        let mut out = fields.get("type").map(of_types).unwrap_or_default();
        for (keyword, value) in fields {
            match keyword.as_str() {
                "const" => drop(out.insert("enum".to_owned(), json!([value]))),
                "enum" => {
                    let values = value.as_array().into_iter().flatten();
                    let values: Vec<_> = values.filter(|value| !value.is_null()).cloned().collect();
                    if Some(values.len()) != value.as_array().map(Vec::len) {
                        out.insert("nullable".to_owned(), true.into());
                    }
                    out.insert(keyword.clone(), values.into());
                }
                "default" if value.is_null() => {}
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    out.insert(keyword.clone(), value.clone());
                }
                "exclusiveMinimum" | "exclusiveMaximum" => {
                    if value.is_boolean() {
                        out.insert(keyword.clone(), value.clone());
                    }
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
                        "a schema of Kubernetes cannot have the keyword {keyword:?}; use a rule in CEL \
                         (x-kubernetes-validations) instead"
                    )));
                }
            }
        }
        if fields.contains_key("prefixItems") && !out.contains_key("items") {
            out.insert("items".to_owned(), self.items(fields)?);
        }
        exclude_bounds(fields, &mut out);
        self.add_other_fields(fields, &mut out)?;
        if let Some(Value::Object(items)) = out.get("items") {
            let is_scalar = items.get("type").is_some_and(|of| of != "object" && of != "array");
            let keys = self.map_keys(fields);
            if !keys.is_empty() && !items.contains_key("nullable") {
                out.entry("x-kubernetes-list-type").or_insert_with(|| "map".into());
                if out["x-kubernetes-list-type"] == "map" {
                    out.entry("x-kubernetes-list-map-keys").or_insert_with(|| keys.into());
                }
            } else if fields.get("uniqueItems") == Some(&true.into()) && is_scalar && !is_nullable(items) {
                out.entry("x-kubernetes-list-type").or_insert_with(|| "set".into());
            }
        }
        Ok(out)
    }

    /// Converts named fields. Returns `None` if there are no fields.
    fn properties(&mut self, properties: &'a Value) -> Result<Option<Value>, SchemaError> {
        let properties = properties.as_object().into_iter().flatten();
        let converted = properties.map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?.into())));
        let converted = converted.collect::<Result<Fields, _>>()?;
        Ok((!converted.is_empty()).then_some(Value::Object(converted)))
    }

    /// Converts the elements of an array. Combines a tuple's elements.
    fn items(&mut self, fields: &'a Fields) -> Result<Value, SchemaError> {
        let items = fields.get("items").filter(|items| **items != Value::Bool(false));
        let all = array(fields, "prefixItems").iter().chain(items);
        let all = all.map(|schema| self.at("items", schema)).collect::<Result<Vec<_>, _>>()?;
        Ok(Value::Object(either(all, "anyOf")))
    }

    /// Converts the schemas of fields that an object may have besides the named ones.
    fn add_other_fields(&mut self, fields: &'a Fields, out: &mut Fields) -> Result<(), SchemaError> {
        let patterns = fields.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Fields::values);
        let declared: Vec<_> =
            ["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(|name| fields.get(name)).collect();
        let schemas: Vec<_> = patterns.chain(declared.iter().copied().filter(|one| **one != false)).collect();
        if schemas.is_empty() {
            if !declared.is_empty() {
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

    /// Returns the fields that identify the elements of an array, if these are conditions.
    fn map_keys(&self, fields: &Fields) -> Vec<&'static str> {
        let items = fields.get("items").and_then(|items| items["$ref"].as_str()?.strip_prefix("#/$defs/"));
        let items = items.and_then(|name| self.definition(name));
        let is_condition = items
            .is_some_and(|(_, schema)| *schema == *Condition::json_schema(&mut SchemaGenerator::default()).as_value());
        if is_condition { vec!["type"] } else { Vec::new() }
    }

    fn at(&mut self, name: &str, schema: &'a Value) -> Result<Fields, SchemaError> {
        self.path.push(name.to_owned());
        let converted = self.convert(schema);
        self.path.pop();
        converted
    }

    fn error(&self, fault: impl Into<String>) -> SchemaError {
        SchemaError::new(self.open[0], self.path.join("."), fault.into())
    }
}

/// Returns the schemas of a keyword.
fn array<'a>(fields: &'a Fields, keyword: &str) -> &'a [Value] {
    fields.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the schema for one type, or for several.
fn of_types(types: &Value) -> Fields {
    let Value::Array(types) = types else { return Fields::from_iter([("type".to_owned(), types.clone())]) };
    let others = types.iter().filter(|name| *name != "null").filter_map(Value::as_str).map(of_type);
    let others: Vec<_> = others.collect();
    let is_nullable = others.len() < types.len();
    let combined = either(others, "anyOf");
    if is_nullable { with_null(combined) } else { combined }
}

/// Returns whether a schema accepts only `null`.
fn is_null(schema: &Value) -> bool {
    let of = &schema["type"];
    *of == "null"
        || *of == json!(["null"])
        || schema.get("const") == Some(&Value::Null)
        || schema["enum"] == json!([null])
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
