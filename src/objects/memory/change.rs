//! The changes that a transaction makes, and the journal that stores them. Plain values.

use std::sync::Arc;

use crate::objects::{Kind, ObjectKey, ObjectRef, SharedObject};
use crate::run::error::BoxError;

/// The kind and key of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Location {
    pub(super) kind: Arc<Kind>,
    pub(super) key: ObjectKey,
}

impl Location {
    pub(super) fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind, &self.key)
    }
}

/// The write or removal of one object.
#[derive(Clone, Debug)]
pub(super) struct ObjectChange {
    pub(super) version: u64,
    pub(super) location: Location,
    /// The object before the change; `None` if the change creates it.
    pub(super) old: Option<SharedObject>,
    /// The object after the change. For a removal, its last state.
    pub(super) object: SharedObject,
    pub(super) removed: bool,
    /// About how many bytes the history needs for this change, once the object has changed again.
    pub(super) kept: usize,
}

/// Stores changes before they are applied to the state.
pub(super) trait ChangeJournal: Send + Sync {
    /// Stores all of these changes or none.
    fn store(&self, changes: &[Arc<ObjectChange>]) -> Result<(), BoxError>;
}
