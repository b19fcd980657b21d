//! The scripted API server, over real connections.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::time::Duration;

use homeostat::CancellationToken;
use homeostat_objects::{Client, Kind, MemoryClient, ObjectKey};
use homeostat_testing::{ApiServer, ServerAnswer, ServerRule};
use serde_json::{Value, json};
use ureq::http::Request;
use ureq::{Agent, BodyReader};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const WIDGET: Kind = Kind::namespaced("example.com", "v1", "Widget");
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn agent() -> Agent {
    let config = Agent::config_builder().proxy(None).http_status_as_error(false).max_redirects(0);
    config.allow_non_standard_methods(true).build().new_agent()
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: BodyReader<'static>,
}

impl Reply {
    fn json(mut self) -> (u16, Value) {
        let mut text = String::new();
        self.body.read_to_string(&mut text).unwrap();
        (self.status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn lines(self) -> impl Iterator<Item = std::io::Result<Value>> {
        assert_eq!(self.status, 200);
        BufReader::new(self.body).lines().map(|line| Ok(serde_json::from_str(&line?).unwrap()))
    }
}

fn send(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
    let mut request = Request::builder().method(method).uri(format!("{}{path}", server.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let text = body.map(Value::to_string).unwrap_or_default();
    let (head, body) = agent().run(request.body(text).unwrap()).unwrap().into_parts();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    Reply { status: head.status.as_u16(), headers: headers.collect(), body: body.into_reader() }
}

fn call(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    send(server, method, path, &[("Content-Type", media)], Some(body)).json()
}

fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    send(server, "GET", path, &[], None).json()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}})
}

