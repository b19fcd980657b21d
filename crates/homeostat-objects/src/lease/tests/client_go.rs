//! The cases of client-go's `tools/leaderelection/leaderelection_test.go` (Apache-2.0), written anew for the machine.

use homeostat::base::StartErrorKind;

use super::{
    Duration, LeaseAnswer, LeaseCall, LeaseLoss, LeasePurpose, LeaseSpec, SECOND, Scripted, at, found, spec, write,
    written,
};

/// `TestTryAcquireOrRenew`: "acquire from no object".
#[test]
fn a_missing_lease_is_created() {
    let mut me = Scripted::new();
    assert_eq!(me.next(), LeaseCall::Read);
    me.answer(LeaseAnswer::Missing);
    assert_eq!(me.next(), write(None, LeasePurpose::Acquire, spec("me", 15, 0)));
    me.answer(written("1"));
    assert_eq!(me.machine.term(), Some((0, at(8.0))));
}

/// `TestTryAcquireOrRenew`: "acquire from object without annotations" and "acquire from unled object".
#[test]
fn a_lease_without_a_holder_is_taken_at_once() {
    for empty in [LeaseSpec { duration: None, ..spec("", 0, 0) }, spec("", 15, 0)] {
        let mut me = Scripted::new();
        me.answer(found("5", empty));
        assert_eq!(me.next(), write(Some("5"), LeasePurpose::Acquire, spec("me", 15, 1)));
    }
}

/// `TestTryAcquireOrRenew`: "acquire from led, unacked object", "acquire from led, acked object" and "acquire from led
/// object with the lease duration seconds".
#[test]
fn the_lease_of_another_is_taken_once_it_was_seen_unchanged_for_its_own_duration() {
    for seconds in [1, 15, 60] {
        let mut me = Scripted::new();
        me.after(1000.0).answer_in(0.5, found("5", spec("other", seconds, 7)));
        let expiry = me.now.after(Duration::from_secs(seconds));
        while me.now < expiry {
            let LeaseCall::Wait(until) = me.next() else { panic!("{:?} at {:?}", me.next(), me.now) };
            assert!(until <= expiry);
            me.now = until;
            me.answer(found("5", spec("other", seconds, 7)));
        }
        assert_eq!(me.now, expiry);
        assert_eq!(me.next(), write(Some("5"), LeasePurpose::Acquire, spec("me", 15, 8)));
    }
}

/// `TestTryAcquireOrRenew`: "don't acquire from led, acked object".
#[test]
fn a_renewed_lease_is_not_taken() {
    let mut me = Scripted::new();
    for version in 0..100 {
        me.answer(found(&version.to_string(), spec("other", 15, 7)));
        assert!(matches!(me.next(), LeaseCall::Wait(_)));
        me.after(14.0);
    }
}

/// Somebody applies an old manifest of the lease.
#[test]
fn a_number_that_was_lowered_by_hand_is_written_again() {
    let mut me = Scripted::new();
    me.answer(found("5", spec("", 15, 4))).answer(written("6"));
    assert_eq!(me.machine.term().map(|(number, _)| number), Some(5));
    me.after(2.0).answer(LeaseAnswer::Refused).answer(found("7", spec("me", 15, 0)));
    assert_eq!(me.next(), write(Some("7"), LeasePurpose::Renew, spec("me", 15, 5)));
    me.machine.release();
    assert_eq!(me.next(), write(Some("7"), LeasePurpose::Release, spec("", 1, 5)));
}

/// `TestTryAcquireOrRenew`: "renew already acquired object".
#[test]
fn a_leader_renews_its_lease_and_keeps_its_number() {
    let mut me = Scripted::new();
    me.answer(found("5", spec("", 15, 3))).answer(written("6"));
    me.after(2.0);
    assert_eq!(me.next(), write(Some("6"), LeasePurpose::Renew, spec("me", 15, 4)));
    me.answer(written("7"));
    assert_eq!(me.machine.term(), Some((4, at(10.0))));
    assert_eq!(me.next(), LeaseCall::Wait(at(4.0)));
}

/// `TestTryAcquireOrRenew`: a candidate that finds its own identity. Here it has not learned that it leads, and begins
/// a new term.
#[test]
fn a_candidate_that_finds_itself_begins_a_term_with_a_new_number() {
    let mut me = Scripted::new();
    me.answer(LeaseAnswer::Missing).answer(LeaseAnswer::Failed);
    assert!(me.machine.term().is_none());
    me.after(1.0).answer(found("1", spec("me", 15, 0)));
    assert_eq!(me.next(), write(Some("1"), LeasePurpose::Acquire, spec("me", 15, 1)));
}

