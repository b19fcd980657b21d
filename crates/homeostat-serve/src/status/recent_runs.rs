//! The recent runs of each controller of a manager. Recording begins when a log is created.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::control::{Control, Controls};
use crate::sync::Mutex;
use homeostat::controller::{ActiveRun, EndedRun, RunOutcome};
use homeostat::manager::Manager;
use homeostat::queue::{KeyState, Reasons};
use homeostat::run::ReadState;

/// A run that has ended.
pub(crate) struct RecentRun {
    /// The key, formatted by `Debug`.
    pub(crate) key: String,
    key_state: ReadState,
    /// Acts on the key, if users may.
    pub(crate) control: Option<Control>,
    pub(crate) reasons: Reasons,
    /// The number of the run since the last success of its key, as [`FailedKey`](homeostat::controller::FailedKey)
    /// counts failures. Unlike [`EndedRun::attempt`], it also counts the runs before the key was parked, and those that
    /// a request started during a backoff.
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

    /// The number of failed runs that it keeps, and of successes after a failure.
    pub(crate) const MOST_FAILED: usize = 256;

    /// The number of keys whose first and last failures it keeps.
    pub(crate) const MOST_FAILING: usize = 1_000;

    /// Returns the end of the run. `None` if it cannot be represented.
    pub(crate) fn ended(&self) -> Option<Instant> {
        self.started.checked_add(self.took)
    }

    /// Returns how long ago the run ended.
    pub(crate) fn ended_ago(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started).saturating_sub(self.took)
    }

    /// Returns the state of the key now.
    pub(crate) fn key_state(&self) -> KeyState {
        (self.key_state)()
    }

    /// Returns whether the run succeeded, so that its key no longer fails.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.outcome, RunOutcome::Succeeded | RunOutcome::Requeued(_))
    }

    /// Returns the result in a word.
    pub(crate) fn result(&self) -> String {
        let is_parked = self.outcome.error().is_some() && self.retry_after.is_none();
        if is_parked { "parked".to_owned() } else { self.outcome.to_string() }
    }
}

/// The beginning of a run, which may still be active.
#[derive(Clone, Copy)]
pub(crate) struct BegunRun<'a> {
    /// The key, formatted by `Debug`.
    pub(crate) key: &'a str,
    pub(crate) reasons: Reasons,
    pub(crate) started: Instant,
    /// `None` if it is unknown.
    pub(crate) queued_for: Option<Duration>,
    /// Whether the key is known to have failed before.
    pub(crate) has_failed: bool,
}

impl<'a> BegunRun<'a> {
    /// How much later than `now` the elapsed time of an active run may have been read.
    const READ_TIME: Duration = Duration::from_millis(100);

    /// Returns the beginning of a run that is active at the time `now`. Its start is not too early.
    pub(crate) fn active(run: &'a ActiveRun, now: Instant) -> Self {
        let started = (now + Self::READ_TIME).checked_sub(run.elapsed).unwrap_or(now);
        Self { key: &run.key, reasons: run.reasons, started, queued_for: None, has_failed: false }
    }
}

impl<'a> From<&'a RecentRun> for BegunRun<'a> {
    fn from(run: &'a RecentRun) -> Self {
        let queued_for = Some(run.queued_for);
        Self { key: &run.key, reasons: run.reasons, started: run.started, queued_for, has_failed: run.attempt > 1 }
    }
}

/// Names the reasons for a run, in the words of all pages. `manual` replaces the reason *manual*, which has two words:
/// the program has enqueued the key, or a person has requested the run.
pub(crate) fn reason_words(reasons: Reasons, manual: &str) -> String {
    let reasons = reasons.to_string();
    let words = reasons.split(", ").map(|word| if word == "manual" { manual } else { word });
    words.collect::<Vec<_>>().join(", ")
}

/// The recent runs of all controllers, by name.
#[derive(Default)]
pub(crate) struct RunLogs {
    logs: Mutex<BTreeMap<String, Arc<RunLog>>>,
    /// The controllers on which users may act. Set before the pages are served.
    controls: Mutex<BTreeMap<String, Arc<Controls>>>,
}

