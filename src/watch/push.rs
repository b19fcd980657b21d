//! The producers of a watch: a handle that feeds it from any thread, and a thread that reads a channel.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, select};

use super::Watch;
use super::core::{ChangeCounts, Same, WatchCore};
use super::event::EventKind;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::thread::{ThreadOptions, panic_message};
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

/// Settings for a [`Watch`] that is fed by a [`Push`] or a channel.
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
///
/// let push = Watch::<String, u32>::builder().name("vms").push();
/// assert_eq!(push.watch().name(), "vms");
/// ```
#[must_use = "settings do nothing until they are used"]
pub struct WatchBuilder<K, T> {
    name: String,
    clock: Clock,
    same: Same<T>,
    pub(super) threads: ThreadOptions,
    key: PhantomData<fn(K)>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchBuilder<K, T> {
    pub(super) fn with(same: Same<T>) -> Self {
        Self { name: "watch".to_owned(), clock: Clock::system(), same, threads: ThreadOptions::new(), key: PhantomData }
    }

    /// Sets the name for log lines. Default: `watch`. It also names the thread of a [channel](Self::from_receiver)
    /// (`<name>-0`) and prefixes the default names of subscriptions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the clock of the watch and its subscriptions. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the options of the thread that reads a [channel](Self::from_receiver).
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.threads = options;
        self
    }

    /// Creates the watch and returns the handle that feeds it. The watch has no thread.
    #[must_use]
    pub fn push(self) -> Push<K, T> {
        Push::new(WatchCore::new(self.name, self.clock, self.same))
    }
}

impl<K, T> fmt::Debug for WatchBuilder<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBuilder").field("name", &self.name).field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Watch<K, T> {
    /// Returns a handle that feeds a new watch with default settings.
    #[must_use]
    pub fn push() -> Push<K, T>
    where
        T: PartialEq,
    {
        Self::builder().push()
    }

    /// Returns settings for a watch that compares whole values.
    pub fn builder() -> WatchBuilder<K, T>
    where
        T: PartialEq,
    {
        Self::compared(T::eq)
    }

    /// Returns settings for a watch that compares values by their versions.
    ///
    /// ```
    /// use homeostat::Watch;
    /// use homeostat::watch::EventKind;
    ///
    /// struct Vm { revision: u64, load: f64 }
    ///
    /// let push = Watch::versioned(|vm: &Vm| vm.revision).push();
    /// push.set("vm-1", Vm { revision: 1, load: 0.2 });
    /// assert_eq!(push.set("vm-1", Vm { revision: 1, load: 0.9 }), Some(EventKind::Unchanged));
    /// ```
    pub fn versioned<V: PartialEq>(version: impl Fn(&T) -> V + Send + Sync + 'static) -> WatchBuilder<K, T> {
        Self::compared(move |one, other| version(one) == version(other))
    }

    /// Returns settings for a watch that compares values with `is_same`.
    ///
    /// ```
    /// use homeostat::Watch;
    /// use homeostat::watch::EventKind;
    ///
    /// let push = Watch::compared(|one: &f64, other| (one - other).abs() < 0.5).push();
    /// push.set("load", 1.0);
    /// assert_eq!(push.set("load", 1.25), Some(EventKind::Unchanged));
    /// ```
    pub fn compared(is_same: impl Fn(&T, &T) -> bool + Send + Sync + 'static) -> WatchBuilder<K, T> {
        WatchBuilder::with(Box::new(is_same))
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchBuilder<K, T> {
    /// Starts a watch that is fed by the messages of a channel.
    ///
    /// The watch has its own thread (`<name>-0`). It stops when the channel is disconnected and empty, or when its
    /// handle is stopped. A stop wakes the thread, even if the channel is empty.
    ///
    /// The thread stores and delivers each message before it takes the next one. Make a subscriber
    /// [`buffered`](crate::Subscriber::buffered) if its mapping sends to this channel. Otherwise the thread would wait
    /// for itself once the channel is full.
    ///
    /// # Errors
    ///
    /// If the name contains a NUL character, or the system cannot start the thread.
    ///
    /// ```
    /// use crossbeam_channel::bounded;
    /// use homeostat::{Subscriber, Watch, WorkQueue};
    /// use homeostat::watch::PushMessage;
    ///
    /// let (vms, receiver) = bounded(16);
    /// let watched = Watch::builder().name("vms").from_receiver(receiver)?;
    /// let queue = WorkQueue::new();
    /// let subscription = watched.watch().subscribe(Subscriber::to_itself(&queue))?;
    ///
    /// vms.send(PushMessage::Set("vm-1", 1))?;
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// watched.stop();
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn from_receiver<M>(mut self, receiver: Receiver<M>) -> Result<Running<Watch<K, T>>, StartError>
    where
        M: Into<PushMessage<K, T>> + Send + 'static,
    {
        let threads = std::mem::take(&mut self.threads);
        let push = self.push();
        let watch = push.watch().clone();
        let source = watch.name();
        let group = ThreadGroup::new(ThreadGroupKind::Watch, source.to_owned(), watch.clock(), 1);
        // The channel has room for one message, and one is enough to wake the thread.
        let (stop, stopped) = bounded(1);
        log::info!(source; "{source}: the watch starts");
        // A disconnected channel is always ready, so the thread keeps `stopped` connected after a detach.
        let (fed, keep) = (push.clone(), stop.clone());
        let receive = move || {
            while !fed.watch().is_stopped() {
                select! {
                    recv(stopped) -> _ => {}
                    recv(receiver) -> message => match message {
                        Ok(message) => apply(&fed, message),
                        Err(_) => fed.stop(),
                    }
                }
            }
            drop(keep);
        };
        let on_stop = move || {
            push.stop();
            let _ = stop.try_send(());
        };
        let handle = group.start_function(&threads, receive, on_stop)?;
        Ok(Running::new(watch, handle.that_may_end(), Duration::MAX))
    }
}

/// Applies a message. A panic skips the message.
fn apply<K: Key + Sync, T: Send + Sync + 'static>(push: &Push<K, T>, message: impl Into<PushMessage<K, T>>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| push.apply(message.into()))) {
        let (source, message) = (push.watch().name(), panic_message(&*panic));
        log::error!(source, panic = message; "{source}: a message of the watch panicked: {message}");
    }
}
