//! A reconciler that runs the steps for objects of one type.

use std::fmt;
use std::sync::Arc;

use super::SubReconciler;
use super::config::Config;
use super::context::{Request, SubContext};
use super::finalizing::WithFinalizer;
use super::flow::{ErrorClass, Flow, SubResult, both, conclude};
use super::hooks::{StepHooks, hook_settings};
use super::setup::{Additions, Setup};
use super::tracking::Tracking;
use crate::selection::{Selected, Selection, selection_settings};
use crate::{Api, Condition, ConditionStatus, EventType, Ignore, Kind, Object, ObjectKey, reasons, set_condition};
use homeostat::controller::Sources;
use homeostat::manager::Manager;
use homeostat::rt::Chain;
use homeostat::run::{Action, BoxError, Context, Reconciler};
use homeostat::watch::Subscriber;

/// A [`Reconciler`] of objects of one type, which calls a [`SubReconciler`]. It reads the object, and writes its status
/// if that has changed.
///
/// Each run:
///
/// 1. calls [`before`](Self::before), unless the [request is skipped](Self::skip_request);
/// 2. reads the object. If it is gone, the run ends;
/// 3. sets [defaults](Self::defaults) without writing them, and ends if the [resource is skipped](Self::skip_resource);
/// 4. sets the [initial conditions](Self::conditions);
/// 5. calls the sub-reconciler, unless the object is being deleted and has no finalizer;
/// 6. sets the [observed generation](Self::observed_generation) after a success or a durable error;
/// 7. writes the status if it has changed, with the event `StatusUpdated`. The status of an object that is being
///    deleted is written only on [request](Self::status_while_deleting). If this write fails after an error of the
///    sub-reconciler, both errors are returned;
/// 8. calls [`after`](Self::after).
///
/// The [class](ErrorClass) of an error decides about logging and retries. After the end of the [term](Context::fence),
/// no status, child or finalizer is written.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Condition, MemoryClient, ObjectMeta};
/// use homeostat_objects::sub::{Config, Flow, ResourceReconciler, SubContext, SubResult};
/// use homeostat::{Controller, Manager};
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Function {
///     metadata: ObjectMeta,
///     source: String,
///     #[serde(default)]
///     status: FunctionStatus,
/// }
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
/// #[serde(default)]
/// struct FunctionStatus {
///     observed_generation: i64,
///     conditions: Vec<Condition>,
///     image: String,
/// }
///
/// homeostat_objects::object!(Function, namespaced, "example.com", "v1", status: FunctionStatus);
///
/// fn resolve(_cx: &SubContext<'_>, function: &mut Function) -> SubResult {
///     function.status.image = format!("registry.example.com/{}", function.metadata.name);
///     Ok(Flow::proceed())
/// }
///
/// let config = Config::new(Arc::new(MemoryClient::new()));
/// let reconciler = ResourceReconciler::<Function>::new("function", config, resolve)
///     .observed_generation(|status, generation| status.observed_generation = generation)
///     .conditions(["Ready"], |status| &mut status.conditions);
///
/// let manager = Manager::builder().build()?;
/// let sources = reconciler.setup(&manager)?;
/// manager.add(Controller::builder("function", reconciler).sources(sources).build()?)?;
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use]
pub struct ResourceReconciler<T: Object> {
    name: String,
    api: Api<T>,
    config: Config,
    reconciler: Box<dyn SubReconciler<T>>,
    hooks: StepHooks,
    skip_request: Option<Skips<ObjectKey>>,
    skip_resource: Option<Skips<T>>,
    defaults: Option<Defaults<T>>,
    observed_generation: Option<Observe<T::Status>>,
    conditions: Option<Conditions<T::Status>>,
    writes_status: bool,
    status_while_deleting: bool,
    tracking: Arc<Tracking>,
    selection: Selection<T>,
}

type Skips<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;
type Defaults<T> = Box<dyn Fn(&mut T) + Send + Sync>;
type Observe<S> = Box<dyn Fn(&mut S, i64) + Send + Sync>;
type ConditionsOf<S> = Box<dyn Fn(&mut S) -> &mut Vec<Condition> + Send + Sync>;

/// The conditions of a status: the accessor and the initial ones.
struct Conditions<S> {
    initial: Vec<String>,
    of: ConditionsOf<S>,
}

