//! Waits that cannot end, refused components, and the end of a simulation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::controller::{RunOutcome, WaitError};
use homeostat::watch::PushMessage;
use homeostat::{
    Action, BoxError, Component, Context, Controller, ControllerHandle, Enqueue, Exponential, Manager, Poller, Running,
    StartError, ThreadOptions, Watch, WorkQueue, WorkerPool, Workers,
};
use homeostat_objects::{Kind, MemoryClient, ObjectStream, ObjectWatch};
use homeostat_test_support::system::in_a_process_of_its_own;
use homeostat_testing::Simulation;
use parking_lot::Mutex;

use super::{DAY, HOUR, Key, MINUTE, Notes, Outcome, SECOND, done, panic_of, pool};
use crate::hooked_client::HookedClient;
use homeostat::base::StartErrorKind;

fn controller(sim: &Simulation, pool: &WorkerPool, notes: &Notes) -> Running<ControllerHandle<Key>> {
    Controller::builder("vm", notes.run(done)).clock(sim.clock()).build().unwrap().start(pool).unwrap()
}

#[test]
fn an_endless_wait_panics_and_names_the_waiter() {
    let sim = Simulation::new(1);
    let queue = WorkQueue::<Key>::builder().clock(sim.clock()).build();
    let text = panic_of(|| drop(queue.dequeue()));
    assert!(text.starts_with("a wait in a simulation does not end: nothing is due, now or later"), "{text}");
    let again = panic_of(|| sim.run_for(SECOND));
    assert_eq!(again, text, "it has not continued");
}

/// The workers report the panic as a panic of the reconciler, and the simulation repeats it.
#[test]
fn a_run_that_waits_for_ever_ends_the_simulation() {
    let sim = Simulation::new(1);
    let pool = pool(&sim, 2);
    let forever = |cx: &Context, _key: &Key| -> Outcome {
        cx.sleep(Duration::MAX)?;
        Ok(Action::await_change())
    };
    let vms = Controller::builder("vm", forever).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    vms.enqueue("vm-1");
    // `run_until` panics, even though the condition holds by then.
    let text = panic_of(|| sim.run_until(HOUR, || vms.metrics().runs.panics > 0));
    assert!(text.contains("nothing is due, now or later"), "{text}");
    assert!(text.contains("in the midst of a turn: pool-"), "{text}");
    // These drops must not wait for the run, which never ends.
    drop((sim, vms, pool));
}

/// A poll each minute lets time pass, but the condition never holds.
#[test]
fn an_endless_wait_panics_even_if_time_passes() {
    let sim = Simulation::new(1).most_turns(1_000);
    let (asked, waited) = [(); 2].map(|()| WorkQueue::<Key>::builder().clock(sim.clock()).build()).into();
    let poller =
        Poller::new(MINUTE, |_cx: &Context| Ok::<_, BoxError>(["vm-1"])).clock(asked.clock()).start(&asked).unwrap();
    let text = panic_of(|| drop(waited.dequeue()));
    assert!(text.contains("time passes, but the awaited event never happens"), "{text}");
    assert!(text.contains("of the last turns: poller-0"), "{text}");
    drop(poller);
}

#[test]
fn a_component_that_never_becomes_idle_is_named() {
    let sim = Simulation::new(1);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 1));
    let at_once = |_cx: &Context, _key: &Key| Ok::<_, BoxError>(Action::requeue_after(Duration::ZERO));
    let vms = Controller::builder("busy", at_once).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    let idle = controller(&sim, &pool, &notes);
    vms.enqueue("vm-1");
    let text = panic_of(|| sim.run_until_idle());
    assert!(text.starts_with("the simulation never becomes idle: time stands still"), "{text}");
    assert!(text.contains("of the last turns: pool-0 (1000)"), "{text}");
    assert_eq!(sim.elapsed(), Duration::ZERO);
    assert_eq!(sim.turns(), 100_000);
    drop((vms, idle));
}

