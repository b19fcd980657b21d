//! The decisions that a connection leaves to its server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::head::RequestHead;
use super::message::Reply;
use super::request::IncomingRequest;
use crate::access::UserInfo;

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub(crate) struct PeerInfo {
    pub(crate) peer: SocketAddr,
    /// The server's address that the client has connected to.
    pub(crate) local: IpAddr,
    pub(crate) is_tls: bool,
    /// The user of the client's certificate, or why the certificate does not name a user.
    pub(crate) certificate: Option<Result<UserInfo, &'static str>>,
}

/// A request that is refused before its body is read.
pub(crate) struct RefusedRequest {
    pub(crate) reply: Reply,
    /// The delay before the reply is sent.
    pub(crate) delay: Duration,
}

/// Decides about requests.
pub(crate) trait Service: Send + Sync {
    /// Decides about a request before its body is read.
    fn admit(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, Box<RefusedRequest>>;

    /// Returns the verb of a request for metrics.
    fn verb(&self, head: &RequestHead) -> &'static str;

    /// Logs that TLS refused a client.
    #[cfg(feature = "tls")]
    fn log_handshake(&self, peer: IpAddr, error: &std::io::Error);

    /// Answers a request.
    fn answer(&self, request: IncomingRequest) -> Reply;
}
