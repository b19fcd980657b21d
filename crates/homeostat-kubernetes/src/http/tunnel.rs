//! Tunnels through HTTP proxies with `CONNECT`.

use std::fmt;
use std::sync::Arc;

use ureq::Error;
use ureq::unversioned::transport::time::Instant;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, NextTimeout, Transport,
};

use super::time_left::{check_time_left, remaining_at};
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Opens a tunnel if there is a proxy. The proxy's answer must arrive within the connect timeout.
#[derive(Debug, Default)]
pub(super) struct TunnelConnector(ConnectProxyConnector);

impl<In: Transport> Connector<In> for TunnelConnector {
    type Out = Either<In, Box<dyn Transport>>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let is_open = Arc::new(AtomicBool::new(false));
        let (run, shared) = (Arc::clone(&details.run_connector), Arc::clone(&is_open));
        let connect_proxy = move |proxy: &ConnectionDetails<'_>| {
            let (began, timeout) = (proxy.now, proxy.timeout);
            let (current_time, is_open) = (Arc::clone(&proxy.current_time), Arc::clone(&shared));
            let inner = run(proxy)?;
            Ok(ProxyTransport { inner, is_open, began, timeout, current_time }.boxed())
        };
        let details = ConnectionDetails {
            uri: details.uri,
            addrs: details.addrs.clone(),
            config: details.config,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: Arc::clone(&details.current_time),
            run_connector: Arc::new(connect_proxy),
            register_shutdown: Arc::clone(&details.register_shutdown),
        };
        let tunnel = self.0.connect(&details, chained)?;
        is_open.store(true, SeqCst);
        Ok(tunnel)
    }
}

/// A connection to a proxy. Until the tunnel is open, all reads and writes share the connect timeout.
struct ProxyTransport {
    inner: Box<dyn Transport>,
    is_open: Arc<AtomicBool>,
    /// When the connection attempt began, and its timeout.
    began: Instant,
    timeout: NextTimeout,
    current_time: Arc<dyn Fn() -> Instant + Send + Sync>,
}

impl ProxyTransport {
    /// Returns the timeout of the next read or write.
    fn limit(&self, timeout: NextTimeout) -> Result<NextTimeout, Error> {
        if self.is_open.load(SeqCst) {
            return Ok(timeout);
        }
        check_time_left(remaining_at((self.current_time)(), self.began, self.timeout))
    }
}

impl Transport for ProxyTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = self.limit(timeout)?;
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = self.limit(timeout)?;
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

impl fmt::Debug for ProxyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyTransport").field("inner", &self.inner).finish_non_exhaustive()
    }
}
