//! Objects in protocol buffers, as typed Go clients send and read them.

use super::*;
use crate::api::protobuf::{MEDIA, encoded, object};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
/// The `Accept` header of client-go since version 0.36.
const EITHER: &str = "application/vnd.kubernetes.protobuf,application/json";

fn with_leases() -> Served {
    let client = MemoryClient::builder().seed(7).history(2).build();
    let lease = KindDefinition::new(Kind::namespaced("coordination.k8s.io", "v1", "Lease")).with_status(false);
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(lease).serve(SITE).serve_events();
    Served { client, api: api.build().unwrap() }
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "default"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-05-01T10:00:00.123456Z", "leaseTransitions": 0},
    })
}

/// Sends an object in protocol buffers, and accepts both forms.
fn send(served: &Served, line: &str, body: &Value) -> Answer {
    request(line).bytes(MEDIA, &encoded(body).unwrap()).accept(EITHER).to(served)
}

fn read(answer: &Answer) -> Value {
    assert_eq!(answer.headers["content-type"], MEDIA, "{answer:?}");
    object(&answer.bytes).unwrap()
}

#[test]
fn leases_are_written_and_read() {
    let served = with_leases();
    let created = send(&served, &format!("POST {LEASES}"), &lease("one"));
    assert_eq!(created.code, 201, "{created:?}");
    let mut created = read(&created);
    assert_eq!(created["spec"], lease("one")["spec"]);
    assert!(created["metadata"]["uid"].is_string() && created["metadata"]["creationTimestamp"].is_string());
    let json = request(&format!("GET {LEASES}/one")).to(&served).json();
    assert_eq!(json["spec"], created["spec"]);
    created["spec"]["holderIdentity"] = json!("");
    let updated = send(&served, &format!("PUT {LEASES}/one"), &created);
    assert_eq!((updated.code, &read(&updated)["spec"]["holderIdentity"]), (200, &json!("")));
    let patch = request(&format!("PATCH {LEASES}/one")).accept(EITHER);
    let patched = patch.bytes("application/merge-patch+json", br#"{"spec":{"leaseTransitions":1}}"#).to(&served);
    assert_eq!(read(&patched)["spec"]["leaseTransitions"], 1);
    let list = request(&format!("GET {LEASES}")).accept(EITHER).to(&served);
    assert_eq!((list.code, &list.headers["content-type"]), (200, &HeaderValue::from_static(MEDIA)));
    assert!(
        list.bytes.starts_with(b"k8s\0") && list.text.contains("LeaseList") && list.text.contains("one"),
        "{list:?}"
    );
    // Events work too, in both groups.
    for (path, event) in [
        ("/api/v1", json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "m"})),
        (
            "/apis/events.k8s.io/v1",
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "b"}, "note": "m"}),
        ),
    ] {
        let line = format!("POST {path}/namespaces/default/events");
        let created = send(&served, &line, &event);
        assert_eq!((created.code, &read(&created)["kind"]), (201, &json!("Event")), "{created:?}");
    }
}

#[test]
fn errors_and_kinds_without_messages_are_sent_as_json() {
    let served = with_leases();
    let missing = request(&format!("GET {LEASES}/none")).accept(EITHER).to(&served);
    assert_eq!((missing.code, &missing.headers["content-type"]), (404, &HeaderValue::from_static("application/json")));
    // Kubernetes answers the same for custom resources.
    let site = [b"k8s\0\x0a\x16\x0a\x0eexample.com/v1\x12\x04Site\x12\x00".as_slice()].concat();
    let refused = request(&format!("POST {SITES}")).bytes(MEDIA, &site).accept(EITHER).to(&served);
    assert_eq!((refused.code, &refused.json()["reason"]), (415, &json!("UnsupportedMediaType")));
    assert!(refused.text.contains("example.com/v1 Site") && refused.text.contains("application/json"), "{refused:?}");
    let other = request(&format!("GET {SITES}")).accept(MEDIA).to(&served);
    let message = "only the following media types are accepted: application/json";
    assert_eq!((other.code, &other.json()["message"]), (406, &json!(message)));
    let either = request(&format!("GET {SITES}")).accept(EITHER).to(&served);
    assert_eq!((either.code, &either.json()["kind"]), (200, &json!("SiteList")));
    let lease = request(&format!("GET {LEASES}")).accept("application/yaml").to(&served);
    assert_eq!((lease.code, &lease.json()["message"]), (406, &json!(format!("{message}, {MEDIA}"))));
    let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(request(&format!("GET {LEASES}")).accept(table).to(&served).code, 406);
    let broken = request(&format!("POST {LEASES}")).bytes(MEDIA, b"k8s\0\x0b").to(&served);
    assert_eq!(broken.code, 400, "{broken:?}");
}

#[test]
fn options_of_a_deletion_are_read_for_each_kind() {
    let served = with_leases();
    request(&format!("POST {SITES}")).body(&site("home", "Home")).to(&served);
    send(&served, &format!("POST {LEASES}"), &lease("one"));
    for (path, group) in
        [(format!("{SITES}/home"), "example.com/v1"), (format!("{LEASES}/one"), "coordination.k8s.io/v1")]
    {
        let options = |preconditions: Value| {
            json!({
                "apiVersion": group, "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
                "preconditions": preconditions,
            })
        };
        let wrong = send(&served, &format!("DELETE {path}"), &options(json!({"uid": "other"})));
        assert_eq!(wrong.code, 409, "{wrong:?}");
        let deleted = send(&served, &format!("DELETE {path}"), &options(json!({})));
        assert_eq!(deleted.code, 200, "{deleted:?}");
        if group == "example.com/v1" {
            assert_eq!(deleted.json()["status"], "Success");
        } else {
            assert_eq!((&read(&deleted)["kind"], &read(&deleted)["status"]), (&json!("Status"), &json!("Success")));
        }
    }
}

/// Returns each event of a watch as its type and its object.
fn frames(mut bytes: &[u8]) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (event, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        bytes = rest;
        // The type comes first, then the object as its own message. All are shorter than 2 MiB.
        let kind = &event[2..2 + usize::from(event[1])];
        let at = event.windows(4).position(|part| part == b"k8s\0").unwrap();
        found.push((String::from_utf8(kind.to_vec()).unwrap(), object(&event[at..]).unwrap()));
    }
    found
}

#[test]
fn a_watch_sends_messages_with_their_length() {
    let served = with_leases();
    for name in ["one", "two", "three", "four", "five"] {
        send(&served, &format!("POST {LEASES}"), &lease(name));
    }
    let gone = CancellationToken::new();
    let stop = gone.clone();
    let mut sink = Kept {
        after: Some(Box::new(move |parts| {
            if parts == 6 {
                stop.cancel();
            }
        })),
        ..Kept::default()
    };
    let line = format!(
        "GET {LEASES}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let answer = request(&line).accept(EITHER).streamed(&served.api, &mut sink, &gone);
    assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let events = frames(&answer.bytes);
    assert_eq!(events.iter().filter(|(kind, _)| kind == "ADDED").count(), 5);
    let (kind, mark) = events.last().unwrap();
    assert_eq!((kind.as_str(), &mark["kind"]), ("BOOKMARK", &json!("Lease")));
    assert_eq!(mark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");

    let old = request(&format!("GET {LEASES}?watch=true&resourceVersion=1")).accept(EITHER).to(&served);
    let events = frames(&old.bytes);
    assert_eq!(
        (events[0].0.as_str(), &events[0].1["code"], &events[0].1["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
}
