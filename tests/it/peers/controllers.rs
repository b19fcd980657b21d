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
use homeostat::queue::KeyState;
use homeostat::watch::{Push, PushMessage};
use homeostat::{
    Action, BoxError, CancellationToken, Context, Controller, ControllerHandle, Enqueue, EnqueueOutcome, Exponential,
    ManualClock, Priority, Reasons, RequeueAfter, Running, Watch, WorkerPool, terminal,
};
use parking_lot::Mutex;

use crate::stages::{ALLOWANCE, SECOND, just_before, stage};

type Outcome = Result<Action, BoxError>;
type Key = &'static str;
type Run = Box<dyn Fn(&Context, &Key) -> Outcome + Send + Sync>;
type Builder = ControllerBuilder<Key, Run>;

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
    /// The number of threads that sleep while the controller is idle: two of the pool, its watchdog and the control
    /// thread.
    idle: usize,
}

impl Rig {
    /// Starts a controller with runs that report themselves and then call `run`. The backoff is 1 s, 2 s, 4 s, …
    fn start<R>(run: R, set: impl FnOnce(Builder) -> Builder) -> (Self, Running<ControllerHandle<Key>>)
    where
        R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
    {
        Self::on(ManualClock::new(), 4, run, set)
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
            Self::on(clock, 4, run, |builder| set(builder.watch(&watch, |event| event.key().copied())));
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
        while !vms.has_synced() {
            std::thread::yield_now();
        }
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
    assert!(vms.queue().is_empty() && vms.queue().delayed_count() == 0);
}

/// "should not reset backoff until there's a non-error result". Here and there, a requeue is such a result.
#[test]
fn the_backoff_grows_until_a_run_does_not_fail() {
    let again = || Ok(Action::requeue_after(SECOND));
    let (rig, vms) =
        Rig::scripted([fails(), fails(), fails(), again(), fails(), fails(), Ok(Action::await_change()), fails()]);
    vms.enqueue("vm");
    rig.pass(20);
    // The delays are 1 s, 2 s, 4 s, then the requested second, then 1 s and 2 s.
    let seen: Vec<_> = rig.reported.try_iter().map(|report| (report.at, report.attempt)).collect();
    assert_eq!(seen, [(0, 1), (1, 2), (3, 3), (7, 4), (8, 1), (9, 2), (11, 3)]);
    assert!(vms.failing().is_empty());
    vms.enqueue("vm");
    rig.pass(5);
    assert_eq!(rig.times(), [20, 21]);
}

/// "should not requeue a Request if there is a terminal error". There the number of failures is kept; here it is
/// reset.
#[test]
fn a_terminal_error_is_not_retried_and_resets_the_failures() {
    let (rig, vms) = Rig::scripted([fails(), Err(terminal("no such image").into()), fails()]);
    vms.enqueue("vm");
    rig.pass(100);
    assert_eq!(rig.times(), [0, 1]);
    assert_eq!((vms.queue().state("vm"), vms.parked().len(), vms.failing().len()), (KeyState::Idle, 1, 0));
    assert_eq!(vms.metrics().runs.terminal_errors, 1);
    vms.enqueue("vm");
    rig.pass(3);
    let seen: Vec<_> = rig.reported.try_iter().map(|report| (report.at, report.attempt)).collect();
    assert_eq!(seen, [(100, 1), (101, 2)]);
    assert!(vms.parked().is_empty());
}

/// "should requeue a Request after a duration (but not rate-limited) if the Result sets `RequeueAfter`", "… if the
/// Result sets Requeue:true": by an action, and by a requeue error.
#[test]
fn a_requeue_comes_at_its_time_and_is_no_failure() {
    let (rig, vms) = Rig::scripted([
        fails(),
        Ok(Action::requeue_after(5 * SECOND)),
        Err(RequeueAfter::new(3 * SECOND, "not attached").into()),
        Ok(Action::requeue_after(Duration::ZERO)),
        fails(),
    ]);
    vms.enqueue("vm");
    rig.pass(20);
    let seen: Vec<_> = rig.reported.try_iter().map(|report| (report.at, report.attempt)).collect();
    assert_eq!(seen, [(0, 1), (1, 2), (6, 1), (9, 1), (9, 1), (10, 2)]);
    assert_eq!((vms.metrics().runs.requeues, vms.metrics().runs.errors()), (3, 2));
}

/// "should perform error behavior if error is not nil, regardless of `RequeueAfter`": the error decides, even if it
/// contains a requeue.
#[test]
fn an_error_takes_precedence_over_a_requeue() {
    let (rig, vms) = Rig::scripted([
        Err(terminal(RequeueAfter::new(SECOND, "not attached")).into()),
        Ok(Action::requeue_after(100 * SECOND)),
        fails(),
    ]);
    vms.enqueue("vm");
    rig.pass(5);
    assert_eq!((rig.times(), vms.parked().len()), (vec![0], 1));
    vms.enqueue("vm");
    rig.pass(2);
    // The requeue stands until a run fails. Then the backoff replaces the rest of the hundred seconds.
    vms.enqueue("vm");
    rig.pass(5);
    assert_eq!(rig.times(), [5, 7, 8]);
}

/// "should retain the priority when there was an error", "… when the reconciler requests a requeue", "… with `RequeueAfter`".
#[test]
fn a_key_keeps_its_priority_however_its_run_ends() {
    for ending in [fails, || Ok(Action::requeue_after(SECOND)), || Ok(Action::requeue_after(Duration::ZERO))] {
        for priority in [Priority::High, Priority::Low] {
            let (rig, vms) = Rig::scripted([ending(), ending()]);
            vms.queue().at(priority).enqueue("vm");
            rig.pass(4);
            let lanes: Vec<_> = rig.reported.try_iter().map(|report| report.priority).collect();
            assert_eq!(lanes, [priority; 3]);
        }
    }
}

/// "should recover panic if `RecoverPanic` is true by default", and its metric.
#[test]
fn a_panic_is_an_error_that_is_counted_and_retried() {
    let runs = AtomicUsize::new(0);
    let (rig, vms) = Rig::start(
        move |_, _| {
            assert!(runs.fetch_add(1, SeqCst) > 1, "out of luck");
            Ok(Action::await_change())
        },
        |builder| builder,
    );
    vms.enqueue("vm");
    rig.pass(2);
    let failing = vms.failing();
    assert_eq!((failing[0].error.as_str(), failing[0].failures), ("the reconciler panicked: out of luck", 2));
    rig.pass(2);
    let runs = vms.metrics().runs;
    assert_eq!((rig.times(), runs.panics, runs.retries, runs.successes), (vec![0, 1, 3], 2, 2, 1));
    assert!(vms.failing().is_empty());
}

/// "should time out if `ReconciliationTimeout` is set", "should increment when … timeout hits `DeadlineExceeded`", "should increment
/// multiple times when multiple reconciles timeout".
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
    // The sleepers are the control thread and the watchdog.
    rig.clock.wait_for_sleepers(2);
    rig.clock.advance(just_before(10 * SECOND + ALLOWANCE));
    rig.clock.wait_for_sleepers(2);
    assert_eq!((vms.metrics().runs.overruns, vms.metrics().runs.active), (0, 2));
    rig.clock.advance(Duration::from_nanos(1));
    // Two spare threads have been started.
    rig.clock.wait_for_sleepers(4);
    assert_eq!((vms.metrics().runs.overruns, vms.metrics().runs.active), (2, 2));
    director.cue();
    director.cue();
    rig.clock.wait_for_sleepers(6);
    assert!(vms.failing().iter().all(|trouble| trouble.error.contains("deadline")), "{:?}", vms.failing());
    let runs = vms.metrics().runs;
    assert_eq!((vms.failing().len(), runs.retries, runs.overruns, runs.timeouts), (2, 2, 2, 2));
}

