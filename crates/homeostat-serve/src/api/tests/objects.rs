//! Reads, deletions, tables, namespaces and errors.

use super::*;

#[test]
fn an_object_is_read_in_each_form() {
    let served = served();
    create(&served, "home", "Home");
    let whole = request(&format!("GET {HOME}")).to(&served);
    assert_eq!((whole.code, &whole.json()["kind"]), (200, &json!("Site")));
    let table = request(&format!("GET {HOME}"))
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .to(&served);
    assert_eq!(table.json()["rows"][0]["cells"][1], "Home");
    let meta = request(&format!("GET {HOME}"))
        .accept("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
        .to(&served);
    assert_eq!((&meta.json()["kind"], meta.json().get("spec")), (&json!("PartialObjectMetadata"), None));
    let other = request(&format!("GET {HOME}")).accept("application/vnd.kubernetes.protobuf").to(&served);
    assert_eq!((other.code, &other.json()["reason"]), (406, &json!("NotAcceptable")));
    let either =
        request(&format!("GET {HOME}")).accept("application/vnd.kubernetes.protobuf, application/json").to(&served);
    assert_eq!(either.code, 200);
    let head = request(&format!("HEAD {HOME}")).to(&served);
    assert_eq!(head.code, 200);
}

#[test]
fn lists_have_pages_and_selectors() {
    let served = served();
    for name in ["a", "b", "c"] {
        let mut object = site(name, name);
        object["metadata"]["labels"] = json!({"name": name});
        assert_eq!(request(&format!("POST {SITES}")).body(&object).to(&served).code, 201);
    }
    let names = |line: &str| {
        let answer = request(line).to(&served);
        assert_eq!(answer.code, 200, "{answer:?}");
        let list = answer.json();
        let items = list["items"].as_array().unwrap().iter();
        (items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), list)
    };
    let (found, list) = names(&format!("GET {SITES}?limit=2"));
    assert_eq!(
        (found, &list["kind"], &list["apiVersion"]),
        (vec!["a".into(), "b".into()], &json!("SiteList"), &json!("example.com/v1"))
    );
    let token = list["metadata"]["continue"].as_str().unwrap();
    let (found, list) = names(&format!("GET {SITES}?limit=2&continue={token}"));
    assert_eq!((found, list["metadata"].get("continue")), (vec!["c".to_owned()], None));
    assert_eq!(names("GET /apis/example.com/v1/sites?labelSelector=name in (a,c)").0, ["a", "c"]);
    assert_eq!(names(&format!("GET {SITES}?fieldSelector=metadata.name=b")).0, ["b"]);
    assert_eq!(names(&format!("GET {SITES}?fieldSelector=spec.title!=b")).0, ["a", "c"]);
    assert!(names("GET /apis/example.com/v1/namespaces/other/sites").0.is_empty());
    for (query, code) in [
        ("labelSelector=a in b", 400),
        ("fieldSelector=a", 400),
        ("limit=x", 400),
        ("continue=zzz", 422),
        ("resourceVersion=1&resourceVersionMatch=Newest", 400),
        ("resourceVersionMatch=Exact", 400),
        ("resourceVersion=2&resourceVersionMatch=Exact", 410),
        ("resourceVersion=999", 504),
        ("watch=perhaps", 400),
        ("includeObject=All", 400),
    ] {
        assert_eq!(request(&format!("GET {SITES}?{query}")).to(&served).code, code, "{query}");
    }
    let late = request(&format!("GET {SITES}?resourceVersion=999")).to(&served);
    assert_eq!(
        (&late.json()["details"]["causes"][0]["reason"], &late.headers["retry-after"]),
        (&json!("ResourceVersionTooLarge"), &HeaderValue::from_static("1"))
    );
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let served = served();
    for (line, code) in [
        ("GET /", 404),
        ("GET /apis/example.com/v1/houses", 404),
        ("GET /apis/example.com/v2/sites", 404),
        ("GET /apis/example.com/v1/sites/home", 404),
        ("GET /api/v1/namespaces/default/nodes", 404),
        ("GET /api/v1/nodes/n/status", 404),
        ("GET /api/v1/nodes/n/scale", 404),
        ("PUT /api/v1/nodes", 405),
        ("POST /api/v1/nodes/n", 405),
        ("POST /apis/example.com/v1/sites", 405),
        ("DELETE /apis/example.com/v1/sites", 405),
        ("DELETE /apis/example.com/v1/namespaces/default/sites/home/status", 405),
        ("GET /apis/example.com/v1/namespaces/default/sites/home/status?watch=true", 405),
        ("DELETE /api/v1/namespaces", 405),
        ("DELETE /api/v1/namespaces/default", 405),
        ("GET /api/v1/namespaces/default/status", 404),
        ("POST /version", 405),
        ("GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("GET /api/v1/nodes/n", 404),
    ] {
        let answer = request(line).to(&served);
        assert_eq!(answer.code, code, "{line} {answer:?}");
        // Clients distinguish an unknown path from a missing object by the form of the answer.
        let is_status = code == 405 || line == "GET /api/v1/nodes/n";
        assert_eq!(answer.text.starts_with('{'), is_status, "{line} {answer:?}");
    }
}

#[test]
fn a_deletion_returns_a_status_or_the_object_that_finalizers_hold() {
    let served = served();
    let created = create(&served, "home", "Home");
    let gone = request(&format!("DELETE {HOME}")).to(&served).json();
    let details = json!({"name": "home", "group": "example.com", "kind": "sites", "uid": created["metadata"]["uid"]});
    assert_eq!((&gone["status"], &gone["details"]), (&json!("Success"), &details));
    assert_eq!(request(&format!("DELETE {HOME}")).to(&served).code, 404);
    create(&served, "home", "Home");
    merge_patch(HOME, &json!({"metadata": {"finalizers": ["example.com/x"]}})).to(&served);
    let held = request(&format!("DELETE {HOME}?propagationPolicy=Foreground")).to(&served).json();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let freed = merge_patch(HOME, &json!({"metadata": {"finalizers": null}})).to(&served);
    assert_eq!(freed.code, 200, "{freed:?}");
    assert_eq!(request(&format!("GET {HOME}")).to(&served).code, 404);
}

#[test]
fn options_of_deletions_are_in_the_body_or_the_query() {
    let served = served();
    let created = create(&served, "home", "Home");
    let delete = |body: Value| request(&format!("DELETE {HOME}")).body(&body).to(&served);
    assert_eq!(delete(json!({"preconditions": {"uid": "other"}})).code, 409);
    assert_eq!(delete(json!({"preconditions": {"resourceVersion": "1"}})).code, 409);
    assert_eq!(delete(json!({"propagationPolicy": "Sideways"})).code, 400);
    assert_eq!(delete(json!([])).code, 400);
    assert_eq!(delete(json!({"dryRun": ["All"], "preconditions": {"uid": "other"}})).code, 409);
    assert_eq!(delete(json!({"dryRun": ["All"]})).code, 200);
    assert_eq!(request(&format!("DELETE {HOME}?dryRun=All")).to(&served).code, 200);
    assert_eq!(request(&format!("DELETE {HOME}?dryRun=Some")).to(&served).code, 400);
    assert_eq!(request(&format!("GET {HOME}")).to(&served).code, 200);
    let uid = created["metadata"]["uid"].clone();
    assert_eq!(
        delete(json!({"kind": "DeleteOptions", "gracePeriodSeconds": 30, "preconditions": {"uid": uid}})).code,
        200
    );
    create(&served, "kept", "Kept");
    let kept = request(&format!("DELETE {SITES}/kept")).to(&served);
    assert_eq!(
        (kept.code, &kept.json()["message"]),
        (403, &json!("sites.example.com \"kept\" is forbidden: it is kept"))
    );
}

#[test]
fn a_collection_is_deleted_and_returned_as_it_was() {
    let served = served();
    for name in ["a", "b", "c"] {
        create(&served, name, name);
    }
    let deleted = request(&format!("DELETE {SITES}?fieldSelector=metadata.name!=b")).to(&served).json();
    assert_eq!((&deleted["kind"], deleted["items"].as_array().unwrap().len()), (&json!("SiteList"), 2));
    assert_eq!(deleted["items"][0]["spec"]["title"], "a");
    let left = request(&format!("GET {SITES}")).to(&served).json();
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
    create(&served, "kept", "Kept");
    assert_eq!(request(&format!("DELETE {SITES}")).to(&served).code, 403);
    assert_eq!(request(&format!("GET {SITES}")).to(&served).json()["items"].as_array().unwrap().len(), 2);
}

/// As in Kubernetes, only an explicit choice by the caller replaces the finalizers for dependents.
#[test]
fn the_finalizers_of_an_object_choose_the_propagation_if_the_caller_does_not() {
    // Whether the owner waits for its dependent, and whether the dependent is being deleted.
    let (orphan, background, foreground) = ((false, false), (false, true), (true, true));
    for (finalizers, path, expected) in [
        (json!(["orphan"]), HOME.to_owned(), orphan),
        (json!(["orphan"]), format!("{SITES}?fieldSelector=metadata.name=home"), orphan),
        (json!(["orphan"]), format!("{HOME}?propagationPolicy=Background"), background),
        (json!(["orphan"]), format!("{HOME}?orphanDependents=false"), background),
        (json!(["foregroundDeletion"]), HOME.to_owned(), foreground),
        (json!(["foregroundDeletion"]), format!("{HOME}?orphanDependents=true"), orphan),
        (json!([]), HOME.to_owned(), background),
    ] {
        let served = served();
        let mut owner = site("home", "Home");
        owner["metadata"]["finalizers"] = finalizers.clone();
        let owner = request(&format!("POST {SITES}")).body(&owner).to(&served).json();
        let mut dependent = site("page", "Page");
        dependent["metadata"]["finalizers"] = json!(["example.com/x"]);
        dependent["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "example.com/v1", "kind": "Site", "name": "home", "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]);
        assert_eq!(request(&format!("POST {SITES}")).body(&dependent).to(&served).code, 201);
        assert_eq!(request(&format!("DELETE {path}")).to(&served).code, 200);
        let waits = request(&format!("GET {HOME}")).to(&served).code == 200;
        let dependent = request(&format!("GET {SITES}/page")).to(&served).json();
        let is_deleted = dependent["metadata"]["deletionTimestamp"].is_string();
        assert_eq!((waits, is_deleted), expected, "{finalizers} {path}");
    }
}

