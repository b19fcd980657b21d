//! The reconciler, its result, and the policies for its failures.

use std::error::Error;
use std::time::Duration;

use super::context::Context;
use super::error::BoxError;
use crate::base::backoff::Exponential;

/// Brings the actual state of one key to its desired state.
///
/// A reconciler receives a key, never a change. It compares the desired state with the actual state, and removes the
/// difference. It is called at least once for each change, and may be called without a change, so it must be
/// idempotent. Two threads never reconcile the same key at the same time, but may reconcile different keys: the
/// reconciler is shared by reference.
///
/// A closure is a reconciler. Its parameter types and its return type must be written out:
///
/// ```
/// use homeostat::{Action, Context, Reconciler};
/// use std::time::Duration;
///
/// let reconciler = |_cx: &Context, vm: &String| -> Result<Action, std::io::Error> {
///     println!("{vm} is as it should be");
///     Ok(Action::requeue_after(Duration::from_secs(60)))
/// };
/// # fn assert(_: impl Reconciler<String>) {}
/// # assert(reconciler);
/// ```
///
/// # Errors of the compiler
///
/// | `rustc` reports | write |
/// |---|---|
/// | E0282 or E0283 at an `Ok`: the type of the error is unknown | `-> Result<Action, BoxError>`, or in a listing `Ok::<_, BoxError>(…)` |
/// | the closure is *not general enough* | the types of the parameters: `cx: &Context, key: &String` |
/// | E0277: `str: Clone` is not satisfied | for keys of the type `&'static str`, `key: &&'static str` |
/// | E0525: the closure is `FnMut` | state in a `Mutex` or an atomic, because several threads call the closure |
/// | E0277: a value *cannot be shared between threads safely* | the same, in place of a `Cell` or `RefCell`; `Arc` in place of `Rc` |
/// | E0382: the controller was moved by `add` | `let handle = controller.handle();` before `add` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a reconciler of keys of type `{K}`",
    label = "not a reconciler of `{K}`",
    note = "a closure needs the types of its parameters written out, `|cx: &Context, key: &{K}|`, and returns `Result<Action, E>` with `E: Into<BoxError>`",
    note = "it is shared by threads: what it captures must be `Send + Sync + 'static`"
)]
#[doc(alias = "reconcile")]
#[doc(alias = "control loop")]
pub trait Reconciler<K>: Send + Sync {
    /// The error of a failed run. [`RequeueAfter`](crate::RequeueAfter) and [`Terminal`](crate::run::Terminal) are
    /// recognized in the error and in its chain of sources.
    type Error: Into<BoxError>;

    /// Reconciles one key.
    ///
    /// # Errors
    ///
    /// Returns an error if the desired state was not reached. The [`RetryPolicy`] decides whether
    /// the key is retried.
    ///
    /// # Panics
    ///
    /// A panic is caught, logged and handled as an error, unless the program is built with `panic = "abort"`.
    fn reconcile(&self, cx: &Context, key: &K) -> Result<Action, Self::Error>;
}

impl<K, E, F> Reconciler<K> for F
where
    F: Fn(&Context, &K) -> Result<Action, E> + Send + Sync,
    E: Into<BoxError>,
{
    type Error = E;

    fn reconcile(&self, cx: &Context, key: &K) -> Result<Action, E> {
        self(cx, key)
    }
}

/// The result of a successful run.
///
/// The [guide](crate::guide::errors#when-the-key-runs-again) compares the actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Action(pub(crate) Follow);

/// The next run after an [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    Nothing,
    Requeue(Duration),
    Retry(Duration),
}

impl Action {
    /// Requests no further run. The key runs again when it is enqueued.
    #[doc(alias = "done")]
    pub const fn await_change() -> Self {
        Self(Follow::Nothing)
    }