fn with_maps(names: &[&str]) -> ApiServer {
    let server = ApiServer::start().unwrap();
    for name in names {
        server.client().create(&CONFIG_MAP, map(name)).unwrap();
    }
    server
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn objects_are_written_and_read() {
    let server = with_maps(&[]);
    let (status, created) = call(&server, "POST", MAPS, &json!({"metadata": {"name": "a"}, "data": {"x": "1"}}));
    assert_eq!(
        (status, &created["kind"], &created["metadata"]["namespace"]),
        (201, &json!("ConfigMap"), &json!("default"))
    );
    assert_eq!(call(&server, "POST", MAPS, &map("a")).1["reason"], "AlreadyExists");
    assert_eq!(get(&server, &format!("{MAPS}/a")), (200, created.clone()));

    let mut changed = created.clone();
    changed["data"]["x"] = json!("2");
    assert_eq!(call(&server, "PUT", &format!("{MAPS}/a"), &changed).1["data"]["x"], "2");
    let (status, conflict) = call(&server, "PUT", &format!("{MAPS}/a"), &changed);
    assert_eq!((status, &conflict["reason"], &conflict["code"]), (409, &json!("Conflict"), &json!(409)));
    let patched = call(&server, "PATCH", &format!("{MAPS}/a"), &json!({"data": {"x": null, "y": "3"}})).1;
    assert_eq!(patched["data"], json!({"y": "3"}));
    let path = format!("{MAPS}/a/status");
    assert_eq!(call(&server, "PATCH", &path, &json!({"status": {"ok": true}})).1["status"], json!({"ok": true}));

    assert_eq!(call(&server, "DELETE", &format!("{MAPS}/a"), &json!({})).1["status"], "Success");
    let (status, missing) = get(&server, &format!("{MAPS}/a"));
    assert_eq!(
        (status, &missing["reason"], &missing["details"]["kind"]),
        (404, &json!("NotFound"), &json!("configmaps"))
    );
}

#[test]
fn objects_are_applied_by_a_field_manager() {
    let server = with_maps(&[]);
    let apply = |query: &str, sky: &str| {
        let mut object = map("a");
        object["data"] = json!({"sky": sky});
        let kind = [("Content-Type", "application/apply-patch+yaml")];
        send(&server, "PATCH", &format!("{MAPS}/a?{query}"), &kind, Some(&object)).json()
    };
    assert_eq!(apply("", "blue").0, 400);
    assert_eq!(apply("fieldManager=one", "blue").0, 201);
    assert_eq!(apply("fieldManager=one", "blue").0, 200);
    let (status, conflict) = apply("fieldManager=two", "grey");
    assert_eq!((status, &conflict["details"]["causes"][0]["reason"]), (409, &json!("FieldManagerConflict")));
    assert_eq!(apply("fieldManager=two&force=true", "grey").1["data"]["sky"], "grey");
}

#[test]
fn finalizers_hold_deleted_objects() {
    let server = with_maps(&[]);
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.client().create(&CONFIG_MAP, held).unwrap();
    let (status, deleting) = call(&server, "DELETE", &format!("{MAPS}/a"), &json!({}));
    assert_eq!((status, deleting["metadata"]["deletionTimestamp"].is_string()), (200, true));
    let wrong = json!({"preconditions": {"uid": "another"}});
    assert_eq!(call(&server, "DELETE", &format!("{MAPS}/a"), &wrong).0, 409);
}

#[test]
fn lists_have_pages_and_selectors() {
    let server = with_maps(&["a", "b", "c"]);
    let path = format!("{MAPS}/b");
    call(&server, "PATCH", &path, &json!({"metadata": {"labels": {"app": "web"}}}));
    let (_, first) = get(&server, "/api/v1/configmaps?limit=2");
    assert_eq!((names(&first), &first["kind"]), (vec!["a", "b"], &json!("ConfigMapList")));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = get(&server, &format!("/api/v1/configmaps?limit=2&continue={token}"));
    assert_eq!((names(&second), &second["metadata"]["continue"]), (vec!["c"], &Value::Null));
    assert_eq!(names(&get(&server, &format!("{MAPS}?labelSelector=app%3Dweb")).1), ["b"]);
    assert_eq!(names(&get(&server, &format!("{MAPS}?fieldSelector=metadata.name%3Dc")).1), ["c"]);
    assert_eq!(get(&server, &format!("{MAPS}?fieldSelector=data.x%3Dc")).0, 400);
    assert_eq!(names(&get(&server, "/api/v1/namespaces/other/configmaps").1), [""; 0]);
    call(&server, "DELETE", &format!("{MAPS}?labelSelector=app"), &json!({}));
    assert_eq!(names(&get(&server, MAPS).1), ["a", "c"]);

    let metadata = [("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let (_, list) = send(&server, "GET", MAPS, &metadata, None).json();
    assert_eq!((&list["items"][0]["kind"], names(&list)), (&json!("PartialObjectMetadata"), vec!["a", "c"]));
}

#[test]
fn a_watch_sees_changes_after_its_version() {
    let server = with_maps(&["a"]);
    let version = get(&server, MAPS).1["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut events = send(&server, "GET", &format!("{MAPS}?watch=1&resourceVersion={version}"), &[], None).lines();
    server.client().create(&CONFIG_MAP, map("b")).unwrap();
    let event = events.next().unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("b")));
    call(&server, "DELETE", &format!("{MAPS}/a"), &json!({}));
    assert_eq!(events.next().unwrap().unwrap()["type"], "DELETED");
}

#[test]
fn a_streaming_list_has_an_end_mark_unless_it_is_suppressed() {
    let server = with_maps(&["a"]);
    let path = format!("{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true");
    assert_eq!(get(&server, &path).0, 422);
    let path = format!("{path}&resourceVersionMatch=NotOlderThan");
    let mut events = send(&server, "GET", &path, &[], None).lines().map(Result::unwrap);
    assert_eq!(events.next().unwrap()["type"], "ADDED");
    let mark = events.next().unwrap();
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");

    server.rule(ServerRule::new("GET", MAPS).answer(ServerAnswer::stored().without_bookmarks()));
    let path = format!("{path}&timeoutSeconds=1");
    let events: Vec<_> =
        send(&server, "GET", &path, &[], None).lines().map(|event| event.unwrap()["type"].clone()).collect();
    assert_eq!(events, ["ADDED"]);
}

#[test]
fn an_expired_version_is_an_error_in_the_stream() {
    let server = ApiServer::with_client(MemoryClient::builder().history(1).build()).unwrap();
    for name in ["a", "b", "c"] {
        server.client().create(&CONFIG_MAP, map(name)).unwrap();
    }
    let events: Vec<_> =
        send(&server, "GET", &format!("{MAPS}?watch=1&resourceVersion=1"), &[], None).lines().collect();
    let event = events[0].as_ref().unwrap();
    assert_eq!((&event["type"], &event["object"]["code"], events.len()), (&json!("ERROR"), &json!(410), 1));
}

#[test]
fn kinds_are_discovered_served_and_withdrawn() {
    let server = ApiServer::start().unwrap();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    assert_eq!(get(&server, widgets), (404, json!("404 page not found\n")));
    assert_eq!(get(&server, "/apis/example.com/v1").0, 404);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {"name": "v1", "served": true, "selectableFields": [{"jsonPath": ".spec.size"}]},
                {"name": "v2", "served": false},
            ],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(call(&server, "POST", definitions, &definition).0, 201);
    let (_, stored) = get(&server, &format!("{definitions}/widgets.example.com"));
    assert_eq!(stored["status"]["conditions"][1]["type"], "Established");
    assert_eq!(get(&server, widgets).0, 200);
    assert_eq!(get(&server, "/apis/example.com/v1").1["resources"][0]["kind"], "Widget");
    assert_eq!(get(&server, "/apis/example.com").1["preferredVersion"]["version"], "v1");
    for (field, code) in [("spec.size", 200), ("metadata.name", 200), ("metadata.labels.a", 400), ("spec.colour", 400)]
    {
        assert_eq!(get(&server, &format!("{widgets}?fieldSelector={field}%3Dx")).0, code, "{field}");
    }
    server.withdraw(&WIDGET);
    assert_eq!(get(&server, widgets).0, 404);
    server.serve(WIDGET);
    assert_eq!(get(&server, widgets).0, 200);
    assert_eq!(call(&server, "DELETE", &format!("{definitions}/widgets.example.com"), &json!({})).0, 200);
    assert_eq!(get(&server, widgets).0, 404);
    assert_eq!(get(&server, "/api/v1").1["groupVersion"], "v1");
    assert_eq!(get(&server, "/readyz"), (200, json!("ok")));
    assert!(get(&server, "/apis").1["groups"].as_array().unwrap().len() > 3);
}

#[test]
fn rules_answer_in_their_order_and_then_the_objects_do() {
    let server = with_maps(&["a"]);
    server.rule(
        ServerRule::new("GET", MAPS)
            .query("limit", "5")
            .answer(ServerAnswer::error(429, "TooManyRequests", "later").header("Retry-After", "3"))
            .answer(ServerAnswer::json(200, json!({"items": []}))),
    );
    server.rule(
        ServerRule::new("GET", "/api/*")
            .when(|request| request.header("X-Fail").is_some())
            .otherwise(ServerAnswer::new(302).header("Location", "/elsewhere").header("content-type", "text/html")),
    );
    let path = format!("{MAPS}?limit=5");
    let refused = send(&server, "GET", &path, &[], None);
    assert!(refused.headers.contains(&("retry-after".to_owned(), "3".to_owned())));
    assert_eq!(refused.json().1["message"], "later");
    assert_eq!(get(&server, &path).1, json!({"items": []}));
    assert_eq!(names(&get(&server, &path).1), ["a"]);
    for _ in 0..2 {
        let redirect = send(&server, "GET", MAPS, &[("X-Fail", "1")], None);
        assert!(redirect.headers.contains(&("content-type".to_owned(), "text/html".to_owned())));
        assert_eq!(redirect.status, 302);
    }
    server.clear_rules();
    assert_eq!(send(&server, "GET", MAPS, &[("X-Fail", "1")], None).status, 200);
    let requests = server.requests();
    assert_eq!(requests.len(), 6);
    assert_eq!((requests[0].parameter("limit"), requests[3].header("x-fail")), (Some("5"), Some("1")));
}

#[test]
fn a_scripted_stream_pauses_until_told_and_breaks_off_in_a_line() {
    let server = with_maps(&[]);
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let answer = ServerAnswer::new(200)
        .event("ADDED", map("a"))
        .wait(&first)
        .error_event(410, "Expired", "too old resource version")
        .wait(&second)
        .text(r#"{"type": "MODI"#)
        .cut();
    server.rule(ServerRule::new("GET", MAPS).answer(answer));
    let mut lines = BufReader::new(send(&server, "GET", MAPS, &[], None).body).lines();
    assert!(lines.next().unwrap().unwrap().contains("ADDED"));
    first.cancel();
    assert!(lines.next().unwrap().unwrap().contains("too old"));
    second.cancel();
    assert_eq!(lines.next().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_stored_watch_breaks_off_after_some_bytes() {
    let server = with_maps(&["a", "b"]);
    server.rule(ServerRule::new("GET", MAPS).answer(ServerAnswer::stored().cut_after(20)));
    let mut text = String::new();
    let error = send(&server, "GET", &format!("{MAPS}?watch=1"), &[], None).body.read_to_string(&mut text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(text.len(), 20);
}

#[test]
fn a_compressed_watch_delivers_each_event_at_once() {
    let server = with_maps(&["a"]);
    server.rule(ServerRule::new("GET", MAPS).otherwise(ServerAnswer::stored().gzip()));
    let reply = send(&server, "GET", &format!("{MAPS}?watch=1"), &[], None);
    assert!(reply.headers.contains(&("content-encoding".to_owned(), "gzip".to_owned())));
    let mut bytes = BufReader::new(reply.body);
    for name in ["a", "b", "c"] {
        // Each event is a chunk that contains a gzip member.
        let member = bytes.fill_buf().unwrap().to_vec();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&member[..]).read_to_string(&mut text).unwrap();
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
        bytes.consume(member.len());
        server.client().create(&CONFIG_MAP, map(if name == "a" { "b" } else { "c" })).ok();
    }
}

#[test]
fn a_client_can_leave_a_stalled_and_an_endless_answer() {
    let server = with_maps(&[]);
    let stall = ServerAnswer::new(200).text("x").stall();
    let endless = ServerAnswer::new(200).repeat("x".repeat(1_000));
    server.rule(ServerRule::new("GET", MAPS).answer(stall).answer(endless).answer(ServerAnswer::hang_up()));
    for length in [1, 100_000] {
        let mut reply = send(&server, "GET", MAPS, &[], None);
        reply.body.read_exact(&mut vec![0; length]).unwrap();
    }
    let error = agent().get(format!("{}{MAPS}", server.url())).call().unwrap_err();
    assert!(error.to_string().contains("end of file") || matches!(error, ureq::Error::Io(_)), "{error}");
    drop(server);
}

#[test]
fn a_stop_ends_every_answer() {
    let server = with_maps(&[]);
    server.rule(ServerRule::new("GET", MAPS).query("a", "stall").answer(ServerAnswer::new(200).text("x").stall()));
    server.rule(ServerRule::new("GET", MAPS).query("a", "endless").answer(ServerAnswer::new(200).repeat("x")));
    let never = CancellationToken::new();
    server.rule(ServerRule::new("GET", MAPS).query("a", "wait").answer(ServerAnswer::new(200).text("x").wait(&never)));
    let open: Vec<_> = ["a=stall", "a=endless", "a=wait", "watch=1"]
        .map(|query| send(&server, "GET", &format!("{MAPS}?{query}"), &[], None))
        .into_iter()
        .collect();
    assert_eq!(server.connections(), 4);
    let url = server.url();
    drop(server);
    for mut reply in open {
        let mut text = String::new();
        let ended = reply.body.read_to_string(&mut text);
        assert!(ended.is_err() || text.is_empty(), "{text}");
    }
    assert!(agent().get(url).config().timeout_connect(Some(Duration::from_secs(5))).build().call().is_err());
}

#[test]
fn all_connections_break_off_at_once() {
    let server = with_maps(&["a"]);
    let mut watch = BufReader::new(send(&server, "GET", &format!("{MAPS}?watch=1"), &[], None).body).lines();
    assert!(watch.next().unwrap().unwrap().contains("ADDED"));
    server.disconnect();
    assert_eq!(watch.next().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(get(&server, MAPS).0, 200);
}

#[test]
fn a_test_waits_for_requests() {
    let server = with_maps(&["a"]);
    std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| server.wait_for_requests(|all| all.iter().filter(|one| one.is_watch()).count() == 1));
        get(&server, MAPS);
        let _watch = send(&server, "GET", &format!("{MAPS}?watch=1"), &[], None);
        assert_eq!(waits.join().unwrap().len(), 2);
    });
}

#[test]
fn the_client_of_the_server_has_its_objects() {
    let server = with_maps(&[]);
    call(&server, "POST", MAPS, &map("a"));
    let key = ObjectKey::new("default", "a");
    assert_eq!(server.client().get(&CONFIG_MAP, &key).unwrap().name(), "a");
    let config: Value = serde_json::from_str(&server.kubeconfig()).unwrap();
    assert_eq!(config["clusters"][0]["cluster"]["server"], server.url());
    assert!(format!("{server:?}").contains(&server.address().port().to_string()));
}

#[test]
fn a_dry_run_stores_nothing() {
    let server = with_maps(&[]);
    let (status, created) = call(&server, "POST", &format!("{MAPS}?dryRun=All"), &map("b"));
    assert_eq!((status, &created["metadata"]["name"]), (201, &json!("b")));
    assert_eq!(get(&server, &format!("{MAPS}/b")).0, 404);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let server = with_maps(&["a"]);
    assert_eq!(call(&server, "POST", MAPS, &json!([])).0, 400);
    assert_eq!(call(&server, "POST", MAPS, &json!({"apiVersion": "v1", "kind": "Pod"})).0, 400);
    assert_eq!(call(&server, "PUT", &format!("{MAPS}/b"), &map("a")).0, 400);
    assert_eq!(call(&server, "PUT", MAPS, &map("a")).0, 405);
    assert_eq!(call(&server, "POST", &format!("{MAPS}?dryRun=Some"), &map("b")).0, 400);
    assert_eq!(get(&server, &format!("{MAPS}?limit=x")).0, 400);
    assert_eq!(get(&server, &format!("{MAPS}?labelSelector=%3D%3D")).0, 400);
    assert_eq!(get(&server, &format!("{MAPS}/a/scale")).0, 404);
    assert_eq!(get(&server, "/api/v1/namespaces/default/nodes").0, 404);
    let unknown = [("Content-Type", "application/unknown-patch+json")];
    assert_eq!(send(&server, "PATCH", &format!("{MAPS}/a"), &unknown, Some(&json!({}))).status, 415);
    let invalid = call(&server, "POST", MAPS, &json!({"metadata": {"name": "A_"}}));
    assert_eq!((invalid.0, &invalid.1["reason"]), (422, &json!("Invalid")));
}
