//! The queue's lock, and the records under it.
//!
//! Lock order: the queue's lock, then the lock of a timer thread or of a held clock. No user code runs under them,
//! except `Eq`, `Clone` and `From<&Q>` of a key, before anything has changed.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Key;
use super::records::{RecordSettings, Records};
use super::report::{DrainReport, DroppedRuns};
use super::request::{BATCH, Shutdown};
use super::wheel::TimerSlack;
use crate::base::backoff::{Draws, Exponential};
use crate::base::clock::{Alarm, Clock, Wake};
use crate::base::process::OwnerProcess;
use crate::base::sync::Mutex;
use crate::base::task_thread::TaskWaker;
use crate::base::thread::{Joiner, ThreadOptions, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{WaiterCounts, Waiters};

/// A hook with a key.
type KeyHook<K, R> = Box<dyn Fn(&K) -> R + Send + Sync>;

/// The hooks of a queue. They are called without the lock.
pub(crate) struct QueueHooks<K> {
    /// Called when a key becomes ready while no other key was.
    pub(crate) on_ready: Option<Box<dyn Fn() + Send + Sync>>,
    /// Called with each key that lost its scheduled run to a [`cancel`](super::WorkQueue::cancel).
    pub(crate) on_cancel: Option<KeyHook<K, ()>>,
    /// Drops the keys that the timer has forgotten. By default, the thread that turns the wheel drops them.
    pub(crate) on_forgotten: Option<Box<dyn Fn(Vec<K>) + Send + Sync>>,
    /// Returns whether a [selective request](super::EnqueueMethod::EnqueueSelected) is for this key. `None` selects all
    /// keys.
    pub(crate) selects: Option<KeyHook<K, bool>>,
}

/// The settings of a queue.
pub(crate) struct QueueConfig {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) backoff: Exponential,
    pub(crate) floor: Duration,
    pub(crate) min_interval: Duration,
    pub(crate) timer_slack: TimerSlack,
    pub(crate) timing: bool,
    /// Options of the queue's own timer thread.
    pub(crate) threads: ThreadOptions,
    /// The maximum number of records that a shutdown visits in one section.
    pub(crate) sweep: u32,
}

impl QueueConfig {
    /// Returns the slack of delays. A held clock is exact.
    pub(crate) fn slack(&self) -> TimerSlack {
        if self.clock.is_held() { TimerSlack::NONE } else { self.timer_slack }
    }
}

/// The state that the handles of a queue, its claims and its timer share.
pub(crate) struct QueueShared<K: Key> {
    pub(super) locked: Mutex<Locked<K>>,
    /// Consumers wait here for a ready key.
    pub(super) consumers: Waiters,
    /// Threads that drain wait here until the queue is drained.
    pub(super) drainers: Waiters,
    /// Wakes the timer, once there is one. Set under the lock.
    pub(super) timer: OnceLock<TaskWaker>,
    pub(crate) config: QueueConfig,
    pub(super) hooks: QueueHooks<K>,
    owner: OwnerProcess,
}

/// The data that the lock guards.
pub(crate) struct Locked<K> {
    pub(crate) records: Records<K>,
    pub(super) consumers: WaiterCounts,
    pub(super) drainers: WaiterCounts,
    /// The count of taken keys when a consumer last found the queue empty.
    pub(super) taken_at_wait: usize,
    /// The time at which the timer next turns the wheel.
    pub(super) turn_at: Nanos,
    /// The alarm for that time on a held clock, which needs no timer thread.
    pub(super) alarm: Option<Alarm>,
    pub(super) timer: TimerThread,
    /// How often in a row the system has refused a timer thread.
    pub(super) refusals: u32,
    /// Set after a shutdown or a refused timer thread: fast paths are off, so that each section checks for more work.
    pub(super) restless: bool,
    /// The number of handles. The last one closes the queue.
    pub(super) handles: usize,
    pub(super) draws: Draws,
}

/// The state of the timer thread, which starts with the first delay.
pub(super) enum TimerThread {
    None,
    /// The system refused the thread. While delays are pending, the queue tries again on its first use after this time.
    Refused(Nanos),
    Running(Joiner),
}

/// The next action for the timer, taken once the lock is released.
#[derive(Clone, Copy)]
pub(super) enum TimerAction {
    None,
    StartThread,
    /// Wake the timer thread, which would sleep too long.
    Wake,
    /// Turn the wheel now, because a held clock has already passed the time.
    TurnNow,
}

