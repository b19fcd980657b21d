//! Keys divided among the processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat::{BoxError, Component, Context, Controller, ControllerHandle, Manager, Running, Subscriber};
use homeostat_objects::{
    Api, ControllerExt, ControllerHandleExt, DeleteOptions, Members, ObjectKey, ObjectWatch, ShardHash,
};
use homeostat_testing::{SimulatedMachine, Simulation};
use parking_lot::Mutex;

use super::*;

const PROCESSES: usize = 4;
const DISKS: u64 = 12;

/// The facts that the invariants are about.
#[derive(Default)]
struct Record {
    keys: BTreeMap<ObjectKey, KeyRecord>,
    runs: u64,
    /// The violations. A panic in a run would only be one more failed run.
    faults: Vec<String>,
    /// The process and the key of each run.
    starts: Vec<(usize, ObjectKey)>,
    /// How often a key ran in another process than before.
    moves: u64,
}

#[derive(Default)]
struct KeyRecord {
    /// The process that runs the key now, and the limit of that run.
    active: Option<(usize, Fence)>,
    /// The greatest number that a run of the key had, and its process.
    last: Option<(u64, usize)>,
}

impl Record {
    /// Records that a run begins. Another run of the key may still exist only if its term has ended: then it can write
    /// nothing.
    fn begin(&mut self, process: usize, key: &ObjectKey, fence: &Fence) {
        let number = fence.number().unwrap();
        if is_over(fence) {
            self.faults.push(format!("{key} runs in {process} after the end of its term"));
        }
        let record = self.keys.entry(key.clone()).or_default();
        if let Some((other, fence)) = record.active.replace((process, fence.clone()))
            && !is_over(&fence)
        {
            self.faults.push(format!("{key} runs in {process} and {other}"));
        }
        if let Some((last, holder)) = record.last {
            if number < last {
                self.faults.push(format!("{key} runs with {number} in {process}, after {last} in {holder}"));
            }
            if number == last && process != holder {
                self.faults.push(format!("{key} has the number {number} in {process} and {holder}"));
            }
            self.moves += u64::from(process != holder);
        }
        record.last = Some((number, process));
        self.runs += 1;
        self.starts.push((process, key.clone()));
    }

    fn end(&mut self, process: usize, key: &ObjectKey) {
        if let Some(record) = self.keys.get_mut(key) {
            record.active.take_if(|(active, _)| *active == process);
        }
    }
}

/// One start of a process. Each start has its own number, so that a process and its successor count as two.
struct Process {
    machine: SimulatedMachine,
    client: Arc<HookedClient>,
    manager: Manager,
    running: Option<Running<Manager>>,
    disks: ControllerHandle<ObjectKey>,
    number: usize,
}

impl Process {
    fn start(ground: &Ground, record: &Arc<Mutex<Record>>, number: usize) -> Self {
        Self::with_interval(ground, record, number, Duration::ZERO)
    }

    /// Starts a process with this minimum interval between the runs of a disk.
    fn with_interval(ground: &Ground, record: &Arc<Mutex<Record>>, number: usize, interval: Duration) -> Self {
        let machine = ground.machines[number % PROCESSES].clone();
        let client = ground.client();
        let disks = Api::<Disk>::new(client.clone());
        let clock = machine.clock();
        let manager = Manager::builder().name(format!("p{number}")).clock(clock.clone()).threads(2).build().unwrap();
        let members = Members::builder(client.clone(), "default", "fleet").identity(format!("p{number}"));
        let members = members.clock(clock.clone()).build().unwrap();
        let watch = ObjectWatch::new(disks.clone()).clock(clock.clone()).start().unwrap();
        let (record, slow) = (Arc::clone(record), ground.clone());
        let reconcile = move |cx: &Context, key: &ObjectKey| -> Outcome {
            record.lock().begin(number, key, &cx.fence()?);
            // Some runs take so long that the members change during the run. They end when they are cancelled.
            let long = if slow.roll(4) == 0 { Duration::from_millis(slow.roll(6_000)) } else { Duration::ZERO };
            let outcome = cx.sleep(long).map_err(BoxError::from).and_then(|()| settle(&disks, cx, key));
            record.lock().end(number, key);
            outcome
        };
        let controller = Controller::builder("disk", reconcile).clock(clock).max_concurrent_reconciles(2);
        let controller = controller.min_interval(interval);
        let controller =
            controller.shards(members.shards(), |disk: &ObjectKey| ShardHash::of([disk.namespace(), disk.name()]));
        let controller = controller.subscribe(&watch, Subscriber::to_itself).build().unwrap();
        let disks = controller.handle();
        manager.add(Component::running("fleet-member", members.start().unwrap())).unwrap();
        manager.add(controller).unwrap();
        manager.add(watch).unwrap();
        let running = Some(manager.start().unwrap());
        ground.disturb(&client, &machine);
        Self { machine, client, manager, running, disks, number }
    }

    /// If this process has ended, starts another one in its place. The end of a process also ends its calls.
    fn restart_if_ended(&mut self, start: impl FnOnce() -> Self) {
        if self.manager.status().doing == "ended" {
            self.client.cut_off(true);
            *self = start();
        }
    }

    /// Ends the process without releasing anything, like a kill.
    fn kill(&mut self) {
        self.client.cut_off(true);
        self.manager.abort();
    }
}

