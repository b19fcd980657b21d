//! The write methods of clients, as steps of a transaction.

use serde_json::{Value, json};
use uuid::Uuid;

use super::apply::{apply, disown};
use super::cascade::raise_generation;
use super::change::{Location, is_orphaning};
use super::check::{check, check_as, check_deletion, check_finalizers, check_identity, check_owners};
use super::limits::{check_depth, check_limits};
use super::names::{Names, SUFFIX, suffix};
use super::patch::patched;
use super::stored::StoredObjects;
use super::txn::Transaction;
use crate::json::{meta_field, meta_mut, meta_string};
use crate::{
    ClientError, DeleteOptions, FieldOwner, Kind, ObjectKey, ObjectRef, Patch, PatchTarget, Propagation, SharedObject,
    ValueRef,
};

/// The fields of the metadata that only the client sets.
const OURS: [&str; 6] =
    ["uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"];

/// The fields of the metadata that a write does not change.
const KEPT: [&str; 7] = [OURS[0], OURS[1], OURS[2], OURS[3], OURS[4], OURS[5], "resourceVersion"];

/// The length limit of a generated name: the same as in an API server, so that the name is also valid as a label.
const MOST_GENERATED: usize = 63;
/// The number of attempts to generate a free name: the same as in an API server.
const ATTEMPTS: u128 = 8;

fn conflict(location: &Location, reason: impl Into<String>) -> ClientError {
    ClientError::conflict(location.object_ref(), reason)
}

fn same(location: &Location, current: &SharedObject, field: &str, asked: &str) -> Result<(), ClientError> {
    match meta_string(current, field) {
        is if is == asked => Ok(()),
        is => Err(conflict(location, format!("its {field} is {is}, not {asked}"))),
    }
}

