//! The last known values of a watch, with indexes.
//!
//! Lock order: `turn`, then `state`, then the lock of an index. Index functions run under `turn` at most. The `Hash`,
//! `Eq` and `Clone` of keys and index keys run under all of these locks.

mod index;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use self::index::Index;

use crate::base::clock::Clock;
use crate::base::sync::{Mutex, RwLock};
use crate::base::thread::shielded;
use crate::base::wait::Latch;
use crate::queue::{FastState, Key};

/// The last known values of a [`Watch`](crate::Watch). Cheap to clone; clones share the same values.
///
/// The watch stores a change before it delivers the event, so a mapping or a run that an event causes finds the changed
/// value or a newer one.
///
/// Readers do not block each other. A change blocks them for one insertion or removal. The watch stores a change
/// without waiting for subscribers. A value that was read may have changed since.
///
/// The store keeps the last known values after the watch has stopped.
///
/// A reconciler that owns a clone of the store reads the value of its key when its run begins. The value is at least as
/// new as the event that caused the run. It may still be older than the real object. If a decision must not be based on
/// an old value, check the object itself.
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
/// use std::time::Duration;
///
/// let push = Watch::push();
/// let store = push.watch().store();
/// push.set("vm-1", 3);
/// assert_eq!(store.get("vm-1").as_deref(), Some(&3));
/// assert!(!store.has_synced());
///
/// push.synced();
/// assert!(store.wait_synced(Duration::from_secs(1)));
/// assert_eq!((store.len(), store.keys()), (1, vec!["vm-1"]));
/// ```
#[doc(alias = "cache")]
#[doc(alias = "lister")]
#[doc(alias = "indexer")]
pub struct Store<K, T> {
    inner: Arc<Inner<K, T>>,
}

struct Inner<K, T> {
    /// Held while an index is added or a change is stored, including the calls of index functions.
    turn: Mutex<()>,
    state: RwLock<State<K, T>>,
    synced: Arc<Latch>,
}

struct State<K, T> {
    items: HashMap<K, Arc<T>, FastState>,
    /// The indexes. Their handles own them.
    indexes: Vec<Weak<dyn Maintain<K, T>>>,
}

/// The store's side of an index.
trait Maintain<K, T>: Send + Sync {
    /// Calls the index function for a new value. `None` is a deletion, which needs no call. The returned closure
    /// updates the index.
    fn prepare<'a>(&'a self, key: &'a K, value: Option<&T>) -> Box<dyn FnOnce() + 'a>;
}

impl<K: Key + Sync, T: Send + Sync + 'static> Store<K, T> {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State { items: HashMap::default(), indexes: Vec::new() };
        Self { inner: Arc::new(Inner { turn: Mutex::new(()), state: RwLock::new(state), synced: Latch::new(clock) }) }
    }

    /// Returns the value of a key.
    ///
    /// # Panics
    ///
    /// If the `Hash` or `Eq` of the key panics.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.inner.state.read().items.get(key).map(Arc::clone)
    }

    /// Returns whether the store has a key.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.inner.state.read().items.contains_key(key)
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.state.read().items.len()
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all keys, as of one moment, in no particular order. Blocks changes while it clones the keys.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        let mut keys: Vec<_> = self.inner.state.read().items.keys().cloned().collect();
        self.clock().arrange(&mut keys, |key| key);
        keys
    }

    /// Returns all keys with their values, as of one moment, in no particular order. Blocks changes while it clones the
    /// keys.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(K, Arc<T>)> {
        let state = self.inner.state.read();
        let mut items: Vec<_> = state.items.iter().map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
        drop(state);
        self.clock().arrange(&mut items, |(key, _)| key);
        items
    }

    /// Returns whether the initial list is complete: the store has every item that existed when the watch began.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced().is_open()
    }

    /// Blocks until the initial list is complete, for at most `timeout`. Returns whether it is complete. The timeout
    /// follows the clock of the watch. The end of the watch wakes the call too: then the list stays incomplete.
    #[must_use]
    pub fn wait_synced(&self, timeout: Duration) -> bool {
        self.synced().wait_for(timeout)
    }

    /// Returns a key with its value.
    pub(crate) fn entry<Q>(&self, key: &Q) -> Option<(K, Arc<T>)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.inner.state.read();
        state.items.get_key_value(key).map(|(key, value)| (key.clone(), Arc::clone(value)))
    }

    /// Returns the items for which `listed(key)` returns false.
    pub(crate) fn missing(&self, listed: impl Fn(&K) -> bool) -> Vec<(K, Arc<T>)> {
        let state = self.inner.state.read();
        let missing = state.items.iter().filter(|(key, _)| !listed(key));
        let mut missing: Vec<_> = missing.map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
        self.clock().arrange(&mut missing, |(key, _)| key);
        missing
    }

    /// Stores a value, or deletes the key for `None`, and updates the indexes: readers see both at once. Returns the
    /// deleted key, which must be dropped outside all locks. The caller keeps the old value until then.
    pub(crate) fn put(&self, key: &K, value: Option<&Arc<T>>) -> Option<K> {
        let _turn = self.inner.turn.lock();
        let indexes: Vec<_> = self.inner.state.read().indexes.iter().filter_map(Weak::upgrade).collect();
        let updates: Vec<_> = indexes.iter().map(|index| index.prepare(key, value.map(|value| &**value))).collect();
        let mut state = self.inner.state.write();
        if state.indexes.len() > indexes.len() {
            state.indexes.retain(|index| index.strong_count() > 0);
        }
        let deleted = match (value, state.items.get_mut(key)) {
            (None, _) => state.items.remove_entry(key).map(|(key, _)| key),
            (Some(value), Some(known)) => {
                known.clone_from(value);
                None
            }
            (Some(value), None) => {
                state.items.insert(key.clone(), Arc::clone(value));
                None
            }
        };
        for update in updates {
            // If the update of an index panics, the change is stored nevertheless.
            shielded("the code of an index key", update);
        }
        deleted
    }
}

impl<K, T> Store<K, T> {
    /// Returns the latch that is set once the initial list is complete. It is given up if the watch stops first.
    pub(crate) fn synced(&self) -> &Arc<Latch> {
        &self.inner.synced
    }

    fn clock(&self) -> &Clock {
        self.inner.synced.clock()
    }
}

impl<K, T> Clone for Store<K, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K, T> fmt::Debug for Store<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.read();
        f.debug_struct("Store")
            .field("len", &state.items.len())
            .field("indexes", &state.indexes.len())
            .field("synced", &self.synced().is_open())
            .finish()
    }
}