impl<K: Key> QueueShared<K> {
    /// Returns the state of a new queue with one handle.
    pub(crate) fn new(config: QueueConfig, hooks: QueueHooks<K>) -> Arc<Self> {
        let settings = RecordSettings {
            floor: config.floor,
            min_interval: config.min_interval,
            timing: config.timing,
            tick_shift: config.clock.tick_shift(),
            slack: config.slack(),
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
            timer: OnceLock::new(),
            config,
            hooks,
            owner: OwnerProcess::current(),
        })
    }

    pub(crate) fn now(&self) -> Nanos {
        self.config.clock.nanos()
    }

    /// Wakes all consumers and drains, so that each checks its condition under the lock. A consumer whose `stop`
    /// condition held before this call takes no key after it returns.
    pub(crate) fn wake_all(&self) {
        let (consumers, drainers) = {
            let mut locked = self.locked.lock();
            let clock = &self.config.clock;
            (locked.consumers.mark_woken(usize::MAX, clock), locked.drainers.mark_woken(usize::MAX, clock))
        };
        self.consumers.notify(consumers);
        self.drainers.notify(drainers);
    }

    /// Returns a callback for a held clock that reaches the timeout of a consumer or a drain.
    pub(super) fn timed_out(self: &Arc<Self>) -> Wake {
        let shared = Arc::clone(self);
        Box::new(move || shared.wake_all())
    }

    pub(crate) fn shut_down(self: &Arc<Self>, mode: Shutdown) {
        self.close(|_| mode);
    }

    /// Shuts down in the mode that `mode` returns for the current one. The first section refuses further requests, and
    /// later sections change the records. Threads that shut down or drain at the same time share that work.
    fn close(self: &Arc<Self>, mode: impl FnOnce(Option<Shutdown>) -> Shutdown) {
        let (mut mode, mut gone, mut panic) = (Some(mode), Vec::new(), None);
        let sweep = self.config.sweep;
        loop {
            let mut swept = self.with_lock(|section| {
                if let Some(mode) = mode.take() {
                    let locked = &mut **section.guard;
                    locked.records.begin_shutdown(mode(locked.records.mode()));
                    locked.restless = true;
                }
                let (records, effects, now) = section.parts();
                records.sweep(sweep, &now, effects)
            });
            gone.append(&mut swept.gone);
            panic = panic.or(swept.panic);
            if !swept.more {
                break;
            }
        }
        self.wake_timer();
        drop(gone);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    pub(crate) fn drain(self: &Arc<Self>, deadline: Nanos) -> DrainReport<K> {
        self.close(|mode| mode.unwrap_or(Shutdown::ServeReady));
        // Declared before the lock is taken: if the clone of a key panics, the earlier clones drop after the lock.
        let mut report = DrainReport::new();
        let dropped = {
            let mut locked = self.locked.lock();
            while !locked.records.is_drained() && !self.config.clock.reached(deadline) {
                let (clock, timed_out) = (&self.config.clock, || self.timed_out());
                self.drainers.wait(&mut locked, |locked| &mut locked.drainers, clock, deadline, timed_out);
            }
            locked.records.report_left(&mut report)
        };
        report.dropped.reserve_exact(dropped);
        while report.dropped.len() < dropped {
            self.locked.lock().records.dropped.append_to(&mut report.dropped, dropped);
        }
        report
    }

    /// Forgets the runs that a shutdown has dropped, so that no report names them.
    pub(crate) fn forget_dropped(&self) {
        // Dropped without the lock.
        let dropped = std::mem::replace(&mut self.locked.lock().records.dropped, DroppedRuns::new());
        drop(dropped);
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.locked.lock().records.has_ready()
    }

    /// Returns whether a dequeue would return at once: a key is ready, or the queue is shut down and empty.
    pub(crate) fn is_due(&self) -> bool {
        let locked = self.locked.lock();
        locked.records.has_ready() || locked.records.is_over()
    }

    /// Moves a random key of the next priority level to its front and returns it.
    pub(crate) fn shuffle(&self, draw: u64) -> Option<K> {
        self.locked.lock().records.shuffle(draw).cloned()
    }

    /// Returns the key that has been ready longest, and the time at which it became ready. `None` if the queue does not
    /// measure this.
    pub(crate) fn oldest(&self) -> Option<(K, Nanos)> {
        self.locked.lock().records.oldest().map(|(key, since)| (key.clone(), since))
    }

    /// Returns the delayed key that is due first, and its due time.
    pub(crate) fn next_delayed(&self) -> Option<(K, Nanos)> {
        self.locked.lock().records.next_delayed().map(|(key, due)| (key.clone(), due))
    }

    /// Returns all keys in no order, read in slices of at most 1,024 records. A key that comes or goes meanwhile may be
    /// missing or twice.
    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        let slice = |first| {
            // Declared before the lock is taken: if the clone of a key panics, the earlier clones drop after the lock.
            let mut keys = Vec::new();
            self.locked.lock().records.add_keys(first, &mut keys).then_some(keys)
        };
        (0..).step_by(BATCH as usize).map_while(slice).flatten()
    }

    /// Returns the key of a record that is being processed.
    pub(crate) fn key_in_process(&self, index: u32) -> Option<K> {
        self.locked.lock().records.key_in_process(index).cloned()
    }

    /// Starts to measure how long keys are ready before a claim takes them.
    pub(crate) fn measure(&self) {
        let now = self.now();
        self.locked.lock().records.measure(now);
    }

    /// Removes a handle. The last one shuts the queue down and waits for its timer. Does nothing in a forked process: a
    /// lock that another thread held at the fork is never released there.
    pub(crate) fn remove_handle(self: &Arc<Self>) {
        let is_last = || {
            let mut locked = self.locked.lock();
            locked.handles -= 1;
            locked.handles == 0
        };
        if self.owner.is_current() && is_last() {
            // No caller is left for a panic of a key's `Clone`, and the timer must end in any case.
            shielded("a key of a queue that closes", || self.shut_down(Shutdown::ServeReady));
            self.join_timer();
        }
    }
}

impl<K: Key> fmt::Debug for QueueShared<K> {
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
