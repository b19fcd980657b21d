//! The cases of kube-rs's `kube-runtime/src/scheduler.rs` and `controller/runner.rs` (Apache-2.0), rewritten against
//! this API. Each test names its source.
//!
//! Omitted: the cases about readiness before the first run (`runner_should_wait_for_readiness` and similar ones),
//! because a queue has no readiness. The tests of [`controllers`](super::controllers) have them.

use std::thread;
use std::time::Duration;

use homeostat::queue::{KeyState, TryDequeueError};
use homeostat::{Enqueue, EnqueueOutcome, Key, ManualClock, WorkQueue};

use crate::support::{Close, MS, SECOND, counts, held, serve, take};

/// `scheduler_should_hold_and_release_items`: there the scheduler holds a running key; here its claim does.
#[test]
fn an_enqueued_key_is_held_while_it_runs_and_released_when_it_ends() {
    let queue = WorkQueue::new();
    queue.enqueue(1);
    let running = take(&queue);
    queue.enqueue(1);
    assert_eq!(queue.try_dequeue().unwrap_err(), TryDequeueError::Empty);
    assert!(queue.contains(&1));
    running.done();
    assert_eq!(serve(&queue), [1]);
    assert!(!queue.contains(&1));
}

/// `scheduler_should_not_reschedule_pending_items`.
#[test]
fn several_requests_during_a_run_are_one_rerun() {
    let queue = WorkQueue::new();
    queue.enqueue(1);
    let running = take(&queue);
    for _ in 0..3 {
        assert_eq!(queue.enqueue(1), EnqueueOutcome::Rerun);
    }
    running.done();
    assert_eq!(queue.enqueue(1), EnqueueOutcome::Merged);
    assert_eq!(serve(&queue), [1]);
}

/// `scheduler_pending_message_should_not_block_head_of_line`.
#[test]
fn a_pending_rerun_does_not_block_other_keys() {
    let queue = WorkQueue::new();
    queue.enqueue(1);
    let running = take(&queue);
    queue.enqueue_now(1);
    queue.enqueue(2);
    assert_eq!(serve(&queue), [2]);
    running.done();
    assert_eq!(serve(&queue), [1]);
}

