//! A step with custom code.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Flow, SubResult, both};
use super::setup::Setup;
use homeostat::run::BoxError;

/// Runs custom code as a step. Its closures get the object, for example to change its status.
///
/// | the object | called |
/// |---|---|
/// | is not being deleted | `sync` |
/// | is being deleted | `sync` if [enabled](Self::also_while_deleting), then `finalize` if set |
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Object};
/// use homeostat_objects::sub::{Flow, SubContext, SubResult, SyncReconciler};
/// use serde_json::json;
///
/// fn resolve(_cx: &SubContext<'_>, function: &mut DynamicObject) -> SubResult {
///     let image = format!("registry.example.com/{}", function.name());
///     function.fields_mut().insert("status".to_owned(), json!({"image": image}));
///     Ok(Flow::proceed())
/// }
///
/// let target_image = SyncReconciler::new(resolve).named("target-image");
/// # let _ = target_image;
/// ```
pub struct SyncReconciler<T> {
    name: String,
    sync: Box<dyn SubReconciler<T>>,
    finalize: Option<Box<dyn SubReconciler<T>>>,
    also_while_deleting: bool,
    setup: Option<SetupHook>,
}

/// A custom set-up.
pub(super) type SetupHook = Box<dyn Fn(&mut Setup<'_>) -> Result<(), BoxError> + Send + Sync>;

impl<T> SyncReconciler<T> {
    /// Calls `sync` for an object that is not being deleted.
    #[must_use]
    pub fn new(sync: impl Fn(&SubContext<'_>, &mut T) -> SubResult + Send + Sync + 'static) -> Self {
        Self { name: "sync".to_owned(), sync: Box::new(sync), finalize: None, also_while_deleting: false, setup: None }
    }

    /// Calls `finalize` for an object that is being deleted. To keep the object until then, use for example
    /// [`WithFinalizer`](super::WithFinalizer).
    #[must_use]
    pub fn finalize(self, finalize: impl Fn(&SubContext<'_>, &mut T) -> SubResult + Send + Sync + 'static) -> Self {
        Self { finalize: Some(Box::new(finalize)), ..self }
    }

    /// Calls `sync` even for an object that is being deleted.
    #[must_use]
    pub fn also_while_deleting(self) -> Self {
        Self { also_while_deleting: true, ..self }
    }

    /// Calls `setup` as the set-up.
    #[must_use]
    pub fn setup(self, setup: impl Fn(&mut Setup<'_>) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        Self { setup: Some(Box::new(setup)), ..self }
    }

    /// Sets the name in log lines. Default: `sync`.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

impl<T> SubReconciler<T> for SyncReconciler<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.setup.as_ref().map_or(Ok(()), |hook| hook(setup))
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let cx = &cx.named(&self.name);
        let mut result = Ok(Flow::proceed());
        if !cx.is_deleting() || self.also_while_deleting {
            result = self.sync.reconcile(cx, resource);
        }
        match (&self.finalize, &result) {
            (Some(finalize), Ok(flow)) if cx.is_deleting() && !flow.is_halted() => {
                both(result, finalize.reconcile(cx, resource))
            }
            _ => result,
        }
    }
}

impl<T> fmt::Debug for SyncReconciler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncReconciler").field("name", &self.name).finish_non_exhaustive()
    }
}
