//! Failed keys: their removal from the list, and the limits on stored keys and error texts.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use homeostat::controller::{ControllerBuilder, WaitError};
use homeostat::queue::KeyState;
use homeostat::{
    Action, BoxError, Context, Controller, Enqueue, Exponential, ManualClock, Running, WorkerPool, terminal,
};

use crate::stages::{SECOND, stage};
use crate::support::HOUR;
use homeostat::ControllerHandle;

type Key = &'static str;
type Outcome = Result<Action, BoxError>;

/// The number of idle threads: two of the pool and its timer thread.
const IDLE: usize = 3;

fn failing(_: &Context, key: &Key) -> Outcome {
    if key.starts_with("bad") { Err(terminal("no such image").into()) } else { Err("no answer".into()) }
}

fn builder<R>(clock: &ManualClock, reconcile: R) -> ControllerBuilder<Key>
where
    R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
{
    let hourly = Exponential::new(HOUR, HOUR).jitter(0.0);
    Controller::builder("vm", reconcile).clock(clock.clock()).retry(hourly)
}

/// Returns a controller with two failed keys: `vm` backs off for an hour, and `bad` is parked.
fn failed() -> (ManualClock, Running<WorkerPool>, Running<ControllerHandle<Key>>) {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().expect("there are threads");
    let running = builder(&clock, failing).build().expect("the settings are valid").start(&pool).expect("it starts");
    running.enqueue("vm");
    running.enqueue("bad");
    clock.wait_for_sleepers(IDLE);
    assert_eq!(counts(&running), [1, 1]);
    (clock, pool, running)
}

/// Returns the numbers of failing and parked keys, after checking that lists, status and metrics agree.
#[track_caller]
fn counts(running: &Running<ControllerHandle<Key>>) -> [usize; 2] {
    let listed = [running.failing().len(), running.parked().len()];
    let (status, metrics) = (running.status(), running.metrics());
    assert_eq!([status.failing.len(), status.parked.len()], listed);
    assert_eq!([metrics.failing, metrics.parked], listed);
    listed
}

#[test]
fn a_cancelled_key_no_longer_counts_as_failing() {
    let (_clock, _pool, running) = failed();
    assert!(matches!(running.queue().cancel("vm"), KeyState::Delayed(_)));
    assert_eq!(counts(&running), [0, 1]);
    assert_eq!(running.wait(&"vm", Duration::ZERO), Ok(None));
    running.queue().cancel("bad");
    assert_eq!(counts(&running), [0, 1], "it is still parked");
}

#[test]
fn a_cancellation_wakes_a_wait_for_the_key() {
    let (clock, _pool, running) = failed();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", HOUR / 2));
        clock.wait_for_sleepers(IDLE + 1);
        running.queue().cancel("vm");
        assert_eq!(waiting.join().unwrap(), Ok(None));
    });
}

#[test]
fn a_key_cancelled_during_its_run_fails_or_succeeds_with_that_run() {
    let (actors, director) = stage();
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
    let reconcile = move |_: &Context, _: &Key| -> Outcome {
        actors.enter(());
        Err("no answer".into())
    };
    let running = builder(&clock, reconcile).build().unwrap().start(&pool).unwrap();
    director.cue();
    running.enqueue("vm");
    director.next();
    clock.wait_for_sleepers(IDLE);
    clock.advance(HOUR);
    director.next();
    running.queue().cancel("vm");
    assert!(!running.dismiss(&"vm"));
    assert_eq!(running.failing()[0].failures, 1);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(running.failing()[0].failures, 2);
}

#[test]
fn a_dismissed_key_is_neither_run_nor_listed() {
    let (clock, _pool, running) = failed();
    assert!(running.dismiss(&"vm") && running.dismiss(&"bad"));
    assert_eq!(counts(&running), [0, 0]);
    assert!(!running.dismiss(&"vm") && !running.dismiss(&"never failed"));
    assert_eq!(running.queue().state("vm"), KeyState::Idle);
    let runs = running.metrics().runs;
    clock.advance(2 * HOUR);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(running.metrics().runs, runs);
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    assert_eq!(counts(&running), [1, 0], "a later request runs it as usual");
}

#[test]
fn a_dismissal_of_a_parked_key_keeps_a_later_request() {
    let (clock, _pool, running) = failed();
    running.suspend_all();
    running.enqueue("bad");
    assert!(running.dismiss(&"bad"));
    assert_eq!(running.queue().len(), 1);
    running.resume_all();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(counts(&running), [1, 1]);
}

#[test]
fn a_parked_key_that_fails_again_keeps_the_begin_and_the_number_of_its_failures() {
    let (clock, _pool, running) = failed();
    let begin = running.parked()[0].failing_since;
    for tries in 2..4 {
        clock.advance(SECOND);
        running.enqueue("bad");
        running.wait(&"bad", Duration::MAX).unwrap();
        let parked = &running.parked()[0];
        let ended = clock.clock().now();
        assert_eq!((parked.failures, parked.failing_since, parked.since), (tries, begin, ended));
    }
    running.dismiss(&"bad");
    running.enqueue("bad");
    running.wait(&"bad", Duration::MAX).unwrap();
    let parked = &running.parked()[0];
    assert_eq!((parked.failures, parked.failing_since), (1, parked.since), "a dismissal ends the series");
}

#[test]
fn a_key_that_is_cancelled_while_it_is_suspended_does_not_run_when_it_is_resumed() {
    let (clock, _pool, running) = failed();
    running.suspend("vm");
    running.enqueue("vm");
    clock.advance(HOUR);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout));
    running.queue().cancel("vm");
    assert_eq!(counts(&running), [0, 1]);
    running.resume(&"vm");
    clock.advance(2 * HOUR);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(counts(&running), [0, 1]);
}

