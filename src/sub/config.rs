//! What sub-reconcilers work with.

use std::fmt;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::objects::{Api, Client, EventRecorder, Object, Scope, Tracker};

/// What sub-reconcilers work with: a client, a tracker, a recorder of events, a clock. A cheap handle.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{EventRecorder, MemoryClient, Tracker};
/// use homeostat::sub::Config;
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
    /// Whether the tracker is another than the one that each config begins with.
    has_own_tracker: bool,
    recorder: EventRecorder,
    clock: Clock,
}

impl Config {
    /// With this client, also to read from what no cache stands before; a tracker of its own; a recorder that only logs; the system's
    /// clock.
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

    /// The same for another client: what it reads is what that one says.
    #[must_use]
    pub fn with_client(self, client: Arc<dyn Client>) -> Self {
        Self { uncached: Arc::clone(&client), client, ..self }
    }

    /// With this one to read from where a cache will not do.
    #[must_use]
    pub fn with_uncached(self, uncached: Arc<dyn Client>) -> Self {
        Self { uncached, ..self }
    }

    /// With this tracker. It knows keys, not kinds: of several controllers with one tracker each is called for what any of them tracks,
    /// and finds no object of that key, or does too much.
    #[must_use]
    pub fn with_tracker(self, tracker: Tracker) -> Self {
        Self { tracker, has_own_tracker: true, ..self }
    }

    /// With a handle of the same tracker for a controller with this scope.
    pub(super) fn in_scope(mut self, scope: Scope) -> Self {
        self.tracker = self.tracker.in_scope(scope);
        self
    }

    /// With this recorder.
    #[must_use]
    pub fn with_recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder, ..self }
    }

    /// With this clock: the times of conditions come from it. The tracker goes by it too, unless it was
    /// [given](Self::with_tracker). The recorder has a clock of its own.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        let tracker = if self.has_own_tracker { self.tracker } else { Tracker::with_clock(clock.clone()) };
        Self { tracker, clock, ..self }
    }

    /// Where objects are read and written. What it reads may come from a cache, if it has one.
    #[must_use]
    pub fn client(&self) -> &Arc<dyn Client> {
        &self.client
    }

    /// Where objects are read as they are now, whatever a cache says. The same as [`client`](Self::client), unless it was given one.
    #[must_use]
    pub fn uncached(&self) -> &Arc<dyn Client> {
        &self.uncached
    }

    /// Whether what the client says may be old.
    pub(super) fn is_cached(&self) -> bool {
        !std::ptr::addr_eq(Arc::as_ptr(&self.client), Arc::as_ptr(&self.uncached))
    }

    /// The objects of a type in [`client`](Self::client).
    #[must_use]
    pub fn api<T: Object>(&self) -> Api<T> {
        Api::new(Arc::clone(&self.client))
    }

    /// Who is called again when what it refers to changes.
    #[must_use]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Who tells people what happens.
    #[must_use]
    pub fn recorder(&self) -> &EventRecorder {
        &self.recorder
    }

    /// The clock.
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
