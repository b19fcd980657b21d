//! The lock around the records, and what is done under it; how a hold of it ends is in [`hold`](super::hold).
//!
//! Lock order: the queue's lock, then that of a held clock. Neither is held while user code runs, but for `Eq`, `Clone` and
//! `From<&Q>` of a key before anything has changed.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Key;
use super::claim::Claim;
use super::records::{Records, Settings, Taken};
use super::report::DrainReport;
use super::request::Shutdown;
use super::state::Ending;
use super::timer::TimerThread;
use crate::base::backoff::{Draws, Exponential};
use crate::base::clock::{Alarm, Clock, Wake};
use crate::base::sync::Mutex;
use crate::base::task_thread::TaskWaker;
use crate::base::thread::{ThreadOptions, drop_each, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, WaiterCounts, Waiters};

/// A consumer that finds nothing looks again so often before it sleeps,
const LOOKS: u32 = if cfg!(loom) { 2 } else { 8 };
/// if so many keys or more were taken since one last did: half a look a key is the most that it can cost.
pub(super) const BUSY: usize = 16;

/// What the handles of a queue, its claims and its threads have in common.
pub(crate) struct Shared<K: Key> {
    pub(super) locked: Mutex<Locked<K>>,
    /// Rung for a consumer when a key is in line for it.
    pub(super) consumers: Waiters,
    /// Rung for those who drain when nothing is left.
    pub(super) drainers: Waiters,
    /// Wakes the queue's own timer thread.
    pub(super) timer: Arc<AutoResetEvent>,
    /// Wakes the shared timer thread, if the queue uses one. Set under the lock.
    pub(super) shared_timer: OnceLock<TaskWaker>,
    pub(crate) config: Config,
    /// Called with each key whose scheduled run has been cancelled, once the lock is released.
    pub(super) on_cancel: Option<OnCancel<K>>,
}

/// Given the key.
pub(crate) type OnCancel<K> = Box<dyn Fn(&K) + Send + Sync>;

pub(crate) type OnRefusal = Box<dyn Fn() + Send + Sync>;

/// What a queue was built with.
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) backoff: Exponential,
    pub(crate) floor: Duration,
    pub(crate) min_interval: Duration,
    pub(crate) timing: bool,
    /// How the timer's thread is made; empty until that has been said.
    pub(crate) threads: OnceLock<ThreadOptions>,
    /// The most records that a shutdown looks at in one hold of the lock.
    pub(crate) sweep: u32,
    pub(crate) on_ready: Option<Box<dyn Fn() + Send + Sync>>,
    /// Called when the system has refused the timer thread, once the lock is released.
    pub(crate) on_refusal: Option<OnRefusal>,
}

/// What the lock guards.
pub(crate) struct Locked<K> {
    pub(crate) records: Records<K>,
    pub(super) consumers: WaiterCounts,
    pub(super) drainers: WaiterCounts,
    /// How many keys had been taken when a consumer last found nothing.
    pub(super) taken_at_wait: usize,
    /// When the timer looks at the wheel next.
    pub(super) turn_at: Nanos,
    /// The same on a held clock, which needs no timer thread.
    pub(super) alarm: Option<Alarm>,
    pub(super) timer: TimerThread,
    /// How often in a row the system has refused a timer thread.
    pub(super) refusals: u32,
    /// The queue is shut down or has been refused its timer thread, so each hold looks for what else there is to do.
    pub(super) restless: bool,
    /// Counted handles: the last one closes the queue.
    pub(super) handles: usize,
    pub(super) draws: Draws,
}

/// Why a consumer got no claim.
#[derive(Debug)]
pub(crate) enum NoClaim {
    Empty,
    Closed,
    /// What it was to wait with said stop.
    Stopped,
}

impl<K: Key> Shared<K> {
    /// Made with one handle counted.
    pub(crate) fn new(config: Config, on_cancel: Option<OnCancel<K>>) -> Arc<Self> {
        let settings = Settings {
            floor: config.floor,
            min_interval: config.min_interval,
            timing: config.timing,
            tick_shift: config.clock.tick_shift(),
        };
        Arc::new(Self {
            locked: Mutex::new(Locked {
                records: Records::new(settings),
                consumers: WaiterCounts::default(),
                drainers: WaiterCounts::default(),
                taken_at_wait: 0,
                turn_at: Nanos::NEVER,
                alarm: None,
                timer: TimerThread::None,
                refusals: 0,
                restless: false,
                handles: 1,
                draws: config.clock.draws(),
            }),
            consumers: Waiters::new(),
            drainers: Waiters::new(),
            timer: AutoResetEvent::new(config.clock.clone()),
            shared_timer: OnceLock::new(),
            config,
            on_cancel,
        })
    }

