//! The handle of a controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::observers::EndedRun;
use super::rate::{check_max_concurrent, check_rate};
use super::state::ControllerState;
use super::status::{ControllerHealth, ControllerMetrics, ControllerStatus};
use crate::base::error::StartError;
use crate::queue::{Enqueue, EnqueueOutcome, Key, Reasons, WorkQueue};
use crate::run::error::BoxError;
use crate::run::fence::Fence;
use crate::run::gate::{Gate, GateKey};
use crate::watch::source::SourceHandle;

/// A handle of a controller. Cheap to clone. Clones and drops do not affect the controller.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, EnqueueOutcome, WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let controller = Controller::builder("vm", reconcile).build()?;
/// let vms = controller.handle();
/// let running = controller.start(&pool)?;
///
/// vms.suspend("vm-1");
/// assert_eq!(vms.enqueue("vm-1"), EnqueueOutcome::Queued);
/// vms.resume(&"vm-1");
/// vms.wait(&"vm-1", Duration::from_secs(10))?;
/// assert_eq!(vms.metrics().runs.successes, 1);
///
/// running.shutdown(Duration::from_secs(1))?;
/// assert_eq!(vms.enqueue("vm-1"), EnqueueOutcome::Closed);
/// # Ok::<_, BoxError>(())
/// ```
pub struct ControllerHandle<K: Key> {
    pub(super) state: Arc<ControllerState<K>>,
}

impl<K: Key + Sync + fmt::Debug> ControllerHandle<K> {
    pub(super) fn new(state: Arc<ControllerState<K>>) -> Self {
        Self { state }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the queue.
    ///
    /// A stopped controller does not report the runs that its stop has dropped.
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.state.queue
    }

