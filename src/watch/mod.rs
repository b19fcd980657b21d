//! Watches, which compare, store and deliver the changes of a producer to any number of subscribers.

mod core;
mod event;
mod event_buffer;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod poller;
mod predicate;
mod push;
pub(crate) mod source;
pub(crate) mod source_state;
pub(crate) mod store;
mod subscriber;
mod subscriber_buffer;
mod subscription;

use std::fmt;
use std::sync::Arc;

pub use self::core::ChangeCounts;
pub use self::event::{Event, EventKind};
pub use self::poller::Poller;
pub use self::predicate::Predicate;
pub use self::push::{Push, PushMessage, WatchBuilder};
pub use self::source::{SourceHandle, SourceStatus};
pub use self::store::{Index, Store};
pub use self::subscriber::Subscriber;
pub use self::subscription::Subscription;

use self::core::WatchCore;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::queue::{EnqueueMethod, Key};
use crate::run::gate::BringGate;
use crate::watch::source_state::SourceState;

/// A set of keyed values with one producer, a store and any number of subscribers. Cheap to clone.
///
/// It is read only. To set values yourself, call [`Watch::push`](Self::push): it returns the [`Push`] of a new watch.
///
/// The producer is a [`Poller`] (any listing), a [`Push`] (callbacks), a [channel](WatchBuilder::from_receiver), or a
/// `Directory` of the crate `homeostat-host`. Each value is compared with the stored one. An equal value makes no
/// event. A change is first put into the [`Store`], then delivered to the [subscribers](Self::subscribe).
///
/// # Which thread maps an event
///
/// The producer's thread maps an event to keys and enqueues them, after it has released the locks of the watch.
/// Mappings must therefore be quick. A [`buffered`](Subscriber::buffered) subscriber has its own thread.
///
/// Only one thread at a time delivers to a subscriber. If another thread pushes meanwhile, its call does not wait: the
/// delivering thread takes over its events. The same applies if a mapping pushes. Events of a key therefore arrive in
/// the order in which they were stored, and a call may deliver events of other threads.
///
/// A watch stops with its producer. This handle does not keep it running.
///
/// # Examples
///
/// ```
/// use homeostat::{Context, Enqueue, Poller, Predicate, Reasons, Subscriber, WorkQueue};
/// use std::time::Duration;
///
/// #[derive(PartialEq)]
/// struct Disk { vm: &'static str, full: bool }
///
/// let list = |_cx: &Context| Ok::<_, std::io::Error>([("disk-1", Disk { vm: "vm-1", full: false })]);
/// let disks = Poller::new(Duration::from_secs(5), list).watch()?;
///
/// let vms = WorkQueue::new();
/// let owners = Subscriber::to_owner(&vms, |_name, disk: &Disk| [disk.vm])
///     .when(Predicate::changed_by(|disk: &Disk| disk.full))
///     .secondary();
/// let subscription = disks.subscribe(owners)?;
///
/// let claim = vms.dequeue()?;
/// assert_eq!((*claim, claim.reasons()), ("vm-1", Reasons::CREATED | Reasons::SECONDARY));
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[doc(alias = "informer")]
#[doc(alias = "reflector")]
pub struct Watch<K, T> {
    core: Arc<WatchCore<K, T>>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Watch<K, T> {
    /// Delivers all existing items and every later change to `subscriber`. Works at any time. The subscription ends
    /// when the handle is dropped or the watch stops.
    ///
    /// Returns once this thread has delivered the existing items. For a [`buffered`](Subscriber::buffered) subscriber
    /// it returns at once.
    ///
    /// # Errors
    ///
    /// If the watch has stopped, the name of the subscriber contains a NUL character, or the system cannot start the
    /// thread of a buffered subscriber.
    pub fn subscribe(&self, subscriber: Subscriber<K, T>) -> Result<Running<Subscription>, StartError> {
        subscription::start(subscriber, &self.core)
    }

    /// Returns the store of last known values. It keeps them after the watch has stopped.
    #[must_use]
    pub fn store(&self) -> Store<K, T> {
        self.core.store.clone()
    }

    /// Delivers every item to every subscriber again, as [`Event::Unchanged`]. If other events of a key are buffered,
    /// these are delivered instead.
    ///
    /// Keys run again even if they wait for a requeue ([`enqueue_resync`](crate::Enqueue::enqueue_resync), at low
    /// priority). Does nothing once the watch has stopped.
    ///
    /// ```
    /// use homeostat::{Reasons, Subscriber, Watch, WorkQueue};
    ///
    /// let push = Watch::push();
    /// push.replace_all([("vm-1", 1)]);
    /// let queue = WorkQueue::new();
    /// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
    /// queue.dequeue()?.done();
    ///
    /// push.watch().resync();
    /// assert_eq!(queue.dequeue()?.reasons(), Reasons::RESYNC);
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn resync(&self) {
        self.core.resync(EnqueueMethod::EnqueueResync, |_| true);
    }

    /// Returns a handle to check the producer's health and to trigger a listing. It stays valid after the watch was
    /// given to a [`Manager`](crate::Manager).
    #[must_use]
    pub fn source(&self) -> SourceHandle {
        SourceHandle::new(&self.core.source, self.core.store.synced())
    }

    /// Returns whether `clock` is simulated, although a thread outside the simulation lists for this watch.
    pub(crate) fn polls_outside(&self, clock: &Clock) -> bool {
        let Self { core } = self;
        clock.scheduler().is_some() && core.clock.scheduler().is_none() && core.source.poller.get().is_some()
    }

    /// Returns the state in which a custom producer records its health. A [`Poller`] and a `Directory` record theirs
    /// themselves.
    #[must_use]
    pub fn source_state(&self) -> &Arc<SourceState> {
        &self.core.source
    }

    /// Adds a gate to each controller that reads this watch. The producer calls this before the first subscription.
    pub fn bring_gate(&self, bring: BringGate) {
        let _ = self.core.bring_gate.set(bring);
    }

    pub(crate) fn gate_bringer(&self) -> Option<&BringGate> {
        self.core.bring_gate.get()
    }

    /// Returns whether the watch has stopped. It stops with its producer.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.core.is_stopped()
    }

    /// Returns the number of subscriptions that have not ended.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.core.subscriptions()
    }

    /// Returns the name. Log lines and the default names of subscriptions contain it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Returns the clock of the watch and its subscriptions.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.core.clock.clone()
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Running<Watch<K, T>> {
    /// Returns the watch.
    #[must_use]
    pub fn watch(&self) -> &Watch<K, T> {
        self
    }
}

impl<K, T> Clone for Watch<K, T> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> fmt::Debug for Watch<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("name", &self.core.name)
            .field("subscriptions", &self.subscriptions())
            .field("stopped", &self.is_stopped())
            .field("store", &self.core.store)
            .finish_non_exhaustive()
    }
}
