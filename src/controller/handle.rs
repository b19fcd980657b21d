//! A controller as the rest of the program has it, and as it runs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::builder::check_rate;
use super::state::{ControllerState, Started};
use super::status::{ControllerHealth, ControllerMetrics, ControllerStatus};
use crate::base::error::StartError;
use crate::base::group::{Ended, Handle, StillRunning};
use crate::base::thread::Joiner;
use crate::base::time::Rounded;
use crate::queue::{Enqueue, EnqueueOutcome, Key, Reasons, WorkQueue};
use crate::run::error::BoxError;
use crate::run::pool::WorkerPool;
use crate::watch::source::SourceHandle;

/// What the rest of the program has of a controller. Cheap to clone; it neither keeps the controller running nor stops it.
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
/// running.shutdown(Duration::from_secs(1));
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its queue, to feed it in other ways, or to look into it.
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.state.queue
    }

    /// Puts a key in line, for the reason [`MANUAL`](Reasons::MANUAL); a backoff is cut short to its
    /// [floor](crate::RetryPolicy::floor). [`EnqueueOutcome::Closed`] once the controller has been stopped, or dropped before it
    /// was started.
    pub fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.state.queue.because(Reasons::MANUAL).enqueue_now(key)
    }

    /// No run of the key begins until it is [resumed](Self::resume). One under way goes on. What wants it meanwhile is remembered, and
    /// so is how often it has failed.
    #[doc(alias = "pause")]
    pub fn suspend(&self, key: K) {
        self.state.suspended.suspend(key);
    }

    /// The key is run again. If anything has wanted it meanwhile, it is in line now.
    pub fn resume(&self, key: &K) {
        let queue = &self.state.queue;
        self.state.suspended.resume(key, |reasons| {
            queue.because(reasons).reschedule(key.clone(), Duration::ZERO);
        });
    }

    /// Once this has returned, no key is taken until all are [resumed](Self::resume_all). Keys in process go on, and keys come in line.
    pub fn suspend_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = true);
    }

    /// Keys are run again, but for those suspended one by one.
    pub fn resume_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = false);
    }

    /// How many keys are run at once, from now on. Runs under way go on.
    ///
    /// # Errors
    ///
    /// If it is zero; to run none, [suspend](Self::suspend_all) it.
    pub fn set_max_concurrent_reconciles(&self, runs: usize) -> Result<(), StartError> {
        if runs == 0 {
            return Err(StartError::setting("max_concurrent_reconciles", &0, "at least 1"));
        }
        let mut current = self.state.max_concurrent.lock();
        *current = runs;
        if let Some(started) = self.state.started() {
            started.membership.set_limit(runs);
        }
        Ok(())
    }

    /// The time between two resyncs, counted from the last one; `None` for none.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn set_resync(&self, interval: Option<Duration>) -> Result<(), StartError> {
        if interval == Some(Duration::ZERO) {
            return Err(StartError::setting("resync", &Duration::ZERO, "longer than zero"));
        }
        *self.state.resync.lock() = interval;
        self.state.control.set();
        Ok(())
    }

    /// The period of all its pollers.
    ///
    /// # Errors
    ///
    /// If it is zero, or none of its sources is a poller that has been started.
    pub fn set_period(&self, period: Duration) -> Result<(), StartError> {
        let sources = self.state.sources.lock();
        let mut set = sources.iter().filter_map(|source| source.change_period(period)).peekable();
        if set.peek().is_none() {
            return Err(StartError::setting("period", &period, "for a controller that polls"));
        }
        set.collect()
    }

    /// The rate at which keys are taken, as [`rate_limit`](super::ControllerBuilder::rate_limit); `None` for no limit.
    ///
    /// # Errors
    ///
    /// If it is not positive, or the burst is zero.
    pub fn set_rate_limit(&self, rate: Option<(f64, u32)>) -> Result<(), StartError> {
        check_rate(rate)?;
        self.state.set_rate(rate);
        Ok(())
    }

    /// Its sources, in the order in which they were given: to ask how one is doing, and to have it list right now. None before the
    /// controller has been started; all of them also after it has ended.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceHandle> {
        self.state.source_handles.lock().clone()
    }

    /// What the health of a manager is made of.
    pub(crate) fn health(&self) -> ControllerHealth<K> {
        self.state.health()
    }

    /// Whether the initial listings of all sources are in, so that keys are run.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.state.conditions().synced
    }

    /// Stops it, also if it was never started. Runs under way go on.
    pub(crate) fn close(&self) {
        self.state.stop();
    }

    /// Why it has stopped by itself: a [`ControllerError`](super::ControllerError). `None` if it has not.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<BoxError>> {
        self.state.failure()
    }

    /// What it has counted and measured so far. Takes the locks of its queue and its pool for a moment each.
    #[must_use]
    pub fn metrics(&self) -> ControllerMetrics {
        self.state.metrics()
    }

    /// Tells the `metrics` facade what has been counted: to be called before the facade's recorder is read. Durations are told as runs
    /// end, to the recorder that was installed when the controller was started. The names are those of client-go's work queue
    /// (`workqueue_…`, label `name`) and of controller-runtime (`controller_runtime_…`, label `controller`); what those do not count
    /// is `homeostat_…`, label `controller`.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self) {
        super::export::export(&self.state.name, self.state.metrics(), &self.state.source_statuses());
    }

    /// What it is doing, and why. Looks at every key of its queue, under the lock.
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

