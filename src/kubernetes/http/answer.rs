//! The answers of a server, and the typed errors of those that are errors. A plain value.

use std::time::Duration;

use serde::Deserialize;

use super::request_error::{RequestError, RequestFault};
use crate::base::text::{MOST, one_line};
use crate::objects::{Cause, ClientError, FieldConflict, Kind, ObjectKey, ObjectRef};

/// The most bytes of an answer with an error that are read.
pub(crate) const MOST_STATUS: u64 = 1 << 20;

const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

/// The head of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) code: u16,
    /// The media type without its parameters, in lower case; empty if it is missing.
    pub(crate) media_type: String,
    pub(crate) retry_after: Option<Duration>,
    /// The id of the request in the server's audit log.
    pub(crate) request_id: Option<String>,
    /// The target of a redirect.
    pub(crate) location: Option<String>,
}

/// A request, for errors.
#[derive(Clone, Debug)]
pub(crate) struct RequestLine {
    pub(crate) verb: &'static str,
    /// Without a query.
    pub(crate) url: String,
    pub(crate) object: ObjectRef,
    /// The version of a watch or the token of a list, which may be too old.
    pub(crate) version: String,
}

/// The object of kind `Status` in an answer.
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

    /// Returns the error of an answer that cannot be read.
    pub(crate) fn unusable(&self, fault: String) -> ClientError {
        self.error(RequestFault::Unusable { fault, request_id: None })
    }
}

