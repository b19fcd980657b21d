//! One run of the fleet: the plan of a seed.

use std::thread;
use std::time::Duration;

use homeostat::CancellationToken;

use super::failover::{Disturbance, DisturbanceKind, Failovers, Summary};
use super::objects::{Objects, Observer};
use super::process::{WorkerProcess, WorkerState};
use super::record::{RunRecord, now, parse};
use super::{Dice, Ground, Orders, PATIENCE, check};
use homeostat_test_support::forwarder::{Flow, Forwarder};
use homeostat_test_support::system::pause;

/// The most workers at one time.
const MOST: usize = 5;

/// The result of one run.
pub(super) struct Outcome {
    pub(super) summary: Summary,
    pub(super) faults: Vec<String>,
    /// The disturbances and the logs, to explain the faults.
    pub(super) story: String,
}

struct World<'a> {
    test: &'a str,
    seed: u64,
    ground: &'a Ground,
    lease: Duration,
    plan: Plan,
    dice: Dice,
    objects: Objects,
    workers: Vec<WorkerProcess>,
    disturbances: Vec<Disturbance>,
    /// The times at which the workers had handled everything.
    settled: Vec<u64>,
    faults: Vec<String>,
}

/// The kinds of disturbances in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Mixed,
    /// Only kills, with time between them.
    Kills,
    /// Only networks that pass nothing on for longer than the lease, with time between them.
    Holes,
}

impl Plan {
    fn of_seed(seed: u64) -> Self {
        match seed % 6 {
            2 => Self::Kills,
            5 => Self::Holes,
            _ => Self::Mixed,
        }
    }
}

/// Runs the fleet with the plan of this seed.
pub(super) fn run(test: &str, seed: u64, ground: &Ground) -> Outcome {
    let mut world = World {
        test,
        seed,
        ground,
        lease: Duration::from_secs(1 + seed % 2),
        plan: Plan::of_seed(seed),
        dice: Dice::new(seed),
        objects: Objects::new(ground),
        workers: Vec::new(),
        disturbances: Vec::new(),
        settled: Vec::new(),
        faults: Vec::new(),
    };
    let (observer, stop) = (Observer::default(), CancellationToken::new());
    let (client, namespace) = (&*ground.client, &*ground.namespace);
    thread::scope(|scope| {
        scope.spawn(|| observer.watch(client, namespace, &stop));
        // The kernel kills the workers when this thread ends, so they are started here.
        let _stop = CancelOnDrop(&stop);
        world.live();
    });
    world.outcome(&observer)
}

