//! Indexes of objects: by uid, by the uids of their owners, and of events by age. Plain values.

use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;

use super::change::Location;
use super::cost;
use super::expiry::last_time;
use crate::json::{meta_field, owners_of, uid_of};
use crate::persistent::PersistentMap;
use crate::{SharedObject, ValueRef};

#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectIndex {
    /// The location of each object by its uid.
    locations: PersistentMap<Arc<str>, Location>,
    /// The dependents of each owner: pairs of the owner's uid and a dependent. `None` sorts before all dependents of an
    /// owner.
    dependents: PersistentMap<(Arc<str>, Option<Location>), ()>,
    /// The number of references that block the deletion of an owner, by its uid.
    blocking: PersistentMap<Arc<str>, isize>,
    /// The events that will expire, by their latest time.
    events: PersistentMap<(Timestamp, Location), ()>,
}

impl ObjectIndex {
    /// Returns the location of the object with this uid.
    pub(crate) fn location(&self, uid: &str) -> Option<&Location> {
        cost::visit();
        self.locations.get(uid)
    }

    /// Returns the dependents of the owner with this uid.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Location> {
        let owner: Arc<str> = uid.into();
        let from = (Arc::clone(&owner), None);
        let pairs = self.dependents.range(Bound::Excluded(&from), None).take_while(move |((uid, _), ())| *uid == owner);
        pairs.filter_map(|((_, location), ())| location.as_ref()).inspect(|_| cost::visit())
    }

    /// Returns how many references block the deletion of the owner with this uid. In the index of a transaction this is
    /// a difference.
    pub(crate) fn blocking(&self, uid: &str) -> isize {
        cost::visit();
        self.blocking.get(uid).copied().unwrap_or_default()
    }

    /// Returns the events with a latest time up to `time`, the oldest first.
    pub(crate) fn events_until(&self, time: Timestamp) -> impl Iterator<Item = &Location> {
        let visited = self.events.iter().inspect(|_| cost::visit());
        visited.take_while(move |((last, _), ())| *last <= time).map(|((_, location), ())| location)
    }

    /// Replaces an object at this location. `None` means that there is no object.
    pub(crate) fn replace(&mut self, old: Option<&SharedObject>, new: Option<&SharedObject>, location: &Location) {
        let is_known_alike = |old, new| entries_of(old, location) == entries_of(new, location);
        if old.zip(new).is_some_and(|(old, new)| is_known_alike(old, new)) {
            return;
        }
        if let Some(old) = old {
            self.remove(old, location);
        }
        if let Some(new) = new {
            self.insert(new, location);
        }
    }

    pub(crate) fn insert(&mut self, object: &SharedObject, location: &Location) {
        self.locations.insert(object.uid().into(), location.clone());
        if let Some(time) = last_time(location, object) {
            self.events.insert((time, location.clone()), ());
        }
        for owner in owners_of(object) {
            self.dependents.insert((uid_of(owner).into(), Some(location.clone())), ());
            self.count(owner, 1);
        }
    }

    /// Removes an object. The index of a transaction need not contain it.
    pub(crate) fn remove(&mut self, object: &SharedObject, location: &Location) {
        let uid = object.uid();
        if self.locations.get(uid) == Some(location) {
            self.locations.remove(uid);
        }
        if let Some(time) = last_time(location, object) {
            self.events.remove(&(time, location.clone()));
        }
        for owner in owners_of(object) {
            self.dependents.remove(&(uid_of(owner).into(), Some(location.clone())));
            self.count(owner, -1);
        }
    }

    fn count(&mut self, owner: ValueRef<'_>, more: isize) {
        if owner.get("blockOwnerDeletion").and_then(ValueRef::as_bool) != Some(true) {
            return;
        }
        let uid = uid_of(owner);
        match self.blocking.get(uid).copied().unwrap_or_default() + more {
            0 => drop(self.blocking.remove(uid)),
            count => drop(self.blocking.insert(uid.into(), count)),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        [self.locations.len(), self.dependents.len(), self.blocking.len(), self.events.len()] == [0; 4]
    }
}

/// Returns the index entries of an object: uid, owner references, and expiry time.
fn entries_of<'a>(object: &'a SharedObject, location: &Location) -> (&'a str, Option<ValueRef<'a>>, Option<Timestamp>) {
    (object.uid(), meta_field(object, "ownerReferences"), last_time(location, object))
}
