//! The handle of a controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::rate::check_rate;
use super::state::ControllerState;
use super::status::{ControllerHealth, ControllerMetrics, ControllerStatus};
use crate::base::error::StartError;
use crate::queue::{Enqueue, EnqueueOutcome, Key, Reasons, WorkQueue};
use crate::run::error::BoxError;
use crate::watch::source::SourceHandle;

/// A handle of a controller, for the rest of the program. Cheap to clone. It neither keeps the controller running, nor stops it.
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

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the queue, to feed it in other ways or to inspect it.
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.state.queue
    }

    /// Enqueues a key now, for the reason [`MANUAL`](Reasons::MANUAL). In backoff, waits at least the
    /// [floor](crate::RetryPolicy::floor). Returns [`EnqueueOutcome::Closed`] once the controller has been stopped, or dropped
    /// before its start.
    pub fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.state.queue.because(Reasons::MANUAL).enqueue_now(key)
    }

    /// Starts no run of the key until it is [resumed](Self::resume). A run under way continues. Requests and the number of
    /// failures are kept.
    #[doc(alias = "pause")]
    pub fn suspend(&self, key: K) {
        self.state.suspended.suspend(key);
    }

    /// Allows runs of the key again. If the key was requested meanwhile, it is enqueued now.
    pub fn resume(&self, key: &K) {
        let queue = &self.state.queue;
        self.state.suspended.resume(key, |reasons| {
            queue.because(reasons).reschedule(key.clone(), Duration::ZERO);
        });
    }

    /// Takes no key until [`resume_all`](Self::resume_all). Runs under way continue, and keys can be enqueued.
    pub fn suspend_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = true);
    }

    /// Runs keys again, except those that are suspended one by one.
    pub fn resume_all(&self) {
        self.state.set_conditions(|conditions| conditions.suspended = false);
    }

    /// Sets how many keys are run at once. Runs under way continue.
    ///
    /// # Errors
    ///
    /// If `runs` is zero. To run no key, call [`suspend_all`](Self::suspend_all).
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

    /// Sets the time between two resyncs, counted from the last one; `None` for no resyncs.
    ///
    /// # Errors
    ///
    /// If `interval` is zero.
    pub fn set_resync(&self, interval: Option<Duration>) -> Result<(), StartError> {
        if interval == Some(Duration::ZERO) {
            return Err(StartError::setting("resync", &Duration::ZERO, "longer than zero"));
        }
        *self.state.resync.lock() = interval;
        self.state.control.set();
        Ok(())
    }

    /// Sets the period of all pollers of the controller.
    ///
    /// # Errors
    ///
    /// If `period` is zero, or no poller is running.
    pub fn set_period(&self, period: Duration) -> Result<(), StartError> {
        if self.state.sources.set_period(period)? {
            return Ok(());
        }
        Err(StartError::setting("period", &period, "for a controller that polls"))
    }

    /// Sets the rate at which keys are taken, as [`rate_limit`](super::ControllerBuilder::rate_limit); `None` for no limit.
    ///
    /// # Errors
    ///
    /// If the rate is not positive, or the burst is zero.
    pub fn set_rate_limit(&self, rate: Option<(f64, u32)>) -> Result<(), StartError> {
        check_rate(rate)?;
        self.state.set_rate(rate);
        Ok(())
    }

    /// Returns handles of the sources, in the order in which they were added: for their status, and to trigger a listing. Empty
    /// before the start. Includes sources that have ended.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceHandle> {
        self.state.sources.handles()
    }

    /// Returns the facts that the health of a manager is made of.
    pub(crate) fn health(&self) -> ControllerHealth<K> {
        self.state.health()
    }

    /// Returns whether the initial listings of all sources are in.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.state.conditions().synced
    }

    /// Stops the controller, even if it was never started. Runs under way continue.
    pub(crate) fn close(&self) {
        self.state.stop();
    }

    /// This process leads from now on.
    pub(crate) fn lead(&self) {
        self.state.set_conditions(|conditions| conditions.leading = true);
    }

    /// Returns why the controller stopped by itself: a [`ControllerError`](super::ControllerError). `None` if it did not.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<BoxError>> {
        self.state.failure()
    }

    /// Returns the counts and measurements so far. Takes the locks of the queue and the pool for a moment each.
    #[must_use]
    pub fn metrics(&self) -> ControllerMetrics {
        self.state.metrics()
    }

    /// Exports counters and gauges to the `metrics` facade. Call this before the facade's recorder is read.
    ///
    /// Durations are recorded as runs end, by the recorder that was installed when the controller was started. Names come from
    /// client-go's work queue (`workqueue_…`, label `name`) and from controller-runtime (`controller_runtime_…`, label
    /// `controller`). Others begin with `homeostat_` and have the label `controller`.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self) {
        super::export::export(&self.state.name, &self.state.metrics(), &self.state.source_statuses());
    }

    /// Returns the state of the controller. Looks at every key of the queue, under its lock.
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
