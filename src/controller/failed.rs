//! Methods of a controller's handle for failed keys.

use std::fmt;
use std::time::Duration;

use super::failed_keys::FailedKey;
use super::handle::ControllerHandle;
use crate::queue::{Enqueue, EnqueueMethod, Key, Reasons};

impl<K: Key + Sync + fmt::Debug> ControllerHandle<K> {
    /// Returns the keys that will not be retried, with their last errors, the oldest first.
    ///
    /// Returns at most [`max_failed_keys`](super::ControllerBuilder::max_failed_keys) keys. With more, the controller
    /// forgets the keys that were parked first: the metrics do not count them, and [`retry_now`](Self::retry_now) does
    /// not run them.
    #[must_use]
    pub fn parked(&self) -> Vec<FailedKey<K>> {
        self.state.failed.list(true)
    }

    /// Returns the keys that failed in their last run and will be retried, the oldest error first.
    ///
    /// Returns at most [`max_failed_keys`](super::ControllerBuilder::max_failed_keys) keys. [`metrics`](Self::metrics)
    /// counts all. A [cancelled](crate::WorkQueue::cancel) key leaves this list.
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
    /// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
    /// use homeostat::run::NoRetry;
    /// use std::time::Duration;
    ///
    /// let pool = WorkerPool::builder().start()?;
    /// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Err("no such image".into()) };
    /// let vms = Controller::builder("vm", reconcile).retry(NoRetry).build()?.start(&pool)?;
    /// vms.enqueue("vm-1");
    /// vms.wait(&"vm-1", Duration::from_secs(10))?;
    /// assert!(vms.dismiss(&"vm-1"));
    /// assert!(vms.parked().is_empty());
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn dismiss(&self, key: &K) -> bool {
        let mut gone = None;
        let dismissed = self.state.dismiss(key, || {
            let (cancelled, key) = self.state.queue.cancel_unless_processing(key);
            gone = key;
            cancelled
        });
        drop(gone);
        dismissed
    }
}
