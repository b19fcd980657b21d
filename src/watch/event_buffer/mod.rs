//! The undelivered events of one subscriber, with at most one entry per key. A plain value.
//!
//! An entry holds the last value that the subscriber received (`sent`), the last value before a deletion (`gone`) and
//! the current value (`now`). Events are built from these when they are taken, so a slow subscriber costs one entry per
//! key:
//!
//! | changes since the last event of the key | events |
//! |---|---|
//! | created, updated, ... | created |
//! | updated, updated, ... | updated, from the received value to the current one |
//! | ..., deleted | updated to the last value unless it was received, then deleted |
//! | ..., deleted, created, ... | the same, then created |
//! | created, deleted | deleted: a deletion is never left out |
//!
//! Keys keep the order of their first change. The end of the initial list has its own entry between them.
//!
//! User code runs in [`add`](EventBuffer::add) (the `Hash`, `Eq` and `Clone` of a key) and in
//! [`take`](EventBuffer::take) (`Clone`, if one entry makes several events), always before anything changes.
//!
//! # Invariants
//!
//! - The index has every entry with a key, but not a first entry that is marked as alone. That entry was added to an
//!   empty buffer, and no other key was added since. Most entries are taken while they are alone, so their keys are not
//!   hashed.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::HashTable;

use super::event::Event;
use crate::queue::EnqueueMethod;

/// A change of one key, as the watch has stored it. The values of a resync are the same.
pub(crate) struct StoredChange<T> {
    /// The value before. `None` for a creation.
    pub(crate) old: Option<Arc<T>>,
    /// The current value. `None` for a deletion.
    pub(crate) new: Option<Arc<T>>,
    pub(crate) origin: Origin,
}

/// The origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A change after the initial list.
    Change,
    /// The initial list.
    InitialList,
    /// A resync, which enqueues keys by this method.
    Resync(EnqueueMethod),
}

impl<T> Clone for StoredChange<T> {
    fn clone(&self) -> Self {
        Self { old: self.old.clone(), new: self.new.clone(), origin: self.origin }
    }
}

#[derive(Debug)]
pub(crate) struct EventBuffer<K, T, S> {
    /// The entries, in the order of delivery.
    entries: VecDeque<BufferEntry<K, T>>,
    /// The number of the first entry. The numbers of the others follow, and may wrap.
    first: usize,
    /// The numbers of the entries that have a key, without a first entry that is alone.
    index: HashTable<usize>,
    /// Whether the first entry has a key and is not in the index.
    is_alone: bool,
    hasher: S,
}

/// An entry of a buffer. `None` is the end of the initial list.
type BufferEntry<K, T> = Option<KeyEntry<K, T>>;

/// The changes of one key.
#[derive(Debug)]
pub(crate) struct KeyEntry<K, T> {
    key: K,
    /// The hash of the key. Not computed while the entry is alone.
    hash: u64,
    changes: KeyChanges<T>,
}

#[derive(Debug)]
struct KeyChanges<T> {
    /// The last value that the subscriber received.
    sent: Option<Arc<T>>,
    /// The last value before the latest undelivered deletion.
    gone: Option<Arc<T>>,
    /// The current value.
    now: Option<Arc<T>>,
    /// The initial list or a resync, if that is the only origin of the changes.
    origin: Origin,
}

/// An event to be delivered.
#[derive(Debug)]
pub(crate) struct NextEvent<K, T> {
    pub(crate) event: Event<K, T>,
    pub(crate) origin: Origin,
}

impl<K, T, S> EventBuffer<K, T, S> {
    /// Returns the number of entries: one per key, and one for the end of the initial list.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends the end of the initial list.
    pub(crate) fn add_synced(&mut self) {
        self.entries.push_back(None);
    }

    /// Removes the first entry without running any code of its key.
    pub(crate) fn pop(&mut self) -> Option<BufferEntry<K, T>> {
        let entry = self.entries.pop_front()?;
        let was_alone = std::mem::take(&mut self.is_alone);
        if let Some(KeyEntry { hash, .. }) = entry.as_ref().filter(|_| !was_alone)
            && let Ok(number) = self.index.find_entry(*hash, |number| *number == self.first)
        {
            number.remove();
        }
        self.first = self.first.wrapping_add(1);
        Some(entry)
    }
}