    /// Enqueues a key now, for the reason [`MANUAL`](Reasons::MANUAL).
    ///
    /// In backoff, the run waits at least for the [floor](crate::RetryPolicy::floor). Returns
    /// [`EnqueueOutcome::Closed`] once the controller has been stopped, or dropped before its start.
    pub fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.state.queue.because(Reasons::MANUAL).enqueue_now(key)
    }

    /// Suspends a key until it is [resumed](Self::resume). Meanwhile no run of the key starts.
    ///
    /// An active run continues. Requests and the number of failures are kept.
    #[doc(alias = "pause")]
    pub fn suspend(&self, key: K) {
        self.state.suspended.suspend(key);
    }

    /// Resumes a key. A run that was due meanwhile is enqueued now.
    pub fn resume(&self, key: &K) {
        self.state.suspended.resume(key, || self.state.queue.release(key));
    }

    /// Suspends all keys until [`resume_all`](Self::resume_all). Active runs continue, and keys can be enqueued.
    pub fn suspend_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = true);
    }

    /// Resumes the controller. Keys that were suspended one by one stay suspended.
    pub fn resume_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = false);
    }

    /// Sets the number of keys that may run at once. Active runs continue.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if `runs` is zero. To run no key, call [`suspend_all`](Self::suspend_all).
    pub fn set_max_concurrent_reconciles(&self, runs: usize) -> Result<(), StartError> {
        check_max_concurrent(runs)?;
        let mut current = self.state.max_concurrent.lock();
        *current = runs;
        if let Some(started) = self.state.started() {
            started.membership.set_limit(runs);
        }
        Ok(())
    }

    /// Sets the time between two resyncs, counted from the last one; `None` for no resyncs.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if `interval` is zero.
    pub fn set_resync(&self, interval: Option<Duration>) -> Result<(), StartError> {
        interval.map_or(Ok(()), |interval| StartError::check_time("resync", interval))?;
        *self.state.resync.lock() = interval;
        self.state.wake_control();
        Ok(())
    }

    /// Sets the period of all pollers of the controller.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if `period` is zero, or if no poller is running.
    pub fn set_period(&self, period: Duration) -> Result<(), StartError> {
        StartError::check_time("period", period)?;
        if self.state.sources.set_period(period) {
            return Ok(());
        }
        Err(StartError::named("controller", self.name(), "has no poller"))
    }

    /// Sets the rate limit, like [`rate_limit`](super::ControllerBuilder::rate_limit). `None` removes it.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the rate is not positive, or if the burst is zero.
    pub fn set_rate_limit(&self, rate: Option<(f64, u32)>) -> Result<(), StartError> {
        check_rate(rate)?;
        self.state.set_rate(rate);
        Ok(())
    }

    /// Returns handles of the sources, in the order in which they were added.
    ///
    /// A handle shows the status of its source, and can start a listing. The list is empty before the start, and
    /// includes sources that have ended.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceHandle> {
        self.state.sources.handles()
    }

    /// Returns the controller's part of the manager's health.
    pub(crate) fn health(&self) -> ControllerHealth<K> {
        self.state.health()
    }

    /// Returns whether the initial listings of all sources are complete.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.state.conditions().synced
    }

    /// Lets the controller run keys, because this process leads.
    pub(crate) fn lead(&self, fence: &Fence) {
        self.state.enter_term(fence);
        self.state.set_conditions(|conditions| conditions.leading = true);
    }

    /// Returns the error that stopped the controller: a [`ControllerError`](super::ControllerError). `None` if it has
    /// not failed.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<BoxError>> {
        self.state.failure()
    }

    /// Returns the counts and measurements so far. Takes the locks of the queue and the pool for a moment each.
    #[must_use]
    pub fn metrics(&self) -> ControllerMetrics {
        self.state.metrics()
    }

    /// Returns the [gate](super::ControllerBuilder::gate) with this type, if the controller has one.
    #[must_use]
    pub fn gate<G: Gate>(&self) -> Option<Arc<G>> {
        self.state.gates.find()
    }

    /// Calls `observer` at the end of each run from now on, on the thread of the run and without a lock, before the key
    /// can run again. A panic of the observer is logged.
    ///
    /// An observer costs a short lock at the end of each run, which all threads of the controller share. It stays until
    /// the controller is dropped.
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    ///
    /// let pool = WorkerPool::builder().start()?;
    /// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    /// let vms = Controller::builder("vm", reconcile).build()?.start(&pool)?;
    /// let runs = Arc::new(Mutex::new(Vec::new()));
    /// let journal = runs.clone();
    /// vms.observe_runs(move |run| {
    ///     journal.lock().unwrap().push(format!("{:?} {} ({})", run.key, run.outcome, run.reasons));
    /// });
    /// vms.enqueue("vm-1");
    /// vms.wait(&"vm-1", Duration::from_secs(10))?;
    /// assert_eq!(*runs.lock().unwrap(), ["\"vm-1\" succeeded (manual)"]);
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn observe_runs(&self, observer: impl Fn(&EndedRun<'_>) + Send + Sync + 'static) {
        self.state.observers.add(Arc::new(observer));
    }

    /// Calls `visit` for each key that runs, has failed, is suspended, or is first in the queue. It may see a key more
    /// than once.
    pub fn visit_keys(&self, mut visit: impl FnMut(&dyn GateKey)) {
        let state = &*self.state;
        let queue = &state.queue.shared;
        let first = [queue.oldest(), queue.next_delayed()].into_iter().flatten().map(|(key, _)| key);
        let running = state.running().into_iter().map(|run| run.key);
        for key in running.chain(first).chain(state.failed.keys()).chain(state.suspended.list()) {
            visit(&state.taken(&key));
        }
    }

    /// Returns the status of the controller. Visits only the suspended keys and the failed keys with kept errors.
    #[must_use]
    pub fn status(&self) -> ControllerStatus<K> {
        self.state.status()
    }
}

impl<K: Key> Clone for ControllerHandle<K> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K: Key> fmt::Debug for ControllerHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle")
            .field("name", &self.state.name)
            .field("phase", &self.state.phase())
            .field("queue", &self.state.queue)
            .finish_non_exhaustive()
    }
}
