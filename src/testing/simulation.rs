//! Whole controllers on one thread and a held clock: what they do in a day takes milliseconds, and is the same each time.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::base::clock::{Clock, ManualClock};
use crate::base::simulation::{SimulationScheduler, TraceEntry};
use crate::base::thread::panic_message;
use crate::base::time::Nanos;

/// The environment variable that names the one seed with which [`Simulation::seeds`] is to run.
const SEED: &str = "HOMEOSTAT_SEED";

/// Runs whatever goes by its [`clock`](Self::clock) on the thread that has made it: controllers, managers, pools, workers, pollers,
/// watches and their subscriptions, the watchdogs. It is the shipped code that runs, but no thread is started. What would
/// have one is played in turns, one after the other: a turn is one run of a key, one event, one poll. Time passes only when
/// nothing is left to do: then the clock jumps to when something is due.
///
/// The order is by chance where it is not promised, and the seed decides it: which of those that are due is next, which of the ready
/// keys of one lane, in which order the keys of a store come; jitter and generated names as well. The same seed does the same
/// each time. So a test that goes through [many seeds](Self::seeds) finds what only some orders show, and can show it again.
///
/// # What waits
///
/// Runs are called on the test's own thread, so a breakpoint or a panic message is where one expects it. Whoever waits by the clock
/// ([`Context::sleep`](crate::Context::sleep), [`wait`](crate::ControllerHandle::wait) for a key, `shutdown`, the test itself) has the
/// others' turns played meanwhile. They are played on top of the one that waits, which goes on once those have come to their
/// ends: a run that sleeps for a second, and has a run on top of it that sleeps for a minute, sleeps for a minute.
///
/// A wait that nothing can end panics, and so does a simulation that does not come to rest; both say who is at it. What waits for
/// something that the clock does not know of ([`CancellationToken::wait`](crate::CancellationToken::wait), a channel, a lock) waits for
/// ever. What would do so on a thread of its own is refused as it starts ([`StartError::is_not_simulated`](crate::StartError::is_not_simulated)):
/// a watch that reads a channel, the functions of a manager, an [`ObjectWatch`](crate::objects::ObjectWatch) of a client whose
/// [streams](crate::objects::ObjectStream::polled) cannot be asked without waiting. An elector's campaign is one turn, so it has to come to an end.
///
/// # What is not the same each time
///
/// What does not come from here: the order of a table of the standard library in a reconciler, the uids of a client that has another
/// clock and no [seed](crate::objects::EmbeddedBuilder::seed), the order in which a [`Tracker`](crate::objects::Tracker) that has another
/// clock finds who tracks, files, the time of day.
///
/// # Examples
///
/// ```
/// use homeostat::testing::Simulation;
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use std::time::Duration;
///
/// const HOUR: Duration = Duration::from_secs(3600);
///
/// let sim = Simulation::new(1);
/// let pool = WorkerPool::builder().clock(sim.clock()).start()?;
/// let back_up = |_cx: &Context, _disk: &&str| -> Result<Action, BoxError> { Ok(Action::requeue_after(HOUR)) };
/// let disks = Controller::builder("disk", back_up).clock(sim.clock()).build()?.start(&pool)?;
///
/// disks.enqueue("disk-1");
/// sim.run_for(24 * HOUR); // takes no time
/// assert_eq!(disks.metrics().runs.requeues, 25);
/// # Ok::<_, BoxError>(())
/// ```
pub struct Simulation {
    clock: ManualClock,
    scheduler: Arc<SimulationScheduler>,
    /// It stays on its thread.
    _here: PhantomData<Rc<()>>,
}

/// A turn that was played in a [`Simulation`]. Shown as `1.5s pool-0 vm "vm-1"`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// When, since the simulation began.
    pub at: Duration,
    /// Whose turn it was: the name of the thread that it would have had.
    pub task: String,
    /// What it was about: the controller and its key, or the workers' key.
    pub what: Option<String>,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.at, self.task)?;
        self.what.iter().try_for_each(|what| write!(f, " {what}"))
    }
}

