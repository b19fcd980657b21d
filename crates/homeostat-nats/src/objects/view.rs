//! The bucket as a transaction sees it: the entries read so far, each at one revision.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::key::{EntryKey, dependents, parse_dependent};
use super::store::{EntryState, ObjectStore, failure};
use homeostat_objects::json::{owners_of, string};
use homeostat_objects::store::{Location, StoredObjects};
use homeostat_objects::{ClientError, Kind, ObjectKey, ObjectRef, SharedObject, ValueRef};

/// A view of the bucket that reads each entry once.
///
/// After an error it behaves like an empty bucket, and [`check`](Self::check) returns the error.
pub(super) struct BucketView<'a> {
    store: &'a ObjectStore,
    entries: RefCell<HashMap<EntryKey, EntryState>>,
    failed: RefCell<Option<ClientError>>,
}

impl<'a> BucketView<'a> {
    pub(super) fn new(store: &'a ObjectStore) -> Self {
        Self { store, entries: RefCell::default(), failed: RefCell::default() }
    }

    /// Returns the first error of a read.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    /// Returns the entry of an object. Reads it at most once.
    pub(super) fn entry(&self, key: &EntryKey) -> EntryState {
        if let Some(known) = self.entries.borrow().get(key) {
            return known.clone();
        }
        let read = self.store.read(key);
        let state = read.unwrap_or_else(|error| {
            self.fail(error);
            EntryState::default()
        });
        self.entries.borrow_mut().insert(key.clone(), state.clone());
        state
    }

    /// Records a write in the view.
    pub(super) fn written(&self, key: EntryKey, state: EntryState) {
        self.entries.borrow_mut().insert(key, state);
    }

    fn fail(&self, error: ClientError) {
        self.failed.borrow_mut().get_or_insert(error);
    }

    /// Returns the stored location of an object, if it exists and has this uid.
    fn found(&self, key: EntryKey, uid: &str) -> Option<Location> {
        let object = self.entry(&key).object.filter(|object| object.uid() == uid)?;
        Some(location_of(&object, key.key))
    }

    /// Returns the keys of objects that may be dependents of the owner with this uid.
    pub(super) fn dependent_keys(&self, uid: &str) -> Vec<EntryKey> {
        let keys = match self.store.owner_entry(uid) {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(_)) => self.store.bucket.keys_with_entries(&dependents(uid)),
            Err(error) => Err(error),
        };
        let keys = keys.unwrap_or_else(|error| {
            let owner = ObjectRef::new(&Kind::UNKNOWN, &ObjectKey::cluster(uid));
            self.fail(failure(owner, error));
            Vec::new()
        });
        keys.iter().filter_map(|key| parse_dependent(key)).map(|(_, key)| key).collect()
    }

    /// Returns the object with this key, if it is a dependent of the owner with this uid.
    pub(super) fn dependent(&self, key: EntryKey, uid: &str) -> Option<(Location, SharedObject)> {
        let object = self.entry(&key).object?;
        let is_owned = owners_of(&object).any(|owner| string(owner, "uid") == uid);
        is_owned.then(|| (location_of(&object, key.key), object))
    }

    fn objects_of(&self, uid: &str) -> Vec<(Location, SharedObject)> {
        self.dependent_keys(uid).into_iter().filter_map(|key| self.dependent(key, uid)).collect()
    }
}

/// Returns the location of an object with this key, in the version that is stored.
fn location_of(object: &SharedObject, key: ObjectKey) -> Location {
    let kind = object.kind();
    let kind = if key.namespace().is_empty() { kind.in_no_namespace() } else { kind };
    Location { kind: Arc::new(kind), key }
}

impl StoredObjects for BucketView<'_> {
    const IS_EXCLUSIVE: bool = false;

    /// The server assigns versions, so the numbers of a transaction's changes are not used.
    fn head(&self) -> u64 {
        0
    }

    fn kind(&self, kind: &Kind) -> Arc<Kind> {
        Arc::new(kind.clone())
    }

    fn has_kind(&self, api_version: &str, name: &str) -> bool {
        self.store.has_kind(&Kind::of(api_version, name)).unwrap_or_else(|error| {
            self.fail(error);
            false
        })
    }

    fn object(&self, location: &Location) -> Option<SharedObject> {
        let object = self.entry(&EntryKey::new(&location.kind, &location.key)).object?;
        if location.kind.is_named(string(&object, "apiVersion"), string(&object, "kind")) {
            return Some(object);
        }
        // The object may be stored in another version of its kind.
        let mut shown = object.to_value();
        shown["apiVersion"] = location.kind.api_version().into();
        Some(SharedObject::from(shown))
    }

    fn owner(&self, dependent: &Location, owner: ValueRef<'_>) -> Option<Location> {
        let kind = Kind::of(string(owner, "apiVersion"), string(owner, "kind"));
        let mut namespaces = vec![dependent.key.namespace()];
        if !namespaces[0].is_empty() {
            namespaces.push("");
        }
        let mut keys = namespaces
            .into_iter()
            .map(|namespace| EntryKey::new(&kind, &ObjectKey::new(namespace, string(owner, "name"))));
        keys.find_map(|key| self.found(key, string(owner, "uid")))
    }

    fn dependents(&self, uid: &str) -> impl Iterator<Item = Location> {
        self.objects_of(uid).into_iter().map(|(location, _)| location)
    }

    fn blocking(&self, uid: &str) -> isize {
        let blocks = |owner: ValueRef<'_>| {
            string(owner, "uid") == uid && owner.get("blockOwnerDeletion").and_then(ValueRef::as_bool) == Some(true)
        };
        let objects = self.objects_of(uid);
        let blocking = objects.iter().flat_map(|(_, object)| owners_of(object)).filter(|owner| blocks(*owner));
        isize::try_from(blocking.count()).unwrap_or(isize::MAX)
    }
}
