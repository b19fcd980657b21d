//! Writes a child.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::context::SubContext;
use super::setup::Setup;
use crate::dependents::{DependentWrite, DependentWriter, Session, WriteJournal, check_term};
use crate::{Api, ClientError, EventType, Kind, Object, ObjectKey, ObjectMeta, ObjectRef, TrackRef, reasons};
use homeostat::run::BoxError;

/// Writes a child for the reconciled object, with the client of the [config](SubContext::config). One manager serves
/// all runs of a step, on several threads.
pub trait ObjectManager<C>: Send + Sync {
    /// Adds watches and indexes to the controller.
    ///
    /// # Errors
    ///
    /// If a source cannot be added. The controller is not built.
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let _ = setup;
        Ok(())
    }

    /// Returns the finalizer that keeps the reconciled object while there is something to manage. Only a manager with a
    /// finalizer gets a [`manage`](Self::manage) call with neither a current nor a desired child.
    fn held_by(&self) -> Option<&str> {
        None
    }

    /// Creates, updates or deletes `current` so that it equals `desired`, or does nothing. Returns the child as it is
    /// now.
    ///
    /// If there is neither, nothing remains to be managed. `resource` is the metadata of the reconciled object, for
    /// [finalizers](SubContext::add_finalizer).
    ///
    /// # Errors
    ///
    /// The errors of the client. They concern the child, or the reconciled object if its finalizers cannot be written.
    fn manage(
        &self,
        cx: &SubContext<'_>,
        resource: &mut ObjectMeta,
        current: Option<&C>,
        desired: Option<C>,
    ) -> Result<Option<C>, ClientError>;
}

impl<C, M: ObjectManager<C> + ?Sized> ObjectManager<C> for Arc<M> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        (**self).setup(setup)
    }

    fn held_by(&self) -> Option<&str> {
        (**self).held_by()
    }

    fn manage(
        &self,
        cx: &SubContext<'_>,
        resource: &mut ObjectMeta,
        current: Option<&C>,
        desired: Option<C>,
    ) -> Result<Option<C>, ClientError> {
        (**self).manage(cx, resource, current, desired)
    }
}

/// An [`ObjectManager`] that writes whole objects.
///
/// | current | desired | action |
/// |---|---|---|
/// | no | no | removes the [finalizer](Self::finalizer) |
/// | no | yes | creates |
/// | yes | yes | updates, if merging `desired` into `current` changes it |
/// | yes | no | deletes, unless the child is being deleted |
///
/// Updates and deletions apply to the object as it was read. If it has changed since, the write is a
/// [conflict](crate::ClientErrorKind::Conflict), and the next run reads again. Deleting an object that is gone
/// succeeds.
///
/// A client may change a written object, for example by filling in a field. The manager remembers such a change, so
/// that it does not count as a difference while the desired state and the generation stay the same. It forgets a change
/// that has not been used for an hour. It remembers the 4,096 most recently used objects: a manager of more objects may
/// write such an object again in each run.
///
/// Writes are recorded as [events](SubContext::event) (`Created`, `Updated`, `Deleted`, with a message like
/// `Created Image "shop"`). Failures other than conflicts are recorded too (`CreationFailed`, `UpdateFailed`,
/// `DeleteFailed`, as warnings with a message like `Failed to create Image "shop": <the error>`).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, Object};
/// use homeostat_objects::sub::{Config, ObjectManager, Request, SubContext, UpdatingObjectManager};
/// use homeostat::Context;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const APP: Kind = Kind::namespaced("example.com", "v1", "App");
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let manager = UpdatingObjectManager::of_kind(CONFIG_MAP, |current: &mut DynamicObject, desired| {
///     current.meta_mut().labels = desired.meta().labels.clone();
///     *current.fields_mut() = desired.fields().into_owned();
/// })
/// .sanitize(|map| json!(map.fields().keys().collect::<Vec<_>>()));
///
/// let client = Arc::new(MemoryClient::new());
/// let mut app = DynamicObject::new(&APP, "default", "shop");
/// let (cx, request) = (Context::detached(), Request::new(&app, Config::new(client.clone())));
/// let cx = SubContext::new("app", &cx, &request);
///
/// let desired = DynamicObject::new(&CONFIG_MAP, "default", "colours").with("data", json!({"sky": "blue"}));
/// let made = manager.manage(&cx, &mut app.meta_mut(), None, Some(desired.clone()))?;
/// let kept = manager.manage(&cx, &mut app.meta_mut(), made.as_ref(), Some(desired))?;
/// assert_eq!(kept, made);
/// assert_eq!(manager.manage(&cx, &mut app.meta_mut(), kept.as_ref(), None)?, None);
/// assert!(Api::<DynamicObject>::of_kind(client, CONFIG_MAP).list(&Default::default())?.items.is_empty());
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[must_use]
pub struct UpdatingObjectManager<C> {
    kind: Kind,
    writer: DependentWriter<C>,
    sanitize: Option<Sanitize<C>>,
    finalizer: Option<String>,
    tracked: bool,
}

type Sanitize<C> = Box<dyn Fn(&C) -> Value + Send + Sync>;

impl<C: Object> UpdatingObjectManager<C> {
    /// Creates a manager for children of type `C`. `merge` copies the desired content (its second argument) into the
    /// current object: for example labels and `spec`.
    ///
    /// Changes that `merge` makes to the status, name, namespace, uid or version are not written.
    ///
    /// Does not compile for a [`DynamicObject`](crate::DynamicObject): see [`of_kind`](Self::of_kind).
    pub fn new(merge: impl Fn(&mut C, &C) + Send + Sync + 'static) -> Self {
        const { C::KIND.assert_known() };
        Self::of_kind(C::KIND, merge)
    }

    /// Creates a manager for children of this kind, for types that have no fixed kind.
    pub fn of_kind(kind: Kind, merge: impl Fn(&mut C, &C) + Send + Sync + 'static) -> Self {
        Self { kind, writer: DependentWriter::new(merge), sanitize: None, finalizer: None, tracked: false }
    }

    /// Copies immutable fields from the current object (the first argument) into the desired one, so that no update
    /// tries to change them.
    pub fn harmonize(self, harmonize: impl Fn(&C, &mut C) + Send + Sync + 'static) -> Self {
        Self { writer: self.writer.harmonize(harmonize), ..self }
    }

    /// Chooses which content of a child log lines may show. Default: only its kind and name.
    pub fn sanitize(self, sanitize: impl Fn(&C) -> Value + Send + Sync + 'static) -> Self {
        Self { sanitize: Some(Box::new(sanitize)), ..self }
    }

    /// [Tracks](SubContext::track) the children: before each write, after the creation of a child with a generated
    /// name, and while a child is being deleted. Use it for children that no owner reference can reach, for example in
    /// another namespace.
    pub fn tracked(self) -> Self {
        Self { tracked: true, ..self }
    }

    /// Keeps the reconciled object with this finalizer. It is added before a child is created, and removed once no
    /// child exists or is desired.
    ///
    /// Use it for children that no garbage collector deletes. No other manager may use the same finalizer.
    pub fn finalizer(self, finalizer: impl Into<String>) -> Self {
        Self { finalizer: Some(finalizer.into()), ..self }
    }
}

/// Records the writes of a run: log lines, tracks, and events of the reconciled object.
struct RunJournal<'a, C> {
    cx: &'a SubContext<'a>,
    manager: &'a UpdatingObjectManager<C>,
}

impl<C> RunJournal<'_, C> {
    fn shown(&self, child: Option<&C>) -> Value {
        let sanitized = child.zip(self.manager.sanitize.as_ref()).map(|(child, sanitize)| sanitize(child));
        sanitized.unwrap_or(Value::Null)
    }
}

