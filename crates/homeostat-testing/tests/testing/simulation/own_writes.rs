//! Runs that read from a watch that lags behind the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use homeostat::watch::EventKind;
use homeostat::{
    Action, BoxError, Clock, Context, Controller, ControllerHandle, Manager, Predicate, Running, Subscriber,
};
use homeostat_objects::{
    Api, Client, ClientError, ControllerExt, DeleteOptions, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectRef,
    ObjectStream, ObjectWatch, PollEvents, Query, SharedObject, WatchEvent, owner_keys, set_controller,
};
use homeostat_test_support::system::in_a_process_of_its_own;
use homeostat_testing::Simulation;

use super::{MINUTE, Notes, Outcome, SECOND};
use crate::hooked_client::HookedClient;

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Cluster {
    metadata: ObjectMeta,
    size: usize,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Machine {
    metadata: ObjectMeta,
}

homeostat_objects::object!(Cluster, namespaced, "example.com", "v1");
homeostat_objects::object!(Machine, namespaced, "example.com", "v1", kind: "Machine");

type Item = Result<WatchEvent<SharedObject>, ClientError>;

/// A stream that delivers its events late.
struct Lagging {
    events: ObjectStream,
    clock: Clock,
    lag: Duration,
    next: Option<(Instant, Option<Item>)>,
}

impl Iterator for Lagging {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        unreachable!("a simulation polls")
    }
}

impl PollEvents for Lagging {
    fn poll(&mut self) -> Poll<Option<Item>> {
        if self.next.is_none()
            && let Poll::Ready(item) = self.events.poll()
        {
            self.next = Some((self.clock.now() + self.lag, item));
        }
        match self.next.take_if(|(at, _)| *at <= self.clock.now()) {
            Some((_, item)) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }
}

/// A controller that counts the machines of a cluster in the store of a watch, and creates or deletes one at a time.
struct World {
    clusters: Api<Cluster>,
    machines: Api<Machine>,
    /// The most machines at any time.
    most: Arc<AtomicUsize>,
    notes: Notes,
    manager: Manager,
    handle: ControllerHandle<ObjectKey>,
    running: Running<Manager>,
}

impl World {
    /// `bound` is the bound of the controller, or the default.
    fn start(sim: &Simulation, lag: Duration, bound: Option<Duration>) -> Self {
        Self::with_debounce(sim, lag, bound, None)
    }

    /// Starts with a debounce of this length, so that the events that show its own writes enqueue the key too.
    fn with_debounce(sim: &Simulation, lag: Duration, bound: Option<Duration>, debounce: Option<Duration>) -> Self {
        let clock = sim.clock();
        let client = lagging_client(sim, lag);
        let (clusters, machines) = (Api::<Cluster>::new(client.clone()), Api::<Machine>::new(client.clone()));
        let manager = Manager::builder().clock(clock.clone()).build().unwrap();
        let watch = |name: &str| ObjectWatch::new(machines.clone()).name(name).clock(clock.clone()).start();
        let watched = manager.watch("machines", || watch("machines")).unwrap();
        let of_clusters = ObjectWatch::new(clusters.clone()).clock(clock.clone());
        let of_clusters = manager.watch("clusters", || of_clusters.start()).unwrap();
        let (notes, most) = (Notes::new(sim), Arc::<AtomicUsize>::default());
        let reconcile = {
            let (notes, most, store) = (notes.clone(), most.clone(), watched.store());
            let (clusters, machines) = (of_clusters.store(), machines.clone());
            move |_: &Context, key: &ObjectKey| -> Outcome {
                notes.add("run");
                let Some(cluster) = clusters.get(key) else { return Ok(Action::await_change()) };
                let known = store.snapshot();
                if known.len() < cluster.size {
                    let mut metadata = ObjectMeta::new("default", "");
                    metadata.generate_name = format!("{}-", key.name());
                    let mut machine = Machine { metadata };
                    set_controller(&*cluster, &mut machine)?;
                    machines.create(&machine)?;
                } else if let Some((surplus, _)) = known.get(cluster.size) {
                    machines.delete(surplus, &DeleteOptions::default())?;
                }
                most.fetch_max(machines.list(&Query::all())?.items.len(), SeqCst);
                Ok(Action::requeue_after(100 * MS))
            }
        };
        let controller = Controller::builder("cluster", reconcile)
            .clock(clock.clone())
            .subscribe(&of_clusters, Subscriber::to_itself)
            .subscribe(&watched, move |queue| {
                let owners = |_: &ObjectKey, machine: &Machine| owner_keys(&machine.metadata, &Cluster::KIND);
                let subscriber = Subscriber::to_owner(queue, owners);
                if debounce.is_some() { subscriber } else { subscriber.when(Predicate::only([EventKind::Updated])) }
            });
        let controller = match bound {
            Some(bound) => controller.own_write_bound(bound),
            None => controller,
        };
        let controller = match debounce {
            Some(quiet) => controller.debounce(quiet, quiet),
            None => controller,
        };
        let controller = controller.build().unwrap();
        let handle = controller.handle();
        manager.add(controller).unwrap();
        add_ticker(&manager);
        let running = manager.start().unwrap();
        Self { clusters, machines, most, notes, manager, handle, running }
    }