impl RunLogs {
    /// Records the runs of a manager from now on.
    pub(crate) fn record(self: &Arc<Self>, manager: &Manager) {
        let (logs, clock) = (Arc::clone(self), manager.clock().clone());
        manager.observe_runs(move |controller| {
            let log = Arc::new(RunLog::new(clock.now()));
            if let Some(controls) = logs.controls(controller) {
                log.allow(controls);
            }
            let before = logs.logs.lock().insert(controller.to_owned(), Arc::clone(&log));
            drop(before);
            move |run: &EndedRun<'_>| log.add(run)
        });
    }

    /// Lets users act on a controller and its keys.
    pub(crate) fn allow(&self, controller: &str, controls: Controls) {
        let controls = Arc::new(controls);
        self.controls.lock().insert(controller.to_owned(), Arc::clone(&controls));
        let log = self.logs.lock().get(controller).cloned();
        if let Some(log) = log {
            log.allow(controls);
        }
    }

    /// Returns the controls of a controller, if users may act on it.
    pub(crate) fn controls(&self, controller: &str) -> Option<Arc<Controls>> {
        self.controls.lock().get(controller).cloned()
    }

    /// Returns the runs of a controller, the oldest start first.
    pub(crate) fn of(&self, controller: &str) -> Vec<Arc<RecentRun>> {
        let log = self.logs.lock().get(controller).cloned();
        log.map(|log| log.list()).unwrap_or_default()
    }

    /// Returns the time since which the log of a controller has all runs. `None` if there is no such log.
    pub(crate) fn complete_since(&self, controller: &str) -> Option<Instant> {
        let log = self.logs.lock().get(controller).cloned()?;
        let (began, dropped) = (log.began, *log.dropped.lock());
        Some(dropped.map_or(began, |dropped| dropped.max(began)))
    }

    /// Returns the same if the log of a controller has dropped runs. `None` if it has all since its begin.
    pub(crate) fn cut_since(&self, controller: &str) -> Option<Instant> {
        let log = self.logs.lock().get(controller).cloned()?;
        *log.dropped.lock()
    }

    /// Forgets the controllers for which `is_known` returns false.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        // The keys are dropped without the lock.
        let gone: Vec<_> = {
            let mut logs = self.logs.lock();
            let unknown: Vec<_> = logs.keys().filter(|name| !is_known(name)).cloned().collect();
            unknown.iter().filter_map(|name| logs.remove(name)).collect()
        };
        drop(gone);
    }
}

impl fmt::Debug for RunLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLogs").field("len", &self.logs.lock().len()).finish_non_exhaustive()
    }
}

/// The first and the last failure of a key since its last success.
struct KeyFailures {
    first: Arc<RecentRun>,
    last: Arc<RecentRun>,
}

/// The kept runs of one controller, in the order of their ends. Failed runs are kept apart, and so are the successes
/// that followed them: frequent other successes must not displace them.
struct RunLog {
    began: Instant,
    controls: OnceLock<Arc<Controls>>,
    /// The end of the last run that was dropped. It changes before the run is gone.
    dropped: Mutex<Option<Instant>>,
    failed: Mutex<VecDeque<Arc<RecentRun>>>,
    /// The first success after each failure.
    recovered: Mutex<VecDeque<Arc<RecentRun>>>,
    /// By the key's text: a noisy key must not displace the failures of others.
    failing: Mutex<BTreeMap<String, KeyFailures>>,
    others: Mutex<VecDeque<Arc<RecentRun>>>,
}

impl RunLog {
    fn new(began: Instant) -> Self {
        Self {
            began,
            controls: OnceLock::new(),
            dropped: Mutex::default(),
            failed: Mutex::default(),
            recovered: Mutex::default(),
            failing: Mutex::default(),
            others: Mutex::default(),
        }
    }

    fn allow(&self, controls: Arc<Controls>) {
        // A controller has one type of keys, so all its controls are the same.
        let _same = self.controls.set(controls);
    }

    fn list(&self) -> Vec<Arc<RecentRun>> {
        let mut runs: Vec<_> = self.failed.lock().iter().cloned().collect();
        runs.extend(self.recovered.lock().iter().cloned());
        runs.extend(self.others.lock().iter().cloned());
        runs.extend(self.failing.lock().values().flat_map(|of| [Arc::clone(&of.first), Arc::clone(&of.last)]));
        runs.sort_by_key(|run| (run.started, run.attempt, Arc::as_ptr(run)));
        // A failed run may be kept in three places.
        runs.dedup_by(|one, other| Arc::ptr_eq(one, other));
        runs
    }

