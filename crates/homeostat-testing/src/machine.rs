//! Machines of a simulation.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::rate::MachineTime;
use homeostat::base::{Clock, ManualClock};

/// A machine of a [`Simulation`](super::Simulation), with its own clock. Cheap to clone.
///
/// The clocks of two machines differ in their rate and their time of day, as on real machines. Pass
/// [`clock`](Self::clock) to all components of a process on this machine.
///
/// # Examples
///
/// ```
/// use homeostat_testing::Simulation;
/// use std::time::Duration;
///
/// let sim = Simulation::new(1);
/// let (slow, fast) = (sim.machine(80), sim.machine(120));
/// let begin = (slow.clock().now(), fast.clock().now());
/// sim.run_for(Duration::from_secs(10));
/// assert_eq!(slow.clock().now() - begin.0, Duration::from_secs(8));
/// assert_eq!(fast.clock().now() - begin.1, Duration::from_secs(12));
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    pub(super) clock: ManualClock,
    pub(super) time: Arc<MachineTime>,
    /// The clock of the simulation.
    pub(super) simulation: ManualClock,
}

impl SimulatedMachine {
    /// Returns the clock for the components on this machine.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clock()
    }

    /// Sets the time of day of this machine, as an administrator or a time server does. Delays and deadlines do not
    /// change.
    pub fn set_time_of_day(&self, time_of_day: SystemTime) {
        self.clock.set_time_of_day(time_of_day);
    }

    /// Pauses the processes on this machine for `duration`, measured by the clock of the simulation, as the signal
    /// `SIGSTOP` does.
    ///
    /// The clock of the machine keeps running, but no task begins a turn until the pause ends. A turn that is in
    /// progress pauses at its next wait by the clock of the machine. If another pause ends later, it stays in effect.
    pub fn pause(&self, duration: Duration) {
        self.time.pause_until(self.simulation.nanos().after(duration));
    }
}
