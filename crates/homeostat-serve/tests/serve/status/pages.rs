//! The pages, as a client gets them from a server.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Component, Context, Controller, Manager};
use homeostat_objects::{
    Capabilities, Client, ClientAnswer, ClientCall, ClientError, ClientLayer, DynamicObject, EventRecorder, EventType,
    Kind, MemoryClient,
};
use homeostat_serve::{
    Access, AccessTarget, ObjectApi, ObjectApiBuilder, ServedResource, Server, ServerBuilder, StatusPages, UserInfo,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::Site;

#[test]
fn the_pages_are_served_with_their_headers() {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let site = Site::of(&manager);
    let page = site.get("/");
    assert_eq!(page.status, 200);
    assert!(page.body.starts_with("<!doctype html>") && page.body.trim_end().ends_with("</html>"));
    for header in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "x-frame-options: deny",
        "x-content-type-options: nosniff",
        "referrer-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(page.head.contains(header), "{}", page.head);
    }
    assert!(site.get("/?live=1").body.starts_with("<header"));
    let head = site.request("HEAD", "/");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!((site.request("POST", "/").status, site.get("/keys/vm/a").status), (405, 404));
    let json: serde_json::Value = serde_json::from_str(&site.get("/statusz").body).unwrap();
    assert_eq!((&json["name"], &json["phase"]), (&"appliance".into(), &"not started".into()));
}

