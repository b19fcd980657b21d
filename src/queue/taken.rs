//! A key that has been taken from the queue.
//!
//! A claim consists of whole words, because claims are moved often, and right after they were made. A processor stalls
//! if it loads a word that it has just stored in parts. Only the claim's pointer has an unused value, which marks "no
//! claim".

use super::request::{Priority, Reasons};
use super::state::{DelayState, LineState};
use crate::base::time::Nanos;

/// A key that was taken from the queue, with the data of its claim.
#[derive(Debug)]
pub(crate) struct Taken<K> {
    pub(crate) key: K,
    /// How long the key was ready; [`Nanos::NEVER`] if the queue does not measure it.
    pub(crate) queued_for: Nanos,
    /// The number of the record, or [`ENDED`].
    record: u64,
    /// The failures, the reasons, the priority, and two flags.
    marks: u64,
}

/// The value of `record` after the claim has ended.
const ENDED: u64 = u64::MAX;

const REASONS: u32 = 32;
const PRIORITY: u32 = 48;
const EARLY: u64 = 1 << 56;
const MORE: u64 = 1 << 57;

impl<K> Taken<K> {
    #[inline(always)]
    pub(crate) fn new(index: u32, key: K, line: LineState, delay: DelayState, queued_for: Nanos, more: bool) -> Self {
        let flags = if delay.early { EARLY } else { 0 } | if more { MORE } else { 0 };
        let line = u64::from(line.reasons.bits()) << REASONS | (line.priority.level() as u64) << PRIORITY;
        Self { key, queued_for, record: u64::from(index), marks: u64::from(delay.failures) | line | flags }
    }

    /// Returns the number of the record.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it was made of a `u32`")]
    pub(crate) fn index(&self) -> u32 {
        self.record as u32
    }

    /// Marks the claim as ended. Returns the number of its record.
    #[inline(always)]
    pub(crate) fn end(&mut self) -> u32 {
        let index = self.index();
        self.record = ENDED;
        index
    }

    /// Returns whether the claim has ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.record == ENDED
    }

    /// Returns how many runs of the key in a row have failed.
    #[expect(clippy::cast_possible_truncation, reason = "the failures are the low bits")]
    pub(crate) fn failures(&self) -> u32 {
        self.marks as u32
    }

    /// Returns the reasons for the run.
    #[expect(clippy::cast_possible_truncation, reason = "higher bits are not reasons")]
    pub(crate) fn reasons(&self) -> Reasons {
        Reasons::of_bits((self.marks >> REASONS) as u16)
    }

    /// Returns the level that the key was taken from.
    pub(crate) fn priority(&self) -> Priority {
        match (self.marks >> PRIORITY) & 3 {
            0 => Priority::Low,
            1 => Priority::Normal,
            _ => Priority::High,
        }
    }

    /// Returns whether a request has moved the run before the end of its backoff.
    pub(crate) fn is_early(&self) -> bool {
        self.marks & EARLY != 0
    }

    /// Returns whether more keys were ready when this one was taken.
    #[inline]
    pub(crate) fn leaves_more(&self) -> bool {
        self.marks & MORE != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_are_what_they_were_made_of() {
        for priority in Priority::SERVED {
            for (early, more) in [(false, false), (true, false), (false, true), (true, true)] {
                for reasons in [Reasons::NONE, Reasons::POLL, Reasons::user(4), Reasons::of_bits(u16::MAX)] {
                    let line = LineState { reasons, priority, ..LineState::default() };
                    let delay = DelayState { failures: 7, early, ..DelayState::default() };
                    let mut taken = Taken::new(3, 'k', line, delay, Nanos(5), more);
                    assert_eq!((taken.reasons(), taken.priority(), taken.is_early()), (reasons, priority, early));
                    assert_eq!((taken.leaves_more(), taken.failures(), taken.index()), (more, 7, 3));
                    assert_eq!((taken.has_ended(), taken.end(), taken.has_ended()), (false, 3, true));
                }
            }
        }
    }

    #[test]
    fn a_claim_has_no_gaps_and_no_claim_needs_no_room() {
        use super::super::Claim;
        assert_eq!(size_of::<Claim<u64>>(), 5 * size_of::<u64>());
        assert_eq!(size_of::<Option<Claim<u64>>>(), size_of::<Claim<u64>>());
    }
}
