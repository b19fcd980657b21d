//! A gate that makes keys wait until a watch has shown the writes of their last run.
//!
//! # Invariants
//!
//! - A waiting key is deferred when it is taken. It is taken again once a watch has shown its last write, or its bound
//!   has passed.
//! - The lock is held while the watches are asked, and a watch checks for waiting keys after its store was updated.
//!   Either the key sees the update, or the update sees the key.
//! - Keys are identified by their hashes. If two keys have the same hash, each waits for the writes of both.
//! - The gate knows a watch, which keeps its store in memory, only while a source of the controller reads it.
//! - Lock order: the listeners of a watch, then the lock here, then the store and version of a watch. Keys are released
//!   without a lock of this file.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::journal::{OwnWrite, RecordedWrites};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::SeqCst;
use homeostat::base::Clock;
use homeostat::queue::Reasons;
use homeostat::rt::{Nanos, Rounded};
use homeostat::run::{Admission, Gate, GateKey, Permit, Release};

/// The time after which a key runs even if no watch has shown its writes.
const DEFAULT_BOUND: Duration = Duration::from_secs(10);

/// The part of a store that may have changed.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    /// The object with this hash of its key.
    Object(u64),
    /// Any number of objects.
    Any,
}

/// Knows which writes a watch has shown.
pub(super) trait WriteView: Send + Sync {
    /// Returns whether the watch still owes this write.
    fn is_to_show(&self, write: &(dyn Any + Send + Sync)) -> bool;

    /// Calls [`OwnWrites::shown`] of this gate after each step of the watch, until the gate is dropped.
    fn on_shown(&self, gate: Weak<OwnWrites>);
}

/// The keys of one controller that wait for their own writes.
pub(crate) struct OwnWrites {
    clock: Clock,
    /// Zero if keys do not wait.
    bound: Duration,
    state: Mutex<OwnWritesState>,
    /// The number of watches that can be asked. While it is zero, nothing is recorded.
    views: AtomicUsize,
    /// The number of waiting keys. While it is zero, neither runs nor watches take the lock.
    waiting: AtomicUsize,
    me: Weak<Self>,
}

struct OwnWritesState {
    views: Vec<UsedView>,
    /// The waiting keys by their hashes.
    waiting: BTreeMap<u64, WaitingKey>,
    /// Pairs of an awaited object and a key that waits for it, as hashes.
    by_object: BTreeSet<(u64, u64)>,
}

/// A watch that sources of the controller read.
struct UsedView {
    view: Arc<dyn WriteView>,
    /// The number of these sources.
    sources: usize,
}

/// A source's use of a watch, which ends when this is dropped.
struct ViewGuard {
    gate: Weak<OwnWrites>,
    view: Arc<dyn WriteView>,
}

impl Drop for ViewGuard {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.remove_view(&self.view);
        }
    }
}

struct WaitingKey {
    until: Nanos,
    /// The writes that no watch has shown yet.
    writes: Vec<NotedWrite>,
    /// Releases the key, if it was deferred.
    release: Option<Release>,
}

/// A write, and the watch that must show it.
type NotedWrite = (OwnWrite, Arc<dyn WriteView>);

fn is_shown((noted, view): &NotedWrite) -> bool {
    !view.is_to_show(&*noted.write)
}

impl OwnWritesState {
    /// Forgets the writes of a key for which `is_shown` returns true. Returns whether none remains.
    fn is_over(&mut self, key: u64, is_shown: impl Fn(&NotedWrite) -> bool) -> bool {
        let Some(waiting) = self.waiting.get_mut(&key) else { return true };
        let gone: Vec<_> = waiting.writes.extract_if(.., |write| is_shown(write)).collect();
        for (noted, _) in gone {
            // A run may have written an object twice.
            if waiting.writes.iter().all(|(left, _)| left.object != noted.object) {
                self.by_object.remove(&(noted.object, key));
            }
        }
        waiting.writes.is_empty()
    }

    /// Removes a key. Returns its release.
    fn remove(&mut self, key: u64) -> Option<Release> {
        let waiting = self.waiting.remove(&key)?;
        for (noted, _) in &waiting.writes {
            self.by_object.remove(&(noted.object, key));
        }
        waiting.release
    }
}

impl OwnWrites {
    /// Creates the gate of a controller with this bound. With zero, keys do not wait.
    pub(crate) fn new(clock: Clock, bound: Option<Duration>) -> Arc<Self> {
        let state = OwnWritesState { views: Vec::new(), waiting: BTreeMap::new(), by_object: BTreeSet::new() };
        Arc::new_cyclic(|me| Self {
            clock,
            bound: bound.unwrap_or(DEFAULT_BOUND),
            state: Mutex::new(state),
            views: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            me: Weak::clone(me),
        })
    }

