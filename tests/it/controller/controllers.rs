//! Controllers on a held clock: sources, run conditions, rates, failed keys, and the methods of a handle.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::{ControllerBuilder, ControllerError, ControllerPhase, RunOutcome, WaitError};
use homeostat::queue::KeyState;
use homeostat::{
    Action, BoxError, Context, Controller, Enqueue, EnqueueOutcome, Exponential, ManualClock, Reasons, Running, Watch,
    WorkerPool, terminal,
};
use parking_lot::Mutex;

use crate::stages::{SECOND, just_before, stage};
use crate::until::until;
use homeostat::base::StartErrorKind;

type Outcome = Result<Action, BoxError>;
type Key = &'static str;

/// Returns a held clock, and a pool of two threads on it.
fn pool() -> (ManualClock, Running<WorkerPool>) {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().expect("there are threads");
    (clock, pool)
}

/// Returns a reconciler that reports each run, and succeeds.
fn reporting(report: Sender<(Key, Instant, Reasons)>) -> impl Fn(&Context, &Key) -> Outcome + Send + Sync {
    move |cx, key| {
        report.send((*key, cx.clock().now(), cx.reasons()))?;
        Ok(Action::await_change())
    }
}

fn builder<R>(clock: &ManualClock, reconcile: R) -> ControllerBuilder<Key>
where
    R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
{
    Controller::builder("vm", reconcile).clock(clock.clock())
}

/// The number of threads that sleep while the controller is idle: two of the pool and its timer thread.
const IDLE: usize = 3;

fn keys(report: &Receiver<(Key, Instant, Reasons)>) -> Vec<Key> {
    report.try_iter().map(|(key, ..)| key).collect()
}

#[test]
fn enqueued_keys_are_run() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let controller = builder(&clock, reporting(report)).build().unwrap();
    let vms = controller.handle();
    assert_eq!(vms.enqueue("early"), EnqueueOutcome::Queued);
    let running = controller.start(&pool).unwrap();
    vms.enqueue("late");
    running.wait(&"late", Duration::MAX).unwrap();
    running.wait(&"early", Duration::MAX).unwrap();
    let mut seen = keys(&reported);
    seen.sort_unstable();
    assert_eq!(seen, ["early", "late"]);
    running.shutdown(Duration::ZERO).unwrap();
    assert_eq!((vms.enqueue("vm"), vms.status().phase), (EnqueueOutcome::Closed, ControllerPhase::Stopped));
    pool.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn no_key_is_run_before_all_first_listings_have_completed() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let (vms, disks) = (Watch::builder().clock(clock.clock()).push(), Watch::builder().clock(clock.clock()).push());
    let running = builder(&clock, reporting(report))
        .watch(vms.watch(), |event| event.key().copied())
        .watch(disks.watch(), |event| event.value().copied())
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    vms.replace_all([("vm-1", 1)]);
    disks.set("disk-1", "vm-2");
    running.enqueue("vm-3");
    // These are the pool's threads. The subscriptions have none.
    clock.wait_for_sleepers(IDLE);
    assert_eq!((keys(&reported).len(), running.queue().len(), running.has_synced()), (0, 3, false));
    assert_eq!(running.status().phase, ControllerPhase::Syncing);
    disks.synced();
    for key in ["vm-1", "vm-2", "vm-3"] {
        running.wait(&key, Duration::MAX).unwrap();
    }
    assert!(running.has_synced());
    assert_eq!(keys(&reported).len(), 3);
}

#[test]
fn missing_initial_listings_are_an_error() {
    let (clock, pool) = pool();
    let vms = Watch::<Key, u32>::builder().clock(clock.clock()).push();
    let running = builder(&clock, |_: &Context, _: &Key| Ok(Action::await_change()))
        .watch(vms.watch(), |event| event.key().copied())
        .sync_timeout(10 * SECOND)
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(just_before(10 * SECOND));
    clock.wait_for_sleepers(IDLE);
    assert!(running.failure().is_none());
    clock.advance(Duration::from_nanos(1));
    until("the controller has failed", || running.failure().is_some());
    let error = running.failure().unwrap();
    assert_eq!(error.to_string(), "controller vm: no initial listing after 10s from watch");
    assert!(matches!(error.downcast_ref(), Some(ControllerError::SyncTimeout { .. })));
    assert_eq!(running.enqueue("vm"), EnqueueOutcome::Closed);
}

