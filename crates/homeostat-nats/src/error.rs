//! The error of connections and buckets.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::protocol::{InvalidFrame, ProtocolError};
use homeostat::rt::{Chain, Rounded, debug_with_causes};
use homeostat::run::BoxError;

/// An error of a [`NatsConnection`](super::NatsConnection) or a [`KvBucket`](super::KvBucket): its [kind](Self::kind),
/// a text that names everything involved, and for some kinds a [source](Error::source).
///
/// # Examples
///
/// ```
/// use homeostat_nats::{NatsErrorKind, NatsOptions};
///
/// let error = NatsOptions::new("ftp://example.com").connect().unwrap_err();
/// assert_eq!(error.kind(), NatsErrorKind::Invalid);
/// assert_eq!(error.to_string(), "server is \"ftp://example.com\", but must be an address with the scheme nats or tls");
/// ```
#[derive(Clone)]
pub struct NatsError(Arc<NatsErrorParts>);

struct NatsErrorParts {
    kind: NatsErrorKind,
    message: String,
    source: Option<BoxError>,
}

/// The kind of a [`NatsError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NatsErrorKind {
    /// An option or an argument is invalid. The text names it, its value and the rule.
    Invalid,
    /// The client could not connect to any server. The text names each server with the reason.
    Unreachable,
    /// The server refused the credentials, or one of several tried servers refused them.
    Unauthorized,
    /// A step of connecting to one server failed: the look-up, the socket, TLS or the handshake.
    Connect,
    /// The connection was lost before the answer arrived. The server may have executed the request.
    Disconnected,
    /// This program has closed the connection, the subscription or the watch.
    Closed,
    /// A call took longer than its timeout. The server may have executed the request.
    Timeout,
    /// The subject of a request has no subscriber.
    NoResponders,
    /// The user lacks the permission for a subject.
    PermissionsViolation,
    /// The server breaks the protocol. The source is a [`ProtocolError`].
    Protocol,
    /// A message exceeds a size limit. The text names the size and the limit.
    TooLarge,
    /// A subscription dropped messages because the program did not read them in time.
    SlowConsumer,
    /// `JetStream` is disabled on the server or for the account.
    NoJetStream,
    /// `JetStream` refuses the request for a reason without a kind of its own.
    #[non_exhaustive]
    JetStream {
        /// The error code of `JetStream`.
        code: u64,
    },
    /// The bucket, the account or the server has reached a limit, which the text names. Limits count bytes, entries,
    /// buckets or watches. Nothing was stored. A deletion still works and makes room.
    #[non_exhaustive]
    Full {
        /// The error code of `JetStream`.
        code: u64,
    },
    /// The answer of the server is malformed.
    MalformedAnswer,
    /// A bucket, a key or a revision does not exist.
    NotFound,
    /// The key already has a value.
    AlreadyExists,
    /// The key has a different revision than expected. Read it again and retry.
    Conflict,
    /// A watch may have missed changes. List the bucket, compare, and watch again.
    Gone,
    /// The client could not finish the deletions that killed clients had begun.
    Unfinished,
    /// The server is too old for a feature.
    Unsupported,
    /// The system cannot start a thread. The source is its error.
    Thread,
}

use NatsErrorKind as Of;

impl NatsError {
    fn new(kind: NatsErrorKind, message: String) -> Self {
        Self(Arc::new(NatsErrorParts { kind, message, source: None }))
    }

    fn caused_by(kind: NatsErrorKind, message: String, source: impl Into<BoxError>) -> Self {
        Self(Arc::new(NatsErrorParts { kind, message, source: Some(source.into()) }))
    }

    pub(super) fn invalid(option: impl fmt::Display, value: impl fmt::Debug, rule: impl fmt::Display) -> Self {
        Self::new(Of::Invalid, format!("{option} is {value:?}, but must be {rule}"))
    }

    /// `servers` are the tried servers, each with its error.
    pub(super) fn unreachable(servers: &[(String, Self)]) -> Self {
        let is_refused = servers.iter().any(|(_, error)| error.kind() == Of::Unauthorized);
        let errors: Vec<_> = servers.iter().map(|(server, error)| format!("{server}: {}", Chain(error))).collect();
        let separator = if errors.is_empty() { "" } else { ": " };
        Self::new(
            if is_refused { Of::Unauthorized } else { Of::Unreachable },
            format!("cannot connect to any server{separator}{}", errors.join("; ")),
        )
    }

    pub(super) fn unauthorized(server: impl fmt::Display, reason: &str) -> Self {
        Self::new(Of::Unauthorized, format!("server {server} refuses the credentials: {reason}"))
    }

    pub(super) fn connect(reason: impl fmt::Display) -> Self {
        Self::new(Of::Connect, reason.to_string())
    }

    pub(super) fn disconnected(server: &str, reason: &str) -> Self {
        let message = format!("the connection to {server} was lost before the answer arrived: {reason}");
        Self::new(Of::Disconnected, message)
    }

    pub(super) fn closed() -> Self {
        Self::new(Of::Closed, "the connection is closed".to_owned())
    }

    pub(super) fn timed_out(what: impl fmt::Display, after: Duration) -> Self {
        Self::new(Of::Timeout, format!("{what} took longer than {}", Rounded(after)))
    }

    pub(super) fn no_responders(subject: &str) -> Self {
        Self::new(Of::NoResponders, format!("nobody listens on subject {subject:?}"))
    }

    /// `text` is the text of the server.
    pub(super) fn permissions_violation(text: &str) -> Self {
        Self::new(Of::PermissionsViolation, format!("the server refuses a subject: {text}"))
    }

