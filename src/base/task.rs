//! Tasks: thread bodies that are divided into steps.

use crate::base::time::Nanos;

/// A thread body that is divided into steps. A thread calls them in a loop; a simulation calls them one by one.
pub(crate) trait Task: Send {
    /// Does the work that is due at `now`. Returns the time of the next step.
    fn step(&mut self, now: Nanos) -> Next;

    /// Returns the time from which a step has work. `next` is the time that the last step returned.
    #[cfg(feature = "testing")]
    fn due(&mut self, next: Nanos) -> Nanos {
        next
    }

    /// Runs a step of a simulation: like [`step`](Self::step), but does a small part of the due work, without blocking.
    #[cfg(feature = "testing")]
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        self.step(turn.now)
    }
}

/// The time of the next step of a [`Task`]. Its event triggers the step earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this time. [`Nanos::NEVER`] waits for the event only.
    At(Nanos),
    /// There is no next step.
    Finished,
}

/// The context of one step in a simulation.
#[cfg(feature = "testing")]
pub(crate) struct TurnContext<'a> {
    pub(crate) now: Nanos,
    /// A random number for equal choices.
    pub(crate) draw: u64,
    /// Adds the subject of the step to the trace.
    pub(crate) say: &'a dyn Fn(String),
}