/// Cancels a token when it is dropped, also by a panic.
struct CancelOnDrop<'a>(&'a CancellationToken);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl World<'_> {
    fn live(&mut self) {
        for _ in 0..if self.plan == Plan::Mixed { 3 } else { 4 } {
            self.start();
        }
        self.settle();
        let steps = if self.plan == Plan::Mixed { 5 + self.dice.roll(5) } else { 2 };
        for _ in 0..steps {
            if !self.faults.is_empty() {
                break;
            }
            self.disturb();
            let rest = match self.plan {
                Plan::Mixed => self.dice.millis(50..900),
                Plan::Kills => self.failover(),
                Plan::Holes => self.failover() * 2,
            };
            self.pass(rest);
        }
        let is_disturbed =
            |worker: &WorkerProcess| matches!(worker.state, WorkerState::Paused(_)) || worker.faulty_until.is_some();
        while self.workers.iter().any(is_disturbed) {
            self.pass(Duration::from_millis(20));
        }
        self.pass(Duration::from_millis(300));
        self.settle();
        self.end_all();
    }

    /// Returns a time in which other workers take over all keys of a lost one.
    fn failover(&self) -> Duration {
        self.lease + Duration::from_millis(1_600)
    }

    /// Starts a worker.
    fn start(&mut self) {
        let number = self.workers.len();
        let network = Forwarder::to(&self.ground.server);
        let orders = Orders {
            name: format!("w{number}"),
            address: (self.ground.address)(&network.address),
            namespace: self.ground.namespace.clone(),
            lease: self.lease,
            seed: self.seed * 1_000 + number as u64,
        };
        self.note(DisturbanceKind::Start, number);
        self.workers.push(WorkerProcess::start(self.test, &orders, network));
    }

    fn note(&mut self, kind: DisturbanceKind, process: usize) {
        self.disturbances.push(Disturbance { at: now(), kind, process });
    }

    /// Returns the numbers of the workers with a state like this.
    fn those(&self, fits: impl Fn(WorkerState) -> bool) -> Vec<usize> {
        (0..self.workers.len()).filter(|number| fits(self.workers[*number].state)).collect()
    }

    fn running(&self) -> Vec<usize> {
        self.those(|state| state == WorkerState::Running)
    }

    /// Kills, pauses, ends or starts a worker, or disturbs its network. At least two workers run afterwards.
    fn disturb(&mut self) {
        let running = self.running();
        let killable = self.those(|state| matches!(state, WorkerState::Running | WorkerState::Paused(_)));
        let choice = match self.plan {
            Plan::Mixed => self.dice.roll(16),
            Plan::Kills => 0,
            Plan::Holes => 7,
        };
        match choice {
            0..=2 => {
                if let Some(number) = self.dice.pick(&killable) {
                    self.note(DisturbanceKind::Kill, number);
                    self.workers[number].kill();
                }
            }
            // Longer than the lease, or shorter.
            3 | 4 => {
                let time = self.lease + self.dice.millis(300..1_500);
                self.pause_one(&running, time);
            }
            5 => {
                let time = self.lease.mul_f64(0.5) + self.dice.millis(0..500);
                self.pause_one(&running, time);
            }
            6 => {
                if let Some(number) = self.dice.pick(&running) {
                    self.note(DisturbanceKind::End, number);
                    self.workers[number].end();
                }
            }
            7..=13 => {
                let sound: Vec<_> =
                    running.into_iter().filter(|number| self.workers[*number].faulty_until.is_none()).collect();
                if let Some(number) = self.dice.pick(&sound) {
                    self.disturb_network(number);
                }
            }
            _ if running.len() < MOST => self.start(),
            _ => {}
        }
        while self.running().len() < 2 {
            self.start();
        }
    }

    fn pause_one(&mut self, running: &[usize], time: Duration) {
        if let Some(number) = self.dice.pick(running) {
            self.note(DisturbanceKind::Pause, number);
            self.workers[number].pause_until(after(time));
        }
    }

    /// Disturbs the network of a worker, most often for longer than the lease.
    fn disturb_network(&mut self, number: usize) {
        let long = self.lease + self.dice.millis(300..1_500);
        let short = self.lease.mul_f64(0.5) + self.dice.millis(0..500);
        let (choice, is_lossy, reaches_server) = (self.dice.roll(6), self.dice.roll(2) == 0, self.dice.roll(2) == 0);
        let (passing, stopped) = (Flow::Passing, if is_lossy { Flow::Lost } else { Flow::Held });
        // A list of all objects takes half a second, or several.
        let slow = Flow::Slow(usize::try_from(3 + self.dice.roll(40)).unwrap());
        let (kind, flows, time) = match choice {
            _ if self.plan == Plan::Holes => (DisturbanceKind::Hole, [stopped; 2], self.failover()),
            0 => (DisturbanceKind::Cut, [passing; 2], Duration::ZERO),
            1 => (DisturbanceKind::Refuse, [passing; 2], long),
            2 => (DisturbanceKind::Slow, [slow; 2], long),
            3 if reaches_server => (DisturbanceKind::OneWay, [passing, stopped], long),
            3 => (DisturbanceKind::OneWay, [stopped, passing], long),
            4 => (DisturbanceKind::Hole, [stopped; 2], short),
            _ => (DisturbanceKind::Hole, [stopped; 2], long),
        };
        self.note(kind, number);
        let worker = &mut self.workers[number];
        worker.faulty_until = (!time.is_zero()).then(|| after(time));
        worker.network.set_flows(flows);
        worker.network.refuse(kind == DisturbanceKind::Refuse);
        if flows == [passing; 2] {
            worker.network.cut();
        }
    }

    /// Lets time pass: users change objects, paused workers resume and networks work again at their times.
    fn pass(&mut self, time: Duration) {
        let end = after(time);
        while now() < end {
            self.look_after_workers();
            if self.dice.roll(3) == 0 {
                self.objects.change(&mut self.dice);
            }
            pause(Duration::from_millis(10));
        }
    }

    /// Resumes workers after their pause, repairs networks, and notes the workers that have ended.
    fn look_after_workers(&mut self) {
        for number in 0..self.workers.len() {
            if let WorkerState::Paused(until) = self.workers[number].state
                && now() >= until
            {
                self.note(DisturbanceKind::Resume, number);
                self.workers[number].resume();
            }
            if self.workers[number].faulty_until.is_some_and(|until| now() >= until) {
                self.note(DisturbanceKind::Heal, number);
                let worker = &mut self.workers[number];
                worker.faulty_until = None;
                worker.network.refuse(false);
                worker.network.set_flow(Flow::Passing);
            }
            let worker = &mut self.workers[number];
            let was_told = worker.state == WorkerState::Ending;
            if let Some(status) = worker.newly_ended()
                && !(was_told && status.success())
            {
                self.faults.push(format!("{} has ended: {status}", self.workers[number].name));
            }
        }
    }

    /// Waits until the running workers have handled everything. Returns at once if the run has failed.
    fn settle(&mut self) {
        let deadline = after(PATIENCE);
        loop {
            self.look_after_workers();
            if !self.faults.is_empty() {
                return;
            }
            let running = self.running();
            let names: Vec<_> = running.iter().map(|number| self.workers[*number].name.as_str()).collect();
            let reasons = self.objects.unsettled(&names);
            if reasons.is_empty() {
                self.settled.push(now());
                return;
            }
            if now() > deadline {
                self.faults.push(format!("not settled after {PATIENCE:?}: {}", reasons.join("; ")));
                return;
            }
            pause(Duration::from_millis(30));
        }
    }

    /// Stops all workers in order.
    fn end_all(&mut self) {
        for number in self.running() {
            self.note(DisturbanceKind::End, number);
            self.workers[number].end();
        }
        let deadline = after(PATIENCE);
        loop {
            self.look_after_workers();
            let ending = self.those(|state| state == WorkerState::Ending);
            if ending.is_empty() {
                return;
            }
            if now() > deadline {
                self.faults.extend(ending.iter().map(|number| format!("w{number} does not stop")));
                return;
            }
            pause(Duration::from_millis(10));
        }
    }

    /// Reads the records, and decides.
    fn outcome(mut self, observer: &Observer) -> Outcome {
        let mut runs: Vec<RunRecord> = Vec::new();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if matches!(worker.state, WorkerState::Ending | WorkerState::Running | WorkerState::Paused(_)) {
                // It has not stopped in time, which is a fault already.
                worker.kill();
            }
            let (more, faults) = parse(number, &worker.record());
            runs.extend(more);
            self.faults.extend(faults);
        }
        self.faults.extend(check::faults(&runs));
        self.faults.extend(observer.faults());
        let counts = check::counts(&runs);
        let summary =
            Failovers { runs: &runs, disturbances: &self.disturbances, settled: &self.settled, lease: self.lease }
                .summary(counts, |time| self.objects.since(time));
        let story = if self.faults.is_empty() { String::new() } else { self.story() };
        Outcome { summary, faults: self.faults, story }
    }

    /// Returns the disturbances and the last lines of the logs, in their order.
    fn story(&self) -> String {
        let shown = |Disturbance { at, kind, process }: &Disturbance| format!("{at} {kind:?} w{process}");
        let mut lines: Vec<_> = self.disturbances.iter().map(shown).collect();
        for worker in &self.workers {
            lines.extend(worker.log().lines().map(str::to_owned));
        }
        // Each line begins with its time. Only the output of a panic does not.
        lines.sort_by_key(|line| line.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default());
        lines.join("\n")
    }
}

/// Returns the time after this duration from now.
fn after(time: Duration) -> u64 {
    now() + u64::try_from(time.as_nanos()).unwrap()
}
