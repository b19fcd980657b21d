//! Errors with a meaning for the run loop that stay recognizable below a wrapper that hides their types.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::BoxError;
use super::time::Rounded;

/// A copy of an error, which the error returns as its first source.
///
/// A wrapper may hide the type of its error and show only the sources, as a boxed `anyhow::Error` does. The run loop
/// then finds the copy among the sources. [`find`](crate::rt::find) finds it, and [`Chain`](crate::rt::Chain)
/// omits it.
///
/// # Examples
///
/// ```
/// use homeostat::rt::{Echo, find};
/// use std::error::Error;
/// use std::fmt;
///
/// #[derive(Debug)]
/// struct Busy;
///
/// impl fmt::Display for Busy {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("the disk is busy")
///     }
/// }
///
/// static AGAIN: Echo = Echo::fixed(&Busy, "retry later");
///
/// impl Error for Busy {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         Some(&AGAIN)
///     }
/// }
///
/// let error = anyhow::Error::new(Busy).into_boxed_dyn_error(); // hides its type
/// assert!(find::<Busy>(&*error).is_some());
/// ```
pub struct Echo {
    error: Echoed,
    /// The text in a chain of sources. [`Chain`](crate::rt::Chain) omits it.
    text: &'static str,
}

enum Echoed {
    Own(BoxError),
    Fixed(&'static (dyn Error + Send + Sync)),
}

impl Echo {
    /// Creates an echo. `again` is the same error without an echo. `text` is its text in a chain of sources.
    pub fn of(again: impl Into<BoxError>, text: &'static str) -> Self {
        Self { error: Echoed::Own(again.into()), text }
    }

    /// Creates an echo of an error without a state.
    #[must_use]
    pub const fn fixed(error: &'static (dyn Error + Send + Sync), text: &'static str) -> Self {
        Self { error: Echoed::Fixed(error), text }
    }

    fn error(&self) -> &(dyn Error + 'static) {
        match &self.error {
            Echoed::Own(error) => &**error,
            Echoed::Fixed(error) => *error,
        }
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl Error for Echo {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.error {
            Echoed::Own(error) => error.source(),
            // The fixed error has this echo as its source.
            Echoed::Fixed(_) => None,
        }
    }
}

/// The error inside a [`Terminal`](crate::run::Terminal), a [`Muted`](crate::run::Muted) or a similar mark. A mark is
/// an error type around this, which [`find`](crate::rt::find) finds even if a wrapper hides its type.
///
/// # Examples
///
/// ```
/// use homeostat::rt::{Mark, find};
/// use std::error::Error;
/// use std::fmt;
///
/// /// An error that somebody must see.
/// #[derive(Debug)]
/// struct Urgent(Mark);
///
/// impl fmt::Display for Urgent {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         self.0.fmt(f)
///     }
/// }
///
/// impl Error for Urgent {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         self.0.source()
///     }
/// }
///
/// let error = Mark::set("the disk is full".into(), "urgent error", Urgent);
/// let error = anyhow::Error::new(error).into_boxed_dyn_error(); // hides its type
/// assert_eq!(find::<Urgent>(&*error).unwrap().to_string(), "the disk is full");
/// ```
#[derive(Debug)]
pub struct Mark {
    pub(crate) error: Arc<BoxError>,
    pub(crate) echo: Option<Echo>,
}

impl Mark {
    /// Marks `error` with `mark`. `text` is the text of the [`Echo`].
    pub fn set<T: Error + Send + Sync + 'static>(error: BoxError, text: &'static str, mark: fn(Self) -> T) -> T {
        let error = Arc::new(error);
        let again = mark(Self { error: Arc::clone(&error), echo: None });
        mark(Self { error, echo: Some(Echo::of(again, text)) })
    }

    /// Returns the marked error.
    #[must_use]
    pub fn error(&self) -> &(dyn Error + 'static) {
        &**self.error
    }

    /// Returns what the `source` of the mark must return.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.echo {
            Some(echo) => Some(echo),
            None => self.error.source(),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Returns the error, or the error that it echoes, if that has type `T`.
pub(crate) fn as_a<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    error.downcast_ref().or_else(|| error.downcast_ref::<Echo>()?.error().downcast_ref())
}

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
