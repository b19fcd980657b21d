//! Computes a write of one object without storing it. The rules of the embedded clients run on a store that contains
//! only this object.
//!
//! The result is the object as a write would store it. Its version, and the uid and name of a new object, are made up.
//! Owners and dependents are not considered.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use homeostat_objects::json::{key_of, meta_mut};
use homeostat_objects::store::{Location, Names, StoredObjects, Transaction, admit};
use homeostat_objects::{ClientError, FieldOwner, Kind, ObjectKey, Patch, PatchTarget, SharedObject, ValueRef};

/// A store that contains at most one object.
struct SingleObjectStore<'a> {
    kind: Arc<Kind>,
    object: Option<&'a SharedObject>,
}

impl StoredObjects for SingleObjectStore<'_> {
    const IS_EXCLUSIVE: bool = true;

    fn head(&self) -> u64 {
        0
    }

    fn kind(&self, _: &Kind) -> Arc<Kind> {
        Arc::clone(&self.kind)
    }

    fn has_kind(&self, _: &str, _: &str) -> bool {
        false
    }

    fn object(&self, location: &Location) -> Option<SharedObject> {
        self.object.filter(|object| object.key() == location.key).cloned()
    }

    fn owner(&self, _: &Location, _: ValueRef<'_>) -> Option<Location> {
        None
    }

    fn dependents(&self, _: &str) -> impl Iterator<Item = Location> {
        std::iter::empty()
    }

    fn blocking(&self, _: &str) -> isize {
        0
    }
}

/// Computes writes without storing them.
#[derive(Clone, Copy, Debug)]
pub(super) struct DryRun<'a> {
    pub(super) kind: &'a Kind,
    /// The stored object, or `None` if it does not exist.
    pub(super) current: Option<&'a SharedObject>,
    pub(super) most_size: usize,
    pub(super) now: Timestamp,
}

impl DryRun<'_> {
    pub(super) fn create(&self, object: Value) -> Result<SharedObject, ClientError> {
        let object = self.bounded(object)?;
        let created = self.run(|txn| txn.create(self.kind, object, Names::random()))?;
        Ok(with_version(&created, None))
    }

    pub(super) fn update(&self, object: Value, target: PatchTarget) -> Result<SharedObject, ClientError> {
        let object = self.bounded(object)?;
        let updated = self.run(|txn| txn.update(self.kind, object, target))?;
        Ok(with_version(&updated, self.current))
    }

    pub(super) fn patch(&self, patch: &Patch, target: PatchTarget) -> Result<SharedObject, ClientError> {
        let key = self.current.map_or_else(|| ObjectKey::cluster(""), SharedObject::key);
        let patched = self.run(|txn| txn.patch(self.kind, &key, patch, target))?;
        Ok(with_version(&patched, self.current))
    }

    pub(super) fn apply(&self, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError> {
        let object = self.bounded(object)?;
        let applied = self.run(|txn| txn.apply(self.kind, object, owner, Names::random()))?;
        Ok(with_version(&applied, self.current))
    }

    /// Refuses an object that is nested too deeply.
    fn bounded(&self, object: Value) -> Result<Value, ClientError> {
        let current = self.current.filter(|current| current.key() == key_of(&object)).cloned();
        admit(self.kind, object, |_| current)
    }

    fn run(
        &self,
        verb: impl FnOnce(&mut Transaction<'_, SingleObjectStore<'_>>) -> Result<Location, ClientError>,
    ) -> Result<SharedObject, ClientError> {
        let store = SingleObjectStore { kind: Arc::new(self.kind.clone()), object: self.current };
        let mut txn = Transaction::new(&store, self.most_size, self.now);
        let location = verb(&mut txn)?;
        txn.outcome(&location)
    }
}

/// Returns an object with the version of its stored state, because a dry run creates no version.
fn with_version(object: &SharedObject, current: Option<&SharedObject>) -> SharedObject {
    let mut object = object.to_value();
    match current {
        Some(current) => meta_mut(&mut object).insert("resourceVersion".to_owned(), current.resource_version().into()),
        None => meta_mut(&mut object).remove("resourceVersion"),
    };
    object.into()
}
