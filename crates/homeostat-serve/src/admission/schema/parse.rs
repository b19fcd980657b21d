//! Compiles schemas.

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::format::TextFormat;
use super::{ContainedItems, JsonType, NumberBound, SchemaNode, Uniqueness};
use homeostat_objects::SchemaError;

/// Keywords that do not restrict a value.
const WITHOUT_RULES: [&str; 6] =
    ["default", "description", "nullable", "title", "x-kubernetes-preserve-unknown-fields", "example"];

/// The largest number of levels in a schema.
const MOST_DEPTH: usize = 100;

/// Compiles the schema at a path.
pub(super) fn parse(schema: &Value, path: &mut Vec<String>) -> Result<SchemaNode, SchemaError> {
    let Value::Object(fields) = schema else {
        return Err(SchemaError::new(path, format!("{schema} is not a schema")));
    };
    if path.len() > MOST_DEPTH {
        return Err(SchemaError::new(&[], format!("it has more than {MOST_DEPTH} levels")));
    }
    Parse { fields, path }.node()
}

struct Parse<'a, 'p> {
    fields: &'a Map<String, Value>,
    path: &'p mut Vec<String>,
}

impl<'a> Parse<'a, '_> {
    fn node(&mut self) -> Result<SchemaNode, SchemaError> {
        if self.fields.contains_key("x-kubernetes-validations") {
            let fault = "it has rules in CEL (x-kubernetes-validations), which are not evaluated here; use a validate hook instead";
            return Err(self.fault(fault));
        }
        if self.fields.contains_key("unevaluatedProperties") {
            let fault =
                "the keyword \"unevaluatedProperties\" is not supported; leave it out and use a validate hook instead";
            return Err(self.fault(fault));
        }
        let (int_or_string, embedded) =
            (self.flag("x-kubernetes-int-or-string")?, self.flag("x-kubernetes-embedded-resource")?);
        let (nullable, preserve) = (self.flag("nullable")?, self.flag("x-kubernetes-preserve-unknown-fields")?);
        Ok(SchemaNode {
            is_any: self.fields.keys().all(|keyword| WITHOUT_RULES.contains(&keyword.as_str())),
            types: self.types()?,
            nullable,
            int_or_string,
            preserve,
            embedded,
            properties: self.properties()?,
            patterns: self.patterns()?,
            names: self.child("propertyNames")?.map(Box::new),
            additional: self.additional()?.map(Box::new),
            first_items: self.branches("prefixItems")?,
            items: self.child("items")?.map(Box::new),
            contains: self.contains()?,
            required: self.texts("required")?,
            dependent_required: self.dependent_required()?,
            values: self.array("enum")?.map(<[_]>::to_vec),
            minimum: self.bound("minimum", "exclusiveMinimum")?,
            maximum: self.bound("maximum", "exclusiveMaximum")?,
            multiple_of: self.multiple_of()?,
            length: (self.count("minLength")?, self.count("maxLength")?),
            count: (self.count("minItems")?, self.count("maxItems")?),
            size: (self.count("minProperties")?, self.count("maxProperties")?),
            unique: self.unique()?,
            pattern: self.pattern()?,
            format: self.text("format")?.and_then(TextFormat::named),
            default: self.fields.get("default").cloned(),
            all_of: self.branches("allOf")?,
            any_of: self.branches("anyOf")?,
            one_of: self.branches("oneOf")?,
            not: self.child("not")?.map(Box::new),
        })
    }

    fn fault(&self, fault: impl Into<String>) -> SchemaError {
        SchemaError::new(self.path, fault)
    }

    fn types(&self) -> Result<Vec<JsonType>, SchemaError> {
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

    fn flag(&self, keyword: &str) -> Result<bool, SchemaError> {
        match self.fields.get(keyword) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.fault(format!("its {keyword} is {other}, not true or false"))),
        }
    }

    fn text(&self, keyword: &str) -> Result<Option<&'a str>, SchemaError> {
        let text = |value: &'a Value| {
            value.as_str().ok_or_else(|| self.fault(format!("its {keyword} is {value}, not a text")))
        };
        self.fields.get(keyword).map(text).transpose()
    }

    fn bound(&self, keyword: &str, exclusive: &str) -> Result<Option<NumberBound>, SchemaError> {
        let exclusive = self.flag(exclusive)?;
        Ok(self.number(keyword)?.map(|bound| NumberBound { bound, exclusive }))
    }

    fn multiple_of(&self) -> Result<Option<f64>, SchemaError> {
        match self.number("multipleOf")? {
            Some(step) if step <= 0.0 => Err(self.fault(format!("its multipleOf is {step}, not more than 0"))),
            step => Ok(step),
        }
    }

    fn contains(&mut self) -> Result<Option<ContainedItems>, SchemaError> {
        let (least, most) = (self.count("minContains")?.unwrap_or(1), self.count("maxContains")?);
        let schema = self.child("contains")?.map(Box::new);
        Ok(schema.map(|schema| ContainedItems { schema, least, most }))
    }

    fn object(&self, keyword: &str) -> Result<Option<&'a Map<String, Value>>, SchemaError> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields)),
            Some(other) => Err(self.fault(format!("its {keyword} is {other}, not an object"))),
        }
    }

    fn patterns(&mut self) -> Result<Vec<(Regex, SchemaNode)>, SchemaError> {
        let Some(patterns) = self.object("patternProperties")? else { return Ok(Vec::new()) };
        patterns.iter().map(|(pattern, schema)| Ok((self.regex(pattern)?, self.at(pattern, schema)?))).collect()
    }

    fn dependent_required(&self) -> Result<Vec<(String, Vec<String>)>, SchemaError> {
        let Some(dependents) = self.object("dependentRequired")? else { return Ok(Vec::new()) };
        let names = |of: &String, names: &Value| {
            let texts = names.as_array().into_iter().flatten().map(|name| name.as_str().map(str::to_owned));
            let texts: Option<Vec<_>> = texts.collect();
            let texts = texts.filter(|_| names.is_array());
            texts.ok_or_else(|| self.fault(format!("its dependentRequired of {of} is {names}, not an array of names")))
        };
        dependents.iter().map(|(of, required)| Ok((of.clone(), names(of, required)?))).collect()
    }

    fn properties(&mut self) -> Result<std::collections::BTreeMap<String, SchemaNode>, SchemaError> {
        let Some(properties) = self.object("properties")? else { return Ok(std::collections::BTreeMap::new()) };
        properties.iter().map(|(name, schema)| Ok((name.clone(), self.at(name, schema)?))).collect()
    }

    fn at(&mut self, name: &str, schema: &Value) -> Result<SchemaNode, SchemaError> {
        self.path.push(name.to_owned());
        let node = parse(schema, self.path)?;
        self.path.pop();
        Ok(node)
    }

    fn child(&mut self, keyword: &str) -> Result<Option<SchemaNode>, SchemaError> {
        self.fields.get(keyword).map(|schema| self.at(keyword, schema)).transpose()
    }

    /// Returns the schema of other fields. If there are none, pruning removes them.
    fn additional(&mut self) -> Result<Option<SchemaNode>, SchemaError> {
        let has_none = self.fields.get("additionalProperties") == Some(&Value::Bool(false));
        if has_none { Ok(None) } else { self.child("additionalProperties") }
    }

    fn branches(&mut self, keyword: &str) -> Result<Vec<SchemaNode>, SchemaError> {
        let branches = self.array(keyword)?.unwrap_or_default();
        branches.iter().map(|branch| self.at(keyword, branch)).collect()
    }

    fn array(&self, keyword: &str) -> Result<Option<&'a [Value]>, SchemaError> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.fault(format!("its {keyword} is {other}, not an array"))),
        }
    }

    fn texts(&self, keyword: &str) -> Result<Vec<String>, SchemaError> {
        let texts = self.array(keyword)?.unwrap_or_default().iter();
        texts
            .map(|text| text.as_str().map(str::to_owned).ok_or_else(|| self.fault(format!("{text} is not a name"))))
            .collect()
    }

    fn number(&self, keyword: &str) -> Result<Option<f64>, SchemaError> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| self.fault(format!("its {keyword} is {value}")));
        self.fields.get(keyword).map(number).transpose()
    }

    fn count(&self, keyword: &str) -> Result<Option<u64>, SchemaError> {
        let count = |value: &Value| value.as_u64().ok_or_else(|| self.fault(format!("its {keyword} is {value}")));
        self.fields.get(keyword).map(count).transpose()
    }

    fn unique(&self) -> Result<Option<Uniqueness>, SchemaError> {
        let is_unique = self.flag("uniqueItems")?;
        match self.text("x-kubernetes-list-type")? {
            Some("map") => Ok(Some(Uniqueness::Keys(self.texts("x-kubernetes-list-map-keys")?))),
            Some("set") => Ok(Some(Uniqueness::Elements)),
            None | Some("atomic") => Ok(is_unique.then_some(Uniqueness::Elements)),
            Some(other) => Err(self.fault(format!("its x-kubernetes-list-type is {other:?}, not atomic, map or set"))),
        }
    }

    fn pattern(&self) -> Result<Option<Regex>, SchemaError> {
        self.text("pattern")?.map(|pattern| self.regex(pattern)).transpose()
    }

    fn regex(&self, pattern: &str) -> Result<Regex, SchemaError> {
        Regex::new(pattern).map_err(|error| self.fault(format!("its pattern {pattern:?} cannot be used: {error}")))
    }
}
