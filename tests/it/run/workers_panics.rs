//! Panics of reconcilers, errors, keys and policies.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::queue::KeyState;
use homeostat::run::{FailedRun, Panicked};
use homeostat::{Action, BoxError, Context, Enqueue, Exponential, ManualClock, RetryPolicy, WorkQueue, Workers};
use log::Level;
use parking_lot::Mutex;

use crate::stages::logs::Logs;
use crate::stages::{ALLOWANCE, PanicsInDisplay, SECOND, held, stage};

type Outcome = Result<Action, BoxError>;

/// Retries after a second, and records the errors.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl RetryPolicy<&'static str> for Recorder {
    fn decide(&self, failure: &FailedRun<'_, &'static str>) -> Option<Duration> {
        let panicked = failure.error.downcast_ref::<Panicked>().map(|panicked| panicked.message().to_owned());
        self.0.lock().push(panicked.unwrap_or_else(|| "an error".to_owned()));
        Some(SECOND)
    }
}

/// Fails in the way that the key names on the first attempt, then succeeds.
fn throw(cx: &Context, key: &&'static str) -> Outcome {
    if cx.attempt() > 1 {
        return Ok(Action::await_change());
    }
    match *key {
        "str" => panic!("out of luck"),
        "string" => panic!("out of {key}"),
        "other" => panic_any(7),
        "error" => Err("no answer".into()),
        "error-display" => Err(Box::new(PanicsInDisplay)),
        other => unreachable!("{other}"),
    }
}

fn throws(name: &'static str, key: &'static str, panics: u64, seen: &str) -> Logs {
    let logs = Logs::of(name);
    let (clock, queue) = held();
    let policy = Recorder::default();
    let workers = Workers::new(throw).name(name).retry(policy.clone()).start(&queue).expect("settings in range");
    queue.enqueue(key);
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state(key), KeyState::Delayed(Some(clock.now() + SECOND)));
    let metrics = workers.metrics();
    assert_eq!((metrics.panics, metrics.retries, metrics.runs()), (panics, 1, 1));
    clock.advance(SECOND);
    clock.wait_for_sleepers(1);
    assert_eq!((workers.metrics().successes, queue.contains(key)), (1, false));
    assert_eq!(*policy.0.lock(), [seen]);
    workers.shutdown(Duration::ZERO).unwrap();
    logs
}

#[test]
fn a_panic_with_a_text_is_caught_logged_with_its_key_and_left_to_the_policy() {
    let logs = throws("panic-str", "str", 1, "out of luck");
    let line = logs.wait_for(Level::Error, "panicked");
    assert_eq!((line.field("key"), line.field("panic")), ("\"str\"", "out of luck"));
    throws("panic-string", "string", 1, "out of string");
}

#[test]
fn a_panic_without_a_text_is_caught() {
    throws("panic-other", "other", 1, "a panic with a non-string payload");
}

#[test]
fn an_error_whose_display_panics_is_left_to_the_policy() {
    let logs = throws("panic-error-display", "error-display", 0, "an error");
    assert_eq!(logs.wait_for(Level::Warn, "retried").field("error"), "(an error that panics when shown)");
}

#[test]
fn a_panic_without_retries_is_not_tried_again() {
    let (clock, queue) = held();
    let workers = Workers::new(throw).retry(Exponential::default().max_retries(0)).start(&queue).unwrap();
    queue.enqueue("str");
    clock.wait_for_sleepers(1);
    assert_eq!((workers.metrics().panics, workers.metrics().drops), (1, 1));
    assert!(!queue.contains("str"));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_panic_displayed_as_an_error_names_the_panic() {
    let panicked = Arc::new(Mutex::new(None));
    let policy = Keep(Arc::clone(&panicked));
    let (clock, queue) = held();
    let workers = Workers::new(throw).retry(policy).start(&queue).unwrap();
    queue.enqueue("str");
    clock.wait_for_sleepers(1);
    assert_eq!(panicked.lock().as_ref().unwrap().to_string(), "the reconciler panicked: out of luck");
    workers.shutdown(Duration::ZERO).unwrap();
}

struct Keep(Arc<Mutex<Option<Panicked>>>);

impl<K> RetryPolicy<K> for Keep {
    fn decide(&self, failure: &FailedRun<'_, K>) -> Option<Duration> {
        *self.0.lock() = failure.error.downcast_ref::<Panicked>().cloned();
        None
    }
}

struct Confused;

impl<K> RetryPolicy<K> for Confused {
    fn decide(&self, _failure: &FailedRun<'_, K>) -> Option<Duration> {
        panic!("a policy that panics");
    }
}

#[test]
fn a_policy_that_panics_leaves_the_key_to_the_queues_own_backoff() {
    let logs = Logs::of("confused");
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND, SECOND).jitter(0.0);
    let queue = WorkQueue::builder().clock(clock.clock()).backoff(backoff).build();
    let workers = Workers::new(throw).name("confused").retry(Confused).start(&queue).unwrap();
    queue.enqueue("error");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("error"), KeyState::Delayed(Some(clock.now() + SECOND)));
    assert_eq!(logs.wait_for(Level::Error, "a policy").field("panic"), "a policy that panics");
    clock.advance(SECOND);
    clock.wait_for_sleepers(1);
    assert_eq!(workers.metrics().successes, 1);
    workers.shutdown(Duration::ZERO).unwrap();
}

