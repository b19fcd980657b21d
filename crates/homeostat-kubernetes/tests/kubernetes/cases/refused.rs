//! Watches and lists that the server refuses or ends: cases 1 to 6.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{CancellationToken, ManualClock};
use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{
    Api, Client, ClientError, ClientErrorKind, DynamicObject, ObjectKey, ObjectWatch, Query, WatchEvent,
};
use homeostat_testing::{ApiServer, IncomingRequest, ServerAnswer, ServerRule};
use serde_json::{Value, json};

use super::{CONFIG_MAP, Follower, MAPS, PATIENCE, client_of, delete, fresh, map};
use crate::until::within;
use homeostat::rt::Chain;

/// Creates config maps on a scripted server.
fn server_with(names: &[&str]) -> ApiServer {
    let server = ApiServer::start().unwrap();
    for name in names {
        server.client().create(&CONFIG_MAP, map("default", name, 0)).unwrap();
    }
    server
}

fn in_default() -> Query {
    Query::all().namespace("default")
}

/// Returns a rule for watches of config maps.
fn watches() -> ServerRule {
    ServerRule::new("GET", MAPS).when(IncomingRequest::is_watch)
}

/// Returns a rule for lists of config maps.
fn lists() -> ServerRule {
    ServerRule::new("GET", MAPS).when(|request| !request.is_watch())
}

fn is_streaming(request: &IncomingRequest) -> bool {
    request.parameter("sendInitialEvents") == Some("true")
}

/// Waits until the follower equals the server.
fn equals(follower: &Follower, server: &ApiServer) {
    follower.waits_until_equal(|| Some(fresh(server.client(), &CONFIG_MAP, &in_default())));
}

/// Returns the error of a watch that starts at a version.
fn refusal(client: &KubernetesClient) -> ClientError {
    let stop = CancellationToken::new();
    match client.watch(&CONFIG_MAP, &in_default(), Some("1"), &stop) {
        Ok(mut events) => {
            let error = events.next().expect("an item").expect_err("an error");
            assert!(events.next().is_none(), "the stream ends after its error");
            error
        }
        Err(error) => error,
    }
}

#[test]
fn case_01_a_refused_watch_is_one_typed_error() {
    type Is = fn(&ClientError) -> bool;
    let cases: [(u16, &str, Is); 3] = [
        (403, "Forbidden", |error| *error.kind() == ClientErrorKind::Forbidden),
        (429, "TooManyRequests", |error| matches!(error.kind(), ClientErrorKind::TooManyRequests { .. })),
        (500, "InternalError", ClientError::is_transport),
    ];
    for (code, reason, is_it) in cases {
        let server = server_with(&["a"]);
        let status = json!({"kind": "Status", "code": code, "reason": reason, "message": "the reason of the server"});
        let pretty = serde_json::to_string_pretty(&status).unwrap();
        assert!(pretty.lines().count() > 3);
        server.rule(watches().otherwise(ServerAnswer::new(code).text(pretty)));
        let config = homeostat_kubernetes::ClusterConfig::new(&server.url()).unwrap();
        let client = KubernetesClient::builder(config).call_timeout(Duration::from_millis(100)).build().unwrap();
        let error = refusal(&client);
        assert!(is_it(&error), "{error:?}");
        assert!(Chain(&error).to_string().contains("the reason of the server"), "{error:?}");
    }
}

#[test]
fn case_01_a_watch_heals_after_refusals() {
    let server = server_with(&["a", "b"]);
    for (code, reason) in [(403, "Forbidden"), (429, "TooManyRequests"), (500, "InternalError")] {
        server.rule(watches().answer(ServerAnswer::error(code, reason, "not now")));
    }
    let follower = Follower::start(&client_of(&server), &CONFIG_MAP, in_default());
    equals(&follower, &server);
    server.client().create(&CONFIG_MAP, map("default", "c", 0)).unwrap();
    equals(&follower, &server);
    assert!(server.requests().iter().filter(|request| request.is_watch()).count() > 3);
}

#[test]
fn case_02_an_expired_version_in_the_stream_and_on_the_list_leads_to_a_new_list() {
    let server = server_with(&["a", "b", "c"]);
    let follower = Follower::start(&client_of(&server), &CONFIG_MAP, in_default()).synced();
    server.wait_for_requests(|all| all.iter().any(IncomingRequest::is_watch));
    // The versions of the next watch and the next list have expired.
    let expired = ServerAnswer::new(200).error_event(410, "Expired", "too old resource version: 1 (5)");
    server.rule(watches().when(|request| !is_streaming(request)).answer(expired));
    server.rule(lists().answer(ServerAnswer::error(410, "Expired", "the provided resource version is too old")));
    delete(server.client(), &CONFIG_MAP, &ObjectKey::new("default", "a"));
    server.disconnect();
    equals(&follower, &server);
    assert_eq!(follower.deletions(), [ObjectKey::new("default", "a")]);
}

