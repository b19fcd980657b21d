use http::StatusCode;

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const THREE: &str = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\
    POST /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc\
    PUT /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nxyz\r\n0\r\n\r\n";

#[test]
fn pipelined_requests_are_answered_in_order_in_all_splits() {
    let server = echo(|builder| builder);
    for at in 0..THREE.len() {
        let (first, second) = THREE.split_at(at);
        let mut client = RawClient::with(&server, first);
        client.send(second);
        let bodies = [client.reply(), client.reply(), client.reply()].map(|reply| reply.body);
        assert_eq!(bodies, ["GET [\"a\"] ", "POST [\"b\"] abc", "PUT [\"c\"] xyz"], "at {at}");
        assert_eq!(client.rest(), "");
    }
}

/// Corrupts some bytes of valid requests. The server may refuse them, but keeps serving others and stores nothing.
#[test]
fn spoiled_requests_harm_nobody() {
    let server = echo(|builder| builder);
    let mut other = RawClient::connect(&server);
    // A fixed sequence of numbers (xorshift).
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % 0xffff).unwrap() % below
    };
    for _ in 0..500 {
        let mut bytes = THREE.as_bytes().to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            match draw(3) {
                0 => bytes[at] = u8::try_from(draw(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at + 1),
            }
        }
        let mut client = RawClient::with(&server, &bytes);
        client.half_close();
        let replies = client.rest();
        assert!(replies.is_empty() || replies.starts_with("HTTP/1.1 "), "{replies}");
        assert!(!replies.contains("HTTP/1.1 500"), "{replies}");
        other.send(get("/other"));
        assert_eq!(other.reply().status, 200);
    }
    drop(other);
    slow::wait_for(&server, |counts| counts.open_connections == 0);
}

#[test]
fn a_connection_serves_many_requests() {
    let server = echo(|builder| builder);
    let mut client = RawClient::connect(&server);
    for number in 0..100 {
        client.send(get(&format!("/{number}")));
        let reply = client.reply();
        assert_eq!((reply.status, reply.body), (200, format!("GET [\"{number}\"] ")));
        assert!(!reply.head.contains("connection: close") && reply.head.contains("x-content-type-options: nosniff"));
    }
    assert_eq!(server.counts().accepted_connections, 1);
    assert_eq!(server.counts().succeeded, 100);
}

#[test]
fn paths_are_decoded_once() {
    let server = echo(|builder| builder);
    let mut client = RawClient::connect(&server);
    for (path, body) in [("/a%2Fb/c", "GET [\"a/b\", \"c\"] "), ("/%252e%252e/", "GET [\"%2e%2e\"] "), ("/", "GET [] ")]
    {
        client.send(get(path));
        assert_eq!(client.reply().body, body);
    }
    for path in ["/../etc", "/%2e%2e/etc", "/a//b", "/a%00", "/%ff", "/%zz", "etc", "*"] {
        let mut client = RawClient::with(&server, get(path));
        assert_eq!(client.reply().status, 400, "{path}");
        client.rest();
    }
}

#[test]
fn a_smuggled_request_is_not_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let server = start(
        |builder| builder,
        move |_| {
            counted.fetch_add(1, SeqCst);
            Reply::text(StatusCode::OK, "run")
        },
    );
    let hidden = get("/hidden");
    for head in [
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Content-Length: 0\r\nContent-Length: 40",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Content-Length: 0\r\n\tContent-Length: 40",
        "A: b\nContent-Length: 40",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n0\r\n\r\n{hidden}");
        let mut client = RawClient::with(&server, request);
        let reply = client.reply();
        assert_eq!(reply.status, 400, "{head}");
        assert!(reply.head.contains("connection: close"));
        assert_eq!(client.rest(), "", "{head}");
    }
    assert_eq!(runs.load(SeqCst), 0);
}

#[test]
fn a_client_that_expects_100_continue_is_told_to_send_its_body() {
    let server = echo(|builder| builder);
    let head = "POST /a HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut client = RawClient::with(&server, head);
    assert_eq!(client.head().status, 100);
    client.send("hello");
    assert_eq!(client.reply().body, "POST [\"a\"] hello");
    // A client that does not wait.
    client.send(format!("{head}again"));
    assert_eq!(client.reply().body, "POST [\"a\"] again");
}

#[test]
fn a_request_that_reads_has_no_body() {
    let server = echo(|builder| builder);
    for head in [
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1",
        "HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked",
    ] {
        let mut client = RawClient::with(&server, format!("{head}\r\n\r\n"));
        assert_eq!(client.head().status, 400, "{head}");
    }
    let empty = "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(RawClient::with(&server, empty).reply().status, 200);
}

