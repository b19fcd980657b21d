//! Requests: read from a connection, and recorded for tests.

use std::io::{self, Read};

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The size limit for the head of a request, in bytes.
const MOST_HEAD: usize = 64 * 1_024;
/// The size limit for the body of a request, in bytes: the same as in an API server.
const MOST_BODY: usize = 3 * 1_024 * 1_024;
const MOST_HEADERS: usize = 100;

/// A request that an [`ApiServer`](super::ApiServer) has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerRequest {
    /// The method in upper case: `GET`.
    pub method: String,
    /// The path as sent, without the query.
    pub path: String,
    /// The names and decoded values of the query, in order.
    pub query: Vec<(String, String)>,
    /// The headers, in order. The names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The number of the connection, counted from 0.
    pub connection: usize,
}

impl ServerRequest {
    /// Returns the value of a query parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        find(&self.query, name)
    }

    /// Returns the value of a header. The case of the name does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, &name.to_ascii_lowercase())
    }

    /// Returns the body as JSON; `None` if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns whether the request is a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.method == "GET" && matches!(self.parameter("watch"), Some("true" | "1"))
    }

    /// Returns whether the client will send no more requests on this connection.
    pub(super) fn is_last(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The reason that no request was read.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The client has closed the connection, or the connection failed.
    Closed,
    /// The request is refused with this status.
    Refused(u16),
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// Reads the next request. `buffer` keeps bytes that follow it.
pub(super) fn read(mut stream: impl Read, buffer: &mut Vec<u8>) -> Result<ServerRequest, NoRequest> {
    loop {
        if let Some((mut request, head, length)) = parse(buffer)? {
            fill(&mut stream, buffer, head + length)?;
            request.body = buffer[head..head + length].to_vec();
            buffer.drain(..head + length);
            return Ok(request);
        }
        if buffer.len() > MOST_HEAD {
            return Err(NoRequest::Refused(431));
        }
        let length = buffer.len();
        fill(&mut stream, buffer, length + 1)?;
    }
}

/// Reads until the buffer has this many bytes.
fn fill(mut stream: impl Read, buffer: &mut Vec<u8>, wanted: usize) -> io::Result<()> {
    let mut bytes = [0; 8_192];
    while buffer.len() < wanted {
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => buffer.extend_from_slice(&bytes[..read]),
        }
    }
    Ok(())
}

/// Returns the request without its body, the length of its head, and the length of its body. Returns `None` if the head
/// is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(ServerRequest, usize, usize)>, NoRequest> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(NoRequest::Refused(400)),
    };
    let (path, query) =
        parsed.path.unwrap_or_default().split_once('?').unwrap_or((parsed.path.unwrap_or_default(), ""));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let request = ServerRequest {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.split('&').filter(|pair| !pair.is_empty()).map(decode_pair).collect(),
        headers: parsed.headers.iter().map(|header| (header.name.to_ascii_lowercase(), text(header.value))).collect(),
        ..ServerRequest::default()
    };
    if request.header("transfer-encoding").is_some() {
        return Err(NoRequest::Refused(411));
    }
    let length = match request.header("content-length").map(str::parse) {
        None => 0,
        Some(Ok(length)) if length <= MOST_BODY => length,
        Some(Ok(_)) => return Err(NoRequest::Refused(413)),
        Some(Err(_)) => return Err(NoRequest::Refused(400)),
    };
    Ok(Some((request, head, length)))
}

fn decode_pair(pair: &str) -> (String, String) {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
}

/// Decodes percent-encoded bytes. Leaves invalid sequences as they are.
pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_in_pieces_and_keeps_the_next() {
        let text = b"POST /a?x=1%2F2&y=a+b HTTP/1.1\r\nContent-Length: 2\r\nX-A: b\r\n\r\n{}GET /b HTTP/1.1\r\n\r\n";
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            let mut stream = first.chain(second);
            let mut buffer = Vec::new();
            let request = read(&mut stream, &mut buffer).unwrap();
            assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/a"));
            assert_eq!((request.parameter("x"), request.parameter("y")), (Some("1/2"), Some("a b")));
            assert_eq!((request.header("x-A"), request.json()), (Some("b"), Some(serde_json::json!({}))));
            assert_eq!(read(&mut stream, &mut buffer).unwrap().path, "/b");
            assert!(matches!(read(&mut stream, &mut buffer), Err(NoRequest::Closed)));
        }
    }

    #[test]
    fn requests_are_bounded() {
        let refusal = |text: &str| match read(text.as_bytes(), &mut Vec::new()) {
            Err(NoRequest::Refused(status)) => status,
            other => panic!("{other:?}"),
        };
        assert_eq!(refusal("rubbish\r\n\r\n"), 400);
        assert_eq!(refusal(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(MOST_HEAD))), 431);
        assert_eq!(refusal("POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n"), 413);
        assert_eq!(refusal("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
    }
}
