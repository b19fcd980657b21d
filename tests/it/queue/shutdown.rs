//! Shutdown and drain: the table of modes, the report, and the calls afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use homeostat::Shutdown::{Discard, RunDelayedNow, ServeReady};
use homeostat::queue::{DequeueError, DroppedRun, EnqueueMethod};
use homeostat::{Claim, Enqueue, EnqueueOutcome, ManualClock, Shutdown, WorkQueue};

use parking_lot::Mutex;

use super::letters::{Bench, Is, ZERO, secs};

/// Brings `k` alone into a state of the table's columns, with 1,300 s as its time.
fn alone(to: Is) -> (Bench, Option<Claim<char>>) {
    let bench = Bench::new();
    let claim = bench.bring(to);
    bench.queue.cancel(&'a');
    bench.queue.cancel(&'b');
    (bench, claim)
}

const COLUMNS: [Is; 7] = [Is::Idle, Is::Ready, Is::Delayed(1_300), Is::No, Is::Soft, Is::At(1_300), Is::Now];

/// The state afterwards, the dropped run, and the state after the end of the claim.
type Cell = (Is, Option<DroppedRun>, Is);

/// Mode × state.
#[rustfmt::skip]
const SHUTDOWNS: [(Shutdown, [Cell; 7]); 3] = [
    (RunDelayedNow, [
        (Is::Idle, None, Is::Idle), (Is::Ready, None, Is::Ready), (Is::Ready, None, Is::Ready),
        (Is::No, None, Is::Idle), (Is::Soft, None, Is::Ready), (Is::At(1_300), None, Is::Ready), (Is::Now, None, Is::Ready),
    ]),
    (ServeReady, [
        (Is::Idle, None, Is::Idle), (Is::Ready, None, Is::Ready), (Is::Idle, Some(DroppedRun::Delayed), Is::Idle),
        (Is::No, None, Is::Idle), (Is::Soft, None, Is::Ready), (Is::No, Some(DroppedRun::PendingRerun), Is::Idle), (Is::Now, None, Is::Ready),
    ]),
    (Discard, [
        (Is::Idle, None, Is::Idle), (Is::Idle, Some(DroppedRun::Ready), Is::Idle), (Is::Idle, Some(DroppedRun::Delayed), Is::Idle),
        (Is::No, None, Is::Idle), (Is::No, Some(DroppedRun::PendingRerun), Is::Idle), (Is::No, Some(DroppedRun::PendingRerun), Is::Idle),
        (Is::No, Some(DroppedRun::PendingRerun), Is::Idle),
    ]),
];

#[test]
fn every_shutdown_in_every_state() {
    for (mode, cells) in SHUTDOWNS {
        for (before, (after, dropped, done)) in COLUMNS.into_iter().zip(cells) {
            let (bench, claim) = alone(before);
            bench.queue.shutdown(mode);
            assert_eq!(bench.is('k'), after, "{mode:?} of {before:?}");

            let report = bench.queue.drain(ZERO);
            let dropped: Vec<_> = dropped.into_iter().map(|wake| ('k', wake)).collect();
            assert_eq!(report.dropped, dropped, "{mode:?} of {before:?}");
            assert_eq!(report.ready, if after == Is::Ready { vec!['k'] } else { vec![] });
            assert_eq!(report.processing, if claim.is_some() { vec!['k'] } else { vec![] });
            assert_eq!(report.is_drained(), after == Is::Idle);

            if let Some(claim) = claim {
                // Consumers wait for a pending rerun.
                let error = if done == Is::Ready { DequeueError::Empty } else { DequeueError::Closed };
                assert_eq!(bench.queue.try_dequeue().unwrap_err(), error, "{mode:?} of {before:?}");
                claim.done();
            }
            assert_eq!(bench.is('k'), done, "{mode:?} of {before:?}");
            assert_eq!(bench.line(), if done == Is::Ready { "k" } else { "" });
            assert_eq!(bench.queue.try_dequeue().unwrap_err(), DequeueError::Closed);
            let report = bench.queue.drain(Duration::MAX);
            assert_eq!((report.is_drained(), report.dropped), (true, dropped));
        }
    }
}

type End = fn(Claim<char>);

