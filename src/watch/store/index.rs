//! Secondary indexes of a store.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use super::{Maintain, Store};
use crate::base::sync::RwLock;
use crate::base::thread::shielded;
use crate::queue::{FastState, Key};

/// An index of a [`Store`], which finds items by index keys that a function computes. Made by [`Store::index`]. Cheap
/// to clone; the store drops the index with its last handle.
///
/// Reads see the current content of the store.
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
///
/// struct Disk { vm: &'static str, labels: Vec<&'static str> }
///
/// let push = Watch::versioned(|disk: &Disk| (disk.vm, disk.labels.clone())).push();
/// let store = push.watch().store();
/// let by_vm = store.index(|_name, disk: &Disk| [disk.vm]);
/// let by_label = store.index(|_name, disk: &Disk| disk.labels.clone());
///
/// push.set("disk-1", Disk { vm: "vm-1", labels: vec!["fast"] });
/// assert_eq!(by_vm.get("vm-1")[0].1.labels, ["fast"]);
/// assert_eq!(by_label.keys("fast"), ["disk-1"]);
///
/// push.set("disk-1", Disk { vm: "vm-2", labels: vec![] });
/// assert!(by_vm.get("vm-1").is_empty() && by_label.is_empty());
/// ```
pub struct Index<I, K, T> {
    store: Store<K, T>,
    /// The store has a weak reference.
    table: Arc<IndexTable<I, K, T>>,
}

struct IndexTable<I, K, T> {
    of: IndexFunction<I, K, T>,
    rows: RwLock<Rows<I, K>>,
}

type IndexFunction<I, K, T> = Box<dyn Fn(&K, &T) -> Vec<I> + Send + Sync>;

struct Rows<I, K> {
    /// The keys under each index key. No set is empty.
    found: HashMap<I, HashSet<K, FastState>, FastState>,
    /// The index keys of each key, so that the index function is not called for old values.
    under: HashMap<K, Vec<I>, FastState>,
}

impl<I: Key + Sync, K: Key + Sync, T> Maintain<K, T> for IndexTable<I, K, T> {
    fn prepare<'a>(&'a self, key: &'a K, value: Option<&T>) -> Box<dyn FnOnce() + 'a> {
        let mut under = Vec::new();
        if let Some(value) = value {
            // If the function panics half way, the item is under no index key, rather than under some of them.
            shielded("the function of an index", || under = (self.of)(key, value));
        }
        Box::new(move || self.rows.write().put(key, under))
    }
}

impl<I: Key, K: Key> Rows<I, K> {
    fn put(&mut self, key: &K, under: Vec<I>) {
        for before in self.under.remove(key).unwrap_or_default() {
            if let Some(keys) = self.found.get_mut(&before) {
                keys.remove(key);
                if keys.is_empty() {
                    self.found.remove(&before);
                }
            }
        }
        for now in &under {
            self.found.entry(now.clone()).or_default().insert(key.clone());
        }
        if !under.is_empty() {
            self.under.insert(key.clone(), under);
        }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Store<K, T> {
    /// Adds an index: `of` returns the index keys of an item. Works at any time, and indexes existing items before it
    /// returns. The store keeps the index up to date until its last handle is dropped.
    ///
    /// `of` runs once per change of an item, before the change is stored, on the thread that stores it. It may read
    /// stores, but must not change this watch. If it panics, the panic is logged, and the item is under no key of this
    /// index until it changes again.
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
        let rows = RwLock::new(Rows { found: HashMap::default(), under: HashMap::default() });
        let table =
            Arc::new(IndexTable { of: Box::new(move |key: &K, value: &T| of(key, value).into_iter().collect()), rows });
        let _turn = self.inner.turn.lock();
        // `turn` excludes changes between the snapshot and the registration of the index.
        for (key, value) in self.snapshot() {
            table.prepare(&key, Some(&value))();
        }
        let weak: Weak<dyn Maintain<K, T>> = Arc::<IndexTable<I, K, T>>::downgrade(&table);
        self.inner.state.write().indexes.push(weak);
        Index { store: self.clone(), table }
    }
}

impl<I: Key, K: Key + Sync, T: Send + Sync + 'static> Index<I, K, T> {
    /// Returns the items under an index key, in no particular order.
    ///
    /// # Panics
    ///
    /// If the `Hash` or `Eq` of a key or of an index key panics.
    #[must_use]
    pub fn get<Q>(&self, under: &Q) -> Vec<(K, Arc<T>)>
    where
        I: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        // Locks the store for both reads, so that they see the same moment.
        let state = self.store.inner.state.read();
        let rows = self.table.rows.read();
        let keys = rows.found.get(under).into_iter().flatten();
        let mut items: Vec<_> = keys.filter_map(|key| Some((key.clone(), Arc::clone(state.items.get(key)?)))).collect();
        self.store.clock().arrange(&mut items, |(key, _)| key);
        items
    }

    /// Returns the keys of the items under an index key, in no particular order.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[must_use]
    pub fn keys<Q>(&self, under: &Q) -> Vec<K>
    where
        I: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(under).into_iter().map(|(key, _)| key).collect()
    }

    /// Returns the index keys that have items, in no particular order.
    #[must_use]
    pub fn index_keys(&self) -> Vec<I> {
        let _state = self.store.inner.state.read();
        let mut keys: Vec<_> = self.table.rows.read().found.keys().cloned().collect();
        self.store.clock().arrange(&mut keys, |key| key);
        keys
    }

    /// Returns the number of index keys that have items.
    #[must_use]
    pub fn len(&self) -> usize {
        let _state = self.store.inner.state.read();
        self.table.rows.read().found.len()
    }

    /// Returns whether no index key has items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<I, K, T> Clone for Index<I, K, T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), table: Arc::clone(&self.table) }
    }
}

impl<I, K, T> fmt::Debug for Index<I, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.table.rows.read().found.len();
        f.debug_struct("Index").field("len", &len).finish_non_exhaustive()
    }
}
