//! Bodies that are created while they are sent, their compression, and the memory for replies.

use std::io::{Read, Write};

use flate2::read::GzDecoder;

use super::slow::wait_for;
use super::*;
use crate::http::{ReplyBody, ReplyStream};

/// Returns a reply with a body that is created while it is sent, and that uses `holds` bytes.
fn parts(holds: usize, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()> + Send + 'static) -> Reply {
    Reply { body: ReplyBody::Parts(Box::new(write)), holds, ..Reply::text(http::StatusCode::OK, "") }
}

/// Writes this many lines of 100 bytes.
fn lines(out: &mut dyn Write, count: usize) -> std::io::Result<()> {
    (0..count).try_for_each(|number| writeln!(out, "{number:099}"))
}

/// Starts a server with numbers of lines as paths.
fn numbered(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Running<ServerControl> {
    start(change, |request| {
        let count = request.segments[0].parse().unwrap();
        parts(0, move |out| lines(out, count))
    })
}

fn meta_string(count: usize) -> String {
    let mut text = Vec::new();
    lines(&mut text, count).unwrap();
    String::from_utf8(text).unwrap()
}

fn chunks(client: &mut RawClient) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let chunk = client.chunk_bytes();
        if chunk.is_empty() {
            return all;
        }
        all.extend(chunk);
    }
}

#[test]
fn a_short_body_has_a_length_and_a_long_one_has_chunks() {
    let server = numbered(|builder| builder);
    let mut client = RawClient::connect(&server);
    for count in [0, 1, 327, 328, 5_000] {
        client.send(get(&format!("/{count}")));
        if count < 328 {
            assert_eq!(client.reply().body, meta_string(count));
        } else {
            let head = client.head().head;
            assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
            assert!(!head.contains("connection: close") && head.contains("vary: accept-encoding"), "{head}");
            assert_eq!(String::from_utf8(chunks(&mut client)).unwrap(), meta_string(count));
        }
    }
    assert_eq!((server.counts().accepted_connections, server.counts().succeeded), (1, 5));
}

#[test]
fn long_bodies_are_compressed_for_clients_that_accept_it() {
    let server = start(
        |builder| builder,
        |request| match request.path.as_str() {
            "/parts" => parts(0, |out| lines(out, 5_000)),
            "/full" => Reply::text(http::StatusCode::OK, meta_string(5_000)),
            _ => Reply::text(http::StatusCode::OK, meta_string(10)),
        },
    );
    let mut client = RawClient::connect(&server);
    let compressed = |path: &str| get(path).replace("\r\n\r\n", "\r\nAccept-Encoding: gzip, br\r\n\r\n");
    for path in ["/parts", "/full"] {
        client.send(compressed(path));
        let head = client.head().head;
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{head}");
        let bytes = chunks(&mut client);
        assert!(bytes.len() < 100_000, "{} bytes", bytes.len());
        let mut text = String::new();
        GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text, meta_string(5_000), "{path}");
    }
    client.send(compressed("/short"));
    let reply = client.reply();
    assert!(!reply.head.contains("content-encoding") && reply.body == meta_string(10), "{}", reply.head);
    client.send(compressed("/parts").replace("GET", "HEAD"));
    assert!(client.head().head.contains("content-encoding: gzip"));
    client.send(compressed("/short"));
    assert_eq!(client.reply().status, 200, "a reply to HEAD has no body");
}

