//! A wait for a time ends at exactly that time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use homeostat::run::Cancelled;
use homeostat::{
    Action, BoxError, CancellationToken, Context, Controller, Enqueue, Exponential, Poller, RequeueAfter, Watch,
    WorkQueue, Workers,
};
use homeostat_testing::Simulation;

use super::{DAY, HOUR, Key, MINUTE, Notes, Outcome, SECOND, done, pool};

fn failed(_cx: &Context, _key: Key) -> Outcome {
    Err("out of luck".into())
}

fn seconds(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
    times.into_iter().map(Duration::from_secs).collect()
}

/// Returns the run times of a key that always fails, with a backoff from one second to ten minutes.
fn backed_off(until: u64) -> Vec<Duration> {
    let (mut at, mut delay, mut times) = (0, 1, Vec::new());
    while at <= until {
        times.push(at);
        at += delay;
        delay = (2 * delay).min(600);
    }
    seconds(times)
}

#[test]
fn a_day_of_backoff_has_each_run_at_its_time() {
    let sim = Simulation::new(7);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 4));
    let backoff = Exponential::new(SECOND, 10 * MINUTE).jitter(0.0);
    let vms = Controller::builder("vm", notes.run(failed)).retry(backoff).clock(sim.clock()).build().unwrap();
    let vms = vms.start(&pool).unwrap();
    vms.enqueue("vm-1");
    sim.run_for(DAY);
    assert_eq!(notes.times(), backed_off(86_400));
    assert_eq!(sim.elapsed(), DAY);
    assert_eq!(vms.metrics().runs.retries, notes.times().len() as u64);
}

/// The workers have a queue without a controller.
#[test]
fn workers_back_off_as_controllers_do() {
    let sim = Simulation::new(7);
    let notes = Notes::new(&sim);
    let queue = WorkQueue::builder().clock(sim.clock()).build();
    let backoff = Exponential::new(SECOND, 10 * MINUTE).jitter(0.0);
    let workers = Workers::new(notes.run(failed)).threads(2).retry(backoff).start(&queue).unwrap();
    queue.enqueue("vm-1");
    sim.run_for(HOUR);
    assert_eq!(notes.times(), backed_off(3600));
    workers.shutdown(SECOND).unwrap();
    assert_eq!(sim.elapsed(), HOUR, "nobody was in a run");
}

#[test]
fn jitter_comes_from_the_seed() {
    let times = |seed| {
        let sim = Simulation::new(seed);
        let (notes, pool) = (Notes::new(&sim), pool(&sim, 4));
        let vms = Controller::builder("vm", notes.run(failed)).retry(Exponential::default()).clock(sim.clock());
        let vms = vms.build().unwrap().start(&pool).unwrap();
        vms.enqueue("vm-1");
        sim.run_for(HOUR);
        drop(vms);
        notes.times()
    };
    assert_eq!(times(1), times(1));
    assert_ne!(times(1), times(2));
}

#[test]
fn requeues_by_an_action_or_an_error_come_after_exactly_their_delay() {
    let sim = Simulation::new(3);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 1));
    let again = |_cx: &Context, key| match key {
        "action" => Ok(Action::requeue_after(7 * MINUTE)),
        _ => Err(RequeueAfter::new(10 * MINUTE, "not yet").into()),
    };
    let vms = Controller::builder("vm", notes.run(again)).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    vms.enqueue("action");
    vms.enqueue("error");
    sim.run_for(HOUR);
    let times = |key| notes.all().into_iter().filter(|(_, noted)| noted == key).map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(times("action"), seconds((0..=8).map(|n| n * 420)));
    assert_eq!(times("error"), seconds((0..=6).map(|n| n * 600)));
}

#[test]
fn pollers_poll_at_their_rate() {
    let sim = Simulation::new(1);
    let notes = Notes::new(&sim);
    let queue = WorkQueue::<Key>::builder().clock(sim.clock()).build();
    let polls = notes.clone();
    let poller = Poller::new(MINUTE, move |_cx: &Context| {
        polls.add("poll");
        Ok::<_, BoxError>(["vm-1"])
    });
    let poller = poller.clock(queue.clock()).start(&queue).unwrap();
    sim.run_for(5 * MINUTE);
    assert_eq!(notes.times(), seconds([0, 60, 120, 180, 240, 300]));
    assert_eq!(queue.len(), 1);
    poller.set_period(HOUR).unwrap();
    sim.run_for(HOUR);
    assert_eq!(notes.times().last(), Some(&(HOUR + 5 * MINUTE)));
}