    fn create(&self, size: usize) -> Cluster {
        self.clusters.create(&Cluster { metadata: ObjectMeta::new("default", "a"), size }).unwrap()
    }

    fn count(&self) -> usize {
        self.machines.list(&Query::all()).unwrap().items.len()
    }

    fn stop(self) {
        self.manager.stop();
        self.running.join().unwrap();
    }
}

/// Returns a client with watches that lag.
fn lagging_client(sim: &Simulation, lag: Duration) -> Arc<HookedClient> {
    let clock = sim.clock();
    let client = HookedClient::new(MemoryClient::builder().clock(clock.clone()).build());
    client.on_stream(move |_, events| {
        Ok(ObjectStream::polled(Lagging { events, clock: clock.clone(), lag, next: None }))
    });
    client
}

/// Stops the clock often, so that late events are noticed.
fn add_ticker(manager: &Manager) {
    let tick = |_: &Context, _: &&str| -> Outcome { Ok(Action::requeue_after(10 * MS)) };
    let ticker = Controller::builder("tick", tick).clock(manager.clock().clone()).build().unwrap();
    ticker.handle().enqueue("tick");
    manager.add(ticker).unwrap();
}

#[test]
fn without_the_wait_for_own_writes_a_lagging_watch_leads_to_duplicates() {
    let sim = Simulation::new(1);
    let world = World::start(&sim, SECOND, Some(Duration::ZERO));
    world.create(3);
    sim.run_for(MINUTE / 6);
    assert!(world.most.load(SeqCst) > 6, "{:?}", world.most);
    world.stop();
}

#[test]
fn a_run_sees_the_writes_of_the_run_before_although_the_watch_lags() {
    Simulation::seeds(0..10, |sim| {
        let world = World::start(sim, SECOND, None);
        let cluster = world.create(3);
        sim.run_for(MINUTE / 6);
        assert_eq!((world.count(), world.most.load(SeqCst)), (3, 3));
        // The controller waits for deletions too: none is repeated, which would be an error.
        world.clusters.update(&Cluster { size: 1, ..cluster }).unwrap();
        sim.run_for(MINUTE / 6);
        assert_eq!(world.count(), 1);
        assert_eq!(world.handle.metrics().runs.errors(), 0);
        world.stop();
    });
}

/// The key runs as soon as the watch shows the write, even if its own requeue is later.
#[test]
fn a_waiting_key_runs_as_soon_as_the_watch_shows_the_write() {
    let sim = Simulation::new(1);
    let world = World::start(&sim, SECOND, None);
    world.create(2);
    sim.run_for(10 * SECOND);
    let times = world.notes.times();
    // The first list has the cluster. Each creation is shown one second later.
    assert_eq!(times[..3], [Duration::ZERO, SECOND, 2 * SECOND]);
    assert_eq!(times[3], times[2] + 100 * MS, "nothing was written");
    world.stop();
}

/// The watch delivers the event of a write before it reports that it has shown the write.
#[test]
fn a_debounced_event_does_not_delay_a_waiting_key() {
    let sim = Simulation::new(1);
    let world = World::with_debounce(&sim, SECOND, None, Some(5 * SECOND));
    world.create(2);
    sim.run_for(10 * SECOND);
    assert_eq!(world.notes.times()[..3], [Duration::ZERO, SECOND, 2 * SECOND]);
    world.stop();
}

/// Each key writes an object in its first run, and somebody deletes the object before the watch has seen it, so no
/// event ever shows it. Returns the times and keys of the runs in the first two seconds.
fn runs_with_writes_that_no_event_shows(sim: &Simulation, keys: usize) -> Vec<(Duration, String)> {
    let clock = sim.clock();
    let client = HookedClient::new(MemoryClient::builder().clock(clock.clone()).build());
    // The first stream breaks at its first event, and the watch lists again.
    let is_broken = Arc::<AtomicBool>::default();
    client.on_stream(move |_, events| {
        let is_broken = is_broken.clone();
        Ok(if is_broken.load(SeqCst) { events } else { ObjectStream::polled(Breaking { events, is_broken }) })
    });
    let machines = Api::<Machine>::new(client.clone());
    let manager = Manager::builder().clock(clock.clone()).build().unwrap();
    let watched =
        manager.watch("machines", || ObjectWatch::new(machines.clone()).clock(clock.clone()).start()).unwrap();
    let notes = Notes::new(sim);
    let reconcile = {
        let notes = notes.clone();
        move |_: &Context, key: &ObjectKey| -> Outcome {
            let is_first = !notes.whats().contains(&key.name().to_owned());
            notes.add(key.name());
            if is_first {
                machines.create(&Machine { metadata: ObjectMeta::new("default", key.name()) })?;
                client.inner(&Machine::KIND).delete(key, &DeleteOptions::default())?;
            }
            Ok(Action::requeue_after(100 * MS))
        }
    };
    let never = |_: &ObjectKey, _: &Machine| None::<ObjectKey>;
    let controller = Controller::builder("cluster", reconcile)
        .clock(clock)
        .subscribe(&watched, move |queue| Subscriber::to_owner(queue, never))
        .build()
        .unwrap();
    for number in 0..keys {
        controller.handle().enqueue(ObjectKey::new("default", &format!("k-{number}")));
    }
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    sim.run_for(2 * SECOND);
    manager.stop();
    running.join().unwrap();
    notes.all()
}

#[test]
fn a_key_runs_once_a_list_has_passed_its_write_although_the_object_is_gone() {
    let runs = runs_with_writes_that_no_event_shows(&Simulation::new(1), 1);
    // The delay before the second list is at most 0.8 s, and random.
    assert!(runs[1].0 < SECOND, "{runs:?}");
}

#[test]
fn keys_that_one_list_releases_run_in_an_order_of_the_seed() {
    let [one, again, other] = [7, 7, 8].map(|seed| runs_with_writes_that_no_event_shows(&Simulation::new(seed), 20));
    assert!(one.len() >= 40, "{one:?}");
    assert_eq!(one, again);
    assert_ne!(one, other);
}

/// Starts a machine `a`, if it `exists`. Runs one key every 100 ms next to a watch that lags. The first run makes these
/// writes. Returns the times of the runs, and the numbers of machines that they find in the store of the watch.
fn runs_after(
    sim: &Simulation,
    lag: Duration,
    exists: bool,
    writes: impl Fn(&Api<Machine>, &Context) -> Result<(), BoxError> + Send + Sync + 'static,
) -> Vec<(Duration, String)> {
    let clock = sim.clock();
    let machines = Api::<Machine>::new(lagging_client(sim, lag));
    if exists {
        machines.create(&machine_a()).unwrap();
    }
    let manager = Manager::builder().clock(clock.clone()).build().unwrap();
    let watched =
        manager.watch("machines", || ObjectWatch::new(machines.clone()).clock(clock.clone()).start()).unwrap();
    let notes = Notes::new(sim);
    let reconcile = {
        let (notes, store) = (notes.clone(), watched.store());
        move |cx: &Context, _: &&str| -> Outcome {
            let is_first = notes.all().is_empty();
            notes.add(store.len().to_string());
            if is_first {
                writes(&machines, cx)?;
            }
            Ok(Action::requeue_after(100 * MS))
        }
    };
    let never = |_: &ObjectKey, _: &Machine| None::<&str>;
    let controller = Controller::builder("cluster", reconcile)
        .clock(clock)
        .subscribe(&watched, move |queue| Subscriber::to_owner(queue, never))
        .build()
        .unwrap();
    controller.handle().enqueue("key");
    manager.add(controller).unwrap();
    add_ticker(&manager);
    let running = manager.start().unwrap();
    sim.run_for(4 * SECOND);
    manager.stop();
    running.join().unwrap();
    notes.all()
}

fn machine_a() -> Machine {
    Machine { metadata: ObjectMeta::new("default", "a") }
}

/// A run creates an object again because a field cannot be changed. The watch shows the new object before the run ends.
#[test]
fn a_run_that_makes_an_object_anew_does_not_wait_for_the_end_of_the_new_one() {
    let runs = runs_after(&Simulation::new(1), Duration::ZERO, true, |machines, cx| {
        machines.delete(&machine_a().key(), &DeleteOptions::default())?;
        machines.create(&machine_a())?;
        Ok(cx.sleep(100 * MS)?)
    });
    assert_eq!(runs[..2], [(Duration::ZERO, "1".to_owned()), (200 * MS, "1".to_owned())]);
}

#[test]
fn a_run_sees_no_object_that_the_run_before_has_created_and_deleted() {
    let runs = runs_after(&Simulation::new(1), SECOND, false, |machines, _| {
        machines.create(&machine_a())?;
        machines.delete(&machine_a().key(), &DeleteOptions::default())?;
        Ok(())
    });
    // The watch shows the creation after a second, and the deletion after one more.
    assert_eq!(runs[..2], [(Duration::ZERO, "0".to_owned()), (2 * SECOND, "0".to_owned())]);
}

/// A stream that breaks at its first event. The client no longer knows the version.
struct Breaking {
    events: ObjectStream,
    is_broken: Arc<AtomicBool>,
}

impl Iterator for Breaking {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        unreachable!("a simulation polls")
    }
}

