//! The rate limit of runs: a token bucket and its lock.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::base::time::Nanos;

/// The rate limit of one controller, which can change while it runs.
pub(super) struct RateLimiter {
    clock: Clock,
    bucket: Mutex<Option<Bucket>>,
    /// Whether a bucket exists. Without one, runs take no lock here.
    limited: AtomicBool,
}

impl RateLimiter {
    pub(super) fn new(clock: Clock, rate: Option<(f64, u32)>) -> Self {
        let bucket = rate.map(|(per_second, burst)| Bucket::new(per_second, burst));
        Self { clock, limited: AtomicBool::new(bucket.is_some()), bucket: Mutex::new(bucket) }
    }

    pub(super) fn set(&self, rate: Option<(f64, u32)>) {
        let mut bucket = self.bucket.lock();
        *bucket = rate.map(|(per_second, burst)| Bucket::new(per_second, burst));
        self.limited.store(bucket.is_some(), SeqCst);
    }

    /// Takes a token if the rate is limited. Returns whether a key may run.
    pub(super) fn take(&self) -> bool {
        if !self.limited.load(SeqCst) {
            return true;
        }
        self.bucket.lock().as_mut().is_none_or(|bucket| bucket.take(self.clock.nanos()).is_ok())
    }

    /// Returns the time of the next token; zero if one is available. If `wanted`, a key waits for it from now on.
    pub(super) fn next(&self, wanted: impl FnOnce() -> bool) -> Nanos {
        if !self.limited.load(SeqCst) {
            return Nanos::ZERO;
        }
        let (wanted, now) = (wanted(), self.clock.nanos());
        match &mut *self.bucket.lock() {
            Some(bucket) if wanted => bucket.wait(now),
            Some(bucket) => bucket.next(now),
            None => Nanos::ZERO,
        }
    }

    pub(super) fn put_back(&self) {
        if self.limited.load(SeqCst)
            && let Some(bucket) = &mut *self.bucket.lock()
        {
            bucket.put_back(self.clock.nanos());
        }
    }
}

/// Rejects a limit that lets no key run.
pub(super) fn check_max_concurrent(runs: usize) -> Result<(), StartError> {
    if runs == 0 { Err(StartError::setting("max_concurrent_reconciles", &0, "at least 1")) } else { Ok(()) }
}

/// Rejects a rate that is not positive and finite, and a burst of zero.
pub(super) fn check_rate(rate: Option<(f64, u32)>) -> Result<(), StartError> {
    match rate {
        Some((per_second, _)) if !(per_second > 0.0 && per_second.is_finite()) => {
            Err(StartError::setting("per_second", &per_second, "positive and finite"))
        }
        Some((_, 0)) => Err(StartError::setting("burst", &0, "at least 1")),
        _ => Ok(()),
    }
}

/// A token bucket: at most `burst` keys at once, and one more each `interval`.
///
/// Stores the time at which the bucket will be full again: the generic cell rate algorithm in its virtual scheduling
/// form (ITU-T I.371, annex A). No thread has to refill it.
///
/// Times are nanoseconds. A slow rate has times beyond [`Nanos::NEVER`], so they have 128 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    interval: u128,
    /// A token is available while `full_at` is at most this far in the future.
    tolerance: u128,
    full_at: u128,
    /// Whether a key waits for the next token. If all threads are busy when the token arrives, the key takes it late.
    /// Later tokens still arrive on time.
    awaited: bool,
}

