use http::Method;
use proptest::prelude::*;

use super::*;

/// A result of the parser.
#[derive(Debug, PartialEq)]
enum Outcome {
    Request(Box<RequestHead>, Vec<u8>),
    Refused(u16),
}

fn limits() -> HttpLimits {
    HttpLimits { request_line: 60, head: 300, body: 100, ..HttpLimits::default() }
}

/// Feeds these pieces to a parser, and checks how much it stores. A refusal ends the connection.
fn outcomes<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Outcome> {
    let mut parser = RequestParser::new(&limits());
    let (mut outcomes, mut pending) = (Vec::new(), None);
    for piece in pieces {
        parser.feed(piece);
        loop {
            let step = match pending.take() {
                None => parser.head().map(|head| head.map(|head| pending = Some(head)).is_some()),
                Some(head) => parser.body().map(|body| {
                    let ended = body.is_some();
                    match body {
                        Some(body) => outcomes.push(Outcome::Request(Box::new(head), body)),
                        None => pending = Some(head),
                    }
                    ended
                }),
            };
            match step {
                Ok(true) => {}
                Ok(false) => {
                    let (kept, body) = (parser.buffer.len(), parser.body.len());
                    assert!(
                        kept <= limits().head.max(MOST_TRAILERS) && body <= limits().body,
                        "{kept} and {body} bytes"
                    );
                    break;
                }
                Err(refusal) => {
                    outcomes.push(Outcome::Refused(refusal.status.as_u16()));
                    return outcomes;
                }
            }
        }
    }
    outcomes
}

fn texts(outcomes: &[Outcome]) -> Vec<String> {
    let text = |outcome: &Outcome| match outcome {
        Outcome::Request(head, body) => {
            format!("{} {} {}", head.method, head.target.path, String::from_utf8_lossy(body))
        }
        Outcome::Refused(status) => status.to_string(),
    };
    outcomes.iter().map(text).collect()
}

/// Four requests, the last with a chunked body.
const PIPELINE: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n\
    POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nGET \r\n\
    PUT /c?d HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n\
    PATCH /e HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n\
    3\r\nabc\r\n00000002;x=\"y\"\r\n\r\n\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";

#[test]
fn pipelined_requests_are_the_same_in_all_splits() {
    let whole = outcomes([PIPELINE]);
    assert_eq!(texts(&whole), ["GET /a ", "POST /b GET ", "PUT /c ", "PATCH /e abc\r\n0123456789"]);
    for first in 0..PIPELINE.len() {
        let (one, rest) = PIPELINE.split_at(first);
        assert_eq!(outcomes([one, rest]), whole, "at {first}");
        for second in (0..rest.len()).step_by(7) {
            let (two, three) = rest.split_at(second);
            assert_eq!(outcomes([one, two, three]), whole, "at {first} and {second}");
        }
    }
    assert_eq!(outcomes(PIPELINE.chunks(1)), whole);
}

#[test]
fn heads_have_the_facts_that_the_connection_needs() {
    let head = |text: &str| match outcomes([text.as_bytes()]).pop() {
        Some(Outcome::Request(head, _)) => *head,
        other => panic!("{text}: {other:?}"),
    };
    let old = head("GET / HTTP/1.0\r\n\r\n");
    assert!(old.is_old && old.is_last && old.host.is_none());
    let new = head("GET http://One:80/ HTTP/1.1\r\nHost: two\r\nExpect: 100-Continue\r\n\r\n");
    assert!(!new.is_old && !new.is_last && new.expects_continue);
    assert_eq!(new.host.as_deref(), Some("one:80"), "an absolute target has precedence over Host");
    assert!(head("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n").is_last);
    assert_eq!(head("QUERY / HTTP/1.1\r\nHost:\r\n\r\n").method, Method::from_bytes(b"QUERY").unwrap());
}

#[test]
fn later_minor_versions_are_read_as_1_1() {
    let request = |version: &str| {
        let text =
            format!("POST /a HTTP/{version}\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n");
        outcomes([text.as_bytes()])
    };
    assert_eq!(texts(&request("1.1")), ["POST /a b"]);
    for version in ["1.2", "1.9"] {
        assert_eq!(request(version), request("1.1"), "{version}");
    }
}

