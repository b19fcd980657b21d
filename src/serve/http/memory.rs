//! The memory that bodies and replies use, and its limits: of the server, and of each client address.

use std::sync::Arc;

use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;

/// The largest reply that needs no reservation. With the most connections, such replies take 32 MiB.
pub(super) const FREE_REPLY: usize = 64 << 10;

/// The memory that the requests of all clients use, or those of one client address.
pub(super) struct RequestMemory {
    /// The bytes of all bodies that are read or handled.
    bodies: AtomicUsize,
    /// The bytes of all replies that are being sent.
    replies: AtomicUsize,
    most_bodies: usize,
    /// The bytes of replies beyond which no further large reply begins.
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

/// Why a connection, a body or a reply is refused: the server has too many, or the client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overload {
    Server,
    Client,
}

/// Memory for a body that is reserved until this is dropped.
pub(super) struct BodyReservation {
    server: Arc<RequestMemory>,
    client: Arc<RequestMemory>,
    bytes: usize,
}

impl BodyReservation {
    /// Returns the reservation of a body that has no bytes yet.
    pub(super) fn new(server: &Arc<RequestMemory>, client: &Arc<RequestMemory>) -> Self {
        Self { server: Arc::clone(server), client: Arc::clone(client), bytes: 0 }
    }

    /// Reserves more memory, up to this number of bytes, unless other bodies need too much.
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

/// Memory for a reply that is reserved until this is dropped.
///
/// A reply begins as long as all others keep less than the limit. So one reply may be larger than the limit, and all
/// together keep at most the limit and one reply more. Replies up to [`FREE_REPLY`] do not count.
pub(super) struct ReplyReservation {
    server: Arc<RequestMemory>,
    client: Arc<RequestMemory>,
    bytes: usize,
}

impl ReplyReservation {
    /// Returns the reservation of a reply that keeps no bytes yet.
    pub(super) fn new(server: &Arc<RequestMemory>, client: &Arc<RequestMemory>) -> Self {
        Self { server: Arc::clone(server), client: Arc::clone(client), bytes: 0 }
    }

    /// Reserves this many bytes in place of the previous ones. Needs more only if other replies leave room, or it
    /// changes nothing.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Overload> {
        let bytes = if bytes <= FREE_REPLY { 0 } else { bytes };
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

    /// Reserves this many bytes, also if other replies leave no room.
    pub(super) fn hold_in_any_case(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        self.client.replies.fetch_add(more, SeqCst);
        self.server.replies.fetch_add(more, SeqCst);
        self.bytes += more;
    }

    /// Gives back all bytes.
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
