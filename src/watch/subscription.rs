//! The handle of a subscription, and the thread of a buffered one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::core::WatchCore;
use super::delivery::{Delivery, DeliveryCounts};
use super::subscriber::Subscriber;
use super::subscriber_buffer::{NextStep, SubscriberBuffer};
use crate::base::error::StartError;
use crate::base::group::{Handle, StillRunning, ThreadGroup, ThreadGroupKind};
use crate::base::running::{EndHook, RunStatus, Runnable};
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::task::{Next, Task};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, HandedOver, Latch, Progress};
use crate::queue::Key;

/// A running subscription. Dropping it ends it, unless [`detach`](Self::detach) was called.
///
/// A subscription also ends when its watch has stopped and all events have been delivered.
///
/// # Events that are combined
///
/// Undelivered events wait in a buffer with one entry per key, if the subscriber is [`buffered`](Subscriber::buffered) or
/// another thread is delivering to it. The buffer combines the events of a key:
///
/// - several updates become one, from the last delivered value to the newest;
/// - a creation and later updates become one creation;
/// - a deletion is never left out. A deletion and a creation stay two events. A creation and a deletion become the deletion. If
///   the last value was not delivered, an update to it comes before the deletion.
///
/// Mappings and predicates may therefore miss a value that was soon replaced, such as an owner between two others.
///
/// # Panics of a predicate or a mapping
///
/// A panic is caught, logged and counted, and its event is skipped. If the `Clone` of a key panics, the events of that key are
/// skipped.
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
#[must_use = "dropping the handle ends the subscription"]
pub struct Subscription {
    handle: Handle,
    has_thread: bool,
    attachment: Arc<dyn Attached>,
    counts: Arc<DeliveryCounts>,
    /// Opens once the whole initial list has been delivered; given up if the subscription ends before.
    pub(crate) synced: Arc<Latch>,
}

/// The watch and the buffer of a subscription, without their type parameters.
trait Attached: Send + Sync {
    fn pending(&self) -> usize;
    fn resync(&self);
    fn leave(&self);
    fn is_delivering_here(&self) -> bool;
    fn on_progress(&self, progress: Progress);
    fn accepted(&self) -> HandedOver;
}

struct Attachment<K, T> {
    core: Arc<WatchCore<K, T>>,
    buffer: Arc<SubscriberBuffer<K, T>>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Attached for Attachment<K, T> {
    fn pending(&self) -> usize {
        self.buffer.len()
    }

    fn resync(&self) {
        self.core.resync(|buffer| Arc::ptr_eq(buffer, &self.buffer));
    }

    fn leave(&self) {
        self.buffer.leave();
    }

    fn is_delivering_here(&self) -> bool {
        self.buffer.is_delivering_here()
    }

    fn on_progress(&self, progress: Progress) {
        self.buffer.on_progress(progress);
    }

    fn accepted(&self) -> HandedOver {
        self.buffer.accepted()
    }
}

/// The body of a buffered subscriber's thread.
struct DeliveryTask<K: Key + Sync, T: Send + Sync + 'static> {
    buffer: Arc<SubscriberBuffer<K, T>>,
    delivery: Delivery<K, T>,
    /// In a simulation, other threads take a turn between two events.
    one_event_per_step: bool,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Task for DeliveryTask<K, T> {
    fn step(&mut self, _now: Nanos) -> Next {
        loop {
            match self.buffer.next_step(&mut self.delivery) {
                NextStep::Deliver(next) => self.delivery.deliver(&next),
                // An event in an empty buffer wakes the thread. The end of the watch or of the subscription wakes it too.
                NextStep::Wait => return Next::At(Nanos::NEVER),
                NextStep::Finish => return Next::Finished,
            }
            if self.one_event_per_step {
                return Next::At(Nanos::ZERO);
            }
        }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for DeliveryTask<K, T> {
    fn drop(&mut self) {
        self.buffer.leave();
    }
}

pub(super) fn start<K: Key + Sync, T: Send + Sync + 'static>(
    mut subscriber: Subscriber<K, T>,
    core: &Arc<WatchCore<K, T>>,
) -> Result<Subscription, StartError> {
    let clock = &core.clock;
    let own_thread = subscriber.buffered.then(|| AutoResetEvent::new(clock.clone()));
    let (buffer, number) = core.attach(subscriber.with_unchanged, own_thread.clone())?;
    let name = subscriber.name.take().unwrap_or_else(|| format!("{}-subscription-{number}", core.name));
    StartError::check_name(&name).inspect_err(|_| buffer.leave())?;
    let subscription = name.as_str();
    log::info!(subscription; "{subscription}: the subscription starts");
    let threads = subscriber.threads.take().unwrap_or_default();
    let counts = Arc::<DeliveryCounts>::default();
    let mut delivery = Delivery {
        name: name.clone(),
        subscriber,
        counts: Arc::clone(&counts),
        synced: Arc::clone(&buffer.synced),
        attendance: None,
    };
    let has_thread = own_thread.is_some();
    let handle = if let Some(event) = own_thread {
        let group = ThreadGroup::new(ThreadGroupKind::Subscription, name, clock.clone(), 1);
        let one_event_per_step = clock.scheduler().is_some();
        let task = DeliveryTask { buffer: Arc::clone(&buffer), delivery, one_event_per_step };
        let joiners = group.start_one(&threads, task, &event, None)?;
        Handle::new(group, joiners, Box::new(move || event.set()), Duration::MAX)
    } else {
        let (group, attendance) = ThreadGroup::without_thread(ThreadGroupKind::Subscription, name, clock.clone());
        delivery.attendance = Some(attendance);
        buffer.deliver_as(Box::new(delivery));
        Handle::new(group, Vec::new(), Box::new(|| ()), Duration::MAX)
    };
    let synced = Arc::clone(&buffer.synced);
    let attachment = Arc::new(Attachment { core: Arc::clone(core), buffer });
    Ok(Subscription { handle, has_thread, attachment, counts, synced })
}

impl Subscription {
    /// Returns the name in log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.group.name
    }

    /// Sets a callback for handled events and for the end. The first call counts.
    pub(crate) fn on_progress(&self, progress: Progress) {
        self.attachment.on_progress(progress);
    }

    /// Returns a check whether every event stored by now has been handled.
    pub(crate) fn accepted(&self) -> HandedOver {
        self.attachment.accepted()
    }

    /// Returns whether the whole initial list has been delivered and its keys have been enqueued.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.is_open()
    }

