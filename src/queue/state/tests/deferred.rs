//! Deferred keys and their release.

use super::*;

#[test]
fn a_deferred_key_is_ready_when_its_time_is_over_and_not_settled_before() {
    let mut record = state(Is::No);
    end(&mut record, Ending::Defer(Reasons::POLL, Duration::from_nanos(T - NOW.0)));
    assert_eq!(is(&record), Is::Delayed(T));
    assert!(!record.is_settled(&Bounds::NONE));
}

#[test]
fn a_deferred_key_keeps_its_failures_and_waits_until_it_is_requested() {
    #[rustfmt::skip]
    const CELLS: [(Is, Is); 4] = [
        (Is::No, Is::Delayed(u64::MAX)), (Is::Soft, Is::Delayed(u64::MAX)), (Is::At(T), Is::Delayed(T)), (Is::Now, Is::Ready),
    ];
    for early in [false, true] {
        for (rerun, after) in CELLS {
            let mut record = RecordState { failures: 3, early, reasons: Reasons::EVENT, ..state(rerun) };
            end(&mut record, Ending::Defer(Reasons::POLL, Duration::MAX));
            assert_eq!((is(&record), record.failures, record.early), (after, 3, early), "{rerun:?}");
            assert_eq!(record.reasons, Reasons::EVENT | Reasons::POLL, "{rerun:?}");
        }
        let mut record = RecordState { failures: 3, early, ..state(Is::No) };
        end(&mut record, Ending::Defer(Reasons::POLL, Duration::MAX));
        assert_eq!(ask_under_floor(&mut record, EnqueueMethod::Enqueue), Held);
        assert_eq!(ask_under_floor(&mut record, EnqueueMethod::Reschedule(ZERO)), Queued);
        assert_eq!((is(&record), record.early), (Is::Ready, early), "it had not waited for the end of a backoff");
    }
}

#[test]
fn a_key_is_released_only_if_it_is_deferred() {
    let release = |record: &mut RecordState| record.release(&mut { Bounds::NONE }, || NOW);
    let deferral = Ending::Defer(Reasons::POLL, Duration::MAX);
    // It was deferred.
    let mut record = RecordState { failures: 3, ..state(Is::No) };
    end(&mut record, deferral);
    assert!(release(&mut record));
    assert_eq!((is(&record), record.reasons, record.failures), (Is::Ready, Reasons::POLL, 3));
    // The claim is about to defer it.
    let mut record = state(Is::No);
    assert!(!release(&mut record));
    end(&mut record, deferral);
    assert_eq!((is(&record), record.reasons), (Is::Ready, Reasons::POLL));
    // The claim runs the key instead, and its next delay is an ordinary one.
    let requeue = Ending::RequeueAfter(Duration::from_nanos(T - NOW.0));
    for (ending, after) in [(Ending::Done, Is::Idle), (requeue, Is::Delayed(T))] {
        let mut record = state(Is::No);
        release(&mut record);
        end(&mut record, ending);
        assert_eq!(is(&record), after);
        assert!(record.is_settled(&Bounds::NONE), "{ending:?}");
    }
    // A debounced event arrives, which may show the writes that the key waits for.
    let mut record = state(Is::No);
    let mut bounds = Bounds::NONE;
    record.end(&mut bounds, Ending::Defer(Reasons::POLL, LATE), FLOOR, None, || NOW);
    let event = EnqueueMethod::EnqueueNowDebounced { quiet: SOON, max_wait: SOON };
    record.request(&mut bounds, &event.into(), FLOOR, || NOW);
    assert_eq!(is(&record), Is::Delayed(1_050));
    assert!(record.release(&mut bounds, || NOW));
    assert_eq!((is(&record), bounds.cap), (Is::Ready, None));
    // It waits for another reason.
    for phase in [Is::Ready, Is::Delayed(T)] {
        let mut record = state(phase);
        assert!(!release(&mut record));
        assert_eq!(is(&record), phase);
    }
}

/// Only a scheduled run is cancelled. The claim continues, even if it does not run the key.
#[test]
fn a_cancellation_does_not_defer_a_key_that_was_released() {
    for rerun in RERUNS {
        let mut record = state(rerun);
        record.release(&mut { Bounds::NONE }, || NOW);
        record.cancel(&mut { Bounds::NONE }, || NOW);
        end(&mut record, Ending::Defer(Reasons::POLL, Duration::MAX));
        assert_eq!((is(&record), record.reasons), (Is::Ready, Reasons::POLL), "{rerun:?}");
    }
    // A deferred key is forgotten.
    let mut record = state(Is::No);
    end(&mut record, Ending::Defer(Reasons::POLL, Duration::MAX));
    record.cancel(&mut { Bounds::NONE }, || NOW);
    assert_eq!((is(&record), record.deferral), (Is::Idle, Deferral::None));
}

#[test]
fn a_key_that_was_released_is_served_after_a_shutdown() {
    for (mode, after) in
        [(Shutdown::ServeReady, Is::Ready), (Shutdown::RunDelayedNow, Is::Ready), (Shutdown::Discard, Is::Idle)]
    {
        let (mut record, mut bounds) = (state(Is::No), Bounds::NONE);
        record.release(&mut bounds, || NOW);
        assert_eq!(record.shut_down(mode), None);
        let dropped = record.end(&mut bounds, Ending::Defer(Reasons::POLL, Duration::MAX), FLOOR, Some(mode), || NOW);
        assert_eq!((is(&record), dropped.is_some()), (after, after == Is::Idle), "{mode:?}");
        // Its claim runs the key instead.
        let mut record = state(Is::No);
        record.release(&mut bounds, || NOW);
        record.end(&mut bounds, Ending::Done, FLOOR, Some(mode), || NOW);
        assert_eq!(is(&record), Is::Idle, "{mode:?}");
    }
}

