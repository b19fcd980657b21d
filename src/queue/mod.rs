//! The work queue.

mod builder;
mod claim;
mod feed;
mod index;
mod levels;
mod lists;
#[cfg(all(test, loom))]
mod models;
mod records;
mod report;
mod request;
mod section;
mod shared;
mod slab;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod timer;
mod view;
mod wheel;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::builder::{FastState, WorkQueueBuilder};
pub use self::claim::Claim;
pub use self::feed::Enqueue;
pub use self::levels::STARVATION_BOUND;
pub use self::report::{DequeueError, DrainReport, KeyState, PendingRerun, QueueMetrics, Tally};
pub use self::request::{DroppedRun, EnqueueMethod, EnqueueOutcome, EnqueueRequest, Priority, Reasons, Shutdown};
pub(crate) use self::shared::{QueueHooks, QueueShared};
pub(crate) use self::state::Ending;
pub use self::view::View;

use self::state::{Phase, RerunKind};
use crate::base::clock::Clock;
use crate::base::time::Nanos;

/// The bounds of a key type: cheap to clone, comparable and hashable by value, and safe to send between threads.
///
/// Every type that meets these bounds implements this trait. A [`Controller`](crate::Controller) also needs `Sync` and
/// `Debug`: `#[derive(Clone, Debug, PartialEq, Eq, Hash)]`.
///
/// A reconciler gets a reference to the key: `&String`, or `&&'static str` for keys of the type `&'static str`. A `str`
/// is no key.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

/// A work queue of keys. A key is queued at most once, and at most one worker processes it at a time.
///
/// A `WorkQueue` is a reference-counted handle, so cloning it is cheap. Dropping the last handle shuts the queue down
/// ([`Shutdown::ServeReady`]) and ends its timer. The methods of [`Enqueue`] add keys, and a dequeue returns the next
/// key as a [`Claim`].
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
///
/// let queue = WorkQueue::new();
/// assert_eq!(queue.enqueue("vm-1"), EnqueueOutcome::Queued);
/// assert_eq!(queue.enqueue("vm-1"), EnqueueOutcome::Merged);
///
/// let claim = queue.dequeue()?;
/// assert_eq!(queue.enqueue("vm-1"), EnqueueOutcome::Rerun); // it changes while it is being processed
/// claim.done();
///
/// let again = queue.dequeue()?; // nothing is lost
/// assert_eq!(*again, "vm-1");
/// again.done();
/// assert!(queue.is_empty());
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
///
/// # Effect of a request
///
/// A key without a record is *idle*. A record is *ready* (it waits for a worker), *delayed* (it waits for its due time)
/// or *processing* (a claim holds the key). A record in process remembers at most one *pending rerun*, so a key never
/// has more than one scheduled run. Each cell shows the new state of the record and, in italics, the
/// [`EnqueueOutcome`].
///
/// A pending rerun is *soft* (after the delay that the claim ends with), *at(t)* (at the time t) or *now*. The other
/// methods, `enqueue_debounced`, `enqueue_now_debounced` and `enqueue_resync`, are described at [`Enqueue`].
///
/// | record is → | idle | ready | delayed | processing, pending rerun: none | soft | at(t) | now |
/// |---|---|---|---|---|---|---|---|
/// | `enqueue_if_absent` | ready *queued* | – *ignored* | – *ignored* | none *ignored* | soft *ignored* | at(t) *ignored* | now *ignored* |
/// | `enqueue` | ready *queued* | – *merged* | – *held* | soft *rerun* | soft *rerun* | at(t) *rerun* | now *rerun* |
/// | `enqueue_now` | ready *queued* | – *merged* | ready, at the tail *queued* | now *rerun* | now *rerun* | now *rerun* | now *rerun* |
/// | `enqueue_after(d)` | delayed d *scheduled* | – *merged* | – *held* | at(now+d) *rerun* | soft *rerun* | at(t) *rerun* | now *rerun* |
/// | `reschedule(d)` | delayed d *scheduled* | delayed d *scheduled* | delayed d *scheduled* | at(now+d) *rerun* | at(now+d) *rerun* | at(now+d) *rerun* | at(now+d) *rerun* |
/// | `cancel` | – | idle | idle | none | none | none | none |
///
/// | the claim ends with ↓, pending rerun was → | none | soft | at(t) | now |
/// |---|---|---|---|---|
/// | `done()` | idle | ready | delayed t | ready |
/// | `requeue_after(d)` | delayed d | delayed d | delayed min(now+d, t) | ready |
/// | `retry()`, `retry_after(b)` (failed) | delayed b | delayed b | delayed b | delayed min(b, floor) |
///
/// If the time has already passed, the key becomes ready, behind all keys of its level. A
/// [`cool_down`](Claim::cool_down) delays the effect of every method. During a backoff, `enqueue_now` waits at least
/// for the *floor* of the queue.
///
/// # Guarantees
///
/// - No lost wakeup: after `enqueue` returns, a run of the key starts, unless the key is cancelled, discarded at
///   shutdown, or has a delay that never ends.
/// - No double run: from a dequeue to the end of its claim, no other claim gets the key.
/// - A delay never ends early. The timer adds at most 1/256 of the delay (or 131 µs, if that is more), and at most 8.4
///   ms. Delays with similar ends therefore share one wakeup. [`WorkQueueBuilder::timer_slack`] changes this. A held
///   clock is exact.
/// - No starvation: see [`STARVATION_BOUND`].
/// - At least once, not exactly once: a run may start although nothing has changed, so it must be idempotent.
/// - After a `fork` without `exec`, the child's copy of a queue has no timer, so its delays never end. Dropping the
///   copy does nothing.
///
/// # Cost
///
/// A request costs one hash, one lock and constant time. When the index is full, one request moves all keys to an index
/// of twice the size, under the lock. That takes some 20 ns a key: 20 ms at a million keys.
/// [`shrink_to_fit`](Self::shrink_to_fit), and [`drain`](Self::drain) after a timeout, hold the lock for a time
/// proportional to the number of keys.
///
/// # User code and the lock
///
/// `Hash` runs without the lock, once per request. `Eq`, `Clone` and, for [`request_ref`](Self::request_ref), `From`
/// run under the lock, before anything changes. They must not use the queue: that would deadlock. `Drop` and the
/// [`on_ready`](WorkQueueBuilder::on_ready) hook run without the lock. If any of these panics, the queue stays usable.
/// A panic in `Drop` is the exception.
#[doc(alias = "workqueue")]
#[doc(alias = "rate limiting queue")]
#[doc(alias = "scheduler")]
pub struct WorkQueue<K: Key, S = FastState> {
    pub(crate) shared: Arc<QueueShared<K>>,
    hasher: S,
}

