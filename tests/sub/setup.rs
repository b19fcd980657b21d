//! The set-up phase, and configs: `OverrideSetup` and `WithConfig`, by the cases of reconciler.io's `reconcilers/flow_test.go`,
//! `TestOverrideSetup`, and `reconcilers/config_test.go`. What that one gets wrong: advice without a set-up of its own keeps that of
//! its step to itself.

use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};
use homeostat::objects::{Api, DynamicObject, Ignore, Kind, MemoryClient, Object, ObjectKey, TrackRef, Tracker};
use homeostat::sub::{
    Advice, Always, CastResource, ChildReconciler, ChildSetReconciler, Config, Cursor, DesiredChild, Flow, ForEach,
    IfThen, OverrideSetup, ResourceReconciler, Sequence, Setup, StashKey, SubContext, SubReconciler, SubResult,
    SuppressTransientErrors, SyncReconciler, TryCatch, While, WithConfig, WithFinalizer,
};
use homeostat::{BoxError, Controller, Manager};
use parking_lot::Mutex;

use crate::pages::{self, Page};
use crate::support::{Spy, Thing, config, events, step, things};
use crate::trail::{Returns, both, leaves, on, run, seconds, told};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const CURSOR: StashKey<Cursor<u32>> = StashKey::new("cursor");

/// The names of the steps that have been set up.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl Names {
    /// A step that is not called, and says that it has been set up.
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
fn the_set_up_reaches_every_step_however_deep_it_is() {
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

    let (config, _) = config(&Spy::new());
    let reconciler = ResourceReconciler::<Thing>::new("thing", config, deep).finalizer("example.com/f");
    let manager = Manager::builder().build().unwrap();
    drop(reconciler.setup(&manager).unwrap());
    let expected = ["boxed", "always 1", "then", "else", "always 2", "finally", "advised", "cast", "instead", "last"];
    assert_eq!(*names.0.lock(), expected);
}

