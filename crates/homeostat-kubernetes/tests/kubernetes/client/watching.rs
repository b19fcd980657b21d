//! The stream of one watch.

use std::thread::scope;
use std::time::Duration;

use homeostat::CancellationToken;
use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{
    Client, ClientError, ClientErrorKind, DeleteOptions, ObjectStream, Query, SharedObject, WatchEvent,
};
use homeostat_testing::{ApiServer, IncomingRequest, ServerAnswer, ServerRule};
use serde_json::{Value, json};

use super::{CONFIG_MAP, builder, client, map};
use crate::until::within;
use homeostat::rt::Chain;
use homeostat_test_support::system::pause;

/// Returns an object with a version.
fn at(name: &str, version: &str) -> Value {
    let mut object = map(name);
    object["metadata"]["resourceVersion"] = json!(version);
    object
}

fn mark(version: &str, ends_initial: bool) -> Value {
    let mut meta = json!({"resourceVersion": version});
    if ends_initial {
        meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
}

/// Returns the events of a stream as short texts.
fn texts(stream: ObjectStream) -> Vec<String> {
    stream.map(text).collect()
}

fn text(event: Result<WatchEvent<SharedObject>, ClientError>) -> String {
    match event {
        Ok(WatchEvent::Added(object)) => format!("+{}", object.name()),
        Ok(WatchEvent::Modified(object)) => format!("~{}", object.name()),
        Ok(WatchEvent::Deleted(object)) => format!("-{}", object.name()),
        Ok(WatchEvent::Bookmark(version)) => format!("@{version}"),
        Err(error) => Chain(&error).to_string(),
    }
}

fn watches(server: &ApiServer) -> Vec<IncomingRequest> {
    server.requests().into_iter().filter(IncomingRequest::is_watch).collect()
}

fn watch(server: &ApiServer, query: &Query, from: Option<&str>) -> ObjectStream {
    client(server).watch(&CONFIG_MAP, query, from, &CancellationToken::new()).unwrap()
}

#[test]
fn a_streamed_list_ends_with_its_bookmark() {
    let server = ApiServer::start().unwrap();
    let answer = ServerAnswer::new(200)
        .event("ADDED", at("a", "1"))
        .event("BOOKMARK", mark("1", false))
        .event("ADDED", at("b", "2"))
        .event("BOOKMARK", mark("3", true))
        .event("MODIFIED", at("a", "4"))
        .event("BOOKMARK", mark("5", false));
    server.rule(ServerRule::new("GET", "/api/v1/configmaps").answer(answer));
    assert_eq!(texts(watch(&server, &Query::all(), None)), ["+a", "+b", "@3", "~a", "@5"]);
    let request = &watches(&server)[0];
    let parameters = ["sendInitialEvents", "resourceVersionMatch", "allowWatchBookmarks", "resourceVersion"];
    let values = parameters.map(|name| request.parameter(name));
    assert_eq!(values, [Some("true"), Some("NotOlderThan"), Some("true"), None]);
}

/// Any other refusal may concern only one query, and a failure only one moment.
#[test]
fn a_server_that_streams_no_lists_is_asked_once() {
    for (refusal, requests) in [
        (ServerAnswer::error(422, "Invalid", "sendInitialEvents is forbidden"), 1),
        (ServerAnswer::error(422, "Invalid", "resourceVersionMatch is forbidden for watch"), 1),
        (ServerAnswer::new(200).error_event(422, "Invalid", "sendInitialEvents is forbidden"), 1),
        (ServerAnswer::new(200).error_event(500, "InternalError", "etcdserver: leader changed"), 2),
        (ServerAnswer::error(422, "Invalid", "this selector is not supported"), 2),
    ] {
        let server = ApiServer::start().unwrap();
        server.client().create(&CONFIG_MAP, map("a")).unwrap();
        server.rule(ServerRule::new("GET", "*").query("sendInitialEvents", "true").otherwise(refusal));
        let client = client(&server);
        for _ in 0..2 {
            let stop = CancellationToken::new();
            let mut stream = client.watch(&CONFIG_MAP, &Query::all(), None, &stop).unwrap();
            assert_eq!(text(stream.next().unwrap()), "+a");
            let bookmark = text(stream.next().unwrap());
            let version = server.client().list(&CONFIG_MAP, &Query::all()).unwrap().version;
            assert_eq!(bookmark, format!("@{version}"));
            server.client().create(&CONFIG_MAP, map("b")).unwrap();
            assert_eq!(text(stream.next().unwrap()), "+b");
            server.client().delete(&CONFIG_MAP, &super::key("b"), &DeleteOptions::default()).unwrap();
        }
        let asked = watches(&server).iter().filter(|request| request.parameter("sendInitialEvents").is_some()).count();
        assert_eq!(asked, requests);
    }
}

/// An object watch must see the refusal, so that it can list in its own way.
#[test]
fn a_streamed_list_that_the_server_refuses_is_an_error() {
    let lacks_feature =
        "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
    let cases = [
        (ServerAnswer::error(422, "Invalid", "resourceVersionMatch is forbidden for watch"), true, 1),
        (ServerAnswer::new(200).error_event(500, "InternalError", lacks_feature), true, 1),
        (ServerAnswer::error(422, "Invalid", "this selector is not supported"), true, 2),
        (ServerAnswer::new(200).error_event(500, "InternalError", "etcdserver: leader changed"), false, 2),
    ];
    for (refusal, is_invalid, requests) in cases {
        let server = ApiServer::start().unwrap();
        server.rule(ServerRule::new("GET", "*").otherwise(refusal));
        let client = client(&server);
        for _ in 0..2 {
            let error = match client.stream_list(&CONFIG_MAP, &Query::all(), &CancellationToken::new()) {
                Err(error) => error,
                Ok(mut stream) => {
                    let error = stream.next().unwrap().unwrap_err();
                    assert!(stream.next().is_none());
                    error
                }
            };
            assert_eq!((error.is_invalid(), error.object().key().name()), (is_invalid, ""), "{error}");
        }
        assert_eq!(server.requests().len(), requests);
    }
}

#[test]
fn an_expired_version_is_gone() {
    let server = ApiServer::start().unwrap();
    server.rule(ServerRule::new("GET", "*").answer(ServerAnswer::new(200).error_event(410, "Expired", "too old")));
    let mut stream = watch(&server, &Query::all(), Some("7"));
    let error = stream.next().unwrap().unwrap_err();
    assert!(error.is_gone() && error.to_string().contains("version 7"), "{error}");
    assert!(stream.next().is_none());
    server.rule(ServerRule::new("GET", "*").answer(ServerAnswer::error(410, "Expired", "too old")));
    let client = client(&server);
    let refused = client.watch(&CONFIG_MAP, &Query::all(), Some("7"), &CancellationToken::new());
    assert!(refused.unwrap_err().is_gone());
}

#[test]
fn other_errors_end_the_stream_with_their_type() {
    let server = ApiServer::start().unwrap();
    let answer = ServerAnswer::new(200).event("ADDED", at("a", "8")).error_event(403, "Forbidden", "rights were taken");
    server.rule(ServerRule::new("GET", "*").answer(answer));
    let events: Vec<_> = watch(&server, &Query::all(), Some("7")).collect();
    assert!(events[0].is_ok() && *events[1].as_ref().unwrap_err().kind() == ClientErrorKind::Forbidden);
    assert_eq!(events.len(), 2);
    for code in [401, 403, 500] {
        server.clear_rules();
        let status = json!({"kind": "Status", "code": code, "message": "no"});
        let pretty = serde_json::to_string_pretty(&status).unwrap();
        server.rule(ServerRule::new("GET", "*").otherwise(ServerAnswer::new(code).text(pretty)));
        let error =
            client(&server).watch(&CONFIG_MAP, &Query::all(), Some("7"), &CancellationToken::new()).unwrap_err();
        let is_typed = [
            *error.kind() == ClientErrorKind::Unauthorized,
            *error.kind() == ClientErrorKind::Forbidden,
            error.is_transport(),
        ];
        assert_eq!(is_typed, [code == 401, code == 403, code == 500], "{error}");
    }
}

#[test]
fn an_object_that_cannot_be_decoded_does_not_end_the_stream() {
    let server = ApiServer::start().unwrap();
    let mut deep = at("deep", "9").to_string();
    deep.insert_str(1, &format!(r#""spec": {}1{},"#, "[".repeat(1000), "]".repeat(1000)));
    let answer = ServerAnswer::new(200)
        .event("ADDED", at("a", "8"))
        .text(format!("{{\"type\": \"ADDED\", \"object\": {deep}}}\n"))
        .event("MODIFIED", at("a", "10"))
        .text("no JSON\n")
        .event("DELETED", at("a", "11"));
    server.rule(ServerRule::new("GET", "*").answer(answer));
    let events = texts(watch(&server, &Query::all(), Some("7")));
    assert_eq!((events.len(), events[0].as_str(), events[2].as_str(), events[4].as_str()), (5, "+a", "~a", "-a"));
    let expected = "ConfigMap default/deep is invalid: an event of the watch cannot be read: recursion limit exceeded";
    assert!(events[1].starts_with(expected), "{}", events[1]);
}

#[test]
fn an_object_that_cannot_be_decoded_does_not_hide_the_others_of_a_list() {
    let server = ApiServer::start().unwrap();
    server.rule(
        ServerRule::new("GET", "*")
            .when(IncomingRequest::is_watch)
            .otherwise(ServerAnswer::error(422, "Invalid", "no")),
    );
    let mut deep = at("deep", "9").to_string();
    deep.insert_str(1, &format!(r#""spec": {}1{},"#, "[".repeat(1000), "]".repeat(1000)));
    let list = format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{deep}, {}]}}"#, at("z", "8"));
    server.rule(ServerRule::new("GET", "*").otherwise(ServerAnswer::new(200).text(list)));
    let expected = "ConfigMap default/deep is invalid: the object in a list cannot be read: recursion limit exceeded";
    let client = client(&server);
    let error = client.list(&CONFIG_MAP, &Query::all()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    let (list, unreadable) = client.list_readable(&CONFIG_MAP, &Query::all(), &CancellationToken::new()).unwrap();
    assert_eq!((list.version.as_str(), list.items.len(), list.items[0].name()), ("9", 1, "z"));
    assert_eq!((unreadable.len(), unreadable[0].to_string()), (1, error.clone()));
    // The list that replaces a streamed one.
    let stream = client.watch(&CONFIG_MAP, &Query::all(), None, &CancellationToken::new()).unwrap();
    assert_eq!(texts(stream)[..3], ["+z".to_owned(), error, "@9".to_owned()]);
}

#[test]
fn a_broken_connection_is_an_error_and_a_clean_end_is_not() {
    let server = ApiServer::start().unwrap();
    let begin = || ServerAnswer::new(200).event("ADDED", at("a", "8"));
    server.rule(ServerRule::new("GET", "*").answer(begin()).answer(begin().text("{\"type\":").cut()));
    assert_eq!(texts(watch(&server, &Query::all(), Some("7"))), ["+a"]);
    let events = texts(watch(&server, &Query::all(), Some("7")));
    assert_eq!((events.len(), events[0].as_str()), (2, "+a"));
    assert!(events[1].contains("the connection broke"), "{}", events[1]);
}

#[test]
fn an_endless_event_is_refused() {
    let server = ApiServer::start().unwrap();
    server.rule(ServerRule::new("GET", "*").answer(ServerAnswer::new(200).repeat(vec![b'x'; 1 << 20])));
    let events = texts(watch(&server, &Query::all(), Some("7")));
    assert_eq!(events.len(), 1);
    assert!(events[0].contains("an event of the watch has more than 67108864 bytes"), "{}", events[0]);
}

#[test]
fn fifty_blocked_watches_end_when_they_are_stopped() {
    let server = ApiServer::start().unwrap();
    let client = client(&server);
    let stop = CancellationToken::new();
    scope(|scope| {
        let readers: Vec<_> = (0..50)
            .map(|_| {
                let mut stream = client.watch(&CONFIG_MAP, &Query::all(), Some("0"), &stop).unwrap();
                assert!(matches!(stream.next(), Some(Ok(WatchEvent::Bookmark(_)))));
                scope.spawn(move || stream.next().is_none())
            })
            .collect();
        assert_eq!(watches(&server).len(), 50);
        stop.cancel();
        assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    });
}

#[test]
fn a_watch_that_waits_for_its_answer_ends_when_it_is_stopped() {
    let server = ApiServer::start().unwrap();
    server.rule(ServerRule::new("GET", "*").otherwise(ServerAnswer::new(200).wait(&CancellationToken::new())));
    let client = client(&server);
    let stop = CancellationToken::new();
    scope(|scope| {
        let reader =
            scope.spawn(|| client.watch(&CONFIG_MAP, &Query::all(), Some("7"), &stop).unwrap().next().is_none());
        server.wait_for_requests(|requests| requests.len() == 1);
        stop.cancel();
        assert!(reader.join().unwrap());
    });
    let mut stopped = client.watch(&CONFIG_MAP, &Query::all(), None, &stop).unwrap();
    assert!(stopped.next().is_none());
    assert_eq!(server.requests().len(), 1);
}

/// A stop also ends the other waits of a watch: for the body of a refusal, for a list that replaces a streamed one,
/// and for the list of kinds.
#[test]
fn every_wait_of_a_watch_ends_when_it_is_stopped() {
    let silent = |code| ServerAnswer::new(code).text("{").wait(&CancellationToken::new());
    let unstreamed = || ServerAnswer::error(422, "Invalid", "sendInitialEvents is forbidden");
    let unknown = || ServerAnswer::new(404).header("Content-Type", "text/plain").text("404 page not found");
    let in_stream = || ServerAnswer::new(200).error_event(500, "InternalError", "etcd cannot stream");
    let cases = [
        ("the body of a refusal", Some("7"), silent(502), 1),
        ("a list after a refusal", None, unstreamed(), 2),
        ("a list after an error event", None, in_stream(), 2),
        ("the list of kinds", Some("7"), unknown(), 2),
    ];
    for (what, from, first, count) in cases {
        let server = ApiServer::start().unwrap();
        server.rule(ServerRule::new("GET", "*").answer(first).otherwise(silent(200)));
        let hour = Duration::from_secs(3600);
        let client = builder(&server).read_timeout(hour).call_timeout(hour).build().unwrap();
        let stop = CancellationToken::new();
        scope(|scope| {
            let reader =
                scope.spawn(|| client.watch(&CONFIG_MAP, &Query::all(), from, &stop).unwrap().next().is_none());
            server.wait_for_requests(|requests| requests.len() == count);
            // By now the client usually waits for the body. A stop must end any earlier wait too.
            pause(Duration::from_millis(100));
            stop.cancel();
            assert!(reader.join().unwrap(), "{what}");
        });
    }
}

#[test]
fn a_watch_that_connects_ends_when_it_is_stopped() {
    // This listener's queue is full, so the system accepts no further connection.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let _fill: Vec<_> =
        (0..4).map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))).collect();
    let config = ClusterConfig::new(&format!("http://{address}")).unwrap();
    let minutes = Duration::from_secs(600);
    let client = KubernetesClient::builder(config).connect_timeout(minutes).build().unwrap();
    let stop = CancellationToken::new();
    scope(|scope| {
        let reader =
            scope.spawn(|| client.watch(&CONFIG_MAP, &Query::all(), Some("7"), &stop).unwrap().next().is_none());
        within(minutes, "the watch connects", || connects_to(address.port()).then_some(()));
        stop.cancel();
        assert!(reader.join().unwrap());
    });
}

