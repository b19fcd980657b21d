//! Creations, updates, patches, applied objects and dry runs.

use super::*;
use homeostat_objects::{Client, KindDefinition, ObjectKey};

#[test]
fn a_created_object_has_defaults_and_no_status() {
    let served = served();
    let mut object = site("home", "Home");
    object["status"] = json!({"ready": true});
    let created = request(&format!("POST {SITES}")).body(&object).to(&served);
    assert_eq!(created.code, 201);
    let created = created.json();
    assert_eq!(created["spec"], json!({"title": "Home", "pages": 1, "slug": "home"}));
    assert_eq!(created.get("status"), None);
    let again = request(&format!("POST {SITES}")).body(&object).to(&served);
    assert_eq!((again.code, &again.json()["reason"]), (409, &json!("AlreadyExists")));
}

#[test]
fn kind_namespace_and_content_type_may_be_left_out() {
    let served = served();
    let created =
        request(&format!("POST {SITES}")).body(&json!({"metadata": {"generateName": "x-"}, "spec": {"title": "T"}}));
    let created = created.to(&served).json();
    assert_eq!((&created["kind"], &created["metadata"]["namespace"]), (&json!("Site"), &json!("default")));
    assert!(created["metadata"]["name"].as_str().unwrap().starts_with("x-"));
    let name = created["metadata"]["name"].as_str().unwrap();
    let mut changed =
        json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "spec": {"title": "U"}});
    let updated = request(&format!("PUT {SITES}/{name}")).body(&changed).to(&served);
    assert_eq!((updated.code, &updated.json()["spec"]["slug"]), (200, &json!("u")));
    // This version is outdated now.
    assert_eq!(request(&format!("PUT {SITES}/{name}")).body(&changed).to(&served).code, 409);
    changed["metadata"]["resourceVersion"] = json!("");
    assert_eq!(request(&format!("PUT {SITES}/{name}")).body(&changed).to(&served).code, 422);
}

