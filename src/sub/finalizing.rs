//! A step that has something to do before the object may vanish.

use std::fmt;

use super::SubReconciler;
use super::branch::StepCondition;
use super::context::SubContext;
use super::flow::{Flow, SubResult};
use super::setup::Setup;
use crate::objects::Object;
use crate::run::error::BoxError;

/// A step that has something to do before the object may vanish: a finalizer holds it until that is done.
///
/// | the object | what is done |
/// |---|---|
/// | lives | it is seen to that the finalizer holds it; then the step |
/// | is being deleted, and the finalizer holds it | the step, to clean up; then the finalizer is removed, if that is done and the object [ready](Self::ready_when) |
/// | is being deleted, and others hold it | nothing |
///
/// A step that fails, halts or asks for another run is not done. The finalizer is written in the client that the object was read from,
/// with an event; it must be this one step's own.
///
/// # Examples
///
/// ```
/// use homeostat::objects::DynamicObject;
/// use homeostat::sub::{Flow, SubContext, SubResult, SyncReconciler, WithFinalizer};
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
    /// Calls `step`, and holds the object with this finalizer: `domain/name`.
    pub fn new(finalizer: impl Into<String>, step: impl SubReconciler<T> + 'static) -> Self {
        Self { finalizer: finalizer.into(), step: Box::new(step), ready: None }
    }

    /// Removes the finalizer only if this holds. It is asked each time that the step is done with an object that is being deleted;
    /// something has to call for another run if it does not hold.
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
            cx.add_finalizer(resource.meta_mut(), &self.finalizer)?;
            return self.step.reconcile(cx, resource);
        }
        if !resource.meta().has_finalizer(&self.finalizer) {
            return Ok(Flow::proceed());
        }
        let flow = self.step.reconcile(cx, resource)?;
        if flow != Flow::proceed() || self.ready.as_ref().is_some_and(|ready| !ready(cx, resource)) {
            return Ok(flow);
        }
        cx.remove_finalizer(resource.meta_mut(), &self.finalizer)?;
        Ok(flow)
    }
}

impl<T> fmt::Debug for WithFinalizer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithFinalizer").field("finalizer", &self.finalizer).finish_non_exhaustive()
    }
}
