//! A timer thread that the system refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::base::thread::ThreadOptions;
use crate::queue::{Enqueue, EnqueueOutcome, KeyState, WorkQueue};

/// How long a test that has failed waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A queue that the system refuses so many threads, with a delayed key.
fn refused(times: usize) -> (WorkQueue<char>, Arc<AtomicUsize>) {
    let refusals = Arc::new(AtomicUsize::new(times));
    let options = ThreadOptions::new().refusing(Arc::clone(&refusals));
    let queue = WorkQueue::builder().thread_options(options).build();
    assert_eq!(queue.enqueue_after('d', Duration::from_millis(1)), EnqueueOutcome::Scheduled);
    assert_eq!(refusals.load(SeqCst), times - 1, "the first delay asks for a thread");
    (queue, refusals)
}

#[test]
fn a_delay_comes_to_a_waiting_consumer_although_the_timer_was_refused_a_thread() {
    let (queue, refusals) = refused(3);
    assert_eq!(*queue.dequeue_timeout(PATIENCE).unwrap(), 'd');
    assert_eq!(refusals.load(SeqCst), 0);
}

/// It slept before the delay was asked for.
#[test]
fn a_delay_comes_to_a_sleeping_consumer_although_the_timer_was_refused_a_thread() {
    let refusals = Arc::new(AtomicUsize::new(2));
    let options = ThreadOptions::new().refusing(Arc::clone(&refusals));
    let queue = WorkQueue::builder().thread_options(options).build();
    thread::scope(|threads| {
        let consumer = threads.spawn(|| queue.dequeue_timeout(PATIENCE).map(|claim| *claim));
        while queue.shared.locked.lock().consumers.asleep() == 0 {
            thread::yield_now();
        }
        queue.enqueue_after('d', Duration::from_millis(1));
        assert_eq!(consumer.join().unwrap(), Ok('d'));
    });
}

#[test]
fn any_use_of_a_queue_asks_again_for_the_thread_of_its_timer() {
    let (queue, refusals) = refused(2);
    while let KeyState::Delayed(_) = queue.state(&'d') {
        queue.enqueue('x');
        thread::yield_now();
    }
    assert_eq!(refusals.load(SeqCst), 0);
    assert_eq!(queue.len(), 2);
}

#[test]
fn a_queue_without_delays_asks_for_no_thread() {
    let (queue, refusals) = refused(2);
    queue.cancel(&'d');
    for _ in 0..100 {
        queue.enqueue('x');
    }
    assert_eq!(queue.dequeue_timeout(Duration::from_millis(50)).map(|claim| *claim), Ok('x'));
    assert_eq!(refusals.load(SeqCst), 1);
}
