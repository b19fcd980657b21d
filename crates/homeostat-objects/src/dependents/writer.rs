//! Compares one dependent with its desired state, and writes the difference.

use serde_json::Value;

use super::mutation_cache::MutationCache;
use crate::own_writes::{note_deletion, note_write};
use crate::{
    Api, Client, ClientError, DeleteOptions, Deletion, Ignore, Kind, Object, ObjectKey, ObjectMeta, ObjectRef,
    SharedObject, reasons,
};
use homeostat::base::Clock;
use homeostat::rt::Chain;
use homeostat::run::Context;

/// The result of writing a desired object, with the object as it is now.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationResult<C> {
    /// The object did not exist and was created.
    Created(C),
    /// The object existed and was updated.
    Updated(C),
    /// The object existed as desired.
    Unchanged(C),
}

impl<C> OperationResult<C> {
    /// Returns the object.
    #[must_use]
    pub fn object(&self) -> &C {
        match self {
            Self::Created(object) | Self::Updated(object) | Self::Unchanged(object) => object,
        }
    }

    /// Returns the object by value.
    #[must_use]
    pub fn into_object(self) -> C {
        match self {
            Self::Created(object) | Self::Updated(object) | Self::Unchanged(object) => object,
        }
    }

    /// Whether the object was created or updated.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !matches!(self, Self::Unchanged(_))
    }
}

/// One decision about a dependent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependentWrite {
    Create,
    Update,
    Delete,
    /// The dependent is as desired.
    Keep,
}

impl DependentWrite {
    /// The reason and the message of the event that records a failure.
    pub(crate) fn failure(self, dependent: &ObjectRef, error: &ClientError) -> (&'static str, String) {
        let (reason, verb) = match self {
            Self::Create => (reasons::CREATION_FAILED, "create"),
            Self::Update | Self::Keep => (reasons::UPDATE_FAILED, "update"),
            Self::Delete => (reasons::DELETE_FAILED, "delete"),
        };
        let (kind, name, error) = (dependent.kind().name(), dependent.key().name(), Chain(error));
        (reason, format!("Failed to {verb} {kind} {name:?}: {error}"))
    }
}

/// Records the writes of a run.
pub(crate) trait WriteJournal<C> {
    /// Called before a request for this dependent is sent. An error prevents the request.
    fn check(&self, _dependent: &ObjectRef) -> Result<(), ClientError> {
        Ok(())
    }

    /// Called for each dependent that the owner must track, before it is written or as soon as it has a name.
    fn track(&self, _dependent: &ObjectKey) {}

    /// Called before a request is sent.
    fn decided(&self, _write: DependentWrite, _dependent: &C, _desired: Option<&C>) {}

    /// Called after the client has changed the dependent.
    fn written(&self, write: DependentWrite, dependent: &ObjectRef);

    /// Called after the client has refused a write. Not called for a conflict, because the next run reads again.
    fn failed(&self, write: DependentWrite, dependent: &ObjectRef, error: &ClientError);
}

/// Changes dependents of one kind to their desired state.
///
/// Updates and deletions apply to the object as it was read, or fail with
/// [`Conflict`](crate::ClientErrorKind::Conflict). An update of an object that is gone is also a conflict. A client may
/// change a written object, for example by filling in defaults. The writer remembers these changes, so that they do not
/// count as differences.
pub(crate) struct DependentWriter<C> {
    merge: Merge<C>,
    harmonize: Harmonize<C>,
    cache: MutationCache,
}

type Merge<C> = Box<dyn Fn(&mut C, &C) + Send + Sync>;
type Harmonize<C> = Box<dyn Fn(&C, &mut C) + Send + Sync>;

impl<C: Object> DependentWriter<C> {
    /// `merge` copies the desired content (its second argument) into the current object.
    pub(crate) fn new(merge: impl Fn(&mut C, &C) + Send + Sync + 'static) -> Self {
        Self { merge: Box::new(merge), harmonize: Box::new(|_, _| {}), cache: MutationCache::default() }
    }

