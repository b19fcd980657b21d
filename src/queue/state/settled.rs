//! Whether anything waits to be done for a key, or only a run that was asked for a later time.

use super::super::request::Reasons;
use super::{Bounds, Phase, State};

impl State {
    /// Whether nothing waits to be done for the key, unless a run that was asked for a later time.
    pub(crate) fn is_settled(&self, bounds: &Bounds) -> bool {
        match self.phase {
            Phase::Idle | Phase::Cooling => true,
            // What only the end of a cool-down holds back was asked for at once, unless it is a requeue.
            Phase::Delayed => {
                self.is_idle_delay(bounds) && (self.due > bounds.not_before || self.reasons == Reasons::REQUEUE)
            }
            Phase::Ready | Phase::Processing(_) => false,
        }
    }

    /// Delayed: whether nothing waits for the end of the delay but a run that was asked for a later time. A backoff and a
    /// debounced change wait, and so does a key that has been put aside.
    pub(super) fn is_idle_delay(&self, bounds: &Bounds) -> bool {
        self.failures == 0 && !self.aside && bounds.cap.is_none()
    }
}
