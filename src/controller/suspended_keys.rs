//! The suspended keys of a controller.
//!
//! # Invariants
//!
//! - A suspended key that was taken is put aside in the queue, with its failures and reasons, as delayed for ever.

use std::collections::HashMap;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::queue::{FastState, Key, Reasons};

/// The suspended keys of one controller.
pub(super) struct SuspendedKeys<K> {
    clock: Clock,
    /// Each key with the reasons for a run that was held back, if any.
    keys: Mutex<HashMap<K, Option<Reasons>, FastState>>,
    /// The number of keys. While it is zero, runs take no lock here.
    count: AtomicUsize,
}

impl<K: Key> SuspendedKeys<K> {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, keys: Mutex::new(HashMap::default()), count: AtomicUsize::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    pub(super) fn suspend(&self, key: K) {
        // A key may not drop under the lock: its code may call this controller.
        let _second;
        let mut keys = self.keys.lock();
        let is_known = keys.contains_key(&key);
        if is_known {
            _second = key;
        } else {
            keys.insert(key, None);
            self.count.store(keys.len(), SeqCst);
        }
    }

    /// Resumes a key. If its run was held back, calls `again` with the reasons first. If that panics, the key stays suspended.
    pub(super) fn resume(&self, key: &K, again: impl FnOnce(Reasons)) {
        // Under the lock, so that the run is always either held back here or in the queue.
        let mut keys = self.keys.lock();
        if let Some(reasons) = keys.get(key).copied().flatten() {
            again(reasons);
        }
        let found = keys.remove_entry(key);
        self.count.store(keys.len(), SeqCst);
        drop(keys);
        drop(found);
    }

    /// Holds back the run of a key if the key is suspended. Returns whether it is.
    #[inline]
    pub(super) fn hold_back(&self, key: &K, reasons: Reasons) -> bool {
        if self.is_empty() {
            return false;
        }
        self.keys.lock().get_mut(key).is_some_and(|held| {
            *held = Some(held.unwrap_or_default() | reasons);
            true
        })
    }

    /// Forgets a run that was held back, if `cancelled` returns true. Returns its result.
    pub(super) fn cancel(&self, key: &K, cancelled: impl FnOnce() -> bool) -> bool {
        // Under the lock, so that the run is always either held back here or in the queue.
        let mut keys = self.keys.lock();
        let held = keys.get_mut(key);
        let cancelled = cancelled();
        if let Some(held) = held.filter(|_| cancelled) {
            *held = None;
        }
        cancelled
    }

    /// Returns whether no run is held back here and `is_idle` returns true. The key cannot be resumed meanwhile.
    pub(super) fn is_idle(&self, key: &K, is_idle: impl FnOnce() -> bool) -> bool {
        let keys = self.keys.lock();
        !keys.get(key).is_some_and(Option::is_some) && is_idle()
    }

    pub(super) fn list(&self) -> Vec<K> {
        let mut keys: Vec<_> = self.keys.lock().keys().cloned().collect();
        self.clock.arrange(&mut keys, |key| key);
        keys
    }
}
