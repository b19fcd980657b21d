//! Durations, counted in fixed buckets.

use std::time::Duration;

use super::counter::Counter;

/// The upper bounds of the buckets, in seconds: the decades from a microsecond to a thousand seconds, as client-go's
/// work queue metrics have them. One more bucket holds longer durations.
pub(crate) const BOUNDS: [f64; 10] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// The same in nanoseconds.
const NANOS: [u64; 10] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
];

/// Counts of one thread.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    buckets: [Counter; 11],
    sum: Counter,
}

impl Tallies {
    /// Adds a duration. If two threads did so at once, one could be lost.
    #[inline]
    pub(crate) fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = NANOS.iter().position(|bound| nanos <= *bound).unwrap_or(NANOS.len());
        self.buckets[bucket].count();
        self.sum.add(nanos);
    }

    pub(crate) fn add_to(&self, histogram: &mut Histogram) {
        for (bucket, tally) in histogram.buckets.iter_mut().zip(&self.buckets) {
            *bucket += tally.read();
        }
        histogram.sum += Duration::from_nanos(self.sum.read());
    }
}

/// Durations, counted in fixed buckets: the decades from 1 µs to 1000 s, and one for longer durations.
///
/// # Examples
///
/// ```
/// use homeostat::run::Histogram;
///
/// let histogram = Histogram::default();
/// assert_eq!(histogram.count(), 0);
/// assert_eq!(histogram.buckets().next(), Some((1e-6, 0)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; 11],
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

    /// The buckets: the upper bound of each in seconds, included, and how many durations are in it and not in the one before. The
    /// last has no bound ([`f64::INFINITY`]).
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        BOUNDS.into_iter().chain([f64::INFINITY]).zip(self.buckets)
    }

    /// The bound of the bucket in which the quantile `q` lies, from 0 to 1, in seconds; `None` while there is no duration.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank, of counts far below 2^52"
        )]
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets()
            .find(|(_, in_bucket)| {
                seen += in_bucket;
                seen >= rank
            })
            .map(|(bound, _)| bound)
    }
}
