//! The limits of durations and reasons: the longest, zero, and one too many.

use std::thread;
use std::time::Duration;

use homeostat::queue::{DequeueError, DroppedRun, KeyState, PendingRerun};
use homeostat::{Claim, Enqueue, EnqueueOutcome, Exponential, ManualClock, Reasons, Shutdown, WorkQueue};

use crate::support::{Close, HOUR, SECOND, counts, held, held_builder, serve, take};
use crate::until::until;

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Advances the clock until no alarm is left.
fn run_out(clock: &ManualClock) {
    clock.advance(CENTURY);
    clock.advance(Duration::MAX);
    clock.advance(Duration::MAX);
}

type Act = (&'static str, fn(&WorkQueue<u32>));

/// Calls that delay key 1 forever, from idle or at the end of a run.
const FOR_EVER: [Act; 8] = [
    ("enqueue_after", |queue| {
        queue.enqueue_after(1, Duration::MAX);
    }),
    ("reschedule", |queue| {
        queue.reschedule(1, Duration::MAX);
    }),
    ("reschedule of a ready key", |queue| {
        queue.enqueue(1);
        queue.reschedule(1, Duration::MAX);
    }),
    ("enqueue_debounced", |queue| {
        queue.enqueue_debounced(1, Duration::MAX, Duration::MAX);
    }),
    ("requeue_after", |queue| {
        queue.enqueue(1);
        take(queue).requeue_after(Duration::MAX);
    }),
    ("retry_after", |queue| {
        queue.enqueue(1);
        take(queue).retry_after(Duration::MAX);
    }),
    ("a rerun for later", |queue| {
        queue.enqueue(1);
        let claim = take(queue);
        queue.enqueue_after(1, Duration::MAX);
        assert_eq!(queue.state(&1), KeyState::Processing(PendingRerun::At(None)));
        claim.done();
    }),
    ("a cool-down", |queue| {
        queue.enqueue(1);
        take(queue).cool_down(Duration::MAX);
        queue.enqueue(1);
    }),
];

#[test]
fn the_longest_delay_never_fires() {
    for (place, act) in FOR_EVER {
        let (clock, queue) = held();
        act(&queue);
        assert_eq!(queue.state(&1), KeyState::Delayed(None), "{place}");
        assert_eq!(queue.next_due(), None, "{place}");
        queue.enqueue_after(2, HOUR);
        clock.advance(HOUR);
        assert_eq!(serve(&queue), [2], "{place}");
        run_out(&clock);
        assert_eq!(counts(&queue), [0, 1, 0], "{place}");
    }
}

#[test]
fn the_longest_delay_never_fires_on_the_system_clock() {
    for (place, act) in FOR_EVER {
        let queue = WorkQueue::new();
        act(&queue);
        assert_eq!(queue.state(&1), KeyState::Delayed(None), "{place}");
        queue.enqueue_after(2, Duration::from_micros(200));
        assert_eq!(queue.dequeue().map(Claim::done), Ok(()), "{place}");
        assert_eq!(counts(&queue), [0, 1, 0], "{place}");
    }
}

#[test]
fn a_key_delayed_forever_can_be_enqueued_cancelled_and_shut_down() {
    for (place, act) in FOR_EVER {
        let cooling = place == "a cool-down";
        let (_clock, queue) = held();
        act(&queue);
        // Only a cool-down delays this method.
        let outcome = if cooling { EnqueueOutcome::Held } else { EnqueueOutcome::Queued };
        assert_eq!(queue.enqueue_now(1), outcome, "{place}");
        queue.cancel(&1);
        assert_eq!(counts(&queue), [0; 3], "{place}");

        let (_clock, queue) = held();
        act(&queue);
        queue.shutdown(Shutdown::ServeReady);
        assert_eq!(queue.drain(Duration::ZERO).dropped, [(1, DroppedRun::Delayed)], "{place}");

        let (_clock, queue) = held();
        act(&queue);
        queue.shutdown(Shutdown::RunDelayedNow);
        assert_eq!(serve(&queue), [1], "{place}");
    }
}

#[test]
fn a_delay_of_zero_is_none() {
    let (_clock, queue) = held();
    assert_eq!(queue.enqueue_after(1, Duration::ZERO), EnqueueOutcome::Queued);
    assert_eq!(queue.reschedule(2, Duration::ZERO), EnqueueOutcome::Queued);
    assert_eq!(queue.enqueue_debounced(3, Duration::ZERO, HOUR), EnqueueOutcome::Queued);
    assert_eq!(queue.enqueue_debounced(4, HOUR, Duration::ZERO), EnqueueOutcome::Queued);
    // The key moves to the tail, even if it is ready already.
    assert_eq!(queue.reschedule(1, Duration::ZERO), EnqueueOutcome::Queued);
    assert_eq!(serve(&queue), [2, 3, 4, 1]);

    let ends: [fn(Claim<u32>); 3] = [
        |claim| claim.requeue_after(Duration::ZERO),
        |claim| claim.retry_after(Duration::ZERO),
        |claim| claim.cool_down(Duration::ZERO),
    ];
    for (end, again) in ends.into_iter().zip([vec![2, 1], vec![2, 1], vec![2]]) {
        queue.enqueue(1);
        queue.enqueue(2);
        end(take(&queue));
        assert_eq!(serve(&queue), again);
    }
    let claim = {
        queue.enqueue(1);
        take(&queue)
    };
    assert_eq!(queue.enqueue_after(1, Duration::ZERO), EnqueueOutcome::Rerun);
    assert_eq!(queue.state(&1), KeyState::Processing(PendingRerun::Soft));
    claim.done();
    assert_eq!(serve(&queue), [1]);
    assert_eq!(counts(&queue), [0; 3]);
}

#[test]
fn a_backoff_of_zero_and_one_without_end() {
    let (clock, builder) = held_builder();
    let queue = builder.backoff(Exponential::new(Duration::ZERO, HOUR)).floor(Duration::MAX).build();
    queue.enqueue(1);
    take(&queue).retry();
    let claim = take(&queue);
    assert_eq!(claim.failures(), 1);
    claim.done();

    let (_, builder) = held_builder();
    let backoff = Exponential::new(Duration::MAX, Duration::MAX).factor(f64::INFINITY);
    let endless = builder.clock(clock.clock()).backoff(backoff).floor(Duration::MAX).build();
    endless.enqueue(1);
    drop(take(&endless));
    // The floor delays a request that would end a backoff, here forever.
    assert_eq!(endless.enqueue_now(1), EnqueueOutcome::Held);
    run_out(&clock);
    assert_eq!(counts(&endless), [0, 1, 0]);
}

#[test]
fn a_dequeue_with_the_longest_timeout_blocks_until_another_thread_wakes_it() {
    for on_system_clock in [false, true] {
        let (clock, held_queue) = held();
        let queue = if on_system_clock { WorkQueue::new() } else { held_queue };
        thread::scope(|scope| {
            let close = Close(&queue);
            let consumer = scope.spawn(|| {
                let first = queue.dequeue_timeout(Duration::MAX).map(Claim::done);
                (first, queue.dequeue_timeout(Duration::MAX).map(Claim::done))
            });
            if !on_system_clock {
                clock.wait_for_sleepers(1);
                run_out(&clock);
                assert_eq!((clock.sleepers(), clock.next_alarm()), (1, None));
            }
            queue.enqueue(1);
            until("the key is served", || !queue.contains(&1));
            drop(close);
            assert_eq!(consumer.join().unwrap(), (Ok(()), Err(DequeueError::Closed)));
        });
    }
}

#[test]
fn a_dequeue_with_a_timeout_of_zero_does_not_block() {
    for queue in [WorkQueue::new(), held().1] {
        assert_eq!(queue.dequeue_timeout(Duration::ZERO).unwrap_err(), DequeueError::Empty);
        queue.enqueue(1);
        assert_eq!(queue.dequeue_timeout(Duration::ZERO).map(Claim::done), Ok(()));
    }
}

#[test]
fn a_drain_with_the_longest_timeout_blocks_until_the_last_claim_ends() {
    for on_system_clock in [false, true] {
        let (clock, held_queue) = held();
        let queue = if on_system_clock { WorkQueue::new() } else { held_queue };
        queue.enqueue(1);
        let claim = take(&queue);
        thread::scope(|scope| {
            let drain = scope.spawn(|| queue.drain(Duration::MAX));
            assert_eq!(queue.dequeue().unwrap_err(), DequeueError::Closed);
            if !on_system_clock {
                clock.wait_for_sleepers(1);
                run_out(&clock);
                assert_eq!(clock.sleepers(), 1);
            }
            assert!(!drain.is_finished());
            claim.done();
            assert!(drain.join().unwrap().is_drained());
        });
    }
}

#[test]
fn a_drain_with_a_timeout_of_zero_reports_at_once_and_the_queue_still_serves() {
    for queue in [WorkQueue::new(), held().1] {
        for key in 1..4 {
            queue.enqueue(key);
        }
        let claim = take(&queue);
        let report = queue.drain(Duration::ZERO);
        assert!(!report.is_drained());
        assert_eq!((report.ready, report.processing), (vec![2, 3], vec![1]));
        assert_eq!(serve(&queue), [2, 3]);
        claim.done();
        assert_eq!(queue.try_dequeue().unwrap_err(), DequeueError::Closed);
    }
}

#[test]
fn a_program_has_five_reasons_of_its_own() {
    let mut all = Reasons::NONE;
    for n in 0..5 {
        assert!(!all.contains(Reasons::user(n)));
        all |= Reasons::user(n);
    }
    for n in [5, 16, u32::MAX] {
        let panic = std::panic::catch_unwind(|| Reasons::user(n)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"a program has five reasons of its own, 0 to 4"));
    }
}

#[test]
fn one_second_short_of_for_ever_is_a_time() {
    let (clock, queue) = held();
    queue.enqueue_after(1, CENTURY);
    assert!(matches!(queue.state(&1), KeyState::Delayed(Some(_))));
    clock.advance(CENTURY.saturating_sub(SECOND));
    assert_eq!(counts(&queue), [0, 1, 0]);
    clock.advance(SECOND);
    assert_eq!(serve(&queue), [1]);
}
