//! What a watch's producer, its subscribers and its store have in common: where a change is compared, stored and told.
//!
//! Lock order: `writer`, then the locks of the store, of a line, of a gate. User code under `writer`: the comparison of two
//! values, the functions of indexes, and the `Hash`, `Eq` and `Clone` of keys; the comparison always before anything changes.
//! Signals are set, and values and keys dropped, once it is released.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::backlog::Change;
use super::line::Line;
use super::push::{Changes, Pushed};
use crate::clock::Clock;
use crate::error::StartError;
use crate::queue::{FastState, Key};
use crate::store::Store;
use crate::sync::{Mutex, MutexGuard};
use crate::thread::shielded;

/// Whether two values are the same, so that one in the place of the other is no event.
pub(super) type Same<T> = Box<dyn Fn(&T, &T) -> bool + Send + Sync>;

pub(super) struct Hub<K, T> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) store: Store<K, T>,
    same: Same<T>,
    /// Held by whoever changes what is known or who is told of it, one at a time: so a new subscriber gets what is there, and
    /// every change after it.
    writer: Mutex<Writer<K, T>>,
}

struct Writer<K, T> {
    lines: Vec<Arc<Line<K, T>>>,
    /// The initial list is in.
    synced: bool,
    stopped: bool,
    /// Subscriptions so far, for their names.
    subscriptions: u64,
}

/// A hold of the writer's lock. Whatever ends it, those who have something to take are woken and what is forgotten is dropped,
/// once the lock is released.
struct Turn<'a, K: Key, T> {
    /// `None` only in the drop.
    writer: Option<MutexGuard<'a, Writer<K, T>>>,
    woken: Vec<Arc<Line<K, T>>>,
    forgotten: Vec<Arc<T>>,
    keys: Vec<K>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Hub<K, T> {
    pub(super) fn new(name: String, clock: Clock, same: Same<T>) -> Arc<Self> {
        let store = Store::new(clock.clone());
        let writer = Mutex::new(Writer { lines: Vec::new(), synced: false, stopped: false, subscriptions: 0 });
        Arc::new(Self { name, clock, store, same, writer })
    }

    /// The value of `key` is now `value`.
    pub(super) fn set(&self, key: K, value: Arc<T>) -> Pushed {
        let mut turn = self.turn();
        let pushed = self.set_in(&mut turn, &key, &value);
        turn.keys.push(key);
        turn.forgotten.push(value);
        pushed
    }

    fn set_in(&self, turn: &mut Turn<'_, K, T>, key: &K, value: &Arc<T>) -> Pushed {
        if turn.writer().stopped {
            return Pushed::Closed;
        }
        let Some(change) = self.compare(key, value, turn.writer().synced) else {
            return Pushed::Unchanged;
        };
        let pushed = match change {
            Change::Created { .. } => Pushed::Created,
            _ => Pushed::Updated,
        };
        self.publish(turn, key, &change);
        pushed
    }

    /// There is no `key` any more.
    pub(super) fn remove<Q>(&self, key: &Q) -> Pushed
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut turn = self.turn();
        if turn.writer().stopped {
            return Pushed::Closed;
        }
        let Some((key, last)) = self.store.entry(key) else {
            return Pushed::Unchanged;
        };
        // The store lets go of the value, and the turn keeps it until its end.
        self.publish(&mut turn, &key, &Change::Deleted { last });
        turn.keys.push(key);
        Pushed::Deleted
    }

    /// `items` is all there is. Of a key that comes twice, the last counts.
    pub(super) fn replace_all(&self, items: Vec<(K, Arc<T>)>) -> Changes {
        let changes = self.relist(&items);
        for item in items {
            shielded("the drop of an item", || drop(item));
        }
        changes
    }

    fn relist(&self, items: &[(K, Arc<T>)]) -> Changes {
        let numbered = items.iter().enumerate();
        let latest: HashMap<&K, usize, FastState> = numbered.map(|(number, (key, _))| (key, number)).collect();
        let mut changes = Changes::default();
        let mut turn = self.turn();
        if turn.writer().stopped {
            return changes;
        }
        let synced = turn.writer().synced;
        // All comparisons come before the first change: a panic in one of them changes nothing.
        let mut found = Vec::new();
        for (number, (key, value)) in items.iter().enumerate() {
            if latest.get(key) != Some(&number) {
                continue;
            }
            match self.compare(key, value, synced) {
                Some(change @ Change::Created { .. }) => {
                    changes.created += 1;
                    found.push((key, change));
                }
                Some(change) => {
                    changes.updated += 1;
                    found.push((key, change));
                }
                None => {
                    changes.unchanged += 1;
                    if turn.writer().lines.iter().any(|line| line.with_unchanged) {
                        found.extend(self.store.get(key).map(|value| (key, Change::Unchanged { value })));
                    }
                }
            }
        }
        let gone = self.store.missing(|key| latest.contains_key(key));
        changes.deleted = gone.len();
        let deletions = gone.iter().map(|(key, last)| (key, Change::Deleted { last: Arc::clone(last) }));
        for (key, change) in found.into_iter().chain(deletions) {
            match change {
                Change::Unchanged { .. } => turn.tell(key, &change, |line| line.with_unchanged),
                _ => self.publish(&mut turn, key, &change),
            }
        }
        self.end_initial_list(&mut turn);
        turn.forget(gone);
        changes
    }

    /// The initial list is in.
    pub(super) fn synced(&self) {
        let mut turn = self.turn();
        if !turn.writer().stopped {
            self.end_initial_list(&mut turn);
        }
    }

    /// Tells every subscriber of every key that there is.
    pub(super) fn resync(&self) {
        let mut turn = self.turn();
        if turn.writer().stopped {
            return;
        }
        let all = self.store.snapshot();
        for (key, value) in &all {
            turn.tell(key, &Change::Unchanged { value: Arc::clone(value) }, |_| true);
        }
        turn.forget(all);
    }

    /// A line to a new subscriber, with what exists, and the number of the subscription.
    pub(super) fn attach(&self, with_unchanged: bool) -> Result<(Arc<Line<K, T>>, u64), StartError> {
        let line = Line::new(&self.clock, with_unchanged);
        let mut turn = self.turn();
        if turn.writer().stopped {
            return Err(StartError::stopped(&self.name));
        }
        let existing = self.store.snapshot();
        for (key, new) in &existing {
            line.add(key, Change::Created { new: Arc::clone(new), initial: true });
        }
        turn.forget(existing);
        if turn.writer().synced {
            line.add_synced();
        }
        let writer = turn.writer();
        writer.lines.retain(|line| !line.is_gone());
        writer.lines.push(Arc::clone(&line));
        writer.subscriptions += 1;
        let number = writer.subscriptions;
        Ok((line, number))
    }

    /// Nothing changes any more: subscribers are told what is left, and end.
    pub(super) fn stop(&self) {
        let mut turn = self.turn();
        let writer = turn.writer();
        writer.stopped = true;
        let lines = std::mem::take(&mut writer.lines);
        for line in &lines {
            line.stop();
        }
        turn.woken.extend(lines);
        self.store.settle(false);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.writer.lock().stopped
    }

    /// How many subscriptions there are.
    pub(super) fn subscriptions(&self) -> usize {
        self.writer.lock().lines.iter().filter(|line| !line.is_gone()).count()
    }

    fn turn(&self) -> Turn<'_, K, T> {
        Turn { writer: Some(self.writer.lock()), woken: Vec::new(), forgotten: Vec::new(), keys: Vec::new() }
    }

    /// What it means that the value of `key` is now `value`.
    fn compare(&self, key: &K, value: &Arc<T>, synced: bool) -> Option<Change<T>> {
        let new = Arc::clone(value);
        match self.store.get(key) {
            Some(old) if (self.same)(&old, value) => None,
            Some(old) => Some(Change::Updated { old, new }),
            None => Some(Change::Created { new, initial: !synced }),
        }
    }

    /// Stores a change, then tells the subscribers: who is called because of it finds it in the store.
    fn publish(&self, turn: &mut Turn<'_, K, T>, key: &K, change: &Change<T>) {
        let value = match change {
            Change::Created { new: value, .. } | Change::Updated { new: value, .. } => Some(value),
            Change::Deleted { .. } | Change::Unchanged { .. } => None,
        };
        let (known, old) = self.store.put(key, value);
        turn.keys.extend(known);
        turn.forgotten.extend(old);
        turn.tell(key, change, |_| true);
    }

    fn end_initial_list(&self, turn: &mut Turn<'_, K, T>) {
        let writer = turn.writer();
        if std::mem::replace(&mut writer.synced, true) {
            return;
        }
        let lines = writer.lines.clone();
        for line in &lines {
            line.add_synced();
        }
        turn.woken.extend(lines);
        self.store.settle(true);
    }
}

