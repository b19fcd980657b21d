//! The config of a case: the initial state and the expectations of its client, tracker and recorder.

use std::sync::Arc;

use super::client::{TestClient, Write};
use super::difference::{Mismatch, name_of, of_texts};
use super::factory::Sample;
use super::reactor::Reactor;
use super::writes;
use crate::sync::Mutex;
use homeostat::base::ManualClock;
use homeostat_objects::sub::Config;
use homeostat_objects::{
    DeleteOptions, EventRecorder, EventType, FieldOwner, Kind, Object, ObjectKey, ObjectRef, Patch, PatchTarget,
    TrackRef, Tracker,
};

/// Puts an object into a client.
pub(super) type Give = Box<dyn Fn(&TestClient) + Send + Sync>;

/// The initial state and the expectations of one config: objects, writes, tracks and events. If nothing is expected,
/// nothing may happen.
///
/// Each case has a config with the same methods. More configs can be [added by name](super::TestCase::config).
///
/// # Examples
///
/// ```
/// use homeostat_testing::{ConfigCase, Factory};
///
/// let colours = Factory::config_map("default", "colours");
/// let remote = ConfigCase::new().given(&colours.created(1)).expect_update(&colours.created(1).data("sky", "blue"));
/// # let _ = remote;
/// ```
#[derive(Default)]
#[must_use]
pub struct ConfigCase {
    given: Vec<Give>,
    given_uncached: Vec<Give>,
    given_tracks: Vec<(Kind, TrackRef, ObjectKey)>,
    reactors: Vec<Reactor>,
    writes: Vec<writes::Expected>,
    tracks: Vec<String>,
    events: Vec<String>,
}

/// The methods of a [`ConfigCase`], for that type and for types with a field of that type.
macro_rules! config_methods {
    ($self:ident => $config:expr) => {
        /// Adds an object to the client.
        pub fn given(mut $self, object: &impl Sample) -> Self {
            $config.give(object);
            $self
        }

        /// Adds an object to the [uncached](homeostat_objects::sub::Config::uncached) client.
        ///
        /// That client then has only these objects and the resource. By default it is the same client.
        pub fn given_uncached(mut $self, object: &impl Sample) -> Self {
            $config.give_uncached(object);
            $self
        }

        /// Lets the object `by` track an object before the run.
        pub fn given_track(mut $self, object: &impl Sample, by: &impl Sample) -> Self {
            let object = object.sample();
            $config.give_track(object.kind(), TrackRef::name(object.key()), by.sample().key());
            $self
        }

        /// Lets the object `by` track matching objects of a kind before the run.
        pub fn given_track_of(mut $self, kind: &Kind, what: TrackRef, by: &impl Sample) -> Self {
            $config.give_track(kind.clone(), what, by.sample().key());
            $self
        }

        /// Adds a reactor to the client. The last added reactor gets calls first.
        pub fn reactor(mut $self, reactor: Reactor) -> Self {
            $config.react(reactor);
            $self
        }

        /// Expects the creation of exactly this object.
        pub fn expect_create(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::create(object));
            $self
        }

        /// Expects an update with exactly this object.
        ///
        /// The `resourceVersion` is not compared, because the client refuses wrong ones. Fields that a client sets are
        /// compared only if the expected object has them.
        pub fn expect_update(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::update(object));
            $self
        }

        /// Expects a status update. Only the status is compared, and the times of conditions only if the expected ones
        /// have times. Conditions are compared by type, in any order.
        pub fn expect_status_update(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::update_status(object));
            $self
        }

        /// Expects a patch of this object. The `resourceVersion` is compared if the expected patch has one.
        pub fn expect_patch(mut $self, object: &impl Sample, patch: Patch) -> Self {
            $config.expect_write(writes::patch(object, patch, PatchTarget::Object));
            $self
        }

        /// Expects a patch of the status of this object.
        pub fn expect_status_patch(mut $self, object: &impl Sample, patch: Patch) -> Self {
            $config.expect_write(writes::patch(object, patch, PatchTarget::Status));
            $self
        }

        /// Expects an apply of these fields by this owner.
        pub fn expect_apply(mut $self, fields: &impl Sample, owner: FieldOwner) -> Self {
            $config.expect_write(writes::apply(fields, owner));
            $self
        }

        /// Expects a deletion in the background. Preconditions are not compared.
        pub fn expect_delete(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::delete(object, None));
            $self
        }

        /// Expects a deletion with exactly these options.
        pub fn expect_delete_with(mut $self, object: &impl Sample, options: DeleteOptions) -> Self {
            $config.expect_write(writes::delete(object, Some(options)));
            $self
        }

        /// Expects the object `by` to track an object. If it tracks the object several times, the last time counts for
        /// the order.
        pub fn expect_track(mut $self, object: &impl Sample, by: &impl Sample) -> Self {
            let object = object.sample();
            $config.expect_tracked(&object.kind(), &TrackRef::name(object.key()), &by.sample().key());
            $self
        }

        /// Expects the object `by` to track matching objects of a kind.
        pub fn expect_track_of(mut $self, kind: &Kind, what: TrackRef, by: &impl Sample) -> Self {
            $config.expect_tracked(kind, &what, &by.sample().key());
            $self
        }

        /// Expects an event about the object.
        pub fn expect_event(mut $self, object: &impl Sample, event: EventType, reason: &str, message: &str) -> Self {
            $config.expect_recorded(&object.sample().object_ref(), event, reason, message);
            $self
        }
    };
}
pub(super) use config_methods;