#[test]
fn a_watch_that_stops_before_its_listing_is_an_error() {
    let (clock, pool) = pool();
    let vms = Watch::<Key, u32>::builder().clock(clock.clock()).push();
    let running = builder(&clock, |_: &Context, _: &Key| Ok(Action::await_change()))
        .watch(vms.watch(), |event| event.key().copied())
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    vms.stop();
    until("the controller has failed", || running.failure().is_some());
    let report = running.failure().unwrap().to_string();
    assert_eq!(report, "controller vm: watch ended before its first listing completed");
}

#[test]
fn keys_are_taken_at_the_limited_rate() {
    let (clock, pool) = pool();
    let start = clock.now();
    let (report, reported) = unbounded();
    let running = builder(&clock, reporting(report)).rate_limit(1.0, 2).build().unwrap().start(&pool).unwrap();
    for key in ["a", "b", "c", "d"] {
        running.enqueue(key);
    }
    for _ in 0..3 {
        clock.wait_for_sleepers(IDLE);
        clock.advance(SECOND);
    }
    clock.wait_for_sleepers(IDLE);
    let seen: Vec<_> = reported.try_iter().map(|(key, at, _)| (key, (at - start).as_secs())).collect();
    assert_eq!(seen, [("a", 0), ("b", 0), ("c", 1), ("d", 2)]);
    // The limiter gained one token in the idle second. Then the limit is removed.
    for key in ["e", "f", "g"] {
        running.enqueue(key);
    }
    clock.wait_for_sleepers(IDLE);
    assert_eq!(keys(&reported), ["e"]);
    running.set_rate_limit(None).unwrap();
    clock.wait_for_sleepers(IDLE);
    let mut seen = keys(&reported);
    seen.sort_unstable();
    assert_eq!(seen, ["f", "g"]);
}

#[test]
fn a_resync_enqueues_every_known_key() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let vms = Watch::builder().clock(clock.clock()).push();
    vms.replace_all([("vm-1", 1), ("vm-2", 1)]);
    let running = builder(&clock, reporting(report))
        .watch(vms.watch(), |event| event.key().copied())
        .resync(60 * SECOND)
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(keys(&reported).len(), 2);
    clock.advance(just_before(60 * SECOND));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(reported.len(), 0);
    clock.advance(Duration::from_nanos(1));
    clock.wait_for_sleepers(IDLE);
    let mut seen: Vec<_> = reported.try_iter().map(|(key, _, reasons)| (key, reasons)).collect();
    seen.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(seen, [("vm-1", Reasons::RESYNC), ("vm-2", Reasons::RESYNC)]);
    running.set_resync(Some(5 * SECOND)).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(5 * SECOND);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(reported.len(), 2);
    running.set_resync(None).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(500 * SECOND);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(reported.len(), 2);
}

#[test]
fn bursts_are_debounced_up_to_the_cap() {
    let (clock, pool) = pool();
    let start = clock.now();
    let (report, reported) = unbounded();
    let vms = Watch::builder().clock(clock.clock()).push();
    vms.replace_all([("vm", 0)]);
    let running = builder(&clock, reporting(report))
        .watch(vms.watch(), |event| event.key().copied())
        .debounce(2 * SECOND, 5 * SECOND)
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    // A held clock needs no thread for the queue's timer.
    clock.wait_for_sleepers(IDLE);
    assert_eq!(keys(&reported), ["vm"]);
    for value in 1..=12 {
        vms.set("vm", value);
        clock.wait_for_sleepers(IDLE);
        clock.advance(SECOND);
        clock.wait_for_sleepers(IDLE);
    }
    let seen: Vec<_> = reported.try_iter().map(|(_, at, _)| (at - start).as_secs()).collect();
    // A change arrives every second, so the quiet time never ends, and the latest wait decides.
    assert_eq!(seen, [5, 10]);
    drop(running);
}

#[test]
fn runs_of_a_key_keep_the_minimum_interval() {
    let (clock, pool) = pool();
    let start = clock.now();
    let (report, reported) = unbounded();
    let running = builder(&clock, reporting(report)).min_interval(3 * SECOND).build().unwrap().start(&pool).unwrap();
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    for _ in 0..7 {
        running.enqueue("vm");
        clock.wait_for_sleepers(IDLE);
        clock.advance(SECOND);
        clock.wait_for_sleepers(IDLE);
    }
    let seen: Vec<_> = reported.try_iter().map(|(_, at, _)| (at - start).as_secs()).collect();
    assert_eq!(seen, [0, 3, 6]);
}

