//! The options and positions of watches.

use std::time::Duration;

use super::super::error::NatsError;
use super::key::check_filter;

/// The shortest interval of heartbeats that servers accept.
pub(super) const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(100);

/// The options of a [`KvWatch`](super::KvWatch).
///
/// # Examples
///
/// ```
/// use homeostat_nats::KvWatchOptions;
///
/// let options = KvWatchOptions::new().filter("vms.*").ignore_deletes();
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct KvWatchOptions {
    pub(super) filter: String,
    pub(super) start: WatchStart,
    pub(super) ignore_deletes: bool,
    pub(super) keys_only: bool,
    pub(super) heartbeat: Duration,
    pub(super) marker_life: Duration,
}

#[derive(Clone, Debug)]
pub(super) enum WatchStart {
    Values,
    History,
    Updates,
    After(KvPosition),
}

/// A position in a bucket's history, from which a watch can continue. Invalid once the bucket is created anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPosition {
    pub(super) revision: u64,
    pub(super) created: String,
}

impl KvPosition {
    pub(crate) fn new(revision: u64, created: &str) -> Self {
        Self { revision, created: created.to_owned() }
    }

    /// Returns when the bucket was created.
    pub(crate) fn created(&self) -> &str {
        &self.created
    }

    /// Returns the revision up to which everything was read.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

impl Default for KvWatchOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl KvWatchOptions {
    /// Creates options that watch all keys: first their current values, then all changes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            filter: ">".to_owned(),
            start: WatchStart::Values,
            ignore_deletes: false,
            keys_only: false,
            heartbeat: Duration::from_secs(5),
            marker_life: Duration::from_secs(900),
        }
    }

    /// Watches only matching keys. `*` matches one part of a key, and a final `>` matches all further parts.
    #[must_use]
    pub fn filter(mut self, filter: impl Into<String>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Starts with all revisions that the bucket keeps, instead of the last of each key.
    #[must_use]
    pub fn with_history(mut self) -> Self {
        self.start = WatchStart::History;
        self
    }

    /// Starts with the next change.
    #[must_use]
    pub fn updates_only(mut self) -> Self {
        self.start = WatchStart::Updates;
        self
    }

    /// Continues after the position of an earlier watch or listing.
    ///
    /// The watch is *gone* if any entry after the position was removed, because it may have been a delete marker. It
    /// is gone even if later writes of the same keys replaced these entries. If all keys of a bucket change often,
    /// start with the current values instead. The removal of single delete markers cannot be noticed: resume before
    /// markers are removed.
    #[must_use]
    pub fn after(mut self, position: KvPosition) -> Self {
        self.start = WatchStart::After(position);
        self
    }

    /// Skips markers of deletions.
    #[must_use]
    pub fn ignore_deletes(mut self) -> Self {
        self.ignore_deletes = true;
        self
    }

    /// Omits the values.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Sets the interval of the server's heartbeats, at least 100 ms. Default: 5 seconds.
    ///
    /// If nothing arrives for two and a half intervals, the watch creates a new consumer.
    #[must_use]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }

    /// Sets how long delete markers are guaranteed to stay in the bucket. Default: 15 minutes, or half of the bucket's
    /// `max_age` if that is shorter.
    ///
    /// A watch that has no connection for longer is *gone*. Programs that remove markers must keep them for longer
    /// than this. [`remove_markers`](super::KvBucket::remove_markers) also keeps markers that a connected watch has
    /// not received.
    #[must_use]
    pub fn marker_life(mut self, life: Duration) -> Self {
        self.marker_life = life;
        self
    }

    /// Checks the options.
    pub(super) fn check(&self) -> Result<(), NatsError> {
        check_filter(&self.filter)?;
        if self.heartbeat < SHORTEST_HEARTBEAT {
            return Err(NatsError::invalid("heartbeat", self.heartbeat, "at least 100ms"));
        }
        Ok(())
    }
}
