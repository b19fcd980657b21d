//! No lost wakeup, no double claim, no consumer asleep on work.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use loom::thread;

use super::{Busy, Fixed, Queue, Seen, explore, queue};
use crate::base::clock::ManualClock;
use crate::base::sync::atomic::AtomicBool;
use crate::base::time::Nanos;
use crate::queue::claim::BUSY;
use crate::queue::{Claim, DequeueError, Enqueue, EnqueueOutcome, KeyState, PendingRerun, Shutdown, WorkQueue};

/// Starts a consumer that takes one key and keeps its claim.
fn taker(queue: &Queue) -> thread::JoinHandle<Claim<u8>> {
    let queue = queue.clone();
    thread::spawn(move || queue.dequeue().unwrap())
}

/// Notes how many consumers are asleep.
fn note_sleepers(seen: &Seen, clock: &ManualClock) {
    seen.note(match clock.sleepers() {
        0 => "none asleep",
        1 => "one asleep",
        _ => "both asleep",
    });
}

#[test]
fn a_consumer_that_goes_to_sleep_sees_the_key_that_comes() {
    explore(None, &["none asleep", "one asleep"], |seen| {
        let (clock, queue) = queue();
        let consumer = taker(&queue);
        note_sleepers(seen, &clock);
        assert_eq!(queue.enqueue(1), EnqueueOutcome::Queued);
        consumer.join().unwrap().done();
        assert!(!queue.contains(&1));
        assert_eq!(clock.sleepers(), 0);
    });
}

/// Uses the system clock, because consumers sleep at once on a held clock.
#[test]
fn a_consumer_that_looks_again_before_it_sleeps_sees_the_key_that_comes() {
    explore(None, &["not there yet", "looking", "asleep"], |seen| {
        let queue: Queue = WorkQueue::builder().hasher(Fixed::default()).build();
        // As if this many keys had been taken.
        let busy = 0_usize.wrapping_sub(BUSY);
        queue.shared.locked.lock().taken_at_wait = busy;
        let consumer = taker(&queue);
        {
            let locked = queue.shared.locked.lock();
            seen.note(match (locked.taken_at_wait == busy, locked.consumers.asleep()) {
                (true, _) => "not there yet",
                (false, 0) => "looking",
                (false, _) => "asleep",
            });
        }
        assert_eq!(queue.enqueue(1), EnqueueOutcome::Queued);
        consumer.join().unwrap().done();
        assert!(!queue.contains(&1));
    });
}

/// Two consumers serve a key that is enqueued twice. The runs do not overlap, and one starts after the second request.
fn one_key_asked_for_twice(next: fn(Claim<u8>) -> Option<Claim<u8>>) {
    explore(4, &["queued", "merged", "rerun", "ended while open"], move |seen| {
        let (_clock, queue) = queue();
        let open = Arc::new(AtomicBool::new(true));
        let busy = Busy::new();
        let requested = Arc::new(AtomicUsize::new(0));
        let served = Arc::new(AtomicUsize::new(0));
        let consumers = [(); 2].map(|()| {
            let (queue, busy) = (queue.clone(), busy.clone());
            let (requested, served) = (Arc::clone(&requested), Arc::clone(&served));
            let (open, seen) = (Arc::clone(&open), Arc::clone(seen));
            thread::spawn(move || {
                while let Ok(claim) = queue.dequeue() {
                    let mut claim = Some(claim);
                    while let Some(run) = claim {
                        served.fetch_max(requested.load(SeqCst), SeqCst);
                        busy.section();
                        let asked_again = queue.state(&1) == KeyState::Processing(PendingRerun::Soft);
                        claim = next(run);
                        if asked_again && open.load(SeqCst) {
                            seen.note("ended while open");
                        }
                    }
                }
            })
        });
        for request in 1..=2 {
            requested.store(request, SeqCst);
            let outcome = queue.enqueue(1);
            if request == 2 {
                seen.note(match outcome {
                    EnqueueOutcome::Queued => "queued",
                    EnqueueOutcome::Merged => "merged",
                    EnqueueOutcome::Rerun => "rerun",
                    other => panic!("{other}"),
                });
            }
        }
        open.store(false, SeqCst);
        queue.shutdown(Shutdown::ServeReady);
        for consumer in consumers {
            consumer.join().unwrap();
        }
        assert_eq!(served.load(SeqCst), 2, "a request was followed by no run");
        assert!(!queue.contains(&1));
    });
}

#[test]
fn one_of_two_consumers_runs_a_key_and_a_request_during_the_run_is_served() {
    one_key_asked_for_twice(|claim| {
        claim.done();
        None
    });
}

#[test]
fn a_request_during_a_run_is_served_if_the_consumer_takes_the_next_key_at_once() {
    one_key_asked_for_twice(|claim| claim.done_and_next().ok());
}

#[test]
fn two_keys_reach_two_consumers() {
    explore(3, &["none asleep", "one asleep", "both asleep"], |seen| {
        let (clock, queue) = queue();
        let consumers = [taker(&queue), taker(&queue)];
        note_sleepers(seen, &clock);
        queue.enqueue(1);
        queue.enqueue(2);
        let [one, other] = consumers.map(|consumer| consumer.join().unwrap());
        assert_ne!(*one, *other);
        one.done();
        other.done();
    });
}

