//! Checks values against schemas.

use std::collections::HashSet;
use std::fmt::Display;

use serde_json::Value;

use super::fault::{FaultReason, FieldFault};
use super::{ContainedItems, JsonType, SchemaNode, Uniqueness, ValuePath};

/// The largest number of faults that are reported.
const MOST_FAULTS: usize = 50;

/// The fields of an object that schemas do not describe.
pub(super) const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the first faults of a complete object, without the faults of its old state.
pub(super) fn faults(schema: &SchemaNode, object: &Value, old: Option<&Value>) -> Vec<FieldFault> {
    let mut check = SchemaCheck::default();
    check.value(schema, object);
    if let (false, Some(old)) = (check.faults.is_empty(), old) {
        // Collect all old faults, because the first ones of the new state may differ.
        let mut known = SchemaCheck { most: usize::MAX, ..SchemaCheck::default() };
        known.value(schema, old);
        check = SchemaCheck { known: known.faults.into_iter().collect(), ..SchemaCheck::default() };
        check.value(schema, object);
    }
    check.faults
}

struct SchemaCheck {
    path: ValuePath,
    faults: Vec<FieldFault>,
    /// The largest number of faults that are collected.
    most: usize,
    /// Faults to ignore.
    known: HashSet<FieldFault>,
}

impl Default for SchemaCheck {
    fn default() -> Self {
        Self { path: ValuePath::default(), faults: Vec::new(), most: MOST_FAULTS, known: HashSet::new() }
    }
}

impl SchemaCheck {
    /// Creates a check of the value at a path.
    fn at(path: &str) -> Self {
        Self { path: ValuePath(path.to_owned()), ..Self::default() }
    }

    fn add(&mut self, reason: FaultReason, value: &Value, rule: impl Display) {
        if self.faults.len() < self.most {
            let fault = FieldFault::new(&self.path.0, reason, value, rule);
            if !self.known.contains(&fault) {
                self.faults.push(fault);
            }
        }
    }

    fn require(&mut self, holds: bool, value: &Value, rule: impl FnOnce() -> String) {
        if !holds {
            self.add(FaultReason::Invalid, value, rule());
        }
    }

