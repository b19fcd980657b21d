//! `ResourceReconciler`: the stages and the result of a run.
//!
//! The cases of reconciler.io's `reconcilers/resource_test.go`. There, a run that writes the
//! status loses its result, and a quiet error is requeued forever.

use std::sync::Arc;
use std::time::Duration;

use homeostat::queue::KeyState;
use homeostat::run::{Cancelled, Terminal};
use homeostat::{
    Action, BoxError, Context, Enqueue, ManualClock, Reconciler, RequeueAfter, WorkQueue, Workers, terminal,
};
use homeostat_objects::sub::{Config, Failures, Flow, ResourceReconciler, SubContext, SubReconciler, SubResult, quiet};
use homeostat_objects::{
    Api, Client, ClientError, Condition, ConditionStatus, DeleteOptions, DynamicObject, Kind, MemoryClient, Object,
    ObjectKey, ObjectMeta, ObjectRef, Query, TrackRef, Tracker, set_condition,
};
use log::Level;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::hooked_client::HookedClient;
use crate::logs::Logs;
use crate::support::{Thing, ThingStatus, config, events, spy, things};
use homeostat::rt::Chain;

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const MINUTE: Duration = Duration::from_secs(60);
/// The delay after a conflict.
const PROMPT: Duration = Duration::from_millis(100);

/// A client with the thing `default/web`, a config and its events.
struct World {
    spy: Arc<HookedClient>,
    config: Config,
    events: Arc<MemoryClient>,
}

impl World {
    fn new() -> Self {
        Self::with(Thing::new("web"))
    }

    fn with(thing: Thing) -> Self {
        let spy = spy();
        let (config, events) = config(&spy);
        let api = things(&spy);
        let mut created = api.create(&thing).unwrap();
        if thing.status != created.status {
            created.status = thing.status;
            api.update_status(&created).unwrap();
        }
        spy.writes();
        Self { spy, config, events }
    }

    fn reconciler(&self, step: impl SubReconciler<Thing> + 'static) -> ResourceReconciler<Thing> {
        ResourceReconciler::new("thing", self.config.clone(), step)
            .observed_generation(|status, generation| status.observed_generation = generation)
    }

    /// Returns the result of one run with this step.
    fn step(&self, step: impl SubReconciler<Thing> + 'static) -> Result<Action, BoxError> {
        run(&self.reconciler(step))
    }

    fn thing(&self) -> Thing {
        things(&self.spy).get(Thing::reference().key()).unwrap()
    }

    fn delete(&self) {
        things(&self.spy).delete(Thing::reference().key(), &DeleteOptions::default()).unwrap();
        self.spy.writes();
    }
}

/// Runs the reconciler once for the thing.
fn run(reconciler: &ResourceReconciler<Thing>) -> Result<Action, BoxError> {
    reconciler.reconcile(&Context::detached(), Thing::reference().key())
}

fn held() -> Thing {
    let mut thing = Thing::new("web");
    thing.metadata.finalizers = vec!["example.com/f".to_owned()];
    thing
}

fn returning(result: fn() -> SubResult) -> impl SubReconciler<Thing> + 'static {
    move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        thing.status.fields.insert("seen".to_owned(), "yes".to_owned());
        result()
    }
}

fn on() -> SubResult {
    Ok(Flow::proceed())
}

fn never(_: &SubContext<'_>, _: &mut Thing) -> SubResult {
    unreachable!("not to be called")
}

fn text(result: Result<Action, BoxError>) -> String {
    Chain(&*result.unwrap_err()).to_string()
}

const UPDATE: &str = "update_status Thing default/web";

#[test]
fn writes_a_changed_status_once_with_generation_and_event() {
    let world = World::new();
    let reconciler = world.reconciler(returning(on));
    assert_eq!(run(&reconciler).unwrap(), Action::await_change());
    assert_eq!(world.spy.writes(), [UPDATE]);
    assert_eq!(world.thing().status.fields["seen"], "yes");
    assert_eq!(world.thing().status.observed_generation, 1);
    assert_eq!(events(&world.events), ["Normal StatusUpdated Updated status"]);

    assert_eq!(run(&reconciler).unwrap(), Action::await_change());
    assert!(world.spy.writes().is_empty(), "nothing has changed");
}

