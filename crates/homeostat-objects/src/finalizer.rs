//! Finalizers: tasks that must be done before an object is removed.

use serde_json::{Value, json};

use super::api::Api;
use super::client::Patch;
use super::error::{ClientError, Ignore};
use super::object::Object;
use homeostat::run::Action;

/// The most retries of a removal. Each retry reads the object again.
const MOST_RETRIES: usize = 5;

/// Adds `finalizer` to an object, and returns it as stored. If the object already has it, writes nothing.
///
/// The finalizer is added only if the object has not changed since it was read. Therefore no change of others is lost,
/// and no decision depends on an old state.
///
/// The write is a merge patch of `metadata.finalizers`. A table of cases expects it with `expect_patch`:
/// `Patch::Merge(json!({"metadata": {"finalizers": [finalizer]}}))`.
///
/// # Errors
///
/// - [`Conflict`](crate::ClientErrorKind::Conflict) if the object has changed since it was read. Read it again.
/// - [`Invalid`](crate::ClientErrorKind::Invalid) for `metadata.finalizers` if the object is being deleted and does not
///   have the finalizer yet.
/// - [`Invalid`](crate::ClientErrorKind::Invalid) for `metadata.resourceVersion` if the object has none: it was not
///   read from a client.
/// - The errors of [`Client::patch`](super::Client::patch).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{
///     Api, DeleteOptions, DynamicObject, Kind, MemoryClient, Object, add_finalizer, remove_finalizer,
/// };
/// use std::sync::Arc;
///
/// const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// let vms = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), VM);
/// let vm = vms.create(&DynamicObject::new(&VM, "default", "vm-1"))?;
///
/// let held = add_finalizer(&vms, &vm, "example.com/disk")?;
/// let deletion = vms.delete(&vm.key(), &DeleteOptions::default())?;
/// let deleting = deletion.into_object().expect("the finalizer holds it");
/// remove_finalizer(&vms, &deleting, "example.com/disk")?;
/// assert!(vms.get(&vm.key()).unwrap_err().is_not_found());
/// # Ok::<_, homeostat_objects::ClientError>(())
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

/// Removes `finalizer` from an object, and returns it as stored. If that removes the object, returns its last state.
///
/// The task of the finalizer is done, so other changes of the object do not matter. If the object has changed, it is
/// read again and the removal is retried a few times. If the finalizer is gone by then, the call succeeds.
///
/// # Errors
///
/// - [`Invalid`](crate::ClientErrorKind::Invalid) for `metadata.finalizers` if `object` does not have the finalizer.
///   Nothing is written.
/// - [`Invalid`](crate::ClientErrorKind::Invalid) for `metadata.resourceVersion` if the object has none: it was not
///   read from a client.
/// - [`Conflict`](crate::ClientErrorKind::Conflict) if the object keeps changing, or if another object now has its
///   name.
/// - [`NotFound`](crate::ClientErrorKind::NotFound) if the object is gone, and the other errors of
///   [`Client::patch`](super::Client::patch).
pub fn remove_finalizer<T: Object>(api: &Api<T>, object: &T, finalizer: &str) -> Result<T, ClientError> {
    remove_finalizer_of_any(api, object, finalizer).map(|(written, _)| written)
}

/// Does the same as [`remove_finalizer`], and also returns whether the object was unchanged since it was read.
pub(crate) fn remove_finalizer_of_any<T: Object>(
    api: &Api<T>,
    object: &T,
    finalizer: &str,
) -> Result<(T, bool), ClientError> {
    if !object.meta().has_finalizer(finalizer) {
        let rule = "must be one of the object's finalizers";
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
    let meta = object.meta();
    let others: Vec<_> = meta.finalizers.iter().filter(|other| *other != finalizer).collect();
    write(api, object, &if others.is_empty() { Value::Null } else { json!(others) })
}

/// Writes the finalizers if the object still has the version that was read.
fn write<T: Object>(api: &Api<T>, object: &T, finalizers: &Value) -> Result<T, ClientError> {
    let version = &object.meta().resource_version;
    if version.is_empty() {
        let rule = "must be set: read the object from a client first";
        return Err(ClientError::invalid(object.object_ref(), "metadata.resourceVersion", "", rule));
    }
    let metadata = json!({"resourceVersion": version, "finalizers": finalizers});
    api.patch(&object.key(), &Patch::Merge(json!({"metadata": metadata})))
}

/// Reconciles an object that needs cleaning up before it is removed.
///
/// | the object | action |
/// |---|---|
/// | is not being deleted | adds `finalizer`, then calls `reconcile` |
/// | is being deleted and has `finalizer` | calls `finalize`, then removes the finalizer, unless `finalize` fails or asks for a requeue |
/// | is being deleted and does not have `finalizer` | nothing |
///
/// Each write is a merge patch of `metadata.finalizers`: the new list, or `null` instead of an empty one.
///
/// The closures get the current object, and may change it. Both must be idempotent: `finalize` may be called again, and
/// it may be called for an object that `reconcile` has not handled yet.
///
/// # Errors
///
/// The errors of the closures, of [`add_finalizer`] and of [`remove_finalizer`]. It is not an error if the object is
/// already gone when the finalizer is removed.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, ClientError, DynamicObject, Ignore, Kind, ObjectKey, with_finalizer};
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
        let Some(mut held) = add_finalizer(api, &object, finalizer).ignore_not_found()? else {
            return Ok(Action::await_change());
        };
        return reconcile(&mut held);
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
