//! A step with code before, around and after an inner step.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Flow, SubResult, both};
use super::setup::Setup;
use homeostat::run::BoxError;

/// Adds code [before](Self::before), [around](Self::around) and [after](Self::after) a step.
///
/// The code decides whether and how often the step runs, and may replace its result.
///
/// # Examples
///
/// Skip a step if the object has an annotation:
///
/// ```
/// use homeostat_objects::{DynamicObject, Object};
/// use homeostat_objects::sub::{Advice, Flow, SubContext, SubReconciler, SubResult};
///
/// fn unless_paused(
///     cx: &SubContext<'_>,
///     app: &mut DynamicObject,
///     step: &dyn SubReconciler<DynamicObject>,
/// ) -> SubResult {
///     if app.meta().annotations.contains_key("example.com/paused") {
///         return Ok(Flow::proceed());
///     }
///     step.reconcile(cx, app)
/// }
///
/// let deploy = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::proceed()) };
/// let steps = Advice::new(deploy).around(unless_paused);
/// # let _ = steps;
/// ```
#[must_use]
pub struct Advice<T> {
    step: Box<dyn SubReconciler<T>>,
    before: Option<Box<dyn SubReconciler<T>>>,
    around: Option<AroundStep<T>>,
    after: Option<AfterStep<T>>,
}

type AroundStep<T> = Box<dyn Fn(&SubContext<'_>, &mut T, &dyn SubReconciler<T>) -> SubResult + Send + Sync>;
type AfterStep<T> = Box<dyn Fn(&SubContext<'_>, &mut T, SubResult) -> SubResult + Send + Sync>;

impl<T> Advice<T> {
    /// Wraps `step`.
    pub fn new(step: impl SubReconciler<T> + 'static) -> Self {
        Self { step: Box::new(step), before: None, around: None, after: None }
    }

    /// Calls `before` first, for example to [stash](super::Stash) a value.
    ///
    /// If `before` fails or halts, nothing else runs, and its result is returned. Otherwise its delay is combined with
    /// the delay of the step.
    pub fn before(self, before: impl Fn(&SubContext<'_>, &mut T) -> SubResult + Send + Sync + 'static) -> Self {
        Self { before: Some(Box::new(before)), ..self }
    }

    /// Calls `around` instead of the step; `around` may call the step. Its result replaces the result of the step.
    pub fn around(
        self,
        around: impl Fn(&SubContext<'_>, &mut T, &dyn SubReconciler<T>) -> SubResult + Send + Sync + 'static,
    ) -> Self {
        Self { around: Some(Box::new(around)), ..self }
    }

    /// Calls `after` last, with the result so far. Its result is returned.
    pub fn after(
        self,
        after: impl Fn(&SubContext<'_>, &mut T, SubResult) -> SubResult + Send + Sync + 'static,
    ) -> Self {
        Self { after: Some(Box::new(after)), ..self }
    }
}

impl<T> SubReconciler<T> for Advice<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.step.setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let before = match &self.before {
            Some(before) => before.reconcile(cx, resource)?,
            None => Flow::proceed(),
        };
        if before.is_halted() {
            return Ok(before);
        }
        let result = match &self.around {
            Some(around) => around(cx, resource, &*self.step),
            None => self.step.reconcile(cx, resource),
        };
        let result = both(Ok(before), result);
        match &self.after {
            Some(after) => after(cx, resource, result),
            None => result,
        }
    }
}

impl<T> fmt::Debug for Advice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, around, after, .. } = self;
        f.debug_struct("Advice")
            .field("before", &before.is_some())
            .field("around", &around.is_some())
            .field("after", &after.is_some())
            .finish_non_exhaustive()
    }
}