/// A request for a key, or a cancellation.
type Change = Option<EnqueueMethod>;

/// Returns every sequence of at most two changes.
fn changes() -> Vec<Vec<Change>> {
    let each = || REQUESTS.into_iter().map(|(method, _)| Some(method)).chain([None]);
    let pairs = each().flat_map(|first| each().map(move |second| vec![first, second]));
    std::iter::once(Vec::new()).chain(each().map(|change| vec![change])).chain(pairs).collect()
}

fn apply(record: &mut RecordState, bounds: &mut Bounds, change: Change) {
    match change {
        Some(method) => {
            record.request(bounds, &method.into(), FLOOR, || NOW);
        }
        None => record.cancel(bounds, || NOW),
    }
}

/// Ends a claim with `Defer` for `LATE` after these changes. The key is released before the change with this number, if
/// any. Returns whether a `reschedule` has replaced its run.
fn deferred(failures: u32, during: &[Change], released: Option<usize>) -> (RecordState, Bounds, bool) {
    let (mut record, mut bounds) = (RecordState { failures, ..state(Is::No) }, Bounds::NONE);
    let mut is_replaced = false;
    for number in 0..=during.len() {
        if released == Some(number) {
            assert!(!record.release(&mut bounds, || NOW));
        }
        if let Some(&change) = during.get(number) {
            apply(&mut record, &mut bounds, change);
            is_replaced = match change {
                Some(EnqueueMethod::Reschedule(_)) => true,
                // A cancellation ends the rescheduled run, and the claim continues. An event is served as early as
                // possible.
                None | Some(EnqueueMethod::EnqueueNow | EnqueueMethod::EnqueueNowDebounced { .. }) => false,
                Some(_) => is_replaced,
            };
        }
    }
    record.end(&mut bounds, Ending::Defer(Reasons::POLL, LATE), FLOOR, None, || NOW);
    assert!(is_replaced || released.is_none() || record.phase == Phase::Ready, "{during:?}");
    (record, bounds, is_replaced)
}

/// The run of a deferred key is never lost. Only `reschedule` and `cancel` replace it.
#[test]
fn a_deferred_key_runs_by_its_bound_and_as_soon_as_it_is_released() {
    let changes = changes();
    let cases = [0, 3].into_iter().flat_map(|failures| changes.iter().map(move |during| (failures, during)));
    for (failures, during) in cases {
        for released in [None, Some(0), Some(during.len())] {
            let before = deferred(failures, during, released);
            for after in &changes {
                let (mut record, mut bounds, mut is_replaced) = before;
                for &change in after {
                    apply(&mut record, &mut bounds, change);
                    is_replaced |= matches!(change, None | Some(EnqueueMethod::Reschedule(_)));
                }
                let waiting = record;
                let case = || format!("{during:?}, released at {released:?}, deferred, {after:?}: {waiting:?}");
                let moved = record.release(&mut bounds, || NOW);
                if is_replaced {
                    assert_eq!((moved, record), (false, waiting), "{}", case());
                    continue;
                }
                assert!(!waiting.is_settled(&bounds) && !waiting.early, "{}", case());
                assert!(waiting.phase == Phase::Ready || waiting.due <= NOW.after(LATE), "{}", case());
                assert_eq!((moved, record.phase), (waiting.phase == Phase::Delayed, Phase::Ready), "{}", case());
            }
        }
    }
}

/// `reschedule` differs from `enqueue_after` only if the claim does not run its key.
#[test]
fn a_rescheduled_rerun_is_a_rerun_at_its_time() {
    let pair = || {
        let at = state(Is::At(T));
        [at, RecordState { phase: Phase::Processing(RerunKind::Rescheduled), ..at }]
    };
    for (method, _) in REQUESTS {
        let [at, rescheduled] = pair().map(|mut record| (ask(&mut record, method), is(&record)));
        assert_eq!(at, rescheduled, "{method:?}");
    }
    for (ending, _) in ENDINGS {
        let [at, rescheduled] = pair().map(|mut record| {
            end(&mut record, ending);
            record
        });
        assert_eq!(at, rescheduled, "{ending:?}");
    }
    for (mode, _) in SHUTDOWNS {
        let [at, rescheduled] = pair().map(|mut record| (record.shut_down(mode), is(&record)));
        assert_eq!(at, rescheduled, "{mode:?}");
    }
    let ended = pair().map(|mut record| {
        end(&mut record, Ending::Defer(Reasons::POLL, SOON));
        (is(&record), record.deferral)
    });
    assert_eq!(ended, [(Is::Delayed(1_050), Deferral::Deferred), (Is::Delayed(T), Deferral::None)]);
}

#[test]
fn a_key_whose_deferral_is_over_is_an_ordinary_key() {
    let mut record = state(Is::No);
    end(&mut record, Ending::Defer(Reasons::POLL, SOON));
    record.expire();
    assert_eq!(is(&record), Is::Ready);
    assert_eq!(take(&mut record), Reasons::POLL);
    end(&mut record, Ending::RequeueAfter(Duration::from_nanos(T - NOW.0)));
    assert_eq!(is(&record), Is::Delayed(T));
    assert!(record.is_settled(&Bounds::NONE));
}
