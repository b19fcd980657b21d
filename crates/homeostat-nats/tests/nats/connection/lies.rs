//! Scripted servers that send oversized, malformed and endless input.

use std::time::Duration;

use homeostat_nats::protocol::FrameLimits;
use homeostat_nats::{NatsError, NatsErrorKind, NatsOptions};

use crate::support::scripted::{INFO, Peer, serve};
use crate::support::{now, options};
use crate::until::until;

/// Returns the error of connecting to a server that plays `script`.
fn refused(script: impl Fn(Peer) + Send + Sync + 'static) -> NatsError {
    let url = serve(move |_, peer| script(peer));
    let error = options(&url).connect().unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::Unreachable, "{error}");
    error
}

#[test]
fn each_malformed_greeting_is_refused_with_its_reason() {
    let many = "x".repeat(2_000_000);
    let cases: [(&str, &str); 9] = [
        ("", "the server closes the connection in the handshake"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "the server breaks the protocol: unknown verb \"HTTP/1.1\""),
        ("PING\r\n", "the server does not begin with INFO"),
        ("INFO {]\r\n", "the server's INFO is malformed: expected `]`"),
        ("INFO {\"max_payload\":-1}\r\n", "the server's INFO is malformed: invalid value: integer `-1`"),
        ("-ERR 'maximum connections exceeded'\r\n", "the server reports \"maximum connections exceeded\""),
        (&many, "exceeds the limit of 1048576 bytes"),
        ("INFO {}\r\nMSG a 1 2\r\nab\r\n", "the server sends messages before it accepts CONNECT"),
        ("INFO {\"tls_required\":true}\r\nMSG a 1 2\r\nab\r\n", "the server sends bytes between INFO and TLS"),
    ];
    for (greeting, reason) in cases {
        let sent = greeting.to_owned();
        let error = refused(move |mut peer| {
            peer.send(&sent);
            if !sent.is_empty() {
                peer.drain();
            }
        });
        let text = error.to_string();
        assert!(text.starts_with("cannot connect to any server: 127.0.0.1:"), "{text}");
        let known = text.contains(reason) || (greeting.starts_with("INFO {]") && text.contains("INFO is malformed"));
        assert!(known, "{greeting:.60?} gives {text}");
    }
}

#[test]
fn an_endless_and_slow_greeting_ends_at_the_connect_timeout() {
    let url = serve(|_, mut peer| {
        while peer.send("x") {
            crate::support::pause(Duration::from_millis(1));
        }
    });
    let start = now();
    let error = NatsOptions::new(url).connect_timeout(Duration::from_millis(100)).connect().unwrap_err();
    assert!(error.to_string().ends_with("the server does not answer in time"), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(90), "the time is used");
}

#[test]
fn malformed_input_on_a_connection_leads_to_a_new_one() {
    let inputs = [
        "NONSENSE\r\n",
        "MSG a 1 999999999\r\n",
        "HMSG a 1 2000000 2000000\r\n",
        "HMSG a 1 12 5\r\n",
        "MSG a 1 2\r\nabc\r\n",
        "PONG\r\nPONG\r\n",
        "-ERR 'Stale Connection'\r\n",
        "INFO {\"max_payload\":\"much\"}\r\n",
        "CONNECT {}\r\n",
    ];
    let url = serve(move |at, mut peer| {
        peer.accept();
        if let Some(input) = inputs.get(at) {
            peer.send(input);
        }
        peer.drain();
    });
    let connection = options(&url).connect().unwrap();
    let connects = u64::try_from(inputs.len()).unwrap() + 1;
    let status = until("last connection", || Some(connection.status()).filter(|status| status.connects == connects));
    assert!(status.connected, "{status:?}");
}

/// A message header without an end does not fill the memory, because the limit ends the connection.
#[test]
fn an_endless_line_ends_the_connection() {
    let url = serve(|at, mut peer| {
        peer.accept();
        if at == 0 {
            peer.send("HMSG ");
            while peer.send([b'a'; 4096]) {}
        }
        peer.drain();
    });
    let mut limits = FrameLimits::default();
    limits.line = 10_000;
    let connection = options(&url).frame_limits(limits).connect().unwrap();
    until("second connection", || (connection.status().connects == 2).then_some(()));
}

#[test]
fn a_server_that_accepts_and_closes_is_not_called_in_a_loop() {
    let url = serve(|_, mut peer| drop(peer.accept()));
    let connection = options(&url).connect().unwrap();
    let first = connection.status().connects;
    crate::support::pause(Duration::from_millis(500));
    // Delays of 5, 10, 20, 40, 80 and then 100 ms, with jitter.
    let later = connection.status().connects;
    assert!(later - first <= 20, "{} connects in half a second", later - first);
    assert!(INFO.starts_with("INFO"));
}

#[test]
fn answers_to_unknown_requests_and_subscriptions_are_ignored() {
    let url = serve(|_, mut peer| {
        peer.accept();
        peer.send("MSG _INBOX.x.99999 1 2\r\nab\r\nMSG a 77 2\r\nab\r\nMSG a 1 0\r\n\r\n");
        peer.drain();
    });
    let connection = options(&url).connect().unwrap();
    let error = connection
        .request_with_headers("a", &homeostat_nats::NatsHeaders::new(), b"", Duration::from_millis(50))
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!((connection.status().connects, connection.status().requests), (1, 0));
}
