//! The objects that primaries make.
//!
//! # Invariants
//!
//! - A secondary is read from its client, and is written or deleted only in the version that was read. An object that
//!   has neither the marks nor, without marks, the controller reference of the primary is not changed.
//! - A secondary of a missing primary is deleted only in a run of that primary's key, after the client has reported the
//!   primary as missing. No other run of the key can create it at the same time.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::json;

use super::super::dependents::garbage::collect;
use super::super::dependents::{
    DependentWrite, DependentWriter, OperationResult, OwnedBy, Owner, OwnerClaim, Session, WriteJournal, check_term,
    list, put_or_adopt,
};
use super::reconcile::SecondaryOf;
use crate::{
    Api, ClientError, DynamicObject, EventRecorder, EventType, Ignore, Kind, Object, ObjectKey, ObjectMeta, ObjectRef,
    Ownership, Patch, Query, reasons,
};
use homeostat::run::Context;
use homeostat::watch::Index;

/// The objects of one type that primaries make, in the client of the primaries or in another one.
///
/// Each object is marked with its primary. An object of another owner is never changed. An object without marks belongs
/// to the primary that [controls](crate::set_controller) it; [`ensure`](Self::ensure) adds the marks, and lists find it
/// from then on. A `Secondary` is a cheap handle: give one to the [`PrimaryController`](super::PrimaryController) and
/// one to its reconciler.
///
/// All reads ask the client, not a watch, so an object that was just created is not created twice. Each write applies
/// to the version that was read. If the object has changed since, the write is a
/// [conflict](crate::ClientErrorKind::Conflict), and the next run reads again. Nothing is written once the
/// [term](Context::check_term) of the run has ended.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
/// use homeostat_objects::{Api, DynamicObject, OperationResult, Kind, MemoryClient, Object, Secondary};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
/// const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");
/// let pages = Secondary::new(Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), PAGE));
/// let (one, other) = (DynamicObject::new(&SITE, "default", "one"), DynamicObject::new(&SITE, "default", "other"));
/// let page = DynamicObject::new(&PAGE, "pages", "index").with("text", json!("Welcome"));
/// let cx = Context::detached(); // in a run, the context of the run
///
/// assert!(matches!(pages.ensure(&cx, &one, page.clone())?, OperationResult::Created(_)));
/// assert!(matches!(pages.ensure(&cx, &one, page.clone())?, OperationResult::Unchanged(_)));
/// let refused = pages.ensure(&cx, &other, page).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "Page pages/index is invalid: metadata.annotations is \"Site.example.com default/one\", but must name Site default/other: \
///      it already exists, and this controller does not manage it"
/// );
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct Secondary<S> {
    api: Api<S>,
    ownership: Ownership,
    recorder: Option<EventRecorder>,
    query: Query,
    writer: Arc<DependentWriter<S>>,
}

impl<S: Object> Secondary<S> {
    /// Creates a handle for the objects of this [`Api`], marked by [`Ownership::new`], without a recorder.
    #[must_use]
    pub fn new(api: Api<S>) -> Self {
        let writer = Arc::new(DependentWriter::new(|current: &mut S, desired: &S| {
            let meta = merged(&current.meta(), &desired.meta());
            current.clone_from(desired);
            *current.meta_mut() = meta;
        }));
        Self { api, ownership: Ownership::new(), recorder: None, query: Query::all(), writer }
    }

    /// Sets the annotations and labels that mark the objects. An object with other marks belongs to another owner.
    #[must_use]
    pub fn ownership(self, ownership: Ownership) -> Self {
        Self { ownership, ..self }
    }

