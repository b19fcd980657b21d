//! Keys that wait until a watch has shown the writes of their last run.
//!
//! A reconciler that reads from a watch would otherwise not see the writes of its last run, and would repeat them.
//!
//! # Invariants
//!
//! - A key that waits is held back when it is taken. It is taken again after each event of a watch, and when its bound has passed.
//! - The lock is held while the watches are asked, and an event asks for the held keys after the store was updated. Either the
//!   key sees the event, or the event sees the key.

use std::collections::HashMap;
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
use crate::watch::write_view::WriteView;

/// The time after which a key runs although no watch has shown its writes.
pub(super) const DEFAULT_BOUND: Duration = Duration::from_secs(10);

/// The keys of one controller that wait for their own writes.
pub(super) struct OwnWrites<K> {
    clock: Clock,
    /// Zero if keys do not wait.
    bound: Duration,
    state: Mutex<OwnWritesState<K>>,
    /// The number of watches that can be asked. While it is zero, nothing is recorded.
    views: AtomicUsize,
    /// The number of waiting keys. While it is zero, neither runs nor events take the lock.
    waiting: AtomicUsize,
}

struct OwnWritesState<K> {
    views: Vec<Arc<dyn WriteView>>,
    waiting: HashMap<K, WaitingKey, FastState>,
    /// The keys that were held back, by the hash of each object that they wait for.
    held: HashMap<u64, Vec<K>>,
}

struct WaitingKey {
    until: Nanos,
    /// The writes that no watch has shown yet, each with its watch.
    writes: Vec<(OwnWrite, Arc<dyn WriteView>)>,
    /// Whether a run was held back.
    is_held: bool,
}

impl WaitingKey {
    /// Forgets the writes that were shown. Returns whether none is left.
    fn is_over(&mut self) -> bool {
        self.writes.retain(|(noted, view)| view.is_to_show(&*noted.write));
        self.writes.is_empty()
    }
}

impl<K: Key> OwnWritesState<K> {
    /// Notes that a run was held back.
    fn hold(&mut self, key: &K) {
        let Some(waiting) = self.waiting.get_mut(key).filter(|waiting| !waiting.is_held) else { return };
        waiting.is_held = true;
        for (noted, _) in &waiting.writes {
            self.held.entry(noted.object).or_default().push(key.clone());
        }
    }

    /// Forgets a key. Returns it, to be dropped without the lock.
    fn remove(&mut self, key: &K) -> Option<(K, WaitingKey)> {
        let removed = self.waiting.remove_entry(key)?;
        for (noted, _) in &removed.1.writes {
            if let Some(keys) = self.held.get_mut(&noted.object) {
                keys.retain(|held| held != key);
                if keys.is_empty() {
                    self.held.remove(&noted.object);
                }
            }
        }
        Some(removed)
    }

    /// Forgets the held keys that wait for nothing more after an event of this object, and returns them.
    fn release(&mut self, object: u64) -> Vec<K> {
        let (mut released, mut kept) = (Vec::new(), Vec::new());
        for key in self.held.remove(&object).unwrap_or_default() {
            match self.waiting.get_mut(&key).map(WaitingKey::is_over) {
                Some(true) => released.extend(self.waiting.remove_entry(&key).map(|(key, _)| key)),
                Some(false) => kept.push(key),
                None => {}
            }
        }
        if !kept.is_empty() {
            self.held.insert(object, kept);
        }
        released
    }
}

impl<K: Key> OwnWrites<K> {
    pub(super) fn new(clock: Clock, bound: Duration) -> Self {
        let state = OwnWritesState { views: Vec::new(), waiting: HashMap::default(), held: HashMap::new() };
        Self { clock, bound, state: Mutex::new(state), views: AtomicUsize::new(0), waiting: AtomicUsize::new(0) }
    }

    /// Adds a watch that shows writes.
    pub(super) fn add_view(&self, view: Arc<dyn WriteView>) {
        if !self.bound.is_zero() {
            let mut state = self.state.lock();
            state.views.push(view);
            self.views.store(state.views.len(), SeqCst);
        }
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
        let views = &state.views;
        let to_show = |noted: &OwnWrite| views.iter().find(|view| view.is_to_show(&*noted.write)).cloned();
        let writes: Vec<_> = writes.iter().filter_map(|noted| Some((noted.clone(), to_show(noted)?))).collect();
        if !writes.is_empty() {
            state.waiting.insert(key.clone(), WaitingKey { until, writes, is_held: false });
            self.waiting.store(state.waiting.len(), SeqCst);
        }
    }

    /// Returns whether the run of a key is held back. If so, `queue` takes it again later.
    #[inline]
    pub(super) fn hold_back(&self, controller: &str, key: &K, queue: &WorkQueue<K>) -> bool
    where
        K: fmt::Debug,
    {
        self.waiting.load(SeqCst) != 0 && self.is_held_back(controller, key, queue)
    }

    #[cold]
    fn is_held_back(&self, controller: &str, key: &K, queue: &WorkQueue<K>) -> bool
    where
        K: fmt::Debug,
    {
        let now = self.clock.nanos();
        let mut state = self.state.lock();
        let Some(waiting) = state.waiting.get_mut(key) else { return false };
        let is_over = waiting.is_over();
        if !is_over && now < waiting.until {
            let left = waiting.until.since(now);
            state.hold(key);
            drop(state);
            log::debug!(controller, key:?; "{controller}: {key:?} waits until a watch has shown its own write");
            // The bound, unless an event comes earlier. The record keeps its reasons and failures.
            queue.reschedule(key.clone(), left);
            return true;
        }
        let removed = state.remove(key);
        self.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        drop(removed);
        if !is_over {
            let timeout = Rounded(self.bound);
            log::warn!(
                controller, key:?, timeout:%;
                "{controller}: {key:?} runs although no watch has shown its own write within {timeout}"
            );
        }
        false
    }

    /// Enqueues the keys that were held back for an object. Called after an event of the object, when the store shows it.
    #[inline]
    pub(super) fn shown(&self, object: impl FnOnce() -> u64, queue: &WorkQueue<K>) {
        if self.waiting.load(SeqCst) != 0 {
            self.release(object(), queue);
        }
    }

    #[cold]
    fn release(&self, object: u64, queue: &WorkQueue<K>) {
        let released = {
            let mut state = self.state.lock();
            let released = state.release(object);
            self.waiting.store(state.waiting.len(), SeqCst);
            released
        };
        for key in released {
            queue.reschedule(key, Duration::ZERO);
        }
    }
}
