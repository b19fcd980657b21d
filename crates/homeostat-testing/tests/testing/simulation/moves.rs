//! Which keys run when the members of a group change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use homeostat::watch::Push;
use homeostat::{
    Action, Component, Context, Controller, ControllerHandle, Manager, Reasons, Running, Subscriber, Watch, terminal,
};
use homeostat_objects::{ControllerExt, ControllerHandleExt, Members, MemoryClient, ShardHash};
use homeostat_testing::Simulation;
use parking_lot::Mutex;

use super::{MINUTE, Outcome, SECOND};

const KEYS: u32 = 40;

/// Longer than events of other processes' keys are remembered.
const LONG: Duration = MINUTE.saturating_mul(3);

/// A resync of all keys happens once in a test.
const RESYNC: Duration = LONG.saturating_mul(4);

/// The runs since the last look: the key and its reasons.
type Runs = Arc<Mutex<Vec<(u32, Reasons)>>>;

/// One process of a group, with a controller of numbers.
struct Process {
    manager: Manager,
    running: Running<Manager>,
    numbers: ControllerHandle<u32>,
    runs: Runs,
    _source: Push<u32, ()>,
}

impl Process {
    /// Starts a process with two subscriptions to its watch. If a number is a multiple of `failing`, its runs fail
    /// permanently.
    fn start(sim: &Simulation, client: &MemoryClient, name: &str, failing: u32) -> Self {
        let clock = sim.clock();
        let members = Members::builder(Arc::new(client.clone()), "default", "numbers").identity(name);
        let members = members.clock(clock.clone()).build().unwrap();
        let source = Watch::<u32, ()>::builder().clock(clock.clone()).push();
        let runs = Runs::default();
        let record = Arc::clone(&runs);
        let reconcile = move |cx: &Context, key: &u32| -> Outcome {
            record.lock().push((*key, cx.reasons()));
            if key.is_multiple_of(failing) {
                Err(terminal("no such number").into())
            } else {
                Ok(Action::await_change())
            }
        };
        let controller = Controller::builder("numbers", reconcile).clock(clock.clone()).resync(RESYNC);
        let controller = controller.shards(members.shards(), |key: &u32| ShardHash::of([key.to_string()]));
        let controller = controller.subscribe(source.watch(), Subscriber::to_itself);
        let controller = controller.subscribe(source.watch(), |queue| {
            Subscriber::to_owner(queue, |number, ()| [*number]).secondary().buffered()
        });
        let controller = controller.build().unwrap();
        let numbers = controller.handle();
        let manager = Manager::builder().name(name).clock(clock).threads(2).build().unwrap();
        manager.add(Component::running("numbers-member", members.start().unwrap())).unwrap();
        manager.add(controller).unwrap();
        source.replace_all((0..KEYS).map(|key| (key, ())));
        let running = manager.start().unwrap();
        Self { manager, running, numbers, runs, _source: source }
    }

    fn owned(&self) -> BTreeSet<u32> {
        (0..KEYS).filter(|key| self.numbers.owns(key)).collect()
    }

    /// Returns the keys that have run since the last call.
    fn ran(&self) -> BTreeSet<u32> {
        std::mem::take(&mut *self.runs.lock()).into_iter().map(|(key, _)| key).collect()
    }

    /// Returns the keys that have failed permanently.
    fn failed(&self) -> BTreeSet<u32> {
        self.numbers.parked().iter().map(|failed| failed.key).collect()
    }

    fn stop(self) {
        self.manager.stop();
        drop(self.running.join());
    }
}

#[test]
fn a_change_of_the_members_runs_only_the_keys_that_have_moved() {
    Simulation::seeds(0..20, |sim| {
        let all: BTreeSet<_> = (0..KEYS).collect();
        let client = MemoryClient::builder().clock(sim.clock()).build();
        let a = Process::start(sim, &client, "a", 3);
        sim.run_for(LONG);
        assert_eq!(a.ran(), all);

        let b = Process::start(sim, &client, "b", 3);
        sim.run_for(LONG);
        let (of_a, of_b) = (a.owned(), b.owned());
        assert!(of_a.len() > 5 && of_b.len() > 5, "{of_a:?} {of_b:?}");
        assert_eq!(of_a.union(&of_b).copied().collect::<BTreeSet<_>>(), all);
        assert_eq!((a.ran(), b.ran()), (BTreeSet::new(), of_b.clone()));
        // A process forgets the failures of the keys that it has lost.
        let failing = |keys: &BTreeSet<u32>| keys.iter().copied().filter(|key| key % 3 == 0).collect::<BTreeSet<_>>();
        assert_eq!((a.failed(), b.failed()), (failing(&of_a), failing(&of_b)));

        b.stop();
        sim.run_for(LONG);
        assert_eq!(a.owned(), all);
        assert!(a.runs.lock().iter().all(|(_, reasons)| reasons.contains(Reasons::RESYNC)));
        assert_eq!(a.ran(), of_b);

        // The changes of the members have not delayed the resync of all keys.
        sim.run_for(LONG + SECOND);
        assert_eq!(a.ran(), all);
        a.stop();
    });
}