#[test]
fn a_batch_of_two_keys_reaches_two_consumers() {
    explore(3, &["none asleep", "one asleep", "both asleep"], |seen| {
        let (clock, queue) = queue();
        let consumers = [taker(&queue), taker(&queue)];
        note_sleepers(seen, &clock);
        assert_eq!(
            queue
                .request_all(&mut [1, 2].into_iter(), crate::queue::EnqueueMethod::Enqueue.into())
                .of(EnqueueOutcome::Queued),
            2
        );
        let [one, other] = consumers.map(|consumer| consumer.join().unwrap());
        assert_ne!(*one, *other);
        one.done();
        other.done();
    });
}

#[test]
fn keys_from_two_producers_reach_two_consumers() {
    explore(3, &["none asleep", "one asleep", "both asleep"], |seen| {
        let (clock, queue) = queue();
        let consumers = [taker(&queue), taker(&queue)];
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.enqueue(2))
        };
        note_sleepers(seen, &clock);
        queue.enqueue(1);
        assert_eq!(producer.join().unwrap(), EnqueueOutcome::Queued);
        let [one, other] = consumers.map(|consumer| consumer.join().unwrap());
        assert_ne!(*one, *other);
        one.done();
        other.done();
    });
}

#[test]
fn taking_a_key_without_sleeping_leaves_no_consumer_asleep_beside_a_ready_key() {
    explore(3, &["barged in", "came too delay"], |seen| {
        let (_clock, queue) = queue();
        let consumers = [taker(&queue), taker(&queue)];
        queue.enqueue(1);
        match queue.try_dequeue() {
            Ok(claim) => {
                seen.note("barged in");
                // Ready again, for the consumer that woke up without a key.
                claim.requeue_after(Duration::ZERO);
            }
            Err(error) => {
                seen.note("came too delay");
                assert_eq!(error, DequeueError::Empty);
            }
        }
        queue.enqueue(2);
        let [one, other] = consumers.map(|consumer| consumer.join().unwrap());
        assert_ne!(*one, *other);
        one.done();
        other.done();
    });
}

#[test]
fn done_and_next_leaves_no_consumer_asleep_beside_a_ready_key() {
    explore(4, &["took another", "took the same", "took none"], |seen| {
        let (_clock, queue) = queue();
        let chain = {
            let (queue, seen) = (queue.clone(), Arc::clone(seen));
            thread::spawn(move || {
                let claim = queue.dequeue().unwrap();
                let first = *claim;
                let next = claim.done_and_next();
                seen.note(match &next {
                    Ok(claim) if **claim == first => "took the same",
                    Ok(_) => "took another",
                    Err(_) => "took none",
                });
                next
            })
        };
        // At most two runs go to the chain, so one is left for this consumer.
        let consumer = taker(&queue);
        queue.enqueue(1);
        queue.enqueue(1);
        queue.enqueue(2);
        queue.enqueue(3);
        consumer.join().unwrap().done();
        drop(chain.join().unwrap());
    });
}

/// One of two consumers stops at any moment, even while a key's wakeup is under way. Either consumer sleeps first in
/// some execution.
#[test]
fn a_stopping_consumer_passes_on_the_wakeup_of_a_key() {
    explore(4, &["stopped", "took a key", "both asleep", "one asleep", "none asleep"], |seen| {
        let (clock, queue) = queue();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = {
            let (queue, stop, seen) = (queue.clone(), Arc::clone(&stop), Arc::clone(seen));
            thread::spawn(move || match queue.shared.dequeue(Nanos::NEVER, || stop.load(SeqCst)) {
                Ok(claim) => {
                    seen.note("took a key");
                    queue.enqueue(2);
                    claim.done();
                }
                Err(no_claim) => {
                    seen.note("stopped");
                    assert!(matches!(no_claim, DequeueError::Empty));
                }
            })
        };
        let other = taker(&queue);
        note_sleepers(seen, &clock);
        queue.enqueue(1);
        stop.store(true, SeqCst);
        // No wake: only the wakeup passed on by the stopped consumer can reach the other.
        other.join().unwrap().done();
        queue.shared.wake_all();
        stopped.join().unwrap();
    });
}

#[test]
fn a_wake_stops_a_consumer_and_loses_no_key() {
    explore(3, &["stopped", "took a key"], |seen| {
        let (_clock, queue) = queue();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = {
            let (queue, stop) = (queue.clone(), Arc::clone(&stop));
            thread::spawn(move || queue.shared.dequeue(Nanos::NEVER, || stop.load(SeqCst)).map(|claim| *claim))
        };
        let other = taker(&queue);
        let waker = {
            let shared = Arc::clone(&queue.shared);
            thread::spawn(move || {
                stop.store(true, SeqCst);
                shared.wake_all();
            })
        };
        queue.enqueue(1);
        waker.join().unwrap();
        if let Ok(key) = stopped.join().unwrap() {
            // The claim ended as failed: the key backs off, then the other consumer gets it.
            seen.note("took a key");
            queue.enqueue_now(key);
        } else {
            seen.note("stopped");
        }
        other.join().unwrap().done();
    });
}

#[test]
fn a_wake_stops_every_consumer() {
    explore(4, &["none asleep", "one asleep", "both asleep"], |seen| {
        let (clock, queue) = queue();
        let stop = Arc::new(AtomicBool::new(false));
        let consumers = [(); 2].map(|()| {
            let (shared, stop) = (Arc::clone(&queue.shared), Arc::clone(&stop));
            thread::spawn(move || shared.dequeue(Nanos::NEVER, || stop.load(SeqCst)).map(|claim| *claim))
        });
        note_sleepers(seen, &clock);
        stop.store(true, SeqCst);
        queue.shared.wake_all();
        for consumer in consumers {
            assert!(matches!(consumer.join().unwrap(), Err(DequeueError::Empty)));
        }
    });
}