#[test]
fn case_03_a_list_survives_an_expired_page() {
    let server = server_with(&["a", "b", "c", "d"]);
    let expired = ServerAnswer::error(410, "Expired", "The provided continue parameter is too old");
    server.rule(lists().when(|request| request.parameter("continue").is_some()).otherwise(expired));
    // Without streamed lists, the watch must list.
    server.rule(watches().when(is_streaming).otherwise(ServerAnswer::error(422, "Invalid", "not streamed")));
    let api = Api::<DynamicObject>::of_kind(Arc::new(client_of(&server)), CONFIG_MAP);
    let follower = Follower::of(ObjectWatch::new(api).query(in_default().limit(2)));
    equals(&follower, &server);
    assert!(server.requests().iter().any(|request| request.parameter("continue").is_some()));
}

/// Makes a server refuse streamed lists, as servers before 1.27 do.
fn refuses_streams(server: &ApiServer) {
    let refusal = ServerAnswer::error(422, "Invalid", "resourceVersionMatch is forbidden for watch");
    server.rule(watches().when(is_streaming).otherwise(refusal));
}

/// Returns all complete lists so far as texts: the required version, the limit and the token.
fn ladder(server: &ApiServer) -> Vec<String> {
    let requests = server.requests();
    let is_list = |request: &&IncomingRequest| request.path() == MAPS && !request.is_watch();
    // Before it resumes, a watch lists a single object.
    let lists = requests.iter().filter(is_list).filter(|request| request.parameter("limit") != Some("1"));
    let text = |request: &IncomingRequest| {
        let parameters = ["resourceVersion", "resourceVersionMatch", "limit", "continue"];
        parameters.map(|name| request.parameter(name).unwrap_or("-")).join(" ")
    };
    lists.map(text).collect()
}

/// Makes the version of the next watch expire.
fn expires(server: &ApiServer) {
    let expired = ServerAnswer::new(200).error_event(410, "Expired", "too old resource version: 1 (5)");
    server.rule(watches().when(|request| !is_streaming(request)).answer(expired));
    server.disconnect();
}

fn page_of(server: &ApiServer, count: usize, token: &str) -> ServerAnswer {
    let list = server.client().list(&CONFIG_MAP, &in_default()).unwrap();
    let items = serde_json::to_value(&list.items[..count]).unwrap();
    ServerAnswer::json(200, json!({"metadata": {"resourceVersion": list.version, "continue": token}, "items": items}))
}

#[test]
fn case_03_a_list_that_the_watch_divides_into_pages_survives_an_expired_page() {
    let server = server_with(&["a", "b", "c", "d"]);
    refuses_streams(&server);
    server.rule(lists().answer(page_of(&server, 2, "second")).answer(page_of(&server, 3, "third")));
    server.rule(lists().answer(ServerAnswer::error(410, "Expired", "The provided continue parameter is too old")));
    let follower = Follower::start(&client_of(&server), &CONFIG_MAP, in_default()).synced();
    equals(&follower, &server);
    let expected = ["0 NotOlderThan 500 -", "- - 500 second", "- - 500 third", "0 NotOlderThan - -"];
    assert_eq!(ladder(&server), expected);
    // All pages of a list share one connection, although a stop of the watch could close it.
    let requests = server.requests();
    let pages = requests.iter().filter(|request| request.parameter("limit") == Some("500"));
    let connections: Vec<_> = pages.map(IncomingRequest::connection).collect();
    assert!(connections.len() == 3 && connections.iter().all(|one| *one == connections[0]), "{connections:?}");
}

#[test]
fn case_05_a_server_without_streamed_lists_is_listed_as_its_cache_allows() {
    let server = server_with(&["a", "b", "c"]);
    refuses_streams(&server);
    let client = client_of(&server);
    // A cache ignores the limit of a list of any version.
    server.rule(lists().query("resourceVersion", "0").answer(page_of(&server, 3, "")));
    let api = Api::<DynamicObject>::of_kind(Arc::new(client.clone()), CONFIG_MAP);
    let follower = Follower::of(ObjectWatch::new(api).query(in_default().limit(2)));
    equals(&follower, &server);
    assert_eq!(ladder(&server), ["0 NotOlderThan 2 -"]);
    let follows =
        |all: &[IncomingRequest]| all.iter().filter(|request| request.is_watch() && !is_streaming(request)).count();
    server.wait_for_requests(|all| follows(all) == 1);
    drop(follower);
    let follower = Follower::start(&client, &CONFIG_MAP, in_default()).synced();
    let version = server.client().list(&CONFIG_MAP, &in_default()).unwrap().version;
    server.wait_for_requests(|all| follows(all) == 2);
    expires(&server);
    delete(server.client(), &CONFIG_MAP, &ObjectKey::new("default", "a"));
    equals(&follower, &server);
    assert_eq!(follower.deletions(), [ObjectKey::new("default", "a")]);
    let lists = ladder(&server);
    assert_eq!(lists[1], "0 NotOlderThan 500 -");
    assert!(lists.contains(&format!("{version} NotOlderThan - -")), "{lists:?}");
    let streaming = server.requests().iter().filter(|request| is_streaming(request)).count();
    assert_eq!(streaming, 1, "the client remembers the refusal");
}