#[test]
fn a_condition_that_stays_false_panics_at_the_timeout() {
    let sim = Simulation::new(1);
    let text = panic_of(|| sim.run_until(MINUTE, || false));
    assert!(text.starts_with("the condition of `run_until` did not hold within 60s"), "{text}");
    let sim = Simulation::new(1);
    sim.run_until(MINUTE, || sim.elapsed() == MINUTE);
    assert_eq!(sim.elapsed(), MINUTE, "it holds at the end");
}

#[test]
fn a_test_can_wait_for_a_key() {
    let sim = Simulation::new(4);
    let pool = pool(&sim, 1);
    let slow = |cx: &Context, key: &Key| -> Outcome {
        cx.sleep(MINUTE)?;
        if *key == "bad" { Err("out of luck".into()) } else { Ok(Action::await_change()) }
    };
    let vms = Controller::builder("vm", slow)
        .retry(Exponential::default().max_retries(0))
        .clock(sim.clock())
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    vms.enqueue("good");
    assert_eq!(vms.wait(&"good", HOUR), Ok(Some(RunOutcome::Succeeded)));
    assert_eq!(sim.elapsed(), MINUTE);
    vms.enqueue("bad");
    assert_eq!(vms.wait(&"bad", HOUR), Ok(Some(RunOutcome::Failed("out of luck".to_owned()))));
    assert_eq!(sim.elapsed(), 2 * MINUTE);
    vms.suspend_all();
    vms.enqueue("good");
    assert_eq!(vms.wait(&"good", HOUR), Err(WaitError::Timeout));
    assert_eq!(sim.elapsed(), HOUR + 2 * MINUTE);
}

/// The second run is on top of the first one, which resumes when the second returns.
#[test]
fn a_run_can_wait_for_the_run_of_another_key() {
    let sim = Simulation::new(4);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
    let vms = Arc::new(OnceLock::<ControllerHandle<Key>>::new());
    let own = Weak::clone(&Arc::downgrade(&vms));
    let waits = move |_cx: &Context, key: Key| {
        if key == "first" {
            let vms = own.upgrade().and_then(|own| own.get().cloned()).ok_or("it is gone")?;
            vms.enqueue("second");
            vms.wait(&"second", HOUR)?;
        }
        Ok(Action::await_change())
    };
    let reconcile = notes.run(waits);
    let running = Controller::builder("vm", reconcile).max_concurrent_reconciles(2).clock(sim.clock()).build().unwrap();
    vms.set(running.handle()).unwrap();
    let running = running.start(&pool).unwrap();
    running.enqueue("first");
    assert_eq!(running.wait(&"first", HOUR), Ok(Some(RunOutcome::Succeeded)));
    assert_eq!(notes.whats(), ["first", "second"]);
    assert_eq!(sim.elapsed(), Duration::ZERO);
    drop((running, vms));
}

#[test]
fn a_component_that_has_not_run_is_stopped_and_joined_at_once() {
    let sim = Simulation::new(6);
    let (notes, queue) = (Notes::new(&sim), WorkQueue::builder().clock(sim.clock()).build());
    let workers = Workers::new(notes.run(done)).threads(2).start(&queue).unwrap();
    let poller = Poller::new(MINUTE, |cx: &Context| cx.sleep(HOUR).map(|()| [""; 0]))
        .clock(queue.clock())
        .start(&queue)
        .unwrap();
    poller.shutdown(SECOND).unwrap();
    queue.enqueue("vm-1");
    workers.shutdown(SECOND).unwrap();
    assert_eq!((sim.elapsed(), queue.len(), notes.all().len()), (Duration::ZERO, 1, 0));
}

