//! Set-up and configs: `OverrideSetup` and `WithConfig`, by the cases of reconciler.io's `reconcilers/flow_test.go`,
//! `TestOverrideSetup`, and `reconcilers/config_test.go`. There, advice
//! does not call the set-up of its step.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use homeostat::{BoxError, Controller, Manager};
use homeostat_objects::sub::{
    Advice, Always, CastResource, ChildReconciler, ChildSetReconciler, Config, Cursor, DesiredChild, Flow, ForEach,
    IfThen, OverrideSetup, ResourceReconciler, Sequence, Setup, StashKey, SubContext, SubReconciler, SubResult,
    SuppressTransientErrors, SyncReconciler, TryCatch, While, WithConfig, WithFinalizer,
};
use homeostat_objects::{
    Api, Client, DynamicObject, Ignore, Kind, MemoryClient, Object, ObjectKey, Query, TrackRef, Tracker,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::pages::{self, Page};
use crate::support::{Thing, config, events, spy, step, things};
use crate::trail::{Returns, both, leaves, on, run, seconds, shown};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const CURSOR: StashKey<Cursor<u32>> = StashKey::new("cursor");

/// The names of the steps that have been set up.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl Names {
    /// A step that records its set-up and must not be called.
    fn step<T: 'static>(&self, name: &'static str) -> SyncReconciler<T> {
        let names = self.clone();
        let unreachable = |_: &SubContext<'_>, _: &mut T| -> SubResult { unreachable!("no run") };
        SyncReconciler::new(unreachable).setup(move |setup| {
            assert_eq!(setup.kind(), &Thing::KIND);
            names.0.lock().push(name);
            Ok(())
        })
    }
}

#[test]
fn the_set_up_reaches_nested_steps() {
    let names = Names::default();
    let of = &names;
    let boxed: Box<dyn SubReconciler<Thing>> = Box::new(of.step("boxed"));
    let branch = IfThen::new(|_, _| false, of.step("then")).or_else(of.step("else"));
    let all = Always::new().then(of.step("always 1")).then(branch).then(of.step("always 2"));
    let each = ForEach::new(CURSOR, |_, _| Ok(vec![]), While::new(|_, _| false, all));
    let guard = TryCatch::new(each).catch(|_, _, error| Err(error)).finally(of.step("finally"));
    let advice = Advice::new(guard).before(|_, _| on()).around(|_, _, _| on()).after(|_, _, result| result);
    let bare = Advice::new(of.step("advised"));
    let cast = CastResource::<Thing, DynamicObject>::new(WithFinalizer::new("example.com/f", of.step("cast")));
    let instead = of.clone();
    let replaced = OverrideSetup::new(of.step::<Thing>("replaced"), move |_| {
        instead.0.lock().push("instead");
        Ok(())
    });
    let steps = Sequence::new().then(boxed).then(advice).then(bare).then(cast).then(replaced).then(of.step("last"));
    let deep = SuppressTransientErrors::new(WithConfig::new(|config: &Config| Ok(config.clone()), steps));

    let (config, _) = config(&spy());
    let reconciler = ResourceReconciler::<Thing>::new("thing", config, deep).finalizer("example.com/f");
    let manager = Manager::builder().build().unwrap();
    drop(reconciler.setup(&manager).unwrap());
    let expected = ["boxed", "always 1", "then", "else", "always 2", "finally", "advised", "cast", "instead", "last"];
    assert_eq!(*names.0.lock(), expected);
}

