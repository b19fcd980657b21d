//! The work queue: its public face.

mod builder;
mod cancel;
mod claim;
mod error;
mod feed;
mod levels;
mod lists;
#[cfg(all(test, loom))]
mod models;
mod records;
mod report;
mod request;
mod shared;
mod slab;
mod state;
mod timer;
mod view;
mod wheel;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::builder::{FastHasher, FastState, QueueBuilder};
pub use self::claim::Claim;
pub use self::error::{DequeueError, DequeueTimeoutError, TryDequeueError};
pub use self::feed::{Enqueue, Filter, Map, Tee};
pub use self::levels::STARVATION_BOUND;
pub use self::report::{DrainReport, KeyState, PendingRerun, QueueMetrics, Tally};
pub use self::request::{DroppedRun, EnqueueMethod, EnqueueOutcome, EnqueueRequest, Priority, Reasons, Shutdown};
pub(crate) use self::shared::{NoClaim, QueueShared};
pub(crate) use self::state::Ending;
pub use self::view::{ByRef, View};

use self::state::{Phase, RerunKind};
use crate::base::clock::Clock;
use crate::base::time::Nanos;

/// What a key must be: cheap to clone, compared and hashed by value, and free to move between threads.
///
/// Implemented for every such type; there is nothing to write.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

/// A work queue of keys: each at most once in line, and at most once in the hands of a worker.
///
/// This is a counted handle: cloning it is cheap, and dropping the last one shuts the queue down
/// ([`Shutdown::ServeReady`]) and joins its timer thread. Keys go in by the methods of [`Enqueue`] and come out as
/// [`Claim`]s.
///
/// # What a request does
///
/// A key in no record is *idle*. A record is *ready* (in line), *delayed* (has a due time), or *processing* (a claim
/// holds it); while it is being processed it remembers at most one *pending rerun* for afterwards. One pending wake a key, always.
/// In each cell: what becomes of the record, and in italics the [`EnqueueOutcome`].
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
/// A time that has come already means ready, at the tail. A delay set by a claim's
/// [`cool_down`](Claim::cool_down) holds every method; the *floor* of the queue holds `enqueue_now` while a key backs off.
///
/// # Guarantees
///
/// - No lost wakeup: a run that starts after an `enqueue` returned follows, unless the key is cancelled, discarded at
///   shutdown, or held by a delay that never ends.
/// - No double run: between a dequeue and the end of its claim nobody else gets the key.
/// - A delay is never early. It is at most a fraction of a millisecond late by the queue's doing.
/// - No starvation: see [`STARVATION_BOUND`].
/// - At least once, not exactly once: a run may be called although nothing has changed, so it must be idempotent.
///
/// # Cost
///
/// A request costs one hash, one lock and constant time, but for growth: when the index is full, one request moves all keys to one of
/// twice the size, under the lock. That takes some 0.1 µs a key: a tenth of a second at a million keys, a second at ten million.
/// A drain that times out, and [`shrink_to_fit`](Self::shrink_to_fit), also hold the lock for a time in proportion to the keys.
///
/// # User code and the lock
///
/// `Hash` runs outside the lock, once a request. `Eq`, `Clone` and, for [`by_ref`](Self::by_ref), `From` run under it, before
/// anything changes; a key's `Drop` and the [`on_ready`](QueueBuilder::on_ready) hook run after it. A panic in any of them
/// leaves the queue usable. What runs under the lock must not use the queue: an `Eq` that does so deadlocks.
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
#[doc(alias = "workqueue")]
#[doc(alias = "rate limiting queue")]
#[doc(alias = "scheduler")]
pub struct WorkQueue<K: Key, S = FastState> {
    pub(crate) shared: Arc<QueueShared<K>>,
    hasher: S,
}

impl<K: Key> WorkQueue<K> {
    /// A queue on the system's clock with default settings; see [`QueueBuilder`].
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a queue.
    pub fn builder() -> QueueBuilder<K> {
        QueueBuilder::new()
    }
}