    /// Lists and watches only this namespace; all secondaries must be in it.
    ///
    /// Without this setting the program needs permission to list and watch in all namespaces.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        let query = Query::of_kind_in(self.api.kind(), Some(namespace));
        Self { query, ..self }
    }

    /// The query of the watch.
    pub(super) fn query(&self) -> &Query {
        &self.query
    }

    /// Records writes, failed writes and refusals as events of the primary, with the texts of [`reasons`].
    #[must_use]
    pub fn recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Returns the API that keeps the secondaries.
    #[must_use]
    pub fn api(&self) -> &Api<S> {
        &self.api
    }

    /// Returns the key of the primary that an object belongs to, if that primary has this kind.
    #[must_use]
    pub fn owner_key(&self, object: &S, primaries: &Kind) -> Option<ObjectKey> {
        self.ownership.owner_key(&object.meta(), primaries)
    }

    /// Creates or updates an object of the primary so that it has this content.
    ///
    /// The labels, annotations, finalizers and owner references of `desired` are added to the stored object. The status
    /// stays. Nothing is written if the object differs from `desired` only by changes that the client itself made to
    /// the last write.
    ///
    /// # Errors
    ///
    /// - [`Invalid`](crate::ClientErrorKind::Invalid) if the object exists and does not belong to the primary. It is
    ///   not changed, and the event [`reasons::ERR_RESOURCE_EXISTS`] is recorded. The same error is returned if
    ///   `desired` has no name, or has the marks of another owner;
    /// - [`Conflict`](crate::ClientErrorKind::Conflict) if the object has changed since it was read, or is being
    ///   deleted: a later run creates it again;
    /// - [`Transport`](crate::ClientErrorKind::Transport) if a write is due, but the term of the run has ended;
    /// - the errors of the [`Client`](super::super::client::Client).
    pub fn ensure(&self, cx: &Context, primary: &impl Object, desired: S) -> Result<OperationResult<S>, ClientError> {
        if desired.meta().name.is_empty() {
            return Err(ClientError::invalid(desired.object_ref(), "metadata.name", "", "must be set"));
        }
        let desired = self.claim().claim(primary, desired)?;
        let key = desired.key();
        let current = self.api.get(&key).ignore_not_found()?;
        let current = current.map(|current| self.check(primary, current)).transpose()?;
        let put = |(): &mut (), current: Option<&S>, desired| {
            self.in_session(cx, primary, |session| session.put(current, desired))
        };
        put_or_adopt(&mut (), current.as_ref(), desired, put, |(), _| {
            let existing = self.api.get(&key).ignore_not_found()?;
            existing.map(|existing| self.check(primary, existing)).transpose()
        })
    }

    /// Lists the primary's objects in the order of their keys, including those that are being deleted.
    ///
    /// # Errors
    ///
    /// The errors of the client.
    pub fn list(&self, primary: &impl Object) -> Result<Vec<S>, ClientError> {
        list(&**self.api.client(), self.api.kind(), &self.query_of(primary), &self.claim(), primary)
    }

    /// Deletes one of the primary's objects. Returns `false` if it is gone or being deleted already.
    ///
    /// # Errors
    ///
    /// The same as for [`ensure`](Self::ensure): an object of another owner is not deleted.
    pub fn remove(&self, cx: &Context, primary: &impl Object, key: &ObjectKey) -> Result<bool, ClientError> {
        let Some(object) = self.api.get(key).ignore_not_found()? else {
            return Ok(false);
        };
        self.check_owned(primary, &object)?;
        self.delete(cx, primary, &object)
    }

    /// Deletes the primary's objects except those with the keys in `keep`. Returns the keys of the deleted objects.
    ///
    /// # Errors
    ///
    /// The errors of the client, and [`Transport`](crate::ClientErrorKind::Transport) if the term of the run has ended.
    /// A failure does not stop the other deletions; the first one is returned.
    pub fn prune(
        &self,
        cx: &Context,
        primary: &impl Object,
        keep: impl IntoIterator<Item = ObjectKey>,
    ) -> Result<Vec<ObjectKey>, ClientError> {
        let keep: HashSet<_> = keep.into_iter().collect();
        let (mut deleted, mut result) = (Vec::new(), Ok(()));
        for object in self.list(primary)?.into_iter().filter(|object| !keep.contains(&object.key())) {
            match self.delete(cx, primary, &object) {
                Ok(true) => deleted.push(object.key()),
                Ok(false) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| deleted)
    }

    /// Restores the labels of objects with annotations that name the primary. Without the labels, no list finds such an
    /// object. A failure does not stop the others; the first failure is returned.
    fn relabel(&self, cx: &Context, primary: &impl Object, unlabelled: &[ObjectKey]) -> Result<(), ClientError> {
        // The objects need not match the type.
        let api = Api::<DynamicObject>::of_kind(Arc::clone(self.api.client()), self.api.kind().clone());
        let relabel = |key| {
            let Some(object) = api.get(key).ignore_not_found()? else { return Ok(()) };
            let meta = object.meta();
            let owner = self.ownership.unlabelled_owner(&meta, &primary.kind());
            if owner == Some(primary.key()) && !meta.is_deleting() {
                let labels: BTreeMap<_, _> = self.ownership.labels_of(&meta).collect();
                let metadata = json!({"labels": labels, "resourceVersion": meta.resource_version});
                check_term(cx, &ObjectRef::new(self.api.kind(), key))?;
                api.patch(key, &Patch::Merge(json!({"metadata": metadata}))).ignore_not_found()?;
            }
            Ok(())
        };
        unlabelled.iter().map(relabel).fold(Ok(()), Result::and)
    }

    /// Returns the key of an object's primary if the object lacks a label for it.
    pub(super) fn unlabelled_owner(&self, object: &S, primaries: &Kind) -> Option<ObjectKey> {
        self.ownership.unlabelled_owner(&object.meta(), primaries)
    }

    /// Deletes the dependents of a primary that is gone. Returns whether there were any.
    ///
    /// `unlabelled` are the keys of objects that have annotations with the primary, but lack its labels.
    fn collect(&self, cx: &Context, gone: &impl Object, unlabelled: &[ObjectKey]) -> Result<bool, ClientError> {
        let (client, kind) = (&**self.api.client(), self.api.kind());
        let listed = match client.list(kind, &self.query_of(gone)) {
            Ok(listed) => listed.items.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        // Read these after the listed ones have been deleted, so that none is deleted twice.
        let unlabelled = unlabelled.iter().filter_map(|key| client.get(kind, key).ignore_not_found().transpose());
        let by = OwnedBy::Marks(&self.ownership);
        let exists = |owner: &Owner| Ok(owner.key != gone.key());
        let candidates = listed.into_iter().chain(unlabelled).map(|candidate| {
            check_term(cx, &gone.object_ref())?;
            candidate
        });
        let collected = collect(client, kind, candidates, by, &gone.kind(), exists);
        for key in &collected.deleted {
            self.event(gone, EventType::Normal, reasons::SYNCED, &reasons::deleted(&ObjectRef::new(kind, key)));
        }
        collected.failed.into_iter().next().map_or(Ok(!collected.deleted.is_empty()), Err)
    }

    fn claim(&self) -> OwnerClaim {
        OwnerClaim::Marks(self.ownership.clone())
    }

    fn query_of(&self, primary: &impl Object) -> Query {
        Query { namespace: self.query.namespace.clone(), ..self.ownership.query_of(&primary.object_ref()) }
    }

    /// Returns an object that the primary may write to.
    fn check(&self, primary: &impl Object, current: S) -> Result<S, ClientError> {
        self.check_owned(primary, &current)?;
        if current.meta().is_deleting() {
            return Err(ClientError::conflict(
                current.object_ref(),
                "it is being deleted; once it is gone, it is created again",
            ));
        }
        Ok(current)
    }

    /// Refuses an object of another owner, and records that.
    fn check_owned(&self, primary: &impl Object, object: &S) -> Result<(), ClientError> {
        let (meta, owner) = (object.meta(), primary.meta());
        let is_unmarked = self.ownership.owner_of(&meta).is_none();
        let is_controlled = !owner.uid.is_empty() && meta.is_controlled_by(&owner.uid);
        if self.claim().holds(primary, &meta) || (is_unmarked && is_controlled) {
            return Ok(());
        }
        drop(meta);
        let which = object.object_ref();
        self.event(primary, EventType::Warning, reasons::ERR_RESOURCE_EXISTS, &reasons::exists(&which));
        let owner = self.ownership.owner_of(&object.meta());
        let owner = owner.map_or_else(String::new, |owner| format!("{} {}", owner.kind, owner.key));
        let rule =
            format!("must name {}: it already exists, and this controller does not manage it", primary.object_ref());
        Err(ClientError::invalid(which, "metadata.annotations", owner, rule))
    }

    fn delete(&self, cx: &Context, primary: &impl Object, object: &S) -> Result<bool, ClientError> {
        self.in_session(cx, primary, |session| session.delete(object))
    }

    fn in_session<R>(&self, cx: &Context, primary: &impl Object, run: impl FnOnce(&Session<'_, S>) -> R) -> R {
        let journal = PrimaryEvents { secondary: self, cx, primary };
        run(&Session { writer: &self.writer, api: &self.api, clock: cx.clock(), journal: &journal })
    }

    fn event(&self, primary: &impl Object, event: EventType, reason: &str, message: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.event(primary, event, reason, message);
        }
    }
}

/// The secondaries of one type, and their watch.
pub(super) struct WatchedSecondary<S: Object> {
    pub(super) secondary: Secondary<S>,
    /// The secondaries that lack a label for their primary.
    pub(super) unlabelled: Index<ObjectKey, ObjectKey, S>,
}

impl<T: Object, S: Object> SecondaryOf<T> for WatchedSecondary<S> {
    fn relabel(&self, cx: &Context, primary: &T) -> Result<(), ClientError> {
        self.secondary.relabel(cx, primary, &self.unlabelled.keys(&primary.key()))
    }

    fn collect(&self, cx: &Context, gone: &DynamicObject) -> Result<bool, ClientError> {
        self.secondary.collect(cx, gone, &self.unlabelled.keys(&gone.key()))
    }
}

/// Checks the term before each write of a run, and records the writes as events of the primary.
struct PrimaryEvents<'a, S, P> {
    secondary: &'a Secondary<S>,
    cx: &'a Context,
    primary: &'a P,
}

