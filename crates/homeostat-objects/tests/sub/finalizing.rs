//! `WithFinalizer`: the cases of reconciler.io's `reconcilers/finalizer_test.go`.

use std::sync::Arc;

use homeostat::{Action, Context, Reconciler};
use homeostat_objects::sub::{Config, Flow, ResourceReconciler, SubContext, SubResult, SyncReconciler, WithFinalizer};
use homeostat_objects::{Client, ClientError, DeleteOptions, MemoryClient, ObjectRef};

use crate::hooked_client::HookedClient;
use crate::support::{Thing, config, events, spy, step, things};
use crate::trail::{Returns, halts, leaves, on, seconds, shown, trail};

const FINALIZER: &str = "example.com/f";
const OTHER: &str = "example.com/other";
const PATCH: &str = "patch Thing default/web";
const PATCHED: &str = "Normal FinalizerPatched Patched finalizer \"example.com/f\"";

struct World {
    spy: Arc<HookedClient>,
    config: Config,
    events: Arc<MemoryClient>,
}

impl World {
    /// A world with a thing that has these finalizers.
    fn with(finalizers: &[&str]) -> Self {
        let spy = spy();
        let (config, events) = config(&spy);
        let mut thing = Thing::new("web");
        thing.metadata.finalizers = finalizers.iter().map(ToString::to_string).collect();
        things(&spy).create(&thing).unwrap();
        Self { spy, config, events }
    }

    /// The same with a thing that is being deleted.
    fn deleting(finalizers: &[&str]) -> Self {
        let world = Self::with(finalizers);
        things(&world.spy).delete(Thing::reference().key(), &DeleteOptions::default()).unwrap();
        world
    }

    fn thing(&self) -> Result<Thing, ClientError> {
        things(&self.spy).get(Thing::reference().key())
    }

    /// Runs the step once. Returns the result with the trail, the writes, and the thing.
    fn run(&self, tried: &WithFinalizer<Thing>) -> (String, String, Vec<String>, Thing) {
        let mut thing = self.thing().unwrap();
        self.spy.writes();
        let shown = shown(&step(tried, &self.config, &mut thing));
        (shown, trail(&thing).to_owned(), self.spy.writes(), thing)
    }
}

fn finalizing(sync: Returns, finalize: Returns) -> WithFinalizer<Thing> {
    let finalize = leaves("finalize", finalize);
    let finalize = move |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        homeostat_objects::sub::SubReconciler::reconcile(&finalize, cx, thing)
    };
    let sync = move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        assert!(thing.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER), "it is held by then");
        crate::trail::leave(thing, "sync");
        sync()
    };
    WithFinalizer::new(FINALIZER, SyncReconciler::new(sync).finalize(finalize))
}

fn unreachable(verb: &str, object: &ObjectRef) -> Option<ClientError> {
    (verb == "patch").then(|| ClientError::transport(object.clone(), "the cable is out"))
}

#[test]
fn does_not_write_an_object_with_the_finalizer() {
    let world = World::with(&[FINALIZER]);
    let (shown, trail, writes, thing) = world.run(&finalizing(on, on));
    assert_eq!((shown.as_str(), trail.as_str(), writes), ("on", "sync", vec![]));
    assert_eq!(thing.metadata, world.thing().unwrap().metadata);
    assert!(events(&world.events).is_empty());
}

#[test]
fn adds_the_finalizer_before_the_step() {
    let world = World::with(&[OTHER]);
    let (shown, trail, writes, thing) = world.run(&finalizing(|| Ok(Flow::requeue_after(seconds(1))), on));
    assert_eq!((shown.as_str(), trail.as_str(), writes), ("on, again in 1s", "sync", vec![PATCH.to_owned()]));
    assert_eq!(thing.metadata.finalizers, [OTHER, FINALIZER]);
    assert_eq!(thing.metadata, world.thing().unwrap().metadata, "the step has the version that was written");
    assert_eq!(events(&world.events), [PATCHED]);
}

