//! Shutdown, drain and the drop of the last handle, each racing other calls.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use loom::thread;

use super::{Busy, Fixed, Queue, SECOND, explore, queue};
use crate::base::clock::ManualClock;
use crate::base::time::Nanos;
use crate::queue::{
    Claim, DequeueError, DroppedRun, Enqueue, EnqueueOutcome, KeyState, PendingRerun, Shutdown, WorkQueue,
};

const MODES: [Shutdown; 3] = [Shutdown::RunDelayedNow, Shutdown::ServeReady, Shutdown::Discard];

/// Starts a consumer that serves until the queue is closed. It returns the number of keys served.
fn server(queue: &Queue) -> thread::JoinHandle<usize> {
    let queue = queue.clone();
    thread::spawn(move || {
        let mut served = 0;
        while let Ok(claim) = queue.dequeue() {
            served += 1;
            claim.done();
        }
        served
    })
}

#[test]
fn a_shutdown_wakes_all_blocked_consumers() {
    for mode in MODES {
        explore(5, &["none asleep", "both asleep"], move |seen| {
            let (clock, queue) = queue();
            let consumers = [server(&queue), server(&queue)];
            match clock.sleepers() {
                0 => seen.note("none asleep"),
                2 => seen.note("both asleep"),
                _ => {}
            }
            queue.shutdown(mode);
            for consumer in consumers {
                assert_eq!(consumer.join().unwrap(), 0);
            }
        });
    }
}

/// A shutdown races a request for an idle key: the request is refused, or the key is served or reported, but not both.
fn a_request_races_a_shutdown(mode: Shutdown, delay: Duration, outcomes: &[&'static str]) {
    explore(4, outcomes, move |seen| {
        let (clock, queue) = queue();
        let consumer = server(&queue);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.enqueue_after(1, delay))
        };
        queue.shutdown(mode);
        let (outcome, served) = (producer.join().unwrap(), consumer.join().unwrap());
        let report = queue.drain(Duration::ZERO);
        assert!(report.is_drained());
        match (outcome, served, &report.dropped[..]) {
            (EnqueueOutcome::Closed, 0, []) => seen.note("refused"),
            (EnqueueOutcome::Queued | EnqueueOutcome::Scheduled, 1, []) => seen.note("served"),
            (EnqueueOutcome::Queued, 0, [(1, DroppedRun::Ready)])
            | (EnqueueOutcome::Scheduled, 0, [(1, DroppedRun::Delayed)]) => seen.note("reported"),
            other => panic!("{mode:?}: {other:?}"),
        }
        assert_eq!(queue.enqueue(1), EnqueueOutcome::Closed);
        clock.advance(SECOND);
        assert!(!queue.contains(&1));
    });
}

#[test]
fn a_request_that_races_a_shutdown_is_refused_or_served_or_reported() {
    for (mode, outcomes) in [
        (Shutdown::RunDelayedNow, &["refused", "served"][..]),
        (Shutdown::ServeReady, &["refused", "served"]),
        (Shutdown::Discard, &["refused", "served", "reported"]),
    ] {
        a_request_races_a_shutdown(mode, Duration::ZERO, outcomes);
    }
}

#[test]
fn a_delay_that_races_a_shutdown_is_refused_or_served_or_reported() {
    for (mode, outcomes) in [
        (Shutdown::RunDelayedNow, &["refused", "served"][..]),
        (Shutdown::ServeReady, &["refused", "reported"]),
        (Shutdown::Discard, &["refused", "reported"]),
    ] {
        a_request_races_a_shutdown(mode, SECOND, outcomes);
    }
}

