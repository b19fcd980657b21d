//! Deadlines and cancellation: reports of overruns, contexts, and the cancellation of tokens.

use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::queue::KeyState;
use homeostat::run::Cancelled;
use homeostat::{Action, BoxError, CancellationToken, Clock, Context, Enqueue, Exponential, ManualClock, Workers};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{ALLOWANCE, SECOND, held, just_before, stage};

type Outcome = Result<Action, BoxError>;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A worker and its watchdog.
const IDLE: usize = 2;

#[test]
fn an_overrun_is_reported_while_the_run_still_blocks() {
    let logs = Logs::of("slow-workers");
    let (clock, queue) = held();
    let (runs, director) = stage();
    // The run does not use its context, so there is no token to cancel.
    let reconcile = move |_cx: &Context, key: &&'static str| -> Outcome {
        runs.enter(*key);
        Ok(Action::await_change())
    };
    let workers =
        Workers::new(reconcile).name("slow-workers").threads(2).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    clock.wait_for_sleepers(3);
    queue.enqueue("vm");
    assert_eq!(director.next(), "vm");
    clock.wait_for_sleepers(2);
    clock.advance(just_before(TIMEOUT + ALLOWANCE));
    clock.wait_for_sleepers(2);
    assert_eq!((workers.overdue(), workers.metrics().overruns), (vec![], 0));
    clock.advance(Duration::from_nanos(1));
    let line = logs.wait_for(Level::Warn, "passed its deadline and still runs");
    assert_eq!((line.field("key"), line.field("timeout")), ("\"vm\"", "10s"));
    assert_eq!(workers.overdue(), [line.field("thread")]);
    assert_eq!((workers.metrics().overruns, workers.metrics().active), (1, 1));
    // A run is reported once, however long it lasts. Its key stays claimed.
    clock.advance(10 * TIMEOUT);
    clock.wait_for_sleepers(2);
    assert_eq!(workers.metrics().overruns, 1);
    assert!(matches!(queue.state("vm"), KeyState::Processing(_)));
    director.cue();
    clock.wait_for_sleepers(3);
    assert_eq!((workers.overdue(), workers.metrics().overruns, workers.metrics().successes), (vec![], 1, 1));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_run_that_ends_once_it_is_cancelled_has_timed_out_and_is_no_overrun() {
    let logs = Logs::of("prompt-workers");
    let (clock, queue) = held();
    let (begun, entered) = crossbeam_channel::bounded(0);
    let reconcile = move |cx: &Context, _: &&'static str| -> Outcome {
        let token = cx.token();
        begun.send(())?;
        token.wait();
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).name("prompt-workers").reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    for _ in 0..20 {
        queue.enqueue("vm");
        entered.recv().unwrap();
        clock.wait_for_sleepers(1);
        clock.advance(TIMEOUT);
        clock.wait_for_sleepers(IDLE);
        // It does not become an overrun later.
        clock.advance(TIMEOUT);
    }
    let metrics = workers.metrics();
    assert_eq!((metrics.overruns, metrics.timeouts, metrics.successes), (0, 20, 20));
    assert_eq!(logs.at(Level::Warn), []);
}

