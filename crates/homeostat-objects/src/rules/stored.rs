//! The store that a transaction reads from.

use std::sync::Arc;

use super::change::Location;
use crate::{Kind, SharedObject, ValueRef};

/// A store as it was before a transaction.
///
/// A store that cannot be read answers as if it were empty, and remembers the error. Its owner then discards the
/// transaction.
pub trait StoredObjects {
    /// Whether the transaction is the only writer of the store. If not, the owner of the store looks for the dependents
    /// of a removed object after the removal.
    const IS_EXCLUSIVE: bool;

    /// Returns the version of the last change. The transaction numbers its changes from here.
    fn head(&self) -> u64;

    /// Returns the one copy of this kind that all locations share.
    fn kind(&self, kind: &Kind) -> Arc<Kind>;

    /// Returns whether the store has, or has had, objects of this kind in any version.
    fn has_kind(&self, api_version: &str, name: &str) -> bool;

    /// Returns the object at a location.
    fn object(&self, location: &Location) -> Option<SharedObject>;

    /// Returns the location of the object that an entry of `ownerReferences` refers to. `location` is the dependent.
    /// The object found may be another one: the caller compares uid and kind.
    fn owner(&self, location: &Location, owner: ValueRef<'_>) -> Option<Location>;

    /// Returns the dependents of the owner with this uid.
    fn dependents(&self, uid: &str) -> impl Iterator<Item = Location>;

    /// Returns how many references block the deletion of the owner with this uid.
    fn blocking(&self, uid: &str) -> isize;
}
