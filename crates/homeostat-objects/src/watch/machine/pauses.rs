//! The pauses between the attempts of a watch.

use std::time::Duration;

use homeostat::base::Exponential;
use homeostat::rt::{Draws, Nanos};

/// How many short streams with changes are reopened without a pause.
const SHORT_STREAMS: u32 = 8;
/// The longest pause that a server can ask for.
const LONGEST_DELAY: Duration = Duration::from_secs(600);

/// The pauses between attempts: they grow until an attempt makes progress.
///
/// Only changes count as progress. If bookmarks counted, a stream that ends after each bookmark would be reopened
/// without a pause. A stream that outlasts its pause also counts.
pub(super) struct Pauses {
    backoff: Exponential,
    draws: Draws,
    /// Attempts since the last progress.
    failures: u32,
    /// Short streams with changes in a row.
    short_streams: u32,
    until: Nanos,
}

/// An attempt that has ended.
pub(super) struct EndedAttempt {
    /// How long its stream lasted.
    pub(super) lasted: Duration,
    /// Whether its stream had a change.
    pub(super) has_changed: bool,
    pub(super) has_failed: bool,
    /// The delay that the server asks for.
    pub(super) asked: Duration,
}

impl Pauses {
    pub(super) fn new(backoff: Exponential, draws: Draws) -> Self {
        Self { backoff, draws, failures: 0, short_streams: 0, until: Nanos::ZERO }
    }

    /// Returns the end of the current pause. `None` outside a pause.
    pub(super) fn end(&self, now: Nanos) -> Option<Nanos> {
        Some(self.until).filter(|until| now < *until)
    }

    /// Begins the pause after an attempt.
    pub(super) fn begin(&mut self, now: Nanos, attempt: &EndedAttempt) {
        self.until = now.after(self.after(attempt));
    }

    fn after(&mut self, attempt: &EndedAttempt) -> Duration {
        let shortest = self.backoff.first_step();
        if attempt.has_changed {
            self.failures = 0;
            self.short_streams = if attempt.lasted < shortest { self.short_streams.saturating_add(1) } else { 0 };
        } else {
            self.failures = self.failures.saturating_add(1);
            if attempt.lasted >= self.backoff.delay(self.failures) {
                self.failures = u32::from(attempt.has_failed);
            }
        }
        let pause = match self.failures {
            0 if self.short_streams > SHORT_STREAMS => shortest,
            0 => Duration::ZERO,
            failures => self.backoff.jittered(failures, self.draws.draw()),
        };
        pause.max(attempt.asked.min(LONGEST_DELAY))
    }
}
