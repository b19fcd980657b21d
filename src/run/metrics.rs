//! The metrics of runs.

use std::sync::Arc;

use super::counter::Counter;
use super::histogram::Tallies;

/// What one worker counts. Nobody else writes to it, so counting takes no atomic addition, and no cache line is fought over.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RunCounters {
    pub(crate) successes: Counter,
    pub(crate) requeues: Counter,
    pub(crate) retries: Counter,
    pub(crate) drops: Counter,
    pub(crate) terminal_errors: Counter,
    pub(crate) aborted: Counter,
    pub(crate) panics: Counter,
    pub(crate) timeouts: Counter,
    /// How long keys were in line, and in work, where runs are timed.
    pub(crate) queue_time: Tallies,
    pub(crate) work_time: Tallies,
}

/// What workers have counted since they started, and how many are in a run. Each run is one of the first
/// six, unless the policy itself or the key's own code panics over it.
///
/// A run is counted before its claim ends, so what was counted of a key's runs is there to be seen once the queue says that
/// the key is no longer in process. While workers run, the numbers are not all of one instant. None ever falls.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Enqueue, WorkQueue, Workers};
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
    /// Of all runs that have ended: how many had passed their deadline by then, whatever they returned.
    pub timeouts: u64,
    /// Runs that were still under way 100 ms after their deadline. Counted while they run.
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

/// The sum of what the workers have counted.
pub(crate) fn sum(counters: &[Arc<RunCounters>], overruns: &Counter, active: usize) -> WorkersMetrics {
    let mut sum = WorkersMetrics { overruns: overruns.read(), active, ..WorkersMetrics::default() };
    for worker in counters {
        sum.successes += worker.successes.read();
        sum.requeues += worker.requeues.read();
        sum.retries += worker.retries.read();
        sum.drops += worker.drops.read();
        sum.terminal_errors += worker.terminal_errors.read();
        sum.aborted += worker.aborted.read();
        sum.panics += worker.panics.read();
        sum.timeouts += worker.timeouts.read();
    }
    sum
}
