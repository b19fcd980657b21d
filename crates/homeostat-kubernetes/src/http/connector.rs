//! Connections for `ureq`: TCP with keepalive, and TLS with the settings of the client.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use ureq::unversioned::transport::time::Instant;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
    TransportAdapter,
};
use ureq::{Error, Timeout};

use super::request_error::ConnectError;
use super::tls::Tls;
use crate::sync::Mutex;
use homeostat_net::advice;

/// How long a connection is silent before the system probes the other end, and the interval of probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How long sent bytes may be unacknowledged before the connection ends.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may be silent. The limit may change while the connection is used.
#[derive(Clone, Debug)]
pub(crate) struct SilenceLimit(Arc<Mutex<Duration>>);

impl SilenceLimit {
    pub(crate) fn new(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(limit)))
    }

    /// Sets the limit for the next reads.
    pub(crate) fn set(&self, limit: Duration) {
        *self.0.lock() = limit;
    }
}

/// Opens TCP connections.
#[derive(Debug)]
pub(crate) struct TcpConnector(pub(crate) SilenceLimit);

impl<In: Transport> Connector<In> for TcpConnector {
    type Out = Either<In, TcpTransport>;

    fn connect(&self, details: &ConnectionDetails<'_>, tunnel: Option<In>) -> Result<Option<Self::Out>, Error> {
        if let Some(tunnel) = tunnel {
            return Ok(Some(Either::A(tunnel)));
        }
        let mut failure = ConnectError::new(format!("{} has no address", authority(details.uri)), None);
        // If a name has several addresses, each attempt gets an equal share of the remaining time.
        let addresses = details.addrs.iter().copied().collect::<Vec<_>>();
        for (at, address) in addresses.iter().enumerate() {
            let left = match time_left(details) {
                Ok(left) => left,
                Err(timeout) if at == 0 => return Err(timeout),
                // The last address's failure says more than a timeout.
                Err(_) => break,
            };
            let part = left.not_zero().map(|left| *left / u32::try_from(addresses.len() - at).unwrap_or(1));
            match open(*address, part.map(|part| part.max(Duration::from_millis(10))), details) {
                Ok(stream) => {
                    let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
                    return Ok(Some(Either::B(TcpTransport {
                        stream,
                        buffers: LazyBuffers::new(input, output),
                        silence: self.0.clone(),
                        read_timeout: None,
                    })));
                }
                Err(ConnectFailure::Ended(error)) => return Err(error),
                Err(ConnectFailure::Address(error)) => {
                    failure =
                        ConnectError::new(format!("cannot connect to {}", shown(details.uri, *address)), Some(error));
                }
            }
        }
        Err(Error::Other(Box::new(failure)))
    }
}

enum ConnectFailure {
    /// Another address may work.
    Address(io::Error),
    /// The agent was shut down.
    Ended(Error),
}

/// Returns the remaining time of a connection attempt. Proxy, TCP and TLS share this time.
///
/// # Errors
///
/// Returns [`Error::Timeout`] if no time remains.
fn time_left(details: &ConnectionDetails<'_>) -> Result<NextTimeout, Error> {
    check_time_left(remaining_at((details.current_time)(), details.now, details.timeout))
}

/// Returns how much of a timeout that began at `began` is left at `now`.
pub(super) fn remaining_at(now: Instant, began: Instant, mut timeout: NextTimeout) -> NextTimeout {
    use ureq::unversioned::transport::time::{Duration as Limit, Instant::Exact};

    if let (Limit::Exact(limit), Exact(began), Exact(now)) = (timeout.after, began, now) {
        timeout.after = limit.saturating_sub(now.saturating_duration_since(began)).into();
    }
    timeout
}

/// Returns the timeout if it has not passed. A socket would treat a timeout of zero as no timeout.
///
/// # Errors
///
/// Returns [`Error::Timeout`] if no time remains.
pub(super) fn check_time_left(timeout: NextTimeout) -> Result<NextTimeout, Error> {
    if timeout.after.is_zero() { Err(Error::Timeout(timeout.reason)) } else { Ok(timeout) }
}