    fn add(&self, run: &EndedRun<'_>) {
        self.add_recent(RecentRun {
            key: format!("{:?}", run.key),
            key_state: run.key.state_reader(),
            control: self.controls.get().and_then(|controls| controls.of_key(run.key)),
            reasons: run.reasons,
            attempt: run.attempt,
            queued_for: run.queued_for,
            started: run.started,
            took: run.took,
            thread: run.thread.to_owned(),
            outcome: run.outcome.clone(),
            retry_after: run.retry_after,
        });
    }

    fn add_recent(&self, mut recent: RecentRun) {
        let before = self.failing.lock().get(&recent.key).map_or(0, |of| of.last.attempt);
        recent.attempt = recent.attempt.max(before.saturating_add(1));
        let recent = Arc::new(recent);
        let (kept, most) = match (recent.outcome.error(), self.note(&recent)) {
            (Some(_), _) => (&self.failed, RecentRun::MOST_FAILED),
            (None, true) => (&self.recovered, RecentRun::MOST_FAILED),
            (None, false) => (&self.others, RecentRun::MOST),
        };
        let mut kept = kept.lock();
        if let Some(end) = kept.front().filter(|_| kept.len() >= most).and_then(|oldest| oldest.ended()) {
            let mut dropped = self.dropped.lock();
            *dropped = (*dropped).max(Some(end));
        }
        let oldest = if kept.len() < most { None } else { kept.pop_front() };
        kept.push_back(recent);
        drop(kept);
        drop(oldest);
    }

