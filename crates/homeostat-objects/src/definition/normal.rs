//! The normal form of schemas, from which servers make definitions, checks and documents. Plain values.

use std::borrow::Cow;
use std::cmp::Ordering;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::error::SchemaError;
use super::null::{NullRule, is_null, remove_null};

/// Keywords that a schema may have, besides those that are [dropped](DROPPED). All others are refused, so that none is
/// ignored.
const KNOWN: [&str; 47] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "default",
    "dependentRequired",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "title",
    "type",
    "unevaluatedProperties",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    PRESERVE,
    "x-kubernetes-validations",
];

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Names the fields by which the elements of a list differ, in the schema of the elements.
const LIST_KEYS: &str = "x-list-map-keys";

/// Keywords that only describe the schema itself.
const DROPPED: [&str; 17] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$schema",
    "$vocabulary",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "definitions",
    "deprecated",
    "discriminator",
    "examples",
    "externalDocs",
    "readOnly",
    "writeOnly",
];

/// Keywords that describe a value for people, or set it. They do not affect which values are valid.
const ANNOTATIONS: [&str; 4] = ["default", "description", "example", "title"];

/// Keywords that change each other's meaning when they appear together.
const RELATED: [&[&str]; 5] = [
    &["additionalProperties", "patternProperties", "properties"],
    &["items", "prefixItems"],
    &["contains", "maxContains", "minContains"],
    &["exclusiveMaximum", "maximum"],
    &["exclusiveMinimum", "minimum"],
];

/// Returns the normal form of the schema of a complete object.
///
/// Accepts a structural schema of Kubernetes, which hardly changes, and the schema that the crate `schemars` generates
/// for a type. The normal form accepts the same values in other words: it has no references, and `nullable` in place of
/// the type `null`. It does not describe `apiVersion`, `kind` and `metadata`, and does not require `status`.
///
/// Extensions that begin with `x-` but not with `x-kubernetes-`, and keywords that only describe the schema, are
/// dropped. If the type of the elements of a list has the extension `x-list-map-keys`, the list becomes a map by these
/// fields.
///
/// # Errors
///
/// If a keyword is unknown, a reference has no target, or a type contains itself. The error names the keyword or type,
/// and the path of the field.
///
/// # Examples
///
/// ```
/// use homeostat_objects::normal_schema;
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {"spec": {"$ref": "#/$defs/Spec"}}, "$defs": {"Spec": {"type": ["string", "null"]}}});
/// let normal = json!({"type": "object", "properties": {"spec": {"type": "string", "nullable": true}}});
/// assert_eq!(normal_schema(&schema)?, normal);
/// let error = normal_schema(&json!({"properties": {"spec": {"if": {}}}})).unwrap_err().to_string();
/// assert!(error.starts_with(r#"the schema of spec is unusable: the keyword "if" is not supported"#), "{error}");
/// # Ok::<_, homeostat_objects::SchemaError>(())
/// ```
pub fn normal_schema(schema: &Value) -> Result<Value, SchemaError> {
    let mut normal = Normal { root: schema, open: Vec::new(), path: Vec::new(), excluded: false }.normal(schema)?;
    let Some(fields) = normal.as_object_mut() else { return Ok(normal) };
    fields.remove("title");
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for known in ["apiVersion", "kind", "metadata"] {
            properties.remove(known);
        }
        // Only a write of the status sets it.
        if let Some(status) = properties.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("default");
        }
    }
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !["apiVersion", "kind", "metadata", "status"].iter().any(|known| name == known));
        if required.is_empty() {
            fields.remove("required");
        }
    }
    Ok(normal)
}

struct Normal<'a> {
    root: &'a Value,
    /// The references that are being resolved.
    open: Vec<&'a str>,
    path: Vec<String>,
    /// Whether the current schema is within `not`.
    excluded: bool,
}

