//! Selectors of objects, by labels and by fields.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::json::meta_field;
use super::validate::{LABEL_VALUE, QUALIFIED, is_label_value, is_qualified};
use super::value_ref::ValueRef;
use homeostat::rt::debug_with_causes;

/// Selects objects by their labels; the default selects all.
///
/// A selector can be parsed from text in the syntax of `kubectl`, and from JSON in the form of a manifest.
///
/// # Examples
///
/// ```
/// use homeostat_objects::LabelSelector;
/// use std::collections::BTreeMap;
///
/// let selector: LabelSelector = "app=web,tier in (front, back),!broken".parse()?;
/// let labels = |text: &str| -> BTreeMap<String, String> {
///     text.split(' ').filter_map(|label| label.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect()
/// };
/// assert!(selector.selects(&labels("app=web tier=front")));
/// assert!(!selector.selects(&labels("app=web tier=front broken=disk")));
/// assert_eq!(selector.to_string(), "app in (web),tier in (front,back),!broken");
/// assert!("app in web".parse::<LabelSelector>().is_err());
/// # Ok::<_, homeostat_objects::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement for one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LabelRequirement {
    /// The key of the label.
    pub key: String,
    /// The comparison.
    pub operator: LabelOperator,
    /// The values for [`In`](LabelOperator::In) and [`NotIn`](LabelOperator::NotIn).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The comparison in a [`LabelRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum LabelOperator {
    /// The label exists and has one of the values.
    In,
    /// The label does not exist or has another value.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

/// The error for an invalid selector.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseSelectorError {
    text: String,
    rule: String,
}

impl ParseSelectorError {
    pub(super) fn new(text: &str, rule: impl Into<String>) -> Self {
        Self { text: text.to_owned(), rule: rule.into() }
    }

    /// Returns the invalid part.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the rule that the part breaks.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl fmt::Display for ParseSelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in a selector: {}", self.text, self.rule)
    }
}

debug_with_causes!(ParseSelectorError);

impl std::error::Error for ParseSelectorError {}

impl LabelSelector {
    /// Returns a selector of objects with this label.
    #[must_use]
    pub fn label(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { match_labels: [(key.into(), value.into())].into(), match_expressions: Vec::new() }
    }

    /// Adds a requirement. The selector selects only objects that meet all requirements.
    #[must_use]
    pub fn and(mut self, requirement: LabelRequirement) -> Self {
        self.match_expressions.push(requirement);
        self
    }

    /// Returns whether it selects all objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Returns whether it selects an object with these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selects_by(|key| labels.get(key).map(String::as_str))
    }

    /// Returns whether it selects an object with this JSON.
    pub(crate) fn selects_json(&self, object: ValueRef<'_>) -> bool {
        if self.is_empty() {
            return true;
        }
        let labels = meta_field(object, "labels");
        self.selects_by(|key| labels?.get(key)?.as_str())
    }

    fn selects_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }

    /// Checks the selector by the rules of Kubernetes.
    ///
    /// # Errors
    ///
    /// If a key or value cannot be a label, if `In` or `NotIn` has no values, or if `Exists` or `DoesNotExist` has
    /// values.
    pub fn validate(&self) -> Result<(), ParseSelectorError> {
        for (key, value) in &self.match_labels {
            check_key(key)?;
            check_value(value)?;
        }
        self.match_expressions.iter().try_for_each(LabelRequirement::validate)
    }
}

fn check_key(key: &str) -> Result<(), ParseSelectorError> {
    if is_qualified(key) { Ok(()) } else { Err(ParseSelectorError::new(key, QUALIFIED)) }
}

fn check_value(value: &str) -> Result<(), ParseSelectorError> {
    if is_label_value(value) { Ok(()) } else { Err(ParseSelectorError::new(value, LABEL_VALUE)) }
}

impl LabelRequirement {
    /// Returns a requirement for the label with this key. `Exists` and `DoesNotExist` take no values.
    #[must_use]
    pub fn new<V: Into<String>>(
        key: impl Into<String>,
        operator: LabelOperator,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self { key: key.into(), operator, values: values.into_iter().map(Into::into).collect() }
    }

