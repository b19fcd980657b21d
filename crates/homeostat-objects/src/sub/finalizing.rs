//! A step that cleans up before the object is removed.

use std::fmt;

use super::SubReconciler;
use super::branch::StepCondition;
use super::context::SubContext;
use super::flow::{Flow, SubResult};
use super::setup::Setup;
use crate::Object;
use homeostat::run::BoxError;

/// Cleans up before the object is removed. A finalizer keeps the object until then.
///
/// | the object | action |
/// |---|---|
/// | is not being deleted | adds the finalizer, then runs the step |
/// | is being deleted and has the finalizer | runs the step; removes the finalizer if the step has finished and the object is [ready](Self::ready_when) |
/// | is being deleted and does not have the finalizer | nothing |
///
/// A step that fails, halts or asks for another run has not finished. The finalizer is written to the client that the
/// object was read from, as a merge patch. The event `FinalizerPatched` records its addition and its removal, with the
/// message `Patched finalizer "example.com/disk"`. No other step may use the same finalizer.
///
/// A case of a test expects the patch, the event and the resource: see the [example] in the guide of testing.
///
/// [example]: https://docs.rs/homeostat-testing/latest/homeostat_testing/guide/testing/index.html#tables
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Flow, SubContext, SubResult, SyncReconciler, WithFinalizer};
///
/// fn make(_cx: &SubContext<'_>, _disk: &mut DynamicObject) -> SubResult {
///     Ok(Flow::proceed())
/// }
///
/// fn wipe(_cx: &SubContext<'_>, _disk: &mut DynamicObject) -> SubResult {
///     Ok(Flow::proceed())
/// }
///
/// let disk = WithFinalizer::new("example.com/disk", SyncReconciler::new(make).finalize(wipe));
/// # let _ = disk;
/// ```
#[must_use]
pub struct WithFinalizer<T> {
    finalizer: String,
    step: Box<dyn SubReconciler<T>>,
    ready: Option<StepCondition<T>>,
}

impl<T> WithFinalizer<T> {
    /// Wraps `step` with this finalizer, a `domain/name`.
    pub fn new(finalizer: impl Into<String>, step: impl SubReconciler<T> + 'static) -> Self {
        Self { finalizer: finalizer.into(), step: Box::new(step), ready: None }
    }

    /// Removes the finalizer only if `ready` returns true. It is called after each run of the step for an object that
    /// is being deleted.
    ///
    /// If it returns false, the caller must make sure that the key runs again.
    pub fn ready_when(self, ready: impl Fn(&SubContext<'_>, &T) -> bool + Send + Sync + 'static) -> Self {
        Self { ready: Some(Box::new(ready)), ..self }
    }
}

impl<T: Object> SubReconciler<T> for WithFinalizer<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.step.setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        if !cx.is_deleting() {
            cx.add_finalizer(&mut resource.meta_mut(), &self.finalizer)?;
            return self.step.reconcile(cx, resource);
        }
        if !resource.meta().has_finalizer(&self.finalizer) {
            return Ok(Flow::proceed());
        }
        let flow = self.step.reconcile(cx, resource)?;
        if flow != Flow::proceed() || self.ready.as_ref().is_some_and(|ready| !ready(cx, resource)) {
            return Ok(flow);
        }
        cx.remove_finalizer(&mut resource.meta_mut(), &self.finalizer)?;
        Ok(flow)
    }
}

impl<T> fmt::Debug for WithFinalizer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithFinalizer").field("finalizer", &self.finalizer).finish_non_exhaustive()
    }
}
