//! Retries, credentials, limits and hostile answers.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::scope;
use std::time::Duration;

use homeostat::{CancellationToken, ManualClock};
use homeostat_kubernetes::{ClusterConfig, Impersonation, Kubeconfig, KubernetesClient, RequestError};
use homeostat_objects::{
    Client, ClientAnswer, ClientCall, ClientError, ClientErrorKind, ClientLayer, DeleteOptions, Kind, Query,
};
use homeostat_testing::{ApiServer, IncomingRequest, ServerAnswer, ServerRule};
use serde_json::{Value, json};

use super::{CONFIG_MAP, builder, client, key, map};
use homeostat::rt::Chain;
use homeostat_test_support::system::pause;
use std::error::Error;

const SECOND: Duration = Duration::from_secs(1);
const NANOSECOND: Duration = Duration::from_nanos(1);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn busy(code: u16, seconds: &str) -> ServerAnswer {
    ServerAnswer::error(code, "TooManyRequests", "storage is (re)initializing").header("Retry-After", seconds)
}

/// Returns the methods of all requests so far.
fn methods(server: &ApiServer) -> Vec<String> {
    server.requests().into_iter().map(|request| request.method().to_owned()).collect()
}

#[test]
fn a_call_waits_as_long_as_the_server_asks() {
    let server = ApiServer::start().unwrap();
    server.rule(ServerRule::new("POST", "*").answer(busy(429, "5")).answer(busy(503, "7")));
    let clock = ManualClock::new();
    let client = builder(&server).clock(clock.clock()).build().unwrap();
    scope(|scope| {
        let created = scope.spawn(|| client.create(&CONFIG_MAP, map("a")));
        for (calls, seconds) in [(1, 5), (2, 7)] {
            // The thread counts as a sleeper until it has woken from its last sleep.
            server.wait_for_requests(|all| all.len() == calls);
            clock.wait_for_sleepers(1);
            let delay = clock.next_alarm().unwrap() - clock.clock().now();
            // The jitter is at most a fifth.
            assert!((seconds * SECOND..=seconds * SECOND * 6 / 5).contains(&delay), "{delay:?}");
            clock.advance(delay.checked_sub(NANOSECOND).unwrap());
            assert_eq!((clock.sleepers(), server.requests().len()), (1, calls));
            // The next delay starts at the time that the thread reads, so the clock must not advance further.
            clock.advance(NANOSECOND);
        }
        assert_eq!(created.join().unwrap().unwrap().name(), "a");
    });
    assert_eq!(methods(&server), ["POST"; 3]);
    assert_eq!((client.metrics().requests, client.metrics().refusals), (3, 2));
}

#[test]
fn a_server_that_stays_busy_is_an_error_with_its_delay() {
    for (asked, counts) in [("300", 300), ("1000", 600)] {
        let server = ApiServer::start().unwrap();
        server.rule(ServerRule::new("POST", "*").otherwise(busy(429, asked)));
        let error = client(&server).create(&CONFIG_MAP, map("a")).unwrap_err();
        let ClientErrorKind::TooManyRequests { retry_after, .. } = error.kind() else { panic!("{error:?}") };
        assert_eq!(*retry_after, Some(counts * SECOND));
        assert_eq!(methods(&server), ["POST"]);
    }
}

#[test]
fn a_write_that_the_server_may_have_carried_out_is_not_repeated() {
    let server = ApiServer::start().unwrap();
    let answers = [ServerAnswer::hang_up(), ServerAnswer::error(503, "", "down"), ServerAnswer::error(504, "", "slow")];
    for answer in answers {
        server.clear_rules();
        server.rule(ServerRule::new("POST", MAPS).answer(answer));
        let before = server.requests().len();
        let error = client(&server).create(&CONFIG_MAP, map("a")).unwrap_err();
        assert!(error.is_transport(), "{error}");
        assert_eq!(server.requests().len(), before + 1);
    }
}

#[test]
fn a_read_is_repeated_when_the_connection_breaks() {
    let server = ApiServer::start().unwrap();
    server.client().create(&CONFIG_MAP, map("a")).unwrap();
    let cut = ServerAnswer::stored().cut_after(10);
    server.rule(ServerRule::new("GET", "*").answer(ServerAnswer::hang_up()).answer(cut));
    assert_eq!(client(&server).get(&CONFIG_MAP, &key("a")).unwrap().name(), "a");
    assert_eq!(methods(&server), ["GET"; 3]);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = ClusterConfig::new(&format!("http://{address}")).unwrap();
    let client = KubernetesClient::new(config).unwrap();
    let error = client.create(&CONFIG_MAP, map("a")).unwrap_err();
    let request = request_error(&error);
    assert!(!request.was_sent());
    let expected = format!("POST http://{address}{MAPS}: cannot connect to {address}: ");
    assert!(request.to_string().starts_with(&expected), "{error:?}");
    // The first attempt and three repetitions.
    assert_eq!((client.metrics().requests, client.metrics().failures), (4, 4));
}

