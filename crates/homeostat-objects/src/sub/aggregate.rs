//! A reconciler of one object that is built from others.

use std::fmt;
use std::sync::Arc;

use super::SubReconciler;
use super::config::Config;
use super::context::{Request, SubContext};
use super::flow::{Flow, SubResult, both, conclude};
use super::hooks::{StepHooks, hook_settings};
use super::manager::ObjectManager;
use super::sequence::Sequence;
use super::setup::{Additions, Setup};
use super::tracking::Tracking;
use crate::{Api, ClientError, Ignore, Object, ObjectKey, Query};
use homeostat::controller::Sources;
use homeostat::manager::Manager;
use homeostat::run::{Action, BoxError, Context, Reconciler};
use homeostat::watch::{Event, Subscriber};

/// A [`Reconciler`] of one object that is built from others, such as an index or a summary. It creates the object if it
/// is missing, and deletes it if it is not desired.
///
/// Each run:
///
/// 1. calls [`before`](Self::before). A run for another key does nothing;
/// 2. reads the object, or starts with the [initial one](Self::new) if it does not exist. If the object is being
///    deleted, the run ends;
/// 3. calls the steps. Unless a step fails, they turn the object into the [desired](Self::desired) one;
/// 4. lets the [`ObjectManager`] write it;
/// 5. calls [`after`](Self::after).
///
/// If somebody creates the object between the second and the fourth step, the run ends with a
/// [conflict](crate::ClientErrorKind::Conflict), and the next run reads that object.
///
/// Each change of the object starts a run. The watch selects the object by its name, so the program needs permission to
/// list and watch only this object. The steps add their sources in their set-up; see the example.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, ObjectKey, Query};
/// use homeostat_objects::sub::{AggregateReconciler, Config, Flow, SubContext, SyncReconciler, UpdatingObjectManager};
/// use homeostat::{Controller, Manager, Subscriber};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let config = Config::new(Arc::new(MemoryClient::new()));
/// let sites = Api::<DynamicObject>::of_kind(config.client().clone(), SITE);
///
/// let watched = sites.clone();
/// let count = SyncReconciler::new(move |_cx: &SubContext<'_>, index: &mut DynamicObject| {
///     let names: Vec<_> = sites.list(&Query::all())?.items.into_iter().map(|site| site.name().to_owned()).collect();
///     index.fields_mut().insert("data".to_owned(), json!({"sites": names.join(" ")}));
///     Ok(Flow::proceed())
/// })
/// .setup(move |setup| {
///     let index = ObjectKey::new("default", "sites");
///     setup.subscribe(&watched, |queue| Subscriber::to_owner(queue, move |_, _: &DynamicObject| Some(index.clone())))?;
///     Ok(())
/// });
///
/// let manager = UpdatingObjectManager::of_kind(CONFIG_MAP, |current: &mut DynamicObject, desired| {
///     *current.fields_mut() = desired.fields().into_owned();
/// });
/// let empty = DynamicObject::new(&CONFIG_MAP, "default", "sites");
/// let reconciler = AggregateReconciler::new("sites", config, empty, manager).then(count);
///
/// let manager = Manager::builder().build()?;
/// let sources = reconciler.setup(&manager)?;
/// manager.add(Controller::builder("sites", reconciler).sources(sources).build()?)?;
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use]
pub struct AggregateReconciler<T: Object> {
    name: String,
    api: Api<T>,
    config: Config,
    empty: T,
    steps: Sequence<T>,
    desired: Option<DesireAggregate<T>>,
    manager: Box<dyn ObjectManager<T>>,
    hooks: StepHooks,
    tracking: Arc<Tracking>,
    /// The namespace of the steps' watches.
    namespace: Option<String>,
}

