//! Time: the system clock, or a held clock for tests. The only file that calls `Instant::now`.
//!
//! Every wait in the crate that can time out goes through a [`Clock`]. On the system clock it is a timed wait of the
//! operating system. On a held clock it is registered here, and [`ManualClock::advance`] wakes it.
//!
//! Lock order: the lock of a held clock is the innermost one. Wakers run outside it.
//!
//! # Invariants
//!
//! - All system clocks count from one instant, so a time by one of them is a time by any other.

mod random;
mod time_of_day;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::base::task::Task;
use crate::base::thread::Joiner;
use crate::base::time::Nanos;

/// The clock of a queue and its threads.
///
/// Cheap to clone: clones show the same time. The system clock is monotonic, so changes of the wall clock do not affect
/// it. On most systems it stops while the machine sleeps: delays then take longer by the wall clock.
///
/// # Examples
///
/// ```
/// use homeostat::Clock;
///
/// let clock = Clock::system();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone)]
pub struct Clock(ClockKind);

#[derive(Clone)]
enum ClockKind {
    System { origin: Instant },
    Held(ManualClock),
}

/// A callback of a held clock for a given time. Runs outside its lock, on the thread that advances the clock.
pub(crate) type Wake = Box<dyn FnOnce() + Send>;

/// The scheduler of a simulation. Runs all tasks by its [clock](ManualClock::simulated) on one thread.
///
/// No thread is started for such a task, and none sleeps on such a clock. The order of equal keys, jitter and generated
/// names come from the scheduler's numbers, so equal numbers give equal runs. [`rt`](crate::rt) has an example.
pub trait Scheduler: Send + Sync {
    /// Adds a task. Called instead of starting a thread with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the simulation has ended.
    fn enter(self: Arc<Self>, clock: &ManualClock, name: String, task: Box<dyn Task>) -> io::Result<Joiner>;

    /// Takes the place of a sleep on `clock`: runs a step of another task, or advances the clocks to the next step.
    fn pass(&self, clock: &ManualClock);

    /// Returns the next of its random numbers.
    fn draw(&self) -> u64;

    /// Returns a number that stays the same. The order of the entries of hash tables follows it.
    fn seed(&self) -> u64;
}

impl Clock {
    /// Returns the system's monotonic clock.
    #[must_use]
    pub fn system() -> Self {
        // One origin for the process, so that times of one system clock are valid for another.
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Self(ClockKind::System { origin: *ORIGIN.get_or_init(system_now) })
    }

