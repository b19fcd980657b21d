//! The scheduler of a simulation: runs all tasks of a program on one thread, in an order that a seed determines.
//!
//! Instead of starting a thread, code passes its task to the scheduler of the clock. Instead of sleeping, it lets the
//! scheduler run a step of another task, or move the clock to the time of the next step. Turns nest: during its turn, a
//! task is not in the list. All other code is the shipped code.
//!
//! The scheduler calls tasks without its lock. While it is locked, only the lock of the clock may be taken.
//!
//! # Invariants
//!
//! - Every random choice is made by the seed: the next task, the next key of a priority level, jitter, uids and names,
//!   the order of entries in a hash table. The promises hold for all seeds: priorities, fairness, the order of the
//!   events that one subscriber gets.
//! - A task never runs within its own turn. No thread sleeps on the clock of a simulation.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId, panicking};
use std::time::SystemTime;

use super::machine::SimulatedMachine;
use super::rate::MachineTime;
use super::trace::{TraceEntry, TurnTrace, named};
use crate::sync::Mutex;
use homeostat::base::ManualClock;
use homeostat::rt::{Draws, Joiner, Nanos, Next, Scheduler, Task, panic_message};

/// Runs the tasks of a simulation.
pub(crate) struct SimulationScheduler {
    seed: u64,
    /// The only thread that may run turns.
    home: ThreadId,
    state: Mutex<SchedulerState>,
}

struct SchedulerState {
    draws: Draws,
    /// By number, in the order of their arrival.
    tasks: BTreeMap<u64, TaskEntry>,
    entered: u64,
    /// The tasks in a turn, innermost last, each with its number of waits.
    playing: Vec<(u64, u64)>,
    /// The number of waits outside all turns.
    waited: u64,
    /// The time of the last turn, and the number of turns at that time.
    instant: Nanos,
    turns: u64,
    /// The maximum number of turns at one time.
    most: u64,
    /// The number of turns so far.
    steps: u64,
    trace: TurnTrace,
    /// The reason that the simulation ended.
    given_up: Option<String>,
    closed: bool,
    /// The machines. Their clocks own the scheduler, so the end of the simulation removes them.
    machines: Vec<SimulatedMachine>,
}

struct TaskEntry {
    name: Arc<str>,
    /// The clock of its machine, or of the simulation.
    clock: ManualClock,
    machine: Option<Arc<MachineTime>>,
    /// `None` during its turn.
    task: Option<Box<dyn Task>>,
    /// The time of its next turn, by its clock.
    next: Nanos,
}

/// The next move.
enum NextMove {
    Play(u64, Box<dyn Task>, ManualClock),
    /// Nothing is due before this time.
    Wait(Nanos),
}