/// "should not increment when user code cancels context earlier than the `ReconciliationTimeout`", "… when reconciliation completes
/// before timeout", "… when parent context is cancelled", "… when `ReconciliationTimeout` is zero", "should not configure a timeout if
/// `ReconciliationTimeout` is zero".
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
        vms.shutdown(Duration::ZERO);
        rig.clock.advance(10 * SECOND);
        let runs = handle.metrics().runs;
        assert_eq!((runs.overruns, runs.timeouts, runs.runs(), runs.active), (0, 0, 1, 0), "{key}");
        assert_eq!((runs.aborted, runs.successes), if key == "aborted" { (1, 0) } else { (0, 1) }, "{key}");
    }
}

/// "should not error when cache sync timeout is of sufficiently high", "should not error when controller Start context is cancelled
/// during Sources `WaitForSync`".
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
    assert_eq!((vms.metrics().runs.runs(), vms.queue().delayed_count(), vms.queue().processing_count()), (1, 0, 0));
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

/// kube-rs's `runner_should_wait_for_readiness` and `runner_should_dedupe_while_waiting_for_readiness`.
#[test]
fn a_key_enqueued_before_the_initial_listing_runs_once_afterwards() {
    let (rig, vms, watch) = Rig::watching(|_, _| Ok(Action::await_change()), |builder| builder);
    for _ in 0..3 {
        vms.enqueue("vm");
    }
    rig.clock.wait_for_sleepers(rig.idle);
    assert_eq!((rig.times().len(), vms.queue().len()), (0, 1));
    watch.replace_all([("vm", 1)]);
    assert_eq!(vms.wait(&"vm", Duration::MAX).map(drop), Ok(()));
    rig.clock.wait_for_sleepers(rig.idle);
    assert_eq!(rig.times(), [0]);
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

/// New: a resync enqueues the known keys at low priority, and wakes no key that backs off.
#[test]
fn a_resync_leaves_a_backoff_alone() {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reasons);
    let (rig, vms, watch) = Rig::watching(
        move |cx, key| {
            seen.lock().push((*key, cx.reasons().contains(Reasons::RESYNC)));
            if *key == "broken" { fails() } else { Ok(Action::await_change()) }
        },
        |builder| builder.resync(2 * SECOND),
    );
    watch.replace_all([("broken", 1), ("fine", 1)]);
    Rig::listed(&vms, "fine");
    rig.pass(8);
    let report: Vec<_> = rig.reported.try_iter().collect();
    let of = |key| report.iter().filter(|report| report.key == key).map(|report| report.at).collect::<Vec<_>>();
    assert_eq!((of("broken"), of("fine")), (vec![0, 1, 3, 7], vec![0, 2, 4, 6, 8]));
    assert!(report.iter().all(|report| report.priority == Priority::Low));
    assert!(reasons.lock().iter().all(|(key, resync)| !resync || *key == "fine"));
}

