//! The lock around the records, and who is woken when it is released.
//!
//! Everything happens in a [`Hold`]: a hold of the lock that collects what has come of it and, when it ends, decides under
//! the lock whom to wake, releases it, and only then notifies, starts the timer and calls the hook. A panic on the way
//! ends the hold the same way, so the queue stays usable.
//!
//! Lock order: the queue's lock, then that of a held clock. Neither is held while user code runs, but for `Eq` and `Clone`
//! of a key before anything has changed.

#[cfg(all(test, loom))]
mod models;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use super::Key;
use super::claim::Claim;
use super::records::{Effects, Records, Settings};
use super::report::DrainReport;
use super::request::Shutdown;
use super::state::Ending;
use crate::backoff::{Draws, Exponential};
use crate::clock::{Alarm, Clock, Wake};
use crate::sync::{Mutex, MutexGuard};
use crate::thread::{Joiner, Panic, ThreadOptions, drop_each, shielded};
use crate::time::Nanos;
use crate::wait::{Bell, Next, Signal, Sleepers, Task, run};

/// The most records that one hold of the lock handles.
pub(crate) const BATCH: u32 = 1024;

/// What the handles of a queue, its claims and its threads have in common.
pub(crate) struct Shared<K: Key> {
    locked: Mutex<Locked<K>>,
    /// Rung for a consumer when a key is in line for it.
    consumers: Bell,
    /// Rung for those who drain when nothing is left.
    drainers: Bell,
    /// Set for the timer thread when it must look at the wheel sooner than it meant to.
    timer: Arc<Signal>,
    pub(crate) config: Config,
}

/// What a queue was built with.
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) backoff: Exponential,
    pub(crate) floor: Duration,
    pub(crate) timing: bool,
    pub(crate) threads: ThreadOptions,
    pub(crate) on_ready: Option<Box<dyn Fn() + Send + Sync>>,
}

/// What the lock guards.
pub(crate) struct Locked<K> {
    pub(crate) records: Records<K>,
    consumers: Sleepers,
    drainers: Sleepers,
    /// When the timer looks at the wheel next.
    turn_at: Nanos,
    /// The same on a held clock, which needs no timer thread.
    alarm: Option<Alarm>,
    timer: TimerThread,
    /// Counted handles: the last one closes the queue.
    handles: usize,
    draws: Draws,
}

enum TimerThread {
    None,
    Starting,
    Running(Joiner),
}

/// Why a consumer got no claim.
#[derive(Debug)]
pub(crate) enum NoClaim {
    Empty,
    Closed,
    /// What it was to wait with said stop.
    Stopped,
    /// The key's `Clone` panicked.
    Panicked(Panic),
}

impl<K: Key> Shared<K> {
    /// Made with one handle counted.
    pub(crate) fn new(config: Config) -> Arc<Self> {
        let settings = Settings { floor: config.floor, timing: config.timing, tick_shift: config.clock.tick_shift() };
        Arc::new(Self {
            locked: Mutex::new(Locked {
                records: Records::new(settings),
                consumers: Sleepers::default(),
                drainers: Sleepers::default(),
                turn_at: Nanos::NEVER,
                alarm: None,
                timer: TimerThread::None,
                handles: 1,
                draws: Draws::random(),
            }),
            consumers: Bell::new(),
            drainers: Bell::new(),
            timer: Signal::new(config.clock.clone()),
            config,
        })
    }

    pub(crate) fn now(&self) -> Nanos {
        self.config.clock.nanos()
    }

