//! Counters, and histograms of durations with fixed buckets.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
