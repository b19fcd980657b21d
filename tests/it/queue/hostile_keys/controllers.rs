//! A controller of hostile keys on a pool with another controller. It loses runs of the keys that panic, and no other
//! run is lost.

use std::sync::atomic::AtomicBool;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::ControllerBuilder;
use homeostat::{Action, BoxError, Context, Controller, Exponential, ManualClock, Running, WorkerPool};

use super::*;
use crate::stages::logs::Logs;
use crate::stages::{ALLOWANCE, stage};
use crate::until::until;
use homeostat::ControllerHandle;

type Outcome = Result<Action, BoxError>;

/// Returns a controller that sends the key of each run.
fn saying<K: homeostat::Key + Sync + fmt::Debug>(
    name: &str,
    clock: &ManualClock,
    report: Sender<u32>,
    run: impl Fn(&K) -> Result<u32, BoxError> + Send + Sync + 'static,
) -> ControllerBuilder<K> {
    let reconcile = move |_: &Context, key: &K| -> Outcome {
        report.send(run(key)?)?;
        Ok(Action::await_change())
    };
    Controller::builder(name, reconcile).clock(clock.clock())
}

/// Waits for runs of all these keys, through any number of backoffs.
fn wait_for(clock: &ManualClock, reported: &Receiver<u32>, mut missing: Vec<u32>) {
    until("all keys have run", || {
        clock.advance(10 * SECOND);
        for key in reported.try_iter() {
            missing.retain(|other| *other != key);
        }
        missing.is_empty()
    });
}

/// The result of runs while key 1 panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Runs {
    Succeed,
    Fail,
    /// They failed before, and succeed now.
    Recover,
}

/// Runs keys 1 to 4 while `op` of key 1 panics. Other keys are waited for and suspended, so that the keys of runs are
/// looked up.
fn run_beside_one_that_panics(op: Op, runs: Runs) {
    let place = format!("{op:?}, runs {runs:?}");
    let traps = Traps::new();
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let fails = Arc::new(AtomicBool::new(runs != Runs::Succeed));
    let (report, reported) = unbounded();
    let now = Arc::clone(&fails);
    let hostile = saying("hostile", &clock, report.clone(), move |key: &Key| {
        if now.load(Ordering::SeqCst) { Err("not yet".into()) } else { Ok(key.0.id) }
    });
    let hostile = hostile.retry(Exponential::new(SECOND, SECOND).jitter(0.0)).build().unwrap().start(&pool).unwrap();
    let honest = saying("honest", &clock, report, |key: &u32| Ok(*key)).build().unwrap().start(&pool).unwrap();
    hostile.suspend(traps.key(5));
    hostile.suspend_all();
    // These are the threads of the pool: worker and timer.
    clock.wait_for_sleepers(2);
    for key in traps.keys(1..5) {
        hostile.queue().enqueue(key);
    }
    thread::scope(|scope| {
        let key = traps.key(4);
        let hostile = &hostile;
        let waits = scope.spawn(move || hostile.wait(&key, Duration::MAX));
        clock.wait_for_sleepers(3);
        if runs == Runs::Recover {
            hostile.resume_all();
            clock.wait_for_sleepers(3);
            assert_eq!(hostile.failing().len(), 4);
            fails.store(false, Ordering::SeqCst);
        }
        traps.arm(op, 1);
        hostile.resume_all();
        honest.enqueue(7);
        wait_for(&clock, &reported, if runs == Runs::Fail { vec![7] } else { vec![2, 3, 4, 7] });
        if runs == Runs::Fail {
            // Each key backs off, and a thread waits for one.
            for _ in 0..3 {
                clock.wait_for_sleepers(3);
                clock.advance(10 * SECOND);
            }
        }
        traps.disarm();
        fails.store(false, Ordering::SeqCst);
        hostile.queue().enqueue_now(traps.key(1));
        honest.enqueue(8);
        wait_for(&clock, &reported, if runs == Runs::Fail { vec![1, 2, 3, 4, 8] } else { vec![1, 8] });
        let outcome = waits.join().unwrap();
        assert!(outcome.is_ok(), "{place}: {outcome:?}");
    });
    hostile.wait(&traps.key(1), Duration::MAX).unwrap();
    assert_eq!((hostile.failing().len(), hostile.parked().len(), pool.overdue().len()), (0, 0, 0), "{place}");
    assert_eq!(counts(hostile.queue()), [0; 3], "{place}");
    hostile.shutdown(Duration::ZERO).unwrap();
    honest.shutdown(Duration::ZERO).unwrap();
    // Its thread may hold the state of a controller, with the suspended keys, a little longer than the controller runs.
    pool.shutdown(Duration::ZERO).unwrap();
    drop(reported);
    assert_eq!(traps.alive.load(Ordering::Relaxed), 0, "{place}: remaining keys");
}

