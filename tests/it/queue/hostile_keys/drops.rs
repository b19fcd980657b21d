//! Keys whose `Drop` panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::queue::{DequeueError, EnqueueMethod, EnqueueRequest, TryDequeueError};
use homeostat::{Claim, Enqueue, EnqueueOutcome, Shutdown, WorkQueue};

use super::{Key, Op, Traps, ids, on_the_timer, panics};
use crate::support::{MS, SECOND, counts, held, in_a_process_of_its_own, serve, take};

#[test]
fn a_drop_that_panics_reaches_who_enqueued_a_duplicate() {
    let traps = Traps::new();
    let queue = WorkQueue::new();
    queue.enqueue(traps.key(1));
    traps.arm(Op::Drop, 1);
    assert_eq!(panics(|| queue.enqueue(traps.key(1))), "Drop of 1");
    let claim = take(&queue);
    assert_eq!(panics(|| queue.enqueue(traps.key(1))), "Drop of 1");
    traps.disarm();
    // The request has been met nevertheless.
    claim.done();
    assert_eq!(ids(&serve(&queue)), [1]);
    queue.shutdown(Shutdown::ServeReady);
    traps.arm(Op::Drop, 1);
    assert_eq!(panics(|| queue.enqueue(traps.key(1))), "Drop of 1");
    traps.close(queue);
}

#[test]
fn drops_that_panic_in_a_batch_do_not_keep_the_rest_out() {
    in_a_process_of_its_own("queue::hostile_keys::drops::drops_that_panic_in_a_batch_do_not_keep_the_rest_out", || {
        let traps = Traps::new();
        let queue = WorkQueue::new();
        let request = EnqueueRequest::new(EnqueueMethod::Enqueue);
        queue.request_all(&mut traps.keys(0..4), request);
        for id in 0..4 {
            traps.arm(Op::Drop, id);
        }
        assert_eq!(panics(|| queue.request_all(&mut traps.keys(0..8), request)), "Drop of 0");
        traps.disarm();
        assert_eq!(ids(&serve(&queue)), (0..8).collect::<Vec<_>>());
        traps.close(queue);
    });
}

#[test]
fn a_drop_that_panics_at_the_end_of_a_claim_comes_after_the_end() {
    type End = (fn(Claim<Key>), [usize; 3]);
    let ends: [End; 6] = [
        (Claim::done, [1, 0, 0]),
        (|claim| claim.cool_down(SECOND), [1, 0, 0]),
        (|claim| claim.requeue_after(SECOND), [1, 1, 0]),
        (|claim| claim.retry(), [1, 1, 0]),
        (|claim| claim.retry_after(SECOND), [1, 1, 0]),
        (drop, [1, 1, 0]),
    ];
    for (end, left) in ends {
        let traps = Traps::new();
        let (clock, queue) = held();
        for key in traps.keys(1..3) {
            queue.enqueue(key);
        }
        let claim = take(&queue);
        traps.arm(Op::Drop, 1);
        assert_eq!(panics(|| end(claim)), "Drop of 1");
        assert_eq!(counts(&queue), left);
        assert_eq!(ids(&serve(&queue)), [2]);
        traps.disarm();
        clock.advance(SECOND);
        assert_eq!(serve(&queue).len(), left[1]);
        traps.close(queue);
    }
}

/// Three keys could be dropped while the first panic unwinds: the queue's copy, the claim's, and the next one's.
#[test]
fn drops_that_panic_as_the_next_key_is_taken_do_not_abort() {
    in_a_process_of_its_own(
        "queue::hostile_keys::drops::drops_that_panic_as_the_next_key_is_taken_do_not_abort",
        || {
            for hostile_clone in [false, true] {
                let traps = Traps::new();
                let (clock, queue) = held();
                for key in traps.keys(1..4) {
                    queue.enqueue(key);
                }
                let claim = take(&queue);
                for id in 1..4 {
                    traps.arm(Op::Drop, id);
                }
                if hostile_clone {
                    traps.arm(Op::Clone, 2);
                }
                let text = panics(|| claim.done_and_next());
                assert!(["Drop of 1", "Clone of 2"].contains(&&*text), "{text}");
                traps.disarm();
                // The claim of the next key was dropped with the panic, as a failed one.
                assert_eq!(counts(&queue), [1, 1, 0]);
                clock.advance(SECOND);
                assert_eq!(ids(&serve(&queue)), [3, 2]);
                traps.close(queue);
            }
        },
    );
}

#[test]
fn a_drop_that_panics_at_a_cancel_comes_after_it() {
    let traps = Traps::new();
    let (_clock, queue) = held();
    queue.enqueue(traps.key(1));
    queue.enqueue_after(traps.key(2), SECOND);
    for id in [1, 2] {
        traps.arm(Op::Drop, id);
        assert_eq!(panics(|| queue.cancel(&traps.probe(id))), format!("Drop of {id}"));
        assert!(!queue.contains(&traps.probe(id)));
    }
    assert_eq!(counts(&queue), [0; 3]);
    traps.close(queue);
}

