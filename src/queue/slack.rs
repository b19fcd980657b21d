//! Timer slack: how late a delay may end, so that delays with similar ends share a wakeup.

use std::time::Duration;

use crate::base::time::Nanos;

/// The precision of delays. The end of a longer delay is rounded up to a coarser time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerSlack {
    /// A binary exponent: a delay ends late by at most 1/2^`part` of itself.
    part: u32,
    /// The upper limit on the lateness, in nanoseconds.
    most: Nanos,
}

impl TimerSlack {
    /// No slack: a delay ends at its tick.
    pub(crate) const NONE: Self = Self { part: 0, most: Nanos::ZERO };

    /// The default, chosen by measurement. Delays up to one second cause as many wakeups as with ticks of about 3 ms,
    /// and longer delays cause fewer.
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
