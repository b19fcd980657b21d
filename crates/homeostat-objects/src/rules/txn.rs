//! Transactions: collect the changes of one call. A transaction sees its own changes; nobody else sees them before they
//! are stored.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::change::{Location, ObjectChange, has_owners_of};
use super::cost;
use super::distinct_queue::DistinctQueue;
use super::index::ObjectIndex;
use super::stored::StoredObjects;
use crate::json::{meta_mut, owners_of, string, uid_of, whole_seconds};
use crate::{ClientError, Deletion, Kind, ObjectKey, SharedObject, ValueRef};
use homeostat::queue::FastState;

/// Computes the changes that the calls of a client make to a store `S`, by the rules of an API server.
///
/// A transaction sees its own changes; nobody else sees them before they are stored. An example is in the
/// [module](crate::store).
#[derive(Debug)]
pub struct Transaction<'a, S> {
    store: &'a S,
    /// The size limit of an object's JSON, in bytes.
    pub(crate) most_size: usize,
    /// The current time, in whole seconds.
    pub(crate) now: Timestamp,
    changes: Vec<Arc<ObjectChange>>,
    /// The objects written by this transaction; `None` if removed.
    written: HashMap<Location, Option<SharedObject>, FastState>,
    /// The kinds of these objects. There are few.
    written_kinds: Vec<Arc<Kind>>,
    /// The changes that this transaction makes to the index of the store.
    index: ObjectIndex,
    /// The objects with changed owners or dependents.
    pub(crate) unsettled: DistinctQueue<Location>,
}

impl<'a, S: StoredObjects> Transaction<'a, S> {
    /// Begins a transaction at the time `now`. The JSON of an object may have `most_size` bytes.
    #[must_use]
    pub fn new(store: &'a S, most_size: usize, now: Timestamp) -> Self {
        let now = whole_seconds(now);
        let (changes, written, written_kinds) = (Vec::new(), HashMap::default(), Vec::new());
        let (index, unsettled) = (ObjectIndex::default(), DistinctQueue::default());
        Self { store, most_size, now, changes, written, written_kinds, index, unsettled }
    }

    /// Returns the changes, in their order.
    #[must_use]
    pub fn into_changes(self) -> Vec<Arc<ObjectChange>> {
        self.changes
    }

    /// Returns the changes, and the objects that are not [settled](Self::settle_one).
    #[must_use]
    pub fn into_parts(self) -> (Vec<Arc<ObjectChange>>, Vec<Location>) {
        let Self { changes, mut unsettled, .. } = self;
        (changes, unsettled.take_all().collect())
    }

