//! Running subscriptions, and the thread of a buffered one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::core::WatchCore;
use super::subscriber::Subscriber;
use super::subscriber_buffer::{Delivery, SubscriberBuffer};
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::task::{Next, Task};
use crate::base::thread::Joiner;
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, Latch};
use crate::queue::{EnqueueMethod, Key};
use crate::watch::source_state::{KeySource, SourceProgress};

/// A running subscription. Its handle [`Running<Subscription>`](Running) derefs to this type.
///
/// A stop ends the subscription: buffered events are dropped, and an event that is being mapped is finished. Dropping
/// the handle stops it and waits for the end. It also ends when its watch has stopped and all events have been
/// delivered. At its end, the mapping is dropped and never runs again. In the subscription's own mapping,
/// [`join`](Running::join) and a drop do not wait.
///
/// A [detached](Running::detach) subscription runs until its watch stops. Its subscriber holds a handle of the queue,
/// so the queue stays open too.
///
/// # Events that are combined
///
/// Undelivered events wait in a buffer with one entry per key, if the subscriber is [`buffered`](Subscriber::buffered)
/// or another thread is delivering to it. The buffer combines the events of a key:
///
/// - several updates become one, from the last delivered value to the newest;
/// - a creation and later updates become one creation;
/// - a deletion is never left out. A deletion and a creation stay two events. A creation and a deletion become the
///   deletion. If the last value was not delivered, an update to it comes before the deletion.
///
/// Mappings and predicates may therefore miss a value that was soon replaced, such as an owner between two others.
///
/// # Panics of a predicate or a mapping
///
/// A panic is caught, logged and counted, and its event is skipped. If the `Clone` of a key panics, the events of that
/// key are skipped.
///
/// # Examples
///
/// ```
/// use homeostat::{Subscriber, Watch, WorkQueue};
/// use std::time::Duration;
///
/// let push = Watch::push();
/// push.replace_all([("vm-1", 1), ("vm-2", 1)]);
///
/// let queue = WorkQueue::new();
/// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
/// assert!(subscription.wait_synced(Duration::from_secs(1)));
/// assert_eq!(queue.len(), 2);
///
/// drop(subscription);
/// push.set("vm-3", 1);
/// assert_eq!(queue.len(), 2);
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub struct Subscription {
    pub(crate) source: Arc<dyn KeySource>,
    delivery: Arc<Delivery>,
}