#[test]
fn keeps_the_requested_delay_when_it_writes_the_status() {
    let world = World::new();
    let result = world.step(returning(|| Ok(Flow::requeue_after(MINUTE))));
    assert_eq!((result.unwrap(), world.spy.writes()), (Action::requeue_after(MINUTE), vec![UPDATE.to_owned()]));

    let world = World::new();
    let result = world.step(returning(|| Err("out of luck".into())));
    assert_eq!((text(result), world.spy.writes()), ("out of luck".to_owned(), vec![UPDATE.to_owned()]));
    assert_eq!(world.thing().status.observed_generation, 0, "it has not been dealt with");
}

#[test]
fn a_failed_status_write_does_not_hide_the_result() {
    let world = World::new();
    let refuses = |verb: &str, object: &ObjectRef| {
        (verb == "update_status").then(|| ClientError::transport(object.clone(), "no route"))
    };
    world.spy.before(refuses);
    assert_eq!(
        text(world.step(returning(|| Err("out of luck".into())))),
        "out of luck; Thing default/web: the call failed: no route"
    );
    assert_eq!(text(world.step(returning(on))), "Thing default/web: the call failed: no route");
    let message = "Warning StatusUpdateFailed Failed to update status: Thing default/web: the call failed: no route";
    assert_eq!(events(&world.events), [message]);
}

/// Makes the status write a conflict: another writer is faster.
fn interfering(spy: &Arc<HookedClient>) -> impl SubReconciler<Thing> + 'static {
    let spy = Arc::clone(spy);
    move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        let later = thing.spec.len().to_string();
        let spec = thing.spec.clone().into_iter().chain([(later, "b".to_owned())]).collect();
        things(&spy).update(&Thing { spec, ..thing.clone() }).unwrap();
        thing.status.fields.insert("seen".to_owned(), "yes".to_owned());
        Ok(Flow::proceed())
    }
}

#[test]
fn a_status_conflict_reruns_promptly_without_an_event() {
    let world = World::new();
    assert_eq!(world.step(interfering(&world.spy)).unwrap(), Action::retry_after(PROMPT));
    assert!(events(&world.events).is_empty());
    assert_eq!(world.thing().status, <_>::default());
}

#[test]
fn a_conflict_does_not_hide_another_error() {
    use homeostat_objects::sub::Always;
    let world = World::new();
    let conflict = |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        Err(ClientError::conflict(cx.object().clone(), "it has changed").into())
    };
    let with = |result: fn() -> SubResult| world.step(Always::new().then(conflict).then(returning(result)));
    assert_eq!(with(on).unwrap(), Action::retry_after(PROMPT));
    assert_eq!(with(|| Err(terminal("never").into())).unwrap(), Action::retry_after(PROMPT));
    assert_eq!(with(|| Ok(Flow::requeue_after(PROMPT / 2))).unwrap(), Action::retry_after(PROMPT / 2));
    let later = with(|| Err(RequeueAfter::new(MINUTE, "boots").into())).unwrap_err();
    assert_eq!(RequeueAfter::find(&*later).unwrap(), &RequeueAfter::new(PROMPT, "boots"));
    let error = with(|| Err("out of luck".into())).unwrap_err();
    assert!(error.to_string().contains("out of luck"), "it is retried by policy");
    let context: fn(BoxError) -> BoxError = |error| anyhow::Error::from_boxed(error).context("the page").into();
    let marked = homeostat_objects::sub::Advice::new(conflict).after(move |_, _, result| result.map_err(context));
    assert_eq!(world.step(marked).unwrap(), Action::retry_after(PROMPT));
    let root = |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        let conflict = ClientError::conflict(cx.object().clone(), "it has changed");
        Err(anyhow::Error::new(conflict).into())
    };
    assert_eq!(world.step(root).unwrap(), Action::retry_after(PROMPT));
    let for_good = |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        let conflict = ClientError::conflict(cx.object().clone(), "it has changed");
        Err(terminal(conflict).into())
    };
    assert!(Terminal::find(&*world.step(for_good).unwrap_err()).is_some());
}