/// On a closed and empty queue, consumers wait for a claim with a pending rerun. The end of the rerun or of the claim
/// wakes them.
fn a_rerun_keeps_consumers_waiting(served: usize, end: fn(&Queue, Claim<u8>) -> Option<Claim<u8>>) {
    explore(4, &["none asleep", "both asleep"], move |seen| {
        let (clock, queue) = queue();
        queue.enqueue(1);
        let claim = queue.try_dequeue().unwrap();
        assert_eq!(queue.enqueue(1), EnqueueOutcome::Rerun);
        queue.shutdown(Shutdown::ServeReady);
        let consumers = [server(&queue), server(&queue)];
        match clock.sleepers() {
            0 => seen.note("none asleep"),
            2 => seen.note("both asleep"),
            _ => {}
        }
        let still_held = end(&queue, claim);
        let runs: usize = consumers.map(|consumer| consumer.join().unwrap()).iter().sum();
        assert_eq!(runs, served);
        drop(still_held);
        assert!(queue.drain(Duration::ZERO).is_drained());
    });
}

#[test]
fn a_rerun_after_shutdown_is_served_and_closes_the_queue() {
    a_rerun_keeps_consumers_waiting(1, |_, claim| {
        claim.done();
        None
    });
    a_rerun_keeps_consumers_waiting(1, |_, claim| {
        claim.retry_after(SECOND);
        None
    });
    a_rerun_keeps_consumers_waiting(1, |_, claim| {
        drop(claim);
        None
    });
}

#[test]
fn a_claim_that_takes_its_own_key_again_closes_the_queue() {
    // The next run may go to a consumer or to this thread. Either end closes the queue.
    explore(4, &["asleep", "awake"], |seen| {
        let (clock, queue) = queue();
        queue.enqueue(1);
        let claim = queue.try_dequeue().unwrap();
        queue.enqueue(1);
        queue.shutdown(Shutdown::ServeReady);
        let consumer = server(&queue);
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        let again = claim.done_and_next().unwrap();
        // The claim has no pending rerun, so no consumer waits for its end.
        assert_eq!(consumer.join().unwrap(), 0);
        again.done();
    });
}

#[test]
fn cancelling_the_last_rerun_closes_the_queue_before_its_claim_ends() {
    a_rerun_keeps_consumers_waiting(0, |queue, claim| {
        assert_eq!(queue.cancel(&1), KeyState::Processing(PendingRerun::Soft));
        Some(claim)
    });
    a_rerun_keeps_consumers_waiting(0, |queue, claim| {
        queue.shutdown(Shutdown::Discard);
        Some(claim)
    });
}

#[test]
fn a_drain_returns_when_the_last_run_has_ended_and_no_sooner() {
    explore(4, &["refused", "queued", "rerun", "waited", "did not wait"], |seen| {
        let (clock, queue) = queue();
        let (busy, requested) = (Busy::new(), Arc::new(AtomicUsize::new(1)));
        let (served, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        queue.enqueue(1);
        let worker = {
            let (queue, seen) = (queue.clone(), Arc::clone(seen));
            let (busy, requested) = (busy.clone(), Arc::clone(&requested));
            let (served, ended) = (Arc::clone(&served), Arc::clone(&ended));
            thread::spawn(move || {
                while let Ok(claim) = queue.dequeue() {
                    served.fetch_max(requested.load(SeqCst), SeqCst);
                    busy.section();
                    seen.note(if clock.sleepers() == 0 { "did not wait" } else { "waited" });
                    ended.fetch_add(1, SeqCst);
                    claim.done();
                }
            })
        };
        let producer = {
            let (queue, requested) = (queue.clone(), Arc::clone(&requested));
            thread::spawn(move || {
                requested.store(2, SeqCst);
                queue.enqueue(1)
            })
        };
        assert!(queue.drain(Duration::MAX).is_drained());
        // No further run follows, so the counts are final.
        let (served, ended) = (served.load(SeqCst), ended.load(SeqCst));
        assert!(ended >= 1);
        match producer.join().unwrap() {
            EnqueueOutcome::Closed => seen.note("refused"),
            EnqueueOutcome::Queued | EnqueueOutcome::Merged => {
                seen.note("queued");
                assert_eq!(served, 2);
            }
            EnqueueOutcome::Rerun => {
                seen.note("rerun");
                assert_eq!((served, ended), (2, 2));
            }
            other => panic!("{other}"),
        }
        worker.join().unwrap();
    });
}

#[test]
fn a_drain_ends_by_a_stricter_shutdown() {
    explore(5, &["asleep", "awake"], |seen| {
        let (clock, queue) = queue();
        queue.enqueue(1);
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain(Duration::MAX))
        };
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        queue.shutdown(Shutdown::Discard);
        let report = drainer.join().unwrap();
        assert!(report.is_drained());
        assert_eq!(report.dropped, [(1, DroppedRun::Ready)]);
    });
}