impl<C: Object> WriteJournal<C> for RunJournal<'_, C> {
    fn check(&self, dependent: &ObjectRef) -> Result<(), ClientError> {
        check_term(self.cx, dependent)
    }

    fn track(&self, dependent: &ObjectKey) {
        if self.manager.tracked {
            self.cx.track(&self.manager.kind, TrackRef::name(dependent.clone()));
        }
    }

    fn decided(&self, write: DependentWrite, dependent: &C, desired: Option<&C>) {
        let (reconciler, object, child) = (self.cx.name(), self.cx.object(), dependent.object_ref());
        match write {
            DependentWrite::Create => log::debug!(
                reconciler, object:%, child:%, to:% = self.shown(desired);
                "{reconciler}: {object}: creating {child}"
            ),
            DependentWrite::Update => log::debug!(
                reconciler, object:%, child:%, from:% = self.shown(Some(dependent)), to:% = self.shown(desired);
                "{reconciler}: {object}: updating {child}"
            ),
            DependentWrite::Delete => {
                log::debug!(reconciler, object:%, child:%; "{reconciler}: {object}: deleting {child}");
            }
            DependentWrite::Keep => {
                log::debug!(reconciler, object:%, child:%; "{reconciler}: {object}: {child} is as desired");
            }
        }
    }

    fn written(&self, write: DependentWrite, dependent: &ObjectRef) {
        let reason = match write {
            DependentWrite::Create => reasons::CREATED,
            DependentWrite::Update | DependentWrite::Keep => reasons::UPDATED,
            DependentWrite::Delete => reasons::DELETED,
        };
        let message = format!("{reason} {} {:?}", dependent.kind().name(), dependent.key().name());
        self.cx.event(EventType::Normal, reason, &message);
    }

    fn failed(&self, write: DependentWrite, dependent: &ObjectRef, error: &ClientError) {
        let (reason, message) = write.failure(dependent, error);
        self.cx.event(EventType::Warning, reason, &message);
    }
}

impl<C: Object> ObjectManager<C> for UpdatingObjectManager<C> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        if self.tracked {
            let api = Api::<C>::of_kind(Arc::clone(setup.config().client()), self.kind.clone());
            setup.tracked(&api)?;
        }
        Ok(())
    }

    fn held_by(&self) -> Option<&str> {
        self.finalizer.as_deref()
    }

    fn manage(
        &self,
        cx: &SubContext<'_>,
        resource: &mut ObjectMeta,
        current: Option<&C>,
        desired: Option<C>,
    ) -> Result<Option<C>, ClientError> {
        let api = Api::of_kind(Arc::clone(cx.config().client()), self.kind.clone());
        let journal = RunJournal { cx, manager: self };
        let session = Session { writer: &self.writer, api: &api, clock: cx.config().clock(), journal: &journal };
        match (current, desired, &self.finalizer) {
            (None, None, None) => Ok(None),
            (None, None, Some(finalizer)) => cx.remove_finalizer(resource, finalizer).map(|()| None),
            (Some(current), None, _) => session.delete(current).map(|_| None),
            (current, Some(desired), finalizer) => {
                if let Some(finalizer) = finalizer {
                    cx.add_finalizer(resource, finalizer)?;
                }
                session.put(current, desired).map(|put| Some(put.into_object()))
            }
        }
    }
}

impl<C> fmt::Debug for UpdatingObjectManager<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdatingObjectManager")
            .field("kind", &self.kind)
            .field("finalizer", &self.finalizer)
            .field("tracked", &self.tracked)
            .finish_non_exhaustive()
    }
}