#[test]
fn a_refused_token_is_read_again_once() {
    let server = ApiServer::start().unwrap();
    server.client().create(&CONFIG_MAP, map("a")).unwrap();
    let is_new = |token: Option<&str>| token == Some("Bearer new");
    let refusal = ServerAnswer::error(401, "Unauthorized", "Unauthorized");
    let old = move |request: &IncomingRequest| !is_new(request.header("authorization"));
    server.rule(ServerRule::new("GET", "*").when(old).otherwise(refusal));
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "old\n").unwrap();
    let mut file: Value = serde_json::from_str(&server.kubeconfig()).unwrap();
    file["users"][0] = json!({"name": file["users"][0]["name"], "user": {"tokenFile": "token"}});
    let config = Kubeconfig::parse(&file.to_string(), folder.path()).unwrap().config().unwrap();
    let client = KubernetesClient::new(config.send_credentials_without_tls()).unwrap();
    let error = client.get(&CONFIG_MAP, &key("a")).unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::Unauthorized, "{error}");
    assert_eq!(server.requests().len(), 2);
    fs::write(&token, "new\n").unwrap();
    assert_eq!(client.get(&CONFIG_MAP, &key("a")).unwrap().name(), "a");
    assert_eq!(server.requests().len(), 4);
    assert!(!format!("{client:?} {error} {error:?}").contains("Bearer"));
}

/// A hanging plugin does not make a call late, and does not block the stop of a watch.
#[test]
fn a_plugin_that_hangs_delays_nothing_beyond_the_time_of_a_call_or_a_stop() {
    let server = ApiServer::start().unwrap();
    let mut file: Value = serde_json::from_str(&server.kubeconfig()).unwrap();
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["30"]});
    file["users"][0] = json!({"name": file["users"][0]["name"], "user": {"exec": exec}});
    let config = Kubeconfig::parse(&file.to_string(), "/").unwrap().config().unwrap().send_credentials_without_tls();
    let client = KubernetesClient::builder(config).call_timeout(3600 * SECOND).build().unwrap();
    let short = client.with_timeout(SECOND / 10).unwrap();
    let error = short.get(&CONFIG_MAP, &key("a")).unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("the credential plugin sleep did not print credentials in time"), "{error}");
    let stop = CancellationToken::new();
    scope(|scope| {
        let reader = scope.spawn(|| client.watch(&CONFIG_MAP, &Query::all(), None, &stop).unwrap().next().is_none());
        pause(SECOND / 10);
        stop.cancel();
        assert!(reader.join().unwrap());
    });
    assert_eq!(server.requests(), []);
}

/// Counts the calls of a client.
struct Counting {
    inner: Arc<dyn Client>,
    calls: Arc<AtomicUsize>,
}

impl ClientLayer for Counting {
    fn inner(&self) -> &dyn Client {
        &*self.inner
    }

    fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        Some(Arc::new(Self { inner, calls: Arc::clone(&self.calls) }))
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        self.calls.fetch_add(1, SeqCst);
        call.send(self.inner(), kind)
    }
}

