//! The watchdog: cancels a run at its deadline, and reports it if it goes on after the [allowance](super::ALLOWANCE).
//!
//! Deadlines sit in the slots; a run costs no timer. The watchdog sleeps until the earliest deadline it has seen. A run that
//! begins wakes it only if its own deadline is earlier than that: as all runs of a group may take equally long, that is when
//! the watchdog has had nothing to watch. A poller says when its next poll has its deadline, so that the watchdog already
//! sleeps until then and wakes once a period.
//!
//! **The watchdog misses no deadline**, because the slot sees the store of the watchdog, or the watchdog sees the run. A slot adds one to its count of runs,
//! then reads `watching_until`. The watchdog writes "never" there, then adds nothing to the count, and looks at the slot. All
//! that ever changes the count is such an addition, and each one sees what came before those that are ahead of it. If the
//! slot's is ahead, the watchdog sees its run; if the watchdog's is, the slot reads "never", or what the watchdog has written
//! since: the earliest of the deadlines it then saw, by which it is awake. Plain loads and stores would not do: each side could
//! read before its own store is to be seen.

use std::sync::Arc;

use super::{Overrun, OverrunHook, ThreadGroup};
use crate::base::sync::atomic::Ordering::Relaxed;
use crate::base::task::{Next, Task};
use crate::base::thread::shielded;
use crate::base::time::Nanos;

pub(super) struct Watchdog {
    group: Arc<ThreadGroup>,
    report: OverrunHook,
}

impl Watchdog {
    pub(super) fn new(group: Arc<ThreadGroup>, report: OverrunHook) -> Self {
        Self { group, report }
    }

    /// The earliest time at which a slot has to be looked at, which is then waited for.
    fn earliest(&self, now: Nanos) -> Nanos {
        // From here on each run that begins with a deadline sets the signal; those that began before are seen below.
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
                // It clones, shows and drops a key, which is the user's code.
                let overrun = Overrun { thread: &slot.name, slot, run, record };
                shielded("the report of an overrun", || (self.report)(overrun));
            }
        }
        if self.group.is_empty() { Next::Finished } else { Next::At(self.earliest(now)) }
    }
}
