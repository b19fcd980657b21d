//! The state of an embedded client: the objects, their indexes, and the history. A plain value.
//!
//! A clone is a snapshot: its cost does not depend on the number of objects, it shares its parts with the original, and
//! it does not change when the original changes.

use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use super::builder::EmbeddedBuilder;
use super::labels::LabelIndex;
use crate::json::key_of;
use crate::json::uid_of;
use crate::persistent::PersistentMap;
use crate::rules::change::{Location, ObjectChange};
use crate::rules::index::ObjectIndex;
use crate::rules::stored::StoredObjects;
use crate::{Kind, ObjectKey, SharedObject, ValueRef};

/// The objects of one kind.
pub(super) type ObjectMap = PersistentMap<ObjectKey, SharedObject>;

#[derive(Clone, Debug, Default)]
pub(super) struct ServerState {
    /// The version of the last change.
    pub(super) head: u64,
    kinds: PersistentMap<Arc<Kind>, ObjectMap>,
    pub(super) index: ObjectIndex,
    pub(super) labels: LabelIndex,
    /// The last changes by version. The versions are consecutive, up to `head`.
    history: PersistentMap<u64, Arc<ObjectChange>>,
    most_history: usize,
    /// The sum of [`ObjectChange::kept`] over the history.
    history_bytes: usize,
    most_history_bytes: usize,
}

impl ServerState {
    pub(super) fn new(settings: &EmbeddedBuilder) -> Self {
        Self {
            labels: LabelIndex::new(&settings.labels),
            most_history: settings.history,
            most_history_bytes: settings.history_bytes,
            ..Self::default()
        }
    }

    /// Returns the most changes that the history can hold. If the bytes are the tighter limit, returns the current
    /// length.
    pub(super) fn most_history(&self) -> usize {
        let is_near = self.history_bytes > self.most_history_bytes / 2;
        if is_near { self.history.len() } else { self.most_history }
    }

    pub(super) fn table(&self, kind: &Kind) -> Option<&ObjectMap> {
        self.kinds.get(kind)
    }

    pub(super) fn get(&self, kind: &Kind, key: &ObjectKey) -> Option<&SharedObject> {
        self.table(kind)?.get(key)
    }

    /// Returns the changes after this version, oldest first; `None` if the history begins later.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &ObjectChange>> {
        let missed = usize::try_from(self.head.checked_sub(version)?).ok()?;
        (missed <= self.history.len())
            .then(|| self.history.range(Bound::Excluded(&version), None).map(|(_, change)| &**change))
    }

    /// Applies the changes. Returns the forgotten ones, so that the caller can drop them without a lock.
    pub(super) fn apply(&mut self, changes: impl IntoIterator<Item = Arc<ObjectChange>>) -> Vec<Arc<ObjectChange>> {
        for change in changes {
            let Location { kind, key } = &change.location;
            self.head = change.version;
            let new = (!change.removed).then_some(&change.object);
            self.index.replace(change.old.as_ref(), new, &change.location);
            self.labels.replace(change.old.as_ref(), new, &change.location);
            if change.removed {
                if let Some(table) = self.kinds.get_mut(kind) {
                    table.remove(key);
                }
            } else {
                self.put(kind, key.clone(), change.object.clone());
            }
            self.history_bytes += change.kept;
            self.history.insert(change.version, change);
        }
        let mut forgotten = Vec::new();
        while self.history.len() > self.most_history || self.history_bytes > self.most_history_bytes {
            let oldest = self.head + 1 - self.history.len() as u64;
            let Some(change) = self.history.remove(&oldest) else { break };
            self.history_bytes -= change.kept;
            forgotten.push(change);
        }
        forgotten
    }

    fn put(&mut self, kind: &Arc<Kind>, key: ObjectKey, object: SharedObject) {
        if let Some(table) = self.kinds.get_mut(kind) {
            table.insert(key, object);
        } else {
            let mut table = ObjectMap::default();
            table.insert(key, object);
            self.kinds.insert(Arc::clone(kind), table);
        }
    }

    /// Inserts an object as it is, replacing the object with its key. This forgets the history.
    pub(super) fn load(&mut self, kind: &Kind, object: Value) {
        let location = Location { kind: self.kind(kind), key: key_of(&object) };
        let object = SharedObject::from(object);
        self.history = PersistentMap::default();
        self.history_bytes = 0;
        let before = self.get(&location.kind, &location.key).cloned();
        self.index.replace(before.as_ref(), Some(&object), &location);
        self.labels.replace(before.as_ref(), Some(&object), &location);
        self.put(&location.kind, location.key, object);
    }
}

impl StoredObjects for ServerState {
    const IS_EXCLUSIVE: bool = true;