/// In a controller, a conflict causes no failed run and no log line at *warn*, but a delay before the next
/// run.
#[test]
fn a_status_conflict_is_not_a_failure_of_the_controller() {
    let (logs, world, clock) = (Logs::of("conflicting"), World::new(), ManualClock::new());
    let reconciler = ResourceReconciler::new("conflicting", world.config.clone(), interfering(&world.spy));
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let workers = Workers::new(reconciler).name("conflicting").start(&queue).unwrap();
    queue.enqueue(Thing::reference().key().clone());
    for run in 1..=3 {
        clock.wait_for_sleepers(1);
        assert_eq!((workers.metrics().requeues, workers.metrics().errors()), (run, 0));
        assert_eq!(queue.state(Thing::reference().key()), KeyState::Delayed(Some(clock.now() + PROMPT)));
        clock.advance(PROMPT);
    }
    drop(workers);
    assert_eq!(warnings(&logs), [""; 0]);
}

#[test]
fn a_lasting_conflict_is_a_failure_after_five_runs() {
    let (logs, world, clock) = (Logs::of("lasting"), World::new(), ManualClock::new());
    let reconciler = ResourceReconciler::new("lasting", world.config.clone(), interfering(&world.spy));
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let workers = Workers::new(reconciler).name("lasting").start(&queue).unwrap();
    queue.enqueue(Thing::reference().key().clone());
    for run in 1..=5 {
        clock.wait_for_sleepers(1);
        assert_eq!((workers.metrics().requeues, workers.metrics().errors()), (run, 0));
        clock.advance(PROMPT);
    }
    clock.wait_for_sleepers(1);
    assert_eq!((workers.metrics().requeues, workers.metrics().errors()), (5, 1));
    drop(workers);
    let warnings = warnings(&logs);
    assert!(warnings.len() == 1 && warnings[0].contains("conflict"), "{warnings:?}");
}

#[test]
fn writes_no_status_of_an_object_that_is_gone() {
    let world = World::new();
    let spy = Arc::clone(&world.spy);
    let removes = move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        things(&spy).delete(&thing.key(), &DeleteOptions::default())?;
        thing.status.fields.insert("seen".to_owned(), "yes".to_owned());
        Ok(Flow::requeue_after(MINUTE))
    };
    assert_eq!(world.step(removes).unwrap(), Action::requeue_after(MINUTE));
    assert!(events(&world.events).is_empty());
}

/// Several controllers may share a tracker, and their objects may have the same names.
#[test]
fn a_missing_object_ends_no_tracks_of_others() {
    let world = World::new();
    let kind = Kind::namespaced("", "v1", "ConfigMap");
    let tracked = TrackRef::name(Thing::reference().key().clone());
    world.config.tracker().track(&kind, tracked, Thing::reference().key().clone());
    world.delete();
    assert_eq!(world.step(never).unwrap(), Action::await_change());
    assert!(world.spy.writes().is_empty());
    assert_eq!(world.config.tracker().len(), 1, "it may belong to a site with this name");
}

#[test]
fn returns_an_error_of_the_read() {
    let world = World::new();
    world.spy.before(|verb, object| (verb == "get").then(|| ClientError::transport(object.clone(), "no route")));
    assert_eq!(text(world.step(never)), "Thing default/web: the call failed: no route");
    assert!(events(&world.events).is_empty());
}

#[test]
fn reconciles_an_object_being_deleted_while_it_has_finalizers() {
    let world = World::with(held());
    world.delete();
    let reconciler = world.reconciler(returning(|| Ok(Flow::requeue_after(MINUTE))));
    assert_eq!(run(&reconciler).unwrap(), Action::requeue_after(MINUTE));
    assert!(world.spy.writes().is_empty(), "and its status is left");

    let _ = run(&reconciler.status_while_deleting()).unwrap();
    assert_eq!(world.spy.writes(), [UPDATE]);
}

/// A stale cache may return such an object.
#[test]
fn ignores_an_object_being_deleted_without_finalizers() {
    let world = World::with(held());
    world.delete();
    let stale = world.thing();
    let reconciler = world.reconciler(never).defaults(|thing| thing.metadata.finalizers.clear());
    assert!(stale.metadata.is_deleting());
    assert_eq!(run(&reconciler).unwrap(), Action::await_change());
}