impl SimulationScheduler {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let state = SchedulerState {
            draws: Draws::new(seed),
            tasks: BTreeMap::new(),
            entered: 0,
            playing: Vec::new(),
            waited: 0,
            instant: Nanos::ZERO,
            turns: 0,
            most: 100_000,
            steps: 0,
            trace: TurnTrace::default(),
            given_up: None,
            closed: false,
            machines: Vec::new(),
        };
        Arc::new(Self { seed, home: thread::current().id(), state: Mutex::new(state) })
    }

    /// Creates a clock that this schedules.
    pub(crate) fn clock(self: &Arc<Self>, time_of_day: SystemTime) -> ManualClock {
        ManualClock::simulated(time_of_day, Some(Arc::clone(self) as Arc<dyn Scheduler>))
    }

    /// Creates a machine in the simulation of `clock`. Its clock runs at `percent` of the rate of `clock`.
    pub(crate) fn machine(self: &Arc<Self>, clock: &ManualClock, percent: u32) -> SimulatedMachine {
        let machine = SimulatedMachine {
            clock: self.clock(clock.clock().time_of_day()),
            time: Arc::new(MachineTime::new(percent, clock.nanos())),
            simulation: clock.clone(),
        };
        self.state.lock().machines.push(machine.clone());
        machine
    }

    /// Advances the clocks of the simulation and of its machines. No task may be due earlier.
    pub(crate) fn advance(&self, clock: &ManualClock, to: Nanos) {
        clock.advance_to(to);
        let machines = self.state.lock().machines.clone();
        for machine in machines {
            machine.clock.advance_to(machine.time.local(to));
        }
    }

    /// Returns the machine of this clock. `None` for the clock of the simulation.
    fn machine_of(&self, clock: &ManualClock) -> Option<SimulatedMachine> {
        let (state, clock) = (self.state.lock(), clock.clock());
        state.machines.iter().find(|machine| machine.clock().is(&clock)).cloned()
    }

    /// Returns the clock of the simulation for one of its clocks.
    fn clock_of(&self, clock: &ManualClock) -> ManualClock {
        self.machine_of(clock).map_or_else(|| clock.clone(), |machine| machine.simulation)
    }

    /// Returns the maximum number of turns during a wait.
    pub(crate) fn longest_wait(&self) -> u64 {
        self.state.lock().longest_wait()
    }

    pub(crate) fn set_most(&self, turns: u64) {
        self.state.lock().most = turns;
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    pub(crate) fn trace(&self) -> Vec<TraceEntry> {
        self.state.lock().trace.entries()
    }

    /// Returns whether a turn is running.
    pub(crate) fn is_playing(&self) -> bool {
        !self.state.lock().playing.is_empty()
    }

    /// Resets the number of waits outside all turns.
    pub(crate) fn begin(&self) {
        self.state.lock().waited = 0;
    }

    /// Runs a turn, or moves the clock to the next time with work, up to `end`. Returns whether it did either.
    pub(crate) fn step(&self, clock: &ManualClock, end: Nanos) -> bool {
        self.check();
        // A turn may have slept beyond the end.
        match (clock.nanos() <= end).then(|| self.next(clock)) {
            Some(NextMove::Play(number, task, machine)) => self.play(&machine, number, task),
            Some(NextMove::Wait(at)) if at <= end && at != Nanos::NEVER => self.advance(clock, at),
            None | Some(NextMove::Wait(_)) => return false,
        }
        if !self.is_playing() {
            // The panic of a turn that ended the simulation has been caught.
            self.check();
        }
        true
    }

    /// Ends the simulation, and drops all tasks.
    pub(crate) fn close(&self) {
        let _machines = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.machines)
        };
        while self.drop_one() {}
    }

    /// Panics if the simulation has ended.
    fn check(&self) {
        assert!(thread::current().id() == self.home, "a simulation must run on the thread that created it");
        let given_up = self.state.lock().given_up();
        if let Some(why) = given_up.filter(|_| !panicking()) {
            panic!("{why}");
        }
    }

    /// Ends the simulation with a panic that shows the reason.
    pub(crate) fn give_up(&self, clock: &ManualClock, why: &str) -> ! {
        let why = self.fail(clock, why);
        panic!("{why}");
    }

    /// Ends the simulation. Returns the reason.
    fn fail(&self, clock: &ManualClock, why: &str) -> String {
        let clock = self.clock_of(clock);
        let mut state = self.state.lock();
        let why = format!("{why}{}", state.show(clock.nanos(), self.seed));
        state.given_up.get_or_insert(why);
        state.given_up().unwrap_or_default()
    }

    /// Returns the tasks that are due, and the time of the next one. Asks without the lock: a task may poll a stream.
    fn ask(&self, clock: &ManualClock) -> (Vec<u64>, Nanos) {
        let mut tasks = std::mem::take(&mut self.state.lock().tasks);
        let (now, mut due, mut next) = (clock.nanos(), Vec::new(), Nanos::NEVER);
        for (number, slot) in &mut tasks {
            if let Some(task) = &mut slot.task {
                let wanted = task.due(slot.next);
                match slot.machine.as_ref().map_or(wanted, |time| time.simulated(wanted).max(time.paused_until())) {
                    time if time <= now => due.push(*number),
                    time => next = next.min(time),
                }
            }
        }
        let mut state = self.state.lock();
        // These tasks have been added since.
        tasks.append(&mut state.tasks);
        state.tasks = tasks;
        let machines = state.machines.iter().flat_map(|machine| {
            let pause = Some(machine.time.paused_until()).filter(|end| *end > now);
            [machine.time.simulated(machine.clock.alarm()), pause.unwrap_or(Nanos::NEVER)]
        });
        (due, machines.fold(next.min(clock.alarm()), Nanos::min))
    }

    fn next(&self, clock: &ManualClock) -> NextMove {
        let (due, next) = self.ask(clock);
        let mut state = self.state.lock();
        let now = clock.nanos();
        let Some(number) = state.choose(&due) else { return NextMove::Wait(next) };
        if state.instant != now {
            (state.instant, state.turns) = (now, 0);
        }
        state.turns += 1;
        if state.turns > state.most {
            drop(state);
            self.give_up(
                clock,
                "the simulation never becomes idle: time stands still, and there is always another turn",
            );
        }
        let slot = state.tasks.get_mut(&number);
        let slot = slot.and_then(|slot| Some((Arc::clone(&slot.name), slot.task.take()?, slot.clock.clone())));
        let Some((name, task, machine)) = slot else { return NextMove::Wait(next) };
        state.steps += 1;
        state.trace.push(now, name);
        state.playing.push((number, 0));
        NextMove::Play(number, task, machine)
    }

    fn play(&self, clock: &ManualClock, number: u64, mut task: Box<dyn Task>) {
        let (step, draw) = {
            let mut state = self.state.lock();
            (state.steps, state.draws.draw())
        };
        let say = |what: String| {
            let mut state = self.state.lock();
            let later = state.steps - step;
            state.trace.note(later, what);
        };
        // A panic also ends the task.
        let next = catch_unwind(AssertUnwindSafe(|| task.take_turn(clock.nanos(), draw, &say)));
        let mut task = Some(task);
        let ended = {
            let mut state = self.state.lock();
            state.playing.pop();
            match (state.tasks.get_mut(&number), &next) {
                (Some(entry), Ok(Next::At(time))) => {
                    (entry.task, entry.next) = (task.take(), *time);
                    None
                }
                _ => state.tasks.remove(&number),
            }
        };
        if let (Err(panic), Some(entry)) = (next, ended) {
            let (thread, message) = (&*entry.name, panic_message(&*panic));
            log::error!(thread, panic = message; "{thread}: the thread panicked: {message}");
        }
        drop(task);
    }

    /// Drops one of the remaining tasks. Returns whether there was one.
    fn drop_one(&self) -> bool {
        let entry = self.state.lock().tasks.pop_first();
        entry.is_some()
    }
}