    /// Keeps the first and the last failure of a key, until it succeeds. Returns whether the key had failed before.
    fn note(&self, run: &Arc<RecentRun>) -> bool {
        if run.outcome.error().is_none() && !run.is_success() {
            return false;
        }
        let mut failing = self.failing.lock();
        // Removed runs are dropped without the lock.
        let before = failing.remove(&run.key);
        let mut forgotten = None;
        if run.outcome.error().is_some() {
            // A parked key keeps its first failure: a request begins no new series.
            let first = before.as_ref().map_or(run, |before| &before.first);
            let failures = KeyFailures { first: Arc::clone(first), last: Arc::clone(run) };
            failing.insert(run.key.clone(), failures);
            if failing.len() > RecentRun::MOST_FAILING {
                let oldest = failing.iter().min_by_key(|(_, of)| of.last.started).map(|(key, _)| key.clone());
                forgotten = oldest.and_then(|key| failing.remove(&key));
            }
        }
        drop(failing);
        drop(forgotten);
        before.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat::{Action, BoxError, Context, Controller, ManualClock, WorkerPool, terminal};
    use std::sync::mpsc::channel;
    use std::thread;

    /// A key with one slow run: it begins before all others and ends after them.
    const SLOW: usize = usize::MAX;
    /// A key that always fails.
    const BAD: usize = usize::MAX - 1;

    fn run(key: &str, attempt: u32, outcome: RunOutcome, started: Instant) -> RecentRun {
        RecentRun {
            key: key.to_owned(),
            key_state: Box::new(|| KeyState::Idle),
            control: None,
            reasons: Reasons::MANUAL,
            attempt,
            queued_for: Duration::ZERO,
            started,
            took: Duration::ZERO,
            thread: String::new(),
            outcome,
            retry_after: None,
        }
    }

    #[test]
    fn the_success_after_a_failure_is_kept_apart_from_other_successes_and_from_failures() {
        let clock = ManualClock::new();
        let log = RunLog::new(clock.clock().now());
        let add = |key: &str, outcome: RunOutcome| {
            clock.advance(Duration::from_secs(1));
            log.add_recent(run(key, 1, outcome, clock.clock().now()));
        };
        let of = |key: &str| log.list().iter().filter(|run| run.key == key).map(|run| run.result()).collect::<Vec<_>>();
        add("well", RunOutcome::Failed("no answer".into()));
        add("well", RunOutcome::Succeeded);
        for number in 0..RecentRun::MOST {
            add(&number.to_string(), RunOutcome::Succeeded);
        }
        assert_eq!((of("well"), *log.dropped.lock()), (vec!["parked".to_owned(), "succeeded".to_owned()], None));
        add("last", RunOutcome::Succeeded);
        assert_eq!(of("0"), Vec::<String>::new());
        let age = clock.clock().now() - log.dropped.lock().unwrap();
        assert_eq!(usize::try_from(age.as_secs()).unwrap(), RecentRun::MOST);
        for number in 1..RecentRun::MOST_FAILED {
            add(&format!("bad-{number}"), RunOutcome::Failed("no answer".into()));
        }
        // Many recoveries displace no failure.
        for number in 1..RecentRun::MOST_FAILED {
            add(&format!("bad-{number}"), RunOutcome::Succeeded);
        }
        assert_eq!((of("well"), of("bad-1")), (of("bad-1"), vec!["parked".to_owned(), "succeeded".to_owned()]));
        add("worse", RunOutcome::Failed("no answer".into()));
        assert_eq!(of("well"), ["succeeded"], "the failure has gone first");
    }

    #[test]
    fn the_first_and_the_last_failure_of_each_failing_key_are_kept_and_listed_once() {
        let clock = ManualClock::new();
        let log = RunLog::new(clock.clock().now());
        let add = |key: &str, attempt: u32, outcome: RunOutcome| {
            clock.advance(Duration::from_secs(1));
            log.add_recent(run(key, attempt, outcome, clock.clock().now()));
        };
        let failed = || RunOutcome::Failed("no answer".into());
        add("quiet", 1, failed());
        add("well", 1, failed());
        for attempt in 1..=300 {
            add("noisy", attempt, failed());
        }
        add("quiet", 2, failed());
        add("well", 2, RunOutcome::Succeeded);
        let of = |key: &str| log.list().iter().filter(|run| run.key == key).map(|run| run.attempt).collect::<Vec<_>>();
        assert_eq!((of("quiet"), of("well")), (vec![1, 2], vec![2]));
        let noisy = of("noisy");
        assert_eq!((noisy[0], noisy[1], noisy.len()), (1, 46, RecentRun::MOST_FAILED));
        for number in 0..RecentRun::MOST_FAILING {
            add(&number.to_string(), 1, failed());
        }
        assert_eq!(log.failing.lock().len(), RecentRun::MOST_FAILING);
    }

    #[test]
    fn the_last_runs_are_kept_and_the_last_failures_apart() {
        let held = ManualClock::new();
        let clock = held.clock();
        let log = Arc::new(RunLog::new(clock.now()));
        let pool = WorkerPool::builder().threads(2).clock(clock.clone()).start().unwrap();
        let (report, has_begun) = channel();
        let (end, may_end) = channel::<()>();
        let may_end = Mutex::new(may_end);
        let threads = Arc::<Mutex<BTreeMap<usize, String>>>::default();
        let seen = Arc::clone(&threads);
        let reconcile = move |_cx: &Context, key: &usize| -> Result<Action, BoxError> {
            seen.lock().insert(*key, thread::current().name().unwrap().to_owned());
            if *key == SLOW {
                report.send(()).unwrap();
                may_end.lock().recv().unwrap();
            }
            held.advance(Duration::from_nanos(7));
            if *key == BAD { Err(terminal("no answer").into()) } else { Ok(Action::await_change()) }
        };
        let observed = Arc::clone(&log);
        let builder = Controller::builder("vm", reconcile).clock(clock).max_concurrent_reconciles(2);
        let vms = builder.observe_runs(move |run| observed.add(run)).build().unwrap().start(&pool).unwrap();
        let run = |key: usize| {
            vms.enqueue(key);
            vms.wait(&key, Duration::MAX).unwrap();
        };

        vms.enqueue(SLOW);
        has_begun.recv().unwrap();
        for key in 0..RecentRun::MOST + 2 {
            run(key);
        }
        let list = log.list();
        assert_eq!((list.len(), list[0].key.as_str()), (RecentRun::MOST, "2"));
        assert_eq!(list[RecentRun::MOST - 1].key, (RecentRun::MOST + 1).to_string());
        assert_eq!((list[0].took, list[0].thread.as_str()), (Duration::from_nanos(7), threads.lock()[&2].as_str()));
        assert_eq!(list[0].key_state(), KeyState::Idle);

        for _ in 0..RecentRun::MOST_FAILED + 2 {
            run(BAD);
        }
        end.send(()).unwrap();
        vms.wait(&SLOW, Duration::MAX).unwrap();
        let list = log.list();
        let failed = list.iter().filter(|run| run.result() == "parked").count();
        // The first failure of the series stays.
        let most_failed = RecentRun::MOST_FAILED + 1;
        assert_eq!((list.len(), failed), (RecentRun::MOST + most_failed, most_failed));
        assert_eq!(list[0].key, SLOW.to_string(), "the list is in the order of the starts");
    }
}
