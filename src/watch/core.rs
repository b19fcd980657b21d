//! The core of a watch, which compares, stores and appends changes, one at a time.
//!
//! Lock order: `state`, then a lock of the store or of a subscriber's buffer. The comparison of values, the index
//! functions, and the `Hash`, `Eq` and `Clone` of keys run under `state`. Comparisons run before anything changes.
//! After the release of `state`, the store's latch is set, events are delivered, and values and keys are dropped. For
//! this, a caller keeps the old values until then: the other handles of them may be dropped under the lock.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use super::event::EventKind;
use super::event_buffer::{Origin, StoredChange};
use super::subscriber_buffer::SubscriberBuffer;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicU64;
use crate::base::thread::shielded;
use crate::queue::{EnqueueMethod, FastState, Key};
use crate::run::gate::BringGate;
use crate::watch::source_state::SourceState;
use crate::watch::store::Store;

/// Returns whether two values are the same. A value that is the same as the stored one makes no event.
pub(super) type Same<T> = Box<dyn Fn(&T, &T) -> bool + Send + Sync>;

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
    /// Brings a gate to each controller that reads this watch.
    pub(super) bring_gate: OnceLock<BringGate>,
    /// The number of subscriptions so far, for their names.
    pub(super) last_subscription: AtomicU64,
    /// Held while the store or the list of subscribers changes, so that a new subscriber gets the existing items and
    /// every later change.
    state: Mutex<CoreState<K, T>>,
}

struct CoreState<K, T> {
    buffers: Buffers<K, T>,
    /// The initial list is complete.
    synced: bool,
    stopped: bool,
}

/// The buffers of the subscribers. A new subscriber removes those that have left.
type Buffers<K, T> = Arc<Vec<Arc<SubscriberBuffer<K, T>>>>;

