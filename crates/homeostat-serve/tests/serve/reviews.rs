//! Admission reviews through the server, as a Kubernetes API server sends them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use homeostat::Running;
use homeostat::base::StartErrorKind;
use homeostat_objects::{Kind, KindDefinition};
use homeostat_serve::{
    Access, AccessTarget, AdmissionReviewer, Rejection, ServedResource, Server, ServerBuilder, ServerControl, UserInfo,
};
use log::Level;
use serde_json::{Value, json};

use crate::logs::Logs;

const VALIDATE: &str = "/admission/validate";
const MUTATE: &str = "/admission/mutate";
const JSON: &str = "Content-Type: application/json\r\n";

/// A reviewer of virtual machines with a schema, and with a hook of each kind.
fn reviewer() -> AdmissionReviewer {
    let spec = json!({"type": "object", "properties": {
        "cores": {"type": "integer", "minimum": 1}, "disk": {"type": "string", "default": "ssd"}, "owner": {"type": "string"},
    }});
    let vms = KindDefinition::new(Kind::namespaced("example.com", "v1", "Vm"))
        .schema(json!({"type": "object", "properties": {"spec": spec}}));
    let vms = ServedResource::new(vms)
        .mutate(|request, vm| {
            vm["spec"]["owner"] = request.user.name.as_str().into();
            Ok(())
        })
        .validate(|request, _| match request.namespace {
            "closed" => Err(Rejection::forbidden(format!("{} must wait", request.user.name))),
            "panics" => panic!("no idea"),
            _ => Ok(()),
        })
        .validate_deletion(|_, vm| match vm["spec"]["cores"].as_u64() {
            Some(7) => Err(Rejection::forbidden("seven is kept")),
            _ => Ok(()),
        });
    AdmissionReviewer::new([vms]).unwrap()
}

fn builder() -> ServerBuilder {
    Server::builder((Ipv4Addr::LOCALHOST, 0)).admission_reviews("/admission", &reviewer())
}

fn start(builder: ServerBuilder) -> Running<ServerControl> {
    builder.build().unwrap().start().unwrap()
}

/// Returns a review in which `eve` creates a machine. `fields` replace its fields.
fn review(fields: &Value) -> String {
    let mut request = json!({
        "uid": "u-1", "operation": "CREATE", "kind": {"group": "example.com", "version": "v1", "kind": "Vm"},
        "namespace": "default", "name": "a", "userInfo": {"username": "eve", "groups": ["g"]},
        "object": {"spec": {"cores": 1, "disk": "ssd", "owner": "eve"}},
    });
    for (name, value) in fields.as_object().unwrap() {
        request[name.as_str()] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// An answer as received.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    /// Returns the response to a review.
    fn response(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        let review: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(
            (&review["apiVersion"], &review["kind"]),
            (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
        );
        review["response"].clone()
    }
}

fn call(server: &ServerControl, line: &str, headers: &str, body: &str) -> Answer {
    send(server, line, &format!("{headers}Content-Length: {}\r\n", body.len()), body)
}

fn send(server: &ServerControl, line: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n{body}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

fn post(server: &ServerControl, path: &str, fields: &Value) -> Answer {
    call(server, &format!("POST {path}"), JSON, &review(fields))
}

#[test]
fn objects_are_allowed_and_refused_with_a_reason() {
    let server = start(builder());
    let allowed = post(&server, VALIDATE, &json!({})).response();
    assert_eq!(allowed, json!({"uid": "u-1", "allowed": true}));

    let refused = post(&server, VALIDATE, &json!({"namespace": "closed"})).response();
    let status = json!({"code": 403, "reason": "Forbidden", "message": "eve must wait"});
    assert_eq!(refused, json!({"uid": "u-1", "allowed": false, "status": status}));

    let refused = post(&server, VALIDATE, &json!({"object": {"spec": {"cores": 0}}})).response();
    assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(422)));
    assert_eq!(refused["status"]["message"], "spec.cores: Invalid value: 0: must be at least 1");
    assert_eq!(refused["status"]["details"]["causes"][0]["field"], "spec.cores");

    let deletion = json!({"operation": "DELETE", "object": null, "oldObject": {"spec": {"cores": 7}}});
    assert_eq!(post(&server, VALIDATE, &deletion).response()["status"]["message"], "seven is kept");
    assert_eq!(server.counts().succeeded, 4);
}

#[test]
fn changes_are_answered_as_a_json_patch() {
    let server = start(builder());
    let answer = post(&server, MUTATE, &json!({"object": {"spec": {"cores": 1, "coers": 2}}})).response();
    assert_eq!((&answer["allowed"], &answer["patchType"]), (&json!(true), &json!("JSONPatch")));
    assert_eq!(answer["warnings"], json!(["unknown field \"spec.coers\""]));
    let patch: Value =
        serde_json::from_slice(&BASE64_STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap()).unwrap();
    let expected = json!([
        {"op": "add", "path": "/spec/disk", "value": "ssd"},
        {"op": "add", "path": "/spec/owner", "value": "eve"},
        {"op": "remove", "path": "/spec/coers"},
    ]);
    assert_eq!(patch, expected);
    let unchanged = post(&server, MUTATE, &json!({})).response();
    assert_eq!(unchanged, json!({"uid": "u-1", "allowed": true}));
}

#[test]
fn other_bodies_are_refused() {
    let server = start(builder());
    let line = format!("POST {VALIDATE}");
    for (headers, body, status, text) in [
        (JSON, "{", 400, "the body is not JSON: "),
        (JSON, "", 400, "the body is not JSON: "),
        ("", "{}", 415, "the body is \"\", but must be application/json"),
        ("Content-Type: text/plain\r\n", "{}", 415, "the body is \"text/plain\", but must be application/json"),
        ("Content-Type: application/x-www-form-urlencoded\r\n", "a=b", 415, "must be application/json"),
    ] {
        let answer = call(&server, &line, headers, body);
        assert_eq!(answer.status, status, "{headers}{body}: {}", answer.body);
        assert!(answer.body.contains(text) && answer.body.ends_with('\n'), "{}", answer.body);
    }
    for body in ["null", "7", "{}", r#"{"kind": "Status"}"#, &review(&json!({})).replace("k8s.io/v1", "k8s.io/v1beta1")]
    {
        let response = call(&server, &line, JSON, body).response();
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(400)), "{body}");
    }
    let parameters = "Content-Type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(call(&server, &line, parameters, &review(&json!({}))).response()["allowed"], true);
}

