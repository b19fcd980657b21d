//! What a handle of a controller can do about failed keys.

use std::fmt;
use std::time::Duration;

use super::failed_keys::FailedKey;
use super::handle::ControllerHandle;
use crate::queue::{Enqueue, EnqueueMethod, Key, Reasons};

impl<K: Key + Sync + fmt::Debug> ControllerHandle<K> {
    /// The keys that have been given up, with their last errors; the oldest error first. At most as many as
    /// [`max_failed_keys`](super::ControllerBuilder::max_failed_keys) says; [`metrics`](Self::metrics) counts all.
    #[must_use]
    pub fn parked(&self) -> Vec<FailedKey<K>> {
        self.state.failed.list(true)
    }

    /// The keys whose last run has failed and that will be tried again; the oldest error first. At most as many as
    /// [`max_failed_keys`](super::ControllerBuilder::max_failed_keys) says; [`metrics`](Self::metrics) counts all. A key that is
    /// [cancelled](crate::WorkQueue::cancel) is none of them any more.
    #[must_use]
    pub fn failing(&self) -> Vec<FailedKey<K>> {
        self.state.failed.list(false)
    }

    /// Puts all parked and all failing keys in line now, whatever their backoff. Returns how many.
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn retry_now(&self) -> usize {
        let keys = self.state.failed.keys();
        let queue = self.state.queue.because(Reasons::MANUAL);
        queue.request_all(&mut keys.into_iter(), EnqueueMethod::Reschedule(Duration::ZERO).into()).total()
    }

    /// Forgets that a key has failed, without running it: the key leaves [`parked`](Self::parked) or [`failing`](Self::failing),
    /// the status and the metrics. Of a failing key the scheduled run is cancelled, with whatever else has asked for that run; a
    /// parked key keeps a run that has been asked for since. A later request runs the key as usual. Returns whether the key was
    /// dismissed: not if it has not failed, or is to be tried again and in process right now, because then that run decides.
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
