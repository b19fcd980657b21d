//! The tables of the contract, cell by cell. Every expected cell is written out. The rules outside the tables
//! (failures, floor, cool-down, debounce, levels, reasons) are in `rules`, `backoffs` and `deferred`.

mod backoffs;
mod deferred;
mod rules;
mod short_ways;

use std::time::Duration;

use super::*;
use crate::queue::request::{DroppedRun, Shutdown};
use EnqueueOutcome::{Held, Ignored, Merged, Queued, Rerun, Scheduled};

impl RecordState {
    /// Applies a request. It cannot shorten a backoff below `floor`.
    pub(crate) fn request(
        &mut self,
        bounds: &mut Bounds,
        request: &EnqueueRequest,
        floor: Duration,
        now: impl Fn() -> Nanos,
    ) -> Decision {
        let mut line = self.line();
        if let Some(outcome) = line.absorb(request) {
            *self = Self::of(line, self.delay());
            return outcome.into();
        }
        self.request_unabsorbed(bounds, request, floor, now)
    }
}

/// The time of all requests and endings, unless a test sets another.
const NOW: Nanos = Nanos(1_000);
/// The end of a pending delay or rerun.
const T: u64 = 1_300;
/// Requested delays: shorter than the pending one, and longer.
const SOON: Duration = Duration::from_nanos(50);
const LATE: Duration = Duration::from_nanos(500);
const ZERO: Duration = Duration::ZERO;
const FLOOR: Duration = Duration::from_nanos(200);

/// The state of a record in the words of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Idle,
    Cooling(u64),
    Ready,
    Delayed(u64),
    No,
    Soft,
    At(u64),
    Debounced(u64),
    Now,
}

/// The columns of the first table.
const COLUMNS: [Is; 7] = [Is::Idle, Is::Ready, Is::Delayed(T), Is::No, Is::Soft, Is::At(T), Is::Now];

fn state(is: Is) -> RecordState {
    let (phase, due) = match is {
        Is::Idle => (Phase::Idle, 0),
        Is::Cooling(due) => (Phase::Cooling, due),
        Is::Ready => (Phase::Ready, 0),
        Is::Delayed(due) => (Phase::Delayed, due),
        Is::No => (Phase::Processing(RerunKind::None), 0),
        Is::Soft => (Phase::Processing(RerunKind::Soft), 0),
        Is::At(due) => (Phase::Processing(RerunKind::At), due),
        Is::Debounced(due) => (Phase::Processing(RerunKind::Debounced), due),
        Is::Now => (Phase::Processing(RerunKind::Now), 0),
    };
    RecordState { phase, due: Nanos(due), ..RecordState::default() }
}

fn is(state: &RecordState) -> Is {
    let due = state.due.0;
    match state.phase {
        Phase::Idle => Is::Idle,
        Phase::Cooling => Is::Cooling(due),
        Phase::Ready => Is::Ready,
        Phase::Delayed => Is::Delayed(due),
        Phase::Processing(RerunKind::None) => Is::No,
        Phase::Processing(RerunKind::Soft) => Is::Soft,
        Phase::Processing(RerunKind::At | RerunKind::Rescheduled) => Is::At(due),
        Phase::Processing(RerunKind::Debounced) => Is::Debounced(due),
        Phase::Processing(RerunKind::Now) => Is::Now,
    }
}

/// A claim takes the key.
fn take(state: &mut RecordState) -> Reasons {
    let mut line = state.line();
    let reasons = line.take();
    *state = RecordState::of(line, state.delay());
    reasons
}

/// Applies a request without bounds and floor.
fn ask(state: &mut RecordState, method: EnqueueMethod) -> Decision {
    state.request(&mut { Bounds::NONE }, &method.into(), ZERO, || NOW)
}

/// The time of a delay without an end.
const NEVER: u64 = u64::MAX;

type Row = (EnqueueMethod, [(Is, EnqueueOutcome); 7]);

