//! What workers count.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) successes: AtomicU64,
    pub(super) requeues: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) drops: AtomicU64,
    pub(super) terminal_errors: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) overruns: AtomicU64,
}

/// What workers have counted since they started, and how many are in a run. Each run is one of the first
/// six, unless the policy itself or the key's own code panics over it.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Enqueue, Workers, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Err("no answer".into()) };
/// let workers = Workers::new(reconcile).start(&queue)?;
/// queue.enqueue("vm-1");
/// assert!(queue.drain(Duration::MAX).is_drained());
/// assert_eq!((workers.metrics().runs(), workers.metrics().errors()), (1, 1));
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkersMetrics {
    /// Runs that succeeded and asked for nothing.
    pub successes: u64,
    /// Runs that asked for another one, by an action or an error that says so.
    pub requeues: u64,
    /// Runs that failed, or panicked, and are tried again.
    pub retries: u64,
    /// Runs that failed, or panicked, and whose key the policy gave up.
    pub drops: u64,
    /// Runs that failed with an error that no try will mend.
    pub terminal_errors: u64,
    /// Runs that ended because they were aborted; their keys went back to the queue.
    pub aborted: u64,
    /// Of the runs retried or dropped: how many had panicked.
    pub panics: u64,
    /// Runs that passed their deadline while they ran.
    pub overruns: u64,
    /// Workers that are in a run now.
    pub active: usize,
}

impl WorkersMetrics {
    /// How many runs have ended.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.successes + self.requeues + self.retries + self.drops + self.terminal_errors + self.aborted
    }

    /// How many runs have failed, panics included.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.retries + self.drops + self.terminal_errors
    }
}

impl Counters {
    pub(super) fn snapshot(&self, active: usize) -> WorkersMetrics {
        WorkersMetrics {
            successes: self.successes.load(Relaxed),
            requeues: self.requeues.load(Relaxed),
            retries: self.retries.load(Relaxed),
            drops: self.drops.load(Relaxed),
            terminal_errors: self.terminal_errors.load(Relaxed),
            aborted: self.aborted.load(Relaxed),
            panics: self.panics.load(Relaxed),
            overruns: self.overruns.load(Relaxed),
            active,
        }
    }
}
