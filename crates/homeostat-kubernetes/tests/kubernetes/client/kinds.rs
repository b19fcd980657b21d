//! Kinds with irregular plurals, and kinds that the server does not serve.

use homeostat_objects::{Client, ClientErrorKind, Kind, Query};
use homeostat_testing::ApiServer;
use serde_json::json;

use super::{client, key};

const WIDGET: Kind = Kind::namespaced("example.com", "v1", "Widget");

#[test]
fn a_kind_with_an_irregular_plural_is_found() {
    const GOOSE: Kind = Kind::namespaced("example.com", "v1", "Goose");
    let server = ApiServer::start().unwrap();
    server.serve(GOOSE.with_plural("geese"));
    let client = client(&server);
    let goose =
        json!({"apiVersion": "example.com/v1", "kind": "Goose", "metadata": {"namespace": "default", "name": "a"}});
    client.create(&GOOSE, goose).unwrap();
    assert_eq!(client.get(&GOOSE, &key("a")).unwrap().name(), "a");
    let paths: Vec<_> = server.requests().into_iter().map(|request| request.path().to_owned()).collect();
    let expected = [
        "/apis/example.com/v1/namespaces/default/gooses",
        "/apis/example.com/v1",
        "/apis/example.com/v1/namespaces/default/geese",
        "/apis/example.com/v1/namespaces/default/geese/a",
    ];
    assert_eq!(paths, expected);
    let found = client.served_kind(&GOOSE).unwrap();
    assert_eq!((found.plural.as_str(), found.namespaced), ("geese", true));
}

#[test]
fn a_kind_that_is_served_again_with_another_plural_is_found() {
    const GOOSE: Kind = Kind::namespaced("example.com", "v1", "Goose");
    let server = ApiServer::start().unwrap();
    let clock = homeostat::ManualClock::new();
    let client = super::builder(&server).clock(clock.clock()).build().unwrap();
    let plural = || client.served_kind(&GOOSE).map(|served| served.plural);
    for name in ["geese", "gooses", "geese", "goose"] {
        let kind = GOOSE.with_plural(name);
        server.serve(kind.clone());
        clock.advance(std::time::Duration::from_secs(1));
        assert!(client.list(&GOOSE, &Query::all()).unwrap().items.is_empty(), "{name}");
        assert_eq!(plural().unwrap(), name);
        server.withdraw(&kind);
    }
    assert_eq!(*plural().unwrap_err().kind(), ClientErrorKind::KindNotServed);
    // The list of kinds was read just before.
    let before = server.requests().len();
    assert!(*client.list(&GOOSE, &Query::all()).unwrap_err().kind() == ClientErrorKind::KindNotServed);
    assert_eq!(server.requests().len(), before + 1);
}

#[test]
fn a_kind_that_is_not_served_is_an_error_until_it_is() {
    let server = ApiServer::start().unwrap();
    let clock = homeostat::ManualClock::new();
    let client = super::builder(&server).clock(clock.clock()).build().unwrap();
    let list = || client.list(&WIDGET, &Query::all());
    let error = list().unwrap_err();
    let expected = format!("{} has no group and version example.com/v1", server.url());
    assert!(*error.kind() == ClientErrorKind::KindNotServed && error.to_string().contains(&expected), "{error}");
    // The list of kinds is not read again at once.
    let before = server.requests().len();
    assert_eq!(*list().unwrap_err().kind(), ClientErrorKind::KindNotServed);
    assert_eq!(server.requests().len(), before + 1);
    server.serve(WIDGET);
    assert!(list().unwrap().items.is_empty());
    server.withdraw(&WIDGET);
    clock.advance(std::time::Duration::from_secs(2));
    assert_eq!(*list().unwrap_err().kind(), ClientErrorKind::KindNotServed);
    let error = client.list(&Kind::of("v1", "Planet"), &Query::all()).unwrap_err().to_string();
    assert!(error.contains(&format!("{} has v1 with the kinds ", server.url())), "{error}");
}
