//! Field selectors for servers.

#[cfg(feature = "kubernetes")]
use super::selector::FieldRequirement;
use super::selector::FieldSelector;

impl FieldSelector {
    /// Returns the value that the field at this path must have, if the selector requires one.
    #[cfg(feature = "nats")]
    pub(crate) fn equal_to(&self, path: &str) -> Option<&str> {
        let mut required = self.0.iter().filter(|requirement| requirement.equal && requirement.path == path);
        required.next().map(|requirement| requirement.value.as_str())
    }

    /// Returns the same requirements for other paths.
    #[cfg(feature = "serve")]
    pub(crate) fn with_paths(mut self, path: impl Fn(&str) -> String) -> Self {
        for requirement in &mut self.0 {
            requirement.path = path(&requirement.path);
        }
        self
    }

    /// Returns the paths of the fields.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.path.as_str())
    }

    /// Returns the requirements for some paths.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|requirement| is_wanted(&requirement.path)).cloned().collect())
    }

    /// Returns the requirements for some paths in the syntax of Kubernetes, which escapes some characters of values.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn to_query(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let wanted = self.0.iter().filter(|requirement| is_wanted(&requirement.path));
        let parts = wanted.map(|FieldRequirement { path, value, equal }| {
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            format!("{path}{}{value}", if *equal { "=" } else { "!=" })
        });
        parts.collect::<Vec<_>>().join(",")
    }
}

#[cfg(all(test, feature = "kubernetes"))]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        let selector = FieldSelector::default().and("metadata.name", "a").and_not("spec.x", "a,b=c\\d");
        assert_eq!(selector.to_query(|_| true), r"metadata.name=a,spec.x!=a\,b\=c\\d");
        assert_eq!(selector.to_query(|path| path.starts_with("metadata.")), "metadata.name=a");
    }
}
