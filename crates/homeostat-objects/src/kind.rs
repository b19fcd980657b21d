//! The kind of objects: group, version and name, and whether they are in namespaces.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The kind of an object: group, version and name, as in Kubernetes. Kinds with the same group, version and name are
/// equal.
///
/// # Examples
///
/// ```
/// use homeostat_objects::Kind;
///
/// const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");
/// assert_eq!(DEPLOYMENT.api_version(), "apps/v1");
/// assert_eq!(DEPLOYMENT.plural(), "deployments");
/// assert_eq!(DEPLOYMENT.to_string(), "Deployment.apps/v1");
/// assert_eq!(Kind::cluster("", "v1", "Node").api_version(), "v1");
/// ```
#[derive(Clone, Eq)]
pub struct Kind {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    name: Cow<'static, str>,
    plural: Option<Cow<'static, str>>,
    namespaced: bool,
}

impl Kind {
    /// The kind of types such as `DynamicObject`: each object names its own kind.
    pub const UNKNOWN: Self = Self::namespaced("", "", "");

    /// Returns the kind of objects in namespaces. Pass an empty group for the core group.
    #[must_use]
    pub const fn namespaced(group: &'static str, version: &'static str, name: &'static str) -> Self {
        Self::fixed(group, version, name, true)
    }

    /// Returns the kind of cluster-wide objects. Pass an empty group for the core group.
    #[must_use]
    pub const fn cluster(group: &'static str, version: &'static str, name: &'static str) -> Self {
        Self::fixed(group, version, name, false)
    }

    /// Returns a kind with this plural. Can be used in constants.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) const fn with_fixed_plural(
        group: &'static str,
        version: &'static str,
        name: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        let (group, version, name) = (Cow::Borrowed(group), Cow::Borrowed(version), Cow::Borrowed(name));
        Self { group, version, name, plural: Some(Cow::Borrowed(plural)), namespaced }
    }

    const fn fixed(group: &'static str, version: &'static str, name: &'static str, namespaced: bool) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            name: Cow::Borrowed(name),
            plural: None,
            namespaced,
        }
    }

    /// Returns the kind for an `apiVersion` (`apps/v1`, or `v1` for the core group) and a `kind` (`Deployment`).
    ///
    /// The objects count as being in namespaces, because a manifest does not say. If they are not, use
    /// [`in_no_namespace`](Self::in_no_namespace) or a [`Scheme`](super::Scheme).
    #[must_use]
    pub fn of(api_version: &str, name: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            group: Cow::Owned(group.to_owned()),
            version: Cow::Owned(version.to_owned()),
            name: Cow::Owned(name.to_owned()),
            plural: None,
            namespaced: true,
        }
    }

    /// Makes it the kind of cluster-wide objects.
    #[must_use]
    pub fn in_no_namespace(self) -> Self {
        Self { namespaced: false, ..self }
    }

    /// Sets the plural, if it is irregular.
    #[must_use]
    pub fn with_plural(self, plural: impl Into<Cow<'static, str>>) -> Self {
        Self { plural: Some(plural.into()), ..self }
    }

    /// Returns the API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the version of the group.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the name: `Deployment`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the objects are in namespaces.
    #[must_use]
    pub const fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// Returns the group and version in the form of an `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> Cow<'_, str> {
        if self.group.is_empty() {
            Cow::Borrowed(&self.version)
        } else {
            Cow::Owned(format!("{}/{}", self.group, self.version))
        }
    }

    /// Checks that the kind is known. In a constant, it fails to compile otherwise.
    ///
    /// # Panics
    ///
    /// If this is [`UNKNOWN`](Self::UNKNOWN).
    pub const fn assert_known(self) {
        let known = !matches!(&self.name, Cow::Borrowed(name) if name.is_empty());
        // A constant function cannot drop it.
        std::mem::forget(self);
        assert!(known, "the kind is not known before the program runs: use `Api::of_kind`");
    }

    /// Returns whether objects with this `apiVersion` and `kind` are of this kind.
    #[must_use]
    pub fn is_named(&self, api_version: &str, name: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.group == group && self.version == version && self.name == name
    }

    /// Returns whether this `apiVersion` and `kind` name this kind in any version of its group. All versions of a kind
    /// refer to the same objects.
    pub(crate) fn is_version_of(&self, api_version: &str, name: &str) -> bool {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.group == group && self.name == name
    }

    /// Returns the plural in lower case, as it appears in URLs: the configured one, or the regular English plural.
    /// `Endpoints` is its own plural, as in Kubernetes.
    #[must_use]
    pub fn plural(&self) -> Cow<'_, str> {
        if let Some(plural) = &self.plural {
            return Cow::Borrowed(plural);
        }
        let name = self.name.to_lowercase();
        Cow::Owned(match name.strip_suffix('y') {
            Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
            _ if name.ends_with("endpoints") => name,
            _ if name.ends_with(['s', 'x', 'z']) || name.ends_with("ch") || name.ends_with("sh") => format!("{name}es"),
            _ => format!("{name}s"),
        })
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.group, &self.version) == (&other.name, &other.group, &other.version)
    }
}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, &self.group, &self.version).hash(state);
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    /// Orders by group, version and name.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.group, &self.version, &self.name).cmp(&(&other.group, &other.version, &other.name))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        write!(f, "/{}", self.version)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_group_version_and_name() {
        let ingress = Kind::of("networking.k8s.io/v1", "Ingress");
        assert_eq!(ingress, Kind::namespaced("networking.k8s.io", "v1", "Ingress").with_plural("x").in_no_namespace());
        assert_ne!(ingress, Kind::of("networking.k8s.io/v1beta1", "Ingress"));
        assert!(ingress.is_named("networking.k8s.io/v1", "Ingress") && !ingress.is_named("v1", "Ingress"));
        assert!(Kind::of("v1", "Pod").is_named("v1", "Pod"));
    }

    #[test]
    fn plurals_are_regular_unless_set() {
        for (kind, plural) in [
            ("Pod", "pods"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Gateway", "gateways"),
            ("Mesh", "meshes"),
            ("Endpoints", "endpoints"),
            ("EndpointSlice", "endpointslices"),
        ] {
            assert_eq!(Kind::of("v1", kind).plural(), plural);
        }
        assert_eq!(Kind::of("v1", "Staff").with_plural("staff").plural(), "staff");
    }
}
