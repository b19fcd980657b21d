//! Objects whose owners are gone, where no client deletes them by itself.

use std::collections::HashMap;

use serde::Deserialize;

use super::client::{Client, DeleteOptions};
use super::error::{ClientError, ObjectRef};
use super::json::key_of;
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::ObjectMeta;
use super::owner;
use super::ownership::Ownership;
use super::query::Query;

/// What says that an object belongs to one of the owners in question.
#[derive(Clone, Copy, Debug)]
pub enum OwnedBy<'a> {
    /// The marks of an [`Ownership`].
    Marks(&'a Ownership),
    /// Its owner references. An object that refers to owners of other kinds too belongs to them as well, and is not touched.
    References,
}

/// An owner that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Owner {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its uid, if that is known. Another object of the same key is not the owner.
    pub uid: Option<String>,
}

/// What a [`garbage_collect`] has done.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Collected {
    /// The objects that are deleted, or will be when nothing holds them any more.
    pub deleted: Vec<ObjectKey>,
    /// Why others are not. [`ClientError::Conflict`]: it has changed meanwhile, or another has taken its name.
    pub failed: Vec<ClientError>,
    /// Why it is not known whether an owner exists; once for each such owner. What belongs to it is not touched.
    pub unknown: Vec<ClientError>,
}

/// Deletes the objects of a kind that belong to owners of which none exists any more. Owners and objects may live in different
/// clients; where a client deletes by owner references itself, there is no need for this.
///
/// `exists` says of an owner of the kind `owners` whether it exists; where a client keeps them, [`owner_exists`] does. It is called
/// after the objects have been listed, once for each owner: an owner is there before what belongs to it. It must see what is and
/// not what was: a store that lags behind its watch is no answer. If it fails, the owner counts as existing.
///
/// Not deleted is:
///
/// - what belongs to nobody, or to an owner of another kind;
/// - what has changed since it was listed: its owner may have come back, and taken it again;
/// - what is being deleted already.
///
/// A failure does not stop the others.
///
/// # Errors
///
/// Those of the listing; nothing has been deleted then.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{
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
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
pub fn garbage_collect(
    client: &dyn Client,
    kind: &Kind,
    query: &Query,
    by: OwnedBy<'_>,
    owners: &Kind,
    mut exists: impl FnMut(&Owner) -> Result<bool, ClientError>,
) -> Result<Collected, ClientError> {
    let mut collected = Collected::default();
    let mut known = HashMap::new();
    for object in client.list(kind, query)?.items {
        let key = key_of(&object);
        let meta = match ObjectMeta::deserialize(&object["metadata"]) {
            Ok(meta) => meta,
            Err(error) => {
                let which = ObjectRef::new(kind, &key);
                collected.failed.push(ClientError::invalid(which, "metadata", "", error.to_string()));
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
        let only_this = DeleteOptions::default().uid(meta.uid).resource_version(meta.resource_version);
        match client.delete(kind, &key, &only_this) {
            Ok(_) => collected.deleted.push(key),
            // Somebody else has deleted it.
            Err(ClientError::NotFound { .. }) => {}
            Err(error) => collected.failed.push(error),
        }
    }
    Ok(collected)
}

impl OwnedBy<'_> {
    /// The owners of an object, if all are of this kind.
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

/// Whether a client has this owner: an object of its key, and of its uid, if that is known.
///
/// # Errors
///
/// Those of [`Client::get`], but for [`ClientError::NotFound`].
pub fn owner_exists(client: &dyn Client, kind: &Kind, owner: &Owner) -> Result<bool, ClientError> {
    match client.get(kind, &owner.key) {
        Ok(object) => Ok(owner.uid.as_ref().is_none_or(|uid| super::json::text_of(&object, "uid") == uid)),
        Err(ClientError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
