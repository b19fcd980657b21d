//! The objects that a reconciler watches, and the changes that start its runs.

use std::sync::Arc;

use homeostat::{Action, BoxError, Controller, Manager, Predicate, Running, Subscriber};
use homeostat_objects::sub::{
    AggregateReconciler, ChildReconciler, Config, DesiredChild, Flow, ResourceReconciler, SubContext, SubResult,
    SyncReconciler, UpdatingObjectManager,
};
use homeostat_objects::{
    Api, Client, ClientError, DynamicObject, Kind, LabelSelector, MemoryClient, Object, ObjectKey, PrimaryContext,
    PrimaryController, Query, Secondary, ValueRef, controller_key,
};
use homeostat_testing::Simulation;
use serde_json::json;

use super::{HOUR, Notes, SECOND};
use crate::hooked_client::HookedClient;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");

/// Returns a client that may list and watch only in the namespace `a`, and only `web` of the config maps.
fn restricted(inner: &MemoryClient) -> Arc<HookedClient> {
    let client = HookedClient::new(inner.clone());
    client.on_call(|call| {
        let query = call.query?;
        let is_allowed = *call.object.kind() != CONFIG_MAP || query.fields.to_string() == "metadata.name=web";
        let is_refused = query.namespace.as_deref() != Some("a") || !is_allowed;
        is_refused.then(|| ClientError::transport(call.object.clone(), "not allowed"))
    });
    client
}

struct World {
    sim: Simulation,
    client: MemoryClient,
    notes: Notes,
}

impl World {
    fn new() -> Self {
        let sim = Simulation::new(1);
        let client = MemoryClient::builder().clock(sim.clock()).build();
        let notes = Notes::new(&sim);
        Self { sim, client, notes }
    }

    fn config(&self) -> Config {
        Config::new(Arc::new(self.client.clone())).with_clock(self.sim.clock())
    }

    /// Returns a reconciler that records each run, and counts the first three in the status of its object.
    fn reconciler(&self, config: Config, kind: &Kind) -> ResourceReconciler<DynamicObject> {
        let notes = self.notes.clone();
        let counts = move |cx: &SubContext<'_>, object: &mut DynamicObject| -> SubResult {
            notes.add(cx.key().to_string());
            let runs = object.pointer("/status/runs").and_then(ValueRef::as_u64).unwrap_or_default();
            object.fields_mut().insert("status".to_owned(), json!({"runs": 3.min(runs + 1)}));
            Ok(Flow::proceed())
        };
        ResourceReconciler::of_kind("site", kind.clone(), config, counts)
    }

    fn start(&self, reconciler: ResourceReconciler<DynamicObject>) -> Running<Manager> {
        let manager = Manager::builder().clock(self.sim.clock()).build().unwrap();
        let sources = reconciler.setup(&manager).unwrap();
        let settings = Controller::builder("site", reconciler).clock(self.sim.clock());
        manager.add(settings.sources(sources).build().unwrap()).unwrap();
        manager.start().unwrap()
    }

    fn start_primary(&self, controller: PrimaryController<DynamicObject>) -> Running<Manager> {
        let manager = Manager::builder().clock(self.sim.clock()).build().unwrap();
        controller.add_to(&manager).unwrap();
        manager.start().unwrap()
    }

    fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::of_kind(Arc::new(self.client.clone()), kind.clone())
    }

    /// Lets ten seconds pass, and returns the runs since the last call. A test expects at most one useful run.
    fn ran(&self) -> Vec<String> {
        self.sim.run_for(10 * SECOND);
        std::mem::take(&mut *self.notes.list.lock()).into_iter().map(|(_, what)| what).collect()
    }

    /// Changes the object, and returns the runs that follow.
    fn after(&self, kind: &Kind, change: impl FnOnce(&mut DynamicObject)) -> Vec<String> {
        let mut object = self.api(kind).get(&ObjectKey::new("a", "web")).unwrap();
        change(&mut object);
        self.api(kind).update(&object).unwrap();
        self.ran()
    }
}

fn object(kind: &Kind, namespace: &str) -> DynamicObject {
    DynamicObject::new(kind, namespace, "web").with("data", json!({"text": "one"}))
}

