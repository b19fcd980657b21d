//! Proofs of the wheel: bit arithmetic and single cases here, random programs in `model`, costs in `cost`.

mod cost;
mod model;

use std::cell::Cell;

use super::super::lists::ListLink;
use super::*;

impl Wheel {
    /// Counts a look at a slot.
    pub(super) fn visit(&self) {
        self.visits.set(self.visits.get() + 1);
    }

    #[cfg(not(loom))]
    pub(crate) fn visits(&self) -> u64 {
        self.visits.get()
    }

    /// Asserts every invariant that the module's documentation names.
    pub(crate) fn check(&self, entries: &impl Entries) {
        assert_eq!(self.slots.check(entries), self.len, "the length");
        for level in 0..LEVELS {
            let any = self.occupied[level] != 0;
            assert_eq!(self.levels & (1 << level) != 0, any, "level {level}");
            for digit in 0..SLOTS {
                let slot = slot_number(level, digit);
                let marked = self.occupied[level] & (1 << digit) != 0;
                assert_eq!(marked, !self.slots.is_empty(slot), "{level}/{digit}");
                for index in self.slots.iter(entries, slot) {
                    self.check_place(entries.tick(index), level, digit);
                }
            }
        }
    }

    fn check_place(&self, tick: u64, level: usize, digit: usize) {
        assert!(tick > self.elapsed, "tick {tick} is past");
        let seen_from = |from| {
            let level = level_for(from, tick);
            (level, super::digit(tick, level))
        };
        let base = self.elapsed + 1;
        let belongs = if level < level_beginning(base) {
            // It can only have been cascaded from the slot that begins at the next tick.
            assert_ne!(tick, base, "dealt out instead of handed out");
            seen_from(base)
        } else {
            seen_from(self.elapsed)
        };
        assert_eq!((level, digit), belongs, "{tick} after {}", self.elapsed);
        let start = slot_start(base, level, digit);
        let end = start + ((1 << shift(level)) - 1);
        assert!((start..=end).contains(&tick), "{tick} in {start}..={end}");
    }
}

/// Entries that count how often they are touched.
#[derive(Default)]
struct Slab {
    records: Vec<KeyRecord>,
    touches: Cell<u64>,
}

struct KeyRecord {
    link: ListLink,
    tick: u64,
    /// How often the wheel asked for the tick: once to insert, once per cascade and once to hand out.
    reads: Cell<u32>,
}

impl Slab {
    fn add(&mut self, tick: u64) -> u32 {
        self.records.push(KeyRecord { link: ListLink::FREE, tick, reads: Cell::new(0) });
        u32::try_from(self.records.len() - 1).unwrap()
    }

    /// How often ticks were read, of all entries together.
    fn reads(&self) -> u32 {
        self.records.iter().map(|record| record.reads.get()).sum()
    }

    fn touch(&self) {
        self.touches.set(self.touches.get() + 1);
    }
}

impl Entries for Slab {
    fn link(&self, index: u32) -> ListLink {
        self.touch();
        self.records[index as usize].link
    }

    fn link_mut(&mut self, index: u32) -> &mut ListLink {
        self.touch();
        &mut self.records[index as usize].link
    }

    fn tick(&self, index: u32) -> u64 {
        self.touch();
        let record = &self.records[index as usize];
        record.reads.set(record.reads.get() + 1);
        record.tick
    }
}

/// Returns a wheel with an entry for each tick. The first entry has the number 0.
fn wheel_of(ticks: &[u64]) -> (Wheel, Slab) {
    let (mut wheel, mut slab) = (Wheel::new(), Slab::default());
    for &tick in ticks {
        let index = slab.add(tick);
        wheel.insert(&mut slab, index);
    }
    (wheel, slab)
}

/// Returns all entries due at `now`. The budget allows one move per level for each entry.
fn drain(wheel: &mut Wheel, slab: &mut Slab, now: u64) -> Vec<u32> {
    let mut budget = u32::try_from(slab.records.len() * LEVELS).unwrap();
    std::iter::from_fn(|| wheel.pop(slab, now, &mut budget)).collect()
}

#[test]
fn the_level_is_the_highest_digit_that_differs() {
    assert_eq!((LEVELS, SLOTS), (11, 64));
    assert_eq!(level_for(0, 0), 0);
    for level in 0..LEVELS {
        let first = 1 << shift(level);
        assert_eq!(level_for(0, first), level);
        assert_eq!(level_for(first, 0), level);
        assert_eq!(level_for(first - 1, first), level);
        if level > 0 {
            assert_eq!(level_for(0, first - 1), level - 1);
            assert_eq!(level_for(first, first + 1), 0);
        }
    }
    assert_eq!(level_for(0, u64::MAX), 10);
    assert_eq!(level_for(u64::MAX - 1, u64::MAX), 0);
    assert_eq!(level_for(u64::MAX - 64, u64::MAX), 1);
}

