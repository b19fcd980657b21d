//! The tracks of a controller: each run replaces the tracks of the run before.

use super::config::Config;
use crate::base::sync::Mutex;
use crate::objects::{Kind, ObjectKey, Scope, TrackRef, Tracker};

/// The trackers that the runs of one controller use: one in its config, others in the configs of steps.
#[derive(Debug)]
pub(super) struct Tracking {
    /// Separates the tracks of this controller from those of others with the same tracker and keys.
    scope: Scope,
    trackers: Mutex<Vec<Tracker>>,
}

impl Tracking {
    /// `tracker` is the tracker of the config.
    pub(super) fn new(tracker: &Tracker) -> Self {
        let scope = Scope::new();
        Self { scope, trackers: Mutex::new(vec![tracker.in_scope(scope)]) }
    }

    /// Returns the config with the tracker in the scope of this controller.
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

    /// Begins a run of this key. If it [ends](TrackingRun::end), its tracks replace those of earlier runs.
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
    /// Forgets the tracks of earlier runs. Not called after a failed run, which may not have reached all its tracks.
    pub(super) fn end(self) {
        for (tracker, start) in self.trackers {
            tracker.forget_before(self.by, start);
        }
    }
}
