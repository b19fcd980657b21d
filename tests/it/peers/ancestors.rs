//! Bugs of earlier queues, with a test for each.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use homeostat::queue::{DequeueError, DroppedRun, KeyState, PendingRerun, TryDequeueError};
use homeostat::{Enqueue, EnqueueOutcome, Priority, Reasons, Shutdown, WorkQueue};
use parking_lot::Mutex;

use crate::support::{Close, HOUR, MS, SECOND, counts, held, held_builder, serve, take};

/// openclarity `queue.go`: an enqueue that lands while its key is processed is dropped.
#[test]
fn an_enqueue_during_the_run_is_not_dropped() {
    let queue = WorkQueue::new();
    queue.enqueue("key");
    let claim = take(&queue);
    assert_eq!(queue.enqueue("key"), EnqueueOutcome::Rerun);
    assert_eq!(queue.state(&"key"), KeyState::Processing(PendingRerun::Soft));
    claim.done();
    assert_eq!(serve(&queue), ["key"]);
}

/// openclarity `queue.go`: a woken worker takes a key without a second check, and panics if another worker was faster.
#[test]
fn several_workers_never_panic() {
    const KEYS: usize = 4000;
    let queue = WorkQueue::<usize>::new();
    let taken = Mutex::new(HashSet::new());
    thread::scope(|scope| {
        let _close = Close(&queue);
        let workers = [(); 8].map(|()| {
            scope.spawn(|| {
                while let Ok(claim) = queue.dequeue() {
                    assert!(taken.lock().insert(*claim));
                    claim.done();
                }
            })
        });
        thread::scope(|producers| {
            for producer in 0..4 {
                let queue = &queue;
                producers.spawn(move || {
                    (producer..KEYS).step_by(4).for_each(|key| {
                        queue.enqueue(key);
                    });
                });
            }
        });
        assert!(queue.drain(Duration::MAX).is_drained());
        for worker in workers {
            assert!(worker.join().is_ok());
        }
    });
    assert_eq!(taken.into_inner().len(), KEYS);
}

/// openclarity `queue.go`: a worker can sleep while a key is ready.
#[test]
fn no_worker_sleeps_while_a_key_is_ready() {
    let queue = WorkQueue::<u32>::new();
    let served = WorkQueue::<u32>::new();
    thread::scope(|scope| {
        let _close = [Close(&queue), Close(&served)];
        for _ in 0..2 {
            scope.spawn(|| {
                while let Ok(claim) = queue.dequeue() {
                    served.enqueue(*claim);
                    claim.done();
                }
            });
        }
        // One key at a time: a worker that misses it sleeps for ever, and the test hangs.
        for key in 0..5000 {
            queue.enqueue(key);
            let claim = served.dequeue_timeout(30 * SECOND).unwrap();
            assert_eq!(*claim, key);
            claim.done();
        }
    });
}

/// client-go `delaying_queue.go`: an immediate add and a delayed one both fire.
#[test]
fn an_immediate_and_a_delayed_add_fire_once() {
    let (clock, queue) = held();
    queue.enqueue_after("key", SECOND);
    assert_eq!(queue.enqueue_now("key"), EnqueueOutcome::Queued);
    assert_eq!(serve(&queue), ["key"]);
    clock.advance(HOUR);
    assert_eq!(counts(&queue), [0; 3]);

    queue.enqueue("key");
    assert_eq!(queue.enqueue_after("key", SECOND), EnqueueOutcome::Merged);
    assert_eq!(serve(&queue), ["key"]);
    clock.advance(HOUR);
    assert_eq!(counts(&queue), [0; 3]);

    // The same holds for a delayed and an immediate request during a run.
    queue.enqueue("key");
    let claim = take(&queue);
    queue.enqueue_now("key");
    claim.requeue_after(SECOND);
    assert_eq!(serve(&queue), ["key"]);
    clock.advance(HOUR);
    assert_eq!(counts(&queue), [0; 3]);

    // The earlier of two delayed requests decides.
    queue.enqueue("key");
    let claim = take(&queue);
    queue.enqueue_after("key", SECOND);
    claim.requeue_after(60 * SECOND);
    clock.advance(SECOND);
    assert_eq!(serve(&queue), ["key"]);
    clock.advance(HOUR);
    assert_eq!(counts(&queue), [0; 3]);
}