/// The drop waits for the whole grace period, but not for its own poll, as on a real thread.
#[test]
fn a_poll_that_drops_its_own_poller_continues() {
    let sim = Simulation::new(6);
    let (notes, queue) = (Notes::new(&sim), WorkQueue::<Key>::builder().clock(sim.clock()).build());
    let own = Arc::new(Mutex::new(None));
    let (taken, report) = (Arc::clone(&own), notes.clone());
    let poller = Poller::new(MINUTE, move |_cx: &Context| {
        drop(taken.lock().take());
        report.add("dropped");
        Ok::<_, BoxError>(["vm-1"])
    });
    *own.lock() = Some(poller.clock(queue.clock()).shutdown_grace(10 * SECOND).start(&queue).unwrap());
    sim.run_for(HOUR);
    assert_eq!(notes.times(), [10 * SECOND]);
    assert_eq!(queue.len(), 1);
}

/// The drop waits for the whole grace period, but not for its own run, as on a real thread.
#[test]
fn a_run_that_drops_its_own_controller_continues() {
    let sim = Simulation::new(6);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 1));
    let own = Arc::new(Mutex::new(None));
    let (taken, report) = (Arc::clone(&own), notes.clone());
    let ends = move |_cx: &Context, _key: &Key| -> Outcome {
        drop(taken.lock().take());
        report.add("dropped");
        Ok(Action::await_change())
    };
    let vms = Controller::builder("vm", ends).shutdown_grace(10 * SECOND).clock(sim.clock()).build().unwrap();
    let vms = vms.start(&pool).unwrap();
    vms.enqueue("vm-1");
    *own.lock() = Some(vms);
    sim.run_for(HOUR);
    assert_eq!(notes.times(), [10 * SECOND]);
    assert_eq!(Arc::strong_count(&own), 1, "the reconciler is dropped");
}

/// A run shuts down a controller. A run of that controller waits beneath it.
#[test]
fn a_shutdown_of_a_controller_with_a_run_beneath_panics() {
    let sim = Simulation::new(6);
    let pool = pool(&sim, 2);
    let sleep = |cx: &Context, _key: &Key| -> Outcome {
        let _ = cx.sleep(DAY);
        Ok(Action::await_change())
    };
    let beneath = Controller::builder("beneath", sleep).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    beneath.enqueue("vm-1");
    let beneath = Mutex::new(Some(beneath));
    let shut_down = move |_cx: &Context, _key: &Key| -> Outcome {
        if let Some(beneath) = beneath.lock().take() {
            beneath.shutdown(SECOND).unwrap();
        }
        Ok(Action::await_change())
    };
    let queue = WorkQueue::builder().clock(sim.clock()).build();
    let on_top = Workers::new(shut_down).start(&queue).unwrap();
    queue.enqueue_after("vm-2", MINUTE);
    let text = panic_of(|| sim.run_for(HOUR));
    assert!(text.starts_with("a wait in a simulation does not end"), "{text}");
    drop(on_top);
}

/// A run shuts down workers that have a run waiting beneath it.
#[test]
fn a_join_of_a_run_that_waits_beneath_panics() {
    let sim = Simulation::new(6);
    let (one, other) = ["one", "other"].map(|_| WorkQueue::builder().clock(sim.clock()).build()).into();
    let sleep = |cx: &Context, _key: &Key| -> Outcome {
        let _ = cx.sleep(DAY);
        Ok(Action::await_change())
    };
    let beneath = Mutex::new(Some(Workers::new(sleep).name("beneath").start(&one).unwrap()));
    let join = move |_cx: &Context, _key: &Key| -> Outcome {
        if let Some(beneath) = beneath.lock().take() {
            beneath.shutdown(SECOND).unwrap();
        }
        Ok(Action::await_change())
    };
    let on_top = Workers::new(join).start(&other).unwrap();
    one.enqueue("vm-1");
    other.enqueue_after("vm-2", MINUTE);
    let text = panic_of(|| sim.run_for(HOUR));
    assert!(
        text.starts_with("a wait in a simulation does not end: it is for a turn that waits for this one"),
        "{text}"
    );
    assert!(text.contains("(after 61s; in the midst of a turn: beneath-0, worker-0;"), "{text}");
    drop(on_top);
}

