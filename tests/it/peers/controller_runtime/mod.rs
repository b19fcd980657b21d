//! The cases of controller-runtime's `pkg/controller/priorityqueue/priorityqueue_test.go` (Apache-2.0), rewritten
//! against this API. Each test names its source by the title of the case or by the name of the test.
//!
//! There a priority is any number; here there are three levels. Tests of metrics there are tests of counts here.

mod threads;

use std::time::Duration;

use homeostat::queue::{DequeueError, KeyState, STARVATION_BOUND};
use homeostat::{Enqueue, EnqueueOutcome, Exponential, Priority, Shutdown, WorkQueue};

use crate::support::{HOUR, MS, SECOND, counts, held, held_builder, serve, take};

const LANES: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

/// "returns an item", "returns items in order".
#[test]
fn keys_come_out_in_the_order_of_their_requests() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    queue.enqueue("bar");
    assert_eq!(serve(&queue), ["foo", "bar"]);
    assert_eq!(counts(&queue), [0; 3]);
}

/// "doesn't return an item that is currently locked".
#[test]
fn a_key_in_process_goes_to_no_other_consumer() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    let foo = take(&queue);
    queue.enqueue("foo");
    queue.enqueue("bar");
    let bar = take(&queue);
    assert_eq!((*foo, *bar), ("foo", "bar"));
    assert!(queue.try_dequeue().is_err());
    foo.done();
    bar.done();
}

/// "returns an item as soon as its unlocked". There the key keeps the position of its add, before "baz"; here it goes
/// to the tail when its claim ends.
#[test]
fn a_key_enqueued_during_its_run_is_ready_when_the_run_ends() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    let foo = take(&queue);
    queue.enqueue("foo");
    queue.enqueue("bar");
    let bar = take(&queue);
    queue.enqueue("baz");
    foo.done();
    assert_eq!(serve(&queue), ["baz", "foo"]);
    bar.done();
}

/// "de-duplicates items".
#[test]
fn duplicates_are_one_key() {
    let queue = WorkQueue::new();
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Queued);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Merged);
    assert_eq!(counts(&queue), [1, 0, 0]);
}

/// "enqueues a locked item". There a key with a rerun counts as ready; here it counts after its run.
#[test]
fn a_key_in_process_can_be_enqueued() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    let first = take(&queue);
    assert_eq!(first.priority(), Priority::Normal);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Rerun);
    assert_eq!(counts(&queue), [0, 0, 1]);
    first.done();
    assert_eq!(counts(&queue), [1, 0, 0]);
    let second = take(&queue);
    assert_eq!(second.priority(), Priority::Normal);
    second.done();
    assert_eq!(counts(&queue), [0; 3]);
}

/// "retains the highest priority", "will not decrease the priority".
#[test]
fn the_highest_requested_level_counts() {
    let queue = WorkQueue::new();
    for [first, second] in [[Priority::Normal, Priority::High], [Priority::High, Priority::Normal]] {
        queue.at(first).enqueue("foo");
        assert_eq!(queue.at(second).enqueue("foo"), EnqueueOutcome::Merged);
        assert_eq!(queue.state(&"foo"), KeyState::Ready(Priority::High));
        let claim = take(&queue);
        assert_eq!(claim.priority(), Priority::High);
        claim.done();
        assert_eq!(counts(&queue), [0; 3]);
    }
}

/// "gets pushed to the front if the priority increases".
#[test]
fn a_raised_key_passes_the_keys_of_its_old_level() {
    let queue = WorkQueue::new();
    for key in ["foo", "bar", "baz"] {
        queue.enqueue(key);
    }
    queue.at(Priority::High).enqueue("baz");
    assert_eq!(serve(&queue), ["baz", "foo", "bar"]);
}

/// "follows FIFO order in the new priority queue when item priority changes".
#[test]
fn a_raised_key_goes_to_the_tail_of_its_new_level() {
    let queue = WorkQueue::new();
    queue.enqueue("foo");
    queue.at(Priority::High).enqueue("bar");
    queue.at(Priority::High).enqueue("foo");
    assert_eq!(queue.len(), 2);
    assert_eq!(serve(&queue), ["bar", "foo"]);
}

/// New: a poll never raises a key, and a request at the key's own level does not move it.
#[test]
fn a_key_keeps_its_place_when_its_level_does_not_rise() {
    let queue = WorkQueue::new();
    for key in ["foo", "bar"] {
        queue.enqueue(key);
    }
    queue.at(Priority::Normal).enqueue("foo");
    queue.at(Priority::Low).enqueue("foo");
    assert_eq!(queue.at(Priority::High).enqueue_if_absent("bar"), EnqueueOutcome::Ignored);
    assert_eq!(serve(&queue), ["foo", "bar"]);
}

/// "retains the lowest after duration".
#[test]
fn a_request_with_a_delay_does_not_delay_a_ready_key() {
    let (_clock, queue) = held();
    assert_eq!(queue.enqueue_after("foo", Duration::ZERO), EnqueueOutcome::Queued);
    assert_eq!(queue.enqueue_after("foo", HOUR), EnqueueOutcome::Merged);
    assert_eq!(serve(&queue), ["foo"]);
    assert_eq!(counts(&queue), [0; 3]);
}