type DesireAggregate<T> = Box<dyn Fn(&SubContext<'_>, &T) -> Result<Option<T>, BoxError> + Send + Sync>;

impl<T: Object> AggregateReconciler<T> {
    /// Creates a reconciler for the object with the key of `empty`, which is also the initial object.
    ///
    /// `manager` writes the object. It must not have a finalizer. The name is for log lines.
    pub fn new(name: impl Into<String>, config: Config, empty: T, manager: impl ObjectManager<T> + 'static) -> Self {
        Self {
            name: name.into(),
            api: Api::of_kind(config.client().clone(), empty.kind()),
            tracking: Arc::new(Tracking::new(config.tracker())),
            config,
            empty,
            steps: Sequence::new(),
            desired: None,
            manager: Box::new(manager),
            hooks: StepHooks::default(),
            namespace: None,
        }
    }

    /// Adds a step after the others.
    pub fn then(mut self, step: impl SubReconciler<T> + 'static) -> Self {
        self.steps = self.steps.then(step);
        self
    }

    /// Computes the desired object from the object that the steps leave. `None` deletes it. Default: the object itself.
    pub fn desired(
        self,
        desired: impl Fn(&SubContext<'_>, &T) -> Result<Option<T>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self { desired: Some(Box::new(desired)), ..self }
    }

    /// Restricts the watches of the steps and of the object manager to this namespace. Steps with [another
    /// client](super::WithConfig) keep their own.
    ///
    /// Without this setting, these watches need permission in all namespaces. The watch of the object itself uses the
    /// namespace of the object.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Sets up the steps, and returns the sources of the key: the start, the object itself, and everything that the
    /// steps have added.
    ///
    /// # Errors
    ///
    /// The errors of [`Manager::watch`], of the steps and of the object manager.
    pub fn setup(&self, manager: &Manager) -> Result<Sources<ObjectKey>, BoxError> {
        let mut added = Additions::default();
        let mut setup =
            Setup::new(manager, self.api.kind(), &self.config, &mut added).in_namespace(self.namespace.as_deref());
        let key = self.empty.key();
        let this = Query::of_kind_in(self.api.kind(), Some(key.namespace())).field("metadata.name", key.name());
        setup.subscribe_to(&self.api, &this, move |queue| {
            // If the object does not exist, the end of the listing is the only event.
            Subscriber::to(queue, move |_: &Event<ObjectKey, T>| Some(key.clone()))
        })?;
        self.steps.setup(&mut setup)?;
        self.manager.setup(&mut setup)?;
        Ok(added.sources)
    }

    fn run(&self, cx: &Context, key: &ObjectKey) -> SubResult {
        let mut current = self.api.get(key).ignore_not_found()?;
        if current.is_none() && self.config.is_cached() {
            // A stale cache must not cause a second creation.
            let uncached = Api::of_kind(self.config.uncached().clone(), self.api.kind().clone());
            current = uncached.get(key).ignore_not_found()?;
        }
        let mut resource = current.clone().unwrap_or_else(|| self.empty.clone());
        if resource.meta().is_deleting() {
            return Ok(Flow::proceed());
        }
        let request = Request::new(&resource, self.config.clone()).tracked_by(&self.tracking);
        let cx = &SubContext::new(&self.name, cx, &request);
        let result = Ok(self.steps.reconcile(cx, &mut resource)?);
        both(result, self.write(cx, current.as_ref(), resource))
    }

    fn write(&self, cx: &SubContext<'_>, current: Option<&T>, mut resource: T) -> SubResult {
        let desired = match &self.desired {
            Some(desired) => desired(cx, &resource)?,
            None => Some(resource.clone()),
        };
        cx.check_term()?;
        let written = self.manager.manage(cx, &mut resource.meta_mut(), current, desired);
        // If the object was created since, the steps have not seen it: the next run reads it.
        written.map_err(ClientError::conflict_if_made)?;
        Ok(Flow::proceed())
    }
}

hook_settings!(AggregateReconciler);

impl<T: Object> Reconciler<ObjectKey> for AggregateReconciler<T> {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        if *key != self.empty.key() {
            return Ok(Action::await_change());
        }
        conclude(self.hooks.run(cx, key, || self.tracking.run(key, || self.run(cx, key))), &self.name, cx, key)
    }
}

impl<T: Object> fmt::Debug for AggregateReconciler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregateReconciler")
            .field("name", &self.name)
            .field("object", &self.empty.object_ref())
            .finish_non_exhaustive()
    }
}
