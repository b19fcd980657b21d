//! The last known state behind a watch, and what is read out of it.
//!
//! Lock order: `turn`, then `state`, then the lock of an index. An index's function runs under
//! `turn` at most; the `Hash`, `Eq` and `Clone` of keys and index keys run under all of them.

mod index;
mod value;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use self::index::Index;
pub use self::value::{WithValue, with_value};

use self::index::{IndexTable, Maintain};
use crate::base::clock::Clock;
use crate::base::sync::{Mutex, RwLock};
use crate::base::thread::shielded;
use crate::base::wait::Latch;
use crate::queue::{FastState, Key};

/// The last known state of what a [`Watch`](crate::Watch) watches. Cheap to clone; clones show the same.
///
/// The watch stores a change before it tells a subscriber of it: who is called because of a change finds it here, or a later
/// one. Reads take a lock that a change holds for one insertion or removal; they do not wait for each other, and the watch
/// does not wait for a subscriber. What is read is a value that was there at one moment; it may have changed since.
///
/// A store of a watch that has been stopped keeps what was known last.
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
    /// Taken by who changes the state or adds an index, one at a time, for as long as the index functions take.
    turn: Mutex<()>,
    state: RwLock<State<K, T>>,
    synced: Arc<Latch>,
}

struct State<K, T> {
    items: HashMap<K, Arc<T>, FastState>,
    /// An index lives as long as a handle of it.
    indexes: Vec<Weak<dyn Maintain<K, T>>>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Store<K, T> {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State { items: HashMap::default(), indexes: Vec::new() };
        Self { inner: Arc::new(Inner { turn: Mutex::new(()), state: RwLock::new(state), synced: Latch::new(clock) }) }
    }

    /// The value of a key, if it is there.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.inner.state.read().items.get(key).map(Arc::clone)
    }

    /// Whether a key is there.
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

    /// How many keys are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.state.read().items.len()
    }

    /// Whether no key is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All keys, of one moment, in no order. Holds changes up while it clones them.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        let mut keys: Vec<_> = self.inner.state.read().items.keys().cloned().collect();
        self.clock().arrange(&mut keys, |key| key);
        keys
    }

    /// All keys with their values, of one moment, in no order. Holds changes up while it clones them.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(K, Arc<T>)> {
        let state = self.inner.state.read();
        let mut items: Vec<_> = state.items.iter().map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
        drop(state);
        self.clock().arrange(&mut items, |(key, _)| key);
        items
    }

    /// The first item that `accepts` does, in no order. It is given a snapshot, so it may take its time.
    pub fn find(&self, mut accepts: impl FnMut(&K, &T) -> bool) -> Option<(K, Arc<T>)> {
        self.snapshot().into_iter().find(|(key, value)| accepts(key, value))
    }

    /// Adds an index: `of` says under which index keys an item is found. Works at any time; what is there is indexed before this
    /// returns. The index is kept up to date as long as a handle of it lives.
    ///
    /// `of` runs on the thread that brings a change, before the change is stored, once for each change of an item. It may read
    /// stores, but must not change what this one's watch watches. If it panics, that is logged, and the item is found under no
    /// key of this index until it changes again.
    ///
    /// ```
    /// use homeostat::Watch;
    ///
    /// let push = Watch::push();
    /// push.set("disk-1", "vm-1");
    /// let by_vm = push.watch().store().index(|_disk, vm: &&str| [*vm]);
    /// push.set("disk-2", "vm-1");
    ///
    /// let mut disks = by_vm.keys("vm-1");
    /// disks.sort();
    /// assert_eq!(disks, ["disk-1", "disk-2"]);
    /// ```
    pub fn index<I, V, F>(&self, of: F) -> Index<I, K, T>
    where
        I: Key + Sync,
        V: IntoIterator<Item = I>,
        F: Fn(&K, &T) -> V + Send + Sync + 'static,
    {
        let table = Arc::new(IndexTable::new(of));
        let _turn = self.inner.turn.lock();
        // No change comes between the snapshot and the index being known: changes take turns with this.
        for (key, value) in self.snapshot() {
            table.prepare(&key, Some(&value))();
        }
        let known = Arc::downgrade(&table) as Weak<dyn Maintain<K, T>>;
        self.inner.state.write().indexes.push(known);
        Index::new(self.clone(), table)
    }

    /// Whether the initial list is in: all that was there when the watch began is here.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced().is_open()
    }

    /// Waits until the initial list is in, for at most `timeout` by the watch's clock. Returns whether it is. Its end wakes
    /// this, or the end of the watch: then it will never be.
    #[must_use]
    pub fn wait_synced(&self, timeout: Duration) -> bool {
        self.synced().wait_for(timeout)
    }

    /// A key and its value, if it is there.
    pub(crate) fn entry<Q>(&self, key: &Q) -> Option<(K, Arc<T>)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.inner.state.read();
        state.items.get_key_value(key).map(|(key, value)| (key.clone(), Arc::clone(value)))
    }

    /// The items whose keys `listed` does not know.
    pub(crate) fn missing(&self, listed: impl Fn(&K) -> bool) -> Vec<(K, Arc<T>)> {
        let state = self.inner.state.read();
        let missing = state.items.iter().filter(|(key, _)| !listed(key));
        let mut missing: Vec<_> = missing.map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
        self.clock().arrange(&mut missing, |(key, _)| key);
        missing
    }

    /// Stores a value, or (`None`) that there is none, and brings the indexes up to date: readers see both at once. Returns
    /// what was there, to be dropped outside all locks.
    pub(crate) fn put(&self, key: &K, value: Option<&Arc<T>>) -> (Option<K>, Option<Arc<T>>) {
        let _turn = self.inner.turn.lock();
        let indexes: Vec<_> = self.inner.state.read().indexes.iter().filter_map(Weak::upgrade).collect();
        let updates: Vec<_> = indexes.iter().map(|index| index.prepare(key, value.map(|value| &**value))).collect();
        let mut state = self.inner.state.write();
        if state.indexes.len() > indexes.len() {
            state.indexes.retain(|index| index.strong_count() > 0);
        }
        let replaced = state.replace(key, value);
        for update in updates {
            // One index that cannot be brought up to date is no reason to lose the change.
            shielded("the code of an index key", update);
        }
        replaced
    }
}

impl<K: Key, T> State<K, T> {
    fn replace(&mut self, key: &K, value: Option<&Arc<T>>) -> (Option<K>, Option<Arc<T>>) {
        let Some(value) = value else {
            return self.items.remove_entry(key).unzip();
        };
        if let Some(known) = self.items.get_mut(key) {
            return (None, Some(std::mem::replace(known, Arc::clone(value))));
        }
        self.items.insert(key.clone(), Arc::clone(value));
        (None, None)
    }
}

impl<K, T> Store<K, T> {
    /// Open once the initial list is in; given up if the watch is stopped before.
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
