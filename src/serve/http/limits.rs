//! The limits of a server.

use std::time::Duration;

/// The most headers of a request.
pub(crate) const MOST_HEADERS: usize = 100;

/// The limits that keep the memory and the threads of a server bounded.
#[derive(Clone, Debug)]
pub(crate) struct HttpLimits {
    /// The most bytes of a request line.
    pub(crate) request_line: usize,
    /// The most bytes of a request line and all headers.
    pub(crate) head: usize,
    /// The most bytes of a body.
    pub(crate) body: usize,
    /// The most bytes of all bodies that are read or handled at the same time.
    pub(crate) bodies: usize,
    /// The bytes of all replies that are being sent, beyond which no further large reply begins.
    pub(crate) replies: usize,
    /// The most open connections.
    pub(crate) connections: usize,
    /// The most open connections of one client address.
    pub(crate) connections_per_client: usize,
    /// The most open streams of one client address.
    pub(crate) streams_per_client: usize,
    /// The time for a complete head, from its first byte.
    pub(crate) head_time: Duration,
    /// The time for a complete body, from the end of the head.
    pub(crate) body_time: Duration,
    /// The time between two requests.
    pub(crate) idle_time: Duration,
    /// The time in which a client must take each 64 KiB of a reply.
    pub(crate) write_time: Duration,
    /// The longest life of a stream.
    pub(crate) stream_life: Duration,
}

impl HttpLimits {
    /// The most bytes of all bodies of one client address, so that one client cannot hold the memory for all.
    pub(super) fn bodies_per_client(&self) -> usize {
        (self.bodies / 2).max(self.body)
    }

    /// The share of one client address in the memory for replies.
    pub(super) fn replies_per_client(&self) -> usize {
        self.replies / 2
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            request_line: 8 << 10,
            head: 32 << 10,
            body: 3 << 20,
            bodies: 96 << 20,
            replies: 256 << 20,
            // A process may usually have 1,024 files. Each connection needs one, and refused clients need some too.
            connections: 512,
            // One address must not keep others away.
            connections_per_client: 128,
            streams_per_client: 96,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(90),
            write_time: Duration::from_secs(30),
            stream_life: Duration::from_secs(30 * 60),
        }
    }
}