#[test]
fn a_requeue_or_retry_after_a_shutdown_is_not_run_and_reported() {
    #[rustfmt::skip]
    let cells: [(End, Option<DroppedRun>); 8] = [
        (|claim| claim.done(), None),
        (|claim| claim.cool_down(secs(9)), None),
        (|claim| claim.requeue_after(secs(9)), Some(DroppedRun::Requeue)),
        (|claim| claim.requeue_after(ZERO), Some(DroppedRun::Requeue)),
        (|claim| claim.retry_after(secs(9)), Some(DroppedRun::Retry)),
        (|claim| claim.retry_after(ZERO), Some(DroppedRun::Retry)),
        (|claim| claim.retry(), Some(DroppedRun::Retry)),
        (|claim| drop(claim), Some(DroppedRun::Retry)),
    ];
    for mode in [RunDelayedNow, ServeReady, Discard] {
        for (end, dropped) in cells {
            let (bench, claim) = alone(Is::No);
            bench.queue.shutdown(mode);
            end(claim.unwrap());
            let report = bench.queue.drain(Duration::MAX);
            assert_eq!(report.dropped, Vec::from_iter(dropped.map(|wake| ('k', wake))), "after {mode:?}");
            assert_eq!((bench.is('k'), bench.queue.metrics().delayed), (Is::Idle, 0));
        }
    }
}

/// A rerun that survives the shutdown is served after any ending, and no run is dropped.
#[test]
fn a_rerun_that_survives_wins_over_a_requeue_or_retry() {
    let ends: [End; 3] =
        [|claim| claim.requeue_after(secs(9)), |claim| claim.retry_after(secs(9)), |claim| claim.cool_down(secs(9))];
    for (mode, rerun) in [
        (RunDelayedNow, Is::Soft),
        (RunDelayedNow, Is::At(1_300)),
        (RunDelayedNow, Is::Now),
        (ServeReady, Is::Soft),
        (ServeReady, Is::Now),
    ] {
        for end in ends {
            let (bench, claim) = alone(rerun);
            bench.queue.shutdown(mode);
            end(claim.unwrap());
            assert_eq!(bench.line(), "k", "{mode:?} with {rerun:?}");
            assert_eq!(bench.queue.drain(Duration::MAX).dropped, []);
        }
    }
}

#[test]
fn delayed_keys_run_at_once_in_due_order() {
    let bench = Bench::new();
    for (key, delay) in [('c', secs(30)), ('z', Duration::MAX), ('a', secs(10)), ('d', secs(100_000)), ('b', secs(20))]
    {
        bench.queue.enqueue_after(key, delay);
    }
    bench.claim('x').cool_down(secs(10));
    bench.queue.enqueue('0');
    bench.queue.shutdown(RunDelayedNow);
    assert_eq!((bench.queue.metrics().delayed, bench.queue.next_due()), (0, None));
    assert_eq!(bench.line(), "0abcdz");
}

#[test]
fn a_shutdown_only_ever_becomes_stricter() {
    let modes = [RunDelayedNow, ServeReady, Discard];
    // The states of a ready key, a delayed key and a rerun after two shutdowns.
    #[rustfmt::skip]
    let cells = [
        [(Is::Ready, Is::Ready, Is::At(1_300)), (Is::Ready, Is::Ready, Is::No), (Is::Idle, Is::Idle, Is::No)],
        [(Is::Ready, Is::Idle, Is::No), (Is::Ready, Is::Idle, Is::No), (Is::Idle, Is::Idle, Is::No)],
        [(Is::Idle, Is::Idle, Is::No), (Is::Idle, Is::Idle, Is::No), (Is::Idle, Is::Idle, Is::No)],
    ];
    for (first, row) in modes.into_iter().zip(cells) {
        for (second, (ready, delayed, rerun)) in modes.into_iter().zip(row) {
            let bench = Bench::new();
            let _claim = bench.bring(Is::At(1_300));
            bench.queue.enqueue_after('d', secs(9));
            bench.queue.shutdown(first);
            bench.queue.shutdown(second);
            bench.queue.shutdown(first);
            let states = (bench.is('a'), bench.is('d'), bench.is('k'));
            assert_eq!(states, (ready, delayed, rerun), "{first:?} and {second:?}");
        }
    }
}

/// controller-runtime's priority queue panics at the second shutdown.
#[test]
fn a_second_shutdown_changes_nothing() {
    for mode in [RunDelayedNow, ServeReady, Discard] {
        let bench = Bench::new();
        let claim = bench.bring(Is::At(1_300));
        bench.queue.enqueue_after('d', secs(9));
        bench.queue.shutdown(mode);
        let report = bench.queue.drain(ZERO);
        bench.queue.shutdown(mode);
        assert_eq!(bench.queue.drain(ZERO), report, "nothing is reported twice");
        assert!(format!("{:?}", bench.queue).contains(&format!("{mode:?}")));
        drop(claim);
    }
}

