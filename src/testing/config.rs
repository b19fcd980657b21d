//! One config of a case: what its client, tracker and recorder have at first, and what they are to see.

use std::sync::Arc;

use super::client::{TestClient, Write};
use super::difference::{Fault, name_of, of_texts};
use super::factory::Sample;
use super::reactor::Reactor;
use super::writes;
use crate::base::clock::ManualClock;
use crate::base::sync::Mutex;
use crate::objects::{
    DeleteOptions, EventRecorder, EventType, FieldOwner, Kind, Object, ObjectKey, ObjectRef, Patch, PatchTarget,
    TrackRef, Tracker,
};
use crate::sub::Config;

/// Puts an object into a client.
pub(super) type Give = Box<dyn Fn(&TestClient) + Send + Sync>;

/// What one config of a case has at first, and what it is to see: the objects of its client, what is written there, tracks and events.
/// What nothing is said of is expected not to happen.
///
/// A case has one of its own, with the same methods; others are [added by name](super::TestCase::config).
///
/// # Examples
///
/// ```
/// use homeostat::testing::{ConfigCase, Factory};
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

/// The methods that say what a config has and is to see: for all that has a [`ConfigCase`] in a field, or is one.
macro_rules! config_methods {
    ($self:ident => $config:expr) => {
        /// This object is there, in the client.
        pub fn given(mut $self, object: &impl Sample) -> Self {
            $config.give(object);
            $self
        }

        /// This object is there, in the client that no [cache](crate::sub::Config::uncached) stands before. It has the objects that are
        /// given so, and the resource, and no others. Without any it is the client.
        pub fn given_uncached(mut $self, object: &impl Sample) -> Self {
            $config.give_uncached(object);
            $self
        }

        /// The object `by` has asked to be called again when this one changes.
        pub fn given_track(mut $self, object: &impl Sample, by: &impl Sample) -> Self {
            let object = object.sample();
            $config.give_track(object.kind(), TrackRef::name(object.key()), by.sample().key());
            $self
        }

        /// The object `by` has asked to be called again when such objects of this kind change.
        pub fn given_track_of(mut $self, kind: &Kind, what: TrackRef, by: &impl Sample) -> Self {
            $config.give_track(kind.clone(), what, by.sample().key());
            $self
        }

        /// What calls of the client meet. Of several the one that was named last is asked first.
        pub fn reactor(mut $self, reactor: Reactor) -> Self {
            $config.react(reactor);
            $self
        }

        /// Then this object is created: what is sent is all this, and nothing else.
        pub fn expect_create(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::create(object));
            $self
        }

        /// Then this object is updated: what is sent is all this, and nothing else. Its `resourceVersion` is not compared (the client
        /// refuses one that is not the object's), and neither is what a client sets and the expected object does not say.
        pub fn expect_update(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::update(object));
            $self
        }

        /// Then the status of this object is updated. Of what is sent the status is compared, and no more is written. The times of
        /// conditions are not compared where the expected ones have none.
        pub fn expect_status_update(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::update_status(object));
            $self
        }

        /// Then this object is patched like this. The `resourceVersion` is compared if the expected patch has one.
        pub fn expect_patch(mut $self, object: &impl Sample, patch: Patch) -> Self {
            $config.expect_write(writes::patch(object, patch, PatchTarget::Object));
            $self
        }

        /// Then the status of this object is patched like this.
        pub fn expect_status_patch(mut $self, object: &impl Sample, patch: Patch) -> Self {
            $config.expect_write(writes::patch(object, patch, PatchTarget::Status));
            $self
        }

        /// Then these fields are applied, as those of this owner.
        pub fn expect_apply(mut $self, fields: &impl Sample, owner: FieldOwner) -> Self {
            $config.expect_write(writes::apply(fields, owner));
            $self
        }

        /// Then this object is deleted, in the background. Whether only in a certain version is not compared.
        pub fn expect_delete(mut $self, object: &impl Sample) -> Self {
            $config.expect_write(writes::delete(object, None));
            $self
        }

        /// Then this object is deleted with just these options.
        pub fn expect_delete_with(mut $self, object: &impl Sample, options: DeleteOptions) -> Self {
            $config.expect_write(writes::delete(object, Some(options)));
            $self
        }

        /// Then the object `by` asks to be called again when this one changes. What it has asked for several times counts where it was
        /// asked for last.
        pub fn expect_track(mut $self, object: &impl Sample, by: &impl Sample) -> Self {
            let object = object.sample();
            $config.expect_tracked(&object.kind(), &TrackRef::name(object.key()), &by.sample().key());
            $self
        }

        /// Then the object `by` asks to be called again when such objects of this kind change.
        pub fn expect_track_of(mut $self, kind: &Kind, what: TrackRef, by: &impl Sample) -> Self {
            $config.expect_tracked(kind, &what, &by.sample().key());
            $self
        }

        /// Then this is recorded to happen to the object.
        pub fn expect_event(mut $self, object: &impl Sample, event: EventType, reason: &str, message: &str) -> Self {
            $config.expect_recorded(&object.sample().object_ref(), event, reason, message);
            $self
        }
    };
}
pub(super) use config_methods;

impl ConfigCase {
    /// Nothing is there, and nothing is to happen.
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
        TrackRef::Name(key) => format!("{} by {by}", name_of(kind, key)),
        TrackRef::Selector { namespace, labels } => {
            let all = ObjectKey::new(namespace.as_deref().unwrap_or_default(), "*");
            format!("{} with {labels} by {by}", name_of(kind, &all))
        }
    }
}

fn text_of_event(object: &ObjectRef, event: EventType, reason: &str, message: &str) -> String {
    format!("{}: {event} {reason}: {message}", name_of(object.kind(), object.key()))
}

/// A config while a case runs.
#[derive(Debug)]
pub(super) struct Stage {
    clock: ManualClock,
    pub(super) client: TestClient,
    uncached: Option<TestClient>,
    tracker: Tracker,
    /// The number of the last track that was looked at.
    seen: u64,
    recorder: EventRecorder,
    events: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// The number is that of no other stage of the case.
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

    /// Puts there what a case says, over what is there.
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

    /// What has happened until now is not looked at.
    pub(super) fn begin(&mut self) {
        self.take();
    }

    fn take(&mut self) -> (Vec<Write>, Vec<String>, Vec<String>) {
        let tracks = self.tracker.tracks_after(self.seen);
        self.seen = tracks.last().map_or(self.seen, |(number, ..)| *number);
        let tracks = tracks.iter().map(|(_, kind, what, by)| text_of_track(kind, what, by)).collect();
        (self.client.take_writes(), tracks, std::mem::take(&mut *self.events.lock()))
    }

    /// What has happened otherwise than this case says.
    pub(super) fn check(&mut self, case: &ConfigCase) -> Vec<Fault> {
        let (writes, tracks, events) = self.take();
        let mut faults = Vec::new();
        writes::check(&case.writes, &writes, &mut faults);
        of_texts("event", &case.events, &events, &mut faults);
        of_texts("track", &case.tracks, &tracks, &mut faults);
        faults
    }
}

/// What puts a resource there.
pub(super) fn give(object: &impl Object) -> Give {
    let object = object.clone();
    Box::new(move |client| client.give(&object))
}
