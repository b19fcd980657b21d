//! Limits the log lines that clients can cause.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat::rt::Nanos;

/// The period in which each cause gets one line.
const PERIOD: Duration = Duration::from_secs(10);
/// The largest number of lines in a period.
const MOST_LINES: usize = 20;

/// Allows one log line for each cause in 10 s, and 20 lines in total.
pub(crate) struct LogLimiter<K> {
    clock: Clock,
    state: Mutex<LogPeriod<K>>,
}

struct LogPeriod<K> {
    /// The end of the current period.
    end: Nanos,
    /// The causes that have already been logged in this period.
    logged: HashSet<K>,
    /// The number of lines omitted since the last line that was allowed.
    omitted: u64,
}

impl<K: Eq + Hash> LogLimiter<K> {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::new(LogPeriod { end: Nanos::ZERO, logged: HashSet::new(), omitted: 0 }) }
    }

    /// Returns how many lines were omitted before this one. Returns `None` if this line must be omitted too.
    pub(crate) fn allow(&self, cause: K) -> Option<u64> {
        let now = self.clock.nanos();
        let mut state = self.state.lock();
        if now >= state.end {
            state.end = now.after(PERIOD);
            state.logged.clear();
        }
        if state.logged.len() >= MOST_LINES || !state.logged.insert(cause) {
            state.omitted += 1;
            return None;
        }
        Some(std::mem::take(&mut state.omitted))
    }
}

/// Returns the suffix of a line that follows omitted ones.
pub(crate) fn omitted_lines(omitted: u64) -> String {
    if omitted == 0 { String::new() } else { format!(" ({omitted} similar lines omitted before this one)") }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat::ManualClock;

    #[test]
    fn each_cause_has_one_line_in_a_period() {
        let clock = ManualClock::new();
        let limiter = LogLimiter::new(clock.clock());
        assert_eq!(["a", "b", "a", "a"].map(|cause| limiter.allow(cause)), [Some(0), Some(0), None, None]);
        clock.advance(PERIOD);
        assert_eq!(["a", "b"].map(|cause| limiter.allow(cause)), [Some(2), Some(0)]);
        assert_eq!([omitted_lines(0).as_str(), &omitted_lines(2)], ["", " (2 similar lines omitted before this one)"]);
    }

    #[test]
    fn many_causes_have_few_lines() {
        let clock = ManualClock::new();
        let limiter = LogLimiter::new(clock.clock());
        let passed = |from: usize| (from..from + 1_000).filter_map(|cause| limiter.allow(cause)).collect::<Vec<_>>();
        assert_eq!(passed(0), [0; MOST_LINES]);
        clock.advance(PERIOD);
        assert_eq!(passed(1_000)[..2], [980, 0]);
    }
}