#[test]
fn a_failing_key_dismissed_while_suspended_does_not_run_when_resumed() {
    let (clock, _pool, running) = failed();
    running.suspend("vm");
    clock.advance(HOUR);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout), "its retry is due and suspended");
    assert!(running.dismiss(&"vm"));
    assert_eq!(running.wait(&"vm", Duration::ZERO), Ok(None));
    let runs = running.metrics().runs;
    running.resume(&"vm");
    clock.advance(2 * HOUR);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(running.metrics().runs, runs);
}

#[test]
fn a_dismissal_of_a_suspended_parked_key_keeps_a_later_request() {
    let (clock, _pool, running) = failed();
    running.suspend("bad");
    running.enqueue("bad");
    clock.wait_for_sleepers(IDLE);
    assert!(running.dismiss(&"bad"));
    running.resume(&"bad");
    clock.wait_for_sleepers(IDLE);
    assert_eq!(counts(&running), [1, 1]);
}

#[test]
fn the_text_of_an_error_is_cut_at_a_character() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
    let long = |_: &Context, key: &Key| -> Outcome {
        let text = if *key == "long" { format!("x{}", "é".repeat(4_000)) } else { "y".repeat(1_024) };
        Err(terminal(text).into())
    };
    let running = builder(&clock, long).build().unwrap().start(&pool).unwrap();
    running.enqueue("long");
    running.enqueue("as long as may be");
    running.wait(&"long", Duration::MAX).unwrap();
    running.wait(&"as long as may be", Duration::MAX).unwrap();
    let errors: Vec<_> = running.parked().into_iter().map(|trouble| trouble.error).collect();
    assert_eq!(errors[0], format!("x{}… (6978 more bytes)", "é".repeat(511)));
    assert_eq!(errors[1], "y".repeat(1_024));
}

#[test]
fn only_the_last_errors_are_kept_and_parked_keys_without_error_are_forgotten() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
    let running = builder(&clock, failing).max_failed_keys(2).build().unwrap().start(&pool).unwrap();
    let keys = ["bad-1", "bad-2", "bad-3", "vm-1", "vm-2", "vm-3"];
    for key in keys {
        running.enqueue(key);
        clock.wait_for_sleepers(IDLE);
        clock.advance(SECOND);
    }
    let names = |parked| -> Vec<_> {
        let troubles = if parked { running.parked() } else { running.failing() };
        troubles.into_iter().map(|trouble| trouble.key).collect()
    };
    let kept = || (names(true), names(false), running.metrics().parked, running.metrics().failing);
    assert_eq!(kept(), (vec!["bad-2", "bad-3"], vec!["vm-2", "vm-3"], 2, 3));
    // A failing key that is not listed can be dismissed too. A parked key that is not listed is forgotten.
    assert!(!running.dismiss(&"bad-1") && running.dismiss(&"vm-1"));
    assert_eq!(kept(), (vec!["bad-2", "bad-3"], vec!["vm-2", "vm-3"], 2, 2));
    running.enqueue("bad-2");
    clock.wait_for_sleepers(IDLE);
    assert_eq!(kept(), (vec!["bad-3", "bad-2"], vec!["vm-2", "vm-3"], 2, 2));
    assert_eq!(running.retry_now(), 4);
}

/// A key that never fails again leaves nothing behind.
#[test]
fn memory_of_parked_keys_is_bounded() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
    let fails = |_: &Context, _: &Arc<u32>| -> Outcome { Err(terminal("no such image").into()) };
    let controller = Controller::builder("vm", fails).clock(clock.clock()).max_failed_keys(3);
    let running = controller.build().unwrap().start(&pool).unwrap();
    let keys: Vec<_> = (0..100).map(Arc::new).collect();
    for key in &keys {
        running.queue().enqueue(Arc::clone(key));
    }
    clock.wait_for_sleepers(IDLE);
    let known = keys.iter().filter(|key| Arc::strong_count(key) > 1).count();
    assert_eq!((known, running.metrics().parked, running.retry_now()), (3, 3, 3));
}

#[test]
fn a_stopped_controller_keeps_no_dropped_keys() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
    let idle = |_: &Context, _: &Arc<u32>| -> Outcome { Ok(Action::await_change()) };
    let controller = Controller::builder("vm", idle).clock(clock.clock()).build().unwrap();
    let (handle, running) = (controller.handle(), controller.start(&pool).unwrap());
    let key = Arc::new(1);
    running.queue().enqueue_after(Arc::clone(&key), HOUR);
    running.shutdown(Duration::ZERO).unwrap();
    assert_eq!(Arc::strong_count(&key), 1, "{handle:?}");
}

/// A key that suspends itself when it drops, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Suspends(u32);

thread_local! {
    static HANDLE: RefCell<Option<ControllerHandle<Suspends>>> = const { RefCell::new(None) };
}

impl Drop for Suspends {
    fn drop(&mut self) {
        if let Some(handle) = HANDLE.take() {
            handle.suspend(Suspends(self.0));
        }
    }
}

#[test]
fn a_key_may_use_its_controller_when_it_drops_during_a_resume() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
    let idle = |_: &Context, _: &Suspends| -> Outcome { Ok(Action::await_change()) };
    let controller = Controller::builder("vm", idle).clock(clock.clock()).build().unwrap();
    let (handle, running) = (controller.handle(), controller.start(&pool).unwrap());
    let key = Suspends(1);
    running.suspend(key.clone());
    running.enqueue(key.clone());
    clock.wait_for_sleepers(IDLE);
    HANDLE.set(Some(handle));
    running.resume(&key);
    // The copy in the list of suspended keys has suspended the key again.
    assert!(HANDLE.take().is_none());
    assert_eq!(running.status().suspended, [(format!("{key:?}"), clock.clock().now())]);
}
