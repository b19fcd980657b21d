//! Removes unknown fields, and fills in defaults.

use serde_json::Value;

use super::check::HEAD;
use super::{SchemaNode, ValuePath};
use homeostat::rt::bounded;

/// The largest number of removed fields that are named.
const MOST_NAMED: usize = 50;

/// Removes the fields of a complete object that the schema does not know. Returns the shortened paths of the first
/// ones.
pub(super) fn prune(schema: &SchemaNode, object: &mut Value) -> Vec<String> {
    let mut pruned = Pruned::default();
    pruned.value(&[schema], object, true);
    pruned.removed
}

#[derive(Default)]
struct Pruned {
    path: ValuePath,
    removed: Vec<String>,
}

impl Pruned {
    /// Prunes a value that all these schemas and their alternatives describe.
    fn value(&mut self, schemas: &[&SchemaNode], value: &mut Value, is_root: bool) {
        let mut all = Vec::new();
        for schema in schemas {
            expand(schema, &mut all);
        }
        match value {
            Value::Object(fields) => {
                let keeps_unknown =
                    schemas.iter().any(|schema| schema.is_any) || all.iter().any(|schema| schema.preserve);
                let has_head = is_root || all.iter().any(|schema| schema.embedded);
                fields.retain(|name, value| {
                    if has_head && HEAD.contains(&name.as_str()) {
                        return true;
                    }
                    let described = of_field(&all, name);
                    let is_named = all.iter().any(|schema| schema.properties.contains_key(name));
                    let mut path = std::mem::take(&mut self.path);
                    if is_named {
                        path.in_field(name, |path| self.child(&described, value, path));
                    } else {
                        path.in_entry(name, |path| self.child(&described, value, path));
                    }
                    let keeps = keeps_unknown || !described.is_empty();
                    if !keeps && self.removed.len() < MOST_NAMED {
                        path.in_field(name, |path| self.removed.push(bounded(path.0.clone())));
                    }
                    self.path = path;
                    keeps
                });
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    let schemas: Vec<_> = all.iter().filter_map(|schema| schema.of_item(at)).collect();
                    let mut path = std::mem::take(&mut self.path);
                    path.in_entry(&at.to_string(), |path| self.child(&schemas, item, path));
                    self.path = path;
                }
            }
            _ => {}
        }
    }

    fn child(&mut self, schemas: &[&SchemaNode], value: &mut Value, path: &mut ValuePath) {
        if schemas.is_empty() {
            return;
        }
        std::mem::swap(&mut self.path, path);
        self.value(schemas, value, false);
        std::mem::swap(&mut self.path, path);
    }
}

/// Returns the schemas of a field in these schemas and all their alternatives. A schema that names the field takes
/// precedence over schemas for all other fields.
fn of_field<'a>(all: &[&'a SchemaNode], name: &str) -> Vec<&'a SchemaNode> {
    let describes = |schema: &SchemaNode| {
        schema.properties.contains_key(name) || schema.patterns.iter().any(|(pattern, _)| pattern.is_match(name))
    };
    let is_described = all.iter().any(|schema| describes(schema));
    let schemas = all.iter().filter(|schema| !is_described || describes(schema));
    schemas.flat_map(|schema| schema.of_field(name)).collect()
}

/// Returns whether one of the schemas knows a field at this path.
pub(super) fn knows<'p>(schemas: &[&SchemaNode], mut path: impl Iterator<Item = &'p str>) -> bool {
    let Some(name) = path.next() else { return true };
    let mut all = Vec::new();
    for schema in schemas {
        expand(schema, &mut all);
    }
    if schemas.iter().any(|schema| schema.is_any) || all.iter().any(|schema| schema.preserve || schema.embedded) {
        return true;
    }
    let fields = of_field(&all, name);
    // A trait object keeps the path's type from growing with each level.
    !fields.is_empty() && knows(&fields, &mut path as &mut dyn Iterator<Item = &'p str>)
}

/// Collects a schema and its alternatives.
fn expand<'a>(schema: &'a SchemaNode, all: &mut Vec<&'a SchemaNode>) {
    all.push(schema);
    let branches = [&schema.all_of, &schema.any_of, &schema.one_of];
    branches.into_iter().flatten().for_each(|branch| expand(branch, all));
}

/// Sets missing fields to their defaults, outer fields first.
pub(super) fn fill_in(schema: &SchemaNode, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in &schema.properties {
                let is_missing = fields.get(name).is_none_or(|value| value.is_null() && !schema.nullable);
                if let (true, Some(default)) = (is_missing, &schema.default) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill_in(schema, value);
                }
            }
            for (name, value) in fields.iter_mut().filter(|(name, _)| !schema.properties.contains_key(*name)) {
                schema.of_field(name).for_each(|schema| fill_in(schema, value));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                if let Some(schema) = schema.of_item(at) {
                    fill_in(schema, item);
                }
            }
        }
        _ => {}
    }
    schema.all_of.iter().for_each(|branch| fill_in(branch, value));
}
