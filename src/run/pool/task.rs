//! The task of a pool's thread.

use std::sync::Arc;

use super::{Pool, SlotState};
use crate::base::group::Overrun;
use crate::base::sync::atomic::Ordering::AcqRel;
use crate::base::task::{Next, Task, TurnContext};
use crate::base::time::Nanos;
use crate::run::error::Chain;

/// The task that serves the members of a pool.
pub(super) struct PoolTask {
    pub(super) pool: Arc<Pool>,
    pub(super) number: usize,
}

impl Task for PoolTask {
    /// Blocks until the pool is stopping.
    fn step(&mut self, _now: Nanos) -> Next {
        self.pool.work(self.number);
        Next::Finished
    }

    fn due(&mut self, _next: Nanos) -> Nanos {
        let state = self.pool.state.lock();
        let ready = !state.members.is_empty() && !self.pool.is_full(&state);
        if ready || self.pool.group.is_stopping() { Nanos::ZERO } else { self.pool.waits_until(&state) }
    }

    /// Runs one key.
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        let Self { pool, number } = self;
        if pool.group.is_stopping() {
            return Next::Finished;
        }
        let (found, stuck) = {
            let mut state = pool.state.lock();
            (pool.take(&mut state, *number), Arc::clone(&state.slots[*number].stuck))
        };
        if let Some(found) = found {
            if let Some(key) = found.2.shuffle(turn.draw) {
                (turn.say)(key);
            }
            pool.serve(*number, &stuck, found);
        }
        Next::At(Nanos::NEVER)
    }
}

impl Pool {
    /// Reports an overrun, and lets another thread take the place of the stuck one. Called by the watchdog.
    pub(crate) fn overrun(self: &Arc<Self>, overrun: &Overrun<'_>) {
        let Some(number) = self.group.slots.iter().position(|slot| std::ptr::eq(Arc::as_ptr(slot), overrun.slot))
        else {
            return;
        };
        let mut state = self.state.lock();
        let SlotState { serving: Some(member), stuck } = &state.slots[number] else { return };
        // Marks first, then checks: see `PoolTurn::is_over`.
        stuck.swap(true, AcqRel);
        if !overrun.goes_on() {
            stuck.swap(false, AcqRel);
            return;
        }
        let job = state.jobs[member.0].clone();
        let mut spare = None;
        state.stuck += 1;
        if state.started < self.group.slots.len() && state.stuck > state.started - self.threads {
            spare = Some(state.started);
            state.started += 1;
        }
        let count = state.mark_woken(&self.group);
        drop(state);
        self.idle.notify(count);
        // The report precedes the log line of the spare thread.
        if let Some(job) = job {
            job.overrun(overrun);
        }
        if let Some(spare) = spare {
            self.start_spare(spare);
        }
    }

    fn start_spare(self: &Arc<Self>, number: usize) {
        let body = PoolTask { pool: Arc::clone(self), number };
        let (pool, thread) = (self.group.name.as_str(), self.group.slots[number].name.as_str());
        match self.group.start_on(number, &self.options, body) {
            Ok(()) => {
                log::warn!(pool, thread; "{pool}: thread {thread} is started in place of a stuck one");
            }
            Err(error) => {
                let error = Chain(&error);
                log::error!(pool, thread, error:%; "{pool}: cannot start thread {thread} in place of a stuck one: {error}");
                // The next overrun tries again. Only the watchdog's thread starts threads, so no other start runs now.
                self.state.lock().started -= 1;
            }
        }
    }
}
