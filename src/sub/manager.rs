//! Who makes an object as it is wanted.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::context::SubContext;
use super::mutations::Mutations;
use super::setup::Setup;
use crate::objects::{Api, ClientError, DeleteOptions, EventType, Kind, Object, ObjectMeta, TrackRef, reasons};
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
    merge: Merge<C>,
    harmonize: Option<Harmonize<C>>,
    sanitize: Option<Sanitize<C>>,
    finalizer: Option<String>,
    tracked: bool,
    mutations: Mutations,
}

type Merge<C> = Box<dyn Fn(&mut C, &C) + Send + Sync>;
type Harmonize<C> = Box<dyn Fn(&C, &mut C) + Send + Sync>;
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
        Self {
            kind,
            merge: Box::new(merge),
            harmonize: None,
            sanitize: None,
            finalizer: None,
            tracked: false,
            mutations: Mutations::default(),
        }
    }

    /// Copies from the current object (the first one) into the desired one what can not be changed any more, so that no update is tried
    /// that the client must refuse.
    pub fn harmonize(self, harmonize: impl Fn(&C, &mut C) + Send + Sync + 'static) -> Self {
        Self { harmonize: Some(Box::new(harmonize)), ..self }
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

    fn create(&self, cx: &SubContext<'_>, mut desired: C) -> Result<C, ClientError> {
        let meta = desired.meta_mut();
        meta.uid.clear();
        meta.resource_version.clear();
        let is_named = !meta.name.is_empty();
        let name = if is_named { meta.name.clone() } else { meta.generate_name.clone() };
        if is_named {
            self.track(cx, &desired);
        }
        let (reconciler, object, child) = (cx.name(), cx.object(), desired.object_ref());
        log::debug!(
            reconciler, object:%, child:%, to:% = self.shown(&desired);
            "{reconciler}: {object}: creating {child}"
        );
        match self.api(cx).create(&desired) {
            Ok(created) => {
                if !is_named {
                    self.track(cx, &created);
                }
                self.tell(cx, reasons::CREATED, &created.meta().name);
                self.harmonized(&created, &mut desired);
                self.learn(cx, &created, &desired)?;
                Ok(created)
            }
            Err(error) => Err(self.fail(cx, reasons::CREATION_FAILED, "create", &name, error)),
        }
    }

    fn update(&self, cx: &SubContext<'_>, current: &C, mut desired: C) -> Result<C, ClientError> {
        self.harmonized(current, &mut desired);
        self.track(cx, current);
        let (clock, before, wished) = (cx.config().clock(), current.to_json()?, wished(&desired)?);
        let mut wanted = self.merged(current, &before, &desired)?;
        self.mutations.foresee(clock, current.meta(), &wished, &mut wanted);
        let (reconciler, object, child) = (cx.name(), cx.object(), current.object_ref());
        if wanted == before {
            log::debug!(reconciler, object:%, child:%; "{reconciler}: {object}: {child} is as desired");
            return Ok(current.clone());
        }
        log::debug!(
            reconciler, object:%, child:%, from:% = self.shown(current), to:% = self.shown(&desired);
            "{reconciler}: {object}: updating {child}"
        );
        let name = &current.meta().name;
        let became = match cx.config().client().update(&self.kind, wanted) {
            Ok(became) => became,
            Err(error) => return Err(self.fail(cx, reasons::UPDATE_FAILED, "update", name, error)),
        };
        let updated = C::from_json(&became)?;
        self.learn(cx, &updated, &desired)?;
        // The client may know better: what it fills in by itself is no difference.
        if updated.meta().resource_version != current.meta().resource_version {
            self.tell(cx, reasons::UPDATED, name);
        }
        Ok(updated)
    }

    fn harmonized(&self, current: &C, desired: &mut C) {
        if let Some(harmonize) = &self.harmonize {
            harmonize(current, desired);
        }
    }

    /// Remembers what the client has made of what was desired.
    fn learn(&self, cx: &SubContext<'_>, made: &C, desired: &C) -> Result<(), ClientError> {
        let became = made.to_json()?;
        let wanted = self.merged(made, &became, desired)?;
        self.mutations.learn(cx.config().clock(), made.meta(), wished(desired)?, &wanted, &became);
        Ok(())
    }

    /// The JSON of an object with what is desired of it. Its status and what names it are its own.
    fn merged(&self, current: &C, json: &Value, desired: &C) -> Result<Value, ClientError> {
        let mut merged = current.clone();
        (self.merge)(&mut merged, desired);
        let ObjectMeta { name, namespace, uid, resource_version, .. } = current.meta().clone();
        let meta = merged.meta_mut();
        *meta = ObjectMeta { name, namespace, uid, resource_version, ..std::mem::take(meta) };
        let mut merged = merged.to_json()?;
        if let Some(fields) = merged.as_object_mut() {
            match json.get("status") {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
        }
        Ok(merged)
    }

    fn delete(&self, cx: &SubContext<'_>, current: &C) -> Result<(), ClientError> {
        let meta = current.meta();
        if meta.is_deleting() {
            self.track(cx, current);
            return Ok(());
        }
        let (reconciler, object, child) = (cx.name(), cx.object(), current.object_ref());
        log::debug!(reconciler, object:%, child:%; "{reconciler}: {object}: deleting {child}");
        let options = DeleteOptions::default().uid(&*meta.uid).resource_version(&*meta.resource_version);
        if !meta.finalizers.is_empty() {
            self.track(cx, current);
        }
        match self.api(cx).delete(&current.key(), &options) {
            Ok(last) => {
                self.mutations.forget(&meta.uid);
                if !last.meta().finalizers.is_empty() {
                    self.track(cx, current);
                }
                self.tell(cx, reasons::DELETED, &meta.name);
                Ok(())
            }
            Err(ClientError::NotFound { .. }) => {
                self.mutations.forget(&meta.uid);
                Ok(())
            }
            Err(error) => {
                self.track(cx, current);
                Err(self.fail(cx, reasons::DELETE_FAILED, "delete", &meta.name, error))
            }
        }
    }

    fn api(&self, cx: &SubContext<'_>) -> Api<C> {
        Api::of_kind(Arc::clone(cx.config().client()), self.kind.clone())
    }

    fn track(&self, cx: &SubContext<'_>, child: &C) {
        if self.tracked {
            cx.track(&self.kind, TrackRef::name(child.key()));
        }
    }

    fn shown(&self, child: &C) -> Value {
        self.sanitize.as_ref().map_or(Value::Null, |sanitize| sanitize(child))
    }

    fn tell(&self, cx: &SubContext<'_>, what: &str, name: &str) {
        cx.event(EventType::Normal, what, &format!("{what} {} {name:?}", self.kind.name()));
    }

    fn fail(&self, cx: &SubContext<'_>, reason: &str, verb: &str, name: &str, error: ClientError) -> ClientError {
        // Somebody else has written: the next run will see what.
        if !error.is_conflict() {
            let message = format!("Failed to {verb} {} {name:?}: {error}", self.kind.name());
            cx.event(EventType::Warning, reason, &message);
        }
        error
    }
}

/// What is desired of an object, without what the client alone says of it.
fn wished(desired: &impl Object) -> Result<Value, ClientError> {
    let mut wished = desired.to_json()?;
    if let Some(meta) = wished.get_mut("metadata").and_then(Value::as_object_mut) {
        for of_the_client in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
            meta.remove(of_the_client);
        }
    }
    if let Some(fields) = wished.as_object_mut() {
        fields.remove("status");
    }
    Ok(wished)
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
        match (current, desired) {
            (None, None) => {
                let released = self.finalizer.as_ref().map(|finalizer| cx.remove_finalizer(resource, finalizer));
                released.transpose().map(|_| None)
            }
            (Some(current), None) => self.delete(cx, current).map(|()| None),
            (current, Some(desired)) => {
                if let Some(finalizer) = &self.finalizer {
                    cx.add_finalizer(resource, finalizer)?;
                }
                match current {
                    None => self.create(cx, desired),
                    Some(current) => self.update(cx, current, desired),
                }
                .map(Some)
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