impl ResponseHead {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns the fault of an answer that is not from an API server: a redirect, or another content type.
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
    /// Reads the body of an answer. A body that is no `Status` has only a message.
    pub(crate) fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Self>(body) {
            Ok(status) if status.kind == "Status" => status,
            _ => {
                let text = String::from_utf8_lossy(&body[..body.len().min(4 * MOST)]);
                Self { message: one_line(text.trim()), ..Self::default() }
            }
        }
    }

    /// Reads the object of an event of type `ERROR`.
    pub(crate) fn of_event(object: &serde_json::Value) -> Self {
        Self::deserialize(object).unwrap_or_else(|_| Self { message: object.to_string(), ..Self::default() })
    }

    /// Returns whether the server does not know the path of the request. Then it names no kind in its answer.
    pub(crate) fn is_unknown_path(&self, head: &ResponseHead) -> bool {
        head.code == 404 && self.details.as_ref().is_none_or(|details| details.kind.is_empty())
    }

    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    /// Returns whether the request names a version that the server has not reached: it lags, or its storage has been restored.
    pub(crate) fn is_behind(&self) -> bool {
        self.causes().any(|cause| cause.reason == "ResourceVersionTooLarge")
    }

    fn causes(&self) -> impl Iterator<Item = &StatusCause> {
        self.details.iter().flat_map(|details| details.causes.iter().flatten())
    }

    /// Returns the typed error.
    pub(crate) fn error(&self, request: &RequestLine, head: &ResponseHead) -> ClientError {
        let object = request.object.clone();
        let reason = || {
            let id = head.request_id.as_ref().map_or_else(String::new, |id| format!(" (audit id {id})"));
            format!("{} {}: {}{id}", request.verb, request.url, one_line(self.message()))
        };
        let code = if head.is_success() { self.code } else { head.code };
        match code {
            401 => ClientError::unauthorized(object, reason()),
            403 => ClientError::forbidden(object, reason()),
            404 if self.kind.is_empty() => ClientError::kind_not_served(object, reason()),
            404 => ClientError::not_found(self.missing(object)),
            409 if self.reason == "AlreadyExists" => ClientError::already_exists(object),
            // An update with a uid: no object of the name exists.
            409 if self.message.trim_end().ends_with("UID in object meta:") => ClientError::not_found(object),
            409 => self.conflict(object),
            410 => ClientError::gone(object, request.version.as_str()),
            // The server has not reached the version, for example after a restore.
            504 if self.is_behind() => ClientError::gone(object, request.version.as_str()),
            422 if self.is_immutable_uid() => ClientError::conflict(object, one_line(self.message())),
            // A wrong selector, a broken body, a body that is too large, an unknown content type.
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

    /// Returns the missing object: the object of the request, or its namespace.
    fn missing(&self, object: ObjectRef) -> ObjectRef {
        match &self.details {
            Some(details) if details.kind == "namespaces" && object.kind() != &NAMESPACE => {
                ObjectRef::new(&NAMESPACE, &ObjectKey::cluster(&details.name))
            }
            _ => object,
        }
    }

    /// Returns a conflict of versions, or of the owners of fields.
    fn conflict(&self, object: ObjectRef) -> ClientError {
        let fields = self.causes().filter(|cause| cause.reason == "FieldManagerConflict");
        let fields = fields.map(|cause| {
            // The message is: conflict with "manager" using apps/v1.
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
        let causes = self.causes().map(|cause| {
            let (value, rule) = value_and_rule(&cause.message);
            Cause::new(cause.field.as_str(), value, rule)
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

    /// Returns whether an internal error is the fault of the request.
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
    fn retry_after(&self, head: &ResponseHead) -> Option<Duration> {
        let seconds = self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
        head.retry_after.or(seconds.map(Duration::from_secs))
    }
}

/// Splits the message of a cause, such as `Invalid value: "a b": must be a DNS label`, into the value and the rule.
fn value_and_rule(message: &str) -> (&str, &str) {
    let value = message.split_once(" value: ").map(|(_, value)| value);
    let parts = value.and_then(|value| match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\": "),
        None => value.split_once(": "),
    });
    parts.unwrap_or(("", message))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const WIDGET: Kind = Kind::namespaced("example.com", "v1", "Widget");

    fn line() -> RequestLine {
        let object = ObjectRef::new(&WIDGET, &ObjectKey::new("default", "a"));
        RequestLine { verb: "PUT", url: "https://k/apis/example.com/v1/x".to_owned(), object, version: "7".to_owned() }
    }

    fn error(code: u16, status: &Value) -> ClientError {
        let head = ResponseHead { code, request_id: Some("id-1".to_owned()), ..ResponseHead::default() };
        ApiStatus::read(status.to_string().as_bytes()).error(&line(), &head)
    }

    fn status(code: u16, reason: &str, details: &Value) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "told so", "details": details})
    }

    /// Answers of kube-apiserver 1.20 and 1.36.
    #[test]
    fn each_status_is_a_typed_error() {
        let named = |kind: &str| json!({"group": "example.com", "kind": kind, "name": "a"});
        let audited = "PUT https://k/apis/example.com/v1/x: told so (audit id id-1)";
        let told = |code, reason, details: Value| error(code, &status(code, reason, &details));
        assert!(told(404, "NotFound", named("widgets")).is_not_found());
        let missing = told(404, "NotFound", named("namespaces"));
        assert_eq!(missing.to_string(), "Namespace a is not found");
        assert!(told(409, "AlreadyExists", named("widgets")).is_already_exists());
        assert_eq!(told(409, "Conflict", named("widgets")).to_string(), "Widget default/a: conflict: told so");
        assert!(told(410, "Expired", Value::Null).is_gone());
        assert!(told(401, "Unauthorized", Value::Null).is_unauthorized());
        let forbidden = told(403, "Forbidden", named("widgets"));
        assert!(forbidden.is_forbidden() && forbidden.to_string().contains(audited), "{forbidden}");
        for code in [400, 405, 406, 413, 415, 422] {
            assert!(told(code, "Invalid", Value::Null).is_invalid(), "{code}");
        }
        let busy = told(429, "TooManyRequests", json!({"retryAfterSeconds": 3}));
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(3)));
        assert!(told(503, "ServiceUnavailable", json!({"retryAfterSeconds": 1})).is_too_many_requests());
        for code in [500, 502, 503, 504] {
            let failed = told(code, "InternalError", Value::Null);
            let expected =
                format!("PUT https://k/apis/example.com/v1/x: the server answered {code}: told so (audit id id-1)");
            assert!(failed.is_transport() && failed.to_string().ends_with(&expected), "{failed}");
        }
    }

    #[test]
    fn some_internal_errors_are_invalid_requests() {
        for message in
            ["resourceVersion should not be set on objects to be created", "etcdserver: request is too large"]
        {
            assert!(error(500, &json!({"kind": "Status", "message": message})).is_invalid(), "{message}");
        }
    }

    #[test]
    fn a_plain_404_is_an_unknown_kind() {
        let head = ResponseHead { code: 404, ..ResponseHead::default() };
        let status = ApiStatus::read(b"404 page not found\n");
        assert!(status.is_unknown_path(&head) && status.error(&line(), &head).is_kind_not_served());
    }

    #[test]
    fn causes_name_field_value_and_rule_once() {
        let cause =
            |message: &str, field: &str| json!({"reason": "FieldValueInvalid", "message": message, "field": field});
        let causes = json!([
            cause("Invalid value: \"a b\": must be a word", "spec.x"),
            cause("Invalid value: \"a b\": must be a word", "spec.x"),
            cause("Invalid value: 7: must be at most 3", "spec.size"),
            cause("Required value", "spec.y"),
        ]);
        let invalid = error(422, &status(422, "Invalid", &json!({"causes": causes})));
        let expected = [
            ("spec.x", "a b", "must be a word"),
            ("spec.size", "7", "must be at most 3"),
            ("spec.y", "", "Required value"),
        ];
        let expected = expected.map(|(field, value, rule)| Cause::new(field, value, rule));
        assert_eq!(invalid.causes(), expected);
        let uid = json!({"causes": [cause("Invalid value: \"u\": field is immutable", "metadata.uid")]});
        assert!(error(422, &status(422, "Invalid", &uid)).is_conflict());
    }

    #[test]
    fn conflicts_of_apply_name_the_owners() {
        let message = "conflict with \"other\" using example.com/v1";
        let causes = json!([{"reason": "FieldManagerConflict", "message": message, "field": ".spec.size"}]);
        let ClientError::Conflict { fields, .. } = error(409, &status(409, "Conflict", &json!({"causes": causes})))
        else {
            panic!("no conflict")
        };
        assert_eq!(fields, [FieldConflict::new("spec.size", "other")]);
    }

    #[test]
    fn an_answer_that_is_no_answer_of_an_api_server_is_refused() {
        let location = Some("https://login.example.com/?token=s3cret".to_owned());
        let redirect = ResponseHead { code: 302, location, ..ResponseHead::default() }.fault().unwrap();
        assert!(redirect.contains("redirects to https://login.example.com/ (302)"), "{redirect}");
        let html = ResponseHead { code: 200, media_type: "text/html".to_owned(), ..ResponseHead::default() };
        assert!(html.fault().unwrap().starts_with("the answer is text/html, not application/json"));
        assert!(
            ResponseHead { code: 200, ..ResponseHead::default() }.fault().unwrap().contains("without a content type")
        );
        // An error may be a plain text.
        assert_eq!(
            ResponseHead { code: 500, media_type: "text/plain".to_owned(), ..ResponseHead::default() }.fault(),
            None
        );
        let long = "x".repeat(100_000);
        assert!(error(500, &json!(long)).to_string().len() < 10_000);
        assert!(error(500, &json!({"kind": "Status", "message": long})).to_string().len() < 10_000);
    }
}
