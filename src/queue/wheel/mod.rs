//! A hierarchical timer wheel over whole ticks.
//!
//! The algorithm is from G. Varghese and A. Lauck, *Hashed and Hierarchical Timing Wheels* (SOSP 1987), the scheme with
//! several wheels, each turning 64 times slower than the one below. The bit layout follows tokio's
//! `runtime/time/wheel`. The wheel takes ticks in and returns expired entries. It knows no clock, lock or thread. An
//! entry is an index into a slab of the caller.
//!
//! # Layout
//!
//! A tick is a `u64`, read as eleven digits in base 64. An entry is in the slot of the *highest digit in which its tick
//! differs from the elapsed time*: the place of that digit is the level, its value the slot. A level holds only slots
//! ahead of the elapsed time and never wraps. Every slot of a lower level comes before every slot of a higher one.
//! Within a level, the lowest bit of the occupancy bitmap is the earliest slot. When time reaches a slot, its entries
//! move to lower levels: they are *cascaded*. An entry moves at most once per level.
//!
//! # Interrupted cascades
//!
//! While the slot that begins at tick `s` is emptied, the elapsed time is `s - 1`. It becomes `s` only after every
//! entry at `s` has been handed out, so a new entry cannot have a tick before `s`. The levels below the slot hold only
//! entries that were cascaded from this slot. A new entry for the slot is added at its end, behind every entry with the
//! same tick. Entries with equal ticks therefore stay in order under any mixture of budgets, insertions and removals.
//!
//! # Invariants
//!
//! - The tick of every entry in the wheel is above the elapsed time.
//! - Every entry is in the slot of its tick as seen from the elapsed time. The exception is an entry that was cascaded
//!   from the slot that begins one tick later: it is in the slot of its tick as seen from there. No other slot begins
//!   at that tick.
//! - A bit of an occupancy bitmap is set exactly while its slot holds an entry; a bit of `levels` exactly while the
//!   bitmap of that level is not zero.

use std::time::Duration;

use super::lists::{Entries, LinkedLists};
use crate::base::time::Nanos;

/// Entries in the order of their ticks; among equal ticks, in the order they were inserted.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// Every entry with a tick up to this one has been handed out.
    elapsed: u64,
    #[cfg(test)]
    len: usize,
    /// A bit for each level that holds an entry.
    levels: u16,
    /// For each level, a bit for each slot that holds an entry.
    occupied: [u64; LEVELS],
    slots: Box<LinkedLists<{ LEVELS * SLOTS }>>,
    #[cfg(test)]
    visits: std::cell::Cell<u64>,
}

impl Wheel {
    /// An empty wheel at tick 0.
    pub(crate) fn new() -> Self {
        Self {
            elapsed: 0,
            #[cfg(test)]
            len: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: Box::new(LinkedLists::new()),
            #[cfg(test)]
            visits: std::cell::Cell::new(0),
        }
    }