    fn value(&mut self, schema: &SchemaNode, value: &Value) {
        if self.faults.len() >= self.most || (value.is_null() && schema.nullable) {
            return;
        }
        if !self.has_type(schema, value) {
            return;
        }
        if let Some(values) = &schema.values
            && !values.iter().any(|known| is_equal(known, value))
        {
            let known: Vec<_> = values.iter().map(Value::to_string).collect();
            self.add(FaultReason::NotSupported, value, format_args!("supported values: {}", known.join(", ")));
        }
        if let Some(rule) = schema.format.and_then(|format| format.broken_rule(value)) {
            self.add(FaultReason::Invalid, value, rule);
        }
        match value {
            Value::Number(_) => self.number(schema, value),
            Value::String(text) => self.text(schema, value, text),
            Value::Array(items) => self.array(schema, value, items),
            Value::Object(fields) => {
                self.fields(schema, fields);
                let (least, most) = schema.size;
                self.size(value, fields.len(), least, most, "fields");
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.alternatives(schema, value);
    }

    /// Checks the type. If it is wrong, no other rule is checked.
    fn has_type(&mut self, schema: &SchemaNode, value: &Value) -> bool {
        if schema.int_or_string {
            let holds = JsonType::Integer.is_of(value) || value.is_string();
            if !holds {
                self.add(FaultReason::WrongType, value, "must be an integer or a string");
            }
            return holds;
        }
        let holds = schema.types.is_empty() || schema.types.iter().any(|one| one.is_of(value));
        if !holds {
            let names: Vec<_> = schema.types.iter().map(|one| one.name()).collect();
            self.add(FaultReason::WrongType, value, format_args!("must be of type {}", names.join(" or ")));
        }
        holds
    }

    fn number(&mut self, schema: &SchemaNode, value: &Value) {
        let number = value.as_f64().unwrap_or_default();
        if let Some(least) = schema.minimum {
            let (holds, words) =
                if least.exclusive { (number > least.bound, "more than") } else { (number >= least.bound, "at least") };
            self.require(holds, value, || format!("must be {words} {}", least.bound));
        }
        if let Some(most) = schema.maximum {
            let (holds, words) =
                if most.exclusive { (number < most.bound, "less than") } else { (number <= most.bound, "at most") };
            self.require(holds, value, || format!("must be {words} {}", most.bound));
        }
        if let Some(step) = schema.multiple_of {
            let times = number / step;
            // A tenth has no exact binary form, so three tenths are only nearly a multiple of a tenth.
            let holds = (times - times.round()).abs() <= f64::EPSILON * times.abs().max(1.0);
            self.require(holds, value, || format!("must be a multiple of {step}"));
        }
    }

    fn text(&mut self, schema: &SchemaNode, value: &Value, text: &str) {
        let (least, most) = schema.length;
        if least.is_some() || most.is_some() {
            let length = text.chars().count() as u64;
            if let Some(most) = most.filter(|most| length > *most) {
                self.add(FaultReason::TooLong, value, format_args!("must have at most {most} characters"));
                // A pattern must not be matched against a text that is too long.
                return;
            }
            if let Some(least) = least {
                self.require(length >= least, value, || format!("must have at least {least} characters"));
            }
        }
        if let Some(pattern) = &schema.pattern {
            self.require(pattern.is_match(text), value, || format!("must match the pattern {:?}", pattern.as_str()));
        }
    }

    fn array(&mut self, schema: &SchemaNode, value: &Value, items: &[Value]) {
        let (least, most) = schema.count;
        self.size(value, items.len(), least, most, "elements");
        if let Some(unique) = &schema.unique {
            self.unique(unique, items);
        }
        for (at, item) in items.iter().enumerate() {
            if let Some(schema) = schema.of_item(at) {
                self.in_entry(&at.to_string(), |check| check.value(schema, item));
            }
        }
        if let Some(ContainedItems { schema, least, most }) = &schema.contains {
            let found = items.iter().filter(|item| is_valid(schema, item)).count() as u64;
            self.require(found >= *least && most.is_none_or(|most| found <= most), value, || {
                let most = most.map_or_else(String::new, |most| format!(" and at most {most}"));
                format!("must contain at least {least}{most} of the elements that its schema describes, but contains {found}")
            });
        }
    }

    /// Compares elements by a text in which an object's fields are sorted.
    fn unique(&mut self, unique: &Uniqueness, items: &[Value]) {
        let mut known = HashSet::new();
        for (at, item) in items.iter().enumerate() {
            let text = match unique {
                Uniqueness::Elements => canonical(item),
                Uniqueness::Keys(keys) => keys.iter().map(|key| canonical(&item[key.as_str()]) + ",").collect(),
            };
            if !known.insert(text) {
                self.in_entry(&at.to_string(), |check| {
                    check.add(FaultReason::Duplicate, item, "must differ from the elements before");
                });
            }
        }
    }

    fn size(&mut self, value: &Value, size: usize, least: Option<u64>, most: Option<u64>, of: &str) {
        if let Some(most) = most.filter(|most| size as u64 > *most) {
            self.add(FaultReason::TooMany, value, format_args!("{size}: must have at most {most} {of}"));
        }
        if let Some(least) = least {
            self.require(size as u64 >= least, value, || format!("must have at least {least} {of}"));
        }
    }

    fn fields(&mut self, schema: &SchemaNode, fields: &serde_json::Map<String, Value>) {
        for name in &schema.required {
            if !fields.contains_key(name) {
                self.in_field(name, |check| check.add(FaultReason::Required, &Value::Null, "must be set"));
            }
        }
        for (name, required) in &schema.dependent_required {
            for missing in required.iter().filter(|other| fields.contains_key(name) && !fields.contains_key(*other)) {
                self.in_field(missing, |check| {
                    check.add(FaultReason::Required, &Value::Null, format_args!("must be set beside {name}"));
                });
            }
        }
        let has_head = self.path.0.is_empty() || schema.embedded;
        for (name, value) in fields {
            let is_named = schema.properties.contains_key(name);
            if !is_named && has_head && HEAD.contains(&name.as_str()) {
                continue;
            }
            if let Some(names) = &schema.names {
                self.in_entry(name, |check| check.value(names, &Value::from(name.as_str())));
            }
            for schema in schema.of_field(name) {
                let check = |check: &mut Self| check.value(schema, value);
                if is_named { self.in_field(name, check) } else { self.in_entry(name, check) }
            }
        }
    }

    fn alternatives(&mut self, schema: &SchemaNode, value: &Value) {
        for branch in &schema.all_of {
            self.value(branch, value);
        }
        let matches = |branches: &[SchemaNode]| branches.iter().filter(|branch| is_valid(branch, value)).count();
        if !schema.any_of.is_empty() && matches(&schema.any_of) == 0 {
            self.nearest(&schema.any_of, value);
        }
        if !schema.one_of.is_empty() {
            match matches(&schema.one_of) {
                1 => {}
                0 => self.nearest(&schema.one_of, value),
                several => {
                    self.add(
                        FaultReason::Invalid,
                        value,
                        format_args!("must match one alternative, but matches {several}"),
                    );
                }
            }
        }
        if schema.not.as_ref().is_some_and(|not| is_valid(not, value)) {
            self.add(FaultReason::Invalid, value, "must not match the excluded schema");
        }
    }

    /// Reports that no alternative matches, with the faults of the alternative that has the fewest.
    fn nearest(&mut self, branches: &[SchemaNode], value: &Value) {
        let faults = branches.iter().map(|branch| {
            let mut check = Self::at(&self.path.0);
            check.value(branch, value);
            check.faults
        });
        let nearest = faults.min_by_key(Vec::len).and_then(|faults| faults.into_iter().next());
        let hint = nearest.map_or_else(String::new, |fault| format!("; the nearest: {fault}"));
        self.add(FaultReason::Invalid, value, format_args!("must match one of the alternatives{hint}"));
    }

    fn in_field(&mut self, name: &str, run: impl FnOnce(&mut Self)) {
        let mut path = std::mem::take(&mut self.path);
        path.in_field(name, |path| {
            std::mem::swap(&mut self.path, path);
            run(self);
            std::mem::swap(&mut self.path, path);
        });
        self.path = path;
    }

    fn in_entry(&mut self, key: &str, run: impl FnOnce(&mut Self)) {
        let mut path = std::mem::take(&mut self.path);
        path.in_entry(key, |path| {
            std::mem::swap(&mut self.path, path);
            run(self);
            std::mem::swap(&mut self.path, path);
        });
        self.path = path;
    }
}

fn is_valid(schema: &SchemaNode, value: &Value) -> bool {
    // With an empty path, `apiVersion`, `kind` and `metadata` would be ignored.
    let mut check = SchemaCheck::at("x");
    check.value(schema, value);
    check.faults.is_empty()
}

/// Returns whether two values are equal. Numbers are equal if their values are, such as 1 and 1.0.
fn is_equal(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| (one - other).abs() == 0.0)
}

/// Returns a text that is the same for equal values.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float}"),
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            fields.sort_unstable();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}
