//! Wakers of a task thread, in every interleaving.

use loom::thread;

use super::*;
use crate::base::clock::ManualClock;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::{Acquire, Release};

fn task_thread() -> TaskThread {
    TaskThread::without_thread(ManualClock::new().clock())
}

/// A task that ends once its flag is set, and sleeps until then.
struct Flag(Arc<AtomicUsize>);

impl Task for Flag {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.0.load(Acquire) == 1 { Next::Finished } else { Next::At(Nanos::NEVER) }
    }
}

/// Adds a task. Returns its waker and its flag.
fn add(thread: &TaskThread, name: &str) -> (TaskWaker, Arc<AtomicUsize>) {
    let (waker, flag) = (thread.waker(), Arc::new(AtomicUsize::new(0)));
    waker.add(name, Flag(Arc::clone(&flag))).unwrap();
    (waker, flag)
}

#[test]
fn a_wake_set_while_the_thread_goes_to_sleep_is_not_lost() {
    loom::model(|| {
        let thread = task_thread();
        let (waker, flag) = add(&thread, "task");
        thread.stop();
        let waking = thread::spawn(move || {
            flag.store(1, Release);
            waker.set();
        });
        // Returns once the tasks have left.
        thread.shared.run();
        waking.join().unwrap();
    });
}

#[test]
fn each_of_two_tasks_receives_its_own_wake() {
    loom::model(|| {
        let thread = task_thread();
        let (one, one_flag) = add(&thread, "one");
        let (two, two_flag) = add(&thread, "two");
        thread.stop();
        let waking = thread::spawn(move || {
            one_flag.store(1, Release);
            one.set();
            two_flag.store(1, Release);
            two.set();
        });
        // Returns once the tasks have left.
        thread.shared.run();
        waking.join().unwrap();
    });
}

#[test]
fn a_task_added_while_the_thread_stops_is_run_or_refused() {
    loom::model(|| {
        let thread = Arc::new(task_thread());
        let other = Arc::clone(&thread);
        let adding = thread::spawn(move || {
            let flag = Arc::new(AtomicUsize::new(1));
            let _ = other.waker().add("task", Flag(flag));
        });
        thread.stop();
        thread.shared.run();
        adding.join().unwrap();
        assert!(thread.tasks().is_empty());
    });
}
