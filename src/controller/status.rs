//! The status and the metrics of a controller.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failed_keys::FailedKey;
use super::observers::RunObserver;
use super::state::{ControllerState, RunConditions};
use crate::base::group::{SeenRun, WorkerSlot};
use crate::base::text::{OneLine, ShownKey};
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Key, KeyState, QueueMetrics, Reasons};
use crate::run::fence::Fence;
use crate::run::gate::GateKey;
use crate::run::metrics::{self, Histogram, WorkersMetrics};
use crate::watch::source::{SourceHandle, SourceStatus};

/// The counts and measurements of a controller.
///
/// While the controller runs, the numbers come from slightly different instants. No counter ever falls.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let vms = Controller::builder("vm", reconcile).build()?.start(&pool)?;
/// vms.enqueue("vm-1");
/// vms.wait(&"vm-1", Duration::from_secs(10))?;
/// let metrics = vms.metrics();
/// assert_eq!((metrics.runs.successes, metrics.queue.adds, metrics.work_time.count()), (1, 1, 1));
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerMetrics {
    /// Runs by result.
    pub runs: WorkersMetrics,
    /// The contents of the queue.
    pub queue: QueueMetrics,
    /// The time from the enqueue of a key to its run.
    pub queue_time: Histogram,
    /// The duration of runs.
    pub work_time: Histogram,
    /// The sum of the elapsed times of the active runs.
    pub unfinished_work: Duration,
    /// The longest elapsed time of an active run.
    pub longest_running: Duration,
    /// The limit on active runs.
    pub max_concurrent_reconciles: usize,
    /// The number of keys that failed in their last run and will be retried.
    pub failing: usize,
    /// The number of keys that will not be retried.
    pub parked: usize,
    /// The number of keys that are suspended one by one.
    pub suspended: usize,
    /// The number of active runs that are overruns.
    pub overdue: usize,
    /// The number of sources that are failing.
    pub failing_sources: usize,
    /// The number of failures of all sources.
    pub source_failures: u64,
}

/// The state of a controller at one moment. Keys are formatted with `Debug`.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller};
/// use homeostat::controller::ControllerPhase;
///
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let controller = Controller::builder("vm", reconcile).build()?;
/// let status = controller.handle().status();
/// assert_eq!((status.name.as_str(), status.phase), ("vm", ControllerPhase::Syncing));
/// assert!(status.running.is_empty());
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ControllerStatus {
    /// The name.
    pub name: String,
    /// Whether keys are run, and the reason if not.
    pub phase: ControllerPhase,
    /// The active runs.
    pub running: Vec<ActiveRun>,
    /// The key that has been ready longest, and its waiting time. A raised priority moves a key behind the others of
    /// its new level; then this may be a younger key at the head of a level.
    pub oldest_waiting: Option<(String, Duration)>,
    /// The delayed key that becomes due first, and its due time.
    pub next_due: Option<(String, Instant)>,
    /// Keys that failed in their last run and will be retried.
    pub failing: Vec<FailedKey<String>>,
    /// Keys that will not be retried.
    pub parked: Vec<FailedKey<String>>,
    /// The time since which all keys are suspended. `None` if the controller is not suspended.
    pub suspended_since: Option<Instant>,
    /// The keys that are suspended one by one, and the times of their suspensions.
    pub suspended: Vec<(String, Instant)>,
    /// The states of the gates that show one, as lines of text. For keys divided among processes, the members of the
    /// group.
    pub gates: Vec<String>,
    /// The health of the sources, in the order in which they were added. Empty before the start.
    pub sources: Vec<SourceStatus>,
    /// The same facts as numbers.
    pub metrics: ControllerMetrics,
}

/// The phase of a controller: whether it runs keys, and the reason if not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerPhase {
    /// Initial listings are not complete, or the controller has not been started.
    #[default]
    Syncing,
    /// Another process leads.
    Standby,
    /// The controller is suspended.
    Suspended,
    /// Keys are run.
    Running,
    /// The controller has been stopped.
    Stopped,
}

impl fmt::Display for ControllerPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Syncing => "syncing",
            Self::Standby => "standby",
            Self::Suspended => "suspended",
            Self::Running => "running",
            Self::Stopped => "stopped",
        })
    }
}

impl From<RunConditions> for ControllerPhase {
    fn from(conditions: RunConditions) -> Self {
        match conditions {
            RunConditions { stopped: true, .. } => Self::Stopped,
            RunConditions { suspended: Some(_), .. } => Self::Suspended,
            RunConditions { synced: false, .. } => Self::Syncing,
            RunConditions { leading: false, .. } => Self::Standby,
            _ => Self::Running,
        }
    }
}

