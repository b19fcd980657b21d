//! The parts of a server that its status pages show.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use crate::access::Authorizer;
use crate::api::StoreHealth;
use crate::http::{ConnectionRegistry, HttpCounts};

/// The counts and connections of a server.
#[derive(Clone)]
pub(crate) struct ServerVitals {
    /// The addresses of a started server.
    pub(crate) addresses: Arc<OnceLock<Vec<SocketAddr>>>,
    pub(crate) registry: Arc<ConnectionRegistry>,
    pub(crate) counts: Arc<HttpCounts>,
}

/// The parts of a server that the handler of its pages needs.
pub(crate) struct PageContext {
    /// Denies everything to a client without credentials, unless the server serves such clients.
    pub(crate) authorizer: Authorizer,
    pub(crate) vitals: ServerVitals,
    pub(crate) has_tls: bool,
    /// Whether the server knows users.
    pub(crate) has_users: bool,
    /// Whether it also serves clients without credentials.
    pub(crate) allows_anonymous: bool,
    /// The store of the objects that the server serves.
    pub(crate) store: Option<Arc<StoreHealth>>,
}
