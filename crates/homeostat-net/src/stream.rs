//! TCP connections with time limits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use homeostat::base::Clock;
use homeostat::rt::Nanos;

/// A TCP connection with a time limit for each call.
///
/// # Examples
///
/// ```
/// use homeostat_net::TimedStream;
/// use std::io::ErrorKind;
/// use std::net::{TcpListener, TcpStream};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let mut stream = TimedStream::new(Arc::new(TcpStream::connect(server.local_addr()?)?));
/// stream.write_all(b"ping", Some(Duration::from_secs(10)))?;
/// let silent = stream.read(&mut [0; 4], Some(Duration::from_millis(1))).unwrap_err();
/// assert_eq!(silent.kind(), ErrorKind::TimedOut);
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TimedStream {
    stream: Arc<TcpStream>,
    /// The read timeout of the socket.
    read_limit: Option<Duration>,
}

impl TimedStream {
    /// Wraps a connection that has no timeouts, such as one of [`dial`](crate::dial()). Nothing else may set its
    /// timeouts meanwhile.
    #[must_use]
    pub fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, read_limit: None }
    }

    /// Returns the connection.
    #[must_use]
    pub fn get_ref(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Reads bytes. Blocks until some arrive, or for at most `limit`. Returns 0 at the end of the connection.
    ///
    /// # Errors
    ///
    /// If the limit passes (kind [`TimedOut`](ErrorKind::TimedOut)), or the connection fails. A limit of zero is
    /// refused.
    pub fn read(&mut self, buffer: &mut [u8], limit: Option<Duration>) -> io::Result<usize> {
        loop {
            match self.read_once(buffer, limit) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Writes all bytes. Each time the peer accepts no more, blocks for at most `limit`.
    ///
    /// # Errors
    ///
    /// If the limit passes (kind [`TimedOut`](ErrorKind::TimedOut)), or the connection fails. A limit of zero is
    /// refused.
    pub fn write_all(&mut self, bytes: &[u8], limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_write_timeout(limit)?;
        (&*self.stream).write_all(bytes).map_err(describe_timeout)
    }

    fn read_once(&mut self, buffer: &mut [u8], limit: Option<Duration>) -> io::Result<usize> {
        // Callers usually read with the same limit as before, and need no system call for it.
        if self.read_limit != limit {
            self.stream.set_read_timeout(limit)?;
            self.read_limit = limit;
        }
        (&*self.stream).read(buffer).map_err(describe_timeout)
    }
}

/// A TCP connection with one deadline for all calls together. Use it for a handshake.
///
/// # Examples
///
/// ```
/// use homeostat::base::Clock;
/// use homeostat_net::DeadlineStream;
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let stream = Arc::new(TcpStream::connect(server.local_addr()?)?);
/// let clock = Clock::system();
/// let deadline = clock.nanos().after(Duration::from_millis(20));
/// let mut handshake = DeadlineStream::new(stream, clock, deadline);
/// handshake.write_all(b"hello")?;
/// let error = handshake.read(&mut [0; 16]).unwrap_err();
/// assert_eq!(error.to_string(), "the server does not answer in time");
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DeadlineStream {
    stream: TimedStream,
    clock: Clock,
    deadline: Nanos,
}

impl DeadlineStream {
    /// Wraps a connection that has no timeouts. Calls fail once `deadline` has passed on `clock`. The timeouts of the
    /// last call stay set on the socket.
    #[must_use]
    pub fn new(stream: Arc<TcpStream>, clock: Clock, deadline: Nanos) -> Self {
        Self { stream: TimedStream::new(stream), clock, deadline }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read_once(buffer, time_until(&self.clock, self.deadline)?)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = &self.stream.stream;
        stream.set_write_timeout(time_until(&self.clock, self.deadline)?)?;
        (&**stream).write(bytes).map_err(describe_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the time until a deadline; `None` if it is never.
///
/// # Errors
///
/// If the deadline has passed, or is too close for a socket.
pub(crate) fn time_until(clock: &Clock, deadline: Nanos) -> io::Result<Option<Duration>> {
    if deadline == Nanos::NEVER {
        return Ok(None);
    }
    let left = deadline.since(clock.nanos());
    // A shorter timeout would be rounded to zero, which means "no timeout".
    if left < Duration::from_micros(10) { Err(timed_out()) } else { Ok(Some(left)) }
}

/// Returns the error of a read or write, with the text "the server does not answer in time" if a timeout of the socket
/// has passed. The kind is then [`TimedOut`](ErrorKind::TimedOut) on each system.
#[must_use]
pub fn describe_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => timed_out(),
        _ => error,
    }
}

fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the server does not answer in time")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use homeostat::ManualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SHORT: Option<Duration> = Some(Duration::from_millis(1));

    /// Returns both ends of a connection.
    #[expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]
    fn pair() -> (Arc<TcpStream>, TcpStream) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        (Arc::new(stream), server.accept().unwrap().0)
    }

    #[test]
    fn each_read_and_write_has_its_own_limit() {
        let (stream, mut peer) = pair();
        let mut timed = TimedStream::new(Arc::clone(&stream));
        let mut buffer = [0; 8];
        let error = timed.read(&mut buffer, SHORT).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::TimedOut, timed_out().to_string()));
        peer.write_all(b"late").unwrap();
        assert_eq!(timed.read(&mut buffer, None).unwrap(), 4);
        assert_eq!(stream.read_timeout().unwrap(), None);
        assert_eq!(timed.read(&mut buffer, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        // The peer reads nothing.
        let bytes = vec![0; 64 << 20];
        assert_eq!(timed.write_all(&bytes, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(peer);
        assert!(matches!(timed.read(&mut buffer, None), Ok(0) | Err(_)));
    }

    #[test]
    fn the_calls_of_a_handshake_share_one_deadline() {
        let (stream, mut peer) = pair();
        let clock = ManualClock::new();
        let deadline = clock.clock().nanos().after(SECOND);
        let mut handshake = DeadlineStream::new(Arc::clone(&stream), clock.clock(), deadline);
        peer.write_all(b"hello").unwrap();
        let mut buffer = [0; 2];
        handshake.read_exact(&mut buffer).unwrap();
        assert_eq!(stream.read_timeout().unwrap(), Some(SECOND));
        clock.advance(SECOND / 2);
        handshake.read_exact(&mut buffer).unwrap();
        handshake.write_all(b"hello").unwrap();
        for left in [stream.read_timeout(), stream.write_timeout()] {
            // Systems round it.
            assert!(left.unwrap().unwrap().abs_diff(SECOND / 2) < Duration::from_millis(20));
        }
        clock.advance(SECOND / 2);
        assert_eq!(handshake.read(&mut buffer).unwrap_err().kind(), ErrorKind::TimedOut, "also with bytes to read");
        assert_eq!(handshake.write(b"late").unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_deadline_that_is_never_sets_no_timeout() {
        let (stream, mut peer) = pair();
        let mut handshake = DeadlineStream::new(Arc::clone(&stream), Clock::system(), Nanos::NEVER);
        peer.write_all(b"hello").unwrap();
        handshake.read_exact(&mut [0; 5]).unwrap();
        handshake.write_all(b"hello").unwrap();
        assert_eq!((stream.read_timeout().unwrap(), stream.write_timeout().unwrap()), (None, None));
    }
}
