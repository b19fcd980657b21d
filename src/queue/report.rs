//! What a queue says of itself: the state of a key, a tally of a batch, the report of a drain.

use std::fmt;
use std::ops::Add;
use std::time::Instant;

use super::request::{DroppedRun, EnqueueOutcome, Priority};

/// Where a key stands at one moment. For information: it may have changed before the caller reads it.
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
    /// Nothing is wanted of it.
    Idle,
    /// In line, in this level.
    Ready(Priority),
    /// In line at this time; `None`: at a time that does not come.
    Delayed(Option<Instant>),
    /// A claim holds it; the pending rerun is what follows.
    Processing(PendingRerun),
}

/// What is wanted of a key once its claim has ended.
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
    /// Nothing.
    None,
    /// Another run; a delay that the claim asks for holds it.
    Soft,
    /// Another run at this time; `None`: at a time that does not come.
    At(Option<Instant>),
    /// Another run right after this one.
    Now,
}

/// How the keys of a batch were admitted.
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
    pub(crate) fn count(&mut self, outcome: EnqueueOutcome) {
        self.0[outcome as usize] += 1;
    }

    /// How many keys were admitted so.
    #[must_use]
    pub fn of(&self, outcome: EnqueueOutcome) -> usize {
        self.0[outcome as usize]
    }

    /// How many keys there were.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
        self
    }
}

/// What is in a queue at one moment, and how many keys have come into line so far.
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
    /// Keys in line, in the high level.
    pub high: usize,
    /// Keys in line, in the normal level.
    pub normal: usize,
    /// Keys in line, in the low level.
    pub low: usize,
    /// Keys that wait for a time.
    pub delayed: usize,
    /// Keys that are being processed.
    pub processing: usize,
    /// How many times a key has come into line: what joined a key in line does not count.
    pub adds: u64,
}

impl QueueMetrics {
    /// Keys in line.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.high + self.normal + self.low
    }
}

/// What a drain found at its end.
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
/// assert_eq!(report.to_string(), "not drained: 0 ready, 1 processing, 0 wakes dropped");
/// claim.done();
/// assert!(queue.drain(Duration::MAX).is_drained());
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct DrainReport<K> {
    /// Keys still in line, in the order of their levels.
    pub ready: Vec<K>,
    /// Keys still being processed.
    pub processing: Vec<K>,
    /// Wakes that the shutdown has dropped so far, each with its key, in the order in which they were dropped.
    pub dropped: Vec<(K, DroppedRun)>,
}

impl<K> DrainReport<K> {
    pub(crate) fn new() -> Self {
        Self { ready: Vec::new(), processing: Vec::new(), dropped: Vec::new() }
    }

    /// Whether nothing is in line and nothing is being processed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.processing.is_empty()
    }
}

impl<K> fmt::Display for DrainReport<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ready, processing, dropped) = (self.ready.len(), self.processing.len(), self.dropped.len());
        if self.is_drained() {
            write!(f, "drained, {dropped} wakes dropped")
        } else {
            write!(f, "not drained: {ready} ready, {processing} processing, {dropped} wakes dropped")
        }
    }
}