impl<'a, K: Key, T> Turn<'a, K, T> {
    #[expect(clippy::expect_used, reason = "it is there until the drop")]
    fn writer(&mut self) -> &mut MutexGuard<'a, Writer<K, T>> {
        self.writer.as_mut().expect("a turn holds the lock until it is dropped")
    }

    /// Keeps copies of what is known until the lock is released: any of them may be the last by then.
    fn forget(&mut self, items: Vec<(K, Arc<T>)>) {
        for (key, value) in items {
            self.keys.push(key);
            self.forgotten.push(value);
        }
    }

    /// Tells those that `whom` names. What one of them makes of it harms no other.
    fn tell(&mut self, key: &K, change: &Change<T>, whom: fn(&Line<K, T>) -> bool) {
        let Some(writer) = &mut self.writer else { return };
        let mut any_gone = false;
        for line in writer.lines.iter().filter(|line| whom(line)) {
            shielded("the code of a key", || {
                let added = line.add(key, change.clone());
                self.forgotten.extend(added.forgotten.into_iter().flatten());
                if added.wake {
                    self.woken.push(Arc::clone(line));
                }
            });
            any_gone |= line.is_gone();
        }
        if any_gone {
            writer.lines.retain(|line| !line.is_gone());
        }
    }
}

impl<K: Key, T> Drop for Turn<'_, K, T> {
    fn drop(&mut self) {
        self.writer = None;
        for line in self.woken.drain(..) {
            line.signal.set();
        }
        for value in self.forgotten.drain(..) {
            shielded("the drop of a value", || drop(value));
        }
        for key in self.keys.drain(..) {
            shielded("the drop of a key", || drop(key));
        }
    }
}
