//! An error that sets the shortest delay before a retry.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::time::Rounded;

/// An error that states the shortest delay before a retry, alone or as the source of another error.
///
/// A server may ask for such a delay, for example with the HTTP header `Retry-After`. The run that returns the error
/// has failed: the [`RetryPolicy`](crate::RetryPolicy) decides, and a shorter delay is raised to this one. A change
/// still enqueues the key at once. The error is recognized anywhere in the chain of sources, even at the root of an
/// `anyhow::Error`.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, run::RetryAfter};
/// use std::time::Duration;
///
/// fn reconcile(_cx: &Context, port: &String) -> Result<Action, BoxError> {
///     if switch_is_busy(port) {
///         return Err(RetryAfter::new(Duration::from_secs(5)).into());
///     }
///     Ok(Action::await_change())
/// }
/// # fn switch_is_busy(_: &str) -> bool { true }
/// # let error = reconcile(&Context::detached(), &"eth0".to_owned()).unwrap_err();
/// # assert_eq!(error.downcast_ref::<RetryAfter>().unwrap().delay(), Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryAfter(Stated);

impl RetryAfter {
    /// Creates an error that asks for at least this delay.
    #[must_use]
    pub const fn new(delay: Duration) -> Self {
        Self(Stated(delay))
    }

    /// Returns the delay.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        self.0.0
    }
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "retry after {}", Rounded(self.delay()))
    }
}

impl Error for RetryAfter {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// The delay of a [`RetryAfter`], as its own source. A boxed `anyhow::Error` hides the type of its root, but shows its
/// sources.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stated(pub(crate) Duration);

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a delay is stated")
    }
}

impl Error for Stated {}
