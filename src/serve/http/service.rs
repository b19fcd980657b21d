//! The decisions that a connection leaves to the server.

use std::net::{IpAddr, SocketAddr};

use super::head::RequestHead;
use super::message::{IncomingRequest, Reply};
use crate::serve::access::UserInfo;

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub(crate) struct PeerInfo {
    pub(crate) peer: SocketAddr,
    /// The address of the server that the client has used.
    pub(crate) local: IpAddr,
    pub(crate) is_tls: bool,
    /// The user of the client's certificate.
    pub(crate) certificate: Option<UserInfo>,
}

/// Decides about requests.
pub(crate) trait Service: Send + Sync {
    /// Decides about a request before its body is read. Returns the user, or the reply that refuses the request.
    fn admit(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, Box<Reply>>;

    /// Answers a request.
    fn answer(&self, request: IncomingRequest) -> Reply;
}
