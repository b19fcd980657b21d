//! Removes unknown fields, and fills in defaults.

use serde_json::Value;

use super::check::HEAD;
use super::{JsonType, SchemaNode, ValuePath};
use homeostat::rt::bounded;

/// The largest number of removed fields that are named.
const MOST_NAMED: usize = 50;

/// Removes the fields of a complete object that no schema knows. Returns the shortened paths of the first
/// ones.
pub(super) fn prune(schemas: &[&SchemaNode], object: &mut Value) -> Vec<String> {
    let mut pruned = Pruned::default();
    pruned.value(schemas, object, true);
    pruned.removed
}

#[derive(Default)]
struct Pruned {
    path: ValuePath,
    removed: Vec<String>,
}

impl Pruned {
    /// Prunes a value that one of these schemas describes.
    fn value(&mut self, schemas: &[&SchemaNode], value: &mut Value, is_root: bool) {
        if schemas.iter().any(|schema| schema.is_any) {
            return;
        }
        match value {
            Value::Object(fields) => {
                let has_head = is_root || schemas.iter().any(|schema| is_embedded(schema));
                fields.retain(|name, value| {
                    if has_head && HEAD.contains(&name.as_str()) {
                        return true;
                    }
                    let known = KnownPart::of_any(schemas.iter().copied(), PartName::Field(name));
                    let mut path = std::mem::take(&mut self.path);
                    if known.is_named {
                        path.in_field(name, |path| self.child(&known, value, path));
                    } else {
                        path.in_entry(name, |path| self.child(&known, value, path));
                    }
                    let keeps = known.has_any_value || !known.schemas.is_empty();
                    if !keeps && self.removed.len() < MOST_NAMED {
                        path.in_field(name, |path| self.removed.push(bounded(path.0.clone())));
                    }
                    self.path = path;
                    keeps
                });
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    let known = KnownPart::of_any(schemas.iter().copied(), PartName::Item(at));
                    let mut path = std::mem::take(&mut self.path);
                    path.in_entry(&at.to_string(), |path| self.child(&known, item, path));
                    self.path = path;
                }
            }
            _ => {}
        }
    }

    fn child(&mut self, known: &KnownPart<'_>, value: &mut Value, path: &mut ValuePath) {
        if known.has_any_value || known.schemas.is_empty() {
            return;
        }
        std::mem::swap(&mut self.path, path);
        self.value(&known.schemas, value, false);
        std::mem::swap(&mut self.path, path);
    }
}

/// Returns whether the value of a schema may be a complete object.
fn is_embedded(schema: &SchemaNode) -> bool {
    schema.embedded || branches(schema).any(is_embedded)
}

fn branches(schema: &SchemaNode) -> impl Iterator<Item = &SchemaNode> {
    [&schema.all_of, &schema.any_of, &schema.one_of].into_iter().flatten()
}

/// The name of a field, or the index of an element.
#[derive(Clone, Copy)]
enum PartName<'n> {
    Field(&'n str),
    Item(usize),
}

/// What a schema and its alternatives know about a field or an element.
#[derive(Default)]
struct KnownPart<'a> {
    /// One of these schemas describes the part.
    schemas: Vec<&'a SchemaNode>,
    /// Whether the part may have any value.
    has_any_value: bool,
    /// Whether a schema describes this part, not all other parts.
    is_described: bool,
    /// Whether a schema names the field.
    is_named: bool,
}

impl<'a> KnownPart<'a> {
    fn of(schema: &'a SchemaNode, name: PartName<'_>) -> Self {
        let alternatives = [&schema.any_of, &schema.one_of].into_iter();
        let alternatives = alternatives.map(|branches| Self::of_any(branches, name));
        let parts = schema.all_of.iter().map(|part| Self::of(part, name));
        alternatives.chain(parts).fold(Self::without_branches(schema, name), Self::and)
    }

    fn without_branches(schema: &'a SchemaNode, name: PartName<'_>) -> Self {
        match name {
            PartName::Field(name) => {
                let is_named = schema.properties.contains_key(name);
                let is_described = is_named || schema.patterns.iter().any(|(pattern, _)| pattern.is_match(name));
                let schemas = schema.of_field(name).collect();
                Self { schemas, has_any_value: schema.preserve && !is_described, is_described, is_named }
            }
            PartName::Item(at) => {
                let schemas = Vec::from_iter(schema.of_item(at));
                let is_described = !schemas.is_empty();
                let allows_any = schema.preserve || schema.types.contains(&JsonType::Array);
                Self { schemas, has_any_value: allows_any && !is_described, is_described, is_named: false }
            }
        }
    }

    /// Returns what alternative schemas know.
    fn of_any(schemas: impl IntoIterator<Item = &'a SchemaNode>, name: PartName<'_>) -> Self {
        schemas.into_iter().fold(Self::default(), |known, schema| {
            let other = Self::of(schema, name);
            Self {
                schemas: [known.schemas, other.schemas].concat(),
                has_any_value: known.has_any_value || other.has_any_value,
                is_described: known.is_described || other.is_described,
                is_named: known.is_named || other.is_named,
            }
        })
    }

    /// Returns what two schemas know that apply together. The schema that describes the part takes precedence over a
    /// schema for all other parts.
    fn and(self, other: Self) -> Self {
        match (self.is_described, other.is_described) {
            (true, false) => self,
            (false, true) => other,
            (is_described, _) => Self {
                schemas: [self.schemas, other.schemas].concat(),
                has_any_value: if is_described {
                    self.has_any_value && other.has_any_value
                } else {
                    self.has_any_value || other.has_any_value
                },
                is_described,
                is_named: self.is_named || other.is_named,
            },
        }
    }
}

/// Returns whether one of the schemas knows a field at this path.
pub(super) fn knows<'p>(schemas: &[&SchemaNode], mut path: impl Iterator<Item = &'p str>) -> bool {
    let Some(name) = path.next() else { return true };
    if schemas.iter().any(|schema| schema.is_any || is_embedded(schema)) {
        return true;
    }
    let known = KnownPart::of_any(schemas.iter().copied(), PartName::Field(name));
    // A trait object keeps the path's type from growing with each level.
    known.has_any_value
        || !known.schemas.is_empty() && knows(&known.schemas, &mut path as &mut dyn Iterator<Item = &'p str>)
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
