//! Exponential backoff as a pure function of the number of failures.

use std::hash::BuildHasher;
use std::time::Duration;

/// Exponential backoff with a cap and jitter.
///
/// The delay after the `n`-th consecutive failure is `min(first × factor^(n-1), cap)`. Jitter then changes it by a
/// random share of at most ± `jitter`, so that keys that failed together are not retried together. A delay never
/// exceeds `cap`.
///
/// # Examples
///
/// ```
/// use homeostat::Exponential;
/// use std::time::Duration;
///
/// let backoff = Exponential::new(Duration::from_millis(100), Duration::from_secs(10)).jitter(0.0);
/// assert_eq!(backoff.delay(1), Duration::from_millis(100));
/// assert_eq!(backoff.delay(2), Duration::from_millis(200));
/// assert_eq!(backoff.delay(1_000), Duration::from_secs(10));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "backoff")]
#[doc(alias = "ItemExponentialFailureRateLimiter")]
pub struct Exponential {
    first: Duration,
    cap: Duration,
    factor: f64,
    jitter: f64,
    max_retries: Option<u32>,
}

impl Default for Exponential {
    /// Starts at 100 ms and doubles up to one minute, with ± 10 % jitter and no limit on retries.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(60))
    }
}

impl Exponential {
    /// Starts at `first` and doubles up to `cap`, with ± 10 % jitter and no limit on retries.
    ///
    /// If `cap` is shorter than `first`, every delay is `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, factor: 2.0, jitter: 0.1, max_retries: None }
    }

    /// Sets the growth factor. Default: 2. A factor below 1 or NaN counts as 1, so that delays never shrink.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor.max(1.0);
        self
    }

    /// Sets the greatest share by which jitter changes a delay. Clamped to the range 0 to 1. NaN counts as 0.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self
    }

    /// Limits the retries in a row. After the last one, the key runs again only when it is enqueued.
    ///
    /// A poller enqueues such a key at its next poll, and the failures are counted anew. With 0, the polls are the only
    /// retries.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Returns the delay after the `failures`-th failure in a row, without jitter. 0 counts as 1.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent);
        // The product is NaN only for zero times infinity: a first step of zero stays zero.
        let delay = if seconds.is_nan() {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        delay.min(self.cap)
    }

    /// Returns the [`delay`](Self::delay) with jitter. `draw` is a random number. The same draw gives the same delay.
    #[must_use]
    pub fn jittered(&self, failures: u32, draw: u64) -> Duration {
        let delay = self.delay(failures);
        if self.jitter == 0.0 || delay == Duration::MAX {
            return delay;
        }
        let moved = delay.as_secs_f64() * (1.0 + self.jitter * symmetric_unit(draw));
        Duration::try_from_secs_f64(moved).unwrap_or(Duration::MAX).min(self.cap)
    }

    /// Returns the shortest step. A good [`floor`](crate::queue::WorkQueueBuilder::floor) for a queue that uses this
    /// backoff.
    #[must_use]
    pub fn first_step(&self) -> Duration {
        self.first.min(self.cap)
    }

    /// Returns the limit on retries in a row. `None` without a limit.
    #[must_use]
    pub fn retries(&self) -> Option<u32> {
        self.max_retries
    }
}

/// Maps a random number to [-1, 1).
fn symmetric_unit(draw: u64) -> f64 {
    /// 2^52: the top 53 bits of the draw, halved and shifted, fill a double's mantissa exactly.
    const HALF: f64 = 4_503_599_627_370_496.0;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    let top = (draw >> 11) as f64;
    top / HALF - 1.0
}

/// A stream of random numbers for jitter: `SplitMix64` (Steele, Lea and Flood, 2014). Not for secrets.
///
/// [`Clock::draws`](crate::Clock::draws) returns one, which a simulation repeats.
///
/// # Examples
///
/// ```
/// use homeostat::rt::Draws;
///
/// let (mut one, mut other) = (Draws::new(7), Draws::new(7));
/// assert_eq!(one.draw(), other.draw());
/// assert!(Draws::unit(one.draw()) < 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// Creates a stream. The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates an independent stream, seeded by the standard library's hash randomness.
    #[must_use]
    pub fn random() -> Self {
        Self(std::hash::RandomState::new().hash_one(0))
    }

    /// Maps a random number to [0, 1).
    #[must_use]
    pub fn unit(draw: u64) -> f64 {
        f64::midpoint(symmetric_unit(draw), 1.0)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// client-go `default_rate_limiters_test.go`: `TestItemExponentialFailureRateLimiter`.
    #[test]
    fn doubles_from_the_first_step_and_stops_at_the_cap() {
        let backoff = Exponential::new(MS, 5 * MS).jitter(0.0);
        let delays: Vec<_> = (1..=6).map(|n| backoff.delay(n).as_millis()).collect();
        assert_eq!(delays, [1, 2, 4, 5, 5, 5]);
    }

    /// client-go `default_rate_limiters_test.go`: `TestItemExponentialFailureRateLimiterOverFlow`.
    #[test]
    fn huge_counts_of_failures_clamp_at_the_cap() {
        let backoff = Exponential::new(MS, 1000 * Duration::from_secs(1)).jitter(0.0);
        for failures in [1_000, u32::MAX] {
            assert_eq!(backoff.delay(failures), Duration::from_secs(1000));
        }
        let endless = Exponential::new(MS, Duration::MAX).jitter(0.0);
        assert_eq!(endless.delay(u32::MAX), Duration::MAX);
        assert_eq!(endless.clone().jitter(1.0).jittered(u32::MAX, 7), Duration::MAX);
    }

    #[test]
    fn a_first_step_of_zero_stays_zero() {
        assert_eq!(Exponential::new(Duration::ZERO, MS).delay(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn odd_settings_are_brought_into_range() {
        assert_eq!(Exponential::new(MS, 9 * MS).factor(f64::NAN).delay(4), MS);
        assert_eq!(Exponential::new(MS, 9 * MS).factor(0.1).delay(4), MS);
        assert_eq!(Exponential::new(MS, 9 * MS).jitter(f64::NAN).jittered(1, 3), MS);
        assert_eq!(Exponential::new(9 * MS, MS).delay(1), MS);
    }

    #[test]
    fn jitter_stays_within_its_share_and_below_the_cap() {
        let backoff = Exponential::new(100 * MS, 200 * MS).jitter(0.25);
        let mut draws = Draws::new(42);
        let (mut low, mut high) = (Duration::MAX, Duration::ZERO);
        for _ in 0..10_000 {
            let delay = backoff.jittered(1, draws.draw());
            low = low.min(delay);
            high = high.max(delay);
            assert!(backoff.jittered(2, draws.draw()) <= 200 * MS);
        }
        assert!(low >= 75 * MS && low < 76 * MS, "{low:?}");
        assert!(high <= 125 * MS && high > 124 * MS, "{high:?}");
    }

    /// The reference outputs of `SplitMix64` for seed 1234567, as published with the xoshiro generators.
    #[test]
    fn draws_are_splitmix64() {
        let mut draws = Draws::new(1_234_567);
        assert_eq!(draws.draw(), 6_457_827_717_110_365_317);
        assert_eq!(draws.draw(), 3_203_168_211_198_807_973);
    }
}