/// "doesn't include non-ready items in `Len()`", and `TestItemsAreInludedInLenAndMetricsOnceTheyAreReady`.
#[test]
fn the_length_counts_delayed_keys_once_they_are_ready() {
    let (clock, queue) = held();
    for _ in 0..2 {
        queue.enqueue_after("foo", 500 * MS);
        queue.enqueue("baz");
        queue.enqueue_after("bar", 500 * MS);
        queue.enqueue("bal");
        assert_eq!(counts(&queue), [2, 2, 0]);
        clock.advance(SECOND);
        assert_eq!(counts(&queue), [4, 0, 0]);
        assert_eq!(serve(&queue), ["baz", "bal", "foo", "bar"]);
        assert_eq!(counts(&queue), [0; 3]);
    }
}

/// "Get from priority queue might get stuck when the priority queue is shut down" (#3239). There ready keys
/// are dropped at once, as `Discard` does here.
#[test]
fn a_dequeue_after_the_shutdown_returns() {
    let queue = WorkQueue::new();
    queue.enqueue("baz");
    queue.shutdown(Shutdown::Discard);
    assert_eq!(queue.enqueue_after("foo", SECOND), EnqueueOutcome::Closed);
    for _ in 0..2 {
        assert_eq!(queue.dequeue().unwrap_err(), DequeueError);
    }
}

/// "updates metrics correctly for an item that gets initially added with after and then without".
#[test]
fn a_key_that_leaves_its_delay_is_counted_once() {
    let (clock, queue) = held();
    queue.enqueue_after("foo", HOUR);
    assert_eq!(counts(&queue), [0, 1, 0]);
    assert_eq!(queue.enqueue_now("foo"), EnqueueOutcome::Queued);
    assert_eq!(counts(&queue), [1, 0, 0]);
    let claim = take(&queue);
    assert_eq!(counts(&queue), [0, 0, 1]);
    claim.done();
    clock.advance(2 * HOUR);
    assert_eq!(counts(&queue), [0; 3]);
}

/// "updates metrics correctly when an item with after is re-added with higher priority and no after".
#[test]
fn a_key_that_leaves_its_delay_for_a_higher_level_is_taken_from_there() {
    let (_clock, queue) = held();
    queue.enqueue_after("foo", HOUR);
    queue.at(Priority::High).enqueue_now("foo");
    assert_eq!(queue.state(&"foo"), KeyState::Ready(Priority::High));
    let claim = take(&queue);
    assert_eq!(claim.priority(), Priority::High);
    claim.done();
    assert_eq!(counts(&queue), [0; 3]);
}

/// `TestHighPriorityItemsAreReturnedBeforeLowPriorityItemMultipleTimes`: without a delay, with a delay that ends at
/// once, and with a longer one. There the low level starves; here the low and the normal level have two turns in
/// sixteen, so only the order within a level is guaranteed.
#[test]
fn each_level_keeps_its_order_and_higher_levels_come_first() {
    const KEYS: usize = 1000;
    for delay in [Duration::ZERO, Duration::from_nanos(1), SECOND] {
        let (clock, queue) = held();
        for number in 0..KEYS {
            for level in [Priority::Low, Priority::High, Priority::Normal] {
                queue.at(level).enqueue_after((level, number), delay);
            }
        }
        clock.advance(delay);
        let mut last = [None, None, None];
        let mut high_after = 0;
        for turn in 0..3 * KEYS {
            let claim = take(&queue);
            let (level, number) = *claim;
            assert_eq!(claim.priority(), level);
            assert_eq!(last[level as usize].replace(number), number.checked_sub(1));
            if level == Priority::High {
                high_after = turn;
            }
            claim.done();
        }
        // The high level has fourteen turns in sixteen while it holds a key.
        assert!(high_after <= KEYS * STARVATION_BOUND / (STARVATION_BOUND - 2), "{high_after}");
        assert!(queue.try_dequeue().is_err());
    }
}

/// `TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem`.
#[test]
fn a_due_key_is_taken_before_a_key_of_a_lower_level() {
    let (clock, queue) = held();
    queue.at(Priority::Low).enqueue("foo");
    queue.at(Priority::Normal).enqueue_after("prio", SECOND);
    clock.advance(SECOND);
    assert_eq!(serve(&queue), ["prio", "foo"]);
}

/// `TestMetricsAreUpdatedForItemWhoseRequeueAfterExpiredThatGetsAddedAgainWithoutRequeueAfter`.
#[test]
fn a_due_key_that_is_enqueued_again_is_counted_once() {
    let (clock, queue) = held();
    queue.enqueue_after("foo", 50 * MS);
    clock.advance(50 * MS);
    assert_eq!(counts(&queue), [1, 0, 0]);
    assert_eq!(queue.enqueue("foo"), EnqueueOutcome::Merged);
    assert_eq!(counts(&queue), [1, 0, 0]);
    assert_eq!(serve(&queue), ["foo"]);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `TestWhenAddingMultipleItemsWithRatelimitTrueTheyDontAffectEachOther`.
#[test]
fn the_backoff_of_one_key_does_not_delay_another() {
    let (clock, builder) = held_builder();
    let queue = builder.backoff(Exponential::new(5 * MS, 1000 * SECOND).jitter(0.0)).build();
    queue.enqueue("bar");
    for failures in 0..7 {
        let claim = take(&queue);
        assert_eq!(claim.failures(), failures);
        claim.retry();
        clock.advance(SECOND);
    }
    let bar = take(&queue);
    queue.enqueue("foo");
    take(&queue).retry();
    bar.retry();
    clock.advance(5 * MS);
    assert_eq!(serve(&queue), ["foo"]);
    clock.advance(634 * MS);
    assert_eq!(counts(&queue), [0, 1, 0]);
    clock.advance(MS);
    assert_eq!(serve(&queue), ["bar"]);
}
