//! A hold of the queue's lock: what has come of it, and who is told once it is released.
//!
//! Everything that happens to a queue happens in a hold. It collects what has come of it and, when it ends, decides under
//! the lock whom to wake, releases it, and only then notifies, starts the timer and calls the hook. A panic on the way ends
//! the hold the same way, so the queue stays usable.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use super::Key;
use super::records::{Effects, Records, Taken};
use super::shared::{Locked, NoClaim, Shared};
use super::state::Ending;
use super::timer::Rearm;
use crate::sync::MutexGuard;
use crate::thread::shielded;
use crate::time::Nanos;

impl<K: Key> Shared<K> {
    pub(crate) fn hold(self: &Arc<Self>) -> Hold<'_, K> {
        Hold {
            effects: Effects::default(),
            guard: self.locked.lock(),
            after: After { shared: self, consumers: 0, drainers: 0, timer: Rearm::Leave, ready: false },
        }
    }
}

/// A hold of the queue's lock.
pub(crate) struct Hold<'a, K: Key> {
    pub(super) effects: Effects,
    // Released first, then `after` tells whoever must know.
    pub(super) guard: MutexGuard<'a, Locked<K>>,
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

    pub(super) fn backoff(&mut self, failures: u32) -> Duration {
        let draw = self.guard.draws.next();
        self.after.shared.config.backoff.jittered(failures, draw)
    }

    #[inline]
    pub(super) fn take_unless(&mut self, stop: impl FnOnce() -> bool) -> Result<Taken<K>, NoClaim> {
        if stop() { Err(NoClaim::Stopped) } else { self.take() }
    }

    #[inline]
    pub(super) fn take(&mut self) -> Result<Taken<K>, NoClaim> {
        let shared = self.after.shared;
        match self.guard.records.take(&|| shared.now()) {
            Ok(Some(taken)) => {
                // A key that came into line in this same hold wakes nobody: this one takes a key out.
                self.effects.readied = self.effects.readied.saturating_sub(1);
                Ok(taken)
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

/// What is done once the lock is released.
struct After<'a, K: Key> {
    shared: &'a Arc<Shared<K>>,
    consumers: usize,
    drainers: usize,
    timer: Rearm,
    ready: bool,
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
        if self.consumers + self.drainers > 0 || self.ready || !matches!(self.timer, Rearm::Leave) {
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
            Rearm::Leave => {}
            Rearm::Start => shared.start_timer(),
            Rearm::Signal => shared.timer.set(),
            Rearm::TurnNow => shared.turn_up(),
        }
        if self.ready
            && let Some(hook) = &shared.config.on_ready
        {
            shielded("the on_ready hook of a queue", hook);
        }
    }
}
