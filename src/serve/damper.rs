//! Limits the lines of a log that clients can cause.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::time::Nanos;

/// The time in which each cause has one line.
const PERIOD: Duration = Duration::from_secs(10);
/// The most lines in this time.
const MOST_LINES: usize = 20;

/// Lets one line pass for each cause in 10 s, and 20 lines in all.
pub(crate) struct Damper<K> {
    clock: Clock,
    state: Mutex<DamperState<K>>,
}

struct DamperState<K> {
    /// The end of the period.
    end: Nanos,
    /// The causes that have had their line.
    told: HashSet<K>,
    /// The lines that were left out since the last one that passed.
    missing: u64,
}

impl<K: Eq + Hash> Damper<K> {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::new(DamperState { end: Nanos::ZERO, told: HashSet::new(), missing: 0 }) }
    }

    /// Returns how many lines are missing before this one, or `None` if this one must be left out.
    pub(crate) fn pass(&self, cause: K) -> Option<u64> {
        let now = self.clock.nanos();
        let mut state = self.state.lock();
        if now >= state.end {
            state.end = now.after(PERIOD);
            state.told.clear();
        }
        if state.told.len() >= MOST_LINES || !state.told.insert(cause) {
            state.missing += 1;
            return None;
        }
        Some(std::mem::take(&mut state.missing))
    }
}

/// Returns the end of a line before which others are missing.
pub(crate) fn missing_lines(missing: u64) -> String {
    if missing == 0 { String::new() } else { format!(" ({missing} similar lines before this one are left out)") }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn each_cause_has_one_line_in_a_period() {
        let clock = ManualClock::new();
        let damper = Damper::new(clock.clock());
        assert_eq!(["a", "b", "a", "a"].map(|cause| damper.pass(cause)), [Some(0), Some(0), None, None]);
        clock.advance(PERIOD);
        assert_eq!(["a", "b"].map(|cause| damper.pass(cause)), [Some(2), Some(0)]);
        assert_eq!(
            [missing_lines(0).as_str(), &missing_lines(2)],
            ["", " (2 similar lines before this one are left out)"]
        );
    }

    #[test]
    fn many_causes_have_few_lines() {
        let clock = ManualClock::new();
        let damper = Damper::new(clock.clock());
        let passed = |from: usize| (from..from + 1_000).filter_map(|cause| damper.pass(cause)).collect::<Vec<_>>();
        assert_eq!(passed(0), [0; MOST_LINES]);
        clock.advance(PERIOD);
        assert_eq!(passed(1_000)[..2], [980, 0]);
    }
}
