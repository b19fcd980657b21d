//! Looking things up in a store by something other than their key.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::Store;
use crate::base::sync::RwLock;
use crate::base::thread::shielded;
use crate::queue::{FastState, Key};

/// An index of a [`Store`]: finds items by what a function says of them. Made by [`Store::index`]; cheap to clone, and gone
/// with its last handle.
///
/// What it finds is what the store holds at that moment.
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
    table: Arc<dyn Lookup<I, K> + Send + Sync>,
}

/// What a store has to do with its indexes.
pub(super) trait Maintain<K, T>: Send + Sync {
    /// Calls the user's function for a value (`None`: there is none any more). What it returns brings the index up to date.
    fn prepare<'a>(&'a self, key: &'a K, value: Option<&T>) -> Box<dyn FnOnce() + 'a>;
}

/// What a handle has to do with its index.
pub(super) trait Lookup<I, K> {
    fn with(&self, read: &mut dyn FnMut(&Found<I, K>));
}

/// The index itself.
pub(super) struct IndexTable<I, K, F> {
    of: F,
    rows: RwLock<Rows<I, K>>,
}

/// The keys under each index key.
type Found<I, K> = HashMap<I, HashSet<K, FastState>, FastState>;

struct Rows<I, K> {
    /// Never an empty set.
    found: Found<I, K>,
    /// Under what a key is found: the function is not asked twice about a value.
    under: HashMap<K, Vec<I>, FastState>,
}

impl<I, K, F> IndexTable<I, K, F> {
    pub(super) fn new(of: F) -> Self {
        Self { of, rows: RwLock::new(Rows { found: HashMap::default(), under: HashMap::default() }) }
    }
}

impl<I, V, K, T, F> Maintain<K, T> for IndexTable<I, K, F>
where
    I: Key + Sync,
    V: IntoIterator<Item = I>,
    K: Key + Sync,
    F: Fn(&K, &T) -> V + Send + Sync,
{
    fn prepare<'a>(&'a self, key: &'a K, value: Option<&T>) -> Box<dyn FnOnce() + 'a> {
        let mut under = Vec::new();
        if let Some(value) = value {
            // A panic half way leaves none: rather not found than found by chance.
            shielded("the function of an index", || under = (self.of)(key, value).into_iter().collect());
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

impl<I, K, F> Lookup<I, K> for IndexTable<I, K, F> {
    fn with(&self, read: &mut dyn FnMut(&Found<I, K>)) {
        read(&self.rows.read().found);
    }
}

impl<I: Key, K: Key + Sync, T: Send + Sync + 'static> Index<I, K, T> {
    pub(super) fn new(store: Store<K, T>, table: Arc<dyn Lookup<I, K> + Send + Sync>) -> Self {
        Self { store, table }
    }

    /// The items found under an index key, in no order.
    ///
    /// # Panics
    ///
    /// If the `Hash` or `Eq` of a key or of an index key does.
    #[must_use]
    pub fn get<Q>(&self, under: &Q) -> Vec<(K, Arc<T>)>
    where
        I: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        // Held over both, so that they are of one moment.
        let state = self.store.inner.state.read();
        let mut items = Vec::new();
        self.table.with(&mut |found| {
            let keys = found.get(under).into_iter().flatten();
            items.extend(keys.filter_map(|key| Some((key.clone(), Arc::clone(state.items.get(key)?)))));
        });
        self.store.clock().arrange(&mut items, |(key, _)| key);
        items
    }

    /// The keys of the items found under an index key, in no order.
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
        let _state = self.store.inner.state.read();
        let mut keys = Vec::new();
        self.table.with(&mut |found| keys.extend(found.get(under).into_iter().flatten().cloned()));
        self.store.clock().arrange(&mut keys, |key| key);
        keys
    }

    /// The index keys under which something is found, in no order.
    #[must_use]
    pub fn index_keys(&self) -> Vec<I> {
        let _state = self.store.inner.state.read();
        let mut keys = Vec::new();
        self.table.with(&mut |found| keys.extend(found.keys().cloned()));
        self.store.clock().arrange(&mut keys, |key| key);
        keys
    }

    /// How many index keys there are under which something is found.
    #[must_use]
    pub fn len(&self) -> usize {
        let _state = self.store.inner.state.read();
        let mut len = 0;
        self.table.with(&mut |found| len = found.len());
        len
    }

    /// Whether nothing is found under any index key.
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
        let mut len = 0;
        self.table.with(&mut |found| len = found.len());
        f.debug_struct("Index").field("len", &len).finish_non_exhaustive()
    }
}
