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
//! - A watch, which keeps its store, is known here only while a source of the controller reads it.
//! - Lock order: the listeners of a watch, then the lock here, then the store and version of a watch, or the queue.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::text::ShownKey;
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{FastState, Key, WorkQueue};
use crate::run::own_writes::OwnWrite;
use crate::watch::write_view::{Shown, ShownListener, WriteView};

/// The time after which a key runs although no watch has shown its writes.
pub(super) const DEFAULT_BOUND: Duration = Duration::from_secs(10);

/// The code that may panic, in log lines.
const WAITING_KEY: &str = "a key that waits for its own writes";

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
    views: Vec<UsedView>,
    waiting: HashMap<K, WaitingKey, FastState>,
    /// The waiting keys by the hash of each object that they wait for.
    by_object: HashMap<u64, HashSet<K, FastState>, FastState>,
}

/// A watch that sources of the controller read.
struct UsedView {
    view: Arc<dyn WriteView>,
    /// The number of these sources.
    sources: usize,
}

/// The use of a watch by one source, which ends when this is dropped. Drop it without a lock.
pub(super) struct ViewGuard(Box<dyn Fn() + Send + Sync>);

impl Drop for ViewGuard {
    fn drop(&mut self) {
        shielded(WAITING_KEY, || (self.0)());
    }
}

struct WaitingKey {
    until: Nanos,
    /// The writes that no watch has shown yet.
    writes: Vec<NotedWrite>,
    /// Whether a run was held back.
    is_held: bool,
}

/// A write and the watch that is to show it.
type NotedWrite = (OwnWrite, Arc<dyn WriteView>);

fn is_shown((noted, view): &NotedWrite) -> bool {
    !view.is_to_show(&*noted.write)
}

