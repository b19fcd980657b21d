//! The options and outcomes of deletions.

use std::time::Duration;

/// The outcome of a deletion.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DeleteOptions, Deletion, DynamicObject, Kind, MemoryClient, Object, add_finalizer};
/// use std::sync::Arc;
///
/// const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// let vms = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), VM);
/// let free = vms.create(&DynamicObject::new(&VM, "default", "free"))?;
/// let held = vms.create(&DynamicObject::new(&VM, "default", "held"))?;
/// add_finalizer(&vms, &held, "example.com/disk")?;
///
/// assert_eq!(vms.delete(&free.key(), &DeleteOptions::default())?, Deletion::Gone);
/// let deletion = vms.delete(&held.key(), &DeleteOptions::default())?;
/// assert!(deletion.object().unwrap().meta().is_deleting());
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion<T> {
    /// Finalizers or a grace period delay the removal. The object still exists, with a `deletionTimestamp`.
    Deleting(T),
    /// The object no longer exists.
    Gone,
}

impl<T> Deletion<T> {
    /// Returns whether the object no longer exists.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }

    /// Returns the object if finalizers or a grace period delay its removal.
    #[must_use]
    pub fn object(&self) -> Option<&T> {
        match self {
            Self::Deleting(object) => Some(object),
            Self::Gone => None,
        }
    }

    /// Returns the object by value if finalizers or a grace period delay its removal.
    #[must_use]
    pub fn into_object(self) -> Option<T> {
        match self {
            Self::Deleting(object) => Some(object),
            Self::Gone => None,
        }
    }

    /// Converts the object.
    ///
    /// # Errors
    ///
    /// The errors of `convert`.
    pub fn try_map<U, E>(self, convert: impl FnOnce(T) -> Result<U, E>) -> Result<Deletion<U>, E> {
        Ok(match self {
            Self::Deleting(object) => Deletion::Deleting(convert(object)?),
            Self::Gone => Deletion::Gone,
        })
    }
}

/// Options for the deletion of an object.
///
/// By default any version of the object is deleted, with [`Propagation::Background`].
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DeleteOptions, Propagation};
///
/// let options = DeleteOptions::default().uid("u-1").propagation(Propagation::Foreground);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Deletes the object only if it has this uid.
    pub uid: Option<String>,
    /// Deletes the object only if it has this version.
    pub resource_version: Option<String>,
    /// How the dependents are treated.
    pub propagation: Propagation,
    /// Removes the object at once, even if it has finalizers.
    pub purge: bool,
    /// The time that the object has to end; `None` for the default of its kind.
    pub grace_period: Option<Duration>,
}

impl DeleteOptions {
    /// Sets the uid that the object must have. If it has another, the deletion is a conflict.
    ///
    /// In a run of a controller, the uid also distinguishes the deleted object from a later one with the same name.
    /// Without it, such a new object can delay the key for the whole
    /// [bound](crate::ControllerExt::own_write_bound).
    #[must_use]
    pub fn uid(self, uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), ..self }
    }

    /// Sets the version that the object must have. If it has another, the deletion is a conflict.
    #[must_use]
    pub fn resource_version(self, version: impl Into<String>) -> Self {
        Self { resource_version: Some(version.into()), ..self }
    }

    /// Sets the time that the object has to end, rounded up to whole seconds. Zero ends it at once.
    ///
    /// In Kubernetes only pods end gracefully. All other kinds ignore this setting. The embedded clients and NATS
    /// ignore it too: an object without finalizers is gone at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::DeleteOptions;
    /// use std::time::Duration;
    ///
    /// let at_once = DeleteOptions::default().grace_period(Duration::ZERO);
    /// # let _ = at_once;
    /// ```
    #[must_use]
    pub fn grace_period(self, time: Duration) -> Self {
        Self { grace_period: Some(time), ..self }
    }

    /// Sets how the dependents of the object are treated.
    #[must_use]
    pub fn propagation(self, propagation: Propagation) -> Self {
        Self { propagation, ..self }
    }

    /// Removes the object at once, even if it has finalizers.
    #[must_use]
    pub fn purge(self) -> Self {
        Self { purge: true, ..self }
    }
}

/// How the dependents of a deleted object are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// They are deleted after the owner.
    #[default]
    Background,
    /// They are deleted before the owner. The owner stays until all dependents that
    /// [block](super::OwnerReference::block_owner_deletion) it are gone.
    Foreground,
    /// They stay, and their references to the owner are removed.
    Orphan,
}
