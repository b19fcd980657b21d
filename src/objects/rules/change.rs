//! The changes that a transaction makes. Plain values.

use std::sync::Arc;

use crate::objects::{Kind, ObjectKey, ObjectRef, SharedObject};

/// The kind and key of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) kind: Arc<Kind>,
    pub(crate) key: ObjectKey,
}

impl Location {
    pub(crate) fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind, &self.key)
    }
}

/// The write or removal of one object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectChange {
    pub(crate) version: u64,
    pub(crate) location: Location,
    /// The object before the change; `None` if the change creates it.
    pub(crate) old: Option<SharedObject>,
    /// The object after the change. For a removal, its last state.
    pub(crate) object: SharedObject,
    pub(crate) removed: bool,
    /// The approximate number of bytes that the history needs for this change, once the object has
    /// changed again.
    pub(crate) kept: usize,
}
