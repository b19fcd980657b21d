//! Priority levels: the order of service, raising, and the bound on starvation.

use homeostat::Priority::{self, High, Low, Normal};
use homeostat::queue::{EnqueueMethod, STARVATION_BOUND};
use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
use proptest::prelude::*;

use super::letters::{Bench, Is, secs};

const LANES: [Priority; 3] = [High, Normal, Low];

#[test]
fn each_level_is_first_in_first_out_and_higher_levels_go_first() {
    let bench = Bench::new();
    for (key, level) in [('x', Low), ('m', Normal), ('a', High), ('y', Low), ('n', Normal), ('b', High)] {
        assert_eq!(bench.queue.at(level).enqueue(key), EnqueueOutcome::Queued);
    }
    let taken: Vec<_> = bench.claims().iter().map(|claim| (**claim, claim.priority())).collect();
    assert_eq!(taken, [('a', High), ('b', High), ('m', Normal), ('n', Normal), ('x', Low), ('y', Low)]);
}

/// controller-runtime `priorityqueue_test.go`: a priority is never lowered, and a raised key goes to the tail of its
/// new level.
#[test]
fn a_request_raises_a_level_and_never_lowers_it() {
    #[rustfmt::skip]
    let cells: [(Priority, Priority, Priority, &str); 9] = [
        // From, by, the new level, and all ready keys: `a b` high, `m n` normal, `x y` low, `k` between the two of its
        // level.
        (Low, Low, Low, "abmnxky"), (Low, Normal, Normal, "abmnkxy"), (Low, High, High, "abkmnxy"),
        (Normal, Low, Normal, "abmknxy"), (Normal, Normal, Normal, "abmknxy"), (Normal, High, High, "abkmnxy"),
        (High, Low, High, "akbmnxy"), (High, Normal, High, "akbmnxy"), (High, High, High, "akbmnxy"),
    ];
    for method in [
        EnqueueMethod::Enqueue,
        EnqueueMethod::EnqueueNow,
        EnqueueMethod::EnqueueAfter(secs(9)),
        EnqueueMethod::EnqueueIfAbsent,
    ] {
        for (from, by, then, line) in cells {
            let bench = Bench::new();
            for (level, first, second) in [(High, 'a', 'b'), (Normal, 'm', 'n'), (Low, 'x', 'y')] {
                bench.queue.at(level).enqueue(first);
                if level == from {
                    bench.queue.at(level).enqueue('k');
                }
                bench.queue.at(level).enqueue(second);
            }
            let outcome = bench.queue.at(by).request('k', method.into());
            if method == EnqueueMethod::EnqueueIfAbsent {
                assert_eq!((outcome, bench.level('k')), (EnqueueOutcome::Ignored, from));
            } else {
                assert_eq!((outcome, bench.level('k')), (EnqueueOutcome::Merged, then), "{from:?} by {by:?}");
                assert_eq!(bench.line(), line, "{from:?} by {by:?}");
            }
        }
    }
}

/// A delay and a run are raised too. The key keeps the level when it becomes ready.
#[test]
fn a_level_outlives_a_delay_and_a_claim() {
    for (by, level) in [(Low, Normal), (Normal, Normal), (High, High)] {
        let bench = Bench::new();
        bench.queue.enqueue_after('k', secs(10));
        assert_eq!(bench.queue.at(by).enqueue('k'), EnqueueOutcome::Held);
        bench.queue.at(High).enqueue_if_absent('k');
        bench.clock.advance(secs(10));
        assert_eq!(bench.level('k'), level);

        let claim = bench.take();
        assert_eq!(claim.priority(), level);
        claim.done();
        let claim = bench.claim('k');
        assert_eq!(claim.priority(), Normal, "a new record has the level of its request");
        bench.queue.at(by).enqueue('k');
        claim.requeue_after(secs(0));
        assert_eq!(bench.level('k'), level);
        bench.take().retry_after(secs(0));
        assert_eq!(bench.level('k'), level);
    }
}

#[test]
fn a_cool_down_remembers_no_level() {
    let bench = Bench::new();
    bench.queue.at(High).enqueue('k');
    bench.take().cool_down(secs(10));
    bench.queue.at(Low).enqueue('k');
    bench.clock.advance(secs(10));
    assert_eq!(bench.level('k'), Low);
}

/// After a delay or a rerun a key goes to the tail of its level, in due order.
#[test]
fn delayed_keys_become_ready_in_due_order() {
    let bench = Bench::new();
    for (key, delay) in [('c', 30), ('a', 10), ('e', 30), ('b', 20), ('d', 30)] {
        bench.queue.enqueue_after(key, secs(delay));
    }
    bench.queue.at(High).enqueue_after('z', secs(40));
    bench.queue.enqueue('0');
    bench.clock.advance(secs(100));
    assert_eq!(bench.line(), "z0abced", "due order; of one instant, the order in which they were set");
}