    /// `harmonize` copies immutable fields of the current object (its first argument) into the desired one.
    pub(crate) fn harmonize(self, harmonize: impl Fn(&C, &mut C) + Send + Sync + 'static) -> Self {
        Self { harmonize: Box::new(harmonize), ..self }
    }

    /// Remembers how the client changed the written object.
    fn learn(&self, clock: &Clock, made: &C, desired: &C) -> Result<(), ClientError> {
        let became = made.to_json()?;
        let wanted = self.merged(made, &became, desired)?;
        self.cache.learn(clock, &made.meta(), comparable(desired)?, &wanted, &became);
        Ok(())
    }

    /// Returns the JSON of `current` with the desired content, but with the status, name, uid and version of `current`.
    fn merged(&self, current: &C, json: &Value, desired: &C) -> Result<Value, ClientError> {
        let mut merged = current.clone();
        (self.merge)(&mut merged, desired);
        let ObjectMeta { name, namespace, uid, resource_version, .. } = current.meta().into_owned();
        let meta = std::mem::take(&mut *merged.meta_mut());
        *merged.meta_mut() = ObjectMeta { name, namespace, uid, resource_version, ..meta };
        let mut merged = merged.to_json()?;
        if let Some(fields) = merged.as_object_mut() {
            match json.get("status") {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
        }
        Ok(merged)
    }
}

/// Writes dependents for one owner, to one client.
pub(crate) struct Session<'a, C> {
    pub(crate) writer: &'a DependentWriter<C>,
    pub(crate) api: &'a Api<C>,
    pub(crate) clock: &'a Clock,
    pub(crate) journal: &'a dyn WriteJournal<C>,
}

impl<C: Object> Session<'_, C> {
    /// Creates the desired dependent, or updates `current` if it differs.
    pub(crate) fn put(&self, current: Option<&C>, desired: C) -> Result<OperationResult<C>, ClientError> {
        match current {
            None => self.create(desired),
            Some(current) => self.update(current, desired),
        }
    }

    fn create(&self, mut desired: C) -> Result<OperationResult<C>, ClientError> {
        let Self { writer, api, clock, journal } = *self;
        let mut meta = desired.meta_mut();
        meta.uid.clear();
        meta.resource_version.clear();
        let is_named = !meta.name.is_empty();
        let name = ObjectKey::new(&meta.namespace, if is_named { &meta.name } else { &meta.generate_name });
        drop(meta);
        if is_named {
            journal.track(&name);
        }
        let dependent = ObjectRef::new(api.kind(), &name);
        journal.check(&dependent)?;
        journal.decided(DependentWrite::Create, &desired, Some(&desired));
        let created = self.sent(DependentWrite::Create, &dependent, api.create(&desired))?;
        if !is_named {
            journal.track(&created.key());
        }
        journal.written(DependentWrite::Create, &created.object_ref());
        (writer.harmonize)(&created, &mut desired);
        writer.learn(clock, &created, &desired)?;
        Ok(OperationResult::Created(created))
    }

    fn update(&self, current: &C, mut desired: C) -> Result<OperationResult<C>, ClientError> {
        let Self { writer, api, clock, journal } = *self;
        (writer.harmonize)(current, &mut desired);
        journal.track(&current.key());
        let before = current.to_json()?;
        let mut wanted = writer.merged(current, &before, &desired)?;
        writer.cache.apply(clock, &current.meta(), &comparable(&desired)?, &mut wanted);
        let write = if wanted == before { DependentWrite::Keep } else { DependentWrite::Update };
        journal.decided(write, current, Some(&desired));
        if write == DependentWrite::Keep {
            return Ok(OperationResult::Unchanged(current.clone()));
        }
        let dependent = current.object_ref();
        journal.check(&dependent)?;
        let updated = api.client().update(api.kind(), wanted).map_err(ClientError::conflict_if_gone);
        let updated = self.sent(DependentWrite::Update, &dependent, updated)?;
        note_write(&**api.client(), api.kind(), &updated);
        let updated = C::from_shared(&updated)?;
        writer.learn(clock, &updated, &desired)?;
        // The version is the same, so the client has changed nothing.
        if updated.has_version_of(current) {
            return Ok(OperationResult::Unchanged(updated));
        }
        journal.written(DependentWrite::Update, &dependent);
        Ok(OperationResult::Updated(updated))
    }

    /// Deletes a dependent in the version that was read. Returns `false` if its deletion has begun or it is gone.
    pub(crate) fn delete(&self, current: &C) -> Result<bool, ClientError> {
        let Self { writer, api, journal, .. } = *self;
        let (meta, key, dependent) = (current.meta(), current.key(), current.object_ref());
        if meta.is_deleting() || !meta.finalizers.is_empty() {
            journal.track(&key);
        }
        if meta.is_deleting() {
            return Ok(false);
        }
        journal.check(&dependent)?;
        journal.decided(DependentWrite::Delete, current, None);
        let deleted = delete_as_read(&**api.client(), api.kind(), &meta);
        let is_gone = deleted.as_ref().is_ok_and(|deleted| deleted.as_ref().is_none_or(Deletion::is_gone));
        if !is_gone {
            journal.track(&key);
        }
        let deleted = self.sent(DependentWrite::Delete, &dependent, deleted)?;
        writer.cache.forget(&meta.uid);
        if deleted.is_some() {
            journal.written(DependentWrite::Delete, &dependent);
        }
        Ok(deleted.is_some())
    }

    fn sent<R>(&self, write: DependentWrite, to: &ObjectRef, result: Result<R, ClientError>) -> Result<R, ClientError> {
        result.inspect_err(|error| {
            if !error.is_conflict() {
                self.journal.failed(write, to, error);
            }
        })
    }
}

