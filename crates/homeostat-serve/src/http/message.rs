//! Replies.

use std::fmt;
use std::io;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::request::IncomingRequest;
use homeostat::base::CancellationToken;

/// How many bytes of a body are sent at once.
pub(super) const PART: usize = 32 << 10;

/// The status of a connection that was closed without a reply, for the log and the metrics. Other servers use it too.
const NO_REPLY: u16 = 444;

/// A reply to a request, from a [layer](crate::ServerBuilder::layer).
///
/// The server sets the headers `Content-Length`, `Transfer-Encoding`, `Connection` and `Date`.
///
/// # Examples
///
/// ```
/// use homeostat_serve::Reply;
///
/// let busy = Reply::empty(503).with_header("Retry-After", "5").with_body("text/plain", "the disk is being replaced\n");
/// let silent = Reply::empty(200).with_stream("text/plain", |out| {
///     out.send(b"wait...\n")?;
///     out.gone().wait();
///     Ok(())
/// });
/// # let _ = (busy, silent);
/// ```
#[derive(Debug)]
#[must_use = "a reply does nothing until a layer returns it"]
pub struct Reply {
    pub(crate) status: StatusCode,
    /// All headers except those that the connection sets.
    pub(crate) headers: HeaderMap,
    pub(crate) body: ReplyBody,
    /// How much memory the body uses until it is sent, in addition to a full body's bytes.
    pub(crate) holds: usize,
    /// The outcome for the write log, if it differs from the status.
    pub(crate) logged: Option<LoggedOutcome>,
    /// Whether the reply tells that a health check has failed. The server counts these replies apart.
    pub(crate) is_failed_check: bool,
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
    /// A body that is sent over time. The function runs on the connection's thread. A return ends the body properly.
    /// An error breaks it off, unless the server has refused a part after a stop.
    Stream(StreamBody),
    /// No reply: the connection is closed.
    HangUp,
}

/// Writes a body in parts.
pub(crate) type PartsBody = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// Sends the parts of a body.
pub(crate) type StreamBody = Box<dyn FnOnce(&mut ReplyStream<'_>) -> io::Result<()> + Send>;

/// Receives a body in parts.
pub(crate) trait ReplySink {
    /// Sends these bytes at once as one chunk. Fails if the client does not read them in time, or soon after a stop.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Sets how much memory the body uses. Returns false if it needs more while other replies occupy the memory. Then
    /// the body must end soon.
    fn hold(&mut self, bytes: usize) -> bool;
}

/// Sends the body of a reply over time, see [`Reply::with_stream`].
pub struct ReplyStream<'a> {
    sink: &'a mut dyn ReplySink,
    gone: &'a CancellationToken,
}

impl<'a> ReplyStream<'a> {
    pub(crate) fn new(sink: &'a mut dyn ReplySink, gone: &'a CancellationToken) -> Self {
        Self { sink, gone }
    }

    /// Sends these bytes at once.
    ///
    /// Blocks until the system has taken them. The client, the time limit for writes, a stop of the server and
    /// [`disconnect`](crate::ServerControl::disconnect) wake it.
    ///
    /// # Errors
    ///
    /// Returns an error if the client has left, does not read in time, or if the server has stopped. Return it from the
    /// body.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.send(bytes)
    }

    /// Returns a token that is cancelled when the client leaves, when the server stops, and at the end of the longest
    /// [life of a stream](crate::ServerBuilder::stream_life).
    #[must_use]
    pub fn gone(&self) -> &'a CancellationToken {
        self.gone
    }

    /// Sets how much memory the body uses, see [`ReplySink::hold`].
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        self.sink.hold(bytes)
    }
}

impl fmt::Debug for ReplyStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyStream").field("gone", &self.gone).finish_non_exhaustive()
    }
}

/// Sends written bytes in chunks of limited size, so that a large part of a body needs no second copy.
pub(crate) struct SinkWriter<'a, 'b> {
    stream: &'a mut ReplyStream<'b>,
    buffer: Vec<u8>,
}

impl<'a, 'b> SinkWriter<'a, 'b> {
    pub(crate) fn new(stream: &'a mut ReplyStream<'b>) -> Self {
        Self { stream, buffer: Vec::new() }
    }
}

