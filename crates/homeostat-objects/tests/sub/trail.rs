//! Steps that leave a trail in the thing, and results as text.

use std::time::Duration;

use homeostat::BoxError;
use homeostat_objects::sub::{Failures, Flow, SubContext, SubReconciler, SubResult};

use crate::support::{Thing, config, spy, step};
use homeostat::rt::Chain;

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A function that makes the result of a step.
pub(crate) type Returns = fn() -> SubResult;

/// A step that leaves this mark and returns this result.
pub(crate) fn leaves(mark: &'static str, result: Returns) -> impl SubReconciler<Thing> + 'static {
    move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        leave(thing, mark);
        result()
    }
}

pub(crate) fn leave(thing: &mut Thing, mark: &str) {
    let trail = thing.status.fields.entry("trail".to_owned()).or_default();
    if !trail.is_empty() {
        trail.push(' ');
    }
    trail.push_str(mark);
}

pub(crate) fn trail(thing: &Thing) -> &str {
    thing.status.fields.get("trail").map_or("", |trail| trail)
}

pub(crate) fn on() -> SubResult {
    Ok(Flow::proceed())
}

pub(crate) fn halts() -> SubResult {
    Ok(Flow::halt())
}

pub(crate) fn never(_: &SubContext<'_>, _: &mut Thing) -> SubResult {
    unreachable!("not to be called")
}

/// Shows a result: `on`, `halted` or `failed: this; that`, and a delay as `, again in 1s`.
pub(crate) fn shown(result: &SubResult) -> String {
    let (what, requeue) = match result {
        Ok(flow) if flow.is_halted() => ("halted".to_owned(), flow.requeue()),
        Ok(flow) => ("on".to_owned(), flow.requeue()),
        Err(error) => (format!("failed: {}", Chain(&**error)), asked(error)),
    };
    what + &requeue.map_or_else(String::new, |delay| format!(", again in {delay:?}"))
}

fn asked(error: &BoxError) -> Option<Duration> {
    Failures::find::<Failures>(&**error).and_then(Failures::requeue)
}

/// Runs a step once. Returns its trail and its result.
pub(crate) fn run(tried: &impl SubReconciler<Thing>) -> (String, String) {
    run_of(tried, &mut Thing::new("web"))
}

pub(crate) fn run_of(tried: &impl SubReconciler<Thing>, thing: &mut Thing) -> (String, String) {
    let (config, _) = config(&spy());
    let result = step(tried, &config, thing);
    (trail(thing).to_owned(), shown(&result))
}

pub(crate) fn both(trail: &str, shown: &str) -> (String, String) {
    (trail.to_owned(), shown.to_owned())
}
