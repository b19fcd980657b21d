//! A step that chooses between two steps.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Flow, SubResult};
use super::setup::Setup;
use homeostat::run::BoxError;

/// A condition for an object.
pub(super) type StepCondition<T> = Box<dyn Fn(&SubContext<'_>, &T) -> bool + Send + Sync>;

/// Runs one step if a condition holds, and optionally [another one](Self::or_else) if it does not.
///
/// Both steps may have children of the same kind, because only one of them runs.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Object};
/// use homeostat_objects::sub::{Flow, IfThen, SubContext, SubResult};
///
/// fn is_paused(_cx: &SubContext<'_>, app: &DynamicObject) -> bool {
///     app.meta().annotations.contains_key("example.com/paused")
/// }
///
/// let stop = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::halt()) };
/// let deploy = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::proceed()) };
/// let steps = IfThen::new(is_paused, stop).or_else(deploy);
/// # let _ = steps;
/// ```
#[must_use]
pub struct IfThen<T> {
    condition: StepCondition<T>,
    then: Box<dyn SubReconciler<T>>,
    or_else: Option<Box<dyn SubReconciler<T>>>,
}

impl<T> IfThen<T> {
    /// Runs `then` if the condition holds.
    pub fn new(
        condition: impl Fn(&SubContext<'_>, &T) -> bool + Send + Sync + 'static,
        then: impl SubReconciler<T> + 'static,
    ) -> Self {
        Self { condition: Box::new(condition), then: Box::new(then), or_else: None }
    }

    /// Runs `other` if the condition does not hold.
    pub fn or_else(self, other: impl SubReconciler<T> + 'static) -> Self {
        Self { or_else: Some(Box::new(other)), ..self }
    }
}

impl<T> SubReconciler<T> for IfThen<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let other = |setup: &mut Setup<'_>| self.or_else.as_ref().map_or(Ok(()), |other| other.setup(setup));
        setup.either(|setup| self.then.setup(setup), other)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let step = if (self.condition)(cx, resource) { Some(&self.then) } else { self.or_else.as_ref() };
        step.map_or_else(|| Ok(Flow::proceed()), |step| step.reconcile(cx, resource))
    }
}

impl<T> fmt::Debug for IfThen<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IfThen").field("or_else", &self.or_else.is_some()).finish_non_exhaustive()
    }
}
