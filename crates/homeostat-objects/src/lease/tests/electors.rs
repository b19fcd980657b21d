//! Electors over a client, on held clocks.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::super::record::LEASE;
use super::SECOND;
use crate::{Client, DeleteOptions, LeaseElector, MemoryClient, ObjectKey, ObjectMeta};
use homeostat::base::{CancellationToken, ManualClock};
use homeostat::manager::{Candidate, Elector, Term};
use homeostat::run::{Cancelled, Context};

const HOUR: Duration = Duration::from_secs(3600);

fn elector(client: &Arc<MemoryClient>, name: &str) -> LeaseElector {
    LeaseElector::builder(Arc::clone(client) as _, "default", "test").identity(name).build().unwrap()
}

fn key() -> ObjectKey {
    ObjectKey::new("default", "test")
}

fn context(clock: &ManualClock) -> Context {
    Context::detached_with(clock.clock(), CancellationToken::new())
}

/// Lets a candidate with a clock for itself try until it leads. Returns the term and the time that this took.
fn wins(candidate: &mut Candidate, clock: &ManualClock) -> (Term, Duration) {
    let begin = clock.now();
    loop {
        match candidate(&context(clock)).unwrap() {
            ControlFlow::Break(term) => return (term, clock.now() - begin),
            ControlFlow::Continue(after) => clock.advance(after),
        }
    }
}

#[test]
fn a_lease_that_is_not_renewed_is_taken_over_after_its_duration() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::new());
    let (first, _) = wins(&mut *elector(&client, "one").candidate(), &one);
    let next = elector(&client, "other");
    let (second, took) = wins(&mut *next.candidate(), &other);
    assert_eq!((first.fence().number(), second.fence().number()), (Some(0), Some(1)));
    assert_eq!(took, 15 * SECOND);
    assert!(next.leader().unwrap().name.unwrap().starts_with("other_"));
    assert!(first.fence().check().is_ok(), "no time has passed for the first one, because its clock is held");
    one.advance(8 * SECOND);
    assert_eq!(first.fence().check(), Err(Cancelled::TermEnded));
    assert!(first.lost().is_cancelled());
}

#[test]
fn a_lease_that_is_renewed_is_not_taken_over() {
    let client = Arc::new(MemoryClient::new());
    let clock = ManualClock::new();
    let (mut term, _) = wins(&mut *elector(&client, "one").candidate(), &clock);
    let mut other = elector(&client, "other").candidate();
    for _ in 0..100 {
        term.check().unwrap();
        assert!(matches!(other(&context(&clock)).unwrap(), ControlFlow::Continue(_)));
        clock.advance(term.check_interval());
    }
}

/// The wall clocks of the processes differ by hours, and step by hours.
#[test]
fn steps_of_the_wall_clock_neither_end_a_term_nor_begin_one() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::at(SystemTime::UNIX_EPOCH + 50_000 * HOUR));
    let (mut term, _) = wins(&mut *elector(&client, "one").candidate(), &one);
    let mut candidate = elector(&client, "other").candidate();
    for step in 0..20 {
        one.set_time_of_day(SystemTime::UNIX_EPOCH + HOUR * (step * 7919 % 40));
        other.set_time_of_day(SystemTime::UNIX_EPOCH + HOUR * (step * 104_729 % 50));
        term.check().unwrap();
        assert!(matches!(candidate(&context(&other)).unwrap(), ControlFlow::Continue(_)));
        one.advance(SECOND);
        other.advance(SECOND);
    }
}

#[test]
fn a_term_does_not_outlive_the_sleep_of_the_machine() {
    let client = Arc::new(MemoryClient::new());
    let clock = ManualClock::new();
    let (mut term, _) = wins(&mut *elector(&client, "one").candidate(), &clock);
    let fence = term.fence().clone();
    clock.suspend(7 * SECOND);
    assert!(fence.check().is_ok());
    clock.suspend(HOUR);
    assert_eq!(fence.check(), Err(Cancelled::TermEnded));
    assert_eq!(term.check().unwrap_err().to_string(), "the leadership of default/test is lost");
    assert_eq!(fence.check(), Err(Cancelled::TermEnded));
}