#[test]
fn a_refused_request_is_not_told_to_send_its_body() {
    let server = echo(|builder| builder.token("secret", crate::UserInfo::new("ada")));
    let head = "POST /a HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut client = RawClient::with(&server, head);
    let reply = client.reply();
    assert_eq!(reply.status, 401);
    assert!(reply.head.contains("www-authenticate: bearer") && reply.head.contains("connection: close"));
    assert_eq!(client.rest(), "");
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let server = echo(|builder| builder);
    let mut client = RawClient::with(&server, get("/a").replace("GET", "HEAD"));
    let head = client.head();
    assert!(head.status == 200 && head.head.contains("content-length: 10\r\n"), "{}", head.head);
    client.send(get("/b"));
    assert_eq!(client.reply().body, "GET [\"b\"] ");
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let server = echo(|builder| builder);
    let mut client = RawClient::with(&server, format!("{}{}", get("/a"), get("/b")));
    client.half_close();
    assert_eq!((client.reply().body.as_str(), client.reply().body.as_str()), ("GET [\"a\"] ", "GET [\"b\"] "));
    assert_eq!(client.rest(), "");
}

#[test]
fn a_connection_that_ends_within_a_request_gets_nothing() {
    let server = echo(|builder| builder);
    for part in ["G", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab"] {
        let mut client = RawClient::with(&server, part);
        client.half_close();
        assert_eq!(client.rest(), "");
    }
}

#[test]
fn a_panicking_handler_is_answered_with_500() {
    let server = start(
        |builder| builder,
        |request| {
            assert!(request.path != "/panic", "the test panics");
            Reply::text(StatusCode::OK, "fine")
        },
    );
    let mut client = RawClient::with(&server, format!("{}{}", get("/panic"), get("/")));
    assert_eq!(client.reply().status, 500);
    assert_eq!(client.reply().body, "fine");
    assert_eq!(server.counts().server_errors, 1);
}

#[test]
fn a_panicking_authorization_is_answered_with_500() {
    let server = echo(|builder| builder.authorize(|request| panic!("the test panics about {request}")));
    let mut client = RawClient::with(&server, get("/").repeat(2));
    assert_eq!([client.reply().status, client.reply().status], [500, 500]);
}

#[test]
fn clients_of_http_1_0_get_their_reply_and_the_end() {
    let server = echo(|builder| builder);
    let mut client = RawClient::with(&server, "GET /old HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().body, "GET [\"old\"] ");
    assert_eq!(client.rest(), "");
}

#[test]
fn hosts_and_public_paths_that_no_request_has_are_refused() {
    let build = |change: fn(ServerBuilder, String) -> ServerBuilder, value: &str| {
        change(Server::builder((Ipv4Addr::LOCALHOST, 0)), value.to_owned())
            .build()
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let public = |path: &str| build(ServerBuilder::public_path, path);
    for path in ["livez", "/livez/", "//", "/livez?verbose", "/a//b", "", "/%6Civez"] {
        assert!(public(path).unwrap_err().starts_with("public_path is"), "{path}");
    }
    assert!(["/", "/livez", "/a b/größe"].iter().all(|path| public(path).is_ok()));
    let host = |host: &str| build(ServerBuilder::allow_host, host);
    for name in ["box:8443", "https://box", "box.", "box/", "", "::1"] {
        assert!(host(name).unwrap_err().starts_with("allow_host is"), "{name}");
    }
    assert!(["box", "Box.example", "[fd00::1]", "192.0.2.1"].iter().all(|name| host(name).is_ok()));
}

#[test]
fn object_paths_and_other_paths_have_their_own_handlers() {
    let handler = |name: &'static str| Arc::new(FunctionHandler(Box::new(move |_| Reply::text(StatusCode::OK, name))));
    let server = echo(|builder| {
        builder.object_handler(move |_| handler("objects")).authorize(|request| match &request.target {
            crate::AccessTarget::Path(path) if path != "/api" => crate::Access::Deny(path.clone()),
            _ => crate::Access::Allow,
        })
    });
    let mut client = RawClient::connect(&server);
    for path in ["/api", "/apis/a/v1", "/openapi/v2", "/version", "/%61pi/v1"] {
        client.send(get(path));
        assert_eq!(client.reply().body, "objects", "{path}");
    }
    for path in ["/m%65trics", "/", "/apix", "/api%2fv1"] {
        client.send(get(path));
        assert_eq!(client.reply().status, 403, "{path}");
    }
    client.send(get("/metrics/"));
    assert_eq!(client.reply().body, "an anonymous user: get /metrics is forbidden: /metrics\n");
}
