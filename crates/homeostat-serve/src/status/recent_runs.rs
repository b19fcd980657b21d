//! The recent runs of each controller of a manager. Recording begins when a log is created.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::Mutex;
use homeostat::controller::{EndedRun, RunOutcome};
use homeostat::manager::Manager;
use homeostat::queue::{KeyState, Reasons};
use homeostat::run::ReadState;

/// A run that has ended.
pub(crate) struct RecentRun {
    /// The key, formatted by `Debug`.
    pub(crate) key: String,
    key_state: ReadState,
    pub(crate) reasons: Reasons,
    pub(crate) attempt: u32,
    pub(crate) queued_for: Duration,
    pub(crate) started: Instant,
    pub(crate) took: Duration,
    pub(crate) thread: String,
    pub(crate) outcome: RunOutcome,
    pub(crate) retry_after: Option<Duration>,
}

impl RecentRun {
    /// The number of runs without failure that the log of a controller keeps.
    pub(crate) const MOST: usize = 512;

    /// The number of failed runs that it keeps.
    pub(crate) const MOST_FAILED: usize = 256;

    /// Returns the state of the key now.
    pub(crate) fn key_state(&self) -> KeyState {
        (self.key_state)()
    }

    /// Returns the result in a word.
    pub(crate) fn result(&self) -> String {
        let is_parked = self.outcome.error().is_some() && self.retry_after.is_none();
        if is_parked { "parked".to_owned() } else { self.outcome.to_string() }
    }
}

/// The recent runs of all controllers, by name.
#[derive(Default)]
pub(crate) struct RunLogs(Mutex<BTreeMap<String, Arc<RunLog>>>);

impl RunLogs {
    /// Records the runs of a manager from now on.
    pub(crate) fn record(self: &Arc<Self>, manager: &Manager) {
        let logs = Arc::clone(self);
        manager.observe_runs(move |controller| {
            let log = Arc::<RunLog>::default();
            let before = logs.0.lock().insert(controller.to_owned(), Arc::clone(&log));
            drop(before);
            move |run: &EndedRun<'_>| log.add(run)
        });
    }

    /// Returns the runs of a controller, the oldest start first.
    pub(crate) fn of(&self, controller: &str) -> Vec<Arc<RecentRun>> {
        let log = self.0.lock().get(controller).cloned();
        log.map(|log| log.list()).unwrap_or_default()
    }

    /// Forgets the controllers for which `is_known` returns false.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        // The keys are dropped without the lock.
        let gone: Vec<_> = {
            let mut logs = self.0.lock();
            let unknown: Vec<_> = logs.keys().filter(|name| !is_known(name)).cloned().collect();
            unknown.iter().filter_map(|name| logs.remove(name)).collect()
        };
        drop(gone);
    }
}

impl fmt::Debug for RunLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLogs").field("len", &self.0.lock().len()).finish_non_exhaustive()
    }
}

/// The kept runs of one controller, in the order of their ends. Failed runs are kept apart: frequent successes must not
/// displace them.
#[derive(Default)]
struct RunLog {
    failed: Mutex<VecDeque<Arc<RecentRun>>>,
    others: Mutex<VecDeque<Arc<RecentRun>>>,
}

impl RunLog {
    fn list(&self) -> Vec<Arc<RecentRun>> {
        let mut runs: Vec<_> = self.failed.lock().iter().cloned().collect();
        runs.extend(self.others.lock().iter().cloned());
        runs.sort_by_key(|run| run.started);
        runs
    }

    fn add(&self, run: &EndedRun<'_>) {
        let recent = Arc::new(RecentRun {
            key: format!("{:?}", run.key),
            key_state: run.key.state_reader(),
            reasons: run.reasons,
            attempt: run.attempt,
            queued_for: run.queued_for,
            started: run.started,
            took: run.took,
            thread: run.thread.to_owned(),
            outcome: run.outcome.clone(),
            retry_after: run.retry_after,
        });
        let (kept, most) = match run.outcome.error() {
            Some(_) => (&self.failed, RecentRun::MOST_FAILED),
            None => (&self.others, RecentRun::MOST),
        };
        let mut kept = kept.lock();
        let oldest = if kept.len() < most { None } else { kept.pop_front() };
        kept.push_back(recent);
        drop(kept);
        drop(oldest);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat::WorkQueue;
    use homeostat::run::gate::TakenKey;

    #[test]
    fn the_last_runs_are_kept_and_the_last_failures_apart() {
        let (log, queue, begin) = (RunLog::default(), WorkQueue::new(), homeostat::Clock::system().now());
        let add = |key: usize, start: usize, outcome: RunOutcome| {
            log.add(&EndedRun {
                key: &TakenKey { controller: "vm", key: &key, queue: &queue },
                reasons: Reasons::default(),
                attempt: 1,
                queued_for: Duration::ZERO,
                started: begin + Duration::from_nanos(start as u64),
                took: Duration::from_nanos(7),
                thread: "pool-0",
                outcome,
                error: None,
                retry_after: None,
            });
        };
        for key in 0..RecentRun::MOST + 2 {
            add(key, key, RunOutcome::Succeeded);
        }
        let list = log.list();
        assert_eq!((list.len(), list[0].key.as_str()), (RecentRun::MOST, "2"));
        assert_eq!(list[RecentRun::MOST - 1].key, (RecentRun::MOST + 1).to_string());
        assert_eq!((list[0].took, list[0].thread.as_str()), (Duration::from_nanos(7), "pool-0"));
        assert_eq!(list[0].key_state(), KeyState::Idle);

        for start in 0..=RecentRun::MOST_FAILED {
            add(7, start, RunOutcome::Failed("no answer".to_owned()));
        }
        add(8, 0, RunOutcome::Succeeded);
        let list = log.list();
        let failed = list.iter().filter(|run| run.result() == "parked").count();
        assert_eq!((list.len(), failed), (RecentRun::MOST + RecentRun::MOST_FAILED, RecentRun::MOST_FAILED));
        assert_eq!(list[0].key, "8");
    }
}
