//! `TryCatch`: the cases of reconciler.io's `reconcilers/flow_test.go`, `TestTryCatch`. There, an error of
//! `finally` hides the error of the body.

use homeostat::run::Cancelled;
use homeostat::{BoxError, terminal};
use homeostat_objects::ClientError;
use homeostat_objects::sub::{Failures, Flow, Sequence, SubContext, SubReconciler, SubResult, TryCatch, quiet};

use crate::support::{Thing, config, spy, step};
use crate::trail::{Returns, both, halts, leave, leaves, never, on, run, seconds};

type Catch = fn(BoxError) -> SubResult;

fn tries(result: Returns) -> TryCatch<Thing> {
    TryCatch::new(leaves("try", result))
}

fn catches(result: Returns, catch: Catch) -> TryCatch<Thing> {
    tries(result).catch(move |_, thing, error| {
        leave(thing, &format!("catch({error})"));
        catch(error)
    })
}

fn fails() -> SubResult {
    Err("try".into())
}

fn in_three() -> SubResult {
    Ok(Flow::requeue_after(seconds(3)))
}

#[test]
fn catch_returns_replaces_or_drops_an_error() {
    assert_eq!(run(&tries(fails)), both("try", "failed: try"));
    assert_eq!(run(&catches(fails, Err)), both("try catch(try)", "failed: try"));
    assert_eq!(run(&catches(fails, |_| on())), both("try catch(try)", "on"));
    assert_eq!(run(&catches(fails, |_| halts())), both("try catch(try)", "halted"));
    assert_eq!(run(&catches(fails, |_| in_three())), both("try catch(try)", "on, again in 3s"));
    assert_eq!(run(&catches(fails, |_| Err("catch".into()))), both("try catch(try)", "failed: catch"));
}

#[test]
fn catch_is_not_called_without_an_error() {
    let unreachable: Catch = |_| unreachable!("not to be called");
    assert_eq!(run(&catches(in_three, unreachable)), both("try", "on, again in 3s"));
    assert_eq!(run(&Sequence::new().then(catches(halts, unreachable)).then(never)), both("try", "halted"));
}

#[test]
fn keeps_delays_of_successful_steps_beside_a_caught_error() {
    let asks_and_fails = || Sequence::new().then(leaves("asks", in_three)).then(leaves("fails", fails));
    let caught = |catch: Catch| run(&TryCatch::new(asks_and_fails()).catch(move |_, _, error| catch(error))).1;
    assert_eq!(caught(Err), "failed: try, again in 3s");
    assert_eq!(caught(|_| on()), "on, again in 3s");
    assert_eq!(caught(|_| Ok(Flow::requeue_after(seconds(9)))), "on, again in 3s");
    assert_eq!(caught(|_| Ok(Flow::halt_and_requeue_after(seconds(1)))), "halted, again in 1s");
    assert_eq!(caught(|_| Err("catch".into())), "failed: catch, again in 3s");
    assert_eq!(caught(|error| Err(quiet(error).into())), "failed: try, again in 3s");
    assert_eq!(caught(|error| Err(terminal(error).into())), "failed: try, again in 3s");
}

#[test]
fn finally_always_runs_and_no_error_is_lost() {
    let in_one: Returns = || Ok(Flow::requeue_after(seconds(1)));
    let fails_at_the_end: Returns = || Err("finally".into());
    for (body, last, expected) in [
        (tries(in_three), on as fn() -> SubResult, both("try finally", "on, again in 3s")),
        (tries(in_three), in_one, both("try finally", "on, again in 1s")),
        (tries(halts), in_one, both("try finally", "halted, again in 1s")),
        (tries(in_three), halts, both("try finally", "halted, again in 3s")),
        (tries(in_three), fails_at_the_end, both("try finally", "failed: finally, again in 3s")),
        (tries(fails), on, both("try finally", "failed: try")),
        (catches(fails, Err), in_one, both("try catch(try) finally", "failed: try, again in 1s")),
        (catches(fails, |_| on()), in_one, both("try catch(try) finally", "on, again in 1s")),
        (catches(fails, |_| on()), fails_at_the_end, both("try catch(try) finally", "failed: finally")),
        (catches(fails, Err), fails_at_the_end, both("try catch(try) finally", "failed: try; finally")),
        (
            catches(fails, |_| Err("catch".into())),
            fails_at_the_end,
            both("try catch(try) finally", "failed: catch; finally"),
        ),
    ] {
        assert_eq!(run(&body.finally(leaves("finally", last))), expected);
    }
}

#[test]
fn keeps_the_type_of_an_error() {
    let (config, _) = config(&spy());
    let returned = |tried: &dyn Fn() -> TryCatch<Thing>| step(&tried(), &config, &mut Thing::new("web")).unwrap_err();
    let aborted = |_: &SubContext<'_>, _: &mut Thing| -> SubResult { Err(Cancelled::Aborted.into()) };
    let permanent = || -> SubResult { Err(terminal("permanent").into()) };
    let error = returned(&|| TryCatch::new(aborted).catch(|_, _, error| Err(error)).finally(leaves("finally", fails)));
    assert_eq!(Failures::find(&*error), Some(&Cancelled::Aborted));
    let error = returned(&|| TryCatch::new(aborted).finally(leaves("finally", permanent)));
    let errors = Failures::find::<Failures>(&*error).unwrap().errors();
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), ["the run was aborted", "permanent"]);
}

#[test]
fn a_mark_does_not_hide_the_type_of_an_error() {
    let missing = || ClientError::not_found(Thing::reference());
    let is_found = |error: BoxError| Failures::find::<ClientError>(&*error).is_some_and(ClientError::is_not_found);
    assert!(is_found(terminal(missing()).into()) && is_found(quiet(missing()).into()));
    let (config, _) = config(&spy());
    let last = move |_: &SubContext<'_>, _: &mut Thing| -> SubResult { Err(terminal(missing()).into()) };
    let several = tries(fails).finally(last);
    assert!(
        is_found(quiet(terminal(missing())).into())
            && is_found(step(&several, &config, &mut Thing::new("web")).unwrap_err())
    );
    assert!(!is_found(quiet("hush").into()));
}

#[test]
fn nested_guards_all_run() {
    let inner = catches(fails, |_| Err("inner".into())).finally(leaves("first", on));
    let outer = TryCatch::new(inner).catch(|_, thing, error| {
        leave(thing, &format!("outer({error})"));
        Ok(Flow::proceed())
    });
    let steps: Box<dyn SubReconciler<Thing>> = Box::new(outer.finally(leaves("last", on)));
    assert_eq!(run(&steps), both("try catch(try) first outer(inner) last", "on"));
}