#[test]
fn requests_that_two_readers_may_understand_differently_are_refused() {
    let cases: [(u16, &str); 41] = [
        // Two lengths.
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
        // Lengths that are not plain numbers.
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\n"),
        (413, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999999999\r\n\r\n"),
        (413, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"),
        // Encodings other than chunks.
        (501, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"),
        (501, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
        (501, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n"),
        (501, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        (400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        // Lines and names.
        (400, "GET / HTTP/1.1\nHost: h\n\n\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost : h\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n Host: h\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n"),
        (400, "GET  / HTTP/1.1\r\nHost: h\r\n\r\n"),
        (400, "GET /\tHTTP/1.1\r\nHost: h\r\n\r\n"),
        (400, "get / HTTP/1.1\r\nHost: h\r\n\r\n"),
        (400, "\x16\x03\x01\x02"),
        // Hosts, versions, expectations and methods.
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n"),
        (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (505, "GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
        (400, "GET / HTTP/1.10\r\nHost: h\r\n\r\n"),
        (505, "GET / HTTP/1.\r\nHost: h\r\n\r\n"),
        (505, "GET / HTTP/0.9\r\nHost: h\r\n\r\n"),
        (417, "GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n"),
        (405, "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n"),
        (405, "TRACE / HTTP/1.1\r\nHost: h\r\n\r\n"),
    ];
    for (status, text) in cases {
        assert_eq!(outcomes([text.as_bytes()]), [Outcome::Refused(status)], "{text:?}");
        assert_eq!(outcomes(text.as_bytes().chunks(1)), [Outcome::Refused(status)], "{text:?}, byte by byte");
    }
}

#[test]
fn chunks_that_two_readers_may_understand_differently_are_refused() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (status, body) in [
        (400, "\r\n"),
        (400, "x\r\n"),
        (400, "+1\r\na\r\n"),
        (400, "0x1\r\na\r\n"),
        (400, " 1\r\na\r\n"),
        (400, "1 \r\na\r\n"),
        (400, "1\na\r\n0\r\n\r\n"),
        (400, "1\r\nab\r\n"),
        (400, "1\r\na\n0\r\n\r\n"),
        (400, "1;\rx\r\na\r\n"),
        (400, "100000001\r\n"),
        (413, "65\r\n"),
        (
            413,
            "60\r\n012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345\r\n5\r\n",
        ),
        (400, "0\r\na: b\n\r\n"),
    ] {
        let text = format!("{head}{body}");
        assert_eq!(outcomes([text.as_bytes()]), [Outcome::Refused(status)], "{body:?}");
        assert_eq!(outcomes(text.as_bytes().chunks(1)), [Outcome::Refused(status)], "{body:?}, byte by byte");
    }
    let long = format!("{head}1;{}\r\na\r\n", "x".repeat(MOST_CHUNK_LINE));
    assert_eq!(outcomes([long.as_bytes()]), [Outcome::Refused(400)]);
    let trailers = format!("{head}0\r\n{}\r\n", "a: b\r\n".repeat(MOST_TRAILERS / 6 + 2));
    assert_eq!(outcomes([trailers.as_bytes()]), [Outcome::Refused(400)]);
}

#[test]
fn all_parts_of_a_request_are_bounded() {
    let line = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(60));
    let headers = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(300));
    let unended = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "a".repeat(300));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a:\r\n".repeat(101));
    for (status, text) in [(414, &line), (414, &line[..70].to_owned()), (431, &headers), (431, &unended), (431, &many)]
    {
        assert_eq!(outcomes([text.as_bytes()]), [Outcome::Refused(status)], "{text}");
        assert_eq!(outcomes(text.as_bytes().chunks(1)), [Outcome::Refused(status)], "{text}, byte by byte");
    }
}

#[test]
fn too_many_headers_are_refused() {
    let mut parser = RequestParser::new(&HttpLimits::default());
    parser.feed(format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a:\r\n".repeat(100)).as_bytes());
    assert_eq!(parser.head().unwrap_err().status.as_u16(), 431);
}

/// Returns bytes that often resemble requests.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(&b"GET / HTTP/1.1\r\n"[..]),
        Just(&b"POST /a%2Fb?c=d HTTP/1.1\r\n"[..]),
        Just(&b"PUT /a HTTP/1.0\r\n"[..]),
        Just(&b"Host: h\r\n"[..]),
        Just(&b"Content-Length: 5\r\n"[..]),
        Just(&b"Transfer-Encoding: chunked\r\n"[..]),
        Just(&b"Expect: 100-continue\r\n"[..]),
        Just(&b"\r\n"[..]),
        Just(&b"5\r\nhello\r\n"[..]),
        Just(&b"0\r\n\r\n"[..]),
        Just(&b"hello"[..]),
        Just(&b"\n"[..]),
        Just(&b"\r"[..]),
    ];
    let likely = proptest::collection::vec(word, 0..12).prop_map(|words| words.concat());
    let any_bytes = proptest::collection::vec(any::<u8>(), 0..80);
    let spoiled = (Just(PIPELINE.to_vec()), any::<prop::sample::Index>(), any::<u8>());
    let spoiled = spoiled.prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    prop_oneof![likely, any_bytes, spoiled]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_mean_the_same_under_any_split(
        bytes in traffic(), sizes in proptest::collection::vec(1_usize..40, 1..30),
    ) {
        let whole = outcomes([&bytes[..]]);
        let mut rest = &bytes[..];
        let pieces = sizes.iter().cycle().map_while(|size| {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            rest = after;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(outcomes(pieces), whole);
    }
}