    /// Makes the timer's thread with `options` from now on, unless that has been said before.
    pub(crate) fn set_threads(&self, options: &ThreadOptions) {
        let _ = self.config.threads.set(options.clone());
    }

    /// How the timer's thread is made.
    pub(super) fn thread_options(&self) -> ThreadOptions {
        self.config.threads.get().cloned().unwrap_or_default()
    }

    pub(crate) fn now(&self) -> Nanos {
        self.config.clock.nanos()
    }

    /// Blocks until a key is in line, the queue is over, `stop` says so, or `deadline` has come ([`NoClaim::Empty`]).
    #[inline]
    pub(crate) fn dequeue(self: &Arc<Self>, deadline: Nanos, stop: impl Fn() -> bool) -> Result<Claim<K>, NoClaim> {
        match self.try_dequeue(&stop) {
            Err(NoClaim::Empty) => self.wait_and_dequeue(deadline, stop),
            other => other,
        }
    }

    #[cold]
    fn wait_and_dequeue(self: &Arc<Self>, deadline: Nanos, stop: impl Fn() -> bool) -> Result<Claim<K>, NoClaim> {
        let taken = self.hold(|hold| {
            let mut looks = self.looks(&mut hold.guard);
            loop {
                if stop() {
                    // The wake that brought this consumer here may have been meant for a key: it is handed on.
                    hold.effects.readied += usize::from(hold.guard.records.has_ready());
                    return Err(NoClaim::Stopped);
                }
                match hold.take() {
                    Err(NoClaim::Empty) => {}
                    other => return other,
                }
                if self.config.clock.reached(deadline) {
                    return Err(NoClaim::Empty);
                }
                if looks > 0 {
                    // Under load the next key is often there sooner than a consumer is asleep and woken again.
                    looks -= 1;
                    hold.yield_lock();
                    continue;
                }
                if self.retry_timer(&mut hold.guard) {
                    hold.unlocked(|| self.start_timer());
                    continue;
                }
                let deadline = deadline.min(hold.guard.retry_timer_at());
                hold.wait_for_key(deadline, || Arc::new(TimedOut(Arc::clone(self))));
            }
        })?;
        Ok(Claim::new(Arc::clone(self), taken))
    }

    /// How often a consumer that finds nothing looks again before it sleeps. Only keys pay for it: where consumers sleep
    /// between single keys it is never. A held clock counts who sleeps, so there nobody puts it off.
    fn looks(&self, locked: &mut Locked<K>) -> u32 {
        let taken = locked.records.taken();
        let busy = taken.wrapping_sub(std::mem::replace(&mut locked.taken_at_wait, taken)) >= BUSY;
        if busy && !self.config.clock.is_held() { LOOKS } else { 0 }
    }

    /// Measures from now on how long keys are in line.
    pub(crate) fn measure(self: &Arc<Self>) {
        let now = self.now();
        self.locked.lock().records.measure(now);
    }

    /// Takes the next key, unless `stop` says so or none is in line.
    #[inline]
    pub(crate) fn try_dequeue(self: &Arc<Self>, stop: impl FnOnce() -> bool) -> Result<Claim<K>, NoClaim> {
        let shared = Arc::clone(self);
        self.hold(|hold| match hold.take_unless(stop) {
            Ok(taken) => Ok(Claim::new(shared, taken)),
            Err(no_claim) => Err(no_claim),
        })
    }

    /// Wakes all consumers, to look at what they wait with. Once this has returned, no consumer whose `stop` was true
    /// before takes a key any more: each looks at it under the lock that this has held.
    pub(crate) fn nudge(&self) {
        let count = self.locked.lock().consumers.rouse(usize::MAX, &self.config.clock);
        self.consumers.ring(count);
    }

    #[inline]
    pub(crate) fn end(self: &Arc<Self>, index: u32, ending: Ending) -> Option<K> {
        self.hold(|hold| hold.end(index, ending))
    }

