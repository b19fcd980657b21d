//! Which object of a kind: its namespace and name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The namespace and name of an object: a key for queues, stores and watches. Cloning it copies no text.
///
/// Keys are ordered by namespace, then by name, as they stand in a path.
///
/// # Examples
///
/// ```
/// use homeostat::objects::ObjectKey;
///
/// let web = ObjectKey::new("default", "web");
/// assert_eq!((web.namespace(), web.name()), ("default", "web"));
/// assert_eq!(web.to_string(), "default/web");
/// assert_eq!(web, "default/web".parse().unwrap());
/// assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace, a slash and the name; or the name.
    path: Arc<str>,
    /// Where the name begins.
    name: usize,
}

impl ObjectKey {
    /// Of an object in a namespace; in none, if that is empty.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self::cluster(name);
        }
        Self { path: format!("{namespace}/{name}").into(), name: namespace.len() + 1 }
    }

    /// Of an object in no namespace.
    #[must_use]
    pub fn cluster(name: &str) -> Self {
        Self { path: name.into(), name: 0 }
    }

    /// The namespace; empty if it is in none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.path[..self.name.saturating_sub(1)]
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.path[self.name..]
    }
}

/// A text that is no key: it has more than one slash, or nothing before or after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKeyError(String);

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a name, nor a namespace and a name with a slash between", self.0)
    }
}

impl std::error::Error for ParseKeyError {}

impl FromStr for ObjectKey {
    type Err = ParseKeyError;

    /// `namespace/name`, or `name`.
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
    fn keys_are_in_the_order_of_their_namespaces() {
        let keys = [("a", "z"), ("b", "a"), ("b", "b")].map(|(namespace, name)| ObjectKey::new(namespace, name));
        assert!(keys.is_sorted());
    }

    #[test]
    fn what_is_no_key_is_not_read() {
        for text in ["", "/", "a/", "/a", "a/b/c"] {
            let error = text.parse::<ObjectKey>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")));
        }
    }
}