impl Scheduler for SimulationScheduler {
    fn enter(self: Arc<Self>, clock: &ManualClock, name: String, task: Box<dyn Task>) -> io::Result<Joiner> {
        let machine = self.machine_of(clock).map(|machine| machine.time);
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return Err(io::Error::other("the simulation is over"));
        }
        let number = state.entered;
        state.entered += 1;
        let (short, task) = (name.as_str().into(), Some(task));
        let entry = TaskEntry { name: short, clock: clock.clone(), machine, task, next: Nanos::ZERO };
        state.tasks.insert(number, entry);
        drop(state);
        let ticket = Ticket { scheduler: self, clock: clock.clone(), number };
        let asked = ticket.clone();
        Ok(Joiner::of_task(name, move || asked.is_current(), move || ticket.join()))
    }

    fn pass(&self, clock: &ManualClock) {
        let machine = self.machine_of(clock);
        let (time, clock) = (
            machine.as_ref().map(|machine| &machine.time),
            machine.as_ref().map_or(clock, |machine| &machine.simulation),
        );
        if panicking() && !self.is_playing() {
            // The test fails and drops all its values. No task may run during the unwinding.
            self.state.lock().closed = true;
        }
        if self.state.lock().closed && self.drop_one() {
            return;
        }
        loop {
            let goes_on = self.state.lock().wait();
            if !goes_on {
                let why = "a wait in a simulation does not end: time passes, but the awaited event never happens";
                self.give_up(clock, why);
            }
            if !self.step(clock, Nanos::NEVER) {
                self.give_up(clock, "a wait in a simulation does not end: nothing is due, now or later");
            }
            if time.is_none_or(|time| time.paused_until() <= clock.nanos()) {
                return;
            }
        }
    }

    fn draw(&self) -> u64 {
        self.state.lock().draws.draw()
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

impl SchedulerState {
    /// Returns a random element.
    fn choose(&mut self, due: &[u64]) -> Option<u64> {
        let many = u64::try_from(due.len()).ok().filter(|many| *many > 0)?;
        let at = usize::try_from(self.draws.draw() % many).ok()?;
        due.get(at).copied()
    }

    /// Returns why the simulation ended. Outside all turns, also closes the scheduler and drops the remaining tasks.
    fn given_up(&mut self) -> Option<String> {
        let why = self.given_up.clone()?;
        self.closed |= self.playing.is_empty();
        Some(why)
    }

    /// Counts a wait of the innermost turn. Returns whether another wait is allowed.
    fn wait(&mut self) -> bool {
        let waited = self.playing.last_mut().map_or(&mut self.waited, |(_, waited)| waited);
        *waited += 1;
        let waited = *waited;
        waited <= self.longest_wait()
    }

    fn longest_wait(&self) -> u64 {
        self.most.saturating_mul(10)
    }

    /// Describes the state, for a failure message.
    fn show(&self, now: Nanos, seed: u64) -> String {
        let waiting = self.playing.iter().filter_map(|(number, _)| self.tasks.get(number));
        let waiting = named(waiting.map(|slot| slot.name.to_string()));
        let (after, last) = (now.since(Nanos::ZERO), named(self.trace.most_frequent()));
        format!(" (after {after:?}; in the midst of a turn: {waiting}; of the last turns: {last}; seed {seed})")
    }
}

/// Joins a task.
#[derive(Clone)]
struct Ticket {
    scheduler: Arc<SimulationScheduler>,
    clock: ManualClock,
    number: u64,
}

impl Ticket {
    fn is_current(&self) -> bool {
        self.scheduler.state.lock().playing.last().is_some_and(|(number, _)| *number == self.number)
    }

    fn join(&self) {
        loop {
            let (there, beneath) = {
                let state = self.scheduler.state.lock();
                let beneath = state.playing.iter().any(|(number, _)| *number == self.number);
                (state.tasks.contains_key(&self.number), beneath)
            };
            if !there {
                return;
            }
            if beneath {
                let why = "a wait in a simulation does not end: it is for a turn that waits for this one";
                if panicking() {
                    // A second panic would end the process. The next turn reports the reason.
                    self.scheduler.fail(&self.clock, why);
                    return;
                }
                self.scheduler.give_up(&self.clock, why);
            }
            self.scheduler.pass(&self.clock);
        }
    }
}