#[test]
fn steps_see_defaults_that_are_not_written() {
    let world = World::new();
    let sees = |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        let colour = thing.spec["colour"].clone();
        thing.status.fields.insert("colour".to_owned(), colour);
        Ok(Flow::proceed())
    };
    let defaults = |thing: &mut Thing| {
        thing.spec.insert("colour".to_owned(), "green".to_owned());
    };
    let _ = run(&world.reconciler(sees).defaults(defaults)).unwrap();
    assert_eq!((&*world.thing().status.fields["colour"], world.thing().spec.len()), ("green", 0));
}

#[test]
fn sets_initial_conditions_before_the_first_step() {
    let mut thing = Thing::new("web");
    let since = "2026-05-01T08:00:00Z".parse().unwrap();
    let known = Condition::new("Built", ConditionStatus::True, "Built");
    set_condition(&mut thing.status.conditions, known.clone(), since);
    let world = World::with(thing);
    let sees = |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        let kinds: Vec<_> = thing.status.conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Built", "Ready"]);
        Ok(Flow::proceed())
    };
    let reconciler = world.reconciler(sees).conditions(["Ready", "Built"], |status| &mut status.conditions);
    let _ = run(&reconciler).unwrap();
    let conditions = world.thing().status.conditions;
    assert_eq!((conditions[0].status, conditions[0].last_transition_time), (ConditionStatus::True, Some(since)));
    assert_eq!((conditions[1].status, &*conditions[1].reason), (ConditionStatus::Unknown, "Initializing"));
}

#[test]
fn a_replaced_condition_keeps_its_time_unless_its_status_changes() {
    let mut thing = Thing::new("web");
    let (since, later) = ("2026-05-01T08:00:00Z".parse().unwrap(), "2026-05-02T08:00:00Z".parse().unwrap());
    for kind in ["Ready", "Built"] {
        set_condition(&mut thing.status.conditions, Condition::new(kind, ConditionStatus::True, ""), since);
    }
    thing.status.observed_generation = 1;
    let world = World::with(thing);
    let writes = move |second: ConditionStatus| {
        let makes = move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
            thing.status.conditions.clear();
            for (kind, status) in [("Ready", ConditionStatus::True), ("Built", second)] {
                set_condition(&mut thing.status.conditions, Condition::new(kind, status, ""), later);
            }
            Ok(Flow::proceed())
        };
        let reconciler = world.reconciler(makes).conditions(["Ready"], |status| &mut status.conditions);
        let _ = run(&reconciler).unwrap();
        (world.spy.writes().len(), world.thing().status.conditions.iter().map(|c| c.last_transition_time).collect())
    };
    assert_eq!(writes(ConditionStatus::True), (0, vec![Some(since); 2]));
    assert_eq!(writes(ConditionStatus::False), (1, vec![Some(since), Some(later)]));
}

#[test]
fn a_reconciler_or_a_step_can_skip_the_status_write() {
    let world = World::new();
    let _ = run(&world.reconciler(returning(on)).skip_status_update()).unwrap();
    let step = |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        thing.status.fields.insert("seen".to_owned(), "yes".to_owned());
        cx.skip_status_update();
        Ok(Flow::requeue_after(MINUTE))
    };
    assert_eq!(world.step(step).unwrap(), Action::requeue_after(MINUTE));
    assert!(world.spy.writes().is_empty());
}

#[test]
fn a_halt_is_a_success() {
    let world = World::new();
    assert_eq!(world.step(returning(|| Ok(Flow::halt()))).unwrap(), Action::await_change());
    assert_eq!(world.thing().status.observed_generation, 1);
}

