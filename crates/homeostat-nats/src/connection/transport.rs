//! The socket of a connection, with or without TLS.
//!
//! One thread reads and another one writes. They share a TLS session behind a lock, which neither holds while the
//! socket blocks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustls::ClientConnection;

use crate::sync::Mutex;
use homeostat::rt::OwnerProcess;
use homeostat_net::describe_timeout;

/// How many bytes one call reads from the socket.
const PIECE: usize = 64 << 10;

/// A connected socket.
pub(super) struct Transport {
    socket: Arc<TcpStream>,
    owner: OwnerProcess,
    tls: Option<Mutex<ClientConnection>>,
}

/// Closes a socket from any thread.
#[derive(Debug)]
pub(super) struct SocketCloser(Weak<TcpStream>, OwnerProcess);

impl SocketCloser {
    pub(super) fn of(socket: &Arc<TcpStream>) -> Self {
        Self(Arc::downgrade(socket), OwnerProcess::current())
    }

    /// Shuts the socket down. Blocked calls on it return.
    pub(super) fn end(&self) {
        // A forked process has a copy of the socket, and must not close its parent's connection.
        if let Some(socket) = self.0.upgrade().filter(|_| self.1.is_current()) {
            // Fails if the socket is already closed.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Transport {
    pub(super) fn new(
        socket: Arc<TcpStream>,
        tls: Option<ClientConnection>,
        write_timeout: Duration,
    ) -> io::Result<Self> {
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(Some(write_timeout))?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket2::SockRef::from(&*socket).set_tcp_user_timeout(Some(write_timeout))?;
        Ok(Self { socket, owner: OwnerProcess::current(), tls: tls.map(Mutex::new) })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Shuts the socket down. Blocked calls of both threads return.
    pub(super) fn shut_down(&self) {
        if self.owner.is_current() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// Encrypts bytes for the socket into `cipher`. Returns false without TLS, when the bytes are sent as they are.
    pub(super) fn seal(&self, bytes: &[u8], cipher: &mut Vec<u8>) -> io::Result<bool> {
        let Some(tls) = &self.tls else { return Ok(false) };
        for piece in bytes.chunks(PIECE) {
            let mut tls = tls.lock();
            tls.writer().write_all(piece)?;
            while tls.wants_write() {
                tls.write_tls(cipher)?;
            }
        }
        Ok(true)
    }

    /// Writes all bytes, which [`seal`](Self::seal) has already encrypted.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.owner.check().map_err(io::Error::other)?;
        let mut socket = &*self.socket;
        socket.write_all(bytes).map_err(describe_timeout)
    }

    /// Writes as many already encrypted bytes as the socket accepts without blocking. Returns their number.
    #[cfg(unix)]
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::io::Errno;
        use rustix::net::{SendFlags, send};
        self.owner.check().map_err(io::Error::other)?;
        match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes nothing, because this system has no write that does not block. The writer thread writes the bytes.
    #[cfg(not(unix))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the signature of other systems")]
    pub(super) fn write_now(&self, _: &[u8]) -> io::Result<usize> {
        Ok(0)
    }
}

/// The reading half of a [`Transport`].
pub(super) struct TransportReader {
    transport: Arc<Transport>,
    /// Bytes from the socket that TLS has not decrypted yet.
    cipher: Vec<u8>,
    start: usize,
    end: usize,
}

impl TransportReader {
    pub(super) fn new(transport: Arc<Transport>) -> Self {
        let size = if transport.tls.is_some() { PIECE } else { 0 };
        Self { transport, cipher: vec![0; size], start: 0, end: 0 }
    }

    /// Blocks until bytes arrive. Returns 0 at the end of the connection.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = &*self.transport.socket;
        let Some(tls) = &self.transport.tls else { return retry_interrupted(|| socket.read(buffer)) };
        loop {
            {
                let mut tls = tls.lock();
                match tls.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                }
                if self.start < self.end {
                    let mut rest = &self.cipher[self.start..self.end];
                    let before = rest.len();
                    tls.read_tls(&mut rest)?;
                    self.start += before - rest.len();
                    tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    continue;
                }
            }
            let count = retry_interrupted(|| socket.read(&mut self.cipher))?;
            if count == 0 {
                // Without TLS' closing message, an attacker may have cut the connection.
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended without TLS' end"));
            }
            (self.start, self.end) = (0, count);
        }
    }
}

fn retry_interrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use homeostat::base::Clock;
    use homeostat_net::dial;
    use homeostat_test_support::forks::{ensure, in_a_fork};

    use super::*;
    use crate::error::NatsError;

    #[test]
    fn a_forked_process_neither_ends_nor_uses_the_socket_of_its_parent() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (clock, place) = (Clock::system(), server.local_addr().unwrap());
        let closer = std::cell::RefCell::new(None);
        let deadline = clock.nanos().after(Duration::from_secs(60));
        let register = |socket: &Arc<TcpStream>| {
            closer.replace(Some(SocketCloser::of(socket)));
            Ok::<_, NatsError>(())
        };
        let socket = dial(&[place], &clock, deadline, register).unwrap();
        let transport = Transport::new(socket, None, Duration::from_secs(60)).unwrap();
        let (mut peer, _) = server.accept().unwrap();
        in_a_fork(|| {
            closer.take().unwrap().end();
            transport.shut_down();
            let has_written = transport.write(b"child").is_ok() || transport.write_now(b"child").is_ok();
            ensure(!has_written, "the child has written")
        });
        transport.write(b"parent").unwrap();
        transport.shut_down();
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "parent");
    }
}