fn open(
    address: SocketAddr,
    limit: Option<Duration>,
    details: &ConnectionDetails<'_>,
) -> Result<Arc<TcpStream>, ConnectFailure> {
    let stream = socket(address).map_err(ConnectFailure::Address)?;
    let stream = Arc::new(stream);
    // Register the stream before it connects, so that a shutdown also ends the attempt.
    let handle: Weak<TcpStream> = Arc::downgrade(&stream);
    (details.register_shutdown)(handle as Weak<dyn ShutdownHandle>).map_err(ConnectFailure::Ended)?;
    let socket = SockRef::from(&*stream);
    let connected = match limit {
        Some(limit) => socket.connect_timeout(&address.into(), limit),
        None => socket.connect(&address.into()),
    };
    connected.map_err(ConnectFailure::Address)?;
    Ok(stream)
}

fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    let (time, interval) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(time);
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
    let keepalive = keepalive.with_interval(interval);
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let keepalive = keepalive.with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(socket.into())
}

/// Returns the host and port of an address.
fn authority(uri: &Uri) -> &str {
    uri.authority().map_or("", http::uri::Authority::as_str).rsplit('@').next().unwrap_or_default()
}

/// Returns a host and, if the host is a name, its address.
fn shown(uri: &Uri, address: SocketAddr) -> String {
    let host = authority(uri);
    if host.parse::<SocketAddr>().is_ok() { host.to_owned() } else { format!("{host} ({address})") }
}

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct TcpTransport {
    /// The agent has a weak reference to it, and can shut it down.
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
    silence: SilenceLimit,
    /// The read timeout that is set on the socket.
    read_timeout: Option<Duration>,
}

impl Transport for TcpTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let limit = check_time_left(timeout.for_write())?;
        self.stream.set_write_timeout(limit.not_zero().map(|limit| *limit))?;
        let output = &self.buffers.output()[..amount];
        (&*self.stream).write_all(output).map_err(|error| timed_out(error, limit.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let per_read = Some((*self.silence.0.lock()).into());
        let limit = check_time_left(NextTimeout { per_read, ..timeout }.for_read())?;
        let timeout = limit.not_zero().map(|limit| *limit);
        // A watch reads all events with the same timeout, so the system call is usually unnecessary.
        if timeout != self.read_timeout {
            self.stream.set_read_timeout(timeout)?;
            self.read_timeout = timeout;
        }
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match (&*self.stream).read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result.map_err(|error| timed_out(error, limit.reason))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Other results mean unrequested bytes, or the end of the connection.
        let is_silent = |stream: &TcpStream| {
            stream.set_nonblocking(true)?;
            let peeked = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            io::Result::Ok(peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
        };
        is_silent(&self.stream).unwrap_or(false)
    }
}

fn timed_out(error: io::Error, reason: Timeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(reason),
        _ => error.into(),
    }
}

/// Encrypts connections to `https` servers.
#[derive(Debug)]
pub(crate) struct TlsConnector(pub(crate) Arc<Tls>);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails<'_>, plain: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(plain) = plain else { return Ok(None) };
        if !details.needs_tls() || plain.is_tls() {
            return Ok(Some(Either::A(plain)));
        }
        let unsent = |what: &str, error: Option<io::Error>| {
            let what = format!("the TLS handshake with {} failed{what}", authority(details.uri));
            Error::Other(Box::new(ConnectError::new(what, error)))
        };
        let server = details.uri.host().unwrap_or_default();
        let name = self.0.server_name(details.uri).unwrap_or(server);
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| unsent(&format!(": {name:?} is neither a DNS name nor an address"), None))?;
        let mut connection = ClientConnection::new(self.0.for_connection(), server_name)
            .map_err(|error| unsent("", Some(io::Error::other(error.to_string()))))?;
        let mut stream = TransportAdapter::new(plain.boxed(), details.current_time.clone());
        stream.set_timeout(time_left(details)?);
        connection.complete_io(&mut stream).map_err(|error| match Error::from(error) {
            timeout @ Error::Timeout(_) => timeout,
            Error::Io(error) => unsent(&hint(&error), Some(error)),
            other => unsent("", Some(io::Error::other(other.to_string()))),
        })?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        let stream = StreamOwned::new(connection, stream);
        Ok(Some(Either::B(TlsTransport { stream, buffers: LazyBuffers::new(input, output) })))
    }
}

