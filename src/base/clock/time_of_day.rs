//! The time of day, and the sleep of the machine.

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

    /// Returns how long the machine of a held clock has [slept](ManualClock::suspend) so far. `None` for the system
    /// clock: only the system can tell.
    #[must_use]
    pub fn slept(&self) -> Option<Duration> {
        match &self.0 {
            ClockKind::System { .. } => None,
            ClockKind::Held(held) => Some(held.0.state.lock().suspended),
        }
    }
}

impl ManualClock {
    /// Simulates a sleep of the machine for `duration`: timers stop, but leases continue.
    ///
    /// No thread is woken, because nothing runs on a sleeping machine.
    pub fn suspend(&self, duration: Duration) {
        let mut state = self.0.state.lock();
        state.suspended = state.suspended.saturating_add(duration);
    }

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_new_time_of_day_changes_nothing_else() {
        let held = ManualClock::new();
        held.advance(Duration::from_secs(5));
        held.suspend(Duration::from_secs(7));
        let clock = held.clock();
        let before = (clock.nanos(), clock.slept());
        held.set_time_of_day(SystemTime::UNIX_EPOCH + Duration::from_secs(7200));
        assert_eq!((clock.nanos(), clock.slept()), before);
        held.advance(Duration::from_secs(1));
        assert_eq!(clock.time_of_day(), SystemTime::UNIX_EPOCH + Duration::from_secs(7201));
    }
}
