//! `While` and `ForEach`: the cases of reconciler.io's `reconcilers/flow_test.go`, `TestWhile` and `TestForEach`.
//! There, a loop that ends exactly at its limit is an error.

use homeostat::{BoxError, Context};
use homeostat_objects::sub::{
    Cursor, EndlessLoop, Failures, Flow, ForEach, ITERATION, Request, Sequence, StashKey, SubContext, SubReconciler,
    SubResult, While,
};

use crate::support::{Thing, config, spy, step};
use crate::trail::{Returns, both, leave, leaves, never, on, run, seconds};

/// A loop with this many passes. Each pass writes its number, and asks for a shorter delay than the previous one.
fn passes(wanted: usize) -> While<Thing> {
    While::new(
        move |cx, _| cx.stashed(ITERATION).unwrap() != wanted,
        |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
            let number = cx.stashed(ITERATION)?;
            thing.spec.insert("passes".to_owned(), (number + 1).to_string());
            Ok(Flow::requeue_after(seconds(999 - number as u64)))
        },
    )
}

#[test]
fn loops_while_the_condition_holds_and_at_most_to_the_limit() {
    for (passes, made, shown) in [
        (passes(0), None, "on".to_owned()),
        (passes(10), Some("10"), "on, again in 990s".to_owned()),
        (passes(100), Some("100"), "on, again in 900s".to_owned()),
        (passes(101), Some("100"), endless(100, 900)),
        (passes(1000), Some("100"), endless(100, 900)),
        (passes(5).at_most(10), Some("5"), "on, again in 995s".to_owned()),
        (passes(10).at_most(10), Some("10"), "on, again in 990s".to_owned()),
        (passes(11).at_most(10), Some("10"), endless(10, 990)),
        (passes(1000).at_most(usize::MAX), Some("1000"), "on, again in 0ns".to_owned()),
        (passes(0).at_most(0), None, "on".to_owned()),
    ] {
        let mut thing = Thing::new("web");
        let (_, returned) = crate::trail::run_of(&passes, &mut thing);
        assert_eq!((thing.spec.get("passes").map(String::as_str), returned), (made, shown));
    }
}

fn endless(most: usize, again: u64) -> String {
    format!("failed: Thing default/web: a loop has not ended after {most} passes, again in {again}s")
}

#[test]
fn an_endless_loop_names_its_object() {
    let (config, _) = config(&spy());
    let error =
        step(&While::new(|_, _| true, leaves("pass", on)).at_most(0), &config, &mut Thing::new("web")).unwrap_err();
    let EndlessLoop { object, at_most, .. } = Failures::find(&*error).unwrap();
    assert_eq!((object, *at_most), (&Thing::reference(), 0));
}

#[test]
fn ends_at_the_first_pass_that_fails_or_halts() {
    let stops = |result: Returns| {
        let body = move |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
            leave(thing, "pass");
            if cx.stashed(ITERATION)? == 2 { result() } else { Ok(Flow::requeue_after(seconds(9))) }
        };
        run(&Sequence::new().then(While::new(|_, _| true, body)).then(never))
    };
    assert_eq!(stops(|| Err("third".into())), both("pass pass pass", "failed: third, again in 9s"));
    assert_eq!(stops(|| Ok(Flow::halt())), both("pass pass pass", "halted, again in 9s"));
    assert_eq!(stops(|| Ok(Flow::halt_and_requeue_after(seconds(1)))), both("pass pass pass", "halted, again in 1s"));
}

/// Writes the number of the innermost loop.
fn numbered(cx: &SubContext<'_>, thing: &mut Thing) -> SubResult {
    let number = cx.stash().get(ITERATION)?;
    leave(thing, &number.map_or_else(|| "none".to_owned(), |number| number.to_string()));
    Ok(Flow::proceed())
}

