//! Retries after an error: policies, backoff, limits, early runs.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use homeostat::queue::KeyState;
use homeostat::run::{FailedRun, RetryAfter, WorkersControl, muted};
use homeostat::{
    Action, BoxError, Context, Enqueue, EnqueueOutcome, Exponential, Priority, Reasons, RetryPolicy, WorkQueue, Workers,
};
use log::Level;
use parking_lot::Mutex;

use crate::stages::logs::Logs;
use crate::stages::{SECOND, held, just_before, step};
use homeostat::Running;

type Outcome = Result<Action, BoxError>;

/// Starts workers that fail every run, and report its time and its attempt.
fn failing(
    queue: &WorkQueue<&'static str>,
    policy: impl RetryPolicy<&'static str> + 'static,
) -> (Running<WorkersControl>, Receiver<(Instant, u32)>) {
    let (report, tries) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        report.send((cx.clock().now(), cx.attempt()))?;
        Err("no answer".into())
    };
    let workers = Workers::new(reconcile).retry(policy).start(queue).expect("its settings are in range");
    (workers, tries)
}

#[test]
fn failed_runs_back_off_exponentially_up_to_the_maximum() {
    let (clock, queue) = held();
    let start = clock.now();
    let (workers, tries) = failing(&queue, Exponential::new(SECOND, 5 * SECOND).jitter(0.0));
    queue.enqueue("vm");
    for _ in 0..5 {
        step(&clock, &queue);
    }
    let seen: Vec<_> = tries.try_iter().map(|(at, attempt)| ((at - start).as_secs(), attempt)).collect();
    assert_eq!(seen, [(0, 1), (1, 2), (3, 3), (7, 4), (12, 5), (17, 6)]);
    assert_eq!((workers.metrics().retries, workers.metrics().drops), (6, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

/// The least delay of an error replaces shorter backoffs. The failures count on.
#[test]
fn a_retry_waits_for_the_least_delay_that_the_error_states() {
    let (clock, queue) = held();
    let start = clock.now();
    let (report, tries) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        report.send((cx.clock().now(), cx.attempt()))?;
        Err(muted(RetryAfter::new(4 * SECOND)).into())
    };
    let workers =
        Workers::new(reconcile).retry(Exponential::new(SECOND, 100 * SECOND).jitter(0.0)).start(&queue).unwrap();
    queue.enqueue("vm");
    for _ in 0..5 {
        step(&clock, &queue);
    }
    let seen: Vec<_> = tries.try_iter().map(|(at, attempt)| ((at - start).as_secs(), attempt)).collect();
    assert_eq!(seen, [(0, 1), (4, 2), (8, 3), (12, 4), (20, 5), (36, 6)]);
    assert_eq!((workers.metrics().retries, workers.metrics().requeues), (6, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_backoff_is_never_early() {
    let (clock, queue) = held();
    let (workers, tries) = failing(&queue, Exponential::new(SECOND, SECOND).jitter(0.0));
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    clock.advance(just_before(SECOND));
    clock.wait_for_sleepers(1);
    assert_eq!(tries.len(), 1);
    clock.advance(Duration::from_nanos(1));
    clock.wait_for_sleepers(1);
    assert_eq!(tries.len(), 2);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_key_is_dropped_after_exactly_its_retries_and_starts_over_when_it_is_enqueued() {
    for retries in [0, 1, 3] {
        let (clock, queue) = held();
        let (workers, tries) = failing(&queue, Exponential::new(SECOND, SECOND).jitter(0.0).max_retries(retries));
        for round in 1..=2 {
            queue.enqueue("vm");
            for _ in 0..retries + 2 {
                step(&clock, &queue);
            }
            assert_eq!(queue.state("vm"), KeyState::Idle);
            let attempts: Vec<_> = tries.try_iter().map(|(_, attempt)| attempt).collect();
            assert_eq!(attempts, (1..=retries + 1).collect::<Vec<_>>());
            let metrics = workers.metrics();
            assert_eq!((metrics.retries, metrics.drops), (round * u64::from(retries), round));
        }
        workers.shutdown(Duration::ZERO).unwrap();
    }
}

#[test]
fn a_success_in_between_sets_the_failures_to_zero() {
    let (clock, queue) = held();
    let (report, tries) = unbounded();
    let runs = Mutex::new(0);
    let reconcile = move |cx: &Context, _key: &&str| -> Outcome {
        report.send(cx.attempt())?;
        let mut runs = runs.lock();
        *runs += 1;
        if *runs == 3 { Ok(Action::requeue_after(SECOND)) } else { Err("no answer".into()) }
    };
    let workers = Workers::new(reconcile).retry(Exponential::new(SECOND, SECOND).jitter(0.0)).start(&queue).unwrap();
    queue.enqueue("vm");
    for _ in 0..4 {
        step(&clock, &queue);
    }
    assert_eq!(tries.try_iter().collect::<Vec<_>>(), [1, 2, 3, 1, 2]);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn failed_runs_back_off_exponentially_by_default() {
    let (clock, queue) = held();
    let (report, tries) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        report.send((cx.clock().now(), cx.attempt()))?;
        Err("no answer".into())
    };
    let workers = Workers::new(reconcile).start(&queue).unwrap();
    queue.enqueue("vm");
    let mut previous = tries.recv().unwrap();
    assert_eq!(previous.1, 1);
    for failures in 1..=5 {
        step(&clock, &queue);
        let next = tries.recv().unwrap();
        let least = Exponential::default().delay(failures).mul_f64(0.9);
        assert!(
            next.0 - previous.0 >= least && next.1 == failures + 1,
            "{:?} after {failures} failures",
            next.0 - previous.0
        );
        previous = next;
    }
    assert_eq!(workers.metrics().drops, 0);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn without_retries_a_failed_key_waits_for_its_feeder() {
    let logs = Logs::of("no-retry");
    let (clock, queue) = held();
    let reconcile = |_cx: &Context, _key: &&'static str| -> Outcome { Err("no answer".into()) };
    let workers =
        Workers::new(reconcile).name("no-retry").retry(Exponential::default().max_retries(0)).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Idle);
    assert_eq!(clock.next_alarm(), None);
    assert_eq!(workers.metrics().drops, 1);
    let line = logs.wait_for(Level::Warn, "parked");
    assert_eq!((line.field("key"), line.field("error"), line.field("failures")), ("\"vm\"", "no answer", "1"));
    assert_eq!(queue.enqueue_if_absent("vm"), EnqueueOutcome::Queued);
    clock.wait_for_sleepers(1);
    assert_eq!(workers.metrics().drops, 2);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_failure_that_is_not_retried_keeps_the_pending_rerun() {
    let (clock, queue) = held();
    let (ran, runs) = unbounded();
    let feeder = queue.clone();
    let reconcile = move |cx: &Context, key: &&'static str| -> Outcome {
        if cx.reasons().is_empty() {
            feeder.because(Reasons::EVENT).enqueue(*key);
        }
        ran.send(cx.reasons())?;
        Err("no answer".into())
    };
    let workers = Workers::new(reconcile).retry(Exponential::default().max_retries(0)).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(runs.try_iter().collect::<Vec<_>>(), [Reasons::NONE, Reasons::EVENT]);
    workers.shutdown(Duration::ZERO).unwrap();
}

/// Retries timeouts, and records its calls.
#[derive(Clone, Default)]
struct TimedOutOnly(Arc<Mutex<Vec<Asked>>>);

/// The key, the number of failures and the error.
type Asked = (&'static str, u32, String);

impl RetryPolicy<&'static str> for TimedOutOnly {
    fn decide(&self, failure: &FailedRun<'_, &'static str>) -> Option<Duration> {
        self.0.lock().push((failure.key, failure.failures, failure.error.to_string()));
        match failure.error.downcast_ref::<io::Error>() {
            Some(error) if error.kind() == io::ErrorKind::TimedOut => Some(SECOND * failure.failures),
            _ => None,
        }
    }
}

#[test]
fn a_user_defined_policy_sees_key_failures_and_error() {
    let (clock, queue) = held();
    let start = clock.now();
    let policy = TimedOutOnly::default();
    let (report, tries) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Result<Action, io::Error> {
        report.send(cx.clock().now() - start).expect("the test listens");
        Err(if cx.attempt() < 3 { io::ErrorKind::TimedOut } else { io::ErrorKind::NotFound }.into())
    };
    let workers = Workers::new(reconcile).retry(policy.clone()).start(&queue).unwrap();
    queue.enqueue("vm");
    for _ in 0..3 {
        step(&clock, &queue);
    }
    assert_eq!(tries.try_iter().collect::<Vec<_>>(), [Duration::ZERO, SECOND, 3 * SECOND]);
    let timed_out = io::Error::from(io::ErrorKind::TimedOut).to_string();
    let not_found = io::Error::from(io::ErrorKind::NotFound).to_string();
    assert_eq!(*policy.0.lock(), [("vm", 1, timed_out.clone()), ("vm", 2, timed_out), ("vm", 3, not_found)]);
    assert_eq!(queue.state("vm"), KeyState::Idle);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_run_brought_forward_out_of_a_backoff_does_not_raise_the_failures() {
    let (clock, queue) = held();
    let start = clock.now();
    let (workers, tries) = failing(&queue, Exponential::new(SECOND, 8 * SECOND).jitter(0.0).max_retries(2));
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    for _ in 0..5 {
        clock.advance(SECOND / 10);
        assert_eq!(queue.enqueue_now("vm"), EnqueueOutcome::Queued);
        clock.wait_for_sleepers(1);
    }
    // Each early run repeats the same backoff, counted from that run.
    assert_eq!(queue.state("vm"), KeyState::Delayed(Some(start + SECOND / 2 + SECOND)));
    clock.advance(SECOND);
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Delayed(Some(start + SECOND * 7 / 2)));
    let attempts: Vec<_> = tries.try_iter().map(|(_, attempt)| attempt).collect();
    assert_eq!(attempts, [1, 2, 2, 2, 2, 2, 2]);
    clock.advance(2 * SECOND);
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Idle);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_retried_key_keeps_its_priority_and_has_the_reason_retry() {
    let (clock, queue) = held();
    let (asked, seen) = unbounded();
    let reconcile = move |cx: &Context, _key: &&'static str| -> Outcome {
        asked.send((cx.priority(), cx.reasons()))?;
        Err("no answer".into())
    };
    let retry = Exponential::new(SECOND, SECOND).max_retries(1).jitter(0.0);
    let workers = Workers::new(reconcile).retry(retry).start(&queue).unwrap();
    queue.at(Priority::High).because(Reasons::EVENT).enqueue("vm");
    step(&clock, &queue);
    let seen: Vec<_> = seen.try_iter().collect();
    assert_eq!(seen, [(Priority::High, Reasons::EVENT), (Priority::High, Reasons::RETRY)]);
    workers.shutdown(Duration::ZERO).unwrap();
}
