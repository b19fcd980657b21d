//! Waits for other processes, to which a held clock does not apply.

use std::thread::sleep;
use std::time::Duration;

/// Waits for a while.
#[expect(clippy::disallowed_methods, reason = "other processes know no held clock")]
pub(crate) fn pause(duration: Duration) {
    sleep(duration);
}

/// Returns the number in an environment variable, or a default.
pub(crate) fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}
