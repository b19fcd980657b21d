//! The one wait of tests for other threads and processes. Each test crate includes this file.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// A failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two looks. Some looks advance a held clock, which must not outrun the other threads.
const PAUSE: Duration = Duration::from_millis(2);

/// The answer of a look: `true`, `Some` or `Ok` end the wait.
pub(crate) trait Answer {
    type Value;

    /// Returns the value of the wait, or the reason to look again.
    fn value(self) -> Result<Self::Value, String>;
}

impl Answer for bool {
    type Value = ();

    fn value(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Answer for Result<T, E> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.map_err(|error| format!(": {error}"))
    }
}

/// Calls `look` until its answer ends the wait, and returns its value.
///
/// After a minute, panics with `what` and the last answer.
#[track_caller]
pub(crate) fn until<A: Answer>(what: &str, look: impl FnMut() -> A) -> A::Value {
    within(PATIENCE, what, look)
}

/// Does the same with another limit of time.
#[expect(clippy::disallowed_methods, reason = "the limit of a wait that only a failing test reaches")]
#[track_caller]
pub(crate) fn within<A: Answer>(patience: Duration, what: &str, mut look: impl FnMut() -> A) -> A::Value {
    let deadline = Instant::now() + patience;
    loop {
        match look().value() {
            Ok(value) => return value,
            Err(missing) => assert!(Instant::now() < deadline, "waited {patience:?} until {what}{missing}"),
        }
        std::thread::park_timeout(PAUSE);
    }
}
