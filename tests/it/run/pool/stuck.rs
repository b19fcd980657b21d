//! Runs that continue past their deadline.

use std::cell::RefCell;

use homeostat::queue::KeyState;
use homeostat::run::WorkerPoolBuilder;
use homeostat::{EnqueueOutcome, Reasons, Running, ThreadOptions};
use log::Level;
use parking_lot::Condvar;

use super::*;
use crate::stages::logs::Logs;
use crate::stages::{ALLOWANCE, just_before};
use crate::until::until;
use homeostat::ControllerHandle;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a run is stuck.
const OVERRUN: Duration = TIMEOUT.saturating_add(ALLOWANCE);

/// Starts a pool of one thread, and a controller with a limit above the number of threads.
fn start(runs: &Runs, spares: usize, name: &str) -> (ManualClock, Running<WorkerPool>, Running<ControllerHandle<u32>>) {
    start_with(runs, |pool| pool.name(name).spares(spares))
}

fn start_with(
    runs: &Runs,
    set: impl FnOnce(WorkerPoolBuilder) -> WorkerPoolBuilder,
) -> (ManualClock, Running<WorkerPool>, Running<ControllerHandle<u32>>) {
    let clock = ManualClock::new();
    let pool = set(WorkerPool::builder().threads(1).clock(clock.clock())).start().unwrap();
    let vms = runs.of("vm", &clock.clock()).max_concurrent_reconciles(8).reconcile_timeout(TIMEOUT);
    let vms = vms.build().unwrap().start(&pool).unwrap();
    (clock, pool, vms)
}

/// Asserts that no run begins. The sleepers are the timer thread and `idle` pool threads.
fn assert_quiet(clock: &ManualClock, runs: &Runs, idle: usize) {
    clock.wait_for_sleepers(1 + idle);
    assert!(runs.is_quiet());
}

#[test]
fn a_stuck_run_is_reported_keeps_its_key_and_has_its_thread_replaced() {
    let logs = Logs::of("stuck-pool");
    let runs = Runs::new();
    let (clock, pool, vms) = start(&runs, 1, "stuck-pool");
    vms.enqueue(1);
    let stuck = runs.next();
    vms.enqueue(2);
    clock.wait_for_sleepers(1);
    clock.advance(just_before(OVERRUN));
    assert_quiet(&clock, &runs, 0);
    assert_eq!((pool.overdue(), vms.metrics().runs.overruns), (vec![], 0));
    clock.advance(Duration::from_nanos(1));
    let second = runs.next();
    assert_eq!((second.key, second.thread.as_str()), (2, "stuck-pool-1"));
    let line = logs.wait_for(Level::Warn, "in place of a stuck one");
    assert_eq!(line.field("thread"), "stuck-pool-1");
    // The run still blocks.
    assert_eq!((pool.overdue(), vms.metrics().runs.overruns), (vec!["stuck-pool-0".to_owned()], 1));
    let mut running = vms.status().running;
    running.sort_unstable_by_key(|run| run.key.clone());
    let seen: Vec<_> = running.iter().map(|run| (&*run.key, &*run.thread, run.elapsed, run.overdue)).collect();
    assert_eq!(seen, [("1", "stuck-pool-0", OVERRUN, true), ("2", "stuck-pool-1", Duration::ZERO, false)]);
    // Its key stays claimed: a request is kept for later, and does not start a run or change its reasons.
    assert_eq!(vms.queue().because(Reasons::POLL).enqueue(1), EnqueueOutcome::Rerun);
    assert_eq!(vms.status().running.iter().map(|run| run.reasons).collect::<Vec<_>>(), [Reasons::MANUAL; 2]);
    drop(second);
    assert_quiet(&clock, &runs, 1);
    assert!(matches!(vms.queue().state(&1), KeyState::Processing(_)));
    drop(stuck);
    let again = runs.next();
    assert_eq!(again.key, 1);
    drop(again);
    clock.wait_for_sleepers(3);
    assert_eq!((pool.overdue(), vms.metrics().runs.successes), (vec![], 3));
}

#[test]
fn a_run_that_ends_once_it_is_cancelled_has_timed_out_and_is_not_stuck() {
    let logs = Logs::of("prompt");
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().name("prompt").threads(1).clock(clock.clock()).start().unwrap();
    let (begun, entered) = bounded(0);
    let vms = Controller::builder("prompt", move |cx: &Context, _: &u32| -> Outcome {
        let token = cx.token();
        begun.send(())?;
        token.wait();
        Ok(Action::await_change())
    });
    let vms = vms.clock(clock.clock()).reconcile_timeout(TIMEOUT).build().unwrap().start(&pool).unwrap();
    for key in 0..20 {
        vms.enqueue(key);
        entered.recv().unwrap();
        clock.wait_for_sleepers(1);
        clock.advance(TIMEOUT);
        clock.wait_for_sleepers(2);
        // It does not become stuck later.
        clock.advance(TIMEOUT);
    }
    let runs = vms.metrics().runs;
    assert_eq!((runs.overruns, runs.timeouts, runs.successes), (0, 20, 20));
    assert_eq!(logs.at(Level::Warn), []);
}