#[test]
fn the_class_of_an_error_decides_what_follows() {
    let class = |result: fn() -> SubResult| {
        let world = World::new();
        let result = world.step(returning(result));
        (result, world.thing().status.observed_generation)
    };
    let (result, observed) = class(|| Err(quiet("hush").into()));
    assert_eq!((result.unwrap(), observed), (Action::await_change(), 0), "no endless requeue");
    let (result, _) = class(|| Err(anyhow::Error::new(quiet("hush")).into()));
    assert_eq!(result.unwrap(), Action::await_change(), "also where anyhow hides it");

    let (result, observed) = class(|| Err(terminal("never").into()));
    let error = result.unwrap_err();
    assert!(Terminal::find(&*error).is_some() && observed == 1, "the status names the problem");

    let (result, observed) = class(|| Err(RequeueAfter::new(MINUTE, "boots").into()));
    let error = result.unwrap_err();
    assert_eq!((RequeueAfter::find(&*error).unwrap().after(), observed), (MINUTE, 0));

    let (result, _) = class(|| Err(Cancelled::Aborted.into()));
    assert!(result.unwrap_err().downcast_ref::<Cancelled>().is_some(), "the controller has to know it");
}

#[test]
fn keeps_a_delay_beside_errors_that_are_not_retried() {
    use homeostat_objects::sub::Always;
    let with = |fails: fn() -> SubResult| {
        let world = World::new();
        let asks = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { Ok(Flow::requeue_after(MINUTE)) };
        world.step(Always::new().then(asks).then(returning(fails)))
    };
    assert_eq!(with(|| Err(quiet("hush").into())).unwrap(), Action::requeue_after(MINUTE));
    assert_eq!(with(|| Err(terminal("never").into())).unwrap(), Action::requeue_after(MINUTE));
    let sooner = with(|| Err(RequeueAfter::new(2 * MINUTE, "boots").into())).unwrap_err();
    assert_eq!(RequeueAfter::find(&*sooner).unwrap(), &RequeueAfter::new(MINUTE, "boots"));
    let error = with(|| Err("out of luck".into())).unwrap_err();
    assert!(RequeueAfter::find(&*error).is_none() && Terminal::find(&*error).is_none(), "it is retried by policy");
}

#[test]
fn the_highest_class_of_several_errors_counts_for_the_controller() {
    use homeostat_objects::sub::Always;
    let all = |returns: [fn() -> SubResult; 2]| {
        World::new().step(Always::new().then(returning(returns[0])).then(returning(returns[1])))
    };
    let durable: fn() -> SubResult = || Err(terminal("never").into());
    let error = all([durable, durable]).unwrap_err();
    assert!(Terminal::find(&*error).is_some());
    assert_eq!(error.to_string(), "never; never");
    let error = all([durable, || Err("out of luck".into())]).unwrap_err();
    assert!(Terminal::find(&*error).is_none(), "another try may mend it");
    let later = all([|| Err(RequeueAfter::new(2 * MINUTE, "a").into()), || Err(RequeueAfter::new(MINUTE, "b").into())]);
    assert_eq!(RequeueAfter::find(&*later.unwrap_err()).unwrap().reason(), "b");
    let aborted = all([|| Err("out of luck".into()), || Err(Cancelled::Aborted.into())]).unwrap_err();
    assert!(aborted.downcast_ref::<Cancelled>().is_some());
}

#[test]
fn before_runs_first_and_after_replaces_the_result() {
    let world = World::new();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let note = |call: &'static str| {
        let calls = Arc::clone(&calls);
        move || calls.lock().push(call)
    };
    let (before, step, after) = (note("before"), note("step"), note("after"));
    let reconciler = world
        .reconciler(move |_: &SubContext<'_>, _: &mut Thing| -> SubResult {
            step();
            Ok(Flow::requeue_after(2 * MINUTE))
        })
        .before(move |_cx, key| {
            assert_eq!(key, Thing::reference().key());
            before();
            Ok(Flow::requeue_after(MINUTE))
        })
        .after(move |_cx, _key, result| {
            after();
            assert_eq!(result.unwrap(), Flow::requeue_after(MINUTE));
            Err("out of luck".into())
        });
    assert_eq!(text(run(&reconciler)), "out of luck");
    assert_eq!(*calls.lock(), ["before", "step", "after"]);
}

