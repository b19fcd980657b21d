//! JSON pointers.

use serde_json::{Map, Value};

/// The parts of a pointer.
fn steps(pointer: &str) -> Result<Vec<String>, String> {
    let path = pointer.strip_prefix('/').ok_or("a JSON pointer begins with a slash")?;
    Ok(path.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
}

/// Sets the value at a pointer. Missing parents are created: lists before `-`, objects elsewhere.
pub(crate) fn set(json: &mut Value, pointer: &str, value: Value) -> Result<(), String> {
    let mut place = json;
    for step in steps(pointer)? {
        if place.is_null() {
            *place = if step == "-" { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        }
        place = match place {
            Value::Object(fields) => fields.entry(step).or_insert(Value::Null),
            Value::Array(entries) => {
                let at = if step == "-" { Some(entries.len()) } else { step.parse().ok() };
                let at = at.filter(|at| *at <= entries.len()).ok_or_else(|| format!("the list has no place {step}"))?;
                if at == entries.len() {
                    entries.push(Value::Null);
                }
                &mut entries[at]
            }
            _ => return Err(format!("there is no {step} in a value")),
        };
    }
    *place = value;
    Ok(())
}

/// Removes the value at a pointer.
pub(super) fn remove(json: &mut Value, pointer: &str) -> Result<(), String> {
    let nothing = || "nothing is there".to_owned();
    let mut steps = steps(pointer)?;
    let last = steps.pop().ok_or_else(nothing)?;
    let mut place = json;
    for step in steps {
        place = match place {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(entries) => step.parse().ok().and_then(|at: usize| entries.get_mut(at)),
            _ => None,
        }
        .ok_or_else(nothing)?;
    }
    match place {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(entries) => last.parse().ok().filter(|at| *at < entries.len()).map(|at: usize| entries.remove(at)),
        _ => None,
    }
    .map(drop)
    .ok_or_else(nothing)
}