/// An active run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveRun {
    /// The key, formatted with `Debug`.
    pub key: String,
    /// The name of the thread.
    pub thread: String,
    /// The reasons of all requests that led to the run.
    pub reasons: Reasons,
    /// The time since the start of the run.
    pub elapsed: Duration,
    /// The time from the start of the run to its deadline. `None` without a deadline.
    pub timeout: Option<Duration>,
    /// Whether the run is an overrun: still active 100 ms after its deadline.
    pub overdue: bool,
}

impl<K: Key> ControllerState<K> {
    /// Returns the sources that matter for health. An added source that has ended before its first listing never lists.
    /// That fails no controller, so nobody waits for it.
    fn awaited_sources(&self) -> Vec<SourceStatus> {
        let is_syncing = self.phase() == ControllerPhase::Syncing;
        let handles = self.sources.handles();
        let awaited = handles.iter().filter(|source| is_syncing || !source.synced().is_given_up());
        awaited.map(SourceHandle::status).collect()
    }

    pub(super) fn source_statuses(&self) -> Vec<SourceStatus> {
        self.sources.handles().iter().map(SourceHandle::status).collect()
    }

    pub(super) fn phase(&self) -> ControllerPhase {
        self.conditions().into()
    }

    /// Returns the active runs of this controller.
    fn active_runs(&self) -> Vec<SeenRun> {
        let slots = || self.started.get().map(|started| started.membership.slots()).unwrap_or_default();
        let mut runs: Vec<_> = slots().iter().filter_map(WorkerSlot::look).collect();
        // A thread may have moved to another controller before the look. Then its run does not belong to this
        // controller.
        let still = slots();
        runs.retain(|run| still.iter().any(|slot| Arc::ptr_eq(slot, &run.slot)) && run.goes_on());
        runs
    }

    pub(super) fn metrics(&self) -> ControllerMetrics {
        let counters = self.counters.lock().clone();
        let now = self.clock.nanos();
        let runs = self.active_runs();
        let running: Vec<_> = runs.iter().map(|run| now.since(run.since)).collect();
        let [failing, parked] = self.failed.counts();
        let sources = self.source_statuses();
        let mut metrics = ControllerMetrics {
            runs: metrics::sum(&counters, &self.overruns, running.len()),
            queue: self.queue.metrics(),
            unfinished_work: running.iter().sum(),
            longest_running: running.iter().max().copied().unwrap_or_default(),
            max_concurrent_reconciles: *self.max_concurrent.lock(),
            failing,
            parked,
            suspended: self.suspended.keys.lock().len(),
            overdue: runs.iter().filter(|run| run.slot.is_overdue()).count(),
            failing_sources: sources.iter().filter(|source| source.failing_for.is_some()).count(),
            source_failures: sources.iter().map(|source| source.failures).sum(),
            ..ControllerMetrics::default()
        };
        for own in &counters {
            own.queue_time.add_to(&mut metrics.queue_time);
            own.work_time.add_to(&mut metrics.work_time);
        }
        metrics
    }

    /// Sets the time of the next try as the queue knows it: a request may have changed it since the failure.
    fn with_next_try(&self, failed: FailedKey<K>) -> FailedKey<K> {
        let next_try = if let KeyState::Delayed(due) = self.queue.state(&failed.key) { due } else { None };
        FailedKey { next_try, ..failed }
    }

    /// Returns the failing keys with the times of their next tries, the oldest error first.
    pub(super) fn failing(&self) -> Vec<FailedKey<K>> {
        self.failed.list(false).into_iter().map(|failed| self.with_next_try(failed)).collect()
    }
}

impl<K: Key + fmt::Debug> ControllerState<K> {
    /// Returns the active runs on the slots for which `is_shown` returns true.
    fn running(&self, is_shown: impl Fn(&WorkerSlot) -> bool) -> Vec<ActiveRun> {
        let now = self.clock.nanos();
        let runs = self.active_runs().into_iter().filter(|run| is_shown(&run.slot));
        let runs = runs.filter_map(|run| {
            let key = self.queue.shared.key_in_process(run.record)?;
            // Otherwise the record may already belong to another key.
            run.goes_on().then(|| ActiveRun {
                key: show(&key),
                thread: run.slot.name.clone(),
                reasons: Reasons::of_bits(run.reasons),
                elapsed: now.since(run.since),
                timeout: (run.deadline != Nanos::NEVER).then(|| run.deadline.since(run.since)),
                overdue: run.slot.is_overdue(),
            })
        });
        runs.collect()
    }
}

