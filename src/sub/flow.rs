//! What a step asks for, and what follows its errors.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::objects::{LASTING_CONFLICT, ObjectKey, is_conflict};
use crate::run::context::Context;
use crate::run::error::{BoxError, Cancelled, Chain, Mark, Muted, RequeueAfter, Terminal, find, muted, terminal};
use crate::run::reconciler::Action;

/// What a [`SubReconciler`](super::SubReconciler) returns.
pub type SubResult = Result<Flow, BoxError>;

/// What a step that has not failed asks for: whether the steps behind it follow, and perhaps another run.
///
/// What several steps ask for is [put together](Self::and): the shortest delay counts, and one that halts halts them all.
///
/// # Examples
///
/// ```
/// use homeostat::sub::Flow;
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
    /// On with the next step.
    pub const fn proceed() -> Self {
        Self { requeue: None, halted: false }
    }

    /// On with the next step; and another run `delay` after this one.
    pub const fn requeue_after(delay: Duration) -> Self {
        Self { requeue: Some(delay), halted: false }
    }

    /// No further step in this run, without an error.
    pub const fn halt() -> Self {
        Self { requeue: None, halted: true }
    }

    /// No further step in this run, without an error; and another run `delay` after this one.
    pub const fn halt_and_requeue_after(delay: Duration) -> Self {
        Self { requeue: Some(delay), halted: true }
    }

    /// What both ask for.
    pub fn and(self, other: Self) -> Self {
        Self { requeue: shorter(self.requeue, other.requeue), halted: self.halted || other.halted }
    }

    /// How long after this run another one is asked for.
    #[must_use]
    pub const fn requeue(&self) -> Option<Duration> {
        self.requeue
    }

    /// Whether no further step follows.
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

/// An error that nobody need hear of: it stops the steps behind it, and neither the log nor a retry follows. What it is about is seen
/// in the status, or a change will come that mends it. Made by [`quiet`].
#[derive(Debug)]
pub struct Quiet(Mark);

/// Marks an error as one that nobody need hear of.
///
/// # Examples
///
/// ```
/// use homeostat::sub::{Flow, SubContext, SubResult, quiet};
///
/// fn resolve(_cx: &SubContext<'_>, image: &mut String) -> SubResult {
///     if image.is_empty() {
///         return Err(quiet("no image yet").into()); // whoever writes it is tracked
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

impl Error for Quiet {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// What follows an error of a step: the first that fits.
///
/// | | example | log | retried | generation observed |
/// |---|---|---|---|---|
/// | [`Quiet`](Self::Quiet) | [`quiet`] | no | no | no |
/// | [`Durable`](Self::Durable) | [`terminal`] | yes | no | yes |
/// | [`Later`](Self::Later) | [`RequeueAfter`]; a [conflict](crate::objects::ClientError::Conflict) | at *info*; a conflict at *debug* | then; after 100 ms | no |
/// | [`Transient`](Self::Transient) | all others | yes; at *debug* if [muted] | by the controller's policy | no |
///
/// A conflict says that somebody else has written the object meanwhile. That is ordinary, so it is no failure: the key runs again
/// after 100 ms, or as soon as the watch shows the change.
///
/// Of several errors together the loudest counts: one that is transient makes them so, then `Later`, then `Durable`. They are muted if
/// all of them are that are not quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// Nobody need hear of it.
    Quiet,
    /// No further try will mend it.
    Durable,
    /// It says itself when to try again, or it is a conflict.
    Later,
    /// Another try may mend it.
    Transient,
}

impl ErrorClass {
    /// That of this error.
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

/// Several errors of one run, or one and what other steps have asked for.
#[derive(Debug, Default)]
pub struct Failures {
    errors: Vec<BoxError>,
    requeue: Option<Duration>,
}

impl Failures {
    /// The errors, in the order in which they came.
    #[must_use]
    pub fn errors(&self) -> &[BoxError] {
        &self.errors
    }

    /// The delay that steps have asked for that did not fail. It counts where the errors are not retried.
    #[must_use]
    pub fn requeue(&self) -> Option<Duration> {
        self.requeue
    }

    /// The first error of this type: `error` itself, one of its sources, what one of them [marks](quiet), or one of several.
    #[must_use]
    pub fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
        find(error)
            .or_else(|| Self::find(marked(error)?))
            .or_else(|| find::<Self>(error)?.errors.iter().find_map(|error| Self::find(&**error)))
    }