    fn holds(&self, label: Option<&str>) -> bool {
        let is_one = || label.is_some_and(|label| self.values.iter().any(|value| value == label));
        match self.operator {
            LabelOperator::In => is_one(),
            LabelOperator::NotIn => !is_one(),
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
        }
    }

    fn validate(&self) -> Result<(), ParseSelectorError> {
        check_key(&self.key)?;
        self.values.iter().try_for_each(|value| check_value(value))?;
        let rule = match (self.operator, self.values.is_empty()) {
            (LabelOperator::In | LabelOperator::NotIn, true) => "must have values to compare with",
            (LabelOperator::Exists | LabelOperator::DoesNotExist, false) => "must have no values",
            _ => return Ok(()),
        };
        Err(ParseSelectorError::new(&self.key, rule))
    }

    /// Parses one part: `key`, `!key`, `key = value`, `key == value`, `key != value`, `key in (…)`, `key notin (…)`.
    fn parse(part: &str) -> Result<Self, ParseSelectorError> {
        let text = part.trim();
        let (key, operator, values) = if let Some(key) = text.strip_prefix('!') {
            (key, LabelOperator::DoesNotExist, vec![])
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, LabelOperator::NotIn, vec![value])
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (key, LabelOperator::In, vec![value])
        } else if let Some((key, set)) = text.split_once(char::is_whitespace) {
            let set = set.trim_start();
            let (operator, list) = match (set.strip_prefix("in"), set.strip_prefix("notin")) {
                (Some(list), _) => (LabelOperator::In, list),
                (_, Some(list)) => (LabelOperator::NotIn, list),
                _ => return Err(ParseSelectorError::new(text, "must be compared by =, ==, !=, in or notin")),
            };
            let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
            let list = list.ok_or_else(|| ParseSelectorError::new(text, "must have its values in parentheses"))?;
            (key, operator, list.split(',').collect())
        } else {
            (text, LabelOperator::Exists, vec![])
        };
        let values = values.into_iter().map(|value| value.trim().to_owned()).collect();
        let requirement = Self { key: key.trim().to_owned(), operator, values };
        requirement.validate()?;
        Ok(requirement)
    }
}

impl FromStr for LabelSelector {
    type Err = ParseSelectorError;

    /// Parses requirements separated by commas. The empty text selects all objects.
    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut depth = 0_usize;
        let parts = text.split(|c: char| {
            depth = (depth + usize::from(c == '(')).saturating_sub(usize::from(c == ')'));
            c == ',' && depth == 0
        });
        let match_expressions = parts.map(LabelRequirement::parse).collect::<Result<_, _>>()?;
        Ok(Self { match_labels: BTreeMap::new(), match_expressions })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (key, value) in &self.match_labels {
            write!(f, "{between}{key}={value}")?;
            between = ",";
        }
        for requirement in &self.match_expressions {
            write!(f, "{between}{requirement}")?;
            between = ",";
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operator {
            LabelOperator::In => write!(f, "{} in ({})", self.key, self.values.join(",")),
            LabelOperator::NotIn => write!(f, "{} notin ({})", self.key, self.values.join(",")),
            LabelOperator::Exists => f.write_str(&self.key),
            LabelOperator::DoesNotExist => write!(f, "!{}", self.key),
        }
    }
}

/// Selects objects by the values of their fields; the default selects all.
///
/// A missing field has the empty value. An array or object also counts as empty.
///
/// A selector can be parsed from text in the syntax of `kubectl`. In a value, write a backslash before each comma,
/// equals sign and backslash: `spec.range=1\,2`.
///
/// # Examples
///
/// ```
/// use homeostat_objects::FieldSelector;
///
/// let selector: FieldSelector = "status.phase!=Running,spec.node=node-1".parse()?;
/// assert!(selector.selects(&serde_json::json!({"spec": {"node": "node-1"}, "status": {"phase": "Pending"}})));
/// # Ok::<_, homeostat_objects::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(pub(super) Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldRequirement {
    pub(super) path: String,
    pub(super) value: String,
    pub(super) equal: bool,
}

