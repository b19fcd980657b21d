//! Errors with a meaning: ask for another run, give up, stop because one was told to.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Any error that can cross threads.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// "Not yet": asks for another run, through `?`. Logged at level info; not a failure.
///
/// It is found anywhere in the chain of sources of the error that a reconciler returns, unless that chain has a [`Terminal`].
///
/// - `Box<dyn Error + Send + Sync>`: found, boxed by `?` or as a source.
/// - An error type of one's own: return it from `source()`, or mark the field `#[source]` or `#[from]`.
/// - `anyhow::Error`: found under `context(…)`, at any depth. **Not found where it is the error itself** (`ready(vm)?` and
///   nothing more): boxing an `anyhow::Error` hides the type of the outermost error. Give it a context, or pass it through
///   `map_err(anyhow::Error::reallocate_into_boxed_dyn_error_without_backtrace)`. What is attached *as* context
///   (`error.context(RequeueAfter …)`) is not a source and is not found.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequeueAfter {
    after: Duration,
    reason: String,
}

impl RequeueAfter {
    /// Another run `after` from now, because of `reason`.
    pub fn new(after: Duration, reason: impl Into<String>) -> Self {
        Self { after, reason: reason.into() }
    }

    /// How long from now.
    #[must_use]
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The first one in `error` and its chain of sources.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }
}

impl fmt::Display for RequeueAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "requeue after {:?}: {}", self.after, self.reason)
    }
}

impl Error for RequeueAfter {}

/// An error that no further try will mend: the key is not retried, whatever the policy, until a feeder names it again.
/// Made by [`terminal`]; found anywhere in the chain of sources, and whatever it marks. As for `anyhow`, see
/// [`RequeueAfter`].
#[derive(Debug)]
pub struct Terminal(pub(crate) BoxError);

/// Marks an error as one that no further try will mend.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, terminal};
///
/// fn reconcile(_cx: &Context, port: &String) -> Result<Action, BoxError> {
///     let port: u16 = port.parse().map_err(terminal)?;
///     # let _ = port;
///     Ok(Action::await_change())
/// }
/// # let error = reconcile(&Context::detached(), &"http".to_owned()).unwrap_err();
/// # assert_eq!(error.to_string(), "invalid digit found in string");
/// ```
pub fn terminal(error: impl Into<BoxError>) -> Terminal {
    Terminal(error.into())
}

impl Terminal {
    /// The first one in `error` and its chain of sources.
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

/// An error that is retried without noise: the log has it at level debug, and what follows is the
/// [`RetryPolicy`](crate::RetryPolicy)'s decision, as if it were not marked. Made by [`muted`]; found anywhere in the chain of
/// sources. One that is not retried after all is logged as any other; so is a [`Terminal`] that is marked.
#[derive(Debug)]
pub struct Muted(pub(crate) BoxError);

/// Marks an error as one that is retried without noise.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, muted};
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
    Muted(error.into())
}

impl Muted {
    /// The first one in `error` and its chain of sources.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }

    /// What `error` marks, if it is one.
    pub(crate) fn unwrap<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
        error.downcast_ref::<Self>().map_or(error, |Self(error)| &**error)
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

/// The run was told to stop. What [`Context::check`](crate::Context::check) and [`Context::sleep`](crate::Context::sleep)
/// return, to be passed on with `?`.
///
/// # Examples
///
/// ```
/// use homeostat::{Cancelled, Context};
/// use std::time::Duration;
///
/// fn wait_for_boot(cx: &Context) -> Result<(), Cancelled> {
///     cx.sleep(Duration::from_millis(1))
/// }
/// # assert_eq!(wait_for_boot(&Context::detached()), Ok(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cancelled {
    /// The workers are being stopped, and the grace period is over. A run that ends with this then has not failed: its key
    /// goes back to the queue, in line, with its failures and its reasons.
    Aborted,
    /// The deadline of the run has passed.
    DeadlineExceeded,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "the run was aborted",
            Self::DeadlineExceeded => "the deadline of the run has passed",
        })
    }
}

impl Error for Cancelled {}

/// The reconciler panicked: how a [`RetryPolicy`](crate::RetryPolicy) sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    message: String,
}

impl Panicked {
    pub(crate) fn new(message: &str) -> Self {
        Self { message: message.to_owned() }
    }

    /// The text of the panic.
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

/// The first error of type `T` in the chain. What a [`Muted`] marks is part of it.
pub(crate) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref() {
        Some(Muted(marked)) => Some(&**marked),
        None => error.source(),
    })
    .find_map(|error| error.downcast_ref())
}

/// An error with all its sources, in one line. That line is for the log, so an error whose own code panics is not shown, and
/// changes nothing else.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl Chain<'_> {
    fn write(&self, text: &mut String) -> fmt::Result {
        write!(text, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(text, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        match catch_unwind(AssertUnwindSafe(|| self.write(&mut text))) {
            Ok(written) => written?,
            Err(panic) => {
                // Dropping it may panic again.
                std::mem::forget(panic);
                text.push_str("(an error that panics when shown)");
            }
        }
        f.write_str(&text)
    }
}
