//! The set-up of a controller's steps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::config::Config;
use crate::{Api, Kind, Object, ObjectKey, Query, controller_key, shared_watch, watch_name};
use homeostat::base::StartError;
use homeostat::controller::Sources;
use homeostat::manager::Manager;
use homeostat::queue::{Key, WorkQueue};
use homeostat::run::BoxError;
use homeostat::watch::{Index, Subscriber, Watch};

/// The set-up of a controller's steps. Steps add watches, indexes and other sources to it. It is passed to each step
/// once, before the controller is built.
///
/// The manager shares watches: one for each client, type and query.
pub struct Setup<'a> {
    manager: &'a Manager,
    kind: &'a Kind,
    config: Cow<'a, Config>,
    /// The namespace of all watches that use the client of the config.
    namespace: Option<&'a str>,
    /// Restricts the watches further.
    query: Query,
    added: &'a mut Additions,
}

/// The additions of all steps.
#[derive(Debug, Default)]
pub(super) struct Additions {
    pub(super) sources: Sources<ObjectKey>,
    /// The watches that feed the controller, and how it uses them.
    known: HashSet<(String, WatchUse)>,
    /// The steps with children, by the address of the client, the group and the name of the kind.
    parents: HashMap<(usize, String, String), ParentStep>,
}

/// A step with children.
#[derive(Clone, Debug)]
struct ParentStep {
    step: String,
    /// Whether `ours` restricts its children.
    is_restricted: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum WatchUse {
    Owned,
    /// Through the tracker at this address. Its subscriber keeps it alive.
    Tracked(usize),
}

impl<'a> Setup<'a> {
    pub(super) fn new(manager: &'a Manager, kind: &'a Kind, config: &'a Config, added: &'a mut Additions) -> Self {
        Self { manager, kind, config: Cow::Borrowed(config), namespace: None, query: Query::all(), added }
    }

    /// Restricts the watches to one namespace.
    pub(super) fn in_namespace(self, namespace: Option<&'a str>) -> Self {
        Self { namespace, ..self }
    }

    /// Returns a set-up with another config, for inner steps.
    pub fn with_config(&mut self, config: Config) -> Setup<'_> {
        // Another client may have other namespaces.
        let is_same = std::ptr::addr_eq(Arc::as_ptr(config.client()), Arc::as_ptr(self.config.client()));
        let namespace = self.namespace.filter(|_| is_same);
        let query = self.query.clone();
        Setup {
            manager: self.manager,
            kind: self.kind,
            config: Cow::Owned(config),
            namespace,
            query,
            added: self.added,
        }
    }

