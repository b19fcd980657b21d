//! Reasons and messages of common events, so that all controllers use the same words.
//!
//! # Examples
//!
//! ```
//! use homeostat_objects::{EventRecorder, EventType, Kind, ObjectKey, ObjectRef, reasons};
//! # use homeostat_objects::DynamicObject;
//!
//! const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
//! # let vm = DynamicObject::new(&VM, "default", "vm-1");
//! let recorder = EventRecorder::builder("vm-controller").build();
//! let disk = ObjectRef::new(&Kind::namespaced("example.com", "v1", "Disk"), &ObjectKey::new("default", "disk-1"));
//! recorder.event(&vm, EventType::Normal, reasons::SYNCED, &reasons::created(&disk));
//! assert_eq!(reasons::created(&disk), "Disk default/disk-1 is created: in step");
//! ```

use super::error::ObjectRef;

/// An object is in the desired state.
pub const SYNCED: &str = "Synced";

/// A desired object already exists, but another controller manages it.
pub const ERR_RESOURCE_EXISTS: &str = "ErrResourceExists";

/// A dependent was created.
pub const CREATED: &str = "Created";

/// A dependent could not be created.
pub const CREATION_FAILED: &str = "CreationFailed";

/// A dependent was updated.
pub const UPDATED: &str = "Updated";

/// A dependent could not be updated.
pub const UPDATE_FAILED: &str = "UpdateFailed";

/// A dependent was deleted.
pub const DELETED: &str = "Deleted";

/// A dependent could not be deleted.
pub const DELETE_FAILED: &str = "DeleteFailed";

/// The status of an object was updated.
pub const STATUS_UPDATED: &str = "StatusUpdated";

/// The status of an object could not be updated.
pub const STATUS_UPDATE_FAILED: &str = "StatusUpdateFailed";

/// The finalizers of an object were changed.
pub const FINALIZER_PATCHED: &str = "FinalizerPatched";

/// The finalizers of an object could not be changed.
pub const FINALIZER_PATCH_FAILED: &str = "FinalizerPatchFailed";

/// The message of [`SYNCED`] after an object was created.
#[must_use]
pub fn created(object: &ObjectRef) -> String {
    format!("{object} is created: in step")
}

/// The message of [`SYNCED`] after an object was updated.
#[must_use]
pub fn updated(object: &ObjectRef) -> String {
    format!("{object} is updated: in step")
}

/// The message of [`SYNCED`] after an object was deleted.
#[must_use]
pub fn deleted(object: &ObjectRef) -> String {
    format!("{object} is deleted: in step")
}

/// The message of [`SYNCED`] after an external resource was converged.
#[must_use]
pub fn converged(external: &str) -> String {
    format!("{external} is converged: in step")
}

/// The message of [`SYNCED`] after an external resource was removed.
#[must_use]
pub fn removed(external: &str) -> String {
    format!("{external} is removed: in step")
}

/// The message of [`ERR_RESOURCE_EXISTS`].
#[must_use]
pub fn exists(object: &ObjectRef) -> String {
    format!("{object} already exists, and this controller does not manage it")
}