impl<'a> Normal<'a> {
    fn normal(&mut self, schema: &'a Value) -> Result<Value, SchemaError> {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(true) => return Ok(json!({PRESERVE: true})),
            Value::Bool(false) => return Ok(json!({"not": {}})),
            other => return Err(self.fault(format!("{other} is not a schema"))),
        };
        let mut out = Map::new();
        for (keyword, value) in fields {
            self.keyword(keyword, value, fields, &mut out)?;
        }
        if let Some(keys) = self.list_keys(fields) {
            let is_map = out.entry("x-kubernetes-list-type").or_insert_with(|| "map".into()) == "map";
            if is_map {
                out.entry("x-kubernetes-list-map-keys").or_insert(keys);
            }
        }
        if self.root.get("$schema").is_some() && is_open_object(fields) {
            out.insert(PRESERVE.to_owned(), true.into());
        }
        unite_bounds(&mut out, "minimum", "exclusiveMinimum", Ordering::Greater);
        unite_bounds(&mut out, "maximum", "exclusiveMaximum", Ordering::Less);
        let referred = fields.get("$ref").map(|reference| self.referred(reference)).transpose()?;
        let rules = std::iter::once(&out).chain(&referred).map(NullRule::of);
        let names_null = out.get("nullable") == Some(&true.into()) || NullRule::all(rules) == NullRule::Named;
        remove_null(&mut out);
        if let Some(referred) = referred {
            add(&mut out, referred);
        }
        for keyword in ["allOf", "oneOf", "anyOf"] {
            simplify(&mut out, keyword);
        }
        let mut normal = Value::Object(out);
        if names_null && !is_null(&normal) {
            normal["nullable"] = true.into();
        }
        Ok(normal)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'a Value,
        schema: &Map<String, Value>,
        out: &mut Map<String, Value>,
    ) -> Result<(), SchemaError> {
        let converted = match (keyword, value) {
            ("$ref", _) | ("default", Value::Null) => return Ok(()),
            ("additionalProperties" | "unevaluatedProperties", Value::Bool(false)) if self.excluded => {
                return Err(self.fault(format!("the keyword {keyword:?} is not supported within \"not\"")));
            }
            ("additionalProperties" | "unevaluatedProperties", Value::Bool(false)) => {
                // Unknown fields are removed anyway. Without properties, the object would be open.
                if !schema.contains_key("properties") && !schema.contains_key("patternProperties") {
                    out.insert("additionalProperties".to_owned(), false.into());
                }
                return Ok(());
            }
            ("const", value) => {
                out.insert("enum".to_owned(), json!([value]));
                return Ok(());
            }
            ("properties" | "patternProperties", Value::Object(properties)) => {
                let each = properties.iter().map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?)));
                Value::Object(each.collect::<Result<_, SchemaError>>()?)
            }
            ("additionalProperties" | "unevaluatedProperties", Value::Bool(true)) => {
                out.insert(PRESERVE.to_owned(), true.into());
                return Ok(());
            }
            ("not", schema) => {
                let outer = std::mem::replace(&mut self.excluded, true);
                let normal = self.at(keyword, schema);
                self.excluded = outer;
                normal?
            }
            ("additionalProperties" | "contains" | "items" | "propertyNames" | "unevaluatedProperties", schema) => {
                self.at(keyword, schema)?
            }
            ("prefixItems", Value::Array(schemas)) => {
                schemas.iter().map(|schema| self.at(keyword, schema)).collect::<Result<_, _>>()?
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                branches.iter().map(|branch| self.normal(branch)).collect::<Result<_, _>>()?
            }
            _ if KNOWN.contains(&keyword) => value.clone(),
            _ if DROPPED.contains(&keyword) || is_foreign(keyword) => return Ok(()),
            _ => {
                return Err(self.fault(format!(
                    "the keyword {keyword:?} is not supported; leave it out, and use a validate hook or a rule in CEL \
                     (x-kubernetes-validations) instead"
                )));
            }
        };
        out.insert(keyword.to_owned(), converted);
        Ok(())
    }

    fn at(&mut self, name: &str, schema: &'a Value) -> Result<Value, SchemaError> {
        self.path.push(name.to_owned());
        let normal = self.normal(schema);
        self.path.pop();
        normal
    }

    fn referred(&mut self, reference: &'a Value) -> Result<Map<String, Value>, SchemaError> {
        let name = reference.as_str().unwrap_or_default();
        let Some(schema) = self.target(name) else {
            return Err(self.fault(format!("it refers to {name:?}, which is not defined")));
        };
        if self.open.contains(&name) {
            let of = percent_decode_str(name.rsplit('/').next().unwrap_or_default()).decode_utf8_lossy();
            return Err(self.fault(format!(
                "the type {of} contains itself, and a schema cannot express that; give the field \
                 #[schemars(with = \"serde_json::Value\")]"
            )));
        }
        self.open.push(name);
        let normal = self.normal(schema);
        self.open.pop();
        match normal? {
            Value::Object(fields) => Ok(fields),
            _ => Ok(Map::new()),
        }
    }

    /// Returns the schema with an encoded name, such as `#/$defs/List%3CString%3E`.
    fn target(&self, name: &str) -> Option<&'a Value> {
        let pointer: Cow<'_, str> = percent_decode_str(name.strip_prefix('#')?).decode_utf8().ok()?;
        self.root.pointer(&pointer)
    }

    /// Returns the fields by which the elements of an array differ, if their type names them.
    fn list_keys(&self, array: &Map<String, Value>) -> Option<Value> {
        let items = array.get("items")?;
        let items = items["$ref"].as_str().and_then(|name| self.target(name)).unwrap_or(items);
        items.get(LIST_KEYS).cloned()
    }

    fn fault(&self, fault: String) -> SchemaError {
        SchemaError::new(&self.path, fault)
    }
}

