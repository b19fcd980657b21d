//! Waiting for a controller: until a key is idle, until the initial listings are in.

use std::fmt;
use std::time::Duration;

use super::handle::ControllerHandle;
use super::waiters::{RunOutcome, WaitError};
use crate::queue::Key;

impl<K: Key + Sync + fmt::Debug> ControllerHandle<K> {
    /// Blocks until a key is idle, and all that its sources had accepted before this call has been acted upon.
    ///
    /// A source has accepted a change once the call that made it has returned ([`Push::set`](crate::watch::Push::set), say), and the
    /// keys of a poll once its listing has returned. This waits until the sources have put the keys of those in line, and then
    /// until nothing is in line or under way for `key`, no failure of it is to be tried again, and no change of it waits for the
    /// end of a debounce or of a [least interval](crate::controller::ControllerBuilder::min_interval). A run that the key has asked for later
    /// does not keep it from being idle. A key that is suspended, or whose controller is, is not idle while it is wanted. Before
    /// the initial listings are in no key is run: see [`wait_synced`](Self::wait_synced).
    ///
    /// Returns how the last of the key's runs that began after this call has ended; `None` if none did, also if one that was
    /// under way has ended.
    ///
    /// The end of a run wakes it, and so do what a source hands over, a cancellation, and the end of the controller. The timeout
    /// goes by the controller's clock. In a run of the same key, and in a mapping of one of the sources, it never returns in time.
    ///
    /// # Errors
    ///
    /// [`WaitError::Timeout`] if the time is over first, [`WaitError::Stopped`] or [`WaitError::Failed`] if the controller ends
    /// first.
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
        // First: runs of what the sources hand over from here on are counted.
        let wait = state.waiters.start(key);
        let accepted = state.sources.accepted();
        let handed_over = || accepted.iter().all(|handed_over| handed_over());
        let is_idle = || state.queue.is_settled(key);
        wait.wait(deadline, || handed_over() && state.suspended.is_idle(key, is_idle))
    }

    /// Blocks until the initial listings of all sources are in, so that keys are run as soon as nothing else holds them. Returns
    /// at once if they are, also after the controller has ended.
    ///
    /// The end of the last initial listing wakes it, and the end of the controller. The timeout goes by the controller's clock. A
    /// controller that has not been started has no listings, so this waits for its start too.
    ///
    /// # Errors
    ///
    /// [`WaitError::Timeout`] if the time is over first, [`WaitError::Stopped`] if the controller is stopped first, and
    /// [`WaitError::Failed`] if it fails first: [`failure`](Self::failure) names the source whose listing is missing.
    pub fn wait_synced(&self, timeout: Duration) -> Result<(), WaitError> {
        let deadline = self.state.clock.nanos().after(timeout);
        self.state.waiters.wait_until(deadline, || self.has_synced())
    }
}
