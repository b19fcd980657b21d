//! Remembers the writes of runs, and checks whether a watch has shown them.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use super::gate::{OwnWrites, Shown, WriteView};
use super::journal::{OwnWrite, note};
use crate::client::{Client, DeleteOptions};
use crate::deletion::Deletion;
use crate::key::ObjectKey;
use crate::kind::Kind;
use crate::object::Object;
use crate::query::Query;
use crate::shared::SharedObject;
use crate::sync::Mutex;
use crate::value_ref::ValueRef;
use crate::version::{is_older, is_reached};
use homeostat::base::CancellationToken;
use homeostat::run::Gates;
use homeostat::watch::Store;

/// A write of an object.
struct ObjectWrite {
    store: usize,
    kind: Kind,
    key: ObjectKey,
    state: WrittenState,
}

/// The state after a write.
enum WrittenState {
    /// The object as the client returned it.
    Stored(SharedObject),
    Gone(GoneObject),
}

/// A deleted object.
struct GoneObject {
    /// If nobody knows the uid, it is the one that the watch shows at the first check.
    uid: OnceLock<String>,
    /// The object as the run stored it before the deletion. A watch that has not shown this object has not shown its
    /// end either.
    stored: Option<SharedObject>,
}

/// Records a write of the run on this thread.
pub(crate) fn note_write(client: &dyn Client, kind: &Kind, object: &SharedObject) {
    if is_removed(object) {
        note_gone(client, kind, || object.key(), Some(object.uid()));
    } else {
        note_state(client, kind, || object.key(), |_| WrittenState::Stored(object.clone()));
    }
}

/// Returns whether the write that returned this object has removed it, as it does when it removes the last finalizer.
///
/// A pod within its grace period, and a namespace that is being emptied, still exist without finalizers.
fn is_removed(object: &SharedObject) -> bool {
    let ends_at_once = |seconds: ValueRef<'_>| seconds.to_value() == 0;
    let is_empty = |finalizers: ValueRef<'_>| finalizers.to_value().as_array().is_some_and(Vec::is_empty);
    object.is_deleting()
        && object.finalizers().next().is_none()
        && object.pointer("/metadata/deletionGracePeriodSeconds").is_none_or(ends_at_once)
        && object.pointer("/spec/finalizers").is_none_or(is_empty)
}

/// Records a deletion of the run on this thread.
pub(crate) fn note_deletion(
    client: &dyn Client,
    kind: &Kind,
    key: &ObjectKey,
    options: &DeleteOptions,
    deletion: &Deletion<SharedObject>,
) {
    match deletion {
        Deletion::Deleting(object) => note_write(client, kind, object),
        Deletion::Gone => note_gone(client, kind, || key.clone(), options.uid.as_deref()),
    }
}

fn note_gone(client: &dyn Client, kind: &Kind, key: impl FnOnce() -> ObjectKey, uid: Option<&str>) {
    note_state(client, kind, key, |before| {
        let stored = match before {
            Some(WrittenState::Stored(object)) => Some(object.clone()),
            _ => None,
        };
        let uid = uid.or_else(|| stored.as_ref().map(SharedObject::uid)).map(str::to_owned);
        WrittenState::Gone(GoneObject { uid: uid.map(OnceLock::from).unwrap_or_default(), stored })
    });
}

