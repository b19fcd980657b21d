//! The rules of debounced requests.
//!
//! A delay with a cap is a debounced delay. `enqueue_debounced` moves only debounced delays. `enqueue_now_debounced`
//! also shortens other delays.

use std::time::Duration;

use super::super::request::EnqueueOutcome;
use super::{Bounds, Decision, RecordState, RerunKind};
use crate::base::time::Nanos;

impl RecordState {
    /// Sets the first delay of a debounced request.
    pub(super) fn debounce(&mut self, bounds: &mut Bounds, cap: Nanos, quiet: Duration, now: Nanos) -> Decision {
        bounds.cap = Some(cap);
        self.schedule(now.after(quiet).min(cap), now)
    }

    /// Applies a debounced change to a delayed key.
    pub(super) fn request_change(
        &mut self,
        bounds: &mut Bounds,
        quiet: Duration,
        max_wait: Duration,
        floor: Duration,
        now: Nanos,
    ) -> Decision {
        let (mut wanted, cap) = self.debounced_until(bounds, quiet, max_wait, now);
        if wanted < self.due {
            wanted = wanted.max(self.earliest(bounds, floor, now));
        }
        let decision = if wanted == self.due && wanted > now {
            EnqueueOutcome::Held.into()
        } else {
            self.move_delay(bounds, wanted, now)
        };
        bounds.cap = Some(cap.max(wanted));
        decision
    }

    /// Applies a debounced change to a key that is being processed.
    pub(super) fn rerun_change(
        &mut self,
        bounds: &mut Bounds,
        rerun: RerunKind,
        quiet: Duration,
        max_wait: Duration,
        now: Nanos,
    ) {
        let (due, cap) = if rerun.has_time() {
            self.debounced_until(bounds, quiet, max_wait, now)
        } else {
            (now.after(quiet.min(max_wait)), now.after(max_wait))
        };
        self.due = due;
        bounds.cap = Some(cap);
    }

    /// Returns when a debounced change runs, and until when further changes can delay that run. If a run is already
    /// scheduled, it serves the change too. It is delayed only if it is debounced itself.
    fn debounced_until(&self, bounds: &Bounds, quiet: Duration, max_wait: Duration, now: Nanos) -> (Nanos, Nanos) {
        let (quiet, latest) = (now.after(quiet), now.after(max_wait));
        if let Some(cap) = bounds.cap {
            let cap = cap.min(latest);
            (quiet.max(self.due).min(cap), cap)
        } else {
            let cap = self.due.min(latest);
            (quiet.min(cap), cap)
        }
    }
}
