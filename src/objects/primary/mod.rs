//! A primary, the objects that it makes, those that it reads, and what it has outside all clients.

mod reconcile;
mod secondary;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::reconcile::{Operation, PrimaryContext, PrimaryReconciler, PrimaryRun};
pub use self::secondary::Secondary;

use self::reconcile::Collect;
use super::api::Api;
use super::dependents::{External, ExternalResource};
use super::events::EventRecorder;
use super::key::ObjectKey;
use super::object::Object;
use super::query::Query;
use super::selection::{Selection, selection_settings};
use super::watch::shared_watch;
use crate::base::backoff::Exponential;
use crate::base::error::StartError;
use crate::controller::{Controller, ControllerBuilder, ControllerHandle};
use crate::manager::Manager;
use crate::queue::Reasons;
use crate::run::context::Context;
use crate::run::error::Chain;
use crate::run::policy::{Failure, RetryDecision, RetryPolicy};
use crate::watch::store::Store;
use crate::watch::{Event, EventKind, Subscriber, Watch};

/// A controller of objects that make others: for each *primary* there are *secondaries*, which are made and marked as the primary's
/// (see [`Ownership`](super::Ownership)), in the same client or in another; *tertiaries*, which are only read; and
/// [external](External) resources. All settings have defaults.
///
/// | what happens | what is called | operation |
/// |---|---|---|
/// | a primary is created or updated | `sync` with it; then each external resource is looked at, and converged if it is not as it should be | [put](Operation::Put) |
/// | its deletion is asked for, and a finalizer holds it | `sync` with it | [delete](Operation::Delete) |
/// | it is gone: its client says so | its secondaries are deleted, its external resources removed; then `gone` | [delete](Operation::Delete) or [purge](Operation::Purge) |
/// | a secondary or tertiary is created, updated or deleted | as the primary is: `sync` or `gone` | [secondary](Operation::Secondary) |
/// | each [resync](Self::resync) | the same, for all primaries, and for those that are gone and have left something | [resync](Operation::Resync) |
///
/// All runs for one key follow each other, so nobody deletes what another makes. What a primary has left that was deleted while no
/// controller ran is found when one starts: the secondaries by their marks, external resources by their [list](External::list).
///
/// # Examples
///
/// A site has a page for each of its words. Sites and pages are in different clients:
///
/// ```
/// use homeostat::objects::{
///     Api, MemoryClient, Object, ObjectKey, ObjectMeta, PrimaryContext, PrimaryController, Secondary,
/// };
/// use homeostat::{Action, BoxError, Manager};
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Site {
///     metadata: ObjectMeta,
///     words: Vec<String>,
/// }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Page {
///     metadata: ObjectMeta,
/// }
///
/// homeostat::object!(Site, namespaced, "example.com", "v1");
/// homeostat::object!(Page, namespaced, "example.com", "v1");
///
/// let sites = Api::<Site>::new(Arc::new(MemoryClient::new()));
/// let pages = Secondary::new(Api::<Page>::new(Arc::new(MemoryClient::new())));
/// let secondary = pages.clone();
/// let sync = move |_cx: &PrimaryContext<'_>, site: &Site| -> Result<Action, BoxError> {
///     let mut keys = Vec::new();
///     for word in &site.words {
///         let page = Page { metadata: ObjectMeta::new("pages", format!("{}-{word}", site.metadata.name)) };
///         keys.push(pages.ensure(site, page)?.object().key());
///     }
///     pages.prune(site, keys)?;
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
/// running.wait()?;
/// # Ok::<_, BoxError>(())
/// ```
#[must_use = "a controller does nothing until it is added to a manager"]
pub struct PrimaryController<T: Object> {
    name: String,
    api: Api<T>,
    reconciler: Box<dyn PrimaryReconciler<T>>,
    around: Vec<RelatedWatch<T>>,
    externals: Vec<ExternalResource<T>>,
    recorder: Option<EventRecorder>,
    resync: Duration,
    max_concurrent: usize,
    timeout: Option<Duration>,
    policy: PrimaryPolicy,
    clean_up: Option<Box<dyn FnOnce() + Send>>,
    selection: Selection<T>,
    settings: Vec<Subscribe<T>>,
}

/// The settings of a controller of primaries: what [`PrimaryController::controller`] is given.
pub type PrimarySettings<T> = ControllerBuilder<ObjectKey, PrimaryRun<T>, PrimaryPolicy>;
type Subscribe<T> = Box<dyn FnOnce(PrimarySettings<T>) -> PrimarySettings<T> + Send>;

/// Watches something around the primary: how that is subscribed to, and how it is collected, if it is.
type RelatedWatch<T> = Box<dyn FnOnce(&Manager) -> Result<(Subscribe<T>, Option<Collect>), StartError> + Send>;

/// The [retry policy](PrimaryController::retry) of a [`PrimaryController`].
pub struct PrimaryPolicy(Box<dyn RetryPolicy<ObjectKey>>);

impl fmt::Debug for PrimaryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrimaryPolicy").finish_non_exhaustive()
    }
}