#[test]
fn retried_keys_are_listed_as_failing_and_terminal_ones_as_parked() {
    let (clock, pool) = pool();
    let broken = Arc::new(Mutex::new(true));
    let seen = Arc::clone(&broken);
    let hooked = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&hooked);
    let running = builder(&clock, move |_: &Context, key: &Key| match (*seen.lock(), *key) {
        (true, "fatal") => Err(terminal("no such image").into()),
        (true, "panic") => panic!("out of luck"),
        (true, _) => Err("no answer".into()),
        _ => Ok(Action::await_change()),
    })
    .retry(Exponential::new(SECOND, SECOND).jitter(0.0))
    .validate(|key| if *key == "invalid" { Err("not a key") } else { Ok(()) })
    .observe_runs(move |run| {
        let key = *run.key.as_any().downcast_ref::<Key>().unwrap();
        hook.lock().extend(run.error.map(|error| (key, error.to_string(), run.retry_after)));
    })
    .build()
    .unwrap()
    .start(&pool)
    .unwrap();
    for key in ["again", "fatal", "invalid", "panic"] {
        running.enqueue(key);
        clock.wait_for_sleepers(IDLE);
    }
    let errors = |troubles: Vec<homeostat::controller::FailedKey<Key>>| -> Vec<_> {
        let mut errors: Vec<_> = troubles.into_iter().map(|trouble| (trouble.key, trouble.error)).collect();
        errors.sort_unstable();
        errors
    };
    let own = |pairs: &[(Key, &str)]| pairs.iter().map(|(key, error)| (*key, (*error).to_owned())).collect::<Vec<_>>();
    assert_eq!(
        errors(running.failing()),
        own(&[("again", "no answer"), ("panic", "the reconciler panicked: out of luck")])
    );
    assert_eq!(errors(running.parked()), own(&[("fatal", "no such image"), ("invalid", "not a key")]));
    assert_eq!(hooked.lock().len(), 4);
    assert!(hooked.lock().iter().all(|(key, _, retry)| retry.is_some() == ["again", "panic"].contains(key)));
    assert_eq!(running.wait(&"again", Duration::ZERO), Err(WaitError::Timeout));
    assert_eq!(running.queue().state("fatal"), KeyState::Idle);
    *broken.lock() = false;
    assert_eq!(running.retry_now(), 4);
    for key in ["again", "fatal", "panic"] {
        // `wait` returns the outcome of a run that began after the call, or `None` without such a run.
        let outcome = running.wait(&key, Duration::MAX).unwrap();
        assert!(matches!(outcome, None | Some(RunOutcome::Succeeded)), "{key}");
    }
    running.wait(&"invalid", Duration::MAX).unwrap();
    assert_eq!((running.failing().len(), errors(running.parked())), (0, own(&[("invalid", "not a key")])));
    let metrics = running.metrics();
    assert_eq!((metrics.runs.terminal_errors, metrics.runs.panics, metrics.runs.successes), (3, 1, 3));
    assert_eq!((metrics.failing, metrics.parked), (0, 1));
}

#[test]
fn a_key_that_is_suspended_waits_and_keeps_its_reasons() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let running = builder(&clock, reporting(report)).build().unwrap().start(&pool).unwrap();
    let begin = clock.clock().now();
    running.suspend("vm");
    clock.advance(SECOND);
    running.suspend("vm");
    running.suspend("other");
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    let since = [("\"other\"".to_owned(), begin + SECOND), ("\"vm\"".to_owned(), begin)];
    let mut suspended = running.status().suspended;
    suspended.sort();
    assert_eq!((reported.len(), suspended.as_slice()), (0, &since[..]));
    running.resume(&"vm");
    running.resume(&"other");
    clock.wait_for_sleepers(IDLE);
    let seen: Vec<_> = reported.try_iter().map(|(key, _, reasons)| (key, reasons)).collect();
    assert_eq!(seen, [("vm", Reasons::MANUAL)]);
    let begin = clock.clock().now();
    running.suspend_all();
    clock.advance(SECOND);
    running.suspend_all();
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    let status = running.status();
    assert_eq!((reported.len(), status.phase), (0, ControllerPhase::Suspended));
    assert_eq!(status.suspended_since, Some(begin));
    running.resume_all();
    assert_eq!(running.status().suspended_since, None);
    running.wait(&"vm", Duration::MAX).unwrap();
    assert_eq!(reported.len(), 1);
}

