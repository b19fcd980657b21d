//! Delays of failed keys that are no backoffs: they wait for no floor, and their runs are not early.

use std::time::Duration;

use homeostat::queue::{EnqueueMethod, KeyState};
use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};

use crate::support::{HOUR, SECOND, held_builder, take};

/// The methods that end a delay at once, except a backoff under a floor.
const AT_ONCE: [EnqueueMethod; 4] = [
    EnqueueMethod::EnqueueNow,
    EnqueueMethod::EnqueueNowDebounced { quiet: Duration::ZERO, max_wait: Duration::ZERO },
    EnqueueMethod::EnqueueNowDebounced { quiet: Duration::ZERO, max_wait: HOUR },
    EnqueueMethod::EnqueueNowDebounced { quiet: HOUR, max_wait: Duration::ZERO },
];

/// Claims key 1, ends the claim as failed, and checks how many failures the claim knows.
#[track_caller]
fn fail(queue: &WorkQueue<u32>, backoff: Duration, failures: u32) {
    let claim = take(queue);
    assert_eq!((*claim, claim.failures()), (1, failures));
    claim.retry_after(backoff);
}

/// The first instant of a held clock is a time like any other.
#[test]
fn a_delay_after_a_backoff_of_zero_ends_at_once_and_the_next_failure_counts() {
    for start in [Duration::ZERO, SECOND] {
        for method in AT_ONCE {
            let (clock, builder) = held_builder();
            let queue = builder.floor(3 * SECOND).build();
            clock.advance(start);
            queue.enqueue(1);
            fail(&queue, Duration::ZERO, 0);
            assert_eq!(queue.reschedule(1, SECOND), EnqueueOutcome::Scheduled);
            assert_eq!(queue.request(1, method.into()), EnqueueOutcome::Queued, "{method:?} after {start:?}");
            fail(&queue, Duration::ZERO, 1);
            fail(&queue, Duration::ZERO, 2);
        }
    }
}

/// An event during the failed run makes the next run early, unless the interval lasts as long as the backoff.
#[test]
fn failures_count_if_the_minimum_interval_outlasts_the_backoff() {
    for (interval, counts) in [(1, 1), (3, 1), (4, 2), (9, 2)] {
        let (clock, builder) = held_builder();
        let queue = builder.min_interval(interval * SECOND).build();
        queue.enqueue(1);
        let claim = take(&queue);
        queue.enqueue_now(1);
        claim.retry_after(4 * SECOND);
        clock.advance(interval * SECOND);
        fail(&queue, SECOND, 1);
        clock.advance(9 * SECOND);
        assert_eq!(take(&queue).failures(), counts, "interval of {interval} s");
    }
}

#[test]
fn a_minimum_interval_that_outlasts_the_backoff_waits_for_no_floor() {
    for backoff in [Duration::ZERO, SECOND] {
        for method in AT_ONCE {
            let (clock, builder) = held_builder();
            let queue = builder.floor(5 * SECOND).min_interval(10 * SECOND).build();
            queue.enqueue(1);
            fail(&queue, backoff, 0);
            let end = clock.now() + 10 * SECOND;
            clock.advance(8 * SECOND);
            queue.reschedule(1, HOUR);
            assert_eq!(queue.request(1, method.into()), EnqueueOutcome::Scheduled, "{method:?} after {backoff:?}");
            assert_eq!(queue.state(&1), KeyState::Delayed(Some(end)), "{method:?} after {backoff:?}");
        }
    }
}
