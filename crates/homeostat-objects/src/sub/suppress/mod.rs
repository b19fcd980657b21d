//! A step that mutes errors until they persist.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{ErrorClass, Failures, SubResult};
use super::setup::Setup;
use crate::Object;
use crate::sync::Mutex;
use homeostat::run::{BoxError, Cancelled, muted};

mod counters;

use self::counters::{FailureCounters, Stale};

/// Shows the transient errors of a step only if they persist.
///
/// While an object has fewer consecutive errors than the [threshold](Self::threshold), its errors are [muted]: they are
/// retried as usual, but logged only at level *debug*, and the status is not written.
///
/// | the step | count of the object | error |
/// |---|---|---|
/// | fails with a [transient](ErrorClass::Transient) error | is incremented; restarts at 1 for another generation or uid | is muted below the threshold |
/// | is aborted | stays | is returned |
/// | fails otherwise, or succeeds | is reset | is returned |
///
/// Wrap it around a [`ForEach`](super::ForEach) or [`While`](super::While), not inside: the success of one pass would
/// reset the count of another pass.
///
/// The step keeps the counts in memory. Counts of objects that are gone are removed during later failures: objects that
/// have not failed for a day are looked up, two at a time. If more than 65,536 objects fail at the same time, the
/// errors of the others are not muted.
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Flow, SubContext, SubResult, SuppressTransientErrors};
///
/// fn ask_the_registry(_cx: &SubContext<'_>, _app: &mut DynamicObject) -> SubResult {
///     // … sometimes it does not answer
///     Ok(Flow::proceed())
/// }
///
/// let step = SuppressTransientErrors::new(ask_the_registry).threshold(5);
/// # let _ = step;
/// ```
#[must_use]
pub struct SuppressTransientErrors<T> {
    step: Box<dyn SubReconciler<T>>,
    threshold: u32,
    counters: Mutex<FailureCounters>,
}

/// The maximum number of counters.
const MOST: usize = 1 << 16;
/// The number of lookups for each failure.
const AT_ONCE: usize = 2;

impl<T> SuppressTransientErrors<T> {
    /// Wraps `step`.
    pub fn new(step: impl SubReconciler<T> + 'static) -> Self {
        Self { step: Box::new(step), threshold: 3, counters: Mutex::new(FailureCounters::new(MOST)) }
    }

    /// Sets how many consecutive errors an object must have to be shown. Default: 3, so the first two are muted.
    pub fn threshold(self, errors: u32) -> Self {
        Self { threshold: errors, ..self }
    }

    /// Counts a failure. Returns the number of consecutive failures, unless too many objects fail.
    fn count(&self, cx: &SubContext<'_>) -> Option<u32> {
        let meta = cx.subject().meta();
        let now = cx.original_config().clock().nanos();
        let mut counters = self.counters.lock();
        let count = counters.fail(cx.key(), &meta.uid, meta.generation, now);
        let stale: Vec<_> = std::iter::from_fn(|| counters.stale(now)).take(AT_ONCE).collect();
        drop(counters);
        for stale in stale.iter().filter(|stale| is_gone(cx, stale)) {
            self.counters.lock().forget_stale(stale);
        }
        count
    }
}

/// Returns whether the client has no such object.
fn is_gone(cx: &SubContext<'_>, stale: &Stale) -> bool {
    match cx.original_config().client().get(cx.kind(), &stale.key) {
        Ok(object) => object.uid() != stale.uid,
        Err(error) => error.is_not_found(),
    }
}

impl<T> SubReconciler<T> for SuppressTransientErrors<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.step.setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let result = self.step.reconcile(cx, resource);
        match result {
            Err(error) if matches!(Failures::find(&*error), Some(Cancelled::Aborted | Cancelled::TermEnded)) => {
                Err(error)
            }
            Err(error) if ErrorClass::of(&*error) == ErrorClass::Transient => match self.count(cx) {
                Some(count) if count < self.threshold => {
                    cx.skip_status_update();
                    Err(muted(error).into())
                }
                _ => Err(error),
            },
            other => {
                self.counters.lock().forget(cx.key());
                other
            }
        }
    }
}

impl<T> fmt::Debug for SuppressTransientErrors<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threshold, counters, .. } = self;
        f.debug_struct("SuppressTransientErrors")
            .field("threshold", threshold)
            .field("objects", &counters.lock().len())
            .finish_non_exhaustive()
    }
}