#[test]
fn only_after_runs_when_before_fails_or_halts() {
    let world = World::new();
    let reconciler = world.reconciler(never).before(|_, _| Err("out of luck".into()));
    assert_eq!(text(run(&reconciler)), "out of luck");
    let reconciler = reconciler.after(|_, _, result| {
        assert_eq!(result.unwrap_err().to_string(), "out of luck");
        Ok(Flow::requeue_after(MINUTE))
    });
    assert_eq!(run(&reconciler).unwrap(), Action::requeue_after(MINUTE));
    let reconciler = world.reconciler(never).before(|_, _| Ok(Flow::halt()));
    assert_eq!(run(&reconciler).unwrap(), Action::await_change());
}

#[test]
fn does_not_read_skipped_requests_or_touch_skipped_resources() {
    let world = World::new();
    world.spy.before(|_, object| Some(ClientError::transport(object.clone(), "not to be called")));
    let skipping = world.reconciler(never).skip_request(|key| key.name() == "web");
    let skipping = skipping.before(|_, _| unreachable!()).after(|_, _, _| unreachable!());
    assert_eq!(run(&skipping).unwrap(), Action::await_change());
    world.spy.heal();

    let skipping = world
        .reconciler(never)
        .defaults(|thing| thing.status.fields = [("seen".to_owned(), "yes".to_owned())].into())
        .conditions(["Ready"], |status| &mut status.conditions)
        .skip_resource(|thing| thing.status.fields.contains_key("seen"))
        .after(|_, _, result| result.map(|flow| flow.and(Flow::requeue_after(MINUTE))));
    assert_eq!(run(&skipping).unwrap(), Action::requeue_after(MINUTE));
    assert!(world.spy.writes().is_empty());
}

#[test]
fn steps_get_the_config() {
    let world = World::new();
    let client: Arc<dyn Client> = world.spy.clone();
    let looks = move |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        assert!(Arc::ptr_eq(cx.config().client(), &client) && Arc::ptr_eq(cx.config().uncached(), &client));
        assert!(Arc::ptr_eq(cx.original_config().client(), &client));
        assert_eq!((cx.name(), cx.kind(), cx.is_deleting()), ("thing", &Thing::KIND, false));
        assert_eq!(cx.subject().owner_reference(), thing.owner_reference());
        assert_eq!(cx.config().client().list(&Thing::KIND, &Query::all())?.items.len(), 1);
        Ok(Flow::proceed())
    };
    let _ = world.step(looks).unwrap();
}

/// The finalizer is removed from the current version. The status of the run belongs to an older version.
#[test]
fn removing_a_finalizer_from_a_newer_version_keeps_the_status_conflict() {
    let changes_meanwhile: [fn(&mut Thing); 2] = [
        |thing| drop(thing.spec.insert("a".to_owned(), "b".to_owned())),
        |thing| drop(thing.status.fields.insert("theirs".to_owned(), "yes".to_owned())),
    ];
    for change in changes_meanwhile {
        let world = World::with(held());
        let spy = Arc::clone(&world.spy);
        let interferes = move |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
            let mut other = thing.clone();
            change(&mut other);
            let other = things(&spy)
                .update(&Thing { status: thing.status.clone(), ..other.clone() })
                .map(|known| Thing { metadata: known.metadata, ..other })?;
            things(&spy).update_status(&other)?;
            cx.remove_finalizer(&mut thing.metadata, "example.com/f")?;
            thing.status.fields.insert("seen".to_owned(), "yes".to_owned());
            Ok(Flow::proceed())
        };
        assert_eq!(world.step(interferes).unwrap(), Action::retry_after(PROMPT));
        let thing = world.thing();
        assert!(thing.metadata.finalizers.is_empty());
        assert_eq!(thing.status.observed_generation, 0, "this one has not been seen yet");
        assert!(!thing.status.fields.contains_key("seen"));
    }
}

#[test]
fn keeps_a_delay_beside_a_marked_error() {
    use homeostat::run::muted;
    use homeostat_objects::sub::{Advice, Sequence};
    let marked = |mark: fn(BoxError) -> BoxError| {
        let asks = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { Ok(Flow::requeue_after(MINUTE)) };
        let steps = Sequence::new().then(asks).then(returning(|| Err("out of luck".into())));
        World::new().step(Advice::new(steps).after(move |_, _, result| result.map_err(mark)))
    };
    assert_eq!(marked(|error| quiet(error).into()).unwrap(), Action::requeue_after(MINUTE));
    assert_eq!(marked(|error| terminal(error).into()).unwrap(), Action::requeue_after(MINUTE));
    assert_eq!(marked(|error| quiet(muted(error)).into()).unwrap(), Action::requeue_after(MINUTE));
    let beside_another = marked(|error| {
        let others = Failures::find::<Failures>(&*error).is_some();
        assert!(others);
        terminal(quiet(error)).into()
    });
    assert_eq!(beside_another.unwrap(), Action::requeue_after(MINUTE));
}