impl Simulation {
    /// One in which nothing runs yet. It begins with the first second of 1970.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::on(seed, ManualClock::new())
    }

    /// The same, beginning at this time of day: what timestamps are made of.
    #[must_use]
    pub fn at(seed: u64, time_of_day: SystemTime) -> Self {
        Self::on(seed, ManualClock::at(time_of_day))
    }

    fn on(seed: u64, clock: ManualClock) -> Self {
        let scheduler = SimulationScheduler::new(seed);
        Self { clock: scheduler.set_up(clock), scheduler, _here: PhantomData }
    }

    /// The most turns that may be played at one time of the clock before it is held to be one that never comes to rest. The waits of
    /// one turn, and those of the test itself between two runs, may together last for ten times as many. Default: 100 000.
    #[must_use]
    pub fn most_turns(self, turns: u64) -> Self {
        self.scheduler.set_most(turns);
        self
    }

    /// The clock for all that is to run in it.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clock()
    }

    /// The time by its clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// How much time has passed by its clock.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.nanos().since(Nanos::ZERO)
    }

    /// What decides the order.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.scheduler.seed()
    }

    /// How many turns have been played.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.scheduler.steps()
    }

    /// The turns that have been played, in their order: of very many, the last 100 000. The same for the same seed.
    #[must_use]
    pub fn trace(&self) -> Vec<Turn> {
        let shown = |step: TraceEntry| {
            let (at, task) = (step.at.since(Nanos::ZERO), step.name.to_string());
            Turn { at, task, what: step.what }
        };
        self.scheduler.trace().into_iter().map(shown).collect()
    }

    /// Runs until nothing is left to do at this time of the clock.
    ///
    /// # Panics
    ///
    /// As [`run_for`](Self::run_for).
    #[track_caller]
    pub fn run_until_idle(&self) {
        self.run_for(Duration::ZERO);
    }

    /// Runs for so long by the clock: plays what is due, jumps to when the next is due, and so on. Whoever sleeps in a turn at the
    /// end is waited for, so it may come to more.
    ///
    /// # Panics
    ///
    /// If it does not come to rest, or a wait in it cannot end.
    #[track_caller]
    pub fn run_for(&self, duration: Duration) {
        let end = self.end(duration);
        while self.scheduler.step(&self.clock, end) {}
        self.clock.advance_to(end);
    }

    /// Runs until `condition` holds, which is looked at after each turn, for at most `timeout` by the clock.
    ///
    /// # Panics
    ///
    /// If it does not hold in time, or within a million turns ([`most_turns`](Self::most_turns)). And as [`run_for`](Self::run_for).
    #[track_caller]
    pub fn run_until(&self, timeout: Duration, mut condition: impl FnMut() -> bool) {
        let end = self.end(timeout);
        let last = self.turns().saturating_add(self.scheduler.longest_wait());
        while !condition() {
            if self.turns() > last {
                self.scheduler.give_up(&self.clock, "what a simulation waits for has not come for too many turns");
            }
            if !self.scheduler.step(&self.clock, end) {
                self.clock.advance_to(end);
                if condition() {
                    return;
                }
                self.scheduler
                    .give_up(&self.clock, &format!("what a simulation waits for has not come within {timeout:?}"));
            }
        }
    }

    /// Runs `test` in a simulation of its own for each of the seeds; with `HOMEOSTAT_SEED=5` in the environment, for the seed 5
    /// alone.
    ///
    /// ```
    /// use homeostat::testing::Simulation;
    ///
    /// Simulation::seeds(0..10, |sim| {
    ///     // start what is to run, by `sim.clock()`
    ///     sim.run_until_idle();
    ///     assert_eq!(sim.elapsed().as_secs(), 0);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If `test` does: with its message and the seed. And if the variable is set to what is no seed.
    #[track_caller]
    pub fn seeds(seeds: impl IntoIterator<Item = u64>, test: impl Fn(&Self)) {
        let only = std::env::var(SEED).ok().map(|text| {
            let seed = text.parse().ok();
            seed.unwrap_or_else(|| panic!("{SEED} is {text:?}, but must be a number"))
        });
        let run = |seed| {
            let simulation = Self::new(seed);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&simulation))) {
                panic!("with the seed {seed}, alone by {SEED}={seed}: {}", panic_message(&*panic));
            }
        };
        match only {
            Some(seed) => run(seed),
            None => seeds.into_iter().for_each(run),
        }
    }

    fn end(&self, duration: Duration) -> Nanos {
        self.scheduler.begin();
        // One before "never", which does not come.
        Nanos(self.clock.nanos().after(duration).0.min(u64::MAX - 1))
    }
}

/// What is left in it is dropped where it stands. Whoever waits for it finds that it has ended.
impl Drop for Simulation {
    fn drop(&mut self) {
        self.scheduler.close();
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed())
            .field("elapsed", &self.elapsed())
            .field("turns", &self.turns())
            .finish_non_exhaustive()
    }
}