impl FieldSelector {
    /// Adds the requirement that the field at `path` has this value.
    #[must_use]
    pub fn and(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.push(FieldRequirement { path: path.into(), value: value.into(), equal: true });
        self
    }

    /// Adds the requirement that the field at `path` does not have this value.
    #[must_use]
    pub fn and_not(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.push(FieldRequirement { path: path.into(), value: value.into(), equal: false });
        self
    }

    /// Returns whether it selects all objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether it selects an object: a [`SharedObject`](super::SharedObject) or a `Value`.
    #[must_use]
    pub fn selects<'a>(&self, object: impl Into<ValueRef<'a>>) -> bool {
        let object = object.into();
        self.0.iter().all(|FieldRequirement { path, value, equal }| {
            let field = path.split('.').try_fold(object, ValueRef::get);
            let same = match field {
                Some(field) if field.as_number().is_some() || field.as_bool().is_some() => field.to_string() == *value,
                field => field.and_then(ValueRef::as_str).unwrap_or_default() == value,
            };
            same == *equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Cases of apimachinery's `pkg/labels/selector_test.go` (`TestSelectorMatches`, `TestSetMatches`).
    #[test]
    fn labels_are_selected() {
        for (selector, labels, selected) in [
            ("", json!({"x": "y"}), true),
            ("x=y", json!({"x": "y"}), true),
            ("x==y", json!({"x": "y"}), true),
            ("x=y,z=w", json!({"x": "y", "z": "w"}), true),
            ("x!=y,z!=w", json!({"x": "z", "z": "a"}), true),
            ("notin=in", json!({"notin": "in"}), true),
            ("x", json!({"x": "z"}), true),
            ("!x", json!({"y": "z"}), true),
            ("x in (a, b)", json!({"x": "b"}), true),
            ("x notin (a,b)", json!({"x": "c"}), true),
            ("x notin (a,b)", json!({}), true),
            ("x!=y", json!({}), true),
            ("x=", json!({"x": ""}), true),
            ("x=", json!({}), false),
            ("x=z", json!({}), false),
            ("x=y", json!({"x": "z"}), false),
            ("x=y,z=w", json!({"x": "w", "z": "w"}), false),
            ("x!=y,z!=w", json!({"x": "z", "z": "w"}), false),
            ("x", json!({"y": "z"}), false),
            ("!x", json!({"x": "z"}), false),
            ("x in (a)", json!({}), false),
            ("x=y,x=z", json!({"x": "y"}), false),
        ] {
            let parsed: LabelSelector = selector.parse().unwrap();
            assert_eq!(
                parsed.selects_json(ValueRef::from(&json!({"metadata": {"labels": labels}}))),
                selected,
                "{selector} {labels}"
            );
            assert_eq!(parsed.to_string().parse::<LabelSelector>().unwrap(), parsed);
            let json = serde_json::to_value(&parsed).unwrap();
            assert_eq!(serde_json::from_value::<LabelSelector>(json).unwrap(), parsed);
        }
        assert!(LabelSelector::label("a", "b").selects(&[("a".to_owned(), "b".to_owned())].into()));
    }

    /// Cases of `TestSelectorParse` and `TestLexer…` that are errors here too.
    #[test]
    fn an_invalid_selector_is_an_error() {
        for (selector, part) in [
            ("x=a||y=b", "a||y=b"),
            ("x==a==b", "a==b"),
            ("!x=a", "x=a"),
            ("x<a", "x<a"),
            ("x in a", "x in a"),
            ("x in (a", "x in (a"),
            ("x of (a)", "x of (a)"),
            ("x,", ""),
            ("-x=a", "-x"),
        ] {
            let error = selector.parse::<LabelSelector>().unwrap_err();
            assert_eq!(error.text(), part, "{selector}: {error}");
        }
        let wrong = json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]});
        let wrong: LabelSelector = serde_json::from_value(wrong).unwrap();
        assert!(wrong.validate().unwrap_err().to_string().contains("no values"));
    }
}