#[test]
fn options_of_a_deletion_that_cannot_be_read_are_refused() {
    let served = served();
    create(&served, "home", "Home");
    for (query, body) in [
        ("?gracePeriodSeconds=abc", json!(null)),
        ("?gracePeriodSeconds=1.5", json!(null)),
        ("?orphanDependents=maybe", json!(null)),
        ("?propagationPolicy=Orphans", json!(null)),
        ("?dryRun=Some", json!(null)),
        ("", json!({"gracePeriodSeconds": "abc"})),
        ("", json!({"propagationPolicy": 3})),
        ("", json!({"orphanDependents": "true"})),
        ("", json!({"preconditions": {"uid": 3}})),
        ("", json!({"preconditions": "u"})),
        ("", json!({"dryRun": "All"})),
        ("", json!({"dryRun": ["Some"]})),
        ("", json!([])),
    ] {
        let call = request(&format!("DELETE {HOME}{query}"));
        let answer = if body.is_null() { call.to(&served) } else { call.body(&body).to(&served) };
        assert_eq!((answer.code, &answer.json()["reason"]), (400, &json!("BadRequest")), "{query} {body}");
    }
    let both =
        request(&format!("DELETE {HOME}")).body(&json!({"propagationPolicy": "Orphan", "orphanDependents": false}));
    assert_eq!(both.to(&served).code, 422);
    let whole = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {}, "dryRun": null});
    assert_eq!(request(&format!("DELETE {HOME}?gracePeriodSeconds=5")).body(&whole).to(&served).code, 200);
}

