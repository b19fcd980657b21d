//! The state of an embedded client: the objects, their indexes, and the history. A plain value.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::builder::EmbeddedBuilder;
use super::change::{Location, ObjectChange};
use super::index::ObjectIndex;
#[cfg(any(feature = "file-client", feature = "testing"))]
use crate::objects::json::key_of;
use crate::objects::{Kind, ObjectKey, Query};

/// The objects of one kind.
pub(super) type ObjectMap = BTreeMap<ObjectKey, Arc<Value>>;

#[derive(Debug, Default)]
pub(super) struct ServerState {
    /// The version of the last change.
    pub(super) head: u64,
    kinds: HashMap<Arc<Kind>, ObjectMap>,
    pub(super) index: ObjectIndex,
    /// The last changes, with consecutive versions up to `head`.
    history: VecDeque<ObjectChange>,
    most_history: usize,
    /// The sum of [`ObjectChange::kept`] over the history.
    history_bytes: usize,
    most_history_bytes: usize,
}

impl ServerState {
    pub(super) fn new(settings: &EmbeddedBuilder) -> Self {
        Self { most_history: settings.history, most_history_bytes: settings.history_bytes, ..Self::default() }
    }

    /// Returns the one copy of this kind that all locations share.
    pub(super) fn kind(&self, kind: &Kind) -> Arc<Kind> {
        self.kinds.get_key_value(kind).map_or_else(|| Arc::new(kind.clone()), |(kind, _)| Arc::clone(kind))
    }

    /// Returns the most changes that the history can hold. Near the limit of its bytes, that is its current length.
    pub(super) fn most_history(&self) -> usize {
        let is_near = self.history_bytes > self.most_history_bytes / 2;
        if is_near { self.history.len() } else { self.most_history }
    }

    pub(super) fn table(&self, kind: &Kind) -> Option<&ObjectMap> {
        self.kinds.get(kind)
    }

    pub(super) fn get(&self, kind: &Kind, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.table(kind)?.get(key)
    }

    /// Returns the objects that a query selects, in the order of their keys.
    pub(super) fn select<'a>(&'a self, kind: &Kind, query: &'a Query) -> impl Iterator<Item = &'a Arc<Value>> {
        let namespace = query.namespace.as_deref().unwrap_or_default();
        let from = ObjectKey::new(namespace, "");
        let objects = self.table(kind).into_iter().flat_map(move |table| table.range(from.clone()..));
        let inside = objects.take_while(move |(key, _)| namespace.is_empty() || key.namespace() == namespace);
        inside.map(|(_, object)| object).filter(|object| query.selects(object))
    }

    /// Returns the changes after this version, the oldest first; `None` if the history does not go back that far.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &ObjectChange>> {
        let missed = usize::try_from(self.head.checked_sub(version)?).ok()?;
        let known = self.history.len().checked_sub(missed)?;
        Some(self.history.range(known..))
    }

    /// Applies the changes. Returns the forgotten ones, so that the caller can drop them without a lock.
    pub(super) fn apply(&mut self, changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
        for change in changes {
            let Location { kind, key } = &change.location;
            self.head = change.version;
            if let Some(old) = &change.old {
                self.index.remove(old, &change.location);
            }
            let table = self.kinds.entry(Arc::clone(kind)).or_default();
            if change.removed {
                table.remove(key);
            } else {
                table.insert(key.clone(), Arc::clone(&change.object));
                self.index.insert(&change.object, &change.location);
            }
            self.history_bytes += change.kept;
            self.history.push_back(change);
        }
        let mut forgotten = Vec::new();
        while self.history.len() > self.most_history || self.history_bytes > self.most_history_bytes {
            let Some(change) = self.history.pop_front() else { break };
            self.history_bytes -= change.kept;
            forgotten.push(change);
        }
        forgotten
    }

    /// Inserts an object as it is, replacing the object with its key. This forgets the history.
    #[cfg(any(feature = "file-client", feature = "testing"))]
    pub(super) fn load(&mut self, kind: &Kind, object: Value) {
        let location = Location { kind: self.kind(kind), key: key_of(&object) };
        let object = Arc::new(object);
        self.history.clear();
        self.history_bytes = 0;
        if let Some(before) = self.get(&location.kind, &location.key).cloned() {
            self.index.remove(&before, &location);
        }
        self.index.insert(&object, &location);
        self.kinds.entry(location.kind).or_default().insert(location.key, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn change(version: u64, name: &str, old: bool, removed: bool) -> ObjectChange {
        let object = Arc::new(json!({"metadata": {"name": name, "uid": name,
            "ownerReferences": [{"uid": "u", "blockOwnerDeletion": true}]}}));
        let location = Location { kind: Arc::new(Kind::of("v1", "X")), key: ObjectKey::cluster(name) };
        ObjectChange { version, location, old: old.then(|| Arc::clone(&object)), object, removed, kept: 10 }
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
        assert_eq!(since(6), None, "a version that has not been");
    }

    #[test]
    fn the_history_is_bounded_by_bytes_too() {
        let mut state = state(1_000, 45);
        for version in 1..=20 {
            let forgotten = state.apply(vec![change(version, "a", version > 1, false)]);
            assert_eq!(forgotten.len(), usize::from(version > 4), "what is forgotten is given back");
        }
        assert_eq!(state.history.len(), 4);
        assert_eq!(state.history_bytes, 40);
        assert!(state.since(16).is_some() && state.since(15).is_none());
        assert_eq!(state.most_history(), 4, "readers are told how far it goes back");
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
}