/// A key with a `Clone` that panics on demand.
#[derive(PartialEq, Eq, Hash)]
struct Fragile(u32);

static CLONE_PANICS: AtomicBool = AtomicBool::new(false);
static CLONES: AtomicUsize = AtomicUsize::new(0);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        CLONES.fetch_add(1, SeqCst);
        assert!(!(self.0 == 13 && CLONE_PANICS.load(SeqCst)), "a clone that panics");
        Self(self.0)
    }
}

impl std::fmt::Debug for Fragile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fragile({})", self.0)
    }
}

#[test]
fn a_key_whose_clone_panics_in_the_report_of_an_overrun_does_not_end_the_watchdog() {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let (runs, director) = stage();
    let (cancelled, seen) = unbounded();
    let reconcile = move |cx: &Context, key: &Fragile| -> Outcome {
        let (cancelled, number) = (cancelled.clone(), key.0);
        cx.on_cancel(move || cancelled.send(number).expect("the test listens")).detach();
        runs.enter(number);
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).name("fragile").reconcile_timeout(SECOND).start(&queue).unwrap();
    for number in [13, 14] {
        queue.enqueue(Fragile(number));
        assert_eq!(director.next(), number);
        CLONE_PANICS.store(true, SeqCst);
        clock.wait_for_sleepers(1);
        clock.advance(SECOND + ALLOWANCE);
        assert_eq!(seen.recv().unwrap(), number);
        // The watchdog has reported the overrun.
        clock.wait_for_sleepers(1);
        director.cue();
        clock.wait_for_sleepers(2);
        CLONE_PANICS.store(false, SeqCst);
    }
    assert_eq!((workers.metrics().overruns, workers.metrics().successes), (2, 2));
    assert!(CLONES.load(SeqCst) >= 4);
    workers.shutdown(Duration::ZERO).unwrap();
}

/// A key with a `Debug` that panics.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Undebuggable;

impl std::fmt::Debug for Undebuggable {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("a debug that panics");
    }
}

#[test]
fn a_key_whose_debug_panics_runs_and_is_retried_by_the_policy() {
    let logs = Logs::of("undebuggable");
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let reconcile = |cx: &Context, _: &Undebuggable| -> Outcome {
        if cx.attempt() > 1 { Ok(Action::await_change()) } else { Err("no answer".into()) }
    };
    let policy = Exponential::new(SECOND, SECOND).jitter(0.0);
    let workers = Workers::new(reconcile).name("undebuggable").retry(policy).start(&queue).unwrap();
    queue.enqueue(Undebuggable);
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state(&Undebuggable), KeyState::Delayed(Some(clock.now() + SECOND)));
    clock.advance(SECOND);
    clock.wait_for_sleepers(1);
    let metrics = workers.metrics();
    assert_eq!((metrics.retries, metrics.successes, metrics.panics), (1, 1, 0));
    let lines = logs.all();
    assert!(lines.iter().any(|line| line.level == Level::Trace), "{lines:?}");
    let of_key = lines.iter().filter(|line| line.fields.contains_key("key"));
    assert!(of_key.clone().count() >= 4, "{lines:?}");
    for line in of_key {
        assert_eq!(line.field("key"), "(a key whose Debug panics)");
        assert!(line.message.contains("(a key whose Debug panics)"), "{line:?}");
    }
}