#[test]
fn a_field_that_the_schema_does_not_know_selects_nothing() {
    let served = served();
    create(&served, "home", "Home");
    let answer = |path: &str, selector: &str| request(&format!("GET {path}?fieldSelector={selector}")).to(&served);
    for (path, selector) in [
        (SITES, "metadata.name=home,spec.title=Home,spec.pages!=7"),
        (SITES, "spec.tags.any=,status.ready="),
        (SITES, "metadata.labels.any=,metadata.uid!=x"),
        ("/api/v1/nodes", "spec.any=x"),
    ] {
        assert_eq!(answer(path, selector).code, 200, "{selector}");
    }
    assert_eq!(answer(SITES, "spec.title=Home").json()["items"].as_array().unwrap().len(), 1);
    for (path, selector) in [
        (SITES, "spec.titel=Home"),
        (SITES, "metadata.name=home,spec.titel!=Home"),
        (SITES, "spec.title.deeper=x"),
        (SITES, "title=Home"),
        (SITES, "metadata.nmae=home"),
        ("/api/v1/nodes", "metadata.nmae=x"),
    ] {
        let refused = answer(path, selector);
        let field = selector.rsplit(',').next().unwrap().split(['=', '!']).next().unwrap();
        let message = format!("field label not supported: {field}");
        assert_eq!((refused.code, &refused.json()["message"]), (400, &json!(message)), "{selector}");
    }
    assert_eq!(request(&format!("DELETE {SITES}?fieldSelector=spec.titel!=x")).to(&served).code, 400);
    assert_eq!(request(&format!("GET {SITES}?watch=true&fieldSelector=spec.titel=x")).to(&served).code, 400);
    assert_eq!(request(&format!("GET {HOME}")).to(&served).code, 200);
}