#[test]
fn nested_loops_have_their_own_numbers_and_remove_them() {
    let times =
        |passes: usize, body: Sequence<Thing>| While::new(move |cx, _| cx.stashed(ITERATION).unwrap() < passes, body);
    let inner = times(2, Sequence::new().then(numbered));
    let outer = times(2, Sequence::new().then(numbered).then(inner).then(numbered));
    let steps = Sequence::new().then(numbered).then(outer).then(numbered);
    assert_eq!(run(&steps), both("none 0 0 1 0 1 0 1 1 none", "on"));
}

const CONTAINER: StashKey<Cursor<(String, String)>> = StashKey::new("container");

fn containers(
    of: &'static [(&str, &str)],
) -> impl Fn(&SubContext<'_>, &Thing) -> Result<Vec<(String, String)>, BoxError> {
    move |_, _| Ok(of.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned())).collect())
}

/// Writes `name=image-index-len`. Fails or halts at the items with these names.
fn each(cx: &SubContext<'_>, thing: &mut Thing) -> SubResult {
    let Cursor { item: (name, image), index, len } = cx.stashed(CONTAINER)?;
    match &*name {
        "die" => return Err("exit early".into()),
        "halt" => return Ok(Flow::halt_and_requeue_after(seconds(1))),
        _ => leave(thing, &format!("{name}={image}-{index}-{len}")),
    }
    Ok(Flow::requeue_after(seconds(60 - index as u64)))
}

#[test]
fn runs_a_pass_for_each_item_until_one_fails_or_halts() {
    let run = |items| run(&ForEach::new(CONTAINER, containers(items), each));
    assert_eq!(run(&[]), both("", "on"));
    assert_eq!(run(&[("hello", "world"), ("foo", "bar")]), both("hello=world-0-2 foo=bar-1-2", "on, again in 59s"));
    let dies = &[("hello", "world"), ("die", "die"), ("foo", "bar")];
    assert_eq!(run(dies), both("hello=world-0-3", "failed: exit early, again in 60s"));
    let halts = &[("hello", "world"), ("halt", ""), ("foo", "bar")];
    assert_eq!(run(halts), both("hello=world-0-3", "halted, again in 1s"));
}

#[test]
fn later_steps_run_unless_a_pass_stops() {
    let behind =
        |items| run(&Sequence::new().then(ForEach::new(CONTAINER, containers(items), each)).then(leaves("behind", on)));
    assert_eq!(behind(&[("a", "1")]).0, "a=1-0-1 behind");
    assert_eq!(behind(&[("halt", "")]).0, "");
    assert_eq!(behind(&[("die", "")]).0, "");
}

#[test]
fn an_error_of_the_items_fails_the_step() {
    let unknown = |_: &SubContext<'_>, _: &Thing| -> Result<Vec<(String, String)>, BoxError> { Err("no items".into()) };
    assert_eq!(run(&ForEach::new(CONTAINER, unknown, never)), both("", "failed: no items"));
}

#[test]
fn removes_the_cursor_and_restores_the_outer_one() {
    let (config, _) = config(&spy());
    let mut thing = Thing::new("web");
    let request = Request::new(&thing, config);
    let cx = Context::detached();
    let cx = SubContext::new("test", &cx, &request);
    let pair = &[("a", "1"), ("b", "2")];
    let inner = ForEach::new(CONTAINER, containers(&[("x", "0"), ("die", "")]), each);
    for (body, left) in [
        (Sequence::new().then(each), "a=1-0-2 b=2-1-2"),
        (
            Sequence::new().then(ForEach::new(CONTAINER, containers(&[("x", "0")]), each)).then(each),
            "x=0-0-1 a=1-0-2 x=0-0-1 b=2-1-2",
        ),
        (Sequence::new().then(inner).then(each), "x=0-0-2"),
    ] {
        thing.status.fields.clear();
        let _ = ForEach::new(CONTAINER, containers(pair), body).reconcile(&cx, &mut thing);
        assert_eq!(crate::trail::trail(&thing), left);
        assert_eq!(request.stash().get(CONTAINER).unwrap(), None);
    }
}
