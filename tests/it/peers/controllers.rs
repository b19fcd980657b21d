//! Controllers against their peers' cases, rewritten on a held clock: controller-runtime's
//! `pkg/internal/controller/controller_test.go` (Apache-2.0) and kube-rs's `kube-runtime/src/controller/`
//! (Apache-2.0). Each test names its source by the title of the case.
//!
//! Two cases are impossible here: a second start, because a start consumes the controller, and an error together with
//! a requeue, because a run returns only one of them. The tests of controllers and managers cover further cases.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use homeostat::controller::{ControllerBuilder, ControllerPhase, WaitError};
use homeostat::watch::{Push, PushMessage};
use homeostat::{
    Action, BoxError, CancellationToken, Context, Controller, ControllerHandle, EnqueueOutcome, Exponential,
    ManualClock, Priority, RequeueAfter, Running, Watch, WorkerPool, terminal,
};
use parking_lot::Mutex;

use crate::stages::{ALLOWANCE, SECOND, just_before, stage};
use crate::until::until;

type Outcome = Result<Action, BoxError>;
type Key = &'static str;
type Run = Box<dyn Fn(&Context, &Key) -> Outcome + Send + Sync>;
type Builder = ControllerBuilder<Key>;

/// A report of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    key: Key,
    /// The seconds since the start.
    at: u64,
    attempt: u32,
    priority: Priority,
}

/// A held clock, a pool of two threads on it, and the reports of the runs.
struct Rig {
    clock: ManualClock,
    pool: Running<WorkerPool>,
    reported: Receiver<Report>,
    /// The number of threads that sleep while the controller is idle: two of the pool and its timer thread.
    idle: usize,
}

impl Rig {
    /// Starts a controller with runs that report themselves and then call `run`. The backoff is 1 s, 2 s, 4 s, …
    fn start<R>(run: R, set: impl FnOnce(Builder) -> Builder) -> (Self, Running<ControllerHandle<Key>>)
    where
        R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
    {
        Self::on(ManualClock::new(), 3, run, set)
    }

    /// Does the same with a watch of the controller's keys.
    fn watching<R>(
        run: R,
        set: impl FnOnce(Builder) -> Builder,
    ) -> (Self, Running<ControllerHandle<Key>>, Push<Key, u32>)
    where
        R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
    {
        let clock = ManualClock::new();
        let push = Watch::builder().clock(clock.clock()).push();
        let watch = push.watch().clone();
        let (rig, running) =
            Self::on(clock, 3, run, |builder| set(builder.watch(&watch, |event| event.key().copied())));
        (rig, running, push)
    }

    fn on<R>(
        clock: ManualClock,
        idle: usize,
        run: R,
        set: impl FnOnce(Builder) -> Builder,
    ) -> (Self, Running<ControllerHandle<Key>>)
    where
        R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
    {
        let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
        let (report, reported) = unbounded();
        let start = clock.now();
        let reconcile = move |cx: &Context, key: &Key| {
            let at = (cx.clock().now() - start).as_secs();
            report.send(Report { key, at, attempt: cx.attempt(), priority: cx.priority() })?;
            run(cx, key)
        };
        let reconcile: Run = Box::new(reconcile);
        let builder = set(Controller::builder("vm", reconcile).clock(clock.clock()));
        let builder = builder.retry(Exponential::new(SECOND, 1000 * SECOND).jitter(0.0));
        let running = builder.build().unwrap().start(&pool).unwrap();
        (Self { clock, pool, reported, idle }, running)
    }

    /// Does the same with runs that return the results of `script` in order, and then succeed.
    fn scripted(script: impl IntoIterator<Item = Outcome>) -> (Self, Running<ControllerHandle<Key>>) {
        let script = Mutex::new(script.into_iter().collect::<VecDeque<_>>());
        Self::start(move |_, _| script.lock().pop_front().unwrap_or(Ok(Action::await_change())), |builder| builder)
    }

