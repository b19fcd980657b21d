//! The error of connections and buckets.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::protocol::{InvalidFrame, ProtocolError};
use homeostat::rt::Rounded;

/// An error of a [`NatsConnection`](super::NatsConnection) or a [`KvBucket`](super::KvBucket).
///
/// # Examples
///
/// ```
/// use homeostat_nats::NatsOptions;
///
/// let error = NatsOptions::new("ftp://example.com").connect().unwrap_err();
/// assert!(error.is_invalid());
/// assert_eq!(error.to_string(), "server is \"ftp://example.com\", but must be an address with the scheme nats or tls");
/// ```
#[derive(Clone, Debug)]
pub struct NatsError(Arc<NatsErrorKind>);

#[derive(Debug)]
pub(super) enum NatsErrorKind {
    /// An option or argument, its value, and the rule it breaks.
    Invalid {
        option: String,
        value: String,
        rule: String,
    },
    /// Each server with the reason why it could not be used.
    Unreachable(Vec<(String, NatsError)>),
    /// The server refused the credentials.
    Unauthorized {
        server: String,
        reason: String,
    },
    /// A step of connecting failed: the look-up, the socket, TLS or the handshake.
    Connect(String),
    Disconnected {
        server: String,
        reason: String,
    },
    Closed,
    TimedOut {
        what: String,
        after: Duration,
    },
    NoResponders {
        subject: String,
    },
    /// The server's text.
    PermissionsViolation(String),
    Protocol(ProtocolError),
    TooLarge {
        what: String,
        size: usize,
        limit: usize,
        of: &'static str,
    },
    SlowConsumer {
        subject: String,
        dropped: u64,
    },
    NoJetStream {
        server: String,
    },
    JetStream {
        what: String,
        code: u64,
        err_code: u64,
        description: String,
    },
    /// The bucket, the account or the server reached a limit.
    Full {
        what: String,
        err_code: u64,
        description: String,
        remedy: &'static str,
    },
    /// The server's answer is malformed.
    Answer {
        what: String,
        fault: String,
    },
    NotFound(String),
    AlreadyExists(String),
    Conflict {
        what: String,
        reason: String,
    },
    /// A watch may have missed changes.
    Gone {
        what: String,
        reason: String,
    },
    /// The client could not finish the deletions that killed clients had begun.
    Unfinished {
        bucket: String,
        reason: String,
    },
    Unsupported {
        what: String,
        needs: &'static str,
        server: String,
    },
    Thread {
        name: String,
        reason: String,
    },
}

use NatsErrorKind as Of;

impl NatsError {
    pub(super) fn new(kind: NatsErrorKind) -> Self {
        Self(Arc::new(kind))
    }

    pub(super) fn invalid(option: impl Into<String>, value: impl fmt::Debug, rule: impl Into<String>) -> Self {
        Self::new(Of::Invalid { option: option.into(), value: format!("{value:?}"), rule: rule.into() })
    }

    pub(super) fn connect(reason: impl fmt::Display) -> Self {
        Self::new(Of::Connect(reason.to_string()))
    }

    pub(super) fn timed_out(what: impl Into<String>, after: Duration) -> Self {
        Self::new(Of::TimedOut { what: what.into(), after })
    }

    pub(super) fn answer(what: impl Into<String>, fault: impl fmt::Display) -> Self {
        Self::new(Of::Answer { what: what.into(), fault: fault.to_string() })
    }

