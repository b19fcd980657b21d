//! External resources, which belong to an object but are outside all clients.

use std::error::Error;
use std::fmt;

use crate::{Object, ObjectKey, ObjectRef};
use homeostat::rt::debug_with_causes;
use homeostat::run::{BoxError, Context};

/// A resource that belongs to an object but is outside all clients: files, a DNS name, a rented machine.
///
/// A [`PrimaryController`](super::super::PrimaryController) and an
/// [`ExternalReconciler`](crate::sub::ExternalReconciler) keep it in the state that the object asks for. No watch
/// reports its changes, so each run and each resync observes it.
///
/// Every method must be idempotent. It may be called again after it failed halfway, and by several threads for
/// different objects.
///
/// # Examples
///
/// A folder for each object:
///
/// ```
/// use homeostat::{BoxError, Context};
/// use homeostat_objects::{External, Object, ObjectKey};
/// use std::fs;
/// use std::path::PathBuf;
///
/// struct Folders(PathBuf);
///
/// impl<T: Object> External<T> for Folders {
///     fn observe(&self, _cx: &Context, owner: &T) -> Result<bool, BoxError> {
///         Ok(self.0.join(owner.key().name()).is_dir())
///     }
///
///     fn converge(&self, _cx: &Context, owner: &T) -> Result<(), BoxError> {
///         Ok(fs::create_dir_all(self.0.join(owner.key().name()))?)
///     }
///
///     fn list(&self, _cx: &Context) -> Result<Vec<ObjectKey>, BoxError> {
///         let mut keys = Vec::new();
///         for entry in fs::read_dir(&self.0)? {
///             keys.push(ObjectKey::new("default", &entry?.file_name().to_string_lossy()));
///         }
///         Ok(keys)
///     }
///
///     fn remove(&self, _cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError> {
///         let folder = self.0.join(owner.name());
///         Ok(folder.is_dir() && fs::remove_dir_all(folder).map(|()| true)?)
///     }
/// }
/// # use homeostat_objects::DynamicObject;
/// # let folder = tempfile::tempdir()?;
/// # let folders = Folders(folder.path().to_owned());
/// # const SITE: homeostat_objects::Kind = homeostat_objects::Kind::namespaced("example.com", "v1", "Site");
/// # let (cx, site) = (Context::detached(), DynamicObject::new(&SITE, "default", "shop"));
/// # assert!(!folders.observe(&cx, &site)?);
/// # folders.converge(&cx, &site)?;
/// # assert!(folders.observe(&cx, &site)?);
/// # let keys = External::<DynamicObject>::list(&folders, &cx)?;
/// # assert_eq!(keys, [site.key()]);
/// # assert!(External::<DynamicObject>::remove(&folders, &cx, &keys[0])?);
/// # assert!(!External::<DynamicObject>::remove(&folders, &cx, &keys[0])?);
/// # Ok::<_, BoxError>(())
/// ```
pub trait External<T: Object>: Send + Sync + 'static {
    /// Returns whether the resource is in the state that the object asks for. Changes nothing.
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

    /// Returns the keys of all objects that have such a resource. The controller uses this to find the resources of
    /// objects that are gone.
    ///
    /// Only a `PrimaryController` calls this, at its start and at each resync. Under an `ExternalReconciler`, a
    /// finalizer keeps the object until its resource is removed.
    ///
    /// # Errors
    ///
    /// If the resources cannot be listed. The listing is repeated after 30 seconds, or at the next resync if that is
    /// sooner. Status, `ready` and metrics report the failure of the source, which has the name of the external
    /// resource. A failed first listing does not delay the first runs.
    fn list(&self, cx: &Context) -> Result<Vec<ObjectKey>, BoxError>;

    /// Removes the resource of the object with this key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// If the resource cannot be removed. The run fails.
    fn remove(&self, cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError>;
}

/// An external resource with its name for events, errors and log lines.
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
        let synced = || {
            if self.external.observe(cx, owner)? {
                return Ok(false);
            }
            cx.check_term()?;
            self.external.converge(cx, owner).map(|()| true)
        };
        synced().map_err(|error| self.failed(owner.object_ref(), error))
    }

    /// Returns whether there was a resource to remove.
    pub(crate) fn remove(&self, cx: &Context, owner: &ObjectRef) -> Result<bool, BoxError> {
        let removed = cx.check_term().map_err(BoxError::from).and_then(|()| self.external.remove(cx, owner.key()));
        removed.map_err(|error| self.failed(owner.clone(), error))
    }

    fn failed(&self, owner: ObjectRef, source: BoxError) -> BoxError {
        ExternalError { external: self.name.clone(), owner, source }.into()
    }
}

/// The failure of an external resource.
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

debug_with_causes!(ExternalError);

impl Error for ExternalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{DynamicObject, Kind};
    use homeostat::rt::find;
    use homeostat::run::{Cancelled, Fence};

    /// A resource that ends the term in `observe`.
    struct Ending(Fence);

    impl External<DynamicObject> for Ending {
        fn observe(&self, _cx: &Context, _owner: &DynamicObject) -> Result<bool, BoxError> {
            self.0.ended().cancel();
            Ok(false)
        }

        fn converge(&self, _cx: &Context, _owner: &DynamicObject) -> Result<(), BoxError> {
            Err("converged".into())
        }

        fn list(&self, _cx: &Context) -> Result<Vec<ObjectKey>, BoxError> {
            Ok(Vec::new())
        }

        fn remove(&self, _cx: &Context, _owner: &ObjectKey) -> Result<bool, BoxError> {
            Err("removed".into())
        }
    }

    #[test]
    fn nothing_is_changed_after_the_end_of_the_term() {
        let fence = Fence::unlimited(1);
        let cx = Context::detached().in_term(Some(fence.clone()));
        let (resource, site) = (ExternalResource::new("dns", Ending(fence)), Kind::of("example.com/v1", "Site"));
        let site = DynamicObject::new(&site, "default", "a");
        for result in [resource.sync(&cx, &site), resource.remove(&cx, &site.object_ref())] {
            let error = result.unwrap_err();
            assert!(find::<Cancelled>(&*error).is_some(), "{error}");
        }
    }
}