/// The link between a watch and one subscriber.
struct Attached<K, T> {
    core: Arc<WatchCore<K, T>>,
    buffer: Arc<SubscriberBuffer<K, T>>,
    group: Arc<ThreadGroup>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> KeySource for Attached<K, T> {
    fn progress(&self) -> &SourceProgress {
        &self.buffer.delivery.progress
    }

    fn buffered(&self) -> usize {
        self.buffer.len()
    }

    fn is_current(&self) -> bool {
        self.buffer.is_delivering_here()
    }

    fn end(&self, _abort: bool) {
        self.group.stop();
        self.buffer.leave();
    }

    fn resync(&self, method: EnqueueMethod) {
        self.core.resync(method, |buffer| Arc::ptr_eq(buffer, &self.buffer));
    }
}

/// The body of a buffered subscriber's thread. An event in an empty buffer wakes it, as does the end of the watch or of
/// the subscription.
struct DeliveryTask<K: Key + Sync, T: Send + Sync + 'static> {
    buffer: Arc<SubscriberBuffer<K, T>>,
    /// Set in a simulation, so that other tasks run between two events.
    one_event_per_step: bool,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Task for DeliveryTask<K, T> {
    fn step(&mut self, _now: Nanos) -> Next {
        self.buffer.deliver(self.one_event_per_step)
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for DeliveryTask<K, T> {
    fn drop(&mut self) {
        self.buffer.leave();
        // Drops the mapping, if the thread was never started.
        self.buffer.deliver(false);
    }
}

pub(super) fn start<K: Key + Sync, T: Send + Sync + 'static>(
    mut subscriber: Subscriber<K, T>,
    core: &Arc<WatchCore<K, T>>,
) -> Result<Running<Subscription>, StartError> {
    let (kind, clock) = (ThreadGroupKind::Subscription, &core.clock);
    let number = core.last_subscription.fetch_add(1, SeqCst) + 1;
    let name = subscriber.name.take().unwrap_or_else(|| format!("{}-subscription-{number}", core.name));
    StartError::check_name(&name)?;
    let own_thread = subscriber.buffered.then(|| AutoResetEvent::new(clock.clone()));
    let buffer = SubscriberBuffer::new(name.clone(), clock, subscriber.with_unchanged, own_thread.clone());
    core.attach(&buffer)?;
    let subscription = name.as_str();
    log::info!(subscription; "{subscription}: the subscription starts");
    let options = subscriber.threads.take().unwrap_or_default();
    let group = if own_thread.is_some() {
        ThreadGroup::new(kind, name.clone(), clock.clone(), 1)
    } else {
        let (group, attendance) = ThreadGroup::without_thread(kind, name.clone(), clock.clone());
        subscriber.attendance = Some(attendance);
        group
    };
    buffer.begin(subscriber);
    let attached =
        Arc::new(Attached { core: Arc::clone(core), buffer: Arc::clone(&buffer), group: Arc::clone(&group) });
    let delivery = Arc::clone(&buffer.delivery);
    let leaving = Arc::clone(&buffer);
    let on_stop = move || leaving.leave();
    let handle = if let Some(event) = own_thread {
        let one_event_per_step = clock.scheduler().is_some();
        group.start_one(&options, DeliveryTask { buffer, one_event_per_step }, event, None, on_stop)?
    } else {
        let end = Arc::clone(&group.end);
        let join = move || {
            end.wait_until_empty(Nanos::NEVER);
        };
        Handle::new(group, on_stop).with(Joiner::of_task(name, move || buffer.is_delivering_here(), join))
    };
    Ok(Running::new(Subscription { source: attached, delivery }, handle.that_may_end(), Duration::MAX))
}

impl Subscription {
    /// Returns the latch that is set once the whole initial list has been delivered.
    pub(crate) fn synced(&self) -> &Arc<Latch> {
        &self.delivery.synced
    }

    /// Returns the name in log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.delivery.name
    }

    /// Returns whether the whole initial list has been delivered and its keys have been enqueued.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.delivery.synced.is_open()
    }

    /// Blocks until the initial list [has been delivered](Self::has_synced), for at most `timeout`.
    ///
    /// Returns whether it has been delivered. The timeout follows the clock of the watch. The end of the subscription
    /// wakes the call too.
    #[must_use]
    pub fn wait_synced(&self, timeout: Duration) -> bool {
        self.delivery.synced.wait_for(timeout)
    }

    /// Returns the number of events that were mapped, with their keys enqueued.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivery.delivered.load(SeqCst)
    }

    /// Returns the number of events that a predicate has refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.delivery.refused.load(SeqCst)
    }

    /// Returns how often a predicate, the mapping, or the `Clone` of a key has panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.delivery.panics.load(SeqCst)
    }

    /// Returns the number of entries in the subscriber's buffer: one per key with undelivered events, and one for the
    /// end of the initial list.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.source.buffered()
    }

    /// Delivers every item again to this subscriber alone, as [`Watch::resync`](crate::Watch::resync) does to all.
    ///
    /// Does nothing once the watch or this subscription has stopped.
    ///
    /// ```
    /// use homeostat::{Reasons, Subscriber, Watch, WorkQueue};
    ///
    /// let push = Watch::push();
    /// push.replace_all([("vm-1", 1)]);
    /// let (queue, other) = (WorkQueue::new(), WorkQueue::new());
    /// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
    /// let beside = push.watch().subscribe(Subscriber::to_itself(&other))?;
    /// queue.dequeue()?.done();
    /// other.dequeue()?.done();
    ///
    /// subscription.resync();
    /// assert_eq!(queue.dequeue()?.reasons(), Reasons::RESYNC);
    /// assert!(other.is_empty());
    /// # drop((subscription, beside));
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn resync(&self) {
        self.source.resync(EnqueueMethod::EnqueueResync);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("name", &self.name())
            .field("pending", &self.pending())
            .field("delivered", &self.delivered())
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
