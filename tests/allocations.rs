//! In the steady state a queue allocates nothing, unless the key's `Clone` does.
//!
//! It has its own test binary because it measures through a counting global allocator.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test, also in its helpers")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use homeostat::queue::EnqueueMethod;
use homeostat::{Claim, Enqueue, EnqueueOutcome, ManualClock, Priority, Reasons, WorkQueue};
use parking_lot::{Condvar, Mutex};

const SECOND: Duration = Duration::from_secs(1);
const KEYS: u64 = 100;

/// Everything that a worker and a feeder do with a key, in all its states, on a held clock.
fn round<K: Clone + Eq + std::hash::Hash + Send + 'static>(queue: &WorkQueue<K>, keys: &[K]) {
    let high = queue.at(Priority::High).because(Reasons::EVENT);
    for key in keys {
        queue.enqueue(key.clone());
        queue.enqueue_if_absent(key.clone());
        high.enqueue(key.clone());
    }
    for number in 0..keys.len() {
        let claim = queue.try_dequeue().unwrap();
        queue.enqueue(claim.key().clone());
        match number % 4 {
            0 => claim.done(),
            1 => claim.requeue_after(SECOND),
            2 => claim.retry_after(SECOND),
            _ => drop(claim),
        }
    }
    for key in keys {
        queue.enqueue_after(key.clone(), SECOND);
        queue.enqueue_debounced(key.clone(), SECOND, 2 * SECOND);
        queue.reschedule(key.clone(), SECOND);
        queue.enqueue_now(key.clone());
    }
    let mut next = queue.try_dequeue().ok();
    while let Some(claim) = next {
        next = claim.done_and_next().ok();
    }
    for key in keys {
        queue.cancel(key);
    }
    assert!(queue.is_empty());
}

fn allocations(run: impl FnOnce()) -> u64 {
    measure(run).count_total
}

/// A queue on a held clock. Its next alarm is set already, and is earlier than the alarms of a round.
fn on_a_held_clock<K: Clone + Eq + std::hash::Hash + Send + 'static>(first: K) -> (ManualClock, WorkQueue<K>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    queue.enqueue_after(first, SECOND / 2);
    (clock, queue)
}

#[test]
fn the_counter_counts() {
    // Without `black_box`, an optimised build leaves the allocations out.
    assert_eq!(allocations(|| drop(black_box(Box::new(7)))), 1);
    assert_eq!(allocations(|| drop(black_box(black_box("key".to_owned()).clone()))), 2);
}

#[test]
fn no_state_of_a_key_costs_an_allocation() {
    let (_clock, queue) = on_a_held_clock(u64::MAX);
    let keys: Vec<u64> = (0..KEYS).collect();
    round(&queue, &keys);
    assert_eq!(allocations(|| (0..10).for_each(|_| round(&queue, &keys))), 0);
}

#[test]
fn a_cool_down_costs_nothing() {
    let (clock, queue) = on_a_held_clock(u64::MAX);
    let cool = || {
        for key in 0..KEYS {
            queue.enqueue(key);
            queue.try_dequeue().unwrap().cool_down(SECOND);
            queue.enqueue_now(key);
            queue.enqueue_debounced(key, SECOND, SECOND);
            queue.cancel(&key);
        }
    };
    cool();
    clock.advance(SECOND);
    queue.reschedule(u64::MAX, SECOND / 2);
    assert_eq!(allocations(cool), 0);
}

/// `Arc<str>` clones without allocating, so nothing is left.
#[test]
fn a_shared_key_costs_nothing() {
    let (_clock, queue) = on_a_held_clock(Arc::from(""));
    let keys: Vec<Arc<str>> = (0..KEYS).map(|key| key.to_string().into()).collect();
    round(&queue, &keys);
    assert_eq!(allocations(|| round(&queue, &keys)), 0);
}

#[test]
fn an_owned_key_costs_its_own_clone() {
    let queue = WorkQueue::new();
    let run = |key: String| {
        queue.enqueue(key);
        queue.try_dequeue().unwrap().done();
    };
    run("vm-1".to_owned());
    let key = "vm-1".to_owned();
    assert_eq!(allocations(|| run(key)), 1, "the claim's clone");
}

#[test]
fn a_borrowed_duplicate_costs_nothing() {
    let queue = WorkQueue::<String>::new();
    queue.request_ref("vm-1", EnqueueMethod::Enqueue.into());
    let feed = || {
        queue.request_ref("vm-1", EnqueueMethod::Enqueue.into());
        queue.request_ref("vm-1", EnqueueMethod::EnqueueIfAbsent.into());
        queue.request_ref("vm-1", EnqueueMethod::EnqueueNow.into());
    };
    assert_eq!(allocations(feed), 0, "ready");
    let claim = queue.try_dequeue().unwrap();
    assert_eq!(allocations(feed), 0, "processing");
    queue.cancel("vm-1");
    claim.requeue_after(Duration::from_secs(3600));
    let feed_softly = || assert_eq!(queue.request_ref("vm-1", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Held);
    assert_eq!(allocations(feed_softly), 0, "delayed");
    let feed_another = || assert_eq!(queue.request_ref("vm-2", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    assert_eq!(allocations(feed_another), 1, "a new one");
}

#[test]
fn a_batch_costs_one_buffer() {
    let queue = WorkQueue::new();
    let feed = || assert_eq!(queue.request_all(&mut (0..5_000_u64), EnqueueMethod::Enqueue.into()).total(), 5_000);
    let serve = || while queue.try_dequeue().map(Claim::done).is_ok() {};
    feed();
    serve();
    assert_eq!(allocations(feed), 1);
    assert_eq!(allocations(feed), 1);
    assert_eq!(allocations(serve), 0);
}

/// By the system's clock, with a timer thread: setting, moving and cancelling delays allocates nothing.
#[test]
fn delays_by_the_system_clock_cost_nothing() {
    let queue = WorkQueue::new();
    let hour = Duration::from_secs(3600);
    let turn = || {
        for key in 0..KEYS {
            queue.enqueue_after(key, hour);
            queue.reschedule(key, 2 * hour);
        }
        for key in 0..KEYS {
            queue.cancel(&key);
        }
    };
    queue.enqueue_after(u64::MAX, hour / 2);
    turn();
    // `parking_lot` allocates when a thread waits for the first time. In `turn`, it may wait for the timer thread.
    Condvar::new().wait_for(&mut Mutex::new(()).lock(), Duration::from_millis(1));
    assert_eq!(allocations(turn), 0);
}
