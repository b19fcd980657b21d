//! The answers of a server, and the typed errors that they contain. Plain values.

#[cfg(all(test, not(loom)))]
mod tests;
mod text;

use std::time::Duration;

use serde::Deserialize;

use self::text::value_and_rule;
pub(crate) use self::text::warnings;
use super::request_error::{RequestError, RequestFault};
use homeostat::rt::one_line;
use homeostat_objects::{Cause, ClientError, FieldConflict, Kind, ObjectKey, ObjectRef};

/// The largest part of an error's body that is read, in bytes.
pub(crate) const MOST_STATUS: u64 = 1 << 20;

const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

/// The head of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) code: u16,
    /// The media type without parameters, in lower case. Empty if it is missing.
    pub(crate) media_type: String,
    pub(crate) retry_after: Option<Duration>,
    /// The request's id in the server's audit log.
    pub(crate) request_id: Option<String>,
    /// The target of a redirect.
    pub(crate) location: Option<String>,
    /// The server's warnings about the request.
    pub(crate) warnings: Vec<String>,
}

/// A request, as its errors describe it.
#[derive(Clone, Debug)]
pub(crate) struct RequestLine {
    pub(crate) verb: &'static str,
    /// The URL without its query.
    pub(crate) url: String,
    pub(crate) object: ObjectRef,
    /// The version in a watch or the token in a list, which may be too old.
    pub(crate) version: String,
}

/// An object of kind `Status` in an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiStatus {
    kind: String,
    message: String,
    reason: String,
    code: u16,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    kind: String,
    causes: Option<Vec<StatusCause>>,
    retry_after_seconds: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    reason: String,
    message: String,
    field: String,
}

impl RequestLine {
    /// Returns the error of a request without a usable answer.
    pub(crate) fn error(&self, cause: RequestFault) -> ClientError {
        let object = self.object.clone();
        match cause {
            RequestFault::Credentials(fault) => ClientError::unauthorized(object, fault),
            cause => ClientError::transport(object, RequestError::new(self.verb, &self.url, cause)),
        }
    }

    /// Returns the error for an answer that cannot be parsed.
    pub(crate) fn unusable(&self, fault: String) -> ClientError {
        self.error(RequestFault::Unusable { fault, request_id: None })
    }
}

impl ResponseHead {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns the fault of an answer that does not come from an API server: a redirect, or a wrong content type.
    pub(crate) fn fault(&self) -> Option<String> {
        if (300..400).contains(&self.code) {
            let target = self.location.as_deref().unwrap_or("(no location)").split('?').next().unwrap_or_default();
            return Some(format!(
                "the server redirects to {target} ({}), and this client follows no redirects; use the address of the API server itself",
                self.code
            ));
        }
        (self.is_success() && self.media_type != "application/json").then(|| {
            let found = if self.media_type.is_empty() { "without a content type" } else { self.media_type.as_str() };
            format!("the answer is {found}, not application/json; is this the address of an API server?")
        })
    }
}

