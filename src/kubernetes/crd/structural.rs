//! Turns the JSON schema of a Rust type into a structural schema. A definition accepts no other schema.
//!
//! A structural schema gives each field one type, refers to nothing, and allows `properties` or `additionalProperties`. The
//! alternatives of an enum therefore become one object with the properties of all variants, and a list of the properties that
//! each variant requires. A field of several types becomes a field of any type.

use serde_json::{Value, json};

use super::alternatives::{Fields, any, combine, is_any, merged};
use super::error::SchemaError;

/// Keywords that are copied.
const COPIED: [&str; 15] = [
    "default",
    "description",
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
    "nullable",
    "pattern",
    "required",
];

/// Keywords that are converted elsewhere than in [`own_keywords`](Converter::own_keywords), and formats that a server does not know.
const ELSEWHERE: [&str; 8] =
    ["$ref", "additionalProperties", "allOf", "anyOf", "format", "oneOf", "patternProperties", "uniqueItems"];

/// Keywords that a structural schema lacks, and that only describe or restrict.
const DROPPED: [&str; 15] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "deprecated",
    "example",
    "examples",
    "propertyNames",
    "readOnly",
    "title",
    "unevaluatedItems",
    "unevaluatedProperties",
    "writeOnly",
];

/// The formats that an API server knows. A newer server warns about others.
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

/// Converts the schema of a whole type. Returns the properties and required fields of its objects, without `apiVersion`, `kind`
/// and `metadata`.
pub(super) fn structural(schema: &Value) -> Result<Value, SchemaError> {
    let root_name = schema["title"].as_str().unwrap_or("the type");
    let mut converter = Converter { root: schema, open: vec![root_name], path: Vec::new() };
    let mut fields = converter.convert(schema)?;
    if fields.get("type") != Some(&"object".into()) {
        return Err(converter.error("an object of Kubernetes must be a struct with named fields"));
    }
    let own = |name: &str| !["apiVersion", "kind", "metadata"].contains(&name);
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.retain(|name, _| own(name));
        // The server sets the status only when it is written.
        properties.get_mut("status").and_then(Value::as_object_mut).map(|status| status.remove("default"));
    }
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|name| name.as_str().is_some_and(|name| own(name) && name != "status"));
        if required.is_empty() {
            fields.remove("required");
        }
    }
    Ok(Value::Object(fields))
}

struct Converter<'a> {
    root: &'a Value,
    /// The names of the types that contain the current schema.
    open: Vec<&'a str>,
    /// The path of the current schema.
    path: Vec<String>,
}

impl<'a> Converter<'a> {
    fn convert(&mut self, schema: &'a Value) -> Result<Fields, SchemaError> {
        let Value::Object(fields) = schema else { return Ok(any()) };
        if is_null(schema) {
            return Ok(with_null(any()));
        }
        let mut out = self.own_keywords(fields)?;
        if let Some(reference) = fields.get("$ref") {
            out = merged(out, self.referred(reference)?);
        }
        for keyword in ["oneOf", "anyOf"] {
            if let Some(Value::Array(branches)) = fields.get(keyword) {
                let values = self.each(branches.iter().filter(|branch| !is_null(branch)))?;
                out = merged(out, combine(values, keyword));
                if branches.iter().any(is_null) {
                    out = with_null(out);
                }
            }
        }
        if let Some(Value::Array(all)) = fields.get("allOf") {
            out = self.each(all.iter())?.into_iter().fold(out, merged);
        }
        if out.get("enum").is_some() && !out.contains_key("type") {
            out = typed_by_enum(out);
        }
        let is_described = out.contains_key("type") || out.contains_key("x-kubernetes-int-or-string");
        Ok(if is_described { out } else { merged(out, any()) })
    }

    fn each(&mut self, schemas: impl Iterator<Item = &'a Value>) -> Result<Vec<Fields>, SchemaError> {
        schemas.map(|schema| self.convert(schema)).collect()
    }

    /// Converts the type that a `$ref` names.
    fn referred(&mut self, reference: &'a Value) -> Result<Fields, SchemaError> {
        let reference = reference.as_str().unwrap_or_default();
        let (name, schema) = match reference.strip_prefix("#/$defs/") {
            Some(name) => (name, &self.root["$defs"][name]),
            None => (self.open[0], self.root),
        };
        if self.open.contains(&name) {
            return Err(self.error(format!(
                "the type {name} contains itself, and a schema of Kubernetes cannot express that; give the field \
                 #[schemars(with = \"serde_json::Value\")]"
            )));
        }
        if schema.is_null() {
            return Err(self.error(format!("the schema refers to {reference:?}, which it does not define")));
        }
        self.open.push(name);
        let converted = self.convert(schema);
        self.open.pop();
        converted
    }

