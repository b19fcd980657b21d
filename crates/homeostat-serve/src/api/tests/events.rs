//! Core events: the stored `events.k8s.io` events in another form.

use super::*;
use homeostat_objects::{EventRecorder, Query};

const CORE: &str = "/api/v1/namespaces/default/events";
const NEWER: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn with_events() -> Served {
    let client = MemoryClient::builder().seed(7).build();
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(ServedResource::new(SITE)).serve_events();
    Served { client, api: api.build().unwrap() }
}

/// An event as client-go's recorder creates it.
fn core(name: &str) -> Value {
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": null},
        "involvedObject": {"kind": "Site", "namespace": "default", "name": "home", "uid": "u", "apiVersion": "example.com/v1"},
        "reason": "Painted", "message": "It is blue.", "source": {"component": "painter", "host": "h"},
        "firstTimestamp": "2026-05-01T10:00:00Z", "lastTimestamp": "2026-05-01T10:05:00Z", "count": 1, "type": "Normal",
        "eventTime": null, "reportingComponent": "painter", "reportingInstance": "h",
    })
}

fn post(served: &Served, event: &Value) -> Answer {
    request(&format!("POST {CORE}")).body(event).to(served)
}

#[test]
fn an_event_written_in_one_group_is_read_in_the_other() {
    let served = with_events();
    let created = post(&served, &core("a"));
    assert_eq!(created.code, 201, "{created:?}");
    let created = created.json();
    for field in
        ["involvedObject", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reportingComponent"]
    {
        assert_eq!(created[field], core("a")[field], "{field}");
    }
    let stored = request(&format!("GET {NEWER}/a")).to(&served).json();
    assert_eq!(stored["apiVersion"], "events.k8s.io/v1");
    for (newer, older) in [
        ("regarding", "involvedObject"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("metadata", "metadata"),
    ] {
        assert_eq!(stored[newer], created[older], "{newer}");
        assert!(newer == older || stored.get(older).is_none(), "{older}");
    }
    assert_eq!(served.client.list(&EventRecorder::KIND, &Query::all()).unwrap().items.len(), 1);
    assert_eq!(request(&format!("GET {CORE}/a")).to(&served).json(), created);

    let series = json!({"count": 2, "lastObservedTime": "2026-05-01T10:00:01.000000Z"});
    let newer = json!({
        "metadata": {"name": "b"}, "regarding": {"kind": "Site", "name": "home"}, "note": "It is red.", "reason": "Painted",
        "reportingController": "painter", "reportingInstance": "p-0", "action": "Paint", "type": "Normal",
        "eventTime": "2026-05-01T10:00:00.000000Z", "series": series,
    });
    assert_eq!(request(&format!("POST {NEWER}")).body(&newer).to(&served).code, 201);
    let read = request(&format!("GET {CORE}/b")).to(&served).json();
    assert_eq!((&read["message"], &read["series"], &read["kind"]), (&json!("It is red."), &series, &json!("Event")));
    let generated = post(&served, &json!({"metadata": {"generateName": "kopf-event-"}, "involvedObject": {}})).json();
    assert!(generated["metadata"]["name"].as_str().unwrap().starts_with("kopf-event-"), "{generated}");
}

#[test]
fn an_event_of_the_core_group_is_changed_in_each_way() {
    let served = with_events();
    post(&served, &core("a"));
    let path = format!("{CORE}/a");
    let times = json!({"count": 2, "lastTimestamp": "2026-05-01T10:06:00Z"});
    let change = request(&format!("PATCH {path}"));
    let patched = change.bytes("application/strategic-merge-patch+json", times.to_string().as_bytes()).to(&served);
    assert_eq!((patched.code, &patched.json()["count"]), (200, &json!(2)), "{patched:?}");
    let stored = || request(&format!("GET {NEWER}/a")).to(&served).json();
    assert_eq!((&stored()["deprecatedCount"], stored().get("count")), (&json!(2), None));
    let merged = merge_patch(&path, &json!({"message": null, "apiVersion": "v1"})).to(&served).json();
    assert_eq!((merged.get("message"), stored().get("note")), (None, None));
    let steps = json!([{"op": "test", "path": "/count", "value": 2}, {"op": "replace", "path": "/count", "value": 3}]);
    let steps = request(&format!("PATCH {path}")).bytes("application/json-patch+json", steps.to_string().as_bytes());
    assert_eq!(steps.to(&served).json()["count"], 3);
    let mut whole = request(&format!("GET {path}")).to(&served).json();
    whole["message"] = json!("It is green.");
    let put = request(&format!("PUT {path}")).body(&whole).to(&served);
    assert_eq!((put.code, &put.json()["message"], &stored()["note"]), (200, &whole["message"], &whole["message"]));
    let old = request(&format!("PUT {path}")).body(&whole).to(&served);
    assert_eq!(old.code, 409);
    assert!(old.text.contains("events \\\"a\\\""), "{old:?}");

    let applied = json!({"apiVersion": "v1", "kind": "Event", "message": "It is black."});
    let conflict = apply(&format!("{path}?fieldManager=one&dryRun=All"), &applied).to(&served);
    assert_eq!((conflict.code, &conflict.json()["message"]), (200, &applied["message"]), "{conflict:?}");
    assert_eq!(apply(&format!("{path}?fieldManager=one"), &applied).to(&served).code, 200);
    let other = json!({"apiVersion": "v1", "kind": "Event", "message": "It is white."});
    let conflict = apply(&format!("{path}?fieldManager=two"), &other).to(&served);
    assert_eq!((conflict.code, &conflict.json()["details"]["causes"][0]["field"]), (409, &json!(".message")));
}

#[test]
fn events_of_the_core_group_are_deleted_and_errors_name_them() {
    let served = with_events();
    post(&served, &core("a"));
    let again = post(&served, &core("a"));
    assert_eq!((again.code, &again.json()["message"]), (409, &json!("events \"a\" already exists")));
    let dry = request(&format!("POST {CORE}?dryRun=All")).body(&core("b")).to(&served);
    assert_eq!((dry.code, &dry.json()["message"]), (201, &json!("It is blue.")));
    let deleted = request(&format!("DELETE {CORE}/a")).to(&served);
    assert_eq!((deleted.code, &deleted.json()["details"]["kind"]), (200, &json!("events")));
    let missing = request(&format!("DELETE {CORE}/a")).to(&served).json();
    assert_eq!(missing["message"], "events \"a\" not found");
    let missing = request(&format!("GET {CORE}/a")).to(&served).json();
    assert_eq!(missing["details"], json!({"kind": "events", "name": "a"}));
    for name in ["c", "d"] {
        post(&served, &core(name));
    }
    assert_eq!(request(&format!("DELETE {CORE}?fieldSelector=metadata.name=c")).to(&served).code, 200);
    let left = request(&format!("GET {NEWER}")).to(&served).json();
    assert_eq!((left["items"].as_array().unwrap().len(), &left["items"][0]["metadata"]["name"]), (1, &json!("d")));
    let wrong = post(&served, &json!({"metadata": {"name": "A B"}}));
    assert_eq!(wrong.code, 422, "{wrong:?}");
    assert!(wrong.json()["message"].as_str().unwrap().starts_with("Event \"A B\" is invalid"), "{wrong:?}");
}

#[test]
fn events_are_selected_by_the_fields_of_their_group() {
    let served = with_events();
    post(&served, &core("a"));
    let answer = |path: &str, selector: &str| request(&format!("GET {path}?fieldSelector={selector}")).to(&served);
    let found = |path: &str, selector: &str| answer(path, selector).json()["items"].as_array().unwrap().len();
    for (path, selector) in [
        (CORE, "involvedObject.name=home,involvedObject.kind=Site,type!=Warning"),
        (CORE, "source=painter,reportingComponent=painter,metadata.name=a"),
        (NEWER, "regarding.uid=u,reportingController=painter,metadata.namespace=default"),
    ] {
        assert_eq!(found(path, selector), 1, "{selector}");
    }
    assert_eq!(found(CORE, "involvedObject.name=other"), 0);
    for (path, selector) in [
        (CORE, "regarding.name=home"),
        (CORE, "message=a"),
        (NEWER, "involvedObject.name=home"),
        (NEWER, "involvedObject.nmae!=home"),
        (CORE, "metadata.uid=u"),
    ] {
        let refused = answer(path, selector);
        let field = selector.split(['=', '!']).next().unwrap();
        let message = format!("field label not supported: {field}");
        assert_eq!((refused.code, &refused.json()["message"]), (400, &json!(message)));
    }
}

#[test]
fn a_watch_of_the_core_group_shows_all_events() {
    let served = with_events();
    post(&served, &core("a"));
    let gone = CancellationToken::new();
    let (stop, api) = (gone.clone(), served.api.clone());
    let mut sink = Kept {
        after: Some(Box::new(move |parts| match parts {
            1 => {
                let path = format!("{NEWER}/a");
                assert_eq!(merge_patch(&path, &json!({"note": "It is red."})).send_to(&api).code, 200);
            }
            _ => stop.cancel(),
        })),
        ..Kept::default()
    };
    let selector = "fieldSelector=involvedObject.name=home";
    let events = request(&format!("GET {CORE}?watch=true&{selector}")).streamed(&served.api, &mut sink, &gone).events();
    let messages: Vec<_> = events.iter().map(|event| (&event["type"], &event["object"]["message"])).collect();
    assert_eq!(messages[..2], [(&json!("ADDED"), &json!("It is blue.")), (&json!("MODIFIED"), &json!("It is red."))]);
}

#[test]
fn both_groups_have_the_verbs_and_columns_of_kubernetes() {
    let served = with_events();
    let discovered = request("GET /api/v1").to(&served).json();
    let events = discovered["resources"].as_array().unwrap().iter().find(|one| one["name"] == "events").unwrap();
    assert!(events["verbs"].as_array().unwrap().contains(&json!("create")), "{events}");
    let document = request("GET /openapi/v3/api/v1").to(&served).json();
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/events"]["post"].is_object());

    post(&served, &core("a"));
    post(
        &served,
        &json!({
            "metadata": {"name": "b"}, "involvedObject": {"kind": "Site", "name": "home", "fieldPath": "spec.a"}, "message": "m\n",
            "eventTime": "2026-05-01T10:00:00.000000Z", "reportingComponent": "c", "reportingInstance": "i",
            "series": {"count": 7, "lastObservedTime": "2026-05-01T10:00:01.000000Z"},
        }),
    );
    post(&served, &json!({"metadata": {"name": "c"}, "involvedObject": {"kind": "Site"}}));
    for path in [CORE, NEWER] {
        let table =
            request(&format!("GET {path}")).accept("application/json;as=Table;v=v1;g=meta.k8s.io").to(&served).json();
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        let columns: Vec<_> =
            columns.map(|one| (one["name"].as_str().unwrap(), one["priority"].as_i64().unwrap())).collect();
        assert_eq!(
            columns,
            [
                ("Last Seen", 0),
                ("Type", 0),
                ("Reason", 0),
                ("Object", 0),
                ("Subobject", 1),
                ("Source", 1),
                ("Message", 0),
                ("First Seen", 1),
                ("Count", 1),
                ("Name", 1),
            ]
        );
        let cells = |row: usize| table["rows"][row]["cells"].as_array().unwrap();
        let is_age =
            |cell: &Value| cell.as_str().is_some_and(|age| age.starts_with(|letter: char| letter.is_ascii_digit()));
        assert!(
            is_age(&cells(0)[0]) && is_age(&cells(0)[7]) && is_age(&cells(1)[0]) && is_age(&cells(1)[7]),
            "{table}"
        );
        assert_eq!(
            cells(0)[1..7],
            [
                json!("Normal"),
                json!("Painted"),
                json!("site/home"),
                json!(""),
                json!("painter, h"),
                json!("It is blue."),
            ]
        );
        assert_eq!(cells(0)[8..], [json!(1), json!("a")]);
        assert_eq!(cells(1)[3..7], [json!("site/home"), json!("spec.a"), json!("c, i"), json!("m")]);
        assert_eq!(cells(1)[8..], [json!(7), json!("b")]);
        assert_eq!((&cells(2)[0], &cells(2)[3], &cells(2)[8]), (&json!("<unknown>"), &json!("site"), &json!(1)));
    }
}
