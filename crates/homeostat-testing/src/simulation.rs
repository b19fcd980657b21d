//! Whole controllers on one thread and a held clock. A simulated day takes milliseconds, and is the same each time.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::machine::SimulatedMachine;
use super::scheduler::SimulationScheduler;
use super::trace::TraceEntry;
use homeostat::base::{Clock, ManualClock};
use homeostat::rt::{Nanos, panic_message};

/// The environment variable that limits [`Simulation::seeds`] to one seed.
const SEED: &str = "HOMEOSTAT_SEED";

/// A scheduler that runs controllers and managers on the current thread, in simulated time.
///
/// It runs everything that uses its [`clock`](Self::clock): controllers, managers, pools, workers, pollers, watches and
/// their subscriptions, and watchdogs. The code is the shipped code, but no thread starts. Tasks that would have their
/// own thread take turns instead. A turn is one run of a key, one event, or one poll. When no task has work, the clock
/// jumps to the next deadline.
///
/// The seed determines the order of turns, the order of ready keys with the same priority, and the order of keys in a
/// store. It also determines jitter and generated names. The same seed gives the same run. A test with [many
/// seeds](Self::seeds) finds failures that need a certain order, and can repeat them.
///
/// # Waiting
///
/// Runs are called on the test's thread, so breakpoints and panic messages work as usual. A wait by the clock lets
/// other tasks take their turns: [`Context::sleep`](homeostat::Context::sleep),
/// [`ControllerHandle::wait`](homeostat::ControllerHandle::wait), `shutdown`, and the test's own waits. Those turns run
/// on top of the waiting one, which resumes after they return. Therefore a run that sleeps for one second takes a
/// minute if a run on top of it sleeps for a minute.
///
/// A wait that nothing can end panics, and a simulation that never becomes idle panics too. The messages name the tasks
/// that were running.
///
/// Waits that do not use the clock block forever: [`CancellationToken::wait`](homeostat::CancellationToken::wait),
/// channels, locks. Components that wait like this on their own thread are refused when they start
/// ([`NotSimulated`](homeostat::base::StartErrorKind::NotSimulated)): watches of a channel, functions of a
/// manager, and an [`ObjectWatch`](homeostat_objects::ObjectWatch) of a client with
/// [streams](homeostat_objects::ObjectStream::polled) that cannot be polled. A campaign of an elector is one turn, so
/// it must return.
///
/// # Limits of repeatability
///
/// The seed does not control: the order of a hash table in a reconciler, files, the time of day, the uids of a client
/// with another clock and without a [seed](homeostat_objects::EmbeddedBuilder::seed), and the order of keys from a
/// [`Tracker`](homeostat_objects::Tracker) with another clock.
///
/// # Examples
///
/// ```
/// use homeostat_testing::Simulation;
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
    /// A simulation stays on its thread.
    _here: PhantomData<Rc<()>>,
}

/// One turn in the [trace](Simulation::trace) of a simulation. Displayed as `1.5s pool-0 vm "vm-1"`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimulatedTurn {
    /// The time since the start of the simulation.
    pub at: Duration,
    /// The task, with the name that its thread would have.
    pub task: String,
    /// The controller and its key, or the key of the workers.
    pub what: Option<String>,
}

impl fmt::Display for SimulatedTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.at, self.task)?;
        self.what.iter().try_for_each(|what| write!(f, " {what}"))
    }
}