#[test]
fn the_pool_has_its_size_again_once_the_run_returns() {
    let runs = Runs::new();
    let started = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&started);
    let options = ThreadOptions::new().on_start(move |name| hook.lock().push(name.to_owned()));
    let (clock, pool, vms) = start_with(&runs, |pool| pool.spares(2).thread_options(options));
    feed(&vms, 4);
    let stuck = runs.next();
    clock.wait_for_sleepers(1);
    clock.advance(OVERRUN);
    let second = runs.next();
    drop(stuck);
    // Two threads share one worker slot.
    assert_quiet(&clock, &runs, 1);
    drop(second);
    let third = runs.next();
    assert_quiet(&clock, &runs, 1);
    // The next stuck run starts no thread, because a spare thread exists.
    clock.advance(OVERRUN);
    let fourth = runs.next();
    assert!(["pool-0", "pool-1"].contains(&fourth.thread.as_str()), "{}", fourth.thread);
    assert_eq!(pool.overdue(), std::slice::from_ref(&third.thread));
    clock.wait_for_sleepers(1);
    assert_eq!(vms.metrics().runs.overruns, 2);
    drop((third, fourth));
    vms.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
    let mut started = started.lock();
    started.sort_unstable();
    assert_eq!(*started, ["pool-0", "pool-1", "pool-timer"]);
}

#[test]
fn there_are_at_most_the_set_number_of_spare_threads() {
    for spares in 0..3 {
        let runs = Runs::new();
        let (clock, pool, vms) = start(&runs, spares, "pool");
        feed(&vms, 8);
        let mut stuck = Vec::new();
        for _ in 0..=spares {
            stuck.push(runs.next());
            assert_quiet(&clock, &runs, 0);
            clock.advance(OVERRUN);
        }
        assert_quiet(&clock, &runs, 0);
        assert_eq!((pool.overdue().len(), vms.metrics().runs.overruns), (spares + 1, spares as u64 + 1));
        // A thread that returns takes the next key, because all other threads are stuck.
        let thread = stuck[0].thread.clone();
        stuck.remove(0);
        let next = runs.next();
        assert_eq!((next.thread.as_str(), next.key as usize), (thread.as_str(), spares + 1));
        assert_quiet(&clock, &runs, 0);
        vms.stop();
        drop((stuck, next));
    }
}

/// The pool gets another thread, but the controller's limit still counts its stuck runs.
#[test]
fn a_stuck_run_counts_in_its_controllers_limit() {
    let runs = Runs::new();
    let (clock, pool, vms) = start(&runs, 4, "pool");
    vms.set_max_concurrent_reconciles(1).unwrap();
    let disks = runs.of("disk", &clock.clock()).build().unwrap().start(&pool).unwrap();
    feed(&vms, 2);
    let stuck = runs.next();
    clock.wait_for_sleepers(1);
    clock.advance(OVERRUN);
    // The spare thread finds no key that it may run, until another controller has one.
    assert_quiet(&clock, &runs, 1);
    disks.enqueue(7);
    let entry = runs.next();
    assert_eq!((entry.controller, entry.key, entry.thread.as_str()), ("disk", 7, "pool-1"));
    drop(entry);
    assert_quiet(&clock, &runs, 1);
    drop(stuck);
    assert_eq!(runs.next().key, 1);
    disks.wait(&7, Duration::MAX).unwrap();
}

/// A thread without a worker slot waits for a slot, and not for the next due time. Otherwise it would wake at that
/// time and look again without end.
#[test]
fn a_thread_without_a_slot_sleeps_although_a_key_is_due() {
    let runs = Runs::new();
    let (clock, pool, vms) = start(&runs, 1, "pool");
    let paced = runs.of("paced", &clock.clock()).rate_limit(1.0, 1).build().unwrap().start(&pool).unwrap();
    feed(&vms, 2);
    let stuck = runs.next();
    clock.wait_for_sleepers(1);
    clock.advance(OVERRUN);
    let second = runs.next();
    drop(stuck);
    clock.wait_for_sleepers(2);
    drop(second);
    // Two threads share one worker slot. One of them waits until the second key is due.
    feed(&paced, 2);
    drop(runs.next());
    clock.wait_for_sleepers(3);
    vms.enqueue(9);
    let third = runs.next();
    clock.wait_for_sleepers(2);
    clock.advance(SECOND);
    clock.wait_for_sleepers(2);
    assert!(runs.is_quiet());
    drop(third);
    assert_eq!(runs.next().controller, "paced");
}