#[test]
fn case_05_a_cache_that_is_behind_leads_to_the_newest_list() {
    let server = server_with(&["a", "b"]);
    refuses_streams(&server);
    let follower = Follower::start(&client_of(&server), &CONFIG_MAP, in_default()).synced();
    server.wait_for_requests(|all| all.iter().any(|request| request.is_watch() && !is_streaming(request)));
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let behind = ServerAnswer::json(
        504,
        json!({
            "kind": "Status", "status": "Failure", "code": 504, "reason": "Timeout",
            "message": "Timeout: Too large resource version: 9, current: 8",
            "details": {"causes": [cause]},
        }),
    );
    let asks_for_version = |request: &IncomingRequest| {
        request.parameter("limit").is_none()
            && request.parameter("resourceVersion").is_some_and(|version| version != "0")
    };
    server.rule(lists().when(asks_for_version).answer(behind));
    expires(&server);
    server.client().create(&CONFIG_MAP, map("default", "c", 0)).unwrap();
    follower.waits_for(&ObjectKey::new("default", "c"), true);
    equals(&follower, &server);
    let lists = ladder(&server);
    assert_eq!((lists.len(), lists[0].as_str(), lists[2].as_str()), (3, "0 NotOlderThan 500 -", "- - 500 -"));
}

/// A stop ends the waits for a list, for its next page, and for the server's version.
#[test]
fn a_watch_that_lists_ends_when_it_is_stopped() {
    let silent = || ServerAnswer::new(200).text("{").wait(&CancellationToken::new());
    let hour = Duration::from_secs(3600);
    for (what, count) in [("a list", 2), ("a page", 3), ("the version of the server", 4)] {
        let server = server_with(&["a", "b"]);
        refuses_streams(&server);
        match what {
            "a list" => server.rule(lists().otherwise(silent())),
            "a page" => server.rule(lists().answer(page_of(&server, 1, "second")).otherwise(silent())),
            _ => server.rule(lists().answer(ServerAnswer::stored()).otherwise(silent())),
        }
        let config = homeostat_kubernetes::ClusterConfig::new(&server.url()).unwrap();
        let client = KubernetesClient::builder(config).read_timeout(hour).call_timeout(hour).build().unwrap();
        let follower = Follower::start(&client, &CONFIG_MAP, in_default());
        if what.starts_with("the version") {
            server.wait_for_requests(|all| all.len() == 3);
            server.disconnect();
        }
        server.wait_for_requests(|all| all.len() == count);
        // By now the client usually waits for the body. A stop must end any earlier wait too.
        homeostat_test_support::system::pause(Duration::from_millis(100));
        follower.watch.stop();
        follower.watch.join().unwrap();
    }
}

#[test]
fn case_04_a_streamed_list_ends_with_its_marker() {
    let server = server_with(&["a", "b"]);
    server.rule(lists().otherwise(ServerAnswer::error(500, "InternalError", "no list is needed")));
    let follower = Follower::start(&client_of(&server), &CONFIG_MAP, in_default()).synced();
    equals(&follower, &server);
    assert!(server.requests().iter().all(|request| !request.path().ends_with("configmaps") || is_streaming(request)));
}

#[test]
fn case_04_a_streamed_list_without_its_marker_falls_back_to_a_list() {
    let server = server_with(&["a", "b"]);
    server.rule(watches().when(is_streaming).otherwise(ServerAnswer::stored().without_bookmarks()));
    let clock = ManualClock::new();
    let configs = Api::of_kind(Arc::new(client_of(&server)), CONFIG_MAP);
    let follower = Follower::of(ObjectWatch::new(configs).query(in_default()).clock(clock.clock()));
    // The watch gives up on the marker after 30 seconds without a new object.
    within(PATIENCE, "the watch has listed", || {
        clock.advance(Duration::from_secs(1));
        follower.watch.watch().store().has_synced().then_some(())
    });
    equals(&follower, &server);
    server.client().create(&CONFIG_MAP, map("default", "c", 0)).unwrap();
    equals(&follower, &server);
}

