//! Waits for other processes, to which a held clock does not apply.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Calls `look` until it returns a value. Panics after `patience`.
pub(crate) fn wait_for<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    look_for(patience, &mut look).unwrap_or_else(|| panic!("waited {patience:?} until {what}"))
}

/// Calls `look` until it returns a value. Returns `None` after `patience`.
#[expect(clippy::disallowed_methods, reason = "other processes know no held clock")]
pub(crate) fn look_for<T>(patience: Duration, look: &mut impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if start.elapsed() > patience {
            return None;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Waits for a while.
#[expect(clippy::disallowed_methods, reason = "other processes know no held clock")]
pub(crate) fn pause(duration: Duration) {
    sleep(duration);
}

/// Returns the number in an environment variable, or a default.
pub(crate) fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}
