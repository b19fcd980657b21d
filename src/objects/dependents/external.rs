//! External resources, which owners have outside all clients.

use std::error::Error;
use std::fmt;

use crate::objects::{Object, ObjectKey, ObjectRef};
use crate::run::context::Context;
use crate::run::error::BoxError;

/// A resource that an object has outside all clients: files, a DNS name, a rented machine.
///
/// A [`PrimaryController`](super::super::PrimaryController) and an [`ExternalReconciler`](crate::sub::ExternalReconciler) keep it as the
/// object says. No watch reports its changes, so it is observed in each run and at each resync.
///
/// Every method must be idempotent. It may be called again after it failed halfway, and by several threads for different objects.
pub trait External<T: Object>: Send + Sync + 'static {
    /// Returns whether the resource is as the object wants it. Changes nothing.
    ///
    /// # Errors
    ///
    /// If the state cannot be read. The run fails.
    fn observe(&self, cx: &Context, owner: &T) -> Result<bool, BoxError>;

    /// Creates or changes the resource. Called if [`observe`](Self::observe) returned `false`.
    ///
    /// # Errors
    ///
    /// If the resource cannot be changed. The run fails.
    fn converge(&self, cx: &Context, owner: &T) -> Result<(), BoxError>;

    /// Returns the keys of all objects that have such a resource, to find the resources of objects that are gone.
    ///
    /// Only a `PrimaryController` calls it. Under an `ExternalReconciler` a finalizer keeps the object until its resource is removed.
    ///
    /// # Errors
    ///
    /// If the resources cannot be listed. The error is logged, and the next resync lists again.
    fn list(&self, cx: &Context) -> Result<Vec<ObjectKey>, BoxError>;

    /// Removes the resource of the object with this key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// If the resource cannot be removed. The run fails.
    fn remove(&self, cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError>;
}

/// An external resource with its name in events, errors and log lines.
pub(crate) struct ExternalResource<T> {
    pub(crate) name: String,
    pub(crate) external: Box<dyn External<T>>,
}

impl<T: Object> ExternalResource<T> {
    pub(crate) fn new(name: impl Into<String>, external: impl External<T>) -> Self {
        Self { name: name.into(), external: Box::new(external) }
    }

    /// Returns whether the resource had to be changed.
    pub(crate) fn sync(&self, cx: &Context, owner: &T) -> Result<bool, BoxError> {
        let synced = self
            .external
            .observe(cx, owner)
            .and_then(|in_step| if in_step { Ok(false) } else { self.external.converge(cx, owner).map(|()| true) });
        synced.map_err(|error| self.failed(owner.object_ref(), error))
    }

    /// Returns whether there was a resource to remove.
    pub(crate) fn remove(&self, cx: &Context, owner: &ObjectRef) -> Result<bool, BoxError> {
        self.external.remove(cx, owner.key()).map_err(|error| self.failed(owner.clone(), error))
    }

    fn failed(&self, owner: ObjectRef, source: BoxError) -> BoxError {
        ExternalError { external: self.name.clone(), owner, source }.into()
    }
}

/// The failure of an external resource.
#[derive(Debug)]
struct ExternalError {
    external: String,
    owner: ObjectRef,
    source: BoxError,
}

impl fmt::Display for ExternalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.external, self.owner)
    }
}

impl Error for ExternalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
