//! The limits of a server.

use std::time::Duration;

/// The largest number of headers in a request.
pub(crate) const MOST_HEADERS: usize = 100;

/// The limits that bound the memory and the threads of a server.
#[derive(Clone, Debug)]
pub(crate) struct HttpLimits {
    /// The largest request line in bytes.
    pub(crate) request_line: usize,
    /// The largest request line with all headers in bytes.
    pub(crate) head: usize,
    /// The largest body in bytes.
    pub(crate) body: usize,
    /// The largest size of all bodies that are read or handled at the same time, in bytes.
    pub(crate) bodies: usize,
    /// Once replies that are being sent use this many bytes, no further large reply begins.
    pub(crate) replies: usize,
    /// The largest number of open connections.
    pub(crate) connections: usize,
    /// The largest number of open connections from one client address.
    pub(crate) connections_per_client: usize,
    /// The largest number of open streams to one client address.
    pub(crate) streams_per_client: usize,
    /// The timeout of a complete head, from its first byte.
    pub(crate) head_time: Duration,
    /// The timeout of a complete body, from the end of the head.
    pub(crate) body_time: Duration,
    /// The longest pause between two requests.
    pub(crate) idle_time: Duration,
    /// The timeout for each 64 KiB of a reply.
    pub(crate) write_time: Duration,
    /// The longest duration of a stream.
    pub(crate) stream_life: Duration,
}

impl HttpLimits {
    /// The largest size of all bodies from one client address, so that one client cannot occupy all memory.
    pub(super) fn bodies_per_client(&self) -> usize {
        (self.bodies / 2).max(self.body)
    }

    /// The memory for replies that one client address may use.
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
            // A process can usually open 1,024 files. Each connection needs one, and refused clients need some too.
            connections: 512,
            // One address must not exclude all others.
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