#[test]
fn a_term_ends_if_its_lease_was_deleted_and_made_again_with_a_lower_number() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::new());
    drop(wins(&mut *elector(&client, "before").candidate(), &one));
    let (mut first, _) = wins(&mut *elector(&client, "one").candidate(), &one);
    client.delete(&LEASE, &key(), &DeleteOptions::default()).unwrap();
    let (second, _) = wins(&mut *elector(&client, "other").candidate(), &other);
    assert_eq!((first.fence().number(), second.fence().number()), (Some(1), Some(0)));
    while first.check().is_ok() {
        assert!(first.fence().remaining() > Some(5 * SECOND), "it must end with the first renewal");
        one.advance(first.check_interval());
    }
    assert!(first.lost().is_cancelled());
}

#[test]
fn a_candidate_counts_the_sleep_of_its_machine() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::new());
    let _first = wins(&mut *elector(&client, "one").candidate(), &one);
    let mut candidate = elector(&client, "other").candidate();
    assert!(matches!(candidate(&context(&other)).unwrap(), ControlFlow::Continue(_)));
    other.suspend(15 * SECOND);
    assert!(matches!(candidate(&context(&other)).unwrap(), ControlFlow::Break(_)));
}

#[test]
fn a_term_that_is_dropped_gives_the_lease_back_at_once() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::new());
    drop(wins(&mut *elector(&client, "one").candidate(), &one));
    let lease = client.get(&LEASE, &key()).unwrap();
    assert_eq!(lease.pointer("/spec/holderIdentity").unwrap(), json!(""));
    assert_eq!(lease.pointer("/spec/leaseDurationSeconds").unwrap(), json!(1));
    let (second, took) = wins(&mut *elector(&client, "other").candidate(), &other);
    assert_eq!((second.fence().number(), took), (Some(1), Duration::ZERO));
}

#[test]
fn a_lost_term_leaves_the_lease_of_the_next_leader_alone() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::new());
    let (mut first, _) = wins(&mut *elector(&client, "one").candidate(), &one);
    let (mut second, _) = wins(&mut *elector(&client, "other").candidate(), &other);
    one.advance(3 * SECOND);
    assert!(first.check().is_err());
    drop(first);
    other.advance(2 * SECOND);
    second.check().unwrap();
}

/// Each term has its own identity, so only one holder has the number of a term.
#[test]
fn each_candidate_of_an_elector_is_separate() {
    let client = Arc::new(MemoryClient::new());
    let clock = ManualClock::new();
    let same = elector(&client, "one");
    let (_term, _) = wins(&mut *same.candidate(), &clock);
    assert!(matches!(same.candidate()(&context(&clock)).unwrap(), ControlFlow::Continue(_)));
}

#[test]
fn a_fence_marks_objects_and_refuses_those_of_later_leaders() {
    let client = Arc::new(MemoryClient::new());
    let (one, other) = (ManualClock::new(), ManualClock::new());
    let (first, _) = wins(&mut *elector(&client, "one").candidate(), &one);
    let (second, _) = wins(&mut *elector(&client, "other").candidate(), &other);
    let mut meta = ObjectMeta::new("default", "disk");
    // The first one was paused: its clock has not advanced.
    meta.mark_term(first.fence()).unwrap();
    meta.mark_term(second.fence()).unwrap();
    assert_eq!(meta.mark_term(first.fence()), Err(Cancelled::TermEnded));
    assert_eq!(first.fence().check(), Err(Cancelled::TermEnded));
    assert_eq!(meta.annotations["homeostat.dev/fence"], "1");
    second.fence().check().unwrap();
}
