//! The cost of each operation: the slots and entries that it touches, and how often an entry moves.

use super::{Slab, Wheel, wheel_of};

/// The most looks of one call of each kind, at slots and at entries.
#[derive(Debug, PartialEq)]
struct Costs {
    insert: (u64, u64),
    remove: (u64, u64),
    /// Per unit of budget.
    pop: (u64, u64),
}

fn costs(count: u32) -> Costs {
    let (mut wheel, mut slab) = wheel_of(&[]);
    let mut costs = Costs { insert: (0, 0), remove: (0, 0), pop: (0, 0) };
    let mut seed = 0;
    for _ in 0..count {
        // Shifted by up to a whole word, so that every level has its share.
        let tick = (random(&mut seed) >> (random(&mut seed) % 64)).max(1);
        let index = slab.add(tick);
        let most = &mut costs.insert;
        measure(&mut wheel, &mut slab, most, |wheel, slab| {
            wheel.insert(slab, index);
        });
    }
    for index in (0..count).step_by(3) {
        let most = &mut costs.remove;
        measure(&mut wheel, &mut slab, most, |wheel, slab| {
            wheel.remove(slab, index);
        });
    }
    let mut last = 0;
    // This budget is enough.
    for _ in 0..count * 11 {
        if wheel.is_empty() {
            break;
        }
        let most = &mut costs.pop;
        measure(&mut wheel, &mut slab, most, |wheel, slab| {
            if let Some(index) = wheel.pop(slab, u64::MAX, &mut 1) {
                let record = &slab.records[index as usize];
                assert!(last <= record.tick);
                last = record.tick;
                // Once to insert, once to hand out, and at most once for each level below the topmost.
                assert!(record.reads.get() <= 12, "{} reads", record.reads.get());
            }
        });
    }
    assert_eq!(wheel.len(), 0);
    costs
}

fn measure(wheel: &mut Wheel, slab: &mut Slab, most: &mut (u64, u64), run: impl FnOnce(&mut Wheel, &mut Slab)) {
    let (slots, entries) = (wheel.visits.get(), slab.touches.get());
    run(wheel, slab);
    most.0 = most.0.max(wheel.visits.get() - slots);
    most.1 = most.1.max(slab.touches.get() - entries);
}

/// `SplitMix64`, by Steele, Lea and Flood (2014).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn a_million_entries_cost_no_more_each_than_a_thousand() {
    let expected = Costs {
        // The entry's tick, its link and the link of the one before it.
        insert: (1, 3),
        // Its link and the links of its neighbours.
        remove: (1, 3),
        // Look for the slot, leave it, join another, look again and find the budget spent. The removal has no entry
        // before it, and the tick is read between.
        pop: (4, 5),
    };
    assert_eq!(costs(1_000), expected);
    assert_eq!(costs(1_000_000), expected);
}