/// After the resumption, the backoff takes its next step, because the run does not count as an early one.
#[test]
fn a_key_that_is_suspended_keeps_its_failures() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let reconcile = move |cx: &Context, _: &Key| -> Outcome {
        report.send((cx.attempt(), cx.clock().now(), cx.reasons()))?;
        Err("no answer".into())
    };
    let backoff = Exponential::new(SECOND, 100 * SECOND).jitter(0.0);
    let running = builder(&clock, reconcile).retry(backoff).build().unwrap().start(&pool).unwrap();
    let start = clock.now();
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    clock.advance(SECOND);
    clock.wait_for_sleepers(IDLE);
    running.suspend("vm");
    clock.advance(2 * SECOND);
    clock.wait_for_sleepers(IDLE);
    // The backoff has ended, and the request does not change the time of the next run.
    running.enqueue("vm");
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout), "it is wanted");
    clock.advance(7 * SECOND);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(reported.len(), 2);
    running.resume(&"vm");
    clock.wait_for_sleepers(IDLE);
    clock.advance(4 * SECOND);
    clock.wait_for_sleepers(IDLE);
    let seen: Vec<_> = reported.try_iter().map(|(attempt, at, _)| (attempt, (at - start).as_secs())).collect();
    assert_eq!(seen, [(1, 0), (2, 1), (3, 10), (4, 14)]);
    assert_eq!(running.failing()[0].failures, 4);
}

/// This holds without a failure too, and for every reason of the requests.
#[test]
fn a_suspended_key_with_a_request_is_not_idle_and_runs_once_when_it_is_resumed() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let running = builder(&clock, reporting(report)).min_interval(SECOND).build().unwrap().start(&pool).unwrap();
    running.suspend("vm");
    assert_eq!(running.wait(&"vm", Duration::ZERO), Ok(None));
    assert_eq!(running.queue().because(Reasons::EVENT).enqueue_if_absent("vm"), EnqueueOutcome::Queued);
    clock.wait_for_sleepers(IDLE);
    running.queue().because(Reasons::POLL).enqueue("vm");
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout));
    assert!(reported.is_empty());
    running.resume(&"vm");
    clock.wait_for_sleepers(IDLE);
    let seen: Vec<_> = reported.try_iter().map(|(key, _, reasons)| (key, reasons)).collect();
    assert_eq!(
        seen,
        [("vm", Reasons::EVENT | Reasons::POLL | Reasons::MANUAL)],
        "at once, because this is its first run"
    );
    assert_eq!(running.wait(&"vm", Duration::ZERO), Ok(None));
    // After another resumption it does not run, because no request is pending.
    running.suspend("vm");
    running.resume(&"vm");
    clock.advance(10 * SECOND);
    clock.wait_for_sleepers(IDLE);
    assert!(reported.is_empty());
}

#[test]
fn a_wait_for_a_key_that_a_stop_discards_returns_stopped() {
    let (clock, pool) = pool();
    let (report, reported) = unbounded();
    let running = builder(&clock, reporting(report)).build().unwrap().start(&pool).unwrap();
    running.suspend_all();
    running.enqueue("vm");
    clock.wait_for_sleepers(IDLE);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        clock.wait_for_sleepers(IDLE + 1);
        running.stop();
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Stopped));
    });
    assert_eq!(running.queue().state("vm"), KeyState::Idle);
    assert_eq!(running.wait(&"vm", Duration::MAX), Err(WaitError::Stopped), "also afterwards");
    assert!(reported.is_empty());
}

#[test]
fn each_wait_returns_a_run_that_began_after_the_call() {
    let (clock, pool) = pool();
    let (actors, director) = stage();
    let running = builder(&clock, move |cx: &Context, key: &Key| {
        actors.enter(*key);
        if cx.reasons().contains(Reasons::POLL) {
            Err(terminal("no such image").into())
        } else {
            Ok(Action::await_change())
        }
    });
    let running = running.build().unwrap().start(&pool).unwrap();
    let wait = || running.wait(&"vm", Duration::MAX);
    for again in [false, true] {
        running.suspend_all();
        running.enqueue("vm");
        clock.wait_for_sleepers(IDLE);
        std::thread::scope(|scope| {
            let early = scope.spawn(wait);
            clock.wait_for_sleepers(IDLE + 1);
            running.resume_all();
            director.next();
            // The sleepers are both waiters, the timer thread and the other pool thread.
            let late = scope.spawn(wait);
            clock.wait_for_sleepers(IDLE + 1);
            if again {
                running.queue().because(Reasons::POLL).enqueue("vm");
            }
            director.cue();
            let mut outcomes = (Some(RunOutcome::Succeeded), None);
            if again {
                director.next();
                director.cue();
                outcomes = (
                    Some(RunOutcome::Failed("no such image".into())),
                    Some(RunOutcome::Failed("no such image".into())),
                );
            }
            assert_eq!((early.join().unwrap(), late.join().unwrap()), (Ok(outcomes.0), Ok(outcomes.1)));
        });
    }
}