/// client-go `queue.go`: a drain waits for processing keys only, and returns while keys are ready.
#[test]
fn a_drain_waits_for_ready_keys_too() {
    let (clock, queue) = held();
    queue.enqueue(1);
    queue.enqueue(2);
    let first = take(&queue);
    thread::scope(|scope| {
        let _close = Close(&queue);
        let drain = scope.spawn(|| queue.drain(Duration::MAX));
        clock.wait_for_sleepers(1);
        first.done();
        assert_eq!((clock.sleepers(), queue.len()), (1, 1));
        let second = take(&queue);
        assert_eq!((clock.sleepers(), queue.len()), (1, 0));
        second.done();
        assert!(drain.join().unwrap().is_drained());
    });
}

/// client-go `queue.go`: `Done` for a key that no worker has taken hands the key out twice. Here only a claim can end
/// a run, and ending it consumes it (a `compile_fail` example at `Claim` shows a second end). The drop of an ended
/// claim must not end the run again.
#[test]
fn an_ended_claim_does_not_end_again_when_it_drops() {
    let (_clock, queue) = held();
    queue.enqueue("key");
    let claim = take(&queue);
    queue.enqueue("key");
    claim.done();
    let again = take(&queue);
    // A second end of the first claim would have freed the key, or counted a failure.
    assert_eq!(again.failures(), 0);
    assert_eq!(counts(&queue), [0, 0, 1]);
    assert!(queue.try_dequeue().is_err());
    let Err(TryDequeueError::Empty) = again.done_and_next() else { panic!("the key came again") };
    assert_eq!(counts(&queue), [0; 3]);

    queue.enqueue("key");
    drop(take(&queue));
    assert_eq!(counts(&queue), [0, 1, 0]);
}

/// controller-runtime `priorityqueue.go`: the second `ShutDown` closes a closed channel and panics.
#[test]
fn a_second_or_milder_shutdown_changes_nothing() {
    let queue = WorkQueue::new();
    queue.enqueue("key");
    for mode in [Shutdown::ServeReady, Shutdown::ServeReady, Shutdown::RunDelayedNow] {
        queue.shutdown(mode);
        assert_eq!(queue.len(), 1);
    }
    assert!(format!("{queue:?}").contains("ServeReady"));
    for mode in [Shutdown::Discard, Shutdown::Discard, Shutdown::ServeReady] {
        queue.shutdown(mode);
        assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
        assert!(format!("{queue:?}").contains("Discard"));
    }
    assert_eq!(queue.drain(Duration::MAX).dropped, [("key", DroppedRun::Ready)]);
}

/// controller-runtime `priorityqueue.go`: `ShutDownWithDrain` does not drain, and drops ready keys.
#[test]
fn a_shutdown_with_serve_ready_serves_ready_keys() {
    let (_clock, queue) = held();
    for key in 0..3 {
        queue.enqueue(key);
    }
    queue.enqueue_after(3, SECOND);
    queue.shutdown(Shutdown::ServeReady);
    assert_eq!(serve(&queue), [0, 1, 2]);
    let report = queue.drain(Duration::ZERO);
    assert!(report.is_drained());
    assert_eq!(report.dropped, [(3, DroppedRun::Delayed)]);
}

/// controller-runtime `priorityqueue.go`: an add that ends a delay keeps the rank of the delayed add, and overtakes other keys.
#[test]
fn an_add_that_ends_a_delay_goes_to_the_tail() {
    let (_clock, queue) = held();
    queue.enqueue_after("old", HOUR);
    queue.enqueue("b");
    queue.enqueue("c");
    assert_eq!(queue.enqueue_now("old"), EnqueueOutcome::Queued);
    assert_eq!(serve(&queue), ["b", "c", "old"]);
}

/// controller-runtime `internal/controller/controller.go`: a key keeps its number of failures after an error that is
/// not retried; kubernetes-sigs/controller-runtime#392, kubernetes/kubernetes#138743: the numbers leak. Here each end
/// of a run without a retry is `done`, which resets the number, even if the key's record stays.
#[test]
fn a_count_of_failures_does_not_outlive_the_end_of_its_runs() {
    let (clock, queue) = held();
    let fail_twice = || {
        queue.enqueue("key");
        for failures in [0, 1] {
            let claim = take(&queue);
            assert_eq!(claim.failures(), failures);
            claim.retry();
            clock.advance(2 * SECOND);
        }
        let claim = take(&queue);
        assert_eq!(claim.failures(), 2);
        claim
    };
    fail_twice().done();
    let claim = fail_twice();
    queue.enqueue("key");
    claim.done();
    assert_eq!(take(&queue).failures(), 0);
    queue.cancel(&"key");

    fail_twice().requeue_after(SECOND);
    clock.advance(SECOND);
    assert_eq!(take(&queue).failures(), 0);
    queue.cancel(&"key");

    fail_twice().cool_down(SECOND);
    queue.enqueue("key");
    clock.advance(SECOND);
    assert_eq!(take(&queue).failures(), 0);
    queue.cancel(&"key");

    // A cancelled retry resets the count too.
    fail_twice().retry();
    queue.cancel(&"key");
    assert!(!queue.contains(&"key"));
    queue.enqueue("key");
    assert_eq!(take(&queue).failures(), 0);
}

