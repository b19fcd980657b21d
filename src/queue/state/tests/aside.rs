//! Keys that are put aside, and brought back.

use super::*;

#[test]
fn a_key_that_is_put_aside_for_a_time_is_ready_then_and_not_settled_before() {
    let mut record = state(Is::No);
    end(&mut record, Ending::PutAside(Reasons::POLL, Duration::from_nanos(T - NOW.0)));
    assert_eq!(is(&record), Is::Delayed(T));
    assert!(!record.is_settled(&Bounds::default()));
}

#[test]
fn a_key_that_is_put_aside_keeps_its_failures_and_waits_until_it_is_asked_for() {
    #[rustfmt::skip]
    const CELLS: [(Is, Is); 4] = [
        (Is::No, Is::Delayed(u64::MAX)), (Is::Soft, Is::Delayed(u64::MAX)), (Is::At(T), Is::Delayed(T)), (Is::Now, Is::Ready),
    ];
    for early in [false, true] {
        for (rerun, after) in CELLS {
            let mut record = RecordState { failures: 3, early, reasons: Reasons::EVENT, ..state(rerun) };
            end(&mut record, Ending::PutAside(Reasons::POLL, Duration::MAX));
            assert_eq!((is(&record), record.failures, record.early), (after, 3, early), "{rerun:?}");
            assert_eq!(record.reasons, Reasons::EVENT | Reasons::POLL, "{rerun:?}");
        }
        let mut record = RecordState { failures: 3, early, ..state(Is::No) };
        end(&mut record, Ending::PutAside(Reasons::POLL, Duration::MAX));
        assert_eq!(ask_under_floor(&mut record, EnqueueMethod::Enqueue), Held);
        assert_eq!(ask_under_floor(&mut record, EnqueueMethod::Reschedule(ZERO)), Queued);
        assert_eq!((is(&record), record.early), (Is::Ready, early), "it had not waited for the end of a backoff");
    }
}

#[test]
fn a_key_is_brought_back_only_if_it_is_put_aside() {
    let bring_back = |record: &mut RecordState| record.bring_back(&mut Bounds::default(), || NOW);
    let aside = Ending::PutAside(Reasons::POLL, Duration::MAX);
    // It was put aside.
    let mut record = RecordState { failures: 3, ..state(Is::No) };
    end(&mut record, aside);
    assert!(bring_back(&mut record));
    assert_eq!((is(&record), record.reasons, record.failures), (Is::Ready, Reasons::POLL, 3));
    // The claim is about to put it aside.
    let mut record = state(Is::No);
    assert!(!bring_back(&mut record));
    end(&mut record, aside);
    assert_eq!((is(&record), record.reasons), (Is::Ready, Reasons::POLL));
    // The claim runs the key instead, and its next delay is an ordinary one.
    let requeue = Ending::RequeueAfter(Duration::from_nanos(T - NOW.0));
    for (ending, after) in [(Ending::Done, Is::Idle), (requeue, Is::Delayed(T))] {
        let mut record = state(Is::No);
        bring_back(&mut record);
        end(&mut record, ending);
        assert_eq!(is(&record), after);
        assert!(record.is_settled(&Bounds::default()), "{ending:?}");
    }
    // It waits for another reason.
    for phase in [Is::Ready, Is::Delayed(T)] {
        let mut record = state(phase);
        assert!(!bring_back(&mut record));
        assert_eq!(is(&record), phase);
    }
}

/// Only a scheduled run is cancelled. The claim goes on, also if it does not run the key.
#[test]
fn a_cancellation_does_not_keep_a_key_aside_that_was_brought_back() {
    for rerun in RERUNS {
        let mut record = state(rerun);
        record.bring_back(&mut Bounds::default(), || NOW);
        record.cancel(&mut Bounds::default(), || NOW);
        end(&mut record, Ending::PutAside(Reasons::POLL, Duration::MAX));
        assert_eq!((is(&record), record.reasons), (Is::Ready, Reasons::POLL), "{rerun:?}");
    }
    // A key that waits aside is forgotten.
    let mut record = state(Is::No);
    end(&mut record, Ending::PutAside(Reasons::POLL, Duration::MAX));
    record.cancel(&mut Bounds::default(), || NOW);
    assert_eq!((is(&record), record.aside), (Is::Idle, false));
}

#[test]
fn a_key_whose_time_aside_is_over_is_an_ordinary_key() {
    let mut record = state(Is::No);
    end(&mut record, Ending::PutAside(Reasons::POLL, SOON));
    record.expire();
    assert_eq!(is(&record), Is::Ready);
    record.phase = Phase::Processing(RerunKind::None);
    end(&mut record, Ending::RequeueAfter(Duration::from_nanos(T - NOW.0)));
    assert_eq!(is(&record), Is::Delayed(T));
    assert!(record.is_settled(&Bounds::default()));
}
