//! The watchdog: cancels runs at their deadlines, and reports runs that continue after the
//! [allowance](super::ALLOWANCE).
//!
//! Deadlines are stored in the slots, so a run costs no timer. The watchdog sleeps until the earliest deadline that it
//! has seen. A new run wakes it only if its deadline is earlier. All runs of a group usually have the same time limit,
//! so that happens only if the watchdog had nothing to watch. A poller announces the deadline of its next poll: the
//! watchdog then sleeps until that time, and wakes once a period.
//!
//! A watchdog is a task. The watchdogs of a pool and of the sources of its controllers share the thread of the pool's
//! timers. Another watchdog has its own thread.
//!
//! **The watchdog misses no deadline**, because the slot sees the store of the watchdog, or the watchdog sees the run.
//! A slot adds one to its count of runs, then reads `watching_until`. The watchdog writes "never" to `watching_until`,
//! then adds zero to the count, and reads the slot. Only such additions change the count, and each one sees everything
//! before the earlier ones.
//!
//! If the slot's addition is first, the watchdog sees its run. If the watchdog's is first, the slot reads "never" or
//! the watchdog's later store: the earliest of the deadlines that it then saw, at which it wakes. Plain loads and
//! stores would not suffice: each side could read before its own store is visible.

use std::sync::Arc;

use super::{Overrun, OverrunHook, ThreadGroup};
use crate::base::sync::atomic::Ordering::Relaxed;
use crate::base::task::{Next, Task};
use crate::base::time::Nanos;

pub(super) struct Watchdog {
    group: Arc<ThreadGroup>,
    report: OverrunHook,
}

impl Watchdog {
    pub(super) fn new(group: Arc<ThreadGroup>, report: OverrunHook) -> Self {
        Self { group, report }
    }

    /// Returns the earliest time at which a slot must be checked, and publishes it.
    fn earliest(&self, now: Nanos) -> Nanos {
        // From here on each new run with a deadline sets the event. Earlier runs are seen below.
        self.group.watching_until.store(Nanos::NEVER.0, Relaxed);
        let earliest = self.group.slots.iter().map(|slot| slot.deadline(now)).min().unwrap_or(Nanos::NEVER);
        self.group.watching_until.store(earliest.0, Relaxed);
        earliest
    }
}

impl Task for Watchdog {
    fn step(&mut self, now: Nanos) -> Next {
        for slot in &self.group.slots {
            if let Some(token) = slot.expire(now).and_then(|run| slot.token(run)) {
                token.cancel();
            }
            if let Some((run, record)) = slot.overrun(now) {
                (self.report)(Overrun { thread: &slot.name, slot, run, record });
            }
        }
        if self.group.end.is_empty() { Next::Finished } else { Next::At(self.earliest(now)) }
    }
}
