//! Who makes an object as it is wanted.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::context::SubContext;
use super::setup::Setup;
use crate::objects::dependents::{Journal, Session, Write, Writer};
use crate::objects::{Api, ClientError, EventType, Kind, Object, ObjectKey, ObjectMeta, ObjectRef, TrackRef, reasons};
use crate::run::error::BoxError;

/// Who makes an object as it is wanted: by the client of the [config](SubContext::config), for the object that the run is about. One for
/// all runs of a step, called by many threads at once.
pub trait ObjectManager<C>: Send + Sync {
    /// Adds to the controller what it needs.
    ///
    /// # Errors
    ///
    /// If something cannot be added: there will be no controller.
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let _ = setup;
        Ok(())
    }

    /// The finalizer by which it holds the object that the run is about, for as long as there is something to manage. Without one it is
    /// not told that there is nothing any more.
    fn held_by(&self) -> Option<&str> {
        None
    }

    /// Makes `current` as `desired`: creates, updates, deletes or does nothing, and returns it as it is then. With neither there is
    /// nothing to manage (any more). `resource` is the metadata of the object that the run is about, for
    /// [finalizers](SubContext::add_finalizer).
    ///
    /// # Errors
    ///
    /// Those of the client, each about the object managed, or about the one of the run if its finalizers could not be written.
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
/// | current | desired | |
/// |---|---|---|
/// | no | no | the [finalizer](Self::finalizer) is removed |
/// | no | yes | created |
/// | yes | yes | updated, if merging `desired` into `current` changes it |
/// | yes | no | deleted, unless that has begun |
///
/// An update and a deletion are of the object as it was read: if it has changed since, they are a
/// [conflict](ClientError::Conflict), and the next run reads again. A deletion of what is gone already is none.
///
/// A client may make of what it is told something else: it fills in a field, say. What it made is remembered, for the same
/// desired state and until the object has another generation, and not taken for a difference. That is of the 4,096 objects that were
/// so written last, for an hour each.
///
/// What is done is recorded as an [event](SubContext::event) (`Created`, `Updated`, `Deleted`, with a message like `Created Image "shop"`),
/// and what fails (`CreationFailed`, `UpdateFailed`, `DeleteFailed`), but for a conflict.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Api, DynamicObject, Kind, MemoryClient, Object};
/// use homeostat::sub::{Config, ObjectManager, Request, SubContext, UpdatingObjectManager};
/// use homeostat::Context;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const APP: Kind = Kind::namespaced("example.com", "v1", "App");
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let manager = UpdatingObjectManager::of_kind(CONFIG_MAP, |current: &mut DynamicObject, desired| {
///     current.metadata.labels = desired.metadata.labels.clone();
///     current.fields = desired.fields.clone();
/// })
/// .sanitize(|map| json!(map.fields.keys().collect::<Vec<_>>()));
///
/// let client = Arc::new(MemoryClient::new());
/// let mut app = DynamicObject::new(&APP, "default", "shop");
/// let (cx, request) = (Context::detached(), Request::new(&app, Config::new(client.clone())));
/// let cx = SubContext::new("app", &cx, &request);
///
/// let wanted = DynamicObject::new(&CONFIG_MAP, "default", "colours").with("data", json!({"sky": "blue"}));
/// let made = manager.manage(&cx, app.meta_mut(), None, Some(wanted.clone()))?;
/// let kept = manager.manage(&cx, app.meta_mut(), made.as_ref(), Some(wanted))?;
/// assert_eq!(kept, made);
/// assert_eq!(manager.manage(&cx, app.meta_mut(), kept.as_ref(), None)?, None);
/// assert!(Api::<DynamicObject>::of_kind(client, CONFIG_MAP).list(&Default::default())?.items.is_empty());
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
#[must_use]
pub struct UpdatingObjectManager<C> {
    kind: Kind,
    writer: Writer<C>,
    sanitize: Option<Sanitize<C>>,
    finalizer: Option<String>,
    tracked: bool,
}

type Sanitize<C> = Box<dyn Fn(&C) -> Value + Send + Sync>;

impl<C: Object> UpdatingObjectManager<C> {
    /// Of objects of this type. `merge` copies into the current object (the first one) what is desired of it (the second), and leaves the
    /// rest: labels and `spec`, say. What it does to the status, or to what names the object, is not written.
    ///
    /// Does not compile for a [`DynamicObject`](crate::objects::DynamicObject): see [`of_kind`](Self::of_kind).
    pub fn new(merge: impl Fn(&mut C, &C) + Send + Sync + 'static) -> Self {
        const { C::KIND.assert_known() };
        Self::of_kind(C::KIND, merge)
    }

    /// The same of objects of this kind, whose type does not say it.
    pub fn of_kind(kind: Kind, merge: impl Fn(&mut C, &C) + Send + Sync + 'static) -> Self {
        Self { kind, writer: Writer::new(merge), sanitize: None, finalizer: None, tracked: false }
    }

    /// Copies from the current object (the first one) into the desired one what can not be changed any more, so that no update is tried
    /// that the client must refuse.
    pub fn harmonize(self, harmonize: impl Fn(&C, &mut C) + Send + Sync + 'static) -> Self {
        Self { writer: self.writer.harmonize(harmonize), ..self }
    }

    /// What of an object may stand in log lines. Default: nothing but its kind and name.
    pub fn sanitize(self, sanitize: impl Fn(&C) -> Value + Send + Sync + 'static) -> Self {
        Self { sanitize: Some(Box::new(sanitize)), ..self }
    }

    /// [Tracks](SubContext::track) what is managed: before it is created, or once that has made its name, before it is updated, and as
    /// long as a deletion has not removed it. For what an owner reference cannot reach, in another namespace or client, say.
    pub fn tracked(self) -> Self {
        Self { tracked: true, ..self }
    }

    /// Holds the object that the run is about by this finalizer: it is set before something is created, and removed once nothing is
    /// there and nothing desired. For what no garbage collection deletes with it. No other manager may use the same one.
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

impl<C: Object> Journal<C> for RunJournal<'_, C> {
    fn track(&self, dependent: &ObjectKey) {
        if self.manager.tracked {
            self.cx.track(&self.manager.kind, TrackRef::name(dependent.clone()));
        }
    }

    fn decided(&self, write: Write, dependent: &C, desired: Option<&C>) {
        let (reconciler, object, child) = (self.cx.name(), self.cx.object(), dependent.object_ref());
        match write {
            Write::Create => log::debug!(
                reconciler, object:%, child:%, to:% = self.shown(desired);
                "{reconciler}: {object}: creating {child}"
            ),
            Write::Update => log::debug!(
                reconciler, object:%, child:%, from:% = self.shown(Some(dependent)), to:% = self.shown(desired);
                "{reconciler}: {object}: updating {child}"
            ),
            Write::Delete => log::debug!(reconciler, object:%, child:%; "{reconciler}: {object}: deleting {child}"),
            Write::Keep => log::debug!(reconciler, object:%, child:%; "{reconciler}: {object}: {child} is as desired"),
        }
    }

    fn written(&self, write: Write, dependent: &ObjectRef) {
        let reason = match write {
            Write::Create => reasons::CREATED,
            Write::Update | Write::Keep => reasons::UPDATED,
            Write::Delete => reasons::DELETED,
        };
        let message = format!("{reason} {} {:?}", dependent.kind().name(), dependent.key().name());
        self.cx.event(EventType::Normal, reason, &message);
    }

    fn failed(&self, write: Write, dependent: &ObjectRef, error: &ClientError) {
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
        let session = Session { api: &api, clock: cx.config().clock(), journal: &journal };
        match (current, desired, &self.finalizer) {
            (None, None, None) => Ok(None),
            (None, None, Some(finalizer)) => cx.remove_finalizer(resource, finalizer).map(|()| None),
            (Some(current), None, _) => self.writer.delete(session, current).map(|_| None),
            (current, Some(desired), finalizer) => {
                if let Some(finalizer) = finalizer {
                    cx.add_finalizer(resource, finalizer)?;
                }
                self.writer.put(session, current, desired).map(|put| Some(put.into_object()))
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
