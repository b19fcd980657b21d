//! `AggregateReconciler`: one object that is built from others.
//!
//! The cases of reconciler.io's `reconcilers/aggregate_test.go`.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Context, Controller, Manager, Reconciler, Subscriber};
use homeostat_objects::sub::{
    AggregateReconciler, Config, Flow, SubContext, SubReconciler, SubResult, SyncReconciler, UpdatingObjectManager,
};
use homeostat_objects::{Api, ClientError, DeleteOptions, MemoryClient, Object, ObjectKey, Query};

use crate::hooked_client::HookedClient;
use crate::pages::{Page, Site};
use crate::support::{Thing, config, events, spy, things};
use crate::until::until;
use homeostat::rt::Chain;

const MINUTE: Duration = Duration::from_secs(60);

struct World {
    spy: Arc<HookedClient>,
    config: Config,
    events: Arc<MemoryClient>,
}

impl World {
    fn new() -> Self {
        let spy = spy();
        let (config, events) = config(&spy);
        Self { spy, config, events }
    }

    fn pages(&self) -> Api<Page> {
        Api::new(self.spy.clone())
    }

    fn reconciler(&self) -> AggregateReconciler<Page> {
        let manager =
            UpdatingObjectManager::new(|current: &mut Page, desired: &Page| current.data = desired.data.clone());
        AggregateReconciler::new("index", self.config.clone(), Page::new("index"), manager)
    }

    fn writing(&self, value: &'static str) -> AggregateReconciler<Page> {
        self.reconciler().then(writes(value))
    }
}

fn writes(value: &'static str) -> impl SubReconciler<Page> + 'static {
    move |_: &SubContext<'_>, page: &mut Page| -> SubResult {
        page.data.insert("text".to_owned(), value.to_owned());
        Ok(Flow::proceed())
    }
}

fn key() -> ObjectKey {
    Page::new("index").key()
}

fn run(reconciler: &AggregateReconciler<Page>) -> Result<Action, BoxError> {
    reconciler.reconcile(&Context::detached(), &key())
}

#[test]
fn creates_updates_and_then_keeps_the_object() {
    let world = World::new();
    assert_eq!(run(&world.writing("one")).unwrap(), Action::await_change());
    assert_eq!(world.spy.writes(), ["create Page default/index"]);
    assert_eq!(world.pages().get(&key()).unwrap().data["text"], "one");

    let other = world.writing("other");
    let _ = run(&other).unwrap();
    assert_eq!(world.spy.writes(), ["update Page default/index"]);
    let _ = run(&other).unwrap();
    assert!(world.spy.writes().is_empty());
    assert_eq!(world.pages().get(&key()).unwrap().data["text"], "other");
    let recorded = events(&world.events);
    assert!(
        ["Created", "Updated"].iter().all(|what| recorded.contains(&format!("Normal {what} {what} Page \"index\"")))
    );
}

#[test]
fn deletes_the_object_if_none_is_desired() {
    let world = World::new();
    let unwanted = world.writing("one").desired(|_, page: &Page| {
        assert_eq!(page.data["text"], "one");
        Ok(None)
    });
    let _ = run(&unwanted).unwrap();
    assert!(world.spy.writes().is_empty());
    world.pages().create(&Page::new("index")).unwrap();
    world.spy.writes();
    let _ = run(&unwanted).unwrap();
    assert_eq!(world.spy.writes(), ["delete Page default/index"]);
}

#[test]
fn ignores_other_keys_and_an_object_being_deleted() {
    let world = World::new();
    let other = world
        .writing("one")
        .before(|_, _| unreachable!())
        .reconcile(&Context::detached(), &"default/x".parse().unwrap());
    assert_eq!(other.unwrap(), Action::await_change());
    let mut page = Page::new("index");
    page.metadata.finalizers.push("example.com/f".to_owned());
    world.pages().create(&page).unwrap();
    world.pages().delete(&key(), &DeleteOptions::default()).unwrap();
    world.spy.writes();
    assert_eq!(run(&world.writing("one")).unwrap(), Action::await_change());
    assert!(world.spy.writes().is_empty());
}

#[test]
fn returns_and_records_errors_of_the_client() {
    for (verb, reason) in
        [("get", ""), ("create", "CreationFailed"), ("update", "UpdateFailed"), ("delete", "DeleteFailed")]
    {
        let world = World::new();
        if verb != "create" {
            world.pages().create(&Page::new("index")).unwrap();
        }
        world
            .spy
            .before(move |called, object| (called == verb).then(|| ClientError::transport(object.clone(), "no route")));
        let reconciler = match verb {
            "delete" => world.reconciler().desired(|_, _| Ok(None)),
            _ => world.writing("one"),
        };
        assert_eq!(Chain(&*run(&reconciler).unwrap_err()).to_string(), "Page default/index: the call failed: no route");
        let recorded = events(&world.events);
        assert_eq!(recorded.len(), usize::from(verb != "get"), "{verb}");
        assert!(
            recorded
                .iter()
                .all(|recorded| recorded.starts_with(&format!("Warning {reason} Failed to {verb} Page \"index\"")))
        );
    }
}

