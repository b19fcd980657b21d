//! Indexes of objects: by uid, by the uids of their owners, and of events by age. Plain values.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::change::Location;
use super::expiry::last_time;
use crate::objects::json::{owners_of, uid_of};

#[derive(Debug, Default)]
pub(super) struct ObjectIndex {
    /// The location of each object by its uid.
    locations: HashMap<String, Location>,
    /// The dependents of each owner by its uid.
    dependents: HashMap<String, BTreeSet<Location>>,
    /// The number of references that block the deletion of an owner, by its uid.
    blocking: HashMap<String, isize>,
    /// The events that will expire, by their latest time.
    events: BTreeSet<(Timestamp, Location)>,
}

impl ObjectIndex {
    /// Returns the location of the object with this uid.
    pub(super) fn location(&self, uid: &str) -> Option<&Location> {
        super::cost::visit();
        self.locations.get(uid)
    }

    /// Returns the dependents of the owner with this uid.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Location> {
        self.dependents.get(uid).into_iter().flatten().inspect(|_| super::cost::visit())
    }

    /// Returns how many references block the deletion of the owner with this uid. In the index of a transaction this is a
    /// difference.
    pub(super) fn blocking(&self, uid: &str) -> isize {
        super::cost::visit();
        self.blocking.get(uid).copied().unwrap_or_default()
    }

    /// Returns the events with a latest time up to `time`, the oldest first.
    pub(super) fn events_until(&self, time: Timestamp) -> impl Iterator<Item = &Location> {
        let visited = self.events.iter().inspect(|_| super::cost::visit());
        visited.take_while(move |(last, _)| *last <= time).map(|(_, location)| location)
    }

    pub(super) fn insert(&mut self, object: &Value, location: &Location) {
        self.locations.insert(uid_of(&object["metadata"]).to_owned(), location.clone());
        self.events.extend(last_time(location, object).map(|time| (time, location.clone())));
        for owner in owners_of(object) {
            self.dependents.entry(uid_of(owner).to_owned()).or_default().insert(location.clone());
            self.count(owner, 1);
        }
    }

    /// Removes an object. The index of a transaction need not contain it.
    pub(super) fn remove(&mut self, object: &Value, location: &Location) {
        let uid = uid_of(&object["metadata"]);
        if self.locations.get(uid) == Some(location) {
            self.locations.remove(uid);
        }
        if let Some(time) = last_time(location, object) {
            self.events.remove(&(time, location.clone()));
        }
        for owner in owners_of(object) {
            if let Some(locations) = self.dependents.get_mut(uid_of(owner)) {
                locations.remove(location);
                if locations.is_empty() {
                    self.dependents.remove(uid_of(owner));
                }
            }
            self.count(owner, -1);
        }
    }

    fn count(&mut self, owner: &Value, more: isize) {
        if owner["blockOwnerDeletion"] != json!(true) {
            return;
        }
        let count = self.blocking.entry(uid_of(owner).to_owned()).or_default();
        *count += more;
        if *count == 0 {
            self.blocking.remove(uid_of(owner));
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.locations.is_empty() && self.dependents.is_empty() && self.blocking.is_empty() && self.events.is_empty()
    }
}
