//! A step whose passing errors are not shown.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{ErrorClass, Failures, SubResult};
use super::setup::Setup;
use crate::base::sync::Mutex;
use crate::objects::json::uid_of;
use crate::run::error::{BoxError, Cancelled, muted};

mod counters;

use self::counters::{FailureCounters, Stale};

/// A step whose transient errors are shown only if they last: as long as an object has had fewer of them in a row than the
/// [threshold](Self::threshold), they are [muted], so they are retried as they are without this, and only the log at level
/// debug has them; and the status of the object is left as it is, whatever the run makes of it.
///
/// | the step | the count of the object | its error |
/// |---|---|---|
/// | fails, and that is [transient](ErrorClass::Transient) | one more; from one again for another generation, or another object of the name | is muted below the threshold, and returned as it is from there on |
/// | was told to stop | stays | is returned as it is |
/// | fails in another way, or not at all | is forgotten | is returned as it is |
///
/// It counts by object: it belongs around a [`ForEach`](super::ForEach) or [`While`](super::While), not into one, where a pass that does
/// not fail would end what another one has counted.
///
/// The counts are kept in this step, for as long as the program runs. Those of objects that are gone are forgotten with later failures:
/// what has not failed for a day is looked up in the client then, two at a time. Beyond some 65 000 objects that fail at once, the errors
/// of others are returned as they are.
///
/// # Examples
///
/// ```
/// use homeostat::objects::DynamicObject;
/// use homeostat::sub::{Flow, SubContext, SubResult, SuppressTransientErrors};
///
/// fn ask_the_registry(_cx: &SubContext<'_>, _app: &mut DynamicObject) -> SubResult {
///     // … which does not answer now and then
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

/// How many counters are kept.
const MOST: usize = 1 << 16;
/// How many of them are looked up at once.
const AT_ONCE: usize = 2;

impl<T> SuppressTransientErrors<T> {
    /// Calls `step`.
    pub fn new(step: impl SubReconciler<T> + 'static) -> Self {
        Self { step: Box::new(step), threshold: 3, counters: Mutex::new(FailureCounters::new(MOST)) }
    }

    /// Which transient error in a row is the first to be shown. Default: the third.
    pub fn threshold(self, errors: u32) -> Self {
        Self { threshold: errors, ..self }
    }

    /// One more failure. Returns how many there have been, if they are counted.
    fn count(&self, cx: &SubContext<'_>) -> Option<u32> {
        let meta = &cx.subject().metadata;
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

/// Whether the client says so.
fn is_gone(cx: &SubContext<'_>, stale: &Stale) -> bool {
    match cx.original_config().client().get(cx.kind(), &stale.key) {
        Ok(object) => uid_of(&object["metadata"]) != stale.uid,
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
            Err(error) if Failures::find(&*error) == Some(&Cancelled::Aborted) => Err(error),
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
