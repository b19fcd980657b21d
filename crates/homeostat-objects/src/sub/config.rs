//! The tools that steps work with.

use std::fmt;
use std::sync::Arc;

use crate::{Api, Client, EventRecorder, Object, Scope, Tracker};
use homeostat::base::Clock;

/// The tools that steps work with: a client, a tracker, an event recorder and a clock. Cloning is cheap.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{EventRecorder, MemoryClient, Tracker};
/// use homeostat_objects::sub::Config;
/// use std::sync::Arc;
///
/// let client = Arc::new(MemoryClient::new());
/// let recorder = EventRecorder::builder("function").client(client.clone()).build();
/// let config = Config::new(client).with_recorder(recorder).with_tracker(Tracker::new());
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct Config {
    client: Arc<dyn Client>,
    uncached: Arc<dyn Client>,
    tracker: Tracker,
    /// Whether `with_tracker` has set the tracker.
    has_own_tracker: bool,
    recorder: EventRecorder,
    clock: Clock,
}

impl Config {
    /// Creates a config with this client, which also serves uncached reads. The config has a new tracker, a recorder
    /// that only logs, and the system clock.
    #[must_use]
    pub fn new(client: Arc<dyn Client>) -> Self {
        Self {
            uncached: Arc::clone(&client),
            client,
            tracker: Tracker::new(),
            has_own_tracker: false,
            recorder: EventRecorder::builder("homeostat").build(),
            clock: Clock::system(),
        }
    }

    /// Replaces the client, and the client for uncached reads.
    #[must_use]
    pub fn with_client(self, client: Arc<dyn Client>) -> Self {
        Self { uncached: Arc::clone(&client), client, ..self }
    }

    /// Sets the client for reads that must not come from a cache.
    #[must_use]
    pub fn with_uncached(self, uncached: Arc<dyn Client>) -> Self {
        Self { uncached, ..self }
    }

    /// Replaces the tracker.
    ///
    /// A tracker knows keys, not kinds. If several controllers share one tracker, each controller's keys are enqueued
    /// for the tracks of all controllers.
    #[must_use]
    pub fn with_tracker(self, tracker: Tracker) -> Self {
        Self { tracker, has_own_tracker: true, ..self }
    }

    /// Gives the tracker the scope of a controller.
    pub(super) fn in_scope(mut self, scope: Scope) -> Self {
        self.tracker = self.tracker.in_scope(scope);
        self
    }

    /// Replaces the event recorder.
    #[must_use]
    pub fn with_recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder, ..self }
    }

    /// Replaces the clock, which sets the times of conditions. The recorder, and a tracker from
    /// [`with_tracker`](Self::with_tracker), keep their own clocks.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        let tracker = if self.has_own_tracker { self.tracker } else { Tracker::with_clock(clock.clone()) };
        Self { tracker, clock, ..self }
    }

    /// Returns the client that reads and writes objects. Its reads may come from a cache.
    #[must_use]
    pub fn client(&self) -> &Arc<dyn Client> {
        &self.client
    }

    /// Returns the client for reads that must be current. Default: [`client`](Self::client).
    #[must_use]
    pub fn uncached(&self) -> &Arc<dyn Client> {
        &self.uncached
    }

    /// Returns whether reads of the client may be stale.
    pub(super) fn is_cached(&self) -> bool {
        !std::ptr::addr_eq(Arc::as_ptr(&self.client), Arc::as_ptr(&self.uncached))
    }

    /// Returns the API for objects of a type in [`client`](Self::client).
    #[must_use]
    pub fn api<T: Object>(&self) -> Api<T> {
        Api::new(Arc::clone(&self.client))
    }

    /// Returns the tracker, which enqueues an object again when an object that it refers to changes.
    #[must_use]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Returns the event recorder.
    #[must_use]
    pub fn recorder(&self) -> &EventRecorder {
        &self.recorder
    }

    /// Returns the clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tracker, recorder, clock, .. } = self;
        f.debug_struct("Config")
            .field("tracker", tracker)
            .field("recorder", recorder)
            .field("clock", clock)
            .finish_non_exhaustive()
    }
}
