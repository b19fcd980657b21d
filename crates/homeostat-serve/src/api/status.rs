//! Errors as Kubernetes `Status` objects, with code, reason, message and details.

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::admission::{AdmissionFailure, FieldFault};
use crate::http::Reply;
use homeostat::rt::Chain;
use homeostat_objects::{ClientError, ClientErrorKind, Kind};

/// A request's error, in the form of a `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatusError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Value,
    retry_after: Option<u64>,
    /// Why the store failed. Only for the log, not for the client.
    cause: Option<String>,
}

impl StatusError {
    pub(super) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, retry_after: None, cause: None }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The resource does not support this method.
    pub(super) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(super) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(super) fn not_acceptable(media: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", media.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(kind));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, &kind.plural(), name)
    }

    pub(super) fn forbidden(kind: &Kind, name: &str, reason: &str) -> Self {
        let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{named} is forbidden: {reason}", qualified(kind));
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(kind, &kind.plural(), name)
    }

    pub(super) fn invalid(kind: &Kind, name: &str, faults: &[FieldFault]) -> Self {
        let listed: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let listed = if let [only] = &listed[..] { only.clone() } else { format!("[{}]", listed.join(", ")) };
        let group = if kind.group().is_empty() { String::new() } else { format!(".{}", kind.group()) };
        let message = format!("{}{group} {name:?} is invalid: {listed}", kind.name());
        let causes = faults
            .iter()
            .map(|fault| json!({"reason": fault.reason.cause(), "message": fault.message, "field": fault.field}));
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, kind.name(), name);
        error.causes(causes.collect())
    }

    /// The request names a version that the store has not reached.
    pub(super) fn version_too_large(asked: &str, current: &str) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).causes(vec![cause]);
        Self { retry_after: Some(1), ..error }
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Returns the error for a refused admission.
    pub(super) fn of_admission(kind: &Kind, name: &str, failure: AdmissionFailure) -> Self {
        match failure {
            AdmissionFailure::Invalid(faults) => Self::invalid(kind, name, &faults),
            AdmissionFailure::Forbidden(reason) => Self::forbidden(kind, name, &reason),
            AdmissionFailure::Panicked(panic) => {
                Self::internal(format!("an admission hook of {kind} panicked: {panic}"))
            }
            AdmissionFailure::UnknownFields(fields) => {
                let fields: Vec<_> = fields.iter().map(|field| format!("unknown field \"{field}\"")).collect();
                Self::strict(kind, &fields)
            }
        }
    }

    /// A strict request has unknown or duplicate fields.
    pub(super) fn strict(kind: &Kind, faults: &[String]) -> Self {
        let (name, version, faults) = (kind.name(), kind.api_version(), faults.join(", "));
        Self::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {name}: strict decoding error: {faults}"
        ))
    }

    /// Converts an error of the client.
    pub(super) fn of_client(error: &ClientError) -> Self {
        let (kind, name) = (error.object().kind(), error.object().key().name());
        let qualified = qualified(kind);
        match error.kind() {
            ClientErrorKind::NotFound => Self::not_found(kind, name),
            ClientErrorKind::AlreadyExists => {
                let message = format!("{qualified} {name:?} already exists");
                Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, &kind.plural(), name)
            }
            ClientErrorKind::Conflict { fields, .. } if !fields.is_empty() => {
                let lines: Vec<_> =
                    fields.iter().map(|field| format!("conflict with {:?}: .{}", field.owner, field.field)).collect();
                let many = if fields.len() == 1 { "" } else { "s" };
                let message = format!("Apply failed with {} conflict{many}: {}", fields.len(), lines.join(", "));
                let causes = fields.iter().map(|field| {
                    let message = format!("conflict with {:?}", field.owner);
                    json!({"reason": "FieldManagerConflict", "message": message, "field": format!(".{}", field.field)})
                });
                Self::new(StatusCode::CONFLICT, "Conflict", message).causes(causes.collect())
            }
            ClientErrorKind::Conflict { .. } => {
                let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {}", error.reason());
                Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, &kind.plural(), name)
            }
            ClientErrorKind::Invalid { causes, .. } => {
                let faults = causes.iter().map(|cause| FieldFault::of_text(&cause.field, &cause.value, &cause.rule));
                Self::invalid(kind, name, &faults.collect::<Vec<_>>())
            }
            ClientErrorKind::Gone { version, .. } => {
                Self::expired(format!("the version {version} of {qualified} is too old or unknown: list again"))
            }
            ClientErrorKind::Forbidden => Self::forbidden(kind, name, error.reason()),
            ClientErrorKind::TooManyRequests { retry_after, .. } => {
                let busy = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", error.reason());
                let delay = retry_after.map_or(1, |after| after.as_millis().div_ceil(1_000).max(1));
                Self { retry_after: Some(u64::try_from(delay).unwrap_or(u64::MAX)), ..busy }
            }
            ClientErrorKind::KindNotServed => {
                Self::new(StatusCode::NOT_FOUND, "NotFound", error.reason()).about(kind, &kind.plural(), name)
            }
            // The store refuses this program, not the user who made the request.
            _ => {
                let message = "the object store failed; the log of the server has the cause";
                Self { cause: Some(Chain(error).to_string()), ..Self::internal(message) }
            }
        }
    }

    fn about(mut self, kind: &Kind, kind_name: &str, name: &str) -> Self {
        let mut details = json!({"kind": kind_name});
        for (field, value) in [("name", name), ("group", kind.group())] {
            if !value.is_empty() {
                details[field] = value.into();
            }
        }
        self.details = details;
        self
    }

    fn causes(mut self, causes: Vec<Value>) -> Self {
        if self.details.is_null() {
            self.details = json!({});
        }
        self.details["causes"] = causes.into();
        self
    }

    /// Appends a hint to the message.
    pub(super) fn with_hint(mut self, hint: &str) -> Self {
        self.message.push_str(hint);
        self
    }

    /// Returns why the store failed, if it did. Only for the log, because it may show paths and addresses.
    pub(super) fn store_failure(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns whether another writer has changed the object meanwhile. A conflict between field owners does not
    /// count.
    pub(super) fn is_conflict_of_versions(&self) -> bool {
        self.reason == "AlreadyExists" || (self.reason == "Conflict" && self.details["causes"].is_null())
    }

    /// Returns the `Status`.
    pub(super) fn json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(seconds) = self.retry_after {
            status["details"]["retryAfterSeconds"] = seconds.into();
        }
        status
    }

    pub(super) fn reply(&self) -> Reply {
        let mut reply = Reply::json(self.code, &self.json());
        if let Some(seconds) = self.retry_after {
            reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply
    }
}