    pub(super) fn too_large(what: &str, size: usize, limit: usize, of: &str) -> Self {
        Self::new(Of::TooLarge, format!("{what} has {size} bytes, but {of} allows {limit} bytes"))
    }

    pub(super) fn slow_consumer(subject: &str, dropped: u64) -> Self {
        let why = "because they were not read in time";
        Self::new(Of::SlowConsumer, format!("the subscription of {subject:?} has lost {dropped} messages, {why}"))
    }

    pub(super) fn no_jetstream(server: &str) -> Self {
        Self::new(Of::NoJetStream, format!("JetStream is not enabled on server {server} for this account"))
    }

    pub(super) fn jetstream(what: &str, status: u64, code: u64, description: &str) -> Self {
        let message = format!("{what}: {description} (JetStream error {code}, status {status})");
        Self::new(Of::JetStream { code }, message)
    }

    pub(super) fn full(what: &str, code: u64, description: &str, remedy: &str) -> Self {
        Self::new(Of::Full { code }, format!("{what} is refused: {description} (JetStream error {code}): {remedy}"))
    }

    pub(super) fn answer(what: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self::new(Of::MalformedAnswer, format!("{what}: the server's answer is malformed: {fault}"))
    }

    pub(super) fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Of::NotFound, format!("{what} does not exist"))
    }

    pub(super) fn already_exists(what: impl fmt::Display) -> Self {
        Self::new(Of::AlreadyExists, format!("{what} already exists"))
    }

    pub(super) fn conflict(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::new(Of::Conflict, format!("{what} has another revision than expected: {reason}"))
    }

    pub(super) fn gone(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::new(Of::Gone, format!("{what} may have missed changes: {reason}"))
    }

    pub(super) fn unfinished(bucket: &str, reason: &str) -> Self {
        let what = format!("cannot remove the markers of bucket {bucket:?} before unfinished deletions are completed");
        Self::new(Of::Unfinished, format!("{what}: {reason}"))
    }

    /// `server` says which version the server has.
    pub(super) fn unsupported(what: &str, needs: &str, server: impl fmt::Display) -> Self {
        Self::new(Of::Unsupported, format!("{what} needs a server of version {needs} or later, but {server}"))
    }

    pub(super) fn thread(name: &str, error: io::Error) -> Self {
        Self::caused_by(Of::Thread, format!("the system cannot start thread {name}"), error)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> NatsErrorKind {
        self.0.kind
    }

    /// Returns whether it is [`Invalid`](NatsErrorKind::Invalid).
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.kind() == Of::Invalid
    }

    /// Returns whether it is [`Closed`](NatsErrorKind::Closed).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.kind() == Of::Closed
    }

    /// Returns whether it is [`Timeout`](NatsErrorKind::Timeout).
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == Of::Timeout
    }

    /// Returns whether it is [`Conflict`](NatsErrorKind::Conflict).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.kind() == Of::Conflict
    }

    /// Returns whether it is [`Gone`](NatsErrorKind::Gone).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.kind() == Of::Gone
    }

    /// Returns whether it is [`Full`](NatsErrorKind::Full).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), Of::Full { .. })
    }

    /// Returns whether a write that failed with this error was certainly not stored. Then the server refused it, or it
    /// was not sent.
    pub(super) fn is_refusal(&self) -> bool {
        // A permissions violation is not in this list, because it may concern the subject of the answer.
        matches!(
            self.kind(),
            Of::Invalid
                | Of::TooLarge
                | Of::NoResponders
                | Of::NoJetStream
                | Of::JetStream { .. }
                | Of::Full { .. }
                | Of::NotFound
                | Of::AlreadyExists
                | Of::Conflict
                | Of::Unsupported
        )
    }
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

debug_with_causes!(NatsError);

impl Error for NatsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

impl From<ProtocolError> for NatsError {
    fn from(error: ProtocolError) -> Self {
        Self::caused_by(Of::Protocol, "the server breaks the protocol".to_owned(), error)
    }
}

impl From<InvalidFrame> for NatsError {
    fn from(error: InvalidFrame) -> Self {
        Self::invalid("message", error.text(), error.rule())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn errors_print_their_text_and_their_causes() {
        let text = |error: NatsError| format!("{error:?}");
        let refused = NatsError::unauthorized("a:4222", "no such user");
        let down = NatsError::thread("kv-reader", io::Error::other("too many threads"));
        assert_eq!(text(down.clone()), "the system cannot start thread kv-reader\nCaused by: too many threads");
        assert_eq!(text(NatsError::closed()), "the connection is closed");
        let servers = |errors: &[&NatsError]| {
            let servers = errors.iter().map(|&error| ("a:4222".to_owned(), error.clone()));
            NatsError::unreachable(&servers.collect::<Vec<_>>())
        };
        assert_eq!(
            text(servers(&[&down, &refused])),
            "cannot connect to any server: a:4222: the system cannot start thread kv-reader: too many threads; a:4222: \
             server a:4222 refuses the credentials: no such user"
        );
        let kinds = [&[][..], &[&down], &[&down, &refused]].map(|errors| servers(errors).kind());
        assert_eq!(kinds, [Of::Unreachable, Of::Unreachable, Of::Unauthorized]);
    }

    #[test]
    fn a_broken_protocol_is_a_source() {
        let mut parser = crate::protocol::FrameParser::new();
        parser.push(b"WHAT\r\n");
        let error = NatsError::from(parser.next_frame().unwrap_err());
        assert_eq!(error.kind(), Of::Protocol);
        assert!(error.source().unwrap().is::<ProtocolError>());
        assert_eq!(format!("{error:?}"), "the server breaks the protocol\nCaused by: unknown verb \"WHAT\"");
    }
}
