//! The metrics of runs.

use std::sync::Arc;

use super::histogram::{Counter, Tallies};

/// The counters of one worker. Only its thread writes them, so counting needs no atomic addition and shares no cache
/// line.
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
    /// Queueing times, then run times, if runs are timed.
    pub(crate) queue_time: Tallies,
    pub(crate) work_time: Tallies,
}

/// The metrics of workers since their start.
///
/// Each run counts as one of the first six fields, unless the policy or the key's own code panics. A run is counted
/// before its claim ends, so once a key is no longer in process, its runs are counted. While workers run, the numbers
/// come from slightly different instants. Counters never decrease.
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
    /// Runs that succeeded and requested no further run.
    pub successes: u64,
    /// Runs that requested another run, by an action or an error.
    pub requeues: u64,
    /// Runs that failed or panicked and are retried.
    pub retries: u64,
    /// Runs that failed or panicked and are not retried, by decision of the policy.
    pub drops: u64,
    /// Runs that failed with a [`Terminal`](crate::run::Terminal) error.
    pub terminal_errors: u64,
    /// Runs that ended because they were aborted. Their keys returned to the queue.
    pub aborted: u64,
    /// Panics, which also count as retries or drops.
    pub panics: u64,
    /// Runs that ended after their deadline, with any result.
    pub timeouts: u64,
    /// Runs that were still active 100 ms after their deadline. Counted while they run.
    pub overruns: u64,
    /// Workers that are in a run now.
    pub active: usize,
}

impl WorkersMetrics {
    /// Returns the number of runs that have ended.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.successes + self.requeues + self.retries + self.drops + self.terminal_errors + self.aborted
    }

    /// Returns the number of failed runs, including panics.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.retries + self.drops + self.terminal_errors
    }
}

/// Returns the sum of the counters of all workers.
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
