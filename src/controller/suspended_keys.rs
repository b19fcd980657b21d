//! The suspended keys of a controller: the gate that the user opens and closes.
//!
//! # Invariants
//!
//! - The queue alone knows whether a suspended key needs a run: a key that was taken is deferred for ever, with its
//!   failures and reasons, and released when it is resumed.

use std::collections::HashSet;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::queue::{FastState, Key};

/// The suspended keys of one controller.
pub(super) struct SuspendedKeys<K> {
    clock: Clock,
    keys: Mutex<HashSet<K, FastState>>,
    /// The number of keys. While it is zero, runs take no lock here.
    count: AtomicUsize,
}

impl<K: Key> SuspendedKeys<K> {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, keys: Mutex::new(HashSet::default()), count: AtomicUsize::new(0) }
    }

    pub(super) fn suspend(&self, key: K) {
        // A key may not drop under the lock: its code may call this controller.
        let _second;
        let mut keys = self.keys.lock();
        if keys.contains(&key) {
            _second = key;
        } else {
            keys.insert(key);
            self.count.store(keys.len(), SeqCst);
        }
    }

    /// Resumes a key. If it was suspended, calls `release` first. If that panics, the key stays suspended.
    pub(super) fn resume(&self, key: &K, release: impl FnOnce()) {
        // Under the lock: a claim that finds the key suspended sees the release, or has deferred the key before.
        let mut keys = self.keys.lock();
        if keys.contains(key) {
            release();
        }
        let found = keys.take(key);
        self.count.store(keys.len(), SeqCst);
        drop(keys);
        drop(found);
    }

    /// Returns whether a key is suspended.
    #[inline]
    pub(super) fn has(&self, key: &K) -> bool {
        self.count.load(SeqCst) != 0 && self.keys.lock().contains(key)
    }

    pub(super) fn list(&self) -> Vec<K> {
        let mut keys: Vec<_> = self.keys.lock().iter().cloned().collect();
        self.clock.arrange(&mut keys, |key| key);
        keys
    }
}