/// Returns the desired state without the fields that only the client sets.
fn comparable(desired: &impl Object) -> Result<Value, ClientError> {
    let mut desired = desired.to_json()?;
    if let Some(meta) = desired.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
            meta.remove(field);
        }
    }
    if let Some(fields) = desired.as_object_mut() {
        fields.remove("status");
    }
    Ok(desired)
}

/// Writes the desired dependent over `current`, or creates it.
///
/// If a new dependent already exists, `adopt` gets that error. It returns the existing dependent to write over, `None`
/// if that is gone, or an error if it belongs to another owner. Both closures get `on`.
pub(crate) fn put_or_adopt<X, C: Object, R>(
    on: &mut X,
    current: Option<&C>,
    desired: C,
    put: impl Fn(&mut X, Option<&C>, C) -> Result<R, ClientError>,
    adopt: impl FnOnce(&X, ClientError) -> Result<Option<C>, ClientError>,
) -> Result<R, ClientError> {
    if current.is_some() {
        return put(on, current, desired);
    }
    match put(on, None, desired.clone()) {
        Err(error) if error.is_already_exists() => {
            if desired.meta().name.is_empty() {
                return Err(ClientError::conflict(desired.object_ref(), "the generated name is already taken"));
            }
            match adopt(on, error)? {
                Some(existing) => put(on, Some(&existing), desired),
                None => Err(ClientError::conflict(
                    desired.object_ref(),
                    "it existed when the controller tried to create it, but is gone now",
                )),
            }
        }
        result => result,
    }
}

/// Refuses a write of this object if the term of the run has ended.
pub(crate) fn check_term(cx: &Context, object: &ObjectRef) -> Result<(), ClientError> {
    cx.check_term().map_err(|ended| ClientError::transport(object.clone(), ended))
}

/// Deletes an object in the version that was read. Returns the outcome, or `None` if the object was already gone.
pub(super) fn delete_as_read(
    client: &dyn Client,
    kind: &Kind,
    meta: &ObjectMeta,
) -> Result<Option<Deletion<SharedObject>>, ClientError> {
    let options = DeleteOptions::default().uid(&*meta.uid).resource_version(&*meta.resource_version);
    let deleted = client.delete(kind, &meta.key(), &options).ignore_not_found()?;
    if let Some(deletion) = &deleted {
        note_deletion(client, kind, &meta.key(), &options, deletion);
    }
    Ok(deleted)
}