    /// Returns whether an option or an argument is invalid. The text names it, its value and the rule.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(*self.0, Of::Invalid { .. })
    }

    /// Returns whether the client could not connect to any server.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(*self.0, Of::Unreachable(_))
    }

    /// Returns whether the server refused the credentials. True if any of several tried servers refused them.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        match &*self.0 {
            Of::Unauthorized { .. } => true,
            Of::Unreachable(servers) => servers.iter().any(|(_, error)| error.is_unauthorized()),
            _ => false,
        }
    }

    /// Returns whether the connection was lost before the answer arrived. The server may have executed the request.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        matches!(*self.0, Of::Disconnected { .. })
    }

    /// Returns whether this program has closed the connection, the subscription or the watch.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(*self.0, Of::Closed)
    }

    /// Returns whether a call took longer than its timeout. The server may have executed the request.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(*self.0, Of::TimedOut { .. })
    }

    /// Returns whether a request's subject has no subscriber.
    #[must_use]
    pub fn is_no_responders(&self) -> bool {
        matches!(*self.0, Of::NoResponders { .. })
    }

    /// Returns whether the user lacks the permission for a subject.
    #[must_use]
    pub fn is_permissions_violation(&self) -> bool {
        matches!(*self.0, Of::PermissionsViolation(_))
    }

    /// Returns whether a message exceeds a size limit. The text names the size and the limit.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(*self.0, Of::TooLarge { .. })
    }

    /// Returns whether a subscription dropped messages because the program did not read them in time.
    #[must_use]
    pub fn is_slow_consumer(&self) -> bool {
        matches!(*self.0, Of::SlowConsumer { .. })
    }

    /// Returns whether `JetStream` is disabled on the server or for the account.
    #[must_use]
    pub fn is_no_jetstream(&self) -> bool {
        matches!(*self.0, Of::NoJetStream { .. })
    }

    /// Returns whether a bucket, a key or a revision does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(*self.0, Of::NotFound(_))
    }

    /// Returns whether a key already has a value.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(*self.0, Of::AlreadyExists(_))
    }

    /// Returns whether a key has a different revision than expected. Read it again and retry.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(*self.0, Of::Conflict { .. })
    }

    /// Returns whether a watch may have missed changes. List the bucket, compare, and watch again.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(*self.0, Of::Gone { .. })
    }

    /// Returns whether the server is too old for a feature.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, Of::Unsupported { .. })
    }

    /// Returns whether the bucket, the account or the server has reached a limit, which the text names. Limits count
    /// bytes, entries, buckets or watches.
    ///
    /// Nothing was stored. A deletion still works and makes room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(*self.0, Of::Full { .. })
    }

    /// Returns the error code of `JetStream`, if the error is [full](Self::is_full) or no other predicate here is
    /// true.
    #[must_use]
    pub fn jetstream_code(&self) -> Option<u64> {
        match *self.0 {
            Of::JetStream { err_code, .. } | Of::Full { err_code, .. } => Some(err_code),
            _ => None,
        }
    }

    /// Returns whether a write that failed with this error was certainly not stored. Then the server refused it, or it
    /// was not sent.
    pub(super) fn is_refusal(&self) -> bool {
        // A permissions violation is not in this list, because it may concern the subject of the answer.
        matches!(
            *self.0,
            Of::Invalid { .. }
                | Of::TooLarge { .. }
                | Of::NoResponders { .. }
                | Of::NoJetStream { .. }
                | Of::JetStream { .. }
                | Of::Full { .. }
                | Of::NotFound(_)
                | Of::AlreadyExists(_)
                | Of::Conflict { .. }
                | Of::Unsupported { .. }
        )
    }
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Of::Invalid { option, value, rule } => write!(f, "{option} is {value}, but must be {rule}"),
            Of::Unreachable(servers) => {
                f.write_str("cannot connect to any server")?;
                for (at, (server, error)) in servers.iter().enumerate() {
                    write!(f, "{} {server}: {error}", if at == 0 { ":" } else { ";" })?;
                }
                Ok(())
            }
            Of::Unauthorized { server, reason } => write!(f, "server {server} refuses the credentials: {reason}"),
            Of::Connect(reason) => f.write_str(reason),
            Of::Disconnected { server, reason } => {
                write!(f, "the connection to {server} was lost before the answer arrived: {reason}")
            }
            Of::Closed => f.write_str("the connection is closed"),
            Of::TimedOut { what, after } => write!(f, "{what} took longer than {}", Rounded(*after)),
            Of::NoResponders { subject } => write!(f, "nobody listens on subject {subject:?}"),
            Of::PermissionsViolation(text) => write!(f, "the server refuses a subject: {text}"),
            Of::Protocol(error) => write!(f, "the server breaks the protocol: {error}"),
            Of::TooLarge { what, size, limit, of } => {
                write!(f, "{what} has {size} bytes, but {of} allows {limit} bytes")
            }
            Of::SlowConsumer { subject, dropped } => {
                write!(
                    f,
                    "the subscription of {subject:?} has lost {dropped} messages, because they were not read in time"
                )
            }
            Of::NoJetStream { server } => write!(f, "JetStream is not enabled on server {server} for this account"),
            Of::JetStream { what, code, err_code, description } => {
                write!(f, "{what}: {description} (JetStream error {err_code}, status {code})")
            }
            Of::Full { what, err_code, description, remedy } => {
                write!(f, "{what} is refused: {description} (JetStream error {err_code}): {remedy}")
            }
            Of::Answer { what, fault } => write!(f, "{what}: the server's answer is malformed: {fault}"),
            Of::NotFound(what) => write!(f, "{what} does not exist"),
            Of::AlreadyExists(what) => write!(f, "{what} already exists"),
            Of::Unfinished { bucket, reason } => {
                write!(
                    f,
                    "cannot remove the markers of bucket {bucket:?} before unfinished deletions are completed: {reason}"
                )
            }
            Of::Conflict { what, reason } => write!(f, "{what} has another revision than expected: {reason}"),
            Of::Gone { what, reason } => write!(f, "{what} may have missed changes: {reason}"),
            Of::Unsupported { what, needs, server } => {
                write!(f, "{what} needs a server of version {needs} or later, but {server}")
            }
            Of::Thread { name, reason } => write!(f, "the system cannot start thread {name}: {reason}"),
        }
    }
}

impl Error for NatsError {}

impl From<ProtocolError> for NatsError {
    fn from(error: ProtocolError) -> Self {
        Self::new(Of::Protocol(error))
    }
}

impl From<InvalidFrame> for NatsError {
    fn from(error: InvalidFrame) -> Self {
        Self::invalid("message", error.text(), error.rule())
    }
}
