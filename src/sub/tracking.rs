//! The tracks of a controller's runs: those of a run replace those of the run before.

use super::config::Config;
use crate::base::sync::Mutex;
use crate::objects::{Kind, ObjectKey, Scope, TrackRef, Tracker};

/// Which trackers the runs of one controller have used: that of its config, and those of steps with a config of their own.
#[derive(Debug)]
pub(super) struct Tracking {
    /// Of the tracks of this controller, for a tracker may be shared with others that have the same keys.
    scope: Scope,
    trackers: Mutex<Vec<Tracker>>,
}

impl Tracking {
    /// `tracker` is that of the controller's config.
    pub(super) fn new(tracker: &Tracker) -> Self {
        let scope = Scope::new();
        Self { scope, trackers: Mutex::new(vec![tracker.in_scope(scope)]) }
    }

    /// The config with its tracker as the runs of this controller use it.
    pub(super) fn config(&self, config: &Config) -> Config {
        config.clone().in_scope(self.scope)
    }

    pub(super) fn track(&self, tracker: &Tracker, kind: &Kind, what: TrackRef, by: &ObjectKey) {
        let tracker = tracker.in_scope(self.scope);
        tracker.track(kind, what, by.clone());
        let mut trackers = self.trackers.lock();
        if trackers.iter().all(|known| known.address() != tracker.address()) {
            trackers.push(tracker);
        }
    }

    /// Begins a run of this key. What it tracks replaces what the runs before have tracked, once the run has
    /// [ended](TrackingRun::end) well.
    pub(super) fn begin<'a>(&self, by: &'a ObjectKey) -> TrackingRun<'a> {
        let trackers = self.trackers.lock().iter().map(|tracker| (tracker.clone(), tracker.now())).collect();
        TrackingRun { trackers, by }
    }
}

/// A run of a key.
pub(super) struct TrackingRun<'a> {
    /// Each with the number of its last track before the run.
    trackers: Vec<(Tracker, u64)>,
    by: &'a ObjectKey,
}

impl TrackingRun<'_> {
    /// Forgets the tracks of the runs before. A run that fails does not call this: it may not have come to all that it tracks.
    pub(super) fn end(self) {
        for (tracker, start) in self.trackers {
            tracker.forget_before(self.by, start);
        }
    }
}
