//! The error of a request that received no usable answer.

use std::error::Error;
use std::fmt;
use std::io;

use ureq::Timeout;

use homeostat::rt::{debug_with_causes, one_line};

/// The error of a request to an API server that received no usable answer. It is the source of a
/// [`Transport`](homeostat_objects::ClientErrorKind::Transport).
///
/// The text names the verb, the URL and the cause.
pub struct RequestError {
    verb: String,
    url: String,
    cause: RequestFault,
}

/// The cause of a failed request.
#[derive(Debug)]
pub(crate) enum RequestFault {
    /// The request was never sent.
    NotSent(String),
    /// The connection broke.
    Lost(String),
    /// No credentials were found.
    Credentials(String),
    /// The server did not answer in time.
    TimedOut(&'static str),
    /// The server answered with this status.
    Status { code: u16, message: String, request_id: Option<String> },
    /// The answer does not come from an API server.
    Unusable { fault: String, request_id: Option<String> },
}

impl RequestError {
    pub(crate) fn new(verb: &str, url: impl Into<String>, cause: RequestFault) -> Self {
        Self { verb: verb.to_owned(), url: url.into(), cause }
    }

    /// Returns whether the server may have received the request. If not, the request had no effect.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        !matches!(self.cause, RequestFault::NotSent(_) | RequestFault::Credentials(_))
    }

    /// Returns the answer's HTTP status, or `None` if there was no usable answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.cause {
            RequestFault::Status { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Returns the request's id in the server's audit log, or `None` if the server sent none.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match &self.cause {
            RequestFault::Status { request_id, .. } | RequestFault::Unusable { request_id, .. } => {
                request_id.as_deref()
            }
            _ => None,
        }
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(fault) | Self::Credentials(fault) => f.write_str(fault),
            Self::Lost(fault) => write!(f, "the connection broke: {fault}"),
            Self::TimedOut(fault) => f.write_str(fault),
            Self::Status { code, message, .. } => write!(f, "the server answered {code}: {}", one_line(message)),
            Self::Unusable { fault, .. } => write!(f, "{}", one_line(fault)),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.verb, self.url, self.cause)?;
        self.request_id().map_or(Ok(()), |id| write!(f, " (audit id {id})"))
    }
}

debug_with_causes!(RequestError);

impl Error for RequestError {}

/// The error of a connection that could not be opened.
pub(crate) struct ConnectError {
    fault: String,
    cause: Option<io::Error>,
}

impl ConnectError {
    pub(crate) fn new(fault: impl Into<String>, cause: Option<io::Error>) -> Self {
        Self { fault: fault.into(), cause }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fault)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

debug_with_causes!(ConnectError);

impl Error for ConnectError {}

/// Converts an error of the HTTP library.
pub(crate) fn cause_of(error: ureq::Error) -> RequestFault {
    match error {
        ureq::Error::Other(other) if other.is::<ConnectError>() => RequestFault::NotSent(other.to_string()),
        ureq::Error::Timeout(timeout) => match timeout {
            Timeout::Resolve => RequestFault::NotSent("the address of the server was not found in time".to_owned()),
            Timeout::Connect => RequestFault::NotSent("the connection was not established in time".to_owned()),
            Timeout::PerRead => RequestFault::TimedOut("the server sent nothing for too long"),
            _ => RequestFault::TimedOut("the server did not answer in time"),
        },
        ureq::Error::HostNotFound => RequestFault::NotSent("the host is not found".to_owned()),
        ureq::Error::ConnectProxyFailed(fault) => {
            RequestFault::NotSent(format!("the proxy refuses the connection: {fault}"))
        }
        ureq::Error::Io(error) => RequestFault::Lost(error.to_string()),
        // A fault in the answer, such as a malformed chunk.
        other => RequestFault::Lost(other.to_string()),
    }
}
