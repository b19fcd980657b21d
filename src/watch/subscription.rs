//! A subscriber that runs: its thread, and the handle that ends it.

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

/// A subscriber that is told what changes, on a thread of its own. Dropping it ends it and joins the thread;
/// [`detach`](Self::detach) opts out. It ends by itself when its watch has stopped and it has been told everything.
///
/// # What a subscriber that lags is told
///
/// What it has not been told yet waits in a buffer that holds one entry for each key, however much happens: nobody waits for it,
/// and it costs no more memory than the keys that have changed since. Of a key it is told in the end what is true; what lies
/// between may be left out:
///
/// - updates in a row are one update, from what it was told last to the newest;
/// - what was created and updated is created;
/// - a deletion is never left out: what was deleted and created again is told as both, what was created and deleted is told as
///   deleted, and before a deletion comes an update to the last value if it was not told that one.
///
/// So of a value that changes twice before the subscriber comes to look (one owner, another, a third; on, off, on), a mapping or
/// a predicate is not asked about the one in the middle.
///
/// # Panics of a predicate or a mapping
///
/// They are caught, logged and counted, and the event is skipped. So is one of a key's own code on this thread, with all that
/// there was to say of the key.
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
    /// Open once the whole initial list has been delivered; given up if the subscription ends before.
    pub(crate) synced: Arc<Latch>,
}

/// What a handle needs of its watch and its buffer, whose types it does not know.
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
    /// In a simulation other threads get their turn between two events.
    one_event_per_step: bool,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Task for DeliveryTask<K, T> {
    fn step(&mut self, _now: Nanos) -> Next {
        loop {
            match self.buffer.next_step(&mut self.delivery) {
                NextStep::Deliver(next) => self.delivery.deliver(next),
                // Appending to an empty buffer wakes the thread, and so does the end of the watch or of the subscription.
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
    /// The name in log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.crew.name
    }

    /// Has `progress` called after each event that has been handed over. The first call counts.
    pub(crate) fn on_progress(&self, progress: Progress) {
        self.attachment.on_progress(progress);
    }

    /// Says later whether the subscriber has handled every change that its watch has stored by now.
    pub(crate) fn accepted(&self) -> HandedOver {
        self.attachment.accepted()
    }

    /// Whether the subscriber has been told of all that the initial list held, and its keys are in line.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.is_open()
    }

    /// Waits until [`has_synced`](Self::has_synced), for at most `timeout` by the watch's clock. Returns whether it has. That wakes
    /// it, or the end of the subscription: then it never will.
    #[must_use]
    pub fn wait_synced(&self, timeout: Duration) -> bool {
        self.synced.wait_for(timeout)
    }

    /// How many events have been handed to the mapping, and what it made of them to the queue.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.counts.delivered.load(SeqCst)
    }

    /// How many events a predicate has refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(SeqCst)
    }

    /// How many events a predicate, the mapping or the `Clone` of a key has panicked at.
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

    /// As [`Watch::resync`](crate::Watch::resync), for this subscriber alone: tells it of every key that is known, as
    /// [`Event::Unchanged`](crate::Event::Unchanged) unless it has yet to be told more. Returns at once; does nothing once the
    /// watch or this subscription has stopped.
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
        // First: the thread is woken to find that the subscription has ended.
        self.attachment.leave();
        self.handle.stop();
    }

    /// Blocks until the subscription has ended: [`stop`](Self::stop) was called, or its watch has stopped and all events have been
    /// delivered. Then its mapping does not run any more and has been dropped. Returns at once in its own mapping.
    pub fn join(mut self) {
        self.wait_for_end();
    }

    fn wait_for_end(&mut self) {
        // A thread is joined by the handle.
        if !self.has_thread && !self.attachment.is_delivering_here() {
            self.handle.crew.wait_until_empty(Nanos::NEVER);
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
