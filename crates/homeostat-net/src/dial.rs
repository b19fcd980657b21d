//! Connects to one of several addresses.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use homeostat::base::Clock;
use homeostat::rt::Nanos;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::stream::time_until;

/// How long a connection is silent before the system probes the other end, and the interval of probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How long sent bytes may be unacknowledged before the connection ends.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// The least time for an address.
const LEAST_SHARE: Duration = Duration::from_millis(10);

/// The reason why [`dial`] has no connection.
pub enum DialError<E> {
    /// There is no address to try.
    NoAddress,
    /// No address has accepted in time. These are the last address and its failure.
    Failed(SocketAddr, io::Error),
    /// The caller has refused to continue, with this error.
    Refused(E),
}

/// Connects to the first address that accepts. All attempts share one deadline.
///
/// Blocks until an address accepts, until all have failed, or until `deadline`. Each address gets an equal share of the
/// remaining time, so one that does not answer leaves time for the next. With the deadline [`Nanos::NEVER`], the system
/// decides how long an attempt takes.
///
/// Passes each socket to `register` before it connects. A weak reference to it lets another thread end the attempt, by
/// [`TcpStream::shutdown`]. An error of `register` ends all attempts.
///
/// The connection sends small writes at once. The system probes a silent peer after 30 seconds, and on Linux ends the
/// connection if the peer acknowledges nothing for 30 seconds.
///
/// # Errors
///
/// If no address accepts in time, or `register` refuses.
///
/// # Examples
///
/// ```
/// use homeostat::base::Clock;
/// use homeostat_net::dial;
/// use std::convert::Infallible;
/// use std::net::TcpListener;
/// use std::time::Duration;
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let clock = Clock::system();
/// let deadline = clock.nanos().after(Duration::from_secs(10));
/// let stream = dial(&[server.local_addr()?], &clock, deadline, |_| Ok::<_, Infallible>(()))?;
/// assert_eq!(stream.peer_addr()?, server.local_addr()?);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
pub fn dial<E>(
    addresses: &[SocketAddr],
    clock: &Clock,
    deadline: Nanos,
    mut register: impl FnMut(&Arc<TcpStream>) -> Result<(), E>,
) -> Result<Arc<TcpStream>, DialError<E>> {
    let mut failure = DialError::NoAddress;
    for (tried, address) in addresses.iter().copied().enumerate() {
        let left = match time_until(clock, deadline) {
            Ok(left) => left,
            // The failure of an earlier address says more than the deadline.
            Err(error) if tried == 0 => return Err(DialError::Failed(address, error)),
            Err(_) => break,
        };
        let addresses_left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let limit = left.map(|left| (left / addresses_left).max(LEAST_SHARE));
        let stream = match socket(address) {
            Ok(stream) => Arc::new(stream),
            Err(error) => {
                failure = DialError::Failed(address, error);
                continue;
            }
        };
        register(&stream).map_err(DialError::Refused)?;
        let socket = SockRef::from(&*stream);
        let connected = match limit {
            Some(limit) => socket.connect_timeout(&address.into(), limit),
            None => socket.connect(&address.into()),
        };
        match connected {
            Ok(()) => return Ok(stream),
            Err(error) => failure = DialError::Failed(address, error),
        }
    }
    Err(failure)
}

/// Creates a socket that is not connected.
fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
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

impl<E: fmt::Display> fmt::Display for DialError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("there is no address to connect to"),
            Self::Failed(address, error) => write!(f, "cannot connect to {address}: {error}"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Display> fmt::Debug for DialError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: fmt::Display> std::error::Error for DialError<E> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn any() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    fn seconds(clock: &Clock, seconds: u64) -> Nanos {
        clock.nanos().after(Duration::from_secs(seconds))
    }

    const GO_ON: fn(&Arc<TcpStream>) -> Result<(), &'static str> = |_| Ok(());

    /// Returns a listening socket with a full accept queue, which does not answer, and the sockets in its queue.
    #[expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]
    fn silent() -> (Socket, Vec<Socket>) {
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&any().into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap();
        let mut fillers = Vec::new();
        loop {
            let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            if filler.connect_timeout(&address, Duration::from_millis(200)).is_err() {
                return (full, fillers);
            }
            fillers.push(filler);
        }
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let (full, _fillers) = silent();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let live = TcpListener::bind(any()).unwrap();
        let (clock, place) = (Clock::system(), live.local_addr().unwrap());
        let stream = dial(&[silent, place], &clock, seconds(&clock, 4), GO_ON).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), place);
    }

    #[test]
    fn the_last_failure_is_reported_with_its_address() {
        let closed = TcpListener::bind(any()).unwrap().local_addr().unwrap();
        let (full, _fillers) = silent();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let clock = Clock::system();
        let error = dial(&[silent, closed], &clock, seconds(&clock, 1), GO_ON).unwrap_err();
        assert!(
            matches!(&error, DialError::Failed(address, error)
                if *address == closed && error.kind() == io::ErrorKind::ConnectionRefused),
            "{error}"
        );
        let error = dial(&[closed], &clock, Nanos::ZERO, GO_ON).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot connect to {closed}: the server does not answer in time"));
        let error = dial(&[], &clock, Nanos::NEVER, GO_ON).unwrap_err();
        assert_eq!(error.to_string(), "there is no address to connect to");
    }

    #[test]
    fn a_caller_can_end_all_attempts_or_the_one_that_runs() {
        let live = TcpListener::bind(any()).unwrap().local_addr().unwrap();
        let clock = Clock::system();
        let mut seen = 0;
        let refused = dial(&[live, live], &clock, Nanos::NEVER, |_| {
            seen += 1;
            Err("closing")
        });
        assert!(matches!(refused, Err(DialError::Refused("closing"))) && seen == 1);

        let (full, _fillers) = silent();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let started = clock.nanos();
        std::thread::scope(|scope| {
            let ended = dial(&[silent], &clock, seconds(&clock, 60), |stream| {
                let handle = Arc::downgrade(stream);
                scope.spawn(move || {
                    while let Some(stream) = handle.upgrade() {
                        // Fails until the socket connects.
                        let _ = stream.shutdown(std::net::Shutdown::Both);
                        std::thread::park_timeout(Duration::from_millis(5));
                    }
                });
                GO_ON(stream)
            });
            assert!(matches!(ended, Err(DialError::Failed(..))), "{ended:?}");
        });
        assert!(clock.nanos().since(started) < Duration::from_secs(30));
    }

    #[test]
    fn the_system_probes_a_silent_peer() {
        let live = TcpListener::bind(any()).unwrap();
        let stream = dial(&[live.local_addr().unwrap()], &Clock::system(), Nanos::NEVER, GO_ON).unwrap();
        let socket = SockRef::from(&*stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE.0);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }
}
