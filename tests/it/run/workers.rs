//! Workers: their threads, actions, contexts and log lines.

use std::thread;
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::queue::KeyState;
use homeostat::{
    Action, BoxError, Context, Enqueue, Exponential, ManualClock, Poller, Priority, Reasons, ThreadOptions, WorkQueue,
    Workers,
};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{SECOND, held, just_before, stage};
use homeostat::base::StartErrorKind;

type Outcome = Result<Action, BoxError>;

#[test]
fn threads_have_the_name_of_their_workers_and_the_given_options() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let (started, hooked) = unbounded();
    let options = ThreadOptions::new().stack_size(256 * 1024).on_start(move |name| {
        assert_eq!(thread::current().name(), Some(name));
        started.send(name.to_owned()).unwrap();
    });
    let reconcile = move |_cx: &Context, _key: &&str| -> Outcome {
        runs.enter(thread::current().name().unwrap_or_default().to_owned());
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile)
        .name("vm")
        .threads(3)
        .reconcile_timeout(SECOND)
        .thread_options(options)
        .start(&queue)
        .unwrap();
    // Each run blocks, so three keys need three threads.
    for key in ["a", "b", "c"] {
        queue.enqueue(key);
    }
    let mut inside: Vec<_> = (0..3).map(|_| director.next()).collect();
    inside.sort();
    assert_eq!(inside, ["vm-0", "vm-1", "vm-2"]);
    assert_eq!((workers.metrics().active, workers.metrics().runs()), (3, 0));
    drop(director);
    clock.wait_for_sleepers(4);
    assert_eq!((workers.metrics().active, workers.metrics().runs()), (0, 3));
    let mut hooked: Vec<_> = hooked.try_iter().collect();
    hooked.sort();
    assert_eq!(hooked, ["vm-0", "vm-1", "vm-2", "vm-watchdog"]);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn workers_serve_keys_although_their_start_hooks_panic() {
    let (clock, queue) = held();
    let options = ThreadOptions::new().on_start(|_| panic!("no such priority"));
    let (ran, seen) = unbounded();
    let reconcile = move |_cx: &Context, key: &&'static str| -> Outcome {
        ran.send(*key)?;
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).threads(3).reconcile_timeout(SECOND).thread_options(options);
    let mut workers = workers.start(&queue).unwrap();
    // These are three workers and their watchdog.
    clock.wait_for_sleepers(4);
    queue.enqueue("vm");
    assert_eq!(seen.recv().unwrap(), "vm");
    workers.stop();
    workers.join_timeout(Duration::MAX).unwrap();
}

#[test]
fn zero_threads_and_a_timeout_of_zero_are_refused_by_name_and_value() {
    let queue = WorkQueue::<&str>::new();
    let error = Workers::new(quiet).threads(0).start(&queue).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
    assert_eq!(error.to_string(), "threads is 0, but must be at least 1");
    let error = Workers::new(quiet).reconcile_timeout(Duration::ZERO).start(&queue).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
    assert_eq!(error.to_string(), "reconcile_timeout is 0ns, but must be longer than zero");
}

/// No address space is large enough for such a stack.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_thread_that_the_system_refuses_is_an_error_that_names_it() {
    let queue = WorkQueue::<&str>::new();
    let options = ThreadOptions::new().stack_size(1 << 60);
    let error = Workers::new(quiet).name("huge").thread_options(options).start(&queue).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::Thread);
    assert_eq!(error.to_string(), "the system cannot start thread huge-0");
}

