//! Histograms of durations with fixed buckets.

use std::time::Duration;

use super::counter::Counter;

/// The upper bounds of the buckets in seconds: the decades from 1 µs to 1000 s, as in client-go's work queue metrics. One more
/// bucket counts longer durations.
pub(crate) const BOUNDS: [f64; 10] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// The same bounds in nanoseconds.
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

/// The counts of one thread.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    buckets: [Counter; 11],
    sum: Counter,
}

impl Tallies {
    /// Adds a duration. Two concurrent calls could lose one.
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

/// A histogram of durations. Its buckets are the decades from 1 µs to 1000 s, and one for longer durations.
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

    /// Returns the buckets: the upper bound in seconds (inclusive), and the number of durations in this bucket only. The last
    /// bound is [`f64::INFINITY`].
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        BOUNDS.into_iter().chain([f64::INFINITY]).zip(self.buckets)
    }

    /// Returns the upper bound, in seconds, of the bucket with quantile `q` (0 to 1). `None` for an empty histogram.
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
