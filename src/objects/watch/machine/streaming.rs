//! Streams of changes, and the choice of streaming lists.

use crate::base::time::Nanos;

/// Whether the next listing is a streaming list.
#[derive(Debug)]
pub(super) enum Streaming {
    /// It is, after this number of failures in a row.
    Preferred(u32),
    /// The next listing is not, because the last one failed.
    Skipped(u32),
    Off,
}

/// A stream of changes.
pub(super) struct Following {
    pub(super) began: Nanos,
    /// The time of the last event or bookmark.
    pub(super) heard: Nanos,
    pub(super) has_delivered: bool,
    pub(super) has_changed: bool,
}

impl Following {
    pub(super) fn new(now: Nanos) -> Self {
        Self { began: now, heard: now, has_delivered: false, has_changed: false }
    }
}