#[test]
fn clients_of_http_1_0_read_a_long_body_to_its_end() {
    let server = numbered(|builder| builder);
    let mut client = RawClient::with(&server, "GET /5000 HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    let head = client.head().head;
    assert!(!head.contains("chunked") && !head.contains("gzip") && head.contains("connection: close"), "{head}");
    assert_eq!(client.rest(), meta_string(5_000));
}

#[test]
fn a_long_body_that_breaks_off_has_no_end() {
    let server = start(
        |builder| builder,
        |request| {
            let panics = request.path == "/panic";
            parts(0, move |out| {
                lines(out, 1_000)?;
                assert!(!panics, "the test panics");
                Err(std::io::ErrorKind::Other.into())
            })
        },
    );
    for path in ["/error", "/panic"] {
        let mut client = RawClient::with(&server, get(path));
        client.head();
        let rest = client.rest();
        assert!(rest.len() > 1_000 && !rest.ends_with("0\r\n\r\n"), "{path}: {} bytes", rest.len());
    }
}

/// The body asks for the next part until the server reports that the client has left.
#[test]
fn a_body_stops_when_its_client_has_gone() {
    let (report, reported) = channel();
    let server = start(
        |builder| builder.write_timeout(LONG * 10),
        move |_| {
            let report = report.clone();
            parts(0, move |out| {
                let error = loop {
                    if let Err(error) = lines(out, 100) {
                        break error;
                    }
                };
                report.send(error.kind()).unwrap();
                Err(error)
            })
        },
    );
    let mut client = RawClient::with(&server, get("/"));
    client.head();
    drop(client);
    reported.recv_timeout(LONG).unwrap();
    wait_for(&server, |counts| counts.open_connections == 0);
}

#[test]
fn a_stop_cuts_a_body_that_its_client_does_not_read() {
    let (report, reported) = channel();
    let mut server = start(
        |builder| builder.write_timeout(LONG * 10).stream_life(LONG * 10),
        move |_| {
            let _ = report.send(());
            parts(0, |out| lines(out, usize::MAX))
        },
    );
    let client = RawClient::with(&server, get("/"));
    reported.recv_timeout(LONG).unwrap();
    server.stop();
    server.join_timeout(LONG).unwrap();
    drop(client);
}

const MIB: usize = 1 << 20;

/// Starts a server with 2 MiB for replies, which allows 1 MiB per address. `/held` uses 1 MiB until the test releases
/// it.
fn holding() -> (Running<ServerControl>, RawClient, Sender<()>) {
    let (begun, begins) = channel();
    let (go, gone) = channel::<()>();
    let gone = Arc::new(crate::sync::Mutex::new(gone));
    let server = start(
        |builder| builder.reply_memory(2 * MIB),
        move |request| match request.path.as_str() {
            "/held" => {
                let (begun, gone) = (begun.clone(), Arc::clone(&gone));
                parts(MIB, move |_| {
                    begun.send(()).unwrap();
                    gone.lock().recv().unwrap();
                    Ok(())
                })
            }
            "/watch" => {
                let watch = |sink: &mut ReplyStream<'_>, _: &CancellationToken| {
                    let held = [sink.hold(60_000), sink.hold(100_000)];
                    sink.send(format!("{held:?}").as_bytes())
                };
                stream(watch)
            }
            _ => Reply::text(http::StatusCode::OK, "x".repeat(request.segments[0].parse().unwrap())),
        },
    );
    let held = RawClient::with(&server, get("/held"));
    begins.recv_timeout(LONG).unwrap();
    (server, held, go)
}

#[test]
fn large_replies_are_refused_while_others_use_the_memory() {
    let (server, mut held, go) = holding();
    let mut client = RawClient::with(&server, get("/100000"));
    let refused = client.reply();
    assert_eq!((refused.status, refused.head.contains("retry-after: 1")), (429, true), "{refused:?}");
    assert!(refused.body.contains("the replies of other requests of this client address"), "{refused:?}");
    client.send(get("/60000"));
    assert_eq!(client.reply().body.len(), 60_000, "a small reply");
    client.send(get("/100000").replace("GET", "DELETE"));
    assert_eq!(client.reply().body.len(), 100_000, "a write is done, so its reply is sent");
    go.send(()).unwrap();
    assert_eq!(held.reply().status, 200);
    client.send(get("/100000"));
    assert_eq!(client.reply().body.len(), 100_000);
}

#[test]
fn a_stream_learns_that_others_use_the_memory() {
    let (server, mut held, go) = holding();
    let mut watch = RawClient::with(&server, get("/watch"));
    watch.head();
    assert_eq!((watch.chunk().as_str(), watch.chunk().as_str()), ("[true, false]", ""));
    assert_eq!(server.counts().dropped_streams, 1);
    go.send(()).unwrap();
    assert_eq!(held.reply().status, 200);
    let mut watch = RawClient::with(&server, get("/watch"));
    watch.head();
    assert_eq!(watch.chunk(), "[true, true]");
}
