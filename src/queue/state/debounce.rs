//! The rules of debounced requests: when they are to run, and up to when they may be put off.
//!
//! A delay with a cap is a debounced one. `enqueue_debounced` moves only a delay that is debounced already;
//! `enqueue_now_debounced` also brings any other delay forward.

use std::time::Duration;

use super::super::request::EnqueueOutcome;
use super::{Answer, Bounds, State, Wished};
use crate::base::time::Nanos;

impl State {
    /// No run is due yet.
    pub(super) fn debounce(&mut self, bounds: &mut Bounds, cap: Nanos, quiet: Duration, now: Nanos) -> Answer {
        bounds.cap = Some(cap);
        self.schedule(now.after(quiet).min(cap), now)
    }

    /// A debounced change comes while the key is delayed.
    pub(super) fn request_change(
        &mut self,
        bounds: &mut Bounds,
        quiet: Duration,
        max_wait: Duration,
        floor: Duration,
        now: Nanos,
    ) -> Answer {
        let (mut wanted, cap) = self.debounced_until(bounds, quiet, max_wait, now);
        if wanted < self.due {
            wanted = wanted.max(self.earliest(bounds, floor, now));
        }
        let answer = if wanted == self.due && wanted > now {
            EnqueueOutcome::Held.into()
        } else {
            self.move_delay(bounds, wanted, now)
        };
        bounds.cap = Some(cap.max(wanted));
        answer
    }

    /// A debounced change comes while the key is being processed.
    pub(super) fn wish_change(
        &mut self,
        bounds: &mut Bounds,
        wish: Wished,
        quiet: Duration,
        max_wait: Duration,
        now: Nanos,
    ) {
        let (due, cap) = match wish {
            Wished::At | Wished::Debounced => self.debounced_until(bounds, quiet, max_wait, now),
            _ => (now.after(quiet.min(max_wait)), now.after(max_wait)),
        };
        self.due = due;
        bounds.cap = Some(cap);
    }

    /// When a debounced change is to run that comes while a run is due already, and up to when later ones may put it off. The
    /// run that is due serves the change too, so the change never puts it off, unless that one waits for quiet itself.
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