/// Returns whether a socket on this computer is waiting to connect to the port.
fn connects_to(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let target = format!("0100007F:{port:04X}");
    sockets.lines().any(|line| line.split_whitespace().skip(2).take(2).eq([target.as_str(), "02"]))
}

#[test]
fn fields_that_the_server_does_not_know_are_selected_by_the_client() {
    let server = ApiServer::start().unwrap();
    let with = |name: &str, version: &str, value: &str| {
        let mut object = at(name, version);
        object["data"]["a"] = json!(value);
        object
    };
    let refusal = ServerAnswer::error(400, "BadRequest", "field label not supported: data.a");
    let knows =
        |request: &IncomingRequest| request.parameter("fieldSelector").is_none_or(|fields| !fields.contains("data.a"));
    server.rule(ServerRule::new("GET", "*").when(move |request| !knows(request)).otherwise(refusal));
    let answer = ServerAnswer::new(200)
        .event("ADDED", with("a", "1", "x"))
        .event("ADDED", with("b", "2", "y"))
        .event("BOOKMARK", mark("3", true))
        .event("MODIFIED", with("b", "4", "x"))
        .event("MODIFIED", with("b", "5", "x"))
        .event("MODIFIED", with("a", "6", "y"))
        .event("MODIFIED", with("a", "7", "z"))
        .event("DELETED", with("a", "8", "z"))
        .event("DELETED", with("b", "9", "x"));
    server.rule(ServerRule::new("GET", "*").query("watch", "1").otherwise(answer));
    let query = Query::all().field("data.a", "x").field("metadata.namespace", "default");
    let client = client(&server);
    let events = client.watch(&CONFIG_MAP, &query, None, &CancellationToken::new()).unwrap();
    assert_eq!(texts(events), ["+a", "@3", "+b", "~b", "-a", "-b"]);
    // The reader may know any object from before the version.
    let events = client.watch(&CONFIG_MAP, &query, Some("3"), &CancellationToken::new()).unwrap();
    assert_eq!(texts(events), ["+a", "@3", "~b", "~b", "-a", "-a", "-a", "-b"]);
    let fields: Vec<_> =
        watches(&server).iter().map(|request| request.parameter("fieldSelector").unwrap().len()).collect();
    assert_eq!((fields.len(), fields[0] > fields[1], fields[1] == fields[2]), (3, true, true));
    for (name, value) in [("a", "x"), ("b", "y")] {
        server.client().create(&CONFIG_MAP, with(name, "", value)).unwrap();
    }
    let names: Vec<_> =
        client.list(&CONFIG_MAP, &query).unwrap().items.iter().map(|item| item.name().to_owned()).collect();
    assert_eq!(names, ["a"]);
}
