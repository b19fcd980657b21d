//! The result of a step, and the consequences of its errors.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::{LASTING_CONFLICT, ObjectKey, is_conflict};
use homeostat::rt::{Chain, Mark, debug_with_causes, find};
use homeostat::run::{
    Action, BoxError, Cancelled, Context, Muted, RequeueAfter, RetryAfter, Terminal, muted, terminal,
};

/// The result of a [`SubReconciler`](super::SubReconciler).
pub type SubResult = Result<Flow, BoxError>;

/// The result of a step that has not failed: whether the next steps run, and whether the key runs again.
///
/// The results of several steps are [combined](Self::and): the shortest delay wins, and a single halt stops everything.
///
/// # Examples
///
/// ```
/// use homeostat_objects::sub::Flow;
/// use std::time::Duration;
///
/// let (soon, late) = (Duration::from_secs(1), Duration::from_secs(60));
/// let both = Flow::requeue_after(late).and(Flow::requeue_after(soon));
/// assert_eq!((both.requeue(), both.is_halted()), (Some(soon), false));
/// assert_eq!(Flow::proceed().and(Flow::requeue_after(late)).requeue(), Some(late));
/// assert!(Flow::halt().and(Flow::proceed()).is_halted());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Flow {
    requeue: Option<Duration>,
    halted: bool,
}

impl Flow {
    /// Continues with the next step.
    pub const fn proceed() -> Self {
        Self { requeue: None, halted: false }
    }

    /// Continues with the next step, and runs the key again after `delay`.
    pub const fn requeue_after(delay: Duration) -> Self {
        Self { requeue: Some(delay), halted: false }
    }

    /// Ends the run without an error.
    pub const fn halt() -> Self {
        Self { requeue: None, halted: true }
    }

    /// Ends the run without an error, and runs the key again after `delay`.
    pub const fn halt_and_requeue_after(delay: Duration) -> Self {
        Self { requeue: Some(delay), halted: true }
    }

    /// Combines two results.
    pub fn and(self, other: Self) -> Self {
        Self { requeue: shorter(self.requeue, other.requeue), halted: self.halted || other.halted }
    }

    /// Returns the delay after which the key runs again.
    #[must_use]
    pub const fn requeue(&self) -> Option<Duration> {
        self.requeue
    }

    /// Returns whether the next steps are skipped.
    #[must_use]
    pub const fn is_halted(&self) -> bool {
        self.halted
    }
}

impl From<Flow> for Action {
    fn from(flow: Flow) -> Self {
        flow.requeue.map_or_else(Self::await_change, Self::requeue_after)
    }
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// An error that ends the run without a retry, made by [`quiet`]. It is logged only at level *debug*. Use it where the
/// status shows the problem, or where a change will enqueue the key again.
pub struct Quiet(Mark);

/// Marks an error so that it is not retried, and is logged only at level *debug*.
///
/// # Examples
///
/// ```
/// use homeostat_objects::sub::{Flow, SubContext, SubResult, quiet};
///
/// fn resolve(_cx: &SubContext<'_>, image: &mut String) -> SubResult {
///     if image.is_empty() {
///         return Err(quiet("no image yet").into()); // the image is tracked
///     }
///     Ok(Flow::proceed())
/// }
/// # let _ = resolve;
/// ```
pub fn quiet(error: impl Into<BoxError>) -> Quiet {
    Mark::set(error.into(), "quiet error", Quiet)
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

debug_with_causes!(Quiet);

impl Error for Quiet {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The class of an error decides about logging and retries. The first match counts:
///
/// | class | example | log | retry | observed generation |
/// |---|---|---|---|---|
/// | [`Quiet`](Self::Quiet) | [`quiet`] | *debug* | none | not set |
/// | [`Durable`](Self::Durable) | [`terminal`] | *warn* | none | set |
/// | [`Later`](Self::Later) | [`RequeueAfter`]; a [conflict](crate::ClientErrorKind::Conflict) | *info*; *debug* for a conflict | after its delay; after 100 ms | not set |
/// | [`Transient`](Self::Transient) | all others | *warn*; *debug* if [muted] | by the retry policy of the controller | not set |
///
/// A conflict means that another writer was faster. It is not a failure: the key runs again after 100 ms, or as soon as
/// the watch shows the change.
///
/// If there are several errors, the highest class counts: `Transient` before `Later` before `Durable`. They are muted
/// if all of them except quiet ones are muted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The error is logged only at level *debug*, and not retried.
    Quiet,
    /// A retry cannot succeed.
    Durable,
    /// The error has a delay, or is a conflict.
    Later,
    /// A retry may succeed.
    Transient,
}

impl ErrorClass {
    /// Returns the class of this error.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        if find::<Quiet>(error).is_some() {
            Self::Quiet
        } else if let Some(failures) = find::<Failures>(error) {
            failures.errors.iter().map(|error| Self::of(&**error)).max().unwrap_or(Self::Transient)
        } else if Terminal::find(error).is_some() {
            Self::Durable
        } else if RequeueAfter::find(error).is_some() || is_conflict(error) {
            Self::Later
        } else {
            Self::Transient
        }
    }
}