#[test]
fn awaiting_a_change_leaves_the_key_idle() {
    let (clock, queue) = held();
    let workers = Workers::new(quiet).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Idle);
    let metrics = workers.metrics();
    assert_eq!((metrics.successes, metrics.runs(), metrics.errors()), (1, 1, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_requeue_comes_after_its_delay_and_not_before() {
    let (clock, queue) = held();
    let start = clock.now();
    let (ran, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&str| -> Outcome {
        ran.send((cx.clock().now() - start, cx.reasons(), cx.attempt()))?;
        Ok(Action::requeue_after(5 * SECOND))
    };
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    queue.because(Reasons::MANUAL).enqueue("vm");
    assert_eq!(seen.recv().unwrap(), (Duration::ZERO, Reasons::MANUAL, 1));
    for n in 1..4 {
        clock.wait_for_sleepers(1);
        clock.advance(just_before(5 * SECOND));
        clock.wait_for_sleepers(1);
        assert!(seen.is_empty());
        clock.advance(Duration::from_nanos(1));
        assert_eq!(seen.recv().unwrap(), (n * 5 * SECOND, Reasons::REQUEUE, 1));
    }
    clock.wait_for_sleepers(1);
    assert_eq!((workers.metrics().requeues, workers.metrics().errors()), (4, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_requeue_without_a_delay_goes_to_the_tail_of_the_queue() {
    let (clock, queue) = held();
    let (ran, seen) = unbounded();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        ran.send(*key)?;
        let again = *key == "a" && !cx.reasons().contains(Reasons::REQUEUE);
        Ok(if again { Action::requeue_after(Duration::ZERO) } else { Action::await_change() })
    };
    for key in ["a", "b"] {
        queue.enqueue(key);
    }
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    clock.wait_for_sleepers(1);
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["a", "b", "a"]);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_run_knows_its_reasons_its_priority_and_the_queue_time_of_its_key() {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).timing(true).build();
    let (asked, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&str| -> Outcome {
        asked.send((cx.reasons(), cx.priority(), cx.queued_for(), cx.attempt(), cx.deadline(), cx.remaining()))?;
        Ok(Action::await_change())
    };
    queue.because(Reasons::EVENT).enqueue("vm");
    clock.advance(2 * SECOND);
    queue.at(Priority::High).because(Reasons::user(3)).enqueue("vm");
    clock.advance(SECOND);
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    let reasons = Reasons::EVENT | Reasons::user(3);
    // The higher priority has moved the key to the tail of that level, but its queue time of three seconds still
    // counts.
    let (why, lane, queued, attempt, deadline, remaining) = seen.recv().unwrap();
    assert_eq!((why, lane, queued, attempt), (reasons, Priority::High, Some(3 * SECOND), 1));
    assert_eq!((deadline, remaining), (None, None));
    workers.shutdown(Duration::ZERO).unwrap();
}

/// Workers turn on the timing of their queue.
#[test]
fn workers_turn_on_the_queue_time_of_their_queue() {
    let (clock, queue) = held();
    let (asked, seen) = unbounded();
    let (go_on, gate) = unbounded();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        asked.send((*key, cx.queued_for()))?;
        gate.recv()?;
        Ok(Action::await_change())
    };
    queue.enqueue("before");
    clock.advance(2 * SECOND);
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    assert_eq!(seen.recv().unwrap(), ("before", Some(Duration::ZERO)));
    queue.enqueue("meanwhile");
    clock.advance(3 * SECOND);
    go_on.send(()).unwrap();
    assert_eq!(seen.recv().unwrap(), ("meanwhile", Some(3 * SECOND)));
    go_on.send(()).unwrap();
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn workers_log_each_event_at_its_level() {
    let logs = Logs::of("talking-workers");
    let (clock, queue) = held();
    let reconcile = |_cx: &Context, key: &&'static str| -> Outcome {
        match *key {
            "calm" => Ok(Action::await_change()),
            "again" => Ok(Action::requeue_after(SECOND)),
            _ => Err("it is broken".into()),
        }
    };
    for key in ["calm", "again", "broken"] {
        queue.enqueue(key);
    }
    let workers = Workers::new(reconcile)
        .name("talking-workers")
        .retry(Exponential::default().max_retries(0))
        .start(&queue)
        .unwrap();
    clock.wait_for_sleepers(1);
    workers.shutdown(Duration::ZERO).unwrap();
    let report = logs.all();
    let report: Vec<_> = report.iter().map(|line| (line.level, line.message.as_str(), line.field("key"))).collect();
    assert_eq!(
        report,
        [
            (Level::Info, "talking-workers: the workers start, threads: 1, queue: queue", ""),
            (Level::Trace, "talking-workers: reconciling \"calm\" on talking-workers-0", "\"calm\""),
            (Level::Debug, "talking-workers: reconciled \"calm\"", "\"calm\""),
            (Level::Trace, "talking-workers: reconciling \"again\" on talking-workers-0", "\"again\""),
            (Level::Debug, "talking-workers: reconciled \"again\", to run again in 1s", "\"again\""),
            (Level::Trace, "talking-workers: reconciling \"broken\" on talking-workers-0", "\"broken\""),
            (
                Level::Warn,
                "talking-workers: reconcile of \"broken\" failed, parked until its next request (failure 1): it is broken",
                "\"broken\""
            ),
            (Level::Info, "talking-workers: the workers have ended", ""),
        ]
    );
    assert_eq!(logs.at(Level::Warn)[0].field("error"), "it is broken");
    assert_eq!(logs.at(Level::Trace)[0].field("thread"), "talking-workers-0");
}

#[test]
fn workers_a_poller_and_their_queue_end_in_every_order_of_drops() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (_clock, queue) = held();
        let (ran, runs) = unbounded();
        let reconcile = move |_cx: &Context, _key: &&str| -> Outcome {
            ran.send(())?;
            Ok(Action::requeue_after(SECOND))
        };
        let workers = Workers::new(reconcile).threads(2).reconcile_timeout(SECOND).start(&queue).unwrap();
        let list = |_cx: &Context| -> Result<Vec<&'static str>, BoxError> { Ok(vec!["a", "b", "c"]) };
        let poller = Poller::new(SECOND, list).clock(queue.clock()).start(&queue).unwrap();
        for () in runs.iter().take(3) {}
        let (mut queue, mut workers, mut poller) = (Some(queue), Some(workers), Some(poller));
        for part in order {
            match part {
                0 => drop(queue.take()),
                1 => drop(workers.take()),
                _ => drop(poller.take()),
            }
        }
        // The last sender is dropped with the last thread.
        while runs.recv().is_ok() {}
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a reconciler returns a result")]
fn quiet(_cx: &Context, _key: &&'static str) -> Outcome {
    Ok(Action::await_change())
}