impl<K: Key> OwnWritesState<K> {
    /// Forgets the writes of a key for which `is_shown` returns true. Returns whether none is left.
    fn is_over(&mut self, key: &K, is_shown: impl Fn(&NotedWrite) -> bool, unused: &mut Vec<K>) -> bool {
        let Some(waiting) = self.waiting.get_mut(key) else { return true };
        let mut gone = Vec::new();
        waiting.writes.retain(|write| {
            let (is_kept, (noted, _)) = (!is_shown(write), write);
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

    /// Adds a watch that shows writes, for a source that is about to read it. `None` if keys do not wait.
    pub(super) fn add_view(self: &Arc<Self>, view: &Arc<dyn WriteView>) -> Option<ViewGuard> {
        if self.bound.is_zero() {
            return None;
        }
        // First: no key waits for a watch that does not report its steps.
        let listener: Weak<dyn ShownListener> = Arc::downgrade(self) as _;
        view.on_shown(listener);
        let mut state = self.state.lock();
        match state.views.iter_mut().find(|used| Arc::ptr_eq(&used.view, view)) {
            Some(used) => used.sources += 1,
            None => state.views.push(UsedView { view: Arc::clone(view), sources: 1 }),
        }
        self.views.store(state.views.len(), SeqCst);
        drop(state);
        let (own_writes, view) = (Arc::downgrade(self), Arc::clone(view));
        Some(ViewGuard(Box::new(move || {
            if let Some(own_writes) = own_writes.upgrade() {
                own_writes.remove_view(&view);
            }
        })))
    }

    /// Removes the use of a watch by one source. After the last one, no key waits for this watch.
    fn remove_view(&self, view: &Arc<dyn WriteView>) {
        // Dropped without the lock.
        let (mut asked, mut unused) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let Some(index) = state.views.iter().position(|used| Arc::ptr_eq(&used.view, view)) else { return };
        state.views[index].sources -= 1;
        if state.views[index].sources > 0 {
            return;
        }
        // The caller has the watch too, so this drops no store.
        state.views.remove(index);
        self.views.store(state.views.len(), SeqCst);
        asked.extend(state.waiting.keys().cloned());
        self.clock.arrange(&mut asked, |key| key);
        self.release_keys(&mut state, &asked, |(_, of)| Arc::ptr_eq(of, view), &mut unused);
    }

    /// Returns whether the writes of runs are to be recorded.
    #[inline]
    pub(super) fn are_recorded(&self) -> bool {
        self.views.load(SeqCst) != 0
    }

    /// Lets a key wait for the writes of its run.
    ///
    /// # Panics
    ///
    /// If the key's `Clone`, `Hash` or `Eq` panics.
    pub(super) fn wait_for(&self, key: &K, writes: &[OwnWrite]) {
        if writes.is_empty() {
            return;
        }
        let until = self.clock.nanos().after(self.bound);
        // Dropped without the lock.
        let (mut keys, mut unused) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let OwnWritesState { views, waiting, by_object } = &mut *state;
        let to_show = |noted: &OwnWrite| {
            let mut views = views.iter().map(|used| &used.view);
            views.find(|view| view.is_to_show(&*noted.write)).cloned()
        };
        let writes: Vec<_> = writes.iter().filter_map(|noted| Some((noted.clone(), to_show(noted)?))).collect();
        let mut objects: Vec<_> = writes.iter().map(|(noted, _)| noted.object).collect();
        objects.sort_unstable();
        objects.dedup();
        if !objects.is_empty() {
            // A clone that panics changes nothing.
            keys.resize_with(objects.len() + 1, || key.clone());
        }
        if let Some(own) = keys.pop() {
            // First: if the key's code panics below, the key is still known to wait, until its bound.
            let new = WaitingKey { until, writes, is_held: false };
            // `insert` alone would drop one of two equal keys under the lock.
            match waiting.get_mut(&own) {
                Some(known) => {
                    *known = new;
                    unused.push(own);
                }
                None => drop(waiting.insert(own, new)),
            }
            self.waiting.store(waiting.len(), SeqCst);
        }
        for object in objects {
            let waiting = by_object.entry(object).or_default();
            if !waiting.contains(key) {
                waiting.extend(keys.pop());
            }
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
        let is_over = state.is_over(key, is_shown, &mut unused);
        let waiting = state.waiting.get_mut(key)?;
        let left = waiting.until.since(now);
        if !is_over && !left.is_zero() {
            waiting.is_held = true;
            drop(state);
            let key = &ShownKey(key);
            log::debug!(controller, key:?; "{controller}: {key:?} waits until a watch has shown its own write");
            return Some(left);
        }
        state.remove(key, &mut unused);
        self.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        if !is_over {
            let (key, timeout) = (&ShownKey(key), Rounded(self.bound));
            log::warn!(
                controller, key:?, timeout:%;
                "{controller}: {key:?} runs although no watch has shown its own write within {timeout}"
            );
        }
        None
    }

    /// Requests the keys that were held back and wait for nothing more.
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
        let is_asked = |(noted, _): &NotedWrite| match shown {
            Shown::Object(object) => noted.object == object,
            Shown::Any => true,
        };
        self.release_keys(&mut state, &asked, |write| is_asked(write) && is_shown(write), &mut unused);
    }

    /// Forgets the writes of these keys for which `is_shown` returns true. Brings back the keys that were held back and wait for
    /// nothing more.
    fn release_keys(
        &self,
        state: &mut OwnWritesState<K>,
        keys: &[K],
        is_shown: impl Fn(&NotedWrite) -> bool,
        unused: &mut Vec<K>,
    ) {
        for key in keys {
            // A key that panics is taken again after its bound.
            shielded(WAITING_KEY, || {
                if state.is_over(key, &is_shown, unused) && state.remove(key, unused) {
                    self.queue.bring_back(key);
                }
            });
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

impl<K: Key> ShownListener for OwnWrites<K> {
    fn shown(&self, shown: Shown) {
        if self.waiting.load(SeqCst) != 0 {
            shielded(WAITING_KEY, || self.release(shown));
        }
    }
}