#[test]
fn returns_delays_of_steps_and_writes_nothing_after_an_error() {
    let world = World::new();
    let asks = |returns: fn() -> SubResult| {
        run(&world.writing("one").then(move |_: &SubContext<'_>, _: &mut Page| -> SubResult { returns() }))
    };
    assert_eq!(asks(|| Err("out of luck".into())).unwrap_err().to_string(), "out of luck");
    assert!(world.spy.writes().is_empty());
    assert_eq!(asks(|| Ok(Flow::requeue_after(MINUTE))).unwrap(), Action::requeue_after(MINUTE));
    assert_eq!(world.spy.writes(), ["create Page default/index"]);
    world.pages().delete(&key(), &DeleteOptions::default()).unwrap();
    world.spy.writes();
    let halted = asks(|| Ok(Flow::halt_and_requeue_after(MINUTE)));
    assert_eq!(halted.unwrap(), Action::requeue_after(MINUTE), "a halt ends the steps, not the run");
    assert_eq!(world.spy.writes(), ["create Page default/index"]);
}

#[test]
fn before_runs_first_and_after_replaces_the_result() {
    let world = World::new();
    let reconciler = world
        .writing("one")
        .before(|_, _| Ok(Flow::requeue_after(MINUTE)))
        .after(|_, _, result| result.map(|flow| flow.and(Flow::requeue_after(MINUTE / 2))));
    assert_eq!(run(&reconciler).unwrap(), Action::requeue_after(MINUTE / 2));
    let failing = world.writing("other").before(|_, _| Err("out of luck".into()));
    assert_eq!(run(&failing).unwrap_err().to_string(), "out of luck");
    assert_eq!(world.pages().get(&key()).unwrap().data["text"], "one");
}

/// The object is created from nothing, and restored when its sources or the object itself change.
#[test]
fn a_controller_keeps_the_object() {
    let world = World::new();
    let (listed, watched) = (things(&world.spy), things(&world.spy));
    let lists = SyncReconciler::new(move |_: &SubContext<'_>, page: &mut Page| {
        let names: Vec<_> = listed.list(&Query::all())?.items.into_iter().map(|thing| thing.metadata.name).collect();
        page.data.insert("things".to_owned(), names.join(" "));
        Ok(Flow::proceed())
    })
    .setup(move |setup| {
        setup.subscribe(&watched, |queue| Subscriber::to_owner(queue, |_, _: &Thing| [key()]))?;
        Ok(())
    });
    let reconciler = world.reconciler().then(lists);
    let manager = Manager::builder().build().unwrap();
    let sources = reconciler.setup(&manager).unwrap();
    manager.add(Controller::builder("index", reconciler).sources(sources).build().unwrap()).unwrap();
    let running = manager.start().unwrap();
    let until_named = |names: &str| {
        until("the page names its things", || {
            let page = world.pages().get(&key()).map_err(|error| error.to_string())?;
            let found = page.data.get("things").cloned().unwrap_or_default();
            if page.data.contains_key("things") && found == names { Ok(()) } else { Err(found) }
        });
    };
    until_named("");
    things(&world.spy).create(&Thing::new("a")).unwrap();
    until_named("a");
    let mut page = world.pages().get(&key()).unwrap();
    page.data.insert("things".to_owned(), "meddled".to_owned());
    world.pages().update(&page).unwrap();
    until_named("a");
    world.pages().delete(&key(), &DeleteOptions::default()).unwrap();
    until_named("a");
    manager.stop();
    running.join().unwrap();
}

#[test]
fn an_object_made_meanwhile_is_read_by_the_next_run() {
    let world = World::new();
    let (pages, mut is_made) = (Api::<Page>::new(Arc::new(world.spy.inner.clone())), false);
    world.spy.before(move |verb, _| {
        if verb == "create" && !std::mem::replace(&mut is_made, true) {
            let mut page = Page::new("index");
            page.data.insert("other".to_owned(), "kept".to_owned());
            pages.create(&page).unwrap();
        }
        None
    });
    let reconciler = world.writing("one");
    assert_ne!(run(&reconciler).unwrap(), Action::await_change(), "a conflict, which is no failure");
    assert_eq!(run(&reconciler).unwrap(), Action::await_change());
    let page = world.pages().get(&key()).unwrap();
    assert_eq!((page.data["text"].as_str(), page.data["other"].as_str()), ("one", "kept"), "the steps have seen it");
}

#[test]
fn a_stale_cache_causes_no_second_creation() {
    let site = Site::new();
    let stale = site.with_stale_cache();
    let reconciler = |value: &'static str| {
        let manager =
            UpdatingObjectManager::new(|current: &mut Page, desired: &Page| current.data = desired.data.clone());
        AggregateReconciler::new("index", stale.clone(), Page::new("index"), manager).then(writes(value))
    };
    for (value, write) in [("one", "create"), ("other", "update")] {
        assert_eq!(run(&reconciler(value)).unwrap(), Action::await_change());
        assert_eq!(site.client.writes(), [format!("{write} Page default/index")]);
    }
    assert_eq!(site.page("index").data["text"], "other");
}
