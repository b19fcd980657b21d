//! Pages, which belong to things, and everything that a step which writes them needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat::ManualClock;
use homeostat_objects::sub::{Config, Flow, SubReconciler, SubResult, UpdatingObjectManager};
use homeostat_objects::{
    Api, Client, ClientError, DeleteOptions, EventRecorder, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectRef,
    Query,
};
use serde::{Deserialize, Serialize};

use crate::hooked_client::HookedClient;
use crate::support::{self, Thing, spy, things};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) data: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<PageStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PageStatus {
    pub(crate) visits: u32,
}

homeostat_objects::object!(Page, namespaced, "example.com", "v1", status: PageStatus);

impl Page {
    pub(crate) fn new(name: &str) -> Self {
        Self { metadata: ObjectMeta::new("default", name), data: BTreeMap::new(), status: None }
    }

    /// A page with a generated name.
    pub(crate) fn generated(start: &str) -> Self {
        let mut page = Self::new("");
        start.clone_into(&mut page.metadata.generate_name);
        page
    }

    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.data.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.metadata.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Makes the thing its controller.
    pub(crate) fn of(mut self, thing: &Thing) -> Self {
        self.metadata.owner_references.push(thing.controller_reference());
        self
    }

    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.metadata.namespace);
        self
    }
}

/// Copies labels and data.
pub(crate) fn manager() -> UpdatingObjectManager<Page> {
    UpdatingObjectManager::new(|current: &mut Page, desired| {
        current.metadata.labels.clone_from(&desired.metadata.labels);
        current.data.clone_from(&desired.data);
    })
}

/// A thing with the name `web` in a client, and a config on a held clock.
pub(crate) struct Site {
    pub(crate) client: Arc<HookedClient>,
    pub(crate) clock: ManualClock,
    pub(crate) config: Config,
    pub(crate) events: Arc<MemoryClient>,
    pub(crate) web: Thing,
}

impl Site {
    pub(crate) fn new() -> Self {
        let (client, clock) = (spy(), ManualClock::new());
        let (config, events) = support::config(&client);
        let web = things(&client).create(&Thing::new("web")).unwrap();
        let config = config.with_clock(clock.clock());
        let site = Self { client, clock, config, events, web };
        site.client.writes();
        site
    }

    /// The pages, bypassing the spy.
    pub(crate) fn pages(&self) -> Api<Page> {
        Api::new(Arc::new(self.client.inner.clone()))
    }

    pub(crate) fn things(&self) -> Api<Thing> {
        Api::new(Arc::new(self.client.inner.clone()))
    }

    /// Creates a page, bypassing the spy.
    pub(crate) fn given(&self, page: &Page) -> Page {
        self.pages().create(page).unwrap()
    }

    /// All pages, in the order of their keys.
    pub(crate) fn all(&self) -> Vec<Page> {
        self.pages().list(&Query::all()).unwrap().items
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.all().into_iter().map(|page| page.metadata.name).collect()
    }

    pub(crate) fn page(&self, name: &str) -> Page {
        self.pages().get(&ObjectKey::new("default", name)).unwrap()
    }

    /// Deletes `web` after adding this finalizer to it.
    pub(crate) fn delete_web(&mut self, finalizer: &str) {
        self.web = homeostat_objects::add_finalizer(&self.things(), &self.web, finalizer).unwrap();
        self.web = self.things().delete(&self.web.key(), &DeleteOptions::default()).unwrap().into_object().unwrap();
    }

    /// Takes the events recorded since the last call, sorted.
    pub(crate) fn take_events(&self) -> Vec<String> {
        let mut events = support::events(&self.events);
        for event in self.events.list(&EventRecorder::KIND, &Query::all()).unwrap().items {
            let text = |field: &str| event.to_value()["metadata"][field].as_str().unwrap().to_owned();
            let key = ObjectKey::new(&text("namespace"), &text("name"));
            self.events.delete(&EventRecorder::KIND, &key, &DeleteOptions::default()).unwrap();
        }
        events.sort();
        events
    }

    /// Returns whether `web` tracks this page.
    pub(crate) fn tracks(&self, page: &Page) -> bool {
        self.config.tracker().trackers_of(&Page::KIND, &page.meta()) == [self.web.key()]
    }

    /// Forgets the tracks of `web`.
    pub(crate) fn untrack(&self) {
        self.config.tracker().untrack(&self.web.key());
    }

    /// A config with a client that reads pages from a fixed cache. Its writes reach the real client.
    pub(crate) fn with_stale_cache(&self) -> Config {
        let seen = self.all().iter().map(|page| page.to_json().unwrap().into()).collect();
        self.config.clone().with_client(self.client.with_snapshot(seen)).with_uncached(self.client.clone())
    }

    /// Runs a step for `web`.
    pub(crate) fn step(&mut self, step: &impl SubReconciler<Thing>) -> SubResult {
        support::step(step, &self.config, &mut self.web)
    }

    /// Runs a step for `web`, which proceeds.
    #[track_caller]
    pub(crate) fn go(&mut self, step: &impl SubReconciler<Thing>) {
        let config = self.config.clone();
        self.go_with(&config, step);
    }

    /// Runs a step with another config, which proceeds.
    #[track_caller]
    pub(crate) fn go_with(&mut self, config: &Config, step: &impl SubReconciler<Thing>) {
        assert_eq!(support::step(step, config, &mut self.web).unwrap(), Flow::proceed());
    }

    /// Compares the writes and the events.
    #[track_caller]
    pub(crate) fn did(&self, writes: &[&str], events: &[&str]) {
        assert_eq!((self.client.writes(), self.take_events()), (owned(writes), owned(events)));
    }

    /// Makes every call of this verb for a page fail.
    pub(crate) fn fail(&self, verb: &'static str) {
        self.client.before(move |called, object| {
            (called == verb && *object.kind() == Page::KIND).then(|| out_of_luck(object))
        });
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub(crate) fn out_of_luck(object: &ObjectRef) -> ClientError {
    ClientError::transport(object.clone(), "out of luck")
}