    pub(crate) fn hold(self: &Arc<Self>) -> Hold<'_, K> {
        Hold {
            effects: Effects::default(),
            guard: self.locked.lock(),
            after: After { shared: self, consumers: 0, drainers: 0, timer: Timer::Leave, ready: false },
        }
    }

    /// Blocks until a key is in line, the queue is over, `stop` says so, or `deadline` has come ([`NoClaim::Empty`]).
    pub(crate) fn dequeue(self: &Arc<Self>, deadline: Nanos, stop: impl Fn() -> bool) -> Result<Claim<K>, NoClaim> {
        let mut hold = self.hold();
        loop {
            if stop() {
                // The wake that brought this consumer here may have been meant for a key: it is handed on.
                hold.effects.readied += usize::from(hold.records.has_ready());
                return Err(NoClaim::Stopped);
            }
            match hold.take() {
                Err(NoClaim::Empty) => {}
                Err(no_claim) => return Err(no_claim),
                Ok(claim) => return Ok(claim),
            }
            if self.config.clock.reached(deadline) {
                return Err(NoClaim::Empty);
            }
            self.consumers.wait(
                &mut hold.guard,
                |locked| &mut locked.consumers,
                &self.config.clock,
                deadline,
                || Arc::new(TimedOut(Arc::clone(self))),
            );
        }
    }

    pub(crate) fn try_dequeue(self: &Arc<Self>) -> Result<Claim<K>, NoClaim> {
        self.hold().take()
    }

    /// Wakes all consumers, to look at what they wait with.
    pub(crate) fn nudge(&self) {
        let count = self.locked.lock().consumers.rouse(usize::MAX, &self.config.clock);
        self.consumers.ring(count);
    }

    pub(crate) fn end(self: &Arc<Self>, index: u32, ending: Ending) -> Option<K> {
        let mut hold = self.hold();
        hold.end(index, ending)
    }

    /// Ends the claim as failed, with the queue's own backoff.
    pub(crate) fn retry(self: &Arc<Self>, index: u32) {
        let mut hold = self.hold();
        let failures = hold.records.state(index).failures_if_retried();
        let backoff = hold.backoff(failures);
        // The record is kept, or named in the shutdown's report: no key comes back.
        hold.end(index, Ending::Retry(backoff));
    }

    pub(crate) fn end_and_take(self: &Arc<Self>, index: u32, ending: Ending) -> (Option<K>, Result<Claim<K>, NoClaim>) {
        let mut hold = self.hold();
        let gone = hold.end(index, ending);
        (gone, hold.take())
    }

    pub(crate) fn shut_down(self: &Arc<Self>, mode: Shutdown) {
        let mut gone = Vec::new();
        let panic = {
            let mut hold = self.hold();
            let Hold { guard, effects, .. } = &mut hold;
            guard.records.shut_down(mode, &|| self.now(), &mut gone, effects)
        };
        self.timer.set();
        drop_each(gone);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    pub(crate) fn drain(self: &Arc<Self>, deadline: Nanos) -> DrainReport<K> {
        let mode = self.hold().records.mode().unwrap_or(Shutdown::ServeReady);
        self.shut_down(mode);
        // Declared before the hold: if a key cannot be cloned, what was cloned before drops after it.
        let mut report = DrainReport::new();
        let mut hold = self.hold();
        while !hold.records.is_drained() && !self.config.clock.reached(deadline) {
            self.drainers.wait(
                &mut hold.guard,
                |locked| &mut locked.drainers,
                &self.config.clock,
                deadline,
                || Arc::new(TimedOut(Arc::clone(self))),
            );
        }
        hold.records.report(&mut report);
        drop(hold);
        report
    }

    /// Puts what is due in line; returns when to call again.
    pub(crate) fn turn_wheel(self: &Arc<Self>) -> Nanos {
        let mut gone = Vec::new();
        let next = {
            let mut hold = self.hold();
            let now = self.now();
            let Hold { guard, effects, .. } = &mut hold;
            let next = guard.records.expire(now, BATCH, &mut gone, effects);
            guard.turn_at = next;
            let clock = &self.config.clock;
            if clock.is_held() && next != Nanos::NEVER {
                clock.set_alarm(&mut guard.alarm, next, Arc::new(Advanced(Arc::clone(self))));
            }
            next
        };
        for key in gone {
            shielded("the drop of a key", || drop(key));
        }
        next
    }

    /// The key of a record that is being processed, if it still is.
    pub(crate) fn key_in_process(self: &Arc<Self>, index: u32) -> Option<K> {
        self.hold().records.key_in_process(index).cloned()
    }

    pub(crate) fn add_handle(&self) {
        self.locked.lock().handles += 1;
    }

    /// Closes the queue with its last handle, and joins the timer thread.
    pub(crate) fn remove_handle(self: &Arc<Self>) {
        {
            let mut locked = self.locked.lock();
            locked.handles -= 1;
            if locked.handles > 0 {
                return;
            }
        }
        // Nobody is left who could be told of a panic of a key, and the timer thread must be joined all the same.
        shielded("a key of a queue that closes", || self.shut_down(Shutdown::ServeReady));
        let timer = std::mem::replace(&mut self.locked.lock().timer, TimerThread::None);
        if let TimerThread::Running(timer) = timer {
            timer.join();
        }
    }

    /// Starts the timer thread. The hold that asked for it has marked it as starting, so only one thread comes here.
    fn start_timer(self: &Arc<Self>) {
        let task = TurnWheel(Arc::clone(self));
        let signal = Arc::clone(&self.timer);
        let name = format!("{}-timer", self.config.name);
        let timer = match self.config.threads.spawn(name, move || run(task, &signal)) {
            Ok(timer) => timer,
            Err(error) => {
                log::error!(queue = self.config.name.as_str(), error:%; "no thread for the timer; the next delay tries again");
                let mut locked = self.locked.lock();
                locked.timer = TimerThread::None;
                locked.turn_at = Nanos::NEVER;
                return;
            }
        };
        let mut locked = self.locked.lock();
        if locked.handles > 0 {
            locked.timer = TimerThread::Running(timer);
        } else {
            // The last handle went meanwhile and had nothing to join.
            drop(locked);
            timer.join();
        }
    }
}

