//! `SyncReconciler`: which closures it calls for live objects and for objects that are being
//! deleted.
//!
//! The cases of reconciler.io's `reconcilers/sync_test.go`.

use std::sync::Arc;
use std::time::Duration;

use homeostat_objects::sub::{Flow, SubContext, SubResult, SyncReconciler};
use parking_lot::Mutex;

use crate::support::{Thing, config, spy, step};

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

fn living() -> Thing {
    Thing::new("web")
}

fn deleting() -> Thing {
    let mut thing = living();
    thing.metadata.deletion_timestamp = Some("2026-05-01T08:00:00Z".parse().unwrap());
    thing.metadata.finalizers = vec!["example.com/f".to_owned()];
    thing
}

type Calls = Arc<Mutex<Vec<&'static str>>>;

fn noting(
    calls: &Calls,
    call: &'static str,
    returns: fn() -> SubResult,
) -> impl Fn(&SubContext<'_>, &mut Thing) -> SubResult + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |_cx, _thing| {
        calls.lock().push(call);
        returns()
    }
}

/// The closures called for an object, and the result.
fn run(
    mut thing: Thing,
    sync: fn() -> SubResult,
    finalize: fn() -> SubResult,
    both: bool,
) -> (Vec<&'static str>, SubResult) {
    let calls = Calls::default();
    let mut reconciler =
        SyncReconciler::new(noting(&calls, "sync", sync)).finalize(noting(&calls, "finalize", finalize));
    if both {
        reconciler = reconciler.also_while_deleting();
    }
    let result = step(&reconciler, &config(&spy()).0, &mut thing);
    let calls = calls.lock().clone();
    (calls, result)
}

fn on() -> SubResult {
    Ok(Flow::proceed())
}

fn fails() -> SubResult {
    Err("out of luck".into())
}

#[test]
fn calls_sync_or_finalize_or_both() {
    for (thing, both, expected) in [
        (living(), false, &["sync"][..]),
        (living(), true, &["sync"]),
        (deleting(), false, &["finalize"]),
        (deleting(), true, &["sync", "finalize"]),
    ] {
        let (calls, result) = run(thing, on, on, both);
        assert_eq!((&*calls, result.unwrap()), (expected, Flow::proceed()));
    }
}

#[test]
fn the_shorter_delay_wins() {
    let soon = || Ok(Flow::requeue_after(SHORT));
    let late = || Ok(Flow::requeue_after(LONG));
    for (sync, finalize) in [(soon as fn() -> SubResult, late as fn() -> SubResult), (late, soon)] {
        assert_eq!(run(deleting(), sync, finalize, true).1.unwrap().requeue(), Some(SHORT));
    }
    assert_eq!(run(living(), late, soon, true).1.unwrap().requeue(), Some(LONG));
}

#[test]
fn skips_finalize_after_an_error_or_halt_of_sync() {
    let (calls, result) = run(deleting(), fails, on, true);
    assert_eq!((&*calls, result.unwrap_err().to_string().as_str()), (&["sync"][..], "out of luck"));
    let (calls, result) = run(deleting(), || Ok(Flow::halt()), on, true);
    assert_eq!((&*calls, result.unwrap()), (&["sync"][..], Flow::halt()));
}

#[test]
fn returns_errors_and_halts() {
    assert_eq!(run(living(), fails, on, false).1.unwrap_err().to_string(), "out of luck");
    assert_eq!(run(deleting(), on, fails, false).1.unwrap_err().to_string(), "out of luck");
    assert!(run(living(), || Ok(Flow::halt()), on, false).1.unwrap().is_halted());
    assert!(run(deleting(), on, || Ok(Flow::halt()), false).1.unwrap().is_halted());
}

#[test]
fn finalize_is_optional() {
    let reconciler = SyncReconciler::new(|_: &SubContext<'_>, _: &mut Thing| unreachable!());
    assert_eq!(step(&reconciler, &config(&spy()).0, &mut deleting()).unwrap(), Flow::proceed());
}

#[test]
fn a_step_changes_the_object_and_knows_its_name() {
    let reconciler = SyncReconciler::new(|cx: &SubContext<'_>, thing: &mut Thing| {
        thing.status.fields.insert("name".to_owned(), cx.name().to_owned());
        assert_eq!((cx.object(), cx.key()), (&Thing::reference(), Thing::reference().key()));
        Ok(Flow::proceed())
    })
    .named("image");
    let mut thing = living();
    let _ = step(&reconciler, &config(&spy()).0, &mut thing).unwrap();
    assert_eq!(thing.status.fields["name"], "test.image");
}
