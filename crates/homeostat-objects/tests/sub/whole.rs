//! Child steps in a controller of a manager, with their watches, indexes and tracks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use homeostat::{BoxError, Controller, ControllerHandle, Exponential, Manager, Running};
use homeostat_objects::sub::{
    ChildReconciler, ChildResult, ChildSetReconciler, Config, DesiredChild, Flow, ObjectManager, ResourceReconciler,
    Sequence, Setup, SubContext,
};
use homeostat_objects::{Api, ClientError, ControllerExt, Object, ObjectKey, ObjectMeta, ObjectStream, Query};
use parking_lot::{Condvar, Mutex};

use crate::hooked_client::HookedClient;
use crate::pages::{Page, manager, out_of_luck};
use crate::support::{Thing, config, spy};
use crate::until::until;

const THINGS: [&str; 4] = ["a", "b", "c", "d"];

fn is(page: &Page, what: &str) -> bool {
    page.metadata.labels.get("is").is_some_and(|is| is == what)
}

/// One page with a fixed name, which lists the parts of the thing.
fn front() -> ChildReconciler<Thing, Page> {
    let desired = |_: &SubContext<'_>, thing: &mut Thing| {
        let name = format!("{}-front", thing.metadata.name);
        Ok(DesiredChild::This(Page { data: thing.spec.clone(), ..Page::new(&name).label("is", "front") }))
    };
    let reflect = |_: &SubContext<'_>, thing: &mut Thing, page: Result<Option<&Page>, &ClientError>| {
        let text = page.map_or_else(ToString::to_string, |page| format!("{:?}", page.unwrap().data));
        thing.status.fields.insert("front".to_owned(), text);
        Ok(Flow::proceed())
    };
    ChildReconciler::new(desired, reflect, manager()).ours(|_, page| is(page, "front")).named("front")
}

/// A page for each part, with a generated name.
fn parts() -> ChildSetReconciler<Thing, Page> {
    let desired = |_: &SubContext<'_>, thing: &mut Thing, _: &[Page]| {
        let part = |(part, text): (&String, &String)| {
            let page = Page::generated(&format!("{}-", thing.metadata.name)).with("text", text);
            page.label("is", "part").label("part", part)
        };
        Ok(DesiredChild::This(thing.spec.iter().map(part).collect()))
    };
    let identify = |page: &Page| page.metadata.labels.get("part").cloned().unwrap_or_default();
    let reflect = |_: &SubContext<'_>, thing: &mut Thing, pages: &[ChildResult<Page>]| {
        let there = pages.iter().filter(|page| matches!(page.child, Ok(Some(_)))).count();
        thing.status.fields.insert("parts".to_owned(), there.to_string());
        Ok(Flow::proceed())
    };
    ChildSetReconciler::new(desired, identify, reflect, manager()).ours(|_, page| is(page, "part"))
}

struct World {
    client: Arc<HookedClient>,
    /// Whether watches are paused.
    paused: Arc<(Mutex<bool>, Condvar)>,
    config: Config,
    manager: Manager,
    running: Running<Manager>,
    handle: ControllerHandle<ObjectKey>,
}

impl World {
    /// A controller of things on the system's clock, with short retries and without a resync.
    fn new(indexed: bool) -> Self {
        Self::with_bound(indexed, Duration::from_secs(10))
    }

    /// The controller waits this long for its own writes.
    fn with_bound(indexed: bool, bound: Duration) -> Self {
        let client = spy();
        let paused = Arc::<(Mutex<bool>, Condvar)>::default();
        let pause = Arc::clone(&paused);
        client.on_stream(move |_, stream| {
            let pause = Arc::clone(&pause);
            Ok(ObjectStream::new(stream.inspect(move |_| pause.1.wait_while(&mut pause.0.lock(), |paused| *paused))))
        });
        let (config, _events) = config(&client);
        let (front, parts) = if indexed { (front().indexed(), parts().indexed()) } else { (front(), parts()) };
        let steps = Sequence::new().then(front).then(parts);
        let reconciler = ResourceReconciler::<Thing>::new("thing", config.clone(), steps)
            .observed_generation(|status, generation| status.observed_generation = generation);
        let manager = Manager::builder().threads(3).build().unwrap();
        let sources = reconciler.setup(&manager).unwrap();
        let controller = Controller::builder("thing", reconciler)
            .sources(sources)
            .max_concurrent_reconciles(3)
            .own_write_bound(bound)
            .retry(Exponential::new(Duration::from_millis(1), Duration::from_millis(20)))
            .resync(Duration::from_secs(3600))
            .build()
            .unwrap();
        let handle = controller.handle();
        manager.add(controller).unwrap();
        let running = manager.start().unwrap();
        Self { client, paused, config, manager, running, handle }
    }

