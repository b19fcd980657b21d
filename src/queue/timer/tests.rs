//! Timer threads that the system refuses, and one that several queues share.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::base::clock::{Clock, ManualClock};
use crate::base::task_thread::TaskThread;
use crate::base::thread::ThreadOptions;
use crate::queue::{Enqueue, EnqueueOutcome, KeyState, Shutdown, WorkQueue};
use crate::until::until;

/// The longest wait of a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a queue with a delayed key, to which the system refuses this many threads.
fn refused(times: usize) -> (WorkQueue<char>, Arc<AtomicUsize>) {
    let refusals = Arc::new(AtomicUsize::new(times));
    let options = ThreadOptions::new().refusing(Arc::clone(&refusals));
    let queue = WorkQueue::builder().thread_options(options).build();
    assert_eq!(queue.enqueue_after('d', Duration::from_millis(1)), EnqueueOutcome::Scheduled);
    assert_eq!(refusals.load(SeqCst), times - 1, "the first delay asks for a thread");
    (queue, refusals)
}

#[test]
fn a_waiting_consumer_gets_a_delayed_key_after_refusals_of_the_timer_thread() {
    let (queue, refusals) = refused(3);
    assert_eq!(*queue.dequeue_timeout(PATIENCE).unwrap(), 'd');
    assert_eq!(refusals.load(SeqCst), 0);
}

/// The consumer sleeps before the delay is requested.
#[test]
fn a_sleeping_consumer_gets_a_delayed_key_after_refusals_of_the_timer_thread() {
    let refusals = Arc::new(AtomicUsize::new(2));
    let options = ThreadOptions::new().refusing(Arc::clone(&refusals));
    let queue = WorkQueue::builder().thread_options(options).build();
    thread::scope(|threads| {
        let consumer = threads.spawn(|| queue.dequeue_timeout(PATIENCE).map(|claim| *claim));
        until("the consumer sleeps", || queue.shared.locked.lock().consumers.asleep() > 0);
        queue.enqueue_after('d', Duration::from_millis(1));
        assert_eq!(consumer.join().unwrap(), Ok('d'));
    });
}

#[test]
fn any_use_of_a_queue_asks_again_for_its_timer_thread() {
    let (queue, refusals) = refused(2);
    until("the delay ends", || {
        queue.enqueue('x');
        !matches!(queue.state(&'d'), KeyState::Delayed(_))
    });
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

/// A timer thread for several queues.
fn shared_timer() -> TaskThread {
    TaskThread::new("timer".to_owned(), ThreadOptions::new(), Clock::system())
}

/// Returns a queue that uses `timer` and has no own thread.
fn sharing(timer: &TaskThread, name: &str) -> WorkQueue<char> {
    let no_thread = ThreadOptions::new().refusing(Arc::new(AtomicUsize::new(usize::MAX)));
    let queue = WorkQueue::builder().name(name).thread_options(no_thread).build();
    queue.shared.use_timer(timer).unwrap();
    queue
}

#[test]
fn delays_of_several_queues_end_on_one_shared_timer_thread() {
    let timer = shared_timer();
    let queues = ["one", "two", "three"].map(|name| sharing(&timer, name));
    assert_eq!(timer.tasks(), ["one-timer", "two-timer", "three-timer"]);
    for (key, delay) in [('h', Duration::from_secs(3600)), ('d', Duration::from_millis(1))] {
        for queue in &queues {
            queue.enqueue_after(key, delay);
        }
    }
    for queue in &queues {
        let claim = queue.dequeue_timeout(PATIENCE).unwrap();
        assert_eq!(*claim, 'd');
        claim.done();
        assert_eq!(queue.metrics().delayed, 1);
    }
}

#[test]
fn an_earlier_delay_of_any_queue_wakes_the_shared_timer() {
    let timer = shared_timer();
    let (one, other) = (sharing(&timer, "one"), sharing(&timer, "other"));
    one.enqueue_after('h', Duration::from_secs(3600));
    for key in 'a'..='g' {
        for queue in [&one, &other] {
            queue.enqueue_after(key, Duration::from_millis(1));
            let claim = queue.dequeue_timeout(PATIENCE).unwrap();
            assert_eq!(*claim, key);
            claim.done();
        }
    }
}

#[test]
fn a_queue_leaves_the_shared_timer_when_it_is_shut_down_or_its_last_handle_drops() {
    let timer = shared_timer();
    let [shut_down, dropped, left] = ["shut down", "dropped", "left"].map(|name| sharing(&timer, name));
    for queue in [&shut_down, &dropped, &left] {
        queue.enqueue_after('d', Duration::from_millis(50));
    }
    let weak = Arc::downgrade(&dropped.shared);
    drop(dropped);
    assert!(weak.upgrade().is_none(), "the timer keeps the queue");
    shut_down.shutdown(Shutdown::ServeReady);
    until("the other queues have left the timer", || timer.tasks() == ["left-timer"]);
    assert_eq!(*left.dequeue_timeout(PATIENCE).unwrap(), 'd');
    drop(left);
    timer.stop();
    assert!(sharing_fails(&timer), "a stopped timer takes no queue");
}

fn sharing_fails(timer: &TaskThread) -> bool {
    WorkQueue::<char>::new().shared.use_timer(timer).is_err()
}

#[test]
fn a_queue_with_a_refused_timer_can_use_a_shared_one() {
    let (queue, _) = refused(usize::MAX);
    let timer = shared_timer();
    queue.shared.use_timer(&timer).unwrap();
    assert_eq!(*queue.dequeue_timeout(PATIENCE).unwrap(), 'd');
}

#[test]
fn a_queue_with_its_own_timer_or_a_held_clock_joins_no_shared_timer() {
    let timer = shared_timer();
    let queue = WorkQueue::new();
    queue.enqueue_after('h', Duration::from_secs(3600));
    queue.shared.use_timer(&timer).unwrap();
    let clock = ManualClock::new();
    let held = WorkQueue::<char>::builder().clock(clock.clock()).build();
    held.shared.use_timer(&timer).unwrap();
    assert!(timer.tasks().is_empty());
    queue.enqueue_after('d', Duration::from_millis(1));
    assert_eq!(*queue.dequeue_timeout(PATIENCE).unwrap(), 'd');
}