impl PollEvents for Breaking {
    fn poll(&mut self) -> Poll<Option<Item>> {
        let machines = || ObjectRef::new(&Machine::KIND, &ObjectKey::new("", "*"));
        self.events.poll().map(|_| {
            self.is_broken.store(true, SeqCst);
            Some(Err(ClientError::gone(machines(), "1")))
        })
    }
}

#[test]
fn a_key_runs_after_the_bound_although_no_watch_has_shown_its_write() {
    let sim = Simulation::new(1);
    let world = World::start(&sim, 30 * SECOND, Some(2 * SECOND));
    world.create(1);
    sim.run_for(40 * SECOND);
    let times = world.notes.times();
    assert_eq!(times[..3], [Duration::ZERO, 2 * SECOND, 4 * SECOND]);
    world.stop();
}

#[test]
fn writes_that_no_watch_of_the_controller_shows_are_not_waited_for() {
    let sim = Simulation::new(1);
    let clock = sim.clock();
    let (one, other) = (MemoryClient::builder().clock(clock.clone()).build(), MemoryClient::new());
    let machines = Api::<Machine>::new(Arc::new(other) as Arc<dyn Client>);
    let clusters = Api::<Cluster>::new(Arc::new(one));
    let watch = ObjectWatch::new(clusters.clone()).clock(clock.clone()).start().unwrap();
    let manager = Manager::builder().clock(clock.clone()).build().unwrap();
    let notes = Notes::new(&sim);
    let reconcile = {
        let notes = notes.clone();
        move |_: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
            notes.add("run");
            let mut metadata = ObjectMeta::new("default", "");
            metadata.generate_name = format!("{}-", key.name());
            machines.create(&Machine { metadata })?;
            Ok(Action::requeue_after(100 * MS))
        }
    };
    let controller = Controller::builder("cluster", reconcile).clock(clock);
    let controller = controller.subscribe(&watch, Subscriber::to_itself).build().unwrap();
    manager.add(controller).unwrap();
    manager.add(watch).unwrap();
    let running = manager.start().unwrap();
    clusters.create(&Cluster { metadata: ObjectMeta::new("default", "a"), size: 1 }).unwrap();
    sim.run_for(SECOND);
    assert_eq!(notes.all().len(), 11);
    manager.stop();
    running.join().unwrap();
}