/// Returns whether a schema of the crate `schemars` describes an object with any fields, by not describing any. In a
/// structural Kubernetes schema, which does not name its version, such an object has no fields.
fn is_open_object(schema: &Map<String, Value>) -> bool {
    let types_only = |name: &String| name == "type" || ANNOTATIONS.contains(&name.as_str());
    schema.get("type").is_some_and(|of| of == "object") && schema.keys().all(types_only)
}

/// Returns whether a keyword is an extension for other programs.
fn is_foreign(keyword: &str) -> bool {
    keyword.starts_with("x-") && !keyword.starts_with("x-kubernetes-")
}

/// Converts a numeric exclusive bound to the Kubernetes form: the stricter of the two bounds, and whether it is
/// exclusive.
fn unite_bounds(out: &mut Map<String, Value>, bound: &str, exclusive: &str, stricter: Ordering) {
    let Some(limit @ Value::Number(_)) = out.get(exclusive).cloned() else { return };
    if out.get(bound).and_then(|inclusive| compare(inclusive, &limit)) == Some(stricter) {
        out.remove(exclusive);
    } else {
        out.insert(bound.to_owned(), limit);
        out.insert(exclusive.to_owned(), true.into());
    }
}

/// Compares two numbers. Integers are compared exactly, because close ones can be equal as floating-point numbers.
fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Adds another schema, so that both apply. If both have the same keyword or related ones, the other schema becomes
/// part of `allOf`. The caller decides about `null`.
fn add(out: &mut Map<String, Value>, mut other: Map<String, Value>) {
    other.remove("nullable");
    for name in ANNOTATIONS {
        if let Some(value) = other.remove(name) {
            out.entry(name).or_insert(value);
        }
    }
    unite(out, &mut other);
    let conflicts = other.keys().any(|name| {
        let related = RELATED.iter().find(|names| names.contains(&name.as_str()));
        related.map_or(out.contains_key(name), |names| names.iter().any(|name| out.contains_key(*name)))
    });
    if !conflicts {
        out.append(&mut other);
        return;
    }
    match out.entry("allOf").or_insert_with(|| json!([])) {
        Value::Array(all) => all.push(other.into()),
        single => *single = json!([single.take(), other]),
    }
}

/// Moves the parts of `other` into `out` that mean the same there, and drops the parts that `out` already has.
fn unite(out: &mut Map<String, Value>, other: &mut Map<String, Value>) {
    other.retain(|name, value| {
        out.get(name) != Some(value) || RELATED.iter().any(|names| names.contains(&name.as_str()))
    });
    if let (Some(Value::Array(names)), Some(Value::Array(_))) = (out.get_mut("required"), other.get("required"))
        && let Some(Value::Array(more)) = other.remove("required")
    {
        names.extend(more);
    }
    let is_open = |schema: &Map<String, Value>| {
        ["additionalProperties", "patternProperties"].iter().any(|name| schema.contains_key(*name))
    };
    if is_open(out) || is_open(other) {
        return;
    }
    if let (Some(Value::Object(fields)), Some(Value::Object(more))) =
        (out.get_mut("properties"), other.get("properties"))
        && !more.keys().any(|name| fields.contains_key(name))
        && let Some(Value::Object(more)) = other.remove("properties")
    {
        fields.extend(more);
    }
}

/// Replaces a list of schemas with one equivalent schema if possible: the only schema, or alternative values of one
/// type. If all alternatives are of one type, also states that type, so that readers see it.
fn simplify(out: &mut Map<String, Value>, keyword: &str) {
    let Some(Value::Array(branches)) = out.get(keyword) else { return };
    if let [Value::Object(only)] = &branches[..] {
        let only = only.clone();
        out.remove(keyword);
        add(out, only);
        return;
    }
    let of = branches.first().map_or(Value::Null, |first| first["type"].clone());
    if keyword == "allOf" || of.is_null() || branches.iter().any(|branch| branch["type"] != of) {
        return;
    }
    let is_values = |branch: &Value| {
        let mut names = branch.as_object().into_iter().flat_map(Map::keys);
        branch["enum"].is_array() && names.all(|name| ["description", "enum", "title", "type"].contains(&name.as_str()))
    };
    let values = branches.iter().all(is_values).then(|| {
        let values = branches.iter().flat_map(|branch| branch["enum"].as_array().into_iter().flatten());
        values.cloned().collect::<Vec<_>>()
    });
    if let (Some(values), false) = (values, out.contains_key("enum")) {
        out.remove(keyword);
        out.insert("enum".to_owned(), values.into());
    }
    out.entry("type").or_insert(of);
}
