//! Other spellings of a schema, with the same meaning: references, lists with one schema, and other ways to say that a
//! value may be null. Other generators and people write them.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Returns random choices for [`respelled`].
pub fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(0..12_u8, 1..24)
}

/// Returns a complete schema that describes the same values in other words. The choices must not be empty.
pub fn respelled(schema: &Value, choices: &[u8]) -> Value {
    let mut speller = Speller { choices: choices.iter().cycle(), definitions: Map::new() };
    let mut root = speller.with_parts(schema);
    if !speller.definitions.is_empty() {
        root["$defs"] = speller.definitions.into();
    }
    root
}

struct Speller<'a> {
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
    definitions: Map<String, Value>,
}

impl Speller<'_> {
    /// Spells the schemas inside a schema in other words.
    fn with_parts(&mut self, schema: &Value) -> Value {
        let Value::Object(fields) = schema else { return schema.clone() };
        let parts = fields.iter().map(|(keyword, value)| {
            let value = match (&**keyword, value) {
                ("properties" | "patternProperties", Value::Object(named)) => {
                    named.iter().map(|(name, schema)| (name.clone(), self.spelled(schema))).collect()
                }
                ("prefixItems" | "allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                    all.iter().map(|schema| self.spelled(schema)).collect()
                }
                ("items" | "additionalProperties", Value::Object(_)) => self.spelled(value),
                _ => value.clone(),
            };
            (keyword.clone(), value)
        });
        parts.collect()
    }

    fn spelled(&mut self, schema: &Value) -> Value {
        let mut spelled = self.with_parts(schema);
        if let (0..6, Some(others)) = (self.choice(), without_null(&spelled)) {
            spelled = self.with_null(others);
        }
        match self.choice() {
            0 => self.reference(spelled),
            1 => {
                let default = spelled.as_object_mut().and_then(|fields| fields.remove("default"));
                let mut reference = self.reference(spelled);
                // As schemars does.
                if let Some(default) = default {
                    reference["default"] = default;
                }
                reference
            }
            2 => json!({"allOf": [spelled]}),
            3 => json!({"anyOf": [spelled]}),
            4 => json!({"oneOf": [spelled]}),
            5 => json!({"allOf": [self.reference(spelled)], "description": "A field."}),
            _ => spelled,
        }
    }

    /// Adds null to a schema that does not accept it.
    fn with_null(&mut self, others: Value) -> Value {
        let default = others.get("default").cloned();
        let mut spelled = match self.choice() {
            0 | 1 => json!({"anyOf": [{"type": "null"}, others]}),
            2 => json!({"oneOf": [others, {"type": "null"}]}),
            3 => json!({"anyOf": [others, {"const": null}]}),
            4 => json!({"anyOf": [others, {"enum": [null]}]}),
            5 => json!({"anyOf": [others, self.reference(json!({"type": "null", "title": "Nothing"}))]}),
            6 => json!({"anyOf": [self.reference(others), {"type": "null"}]}),
            7 => json!({"nullable": true, "allOf": [self.reference(others)]}),
            8 => json!({"nullable": true, "oneOf": [others]}),
            _ => {
                let mut others = others;
                others["nullable"] = true.into();
                others
            }
        };
        if let Some(default) = default {
            spelled["default"] = default;
        }
        spelled
    }

    fn reference(&mut self, schema: Value) -> Value {
        let name = format!("T{}", self.definitions.len());
        let reference = json!({"$ref": format!("#/$defs/{name}")});
        self.definitions.insert(name, schema);
        reference
    }

    fn choice(&mut self) -> u8 {
        *self.choices.next().unwrap()
    }
}

/// Returns the schema of the other values, if a schema says that its values may be null.
fn without_null(schema: &Value) -> Option<Value> {
    let mut others = schema.clone();
    let fields = others.as_object_mut()?;
    match fields.get_mut("type") {
        Some(Value::Array(types)) if types.len() == 2 && types[1] == "null" => {
            let one = types.swap_remove(0);
            fields.insert("type".to_owned(), one);
            if let Some(Value::Array(values)) = fields.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            Some(others)
        }
        _ => None,
    }
}
