//! Garbage collection: deletes objects that have lost their owners, for clients that do not cascade deletions.

use std::collections::HashMap;

use super::super::owner;
use super::writer::delete_as_read;
use crate::{Client, ClientError, Kind, ObjectKey, ObjectMeta, ObjectRef, Ownership, Query, SharedObject, ValueRef};

/// How objects refer to their owners.
#[derive(Clone, Copy, Debug)]
pub enum OwnedBy<'a> {
    /// By the marks of an [`Ownership`].
    Marks(&'a Ownership),
    /// By owner references. An object that also has owners of other kinds is not touched.
    References,
}

/// An owner, to check whether it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Owner {
    /// The namespace and name.
    pub key: ObjectKey,
    /// The uid, if known. Another object with the same key is not the owner.
    pub uid: Option<String>,
}

/// The result of [`garbage_collect`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Collected {
    /// The deleted objects. Those with finalizers still exist.
    pub deleted: Vec<ObjectKey>,
    /// The errors of failed deletions. [`Conflict`](crate::ClientErrorKind::Conflict) means that the object has
    /// changed, or that another object now has its name.
    pub failed: Vec<ClientError>,
    /// The errors of failed existence checks, one for each owner. The objects of these owners are not touched.
    pub unknown: Vec<ClientError>,
}

/// Deletes the objects of a kind that have lost all their owners.
///
/// Owners and objects may be in different clients. A client that cascades deletions by owner references does not need
/// this.
///
/// `exists` returns whether an owner of the kind `owners` exists. Use [`owner_exists`] if a client stores the owners.
/// It is called once for each owner, after the objects have been listed, because an owner is created before its
/// objects. It must read the current state: the store of a watch may lag behind. If it fails, the owner counts as
/// existing.
///
/// These objects are not deleted:
///
/// - objects without an owner, or with an owner of another kind;
/// - objects that have changed since they were listed, because their owner may exist again;
/// - objects that are already being deleted.
///
/// A failure does not stop the other deletions.
///
/// # Errors
///
/// The errors of the listing. Then nothing is deleted.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{
///     Api, DynamicObject, Kind, MemoryClient, Object, OwnedBy, Ownership, Query, garbage_collect, owner_exists,
/// };
/// use std::sync::Arc;
///
/// const MODEL: Kind = Kind::namespaced("example.com", "v1", "Model");
/// const POD: Kind = Kind::namespaced("", "v1", "Pod");
/// let models = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), MODEL);
/// let pods = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), POD);
/// let ownership = Ownership::new();
///
/// for name in ["shop", "bank"] {
///     let model = models.create(&DynamicObject::new(&MODEL, "default", name))?;
///     let mut pod = DynamicObject::new(&POD, "pods", name);
///     ownership.mark(&model.object_ref(), &mut pod)?;
///     pods.create(&pod)?;
/// }
/// models.delete(&"default/shop".parse().unwrap(), &Default::default())?;
///
/// let by = OwnedBy::Marks(&ownership);
/// let exists = |owner: &_| owner_exists(&**models.client(), &MODEL, owner);
/// let collected = garbage_collect(&**pods.client(), &POD, &Query::all(), by, &MODEL, exists)?;
/// assert_eq!(collected.deleted, ["pods/shop".parse().unwrap()]);
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
pub fn garbage_collect(
    client: &dyn Client,
    kind: &Kind,
    query: &Query,
    by: OwnedBy<'_>,
    owners: &Kind,
    exists: impl FnMut(&Owner) -> Result<bool, ClientError>,
) -> Result<Collected, ClientError> {
    let listed = client.list(kind, query)?.items;
    Ok(collect(client, kind, listed.into_iter().map(Ok), by, owners, exists))
}

/// Deletes the candidates that have lost all their owners, in the version that was read.
pub(crate) fn collect(
    client: &dyn Client,
    kind: &Kind,
    candidates: impl Iterator<Item = Result<SharedObject, ClientError>>,
    by: OwnedBy<'_>,
    owners: &Kind,
    mut exists: impl FnMut(&Owner) -> Result<bool, ClientError>,
) -> Collected {
    let (mut collected, mut known) = (Collected::default(), HashMap::new());
    for candidate in candidates {
        let parsed = candidate.and_then(|object| {
            let key = object.key();
            let invalid = |error: serde_json::Error| {
                ClientError::invalid(ObjectRef::new(kind, &key), "metadata", "", error.to_string())
            };
            object
                .get("metadata")
                .map_or_else(|| serde_json::from_value(serde_json::Value::Null), ValueRef::to_typed)
                .map_err(invalid)
        });
        let meta = match parsed {
            Ok(meta) => meta,
            Err(error) => {
                collected.failed.push(error);
                continue;
            }
        };
        let Some(its_owners) = by.owners_of(&meta, owners).filter(|_| !meta.is_deleting()) else {
            continue;
        };
        let mut is_there = |owner: Owner| {
            *known.entry(owner).or_insert_with_key(|owner| {
                exists(owner).unwrap_or_else(|error| {
                    collected.unknown.push(error);
                    true
                })
            })
        };
        if its_owners.into_iter().any(&mut is_there) {
            continue;
        }
        match delete_as_read(client, kind, &meta) {
            Ok(Some(_)) => collected.deleted.push(meta.key()),
            Ok(None) => {}
            Err(error) => collected.failed.push(error),
        }
    }
    collected
}

impl OwnedBy<'_> {
    /// Returns the owners of an object, if all are of this kind.
    fn owners_of(self, meta: &ObjectMeta, kind: &Kind) -> Option<Vec<Owner>> {
        match self {
            Self::Marks(ownership) => {
                let key = ownership.owner_key(meta, kind)?;
                Some(vec![Owner { key, uid: None }])
            }
            Self::References if meta.owner_references.is_empty() => None,
            Self::References => {
                let owners = meta.owner_references.iter().map(|reference| {
                    let key = owner::key_of(meta, reference, kind)?;
                    Some(Owner { key, uid: Some(reference.uid.clone()) })
                });
                owners.collect()
            }
        }
    }
}

/// Returns whether a client has this owner: an object with its key, and with its uid if that is known.
///
/// # Errors
///
/// The errors of [`Client::get`], without [`NotFound`](crate::ClientErrorKind::NotFound).
pub fn owner_exists(client: &dyn Client, kind: &Kind, owner: &Owner) -> Result<bool, ClientError> {
    match client.get(kind, &owner.key) {
        Ok(object) => Ok(owner.uid.as_ref().is_none_or(|uid| object.uid() == uid)),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
