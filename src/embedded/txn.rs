//! A transaction: what one call changes, seen by itself at once and by nobody else before it is stored.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::state::{Change, Place, State};
use crate::objects::json::{kind_of, meta_mut, owners_of, uid_of};
use crate::objects::{ClientError, Kind, ObjectKey, ObjectRef};

pub(super) struct Txn<'a> {
    state: &'a State,
    /// In whole seconds.
    pub(super) now: Timestamp,
    changes: Vec<Change>,
    /// What has been written here.
    written: HashMap<Place, Option<Arc<Value>>>,
    /// Whose owners or dependents have changed.
    pub(super) unsettled: VecDeque<Place>,
}

impl<'a> Txn<'a> {
    pub(super) fn new(state: &'a State, now: Timestamp) -> Self {
        Self { state, now, changes: Vec::new(), written: HashMap::new(), unsettled: VecDeque::new() }
    }

    pub(super) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    pub(super) fn place(&self, kind: &Kind, key: &ObjectKey) -> Place {
        Place { kind: self.state.kind(kind), key: key.clone() }
    }

    pub(super) fn find(&self, place: &Place) -> Option<Arc<Value>> {
        match self.written.get(place) {
            Some(written) => written.clone(),
            None => self.state.get(&place.kind, &place.key).cloned(),
        }
    }

    pub(super) fn get(&self, place: &Place) -> Result<Arc<Value>, ClientError> {
        self.find(place).ok_or_else(|| ClientError::NotFound { object: place.object_ref() })
    }

    /// All objects of a kind, also those that are not in the namespace where they were looked for.
    pub(super) fn all(&self, kind: &Kind) -> impl Iterator<Item = &'a Arc<Value>> + use<'a> {
        self.state.table(kind).into_iter().flat_map(|table| table.values())
    }

    /// What belongs to the object of this uid.
    pub(super) fn dependents(&self, uid: &str) -> BTreeSet<Place> {
        let belongs = |object: &Value| owners_of(object).any(|owner| uid_of(owner) == uid);
        let before = self.state.dependents(uid).filter(|place| !self.written.contains_key(place)).cloned();
        let written = self.written.iter().filter_map(|(place, object)| object.as_ref().map(|object| (place, object)));
        before.chain(written.filter(|(_, object)| belongs(object)).map(|(place, _)| place.clone())).collect()
    }

    /// The version that the next change gets.
    pub(super) fn next_version(&self) -> u64 {
        self.state.head + 1 + self.changes.len() as u64
    }

    /// Writes an object, or removes it; `object` is its last state then.
    pub(super) fn change(&mut self, place: &Place, mut object: Value, removed: bool) {
        let version = self.next_version();
        meta_mut(&mut object).insert("resourceVersion".to_owned(), version.to_string().into());
        let old = self.find(place);
        let object = Arc::new(object);
        let owners = old.iter().flat_map(|old| self.owners(place, old)).collect::<Vec<_>>();
        self.unsettled.extend(owners);
        self.written.insert(place.clone(), (!removed).then(|| Arc::clone(&object)));
        if removed {
            self.unsettled.extend(self.dependents(uid_of(&object["metadata"])));
        } else {
            self.unsettled.push_back(place.clone());
        }
        self.changes.push(Change { version, place: place.clone(), old, object, removed });
    }

    pub(super) fn put(&mut self, place: &Place, object: Value) {
        self.change(place, object, false);
    }

    /// What an object is after all that, or was at its end.
    pub(super) fn outcome(&self, place: &Place) -> Result<Arc<Value>, ClientError> {
        match self.changes.iter().rfind(|change| change.place == *place) {
            Some(change) => Ok(Arc::clone(&change.object)),
            None => self.get(place),
        }
    }

    /// Where the owners of an object are that are there.
    fn owners(&self, place: &Place, object: &Value) -> Vec<Place> {
        owners_of(object).filter_map(|owner| self.owner(place, owner)).collect()
    }

    /// Where the owner is that an entry of an object's `ownerReferences` names, if it is there.
    pub(super) fn owner(&self, place: &Place, owner: &Value) -> Option<Place> {
        let (kind, name) = (kind_of(owner), owner["name"].as_str().unwrap_or_default());
        let keys = [ObjectKey::new(place.key.namespace(), name), ObjectKey::cluster(name)];
        let mut places = keys.iter().map(|key| self.place(&kind, key));
        places.find(|place| self.find(place).is_some_and(|found| uid_of(&found["metadata"]) == uid_of(owner)))
    }
}

impl Place {
    pub(super) fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind, &self.key)
    }
}