/// A cool-down that ends while nothing is wanted drops its key on the thread that turns the wheel.
#[test]
fn a_drop_that_panics_at_an_expiry_is_logged_and_the_timer_goes_on() {
    in_a_process_of_its_own(
        "queue::hostile_keys::drops::a_drop_that_panics_at_an_expiry_is_logged_and_the_timer_goes_on",
        || {
            let logged = crate::support::record_log();
            for on_system_clock in [false, true] {
                let traps = Traps::new();
                let (clock, held_queue) = held();
                let queue = if on_system_clock { WorkQueue::new() } else { held_queue };
                let advancing = Arc::new(AtomicBool::new(false));
                let ((dropped, drops), expiring) = (unbounded(), Arc::clone(&advancing));
                *traps.on_drop.lock() = Some(Arc::new(move |id| {
                    if id < 3 && (expiring.load(Ordering::Relaxed) || on_the_timer()) {
                        dropped.send(id).unwrap();
                        panic!("Drop of {id}");
                    }
                }));
                for key in traps.keys(1..3) {
                    queue.enqueue(key);
                    take(&queue).cool_down(MS);
                }
                queue.enqueue_after(traps.key(3), 2 * MS);
                advancing.store(true, Ordering::Relaxed);
                clock.advance(2 * MS);
                // Blocks for the timer's thread; on the held clock it has happened.
                assert_eq!([drops.recv().unwrap(), drops.recv().unwrap()], [1, 2]);
                let claim = queue.dequeue().unwrap();
                assert_eq!(claim.0.id, 3);
                claim.done();
                assert_eq!(counts(&queue), [0; 3]);
                traps.close(queue);
                let texts = std::mem::take(&mut *logged.lock());
                let expected =
                    ["Drop of 1", "Drop of 2"].map(|panic| format!("ERROR the drop of a key panicked: {panic}"));
                assert_eq!(texts, expected);
            }
        },
    );
}

#[test]
fn drops_that_panic_at_shutdown_do_not_keep_the_queue_open() {
    in_a_process_of_its_own(
        "queue::hostile_keys::drops::drops_that_panic_at_shutdown_do_not_keep_the_queue_open",
        || {
            for mode in [Shutdown::RunDelayedNow, Shutdown::ServeReady, Shutdown::Discard] {
                let traps = Traps::new();
                let (_clock, queue) = held();
                for key in traps.keys(1..4) {
                    queue.enqueue(key);
                    take(&queue).cool_down(SECOND);
                }
                queue.enqueue(traps.key(9));
                for id in 1..4 {
                    traps.arm(Op::Drop, id);
                }
                assert!(panics(|| queue.shutdown(mode)).starts_with("Drop of"));
                traps.disarm();
                assert_eq!(queue.enqueue(traps.key(1)), EnqueueOutcome::Closed);
                let served = ids(&serve(&queue));
                assert_eq!(served, if mode == Shutdown::Discard { vec![] } else { vec![9] });
                assert_eq!(queue.try_dequeue().unwrap_err(), TryDequeueError::Closed);
                traps.close(queue);
            }
        },
    );
}

/// Ready, delayed, cooling, in process with and without a wish, and named by the report of a shutdown.
#[test]
fn a_queue_dropped_with_hostile_keys_in_every_state_does_not_abort() {
    in_a_process_of_its_own(
        "queue::hostile_keys::drops::a_queue_dropped_with_hostile_keys_in_every_state_does_not_abort",
        || {
            for shut_down_before in [None, Some(Shutdown::ServeReady), Some(Shutdown::Discard)] {
                for on_system_clock in [false, true] {
                    let traps = Traps::new();
                    let (_clock, held_queue) = held();
                    let queue = if on_system_clock { WorkQueue::new() } else { held_queue };
                    for key in traps.keys(0..10) {
                        queue.enqueue(key);
                    }
                    let claims = [take(&queue), take(&queue)];
                    take(&queue).cool_down(3600 * SECOND);
                    take(&queue).requeue_after(3600 * SECOND);
                    queue.enqueue_after(traps.key(0), 3600 * SECOND);
                    for id in 0..10 {
                        traps.arm(Op::Drop, id);
                    }
                    if let Some(mode) = shut_down_before {
                        let _ = catch_unwind(AssertUnwindSafe(|| queue.shutdown(mode)));
                    }
                    // What is dropped with the last handle has no caller to reach.
                    drop(queue);
                    for claim in claims {
                        assert!(panics(|| claim.done()).starts_with("Drop of"));
                    }
                    traps.close(WorkQueue::new());
                }
            }
        },
    );
}

#[test]
fn a_worker_that_panics_with_a_claim_leaves_its_key_backing_off() {
    let traps = Traps::new();
    let (clock, queue) = held();
    queue.enqueue(traps.key(1));
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let _claim = take(&queue);
            panic!("the worker");
        });
        assert!(worker.join().is_err());
    });
    assert_eq!(counts(&queue), [0, 1, 0]);
    clock.advance(SECOND);
    let claim = take(&queue);
    assert_eq!(claim.failures(), 1);
    claim.done();
    queue.shutdown(Shutdown::ServeReady);
    assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
    traps.close(queue);
}

/// A hook that panics as the timer's thread starts must not leave a queue whose delays never come.
#[test]
fn a_start_hook_that_panics_does_not_cost_the_timer() {
    let threads = homeostat::ThreadOptions::new().on_start(|name| panic!("the hook of {name}"));
    let queue = WorkQueue::builder().thread_options(threads).build();
    queue.enqueue_after(1, MS);
    assert_eq!(*queue.dequeue_timeout(Duration::from_secs(20)).unwrap(), 1);
}