impl<S: Object, P: Object> WriteJournal<S> for PrimaryEvents<'_, S, P> {
    fn check(&self, dependent: &ObjectRef) -> Result<(), ClientError> {
        check_term(self.cx, dependent)
    }

    fn written(&self, write: DependentWrite, dependent: &ObjectRef) {
        let message = match write {
            DependentWrite::Create => reasons::created(dependent),
            DependentWrite::Update | DependentWrite::Keep => reasons::updated(dependent),
            DependentWrite::Delete => reasons::deleted(dependent),
        };
        self.secondary.event(self.primary, EventType::Normal, reasons::SYNCED, &message);
    }

    fn failed(&self, write: DependentWrite, dependent: &ObjectRef, error: &ClientError) {
        // The object is read again to check its owner.
        if !error.is_already_exists() {
            let (reason, message) = write.failure(dependent, error);
            self.secondary.event(self.primary, EventType::Warning, reason, &message);
        }
    }
}

/// Returns the current metadata with the desired entries added.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::MemoryClient;
    use homeostat::run::Fence;

    const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
    const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");

    #[test]
    fn an_object_without_marks_belongs_to_its_controller() {
        let client = Arc::new(MemoryClient::new());
        let (sites, pages) = (Api::<DynamicObject>::of_kind(client.clone(), SITE), Api::of_kind(client, PAGE));
        let [one, other] =
            ["one", "other"].map(|name| sites.create(&DynamicObject::new(&SITE, "default", name)).unwrap());
        let (secondary, cx) = (Secondary::new(pages.clone()), Context::detached());
        for name in ["p", "q"] {
            let mut page = DynamicObject::new(&PAGE, "default", name);
            page.meta_mut().owner_references.push(one.controller_reference());
            pages.create(&page).unwrap();
        }
        let desired = || DynamicObject::new(&PAGE, "default", "p").with("text", json!("new"));
        assert!(secondary.ensure(&cx, &other, desired()).unwrap_err().is_invalid());
        assert!(secondary.list(&one).unwrap().is_empty(), "no list finds it without marks");
        let page = secondary.ensure(&cx, &one, desired()).unwrap().into_object();
        assert!(page.meta().is_controlled_by(&one.meta().uid));
        assert_eq!(secondary.list(&one).unwrap(), [page]);
        assert!(secondary.remove(&cx, &other, &ObjectKey::new("default", "q")).unwrap_err().is_invalid());
        assert!(secondary.remove(&cx, &one, &ObjectKey::new("default", "q")).unwrap());
        // The marks decide if an object has both.
        let mut moved = secondary.list(&one).unwrap().remove(0);
        Ownership::new().unmark(&mut moved);
        Ownership::new().mark(&other.object_ref(), &mut moved).unwrap();
        pages.update(&moved).unwrap();
        assert!(secondary.ensure(&cx, &one, desired()).unwrap_err().is_invalid());
    }

    #[test]
    fn nothing_is_written_after_the_end_of_the_term() {
        let api = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), PAGE);
        let (secondary, site) = (Secondary::new(api.clone()), DynamicObject::new(&SITE, "default", "a"));
        let desired = DynamicObject::new(&PAGE, "pages", "p");
        let page = secondary.ensure(&Context::detached(), &site, desired.clone()).unwrap().into_object();
        let mut bare = page.clone();
        bare.meta_mut().labels.clear();
        let bare = api.update(&bare).unwrap();
        let fence = Fence::unlimited(1);
        let cx = Context::detached().in_term(Some(fence.clone()));
        fence.ended().cancel();
        assert!(secondary.relabel(&cx, &site, &[page.key()]).is_err());
        assert!(secondary.collect(&cx, &site, &[page.key()]).is_err());
        assert!(secondary.ensure(&cx, &site, desired.with("text", json!("new"))).unwrap_err().is_transport());
        assert!(secondary.ensure(&cx, &site, DynamicObject::new(&PAGE, "pages", "q")).unwrap_err().is_transport());
        assert!(secondary.remove(&cx, &site, &page.key()).unwrap_err().is_transport());
        assert_eq!(api.list(&Query::all()).unwrap().items, [bare]);

        let cx = Context::detached();
        secondary.relabel(&cx, &site, &[page.key()]).unwrap();
        assert_eq!(api.get(&page.key()).unwrap().meta().labels, page.meta().labels);
        let ended = Context::detached().in_term(Some(fence));
        assert!(secondary.prune(&ended, &site, []).unwrap_err().is_transport());
        assert!(secondary.collect(&cx, &site, &[]).unwrap());
        assert!(api.get(&page.key()).unwrap_err().is_not_found());
    }
}