#[test]
fn a_drain_that_times_out_reports_the_keys_left() {
    explore(5, &["in line", "drained"], |seen| {
        let (clock, queue) = queue();
        queue.enqueue(1);
        let claim = queue.try_dequeue().unwrap();
        let advancer = thread::spawn(move || clock.advance(SECOND));
        let ender = thread::spawn(move || claim.done());
        let report = queue.shared.drain(Nanos::ZERO.after(SECOND));
        seen.note(if report.is_drained() { "drained" } else { "in line" });
        assert_eq!(report.processing.len(), usize::from(!report.is_drained()));
        advancer.join().unwrap();
        ender.join().unwrap();
        assert!(queue.drain(Duration::MAX).is_drained());
    });
}

/// The last handle drops while a claim is active and a consumer waits. The consumer wakes, the claim ends, and neither
/// the claim nor the clock keeps the queue.
fn the_last_handle_drops(end: fn(Claim<u8>)) {
    explore(4, &["asleep", "awake"], move |seen| {
        let (clock, queue) = queue();
        queue.enqueue(1);
        let claim = queue.try_dequeue().unwrap();
        let consumer = {
            let shared = Arc::clone(&queue.shared);
            thread::spawn(move || shared.dequeue(Nanos::NEVER, || false).map(|claim| *claim))
        };
        let ender = thread::spawn(move || end(claim));
        let left = Arc::downgrade(&queue.shared);
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        drop(queue);
        assert!(matches!(consumer.join().unwrap(), Err(DequeueError::Closed)));
        ender.join().unwrap();
        assert!(left.upgrade().is_none(), "something keeps the queue");
        assert_eq!(clock.next_alarm(), None);
    });
}

#[test]
fn the_last_handle_closes_the_queue_under_a_claim_and_a_consumer() {
    the_last_handle_drops(Claim::done);
    the_last_handle_drops(|claim| claim.requeue_after(SECOND));
    the_last_handle_drops(|claim| claim.cool_down(SECOND));
    the_last_handle_drops(drop);
}

#[test]
fn only_the_last_of_two_handles_dropped_at_once_closes_the_queue() {
    explore(None, &["asleep", "awake"], |seen| {
        let (clock, queue) = queue();
        let clone = queue.clone();
        let consumer = {
            let shared = Arc::clone(&queue.shared);
            thread::spawn(move || {
                let claim = shared.dequeue(Nanos::NEVER, || false).unwrap();
                claim.done();
                shared.dequeue(Nanos::NEVER, || false).map(|claim| *claim)
            })
        };
        let dropper = thread::spawn(move || {
            // The queue is open because this handle exists.
            assert_eq!(clone.enqueue(1), EnqueueOutcome::Queued);
        });
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        drop(queue);
        dropper.join().unwrap();
        assert!(matches!(consumer.join().unwrap(), Err(DequeueError::Closed)));
    });
}

/// Returns a queue that shuts down one record per section.
fn sweeping_queue() -> (ManualClock, Queue) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).hasher(Fixed::default()).sweep(1).build();
    (clock, queue)
}

