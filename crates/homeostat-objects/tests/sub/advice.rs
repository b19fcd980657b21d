//! `Advice`: the cases of reconciler.io's `reconcilers/advice_test.go`.

use homeostat_objects::sub::{Advice, Flow, StashKey, SubContext, SubResult};

use crate::support::Thing;
use crate::trail::{Returns, both, halts, leave, leaves, never, on, run, seconds};

const MESSAGE: StashKey<String> = StashKey::new("message");

fn in_two() -> SubResult {
    Ok(Flow::requeue_after(seconds(2)))
}

fn fails() -> SubResult {
    Err("test".into())
}

#[test]
fn calls_a_step_without_advice_once() {
    assert_eq!(run(&Advice::new(leaves("step", in_two))), both("step", "on, again in 2s"));
    assert_eq!(run(&Advice::new(leaves("step", fails))), both("step", "failed: test"));
    assert_eq!(run(&Advice::new(leaves("step", halts))), both("step", "halted"));
}

#[test]
fn passes_stashed_values_from_before_to_the_step() {
    let says = |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        leave(thing, &cx.stashed(MESSAGE)?);
        Ok(Flow::proceed())
    };
    let advice = Advice::new(says).before(|cx, _| {
        cx.stash().put(MESSAGE, "hello world".to_owned());
        Ok(Flow::proceed())
    });
    assert_eq!(run(&advice), both("hello world", "on"));
}

#[test]
fn combines_the_delay_of_before_with_the_result_of_the_step() {
    let asks =
        |step: Returns| run(&Advice::new(leaves("step", step)).before(|_, _| Ok(Flow::requeue_after(seconds(5))))).1;
    assert_eq!(asks(on), "on, again in 5s");
    assert_eq!(asks(in_two), "on, again in 2s");
    assert_eq!(asks(halts), "halted, again in 5s");
    assert_eq!(asks(fails), "failed: test, again in 5s");
}

#[test]
fn stops_after_a_failure_or_halt_of_before() {
    let stops = |before: Returns| {
        let advice = Advice::new(never).before(move |_, _| before());
        run(&advice.around(|_, _, _| unreachable!()).after(|_, _, _| unreachable!()))
    };
    assert_eq!(stops(fails), both("", "failed: test"));
    assert_eq!(stops(|| Ok(Flow::halt_and_requeue_after(seconds(1)))), both("", "halted, again in 1s"));
}

#[test]
fn around_calls_the_step_any_number_of_times() {
    let never_called = Advice::new(never).around(|_, _, _| Ok(Flow::proceed()));
    assert_eq!(run(&never_called), both("", "on"));

    let twice = Advice::new(leaves("step", in_two)).around(|cx, thing, step| {
        leave(thing, "around");
        Ok(step.reconcile(cx, thing)?.and(step.reconcile(cx, thing)?))
    });
    assert_eq!(run(&twice), both("around step step", "on, again in 2s"));

    let other = Advice::new(never)
        .around(|cx, thing, _| homeostat_objects::sub::SubReconciler::reconcile(&leaves("other", fails), cx, thing));
    assert_eq!(run(&other), both("other", "failed: test"));
}

#[test]
fn after_gets_the_result_and_replaces_it() {
    let after = |step: Returns, last: fn(SubResult) -> SubResult| {
        let advice = Advice::new(leaves("step", step)).before(|_, _| Ok(Flow::requeue_after(seconds(5))));
        run(&advice.after(move |_, thing, result| {
            leave(thing, &format!("after({})", crate::trail::shown(&result)));
            last(result)
        }))
    };
    assert_eq!(after(fails, |_| in_two()), both("step after(failed: test, again in 5s)", "on, again in 2s"));
    assert_eq!(after(in_two, |result| result), both("step after(on, again in 2s)", "on, again in 2s"));
    assert_eq!(after(on, |_| fails()), both("step after(on, again in 5s)", "failed: test"));
    assert_eq!(after(halts, |result| result), both("step after(halted, again in 5s)", "halted, again in 5s"));
}
