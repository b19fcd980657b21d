//! What becomes of a step's error, and what is done in any case.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Flow, SubResult, asked, both};
use super::setup::Setup;
use crate::run::error::BoxError;

/// A step whose errors are [caught](Self::catch), and one that follows it [in any case](Self::finally).
///
/// | the step | `catch` | what both return | `finally` |
/// |---|---|---|---|
/// | does not fail, or halts | is not called | what the step returns | follows |
/// | fails | is given the error | what `catch` returns | follows |
///
/// What `finally` returns is [put together](Flow::and) with that: neither hides an error of the other, and delays that were asked for
/// stand, those too that steps have asked for that did not fail beside the one that did. Nothing is called behind a panic.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{ClientError, DynamicObject};
/// use homeostat::sub::{Failures, Flow, SubContext, SubResult, TryCatch, quiet};
/// use homeostat::BoxError;
///
/// fn deploy(_cx: &SubContext<'_>, _app: &mut DynamicObject) -> SubResult {
///     // …
///     Ok(Flow::proceed())
/// }
///
/// /// What is not there yet is tracked: nobody need hear of it.
/// fn excuse(_cx: &SubContext<'_>, _app: &mut DynamicObject, error: BoxError) -> SubResult {
///     match Failures::find::<ClientError>(&*error) {
///         Some(ClientError::NotFound { .. }) => Err(quiet(error).into()),
///         _ => Err(error),
///     }
/// }
///
/// fn unlock(_cx: &SubContext<'_>, _app: &mut DynamicObject) -> SubResult {
///     // …
///     Ok(Flow::proceed())
/// }
///
/// let steps = TryCatch::new(deploy).catch(excuse).finally(unlock);
/// # let _ = steps;
/// ```
#[must_use]
pub struct TryCatch<T> {
    body: Box<dyn SubReconciler<T>>,
    catch: Option<Catch<T>>,
    finally: Option<Box<dyn SubReconciler<T>>>,
}

type Catch<T> = Box<dyn Fn(&SubContext<'_>, &mut T, BoxError) -> SubResult + Send + Sync>;

impl<T> TryCatch<T> {
    /// Calls `body`.
    pub fn new(body: impl SubReconciler<T> + 'static) -> Self {
        Self { body: Box::new(body), catch: None, finally: None }
    }

    /// Called with an error of the body: to return it again, another one, or none.
    pub fn catch(self, catch: impl Fn(&SubContext<'_>, &mut T, BoxError) -> SubResult + Send + Sync + 'static) -> Self {
        Self { catch: Some(Box::new(catch)), ..self }
    }

    /// Called behind the body, and behind what [catches](Self::catch) its error, whatever comes of them.
    pub fn finally(self, step: impl SubReconciler<T> + 'static) -> Self {
        Self { finally: Some(Box::new(step)), ..self }
    }
}

impl<T> SubReconciler<T> for TryCatch<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.body.setup(setup)?;
        self.finally.as_ref().map_or(Ok(()), |step| step.setup(setup))
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let result = match (self.body.reconcile(cx, resource), &self.catch) {
            (Err(error), Some(catch)) => {
                let asked = asked(&*error);
                let caught = catch(cx, resource, error);
                both(Ok(asked.map_or_else(Flow::proceed, Flow::requeue_after)), caught)
            }
            (result, _) => result,
        };
        match &self.finally {
            Some(finally) => both(result, finally.reconcile(cx, resource)),
            None => result,
        }
    }
}

impl<T> fmt::Debug for TryCatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { catch, finally, .. } = self;
        f.debug_struct("TryCatch")
            .field("catch", &catch.is_some())
            .field("finally", &finally.is_some())
            .finish_non_exhaustive()
    }
}
