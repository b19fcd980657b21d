//! Locked sections of a queue, and the wakeups that their changes cause.
//!
//! At its end, a section decides under the lock which threads to wake. It releases the lock, and only then wakes them,
//! starts the timer and calls the hook. After a panic, a section does the same, so the queue stays usable. The fast
//! paths of requests, dequeues and claims hold the lock without a section, because they seldom wake a thread.

use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::Key;
use super::records::{Effects, Records};
use super::shared::{Locked, QueueShared, TimerAction};
use crate::base::sync::MutexGuard;
use crate::base::thread::shielded;
use crate::base::time::Nanos;

impl<K: Key> QueueShared<K> {
    /// Runs `work` under the lock, then wakes the threads that its changes concern.
    pub(crate) fn with_lock<R>(self: &Arc<Self>, work: impl FnOnce(&mut LockedSection<'_, '_, K>) -> R) -> R {
        self.with_guard(self.locked.lock(), work)
    }

    /// Runs `work` under a lock that the caller has taken, releases the lock, then wakes the threads that the changes
    /// concern.
    pub(super) fn with_guard<R>(
        self: &Arc<Self>,
        mut guard: MutexGuard<'_, Locked<K>>,
        work: impl FnOnce(&mut LockedSection<'_, '_, K>) -> R,
    ) -> R {
        let mut section = LockedSection::new(self, &mut guard);
        let unwinding = Unwinding(&mut section);
        let result = work(unwinding.0);
        mem::forget(unwinding);
        let wakeups = section.wakeups();
        drop(guard);
        if let Some(wakeups) = wakeups {
            self.wake(&wakeups);
        }
        result
    }

    /// Releases the lock after a fast path, then wakes the threads that its effects concern.
    #[cold]
    pub(super) fn finish(self: &Arc<Self>, guard: MutexGuard<'_, Locked<K>>, effects: Effects) {
        self.with_guard(guard, |section| section.effects = effects);
    }

    /// Returns whether a thread or a hook waits for the keys that became ready.
    #[inline]
    pub(super) fn is_awaited(&self, locked: &Locked<K>, effects: &Effects) -> bool {
        effects.readied > 0 && locked.consumers.asleep() > 0 || effects.from_empty && self.hooks.on_ready.is_some()
    }

    #[cold]
    fn wake(self: &Arc<Self>, wakeups: &PendingWakeups) {
        self.consumers.notify(wakeups.consumers);
        self.drainers.notify(wakeups.drainers);
        match wakeups.timer {
            TimerAction::None => {}
            TimerAction::StartThread => self.start_timer(),
            TimerAction::Wake => self.wake_timer(),
            TimerAction::TurnNow => self.turn_up(),
        }
        if wakeups.ready
            && let Some(hook) = &self.hooks.on_ready
        {
            shielded("the on_ready hook of a queue", hook);
        }
    }
}

/// A locked section: one use of the queue's lock.
pub(crate) struct LockedSection<'s, 'g, K: Key> {
    pub(super) shared: &'s Arc<QueueShared<K>>,
    pub(super) guard: &'s mut MutexGuard<'g, Locked<K>>,
    pub(super) effects: Effects,
    /// The time of this section, read when it is first needed; [`Nanos::NEVER`] before that.
    time: Cell<Nanos>,
}

/// The wakeups and calls that follow once the lock is released.
struct PendingWakeups {
    consumers: usize,
    drainers: usize,
    timer: TimerAction,
    ready: bool,
}

impl<'s, 'g, K: Key> LockedSection<'s, 'g, K> {
    pub(super) fn new(shared: &'s Arc<QueueShared<K>>, guard: &'s mut MutexGuard<'g, Locked<K>>) -> Self {
        Self { shared, guard, effects: Effects::default(), time: Cell::new(Nanos::NEVER) }
    }

    /// Returns the records, the effects to report changes in, and the time of this section.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Records<K>, &mut Effects, impl Fn() -> Nanos) {
        let Self { shared, guard, effects, time } = self;
        let now = || {
            if time.get() == Nanos::NEVER {
                time.set(shared.now());
            }
            time.get()
        };
        (&mut guard.records, effects, now)
    }

    /// Waits for a key, without the lock, as `Waiters::wait` does. The time is read again afterwards.
    pub(super) fn wait_for_key(&mut self, deadline: Nanos) {
        let shared = self.shared;
        let timeout = || shared.timed_out();
        shared.consumers.wait(self.guard, |locked| &mut locked.consumers, &shared.config.clock, deadline, timeout);
        self.time.set(Nanos::NEVER);
    }

    /// Runs `work` without the lock. The time is read again afterwards.
    pub(super) fn unlocked(&mut self, work: impl FnOnce()) {
        MutexGuard::unlocked(self.guard, work);
        self.time.set(Nanos::NEVER);
    }

    /// Returns the queue's own backoff after this many failures, with jitter.
    pub(super) fn backoff(&mut self, failures: u32) -> Duration {
        let draw = self.guard.draws.draw();
        self.shared.config.backoff.jittered(failures, draw)
    }

    /// Decides which threads to wake. Most sections wake no thread.
    #[inline]
    fn wakeups(&mut self) -> Option<PendingWakeups> {
        let (effects, locked) = (&self.effects, &**self.guard);
        let none = !self.shared.is_awaited(locked, effects) && effects.turn_at >= locked.turn_at && !locked.restless;
        if none { None } else { Some(self.collect_wakeups()) }
    }

    /// Wakes the threads that the changes so far concern, without the lock.
    pub(super) fn wake_unlocked(&mut self) {
        if let Some(wakeups) = self.wakeups() {
            let shared = self.shared;
            MutexGuard::unlocked(self.guard, || shared.wake(&wakeups));
        }
    }

    fn collect_wakeups(&mut self) -> PendingWakeups {
        let Self { effects, guard, shared, .. } = self;
        let locked = &mut ***guard;
        let clock = &shared.config.clock;
        let mut wakeups = PendingWakeups { consumers: 0, drainers: 0, timer: TimerAction::None, ready: false };
        if effects.readied > 0 {
            wakeups.ready = effects.from_empty && shared.hooks.on_ready.is_some() && locked.records.has_ready();
            wakeups.consumers = locked.consumers.mark_woken(effects.readied, clock);
        }
        if effects.turn_at < locked.turn_at {
            locked.turn_at = effects.turn_at;
            wakeups.timer = shared.rearm(locked, effects.turn_at);
        }
        if shared.retry_timer(locked) {
            wakeups.timer = TimerAction::StartThread;
        }
        if locked.records.mode().is_some() {
            // Consumers return once no key can become ready, and drains once no key is ready or being processed.
            clock.clear_alarm(&mut locked.alarm);
            if locked.records.is_over() {
                wakeups.consumers += locked.consumers.mark_woken(usize::MAX, clock);
            }
            if locked.records.is_drained() {
                wakeups.drainers = locked.drainers.mark_woken(usize::MAX, clock);
            }
        }
        wakeups
    }
}

/// A drop guard that ends a section if its work panics.
struct Unwinding<'a, 's, 'g, K: Key>(&'a mut LockedSection<'s, 'g, K>);

impl<K: Key> Drop for Unwinding<'_, '_, '_, K> {
    fn drop(&mut self) {
        self.0.wake_unlocked();
    }
}