    /// Returns the tick up to which every entry has been handed out. It never decreases.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the tick at which to call [`pop`](Self::pop) next: the first tick of the earliest occupied slot. `None`
    /// if the wheel is empty.
    ///
    /// It is above the elapsed time and no later than the tick of any entry. If it is earlier than all of them, the
    /// call only cascades.
    #[inline]
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.earliest().map(|(_, start)| start)
    }

    /// Adds an entry that is in no list. Returns the tick at which to call [`pop`](Self::pop) for it: the first tick of
    /// its slot. Constant time.
    ///
    /// The tick of the entry must be above the elapsed time, and must not change while the entry is in the wheel.
    /// `u64::MAX` is a tick like any other.
    #[inline]
    pub(crate) fn insert(&mut self, entries: &mut impl Entries, index: u32) -> u64 {
        let tick = entries.tick(index);
        debug_assert!(tick > self.elapsed, "tick {tick} of entry {index} is not after {}", self.elapsed);
        #[cfg(test)]
        {
            self.len += 1;
        }
        self.place(entries, index, self.elapsed, tick)
    }

    /// Removes an entry of this wheel. Constant time.
    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Entries, index: u32) {
        #[cfg(test)]
        {
            self.len -= 1;
        }
        self.unlink(entries, index);
    }

    /// Removes and returns the next entry with a tick of at most `now`. Entries leave in the order of their ticks, and
    /// in the order of insertion among equal ticks.
    ///
    /// Every entry handed out or cascaded takes 1 from `budget`. `None` with budget left means that no entry is due and
    /// that the elapsed time is now at least `now`. `None` without budget means that work remains if
    /// [`next_tick`](Self::next_tick) is at most `now`. Entries may be inserted or removed between two calls.
    ///
    /// The elapsed time advances no further than the tick before the earliest slot with work left, so an entry may be
    /// handed out while its own tick is still `elapsed + 1`. A `now` before the elapsed time has no effect.
    #[inline]
    pub(crate) fn pop(&mut self, entries: &mut impl Entries, now: u64, budget: &mut u32) -> Option<u32> {
        while let Some((slot, start)) = self.earliest()
            && start <= now
        {
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            debug_assert!(start > self.elapsed, "a slot was left behind");
            self.elapsed = start - 1;
            let Some(index) = self.slots.front(slot) else {
                unreachable!("a slot marked as occupied is empty");
            };
            self.unlink(entries, index);
            let tick = entries.tick(index);
            if tick == start {
                #[cfg(test)]
                {
                    self.len -= 1;
                }
                return Some(index);
            }
            self.place(entries, index, start, tick);
        }
        self.elapsed = self.elapsed.max(now);
        None
    }

    /// Returns the entry with the least rank, among the entries for which `rank` returns one. If the ticks of two
    /// entries differ by more than `spread`, the earlier one must not have the higher rank. Stops at the first slot
    /// that begins more than `spread` after the tick of the best entry so far.
    pub(crate) fn least<R: Ord>(
        &self,
        entries: &impl Entries,
        spread: u64,
        rank: impl Fn(u32) -> Option<R>,
    ) -> Option<(u32, R)> {
        let mut least: Option<(u32, R)> = None;
        for (slot, start) in self.slots_in_order() {
            // A slot that is being cascaded begins no later than the slots of its former entries.
            if least.as_ref().is_some_and(|(index, _)| entries.tick(*index).saturating_add(spread) < start) {
                break;
            }
            let ranked = self.slots.iter(entries, slot).filter_map(|index| {
                #[cfg(test)]
                self.visit();
                Some((index, rank(index)?))
            });
            least = least.into_iter().chain(ranked).min_by(|(_, one), (_, other)| one.cmp(other));
        }
        least
    }

    /// Returns the number and the first tick of each occupied slot, earliest first.
    fn slots_in_order(&self) -> impl Iterator<Item = (usize, u64)> {
        let base = self.elapsed.saturating_add(1);
        let first = self.earliest();
        let rest = (0..LEVELS).flat_map(move |level| {
            let digits = (0..SLOTS).filter(move |digit| self.occupied[level] & (1 << digit) != 0);
            digits.map(move |digit| (slot_number(level, digit), slot_start(base, level, digit)))
        });
        first.into_iter().chain(rest.filter(move |slot| Some(*slot) != first))
    }

    /// Returns the number and the first tick of the earliest occupied slot.
    #[inline]
    fn earliest(&self) -> Option<(usize, u64)> {
        if self.levels == 0 {
            return None;
        }
        #[cfg(test)]
        self.visit();
        // Every entry is after the elapsed time, so there is a tick after it.
        let base = self.elapsed + 1;
        // A slot that begins at this very tick is the first one, even if its former entries are on lower levels.
        // Otherwise the lowest level has the first slot.
        let level = level_beginning(base);
        let digit = digit(base, level);
        if self.occupied[level] & (1 << digit) != 0 {
            return Some((slot_number(level, digit), base));
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied[level].trailing_zeros() as usize;
        Some((slot_number(level, digit), slot_start(base, level, digit)))
    }

    /// Adds an entry to the slot of its tick as seen from an earlier tick. Returns the first tick of that slot.
    #[inline]
    fn place(&mut self, entries: &mut impl Entries, index: u32, seen_from: u64, tick: u64) -> u64 {
        #[cfg(test)]
        self.visit();
        let level = level_for(seen_from, tick);
        let digit = digit(tick, level);
        self.slots.push_back(entries, slot_number(level, digit), index);
        self.occupied[level] |= 1 << digit;
        self.levels |= 1 << level;
        slot_start(tick, level, digit)
    }

    /// Removes an entry from its slot, which only the links know.
    #[inline]
    fn unlink(&mut self, entries: &mut impl Entries, index: u32) {
        #[cfg(test)]
        self.visit();
        if let Some(emptied) = self.slots.remove(entries, index) {
            let (level, digit) = (emptied / SLOTS, emptied % SLOTS);
            self.occupied[level] &= !(1 << digit);
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }
}

/// Bits of one digit.
const BITS: u32 = 6;

/// Slots of one level: the values of one digit.
const SLOTS: usize = 1 << BITS;

/// Digits of a `u64`, the topmost of only four bits.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// Returns the place of the highest digit in which two ticks differ; 0 for equal ticks.
#[inline]
fn level_for(seen_from: u64, tick: u64) -> usize {
    ((seen_from ^ tick) | 1).ilog2() as usize / BITS as usize
}

/// Returns the highest level with a slot that begins at this tick: the number of its lowest zero digits.
#[inline]
fn level_beginning(tick: u64) -> usize {
    // 0 begins a slot of every level.
    (tick.trailing_zeros() as usize / BITS as usize).min(LEVELS - 1)
}

/// Returns the digit of a tick at this level.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a digit has six bits")]
fn digit(tick: u64, level: usize) -> usize {
    ((tick >> shift(level)) & (SLOTS as u64 - 1)) as usize
}

/// Returns the first tick of a slot that has the digits of `base` above the level.
#[inline]
fn slot_start(base: u64, level: usize, digit: usize) -> u64 {
    let below = shift(level);
    // The topmost level has nothing above it, and a shift by 66 would overflow.
    let above = base.checked_shr(below + BITS).map_or(0, |high| high << (below + BITS));
    above | ((digit as u64) << below)
}

/// Returns the number of a slot's list.
#[inline]
fn slot_number(level: usize, digit: usize) -> usize {
    level * SLOTS + digit
}

/// Returns the place of the lowest bit of a level's digit.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are eleven levels")]
fn shift(level: usize) -> u32 {
    level as u32 * BITS
}

#[cfg(test)]
mod tests;

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
