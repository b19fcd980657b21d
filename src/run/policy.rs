//! Retry policies for failed runs.

use std::error::Error;
use std::time::Duration;

use crate::base::backoff::Exponential;

/// A failed run, as passed to a [`RetryPolicy`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failure<'a, K> {
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

/// The decision of a [`RetryPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryDecision {
    /// Retry the key after this time.
    Retry(Duration),
    /// Do not retry the key. It runs again when it is enqueued.
    Drop,
}

/// Decides whether and when a failed key is retried. Not called for [`RequeueAfter`](crate::RequeueAfter) and
/// [`Terminal`](crate::run::Terminal) errors.
///
/// # Examples
///
/// ```
/// use homeostat::RetryPolicy;
/// use homeostat::run::{Failure, RetryDecision};
/// use std::{io, time::Duration};
///
/// /// Retries timeouts only.
/// struct TimedOutOnly;
///
/// impl<K> RetryPolicy<K> for TimedOutOnly {
///     fn decide(&self, failure: &Failure<'_, K>) -> RetryDecision {
///         match failure.error.downcast_ref::<io::Error>() {
///             Some(error) if error.kind() == io::ErrorKind::TimedOut => RetryDecision::Retry(Duration::from_secs(1)),
///             _ => RetryDecision::Drop,
///         }
///     }
/// }
/// ```
#[doc(alias = "error_policy")]
#[doc(alias = "rate limiter")]
pub trait RetryPolicy<K>: Send + Sync {
    /// Returns the decision. Called on the worker's thread, outside any lock.
    fn decide(&self, failure: &Failure<'_, K>) -> RetryDecision;

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
    fn decide(&self, failure: &Failure<'_, K>) -> RetryDecision {
        match self.retries() {
            Some(retries) if failure.failures > retries => RetryDecision::Drop,
            _ => RetryDecision::Retry(self.jittered(failure.failures, failure.random)),
        }
    }

    /// Returns the [first step](Exponential::first_step).
    fn floor(&self) -> Duration {
        self.first_step()
    }
}

/// A policy that never retries: a failed run is logged, and the key runs again when it is enqueued.
///
/// Suitable with a poller, which lists a key again while its state is wrong.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Workers};
/// use homeostat::run::NoRetry;
///
/// let workers = Workers::new(|_cx: &Context, _vm: &String| -> Result<Action, BoxError> { Err("no answer".into()) });
/// let workers = workers.retry(NoRetry);
/// # let _ = workers;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRetry;

impl<K> RetryPolicy<K> for NoRetry {
    fn decide(&self, _failure: &Failure<'_, K>) -> RetryDecision {
        RetryDecision::Drop
    }
}
