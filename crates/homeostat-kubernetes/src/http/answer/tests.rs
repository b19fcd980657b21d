//! Typed errors of answers, and the texts in them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, or its helper, that cannot continue has failed")]

use std::error::Error;

use serde_json::{Value, json};

use super::text::warnings;
use super::*;
use homeostat_objects::ClientErrorKind;

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
    assert_eq!(*told(401, "Unauthorized", Value::Null).kind(), ClientErrorKind::Unauthorized);
    let forbidden = told(403, "Forbidden", named("widgets"));
    assert!(*forbidden.kind() == ClientErrorKind::Forbidden && forbidden.to_string().contains(audited), "{forbidden}");
    for code in [400, 405, 406, 413, 415, 422] {
        assert!(told(code, "Invalid", Value::Null).is_invalid(), "{code}");
    }
    let busy = told(429, "TooManyRequests", json!({"retryAfterSeconds": 3}));
    let ClientErrorKind::TooManyRequests { retry_after, .. } = busy.kind() else { panic!("{busy:?}") };
    assert_eq!(*retry_after, Some(Duration::from_secs(3)));
    assert!(matches!(
        told(503, "ServiceUnavailable", json!({"retryAfterSeconds": 1})).kind(),
        ClientErrorKind::TooManyRequests { .. }
    ));
    for code in [500, 502, 503, 504] {
        let failed = told(code, "InternalError", Value::Null);
        let expected =
            format!("PUT https://k/apis/example.com/v1/x: the server answered {code}: told so (audit id id-1)");
        assert!(failed.is_transport() && failed.source().unwrap().to_string() == expected, "{failed:?}");
    }
}

#[test]
fn some_internal_errors_are_invalid_requests() {
    for message in ["resourceVersion should not be set on objects to be created", "etcdserver: request is too large"] {
        assert!(error(500, &json!({"kind": "Status", "message": message})).is_invalid(), "{message}");
    }
}

#[test]
fn a_plain_404_is_an_unknown_kind() {
    let head = ResponseHead { code: 404, ..ResponseHead::default() };
    let status = ApiStatus::read(b"404 page not found\n");
    assert!(status.is_unknown_path(&head) && *status.error(&line(), &head).kind() == ClientErrorKind::KindNotServed);
}

#[test]
fn causes_name_field_value_and_rule_once() {
    let cause = |message: &str, field: &str| json!({"reason": "FieldValueInvalid", "message": message, "field": field});
    let causes = json!([
        cause("Invalid value: \"a b\": must be a word", "spec.x"),
        cause("Invalid value: \"a b\": must be a word", "spec.x"),
        cause("Invalid value: 7: must be at most 3", "spec.size"),
        cause("Required value", "spec.y"),
        cause("Invalid value: limits: min must not exceed max", "spec.a"),
        cause("Invalid value: \"object\": a: b must not exceed: c", "spec.b"),
        cause("Required value: say: why", "spec.c"),
        cause("Unsupported value: \"x\": supported values: \"a\", \"b\"", "spec.d"),
        cause("Duplicate value: {\"name\":\"a: b\"}", "spec.e"),
        cause("Invalid value: map[string]interface {}{\"a\":\"b: c\"}: must be small", "spec.f"),
        cause("Invalid value: \"say \\\"a: b\\\"\": must be quiet", "spec.g"),
        cause("Too long: may not be more than 5 bytes", "spec.h"),
        cause("Too many: 4: must have at most 3 items", "spec.i"),
        cause("Forbidden: it is: final", "spec.j"),
        cause("Invalid value: \"\": must be set", "spec.k"),
        cause("Invalid value: [a] must not: b", "spec.l"),
        cause("Invalid value: -1.5", "spec.m"),
    ]);
    let invalid = error(422, &status(422, "Invalid", &json!({"causes": causes})));
    let expected = [
        ("spec.x", "a b", "must be a word"),
        ("spec.size", "7", "must be at most 3"),
        ("spec.y", "", "Required value"),
        ("spec.a", "", "limits: min must not exceed max"),
        ("spec.b", "", "a: b must not exceed: c"),
        ("spec.c", "", "Required value: say: why"),
        ("spec.d", "x", "supported values: \"a\", \"b\""),
        ("spec.e", "{\"name\":\"a: b\"}", "Duplicate value"),
        ("spec.f", "map[string]interface {}{\"a\":\"b: c\"}", "must be small"),
        ("spec.g", "say \"a: b\"", "must be quiet"),
        ("spec.h", "", "Too long: may not be more than 5 bytes"),
        ("spec.i", "4", "must have at most 3 items"),
        ("spec.j", "", "Forbidden: it is: final"),
        ("spec.k", "", "must be set"),
        ("spec.l", "", "[a] must not: b"),
        ("spec.m", "-1.5", "Invalid value"),
    ];
    let expected = expected.map(|(field, value, rule)| Cause::new(field, value, rule));
    assert_eq!(invalid.causes(), expected);
    let uid = json!({"causes": [cause("Invalid value: \"u\": field is immutable", "metadata.uid")]});
    assert!(error(422, &status(422, "Invalid", &uid)).is_conflict());
}

