//! The rules outside the tables: failures and early runs, the floor, cool-down, debounce, levels and reasons.

use super::*;

/// Returns a record that backs off until `due` after this many failures.
fn backing_off(failures: u32, due: u64) -> RecordState {
    RecordState { failures, ..state(Is::Delayed(due)) }
}

#[test]
fn a_failed_run_counts_and_any_other_ending_starts_anew() {
    #[rustfmt::skip]
    const CELLS: [(Ending, u32); 8] = [
        (Ending::Done, 0), (Ending::Leave, 0), (Ending::CoolDown(ZERO), 0), (Ending::CoolDown(SOON), 0),
        (Ending::RequeueAfter(ZERO), 0), (Ending::RequeueAfter(SOON), 0), (Ending::Retry(ZERO), 4), (Ending::Retry(SOON), 4),
    ];
    for rerun in RERUNS {
        for (ending, failures) in CELLS {
            let mut record = RecordState { failures: 3, ..state(rerun) };
            end(&mut record, ending);
            assert_eq!(record.failures, failures, "{ending:?} with {rerun:?}");
        }
    }
}

#[test]
fn a_failed_early_run_counts_no_further() {
    let mut record = RecordState { failures: 3, early: true, ..state(Is::No) };
    assert_eq!(record.failures_if_retried(), 3);
    end(&mut record, Ending::Retry(SOON));
    assert_eq!((record.failures, record.early), (3, false));
    assert_eq!(record.failures_if_retried(), 4, "the run after it is not early");

    let mut record = RecordState { failures: u32::MAX, ..state(Is::No) };
    end(&mut record, Ending::Retry(SOON));
    assert_eq!(record.failures, u32::MAX);
}

#[test]
fn a_run_is_early_if_a_request_has_ended_its_backoff() {
    #[rustfmt::skip]
    const CELLS: [(EnqueueMethod, bool); 8] = [
        (EnqueueMethod::EnqueueIfAbsent, false), (EnqueueMethod::Enqueue, false), (EnqueueMethod::EnqueueAfter(SOON), false),
        (EnqueueMethod::EnqueueDebounced { quiet: SOON, max_wait: LATE }, false),
        (EnqueueMethod::EnqueueNow, true), (EnqueueMethod::Reschedule(SOON), true), (EnqueueMethod::Reschedule(ZERO), true),
        (EnqueueMethod::Reschedule(LATE), false),
    ];
    for (method, early) in CELLS {
        let mut record = backing_off(2, T);
        ask(&mut record, method);
        assert_eq!(record.early, early, "{method:?}");
        let mut record = backing_off(0, T);
        ask(&mut record, method);
        assert!(!record.early, "{method:?} of a delay that is no backoff");
    }
}

/// The last of two requests decides. The backoff still ends at `T`.
#[test]
fn a_run_is_early_only_if_it_is_due_before_the_end_of_the_backoff() {
    let (now, sooner, later) =
        (EnqueueMethod::EnqueueNow, EnqueueMethod::Reschedule(SOON), EnqueueMethod::Reschedule(LATE));
    let cells = [
        (now, later, NOW, false),
        (sooner, later, NOW, false),
        (now, sooner, NOW, true),
        (later, now, NOW, true),
        (later, now, Nanos(T), false),
    ];
    for (first, second, time, early) in cells {
        let (mut record, mut bounds) = (backing_off(2, T), Bounds::NONE);
        record.request(&mut bounds, &first.into(), ZERO, || NOW);
        record.request(&mut bounds, &second.into(), ZERO, || time);
        assert_eq!(record.early, early, "{first:?}, then {second:?} at {time:?}");
    }
}