/// `TestTryAcquireOrRenew`: "conflict".
#[test]
fn a_candidate_that_is_refused_reads_again() {
    let mut me = Scripted::new();
    me.answer(LeaseAnswer::Missing).answer(LeaseAnswer::Refused);
    assert!(matches!(me.next(), LeaseCall::Wait(_)));
    me.after(1.0).answer(found("1", spec("other", 15, 0)));
    assert!(me.machine.term().is_none());
    assert!(matches!(me.next(), LeaseCall::Wait(_)));
}

/// `TestFastPathLeaderElection`: a leader renews without reading, and reads after a conflict.
#[test]
fn a_leader_reads_only_after_a_refusal() {
    let mut me = Scripted::new();
    me.leading();
    for version in 2..5 {
        me.after(2.0);
        assert!(matches!(me.next(), LeaseCall::Write(_)));
        me.answer(written(&version.to_string()));
    }
    me.after(2.0).answer(LeaseAnswer::Refused);
    assert_eq!(me.next(), LeaseCall::Read);
    me.answer(found("9", spec("me", 15, 0)));
    assert_eq!(me.next(), write(Some("9"), LeasePurpose::Renew, spec("me", 15, 0)));
    me.answer(written("10"));
    assert!(me.machine.term().is_some());
}

/// `TestTryAcquireOrRenew` and `TestRenew`: a leader that finds another holder stops.
#[test]
fn a_leader_that_finds_another_holder_has_lost() {
    let mut me = Scripted::new();
    me.leading().after(2.0).answer(LeaseAnswer::Refused).answer(found("7", spec("other", 15, 1)));
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Taken("other".to_owned())));
    assert!(me.machine.term().is_none());
}

/// A leader is not misled by an answer that is older than its term.
#[test]
fn a_leader_ignores_a_stale_answer() {
    let mut me = Scripted::new();
    me.answer(found("5", spec("", 15, 3))).answer(written("6")).after(2.0).answer(LeaseAnswer::Refused);
    me.answer(found("4", spec("other", 15, 2)));
    assert_eq!(me.machine.term(), Some((4, at(8.0))));
    assert_eq!(me.after(2.0).next(), LeaseCall::Read);
}

#[test]
fn a_leader_whose_lease_was_deleted_has_lost() {
    let mut me = Scripted::new();
    me.leading().after(2.0).answer(LeaseAnswer::Missing);
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Deleted));
    me.machine.release();
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released), "there is nothing to give back");
}

/// `RenewDeadline`: without a renewal, the term ends.
#[test]
fn a_leader_that_cannot_renew_stops_the_margin_before_its_deadline() {
    let mut me = Scripted::new();
    me.leading();
    for seconds in [2.0, 4.0, 6.0] {
        me.now = at(seconds);
        me.answer(LeaseAnswer::Failed);
    }
    assert_eq!(me.next(), LeaseCall::Wait(at(8.0)));
    me.now = at(8.0);
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::RanOut));
}

#[test]
fn the_deadline_counts_from_before_the_renewal_was_sent() {
    let mut me = Scripted::new();
    me.leading().after(2.0).answer_in(3.0, written("2"));
    assert_eq!(me.machine.term(), Some((0, at(10.0))));
    me.answer_in(5.0, written("3"));
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::RanOut), "the answer came when the work had been cancelled");
}

#[test]
fn an_acquisition_whose_answer_is_late_is_not_a_term() {
    let mut me = Scripted::new();
    me.answer(LeaseAnswer::Missing).answer_in(8.0, written("1"));
    assert!(me.machine.term().is_none());
    me.after(1.0).answer(found("1", spec("me", 15, 0)));
    assert_eq!(me.next(), write(Some("1"), LeasePurpose::Acquire, spec("me", 15, 1)));
}

/// `TestReleaseLease`: "release acquired lock from no object" and "not releasing if not leader".
#[test]
fn only_a_leader_gives_its_lease_back() {
    let mut me = Scripted::new();
    me.machine.release();
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released));
    let mut me = Scripted::new();
    me.answer(found("5", spec("other", 15, 3)));
    me.machine.release();
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released));
}