/// A hold of the queue's lock.
pub(crate) struct Hold<'a, K: Key> {
    effects: Effects,
    // Released first, then `after` tells whoever must know.
    guard: MutexGuard<'a, Locked<K>>,
    after: After<'a, K>,
}

impl<'a, K: Key> Hold<'a, K> {
    /// The records, what to note effects in, and the queue's time.
    pub(crate) fn parts(&mut self) -> (&mut Records<K>, &mut Effects, impl Fn() -> Nanos + use<'a, K>) {
        let shared = self.after.shared;
        (&mut self.guard.records, &mut self.effects, move || shared.now())
    }

    pub(crate) fn end(&mut self, index: u32, ending: Ending) -> Option<K> {
        let (records, effects, now) = self.parts();
        records.end(index, ending, &now, effects)
    }

    fn backoff(&mut self, failures: u32) -> Duration {
        let draw = self.guard.draws.next();
        self.after.shared.config.backoff.jittered(failures, draw)
    }

    #[inline]
    fn take(&mut self) -> Result<Claim<K>, NoClaim> {
        let shared = self.after.shared;
        match self.guard.records.take(&|| shared.now()) {
            Ok(Some(taken)) => {
                // A key that came into line in this same hold wakes nobody: this one takes a key out.
                self.effects.readied = self.effects.readied.saturating_sub(1);
                Ok(Claim::new(Arc::clone(shared), taken))
            }
            Ok(None) if self.guard.records.is_over() => Err(NoClaim::Closed),
            Ok(None) => Err(NoClaim::Empty),
            Err(panic) => {
                self.fail_front();
                Err(NoClaim::Panicked(panic))
            }
        }
    }

    /// The key to be taken next cannot be cloned: it backs off as a failed one, so that others are served.
    #[cold]
    fn fail_front(&mut self) {
        let failures = self.guard.records.front().map_or(1, |state| state.failures_if_retried());
        let backoff = self.backoff(failures);
        let (records, effects, now) = self.parts();
        records.fail_front(backoff, &now, effects);
        // This consumer leaves without a key; another may take what is left.
        effects.readied += usize::from(records.has_ready());
    }
}

impl<K: Key> Deref for Hold<'_, K> {
    type Target = Locked<K>;

    fn deref(&self) -> &Locked<K> {
        &self.guard
    }
}

impl<K: Key> DerefMut for Hold<'_, K> {
    fn deref_mut(&mut self) -> &mut Locked<K> {
        &mut self.guard
    }
}

impl<K: Key> Drop for Hold<'_, K> {
    /// Decides, still under the lock, whom to wake.
    #[inline]
    fn drop(&mut self) {
        let Self { effects, guard, after } = self;
        let locked = &mut **guard;
        if effects.readied > 0 {
            after.ready = effects.from_empty && after.shared.config.on_ready.is_some() && locked.records.has_ready();
            after.consumers = locked.consumers.rouse(effects.readied, &after.shared.config.clock);
        }
        if effects.turn_at < locked.turn_at {
            locked.turn_at = effects.turn_at;
            after.timer = after.shared.rearm(locked, effects.turn_at);
        }
        if locked.records.mode().is_some() {
            after.wind_up(locked);
        }
    }
}

