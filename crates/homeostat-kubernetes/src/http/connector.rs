//! Connections for `ureq`: TCP, and TLS with the settings of the client.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
    TransportAdapter,
};
use ureq::{Error, Timeout};

use super::request_error::ConnectError;
use super::time_left::{check_time_left, deadline, time_left};
use super::tls::Tls;
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat_net::{DialError, TimedStream, advice, dial};

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
        let clock = Clock::system();
        let deadline = deadline(&clock, time_left(details)?);
        let addresses: Vec<_> = details.addrs.iter().copied().collect();
        // A shutdown of the agent also ends the attempt.
        let register = |stream: &Arc<TcpStream>| {
            let handle: Weak<TcpStream> = Arc::downgrade(stream);
            (details.register_shutdown)(handle as Weak<dyn ShutdownHandle>)
        };
        let failed = |fault: String, cause| Error::Other(Box::new(ConnectError::new(fault, cause)));
        let stream = dial(&addresses, &clock, deadline, register).map_err(|error| match error {
            DialError::NoAddress => failed(format!("{} has no address", authority(details.uri)), None),
            DialError::Failed(address, error) => {
                failed(format!("cannot connect to {}", shown(details.uri, address)), Some(error))
            }
            DialError::Refused(error) => error,
        })?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        let (stream, buffers) = (TimedStream::new(stream), LazyBuffers::new(input, output));
        Ok(Some(Either::B(TcpTransport { stream, buffers, silence: self.0.clone() })))
    }
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
    stream: TimedStream,
    buffers: LazyBuffers,
    silence: SilenceLimit,
}

impl Transport for TcpTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let limit = check_time_left(timeout.for_write())?;
        let output = &self.buffers.output()[..amount];
        let written = self.stream.write_all(output, limit.not_zero().map(|limit| *limit));
        written.map_err(|error| timed_out(error, limit.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let per_read = Some((*self.silence.0.lock()).into());
        let limit = check_time_left(NextTimeout { per_read, ..timeout }.for_read())?;
        let input = self.buffers.input_append_buf();
        let read = self.stream.read(input, limit.not_zero().map(|limit| *limit));
        let amount = read.map_err(|error| timed_out(error, limit.reason))?;
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
        is_silent(self.stream.get_ref()).unwrap_or(false)
    }
}

fn timed_out(error: io::Error, reason: Timeout) -> Error {
    if error.kind() == ErrorKind::TimedOut { Error::Timeout(reason) } else { error.into() }
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
    use ureq::unversioned::transport::time::Instant;

    use super::super::resolver::AddressResolver;
    use super::*;
    use crate::config::ClusterConfig;
    use crate::config::authenticator::Authenticator;
    use crate::config::cluster_info::ClusterInfo;
    use crate::config::identity::Credentials;
    use homeostat_net::NameLookUps;

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
        let resolver = AddressResolver::new(None, NameLookUps::new(Clock::system(), "resolver"));
        for spent in [9, 10, 11] {
            let details = ConnectionDetails {
                uri: &uri,
                addrs: resolver.empty(),
                config: &config,
                request_level: false,
                resolver: &resolver,
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