/// Work to do after the release of the lock. A panic does not prevent it.
struct AfterRelease<'a, K: Key + Sync, T: Send + Sync + 'static> {
    store: &'a Store<K, T>,
    /// The outcome for the store's latch: true if the initial list is complete, false if it never will be.
    settled: Option<bool>,
    /// The buffers to deliver from.
    appended: Option<Buffers<K, T>>,
    unused_values: Vec<Arc<T>>,
    unused_keys: Vec<K>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for AfterRelease<'_, K, T> {
    fn drop(&mut self) {
        if let Some(synced) = self.settled {
            self.store.synced().set(synced);
        }
        for buffer in self.appended.iter().flat_map(|buffers| buffers.iter()) {
            buffer.wake();
        }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchCore<K, T> {
    pub(super) fn new(name: String, clock: Clock, same: Same<T>) -> Arc<Self> {
        let store = Store::new(clock.clone());
        let state = Mutex::new(CoreState { buffers: Buffers::default(), synced: false, stopped: false });
        let source = SourceState::new(&name, None, clock.clone());
        let (bring_gate, last_subscription) = (OnceLock::new(), AtomicU64::new(0));
        Arc::new(Self { name, clock, store, source, same, bring_gate, last_subscription, state })
    }

    /// Stores `value` under `key` and delivers the change.
    pub(super) fn set(&self, key: &K, value: &Arc<T>) -> Option<EventKind> {
        let mut old = None;
        self.update(|state, after| {
            old = self.store.get(key);
            let Some(change) = self.compare(old.as_ref(), value, state.synced) else { return EventKind::Unchanged };
            self.publish(state, after, key, &change);
            if old.is_some() { EventKind::Updated } else { EventKind::Created }
        })
    }

    /// Removes `key` and delivers the deletion. The event has `last` as the last value, or the stored value for `None`.
    pub(super) fn remove<Q>(&self, key: &Q, last: Option<&Arc<T>>) -> Option<EventKind>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut known = None;
        self.update(|state, after| {
            known = self.store.entry(key);
            let Some((key, value)) = &known else { return EventKind::Unchanged };
            let old = Some(Arc::clone(last.unwrap_or(value)));
            self.publish(state, after, key, &StoredChange { old, new: None, origin: Origin::Change });
            EventKind::Deleted
        })
    }

    /// Replaces all items with `items`. If a key occurs twice, its last value counts.
    pub(super) fn replace_all(&self, items: &[(K, Arc<T>)]) -> ChangeCounts {
        let numbered = items.iter().enumerate();
        let latest: HashMap<&K, usize, FastState> = numbered.map(|(number, (key, _))| (key, number)).collect();
        let has_twins = latest.len() < items.len();
        let (mut counts, mut changes, mut gone) = (ChangeCounts::default(), Vec::new(), Vec::new());
        self.update(|state, after| {
            // All comparisons run before the first change: a panic in one of them changes nothing.
            for (number, (key, value)) in items.iter().enumerate() {
                if has_twins && latest.get(key) != Some(&number) {
                    continue;
                }
                let old = self.store.get(key);
                let Some(change) = self.compare(old.as_ref(), value, state.synced) else {
                    counts.unchanged += 1;
                    if state.buffers.iter().any(|buffer| buffer.with_unchanged) {
                        changes.push((key, unchanged(old, EnqueueMethod::EnqueueResync)));
                    }
                    continue;
                };
                let count = if old.is_some() { &mut counts.updated } else { &mut counts.created };
                *count += 1;
                changes.push((key, change));
            }
            gone = self.store.missing(|key| latest.contains_key(key));
            counts.deleted = gone.len();
            for (key, change) in &changes {
                match change.origin {
                    Origin::Resync(_) => state.append(after, key, change, |buffer| buffer.with_unchanged),
                    _ => self.publish(state, after, key, change),
                }
            }
            for (key, last) in &gone {
                let deletion = StoredChange { old: Some(Arc::clone(last)), new: None, origin: Origin::Change };
                self.publish(state, after, key, &deletion);
            }
            state.end_initial_list(after);
        });
        counts
    }

    /// Marks the initial list as complete.
    pub(super) fn synced(&self) {
        self.update(CoreState::end_initial_list);
    }

    /// Delivers every item as unchanged to the subscribers that `to` selects. They enqueue keys with `method`.
    pub(super) fn resync(&self, method: EnqueueMethod, to: impl Fn(&Arc<SubscriberBuffer<K, T>>) -> bool) {
        let mut all = Vec::new();
        self.update(|state, after| {
            all = self.store.snapshot();
            for (key, value) in &all {
                state.append(after, key, &unchanged(Some(Arc::clone(value)), method), &to);
            }
        });
    }

    /// Adds the buffer of a subscriber, and appends the existing items to it.
    pub(super) fn attach(&self, buffer: &Arc<SubscriberBuffer<K, T>>) -> Result<(), StartError> {
        let mut existing = Vec::new();
        let attached = self.update(|state, _| {
            existing = self.store.snapshot();
            for (key, new) in &existing {
                let new = Some(Arc::clone(new));
                buffer.append(key, StoredChange { old: None, new, origin: Origin::InitialList });
            }
            if state.synced {
                buffer.append_synced();
            }
            let buffers = Arc::make_mut(&mut state.buffers);
            buffers.retain(|buffer| !buffer.has_left());
            buffers.push(Arc::clone(buffer));
        });
        attached.ok_or_else(|| StartError::stopped(&self.name))
    }

    /// Stops the watch. Subscribers get the rest of their events, then end.
    pub(super) fn stop(&self) {
        self.update(|state, after| {
            state.stopped = true;
            state.for_all(after, SubscriberBuffer::stop);
            // Sets the latch, even if the call that completed the initial list has not set it yet.
            after.settled = Some(state.synced);
        });
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Returns the number of subscriptions that have not ended.
    pub(super) fn subscriptions(&self) -> usize {
        self.state.lock().buffers.iter().filter(|buffer| !buffer.has_left()).count()
    }

    /// Calls `change` under the lock, unless the watch has stopped. Then does the work after the release.
    fn update<R>(&self, change: impl FnOnce(&mut CoreState<K, T>, &mut AfterRelease<'_, K, T>) -> R) -> Option<R> {
        let (unused_values, unused_keys) = (Vec::new(), Vec::new());
        let mut after = AfterRelease { store: &self.store, settled: None, appended: None, unused_values, unused_keys };
        // Declared last, so that it is released first.
        let mut state = self.state.lock();
        (!state.stopped).then(|| change(&mut state, &mut after))
    }

    /// Compares a value with the stored one. Returns `None` if they are the same.
    fn compare(&self, old: Option<&Arc<T>>, new: &Arc<T>, synced: bool) -> Option<StoredChange<T>> {
        if old.is_some_and(|old| (self.same)(old, new)) {
            return None;
        }
        let origin = if old.is_none() && !synced { Origin::InitialList } else { Origin::Change };
        Some(StoredChange { old: old.cloned(), new: Some(Arc::clone(new)), origin })
    }

    /// Stores a change, then appends it to all buffers. A mapping or a run that the event causes finds the change in
    /// the store. The caller keeps the old value until the release of the lock.
    fn publish(&self, state: &CoreState<K, T>, after: &mut AfterRelease<'_, K, T>, key: &K, change: &StoredChange<T>) {
        after.unused_keys.extend(self.store.put(key, change.new.as_ref()));
        state.append(after, key, change, |_| true);
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> CoreState<K, T> {
    /// Appends a change to the buffers that `to` selects. If the code of a key panics, that buffer misses this change;
    /// the others get it.
    fn append(
        &self,
        after: &mut AfterRelease<'_, K, T>,
        key: &K,
        change: &StoredChange<T>,
        to: impl Fn(&Arc<SubscriberBuffer<K, T>>) -> bool,
    ) {
        after.appended.get_or_insert_with(|| Arc::clone(&self.buffers));
        for buffer in self.buffers.iter().filter(|buffer| to(buffer)) {
            shielded("the code of a key", || {
                after.unused_values.extend(buffer.append(key, change.clone()).into_iter().flatten());
            });
        }
    }

    fn end_initial_list(&mut self, after: &mut AfterRelease<'_, K, T>) {
        if !std::mem::replace(&mut self.synced, true) {
            self.for_all(after, SubscriberBuffer::append_synced);
            after.settled = Some(true);
        }
    }

    /// Applies `change` to every buffer, and delivers from all of them after the release.
    fn for_all(&self, after: &mut AfterRelease<'_, K, T>, change: fn(&SubscriberBuffer<K, T>)) {
        after.appended.get_or_insert_with(|| Arc::clone(&self.buffers));
        self.buffers.iter().for_each(|buffer| change(buffer));
    }
}

fn unchanged<T>(value: Option<Arc<T>>, method: EnqueueMethod) -> StoredChange<T> {
    StoredChange { old: value.clone(), new: value, origin: Origin::Resync(method) }
}