#[test]
fn the_page_of_a_key_is_found_by_any_text() {
    let manager = Manager::builder().build().unwrap();
    let reconcile = |_cx: &Context, _key: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let controller = Controller::builder("v m/<x>", reconcile).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let site = Site::of(&manager);
    let running = manager.start().unwrap();
    for key in ["a/b", "../x", "100%?#&\"'<b>", "größe 空", "a\nb"] {
        handle.enqueue(key.to_owned());
        handle.wait(&key.to_owned(), Duration::MAX).unwrap();
        let shown = format!("{key:?}");
        let encoded = utf8_percent_encode(&shown, NON_ALPHANUMERIC);
        let answer = site.get(&format!("/keys/v%20m%2F%3Cx%3E/{encoded}"));
        assert_eq!(answer.status, 200, "{key:?}: {}", answer.body);
        assert!(answer.body.contains("<dt>Last run</dt><dd>succeeded at "));
        assert!(!answer.body.contains("<b>") && !answer.body.contains("<x>"));
    }
    running.shutdown(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_server_can_be_a_component_of_the_manager_that_it_shows() {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let pages = StatusPages::new(&manager).unwrap();
    let server = Server::builder((std::net::Ipv4Addr::LOCALHOST, 0)).status_pages(pages).build().unwrap();
    manager.add(Component::running("door", server.start().unwrap())).unwrap();
    let (ended, is_gone) = std::sync::mpsc::channel();
    manager.at_end(move || ended.send(()).unwrap());
    let running = manager.start().unwrap();
    running.shutdown(Duration::from_secs(10)).unwrap();
    is_gone.recv().unwrap();
}

#[test]
fn a_user_sees_the_kinds_whose_objects_they_may_list() {
    let site = Kind::namespaced("example.com", "v1", "Site");
    let (old, node) = (Kind::namespaced("example.com", "v1beta1", "Site"), Kind::cluster("", "v1", "Node"));
    let client = MemoryClient::new();
    for number in 0..1_200 {
        let metadata = json!({"namespace": "default", "name": format!("site-{number}")});
        let object = json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": metadata});
        client.create(&site, object).unwrap();
    }
    let api = ObjectApi::builder(Arc::new(client)).serve_events();
    let api = [site, old, node].map(ServedResource::new).into_iter().fold(api, ObjectApiBuilder::serve).build();
    let manager = Manager::builder().build().unwrap();
    let pages = StatusPages::new(&manager).unwrap().objects(&api.unwrap()).kubeconfig("/a b/config");
    let served = Site::served(pages, |builder| {
        builder.token("all", UserInfo::new("ada")).token("some", UserInfo::new("bob")).authorize(|request| {
            match &request.target {
                AccessTarget::Objects { resource, .. } if request.user.name == "bob" && resource != "nodes" => {
                    Access::Deny("only nodes".to_owned())
                }
                _ => Access::Allow,
            }
        })
    });
    let all = served.get_as("all", "/").body;
    for part in [
        "Objects <small>4</small>",
        "kubectl --kubeconfig &#39;/a b/config&#39; get sites.v1.example.com -A</code>",
        "get sites.v1beta1.example.com -A</code>",
        "get events -A</code>",
        "get nodes</code>",
        ">1,200</span>",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!all.contains("Namespace"), "a virtual kind has no objects");
    let some = served.get_as("some", "/").body;
    assert!(some.contains("Objects <small>1</small>") && some.contains("get nodes</code>"), "{some}");
    assert!(!some.contains(" get sites"), "{some}");
}

#[test]
fn an_object_has_a_page_with_its_conditions_and_events_for_those_who_may_get_it() {
    let kind = Kind::namespaced("example.com", "v1", "Site");
    let client = Arc::new(MemoryClient::new());
    let hostile = "<script>alert(1)</script>\u{202e}";
    let main = json!({
        "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"namespace": "default", "name": "main"},
    });
    let main = client.create(&kind, main).unwrap();
    let mut site = json!({
        "apiVersion": "example.com/v1", "kind": "Site",
        "metadata": {
            "namespace": "default", "name": "home", "annotations": {"example.com/note": hostile},
            "ownerReferences": [
                {"apiVersion": "example.com/v1", "kind": "Site", "name": "main", "uid": main.uid()},
                {"apiVersion": "v1", "kind": "Node", "name": "other", "uid": "2"},
            ],
        },
        "spec": {"title": hostile}, "data": {"password": "a-secret"},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NoDisk", "message": hostile}]},
    });
    site["metadata"]["resourceVersion"] = client.create(&kind, site.clone()).unwrap().resource_version().into();
    let site = client.update_status(&kind, site).unwrap();
    let recorder = EventRecorder::builder("sites").client(client.clone()).log(false).build();
    let about: DynamicObject = serde_json::from_value(site.to_value()).unwrap();
    recorder.event(&about, EventType::Warning, "NoDisk", hostile);
    recorder.flush();
    let api = ObjectApi::builder(client).serve(ServedResource::new(kind)).serve_events().build().unwrap();
    let manager = Manager::builder().build().unwrap();
    let pages = StatusPages::new(&manager).unwrap().objects(&api);
    let served = Site::served(pages, |builder| {
        let builder =
            ["ada", "bob", "eve"].iter().fold(builder, |builder, name| builder.token(*name, UserInfo::new(*name)));
        builder.authorize(|request| match &request.target {
            AccessTarget::Objects { resource, .. } if request.user.name == "bob" && resource == "events" => {
                Access::Deny("no events".to_owned())
            }
            AccessTarget::Objects { .. } if request.user.name == "eve" => Access::Deny("no objects".to_owned()),
            _ => Access::Allow,
        })
    });
    let list = served.get_as("ada", "/objects/sites.v1.example.com").body;
    assert!(
        list.contains("href=\"/objects/sites.v1.example.com/default/home\"") && list.contains(">not ready</span>"),
        "{list}"
    );
    let path = "/objects/sites.v1.example.com/default/home";
    assert!(served.get_as("ada", "/search?q=HOM").body.contains(path));
    assert!(!served.get_as("eve", "/search?q=HOM").body.contains(path));
    let page = served.get_as("ada", path).body;
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}";
    for part in [
        "kubectl describe sites.v1.example.com home -n default",
        "<bdi>NoDisk</bdi>",
        "Site</bdi> <a class=\"key\" href=\"/objects/sites.v1.example.com/default/main\"><bdi>main</bdi></a>, ",
        "<bdi>Node</bdi> <bdi>other</bdi></dd>",
        "Events <small>1</small>",
        ">Warning</span>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // The annotation, the condition, the event, the spec and the status.
    assert_eq!((page.matches(escaped).count(), page.matches("<script>").count()), (5, 1), "{page}");
    assert!(!page.contains("a-secret"));
    let events = served.get_as("ada", "/objects/events.v1.events.k8s.io").body;
    let to_site = format!("<bdi>Site</bdi> <a class=\"key\" href=\"{path}\"><bdi>home</bdi></a>");
    let last_seen = " UTC</time> <small><span title=\"20";
    for part in ["<bdi>NoDisk</bdi></a></th>", ">Warning</span>", &to_site, "data-label=\"last seen\">", last_seen] {
        assert!(events.contains(part), "{part}: {events}");
    }
    let event = events.split("<th scope=\"row\"><a href=\"").nth(1).unwrap().split('"').next().unwrap();
    let event = served.get_as("ada", event).body;
    for part in [
        "<dt>Reason</dt><dd><bdi>NoDisk</bdi>",
        "<dt>Type</dt><dd><span class=\"chip warn\">Warning</span>",
        &format!("<dt>Note</dt><dd><pre>{escaped}</pre>"),
        &format!("<dt>Regarding</dt><dd>{to_site}"),
        "<dt>From</dt><dd><bdi>sites</bdi>",
        "<dt>Count</dt><dd>1</dd>",
        "<dt>Last seen</dt><dd>",
        last_seen,
    ] {
        assert!(event.contains(part), "{part}: {event}");
    }
    let page = served.get_as("bob", path).body;
    assert!(page.contains("Conditions <small>1</small>") && !page.contains("Events <small>"), "{page}");
    for path in [path, "/objects/sites.v1.example.com"] {
        let answer = served.get_as("eve", path);
        assert_eq!(answer.status, 403);
        assert!(!answer.body.contains("NoDisk"));
    }
    for path in [
        "/objects/sites.v1.example.com/default/shop",
        "/objects/sites.v2.example.com",
        "/objects/sites.v1.example.com/home",
    ] {
        assert_eq!(served.get_as("ada", path).status, 404, "{path}");
    }
}

#[test]
fn a_user_acts_as_the_authorizer_allows_and_no_other_site_does() {
    let manager = Manager::builder().build().unwrap();
    let reconcile = |_cx: &Context, _key: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let controller = Controller::builder("vm", reconcile).build().unwrap();
    let vms = controller.handle();
    manager.add(controller).unwrap();
    let pages = StatusPages::new(&manager).unwrap().actions(&vms);
    let site = Site::served(pages, |builder| {
        let builder = ["ada", "bob"].iter().fold(builder, |builder, name| builder.token(*name, UserInfo::new(*name)));
        builder.authorize(|request| match (&*request.user.name, request.verb, &request.target) {
            (_, "get", _) => Access::Allow,
            ("ada", "create", AccessTarget::Path(path)) if path == "/keys/vm/\"a%2Fb\"/suspend" => Access::Allow,
            _ => Access::Deny("not allowed".to_owned()),
        })
    });
    let running = manager.start().unwrap();
    vms.enqueue("a/b".to_owned());
    vms.wait(&"a/b".to_owned(), Duration::from_secs(60)).unwrap();
    let page = "/keys/vm/%22a%2Fb%22";
    let form = format!("{page}/suspend");
    let shown = site.get_as("ada", page).body;
    assert!(shown.contains(&form) && !shown.contains("/retry\""), "{shown}");
    assert!(!shown.contains("No actions:"), "{shown}");
    for page in [page, "/controllers/vm"] {
        let shown = site.get_as("bob", page).body;
        assert!(!shown.contains("<form method"), "{shown}");
        assert!(shown.contains("No actions: <bdi>bob</bdi> may not act on <bdi>vm</bdi>."), "{shown}");
    }
    let token = shown.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let body = format!("token={token}");

    assert_eq!(site.post_as("bob", &form, "", &body).status, 403);
    assert_eq!(site.post_as("ada", &format!("{page}/retry"), "", &body).status, 403);
    assert_eq!(site.post_as("ada", &form, "", "token=guess").status, 403);
    for header in ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(site.post_as("ada", &form, &format!("{header}\r\n"), &body).status, 403, "{header}");
    }
    assert_eq!(site.post_as("nobody", &form, "", &body).status, 401);
    assert!(vms.status().suspended.is_empty());

    let origin = format!("Origin: http://localhost:{}\r\nSec-Fetch-Site: same-origin\r\n", site.address().port());
    let answer = site.post_as("ada", &form, &origin, &body);
    assert_eq!(answer.status, 303);
    assert!(answer.head.contains(&format!("location: {}", page.to_ascii_lowercase())), "{}", answer.head);
    assert_eq!(vms.status().suspended[0].0, "\"a/b\"");
    running.shutdown(Duration::from_secs(10)).unwrap();
}

#[test]
fn the_page_counts_the_errors_and_refused_logins_of_its_server() {
    let manager = Manager::builder().build().unwrap();
    let pages = StatusPages::new(&manager).unwrap();
    let site = Site::served(pages, |builder| builder.token("ada", UserInfo::new("ada")));
    assert_eq!(site.get_as("ada", "/nothing").status, 404);
    assert_eq!(site.get_as("eve", "/").status, 401);
    let page = site.get_as("ada", "/").body;
    for part in [
        "<dt>client errors (4xx)</dt><dd class=\"\">2</dd>",
        "<dt>refused logins</dt><dd class=\"warn\">1 <small>1 in 5 min</small></dd>",
        ">401</span>",
        "data-label=\"last path\"><bdi>/nothing</bdi></td>",
        // Its own connection is open.
        "<summary>Open connections: ",
        "data-label=\"user\"><bdi>ada</bdi></td><td class=\"\" data-label=\"since\"><time",
        "data-label=\"requests\">1</td><td class=\"full\" data-label=\"now\"><bdi>GET /</bdi></td>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_failed_health_check_is_no_error_of_the_server() {
    let manager = Manager::builder().build().unwrap();
    let pages = StatusPages::new(&manager).unwrap().live_check("disk", || Err("it is full"));
    let site = Site::served(pages, |builder| builder);
    for path in ["/readyz", "/livez", "/healthz?verbose", "/livez/disk"] {
        assert_eq!(site.get(path).status, 503, "{path}");
    }
    assert_eq!(site.request("HEAD", "/livez").status, 503);
    let page = site.get("/").body;
    for part in ["<dt>server errors (5xx)</dt><dd class=\"none\">0</dd>", "<dt>failed probes</dt><dd class=\"\">5</dd>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<th scope=\"row\">GET") && !page.contains("<th scope=\"row\">HEAD"), "{page}");
    let metrics = site.get("/metrics").body;
    assert!(metrics.contains("homeostat_server_failed_health_checks_total 5\n"), "{metrics}");
    assert!(!metrics.contains("code=\"503\""), "{metrics}");
    let counts = site.server.counts();
    assert_eq!((counts.server_errors, counts.failed_health_checks), (0, 5));
}

#[test]
fn objects_that_are_not_ready_come_first_and_are_linked_with_their_keys() {
    let kind = Kind::namespaced("example.com", "v1", "Site");
    let client = Arc::new(MemoryClient::new());
    for (name, status, reason) in
        [("a-home", "True", "Probe"), ("b-blog", "Unknown", ""), ("c-shop", "False", "NoDisk")]
    {
        let mut site = json!({
            "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"namespace": "default", "name": name},
            "status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": "told"}]},
        });
        site["metadata"]["resourceVersion"] = client.create(&kind, site.clone()).unwrap().resource_version().into();
        client.update_status(&kind, site).unwrap();
    }
    let api = ObjectApi::builder(client.clone()).serve(ServedResource::new(kind.clone())).build().unwrap();
    let store = client;
    let manager = Manager::builder().build().unwrap();
    let reconcile = |_cx: &Context, _key: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let controller = Controller::builder("site", reconcile).build().unwrap();
    let sites = controller.handle();
    manager.add(controller).unwrap();
    let pages = StatusPages::new(&manager).unwrap().objects(&api);
    let served = Site::served(pages, |builder| {
        let builder = builder.token("ada", UserInfo::new("ada")).token("bob", UserInfo::new("bob"));
        builder.authorize(|request| match &request.target {
            AccessTarget::Path(path)
                if request.user.name == "bob" && path.starts_with("/keys/") && path.contains("c-shop") =>
            {
                Access::Deny("no keys".to_owned())
            }
            AccessTarget::Objects { name, .. } if request.user.name == "bob" && name == "a-home" => {
                Access::Deny("not this object".to_owned())
            }
            _ => Access::Allow,
        })
    });
    let running = manager.start().unwrap();
    for key in ["default/c-shop", "default/a-home"] {
        sites.enqueue(key.to_owned());
        sites.wait(&key.to_owned(), Duration::from_secs(60)).unwrap();
    }
    let list = served.get_as("ada", "/objects/sites.v1.example.com").body;
    let at = |name: &str| list.find(&format!("default/{name}\"")).unwrap();
    assert!(at("c-shop") < at("b-blog") && at("b-blog") < at("a-home"), "{list}");
    assert!(list.contains("data-label=\"reason\"><bdi>NoDisk</bdi>"), "{list}");
    assert!(list.contains("data-label=\"message\">told</td>"), "{list}");
    let home = served.get_as("ada", "/").body;
    assert!(home.contains("<a href=\"#objects\">Objects</a> <b class=\"warn\">2 not ready</b>"), "{home}");
    let attention = home.split("id=\"attention\">Needs attention <small>2</small>").nth(1).expect(&home);
    let attention = attention.split("</section>").next().unwrap();
    for part in ["c-shop\"", "b-blog\"", ">not ready</span>", ">unknown</span>", "data-label=\"why\">told</td>"] {
        assert!(attention.contains(part) && !attention.contains("a-home"), "{part}: {attention}");
    }
    for name in ["d-chat", "e-mail"] {
        let mut site = json!({
            "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"namespace": "default", "name": name},
            "status": {"conditions": [{"type": "Ready", "status": "False", "message": "told"}]},
        });
        site["metadata"]["resourceVersion"] = store.create(&kind, site.clone()).unwrap().resource_version().into();
        store.update_status(&kind, site).unwrap();
    }
    let home = served.get_as("ada", "/").body;
    assert!(home.contains("Needs attention <small>4</small>"), "{home}");
    let many = home.split("<summary>4 objects</summary>").nth(1).expect(&home).split("</details>").next().unwrap();
    assert_eq!(many.matches("<a class=\"key\"").count(), 4, "{many}");

    let (key, object) = ("/keys/site/%22default%2Fc-shop%22", "/objects/sites.v1.example.com/default/c-shop");
    let shown = served.get_as("ada", key).body;
    assert!(
        shown.contains(&format!("<dt>Object</dt><dd><bdi>Site</bdi> <a class=\"key\" href=\"{object}\"")),
        "{shown}"
    );
    let shown = served.get_as("ada", object).body;
    assert!(shown.contains("<dt>Owner</dt><dd>none</dd>") && shown.contains(" <small>since "), "{shown}");
    assert!(shown.contains(&format!("<dt>Keys of its name</dt><dd><a class=\"key\" href=\"{key}\"")), "{shown}");
    let state = shown.split("<dt>Keys of its name</dt>").nth(1).unwrap().split("</dd>").next().unwrap();
    assert!(state.contains("</a> (idle, last <span") && state.ends_with(" ago)"), "{state}");
    let row = format!("<dt>Server</dt><dd>at {}; without TLS; only with a login</dd>", served.server.addresses()[0]);
    assert!(home.contains(&row), "{home}");
    let keyless = served.get_as("ada", &object.replace("c-shop", "d-chat")).body;
    assert!(
        keyless.contains("<dt>Keys of its name</dt><dd>none: no controller knows a key with this name</dd>"),
        "{keyless}"
    );
    // A link is only for those who may follow it.
    let shown = served.get_as("bob", object).body;
    assert!(shown.contains("<dt>Namespace</dt>") && !shown.contains("<dt>Keys of its name</dt>"), "{shown}");
    let shown = served.get_as("bob", "/keys/site/%22default%2Fa-home%22").body;
    assert!(shown.contains("<dt>Last run</dt>") && !shown.contains("<dt>Object</dt>"), "{shown}");
    let found = served.get_as("ada", "/search?q=shop").body;
    assert!(found.contains(">not ready</span>") && found.contains("data-label=\"message\">told</td>"), "{found}");
    running.shutdown(Duration::from_secs(10)).unwrap();
}

