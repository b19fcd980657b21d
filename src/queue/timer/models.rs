//! The timer thread in every interleaving: the shipped task and its event on a thread, by the system clock.
//!
//! Time does not pass in a model, and a timed wait of the checker never times out, so no delay ends here. These models
//! show that the timer always waits for the earliest delay, that it sleeps, and that it ends. Models on a held clock
//! and tests with real threads show that delays end in time. The delays differ so much that the real time of an
//! execution does not matter.

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use loom::thread;

use super::{QueueShared, TimerThread, TurnWheel};
use crate::base::clock::Clock;
use crate::base::sync::{Condvar, Mutex};
use crate::base::task::{Next, Task};
use crate::base::task_thread::TaskThread;
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::queue::{Claim, Enqueue, Shutdown, WorkQueue};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

type Queue = WorkQueue<u8, BuildHasherDefault<DefaultHasher>>;

fn queue(threads: ThreadOptions) -> Queue {
    WorkQueue::builder().hasher(BuildHasherDefault::default()).thread_options(threads).build()
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The last answer of the timer's task.
struct Said {
    next: Mutex<Option<Next>>,
    changed: Condvar,
    steps: AtomicUsize,
}

/// The timer's task with an observer.
struct Watched {
    task: TurnWheel<u8>,
    report: Arc<Said>,
}

impl Task for Watched {
    fn step(&mut self, now: Nanos) -> Next {
        let next = self.task.step(now);
        self.report.steps.fetch_add(1, SeqCst);
        *self.report.next.lock() = Some(next);
        self.report.changed.notify_all();
        next
    }
}

/// Starts a timer thread for the queue alone, as [`QueueShared::start_timer`] does, with an observer.
fn watch(shared: &Arc<QueueShared<u8>>) -> Arc<Said> {
    watch_on(&TaskThread::new("timer".to_owned(), ThreadOptions::new(), Clock::system()), shared)
}

/// Adds the observed task to a timer thread.
fn watch_on(timer: &TaskThread, shared: &Arc<QueueShared<u8>>) -> Arc<Said> {
    let report = Arc::new(Said { next: Mutex::new(None), changed: Condvar::new(), steps: AtomicUsize::new(0) });
    let task = Watched { task: TurnWheel(Arc::clone(shared)), report: Arc::clone(&report) };
    let mut locked = shared.locked.lock();
    let waker = timer.waker();
    locked.timer = TimerThread::Running(waker.add("timer", task).unwrap());
    assert!(shared.timer.set(waker).is_ok());
    report
}

impl Said {
    /// Blocks until the timer waits for the earliest entry of the wheel. Blocks forever if no thread wakes the timer.
    fn wait_for_earliest(&self, shared: &QueueShared<u8>) {
        let earliest = shared.locked.lock().records.next_turn();
        assert_ne!(earliest, Nanos::NEVER);
        let mut next = self.next.lock();
        while *next != Some(Next::At(earliest)) {
            self.changed.wait(&mut next);
        }
    }
}

#[test]
fn every_earlier_delay_wakes_the_timer() {
    let in_one_step = Arc::new(AtomicBool::new(false));
    let in_steps = Arc::new(AtomicBool::new(false));
    let (one, more) = (Arc::clone(&in_one_step), Arc::clone(&in_steps));
    explore(4, move || {
        let queue = queue(ThreadOptions::new());
        let report = watch(&queue.shared);
        queue.enqueue_after(1, HOUR);
        queue.enqueue_after(2, MINUTE);
        report.wait_for_earliest(&queue.shared);
        let steps = report.steps.load(SeqCst);
        // One step at its start, and at most one for each delay: the timer does not wake itself.
        assert!(steps <= 3, "{steps} steps");
        if steps == 1 { &one } else { &more }.store(true, SeqCst);
        drop(queue);
        assert!(report.steps.load(SeqCst) <= 4);
    });
    assert!(in_one_step.load(SeqCst) && in_steps.load(SeqCst));
}

#[test]
fn delays_from_two_threads_wake_the_timer() {
    explore(3, || {
        let queue = queue(ThreadOptions::new());
        let report = watch(&queue.shared);
        let feeder = {
            let queue = queue.clone();
            thread::spawn(move || queue.enqueue_after(1, MINUTE))
        };
        queue.enqueue_after(2, HOUR);
        feeder.join().unwrap();
        report.wait_for_earliest(&queue.shared);
        drop(queue);
    });
}

#[test]
fn earlier_delays_of_two_queues_wake_their_shared_timer() {
    explore(2, || {
        let timer = TaskThread::new("timer".to_owned(), ThreadOptions::new(), Clock::system());
        let queues = [(); 2].map(|()| queue(ThreadOptions::new()));
        let report = queues.each_ref().map(|queue| watch_on(&timer, &queue.shared));
        let feeder = {
            let queue = queues[0].clone();
            thread::spawn(move || queue.enqueue_after(1, MINUTE))
        };
        for queue in &queues {
            queue.enqueue_after(2, HOUR);
        }
        feeder.join().unwrap();
        for (queue, report) in queues.iter().zip(&report) {
            report.wait_for_earliest(&queue.shared);
        }
        let left = queues.each_ref().map(|queue| Arc::downgrade(&queue.shared));
        drop(queues);
        assert!(left.iter().all(|left| left.upgrade().is_none()), "the timer is still there");
        assert!(timer.tasks().is_empty());
    });
}

/// Counts the timer threads that a queue starts.
fn counted() -> (ThreadOptions, Arc<AtomicUsize>) {
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let options = ThreadOptions::new().on_start(move |_| {
        count.fetch_add(1, SeqCst);
    });
    (options, started)
}

#[test]
fn two_first_delays_at_once_start_one_timer_thread_and_the_last_handle_joins_it() {
    explore(3, || {
        let (threads, started) = counted();
        let queue = queue(threads);
        let left = Arc::downgrade(&queue.shared);
        let feeder = {
            let queue = queue.clone();
            thread::spawn(move || queue.enqueue_after(1, HOUR))
        };
        queue.enqueue_after(2, MINUTE);
        feeder.join().unwrap();
        drop(queue);
        assert_eq!(started.load(SeqCst), 1);
        assert!(left.upgrade().is_none(), "the timer is still there");
    });
}

#[test]
fn a_shutdown_ends_the_timer_at_any_moment() {
    for mode in [Shutdown::RunDelayedNow, Shutdown::ServeReady, Shutdown::Discard] {
        explore(3, move || {
            let queue = queue(ThreadOptions::new());
            let left = Arc::downgrade(&queue.shared);
            let feeder = {
                let queue = queue.clone();
                thread::spawn(move || {
                    queue.enqueue_after(1, HOUR);
                    queue.enqueue_after(2, MINUTE);
                })
            };
            queue.shutdown(mode);
            feeder.join().unwrap();
            drop(queue);
            assert!(left.upgrade().is_none(), "the timer is still there");
        });
    }
}

/// A claim that ends while the last handle is dropped may start a timer thread that no handle joins.
#[test]
fn a_timer_that_a_claim_starts_while_the_last_handle_drops_ends_too() {
    let with_timer = Arc::new(AtomicBool::new(false));
    let without = Arc::new(AtomicBool::new(false));
    let (yes, no) = (Arc::clone(&with_timer), Arc::clone(&without));
    explore(4, move || {
        let (threads, started) = counted();
        let queue = queue(threads);
        queue.enqueue(1);
        let claim = queue.try_dequeue().unwrap();
        let left = Arc::downgrade(&queue.shared);
        let ender = thread::spawn(move || Claim::requeue_after(claim, HOUR));
        drop(queue);
        ender.join().unwrap();
        if started.load(SeqCst) == 1 { &yes } else { &no }.store(true, SeqCst);
        assert!(left.upgrade().is_none(), "the timer is still there");
    });
    assert!(with_timer.load(SeqCst) && without.load(SeqCst));
}
