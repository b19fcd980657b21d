//! The handle that feeds a watch from callbacks or from any thread.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::Watch;
use super::core::{ChangeCounts, WatchCore};
use super::event::EventKind;
use crate::queue::Key;

/// Changes the values of a [`Watch`] from any thread. Cheap to clone. The watch stops when the last clone is dropped,
/// or on [`stop`](Self::stop).
///
/// Each call stores the change and delivers it to the subscribers before it returns. A
/// [`buffered`](crate::Subscriber::buffered) subscriber, or one to which another call is delivering, gets the change
/// later.
///
/// The initial list is complete after the first [`synced`](Self::synced) or [`replace_all`](Self::replace_all). Keys
/// that are created until then are enqueued at low priority.
///
/// # Panics
///
/// Panics if the `Hash`, `Eq` or `Clone` of a key or the comparison of two values panics. Nothing has changed then, but
/// a panic of `Clone` may leave a [`replace_all`](Self::replace_all) half done. This code runs under the locks of the
/// watch and must not use the watch. The functions of indexes must not change it.
///
/// # Examples
///
/// ```
/// use homeostat::{Subscriber, Watch, WorkQueue};
/// use homeostat::watch::EventKind;
///
/// let push = Watch::push();
/// push.synced(); // there is nothing to begin with
///
/// let queue = WorkQueue::new();
/// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
/// assert_eq!(push.set("vm-1", "running"), Some(EventKind::Created));
/// assert_eq!(push.set("vm-1", "running"), Some(EventKind::Unchanged));
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
pub struct Push<K: Key + Sync, T: Send + Sync + 'static> {
    /// First field: the watch stops before its handle is dropped.
    producer: Arc<Producer<K, T>>,
    watch: Watch<K, T>,
}

/// Stops a watch when it is dropped.
struct Producer<K: Key + Sync, T: Send + Sync + 'static>(Arc<WatchCore<K, T>>);

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for Producer<K, T> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A change as a message, for a watch [from a channel](crate::watch::WatchBuilder::from_receiver).
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
    /// Calls [`Push::set`].
    Set(K, T),
    /// Calls [`Push::remove`].
    Remove(K),
    /// Calls [`Push::replace_all`].
    ReplaceAll(Vec<(K, T)>),
    /// Calls [`Push::synced`].
    Synced,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Push<K, T> {
    pub(super) fn new(core: Arc<WatchCore<K, T>>) -> Self {
        Self { producer: Arc::new(Producer(Arc::clone(&core))), watch: Watch { core } }
    }

    /// Returns the watch that this handle feeds.
    #[must_use]
    pub fn watch(&self) -> &Watch<K, T> {
        &self.watch
    }

    /// Adds `key` with `value`, or replaces its value. Returns the kind of the change, or `None` if the watch has
    /// stopped.
    ///
    /// If the stored value is the same, it is kept, no event is sent, and the result is
    /// [`Unchanged`](EventKind::Unchanged).
    #[expect(clippy::needless_pass_by_value, reason = "callers give the key away, as to a map")]
    pub fn set(&self, key: K, value: T) -> Option<EventKind> {
        self.producer.0.set(&key, &Arc::new(value))
    }

    /// Removes `key`. Returns [`Deleted`](EventKind::Deleted), [`Unchanged`](EventKind::Unchanged) if the key was
    /// unknown, or `None` if the watch has stopped.
    pub fn remove<Q>(&self, key: &Q) -> Option<EventKind>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.producer.0.remove(key, None)
    }

    /// Removes `key`, and reports `last` as its last value instead of the stored one.
    pub fn remove_with<Q>(&self, key: &Q, last: T) -> Option<EventKind>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.producer.0.remove(key, Some(&Arc::new(last)))
    }

    /// Replaces all items: keys that `items` lacks are deleted. If a key occurs twice, its last value counts. Also
    /// completes the initial list. The iterator runs first, outside any lock.
    pub fn replace_all(&self, items: impl IntoIterator<Item = (K, T)>) -> ChangeCounts {
        self.replace_all_shared(&items.into_iter().map(|(key, value)| (key, Arc::new(value))).collect::<Vec<_>>())
    }

    /// Like [`replace_all`](Self::replace_all), for values that may already be shared.
    pub fn replace_all_shared(&self, items: &[(K, Arc<T>)]) -> ChangeCounts {
        self.producer.0.replace_all(items)
    }

    /// Marks the initial list as complete. Later calls do nothing.
    pub fn synced(&self) {
        self.producer.0.synced();
    }

    /// Applies a message. Returns whether the watch is still running.
    pub fn apply(&self, message: PushMessage<K, T>) -> bool {
        match message {
            PushMessage::Set(key, value) => return self.set(key, value).is_some(),
            PushMessage::Remove(key) => return self.remove(&key).is_some(),
            PushMessage::ReplaceAll(items) => drop(self.replace_all(items)),
            PushMessage::Synced => self.synced(),
        }
        !self.watch.is_stopped()
    }

    /// Stops the watch, even if other clones of this handle exist. Returns at once. Subscribers get their buffered
    /// events, then end. The store keeps the last known values.
    pub fn stop(&self) {
        self.producer.0.stop();
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