    /// Advances the clock second by second. Each second begins when all threads sleep again.
    fn pass(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.wait_for_sleepers(self.idle);
            self.clock.advance(SECOND);
        }
        self.clock.wait_for_sleepers(self.idle);
    }

    /// Waits until the initial listing is complete and `key` has run.
    fn listed(vms: &Running<ControllerHandle<Key>>, key: Key) {
        until("the first listing is complete", || vms.has_synced());
        vms.wait(&key, Duration::MAX).unwrap();
    }

    fn times(&self) -> Vec<u64> {
        self.reported.try_iter().map(|report| report.at).collect()
    }
}

fn fails() -> Outcome {
    Err("not yet".into())
}

/// "should requeue a Request if there is an error and continue processing items".
#[test]
fn a_failed_key_is_tried_again_and_the_others_are_run_meanwhile() {
    let (rig, vms) = Rig::scripted([fails()]);
    vms.enqueue("broken");
    rig.clock.wait_for_sleepers(rig.idle);
    vms.enqueue("fine");
    rig.pass(1);
    let seen: Vec<_> = rig.reported.try_iter().map(|report| (report.key, report.at)).collect();
    assert_eq!(seen, [("broken", 0), ("fine", 0), ("broken", 1)]);
    assert_eq!((vms.metrics().runs.retries, vms.metrics().runs.successes), (1, 2));
    assert!(vms.queue().is_empty() && vms.queue().metrics().delayed == 0);
}

/// "should time out if `ReconciliationTimeout` is set", "should increment when … timeout hits `DeadlineExceeded`",
/// "should increment multiple times when multiple reconciles timeout".
#[test]
fn each_run_past_its_deadline_is_cancelled_and_counted() {
    let (actors, director) = stage();
    let (rig, vms) = Rig::start(
        move |cx, key| {
            actors.enter(*key);
            cx.check()?;
            Ok(Action::await_change())
        },
        |builder| builder.reconcile_timeout(10 * SECOND).max_concurrent_reconciles(2),
    );
    for key in ["one", "two"] {
        vms.enqueue(key);
        director.next();
    }
    // The sleeper is the timer thread.
    rig.clock.wait_for_sleepers(1);
    rig.clock.advance(just_before(10 * SECOND + ALLOWANCE));
    rig.clock.wait_for_sleepers(1);
    assert_eq!((vms.metrics().runs.overruns, vms.metrics().runs.active), (0, 2));
    rig.clock.advance(Duration::from_nanos(1));
    // Two spare threads have been started.
    rig.clock.wait_for_sleepers(3);
    assert_eq!((vms.metrics().runs.overruns, vms.metrics().runs.active), (2, 2));
    director.cue();
    director.cue();
    rig.clock.wait_for_sleepers(5);
    assert!(vms.failing().iter().all(|trouble| trouble.error.contains("deadline")), "{:?}", vms.failing());
    let runs = vms.metrics().runs;
    assert_eq!((vms.failing().len(), runs.retries, runs.overruns, runs.timeouts), (2, 2, 2, 2));
}

/// "should not increment when user code cancels context earlier than the `ReconciliationTimeout`", "… when
/// reconciliation completes before timeout", "… when parent context is cancelled", "… when `ReconciliationTimeout` is
/// zero", "should not configure a timeout if `ReconciliationTimeout` is zero".
#[test]
fn a_run_that_ends_for_another_cause_is_no_overrun() {
    for (key, timeout) in
        [("by hand", Some(SECOND)), ("in time", Some(SECOND)), ("aborted", Some(SECOND)), ("at leisure", None)]
    {
        let (enters, entered) = unbounded();
        let (rig, vms) = Rig::start(
            move |cx, key| {
                assert_eq!(cx.remaining(), timeout);
                enters.send(())?;
                match *key {
                    "by hand" => {
                        let own = CancellationToken::new();
                        own.cancel();
                        assert!(own.is_cancelled() && !cx.is_cancelled());
                    }
                    "aborted" => cx.sleep(Duration::MAX)?,
                    "at leisure" => cx.sleep(1000 * SECOND)?,
                    _ => cx.sleep(just_before(SECOND))?,
                }
                Ok(Action::await_change())
            },
            |builder| match timeout {
                Some(timeout) => builder.reconcile_timeout(timeout),
                None => builder,
            },
        );
        vms.enqueue(key);
        entered.recv().unwrap();
        rig.clock.wait_for_sleepers(rig.idle);
        match key {
            "aborted" => vms.abort(),
            "at leisure" => rig.clock.advance(1000 * SECOND),
            _ => rig.clock.advance(just_before(SECOND)),
        }
        let handle = ControllerHandle::clone(&vms);
        if key != "aborted" {
            vms.wait(&key, Duration::MAX).unwrap();
        }
        vms.shutdown(Duration::ZERO).unwrap();
        rig.clock.advance(10 * SECOND);
        let runs = handle.metrics().runs;
        assert_eq!((runs.overruns, runs.timeouts, runs.runs(), runs.active), (0, 0, 1, 0), "{key}");
        assert_eq!((runs.aborted, runs.successes), if key == "aborted" { (1, 0) } else { (0, 1) }, "{key}");
    }
}

