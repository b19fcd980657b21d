//! What a watch's producer, its subscribers and its store have in common: where a change is compared, stored and told.
//!
//! Lock order: `writer`, then the locks of the store or of a line. User code under `writer`: the comparison of two values, the
//! functions of indexes, and the `Hash`, `Eq` and `Clone` of keys; the comparison always before anything changes. Once it is
//! released, the store's gate is settled, signals are set, and values and keys dropped.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::backlog::Change;
use super::line::Line;
use super::push::{ChangeCounts, PushOutcome};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::thread::shielded;
use crate::queue::{FastState, Key};
use crate::watch::source::SourceState;
use crate::watch::store::Store;

/// Whether two values are the same, so that one in the place of the other is no event.
pub(super) type Same<T> = Box<dyn Fn(&T, &T) -> bool + Send + Sync>;

pub(super) struct WatchCore<K, T> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) store: Store<K, T>,
    /// Where its producer writes down how it is doing.
    pub(super) source: Arc<SourceState>,
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

/// A hold of the writer's lock, and what is to be done after it, whatever ends it.
struct Turn<'a, K, T> {
    /// First: it is released before the rest is dropped.
    writer: MutexGuard<'a, Writer<K, T>>,
    after: After<'a, K, T>,
}

/// Done when it is dropped.
struct After<'a, K, T> {
    store: &'a Store<K, T>,
    /// The initial list is in, or never will be.
    settled: Option<bool>,
    /// Who has something to take.
    woken: Vec<Arc<Line<K, T>>>,
    forgotten: Vec<Arc<T>>,
    keys: Vec<K>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchCore<K, T> {
    pub(super) fn new(name: String, clock: Clock, same: Same<T>) -> Arc<Self> {
        let store = Store::new(clock.clone());
        let writer = Mutex::new(Writer { lines: Vec::new(), synced: false, stopped: false, subscriptions: 0 });
        let source = SourceState::new(&name, None, clock.clone());
        Arc::new(Self { name, clock, store, source, same, writer })
    }

    /// The value of `key` is now `value`.
    pub(super) fn set(&self, key: K, value: Arc<T>) -> PushOutcome {
        let mut turn = self.turn();
        let pushed = self.set_in(&mut turn, &key, &value);
        turn.after.forget([(key, value)]);
        pushed
    }

    fn set_in(&self, turn: &mut Turn<'_, K, T>, key: &K, value: &Arc<T>) -> PushOutcome {
        if turn.writer.stopped {
            return PushOutcome::Closed;
        }
        let Some(change) = self.compare(key, value, turn.writer.synced) else {
            return PushOutcome::Unchanged;
        };
        let pushed = match change {
            Change::Created { .. } => PushOutcome::Created,
            _ => PushOutcome::Updated,
        };
        self.publish(turn, key, &change);
        pushed
    }

    /// There is no `key` any more; what it was at the end is `last`, or what is known of it.
    pub(super) fn remove<Q>(&self, key: &Q, last: Option<Arc<T>>) -> PushOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut turn = self.turn();
        if turn.writer.stopped {
            return PushOutcome::Closed;
        }
        let Some((key, known)) = self.store.entry(key) else {
            turn.after.forgotten.extend(last);
            return PushOutcome::Unchanged;
        };
        // The store lets go of the value, and the turn keeps it until its end.
        let last = last.unwrap_or_else(|| Arc::clone(&known));
        self.publish(&mut turn, &key, &Change::Deleted { last: Arc::clone(&last) });
        turn.after.forget([(key, known)]);
        turn.after.forgotten.push(last);
        PushOutcome::Deleted
    }

    /// `items` is all there is. Of a key that comes twice, the last counts.
    pub(super) fn replace_all(&self, items: Vec<(K, Arc<T>)>) -> ChangeCounts {
        let changes = self.relist(&items);
        for item in items {
            shielded("the drop of an item", || drop(item));
        }
        changes
    }

    fn relist(&self, items: &[(K, Arc<T>)]) -> ChangeCounts {
        let numbered = items.iter().enumerate();
        let latest: HashMap<&K, usize, FastState> = numbered.map(|(number, (key, _))| (key, number)).collect();
        let mut changes = ChangeCounts::default();
        let mut turn = self.turn();
        if turn.writer.stopped {
            return changes;
        }
        let synced = turn.writer.synced;
        // All comparisons come before the first change: a panic in one of them changes nothing.
        let mut found = Vec::new();
        for (number, (key, value)) in items.iter().enumerate() {
            if latest.get(key) != Some(&number) {
                continue;
            }
            let Some(change) = self.compare(key, value, synced) else {
                changes.unchanged += 1;
                if turn.writer.lines.iter().any(|line| line.with_unchanged) {
                    found.extend(self.store.get(key).map(|value| (key, Change::Unchanged { value })));
                }
                continue;
            };
            match change {
                Change::Created { .. } => changes.created += 1,
                _ => changes.updated += 1,
            }
            found.push((key, change));
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
        turn.end_initial_list();
        turn.after.forget(gone);
        changes
    }

    /// The initial list is in.
    pub(super) fn synced(&self) {
        let mut turn = self.turn();
        if !turn.writer.stopped {
            turn.end_initial_list();
        }
    }

    /// Tells those that `whom` names of every key that there is.
    pub(super) fn resync(&self, whom: impl Fn(&Arc<Line<K, T>>) -> bool) {
        let mut turn = self.turn();
        if turn.writer.stopped {
            return;
        }
        let all = self.store.snapshot();
        for (key, value) in &all {
            turn.tell(key, &Change::Unchanged { value: Arc::clone(value) }, &whom);
        }
        turn.after.forget(all);
    }

    /// A line to a new subscriber, with what exists, and the number of the subscription.
    pub(super) fn attach(&self, with_unchanged: bool) -> Result<(Arc<Line<K, T>>, u64), StartError> {
        let line = Line::new(&self.clock, with_unchanged);
        let mut turn = self.turn();
        if turn.writer.stopped {
            return Err(StartError::stopped(&self.name));
        }
        let existing = self.store.snapshot();
        for (key, new) in &existing {
            line.add(key, Change::Created { new: Arc::clone(new), initial: true });
        }
        turn.after.forget(existing);
        if turn.writer.synced {
            line.add_synced();
        }
        let writer = &mut *turn.writer;
        writer.lines.retain(|line| !line.is_gone());
        writer.lines.push(Arc::clone(&line));
        writer.subscriptions += 1;
        Ok((line, writer.subscriptions))
    }

    /// Nothing changes any more: subscribers are told what is left, and end.
    pub(super) fn stop(&self) {
        let mut turn = self.turn();
        turn.writer.stopped = true;
        turn.for_all(Line::stop);
        // Also if who has completed the initial list has yet to say so.
        turn.after.settled = Some(turn.writer.synced);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.writer.lock().stopped
    }

    /// How many subscriptions there are.
    pub(super) fn subscriptions(&self) -> usize {
        self.writer.lock().lines.iter().filter(|line| !line.is_gone()).count()
    }

    fn turn(&self) -> Turn<'_, K, T> {
        let writer = self.writer.lock();
        let after =
            After { store: &self.store, settled: None, woken: Vec::new(), forgotten: Vec::new(), keys: Vec::new() };
        Turn { writer, after }
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
        turn.after.keys.extend(known);
        turn.after.forgotten.extend(old);
        turn.tell(key, change, |_| true);
    }
}