#[test]
fn raising_the_level_of_a_delay_does_not_move_it() {
    let bench = Bench::new();
    bench.queue.enqueue_after('k', secs(10));
    bench.queue.at(High).enqueue('k');
    assert_eq!(bench.is('k'), Is::Delayed(1_010));
}

/// Whether key 0 is taken within the bound, with `ahead` keys before it in its level, while the levels of `flooded`
/// always have keys. `before` dequeues were made earlier.
fn is_taken_in_time(level: Priority, ahead: usize, flooded: &[Priority], before: usize) -> bool {
    let queue = WorkQueue::new();
    let mut next = 1_u64;
    let mut flood = |queue: &WorkQueue<u64>| {
        for &other in flooded {
            queue.at(other).enqueue(next);
            next += 1;
        }
    };
    for _ in 0..before {
        flood(&queue);
        queue.enqueue(u64::MAX);
        queue.try_dequeue().unwrap().done();
    }
    for _ in 0..8 {
        flood(&queue);
    }
    queue.cancel(&u64::MAX);
    for key in 0..ahead as u64 {
        queue.at(level).enqueue(1 << 32 | key);
    }
    queue.at(level).enqueue(0);
    for count in 1..=STARVATION_BOUND * (ahead + 1) {
        // Later keys queue up behind it, in its level too.
        flood(&queue);
        queue.at(level).enqueue(2 << 32 | count as u64);
        let claim = queue.try_dequeue().unwrap();
        if *claim == 0 {
            return true;
        }
        claim.done();
    }
    false
}

#[test]
fn no_level_starves() {
    let patterns: [&[Priority]; 7] = [&[], &[High], &[Normal], &[Low], &[High, Normal], &[High, Low], &[Normal, Low]];
    for level in LANES {
        for ahead in [0, 1, 7] {
            for pattern in patterns.into_iter().filter(|pattern| !pattern.contains(&level)) {
                for before in 0..STARVATION_BOUND {
                    assert!(
                        is_taken_in_time(level, ahead, pattern, before),
                        "{ahead} ahead in {level:?} under {pattern:?}, after {before} dequeues"
                    );
                }
            }
        }
    }
}

/// The bound is not generous either: high keys come first under a flood.
#[test]
fn high_keys_have_most_of_the_turns() {
    let queue = WorkQueue::new();
    for key in 0..160 {
        queue.at(High).enqueue(key);
        queue.enqueue(1_000 + key);
        queue.at(Low).enqueue(2_000 + key);
    }
    let mut turns = [0; 3];
    for _ in 0..160 {
        let claim = queue.try_dequeue().unwrap();
        turns[*claim / 1_000] += 1;
        claim.done();
    }
    assert_eq!(turns, [140, 10, 10]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// In any mixture of levels, dequeues, cancels and raises, each ready key is taken within the bound of its place.
    #[test]
    fn the_bound_holds_in_any_mixture(steps in prop::collection::vec((0..8_u8, 0..3_usize, 0..40_u32), 0..600)) {
        let queue = WorkQueue::new();
        // Key, level, and the most dequeues until it is taken.
        let mut line: Vec<(u32, Priority, usize)> = Vec::new();
        let mut dequeues = 0;
        let allow = |line: &[(u32, Priority, usize)], level| {
            STARVATION_BOUND * (line.iter().filter(|other| other.1 == level).count() + 1)
        };
        for (step, level, key) in steps {
            let level = LANES[level];
            let place = line.iter().position(|&(other, ..)| other == key);
            if step < 5 {
                let outcome = queue.at(level).enqueue(key);
                match place {
                    None => {
                        prop_assert_eq!(outcome, EnqueueOutcome::Queued);
                        line.push((key, level, dequeues + allow(&line, level)));
                    }
                    Some(place) if line[place].1 < level => {
                        line.remove(place);
                        line.push((key, level, dequeues + allow(&line, level)));
                    }
                    Some(_) => prop_assert_eq!(outcome, EnqueueOutcome::Merged),
                }
            } else if step == 5 {
                queue.cancel(&key);
                line.retain(|&(other, ..)| other != key);
            } else if let Ok(claim) = queue.try_dequeue() {
                dequeues += 1;
                let place = line.iter().position(|&(other, ..)| other == *claim).unwrap();
                let (_, level, by) = line.remove(place);
                prop_assert_eq!(claim.priority(), level);
                prop_assert!(line[..place].iter().all(|other| other.1 != level), "first in, first out");
                prop_assert!(dequeues <= by, "taken as number {}, due by {}", dequeues, by);
                claim.done();
            }
            prop_assert!(line.iter().all(|&(_, _, by)| dequeues < by), "passed over for too long");
            prop_assert_eq!(queue.len(), line.len());
        }
    }
}
