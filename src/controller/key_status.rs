//! The status of one key.

use std::fmt;

use super::failed_keys::FailedKey;
use super::recent_runs::RecentRun;
use super::state::ControllerState;
use super::status::RunningKey;
use crate::base::text::ShownKey;
use crate::queue::{Key, KeyState};

/// The state of one key at one moment: its active run, its failure, its recent runs and its next run.
///
/// # Examples
///
/// ```
/// use homeostat::queue::KeyState;
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let vms = Controller::builder("vm", reconcile).record_runs().build()?.start(&pool)?;
/// vms.enqueue("vm-1");
/// vms.wait(&"vm-1", Duration::from_secs(10))?;
/// let status = vms.key_status(&"vm-1");
/// assert_eq!((status.state, status.recent_runs.len(), status.failed), (KeyState::Idle, 1, None));
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyStatus<K> {
    /// The key.
    pub key: K,
    /// The place of the key in the queue. It says when the key runs next.
    pub state: KeyState,
    /// The active run.
    pub running: Option<RunningKey<K>>,
    /// The failure of the last run.
    pub failed: Option<FailedKey<K>>,
    /// Whether the key is suspended.
    pub suspended: bool,
    /// The recorded runs of the key, the oldest first; see
    /// [`ControllerHandle::record_runs`](super::ControllerHandle::record_runs).
    pub recent_runs: Vec<RecentRun<K>>,
}

impl<K: fmt::Debug> KeyStatus<K> {
    /// Returns the same status with each key formatted by `Debug`.
    #[must_use]
    pub fn shown(self) -> KeyStatus<String> {
        let show = |key: &K| format!("{:?}", ShownKey(key));
        KeyStatus {
            key: show(&self.key),
            state: self.state,
            running: self.running.map(RunningKey::shown),
            failed: self.failed.map(|failed| failed.with_key(show)),
            suspended: self.suspended,
            recent_runs: self.recent_runs.into_iter().map(|run| run.with_key(show)).collect(),
        }
    }
}

impl<K: Key> ControllerState<K> {
    pub(super) fn key_status(&self, key: &K) -> KeyStatus<K> {
        let failed = self.failed.of_key(key).map(|failed| self.with_next_try(failed));
        KeyStatus {
            key: key.clone(),
            state: self.queue.state(key),
            running: self.running().into_iter().find(|run| run.key == *key),
            failed,
            suspended: self.suspended.has(key),
            recent_runs: self.recent_runs.of_key(key),
        }
    }

    /// Sets the time of the next try as the queue knows it: a request may have changed it since the failure.
    pub(super) fn with_next_try(&self, failed: FailedKey<K>) -> FailedKey<K> {
        let next_try = match self.queue.state(&failed.key) {
            KeyState::Delayed(due) => due,
            _ => None,
        };
        FailedKey { next_try, ..failed }
    }
}

impl<K: Key + fmt::Debug> ControllerState<K> {
    /// Returns the status of the key that `Debug` formats as `shown`. Finds keys that run, have failed, are suspended,
    /// are first in the queue, or have run lately.
    pub(super) fn find_key(&self, shown: &str) -> Option<KeyStatus<K>> {
        let is_it = |key: &K| format!("{:?}", ShownKey(key)) == shown;
        let queue = &self.queue.shared;
        let first = [queue.oldest(), queue.next_delayed()].into_iter().flatten().map(|(key, _)| key);
        let running = self.running().into_iter().map(|run| run.key);
        let keys = running.chain(first).chain(self.failed.keys()).chain(self.suspended.list());
        // The recent runs come last, because they are many.
        let mut keys = keys.chain(self.recent_runs.list().into_iter().rev().map(|run| run.key));
        keys.find(is_it).map(|key| self.key_status(&key))
    }
}
