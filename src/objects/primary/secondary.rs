//! The objects that a primary has made.

use std::collections::HashSet;
use std::fmt;

use super::super::api::Api;
use super::super::changes::content;
use super::super::client::DeleteOptions;
use super::super::error::{ClientError, Ignore};
use super::super::events::{EventRecorder, EventType};
use super::super::key::ObjectKey;
use super::super::meta::ObjectMeta;
use super::super::object::Object;
use super::super::ownership::Ownership;
use super::super::query::Query;
use super::super::reasons;

/// The objects of one type that primaries make, in the client of the primaries or in another: marked with who they belong to, and
/// never taken from somebody else. A cheap handle: one for the [`PrimaryController`](super::PrimaryController), one for its
/// reconciler.
///
/// Everything is read from the client, nothing from a watch: what has just been made is not made twice, and what has just become
/// another's is not written over. Each write is of the version that was read; if that is no longer the last one, it is a
/// [conflict](ClientError::Conflict), and the next run reads again.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Api, DynamicObject, OperationResult, Kind, MemoryClient, Object, Secondary};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
/// const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");
/// let pages = Secondary::new(Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), PAGE));
/// let (one, other) = (DynamicObject::new(&SITE, "default", "one"), DynamicObject::new(&SITE, "default", "other"));
/// let page = DynamicObject::new(&PAGE, "pages", "index").with("text", json!("Welcome"));
///
/// assert!(matches!(pages.ensure(&one, page.clone())?, OperationResult::Created(_)));
/// assert!(matches!(pages.ensure(&one, page.clone())?, OperationResult::Unchanged(_)));
/// let refused = pages.ensure(&other, page).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "Page pages/index is invalid: metadata.annotations is \"Site.example.com default/one\", but must name Site default/other: \
///      it already exists, and this controller does not manage it"
/// );
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct Secondary<S> {
    api: Api<S>,
    ownership: Ownership,
    recorder: Option<EventRecorder>,
    query: Query,
}

/// What [`Secondary::ensure`] has found and done, with the object as it is then.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationResult<S> {
    /// It was not there.
    Created(S),
    /// It was there, and another.
    Updated(S),
    /// It was there as it should be.
    Unchanged(S),
}

impl<S> OperationResult<S> {
    /// The object.
    #[must_use]
    pub fn object(&self) -> &S {
        match self {
            Self::Created(object) | Self::Updated(object) | Self::Unchanged(object) => object,
        }
    }

    /// Whether something has been written.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !matches!(self, Self::Unchanged(_))
    }
}

impl<S: Object> Secondary<S> {
    /// Those of this [`Api`], marked as [`Ownership::new`] does. Nothing is recorded.
    #[must_use]
    pub fn new(api: Api<S>) -> Self {
        Self { api, ownership: Ownership::new(), recorder: None, query: Query::all() }
    }

    /// Marks them so. What is marked otherwise is somebody else's.
    #[must_use]
    pub fn ownership(self, ownership: Ownership) -> Self {
        Self { ownership, ..self }
    }

