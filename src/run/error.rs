//! Errors with a meaning for the run loop.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::mark::{Echo, Mark, RetryAfter, Stated, as_a};

pub(crate) use crate::base::chain::Chain;
pub use crate::base::error::BoxError;

/// An error that requests another run and is not a failure. Logged at level info.
///
/// It is recognized anywhere in the chain of sources of a reconciler's error, unless the chain contains a [`Terminal`].
///
/// - `Box<dyn Error + Send + Sync>`: recognized, whether boxed by `?` or as a source.
/// - Custom error types: return it from `source()`, or use `#[source]`, `#[from]` or `#[error(transparent)]`.
/// - `anyhow::Error`: recognized as the error itself (`ready(vm)?`) and below `context(…)`, at any depth. Not
///   recognized when attached *as* context (`error.context(RequeueAfter …)`), because a context is not a source.
///
/// Its `source()` repeats the request as "requeue requested". This makes it recognizable below a wrapper that hides its
/// type: a boxed `anyhow::Error` hides the type of the outermost error, but shows its sources. [`Terminal`], [`Muted`]
/// and [`Cancelled`] do the same.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, RequeueAfter};
/// use std::time::Duration;
///
/// fn ready(vm: &str) -> Result<(), RequeueAfter> {
///     Err(RequeueAfter::new(Duration::from_secs(5), format!("{vm} still boots")))
/// }
///
/// fn reconcile(_cx: &Context, vm: &String) -> Result<Action, BoxError> {
///     ready(vm)?;
///     Ok(Action::await_change())
/// }
/// # let error = reconcile(&Context::detached(), &"vm-1".to_owned()).unwrap_err();
/// # assert_eq!(RequeueAfter::find(&*error).unwrap().after(), Duration::from_secs(5));
/// ```
#[derive(Clone)]
pub struct RequeueAfter {
    after: Duration,
    reason: String,
    echo: Option<Arc<Echo>>,
}

impl RequeueAfter {
    /// Requests another run after `after`, because of `reason`.
    pub fn new(after: Duration, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let again = Self { after, reason: reason.clone(), echo: None };
        Self { after, reason, echo: Some(Arc::new(Echo::of(again, "requeue requested"))) }
    }

    /// Returns the time until the next run.
    #[must_use]
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the first `RequeueAfter` in `error` and its chain of sources.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }
}

impl PartialEq for RequeueAfter {
    fn eq(&self, other: &Self) -> bool {
        (self.after, &self.reason) == (other.after, &other.reason)
    }
}

impl Eq for RequeueAfter {}

impl fmt::Display for RequeueAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "requeue after {:?}: {}", self.after, self.reason)
    }
}

impl Error for RequeueAfter {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.echo.as_deref().map(|echo| echo as _)
    }
}

/// An error that a retry cannot fix. The key runs again only when it is enqueued.
///
/// Created by [`terminal`]. No policy is asked. Like [`RequeueAfter`], recognized anywhere in the chain of sources.
pub struct Terminal(Mark);

/// Marks an error that a retry cannot fix.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, terminal};
///
/// fn reconcile(_cx: &Context, port: &String) -> Result<Action, BoxError> {
///     let port: u16 = port.parse().map_err(terminal)?;
///     if port == 0 {
///         return Err(terminal("port 0 cannot be opened").into());
///     }
///     Ok(Action::await_change())
/// }
/// # let error = reconcile(&Context::detached(), &"http".to_owned()).unwrap_err();
/// # assert_eq!(error.to_string(), "invalid digit found in string");
/// ```
pub fn terminal(error: impl Into<BoxError>) -> Terminal {
    Mark::set(error.into(), "terminal error", Terminal)
}

impl Terminal {
    /// Returns the marked error.
    #[must_use]
    pub fn error(&self) -> &(dyn Error + 'static) {
        self.0.error()
    }

    /// Returns the first `Terminal` in `error` and its chain of sources.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }
}

impl fmt::Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Terminal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// An error with quiet retries: they are logged at level debug only.
///
/// Created by [`muted`], and recognized anywhere in the chain of sources. The [`RetryPolicy`](crate::RetryPolicy)
/// decides as for any error. An error that is not retried is logged normally, and a marked [`Terminal`] too.
pub struct Muted(Mark);

