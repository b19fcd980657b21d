//! Three processes of one program over one store, in one simulation: calls are late, lost or answered by nobody, processes are cut off,
//! stopped and started again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use homeostat::objects::{
    Api, Client, ClientError, LeaseElector, MemoryClient, ObjectKey, ObjectMeta, ObjectRef, ObjectWatch,
};
use homeostat::testing::Simulation;
use homeostat::{Action, CancellationToken, Clock, Context, Controller, Manager, Running, Subscriber};
use parking_lot::Mutex;

use super::{Outcome, SECOND};
use crate::hooked_client::{Call, HookedClient};

const PROCESSES: usize = 3;
const KEYS: u64 = 5;
/// The time with faults, and the time in which everything settles.
const STORM: Duration = Duration::from_secs(90);
const CALM: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Disk {
    metadata: ObjectMeta,
    /// The wanted size, which users raise one by one.
    size: u64,
    #[serde(default)]
    status: DiskStatus,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct DiskStatus {
    size: u64,
}

homeostat::object!(Disk, namespaced, "example.com", "v1", status: DiskStatus);

/// Numbers from a seed: the generator of Marsaglia, 2003.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The facts that the invariants are about.
#[derive(Default)]
struct Record {
    /// The process of each fencing number.
    holders: BTreeMap<u64, usize>,
    runs: u64,
    faults: u64,
}

impl Record {
    /// Notes that a run may write with this number. A run of an earlier leader may not, once a later one has run.
    fn may_write(&mut self, process: usize, number: u64) {
        let holder = *self.holders.entry(number).or_insert(process);
        assert_eq!(holder, process, "two processes have the number {number}");
        let latest = self.holders.last_key_value().map(|(latest, _)| *latest);
        assert_eq!(latest, Some(number), "process {process} runs with the number {number}, but a later one has run");
        self.runs += 1;
    }
}

/// The parts of the world that outlive a process.
#[derive(Clone)]
struct Ground {
    store: MemoryClient,
    clock: Clock,
    dice: Arc<Mutex<Dice>>,
    record: Arc<Mutex<Record>>,
    is_calm: Arc<Mutex<bool>>,
}

impl Ground {
    fn roll(&self, sides: u64) -> u64 {
        self.dice.lock().roll(sides)
    }

    /// Disturbs a call: it may be late, lost before the store, or lost after the store has carried it out.
    fn disturb(&self, call: &mut Call<'_>) -> Option<ClientError> {
        if *self.is_calm.lock() || call.verb == "watch" {
            return None;
        }
        if self.roll(4) == 0 {
            let late = Duration::from_millis(self.roll(1500));
            let _ = Context::detached_with(self.clock.clone(), CancellationToken::new()).sleep(late);
        }
        let kind = call.object.kind();
        match (self.roll(12), call.verb, &mut call.sent) {
            (0, ..) => {}
            (1, "update", Some(sent)) => drop(self.store.update(kind, sent.clone())),
            (1, "create", Some(sent)) => drop(self.store.create(kind, sent.clone())),
            (1, "update_status", Some(sent)) => drop(self.store.update_status(kind, sent.clone())),
            _ => return None,
        }
        self.record.lock().faults += 1;
        Some(lost(call.object))
    }
}

fn lost(object: &ObjectRef) -> ClientError {
    ClientError::transport(object.clone(), "the answer was lost")
}

struct Process {
    client: Arc<HookedClient>,
    manager: Manager,
    running: Running<Manager>,
}

impl Process {
    fn start(ground: &Ground, process: usize) -> Self {
        let client = HookedClient::new(ground.store.clone());
        let disks = Api::<Disk>::new(client.clone());
        let elector = LeaseElector::builder(client.clone(), "default", "fleet").identity(format!("p{process}"));
        let name = format!("p{process}");
        let clock = ground.clock.clone();
        let manager =
            Manager::builder().name(name).clock(clock.clone()).elector(elector.build().unwrap()).build().unwrap();
        let watch = ObjectWatch::new(disks.clone()).clock(clock.clone()).start().unwrap();
        let record = Arc::clone(&ground.record);
        let reconcile = move |cx: &Context, key: &ObjectKey| -> Outcome {
            let fence = cx.fence()?;
            record.lock().may_write(process, fence.number().unwrap());
            let mut disk = disks.get(key)?;
            if disk.status.size != disk.size {
                disk.status.size = disk.size;
                cx.fence()?;
                disks.update_status(&disk)?;
            }
            let mut marked = disks.get(key)?;
            fence.mark(&mut marked.metadata)?;
            disks.update(&marked)?;
            Ok(Action::requeue_after(20 * SECOND))
        };
        let controller = Controller::builder("disk", reconcile).clock(clock);
        manager.add(controller.subscribe(&watch, Subscriber::to_itself).build().unwrap()).unwrap();
        manager.add(watch).unwrap();
        let running = manager.start().unwrap();
        let disturbing = ground.clone();
        client.on_call(move |call| disturbing.disturb(call));
        Self { client, manager, running }
    }
}

/// Raises the size of a disk as a user does, in the version that was read. Returns whether the store has accepted it.
fn raise(disks: &Api<Disk>, key: &ObjectKey) -> bool {
    let mut disk = disks.get(key).unwrap();
    disk.size += 1;
    disks.update(&disk).is_ok()
}

fn run(sim: &Simulation) -> (u64, u64, usize) {
    let clock = sim.clock();
    let ground = Ground {
        store: MemoryClient::builder().clock(clock.clone()).build(),
        clock,
        dice: Arc::new(Mutex::new(Dice(sim.seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))),
        record: Arc::default(),
        is_calm: Arc::default(),
    };
    let disks = Api::<Disk>::new(Arc::new(ground.store.clone()));
    let key = |number: u64| ObjectKey::new("default", &format!("disk-{number}"));
    for number in 0..KEYS {
        let metadata = ObjectMeta::new("default", key(number).name());
        disks.create(&Disk { metadata, size: 0, status: DiskStatus::default() }).unwrap();
    }
    let mut raised = vec![0; usize::try_from(KEYS).unwrap()];
    let mut processes: Vec<_> = (0..PROCESSES).map(|process| Process::start(&ground, process)).collect();
    let begin = sim.now();
    while sim.now() - begin < STORM {
        sim.run_for(SECOND);
        let number = ground.roll(KEYS);
        if raise(&disks, &key(number)) {
            raised[usize::try_from(number).unwrap()] += 1;
        }
        let process = usize::try_from(ground.roll(3)).unwrap();
        match ground.roll(12) {
            0 => processes[process].client.cut_off(true),
            1 | 2 => {
                let disturbing = ground.clone();
                processes[process].client.on_call(move |call| disturbing.disturb(call));
            }
            3 => processes[process].manager.stop(),
            _ => {}
        }
        restart_ended(&ground, &mut processes);
    }
    *ground.is_calm.lock() = true;
    let end = sim.now() + CALM;
    while sim.now() < end {
        for process in &processes {
            process.client.heal();
        }
        restart_ended(&ground, &mut processes);
        sim.run_for(SECOND);
    }
    for (number, size) in (0..).zip(&raised) {
        let disk = disks.get(&key(number)).unwrap();
        assert_eq!((disk.size, disk.status.size), (*size, *size), "disk {number} is settled, and no update is lost");
    }
    assert_eq!(processes.iter().filter(|process| process.manager.is_leading()).count(), 1);
    for process in processes {
        process.manager.stop();
        drop(process.running.wait());
    }
    let record = ground.record.lock();
    (record.runs, record.faults, record.holders.len())
}

/// Starts each process again whose manager has ended, as a service manager does.
fn restart_ended(ground: &Ground, processes: &mut [Process]) {
    for (number, process) in processes.iter_mut().enumerate() {
        if process.manager.status().doing == "ended" {
            *process = Process::start(ground, number);
        }
    }
}

#[test]
fn processes_under_faults_have_one_leader_lose_no_update_and_settle_all_keys() {
    let most = std::env::var("HOMEOSTAT_FLEET_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    let counts = Mutex::new((0, 0, 0));
    Simulation::seeds(0..most, |sim| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(sim)));
        let (runs, faults, leaders) = outcome.unwrap_or_else(|panic| {
            let trace = sim.trace();
            for turn in &trace[trace.len().saturating_sub(200)..] {
                println!("{turn}");
            }
            resume_unwind(panic)
        });
        let mut counts = counts.lock();
        *counts = (counts.0 + runs, counts.1 + faults, counts.2 + leaders);
    });
    let (runs, faults, leaders) = counts.into_inner();
    println!("{most} seeds: {runs} runs, {faults} faults, {leaders} leaders");
    let seeds = usize::try_from(most).unwrap();
    // The worlds are not idle.
    assert!(runs > most * 50 && faults > most * 10 && leaders > seeds * 2, "{runs} {faults} {leaders}");
}
