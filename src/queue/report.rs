//! The reports of a queue: the state of a key, the outcomes of a batch, its metrics, the report of a drain, its errors.

use std::error::Error;
use std::fmt;
use std::time::Instant;

use super::request::{BATCH, DroppedRun, EnqueueOutcome, Priority};

/// The state of a key at one moment. For information only: it may have changed since.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, Priority, WorkQueue};
/// use homeostat::queue::KeyState;
///
/// let queue = WorkQueue::new();
/// queue.enqueue("vm-1");
/// assert_eq!(queue.state("vm-1"), KeyState::Ready(Priority::Normal));
/// assert_eq!(queue.state("vm-2"), KeyState::Idle);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// The key needs no run.
    Idle,
    /// The key waits for a claim, in this priority level.
    Ready(Priority),
    /// The key becomes ready at this time; `None`: never.
    Delayed(Option<Instant>),
    /// A claim holds the key. The field is the pending rerun.
    Processing(PendingRerun),
}

/// The run that follows the current run of a key.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
/// use homeostat::queue::{KeyState, PendingRerun};
///
/// let queue = WorkQueue::new();
/// queue.enqueue("vm-1");
/// let claim = queue.dequeue()?;
/// queue.enqueue("vm-1");
/// assert_eq!(queue.state("vm-1"), KeyState::Processing(PendingRerun::Soft));
/// # claim.done();
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PendingRerun {
    /// No run.
    None,
    /// Another run, after the delay that the claim asks for.
    Soft,
    /// Another run at this time; `None`: never.
    At(Option<Instant>),
    /// Another run right after this one.
    Now,
}

/// Counts the requests of a batch by outcome.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
/// use homeostat::queue::EnqueueMethod;
///
/// let queue = WorkQueue::new();
/// let tally = queue.request_all(&mut [1, 2, 2].into_iter(), EnqueueMethod::Enqueue.into());
/// assert_eq!((tally.of(EnqueueOutcome::Queued), tally.of(EnqueueOutcome::Merged)), (2, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([usize; 7]);

impl Tally {
    pub(crate) fn add(&mut self, outcome: EnqueueOutcome, times: usize) {
        self.0[outcome as usize] += times;
    }

    /// Returns how many requests had this outcome.
    #[must_use]
    pub fn of(&self, outcome: EnqueueOutcome) -> usize {
        self.0[outcome as usize]
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// The number of keys in each state at one moment, and how many keys have become ready so far.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, Priority, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.enqueue("vm-1");
/// queue.enqueue("vm-1");
/// queue.at(Priority::Low).enqueue("vm-2");
/// let metrics = queue.metrics();
/// assert_eq!((metrics.normal, metrics.low, metrics.depth(), metrics.adds), (1, 1, 2, 2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// Ready keys of high priority.
    pub high: usize,
    /// Ready keys of normal priority.
    pub normal: usize,
    /// Ready keys of low priority.
    pub low: usize,
    /// Delayed keys.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// How often a key has become ready. A request for a ready key does not count.
    pub adds: u64,
}

impl QueueMetrics {
    /// Returns the number of ready keys.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.high + self.normal + self.low
    }
}

/// The result of a drain.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.enqueue("vm-1");
/// let claim = queue.dequeue()?;
/// let report = queue.drain(Duration::ZERO);
/// assert_eq!(report.processing, ["vm-1"]);
/// assert_eq!(report.to_string(), "not drained: 0 ready, 1 processing, 0 runs dropped");
/// claim.done();
/// assert!(queue.drain(Duration::MAX).is_drained());
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct DrainReport<K> {
    /// Keys that are still ready, in the order of their levels.
    pub ready: Vec<K>,
    /// Keys that are still being processed.
    pub processing: Vec<K>,
    /// Runs that the shutdown has dropped so far, in order.
    pub dropped: Vec<(K, DroppedRun)>,
}

impl<K> DrainReport<K> {
    pub(crate) fn new() -> Self {
        Self { ready: Vec::new(), processing: Vec::new(), dropped: Vec::new() }
    }

    /// Returns whether no key is ready or being processed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.processing.is_empty()
    }
}

impl<K> fmt::Display for DrainReport<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ready, processing, dropped) = (self.ready.len(), self.processing.len(), self.dropped.len());
        if self.is_drained() {
            write!(f, "drained, {dropped} runs dropped")
        } else {
            write!(f, "not drained: {ready} ready, {processing} processing, {dropped} runs dropped")
        }
    }
}

/// The maximum number of dropped runs in one chunk, and per call of `append_to`.
const CHUNK: usize = BATCH as usize;

/// Dropped runs in order. They are kept in chunks, so that adding one never moves more than [`CHUNK`] others.
#[derive(Debug)]
pub(crate) struct DroppedRuns<K>(Vec<Vec<(K, DroppedRun)>>);

impl<K> DroppedRuns<K> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, key: K, run: DroppedRun) {
        match self.0.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push((key, run)),
            _ => self.0.push(vec![(key, run)]),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK + last.len())
    }

    /// Appends the next dropped runs to `report`, until it has the first `count`. Adds at most [`CHUNK`] runs per call.
    /// Panics if the `Clone` of a key does.
    pub(crate) fn append_to(&self, report: &mut Vec<(K, DroppedRun)>, count: usize)
    where
        K: Clone,
    {
        let next = report.len();
        let chunk = self.0.get(next / CHUNK).map_or(&[][..], |chunk| &chunk[next % CHUNK..]);
        report.extend(chunk.iter().take(count - next).cloned());
    }
}

/// Why [`dequeue`](crate::WorkQueue::dequeue), [`try_dequeue`](crate::WorkQueue::try_dequeue) or
/// [`dequeue_timeout`](crate::WorkQueue::dequeue_timeout) returns no claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
// One machine word wide. With a smaller error, a `Result` would store the words of a claim in parts.
#[repr(usize)]
pub enum DequeueError {
    /// No key is ready, or became ready in time. [`dequeue`](crate::WorkQueue::dequeue) waits instead.
    Empty,
    /// The queue is shut down, and no key is left.
    Closed,
}

impl fmt::Display for DequeueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is ready",
            Self::Closed => "the queue is shut down, and no key is left",
        })
    }
}

impl Error for DequeueError {}

crate::base::chain::debug_with_causes!(DequeueError);