    /// Pauses or resumes all watches.
    fn pause(&self, paused: bool) {
        *self.paused.0.lock() = paused;
        self.paused.1.notify_all();
    }

    /// The pages, bypassing the spy.
    fn things(&self) -> Api<Thing> {
        Api::new(Arc::new(self.client.inner.clone()))
    }

    fn pages(&self) -> Api<Page> {
        Api::new(Arc::new(self.client.inner.clone()))
    }

    fn metadata(&self, name: &str) -> ObjectMeta {
        self.things().get(&ObjectKey::new("default", name)).unwrap().metadata
    }

    /// Waits until all things have their pages, and only these other pages exist.
    #[track_caller]
    fn settled(&self, foreign: &[&str]) {
        until("all things have their pages", || self.check(foreign));
    }

    fn check(&self, foreign: &[&str]) -> Result<(), String> {
        let pages = self.pages().list(&Query::all()).unwrap().items;
        let mut belong = foreign.len();
        for thing in self.things().list(&Query::all()).unwrap().items {
            let Thing { metadata, spec, status } = &thing;
            let of =
                |what| pages.iter().filter(move |page| page.metadata.is_controlled_by(&metadata.uid) && is(page, what));
            let fronts: Vec<_> = of("front").map(|page| &page.data).collect();
            let parts: Vec<_> = of("part").map(|page| (&page.metadata.labels["part"], &page.data["text"])).collect();
            let mut wanted: Vec<_> = spec.iter().collect();
            wanted.sort();
            let mut sorted = parts.clone();
            sorted.sort();
            belong += 1 + wanted.len();
            let reflected = ["front", "parts"].map(|field| status.fields.get(field).cloned().unwrap_or_default());
            if fronts != [spec]
                || sorted != wanted
                || reflected != [format!("{spec:?}"), wanted.len().to_string()]
                || status.observed_generation != metadata.generation
            {
                return Err(format!("{thing:?} has {fronts:?} and {parts:?}"));
            }
        }
        if pages.len() == belong { Ok(()) } else { Err(format!("{} pages, not {belong}", pages.len())) }
    }

    fn stop(self) {
        self.manager.stop();
        self.running.join().unwrap();
    }
}

fn thing(name: &str, parts: &[(&str, &str)]) -> Thing {
    let spec = parts.iter().map(|(part, text)| ((*part).to_owned(), (*text).to_owned())).collect();
    Thing { spec, ..Thing::new(name) }
}

#[test]
fn a_lagging_index_causes_no_second_child() {
    for indexed in [true, false] {
        let world = World::new(indexed);
        let api = world.things();
        thread::scope(|scope| {
            for name in THINGS {
                let api = &api;
                scope.spawn(move || {
                    api.create(&thing(name, &[("x", "0"), ("y", "0"), ("z", "0")])).unwrap();
                    for run in 1..20 {
                        // Run again while the index does not show the children of the last run.
                        let key = ObjectKey::new("default", name);
                        let mut changed = api.get(&key).unwrap();
                        changed.spec.insert("x".to_owned(), run.to_string());
                        let _ = api.update(&changed);
                    }
                });
            }
        });
        // Each status is read only once it exists.
        until("the thing is updated", || {
            let things = api.list(&Query::all()).unwrap().items;
            let done = things.iter().all(|thing| thing.status.fields.len() == 2);
            if done { Ok(()) } else { Err(format!("{things:?}")) }
        });
        world.settled(&[]);
        let creates = world.client.writes().into_iter().filter(|write| write.starts_with("create Page")).count();
        assert_eq!(creates, THINGS.len() * 4, "indexed: {indexed}");
        world.stop();
    }
}

#[test]
fn a_stopped_index_causes_no_second_child() {
    // Each change waits until the bound has passed, because no watch shows the writes.
    let world = World::with_bound(true, Duration::from_millis(100));
    until("the controller has synced", || world.handle.has_synced());
    world.pause(true);
    let mut known = world.things().create(&thing("a", &[("x", "0"), ("y", "0")])).unwrap();
    for text in ["0", "1", "2"] {
        known.spec.insert("x".to_owned(), text.to_owned());
        known = world.things().update(&Thing { metadata: world.metadata("a"), ..known }).unwrap();
        world.handle.enqueue(known.key());
        until("all things have their pages", || world.check(&[]));
    }
    let creates = world.client.writes().into_iter().filter(|write| write.starts_with("create Page")).count();
    assert_eq!(creates, 3);
    world.pause(false);
    world.settled(&[]);
    world.stop();
}