impl<S: StoredObjects> Transaction<'_, S> {
    /// Creates an object. `names` makes its uid, and its name if it has `generateName`. Returns its place.
    ///
    /// # Errors
    ///
    /// Returns a [`ClientError`] if a rule refuses the write. Then discard the transaction.
    pub fn create(&mut self, kind: &Kind, mut object: Value, names: Names) -> Result<Location, ClientError> {
        let key = check(kind, &mut object)?;
        let version = meta_string(&object, "resourceVersion");
        if !version.is_empty() {
            let (object, rule) = (self.location(kind, &key).object_ref(), "must be empty in a new object");
            return Err(ClientError::invalid(object, "metadata.resourceVersion", version, rule));
        }
        let uid = names.uid(self.next_version());
        if key.name().is_empty() {
            let name = self.free_name(kind, key.namespace(), meta_string(&object, "generateName"), uid);
            meta_mut(&mut object).insert("name".to_owned(), name.into());
        }
        self.create_fields(kind, object, uid, None)
    }

    /// Returns a name with this prefix that no object has, unless all attempts fail.
    fn free_name(&self, kind: &Kind, namespace: &str, start: &str, uid: Uuid) -> String {
        let start = &start[..start.len().min(MOST_GENERATED - SUFFIX)];
        let mut names = (0..ATTEMPTS).map(|attempt| format!("{start}{}", suffix(uid, attempt)));
        let is_free = |name: &String| self.find(&self.location(kind, &ObjectKey::new(namespace, name))).is_none();
        names.find(is_free).unwrap_or_else(|| format!("{start}{}", suffix(uid, ATTEMPTS)))
    }

    fn create_fields(
        &mut self,
        kind: &Kind,
        mut object: Value,
        uid: Uuid,
        managed: Option<Value>,
    ) -> Result<Location, ClientError> {
        let location = self.location(kind, &crate::json::key_of(&object));
        if self.find(&location).is_some() {
            return Err(ClientError::already_exists(location.object_ref()));
        }
        check_owners(self, &location, &object)?;
        ignore(&mut object);
        let meta = meta_mut(&mut object);
        meta.insert("uid".to_owned(), uid.to_string().into());
        meta.insert("generation".to_owned(), 1.into());
        meta.insert("creationTimestamp".to_owned(), self.now.to_string().into());
        let managed = managed.filter(|managed| *managed != Value::Array(Vec::new()));
        meta.extend(managed.map(|managed| ("managedFields".to_owned(), managed)));
        check_limits(&location, None, &object, self.most_size)?;
        self.put(&location, object);
        Ok(location)
    }

    /// Replaces an object, or its status. Returns its place.
    ///
    /// # Errors
    ///
    /// Returns a [`ClientError`] if a rule refuses the write. Then discard the transaction.
    pub fn update(&mut self, kind: &Kind, mut object: Value, target: PatchTarget) -> Result<Location, ClientError> {
        let key = check(kind, &mut object)?;
        let location = self.location(kind, &key);
        let current = self.get(&location)?;
        let version = meta_string(&object, "resourceVersion");
        if version.is_empty() {
            let rule = "must be set, so that no other update is lost";
            return Err(ClientError::invalid(location.object_ref(), "metadata.resourceVersion", "", rule));
        }
        same(&location, &current, "resourceVersion", version)?;
        self.write(&location, &current, object, target, None)?;
        Ok(location)
    }

    /// Patches an object, or its status. Returns its place.
    ///
    /// # Errors
    ///
    /// Returns a [`ClientError`] if a rule refuses the write. Then discard the transaction.
    pub fn patch(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<Location, ClientError> {
        let location = self.location(kind, key);
        let current = self.get(&location)?;
        let mut object = patched(&location, current.to_value(), patch, self.most_size)?;
        if object.is_object() && object["metadata"].is_object() {
            check_identity(&location, &object)?;
        }
        // A store that was opened again knows the caller's kind only by its name.
        check_as(ObjectRef::new(kind, key), &mut object)?;
        let version = meta_string(&object, "resourceVersion");
        if !version.is_empty() {
            same(&location, &current, "resourceVersion", version)?;
        }
        self.write(&location, &current, object, target, None)?;
        Ok(location)
    }

    /// Applies fields of an object for their owner, and creates the object if it does not exist. Returns its place.
    ///
    /// # Errors
    ///
    /// Returns a [`ClientError`] if a rule refuses the write. Then discard the transaction.
    pub fn apply(
        &mut self,
        kind: &Kind,
        mut object: Value,
        owner: &FieldOwner,
        names: Names,
    ) -> Result<Location, ClientError> {
        let key = check(kind, &mut object)?;
        let location = self.location(kind, &key);
        let invalid = |field: &str, rule: &str| Err(ClientError::invalid(location.object_ref(), field, "", rule));
        if key.name().is_empty() {
            return invalid("metadata.name", "must not be empty");
        }
        if owner.name.is_empty() {
            return invalid("fieldOwner", "must not be empty");
        }
        let current = self.find(&location);
        let uid = meta_string(&object, "uid");
        if !uid.is_empty() {
            let Some(current) = &current else {
                return Err(conflict(&location, format!("there is no object with uid {uid}")));
            };
            same(&location, current, "uid", uid)?;
        }
        let version = meta_string(&object, "resourceVersion");
        if !version.is_empty() {
            let current = current.as_ref().ok_or_else(|| ClientError::not_found(location.object_ref()))?;
            same(&location, current, "resourceVersion", version)?;
        }
        let state = owner.admitted.as_ref().map(|state| based(kind, &location, current.as_ref(), state)).transpose()?;
        if owner.target == PatchTarget::Status {
            if current.is_none() {
                return Err(ClientError::not_found(location.object_ref()));
            }
            object = object.get_mut("status").map_or_else(|| json!({}), |status| json!({"status": status.take()}));
        } else {
            ignore(&mut object);
        }
        let api_version = kind.api_version();
        let (mut next, mut managed) =
            apply(current.as_ref().map(SharedObject::to_value).as_ref(), &object, owner, &api_version, self.now)
                .map_err(|fields| ClientError::field_conflicts(location.object_ref(), fields))?;
        if let Some(state) = state {
            (next, managed) = admitted(next, managed, state, owner.target);
        }
        let Some(current) = current else {
            return {
                let uid = names.uid(self.next_version());
                self.create_fields(kind, next, uid, Some(managed))
            };
        };
        self.write(&location, &current, next, owner.target, Some(managed))?;
        Ok(location)
    }

    /// Writes an object, merged with the fields that the writer cannot set. Does nothing if that changes nothing.
    fn write(
        &mut self,
        location: &Location,
        current: &SharedObject,
        wanted: Value,
        target: PatchTarget,
        managed: Option<Value>,
    ) -> Result<(), ClientError> {
        let uid = meta_string(&wanted, "uid");
        if !uid.is_empty() {
            same(location, current, "uid", uid)?;
        }
        if target == PatchTarget::Object && !current.is_deleting() {
            check_deletion(location, &wanted)?;
        }
        let mut next = match target {
            PatchTarget::Status => {
                let mut next = current.to_value();
                set(&mut next, "status", wanted.get("status").cloned());
                next
            }
            PatchTarget::Object => {
                let mut next = wanted;
                set(&mut next, "status", current.get("status").map(ValueRef::to_value));
                next
            }
        };
        let known = current.get("metadata");
        let meta = meta_mut(&mut next);
        let mut kept = [false; KEPT.len()];
        for (field, value) in known.into_iter().flat_map(ValueRef::fields) {
            let Some(at) = KEPT.iter().position(|kept| *kept == field) else { continue };
            kept[at] = true;
            if meta.get(field).is_none_or(|next| value != *next) {
                meta.insert(field.to_owned(), value.to_value());
            }
        }
        for (field, _) in KEPT.iter().zip(kept).filter(|(_, kept)| !kept) {
            meta.remove(*field);
        }
        let has_managed = meta.contains_key("managedFields");
        match managed.or_else(|| has_managed.then(|| disown(&current.to_value(), &next)).flatten()) {
            Some(Value::Array(none)) if none.is_empty() => drop(meta_mut(&mut next).remove("managedFields")),
            Some(managed) => drop(meta_mut(&mut next).insert("managedFields".to_owned(), managed)),
            None => {}
        }
        if current.is_deleting() {
            check_finalizers(location, current, &next)?;
        }
        if *current == next {
            return Ok(());
        }
        check_limits(location, Some(current), &next, self.most_size)?;
        if meta_field(current, "ownerReferences") != meta_field(&next, "ownerReferences") {
            check_owners(self, location, &next)?;
        }
        if !same_content(current.into(), (&next).into()) {
            raise_generation(meta_mut(&mut next));
        }
        self.put_or_remove(location, next);
        Ok(())
    }

    /// Deletes an object, or begins its deletion. Returns its place.
    ///
    /// # Errors
    ///
    /// Returns a [`ClientError`] if a rule refuses the write. Then discard the transaction.
    pub fn delete(&mut self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Result<Location, ClientError> {
        let location = self.location(kind, key);
        let current = self.get(&location)?;
        for (field, asked) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
            if let Some(asked) = asked {
                same(&location, &current, field, asked)?;
            }
        }
        if options.propagation == Propagation::Orphan {
            let has_dependents = || !self.dependents(current.uid()).is_empty();
            if !S::IS_EXCLUSIVE && (has_dependents() || (is_orphaning(&current) && !options.purge)) {
                // If another writer changes the owner now, the call is refused. Then no dependent may have changed.
                self.begin_orphaning(&location, &current, !options.purge);
                return Ok(location);
            }
            self.orphan_dependents(&current);
        }
        if options.purge {
            self.change(&location, current.to_value(), true);
        } else {
            self.begin_chosen_deletion(&location, options.propagation == Propagation::Foreground);
        }
        Ok(location)
    }

    /// Removes the object with this uid, after its dependents have lost their references to it.
    ///
    /// # Errors
    ///
    /// Returns a [`ClientError`] if a rule refuses the write. Then discard the transaction.
    pub fn purge_and_orphan(&mut self, kind: &Kind, key: &ObjectKey, uid: &str) -> Result<Location, ClientError> {
        let location = self.location(kind, key);
        let current = self.get(&location)?;
        same(&location, &current, "uid", uid)?;
        self.orphan_dependents(&current);
        self.change(&location, current.to_value(), true);
        Ok(location)
    }
}

