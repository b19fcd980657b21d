//! The handle of a controller.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failed_keys::FailedKey;
use super::observers::{EndedRun, RunOutcome};
use super::rate::{check_max_concurrent, check_rate};
use super::state::ControllerState;
use super::status::{ControllerMetrics, ControllerStatus, ManagedController};
use super::waiters::WaitError;
use crate::base::error::StartError;
use crate::queue::{Enqueue, EnqueueMethod, EnqueueOutcome, Key, Reasons, WorkQueue};
use crate::run::error::BoxError;
use crate::run::gate::Gate;
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

    /// Returns `None` if the controller has keys of another type.
    pub(crate) fn of(controller: Arc<dyn ManagedController>) -> Option<Self> {
        Arc::downcast(controller as Arc<dyn Any + Send + Sync>).ok().map(Self::new)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the queue.
    ///
    /// A stopped controller does not report the runs that its stop has dropped: a [`drain`](WorkQueue::drain) of its
    /// queue is empty. To name the work that is left, compare the desired state with the world after the end, for
    /// example the [`snapshot`](crate::Store::snapshot) of a watch's store.
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.state.queue
    }

    /// Enqueues a key now, for the reason [`MANUAL`](Reasons::MANUAL): calls
    /// [`enqueue_now`](crate::Enqueue::enqueue_now), which ends a delay. `queue().enqueue(key)` waits for its end.
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
        let now = self.state.clock.now();
        self.state.set_conditions(|conditions| conditions.suspended = conditions.suspended.or(Some(now)));
    }

    /// Resumes the controller. Keys that were suspended one by one stay suspended.
    pub fn resume_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = None);
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
        self.state.started.get().into_iter().for_each(|started| started.membership.set_limit(runs));
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
        self.state.rate.set(rate);
        self.state.started.get().into_iter().for_each(|started| started.membership.release());
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

    /// Returns whether the initial listings of all sources are complete.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.state.conditions().synced
    }

    /// Returns the error that stopped the controller: a [`ControllerError`](super::ControllerError). `None` if it has
    /// not failed.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<BoxError>> {
        self.state.end.failure()
    }

    /// Returns the counts and measurements so far. Takes the locks of the queue and the pool for a moment each.
    #[must_use]
    pub fn metrics(&self) -> ControllerMetrics {
        self.state.metrics()
    }

    /// Returns the keys that will not be retried, with their last errors, the oldest first.
    ///
    /// Returns at most [`max_failed_keys`](super::ControllerBuilder::max_failed_keys) keys. With more, the controller
    /// forgets the keys that were parked first: the metrics do not count them, and [`retry_now`](Self::retry_now) does
    /// not run them. A [stop](crate::Running::shutdown) that aborts or drops runs adds no key.
    #[must_use]
    pub fn parked(&self) -> Vec<FailedKey<K>> {
        self.state.failed.list(true)
    }

    /// Returns the keys that failed in their last run and will be retried, the oldest error first.
    ///
    /// Returns at most [`max_failed_keys`](super::ControllerBuilder::max_failed_keys) keys. [`metrics`](Self::metrics)
    /// counts all. A [cancelled](crate::WorkQueue::cancel) key leaves this list. A [stop](crate::Running::shutdown)
    /// that aborts or drops runs adds no key.
    #[must_use]
    pub fn failing(&self) -> Vec<FailedKey<K>> {
        self.state.failing()
    }

    /// Enqueues all parked and failing keys now, regardless of backoff. Returns their number.
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn retry_now(&self) -> usize {
        let keys = self.state.failed.keys();
        let queue = self.state.queue.because(Reasons::MANUAL);
        queue.request_all(&mut keys.into_iter(), EnqueueMethod::Reschedule(Duration::ZERO).into()).total()
    }

    /// Forgets the failure of a key without running it. Returns whether the key was dismissed.
    ///
    /// The key leaves [`parked`](Self::parked) or [`failing`](Self::failing), the status and the metrics. For a failing
    /// key, this cancels the scheduled run and all requests that share it. A parked key keeps a run that was requested
    /// since. Later requests run the key as usual.
    ///
    /// Returns false if the key has not failed. Also returns false if a retry of the key is running now, because that
    /// run decides.
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context, Controller, Exponential, WorkerPool};
    /// use std::time::Duration;
    ///
    /// let pool = WorkerPool::builder().start()?;
    /// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Err("no such image".into()) };
    /// let never = Exponential::default().max_retries(0);
    /// let vms = Controller::builder("vm", reconcile).retry(never).build()?.start(&pool)?;
    /// vms.enqueue("vm-1");
    /// vms.wait(&"vm-1", Duration::from_secs(10))?;
    /// assert!(vms.dismiss(&"vm-1"));
    /// assert!(vms.parked().is_empty());
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn dismiss(&self, key: &K) -> bool {
        let mut gone = None;
        let dismissed = self.state.failed.forget_if(key, |parked| {
            parked || {
                let (cancelled, key) = self.state.queue.cancel_unless_processing(key);
                gone = key;
                cancelled
            }
        });
        self.state.waiters.settle(Some(key));
        drop(gone);
        dismissed
    }

    /// Blocks until a key is idle and its earlier changes have been handled.
    ///
    /// First waits until all changes that the sources accepted before this call are in the queue. A watch accepts a
    /// change when the call that makes it returns ([`Push::set`](crate::watch::Push::set), for example), a poller when
    /// its listing returns. A change in a client or in a file reaches the watch later: this call may return `None`
    /// before the run. In a test, call [`enqueue`](Self::enqueue) first.
    ///
    /// Then waits until `key` is idle: it is not queued or running, has no pending retry, and no change waits for a
    /// debounce or a [minimum interval](crate::controller::ControllerBuilder::min_interval), for a
    /// [gate](crate::run::Gate) or, from a [soft](crate::Subscriber::soft) subscriber, for the end of another delay.
    ///
    /// A run that the key itself requested for later does not count, nor does one that was requested for later without
    /// a [reason](crate::Reasons). A suspended key with a pending request is not idle. No key runs before the initial
    /// listings are complete: see [`wait_synced`](Self::wait_synced).
    ///
    /// Returns the outcome of the last run that started after this call. `None` if no run started, even if an earlier
    /// run has ended meanwhile.
    ///
    /// The end of a run, a delivery from a source, a cancellation and the end of the controller wake it. The timeout
    /// follows the controller's clock. Do not call this in a run of the same key or in a mapping of a source: it cannot
    /// succeed there.
    ///
    /// In a run of **another controller of the same pool** (or the same manager), the wait occupies a thread of the
    /// pool, which the awaited key may need. If all threads wait like this, none of the waits succeeds. Return from the
    /// run instead and enqueue its key when the other one has changed, or give the awaited controller [its own
    /// threads](crate::controller::ControllerBuilder::own_threads).
    ///
    /// # Errors
    ///
    /// - [`WaitError::Timeout`] if the timeout passes first.
    /// - [`WaitError::NotSynced`] if the timeout passes first, and the initial listings are not complete.
    /// - [`WaitError::NotStarted`] if the timeout passes first, and the controller has not been started.
    /// - [`WaitError::Stopped`] if the controller is stopped first.
    /// - [`WaitError::Failed`] if the controller fails first.
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context, Controller, Watch, WorkerPool};
    /// use homeostat::controller::RunOutcome;
    /// use std::time::Duration;
    ///
    /// let vms = Watch::<&str, u64>::push();
    /// vms.synced();
    /// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    /// let controller = Controller::builder("vm", reconcile).watch(vms.watch(), |event| event.key().copied()).build()?;
    /// let pool = WorkerPool::builder().start()?;
    /// let running = controller.start(&pool)?;
    /// running.wait_synced(Duration::from_secs(10))?;
    ///
    /// vms.set("vm-1", 4);
    /// running.wait(&"vm-1", Duration::from_secs(10))?;
    /// assert_eq!(running.metrics().runs.successes, 1);
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn wait(&self, key: &K, timeout: Duration) -> Result<Option<RunOutcome>, WaitError> {
        let state = &*self.state;
        let deadline = state.clock.nanos().after(timeout);
        // First, so that runs of the accepted changes are counted.
        let wait = state.waiters.start(key);
        let accepted = state.sources.accepted();
        let waited = wait.wait(deadline, || accepted.are_enqueued() && state.queue.is_settled(key));
        // Not `has_synced`, which is set a moment after the last listing.
        waited.map_err(|error| self.explain(error, matches!(state.sources.syncing(), super::sources::Syncing::Synced)))
    }

    /// Blocks until the initial listings of all sources are complete. Keys can run from then on.
    ///
    /// Returns at once if they are already complete, even after the controller has ended. The last initial listing and
    /// the end of the controller wake it. The timeout follows the controller's clock. For a controller that has not
    /// been started, this also waits for the start.
    ///
    /// # Errors
    ///
    /// - [`WaitError::NotSynced`] if the timeout passes first.
    /// - [`WaitError::NotStarted`] if the timeout passes first, and the controller has not been started.
    /// - [`WaitError::Stopped`] if the controller is stopped first.
    /// - [`WaitError::Failed`] if the controller fails first. [`failure`](Self::failure) names the source without a
    ///   complete listing.
    pub fn wait_synced(&self, timeout: Duration) -> Result<(), WaitError> {
        let deadline = self.state.clock.nanos().after(timeout);
        self.state.waiters.wait_until(deadline, || self.has_synced()).map_err(|error| self.explain(error, false))
    }

    /// Explains a timeout before the start, or before the initial listings are complete.
    fn explain(&self, error: WaitError, synced: bool) -> WaitError {
        match error {
            WaitError::Timeout if self.state.started.get().is_none() => WaitError::NotStarted,
            WaitError::Timeout if !synced => WaitError::NotSynced,
            error => error,
        }
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

    /// Returns the status of the controller. Visits only the suspended keys and the failed keys with kept errors.
    #[must_use]
    pub fn status(&self) -> ControllerStatus {
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