#[test]
fn other_paths_and_methods_are_refused() {
    let server = start(builder());
    let body = review(&json!({}));
    for path in ["/admission", "/admission/other", "/admission/validate/x", "/x/admission/validate", "/validate"] {
        let answer = call(&server, &format!("POST {path}"), JSON, &body);
        assert_eq!(answer.status, 404, "{path}");
    }
    // An API server adds a query.
    for path in ["/admission/validate?timeout=10s", "/admission/validate/", "/admission/%76alidate"] {
        assert_eq!(call(&server, &format!("POST {path}"), JSON, &body).response()["allowed"], true, "{path}");
    }
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let answer = send(&server, &format!("{method} {VALIDATE}"), "", "");
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: post"), "{}", answer.head);
    }
}

#[test]
fn a_review_needs_a_user_and_the_right_to_create() {
    let server = start(builder().token("token", UserInfo::new("kube")).token("other", UserInfo::new("eve")).authorize(
        |request| match &request.target {
            AccessTarget::Path(path) if path == VALIDATE && request.verb == "create" && request.user.name == "kube" => {
                Access::Allow
            }
            _ => Access::Deny("only kube validates".to_owned()),
        },
    ));
    let status = |path: &str, headers: &str| {
        let answer = call(&server, &format!("POST {path}"), &format!("{JSON}{headers}"), &review(&json!({})));
        assert_eq!(answer.body.contains("create /admission"), answer.status == 403, "{}", answer.body);
        answer.status
    };
    assert_eq!(status(VALIDATE, ""), 401);
    assert_eq!(status(VALIDATE, "Authorization: Bearer wrong\r\n"), 401);
    assert_eq!(status(VALIDATE, "Authorization: Bearer token\r\n"), 200);
    assert_eq!(status(VALIDATE, "Authorization: Bearer other\r\n"), 403);
    assert_eq!(status(MUTATE, "Authorization: Bearer token\r\n"), 403);
}

#[test]
fn pages_of_other_sites_cannot_send_reviews() {
    let server = start(builder().public_path(VALIDATE));
    let headers = format!("{JSON}Origin: http://evil.example\r\n");
    assert_eq!(call(&server, &format!("POST {VALIDATE}"), &headers, &review(&json!({}))).status, 403);
}

#[test]
fn everyone_may_send_reviews_to_a_public_path() {
    let server = start(
        builder()
            .token("token", UserInfo::new("kube"))
            .public_path(VALIDATE)
            .public_path("/livez")
            .authorize(|_| Access::Deny("nothing else is allowed".to_owned())),
    );
    let status =
        |line: &str, headers: &str| call(&server, line, &format!("{JSON}{headers}"), &review(&json!({}))).status;
    assert_eq!(status("POST /admission/validate", ""), 200);
    assert_eq!(status("POST /admission/validate/", ""), 200);
    assert_eq!(status("POST /admission/validate", "Authorization: Bearer wrong\r\n"), 200);
    for line in ["POST /admission/mutate", "PUT /admission/validate", "PATCH /admission/validate", "POST /livez"] {
        assert_eq!(status(line, ""), 401, "{line}");
    }
    assert_eq!(status("POST /admission/mutate", "Authorization: Bearer token\r\n"), 403);
}

