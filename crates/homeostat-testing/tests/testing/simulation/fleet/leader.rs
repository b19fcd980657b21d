//! One leader among the processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat::{Context, Controller, Manager, Running, Subscriber};
use homeostat_objects::{Api, LeaseElector, ObjectKey, ObjectWatch};
use homeostat_testing::Simulation;
use parking_lot::Mutex;

use super::*;

const PROCESSES: usize = 3;
const DISKS: u64 = 5;

/// The facts that the invariants are about.
#[derive(Default)]
struct Record {
    /// The process of each fencing number.
    holders: BTreeMap<u64, (usize, Fence)>,
    runs: u64,
    /// The violations. A panic in a run would only be one more failed run.
    faults: Vec<String>,
}

impl Record {
    /// Checks that a run may write in this term: once a run of a later leader has started, an earlier leader may not.
    fn may_write(&mut self, process: usize, fence: &Fence) {
        let number = fence.number().unwrap();
        let (holder, _) = *self.holders.entry(number).or_insert_with(|| (process, fence.clone()));
        if holder != process {
            self.faults.push(format!("{process} and {holder} have the number {number}"));
        }
        if is_over(fence) {
            self.faults.push(format!("{process} runs after the end of its term {number}"));
        }
        for (earlier, (other, _)) in self.holders.range(..number).filter(|(_, (_, fence))| !is_over(fence)) {
            self.faults
                .push(format!("{process} runs in the term {number} before {other} has ended the term {earlier}"));
        }
        let latest = self.holders.last_key_value().map(|(latest, _)| *latest);
        if latest != Some(number) {
            self.faults.push(format!("{process} runs with the number {number} after {latest:?}"));
        }
        self.runs += 1;
    }
}

struct Process {
    client: Arc<HookedClient>,
    manager: Manager,
    running: Running<Manager>,
}

impl Process {
    /// Starts the process on its machine.
    fn start(ground: &Ground, record: &Arc<Mutex<Record>>, process: usize) -> Self {
        let machine = &ground.machines[process];
        let client = ground.client();
        let disks = Api::<Disk>::new(client.clone());
        let elector = LeaseElector::builder(client.clone(), "default", "fleet").identity(format!("p{process}"));
        let name = format!("p{process}");
        let clock = machine.clock();
        let manager =
            Manager::builder().name(name).clock(clock.clone()).elector(elector.build().unwrap()).build().unwrap();
        let watch = ObjectWatch::new(disks.clone()).clock(clock.clone()).start().unwrap();
        let record = Arc::clone(record);
        let reconcile = move |cx: &Context, key: &ObjectKey| -> Outcome {
            record.lock().may_write(process, &cx.fence()?);
            settle(&disks, cx, key)
        };
        let controller = Controller::builder("disk", reconcile).clock(clock);
        manager.add(controller.subscribe(&watch, Subscriber::to_itself).build().unwrap()).unwrap();
        manager.add(watch).unwrap();
        let running = manager.start().unwrap();
        ground.disturb(&client, machine);
        Self { client, manager, running }
    }
}

fn run(sim: &Simulation) -> (u64, Faults, u64) {
    let ground = Ground::new(sim, DISKS, PROCESSES);
    let record = Arc::default();
    let processes: Vec<_> = (0..PROCESSES).map(|process| Process::start(&ground, &record, process)).collect();
    let processes = Arc::new(Mutex::new(processes));
    let world = (ground.clone(), Arc::clone(&record), Arc::clone(&processes));
    storm(sim, move || {
        let (ground, record, processes) = &world;
        let mut processes = processes.lock();
        ground.raise_one();
        ground.tick();
        let process = ground.one_of(PROCESSES);
        match ground.roll(32) {
            0 => processes[process].client.cut_off(true),
            1 | 2 => ground.disturb(&processes[process].client, &ground.machines[process]),
            3 => processes[process].manager.stop(),
            4 => drop(ground.pause(&ground.machines[process])),
            5 => ground.set_a_wall_clock(process),
            _ => {}
        }
        restart_ended(ground, record, &mut processes);
    });
    let mut processes = Arc::into_inner(processes).unwrap().into_inner();
    ground.calm_down();
    let end = sim.now() + CALM;
    while sim.now() < end {
        for process in &processes {
            process.client.heal();
        }
        restart_ended(&ground, &record, &mut processes);
        ground.tick();
        sim.run_for(SECOND);
    }
    ground.check_settled();
    ground.check_history();
    assert_eq!(processes.iter().filter(|process| process.manager.is_leading()).count(), 1);
    for process in processes {
        process.manager.stop();
        drop(process.running.join());
    }
    let (record, faults) = (record.lock(), ground.faults());
    assert_eq!(record.faults, Vec::<String>::new());
    (record.runs, faults, record.holders.len() as u64)
}

/// If the manager of a process has ended, restarts the process, like a service manager. The end of a process also ends
/// its calls. Otherwise a manager with an overdue run would renew its lease until the run ends.
fn restart_ended(ground: &Ground, record: &Arc<Mutex<Record>>, processes: &mut [Process]) {
    for (number, process) in processes.iter_mut().enumerate() {
        if process.manager.status().doing == "ended" {
            process.client.cut_off(true);
            *process = Process::start(ground, record, number);
        }
    }
}

#[test]
fn processes_under_faults_have_one_leader_lose_no_update_and_settle_all_keys() {
    let counts = Mutex::new((0, Faults::default(), 0));
    let worlds = for_seeds(40, |sim| {
        let (runs, faults, leaders) = run(sim);
        let mut counts = counts.lock();
        counts.0 += runs;
        counts.1 += faults;
        counts.2 += leaders;
    });
    let (runs, faults, leaders) = counts.into_inner();
    println!("{worlds:?} seeds: {runs} runs, {leaders} leaders, {faults:?}");
    let Some(worlds) = worlds else { return };
    // Enough happens in these worlds.
    assert!(runs > worlds * 50 && leaders > worlds * 2, "{runs} {leaders}");
    faults.check_enough(worlds);
}
