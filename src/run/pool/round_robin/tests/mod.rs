//! The rules of the scheduler, one by one. [`model`] compares random programs with a naive model.

mod model;

use super::{MemberId, RoundRobin};
use crate::base::time::Nanos;

fn at(time: u64) -> impl Fn() -> Nanos {
    move || Nanos(time)
}

/// Returns a scheduler with this number of open members, and their limit.
fn open(members: usize, limit: usize) -> (RoundRobin, Vec<MemberId>) {
    let mut line = RoundRobin::new(false);
    let places: Vec<_> = (0..members).map(|_| line.add(limit).0).collect();
    for id in &places {
        line.set_open(*id, true);
    }
    (line, places)
}

fn offer(line: &mut RoundRobin, id: MemberId) -> bool {
    line.offer(id, at(0))
}

fn next(line: &mut RoundRobin, time: u64) -> Option<MemberId> {
    line.next(at(time)).map(|(id, _)| id)
}

#[test]
fn repeated_offers_add_a_member_once() {
    let (mut line, a) = open(1, 5);
    assert!(offer(&mut line, a[0]));
    assert!(!offer(&mut line, a[0]));
    assert_eq!((next(&mut line, 0), next(&mut line, 0)), (Some(a[0]), None));
    assert!(offer(&mut line, a[0]), "it is served, and below its limit");
}

#[test]
fn members_are_served_in_turn() {
    let (mut line, members) = open(3, 1);
    for member in &members {
        offer(&mut line, *member);
    }
    for round in 0..9 {
        let id = next(&mut line, 0).unwrap();
        assert_eq!(id, members[round % 3]);
        assert_eq!(line.done(id), 0);
        offer(&mut line, id);
    }
}

#[test]
fn a_member_at_its_limit_is_not_ready() {
    let (mut line, a) = open(1, 2);
    for _ in 0..2 {
        assert!(offer(&mut line, a[0]));
        assert_eq!(next(&mut line, 0), Some(a[0]));
    }
    assert!(!offer(&mut line, a[0]));
    assert_eq!(line.active(a[0]), 2);
    assert_eq!(line.done(a[0]), 1);
    assert!(offer(&mut line, a[0]));
}

#[test]
fn a_closed_member_is_not_ready() {
    let mut line = RoundRobin::new(false);
    let (id, hint) = line.add(1);
    assert!(!offer(&mut line, id), "it is closed at first");
    line.set_open(id, true);
    assert!(offer(&mut line, id) && !hint.takes_offers());
    line.set_open(id, false);
    assert!(line.is_empty() && hint.takes_offers());
    line.set_open(id, true);
    assert!(line.is_empty(), "who opens it offers it");
}

#[test]
fn held_members_come_in_the_order_of_their_times_and_never_early() {
    let (mut line, members) = open(4, 1);
    for (member, time) in members.iter().zip([30, 10, 20, 10]) {
        line.hold_until(*member, Nanos(time));
        assert!(offer(&mut line, *member));
    }
    assert_eq!((next(&mut line, 9), line.next_time()), (None, Nanos(10)));
    let served: Vec<_> = std::iter::from_fn(|| next(&mut line, 25)).collect();
    assert_eq!(served, [members[1], members[3], members[2]]);
    assert_eq!((next(&mut line, 29), line.next_time()), (None, Nanos(30)));
    assert_eq!((next(&mut line, 30), line.next_time()), (Some(members[0]), Nanos::NEVER));
}

#[test]
fn a_freed_member_is_served_at_once_and_a_ready_one_keeps_its_place() {
    let (mut line, members) = open(2, 1);
    line.hold_until(members[0], Nanos(10));
    for member in &members {
        offer(&mut line, *member);
    }
    line.free(members[1]);
    line.free(members[0]);
    assert!(offer(&mut line, members[0]));
    assert_eq!((next(&mut line, 0), next(&mut line, 0)), (Some(members[1]), Some(members[0])));
}

#[test]
fn a_due_member_joins_behind_ready_members() {
    let (mut line, members) = open(2, 1);
    line.hold_until(members[0], Nanos(10));
    offer(&mut line, members[0]);
    offer(&mut line, members[1]);
    assert_eq!((next(&mut line, 10), next(&mut line, 10)), (Some(members[1]), Some(members[0])));
}

