//! Accepts connections, and starts a thread for each one.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::connection::serve_connection;
use super::counts::increment;
use super::date::http_date;
use super::memory::Overload;
use super::poll::{Poll, PolledSocket};
use super::reply::{ReplyFrame, full_reply};
use super::roster::ThreadRoster;
use super::shared::HttpShared;
use homeostat::rt::Nanos;

/// How many connections of one listener are accepted before other listeners get their turn.
const MOST_AT_ONCE: usize = 64;
/// The pause after the system refused a connection or a thread.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections.
pub(crate) struct Acceptor {
    pub(crate) shared: Arc<HttpShared>,
    pub(crate) roster: Arc<ThreadRoster>,
    pub(crate) poll: Arc<Poll>,
    pub(crate) listeners: Vec<Arc<TcpListener>>,
}

impl Acceptor {
    /// The body of the thread. After a stop, it cancels all streams. The callbacks of their clients are user code: the
    /// caller of the stop may be a manager, which must be able to give up.
    pub(crate) fn run(self) {
        let _end = StreamsEnd(Arc::clone(&self.shared));
        self.accept_until_stop();
        // The addresses are free while the callbacks run.
        drop(self);
    }

    fn accept_until_stop(&self) {
        let listeners: Vec<_> =
            self.listeners.iter().map(|socket| PolledSocket::Listener(Arc::clone(socket))).collect();
        let mut pause = None;
        while !self.shared.registry.is_stopping() {
            let ready = match pause.take() {
                Some(until) => self.poll.wait(&[], until),
                None => self.poll.wait(&listeners, Nanos::NEVER),
            };
            for at in ready {
                if let Some(listener) = self.listeners.get(at)
                    && let Err(error) = self.accept(listener)
                {
                    self.warn(&error);
                    pause = Some(self.shared.clock.nanos().after(PAUSE));
                }
            }
            self.roster.reap();
        }
    }

    fn accept(&self, listener: &TcpListener) -> io::Result<()> {
        for _ in 0..MOST_AT_ONCE {
            match listener.accept() {
                Ok((socket, peer)) => self.take(socket, peer)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client gave up before its connection was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Starts a thread for a connection. Fails only if the system cannot start a thread.
    fn take(&self, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
        if socket.set_nonblocking(false).is_err() || socket.set_nodelay(true).is_err() {
            // The client has left.
            return Ok(());
        }
        let slot = match self.shared.registry.open(socket, peer) {
            Ok(slot) => slot,
            Err((socket, overload)) => {
                let counts = &self.shared.counts;
                let (status, message, count) = match overload {
                    Overload::Server => {
                        let message = "the server has too many connections\n";
                        (StatusCode::SERVICE_UNAVAILABLE, message, &counts.refused_by_server)
                    }
                    Overload::Client => {
                        let message = "this address has too many connections\n";
                        (StatusCode::TOO_MANY_REQUESTS, message, &counts.refused_by_client)
                    }
                };
                increment(count);
                self.refuse(Arc::new(socket), status, message);
                return Ok(());
            }
        };
        let (shared, socket) = (Arc::clone(&self.shared), Arc::clone(&slot.connection.socket));
        let spawned = self.roster.spawn(&format!("connection-{}", slot.number), move || {
            // Must be dropped after the slot.
            let _end = ConnectionEnd(&shared);
            let slot = slot;
            // Count before the first answer, so that a client that has an answer is counted.
            increment(&shared.counts.accepted);
            serve_connection(&shared, &slot);
        });
        if spawned.is_err() {
            increment(&self.shared.counts.refused_by_server);
            self.refuse(socket, StatusCode::SERVICE_UNAVAILABLE, "the server has no more threads\n");
        }
        spawned
    }

    /// Refuses a connection without a thread.
    fn refuse(&self, socket: Arc<TcpStream>, status: StatusCode, message: &str) {
        let headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
            (header::RETRY_AFTER, HeaderValue::from_static("1")),
        ]);
        let date = http_date(self.shared.clock.time_of_day());
        let reply = full_reply(status, &headers, message.as_bytes(), ReplyFrame::LAST, &date);
        let reply = if self.shared.is_tls() { TLS_REFUSAL.to_vec() } else { reply };
        // A new socket has room for this reply. The client may have left.
        if socket.set_nonblocking(true).is_ok() && (&*socket).write(&reply).is_ok() {
            let _ = socket.shutdown(Shutdown::Write);
            self.shared.idle.linger(socket);
        }
    }

    fn warn(&self, error: &io::Error) {
        let component = self.shared.name.as_str();
        log::warn!(
            component, error:%;
            "{component}: a connection cannot be served, because the system refuses it; trying again soon: {error}"
        );
    }
}

/// Cancels all streams on drop, so that they end even if the thread panics.
struct StreamsEnd(Arc<HttpShared>);

impl Drop for StreamsEnd {
    fn drop(&mut self) {
        self.0.registry.cancel_streams();
    }
}

/// After a stop, wakes the thread that waits for the last connection.
struct ConnectionEnd<'a>(&'a HttpShared);

impl Drop for ConnectionEnd<'_> {
    fn drop(&mut self) {
        if self.0.registry.is_stopping() && self.0.registry.connections() == 0 {
            self.0.idle.wake();
        }
    }
}

/// TLS' message for an internal error of the server.
const TLS_REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
