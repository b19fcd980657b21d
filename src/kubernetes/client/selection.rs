//! The objects that a query selects: their path, and the fields that the server cannot select by.

use super::KubernetesClient;
use crate::kubernetes::http::path::RequestPath;
use crate::objects::{Cause, ClientError, Kind, ObjectKey, ObjectRef, Query};

impl KubernetesClient {
    /// Returns the part of the field selector that the server selects by.
    pub(super) fn server_fields(&self, kind: &Kind, query: &Query) -> String {
        let knows_all = !self.shared.unknown_fields.lock().contains(kind);
        query.fields.to_query(|path| knows_all || matches!(path, "metadata.name" | "metadata.namespace"))
    }

    /// Calls `send` with the field selector for the server. If the server does not know a field, calls it again without.
    pub(super) fn with_fields<T>(
        &self,
        kind: &Kind,
        query: &Query,
        send: impl Fn(&str) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let fields = self.server_fields(kind, query);
        match send(&fields) {
            Err(error) if is_unknown_field(&error) => {
                self.shared.unknown_fields.lock().insert(kind.clone());
                match self.server_fields(kind, query) {
                    known if known == fields => Err(error),
                    known => send(&known),
                }
            }
            result => result,
        }
    }
}

/// Returns the path of the objects that a query selects.
pub(super) fn selected(kind: &Kind, plural: &str, query: &Query, fields: &str) -> Result<RequestPath, Cause> {
    let namespace = query.namespace.as_deref().unwrap_or_default();
    in_place(kind, namespace).or_else(|cause| if namespace.is_empty() { Ok(()) } else { Err(cause) })?;
    let labels = Some(query.labels.to_string()).filter(|labels| !labels.is_empty());
    let path = RequestPath::of_objects(kind, plural, namespace)?.optional_query("labelSelector", labels.as_deref());
    Ok(path.optional_query("fieldSelector", Some(fields).filter(|fields| !fields.is_empty())))
}

/// Returns a reference to the objects that a query selects, for errors.
pub(super) fn objects(kind: &Kind, query: &Query) -> ObjectRef {
    ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""))
}

/// Checks whether an object of this kind can be in this namespace.
pub(super) fn in_place(kind: &Kind, namespace: &str) -> Result<(), Cause> {
    let rule = match (kind.is_namespaced(), namespace.is_empty()) {
        (true, true) => "must be set: the kind lives in namespaces",
        (false, false) => "must be empty: the kind is in no namespace",
        _ => return Ok(()),
    };
    Err(Cause::new("metadata.namespace", namespace, rule))
}

/// Returns whether the server cannot select by a field.
pub(super) fn is_unknown_field(error: &ClientError) -> bool {
    let is_unknown =
        |rule: &str| rule.contains("field label not supported") || rule.contains("is not a known field selector");
    error.causes().iter().any(|cause| is_unknown(&cause.rule))
}