/// The errors logged at level warn.
fn warnings(logs: &Logs) -> Vec<String> {
    logs.at(Level::Warn).iter().map(|line| line.field("error").to_owned()).collect()
}

#[test]
fn logs_a_durable_error_beside_a_later_one() {
    use homeostat_objects::sub::Always;
    let (logs, world) = (Logs::of("failed-for-good"), World::new());
    let later = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { Err(RequeueAfter::new(MINUTE, "boots").into()) };
    let nested = || Always::new().then(returning(|| Err(terminal("no such colour").into()))).then(later);
    let steps = Always::new().then(returning(|| Err(quiet("hush").into()))).then(nested());
    let error = run(&ResourceReconciler::new("failed-for-good", world.config.clone(), steps));
    assert_eq!(RequeueAfter::find(&*error.unwrap_err()).unwrap().after(), MINUTE);
    let logged = warnings(&logs).iter().filter(|warning| warning.contains("no such colour")).count();
    assert_eq!(logged, 1);
    assert!(!warnings(&logs).iter().any(|warning| warning.contains("hush")));
}

/// A thing with an optional status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bare {
    metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<ThingStatus>,
}

homeostat_objects::object!(Bare, namespaced, "example.com", "v1", status: ThingStatus);

#[test]
fn does_not_write_an_untouched_status() {
    let (spy, config_map) = (spy(), Kind::namespaced("", "v1", "ConfigMap"));
    let (config, stored) = config(&spy);
    let map = DynamicObject::new(&config_map, "default", "web").with("data", json!({"a": "b"}));
    Api::of_kind(spy.clone(), config_map.clone()).create(&map).unwrap();
    Api::new(spy.clone()).create(&Bare { metadata: ObjectMeta::new("default", "web"), status: None }).unwrap();
    spy.writes();

    let (cx, key) = (Context::detached(), Thing::reference().key().clone());
    let looks = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { on() };
    let maps = ResourceReconciler::of_kind("maps", config_map, config.clone(), looks);
    assert_eq!(maps.reconcile(&cx, &key).unwrap(), Action::await_change());
    // There are no initial conditions to add.
    let looks = |_: &SubContext<'_>, _: &mut Bare| -> SubResult { on() };
    let none: [&str; 0] = [];
    let bare = ResourceReconciler::new("bare", config, looks).conditions(none, |status| &mut status.conditions);
    assert_eq!(bare.reconcile(&cx, &key).unwrap(), Action::await_change());
    assert_eq!((spy.writes(), events(&stored)), (vec![], vec![]));
}

/// The default status is a change if there was none.
#[test]
fn writes_a_new_status_even_if_it_is_the_default() {
    let spy = spy();
    let (config, _) = config(&spy);
    Api::new(spy.clone()).create(&Bare { metadata: ObjectMeta::new("default", "web"), status: None }).unwrap();
    let makes = |_: &SubContext<'_>, bare: &mut Bare| -> SubResult {
        bare.status = Some(ThingStatus::default());
        on()
    };
    let none: [&str; 0] = [];
    let bare = ResourceReconciler::new("bare", config, makes).conditions(none, |status| &mut status.conditions);
    let _ = bare.reconcile(&Context::detached(), Thing::reference().key()).unwrap();
    assert_eq!(spy.writes().last().unwrap(), "update_status Bare default/web");
}

#[test]
fn a_condition_without_a_time_gets_one() {
    let mut thing = Thing::new("web");
    let now = "2026-05-01T08:00:00Z".parse().unwrap();
    thing.status.conditions = vec![Condition::new("Ready", ConditionStatus::True, "")];
    let world = World::with(thing);
    let sets = move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        set_condition(&mut thing.status.conditions, Condition::new("Ready", ConditionStatus::True, ""), now);
        Ok(Flow::proceed())
    };
    let _ = run(&world.reconciler(sets).conditions(["Ready"], |status| &mut status.conditions)).unwrap();
    assert_eq!(world.thing().status.conditions[0].last_transition_time, Some(now));
}

