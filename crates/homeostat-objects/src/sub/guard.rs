//! A step that handles errors.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Flow, SubResult, asked, both};
use super::setup::Setup;
use homeostat::run::BoxError;

/// Handles the errors of a step with [`catch`](Self::catch), and always runs another step with
/// [`finally`](Self::finally).
///
/// | the body | `catch` | result so far | `finally` |
/// |---|---|---|---|
/// | succeeds or halts | is not called | the result of the body | runs |
/// | fails | gets the error | the result of `catch` | runs |
///
/// The result of `finally` is [combined](Flow::and) with the result so far. If both are errors, both are reported.
/// Delays that other steps asked for are kept, even with an error that was caught. After a panic nothing else runs.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ClientError, DynamicObject};
/// use homeostat_objects::sub::{Failures, Flow, SubContext, SubResult, TryCatch, quiet};
/// use homeostat::BoxError;
///
/// fn deploy(_cx: &SubContext<'_>, _app: &mut DynamicObject) -> SubResult {
///     // …
///     Ok(Flow::proceed())
/// }
///
/// /// A missing object is tracked, so this error needs no log line.
/// fn excuse(_cx: &SubContext<'_>, _app: &mut DynamicObject, error: BoxError) -> SubResult {
///     match Failures::find::<ClientError>(&*error) {
///         Some(missing) if missing.is_not_found() => Err(quiet(error).into()),
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
    /// Wraps `body`.
    pub fn new(body: impl SubReconciler<T> + 'static) -> Self {
        Self { body: Box::new(body), catch: None, finally: None }
    }

    /// Calls `catch` with an error of the body. It returns that error, another one, or a success.
    pub fn catch(self, catch: impl Fn(&SubContext<'_>, &mut T, BoxError) -> SubResult + Send + Sync + 'static) -> Self {
        Self { catch: Some(Box::new(catch)), ..self }
    }

    /// Runs `step` after the body and [`catch`](Self::catch), even after a failure.
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
