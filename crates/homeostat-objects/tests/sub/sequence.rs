//! `Sequence` and `Always`, and how they combine results.
//!
//! The cases of reconciler.io's `reconcilers/sequence_test.go` and `always_test.go`, and others.

use std::sync::Arc;
use std::time::Duration;

use homeostat::run::Cancelled;
use homeostat::{RequeueAfter, terminal};
use homeostat_objects::ClientError;
use homeostat_objects::sub::{Always, ErrorClass, Failures, Flow, Sequence, SubContext, SubResult, quiet};
use parking_lot::Mutex;

use crate::support::{Thing, config, spy, step};

const MINUTE: Duration = Duration::from_secs(60);

/// A function that makes the result of a step.
type Returns = fn() -> SubResult;

/// The trail of the steps and their combined result.
macro_rules! run {
    ($steps:ident, $returns:expr) => {{
        let taken = Arc::new(Mutex::new(Vec::new()));
        let returns: &[Returns] = $returns;
        let steps = returns.iter().enumerate().fold($steps::new(), |steps, (number, returns)| {
            let (taken, returns) = (Arc::clone(&taken), *returns);
            steps.then(move |_: &SubContext<'_>, _: &mut Thing| -> SubResult {
                taken.lock().push(number);
                returns()
            })
        });
        let result = step(&steps, &config(&spy()).0, &mut Thing::new("web"));
        let taken = taken.lock().clone();
        (taken, result)
    }};
}

fn on() -> SubResult {
    Ok(Flow::proceed())
}

fn soon() -> SubResult {
    Ok(Flow::requeue_after(MINUTE))
}

fn late() -> SubResult {
    Ok(Flow::requeue_after(2 * MINUTE))
}

fn halts() -> SubResult {
    Ok(Flow::halt())
}

fn fails() -> SubResult {
    Err("out of luck".into())
}

fn fails_quietly() -> SubResult {
    Err(quiet("hush").into())
}

fn fails_permanently() -> SubResult {
    Err(terminal("never").into())
}

fn not_yet() -> SubResult {
    Err(RequeueAfter::new(2 * MINUTE, "boots").into())
}

fn class(result: &SubResult) -> ErrorClass {
    ErrorClass::of(&**result.as_ref().unwrap_err())
}

fn text(result: &SubResult) -> String {
    result.as_ref().unwrap_err().to_string()
}

#[test]
fn the_shortest_delay_wins_in_any_order() {
    let cases: [(&[Returns], Option<Duration>); 7] = [
        (&[], None),
        (&[on, on], None),
        (&[soon], Some(MINUTE)),
        (&[soon, on], Some(MINUTE)),
        (&[on, soon], Some(MINUTE)),
        (&[soon, late], Some(MINUTE)),
        (&[late, soon], Some(MINUTE)),
    ];
    for (steps, requeue) in cases {
        for (taken, result) in [run!(Sequence, steps), run!(Always, steps)] {
            assert_eq!(taken, (0..steps.len()).collect::<Vec<_>>());
            let flow = result.unwrap();
            assert_eq!((flow.requeue(), flow.is_halted()), (requeue, false));
        }
    }
}

#[test]
fn a_halt_ends_a_sequence_and_keeps_the_delay() {
    let (taken, result) = run!(Sequence, &[soon, halts, fails]);
    assert_eq!((taken, result.unwrap()), (vec![0, 1], Flow::halt_and_requeue_after(MINUTE)));
}

#[test]
fn always_continues_after_a_halt_or_error_and_passes_the_halt_on() {
    let (taken, result) = run!(Always, &[halts, soon]);
    assert_eq!((taken, result.unwrap()), (vec![0, 1], Flow::halt_and_requeue_after(MINUTE)));
    let (taken, result) = run!(Always, &[fails, halts, on]);
    assert_eq!((taken, text(&result).as_str()), (vec![0, 1, 2], "out of luck"));
}

#[test]
fn an_error_ends_a_sequence_and_keeps_earlier_delays() {
    let (taken, result) = run!(Sequence, &[on, fails, on]);
    assert_eq!((taken, text(&result).as_str()), (vec![0, 1], "out of luck"));
    assert!(result.unwrap_err().downcast_ref::<Failures>().is_none(), "alone it is returned as it is");

    let (_, result) = run!(Sequence, &[late, soon, fails_quietly, fails]);
    assert_eq!((class(&result), text(&result).as_str()), (ErrorClass::Quiet, "hush"));
    assert_eq!(Failures::find::<Failures>(&*result.unwrap_err()).unwrap().requeue(), Some(MINUTE));
}

#[test]
fn the_highest_class_of_several_errors_counts() {
    let cases: [(&[Returns], ErrorClass, &str); 8] = [
        (&[fails, fails], ErrorClass::Transient, "out of luck; out of luck"),
        (&[fails, fails_quietly], ErrorClass::Transient, "out of luck; hush"),
        (&[fails_quietly, fails_quietly], ErrorClass::Quiet, "hush; hush"),
        (&[fails_quietly, fails_permanently], ErrorClass::Durable, "hush; never"),
        (&[fails_permanently, fails], ErrorClass::Transient, "never; out of luck"),
        (&[not_yet, fails_permanently], ErrorClass::Later, "requeue after 120s: boots; never"),
        (&[not_yet, fails], ErrorClass::Transient, "requeue after 120s: boots; out of luck"),
        (&[not_yet, fails_quietly], ErrorClass::Later, "requeue after 120s: boots; hush"),
    ];
    for (steps, expected, message) in cases {
        let (taken, result) = run!(Always, steps);
        assert_eq!(taken, [0, 1]);
        assert_eq!((class(&result), text(&result).as_str()), (expected, message));
    }
}

#[test]
fn errors_of_nested_steps_are_one_list() {
    let inner = |returns: Returns| {
        Always::new()
            .then(move |_: &SubContext<'_>, _: &mut Thing| -> SubResult { returns() })
            .then(|_: &SubContext<'_>, _: &mut Thing| -> SubResult { soon() })
    };
    let steps = Always::new().then(inner(fails)).then(Sequence::new().then(inner(fails_permanently))).then(inner(late));
    let error = step(&steps, &config(&spy()).0, &mut Thing::new("web")).unwrap_err();
    let failures = error.downcast_ref::<Failures>().unwrap();
    let messages: Vec<_> = failures.errors().iter().map(ToString::to_string).collect();
    assert_eq!((messages, failures.requeue()), (vec!["out of luck".to_owned(), "never".to_owned()], Some(MINUTE)));
}

#[test]
fn finds_an_error_among_several() {
    let conflict = || -> SubResult { Err(ClientError::conflict(Thing::reference(), "changed").into()) };
    let (_, result) = run!(Always, &[fails, conflict]);
    let error = result.unwrap_err();
    assert!(Failures::find::<ClientError>(&*error).is_some_and(ClientError::is_conflict));
    assert!(Failures::find::<Cancelled>(&*error).is_none());
    assert!(error.downcast_ref::<ClientError>().is_none());
}

#[test]
fn flows_combine_in_any_order() {
    let flows = [Flow::proceed(), Flow::requeue_after(MINUTE), Flow::halt(), Flow::halt_and_requeue_after(2 * MINUTE)];
    for (one, other) in flows.iter().flat_map(|one| flows.iter().map(move |other| (*one, *other))) {
        assert_eq!(one.and(other), other.and(one));
        assert_eq!(one.and(other).is_halted(), one.is_halted() || other.is_halted());
        assert_eq!(one.and(other).requeue(), one.requeue().into_iter().chain(other.requeue()).min());
    }
}