#[test]
fn bodies_that_do_not_fit_the_path_are_refused() {
    let served = served();
    let post = |body: &Value| request(&format!("POST {SITES}")).body(body).to(&served);
    let mut object = site("home", "Home");
    for (path, value) in [("/kind", "House"), ("/apiVersion", "v1"), ("/metadata/namespace", "other")] {
        let right = std::mem::replace(object.pointer_mut(path).unwrap(), json!(value));
        let answer = post(&object);
        assert_eq!((answer.code, &answer.json()["reason"]), (400, &json!("BadRequest")), "{path}");
        *object.pointer_mut(path).unwrap() = right;
    }
    assert_eq!(post(&json!([])).code, 400);
    assert_eq!(post(&json!({"metadata": 3, "spec": {"title": "t"}})).code, 422);
    let send = |media: &'static str, body: &[u8]| request(&format!("POST {SITES}")).bytes(media, body).to(&served).code;
    assert_eq!(send("application/json", b"{"), 400);
    assert_eq!(send("application/json", br#"{"spec": {"pages": 99999999999999999999}}"#), 400);
    assert_eq!(send("application/yaml", b"kind: Site"), 415);
    let pod = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00";
    let binary = request(&format!("POST {SITES}")).bytes("application/vnd.kubernetes.protobuf", pod).to(&served);
    assert!(binary.code == 415 && binary.text.contains("--dry-run=client -o yaml"), "{binary:?}");
    let deep = format!(r#"{{"spec": {{"title": {}1{}}}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    assert_eq!(send("application/json; charset=utf-8", deep.as_bytes()), 400);
    let name = request(&format!("PUT {HOME}")).body(&site("other", "T")).to(&served);
    assert_eq!(name.code, 400);
}

#[test]
fn the_status_is_written_alone() {
    let served = served();
    create(&served, "home", "Home");
    let path = format!("{HOME}/status");
    let patched =
        merge_patch(&path, &json!({"status": {"ready": true}, "spec": {"title": "Other"}})).to(&served).json();
    assert_eq!((&patched["status"]["ready"], &patched["spec"]["title"]), (&json!(true), &json!("Home")));
    let mut object = patched;
    object["status"]["ready"] = json!(false);
    object["spec"]["title"] = json!("Other");
    let updated = request(&format!("PUT {path}")).body(&object).to(&served).json();
    assert_eq!((&updated["status"]["ready"], &updated["spec"]["title"]), (&json!(false), &json!("Home")));
    let bad = merge_patch(&path, &json!({"status": {"ready": "yes"}})).to(&served);
    assert_eq!((bad.code, &bad.json()["details"]["causes"][0]["field"]), (422, &json!("status.ready")));
    assert_eq!(request(&format!("GET {path}")).to(&served).code, 200);
}

#[test]
fn patches_change_objects() {
    let served = served();
    create(&served, "home", "Home");
    let patched = merge_patch(HOME, &json!({"spec": {"title": "New", "tags": {"a": "b"}}})).to(&served).json();
    assert_eq!(patched["spec"], json!({"title": "New", "pages": 1, "slug": "new", "tags": {"a": "b"}}));
    let steps = json!([{"op": "test", "path": "/spec/pages", "value": 1}, {"op": "replace", "path": "/spec/pages", "value": 4}]);
    let json_patch = |steps: &Value| {
        request(&format!("PATCH {HOME}")).bytes("application/json-patch+json", steps.to_string().as_bytes()).to(&served)
    };
    assert_eq!(json_patch(&steps).json()["spec"]["pages"], 4);
    assert_eq!(json_patch(&steps).code, 422, "the test fails now");
    assert_eq!(json_patch(&json!({})).code, 422);
    let strategic = |patch: Value| {
        let patch = patch.to_string();
        request(&format!("PATCH {HOME}")).bytes("application/strategic-merge-patch+json", patch.as_bytes()).to(&served)
    };
    assert_eq!(strategic(json!({"spec": {"title": "Flat"}})).json()["spec"]["slug"], "flat");
    assert_eq!(strategic(json!({"metadata": {"finalizers": ["a.b/c"]}})).code, 415);
    assert_eq!(strategic(json!({"spec": {"$patch": "replace"}})).code, 415);
    assert_eq!(request(&format!("PATCH {HOME}")).bytes("text/plain", b"{}").to(&served).code, 415);
    let named = merge_patch(HOME, &json!({"metadata": {"name": "other"}})).to(&served);
    assert_eq!((named.code, &named.json()["details"]["causes"][0]["field"]), (422, &json!("metadata.name")));
    assert_eq!(merge_patch(HOME, &json!({"metadata": {"resourceVersion": "1"}})).to(&served).code, 409);
    assert_eq!(merge_patch(&format!("{SITES}/none"), &json!({})).to(&served).code, 404);
    let deep = json!([{"op": "add", "path": format!("/spec/tags/{}", "a/".repeat(5_000)), "value": 1}]);
    assert_eq!(json_patch(&deep).code, 422);
}

/// The store would compute the patch while other writers wait.
#[test]
fn the_store_computes_no_json_patch() {
    use homeostat_testing::{TestClient, Write};
    let client = TestClient::new(homeostat::base::ManualClock::new().clock());
    let node = KindDefinition::new(NODE).with_status(false);
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(node).build().unwrap();
    assert_eq!(request("POST /api/v1/nodes").body(&json!({"metadata": {"name": "n"}})).send_to(&api).code, 201);
    let steps = json!([{"op": "add", "path": "/data", "value": 1}]).to_string();
    let patched = request("PATCH /api/v1/nodes/n").bytes("application/json-patch+json", steps.as_bytes()).send_to(&api);
    assert_eq!((patched.code, &patched.json()["data"]), (200, &json!(1)), "{patched:?}");
    assert!(matches!(&*client.writes(), [Write::Create(..), Write::Update(..)]), "{:?}", client.writes());
}

#[test]
fn applied_fields_have_owners() {
    let served = served();
    let object = site("home", "Home");
    let first = apply(&format!("{HOME}?fieldManager=alice"), &object).to(&served);
    assert_eq!((first.code, &first.json()["spec"]["slug"]), (201, &json!("home")));
    let again = apply(&format!("{HOME}?fieldManager=alice"), &object).to(&served);
    assert_eq!((again.code, again.json()), (200, first.json()), "applying again changes nothing");
    let other = apply(&format!("{HOME}?fieldManager=bob"), &site("home", "Away")).to(&served);
    assert_eq!(other.code, 409);
    let cause = &other.json()["details"]["causes"][0];
    assert_eq!(cause["reason"], "FieldManagerConflict");
    assert!(cause["message"].as_str().unwrap().contains("\"alice\""));
    // A field that a hook has set has no owner.
    let mut slug = json!({"metadata": {"name": "home"}, "spec": {"title": "Home", "slug": "home"}});
    assert_eq!(apply(&format!("{HOME}?fieldManager=carol"), &slug).send_to(&served.api).code, 200);
    slug["spec"]["slug"] = json!("other");
    let normal = apply(&format!("{HOME}?fieldManager=carol"), &slug).send_to(&served.api).json();
    assert_eq!(normal["spec"]["slug"], "home", "the hook sets it again");
    let forced = apply(&format!("{HOME}?fieldManager=bob&force=true"), &site("home", "Away")).to(&served);
    assert_eq!((forced.code, &forced.json()["spec"]["slug"]), (200, &json!("away")));
    for (query, code) in [("", 400), ("?fieldManager=", 400), ("?fieldManager=a&force=maybe", 400)] {
        assert_eq!(apply(&format!("{HOME}{query}"), &object).to(&served).code, code);
    }
    let yaml = request(&format!("PATCH {HOME}?fieldManager=a"))
        .bytes("application/apply-patch+yaml", b"kind: Site")
        .to(&served);
    assert_eq!(yaml.code, 400);
    assert!(yaml.json()["message"].as_str().unwrap().contains("YAML"));
}

#[test]
fn an_applied_status_has_owners_of_its_own() {
    let served = served();
    let status = |status: Value, query: &str| {
        let applied = json!({"metadata": {"name": "home"}, "spec": {"title": "Other"}, "status": status});
        apply(&format!("{HOME}/status?fieldManager={query}"), &applied).to(&served)
    };
    assert_eq!(status(json!({"ready": true}), "alice").code, 404);
    assert_eq!(apply(&format!("{HOME}?fieldManager=alice"), &site("home", "Home")).to(&served).code, 201);
    let applied = status(json!({"ready": true}), "alice");
    assert_eq!((applied.code, &applied.json()["status"]), (200, &json!({"ready": true})), "{applied:?}");
    assert_eq!(applied.json()["spec"]["title"], "Home");
    let owners: Vec<_> = applied.json()["metadata"]["managedFields"].as_array().unwrap().clone();
    let owned = |entry: &Value| json!([entry["manager"], entry["subresource"], entry["fieldsV1"]]);
    assert_eq!(
        owners.iter().map(owned).collect::<Vec<_>>(),
        [
            json!(["alice", null, {"f:spec": {"f:title": {}}}]),
            json!(["alice", "status", {"f:status": {"f:ready": {}}}])
        ]
    );
    assert_eq!(status(json!({"ready": true}), "alice").json(), applied.json(), "applying again changes nothing");
    let other = status(json!({"ready": false}), "bob");
    assert_eq!((other.code, &other.json()["details"]["causes"][0]["field"]), (409, &json!(".status.ready")));
    let dry = status(json!({"ready": false}), "bob&force=true&dryRun=All");
    assert_eq!((dry.code, &dry.json()["status"]["ready"]), (200, &json!(false)));
    let bad = status(json!({"ready": "yes"}), "alice");
    assert_eq!((bad.code, &bad.json()["details"]["causes"][0]["field"]), (422, &json!("status.ready")));
    assert_eq!(request(&format!("GET {HOME}")).to(&served).json(), applied.json());
    assert_eq!(status(json!({"ready": false}), "bob&force=true").json()["status"]["ready"], false);
    assert_eq!(status(json!({}), "bob").json()["status"], json!({}), "bob gives the field up");
    // A kind without a status has no such path.
    assert_eq!(apply("/api/v1/nodes/n/status?fieldManager=a", &json!({})).to(&served).code, 404);
}

#[test]
fn hooks_change_an_applied_status() {
    let sites = ServedResource::new(SITE).mutate(|request, site| {
        if request.status {
            site["status"]["phase"] = json!(site["status"]["phase"].as_str().unwrap_or_default().to_lowercase());
            site["status"]["seen"] = json!(true);
        }
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(sites).build().unwrap();
    assert_eq!(request(&format!("POST {SITES}")).body(&site("home", "Home")).send_to(&api).code, 201);
    let applied = || {
        let status = json!({"status": {"phase": "Up"}});
        apply(&format!("{HOME}/status?fieldManager=a"), &status).send_to(&api)
    };
    let first = applied();
    assert_eq!((first.code, &first.json()["status"]), (200, &json!({"phase": "up", "seen": true})), "{first:?}");
    // The field that the hook has added has no owner.
    let owned = &first.json()["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*owned, json!({"f:status": {"f:phase": {}}}));
    assert_eq!(applied().json(), first.json(), "applying again changes nothing");
}

#[test]
fn a_dry_run_shows_the_result_and_stores_nothing() {
    let served = served();
    let dry = request(&format!("POST {SITES}?dryRun=All")).body(&site("home", "Home")).to(&served);
    assert_eq!((dry.code, &dry.json()["spec"]["slug"]), (201, &json!("home")));
    assert_eq!(dry.json()["metadata"].get("resourceVersion"), None);
    assert_eq!(request(&format!("GET {HOME}")).to(&served).code, 404);
    let applied = apply(&format!("{HOME}?fieldManager=a&dryRun=All"), &site("home", "Home")).to(&served);
    assert_eq!(applied.code, 201);
    assert_eq!(request(&format!("GET {HOME}")).to(&served).code, 404);

    let created = create(&served, "home", "Home");
    assert_eq!(request(&format!("POST {SITES}?dryRun=All")).body(&site("home", "Home")).to(&served).code, 409);
    let patched = merge_patch(&format!("{HOME}?dryRun=All"), &json!({"spec": {"title": "New"}})).to(&served).json();
    assert_eq!((&patched["spec"]["slug"], &patched["metadata"]["generation"]), (&json!("new"), &json!(2)));
    assert_eq!(patched["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let mut changed = created.clone();
    changed["spec"]["title"] = json!("New");
    let updated = request(&format!("PUT {HOME}?dryRun=All")).body(&changed).to(&served);
    assert_eq!((updated.code, &updated.json()["spec"]["slug"]), (200, &json!("new")));
    changed["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(request(&format!("PUT {HOME}?dryRun=All")).body(&changed).to(&served).code, 409);
    let applied = apply(&format!("{HOME}?fieldManager=a&dryRun=All"), &site("home", "Applied")).to(&served);
    assert_eq!((applied.code, &applied.json()["spec"]["title"]), (200, &json!("Applied")));
    let bad = merge_patch(&format!("{HOME}?dryRun=All"), &json!({"spec": {"title": ""}})).to(&served);
    assert_eq!(bad.code, 422);
    let stored = served.client.get(&SITE, &ObjectKey::new("default", "home")).unwrap();
    assert_eq!(stored.to_value(), created);
    // A dry run also works for a kind without a schema.
    let node = json!({"metadata": {"name": "n"}});
    assert_eq!(request("POST /api/v1/nodes?dryRun=All").body(&node).to(&served).code, 201);
    assert_eq!(request("GET /api/v1/nodes/n").to(&served).code, 404);
}

#[test]
fn a_kind_without_a_schema_keeps_all_fields() {
    let served = served();
    let node = json!({"metadata": {"name": "n"}, "anything": {"a": [1, {"b": null}]}});
    let created = request("POST /api/v1/nodes?fieldValidation=Strict").body(&node).to(&served);
    assert_eq!((created.code, &created.json()["anything"]), (201, &node["anything"]));
    let patched = merge_patch("/api/v1/nodes/n", &json!({"anything": null, "more": 1})).to(&served).json();
    assert_eq!((patched.get("anything"), &patched["more"]), (None, &json!(1)));
    let applied = apply("/api/v1/nodes/n?fieldManager=a", &json!({"data": 1})).to(&served);
    assert_eq!((applied.code, &applied.json()["data"]), (200, &json!(1)));
    assert_eq!(apply("/api/v1/nodes/m?fieldManager=a", &json!({"data": 1})).to(&served).code, 201);
}

#[test]
fn a_duplicate_field_in_a_body_is_warned_about_or_refused() {
    let served = served();
    let body = r#"{"metadata": {"name": "NAME"}, "spec": {"title": "A", "title": "B", "tags": {"x": "1", "x": "2"}, "odd": 1}}"#;
    let send = |line: &str, name: &str| {
        request(line).bytes("application/json", body.replace("NAME", name).as_bytes()).to(&served)
    };
    let warnings = |answer: &Answer| -> Vec<_> {
        answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let expected = [
        r#"299 - "duplicate field \"spec.title\"""#,
        r#"299 - "duplicate field \"spec.tags.x\"""#,
        r#"299 - "unknown field \"spec.odd\"""#,
    ];
    for line in [format!("POST {SITES}"), format!("POST {SITES}?fieldValidation=Warn&dryRun=All")] {
        let warned = send(&line, if line.contains("dryRun") { "other" } else { "home" });
        assert_eq!((warned.code, warnings(&warned)), (201, expected.map(str::to_owned).to_vec()), "{warned:?}");
        assert_eq!(warned.json()["spec"]["title"], "B");
    }
    let refused = send(&format!("POST {SITES}?fieldValidation=Strict"), "third");
    let message = "Site in version \"example.com/v1\" cannot be handled as a Site: strict decoding error: \
                   duplicate field \"spec.title\", duplicate field \"spec.tags.x\"";
    assert_eq!((refused.code, &refused.json()["message"]), (400, &json!(message)));
    let silent = send(&format!("POST {SITES}?fieldValidation=Ignore"), "fourth");
    assert_eq!((silent.code, warnings(&silent).len()), (201, 0));
    // All other writes: an update, each kind of patch, a kind without a schema, and a virtual namespace.
    let twice = r#"{"metadata": {"labels": {"a": "1", "a": "2"}}}"#;
    let found = r#"299 - "duplicate field \"metadata.labels.a\"""#;
    let apply = r#"{"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"labels": {"a": "1", "a": "2"}}}"#;
    let steps = r#"[{"op": "add", "op": "add", "path": "/metadata/labels", "value": {}}]"#;
    let node = r#"{"metadata": {"name": "n", "labels": {"a": "1", "a": "2"}}}"#;
    for (line, media, body, found) in [
        (format!("PATCH {HOME}"), "application/merge-patch+json", twice, found),
        (format!("PATCH {HOME}"), "application/strategic-merge-patch+json", twice, found),
        (format!("PATCH {HOME}?fieldManager=m"), "application/apply-patch+yaml", apply, found),
        (format!("PATCH {HOME}"), "application/json-patch+json", steps, r#"299 - "duplicate field \"[0].op\"""#),
        ("POST /api/v1/nodes".to_owned(), "application/json", node, found),
        ("POST /api/v1/namespaces".to_owned(), "application/json", node, found),
    ] {
        let warned = request(&line).bytes(media, body.as_bytes()).to(&served);
        assert!(warned.code < 300 && warnings(&warned).contains(&found.to_owned()), "{line} {media}: {warned:?}");
        let strict = format!("{line}{}fieldValidation=Strict", if line.contains('?') { '&' } else { '?' });
        let refused = request(&strict).bytes(media, body.as_bytes()).to(&served);
        assert!(
            refused.code == 400 && refused.text.contains("strict decoding error: duplicate"),
            "{strict}: {refused:?}"
        );
    }
    let mut whole = request(&format!("GET {HOME}")).to(&served).json();
    whole["spec"]["pages"] = json!(5);
    let twice = whole.to_string().replace(r#""pages":5"#, r#""pages":5,"pages":6"#);
    let put = request(&format!("PUT {HOME}")).bytes("application/json", twice.as_bytes()).to(&served);
    assert_eq!(warnings(&put), [r#"299 - "duplicate field \"spec.pages\"""#], "{put:?}");
}
