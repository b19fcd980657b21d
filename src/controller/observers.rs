//! Observers of a controller's runs, and the outcomes of runs.
//!
//! While there is no observer, a run reads one flag.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::base::text::bounded;
use crate::base::thread::shielded;
use crate::queue::Reasons;
use crate::run::error::Chain;
use crate::run::gate::GateKey;
use crate::run::outcome::RunResult;

/// The outcome of a run. Displays as a word, without the error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The run succeeded and requested no other run.
    Succeeded,
    /// The run requested another run after this time.
    Requeued(Duration),
    /// The run failed. Holds the error with its sources, truncated as [`FailedKey::error`] is.
    ///
    /// [`FailedKey::error`]: super::FailedKey::error
    Failed(String),
    /// The run was aborted. Its key returned to the queue.
    Aborted,
}

impl RunOutcome {
    pub(super) fn of(result: &RunResult<'_>) -> Self {
        match result {
            RunResult::Succeeded => Self::Succeeded,
            RunResult::Requeued(after) => Self::Requeued(*after),
            RunResult::Failed(failed) => Self::Failed(bounded(Chain(failed.error).to_string())),
            RunResult::Aborted => Self::Aborted,
        }
    }

    /// Returns the error of a failed run.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        if let Self::Failed(error) = self { Some(error) } else { None }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Requeued(_) => "requeued",
            Self::Failed(_) => "failed",
            Self::Aborted => "aborted",
        })
    }
}

/// A run that has ended, as its observers see it.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndedRun<'a> {
    /// The key. It shows the key with `Debug`, and names the controller.
    pub key: &'a dyn GateKey,
    /// The reasons for the run.
    pub reasons: Reasons,
    /// The number of the try: one more than the failed runs in a row before it.
    pub attempt: u32,
    /// The time that the key was queued before the run.
    pub queued_for: Duration,
    /// The start of the run.
    pub started: Instant,
    /// The duration of the run.
    pub took: Duration,
    /// The name of the thread.
    pub thread: &'a str,
    /// The outcome.
    pub outcome: RunOutcome,
    /// The error of a failed run; [`Panicked`](crate::run::Panicked) if the reconciler panicked.
    pub error: Option<&'a (dyn Error + 'static)>,
    /// The time until the retry of a failed run, as the policy decided. `None` if it is not retried.
    pub retry_after: Option<Duration>,
}

/// Observes runs.
pub(crate) type RunObserver = Arc<dyn Fn(&EndedRun<'_>) + Send + Sync>;

/// The observers of one controller.
pub(super) struct RunObservers {
    any: AtomicBool,
    observers: Mutex<Vec<RunObserver>>,
}

impl RunObservers {
    pub(super) fn new(observers: Vec<RunObserver>) -> Self {
        Self { any: AtomicBool::new(!observers.is_empty()), observers: Mutex::new(observers) }
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    pub(super) fn add(&self, observer: RunObserver) {
        self.observers.lock().push(observer);
        self.any.store(true, Relaxed);
    }

    pub(super) fn ended(&self, run: &EndedRun<'_>) {
        let observers = self.observers.lock().clone();
        for observer in observers {
            shielded("an observer of runs", || observer(run));
        }
    }
}
