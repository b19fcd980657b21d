//! A pool shared by several controllers: fairness, stuck runs, and controllers with own threads.
//!
//! Bounds are counted in runs. Most runs last until the test drops their [`Entry`], so the test alone decides which
//! run ends.

mod stuck;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use homeostat::controller::ControllerBuilder;
use homeostat::queue::EnqueueMethod;
use homeostat::{Action, BoxError, Clock, Context, Controller, Enqueue, ManualClock, Running, WorkerPool};
use parking_lot::Mutex;

use crate::stages::{ALLOWANCE, SECOND, just_before};
use crate::support::MS;
use crate::until::until;
use homeostat::ControllerHandle;

type Outcome = Result<Action, BoxError>;

/// A run under way, which ends when this is dropped.
struct Entry {
    controller: &'static str,
    key: u32,
    thread: String,
    _go: Sender<()>,
}

/// A stop for the runs of several controllers. Each run waits there until the test releases it.
struct Runs(Sender<Entry>, Receiver<Entry>);

impl Runs {
    fn new() -> Self {
        let (entries, seen) = unbounded();
        Self(entries, seen)
    }

    /// Returns a controller with runs that stop here and ignore their context.
    fn of(&self, controller: &'static str, clock: &Clock) -> ControllerBuilder<u32> {
        let entries = self.0.clone();
        let reconcile = move |_cx: &Context, key: &u32| {
            let (go, gone) = bounded(0);
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            let _ = entries.send(Entry { controller, key: *key, thread, _go: go });
            let _ = gone.recv();
            Ok::<_, BoxError>(Action::await_change())
        };
        Controller::builder(controller, reconcile).clock(clock.clone())
    }

    /// Waits for the next run to begin.
    fn next(&self) -> Entry {
        self.1.recv().expect("the other end is here")
    }

    fn is_quiet(&self) -> bool {
        self.1.is_empty()
    }
}

fn feed(controller: &Running<ControllerHandle<u32>>, keys: u32) {
    let tally = controller.queue().request_all(&mut (0..keys), EnqueueMethod::Enqueue.into());
    assert_eq!(tally.total(), keys as usize);
}

/// On one thread, one run of the other controller comes between two of the ten, and no more.
#[test]
fn ten_keys_are_served_beside_a_hundred_thousand() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let others = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&others);
    let (begun, first) = bounded(0);
    let (go, gone) = bounded::<()>(0);
    let many = Controller::builder("many", move |_: &Context, _: &u32| -> Outcome {
        if count.fetch_add(1, SeqCst) == 0 {
            begun.send(())?;
            let _ = gone.recv();
        }
        Ok(Action::await_change())
    });
    let many = many.clock(clock.clock()).max_concurrent_reconciles(4).build().unwrap().start(&pool).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let few = Controller::builder("few", move |_: &Context, _: &u32| -> Outcome {
        note.lock().push(others.load(SeqCst));
        Ok(Action::await_change())
    });
    let few = few.clock(clock.clock()).build().unwrap().start(&pool).unwrap();
    clock.wait_for_sleepers(2);
    feed(&many, 100_000);
    first.recv().unwrap();
    feed(&few, 10);
    drop(go);
    few.wait(&9, Duration::MAX).unwrap();
    // The first of the ten comes after the run that was under way and the run that was queued before it.
    assert_eq!(*seen.lock(), (2..=11).collect::<Vec<u64>>());
    many.shutdown(Duration::ZERO).unwrap();
}

/// The test uses one thread. Only the runs of the busy controller advance the clock, by `step` each.
#[test]
fn controllers_keep_their_rates_beside_one_with_work_for_all_threads() {
    for (burst, step) in [(1, 1), (1, 3), (5, 7)] {
        let clock = ManualClock::new();
        let start = clock.now();
        let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
        let limited: Vec<_> = (0..3)
            .map(|number| {
                let reconcile = |_: &Context, _: &u32| Ok::<_, BoxError>(Action::await_change());
                let limited = Controller::builder(format!("limited-{number}"), reconcile).rate_limit(100.0, burst);
                let limited = limited.clock(clock.clock()).build().unwrap().start(&pool).unwrap();
                feed(&limited, 2000);
                limited
            })
            .collect();
        // Each has run its burst and waits for its next turn. The sleepers are the threads of the pool: worker
        // and timer.
        clock.wait_for_sleepers(2);
        let moved = clock.clone();
        let busy = Controller::builder("busy", move |_: &Context, key: &u32| -> Outcome {
            if *key < 2000 {
                moved.advance(step * MS);
            }
            Ok(Action::await_change())
        });
        let busy = busy.clock(clock.clock()).build().unwrap().start(&pool).unwrap();
        feed(&busy, 2001);
        busy.wait(&2000, Duration::MAX).unwrap();
        clock.wait_for_sleepers(2);
        let due = u64::try_from((clock.now() - start).as_millis() / 10).unwrap() + u64::from(burst);
        for limited in &limited {
            let runs = limited.metrics().runs.runs();
            assert!(runs.abs_diff(due) <= 1, "burst {burst}, step {step}: {runs} runs of {due}");
        }
    }
}