#[test]
fn case_05_a_refused_streamed_list_falls_back_to_a_list() {
    let refused = ServerAnswer::error(422, "Invalid", "sendInitialEvents is forbidden for watch");
    let failing = ServerAnswer::new(200).error_event(500, "InternalError", "etcdserver: requested watch progress");
    for answer in [refused, failing] {
        let server = server_with(&["a", "b"]);
        server.rule(watches().when(is_streaming).otherwise(answer));
        let follower = Follower::start(&client_of(&server), &CONFIG_MAP, in_default()).synced();
        equals(&follower, &server);
        server.client().create(&CONFIG_MAP, map("default", "c", 0)).unwrap();
        equals(&follower, &server);
    }
}

#[test]
fn case_06_each_event_of_a_compressed_watch_arrives_at_once() {
    let server = server_with(&["a"]);
    // Compresses for clients that accept it, as servers since 1.37 do.
    let compresses =
        |request: &IncomingRequest| request.header("accept-encoding").is_some_and(|codings| codings.contains("gzip"));
    server.rule(watches().when(compresses).otherwise(ServerAnswer::stored().gzip()));
    let stop = CancellationToken::new();
    let version = server.client().list(&CONFIG_MAP, &in_default()).unwrap().version;
    let mut events = client_of(&server).watch(&CONFIG_MAP, &in_default(), Some(&version), &stop).unwrap();
    for name in ["b", "c", "d"] {
        // The next event is sent only after this one was read.
        server.client().create(&CONFIG_MAP, map("default", name, 0)).unwrap();
        let added = events.by_ref().map(Result::unwrap).find_map(|event| match event {
            WatchEvent::Added(object) => Some(object),
            _ => None,
        });
        assert_eq!(added.unwrap().name(), name);
    }
}

#[test]
fn hostile_answers_to_a_watch_are_bounded_and_refused() {
    let hostile: [(&str, ServerAnswer); 5] = [
        ("an endless line", ServerAnswer::new(200).repeat("x".repeat(100_000))),
        ("deep JSON", ServerAnswer::new(200).text("[".repeat(100_000)).text("\n")),
        ("another content type", ServerAnswer::new(200).header("Content-Type", "text/html").text("<html></html>\n")),
        ("a redirect", ServerAnswer::new(302).header("Location", "http://127.0.0.1:1/")),
        ("rubbish", ServerAnswer::new(200).text("rubbish\n")),
    ];
    for (what, answer) in hostile {
        let server = server_with(&["a"]);
        server.rule(watches().answer(answer));
        let error = refusal(&client_of(&server));
        assert!(!Chain(&error).to_string().is_empty(), "{what}");
        let read = Value::String(Chain(&error).to_string()).to_string();
        assert!(read.len() < 10_000, "the error about {what} has {} bytes", read.len());
    }
}

/// A tenant can store an object that is nested more deeply than the client accepts.
#[test]
fn case_11_an_object_that_is_nested_too_deeply_does_not_stop_a_watch() {
    for query in [in_default(), in_default().limit(10)] {
        let server = server_with(&["a", "b"]);
        // From now on, each list has a deeply nested object as its first one.
        let lists_are_deep = || {
            server.clear_rules();
            let refusal = ServerAnswer::error(422, "Invalid", "sendInitialEvents is forbidden");
            server.rule(watches().when(is_streaming).otherwise(refusal));
            let mut list =
                serde_json::to_value(server.client().list(&CONFIG_MAP, &in_default()).unwrap().items).unwrap();
            list[0]["data"] = json!("DEEP");
            let version = server.client().list(&CONFIG_MAP, &in_default()).unwrap().version;
            let list = json!({"metadata": {"resourceVersion": version}, "items": list}).to_string();
            let deep = format!("{}1{}", "[".repeat(130), "]".repeat(130));
            server.rule(lists().otherwise(ServerAnswer::new(200).text(list.replace("\"DEEP\"", &deep))));
        };
        let refusal = ServerAnswer::error(422, "Invalid", "sendInitialEvents is forbidden");
        server.rule(watches().when(is_streaming).otherwise(refusal));
        let follower = Follower::start(&client_of(&server), &CONFIG_MAP, query).synced();
        server.wait_for_requests(|all| all.iter().any(|request| request.is_watch() && !is_streaming(request)));
        let creates = |name: &str| {
            server.disconnect();
            server.client().create(&CONFIG_MAP, map("default", name, 0)).unwrap();
            follower.waits_for(&ObjectKey::new("default", name), true);
        };
        // The list of one object before a new stream.
        lists_are_deep();
        creates("c");
        // The list of all objects.
        lists_are_deep();
        let expired = ServerAnswer::new(200).error_event(410, "Expired", "too old resource version: 1 (5)");
        server.rule(watches().when(|request| !is_streaming(request)).answer(expired));
        creates("d");
        // The object keeps its last value.
        equals(&follower, &server);
        assert_eq!(follower.deletions(), []);
        let status = follower.watch.watch().source().status();
        assert!(status.to_string().contains("recursion limit"), "{status:?}");
    }
}