#[test]
fn every_thread_that_overruns_is_named() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let reconcile = move |_cx: &Context, key: &&'static str| -> Outcome {
        runs.enter(*key);
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).name("all").threads(3).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    clock.wait_for_sleepers(4);
    for (index, key) in ["a", "b", "c"].into_iter().enumerate() {
        queue.enqueue(key);
        assert_eq!(director.next(), key);
        // The sleepers are the watchdog and the idle threads.
        clock.wait_for_sleepers(3 - index);
        clock.advance(SECOND);
    }
    // The runs began a second apart and overrun a second apart, although the watchdog was asleep at the first
    // overrun.
    clock.advance(7 * SECOND + ALLOWANCE);
    for overdue in 1..=3 {
        clock.wait_for_sleepers(1);
        assert_eq!((workers.overdue().len(), workers.metrics().overruns), (overdue, overdue as u64));
        clock.advance(SECOND);
    }
    assert_eq!(workers.overdue(), ["all-0", "all-1", "all-2"]);
    drop(director);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_deadline_cancels_callbacks_tokens_and_sleeps_at_its_time() {
    let (clock, queue) = held();
    let start = clock.now();
    let (report, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        assert_eq!((cx.deadline(), cx.remaining()), (Some(start + TIMEOUT), Some(TIMEOUT)));
        assert_eq!((cx.check(), cx.is_cancelled()), (Ok(()), false));
        assert_eq!(cx.sleep(SECOND), Ok(()));
        assert_eq!(cx.remaining(), Some(9 * SECOND));
        let (callback, clock) = (report.clone(), cx.clock().clone());
        // The callback is detached: the run may see the cancellation, return and drop a guard before the callback is
        // called.
        cx.on_cancel(move || callback.send(("callback", clock.now() - start)).expect("the test listens")).detach();
        let child = cx.token().child();
        assert_eq!(cx.sleep(Duration::MAX), Err(Cancelled::DeadlineExceeded));
        report.send(("sleep", cx.clock().now() - start))?;
        child.wait();
        assert_eq!((cx.check(), cx.remaining()), (Err(Cancelled::DeadlineExceeded), Some(Duration::ZERO)));
        assert_eq!(cx.sleep(SECOND), Err(Cancelled::DeadlineExceeded));
        cx.check()?;
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile)
        .reconcile_timeout(TIMEOUT)
        .retry(Exponential::default().max_retries(0))
        .start(&queue)
        .unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(2);
    clock.advance(SECOND);
    clock.wait_for_sleepers(2);
    clock.advance(just_before(9 * SECOND));
    clock.wait_for_sleepers(2);
    assert!(seen.is_empty());
    clock.advance(Duration::from_nanos(1));
    let mut report = [seen.recv().unwrap(), seen.recv().unwrap()];
    report.sort();
    assert_eq!(report, [("callback", TIMEOUT), ("sleep", TIMEOUT)]);
    clock.wait_for_sleepers(IDLE);
    // A run that passes its deadline and returns an error has failed.
    assert_eq!((workers.metrics().drops, workers.metrics().panics, workers.metrics().aborted), (1, 0, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_token_asked_for_after_the_deadline_is_cancelled() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let (report, seen) = unbounded();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        runs.enter(*key);
        report.send(cx.token().is_cancelled())?;
        let called = report.clone();
        let _guard = cx.on_cancel(move || called.send(true).expect("the test listens"));
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    queue.enqueue("vm");
    director.next();
    clock.advance(TIMEOUT);
    director.cue();
    assert_eq!((seen.recv().unwrap(), seen.recv().unwrap()), (true, true));
    clock.wait_for_sleepers(IDLE);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_token_of_an_ended_run_ignores_the_deadline_of_a_later_run() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let (gave, tokens) = unbounded::<CancellationToken>();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        gave.send(cx.token().clone())?;
        runs.enter(*key);
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    queue.enqueue("in time");
    director.next();
    director.cue();
    clock.wait_for_sleepers(IDLE);
    queue.enqueue("late");
    director.next();
    clock.wait_for_sleepers(1);
    clock.advance(TIMEOUT);
    let (in_time, late) = (tokens.recv().unwrap(), tokens.recv().unwrap());
    late.wait();
    assert!(!in_time.is_cancelled());
    director.cue();
    clock.wait_for_sleepers(IDLE);
    // An abort cancels a token that outlives its run.
    workers.abort();
    assert!(in_time.is_cancelled());
    workers.join().unwrap();
}

#[test]
fn without_a_timeout_a_run_sleeps_for_its_full_time() {
    let (clock, queue) = held();
    let (report, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        report.send((cx.sleep(1000 * TIMEOUT), cx.deadline(), cx.remaining()))?;
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    clock.advance(just_before(1000 * TIMEOUT));
    assert_eq!((clock.sleepers(), seen.len()), (1, 0));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(seen.recv().unwrap(), (Ok(()), None, None));
    clock.wait_for_sleepers(1);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn an_aborted_run_sees_the_abort_and_its_key_returns_unchanged() {
    let (clock, queue) = held();
    let (report, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        if cx.attempt() < 3 {
            return Err("no answer".into());
        }
        assert_eq!(cx.check(), Ok(()));
        let slept = cx.sleep(Duration::MAX);
        report.send((slept, cx.check(), cx.attempt()))?;
        slept?;
        Ok(Action::await_change())
    };
    let retry = Exponential::new(SECOND, SECOND).jitter(0.0);
    let workers = Workers::new(reconcile).retry(retry.clone()).reconcile_timeout(TIMEOUT).start(&queue).unwrap();
    queue.because(homeostat::Reasons::MANUAL).enqueue("vm");
    for _ in 0..2 {
        clock.wait_for_sleepers(IDLE);
        clock.advance(SECOND);
    }
    clock.wait_for_sleepers(IDLE);
    workers.abort();
    let aborted = Err(Cancelled::Aborted);
    assert_eq!(seen.recv().unwrap(), (aborted, aborted, 3));
    workers.join().unwrap();
    assert_eq!(queue.state("vm"), KeyState::Ready(homeostat::Priority::Normal));
    let claim = queue.try_dequeue().unwrap();
    assert_eq!((claim.failures(), claim.reasons()), (2, homeostat::Reasons::RETRY));
    claim.done();
}

#[test]
fn an_aborted_run_may_still_succeed() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let reconcile = move |_cx: &Context, key: &&'static str| -> Outcome {
        runs.enter(*key);
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    queue.enqueue("vm");
    director.next();
    workers.abort();
    director.cue();
    workers.join().unwrap();
    assert_eq!(queue.state("vm"), KeyState::Idle);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_context_of_no_run_is_never_cancelled() {
    let cx = Context::detached();
    assert_eq!((cx.check(), cx.deadline(), cx.remaining(), cx.attempt()), (Ok(()), None, None, 1));
    assert_eq!(cx.sleep(Duration::ZERO), Ok(()));
    assert!(!cx.token().is_cancelled());
}

#[test]
fn a_token_that_is_cancelled_by_its_user_cuts_no_sleep_short() {
    let clock = ManualClock::new();
    let cx = Context::detached_with(clock.clock(), CancellationToken::new());
    cx.token().cancel();
    std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| cx.sleep(SECOND));
        clock.wait_for_sleepers(1);
        clock.advance(just_before(SECOND));
        assert_eq!(clock.sleepers(), 1);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(sleeping.join().unwrap(), Ok(()));
    });
}

/// A child token reads as cancelled before its parent does. The run checks both.
#[test]
fn a_run_that_sees_its_token_cancelled_fails_its_check() {
    for _ in 0..20 {
        let abort = CancellationToken::new();
        // Many children make the cancellation slow.
        let before: Vec<_> = (0..2_000).map(|_| abort.child()).collect();
        let cx = Context::detached_with(Clock::system(), abort.clone());
        let token = cx.token().clone();
        let after: Vec<_> = (0..2_000).map(|_| abort.child()).collect();
        std::thread::scope(|scope| {
            let cx = &cx;
            scope.spawn(move || {
                while !token.is_cancelled() {}
                assert_eq!(cx.check(), Err(Cancelled::Aborted));
            });
            abort.cancel();
        });
        drop((before, after));
    }
    let cx = Context::detached();
    cx.token().cancel();
    assert_eq!(cx.check(), Ok(()), "cancelling the run's own token does not end the run");
}
