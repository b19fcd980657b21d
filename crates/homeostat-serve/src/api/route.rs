//! Finds the target of a path.

use crate::kinds::{KindRegistry, ServedResource};
use homeostat_objects::{Kind, ObjectKey};

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum ApiTarget<'a> {
    /// `/version`, `/api`, `/apis` and the lists below them.
    Discovery(&'a [String]),
    /// `/openapi/…`.
    OpenApi(&'a [String]),
    /// A review of the user or of the user's access, by its plural.
    AccessReview(&'a str),
    Objects(ObjectsTarget<'a>),
}

/// One object or several objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectsTarget<'a> {
    pub(super) resource: &'a ServedResource,
    /// Empty for all namespaces, and for a cluster-wide kind.
    pub(super) namespace: &'a str,
    /// Empty for several objects.
    pub(super) name: &'a str,
    /// Whether the target is the subresource `status`.
    pub(super) status: bool,
}

impl ObjectsTarget<'_> {
    pub(super) fn kind(&self) -> &Kind {
        self.resource.kind()
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace, self.name)
    }

    /// Returns the plural, and the subresource if the target has one.
    pub(super) fn resource_name(&self) -> String {
        let plural = self.kind().plural();
        if self.status { format!("{plural}/status") } else { plural.into_owned() }
    }
}

/// Returns the target of a path, or `None` for an unknown path.
pub(super) fn target<'a>(kinds: &'a KindRegistry, segments: &'a [String]) -> Option<ApiTarget<'a>> {
    let names: Vec<_> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match &names[..] {
        ["version" | "api" | "apis"] | ["api" | "apis", _] | ["apis", _, _] => {
            return Some(ApiTarget::Discovery(segments));
        }
        ["openapi", ..] => return Some(ApiTarget::OpenApi(&segments[1..])),
        ["apis", "authorization.k8s.io", "v1", review @ ("selfsubjectaccessreviews" | "selfsubjectrulesreviews")]
        | ["apis", "authentication.k8s.io", "v1", review @ "selfsubjectreviews"] => {
            return Some(ApiTarget::AccessReview(review));
        }
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural, rest) = match rest {
        ["namespaces", namespace, plural, rest @ ..] if !["status", "finalize"].contains(plural) => {
            (*namespace, *plural, rest)
        }
        [plural, rest @ ..] => ("", *plural, rest),
        [] => return None,
    };
    let resource = kinds.find(group, version, plural)?;
    let (name, status) = match rest {
        [] => ("", false),
        [name] => (*name, false),
        [name, "status"] if resource.has_status() => (*name, true),
        _ => return None,
    };
    match (resource.kind().is_namespaced(), namespace.is_empty()) {
        // A cluster-wide kind has no namespace in its path.
        (false, false) => return None,
        // One object of a namespaced kind needs a namespace in its path. A list of all objects does not.
        (true, true) if !name.is_empty() => return None,
        _ => {}
    }
    Some(ApiTarget::Objects(ObjectsTarget { resource, namespace, name, status }))
}
