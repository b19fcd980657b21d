//! The fast paths that most keys take, checked against the rules for every state and request.

use super::*;

const PRIORITIES: [Priority; 3] = Priority::SERVED;
const REASONS: [Reasons; 2] = [Reasons::NONE, Reasons::EVENT];

fn requests() -> impl Iterator<Item = EnqueueRequest> {
    let methods = REQUESTS.into_iter().map(|(method, _)| EnqueueRequest::new(method));
    let at = methods.flat_map(|request| PRIORITIES.map(|priority| request.at(priority)));
    at.flat_map(|request| REASONS.map(|reasons| request.because(reasons)))
}

/// A new record is ready at once exactly if the rule makes an idle record ready without the time.
#[test]
fn a_new_record_is_as_the_rule_for_an_idle_key_makes_it() {
    for request in requests() {
        let short = LineState::new(&request);
        let mut state = RecordState { priority: request.priority, ..RecordState::default() };
        let mut bounds = Bounds::NONE;
        let looked = std::cell::Cell::new(false);
        let decision = state.request(&mut bounds, &request, SOON, || {
            looked.set(true);
            NOW
        });
        if short.phase == Phase::Ready {
            assert_eq!((state, bounds), (RecordState::of(short, DelayState::default()), Bounds::NONE));
            assert_eq!((decision.outcome, looked.get()), (Queued, false), "{request:?}");
        } else {
            assert_eq!(short, LineState { phase: Phase::Idle, ..state.line() }, "{request:?}");
            assert!(looked.get() || request.method == EnqueueMethod::EnqueueAfter(ZERO), "{request:?}");
        }
    }
}

/// A request that is absorbed leaves the record in its list, and the rule has the same outcome.
#[test]
fn an_absorbed_request_is_as_the_rule_serves_it() {
    for is in COLUMNS.into_iter().chain([Is::Cooling(T), Is::Debounced(T)]) {
        for (priority, reasons) in PRIORITIES.into_iter().zip([Reasons::NONE, Reasons::POLL, Reasons::NONE]) {
            for request in requests() {
                let before = RecordState { reasons, priority, ..state(is) };
                let mut line = before.line();
                let Some(outcome) = line.absorb(&request) else {
                    assert_eq!(line, before.line(), "{request:?} of {before:?}");
                    continue;
                };
                let (mut after, mut bounds) = (before, Bounds::NONE);
                let decision = after.request(&mut bounds, &request, SOON, || NOW);
                assert_eq!(decision, outcome.into(), "{request:?} of {before:?}");
                assert_eq!((after, bounds), (RecordState::of(line, before.delay()), Bounds::NONE));
                assert_eq!((after.phase, after.place()), (before.phase, before.place()), "{request:?} of {before:?}");
            }
        }
    }
}

#[test]
fn a_key_is_forgotten_at_once_exactly_if_the_rule_makes_it_idle() {
    let endings = ENDINGS.into_iter().map(|(ending, _)| ending);
    for ending in endings.chain([Ending::PutBack(Reasons::POLL), Ending::Defer(Reasons::POLL, Duration::MAX)]) {
        for rerun in RERUNS.into_iter().chain([Is::Debounced(T)]) {
            for failures in [0, 3] {
                let mut record = RecordState { failures, ..state(rerun) };
                let short = record.line().is_idle_after(ending);
                let dropped = record.end(&mut { Bounds::NONE }, ending, SOON, None, || NOW);
                assert_eq!(dropped, None);
                // A cool-down of zero equals `Done`, but is rare.
                let idle = record.phase == Phase::Idle && ending != Ending::CoolDown(ZERO);
                assert_eq!(short, idle, "{ending:?} with {rerun:?}");
            }
        }
    }
}
