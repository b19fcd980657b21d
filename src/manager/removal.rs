//! The removal of a component from a running manager.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::StillRunning;
use crate::base::time::Nanos;
use crate::base::wait::Monitor;

/// The error of [`Manager::remove`](crate::Manager::remove).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveError {
    /// The manager has no component of this name.
    NotFound(String),
    /// The component was aborted, and these threads have not ended. Its name is free. The manager waits for the threads at its
    /// end.
    StillRunning(StillRunning),
    /// The manager is stopping or has ended, with all its components.
    Stopping,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(name) => write!(f, "the manager has no component {name:?}"),
            Self::StillRunning(still) => write!(f, "the component was aborted and does not end: {still}"),
            Self::Stopping => f.write_str("the manager is stopping"),
        }
    }
}

impl Error for RemoveError {}

/// A request to remove a component. Dropping it reports that the component has ended.
pub(super) struct Removal {
    pub(super) name: String,
    pub(super) grace: Duration,
    answer: RemovalAnswer,
}

/// The answer to a removal, once it is given: the threads that have not ended.
type RemovalAnswer = Arc<Monitor<Option<Vec<String>>>>;

impl Removal {
    pub(super) fn new(name: &str, grace: Duration, clock: &Clock) -> (Self, RemovalAnswer) {
        let answer = Monitor::of(clock.clone(), None);
        (Self { name: name.to_owned(), grace, answer: Arc::clone(&answer) }, answer)
    }

    /// Reports that these threads have not ended.
    pub(super) fn give_up(self, threads: Vec<String>) {
        self.answer.change(|answer| *answer = Some(threads));
    }

    /// Blocks until the answer is given.
    pub(super) fn wait(answer: &RemovalAnswer) -> Result<(), RemoveError> {
        let threads = answer.wait_for_some(Nanos::NEVER, Option::take).unwrap_or_default();
        StillRunning::unless_empty(threads).map_err(RemoveError::StillRunning)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.answer.change(|answer| {
            answer.get_or_insert_default();
        });
    }
}
