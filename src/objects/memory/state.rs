//! The state of an embedded client: the objects, their indexes, and the last changes. A plain value.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::EmbeddedBuilder;
use super::index::Index;
#[cfg(any(feature = "file-client", feature = "testing"))]
use crate::objects::json::key_of;
use crate::objects::{Kind, ObjectKey, Query};

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) kind: Arc<Kind>,
    pub(super) key: ObjectKey,
}

/// One object has been written, or removed.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) place: Place,
    /// What it was; `None` if it has been created.
    pub(super) old: Option<Arc<Value>>,
    /// What it is, or was at the end.
    pub(super) object: Arc<Value>,
    pub(super) removed: bool,
    /// About how many bytes of memory the history needs for it, once the object has changed again.
    pub(super) kept: usize,
}

pub(super) type Table = BTreeMap<ObjectKey, Arc<Value>>;

#[derive(Debug, Default)]
pub(super) struct State {
    /// The version of the last change.
    pub(super) head: u64,
    kinds: HashMap<Arc<Kind>, Table>,
    pub(super) index: Index,
    /// The last changes, up to that of version `head`, each one version after the other.
    history: VecDeque<Change>,
    most_history: usize,
    /// The sum of [`Change::kept`] over the history.
    history_bytes: usize,
    most_history_bytes: usize,
}

impl State {
    pub(super) fn new(settings: &EmbeddedBuilder) -> Self {
        Self { most_history: settings.history, most_history_bytes: settings.history_bytes, ..Self::default() }
    }

    /// One for all places of a kind.
    pub(super) fn kind(&self, kind: &Kind) -> Arc<Kind> {
        self.kinds.get_key_value(kind).map_or_else(|| Arc::new(kind.clone()), |(kind, _)| Arc::clone(kind))
    }

    /// How many changes the history holds at most. While the limit of its bytes is near, it holds no more than now.
    pub(super) fn most_history(&self) -> usize {
        let is_near = self.history_bytes > self.most_history_bytes / 2;
        if is_near { self.history.len() } else { self.most_history }
    }

    pub(super) fn table(&self, kind: &Kind) -> Option<&Table> {
        self.kinds.get(kind)
    }

    pub(super) fn get(&self, kind: &Kind, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.table(kind)?.get(key)
    }

    /// What a query selects, in the order of the keys.
    pub(super) fn select<'a>(&'a self, kind: &Kind, query: &'a Query) -> impl Iterator<Item = &'a Arc<Value>> {
        let namespace = query.namespace.as_deref().unwrap_or_default();
        let from = ObjectKey::new(namespace, "");
        let objects = self.table(kind).into_iter().flat_map(move |table| table.range(from.clone()..));
        let inside = objects.take_while(move |(key, _)| namespace.is_empty() || key.namespace() == namespace);
        inside.map(|(_, object)| object).filter(|object| query.selects(object))
    }

    /// The changes after this version, the oldest first; `None` if they are not all known.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let missed = usize::try_from(self.head.checked_sub(version)?).ok()?;
        let known = self.history.len().checked_sub(missed)?;
        Some(self.history.range(known..))
    }

    /// Makes the changes, and returns what they have displaced: to be dropped where no lock is held.
    pub(super) fn apply(&mut self, changes: Vec<Change>) -> Vec<Change> {
        for change in changes {
            let Place { kind, key } = &change.place;
            self.head = change.version;
            if let Some(old) = &change.old {
                self.index.remove(old, &change.place);
            }
            let table = self.kinds.entry(Arc::clone(kind)).or_default();
            if change.removed {
                table.remove(key);
            } else {
                table.insert(key.clone(), Arc::clone(&change.object));
                self.index.insert(&change.object, &change.place);
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

    /// Takes an object as it is, in the place of the one of its key. No change before it is known any more.
    #[cfg(any(feature = "file-client", feature = "testing"))]
    pub(super) fn load(&mut self, kind: &Kind, object: Value) {
        let place = Place { kind: self.kind(kind), key: key_of(&object) };
        let object = Arc::new(object);
        self.history.clear();
        self.history_bytes = 0;
        if let Some(before) = self.get(&place.kind, &place.key).cloned() {
            self.index.remove(&before, &place);
        }
        self.index.insert(&object, &place);
        self.kinds.entry(place.kind).or_default().insert(place.key, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn change(version: u64, name: &str, old: bool, removed: bool) -> Change {
        let object = Arc::new(json!({"metadata": {"name": name, "uid": name,
            "ownerReferences": [{"uid": "u", "blockOwnerDeletion": true}]}}));
        let place = Place { kind: Arc::new(Kind::of("v1", "X")), key: ObjectKey::cluster(name) };
        Change { version, place, old: old.then(|| Arc::clone(&object)), object, removed, kept: 10 }
    }

    fn state(changes: usize, bytes: usize) -> State {
        State::new(&EmbeddedBuilder::new().history(changes).history_bytes(bytes))
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
    fn dependents_are_known_for_as_long_as_they_are_there() {
        let mut state = state(0, 0);
        state.apply(vec![change(1, "a", false, false), change(2, "b", false, false)]);
        assert_eq!(state.index.dependents("u").map(|place| place.key.name()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(state.index.blocking("u"), 2);
        assert_eq!(state.index.place("a").map(|place| place.key.name()), Some("a"));
        state.apply(vec![change(3, "a", true, true), change(4, "b", true, true)]);
        assert!(state.index.is_empty());
        assert!(state.get(&Kind::of("v1", "X"), &ObjectKey::cluster("a")).is_none());
    }
}
