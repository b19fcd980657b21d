//! A predicate for the changes that a reconciler must see.

use serde_json::Value;

use super::error::ClientError;
use super::key::ObjectKey;
use super::object::Object;
use homeostat::watch::{Event, Predicate};

/// Passes all events except updates that change only the status.
///
/// Such an update is usually written by a reconciler that has just run, so the key need not run again. An update passes
/// if it changes the generation, the labels, annotations, finalizers or owner references, or begins the deletion. If
/// the object has no generation, an update passes if it changes any field other than the status.
///
/// # Examples
///
/// ```
/// use homeostat::Event;
/// use homeostat_objects::{DynamicObject, Kind, ObjectKey, changes_beside_status};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// let (key, vm) = (ObjectKey::new("default", "vm-1"), DynamicObject::new(&VM, "default", "vm-1"));
/// let becomes = |new| Event::Updated { key: key.clone(), old: Arc::new(vm.clone()), new: Arc::new(new) };
///
/// let wanted = changes_beside_status();
/// assert!(!wanted.accepts(&becomes(vm.clone().with("status", json!({"ready": true})))));
/// assert!(wanted.accepts(&becomes(vm.clone().with("spec", json!({"cores": 4})))));
/// ```
#[must_use]
pub fn changes_beside_status<T: Object>() -> Predicate<ObjectKey, T> {
    Predicate::new(|event: &Event<ObjectKey, T>| match event {
        Event::Updated { old, new, .. } => differ(&**old, &**new),
        _ => true,
    })
}

fn differ<T: Object>(old: &T, new: &T) -> bool {
    let (was, is) = (old.meta(), new.meta());
    let metadata_differs = was.uid != is.uid
        || was.labels != is.labels
        || was.annotations != is.annotations
        || was.finalizers != is.finalizers
        || was.owner_references != is.owner_references
        || was.deletion_timestamp != is.deletion_timestamp;
    if metadata_differs || was.generation != is.generation {
        return true;
    }
    // If the JSON of an object cannot be written, assume that the object has changed.
    is.generation == 0 && !matches!((content(old), content(new)), (Ok(was), Ok(is)) if was == is)
}

/// Returns the JSON of an object without metadata and status.
pub(super) fn content(object: &impl Object) -> Result<Value, ClientError> {
    let mut json = object.to_json()?;
    if let Some(fields) = json.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    Ok(json)
}
