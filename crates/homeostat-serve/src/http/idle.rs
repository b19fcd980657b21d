//! One thread that watches the sockets of streams and of closing connections, and discards the bytes that arrive.
//!
//! If a stream's client leaves, the thread cancels the stream. It keeps a closing connection until its client has read
//! the last reply.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::poll::{Discarded, Poll, PolledSocket, discard};
use super::registry::ConnectionRegistry;
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock};
use homeostat::rt::Nanos;

/// How long a client may take to read the last reply of a connection.
const LINGER: Duration = Duration::from_secs(2);
/// The largest number of lingering sockets.
pub(super) const MOST_LINGERING: usize = 256;
/// The largest number of bytes that a client may send to such a socket.
const MOST_BYTES: usize = 16 << 20;
/// How long after a stop streams may still send, and earlier writes may take.
const WRITE_GRACE: Duration = Duration::from_millis(50);

/// The sockets that no connection thread reads.
pub(crate) struct IdleSockets {
    clock: Clock,
    poll: Arc<Poll>,
    registry: Arc<ConnectionRegistry>,
    state: Mutex<IdleState>,
}

#[derive(Default)]
struct IdleState {
    next: u64,
    sockets: BTreeMap<u64, IdleSocket>,
    lingering: usize,
    /// When writes from before a stop are cut. Set by the stop.
    cut_at: Option<Nanos>,
}

struct IdleSocket {
    socket: Arc<TcpStream>,
    deadline: Nanos,
    received: usize,
    /// Cancelled at the deadline, and when the client leaves. `None` for a lingering socket.
    stream: Option<CancellationToken>,
}

impl IdleSockets {
    pub(crate) fn new(clock: Clock, registry: Arc<ConnectionRegistry>) -> std::io::Result<Arc<Self>> {
        let poll = Poll::new(clock.clone())?;
        Ok(Arc::new(Self { clock, poll, registry, state: Mutex::new(IdleState::default()) }))
    }

    /// Cancels `token` when the client leaves, or after `life`. Dropping the guard ends this.
    pub(super) fn watch(
        self: &Arc<Self>,
        socket: &Arc<TcpStream>,
        token: CancellationToken,
        life: Duration,
    ) -> StreamGuard {
        let deadline = self.clock.nanos().after(life);
        let idle = IdleSocket { socket: Arc::clone(socket), deadline, received: 0, stream: Some(token) };
        let number = self.state.lock().add(idle);
        self.poll.wake();
        StreamGuard { idle: Arc::clone(self), number }
    }

    /// Keeps a socket until its client has read the last reply. Closing it with unread bytes would destroy that reply.
    pub(super) fn linger(&self, socket: Arc<TcpStream>) {
        let deadline = self.clock.nanos().after(LINGER);
        let idle = IdleSocket { socket, deadline, received: 0, stream: None };
        // The oldest socket must be closed outside the lock.
        let (_oldest, is_stopping) = {
            let mut state = self.state.lock();
            state.lingering += 1;
            state.add(idle);
            let oldest = (state.lingering > MOST_LINGERING).then(|| state.oldest_lingering()).flatten();
            (oldest.and_then(|number| state.remove(number)), state.cut_at.is_some())
        };
        // After a stop, the thread keeps the socket until the thread ends.
        if !is_stopping {
            self.poll.wake();
        }
    }

    /// Makes the thread cut current writes soon, and end after the last connection.
    pub(crate) fn stop(&self) {
        self.state.lock().cut_at.get_or_insert(self.clock.nanos().after(WRITE_GRACE));
        self.poll.wake();
    }

    /// Wakes the thread. After a stop, the last connection calls this.
    pub(super) fn wake(&self) {
        self.poll.wake();
    }

    /// The body of the thread.
    pub(crate) fn run(&self) {
        let mut cut = false;
        loop {
            let (numbers, sockets, mut deadline, cut_at) = self.snapshot();
            if let Some(cut_at) = cut_at {
                if self.registry.connections() == 0 {
                    break;
                }
                if !cut && self.clock.reached(cut_at) {
                    self.registry.cut_writes();
                    cut = true;
                }
                if !cut {
                    deadline = deadline.min(cut_at);
                }
            }
            let ready = self.poll.wait(&sockets, deadline);
            for at in ready {
                if let (Some(number), Some(PolledSocket::Stream(socket))) = (numbers.get(at), sockets.get(at)) {
                    self.drop_bytes(*number, socket);
                }
            }
            self.end_expired();
        }
        let _sockets = std::mem::take(&mut self.state.lock().sockets);
    }

    fn snapshot(&self) -> (Vec<u64>, Vec<PolledSocket>, Nanos, Option<Nanos>) {
        let state = self.state.lock();
        let numbers = state.sockets.keys().copied().collect();
        let sockets = state.sockets.values().map(|idle| PolledSocket::Stream(Arc::clone(&idle.socket))).collect();
        let deadline = state.sockets.values().map(|idle| idle.deadline).min().unwrap_or(Nanos::NEVER);
        (numbers, sockets, deadline, state.cut_at)
    }

    fn drop_bytes(&self, number: u64, socket: &TcpStream) {
        let discarded = discard(socket);
        let mut state = self.state.lock();
        let Some(idle) = state.sockets.get_mut(&number) else { return };
        if let Discarded::Bytes(count) = discarded {
            idle.received += count;
            if idle.received <= MOST_BYTES {
                return;
            }
        }
        let ended = state.remove(number);
        drop(state);
        cancel(ended);
    }

    fn end_expired(&self) {
        let now = self.clock.nanos();
        let expired: Vec<_> = {
            let mut state = self.state.lock();
            let expired = state.sockets.iter().filter(|(_, idle)| idle.deadline <= now);
            let expired: Vec<_> = expired.map(|(number, _)| *number).collect();
            expired.into_iter().map(|number| state.remove(number)).collect()
        };
        expired.into_iter().for_each(cancel);
    }
}

/// Cancels a stream's token. This runs callbacks of the stream's handler, so no lock may be held.
fn cancel(ended: Option<IdleSocket>) {
    if let Some(token) = ended.and_then(|idle| idle.stream) {
        token.cancel();
    }
}

impl IdleState {
    fn add(&mut self, idle: IdleSocket) -> u64 {
        self.next += 1;
        self.sockets.insert(self.next, idle);
        self.next
    }

    fn remove(&mut self, number: u64) -> Option<IdleSocket> {
        let removed = self.sockets.remove(&number);
        if removed.as_ref().is_some_and(|idle| idle.stream.is_none()) {
            self.lingering -= 1;
        }
        removed
    }

    fn oldest_lingering(&self) -> Option<u64> {
        self.sockets.iter().find(|(_, idle)| idle.stream.is_none()).map(|(number, _)| *number)
    }
}

/// The registration of a stream. Dropping it removes the registration.
pub(super) struct StreamGuard {
    idle: Arc<IdleSockets>,
    number: u64,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let _removed = { self.idle.state.lock().remove(self.number) };
    }
}
