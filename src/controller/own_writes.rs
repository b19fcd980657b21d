//! Keys that wait until a watch has shown the writes of their last run.
//!
//! A reconciler that reads from a watch would otherwise not see the writes of its last run, and would repeat them.
//!
//! # Invariants
//!
//! - A key that waits is held back when it is taken. It is taken again once a watch has shown its last write, and when its bound has
//!   passed.
//! - The lock is held while the watches are asked, and a watch asks for the waiting keys after its store was updated. Either the key
//!   sees the update, or the update sees the key.
//! - A key that was held back is put aside in the queue until its bound, so it is not taken for idle.
//! - Lock order: the listeners of a watch, then the lock here, then the store and version of a watch, or the queue.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{FastState, Key, WorkQueue};
use crate::run::own_writes::OwnWrite;
use crate::watch::write_view::{Shown, WriteView};

/// The time after which a key runs although no watch has shown its writes.
pub(super) const DEFAULT_BOUND: Duration = Duration::from_secs(10);

/// The keys of one controller that wait for their own writes.
pub(super) struct OwnWrites<K: Key> {
    clock: Clock,
    queue: WorkQueue<K>,
    /// Zero if keys do not wait.
    bound: Duration,
    state: Mutex<OwnWritesState<K>>,
    /// The number of watches that can be asked. While it is zero, nothing is recorded.
    views: AtomicUsize,
    /// The number of waiting keys. While it is zero, neither runs nor watches take the lock.
    waiting: AtomicUsize,
}

struct OwnWritesState<K> {
    views: Vec<Arc<dyn WriteView>>,
    waiting: HashMap<K, WaitingKey, FastState>,
    /// The waiting keys by the hash of each object that they wait for.
    by_object: HashMap<u64, HashSet<K, FastState>, FastState>,
}

struct WaitingKey {
    until: Nanos,
    /// The writes that no watch has shown yet, each with its watch.
    writes: Vec<(OwnWrite, Arc<dyn WriteView>)>,
    /// Whether a run was held back.
    is_held: bool,
}

impl<K: Key> OwnWritesState<K> {
    /// Forgets the writes of a key that were shown. Returns whether none is left.
    fn is_over(&mut self, key: &K, shown: Shown, unused: &mut Vec<K>) -> bool {
        let Some(waiting) = self.waiting.get_mut(key) else { return true };
        let mut gone = Vec::new();
        waiting.writes.retain(|(noted, view)| {
            let is_asked = match shown {
                Shown::Object(object) => noted.object == object,
                Shown::Any => true,
            };
            let is_kept = !is_asked || view.is_to_show(&*noted.write);
            if !is_kept {
                gone.push(noted.object);
            }
            is_kept
        });
        let is_over = waiting.writes.is_empty();
        // A run may have written an object twice.
        gone.retain(|object| !waiting.writes.iter().any(|(noted, _)| noted.object == *object));
        for object in gone {
            self.forget(object, key, unused);
        }
        is_over
    }

    /// Removes a key. Returns whether a run was held back.
    fn remove(&mut self, key: &K, unused: &mut Vec<K>) -> bool {
        let Some((removed, waiting)) = self.waiting.remove_entry(key) else { return false };
        for (noted, _) in &waiting.writes {
            self.forget(noted.object, key, unused);
        }
        unused.push(removed);
        waiting.is_held
    }

    fn forget(&mut self, object: u64, key: &K, unused: &mut Vec<K>) {
        if let Entry::Occupied(mut keys) = self.by_object.entry(object) {
            unused.extend(keys.get_mut().take(key));
            if keys.get().is_empty() {
                keys.remove();
            }
        }
    }
}

impl<K: Key> OwnWrites<K> {
    pub(super) fn new(clock: Clock, queue: WorkQueue<K>, bound: Duration) -> Arc<Self> {
        let state = OwnWritesState { views: Vec::new(), waiting: HashMap::default(), by_object: HashMap::default() };
        let (state, views, waiting) = (Mutex::new(state), AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { clock, queue, bound, state, views, waiting })
    }

