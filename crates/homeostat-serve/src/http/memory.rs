//! The memory for bodies and replies, and its limits for the server and for each client address.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Replies up to this size need no reservation. With the default number of connections, they take at most 32 MiB.
pub(super) const UNCOUNTED_REPLY: usize = 64 << 10;

/// The memory used by the requests of all clients, or of one client address.
pub(super) struct RequestMemory {
    /// The size of all bodies that are read or handled.
    bodies: AtomicUsize,
    /// The size of all replies that are being sent.
    replies: AtomicUsize,
    most_bodies: usize,
    /// Once replies use this many bytes, no further large reply begins.
    most_replies: usize,
}

impl RequestMemory {
    pub(super) fn new(most_bodies: usize, most_replies: usize) -> Self {
        Self { bodies: AtomicUsize::new(0), replies: AtomicUsize::new(0), most_bodies, most_replies }
    }

    #[cfg(test)]
    pub(super) fn body_bytes(&self) -> usize {
        self.bodies.load(SeqCst)
    }

    pub(super) fn reply_bytes(&self) -> usize {
        self.replies.load(SeqCst)
    }
}

/// The side with too many connections or too much memory: the server or the client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overload {
    Server,
    Client,
}

/// A reservation of memory for a body, released on drop.
pub(super) struct BodyReservation {
    server: Arc<RequestMemory>,
    client: Arc<RequestMemory>,
    bytes: usize,
}

impl BodyReservation {
    /// Creates the reservation for a body that is still empty.
    pub(super) fn new(server: &Arc<RequestMemory>, client: &Arc<RequestMemory>) -> Self {
        Self { server: Arc::clone(server), client: Arc::clone(client), bytes: 0 }
    }

    /// Increases the reservation to this number of bytes, unless other bodies use too much.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), Overload> {
        let more = bytes.saturating_sub(self.bytes);
        let reserve = |RequestMemory { bodies, most_bodies, .. }: &RequestMemory| {
            let grown = |used: usize| used.checked_add(more).filter(|sum| sum <= most_bodies);
            bodies.fetch_update(SeqCst, SeqCst, grown).is_ok()
        };
        if !reserve(&self.client) {
            return Err(Overload::Client);
        }
        if !reserve(&self.server) {
            self.client.bodies.fetch_sub(more, SeqCst);
            return Err(Overload::Server);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.server.bodies.fetch_sub(self.bytes, SeqCst);
        self.client.bodies.fetch_sub(self.bytes, SeqCst);
    }
}

/// A reservation of memory for a reply, released on drop.
///
/// A reply begins if all other replies use less than the limit. One reply may therefore be larger than the limit, and
/// all replies together use at most the limit plus one reply. Replies up to [`UNCOUNTED_REPLY`] do not count.
pub(super) struct ReplyReservation {
    server: Arc<RequestMemory>,
    client: Arc<RequestMemory>,
    bytes: usize,
}

impl ReplyReservation {
    /// Creates the reservation for a reply that uses no memory yet.
    pub(super) fn new(server: &Arc<RequestMemory>, client: &Arc<RequestMemory>) -> Self {
        Self { server: Arc::clone(server), client: Arc::clone(client), bytes: 0 }
    }

    /// Changes the reservation to this many bytes. Fails without a change if it would grow and other replies leave no
    /// room.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Overload> {
        let bytes = if bytes <= UNCOUNTED_REPLY { 0 } else { bytes };
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            self.shrink_to(bytes);
            return Ok(());
        };
        let reserve = |RequestMemory { replies, most_replies, .. }: &RequestMemory| {
            let grown = |used: usize| (used < *most_replies).then(|| used.saturating_add(more));
            replies.fetch_update(SeqCst, SeqCst, grown).is_ok()
        };
        if !reserve(&self.client) {
            return Err(Overload::Client);
        }
        if !reserve(&self.server) {
            self.client.replies.fetch_sub(more, SeqCst);
            return Err(Overload::Server);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Changes the reservation to this many bytes, even if other replies leave no room.
    pub(super) fn hold_always(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        self.client.replies.fetch_add(more, SeqCst);
        self.server.replies.fetch_add(more, SeqCst);
        self.bytes += more;
    }

    /// Releases all bytes.
    pub(super) fn release(&mut self) {
        self.shrink_to(0);
    }

    fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes - bytes;
        self.server.replies.fetch_sub(less, SeqCst);
        self.client.replies.fetch_sub(less, SeqCst);
        self.bytes = bytes;
    }
}

impl Drop for ReplyReservation {
    fn drop(&mut self) {
        self.release();
    }
}