/// "should not error when cache sync timeout is of sufficiently high", "should not error when controller Start context
/// is cancelled during Sources `WaitForSync`".
#[test]
fn a_timely_listing_and_a_stop_before_the_listing_are_no_errors() {
    for stops in [false, true] {
        let (rig, vms, watch) =
            Rig::watching(|_, _| Ok(Action::await_change()), |builder| builder.sync_timeout(10 * SECOND));
        rig.clock.wait_for_sleepers(rig.idle);
        rig.clock.advance(just_before(10 * SECOND));
        rig.clock.wait_for_sleepers(rig.idle);
        if stops {
            vms.stop();
        } else {
            watch.replace_all([("vm", 1)]);
            Rig::listed(&vms, "vm");
        }
        rig.clock.advance(10 * SECOND);
        assert!(vms.failure().is_none());
        assert_eq!(vms.status().phase, if stops { ControllerPhase::Stopped } else { ControllerPhase::Running });
        assert_eq!(rig.times().len(), usize::from(!stops));
    }
}

/// "should process events from source.Channel".
#[test]
fn a_key_from_a_channel_is_run() {
    let (events, receiver) = unbounded();
    let clock = ManualClock::new();
    let watch = Watch::builder().clock(clock.clock()).from_receiver(receiver).unwrap();
    let (rig, vms) = Rig::on(
        clock,
        5,
        |_, _| Ok(Action::await_change()),
        |builder| builder.watch(watch.watch(), |event| event.key().copied()),
    );
    events.send(PushMessage::Synced).unwrap();
    events.send(PushMessage::Set("vm", 1)).unwrap();
    assert_eq!(rig.reported.recv().unwrap().key, "vm");
    vms.wait(&"vm", Duration::MAX).unwrap();
}

/// "should return if the queue is shutdown", which is pending there.
#[test]
fn a_stopped_controller_ends_although_keys_are_ready() {
    let (actors, director) = stage();
    let (rig, mut vms) = Rig::start(
        move |_, key| {
            actors.enter(*key);
            Ok(Action::requeue_after(SECOND))
        },
        |builder| builder,
    );
    for key in ["one", "two", "three"] {
        vms.enqueue(key);
    }
    assert_eq!(director.next(), "one");
    let handle = ControllerHandle::clone(&vms);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || handle.wait(&"one", Duration::MAX));
        // The waiting thread sleeps instead of the running one.
        rig.clock.wait_for_sleepers(rig.idle);
        vms.stop();
        assert_eq!(waits.join().unwrap(), Err(WaitError::Stopped));
    });
    assert_eq!((vms.enqueue("four"), vms.queue().len()), (EnqueueOutcome::Closed, 0));
    director.cue();
    vms.join_timeout(Duration::MAX).unwrap();
    assert_eq!((vms.metrics().runs.runs(), vms.queue().metrics().delayed, vms.queue().metrics().processing), (1, 0, 0));
    assert!(rig.pool.overdue().is_empty());
}

