//! Requests and replies.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::access::UserInfo;
use homeostat::base::CancellationToken;

/// How many bytes of a body are sent at once.
pub(super) const PART: usize = 32 << 10;

/// A completely read request from an authenticated user.
#[derive(Clone, Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) method: Method,
    /// The path as sent, without the query. Begins with `/`.
    pub(crate) path: String,
    /// The decoded segments of the path. None is empty, `.` or `..`. Empty for `/`.
    pub(crate) segments: Vec<String>,
    /// The decoded names and values of the query, in order.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) user: UserInfo,
    pub(crate) peer: SocketAddr,
}

impl IncomingRequest {
    /// Returns the first value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a header, if it is text.
    pub(crate) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Returns whether the value of a query parameter means false.
pub(crate) fn is_false(text: &str) -> bool {
    matches!(text, "" | "0" | "f" | "F" | "false" | "False" | "FALSE")
}

/// A reply to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// All headers except `Content-Length`, `Transfer-Encoding`, `Connection` and `Date`, which the connection sets.
    pub(crate) headers: HeaderMap,
    pub(crate) body: ReplyBody,
    /// How much memory the body uses until it is sent, in addition to a full body's bytes.
    pub(crate) holds: usize,
    /// The outcome for the write log, if it differs from the status.
    pub(crate) logged: Option<LoggedOutcome>,
}

/// The outcome of a request in the log. The status of the reply may not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedOutcome {
    pub(crate) status: StatusCode,
    pub(crate) dry_run: bool,
}

/// The body of a [`Reply`].
pub(crate) enum ReplyBody {
    Full(Vec<u8>),
    /// A body that is created while it is sent, so that it is never completely in memory. The function runs on the
    /// connection's thread. If it returns an error, the reply is broken off.
    Parts(PartsBody),
    /// A body that is sent over time. The function runs on the connection's thread. The token is cancelled when the
    /// client leaves, when the server stops, and at the end of a stream's longest duration. A return ends the body
    /// properly. An error breaks it off, unless the server has refused a part after a stop.
    Stream(StreamBody),
}

/// Writes a body in parts.
pub(crate) type PartsBody = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// Sends the parts of a body.
pub(crate) type StreamBody = Box<dyn FnOnce(&mut dyn ReplySink, &CancellationToken) -> io::Result<()> + Send>;

/// Receives a body in parts.
pub(crate) trait ReplySink {
    /// Sends these bytes at once as one chunk. Fails if the client does not read them in time, or soon after a stop.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Sets how much memory the body uses. Returns false if it needs more while other replies occupy the memory. Then
    /// the body must end soon.
    fn hold(&mut self, bytes: usize) -> bool;
}

/// Sends written bytes in chunks of limited size, so that a large part of a body needs no second copy.
pub(crate) struct SinkWriter<'a> {
    sink: &'a mut dyn ReplySink,
    buffer: Vec<u8>,
}

impl<'a> SinkWriter<'a> {
    pub(crate) fn new(sink: &'a mut dyn ReplySink) -> Self {
        Self { sink, buffer: Vec::new() }
    }
}

impl io::Write for SinkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART);
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() >= PART {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.send(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Answers requests.
pub(crate) trait Handler: Send + Sync {
    fn handle(&self, request: &IncomingRequest) -> Reply;
}

impl Reply {
    /// Creates a reply with a body of this content type.
    pub(crate) fn new(status: StatusCode, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        Self { status, headers, body: ReplyBody::Full(body.into()), holds: 0, logged: None }
    }

    /// Creates a plain text reply.
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.into())
    }

    /// Creates a JSON reply.
    pub(crate) fn json(status: StatusCode, json: &serde_json::Value) -> Self {
        Self::new(status, "application/json", json.to_string())
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Self::Parts(_) => f.write_str("Parts"),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}