#[test]
fn a_layer_stays_around_a_client_with_a_time_limit() {
    let server = ApiServer::start().unwrap();
    let inner: Arc<dyn Client> = Arc::new(builder(&server).call_timeout(3600 * SECOND).build().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let short = Counting { inner, calls: Arc::clone(&calls) }.with_timeout(SECOND / 10).unwrap();
    assert!(short.get(&CONFIG_MAP, &key("a")).unwrap_err().is_not_found());
    assert_eq!(calls.load(SeqCst), 1);
    server.rule(ServerRule::new("GET", "*").answer(busy(503, "3000")));
    assert!(short.get(&CONFIG_MAP, &key("a")).is_err(), "the time limit ends the call");
    assert_eq!(calls.load(SeqCst), 2);
}

#[test]
fn requests_have_the_headers_of_their_settings() {
    let server = ApiServer::start().unwrap();
    let config = ClusterConfig::new(&server.url()).unwrap().token("secret");
    let config = config.impersonate(Impersonation::new("jane").group("a").group("b")).send_credentials_without_tls();
    let client = KubernetesClient::builder(config).user_agent("tests/1").field_manager("me").build().unwrap();
    client.create(&CONFIG_MAP, map("a")).unwrap();
    assert_eq!(client.dry_run().create(&CONFIG_MAP, map("b")).unwrap().name(), "b");
    assert!(server.client().get(&CONFIG_MAP, &key("b")).unwrap_err().is_not_found());
    let requests = server.requests();
    let header = |name: &str| requests[0].header(name).unwrap_or_default().to_owned();
    assert_eq!(header("authorization"), "Bearer secret");
    assert_eq!((header("user-agent"), header("impersonate-user")), ("tests/1".to_owned(), "jane".to_owned()));
    assert_eq!((header("accept"), header("accept-encoding")), ("application/json".to_owned(), "identity".to_owned()));
    assert_eq!((requests[0].parameter("fieldManager"), requests[0].parameter("dryRun")), (Some("me"), None));
    assert_eq!((requests[1].parameter("fieldManager"), requests[1].parameter("dryRun")), (Some("me"), Some("All")));
    // Both calls use one connection.
    assert_eq!(requests[0].connection(), requests[1].connection());
}

/// `kubectl` does the same. The impersonated user is not a secret, and without it the request could have more
/// permissions.
#[test]
fn a_server_without_tls_gets_no_credentials_unless_asked() {
    let server = ApiServer::start().unwrap();
    let config = || ClusterConfig::new(&server.url()).unwrap().token("secret");
    let get = |config| KubernetesClient::new(config).unwrap().get(&CONFIG_MAP, &key("a")).unwrap_err();
    assert!(get(config().impersonate(Impersonation::new("jane"))).is_not_found());
    assert!(get(config().send_credentials_without_tls()).is_not_found());
    let headers: Vec<_> = server
        .requests()
        .iter()
        .map(|request| ["authorization", "impersonate-user"].map(|name| request.header(name).map(str::to_owned)))
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(headers, [[None, text("jane")], [text("Bearer secret"), None]]);
}

/// A server also selects by fields that the objects do not show: by defaults, or by the spec of objects when it sends
/// only their metadata.
#[test]
fn a_client_does_not_select_again_by_the_fields_that_the_server_knows() {
    const NODE: Kind = Kind::cluster("", "v1", "Node");
    const POD: Kind = Kind::namespaced("", "v1", "Pod");
    let server = ApiServer::start().unwrap();
    let refusal = ServerAnswer::error(400, "BadRequest", "field label not supported: spec.other");
    let selects_other = |request: &IncomingRequest| {
        request.parameter("fieldSelector").is_some_and(|fields| fields.contains("spec.other"))
    };
    server.rule(ServerRule::new("GET", "*").when(selects_other).otherwise(refusal));
    let items = json!([{"metadata": {"namespace": "default", "name": "a", "uid": "u-1"}}]);
    let list = json!({"metadata": {"resourceVersion": "5"}, "items": items});
    server.rule(ServerRule::new("GET", "*").otherwise(ServerAnswer::json(200, list)));
    let whole = client(&server);
    let lean = whole.metadata_only();
    let names = |client: &KubernetesClient, kind: &Kind, fields: &[(&str, &str)]| {
        let query = fields.iter().fold(Query::all(), |query, (path, value)| query.field(*path, *value));
        let list = client.list(kind, &query)?;
        let sent = server.requests().last().unwrap().parameter("fieldSelector").unwrap_or_default().to_owned();
        Ok::<_, ClientError>((list.items.iter().map(|item| item.name().to_owned()).collect::<Vec<_>>(), sent))
    };
    let found = |selector: &str| (vec!["a".to_owned()], selector.to_owned());
    let schedulable = names(&whole, &NODE, &[("spec.unschedulable", "false")]).unwrap();
    assert_eq!(schedulable, found("spec.unschedulable=false"));
    assert_eq!(names(&lean, &POD, &[("spec.nodeName", "n")]).unwrap(), found("spec.nodeName=n"));
    // Neither the server nor the client can select by this field.
    for _ in 0..2 {
        let error = names(&lean, &POD, &[("spec.nodeName", "n"), ("spec.other", "x")]).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains("a client of metadata alone cannot see it"), "{error}");
    }
    // The client selects by a field that the server does not support. If the server names it, the client selects only
    // by this field.
    let by_both = names(&whole, &POD, &[("spec.nodeName", "n"), ("spec.other", "x")]).unwrap();
    assert_eq!(by_both, (Vec::new(), "spec.nodeName=n".to_owned()));
    assert_eq!(names(&lean, &POD, &[("spec.nodeName", "n")]).unwrap(), found("spec.nodeName=n"));
    server.clear_rules();
    let list = json!({"metadata": {"resourceVersion": "5"}, "items": items});
    let refusal = ServerAnswer::error(400, "BadRequest", "field label not supported: metadata.uid");
    let answer = ServerAnswer::json(200, list);
    server.rule(ServerRule::new("GET", "*").answer(refusal).otherwise(answer));
    assert_eq!(names(&lean, &NODE, &[("metadata.uid", "u-1")]).unwrap(), found(""));
    assert_eq!(names(&lean, &NODE, &[("metadata.uid", "u-2")]).unwrap(), (Vec::new(), String::new()));
}