#[test]
fn a_lower_limit_removes_the_member_from_the_list_and_ends_turns() {
    let mut line = RoundRobin::new(false);
    let (id, hint) = line.add(3);
    line.set_open(id, true);
    for _ in 0..2 {
        offer(&mut line, id);
        next(&mut line, 0);
    }
    offer(&mut line, id);
    line.set_limit(id, 2);
    assert!(line.is_empty() && !hint.turn_is_over(at(0)), "two may serve it, and do");
    line.set_limit(id, 1);
    assert!(hint.turn_is_over(at(0)));
    assert_eq!(line.done(id), 1);
    assert!(!hint.turn_is_over(at(0)) && !offer(&mut line, id));
    line.set_limit(id, 2);
    assert!(offer(&mut line, id));
}

#[test]
fn a_turn_is_over_once_another_waits_or_the_member_is_closed() {
    let mut line = RoundRobin::new(false);
    let ((a, own), (b, _)) = (line.add(2), line.add(1));
    line.set_open(a, true);
    line.set_open(b, true);
    offer(&mut line, a);
    next(&mut line, 0);
    assert!(!own.turn_is_over(at(0)));
    offer(&mut line, a);
    assert!(!own.turn_is_over(at(0)), "it is itself that waits");
    offer(&mut line, b);
    assert!(own.turn_is_over(at(0)));
    line.set_open(b, false);
    assert!(!own.turn_is_over(at(0)));
    line.set_open(a, false);
    assert!(own.turn_is_over(at(0)));
}

#[test]
fn a_turn_is_over_once_a_held_member_is_due() {
    let (mut line, members) = open(2, 1);
    offer(&mut line, members[0]);
    let (busy, own) = line.next(at(0)).unwrap();
    line.hold_until(members[1], Nanos(10));
    offer(&mut line, members[1]);
    assert!(!own.turn_is_over(at(9)) && own.turn_is_over(at(10)));
    line.done(busy);
    assert!(line.offer(busy, at(10)));
    assert_eq!((next(&mut line, 10), next(&mut line, 10)), (Some(members[1]), Some(busy)), "it was there first");
    assert!(!own.turn_is_over(at(11)));
}

#[test]
fn a_turn_does_not_end_for_a_held_member_that_is_closed_or_gone() {
    let mut line = RoundRobin::new(false);
    let ((busy, own), (closed, _), (gone, _)) = (line.add(1), line.add(1), line.add(1));
    for id in [busy, closed, gone] {
        line.set_open(id, true);
    }
    for id in [closed, gone] {
        line.hold_until(id, Nanos(10));
        offer(&mut line, id);
    }
    offer(&mut line, busy);
    assert_eq!(next(&mut line, 0), Some(busy));
    line.set_open(closed, false);
    assert!(own.turn_is_over(at(10)));
    line.remove(gone);
    assert!(!own.turn_is_over(at(10)));
}

#[test]
fn an_id_is_reused_without_old_state() {
    let (mut line, members) = open(3, 1);
    for member in &members {
        offer(&mut line, *member);
    }
    line.hold_until(members[2], Nanos(10));
    offer(&mut line, members[2]);
    line.remove(members[1]);
    line.remove(members[2]);
    assert_eq!(line.next_time(), Nanos::NEVER);
    let (again, hint) = line.add(1);
    assert_eq!(again, members[1]);
    assert!(hint.takes_offers() && hint.turn_is_over(at(0)) && !offer(&mut line, again), "it is closed");
    line.set_open(again, true);
    assert!(offer(&mut line, again));
    assert_eq!((next(&mut line, 0), next(&mut line, 0)), (Some(members[0]), Some(again)));
    assert_eq!(next(&mut line, 100), None);
}

#[test]
fn a_removed_member_is_never_served() {
    let (mut line, a) = open(1, 1);
    line.remove(a[0]);
    line.set_open(a[0], true);
    line.set_limit(a[0], 2);
    line.hold_until(a[0], Nanos(1));
    assert!(!offer(&mut line, a[0]));
    assert_eq!((line.active(a[0]), line.done(a[0]), next(&mut line, 1)), (0, 0, None));
}
