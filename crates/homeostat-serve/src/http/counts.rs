//! The counts of a server.

use std::collections::BTreeMap;

use http::StatusCode;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts that the threads of a server share.
#[derive(Debug, Default)]
pub(crate) struct HttpCounts {
    pub(crate) accepted: AtomicU64,
    /// Connections refused because the server had too many, or could not start a thread.
    pub(crate) refused_by_server: AtomicU64,
    /// Connections refused because their address had too many.
    pub(crate) refused_by_client: AtomicU64,
    /// Streams that ended because there was no memory for their next part.
    pub(crate) dropped_streams: AtomicU64,
    /// Connections that ended before TLS was established.
    pub(crate) failed_handshakes: AtomicU64,
    /// Requests with valid credentials.
    pub(crate) authenticated: AtomicU64,
    /// Requests with wrong credentials.
    pub(crate) unauthenticated: AtomicU64,
    /// Replies with the status 503 that told a failed health check. They are also among the replies.
    pub(crate) failed_checks: AtomicU64,
    /// Replies by verb and status.
    replies: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl HttpCounts {
    /// Counts a reply to a request with this verb.
    pub(super) fn reply(&self, verb: &'static str, status: StatusCode) {
        *self.replies.lock().entry((verb, status.as_u16())).or_default() += 1;
    }

    /// Returns the numbers of replies by verb and status.
    pub(crate) fn replies(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.replies.lock().clone()
    }

    /// Returns the numbers of replies except failed health checks. The verbs of those are not known: they are `GET` or
    /// `HEAD`, and the first of these has the most.
    pub(crate) fn replies_without_checks(&self) -> BTreeMap<(&'static str, u16), u64> {
        let mut checks = value(&self.failed_checks);
        let mut replies = self.replies();
        for verb in ["GET", "HEAD"] {
            if let Some(count) = replies.get_mut(&(verb, 503)) {
                let of_verb = checks.min(*count);
                *count -= of_verb;
                checks -= of_verb;
            }
        }
        replies.retain(|_, count| *count > 0);
        replies
    }
}

/// Adds one to a count.
pub(crate) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// Reads a count.
pub(crate) fn value(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}
