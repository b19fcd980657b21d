//! The seed decides the order of a simulation.

use std::collections::BTreeSet;

use homeostat::{Action, BoxError, Context, Controller, Enqueue, Priority, Subscriber, Watch, WorkQueue, Workers};
use homeostat_testing::{SimulatedTurn, Simulation};

use super::{Key, Notes, done, pool};

const KEYS: [Key; 5] = ["a", "b", "c", "d", "e"];

/// Returns the order in which a pool of one thread runs keys that are ready at once, and the trace.
fn order_of_keys(seed: u64) -> (Vec<String>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let (notes, pool) = (Notes::new(&sim), pool(&sim, 1));
    let vms = Controller::builder("vm", notes.run(done)).clock(sim.clock()).build().unwrap();
    for key in KEYS {
        vms.handle().enqueue(key);
    }
    let vms = vms.start(&pool).unwrap();
    sim.run_until_idle();
    drop(vms);
    (notes.whats(), sim.trace())
}

fn order_of_workers(seed: u64) -> (Vec<String>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let notes = Notes::new(&sim);
    let queue = WorkQueue::builder().clock(sim.clock()).build();
    for key in KEYS {
        queue.enqueue(key);
    }
    let workers = Workers::new(notes.run(done)).start(&queue).unwrap();
    sim.run_until_idle();
    drop(workers);
    (notes.whats(), sim.trace())
}

/// Returns the order in which three subscribers of two watches get simultaneous events, and the trace.
fn order_of_events(seed: u64) -> (Vec<String>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let notes = Notes::new(&sim);
    let watches = [0, 1].map(|_| Watch::<Key, u32>::builder().clock(sim.clock()).push());
    let subscribe = |watch: usize, name: Key| {
        let (queue, notes) = (WorkQueue::<Key>::builder().clock(sim.clock()).build(), notes.clone());
        let subscriber = Subscriber::to(&queue, move |event| {
            notes.add(format!("{name} {:?}", event.key()));
            event.key().copied()
        });
        watches[watch].watch().subscribe(subscriber.name(name).buffered()).unwrap()
    };
    let subscriptions = [subscribe(0, "one"), subscribe(0, "two"), subscribe(1, "three")];
    for key in ["x", "y"] {
        watches[0].set(key, 1);
        watches[1].set(key, 1);
    }
    sim.run_until_idle();
    drop(subscriptions);
    let notice = notes.whats();
    for name in ["one", "two", "three"] {
        let own: Vec<_> = notice.iter().filter_map(|notice| notice.strip_prefix(name)).collect();
        assert_eq!(own, [" Some(\"x\")", " Some(\"y\")"], "each is reported in the order in which it happened");
    }
    (notice, sim.trace())
}

/// Returns the order of a store's keys, and the trace.
fn order_of_a_store(seed: u64) -> (Vec<String>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let notes = Notes::new(&sim);
    let watch = Watch::builder().clock(sim.clock()).push();
    watch.replace_all(KEYS.map(|key| (key, 1)));
    let index = watch.watch().store().index(|_key, value| [*value]);
    for (key, _) in index.get(&1) {
        notes.add(key);
    }
    let indexed = notes.whats();
    assert_eq!(index.keys(&1), indexed);
    assert_eq!(watch.watch().store().keys(), indexed);
    watch.replace_all([]);
    (indexed, sim.trace())
}

/// Returns the order of a controller's failed and suspended keys, and the trace.
fn order_of_a_status(seed: u64) -> (Vec<String>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let pool = pool(&sim, 1);
    let fail = |_cx: &Context, _key: &Key| Err::<Action, _>("out of luck");
    let vms = Controller::builder("vm", fail).clock(sim.clock()).build().unwrap().start(&pool).unwrap();
    for key in KEYS {
        vms.enqueue(key);
    }
    sim.run_until_idle();
    let failed = vms.failing().into_iter().map(|failed| failed.key.to_owned());
    let mut keys: Vec<_> = failed.collect();
    for key in KEYS {
        vms.suspend(key);
    }
    keys.extend(vms.status().suspended.into_iter().map(|(key, _)| key));
    drop(vms);
    (keys, sim.trace())
}

/// Two events of one subscriber are two turns, with possible turns of other subscribers in between.
#[test]
fn events_of_subscribers_are_interleaved() {
    let interleaved = |order: &[String]| {
        let whose: Vec<_> = order.iter().map(|notice| notice.split(' ').next()).collect();
        let mut blocks = whose.clone();
        blocks.dedup();
        blocks.len() == whose.len()
    };
    assert!((0..20).any(|seed| interleaved(&order_of_events(seed).0)));
}

#[test]
fn each_seed_has_one_order_and_different_seeds_have_many() {
    for order in [order_of_keys, order_of_workers, order_of_events, order_of_a_store, order_of_a_status] {
        for seed in 0..5 {
            assert_eq!(order(seed), order(seed), "seed {seed}");
        }
        let orders: BTreeSet<_> = (0..10).map(|seed| order(seed).0).collect();
        assert!(orders.len() >= 8, "{orders:?}");
        let lengths: BTreeSet<_> = orders.iter().map(Vec::len).collect();
        assert_eq!(lengths.len(), 1, "all is done in each order");
    }
}

#[test]
fn priorities_hold_in_any_order() {
    Simulation::seeds(0..20, |sim| {
        let (notes, pool) = (Notes::new(sim), pool(sim, 4));
        let vms = Controller::builder("vm", notes.run(done)).clock(sim.clock()).build().unwrap();
        let queue = vms.handle().queue().clone();
        for (key, priority) in [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)] {
            queue.at(priority).enqueue(key);
        }
        let vms = vms.start(&pool).unwrap();
        sim.run_until_idle();
        drop(vms);
        assert_eq!(notes.whats(), ["high", "normal", "low"]);
    });
}

/// A pool serves its controllers in turn with every seed.
#[test]
fn the_fairness_of_a_pool_holds_in_any_order() {
    Simulation::seeds(0..20, |sim| {
        let (notes, pool) = (Notes::new(sim), pool(sim, 1));
        let controllers = ["one", "two"].map(|name| {
            let own = notes.clone();
            let reconcile = move |_cx: &Context, _key: &u32| {
                own.add(name);
                Ok::<_, BoxError>(Action::await_change())
            };
            Controller::builder(name, reconcile).clock(sim.clock()).build().unwrap().start(&pool).unwrap()
        });
        sim.run_until_idle();
        for controller in &controllers {
            (0..10).for_each(|key| {
                controller.enqueue(key);
            });
        }
        sim.run_until_idle();
        drop(controllers);
        let served = notes.whats();
        assert_eq!(served.len(), 20);
        assert!(served.windows(2).all(|pair| pair[0] != pair[1]), "{served:?}");
    });
}

#[test]
fn a_trace_shows_times_threads_and_keys() {
    let (order, trace) = order_of_keys(3);
    let runs: Vec<_> = trace.iter().filter(|step| step.what.is_some()).map(ToString::to_string).collect();
    let expected: Vec<_> = order.iter().map(|key| format!("0ns pool-0 vm {key:?}")).collect();
    assert_eq!(runs, expected);
    assert!(trace.iter().any(|step| step.task == "vm-control-0"), "{trace:?}");
}