#[test]
fn a_key_that_panics_costs_neither_the_other_keys_nor_the_other_controllers_a_run() {
    let _shown = Logs::of("hostile");
    for op in [Op::Hash, Op::Eq, Op::Clone, Op::Debug] {
        for runs in [Runs::Succeed, Runs::Fail, Runs::Recover] {
            run_beside_one_that_panics(op, runs);
        }
    }
}

/// The report of an overrun clones and shows the key.
#[test]
fn a_key_that_panics_as_its_overrun_is_reported_gets_its_thread_replaced() {
    let _shown = Logs::of("stuck-and-hostile");
    for op in [Op::Clone, Op::Debug] {
        let traps = Traps::new();
        let clock = ManualClock::new();
        let pool = WorkerPool::builder().threads(1).spares(1).clock(clock.clock()).start().unwrap();
        let (runs, director) = stage();
        let (report, reported) = unbounded();
        let hostile = saying("hostile", &clock, report.clone(), move |key: &Key| {
            runs.enter(key.0.id);
            Ok(key.0.id)
        });
        let hostile = hostile.reconcile_timeout(SECOND).build().unwrap().start(&pool).unwrap();
        let honest = saying("honest", &clock, report, |key: &u32| Ok(*key)).build().unwrap().start(&pool).unwrap();
        hostile.enqueue(traps.key(1));
        assert_eq!(director.next(), 1);
        traps.arm(op, 1);
        honest.enqueue(7);
        clock.wait_for_sleepers(1);
        clock.advance(SECOND + ALLOWANCE);
        assert_eq!(reported.recv().unwrap(), 7);
        assert_eq!(pool.overdue(), ["pool-0"]);
        assert_eq!(hostile.metrics().runs.overruns, 1);
        traps.disarm();
        director.cue();
        assert_eq!(reported.recv().unwrap(), 1);
        hostile.shutdown(Duration::ZERO).unwrap();
        honest.shutdown(Duration::ZERO).unwrap();
        pool.shutdown(Duration::ZERO).unwrap();
        assert_eq!(traps.alive.load(Ordering::Relaxed), 0);
    }
}

/// The caller gets the panic.
#[test]
fn a_call_to_a_handle_with_a_key_that_panics_harms_no_other_key() {
    type Call = fn(&Running<ControllerHandle<Key>>, &Arc<Traps>);
    let calls: [(&str, Call, &[Op]); 6] = [
        ("enqueue", |vms, traps| assert_eq!(vms.enqueue(traps.key(1)), EnqueueOutcome::Queued), &[Op::Hash, Op::Eq]),
        ("wait", |vms, traps| drop(vms.wait(&traps.key(1), Duration::ZERO)), &[Op::Hash, Op::Eq, Op::Clone]),
        ("suspend", |vms, traps| vms.suspend(traps.key(1)), &[Op::Hash, Op::Eq]),
        ("resume", |vms, traps| vms.resume(&traps.key(1)), &[Op::Hash, Op::Eq]),
        ("status", |vms, _| drop(vms.status()), &[Op::Clone]),
        ("retry_now", |vms, _| assert_eq!(vms.retry_now(), 0), &[Op::Clone]),
    ];
    for (call, ask, ops) in calls {
        for op in ops {
            let traps = Traps::new();
            let clock = ManualClock::new();
            let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
            let (report, reported) = unbounded();
            let failing = Arc::new(AtomicBool::new(true));
            let fails = Arc::clone(&failing);
            let vms = saying("vm", &clock, report, move |key: &Key| {
                if key.0.id == 1 && fails.load(Ordering::SeqCst) { Err("not yet".into()) } else { Ok(key.0.id) }
            });
            let vms = vms.retry(Exponential::new(SECOND, SECOND).jitter(0.0)).build().unwrap().start(&pool).unwrap();
            // Key 1 is in every table of keys: it has failed, is suspended, and is delayed.
            vms.enqueue(traps.key(1));
            clock.wait_for_sleepers(2);
            vms.suspend(traps.key(1));
            traps.arm(*op, 1);
            assert_eq!(panics(|| ask(&vms, &traps)), format!("{op:?} of 1"), "{call}");
            traps.disarm();
            vms.enqueue(traps.key(2));
            vms.wait(&traps.key(2), Duration::MAX).unwrap();
            failing.store(false, Ordering::SeqCst);
            vms.resume(&traps.key(1));
            vms.retry_now();
            vms.wait(&traps.key(1), Duration::MAX).unwrap();
            assert_eq!(reported.try_iter().collect::<HashSet<_>>(), HashSet::from([1, 2]), "{call}, {op:?}");
            vms.shutdown(Duration::ZERO).unwrap();
            pool.shutdown(Duration::ZERO).unwrap();
            assert_eq!(traps.alive.load(Ordering::Relaxed), 0, "{call}, {op:?}: remaining keys");
        }
    }
}

