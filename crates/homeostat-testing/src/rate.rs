//! The time of a machine as a rate of the simulation's time.

use crate::sync::Mutex;
use homeostat::rt::Nanos;

/// The relation between the clock of a machine and the clock of its simulation.
#[derive(Debug)]
pub(super) struct MachineTime {
    percent: u32,
    /// The time of the simulation at which the clock of the machine began.
    begin: Nanos,
    /// The time of the simulation until which no task of the machine takes a turn.
    paused_until: Mutex<Nanos>,
}

impl MachineTime {
    pub(super) fn new(percent: u32, begin: Nanos) -> Self {
        Self { percent, begin, paused_until: Mutex::new(Nanos::ZERO) }
    }

    /// Returns the time of the machine at a time of the simulation.
    pub(super) fn local(&self, time: Nanos) -> Nanos {
        let elapsed = u128::from(time.0.saturating_sub(self.begin.0));
        below_never(time, elapsed * u128::from(self.percent) / 100)
    }

    /// Returns the first time of the simulation at which the machine has reached `time`.
    pub(super) fn simulated(&self, time: Nanos) -> Nanos {
        let elapsed = (u128::from(time.0) * 100).div_ceil(u128::from(self.percent.max(1)));
        below_never(time, u128::from(self.begin.0) + elapsed)
    }

    /// Prolongs the pause until a time of the simulation, unless it lasts longer.
    pub(super) fn pause_until(&self, time: Nanos) {
        let mut paused_until = self.paused_until.lock();
        *paused_until = time.max(*paused_until);
    }

    pub(super) fn paused_until(&self) -> Nanos {
        *self.paused_until.lock()
    }
}

/// Returns `nanos` as a time that is never only if `time` is.
fn below_never(time: Nanos, nanos: u128) -> Nanos {
    match time {
        Nanos::NEVER => Nanos::NEVER,
        _ => Nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX - 1)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reaches_a_local_time_at_its_simulated_time_and_not_before() {
        for percent in [1, 50, 80, 99, 100, 101, 120, 250] {
            let machine = MachineTime::new(percent, Nanos(7));
            assert_eq!(machine.local(Nanos(7)), Nanos::ZERO);
            for local in 1..1_000 {
                let simulated = machine.simulated(Nanos(local));
                assert!(machine.local(simulated) >= Nanos(local), "{percent} % {local}");
                assert!(machine.local(Nanos(simulated.0 - 1)) < Nanos(local), "{percent} % {local}");
            }
        }
    }

    #[test]
    fn no_time_but_never_becomes_never() {
        for percent in [50, 120] {
            let machine = MachineTime::new(percent, Nanos(7));
            for time in [Nanos(u64::MAX - 1), Nanos(u64::MAX / 2)] {
                assert!(machine.local(time) < Nanos::NEVER && machine.simulated(time) < Nanos::NEVER);
            }
            assert_eq!((machine.local(Nanos::NEVER), machine.simulated(Nanos::NEVER)), (Nanos::NEVER, Nanos::NEVER));
        }
    }
}
