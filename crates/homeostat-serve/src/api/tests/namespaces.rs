//! Virtual namespaces.

use std::sync::mpsc::channel;

use super::*;
use homeostat::base::ManualClock;

#[test]
fn namespaces_exist_as_long_as_an_object_is_in_them() {
    let served = served();
    let names = |served: &Served| {
        let list = request("GET /api/v1/namespaces").to(served).json();
        assert_eq!(list["kind"], "NamespaceList");
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&served), ["default"]);
    let path = "/apis/example.com/v1/namespaces/blue/sites";
    let mut object = site("a", "A");
    object["metadata"] = json!({"name": "a"});
    assert_eq!(request(&format!("POST {path}")).body(&object).to(&served).code, 201);
    assert_eq!(names(&served), ["blue", "default"]);
    assert_eq!(request("GET /api/v1/namespaces/blue").to(&served).json()["status"]["phase"], "Active");
    assert_eq!(request("GET /api/v1/namespaces/red").to(&served).json()["details"]["kind"], "namespaces");
    let table =
        request("GET /api/v1/namespaces").accept("application/json;as=Table;v=v1;g=meta.k8s.io").to(&served).json();
    assert_eq!(table["rows"][0]["cells"], json!(["blue", "Active", "<unknown>"]));
    request(&format!("DELETE {path}/a")).to(&served);
    assert_eq!(names(&served), ["default"]);
}

const NAMESPACES: &str = "/api/v1/namespaces";
const BLUE: &str = "/api/v1/namespaces/blue";

fn warnings(answer: &Answer) -> Vec<String> {
    answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_namespace_can_be_created_but_nothing_is_stored() {
    let served = served();
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let create = |body: &Value| request(&format!("POST {NAMESPACES}")).body(body).to(&served);
    let before = served.client.list(&SITE, &Query::all()).unwrap().version;
    for _ in 0..2 {
        let created = create(&namespace("blue"));
        assert_eq!((created.code, &created.json()["status"]["phase"]), (201, &json!("Active")), "{created:?}");
        assert!(warnings(&created)[0].contains("virtual"), "{created:?}");
        assert_eq!(request(&format!("GET {BLUE}")).to(&served).code, 404);
    }
    assert_eq!(served.client.list(&SITE, &Query::all()).unwrap().version, before);
    let generated = create(&json!({"metadata": {"generateName": "x-"}})).json();
    assert!(generated["metadata"]["name"].as_str().unwrap().starts_with("x-"), "{generated}");
    for (body, code, text) in [
        (namespace("default"), 409, "already exists"),
        (namespace("a.b"), 422, "metadata.name"),
        (namespace("Upper"), 422, "metadata.name"),
        (json!({"kind": "Site"}), 400, "Namespace"),
        (json!([]), 400, "object"),
    ] {
        let refused = create(&body);
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(refused.text.contains(text), "{refused:?}");
    }
}

/// `kubectl apply` patches an existing namespace, because it has no annotation of an earlier apply.
#[test]
fn a_namespace_can_be_applied_and_patched_again_and_again() {
    let served = served();
    let named = json!({"metadata": {"name": "blue"}});
    let applied = || apply(&format!("{BLUE}?fieldManager=me"), &named).to(&served);
    assert_eq!((applied().code, applied().code), (201, 201));
    assert_eq!(merge_patch(BLUE, &json!({})).to(&served).code, 404);
    let inside = request("POST /apis/example.com/v1/namespaces/blue/sites");
    assert_eq!(inside.body(&json!({"metadata": {"name": "a"}, "spec": {"title": "A"}})).to(&served).code, 201);
    let again = applied();
    assert_eq!((again.code, warnings(&again)), (200, Vec::new()));
    let last =
        json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}).to_string();
    let patch = |text: &str| {
        request(&format!("PATCH {BLUE}")).bytes("application/strategic-merge-patch+json", text.as_bytes()).to(&served)
    };
    let patched = patch(&last);
    assert_eq!((patched.code, warnings(&patched), patched.json()), (200, Vec::new(), again.json()));
    let labelled = patch(&json!({"metadata": {"labels": {"team": "a"}}}).to_string());
    assert_eq!((labelled.code, labelled.json()), (200, again.json()));
    assert!(warnings(&labelled)[0].contains("labels"), "{labelled:?}");
    assert_eq!(patch(&json!({"metadata": {"labels": {"team": 3}}}).to_string()).code, 422);
    let replaced = request(&format!("PUT {BLUE}")).body(&again.json()).to(&served);
    assert_eq!((replaced.code, replaced.json()), (200, again.json()));
    assert_eq!(request(&format!("PUT {NAMESPACES}/red")).body(&json!({})).to(&served).code, 404);
    assert_eq!(request(&format!("DELETE {NAMESPACES}/red")).to(&served).json()["reason"], "NotFound");
    let refused = request(&format!("DELETE {BLUE}")).to(&served);
    assert!(refused.code == 405 && refused.text.contains("delete its objects"), "{refused:?}");
}

