//! Rules: schemas that only restrict the values of another schema. A server allows only rules in `allOf`, `anyOf`,
//! `oneOf` and `not`.

use serde_json::Value;

use super::shape::{ANY_FIELDS, Fields, LIMITS, properties};

/// Keywords that restrict no values.
const SILENT: [&str; 3] = ["description", "example", "title"];

/// Converts a schema to a rule for the values of `base`. The rule accepts exactly the same values as the schema.
///
/// Returns the reason if no such rule exists.
pub(super) fn exact_rule(schema: &Value, base: &Fields) -> Result<Fields, String> {
    let fields = match schema {
        Value::Object(fields) => fields,
        other => return Err(format!("the schema {other}")),
    };
    let mut rule = Fields::new();
    for (keyword, value) in fields {
        let part = match (&**keyword, value) {
            ("nullable", _) => return Err("the value null".to_owned()),
            ("enum", Value::Array(values)) if values.contains(&Value::Null) => return Err("the value null".to_owned()),
            ("exclusiveMinimum" | "exclusiveMaximum", value) => value.clone(),
            (keyword, value) if LIMITS.contains(&keyword) => value.clone(),
            ("required", Value::Array(names)) => {
                let known = |name: &Value| properties(base).any(|(known, _)| name == known);
                if let Some(unknown) = names.iter().find(|name| !known(name)) {
                    return Err(format!("the field {unknown}, which the schema around it does not describe"));
                }
                value.clone()
            }
            ("properties", Value::Object(fields)) => {
                let rules = fields.iter().map(|(name, schema)| {
                    let known =
                        properties(base).find(|(known, _)| *known == name).and_then(|(_, base)| base.as_object());
                    match known.filter(|_| name != "metadata") {
                        Some(base) => Ok((name.clone(), Value::Object(exact_rule(schema, base)?))),
                        None => Err(format!("the field {name:?}, which the schema around it does not describe")),
                    }
                });
                rules.collect::<Result<Fields, _>>()?.into()
            }
            ("items", schema) => match base.get("items") {
                Some(Value::Object(base)) => exact_rule(schema, base)?.into(),
                _ => return Err("\"items\"".to_owned()),
            },
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                let rules = branches.iter().map(|branch| exact_rule(branch, base).map(Value::Object));
                rules.collect::<Result<Vec<_>, _>>()?.into()
            }
            ("not", schema) => exact_rule(schema, base)?.into(),
            ("type", of) if base.get("type") == Some(of) => continue,
            (ANY_FIELDS, _) if fields.len() == 1 => continue,
            (keyword, _) if SILENT.contains(&keyword) => continue,
            (keyword, _) => return Err(format!("{keyword:?}")),
        };
        rule.insert(keyword.clone(), part);
    }
    Ok(rule)
}