#[test]
fn runs_no_step_without_the_finalizer() {
    let world = World::with(&[]);
    world.spy.before(unreachable);
    let (shown, trail, writes, thing) = world.run(&finalizing(on, on));
    assert_eq!((shown.as_str(), trail.as_str()), ("failed: Thing default/web: the call failed: the cable is out", ""));
    assert_eq!((writes, thing.metadata.finalizers.len()), (vec![PATCH.to_owned()], 0));
    let event = "Warning FinalizerPatchFailed Failed to patch finalizer \"example.com/f\": Thing default/web: the call failed: the cable is out";
    assert_eq!(events(&world.events), [event]);
}

#[test]
fn retries_a_conflict_without_an_event() {
    let world = World::with(&[]);
    world.spy.before(|verb, object| {
        let conflict = || ClientError::conflict(object.clone(), "it has changed");
        (verb == "patch").then(conflict)
    });
    let (shown, trail, _, _) = world.run(&finalizing(on, on));
    assert_eq!((shown.as_str(), trail.as_str()), ("failed: Thing default/web: conflict: it has changed", ""));
    assert!(events(&world.events).is_empty());
}

#[test]
fn removes_the_finalizer_after_the_clean_up() {
    let world = World::deleting(&[FINALIZER]);
    let (shown, trail, writes, thing) = world.run(&finalizing(on, on));
    assert_eq!((shown.as_str(), trail.as_str(), writes), ("on", "finalize", vec![PATCH.to_owned()]));
    assert!(thing.metadata.finalizers.is_empty());
    assert!(world.thing().unwrap_err().is_not_found());
    assert_eq!(events(&world.events), [PATCHED]);
}

#[test]
fn keeps_the_finalizer_until_the_step_is_done() {
    let cases: [(Returns, &str); 4] = [
        (|| Err("finalize error".into()), "failed: finalize error"),
        (halts, "halted"),
        (|| Ok(Flow::requeue_after(seconds(1))), "on, again in 1s"),
        (|| Ok(Flow::halt_and_requeue_after(seconds(1))), "halted, again in 1s"),
    ];
    for (finalize, expected) in cases {
        let world = World::deleting(&[FINALIZER]);
        let (shown, trail, writes, _) = world.run(&finalizing(on, finalize));
        assert_eq!((shown.as_str(), trail.as_str(), writes), (expected, "finalize", vec![]));
        assert_eq!(world.thing().unwrap().metadata.finalizers, [FINALIZER]);
        assert!(events(&world.events).is_empty());
    }
}

#[test]
fn keeps_the_finalizer_until_the_object_is_ready() {
    let world = World::deleting(&[FINALIZER]);
    let ready = |wanted: &'static str| {
        finalizing(on, on).ready_when(move |cx, thing: &Thing| {
            assert_eq!(trail(thing), "finalize", "asked behind the step");
            cx.name() == wanted
        })
    };
    let (shown, trail, writes, _) = world.run(&ready("another"));
    assert_eq!((shown.as_str(), trail.as_str(), writes), ("on", "finalize", vec![]));
    assert_eq!(world.thing().unwrap().metadata.finalizers, [FINALIZER]);
    assert_eq!(world.run(&ready("test")).2, [PATCH]);
    assert!(world.thing().unwrap_err().is_not_found());

    let living = finalizing(on, on).ready_when(|_, _| unreachable!("it lives"));
    assert_eq!(World::with(&[]).run(&living).0, "on");
}

#[test]
fn retries_a_failed_removal() {
    let world = World::deleting(&[FINALIZER]);
    world.spy.before(unreachable);
    let (shown, trail, writes, _) = world.run(&finalizing(on, on));
    assert_eq!(
        (shown.as_str(), trail.as_str()),
        ("failed: Thing default/web: the call failed: the cable is out", "finalize")
    );
    assert_eq!(writes, [PATCH]);
    assert!(events(&world.events)[0].starts_with("Warning FinalizerPatchFailed"));
    world.spy.heal();
    assert_eq!(world.run(&finalizing(on, on)).0, "on");
    assert!(world.thing().unwrap_err().is_not_found());
}