impl Bucket {
    /// Creates a full bucket. `per_second` must be positive and finite, `burst` at least 1.
    fn new(per_second: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX).as_nanos();
        Self { interval, tolerance: interval * u128::from(burst - 1), full_at: 0, awaited: false }
    }

    /// Takes a token, or returns the time of the next one.
    fn take(&mut self, now: Nanos) -> Result<(), Nanos> {
        let now = u128::from(now.0);
        let full_at = if self.awaited { self.full_at } else { self.full_at.max(now) };
        if full_at > now + self.tolerance {
            return Err(u64::try_from(full_at - self.tolerance).map_or(Nanos::NEVER, Nanos));
        }
        self.full_at = full_at + self.interval;
        self.awaited = false;
        Ok(())
    }

    /// Returns the time of the next token; zero if one is available.
    fn next(mut self, now: Nanos) -> Nanos {
        self.take(now).err().unwrap_or(Nanos::ZERO)
    }

    /// Like [`next`](Self::next), but remembers that a key waits.
    fn wait(&mut self, now: Nanos) -> Nanos {
        let next = self.next(now);
        self.awaited |= next > Nanos::ZERO;
        next
    }

    /// Returns an unused token. If it can be taken at once, no key waits for it.
    fn put_back(&mut self, now: Nanos) {
        self.full_at = self.full_at.saturating_sub(self.interval);
        self.awaited &= self.next(now) > Nanos::ZERO;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn allows_a_burst_then_one_token_per_interval() {
        let mut bucket = Bucket::new(2.0, 3);
        let now = Nanos(7 * SECOND);
        assert_eq!([bucket.take(now), bucket.take(now), bucket.take(now)], [Ok(()); 3]);
        let next = Nanos(now.0 + SECOND / 2);
        assert_eq!(bucket.take(now), Err(next));
        assert_eq!(bucket.take(Nanos(next.0 - 1)), Err(next));
        assert_eq!(bucket.take(next), Ok(()));
        assert_eq!(bucket.take(next), Err(Nanos(next.0 + SECOND / 2)));
    }

    #[test]
    fn unused_tokens_are_saved_up_to_a_burst() {
        let mut bucket = Bucket::new(1.0, 2);
        let late = Nanos(1_000 * SECOND);
        assert_eq!([bucket.take(late), bucket.take(late)], [Ok(()); 2]);
        assert!(bucket.take(late).is_err());
    }

    #[test]
    fn a_late_take_of_an_awaited_token_does_not_delay_the_next() {
        let mut bucket = Bucket::new(1.0, 1);
        assert_eq!(bucket.take(Nanos(0)), Ok(()));
        assert_eq!(bucket.wait(Nanos(1)), Nanos(SECOND));
        assert_eq!(bucket.take(Nanos(SECOND + 7)), Ok(()));
        assert_eq!(bucket.wait(Nanos(SECOND + 7)), Nanos(2 * SECOND));
        // Very late: one extra key runs at once, and no other.
        assert_eq!([bucket.take(Nanos(10 * SECOND)), bucket.take(Nanos(10 * SECOND))], [Ok(()); 2]);
        assert_eq!(bucket.take(Nanos(10 * SECOND)), Err(Nanos(11 * SECOND)));
    }

    #[test]
    fn a_rate_so_slow_that_no_token_ever_comes_allows_its_burst() {
        let mut bucket = Bucket::new(f64::MIN_POSITIVE, 3);
        let now = Nanos(7 * SECOND);
        assert_eq!([bucket.take(now), bucket.take(now), bucket.take(now)], [Ok(()); 3]);
        assert_eq!([bucket.take(now), bucket.take(Nanos(u64::MAX - 1))], [Err(Nanos::NEVER); 2]);
        let mut largest = Bucket::new(f64::MIN_POSITIVE, u32::MAX);
        assert_eq!([largest.take(now), largest.take(now)], [Ok(()); 2]);
    }

    #[test]
    fn a_returned_token_can_be_taken_again() {
        let mut bucket = Bucket::new(1.0, 1);
        assert_eq!(bucket.take(Nanos(SECOND)), Ok(()));
        bucket.put_back(Nanos(SECOND));
        assert_eq!(bucket.take(Nanos(SECOND)), Ok(()));
        assert_eq!(bucket.take(Nanos(SECOND)), Err(Nanos(2 * SECOND)));
    }

    #[test]
    fn a_returned_token_leaves_none_over_for_later() {
        let mut bucket = Bucket::new(1.0, 1);
        assert_eq!(bucket.take(Nanos(0)), Ok(()));
        assert_eq!(bucket.wait(Nanos(1)), Nanos(SECOND));
        bucket.put_back(Nanos(2));
        let late = Nanos(100 * SECOND);
        assert_eq!([bucket.take(late), bucket.take(late)], [Ok(()), Err(Nanos(101 * SECOND))]);
    }
}