/// A controller with keys of any type, as a manager uses it.
pub(crate) trait ManagedController: Any + Send + Sync {
    /// Lets the controller run keys, because this process leads.
    fn lead(&self, fence: &Fence);

    fn observe_runs(&self, observer: RunObserver);

    fn visit_keys(&self, visit: &mut dyn FnMut(&dyn GateKey) -> ControlFlow<()>);

    fn status(&self) -> ControllerStatus;

    /// Returns the status without keys.
    fn summary(&self) -> ControllerStatus;

    /// Returns why the controller is not live: overruns, and sources with a listing past its deadline.
    fn stuck(&self) -> Vec<String>;

    /// Returns why the controller is not ready. `bound` is the manager's limit for failing sources.
    fn unready(&self, bound: Duration) -> Vec<String>;
}

impl<K: Key + Sync + fmt::Debug> ManagedController for ControllerState<K> {
    fn lead(&self, fence: &Fence) {
        let _ = self.term.set(fence.clone());
        self.set_conditions(|conditions| conditions.leading = true);
    }

    fn observe_runs(&self, observer: RunObserver) {
        self.observers.add(observer);
    }

    fn visit_keys(&self, visit: &mut dyn FnMut(&dyn GateKey) -> ControlFlow<()>) {
        let suspended = self.suspended.list().into_iter().map(|(key, _)| key);
        let mut keys = self.failed.keys().into_iter().chain(suspended).chain(self.queue.shared.keys());
        let _ = keys.try_for_each(|key| visit(&self.taken(&key)));
    }

    fn status(&self) -> ControllerStatus {
        let now = self.clock.nanos();
        let shared = &self.queue.shared;
        let due = shared.next_delayed().and_then(|(key, due)| Some((show(&key), self.clock.instant(due)?)));
        let shown = |failed: Vec<FailedKey<K>>| failed.into_iter().map(|failed| failed.with_key(show)).collect();
        ControllerStatus {
            running: self.running(|_| true),
            oldest_waiting: shared.oldest().map(|(key, since)| (show(&key), now.since(since))),
            next_due: due,
            failing: shown(self.failing()),
            parked: shown(self.failed.list(true)),
            suspended: self.suspended.list().iter().map(|(key, since)| (show(key), *since)).collect(),
            gates: self.gates.iter().filter_map(|gate| gate.status()).collect(),
            ..self.summary()
        }
    }

    fn summary(&self) -> ControllerStatus {
        ControllerStatus {
            name: self.name.clone(),
            phase: self.phase(),
            suspended_since: self.conditions().suspended,
            sources: self.source_statuses(),
            metrics: self.metrics(),
            ..ControllerStatus::default()
        }
    }

    fn stuck(&self) -> Vec<String> {
        let runs = self.running(WorkerSlot::is_overdue).into_iter().map(|run| {
            let (key, took, timeout) = (OneLine(&run.key), Rounded(run.elapsed), run.timeout.unwrap_or_default());
            format!("{key} has been running for {took}, past its timeout of {}", Rounded(timeout))
        });
        let sources = self.awaited_sources().into_iter().filter(|source| source.overdue);
        runs.chain(sources.map(|source| format!("{}: {}", OneLine(&source.name), source.overdue_text()))).collect()
    }

    fn unready(&self, bound: Duration) -> Vec<String> {
        let (phase, bound) = (self.phase(), self.unready_after.unwrap_or(bound));
        let is_stopped = phase == ControllerPhase::Stopped;
        // Not only while the controller is syncing: a suspended one may be too, and sources may be added later.
        let (known, missing): (Vec<_>, Vec<_>) =
            self.awaited_sources().into_iter().partition(|source| source.synced || is_stopped);
        let mut reasons = Vec::new();
        if phase == ControllerPhase::Syncing || !missing.is_empty() {
            let missing = missing.iter().map(|source| format!("{}{}", OneLine(&source.name), source.why()));
            let missing = missing.collect::<Vec<_>>().join(", ");
            let of = if missing.is_empty() { String::new() } else { format!(": {missing}") };
            reasons.push(format!("its first listings have not completed{of}"));
        }
        let failing =
            |source: &SourceStatus| Some(format!("{}: {}", OneLine(&source.name), source.failing_beyond(bound)?));
        reasons.extend(known.iter().filter_map(failing));
        reasons
    }
}

fn show<K: fmt::Debug>(key: &K) -> String {
    format!("{:?}", ShownKey(key))
}