impl From<ClientError> for StatusError {
    fn from(error: ClientError) -> Self {
        Self::of_client(&error)
    }
}

/// Returns the plural with the group, such as `sites.example.com`.
pub(super) fn qualified(kind: &Kind) -> String {
    match kind.group() {
        "" => kind.plural().into_owned(),
        group => format!("{}.{group}", kind.plural()),
    }
}

/// Returns the `Status` for a success.
pub(super) fn success(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind.plural()});
    for (field, value) in [("group", kind.group()), ("uid", uid)] {
        if !value.is_empty() {
            details[field] = value.into();
        }
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat_objects::{FieldConflict, ObjectKey, ObjectRef};

    const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");

    #[test]
    fn each_error_has_its_code_reason_and_details() {
        let site = || ObjectRef::new(&SITE, &ObjectKey::new("default", "home"));
        let details = json!({"kind": "sites", "name": "home", "group": "example.com"});
        let owners = vec![FieldConflict::new("spec.title", "alice")];
        for (error, code, reason, message, details) in [
            (
                ClientError::not_found(site()),
                404,
                "NotFound",
                "sites.example.com \"home\" not found",
                Some(details.clone()),
            ),
            (
                ClientError::already_exists(site()),
                409,
                "AlreadyExists",
                "sites.example.com \"home\" already exists",
                Some(details.clone()),
            ),
            (
                ClientError::conflict(site(), "its version is 2, not 1"),
                409,
                "Conflict",
                "Operation cannot be fulfilled on sites.example.com \"home\": its version is 2, not 1",
                Some(details.clone()),
            ),
            (
                ClientError::field_conflicts(site(), owners),
                409,
                "Conflict",
                "Apply failed with 1 conflict: conflict with \"alice\": .spec.title",
                Some(json!({"causes": [
                    {"reason": "FieldManagerConflict", "message": "conflict with \"alice\"", "field": ".spec.title"},
                ]})),
            ),
            (
                ClientError::invalid(site(), "spec.title", "", "must be set"),
                422,
                "Invalid",
                "Site.example.com \"home\" is invalid: spec.title: Invalid value: must be set",
                Some(json!({"kind": "Site", "name": "home", "group": "example.com", "causes": [
                    {"reason": "FieldValueInvalid", "message": "Invalid value: must be set", "field": "spec.title"},
                ]})),
            ),
            (
                ClientError::gone(site(), "7"),
                410,
                "Expired",
                "the version 7 of sites.example.com is too old or unknown: list again",
                None,
            ),
        ] {
            let status = StatusError::of_client(&error).json();
            assert_eq!(status["code"], code, "{status}");
            assert_eq!((&status["reason"], &status["message"]), (&json!(reason), &json!(message)));
            assert_eq!(status.get("details").cloned(), details);
        }
        let busy = ClientError::too_many_requests(site(), Some(std::time::Duration::from_millis(1_500)), "busy");
        let busy = StatusError::of_client(&busy).reply();
        assert_eq!((busy.status.as_u16(), busy.headers[RETRY_AFTER].to_str().unwrap()), (429, "2"));
    }

    #[test]
    fn a_core_kind_has_no_group_in_its_error() {
        let status = StatusError::not_found(&Kind::namespaced("", "v1", "ConfigMap"), "a").json();
        assert_eq!(status["message"], "configmaps \"a\" not found");
        assert_eq!(status["details"], json!({"kind": "configmaps", "name": "a"}));
    }
}