/// The table of requests by state. `cancel` has its own test.
#[rustfmt::skip]
const REQUESTS: [Row; 23] = [
    //                            idle                        ready                       delayed
    //                            none                    soft                  at(t)                   now
    (EnqueueMethod::EnqueueIfAbsent,     [(Is::Ready, Queued),          (Is::Ready, Ignored),        (Is::Delayed(T), Ignored),   (Is::No, Ignored),       (Is::Soft, Ignored),   (Is::At(T), Ignored),    (Is::Now, Ignored)]),
    (EnqueueMethod::Enqueue,             [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Delayed(T), Held),      (Is::Soft, Rerun),       (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueNow,          [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Ready, Queued),         (Is::Now, Rerun),        (Is::Now, Rerun),      (Is::Now, Rerun),        (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueAfter(SOON),  [(Is::Delayed(1_050), Scheduled), (Is::Ready, Merged),      (Is::Delayed(T), Held),      (Is::At(1_050), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueAfter(LATE),  [(Is::Delayed(1_500), Scheduled), (Is::Ready, Merged),      (Is::Delayed(T), Held),      (Is::At(1_500), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    // A delay of zero is `enqueue`.
    (EnqueueMethod::EnqueueAfter(ZERO),  [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Delayed(T), Held),      (Is::Soft, Rerun),       (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueAfter(Duration::MAX),
                                [(Is::Delayed(NEVER), Scheduled), (Is::Ready, Merged),      (Is::Delayed(T), Held),      (Is::At(NEVER), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::Reschedule(SOON),    [(Is::Delayed(1_050), Scheduled), (Is::Delayed(1_050), Scheduled), (Is::Delayed(1_050), Scheduled), (Is::At(1_050), Rerun), (Is::At(1_050), Rerun), (Is::At(1_050), Rerun), (Is::At(1_050), Rerun)]),
    (EnqueueMethod::Reschedule(LATE),    [(Is::Delayed(1_500), Scheduled), (Is::Delayed(1_500), Scheduled), (Is::Delayed(1_500), Scheduled), (Is::At(1_500), Rerun), (Is::At(1_500), Rerun), (Is::At(1_500), Rerun), (Is::At(1_500), Rerun)]),
    // At a time in the past a key is ready, behind all others. A rerun keeps its time.
    (EnqueueMethod::Reschedule(ZERO),    [(Is::Ready, Queued),          (Is::Ready, Queued),         (Is::Ready, Queued),         (Is::At(1_000), Rerun),  (Is::At(1_000), Rerun), (Is::At(1_000), Rerun), (Is::At(1_000), Rerun)]),
    (EnqueueMethod::Reschedule(Duration::MAX),
                                [(Is::Delayed(NEVER), Scheduled), (Is::Delayed(NEVER), Scheduled), (Is::Delayed(NEVER), Scheduled), (Is::At(NEVER), Rerun), (Is::At(NEVER), Rerun), (Is::At(NEVER), Rerun), (Is::At(NEVER), Rerun)]),
    (EnqueueMethod::EnqueueDebounced { quiet: SOON, max_wait: LATE },
                                [(Is::Delayed(1_050), Scheduled), (Is::Ready, Merged),      (Is::Delayed(T), Held),      (Is::At(1_050), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueDebounced { quiet: LATE, max_wait: SOON },
                                [(Is::Delayed(1_050), Scheduled), (Is::Ready, Merged),      (Is::Delayed(T), Held),      (Is::At(1_050), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    // Without a delay the key is ready at once. A rerun keeps its time.
    (EnqueueMethod::EnqueueDebounced { quiet: ZERO, max_wait: ZERO },
                                [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Delayed(T), Held),      (Is::At(1_000), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueDebounced { quiet: ZERO, max_wait: LATE },
                                [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Delayed(T), Held),      (Is::At(1_000), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueDebounced { quiet: LATE, max_wait: ZERO },
                                [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Delayed(T), Held),      (Is::At(1_000), Rerun),  (Is::Soft, Rerun),     (Is::At(T), Rerun),      (Is::Now, Rerun)]),
    // A longer delay is shortened, and a shorter delay stays.
    (EnqueueMethod::EnqueueNowDebounced { quiet: SOON, max_wait: LATE },
                                [(Is::Delayed(1_050), Scheduled), (Is::Ready, Merged),      (Is::Delayed(1_050), Scheduled), (Is::Debounced(1_050), Rerun), (Is::Debounced(1_050), Rerun), (Is::Debounced(1_050), Rerun), (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: LATE, max_wait: LATE },
                                [(Is::Delayed(1_500), Scheduled), (Is::Ready, Merged),      (Is::Delayed(T), Held),      (Is::Debounced(1_500), Rerun), (Is::Debounced(1_500), Rerun), (Is::Debounced(T), Rerun), (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: LATE, max_wait: SOON },
                                [(Is::Delayed(1_050), Scheduled), (Is::Ready, Merged),      (Is::Delayed(1_050), Scheduled), (Is::Debounced(1_050), Rerun), (Is::Debounced(1_050), Rerun), (Is::Debounced(1_050), Rerun), (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: ZERO, max_wait: ZERO },
                                [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Ready, Queued),         (Is::Debounced(1_000), Rerun), (Is::Debounced(1_000), Rerun), (Is::Debounced(1_000), Rerun), (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: ZERO, max_wait: LATE },
                                [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Ready, Queued),         (Is::Debounced(1_000), Rerun), (Is::Debounced(1_000), Rerun), (Is::Debounced(1_000), Rerun), (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueNowDebounced { quiet: LATE, max_wait: ZERO },
                                [(Is::Ready, Queued),          (Is::Ready, Merged),         (Is::Ready, Queued),         (Is::Debounced(1_000), Rerun), (Is::Debounced(1_000), Rerun), (Is::Debounced(1_000), Rerun), (Is::Now, Rerun)]),
    (EnqueueMethod::EnqueueResync,       [(Is::Ready, Queued),          (Is::Ready, Ignored),        (Is::Ready, Queued),         (Is::No, Ignored),       (Is::Soft, Ignored),   (Is::At(T), Ignored),    (Is::Now, Ignored)]),
];

fn ask_under_floor(state: &mut RecordState, method: EnqueueMethod) -> EnqueueOutcome {
    state.request(&mut { Bounds::NONE }, &method.into(), FLOOR, || NOW).outcome
}

fn end(state: &mut RecordState, ending: Ending) {
    let _ = state.end(&mut { Bounds::NONE }, ending, ZERO, None, || NOW);
}

#[test]
fn every_request_in_every_state() {
    for (method, cells) in REQUESTS {
        for (before, (after, outcome)) in COLUMNS.into_iter().zip(cells) {
            let mut record = state(before);
            let decision = ask(&mut record, method);
            assert_eq!((is(&record), decision.outcome), (after, outcome), "{method:?} of {before:?}");
        }
    }
}

/// In cells with "ready, at the tail" or "delayed", the key moves even within its list.
#[test]
fn a_request_that_sets_a_time_moves_the_key_to_the_tail_and_others_do_not() {
    for (method, cells) in REQUESTS {
        for (before, (after, _)) in COLUMNS.into_iter().zip(cells) {
            let mut record = state(before);
            let to_tail = ask(&mut record, method).to_tail;
            match (method, before) {
                (EnqueueMethod::Reschedule(_), Is::Ready | Is::Delayed(_))
                | (EnqueueMethod::EnqueueNow | EnqueueMethod::EnqueueResync, Is::Delayed(_)) => {
                    assert!(to_tail, "{method:?} of {before:?}");
                }
                // The key moves if its time does.
                (EnqueueMethod::EnqueueNowDebounced { .. }, Is::Delayed(_)) => assert_eq!(to_tail, after != before),
                (_, Is::Ready | Is::Delayed(_)) => assert!(!to_tail, "{method:?} of {before:?}"),
                _ => {}
            }
            let place = record.place();
            match after {
                Is::Ready => assert_eq!(place, ListPlace::Level(Priority::Normal)),
                Is::Delayed(due) => assert_eq!(place, ListPlace::Wheel(Nanos(due))),
                _ => assert_eq!(place, ListPlace::Out),
            }
        }
    }
}

#[test]
fn cancel_in_every_state() {
    let cells = [Is::Idle, Is::Idle, Is::Idle, Is::No, Is::No, Is::No, Is::No];
    for (before, after) in COLUMNS.into_iter().zip(cells) {
        let mut record = state(before);
        record.reasons = Reasons::EVENT;
        record.cancel(&mut { Bounds::NONE }, || NOW);
        assert_eq!(is(&record), after, "cancel of {before:?}");
        assert_eq!(record.reasons, Reasons::NONE, "the reasons of a wake go with it");
    }
}

/// The pending reruns that a claim can end with: none, soft, at t, at a past time, now.
const RERUNS: [Is; 5] = [Is::No, Is::Soft, Is::At(T), Is::At(900), Is::Now];

/// Ending × pending rerun.
#[rustfmt::skip]
const ENDINGS: [(Ending, [Is; 5]); 13] = [
    //                                       none                 soft                 at(t)                at(past)
    //                                       now
    (Ending::Done,                          [Is::Idle,            Is::Ready,           Is::Delayed(T),      Is::Ready,           Is::Ready]),
    (Ending::Leave,                         [Is::Idle,            Is::Ready,           Is::Delayed(T),      Is::Ready,           Is::Ready]),
    (Ending::RequeueAfter(SOON),            [Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Ready,           Is::Ready]),
    (Ending::RequeueAfter(LATE),            [Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(T),      Is::Ready,           Is::Ready]),
    (Ending::RequeueAfter(ZERO),            [Is::Ready,           Is::Ready,           Is::Ready,           Is::Ready,           Is::Ready]),
    (Ending::RequeueAfter(Duration::MAX),   [Is::Delayed(NEVER),  Is::Delayed(NEVER),  Is::Delayed(T),      Is::Ready,           Is::Ready]),
    // With a floor of 0, a rerun `now` ends the backoff.
    (Ending::Retry(SOON),                   [Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Ready]),
    (Ending::Retry(LATE),                   [Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Ready]),
    (Ending::Retry(ZERO),                   [Is::Ready,           Is::Ready,           Is::Ready,           Is::Ready,           Is::Ready]),
    (Ending::Retry(Duration::MAX),          [Is::Delayed(NEVER),  Is::Delayed(NEVER),  Is::Delayed(NEVER),  Is::Delayed(NEVER),  Is::Ready]),
    // A cool-down ends like `done`, and a rerun is ready no sooner than its end.
    (Ending::CoolDown(SOON),                [Is::Cooling(1_050),  Is::Delayed(1_050),  Is::Delayed(T),      Is::Delayed(1_050),  Is::Delayed(1_050)]),
    (Ending::CoolDown(LATE),                [Is::Cooling(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500)]),
    (Ending::CoolDown(ZERO),                [Is::Idle,            Is::Ready,           Is::Delayed(T),      Is::Ready,           Is::Ready]),
];

#[test]
fn every_ending_with_every_rerun() {
    for (ending, cells) in ENDINGS {
        for (rerun, after) in RERUNS.into_iter().zip(cells) {
            let mut record = state(rerun);
            let dropped = record.end(&mut { Bounds::NONE }, ending, ZERO, None, || NOW);
            assert_eq!((is(&record), dropped), (after, None), "{ending:?} with {rerun:?}");
        }
    }
}

/// The row of the failed run under a floor: a rerun `now` waits for the floor.
#[test]
fn every_failed_ending_with_every_rerun_under_a_floor() {
    #[rustfmt::skip]
    const CELLS: [(Ending, [Is; 5]); 3] = [
        //                        none                 soft                 at(t)                at(past)
        //                        now
        (Ending::Retry(SOON),   [Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Delayed(1_050),  Is::Delayed(1_050)]),
        (Ending::Retry(LATE),   [Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_500),  Is::Delayed(1_200)]),
        (Ending::Retry(ZERO),   [Is::Ready,           Is::Ready,           Is::Ready,           Is::Ready,           Is::Ready]),
    ];
    for (ending, cells) in CELLS {
        for (rerun, after) in RERUNS.into_iter().zip(cells) {
            let mut record = state(rerun);
            record.end(&mut { Bounds::NONE }, ending, Duration::from_nanos(200), None, || NOW);
            assert_eq!(is(&record), after, "{ending:?} with {rerun:?}");
        }
    }
}

const SHUTDOWN_COLUMNS: [Is; 9] =
    [Is::Idle, Is::Cooling(T), Is::Ready, Is::Delayed(T), Is::No, Is::Soft, Is::At(T), Is::Debounced(T), Is::Now];

/// The new state and the dropped run.
type ShutdownCell = (Is, Option<DroppedRun>);

/// Mode × state.
#[rustfmt::skip]
const SHUTDOWNS: [(Shutdown, [ShutdownCell; 9]); 3] = [
    (Shutdown::RunDelayedNow, [
        (Is::Idle, None), (Is::Idle, None), (Is::Ready, None), (Is::Ready, None),
        (Is::No, None), (Is::Soft, None), (Is::At(T), None), (Is::Debounced(T), None), (Is::Now, None),
    ]),
    (Shutdown::ServeReady, [
        (Is::Idle, None), (Is::Idle, None), (Is::Ready, None), (Is::Idle, Some(DroppedRun::Delayed)),
        (Is::No, None), (Is::Soft, None), (Is::No, Some(DroppedRun::PendingRerun)), (Is::No, Some(DroppedRun::PendingRerun)), (Is::Now, None),
    ]),
    (Shutdown::Discard, [
        (Is::Idle, None), (Is::Idle, None), (Is::Idle, Some(DroppedRun::Ready)), (Is::Idle, Some(DroppedRun::Delayed)),
        (Is::No, None), (Is::No, Some(DroppedRun::PendingRerun)), (Is::No, Some(DroppedRun::PendingRerun)), (Is::No, Some(DroppedRun::PendingRerun)),
        (Is::No, Some(DroppedRun::PendingRerun)),
    ]),
];

#[test]
fn every_shutdown_in_every_state() {
    for (mode, cells) in SHUTDOWNS {
        for (before, (after, dropped)) in SHUTDOWN_COLUMNS.into_iter().zip(cells) {
            let mut record = state(before);
            assert_eq!(record.shut_down(mode), dropped, "{mode:?} of {before:?}");
            assert_eq!(is(&record), after, "{mode:?} of {before:?}");
            assert_eq!(record.shut_down(mode), None, "a second time");
            assert_eq!(is(&record), after, "a second time");
        }
    }
}

/// After the shutdown a pending rerun is ready, and no delay begins: a delayed run is dropped and reported.
#[test]
fn every_ending_after_every_shutdown() {
    #[rustfmt::skip]
    const CELLS: [(Ending, Option<DroppedRun>); 10] = [
        (Ending::Done, None), (Ending::Leave, None), (Ending::CoolDown(ZERO), None), (Ending::CoolDown(SOON), None),
        (Ending::RequeueAfter(ZERO), Some(DroppedRun::Requeue)),
        (Ending::RequeueAfter(SOON), Some(DroppedRun::Requeue)),
        (Ending::RequeueAfter(Duration::MAX), Some(DroppedRun::Requeue)),
        (Ending::Retry(ZERO), Some(DroppedRun::Retry)),
        (Ending::Retry(SOON), Some(DroppedRun::Retry)),
        (Ending::Retry(Duration::MAX), Some(DroppedRun::Retry)),
    ];
    let after = |rerun, ending, mode| {
        let mut record = state(rerun);
        let dropped = record.end(&mut { Bounds::NONE }, ending, ZERO, Some(mode), || panic!("no time matters now"));
        (is(&record), dropped)
    };
    for mode in [Shutdown::RunDelayedNow, Shutdown::ServeReady, Shutdown::Discard] {
        for (ending, dropped) in CELLS {
            assert_eq!(after(Is::No, ending, mode), (Is::Idle, dropped), "{ending:?} after {mode:?}");
            for rerun in [Is::Soft, Is::At(T), Is::Debounced(T), Is::Now] {
                assert_eq!(after(rerun, ending, mode), (Is::Ready, None), "{ending:?} with {rerun:?} after {mode:?}");
            }
        }
    }
}

#[test]
fn after_a_shutdown_a_rerun_has_the_reasons_of_the_run_before_too() {
    let put_back = Ending::PutBack(Reasons::POLL);
    for (ending, reason) in [
        (Ending::Done, Reasons::NONE),
        (Ending::Leave, Reasons::NONE),
        (Ending::RequeueAfter(SOON), Reasons::REQUEUE),
        (Ending::Retry(SOON), Reasons::RETRY),
        (put_back, Reasons::POLL),
        (Ending::Defer(Reasons::POLL, Duration::MAX), Reasons::POLL),
    ] {
        let mut state = RecordState { reasons: Reasons::EVENT, ..state(Is::Soft) };
        let dropped = state.end(&mut { Bounds::NONE }, ending, ZERO, Some(Shutdown::ServeReady), || NOW);
        assert_eq!((state.phase, state.reasons, dropped), (Phase::Ready, Reasons::EVENT | reason, None), "{ending:?}");
    }
}

#[test]
fn every_pending_rerun_counts() {
    for (of, expected) in COLUMNS.into_iter().zip([false, false, false, false, true, true, true]) {
        assert_eq!(state(of).has_rerun(), expected, "{of:?}");
    }
}

/// A key is settled if it only waits for a requeue, or for a later run without a reason. It is not if a change waits
/// for that run.
#[test]
fn a_key_is_settled_unless_a_change_waits() {
    let (none, requeue, change) = (Reasons::NONE, Reasons::REQUEUE, Reasons::UPDATED);
    #[rustfmt::skip]
    let cells = [
        // state         reasons           cooling until  settled
        (Is::Idle,       none,             0, true),  (Is::Cooling(T), none,    T, true),
        (Is::Ready,      none,             0, false), (Is::Ready,      requeue, 0, false),
        (Is::No,         none,             0, false), (Is::Soft,       none,    0, false),
        (Is::Delayed(T), none,             0, true),  (Is::Delayed(T), none,             T, false),
        (Is::Delayed(T), requeue,          0, true),  (Is::Delayed(T), requeue,          T, true),
        (Is::Delayed(T), change,           0, false), (Is::Delayed(T), change,           T, false),
        (Is::Delayed(T), requeue | change, 0, false), (Is::Delayed(T), requeue | change, T, false),
    ];
    for (of, reasons, not_before, settled) in cells {
        let bounds = Bounds { not_before: Nanos(not_before), ..Bounds::NONE };
        let record = RecordState { reasons, ..state(of) };
        assert_eq!(record.is_settled(&bounds), settled, "{of:?} for {reasons:?}, cooling until {not_before}");
        let failed = RecordState { failures: 1, ..record };
        assert_eq!(failed.is_settled(&bounds), settled && !matches!(of, Is::Delayed(_)), "a retry waits: {of:?}");
    }
}

/// A queue without delays never reads the clock.
#[test]
fn the_clock_is_not_read_if_no_time_matters() {
    let no_clock = || -> Nanos { panic!("the clock was read") };
    for method in [
        EnqueueMethod::EnqueueIfAbsent,
        EnqueueMethod::EnqueueResync,
        EnqueueMethod::EnqueueSelected,
        EnqueueMethod::Enqueue,
        EnqueueMethod::EnqueueNow,
    ] {
        for before in [Is::Idle, Is::Ready, Is::No, Is::Soft, Is::At(T), Is::Now] {
            state(before).request(&mut { Bounds::NONE }, &method.into(), ZERO, no_clock);
        }
    }
    state(Is::Delayed(T)).request(&mut { Bounds::NONE }, &EnqueueMethod::Enqueue.into(), ZERO, no_clock);
    for rerun in [Is::No, Is::Soft, Is::Now] {
        for ending in [Ending::Done, Ending::Leave] {
            state(rerun).end(&mut { Bounds::NONE }, ending, ZERO, None, no_clock);
        }
    }
    for before in COLUMNS {
        state(before).cancel(&mut { Bounds::NONE }, no_clock);
    }
}
