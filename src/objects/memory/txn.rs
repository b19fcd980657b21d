//! A transaction: what one call changes, seen by itself at once and by nobody else before it is stored.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::index::Index;
use super::limits::footprint;
use super::state::{Change, Place, State};
use crate::objects::json::{meta_mut, owners_of, uid_of};
use crate::objects::{ClientError, Kind, ObjectKey, ObjectRef};

pub(super) struct Txn<'a> {
    pub(super) state: &'a State,
    /// Of an object's JSON, in bytes.
    pub(super) most_size: usize,
    /// In whole seconds.
    pub(super) now: Timestamp,
    changes: Vec<Change>,
    /// What has been written here.
    written: HashMap<Place, Option<Arc<Value>>>,
    /// What has been written here, beside the index of the state.
    index: Index,
    pub(super) unsettled: Unsettled,
}

/// The places whose owners or dependents have changed, each in line once.
#[derive(Default)]
pub(super) struct Unsettled {
    line: VecDeque<Place>,
    known: HashSet<Place>,
}

impl Unsettled {
    pub(super) fn extend(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            if self.known.insert(place.clone()) {
                self.line.push_back(place);
            }
        }
    }

    pub(super) fn take(&mut self) -> Option<Place> {
        let place = self.line.pop_front()?;
        self.known.remove(&place);
        Some(place)
    }
}

impl<'a> Txn<'a> {
    pub(super) fn new(state: &'a State, most_size: usize, now: Timestamp) -> Self {
        let (written, index, unsettled) = (HashMap::new(), Index::default(), Unsettled::default());
        Self { state, most_size, now, changes: Vec::new(), written, index, unsettled }
    }

    pub(super) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    pub(super) fn place(&self, kind: &Kind, key: &ObjectKey) -> Place {
        Place { kind: self.state.kind(kind), key: key.clone() }
    }

    pub(super) fn find(&self, place: &Place) -> Option<Arc<Value>> {
        super::cost::visit();
        match self.written.get(place) {
            Some(written) => written.clone(),
            None => self.state.get(&place.kind, &place.key).cloned(),
        }
    }

    pub(super) fn get(&self, place: &Place) -> Result<Arc<Value>, ClientError> {
        self.find(place).ok_or_else(|| ClientError::NotFound { object: place.object_ref() })
    }

    /// The objects that refer to the owner of this uid.
    pub(super) fn dependents(&self, uid: &str) -> BTreeSet<Place> {
        let before = self.state.index.dependents(uid).filter(|place| !self.written.contains_key(place));
        before.chain(self.index.dependents(uid)).cloned().collect()
    }

    /// Whether a dependent blocks the foreground deletion of the owner of this uid.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        self.state.index.blocking(uid) + self.index.blocking(uid) > 0
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
        if let Some(old) = &old {
            self.index.remove(old, place);
        }
        if !removed {
            self.index.insert(&object, place);
        }
        self.written.insert(place.clone(), (!removed).then(|| Arc::clone(&object)));
        if removed {
            self.unsettled.extend(self.dependents(uid_of(&object["metadata"])));
        } else {
            self.unsettled.extend([place.clone()]);
        }
        // What replaces the object in the state is no burden of the history.
        let kept = old.as_deref().map_or(0, footprint) + if removed { footprint(&object) } else { 0 };
        self.changes.push(Change { version, place: place.clone(), old, object, removed, kept });
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

    /// Where the owner is that an entry of an object's `ownerReferences` names, if it is there: an object of this uid and name, of
    /// this kind in any version, in the object's namespace or in none.
    pub(super) fn owner(&self, place: &Place, owner: &Value) -> Option<Place> {
        let is_near = |found: &Place| ["", place.key.namespace()].contains(&found.key.namespace());
        let found = self.namesake(owner)?;
        (owner["name"] == *found.key.name() && is_near(&found)).then_some(found)
    }

    /// Where the object is that has the uid and kind of an entry of `ownerReferences`, wherever that is.
    pub(super) fn namesake(&self, owner: &Value) -> Option<Place> {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let uid = uid_of(owner);
        let place = self.index.place(uid).or_else(|| self.state.index.place(uid))?;
        let is_there = || self.find(place).is_some_and(|found| uid_of(&found["metadata"]) == uid);
        (place.kind.is_version_of(text("apiVersion"), text("kind")) && is_there()).then(|| place.clone())
    }
}

impl Place {
    pub(super) fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind, &self.key)
    }
}