impl<T: Object> ResourceReconciler<T> {
    /// Creates a reconciler for the objects of this type in the client of `config`. The name is for log lines.
    pub fn new(name: impl Into<String>, config: Config, reconciler: impl SubReconciler<T> + 'static) -> Self {
        let api = config.api();
        Self::with_api(name.into(), api, config, Box::new(reconciler))
    }

    /// Creates a reconciler for objects of this kind, for types that have no fixed kind.
    pub fn of_kind(
        name: impl Into<String>,
        kind: Kind,
        config: Config,
        reconciler: impl SubReconciler<T> + 'static,
    ) -> Self {
        let api = Api::of_kind(config.client().clone(), kind);
        Self::with_api(name.into(), api, config, Box::new(reconciler))
    }

    fn with_api(name: String, api: Api<T>, config: Config, reconciler: Box<dyn SubReconciler<T>>) -> Self {
        Self {
            name,
            api,
            tracking: Arc::new(Tracking::new(config.tracker())),
            config,
            reconciler,
            hooks: StepHooks::default(),
            skip_request: None,
            skip_resource: None,
            defaults: None,
            observed_generation: None,
            conditions: None,
            writes_status: true,
            status_while_deleting: false,
            selection: Selection::default(),
        }
    }

    /// Skips the runs of keys for which `skips` returns true.
    pub fn skip_request(self, skips: impl Fn(&ObjectKey) -> bool + Send + Sync + 'static) -> Self {
        Self { skip_request: Some(Box::new(skips)), ..self }
    }

    /// Skips the objects for which `skips` returns true. Their defaults have been set; nothing is written.
    pub fn skip_resource(self, skips: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        Self { skip_resource: Some(Box::new(skips)), ..self }
    }

    /// Sets the defaults of an object. They are not written to the client.
    pub fn defaults(self, defaults: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        Self { defaults: Some(Box::new(defaults)), ..self }
    }

    /// Sets the observed generation in the status.
    pub fn observed_generation(self, set: impl Fn(&mut T::Status, i64) + Send + Sync + 'static) -> Self {
        Self { observed_generation: Some(Box::new(set)), ..self }
    }

    /// Names the conditions of the status. For a [`ConditionSet`](crate::ConditionSet), pass its
    /// [`kinds`](crate::ConditionSet::kinds).
    ///
    /// Each run first adds the missing `initial` conditions as [unknown](ConditionStatus::Unknown), with the reason
    /// `Initializing`. A condition keeps its transition time if its status has not changed.
    pub fn conditions<I: Into<String>>(
        self,
        initial: impl IntoIterator<Item = I>,
        of: impl Fn(&mut T::Status) -> &mut Vec<Condition> + Send + Sync + 'static,
    ) -> Self {
        let initial = initial.into_iter().map(Into::into).collect();
        Self { conditions: Some(Conditions { initial, of: Box::new(of) }), ..self }
    }

    /// Keeps the objects with this finalizer until the sub-reconciler has cleaned up. See [`WithFinalizer`].
    pub fn finalizer(self, finalizer: impl Into<String>) -> Self {
        Self { reconciler: Box::new(WithFinalizer::new(finalizer, self.reconciler)), ..self }
    }

    /// Never writes the status. Use it if another reconciler of the same objects writes it.
    pub fn skip_status_update(self) -> Self {
        Self { writes_status: false, ..self }
    }

    /// Also writes the status of objects that are being deleted.
    pub fn status_while_deleting(self) -> Self {
        Self { status_while_deleting: true, ..self }
    }

    /// Sets up the steps, and returns the sources of the keys: the objects themselves, and everything that the steps
    /// have added.
    ///
    /// Pass them to the controller of this reconciler, in the same manager.
    ///
    /// # Errors
    ///
    /// The errors of [`Manager::watch`] and of the sub-reconcilers.
    pub fn setup(&self, manager: &Manager) -> Result<Sources<ObjectKey>, BoxError> {
        let mut added = Additions::default();
        let mut setup = Setup::new(manager, self.api.kind(), &self.config, &mut added)
            .in_namespace(self.selection.query.namespace.as_deref());
        let events = self.selection.events.clone();
        setup.subscribe_to(&self.api, &self.selection.query, |queue| Subscriber::to_itself(queue).when(events))?;
        self.reconciler.setup(&mut setup)?;
        Ok(added.sources)
    }

