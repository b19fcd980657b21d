//! The end of workers: stop, abort, shutdown, drop, detach, and the end of their queue.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use homeostat::queue::KeyState;
use homeostat::run::{Cancelled, WorkersControl};
use homeostat::{Action, BoxError, Context, Enqueue, EnqueueOutcome, Priority, Shutdown, WorkQueue, Workers};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{Director, SECOND, held, just_before, stage};
use homeostat::Running;

type Outcome = Result<Action, BoxError>;

/// Starts workers with runs that wait for their cue.
fn staged(
    queue: &WorkQueue<&'static str>,
    name: &str,
    threads: usize,
) -> (Running<WorkersControl>, Director<&'static str>) {
    let (runs, director) = stage();
    let reconcile = move |_cx: &Context, key: &&'static str| -> Outcome {
        runs.enter(*key);
        Ok(Action::await_change())
    };
    (Workers::new(reconcile).name(name).threads(threads).start(queue).expect("settings in range"), director)
}

/// Starts workers with runs that sleep until they are cancelled, and then report the reason.
fn sleeping(
    queue: &WorkQueue<&'static str>,
    name: &str,
    grace: Duration,
) -> (Running<WorkersControl>, Receiver<Result<(), Cancelled>>) {
    let (report, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        let slept = cx.sleep(Duration::MAX);
        report.send(slept)?;
        slept?;
        Ok(Action::await_change())
    };
    (Workers::new(reconcile).name(name).shutdown_grace(grace).start(queue).expect("settings in range"), seen)
}

#[test]
fn stopped_workers_finish_their_runs_and_take_no_further_key() {
    let (clock, queue) = held();
    let (workers, director) = staged(&queue, "stop", 2);
    for key in ["a", "b", "c"] {
        queue.enqueue(key);
    }
    let mut inside = [director.next(), director.next()];
    inside.sort_unstable();
    assert_eq!(inside, ["a", "b"]);
    workers.stop();
    director.cue();
    director.cue();
    workers.join().unwrap();
    assert!(director.is_quiet());
    assert_eq!(queue.state("c"), KeyState::Ready(Priority::Normal));
    assert_eq!((queue.len(), queue.metrics().processing, clock.sleepers()), (1, 0, 0));
}

#[test]
fn idle_workers_end_as_soon_as_they_are_stopped() {
    let (clock, queue) = held();
    let (mut workers, _director) = staged(&queue, "idle", 3);
    clock.wait_for_sleepers(3);
    workers.stop();
    workers.join_timeout(Duration::MAX).unwrap();
    assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
    queue.enqueue("vm");
    assert_eq!(queue.len(), 1);
}

#[test]
fn joining_for_a_time_names_the_threads_that_are_stuck_and_can_be_tried_again() {
    let (clock, queue) = held();
    let (mut workers, director) = staged(&queue, "stuck", 2);
    for key in ["a", "b"] {
        queue.enqueue(key);
        director.next();
    }
    workers.stop();
    for _ in 0..2 {
        thread::scope(|scope| {
            let joining = scope.spawn(|| workers.join_timeout(5 * SECOND));
            clock.wait_for_sleepers(1);
            clock.advance(just_before(5 * SECOND));
            clock.wait_for_sleepers(1);
            assert!(!joining.is_finished());
            clock.advance(Duration::from_nanos(1));
            let still = joining.join().unwrap().unwrap_err();
            assert_eq!(still.still_running(), ["stuck-0", "stuck-1"]);
            assert_eq!(still.to_string(), "still running: stuck-0, stuck-1");
        });
    }
    workers.abort();
    drop(director);
    workers.join_timeout(Duration::MAX).unwrap();
}

#[test]
fn joining_workers_that_have_not_been_stopped_names_them_all() {
    let (clock, queue) = held();
    let (mut workers, _director) = staged(&queue, "busy-waiting", 2);
    clock.wait_for_sleepers(2);
    let still = workers.join_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(still.still_running(), ["busy-waiting-0", "busy-waiting-1"]);
    workers.shutdown(SECOND).unwrap();
}

#[test]
fn a_shutdown_aborts_when_its_grace_is_over_and_not_before() {
    let logs = Logs::of("graceful");
    let (clock, queue) = held();
    let (workers, seen) = sleeping(&queue, "graceful", Duration::ZERO);
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    thread::scope(|scope| {
        let shutting_down = scope.spawn(|| workers.shutdown(5 * SECOND));
        clock.wait_for_sleepers(2);
        clock.advance(just_before(5 * SECOND));
        clock.wait_for_sleepers(2);
        assert!(seen.is_empty() && !shutting_down.is_finished());
        clock.advance(Duration::from_nanos(1));
        shutting_down.join().unwrap().unwrap();
    });
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [Err(Cancelled::Aborted)]);
    assert_eq!(queue.state("vm"), KeyState::Ready(Priority::Normal));
    let line = logs.wait_for(Level::Warn, "after the grace period");
    assert_eq!((line.field("grace"), line.field("still_running")), ("5s", "graceful-0"));
}

