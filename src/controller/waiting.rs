//! Blocking waits on a controller: for an idle key, and for the initial listings.

use std::fmt;
use std::time::Duration;

use super::handle::ControllerHandle;
use super::observers::RunOutcome;
use super::waiters::WaitError;
use crate::queue::Key;

impl<K: Key + Sync + fmt::Debug> ControllerHandle<K> {
    /// Blocks until a key is idle and its earlier changes have been handled.
    ///
    /// First waits until all changes that the sources accepted before this call are in the queue. A watch accepts a
    /// change when the call that makes it returns ([`Push::set`](crate::watch::Push::set), for example), a poller when
    /// its listing returns. Then waits until `key` is idle: it is not queued or running, has no pending retry, and no
    /// change waits for a debounce or a [minimum interval](crate::controller::ControllerBuilder::min_interval), for a
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
        wait.wait(deadline, || accepted.are_enqueued() && state.queue.is_settled(key))
    }

    /// Blocks until the initial listings of all sources are complete. Keys can run from then on.
    ///
    /// Returns at once if they are already complete, even after the controller has ended. The last initial listing and
    /// the end of the controller wake it. The timeout follows the controller's clock. For a controller that has not
    /// been started, this also waits for the start.
    ///
    /// # Errors
    ///
    /// - [`WaitError::Timeout`] if the timeout passes first.
    /// - [`WaitError::Stopped`] if the controller is stopped first.
    /// - [`WaitError::Failed`] if the controller fails first. [`failure`](Self::failure) names the source without a
    ///   complete listing.
    pub fn wait_synced(&self, timeout: Duration) -> Result<(), WaitError> {
        let deadline = self.state.clock.nanos().after(timeout);
        self.state.waiters.wait_until(deadline, || self.has_synced())
    }
}