    /// Requests another run after `delay`. `enqueue` does not shorten the delay, `enqueue_now` ends it. Zero enqueues
    /// the key at the end of its queue.
    ///
    /// The delay has no jitter. Keys that were enqueued together and ask for the same delay run together again. To
    /// spread them, add a random part to the delay.
    #[doc(alias = "requeue")]
    pub const fn requeue_after(delay: Duration) -> Self {
        Self(Follow::Requeue(delay))
    }

    /// Retries the key after `delay`, because this run could not finish although nothing is wrong.
    ///
    /// For example, another writer was faster. As after a failure, [`wait`](crate::ControllerHandle::wait) continues to
    /// wait and [`Context::attempt`] rises. Unlike a failure, the run counts as a requeue, and is logged at level
    /// *debug* at most.
    ///
    /// Return an error after a few such runs in a row, so that a lasting cause becomes visible:
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context};
    /// use std::time::Duration;
    ///
    /// # fn write(_key: &str) -> Result<(), &'static str> { Err("the object has changed") }
    /// fn reconcile(cx: &Context, key: &&str) -> Result<Action, BoxError> {
    ///     match write(key) {
    ///         Err(_changed) if cx.attempt() <= 5 => Ok(Action::retry_after(Duration::from_millis(100))),
    ///         other => Ok(other.map(|()| Action::await_change())?),
    ///     }
    /// }
    /// # assert_eq!(reconcile(&Context::detached(), &"vm-1").unwrap(), Action::retry_after(Duration::from_millis(100)));
    /// ```
    pub const fn retry_after(delay: Duration) -> Self {
        Self(Follow::Retry(delay))
    }
}

/// A failed run, as passed to a [`RetryPolicy`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FailedRun<'a, K> {
    /// The key.
    pub key: &'a K,
    /// The number of failed runs of the key in a row, including this one. A run that a request brought forward from a
    /// backoff does not count.
    pub failures: u32,
    /// The error; [`Panicked`](crate::run::Panicked) if the reconciler panicked.
    pub error: &'a (dyn Error + 'static),
    /// A random number, for jitter.
    pub random: u64,
}

/// Decides whether and when a failed key is retried. Not called for [`RequeueAfter`](crate::RequeueAfter) and
/// [`Terminal`](crate::run::Terminal) errors.
///
/// # Examples
///
/// ```
/// use homeostat::RetryPolicy;
/// use homeostat::run::FailedRun;
/// use std::{io, time::Duration};
///
/// /// Retries timeouts only.
/// struct TimedOutOnly;
///
/// impl<K> RetryPolicy<K> for TimedOutOnly {
///     fn decide(&self, failure: &FailedRun<'_, K>) -> Option<Duration> {
///         match failure.error.downcast_ref::<io::Error>() {
///             Some(error) if error.kind() == io::ErrorKind::TimedOut => Some(Duration::from_secs(1)),
///             _ => None,
///         }
///     }
/// }
/// ```
#[doc(alias = "error_policy")]
#[doc(alias = "rate limiter")]
#[diagnostic::on_unimplemented(note = "a closure is not a policy: implement `RetryPolicy<{K}>` for a type")]
pub trait RetryPolicy<K>: Send + Sync {
    /// Returns the time until the retry. `None` parks the key: it runs again when it is enqueued.
    ///
    /// Called on the worker's thread, outside any lock.
    fn decide(&self, failure: &FailedRun<'_, K>) -> Option<Duration>;

    /// Returns the shortest backoff. Default: zero.
    ///
    /// A change shortens a longer backoff to this, so that a reconciler that fails and changes its own sources does not
    /// spin. Called once, when a controller is built.
    fn floor(&self) -> Duration {
        Duration::ZERO
    }
}

/// Retries with exponential backoff, until its limit of retries is reached.
impl<K> RetryPolicy<K> for Exponential {
    fn decide(&self, failure: &FailedRun<'_, K>) -> Option<Duration> {
        match self.retries() {
            Some(retries) if failure.failures > retries => None,
            _ => Some(self.jittered(failure.failures, failure.random)),
        }
    }

    /// Returns the [first step](Exponential::first_step).
    fn floor(&self) -> Duration {
        self.first_step()
    }
}
