//! The cases of client-go's `util/workqueue` (Apache-2.0), rewritten against this API. Each test names its source.
//!
//! Omitted: `default_rate_limiters_test.go`, because the backoff has unit tests, and `metrics_test.go`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use homeostat::queue::{DequeueError, DrainReport, TryDequeueError};
use homeostat::{Claim, Enqueue, EnqueueOutcome, Exponential, Shutdown, WorkQueue};

use crate::support::{Close, MS, SECOND, counts, held, held_builder, serve, take};

/// The two ways in which these cases end a queue.
const ENDS: [fn(&WorkQueue<usize>); 2] =
    [|queue| queue.shutdown(Shutdown::ServeReady), |queue| assert!(queue.drain(Duration::MAX).is_drained())];

const PRODUCERS: usize = 50;
const CONSUMERS: usize = 10;

/// `queue_test.go`: `TestBasic`.
#[test]
fn fifty_producers_and_ten_consumers_leave_no_key() {
    const LATE: usize = usize::MAX;
    for end in ENDS {
        let queue = WorkQueue::<usize>::new();
        let runs: Vec<AtomicUsize> = (0..PRODUCERS).map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|scope| {
            let _close = Close(&queue);
            for _ in 0..CONSUMERS {
                scope.spawn(|| {
                    while let Ok(claim) = queue.dequeue() {
                        assert_ne!(*claim, LATE);
                        runs[*claim].fetch_add(1, Ordering::Relaxed);
                        claim.done();
                    }
                });
            }
            thread::scope(|producers| {
                for key in 0..PRODUCERS {
                    let queue = &queue;
                    producers.spawn(move || {
                        for _ in 0..50 {
                            assert_ne!(queue.enqueue(key), EnqueueOutcome::Closed);
                        }
                    });
                }
            });
            end(&queue);
            assert_eq!(queue.enqueue(LATE), EnqueueOutcome::Closed);
            // The consumers serve the rest before they see the end.
            assert!(queue.drain(Duration::MAX).is_drained());
        });
        assert_eq!(counts(&queue), [0; 3]);
        for (key, runs) in runs.into_iter().enumerate() {
            let runs = runs.into_inner();
            assert!((1..=50).contains(&runs), "key {key} ran {runs} times");
        }
    }
}

/// `queue_test.go`: `TestAddWhileProcessing`.
#[test]
fn a_key_that_is_added_while_it_is_processed_runs_again() {
    for end in ENDS {
        let queue = WorkQueue::<usize>::new();
        let (admitted, runs) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            let _close = Close(&queue);
            for _ in 0..CONSUMERS {
                scope.spawn(|| {
                    let mut seen = HashMap::<usize, usize>::new();
                    while let Ok(claim) = queue.dequeue() {
                        runs.fetch_add(1, Ordering::Relaxed);
                        let seen = seen.entry(*claim).or_default();
                        *seen += 1;
                        if *seen < 2 && queue.enqueue(*claim) == EnqueueOutcome::Rerun {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                        claim.done();
                    }
                });
            }
            thread::scope(|producers| {
                for key in 0..PRODUCERS {
                    let (queue, admitted) = (&queue, &admitted);
                    producers.spawn(move || {
                        assert_eq!(queue.enqueue(key), EnqueueOutcome::Queued);
                        admitted.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            end(&queue);
            assert!(queue.drain(Duration::MAX).is_drained());
        });
        assert_eq!(counts(&queue), [0; 3]);
        assert_eq!(runs.into_inner(), admitted.into_inner());
    }
}

/// `queue_test.go`: `TestLen`.
#[test]
fn a_duplicate_does_not_lengthen_the_queue() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    assert_eq!(queue.len(), 1);
    queue.enqueue("bar");
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Merged);
    assert_eq!(queue.len(), 2);
}

/// `queue_test.go`: `TestReinsert`.
#[test]
fn a_key_added_during_its_run_is_ready_again_after_it() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    let first = take(&queue);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Rerun);
    assert_eq!(queue.len(), 0);
    first.done();
    assert_eq!(serve(&queue), ["foo"]);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `queue_test.go`: `TestCollapse`. There the queue calls `Touch` of its storage; here it returns an outcome.
#[test]
fn two_adds_collapse_into_one_run() {
    let queue = WorkQueue::new();
    assert_eq!(queue.enqueue("bar"), EnqueueOutcome::Queued);
    assert_eq!(queue.enqueue("bar"), EnqueueOutcome::Merged);
    assert_eq!(serve(&queue), ["bar"]);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `queue_test.go`: `TestCollapseWhileProcessing`.
#[test]
fn two_adds_during_a_run_are_one_run_after_it_and_no_other_worker_comes_before() {
    let (clock, queue) = held();
    queue.enqueue("foo");
    let first = take(&queue);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Rerun);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Rerun);
    thread::scope(|scope| {
        let _close = Close(&queue);
        let second = scope.spawn(|| queue.dequeue().map(Claim::done));
        // The worker sleeps although the key has a pending rerun, because another worker holds the key.
        clock.wait_for_sleepers(1);
        assert_eq!(queue.processing_count(), 1);
        first.done();
        assert_eq!(second.join().unwrap(), Ok(()));
        assert_eq!(queue.try_dequeue().unwrap_err(), TryDequeueError::Empty);
    });
    assert_eq!(counts(&queue), [0; 3]);
}

