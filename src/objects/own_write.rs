//! The writes of runs, and the question whether a watch has shown them.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::client::{Client, DeleteOptions};
use super::deletion::Deletion;
use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;
use super::query::Query;
use super::shared::SharedObject;
use super::version::is_older;
use crate::run::own_writes::{OwnWrite, note, object_hash};
use crate::watch::store::Store;
use crate::watch::write_view::WriteView;

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
}

impl<T: Object> ShownObjects<T> {
    pub(super) fn new(client: &dyn Client, kind: &Kind, query: &Query, shown: Store<ObjectKey, T>) -> Self {
        Self { store: client.store_id(), kind: kind.clone(), query: query.clone(), shown }
    }
}

impl<T: Object> WriteView for ShownObjects<T> {
    fn is_to_show(&self, write: &(dyn Any + Send + Sync)) -> bool {
        let Some(write) = write.downcast_ref::<ObjectWrite>() else { return false };
        if write.store != self.store || write.kind != self.kind {
            return false;
        }
        let shown = self.shown.get(&write.key);
        match (&write.state, shown) {
            (WrittenState::Gone(_), None) => false,
            (WrittenState::Gone(uid), Some(shown)) => {
                let shown = shown.meta();
                *uid.get_or_init(|| shown.uid.clone()) == shown.uid
            }
            (WrittenState::Stored(object), None) => self.query.selects(object),
            (WrittenState::Stored(object), Some(shown)) => {
                is_older(&shown.meta().resource_version, object.resource_version())
            }
        }
    }
}