#[test]
fn does_nothing_for_an_object_with_other_finalizers_only() {
    let world = World::deleting(&[OTHER]);
    let (shown, trail, writes, _) = world.run(&finalizing(on, on));
    assert_eq!((shown.as_str(), trail.as_str(), writes), ("on", "", vec![]));
}

#[test]
fn an_object_that_is_gone_or_changed_is_not_a_failure() {
    let world = World::deleting(&[FINALIZER]);
    let spy = Arc::clone(&world.spy);
    let vanishes = WithFinalizer::new(FINALIZER, move |_: &SubContext<'_>, _: &mut Thing| -> SubResult {
        let purge = DeleteOptions::default().purge();
        spy.inner.delete(Thing::reference().kind(), Thing::reference().key(), &purge)?;
        on()
    });
    let (shown, _, _, thing) = world.run(&vanishes);
    assert_eq!((shown.as_str(), thing.metadata.finalizers), ("on", vec![]));

    let world = World::deleting(&[FINALIZER, OTHER]);
    let spy = Arc::clone(&world.spy);
    let changes = WithFinalizer::new(FINALIZER, move |_: &SubContext<'_>, _: &mut Thing| -> SubResult {
        let mut thing = things(&spy).get(Thing::reference().key())?;
        thing.metadata.labels.insert("changed".to_owned(), "yes".to_owned());
        things(&spy).update(&thing)?;
        on()
    });
    let (shown, _, _, thing) = world.run(&changes);
    assert_eq!((shown.as_str(), thing.metadata.finalizers), ("on", vec![OTHER.to_owned()]));
    assert_eq!(world.thing().unwrap().metadata.finalizers, [OTHER]);
}

/// The next run reads again.
#[test]
fn an_object_that_is_gone_before_it_gets_its_finalizer_is_a_conflict() {
    let world = World::with(&[]);
    let mut thing = world.thing().unwrap();
    things(&world.spy).purge(Thing::reference().key()).unwrap();
    let result = step(&finalizing(on, on), &world.config, &mut thing);
    assert_eq!(shown(&result), "failed: Thing default/web: conflict: it was removed after it was read");
    assert_eq!((trail(&thing), events(&world.events)), ("", vec![]));
}

#[test]
fn a_resource_reconciler_can_have_a_finalizer() {
    let world = World::with(&[]);
    let sync = SyncReconciler::new(|_, thing: &mut Thing| {
        crate::trail::leave(thing, "sync");
        on()
    });
    let sync = sync.finalize(|_, _| on());
    let reconciler = ResourceReconciler::new("thing", world.config.clone(), sync).finalizer(FINALIZER);
    let run = |reconciler: &ResourceReconciler<Thing>| {
        world.spy.writes();
        let action = reconciler.reconcile(&Context::detached(), Thing::reference().key()).unwrap();
        assert_eq!(action, Action::await_change());
        world.spy.writes()
    };
    assert_eq!(run(&reconciler), [PATCH, "update_status Thing default/web"]);
    assert_eq!(world.thing().unwrap().metadata.finalizers, [FINALIZER]);
    things(&world.spy).delete(Thing::reference().key(), &DeleteOptions::default()).unwrap();
    assert_eq!(run(&reconciler), [PATCH]);
    assert!(world.thing().unwrap_err().is_not_found());
    assert_eq!(run(&reconciler), [""; 0]);

    let world = World::with(&[]);
    let plain = ResourceReconciler::new("thing", world.config.clone(), leaves("step", on));
    assert_eq!(plain.reconcile(&Context::detached(), Thing::reference().key()).unwrap(), Action::await_change());
    assert!(world.thing().unwrap().metadata.finalizers.is_empty());
}