    /// Ends the claim as failed, with the queue's own backoff.
    pub(crate) fn retry(self: &Arc<Self>, index: u32) {
        self.hold(|hold| {
            let failures = hold.guard.records.state(index).failures_if_retried();
            let backoff = hold.backoff(failures);
            // The record is kept, or named in the shutdown's report: no key comes back.
            hold.end(index, Ending::Retry(backoff));
        });
    }

    #[inline]
    pub(crate) fn end_and_take(
        self: &Arc<Self>,
        index: u32,
        ending: Ending,
        gone: &mut Option<K>,
        stop: impl FnOnce() -> bool,
    ) -> Result<Taken<K>, NoClaim> {
        self.hold(|hold| {
            *gone = hold.end(index, ending);
            hold.take_unless(stop)
        })
    }

    pub(crate) fn shut_down(self: &Arc<Self>, mode: Shutdown) {
        self.close(|_| mode);
    }

    /// Shuts down as `mode` decides, given the mode that is set. Requests are refused from the first hold of the lock on; what the
    /// shutdown changes takes as many holds as it needs. Whoever shuts down or drains meanwhile joins in.
    fn close(self: &Arc<Self>, mode: impl FnOnce(Option<Shutdown>) -> Shutdown) {
        let (mut mode, mut gone, mut panic) = (Some(mode), Vec::new(), None);
        let sweep = self.config.sweep;
        loop {
            let mut swept = self.hold(|hold| {
                if let Some(mode) = mode.take() {
                    let locked = &mut *hold.guard;
                    locked.records.begin_shutdown(mode(locked.records.mode()));
                    locked.restless = true;
                }
                let (records, effects, now) = hold.parts();
                records.sweep(sweep, &now, effects)
            });
            gone.append(&mut swept.gone);
            match swept.panic {
                Some(further) if panic.is_some() => std::mem::forget(further),
                first => panic = panic.or(first),
            }
            if !swept.more {
                break;
            }
        }
        self.wake_timer();
        drop_each(gone);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    pub(crate) fn drain(self: &Arc<Self>, deadline: Nanos) -> DrainReport<K> {
        self.close(|mode| mode.unwrap_or(Shutdown::ServeReady));
        // Declared before the lock is taken: if a key cannot be cloned, what was cloned before drops after it.
        let mut report = DrainReport::new();
        let dropped = {
            let mut locked = self.locked.lock();
            while !locked.records.is_drained() && !self.config.clock.reached(deadline) {
                self.drainers.wait(
                    &mut locked,
                    |locked| &mut locked.drainers,
                    &self.config.clock,
                    deadline,
                    || Arc::new(TimedOut(Arc::clone(self))),
                );
            }
            locked.records.report_left(&mut report)
        };
        report.dropped.reserve_exact(dropped);
        while report.dropped.len() < dropped {
            self.locked.lock().records.report_dropped(&mut report, dropped);
        }
        report
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.locked.lock().records.has_ready()
    }

    /// Whether a consumer has no need to wait: there is a key, or none to come.
    pub(crate) fn is_due(&self) -> bool {
        let locked = self.locked.lock();
        locked.records.has_ready() || locked.records.is_over()
    }

    /// Brings one of the keys that may as well be next to the front, by a random number. Returns it.
    pub(crate) fn shuffle(&self, draw: u64) -> Option<K> {
        self.locked.lock().records.shuffle(draw).cloned()
    }

    /// The key that has been in line longest, and since when; `None` also where that is not measured.
    pub(crate) fn oldest(&self) -> Option<(K, Nanos)> {
        self.locked.lock().records.oldest().map(|(key, since)| (key.clone(), since))
    }

    /// The delayed key that comes due first.
    pub(crate) fn next_delayed(&self) -> Option<(K, Nanos)> {
        self.locked.lock().records.next_delayed().map(|(key, due)| (key.clone(), due))
    }

    /// The key of a record that is being processed, if it still is.
    pub(crate) fn key_in_process(&self, index: u32) -> Option<K> {
        self.locked.lock().records.key_in_process(index).cloned()
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
        let settings = Settings { floor: Duration::ZERO, min_interval: Duration::ZERO, timing: false, tick_shift: 0 };
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
