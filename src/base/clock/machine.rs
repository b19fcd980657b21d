//! The clocks of the machines in a simulation.

use std::sync::Arc;

use super::ManualClock;
use super::rate::MachineTime;
use crate::base::time::Nanos;

impl ManualClock {
    /// Creates the clock of a machine in the simulation of this clock. It runs at `percent` of this clock's rate, and its scheduler
    /// advances it.
    pub(crate) fn machine(&self, percent: u32) -> Self {
        let clock = Self::at(self.time_of_day());
        if let Some(scheduler) = self.0.scheduler.get() {
            clock.set_scheduler(Arc::clone(scheduler));
        }
        let _ = clock.0.machine.set(MachineTime::new(percent, self.nanos()));
        clock
    }

    /// Returns the time of this clock at a time of its simulation.
    pub(crate) fn local_time(&self, time: Nanos) -> Nanos {
        self.0.machine.get().map_or(time, |machine| machine.local(time))
    }

    /// Returns the first time of the simulation at which this clock has reached `time`.
    pub(crate) fn simulated_time(&self, time: Nanos) -> Nanos {
        self.0.machine.get().map_or(time, |machine| machine.simulated(time))
    }

    /// Lets no task of this machine begin a turn before a time of the simulation.
    pub(crate) fn pause_until(&self, time: Nanos) {
        if let Some(machine) = self.0.machine.get() {
            machine.pause_until(time);
        }
    }

    /// Returns the time of the simulation at which the pause of this machine ends or has ended.
    pub(crate) fn paused_until(&self) -> Nanos {
        self.0.machine.get().map_or(Nanos::ZERO, MachineTime::paused_until)
    }
}