#[test]
fn a_write_of_the_status_does_not_run_its_own_key_again_and_all_other_changes_do() {
    for kind in [SITE, CONFIG_MAP] {
        let world = World::new();
        let _running = world.start(world.reconciler(world.config(), &kind));
        world.api(&kind).create(&object(&kind, "a")).unwrap();
        assert_eq!(world.ran(), ["a/web"], "and its status has been written: {kind}");
        let changes: [fn(&mut DynamicObject); 4] = [
            |object| drop(object.fields_mut().insert("data".to_owned(), json!({"text": "two"}))),
            |object| drop(object.meta_mut().labels.insert("a".to_owned(), "b".to_owned())),
            |object| drop(object.meta_mut().annotations.insert("a".to_owned(), "b".to_owned())),
            |object| object.meta_mut().finalizers.push("example.com/f".to_owned()),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(world.after(&kind, change), ["a/web"], "change {number} of a {kind}");
        }
        world.api(&kind).delete(&ObjectKey::new("a", "web"), &<_>::default()).unwrap();
        assert_eq!(world.ran(), ["a/web"], "its deletion is asked for");
    }
}

#[test]
fn every_event_runs_a_reconciler_that_asks_for_it() {
    let world = World::new();
    let _running = world.start(world.reconciler(world.config(), &SITE).when(Predicate::new(|_| true)));
    world.api(&SITE).create(&object(&SITE, "a")).unwrap();
    assert_eq!(world.ran().len(), 4, "each write of the status calls the next run");
}

/// The reconciler watches its children in the namespace of the resource.
#[test]
fn a_reconciler_of_one_namespace_needs_no_rights_in_others() {
    let world = World::new();
    let config = Config::new(restricted(&world.client)).with_clock(world.sim.clock());
    let notes = world.notes.clone();
    let page = ChildReconciler::of_kind(
        PAGE,
        move |cx: &SubContext<'_>, _: &mut DynamicObject| {
            notes.add(cx.key().to_string());
            Ok(DesiredChild::This(object(&PAGE, cx.key().namespace())))
        },
        |_, _, _| Ok(Flow::proceed()),
        UpdatingObjectManager::of_kind(PAGE, |page: &mut DynamicObject, desired| {
            *page.fields_mut() = desired.fields().into_owned();
        }),
    );
    let _running = world.start(ResourceReconciler::of_kind("site", SITE, config, page).namespace("a"));
    for namespace in ["a", "b"] {
        world.api(&SITE).create(&object(&SITE, namespace)).unwrap();
    }
    world.ran();
    let pages = world.api(&PAGE).list(&Query::all()).unwrap().items;
    assert_eq!(pages.iter().map(Object::key).collect::<Vec<_>>(), [ObjectKey::new("a", "web")]);
    assert_eq!(controller_key(&pages[0].meta(), &SITE), Some(ObjectKey::new("a", "web")));
    assert_eq!(world.after(&PAGE, |page| drop(page.fields_mut().remove("data")))[0], "a/web", "its child has changed");
}

/// Its watch asks only for its own object. The step's watch has the namespace of the reconciler.
#[test]
fn an_aggregate_of_one_namespace_needs_no_rights_in_others() {
    let world = World::new();
    let client = restricted(&world.client);
    let config = Config::new(client.clone()).with_clock(world.sim.clock());
    let (notes, sites) = (world.notes.clone(), Api::<DynamicObject>::of_kind(client, SITE));
    let counts = SyncReconciler::new(move |cx: &SubContext<'_>, index: &mut DynamicObject| {
        notes.add(cx.key().to_string());
        let found = sites.list(&Query::all().namespace("a"))?.items.len();
        index.fields_mut().insert("data".to_owned(), json!({"sites": found.to_string()}));
        Ok(Flow::proceed())
    });
    let watched = Api::<DynamicObject>::of_kind(config.client().clone(), SITE);
    let counts = counts.setup(move |setup| {
        let index = ObjectKey::new("a", "web");
        setup.subscribe(&watched, |queue| {
            Subscriber::to_owner(queue, move |_, _: &DynamicObject| Some(index.clone()))
        })?;
        Ok(())
    });
    let writes = UpdatingObjectManager::of_kind(CONFIG_MAP, |current: &mut DynamicObject, desired| {
        *current.fields_mut() = desired.fields().into_owned();
    });
    let reconciler = AggregateReconciler::new("index", config, object(&CONFIG_MAP, "a"), writes).then(counts);
    let reconciler = reconciler.namespace("a");
    let manager = Manager::builder().clock(world.sim.clock()).build().unwrap();
    let sources = reconciler.setup(&manager).unwrap();
    let settings = Controller::builder("index", reconciler).clock(world.sim.clock());
    manager.add(settings.sources(sources).build().unwrap()).unwrap();
    let _running = manager.start().unwrap();
    assert_eq!(world.ran()[0], "a/web", "there is no config map yet");
    for namespace in ["a", "b"] {
        world.api(&SITE).create(&object(&SITE, namespace)).unwrap();
    }
    assert_eq!(world.ran()[0], "a/web", "a site has been created");
    let index = world.api(&CONFIG_MAP).get(&ObjectKey::new("a", "web")).unwrap();
    assert_eq!(index.pointer("/data/sites").and_then(ValueRef::as_str), Some("1"));
    assert_eq!(world.after(&CONFIG_MAP, |index| drop(index.fields_mut().remove("data")))[0], "a/web");
    world.api(&CONFIG_MAP).delete(&ObjectKey::new("a", "web"), &<_>::default()).unwrap();
    assert_eq!(world.ran()[0], "a/web", "it has been deleted");
    assert!(world.api(&CONFIG_MAP).get(&ObjectKey::new("a", "web")).is_ok());
}

