//! Keys with a `Clone` that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use homeostat::queue::{DequeueError, DroppedRun};
use homeostat::{Claim, Enqueue, Shutdown, WorkQueue};

use super::{Key, Op, Traps, ids, panics};
use crate::support::{Close, SECOND, counts, held, serve, take};

type Dequeue = fn(&WorkQueue<Key>);

#[test]
fn a_clone_that_panics_reaches_the_consumer_and_delays_no_other_key() {
    let dequeues: [Dequeue; 4] = [
        |queue| drop(queue.try_dequeue()),
        |queue| drop(queue.dequeue()),
        |queue| drop(queue.dequeue_timeout(Duration::ZERO)),
        |queue| drop(queue.dequeue_timeout(Duration::MAX)),
    ];
    for dequeue in dequeues {
        let traps = Traps::new();
        let (clock, queue) = held();
        traps.arm(Op::Clone, 1);
        for key in traps.keys(1..4) {
            queue.enqueue(key);
        }
        assert_eq!(panics(|| dequeue(&queue)), "Clone of 1");
        // It backs off like a failed key.
        assert_eq!(counts(&queue), [2, 1, 0]);
        assert_eq!(ids(&serve(&queue)), [2, 3]);
        clock.advance(SECOND);
        assert_eq!(panics(|| dequeue(&queue)), "Clone of 1");
        clock.advance(SECOND);
        assert_eq!(counts(&queue), [0, 1, 0]);
        traps.disarm();
        clock.advance(SECOND);
        let claim = take(&queue);
        assert_eq!(claim.failures(), 2);
        claim.done();
        assert_eq!(counts(&queue), [0; 3]);
        traps.close(queue);
    }
}

#[test]
fn a_clone_that_panics_in_done_and_next_ends_the_claim() {
    let traps = Traps::new();
    let (clock, queue) = held();
    for key in traps.keys(1..4) {
        queue.enqueue(key);
    }
    let claim = take(&queue);
    traps.arm(Op::Clone, 2);
    assert_eq!(panics(|| claim.done_and_next()), "Clone of 2");
    assert_eq!(counts(&queue), [1, 1, 0]);
    assert_eq!(ids(&serve(&queue)), [3]);
    traps.disarm();
    clock.advance(SECOND);
    assert_eq!(ids(&serve(&queue)), [2]);
    traps.close(queue);
}

#[test]
fn a_consumer_that_a_clone_stops_passes_its_wakeup_on() {
    let traps = Traps::new();
    let (clock, queue) = held::<Key>();
    traps.arm(Op::Clone, 1);
    thread::scope(|scope| {
        let _close = Close(&queue);
        let consumers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut texts = Vec::new();
                loop {
                    match catch_unwind(AssertUnwindSafe(|| queue.dequeue().map(Claim::done))) {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return texts,
                        Err(_) => texts.push("panicked"),
                    }
                }
            })
        });
        clock.wait_for_sleepers(2);
        for key in traps.keys(1..4) {
            queue.enqueue(key);
        }
        clock.wait_for_sleepers(2);
        assert_eq!(counts(&queue), [0, 1, 0]);
        queue.shutdown(Shutdown::ServeReady);
        let texts: Vec<_> = consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect();
        assert_eq!(texts, ["panicked"]);
    });
    traps.close(queue);
}

/// The report names a dropped rerun by a clone of its key.
#[test]
fn a_clone_that_panics_at_shutdown_does_not_keep_the_queue_open() {
    for mode in [Shutdown::ServeReady, Shutdown::Discard] {
        let traps = Traps::new();
        let (_clock, queue) = held();
        for key in traps.keys(1..4) {
            queue.enqueue(key);
        }
        let claims = [take(&queue), take(&queue), take(&queue)];
        for key in traps.keys(1..4) {
            queue.enqueue_after(key, SECOND);
        }
        traps.arm(Op::Clone, 2);
        assert_eq!(panics(|| queue.shutdown(mode)), "Clone of 2", "{mode:?}");
        assert_eq!(queue.try_dequeue().unwrap_err(), DequeueError::Closed);
        for claim in claims {
            claim.done();
        }
        let report = queue.drain(Duration::ZERO);
        assert!(report.is_drained());
        // The report names the other key.
        let dropped: Vec<_> = report.dropped.iter().map(|(key, wake)| (key.0.id, *wake)).collect();
        assert_eq!(dropped, [(1, DroppedRun::PendingRerun), (3, DroppedRun::PendingRerun)]);
        drop(report);
        traps.close(queue);
    }
}

#[test]
fn a_clone_that_panics_after_shutdown_drops_its_key_from_the_line() {
    let traps = Traps::new();
    let queue = WorkQueue::new();
    for key in traps.keys(1..3) {
        queue.enqueue(key);
    }
    queue.shutdown(Shutdown::ServeReady);
    traps.arm(Op::Clone, 1);
    assert_eq!(panics(|| queue.try_dequeue()), "Clone of 1");
    assert_eq!(ids(&serve(&queue)), [2]);
    assert_eq!(queue.try_dequeue().unwrap_err(), DequeueError::Closed);
    // A report would clone the key.
    assert_eq!(panics(|| queue.drain(Duration::MAX)), "Clone of 1");
    traps.disarm();
    let report = queue.drain(Duration::MAX);
    assert!(report.is_drained());
    assert_eq!((report.dropped[0].0.0.id, report.dropped[0].1), (1, DroppedRun::Retry));
    drop(report);
    traps.close(queue);
}

#[test]
fn a_clone_that_panics_in_the_report_of_a_drain_leaves_the_queue_serving() {
    let traps = Traps::new();
    let (_clock, queue) = held();
    for key in traps.keys(1..5) {
        queue.enqueue(key);
    }
    let claim = take(&queue);
    for id in [1, 3] {
        traps.arm(Op::Clone, id);
        assert_eq!(panics(|| queue.drain(Duration::ZERO)), format!("Clone of {id}"));
        traps.disarm();
    }
    assert_eq!(counts(&queue), [3, 0, 1]);
    let report = queue.drain(Duration::ZERO);
    assert_eq!((ids(&report.ready), ids(&report.processing)), (vec![2, 3, 4], vec![1]));
    drop(report);
    claim.done();
    assert_eq!(ids(&serve(&queue)), [2, 3, 4]);
    traps.close(queue);
}

#[test]
fn the_last_handle_closes_the_queue_although_a_clone_panics() {
    let traps = Traps::new();
    let queue = WorkQueue::new();
    queue.enqueue(traps.key(1));
    // The timer thread runs, and must end.
    queue.enqueue_after(traps.key(2), Duration::from_secs(3600));
    let claim = take(&queue);
    queue.enqueue_after(traps.key(1), SECOND);
    traps.arm(Op::Clone, 1);
    drop(queue);
    traps.disarm();
    claim.done();
    traps.close(WorkQueue::new());
}
