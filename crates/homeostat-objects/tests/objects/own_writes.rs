//! Keys that wait until a watch has shown the writes of their last run, on real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use homeostat::controller::{RunOutcome, WaitError};
use homeostat::{
    Action, BoxError, Context, Controller, ControllerHandle, Exponential, Running, Sources, Subscriber, Watch,
    WorkerPool,
};
use homeostat_objects::{
    Api, ControllerExt, DynamicObject, Kind, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectStream, ObjectWatch,
    Patch,
};
use parking_lot::{Condvar, Mutex};
use serde_json::json;

use crate::hooked_client::HookedClient;
use crate::waits::until;

const MACHINE: Kind = Kind::namespaced("example.com", "v1", "Machine");
const LONG: Duration = Duration::from_secs(60);

/// Delays the events of a stream until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock();
        self.opened.wait_while(&mut is_open, |is_open| !*is_open);
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

/// A controller. Its first run writes an object that its watch does not show yet.
struct World {
    gate: Arc<Gate>,
    watch: Running<Watch<ObjectKey, DynamicObject>>,
    runs: Arc<AtomicUsize>,
    handle: Running<ControllerHandle<&'static str>>,
}

impl Drop for World {
    fn drop(&mut self) {
        // The thread of the watch must not wait forever.
        self.gate.open();
    }
}

impl World {
    /// `first` is the result of the first run.
    fn start(first: Result<(), &'static str>, with: impl FnOnce(&mut World)) {
        let client = HookedClient::new(MemoryClient::new());
        let (gate, runs) = (Arc::<Gate>::default(), Arc::<AtomicUsize>::default());
        let of_stream = gate.clone();
        client.on_stream(move |_, events| {
            let gate = of_stream.clone();
            Ok(ObjectStream::new(events.inspect(move |_| gate.pass())))
        });
        let machines: Api<DynamicObject> = client.api(&MACHINE);
        let watch = ObjectWatch::new(machines.clone()).start().unwrap();
        let counted = runs.clone();
        let reconcile = move |_: &Context, _: &&str| -> Result<Action, BoxError> {
            if counted.fetch_add(1, SeqCst) == 0 {
                let machine = machines.create(&DynamicObject::new(&MACHINE, "default", "a"))?;
                machines.patch(&machine.key(), &Patch::Merge(json!({"spec": {"size": 2}})))?;
                first?;
            }
            Ok(Action::await_change())
        };
        let never = |_: &ObjectKey, _: &DynamicObject| None::<&str>;
        let controller = Controller::builder("machines", reconcile)
            .own_write_bound(Duration::MAX)
            .retry(Exponential::new(Duration::from_millis(1), Duration::from_millis(1)))
            .subscribe(&watch, move |queue| Subscriber::to_owner(queue, never))
            .build()
            .unwrap();
        let pool = WorkerPool::builder().start().unwrap();
        let handle = controller.start(&pool).unwrap();
        let mut world = World { gate, watch, runs, handle };
        world.handle.wait_synced(LONG).unwrap();
        world.handle.enqueue("a");
        until!(world.runs.load(SeqCst) > 0);
        // If the run has failed, its retry waits too.
        world.handle.enqueue("a");
        assert_eq!(world.wait(Duration::from_millis(20)), Err(WaitError::Timeout));
        assert_eq!(world.runs.load(SeqCst), 1);
        with(&mut world);
        drop(world);
    }

    fn wait(&self, timeout: Duration) -> Result<Option<RunOutcome>, WaitError> {
        self.handle.wait(&"a", timeout)
    }
}

/// The run has written the object twice, so the first event does not show everything.
#[test]
fn a_key_that_waits_for_its_own_writes_is_not_idle_and_runs_once_they_are_shown() {
    World::start(Ok(()), |world| {
        world.gate.open();
        world.wait(LONG).unwrap();
        assert_eq!(world.runs.load(SeqCst), 2);
    });
}

#[test]
fn a_key_that_waits_for_its_own_writes_runs_once_the_watch_has_stopped() {
    World::start(Ok(()), |world| {
        world.watch.stop();
        world.gate.open();
        world.wait(LONG).unwrap();
        assert_eq!(world.runs.load(SeqCst), 2);
    });
}

#[test]
fn a_key_waiting_for_its_own_writes_runs_when_their_source_is_removed() {
    World::start(Ok(()), |world| {
        assert!(world.handle.remove_source("machines", LONG).unwrap());
        world.wait(LONG).unwrap();
        assert_eq!(world.runs.load(SeqCst), 2);
    });
}

/// An object with a count of its values in memory.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Counted {
    metadata: ObjectMeta,
    #[serde(skip)]
    alive: Option<Arc<()>>,
}

homeostat_objects::object!(Counted, namespaced, "example.com", "v1");

/// For example, a controller of clusters that join and leave.
#[test]
fn the_objects_of_a_source_that_was_removed_are_dropped_with_its_watch() {
    let api = Api::<Counted>::new(Arc::new(MemoryClient::new()));
    api.create(&Counted { metadata: ObjectMeta::new("default", "a"), alive: None }).unwrap();
    let reconcile = |_: &Context, _: &ObjectKey| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let pool = WorkerPool::builder().start().unwrap();
    let handle = Controller::builder("machines", reconcile).build().unwrap().start(&pool).unwrap();
    for _ in 0..3 {
        let alive = Arc::new(());
        let counter = alive.clone();
        let watch = ObjectWatch::new(api.clone()).transform(move |object| object.alive = Some(counter.clone()));
        let watch = watch.name("cluster").start().unwrap();
        let mut sources = Sources::new();
        sources.subscribe(&watch, Subscriber::to_itself);
        // Two sources may read one watch.
        sources.subscribe(&watch, Subscriber::to_itself);
        handle.add_sources(sources).unwrap();
        assert!(watch.store().wait_synced(LONG));
        // The test, the watch and the object.
        assert!(Arc::strong_count(&alive) >= 3);
        for source in ["cluster", "cluster-2"] {
            assert!(handle.remove_source(source, LONG).unwrap());
        }
        watch.shutdown(Duration::ZERO).unwrap();
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

/// Checks that the key does not run again when the watch shows its writes.
fn stays_away(world: &mut World) {
    assert_eq!(world.wait(LONG), Ok(None));
    world.gate.open();
    let size = || world.watch.store().get(&ObjectKey::new("default", "a"))?.pointer("/spec/size")?.as_u64();
    until!(size() == Some(2));
    // The watch's thread has told the controller about all changes.
    world.watch.stop();
    world.watch.join_timeout(LONG).unwrap();
    world.handle.enqueue("b");
    world.handle.wait(&"b", LONG).unwrap();
    assert_eq!(world.runs.load(SeqCst), 2);
}

#[test]
fn a_key_that_waits_for_its_own_writes_can_be_cancelled() {
    World::start(Ok(()), |world| {
        world.handle.queue().cancel(&"a");
        stays_away(world);
    });
}

#[test]
fn a_failed_key_that_waits_for_its_own_writes_can_be_dismissed() {
    World::start(Err("out of luck"), |world| {
        until!(world.handle.dismiss(&"a"));
        stays_away(world);
    });
}
