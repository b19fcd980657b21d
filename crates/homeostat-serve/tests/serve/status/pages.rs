//! The pages, as a client gets them from a server.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Component, Context, Controller, Manager};
use homeostat_objects::{Client, Kind, MemoryClient};
use homeostat_serve::{
    Access, AccessTarget, ObjectApi, ObjectApiBuilder, ServedResource, Server, StatusPages, UserInfo,
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
        "referrer-policy: no-referrer",
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
        assert!(answer.body.contains("<dt>Why it ran</dt><dd>manual"));
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
    let pages = StatusPages::new(&manager).unwrap().objects(&api.unwrap());
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
        "kubectl get sites.v1.example.com -A</code>",
        "kubectl get sites.v1beta1.example.com -A</code>",
        "kubectl get events -A</code>",
        "kubectl get nodes</code>",
        ">1,200</span>",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!all.contains("Namespace"), "a virtual kind has no objects");
    let some = served.get_as("some", "/").body;
    assert!(some.contains("Objects <small>1</small>") && some.contains("kubectl get nodes"), "{some}");
    assert!(!some.contains("kubectl get sites"), "{some}");
}