/// Whether the next clone of a [`Hostile`] key panics.
static NEXT_CLONE_PANICS: AtomicBool = AtomicBool::new(false);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Hostile;

impl Clone for Hostile {
    fn clone(&self) -> Self {
        assert!(!NEXT_CLONE_PANICS.swap(false, SeqCst), "the clone of a key");
        Self
    }
}

/// The key is cloned only if the run fails, for the list of failing keys.
#[test]
fn a_run_that_wrote_may_panic_although_the_clone_of_its_key_panics_too() {
    const NAME: &str = "simulation::own_writes::a_run_that_wrote_may_panic_although_the_clone_of_its_key_panics_too";
    in_a_process_of_its_own(NAME, || {
        for panics in [true, false] {
            let sim = Simulation::new(1);
            let clock = sim.clock();
            let machines = Api::<Machine>::new(Arc::new(MemoryClient::builder().clock(clock.clone()).build()));
            let watch = ObjectWatch::new(machines.clone()).clock(clock.clone()).start().unwrap();
            let notes = Notes::new(&sim);
            let reconcile = {
                let notes = notes.clone();
                move |_: &Context, _: &Hostile| -> Outcome {
                    let is_first = notes.all().is_empty();
                    notes.add("run");
                    if is_first {
                        machines.create(&Machine { metadata: ObjectMeta::new("default", "a") })?;
                        NEXT_CLONE_PANICS.store(true, SeqCst);
                        assert!(!panics, "the reconciler");
                    }
                    Ok(Action::await_change())
                }
            };
            let never = |_: &ObjectKey, _: &Machine| None::<Hostile>;
            let controller = Controller::builder("cluster", reconcile)
                .clock(clock.clone())
                .subscribe(&watch, move |queue| Subscriber::to_owner(queue, never))
                .build()
                .unwrap();
            let handle = controller.handle();
            let manager = Manager::builder().clock(clock).build().unwrap();
            manager.add(watch).unwrap();
            manager.add(controller).unwrap();
            let running = manager.start().unwrap();
            handle.enqueue(Hostile);
            sim.run_for(MINUTE);
            let runs = handle.metrics().runs;
            // The panic of the clone does not count.
            let expected = if panics { (2, 1) } else { (1, 0) };
            assert_eq!((notes.all().len(), runs.panics), expected, "{runs:?}");
            assert_eq!(NEXT_CLONE_PANICS.swap(false, SeqCst), !panics, "a run that ends well clones no key");
            manager.stop();
            running.join().unwrap();
        }
    });
}