/// The errors of several steps, with the delay that other steps asked for.
#[derive(Default)]
pub struct Failures {
    errors: Vec<BoxError>,
    requeue: Option<Duration>,
    /// The longest of the minimum delays that the errors ask for.
    retry_after: Option<RetryAfter>,
}

impl Failures {
    /// Returns the errors, in the order in which they occurred.
    #[must_use]
    pub fn errors(&self) -> &[BoxError] {
        &self.errors
    }

    /// Returns the delay that successful steps asked for. It is used if the errors are not retried.
    #[must_use]
    pub fn requeue(&self) -> Option<Duration> {
        self.requeue
    }

    /// Returns the first error of this type. Searches `error` itself, its sources, the error in a [mark](quiet), and
    /// each of several errors.
    #[must_use]
    pub fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
        find(error)
            .or_else(|| Self::find(marked(error)?))
            .or_else(|| find::<Self>(error)?.errors.iter().find_map(|error| Self::find(&**error)))
    }

    /// Adds the result of another step. Returns whether the next steps are skipped.
    pub(super) fn add(&mut self, result: SubResult) -> bool {
        match result {
            Ok(flow) => {
                self.requeue = shorter(self.requeue, flow.requeue());
                flow.is_halted()
            }
            Err(error) => {
                self.retry_after = self.retry_after.max(RetryAfter::find(&*error));
                match error.downcast::<Self>() {
                    Ok(others) => {
                        self.requeue = shorter(self.requeue, others.requeue);
                        self.errors.extend(others.errors);
                    }
                    Err(error) => self.errors.push(error),
                }
                true
            }
        }
    }

    /// Returns the combined result. A single error is returned as it is.
    pub(super) fn into_result(mut self, halted: bool) -> SubResult {
        match (self.errors.len(), self.requeue) {
            (0, requeue) => Ok(Flow { requeue, halted }),
            (1, None) => Err(self.errors.remove(0)),
            _ => Err(self.into()),
        }
    }
}

/// Combines two results.
pub(super) fn both(one: SubResult, other: SubResult) -> SubResult {
    let mut failures = Failures::default();
    let halted = [failures.add(one), failures.add(other)];
    failures.into_result(halted.contains(&true))
}

/// Converts the result of the steps for the controller.
///
/// Quiet errors are dropped. If a durable error accompanies a requested delay, it is logged here, so that the delay is
/// kept.
pub(super) fn conclude(result: SubResult, reconciler: &str, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
    let error = match result {
        Ok(flow) => return Ok(flow.into()),
        Err(error) => error,
    };
    let requeue = asked(&*error);
    let is_muted = is_muted(&*error);
    let error = error.downcast::<Muted>().map_or_else(|error| error, |muted| muted.into_inner());
    match ErrorClass::of(&*error) {
        ErrorClass::Quiet => {
            let shown = Chain(&*error);
            log::debug!(reconciler, key:?, error:% = shown; "{reconciler}: {key:?} ended quietly: {shown}");
            Ok(requeue.map_or_else(Action::await_change, Action::requeue_after))
        }
        ErrorClass::Durable => match requeue {
            None => Err(durable(error)),
            Some(delay) => {
                log_durable(reconciler, key, &*error);
                Ok(Action::requeue_after(delay))
            }
        },
        ErrorClass::Later => {
            if let Some(failures) = find::<Failures>(&*error) {
                let durable = failures.errors.iter().filter(|error| ErrorClass::of(&***error) == ErrorClass::Durable);
                durable.for_each(|error| log_durable(reconciler, key, &**error));
            }
            later(error, requeue, reconciler, cx, key)
        }
        ErrorClass::Transient if is_muted => Err(muted(transient(error, reconciler, key)).into()),
        ErrorClass::Transient => Err(transient(error, reconciler, key)),
    }
}

