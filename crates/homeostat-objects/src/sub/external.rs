//! A step that keeps an external resource.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Flow, SubResult};
use crate::dependents::ExternalResource;
use crate::{EventType, External, Object, reasons};

/// Keeps an [external resource](External) of the reconciled object. A finalizer keeps the object while the resource
/// exists.
///
/// | the object | action |
/// |---|---|
/// | is not being deleted | adds the finalizer, observes the resource, and converges it if it differs from the desired state |
/// | is being deleted and has the finalizer | removes the resource, then the finalizer |
/// | is being deleted and does not have the finalizer | nothing |
///
/// The key of the object identifies the resource. No watch reports changes of the resource: add a
/// [resync](homeostat::controller::ControllerBuilder::resync) to the controller. Later steps can show the resource in
/// the status. The event `Synced` records each change.
///
/// # Errors
///
/// The errors of the resource, with its name and the object. The finalizer stays until the resource is removed.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, External, Object, ObjectKey};
/// use homeostat_objects::sub::ExternalReconciler;
/// use homeostat::{BoxError, Context};
/// use std::fs;
/// use std::path::PathBuf;
///
/// /// A directory for each object.
/// struct Directories(PathBuf);
///
/// impl Directories {
///     fn path(&self, key: &ObjectKey) -> PathBuf {
///         self.0.join(key.namespace()).join(key.name())
///     }
/// }
///
/// impl External<DynamicObject> for Directories {
///     fn observe(&self, _cx: &Context, owner: &DynamicObject) -> Result<bool, BoxError> {
///         Ok(self.path(&owner.key()).is_dir())
///     }
///
///     fn converge(&self, _cx: &Context, owner: &DynamicObject) -> Result<(), BoxError> {
///         Ok(fs::create_dir_all(self.path(&owner.key()))?)
///     }
///
///     fn list(&self, _cx: &Context) -> Result<Vec<ObjectKey>, BoxError> {
///         Ok(Vec::new()) // only a `PrimaryController` lists
///     }
///
///     fn remove(&self, _cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError> {
///         let path = self.path(owner);
///         Ok(path.is_dir() && fs::remove_dir_all(path).map(|()| true)?)
///     }
/// }
///
/// let step = ExternalReconciler::new("directory", "example.com/directory", Directories("/var/lib/shop".into()));
/// # let _ = step;
/// ```
#[must_use]
pub struct ExternalReconciler<T> {
    finalizer: String,
    resource: ExternalResource<T>,
}

impl<T: Object> ExternalReconciler<T> {
    /// Keeps `external`. The name is used in events, errors and log lines. The finalizer is a `domain/name`, and no
    /// other step may use it.
    pub fn new(name: impl Into<String>, finalizer: impl Into<String>, external: impl External<T>) -> Self {
        Self { finalizer: finalizer.into(), resource: ExternalResource::new(name, external) }
    }
}

impl<T: Object> SubReconciler<T> for ExternalReconciler<T> {
    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let Self { finalizer, resource: external } = self;
        let cx = &cx.named(&external.name);
        let synced = |message: &str| cx.event(EventType::Normal, reasons::SYNCED, message);
        if !cx.is_deleting() {
            cx.add_finalizer(&mut resource.meta_mut(), finalizer)?;
            if external.sync(cx, resource)? {
                synced(&reasons::converged(&external.name));
            }
        } else if resource.meta().has_finalizer(finalizer) {
            if external.remove(cx, cx.object())? {
                synced(&reasons::removed(&external.name));
            }
            cx.remove_finalizer(&mut resource.meta_mut(), finalizer)?;
        }
        Ok(Flow::proceed())
    }
}

impl<T> fmt::Debug for ExternalReconciler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalReconciler")
            .field("name", &self.resource.name)
            .field("finalizer", &self.finalizer)
            .finish_non_exhaustive()
    }
}