#[test]
fn a_review_may_have_two_large_objects() {
    let large = json!({"object": {"spec": {"cores": 1, "disk": "x".repeat(4 << 20)}}});
    let head = |bytes: usize| format!("{JSON}Content-Length: {bytes}\r\n");
    let line = format!("POST {VALIDATE}");
    let server = start(builder());
    assert_eq!(post(&server, VALIDATE, &large).response()["allowed"], true);
    assert_eq!(send(&server, &line, &head((7 << 20) + 1), "").status, 413);
    let small = start(builder().body_limit(100));
    assert_eq!(send(&small, &line, &head(101), "").status, 413);
    let without = start(Server::builder((Ipv4Addr::LOCALHOST, 0)));
    assert_eq!(send(&without, &line, &head((3 << 20) + 1), "").status, 413);
}

#[test]
fn each_review_is_logged_with_its_decision() {
    let logs = Logs::of("reviewed");
    let server = start(builder().name("reviewed").token("token", UserInfo::new("kube")));
    logs.wait_for(Level::Info, "the server listens on 127.0.0.1:");
    let headers = format!("{JSON}Authorization: Bearer token\r\n");
    let send = |path: &str, fields: &Value| call(&server, &format!("POST {path}"), &headers, &review(fields));
    send(VALIDATE, &json!({}));
    send(VALIDATE, &json!({"namespace": "closed", "dryRun": true}));
    send(MUTATE, &json!({"object": {"spec": {"cores": 0}}}));
    call(&server, &format!("POST {VALIDATE}"), &headers, "{");
    call(&server, &format!("POST {VALIDATE}"), JSON, &review(&json!({})));
    drop(server);
    let lines: Vec<_> = logs.at(Level::Info).into_iter().filter(|line| line.fields.contains_key("method")).collect();
    let texts: Vec<_> = lines.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(
        texts,
        [
            "reviewed: kube at 127.0.0.1: POST /admission/validate: 200, dry run: false",
            "reviewed: kube at 127.0.0.1: POST /admission/validate: 403, dry run: true",
            "reviewed: kube at 127.0.0.1: POST /admission/mutate: 422, dry run: false",
            "reviewed: kube at 127.0.0.1: POST /admission/validate: 400, dry run: false",
            "reviewed: anonymous at 127.0.0.1: POST /admission/validate: 401, dry run: false",
        ]
    );
}

#[test]
fn a_hook_that_panics_refuses_the_object_and_is_logged() {
    let logs = Logs::of("Vm panics/broken");
    let server = start(builder());
    let refused = post(&server, VALIDATE, &json!({"namespace": "panics", "name": "broken"})).response();
    assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(500)));
    assert_eq!(refused["status"]["message"], "a hook panicked: no idea");
    let line = logs.wait_for(Level::Error, "panicked");
    assert_eq!(line.message, "an admission hook of Vm panics/broken panicked: no idea");
    assert_eq!(line.field("panic"), "no idea");
    assert_eq!(post(&server, VALIDATE, &json!({})).response()["allowed"], true);
}

#[test]
fn several_reviewers_need_several_paths() {
    let pods =
        ServedResource::new(Kind::namespaced("", "v1", "Pod")).validate(|_, _| Err(Rejection::forbidden("no pods")));
    let pods = AdmissionReviewer::new([pods]).unwrap();
    let server = start(builder().admission_reviews("/admission/pods", &pods));
    let pod = json!({"kind": {"group": "", "version": "v1", "kind": "Pod"}});
    assert_eq!(post(&server, "/admission/pods/validate", &pod).response()["status"]["message"], "no pods");
    assert_eq!(post(&server, VALIDATE, &pod).response()["allowed"], true, "the reviewer does not know pods");

    let fault = |path: &str| builder().admission_reviews(path, &pods).build().unwrap_err();
    for path in ["admission", "/", "/reviews/", "/reviews?a", "/a//b", "/a%20b", "/api", "/apis/reviews", "/version"] {
        let error = fault(path);
        assert_eq!(error.kind(), StartErrorKind::InvalidSetting, "{path}");
        let text =
            format!("admission_reviews is {:?}, but must be a path such as /admission", format!("{path}/mutate"));
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    assert_eq!(
        fault("/admission").to_string(),
        "admission_reviews is \"/admission/mutate\", but must be the path of one reviewer only"
    );
}