/// New: a single change runs exactly after the quiet time.
#[test]
fn a_change_waits_for_the_quiet_time() {
    let (rig, vms, watch) =
        Rig::watching(|_, _| Ok(Action::await_change()), |builder| builder.debounce(3 * SECOND, 60 * SECOND));
    watch.replace_all([("vm", 1)]);
    Rig::listed(&vms, "vm");
    rig.pass(1);
    watch.set("vm", 2);
    while vms.queue().delayed_count() == 0 {
        std::thread::yield_now();
    }
    rig.pass(2);
    watch.set("vm", 3);
    let due = rig.clock.now() + 3 * SECOND;
    while vms.queue().next_due() != Some(due) {
        std::thread::yield_now();
    }
    rig.clock.advance(just_before(3 * SECOND));
    rig.clock.wait_for_sleepers(rig.idle);
    assert_eq!(rig.times(), [0]);
    rig.clock.advance(Duration::from_nanos(1));
    rig.pass(10);
    assert_eq!(rig.times(), [6]);
}

/// New: the rate limits the controller, with any number of threads.
#[test]
fn the_rate_is_kept_by_all_threads_together() {
    let (rig, vms) = Rig::start(
        |_, _| Ok(Action::await_change()),
        |builder| builder.rate_limit(1.0, 3).max_concurrent_reconciles(2),
    );
    for start in [0, 11] {
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            vms.enqueue(key);
        }
        rig.pass(11);
        let times: Vec<_> = rig.times().iter().map(|at| at - start).collect();
        assert_eq!(times, [0, 0, 0, 1, 2, 3, 4]);
    }
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