impl io::Write for SinkWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART);
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() >= PART {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.send(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Answers requests.
pub(crate) trait Handler: Send + Sync {
    fn handle(&self, request: &IncomingRequest) -> Reply;
}

impl Reply {
    /// Creates a reply without a body.
    ///
    /// # Panics
    ///
    /// Panics if the status is not between 200 and 999.
    #[expect(clippy::panic, reason = "documented")]
    pub fn empty(status: u16) -> Self {
        let status = StatusCode::from_u16(status).ok().filter(|status| !status.is_informational());
        let status = status.unwrap_or_else(|| panic!("the status of a reply must be between 200 and 999"));
        Self {
            status,
            headers: HeaderMap::new(),
            body: ReplyBody::Full(Vec::new()),
            holds: 0,
            logged: None,
            is_failed_check: false,
        }
    }

    /// Creates a reply that closes the connection without sending anything. Its status in the log and the metrics is
    /// 444.
    pub fn hang_up() -> Self {
        Self { body: ReplyBody::HangUp, ..Self::empty(NO_REPLY) }
    }

    /// Sets the body.
    ///
    /// # Panics
    ///
    /// Panics if the content type is not a valid header value.
    pub fn with_body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { body: ReplyBody::Full(body.into()), holds: 0, ..self.with_header("content-type", content_type) }
    }

    /// Sets a body that is sent over time. The connection ends after it.
    ///
    /// The function runs on the connection's thread. Its return ends the body properly, and an error breaks it off.
    ///
    /// # Panics
    ///
    /// Panics if the content type is not a valid header value.
    pub fn with_stream(
        self,
        content_type: &str,
        send: impl FnOnce(&mut ReplyStream<'_>) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self { body: ReplyBody::Stream(Box::new(send)), holds: 0, ..self.with_header("content-type", content_type) }
    }

    /// Passes each part of the body to a function, which sends other bytes in its place, or none. The body becomes a
    /// [stream](Self::with_stream).
    ///
    /// A watch has one part for each event, unless the event has more than 32 KiB. If the function returns an error,
    /// the body is broken off.
    ///
    /// # Examples
    ///
    /// ```
    /// # use homeostat_serve::Reply;
    /// // Breaks off the body in its middle.
    /// let broken = Reply::empty(200).with_body("text/plain", "complete").with_filter(|part, out| {
    ///     out.send(&part[..part.len() / 2])?;
    ///     Err(std::io::ErrorKind::ConnectionAborted.into())
    /// });
    /// # let _ = broken;
    /// ```
    pub fn with_filter(
        self,
        filter: impl FnMut(&[u8], &mut ReplyStream<'_>) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let send: StreamBody = match self.body {
            ReplyBody::HangUp => return self,
            ReplyBody::Full(bytes) => Box::new(move |out| out.send(&bytes)),
            ReplyBody::Parts(write) => Box::new(move |out| {
                let mut out = SinkWriter::new(out);
                write(&mut out)?;
                io::Write::flush(&mut out)
            }),
            ReplyBody::Stream(send) => send,
        };
        let body: StreamBody = Box::new(move |out| {
            let gone = out.gone;
            send(&mut ReplyStream::new(&mut FilteredSink { filter, out }, gone))
        });
        Self { body: ReplyBody::Stream(body), ..self }
    }

    /// Sets a header.
    ///
    /// # Panics
    ///
    /// Panics if the name or the value is not valid in HTTP.
    #[expect(clippy::panic, reason = "documented")]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => self.headers.insert(name, value),
            _ => panic!("the header {name:?} or its value {value:?} is not valid"),
        };
        self
    }

    /// Creates a reply with a body of this content type.
    pub(crate) fn new(status: StatusCode, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        Self { status, headers, body: ReplyBody::Full(body.into()), holds: 0, logged: None, is_failed_check: false }
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

/// Passes each part through a function.
struct FilteredSink<'a, 'b, F> {
    filter: F,
    out: &'a mut ReplyStream<'b>,
}

impl<F: FnMut(&[u8], &mut ReplyStream<'_>) -> io::Result<()>> ReplySink for FilteredSink<'_, '_, F> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.filter)(bytes, self.out)
    }

    fn hold(&mut self, bytes: usize) -> bool {
        self.out.hold(bytes)
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Self::Parts(_) => f.write_str("Parts"),
            Self::Stream(_) => f.write_str("Stream"),
            Self::HangUp => f.write_str("HangUp"),
        }
    }
}