#[test]
fn a_poll_watch_delivers_changes_of_its_list() {
    let sim = Simulation::new(1);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    // The VM exists in every second minute.
    let list = move |_cx: &Context| {
        let there = counted.fetch_add(1, SeqCst).is_multiple_of(2);
        Ok::<_, BoxError>(there.then_some(("vm-1", 1)))
    };
    let vms = Poller::new(MINUTE, list).clock(sim.clock()).watch().unwrap();
    let controller = Controller::builder("vm", notes.run(done))
        .watch(vms.watch(), |event| event.key().copied())
        .clock(sim.clock())
        .build()
        .unwrap();
    let controller = controller.start(&pool).unwrap();
    sim.run_for(3 * MINUTE + SECOND);
    assert_eq!(notes.times(), seconds([0, 60, 120, 180]));
    assert_eq!(polls.load(SeqCst), 4);
    drop((controller, vms));
    assert_eq!(sim.elapsed(), 3 * MINUTE + SECOND);
}

#[test]
fn runs_of_a_key_keep_the_minimum_interval() {
    let sim = Simulation::new(1);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
    let vms = Controller::builder("vm", notes.run(done)).min_interval(MINUTE).clock(sim.clock()).build().unwrap();
    let vms = vms.start(&pool).unwrap();
    for _ in 0..10 {
        vms.queue().enqueue("vm-1");
        sim.run_for(7 * SECOND);
    }
    assert_eq!(notes.times(), seconds([0, 60]));
}

#[test]
fn consecutive_events_are_one_run() {
    let sim = Simulation::new(1);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
    let watch = Watch::builder().clock(sim.clock()).push();
    let vms = Controller::builder("vm", notes.run(done))
        .watch(watch.watch(), |event| event.key().copied())
        .debounce(5 * SECOND, 20 * SECOND)
        .clock(sim.clock())
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    watch.synced();
    for value in 0..10 {
        watch.set("vm-1", value);
        sim.run_for(3 * SECOND);
    }
    sim.run_for(MINUTE);
    // The first run starts when the longest wait has passed, the second one five seconds after the last change.
    assert_eq!(notes.times(), seconds([20, 32]));
    drop(vms);
}

/// No task runs between the change and the wait, so the source still has the change.
#[test]
fn a_wait_right_after_a_change_sees_its_run() {
    for seed in 0..20 {
        let sim = Simulation::new(seed);
        let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
        let watch = Watch::builder().clock(sim.clock()).push();
        let vms = Controller::builder("vm", notes.run(done))
            .watch(watch.watch(), |event| event.key().copied())
            .clock(sim.clock())
            .build()
            .unwrap()
            .start(&pool)
            .unwrap();
        watch.synced();
        vms.wait_synced(MINUTE).unwrap();
        for value in 1..=10 {
            watch.set("vm-1", value);
            assert!(vms.wait(&"vm-1", MINUTE).unwrap().is_some(), "seed {seed}, change {value}");
        }
        assert_eq!(notes.times().len(), 10, "seed {seed}");
    }
}

#[test]
fn keys_are_run_at_the_limited_rate() {
    let sim = Simulation::new(5);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 3));
    let vms = Controller::builder("vm", notes.run(done)).rate_limit(0.5, 2).clock(sim.clock()).build().unwrap();
    let vms = vms.start(&pool).unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        vms.enqueue(key);
    }
    sim.run_for(MINUTE);
    assert_eq!(notes.times(), seconds([0, 0, 2, 4, 6]));
}

/// A suspended key is taken and set aside, in any order with the other key.
#[test]
fn a_key_that_does_not_run_does_not_use_up_the_rate() {
    Simulation::seeds(0..20, |sim| {
        let (notes, pool) = (Notes::new(sim), pool(sim, 2));
        let vms = Controller::builder("vm", notes.run(done)).rate_limit(1.0, 1).clock(sim.clock()).build().unwrap();
        let vms = vms.start(&pool).unwrap();
        vms.suspend("suspended");
        for key in ["suspended", "vm-1", "vm-2"] {
            vms.enqueue(key);
        }
        sim.run_for(MINUTE);
        assert_eq!(notes.times(), seconds([0, 1]));
        vms.resume(&"suspended");
        sim.run_for(MINUTE);
        assert_eq!(notes.times(), seconds([0, 1, 60]));
    });
}