impl RetryPolicy<ObjectKey> for PrimaryPolicy {
    fn decide(&self, failure: &Failure<'_, ObjectKey>) -> RetryDecision {
        self.0.decide(failure)
    }

    fn floor(&self) -> Duration {
        self.0.floor()
    }
}

impl<T: Object> PrimaryController<T> {
    /// A controller of all objects of an [`Api`].
    pub fn new(name: impl Into<String>, primaries: Api<T>, reconciler: impl PrimaryReconciler<T>) -> Self {
        Self {
            name: name.into(),
            api: primaries,
            reconciler: Box::new(reconciler),
            around: Vec::new(),
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

    /// Changes the settings of the controller that have no method here: `on_error`, `sync_timeout`, `rate_limit`, `debounce` and others.
    /// Called as the controller is added to its manager, after all settings made here.
    ///
    /// ```
    /// # use homeostat::objects::{Api, DynamicObject, Kind, MemoryClient, PrimaryContext, PrimaryController};
    /// # use homeostat::{Action, BoxError, Manager};
    /// # use std::{sync::Arc, time::Duration};
    /// # const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
    /// # let sites = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), SITE);
    /// # let sync = |_: &PrimaryContext<'_>, _: &DynamicObject| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    /// # let manager = Manager::builder().build()?;
    /// PrimaryController::new("sites", sites, sync)
    ///     .controller(|settings| settings.rate_limit(10.0, 20).sync_timeout(Duration::from_secs(30)))
    ///     .add_to(&manager)?;
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    pub fn controller(
        mut self,
        settings: impl FnOnce(PrimarySettings<T>) -> PrimarySettings<T> + Send + 'static,
    ) -> Self {
        self.settings.push(Box::new(settings));
        self
    }

    /// Its primaries make these. A change of one calls the primary that it belongs to, and the one that it belonged to before;
    /// those of a primary that is gone are deleted. One that loses its marks before its watch has told of it belongs to nobody: its
    /// primary finds that out at its next run.
    pub fn secondary<S: Object>(mut self, secondary: &Secondary<S>) -> Self {
        let (secondary, primaries) = (secondary.clone(), self.api.kind().clone());
        self.around.push(Box::new(move |manager| {
            let watch = shared_watch(manager, secondary.api(), secondary.query())?;
            let marks = secondary.clone();
            let owner = move |_: &ObjectKey, object: &S| marks.owner_key(object, &primaries);
            let by_owner = watch.store().index(owner.clone());
            let collect: Collect = Box::new(move |gone| secondary.collect(gone, by_owner.keys(&gone.key())));
            Ok((subscribe(watch, owner), Some(collect)))
        }));
        self
    }

    /// Its primaries read these. A change of one calls the primaries that `primaries` names, both for what it was and for what it is.
    pub fn tertiary<U, I>(self, api: Api<U>, primaries: impl Fn(&U) -> I + Send + 'static) -> Self
    where
        U: Object,
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        self.tertiary_of(api, Query::all(), primaries)
    }

    /// As [`tertiary`](Self::tertiary), of the objects that `query` selects: those of one namespace, say.
    pub fn tertiary_of<U, I>(mut self, api: Api<U>, query: Query, primaries: impl Fn(&U) -> I + Send + 'static) -> Self
    where
        U: Object,
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        self.around.push(Box::new(move |manager| {
            let watch = shared_watch(manager, &api, &query)?;
            Ok((subscribe(watch, move |_: &ObjectKey, object: &U| primaries(object)), None))
        }));
        self
    }

    /// Its primaries have this, outside all clients. The name is for events, errors and log lines.
    pub fn external(mut self, name: impl Into<String>, external: impl External<T>) -> Self {
        self.externals.push(ExternalResource::new(name, external));
        self
    }

    /// How often all primaries are run, changed or not, and looked for what others have left. Default: every ten minutes.
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

    /// Records what is done to external resources, as events of the primary. A [`Secondary`] has a recorder of its own.
    pub fn recorder(self, recorder: EventRecorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Calls `hook` at the end, when all that the manager runs has ended or been given up: see [`Manager::at_end`].
    pub fn clean_up(self, hook: impl FnOnce() + Send + 'static) -> Self {
        Self { clean_up: Some(Box::new(hook)), ..self }
    }

    /// Adds it to a manager, with the watches that it needs: one for each client and type, shared with the other controllers of
    /// the manager that are added so. The watches run from then on.
    ///
    /// # Errors
    ///
    /// As those of [`ControllerBuilder::build`], [`Manager::add`] and [`Manager::watch`].
    pub fn add_to(self, manager: &Manager) -> Result<ControllerHandle<ObjectKey>, StartError> {
        let primaries = shared_watch(manager, &self.api, &self.selection.query)?;
        let around = self.around.into_iter().map(|around| around(manager)).collect::<Result<Vec<_>, _>>()?;
        let (subscribe, collectors): (Vec<_>, Vec<_>) = around.into_iter().unzip();
        let externals: Arc<[_]> = self.externals.into();
        let events = self.selection.events.clone();
        let run = PrimaryRun {
            selection: self.selection,
            name: self.name.clone(),
            api: self.api,
            reconciler: self.reconciler,
            collectors: collectors.into_iter().flatten().collect(),
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
        if !externals.is_empty() {
            let store = primaries.store().clone();
            settings = settings.poll(self.resync, move |cx| Ok::<_, Infallible>(left_behind(cx, &externals, &store)));
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

/// What has happened to a primary.
fn reasons_of<T: Object>(event: &Event<ObjectKey, T>) -> Reasons {
    match event {
        Event::Created { .. } => Reasons::CREATED,
        Event::Updated { .. } => Reasons::UPDATED,
        Event::Deleted { last, .. } if last.meta().is_deleting() => Reasons::DELETED,
        Event::Deleted { .. } => Reasons::PURGED,
        Event::Unchanged { .. } => Reasons::RESYNC,
        Event::Synced => Reasons::NONE,
    }
}

/// What happens around a primary is no news of the primary itself.
fn subscribe<T, U, I>(
    watch: Watch<ObjectKey, U>,
    primaries: impl FnMut(&ObjectKey, &U) -> I + Send + 'static,
) -> Subscribe<T>
where
    T: Object,
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

/// The keys of those that are not there, and have something outside all clients.
fn left_behind<T: Object>(
    cx: &Context,
    externals: &[ExternalResource<T>],
    primaries: &Store<ObjectKey, T>,
) -> Vec<ObjectKey> {
    let mut owners = Vec::new();
    for ExternalResource { name, external } in externals {
        let name = name.as_str();
        match external.list(cx) {
            Ok(listed) => owners.extend(listed.into_iter().filter(|owner| !primaries.contains(owner))),
            Err(error) => {
                let shown = Chain(&*error);
                log::warn!(external = name, error:% = shown; "{name}: external resources cannot be listed: {shown}");
            }
        }
    }
    owners
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
