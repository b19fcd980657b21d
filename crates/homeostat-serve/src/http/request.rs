//! Requests, as handlers see them.

use std::fmt;
use std::net::SocketAddr;

use http::{HeaderMap, Method};

use crate::access::UserInfo;

/// A complete request of a user, as a [layer](crate::ServerBuilder::layer) sees it.
///
/// Its `Debug` form has no query, no headers and no body, because they may contain secrets.
///
/// # Examples
///
/// ```
/// use homeostat_serve::{IncomingRequest, Server};
/// use std::net::Ipv4Addr;
///
/// /// Answers requests of old clients without the watches that they cannot read.
/// fn modern(request: &IncomingRequest) -> IncomingRequest {
///     let is_old = request.header("user-agent").is_some_and(|agent| agent.starts_with("old/"));
///     if is_old && request.is_watch() { request.without_parameter("watch") } else { request.clone() }
/// }
///
/// let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
///     .layer(|request, next| next.answer(&modern(request)))
///     .build()?;
/// # let _ = server;
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct IncomingRequest {
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
    /// The number of the connection.
    pub(crate) connection: u64,
}

impl IncomingRequest {
    /// Returns the method, such as `GET`. A `HEAD` request appears as `GET`.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Returns the path as sent, without the query, such as `/api/v1/nodes`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the first value of a query parameter, decoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a header, if it is text. The case of the name does not matter.
    #[must_use]
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        self.headers.get(name.as_ref()).and_then(|value| value.to_str().ok())
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as JSON. Returns `None` if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns whether the request is a watch of Kubernetes objects.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.method == Method::GET && self.parameter("watch").is_some_and(|value| !is_false(value))
    }

    /// Returns the user. Its name is empty if the request has no credentials.
    #[must_use]
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Returns the address of the client.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the number of the connection, counted from 1.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Returns the same request without a query parameter.
    #[must_use]
    pub fn without_parameter(&self, name: &str) -> Self {
        let mut request = self.clone();
        request.query.retain(|(known, _)| known != name);
        request
    }

    /// Returns the same request without a header. The case of the name does not matter.
    #[must_use]
    pub fn without_header(&self, name: &str) -> Self {
        let mut request = self.clone();
        request.headers.remove(name);
        request
    }
}

/// Returns whether the value of a query parameter means false.
pub(crate) fn is_false(text: &str) -> bool {
    matches!(text, "" | "0" | "f" | "F" | "false" | "False" | "FALSE")
}

impl fmt::Debug for IncomingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingRequest")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("user", &self.user)
            .field("peer", &self.peer)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
