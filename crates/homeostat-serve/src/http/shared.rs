//! The state that the connections of one server share.

use std::sync::Arc;

use super::counts::HttpCounts;
use super::idle::IdleSockets;
use super::registry::ConnectionRegistry;
use super::service::Service;
use homeostat::base::Clock;
use homeostat::rt::one_line;

/// The state that the connections of one server share.
pub(crate) struct HttpShared {
    /// The name of the server.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) registry: Arc<ConnectionRegistry>,
    pub(crate) idle: Arc<IdleSockets>,
    pub(crate) counts: Arc<HttpCounts>,
    pub(crate) service: Box<dyn Service>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<super::tls::ServerTls>,
}

impl HttpShared {
    /// Logs that a handler panicked.
    pub(super) fn log_panic(&self, path: &str, panic: &str) {
        let (component, path) = (self.name.as_str(), one_line(path));
        let path = path.as_str();
        log::error!(component, path, panic; "{component}: the handler of {path} panicked: {panic}");
    }

    /// Returns whether clients must use TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether clients must use TLS.
    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "the signature with TLS")]
    pub(crate) fn is_tls(&self) -> bool {
        false
    }
}
