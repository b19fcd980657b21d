//! Settings of the clients that keep their objects in this process.

#[cfg(feature = "file-client")]
use std::path::Path;
use std::time::Duration;

use super::client::MemoryClient;
use super::expiry::EVENT_TTL;
#[cfg(feature = "file-client")]
use super::file::{FileClient, OpenError};
use super::limits::MOST_SIZE;
use crate::base::clock::Clock;

/// How many of the last changes a client remembers unless it is told otherwise.
const HISTORY: usize = 10_000;
/// How much memory the changes that a client remembers may take unless it is told otherwise, in bytes.
const HISTORY_BYTES: usize = 64 * 1_024 * 1_024;

/// Settings for a [`MemoryClient`] or a `FileClient`.
///
/// # Examples
///
/// ```
/// use homeostat::{ManualClock, objects::MemoryClient};
///
/// let clock = ManualClock::new();
/// let client = MemoryClient::builder().clock(clock.clock()).history(100).seed(1).build();
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until they are used"]
pub struct EmbeddedBuilder {
    pub(super) clock: Clock,
    pub(super) history: usize,
    pub(super) history_bytes: usize,
    pub(super) most_size: usize,
    pub(super) event_ttl: Duration,
    pub(super) cascades: bool,
    pub(super) seed: Option<u64>,
}

impl EmbeddedBuilder {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::system(),
            history: HISTORY,
            history_bytes: HISTORY_BYTES,
            most_size: MOST_SIZE,
            event_ttl: EVENT_TTL,
            cascades: true,
            seed: None,
        }
    }

    /// The clock of creation and deletion timestamps, and of the expiry of events. Default: the system's.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// How many of the last changes are remembered, for watches that go on from an older version. Each keeps what the object was
    /// before it. Default 10,000.
    pub fn history(self, changes: usize) -> Self {
        Self { history: changes, ..self }
    }

    /// Sets how much memory the remembered changes may take together, in bytes (an estimate). A change keeps the object as it was
    /// before; beyond the limit the oldest changes are forgotten, however few are left. If a watch has not read them yet, its
    /// version is [gone](crate::objects::ClientError::Gone), so the limit should be many times the size of an object. Default
    /// 64 MiB.
    pub fn history_bytes(self, bytes: usize) -> Self {
        Self { history_bytes: bytes, ..self }
    }

    /// Sets the largest size of an object: the length of its JSON in bytes, status and managed fields included. A write of a larger
    /// object is [invalid](crate::objects::ClientError::Invalid), unless the stored object is larger still. Default 1.5 MiB, as in
    /// etcd.
    ///
    /// The depth of an object is limited too, to 120 arrays and objects in one another. That limit cannot be changed, because
    /// common JSON parsers could not read a deeper object.
    pub fn max_object_bytes(self, bytes: usize) -> Self {
        Self { most_size: bytes, ..self }
    }

    /// Sets how long an event lives, as the option `--event-ttl` of an API server does. Default: one hour. `Duration::MAX` keeps
    /// events until somebody deletes them.
    ///
    /// This concerns objects of kind `Event` in the core group or `events.k8s.io`. An event expires this long after the latest of
    /// its times: `series.lastObservedTime`, `deprecatedLastTimestamp` or `lastTimestamp`, `eventTime`, and
    /// `metadata.creationTimestamp`. An event that happens again lives on. Times are compared in whole seconds with the time of
    /// day of the [clock](Self::clock).
    ///
    /// An expired event is deleted as by [`delete`](crate::objects::Client::delete): watches see it, and finalizers hold the event.
    /// This happens in the next writes of any objects, before the next read of events, or when the file is opened. No thread waits
    /// for the time, so a watch sees the deletion only then. One write deletes at most a quarter as many events as the
    /// [history](Self::history) holds changes.
    pub fn event_ttl(self, ttl: Duration) -> Self {
        Self { event_ttl: ttl, ..self }
    }

    /// Whether objects are deleted with their last owner. Default: they are. Without, owners are neither looked for nor waited for:
    /// like an API server beside which no garbage collector runs.
    pub fn cascade(self, cascades: bool) -> Self {
        Self { cascades, ..self }
    }

    /// Makes uids and generated names the same whenever the same is written in the same order. Default: they are random.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// A client that keeps its objects in memory alone.
    #[must_use]
    pub fn build(self) -> MemoryClient {
        MemoryClient::with(self)
    }

    /// A client that keeps its objects also in this file, which is made if there is none. Feature `file-client`.
    ///
    /// # Errors
    ///
    /// As [`FileClient::open`].
    #[cfg(feature = "file-client")]
    pub fn open(self, path: impl AsRef<Path>) -> Result<FileClient, OpenError> {
        FileClient::with(self, path.as_ref())
    }
}
