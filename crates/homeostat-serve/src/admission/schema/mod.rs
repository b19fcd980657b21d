//! Schemas of objects: Kubernetes' structural subset of JSON schema, and the alternatives of Rust enums.
//!
//! `parse` compiles the normal form of a schema, `check` finds faults, and `prune` removes unknown fields and fills in
//! defaults. All are plain values.

mod check;
mod fault;
mod format;
mod parse;
mod prune;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use regex_lite::Regex;
use serde_json::Value;

pub(crate) use self::fault::FieldFault;
use self::format::TextFormat;
use homeostat_objects::{KindDefinition, SchemaError, normal_schema};

/// A compiled schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct StructuralSchema {
    /// The schema as JSON, without references.
    json: Arc<Value>,
    root: Arc<SchemaNode>,
    /// The schema of objects that are written, if it differs. Its fields are kept too.
    written: Option<Arc<SchemaNode>>,
}

/// The schema of one value.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a keyword of its own")]
struct SchemaNode {
    /// Whether the schema does not restrict the value.
    is_any: bool,
    /// The allowed types. Empty for any type.
    types: Vec<JsonType>,
    nullable: bool,
    int_or_string: bool,
    /// Whether unknown fields are kept.
    preserve: bool,
    /// Whether the value is a complete object with `apiVersion`, `kind` and `metadata`.
    embedded: bool,
    properties: BTreeMap<String, SchemaNode>,
    /// The schemas of fields with names that match a pattern.
    patterns: Vec<(Regex, SchemaNode)>,
    /// The schema of the names of fields.
    names: Option<Box<SchemaNode>>,
    /// The schema of fields that neither `properties` nor `patterns` describe.
    additional: Option<Box<SchemaNode>>,
    /// The schemas of the first elements.
    first_items: Vec<SchemaNode>,
    /// The schema of all further elements.
    items: Option<Box<SchemaNode>>,
    contains: Option<ContainedItems>,
    required: Vec<String>,
    /// The fields that are required if another field is present.
    dependent_required: Vec<(String, Vec<String>)>,
    values: Option<Vec<Value>>,
    minimum: Option<NumberBound>,
    maximum: Option<NumberBound>,
    multiple_of: Option<f64>,
    /// The smallest and largest number of characters in a text.
    length: (Option<u64>, Option<u64>),
    /// The smallest and largest number of elements in an array.
    count: (Option<u64>, Option<u64>),
    /// The smallest and largest number of fields in an object.
    size: (Option<u64>, Option<u64>),
    unique: Option<Uniqueness>,
    pattern: Option<Regex>,
    format: Option<TextFormat>,
    default: Option<Value>,
    all_of: Vec<SchemaNode>,
    any_of: Vec<SchemaNode>,
    one_of: Vec<SchemaNode>,
    not: Option<Box<SchemaNode>>,
}

/// A type of JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonType {
    Array,
    Boolean,
    Integer,
    Null,
    Number,
    Object,
    Text,
}

/// A bound for a number.
#[derive(Clone, Copy, Debug)]
struct NumberBound {
    bound: f64,
    /// Whether the bound itself is excluded.
    exclusive: bool,
}

/// Elements that an array must contain among others.
#[derive(Clone, Debug)]
struct ContainedItems {
    schema: Box<SchemaNode>,
    least: u64,
    most: Option<u64>,
}

/// The elements of an array that must be distinct.
#[derive(Clone, Debug)]
enum Uniqueness {
    /// All elements must be distinct.
    Elements,
    /// The elements must differ in these fields.
    Keys(Vec<String>),
}

impl StructuralSchema {
    /// Compiles the schema of a complete object. Resolves references to definitions inside the schema.
    pub(crate) fn new(schema: &Value) -> Result<Self, SchemaError> {
        let json = normal_schema(schema)?;
        let root = parse::parse(&json, &mut Vec::new())?;
        Ok(Self { json: Arc::new(json), root: Arc::new(root), written: None })
    }

    /// Compiles the schema of a kind.
    pub(crate) fn of(definition: &KindDefinition) -> Result<Option<Self>, SchemaError> {
        let (Some(read), Some(written)) = (definition.read_schema(), definition.written_schema()) else {
            return Ok(None);
        };
        let schema = Self::new(read)?;
        let written = if read == written { None } else { Some(Self::new(written)?.root) };
        Ok(Some(Self { written, ..schema }))
    }

    fn roots(&self) -> Vec<&SchemaNode> {
        std::iter::once(&self.root).chain(&self.written).map(|root| &**root).collect()
    }

    /// Returns the schema as JSON, without references, `apiVersion`, `kind` and `metadata`.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }

    /// Returns the first 50 faults of an object, without the faults of its old state. Does not check `apiVersion`,
    /// `kind` and `metadata`.
    pub(crate) fn faults(&self, object: &Value, old: Option<&Value>) -> Vec<FieldFault> {
        check::faults(&self.root, object, old)
    }

    /// Removes the fields that the schema does not know. Returns the shortened paths of the first 50.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.roots(), object)
    }

    /// Returns whether the schema knows a field at this path, which consists of names separated by dots.
    pub(crate) fn knows(&self, path: &str) -> bool {
        prune::knows(&self.roots(), path.split('.'))
    }

    /// Sets missing fields to their defaults.
    pub(crate) fn fill_in(&self, object: &mut Value) {
        prune::fill_in(&self.root, object);
    }
}

impl SchemaNode {
    /// Returns the schemas of a field.
    fn of_field<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Self> {
        let named = self.properties.get(name);
        let matching = self.patterns.iter().filter(|(pattern, _)| pattern.is_match(name)).map(|(_, schema)| schema);
        let described: Vec<_> = named.into_iter().chain(matching).collect();
        let others = self.additional.as_deref().filter(|_| described.is_empty());
        described.into_iter().chain(others)
    }

    /// Returns the schema of an array's element.
    fn of_item(&self, at: usize) -> Option<&Self> {
        self.first_items.get(at).or(self.items.as_deref())
    }
}

impl JsonType {
    /// Returns whether a value has this type. A number without a fraction also counts as an integer.
    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Array => value.is_array(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => {
                value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            Self::Null => value.is_null(),
            Self::Number => value.is_number(),
            Self::Object => value.is_object(),
            Self::Text => value.is_string(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Null => "null",
            Self::Number => "number",
            Self::Object => "object",
            Self::Text => "string",
        }
    }
}

/// The path of a value, such as `spec.disks[0].size`.
#[derive(Debug, Default)]
struct ValuePath(String);

impl ValuePath {
    /// Runs a function with the path of a field.
    fn in_field<T>(&mut self, name: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(name);
        let result = run(self);
        self.0.truncate(length);
        result
    }

    /// Runs a function with the path of a map's entry. The entry's key may contain dots.
    fn in_entry<T>(&mut self, key: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        self.0.extend(["[", key, "]"]);
        let result = run(self);
        self.0.truncate(length);
        result
    }
}
