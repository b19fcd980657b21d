//! How late a delay may end. Delays that end at about the same time then share a wakeup.

use std::time::Duration;

use crate::base::time::Nanos;

/// The precision of delays. The longer a delay is, the coarser is the time to which its end is rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerSlack {
    /// A delay ends late by at most 1/2^this of itself,
    part: u32,
    /// and by at most this many nanoseconds.
    most: Nanos,
}

impl TimerSlack {
    /// A delay ends at its tick.
    pub(crate) const NONE: Self = Self { part: 0, most: Nanos::ZERO };

    /// Chosen by measurement: within one second as many wakeups as a timer with ticks of some 3 ms, and fewer for longer delays.
    pub(crate) const DEFAULT: Self = Self { part: 8, most: Nanos(1 << 23) };

    /// Allows one `part`th of a delay, rounded down to a power of two, and at most `most`.
    pub(crate) fn new(part: u32, most: Duration) -> Self {
        Self { part: u32::BITS - part.saturating_sub(1).leading_zeros(), most: Nanos::ZERO.after(most) }
    }

    /// Returns the slack of a delay: the exponent of a power of two of ticks, where a tick is 2^`tick_shift` ns.
    pub(crate) fn exponent(self, delay: Nanos, tick_shift: u32) -> u8 {
        let late = Nanos(delay.0 >> self.part).min(self.most);
        #[expect(clippy::cast_possible_truncation, reason = "the logarithm of 64 bits")]
        let exponent = late.tick_down(tick_shift).checked_ilog2().unwrap_or(0) as u8;
        exponent
    }

    /// Returns the longest slack of any delay, in ticks of 2^`tick_shift` ns, less one.
    pub(crate) fn spread(self, tick_shift: u32) -> u64 {
        (1 << self.exponent(Nanos::NEVER, tick_shift)) - 1
    }
}