#[test]
fn at_most_the_set_number_of_runs_are_active_at_once() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(4).clock(clock.clock()).start().unwrap();
    let (actors, director) = stage();
    let running = builder(&clock, move |_: &Context, key: &Key| {
        actors.enter(*key);
        Ok(Action::await_change())
    })
    .max_concurrent_reconciles(2)
    .build()
    .unwrap()
    .start(&pool)
    .unwrap();
    for key in ["a", "b", "c", "d"] {
        running.enqueue(key);
    }
    director.next();
    director.next();
    // The sleepers are two pool threads and the timer thread.
    clock.wait_for_sleepers(3);
    assert!(director.is_quiet());
    assert_eq!((running.status().running.len(), running.metrics().runs.active), (2, 2));
    running.set_max_concurrent_reconciles(3).unwrap();
    director.next();
    clock.wait_for_sleepers(2);
    assert!(director.is_quiet());
    running.set_max_concurrent_reconciles(1).unwrap();
    director.cue();
    director.cue();
    clock.wait_for_sleepers(4);
    assert!(director.is_quiet());
    director.cue();
    assert_eq!(director.next(), "d");
    director.cue();
    running.wait(&"d", Duration::MAX).unwrap();
}

type Plain = ControllerBuilder<Key>;

#[test]
fn settings_that_make_no_sense_are_refused() {
    let (clock, pool) = pool();
    let build = |change: fn(Plain) -> Plain| {
        let reconcile: fn(&Context, &Key) -> Outcome = |_, _| Ok(Action::await_change());
        change(Controller::builder("vm", reconcile)).build().map(drop).unwrap_err().to_string()
    };
    assert_eq!(build(|b| b.max_concurrent_reconciles(0)), "max_concurrent_reconciles is 0, but must be at least 1");
    assert_eq!(build(|b| b.own_threads(0)), "own_threads is 0, but must be at least 1");
    assert_eq!(
        build(|b| b.reconcile_timeout(Duration::ZERO)),
        "reconcile_timeout is 0ns, but must be longer than zero"
    );
    assert_eq!(build(|b| b.sync_timeout(Duration::ZERO)), "sync_timeout is 0ns, but must be longer than zero");
    assert_eq!(build(|b| b.debounce(SECOND, SECOND / 2)), "max_wait is 500ms, but must be no shorter than quiet");
    assert_eq!(build(|b| b.rate_limit(0.0, 1)), "per_second is 0.0, but must be positive and finite");
    assert_eq!(build(|b| b.rate_limit(1.0, 0)), "burst is 0, but must be at least 1");
    assert_eq!(build(|b| b.resync(SECOND)), "controller \"vm\" has a resync, but no watch");
    let list = |_: &Context| Ok::<_, Infallible>(["vm"]);
    let reconcile = |_: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change());
    let error = Controller::builder("vm", reconcile).poll(Duration::ZERO, list).build().unwrap_err();
    assert_eq!(error.to_string(), "period is 0ns, but must be longer than zero");
    let error = Controller::builder("", reconcile).build().unwrap_err();
    assert_eq!(error.to_string(), "name \"\" is empty");
    let other_clock = builder(&ManualClock::new(), reconcile).build().unwrap();
    let error = other_clock.start(&pool).unwrap_err();
    assert_eq!(error.to_string(), "controller \"vm\" has another clock than its pool");
    let stopped = Watch::<Key, u32>::builder().clock(clock.clock()).push();
    stopped.stop();
    let controller = builder(&clock, reconcile).watch(stopped.watch(), |event| event.key().copied()).build().unwrap();
    assert_eq!(controller.start(&pool).unwrap_err().kind(), StartErrorKind::Stopped);
    let running =
        builder(&clock, reconcile).retry(Exponential::default().max_retries(0)).build().unwrap().start(&pool).unwrap();
    assert!(running.set_max_concurrent_reconciles(0).is_err());
    assert!(running.set_resync(Some(Duration::ZERO)).is_err());
    assert!(running.set_rate_limit(Some((-1.0, 1))).is_err());
    let late = builder(&clock, reconcile).build().unwrap();
    pool.stop();
    assert_eq!(late.start(&pool).unwrap_err().to_string(), "pool \"pool\" has been stopped");
    let error = running.set_period(SECOND).unwrap_err();
    assert_eq!(error.to_string(), "controller \"vm\" has no poller");
}
