//! The time since the start of the machine, and the time of day.
//!
//! Leases follow the first: it goes on while the machine sleeps, and timers stand still.

use std::time::{Duration, SystemTime};

use super::{Clock, ClockKind, ManualClock};
use crate::base::time::Nanos;

impl Clock {
    /// Returns the time of day. For people to read, not for calculations.
    #[must_use]
    pub fn time_of_day(&self) -> SystemTime {
        match &self.0 {
            ClockKind::System { .. } => system_time_of_day(),
            ClockKind::Held(held) => held.time_of_day(),
        }
    }

    /// Returns the time since a fixed moment, with the time that the machine has slept. For the ends of [leases](crate::run::Fence::until).
    ///
    /// Where the system does not tell how long it has slept (other systems than Linux, Android and Apple's), that time is missing.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot_nanos().since(Nanos::ZERO)
    }

    /// Returns [`boot_time`](Self::boot_time) as nanoseconds.
    pub(crate) fn boot_nanos(&self) -> Nanos {
        match &self.0 {
            ClockKind::System { .. } => since_boot().unwrap_or_else(|| self.nanos()),
            ClockKind::Held(held) => {
                let state = held.0.state.lock();
                state.now.after(state.suspended)
            }
        }
    }
}

impl ManualClock {
    /// Lets the machine sleep for `duration`: timers stand still, but leases go on.
    ///
    /// Nothing is woken, as nothing runs on a machine that sleeps.
    pub fn suspend(&self, duration: Duration) {
        let mut state = self.0.state.lock();
        state.suspended = state.suspended.saturating_add(duration);
    }
}

impl ManualClock {
    /// Sets the time of day, as an administrator or a time server does. Delays and deadlines do not change.
    pub fn set_time_of_day(&self, time_of_day: SystemTime) {
        let mut state = self.0.state.lock();
        let elapsed = state.now.since(Nanos::ZERO);
        state.time_of_day = time_of_day.checked_sub(elapsed).unwrap_or(time_of_day);
    }

    pub(super) fn time_of_day(&self) -> SystemTime {
        let state = self.0.state.lock();
        state.time_of_day.checked_add(state.now.since(Nanos::ZERO)).unwrap_or(state.time_of_day)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clock")]
fn system_time_of_day() -> SystemTime {
    SystemTime::now()
}

/// Reads the clock of the system that goes on while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Option<Nanos> {
    of_clock(rustix::time::ClockId::Boottime)
}

/// Reads the clock of the system that goes on while the machine sleeps.
#[cfg(target_vendor = "apple")]
fn since_boot() -> Option<Nanos> {
    of_clock(rustix::time::ClockId::Monotonic)
}

/// Returns `None`: the system does not tell.
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

    #[test]
    fn a_machine_that_sleeps_stops_the_clock_but_not_its_leases() {
        let held = ManualClock::new();
        let clock = held.clock();
        held.advance(Duration::from_secs(1));
        held.suspend(Duration::from_secs(3600));
        assert_eq!(clock.nanos(), Nanos::ZERO.after(Duration::from_secs(1)));
        assert_eq!(clock.boot_nanos(), Nanos::ZERO.after(Duration::from_secs(3601)));
    }

    #[test]
    fn a_new_time_of_day_changes_nothing_else() {
        let held = ManualClock::new();
        held.advance(Duration::from_secs(5));
        let clock = held.clock();
        let before = (clock.nanos(), clock.boot_nanos());
        held.set_time_of_day(SystemTime::UNIX_EPOCH + Duration::from_secs(7200));
        assert_eq!((clock.nanos(), clock.boot_nanos()), before);
        held.advance(Duration::from_secs(1));
        assert_eq!(clock.time_of_day(), SystemTime::UNIX_EPOCH + Duration::from_secs(7201));
    }

    #[test]
    fn the_time_since_the_start_of_the_machine_rises() {
        let clock = Clock::system();
        let (nanos, boot) = (clock.nanos(), clock.boot_nanos());
        while clock.nanos() == nanos {}
        assert!(clock.boot_nanos() > boot);
    }
}