#[test]
fn a_set_up_that_fails_is_an_error_however_deep_it_is() {
    let fails = || SyncReconciler::<Thing>::new(|_, _| on()).setup(|_| Err("no such index".into()));
    let (config, _) = config(&Spy::new());
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
fn a_step_whose_set_up_is_replaced_is_called() {
    let step = |result: Returns| OverrideSetup::new(leaves("step", result), |_: &mut Setup<'_>| Ok(()));
    assert_eq!(run(&step(|| Ok(Flow::requeue_after(seconds(1))))), both("step", "on, again in 1s"));
    assert_eq!(run(&step(|| Ok(Flow::halt()))), both("step", "halted"));
    assert_eq!(run(&step(|| Err("test".into()))), both("step", "failed: test"));
}

/// A tracker that can be told from others: it remembers this key.
fn marked(tracker: &Tracker, name: &str) {
    tracker.track(&CONFIG_MAP, TrackRef::name(ObjectKey::new("default", "mark")), ObjectKey::new("default", name));
}

fn marks(config: &Config) -> Vec<String> {
    let mark = DynamicObject::new(&CONFIG_MAP, "default", "mark");
    let marks = config.tracker().trackers_of(&CONFIG_MAP, &mark.metadata);
    marks.iter().map(|key| key.name().to_owned()).collect()
}

#[test]
fn a_config_is_that_of_the_steps_within_and_the_object_stays_where_it_is() {
    let spy = Spy::new();
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
    assert_eq!(told(&step(&steps, &outer, &mut thing)), "on, again in 1s");
    assert_eq!(spy.writes(), ["patch Thing default/web"]);
    assert!(Api::<Thing>::new(remote).get(&ObjectKey::new("default", "remote")).is_ok());
    assert_eq!(events(&recorded), ["Normal FinalizerPatched Patched finalizer \"example.com/f\""]);
}

#[test]
fn a_step_without_its_config_is_not_called() {
    let unreachable = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { unreachable!("not to be called") };
    let step = WithConfig::new(|_: &Config| Err("no such cluster".into()), unreachable);
    assert_eq!(run(&step), both("", "failed: no such cluster"));
    let config = |config: &Config| Ok(config.clone());
    assert_eq!(run(&WithConfig::new(config, leaves("step", || Ok(Flow::halt())))), both("step", "halted"));
}

/// Reads the config map of this name, and says whether it is there.
fn reads(name: &'static str, said: &crossbeam_channel::Sender<String>) -> SyncReconciler<Thing> {
    let api = |config: &Config| Api::<DynamicObject>::of_kind(config.client().clone(), CONFIG_MAP);
    let said = said.clone();
    let step = move |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        let found = cx.track_and_get(&api(cx.config()), &ObjectKey::new("default", name)).ignore_not_found()?;
        said.send(format!("{name} {}", found.is_some()))?;
        on()
    };
    SyncReconciler::new(step).setup(move |setup| {
        let api = api(setup.config());
        setup.tracked(&api)?;
        Ok(setup.tracked(&api)?) // once is enough
    })
}

#[track_caller]
fn said(seen: &Receiver<String>) -> [String; 2] {
    [(); 2].map(|()| seen.recv_timeout(seconds(60)).unwrap())
}

/// The cases of `TestConfig_TrackAndGet`, with what they are for: whoever tracks is called again, by whichever tracker.
#[test]
fn what_is_tracked_by_the_tracker_of_any_config_calls_again() {
    let spy = Spy::new();
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
    assert_eq!(said(&seen), ["a false", "b false"]);
    let config_maps = Api::<DynamicObject>::of_kind(spy.clone(), CONFIG_MAP);
    config_maps.create(&DynamicObject::new(&CONFIG_MAP, "default", "a")).unwrap();
    assert_eq!(said(&seen), ["a true", "b false"]);
    config_maps.create(&DynamicObject::new(&CONFIG_MAP, "default", "b")).unwrap();
    assert_eq!(said(&seen), ["a true", "b true"]);
    manager.stop();
    running.wait().unwrap();
    assert!(seen.is_empty(), "each of them once");
}

#[test]
fn what_several_steps_hear_of_is_heard_of_once() {
    let (config, _) = config(&Spy::new());
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

/// What the set-up of a reconciler of these steps says.
fn sets_up(steps: Sequence<Thing>) -> Result<(), String> {
    let (config, _) = config(&Spy::new());
    let reconciler = ResourceReconciler::new("thing", config, steps);
    let sources = reconciler.setup(&Manager::builder().build().unwrap());
    sources.map(drop).map_err(|error| error.to_string())
}

#[test]
fn two_steps_that_would_take_each_others_children_are_refused() {
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
fn steps_of_which_only_one_runs_may_have_children_of_the_same_kind() {
    let branches = IfThen::new(|_, _| true, child()).or_else(children());
    assert_eq!(sets_up(Sequence::new().then(branches)), Ok(()));
    let within = IfThen::new(|_, _| true, child()).or_else(IfThen::new(|_, _| true, child()).or_else(children()));
    assert_eq!(sets_up(Sequence::new().then(within)), Ok(()));
}

#[test]
fn steps_that_tell_their_children_apart_may_have_the_same_kind() {
    assert_eq!(sets_up(Sequence::new().then(child())), Ok(()));
    let apart = || child().ours(|_, page| page.metadata.name == "header");
    assert_eq!(sets_up(Sequence::new().then(apart()).then(children().ours(|_, _| true))), Ok(()));
    let tracked = child().tracked(|_| homeostat::objects::Query::all(), |_, _| true);
    assert_eq!(sets_up(Sequence::new().then(child()).then(tracked)), Ok(()), "it has no owner reference");
    let elsewhere: Arc<dyn homeostat::objects::Client> = Arc::new(MemoryClient::new());
    let remote = WithConfig::new(move |config: &Config| Ok(config.clone().with_client(elsewhere.clone())), child());
    assert_eq!(sets_up(Sequence::new().then(child()).then(remote)), Ok(()), "they are in another client");
}
