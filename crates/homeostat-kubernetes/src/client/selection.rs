//! The path for the objects that a query selects, and field selectors that the server does not support.

use super::KubernetesClient;
use crate::http::path::RequestPath;
use homeostat_objects::{Cause, ClientError, FieldSelector, Kind, ObjectKey, ObjectRef, Query};

/// A field selector, split between the server and the client.
pub(super) struct ServerFields {
    /// The server's part, in the syntax of a request.
    pub(super) selector: String,
    /// The client's part: the fields by which the server cannot select.
    ///
    /// The client must not check the server's part again. The server also considers defaults, which the objects may
    /// not show.
    pub(super) rest: FieldSelector,
}

impl KubernetesClient {
    /// Splits the field selector of a query.
    pub(super) fn server_fields(&self, kind: &Kind, query: &Query) -> ServerFields {
        let all = self.shared.unknown_fields.lock();
        let unknown = all.get(kind);
        let is_unknown = |path: &str| unknown.is_some_and(|unknown| unknown.contains(path));
        let selector = query.fields.to_query(|path| !is_unknown(path));
        ServerFields { selector, rest: query.fields.only(is_unknown) }
    }

    /// Calls `send` with the server's part of the field selector. If the server does not support a field, calls `send`
    /// again without it.
    ///
    /// # Errors
    ///
    /// Returns the errors of `send`. Returns [`Invalid`](homeostat_objects::ClientErrorKind::Invalid) if the client
    /// would have to select by a field outside the metadata, but reads metadata only.
    pub(super) fn with_fields<T>(
        &self,
        kind: &Kind,
        query: &Query,
        send: impl Fn(&ServerFields) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut fields = self.server_fields(kind, query);
        loop {
            let hidden = fields.rest.paths().find(|path| self.mode.metadata_only && !path.starts_with("metadata."));
            if let Some(path) = hidden {
                let rule = "the server cannot select by this field, and a client of metadata alone cannot see it";
                return Err(ClientError::invalid(objects(kind, query), path, "", rule));
            }
            let error = match send(&fields) {
                Err(error) if is_unknown_field(&error) => error,
                result => return result,
            };
            self.learn_unknown_fields(kind, query, &error);
            let known = self.server_fields(kind, query);
            if known.selector == fields.selector {
                return Err(error);
            }
            fields = known;
        }
    }

    /// Remembers the unsupported fields that the server's error names.
    fn learn_unknown_fields(&self, kind: &Kind, query: &Query, error: &ClientError) {
        // All servers support the other two.
        let fields = || query.fields.paths().filter(|path| !matches!(*path, "metadata.name" | "metadata.namespace"));
        let named = error.causes().iter().find_map(|cause| unknown_field(&cause.rule));
        let named = named.filter(|named| fields().any(|path| path == *named));
        let mut all = self.shared.unknown_fields.lock();
        let unknown = all.entry(kind.clone()).or_default();
        match named {
            Some(named) => {
                unknown.insert(named.to_owned());
            }
            None => unknown.extend(fields().map(str::to_owned)),
        }
    }
}

/// Returns the path for the objects that a query selects.
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

/// Checks that an object of this kind may have this namespace.
pub(super) fn in_place(kind: &Kind, namespace: &str) -> Result<(), Cause> {
    let rule = match (kind.is_namespaced(), namespace.is_empty()) {
        (true, true) => "must be set: the kind lives in namespaces",
        (false, false) => "must be empty: the kind is in no namespace",
        _ => return Ok(()),
    };
    Err(Cause::new("metadata.namespace", namespace, rule))
}

/// Returns whether this error reports an unsupported field.
pub(super) fn is_unknown_field(error: &ClientError) -> bool {
    error.causes().iter().any(|cause| unknown_field(&cause.rule).is_some())
}

/// Returns the unsupported field that the server's message names, or `None` for another message.
fn unknown_field(message: &str) -> Option<&str> {
    // `field label not supported: spec.a`, `field label "spec.a" not supported for appsv1.DaemonSet`, and
    // `"spec.a" is not a known field selector: only "metadata.name", "metadata.namespace"`.
    let named = if let Some((before, _)) = message.split_once(" is not a known field selector") {
        before.rsplit(char::is_whitespace).next()
    } else {
        let (_, label) = message.split_once("field label ")?;
        match label.strip_prefix("not supported: ") {
            Some(field) => field.split_whitespace().next(),
            None => label.split_once(" not supported").map(|(field, _)| field),
        }
    };
    named.map(|field| field.trim_matches(['"', ',', ';', '.']))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Messages of Kubernetes 1.20 to 1.36.
    #[test]
    fn an_unknown_field_is_named() {
        let messages = [
            ("field label not supported: spec.a", Some("spec.a")),
            (
                "Unable to find \"/v1, Resource=pods\" that match label selector \"\", field selector \
                 \"spec.b=1,spec.a=x\": field label not supported: spec.a",
                Some("spec.a"),
            ),
            ("field label \"spec.a\" not supported for appsv1.DaemonSet", Some("spec.a")),
            (
                "\"spec.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                Some("spec.a"),
            ),
            ("the limit must be a number", None),
        ];
        for (message, field) in messages {
            assert_eq!(unknown_field(message), field, "{message}");
        }
    }
}
