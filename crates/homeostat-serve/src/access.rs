//! Users, their requests, and the decision whether to serve them.

use std::fmt;
use std::sync::Arc;

/// The user of a request.
///
/// # Examples
///
/// ```
/// use homeostat_serve::UserInfo;
///
/// let user = UserInfo::new("ada").group("admins");
/// assert_eq!((user.name.as_str(), user.groups), ("ada", vec!["admins".to_owned()]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserInfo {
    /// The name. Empty for an anonymous user.
    pub name: String,
    /// The groups that the user belongs to.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// Creates a user without groups.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), groups: Vec::new() }
    }

    /// Adds a group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }
}

/// A user's request, as the authorization sees it.
///
/// # Examples
///
/// ```
/// use homeostat_serve::{Access, AccessRequest, AccessTarget, UserInfo};
///
/// /// Lets everyone read the metrics, and admins do everything.
/// fn authorize(request: &AccessRequest) -> Access {
///     match &request.target {
///         AccessTarget::Path(path) if path == "/metrics" => Access::Allow,
///         _ if request.user.groups.iter().any(|group| group == "admins") => Access::Allow,
///         _ => Access::Deny("only admins may".to_owned()),
///     }
/// }
///
/// let ada = UserInfo::new("ada");
/// let scrape = AccessRequest::new(ada.clone(), "get", AccessTarget::Path("/metrics".to_owned()));
/// assert_eq!(authorize(&scrape), Access::Allow);
/// let delete = AccessRequest::new(ada, "delete", AccessTarget::objects("example.com", "sites", "default", "home"));
/// assert_eq!(authorize(&delete), Access::Deny("only admins may".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessRequest {
    /// The user.
    pub user: UserInfo,
    /// The verb as in Kubernetes' RBAC: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or
    /// `deletecollection`.
    pub verb: &'static str,
    /// The requested objects or page.
    pub target: AccessTarget,
}

impl AccessRequest {
    /// Creates a request, for example to test an authorization function.
    #[must_use]
    pub fn new(user: UserInfo, verb: &'static str, target: AccessTarget) -> Self {
        Self { user, verb, target }
    }
}

/// The target of an [`AccessRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessTarget {
    /// Objects.
    #[non_exhaustive]
    Objects {
        /// The group of the kind. Empty for the core group.
        group: String,
        /// The plural of the kind in lower case, with its subresource, if any: `pods`, `pods/status`.
        resource: String,
        /// The namespace. Empty for all namespaces, and for cluster-wide kinds.
        namespace: String,
        /// The name of one object. Empty for several objects.
        name: String,
    },
    /// Any other page, by its path, such as `/metrics`. The path is decoded and has no final slash. A slash within a
    /// segment appears as `%2F`.
    /// `%2F`.
    Path(String),
}

impl AccessTarget {
    /// Creates a target for one object or several. Namespace and name may be empty.
    pub fn objects(
        group: impl Into<String>,
        resource: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self::Objects { group: group.into(), resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

/// The decision about an [`AccessRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Serve the request.
    Allow,
    /// Refuse the request for this reason.
    Deny(String),
}

/// Decides about each request.
pub(crate) type Authorizer = Arc<dyn Fn(&AccessRequest) -> Access + Send + Sync>;

impl fmt::Display for AccessRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.user.name.is_empty() { "an anonymous user" } else { &self.user.name };
        match &self.target {
            AccessTarget::Path(path) => write!(f, "{user}: {} {path}", self.verb),
            AccessTarget::Objects { group, resource, namespace, name } => {
                write!(f, "{user}: {} {resource}", self.verb)?;
                let parts = [(".", group), (" in ", namespace), (" named ", name)];
                parts.iter().filter(|(_, part)| !part.is_empty()).try_for_each(|(word, part)| write!(f, "{word}{part}"))
            }
        }
    }
}