/// A key with a `Debug` that blocks the watchdog until the test releases it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Shown;

/// The flags "a key is being formatted" and "the formatting may continue".
static SHOWING: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if std::thread::current().name() == Some("late-timer") {
            let mut showing = SHOWING.0.lock();
            showing.0 = true;
            SHOWING.1.notify_all();
            SHOWING.1.wait_while(&mut showing, |(_, go)| !*go);
        }
        f.write_str("shown")
    }
}

/// A thread-local value that reports on drop whether the join of its thread has already returned.
struct Last(Receiver<()>, Sender<bool>);

impl Drop for Last {
    fn drop(&mut self) {
        // The drop takes time, and a join of the thread must wait for it.
        let early = self.0.recv_timeout(Duration::from_millis(200)).is_ok();
        let _ = self.1.send(early);
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// The watchdog reports a stuck run before it starts a spare thread, so a join may begin in between.
#[test]
fn a_spare_thread_that_is_started_while_the_pool_is_joined_is_joined_too() {
    // The logger formats the key.
    let _logs = Logs::of("late");
    let (report, reported) = unbounded();
    let (joined, returned) = bounded(1);
    let options = ThreadOptions::new().on_start(move |name| {
        if name == "late-1" {
            LAST.set(Some(Last(returned.clone(), report.clone())));
        }
    });
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().name("late").threads(1).spares(1).clock(clock.clock()).thread_options(options);
    let pool = pool.start().unwrap();
    let (begun, entered) = bounded(1);
    let (go, gone) = bounded::<()>(0);
    let vms = Controller::builder("vm", move |_: &Context, _: &Shown| -> Outcome {
        begun.send(())?;
        let _ = gone.recv();
        Ok(Action::await_change())
    });
    let vms = vms.clock(clock.clock()).reconcile_timeout(TIMEOUT).build().unwrap().start(&pool).unwrap();
    vms.enqueue(Shown);
    entered.recv().unwrap();
    clock.wait_for_sleepers(1);
    std::thread::scope(|scope| {
        // The watchdog formats the key.
        let advancing = scope.spawn(|| clock.advance(OVERRUN));
        let mut showing = SHOWING.0.lock();
        SHOWING.1.wait_while(&mut showing, |(showing, _)| !*showing);
        drop(showing);
        vms.stop();
        let joining = scope.spawn(|| {
            pool.shutdown(Duration::ZERO).unwrap();
            let _ = joined.send(());
        });
        drop(go);
        until("the run has ended", || vms.metrics().runs.successes == 1);
        // The joining thread gets as far as the watchdog. If it takes longer, the test shows nothing.
        let (_never, pause) = bounded::<()>(0);
        let _ = pause.recv_timeout(Duration::from_millis(50));
        SHOWING.0.lock().1 = true;
        SHOWING.1.notify_all();
        advancing.join().unwrap();
        joining.join().unwrap();
    });
    vms.shutdown(Duration::ZERO).unwrap();
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [false], "it returns before the thread has ended");
}

/// The shutdown waits for the threads of the other worker slots. It does not wait for the watchdog, which waits for
/// this thread.
#[test]
fn a_run_on_a_spare_thread_may_end_its_pool() {
    let runs = Runs::new();
    let (clock, pool, vms) = start(&runs, 1, "pool");
    let (pools, taken) = bounded(0);
    let (report, thread) = bounded(0);
    let ender = Controller::builder("ender", move |_: &Context, _: &u32| -> Outcome {
        let pool: Running<WorkerPool> = taken.recv()?;
        let own = pool.shutdown(Duration::ZERO).unwrap_err();
        assert_eq!(own.still_running(), ["pool-1"]);
        report.send(std::thread::current().name().unwrap_or_default().to_owned())?;
        Ok(Action::await_change())
    });
    let ender = ender.clock(clock.clock()).build().unwrap().start(&pool).unwrap();
    vms.enqueue(1);
    let stuck = runs.next();
    ender.enqueue(2);
    clock.wait_for_sleepers(1);
    clock.advance(OVERRUN);
    pools.send(pool).unwrap();
    drop(stuck);
    assert_eq!(thread.recv().unwrap(), "pool-1");
}
