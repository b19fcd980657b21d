//! The JSON paths of print columns: the part of `kubectl`'s JSON paths that definitions use.

use std::str::FromStr;

use serde_json::Value;

use crate::value_ref::ValueRef;

/// A path to values inside an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<PathStep>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Field(String),
    /// An element by its index. A negative index counts from the end.
    Element(i64),
    /// All elements or all fields.
    All,
    /// The elements that have this text at a path, or those that do not have it.
    Having {
        path: JsonPath,
        equal: bool,
        text: String,
    },
}

impl JsonPath {
    /// Returns the first selected value that is not null.
    pub(super) fn first<'a>(&self, value: ValueRef<'a>) -> Option<ValueRef<'a>> {
        walk(&self.0, value)
    }
}

fn walk<'a>(steps: &[PathStep], value: ValueRef<'a>) -> Option<ValueRef<'a>> {
    let Some((step, rest)) = steps.split_first() else { return (!value.is_null()).then_some(value) };
    match step {
        PathStep::Field(name) => walk(rest, value.get(name)?),
        PathStep::Element(at) => {
            let count = || i64::try_from(value.items().count()).unwrap_or(i64::MAX);
            let at = if *at < 0 { count() + at } else { *at };
            walk(rest, value.items().nth(usize::try_from(at).ok()?)?)
        }
        PathStep::All if value.is_array() => value.items().find_map(|item| walk(rest, item)),
        PathStep::All => value.fields().find_map(|(_, field)| walk(rest, field)),
        PathStep::Having { path, equal, text } => {
            let has = |item: &ValueRef<'a>| path.first(*item).is_some_and(|found| is_text(found, text)) == *equal;
            value.items().filter(has).find_map(|item| walk(rest, item))
        }
    }
}

fn is_text(value: ValueRef<'_>, text: &str) -> bool {
    match value.as_str() {
        Some(found) => found == text,
        // For a number or boolean, compare the JSON text.
        None => serde_json::from_str::<Value>(text).is_ok_and(|wanted| value == wanted),
    }
}

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        let inner = inner.strip_prefix(['$', '@']).unwrap_or(inner);
        let (mut steps, mut rest) = (Vec::new(), inner);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after).ok_or("a bracket is not closed")?;
                steps.push(bracket(&after[..end])?);
                rest = &after[end + 1..];
            } else if let Some(after) = rest.strip_prefix('.') {
                let (name, length) = field(after);
                match name.as_str() {
                    "" => return Err("a dot has no name after it".to_owned()),
                    "*" => steps.push(PathStep::All),
                    _ => steps.push(PathStep::Field(name)),
                }
                rest = &after[length..];
            } else {
                return Err(format!("{rest:?} must begin with a dot or a bracket"));
            }
        }
        if steps.is_empty() { Err("it is empty".to_owned()) } else { Ok(Self(steps)) }
    }
}

/// Reads a name. A backslash before a dot makes the dot part of the name. Returns the name and its length in the text.
fn field(text: &str) -> (String, usize) {
    let (mut name, mut escaped) = (String::new(), false);
    for (at, letter) in text.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, at),
            letter => {
                name.push(letter);
                escaped = false;
            }
        }
    }
    (name, text.len())
}

/// Returns the position of the bracket that closes a step, ignoring quoted and nested brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Result<PathStep, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(PathStep::All);
    }
    if let Some(name) = quoted(text) {
        return Ok(PathStep::Field(name.to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        let (path, equal, text) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some((path, text)), _) => (path, true, text),
            (_, Some((path, text))) => (path, false, text),
            _ => return Err(format!("the condition {filter:?} must compare by == or !=")),
        };
        let text = quoted(text.trim()).unwrap_or(text.trim()).to_owned();
        return Ok(PathStep::Having { path: path.trim().parse()?, equal, text });
    }
    text.parse()
        .map(PathStep::Element)
        .map_err(|_| format!("{text:?} in brackets must be a number, a quoted name or a condition"))
}

fn quoted(text: &str) -> Option<&str> {
    let inside = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_the_first_value() {
        let object = json!({
            "spec": {"title": "t", "ports": [{"port": 80}, {"port": 443}], "none": null},
            "metadata": {"labels": {"app.example.com/x": "l"}},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, expected) in [
            (".spec.title", json!("t")),
            ("{.spec.title}", json!("t")),
            ("$.spec['title']", json!("t")),
            (".spec.ports[1].port", json!(443)),
            (".spec.ports[-1].port", json!(443)),
            (".spec.ports[*].port", json!(80)),
            (".spec.ports[2].port", Value::Null),
            (".spec.none", Value::Null),
            (r".metadata.labels.app\.example\.com/x", json!("l")),
            (".metadata.labels['app.example.com/x']", json!("l")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type != 'A')].status", json!("True")),
            (".spec.ports[?(@.port==443)].port", json!(443)),
            (".metadata.labels.*", json!("l")),
        ] {
            let found =
                path.parse::<JsonPath>().unwrap().first((&object).into()).map_or(Value::Null, ValueRef::to_value);
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in ["", "spec", ".", "..a", ".a[", ".a[x]", ".a[?(@.b)]", ".a[?(b==1)]"] {
            assert!(path.parse::<JsonPath>().is_err(), "{path}");
        }
    }
}