/// kube-rs `scheduler.rs`: requests for running keys are an unordered set, which is scanned from the front.
#[test]
fn pending_reruns_come_in_the_order_in_which_their_runs_end() {
    let queue = WorkQueue::new();
    let keys: Vec<u32> = (0..100).collect();
    for &key in &keys {
        queue.enqueue(key);
    }
    let claims: Vec<_> = keys.iter().map(|_| take(&queue)).collect();
    for &key in keys.iter().rev() {
        queue.enqueue(key);
    }
    for claim in claims {
        claim.done();
    }
    assert_eq!(serve(&queue), keys);
}

/// kube-rs `scheduler.rs`: a debounce without a limit delays a key for as long as events come.
#[test]
fn a_debounce_has_a_cap() {
    let (clock, queue) = held();
    let mut waited = Duration::ZERO;
    while queue.is_empty() {
        queue.enqueue_debounced("key", 100 * MS, SECOND);
        clock.advance(60 * MS);
        waited += 60 * MS;
        assert!(waited <= SECOND + 60 * MS, "still hidden after {waited:?}");
    }
    assert!(waited >= SECOND, "it came after {waited:?}");
    assert_eq!(serve(&queue), ["key"]);
}

/// easykube `queue.py`: each event resets the attempts of its key, so a key with many events never backs off.
#[test]
fn no_event_makes_a_key_forget_its_backoff() {
    let (clock, builder) = held_builder();
    let queue = builder.floor(100 * MS).build();
    queue.enqueue("key");
    take(&queue).retry();
    let due = clock.now() + SECOND;
    for _ in 0..10 {
        assert_eq!(queue.enqueue("key"), EnqueueOutcome::Held);
        assert_eq!(queue.enqueue_if_absent("key"), EnqueueOutcome::Ignored);
        assert_eq!(queue.at(Priority::High).because(Reasons::EVENT).enqueue_after("key", MS), EnqueueOutcome::Held);
        assert_eq!(queue.state(&"key"), KeyState::Delayed(Some(due)));
    }
    clock.advance(SECOND);
    let claim = take(&queue);
    assert_eq!(claim.failures(), 1);
    // An event during the run does not reset them either, so the next delay is the second one, 2 s.
    assert_eq!(queue.enqueue("key"), EnqueueOutcome::Rerun);
    claim.retry();
    assert_eq!(queue.state(&"key"), KeyState::Delayed(Some(clock.now() + 2 * SECOND)));
    // An immediate request runs after the floor, and does not change the count.
    assert_eq!(queue.enqueue_now("key"), EnqueueOutcome::Scheduled);
    assert_eq!(queue.state(&"key"), KeyState::Delayed(Some(clock.now() + 100 * MS)));
    clock.advance(100 * MS);
    let early = take(&queue);
    assert_eq!(early.failures(), 2);
    early.retry();
    assert_eq!(queue.state(&"key"), KeyState::Delayed(Some(clock.now() + 2 * SECOND)));
}

/// kubernetes/kubernetes#133560: a delay that cannot be cancelled.
#[test]
fn a_delay_can_be_cancelled() {
    let (clock, queue) = held();
    queue.enqueue_after("key", SECOND);
    assert!(matches!(queue.cancel(&"key"), KeyState::Delayed(Some(_))));
    clock.advance(HOUR);
    assert_eq!(counts(&queue), [0; 3]);
}

/// kubernetes-sigs/controller-runtime#3496: keys of low priority starve.
#[test]
fn a_low_priority_level_does_not_starve() {
    let queue = WorkQueue::new();
    queue.at(Priority::Low).enqueue(0);
    for key in 1.. {
        queue.at(Priority::High).enqueue(key);
        let claim = take(&queue);
        if *claim == 0 {
            break;
        }
        assert!(key <= homeostat::queue::STARVATION_BOUND, "passed over {key} times");
        claim.done();
    }
}
