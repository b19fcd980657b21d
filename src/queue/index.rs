//! The index of records by the hash of their key: a hash table with open addressing and linear probing.
//!
//! The algorithms are from D. Knuth, *The Art of Computer Programming*, volume 3, section 6.4: search and insertion
//! (algorithm L), and deletion without tombstones (algorithm R). The table keeps the hashes, so most comparisons touch
//! no record, and growing touches none.
//!
//! # Invariants
//!
//! - The number of slots is a power of two, and at most 7 of 8 slots are in use.
//! - No slot between the home of an entry and the slot of the entry is empty.

/// An entry of the table, or an empty slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// The record, or [`NONE`].
    record: u32,
}

/// No record has this index.
const NONE: u32 = u32::MAX;

const EMPTY: Slot = Slot { hash: 0, record: NONE };

/// The number of slots in the smallest table.
const LEAST: usize = 8;

/// Folds a hash into the 32 bits that the index keeps.
#[inline]
pub(crate) fn fold(hash: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the half that is cut off has been mixed in")]
    let folded = (hash ^ (hash >> 32)) as u32;
    folded
}

/// Records by hash.
#[derive(Debug)]
pub(crate) struct RecordIndex {
    slots: Box<[Slot]>,
    /// The number of entries that can be added before the table grows.
    room: usize,
    /// The bits of a product that do not belong to a slot number.
    shift: u32,
}

/// The empty slot at which a search ended. Valid until the index changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy(usize);

impl RecordIndex {
    pub(crate) fn new() -> Self {
        Self::with_slots(LEAST)
    }

    fn with_slots(count: usize) -> Self {
        Self { slots: vec![EMPTY; count].into(), room: count / 8 * 7, shift: u64::BITS - count.ilog2() }
    }

    /// Returns the record with this hash for which `is` holds, or the place for a new one.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Result<u32, Vacancy> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at & mask];
            if slot.record == NONE {
                return Err(Vacancy(at & mask));
            }
            if slot.hash == hash && is(slot.record) {
                return Ok(slot.record);
            }
            at += 1;
        }
    }

    /// Adds a record that is not in the index.
    #[inline(always)]
    pub(crate) fn insert(&mut self, vacancy: Vacancy, hash: u32, record: u32) {
        if self.room == 0 {
            return self.grow_and_insert(hash, record);
        }
        self.room -= 1;
        self.slots[vacancy.0] = Slot { hash, record };
    }

    #[cold]
    fn grow_and_insert(&mut self, hash: u32, record: u32) {
        self.rebuild(self.slots.len() * 2);
        self.add(Slot { hash, record });
    }

    /// Removes a record of the index.
    #[inline(always)]
    pub(crate) fn remove(&mut self, hash: u32, record: u32) {
        let mask = self.slots.len() - 1;
        let mut hole = self.home(hash) & mask;
        while self.slots[hole].record != record {
            debug_assert_ne!(self.slots[hole].record, NONE, "record {record} is not in the index");
            hole = (hole + 1) & mask;
        }
        self.room += 1;
        let mut at = (hole + 1) & mask;
        while self.slots[at].record != NONE {
            let slot = self.slots[at];
            // An entry may move to the hole unless its home lies behind the hole.
            if at.wrapping_sub(self.home(slot.hash)) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[hole] = EMPTY;
    }

    /// Releases memory that the records do not need.
    pub(crate) fn shrink_to_fit(&mut self) {
        let used = self.slots.len() / 8 * 7 - self.room;
        let mut count = LEAST;
        while count / 8 * 7 < used {
            count *= 2;
        }
        if count < self.slots.len() {
            self.rebuild(count);
        }
    }

    fn rebuild(&mut self, count: usize) {
        let old = std::mem::replace(self, Self::with_slots(count));
        for slot in old.slots {
            if slot.record != NONE {
                self.add(slot);
            }
        }
    }

    fn add(&mut self, Slot { hash, record }: Slot) {
        if let Err(vacancy) = self.find(hash, |_| false) {
            self.insert(vacancy, hash, record);
        }
    }

    /// Returns the number of the slot at which a search begins. Multiplication by the golden ratio spreads weak hashes.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "a slot number")]
        let home = (u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        home
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl RecordIndex {
        /// Asserts the invariants, and returns the entries in order.
        fn check(&self) -> Vec<(u32, u32)> {
            let mask = self.slots.len() - 1;
            let used: Vec<_> = (0..).zip(&self.slots).filter(|(_, slot)| slot.record != NONE).collect();
            assert!(self.slots.len().is_power_of_two() && used.len() <= self.slots.len() / 8 * 7);
            assert_eq!(self.room, self.slots.len() / 8 * 7 - used.len());
            for (at, slot) in &used {
                let mut passed = self.home(slot.hash);
                while passed != *at {
                    assert_ne!(self.slots[passed].record, NONE, "an empty slot before {slot:?} at {at}");
                    passed = (passed + 1) & mask;
                }
            }
            let mut entries: Vec<_> = used.into_iter().map(|(_, slot)| (slot.record, slot.hash)).collect();
            entries.sort_unstable();
            entries
        }
    }

    /// Generates few different hashes, so that entries share a home and wrap around the end of the table.
    fn hashes() -> impl Strategy<Value = u32> {
        prop_oneof![0..4_u32, any::<u32>(), Just(u32::MAX), (0..64_u32).prop_map(|high| high << 26)]
    }

    proptest! {
        /// Each step adds a record, removes it, or shrinks the index. The model is a plain list.
        #[test]
        fn the_index_finds_what_a_list_finds(
            of_record in prop::collection::vec(hashes(), 40),
            steps in prop::collection::vec((0..40_usize, 0..20_u8), 0..200),
        ) {
            let mut index = RecordIndex::new();
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (record, kind) in steps {
                let hash = of_record[record];
                let record = u32::try_from(record).unwrap();
                let found = index.find(hash, |other| other == record);
                if kind == 0 {
                    index.shrink_to_fit();
                } else if let Some(at) = model.iter().position(|&(known, _)| known == record) {
                    prop_assert_eq!(found.ok(), Some(record));
                    index.remove(hash, record);
                    model.swap_remove(at);
                } else if let Err(vacancy) = found {
                    index.insert(vacancy, hash, record);
                    model.push((record, hash));
                } else {
                    prop_assert!(false, "record {} was found", record);
                }
                model.sort_unstable();
                prop_assert_eq!(index.check(), model.clone());
                for hash in &of_record {
                    let same = model.iter().filter(|(_, other)| other == hash).count();
                    let mut seen = 0;
                    let found = index.find(*hash, |_| {
                        seen += 1;
                        false
                    });
                    prop_assert!(found.is_err());
                    prop_assert_eq!(seen, same, "records of another hash are not compared");
                }
            }
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut index = RecordIndex::new();
        let add = |index: &mut RecordIndex, record: u32| {
            let vacancy = index.find(record, |_| false).unwrap_err();
            index.insert(vacancy, record, record);
        };
        (0..10_000).for_each(|record| add(&mut index, record));
        assert_eq!(index.slots.len(), 16_384);
        (10..10_000).for_each(|record| index.remove(record, record));
        index.shrink_to_fit();
        assert_eq!((index.slots.len(), index.check().len()), (16, 10));
    }
}