    /// Returns the current time of this clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            ClockKind::System { .. } => system_now(),
            ClockKind::Held(held) => held.now(),
        }
    }

    /// Returns whether both clocks always show the same time: both are the system clock, or clones of one held clock.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (ClockKind::System { .. }, ClockKind::System { .. }) => true,
            (ClockKind::Held(one), ClockKind::Held(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => false,
        }
    }

    /// Returns whether a test holds this clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.0, ClockKind::Held(_))
    }

    /// Returns the width of a timer tick, as a power of two of nanoseconds. 131 µs on the system clock, because threads
    /// cannot be woken more precisely. Exact on a held clock.
    pub(crate) fn tick_shift(&self) -> u32 {
        match self.0 {
            ClockKind::System { .. } => 17,
            ClockKind::Held(_) => 0,
        }
    }

    /// Returns the current time of this clock, as a plain value.
    #[inline]
    #[must_use]
    pub fn nanos(&self) -> Nanos {
        match &self.0 {
            ClockKind::System { origin } => Nanos::ZERO.after(system_now().duration_since(*origin)),
            ClockKind::Held(held) => held.nanos(),
        }
    }

    /// Returns the instant of `time`. `None` if the system's `Instant` cannot represent it.
    pub(crate) fn instant(&self, time: Nanos) -> Option<Instant> {
        let origin = match &self.0 {
            ClockKind::System { origin } => *origin,
            ClockKind::Held(held) => held.0.origin,
        };
        match time {
            Nanos::NEVER => None,
            Nanos(nanos) => origin.checked_add(Duration::from_nanos(nanos)),
        }
    }

    /// Returns whether this clock has reached `time`. Never true for [`Nanos::NEVER`].
    #[must_use]
    pub fn reached(&self, time: Nanos) -> bool {
        time != Nanos::NEVER && time <= self.nanos()
    }

    /// Registers a thread that is about to sleep until `deadline`, under the lock of its condition. Returns `None` if
    /// the deadline has passed. Only [`sleep`](Self::sleep) may come between this and
    /// [`clear_alarm`](Self::clear_alarm).
    pub(crate) fn fall_asleep(&self, deadline: Nanos, timeout: impl FnOnce() -> Wake) -> Option<Nap> {
        match &self.0 {
            ClockKind::System { .. } => Some(Nap(None)),
            ClockKind::Held(held) => held.fall_asleep(deadline, timeout),
        }
    }

    /// Returns the scheduler of the simulation. `None` outside a simulation.
    pub(crate) fn scheduler(&self) -> Option<(ManualClock, &Arc<dyn Scheduler>)> {
        let ClockKind::Held(held) = &self.0 else { return None };
        held.0.scheduler.as_ref().map(|scheduler| (held.clone(), scheduler))
    }

    /// Blocks on `condvar` until a notification, or until `deadline` on the system clock. In a simulation, the
    /// scheduler runs another task instead.
    pub(crate) fn sleep<T>(&self, condvar: &Condvar, guard: &mut MutexGuard<'_, T>, deadline: Nanos) {
        if let Some((clock, scheduler)) = self.scheduler() {
            MutexGuard::unlocked(guard, || scheduler.pass(&clock));
            return;
        }
        match (&self.0, self.instant(deadline)) {
            (ClockKind::System { .. }, Some(instant)) => {
                condvar.wait_until(guard, instant);
            }
            _ => condvar.wait(guard),
        }
    }

    /// Subtracts `count` threads from the sleepers, because a thread has decided to wake them.
    pub(crate) fn count_out(&self, count: usize) {
        if let ClockKind::Held(held) = &self.0 {
            held.0.state.lock().asleep -= count;
        }
    }

    /// Replaces `alarm` with one that calls `wake` at `at`. Only for a held clock. Returns true if `at` has passed;
    /// then `wake` is not called.
    pub(crate) fn set_alarm(&self, alarm: &mut Option<Alarm>, at: Nanos, wake: impl FnOnce() + Send + 'static) -> bool {
        self.clear_alarm(alarm);
        let ClockKind::Held(held) = &self.0 else {
            return false;
        };
        let mut state = held.0.state.lock();
        if at <= state.now {
            return true;
        }
        *alarm = Some(state.add_alarm(at, 0, Box::new(wake)));
        false
    }

    /// Removes an alarm, so that its waker is not called. Only for a held clock.
    pub(crate) fn clear_alarm(&self, alarm: &mut Option<Alarm>) {
        if let (ClockKind::Held(held), Some(alarm)) = (&self.0, alarm.take()) {
            // Bound to a name so that it drops after the lock: it may be the last handle of a waiting object.
            let _wake = held.0.state.lock().alarms.remove(&alarm);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ClockKind::System { .. } => f.write_str("Clock::system"),
            ClockKind::Held(held) => write!(f, "Clock::held at {:?}", held.elapsed()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clock")]
fn system_now() -> Instant {
    Instant::now()
}

/// A registered sleep, with its alarm on a held clock if it has a deadline.
pub(crate) struct Nap(pub(crate) Option<Alarm>);

/// An alarm of a held clock: its time, and a number that orders alarms of the same time.
pub(crate) type Alarm = (Nanos, u64);

/// Marks the numbers of timeouts. At the same instant, keys become ready first, so that a wait that ends finds them.
const TIMEOUT: u64 = 1 << 63;

/// A clock that moves only when a test advances it.
///
/// Delays, timeouts, polls, deadlines and backoff of everything that uses its [`clock`](Self::clock) wait for
/// [`advance`](Self::advance). A queue on a held clock needs no timer thread: the call that advances the clock makes
/// its keys ready.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, ManualClock, WorkQueue};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = WorkQueue::builder().clock(clock.clock()).build();
/// queue.enqueue_after("backup", Duration::from_secs(3600));
///
/// clock.advance(Duration::from_secs(3599));
/// assert!(queue.try_dequeue().is_err());
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(*queue.try_dequeue().unwrap(), "backup");
/// ```
#[derive(Clone)]
#[doc(alias = "fake clock")]
#[doc(alias = "mock clock")]
pub struct ManualClock(Arc<Held>);

struct Held {
    origin: Instant,
    /// The innermost lock of the crate.
    state: Mutex<HeldState>,
    /// Notified when a thread falls asleep.
    fell_asleep: Condvar,
    /// The scheduler of the simulation, if this is the clock of one.
    scheduler: Option<Arc<dyn Scheduler>>,
}

struct HeldState {
    now: Nanos,
    alarms: BTreeMap<Alarm, Wake>,
    next_alarm: u64,
    /// The number of threads that sleep on this clock and that no thread has decided to wake.
    asleep: usize,
    /// The time that the machine has slept.
    suspended: Duration,
    /// The time of day at the origin.
    time_of_day: SystemTime,
}

impl HeldState {
    fn add_alarm(&mut self, at: Nanos, rank: u64, wake: Wake) -> Alarm {
        let alarm = (at, rank | self.next_alarm);
        self.next_alarm += 1;
        self.alarms.insert(alarm, wake);
        alarm
    }
}

impl ManualClock {
    /// Creates a held clock. Its time of day is the beginning of 1970.
    #[must_use]
    pub fn new() -> Self {
        Self::at(UNIX_EPOCH)
    }

    /// Creates a held clock with this time of day. Timestamps use it; delays and deadlines do not.
    #[must_use]
    pub fn at(time_of_day: SystemTime) -> Self {
        Self::simulated(time_of_day, None)
    }

    /// Creates a clock for a simulation. Its [`Scheduler`] runs all tasks and advances the clock.
    #[must_use]
    pub fn simulated(time_of_day: SystemTime, scheduler: Option<Arc<dyn Scheduler>>) -> Self {
        Self(Arc::new(Held {
            origin: system_now(),
            state: Mutex::new(HeldState {
                now: Nanos::ZERO,
                alarms: BTreeMap::new(),
                next_alarm: 0,
                asleep: 0,
                suspended: Duration::ZERO,
                time_of_day,
            }),
            fell_asleep: Condvar::new(),
            scheduler,
        }))
    }

    /// Returns the current time of this clock, as a plain value.
    #[must_use]
    pub fn nanos(&self) -> Nanos {
        self.0.state.lock().now
    }

    /// Returns [`next_alarm`](Self::next_alarm) as a plain value. [`Nanos::NEVER`] without an alarm.
    #[must_use]
    pub fn alarm(&self) -> Nanos {
        self.0.state.lock().alarms.first_key_value().map_or(Nanos::NEVER, |((at, _), _)| *at)
    }

    /// Advances to `target`, like [`advance`](Self::advance). Not backwards, and not to [`Nanos::NEVER`].
    pub fn advance_to(&self, target: Nanos) {
        while let Some(due) = self.next_alarms(target) {
            for wake in due {
                wake();
            }
        }
    }

    /// Returns a clock for a queue.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(ClockKind::Held(self.clone()))
    }

    /// Returns the current time of this clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        // Only a held clock that was advanced by centuries exceeds the range of some systems' `Instant`.
        self.0.origin.checked_add(self.elapsed()).unwrap_or(self.0.origin)
    }

    /// Advances the clock by `duration`, stopping at each alarm in order.
    ///
    /// When this returns, all due keys are ready, and all waits that timed out are woken. The woken threads may still
    /// be busy. To step through the ticks of a poller, alternate this with
    /// [`wait_for_sleepers`](Self::wait_for_sleepers). The clock stops some 584 years after its creation.
    pub fn advance(&self, duration: Duration) {
        // One before "never", which the clock does not reach.
        self.advance_to(Nanos(self.nanos().after(duration).0.min(u64::MAX - 1)));
    }

    /// Returns the time at which [`advance`](Self::advance) stops next. `None` if nothing waits for a time.
    ///
    /// No earlier time is awaited. Possibly nothing happens then, for example if a key was cancelled.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Instant> {
        self.clock().instant(self.alarm())
    }

    /// Returns the number of threads that sleep on this clock, for example consumers of a queue, draining threads, idle
    /// pollers and workers, and sleeping reconcilers.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.0.state.lock().asleep
    }

    /// Blocks until at least `count` threads sleep on this clock.
    ///
    /// A thread that falls asleep wakes this. Blocks for ever if there are fewer threads.
    pub fn wait_for_sleepers(&self, count: usize) {
        let mut state = self.0.state.lock();
        while state.asleep < count {
            self.0.fell_asleep.wait(&mut state);
        }
    }

    fn elapsed(&self) -> Duration {
        self.nanos().since(Nanos::ZERO)
    }

    fn fall_asleep(&self, deadline: Nanos, timeout: impl FnOnce() -> Wake) -> Option<Nap> {
        let mut state = self.0.state.lock();
        if deadline <= state.now {
            return None;
        }
        let alarm = (deadline != Nanos::NEVER).then(|| state.add_alarm(deadline, TIMEOUT, timeout()));
        state.asleep += 1;
        self.0.fell_asleep.notify_all();
        Some(Nap(alarm))
    }

    /// Moves to the next alarm up to `target`, and takes all alarms of that time. Returns `None` if no alarm is left
    /// and the clock has reached `target`.
    fn next_alarms(&self, target: Nanos) -> Option<Vec<Wake>> {
        let mut state = self.0.state.lock();
        match state.alarms.first_key_value() {
            Some((&(at, _), _)) if at <= target => {
                let later = state.alarms.split_off(&(Nanos(at.0.saturating_add(1)), 0));
                let due = std::mem::replace(&mut state.alarms, later);
                state.now = state.now.max(at);
                Some(due.into_values().collect())
            }
            _ => {
                state.now = state.now.max(target);
                None
            }
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("ManualClock")
            .field("elapsed", &Duration::from_nanos(state.now.0))
            .field("alarms", &state.alarms.len())
            .field("sleepers", &state.asleep)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
