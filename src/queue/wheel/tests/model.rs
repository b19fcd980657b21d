//! The wheel compared with a sorted map, in random programs over spans from one tick to centuries.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{Entries, LEVELS, Slab, Wheel, drain, level_for, shift, wheel_of};

/// A century in ticks of 2^17 ns.
const COARSE_CENTURY: u64 = FINE_CENTURY >> 17;

/// A century in ticks of 1 ns.
const FINE_CENTURY: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// The longest random program.
const STEPS: usize = 60;

/// A budget that suffices for all entries of a random program.
const PLENTY: u32 = 1000;

/// When an entry of a random program is due.
#[derive(Clone, Debug)]
enum Due {
    /// Ticks after the elapsed time.
    In(u64),
    /// At the start of a later slot of this level, or one tick beside it.
    SlabSlot(usize, u64, i8),
    /// At the tick of another entry.
    With(Index),
    Never,
}

/// How far a random program turns the wheel.
#[derive(Clone, Debug)]
enum To {
    Ahead(u64),
    /// The next tick, or the one before it.
    Next(bool),
    /// The tick of the earliest entry, or the one before it.
    Earliest(bool),
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Due),
    Cancel(Index),
    Reschedule(Index, Due),
    /// Turns the wheel until no entry is due or this budget is spent.
    Turn(To, u32),
}

fn ticks() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..8u64,
        4 => 1..200u64,
        3 => 4000..4200u64,
        2 => 1..20_000_000u64,
        2 => 1..COARSE_CENTURY,
        1 => 1..FINE_CENTURY,
    ]
}

