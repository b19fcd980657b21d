//! The settings of the embedded clients.

use std::time::Duration;

use homeostat::base::Clock;

/// The default length of the history, in changes.
const HISTORY: usize = 10_000;
/// The default limit of the history's memory, in bytes.
const HISTORY_BYTES: usize = 64 * 1_024 * 1_024;
/// The default size limit of an object, in bytes of JSON: the same as in etcd.
const MOST_SIZE: usize = 1_536 * 1_024;
/// The default lifetime of events: the same as in an API server.
const EVENT_TTL: Duration = Duration::from_secs(3_600);

/// Settings for a [`MemoryClient`](crate::MemoryClient) or a `FileClient`.
///
/// # Examples
///
/// ```
/// use homeostat::ManualClock;
/// use homeostat_objects::MemoryClient;
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
    pub(super) labels: Vec<String>,
    pub(super) versions_by_time: bool,
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
            labels: Vec::new(),
            versions_by_time: false,
        }
    }

    /// Sets the clock for creation and deletion timestamps and for the expiry of events. Default: the system clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets how many changes the client remembers. Default: 10,000.
    ///
    /// A watch can resume from a version only if the client remembers all later changes. Each remembered change keeps
    /// the object as it was before.
    pub fn history(self, changes: usize) -> Self {
        Self { history: changes, ..self }
    }

    /// Sets how much memory the remembered changes may take in total, in bytes (an estimate). Default: 64 MiB.
    ///
    /// Above the limit the client forgets the oldest changes, even if few remain. If a watch has not read them yet, its
    /// version is [gone](crate::ClientErrorKind::Gone), so the limit should be many times the size of an object.
    pub fn history_bytes(self, bytes: usize) -> Self {
        Self { history_bytes: bytes, ..self }
    }

    /// Sets the largest size of an object: the length of its JSON in bytes, including status and managed fields.
    /// Default: 1.5 MiB, as in etcd.
    ///
    /// Writing a larger object is [invalid](crate::ClientErrorKind::Invalid), unless the stored object is larger
    /// still.
    ///
    /// The depth of an object is limited too, to 120 nested arrays and objects. That limit cannot be changed, because
    /// common JSON parsers could not read a deeper object.
    pub fn max_object_bytes(self, bytes: usize) -> Self {
        Self { most_size: bytes, ..self }
    }

    /// Sets how long an event lives, like the option `--event-ttl` of an API server. Default: one hour. `Duration::MAX`
    /// keeps events until somebody deletes them.
    ///
    /// This applies to objects of kind `Event` in the core group or `events.k8s.io`. An event expires this long after
    /// the latest of its times: `series.lastObservedTime`, `deprecatedLastTimestamp` or `lastTimestamp`, `eventTime`,
    /// and `metadata.creationTimestamp`. An event that happens again lives longer. Times are compared in whole seconds
    /// with the time of day of the [clock](Self::clock).
    ///
    /// An expired event is deleted as by [`delete`](crate::Client::delete): watches see it, and finalizers
    /// keep the event. Expired events are deleted by the next write of any object, before the next read of events, and
    /// when the file is opened. No thread waits for them, so a watch sees the deletion only then. One write deletes at
    /// most a quarter as many events as the [history](Self::history) holds changes.
    pub fn event_ttl(self, ttl: Duration) -> Self {
        Self { event_ttl: ttl, ..self }
    }

    /// Sets whether an object is deleted when its last owner is gone. Default: true.
    ///
    /// With `false`, dependents are neither deleted nor waited for, as in an API server without a garbage collector.
    pub fn cascade(self, cascades: bool) -> Self {
        Self { cascades, ..self }
    }

    /// Keeps an index of all objects by their value of this label. Default: no label has an index.
    ///
    /// A list without a limit, or a watch from no version, then reads only the objects with the label values that its
    /// selector requires (for example `app=web` or `app in (web,api)`). Without an index it reads all objects of the
    /// kind. The index takes memory for each object that has the label, and time for each write that changes its value.
    /// Repeated calls add indexes.
    pub fn index_label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// Makes uids and generated names depend only on this seed and the order of the writes. Default: they are random.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Starts the versions at the time of day, in microseconds since 1970, instead of 1. Default: no.
    ///
    /// Use it for objects that are served to other processes. A [`MemoryClient`](crate::MemoryClient) loses
    /// its objects when its process ends, but watches of other processes remember versions. With this setting such a
    /// watch learns that its version is [gone](crate::ClientErrorKind::Gone). Without it, the watch could resume
    /// from a version that now means something else.
    ///
    /// The time of day must not go back between two processes. A `FileClient` ignores this setting, because it stores
    /// its versions.
    pub fn versions_by_time(self) -> Self {
        Self { versions_by_time: true, ..self }
    }
}