#[test]
fn logs_the_errors_before_a_cancellation() {
    use homeostat_objects::sub::Always;
    let (logs, world) = (Logs::of("failed-before"), World::new());
    let aborted = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { Err(Cancelled::Aborted.into()) };
    let steps = Always::new().then(returning(|| Err("no such shape".into()))).then(aborted);
    let error = run(&ResourceReconciler::new("failed-before", world.config.clone(), steps)).unwrap_err();
    assert!(error.downcast_ref::<Cancelled>().is_some());
    assert_eq!(warnings(&logs).iter().filter(|warning| warning.contains("no such shape")).count(), 1);
}

/// Whether a change of the config map with this name enqueues the thing.
fn is_called_by(config: &Config, name: &str) -> bool {
    let map = DynamicObject::new(&CONFIG_MAP, "default", name);
    config.tracker().trackers_of(&CONFIG_MAP, &map.meta()) == [Thing::reference().key().clone()]
}

fn tracks(name: &'static str, result: fn() -> SubResult) -> impl SubReconciler<Thing> + 'static {
    move |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        cx.track(&CONFIG_MAP, TrackRef::name(ObjectKey::new("default", name)));
        result()
    }
}

/// By default no resync runs an idle key, so nothing would renew its tracks.
#[test]
fn a_track_lasts_until_the_next_run_of_its_key() {
    let (world, clock) = (World::new(), ManualClock::new());
    let config = world.config.clone().with_clock(clock.clock());
    let _ = run(&ResourceReconciler::new("thing", config.clone(), tracks("a", on))).unwrap();
    clock.advance(24 * 60 * MINUTE);
    assert!(is_called_by(&config, "a"), "after a day");
    clock.advance(365 * 24 * 60 * MINUTE);
    assert!(is_called_by(&config, "a"), "after a year");
}

#[test]
fn a_successful_run_replaces_earlier_tracks() {
    let world = World::new();
    let name = Arc::new(Mutex::new(("a", on as fn() -> SubResult)));
    let (config, now) = (&world.config, Arc::clone(&name));
    let own = Tracker::new();
    let within = own.clone();
    let step = move |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        let (name, result) = *now.lock();
        let elsewhere = cx.with_config(cx.config().clone().with_tracker(within.clone()));
        let _ = tracks(name, on).reconcile(&elsewhere, thing)?;
        tracks(name, result).reconcile(cx, thing)
    };
    let reconciler = world.reconciler(step);
    let calls = |expected: &[&str]| {
        for config in [config, &config.clone().with_tracker(own.clone())] {
            let found: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| is_called_by(config, name)).collect();
            assert_eq!(found, expected);
        }
    };
    let _ = run(&reconciler).unwrap();
    calls(&["a"]);
    *name.lock() = ("b", || Err("out of luck".into()));
    run(&reconciler).unwrap_err();
    calls(&["a", "b"]);
    *name.lock() = ("c", on);
    let _ = run(&reconciler).unwrap();
    calls(&["c"]);
    world.delete();
    let _ = run(&reconciler).unwrap();
    calls(&[]);
    assert!(config.tracker().is_empty() && own.is_empty());
}

/// Two reconcilers with one config. Their objects have the same key.
#[test]
fn a_run_does_not_end_the_tracks_of_another_reconciler() {
    let world = World::new();
    Api::new(world.spy.clone()).create(&Bare { metadata: ObjectMeta::new("default", "web"), status: None }).unwrap();
    let untracked = |_: &SubContext<'_>, _: &mut Bare| -> SubResult { on() };
    let bare = ResourceReconciler::new("bare", world.config.clone(), untracked);
    let _ = run(&world.reconciler(tracks("a", on))).unwrap();
    let _ = bare.reconcile(&Context::detached(), Thing::reference().key()).unwrap();
    assert!(is_called_by(&world.config, "a"));
}
