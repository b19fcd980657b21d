//! One run of the fleet: the plan of a seed.

use std::thread;
use std::time::Duration;

use homeostat::CancellationToken;

use super::failover::{Disturbance, DisturbanceKind, Failovers, Summary};
use super::objects::{Objects, Observer};
use super::process::{WorkerProcess, WorkerState};
use super::record::{RunRecord, now, parse};
use super::{Dice, Ground, Orders, PATIENCE, check, pause};

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
    /// Whether there are only kills, with time between them.
    is_calm: bool,
    dice: Dice,
    objects: Objects,
    workers: Vec<WorkerProcess>,
    disturbances: Vec<Disturbance>,
    /// The times at which the workers had handled everything.
    settled: Vec<u64>,
    faults: Vec<String>,
}

/// Runs the fleet with the plan of this seed.
pub(super) fn run(test: &str, seed: u64, ground: &Ground) -> Outcome {
    let mut world = World {
        test,
        seed,
        ground,
        lease: Duration::from_secs(1 + seed % 2),
        is_calm: seed % 3 == 2,
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
        for _ in 0..if self.is_calm { 4 } else { 3 } {
            self.start();
        }
        self.settle();
        let steps = if self.is_calm { 2 } else { 4 + self.dice.roll(4) };
        for _ in 0..steps {
            if !self.faults.is_empty() {
                break;
            }
            self.disturb();
            let rest = if self.is_calm { self.lease + Duration::from_millis(1_600) } else { self.dice.millis(50..900) };
            self.pass(rest);
        }
        while self.workers.iter().any(|worker| matches!(worker.state, WorkerState::Paused(_))) {
            self.pass(Duration::from_millis(20));
        }
        self.pass(Duration::from_millis(300));
        self.settle();
        self.end_all();
    }

    /// Starts a worker.
    fn start(&mut self) {
        let number = self.workers.len();
        let orders = Orders {
            name: format!("w{number}"),
            address: self.ground.address.clone(),
            namespace: self.ground.namespace.clone(),
            lease: self.lease,
            seed: self.seed * 1_000 + number as u64,
        };
        self.note(DisturbanceKind::Start, number);
        self.workers.push(WorkerProcess::start(self.test, &orders));
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

    /// Kills, pauses, ends or starts a worker. At least two workers run afterwards.
    fn disturb(&mut self) {
        let running = self.running();
        let killable = self.those(|state| matches!(state, WorkerState::Running | WorkerState::Paused(_)));
        let choice = if self.is_calm { 0 } else { self.dice.roll(8) };
        match choice {
            0..=2 => {
                if let Some(number) = self.dice.pick(if self.is_calm { &running } else { &killable }) {
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
            self.workers[number].pause_until(now() + u64::try_from(time.as_nanos()).unwrap());
        }
    }

    /// Lets time pass: users change objects, and paused workers go on when it is time.
    fn pass(&mut self, time: Duration) {
        let end = now() + u64::try_from(time.as_nanos()).unwrap();
        while now() < end {
            self.look_after_workers();
            if self.dice.roll(3) == 0 {
                self.objects.change(&mut self.dice);
            }
            pause(Duration::from_millis(10));
        }
    }

    /// Resumes workers whose pause is over, and notes those that have ended.
    fn look_after_workers(&mut self) {
        for number in 0..self.workers.len() {
            if let WorkerState::Paused(until) = self.workers[number].state
                && now() >= until
            {
                self.note(DisturbanceKind::Resume, number);
                self.workers[number].resume();
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
        let deadline = now() + u64::try_from(PATIENCE.as_nanos()).unwrap();
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
        let deadline = now() + u64::try_from(PATIENCE.as_nanos()).unwrap();
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
        // Each line begins with its time, except in the output of a panic.
        lines.sort_by_key(|line| line.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default());
        lines.join("\n")
    }
}