impl ApiStatus {
    /// Parses the body of an answer. If the body is not a `Status`, its text becomes the message.
    pub(crate) fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Self>(body) {
            Ok(status) if status.kind == "Status" => status,
            _ => {
                // More than a line keeps.
                let text = String::from_utf8_lossy(&body[..body.len().min(4096)]);
                Self { message: one_line(text.trim()), ..Self::default() }
            }
        }
    }

    /// Parses the object of an event of type `ERROR`.
    pub(crate) fn of_event(object: &serde_json::Value) -> Self {
        Self::deserialize(object).unwrap_or_else(|_| Self { message: object.to_string(), ..Self::default() })
    }

    /// Returns whether the server does not know the request's path. Its answer then names no kind.
    pub(crate) fn is_unknown_path(&self, head: &ResponseHead) -> bool {
        head.code == 404 && self.details.as_ref().is_none_or(|details| details.kind.is_empty())
    }

    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    /// Returns whether the server has not reached the request's version: it lags behind, or its storage was restored.
    pub(crate) fn is_behind(&self) -> bool {
        self.causes().any(|cause| cause.reason == "ResourceVersionTooLarge")
    }

    fn causes(&self) -> impl Iterator<Item = &StatusCause> {
        self.details.iter().flat_map(|details| details.causes.iter().flatten())
    }

    /// Returns whether the user lacks a permission. Quotas, policies and terminating namespaces also forbid calls.
    fn lacks_right(&self) -> bool {
        self.message.contains("User \"") && self.message.contains("\" cannot ")
    }

    /// Converts the answer to a typed error.
    pub(crate) fn error(&self, request: &RequestLine, head: &ResponseHead) -> ClientError {
        let object = request.object.clone();
        let reason = || {
            let id = head.request_id.as_ref().map_or_else(String::new, |id| format!(" (audit id {id})"));
            format!("{} {}: {}{id}", request.verb, request.url, one_line(self.message()))
        };
        let code = if head.is_success() { self.code } else { head.code };
        match code {
            401 => ClientError::unauthorized(object, reason()),
            403 if self.lacks_right() => {
                let advice = "(grant the user this verb on this kind, for example by a role)";
                ClientError::forbidden(object, format!("{} {advice}", reason()))
            }
            403 => ClientError::forbidden(object, reason()),
            404 if self.kind.is_empty() => ClientError::kind_not_served(object, reason()),
            404 => ClientError::not_found(self.missing(object)),
            409 if self.reason == "AlreadyExists" => ClientError::already_exists(object),
            // An update with a uid failed because no object of this name exists.
            409 if self.message.trim_end().ends_with("UID in object meta:") => ClientError::not_found(object),
            409 => self.conflict(object),
            410 => ClientError::gone(object, request.version.as_str()),
            504 if self.is_behind() => ClientError::ahead(object, request.version.as_str()),
            422 if self.is_immutable_uid() => ClientError::conflict(object, one_line(self.message())),
            // A wrong selector, a malformed or too large body, or an unknown content type.
            400 | 405 | 406 | 413 | 415 | 422 => self.invalid(object),
            429 => ClientError::too_many_requests(object, self.retry_after(head), reason()),
            500 if self.is_invalid() => self.invalid(object),
            503 if self.retry_after(head).is_some() => {
                ClientError::too_many_requests(object, self.retry_after(head), reason())
            }
            _ => {
                let (message, request_id) = (self.message().to_owned(), head.request_id.clone());
                let cause = RequestFault::Status { code, message, request_id };
                ClientError::transport(object, RequestError::new(request.verb, &request.url, cause))
            }
        }
    }

    pub(crate) fn message(&self) -> &str {
        match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => "no message",
            ("", reason) => reason,
            (message, _) => message,
        }
    }

    /// Returns the object that is missing: the request's object or its namespace.
    fn missing(&self, object: ObjectRef) -> ObjectRef {
        match &self.details {
            Some(details) if details.kind == "namespaces" && object.kind() != &NAMESPACE => {
                ObjectRef::new(&NAMESPACE, &ObjectKey::cluster(&details.name))
            }
            _ => object,
        }
    }

    /// Returns a conflict between versions, or between field owners.
    fn conflict(&self, object: ObjectRef) -> ClientError {
        let fields = self.causes().filter(|cause| cause.reason == "FieldManagerConflict");
        let fields = fields.map(|cause| {
            // The message has the form: conflict with "manager" using apps/v1.
            let owner = cause.message.split('"').nth(1).unwrap_or(&cause.message);
            FieldConflict::new(cause.field.trim_start_matches('.'), owner)
        });
        let fields: Vec<_> = fields.collect();
        if fields.is_empty() {
            return ClientError::conflict(object, one_line(self.message()));
        }
        ClientError::field_conflicts(object, fields)
    }

    fn invalid(&self, object: ObjectRef) -> ClientError {
        // "<nil>" is not a field. Its cause says that more causes are hidden.
        let has_field = |cause: &StatusCause| cause.field != "<nil>";
        let all_lack_fields = !self.causes().any(has_field);
        let causes = self.causes().filter(|cause| all_lack_fields || has_field(cause)).map(|cause| {
            let (value, rule) = value_and_rule(&cause.message);
            Cause::new(if has_field(cause) { cause.field.as_str() } else { "" }, value, rule)
        });
        // A server may repeat a cause for each of its checks.
        let mut distinct: Vec<Cause> = Vec::new();
        for cause in causes {
            if !distinct.contains(&cause) {
                distinct.push(cause);
            }
        }
        let mut causes = distinct;
        if causes.is_empty() {
            causes.push(Cause::new("", "", one_line(self.message())));
        }
        ClientError::with_causes(object, causes)
    }

    fn is_immutable_uid(&self) -> bool {
        self.causes().any(|cause| cause.field == "metadata.uid")
    }

    /// Returns whether the request is to blame for an internal error.
    fn is_invalid(&self) -> bool {
        const FAULTS: [&str; 5] = [
            "resourceVersion should not be set",
            "strconv.ParseUint: parsing",
            "failed to create typed patch object",
            "request is too large",
            "unable to decode",
        ];
        FAULTS.iter().any(|fault| self.message.contains(fault))
    }

    /// Returns the delay that the server asks for.
    pub(crate) fn retry_after(&self, head: &ResponseHead) -> Option<Duration> {
        let seconds = self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
        head.retry_after.or(seconds.map(Duration::from_secs))
    }
}
