//! Primaries: objects with secondaries, tertiaries and external resources.

mod reconcile;
mod secondary;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::reconcile::{Operation, PrimaryContext, PrimaryReconciler};
pub use self::secondary::Secondary;

use self::reconcile::{PrimaryRun, SecondaryOf};
use self::secondary::WatchedSecondary;
use super::dependents::{External, ExternalResource};
use super::selection::{Selection, selection_settings};
use crate::{Api, EventRecorder, Object, ObjectKey, Query, shared_watch};
use homeostat::base::{Exponential, StartError};
use homeostat::controller::{Controller, ControllerBuilder, ControllerHandle};
use homeostat::manager::Manager;
use homeostat::queue::Reasons;
use homeostat::run::{BoxError, Context, FailedRun, RetryPolicy};
use homeostat::watch::{Event, EventKind, Poller, Store, Subscriber, Watch};

/// The delay before a failed listing of external resources is repeated. It is shorter than the default of
/// [`unready_after`](homeostat::manager::ManagerBuilder::unready_after): one failure must not make a program unready.
const LIST_RETRY: Duration = Duration::from_secs(30);

/// A controller of objects that make other objects.
///
/// Each *primary* has *secondaries*, which its reconciler makes in the same client or in another one and marks as the
/// primary's (see [`Ownership`](super::Ownership)). It may also have *tertiaries*, which it only reads, and [external
/// resources](External). All settings have defaults.
///
/// | event | call | operation |
/// |---|---|---|
/// | a primary is created or updated | `sync`; then each external resource is observed, and converged if it differs | [put](Operation::Put) |
/// | a primary is being deleted, and a finalizer holds it | `sync` | [delete](Operation::Delete) |
/// | a primary is gone | its secondaries are deleted and its external resources removed; then `gone` | [delete](Operation::Delete) or [purge](Operation::Purge) |
/// | a secondary or tertiary changes | `sync` or `gone` of its primary | [secondary](Operation::Secondary) |
/// | [resync](Self::resync) | the same for all primaries, and for missing primaries that have left resources | [resync](Operation::Resync) |
///
/// The runs of one key never overlap, so no run deletes the work of another run. When a controller starts, it also
/// cleans up after primaries that were deleted while no controller ran: it finds their secondaries by the marks, and
/// their external resources by the [list](External::list).
///
/// # Examples
///
/// A site has a page for each of its words. Sites and pages are in different clients:
///
/// ```
/// use homeostat_objects::{
///     Api, MemoryClient, Object, ObjectKey, ObjectMeta, PrimaryContext, PrimaryController, Secondary,
/// };
/// use homeostat::{Action, BoxError, Manager};
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Site {
///     metadata: ObjectMeta,
///     words: Vec<String>,
/// }
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Page {
///     metadata: ObjectMeta,
/// }
///
/// homeostat_objects::object!(Site, namespaced, "example.com", "v1");
/// homeostat_objects::object!(Page, namespaced, "example.com", "v1");
///
/// let sites = Api::<Site>::new(Arc::new(MemoryClient::new()));
/// let pages = Secondary::new(Api::<Page>::new(Arc::new(MemoryClient::new())));
/// let secondary = pages.clone();
/// let sync = move |cx: &PrimaryContext<'_>, site: &Site| -> Result<Action, BoxError> {
///     let mut keys = Vec::new();
///     for word in &site.words {
///         let page = Page { metadata: ObjectMeta::new("pages", format!("{}-{word}", site.metadata.name)) };
///         keys.push(pages.ensure(cx, site, page)?.object().key());
///     }
///     pages.prune(cx, site, keys)?;
///     Ok(Action::await_change())
/// };
///
/// let manager = Manager::builder().build()?;
/// let controller = PrimaryController::new("sites", sites.clone(), sync).secondary(&secondary).add_to(&manager)?;
/// let running = manager.start()?;
///
/// let shop = sites.create(&Site { metadata: ObjectMeta::new("default", "shop"), words: vec!["tea".into()] })?;
/// controller.enqueue(shop.key());
/// controller.wait(&shop.key(), Duration::from_secs(10))?;
/// assert_eq!(secondary.list(&shop)?[0].key(), ObjectKey::new("pages", "shop-tea"));
/// manager.stop();
/// running.join()?;
/// # Ok::<_, BoxError>(())
/// ```
#[must_use = "a controller does nothing until `add_to` is called"]
pub struct PrimaryController<T: Object> {
    name: String,
    api: Api<T>,
    reconciler: Box<dyn PrimaryReconciler<T>>,
    related: Vec<RelatedWatch<T>>,
    externals: Vec<ExternalResource<T>>,
    recorder: Option<EventRecorder>,
    resync: Duration,
    max_concurrent: usize,
    timeout: Option<Duration>,
    policy: PrimaryPolicy,
    clean_up: Option<Box<dyn FnOnce() + Send>>,
    selection: Selection<T>,
    settings: Vec<Subscribe>,
}

type Subscribe = Box<dyn FnOnce(ControllerBuilder<ObjectKey>) -> ControllerBuilder<ObjectKey> + Send>;

/// Starts the watch of a secondary or tertiary. Returns its subscription, and the secondaries.
type RelatedWatch<T> =
    Box<dyn FnOnce(&Manager) -> Result<(Subscribe, Option<Box<dyn SecondaryOf<T>>>), StartError> + Send>;

/// The [retry policy](PrimaryController::retry) of a [`PrimaryController`].
struct PrimaryPolicy(Box<dyn RetryPolicy<ObjectKey>>);

impl RetryPolicy<ObjectKey> for PrimaryPolicy {
    fn decide(&self, failure: &FailedRun<'_, ObjectKey>) -> Option<Duration> {
        self.0.decide(failure)
    }

    fn floor(&self) -> Duration {
        self.0.floor()
    }
}

impl<T: Object> PrimaryController<T> {
    /// Creates a controller of all objects of an [`Api`].
    pub fn new(name: impl Into<String>, primaries: Api<T>, reconciler: impl PrimaryReconciler<T>) -> Self {
        Self {
            name: name.into(),
            api: primaries,
            reconciler: Box::new(reconciler),
            related: Vec::new(),
            externals: Vec::new(),
            recorder: None,
            resync: Duration::from_secs(600),
            max_concurrent: 1,
            timeout: None,
            policy: PrimaryPolicy(Box::new(Exponential::default())),
            clean_up: None,
            selection: Selection::default(),
            settings: Vec::new(),
        }
    }

    /// Changes settings of the controller that have no method here, such as `observe_runs`, `sync_timeout`,
    /// `rate_limit` and `debounce`.
    ///
    /// It is called when the controller is added to its manager, after all settings made here.
    pub fn controller(
        mut self,
        settings: impl FnOnce(ControllerBuilder<ObjectKey>) -> ControllerBuilder<ObjectKey> + Send + 'static,
    ) -> Self {
        self.settings.push(Box::new(settings));
        self
    }

    /// Adds secondaries. A change of a secondary enqueues its primary, and the primary that it belonged to before. The
    /// secondaries of a primary that is gone are deleted.
    ///
    /// If a secondary loses only the labels of its marks, the next run of its primary first restores them, because no
    /// list finds it without them. If a secondary loses its marks before its watch has seen it, it belongs to no
    /// primary: the next run of its primary notices that.
    pub fn secondary<S: Object>(mut self, secondary: &Secondary<S>) -> Self {
        let (secondary, primaries) = (secondary.clone(), self.api.kind().clone());
        self.related.push(Box::new(move |manager| {
            let watch = shared_watch(manager, secondary.api(), secondary.query())?;
            let (marks, of_index, kind) = (secondary.clone(), secondary.clone(), primaries.clone());
            let owner = move |_: &ObjectKey, object: &S| marks.owner_key(object, &primaries);
            let unlabelled =
                watch.store().index(move |_: &ObjectKey, object: &S| of_index.unlabelled_owner(object, &kind));
            let watched = WatchedSecondary { secondary, unlabelled };
            Ok((subscribe(watch, owner), Some(Box::new(watched) as Box<dyn SecondaryOf<T>>)))
        }));
        self
    }

    /// Adds objects that the primaries read. A change of such an object enqueues the primaries that `primaries` returns
    /// for its old and its new state.
    pub fn tertiary<U, I>(self, api: Api<U>, primaries: impl Fn(&U) -> I + Send + 'static) -> Self
    where
        U: Object,
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        self.tertiary_of(api, Query::all(), primaries)
    }

    /// Does the same as [`tertiary`](Self::tertiary) for the objects that `query` selects, for example in one
    /// namespace.
    pub fn tertiary_of<U, I>(mut self, api: Api<U>, query: Query, primaries: impl Fn(&U) -> I + Send + 'static) -> Self
    where
        U: Object,
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        self.related.push(Box::new(move |manager| {
            let watch = shared_watch(manager, &api, &query)?;
            Ok((subscribe(watch, move |_: &ObjectKey, object: &U| primaries(object)), None))
        }));
        self
    }

    /// Adds an external resource of the primaries. The name is for events, errors and log lines, and for the source
    /// that lists the resources.
    pub fn external(mut self, name: impl Into<String>, external: impl External<T>) -> Self {
        self.externals.push(ExternalResource::new(name, external));
        self
    }

    /// Sets the interval at which all primaries run and the controller looks for resources of missing primaries.
    /// Default: ten minutes.
    pub fn resync(self, interval: Duration) -> Self {
        Self { resync: interval, ..self }
    }

    /// See [`ControllerBuilder::max_concurrent_reconciles`].
    pub fn max_concurrent_reconciles(self, runs: usize) -> Self {
        Self { max_concurrent: runs, ..self }
    }

    /// See [`ControllerBuilder::reconcile_timeout`].
    pub fn reconcile_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// See [`ControllerBuilder::retry`].
    pub fn retry(self, policy: impl RetryPolicy<ObjectKey> + 'static) -> Self {
        Self { policy: PrimaryPolicy(Box::new(policy)), ..self }
    }

    /// Records changes of external resources as events of the primary. A [`Secondary`] has its own recorder.
    pub fn recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Calls `hook` after all components of the manager have ended or been abandoned. See [`Manager::at_end`].
    pub fn clean_up(self, hook: impl FnOnce() + Send + 'static) -> Self {
        Self { clean_up: Some(Box::new(hook)), ..self }
    }

    /// Adds the controller and the watches that it needs to a manager.
    ///
    /// The watches start immediately. The manager shares them: one for each client, type and query. Status and health
    /// show each under the name of its kind with a number, such as `sites-287d721084312817`. The number differs from
    /// start to start.
    ///
    /// # Errors
    ///
    /// The errors of [`ControllerBuilder::build`], [`Manager::add`] and [`Manager::watch`].
    pub fn add_to(self, manager: &Manager) -> Result<ControllerHandle<ObjectKey>, StartError> {
        let primaries = shared_watch(manager, &self.api, &self.selection.query)?;
        let related = self.related.into_iter().map(|start| start(manager)).collect::<Result<Vec<_>, _>>()?;
        let (subscribe, secondaries): (Vec<_>, Vec<_>) = related.into_iter().unzip();
        let externals: Arc<[_]> = self.externals.into();
        let events = self.selection.events.clone();
        let run = PrimaryRun {
            selection: self.selection,
            name: self.name.clone(),
            api: self.api,
            reconciler: self.reconciler,
            secondaries: secondaries.into_iter().flatten().collect(),
            externals: Arc::clone(&externals),
            recorder: self.recorder,
        };
        let mut settings = Controller::builder(self.name, run)
            .retry(self.policy)
            .clock(manager.clock().clone())
            .resync(self.resync)
            .max_concurrent_reconciles(self.max_concurrent)
            .subscribe(&primaries, |queue| Subscriber::to_itself(queue).when(events).reasons(reasons_of));
        if let Some(timeout) = self.timeout {
            settings = settings.reconcile_timeout(timeout);
        }
        settings = subscribe.into_iter().fold(settings, |settings, subscribe| subscribe(settings));
        for (number, external) in externals.iter().enumerate() {
            let name = external.name.clone();
            let (externals, store) = (Arc::clone(&externals), primaries.store().clone());
            let list = move |cx: &Context| left_behind(cx, &externals[number], &store);
            // A service that is unreachable at the start must not keep the controller from all other work.
            settings = settings.poller(Poller::new(self.resync, list).name(name).retry_failed(LIST_RETRY));
        }
        let controller = self.settings.into_iter().fold(settings, |settings, change| change(settings)).build()?;
        let handle = controller.handle();
        manager.add(controller)?;
        if let Some(hook) = self.clean_up {
            manager.at_end(hook);
        }
        Ok(handle)
    }
}

selection_settings!(PrimaryController, "See also [`Secondary::namespace`] and [`tertiary_of`](Self::tertiary_of).");

/// Returns the reasons of a run for an event of a primary.
///
/// A deletion of an object with finalizers leaves the object in place and sets its `deletionTimestamp`. If the last
/// state has finalizers and no `deletionTimestamp`, the object was purged. A deletion of an object without finalizers
/// removes it as it is.
fn reasons_of<T: Object>(event: &Event<ObjectKey, T>) -> Reasons {
    match event {
        Event::Created { .. } => Reasons::CREATED,
        Event::Updated { .. } => Reasons::UPDATED,
        Event::Deleted { last, .. } if !last.meta().finalizers.is_empty() && !last.meta().is_deleting() => {
            Reasons::PURGED
        }
        Event::Deleted { .. } => Reasons::DELETED,
        Event::Unchanged { .. } => Reasons::RESYNC,
        Event::Synced => Reasons::NONE,
    }
}

/// Subscribes to the watch of a secondary or tertiary.
fn subscribe<U, I>(watch: Watch<ObjectKey, U>, primaries: impl FnMut(&ObjectKey, &U) -> I + Send + 'static) -> Subscribe
where
    U: Object,
    I: IntoIterator<Item = ObjectKey> + 'static,
{
    Box::new(move |settings| {
        settings.subscribe(&watch, |queue| {
            Subscriber::to_owner(queue, primaries).reasons(|event| match event.kind() {
                EventKind::Unchanged => Reasons::RESYNC,
                _ => Reasons::SECONDARY,
            })
        })
    })
}

/// Returns the keys of missing primaries that still have an external resource.
fn left_behind<T: Object>(
    cx: &Context,
    resource: &ExternalResource<T>,
    primaries: &Store<ObjectKey, T>,
) -> Result<Vec<ObjectKey>, BoxError> {
    let mut owners = resource.external.list(cx)?;
    owners.retain(|owner| !primaries.contains(owner));
    Ok(owners)
}

impl<T: Object> fmt::Debug for PrimaryController<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrimaryController")
            .field("name", &self.name)
            .field("primaries", &self.api)
            .field("externals", &self.externals.len())
            .finish_non_exhaustive()
    }
}