/// Checks an admitted state, and that it was computed from the stored object.
fn based(
    kind: &Kind,
    location: &Location,
    current: Option<&SharedObject>,
    state: &Value,
) -> Result<Value, ClientError> {
    check_depth(location, current, state)?;
    let mut state = state.clone();
    check(kind, &mut state)?;
    check_identity(location, &state)?;
    match (current, meta_string(&state, "resourceVersion")) {
        (None, "") => {}
        (None, version) => {
            return Err(conflict(location, format!("there is no object with resourceVersion {version}")));
        }
        (Some(_), "") => return Err(ClientError::already_exists(location.object_ref())),
        (Some(current), version) => same(location, current, "resourceVersion", version)?,
    }
    Ok(state)
}

/// Returns the admitted state of the applied part, and the owners of its fields. Owners lose the fields that the
/// admission has changed.
fn admitted(mut applied: Value, managed: Value, state: Value, target: PatchTarget) -> (Value, Value) {
    let status = if target == PatchTarget::Status { &state } else { &applied }.get("status").cloned();
    let mut next = if target == PatchTarget::Status { applied.clone() } else { state };
    set(&mut next, "status", status);
    meta_mut(&mut applied).insert("managedFields".to_owned(), managed);
    let left = disown(&applied, &next).unwrap_or_else(|| applied["metadata"]["managedFields"].take());
    (next, left)
}

/// Removes the fields that a writer cannot set.
fn ignore(object: &mut Value) {
    set(object, "status", None);
    meta_mut(object).retain(|field, _| !OURS.contains(&field.as_str()) && field != "resourceVersion");
}

/// Sets or removes a field of an object.
fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let Value::Object(fields) = object else { return };
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}

/// Returns whether two states differ only in metadata and status. With `preserve_order` of `serde_json`, the order of
/// fields does not matter.
fn same_content(one: ValueRef<'_>, other: ValueRef<'_>) -> bool {
    fn content(object: ValueRef<'_>) -> Vec<(&str, ValueRef<'_>)> {
        let fields = object.fields().filter(|(name, _)| *name != "metadata" && *name != "status");
        let mut content: Vec<_> = fields.collect();
        content.sort_unstable_by_key(|(name, _)| *name);
        content
    }
    content(one) == content(other)
}