fn run(sim: &Simulation) -> ([u64; 3], Faults) {
    let ground = Ground::new(sim, DISKS, PROCESSES);
    let record = Arc::default();
    let starts = Arc::new(Mutex::new(0));
    let start = {
        let (ground, record, starts) = (ground.clone(), Arc::clone(&record), Arc::clone(&starts));
        move || {
            *starts.lock() += 1;
            let number = *starts.lock();
            Process::start(&ground, &record, number)
        }
    };
    let processes = Arc::new(Mutex::new((0..PROCESSES).map(|_| start()).collect::<Vec<_>>()));
    let world = (ground.clone(), start.clone(), Arc::clone(&processes));
    storm(sim, move || {
        let (ground, start, processes) = &world;
        let mut processes = processes.lock();
        ground.raise_one();
        ground.tick();
        let process = ground.one_of(PROCESSES);
        match ground.roll(48) {
            0 => processes[process].client.cut_off(true),
            1 | 2 => ground.disturb(&processes[process].client, &processes[process].machine),
            3 => processes[process].manager.stop(),
            4 => processes[process].kill(),
            6 => drop(ground.pause(&processes[process].machine)),
            7 => ground.set_a_wall_clock(process),
            _ => {}
        }
        processes.iter_mut().for_each(|process| process.restart_if_ended(start));
    });
    let mut processes = Arc::into_inner(processes).unwrap().into_inner();
    ground.calm_down();
    let end = sim.now() + CALM;
    while sim.now() < end {
        for process in &mut processes {
            process.client.heal();
            process.restart_if_ended(&start);
        }
        ground.tick();
        sim.run_for(SECOND);
    }
    ground.check_settled();
    ground.check_history();
    for key in ground.keys() {
        let owners: Vec<_> =
            processes.iter().filter(|process| process.disks.owns(&key)).map(|process| process.number).collect();
        assert_eq!(owners.len(), 1, "{key} belongs to {owners:?}");
    }
    for process in &mut processes {
        process.manager.stop();
    }
    for process in processes {
        drop(process.running.map(Running::join));
    }
    let (record, faults) = (record.lock(), ground.faults());
    assert_eq!(record.faults, Vec::<String>::new());
    ([record.runs, record.moves, *starts.lock() as u64], faults)
}

#[test]
fn each_key_runs_in_one_process_at_a_time_and_settles() {
    let counts = Mutex::new(([0; 3], Faults::default()));
    let worlds = for_seeds(20, |sim| {
        let (found, faults) = run(sim);
        let mut counts = counts.lock();
        counts.0 = std::array::from_fn(|index| counts.0[index] + found[index]);
        counts.1 += faults;
    });
    let ([runs, moves, starts], faults) = counts.into_inner();
    println!("{worlds:?} seeds: {runs} runs, {moves} moved keys, {starts} processes, {faults:?}");
    let Some(worlds) = worlds else { return };
    // Enough happens in these worlds.
    assert!(runs > worlds * 80 && moves > worlds * 8, "{runs} {moves}");
    faults.check_enough(worlds);
}

/// Ends the owner of a disk before it has handled the deletion of the disk. Returns the other processes that run for
/// it.
fn runs_for_a_deletion(sim: &Simulation, ends: impl Fn(&mut Process)) -> BTreeSet<usize> {
    let ground = Ground::new(sim, DISKS, PROCESSES);
    ground.calm_down();
    let record = Arc::default();
    let mut processes: Vec<_> = (1..=3).map(|number| Process::start(&ground, &record, number)).collect();
    sim.run_for(30 * SECOND);
    let key = Ground::key(3);
    let owner = processes.iter_mut().find(|process| process.disks.owns(&key)).unwrap();
    owner.disks.suspend(key.clone());
    ground.disks().delete(&key, &DeleteOptions::default()).unwrap();
    sim.run_for(SECOND);
    let (number, before) = (owner.number, record.lock().starts.len());
    ends(owner);
    sim.run_for(60 * SECOND);
    for process in &mut processes {
        process.manager.stop();
    }
    for process in processes {
        drop(process.running.map(Running::join));
    }
    let starts = &record.lock().starts[before..];
    let runs = starts.iter().filter(|(process, of)| *process != number && *of == key);
    runs.map(|(process, _)| *process).collect()
}

#[test]
fn the_next_owner_of_a_key_handles_a_deletion_its_predecessor_missed() {
    Simulation::seeds(0..10, |sim| {
        assert_eq!(runs_for_a_deletion(sim, Process::kill).len(), 1);
    });
    Simulation::seeds(0..10, |sim| {
        assert_eq!(runs_for_a_deletion(sim, |process| process.manager.stop()).len(), 1);
    });
}

/// The process has refused the keys at its start. That did not count as a run.
#[test]
fn the_next_owner_of_a_key_does_not_wait_for_the_minimum_interval() {
    Simulation::seeds(0..10, |sim| {
        let ground = Ground::new(sim, DISKS, PROCESSES);
        ground.calm_down();
        let record = Arc::default();
        let start = |number| {
            let process = Process::with_interval(&ground, &record, number, 600 * SECOND);
            sim.run_for(30 * SECOND);
            process
        };
        let (mut first, second) = (start(1), start(2));
        let keys: Vec<_> = ground.keys().filter(|key| first.disks.owns(key)).collect();
        assert!(!keys.is_empty());
        first.kill();
        sim.run_for(60 * SECOND);
        for process in [first, second] {
            process.manager.stop();
            drop(process.running.map(Running::join));
        }
        let starts = &record.lock().starts;
        for key in keys {
            assert!(starts.contains(&(2, key.clone())), "{key} has not run");
        }
    });
}
