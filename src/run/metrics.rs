//! The metrics of runs: counters, and histograms of durations with fixed buckets.

use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
pub(crate) fn sum(counters: &[Arc<RunCounters>], overruns: &AtomicU64, active: usize) -> WorkersMetrics {
    let mut sum = WorkersMetrics { overruns: overruns.load(Relaxed), active, ..WorkersMetrics::default() };
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

/// A counter with a single writer and any number of readers.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. If two threads call this at once, one count may be lost.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Adds a number. If two threads call this at once, one number may be lost.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The number of buckets: three for each decade from 1 µs to 1000 s, one up to 1000 s, and one for longer durations.
const BUCKETS: usize = 9 * 3 + 2;

/// The upper bounds of the buckets in nanoseconds: 1, 2.5 and 5 times each power of ten. The last bound means infinity.
static NANOS: [u64; BUCKETS] = bounds();

/// For each power of two, the first bucket with a bound that is not smaller.
static FIRST: [u8; 64] = first_buckets();

const fn bounds() -> [u64; BUCKETS] {
    let mut bounds = [u64::MAX; BUCKETS];
    let (mut at, mut decade) = (0, 1_000);
    while at < BUCKETS - 1 {
        bounds[at] = match at % 3 {
            0 => decade,
            1 => decade / 10 * 25,
            _ => decade * 5,
        };
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    bounds
}

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 buckets")]
const fn first_buckets() -> [u8; 64] {
    let bounds = bounds();
    let mut first = [0; 64];
    let (mut power, mut bucket) = (0, 0);
    while power < 64 {
        while bounds[bucket] < 1 << power {
            bucket += 1;
        }
        first[power] = bucket as u8;
        power += 1;
    }
    first
}

/// Returns the bucket of a duration: the first bucket with a bound that is not smaller.
///
/// Each bound is at least twice the bound before it. At most one bound therefore lies between two powers of two, and
/// one comparison decides.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let first = usize::from(FIRST[(nanos | 1).ilog2() as usize]);
    first + usize::from(nanos > NANOS[first])
}

/// The counts of one thread.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Tallies {
    /// Adds a duration. If two threads call this at once, one duration may be lost.
    #[inline]
    pub(crate) fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].count();
        self.sum.add(nanos);
    }

    pub(crate) fn add_to(&self, histogram: &mut Histogram) {
        for (bucket, tally) in histogram.buckets.iter_mut().zip(&self.buckets) {
            *bucket += tally.read();
        }
        histogram.sum += Duration::from_nanos(self.sum.read());
    }
}

/// A histogram of durations.
///
/// The bounds of its buckets are 1, 2.5 and 5 times each power of ten, from 1 µs to 1000 s. One more bucket counts
/// longer durations.
///
/// # Examples
///
/// ```
/// use homeostat::run::Histogram;
///
/// let histogram = Histogram::default();
/// assert_eq!(histogram.count(), 0);
/// let bounds: Vec<_> = histogram.buckets().map(|(bound, _count)| bound).take(4).collect();
/// assert_eq!(bounds, [1e-6, 2.5e-6, 5e-6, 1e-5]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum: Duration,
}

impl Histogram {
    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the buckets: the upper bound in seconds (inclusive), and the number of durations in this bucket only.
    /// The last bound is [`f64::INFINITY`].
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        NANOS.into_iter().map(seconds).zip(self.buckets)
    }
}

/// Returns a bound in seconds.
#[expect(clippy::cast_precision_loss, reason = "the bounds are far below 2^52")]
fn seconds(nanos: u64) -> f64 {
    if nanos == u64::MAX { f64::INFINITY } else { nanos as f64 / 1e9 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_the_numbers_of_dashboards() {
        let bounds: Vec<_> = Histogram::default().buckets().map(|(bound, _)| bound.to_string()).collect();
        let expected = "0.000001 0.0000025 0.000005 0.00001 0.000025 0.00005 0.0001 0.00025 0.0005 \
            0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 25 50 100 250 500 1000 inf";
        assert_eq!(bounds.join(" "), expected);
        assert!(NANOS.windows(2).all(|pair| pair[1] / 2 >= pair[0]), "one comparison would not decide");
    }

    #[test]
    fn the_bucket_is_the_first_one_whose_bound_is_not_smaller() {
        let powers = (0..64).map(|power| 1_u64 << power);
        let around = |nanos: u64| [nanos.saturating_sub(1), nanos, nanos.saturating_add(1)];
        for nanos in powers.chain(NANOS).chain([0]).flat_map(around) {
            let expected = NANOS.iter().position(|bound| nanos <= *bound);
            assert_eq!(Some(bucket_of(nanos)), expected, "{nanos} ns");
        }
    }
}