/// The contexts "prometheus metric `reconcile_total`" and "should update prometheus metrics": each outcome is counted
/// once, and each run is measured.
#[test]
fn each_outcome_is_counted_and_each_run_measured() {
    let script = [
        fails(),
        Ok(Action::requeue_after(SECOND)),
        Err(RequeueAfter::new(SECOND, "not attached").into()),
        Err(terminal("no such image").into()),
    ];
    let (rig, vms) = Rig::scripted(script);
    vms.enqueue("vm");
    rig.pass(10);
    vms.enqueue("vm");
    rig.clock.wait_for_sleepers(rig.idle);
    let metrics = vms.metrics();
    let runs = metrics.runs;
    assert_eq!((runs.retries, runs.requeues, runs.terminal_errors, runs.successes), (1, 2, 1, 1));
    assert_eq!((runs.runs(), runs.drops, runs.panics, runs.overruns, runs.active), (5, 0, 0, 0, 0));
    assert_eq!((metrics.work_time.count(), metrics.queue_time.count()), (5, 5));
}

/// kube-rs's `runner_should_never_run_two_instances_at_once`, and controller-runtime's lock of a key in process: two
/// requests lead to two consecutive runs, although a thread is free.
#[test]
fn a_key_that_is_enqueued_during_its_run_runs_again_afterwards() {
    let (actors, director) = stage();
    let (rig, vms) = Rig::start(
        move |_, key| {
            actors.enter(*key);
            Ok(Action::await_change())
        },
        |builder| builder.max_concurrent_reconciles(2),
    );
    vms.enqueue("vm");
    director.next();
    for _ in 0..3 {
        assert_eq!(vms.enqueue("vm"), EnqueueOutcome::Rerun);
    }
    rig.clock.wait_for_sleepers(rig.idle - 1);
    assert!(director.is_quiet());
    // The other thread is free for another key.
    vms.enqueue("other");
    assert_eq!(director.next(), "other");
    director.cue();
    director.cue();
    assert_eq!(director.next(), "vm");
    director.cue();
    vms.wait(&"vm", Duration::MAX).unwrap();
    vms.wait(&"other", Duration::MAX).unwrap();
    assert_eq!(rig.times().len(), 3);
}

/// kube-rs's `applier_must_not_deadlock_if_reschedule_buffer_fills`: runs that enqueue many keys, their own included.
#[test]
fn runs_that_feed_their_own_controller_do_not_block() {
    const KEYS: u32 = 300;
    let pool = WorkerPool::builder().threads(2).start().unwrap();
    let own = Arc::new(Mutex::new(None::<ControllerHandle<u32>>));
    let handle = Arc::clone(&own);
    let runs = AtomicUsize::new(0);
    let reconcile = move |_: &Context, key: &u32| -> Outcome {
        if runs.fetch_add(1, SeqCst) > 3000 {
            return Ok(Action::await_change());
        }
        if let Some(own) = &*handle.lock() {
            for other in 0..10 {
                own.enqueue((key + other) % KEYS);
            }
        }
        Ok(Action::requeue_after(Duration::ZERO))
    };
    let controller = Controller::builder("vm", reconcile).max_concurrent_reconciles(2).build().unwrap();
    let vms = controller.handle();
    *own.lock() = Some(vms.clone());
    let running = controller.start(&pool).unwrap();
    for key in 0..KEYS {
        vms.enqueue(key);
    }
    for key in 0..KEYS {
        running.wait(&key, Duration::MAX).unwrap();
    }
    assert!(vms.metrics().runs.runs() > 3000);
    *own.lock() = None;
}

/// New: a wait for a key returns at the end of its run, although the rate delays the next key.
#[test]
fn a_wait_for_a_key_is_not_delayed_by_the_rate() {
    let (actors, director) = stage();
    let (rig, vms) = Rig::start(
        move |_, key| {
            actors.enter(*key);
            Ok(Action::await_change())
        },
        |builder| builder.rate_limit(0.001, 1),
    );
    vms.enqueue("one");
    director.next();
    vms.enqueue("two");
    let handle = ControllerHandle::clone(&vms);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || handle.wait(&"one", Duration::MAX));
        rig.clock.wait_for_sleepers(rig.idle);
        director.cue();
        assert_eq!(waits.join().unwrap(), Ok(None), "its run had begun before");
    });
    assert_eq!(vms.queue().len(), 1);
}