    /// Returns the number of changes so far.
    pub(crate) fn count(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn location(&self, kind: &Kind, key: &ObjectKey) -> Location {
        Location { kind: self.store.kind(kind), key: key.clone() }
    }

    pub(crate) fn find(&self, location: &Location) -> Option<SharedObject> {
        cost::visit();
        match self.written.get(location) {
            Some(written) => written.clone(),
            None => self.store.object(location),
        }
    }

    pub(crate) fn get(&self, location: &Location) -> Result<SharedObject, ClientError> {
        self.find(location).ok_or_else(|| ClientError::not_found(location.object_ref()))
    }

    /// Returns the dependents of the owner with this uid.
    pub(crate) fn dependents(&self, uid: &str) -> BTreeSet<Location> {
        let before = self.store.dependents(uid).filter(|location| !self.written.contains_key(location));
        before.chain(self.index.dependents(uid).cloned()).collect()
    }

    /// Returns whether a dependent blocks the foreground deletion of the owner with this uid.
    pub(crate) fn is_blocked(&self, uid: &str) -> bool {
        self.store.blocking(uid) + self.index.blocking(uid) > 0
    }

    /// Returns the version of the next change.
    pub(crate) fn next_version(&self) -> u64 {
        self.store.head() + 1 + self.changes.len() as u64
    }

    /// Writes an object, or removes it. For a removal, `object` is the last state.
    pub(crate) fn change(&mut self, location: &Location, mut object: Value, removed: bool) {
        let version = self.next_version();
        meta_mut(&mut object).insert("resourceVersion".to_owned(), version.to_string().into());
        let old = self.find(location);
        let object = SharedObject::from(object);
        // Removing a dependent, or its references, may end the wait of its owners.
        if let Some(old) = old.as_ref().filter(|old| removed || !has_owners_of(old, &object)) {
            let owners = self.owners(location, old);
            self.unsettled.extend(owners);
        }
        if let Some(old) = &old {
            self.index.remove(old, location);
        }
        if !removed {
            self.index.insert(&object, location);
        }
        self.written.insert(location.clone(), (!removed).then(|| object.clone()));
        if !self.written_kinds.contains(&location.kind) {
            self.written_kinds.push(Arc::clone(&location.kind));
        }
        if !removed {
            self.unsettled.push(location.clone());
        } else if S::IS_EXCLUSIVE {
            self.unsettled.extend(self.dependents(object.uid()));
        }
        // The history need not count the new object, because the state holds it.
        let kept = old.as_ref().map_or(0, SharedObject::footprint) + if removed { object.footprint() } else { 0 };
        let change = ObjectChange { version, location: location.clone(), old, object, removed, kept };
        self.changes.push(Arc::new(change));
    }

    pub(crate) fn put(&mut self, location: &Location, object: Value) {
        self.change(location, object, false);
    }

    /// Returns the object as it is at the end of the transaction. If it was removed, returns its last state.
    ///
    /// # Errors
    ///
    /// Returns [`NotFound`](crate::ClientErrorKind::NotFound) if there is no such object.
    pub fn outcome(&self, location: &Location) -> Result<SharedObject, ClientError> {
        match self.changes.iter().rfind(|change| change.location == *location) {
            Some(change) => Ok(change.object.clone()),
            None => self.get(location),
        }
    }

    /// Returns whether the object exists at the end of the transaction.
    #[must_use]
    pub fn deletion(&self, location: &Location) -> Deletion<SharedObject> {
        self.find(location).map_or(Deletion::Gone, Deletion::Deleting)
    }

    /// Returns the locations of the existing owners of an object.
    fn owners(&self, location: &Location, object: &SharedObject) -> Vec<Location> {
        owners_of(object).filter_map(|owner| self.owner(location, owner)).collect()
    }

    /// Returns the location of the owner that an entry of `ownerReferences` names, if the owner exists. It must have
    /// this uid and name and this kind in any version, and be in the object's namespace or cluster-wide.
    pub(crate) fn owner(&self, location: &Location, owner: ValueRef<'_>) -> Option<Location> {
        let is_near = |found: &Location| ["", location.key.namespace()].contains(&found.key.namespace());
        let found = self.namesake(location, owner)?;
        (string(owner, "name") == found.key.name() && is_near(&found)).then_some(found)
    }

    /// Returns whether this client has had objects of the owner's kind, in any version, since it was opened. The kind
    /// of the dependent at `location` also counts.
    pub(crate) fn knows_kind(&self, location: &Location, owner: ValueRef<'_>) -> bool {
        let (api_version, name) = (string(owner, "apiVersion"), string(owner, "kind"));
        location.kind.is_version_of(api_version, name)
            || self.store.has_kind(api_version, name)
            || self.written_kinds.iter().inspect(|_| cost::visit()).any(|kind| kind.is_version_of(api_version, name))
    }

    /// Returns the location of the object with the uid and kind in an entry of `ownerReferences`. Some stores find it
    /// in any namespace and with any name.
    pub(crate) fn namesake(&self, dependent: &Location, owner: ValueRef<'_>) -> Option<Location> {
        let uid = uid_of(owner);
        let location = self.index.location(uid).cloned().or_else(|| self.store.owner(dependent, owner))?;
        let is_there = || self.find(&location).is_some_and(|found| found.uid() == uid);
        let is_kind = location.kind.is_version_of(string(owner, "apiVersion"), string(owner, "kind"));
        (is_kind && is_there()).then_some(location)
    }
}