#[test]
fn a_simulation_that_is_dropped_leaves_nothing_behind() {
    let dropped = Arc::new(());
    let held = Arc::clone(&dropped);
    let sim = Simulation::new(1);
    let pool = pool(&sim, 2);
    let holding = move |_cx: &Context, _key: &Key| -> Outcome {
        assert!(Arc::strong_count(&held) > 1);
        Ok(Action::requeue_after(SECOND))
    };
    let vms = Controller::builder("vm", holding).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    let push = Watch::<Key, u32>::builder().clock(sim.clock()).push();
    let queue = WorkQueue::<Key>::builder().clock(sim.clock()).build();
    let subscription = push.watch().subscribe(homeostat::Subscriber::to_itself(&queue)).unwrap();
    vms.enqueue("vm-1");
    push.set("vm-1", 1);
    sim.run_for(MINUTE);
    let clock = sim.clock();
    drop(sim);
    let refused =
        Poller::new(MINUTE, |_cx: &Context| Ok::<_, BoxError>([""; 0])).clock(queue.clock()).start(&queue).unwrap_err();
    assert_eq!(refused.kind(), StartErrorKind::Thread, "{refused}");
    assert_eq!(std::error::Error::source(&refused).unwrap().to_string(), "the simulation is over");
    // The thread has ended after the join.
    drop((vms, subscription, pool, push, queue, clock));
    assert_eq!(Arc::strong_count(&dropped), 1);
}

/// Dropping the components of a panicking test neither hangs nor aborts.
#[test]
fn a_test_that_panics_during_runs_unwinds() {
    let text = panic_of(|| {
        let sim = Simulation::new(1);
        let (notes, pool) = (Notes::new(&sim), pool(&sim, 2));
        let vms = controller(&sim, &pool, &notes);
        let manager = Manager::builder().clock(sim.clock()).build().unwrap();
        let running = manager.start().unwrap();
        vms.enqueue("vm-1");
        sim.run_for(MINUTE);
        assert!(notes.all().is_empty(), "found out");
        drop(running);
    });
    assert!(text.contains("found out"), "{text}");
}

/// Components that are dropped during an unwinding are stopped and joined, but no other component runs.
#[test]
fn nothing_runs_while_a_test_unwinds() {
    let notes = Mutex::new(None);
    panic_of(|| {
        let sim = Simulation::new(1);
        let (own, pool) = (Notes::new(&sim), pool(&sim, 2));
        *notes.lock() = Some(own.clone());
        let vms = controller(&sim, &pool, &own);
        let queue = WorkQueue::<Key>::builder().clock(sim.clock()).build();
        let poller =
            Poller::new(MINUTE, |_cx: &Context| Ok::<_, BoxError>([""; 0])).clock(queue.clock()).start(&queue).unwrap();
        sim.run_for(SECOND);
        vms.enqueue("vm-1");
        assert!(poller.status().listings > 1, "found out");
    });
    assert!(notes.lock().as_ref().unwrap().all().is_empty());
}

#[test]
fn another_thread_cannot_use_the_simulation() {
    let sim = Simulation::new(1);
    let queue = WorkQueue::<Key>::builder().clock(sim.clock()).build();
    let text = std::thread::scope(|scope| scope.spawn(|| panic_of(|| drop(queue.dequeue()))).join().unwrap());
    assert_eq!(text, "a simulation must run on the thread that created it");
}