/// `TestReleaseLease`: "release acquired lock from object".
#[test]
fn a_released_lease_has_no_holder_and_the_shortest_duration() {
    let mut me = Scripted::new();
    me.leading().machine.release();
    assert_eq!(me.next(), write(Some("1"), LeasePurpose::Release, spec("", 1, 0)));
    me.answer(written("2"));
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released));
}

/// `TestReleaseOnCancellation`: "release acquired lock on cancellation, some lock update failed".
#[test]
fn a_release_after_a_renewal_with_a_lost_answer_reads_first() {
    let mut me = Scripted::new();
    me.leading().after(2.0).answer(LeaseAnswer::Failed).machine.release();
    me.answer(LeaseAnswer::Refused);
    assert_eq!(me.next(), LeaseCall::Read);
    me.answer(found("2", spec("me", 15, 0)));
    assert_eq!(me.next(), write(Some("2"), LeasePurpose::Release, spec("", 1, 0)));
}

#[test]
fn a_release_leaves_the_lease_of_the_next_leader_alone() {
    let mut me = Scripted::new();
    me.leading().machine.release();
    me.answer(LeaseAnswer::Refused).answer(found("2", spec("other", 15, 1)));
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released));
}

#[test]
fn a_release_ends_after_some_refusals_and_after_a_failure() {
    let mut me = Scripted::new();
    me.leading().machine.release();
    for version in ["2", "3"] {
        me.answer(LeaseAnswer::Refused).answer(found(version, spec("me", 15, 0)));
    }
    me.answer(LeaseAnswer::Refused);
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released));
    let mut me = Scripted::new();
    me.leading().machine.release();
    me.answer(LeaseAnswer::Failed);
    assert_eq!(me.next(), LeaseCall::Ended(LeaseLoss::Released));
}

/// Even if a store refuses each renewal, the leader pauses between calls.
#[test]
fn repeated_refusals_have_pauses() {
    let mut me = Scripted::new();
    me.leading().after(2.0);
    me.answer(LeaseAnswer::Refused).answer(found("2", spec("me", 15, 0)));
    me.answer(LeaseAnswer::Refused);
    assert_eq!(me.next(), LeaseCall::Wait(at(4.0)));
}

/// The leader of a deleted lease notices the deletion only at its next renewal, so a candidate that has seen the leader
/// waits.
#[test]
fn a_candidate_waits_for_the_leader_of_a_deleted_lease_and_takes_a_greater_number() {
    let mut me = Scripted::new();
    me.answer(found("5", spec("other", 15, 7))).after(1.0).answer(LeaseAnswer::Missing);
    while me.now < at(16.0) {
        let LeaseCall::Wait(until) = me.next() else { panic!("{:?} at {:?}", me.next(), me.now) };
        me.now = until;
        me.answer(LeaseAnswer::Missing);
    }
    assert_eq!((me.now, me.next()), (at(16.0), write(None, LeasePurpose::Acquire, spec("me", 15, 8))));
    let mut me = Scripted::new();
    me.answer(found("5", spec("", 1, 7))).after(1.0);
    assert_eq!(me.next(), write(Some("5"), LeasePurpose::Acquire, spec("me", 15, 8)));
}

/// `NewLeaderElector` refuses times that contradict each other.
#[test]
fn times_that_do_not_fit_together_are_refused() {
    use super::LeaseTiming;
    let good = LeaseTiming::default();
    assert!(good.check().is_ok());
    let refused = [
        LeaseTiming { duration: Duration::ZERO, ..good },
        LeaseTiming { duration: Duration::from_millis(15_500), ..good },
        LeaseTiming { duration: Duration::from_secs(1 << 31), ..good },
        LeaseTiming { renew_deadline: good.duration, ..good },
        LeaseTiming { retry: Duration::ZERO, ..good },
        LeaseTiming { retry: 7 * SECOND, ..good },
        LeaseTiming { retry: Duration::MAX, ..good },
        LeaseTiming { margin: 9 * SECOND, ..good },
        LeaseTiming { margin: Duration::MAX, ..good },
        LeaseTiming { call: Duration::ZERO, ..good },
        LeaseTiming { call: 8 * SECOND, ..good },
    ];
    for timing in refused {
        assert_eq!(timing.check().unwrap_err().kind(), StartErrorKind::InvalidSetting, "{timing:?}");
    }
}
