//! The records of a queue, by index: a claim, a lane and the wheel name a record by its place in here.

use super::lists::{Entries, Link};
use super::state::{Brief, Late, State};

/// One key and all that the queue knows of it.
#[derive(Debug)]
pub(crate) struct Record<K> {
    pub(crate) key: K,
    link: Link,
    hash: u32,
    pub(crate) brief: Brief,
}

impl<K> Record<K> {
    /// The hash of the key, kept so that nothing but a request ever hashes one: the same for all purposes of the index,
    /// which looks at the lowest and the highest bits.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        spread(self.hash)
    }

    #[inline]
    pub(crate) fn has_hash(&self, folded: u32) -> bool {
        self.hash == folded
    }
}

/// Folds a hash into half its width.
#[inline]
pub(crate) fn fold(hash: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the half that is cut off has been mixed in")]
    let folded = (hash ^ (hash >> 32)) as u32;
    folded
}

/// A hash of full width for the index.
#[inline]
pub(crate) fn spread(folded: u32) -> u64 {
    u64::from(folded) << 32 | u64::from(folded)
}

#[derive(Debug)]
enum Slot<K> {
    Used(Record<K>),
    /// The next free slot, or [`END`].
    Free(u32),
}

/// Ends the chain of free slots.
const END: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Slab<K> {
    slots: Vec<Slot<K>>,
    /// By index, as far as any record has had a delay or a failure.
    late: Vec<Late>,
    first_free: u32,
    /// Ticks of the wheel are 2^this nanoseconds.
    tick_shift: u32,
}

impl<K> Slab<K> {
    pub(crate) fn new(tick_shift: u32) -> Self {
        Self { slots: Vec::new(), late: Vec::new(), first_free: END, tick_shift }
    }

    /// One more than the highest index in use.
    pub(crate) fn bound(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "`insert` keeps the length within u32")]
        let bound = self.slots.len() as u32;
        bound
    }

    /// # Panics
    ///
    /// If the queue would hold more than some four billion keys.
    #[inline]
    pub(crate) fn insert(&mut self, key: K, hash: u32, brief: Brief) -> u32 {
        let slot = Slot::Used(Record { key, link: Link::FREE, hash, brief });
        if self.first_free == END {
            return self.push(slot);
        }
        let index = self.first_free;
        let Slot::Free(next) = std::mem::replace(&mut self.slots[index as usize], slot) else {
            unreachable!("a slot in the chain of free ones is in use");
        };
        self.first_free = next;
        index
    }

    /// Adds a slot at the end, where none is free.
    #[inline(never)]
    fn push(&mut self, slot: Slot<K>) -> u32 {
        let index = self.bound();
        assert!(index < super::lists::SENTINEL_BASE, "a queue holds at most {index} keys");
        self.slots.push(slot);
        index
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Record<K> {
        let slot = std::mem::replace(&mut self.slots[index as usize], Slot::Free(self.first_free));
        self.first_free = index;
        if let Some(late) = self.late.get_mut(index as usize) {
            *late = Late::default();
        }
        match slot {
            Slot::Used(record) => record,
            Slot::Free(_) => unreachable!("a free slot was removed"),
        }
    }

    #[inline]
    pub(crate) fn state(&self, index: u32) -> State {
        State::of(self.get(index).brief, self.late(index))
    }

    pub(crate) fn set_state(&mut self, index: u32, state: State) {
        self.get_mut(index).brief = state.brief();
        self.set_late(index, state.late());
    }

    #[inline]
    pub(crate) fn late(&self, index: u32) -> Late {
        self.late.get(index as usize).copied().unwrap_or_default()
    }

    fn set_late(&mut self, index: u32, late: Late) {
        let index = index as usize;
        if self.late.len() <= index {
            if late == Late::default() {
                return;
            }
            self.late.resize(index + 1, Late::default());
        }
        self.late[index] = late;
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        matches!(self.slots.get(index as usize), Some(Slot::Used(_)))
    }

    pub(crate) fn into_keys(self) -> impl Iterator<Item = K> {
        self.slots.into_iter().filter_map(|slot| match slot {
            Slot::Used(record) => Some(record.key),
            Slot::Free(_) => None,
        })
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Record<K> {
        match &self.slots[index as usize] {
            Slot::Used(record) => record,
            Slot::Free(_) => unreachable!("a free slot was looked up"),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Record<K> {
        match &mut self.slots[index as usize] {
            Slot::Used(record) => record,
            Slot::Free(_) => unreachable!("a free slot was looked up"),
        }
    }

    /// Every record with its index, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Record<K>)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| match slot {
            Slot::Used(record) => Some((index, record)),
            Slot::Free(_) => None,
        })
    }

    /// Gives back the memory beyond the last record in use. Records do not move, so one late record holds all before it.
    pub(crate) fn shrink_to_fit(&mut self) {
        while matches!(self.slots.last(), Some(Slot::Free(_))) {
            self.slots.pop();
        }
        self.slots.shrink_to_fit();
        self.late.truncate(self.slots.len());
        self.late.shrink_to_fit();
        self.first_free = END;
        for (index, slot) in (0..).zip(&mut self.slots) {
            if let Slot::Free(next) = slot {
                *next = std::mem::replace(&mut self.first_free, index);
            }
        }
    }
}

impl<K> Entries for Slab<K> {
    #[inline]
    fn link(&self, index: u32) -> Link {
        self.get(index).link
    }

    #[inline]
    fn link_mut(&mut self, index: u32) -> &mut Link {
        &mut self.get_mut(index).link
    }

    #[inline]
    fn tick(&self, index: u32) -> u64 {
        self.late(index).due.tick_up(self.tick_shift)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_free_slot_costs_no_room_beside_the_record() {
        assert_eq!(size_of::<Slot<u64>>(), 24);
        assert_eq!(size_of::<Slot<u64>>(), size_of::<Record<u64>>());
    }

    #[test]
    fn slots_are_reused_and_shrinking_keeps_what_is_used() {
        let mut slab = Slab::new(0);
        let add = |slab: &mut Slab<char>, key| slab.insert(key, 0, Brief::default());
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