/// `queue_test.go`: `TestQueueDrainageUsingShutDownWithDrain`.
#[test]
fn a_drain_waits_for_the_keys_in_process() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    queue.enqueue("bar");
    let claims = [take(&queue), take(&queue)];
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.drain(Duration::MAX));
        // Blocks until the drain has shut the queue down.
        assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
        for claim in claims {
            assert!(!drain.is_finished());
            claim.done();
        }
        let report = drain.join().unwrap();
        assert!(report.is_drained() && report.dropped.is_empty(), "{report}");
    });
}

/// `queue_test.go`: `TestNoQueueDrainageUsingShutDown`.
#[test]
fn a_shutdown_does_not_wait_for_the_keys_in_process() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    queue.enqueue("bar");
    let claims = [take(&queue), take(&queue)];
    queue.shutdown(Shutdown::ServeReady);
    assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
    assert_eq!(queue.processing_count(), 2);
    claims.into_iter().for_each(Claim::done);
}

/// `queue_test.go`: `TestForceQueueShutdownUsingShutDown`. There a second shutdown ends a drain although keys are in
/// process; here only the timeout ends the drain, and the report names those keys.
#[test]
fn a_stricter_shutdown_ends_a_drain_of_ready_keys_and_a_timeout_ends_any_drain() {
    let (clock, queue) = held();
    for key in ["foo", "bar", "baz"] {
        queue.enqueue(key);
    }
    thread::scope(|scope| {
        let _close = Close(&queue);
        let drain = scope.spawn(|| queue.drain(Duration::MAX));
        clock.wait_for_sleepers(1);
        queue.shutdown(Shutdown::Discard);
        let report = drain.join().unwrap();
        assert!(report.is_drained());
        assert_eq!(report.dropped.iter().map(|(key, _)| *key).collect::<Vec<_>>(), ["foo", "bar", "baz"]);
    });

    let (clock, queue) = held();
    queue.enqueue("foo");
    let claim = take(&queue);
    thread::scope(|scope| {
        let _close = Close(&queue);
        let drain = scope.spawn(|| queue.drain(5 * SECOND));
        clock.wait_for_sleepers(1);
        queue.shutdown(Shutdown::Discard);
        clock.advance(5 * SECOND);
        let report = drain.join().unwrap();
        assert!(!report.is_drained());
        assert_eq!(report.processing, ["foo"]);
    });
    claim.done();
    assert!(queue.drain(Duration::ZERO).is_drained());
}

/// `queue_test.go`: `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem`.
#[test]
fn a_key_with_a_pending_rerun_is_served_during_a_drain() {
    let (clock, queue) = held();
    queue.enqueue("foo");
    let first = take(&queue);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Rerun);
    thread::scope(|scope| {
        let _close = Close(&queue);
        let drain = scope.spawn(|| queue.drain(Duration::MAX));
        clock.wait_for_sleepers(1);
        // The queue is not closed, because the end of the claim will make its key ready.
        assert_eq!(queue.try_dequeue().unwrap_err(), TryDequeueError::Empty);
        first.done();
        let again = take(&queue);
        assert!(!drain.is_finished());
        again.done();
        assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
        assert!(drain.join().unwrap().is_drained());
    });
}

/// `queue_test.go`: `TestGarbageCollection`.
#[test]
fn an_ended_key_is_not_retained() {
    let queue = WorkQueue::new();
    let watched = |key: &Arc<str>| -> Weak<str> { Arc::downgrade(key) };

    let key: Arc<str> = "big".into();
    let done = watched(&key);
    queue.enqueue(key);
    take(&queue).done();
    assert_eq!(done.strong_count(), 0);

    let key: Arc<str> = "big".into();
    let cancelled = watched(&key);
    queue.enqueue_after(Arc::clone(&key), SECOND);
    queue.cancel(&key);
    drop(key);
    assert_eq!(cancelled.strong_count(), 0);

    let key: Arc<str> = "big".into();
    let merged = watched(&key);
    queue.enqueue(Arc::clone(&key));
    queue.enqueue("big".into());
    queue.enqueue(key);
    assert_eq!(merged.strong_count(), 1);
    queue.shutdown(Shutdown::ServeReady);
    queue.enqueue(Arc::clone(&take(&queue)));
    drop(queue);
    assert_eq!(merged.strong_count(), 0);
}

