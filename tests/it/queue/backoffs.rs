//! Delays of failed keys that are no backoffs: they wait for no floor, and their runs are not early.

use std::time::Duration;

use homeostat::queue::EnqueueMethod;
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
