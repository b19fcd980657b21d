//! The parts of errors: the object, the invalid fields, and the fields of other owners.

use std::fmt;
use std::sync::Arc;

use crate::{Kind, ObjectKey};

/// The kind and key of an object, for messages: `Deployment default/web`. Cloning it copies no text.
///
/// Without a name it means all objects of the kind, or all objects of the kind in the namespace.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef(Arc<(Kind, ObjectKey)>);

impl ObjectRef {
    /// Returns a reference to the object of this kind and key.
    #[must_use]
    pub fn new(kind: &Kind, key: &ObjectKey) -> Self {
        Self(Arc::new((kind.clone(), key.clone())))
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0.0
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.0.1
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match (self.key().namespace(), self.key().name()) {
            ("", "") => Ok(()),
            (namespace, "") => write!(f, " {namespace}/"),
            _ => write!(f, " {}", self.key()),
        }
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// The path of the field, such as `metadata.name`; empty for the whole object.
    pub field: String,
    /// The invalid value; empty if it is unknown.
    pub value: String,
    /// The rule that the value breaks.
    pub rule: String,
}

impl Cause {
    /// Returns a cause: the path of the field, its value, and the rule that the value breaks.
    #[must_use]
    pub fn new(field: impl Into<String>, value: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.into(), rule: rule.into() }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, rule } = self;
        match (field.is_empty(), value.is_empty()) {
            (true, _) => f.write_str(rule),
            (false, true) => write!(f, "{field}: {rule}"),
            (false, false) => write!(f, "{field} is {value:?}, but {rule}"),
        }
    }
}

/// A field that another owner has [applied](crate::Client::apply).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldConflict {
    /// The path of the field, such as `spec.replicas`.
    pub field: String,
    /// The name of the owner.
    pub owner: String,
}

impl FieldConflict {
    /// Returns a conflict about this field with this owner.
    #[must_use]
    pub fn new(field: impl Into<String>, owner: impl Into<String>) -> Self {
        Self { field: field.into(), owner: owner.into() }
    }
}
