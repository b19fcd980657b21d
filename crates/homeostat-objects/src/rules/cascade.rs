//! Applies the consequences of a change to dependents, in the same transaction. The rules are those that Kubernetes'
//! garbage collector follows ("Garbage Collection", "Use Cascading Deletion"; `attemptToDeleteItem` in its source).

use serde_json::{Map, Value, json};

use super::change::{FOREGROUND, Location, ORPHAN, is_orphaning, is_waiting};
use super::stored::StoredObjects;
use super::txn::Transaction;
use crate::SharedObject;
use crate::json::{finalizers_of, is_deleting, meta_mut, owners_of, uid_of};

impl<S: StoredObjects> Transaction<'_, S> {
    /// Settles the objects with changed owners or dependents, until no more changes follow. For stores that a
    /// transaction [sees whole](StoredObjects::IS_EXCLUSIVE).
    pub fn settle(&mut self) {
        while let Some(location) = self.unsettled.take() {
            self.settle_one(&location);
        }
    }

    /// Settles one object: deletes it if it has lost all its owners, or if it waits for dependents that are gone.
    /// Changes only this object, unless its dependents lose their references to it.
    pub fn settle_one(&mut self, location: &Location) {
        let Some(object) = self.find(location) else { return };
        if !object.is_deleting() {
            self.settle_owners(location, &object);
        } else if is_orphaning(&object) {
            self.orphan_dependents(&object);
            let mut next = object.to_value();
            retain(&mut next, "finalizers", |name| name != ORPHAN);
            self.put_or_remove(location, next);
        } else if is_waiting(&object) && !self.is_blocked(object.uid()) {
            let mut next = object.to_value();
            retain(&mut next, "finalizers", |name| name != FOREGROUND);
            self.put_or_remove(location, next);
        }
    }

    /// Deletes an object that has lost all its owners. If an owner remains, removes the references to owners that are
    /// gone or waiting. An owner of an unknown kind counts as remaining: it may exist in another client.
    fn settle_owners(&mut self, location: &Location, object: &SharedObject) {
        let (mut solid, mut waiting, mut lost) = (false, false, Vec::new());
        for owner in owners_of(object) {
            match self.owner(location, owner).and_then(|owner| self.find(&owner)) {
                Some(owner) if is_waiting(&owner) => waiting = true,
                None if self.knows_kind(location, owner) => {}
                _ => {
                    solid = true;
                    continue;
                }
            }
            lost.push(owner);
        }
        if lost.is_empty() {
            return;
        }
        if solid {
            let mut next = object.to_value();
            retain(&mut next, "ownerReferences", |owner| !lost.iter().any(|lost| *lost == *owner));
            self.put(location, next);
        } else {
            let dependents = self.dependents(object.uid());
            if waiting && !dependents.is_empty() {
                // If two objects own each other, one of them must not wait.
                let waits = |location: &Location| self.find(location).is_some_and(|object| is_waiting(&object));
                let foreground = !dependents.iter().any(waits);
                // The caller's choice for the owner also applies to its dependents. Their finalizers do not matter.
                self.begin_chosen_deletion(location, foreground);
            } else {
                self.begin_deletion(location);
            }
        }
    }

    /// Begins a deletion. If the object has no finalizers, removes it at once.
    ///
    /// The object keeps the finalizers that concern its dependents: as in Kubernetes, only a choice of the caller
    /// replaces them.
    pub(crate) fn begin_deletion(&mut self, location: &Location) {
        let Some(object) = self.find(location) else { return };
        self.delete_as(location, &object, object.to_value(), false);
    }

    /// Begins a deletion, or changes one that has begun. Removes the object if it has no other finalizers and, in
    /// foreground deletion, no dependents. As in Kubernetes, the last choice counts.
    pub(super) fn begin_chosen_deletion(&mut self, location: &Location, foreground: bool) {
        let Some(object) = self.find(location) else { return };
        let waits = foreground && !self.dependents(object.uid()).is_empty();
        let mut next = object.to_value();
        retain(&mut next, "finalizers", |name| name != ORPHAN && (waits || name != FOREGROUND));
        self.delete_as(location, &object, next, waits);
    }

    /// Begins the deletion of an object, with the finalizers of `next`. `waits` adds the finalizer of foreground
    /// deletion.
    fn delete_as(&mut self, location: &Location, object: &SharedObject, mut next: Value, waits: bool) {
        let is_there = finalizers_of(&next).any(|name| name == FOREGROUND);
        if waits
            && !is_there
            && let Value::Array(finalizers) = meta_mut(&mut next).entry("finalizers").or_insert_with(|| json!([]))
        {
            finalizers.push(FOREGROUND.into());
        }
        if (waits || is_there) && !is_waiting(object) {
            let dependents = self.dependents(object.uid());
            self.unsettled.extend(dependents);
        }
        if finalizers_of(&next).next().is_none() {
            self.change(location, next, true);
            return;
        }
        if !object.is_deleting() {
            self.mark_deleting(meta_mut(&mut next));
        }
        if *object != next {
            self.put(location, next);
        }
    }

    fn mark_deleting(&self, meta: &mut Map<String, Value>) {
        meta.insert("deletionTimestamp".to_owned(), self.now.to_string().into());
        meta.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
        raise_generation(meta);
    }

    /// Gives an object the finalizer that keeps it until its dependents have lost their references to it. `deletes`
    /// also begins its deletion. Changes only this object, so a store that is not exclusive refuses the change before
    /// any dependent has changed.
    pub(super) fn begin_orphaning(&mut self, location: &Location, owner: &SharedObject, deletes: bool) {
        let mut next = owner.to_value();
        // As in Kubernetes, the last choice of the caller counts.
        retain(&mut next, "finalizers", |name| name != FOREGROUND && name != ORPHAN);
        let meta = meta_mut(&mut next);
        if let Value::Array(finalizers) = meta.entry("finalizers").or_insert_with(|| json!([])) {
            finalizers.push(ORPHAN.into());
        }
        if deletes && !owner.is_deleting() {
            self.mark_deleting(meta);
        }
        if *owner != next {
            self.put(location, next);
        }
        // An earlier call may have stopped after its first write.
        self.unsettled.push(location.clone());
    }

    /// Removes the references to this owner from its dependents.
    pub(super) fn orphan_dependents(&mut self, owner: &SharedObject) {
        let uid = owner.uid();
        for location in self.dependents(uid) {
            let Some(object) = self.find(&location) else { continue };
            let mut next = object.to_value();
            retain(&mut next, "ownerReferences", |owner| uid_of(owner) != uid);
            self.put(&location, next);
        }
    }

    /// Writes an object, or removes it if it is being deleted and has no finalizers.
    pub(super) fn put_or_remove(&mut self, location: &Location, object: Value) {
        let removed = is_deleting(&object) && finalizers_of(&object).next().is_none();
        self.change(location, object, removed);
    }
}

pub(super) fn raise_generation(meta: &mut Map<String, Value>) {
    let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    meta.insert("generation".to_owned(), (generation + 1).into());
}

/// Keeps some entries of a list in the metadata, and removes the list if it is then empty.
fn retain(object: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    let meta = meta_mut(object);
    if let Some(Value::Array(entries)) = meta.get_mut(list) {
        entries.retain(keep);
        if entries.is_empty() {
            meta.remove(list);
        }
    }
}
