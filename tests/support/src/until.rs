//! The one wait of tests for other threads and processes.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// A failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two looks. Some looks advance a held clock, which must not outrun the other threads.
const PAUSE: Duration = Duration::from_millis(2);

/// The answer of a look: `true`, `Some` or `Ok` end the wait.
pub trait Answer {
    /// The value of the wait.
    type Value;

    /// Returns the value of the wait.
    ///
    /// # Errors
    ///
    /// Returns the reason to look again.
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
pub fn until<A: Answer>(what: &str, look: impl FnMut() -> A) -> A::Value {
    within(PATIENCE, what, look)
}

/// Does the same with another limit of time.
#[expect(clippy::disallowed_methods, reason = "the limit of a wait that only a failing test reaches")]
#[track_caller]
pub fn within<A: Answer>(patience: Duration, what: &str, mut look: impl FnMut() -> A) -> A::Value {
    let deadline = Instant::now() + patience;
    loop {
        match look().value() {
            Ok(value) => return value,
            Err(missing) => assert!(Instant::now() < deadline, "waited {patience:?} until {what}{missing}"),
        }
        std::thread::park_timeout(PAUSE);
    }
}

#[test]
fn a_wait_that_takes_too_long_fails_with_its_subject() {
    let wait = || within(Duration::ZERO, "the queue is empty", || Err::<(), _>("one key is left"));
    let panic = std::panic::catch_unwind(wait).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "waited 0ns until the queue is empty: one key is left");
}
