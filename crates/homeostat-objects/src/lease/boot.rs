//! The time since the start of the machine. Leases follow it, because it also passes while the machine sleeps. Timers
//! stand still during the sleep.

use std::time::Duration;

use homeostat::base::Clock;
use homeostat::rt::Nanos;

/// Returns the time since a fixed moment, including the time that the machine has slept.
///
/// On systems other than Linux, Android and Apple's, the time that the machine has slept is missing.
pub(crate) fn boot_nanos(clock: &Clock) -> Nanos {
    match clock.slept() {
        Some(slept) => clock.nanos().after(slept),
        None => since_boot().unwrap_or_else(|| clock.nanos()),
    }
}

/// Reads the clock of the system that counts the sleep of the machine.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Option<Nanos> {
    of_clock(rustix::time::ClockId::Boottime)
}

/// Reads the clock of the system that counts the sleep of the machine.
#[cfg(target_vendor = "apple")]
fn since_boot() -> Option<Nanos> {
    of_clock(rustix::time::ClockId::Monotonic)
}

/// Returns `None`, because the system has no such clock.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn since_boot() -> Option<Nanos> {
    None
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn of_clock(clock: rustix::time::ClockId) -> Option<Nanos> {
    Duration::try_from(rustix::time::clock_gettime(clock)).ok().map(|time| Nanos::ZERO.after(time))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat::base::ManualClock;

    #[test]
    fn a_machine_that_sleeps_stops_the_clock_but_not_its_leases() {
        let held = ManualClock::new();
        let clock = held.clock();
        held.advance(Duration::from_secs(1));
        held.suspend(Duration::from_secs(3600));
        assert_eq!(clock.nanos(), Nanos::ZERO.after(Duration::from_secs(1)));
        assert_eq!(boot_nanos(&clock), Nanos::ZERO.after(Duration::from_secs(3601)));
    }

    #[test]
    fn the_time_since_the_start_of_the_machine_rises() {
        let clock = Clock::system();
        let (nanos, boot) = (clock.nanos(), boot_nanos(&clock));
        while clock.nanos() == nanos {}
        assert!(boot_nanos(&clock) > boot);
    }
}
