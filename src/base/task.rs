//! Tasks: thread bodies that are divided into steps.

use crate::base::time::Nanos;

/// A thread body that is divided into steps. A thread calls them in a loop; a simulation calls them one by one.
///
/// A panic of a step is logged, and ends the task. The task is dropped after its last step. The module
/// [`rt`](crate::rt) has an example.
pub trait Task: Send {
    /// Does the work that is due at `now`. Returns the time of the next step.
    ///
    /// May block, for example in a system call. In a simulation, it may block on the clock only.
    fn step(&mut self, now: Nanos) -> Next;

    /// Returns the time from which a step has work, for a simulation. `next` is the time that the last step returned.
    ///
    /// Override it if the task can have work before `next` without its event being set.
    fn due(&mut self, next: Nanos) -> Nanos {
        next
    }

    /// Runs a step of a simulation: like [`step`](Self::step), but does a small part of the due work, and blocks only
    /// on the clock.
    ///
    /// Override it if a step can do several things in one order or another, such as the runs of several keys. `draw` is
    /// a random number, which decides between equal choices. `say` adds the subject of the step, such as its key, to
    /// the trace.
    fn take_turn(&mut self, now: Nanos, draw: u64, say: &dyn Fn(String)) -> Next {
        let _ = (draw, say);
        self.step(now)
    }
}

/// The time of the next step of a [`Task`]. Its event triggers the step earlier.
///
/// # Examples
///
/// ```
/// use homeostat::rt::{Nanos, Next};
///
/// let next_event = Next::At(Nanos::NEVER);
/// assert_ne!(next_event, Next::Finished);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time, or at once if it has passed, as [`Nanos::ZERO`] has. [`Nanos::NEVER`] waits for the event only.
    At(Nanos),
    /// There is no next step.
    Finished,
}