/// Returns advice for a failed handshake.
fn hint(error: &io::Error) -> String {
    use rustls::CertificateError::NotValidForNameContext;
    use rustls::Error::{InvalidCertificate, InvalidMessage};

    let advice = advice(error);
    let setting = match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(InvalidCertificate(NotValidForNameContext { presented, .. })) if !presented.is_empty() => {
            "; tls-server-name can choose the name"
        }
        Some(InvalidMessage(_)) => "; is its address http?",
        _ => "",
    };
    if advice.is_empty() { String::new() } else { format!(" ({advice}{setting})") }
}

/// An encrypted connection.
pub(crate) struct TlsTransport {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        Ok(self.stream.write_all(output)?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        // With TLS 1.3, a server refuses the client's certificate only after the handshake.
        let amount = self.stream.read(input).map_err(|error| match advice(&error) {
            "" => error,
            advice => io::Error::new(error.kind(), format!("{error} ({advice})")),
        })?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ureq::config::Config;
    use ureq::unversioned::resolver::Resolver;

    use super::super::resolver::{AddressResolver, LookUps};
    use super::*;
    use crate::config::ClusterConfig;
    use crate::config::authenticator::Authenticator;
    use crate::config::cluster_info::ClusterInfo;
    use crate::config::identity::Credentials;
    use homeostat::base::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    /// A connection that records the timeouts of its calls and never receives anything.
    #[derive(Debug)]
    struct RecordingTransport {
        buffers: LazyBuffers,
        seen: Arc<Mutex<Vec<Duration>>>,
    }

    impl Transport for RecordingTransport {
        fn buffers(&mut self) -> &mut dyn Buffers {
            &mut self.buffers
        }

        fn transmit_output(&mut self, _: usize, timeout: NextTimeout) -> Result<(), Error> {
            self.seen.lock().push(*timeout.after);
            Ok(())
        }

        fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
            self.seen.lock().push(*timeout.after);
            Err(Error::Timeout(timeout.reason))
        }

        fn is_open(&mut self) -> bool {
            true
        }
    }

    #[test]
    fn a_handshake_has_the_time_that_the_connection_has_left() {
        let parts = ClusterConfig::new("https://k").unwrap();
        let info = ClusterInfo::of(parts.parts());
        let authenticator = Authenticator::new(Credentials::None, info, Clock::system());
        let tls = TlsConnector(Arc::new(Tls::new(parts.parts(), Arc::new(authenticator)).unwrap()));
        let (uri, config, began) = ("https://k".parse().unwrap(), Config::default(), Clock::system().now());
        for spent in [9, 10, 11] {
            let details = ConnectionDetails {
                uri: &uri,
                addrs: AddressResolver::new(None, LookUps::default()).empty(),
                config: &config,
                request_level: false,
                resolver: &AddressResolver::new(None, LookUps::default()),
                now: Instant::Exact(began),
                timeout: NextTimeout {
                    after: (10 * SECOND).into(),
                    reason: Timeout::Connect,
                    ..NextTimeout::default()
                },
                current_time: Arc::new(move || Instant::Exact(began + spent * SECOND)),
                run_connector: Arc::new(|_: &ConnectionDetails<'_>| Err(Error::ConnectionFailed)),
                register_shutdown: Arc::new(|_| Ok(())),
            };
            let seen = Arc::new(Mutex::new(Vec::new()));
            let plain = RecordingTransport { buffers: LazyBuffers::new(1024, 1024), seen: Arc::clone(&seen) };
            let error = tls.connect(&details, Some(plain)).unwrap_err();
            assert!(matches!(error, Error::Timeout(Timeout::Connect)), "{error:?}");
            let seen = seen.lock();
            assert!(seen.iter().all(|limit| *limit == SECOND) && seen.is_empty() == (spent > 9), "{spent}: {seen:?}");
        }
    }
}