impl ConfigCase {
    /// Creates a config without objects and expectations.
    pub const fn new() -> Self {
        Self {
            given: Vec::new(),
            given_uncached: Vec::new(),
            given_tracks: Vec::new(),
            reactors: Vec::new(),
            writes: Vec::new(),
            tracks: Vec::new(),
            events: Vec::new(),
        }
    }

    config_methods!(self => self);

    pub(super) fn give(&mut self, object: &impl Sample) {
        let object = object.sample();
        self.given.push(Box::new(move |client| client.give(&object)));
    }

    pub(super) fn give_uncached(&mut self, object: &impl Sample) {
        let object = object.sample();
        self.given_uncached.push(Box::new(move |client| client.give(&object)));
    }

    pub(super) fn give_track(&mut self, kind: Kind, what: TrackRef, by: ObjectKey) {
        self.given_tracks.push((kind, what, by));
    }

    pub(super) fn react(&mut self, reactor: Reactor) {
        self.reactors.push(reactor);
    }

    pub(super) fn expect_write(&mut self, write: writes::Expected) {
        self.writes.push(write);
    }

    pub(super) fn expect_tracked(&mut self, kind: &Kind, what: &TrackRef, by: &ObjectKey) {
        self.tracks.push(text_of_track(kind, what, by));
    }

    pub(super) fn expect_recorded(&mut self, object: &ObjectRef, event: EventType, reason: &str, message: &str) {
        self.events.push(text_of_event(object, event, reason, message));
    }
}

impl std::fmt::Debug for ConfigCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { writes, tracks, events, .. } = self;
        f.debug_struct("ConfigCase")
            .field("writes", writes)
            .field("tracks", tracks)
            .field("events", events)
            .finish_non_exhaustive()
    }
}

fn text_of_track(kind: &Kind, what: &TrackRef, by: &ObjectKey) -> String {
    match what {
        TrackRef::Selector { namespace, labels } => {
            let all = ObjectKey::new(namespace.as_deref().unwrap_or_default(), "*");
            format!("{} with {labels} by {by}", name_of(kind, &all))
        }
        TrackRef::Name(key) => format!("{} by {by}", name_of(kind, key)),
        other => format!("{} {other:?} by {by}", name_of(kind, by)),
    }
}

fn text_of_event(object: &ObjectRef, event: EventType, reason: &str, message: &str) -> String {
    format!("{}: {event} {reason}: {message}", name_of(object.kind(), object.key()))
}

/// The state of a config while a case runs.
#[derive(Debug)]
pub(super) struct ConfigState {
    clock: ManualClock,
    pub(super) client: TestClient,
    uncached: Option<TestClient>,
    tracker: Tracker,
    /// The number of the last checked track.
    seen: u64,
    recorder: EventRecorder,
    events: Arc<Mutex<Vec<String>>>,
}

impl ConfigState {
    /// Each config of a case needs a different number.
    pub(super) fn new(clock: &ManualClock, number: u64) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let recorder = EventRecorder::builder("test").log(false).clock(clock.clock()).observer(
            move |object, event, reason, message| seen.lock().push(text_of_event(object, event, reason, message)),
        );
        Self {
            clock: clock.clone(),
            client: TestClient::with_seed(clock.clock(), number),
            uncached: None,
            tracker: Tracker::with_clock(clock.clock()),
            seen: 0,
            recorder: recorder.build(),
            events,
        }
    }

    pub(super) fn config(&self) -> Config {
        let config = Config::new(Arc::new(self.client.clone()))
            .with_tracker(self.tracker.clone())
            .with_recorder(self.recorder.clone())
            .with_clock(self.clock.clock());
        match &self.uncached {
            Some(uncached) => config.with_uncached(Arc::new(uncached.clone())),
            None => config,
        }
    }

    /// Adds the given objects, tracks and reactors of a run.
    pub(super) fn give(&mut self, case: &ConfigCase, resource: Option<&Give>) {
        resource.into_iter().chain(&case.given).for_each(|give| give(&self.client));
        if !case.given_uncached.is_empty() {
            let uncached = self.uncached.get_or_insert_with(|| self.client.beside(self.clock.clock()));
            resource.into_iter().chain(&case.given_uncached).for_each(|give| give(uncached));
        }
        for (kind, what, by) in &case.given_tracks {
            self.tracker.track(kind, what.clone(), by.clone());
        }
        for reactor in &case.reactors {
            self.client.react(reactor);
        }
    }

    /// Forgets all calls so far.
    pub(super) fn begin(&mut self) {
        self.take();
    }

    fn take(&mut self) -> (Vec<Write>, Vec<String>, Vec<String>) {
        let tracks = self.tracker.tracks_after(self.seen);
        self.seen = tracks.last().map_or(self.seen, |(number, ..)| *number);
        let tracks = tracks.iter().map(|(_, kind, what, by)| text_of_track(kind, what, by)).collect();
        (self.client.take_writes(), tracks, std::mem::take(&mut *self.events.lock()))
    }

    /// Returns the mismatches since the last check.
    pub(super) fn check(&mut self, case: &ConfigCase) -> Vec<Mismatch> {
        let (writes, tracks, events) = self.take();
        let mut mismatches = Vec::new();
        writes::check(&case.writes, &writes, &mut mismatches);
        of_texts("event", &case.events, &events, &mut mismatches);
        of_texts("track", &case.tracks, &tracks, &mut mismatches);
        mismatches
    }
}

/// Returns a function that adds a resource to a client.
pub(super) fn give(object: &impl Object) -> Give {
    let object = object.clone();
    Box::new(move |client| client.give(&object))
}
