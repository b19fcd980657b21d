//! Counts of a server.

use http::StatusCode;

use crate::base::sync::atomic::AtomicU64;
use crate::base::sync::atomic::Ordering::Relaxed;

/// The counts that the threads of a server share.
#[derive(Debug, Default)]
pub(crate) struct HttpCounts {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Replies by the first digit of their status, from 1 to 5.
    pub(crate) replies: [AtomicU64; 5],
    /// The streams that have ended because there was no memory for their next part.
    pub(crate) dropped_streams: AtomicU64,
}

impl HttpCounts {
    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn drop_stream(&self) {
        self.dropped_streams.fetch_add(1, Relaxed);
    }

    pub(super) fn reply(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5);
        self.replies[class - 1].fetch_add(1, Relaxed);
    }
}