    /// Lists and watches secondaries in this namespace only: all of them must be there. Without this, the program needs the right to
    /// list and watch them in all namespaces.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        let query = Query::of_kind_in(self.api.kind(), Some(namespace));
        Self { query, ..self }
    }

    /// Which objects are watched.
    pub(super) fn query(&self) -> &Query {
        &self.query
    }

    /// Records what is done, and what is refused, as an event of the primary, in the words of [`reasons`].
    #[must_use]
    pub fn recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Where they are.
    #[must_use]
    pub fn api(&self) -> &Api<S> {
        &self.api
    }

    /// The key of the primary of this kind that an object belongs to.
    #[must_use]
    pub fn owner_key(&self, object: &S, primaries: &super::super::kind::Kind) -> Option<ObjectKey> {
        self.ownership.owner_key(object.meta(), primaries)
    }

    /// Sees to it that this object is there, as one of the primary's, with this content and at least these labels, annotations,
    /// finalizers and owner references. What others have added to its metadata stays, and so does its status. If all is as it
    /// should be, nothing is written.
    ///
    /// # Errors
    ///
    /// - [`ClientError::Invalid`], if there is such an object that is not the primary's: it is not touched, and the event is
    ///   [`reasons::ERR_RESOURCE_EXISTS`]. Or if `desired` has no name, or is marked as another's;
    /// - [`ClientError::Conflict`], if it has changed since it was read, or is being deleted: it is made anew once it is gone;
    /// - those of the [`Client`](super::super::client::Client).
    pub fn ensure(&self, primary: &impl Object, mut desired: S) -> Result<OperationResult<S>, ClientError> {
        if desired.meta().name.is_empty() {
            return Err(ClientError::invalid(desired.object_ref(), "metadata.name", "", "must be set"));
        }
        self.ownership.mark(&primary.object_ref(), &mut desired)?;
        let (key, meta) = (desired.key(), desired.meta_mut());
        meta.uid.clear();
        meta.resource_version.clear();
        let Some(current) = self.api.get(&key).ignore_not_found()? else {
            return match self.api.create(&desired) {
                Ok(created) => {
                    self.synced(primary, &reasons::created(&created.object_ref()));
                    Ok(OperationResult::Created(created))
                }
                // Somebody was faster: whose is it?
                Err(ClientError::AlreadyExists { .. }) => self.adjust(primary, self.api.get(&key)?, desired),
                Err(error) => Err(error),
            };
        };
        self.adjust(primary, current, desired)
    }

    fn adjust(&self, primary: &impl Object, current: S, mut desired: S) -> Result<OperationResult<S>, ClientError> {
        self.check_owned(primary, &current)?;
        if current.meta().is_deleting() {
            let reason = "it is being deleted, and is to be there: it is made anew once it is gone".to_owned();
            return Err(ClientError::Conflict { object: current.object_ref(), reason });
        }
        let meta = merged(current.meta(), desired.meta());
        *desired.meta_mut() = meta;
        if desired.meta() == current.meta() && content(&desired)? == content(&current)? {
            return Ok(OperationResult::Unchanged(current));
        }
        let updated = self.api.update(&desired)?;
        // The client may know better: what it fills in by itself is not a difference.
        if updated.meta().resource_version == current.meta().resource_version {
            return Ok(OperationResult::Unchanged(updated));
        }
        self.synced(primary, &reasons::updated(&updated.object_ref()));
        Ok(OperationResult::Updated(updated))
    }

    /// All that belong to the primary, those that are being deleted too, in the order of their keys.
    ///
    /// # Errors
    ///
    /// Those of the client.
    pub fn list(&self, primary: &impl Object) -> Result<Vec<S>, ClientError> {
        let query = Query { namespace: self.query.namespace.clone(), ..self.ownership.query_of(&primary.object_ref()) };
        let mut objects = self.api.list(&query)?.items;
        objects.retain(|object| self.owns(primary, object));
        Ok(objects)
    }

    /// Deletes one of the primary's objects. Returns whether it was there: `false` if it is gone, or is going already.
    ///
    /// # Errors
    ///
    /// As [`ensure`](Self::ensure): what is not the primary's is not deleted.
    pub fn remove(&self, primary: &impl Object, key: &ObjectKey) -> Result<bool, ClientError> {
        let Some(object) = self.api.get(key).ignore_not_found()? else {
            return Ok(false);
        };
        self.check_owned(primary, &object)?;
        self.delete(primary, &object)
    }

    /// Deletes all of the primary's objects but these. Returns the keys of those that it has deleted.
    ///
    /// # Errors
    ///
    /// Those of the client. A failure does not stop the others; the first one is returned.
    pub fn prune(
        &self,
        primary: &impl Object,
        keep: impl IntoIterator<Item = ObjectKey>,
    ) -> Result<Vec<ObjectKey>, ClientError> {
        let keep: HashSet<_> = keep.into_iter().collect();
        let (mut deleted, mut result) = (Vec::new(), Ok(()));
        for object in self.list(primary)?.into_iter().filter(|object| !keep.contains(&object.key())) {
            match self.delete(primary, &object) {
                Ok(true) => deleted.push(object.key()),
                Ok(false) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| deleted)
    }

    /// Deletes all that belongs to a primary that is gone: what a list finds by labels, and what a watch has found by annotations,
    /// should the labels have been taken away. Returns whether there was anything.
    pub(super) fn collect(&self, gone: &impl Object, known: Vec<ObjectKey>) -> Result<bool, ClientError> {
        let mut result = self.prune(gone, []).map(|deleted| !deleted.is_empty());
        for key in known {
            let deleted = match self.api.get(&key).ignore_not_found() {
                Ok(Some(object)) if self.owns(gone, &object) => self.delete(gone, &object),
                found => found.map(|_| false),
            };
            result = result.and_then(|found| deleted.map(|deleted| found | deleted));
        }
        result
    }

    fn owns(&self, primary: &impl Object, object: &S) -> bool {
        self.owner_key(object, &primary.kind()) == Some(primary.key())
    }

    /// What is another's is refused, and the primary's events say so.
    fn check_owned(&self, primary: &impl Object, object: &S) -> Result<(), ClientError> {
        if self.owns(primary, object) {
            return Ok(());
        }
        let which = object.object_ref();
        if let Some(recorder) = &self.recorder {
            recorder.event(primary, EventType::Warning, reasons::ERR_RESOURCE_EXISTS, &reasons::exists(&which));
        }
        let owner = self.ownership.owner_of(object.meta());
        let owner = owner.map_or_else(String::new, |owner| format!("{} {}", owner.kind, owner.key));
        let rule =
            format!("must name {}: it already exists, and this controller does not manage it", primary.object_ref());
        Err(ClientError::invalid(which, "metadata.annotations", owner, rule))
    }

    /// Deletes it as it was read, or not at all.
    fn delete(&self, primary: &impl Object, object: &S) -> Result<bool, ClientError> {
        let meta = object.meta();
        if meta.is_deleting() {
            return Ok(false);
        }
        let only_this = DeleteOptions::default().uid(&*meta.uid).resource_version(&*meta.resource_version);
        let deleted = self.api.delete(&object.key(), &only_this).ignore_not_found()?.is_some();
        if deleted {
            self.synced(primary, &reasons::deleted(&object.object_ref()));
        }
        Ok(deleted)
    }

    fn synced(&self, primary: &impl Object, message: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.event(primary, EventType::Normal, reasons::SYNCED, message);
        }
    }
}

/// What there is, and what is desired besides.
fn merged(current: &ObjectMeta, desired: &ObjectMeta) -> ObjectMeta {
    let mut meta = current.clone();
    meta.labels.extend(desired.labels.clone());
    meta.annotations.extend(desired.annotations.clone());
    for finalizer in &desired.finalizers {
        if !meta.has_finalizer(finalizer) {
            meta.finalizers.push(finalizer.clone());
        }
    }
    for owner in &desired.owner_references {
        match meta.owner_references.iter_mut().find(|known| known.uid == owner.uid) {
            Some(known) => *known = owner.clone(),
            None => meta.owner_references.push(owner.clone()),
        }
    }
    meta
}

impl<S> fmt::Debug for Secondary<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secondary").field("api", &self.api).finish_non_exhaustive()
    }
}
