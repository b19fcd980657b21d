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
//! - A key that was held back is always either marked as held or requested in the queue, so it is not taken for idle.
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
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Enqueue, FastState, Key, WorkQueue};
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
    fn is_over(&mut self, key: &K, shown: Shown) -> bool {
        let Some(waiting) = self.waiting.get_mut(key) else { return true };
        let has_changed = |object| match shown {
            Shown::Object(changed) => object == changed,
            Shown::Any => true,
        };
        let by_object = &mut self.by_object;
        waiting.writes.retain(|(noted, view)| {
            let is_kept = !has_changed(noted.object) || view.is_to_show(&*noted.write);
            if !is_kept {
                forget(by_object, noted.object, key);
            }
            is_kept
        });
        waiting.writes.is_empty()
    }

    fn remove(&mut self, key: &K) {
        for (noted, _) in self.waiting.remove(key).into_iter().flat_map(|waiting| waiting.writes) {
            forget(&mut self.by_object, noted.object, key);
        }
    }
}

fn forget<K: Key>(by_object: &mut HashMap<u64, HashSet<K, FastState>, FastState>, object: u64, key: &K) {
    if let Entry::Occupied(mut keys) = by_object.entry(object) {
        keys.get_mut().remove(key);
        if keys.get().is_empty() {
            keys.remove();
        }
    }
}

impl<K: Key> OwnWrites<K> {
    pub(super) fn new(clock: Clock, queue: WorkQueue<K>, bound: Duration) -> Arc<Self> {
        let state = OwnWritesState { views: Vec::new(), waiting: HashMap::default(), by_object: HashMap::default() };
        let (state, views, waiting) = (Mutex::new(state), AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { clock, queue, bound, state, views, waiting })
    }

    /// Adds a watch that shows writes.
    pub(super) fn add_view(self: &Arc<Self>, view: &Arc<dyn WriteView>) {
        if self.bound.is_zero() {
            return;
        }
        let own_writes = Arc::downgrade(self);
        view.on_shown(Box::new(move |shown| own_writes.upgrade().map(|own_writes| own_writes.shown(shown)).is_some()));
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

    /// Returns whether the run of a key is held back. If so, the queue has it again later.
    #[inline]
    pub(super) fn hold_back(&self, controller: &str, key: &K) -> bool
    where
        K: fmt::Debug,
    {
        self.waiting.load(SeqCst) != 0 && self.is_held_back(controller, key)
    }

    #[cold]
    fn is_held_back(&self, controller: &str, key: &K) -> bool
    where
        K: fmt::Debug,
    {
        let now = self.clock.nanos();
        let mut state = self.state.lock();
        let is_over = state.is_over(key, Shown::Any);
        let Some(waiting) = state.waiting.get_mut(key) else { return false };
        let left = waiting.until.since(now);
        if !is_over && !left.is_zero() {
            waiting.is_held = true;
            // The bound, unless a watch shows the writes earlier. The record keeps its reasons and failures.
            self.queue.reschedule(key.clone(), left);
            drop(state);
            log::debug!(controller, key:?; "{controller}: {key:?} waits until a watch has shown its own write");
            return true;
        }
        state.remove(key);
        self.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        if !is_over {
            let timeout = Rounded(self.bound);
            log::warn!(
                controller, key:?, timeout:%;
                "{controller}: {key:?} runs although no watch has shown its own write within {timeout}"
            );
        }
        false
    }

    /// Requests the keys that were held back and wait for nothing more. Called after a step of a watch.
    fn shown(&self, shown: Shown) {
        if self.waiting.load(SeqCst) != 0 {
            self.release(shown);
        }
    }

    #[cold]
    fn release(&self, shown: Shown) {
        let mut state = self.state.lock();
        let mut asked: Vec<K> = match shown {
            Shown::Object(object) => state.by_object.get(&object).into_iter().flatten().cloned().collect(),
            Shown::Any => state.waiting.keys().cloned().collect(),
        };
        self.clock.arrange(&mut asked, |key| key);
        for key in asked {
            if state.is_over(&key, shown) && state.waiting.remove(&key).is_some_and(|waiting| waiting.is_held) {
                self.queue.reschedule(key, Duration::ZERO);
            }
        }
        self.waiting.store(state.waiting.len(), SeqCst);
    }

    /// Forgets that a key was held back, if `cancelled` returns true. Called after its scheduled run was cancelled.
    pub(super) fn cancel(&self, key: &K, cancelled: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.get_mut(key).filter(|waiting| waiting.is_held) {
            waiting.is_held = !cancelled();
        }
    }

    /// Returns whether no run is held back here and `is_idle` returns true. The key cannot be released meanwhile.
    pub(super) fn is_idle(&self, key: &K, is_idle: impl FnOnce() -> bool) -> bool {
        let state = self.state.lock();
        !state.waiting.get(key).is_some_and(|waiting| waiting.is_held) && is_idle()
    }
}
