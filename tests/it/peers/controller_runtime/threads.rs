//! The cases of controller-runtime's priority queue with threads that wait or race. See the module above.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use homeostat::queue::DequeueError;
use homeostat::{Claim, Enqueue, EnqueueOutcome, Priority, Shutdown, WorkQueue};
use parking_lot::Mutex;

use super::LANES;
use crate::support::{Close, HOUR, MS, SECOND, counts, held};

/// "returns many items". There the case guards against a panic during a walk of the tree.
#[test]
fn a_hundred_consumers_take_a_thousand_mixed_keys() {
    let queue: WorkQueue<usize> = WorkQueue::new();
    for round in 0..3 {
        for key in 0..1000 {
            // Some keys are delayed by up to a millisecond, the others are spread over all levels.
            match (key * 7 + round) % 100 {
                short @ 0..10 => {
                    let delay = Duration::from_micros(100 * u64::try_from(short).unwrap());
                    queue.enqueue_after(key, delay)
                }
                other => queue.at(LANES[other % 3]).enqueue(key),
            };
        }
        let seen = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let claim = queue.dequeue().unwrap();
                        assert!(seen.lock().insert(*claim), "{} twice", *claim);
                        claim.done();
                    }
                });
            }
        });
        assert_eq!(seen.into_inner().len(), 1000);
        assert_eq!(counts(&queue), [0; 3]);
    }
}

/// `TestItemIsOnlyReturnedAfterAfterHasPassed`.
#[test]
fn a_waiting_consumer_gets_a_delayed_key_at_its_time_and_no_sooner() {
    let (clock, queue) = held::<&str>();
    thread::scope(|scope| {
        let _close = Close(&queue);
        let consumer = scope.spawn(|| queue.dequeue().map(Claim::done));
        clock.wait_for_sleepers(1);
        queue.enqueue_after("foo", SECOND);
        clock.advance(SECOND.saturating_sub(Duration::from_nanos(1)));
        // No thread has woken the consumer.
        assert_eq!((clock.sleepers(), consumer.is_finished()), (1, false));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(consumer.join().unwrap(), Ok(()));
    });
}

/// `TestItemIsReturnedAsSoonAsPossible`.
#[test]
fn a_waiting_consumer_gets_a_key_at_once() {
    let (clock, queue) = held::<&str>();
    thread::scope(|scope| {
        let _close = Close(&queue);
        let consumer = scope.spawn(|| queue.dequeue().map(Claim::done));
        clock.wait_for_sleepers(1);
        queue.enqueue("foo");
        assert_eq!(consumer.join().unwrap(), Ok(()));
    });
    assert_eq!(counts(&queue), [0; 3]);
}

/// `TestWaitingItemIsReturnedRightAfterReadWithoutAfter`.
#[test]
fn an_enqueue_now_supersedes_a_delay() {
    let (clock, queue) = held::<&str>();
    thread::scope(|scope| {
        let _close = Close(&queue);
        let consumer = scope.spawn(|| queue.dequeue().map(Claim::done));
        clock.wait_for_sleepers(1);
        queue.enqueue_after("foo", 60 * SECOND);
        assert_eq!(clock.sleepers(), 1);
        assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Held);
        assert_eq!(clock.sleepers(), 1);
        assert_eq!(queue.enqueue_now("foo"), EnqueueOutcome::Queued);
        assert_eq!(consumer.join().unwrap(), Ok(()));
    });
    clock.advance(HOUR);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `TestMultipleItemsWithAfterAreReturnedInCorrectOrder`.
#[test]
fn a_waiting_consumer_gets_delayed_keys_in_due_order() {
    let (clock, queue) = held::<&str>();
    thread::scope(|scope| {
        let _close = Close(&queue);
        let consumer = scope.spawn(|| {
            [(); 2].map(|()| {
                let claim = queue.dequeue().unwrap();
                let key = *claim;
                claim.done();
                key
            })
        });
        clock.wait_for_sleepers(1);
        queue.enqueue_after("foo", SECOND);
        queue.enqueue_after("bar", 200 * MS);
        assert_eq!(clock.sleepers(), 1);
        clock.advance(SECOND);
        assert_eq!(consumer.join().unwrap(), ["bar", "foo"]);
    });
}

