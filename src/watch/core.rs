//! The core of a watch, which compares, stores and appends changes, one at a time.
//!
//! Lock order: `state`, then a lock of the store or of a subscriber's buffer. The comparison of values, the index
//! functions, and the `Hash`, `Eq` and `Clone` of keys run under `state`. Comparisons run before anything changes.
//! After the release of `state`, the store's latch is set, events are delivered, and values and keys are dropped.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use super::event_buffer::StoredChange;
use super::subscriber_buffer::SubscriberBuffer;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::thread::shielded;
use crate::base::wait::AutoResetEvent;
use crate::queue::{EnqueueMethod, FastState, Key};
use crate::run::gate::GateSource;
use crate::watch::source_state::SourceState;
use crate::watch::store::Store;

/// Returns whether two values are the same. A value that is the same as the stored one makes no event.
pub(super) type Same<T> = Box<dyn Fn(&T, &T) -> bool + Send + Sync>;

/// The effect of a push.
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
/// use homeostat::watch::PushOutcome;
///
/// let push = Watch::push();
/// assert_eq!(push.set("vm-1", 1), PushOutcome::Created);
/// assert_eq!(push.set("vm-1", 2), PushOutcome::Updated);
/// assert_eq!(push.remove("vm-1"), PushOutcome::Deleted);
/// assert_eq!(push.remove("vm-1"), PushOutcome::Unchanged);
/// push.stop();
/// assert_eq!(push.set("vm-1", 3), PushOutcome::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PushOutcome {
    /// The key was added.
    Created,
    /// The value of the key was replaced.
    Updated,
    /// The key was removed.
    Deleted,
    /// Nothing changed, and no event was sent.
    Unchanged,
    /// The watch has stopped; the call was ignored.
    Closed,
}

/// The effect of a complete listing: the number of keys for each kind of change.
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
///
/// let push = Watch::push();
/// push.replace_all([("vm-1", 1), ("vm-2", 1), ("vm-3", 1)]);
/// let changes = push.replace_all([("vm-2", 1), ("vm-3", 2), ("vm-4", 1)]);
/// assert_eq!((changes.created, changes.updated, changes.deleted, changes.unchanged), (1, 1, 1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// Keys that were added.
    pub created: usize,
    /// Keys with a new value.
    pub updated: usize,
    /// Keys that were removed because the listing lacks them.
    pub deleted: usize,
    /// Keys with the same value as before.
    pub unchanged: usize,
}

pub(super) struct WatchCore<K, T> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) store: Store<K, T>,
    /// The health of the producer.
    pub(super) source: Arc<SourceState>,
    same: Same<T>,
    /// The source of a gate for each controller that reads this watch.
    pub(super) gate_source: OnceLock<Arc<dyn GateSource>>,
    /// Held while the store or the list of subscribers changes, so that a new subscriber gets the existing items and
    /// every later change.
    state: Mutex<CoreState<K, T>>,
}

struct CoreState<K, T> {
    buffers: Vec<Arc<SubscriberBuffer<K, T>>>,
    /// The initial list is complete.
    synced: bool,
    stopped: bool,
    /// The number of subscriptions so far, for their names.
    subscriptions: u64,
}

/// The lock of the core, and the work to do after its release.
struct LockedCore<'a, K: Key + Sync, T: Send + Sync + 'static> {
    /// First field: the lock is released before the rest is dropped.
    state: MutexGuard<'a, CoreState<K, T>>,
    after: AfterRelease<'a, K, T>,
}

/// Work to do when this is dropped, even by a panic.
struct AfterRelease<'a, K: Key + Sync, T: Send + Sync + 'static> {
    store: &'a Store<K, T>,
    /// The outcome for the store's latch: true if the initial list is complete, false if it never will be.
    settled: Option<bool>,
    /// Subscribers with events to deliver.
    to_deliver: Few<Arc<SubscriberBuffer<K, T>>>,
    unused_values: Few<Arc<T>>,
    unused_keys: Vec<K>,
}

