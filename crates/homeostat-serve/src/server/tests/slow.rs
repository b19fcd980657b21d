use std::io::Read;

use super::*;

const SHORT: Duration = Duration::from_millis(100);

/// Sends one byte after the other until the server answers.
fn drip(server: &ServerControl, start: &str) -> client::RawReply {
    let mut client = RawClient::with(server, start);
    client.stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    while client.stream.peek(&mut [0]).is_err() {
        if !client.try_send("a") {
            break;
        }
    }
    client.stream.set_read_timeout(Some(LONG)).unwrap();
    client.reply()
}

#[test]
fn a_slow_head_is_answered_with_408() {
    // A connection that sends nothing for this time is closed without a reply, so it must exceed any pause of the
    // client's thread.
    let server = echo(|builder| builder.head_timeout(20 * SHORT));
    assert_eq!(drip(&server, "GET / HTTP/1.1\r\nHost: localhost\r\nA: ").status, 408);
    let mut client = RawClient::with(&server, "GET / HTTP/1.1\r\nHost: localhost\r\n");
    let reply = client.reply();
    assert!(reply.status == 408 && reply.head.contains("connection: close"), "{reply:?}");
    assert_eq!(client.rest(), "");
}

#[test]
fn a_slow_body_is_answered_with_408() {
    let server = echo(|builder| builder.body_timeout(SHORT));
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    assert_eq!(drip(&server, head).status, 408);
    let chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;";
    let mut client = RawClient::with(&server, chunked);
    assert_eq!(client.reply().status, 408);
    assert_eq!(client.rest(), "");
}

#[test]
fn idle_connections_are_closed_without_an_answer() {
    let server = echo(|builder| builder.head_timeout(SHORT));
    assert_eq!(RawClient::connect(&server).rest(), "");
    let server = echo(|builder| builder.idle_timeout(SHORT));
    let mut client = RawClient::with(&server, get("/a"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.rest(), "");
}

#[test]
fn declared_bodies_use_no_memory_until_they_arrive() {
    let server = echo(|builder| builder.body_timeout(LONG * 10));
    let head =
        format!("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n", 3 << 20);
    // Together they announce more bytes than all bodies may have. The server asks each client for its body.
    let mut silent: Vec<_> = (0..40).map(|_| RawClient::with(&server, &head)).collect();
    for client in &mut silent {
        assert_eq!(client.head().status, 100);
    }
    let short = "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(RawClient::with(&server, short).reply().status, 200);
}

#[test]
fn an_old_connection_is_closed() {
    let server = echo(|builder| builder.idle_timeout(LONG * 10).stream_life(SHORT));
    let mut client = RawClient::with(&server, get("/a"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.rest(), "");
    // A client that sends its next request at once does not keep its connection either.
    let mut busy = RawClient::with(&server, get("/a"));
    while !busy.reply().head.contains("connection: close") {
        if !busy.try_send(get("/a")) || !matches!(busy.stream.peek(&mut [0]), Ok(1)) {
            break;
        }
    }
}

#[test]
fn slow_clients_do_not_delay_others() {
    let server = echo(|builder| builder.head_timeout(LONG));
    let slow: Vec<_> = (0..100).map(|_| RawClient::with(&server, "GET / HTTP/1.1\r\nHost: ")).collect();
    for _ in 0..20 {
        assert_eq!(RawClient::with(&server, get("/a")).reply().status, 200);
    }
    drop(slow);
}

#[test]
fn a_client_that_is_still_sending_reads_the_refusal() {
    let server = echo(|builder| builder.body_limit(1_000));
    let body = "x".repeat(4 << 20);
    for (status, request) in [
        (414, format!("GET /{body}")),
        (431, format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {body}")),
        (413, format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())),
        (413, format!("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n400000\r\n{body}")),
        (400, format!("x{body}")),
    ] {
        let mut client = RawClient::connect(&server);
        client.try_send(request);
        let reply = client.reply();
        assert!(reply.status == status && reply.head.contains("connection: close"), "{status}: {reply:?}");
    }
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(200));
    assert_eq!(RawClient::with(&server, many).reply().status, 431);
}

#[test]
fn a_client_that_never_reads_its_reply_is_cut() {
    let server = start(
        |builder| builder.write_timeout(SHORT),
        |_| Reply::new(http::StatusCode::OK, "text/plain", vec![b'x'; 64 << 20]),
    );
    let mut client = RawClient::with(&server, get("/large"));
    // First come the bytes in the system's buffers, then the end.
    wait_for(&server, |counts| counts.accepted_connections == 1 && counts.open_connections == 0);
    let mut received = Vec::new();
    let _ = client.stream.read_to_end(&mut received);
    assert!(received.len() < 64 << 20);
}

#[test]
fn a_reply_has_one_deadline_for_all_its_parts() {
    let server = start(
        |builder| builder.write_timeout(LONG * 10).stream_life(SHORT),
        |_| Reply::new(http::StatusCode::OK, "text/plain", vec![b'x'; 64 << 20]),
    );
    let client = RawClient::with(&server, get("/large"));
    wait_for(&server, |counts| counts.accepted_connections == 1 && counts.open_connections == 0);
    drop(client);
}

/// Blocks until the counts meet a condition. The server does not report when they change.
pub(super) fn wait_for(server: &ServerControl, condition: impl Fn(&crate::ServerCounts) -> bool) {
    let clock = homeostat::base::Clock::system();
    let deadline = clock.nanos().after(LONG);
    let event = homeostat::rt::AutoResetEvent::new(clock.clone());
    while !condition(&server.counts()) {
        assert!(!clock.reached(deadline), "{:?}", server.counts());
        event.wait_until(clock.nanos().after(Duration::from_millis(2)));
    }
}