#[test]
fn a_delay_that_is_set_after_the_backoff_is_over_is_no_backoff() {
    for brings_forward in [
        EnqueueMethod::EnqueueNow,
        EnqueueMethod::Reschedule(ZERO),
        EnqueueMethod::EnqueueNowDebounced { quiet: SOON, max_wait: SOON },
    ] {
        let mut bounds = Bounds::NONE;
        let mut ready = RecordState { failures: 2, ..state(Is::Ready) };
        let mut deferred = RecordState { failures: 2, ..state(Is::No) };
        let mut wished = RecordState { failures: 2, ..state(Is::At(T)) };
        end(&mut deferred, Ending::Defer(Reasons::POLL, Duration::MAX));
        for record in [&mut ready, &mut deferred] {
            bounds = Bounds::NONE;
            record.request(&mut bounds, &EnqueueMethod::Reschedule(LATE).into(), FLOOR, || NOW);
            record.request(&mut bounds, &brings_forward.into(), FLOOR, || NOW);
            assert!(!record.early, "{brings_forward:?}");
            assert_eq!(record.failures_if_retried(), 3);
            let is_at_once = !matches!(brings_forward, EnqueueMethod::EnqueueNowDebounced { .. });
            assert_eq!(is(record) == Is::Ready, is_at_once, "{brings_forward:?} waits for no floor");
        }
        let _ = wished.end(&mut bounds, Ending::Defer(Reasons::POLL, Duration::MAX), FLOOR, None, || NOW);
        wished.request(&mut bounds, &brings_forward.into(), FLOOR, || NOW);
        assert!(!wished.early, "{brings_forward:?} of a deferred key with a rerun for a time");
    }
}

#[test]
fn a_rerun_now_makes_the_run_after_a_failure_early() {
    for (rerun, early) in RERUNS.into_iter().zip([false, false, false, false, true]) {
        let mut record = state(rerun);
        end(&mut record, Ending::Retry(SOON));
        assert_eq!((record.failures, record.early), (1, early), "{rerun:?}");
    }
    // The floor is the whole backoff, so the run is not early.
    let mut record = state(Is::Now);
    record.end(&mut { Bounds::NONE }, Ending::Retry(SOON), FLOOR, None, || NOW);
    assert_eq!((is(&record), record.early), (Is::Delayed(1_050), false));
    let mut record = state(Is::Now);
    record.end(&mut { Bounds::NONE }, Ending::Retry(LATE), FLOOR, None, || NOW);
    assert_eq!((is(&record), record.early), (Is::Delayed(1_200), true));
}

#[test]
fn an_early_run_ends_with_the_run() {
    let mut record = RecordState { early: true, ..backing_off(2, T) };
    record.expire();
    take(&mut record);
    assert_eq!((record.failures, record.early), (2, true), "the claim knows");
    for ending in [Ending::Done, Ending::RequeueAfter(SOON), Ending::Retry(SOON)] {
        let mut record = record;
        end(&mut record, ending);
        assert!(!record.early, "{ending:?}");
    }
}

#[test]
fn only_enqueue_now_in_a_backoff_waits_for_the_floor() {
    #[rustfmt::skip]
    const CELLS: [(u32, u64, EnqueueMethod, Is, EnqueueOutcome); 9] = [
        // Without a failure a delay is no backoff.
        (0, T,     EnqueueMethod::EnqueueNow, Is::Ready, Queued),
        (1, T,     EnqueueMethod::EnqueueNow, Is::Delayed(1_200), Scheduled),
        // The backoff ends before the floor or with it, so it stays.
        (1, 1_150, EnqueueMethod::EnqueueNow, Is::Delayed(1_150), Held),
        (1, 1_200, EnqueueMethod::EnqueueNow, Is::Delayed(1_200), Held),
        (1, NEVER, EnqueueMethod::EnqueueNow, Is::Delayed(1_200), Scheduled),
        // The delay is due, but the timer has not expired it yet.
        (1, 1_000, EnqueueMethod::EnqueueNow, Is::Ready, Queued),
        (1, T,     EnqueueMethod::Enqueue, Is::Delayed(T), Held),
        // `reschedule` sets the time itself.
        (1, T,     EnqueueMethod::Reschedule(SOON), Is::Delayed(1_050), Scheduled),
        (1, T,     EnqueueMethod::Reschedule(ZERO), Is::Ready, Queued),
    ];
    for (failures, due, method, after, outcome) in CELLS {
        let mut record = backing_off(failures, due);
        let answered = ask_under_floor(&mut record, method);
        assert_eq!((is(&record), answered), (after, outcome), "{method:?} of {failures} failures until {due}");
    }
}