#[test]
fn an_apply_of_a_new_namespace_needs_the_right_to_create() {
    let authorizer: Authorizer = Arc::new(|request: &AccessRequest| match request.verb {
        "create" => Access::Deny("no new namespaces".to_owned()),
        _ => Access::Allow,
    });
    let api = served().api.authorized_by(&authorizer);
    let path = |name: &str| format!("{NAMESPACES}/{name}?fieldManager=me");
    assert_eq!(apply(&path("blue"), &json!({})).send_to(&api).code, 403);
    assert_eq!(apply(&path("default"), &json!({})).send_to(&api).code, 200);
}

/// Returns an API on a held clock.
fn held() -> (Served, ManualClock) {
    let clock = ManualClock::new();
    let client = MemoryClient::builder().clock(clock.clock()).build();
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(ServedResource::new(SITE)).clock(clock.clock());
    (Served { client, api: api.build().unwrap() }, clock)
}

fn put_into(served: &Served, namespace: &str) {
    let path = format!("POST /apis/example.com/v1/namespaces/{namespace}/sites");
    assert_eq!(request(&path).body(&json!({"metadata": {"name": "a"}})).to(served).code, 201);
}

#[test]
fn a_watch_shows_namespaces_as_they_appear_and_vanish() {
    let (served, clock) = held();
    put_into(&served, "blue");
    let (gone, (parts, count)) = (CancellationToken::new(), channel());
    let after = move |_| parts.send(()).unwrap();
    let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
    let answer = std::thread::scope(|scope| {
        let line = format!("GET {NAMESPACES}?watch=true&allowWatchBookmarks=true");
        let (api, stop) = (&served.api, gone.clone());
        let watch = scope.spawn(move || request(&line).streamed(api, &mut sink, &stop));
        // Advance the clock until the watch has checked again.
        let next = || {
            while count.try_recv().is_err() {
                clock.advance(std::time::Duration::from_secs(5));
                std::thread::yield_now();
            }
        };
        (0..3).for_each(|_| next());
        put_into(&served, "red");
        // A change inside a namespace does not change the namespace.
        let site = "/apis/example.com/v1/namespaces/red/sites/a";
        assert_eq!(merge_patch(site, &json!({"spec": {"title": "A"}})).to(&served).code, 200);
        next();
        assert_eq!(request("DELETE /apis/example.com/v1/namespaces/blue/sites/a").to(&served).code, 200);
        next();
        gone.cancel();
        watch.join().unwrap()
    });
    let events: Vec<_> = answer
        .events()
        .iter()
        .map(|event| (event["type"].clone(), event["object"]["metadata"]["name"].clone()))
        .collect();
    let event = |kind: &str, name: &str| (json!(kind), json!(name));
    let expected = [
        event("ADDED", "blue"),
        event("ADDED", "default"),
        (json!("BOOKMARK"), Value::Null),
        event("ADDED", "red"),
        event("DELETED", "blue"),
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_watch_of_namespaces_begins_at_a_version_and_selects() {
    let (served, _) = held();
    put_into(&served, "blue");
    let begins = |query: &str, most: usize| {
        let gone = CancellationToken::new();
        let stop = gone.clone();
        let after = move |count| {
            if count == most {
                stop.cancel();
            }
        };
        let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
        let line = format!("GET {NAMESPACES}?watch=true&allowWatchBookmarks=true{query}");
        let answer = request(&line).streamed(&served.api, &mut sink, &gone);
        let brief = |event: &Value| format!("{} {}", event["type"], event["object"]["metadata"]["name"]);
        answer.events().iter().map(brief).collect::<Vec<_>>().join(", ").replace('"', "")
    };
    let version = request(&format!("GET {NAMESPACES}")).to(&served).json()["metadata"]["resourceVersion"].clone();
    let from = format!("&resourceVersion={}", version.as_str().unwrap());
    assert_eq!(begins("&fieldSelector=metadata.name=blue", 2), "ADDED blue, BOOKMARK null");
    assert_eq!(begins("&labelSelector=kubernetes.io/metadata.name=default", 2), "ADDED default, BOOKMARK null");
    assert_eq!(begins(&from, 1), "BOOKMARK null");
    // From an older version, the watch starts with the existing namespaces.
    put_into(&served, "red");
    assert_eq!(begins(&from, 3), "ADDED blue, ADDED default, ADDED red");
}

#[test]
fn a_watch_of_namespaces_ends_at_its_time_out() {
    let (served, clock) = held();
    // The event is sent after the deadline was set.
    let after = move |_| clock.advance(std::time::Duration::from_secs(60));
    let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
    let line = format!("GET {NAMESPACES}?watch=true&timeoutSeconds=60");
    let answer = request(&line).streamed(&served.api, &mut sink, &CancellationToken::new());
    assert_eq!((answer.code, answer.events().len()), (200, 1), "{answer:?}");
}
