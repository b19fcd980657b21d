//! Tasks: the bodies of threads, cut into steps.

use crate::base::time::Nanos;

/// The body of a thread, cut into steps. A thread calls them in a loop; a simulation calls them one by one.
pub(crate) trait Task: Send {
    /// Does what is due at `now`. Returns the time of the next step.
    fn step(&mut self, now: Nanos) -> Next;

    /// Returns the time from which a step has something to do, given the time that the last step asked for.
    #[cfg(feature = "testing")]
    fn due(&mut self, next: Nanos) -> Nanos {
        next
    }

    /// Does the same as [`step`](Self::step) in a simulation: a little of what is due, without blocking.
    #[cfg(feature = "testing")]
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        self.step(turn.now)
    }
}

/// The time of the next step of a [`Task`]. Its event brings that step forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this time; with [`Nanos::NEVER`] only after its event.
    At(Nanos),
    /// There is no next step.
    Finished,
}

/// The circumstances of one step in a simulation.
#[cfg(feature = "testing")]
pub(crate) struct TurnContext<'a> {
    pub(crate) now: Nanos,
    /// A random number that decides among equal choices.
    pub(crate) draw: u64,
    /// Names the subject of the step in the trace.
    pub(crate) say: &'a dyn Fn(String),
}

impl<T: Task + ?Sized> Task for &mut T {
    fn step(&mut self, now: Nanos) -> Next {
        (**self).step(now)
    }

    #[cfg(feature = "testing")]
    fn due(&mut self, next: Nanos) -> Nanos {
        (**self).due(next)
    }

    #[cfg(feature = "testing")]
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        (**self).take_turn(turn)
    }
}
