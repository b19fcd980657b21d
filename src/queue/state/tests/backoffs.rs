//! Which delay of a failed key is its backoff. Any other delay waits for no floor, and its run is not early.

use super::*;

/// An interval of `interval` follows the end of a claim.
fn end_apart(failed: RecordState, ending: Ending, interval: Duration) -> (RecordState, Bounds) {
    let (mut record, mut bounds) = (failed, Bounds::NONE);
    assert_eq!(record.end(&mut bounds, ending, FLOOR, None, || NOW), None);
    record.keep_apart(&mut bounds, interval, NOW);
    (record, bounds)
}

/// The interval is 500, so it ends at 1,500.
#[test]
fn a_run_after_the_minimum_interval_is_early_only_if_its_backoff_has_not_ended() {
    #[rustfmt::skip]
    const CELLS: [(Is, u64, u64, bool); 9] = [
        // rerun                backoff  due    early
        (Is::No,                100,     1_500, false),
        (Is::No,                900,     1_900, false),
        (Is::Now,               0,       1_500, false),
        (Is::Now,               100,     1_500, false),
        (Is::Now,               300,     1_500, false),
        (Is::Now,               500,     1_500, false),
        (Is::Now,               501,     1_500, true),
        (Is::Debounced(T),      500,     1_500, false),
        (Is::Debounced(T),      501,     1_500, true),
    ];
    for failures in [0, 3] {
        for (rerun, backoff, due, early) in CELLS {
            let failed = RecordState { failures, ..state(rerun) };
            let (record, _) = end_apart(failed, Ending::Retry(Duration::from_nanos(backoff)), LATE);
            assert_eq!((is(&record), record.early), (Is::Delayed(due), early), "{rerun:?}, backoff of {backoff}");
            assert_eq!(
                record.failures_if_retried(),
                failures + 2 - u32::from(early),
                "{rerun:?}, backoff of {backoff}"
            );
        }
    }
}

/// No request ends the interval, but one that ends a later delay waits only for the interval.
#[test]
fn a_failed_key_waits_for_the_floor_only_until_its_backoff_ends() {
    #[rustfmt::skip]
    const CELLS: [(Ending, u64, u64); 6] = [
        // ending                                   asked at  due
        (Ending::Retry(ZERO),                       1_000,    1_500),
        (Ending::Retry(ZERO),                       1_400,    1_500),
        (Ending::Retry(Duration::from_nanos(400)),  1_399,    1_599),
        (Ending::Retry(Duration::from_nanos(400)),  1_400,    1_500),
        (Ending::Retry(Duration::from_nanos(900)),  1_400,    1_600),
        (Ending::PutBack(Reasons::POLL),            1_400,    1_500),
    ];
    let brings_forward = [
        EnqueueMethod::EnqueueNow,
        EnqueueMethod::EnqueueNowDebounced { quiet: ZERO, max_wait: ZERO },
        EnqueueMethod::EnqueueNowDebounced { quiet: ZERO, max_wait: LATE },
        EnqueueMethod::EnqueueNowDebounced { quiet: LATE, max_wait: ZERO },
    ];
    let later = EnqueueMethod::Reschedule(Duration::from_secs(1));
    for method in brings_forward {
        for (ending, time, due) in CELLS {
            let (mut record, mut bounds) = end_apart(RecordState { failures: 3, ..state(Is::No) }, ending, LATE);
            let earliest = record.due;
            record.request(&mut bounds, &method.into(), FLOOR, || Nanos(time));
            assert!(record.due <= earliest && record.due >= bounds.not_before, "{method:?} after {ending:?}");
            record.request(&mut bounds, &later.into(), FLOOR, || Nanos(time));
            assert!(!record.early, "{method:?} after {ending:?}");
            record.request(&mut bounds, &method.into(), FLOOR, || Nanos(time));
            assert_eq!(is(&record), Is::Delayed(due), "{method:?} at {time} after {ending:?}");
        }
    }
}

#[test]
fn a_key_that_is_put_back_waits_for_the_minimum_interval_and_stays_early() {
    for early in [false, true] {
        let failed = RecordState { failures: 3, early, ..state(Is::No) };
        let (record, _) = end_apart(failed, Ending::PutBack(Reasons::POLL), LATE);
        assert_eq!((is(&record), record.failures, record.early), (Is::Delayed(1_500), 3, early));
    }
}

/// The failures of a key before its claim, a request during the claim, its ending, the minimum interval, two requests.
type Story = (u32, Option<EnqueueMethod>, Ending, Duration, [EnqueueMethod; 2]);

/// Returns the states of the record, with times since `origin`, and the outcomes of the requests.
fn tell(
    (failures, rerun, ending, interval, requests): Story,
    origin: Nanos,
) -> [(RecordState, Option<EnqueueOutcome>); 4] {
    let (mut record, mut bounds) = (RecordState { failures, ..state(Is::No) }, Bounds::NONE);
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