/// `TestGetFromPriorityQueueIsUnblockedOnShutdown`.
#[test]
fn a_shutdown_unblocks_waiting_consumers() {
    for mode in [Shutdown::RunDelayedNow, Shutdown::ServeReady, Shutdown::Discard] {
        let (clock, queue) = held::<&str>();
        thread::scope(|scope| {
            let consumers = [(); 3].map(|()| scope.spawn(|| queue.dequeue().map(drop)));
            clock.wait_for_sleepers(3);
            queue.shutdown(mode);
            for consumer in consumers {
                assert_eq!(consumer.join().unwrap(), Err(DequeueError));
            }
        });
    }
}

/// `TestPriorityQueueDoesNotDeadlockOnShutdownWhileHandingOutItems` (#3538).
#[test]
fn a_shutdown_during_enqueues_and_dequeues_ends_every_worker() {
    for round in 0..20 {
        let queue = WorkQueue::<usize>::new();
        let (gone, all_gone) = bounded::<()>(0);
        thread::scope(|scope| {
            for worker in 0..8_usize {
                let (queue, gone) = (&queue, gone.clone());
                scope.spawn(move || {
                    let _gone = gone;
                    for number in worker.. {
                        let level = LANES[number % 3];
                        queue.at(level).enqueue(number * 7 % 100);
                        match queue.dequeue() {
                            Ok(claim) => claim.done(),
                            Err(_) => return,
                        }
                    }
                });
            }
            drop(gone);
            for _ in 0..round {
                thread::yield_now();
            }
            queue.shutdown(Shutdown::Discard);
            // Only the end of the last worker closes the channel.
            assert_eq!(all_gone.recv_timeout(20 * SECOND), Err(RecvTimeoutError::Disconnected));
        });
        assert_eq!(counts(&queue), [0; 3]);
    }
}

/// `TestFuzzPriorityQueue`: no two workers hold one key, and no key comes at a lower level than requested.
#[test]
fn under_load_one_worker_holds_a_key_and_it_keeps_the_highest_requested_level() {
    const KEYS: usize = 20;
    #[derive(Default)]
    struct Known {
        held: bool,
        /// The highest requested levels of the next run and of the run after it.
        levels: [Option<Priority>; 2],
    }
    let queue = WorkQueue::<usize>::new();
    let table: Vec<Mutex<Known>> = (0..KEYS).map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        let _close = Close(&queue);
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(claim) = queue.dequeue() {
                    let mut known = table[*claim].lock();
                    assert!(!known.held, "{} is held twice", *claim);
                    assert!(Some(claim.priority()) >= known.levels[0], "{} in {:?}", *claim, claim.priority());
                    known.held = true;
                    drop(known);
                    thread::yield_now();
                    let mut known = table[*claim].lock();
                    *known = Known { held: false, levels: [known.levels[1], None] };
                    // The claim ends under the lock of the table, so the next worker finds the table up to date.
                    claim.done();
                }
            });
        }
        thread::scope(|producers| {
            for producer in 0..4 {
                let (queue, table) = (&queue, &table);
                producers.spawn(move || {
                    for number in (producer..20_000_usize).step_by(4) {
                        let (key, level) = (number * 13 % KEYS, LANES[number / 7 % 3]);
                        let mut known = table[key].lock();
                        let run = match queue.at(level).enqueue(key) {
                            EnqueueOutcome::Queued | EnqueueOutcome::Merged => 0,
                            EnqueueOutcome::Rerun => 1,
                            other => panic!("{other}"),
                        };
                        known.levels[run] = known.levels[run].max(Some(level));
                    }
                });
            }
        });
        assert!(queue.drain(Duration::MAX).is_drained());
    });
    assert_eq!(counts(&queue), [0; 3]);
}
