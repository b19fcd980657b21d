//! Tasks on one thread: their steps, their wakers, and their end.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test, also in its helpers")]

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::base::clock::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

/// A task that is a closure.
struct Steps<F>(F);

impl<F: FnMut(Nanos) -> Next + Send> Task for Steps<F> {
    fn step(&mut self, now: Nanos) -> Next {
        (self.0)(now)
    }
}

fn start(clock: &ManualClock) -> TaskThread {
    TaskThread::new("tasks".to_owned(), ThreadOptions::new(), clock.clock())
}

fn at(seconds: u32) -> Nanos {
    Nanos::ZERO.after(SECOND * seconds)
}

/// The name of a task, and the time of its step.
type TaskStep = (&'static str, Nanos);

fn steps() -> (Sender<TaskStep>, Receiver<TaskStep>) {
    channel()
}

/// Adds a task that reports its steps and requests the next step after `period`.
fn add_periodic(
    thread: &TaskThread,
    name: &'static str,
    period: Duration,
    steps: &Sender<TaskStep>,
) -> (TaskWaker, Joiner) {
    let (waker, steps) = (thread.waker(), steps.clone());
    let task = Steps(move |now: Nanos| {
        steps.send((name, now)).unwrap();
        Next::At(now.after(period))
    });
    let joiner = waker.add(name, task).unwrap();
    (waker, joiner)
}

#[test]
fn each_task_is_stepped_when_it_is_added_and_at_the_times_that_it_wants() {
    let clock = ManualClock::new();
    let thread = start(&clock);
    let (report, reported) = steps();
    let _one = add_periodic(&thread, "one", 2 * SECOND, &report);
    let _two = add_periodic(&thread, "two", 3 * SECOND, &report);
    assert_eq!(reported.recv(), Ok(("one", at(0))));
    assert_eq!(reported.recv(), Ok(("two", at(0))));
    for (advance, expected) in [(2, &["one"][..]), (1, &["two"]), (1, &["one"]), (2, &["one", "two"])] {
        clock.wait_for_sleepers(1);
        assert!(reported.try_recv().is_err());
        clock.advance(SECOND * advance);
        for name in expected {
            assert_eq!(reported.recv().unwrap().0, *name);
        }
    }
    clock.wait_for_sleepers(1);
    assert_eq!(clock.sleepers(), 1, "the thread is one sleeper");
    assert_eq!(thread.tasks(), ["one", "two"]);
}

#[test]
fn the_thread_starts_with_its_first_task_and_a_refusal_is_an_error() {
    let clock = ManualClock::new();
    let options = ThreadOptions::new().refusing(Arc::new(AtomicUsize::new(1)));
    let thread = TaskThread::new("tasks".to_owned(), options, clock.clock());
    assert!(thread.shared.state.with(|state| state.thread.is_none()));
    let refused = thread.waker().add("task", Steps(|_| Next::Finished)).unwrap_err();
    assert_eq!(refused.to_string(), "the test refuses it");
    assert!(thread.tasks().is_empty());
    thread.waker().add("task", Steps(|_| Next::Finished)).unwrap().join();
}

#[test]
fn a_waker_brings_the_next_step_of_its_task_forward() {
    let clock = ManualClock::new();
    let thread = start(&clock);
    let (report, reported) = steps();
    let (waker, _one) = add_periodic(&thread, "one", Duration::MAX, &report);
    let _two = add_periodic(&thread, "two", Duration::MAX, &report);
    reported.recv().unwrap();
    reported.recv().unwrap();
    for _ in 0..3 {
        clock.wait_for_sleepers(1);
        waker.set();
        assert_eq!(reported.recv(), Ok(("one", at(0))));
    }
    clock.wait_for_sleepers(1);
    assert!(reported.try_recv().is_err());
}

#[test]
fn a_task_that_wakes_itself_during_its_step_is_stepped_again() {
    let clock = ManualClock::new();
    let thread = start(&clock);
    let waker = thread.waker();
    let (own, mut left) = (waker.clone(), 3);
    let task = Steps(move |_| {
        left -= 1;
        own.set();
        if left == 0 { Next::Finished } else { Next::At(Nanos::NEVER) }
    });
    waker.add("task", task).unwrap().join();
    assert!(thread.tasks().is_empty());
}

#[test]
fn a_task_may_add_another_one() {
    let clock = ManualClock::new();
    let thread = Arc::new(start(&clock));
    let (report, reported) = steps();
    let (inner, outer) = (Arc::clone(&thread), thread.waker());
    let task = Steps(move |_| {
        add_periodic(&inner, "inner", SECOND, &report);
        Next::Finished
    });
    outer.add("outer", task).unwrap().join();
    assert_eq!(reported.recv(), Ok(("inner", at(0))));
}

#[test]
fn a_stopped_thread_takes_tasks_until_its_last_one_has_left() {
    let clock = ManualClock::new();
    let thread = start(&clock);
    let stop = Arc::new(AtomicBool::new(false));
    let (waker, stopping) = (thread.waker(), Arc::clone(&stop));
    let task = Steps(move |_| if stopping.load(SeqCst) { Next::Finished } else { Next::At(Nanos::NEVER) });
    let joiner = waker.add("task", task).unwrap();
    thread.stop();
    thread.waker().add("late", Steps(|_| Next::Finished)).unwrap().join();
    assert_eq!(thread.tasks(), ["task"]);
    stop.store(true, SeqCst);
    waker.set();
    joiner.join();
    let refused = thread.waker().add("too late", Steps(|_| Next::Finished)).unwrap_err();
    assert_eq!(refused.to_string(), "its task thread has been stopped");
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_task_that_panics_leaves_and_the_others_stay() {
    let clock = ManualClock::new();
    let thread = start(&clock);
    let (report, reported) = steps();
    let _other = add_periodic(&thread, "other", SECOND, &report);
    reported.recv().unwrap();
    let waker = thread.waker();
    waker.add("broken", Steps(|_| panic!("out of luck"))).unwrap().join();
    assert_eq!(thread.tasks(), ["other"]);
    clock.wait_for_sleepers(1);
    clock.advance(SECOND);
    assert_eq!(reported.recv(), Ok(("other", at(1))));
}

/// A logger that panics at each line about the task `unloggable`.
struct PanickingLogger;

impl log::Log for PanickingLogger {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        assert!(!record.args().to_string().contains("unloggable"), "the logger is out of order");
    }

    fn flush(&self) {}
}

/// A task that panics in its step and in its drop.
struct Broken;

impl Task for Broken {
    fn step(&mut self, _now: Nanos) -> Next {
        panic!("out of luck");
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        panic!("out of luck again");
    }
}

#[test]
fn a_panic_of_the_logger_or_of_a_drop_leaves_the_other_tasks() {
    log::set_logger(&PanickingLogger).unwrap();
    log::set_max_level(log::LevelFilter::Error);
    let clock = ManualClock::new();
    let thread = start(&clock);
    let (report, reported) = steps();
    let (other, _) = add_periodic(&thread, "other", SECOND, &report);
    reported.recv().unwrap();
    thread.waker().add("unloggable", Broken).unwrap().join();
    assert_eq!(thread.tasks(), ["other"]);
    other.set();
    assert_eq!(reported.recv(), Ok(("other", at(0))));
}

#[test]
fn a_task_that_is_always_due_does_not_keep_the_others_from_their_steps() {
    let thread = TaskThread::new("tasks".to_owned(), ThreadOptions::new(), Clock::system());
    let (report, reported) = steps();
    let always = Steps(Next::At);
    let _always = thread.waker().add("always", always).unwrap();
    let (other, _) = add_periodic(&thread, "other", Duration::MAX, &report);
    for _ in 0..3 {
        assert_eq!(reported.recv().unwrap().0, "other");
        other.set();
    }
    // The thread ends with the process.
    std::mem::forget(thread);
}

#[test]
fn a_task_does_not_wait_for_its_own_thread() {
    let clock = ManualClock::new();
    let thread = start(&clock);
    let (report, reported) = steps();
    let (_, other) = add_periodic(&thread, "other", SECOND, &report);
    reported.recv().unwrap();
    let (waker, mut own) = (thread.waker(), Some((thread, other)));
    let (left, seen) = channel();
    let task = Steps(move |_| {
        let (thread, other) = own.take().unwrap();
        other.join();
        left.send(thread.tasks()).unwrap();
        drop(thread);
        Next::Finished
    });
    waker.add("task", task).unwrap().join();
    assert_eq!(seen.recv().unwrap(), ["other", "task"]);
}

#[test]
fn a_call_aside_delays_neither_the_tasks_nor_another_call_and_runs_here_without_a_thread() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let options = ThreadOptions::new().refusing(Arc::clone(&refusals));
    let thread = TaskThread::new("tasks".to_owned(), options, Clock::system());
    let ((say, said), (release, released)) = (channel(), channel::<()>());
    let waker = thread.waker();
    let (caller, blocked) = (waker.clone(), say.clone());
    let mut released = Some(released);
    let name = || std::thread::current().name().unwrap_or_default().to_owned();
    let task = Steps(move |_| {
        if let Some(released) = released.take() {
            let (blocked, part) = (blocked.clone(), blocked.clone());
            let call = move || {
                blocked.send(name()).unwrap();
                // Ends with the drop of the sender.
                let _ = released.recv();
            };
            caller.call_aside(false, "one", call, Box::new(part));
            return Next::At(Nanos::NEVER);
        }
        for (thread, refused) in [("two", 0), ("three", 1)] {
            refusals.store(refused, SeqCst);
            let say = say.clone();
            caller.call_aside(false, thread, move || say.send(name()).unwrap(), Box::new(()));
        }
        Next::Finished
    });
    let joiner = waker.add("task", task).unwrap();
    assert_eq!(said.recv().unwrap(), "one");
    waker.set();
    joiner.join();
    let mut names = [said.recv().unwrap(), said.recv().unwrap()];
    names.sort_unstable();
    assert_eq!(names, ["tasks", "two"]);
    drop(release);
    // The parts of the calls have the last senders.
    assert!(said.recv().is_err());
}

#[test]
fn in_a_call_aside_a_task_is_joined_at_once_and_the_thread_ends_without_the_call() {
    let thread = TaskThread::new("tasks".to_owned(), ThreadOptions::new(), Clock::system());
    let ((say, said), waker) = (channel(), thread.waker());
    let (caller, endless) = (waker.clone(), thread.waker());
    let other = endless.add("endless", Steps(|_| Next::At(Nanos::NEVER))).unwrap();
    let mut calls = Some((other, thread));
    let task = Steps(move |_| {
        let ((other, thread), say) = (calls.take().unwrap(), say.clone());
        let call = move || {
            assert!(other.is_current());
            other.join();
            drop(thread);
            say.send(()).unwrap();
        };
        caller.call_aside(false, "call", call, Box::new(()));
        Next::Finished
    });
    drop(waker.add("task", task).unwrap());
    assert_eq!(said.recv(), Ok(()));
}