    /// Adds a watch that shows writes, for a source that is about to read it. `None` if keys do not wait.
    pub(super) fn add_view(&self, view: Arc<dyn WriteView>) -> Option<Box<dyn Any + Send + Sync>> {
        if self.bound.is_zero() {
            return None;
        }
        // Do this first: no key may wait for a watch that does not report its steps.
        view.on_shown(Weak::clone(&self.me));
        let mut state = self.state.lock();
        match state.views.iter_mut().find(|used| Arc::ptr_eq(&used.view, &view)) {
            Some(used) => used.sources += 1,
            None => state.views.push(UsedView { view: Arc::clone(&view), sources: 1 }),
        }
        self.views.store(state.views.len(), SeqCst);
        drop(state);
        Some(Box::new(ViewGuard { gate: Weak::clone(&self.me), view }))
    }

    /// Removes the use of a watch by one source. After the last one, no key waits for this watch.
    fn remove_view(&self, view: &Arc<dyn WriteView>) {
        let mut state = self.state.lock();
        let Some(index) = state.views.iter().position(|used| Arc::ptr_eq(&used.view, view)) else { return };
        state.views[index].sources -= 1;
        if state.views[index].sources > 0 {
            return;
        }
        // The caller holds the watch too, so this drops no store.
        state.views.remove(index);
        self.views.store(state.views.len(), SeqCst);
        let keys = state.waiting.keys().copied().collect();
        let released = self.settle(&mut state, keys, |(_, of)| Arc::ptr_eq(of, view));
        drop(state);
        for release in released {
            release();
        }
    }

    /// Makes a key wait for the writes of its run.
    fn wait_for(&self, key: u64, writes: Vec<OwnWrite>) {
        if writes.is_empty() {
            return;
        }
        let until = self.clock.nanos().after(self.bound);
        let mut state = self.state.lock();
        let OwnWritesState { views, waiting, by_object } = &mut *state;
        let to_show = |noted: &OwnWrite| {
            let mut views = views.iter().map(|used| &used.view);
            views.find(|view| view.is_to_show(&*noted.write)).cloned()
        };
        for noted in writes {
            let Some(view) = to_show(&noted) else { continue };
            by_object.insert((noted.object, key));
            let waiting = waiting.entry(key).or_insert_with(|| WaitingKey { until, writes: Vec::new(), release: None });
            waiting.until = until;
            waiting.writes.push((noted, view));
        }
        self.waiting.store(waiting.len(), SeqCst);
    }

    /// Returns the longest time for which the key must be deferred.
    #[cold]
    fn deferral(&self, key: &dyn GateKey) -> Option<Duration> {
        let hash = key.hash();
        if !self.state.lock().waiting.contains_key(&hash) {
            return None;
        }
        // Make it without the lock, because it clones the key.
        let release = key.releaser();
        let controller = key.controller();
        let now = self.clock.nanos();
        let mut state = self.state.lock();
        let is_over = state.is_over(hash, is_shown);
        let waiting = state.waiting.get_mut(&hash)?;
        let left = waiting.until.since(now);
        if !is_over && !left.is_zero() {
            // Drop it without the lock.
            let _before = waiting.release.replace(release);
            drop(state);
            log::debug!(controller, key:?; "{controller}: {key:?} waits until a watch has shown its own write");
            return Some(left);
        }
        let _before = state.remove(hash);
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

    /// Releases the keys that no longer wait. Called after each step of a watch, once its answers include that step.
    pub(super) fn shown(&self, shown: Shown) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let keys = match shown {
            Shown::Object(object) => {
                state.by_object.range((object, 0)..=(object, u64::MAX)).map(|(_, key)| *key).collect()
            }
            Shown::Any => state.waiting.keys().copied().collect(),
        };
        let is_asked = |(noted, _): &NotedWrite| match shown {
            Shown::Object(object) => noted.object == object,
            Shown::Any => true,
        };
        let released = self.settle(&mut state, keys, |write| is_asked(write) && is_shown(write));
        drop(state);
        for release in released {
            release();
        }
    }

    /// Forgets the writes of these keys for which `is_shown` returns true. Returns the releases of the deferred keys
    /// that no longer wait. Call them without the lock.
    fn settle(
        &self,
        state: &mut OwnWritesState,
        mut keys: Vec<u64>,
        is_shown: impl Fn(&NotedWrite) -> bool,
    ) -> Vec<Release> {
        self.clock.arrange(&mut keys, |key| key);
        let over = |key: u64| if state.is_over(key, &is_shown) { state.remove(key) } else { None };
        let released = keys.into_iter().filter_map(over).collect();
        self.waiting.store(state.waiting.len(), SeqCst);
        released
    }
}

impl Gate for OwnWrites {
    fn admit(&self, key: &dyn GateKey, _reasons: Reasons) -> Admission {
        if self.waiting.load(SeqCst) != 0
            && let Some(left) = self.deferral(key)
        {
            return Admission::Defer(left);
        }
        let Some(me) = self.me.upgrade().filter(|own| own.views.load(SeqCst) != 0) else { return Admission::Run };
        let (hash, recorded) = (key.hash(), RecordedWrites::begin());
        Admission::RunWith(Permit::new(None, move || {
            me.wait_for(hash, RecordedWrites::take());
            drop(recorded);
        }))
    }
}