impl Simulation {
    /// Creates an idle simulation that starts at the beginning of 1970.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::at(seed, SystemTime::UNIX_EPOCH)
    }

    /// Creates an idle simulation that starts at this time of day, which timestamps show.
    #[must_use]
    pub fn at(seed: u64, time_of_day: SystemTime) -> Self {
        let scheduler = SimulationScheduler::new(seed);
        Self { clock: scheduler.clock(time_of_day), scheduler, _here: PhantomData }
    }

    /// Sets the maximum number of turns at one time of the clock. A simulation that exceeds it counts as never idle.
    /// Default: 100,000.
    ///
    /// The waits of one turn together, and the waits of the test between two runs together, may last ten times as many
    /// turns.
    #[must_use]
    pub fn most_turns(self, turns: u64) -> Self {
        self.scheduler.set_most(turns);
        self
    }

    /// Returns the clock for all components of the simulation.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clock()
    }

    /// Returns a new machine. Its clock runs at `percent` of the rate of [`clock`](Self::clock), and begins with the
    /// same time of day.
    ///
    /// The simulation itself uses `clock`: for its trace, its waits, and the components that use `clock`, such as a
    /// store that several machines share.
    ///
    /// # Panics
    ///
    /// Panics if `percent` is zero.
    #[must_use]
    pub fn machine(&self, percent: u32) -> SimulatedMachine {
        assert!(percent > 0, "the rate of a machine's clock must be at least 1 %");
        self.scheduler.machine(&self.clock, percent)
    }

    /// Returns the current time of the clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the simulated time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.nanos().since(Nanos::ZERO)
    }

    /// Returns the seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.scheduler.seed()
    }

    /// Returns the count of turns so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.scheduler.steps()
    }

    /// Returns the turns so far: at most the last 100,000. The same seed gives the same trace.
    #[must_use]
    pub fn trace(&self) -> Vec<SimulatedTurn> {
        let shown = |step: TraceEntry| {
            let (at, task) = (step.at.since(Nanos::ZERO), step.name.to_string());
            SimulatedTurn { at, task, what: step.what }
        };
        self.scheduler.trace().into_iter().map(shown).collect()
    }

    /// Runs until no task has work at the current time of the clock.
    ///
    /// # Panics
    ///
    /// The same as for [`run_for`](Self::run_for).
    #[track_caller]
    pub fn run_until_idle(&self) {
        self.run_for(Duration::ZERO);
    }

    /// Runs for this long by the clock.
    ///
    /// It takes longer if a turn is still sleeping at the end: the simulation waits for that turn.
    ///
    /// # Panics
    ///
    /// Panics if the simulation does not become idle, or if nothing can end a wait in it.
    #[track_caller]
    pub fn run_for(&self, duration: Duration) {
        let end = self.end(duration);
        while self.scheduler.step(&self.clock, end) {}
        self.scheduler.advance(&self.clock, end);
    }

    /// Runs until `condition` holds, for at most `timeout` by the clock. The condition is checked after each turn.
    ///
    /// # Panics
    ///
    /// Panics if the condition does not hold in time, or within ten times [`most_turns`](Self::most_turns) turns. Also
    /// panics in the cases of [`run_for`](Self::run_for).
    #[track_caller]
    pub fn run_until(&self, timeout: Duration, mut condition: impl FnMut() -> bool) {
        let end = self.end(timeout);
        let last = self.turns().saturating_add(self.scheduler.longest_wait());
        while !condition() {
            if self.turns() > last {
                self.scheduler
                    .give_up(&self.clock, "the condition of `run_until` did not hold within the limit of turns");
            }
            if !self.scheduler.step(&self.clock, end) {
                self.scheduler.advance(&self.clock, end);
                if condition() {
                    return;
                }
                self.scheduler
                    .give_up(&self.clock, &format!("the condition of `run_until` did not hold within {timeout:?}"));
            }
        }
    }

    /// Runs `test` once for each seed, each time in a new simulation.
    ///
    /// If the environment variable `HOMEOSTAT_SEED` is set, for example `HOMEOSTAT_SEED=5`, the test runs with that
    /// seed only.
    ///
    /// ```
    /// use homeostat_testing::Simulation;
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
    /// Panics with the message and the seed if `test` panics. Also panics if the variable is not a number.
    #[track_caller]
    pub fn seeds(seeds: impl IntoIterator<Item = u64>, test: impl Fn(&Self)) {
        let only = std::env::var(SEED).ok().map(|text| {
            let seed = text.parse().ok();
            seed.unwrap_or_else(|| panic!("the environment variable {SEED} is {text:?}, but must be a number"))
        });
        let run = |seed| {
            let simulation = Self::new(seed);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&simulation))) {
                panic!(
                    "failed with seed {seed} (to run this seed only, set {SEED}={seed}): {}",
                    panic_message(&*panic)
                );
            }
        };
        match only {
            Some(seed) => run(seed),
            None => seeds.into_iter().for_each(run),
        }
    }

    fn end(&self, duration: Duration) -> Nanos {
        self.scheduler.begin();
        // The last time of the clock means "never".
        Nanos(self.clock.nanos().after(duration).0.min(u64::MAX - 1))
    }
}

/// Drops the remaining tasks as they are. Their handles report that they have ended.
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
