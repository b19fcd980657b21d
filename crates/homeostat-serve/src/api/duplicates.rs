//! Finds fields that occur twice in a JSON text. A plain value.

use std::collections::HashSet;
use std::fmt::Write;

use homeostat::rt::bounded;
use homeostat_objects::json::{JsonToken, tokens};

/// The largest number of fields that are named.
const MOST_NAMED: usize = 50;

/// An object or array that is not closed yet.
enum OpenValue {
    Object {
        names: HashSet<String>,
        /// The name of the field with the next value. `None` before a name.
        name: Option<String>,
    },
    /// An array, and the index of its next element.
    Array(usize),
}

impl OpenValue {
    /// Records the end of a value inside.
    fn end_value(&mut self) {
        match self {
            Self::Object { name, .. } => *name = None,
            Self::Array(at) => *at += 1,
        }
    }
}

/// Returns the shortened paths of the first duplicate fields, such as `spec.disks[0].size`.
pub(super) fn duplicate_fields(text: &[u8]) -> Vec<String> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for token in tokens(text) {
        match token {
            JsonToken::Open(b'{') => open.push(OpenValue::Object { names: HashSet::new(), name: None }),
            JsonToken::Open(_) => open.push(OpenValue::Array(0)),
            JsonToken::Close(_) => {
                open.pop();
                open.last_mut().map(OpenValue::end_value);
            }
            JsonToken::Scalar(scalar) => match open.last_mut() {
                Some(OpenValue::Object { names, name: name @ None }) => {
                    let read = serde_json::from_slice::<String>(scalar).unwrap_or_default();
                    let is_new = names.insert(read.clone());
                    *name = Some(read);
                    if !is_new && found.len() < MOST_NAMED {
                        found.push(bounded(path(&open)));
                    }
                }
                Some(parent) => parent.end_value(),
                None => {}
            },
        }
    }
    found
}

fn path(open: &[OpenValue]) -> String {
    let mut path = String::new();
    for value in open {
        // Writing to a string cannot fail.
        let _ = match value {
            OpenValue::Object { name, .. } => {
                let dot = if path.is_empty() { "" } else { "." };
                write!(path, "{dot}{}", name.as_deref().unwrap_or_default())
            }
            OpenValue::Array(at) => write!(path, "[{at}]"),
        };
    }
    path
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn repeated_fields_are_found_at_each_depth() {
        for (text, found) in [
            (r#"{"a": 1, "b": {"a": 2}}"#, vec![]),
            (r#"{"a": 1, "a": 2, "a": 3}"#, vec!["a", "a"]),
            (
                r#"{"spec": {"size": 1, "list": [{"x": 1}, {"x": [], "x": {}}], "size": 2}}"#,
                vec!["spec.list[1].x", "spec.size"],
            ),
            // An escaped name equals the unescaped one. A value is not a name.
            (r#"{"a": "a", "\u0061": ["a", "a"]}"#, vec!["a"]),
            (r#"[{"op": "add", "op": "test"}]"#, vec!["[0].op"]),
            (r#"{"a": {}, "b": [], "a": {"b": 1}}"#, vec!["a"]),
            ("3", vec![]),
            (r#"}]{"a":"#, vec![]),
        ] {
            assert_eq!(duplicate_fields(text.as_bytes()), found, "{text}");
        }
        let many = format!("{{{}}}", vec![r#""a":1"#; 200].join(","));
        assert_eq!(duplicate_fields(many.as_bytes()).len(), 50);
        let deep = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
        assert!(duplicate_fields(deep.as_bytes()).is_empty());
    }
}