#[test]
fn an_object_that_is_not_selected_is_ignored() {
    let world = World::new();
    let labels = LabelSelector::label("run", "yes");
    let _running = world.start(world.reconciler(world.config(), &SITE).labels(labels));
    world.api(&SITE).create(&object(&SITE, "a")).unwrap();
    assert_eq!(world.ran(), [""; 0]);
    let label = |site: &mut DynamicObject| drop(site.meta_mut().labels.insert("run".to_owned(), "yes".to_owned()));
    assert_eq!(world.after(&SITE, label), ["a/web"]);
    assert_eq!(world.after(&SITE, |site| site.meta_mut().labels.clear()), [""; 0]);
}

/// Returns a controller of primaries. Each of them has a page in its namespace, and counts its runs in its status.
fn primary(world: &World, client: &Arc<dyn Client>) -> PrimaryController<DynamicObject> {
    let sites = Api::<DynamicObject>::of_kind(client.clone(), SITE);
    let pages = Secondary::new(Api::<DynamicObject>::of_kind(client.clone(), PAGE)).namespace("a");
    let (notes, writes, makes) = (world.notes.clone(), sites.clone(), pages.clone());
    let sync = move |cx: &PrimaryContext<'_>, site: &DynamicObject| -> Result<Action, BoxError> {
        notes.add(site.key().to_string());
        makes.ensure(cx, site, object(&PAGE, "a"))?;
        let runs = site.pointer("/status/runs").and_then(ValueRef::as_u64).unwrap_or_default();
        writes.update_status(&site.clone().with("status", json!({"runs": runs + 1})))?;
        Ok(Action::await_change())
    };
    PrimaryController::new("sites", sites, sync).secondary(&pages).resync(HOUR)
}

#[test]
fn a_primary_controller_of_one_namespace_needs_no_rights_in_others() {
    let world = World::new();
    let client: Arc<dyn Client> = restricted(&world.client);
    let _running = world.start_primary(primary(&world, &client).namespace("a"));
    for namespace in ["a", "b"] {
        world.api(&SITE).create(&object(&SITE, namespace)).unwrap();
    }
    assert_eq!(world.ran(), ["a/web"; 2], "once for the site, and once for its page");
    assert_eq!(world.after(&SITE, |site| drop(site.fields_mut().remove("data"))), ["a/web"]);
}

/// The secondary stays, because the primary still exists.
#[test]
fn a_primary_that_leaves_the_selection_is_ignored_with_its_secondaries() {
    let world = World::new();
    let client: Arc<dyn Client> = Arc::new(world.client.clone());
    let _running = world.start_primary(primary(&world, &client).labels(LabelSelector::label("run", "yes")));
    let mut site = object(&SITE, "a");
    site.meta_mut().labels.insert("run".to_owned(), "yes".to_owned());
    world.api(&SITE).create(&site).unwrap();
    assert_eq!(world.ran(), ["a/web"; 2]);
    assert_eq!(world.after(&SITE, |site| site.meta_mut().labels.clear()), [""; 0]);
    assert_eq!(world.api(&PAGE).list(&Query::all()).unwrap().items.len(), 1);
}

#[test]
fn a_primary_controller_passes_every_setting_to_its_controller() {
    let world = World::new();
    let client: Arc<dyn Client> = Arc::new(world.client.clone());
    let (failures, seen) = (world.notes.clone(), world.notes.clone());
    let sync = move |_: &PrimaryContext<'_>, site: &DynamicObject| -> Result<Action, BoxError> {
        seen.add(site.key().to_string());
        Err("out of luck".into())
    };
    let controller = PrimaryController::new("sites", Api::<DynamicObject>::of_kind(client, SITE), sync).controller(
        move |settings| {
            let settings = settings.observe_runs(move |run| {
                if let Some(error) = run.error {
                    failures.add(error.to_string());
                }
            });
            settings.debounce(5 * SECOND, 5 * SECOND)
        },
    );
    let _running = world.start_primary(controller);
    world.sim.run_for(SECOND);
    world.api(&SITE).create(&object(&SITE, "a")).unwrap();
    world.sim.run_for(4 * SECOND);
    assert_eq!(world.notes.whats(), [""; 0], "changes are debounced");
    assert_eq!(world.ran()[..2], ["a/web", "out of luck"]);
}