#[test]
fn indexed_children_are_not_listed() {
    let world = World::new(true);
    let created = world.things().create(&thing("a", &[("x", "0")])).unwrap();
    until("the status has two fields", || world.things().get(&created.key()).unwrap().status.fields.len() == 2);
    world.settled(&[]);
    world.client.before(|verb, object| (verb == "list" && *object.kind() == Page::KIND).then(|| out_of_luck(object)));
    until("the thing is updated", || {
        let changed = Thing { metadata: world.metadata("a"), ..thing("a", &[("x", "1")]) };
        world.things().update(&changed).map(drop).map_err(|error| error.to_string())
    });
    world.settled(&[]);
    world.stop();
}

/// A manager that records its set-up.
struct Noting(Arc<AtomicBool>);

impl ObjectManager<Page> for Noting {
    fn setup(&self, _: &mut Setup<'_>) -> Result<(), BoxError> {
        self.0.store(true, Relaxed);
        Ok(())
    }

    fn manage(
        &self,
        _: &SubContext<'_>,
        _: &mut ObjectMeta,
        _: Option<&Page>,
        _: Option<Page>,
    ) -> Result<Option<Page>, ClientError> {
        unreachable!()
    }
}

#[test]
fn managers_of_children_are_set_up() {
    let (one, set) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let manager = Arc::new(Noting(one.clone()));
    let child =
        ChildReconciler::new(|_, _: &mut Thing| Ok(DesiredChild::Nothing), |_, _, _| Ok(Flow::proceed()), manager);
    let children = ChildSetReconciler::new(
        |_, _: &mut Thing, _| Ok(DesiredChild::Nothing),
        |_| String::new(),
        |_, _, _| Ok(Flow::proceed()),
        Noting(set.clone()),
    );
    let (child, children) = (child.ours(|_, _| true), children.ours(|_, _| false));
    let (config, _events) = config(&spy());
    let steps = Sequence::new().then(child).then(children);
    let sources = ResourceReconciler::new("thing", config, steps).setup(&Manager::builder().build().unwrap());
    assert!(sources.is_ok() && one.load(Relaxed) && set.load(Relaxed));
}

#[test]
fn children_stay_as_desired_despite_other_writers() {
    let world = World::new(true);
    let (api, pages) = (world.things(), world.pages());
    // It has the name of the child of `a`.
    let foreign = pages.create(&Page::new("a-front")).unwrap();
    for name in THINGS {
        api.create(&thing(name, &[("x", "0"), ("y", "0")])).unwrap();
    }
    let status = |name: &str, field: &str| {
        let thing = api.get(&ObjectKey::new("default", name)).unwrap();
        thing.status.fields.get(field).cloned().unwrap_or_default()
    };
    until("the foreign page is reported", || match &*status("a", "front") {
        "Page default/a-front already exists" => Ok(()),
        other => Err(other.to_owned()),
    });
    until("all things have two parts", || match THINGS.iter().find(|name| status(name, "parts") != "2") {
        None => Ok(()),
        Some(name) => Err(format!("no parts of {name}")),
    });
    assert_eq!(pages.get(&foreign.key()).unwrap(), foreign);
    pages.delete(&foreign.key(), &<_>::default()).unwrap();
    world.settled(&[]);

    for page in pages.list(&Query::all()).unwrap().items {
        let key = page.key();
        if is(&page, "front") {
            pages.delete(&key, &<_>::default()).unwrap();
        } else if page.metadata.labels["part"] == "x" {
            let mut copy = Page::generated("copy-").with("text", "0");
            copy.metadata.labels.clone_from(&page.metadata.labels);
            copy.metadata.owner_references.clone_from(&page.metadata.owner_references);
            pages.create(&copy).unwrap();
        } else {
            pages.update(&page.with("text", "by hand")).unwrap();
        }
    }
    pages.create(&Page::new("foreign")).unwrap();
    world.settled(&["foreign"]);

    for name in &THINGS[..3] {
        until("the thing is updated", || {
            let changed = Thing { metadata: world.metadata(name), ..thing(name, &[("y", "1"), ("z", "1")]) };
            api.update(&changed).map(drop).map_err(|error| error.to_string())
        });
    }
    api.delete(&ObjectKey::new("default", "d"), &<_>::default()).unwrap();
    world.settled(&["foreign"]);
    // Only `a` tracks the conflicting object.
    assert!(world.config.tracker().trackers_of(&Page::KIND, &Page::new("b-front").metadata).is_empty());
    world.stop();
}
