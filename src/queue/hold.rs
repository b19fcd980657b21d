//! A hold of the queue's lock: what has come of it, and who is told once it is released.
//!
//! Everything that changes a queue happens in a hold. It collects what has come of it and, when it ends, decides under
//! the lock whom to wake, releases it, and only then notifies, starts the timer and calls the hook. A panic on the way ends
//! the hold the same way, so the queue stays usable.

use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Key;
use super::records::{Effects, Records, Taken};
use super::shared::{Locked, NoClaim, Shared};
use super::state::Ending;
use super::timer::Rearm;
use crate::base::clock::Wake;
use crate::base::sync::MutexGuard;
use crate::base::thread::shielded;
use crate::base::time::Nanos;

/// A hold of the queue's lock.
pub(crate) struct LockedSection<'a, K: Key> {
    shared: &'a Arc<Shared<K>>,
    pub(super) guard: MutexGuard<'a, Locked<K>>,
    pub(super) effects: Effects,
    /// The time of this hold, read where it is first asked for; [`Nanos::NEVER`] before that.
    time: Cell<Nanos>,
}

/// What is to be told once the lock is released.
struct PendingWakeups {
    consumers: usize,
    drainers: usize,
    timer: Rearm,
    ready: bool,
}

impl<K: Key> Shared<K> {
    /// Does `work` under the lock, and then tells whoever must know what has come of it.
    #[inline]
    pub(crate) fn hold<R>(self: &Arc<Self>, work: impl FnOnce(&mut LockedSection<'_, K>) -> R) -> R {
        let mut hold = LockedSection {
            shared: self,
            guard: self.locked.lock(),
            effects: Effects::default(),
            time: Cell::new(Nanos::NEVER),
        };
        let unwinding = Unwinding(&mut hold);
        let result = work(unwinding.0);
        mem::forget(unwinding);
        let news = hold.news();
        drop(hold.guard);
        if let Some(news) = news {
            self.tell(&news);
        }
        result
    }

    #[cold]
    fn tell(self: &Arc<Self>, news: &PendingWakeups) {
        self.consumers.ring(news.consumers);
        self.drainers.ring(news.drainers);
        match news.timer {
            Rearm::Leave => {}
            Rearm::Start => self.start_timer(),
            Rearm::Wake => self.wake_timer(),
            Rearm::TurnNow => self.turn_up(),
        }
        if news.ready
            && let Some(hook) = &self.config.on_ready
        {
            shielded("the on_ready hook of a queue", hook);
        }
    }
}

impl<K: Key> LockedSection<'_, K> {
    /// The records, what to note effects in, and the time of this hold.
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

    #[inline]
    pub(crate) fn end(&mut self, index: u32, ending: Ending) -> Option<K> {
        let (records, effects, now) = self.parts();
        records.end(index, ending, &now, effects)
    }

    /// Waits as [`Waiters::wait`](crate::base::wait::Waiters::wait) for the consumers' bell; what comes after has a time of its own.
    pub(super) fn wait_for_key(&mut self, deadline: Nanos, timeout: impl FnOnce() -> Arc<dyn Wake>) {
        let shared = self.shared;
        shared.consumers.wait(&mut self.guard, |locked| &mut locked.consumers, &shared.config.clock, deadline, timeout);
        self.time.set(Nanos::NEVER);
    }

    /// Lets go of the lock, and of the processor, for as long as others want them.
    pub(super) fn yield_lock(&mut self) {
        self.unlocked(thread::yield_now);
    }

    /// Does `work` without the lock; what comes after has a time of its own.
    pub(super) fn unlocked(&mut self, work: impl FnOnce()) {
        MutexGuard::unlocked(&mut self.guard, work);
        self.time.set(Nanos::NEVER);
    }

    pub(super) fn backoff(&mut self, failures: u32) -> Duration {
        let draw = self.guard.draws.next();
        self.shared.config.backoff.jittered(failures, draw)
    }

    #[inline(always)]
    pub(super) fn take_unless(&mut self, stop: impl FnOnce() -> bool) -> Result<Taken<K>, NoClaim> {
        if stop() { Err(NoClaim::Stopped) } else { self.take() }
    }

    #[inline(always)]
    pub(super) fn take(&mut self) -> Result<Taken<K>, NoClaim> {
        let records = &self.guard.records;
        let Some(index) = records.front() else {
            return Err(if records.is_over() { NoClaim::Closed } else { NoClaim::Empty });
        };
        let unclonable = Unclonable { hold: self, index };
        let key = unclonable.hold.guard.records.key(index).clone();
        mem::forget(unclonable);
        let (records, effects, now) = self.parts();
        // A key that came into line in this same hold wakes nobody: this one takes a key out.
        effects.readied = effects.readied.saturating_sub(1);
        Ok(records.take(index, key, &now))
    }

    /// The key to be taken next cannot be cloned: it backs off as a failed one, so that others are served.
    #[cold]
    fn fail_front(&mut self, index: u32) {
        let failures = self.guard.records.state(index).failures_if_retried();
        let backoff = self.backoff(failures);
        let (records, effects, now) = self.parts();
        records.fail_front(backoff, &now, effects);
        // This consumer leaves without a key; another may take what is left.
        effects.readied += usize::from(records.has_ready());
    }

    /// Decides, still under the lock, whom to tell. Most holds concern nobody.
    #[inline]
    fn news(&mut self) -> Option<PendingWakeups> {
        let (effects, locked) = (&self.effects, &*self.guard);
        let heard = locked.consumers.asleep() > 0 || self.shared.config.on_ready.is_some();
        let none = !(effects.readied > 0 && heard) && effects.turn_at >= locked.turn_at && !locked.restless;
        if none { None } else { Some(self.settle()) }
    }

    fn settle(&mut self) -> PendingWakeups {
        let Self { effects, guard, shared, .. } = self;
        let locked = &mut **guard;
        let clock = &shared.config.clock;
        let mut news = PendingWakeups { consumers: 0, drainers: 0, timer: Rearm::Leave, ready: false };
        if effects.readied > 0 {
            news.ready = effects.from_empty && shared.config.on_ready.is_some() && locked.records.has_ready();
            news.consumers = locked.consumers.rouse(effects.readied, clock);
        }
        if effects.turn_at < locked.turn_at {
            locked.turn_at = effects.turn_at;
            news.timer = shared.rearm(locked, effects.turn_at);
        }
        if shared.retry_timer(locked) {
            news.timer = Rearm::Start;
        }
        if locked.records.mode().is_some() {
            // Consumers learn when there is nothing more to come, and those who drain when nothing is left.
            clock.clear_alarm(&mut locked.alarm);
            if locked.records.is_over() {
                news.consumers += locked.consumers.rouse(usize::MAX, clock);
            }
            if locked.records.is_drained() {
                news.drainers = locked.drainers.rouse(usize::MAX, clock);
            }
        }
        news
    }
}

/// Ends a hold whose work panics as any other.
struct Unwinding<'h, 'a, K: Key>(&'h mut LockedSection<'a, K>);

impl<K: Key> Drop for Unwinding<'_, '_, K> {
    fn drop(&mut self) {
        if let Some(news) = self.0.news() {
            let shared = self.0.shared;
            MutexGuard::unlocked(&mut self.0.guard, || shared.tell(&news));
        }
    }
}

/// Sees to a key whose `Clone` panics when it is to be taken.
struct Unclonable<'h, 'a, K: Key> {
    hold: &'h mut LockedSection<'a, K>,
    index: u32,
}

impl<K: Key> Drop for Unclonable<'_, '_, K> {
    fn drop(&mut self) {
        self.hold.fail_front(self.index);
    }
}
