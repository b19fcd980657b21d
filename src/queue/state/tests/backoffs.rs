//! Which delay of a failed key is its backoff. Any other delay waits for no floor, and its run is not early.

use super::*;

/// The failures of a key before its claim, a request during the claim, its ending, the minimum interval, two requests.
type Story = (u32, Option<EnqueueMethod>, Ending, Duration, [EnqueueMethod; 2]);

/// Returns the states of the record, with times since `origin`, and the outcomes of the requests.
fn tell(
    (failures, rerun, ending, interval, requests): Story,
    origin: Nanos,
) -> [(RecordState, Option<EnqueueOutcome>); 4] {
    let (mut record, mut bounds) = (RecordState { failures, ..state(Is::No) }, Bounds::default());
    let seen = |record: &RecordState, outcome| {
        let due = match (record.phase, record.due) {
            (Phase::Idle | Phase::Ready, _) => Nanos::ZERO,
            (_, Nanos::NEVER) => Nanos::NEVER,
            (_, due) => Nanos(due.0.saturating_sub(origin.0)),
        };
        (RecordState { due, ..*record }, outcome)
    };
    let during = rerun.map(|method| record.request(&mut bounds, &method.into(), FLOOR, || origin).outcome);
    let claimed = seen(&record, during);
    record.end(&mut bounds, ending, FLOOR, None, || origin);
    if !interval.is_zero() && ending.had_run() {
        record.keep_apart(&mut bounds, interval, origin);
    }
    let ended = seen(&record, None);
    let [first, second] = requests.map(|method| {
        let outcome = record.request(&mut bounds, &method.into(), FLOOR, || origin).outcome;
        seen(&record, Some(outcome))
    });
    [claimed, ended, first, second]
}

/// A held clock begins at zero, which is a time like any other.
#[test]
fn the_rules_do_not_depend_on_the_origin_of_the_clock() {
    let methods = REQUESTS.map(|(method, _)| method);
    let endings = ENDINGS.into_iter().map(|(ending, _)| ending);
    let endings = endings.chain([Ending::PutBack(Reasons::POLL), Ending::Defer(Reasons::POLL, LATE)]);
    for ending in endings {
        for rerun in std::iter::once(None).chain(methods.map(Some)) {
            for (failures, interval) in [(0, ZERO), (3, ZERO), (3, LATE)] {
                for requests in methods.into_iter().flat_map(|first| methods.map(|second| [first, second])) {
                    let story = (failures, rerun, ending, interval, requests);
                    assert_eq!(tell(story, Nanos::ZERO), tell(story, NOW), "{story:?}");
                }
            }
        }
    }
}
