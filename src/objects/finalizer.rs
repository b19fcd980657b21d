//! Finalizers: what has to be done before an object may vanish.

use serde_json::{Value, json};

use super::api::Api;
use super::client::Patch;
use super::error::{ClientError, Ignore};
use super::object::Object;
use crate::run::reconciler::Action;

/// How often a removal is tried again with an object that is read anew.
const MOST_RETRIES: usize = 5;

/// Writes that `finalizer` holds an object, and returns the object as it is then. If it holds it already, nothing is written.
///
/// It is written to the object as it was read, or not at all: no change of another is lost, and a decision that was made on an old
/// state is not kept.
///
/// # Errors
///
/// - [`ClientError::Conflict`] if the object has changed since: read it again;
/// - [`ClientError::Invalid`] of `metadata.finalizers`, if its deletion has been asked for: nothing may hold it any more that does
///   not yet. Of `metadata.resourceVersion`, if it has none: it has not been read;
/// - those of [`Client::patch`](super::Client::patch).
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Api, DynamicObject, Kind, MemoryClient, Object, add_finalizer, remove_finalizer};
/// use std::sync::Arc;
///
/// const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// let vms = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), VM);
/// let vm = vms.create(&DynamicObject::new(&VM, "default", "vm-1"))?;
///
/// let held = add_finalizer(&vms, &vm, "example.com/disk")?;
/// let deleting = vms.delete(&vm.key(), &Default::default())?;
/// assert!(deleting.metadata.is_deleting()); // and still there
/// remove_finalizer(&vms, &deleting, "example.com/disk")?;
/// assert!(vms.get(&vm.key()).unwrap_err().is_not_found());
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
pub fn add_finalizer<T: Object>(api: &Api<T>, object: &T, finalizer: &str) -> Result<T, ClientError> {
    let meta = object.meta();
    if meta.has_finalizer(finalizer) {
        return Ok(object.clone());
    }
    if meta.is_deleting() {
        let rule = "must not be added to an object that is being deleted";
        return Err(ClientError::invalid(object.object_ref(), "metadata.finalizers", finalizer, rule));
    }
    let held: Vec<_> = meta.finalizers.iter().map(String::as_str).chain([finalizer]).collect();
    write(api, object, &json!(held))
}

/// Writes that `finalizer` no longer holds an object, and returns the object as it is then: its last state, if nothing else
/// holds it and its deletion has been asked for.
///
/// What the finalizer stood for has been done, whatever else has changed: if the object is no longer as it was read, it is read
/// again, and the finalizer taken from what it is now; a few times. If that finds it without the finalizer, all is well.
///
/// # Errors
///
/// - [`ClientError::Invalid`] of `metadata.finalizers`, if `object` does not have it: nothing is written. Of
///   `metadata.resourceVersion`, if it has none: it has not been read;
/// - [`ClientError::Conflict`] if it changes all the time, or if another object has taken its name;
/// - those of [`Client::patch`](super::Client::patch): [`ClientError::NotFound`] if it is gone.
pub fn remove_finalizer<T: Object>(api: &Api<T>, object: &T, finalizer: &str) -> Result<T, ClientError> {
    remove_finalizer_of_any(api, object, finalizer).map(|(written, _)| written)
}

/// As [`remove_finalizer`]. Tells besides whether the object was still as it had been read.
pub(crate) fn remove_finalizer_of_any<T: Object>(
    api: &Api<T>,
    object: &T,
    finalizer: &str,
) -> Result<(T, bool), ClientError> {
    if !object.meta().has_finalizer(finalizer) {
        let rule = "must be among the finalizers of the object, to be removed";
        return Err(ClientError::invalid(object.object_ref(), "metadata.finalizers", finalizer, rule));
    }
    let mut result = write_without(api, object, finalizer).map(|written| (written, true));
    for _ in 0..MOST_RETRIES {
        if !result.as_ref().is_err_and(ClientError::is_conflict) {
            break;
        }
        let current = api.get(&object.key())?;
        if current.meta().uid != object.meta().uid {
            break;
        }
        if !current.meta().has_finalizer(finalizer) {
            return Ok((current, false));
        }
        result = write_without(api, &current, finalizer).map(|written| (written, false));
    }
    result
}

fn write_without<T: Object>(api: &Api<T>, object: &T, finalizer: &str) -> Result<T, ClientError> {
    let others: Vec<_> = object.meta().finalizers.iter().filter(|other| *other != finalizer).collect();
    write(api, object, &if others.is_empty() { Value::Null } else { json!(others) })
}

/// Writes the finalizers, if the object still has the version that it was read with.
fn write<T: Object>(api: &Api<T>, object: &T, finalizers: &Value) -> Result<T, ClientError> {
    let version = &object.meta().resource_version;
    if version.is_empty() {
        let rule = "must be set, by reading the object, before its finalizers are written";
        return Err(ClientError::invalid(object.object_ref(), "metadata.resourceVersion", "", rule));
    }
    let metadata = json!({"resourceVersion": version, "finalizers": finalizers});
    api.patch(&object.key(), &Patch::Merge(json!({"metadata": metadata})))
}

/// One run for an object that must not vanish before it has been cleaned up after.
///
/// | the object | what is done |
/// |---|---|
/// | lives | it is seen to that `finalizer` holds it; then `reconcile` |
/// | is being deleted, and `finalizer` holds it | `finalize`; then the finalizer is removed, unless `finalize` failed or asked for a requeue: it is not done then |
/// | is being deleted, and others hold it, if any | nothing |
///
/// The closures are given the object as it is, to be changed if they write it. Both are called at least once, so they must be
/// idempotent: `finalize` may be called for an object for which `reconcile` has done nothing yet, or again.
///
/// # Errors
///
/// Those of the closures, of [`add_finalizer`] and of [`remove_finalizer`], but for an object that is gone by then.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Api, ClientError, DynamicObject, Ignore, Kind, ObjectKey, with_finalizer};
/// use homeostat::Action;
///
/// fn reconcile(vms: &Api<DynamicObject>, key: &ObjectKey) -> Result<Action, ClientError> {
///     let Some(vm) = vms.get(key).ignore_not_found()? else {
///         return Ok(Action::await_change());
///     };
///     with_finalizer(vms, vm, "example.com/disk", |vm| create_disk(vm), |vm| remove_disk(vm))
/// }
///
/// fn create_disk(vm: &mut DynamicObject) -> Result<Action, ClientError> {
///     Ok(Action::await_change())
/// }
///
/// fn remove_disk(vm: &mut DynamicObject) -> Result<Action, ClientError> {
///     Ok(Action::await_change())
/// }
/// ```
pub fn with_finalizer<T: Object, E: From<ClientError>>(
    api: &Api<T>,
    mut object: T,
    finalizer: &str,
    reconcile: impl FnOnce(&mut T) -> Result<Action, E>,
    finalize: impl FnOnce(&mut T) -> Result<Action, E>,
) -> Result<Action, E> {
    if !object.meta().is_deleting() {
        return reconcile(&mut add_finalizer(api, &object, finalizer)?);
    }
    if !object.meta().has_finalizer(finalizer) {
        return Ok(Action::await_change());
    }
    let action = finalize(&mut object)?;
    if action == Action::await_change() && object.meta().has_finalizer(finalizer) {
        remove_finalizer(api, &object, finalizer).ignore_not_found()?;
    }
    Ok(action)
}
