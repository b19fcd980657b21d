//! The writes of runs, and the question whether a watch has shown them.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::client::{Client, DeleteOptions};
use super::deletion::Deletion;
use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;
use super::query::Query;
use super::shared::SharedObject;
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
        // An update that removes the last finalizer removes the object.
        let is_gone = object.is_deleting() && object.finalizers().next().is_none();
        let gone = || WrittenState::Gone(OnceLock::from(object.uid().to_owned()));
        let state = if is_gone { gone() } else { WrittenState::Stored(object.clone()) };
        noted(client, kind, object.key(), state)
    });
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
    listeners: Mutex<Vec<ShownListener>>,
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
            listeners.retain(|listener| listener(shown));
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

    fn on_shown(&self, listener: ShownListener) {
        self.listeners.lock().push(listener);
    }
}