#[test]
fn a_queue_that_is_shut_down_takes_no_more() {
    let methods = [
        EnqueueMethod::EnqueueIfAbsent,
        EnqueueMethod::Enqueue,
        EnqueueMethod::EnqueueNow,
        EnqueueMethod::EnqueueAfter(ZERO),
        EnqueueMethod::EnqueueAfter(secs(9)),
        EnqueueMethod::Reschedule(ZERO),
        EnqueueMethod::Reschedule(secs(9)),
        EnqueueMethod::EnqueueDebounced { quiet: secs(1), max_wait: secs(9) },
    ];
    for mode in [RunDelayedNow, ServeReady, Discard] {
        for state in COLUMNS {
            let (bench, claim) = alone(state);
            bench.queue.shutdown(mode);
            let before = bench.is('k');
            for method in methods {
                assert_eq!(bench.ask(method), EnqueueOutcome::Closed, "{method:?} of {state:?} after {mode:?}");
                let tally = bench.queue.request_all(&mut ['k', 'l'].into_iter(), method.into());
                assert_eq!((tally.of(EnqueueOutcome::Closed), tally.total()), (2, 2));
                assert_eq!((bench.is('k'), bench.is('l')), (before, Is::Idle));
            }
            drop(claim);
        }
        let queue = WorkQueue::<String>::new();
        queue.shutdown(mode);
        assert_eq!(queue.request_ref("k", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Closed);
    }
}

#[test]
fn cancel_works_after_a_shutdown() {
    for mode in [RunDelayedNow, ServeReady] {
        let (bench, _) = alone(Is::Ready);
        bench.queue.shutdown(mode);
        assert_eq!(bench.named(bench.queue.cancel(&'k')), Is::Ready);
        assert_eq!(bench.queue.try_dequeue().unwrap_err(), DequeueError::Closed);

        let (bench, claim) = alone(Is::Soft);
        bench.queue.shutdown(mode);
        assert_eq!(bench.named(bench.queue.cancel(&'k')), Is::Soft);
        assert_eq!(bench.queue.dequeue().unwrap_err(), DequeueError::Closed, "no rerun is left to wait for");
        claim.unwrap().done();
        assert_eq!(bench.is('k'), Is::Idle);
    }
    // A key that a shutdown made ready during its cool-down is forgotten too.
    let bench = Bench::new();
    let claim = bench.claim('k');
    bench.queue.enqueue('k');
    claim.cool_down(secs(9));
    bench.queue.shutdown(RunDelayedNow);
    assert_eq!(bench.named(bench.queue.cancel(&'k')), Is::Ready);
    assert!(bench.queue.drain(Duration::MAX).is_drained());
}

#[test]
fn every_dequeue_returns_closed_once_no_key_will_come() {
    let bench = Bench::new();
    bench.queue.shutdown(ServeReady);
    assert_eq!(bench.queue.dequeue().unwrap_err(), DequeueError::Closed);
    assert_eq!(bench.queue.try_dequeue().unwrap_err(), DequeueError::Closed);
    assert_eq!(bench.queue.dequeue_timeout(ZERO).unwrap_err(), DequeueError::Closed);
    assert_eq!(Bench::new().queue.dequeue_timeout(ZERO).unwrap_err(), DequeueError::Empty);
}

/// client-go's drain returned while keys were in line (kubernetes #141079).
#[test]
fn a_drain_is_never_early() {
    let bench = Bench::new();
    let claim = bench.claim('k');
    bench.queue.enqueue('a');
    bench.queue.enqueue('k'); // a dirty item
    let served = AtomicUsize::new(0);
    thread::scope(|threads| {
        let _watch = bench.watch();
        threads.spawn(|| {
            let report = bench.queue.drain(Duration::MAX);
            assert_eq!(served.load(Ordering::SeqCst), 3);
            assert!(report.is_drained());
            assert_eq!((report.ready, report.processing, report.dropped), (vec![], vec![], vec![]));
        });
        bench.clock.wait_for_sleepers(1);
        let end = |claim: Claim<char>| {
            assert_eq!(bench.clock.sleepers(), 1, "the drain sleeps until the last claim has ended");
            served.fetch_add(1, Ordering::SeqCst);
            claim.done();
        };
        let other = bench.take();
        assert_eq!(*other, 'a');
        // No key is ready yet, but one will be.
        end(other);
        end(claim);
        let again = bench.take();
        assert_eq!(*again, 'k');
        end(again);
    });
}

#[test]
fn a_drain_that_times_out_reports_the_keys_left_and_leaves_the_queue_serving() {
    let bench = Bench::new();
    let claim = bench.bring(Is::Soft).unwrap();
    bench.queue.enqueue_after('d', secs(50));
    thread::scope(|threads| {
        let _watch = bench.watch();
        let drain = threads.spawn(|| bench.queue.drain(secs(10)));
        bench.clock.wait_for_sleepers(1);
        bench.clock.advance(secs(10));
        let report = drain.join().unwrap();
        assert!(!report.is_drained());
        assert_eq!((report.ready, report.processing), (vec!['a', 'b'], vec!['k']));
        assert_eq!(report.dropped, [('d', DroppedRun::Delayed)]);
    });
    assert_eq!(bench.line(), "ab");
    claim.done();
    assert_eq!(bench.line(), "k");
    assert!(bench.queue.drain(Duration::MAX).is_drained());
}

#[test]
fn a_drain_keeps_the_mode_that_is_set() {
    let bench = Bench::new();
    bench.queue.enqueue_after('d', secs(50));
    bench.queue.shutdown(RunDelayedNow);
    let report = bench.queue.drain(ZERO);
    assert_eq!((report.ready, report.dropped), (vec!['d'], vec![]));
    assert_eq!(bench.line(), "d");
}

#[test]
fn a_stricter_shutdown_ends_a_drain() {
    let bench = Bench::new();
    bench.queue.enqueue('a');
    thread::scope(|threads| {
        let _watch = bench.watch();
        let drain = threads.spawn(|| bench.queue.drain(Duration::MAX));
        bench.clock.wait_for_sleepers(1);
        bench.queue.shutdown(Discard);
        let report = drain.join().unwrap();
        assert_eq!((report.is_drained(), report.dropped), (true, vec![('a', DroppedRun::Ready)]));
    });
}

#[test]
fn a_shutdown_wakes_consumers_that_will_get_no_key() {
    for mode in [RunDelayedNow, ServeReady, Discard] {
        let bench = Bench::new();
        thread::scope(|threads| {
            let _watch = bench.watch();
            let consumers = [(); 3].map(|()| threads.spawn(|| bench.queue.dequeue().map(|claim| *claim)));
            bench.clock.wait_for_sleepers(3);
            bench.queue.shutdown(mode);
            for consumer in consumers {
                assert_eq!(consumer.join().unwrap(), Err(DequeueError::Closed), "{mode:?}");
            }
        });
    }
}

/// A consumer waits for a rerun, and returns once no rerun will come.
#[test]
fn a_consumer_waits_for_a_pending_rerun() {
    let bench = Bench::new();
    let claim = bench.claim('k');
    bench.queue.enqueue('k');
    bench.queue.shutdown(ServeReady);
    thread::scope(|threads| {
        let _watch = bench.watch();
        let consumer = threads.spawn(|| bench.queue.dequeue().map(|claim| *claim));
        bench.clock.wait_for_sleepers(1);
        claim.done();
        assert_eq!(consumer.join().unwrap(), Ok('k'));
    });
}

#[test]
fn claims_may_outlive_all_handles() {
    let bench = Bench::new();
    let (first, second) = (bench.claim('k'), bench.claim('l'));
    bench.queue.enqueue('k');
    bench.queue.enqueue('a');
    let Bench { clock, queue, .. } = bench;
    drop(queue.clone());
    assert_eq!(queue.enqueue('b'), EnqueueOutcome::Queued, "a handle is left");
    drop(queue);
    let next = second.done_and_next().unwrap();
    assert_eq!(*next, 'a', "the last handle serves the ready keys");
    let next = next.done_and_next().unwrap();
    assert_eq!(*next, 'b');
    next.requeue_after(secs(1));
    let again = first.done_and_next().unwrap();
    assert_eq!(*again, 'k');
    clock.advance(secs(10));
    assert_eq!(again.done_and_next().unwrap_err(), DequeueError::Closed);
    assert_eq!(clock.next_alarm(), None);
}

/// The hook runs after each section that makes the first key ready, so it counts sections.
#[test]
fn a_shutdown_makes_a_bounded_number_of_keys_ready_per_section() {
    const KEYS: u32 = 5_000;
    const MOST: usize = 1_024;
    let clock = ManualClock::new();
    let serving = Arc::new(Mutex::new(None::<WorkQueue<u32>>));
    let batches = Arc::new(Mutex::new(Vec::new()));
    let queue = WorkQueue::builder()
        .clock(clock.clock())
        .on_ready({
            let (serving, batches) = (Arc::clone(&serving), Arc::clone(&batches));
            move || {
                let Some(queue) = serving.lock().clone() else { return };
                let mut batch = Vec::new();
                while let Ok(claim) = queue.try_dequeue() {
                    batch.push(*claim);
                    claim.done();
                }
                batches.lock().push(batch);
            }
        })
        .build();
    for key in 0..KEYS {
        queue.enqueue_after(key, secs(u64::from(KEYS - key)));
    }
    *serving.lock() = Some(queue.clone());
    queue.shutdown(RunDelayedNow);
    serving.lock().take();
    let batches = batches.lock();
    let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
    assert!(sizes.iter().all(|&size| size <= MOST), "{sizes:?}");
    assert!(batches.concat().into_iter().eq((0..KEYS).rev()), "each once, in due order");
    assert!(queue.drain(ZERO).is_drained());
}