impl<K: Key> WorkQueue<K> {
    /// Returns a queue with default settings on the system clock. For other settings see [`builder`](Self::builder).
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a queue with other settings.
    pub fn builder() -> WorkQueueBuilder<K> {
        WorkQueueBuilder::new()
    }
}

impl<K: Key, S> WorkQueue<K, S> {
    /// Returns a view of this queue that gives requests this priority.
    ///
    /// A request can raise the level of a key, but never lowers it. `enqueue_if_absent` does not raise it either. If
    /// the level of a ready key rises, the key moves to the tail of the new level.
    #[must_use]
    pub fn at(&self, priority: Priority) -> View<'_, K, S> {
        View::new(self).at(priority)
    }

    /// Returns a view of this queue that adds these reasons to requests.
    #[must_use]
    pub fn because(&self, reasons: Reasons) -> View<'_, K, S> {
        View::new(self).because(reasons)
    }

    /// Takes the next key. Blocks until a key is ready or the queue is shut down.
    ///
    /// # Errors
    ///
    /// If the queue is shut down, no key is ready, and no key that is being processed has a pending rerun.
    ///
    /// # Panics
    ///
    /// If the key's `Clone` panics. The key then backs off like a failed one.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{Enqueue, Shutdown, WorkQueue};
    /// use homeostat::queue::DequeueError;
    ///
    /// let queue = WorkQueue::new();
    /// queue.enqueue(7);
    /// assert_eq!(*queue.dequeue()?, 7);
    /// queue.shutdown(Shutdown::Discard);
    /// assert_eq!(queue.dequeue().unwrap_err(), DequeueError::Closed);
    /// # Ok::<_, DequeueError>(())
    /// ```
    #[inline]
    pub fn dequeue(&self) -> Result<Claim<K>, DequeueError> {
        self.shared.dequeue(Nanos::NEVER, || false)
    }

    /// Takes the next key if a key is ready. Does not block.
    ///
    /// # Errors
    ///
    /// [`DequeueError::Empty`] if no key is ready; [`DequeueError::Closed`] as for [`dequeue`](Self::dequeue).
    ///
    /// # Panics
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline(always)]
    pub fn try_dequeue(&self) -> Result<Claim<K>, DequeueError> {
        self.shared.try_dequeue(|| false)
    }

    /// Takes the next key. Blocks until a key is ready or the queue is shut down, for at most `timeout` by the queue's
    /// clock.
    ///
    /// # Errors
    ///
    /// [`DequeueError::Empty`] if no key became ready in time; [`DequeueError::Closed`] as for
    /// [`dequeue`](Self::dequeue).
    ///
    /// # Panics
    ///
    /// As [`dequeue`](Self::dequeue).
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Claim<K>, DequeueError> {
        let deadline = self.shared.now().after(timeout);
        self.shared.dequeue(deadline, || false)
    }

    /// Shuts the queue down, or makes an earlier shutdown stricter. Does not wait for claims.
    ///
    /// After this call, requests return [`EnqueueOutcome::Closed`]. Existing claims stay valid and may end at any time.
    /// A call that is no stricter than an earlier one changes nothing. The queue is locked for at most 1,024 records at
    /// a time.
    ///
    /// | mode | ready | delayed | pending rerun soft / now | pending rerun at(t) | requeue or retry afterwards |
    /// |---|---|---|---|---|---|
    /// | [`RunDelayedNow`](Shutdown::RunDelayedNow) | served | ready at once, in due order | ready | ready | not run, reported |
    /// | [`ServeReady`](Shutdown::ServeReady) | served | dropped, reported | ready | dropped, reported | not run, reported |
    /// | [`Discard`](Shutdown::Discard) | dropped, reported | dropped, reported | dropped, reported | dropped, reported | not run, reported |
    ///
    /// [`drain`](Self::drain) returns the report.
    ///
    /// # Panics
    ///
    /// If a key's `Clone` panics. The queue is shut down nevertheless. The report omits a key that is being processed
    /// and cannot be cloned.
    #[doc(alias = "stop")]
    #[doc(alias = "close")]
    pub fn shutdown(&self, mode: Shutdown) {
        self.shared.shut_down(mode);
    }

    /// Shuts the queue down and waits until no key is ready or being processed. Waits for at most `timeout` by the
    /// queue's clock.
    ///
    /// The mode is [`Shutdown::ServeReady`], unless an earlier shutdown set another one. The wait ends early if a
    /// stricter shutdown drops the last ready keys. After a timeout the queue continues to serve, and `drain` can be
    /// called again. Do not call this on a thread that holds a claim of this queue: it would wait for the whole
    /// timeout.
    ///
    /// Each report names all runs that the shutdown has dropped so far. The queue keeps them until its last handle is
    /// dropped.
    ///
    /// # Panics
    ///
    /// As [`shutdown`](Self::shutdown); and, after the wait, if the `Clone` of a key in the report panics.
    pub fn drain(&self, timeout: Duration) -> DrainReport<K> {
        let deadline = self.shared.now().after(timeout);
        self.shared.drain(deadline)
    }

    /// Returns the number of ready keys. For information only: a dequeue may still block.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.locked.lock().records.ready()
    }

    /// Returns whether no key is ready. Keys may be delayed or being processed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys in each state, and how many keys have become ready so far. Takes the lock once.
    #[must_use]
    pub fn metrics(&self) -> QueueMetrics {
        self.shared.locked.lock().records.metrics()
    }

    /// Returns the time at which the next delayed key is due; `None` if no delay ends. Under the lock, this visits only
    /// keys that are due at about that time.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.shared.locked.lock().records.next_delayed().map(|(_, due)| due)?;
        self.clock().instant(due)
    }

    /// Releases memory that the queue no longer needs. Without this call, a queue keeps room for the most keys that it
    /// ever held at once.
    ///
    /// Records do not move, so unused room before the last record in use stays.
    pub fn shrink_to_fit(&self) {
        self.shared.locked.lock().records.shrink_to_fit();
    }

    /// Returns the clock of this queue.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.config.clock.clone()
    }

    /// Returns the queue's name, which appears in log lines and thread names.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }
}

