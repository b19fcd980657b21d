//! A step with another set-up.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::SubResult;
use super::setup::Setup;
use super::sync::SetupHook;
use homeostat::run::BoxError;

/// Replaces the set-up of a step. The set-ups of the step and its inner steps are not called.
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Flow, OverrideSetup, Setup, SubContext, SubResult, SyncReconciler};
///
/// fn resolve(_cx: &SubContext<'_>, _app: &mut DynamicObject) -> SubResult {
///     Ok(Flow::proceed())
/// }
///
/// let watches_everything = SyncReconciler::new(resolve).setup(|_| Err("too much to watch".into()));
/// let step = OverrideSetup::new(watches_everything, |_: &mut Setup<'_>| Ok(()));
/// # let _ = step;
/// ```
#[must_use]
pub struct OverrideSetup<T> {
    step: Box<dyn SubReconciler<T>>,
    setup: SetupHook,
}

impl<T> OverrideSetup<T> {
    /// Wraps `step`, and calls `setup` as its set-up.
    pub fn new(
        step: impl SubReconciler<T> + 'static,
        setup: impl Fn(&mut Setup<'_>) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self { step: Box::new(step), setup: Box::new(setup) }
    }
}

impl<T> SubReconciler<T> for OverrideSetup<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        (self.setup)(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        self.step.reconcile(cx, resource)
    }
}

impl<T> fmt::Debug for OverrideSetup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverrideSetup").finish_non_exhaustive()
    }
}