impl<K: Key, T> Turn<'_, K, T> {
    /// Tells those that `whom` names. What one of them makes of it harms no other.
    fn tell(&mut self, key: &K, change: &Change<T>, whom: impl Fn(&Arc<Line<K, T>>) -> bool) {
        let Self { writer, after } = self;
        let mut any_gone = false;
        for line in writer.lines.iter().filter(|line| whom(line)) {
            shielded("the code of a key", || {
                let added = line.add(key, change.clone());
                after.forgotten.extend(added.forgotten.into_iter().flatten());
                if added.wake {
                    after.woken.push(Arc::clone(line));
                }
            });
            any_gone |= line.is_gone();
        }
        if any_gone {
            writer.lines.retain(|line| !line.is_gone());
        }
    }

    fn end_initial_list(&mut self) {
        if !std::mem::replace(&mut self.writer.synced, true) {
            self.for_all(Line::add_synced);
            self.after.settled = Some(true);
        }
    }

    /// Does `what` to every line, and wakes its subscriber.
    fn for_all(&mut self, what: fn(&Line<K, T>)) {
        for line in &self.writer.lines {
            what(line);
            self.after.woken.push(Arc::clone(line));
        }
    }
}

impl<K, T> After<'_, K, T> {
    fn forget(&mut self, items: impl IntoIterator<Item = (K, Arc<T>)>) {
        for (key, value) in items {
            self.keys.push(key);
            self.forgotten.push(value);
        }
    }
}

impl<K, T> Drop for After<'_, K, T> {
    fn drop(&mut self) {
        if let Some(synced) = self.settled {
            self.store.synced().settle(synced);
        }
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
