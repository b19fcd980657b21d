//! The socket of one connection, with or without TLS. Each call has a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::registry::WriteLimits;
use homeostat::base::Clock;
use homeostat::rt::Nanos;

/// How many bytes of a write share one deadline.
const PIECE: usize = 64 << 10;

/// The socket of one connection, used by one thread.
pub(super) struct ServerTransport {
    pub(super) socket: Arc<TcpStream>,
    clock: Clock,
    #[cfg(feature = "tls")]
    tls: Option<Box<rustls::ServerConnection>>,
}

impl ServerTransport {
    pub(super) fn new(socket: Arc<TcpStream>, clock: Clock) -> Self {
        Self {
            socket,
            clock,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Blocks until bytes arrive. Returns 0 at the end of the connection, or fails with `TimedOut` at the deadline.
    pub(super) fn read(&mut self, buffer: &mut [u8], deadline: Nanos) -> io::Result<usize> {
        let mut socket = DeadlineSocket { socket: &self.socket, clock: &self.clock, deadline };
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return read_tls(tls, &mut socket, buffer);
        }
        socket.read(buffer)
    }

    /// Writes all bytes. Fails if the client does not read them within the limits.
    pub(super) fn write(&mut self, bytes: &[u8], limits: WriteLimits) -> io::Result<()> {
        let end = self.clock.nanos().after(limits.whole);
        for piece in bytes.chunks(PIECE) {
            let deadline = self.clock.nanos().after(limits.piece).min(end);
            let mut socket = DeadlineSocket { socket: &self.socket, clock: &self.clock, deadline };
            #[cfg(feature = "tls")]
            if let Some(tls) = &mut self.tls {
                write_tls(tls, &mut socket, piece)?;
                continue;
            }
            socket.write_all(piece)?;
        }
        Ok(())
    }

    /// Tells the client that no more bytes follow. The client can still send.
    pub(super) fn finish(&mut self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let deadline = self.clock.nanos().after(Duration::from_millis(100));
            let mut socket = DeadlineSocket { socket: &self.socket, clock: &self.clock, deadline };
            // The connection ends in any case.
            let _ = flush_tls(tls, &mut socket);
        }
        // Fails if the socket is already closed.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    #[cfg(feature = "tls")]
    /// Starts TLS. Returns the client's certificate.
    ///
    /// # Errors
    ///
    /// Returns `InvalidData` if the client does not speak TLS, or presents an invalid certificate.
    pub(super) fn handshake(
        &mut self,
        config: Arc<rustls::ServerConfig>,
        deadline: Nanos,
    ) -> io::Result<Option<rustls::pki_types::CertificateDer<'static>>> {
        let tls = rustls::ServerConnection::new(config).map_err(invalid)?;
        let tls = self.tls.insert(Box::new(tls));
        let mut socket = DeadlineSocket { socket: &self.socket, clock: &self.clock, deadline };
        while tls.is_handshaking() {
            receive_tls(tls, &mut socket)?;
        }
        flush_tls(tls, &mut socket)?;
        Ok(tls.peer_certificates().and_then(|chain| chain.first()).cloned())
    }

    #[cfg(feature = "tls")]
    /// Blocks until the first byte arrives, and returns it without consuming it. Returns `None` at the end of the
    /// connection.
    pub(super) fn first_byte(&self, deadline: Nanos) -> io::Result<Option<u8>> {
        let mut byte = [0];
        self.socket.set_read_timeout(Some(time_until(&self.clock, deadline)?))?;
        Ok((self.socket.peek(&mut byte)? > 0).then_some(byte[0]))
    }
}

/// A socket with one deadline for all calls together.
struct DeadlineSocket<'a> {
    socket: &'a TcpStream,
    clock: &'a Clock,
    deadline: Nanos,
}

/// Returns the time until a deadline.
fn time_until(clock: &Clock, deadline: Nanos) -> io::Result<Duration> {
    let left = deadline.since(clock.nanos());
    // A shorter timeout would be rounded to zero, which means "no timeout".
    if left < Duration::from_micros(10) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Read for DeadlineSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.socket;
        loop {
            socket.set_read_timeout(Some(time_until(self.clock, self.deadline)?))?;
            match socket.read(buffer) {
                // The system may end a wait early.
                Err(error) if is_early(&error) => {}
                result => return result,
            }
        }
    }
}

impl Write for DeadlineSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = self.socket;
        loop {
            socket.set_write_timeout(Some(time_until(self.clock, self.deadline)?))?;
            match socket.write(bytes) {
                Err(error) if is_early(&error) => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(feature = "tls")]
fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(feature = "tls")]
fn flush_tls(tls: &mut rustls::ServerConnection, socket: &mut DeadlineSocket<'_>) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}

/// Sends the bytes that TLS has to send, and reads the next bytes.
#[cfg(feature = "tls")]
fn receive_tls(tls: &mut rustls::ServerConnection, socket: &mut DeadlineSocket<'_>) -> io::Result<()> {
    flush_tls(tls, socket)?;
    if tls.read_tls(socket)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if let Err(error) = tls.process_new_packets() {
        // Tell the client the reason.
        let _ = flush_tls(tls, socket);
        return Err(invalid(error));
    }
    Ok(())
}

#[cfg(feature = "tls")]
fn read_tls(
    tls: &mut rustls::ServerConnection,
    socket: &mut DeadlineSocket<'_>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        receive_tls(tls, socket)?;
    }
}

#[cfg(feature = "tls")]
fn write_tls(tls: &mut rustls::ServerConnection, socket: &mut DeadlineSocket<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let taken = tls.writer().write(bytes)?;
        bytes = &bytes[taken..];
        flush_tls(tls, socket)?;
    }
    Ok(())
}