#[test]
fn digits_are_read_from_the_lowest() {
    let tick = 15 << 60 | 63 << 54 | 1 << 12 | 40 << 6 | 7;
    let digits: Vec<_> = (0..LEVELS).map(|level| digit(tick, level)).collect();
    assert_eq!(digits, [7, 40, 1, 0, 0, 0, 0, 0, 0, 63, 15]);
    assert_eq!(digit(u64::MAX, 10), 15);
}

#[test]
fn a_slot_starts_where_the_digits_below_are_zero() {
    let base = 5 << 12 | 40 << 6 | 7;
    assert_eq!(slot_start(base, 0, 9), 5 << 12 | 40 << 6 | 9);
    assert_eq!(slot_start(base, 1, 41), 5 << 12 | 41 << 6);
    assert_eq!(slot_start(base, 2, 6), 6 << 12);
    assert_eq!(slot_start(base, 3, 1), 1 << 18);
    assert_eq!(slot_start(u64::MAX, 10, 15), 15 << 60);
    assert_eq!(slot_start(u64::MAX, 9, 63), 15 << 60 | 63 << 54);
    assert_eq!(slot_start(u64::MAX, 0, 63), u64::MAX);
}

#[test]
fn the_level_that_begins_is_the_number_of_low_zero_digits() {
    let begins =
        [(1, 0), (63, 0), (64, 1), (65, 0), (4096, 2), (4096 + 64, 1), (1 << 60, 10), (1 << 63, 10), (u64::MAX, 0)];
    for (tick, level) in begins {
        assert_eq!(level_beginning(tick), level, "of {tick}");
    }
}

#[test]
fn every_list_has_a_sentinel() {
    assert_eq!(slot_number(LEVELS - 1, SLOTS - 1), LEVELS * SLOTS - 1);
    assert_eq!(slot_number(1, 0), SLOTS);
}

#[test]
fn an_empty_wheel_only_moves_on() {
    let (mut wheel, mut slab) = wheel_of(&[]);
    assert_eq!(wheel.next_tick(), None);
    assert_eq!(wheel.pop(&mut slab, 1000, &mut 0), None);
    assert_eq!(wheel.elapsed(), 1000);
    assert_eq!(wheel.pop(&mut slab, 999, &mut 0), None);
    assert_eq!(wheel.elapsed(), 1000);
}

#[test]
fn nothing_is_handed_out_early() {
    let (mut wheel, mut slab) = wheel_of(&[100]);
    assert_eq!(wheel.next_tick(), Some(64), "the slot of 64..=127");
    assert!(drain(&mut wheel, &mut slab, 99).is_empty());
    assert_eq!((wheel.elapsed(), wheel.next_tick()), (99, Some(100)));
    assert_eq!(drain(&mut wheel, &mut slab, 100), [0]);
    assert_eq!((wheel.elapsed(), wheel.len()), (100, 0));
}

#[test]
fn the_last_tick_is_a_tick() {
    let (mut wheel, mut slab) = wheel_of(&[u64::MAX, u64::MAX - 1]);
    assert_eq!(drain(&mut wheel, &mut slab, u64::MAX - 2), [0_u32; 0]);
    assert_eq!(drain(&mut wheel, &mut slab, u64::MAX - 1), [1]);
    assert_eq!(wheel.next_tick(), Some(u64::MAX));
    assert_eq!(drain(&mut wheel, &mut slab, u64::MAX), [0]);
    assert_eq!((wheel.elapsed(), wheel.next_tick()), (u64::MAX, None));
    wheel.check(&slab);
}

#[test]
fn a_late_comer_waits_behind_the_same_tick_in_a_half_cascaded_slot() {
    let (mut wheel, mut slab) = wheel_of(&[70, 70, 64]);
    // One of the two has been cascaded, and the other has not.
    assert_eq!(wheel.pop(&mut slab, 70, &mut 1), None);
    assert_eq!((wheel.elapsed(), wheel.next_tick()), (63, Some(64)));
    let delay = slab.add(70);
    assert_eq!(wheel.insert(&mut slab, delay), 64);
    let soon = slab.add(64);
    wheel.insert(&mut slab, soon);
    wheel.check(&slab);
    assert_eq!(drain(&mut wheel, &mut slab, 70), [2, soon, 0, 1, delay]);
}

#[test]
fn a_half_cascaded_slot_can_be_emptied_by_removal() {
    let (mut wheel, mut slab) = wheel_of(&[70, 71, 72]);
    assert_eq!(wheel.pop(&mut slab, 4000, &mut 1), None);
    wheel.remove(&mut slab, 1);
    wheel.remove(&mut slab, 2);
    wheel.check(&slab);
    assert_eq!(wheel.next_tick(), Some(70));
    let delay = slab.add(70);
    wheel.insert(&mut slab, delay);
    wheel.check(&slab);
    assert_eq!(drain(&mut wheel, &mut slab, 70), [0, delay]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "tick 5 of entry 0 is not after 5")]
fn a_tick_that_has_passed_is_refused() {
    let (mut wheel, mut slab) = wheel_of(&[]);
    drain(&mut wheel, &mut slab, 5);
    let index = slab.add(5);
    wheel.insert(&mut slab, index);
}