/// A controller that runs; all that a [`ControllerHandle`] can do, it can. Dropping it stops it and waits for its runs, see
/// [`shutdown`](Self::shutdown).
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use std::{convert::Infallible, time::Duration};
///
/// let pool = WorkerPool::builder().threads(2).start()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let vms = Controller::builder("vm", reconcile)
///     .poll(Duration::from_secs(30), |_cx| Ok::<_, Infallible>(["vm-1"]))
///     .build()?
///     .start(&pool)?;
/// assert!(!vms.name().is_empty());
/// vms.shutdown(Duration::from_secs(30));
/// # Ok::<_, BoxError>(())
/// ```
#[must_use = "dropping it stops the controller"]
pub struct RunningController<K: Key> {
    handle: ControllerHandle<K>,
    started: Arc<Started>,
    control: Handle,
    own_pool: Option<WorkerPool>,
    grace: Duration,
    detached: bool,
}

impl<K: Key> RunningController<K> {
    pub(super) fn new(
        handle: ControllerHandle<K>,
        started: Arc<Started>,
        control: Handle,
        own_pool: Option<WorkerPool>,
        grace: Duration,
    ) -> Self {
        Self { handle, started, control, own_pool, grace, detached: false }
    }

    pub(super) fn keep(&mut self, joiners: Vec<Joiner>) {
        self.control.keep(joiners);
    }

    /// Takes no further key: none once this has returned. Nothing that waits is dropped before it is stopped.
    pub(crate) fn close_running(&self) {
        self.handle.state.close();
    }

    /// Takes no further key, and ends its sources; runs under way go on. What is in line is dropped. Returns at once.
    pub fn stop(&self) {
        self.handle.state.stop();
        self.control.stop();
    }

    /// Stops, and cancels the contexts of runs and polls under way. Returns at once.
    pub fn abort(&self) {
        self.handle.state.abort();
        self.control.stop();
    }

    /// Waits for at most `timeout`, by its clock, until its runs and its sources have ended.
    ///
    /// # Errors
    ///
    /// [`StillRunning`], with the names of the threads that have not ended their work for it by then: it is in a run or a listing, or
    /// nothing has asked it to stop.
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        let state = Arc::clone(&self.handle.state);
        let deadline = state.clock.nanos().after(timeout);
        loop {
            let threads = self.join_ended();
            if threads.is_empty() {
                break;
            }
            if state.clock.reached(deadline) {
                return Err(StillRunning::new(threads));
            }
            state.end.event.wait_until(deadline);
        }
        if state.is_stopped() {
            self.started.membership.end();
            if let Some(pool) = self.own_pool.take() {
                pool.shutdown(Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Joins the threads that have ended, and returns the names of the others.
    fn join_ended(&mut self) -> Vec<String> {
        let mut threads = Vec::new();
        let ended: Vec<_> = {
            // A resync, a change of the period and a stop that come meanwhile reach all sources that run.
            let mut sources = self.handle.state.sources.lock();
            let ended = sources.extract_if(.., |source| source.crew().is_empty()).collect();
            threads.extend(sources.iter().flat_map(|source| source.crew().threads()));
            ended
        };
        for mut source in ended {
            let _ = source.join_timeout(Duration::MAX);
        }
        if let Err(still) = self.control.join_timeout(Duration::ZERO) {
            threads.extend_from_slice(still.threads());
        }
        threads.extend(self.started.membership.seats().iter().map(|slot| slot.name.clone()));
        threads
    }

    /// Stops, lets runs and polls under way go on for `grace`, then aborts them, and waits for their end. Blocks until every one has
    /// returned: to give up on one that ignores its cancellation, use [`stop`](Self::stop), [`join_timeout`](Self::join_timeout),
    /// [`abort`](Self::abort), `join_timeout` again, and [`detach`](Self::detach).
    pub fn shutdown(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.stop();
        if let Err(still) = self.join_timeout(grace) {
            let (controller, grace) = (self.handle.state.name.as_str(), Rounded(grace));
            let still_running = still.threads().join(", ");
            log::warn!(
                controller, grace:%, still_running:%;
                "{controller}: aborting after the grace period of {grace}; still running: {still_running}"
            );
            self.abort();
            // Threads that do not end hold it up: that is said above.
            let _ = self.join_timeout(Duration::MAX);
        }
    }

    /// Lets it go on without being stopped or joined.
    pub fn detach(mut self) {
        self.detached = true;
        self.control.detach();
        for source in std::mem::take(&mut *self.handle.state.sources.lock()) {
            source.detach();
        }
        if let Some(pool) = self.own_pool.take() {
            pool.detach();
        }
    }

    /// Calls `hook` whenever something of it has ended.
    pub(crate) fn on_end(&self, hook: &Ended) {
        self.handle.state.end.set_hook(hook);
        self.handle.state.end.notify();
    }

    /// This process leads now.
    pub(crate) fn lead(&self) {
        self.handle.state.set_conditions(|conditions| conditions.leading = true);
    }
}

impl<K: Key> Deref for RunningController<K> {
    type Target = ControllerHandle<K>;

    fn deref(&self) -> &ControllerHandle<K> {
        &self.handle
    }
}

impl<K: Key> Drop for RunningController<K> {
    fn drop(&mut self) {
        if !self.detached {
            self.end(self.grace);
        }
    }
}

impl<K: Key> fmt::Debug for RunningController<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningController").field("handle", &self.handle).finish_non_exhaustive()
    }
}