/// Marks an error, so that its retries are logged at level debug only.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context};
/// use homeostat::run::muted;
///
/// fn reconcile(cx: &Context, vm: &String) -> Result<Action, BoxError> {
///     match ping(vm) {
///         // Now and then one gets lost.
///         Err(error) if cx.attempt() < 3 => Err(muted(error).into()),
///         other => Ok(other.map(|()| Action::await_change())?),
///     }
/// }
/// # fn ping(_: &str) -> Result<(), std::io::Error> { Err(std::io::ErrorKind::TimedOut.into()) }
/// # assert_eq!(reconcile(&Context::detached(), &"vm-1".to_owned()).unwrap_err().to_string(), "timed out");
/// ```
pub fn muted(error: impl Into<BoxError>) -> Muted {
    Mark::set(error.into(), "muted error", Muted)
}

impl Muted {
    /// Returns the first `Muted` in `error` and its chain of sources.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }

    /// Returns the marked error, or `error` itself if it is no mark. Looks through a wrapper that hides its type.
    pub(crate) fn unwrap<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
        let hidden = || error.source().filter(|source| source.is::<Echo>());
        let muted = as_a::<Self>(error).or_else(|| as_a::<Self>(hidden()?));
        muted.map_or(error, |muted| muted.0.error())
    }

    /// Returns the marked error.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        let Mark { error, echo } = self.0;
        // Only the echo shares the error, so this drop leaves one owner.
        drop(echo);
        Arc::try_unwrap(error).unwrap_or_else(|error| Self(Mark { error, echo: None }).into())
    }
}

impl fmt::Display for Muted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Muted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The error of a cancelled run. [`Context::check`](crate::Context::check) and
/// [`Context::sleep`](crate::Context::sleep) return it. Pass it on with `?`.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
/// use homeostat::run::Cancelled;
/// use std::time::Duration;
///
/// fn wait_for_boot(cx: &Context) -> Result<(), Cancelled> {
///     cx.sleep(Duration::from_millis(1))
/// }
/// # assert_eq!(wait_for_boot(&Context::detached()), Ok(()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cancelled {
    /// The workers were aborted, possibly after the grace period of a shutdown. A run that returns this has not failed:
    /// its key returns to the queue with its failures and reasons.
    Aborted,
    /// The deadline of the run has passed.
    DeadlineExceeded,
    /// This process has lost its leadership or its membership of the group. A run that returns this has not failed.
    TermEnded,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "the run was aborted",
            Self::DeadlineExceeded => "the deadline of the run has passed",
            Self::TermEnded => "this process lost its leadership or membership",
        })
    }
}

impl Error for Cancelled {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Aborted => const { &Echo::fixed(&Self::Aborted, "the run was cancelled") },
            Self::DeadlineExceeded => const { &Echo::fixed(&Self::DeadlineExceeded, "the run was cancelled") },
            Self::TermEnded => const { &Echo::fixed(&Self::TermEnded, "the run was cancelled") },
        })
    }
}

/// The error that a [`RetryPolicy`](crate::RetryPolicy) receives for a panic of the reconciler.
#[derive(Clone, PartialEq, Eq)]
pub struct Panicked {
    message: String,
}

impl Panicked {
    pub(crate) fn new(message: &str) -> Self {
        Self { message: message.to_owned() }
    }

    /// Returns the panic message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reconciler panicked: {}", self.message)
    }
}

impl Error for Panicked {}

crate::base::chain::debug_with_causes!(RequeueAfter, Terminal, Muted, Cancelled, Panicked);

/// Returns the first error of type `T` in the chain of sources of `error`, including errors marked by [`muted`].
///
/// # Examples
///
/// ```
/// use homeostat::{BoxError, rt, run::muted};
///
/// let error: BoxError = muted(std::fmt::Error).into();
/// assert_eq!(rt::find(&*error), Some(&std::fmt::Error));
/// ```
#[must_use]
pub fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| match as_a(error) {
        Some(Muted(mark)) => Some(mark.error()),
        None => error.source(),
    })
    .find_map(as_a)
}

impl RetryAfter {
    /// Returns the first `RetryAfter` in `error` and its chain of sources.
    #[must_use]
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        find::<Self>(error).copied().or_else(|| find::<Stated>(error).map(|stated| Self::new(stated.0)))
    }
}