/// A client that lists over the network.
struct Remote(MemoryClient);

impl ClientLayer for Remote {
    fn inner(&self) -> &dyn Client {
        &self.0
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        call.send(&self.0, kind)
    }

    fn around(&self, _inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn declared_capabilities(&self) -> Capabilities {
        self.0.capabilities().local(false)
    }
}

#[test]
fn the_whole_list_of_a_kind_over_the_network_says_that_there_is_more_without_a_link_to_itself() {
    let kind = Kind::namespaced("example.com", "v1", "Site");
    let client = MemoryClient::new();
    for number in 0..1_001 {
        let metadata = json!({"namespace": "default", "name": format!("site-{number}")});
        client.create(&kind, json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": metadata})).unwrap();
    }
    let api = ObjectApi::builder(Arc::new(Remote(client))).serve(ServedResource::new(kind)).build().unwrap();
    let manager = Manager::builder().build().unwrap();
    let served = Site::served(StatusPages::new(&manager).unwrap().objects(&api), ServerBuilder::allow_anonymous);
    let page = served.get("/objects/sites.v1.example.com").body;
    assert!(page.contains(", and more <a href=\"?all=1#objects\">show all</a>"), "{page}");
    let all = served.get("/objects/sites.v1.example.com?all=1").body;
    let heading = all.split("<h2 id=\"objects\">").nth(1).expect(&all).split("</h2>").next().unwrap();
    assert_eq!(heading, "Objects <small>1,000, and more</small>");
    assert_eq!(all.matches("/objects/sites.v1.example.com/default/site-").count(), 1_000);
}