    /// Returns a set-up whose watches have only the objects that this query selects, for example by their labels.
    ///
    /// The query replaces that of an outer call. Without a namespace it keeps the namespace of the reconciler.
    ///
    /// ```
    /// use homeostat_objects::sub::Setup;
    /// use homeostat_objects::{Api, DynamicObject, Query};
    /// use homeostat::BoxError;
    ///
    /// fn set_up(setup: &mut Setup<'_>, secrets: &Api<DynamicObject>) -> Result<(), BoxError> {
    ///     let mut of_web = setup.with_query(Query::all().labels("app=web".parse()?));
    ///     of_web.owned(secrets)?;
    ///     let _watch = of_web.watch(secrets)?;
    ///     Ok(())
    /// }
    /// ```
    pub fn with_query(&mut self, query: Query) -> Setup<'_> {
        let Setup { manager, kind, namespace, .. } = *self;
        Setup { manager, kind, config: Cow::Borrowed(&*self.config), namespace, query, added: self.added }
    }

    /// Returns the manager of the controller.
    pub fn manager(&self) -> &Manager {
        self.manager
    }

    /// Returns the kind of the reconciled objects.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        self.kind
    }

    /// Returns the config of the step.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the sources of the controller, to add others.
    pub fn sources(&mut self) -> &mut Sources<ObjectKey> {
        &mut self.added.sources
    }

    /// Returns the shared watch of these objects, starting it on first use. The watch alone enqueues nothing. Call
    /// [`with_query`](Self::with_query) first to watch some of them only.
    ///
    /// The watch has the namespace of the reconciler. See
    /// [`ResourceReconciler::namespace`](super::ResourceReconciler::namespace) and
    /// [`AggregateReconciler::namespace`](super::AggregateReconciler::namespace).
    ///
    /// # Errors
    ///
    /// The errors of [`Manager::watch`].
    pub fn watch<U: Object>(&self, api: &Api<U>) -> Result<Watch<ObjectKey, U>, StartError> {
        shared_watch(self.manager, api, &self.query(api))
    }

    fn query<U: Object>(&self, api: &Api<U>) -> Query {
        let own = Query::of_kind_in(api.kind(), self.query.namespace.as_deref().or(self.namespace));
        Query { namespace: own.namespace, ..self.query.clone() }
    }

    /// Adds an index to the shared watch of these objects. `of` computes its values.
    ///
    /// # Errors
    ///
    /// The same as for [`watch`](Self::watch).
    pub fn index<U, I, V>(
        &self,
        api: &Api<U>,
        of: impl Fn(&U) -> V + Send + Sync + 'static,
    ) -> Result<Index<I, ObjectKey, U>, StartError>
    where
        U: Object,
        I: Key + Sync,
        V: IntoIterator<Item = I>,
    {
        Ok(self.watch(api)?.store().index(move |_key, object| of(object)))
    }

    /// When one of these objects changes, enqueues its controller, by its controller reference.
    ///
    /// # Errors
    ///
    /// The same as for [`watch`](Self::watch).
    pub fn owned<U: Object>(&mut self, api: &Api<U>) -> Result<(), StartError> {
        let kind = self.kind.clone();
        self.once(api, WatchUse::Owned, move |queue| {
            Subscriber::to_owner(queue, move |_key, object: &U| controller_key(&object.meta(), &kind)).secondary()
        })
    }

    /// When one of these objects changes, enqueues the objects that [track](super::SubContext::track) it in the tracker
    /// of the [config](Self::config).
    ///
    /// # Errors
    ///
    /// The same as for [`watch`](Self::watch).
    pub fn tracked<U: Object>(&mut self, api: &Api<U>) -> Result<(), StartError> {
        let (tracker, kind) = (self.config.tracker().clone(), api.kind().clone());
        self.once(api, WatchUse::Tracked(tracker.address()), move |queue| tracker.subscriber(&kind, queue))
    }

    /// Adds a subscriber for these objects. See
    /// [`ControllerBuilder::subscribe`](homeostat::controller::ControllerBuilder::subscribe).
    ///
    /// # Errors
    ///
    /// The same as for [`watch`](Self::watch).
    pub fn subscribe<U: Object>(
        &mut self,
        api: &Api<U>,
        subscriber: impl FnOnce(&WorkQueue<ObjectKey>) -> Subscriber<ObjectKey, U> + Send + 'static,
    ) -> Result<(), StartError> {
        let query = self.query(api);
        self.subscribe_to(api, &query, subscriber)
    }

    pub(super) fn subscribe_to<U: Object>(
        &mut self,
        api: &Api<U>,
        query: &Query,
        subscriber: impl FnOnce(&WorkQueue<ObjectKey>) -> Subscriber<ObjectKey, U> + Send + 'static,
    ) -> Result<(), StartError> {
        let watch = shared_watch(self.manager, api, query)?;
        self.added.sources.subscribe(&watch, subscriber);
        Ok(())
    }

    /// Registers a step with children of this kind. Fails if two steps have the same children.
    ///
    /// The watch keeps the client alive until the set-up ends, so its address identifies it.
    pub(super) fn children(&mut self, kind: &Kind, step: &str, is_restricted: bool) -> Result<(), BoxError> {
        let client = Arc::as_ptr(self.config.client()).addr();
        let place = (client, kind.group().to_owned(), kind.name().to_owned());
        let now = ParentStep { step: step.to_owned(), is_restricted };
        match self.added.parents.insert(place, now) {
            Some(before) if !(before.is_restricted && is_restricted) => {
                let before = before.step;
                Err(format!(
                    "the steps {before:?} and {step:?} both have children of the kind {kind} and would overwrite each other's: \
                     tell them apart by `ours` of each step"
                )
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Sets up two steps. Each run calls only one of them, so they may have children of the same kind.
    pub(super) fn either(
        &mut self,
        one: impl FnOnce(&mut Self) -> Result<(), BoxError>,
        other: impl FnOnce(&mut Self) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let before = self.added.parents.clone();
        one(self)?;
        let parents = std::mem::replace(&mut self.added.parents, before);
        other(self)?;
        for (place, parent) in parents {
            // A step that takes all children conflicts with every later step.
            if !parent.is_restricted || !self.added.parents.contains_key(&place) {
                self.added.parents.insert(place, parent);
            }
        }
        Ok(())
    }

    fn once<U: Object>(
        &mut self,
        api: &Api<U>,
        usage: WatchUse,
        subscriber: impl FnOnce(&WorkQueue<ObjectKey>) -> Subscriber<ObjectKey, U> + Send + 'static,
    ) -> Result<(), StartError> {
        if self.added.known.insert((watch_name(api, &self.query(api)), usage)) {
            self.subscribe(api, subscriber)
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("kind", self.kind).field("added", self.added).finish_non_exhaustive()
    }
}
