//! A server with a layer.

use std::sync::Arc;

use super::builder::ServerBuilder;
use super::layer::NextHandler;
use crate::http::{IncomingRequest, Reply};

impl ServerBuilder {
    /// Sets a function around the server's handlers. It answers each request, itself or through
    /// [`NextHandler::answer`], and may change requests and replies.
    ///
    /// Use it for paths of your own, for records of requests, and for faults in tests: errors, delays, and
    /// replies that [break off](Reply::with_filter).
    ///
    /// The server has already checked the user and the host of the request. For paths without objects, the
    /// [authorization](Self::authorize) has also allowed it. For objects, the authorization follows in
    /// [`NextHandler::answer`]: a layer that answers for objects itself must check the user. Requests with
    /// `Impersonate-…` headers reach the layer too. If it passes them on with these headers, they are refused.
    ///
    /// The layer runs on the threads of connections, and may block. A stop of the server waits for it. If it panics,
    /// the request gets status 500. A second call replaces the first layer.
    ///
    /// # Examples
    ///
    /// Every tenth request fails:
    ///
    /// ```
    /// use homeostat_serve::{Reply, Server};
    /// use std::net::Ipv4Addr;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// let count = AtomicU64::new(1);
    /// let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
    ///     .layer(move |request, next| match count.fetch_add(1, Relaxed) % 10 {
    ///         0 => Reply::empty(503).with_header("Retry-After", "1"),
    ///         _ => next.answer(request),
    ///     })
    ///     .build()?;
    /// # let _ = server;
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    pub fn layer(
        mut self,
        layer: impl Fn(&IncomingRequest, &NextHandler<'_>) -> Reply + Send + Sync + 'static,
    ) -> Self {
        self.layer = Some(Arc::new(layer));
        self
    }
}