#[test]
fn returns_the_error_of_a_nested_set_up() {
    let fails = || SyncReconciler::<Thing>::new(|_, _| on()).setup(|_| Err("no such index".into()));
    let (config, _) = config(&spy());
    let manager = Manager::builder().build().unwrap();
    let sets_up = |step: Box<dyn SubReconciler<Thing>>| {
        let reconciler = ResourceReconciler::new("thing", config.clone(), step);
        reconciler.setup(&manager).map_or_else(|error| error.to_string(), |_| "fine".to_owned())
    };
    let guarded = || TryCatch::new(Sequence::new().then(leaves("step", on)).then(fails())).catch(|_, _, _| on());
    assert_eq!(sets_up(Box::new(guarded())), "no such index");
    assert_eq!(sets_up(Box::new(OverrideSetup::new(guarded(), |_: &mut Setup<'_>| Ok(())))), "fine");
    let no_config = |_: &Config| -> Result<Config, BoxError> { Err("no such cluster".into()) };
    assert_eq!(sets_up(Box::new(WithConfig::new(no_config, fails()))), "no such cluster");
}

#[test]
fn calls_a_step_with_a_replaced_set_up() {
    let step = |result: Returns| OverrideSetup::new(leaves("step", result), |_: &mut Setup<'_>| Ok(()));
    assert_eq!(run(&step(|| Ok(Flow::requeue_after(seconds(1))))), both("step", "on, again in 1s"));
    assert_eq!(run(&step(|| Ok(Flow::halt()))), both("step", "halted"));
    assert_eq!(run(&step(|| Err("test".into()))), both("step", "failed: test"));
}

/// A tracker that is recognized by this key.
fn marked(tracker: &Tracker, name: &str) {
    tracker.track(&CONFIG_MAP, TrackRef::name(ObjectKey::new("default", "mark")), ObjectKey::new("default", name));
}

fn marks(config: &Config) -> Vec<String> {
    let mark = DynamicObject::new(&CONFIG_MAP, "default", "mark");
    let marks = config.tracker().trackers_of(&CONFIG_MAP, &mark.meta());
    marks.iter().map(|key| key.name().to_owned()).collect()
}

#[test]
fn inner_steps_get_the_config_and_the_object_keeps_its_client() {
    let spy = spy();
    let (outer, recorded) = config(&spy);
    marked(outer.tracker(), "outer");
    let remote = Arc::new(MemoryClient::new());
    let trackers = ["middle", "inner"].map(|name| {
        let tracker = Tracker::new();
        marked(&tracker, name);
        tracker
    });
    let looks = |expected: &'static str| {
        move |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
            assert_eq!(
                (marks(cx.config()), marks(cx.original_config())),
                (vec![expected.to_owned()], vec!["outer".to_owned()])
            );
            Ok(Flow::requeue_after(seconds(1)))
        }
    };
    let [middle, inner] = trackers;
    let writes = |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        cx.config().api::<Thing>().create(&Thing::new("remote"))?;
        cx.add_finalizer(&mut thing.metadata, "example.com/f")?;
        on()
    };
    let client = Arc::clone(&remote);
    let inner = WithConfig::new(
        move |config: &Config| {
            assert_eq!(marks(config), ["middle"], "of the config so far");
            Ok(config.clone().with_tracker(inner.clone()).with_client(client.clone()))
        },
        Sequence::new().then(looks("inner")).then(writes),
    );
    let middle = WithConfig::new(
        move |config: &Config| Ok(config.clone().with_tracker(middle.clone())),
        Sequence::new().then(inner).then(looks("middle")),
    );
    let mut thing = things(&spy).create(&Thing::new("web")).unwrap();
    spy.writes();
    let steps = Sequence::new().then(middle).then(looks("outer"));
    assert_eq!(shown(&step(&steps, &outer, &mut thing)), "on, again in 1s");
    assert_eq!(spy.writes(), ["patch Thing default/web"]);
    assert!(Api::<Thing>::new(remote).get(&ObjectKey::new("default", "remote")).is_ok());
    assert_eq!(events(&recorded), ["Normal FinalizerPatched Patched finalizer \"example.com/f\""]);
}

#[test]
fn does_not_call_a_step_without_its_config() {
    let unreachable = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { unreachable!("not to be called") };
    let step = WithConfig::new(|_: &Config| Err("no such cluster".into()), unreachable);
    assert_eq!(run(&step), both("", "failed: no such cluster"));
    let config = |config: &Config| Ok(config.clone());
    assert_eq!(run(&WithConfig::new(config, leaves("step", || Ok(Flow::halt())))), both("step", "halted"));
}

/// Tracks and reads the config map with this name, and reports whether it exists.
fn reads(name: &'static str, report: &crossbeam_channel::Sender<String>) -> SyncReconciler<Thing> {
    let api = |config: &Config| Api::<DynamicObject>::of_kind(config.client().clone(), CONFIG_MAP);
    let report = report.clone();
    let step = move |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        let found = cx.track_and_get(&api(cx.config()), &ObjectKey::new("default", name)).ignore_not_found()?;
        report.send(format!("{name} {}", found.is_some()))?;
        on()
    };
    SyncReconciler::new(step).setup(move |setup| {
        let api = api(setup.config());
        setup.tracked(&api)?;
        Ok(setup.tracked(&api)?) // a second time has no effect
    })
}

#[track_caller]
fn report(seen: &Receiver<String>) -> [String; 2] {
    [(); 2].map(|()| seen.recv_timeout(seconds(60)).unwrap())
}

/// The cases of `TestConfig_TrackAndGet`, adapted to their purpose: each tracker enqueues the object.
#[test]
fn tracks_of_all_configs_enqueue_the_object() {
    let spy = spy();
    let (config, _) = config(&spy);
    let (saying, seen) = unbounded();
    let other = Tracker::new();
    let within =
        WithConfig::new(move |config: &Config| Ok(config.clone().with_tracker(other.clone())), reads("b", &saying));
    let steps = Sequence::new().then(reads("a", &saying)).then(within);
    let reconciler = ResourceReconciler::<Thing>::new("thing", config, steps).skip_status_update();
    let manager = Manager::builder().build().unwrap();
    let sources = reconciler.setup(&manager).unwrap();
    manager.add(Controller::builder("thing", reconciler).sources(sources).build().unwrap()).unwrap();
    let running = manager.start().unwrap();
    things(&spy).create(&Thing::new("web")).unwrap();
    assert_eq!(report(&seen), ["a false", "b false"]);
    let config_maps = Api::<DynamicObject>::of_kind(spy.clone(), CONFIG_MAP);
    config_maps.create(&DynamicObject::new(&CONFIG_MAP, "default", "a")).unwrap();
    assert_eq!(report(&seen), ["a true", "b false"]);
    config_maps.create(&DynamicObject::new(&CONFIG_MAP, "default", "b")).unwrap();
    assert_eq!(report(&seen), ["a true", "b true"]);
    manager.stop();
    running.join().unwrap();
    assert!(seen.is_empty(), "each of them once");
}

#[test]
fn several_steps_share_one_subscription() {
    let (config, _) = config(&spy());
    let hears = || {
        SyncReconciler::<Thing>::new(|_, _| on()).setup(|setup| {
            let things = setup.config().api::<Thing>();
            setup.owned(&things)?;
            Ok(setup.tracked(&things)?)
        })
    };
    let reconciler = ResourceReconciler::new("thing", config, Sequence::new().then(hears()).then(hears()));
    let sources = reconciler.setup(&Manager::builder().build().unwrap()).unwrap();
    let shown = format!("{sources:?}");
    assert!(
        shown.contains("len: 3"),
        "of the things themselves, of those that they own, and of those that they track: {shown}"
    );
}

fn no_page(_: &SubContext<'_>, _: &mut Thing) -> Result<DesiredChild<Page>, BoxError> {
    Ok(DesiredChild::AsItIs)
}

fn child() -> ChildReconciler<Thing, Page> {
    ChildReconciler::new(no_page, |_, _, _| on(), pages::manager())
}

fn children() -> ChildSetReconciler<Thing, Page> {
    let name = |page: &Page| page.metadata.name.clone();
    ChildSetReconciler::new(|_, _, _| Ok(DesiredChild::AsItIs), name, |_, _, _| on(), pages::manager())
}

/// Returns the result of setting up a reconciler with these steps.
fn sets_up(steps: Sequence<Thing>) -> Result<(), String> {
    let (config, _) = config(&spy());
    let reconciler = ResourceReconciler::new("thing", config, steps);
    let sources = reconciler.setup(&Manager::builder().build().unwrap());
    sources.map(drop).map_err(|error| error.to_string())
}

#[test]
fn refuses_two_steps_with_the_same_children() {
    let refused = "the steps \"header\" and \"footer\" both have children of the kind Page.example.com/v1 and would overwrite \
                   each other's: tell them apart by `ours` of each step";
    let (header, footer) = (|| child().named("header"), || children().named("footer"));
    assert_eq!(sets_up(Sequence::new().then(header()).then(footer())), Err(refused.to_owned()));
    let apart = |name: &str| child().named(name).ours(|_, _| true);
    assert_eq!(sets_up(Sequence::new().then(apart("header")).then(footer())), Err(refused.to_owned()));
    assert_eq!(sets_up(Sequence::new().then(header()).then(apart("footer"))), Err(refused.to_owned()));
    let branch = IfThen::new(|_, _| true, Sequence::new().then(header()).then(footer())).or_else(leaves("none", on));
    assert_eq!(sets_up(Sequence::new().then(branch)), Err(refused.to_owned()), "both in one branch");
    let branch = IfThen::new(|_, _| true, leaves("none", on)).or_else(Sequence::new().then(header()).then(footer()));
    assert_eq!(sets_up(Sequence::new().then(branch)), Err(refused.to_owned()), "both in the other branch");
    let branches = || IfThen::new(|_, _| true, header()).or_else(apart("side"));
    assert_eq!(sets_up(Sequence::new().then(branches()).then(footer())), Err(refused.to_owned()), "behind a branch");
    let branches = || IfThen::new(|_, _| true, leaves("none", on)).or_else(footer());
    assert_eq!(sets_up(Sequence::new().then(header()).then(branches())), Err(refused.to_owned()), "before a branch");
}

#[test]
fn alternative_steps_may_have_children_of_the_same_kind() {
    let branches = IfThen::new(|_, _| true, child()).or_else(children());
    assert_eq!(sets_up(Sequence::new().then(branches)), Ok(()));
    let within = IfThen::new(|_, _| true, child()).or_else(IfThen::new(|_, _| true, child()).or_else(children()));
    assert_eq!(sets_up(Sequence::new().then(within)), Ok(()));
}

#[test]
fn steps_with_ours_may_have_children_of_the_same_kind() {
    assert_eq!(sets_up(Sequence::new().then(child())), Ok(()));
    let apart = || child().ours(|_, page| page.metadata.name == "header");
    assert_eq!(sets_up(Sequence::new().then(apart()).then(children().ours(|_, _| true))), Ok(()));
    let tracked = child().tracked(|_| Query::all(), |_, _| true);
    assert_eq!(sets_up(Sequence::new().then(child()).then(tracked)), Ok(()), "it has no owner reference");
    let elsewhere: Arc<dyn Client> = Arc::new(MemoryClient::new());
    let remote = WithConfig::new(move |config: &Config| Ok(config.clone().with_client(elsewhere.clone())), child());
    assert_eq!(sets_up(Sequence::new().then(child()).then(remote)), Ok(()), "they are in another client");
}

#[test]
fn a_set_up_with_a_query_watches_only_the_selected_objects() {
    let client = spy();
    let pages = Api::<DynamicObject>::of_kind(client.clone(), CONFIG_MAP);
    for (name, namespace, app) in [("a", "default", "web"), ("b", "default", "db"), ("c", "other", "web")] {
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": app}});
        client.create(&CONFIG_MAP, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap();
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&seen);
    let step = SyncReconciler::new(|_: &SubContext<'_>, _: &mut Thing| on()).setup(move |setup| {
        let web = || Query::all().labels("app=web".parse().unwrap());
        for query in [Query::all(), web(), web().namespace("other")] {
            let watch = setup.with_query(query).watch(&pages)?;
            assert!(watch.store().wait_synced(Duration::from_secs(60)));
            let mut keys: Vec<_> = watch.store().snapshot().into_iter().map(|(key, _)| key.to_string()).collect();
            keys.sort();
            names.lock().push(keys.join(" "));
        }
        Ok(())
    });
    let manager = Manager::builder().build().unwrap();
    let (config, _) = config(&client);
    let reconciler = ResourceReconciler::new("things", config, step).namespace("default");
    drop(reconciler.setup(&manager).unwrap());
    // The namespace of the reconciler holds unless the query has one.
    assert_eq!(*seen.lock(), ["default/a default/b", "default/a", "other/c"]);
}
