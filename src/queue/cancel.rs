//! Cancelling the scheduled run of a key, and releasing a deferred key.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::report::KeyState;
use super::state::Phase;
use super::{Key, WorkQueue};
use crate::base::thread::shielded;

impl<K: Key, S: BuildHasher> WorkQueue<K, S> {
    /// Cancels the scheduled run of a key, and returns the previous state. A current run continues.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The queue is then unchanged.
    pub fn cancel<Q>(&self, key: &Q) -> KeyState
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (hash, hook) = (self.hash(key), self.shared.hooks.on_cancel.as_ref());
        let mut reported = None;
        let (state, gone) = self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            let Some(index) = records.find(hash, |known| known.borrow() == key) else { return (KeyState::Idle, None) };
            let state = self.key_state(records.state(index));
            if hook.is_some() && !matches!(state, KeyState::Processing(_)) {
                reported = Some(records.key(index).clone());
            }
            (state, records.cancel(index, &now, effects))
        });
        if let (Some(key), Some(hook)) = (reported, hook) {
            shielded("the report of a cancelled key", || hook(&key));
        }
        drop(gone);
        state
    }

    /// Cancels the scheduled run of a key that is not being processed. Returns whether the key now has no scheduled or
    /// current run, and a key to drop.
    pub(crate) fn cancel_unless_processing(&self, key: &K) -> (bool, Option<K>) {
        let hash = self.hash(key);
        self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            match records.find(hash, |known| known == key) {
                None => (true, None),
                Some(index) if matches!(records.state(index).phase, Phase::Processing(_)) => (false, None),
                Some(index) => (true, records.cancel(index, &now, effects)),
            }
        })
    }

    /// Makes a deferred key ready. If the current claim defers the key later, the key is then ready at once. Any other
    /// key stays as it is.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The queue is then unchanged.
    pub(crate) fn release(&self, key: &K) {
        let hash = self.hash(key);
        self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            if let Some(index) = records.find(hash, |known| known == key) {
                records.release(index, &now, effects);
            }
        });
    }
}
