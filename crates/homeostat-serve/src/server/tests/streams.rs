use super::slow::wait_for;
use super::*;

#[test]
fn each_part_of_a_stream_arrives_at_once() {
    let (go, gone) = channel::<()>();
    let gone = crate::sync::Mutex::new(Some(gone));
    let server = start(
        |builder| builder,
        move |_| {
            let gone = gone.lock().take().unwrap();
            stream(move |sink, _| {
                for part in ["one", "", "two", "three"] {
                    sink.send(part.as_bytes())?;
                    let _ = gone.recv();
                }
                Ok(())
            })
        },
    );
    let mut client = RawClient::with(&server, get("/watch"));
    let head = client.head();
    assert!(head.head.contains("transfer-encoding: chunked") && !head.head.contains("content-length"));
    for part in ["one", "two", "three"] {
        assert_eq!(client.chunk(), part);
        go.send(()).unwrap();
        if part == "one" {
            go.send(()).unwrap();
        }
    }
    assert_eq!(client.chunk(), "");
    assert_eq!(client.rest(), "");
}

#[test]
fn a_client_that_goes_away_from_an_idle_stream_ends_it() {
    let (server, ended) = waiting(|builder| builder);
    let mut client = RawClient::with(&server, get("/watch"));
    client.head();
    assert_eq!(client.chunk(), "hello");
    assert_eq!(server.counts().open_streams, 1);
    drop(client);
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));

    let mut half_closed = RawClient::with(&server, get("/watch"));
    half_closed.head();
    assert_eq!(half_closed.chunk(), "hello");
    half_closed.half_close();
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));
    assert_eq!(half_closed.chunk(), "");
    wait_for(&server, |counts| counts.open_streams == 0 && counts.open_connections == 0);
}

#[test]
fn a_client_that_never_reads_its_stream_is_cut() {
    let (report, reported) = channel();
    let server = start(
        |builder| builder.write_timeout(Duration::from_millis(200)),
        move |_| {
            let report = report.clone();
            stream(move |sink, _| {
                let mut sent = 0_usize;
                let error = loop {
                    match sink.send(&[b'x'; 16 << 10]) {
                        Ok(()) => sent += 1,
                        Err(error) => break error,
                    }
                };
                // A handler that ignores the error cannot send either.
                report.send((sent, sink.send(b"more").is_err())).unwrap();
                Err(error)
            })
        },
    );
    let client = RawClient::with(&server, get("/watch"));
    let (sent, is_refused) = reported.recv_timeout(LONG).unwrap();
    assert!(is_refused, "the server sends more");
    assert!(sent < 4_096, "the server has sent {sent} parts into nothing");
    wait_for(&server, |counts| counts.open_connections == 0);
    drop(client);
}

#[test]
fn a_stream_ends_properly_after_its_longest_life() {
    let (server, ended) = waiting(|builder| builder.stream_life(Duration::from_millis(50)));
    let mut client = RawClient::with(&server, get("/watch"));
    client.head();
    assert_eq!(client.chunk(), "hello");
    assert_eq!(client.chunk(), "");
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));
    assert_eq!(client.rest(), "");
}

#[test]
fn bytes_that_a_client_sends_during_its_stream_are_dropped() {
    let (server, ended) = waiting(|builder| builder.stream_life(LONG));
    let mut client = RawClient::with(&server, get("/watch"));
    client.head();
    assert_eq!(client.chunk(), "hello");
    client.send(get("/other").repeat(1_000));
    assert!(ended.try_recv().is_err());
    client.half_close();
    assert_eq!(client.chunk(), "");
    assert_eq!(client.rest(), "", "the connection ends after a stream");
}

#[test]
fn a_broken_stream_has_no_end() {
    let server = start(
        |builder| builder,
        |request| {
            let panics = request.path == "/panic";
            stream(move |sink, _| {
                sink.send(b"part")?;
                assert!(!panics, "the test panics");
                Err(std::io::ErrorKind::Other.into())
            })
        },
    );
    for path in ["/error", "/panic"] {
        let mut client = RawClient::with(&server, get(path));
        client.head();
        assert_eq!(client.rest(), "4\r\npart\r\n", "{path}");
    }
}

#[test]
fn one_client_has_a_bounded_number_of_streams() {
    let (server, _ended) = waiting(|builder| builder.streams_per_client(2));
    let mut clients = [(); 2].map(|()| RawClient::with(&server, get("/watch")));
    for client in &mut clients {
        client.head();
    }
    let mut refused = RawClient::with(&server, get("/watch"));
    let reply = refused.reply();
    assert!(reply.status == 429 && reply.head.contains("retry-after: "), "{reply:?}");
    assert!(!reply.head.contains("connection: close"), "the client may ask for something else");
    drop(clients);
    wait_for(&server, |counts| counts.open_streams == 0);
    refused.send(get("/watch"));
    assert_eq!(refused.head().status, 200);
}

#[test]
fn clients_without_chunks_or_bodies_can_ask_for_a_stream() {
    let server = start(|builder| builder, |_| stream(|sink, _| sink.send(b"all")));
    let mut old = RawClient::with(&server, "GET / HTTP/1.0\r\n\r\n");
    assert!(!old.head().head.contains("transfer-encoding"));
    assert_eq!(old.rest(), "all");
    let mut head = RawClient::with(&server, get("/").replace("GET", "HEAD"));
    assert_eq!(head.head().status, 200);
    assert_eq!(head.rest(), "");
}
