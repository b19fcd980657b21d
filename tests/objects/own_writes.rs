//! Keys that wait until a watch has shown the writes of their last run, on real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use homeostat::controller::{RunOutcome, WaitError};
use homeostat::objects::{Api, DynamicObject, Kind, MemoryClient, ObjectKey, ObjectStream, ObjectWatch};
use homeostat::{Action, BoxError, Context, Controller, ControllerHandle, Running, Subscriber, WorkerPool};
use parking_lot::{Condvar, Mutex};

use crate::hooked_client::HookedClient;

const MACHINE: Kind = Kind::namespaced("example.com", "v1", "Machine");
const LONG: Duration = Duration::from_secs(60);

/// Holds back the events of a stream until it is opened.
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

/// A controller whose first run writes an object that its watch does not show yet.
struct World {
    gate: Arc<Gate>,
    runs: Arc<AtomicUsize>,
    handle: Running<ControllerHandle<&'static str>>,
}

impl Drop for World {
    fn drop(&mut self) {
        // The thread of the watch must not wait for ever.
        self.gate.open();
    }
}

impl World {
    fn start(with: impl FnOnce(&World)) {
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
                machines.create(&DynamicObject::new(&MACHINE, "default", "a"))?;
            }
            Ok(Action::await_change())
        };
        let never = |_: &ObjectKey, _: &DynamicObject| None::<&str>;
        let controller = Controller::builder("machines", reconcile)
            .own_write_bound(Duration::MAX)
            .subscribe(&watch, move |queue| Subscriber::to_owner(queue, never))
            .build()
            .unwrap();
        let pool = WorkerPool::builder().start().unwrap();
        let handle = controller.start(&pool).unwrap();
        let world = World { gate, runs, handle };
        world.handle.wait_synced(LONG).unwrap();
        world.handle.enqueue("a");
        world.wait(LONG).unwrap();
        assert_eq!(world.runs.load(SeqCst), 1);
        with(&world);
        drop(world);
    }

    fn wait(&self, timeout: Duration) -> Result<Option<RunOutcome>, WaitError> {
        self.handle.wait(&"a", timeout)
    }
}

#[test]
fn a_key_that_waits_for_its_own_write_is_not_idle() {
    World::start(|world| {
        world.handle.enqueue("a");
        assert_eq!(world.wait(Duration::from_millis(20)), Err(WaitError::Timeout));
        assert_eq!(world.runs.load(SeqCst), 1);
        world.gate.open();
        world.wait(LONG).unwrap();
        assert_eq!(world.runs.load(SeqCst), 2);
    });
}

#[test]
fn a_key_that_waits_for_its_own_write_can_be_cancelled() {
    World::start(|world| {
        world.handle.enqueue("a");
        assert_eq!(world.wait(Duration::from_millis(20)), Err(WaitError::Timeout));
        world.handle.queue().cancel(&"a");
        assert_eq!(world.wait(LONG), Ok(None));
        world.gate.open();
        // The write is shown, and the cancelled run does not come back.
        world.handle.enqueue("b");
        world.handle.wait(&"b", LONG).unwrap();
        assert_eq!(world.runs.load(SeqCst), 2);
    });
}