fn due() -> impl Strategy<Value = Due> {
    prop_oneof![
        6 => ticks().prop_map(Due::In),
        4 => (0..LEVELS, 0..3u64, -1..=1i8).prop_map(|(level, on, by)| Due::SlabSlot(level, on, by)),
        5 => any::<Index>().prop_map(Due::With),
        1 => Just(Due::Never),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let to = prop_oneof![
        4 => ticks().prop_map(To::Ahead),
        2 => any::<bool>().prop_map(To::Next),
        2 => any::<bool>().prop_map(To::Earliest),
    ];
    let budget = prop_oneof![3 => 0..6u32, 2 => Just(PLENTY)];
    prop_oneof![
        6 => due().prop_map(Step::Insert),
        1 => any::<Index>().prop_map(Step::Cancel),
        1 => (any::<Index>(), due()).prop_map(|(which, due)| Step::Reschedule(which, due)),
        4 => (to, budget).prop_map(|(to, budget)| Step::Turn(to, budget)),
    ]
}

/// A wheel and its naive model: a map sorted by tick, then by order of insertion.
struct Pair {
    wheel: Wheel,
    slab: Slab,
    model: BTreeMap<(u64, u64), u32>,
    inserted: u64,
    now: u64,
    spent: u64,
    /// The budget for all entries so far: one for each level from their first slot down, and one to leave.
    allowed: u64,
}

impl Pair {
    fn new() -> Self {
        Self {
            wheel: Wheel::new(),
            slab: Slab::default(),
            model: BTreeMap::new(),
            inserted: 0,
            now: 0,
            spent: 0,
            allowed: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Insert(due) => {
                let tick = self.resolve(due);
                let index = self.slab.add(tick);
                self.insert(index);
            }
            Step::Cancel(which) => {
                self.cancel(*which);
            }
            Step::Reschedule(which, due) => {
                if let Some(index) = self.cancel(*which) {
                    self.slab.records[index as usize].tick = self.resolve(due);
                    self.insert(index);
                }
            }
            Step::Turn(to, budget) => self.turn(to, *budget),
        }
        self.check();
    }

    fn resolve(&self, due: &Due) -> u64 {
        let elapsed = self.wheel.elapsed();
        let tick = match *due {
            Due::In(ticks) => elapsed.saturating_add(ticks),
            Due::SlabSlot(level, on, by) => ((elapsed >> shift(level)).saturating_add(on))
                .saturating_mul(1 << shift(level))
                .saturating_add_signed(by.into()),
            Due::With(which) => self.pick(which).map_or(elapsed.saturating_add(1), |(tick, _)| tick),
            Due::Never => u64::MAX,
        };
        tick.max(elapsed.saturating_add(1))
    }

    fn pick(&self, which: Index) -> Option<(u64, u64)> {
        let len = self.model.len();
        (len > 0).then(|| *self.model.keys().nth(which.index(len)).unwrap())
    }

    fn insert(&mut self, index: u32) {
        let tick = self.slab.records[index as usize].tick;
        let elapsed = self.wheel.elapsed();
        if tick == elapsed {
            return; // The elapsed time is the last tick there is.
        }
        let before = self.wheel.next_tick();
        let wake = self.wheel.insert(&mut self.slab, index);
        assert!(elapsed < wake && wake <= tick);
        let next = before.map_or(wake, |before| before.min(wake));
        assert_eq!(self.wheel.next_tick(), Some(next));
        self.model.insert((tick, self.inserted), index);
        self.inserted += 1;
        self.allowed += level_for(elapsed, tick) as u64 + 1;
    }

    fn cancel(&mut self, which: Index) -> Option<u32> {
        let key = self.pick(which)?;
        let index = self.model.remove(&key)?;
        self.wheel.remove(&mut self.slab, index);
        assert!(self.slab.link(index).is_free());
        Some(index)
    }

    fn turn(&mut self, to: &To, budget: u32) {
        let elapsed = self.wheel.elapsed();
        let target = match *to {
            To::Ahead(ticks) => self.now.saturating_add(ticks),
            To::Next(before) => self.wheel.next_tick().map_or(0, |tick| tick - u64::from(before)),
            To::Earliest(before) => self.model.keys().next().map_or(0, |(tick, _)| tick - u64::from(before)),
        };
        let mut left = budget;
        while let Some(index) = self.pop(target, &mut left) {
            let ((tick, _), expected) = self.model.pop_first().unwrap();
            assert_eq!(index, expected, "the order");
            assert!(elapsed < tick && tick <= target, "{tick} at {target}");
            assert!(self.slab.link(index).is_free());
            self.check();
        }
        self.spent += u64::from(budget - left);
        self.now = self.now.max(target);
        assert!(self.wheel.elapsed() >= elapsed, "time went back");
        if self.wheel.next_tick().is_none_or(|next| next > target) {
            assert_eq!(self.wheel.elapsed(), elapsed.max(target));
        } else {
            assert_eq!(left, 0, "both work and budget remain");
        }
    }

    /// Pops an entry, and asserts that each unit of budget pays for one reading of a tick: the handling of one entry.
    fn pop(&mut self, target: u64, left: &mut u32) -> Option<u32> {
        let (reads, before) = (self.slab.reads(), *left);
        let index = self.wheel.pop(&mut self.slab, target, left);
        assert_eq!(self.slab.reads() - reads, before - *left, "the price");
        index
    }

    fn check(&self) {
        self.wheel.check(&self.slab);
        assert_eq!(self.wheel.len(), self.model.len());
        let earliest = self.model.keys().next().map(|&(tick, _)| tick);
        assert_eq!(self.wheel.next_tick().is_some(), earliest.is_some());
        if let (Some(next), Some(earliest)) = (self.wheel.next_tick(), earliest) {
            assert!(self.wheel.elapsed() < next && next <= earliest);
        }
        let least = self.wheel.least(&self.slab, 0, |index| Some(self.slab.tick(index)));
        assert_eq!(least.map(|(_, tick)| tick), earliest);
        assert!(self.spent <= self.allowed, "more than a cascade per level");
    }
}

proptest! {
    /// The wheel and a sorted map agree on every entry handed out, after any operations in between.
    #[test]
    fn a_random_program_runs_in_due_order(steps in prop::collection::vec(step(), 1..STEPS)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
        // All other entries are handed out in order.
        pair.step(&Step::Turn(To::Ahead(u64::MAX), PLENTY));
        assert_eq!(pair.wheel.len(), 0);
    }

    /// Batches of any size hand out the same entries.
    #[test]
    fn budgets_do_not_change_the_order(
        dues in prop::collection::vec(ticks(), 1..100),
        jumps in prop::collection::vec(ticks(), 1..10),
        budget in 1..5u32,
    ) {
        let (mut whole, mut whole_slab) = wheel_of(&dues);
        let (mut cut, mut cut_slab) = wheel_of(&dues);
        let (mut now, mut spent) = (0u64, 0);
        for jump in jumps {
            now = now.saturating_add(jump);
            let mut batches = Vec::new();
            while cut.next_tick().is_some_and(|next| next <= now) {
                let mut left = budget;
                while let Some(index) = cut.pop(&mut cut_slab, now, &mut left) {
                    batches.push(index);
                }
                prop_assert!(left == 0 || cut.elapsed() == now);
                cut.check(&cut_slab);
                spent += (budget - left) as usize;
                prop_assert!(spent <= dues.len() * LEVELS);
            }
            prop_assert_eq!(cut.pop(&mut cut_slab, now, &mut 0), None);
            prop_assert_eq!(drain(&mut whole, &mut whole_slab, now), batches);
            prop_assert_eq!(whole.elapsed(), cut.elapsed());
            prop_assert_eq!(whole.next_tick(), cut.next_tick());
        }
    }

    /// A lone entry wakes its driver at most once per level and then once to leave, however far it is.
    #[test]
    fn a_far_deadline_costs_a_cascade_per_level(from in any::<u64>(), ahead in ticks(), far in any::<u64>()) {
        for tick in [from.saturating_add(ahead), from.max(far), u64::MAX] {
            if tick == from {
                continue;
            }
            let (mut wheel, mut slab) = wheel_of(&[]);
            drain(&mut wheel, &mut slab, from);
            let index = slab.add(tick);
            wheel.insert(&mut slab, index);
            let (mut wakes, mut spent) = (0, 0);
            while let Some(next) = wheel.next_tick() {
                let mut budget = 100;
                prop_assert_eq!(wheel.pop(&mut slab, next, &mut budget).is_some(), next == tick);
                wheel.check(&slab);
                wakes += 1;
                spent += 100 - budget;
                prop_assert_eq!(wakes, spent, "one move per wake");
                prop_assert!(wakes as usize <= level_for(from, tick) + 1);
            }
        }
    }
}
