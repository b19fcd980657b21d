//! Subscribers: the mapping from events to keys, the queue for the keys, and the predicates that filter the events.

use std::fmt;
use std::time::Duration;

use super::event::{Event, EventKind};
use super::event_buffer::{NextEvent, Origin};
use super::predicate::Predicate;
use crate::base::group::Attendance;
use crate::base::thread::ThreadOptions;
use crate::queue::{Enqueue, EnqueueMethod, EnqueueRequest, Key, Priority, Reasons, Tally};

/// A mapping from the events of a [`Watch`](crate::Watch) to the keys of a queue. Predicates filter the events before
/// the mapping.
///
/// | event | how its keys are enqueued | reason |
/// |---|---|---|
/// | a change | [`enqueue_now`](Enqueue::enqueue_now): runs at once and ends a backoff; with [`soft`](Self::soft) [`enqueue`](Enqueue::enqueue), which respects pending delays; with [`debounced`](Self::debounced) [`enqueue_now_debounced`](Enqueue::enqueue_now_debounced), which waits for a quiet period | created, updated or deleted |
/// | an item of the initial list | [`enqueue`](Enqueue::enqueue), at low priority | created |
/// | a resync | [`enqueue_resync`](Enqueue::enqueue_resync), at low priority: runs a key that waits for a requeue, but not a key in backoff | resync |
///
/// The store is updated before the key is enqueued.
///
/// # Examples
///
/// A controller of VMs watches the VMs, and the disks that belong to them:
///
/// ```
/// use homeostat::{Predicate, Reasons, Subscriber, Watch, WorkQueue};
///
/// #[derive(PartialEq)]
/// struct Disk { owner: Option<&'static str>, size: u64 }
///
/// let (vms, disks) = (Watch::push(), Watch::<&str, Disk>::push());
/// let queue = WorkQueue::new();
///
/// let primary = vms.watch().subscribe(Subscriber::to_itself(&queue))?;
/// let by_owner = Subscriber::to_owner(&queue, |_disk, disk: &Disk| disk.owner);
/// let resized = by_owner.when(Predicate::changed_by(|disk: &Disk| disk.size)).secondary();
/// let secondary = disks.watch().subscribe(resized)?;
///
/// vms.set("vm-1", "running");
/// let claim = queue.dequeue()?;
/// assert_eq!((*claim, claim.reasons()), ("vm-1", Reasons::CREATED));
/// claim.done();
/// disks.set("disk-1", Disk { owner: Some("vm-1"), size: 10 });
/// let claim = queue.dequeue()?;
/// assert_eq!((*claim, claim.reasons()), ("vm-1", Reasons::CREATED | Reasons::SECONDARY));
/// # drop((primary, secondary));
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use = "a subscriber gets no event until it is subscribed"]
#[doc(alias = "event handler")]
pub struct Subscriber<K, T> {
    enqueue: EnqueueKeys<K, T>,
    predicate: Option<Predicate<K, T>>,
    /// The request for a change, without the reasons of its kind.
    request: EnqueueRequest,
    initial_priority: Priority,
    reasons: Option<ReasonsOf<K, T>>,
    pub(crate) name: Option<String>,
    pub(super) with_unchanged: bool,
    pub(super) buffered: bool,
    pub(super) threads: Option<ThreadOptions>,
    /// Ends a subscription without its own thread when it is dropped. Last field, so that the mapping drops first.
    pub(super) attendance: Option<Attendance>,
}

/// Maps an event to keys and enqueues them.
type EnqueueKeys<K, T> = Box<dyn FnMut(&Event<K, T>, EnqueueRequest) -> Tally + Send>;

type ReasonsOf<K, T> = Box<dyn FnMut(&Event<K, T>) -> Reasons + Send>;

