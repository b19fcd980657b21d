//! The changes that a transaction makes. Plain values.

use std::sync::Arc;

use crate::json::{meta_field, owners_of};
use crate::{Kind, ObjectKey, ObjectRef, SharedObject};

/// The finalizer of an object in foreground deletion. It is removed once no dependent blocks the deletion.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that waits until no dependent refers to it.
pub(crate) const ORPHAN: &str = "orphan";

/// The kind and key of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The kind, as the store shares it.
    pub kind: Arc<Kind>,
    /// The namespace and name.
    pub key: ObjectKey,
}

impl Location {
    /// Returns the object that errors name.
    #[must_use]
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind, &self.key)
    }
}

/// The write or removal of one object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectChange {
    /// The version of the object after the change.
    pub version: u64,
    /// The place of the object.
    pub location: Location,
    /// The object before the change; `None` if the change creates it.
    pub old: Option<SharedObject>,
    /// The object after the change. For a removal, its last state.
    pub object: SharedObject,
    /// Whether the change removes the object.
    pub removed: bool,
    /// The approximate number of bytes that the history needs for this change, once the object has
    /// changed again.
    pub(crate) kept: usize,
}

impl ObjectChange {
    /// Returns whether nothing follows from the change: its object's owners and dependents need no
    /// [settling](super::txn::Transaction::settle_one).
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let Self { old, object, removed, .. } = self;
        let has_old_owners = match old {
            Some(old) => has_owners_of(old, object),
            None => owners_of(object).next().is_none(),
        };
        !removed && has_old_owners && !is_waiting(object) && !is_orphaning(object)
    }
}

/// Returns whether two states of an object have the same references to owners.
pub(super) fn has_owners_of(one: &SharedObject, other: &SharedObject) -> bool {
    meta_field(one, "ownerReferences") == meta_field(other, "ownerReferences")
}

/// Returns whether an object is in foreground deletion, waiting for its dependents.
#[must_use]
pub fn is_waiting(object: &SharedObject) -> bool {
    object.is_deleting() && object.finalizers().any(|name| name == FOREGROUND)
}

/// Returns whether an object is being deleted after its dependents have lost their references to it.
pub(super) fn is_orphaning(object: &SharedObject) -> bool {
    object.is_deleting() && object.finalizers().any(|name| name == ORPHAN)
}