/// Logs an error that is not retried.
fn log_durable(reconciler: &str, key: &ObjectKey, error: &(dyn Error + 'static)) {
    let shown = Chain(error);
    log::warn!(reconciler, key:?, error:% = shown; "{reconciler}: {key:?} failed permanently: {shown}");
}

/// Returns the error inside a quiet or terminal mark.
fn marked<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let quiet = find::<Quiet>(error).map(|quiet| quiet.0.error());
    quiet.or_else(|| Terminal::find(error).map(Terminal::error))
}

/// Returns the delay that steps asked for in addition to this error. Looks inside marks.
pub(super) fn asked(error: &(dyn Error + 'static)) -> Option<Duration> {
    if let Some(marked) = marked(error) {
        return asked(marked);
    }
    let failures = find::<Failures>(error)?;
    failures.errors.iter().map(|error| asked(&**error)).fold(failures.requeue, shorter)
}

fn is_muted(error: &(dyn Error + 'static)) -> bool {
    Muted::find(error).is_some()
        || find::<Failures>(error).is_some_and(|failures| {
            failures.errors.iter().all(|error| ErrorClass::of(&**error) == ErrorClass::Quiet || is_muted(&**error))
        })
}

/// Marks the error as terminal for the controller.
fn durable(error: BoxError) -> BoxError {
    if Terminal::find(&*error).is_some() { error } else { terminal(error).into() }
}

/// The delay after a conflict. A change enqueues the key earlier.
const CONFLICT_DELAY: Duration = Duration::from_millis(100);

/// Returns the shortest of the delays in the error, the delay after a conflict, and `requeue`.
///
/// Conflicts alone are not an error, until there are [too many](LASTING_CONFLICT) in a row.
fn later(
    error: BoxError,
    requeue: Option<Duration>,
    reconciler: &str,
    cx: &Context,
    key: &ObjectKey,
) -> Result<Action, BoxError> {
    let mut requests = Vec::new();
    let conflicts = collect(&*error, &mut requests);
    let after = shorter(requeue, conflicts.then_some(CONFLICT_DELAY));
    let Some(first) = requests.into_iter().min_by_key(RequeueAfter::after) else {
        if cx.attempt() > LASTING_CONFLICT {
            return Err(error);
        }
        let shown = Chain(&*error);
        log::debug!(reconciler, key:?, error:% = shown; "{reconciler}: {key:?} met a conflict and runs again: {shown}");
        return Ok(Action::retry_after(after.unwrap_or(CONFLICT_DELAY)));
    };
    let after = after.map_or(first.after(), |after| after.min(first.after()));
    Err(RequeueAfter::new(after, first.reason()).into())
}

/// Adds the delays in the error to `requests`. Returns whether the error contains a conflict.
fn collect(error: &(dyn Error + 'static), requests: &mut Vec<RequeueAfter>) -> bool {
    if let Some(failures) = find::<Failures>(error) {
        return failures.errors.iter().fold(false, |conflicts, error| collect(&**error, requests) | conflicts);
    }
    let request = RequeueAfter::find(error);
    requests.extend(request.cloned());
    request.is_none() && is_conflict(error)
}

/// If one of several errors is a cancellation, returns only that, because the controller handles it. Logs the others
/// here.
fn transient(error: BoxError, reconciler: &str, key: &ObjectKey) -> BoxError {
    match error.downcast::<Failures>() {
        Ok(mut failures) => match failures.errors.iter().position(|error| find::<Cancelled>(&**error).is_some()) {
            Some(cancelled) => {
                let cancelled = failures.errors.remove(cancelled);
                if !failures.errors.is_empty() {
                    let shown = Chain(&*failures);
                    log::warn!(
                        reconciler, key:?, error:% = shown;
                        "{reconciler}: {key:?} failed before it was stopped: {shown}"
                    );
                }
                cancelled
            }
            None => failures,
        },
        Err(error) => error,
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.errors.iter().enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            Chain(&**error).fmt(f)?;
        }
        Ok(())
    }
}

debug_with_causes!(Failures);

impl Error for Failures {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.retry_after.as_ref().map(|after| after as _)
    }
}
