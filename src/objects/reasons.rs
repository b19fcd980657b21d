//! Reasons and messages of events that many controllers record, so that people find the same words everywhere.
//!
//! # Examples
//!
//! ```
//! use homeostat::objects::{EventRecorder, EventType, Kind, ObjectKey, ObjectRef, reasons};
//! # use homeostat::objects::DynamicObject;
//!
//! const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
//! # let vm = DynamicObject::new(&VM, "default", "vm-1");
//! let recorder = EventRecorder::builder("vm-controller").build();
//! let disk = ObjectRef::new(&Kind::namespaced("example.com", "v1", "Disk"), &ObjectKey::new("default", "disk-1"));
//! recorder.event(&vm, EventType::Normal, reasons::SYNCED, &reasons::created(&disk));
//! assert_eq!(reasons::created(&disk), "Disk default/disk-1 is created: in step");
//! ```

use super::error::ObjectRef;

/// An object is as it should be.
pub const SYNCED: &str = "Synced";

/// An object that is to be made is there already, and is another's.
pub const ERR_RESOURCE_EXISTS: &str = "ErrResourceExists";

/// What belongs to an object has been created.
pub const CREATED: &str = "Created";

/// It could not be created.
pub const CREATION_FAILED: &str = "CreationFailed";

/// What belongs to an object has been changed.
pub const UPDATED: &str = "Updated";

/// It could not be changed.
pub const UPDATE_FAILED: &str = "UpdateFailed";

/// What belongs to an object has been deleted.
pub const DELETED: &str = "Deleted";

/// It could not be deleted.
pub const DELETE_FAILED: &str = "DeleteFailed";

/// The status of an object has been changed.
pub const STATUS_UPDATED: &str = "StatusUpdated";

/// It could not be changed.
pub const STATUS_UPDATE_FAILED: &str = "StatusUpdateFailed";

/// The finalizers of an object have been changed.
pub const FINALIZER_PATCHED: &str = "FinalizerPatched";

/// They could not be changed.
pub const FINALIZER_PATCH_FAILED: &str = "FinalizerPatchFailed";

/// For [`SYNCED`]: the object was not there.
#[must_use]
pub fn created(object: &ObjectRef) -> String {
    format!("{object} is created: in step")
}

/// For [`SYNCED`]: the object was another.
#[must_use]
pub fn updated(object: &ObjectRef) -> String {
    format!("{object} is updated: in step")
}

/// For [`SYNCED`]: the object was there, and should not be.
#[must_use]
pub fn deleted(object: &ObjectRef) -> String {
    format!("{object} is deleted: in step")
}

/// For [`SYNCED`]: an external resource was not as it should be.
#[must_use]
pub fn converged(external: &str) -> String {
    format!("{external} is converged: in step")
}

/// For [`SYNCED`]: an external resource was there, and should not be.
#[must_use]
pub fn removed(external: &str) -> String {
    format!("{external} is removed: in step")
}

/// For [`ERR_RESOURCE_EXISTS`].
#[must_use]
pub fn exists(object: &ObjectRef) -> String {
    format!("{object} already exists, and this controller does not manage it")
}