#[test]
fn other_runs_take_place_during_a_sleep() {
    let sim = Simulation::new(2);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
    let slept = notes.clone();
    let sleep = move |cx: &Context, key: Key| {
        if key == "long" {
            cx.sleep(10 * SECOND)?;
            slept.add("awake");
        }
        Ok(if key == "short" { Action::requeue_after(3 * SECOND) } else { Action::await_change() })
    };
    let vms =
        Controller::builder("vm", notes.run(sleep)).clock(sim.clock()).max_concurrent_reconciles(2).build().unwrap();
    let vms = vms.start(&pool).unwrap();
    vms.enqueue("long");
    sim.run_until(SECOND, || !notes.all().is_empty() || sim.turns() > 100);
    assert_eq!(sim.elapsed(), 10 * SECOND, "its turn is over when it has slept");
    vms.enqueue("short");
    vms.enqueue("long");
    sim.run_for(10 * SECOND);
    let all = notes.all();
    let awake: Vec<_> = all.iter().filter(|(_, what)| what == "awake").map(|(at, _)| at.as_secs()).collect();
    let short: Vec<_> = all.iter().filter(|(_, what)| what == "short").map(|(at, _)| at.as_secs()).collect();
    assert_eq!((awake, short), (vec![10, 20], vec![10, 13, 16, 19]));
}

/// One run ends at its deadline. Another ignores it: the overrun is reported, its token is cancelled, and a spare
/// thread replaces its thread.
#[test]
fn a_run_that_passes_its_deadline_is_cancelled_and_reported() {
    Simulation::seeds(0..20, |sim| {
        let (notes, pool) = (Notes::new(sim), pool(sim, 1));
        let report = notes.clone();
        let sleep = move |cx: &Context, key: Key| {
            match key {
                "heeds" => {
                    assert_eq!(cx.sleep(HOUR), Err(Cancelled::DeadlineExceeded));
                    report.add("deadline");
                }
                "ignores" => {
                    let notice = report.clone();
                    cx.on_cancel(move || notice.add("cancelled")).detach();
                    Context::detached_with(cx.clock().clone(), CancellationToken::new()).sleep(MINUTE)?;
                }
                _ => {}
            }
            Ok(Action::await_change())
        };
        let vms = Controller::builder("vm", notes.run(sleep))
            .reconcile_timeout(10 * SECOND)
            .retry(Exponential::default().max_retries(0))
            .max_concurrent_reconciles(2)
            .clock(sim.clock())
            .build()
            .unwrap()
            .start(&pool)
            .unwrap();
        vms.enqueue("heeds");
        sim.run_for(MINUTE);
        assert_eq!(notes.times(), seconds([0, 10]));
        assert_eq!(vms.metrics().runs.overruns, 0, "it has ended in time");
        vms.enqueue("ignores");
        vms.queue().enqueue_after("other", 30 * SECOND);
        sim.run_for(MINUTE);
        let expected = [(60, "ignores"), (70, "cancelled"), (90, "other")];
        let expected: Vec<_> =
            expected.iter().map(|(at, what)| (Duration::from_secs(*at), (*what).to_owned())).collect();
        assert_eq!(notes.all()[2..], expected);
        assert_eq!(vms.metrics().runs.overruns, 1);
        assert!(pool.overdue().is_empty());
    });
}

/// When the time is over, a turn is in progress, and the key is due again when the turn ends.
#[test]
fn a_turn_that_sleeps_beyond_the_end_is_the_last_one() {
    let sim = Simulation::new(7);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 1));
    let sleeps = |cx: &Context, _key: Key| -> Outcome {
        cx.sleep(Duration::from_millis(300))?;
        Ok(Action::requeue_after(Duration::ZERO))
    };
    let vms = Controller::builder("vm", notes.run(sleeps)).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    vms.enqueue("vm-1");
    sim.run_for(SECOND);
    assert_eq!((notes.times().len(), sim.elapsed()), (4, Duration::from_millis(1_200)));
}

#[test]
fn a_poll_watch_by_another_clock_than_the_simulation_is_refused() {
    let sim = Simulation::new(7);
    let pool = pool(&sim, 1);
    let list = |_cx: &Context| Ok::<_, BoxError>([("vm-1", 1)]);
    let outside = Poller::new(HOUR, list).name("vms").watch().unwrap();
    let inside = Poller::new(HOUR, list).name("vms").clock(sim.clock()).watch().unwrap();
    let start = |watch: &Watch<&'static str, i32>| {
        let idle = |_: &Context, _: &&str| -> Outcome { Ok(Action::await_change()) };
        let vms = Controller::builder("vm", idle).watch(watch, |event| event.key().copied()).clock(sim.clock());
        vms.build().unwrap().start(&pool).map(drop)
    };
    start(inside.watch()).unwrap();
    let error = start(outside.watch()).unwrap_err();
    assert_eq!(error.to_string(), "watch \"vms\" polls by another clock than its simulation");
    outside.shutdown(SECOND).unwrap();
}
