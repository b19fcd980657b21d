//! `IfThen`: the cases of reconciler.io's `reconcilers/flow_test.go`, `TestIfThen`.

use homeostat_objects::sub::{Flow, IfThen, Sequence, SubContext, SubResult};

use crate::support::Thing;
use crate::trail::{Returns, both, halts, leaves, never, on, run, run_of, seconds};

fn chooses(then: Returns, or_else: Returns) -> [IfThen<Thing>; 2] {
    [true, false].map(|holds| IfThen::new(move |_, _| holds, leaves("then", then)).or_else(leaves("else", or_else)))
}

#[test]
fn returns_the_result_of_one_of_two_steps() {
    let [then, or_else] = chooses(|| Ok(Flow::requeue_after(seconds(1))), || Ok(Flow::requeue_after(seconds(2))));
    assert_eq!(run(&then), both("then", "on, again in 1s"));
    assert_eq!(run(&or_else), both("else", "on, again in 2s"));

    let [then, or_else] = chooses(|| Err("then error".into()), || Err("else error".into()));
    assert_eq!(run(&then), both("then", "failed: then error"));
    assert_eq!(run(&or_else), both("else", "failed: else error"));

    let [then, or_else] = chooses(halts, || Ok(Flow::halt_and_requeue_after(seconds(2))));
    assert_eq!(run(&Sequence::new().then(then).then(never)), both("then", "halted"));
    assert_eq!(run(&Sequence::new().then(or_else).then(never)), both("else", "halted, again in 2s"));
}

#[test]
fn calls_nothing_without_an_alternative() {
    assert_eq!(run(&IfThen::new(|_, _| false, never)), both("", "on"));
    assert_eq!(run(&IfThen::new(|_, _| true, leaves("then", on))), both("then", "on"));
}

#[test]
fn evaluates_the_condition_on_the_current_object() {
    let is_marked = |_: &SubContext<'_>, thing: &Thing| thing.spec.contains_key("mark");
    let mark = |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        thing.spec.insert("mark".to_owned(), String::new());
        Ok(Flow::proceed())
    };
    let steps = || IfThen::new(is_marked, leaves("marked", on)).or_else(leaves("bare", on));
    let steps = Sequence::new().then(steps()).then(mark).then(steps());
    assert_eq!(run_of(&steps, &mut Thing::new("web")), both("bare marked", "on"));
}
