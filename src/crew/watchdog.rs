//! The watchdog: sees a run that has passed its deadline while it still runs.
//!
//! Deadlines sit in the seats; a run costs no timer. The watchdog sleeps until the earliest deadline it has seen. A run that
//! begins wakes it only if its own deadline is earlier than that: as all runs of a crew may take equally long, that is when
//! the watchdog has had nothing to watch. The order of the accesses on either side (a seat: its deadline, then
//! `watching_until`; the watchdog: never to `watching_until`, then the deadlines) makes sure that one of them sees the other's.

use std::sync::Arc;

use super::{Crew, Overrun, Watch};
use crate::sync::atomic::Ordering::SeqCst;
use crate::thread::shielded;
use crate::time::Nanos;
use crate::wait::{Next, Task};

pub(super) struct Watchdog {
    crew: Arc<Crew>,
    report: Watch,
}

impl Watchdog {
    pub(super) fn new(crew: Arc<Crew>, report: Watch) -> Self {
        Self { crew, report }
    }

    /// The earliest deadline of all seats, which is then waited for.
    fn earliest(&self) -> Nanos {
        // From here on each run that begins with a deadline sets the signal; those that began before are seen below.
        self.crew.watching_until.store(Nanos::NEVER.0, SeqCst);
        let earliest = self.crew.seats.iter().map(|seat| seat.deadline()).min().unwrap_or(Nanos::NEVER);
        self.crew.watching_until.store(earliest.0, SeqCst);
        earliest
    }
}

impl Task for Watchdog {
    fn step(&mut self, now: Nanos) -> Next {
        for seat in &self.crew.seats {
            if let Some((run, record)) = seat.overrun(now) {
                // It clones, shows and drops a key, which is the user's code.
                let overrun = Overrun { thread: &seat.name, seat, run, record };
                shielded("the report of an overrun", || (self.report)(overrun));
                if let Some(token) = seat.token(run) {
                    token.cancel();
                }
            }
        }
        if self.crew.is_empty() { Next::Finished } else { Next::At(self.earliest()) }
    }
}
