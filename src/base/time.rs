//! Points in time as plain values.

use std::fmt;
use std::time::Duration;

/// A time of a [`Clock`](crate::Clock), in nanoseconds since its origin.
///
/// Arithmetic saturates, so a sum can be [`Nanos::NEVER`] but never wraps. All system clocks have one origin; each held
/// clock has its own.
///
/// # Examples
///
/// ```
/// use homeostat::rt::Nanos;
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// assert_eq!(Nanos::ZERO.after(second).since(Nanos::ZERO), second);
/// assert_eq!(Nanos::ZERO.after(Duration::MAX), Nanos::NEVER);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// Later than any time of a clock: a wake at `NEVER` does not happen.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time after `duration`. [`Nanos::NEVER`] if it does not fit (after some 584 years).
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the first tick of 2^`shift` ns at or after this time. Work that is due at a tick is never early.
    pub(crate) fn tick_up(self, shift: u32) -> u64 {
        let down = self.0 >> shift;
        down + u64::from(down << shift != self.0)
    }

    /// Returns the last tick of 2^`shift` ns at or before this time.
    pub(crate) fn tick_down(self, shift: u32) -> u64 {
        self.0 >> shift
    }

    /// Returns the time of tick number `tick`.
    pub(crate) fn of_tick(tick: u64, shift: u32) -> Self {
        if tick > u64::MAX >> shift { Self::NEVER } else { Self(tick << shift) }
    }
}

/// Displays a duration for people, with three digits. `Duration::MAX` is "forever".
///
/// # Examples
///
/// ```
/// use homeostat::rt::Rounded;
/// use std::time::Duration;
///
/// assert_eq!(Rounded(Duration::from_nanos(92_592_544)).to_string(), "92.6ms");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rounded(pub Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(nanos) = u64::try_from(self.0.as_nanos()) else { return f.write_str("forever") };
        let digits = nanos.checked_ilog10().unwrap_or(0);
        // Digits of whole seconds are not rounded.
        let step = 10_u64.pow(digits.saturating_sub(2).min(9));
        let nanos = nanos.saturating_add(step / 2) / step * step;
        if nanos == 0 { f.write_str("0s") } else { write!(f, "{:?}", Duration::from_nanos(nanos)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people_have_three_digits() {
        let shown = [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(7), "7ns"),
            (Duration::from_nanos(92_592_544), "92.6ms"),
            (Duration::from_millis(1_500), "1.5s"),
            (Duration::from_nanos(999_999_999), "1s"),
            (Duration::from_millis(3_600_400), "3600s"),
            (Duration::from_secs(86_401), "86401s"),
            (Duration::MAX, "forever"),
        ];
        for (duration, text) in shown {
            assert_eq!(Rounded(duration).to_string(), text);
        }
    }

    #[test]
    fn sums_saturate_at_never() {
        assert_eq!(Nanos(5).after(Duration::from_nanos(7)), Nanos(12));
        assert_eq!(Nanos(5).after(Duration::MAX), Nanos::NEVER);
        assert_eq!(Nanos(u64::MAX - 1).after(Duration::from_nanos(1)), Nanos::NEVER);
        assert_eq!(Nanos::NEVER.after(Duration::from_secs(1)), Nanos::NEVER);
    }

    #[test]
    fn differences_stop_at_zero() {
        assert_eq!(Nanos(12).since(Nanos(5)), Duration::from_nanos(7));
        assert_eq!(Nanos(5).since(Nanos(12)), Duration::ZERO);
    }

    #[test]
    fn a_tick_is_rounded_up_and_a_reached_tick_down() {
        assert_eq!(Nanos(0).tick_up(3), 0);
        assert_eq!(Nanos(1).tick_up(3), 1);
        assert_eq!(Nanos(8).tick_up(3), 1);
        assert_eq!(Nanos(9).tick_up(3), 2);
        assert_eq!(Nanos(9).tick_down(3), 1);
        assert_eq!(Nanos(9).tick_up(0), 9);
        assert_eq!(Nanos::of_tick(2, 3), Nanos(16));
    }

    #[test]
    fn no_clock_reaches_the_tick_of_never() {
        for shift in [0, 3, 17] {
            let never = Nanos::NEVER.tick_up(shift);
            assert!(Nanos(u64::MAX - 1).tick_down(shift) < never);
            assert_eq!(Nanos::of_tick(never, shift), Nanos::NEVER);
        }
    }
}
