//! Converts the schema that `schemars` generates for a Rust type to the Kubernetes form. That form has no references,
//! one type for each value, and `nullable` instead of the type `null`. A schema in this form does not change.

use serde_json::{Map, Value, json};

use super::SchemaFault;

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

/// Returns the normal form of a complete object's schema.
pub(super) fn of_object(schema: &Value) -> Result<Value, SchemaFault> {
    let mut normal = Normal { root: schema, open: Vec::new(), path: Vec::new() }.normal(schema)?;
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
}

impl<'a> Normal<'a> {
    fn normal(&mut self, schema: &'a Value) -> Result<Value, SchemaFault> {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(true) => return Ok(json!({"x-kubernetes-preserve-unknown-fields": true})),
            Value::Bool(false) => return Ok(json!({"not": {}})),
            other => return Err(self.fault(format!("{other} is not a schema"))),
        };
        let mut out = Map::new();
        for (keyword, value) in fields {
            self.keyword(keyword, value, &mut out)?;
        }
        if self.root.get("$schema").is_some() && is_open_object(fields) {
            out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
        for (bound, exclusive, is_stricter) in [
            ("minimum", "exclusiveMinimum", f64::ge as fn(&f64, &f64) -> bool),
            ("maximum", "exclusiveMaximum", f64::le),
        ] {
            unite_bounds(&mut out, bound, exclusive, is_stricter);
        }
        if let Some(reference) = fields.get("$ref") {
            let referred = self.referred(reference)?;
            add(&mut out, referred);
        }
        for keyword in ["oneOf", "anyOf"] {
            simplify(&mut out, keyword);
        }
        Ok(Value::Object(out))
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, out: &mut Map<String, Value>) -> Result<(), SchemaFault> {
        let converted = match (keyword, value) {
            ("$ref", _)
            | ("default", Value::Null)
            // Unknown fields are removed anyway.
            | ("additionalProperties" | "unevaluatedProperties", Value::Bool(false)) => return Ok(()),
            ("type", Value::Array(types)) => {
                let others: Vec<_> = types.iter().filter(|name| *name != "null").cloned().collect();
                if others.len() < types.len() {
                    out.insert("nullable".to_owned(), true.into());
                }
                match <[Value; 1]>::try_from(others) {
                    Ok([one]) => one,
                    Err(others) => Value::Array(others),
                }
            }
            ("const", value) => {
                out.insert("enum".to_owned(), json!([value]));
                return Ok(());
            }
            ("enum", Value::Array(values)) if values.iter().any(Value::is_null) => {
                out.insert("nullable".to_owned(), true.into());
                values.iter().filter(|value| !value.is_null()).cloned().collect()
            }
            ("properties" | "patternProperties", Value::Object(properties)) => {
                let each = properties.iter().map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?)));
                Value::Object(each.collect::<Result<_, SchemaFault>>()?)
            }
            ("additionalProperties", Value::Bool(true)) => {
                out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
                return Ok(());
            }
            ("additionalProperties" | "contains" | "items" | "not" | "propertyNames", schema) => self.at(keyword, schema)?,
            ("prefixItems", Value::Array(schemas)) => {
                schemas.iter().map(|schema| self.at(keyword, schema)).collect::<Result<_, _>>()?
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                let branches = branches.iter().filter(|branch| {
                    let is_null = is_null(branch);
                    if is_null {
                        out.insert("nullable".to_owned(), true.into());
                    }
                    !is_null
                });
                let branches: Vec<_> = branches.collect();
                branches.into_iter().map(|branch| self.normal(branch)).collect::<Result<_, _>>()?
            }
            _ if DROPPED.contains(&keyword) || is_foreign(keyword) => return Ok(()),
            _ => value.clone(),
        };
        out.insert(keyword.to_owned(), converted);
        Ok(())
    }

    fn at(&mut self, name: &str, schema: &'a Value) -> Result<Value, SchemaFault> {
        self.path.push(name.to_owned());
        let normal = self.normal(schema);
        self.path.pop();
        normal
    }

    fn referred(&mut self, reference: &'a Value) -> Result<Map<String, Value>, SchemaFault> {
        let name = reference.as_str().unwrap_or_default();
        let schema = name.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let schema = schema.ok_or_else(|| self.fault(format!("it refers to {name:?}, which is not defined")))?;
        if self.open.contains(&name) {
            return Err(self.fault(format!("{name:?} contains itself; describe that field by an empty schema")));
        }
        self.open.push(name);
        let normal = self.normal(schema);
        self.open.pop();
        match normal? {
            Value::Object(fields) => Ok(fields),
            _ => Ok(Map::new()),
        }
    }

    fn fault(&self, fault: String) -> SchemaFault {
        SchemaFault::new(&self.path, fault)
    }
}

fn is_null(schema: &Value) -> bool {
    schema["type"] == "null" || schema.get("const") == Some(&Value::Null) || schema["enum"] == json!([null])
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
fn unite_bounds(out: &mut Map<String, Value>, bound: &str, exclusive: &str, is_stricter: fn(&f64, &f64) -> bool) {
    let Some(limit @ Value::Number(_)) = out.get(exclusive).cloned() else { return };
    let inclusive = out.get(bound).and_then(Value::as_f64);
    if limit.as_f64().zip(inclusive).is_none_or(|(limit, inclusive)| is_stricter(&limit, &inclusive)) {
        out.insert(bound.to_owned(), limit);
        out.insert(exclusive.to_owned(), true.into());
    } else {
        out.remove(exclusive);
    }
}

/// Adds another schema, so that both apply. If both have the same keyword or related ones, the other schema becomes
/// part of `allOf`.
fn add(out: &mut Map<String, Value>, mut other: Map<String, Value>) {
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

/// Replaces alternatives with one equivalent schema if possible: a single alternative, or alternative values of one
/// type. If all alternatives are objects, also states that type, so that readers see it.
fn simplify(out: &mut Map<String, Value>, keyword: &str) {
    let Some(Value::Array(branches)) = out.get(keyword) else { return };
    if let [Value::Object(only)] = &branches[..] {
        let only = only.clone();
        out.remove(keyword);
        add(out, only);
        return;
    }
    let of = branches.first().map_or(Value::Null, |first| first["type"].clone());
    if of.is_null() || branches.iter().any(|branch| branch["type"] != of) {
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
