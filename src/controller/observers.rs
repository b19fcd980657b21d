//! Observers of a controller's runs, and the outcomes of runs.
//!
//! While there is no observer, a run reads one flag.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failed_keys::bounded;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
    /// The run failed. Holds the error with its sources, at most 1,024 bytes (see [`FailedKey::error`]).
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

/// A run that has ended, as a [`RunObserver`] sees it.
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
    /// The time until the retry of a failed run, as the policy decided. `None` if it is not retried.
    pub retry_after: Option<Duration>,
}

/// Observes the runs of a controller; see [`ControllerHandle::observe_runs`](super::ControllerHandle::observe_runs).
///
/// # Examples
///
/// ```
/// use homeostat::controller::{EndedRun, RunObserver};
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct Journal(Mutex<Vec<String>>);
///
/// impl RunObserver for Journal {
///     fn ended(&self, run: &EndedRun<'_>) {
///         self.0.lock().unwrap().push(format!("{:?} {} ({})", run.key, run.outcome, run.reasons));
///     }
/// }
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let vms = Controller::builder("vm", reconcile).build()?.start(&pool)?;
/// let journal = Arc::<Journal>::default();
/// vms.observe_runs(journal.clone());
/// vms.enqueue("vm-1");
/// vms.wait(&"vm-1", Duration::from_secs(10))?;
/// assert_eq!(*journal.0.lock().unwrap(), ["\"vm-1\" succeeded (manual)"]);
/// # Ok::<_, BoxError>(())
/// ```
pub trait RunObserver: Send + Sync {
    /// Called at the end of each run, on its thread, before the key can run again. A panic is logged.
    fn ended(&self, run: &EndedRun<'_>);
}

/// The observers of one controller.
#[derive(Default)]
pub(super) struct RunObservers {
    any: AtomicBool,
    observers: Mutex<Vec<Arc<dyn RunObserver>>>,
}

impl RunObservers {
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    pub(super) fn add(&self, observer: Arc<dyn RunObserver>) {
        self.observers.lock().push(observer);
        self.any.store(true, Relaxed);
    }

    pub(super) fn ended(&self, run: &EndedRun<'_>) {
        let observers = self.observers.lock().clone();
        for observer in observers {
            shielded("an observer of runs", || observer.ended(run));
        }
    }
}