/// `delaying_queue_test.go`: `TestSimpleQueue`.
#[test]
fn a_delay_fires_once_and_at_its_time() {
    let (clock, queue) = held();
    assert_eq!(queue.enqueue_after("foo", 50 * MS), EnqueueOutcome::Scheduled);
    clock.advance((50 * MS).saturating_sub(Duration::from_nanos(1)));
    assert_eq!(queue.len(), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(serve(&queue), ["foo"]);
    // There a heartbeat checks the heap every ten seconds.
    clock.advance(30 * SECOND);
    assert_eq!(counts(&queue), [0; 3]);
    assert_eq!(clock.next_alarm(), None);
}

/// `delaying_queue_test.go`: `TestDeduping`. There the earlier of two delays wins; here the first does, and
/// `reschedule` moves it.
#[test]
fn two_delays_of_a_key_fire_once() {
    let (clock, queue) = held();
    queue.enqueue_after("foo", 50 * MS);
    assert_eq!(queue.enqueue_after("foo", 70 * MS), EnqueueOutcome::Held);
    clock.advance(60 * MS);
    assert_eq!(serve(&queue), ["foo"]);
    clock.advance(20 * MS);
    assert_eq!(counts(&queue), [0; 3]);

    queue.enqueue_after("foo", 50 * MS);
    assert_eq!(queue.enqueue_after("foo", 30 * MS), EnqueueOutcome::Held);
    assert_eq!(queue.reschedule("foo", 30 * MS), EnqueueOutcome::Scheduled);
    clock.advance(30 * MS);
    assert_eq!(serve(&queue), ["foo"]);
    clock.advance(20 * MS);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `delaying_queue_test.go`: `TestAddTwoFireEarly`.
#[test]
fn delays_fire_in_the_order_of_their_deadlines_even_if_set_late() {
    let (clock, queue) = held();
    queue.enqueue_after("foo", SECOND);
    queue.enqueue_after("bar", 50 * MS);
    assert_eq!(queue.len(), 0);
    clock.advance(60 * MS);
    assert_eq!(serve(&queue), ["bar"]);
    queue.enqueue_after("baz", 2 * SECOND);
    clock.advance(SECOND);
    assert_eq!(serve(&queue), ["foo"]);
    clock.advance(SECOND);
    assert_eq!(serve(&queue), ["baz"]);
}

/// `delaying_queue_test.go`: `TestCopyShifting`.
#[test]
fn one_step_of_the_clock_brings_delays_in_due_order() {
    let (clock, queue) = held();
    queue.enqueue_after("foo", SECOND);
    queue.enqueue_after("bar", 500 * MS);
    queue.enqueue_after("baz", 250 * MS);
    assert_eq!(queue.len(), 0);
    clock.advance(2 * SECOND);
    assert_eq!(queue.len(), 3);
    assert_eq!(serve(&queue), ["baz", "bar", "foo"]);
}

/// `rate_limiting_queue_test.go`: `TestRateLimitingQueue`. There `Forget` resets the backoff; here the end of a run does.
#[test]
fn each_key_backs_off_by_its_own_failures_and_done_resets_them() {
    let (clock, builder) = held_builder::<&str>();
    let queue = builder.backoff(Exponential::new(MS, SECOND).jitter(0.0)).build();
    let fails = |key, backoff: u32| {
        queue.enqueue_now(key);
        take(&queue).retry();
        assert_eq!(queue.len(), 0);
        clock.advance((backoff * MS).saturating_sub(Duration::from_nanos(1)));
        assert_eq!(queue.len(), 0, "{key} came early");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(queue.len(), 1, "{key} did not come in time");
    };
    fails("one", 1);
    fails("one", 2);
    fails("one", 4);
    assert_eq!(take(&queue).failures(), 3);
    clock.advance(8 * MS);
    serve(&queue);
    fails("two", 1);
    assert_eq!(serve(&queue), ["two"]);
    fails("one", 1);
    assert_eq!(take(&queue).failures(), 1);
}

/// New: no peer passes this case. See kubernetes/kubernetes#141079.
#[test]
fn a_drain_does_not_return_while_a_key_is_ready() {
    let (clock, queue) = held();
    queue.enqueue("foo");
    queue.enqueue("bar");
    let first = take(&queue);
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.drain(SECOND));
        clock.wait_for_sleepers(1);
        first.done();
        // Only the timeout can end the drain now.
        assert_eq!(clock.sleepers(), 1);
        clock.advance(SECOND);
        let DrainReport { ready, processing, .. } = drain.join().unwrap();
        assert_eq!((ready, processing), (vec!["bar"], vec![]));
    });
    assert_eq!(serve(&queue), ["bar"]);
    assert!(queue.drain(Duration::ZERO).is_drained());
}