impl<K: Key, S> WorkQueue<K, S> {
    /// The same queue with its methods in the level `priority`. A request raises the level of a key and never lowers it, and
    /// `enqueue_if_absent` never raises it; raising moves a key in line to the tail of the new level.
    #[must_use]
    pub fn at(&self, priority: Priority) -> View<'_, K, S> {
        View::new(self).at(priority)
    }

    /// The same queue with its methods for these reasons.
    #[must_use]
    pub fn because(&self, reasons: Reasons) -> View<'_, K, S> {
        View::new(self).because(reasons)
    }

    /// The same queue with methods that take borrowed keys.
    #[must_use]
    pub fn by_ref(&self) -> ByRef<'_, K, S> {
        View::new(self).by_ref()
    }

    /// Takes the next key. Blocks while none is in line; a key that comes into line, or a shutdown, wakes it.
    ///
    /// # Errors
    ///
    /// Once the queue is shut down, nothing is in line, and no key that is being processed will be.
    ///
    /// # Panics
    ///
    /// If the key's `Clone` does; that key then backs off as a failed one.
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
    /// assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
    /// # Ok::<_, DequeueError>(())
    /// ```
    #[inline]
    pub fn dequeue(&self) -> Result<Claim<K>, DequeueError> {
        self.shared.dequeue(Nanos::NEVER, || false).map_err(|_| DequeueError)
    }

    /// Takes the next key if one is in line. Does not block.
    ///
    /// # Errors
    ///
    /// [`TryDequeueError::Empty`] while none is in line, [`TryDequeueError::Closed`] as for [`dequeue`](Self::dequeue).
    ///
    /// # Panics
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn try_dequeue(&self) -> Result<Claim<K>, TryDequeueError> {
        self.shared.try_dequeue(|| false).map_err(NoClaim::of_try)
    }

    /// Takes the next key. Blocks for at most `timeout` by the queue's clock; a key that comes into line, or a shutdown,
    /// wakes it.
    ///
    /// # Errors
    ///
    /// [`DequeueTimeoutError::Timeout`] once the time is over and no key is in line, [`DequeueTimeoutError::Closed`] as for
    /// [`dequeue`](Self::dequeue).
    ///
    /// # Panics
    ///
    /// As [`dequeue`](Self::dequeue).
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Claim<K>, DequeueTimeoutError> {
        let deadline = self.shared.now().after(timeout);
        self.shared.dequeue(deadline, || false).map_err(|no_claim| match no_claim {
            NoClaim::Closed => DequeueTimeoutError::Closed,
            NoClaim::Empty | NoClaim::Stopped => DequeueTimeoutError::Timeout,
        })
    }

    /// Shuts the queue down, or shuts it down more strictly; a call that is no stricter than the last changes nothing.
    /// Waits for no claim. It takes the lock for at most 1,024 records at a time, so claims end and keys are served meanwhile.
    ///
    /// From its start on requests are answered with [`EnqueueOutcome::Closed`]; claims go on and may end at any time.
    ///
    /// | mode | ready | delayed | pending rerun soft / now | pending rerun at(t) | requeue or retry afterwards |
    /// |---|---|---|---|---|---|
    /// | [`RunDelayedNow`](Shutdown::RunDelayedNow) | served | ready at once, in due order | ready | ready | not run, reported |
    /// | [`ServeReady`](Shutdown::ServeReady) | served | dropped, reported | ready | dropped, reported | not run, reported |
    /// | [`Discard`](Shutdown::Discard) | dropped, reported | dropped, reported | dropped, reported | dropped, reported | not run, reported |
    ///
    /// What is reported, [`drain`](Self::drain) returns.
    ///
    /// # Panics
    ///
    /// If a key's `Clone` or `Drop` does; the queue is shut down all the same. A key that is being processed and cannot
    /// be cloned is missing from the report of its dropped rerun.
    #[doc(alias = "stop")]
    #[doc(alias = "close")]
    pub fn shutdown(&self, mode: Shutdown) {
        self.shared.shut_down(mode);
    }

    /// Shuts the queue down ([`Shutdown::ServeReady`], or what is set already) and waits until nothing is in line and
    /// nothing is being processed, for at most `timeout` by the queue's clock. The end of the last claim wakes it, or a
    /// stricter shutdown.
    ///
    /// It returns no sooner; after the timeout the queue goes on serving, and `drain` can be called again. A thread that
    /// holds a claim itself waits for the whole timeout.
    ///
    /// # Panics
    ///
    /// As [`shutdown`](Self::shutdown), and, once it has waited, if the `Clone` of a key in the report does.
    pub fn drain(&self, timeout: Duration) -> DrainReport<K> {
        let deadline = self.shared.now().after(timeout);
        self.shared.drain(deadline)
    }

    /// How many keys are in line. Like all inspection: for information, never for deciding whether a dequeue will block.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.locked.lock().records.ready()
    }

    /// Whether no key is in line; keys may be delayed or in process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are being processed.
    #[must_use]
    pub fn processing_count(&self) -> usize {
        self.shared.locked.lock().records.counts.processing
    }

    /// How many keys wait for a time.
    #[must_use]
    pub fn delayed_count(&self) -> usize {
        self.shared.locked.lock().records.counts.delayed
    }

    /// What is in the queue, and how many keys have come into line so far. Takes the lock once.
    #[must_use]
    pub fn metrics(&self) -> QueueMetrics {
        self.shared.locked.lock().records.metrics()
    }

    /// Returns when the next delayed key comes due; `None` if there is none, or none that ever comes. Looks, under the lock, at the keys
    /// in the same slot of the timer wheel: those that come due about then.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.shared.locked.lock().records.next_due()?;
        self.clock().instant(due)
    }

    /// Gives back memory that a burst of keys has left. Nothing shrinks by itself: the queue keeps room for as many keys as
    /// it has held at once. Records do not move, so a key that came late and stays holds the room of those before it.
    pub fn shrink_to_fit(&self) {
        self.shared.locked.lock().records.shrink_to_fit();
    }

    /// The clock that this queue goes by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.config.clock.clone()
    }

    /// The name that its threads and its log lines carry.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }
}

impl<K: Key, S: BuildHasher> WorkQueue<K, S> {
    /// Where a key stands.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does.
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

    /// Whether nothing waits to be done for a key, unless a run that was asked for a later time.
    pub(crate) fn is_settled(&self, key: &K) -> bool {
        let hash = self.hash(key);
        let locked = self.shared.locked.lock();
        locked.records.find(hash, |known| known == key).is_none_or(|index| locked.records.is_settled(index))
    }

    /// Whether a key is in line, delayed or being processed.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.state(key) != KeyState::Idle
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
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
                RerunKind::At | RerunKind::Debounced => PendingRerun::At(instant()),
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
        self.shared.add_handle();
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
