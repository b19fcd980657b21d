//! The client's log messages, the status of a watch with repeated calls, and the settings of writes.

use std::thread::scope;
use std::time::Duration;

use homeostat::{CancellationToken, ManualClock};
use homeostat_kubernetes::FieldValidation;
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, FieldOwner, ObjectWatch, Patch, PatchTarget, Query,
};
use homeostat_testing::{ApiServer, IncomingRequest, ServerAnswer, ServerRule};
use log::Level;
use serde_json::{Value, json};

use super::{CONFIG_MAP, builder, client, key, map};
use crate::logs::Logs;
use crate::until::until;
use homeostat::rt::Chain;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// Collects the log messages about a server.
fn logs_of(server: &ApiServer) -> Logs {
    Logs::of(Box::leak(server.url().into_boxed_str()))
}

fn busy(seconds: u32) -> ServerAnswer {
    ServerAnswer::error(503, "ServiceUnavailable", "starting").header("Retry-After", &seconds.to_string())
}

#[test]
fn each_warning_of_a_server_is_logged_once() {
    let server = ApiServer::start().unwrap();
    let logs = logs_of(&server);
    let unknown = r#"299 - "unknown field \"spec.colour\"", 299 - "use v2""#;
    server.rule(ServerRule::new("POST", "*").otherwise(ServerAnswer::stored().header("Warning", unknown)));
    let watched = ServerAnswer::stored().header("Warning", r#"299 - "watches are old""#);
    server.rule(ServerRule::new("GET", "*").when(IncomingRequest::is_watch).otherwise(watched));
    let (one, stop) = (client(&server), CancellationToken::new());
    let sibling = one.with_timeout(LONG).unwrap();
    for (number, client) in [&one as &dyn Client, &one.clone(), &*sibling].into_iter().enumerate() {
        client.create(&CONFIG_MAP, map(&format!("map-{number}"))).unwrap();
        drop(client.watch(&CONFIG_MAP, &Query::all(), None, &stop).unwrap());
    }
    let lines: Vec<_> = logs.at(Level::Warn).into_iter().map(|line| line.message).collect();
    let (url, maps) = (server.url(), "/api/v1/namespaces/default/configmaps");
    let expected = [
        format!("POST {url}{maps}: the server warns: unknown field \"spec.colour\""),
        format!("POST {url}{maps}: the server warns: use v2"),
        format!("GET {url}/api/v1/configmaps: the server warns: watches are old"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_call_that_is_repeated_for_long_is_logged() {
    let server = ApiServer::start().unwrap();
    let logs = logs_of(&server);
    server.rule(ServerRule::new("POST", "*").answer(busy(1)).answer(busy(4)).answer(busy(20)));
    let clock = ManualClock::new();
    let client = builder(&server).clock(clock.clock()).build().unwrap();
    scope(|scope| {
        let created = scope.spawn(|| client.create(&CONFIG_MAP, map("a")));
        for (requests, lines) in [(1, 0), (2, 1), (3, 1)] {
            // The thread counts as a sleeper until it has woken from its last sleep.
            server.wait_for_requests(|all| all.len() == requests);
            clock.wait_for_sleepers(1);
            assert_eq!(logs.at(Level::Warn).len(), lines);
            let delay = clock.next_alarm().unwrap() - clock.clock().now();
            clock.advance(delay);
        }
        created.join().unwrap().unwrap();
    });
    let expected = format!(
        "POST {}/api/v1/namespaces/default/configmaps: the server answered 503: starting; the call is repeated for up to 90s",
        server.url()
    );
    assert_eq!(logs.at(Level::Warn)[0].message, expected);
}

#[test]
fn the_status_of_a_watch_shows_a_call_that_is_repeated() {
    let server = ApiServer::start().unwrap();
    server.client().create(&CONFIG_MAP, map("a")).unwrap();
    let logs = logs_of(&server);
    server.rule(ServerRule::new("GET", "*").otherwise(busy(20)));
    let clock = ManualClock::new();
    let client = builder(&server).clock(clock.clock()).build().unwrap();
    let api = Api::<DynamicObject>::of_kind(std::sync::Arc::new(client), CONFIG_MAP);
    let watch = ObjectWatch::new(api).name("repeated").start().unwrap();
    clock.wait_for_sleepers(1);
    let status = watch.watch().source().status();
    let error = status.last_error.unwrap();
    assert!(error.contains("the server answered 503: starting; the call is repeated for up to 90s"), "{error}");
    assert!(status.failing_for.is_some() && !status.synced);
    assert_eq!(logs.all(), [], "the watch logs it by its own name");
    server.clear_rules();
    clock.advance(30 * SECOND);
    assert!(watch.watch().store().wait_synced(LONG));
    until("the watch works again", || watch.watch().source().status().failing_for.is_none());
}

#[test]
fn a_read_without_an_answer_of_a_server_ends_soon() {
    let server = ApiServer::start().unwrap();
    server.rule(ServerRule::new("GET", "*").otherwise(ServerAnswer::error(503, "", "no server behind this proxy")));
    let error = client(&server).get(&CONFIG_MAP, &key("a")).unwrap_err();
    assert!(Chain(&error).to_string().contains("the server answered 503: no server behind this proxy"), "{error:?}");
    assert_eq!(server.requests().len(), 4, "the first attempt and three repetitions");
}

#[test]
fn a_server_that_lags_is_asked_again_as_by_client_go() {
    let server = ApiServer::start().unwrap();
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let details = json!({"causes": [cause], "retryAfterSeconds": 1});
    let status = json!({"kind": "Status", "code": 504, "reason": "Timeout", "details": details,
        "message": "Too large resource version: 9, current: 8"});
    let behind = || ServerAnswer::json(504, status.clone());
    server.rule(ServerRule::new("GET", "*").answer(behind()).answer(ServerAnswer::stored()).otherwise(behind()));
    let clock = ManualClock::new();
    let client = builder(&server).clock(clock.clock()).build().unwrap();
    // The rules hide this version for some time.
    for number in 1..9 {
        server.client().create(&CONFIG_MAP, map(&format!("map-{number}"))).unwrap();
    }
    let list = || client.list(&CONFIG_MAP, &Query::all().not_older_than("9"));
    // A longer advance could end the next delay too.
    let wait = |requests: usize| {
        server.wait_for_requests(|all| all.len() == requests);
        clock.wait_for_sleepers(1);
        clock.advance(clock.next_alarm().unwrap() - clock.clock().now());
    };
    scope(|scope| {
        let listed = scope.spawn(list);
        wait(1);
        assert!(listed.join().unwrap().is_ok(), "the server has caught up");
        let listed = scope.spawn(list);
        for requests in 3..13 {
            wait(requests);
        }
        let error = listed.join().unwrap().unwrap_err();
        assert!(error.is_gone() && error.to_string().contains("has not reached version"), "{error}");
    });
    assert_eq!(server.requests().len(), 2 + 11);
}

#[test]
fn writes_ask_for_the_chosen_validation_of_fields() {
    let server = ApiServer::start().unwrap();
    let strict = builder(&server).field_validation(FieldValidation::Strict).build().unwrap();
    for (client, expected) in [(strict, Some("Strict")), (client(&server), None)] {
        let before = server.requests().len();
        let created = client.create(&CONFIG_MAP, map("a")).unwrap().to_value();
        client.update(&CONFIG_MAP, created).unwrap();
        let patch = Patch::Merge(json!({"data": {"a": "2"}}));
        client.patch(&CONFIG_MAP, &key("a"), &patch, PatchTarget::Object).unwrap();
        client.apply(&CONFIG_MAP, map("a"), &FieldOwner::new("me").force()).unwrap();
        let requests = server.requests().split_off(before);
        let asked: Vec<_> = requests.iter().map(|request| request.parameter("fieldValidation")).collect();
        assert_eq!(asked, [expected; 4]);
        client.delete(&CONFIG_MAP, &key("a"), &DeleteOptions::default()).unwrap();
    }
}

#[test]
fn a_deletion_names_its_grace_period_in_seconds() {
    let server = ApiServer::start().unwrap();
    let client = client(&server);
    let cases =
        [(Some(Duration::ZERO), json!(0)), (Some(SECOND / 2), json!(1)), (Some(Duration::MAX), json!(i64::MAX))];
    for (time, expected) in cases.into_iter().chain([(None, Value::Null)]) {
        client.create(&CONFIG_MAP, map("a")).unwrap();
        let options = time.map_or_else(DeleteOptions::default, |time| DeleteOptions::default().grace_period(time));
        assert!(client.delete(&CONFIG_MAP, &key("a"), &options).unwrap().is_gone());
        let body = server.requests().last().unwrap().json().unwrap();
        assert_eq!(body["gracePeriodSeconds"], expected);
    }
}

/// Some servers of other kinds have lists without versions.
#[test]
fn a_list_without_a_version_is_watched() {
    let server = ApiServer::start().unwrap();
    server.client().create(&CONFIG_MAP, map("a")).unwrap();
    let streams = |request: &IncomingRequest| request.parameter("sendInitialEvents").is_some();
    let refusal = || ServerAnswer::error(422, "Invalid", "sendInitialEvents is forbidden for watch");
    server.rule(ServerRule::new("GET", "*").when(streams).otherwise(refusal()));
    let mut item = map("a");
    item["metadata"]["resourceVersion"] = json!("1");
    let list = json!({"kind": "ConfigMapList", "metadata": {}, "items": [item]});
    server
        .rule(ServerRule::new("GET", "*").when(|request| !request.is_watch()).otherwise(ServerAnswer::json(200, list)));
    let api = Api::<DynamicObject>::of_kind(std::sync::Arc::new(client(&server)), CONFIG_MAP);
    let watch = ObjectWatch::new(api).name("unversioned").start().unwrap();
    assert!(watch.watch().store().wait_synced(LONG));
    server.wait_for_requests(|all| {
        all.iter()
            .any(|request| request.is_watch() && !streams(request) && request.parameter("resourceVersion").is_none())
    });
    server.client().create(&CONFIG_MAP, map("b")).unwrap();
    until("the watch has the new object", || watch.watch().store().get(&key("b")).is_some());
}