impl<K: Key> Shared<K> {
    /// The timer must look at the wheel at `at`, which is sooner than it meant to.
    fn rearm(self: &Arc<Self>, locked: &mut Locked<K>, at: Nanos) -> Timer {
        let clock = &self.config.clock;
        if clock.is_held() {
            let wake = Arc::new(Advanced(Arc::clone(self)));
            return if clock.set_alarm(&mut locked.alarm, at, wake) { Timer::TurnNow } else { Timer::Leave };
        }
        if let TimerThread::None = locked.timer {
            locked.timer = TimerThread::Starting;
            return Timer::Start;
        }
        Timer::Signal
    }
}

/// What is done once the lock is released.
struct After<'a, K: Key> {
    shared: &'a Arc<Shared<K>>,
    consumers: usize,
    drainers: usize,
    timer: Timer,
    ready: bool,
}

#[derive(Clone, Copy)]
enum Timer {
    Leave,
    Start,
    Signal,
    /// A held clock has passed the time meanwhile.
    TurnNow,
}

impl<K: Key> After<'_, K> {
    /// After a shutdown: tells consumers when there is nothing more to come, and those who drain when nothing is left.
    #[cold]
    fn wind_up(&mut self, locked: &mut Locked<K>) {
        let clock = &self.shared.config.clock;
        clock.clear_alarm(&mut locked.alarm);
        if locked.records.is_over() {
            self.consumers += locked.consumers.rouse(usize::MAX, clock);
        }
        if locked.records.is_drained() {
            self.drainers = locked.drainers.rouse(usize::MAX, clock);
        }
    }
}

impl<K: Key> Drop for After<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if self.consumers + self.drainers > 0 || self.ready || !matches!(self.timer, Timer::Leave) {
            self.tell();
        }
    }
}

impl<K: Key> After<'_, K> {
    fn tell(&self) {
        let shared = self.shared;
        shared.consumers.ring(self.consumers);
        shared.drainers.ring(self.drainers);
        match self.timer {
            Timer::Leave => {}
            Timer::Start => shared.start_timer(),
            Timer::Signal => shared.timer.set(),
            Timer::TurnNow => Advanced(Arc::clone(shared)).wake(),
        }
        if self.ready
            && let Some(hook) = &shared.config.on_ready
        {
            shielded("the on_ready hook of a queue", hook);
        }
    }
}

/// The timer thread's body.
struct TurnWheel<K: Key>(Arc<Shared<K>>);

impl<K: Key> Task for TurnWheel<K> {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.0.hold().records.mode().is_some() {
            return Next::Finished;
        }
        Next::At(self.0.turn_wheel())
    }
}

/// The time has come, on a held clock, for which a queue's wheel waits.
struct Advanced<K: Key>(Arc<Shared<K>>);

impl<K: Key> Wake for Advanced<K> {
    fn wake(&self) {
        while self.0.turn_wheel() <= self.0.now() {}
    }
}

/// The time has come, on a held clock, up to which a consumer or a draining thread meant to wait.
struct TimedOut<K: Key>(Arc<Shared<K>>);

impl<K: Key> Wake for TimedOut<K> {
    fn wake(&self) {
        let shared = &self.0;
        let (consumers, drainers) = {
            let mut locked = shared.locked.lock();
            let clock = &shared.config.clock;
            (locked.consumers.rouse(usize::MAX, clock), locked.drainers.rouse(usize::MAX, clock))
        };
        shared.consumers.ring(consumers);
        shared.drainers.ring(drainers);
    }
}

impl<K: Key> Drop for Shared<K> {
    fn drop(&mut self) {
        let settings = Settings { floor: Duration::ZERO, timing: false, tick_shift: 0 };
        let records = std::mem::replace(&mut self.locked.lock().records, Records::new(settings));
        for key in records.into_keys() {
            shielded("the drop of a key", || drop(key));
        }
    }
}

impl<K: Key> fmt::Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = self.locked.lock();
        f.debug_struct("WorkQueue")
            .field("name", &self.config.name)
            .field("ready", &locked.records.ready())
            .field("delayed", &locked.records.counts.delayed)
            .field("processing", &locked.records.counts.processing)
            .field("waiting_consumers", &locked.consumers.asleep())
            .field("shutdown", &locked.records.mode())
            .finish_non_exhaustive()
    }
}