fn assert_refused(name: &str, started: Result<(), StartError>) {
    let error = started.unwrap_err();
    assert!(error.kind() == StartErrorKind::NotSimulated && error.kind() != StartErrorKind::Thread, "{error:?}");
    let expected = format!("{name} cannot be simulated: it waits for something other than the clock");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_component_that_waits_for_something_other_than_the_clock_is_refused() {
    let sim = Simulation::new(1);
    let (_sender, receiver) = unbounded::<PushMessage<Key, u32>>();
    let watch = Watch::builder().name("vms").clock(sim.clock());
    assert_refused("vms-0", watch.from_receiver(receiver).map(drop));

    let manager = Manager::builder().clock(sim.clock()).build().unwrap();
    let running = manager.start().unwrap();
    let function = Component::function("serve", |_cx: &Context| Ok::<_, BoxError>(()));
    assert_refused("serve-0", manager.add(function));
    manager.stop();
    running.join().unwrap();

    let client = HookedClient::new(MemoryClient::new());
    // The hook replaces a pollable stream with one that may block.
    client.on_stream(|_, stream| Ok(ObjectStream::new(stream)));
    let api = client.api(&THING);
    assert_refused("things-0", ObjectWatch::new(api).clock(sim.clock()).start().map(drop));
    assert_eq!(sim.turns() > 0, sim.trace().iter().any(|step| step.task == "manager-driver"));
}

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");

/// Each new thread would call the hook. The number of threads in the process must not change either.
#[test]
fn no_thread_is_started() {
    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
    }
    in_a_process_of_its_own("simulation::ends::no_thread_is_started", || {
        let (before, started) = (threads(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&started);
        let options = ThreadOptions::new().on_start(move |_name| {
            count.fetch_add(1, SeqCst);
        });
        let most = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let look = move |_cx: &Context, _key: &Key| -> Outcome {
            seen.fetch_max(threads(), SeqCst);
            Ok(Action::requeue_after(HOUR))
        };
        let sim = Simulation::new(1);
        let pool = WorkerPool::builder().clock(sim.clock()).thread_options(options.clone()).start().unwrap();
        let push = Watch::builder().clock(sim.clock()).push();
        let vms = Controller::builder("vm", look)
            .watch(push.watch(), |event| event.key().copied())
            .reconcile_timeout(SECOND)
            .resync(HOUR)
            .thread_options(options)
            .clock(sim.clock())
            .build()
            .unwrap()
            .start(&pool)
            .unwrap();
        push.set("vm-1", 1);
        push.synced();
        sim.run_for(DAY);
        assert!(vms.metrics().runs.runs() >= 24);
        vms.shutdown(SECOND).unwrap();
        pool.shutdown(SECOND).unwrap();
        assert_eq!((started.load(SeqCst), most.load(SeqCst)), (0, before));
    });
}

#[test]
fn a_failure_names_the_seed() {
    let sim = Simulation::new(17);
    assert!(panic_of(|| sim.run_until(MINUTE, || false)).contains("seed 17"));
}

/// A run panics and drops a handle that waits for this run. The simulation fails, and the process continues.
#[test]
fn a_join_of_itself_while_a_run_unwinds() {
    in_a_process_of_its_own("simulation::ends::a_join_of_itself_while_a_run_unwinds", || {
        let sim = Simulation::new(6);
        let (one, other) = ["one", "other"].map(|_| WorkQueue::builder().clock(sim.clock()).build()).into();
        let sleep = |cx: &Context, _key: &Key| -> Outcome {
            let _ = cx.sleep(DAY);
            Ok(Action::await_change())
        };
        let beneath = Mutex::new(Some(Workers::new(sleep).name("beneath").start(&one).unwrap()));
        let panics = move |_cx: &Context, _key: &Key| -> Outcome {
            let _beneath = beneath.lock().take();
            panic!("out of luck");
        };
        let on_top = Workers::new(panics).start(&other).unwrap();
        one.enqueue("vm-1");
        other.enqueue_after("vm-2", MINUTE);
        let text = panic_of(|| sim.run_for(HOUR));
        assert!(text.contains("it is for a turn that waits for this one"), "{text}");
        drop(on_top);
    });
}
