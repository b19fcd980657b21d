//! The records of a queue by index, and the key that a claim has taken of one. Claims, levels and the wheel name a
//! record by its index.

use super::lists::{Entries, ListLink};
use super::request::{Priority, Reasons};
use super::state::{DelayState, LineState, RecordState};
use crate::base::time::Nanos;

/// A key and its state.
#[derive(Debug)]
pub(crate) struct KeyRecord<K> {
    pub(crate) key: K,
    link: ListLink,
    /// The hash of the key. Records keep it, so only requests hash keys.
    pub(crate) hash: u32,
    pub(crate) line: LineState,
}

#[derive(Debug)]
enum SlabSlot<K> {
    Used(KeyRecord<K>),
    /// The next free slot, or [`END`].
    Free(u32),
}

/// The end of the chain of free slots.
const END: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Slab<K> {
    slots: Vec<SlabSlot<K>>,
    /// The delay states by index. Shorter than the slots if the last records have had no delay or failure.
    delay: Vec<DelayState>,
    first_free: u32,
    /// Ticks of the wheel are 2^this nanoseconds.
    tick_shift: u32,
}

impl<K> Slab<K> {
    pub(crate) fn new(tick_shift: u32) -> Self {
        Self { slots: Vec::new(), delay: Vec::new(), first_free: END, tick_shift }
    }

    /// Returns the highest index plus one.
    pub(crate) fn bound(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "`insert` keeps the length within u32")]
        let bound = self.slots.len() as u32;
        bound
    }

    /// Adds a record and returns its index.
    ///
    /// # Panics
    ///
    /// If the queue would hold more than about four billion keys.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: K, hash: u32, line: LineState) -> u32 {
        let used = SlabSlot::Used(KeyRecord { key, link: ListLink::FREE, hash, line });
        let index = self.first_free;
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return self.push(used);
        };
        let SlabSlot::Free(next) = *slot else {
            unreachable!("a slot in the chain of free ones is in use");
        };
        *slot = used;
        self.first_free = next;
        index
    }

    /// Adds a slot at the end. Called if no slot is free.
    #[inline(never)]
    fn push(&mut self, slot: SlabSlot<K>) -> u32 {
        let index = self.bound();
        assert!(index < super::lists::SENTINEL_BASE, "a queue holds at most {index} keys");
        self.slots.push(slot);
        index
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u32) -> KeyRecord<K> {
        let slot = std::mem::replace(&mut self.slots[index as usize], SlabSlot::Free(self.first_free));
        self.first_free = index;
        if let Some(delay) = self.delay.get_mut(index as usize) {
            *delay = DelayState::default();
        }
        match slot {
            SlabSlot::Used(record) => record,
            SlabSlot::Free(_) => unreachable!("a free slot was removed"),
        }
    }

    #[inline]
    pub(crate) fn state(&self, index: u32) -> RecordState {
        RecordState::of(self.get(index).line, self.delay(index))
    }

    pub(crate) fn set_state(&mut self, index: u32, state: RecordState) {
        self.get_mut(index).line = state.line();
        self.set_late(index, state.delay());
    }

    #[inline]
    pub(crate) fn delay(&self, index: u32) -> DelayState {
        self.delay.get(index as usize).copied().unwrap_or_default()
    }

    fn set_late(&mut self, index: u32, delay: DelayState) {
        let index = index as usize;
        if self.delay.len() <= index {
            if delay == DelayState::default() {
                return;
            }
            self.delay.resize(index + 1, DelayState::default());
        }
        let slack = self.delay[index].slack;
        self.delay[index] = DelayState { slack, ..delay };
    }

    /// Sets the slack of a record, as an exponent of ticks. The record has a due time and is not in the wheel.
    pub(crate) fn set_slack(&mut self, index: u32, slack: u8) {
        self.delay[index as usize].slack = slack;
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        matches!(self.slots.get(index as usize), Some(SlabSlot::Used(_)))
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &KeyRecord<K> {
        match &self.slots[index as usize] {
            SlabSlot::Used(record) => record,
            SlabSlot::Free(_) => unreachable!("a free slot was looked up"),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut KeyRecord<K> {
        match &mut self.slots[index as usize] {
            SlabSlot::Used(record) => record,
            SlabSlot::Free(_) => unreachable!("a free slot was looked up"),
        }
    }

    /// Returns every record with its index, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &KeyRecord<K>)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| match slot {
            SlabSlot::Used(record) => Some((index, record)),
            SlabSlot::Free(_) => None,
        })
    }

    /// Releases the memory behind the last record. Records do not move.
    pub(crate) fn shrink_to_fit(&mut self) {
        while matches!(self.slots.last(), Some(SlabSlot::Free(_))) {
            self.slots.pop();
        }
        self.slots.shrink_to_fit();
        self.delay.truncate(self.slots.len());
        self.delay.shrink_to_fit();
        self.first_free = END;
        for (index, slot) in (0..).zip(&mut self.slots) {
            if let SlabSlot::Free(next) = slot {
                *next = std::mem::replace(&mut self.first_free, index);
            }
        }
    }
}

impl<K> Entries for Slab<K> {
    #[inline]
    fn link(&self, index: u32) -> ListLink {
        self.get(index).link
    }

    #[inline]
    fn link_mut(&mut self, index: u32) -> &mut ListLink {
        &mut self.get_mut(index).link
    }

    #[inline]
    fn tick(&self, index: u32) -> u64 {
        let DelayState { due, slack, .. } = self.delay(index);
        due.tick_up(self.tick_shift + u32::from(slack)) << slack
    }
}

/// A key that was taken from the queue, with the data of its claim.
///
/// A claim consists of whole words, because claims are moved often, and right after they were made. A processor stalls
/// if it loads a word that it has just stored in parts. Only the claim's pointer has an unused value, which marks "no
/// claim".
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
    fn a_free_slot_costs_no_room_beside_the_record() {
        assert_eq!(size_of::<SlabSlot<u64>>(), 24);
        assert_eq!(size_of::<SlabSlot<u64>>(), size_of::<KeyRecord<u64>>());
    }

    #[test]
    fn slots_are_reused_and_shrinking_keeps_what_is_used() {
        let mut slab = Slab::new(0);
        let add = |slab: &mut Slab<char>, key| slab.insert(key, 0, LineState::default());
        let (a, b, c) = (add(&mut slab, 'a'), add(&mut slab, 'b'), add(&mut slab, 'c'));
        slab.remove(a);
        slab.remove(c);
        slab.shrink_to_fit();
        assert_eq!(slab.bound(), 2);
        assert_eq!(slab.get(b).key, 'b');
        assert_eq!(add(&mut slab, 'd'), a);
        assert_eq!(add(&mut slab, 'e'), c);
        assert_eq!(slab.iter().map(|(_, r)| r.key).collect::<String>(), "dbe");
    }

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