#[test]
fn a_shutdown_without_grace_of_idle_workers_is_no_cause_for_a_warning() {
    let logs = Logs::of("calm");
    let (clock, queue) = held();
    let (workers, _director) = staged(&queue, "calm", 4);
    clock.wait_for_sleepers(4);
    workers.shutdown(Duration::ZERO).unwrap();
    assert_eq!(logs.at(Level::Warn), []);
}

#[test]
fn dropped_workers_are_shut_down_with_the_builders_grace() {
    let (clock, queue) = held();
    let (workers, seen) = sleeping(&queue, "dropped", 3 * SECOND);
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(workers));
        clock.wait_for_sleepers(2);
        clock.advance(just_before(3 * SECOND));
        clock.wait_for_sleepers(2);
        assert!(seen.is_empty() && !dropping.is_finished());
        clock.advance(Duration::from_nanos(1));
        dropping.join().unwrap();
    });
    assert_eq!(seen.try_iter().count(), 1);
}

#[test]
fn detached_workers_serve_until_their_queue_is_shut_down() {
    let (clock, queue) = held();
    let (ran, runs) = unbounded();
    let reconcile = move |_cx: &Context, key: &&'static str| -> Outcome {
        ran.send(*key)?;
        Ok(Action::await_change())
    };
    Workers::new(reconcile).threads(2).reconcile_timeout(SECOND).start(&queue).unwrap().detach();
    queue.enqueue("vm");
    assert_eq!(runs.recv().unwrap(), "vm");
    clock.wait_for_sleepers(3);
    queue.shutdown(Shutdown::ServeReady);
    // The sender is dropped with the last thread.
    assert!(runs.recv().is_err());
}

#[test]
fn workers_end_once_their_queue_is_shut_down_and_served() {
    let (clock, queue) = held();
    let (mut workers, director) = staged(&queue, "served", 2);
    for key in ["a", "b", "c"] {
        queue.enqueue(key);
    }
    director.next();
    director.next();
    queue.shutdown(Shutdown::ServeReady);
    director.cue();
    director.next();
    director.cue();
    director.cue();
    workers.join_timeout(Duration::MAX).unwrap();
    assert_eq!(workers.metrics().successes, 3);
    assert!(queue.drain(Duration::ZERO).is_drained());
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn workers_end_once_the_last_handle_of_their_queue_is_dropped() {
    let (clock, queue) = held();
    let (mut workers, director) = staged(&queue, "last", 2);
    queue.enqueue("vm");
    queue.enqueue_after("later", SECOND);
    director.next();
    drop(queue.clone());
    clock.advance(SECOND);
    assert_eq!(director.next(), "later");
    drop(queue);
    drop(director);
    workers.join_timeout(Duration::MAX).unwrap();
    assert_eq!(workers.metrics().successes, 2);
}

#[test]
fn the_remaining_set_of_workers_continues_after_the_other_one_ends() {
    let (clock, queue) = held();
    let (one, _) = staged(&queue, "one", 2);
    clock.wait_for_sleepers(2);
    let (other, director) = staged(&queue, "other", 1);
    clock.wait_for_sleepers(3);
    one.shutdown(SECOND).unwrap();
    clock.wait_for_sleepers(1);
    assert_eq!(queue.enqueue("vm"), EnqueueOutcome::Queued);
    assert_eq!(director.next(), "vm");
    drop(director);
    other.shutdown(SECOND).unwrap();
}

/// A stopping thread must pass a wake on. With one queued key at a time, one lost wake leaves the producer waiting
/// for ever.
#[test]
fn stopping_one_set_of_workers_loses_no_wake_meant_for_the_other() {
    let queue = WorkQueue::<u64>::new();
    let (ran, runs) = unbounded();
    let reconcile = move |_cx: &Context, key: &u64| -> Outcome {
        ran.send(*key)?;
        Ok(Action::await_change())
    };
    let rounds = Arc::new(AtomicUsize::new(0));
    let stays = Workers::new(reconcile.clone()).name("stays").threads(2).start(&queue).unwrap();
    thread::scope(|scope| {
        let (done, is_done) = unbounded::<()>();
        let (queue, rounds) = (&queue, &rounds);
        scope.spawn(move || {
            while is_done.try_recv() != Err(crossbeam_channel::TryRecvError::Disconnected) {
                let comes = Workers::new(reconcile.clone()).name("comes").threads(2).start(queue).unwrap();
                comes.shutdown(SECOND).unwrap();
                rounds.fetch_add(1, SeqCst);
            }
        });
        let mut key = 0;
        while rounds.load(SeqCst) < 300 {
            queue.enqueue(key);
            assert_eq!(runs.recv().unwrap(), key);
            key += 1;
        }
        drop(done);
    });
    stays.shutdown(SECOND).unwrap();
    assert!(queue.is_empty());
}