#[test]
fn hostile_answers_are_refused_and_bounded() {
    let server = ApiServer::start().unwrap();
    let client = builder(&server).max_answer_bytes(100_000).build().unwrap();
    let deep = format!(r#"{{"items": [{{"a": {}1{}}}]}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let cases = [
        (
            ServerAnswer::new(302).header("Location", "https://evil.example.com/?q=1"),
            "the server redirects to https://evil.example.com/ (302)",
        ),
        (
            ServerAnswer::new(200).header("Content-Type", "text/html").text("<html>"),
            "the answer is text/html, not application/json; is this the address of an API server?",
        ),
        (ServerAnswer::new(200).repeat("x".repeat(10_000)), "the answer has more than 100000 bytes"),
        (ServerAnswer::new(200).text(deep), "the answer cannot be read: recursion limit exceeded"),
        (ServerAnswer::new(200).text("{"), "the answer cannot be read: EOF"),
        (ServerAnswer::json(200, json!({"kind": "Pod"})), "the answer cannot be read: missing field `items`"),
        (ServerAnswer::new(500).repeat("y".repeat(10_000)), "the server answered 500: yyyy"),
    ];
    for (answer, expected) in cases {
        server.clear_rules();
        server.rule(ServerRule::new("GET", "*").otherwise(answer));
        let error = client.list(&CONFIG_MAP, &Query::all()).unwrap_err();
        let text = Chain(&error).to_string();
        assert!(error.is_transport() && text.contains(expected), "{text}");
        assert!(text.contains(&format!("LIST {}/api/v1/configmaps: ", server.url())) && text.len() < 2000, "{text}");
    }
}

#[test]
fn an_error_has_the_id_of_its_request() {
    let server = ApiServer::start().unwrap();
    let answer = ServerAnswer::error(403, "Forbidden", "no right to list").header("Audit-Id", "id-7");
    server.rule(ServerRule::new("GET", "*").otherwise(answer));
    let error = client(&server).list(&CONFIG_MAP, &Query::all()).unwrap_err();
    assert!(
        *error.kind() == ClientErrorKind::Forbidden && error.to_string().contains("no right to list (audit id id-7)"),
        "{error}"
    );
    let answer = ServerAnswer::error(500, "InternalError", "etcd is gone").header("Audit-Id", "id-8");
    server.clear_rules();
    server.rule(ServerRule::new("GET", "*").otherwise(answer));
    let error = client(&server).list(&CONFIG_MAP, &Query::all()).unwrap_err();
    let request = request_error(&error);
    assert_eq!((request.status(), request.request_id(), request.was_sent()), (Some(500), Some("id-8"), true));
}

#[test]
fn a_key_that_would_change_the_path_never_leaves_the_client() {
    let server = ApiServer::start().unwrap();
    let client = client(&server);
    for name in ["", "a/b", "a?b", "a%2Fb", "..", "a/../b"] {
        let key = homeostat_objects::ObjectKey::new("default", name);
        assert!(client.get(&CONFIG_MAP, &key).unwrap_err().is_invalid(), "{name:?}");
        assert!(client.delete(&CONFIG_MAP, &key, &DeleteOptions::default()).unwrap_err().is_invalid(), "{name:?}");
    }
    assert_eq!(server.requests(), []);
}

/// Returns the failed request that is the source of a transport error.
fn request_error(error: &ClientError) -> &RequestError {
    assert!(error.is_transport(), "{error:?}");
    error.source().unwrap().downcast_ref().unwrap()
}