/// `scheduler_should_emit_items_as_requested`.
#[test]
fn each_key_comes_at_its_own_time() {
    let (clock, queue) = held();
    queue.enqueue_after(1, SECOND);
    queue.enqueue_after(2, 3 * SECOND);
    assert!(serve(&queue).is_empty());
    clock.advance(2 * SECOND);
    assert_eq!(serve(&queue), [1]);
    clock.advance(2 * SECOND);
    assert_eq!(serve(&queue), [2]);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `scheduler_dedupe_should_keep_earlier_item`, and `scheduler_should_not_overwrite_message_with_later_version`.
#[test]
fn a_later_delay_does_not_put_an_earlier_one_off() {
    let (clock, queue) = held();
    queue.enqueue_after(1, SECOND);
    assert_eq!(queue.enqueue_after(1, 3 * SECOND), EnqueueOutcome::Held);
    clock.advance(2 * SECOND);
    assert_eq!(serve(&queue), [1]);
    clock.advance(5 * SECOND);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `scheduler_dedupe_should_replace_later_item`, and `scheduler_should_overwrite_message_with_soonest_version`. There
/// the sooner time always wins; here a standing delay absorbs `enqueue_after`, and only `reschedule` changes it.
#[test]
fn a_sooner_time_replaces_a_later_one_by_reschedule() {
    let (clock, queue) = held();
    queue.enqueue_after(1, 3 * SECOND);
    assert_eq!(queue.reschedule(1, SECOND), EnqueueOutcome::Scheduled);
    clock.advance(SECOND);
    assert_eq!(serve(&queue), [1]);
    clock.advance(5 * SECOND);
    assert_eq!(counts(&queue), [0; 3]);
}

/// `scheduler_dedupe_should_allow_rescheduling_emitted_item`.
#[test]
fn a_key_can_be_delayed_again_once_it_has_come() {
    let (clock, queue) = held();
    for _ in 0..2 {
        assert_eq!(queue.enqueue_after(1, SECOND), EnqueueOutcome::Scheduled);
        assert!(serve(&queue).is_empty());
        clock.advance(2 * SECOND);
        assert_eq!(serve(&queue), [1]);
    }
}

/// `scheduler_should_add_debounce_to_a_request`.
#[test]
fn a_debounced_key_comes_once_it_has_been_quiet() {
    let (clock, queue) = held();
    assert_eq!(queue.enqueue_debounced(1, 2 * SECOND, 60 * SECOND), EnqueueOutcome::Scheduled);
    clock.advance(SECOND);
    assert!(serve(&queue).is_empty());
    clock.advance(SECOND);
    assert_eq!(serve(&queue), [1]);
}

/// `scheduler_should_dedup_message_within_debounce_period`.
#[test]
fn a_second_request_within_the_quiet_time_pushes_the_first_out() {
    let (clock, queue) = held();
    queue.enqueue_debounced(1, 3 * SECOND, 60 * SECOND);
    clock.advance(SECOND);
    assert_eq!(queue.enqueue_debounced(1, 3 * SECOND, 60 * SECOND), EnqueueOutcome::Scheduled);
    clock.advance(2500 * MS);
    assert!(serve(&queue).is_empty());
    clock.advance(500 * MS);
    assert_eq!(serve(&queue), [1]);
    clock.advance(60 * SECOND);
    assert_eq!(counts(&queue), [0; 3]);
}

/// Runs keys until the queue is closed, and returns the start and the end of each run by the clock.
fn run_each_for<K: Key>(queue: &WorkQueue<K>, clock: &ManualClock, duration: Duration) -> Vec<(K, Duration, Duration)> {
    let start = clock.now();
    let mut runs = Vec::new();
    while let Ok(claim) = queue.dequeue() {
        let begin = clock.now() - start;
        // The run takes time on the held clock: it waits on a queue that stays empty.
        let idle = WorkQueue::<()>::builder().clock(clock.clock()).build();
        assert!(idle.dequeue_timeout(duration).is_err());
        runs.push((claim.key().clone(), begin, clock.now() - start));
        claim.done();
    }
    runs
}

/// `runner_should_never_run_two_instances_at_once`: two requests lead to two consecutive runs, even if another worker
/// is free.
#[test]
fn two_requests_are_two_serial_runs() {
    let (clock, queue) = held();
    thread::scope(|scope| {
        let close = Close(&queue);
        let workers = [(); 2].map(|()| scope.spawn(|| run_each_for(&queue, &clock, SECOND)));
        clock.wait_for_sleepers(2);
        queue.enqueue("key");
        while queue.processing_count() == 0 {
            thread::yield_now();
        }
        clock.wait_for_sleepers(2);
        assert_eq!(queue.enqueue("key"), EnqueueOutcome::Rerun);
        clock.advance(SECOND);
        // The first run ends, and one of the workers begins the second.
        while !matches!(queue.state(&"key"), KeyState::Processing(homeostat::queue::PendingRerun::None)) {
            thread::yield_now();
        }
        clock.wait_for_sleepers(2);
        clock.advance(SECOND);
        while queue.contains(&"key") {
            thread::yield_now();
        }
        drop(close);
        let mut runs: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        runs.sort_unstable();
        assert_eq!(runs, [("key", Duration::ZERO, SECOND), ("key", SECOND, 2 * SECOND)]);
    });
}

/// `runner_should_wake_when_scheduling_messages`.
#[test]
fn a_sleeping_worker_wakes_for_a_key() {
    let (clock, queue) = held();
    thread::scope(|scope| {
        let _close = Close(&queue);
        let worker = scope.spawn(|| queue.dequeue().map(|claim| *claim));
        clock.wait_for_sleepers(1);
        queue.enqueue(8);
        assert_eq!(worker.join().unwrap(), Ok(8));
    });
}

/// `runner_should_dedupe_while_waiting_for_readiness`: keys that are enqueued before the first worker starts.
#[test]
fn keys_enqueued_before_the_first_worker_are_deduplicated() {
    let queue = WorkQueue::new();
    for key in ['a', 'b', 'a'] {
        queue.enqueue(key);
    }
    assert_eq!(serve(&queue), ['a', 'b']);
}

/// `runner_should_respect_max_concurrent_executions`: at most one run for each worker, and the next key when a worker
/// is free.
#[test]
fn at_most_one_run_per_worker_at_once() {
    let (clock, queue) = held();
    thread::scope(|scope| {
        let close = Close(&queue);
        let workers = [(); 2].map(|()| scope.spawn(|| run_each_for(&queue, &clock, 2 * SECOND)));
        clock.wait_for_sleepers(2);
        for key in [1, 2, 3] {
            queue.enqueue(key);
        }
        while queue.processing_count() < 2 {
            thread::yield_now();
        }
        clock.wait_for_sleepers(2);
        assert_eq!(counts(&queue), [1, 0, 2]);
        clock.advance(2 * SECOND);
        while counts(&queue) != [0, 0, 1] {
            thread::yield_now();
        }
        clock.wait_for_sleepers(2);
        clock.advance(2 * SECOND);
        while counts(&queue) != [0; 3] {
            thread::yield_now();
        }
        drop(close);
        let mut runs: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        runs.sort_unstable();
        let times: Vec<_> = runs.iter().map(|(_, begin, end)| (*begin, *end)).collect();
        assert_eq!(runs.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), [1, 2, 3]);
        let [soon, late] = [(Duration::ZERO, 2 * SECOND), (2 * SECOND, 4 * SECOND)];
        assert_eq!(times, [soon, soon, late]);
    });
}
