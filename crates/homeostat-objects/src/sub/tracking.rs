//! The tracks of a controller: each run replaces the tracks of the previous run.

use super::config::Config;
use super::flow::SubResult;
use crate::sync::Mutex;
use crate::{Kind, ObjectKey, Scope, TrackRef, Tracker};

/// The trackers that the runs of one controller use: one in its config, others in the configs of steps.
#[derive(Debug)]
pub(super) struct Tracking {
    /// Separates the tracks of controllers with the same tracker and the same keys.
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

    /// Calls `run` for this key. If it succeeds, its tracks replace the tracks of earlier runs.
    ///
    /// A failed run may not have reached all its tracks, so it replaces none.
    pub(super) fn run(&self, by: &ObjectKey, run: impl FnOnce() -> SubResult) -> SubResult {
        let last_tracks: Vec<_> = self.trackers.lock().iter().map(|tracker| (tracker.clone(), tracker.now())).collect();
        let flow = run()?;
        for (tracker, last) in last_tracks {
            tracker.forget_before(by, last);
        }
        Ok(flow)
    }
}