    /// Adds a watch that shows writes, unless it was added before.
    pub(super) fn add_view(self: &Arc<Self>, view: &Arc<dyn WriteView>) {
        let is_known = |known: &Arc<dyn WriteView>| Arc::ptr_eq(known, view);
        if self.bound.is_zero() || self.state.lock().views.iter().any(is_known) {
            return;
        }
        let own_writes = Arc::downgrade(self);
        view.on_shown(Box::new(move |shown| {
            let Some(own_writes) = own_writes.upgrade() else { return false };
            shielded("a key that waits for its own writes", || own_writes.shown(shown));
            true
        }));
        let mut state = self.state.lock();
        state.views.push(Arc::clone(view));
        self.views.store(state.views.len(), SeqCst);
    }

    /// Returns whether the writes of runs are to be recorded.
    #[inline]
    pub(super) fn are_recorded(&self) -> bool {
        self.views.load(SeqCst) != 0
    }

    /// Lets a key wait for the writes of its run.
    pub(super) fn wait_for(&self, key: &K, writes: &[OwnWrite]) {
        if writes.is_empty() {
            return;
        }
        let until = self.clock.nanos().after(self.bound);
        let mut state = self.state.lock();
        let OwnWritesState { views, waiting, by_object } = &mut *state;
        let to_show = |noted: &OwnWrite| views.iter().find(|view| view.is_to_show(&*noted.write)).cloned();
        let writes: Vec<_> = writes.iter().filter_map(|noted| Some((noted.clone(), to_show(noted)?))).collect();
        if !writes.is_empty() {
            for (noted, _) in &writes {
                by_object.entry(noted.object).or_default().insert(key.clone());
            }
            waiting.insert(key.clone(), WaitingKey { until, writes, is_held: false });
            self.waiting.store(waiting.len(), SeqCst);
        }
    }

    /// Returns for how long the run of a key is held back at most. [`release`](Self::release) may end that earlier.
    #[inline]
    pub(super) fn hold_back(&self, controller: &str, key: &K) -> Option<Duration>
    where
        K: fmt::Debug,
    {
        if self.waiting.load(SeqCst) == 0 { None } else { self.held_back(controller, key) }
    }

    #[cold]
    fn held_back(&self, controller: &str, key: &K) -> Option<Duration>
    where
        K: fmt::Debug,
    {
        let now = self.clock.nanos();
        // Dropped without the lock.
        let mut unused = Vec::new();
        let mut state = self.state.lock();
        let is_over = state.is_over(key, Shown::Any, &mut unused);
        let waiting = state.waiting.get_mut(key)?;
        let left = waiting.until.since(now);
        if !is_over && !left.is_zero() {
            waiting.is_held = true;
            drop(state);
            log::debug!(controller, key:?; "{controller}: {key:?} waits until a watch has shown its own write");
            return Some(left);
        }
        state.remove(key, &mut unused);
        self.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        if !is_over {
            let timeout = Rounded(self.bound);
            log::warn!(
                controller, key:?, timeout:%;
                "{controller}: {key:?} runs although no watch has shown its own write within {timeout}"
            );
        }
        None
    }

    /// Requests the keys that were held back and wait for nothing more. Called after a step of a watch.
    fn shown(&self, shown: Shown) {
        if self.waiting.load(SeqCst) != 0 {
            self.release(shown);
        }
    }

    #[cold]
    fn release(&self, shown: Shown) {
        // Dropped without the lock.
        let (mut asked, mut unused) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        match shown {
            Shown::Object(object) => asked.extend(state.by_object.get(&object).into_iter().flatten().cloned()),
            Shown::Any => asked.extend(state.waiting.keys().cloned()),
        }
        self.clock.arrange(&mut asked, |key| key);
        for key in &asked {
            if state.is_over(key, shown, &mut unused) && state.remove(key, &mut unused) {
                self.queue.bring_back(key);
            }
        }
        self.waiting.store(state.waiting.len(), SeqCst);
    }

    /// Forgets that a key was held back, if `cancelled` returns true. Returns its result.
    pub(super) fn cancel(&self, key: &K, cancelled: impl FnOnce() -> bool) -> bool {
        // Under the lock, so that the key is not released meanwhile.
        let mut state = self.state.lock();
        let cancelled = cancelled();
        if let Some(waiting) = state.waiting.get_mut(key).filter(|_| cancelled) {
            waiting.is_held = false;
        }
        cancelled
    }
}
