//! The key of an object: its namespace and name.

use homeostat::rt::debug_with_causes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The namespace and name of an object: a key for queues, stores and watches. Cloning it copies no text.
///
/// Keys are ordered by namespace, then by name.
///
/// # Examples
///
/// ```
/// use homeostat_objects::ObjectKey;
///
/// let web = ObjectKey::new("default", "web");
/// assert_eq!((web.namespace(), web.name()), ("default", "web"));
/// assert_eq!(web.to_string(), "default/web");
/// assert_eq!(web, "default/web".parse().unwrap());
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `namespace/name`, or `name` if there is no namespace.
    path: Arc<str>,
    /// The index at which the name begins.
    name: usize,
}

impl ObjectKey {
    /// Returns the key of an object in a namespace. If the namespace is empty, the object is cluster-wide.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self::cluster(name);
        }
        Self { path: [namespace, "/", name].concat().into(), name: namespace.len() + 1 }
    }

    /// Returns the key of a cluster-wide object.
    #[must_use]
    pub fn cluster(name: &str) -> Self {
        Self { path: name.into(), name: 0 }
    }

    /// Returns the namespace; empty for a cluster-wide object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.path[..self.name.saturating_sub(1)]
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.path[self.name..]
    }
}

/// The error for a text that is not a key: it has more than one slash, or an empty part.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseKeyError(String);

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a key: expected `name` or `namespace/name`", self.0)
    }
}

debug_with_causes!(ParseKeyError);

impl std::error::Error for ParseKeyError {}

impl FromStr for ObjectKey {
    type Err = ParseKeyError;

    /// Parses `namespace/name` or `name`.
    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
        if name.is_empty() || name.contains('/') || namespace == Some("") {
            return Err(ParseKeyError(text.to_owned()));
        }
        Ok(Self::new(namespace.unwrap_or_default(), name))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.path)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_namespace_and_a_name() {
        let key = ObjectKey::new("default", "web");
        assert_eq!((key.namespace(), key.name()), ("default", "web"));
        let key = ObjectKey::new("", "node-1");
        assert_eq!((key.namespace(), key.name()), ("", "node-1"));
        assert_eq!(key, ObjectKey::cluster("node-1"));
        assert_ne!(ObjectKey::cluster("a/b"), ObjectKey::new("a", "b"));
        assert_eq!(format!("{:>14}|", ObjectKey::new("a", "b")), "           a/b|");
    }

    #[test]
    fn keys_are_ordered_by_namespace() {
        let keys = [("a", "z"), ("b", "a"), ("b", "b")].map(|(namespace, name)| ObjectKey::new(namespace, name));
        assert!(keys.is_sorted());
    }

    #[test]
    fn an_invalid_key_is_an_error() {
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            let error = text.parse::<ObjectKey>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")));
        }
    }
}
