//! Limits the warnings about refused subjects. A plain value.

use std::time::Duration;

use homeostat::rt::Nanos;

/// The number of warnings in one [`WINDOW`].
const MOST_WARNINGS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Decides which refusals to log, because a program may send many messages that the server refuses.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// The text of the last warning.
    last: String,
    /// The start of the next window.
    next_window: Nanos,
    warnings: u32,
    skipped: u64,
}

impl RefusalLog {
    /// Returns whether to log this refusal: the number of refusals skipped since the last warning, or `None`. A
    /// repetition of the last warning is neither logged nor counted.
    pub(super) fn take(&mut self, text: &str, now: Nanos) -> Option<u64> {
        if self.last == text {
            return None;
        }
        if self.next_window <= now {
            self.next_window = now.after(WINDOW);
            self.warnings = 0;
        }
        if self.warnings == MOST_WARNINGS {
            self.skipped += 1;
            // The same text is not a repetition once another one came between.
            self.last.clear();
            return None;
        }
        self.warnings += 1;
        text.clone_into(&mut self.last);
        Some(std::mem::take(&mut self.skipped))
    }

    /// Starts afresh on a new connection.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Nanos {
        Nanos::ZERO.after(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_repeated_refusal_is_logged_once() {
        let mut log = RefusalLog::default();
        assert_eq!([0, 1, 5_000].map(|time| log.take("a", at(time))), [Some(0), None, None]);
        assert_eq!(log.take("b", at(5_000)), Some(0));
        assert_eq!(log.take("a", at(5_000)), Some(0));
        log.forget();
        assert_eq!(log.take("a", at(5_000)), Some(0), "a new connection");
    }

    #[test]
    fn refusals_in_turn_are_counted_instead_of_logged() {
        let mut log = RefusalLog::default();
        // Ten refusals in each millisecond.
        let refused = (0..2_000).flat_map(|time| (0..5).flat_map(move |_| ["a", "b"].map(|text| (text, at(time)))));
        let logged: Vec<_> = refused.filter_map(|(text, time)| log.take(text, time)).collect();
        assert_eq!(logged.len(), 20, "two seconds");
        assert!(logged.iter().all(|skipped| [0, 9_990].contains(skipped)), "{logged:?}");
        assert_eq!(logged[10], 9_990);
    }
}
