//! Publications, subscriptions, requests and their errors.

use std::time::Duration;

use homeostat_nats::{NatsErrorKind, NatsHeaders};

use crate::support::server::TestServer;
use crate::support::{options, spawn};
use crate::until::until;

#[test]
fn messages_reach_subscribers_with_headers_and_replies() {
    let server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).connect().unwrap();
    let subscription = connection.subscribe("events.*").unwrap();
    let mut headers = NatsHeaders::new();
    headers.insert("Kind", "first");
    connection.publish_with_headers("events.vm", &headers, b"one").unwrap();
    connection.publish("other", b"not for us").unwrap();
    connection.publish("events.disk", b"").unwrap();
    let first = subscription.recv().unwrap();
    assert_eq!((first.subject.as_str(), first.payload.as_slice()), ("events.vm", &b"one"[..]));
    assert_eq!(first.headers.get("Kind"), Some("first"));
    assert_eq!(subscription.recv().unwrap().subject, "events.disk");
    assert!(subscription.try_recv().unwrap().is_none());
    let error = subscription.recv_timeout(Duration::from_millis(1)).unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(error.to_string(), "a message of \"events.*\" took longer than 1ms");
}

#[test]
fn requests_of_many_threads_get_their_own_answers() {
    let server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).connect().unwrap();
    let service = connection.queue_subscribe("echo", "group").unwrap();
    let other = connection.clone();
    let answering = spawn(move || {
        while let Ok(request) = service.recv() {
            other.reply(&request, &request.payload).unwrap();
        }
    });
    let asking: Vec<_> = (0..4)
        .map(|thread| {
            let connection = connection.clone();
            spawn(move || {
                for number in 0..250 {
                    let text = format!("{thread}-{number}");
                    assert_eq!(connection.request("echo", text.as_bytes()).unwrap().payload, text.as_bytes());
                }
            })
        })
        .collect();
    for thread in asking {
        thread.join().unwrap();
    }
    assert_eq!(connection.status().requests, 0);
    connection.close();
    answering.join().unwrap();
}

#[test]
fn each_fault_of_a_call_names_the_subject_and_the_rule() {
    let server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).connect().unwrap();
    let error = connection.request("nobody.here", b"").unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::NoResponders);
    assert_eq!(error.to_string(), "nobody listens on subject \"nobody.here\"");
    let error = connection.publish("two words", b"").unwrap_err();
    assert!(error.is_invalid());
    assert_eq!(
        error.to_string(),
        "message is \"two words\", but must be a subject without spaces and control characters"
    );
    assert!(connection.subscribe("a..b").unwrap_err().is_invalid());
    let mut headers = NatsHeaders::new();
    headers.insert("Na me", "");
    assert!(connection.publish_with_headers("a", &headers, b"").unwrap_err().is_invalid());
    let large = vec![0; connection.max_payload() + 1];
    let error = connection.publish("a", &large).unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::TooLarge);
    assert_eq!(
        error.to_string(),
        "the message for subject \"a\" has 1048577 bytes, but max_payload of the server allows 1048576 bytes"
    );
    // The connection has survived all of these errors.
    connection.publish("a", &large[1..]).unwrap();
    connection.flush().unwrap();
    assert_eq!(connection.status().connects, 1);
}

#[test]
fn a_dropped_subscription_ends_on_the_server() {
    let server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    connection.flush().unwrap();
    let ask = || connection.request_with_headers("a", &NatsHeaders::new(), b"", Duration::from_millis(1)).unwrap_err();
    assert!(ask().is_timeout(), "somebody listens, and does not answer");
    drop(subscription);
    assert_eq!(connection.request("a", b"").unwrap_err().kind(), NatsErrorKind::NoResponders);
    assert_eq!(connection.status().subscriptions, 0);
}

#[test]
fn an_unread_subscription_reports_its_losses_and_continues() {
    let server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).subscription_buffer(10, 1 << 20).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    for number in 0..25 {
        connection.publish("a", &[number]).unwrap();
    }
    connection.flush().unwrap();
    let error = subscription.recv().unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::SlowConsumer);
    let text = "the subscription of \"a\" has lost 15 messages, because they were not read in time";
    assert_eq!(error.to_string(), text);
    let read: Vec<_> = (0..10).map(|_| subscription.recv().unwrap().payload[0]).collect();
    assert_eq!(read, (0..10).collect::<Vec<_>>());
    connection.publish("a", b"later").unwrap();
    assert_eq!(subscription.recv().unwrap().payload, b"later");
}

#[test]
fn a_subject_that_the_user_may_not_use_is_refused_by_name() {
    let server = TestServer::with_config(
        "authorization { users: [ { user: u, password: p, permissions: { publish: \"open.>\", subscribe: [\"open.>\", \"_INBOX.>\"] } } ] }",
    );
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    let hidden = connection.subscribe("hidden").unwrap();
    let error = hidden.recv().unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::PermissionsViolation, "{error}");
    let error = connection.request("secret", b"").unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::PermissionsViolation, "{error}");
    assert!(error.to_string().contains("Publish to \"secret\""), "{error}");
    connection.publish("open.a", b"").unwrap();
    connection.flush().unwrap();
    assert!(connection.status().last_error.is_none());
    connection.publish("secret", b"").unwrap();
    let error = until("refusal", || connection.status().last_error);
    assert!(error.to_string().contains("Publish to \"secret\""), "{error}");
    assert_eq!(connection.status().connects, 1);
}

/// A new connection would be refused the same subscriptions.
#[test]
fn too_many_subscriptions_do_not_end_the_connection() {
    let server = TestServer::with_config("max_subscriptions: 3\n");
    let connection = options(&server.url()).connect().unwrap();
    let subscriptions: Vec<_> = (0..4).map(|at| connection.subscribe(&format!("s{at}")).unwrap()).collect();
    let error = until("refusal", || connection.status().last_error);
    assert!(error.to_string().to_lowercase().contains("maximum subscriptions exceeded"), "{error}");
    connection.publish("s0", b"1").unwrap();
    assert_eq!(subscriptions[0].recv().unwrap().payload, b"1");
    let status = connection.status();
    assert!(status.connected && status.connects == 1, "{status:?}");
}

#[test]
fn the_status_shows_the_server() {
    let server = TestServer::with_arguments(&["-n", "one"]);
    let connection = options(&server.url()).name("shown").connect().unwrap();
    let status = connection.status();
    assert!(status.connected && !status.closed && status.last_error.is_none());
    assert_eq!((status.server_name.as_str(), status.connects), ("one", 1));
    assert_eq!(format!("nats://{}", status.server), server.url());
    let text = format!("{connection:?}");
    assert!(text.starts_with("NatsConnection { name: \"shown\", connected: true"), "{text}");
    drop(server);
    until("disconnect", || connection.status().last_error);
    assert!(!connection.status().connected);
}
