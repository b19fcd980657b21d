//! Streams of changes, and the choice of streaming lists.

use std::time::Duration;

use homeostat::rt::Nanos;

/// The longest silence of a stream with bookmarks. Servers send one about once a minute.
const SILENCE: Duration = Duration::from_secs(120);
/// The longest silence of a stream without bookmarks, which may have nothing to send. A client must not give up on a
/// stream earlier: that would count as a failure.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Whether the next listing is a streaming list.
#[derive(Debug)]
pub(super) enum Streaming {
    /// Yes, after this number of failures in a row.
    Preferred(u32),
    /// No, because the last one failed.
    Skipped(u32),
    Off,
    /// The server has no streaming lists. Such a server answers exact lists from its storage, preferably in pages.
    Refused,
}

/// A stream of changes.
pub(super) struct Following {
    pub(super) began: Nanos,
    /// The time of the last event or bookmark.
    pub(super) heard: Nanos,
    pub(super) has_delivered: bool,
    pub(super) has_changed: bool,
    /// Whether it began at a version that was known before, and not at a list that had just arrived.
    pub(super) is_resumed: bool,
}

impl Following {
    pub(super) fn new(now: Nanos) -> Self {
        Self { began: now, heard: now, has_delivered: false, has_changed: false, is_resumed: false }
    }
}

/// Returns the longest silence of a stream.
pub(super) fn longest_silence(has_bookmarks: bool) -> Duration {
    if has_bookmarks { SILENCE } else { LONGEST_SILENCE }
}
