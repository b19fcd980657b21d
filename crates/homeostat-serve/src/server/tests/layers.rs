//! A function around the handlers, and the replies that only it gives.

use http::StatusCode;

use super::slow::wait_for;
use super::*;
use crate::NextHandler;
use homeostat::base::Running;

/// Starts a server with this layer over the pages of [`echo`].
fn layered(
    layer: impl Fn(&IncomingRequest, &NextHandler<'_>) -> Reply + Send + Sync + 'static,
) -> Running<ServerControl> {
    echo(|builder| builder.layer(layer))
}

/// Returns the status and the body of a reply to `GET path`.
fn ask(server: &ServerControl, path: &str) -> (u16, String) {
    let reply = RawClient::with(server, get(path)).reply();
    (reply.status, reply.body)
}

/// Returns everything that a client receives after the head of a reply.
fn rest(server: &ServerControl, path: &str) -> String {
    let mut client = RawClient::with(server, get(path));
    assert_eq!(client.head().status, 200);
    client.rest()
}

#[test]
fn a_layer_answers_or_passes_on() {
    let server = layered(|request, next| match request.path() {
        "/own" => Reply::empty(418).with_header("X-A", "b").with_body("text/plain", "own"),
        "/less" => {
            let less = request.without_header("x-a").without_parameter("p");
            let facts = [less.header("x-a"), less.parameter("p"), less.parameter("q"), request.parameter("p")];
            Reply::empty(200).with_body("text/plain", format!("{facts:?}"))
        }
        "/panic" => panic!("the test panics"),
        _ => next.answer(request),
    });
    let own = RawClient::with(&server, get("/own")).reply();
    assert_eq!((own.status, own.body.as_str(), own.head.contains("x-a: b")), (418, "own", true));
    assert_eq!(ask(&server, "/other"), (200, "GET [\"other\"] ".to_owned()));
    assert_eq!(ask(&server, "/less?p=1&q=2").1, "[None, None, Some(\"2\"), Some(\"1\")]");
    assert_eq!(ask(&server, "/panic").0, 500);
    assert_eq!(ask(&server, "/apis/a/v1/things").0, 404);
}

#[test]
fn a_layer_sees_the_whole_request() {
    let (seen, requests) = channel();
    let server = layered(move |request, next| {
        let _ = seen.send(request.clone());
        next.answer(request)
    });
    let mut client = RawClient::with(
        &server,
        "POST /a%20b?x=1%202 HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}",
    );
    client.reply();
    client.send(get("/api/v1/nodes?watch=true"));
    client.reply();
    let [first, second] = [(); 2].map(|()| requests.recv_timeout(LONG).unwrap());
    assert_eq!((first.method(), first.path(), first.parameter("x")), ("POST", "/a%20b", Some("1 2")));
    assert_eq!((first.header("x-a"), first.body(), first.json()), (Some("b"), &b"{}"[..], Some(serde_json::json!({}))));
    assert_eq!((first.user().name.as_str(), first.peer().ip().is_loopback()), ("", true));
    assert_eq!([first.is_watch(), second.is_watch()], [false, true]);
    assert_eq!((first.connection(), second.connection()), (1, 1));
    ask(&server, "/");
    assert_eq!(requests.recv_timeout(LONG).unwrap().connection(), 2);
    assert!(!format!("{first:?}").contains("1 2"), "{first:?}");
}

#[test]
fn a_layer_may_decide_about_requests_as_another_user() {
    let server = layered(|request, next| match request.path() {
        "/dropped" => next.answer(&request.without_header("impersonate-user")),
        _ => next.answer(request),
    });
    for (path, status) in [("/dropped", 200), ("/kept", 403), ("/apis/a/v1/things", 403)] {
        let request = get(path).replace("\r\n\r\n", "\r\nImpersonate-User: root\r\n\r\n");
        assert_eq!(RawClient::with(&server, request).reply().status, status, "{path}");
    }
}

#[test]
fn a_reply_can_be_missing_or_broken_off() {
    let server = layered(|request, _| {
        let cut = |part: &[u8], out: &mut ReplyStream<'_>| {
            out.send(&part[..1])?;
            Err(std::io::ErrorKind::ConnectionAborted.into())
        };
        match request.path() {
            "/none" => Reply::hang_up().with_filter(cut),
            "/full" => Reply::empty(200).with_body("text/plain", "text").with_filter(cut),
            "/stream" => {
                let send = |out: &mut ReplyStream<'_>| {
                    out.send(b"one")?;
                    out.send(b"two")
                };
                let twice = |part: &[u8], out: &mut ReplyStream<'_>| out.send(&[part, part].concat());
                Reply::empty(200).with_stream("text/plain", send).with_filter(twice)
            }
            _ => Reply::empty(200).with_stream("text/plain", |out| {
                out.send(b"part")?;
                Err(std::io::ErrorKind::Other.into())
            }),
        }
    });
    assert_eq!(RawClient::with(&server, get("/none")).rest(), "");
    assert_eq!(rest(&server, "/full"), "1\r\nt\r\n");
    assert_eq!(rest(&server, "/stream"), "6\r\noneone\r\n6\r\ntwotwo\r\n0\r\n\r\n");
    assert_eq!(rest(&server, "/broken"), "4\r\npart\r\n");
    assert_eq!(server.counts().client_errors, 1, "the missing reply");
}

#[test]
fn a_long_list_can_be_filtered() {
    use crate::http::ReplyBody;
    let write = |out: &mut dyn std::io::Write| out.write_all(&vec![b'x'; 100_000]);
    let server = start(
        |builder| builder.layer(|request, next| next.answer(request).with_filter(|part, out| out.send(&part[..1]))),
        move |_| Reply { body: ReplyBody::Parts(Box::new(write)), ..Reply::text(StatusCode::OK, "") },
    );
    // 100,000 bytes are four parts of at most 32 KiB.
    assert_eq!(rest(&server, "/"), "1\r\nx\r\n".repeat(4) + "0\r\n\r\n");
}

#[test]
fn all_connections_break_off_at_once() {
    let (server, ended) = waiting(|builder| builder);
    let mut stream = RawClient::with(&server, get("/watch"));
    stream.head();
    assert_eq!(stream.chunk(), "hello");
    let mut idle = RawClient::connect(&server);
    wait_for(&server, |counts| counts.open_connections == 2);
    server.disconnect();
    assert_eq!((stream.rest(), idle.rest()), (String::new(), String::new()));
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));
    wait_for(&server, |counts| counts.open_connections == 0);
    let mut new = RawClient::with(&server, get("/watch"));
    new.head();
    assert_eq!(new.chunk(), "hello");
}

#[test]
fn a_reply_that_http_cannot_carry_is_refused() {
    type Make = fn() -> Reply;
    let refused: [(&str, Make); 4] = [
        ("between 200 and 999", || Reply::empty(100)),
        ("between 200 and 999", || Reply::empty(1_000)),
        ("\"a b\"", || Reply::empty(200).with_header("a b", "c")),
        ("\"c\\nd\"", || Reply::empty(200).with_header("a", "c\nd")),
    ];
    for (text, make) in refused {
        let panic = std::panic::catch_unwind(make).unwrap_err();
        let message = homeostat::rt::panic_message(&*panic);
        assert!(message.contains(text), "{message}");
    }
}