/// All threads are in runs of the busy controller when the limited controller becomes due.
#[test]
fn the_first_thread_to_become_free_serves_a_controller_that_is_due() {
    for threads in [1, 3] {
        let clock = ManualClock::new();
        let runs = Runs::new();
        let pool = WorkerPool::builder().threads(threads).clock(clock.clock()).start().unwrap();
        let limited = runs.of("limited", &clock.clock()).rate_limit(1.0, 1).build().unwrap().start(&pool).unwrap();
        feed(&limited, 50);
        drop(runs.next());
        clock.wait_for_sleepers(1 + threads);
        let busy = runs.of("busy", &clock.clock()).max_concurrent_reconciles(threads);
        let busy = busy.build().unwrap().start(&pool).unwrap();
        feed(&busy, 1000);
        let mut under_way: Vec<_> = (0..threads).map(|_| runs.next()).collect();
        for _ in 0..10 {
            clock.advance(just_before(SECOND));
            under_way.remove(0);
            under_way.push(runs.next());
            assert_eq!(under_way[threads - 1].controller, "busy");
            clock.advance(Duration::from_nanos(1));
            under_way.remove(0);
            let entry = runs.next();
            assert_eq!(entry.controller, "limited");
            drop(entry);
            under_way.push(runs.next());
            assert_eq!(under_way[threads - 1].controller, "busy");
        }
        busy.stop();
        limited.stop();
        drop((under_way, runs));
    }
}

/// Once a controller is waiting, at most one run of each other controller begins before its own, on any number of
/// threads.
#[test]
fn a_controller_waits_for_one_run_of_each_other_with_any_number_of_threads() {
    for (threads, limit) in [(1, 1), (2, 1), (3, 1), (3, 2), (4, 3)] {
        let runs = Runs::new();
        let pool = WorkerPool::builder().threads(threads).start().unwrap();
        let clock = Clock::system();
        let big = ["big", "bigger"].map(|name| {
            let big = runs.of(name, &clock).max_concurrent_reconciles(threads).build().unwrap().start(&pool).unwrap();
            feed(&big, 2000);
            big
        });
        let few = runs.of("few", &clock).max_concurrent_reconciles(limit).build().unwrap().start(&pool).unwrap();
        until("the controller has started", || few.has_synced());
        let mut under_way: Vec<_> = (0..threads).map(|_| runs.next()).collect();
        feed(&few, 50);
        let (mut active, mut served) = (0, 0);
        // The runs of each other controller that began while the controller with few keys was waiting.
        let mut others = [0; 2];
        // A fixed pseudorandom sequence chooses the run that ends next.
        let mut choice = 7_usize;
        while served < 50 {
            choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let ended = under_way.swap_remove((choice >> 33) % threads);
            if ended.controller == "few" {
                if active == limit {
                    others = [0; 2];
                }
                active -= 1;
            }
            drop(ended);
            let entry = runs.next();
            match entry.controller {
                "few" => {
                    (active, served, others) = (active + 1, served + 1, [0; 2]);
                }
                name if active < limit => {
                    let count = &mut others[usize::from(name == "bigger")];
                    *count += 1;
                    assert_eq!(*count, 1, "{name}, {threads} threads, {served} served");
                }
                _ => {}
            }
            assert!(active <= limit);
            under_way.push(entry);
        }
        for controller in &big {
            controller.stop();
        }
        drop(under_way);
        drop(runs);
    }
}

/// A controller with own threads and the pool do not block each other.
#[test]
fn a_controller_with_threads_of_its_own_does_not_touch_the_pool() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let runs = Runs::new();
    let shared = runs.of("shared", &clock.clock()).build().unwrap().start(&pool).unwrap();
    let own = runs.of("own", &clock.clock()).own_threads(2).max_concurrent_reconciles(5).reconcile_timeout(SECOND);
    let own = own.build().unwrap().start(&pool).unwrap();
    feed(&shared, 1);
    let blocked = runs.next();
    assert_eq!((blocked.controller, blocked.thread.as_str()), ("shared", "pool-0"));
    feed(&own, 3);
    let under_way = [runs.next(), runs.next()];
    let mut threads = under_way.each_ref().map(|entry| entry.thread.as_str());
    threads.sort_unstable();
    assert_eq!(threads, ["own-0", "own-1"]);
    // The sleepers are both timer threads. The controller has two threads at any limit.
    clock.wait_for_sleepers(2);
    assert!(runs.is_quiet());
    // A stuck run of this controller uses the controller's own spare threads.
    clock.advance(SECOND + ALLOWANCE);
    let third = runs.next();
    assert!(third.key == 2 && ["own-2", "own-3"].contains(&third.thread.as_str()), "{}", third.thread);
    // The other spare thread sleeps.
    clock.wait_for_sleepers(3);
    assert_eq!((pool.overdue().len(), own.metrics().runs.overruns, shared.metrics().runs.overruns), (0, 2, 0));
    drop((under_way, third));
    for key in 0..3 {
        own.wait(&key, Duration::MAX).unwrap();
    }
    // The controller does not need the pool.
    drop(blocked);
    pool.shutdown(Duration::ZERO).unwrap();
    own.enqueue(9);
    drop(runs.next());
    own.wait(&9, Duration::MAX).unwrap();
    assert_eq!(own.metrics().runs.successes, 4);
}

/// A key with a number. If it is odd, the first `Clone` panics.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert_eq!(self.0 % 2, 0, "the clone of a key");
        Self(self.0)
    }
}

#[test]
fn a_key_whose_clone_panics_takes_no_token_of_the_rate_limit() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap();
    let (runs, seen) = unbounded();
    let reconcile = move |_: &Context, key: &Fragile| -> Outcome {
        let _ = runs.send(key.0);
        Ok(Action::await_change())
    };
    let limited = Controller::builder("limited", reconcile).clock(clock.clock()).rate_limit(1.0, 1).build().unwrap();
    let limited = limited.start(&pool).unwrap();
    limited.suspend_all();
    limited.queue().enqueue(Fragile(1));
    limited.queue().enqueue(Fragile(2));
    limited.resume_all();
    assert_eq!(seen.recv(), Ok(2), "by the only token, without a step of the clock");
}