/// Answers of kube-apiserver 1.36.
#[test]
fn answers_of_a_new_server_become_the_right_errors() {
    let meta = |name: &str| json!({"name": name, "group": "example.com", "kind": "Site"});
    let with = |causes: Value| {
        let mut details = meta("a");
        details["causes"] = causes;
        details
    };
    let rule = "Invalid value: limits: min must not exceed max";
    let cel = with(json!([{"reason": "FieldValueInvalid", "message": rule, "field": "spec"}]));
    let expected = "Widget default/a is invalid: spec: limits: min must not exceed max";
    assert_eq!(error(422, &status(422, "Invalid", &cel)).to_string(), expected);

    let noise = "Invalid value: null: some validation rules were not checked because the object was invalid; correct \
                 the existing errors to complete validation";
    let noise = json!({"reason": "FieldValueInvalid", "message": noise, "field": "<nil>"});
    let missing = json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec.max"});
    let required = error(422, &status(422, "Invalid", &with(json!([missing, noise]))));
    assert_eq!(required.to_string(), "Widget default/a is invalid: spec.max: Required value");
    let alone = error(422, &status(422, "Invalid", &with(json!([noise]))));
    assert!(alone.to_string().starts_with("Widget default/a is invalid: some validation rules"), "{alone}");

    let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    let ahead = error(504, &status(504, "Timeout", &json!({"causes": causes, "retryAfterSeconds": 1})));
    assert!(ahead.is_gone() && ahead.to_string().contains("has not reached version 7: it lags behind"), "{ahead}");
}

#[test]
fn only_a_missing_right_advises_a_role() {
    let refused = |message: &str| error(403, &json!({"kind": "Status", "message": message})).to_string();
    for message in [
        "configmaps \"b\" is forbidden: exceeded quota: q, requested: count/configmaps=1",
        "configmaps \"b\" is forbidden: unable to create new content in namespace x because it is being terminated",
        "sites \"b\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        "admission webhook \"w\" denied the request: users cannot do this",
    ] {
        let told = refused(message);
        assert!(told.contains(message) && !told.contains("role"), "{told}");
    }
    for message in [
        "sites is forbidden: User \"ops\" cannot list resource \"sites\" in API group \"example.com\" at the cluster scope",
        "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
    ] {
        assert!(refused(message).ends_with("(grant the user this verb on this kind, for example by a role)"));
    }
}

#[test]
fn warnings_are_read_with_their_quotes() {
    let cases: [(&str, &[&str]); 5] = [
        (r#"299 - "unknown field \"spec.colour\"""#, &["unknown field \"spec.colour\""]),
        (r#"299 - "a, b", 299 - "c" "Wed, 21 Oct 2015 07:28:00 GMT", 299 - "d""#, &["a, b", "c", "d"]),
        ("299 - \"open", &["open"]),
        ("299 - none", &[]),
        ("", &[]),
    ];
    for (header, expected) in cases {
        assert_eq!(warnings(header), expected, "{header}");
    }
}

#[test]
fn conflicts_of_apply_name_the_owners() {
    let message = "conflict with \"other\" using example.com/v1";
    let causes = json!([{"reason": "FieldManagerConflict", "message": message, "field": ".spec.size"}]);
    let error = error(409, &status(409, "Conflict", &json!({"causes": causes})));
    let ClientErrorKind::Conflict { fields, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!(*fields, [FieldConflict::new("spec.size", "other")]);
}

#[test]
fn an_answer_that_is_no_answer_of_an_api_server_is_refused() {
    let location = Some("https://login.example.com/?token=s3cret".to_owned());
    let redirect = ResponseHead { code: 302, location, ..ResponseHead::default() }.fault().unwrap();
    assert!(redirect.contains("redirects to https://login.example.com/ (302)"), "{redirect}");
    let html = ResponseHead { code: 200, media_type: "text/html".to_owned(), ..ResponseHead::default() };
    assert!(html.fault().unwrap().starts_with("the answer is text/html, not application/json"));
    assert!(ResponseHead { code: 200, ..ResponseHead::default() }.fault().unwrap().contains("without a content type"));
    // An error may be plain text.
    assert_eq!(
        ResponseHead { code: 500, media_type: "text/plain".to_owned(), ..ResponseHead::default() }.fault(),
        None
    );
    let long = "x".repeat(100_000);
    assert!(error(500, &json!(long)).to_string().len() < 10_000);
    assert!(error(500, &json!({"kind": "Status", "message": long})).to_string().len() < 10_000);
}