    /// Takes in what another step has returned. Returns whether it halts those behind it.
    pub(super) fn add(&mut self, result: SubResult) -> bool {
        match result {
            Ok(flow) => {
                self.requeue = shorter(self.requeue, flow.requeue());
                flow.is_halted()
            }
            Err(error) => {
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

    /// All of it as one result. An error that stands alone is returned as it is.
    pub(super) fn into_result(mut self, halted: bool) -> SubResult {
        match (self.errors.len(), self.requeue) {
            (0, requeue) => Ok(Flow { requeue, halted }),
            (1, None) => Err(self.errors.remove(0)),
            _ => Err(self.into()),
        }
    }
}

/// Both results as one.
pub(super) fn both(one: SubResult, other: SubResult) -> SubResult {
    let mut failures = Failures::default();
    let halted = [failures.add(one), failures.add(other)];
    failures.into_result(halted.contains(&true))
}

/// How a run ends whose steps have returned this: what the controller is told. What is quiet is left out; what is not to be retried
/// and stands beside a delay that was asked for is logged here, and the delay kept.
pub(super) fn conclude(result: SubResult, reconciler: &str, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
    let error = match result {
        Ok(flow) => return Ok(flow.into()),
        Err(error) => error,
    };
    let requeue = asked(&*error);
    let is_muted = is_muted(&*error);
    let error = error.downcast::<Muted>().map_or_else(|error| error, |muted| muted.into_marked());
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
    log::warn!(reconciler, key:?, error:% = shown; "{reconciler}: {key:?} failed for good: {shown}");
}

/// What is marked as quiet or terminal, if something is.
fn marked<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let quiet = find::<Quiet>(error).map(|quiet| quiet.0.error());
    quiet.or_else(|| Terminal::find(error).map(|terminal| terminal.0.error()))
}

/// The delay that steps have asked for beside this error, whatever marks it.
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

/// Marked so that the controller sees it as terminal.
fn durable(error: BoxError) -> BoxError {
    if Terminal::find(&*error).is_some() { error } else { terminal(error).into() }
}

/// How long a key waits that has met a conflict, unless a change calls it sooner.
const CONFLICT_DELAY: Duration = Duration::from_millis(100);

/// The soonest of the requests in the error, of the delay after a conflict, and of `requeue`. Conflicts alone are no error, unless the
/// key meets [too many](LASTING_CONFLICT) in a row.
fn later(
    error: BoxError,
    requeue: Option<Duration>,
    reconciler: &str,
    cx: &Context,
    key: &ObjectKey,
) -> Result<Action, BoxError> {
    let mut wishes = Vec::new();
    let conflicts = collect(&*error, &mut wishes);
    let after = shorter(requeue, conflicts.then_some(CONFLICT_DELAY));
    let Some(first) = wishes.into_iter().min_by_key(RequeueAfter::after) else {
        if cx.attempt() > LASTING_CONFLICT {
            return Err(error);
        }
        let shown = Chain(&*error);
        log::debug!(reconciler, key:?, error:% = shown; "{reconciler}: {key:?} met a conflict, to run again: {shown}");
        return Ok(Action::retry_after(after.unwrap_or(CONFLICT_DELAY)));
    };
    let after = after.map_or(first.after(), |after| after.min(first.after()));
    Err(RequeueAfter::new(after, first.reason()).into())
}

/// Adds the requests in the error to `wishes`. Returns whether there is a conflict in it.
fn collect(error: &(dyn Error + 'static), wishes: &mut Vec<RequeueAfter>) -> bool {
    if let Some(failures) = find::<Failures>(error) {
        return failures.errors.iter().fold(false, |conflicts, error| collect(&**error, wishes) | conflicts);
    }
    let wish = RequeueAfter::find(error);
    wishes.extend(wish.cloned());
    wish.is_none() && is_conflict(error)
}

/// Of several errors that of a run that was told to stop, which the controller knows, and the others are logged here; or all of
/// them.
fn transient(error: BoxError, reconciler: &str, key: &ObjectKey) -> BoxError {
    match error.downcast::<Failures>() {
        Ok(mut failures) => match failures.errors.iter().position(|error| find::<Cancelled>(&**error).is_some()) {
            Some(cancelled) => {
                let cancelled = failures.errors.remove(cancelled);
                if !failures.errors.is_empty() {
                    let shown = Chain(&*failures);
                    log::warn!(
                        reconciler, key:?, error:% = shown;
                        "{reconciler}: {key:?} failed before it was told to stop: {shown}"
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

impl Error for Failures {}