    fn fetch(&self, cx: &Context, key: &ObjectKey) -> SubResult {
        let Selected::Object(original) = self.selection.get(&self.api, key)? else { return Ok(Flow::proceed()) };
        let mut resource = original.clone();
        if let Some(defaults) = &self.defaults {
            defaults(&mut resource);
        }
        if self.skip_resource.as_ref().is_some_and(|skips| skips(&resource)) {
            return Ok(Flow::proceed());
        }
        let request = Request::new(&original, self.config.clone()).tracked_by(&self.tracking);
        let cx = SubContext::new(&self.name, cx, &request);
        let result = self.run_steps(&cx, &mut resource);
        if self.writes_status && !request.skips_status_update() && (!cx.is_deleting() || self.status_while_deleting) {
            return self.write_status(&cx, original, resource, result);
        }
        result
    }

    fn run_steps(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        if cx.is_deleting() && resource.meta().finalizers.is_empty() {
            return Ok(Flow::proceed());
        }
        // `status_mut` creates a missing status, so it is called only if something must be set.
        if let Some(conditions) = self.conditions.as_ref().filter(|conditions| !conditions.initial.is_empty())
            && let Some(status) = resource.status_mut()
        {
            conditions.initialize(status, cx);
        }
        let result = self.reconciler.reconcile(cx, resource);
        let observed = result.as_ref().map_or_else(|error| ErrorClass::of(&**error) == ErrorClass::Durable, |_| true);
        let generation = resource.meta().generation;
        if observed
            && let Some(set) = &self.observed_generation
            && let Some(status) = resource.status_mut()
        {
            set(status, generation);
        }
        result
    }

    fn write_status(&self, cx: &SubContext<'_>, mut original: T, mut resource: T, result: SubResult) -> SubResult {
        if let Some(conditions) = &self.conditions
            && original.status().is_some()
            && resource.status().is_some()
            && let (Some(before), Some(now)) = (original.status_mut(), resource.status_mut())
        {
            conditions.keep_times(before, now);
        }
        if resource.status() == original.status() {
            return result;
        }
        if let Err(ended) = cx.check_term() {
            return both(result, Err(ended.into()));
        }
        match self.api.update_status(&resource).ignore_not_found() {
            Ok(Some(_)) => {
                cx.event(EventType::Normal, reasons::STATUS_UPDATED, "Updated status");
                result
            }
            // The object is gone.
            Ok(None) => result,
            Err(error) => {
                // The object has changed. The next run reads it again.
                if !error.is_conflict() {
                    let message = format!("Failed to update status: {}", Chain(&error));
                    cx.event(EventType::Warning, reasons::STATUS_UPDATE_FAILED, &message);
                }
                both(result, Err(error.into()))
            }
        }
    }
}

selection_settings!(
    ResourceReconciler,
    "The watches that its steps need are restricted in the same way, except those of a step with \
     [another client](super::WithConfig)."
);

impl<S> Conditions<S> {
    fn initialize(&self, status: &mut S, cx: &SubContext<'_>) {
        let conditions = (self.of)(status);
        for kind in &self.initial {
            if conditions.iter().all(|known| known.kind != *kind) {
                let unknown = Condition::new(kind, ConditionStatus::Unknown, "Initializing");
                set_condition(conditions, unknown, cx.now());
            }
        }
    }

    /// Restores the transition time of each condition with an unchanged status.
    fn keep_times(&self, before: &mut S, now: &mut S) {
        let before = (self.of)(before);
        for condition in (self.of)(now) {
            let known = before.iter().find(|known| known.kind == condition.kind && known.status == condition.status);
            if let Some(since) = known.and_then(|known| known.last_transition_time) {
                condition.last_transition_time = Some(since);
            }
        }
    }
}

hook_settings!(ResourceReconciler);

impl<T: Object> Reconciler<ObjectKey> for ResourceReconciler<T> {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        if self.skip_request.as_ref().is_some_and(|skips| skips(key)) {
            return Ok(Action::await_change());
        }
        conclude(self.hooks.run(cx, key, || self.tracking.run(key, || self.fetch(cx, key))), &self.name, cx, key)
    }
}

impl<T: Object> fmt::Debug for ResourceReconciler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceReconciler").field("name", &self.name).field("api", &self.api).finish_non_exhaustive()
    }
}
