//! The handle of a running server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::http::{ConnectionRegistry, HttpCounts, HttpShared, Poll, ThreadRoster, of_class, value};
use homeostat::base::{EndError, EndHook, Runnable, RunningStatus};

/// Shows the addresses and counts of a running [`Server`](super::Server).
///
/// # Examples
///
/// ```
/// use homeostat_serve::Server;
/// use std::net::Ipv4Addr;
///
/// let server = Server::builder((Ipv4Addr::LOCALHOST, 0)).build()?.start()?;
/// assert_eq!(server.url(), format!("http://{}", server.addresses()[0]));
/// assert_eq!(server.counts().open_connections, 0);
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone)]
pub struct ServerControl {
    // It must not hold the handlers: a clone may outlive the server, and would keep clients and pages alive.
    name: String,
    is_tls: bool,
    registry: Arc<ConnectionRegistry>,
    counts: Arc<HttpCounts>,
    addresses: Arc<[SocketAddr]>,
}

/// The counts of a server since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounts {
    /// The number of connections that are open now.
    pub open_connections: usize,
    /// The number of streams that are open now, such as watches. Each has a connection.
    pub open_streams: usize,
    /// The number of accepted connections.
    pub accepted_connections: u64,
    /// The number of connections refused because there were too many.
    pub refused_connections: u64,
    /// The number of streams that ended early because other replies used the memory.
    pub dropped_streams: u64,
    /// The number of connections that ended before TLS was established, for example because of a wrong client
    /// certificate.
    pub failed_handshakes: u64,
    /// The number of requests with wrong credentials.
    pub failed_authentications: u64,
    /// The number of replies with a status from 200 to 299.
    pub succeeded: u64,
    /// The number of replies with a status from 300 to 399.
    pub redirected: u64,
    /// The number of replies with a status from 400 to 499, which mean that the client made an error.
    pub client_errors: u64,
    /// The number of replies with a status from 500 to 599, which mean that the server failed. Failed health checks do
    /// not count.
    pub server_errors: u64,
    /// The number of replies that told a failed health check.
    pub failed_health_checks: u64,
}

impl ServerControl {
    pub(super) fn new(shared: &HttpShared, addresses: Vec<SocketAddr>) -> Self {
        let (registry, counts) = (Arc::clone(&shared.registry), Arc::clone(&shared.counts));
        Self { name: shared.name.clone(), is_tls: shared.is_tls(), registry, counts, addresses: addresses.into() }
    }

    /// Returns the addresses that the server listens on, including their ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the URL of the first address, such as `https://127.0.0.1:8443`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        self.addresses.first().map(|address| format!("{scheme}://{address}")).unwrap_or_default()
    }

    /// Closes all connections at once, also in the middle of a reply. The server accepts new ones.
    ///
    /// Handlers that run now finish, but their replies are lost.
    pub fn disconnect(&self) {
        self.registry.disconnect();
    }

    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        let Self { registry, counts, .. } = self;
        let replies = counts.replies();
        let of_class = |class| of_class(&replies, class);
        ServerCounts {
            open_connections: registry.connections(),
            open_streams: registry.streams(),
            accepted_connections: value(&counts.accepted),
            refused_connections: value(&counts.refused_by_server) + value(&counts.refused_by_client),
            dropped_streams: value(&counts.dropped_streams),
            failed_handshakes: value(&counts.failed_handshakes),
            failed_authentications: value(&counts.unauthenticated),
            succeeded: of_class(2),
            redirected: of_class(3),
            client_errors: of_class(4),
            server_errors: of_class(5),
            failed_health_checks: value(&counts.failed_checks),
        }
    }
}

impl std::fmt::Debug for ServerControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerControl")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// The threads of a server.
pub(super) struct ServerThreads {
    pub(super) shared: Arc<HttpShared>,
    pub(super) roster: Arc<ThreadRoster>,
    pub(super) accept: Arc<Poll>,
}

impl Runnable for ServerThreads {
    fn stop(&self) {
        self.shared.registry.stop();
        self.accept.wake();
        self.shared.idle.stop();
    }

    fn abort(&self) {
        self.stop();
        self.shared.registry.abort();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        self.roster.join_timeout(timeout)
    }

    fn detach(&mut self) {}

    fn status(&self) -> RunningStatus {
        RunningStatus::new(self.shared.name.as_str(), self.shared.registry.is_stopping(), self.roster.names())
    }

    fn on_end(&self, hook: EndHook) {
        self.roster.on_end(&hook);
    }
}
