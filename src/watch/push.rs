//! A producer that is told what changes: by callbacks, or by any thread that knows.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::core::WatchCore;
use super::{Watch, WatchBuilder};
use crate::queue::Key;

/// Changes the values of a [`Watch`] from any thread. Cheap to clone; the watch stops when the last clone is dropped, or by
/// [`stop`](Self::stop).
///
/// A change is stored, then delivered to every subscriber, before the call returns. Only a [`buffered`](crate::Subscriber::buffered)
/// subscriber, or one to which another call delivers at the moment, gets it later.
///
/// Until [`synced`](Self::synced) or [`replace_all`](Self::replace_all) has been called, what is created counts as part of the
/// initial list: it is put in line at low priority.
///
/// # Panics
///
/// If the `Hash`, `Eq` or `Clone` of a key or the comparison of two values does; then nothing has changed, except by a whole
/// listing that a `Clone` breaks off. These, and the functions of indexes, run under the lock of the watch and must not use it.
///
/// # Examples
///
/// ```
/// use homeostat::{Subscriber, Watch, WorkQueue};
/// use homeostat::watch::PushOutcome;
///
/// let push = Watch::push();
/// push.synced(); // there is nothing to begin with
///
/// let queue = WorkQueue::new();
/// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
/// assert_eq!(push.set("vm-1", "running"), PushOutcome::Created);
/// assert_eq!(push.set("vm-1", "running"), PushOutcome::Unchanged);
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
pub struct Push<K: Key + Sync, T: Send + Sync + 'static> {
    /// First: the watch stops before its handle goes.
    producer: Arc<Producer<K, T>>,
    watch: Watch<K, T>,
}

/// Stops a watch when it is dropped.
pub(super) struct Producer<K: Key + Sync, T: Send + Sync + 'static>(pub(super) Arc<WatchCore<K, T>>);

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for Producer<K, T> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What a push has done.
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
    /// It was not there.
    Created,
    /// It was another.
    Updated,
    /// It was there, and is gone.
    Deleted,
    /// All is as it was: no event.
    Unchanged,
    /// The watch has stopped, and takes nothing more.
    Closed,
}

/// How many keys a whole listing has changed.
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
    /// Listed, and not known before.
    pub created: usize,
    /// Listed with another value.
    pub updated: usize,
    /// Known before, and no longer listed.
    pub deleted: usize,
    /// Listed as they were.
    pub unchanged: usize,
}

/// A change as a message, for a watch [from a channel](WatchBuilder::from_receiver).
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
/// use homeostat::watch::PushMessage;
///
/// let push = Watch::push();
/// push.apply(PushMessage::Set("vm-1", 1));
/// push.apply(PushMessage::ReplaceAll(vec![("vm-2", 1)]));
/// assert_eq!(push.watch().store().keys(), ["vm-2"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushMessage<K, T> {
    /// As [`Push::set`].
    Set(K, T),
    /// As [`Push::remove`].
    Remove(K),
    /// As [`Push::replace_all`].
    ReplaceAll(Vec<(K, T)>),
    /// As [`Push::synced`].
    Synced,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Push<K, T> {
    pub(super) fn new(core: Arc<WatchCore<K, T>>) -> Self {
        Self { producer: Arc::new(Producer(Arc::clone(&core))), watch: Watch { core } }
    }

    /// The watch that this feeds.
    #[must_use]
    pub fn watch(&self) -> &Watch<K, T> {
        &self.watch
    }

    /// The value of `key` is now `value`, new or changed. If it is the same as before, nothing happens, and the one before is
    /// kept.
    #[expect(clippy::needless_pass_by_value, reason = "callers give the key away, as to a map")]
    pub fn set(&self, key: K, value: T) -> PushOutcome {
        self.producer.0.set(&key, &Arc::new(value))
    }

    /// There is no `key` any more.
    pub fn remove<Q>(&self, key: &Q) -> PushOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.producer.0.remove(key, None)
    }

    /// As [`remove`](Self::remove), with what it was at the end: where that is more than had been pushed.
    pub fn remove_with<Q>(&self, key: &Q, last: T) -> PushOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.producer.0.remove(key, Some(Arc::new(last)))
    }

    /// `items` is all there is: what is not among them is deleted. Of a key that comes twice, the last counts. Completes the
    /// initial list. The iterator runs before anything else, outside any lock.
    pub fn replace_all(&self, items: impl IntoIterator<Item = (K, T)>) -> ChangeCounts {
        self.replace_all_shared(&items.into_iter().map(|(key, value)| (key, Arc::new(value))).collect::<Vec<_>>())
    }

    /// The same, of values that may be known already.
    pub(crate) fn replace_all_shared(&self, items: &[(K, Arc<T>)]) -> ChangeCounts {
        self.producer.0.replace_all(items)
    }

    /// The initial list is complete. Later calls do nothing.
    pub fn synced(&self) {
        self.producer.0.synced();
    }

    /// Does what a message says. Returns whether the watch has not been stopped.
    pub fn apply(&self, message: PushMessage<K, T>) -> bool {
        match message {
            PushMessage::Set(key, value) => return self.set(key, value) != PushOutcome::Closed,
            PushMessage::Remove(key) => return self.remove(&key) != PushOutcome::Closed,
            PushMessage::ReplaceAll(items) => drop(self.replace_all(items)),
            PushMessage::Synced => self.synced(),
        }
        !self.watch.is_stopped()
    }

    /// Stops the watch, whoever else holds a clone. Its subscribers are told what they have not been told yet, and end; its
    /// store keeps what was known last. Returns at once.
    pub fn stop(&self) {
        self.producer.0.stop();
    }
}

impl<K: Key + Sync, T: PartialEq + Send + Sync + 'static> Default for Push<K, T> {
    fn default() -> Self {
        WatchBuilder::new().push()
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Clone for Push<K, T> {
    fn clone(&self) -> Self {
        Self { producer: Arc::clone(&self.producer), watch: self.watch.clone() }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> fmt::Debug for Push<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("watch", &self.watch).finish_non_exhaustive()
    }
}
