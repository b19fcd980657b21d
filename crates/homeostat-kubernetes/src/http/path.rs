//! The paths and queries of requests. Plain values.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use homeostat_objects::{Cause, Kind, ObjectKey};

/// The characters to encode in a path segment. A colon stays, because it is common in the names of roles.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');
/// The characters to encode in a query value.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The path and query of a request.
///
/// Unchecked names would be dangerous: without a name, the deletion of an object would delete all objects, and a slash
/// in a name would select a subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestPath {
    text: String,
    has_query: bool,
    subresource: Option<&'static str>,
}

impl RequestPath {
    /// Returns the path of a group and version: `/apis/apps/v1`, or `/api/v1` for the core group.
    pub(crate) fn of_version(kind: &Kind) -> Result<Self, Cause> {
        if !kind.group().is_empty() {
            check("apiVersion", kind.group())?;
        }
        check("apiVersion", kind.version())?;
        let mut path = Self { text: String::new(), has_query: false, subresource: None };
        match kind.group() {
            "" => path.push("api"),
            group => {
                path.push("apis");
                path.push(group);
            }
        }
        path.push(kind.version());
        Ok(path)
    }

    /// Returns the path of all objects of a kind. With a namespace, of all those in the namespace.
    pub(crate) fn of_objects(kind: &Kind, plural: &str, namespace: &str) -> Result<Self, Cause> {
        let mut path = Self::of_version(kind)?;
        check("kind", kind.name())?;
        check("kind", plural)?;
        if !namespace.is_empty() {
            check("metadata.namespace", namespace)?;
            path.push("namespaces");
            path.push(namespace);
        }
        path.push(plural);
        Ok(path)
    }

    /// Returns the path of an object.
    pub(crate) fn of_object(kind: &Kind, plural: &str, key: &ObjectKey) -> Result<Self, Cause> {
        check("metadata.name", key.name())?;
        let mut path = Self::of_objects(kind, plural, key.namespace())?;
        path.push(key.name());
        Ok(path)
    }

    /// Appends a subresource.
    pub(crate) fn subresource(mut self, name: &'static str) -> Self {
        self.push(name);
        self.subresource = Some(name);
        self
    }

    /// Returns the subresource, if any.
    pub(crate) fn subresource_name(&self) -> Option<&'static str> {
        self.subresource
    }

    /// Appends a value to the query.
    pub(crate) fn query(mut self, name: &'static str, value: &str) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.text.push_str(name);
        self.text.push('=');
        self.text.extend(utf8_percent_encode(value, QUERY));
        self.has_query = true;
        self
    }

    /// Appends a value to the query, unless it is `None`.
    pub(crate) fn optional_query(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the path without the query, for errors.
    pub(crate) fn without_query(&self) -> &str {
        self.text.split('?').next().unwrap_or_default()
    }

    fn push(&mut self, segment: &str) {
        self.text.push('/');
        self.text.extend(utf8_percent_encode(segment, SEGMENT));
    }
}

/// Checks a segment of a path.
fn check(field: &'static str, segment: &str) -> Result<(), Cause> {
    let is_forbidden = |character: char| matches!(character, '/' | '?' | '%' | '#' | '\\') || character.is_control();
    let rule = if segment.is_empty() {
        "must be set"
    } else if segment.contains(is_forbidden) || segment.contains("..") || segment == "." {
        "must not contain '/', '?', '%', '#', '\\', '..' or control characters"
    } else {
        return Ok(());
    };
    Err(Cause::new(field, segment, rule))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POD: Kind = Kind::namespaced("", "v1", "Pod");
    const ROLE: Kind = Kind::cluster("rbac.authorization.k8s.io", "v1", "ClusterRole");

    fn object(kind: &Kind, key: &ObjectKey) -> Result<String, Cause> {
        RequestPath::of_object(kind, &kind.plural(), key).map(|path| path.text)
    }

    #[test]
    fn paths_follow_group_version_namespace_and_name() {
        let objects = |kind: &Kind, namespace| RequestPath::of_objects(kind, &kind.plural(), namespace).unwrap().text;
        assert_eq!(RequestPath::of_version(&POD).unwrap().as_str(), "/api/v1");
        assert_eq!(objects(&POD, ""), "/api/v1/pods");
        assert_eq!(objects(&POD, "default"), "/api/v1/namespaces/default/pods");
        assert_eq!(objects(&ROLE, ""), "/apis/rbac.authorization.k8s.io/v1/clusterroles");
        assert_eq!(object(&POD, &ObjectKey::new("default", "web")).unwrap(), "/api/v1/namespaces/default/pods/web");
        let role = object(&ROLE, &ObjectKey::cluster("system:node")).unwrap();
        assert_eq!(role, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node");
        let path = RequestPath::of_object(&POD, "pods", &ObjectKey::new("a", "b")).unwrap().subresource("status");
        assert_eq!(path.as_str(), "/api/v1/namespaces/a/pods/b/status");
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        let path = RequestPath::of_objects(&POD, "pods", "").unwrap().query("labelSelector", "a in (b,c),!d");
        let path = path.optional_query("continue", None).query("fieldManager", "Größe&x=1");
        let query = "labelSelector=a%20in%20%28b%2Cc%29%2C%21d&fieldManager=Gr%C3%B6%C3%9Fe%26x%3D1";
        assert_eq!(path.as_str(), format!("/api/v1/pods?{query}"));
        assert_eq!(path.without_query(), "/api/v1/pods");
    }

    #[test]
    fn a_key_that_would_change_the_path_is_refused() {
        for name in ["", "a/b", "a?watch=1", "a%2Fb", "a#b", "..", ".", "a..b", "a\\b", "a\nb", "a\0"] {
            let fault = object(&POD, &ObjectKey::new("default", name)).unwrap_err();
            assert_eq!((fault.field.as_str(), fault.value.as_str()), ("metadata.name", name));
        }
        let fault = object(&POD, &ObjectKey::new("a?b", "c")).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "metadata.namespace is \"a?b\", but must not contain '/', '?', '%', '#', '\\', '..' or control characters"
        );
        let fault = object(&POD, &ObjectKey::new("a", "")).unwrap_err();
        assert_eq!(fault.to_string(), "metadata.name: must be set");
        for kind in [Kind::of("", "X"), Kind::of("a/b/c", "X"), Kind::of("v1", ""), Kind::of("v1", "../secrets")] {
            assert!(object(&kind, &ObjectKey::new("a", "b")).is_err(), "{kind}");
        }
    }

    proptest! {
        /// For all names, a path has exactly the expected segments and no query.
        #[test]
        fn a_path_has_the_segments_of_its_key(namespace in "\\PC{1,8}", name in "\\PC{1,8}") {
            let key = ObjectKey::new(&namespace, &name);
            if let Ok(path) = object(&POD, &key) {
                let segments: Vec<_> = path.split('/').collect();
                prop_assert_eq!(segments.len(), 7, "{}", path);
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:%/".contains(&byte);
                prop_assert!(path.bytes().all(allowed));
                let decoded = percent_encoding::percent_decode_str(segments[6]).decode_utf8().unwrap();
                prop_assert_eq!(decoded.as_ref(), key.name());
            }
        }
    }
}