impl<K: Key, S: BuildHasher> WorkQueue<K, S> {
    /// Returns the state of a key.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics.
    #[must_use]
    pub fn state<Q>(&self, key: &Q) -> KeyState
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let locked = self.shared.locked.lock();
        match locked.records.find(hash, |known| known.borrow() == key) {
            Some(index) => self.key_state(locked.records.state(index)),
            None => KeyState::Idle,
        }
    }

    /// Returns whether no run of the key is owed. Requeues and reasonless future runs do not count.
    pub(crate) fn is_settled(&self, key: &K) -> bool {
        let hash = self.hash(key);
        let locked = self.shared.locked.lock();
        locked.records.find(hash, |known| known == key).is_none_or(|index| locked.records.is_settled(index))
    }

    /// Returns whether a key is ready, delayed or being processed.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.state(key) != KeyState::Idle
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        index::fold(self.hasher.hash_one(key))
    }

    fn key_state(&self, state: state::RecordState) -> KeyState {
        let instant = || self.shared.config.clock.instant(state.due);
        match state.phase {
            Phase::Idle | Phase::Cooling => KeyState::Idle,
            Phase::Ready => KeyState::Ready(state.priority),
            Phase::Delayed => KeyState::Delayed(instant()),
            Phase::Processing(rerun) => KeyState::Processing(match rerun {
                RerunKind::None => PendingRerun::None,
                RerunKind::Soft => PendingRerun::Soft,
                RerunKind::At | RerunKind::Rescheduled | RerunKind::Debounced => PendingRerun::At(instant()),
                RerunKind::Now => PendingRerun::Now,
            }),
        }
    }
}

impl<K: Key> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, S: Clone> Clone for WorkQueue<K, S> {
    fn clone(&self) -> Self {
        self.shared.locked.lock().handles += 1;
        Self { shared: Arc::clone(&self.shared), hasher: self.hasher.clone() }
    }
}

impl<K: Key, S> Drop for WorkQueue<K, S> {
    fn drop(&mut self) {
        self.shared.remove_handle();
    }
}

impl<K: Key, S> fmt::Debug for WorkQueue<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}
