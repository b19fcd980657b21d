//! Transactions: collect the changes of one call. A transaction sees its own changes; nobody else does before they are stored.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::change::{Location, ObjectChange};
use super::index::ObjectIndex;
use super::state::ServerState;
use crate::objects::json::{meta_mut, owners_of, string, uid_of};
use crate::objects::{ClientError, Kind, ObjectKey, SharedObject, ValueRef};

pub(super) struct Txn<'a> {
    pub(super) state: &'a ServerState,
    /// The most bytes of an object's JSON.
    pub(super) most_size: usize,
    /// The time, in whole seconds.
    pub(super) now: Timestamp,
    changes: Vec<Arc<ObjectChange>>,
    /// The objects written by this transaction; `None` if removed.
    written: HashMap<Location, Option<SharedObject>>,
    /// The changes of this transaction to the index of the state.
    index: ObjectIndex,
    pub(super) unsettled: Unsettled,
}

/// A queue of locations whose owners or dependents have changed, each at most once.
#[derive(Default)]
pub(super) struct Unsettled {
    line: VecDeque<Location>,
    known: HashSet<Location>,
}

impl Unsettled {
    pub(super) fn extend(&mut self, locations: impl IntoIterator<Item = Location>) {
        for location in locations {
            if self.known.insert(location.clone()) {
                self.line.push_back(location);
            }
        }
    }

    pub(super) fn take(&mut self) -> Option<Location> {
        let location = self.line.pop_front()?;
        self.known.remove(&location);
        Some(location)
    }
}

impl<'a> Txn<'a> {
    pub(super) fn new(state: &'a ServerState, most_size: usize, now: Timestamp) -> Self {
        let (written, index, unsettled) = (HashMap::new(), ObjectIndex::default(), Unsettled::default());
        Self { state, most_size, now, changes: Vec::new(), written, index, unsettled }
    }

    pub(super) fn into_changes(self) -> Vec<Arc<ObjectChange>> {
        self.changes
    }

    /// Returns the number of changes so far.
    pub(super) fn count(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn location(&self, kind: &Kind, key: &ObjectKey) -> Location {
        Location { kind: self.state.kind(kind), key: key.clone() }
    }

    pub(super) fn find(&self, location: &Location) -> Option<SharedObject> {
        super::cost::visit();
        match self.written.get(location) {
            Some(written) => written.clone(),
            None => self.state.get(&location.kind, &location.key).cloned(),
        }
    }

    pub(super) fn get(&self, location: &Location) -> Result<SharedObject, ClientError> {
        self.find(location).ok_or_else(|| ClientError::not_found(location.object_ref()))
    }

    /// Returns the dependents of the owner with this uid.
    pub(super) fn dependents(&self, uid: &str) -> BTreeSet<Location> {
        let before = self.state.index.dependents(uid).filter(|location| !self.written.contains_key(location));
        before.chain(self.index.dependents(uid)).cloned().collect()
    }

    /// Returns whether a dependent blocks the foreground deletion of the owner with this uid.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        self.state.index.blocking(uid) + self.index.blocking(uid) > 0
    }

    /// Returns the version of the next change.
    pub(super) fn next_version(&self) -> u64 {
        self.state.head + 1 + self.changes.len() as u64
    }

    /// Writes an object, or removes it. For a removal, `object` is the last state.
    pub(super) fn change(&mut self, location: &Location, mut object: Value, removed: bool) {
        let version = self.next_version();
        meta_mut(&mut object).insert("resourceVersion".to_owned(), version.to_string().into());
        let old = self.find(location);
        let object = SharedObject::from(object);
        let owners = old.iter().flat_map(|old| self.owners(location, old)).collect::<Vec<_>>();
        self.unsettled.extend(owners);
        if let Some(old) = &old {
            self.index.remove(old, location);
        }
        if !removed {
            self.index.insert(&object, location);
        }
        self.written.insert(location.clone(), (!removed).then(|| object.clone()));
        if removed {
            self.unsettled.extend(self.dependents(object.uid()));
        } else {
            self.unsettled.extend([location.clone()]);
        }
        // The history need not count the new object, because the state holds it.
        let kept = old.as_ref().map_or(0, SharedObject::footprint) + if removed { object.footprint() } else { 0 };
        let change = ObjectChange { version, location: location.clone(), old, object, removed, kept };
        self.changes.push(Arc::new(change));
    }

    pub(super) fn put(&mut self, location: &Location, object: Value) {
        self.change(location, object, false);
    }

    /// Returns the object at the end of the transaction. If it was removed, returns its last state.
    pub(super) fn outcome(&self, location: &Location) -> Result<SharedObject, ClientError> {
        match self.changes.iter().rfind(|change| change.location == *location) {
            Some(change) => Ok(change.object.clone()),
            None => self.get(location),
        }
    }

    /// Returns the locations of the existing owners of an object.
    fn owners(&self, location: &Location, object: &SharedObject) -> Vec<Location> {
        owners_of(object).filter_map(|owner| self.owner(location, owner)).collect()
    }

    /// Returns the location of the owner that an entry of `ownerReferences` names, if the owner exists. It must have this uid and
    /// name and this kind in any version, and be in the object's namespace or cluster-wide.
    pub(super) fn owner(&self, location: &Location, owner: ValueRef<'_>) -> Option<Location> {
        let is_near = |found: &Location| ["", location.key.namespace()].contains(&found.key.namespace());
        let found = self.namesake(owner)?;
        (string(owner, "name") == found.key.name() && is_near(&found)).then_some(found)
    }

    /// Returns the location of the object with the uid and kind in an entry of `ownerReferences`, in any namespace.
    pub(super) fn namesake(&self, owner: ValueRef<'_>) -> Option<Location> {
        let uid = uid_of(owner);
        let location = self.index.location(uid).or_else(|| self.state.index.location(uid))?;
        let is_there = || self.find(location).is_some_and(|found| found.uid() == uid);
        (location.kind.is_version_of(string(owner, "apiVersion"), string(owner, "kind")) && is_there())
            .then(|| location.clone())
    }
}