impl<K: Key + Sync, T: Send + Sync + 'static> Subscriber<K, T> {
    /// Enqueues into `to` the keys that `mapping` returns for an event. The mapping is called for every event that
    /// passes the predicates, including [`Event::Synced`].
    ///
    /// If the owner of an item can change, map the old value of an update too: otherwise the previous owner does not
    /// run. [`to_owner`](Self::to_owner) maps both values.
    ///
    /// ```
    /// use homeostat::{Event, Subscriber, Watch, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// let gone = Subscriber::to(&queue, |event: &Event<&str, u32>| match event {
    ///     Event::Deleted { last, .. } => Some(**last),
    ///     _ => None,
    /// });
    /// let push = Watch::push();
    /// let subscription = push.watch().subscribe(gone)?;
    /// push.set("vm-1", 7);
    /// push.remove("vm-1");
    /// assert_eq!(*queue.dequeue()?, 7);
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn to<J, I, F, Q>(to: &Q, mut mapping: F) -> Self
    where
        I: IntoIterator<Item = J>,
        F: FnMut(&Event<K, T>) -> I + Send + 'static,
        Q: Enqueue<J> + Clone + Send + 'static,
    {
        let to = to.clone();
        Self::new(move |event, request| to.request_all(&mut mapping(event).into_iter(), request))
    }

    /// Enqueues the key of each event into `to`.
    pub fn to_itself<Q>(to: &Q) -> Self
    where
        Q: Enqueue<K> + Clone + Send + 'static,
    {
        Self::to(to, |event| event.key().cloned())
    }

    /// Enqueues into `to` the keys that `owners` returns for an item. These may be its owner, or the objects that refer
    /// to it.
    ///
    /// For an update, `owners` is called with the old and with the new value. The queue merges a key that it returns
    /// for both.
    #[doc(alias = "owns")]
    #[doc(alias = "EnqueueRequestForOwner")]
    pub fn to_owner<J, I, F, Q>(to: &Q, mut owners: F) -> Self
    where
        I: IntoIterator<Item = J>,
        F: FnMut(&K, &T) -> I + Send + 'static,
        Q: Enqueue<J> + Clone + Send + 'static,
    {
        let to = to.clone();
        Self::new(move |event, request| {
            let (Some(key), Some(value)) = (event.key(), event.value()) else {
                return Tally::default();
            };
            let before = event.old().map(|old| owners(key, old));
            to.request_all(&mut before.into_iter().flatten().chain(owners(key, value)), request)
        })
    }

    pub(super) fn new(enqueue: impl FnMut(&Event<K, T>, EnqueueRequest) -> Tally + Send + 'static) -> Self {
        Self {
            enqueue: Box::new(enqueue),
            predicate: None,
            request: EnqueueRequest::new(EnqueueMethod::EnqueueNow),
            initial_priority: Priority::Low,
            reasons: None,
            name: None,
            with_unchanged: false,
            buffered: false,
            threads: None,
            attendance: None,
        }
    }

    /// Accepts only events that pass `predicate`. If called again, an event must pass all of them.
    pub fn when(mut self, predicate: Predicate<K, T>) -> Self {
        self.predicate = Some(match self.predicate {
            Some(earlier) => earlier.and(predicate),
            None => predicate,
        });
        self
    }

    /// Uses [`enqueue`](Enqueue::enqueue) for changes: a key with a pending delay or backoff does not run earlier.
    pub fn soft(mut self) -> Self {
        self.request.method = EnqueueMethod::Enqueue;
        self
    }

    /// Uses [`enqueue_now_debounced`](Enqueue::enqueue_now_debounced) for changes: a key runs after `quiet` without a
    /// change, or at the latest `max_wait` after the first change.
    ///
    /// A pending requeue does not delay the key further. In backoff, the key waits at least for the floor of the
    /// backoff. If [`soft`](Self::soft) is set as well, the last call wins.
    ///
    /// ```
    /// use homeostat::{ManualClock, Subscriber, Watch, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = WorkQueue::builder().clock(clock.clock()).build();
    /// let push = Watch::builder().clock(clock.clock()).push();
    /// push.synced();
    /// let calm = Subscriber::to_itself(&queue).debounced(Duration::from_secs(1), Duration::from_secs(10));
    /// let subscription = push.watch().subscribe(calm)?;
    /// for load in 0..100 {
    ///     push.set("vm-1", load);
    /// }
    /// assert!(queue.is_empty());
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn debounced(mut self, quiet: Duration, max_wait: Duration) -> Self {
        self.request.method = EnqueueMethod::EnqueueNowDebounced { quiet, max_wait };
        self
    }

    /// Adds `reasons` to the reasons for every event.
    pub fn because(mut self, reasons: Reasons) -> Self {
        self.request.reasons |= reasons;
        self
    }

    /// Takes the reasons for an event from `reasons`, instead of from its kind. [`because`](Self::because) adds to
    /// them.
    ///
    /// ```
    /// use homeostat::{Reasons, Subscriber, Watch, WorkQueue};
    /// use homeostat::watch::EventKind;
    ///
    /// let queue = WorkQueue::new();
    /// let push = Watch::<&str, u32>::push();
    /// let purging = Subscriber::to_itself(&queue).reasons(|event| match event.kind() {
    ///     EventKind::Deleted => Reasons::PURGED,
    ///     _ => Reasons::EVENT,
    /// });
    /// let subscription = push.watch().subscribe(purging)?;
    /// push.set("vm-1", 1);
    /// assert_eq!(queue.dequeue()?.reasons(), Reasons::EVENT);
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn reasons(mut self, reasons: impl FnMut(&Event<K, T>) -> Reasons + Send + 'static) -> Self {
        self.reasons = Some(Box::new(reasons));
        self
    }

    /// Adds [`Reasons::SECONDARY`]: the changed item belongs to the object that the key names.
    pub fn secondary(self) -> Self {
        self.because(Reasons::SECONDARY)
    }

    /// Sets the priority level for changes. Default: normal.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.request.priority = priority;
        self
    }

    /// Sets the priority level for the initial list. Default: low.
    pub fn initial_priority(mut self, priority: Priority) -> Self {
        self.initial_priority = priority;
        self
    }

    /// Also delivers items that a whole listing finds unchanged, as a [`resync`](crate::Watch::resync) does. A whole
    /// listing is a poll or a [`replace_all`](crate::watch::Push::replace_all).
    pub fn with_unchanged(mut self) -> Self {
        self.with_unchanged = true;
        self
    }

    /// Gives the subscriber its own thread, `<name>-0`, and a buffer with one entry per key.
    ///
    /// Use it for a mapping that may block, or that takes a lock which a pushing thread holds. Without it, predicates
    /// and mapping run on the thread that pushes a change, subscribes or resyncs, and that call waits for them.
    ///
    /// ```
    /// use homeostat::{Event, Subscriber, Watch, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// let slow = Subscriber::to(&queue, |event: &Event<&str, u32>| {
    ///     std::thread::yield_now(); // asks a server, say
    ///     event.key().copied()
    /// });
    /// let push = Watch::push();
    /// let subscription = push.watch().subscribe(slow.buffered())?;
    /// push.set("vm-1", 7); // returns at once
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn buffered(mut self) -> Self {
        self.buffered = true;
        self
    }

    /// Sets the name for log lines and for the thread of a [`buffered`](Self::buffered) subscriber. Default:
    /// `<watch>-subscription-<number>`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the thread options of a [`buffered`](Self::buffered) subscriber. Default: the options of its controller, or
    /// the platform's options without a controller.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.threads = Some(options);
        self
    }

    /// Sets the thread options, unless the user has set them.
    pub(crate) fn or_thread_options(mut self, options: &ThreadOptions) -> Self {
        self.threads.get_or_insert_with(|| options.clone());
        self
    }

    /// Maps an event and enqueues its keys. Returns `None` if a predicate refuses the event.
    pub(super) fn deliver(&mut self, next: &NextEvent<K, T>) -> Option<Tally> {
        let event = &next.event;
        if self.predicate.as_ref().is_some_and(|predicate| !predicate.accepts(event)) {
            return None;
        }
        let mut request = self.request;
        match next.origin {
            Origin::Change => {}
            Origin::InitialList => (request.method, request.priority) = (EnqueueMethod::Enqueue, self.initial_priority),
            Origin::Resync(method) => (request.method, request.priority) = (method, Priority::Low),
        }
        request.reasons |= match (&mut self.reasons, event.kind()) {
            (Some(reasons), _) => reasons(event),
            (None, EventKind::Created) => Reasons::CREATED,
            (None, EventKind::Updated) => Reasons::UPDATED,
            (None, EventKind::Deleted) => Reasons::DELETED,
            (None, EventKind::Unchanged) => Reasons::RESYNC,
            (None, EventKind::Synced) => Reasons::NONE,
        };
        Some((self.enqueue)(event, request))
    }
}

impl<K, T> fmt::Debug for Subscriber<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("name", &self.name)
            .field("request", &self.request)
            .field("predicate", &self.predicate.is_some())
            .finish_non_exhaustive()
    }
}