    fn head(&self) -> u64 {
        self.head
    }

    fn kind(&self, kind: &Kind) -> Arc<Kind> {
        self.kinds.get_key_value(kind).map_or_else(|| Arc::new(kind.clone()), |(kind, _)| Arc::clone(kind))
    }

    fn has_kind(&self, api_version: &str, name: &str) -> bool {
        self.kinds.iter().any(|(kind, _)| kind.is_version_of(api_version, name))
    }

    fn object(&self, location: &Location) -> Option<SharedObject> {
        self.get(&location.kind, &location.key).cloned()
    }

    fn owner(&self, _dependent: &Location, owner: ValueRef<'_>) -> Option<Location> {
        self.index.location(uid_of(owner)).cloned()
    }

    fn dependents(&self, uid: &str) -> impl Iterator<Item = Location> {
        self.index.dependents(uid).cloned()
    }

    fn blocking(&self, uid: &str) -> isize {
        self.index.blocking(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn change(version: u64, name: &str, old: bool, removed: bool) -> Arc<ObjectChange> {
        let object = SharedObject::from(json!({"metadata": {"name": name, "uid": name,
            "ownerReferences": [{"uid": "u", "blockOwnerDeletion": true}]}}));
        let location = Location { kind: Arc::new(Kind::of("v1", "X")), key: ObjectKey::cluster(name) };
        Arc::new(ObjectChange { version, location, old: old.then(|| object.clone()), object, removed, kept: 10 })
    }

    fn state(changes: usize, bytes: usize) -> ServerState {
        ServerState::new(&EmbeddedBuilder::new().history(changes).history_bytes(bytes))
    }

    #[test]
    fn the_last_changes_are_known() {
        let mut state = state(3, 1_000);
        assert_eq!(state.since(0).unwrap().count(), 0);
        for version in 1..=5 {
            state.apply(vec![change(version, "a", version > 1, false)]);
        }
        let since =
            |version| state.since(version).map(|changes| changes.map(|change| change.version).collect::<Vec<_>>());
        assert_eq!(since(5), Some(vec![]));
        assert_eq!(since(4), Some(vec![5]));
        assert_eq!(since(2), Some(vec![3, 4, 5]));
        assert_eq!(since(1), None);
        assert_eq!(since(6), None, "a version that does not exist yet");
    }

    #[test]
    fn the_history_is_bounded_by_bytes_too() {
        let mut state = state(1_000, 45);
        for version in 1..=20 {
            let forgotten = state.apply(vec![change(version, "a", version > 1, false)]);
            assert_eq!(forgotten.len(), usize::from(version > 4), "apply returns the forgotten changes");
        }
        assert_eq!(state.history.len(), 4);
        assert_eq!(state.history_bytes, 40);
        assert!(state.since(16).is_some() && state.since(15).is_none());
        assert_eq!(state.most_history(), 4, "near the limit of bytes, this is the current length");
    }

    #[test]
    fn removed_dependents_leave_the_index() {
        let mut state = state(0, 0);
        state.apply(vec![change(1, "a", false, false), change(2, "b", false, false)]);
        assert_eq!(state.index.dependents("u").map(|location| location.key.name()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(state.index.blocking("u"), 2);
        assert_eq!(state.index.location("a").map(|location| location.key.name()), Some("a"));
        state.apply(vec![change(3, "a", true, true), change(4, "b", true, true)]);
        assert!(state.index.is_empty());
        assert!(state.get(&Kind::of("v1", "X"), &ObjectKey::cluster("a")).is_none());
    }

    #[test]
    fn a_snapshot_stays_as_it_is() {
        let kind = Kind::of("v1", "X");
        let mut state = state(2, 1_000);
        state.apply(vec![change(1, "a", false, false), change(2, "b", false, false)]);
        let snapshot = state.clone();
        state.apply(vec![change(3, "a", true, true), change(4, "c", false, false)]);
        let names = |state: &ServerState| {
            let table = state.table(&kind).unwrap().iter();
            let names: Vec<_> = table.map(|(key, _)| key.name().to_owned()).collect();
            let versions: Vec<_> = state.since(state.head - 2).unwrap().map(|change| change.version).collect();
            let dependents: Vec<_> = state.index.dependents("u").map(|found| found.key.name().to_owned()).collect();
            assert_eq!(names, dependents);
            (names, versions, state.index.blocking("u"), state.index.location("a").is_some())
        };
        assert_eq!(names(&snapshot), (vec!["a".into(), "b".into()], vec![1, 2], 2, true));
        assert_eq!(names(&state), (vec!["b".into(), "c".into()], vec![3, 4], 2, false));
    }
}