impl<K: Clone + Eq + Hash, T, S: BuildHasher + Default> EventBuffer<K, T, S> {
    pub(crate) fn new() -> Self {
        Self { entries: VecDeque::new(), first: 0, index: HashTable::new(), is_alone: false, hasher: S::default() }
    }

    /// Adds a change. Returns the values that are no longer needed; drop them outside the lock.
    ///
    /// Changes of a key must follow each other: a created key did not exist, and `old` is the value before.
    pub(crate) fn add(&mut self, key: &K, change: StoredChange<T>) -> [Option<Arc<T>>; 2] {
        let Self { entries, first, index, is_alone, hasher } = self;
        if entries.is_empty() {
            entries.push_back(Some(KeyEntry { key: key.clone(), hash: 0, changes: KeyChanges::new(change) }));
            *is_alone = true;
            return [None, None];
        }
        if *is_alone && let Some(Some(alone)) = entries.front_mut() {
            if alone.key == *key {
                return alone.changes.add(change);
            }
            alone.hash = hasher.hash_one(&alone.key);
            index.insert_unique(alone.hash, *first, |_| alone.hash);
            *is_alone = false;
        }
        let hash = hasher.hash_one(key);
        let position = |number: &usize| number.wrapping_sub(*first);
        let entry = |number: &usize| entries.get(position(number)).and_then(Option::as_ref);
        let known = index.find(hash, |number| entry(number).is_some_and(|entry| entry.key == *key));
        let Some(known) = known.map(position) else {
            let new = KeyEntry { key: key.clone(), hash, changes: KeyChanges::new(change) };
            let number = first.wrapping_add(entries.len());
            index.insert_unique(hash, number, |number| entry(number).map_or(0, |entry| entry.hash));
            entries.push_back(Some(new));
            return [None, None];
        };
        match entries.get_mut(known) {
            Some(Some(entry)) => entry.changes.add(change),
            _ => [None, None],
        }
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self) -> Option<NextEvent<K, T>> {
        if let Some(KeyEntry { key, changes, .. }) = self.entries.front_mut()?
            && changes.events() > 1
        {
            let key = key.clone();
            return changes.next(key);
        }
        let Some(KeyEntry { key, mut changes, .. }) = self.pop()? else {
            return Some(NextEvent { event: Event::Synced, origin: Origin::InitialList });
        };
        changes.next(key)
    }
}

impl<T> KeyChanges<T> {
    fn new(StoredChange { old, new, origin }: StoredChange<T>) -> Self {
        let gone = if new.is_none() { old.clone() } else { None };
        Self { sent: old, gone, now: new, origin }
    }

    fn add(&mut self, StoredChange { old, new, origin }: StoredChange<T>) -> [Option<Arc<T>>; 2] {
        if let Origin::Resync(method) = origin {
            // The other events of the key already show its value.
            if method != EnqueueMethod::EnqueueSelected && matches!(self.origin, Origin::Resync(_)) {
                self.origin = origin;
            }
            return [old, new];
        }
        self.origin = Origin::Change;
        if new.is_some() {
            [std::mem::replace(&mut self.now, new), old]
        } else {
            [self.now.take(), std::mem::replace(&mut self.gone, old)]
        }
    }

    /// Returns whether an update to the last value must come before the deletion.
    fn missed_the_last(&self) -> bool {
        matches!((&self.sent, &self.gone), (Some(sent), Some(gone)) if !Arc::ptr_eq(sent, gone))
    }

    /// Returns the number of events that these changes make.
    fn events(&self) -> usize {
        usize::from(self.missed_the_last()) + usize::from(self.gone.is_some()) + usize::from(self.now.is_some())
    }

    /// Takes the next of these events.
    fn next<K>(&mut self, key: K) -> Option<NextEvent<K, T>> {
        let origin = self.origin;
        if self.missed_the_last() {
            let new = Arc::clone(self.gone.as_ref()?);
            let old = self.sent.replace(Arc::clone(&new))?;
            return Some(NextEvent { event: Event::Updated { key, old, new }, origin });
        }
        let sent = self.sent.take();
        if let Some(last) = self.gone.take() {
            return Some(NextEvent { event: Event::Deleted { key, last }, origin });
        }
        let new = self.now.take()?;
        let event = match sent {
            None => Event::Created { key, new },
            Some(_) if matches!(origin, Origin::Resync(_)) => Event::Unchanged { key, value: new },
            Some(old) => Event::Updated { key, old, new },
        };
        Some(NextEvent { event, origin })
    }
}
