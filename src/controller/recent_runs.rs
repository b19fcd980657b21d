//! The recent runs of a controller, for status pages.
//!
//! Recording is off until somebody asks for it. While it is off, a run reads one flag.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::waiters::RunOutcome;
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::queue::{Key, Reasons};
use crate::run::outcome::RunResult;
use crate::run::runner::EndedRun;

/// A run that has ended.
///
/// A controller keeps its last 256 failed runs and its last 512 other runs while they are
/// [recorded](super::ControllerHandle::record_runs).
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use homeostat::controller::RunOutcome;
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let vms = Controller::builder("vm", reconcile).record_runs().build()?.start(&pool)?;
/// vms.enqueue("vm-1");
/// vms.wait(&"vm-1", Duration::from_secs(10))?;
/// let runs = vms.recent_runs();
/// assert_eq!((runs[0].key, runs[0].reasons.to_string(), runs[0].attempt), ("vm-1", "manual".to_owned(), 1));
/// assert_eq!(runs[0].outcome, RunOutcome::Succeeded);
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecentRun<K> {
    /// The key.
    pub key: K,
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
    pub thread: String,
    /// The outcome.
    pub outcome: RunOutcome,
    /// The time until the retry of a failed run, as the policy decided. `None` if it is not retried.
    pub retry_after: Option<Duration>,
}

impl<K> RecentRun<K> {
    /// The number of runs without failure that a controller keeps.
    pub const MOST: usize = 512;

    /// The number of failed runs that a controller keeps.
    pub const MOST_FAILED: usize = 256;

    pub(super) fn with_key<J>(self, show: impl FnOnce(&K) -> J) -> RecentRun<J> {
        let Self { key, reasons, attempt, queued_for, started, took, thread, outcome, retry_after } = self;
        RecentRun { key: show(&key), reasons, attempt, queued_for, started, took, thread, outcome, retry_after }
    }
}

/// The recent runs of one controller.
pub(super) struct RecentRuns<K> {
    on: AtomicBool,
    /// Under this lock, no other lock is taken, and no user code runs except `Clone` and `Eq` of keys.
    runs: Mutex<KeptRuns<K>>,
}

/// The kept runs in the order of their ends. Failed runs are kept apart: frequent successes must not displace them.
struct KeptRuns<K> {
    failed: VecDeque<RecentRun<K>>,
    others: VecDeque<RecentRun<K>>,
}

impl<K: Clone> KeptRuns<K> {
    /// Returns clones of the runs that match, the oldest start first.
    fn list(&self, matches: impl Fn(&RecentRun<K>) -> bool) -> Vec<RecentRun<K>> {
        let mut runs: Vec<_> = self.failed.iter().chain(&self.others).filter(|run| matches(run)).cloned().collect();
        runs.sort_by_key(|run| run.started);
        runs
    }
}

impl<K: Key> RecentRuns<K> {
    pub(super) fn new(on: bool) -> Self {
        let kept = KeptRuns { failed: VecDeque::new(), others: VecDeque::new() };
        Self { on: AtomicBool::new(on), runs: Mutex::new(kept) }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Records runs from now on.
    pub(super) fn record(&self) {
        self.on.store(true, Relaxed);
    }

    /// Adds a run. Drops the oldest one outside the lock.
    #[cold]
    pub(super) fn add(&self, clock: &Clock, key: &K, result: &RunResult<'_>, run: &EndedRun<'_>) {
        let run = RecentRun {
            key: key.clone(),
            reasons: run.call.reasons,
            attempt: run.call.failures.saturating_add(1),
            queued_for: run.call.queued_for.unwrap_or_default(),
            started: clock.instant(run.start).unwrap_or_else(|| clock.now()),
            took: run.end.since(run.start),
            thread: run.thread.to_owned(),
            outcome: RunOutcome::of(result),
            retry_after: if let RunResult::Failed(failed) = result { failed.retry_after } else { None },
        };
        let mut runs = self.runs.lock();
        let (kept, most) = match run.outcome.error() {
            Some(_) => (&mut runs.failed, RecentRun::<K>::MOST_FAILED),
            None => (&mut runs.others, RecentRun::<K>::MOST),
        };
        let oldest = if kept.len() < most { None } else { kept.pop_front() };
        kept.push_back(run);
        drop(runs);
        drop(oldest);
    }

    /// Returns the runs, the oldest first.
    pub(super) fn list(&self) -> Vec<RecentRun<K>> {
        self.runs.lock().list(|_| true)
    }

    /// Returns the runs of one key, the oldest first.
    pub(super) fn of_key(&self, key: &K) -> Vec<RecentRun<K>> {
        self.runs.lock().list(|run| run.key == *key)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::time::Nanos;
    use crate::run::context::RunInfo;
    use crate::run::outcome::Failed;

    const MOST_RUNS: usize = RecentRun::<()>::MOST;
    const MOST_FAILURES: usize = RecentRun::<()>::MOST_FAILED;

    #[test]
    fn the_last_runs_are_kept_and_the_last_failures_apart() {
        let (clock, runs) = (Clock::system(), RecentRuns::new(false));
        assert!(!runs.is_on());
        runs.record();
        assert!(runs.is_on());
        let at =
            |start| EndedRun { call: RunInfo::default(), start: Nanos(start), end: Nanos(start + 7), thread: "pool-0" };
        for key in 0..MOST_RUNS + 2 {
            runs.add(&clock, &key, &RunResult::Succeeded, &at(key as u64));
        }
        let list = runs.list();
        assert_eq!((list.len(), list[0].key, list[MOST_RUNS - 1].key), (MOST_RUNS, 2, MOST_RUNS + 1));
        assert_eq!((list[0].took, list[0].thread.as_str()), (Duration::from_nanos(7), "pool-0"));
        assert_eq!((runs.of_key(&1).len(), runs.of_key(&2).len()), (0, 1));

        let error = std::io::Error::other("no answer");
        let failed = || RunResult::Failed(Failed { error: &error, failures: 1, retry_after: None });
        for start in 0..=MOST_FAILURES {
            runs.add(&clock, &7, &failed(), &at(start as u64));
        }
        runs.add(&clock, &8, &RunResult::Succeeded, &at(0));
        assert_eq!((runs.list().len(), runs.of_key(&7).len()), (MOST_RUNS + MOST_FAILURES, MOST_FAILURES + 1));
        assert_eq!(runs.list()[0].key, 8);
    }
}