#[test]
fn a_cool_down_delays_every_method() {
    #[rustfmt::skip]
    const CELLS: [(EnqueueMethod, [(Is, EnqueueOutcome); 3]); 13] = [
        //                             cooling until T                     delayed until T, cooling until 1 200
        //                             ready, cooling until T
        (EnqueueMethod::EnqueueIfAbsent,      [(Is::Delayed(T), Scheduled),         (Is::Delayed(T), Ignored),                 (Is::Ready, Ignored)]),
        (EnqueueMethod::Enqueue,              [(Is::Delayed(T), Scheduled),         (Is::Delayed(T), Held),                    (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueNow,           [(Is::Delayed(T), Scheduled),         (Is::Delayed(1_200), Scheduled),           (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueAfter(ZERO),   [(Is::Delayed(T), Scheduled),         (Is::Delayed(T), Held),                    (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueAfter(SOON),   [(Is::Delayed(T), Scheduled),         (Is::Delayed(T), Held),                    (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueAfter(LATE),   [(Is::Delayed(1_500), Scheduled),     (Is::Delayed(T), Held),                    (Is::Ready, Merged)]),
        (EnqueueMethod::Reschedule(ZERO),     [(Is::Delayed(T), Scheduled),         (Is::Delayed(1_200), Scheduled),           (Is::Delayed(T), Scheduled)]),
        (EnqueueMethod::Reschedule(SOON),     [(Is::Delayed(T), Scheduled),         (Is::Delayed(1_200), Scheduled),           (Is::Delayed(T), Scheduled)]),
        (EnqueueMethod::Reschedule(LATE),     [(Is::Delayed(1_500), Scheduled),     (Is::Delayed(1_500), Scheduled),           (Is::Delayed(1_500), Scheduled)]),
        (EnqueueMethod::EnqueueDebounced { quiet: SOON, max_wait: LATE },
                                     [(Is::Delayed(T), Scheduled),         (Is::Delayed(T), Held),                    (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueDebounced { quiet: LATE, max_wait: LATE },
                                     [(Is::Delayed(1_500), Scheduled),     (Is::Delayed(T), Held),                    (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueNowDebounced { quiet: SOON, max_wait: LATE },
                                     [(Is::Delayed(T), Scheduled),         (Is::Delayed(1_200), Scheduled),           (Is::Ready, Merged)]),
        (EnqueueMethod::EnqueueResync,        [(Is::Delayed(T), Scheduled),         (Is::Delayed(1_200), Scheduled),           (Is::Ready, Ignored)]),
    ];
    let starts = [(Is::Cooling(T), T), (Is::Delayed(T), 1_200), (Is::Ready, T)];
    for (method, cells) in CELLS {
        for ((before, not_before), (after, outcome)) in starts.into_iter().zip(cells) {
            let mut record = state(before);
            let mut bounds = Bounds { not_before: Nanos(not_before), ..Bounds::NONE };
            let decision = record.request(&mut bounds, &method.into(), ZERO, || NOW);
            assert_eq!((is(&record), decision.outcome), (after, outcome), "{method:?} of {before:?}");
            assert_eq!(bounds.not_before, Nanos(not_before), "{method:?} of {before:?}");
        }
    }
}

#[test]
fn a_cool_down_bounds_until_the_next_claim() {
    let mut bounds = Bounds::NONE;
    let mut record = state(Is::No);
    record.end(&mut bounds, Ending::CoolDown(SOON), ZERO, None, || NOW);
    assert_eq!(bounds.not_before, Nanos(1_050));
    record.expire();
    assert_eq!(is(&record), Is::Idle, "nobody wanted it: it is forgotten");

    let mut record = state(Is::Soft);
    record.end(&mut bounds, Ending::CoolDown(SOON), ZERO, None, || NOW);
    record.expire();
    assert_eq!(is(&record), Is::Ready);
}

#[test]
fn cancel_leaves_a_cool_down() {
    #[rustfmt::skip]
    const CELLS: [(Is, u64, Is); 5] = [
        (Is::Cooling(T), T, Is::Cooling(T)), (Is::Delayed(1_500), T, Is::Cooling(T)), (Is::Ready, T, Is::Cooling(T)),
        (Is::Delayed(1_500), 1_000, Is::Idle), (Is::Ready, 900, Is::Idle),
    ];
    for (before, not_before, after) in CELLS {
        let mut record = RecordState { failures: 2, early: true, ..state(before) };
        let mut bounds = Bounds { not_before: Nanos(not_before), cap: Some(Nanos(T)), ..Bounds::NONE };
        record.cancel(&mut bounds, || NOW);
        assert_eq!((is(&record), bounds.cap), (after, None), "{before:?}");
        if let Is::Cooling(_) = after {
            assert_eq!((record.failures, record.early), (0, false), "only the cool-down is remembered");
        }
    }
}

#[test]
fn a_debounced_delay_moves_up_to_its_cap_and_no_other_delay_moves() {
    type Row = (Is, Option<u64>, u64, Is, EnqueueOutcome);
    #[rustfmt::skip]
    const CELLS: [Row; 9] = [
        (Is::Delayed(T), Some(2_000), 400, Is::Delayed(1_400), Scheduled),
        (Is::Delayed(T), Some(2_000), 5_000, Is::Delayed(2_000), Scheduled),
        // A shorter quiet time does not shorten the delay.
        (Is::Delayed(T), Some(2_000), 100, Is::Delayed(T), Held),
        (Is::Delayed(T), Some(T), 5_000, Is::Delayed(T), Held),
        (Is::Delayed(T), None, 5_000, Is::Delayed(T), Held),
        (Is::At(T), Some(2_000), 400, Is::At(1_400), Rerun),
        (Is::At(T), Some(2_000), 5_000, Is::At(2_000), Rerun),
        (Is::At(T), Some(2_000), 100, Is::At(T), Rerun),
        (Is::At(T), None, 5_000, Is::At(T), Rerun),
    ];
    let debounced = |quiet| EnqueueMethod::EnqueueDebounced {
        quiet: Duration::from_nanos(quiet),
        max_wait: Duration::from_nanos(9_999),
    };
    for (before, cap, quiet, after, outcome) in CELLS {
        let mut record = state(before);
        let mut bounds = Bounds { cap: cap.map(Nanos), ..Bounds::NONE };
        let decision = record.request(&mut bounds, &debounced(quiet).into(), ZERO, || NOW);
        assert_eq!((is(&record), decision.outcome), (after, outcome), "{before:?} up to {cap:?} by {quiet}");
        assert_eq!(bounds.cap, cap.map(Nanos), "the cap stays");
    }
}

/// A debounced rerun is scheduled like a rerun at its time, but a backoff delays it only up to the floor. Later changes
/// delay it up to the run that it is merged with.
#[test]
fn a_debounced_change_during_a_run_ignores_a_requeue_and_respects_the_floor() {
    type Row = (Ending, Is, Is, Option<u64>, bool);
    #[rustfmt::skip]
    const CELLS: [Row; 9] = [
        //                                       pending rerun               after              cap           early
        (Ending::Done,                          Is::Debounced(T),      Is::Delayed(T),     Some(2_000), false),
        (Ending::CoolDown(LATE),                Is::Debounced(T),      Is::Delayed(1_500), Some(2_000), false),
        (Ending::RequeueAfter(LATE),            Is::Debounced(T),      Is::Delayed(T),     Some(1_500), false),
        (Ending::RequeueAfter(SOON),            Is::Debounced(T),      Is::Delayed(1_050), Some(1_050), false),
        (Ending::RequeueAfter(Duration::MAX),   Is::Debounced(T),      Is::Delayed(T),     Some(2_000), false),
        (Ending::Retry(LATE),                   Is::Debounced(T),      Is::Delayed(T),     Some(1_500), true),
        (Ending::Retry(LATE),                   Is::Debounced(1_050),  Is::Delayed(1_200), Some(1_500), true),
        (Ending::Retry(SOON),                   Is::Debounced(T),      Is::Delayed(1_050), Some(1_050), false),
        (Ending::Retry(Duration::MAX),          Is::Debounced(T),      Is::Delayed(T),     Some(2_000), true),
    ];
    for (ending, rerun, after, cap, early) in CELLS {
        let mut record = state(rerun);
        let mut bounds = Bounds { cap: Some(Nanos(2_000)), ..Bounds::NONE };
        record.end(&mut bounds, ending, FLOOR, None, || NOW);
        assert_eq!(
            (is(&record), bounds.cap, record.early),
            (after, cap.map(Nanos), early),
            "{ending:?} with {rerun:?}"
        );
    }
}

/// A debounced change extends its own delay up to the cap, and shortens the delay of another method. It respects the
/// floor of a backoff. A run that is due within the longest wait is not delayed.
#[test]
fn a_debounced_change_brings_other_delays_forward() {
    type Row = (Is, u32, Option<u64>, u64, u64, Is, Option<u64>);
    #[rustfmt::skip]
    const CELLS: [Row; 12] = [
        // before          failures  cap         quiet  wait   after               cap
        (Is::Delayed(T),     0, None,        100,   5_000, Is::Delayed(1_100), Some(T)),
        (Is::Delayed(T),     0, None,        400,   5_000, Is::Delayed(T),     Some(T)),
        (Is::Delayed(9_000), 0, None,        100,   5_000, Is::Delayed(1_100), Some(6_000)),
        (Is::Delayed(9_000), 0, None,        0,     5_000, Is::Ready,          Some(6_000)),
        (Is::Delayed(NEVER), 0, None,        5_000, 5_000, Is::Delayed(6_000), Some(6_000)),
        (Is::Delayed(T),     0, Some(2_000), 400,   5_000, Is::Delayed(1_400), Some(2_000)),
        (Is::Delayed(T),     0, Some(2_000), 5_000, 5_000, Is::Delayed(2_000), Some(2_000)),
        (Is::Delayed(T),     0, Some(2_000), 100,   5_000, Is::Delayed(T),     Some(2_000)),
        // Another debounce with a longer wait.
        (Is::Delayed(9_000), 0, Some(9_000), 100,   500,   Is::Delayed(1_500), Some(1_500)),
        (Is::Delayed(9_000), 2, None,        100,   5_000, Is::Delayed(1_200), Some(6_000)),
        (Is::Delayed(9_000), 2, None,        100,   150,   Is::Delayed(1_200), Some(1_200)),
        (Is::Delayed(1_150), 2, None,        100,   5_000, Is::Delayed(1_150), Some(1_150)),
    ];
    for (before, failures, cap, quiet, wait, after, cap_after) in CELLS {
        let mut record = RecordState { failures, ..state(before) };
        let mut bounds = Bounds { cap: cap.map(Nanos), ..Bounds::NONE };
        let (quiet, max_wait) = (Duration::from_nanos(quiet), Duration::from_nanos(wait));
        let method = EnqueueMethod::EnqueueNowDebounced { quiet, max_wait };
        record.request(&mut bounds, &method.into(), FLOOR, || NOW);
        let found = (is(&record), bounds.cap);
        assert_eq!(found, (after, cap_after.map(Nanos)), "{before:?} up to {cap:?}: {quiet:?}, {max_wait:?}");
        assert_eq!(record.early, failures > 0 && after != before);
    }
}

#[test]
fn a_resync_ends_only_plain_delays() {
    let idle = state(Is::Delayed(T));
    let cells = [
        (idle, None, Is::Ready, Queued),
        (RecordState { failures: 1, ..idle }, None, Is::Delayed(T), Ignored),
        (RecordState { deferral: Deferral::Deferred, ..idle }, None, Is::Delayed(T), Ignored),
        (idle, Some(2_000), Is::Delayed(T), Ignored),
    ];
    for (mut record, cap, after, outcome) in cells {
        let before = record;
        let mut bounds = Bounds { cap: cap.map(Nanos), ..Bounds::NONE };
        let request = EnqueueRequest::new(EnqueueMethod::EnqueueResync).at(Priority::High).because(Reasons::RESYNC);
        let decision = record.request(&mut bounds, &request, FLOOR, || NOW);
        assert_eq!((is(&record), decision.outcome), (after, outcome), "{before:?}");
        if outcome == Ignored {
            assert_eq!(record, before, "an ignored request leaves no trace");
        }
    }
}

/// A run scheduled by another method is not debounced, so it is not delayed.
#[test]
fn runs_scheduled_by_other_methods_are_not_debounced() {
    #[rustfmt::skip]
    const CELLS: [(Is, EnqueueMethod, Option<u64>); 10] = [
        (Is::Delayed(T), EnqueueMethod::Enqueue, Some(2_000)), (Is::Delayed(T), EnqueueMethod::EnqueueNow, None),
        (Is::Delayed(T), EnqueueMethod::Reschedule(SOON), None), (Is::Delayed(T), EnqueueMethod::EnqueueIfAbsent, Some(2_000)),
        (Is::Ready, EnqueueMethod::Reschedule(SOON), None),
        (Is::At(T), EnqueueMethod::Enqueue, Some(2_000)), (Is::At(T), EnqueueMethod::EnqueueNow, None),
        (Is::At(T), EnqueueMethod::Reschedule(SOON), None), (Is::At(T), EnqueueMethod::EnqueueAfter(SOON), Some(2_000)),
        (Is::At(T), EnqueueMethod::EnqueueIfAbsent, Some(2_000)),
    ];
    for (before, method, cap) in CELLS {
        let mut bounds = Bounds { cap: Some(Nanos(2_000)), ..Bounds::NONE };
        state(before).request(&mut bounds, &method.into(), ZERO, || NOW);
        assert_eq!(bounds.cap, cap.map(Nanos), "{method:?} of {before:?}");
    }
    for (ending, cap) in [(Ending::Done, Some(2_000)), (Ending::RequeueAfter(SOON), None), (Ending::Retry(SOON), None)]
    {
        let mut bounds = Bounds { cap: Some(Nanos(2_000)), ..Bounds::NONE };
        state(Is::At(T)).end(&mut bounds, ending, ZERO, None, || NOW);
        assert_eq!(bounds.cap, cap.map(Nanos), "{ending:?}");
    }
}

/// An `enqueue_now` that waits for a cool-down or the floor has its own time, so it is not delayed further.
#[test]
fn enqueue_now_ends_the_debounce_of_a_delay_that_cannot_come_sooner() {
    let mut bounds = Bounds { not_before: Nanos(T), cap: Some(Nanos(2_000)), ..Bounds::NONE };
    let mut record = state(Is::Delayed(T));
    let decision = record.request(&mut bounds, &EnqueueMethod::EnqueueNow.into(), ZERO, || NOW);
    assert_eq!((is(&record), decision.outcome, bounds.cap), (Is::Delayed(T), Held, None));
}

#[test]
fn a_request_raises_the_level_and_never_lowers_it() {
    use Priority::{High, Low, Normal};
    #[rustfmt::skip]
    const CELLS: [(Priority, Priority, Priority); 9] = [
        (Low, Low, Low), (Low, Normal, Normal), (Low, High, High),
        (Normal, Low, Normal), (Normal, Normal, Normal), (Normal, High, High),
        (High, Low, High), (High, Normal, High), (High, High, High),
    ];
    for (method, _) in REQUESTS {
        for before in COLUMNS.into_iter().filter(|&before| before != Is::Idle) {
            for (from, by, raised) in CELLS {
                let mut record = RecordState { priority: from, ..state(before) };
                record.request(&mut { Bounds::NONE }, &EnqueueRequest::new(method).at(by), ZERO, || NOW);
                let ignored = match method {
                    EnqueueMethod::EnqueueIfAbsent => true,
                    EnqueueMethod::EnqueueResync => before != Is::Delayed(T),
                    _ => false,
                };
                let expected = if ignored { from } else { raised };
                assert_eq!(record.priority, expected, "{method:?} of {before:?} at {by:?}");
            }
        }
        // An idle key takes the level of the request, also during a cool-down.
        for by in [Low, Normal, High] {
            let mut record = RecordState { priority: by, ..RecordState::default() };
            record.request(&mut { Bounds::NONE }, &EnqueueRequest::new(method).at(by), ZERO, || NOW);
            assert_eq!(record.priority, by);
            let mut record = RecordState { priority: High, ..state(Is::Cooling(T)) };
            let mut bounds = Bounds { not_before: Nanos(T), ..Bounds::NONE };
            record.request(&mut bounds, &EnqueueRequest::new(method).at(by), ZERO, || NOW);
            assert_eq!(record.priority, by);
        }
    }
}

#[test]
fn reasons_are_merged_unless_a_request_is_ignored() {
    for (method, cells) in REQUESTS {
        for (before, (_, outcome)) in COLUMNS.into_iter().zip(cells) {
            let mut record = RecordState { reasons: Reasons::POLL, ..state(before) };
            record.request(&mut { Bounds::NONE }, &EnqueueRequest::new(method).because(Reasons::user(4)), ZERO, || NOW);
            let expected = if outcome == Ignored { Reasons::POLL } else { Reasons::POLL | Reasons::user(4) };
            assert_eq!(record.reasons, expected, "{method:?} of {before:?}");
        }
    }
}

#[test]
fn an_ending_adds_its_own_reason_and_a_claim_takes_all() {
    #[rustfmt::skip]
    const CELLS: [(Ending, Reasons); 5] = [
        (Ending::Done, Reasons::NONE), (Ending::Leave, Reasons::NONE), (Ending::CoolDown(SOON), Reasons::NONE),
        (Ending::RequeueAfter(SOON), Reasons::REQUEUE), (Ending::Retry(SOON), Reasons::RETRY),
    ];
    for (ending, own) in CELLS {
        for rerun in [Is::Soft, Is::At(T), Is::Now] {
            let mut record = RecordState { reasons: Reasons::EVENT, ..state(rerun) };
            end(&mut record, ending);
            assert_eq!(record.reasons, Reasons::EVENT | own, "{ending:?}");
            record.expire();
            assert_eq!(take(&mut record), Reasons::EVENT | own);
            assert_eq!((is(&record), record.reasons), (Is::No, Reasons::NONE));
        }
    }
}

#[test]
fn time_readies_a_delay_and_forgets_a_cool_down_and_nothing_else() {
    #[rustfmt::skip]
    const CELLS: [(Is, Is); 8] = [
        (Is::Idle, Is::Idle), (Is::Cooling(T), Is::Idle), (Is::Ready, Is::Ready), (Is::Delayed(T), Is::Ready),
        (Is::No, Is::No), (Is::Soft, Is::Soft), (Is::At(T), Is::At(T)), (Is::Now, Is::Now),
    ];
    for (before, after) in CELLS {
        let mut record = state(before);
        record.expire();
        assert_eq!(is(&record), after);
    }
}