    /// Converts all keywords except for references and alternatives.
    fn own_keywords(&mut self, fields: &'a Fields) -> Result<Fields, SchemaError> {
        let mut out = Fields::new();
        for (keyword, value) in fields {
            match keyword.as_str() {
                "type" => out = of_type(out, value),
                "const" => drop(out.insert("enum".to_owned(), json!([value]))),
                "default" if value.is_null() || has_empty_text(value) => {}
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    out.insert(keyword.clone(), value.clone());
                }
                "exclusiveMinimum" | "exclusiveMaximum" if value.is_number() => {}
                "properties" => drop(out.insert(keyword.clone(), self.properties(value)?)),
                "items" => drop(out.insert(keyword.clone(), self.at("items", value)?)),
                "prefixItems" => {
                    let items = value.as_array().map_or(&[][..], Vec::as_slice);
                    let items = combine(self.each(items.iter())?, "anyOf");
                    out.insert("items".to_owned(), Value::Object(items));
                }
                _ if COPIED.contains(&keyword.as_str()) || keyword.starts_with("x-kubernetes-") => {
                    out.insert(keyword.clone(), value.clone());
                }
                _ if ELSEWHERE.contains(&keyword.as_str()) => {}
                _ if DROPPED.contains(&keyword.as_str()) => {}
                _ => return Err(self.error(format!("a schema of Kubernetes cannot have the keyword {keyword:?}"))),
            }
        }
        exclude_bounds(fields, &mut out);
        self.map_values(fields, &mut out)?;
        let is_scalar = |items: &Value| items["type"].as_str().is_some_and(|of| !["object", "array"].contains(&of));
        if fields.get("uniqueItems") == Some(&true.into()) && out.get("items").is_some_and(is_scalar) {
            out.entry("x-kubernetes-list-type").or_insert_with(|| "set".into());
        }
        if out.get("type") == Some(&"array".into()) {
            out.entry("items").or_insert_with(|| Value::Object(any()));
        }
        Ok(out)
    }

    fn properties(&mut self, properties: &'a Value) -> Result<Value, SchemaError> {
        let properties = properties.as_object().into_iter().flatten();
        let converted = properties.map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?)));
        converted.collect::<Result<Fields, _>>().map(Value::Object)
    }

    /// Converts the schema of the other fields of an object: the values of a map.
    fn map_values(&mut self, fields: &'a Fields, out: &mut Fields) -> Result<(), SchemaError> {
        let patterns = fields.get("patternProperties").and_then(Value::as_object).and_then(|all| all.values().next());
        let declared = fields.get("additionalProperties").filter(|schema| **schema != Value::Bool(false));
        let Some(schema) = patterns.or(declared) else { return Ok(()) };
        let Value::Object(values) = self.at("*", schema)? else { return Ok(()) };
        // Both together are not allowed.
        let has_properties = out.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
        if has_properties || is_any(&values) {
            out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        } else {
            out.insert("additionalProperties".to_owned(), Value::Object(values));
        }
        Ok(())
    }

    fn at(&mut self, name: &str, schema: &'a Value) -> Result<Value, SchemaError> {
        self.path.push(name.to_owned());
        let converted = self.convert(schema).map(Value::Object);
        self.path.pop();
        converted
    }

    fn error(&self, fault: impl Into<String>) -> SchemaError {
        SchemaError::new(self.open[0], self.path.join("."), fault.into())
    }
}

/// Adds one type, or the combination of several.
fn of_type(out: Fields, types: &Value) -> Fields {
    let one = |name: &Value| Fields::from_iter([("type".to_owned(), name.clone())]);
    let Value::Array(types) = types else { return merged(out, one(types)) };
    let others: Vec<_> = types.iter().filter(|name| *name != "null").map(one).collect();
    let is_nullable = others.len() < types.len();
    let out = merged(out, combine(others, "anyOf"));
    if is_nullable { with_null(out) } else { out }
}

/// Turns exclusive bounds that are numbers into marks of the other bounds, unless those are stricter.
fn exclude_bounds(fields: &Fields, out: &mut Fields) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(limit) = fields.get(exclusive).filter(|limit| limit.is_number()) else { continue };
        let is_stricter = |other: &Value| match bound {
            "minimum" => other.as_f64() > limit.as_f64(),
            _ => other.as_f64() < limit.as_f64(),
        };
        if !fields.get(bound).is_some_and(is_stricter) {
            out.insert(bound.to_owned(), limit.clone());
            out.insert(exclusive.to_owned(), true.into());
        }
    }
}

/// Returns whether a schema accepts `null` only.
fn is_null(schema: &Value) -> bool {
    schema["type"] == "null" || schema.get("const") == Some(&Value::Null) || schema["enum"] == json!([null])
}

/// Returns whether a default contains an empty text. It says no more than a missing field, and some servers read it as `null`.
fn has_empty_text(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.iter().any(has_empty_text),
        Value::Object(fields) => fields.values().any(has_empty_text),
        _ => false,
    }
}

/// Makes a schema accept `null` too.
///
/// A server compares `null` with the values of an `enum`, and refuses an `enum` that contains it. It does not check `null` against
/// alternatives, so the values move there.
fn with_null(mut schema: Fields) -> Fields {
    schema.insert("nullable".to_owned(), true.into());
    if let Some(values) = schema.remove("enum") {
        schema = merged(schema, Fields::from_iter([("anyOf".to_owned(), json!([{"enum": values}]))]));
    }
    schema
}

/// Adds the type of the values of an `enum`, if all have the same one.
fn typed_by_enum(mut schema: Fields) -> Fields {
    let name = |value: &Value| match value {
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        _ => None,
    };
    let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter(|value| !value.is_null());
    let types: Vec<_> = values.map(name).collect();
    if let Some(Some(first)) = types.first()
        && types.iter().all(|other| *other == Some(*first))
    {
        schema.insert("type".to_owned(), (*first).into());
    }
    schema
}
