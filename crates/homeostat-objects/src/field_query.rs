//! Field selectors in text form and as servers read them.

use std::fmt;
use std::str::FromStr;

use super::selector::{FieldRequirement, FieldSelector, ParseSelectorError};

impl FieldSelector {
    /// Returns the value that the field at this path must have, if the selector requires one.
    #[must_use]
    pub fn equal_to(&self, path: &str) -> Option<&str> {
        let mut required = self.0.iter().filter(|requirement| requirement.equal && requirement.path == path);
        required.next().map(|requirement| requirement.value.as_str())
    }

    /// Returns the same requirements for other paths.
    #[must_use]
    pub fn with_paths(mut self, path: impl Fn(&str) -> String) -> Self {
        for requirement in &mut self.0 {
            requirement.path = path(&requirement.path);
        }
        self
    }

    /// Returns the paths of all requirements.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.path.as_str())
    }

    /// Returns the requirements for some paths.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|requirement| is_wanted(&requirement.path)).cloned().collect())
    }

    /// Returns the requirements for some paths in the syntax of Kubernetes.
    #[must_use]
    pub fn to_query(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let wanted = self.0.iter().filter(|requirement| is_wanted(&requirement.path));
        wanted.map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for FieldSelector {
    type Err = ParseSelectorError;

    /// Parses `path=value`, `path==value` and `path!=value`, separated by commas.
    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        let mut is_escaped = false;
        let parts = text.split(|c| {
            let was_escaped = is_escaped;
            is_escaped = c == '\\' && !was_escaped;
            c == ',' && !was_escaped
        });
        let requirements = parts.filter(|part| !part.trim().is_empty()).map(FieldRequirement::parse);
        Ok(Self(requirements.collect::<Result<_, _>>()?))
    }
}

impl FieldRequirement {
    fn parse(part: &str) -> Result<Self, ParseSelectorError> {
        let wrong = |rule| ParseSelectorError::new(part, rule);
        let (path, value) = part.split_once('=').ok_or_else(|| wrong("must be compared by =, == or !="))?;
        let (path, value, equal) = match path.strip_suffix('!') {
            Some(path) => (path, value, false),
            None => (path, value.strip_prefix('=').unwrap_or(value), true),
        };
        let path = path.trim();
        if path.split('.').any(str::is_empty) {
            return Err(wrong("must have the path of a field, as in spec.nodeName"));
        }
        let value = unescaped(value)
            .ok_or_else(|| wrong("must have a backslash before a comma, = or backslash, and nowhere else"))?;
        Ok(Self { path: path.to_owned(), value, equal })
    }
}

fn unescaped(value: &str) -> Option<String> {
    let mut chars = value.chars();
    let mut text = String::with_capacity(value.len());
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => chars.next().filter(|c| matches!(c, ',' | '=' | '\\'))?,
            '=' => return None,
            _ => c,
        });
    }
    Some(text)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            write!(f, "{}{requirement}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        write!(f, "{}{}{value}", self.path, if self.equal { "=" } else { "!=" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_escaped() {
        let selector = FieldSelector::default().and("metadata.name", "a").and_not("spec.x", "a,b=c\\d");
        assert_eq!(selector.to_query(|_| true), r"metadata.name=a,spec.x!=a\,b\=c\\d");
        assert_eq!(selector.to_query(|path| path.starts_with("metadata.")), "metadata.name=a");
    }

    #[test]
    fn escaped_values_are_read() {
        for value in ["a,b=c\\d", "\\", ",", "=", "==a", "!=", "\\,", "a b", " ", ""] {
            let selector = FieldSelector::default().and("spec.x", value).and_not("spec.y", value);
            let text = selector.to_string();
            assert_eq!(text.parse::<FieldSelector>().unwrap(), selector, "{text}");
        }
        let read: FieldSelector = r"spec.x==a\,b\=c\\d, spec.y=".parse().unwrap();
        assert_eq!(read, FieldSelector::default().and("spec.x", "a,b=c\\d").and("spec.y", ""));
        for wrong in [r"spec.x=a\b", r"spec.x=a\", r"spec.x\,y", "spec.x=a=b", "spec.x!==b", "spec.x==="] {
            assert_eq!(wrong.parse::<FieldSelector>().unwrap_err().text(), wrong);
        }
    }

    #[test]
    fn fields_are_selected() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"priority": 3, "paused": false, "ports": [1]}});
        for (selector, selected) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("spec.priority==3,spec.paused=false", true),
            ("spec.node=", true),
            ("spec.node!=", false),
            ("spec.ports=", true),
            ("metadata.name=a,spec.priority=4", false),
        ] {
            let parsed: FieldSelector = selector.parse().unwrap();
            assert_eq!(parsed.selects(&pod), selected, "{selector}");
            assert_eq!(parsed.to_string().parse::<FieldSelector>().unwrap(), parsed);
        }
        for wrong in ["a", "=a", "a..b=c", "a>1"] {
            assert!(wrong.parse::<FieldSelector>().is_err(), "{wrong}");
        }
    }
}