    /// Blocks until the initial list [has been delivered](Self::has_synced), for at most `timeout`.
    ///
    /// Returns whether it has been delivered. The timeout runs by the clock of the watch. The end of the subscription wakes the
    /// call too.
    #[must_use]
    pub fn wait_synced(&self, timeout: Duration) -> bool {
        self.synced.wait_for(timeout)
    }

    /// Returns the number of events that were mapped, with their keys enqueued.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.counts.delivered.load(SeqCst)
    }

    /// Returns the number of events that a predicate has refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(SeqCst)
    }

    /// Returns the number of panics of a predicate, of the mapping, or of the `Clone` of a key.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.counts.panics.load(SeqCst)
    }

    /// Returns the number of entries in the subscriber's buffer: one per key with undelivered events, and one for the end of the
    /// initial list.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.attachment.pending()
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
        self.attachment.resync();
    }

    /// Returns a call of [`resync`](Self::resync) for a caller that must release a lock first.
    pub(crate) fn resyncing(&self) -> Box<dyn FnOnce()> {
        let attachment = Arc::clone(&self.attachment);
        Box::new(move || attachment.resync())
    }

    /// Ends the subscription. Buffered events are dropped; an event that is being mapped is finished. Returns at once.
    pub fn stop(&self) {
        // First: the woken thread must find the subscription ended.
        self.attachment.leave();
        self.handle.stop();
    }

    /// Blocks until the subscription has ended: [`stop`](Self::stop) was called, or its watch has stopped and all events have
    /// been delivered. Afterwards the mapping does not run any more and has been dropped. Returns at once in its own mapping.
    pub fn join(mut self) {
        self.wait_for_end();
    }

    fn wait_for_end(&mut self) {
        // The handle joins the thread, if the subscriber has its own.
        if !self.has_thread && !self.attachment.is_delivering_here() {
            self.handle.group.wait_until_empty(Nanos::NEVER);
        }
        self.handle.join();
    }

    /// As [`join`](Self::join), for at most `timeout` by the watch's clock.
    ///
    /// # Errors
    ///
    /// [`StillRunning`] if the subscription has not ended by then.
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        self.handle.join_timeout(timeout)
    }

    /// Lets the subscription run until its watch stops. The subscriber holds a handle of its queue, so the queue stays open too.
    pub fn detach(mut self) {
        self.handle.detach();
    }
}

impl Drop for Subscription {
    /// Ends the subscription and waits as [`join`](Self::join) does.
    fn drop(&mut self) {
        if !self.handle.is_detached() {
            self.stop();
            self.wait_for_end();
        }
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

impl Runnable for Subscription {
    fn stop(&self) {
        Subscription::stop(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        self.handle.join_timeout(timeout)
    }

    fn join(&mut self) {
        self.wait_for_end();
    }

    fn detach(&mut self) {
        self.handle.detach();
    }

    fn status(&self) -> RunStatus {
        self.handle.status()
    }

    fn on_end(&self, hook: EndHook) {
        self.handle.on_end(hook);
    }

    fn may_end(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "subscription"
    }
}
