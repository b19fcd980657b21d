//! Writes replies to a connection.

use std::io::{self, Write};

use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde_json::json;

use super::counts::{HttpCounts, increment};
use super::head::RequestHead;
use super::memory::ReplyReservation;
use super::message::{Reply, ReplySink};
use super::registry::{ConnectionPhase, ConnectionSlot};
use super::transport::ServerTransport;

/// How a reply is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the request")]
pub(super) struct ReplyFrame {
    /// Whether the connection ends after the reply.
    pub(super) closes: bool,
    /// Whether the client requests only the head.
    pub(super) head_only: bool,
    /// Whether the client supports chunks.
    pub(super) chunks: bool,
    /// Whether the client accepts bodies compressed with gzip.
    pub(super) gzip: bool,
    /// Whether the request only reads. Then it may still be refused after its answer was created.
    pub(super) reads: bool,
}

impl ReplyFrame {
    /// The frame of a connection's last reply.
    pub(super) const LAST: Self = Self { closes: true, head_only: false, chunks: true, gzip: false, reads: false };

    pub(super) fn of(head: &RequestHead) -> Self {
        let head_only = head.method == Method::HEAD;
        let reads = head_only || head.method == Method::GET;
        Self { closes: head.is_last, head_only, chunks: !head.is_old, gzip: accepts_gzip(&head.headers), reads }
    }
}

/// Returns whether a client accepts bodies compressed with gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let is_zero = parameters.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_zero
    })
}

/// Formats these bytes as one chunk of a body. They must not be empty.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(bytes.len() + 12);
    // Writing to a vector cannot fail.
    let _ = write!(chunk, "{:x}\r\n", bytes.len());
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Returns the bytes of a reply with a complete body or without one. `date` is the value of the header `Date`.
pub(super) fn full_reply(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    frame: ReplyFrame,
    date: &str,
) -> Vec<u8> {
    let mut bytes = head(status, headers, frame.closes, date);
    let has_no_body = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !has_no_body {
        // Writing to a vector cannot fail.
        let _ = write!(bytes, "content-length: {}\r\n", body.len());
    }
    bytes.extend_from_slice(b"\r\n");
    if !has_no_body && !frame.head_only {
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Returns the head of a stream.
pub(super) fn stream_head(status: StatusCode, headers: &HeaderMap, frame: ReplyFrame, date: &str) -> Vec<u8> {
    let mut bytes = head(status, headers, frame.closes, date);
    if frame.chunks {
        bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn head(status: StatusCode, headers: &HeaderMap, closes: bool, date: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    let reason = status.canonical_reason().unwrap_or("Unknown");
    let _ = write!(bytes, "HTTP/1.1 {} {reason}\r\ndate: {date}\r\n", status.as_str());
    for (name, value) in headers {
        if is_of_the_connection(name) {
            continue;
        }
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    for (name, value) in [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-store")] {
        if !headers.contains_key(&name) {
            let _ = write!(bytes, "{name}: {value}\r\n");
        }
    }
    if closes {
        bytes.extend_from_slice(b"connection: close\r\n");
    }
    bytes
}

/// Returns whether this header is set only by the connection.
fn is_of_the_connection(name: &HeaderName) -> bool {
    matches!(*name, header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::CONNECTION | header::DATE)
}

/// Sends the parts of a stream.
pub(super) struct StreamWriter<'a> {
    pub(super) transport: &'a mut ServerTransport,
    pub(super) slot: &'a ConnectionSlot,
    pub(super) chunks: bool,
    /// The memory that the body uses.
    pub(super) memory: &'a mut ReplyReservation,
    pub(super) counts: &'a HttpCounts,
    /// Whether sending a part has failed. Then no further part can be sent.
    pub(super) failed: bool,
    /// Whether a part was refused after a stop. The client has received complete parts, so the stream can end
    /// properly.
    pub(super) refused: bool,
}

impl StreamWriter<'_> {
    /// Ends the body.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if self.chunks { self.write(b"0\r\n\r\n") } else { Ok(()) }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = self.transport.write(bytes, self.slot.begin_write());
        self.slot.connection.enter(ConnectionPhase::Handles);
        self.failed = written.is_err();
        written
    }
}

impl ReplySink for StreamWriter<'_> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            // An empty chunk would end the body.
            return Ok(());
        }
        if self.slot.is_cut() {
            self.refused = true;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !self.chunks {
            return self.write(bytes);
        }
        self.write(&chunk(bytes))
    }

    fn hold(&mut self, bytes: usize) -> bool {
        let holds = self.memory.hold(bytes).is_ok();
        if !holds {
            increment(&self.counts.dropped_streams);
        }
        holds
    }
}

impl Reply {
    /// Creates a reply with a Kubernetes `Status`, as its clients expect.
    pub(crate) fn failure(status: StatusCode, reason: &str, message: &str) -> Self {
        let json = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": status.as_u16(),
        });
        Self::json(status, &json)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const FRAME: ReplyFrame = ReplyFrame { closes: false, ..ReplyFrame::LAST };

    fn text(status: StatusCode, frame: ReplyFrame) -> String {
        let headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, HeaderValue::from_static("text/plain")),
            (header::CONTENT_LENGTH, HeaderValue::from_static("7")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ]);
        String::from_utf8(full_reply(status, &headers, b"hello", frame, "now")).unwrap()
    }

    #[test]
    fn a_reply_has_one_length_and_the_headers_of_its_handler() {
        let expected = "HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: text/plain\r\ncache-control: no-cache\r\n\
                        x-content-type-options: nosniff\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(text(StatusCode::OK, FRAME), expected);
    }

    #[test]
    fn a_reply_to_head_has_the_length_without_the_body() {
        let reply = text(StatusCode::OK, ReplyFrame { head_only: true, closes: true, ..FRAME });
        assert!(reply.ends_with("connection: close\r\ncontent-length: 5\r\n\r\n"), "{reply}");
    }

    #[test]
    fn a_client_accepts_gzip_unless_its_weight_is_zero() {
        let accepts = |values: &[&'static str]| {
            let values = values.iter().map(|value| (header::ACCEPT_ENCODING, HeaderValue::from_static(value)));
            accepts_gzip(&values.collect())
        };
        for values in [&["gzip"][..], &["deflate, GZIP;q=0.5"], &["br", "gzip"], &["gzip; q=1"]] {
            assert!(accepts(values), "{values:?}");
        }
        for values in [&[][..], &["identity"], &["gzip;q=0"], &["br, gzip; q=0.000"], &["x-gzip"], &["*"]] {
            assert!(!accepts(values), "{values:?}");
        }
    }

    #[test]
    fn no_content_has_no_length() {
        let reply = text(StatusCode::NO_CONTENT, FRAME);
        assert!(!reply.contains("content-length") && reply.ends_with("\r\n\r\n"), "{reply}");
    }
}
