//! Compiles schemas.

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::format::TextFormat;
use super::{JsonType, NumberBound, SchemaFault, SchemaNode, Uniqueness};

/// Keywords that say nothing about a value.
const SILENT: [&str; 6] =
    ["default", "description", "nullable", "title", "x-kubernetes-preserve-unknown-fields", "example"];

/// The most levels of a schema.
const MOST_DEPTH: usize = 100;

/// Compiles the schema at a path.
pub(super) fn parse(schema: &Value, path: &mut Vec<String>) -> Result<SchemaNode, SchemaFault> {
    let Value::Object(fields) = schema else {
        return Err(SchemaFault::new(path, format!("{schema} is not a schema")));
    };
    if path.len() > MOST_DEPTH {
        return Err(SchemaFault::new(&[], format!("it has more than {MOST_DEPTH} levels")));
    }
    Parse { fields, path }.node()
}

struct Parse<'a, 'p> {
    fields: &'a Map<String, Value>,
    path: &'p mut Vec<String>,
}

impl<'a> Parse<'a, '_> {
    fn node(&mut self) -> Result<SchemaNode, SchemaFault> {
        if self.fields.contains_key("x-kubernetes-validations") {
            let fault = "it has rules in CEL (x-kubernetes-validations), which are not evaluated here; use a validate hook instead";
            return Err(self.fault(fault));
        }
        let is = |name: &str| self.fields.get(name) == Some(&Value::Bool(true));
        let (int_or_string, embedded) = (is("x-kubernetes-int-or-string"), is("x-kubernetes-embedded-resource"));
        let bound = |bound: Option<f64>, flag| bound.map(|bound| NumberBound { bound, exclusive: is(flag) });
        let (minimum, maximum) = (self.number("minimum")?, self.number("maximum")?);
        let (minimum, maximum) = (bound(minimum, "exclusiveMinimum"), bound(maximum, "exclusiveMaximum"));
        let (nullable, preserve) = (is("nullable"), is("x-kubernetes-preserve-unknown-fields"));
        Ok(SchemaNode {
            is_any: self.fields.keys().all(|keyword| SILENT.contains(&keyword.as_str())),
            types: self.types()?,
            nullable,
            int_or_string,
            preserve,
            embedded,
            properties: self.properties()?,
            additional: self.child("additionalProperties")?.map(Box::new),
            items: self.child("items")?.map(Box::new),
            required: self.texts("required")?,
            values: self.array("enum")?.map(<[_]>::to_vec),
            minimum,
            maximum,
            multiple_of: self.number("multipleOf")?,
            length: (self.count("minLength")?, self.count("maxLength")?),
            count: (self.count("minItems")?, self.count("maxItems")?),
            size: (self.count("minProperties")?, self.count("maxProperties")?),
            unique: self.unique()?,
            pattern: self.pattern()?,
            format: self.fields.get("format").and_then(Value::as_str).and_then(TextFormat::named),
            default: self.fields.get("default").cloned(),
            all_of: self.branches("allOf")?,
            any_of: self.branches("anyOf")?,
            one_of: self.branches("oneOf")?,
            not: self.child("not")?.map(Box::new),
        })
    }

    fn fault(&self, fault: impl Into<String>) -> SchemaFault {
        SchemaFault::new(self.path, fault)
    }

    fn types(&self) -> Result<Vec<JsonType>, SchemaFault> {
        let names = match self.fields.get("type") {
            None => return Ok(Vec::new()),
            Some(Value::Array(names)) => names.as_slice(),
            Some(name) => std::slice::from_ref(name),
        };
        let one = |name: &Value| {
            Ok(match name.as_str() {
                Some("array") => JsonType::Array,
                Some("boolean") => JsonType::Boolean,
                Some("integer") => JsonType::Integer,
                Some("null") => JsonType::Null,
                Some("number") => JsonType::Number,
                Some("object") => JsonType::Object,
                Some("string") => JsonType::Text,
                _ => return Err(self.fault(format!("{name} is not a type"))),
            })
        };
        names.iter().map(one).collect()
    }

    fn properties(&mut self) -> Result<std::collections::BTreeMap<String, SchemaNode>, SchemaFault> {
        let properties = match self.fields.get("properties") {
            None => return Ok(std::collections::BTreeMap::new()),
            Some(Value::Object(properties)) => properties,
            Some(other) => return Err(self.fault(format!("its properties are {other}"))),
        };
        properties.iter().map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?))).collect()
    }

    fn at(&mut self, name: &str, schema: &Value) -> Result<SchemaNode, SchemaFault> {
        self.path.push(name.to_owned());
        let node = parse(schema, self.path)?;
        self.path.pop();
        Ok(node)
    }

    fn child(&mut self, keyword: &str) -> Result<Option<SchemaNode>, SchemaFault> {
        self.fields.get(keyword).map(|schema| self.at(keyword, schema)).transpose()
    }

    fn branches(&mut self, keyword: &str) -> Result<Vec<SchemaNode>, SchemaFault> {
        let branches = self.array(keyword)?.unwrap_or_default();
        branches.iter().map(|branch| self.at(keyword, branch)).collect()
    }

    fn array(&self, keyword: &str) -> Result<Option<&'a [Value]>, SchemaFault> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.fault(format!("its {keyword} is {other}, not an array"))),
        }
    }

    fn texts(&self, keyword: &str) -> Result<Vec<String>, SchemaFault> {
        let texts = self.array(keyword)?.unwrap_or_default().iter();
        texts
            .map(|text| text.as_str().map(str::to_owned).ok_or_else(|| self.fault(format!("{text} is not a name"))))
            .collect()
    }

    fn number(&self, keyword: &str) -> Result<Option<f64>, SchemaFault> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| self.fault(format!("its {keyword} is {value}")));
        self.fields.get(keyword).map(number).transpose()
    }

    fn count(&self, keyword: &str) -> Result<Option<u64>, SchemaFault> {
        let count = |value: &Value| value.as_u64().ok_or_else(|| self.fault(format!("its {keyword} is {value}")));
        self.fields.get(keyword).map(count).transpose()
    }

    fn unique(&self) -> Result<Option<Uniqueness>, SchemaFault> {
        let list = self.fields.get("x-kubernetes-list-type").and_then(Value::as_str);
        Ok(match list {
            Some("map") => Some(Uniqueness::Keys(self.texts("x-kubernetes-list-map-keys")?)),
            Some("set") => Some(Uniqueness::Elements),
            _ if self.fields.get("uniqueItems") == Some(&Value::Bool(true)) => Some(Uniqueness::Elements),
            _ => None,
        })
    }

    fn pattern(&self) -> Result<Option<Regex>, SchemaFault> {
        let Some(pattern) = self.fields.get("pattern").and_then(Value::as_str) else { return Ok(None) };
        match Regex::new(pattern) {
            Ok(compiled) => Ok(Some(compiled)),
            Err(error) => Err(self.fault(format!("its pattern {pattern:?} cannot be used: {error}"))),
        }
    }
}