/// A list that stores its first item without an allocation.
struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    fn new() -> Self {
        Self { first: None, rest: Vec::new() }
    }

    fn push(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push(item);
        }
    }

    fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        for item in items {
            self.push(item);
        }
    }

    /// Takes all items.
    fn take(&mut self) -> impl Iterator<Item = T> {
        self.first.take().into_iter().chain(std::mem::take(&mut self.rest))
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchCore<K, T> {
    pub(super) fn new(name: String, clock: Clock, same: Same<T>) -> Arc<Self> {
        let store = Store::new(clock.clone());
        let state = Mutex::new(CoreState { buffers: Vec::new(), synced: false, stopped: false, subscriptions: 0 });
        let source = SourceState::new(&name, None, clock.clone());
        Arc::new(Self { name, clock, store, source, same, gate_source: OnceLock::new(), state })
    }

    /// Stores `value` under `key` and delivers the change.
    pub(super) fn set(&self, key: &K, value: &Arc<T>) -> PushOutcome {
        let mut locked = self.lock();
        if locked.state.stopped {
            return PushOutcome::Closed;
        }
        let Some(change) = self.compare(key, value, locked.state.synced) else {
            return PushOutcome::Unchanged;
        };
        let outcome = match change {
            StoredChange::Created { .. } => PushOutcome::Created,
            _ => PushOutcome::Updated,
        };
        self.publish(&mut locked, key, change);
        outcome
    }

    /// Removes `key` and delivers the deletion. The event has `last` as the last value, or the stored value for `None`.
    pub(super) fn remove<Q>(&self, key: &Q, last: Option<&Arc<T>>) -> PushOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        // Declared before the lock, so that it drops after the release.
        let known;
        let mut locked = self.lock();
        if locked.state.stopped {
            return PushOutcome::Closed;
        }
        known = self.store.entry(key);
        let Some((key, value)) = &known else { return PushOutcome::Unchanged };
        let last = Arc::clone(last.unwrap_or(value));
        self.publish(&mut locked, key, StoredChange::Deleted { last });
        PushOutcome::Deleted
    }

    /// Replaces all items with `items`. If a key occurs twice, its last value counts.
    pub(super) fn replace_all(&self, items: &[(K, Arc<T>)]) -> ChangeCounts {
        let numbered = items.iter().enumerate();
        let latest: HashMap<&K, usize, FastState> = numbered.map(|(number, (key, _))| (key, number)).collect();
        let has_twins = latest.len() < items.len();
        let mut counts = ChangeCounts::default();
        // Declared before the lock, so that they drop after the release.
        let (gone, mut found);
        let mut locked = self.lock();
        if locked.state.stopped {
            return counts;
        }
        let synced = locked.state.synced;
        // All comparisons run before the first change: a panic in one of them changes nothing.
        found = Vec::new();
        for (number, (key, value)) in items.iter().enumerate() {
            if has_twins && latest.get(key) != Some(&number) {
                continue;
            }
            let Some(change) = self.compare(key, value, synced) else {
                counts.unchanged += 1;
                if locked.state.buffers.iter().any(|buffer| buffer.with_unchanged) {
                    let unchanged =
                        |value| (key, StoredChange::Unchanged { value, method: EnqueueMethod::EnqueueResync });
                    found.extend(self.store.get(key).map(unchanged));
                }
                continue;
            };
            match change {
                StoredChange::Created { .. } => counts.created += 1,
                _ => counts.updated += 1,
            }
            found.push((key, change));
        }
        gone = self.store.missing(|key| latest.contains_key(key));
        counts.deleted = gone.len();
        let deletions = gone.iter().map(|(key, last)| (key, StoredChange::Deleted { last: Arc::clone(last) }));
        for (key, change) in found.into_iter().chain(deletions) {
            match change {
                StoredChange::Unchanged { .. } => locked.append(key, change, |buffer| buffer.with_unchanged),
                _ => self.publish(&mut locked, key, change),
            }
        }
        locked.end_initial_list();
        counts
    }

    /// Marks the initial list as complete.
    pub(super) fn synced(&self) {
        let mut locked = self.lock();
        if !locked.state.stopped {
            locked.end_initial_list();
        }
    }

    /// Delivers every item as unchanged to the subscribers that `to` selects. They enqueue keys with `method`.
    pub(super) fn resync(&self, method: EnqueueMethod, to: impl Fn(&Arc<SubscriberBuffer<K, T>>) -> bool) {
        // Declared before the lock, so that it drops after the release.
        let all;
        let mut locked = self.lock();
        if locked.state.stopped {
            return;
        }
        all = self.store.snapshot();
        for (key, value) in &all {
            locked.append(key, StoredChange::Unchanged { value: Arc::clone(value), method }, &to);
        }
    }

    /// Adds a subscriber. Returns its buffer, which holds the existing items, and the number of the subscription.
    pub(super) fn attach(
        &self,
        with_unchanged: bool,
        own_thread: Option<Arc<AutoResetEvent>>,
    ) -> Result<(Arc<SubscriberBuffer<K, T>>, u64), StartError> {
        let buffer = SubscriberBuffer::new(&self.clock, with_unchanged, own_thread);
        // Declared before the lock, so that it drops after the release.
        let existing;
        let mut locked = self.lock();
        if locked.state.stopped {
            return Err(StartError::stopped(&self.name));
        }
        existing = self.store.snapshot();
        for (key, new) in &existing {
            buffer.append(key, StoredChange::Created { new: Arc::clone(new), initial: true });
        }
        if locked.state.synced {
            buffer.append_synced();
        }
        let state = &mut *locked.state;
        state.buffers.retain(|buffer| !buffer.has_left());
        state.buffers.push(Arc::clone(&buffer));
        state.subscriptions += 1;
        Ok((buffer, state.subscriptions))
    }

    /// Stops the watch. Subscribers get the rest of their events, then end.
    pub(super) fn stop(&self) {
        let mut locked = self.lock();
        locked.state.stopped = true;
        locked.for_all(SubscriberBuffer::stop);
        // Sets the latch, even if the call that completed the initial list has not set it yet.
        locked.after.settled = Some(locked.state.synced);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Returns the number of subscriptions that have not ended.
    pub(super) fn subscriptions(&self) -> usize {
        self.state.lock().buffers.iter().filter(|buffer| !buffer.has_left()).count()
    }

    fn lock(&self) -> LockedCore<'_, K, T> {
        let after = AfterRelease {
            store: &self.store,
            settled: None,
            to_deliver: Few::new(),
            unused_values: Few::new(),
            unused_keys: Vec::new(),
        };
        LockedCore { state: self.state.lock(), after }
    }

    /// Compares `value` with the stored one. Returns `None` if they are the same.
    fn compare(&self, key: &K, value: &Arc<T>, synced: bool) -> Option<StoredChange<T>> {
        let new = Arc::clone(value);
        match self.store.get(key) {
            Some(old) if (self.same)(&old, value) => None,
            Some(old) => Some(StoredChange::Updated { old, new }),
            None => Some(StoredChange::Created { new, initial: !synced }),
        }
    }

    /// Stores a change, then appends it to all buffers. A mapping or a run that the event causes finds the change in
    /// the store.
    fn publish(&self, locked: &mut LockedCore<'_, K, T>, key: &K, change: StoredChange<T>) {
        let value = match &change {
            StoredChange::Created { new: value, .. } | StoredChange::Updated { new: value, .. } => Some(value),
            StoredChange::Deleted { .. } | StoredChange::Unchanged { .. } => None,
        };
        let (known, old) = self.store.put(key, value);
        locked.after.unused_keys.extend(known);
        locked.after.unused_values.extend(old);
        locked.append(key, change, |_| true);
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> LockedCore<'_, K, T> {
    /// Appends a change to the buffers that `to` selects. If the code of a key panics, that buffer misses this change;
    /// the others get it.
    fn append(&mut self, key: &K, change: StoredChange<T>, to: impl Fn(&Arc<SubscriberBuffer<K, T>>) -> bool) {
        let Self { state, after } = self;
        let mut any_left = false;
        let mut change = Some(change);
        let mut buffers = state.buffers.iter().filter(|buffer| to(buffer)).peekable();
        while let Some(buffer) = buffers.next() {
            // The last buffer gets the change itself.
            let own = if buffers.peek().is_some() { change.clone() } else { change.take() };
            let Some(own) = own else { break };
            shielded("the code of a key", || {
                let outcome = buffer.append(key, own);
                after.unused_values.extend(outcome.unused.into_iter().flatten());
                if outcome.deliver {
                    after.to_deliver.push(Arc::clone(buffer));
                }
                any_left |= outcome.has_left;
            });
        }
        if any_left {
            state.buffers.retain(|buffer| !buffer.has_left());
        }
    }

    fn end_initial_list(&mut self) {
        if !std::mem::replace(&mut self.state.synced, true) {
            self.for_all(SubscriberBuffer::append_synced);
            self.after.settled = Some(true);
        }
    }

    /// Applies `change` to every buffer, and delivers from all of them after the release.
    fn for_all(&mut self, change: fn(&SubscriberBuffer<K, T>)) {
        for buffer in &self.state.buffers {
            change(buffer);
            self.after.to_deliver.push(Arc::clone(buffer));
        }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for AfterRelease<'_, K, T> {
    fn drop(&mut self) {
        if let Some(synced) = self.settled {
            self.store.synced().set(synced);
        }
        for buffer in self.to_deliver.take() {
            buffer.deliver();
        }
    }
}
