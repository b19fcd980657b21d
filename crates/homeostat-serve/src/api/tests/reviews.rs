//! Authorization, and reviews of a user's own access.

use super::*;

/// An API that allows only `get` and `list` of sites, in one namespace.
fn guarded() -> ObjectApi {
    let authorizer: Authorizer = Arc::new(|request: &AccessRequest| match &request.target {
        AccessTarget::Objects { resource, namespace, .. }
            if ["get", "list"].contains(&request.verb) && resource == "sites" && namespace == "default" =>
        {
            Access::Allow
        }
        AccessTarget::Path(path) if path == "/version" => Access::Allow,
        _ => Access::Deny("read only".to_owned()),
    });
    served().api.authorized_by(&authorizer)
}

#[test]
fn a_denied_request_is_forbidden_by_verb_and_place() {
    let api = guarded();
    assert_eq!(request(&format!("GET {SITES}")).send_to(&api).code, 200);
    assert_eq!(request(&format!("GET {HOME}")).send_to(&api).code, 404);
    assert_eq!(request("GET /version").send_to(&api).code, 200);
    // Another spelling of the same path.
    assert_eq!(request("GET /version/").send_to(&api).code, 200);
    for (line, message) in [
        (
            format!("DELETE {HOME}"),
            "cannot delete resource \"sites\" in API group \"example.com\" in the namespace \"default\": read only",
        ),
        (format!("GET {SITES}?watch=true"), "cannot watch resource \"sites\""),
        (format!("GET {HOME}/status"), "cannot get resource \"sites/status\""),
        ("GET /apis/example.com/v1/sites".to_owned(), "at the cluster scope"),
        ("GET /api/v1/namespaces".to_owned(), "cannot list resource \"namespaces\""),
        ("GET /apis".to_owned(), "cannot get path \"/apis\""),
    ] {
        let answer = request(&line).send_to(&api);
        assert_eq!((answer.code, &answer.json()["reason"]), (403, &json!("Forbidden")), "{line}");
        assert!(answer.json()["message"].as_str().unwrap().contains(message), "{line} {answer:?}");
    }
}

#[test]
fn an_apply_that_creates_needs_the_right_to_create() {
    let authorizer: Authorizer = Arc::new(|request: &AccessRequest| match request.verb {
        "create" if request.user.name == "eve" => Access::Deny("no new objects".to_owned()),
        _ => Access::Allow,
    });
    let served = served();
    let api = served.api.clone().authorized_by(&authorizer);
    for (path, object) in [
        (HOME, site("home", "Home")),
        ("/api/v1/nodes/n", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "data": 1})),
    ] {
        let path = format!("{path}?fieldManager=a");
        let denied = apply(&path, &object).send_to(&api);
        assert_eq!(denied.code, 403, "{denied:?}");
        assert!(denied.text.contains("cannot create resource"), "{denied:?}");
        assert_eq!(apply(&path, &object).to(&served).code, 201);
        // The object exists now.
        let applied = apply(&path, &object).send_to(&api);
        assert_eq!(applied.code, 200, "{applied:?}");
    }
    // Applying a status does not create an object.
    let applied = apply(&format!("{HOME}/status?fieldManager=a"), &json!({"status": {"ready": true}})).send_to(&api);
    assert_eq!((applied.code, &applied.json()["status"]["ready"]), (200, &json!(true)), "{applied:?}");
    let missing = apply(&format!("{SITES}/none/status?fieldManager=a"), &json!({"status": {"ready": true}}));
    assert_eq!(missing.send_to(&api).code, 404);
}

const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[test]
fn a_user_can_ask_about_their_own_access() {
    let api = guarded();
    let ask = |verb: &str, resource: &str| {
        let attributes = json!({"verb": verb, "group": "example.com", "resource": resource, "namespace": "default"});
        let answer = request(ACCESS).body(&json!({"spec": {"resourceAttributes": attributes}})).send_to(&api);
        assert_eq!(answer.code, 201);
        answer.json()["status"].clone()
    };
    assert_eq!(ask("get", "sites"), json!({"allowed": true}));
    assert_eq!(ask("create", "sites"), json!({"allowed": false, "reason": "read only"}));
    assert_eq!(ask("*", "sites")["allowed"], false);
    assert_eq!(ask("fly", "sites")["allowed"], false);
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}});
    assert_eq!(request(ACCESS).body(&path).send_to(&api).json()["status"]["allowed"], true);
    let rules = request("POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews")
        .body(&json!({"spec": {"namespace": "default"}}));
    let rules = rules.send_to(&api).json();
    assert_eq!(
        rules["status"]["resourceRules"],
        json!([{"verbs": ["get", "list"], "apiGroups": ["example.com"], "resources": ["sites"]}])
    );
    let me = request("POST /apis/authentication.k8s.io/v1/selfsubjectreviews").body(&json!({})).send_to(&api).json();
    assert_eq!(me["status"]["userInfo"]["username"], "eve");
    let mut anonymous = request("POST /apis/authentication.k8s.io/v1/selfsubjectreviews").body(&json!({}));
    anonymous.request.user = UserInfo::default();
    assert_eq!(anonymous.send_to(&api).json()["status"]["userInfo"]["username"], "system:anonymous");
}

#[test]
fn a_review_that_is_no_object_asks_for_nothing() {
    for body in [json!([]), json!("text"), json!(1), json!(null), json!({"spec": []})] {
        let answer = request(ACCESS).body(&body).send_to(&guarded());
        assert_eq!((answer.code, &answer.json()["status"]["allowed"]), (201, &json!(false)), "{body}");
    }
}

#[test]
fn reviews_are_read_from_protocol_buffers_too() {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let attributes = [field(1, b"default"), field(2, b"list"), field(3, b"example.com"), field(5, b"sites")].concat();
    let message = field(2, &field(1, &attributes));
    let kind = [field(1, b"authorization.k8s.io/v1"), field(2, b"SelfSubjectAccessReview")].concat();
    let body = [b"k8s\0".to_vec(), field(1, &kind), field(2, &message)].concat();
    let answer = request(ACCESS).bytes("application/vnd.kubernetes.protobuf", &body).send_to(&guarded()).json();
    assert_eq!(
        (&answer["status"]["allowed"], &answer["spec"]["resourceAttributes"]["verb"]),
        (&json!(true), &json!("list"))
    );
    let other = request(ACCESS).bytes("application/vnd.kubernetes.protobuf", b"k8s\0nothing").send_to(&guarded());
    assert_eq!(other.code, 400);
}
