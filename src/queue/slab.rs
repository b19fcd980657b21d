//! The records of a queue by index. Claims, levels and the wheel name a record by its index.

use super::lists::{Entries, ListLink};
use super::state::{DelayState, LineState, RecordState};

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
}