/// A drain must not replace a mode that was set after it looked.
#[test]
fn a_drain_keeps_a_mode_that_was_set_before_its_own() {
    explore(4, &["the shutdown", "the drain"], |seen| {
        let (_clock, queue) = sweeping_queue();
        let drainer = {
            let queue = queue.clone();
            thread::spawn(move || queue.drain(Duration::ZERO))
        };
        queue.shutdown(Shutdown::RunDelayedNow);
        let mode = queue.shared.locked.lock().records.mode();
        seen.note(if mode == Some(Shutdown::RunDelayedNow) { "the shutdown" } else { "the drain" });
        let _ = drainer.join().unwrap();
        assert_eq!(queue.shared.locked.lock().records.mode(), mode);
    });
}

#[test]
fn no_key_is_served_once_a_request_was_refused_by_a_shutdown_that_discards() {
    explore(4, &["refused", "accepted"], |seen| {
        let (_clock, queue) = sweeping_queue();
        queue.enqueue(1);
        queue.enqueue(2);
        let closer = {
            let queue = queue.clone();
            thread::spawn(move || queue.shutdown(Shutdown::Discard))
        };
        if queue.enqueue(1) == EnqueueOutcome::Closed {
            seen.note("refused");
            assert!(queue.try_dequeue().is_err());
        } else {
            seen.note("accepted");
        }
        closer.join().unwrap();
        let report = queue.drain(Duration::MAX);
        assert_eq!(report.dropped, [(1, DroppedRun::Ready), (2, DroppedRun::Ready)]);
    });
}

/// The consumer may run between two sections, when the queue is not over.
#[test]
fn a_consumer_gets_every_key_that_a_shutdown_makes_ready() {
    explore(3, &["asleep", "awake"], |seen| {
        let (clock, queue) = sweeping_queue();
        queue.enqueue_after(1, SECOND);
        queue.enqueue_after(2, SECOND * 2);
        let consumer = {
            let shared = Arc::clone(&queue.shared);
            thread::spawn(move || {
                let mut served = Vec::new();
                while let Ok(claim) = shared.dequeue(Nanos::NEVER, || false) {
                    served.push(*claim);
                    claim.done();
                }
                served
            })
        };
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        queue.shutdown(Shutdown::RunDelayedNow);
        assert_eq!(consumer.join().unwrap(), [1, 2]);
    });
}

#[test]
fn a_rerun_is_reported_if_its_claim_ends_during_a_shutdown() {
    explore(4, &["dropped as a rerun", "dropped as a delay"], |seen| {
        let (_clock, queue) = sweeping_queue();
        queue.enqueue(1);
        let claim = queue.try_dequeue().unwrap();
        queue.enqueue_after(2, SECOND);
        queue.enqueue_after(1, SECOND);
        let ender = thread::spawn(move || claim.done());
        queue.shutdown(Shutdown::ServeReady);
        ender.join().unwrap();
        let mut dropped = queue.drain(Duration::MAX).dropped;
        dropped.sort_unstable_by_key(|(key, _)| *key);
        let first = dropped.remove(0);
        seen.note(if first.1 == DroppedRun::PendingRerun { "dropped as a rerun" } else { "dropped as a delay" });
        assert!([(1, DroppedRun::PendingRerun), (1, DroppedRun::Delayed)].contains(&first));
        assert_eq!(dropped, [(2, DroppedRun::Delayed)]);
    });
}

/// The second shutdown helps the first one, so both return when the report is complete.
#[test]
fn two_shutdowns_at_once_both_return_when_every_run_is_dropped() {
    explore(3, &["drained"], |seen| {
        let (_clock, queue) = sweeping_queue();
        queue.enqueue_after(1, SECOND);
        queue.enqueue_after(2, SECOND);
        let closer = {
            let queue = queue.clone();
            thread::spawn(move || queue.shutdown(Shutdown::ServeReady))
        };
        let report = queue.drain(Duration::ZERO);
        assert!(report.is_drained());
        assert_eq!(report.dropped.len(), 2);
        seen.note("drained");
        closer.join().unwrap();
    });
}
