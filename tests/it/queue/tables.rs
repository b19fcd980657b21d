//! The tables of the contract through the public API, cell by cell: every expected cell is written out.

use std::time::Duration;

use homeostat::EnqueueOutcome::{self, Held, Ignored, Merged, Queued, Rerun, Scheduled};
use homeostat::queue::{DequeueError, EnqueueMethod};
use homeostat::{Claim, Enqueue, Exponential};

use super::letters::{Bench, Is, NEVER, ZERO, secs};

/// The time of a pending delay or rerun. The requested delays are shorter or longer.
const T: u64 = 1_300;
const SOON: Duration = secs(50);
const LATE: Duration = secs(500);

const COLUMNS: [Is; 7] = [Is::Idle, Is::Ready, Is::Delayed(T), Is::No, Is::Soft, Is::At(T), Is::Now];

/// A cell: the new state of `k`, the outcome, and the ready keys afterwards. `k` came between `a` and `b`.
type Cell = (Is, EnqueueOutcome, &'static str);

/// Request × state.
#[rustfmt::skip]
const REQUESTS: [(EnqueueMethod, [Cell; 7]); 20] = [
    (EnqueueMethod::EnqueueIfAbsent, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Ignored, "akb"), (Is::Delayed(T), Ignored, "ab"),
        (Is::No, Ignored, "ab"), (Is::Soft, Ignored, "ab"), (Is::At(T), Ignored, "ab"), (Is::Now, Ignored, "ab"),
    ]),
    (EnqueueMethod::Enqueue, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::Soft, Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueNow, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Ready, Queued, "abk"),
        (Is::Now, Rerun, "ab"), (Is::Now, Rerun, "ab"), (Is::Now, Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueAfter(SOON), [
        (Is::Delayed(1_050), Scheduled, "ab"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(1_050), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueAfter(LATE), [
        (Is::Delayed(1_500), Scheduled, "ab"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(1_500), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueAfter(ZERO), [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::Soft, Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueAfter(Duration::MAX), [
        (Is::Delayed(NEVER), Scheduled, "ab"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(NEVER), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::Reschedule(SOON), [
        (Is::Delayed(1_050), Scheduled, "ab"), (Is::Delayed(1_050), Scheduled, "ab"), (Is::Delayed(1_050), Scheduled, "ab"),
        (Is::At(1_050), Rerun, "ab"), (Is::At(1_050), Rerun, "ab"), (Is::At(1_050), Rerun, "ab"), (Is::At(1_050), Rerun, "ab"),
    ]),
    (EnqueueMethod::Reschedule(LATE), [
        (Is::Delayed(1_500), Scheduled, "ab"), (Is::Delayed(1_500), Scheduled, "ab"), (Is::Delayed(1_500), Scheduled, "ab"),
        (Is::At(1_500), Rerun, "ab"), (Is::At(1_500), Rerun, "ab"), (Is::At(1_500), Rerun, "ab"), (Is::At(1_500), Rerun, "ab"),
    ]),
    // At a time in the past the key is ready, at the tail.
    (EnqueueMethod::Reschedule(ZERO), [
        (Is::Ready, Queued, "abk"), (Is::Ready, Queued, "abk"), (Is::Ready, Queued, "abk"),
        (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"),
    ]),
    (EnqueueMethod::Reschedule(Duration::MAX), [
        (Is::Delayed(NEVER), Scheduled, "ab"), (Is::Delayed(NEVER), Scheduled, "ab"), (Is::Delayed(NEVER), Scheduled, "ab"),
        (Is::At(NEVER), Rerun, "ab"), (Is::At(NEVER), Rerun, "ab"), (Is::At(NEVER), Rerun, "ab"), (Is::At(NEVER), Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueDebounced { quiet: SOON, max_wait: LATE }, [
        (Is::Delayed(1_050), Scheduled, "ab"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(1_050), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: SOON, max_wait: LATE }, [
        (Is::Delayed(1_050), Scheduled, "ab"), (Is::Ready, Merged, "akb"), (Is::Delayed(1_050), Scheduled, "ab"),
        (Is::At(1_050), Rerun, "ab"), (Is::At(1_050), Rerun, "ab"), (Is::At(1_050), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    // Without a delay the key is ready at once. A rerun keeps its time.
    (EnqueueMethod::EnqueueDebounced { quiet: ZERO, max_wait: ZERO }, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(1_000), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueDebounced { quiet: ZERO, max_wait: LATE }, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(1_000), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueDebounced { quiet: LATE, max_wait: ZERO }, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Delayed(T), Held, "ab"),
        (Is::At(1_000), Rerun, "ab"), (Is::Soft, Rerun, "ab"), (Is::At(T), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: ZERO, max_wait: ZERO }, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Ready, Queued, "abk"),
        (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: ZERO, max_wait: LATE }, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Ready, Queued, "abk"),
        (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: LATE, max_wait: ZERO }, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Merged, "akb"), (Is::Ready, Queued, "abk"),
        (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::At(1_000), Rerun, "ab"), (Is::Now, Rerun, "ab"),
    ]),
    (EnqueueMethod::EnqueueResync, [
        (Is::Ready, Queued, "abk"), (Is::Ready, Ignored, "akb"), (Is::Ready, Queued, "abk"),
        (Is::No, Ignored, "ab"), (Is::Soft, Ignored, "ab"), (Is::At(T), Ignored, "ab"), (Is::Now, Ignored, "ab"),
    ]),
];

#[test]
fn every_request_in_every_state() {
    for (method, cells) in REQUESTS {
        for (before, (after, outcome, line)) in COLUMNS.into_iter().zip(cells) {
            let bench = Bench::new();
            let claim = bench.bring(before);
            assert_eq!((bench.ask(method), bench.is('k')), (outcome, after), "{method:?} of {before:?}");
            assert_eq!(bench.queue.contains(&'k'), after != Is::Idle);
            assert_eq!(bench.line(), line, "{method:?} of {before:?}");
            if let Some(claim) = claim {
                claim.done();
            }
        }
    }
}

/// The numbers of ready, delayed and processed keys. `a` and `b` are always ready.
#[test]
fn every_state_is_counted() {
    let cells = [(2, 0, 0), (3, 0, 0), (2, 1, 0), (2, 0, 1), (2, 0, 1), (2, 0, 1), (2, 0, 1)];
    for (state, counts) in COLUMNS.into_iter().zip(cells) {
        let bench = Bench::new();
        let _claim = bench.bring(state);
        let queue = &bench.queue;
        assert_eq!((queue.len(), queue.metrics().delayed, queue.metrics().processing), counts, "{state:?}");
        let next_due = queue.next_due().map(|at| (at - bench.origin).as_secs());
        assert_eq!(next_due, (state == Is::Delayed(T)).then_some(T), "{state:?}");
        assert!(!queue.is_empty());
    }
}

#[test]
fn cancel_returns_every_state_that_it_found() {
    let cells: [(Is, &str); 7] = [
        (Is::Idle, "ab"),
        (Is::Idle, "ab"),
        (Is::Idle, "ab"),
        (Is::No, "ab"),
        (Is::No, "ab"),
        (Is::No, "ab"),
        (Is::No, "ab"),
    ];
    for (before, (after, line)) in COLUMNS.into_iter().zip(cells) {
        let bench = Bench::new();
        let claim = bench.bring(before);
        assert_eq!(bench.named(bench.queue.cancel(&'k')), before);
        assert_eq!((bench.is('k'), bench.line().as_str()), (after, line), "cancel of {before:?}");
        if let Some(claim) = claim {
            claim.done();
            assert_eq!(bench.is('k'), Is::Idle, "the rerun is gone");
        }
        bench.clock.advance(secs(1_000));
        assert_eq!(bench.line(), "", "no wake is left");
    }
}

const WISHES: [Is; 4] = [Is::No, Is::Soft, Is::At(T), Is::Now];

type End = fn(Claim<char>);
type EndingRow = (&'static str, End, [(Is, &'static str); 4]);

/// The table of endings by rerun: the new state of `k`, and the ready keys afterwards.
#[rustfmt::skip]
const ENDINGS: [EndingRow; 15] = [
    ("done", |claim| claim.done(), [(Is::Idle, "ab"), (Is::Ready, "abk"), (Is::Delayed(T), "ab"), (Is::Ready, "abk")]),
    ("requeue soon", |claim| claim.requeue_after(SOON),
        [(Is::Delayed(1_050), "ab"), (Is::Delayed(1_050), "ab"), (Is::Delayed(1_050), "ab"), (Is::Ready, "abk")]),
    ("requeue late", |claim| claim.requeue_after(LATE),
        [(Is::Delayed(1_500), "ab"), (Is::Delayed(1_500), "ab"), (Is::Delayed(T), "ab"), (Is::Ready, "abk")]),
    ("requeue now", |claim| claim.requeue_after(ZERO),
        [(Is::Ready, "abk"), (Is::Ready, "abk"), (Is::Ready, "abk"), (Is::Ready, "abk")]),
    ("requeue never", |claim| claim.requeue_after(Duration::MAX),
        [(Is::Delayed(NEVER), "ab"), (Is::Delayed(NEVER), "ab"), (Is::Delayed(T), "ab"), (Is::Ready, "abk")]),
    ("retry soon", |claim| claim.retry_after(SOON),
        [(Is::Delayed(1_050), "ab"), (Is::Delayed(1_050), "ab"), (Is::Delayed(1_050), "ab"), (Is::Ready, "abk")]),
    ("retry late", |claim| claim.retry_after(LATE),
        [(Is::Delayed(1_500), "ab"), (Is::Delayed(1_500), "ab"), (Is::Delayed(1_500), "ab"), (Is::Ready, "abk")]),
    ("retry at once", |claim| claim.retry_after(ZERO),
        [(Is::Ready, "abk"), (Is::Ready, "abk"), (Is::Ready, "abk"), (Is::Ready, "abk")]),
    ("retry never", |claim| claim.retry_after(Duration::MAX),
        [(Is::Delayed(NEVER), "ab"), (Is::Delayed(NEVER), "ab"), (Is::Delayed(NEVER), "ab"), (Is::Ready, "abk")]),
    // The queue's own backoff begins with 7 s.
    ("retry", |claim| claim.retry(),
        [(Is::Delayed(1_007), "ab"), (Is::Delayed(1_007), "ab"), (Is::Delayed(1_007), "ab"), (Is::Ready, "abk")]),
    ("drop", |claim| drop(claim),
        [(Is::Delayed(1_007), "ab"), (Is::Delayed(1_007), "ab"), (Is::Delayed(1_007), "ab"), (Is::Ready, "abk")]),
    ("unwind", |claim| unwind(claim),
        [(Is::Delayed(1_007), "ab"), (Is::Delayed(1_007), "ab"), (Is::Delayed(1_007), "ab"), (Is::Ready, "abk")]),
    ("cool down soon", |claim| claim.cool_down(SOON),
        [(Is::Idle, "ab"), (Is::Delayed(1_050), "ab"), (Is::Delayed(T), "ab"), (Is::Delayed(1_050), "ab")]),
    ("cool down late", |claim| claim.cool_down(LATE),
        [(Is::Idle, "ab"), (Is::Delayed(1_500), "ab"), (Is::Delayed(1_500), "ab"), (Is::Delayed(1_500), "ab")]),
    ("cool down not", |claim| claim.cool_down(ZERO),
        [(Is::Idle, "ab"), (Is::Ready, "abk"), (Is::Delayed(T), "ab"), (Is::Ready, "abk")]),
];

fn unwind(claim: Claim<char>) {
    let run = std::panic::AssertUnwindSafe(|| {
        let _claim = claim;
        std::panic::resume_unwind(Box::new("a reconciler's panic"));
    });
    std::panic::catch_unwind(run).unwrap_err();
}

fn bench_of_endings() -> Bench {
    Bench::with(|settings| settings.backoff(Exponential::new(secs(7), secs(100)).jitter(0.0)))
}

#[test]
fn every_ending_with_every_rerun() {
    for (name, end, cells) in ENDINGS {
        for (rerun, (after, line)) in WISHES.into_iter().zip(cells) {
            let bench = bench_of_endings();
            end(bench.bring(rerun).unwrap());
            assert_eq!(bench.is('k'), after, "{name} with {rerun:?}");
            assert_eq!(bench.queue.metrics().processing, 0);
            assert_eq!(bench.line(), line, "{name} with {rerun:?}");
        }
    }
}

/// The failed row on a queue with a floor: a rerun `now` waits for the floor.
#[test]
fn every_failed_ending_with_every_rerun_under_a_floor() {
    #[rustfmt::skip]
    let cells: [(Duration, [Is; 4]); 3] = [
        (SOON, [Is::Delayed(1_050), Is::Delayed(1_050), Is::Delayed(1_050), Is::Delayed(1_050)]),
        (LATE, [Is::Delayed(1_500), Is::Delayed(1_500), Is::Delayed(1_500), Is::Delayed(1_200)]),
        (ZERO, [Is::Ready, Is::Ready, Is::Ready, Is::Ready]),
    ];
    for (backoff, cells) in cells {
        for (rerun, after) in WISHES.into_iter().zip(cells) {
            let bench = Bench::with(|settings| settings.floor(secs(200)));
            bench.bring(rerun).unwrap().retry_after(backoff);
            assert_eq!(bench.is('k'), after, "{backoff:?} with {rerun:?}");
        }
    }
}

/// A rerun at a time that has passed.
#[test]
fn every_ending_with_a_rerun_for_a_time_past() {
    #[rustfmt::skip]
    let cells: [(End, Is); 6] = [
        (|claim| claim.done(), Is::Ready),
        (|claim| claim.requeue_after(SOON), Is::Ready),
        (|claim| claim.requeue_after(ZERO), Is::Ready),
        (|claim| claim.retry_after(SOON), Is::Delayed(1_450)),
        (|claim| claim.retry_after(ZERO), Is::Ready),
        (|claim| claim.cool_down(SOON), Is::Delayed(1_450)),
    ];
    for (end, after) in cells {
        let bench = Bench::new();
        let claim = bench.bring(Is::At(T)).unwrap();
        bench.clock.advance(secs(400));
        end(claim);
        assert_eq!(bench.is('k'), after);
    }
}

/// `done_and_next` is `done` and a dequeue. The ended key is put back first, so it may be the next.
#[test]
fn done_and_next_with_every_rerun() {
    let alone = [None, Some('k'), None, Some('k')];
    let left = [(Is::Idle, "b"), (Is::Ready, "bk"), (Is::Delayed(T), "b"), (Is::Ready, "bk")];
    for ((rerun, next), (after, line)) in WISHES.into_iter().zip(alone).zip(left) {
        let bench = Bench::new();
        let claim = bench.bring(rerun).unwrap();
        let others = bench.claims();
        match (claim.done_and_next(), next) {
            (Ok(claim), Some(key)) => assert_eq!(*claim, key, "{rerun:?}"),
            (Err(error), None) => assert_eq!(error, DequeueError::Empty, "{rerun:?}"),
            (result, _) => panic!("{result:?} with {rerun:?}"),
        }
        drop(others);

        let bench = Bench::new();
        let next = bench.bring(rerun).unwrap().done_and_next().unwrap();
        assert_eq!((*next, bench.is('k'), bench.line().as_str()), ('a', after, line), "{rerun:?}");
    }
}

/// A delay is never early, and its key becomes ready at the tail.
#[test]
fn a_delay_comes_at_its_nanosecond_and_at_the_tail() {
    let bench = Bench::new();
    bench.queue.enqueue_after('k', SOON);
    bench.clock.advance(secs(49) + Duration::from_nanos(999_999_999));
    assert_eq!(bench.is('k'), Is::Delayed(1_050));
    bench.queue.enqueue('a');
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.is('k'), Is::Ready);
    bench.queue.enqueue('b');
    assert_eq!(bench.line(), "akb");
    bench.clock.advance(secs(10_000));
    assert_eq!(bench.line(), "", "it does not fire twice");
}

#[test]
fn a_delay_without_end_never_fires() {
    let bench = Bench::new();
    bench.queue.enqueue_after('k', Duration::MAX);
    assert_eq!((bench.queue.metrics().delayed, bench.queue.next_due()), (1, None));
    bench.queue.enqueue_after('a', SOON);
    assert_eq!(bench.queue.next_due(), Some(bench.origin + secs(1_050)));
    bench.clock.advance(Duration::MAX);
    assert_eq!((bench.line().as_str(), bench.is('k')), ("a", Is::Delayed(NEVER)));
    assert_eq!(bench.queue.enqueue_now('k'), Queued);
    assert_eq!(bench.line(), "k");
}

/// A raise to another level does not restart the count.
#[test]
fn a_claim_knows_how_long_its_key_was_ready() {
    let bench = Bench::with(|settings| settings.timing(true));
    bench.queue.enqueue_after('k', secs(10));
    bench.clock.advance(secs(14));
    bench.queue.at(homeostat::Priority::High).enqueue('k');
    bench.clock.advance(secs(1));
    assert_eq!(bench.take().queued_for(), Some(secs(5)));
    assert_eq!(Bench::new().claim('k').queued_for(), None);
}
