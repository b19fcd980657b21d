//! The writes of runs, and the question whether a watch has shown them.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use super::client::{Client, DeleteOptions};
use super::deletion::Deletion;
use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;
use super::query::Query;
use super::shared::SharedObject;
use super::value_ref::ValueRef;
use super::version::{is_older, is_reached};
use crate::base::cancel::CancellationToken;
use crate::base::sync::Mutex;
use crate::run::own_writes::{OwnWrite, note};
use crate::watch::store::Store;
use crate::watch::write_view::{Shown, ShownListener, WriteView};

/// A write of an object.
struct ObjectWrite {
    store: usize,
    kind: Kind,
    key: ObjectKey,
    state: WrittenState,
}

/// The state that a write left.
enum WrittenState {
    /// The object as the client returned it.
    Stored(SharedObject),
    /// The object with this uid is gone. If the deletion named no uid, it is the uid that the watch shows when it is asked first.
    Gone(OnceLock<String>),
}

/// Notes a write of the run on this thread.
pub(super) fn note_write(client: &dyn Client, kind: &Kind, object: &SharedObject) {
    note(|| {
        let gone = || WrittenState::Gone(OnceLock::from(object.uid().to_owned()));
        let state = if is_removed(object) { gone() } else { WrittenState::Stored(object.clone()) };
        noted(client, kind, object.key(), state)
    });
}

/// Returns whether the write that returned this object has removed it, as the removal of the last finalizer does.
///
/// A pod that ends within its grace period, and a namespace that is being emptied, go on without finalizers.
fn is_removed(object: &SharedObject) -> bool {
    let ends_at_once = |seconds: ValueRef<'_>| seconds.to_value() == 0;
    let is_empty = |finalizers: ValueRef<'_>| finalizers.to_value().as_array().is_some_and(Vec::is_empty);
    object.is_deleting()
        && object.finalizers().next().is_none()
        && object.pointer("/metadata/deletionGracePeriodSeconds").is_none_or(ends_at_once)
        && object.pointer("/spec/finalizers").is_none_or(is_empty)
}

/// Notes a deletion of the run on this thread.
pub(super) fn note_deletion(
    client: &dyn Client,
    kind: &Kind,
    key: &ObjectKey,
    options: &DeleteOptions,
    deletion: &Deletion<SharedObject>,
) {
    match deletion {
        Deletion::Deleting(object) => note_write(client, kind, object),
        Deletion::Gone => note(|| {
            let uid = options.uid.clone().map(OnceLock::from).unwrap_or_default();
            noted(client, kind, key.clone(), WrittenState::Gone(uid))
        }),
    }
}

/// Returns the hash of the key of an object, the same for writes and changes of a store.
fn object_hash(key: &ObjectKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn noted(client: &dyn Client, kind: &Kind, key: ObjectKey, state: WrittenState) -> OwnWrite {
    let object = object_hash(&key);
    OwnWrite { object, write: Arc::new(ObjectWrite { store: client.store_id(), kind: kind.clone(), key, state }) }
}

/// The objects that a watch shows.
pub(super) struct ShownObjects<T> {
    store: usize,
    kind: Kind,
    query: Query,
    shown: Store<ObjectKey, T>,
    /// Cancelled when the watch stops.
    stop: CancellationToken,
    /// The version of the last change that the store includes. Empty before the first list.
    version: Mutex<String>,
    /// Called under this lock.
    listeners: Mutex<Vec<Weak<dyn ShownListener>>>,
}

impl<T: Object> ShownObjects<T> {
    pub(super) fn new(
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
    pub(super) fn is_at(&self, version: &str) -> bool {
        *self.version.lock() == version
    }

    /// Takes the news that the store includes all changes up to a version. `object` is the only object that changed.
    pub(super) fn advanced(&self, version: &str, object: Option<&ObjectKey>) {
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
        let Some(write) = write.downcast_ref::<ObjectWrite>() else { return false };
        if write.store != self.store || write.kind != self.kind || self.stop.is_cancelled() {
            return false;
        }
        let shown = self.shown.get(&write.key);
        match (&write.state, shown) {
            (WrittenState::Gone(_), None) => false,
            (WrittenState::Gone(uid), Some(shown)) => {
                let shown = shown.meta();
                *uid.get_or_init(|| shown.uid.clone()) == shown.uid
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

    fn on_shown(&self, listener: Weak<dyn ShownListener>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&listener));
        listeners.push(listener);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    /// The objects that a Kubernetes server returns to a deletion, or to another write while an object ends.
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
