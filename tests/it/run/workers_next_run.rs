//! Independence of consecutive runs on one thread, although they share a context and a worker slot.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::{Action, BoxError, CancellationToken, Context, Enqueue, Exponential, Priority, Reasons, Workers};

use crate::stages::{ALLOWANCE, SECOND, held, just_before, stage};

type Outcome = Result<Action, BoxError>;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A worker and its watchdog.
const IDLE: usize = 2;

#[test]
fn a_run_sees_no_state_of_the_previous_run_however_it_ended() {
    let (clock, queue) = held();
    let start = clock.now();
    let (report, seen) = unbounded::<(CancellationToken, Weak<()>)>();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        if *key == "next" {
            assert_eq!((cx.attempt(), cx.priority(), cx.reasons()), (1, Priority::Low, Reasons::POLL));
            assert_eq!((cx.queued_for(), cx.remaining()), (Some(Duration::ZERO), Some(TIMEOUT)));
            assert_eq!(cx.deadline(), Some(cx.clock().now() + TIMEOUT));
            assert!(cx.check().is_ok() && !cx.token().is_cancelled());
            return Ok(Action::await_change());
        }
        assert_eq!((cx.priority(), cx.reasons(), cx.remaining()), (Priority::High, Reasons::EVENT, Some(TIMEOUT)));
        let kept = Arc::new(());
        let gone = Arc::downgrade(&kept);
        cx.on_cancel(move || drop(kept)).detach();
        report.send((cx.token().child(), gone))?;
        match *key {
            "ok" => Ok(Action::await_change()),
            "error" => Err("no answer".into()),
            "panic" => panic!("out of luck"),
            "cancelled" => {
                cx.token().cancel();
                Ok(Action::await_change())
            }
            other => unreachable!("{other}"),
        }
    };
    let workers = Workers::new(reconcile)
        .reconcile_timeout(TIMEOUT)
        .retry(Exponential::default().max_retries(0))
        .start(&queue)
        .unwrap();
    for (round, key) in (0_u32..).zip(["ok", "error", "panic", "cancelled"]) {
        clock.wait_for_sleepers(IDLE);
        assert_eq!(clock.now(), start + round * SECOND);
        queue.at(Priority::High).because(Reasons::EVENT).enqueue(key);
        queue.at(Priority::Low).because(Reasons::POLL).enqueue("next");
        let (child, gone) = seen.recv().unwrap();
        clock.wait_for_sleepers(IDLE);
        assert_eq!(child.is_cancelled(), key == "cancelled");
        drop(child);
        // Only the run held its token, so the token was dropped with the run.
        assert!(gone.upgrade().is_none(), "{key}");
        clock.advance(SECOND);
    }
    let metrics = workers.metrics();
    assert_eq!((metrics.successes, metrics.drops, metrics.panics, metrics.active), (6, 2, 1, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_token_of_a_run_is_dropped_when_the_run_ends() {
    let (clock, queue) = held();
    let (report, seen) = unbounded::<Weak<()>>();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        let kept = Arc::new(());
        report.send(Arc::downgrade(&kept))?;
        cx.on_cancel(move || drop(kept)).detach();
        Ok(Action::await_change())
    };
    for timeout in [None, Some(TIMEOUT)] {
        let workers = Workers::new(reconcile.clone());
        let workers = match timeout {
            None => workers,
            Some(timeout) => workers.reconcile_timeout(timeout),
        };
        let workers = workers.start(&queue).unwrap();
        queue.enqueue("vm");
        clock.wait_for_sleepers(1 + usize::from(timeout.is_some()));
        assert!(seen.recv().unwrap().upgrade().is_none());
        workers.shutdown(Duration::ZERO).unwrap();
    }
}

#[test]
fn an_overdue_run_leaves_the_next_one_alone() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let (gave, tokens) = unbounded::<CancellationToken>();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        gave.send(cx.token().clone())?;
        runs.enter(*key);
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    queue.enqueue("late");
    queue.enqueue("in time");
    assert_eq!(director.next(), "late");
    let late = tokens.recv().unwrap();
    clock.wait_for_sleepers(1);
    clock.advance(TIMEOUT + ALLOWANCE);
    late.wait();
    clock.wait_for_sleepers(1);
    assert_eq!(workers.overdue(), ["worker-0"]);
    director.cue();
    assert_eq!(director.next(), "in time");
    let in_time = tokens.recv().unwrap();
    assert_eq!((workers.overdue(), workers.metrics().active), (vec![], 1));
    // The clock moves to just before the run's own deadline.
    clock.wait_for_sleepers(1);
    clock.advance(just_before(TIMEOUT));
    clock.wait_for_sleepers(1);
    assert!(!in_time.is_cancelled());
    director.cue();
    clock.wait_for_sleepers(IDLE);
    assert_eq!((workers.metrics().overruns, workers.metrics().successes), (1, 2));
    workers.shutdown(Duration::ZERO).unwrap();
}

/// A thread that a run has started may be the first one to use the token.
#[test]
fn a_token_requested_on_another_thread_belongs_to_the_run() {
    let (clock, queue) = held();
    let (report, seen) = unbounded::<CancellationToken>();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                report.send(cx.token().clone())?;
                if *key == "late" {
                    cx.token().wait();
                }
                Ok(Action::await_change())
            });
            waiting.join().expect("it does not panic")
        })
    };
    let workers = Workers::new(reconcile).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    queue.enqueue("late");
    let late = seen.recv().unwrap();
    clock.wait_for_sleepers(1);
    clock.advance(TIMEOUT);
    clock.wait_for_sleepers(IDLE);
    assert!(late.is_cancelled());
    queue.enqueue("in time");
    assert!(!seen.recv().unwrap().is_cancelled());
    clock.wait_for_sleepers(IDLE);
    clock.advance(TIMEOUT);
    assert_eq!((workers.metrics().timeouts, workers.metrics().successes), (1, 2));
    workers.shutdown(Duration::ZERO).unwrap();
}