#[test]
fn a_resume_that_panics_can_be_repeated() {
    let traps = Traps::new();
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let (report, reported) = unbounded();
    let vms = saying("vm", &clock, report, |key: &Key| Ok(key.0.id)).build().unwrap().start(&pool).unwrap();
    vms.suspend(traps.key(1));
    vms.enqueue(traps.key(1));
    until("the suspended key waits", || vms.queue().metrics().delayed > 0);
    for op in [Op::Hash, Op::Eq] {
        traps.arm(op, 1);
        assert_eq!(panics(|| vms.resume(&traps.key(1))), format!("{op:?} of 1"));
        traps.disarm();
        assert_eq!((vms.status().suspended.len(), reported.len()), (1, 0));
    }
    vms.resume(&traps.key(1));
    assert_eq!(reported.recv_timeout(60 * SECOND), Ok(1));
    vms.wait(&traps.key(1), Duration::MAX).unwrap();
    vms.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
    assert_eq!(traps.alive.load(Ordering::Relaxed), 0, "remaining keys");
}

/// The last call sets the rate, even if a thread has just seen the previous rate. Here the drop of a key sets it,
/// between the check for a token and the end of the turn.
#[test]
fn a_rate_that_is_lifted_as_a_turn_ends_delays_no_key() {
    let traps = Traps::new();
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let (report, reported) = unbounded();
    let vms = saying("vm", &clock, report, |key: &Key| Ok(key.0.id)).rate_limit(0.001, 1).build().unwrap();
    let (first, handle) = (traps.key(1), vms.handle());
    vms.handle().suspend_all();
    let vms = vms.start(&pool).unwrap();
    vms.queue().enqueue(first);
    vms.queue().enqueue(traps.key(2));
    *traps.on_drop.lock() = Some(Arc::new(move |id| {
        if id == 1 {
            handle.set_rate_limit(None).unwrap();
        }
    }));
    vms.resume_all();
    clock.wait_for_sleepers(1);
    until("the key runs", || !reported.is_empty());
    clock.wait_for_sleepers(2);
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [1, 2]);
    *traps.on_drop.lock() = None;
    vms.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
}

/// The next key ends the turn with a panic as it is taken. A wait for the previous key still returns.
#[test]
fn a_wait_for_a_key_returns_although_the_next_key_panics() {
    let traps = Traps::new();
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let (runs, director) = stage();
    let (report, reported) = unbounded();
    let vms = saying("vm", &clock, report, move |key: &Key| {
        runs.enter(key.0.id);
        Ok(key.0.id)
    });
    let vms = vms.build().unwrap().start(&pool).unwrap();
    vms.enqueue(traps.key(1));
    director.next();
    vms.enqueue(traps.key(2));
    traps.arm(Op::Clone, 2);
    thread::scope(|scope| {
        let (key, vms) = (traps.key(1), &vms);
        let waits = scope.spawn(move || vms.wait(&key, Duration::MAX));
        // The waiting thread and the timer thread.
        clock.wait_for_sleepers(2);
        director.cue();
        assert!(waits.join().unwrap().is_ok());
    });
    assert_eq!(reported.recv().unwrap(), 1);
    vms.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
}
