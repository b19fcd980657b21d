//! Lets tests wait for other threads.

use std::time::Duration;

/// Waits until a condition holds, for at least a minute.
#[track_caller]
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("it is not so");
}