/// Returns the hash of an object's key, the same for writes and for changes of a store.
fn object_hash(key: &ObjectKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Records the state of an object after a write. It replaces the state after the run's previous write of the same
/// object, which `state` receives.
fn note_state(
    client: &dyn Client,
    kind: &Kind,
    key: impl FnOnce() -> ObjectKey,
    state: impl FnOnce(Option<&WrittenState>) -> WrittenState,
) {
    let store = client.store_id();
    note(|journal| {
        let key = key();
        let object = object_hash(&key);
        let writes = journal.entry(object).or_default();
        let is_same = |write: &ObjectWrite| write.store == store && write.kind == *kind && write.key == key;
        let before = writes.iter().position(|noted| written(&*noted.write).is_some_and(is_same));
        let before = before.map(|index| writes.swap_remove(index));
        let state = state(before.as_ref().and_then(|noted| Some(&written(&*noted.write)?.state)));
        writes.push(OwnWrite { object, write: Arc::new(ObjectWrite { store, kind: kind.clone(), key, state }) });
    });
}

fn written(write: &(dyn Any + Send + Sync)) -> Option<&ObjectWrite> {
    write.downcast_ref()
}

/// The objects that a watch has shown.
pub(crate) struct ShownObjects<T> {
    store: usize,
    kind: Kind,
    query: Query,
    shown: Store<ObjectKey, T>,
    /// Cancelled when the watch stops.
    stop: CancellationToken,
    /// The version of the last change that the store includes. Empty before the first list.
    version: Mutex<String>,
    /// Called under this lock.
    listeners: Mutex<Vec<Weak<OwnWrites>>>,
}

impl<T: Object> ShownObjects<T> {
    pub(crate) fn new(
        client: &dyn Client,
        kind: &Kind,
        query: &Query,
        shown: Store<ObjectKey, T>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store: client.store_id(),
            kind: kind.clone(),
            query: query.clone(),
            shown,
            stop,
            version: Mutex::new(String::new()),
            listeners: Mutex::new(Vec::new()),
        }
    }

    /// Returns whether this is the last version that the store is known to include.
    pub(crate) fn is_at(&self, version: &str) -> bool {
        *self.version.lock() == version
    }

    /// Records that the store includes all changes up to a version. `object` is the only object that changed.
    pub(crate) fn advanced(&self, version: &str, object: Option<&ObjectKey>) {
        version.clone_into(&mut self.version.lock());
        let mut listeners = self.listeners.lock();
        if !listeners.is_empty() {
            let shown = object.map_or(Shown::Any, |key| Shown::Object(object_hash(key)));
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.shown(shown));
        }
    }
}

impl<T: Object> WriteView for ShownObjects<T> {
    fn is_to_show(&self, write: &(dyn Any + Send + Sync)) -> bool {
        let Some(write) = written(write) else { return false };
        if write.store != self.store || write.kind != self.kind || self.stop.is_cancelled() {
            return false;
        }
        let shown = self.shown.get(&write.key);
        match (&write.state, shown) {
            (WrittenState::Gone(gone), None) => gone.stored.as_ref().is_some_and(|stored| {
                self.query.selects(stored) && is_older(&self.version.lock(), stored.resource_version())
            }),
            (WrittenState::Gone(gone), Some(shown)) => {
                let shown = shown.meta();
                *gone.uid.get_or_init(|| shown.uid.clone()) == shown.uid
            }
            (WrittenState::Stored(object), shown) => {
                let is_older = match shown {
                    None => self.query.selects(object),
                    Some(shown) => is_older(&shown.meta().resource_version, object.resource_version()),
                };
                // Somebody else may have deleted the object, or changed it so that the query no longer selects it.
                is_older && !is_reached(object.resource_version(), &self.version.lock())
            }
        }
    }

    fn on_shown(&self, gate: Weak<OwnWrites>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&gate));
        listeners.push(gate);
    }
}

impl<T: Object> ShownObjects<T> {
    /// Brings the gate of own writes to a controller that reads this watch.
    pub(crate) fn bring_gate(self: Arc<Self>, gates: &Gates) -> Option<Box<dyn Any + Send + Sync>> {
        let gate = gates.find_or_bring(|| OwnWrites::new(gates.clock().clone(), None))?;
        gate.add_view(self)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    /// The objects that a Kubernetes server returns to a deletion, or to another write while an object is ending.
    #[test]
    fn an_object_that_ends_within_its_grace_period_is_not_removed_yet() {
        let object = |grace: Option<i64>, finalizers: &[&str], spec: serde_json::Value| {
            let mut metadata = json!({"name": "a", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"});
            if let Some(grace) = grace {
                metadata["deletionGracePeriodSeconds"] = grace.into();
            }
            if !finalizers.is_empty() {
                metadata["finalizers"] = json!(finalizers);
            }
            SharedObject::from(&json!({"metadata": metadata, "spec": spec}))
        };
        assert!(is_removed(&object(Some(0), &[], json!({}))));
        assert!(is_removed(&object(None, &[], json!({"finalizers": []}))));
        assert!(!is_removed(&object(Some(0), &["example.com/a"], json!({}))));
        // A pod, and a namespace.
        assert!(!is_removed(&object(Some(30), &[], json!({}))));
        assert!(!is_removed(&object(None, &[], json!({"finalizers": ["kubernetes"]}))));
        assert!(!is_removed(&SharedObject::from(&json!({"metadata": {"name": "a"}}))));
    }
}
