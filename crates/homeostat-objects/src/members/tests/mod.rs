//! Tests of a group's machine: its writes, and the facts that it remembers. Also a member without its watchdog.

mod explored;
mod random;

use std::sync::Arc;
use std::time::Duration;

use super::Members;
use super::assignment::{Assignment, EarlierAssignment};
use super::machine::{FoundGroup, FoundMember, MemberMachine, MemberWrite};
use super::shards::{EarlierMember, LostRuns, ShardEntry, ShardHash, ShardStatus, ShardTable, Shards};
use crate::MemoryClient;
use crate::tests::refusals::no_threads;
use homeostat::rt::Nanos;
use homeostat::run::Fence;

const LEASE: Duration = Duration::from_secs(15);

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn machine(me: &str) -> MemberMachine {
    MemberMachine::new(me.to_owned(), LEASE)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn assignment(number: u64, members: &[&str], earlier: &[(u64, &[&str])]) -> Assignment {
    let earlier =
        earlier.iter().map(|(number, members)| EarlierAssignment { number: *number, members: names(members) });
    Assignment { number, members: names(members), earlier: earlier.collect() }
}

/// A member at a version, with the assignment that it announces. Version zero means a lease without a holder.
fn member(name: &str, version: u64, announced: u64) -> FoundMember {
    FoundMember {
        name: name.to_owned(),
        version: version.to_string(),
        is_gone: version == 0,
        duration: Some(LEASE),
        announced,
    }
}

fn group(assignment: Option<Assignment>, members: Vec<FoundMember>) -> FoundGroup {
    let assignment = assignment.map(|assignment| (format!("d{}", assignment.number), assignment));
    FoundGroup { assignment, members }
}

fn divide(version: Option<&str>, assignment: Assignment) -> MemberWrite {
    MemberWrite::Assign { version: version.map(str::to_owned), assignment }
}

fn expel(name: &str, version: Option<&str>) -> MemberWrite {
    MemberWrite::Expel { name: name.to_owned(), version: version.map(str::to_owned) }
}

#[test]
fn the_first_members_divide_the_keys_among_all() {
    let found = group(None, vec![member("b", 1, 0), member("a", 1, 0)]);
    assert_eq!(machine("a").look(at(0), &found), [divide(None, assignment(1, &["a", "b"], &[]))]);
    // Only the first member writes.
    assert_eq!(machine("b").look(at(0), &found), []);
}

#[test]
fn another_member_writes_if_the_first_one_does_not_for_the_duration_of_a_lease() {
    let mut b = machine("b");
    let found = |version| group(None, vec![member("a", version, 0), member("b", 1, 0)]);
    assert_eq!(b.look(at(0), &found(1)), []);
    assert_eq!(b.look(at(14), &found(2)), []);
    assert_eq!(b.look(at(15), &found(3)), [divide(None, assignment(1, &["a", "b"], &[]))]);
}

#[test]
fn an_assignment_follows_at_once_and_keeps_those_that_are_not_finished() {
    let now = assignment(4, &["a", "b"], &[(3, &["a"])]);
    let next = |a, b| {
        let found = group(Some(now.clone()), vec![a, b, member("c", 1, 0)]);
        match &machine("a").look(at(0), &found)[..] {
            [MemberWrite::Assign { version, assignment }] if version.as_deref() == Some("d4") => assignment.clone(),
            other => panic!("{other:?}"),
        }
    };
    let all: &[&str] = &["a", "b", "c"];
    let found = next(member("a", 1, 3), member("b", 1, 0));
    assert_eq!(found, assignment(5, all, &[(3, &["a"]), (4, &["a", "b"])]));
    // `a` runs no key that it has lost in assignment 4.
    let found = next(member("a", 1, 4), member("b", 1, 0));
    assert_eq!(found, assignment(5, all, &[(4, &["a", "b"])]));
    let found = next(member("a", 1, 4), member("b", 0, 0));
    assert_eq!(found, assignment(5, &["a", "c"], &[(4, &["a", "b"])]));
}

#[test]
fn an_assignment_that_only_members_had_that_are_gone_is_finished() {
    let found = group(Some(assignment(4, &["a"], &[])), vec![member("a", 0, 4), member("b", 1, 0)]);
    assert_eq!(machine("b").look(at(0), &found), [divide(Some("d4"), assignment(5, &["b"], &[]))]);
}

#[test]
fn an_assignment_waits_while_too_many_are_not_finished() {
    let only: &[&str] = &["a"];
    let earlier: Vec<_> = (1..=16).map(|number| (number, only)).collect();
    let now = assignment(17, &["a"], &earlier);
    let look = |announced| {
        let found = group(Some(now.clone()), vec![member("a", 1, announced), member("b", 1, 0)]);
        machine("a").look(at(0), &found)
    };
    assert_eq!(look(1), []);
    let earlier: Vec<_> = (2..=17).map(|number| (number, only)).collect();
    assert_eq!(look(2), [divide(Some("d17"), assignment(18, &["a", "b"], &earlier))]);
}

/// An object of Kubernetes has at most 256 KiB of annotations. The names of a single assignment may be longer, because
/// there is no alternative.
#[test]
fn an_assignment_waits_while_the_names_of_those_that_are_not_finished_are_long() {
    let all: Vec<_> = (0..300).map(|number| format!("{number:0>220}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let look = |now: Assignment, announced| {
        let number = now.number;
        let members = all.iter().chain([&"new"]).map(|name| member(name, 1, announced)).collect();
        let writes = machine(all[0]).look(at(0), &group(Some(now), members));
        writes.len() == 1
            && matches!(&writes[0], MemberWrite::Assign { assignment, .. } if assignment.number == number + 1)
    };
    assert!(look(assignment(4, &all, &[(3, &all)]), 4));
    assert!(!look(assignment(4, &all, &[(3, &all)]), 3));
    assert!(!look(assignment(4, &all, &[(3, &all), (2, &["x"])]), 3));
    let earlier: Vec<_> = (1..=4).map(|number| (number, &all[..30])).collect();
    assert!(look(assignment(5, &all[..30], &earlier), 1));
}

#[test]
fn a_key_is_handed_over_by_an_announcement_or_the_end_of_its_owner() {
    let now = assignment(5, &["a", "b"], &[(3, &["c"]), (4, &["a", "c"])]);
    let waits = |a: FoundMember, c: FoundMember| {
        let mut b = machine("b");
        b.look(at(0), &group(Some(now.clone()), vec![a, member("b", 1, 5), c]));
        (b.status().waits_for, b.is_settled(&group(Some(now.clone()), vec![member("a", 1, 5), member("b", 1, 5)])))
    };
    assert_eq!(waits(member("a", 1, 4), member("c", 1, 4)), (names(&["a", "c"]), false));
    assert_eq!(waits(member("a", 1, 5), member("c", 1, 4)), (names(&["c"]), false));
    assert_eq!(waits(member("a", 1, 5), member("c", 0, 0)), (Vec::new(), true));
}

#[test]
fn a_member_is_expelled_in_the_version_that_was_seen_unchanged_for_its_duration() {
    let now = assignment(1, &["a", "b"], &[]);
    let found = |version| group(Some(now.clone()), vec![member("a", 1, 1), member("b", version, 1)]);
    let mut a = machine("a");
    assert_eq!(a.look(at(0), &found(7)), []);
    assert_eq!(a.look(at(14), &found(8)), []);
    assert_eq!(a.next_stale(at(14), &found(8)), at(29));
    assert_eq!(a.look(at(28), &found(8)), []);
    assert_eq!(a.look(at(29), &found(8)), [expel("b", Some("8"))]);
    // A lease that names another duration is measured by that duration.
    let mut short = member("b", 8, 1);
    short.duration = Some(Duration::from_secs(3));
    let mut a = machine("a");
    let found = group(Some(now.clone()), vec![member("a", 1, 1), short]);
    a.look(at(0), &found);
    assert_eq!(a.look(at(3), &found), [expel("b", Some("8"))]);
}

#[test]
fn a_member_never_expels_itself_and_the_first_fresh_member_writes() {
    let now = assignment(1, &["a", "b"], &[]);
    let found = group(Some(now), vec![member("a", 1, 1), member("b", 1, 1)]);
    let mut b = machine("b");
    b.look(at(0), &found);
    // `a` hangs, so `b` is the first one.
    assert_eq!(b.look(at(15), &found), [expel("a", Some("1"))]);
}

#[test]
fn a_missing_lease_counts_only_once_an_empty_one_takes_its_place() {
    let now = assignment(2, &["a", "b"], &[(1, &["a", "b"])]);
    let mut a = machine("a");
    let found = group(Some(now), vec![member("a", 1, 2)]);
    assert_eq!(a.look(at(0), &found), []);
    assert_eq!(a.status().waits_for, ["b"]);
    assert_eq!(a.look(at(15), &found), [expel("b", None)]);
    assert_eq!(a.status().waits_for, ["b"]);
}

#[test]
fn leases_of_members_that_are_gone_are_forgotten_once_no_assignment_needs_them() {
    let members = vec![member("a", 1, 2), member("b", 0, 1), member("c", 0, 1)];
    let found = group(Some(assignment(2, &["a"], &[(1, &["a", "b"])])), members);
    let forgotten = MemberWrite::Forget { name: "c".to_owned(), version: "0".to_owned() };
    assert_eq!(machine("a").look(at(0), &found), [forgotten]);
}

#[test]
fn old_reads_take_nothing_back() {
    let (old, new) = (assignment(1, &["a", "c"], &[]), assignment(2, &["a", "b"], &[(1, &["a", "c"])]));
    let mut b = machine("b");
    b.look(at(0), &group(Some(new), vec![member("a", 2, 2), member("b", 1, 2), member("c", 0, 1)]));
    let (table, status) = (b.table(), b.status());
    assert_eq!(status.waits_for, Vec::<String>::new());
    // An old list and an old assignment: no write is based on them.
    assert_eq!(b.look(at(1), &group(Some(old), vec![member("a", 1, 1), member("c", 1, 1)])), []);
    assert_eq!((b.table(), b.status()), (table, status));
    assert_eq!(b.look(at(2), &group(None, vec![member("a", 2, 1), member("b", 1, 2)])), []);
}

#[test]
fn a_deleted_assignment_is_written_again_with_a_later_number() {
    let mut a = machine("a");
    let members = || vec![member("a", 1, 2), member("b", 1, 2)];
    a.look(at(0), &group(Some(assignment(2, &["a", "b"], &[(1, &["a"])])), members()));
    assert_eq!(a.look(at(1), &group(None, members())), [divide(None, assignment(3, &["a", "b"], &[(2, &["a", "b"])]))]);
    // A newcomer does not know it, so it does not begin again with the first number.
    assert_eq!(machine("a").look(at(1), &group(None, members())), []);
}

#[test]
fn nobody_divides_among_nobody() {
    let found = group(Some(assignment(2, &["a"], &[(1, &["a"])])), vec![member("a", 0, 2)]);
    assert_eq!(machine("b").look(at(0), &found), []);
    assert_eq!(machine("b").look(at(0), &group(None, Vec::new())), []);
}

/// A missing lease may belong to a member that is still running, so all later assignments wait for it.
#[test]
fn a_member_that_was_left_out_because_its_lease_is_missing_is_still_awaited() {
    let now = assignment(6, &["a"], &[(5, &["a", "b"])]);
    let with_c = |version, b: Option<FoundMember>| {
        let members = [Some(member("a", 1, 6)), b, Some(member("c", version, 0))];
        group(Some(now.clone()), members.into_iter().flatten().collect())
    };
    let next = |earlier| divide(Some("d6"), assignment(7, &["a", "c"], earlier));
    let mut a = machine("a");
    assert_eq!(a.look(at(0), &with_c(1, None)), [next(&[(5, &["a", "b"]), (6, &["a"])])]);
    assert_eq!(a.look(at(15), &with_c(2, None)), [expel("b", None)]);
    assert!(a.look(at(16), &with_c(3, Some(member("b", 0, 0)))).contains(&next(&[(6, &["a"])])));
}

#[test]
fn a_deleted_assignment_that_nobody_knows_begins_again_with_a_later_number() {
    let found = |b| group(None, vec![member("a", 1, 0), b]);
    let mut a = machine("a");
    assert_eq!(a.look(at(0), &found(member("b", 1, 5))), []);
    // The last member with this assignment has ended. It may not have announced the last assignment.
    assert_eq!(a.look(at(1), &found(member("b", 0, 5))), [divide(None, assignment(23, &["a"], &[]))]);
}

/// Otherwise the other owner would begin its run as soon as it sees the announcement, perhaps before it sees the last
/// assignment.
#[test]
fn a_run_of_a_regained_key_counts_as_lost_until_the_other_owner_has_left() {
    let name = |name: &str| ShardHash::of([name]);
    let shards = Shards::new(LEASE);
    let divide = |number, members: &[&str], earlier: &[(&str, bool)]| {
        let earlier =
            earlier.iter().map(|(member, has_left)| EarlierMember { member: name(member), has_left: *has_left });
        let members = members.iter().map(|member| name(member)).collect();
        let table = ShardTable { number, me: Some(name("a")), members, earlier: vec![earlier.collect()] };
        shards.divide(table, ShardStatus::default(), Some(Fence::unlimited(number)));
        shards.lost_runs()
    };
    let lost = LostRuns { count: 1, number: Some(1) };
    assert_eq!(divide(1, &["a"], &[]), LostRuns::default());
    let ShardEntry::Run(permit) = shards.enter(name("key")) else { unreachable!("it does not run") };
    assert_eq!(divide(2, &["b"], &[("a", false)]), lost);
    assert_eq!(divide(3, &["a"], &[("b", false)]), lost);
    assert_eq!(divide(3, &["a"], &[("b", true)]), LostRuns::default());
    drop(permit);
}

#[test]
fn a_member_whose_watchdog_is_refused_runs_no_thread_and_can_be_started_again() {
    let (options, started) = no_threads();
    let client = Arc::new(MemoryClient::new());
    let members = Members::builder(client, "default", "sites").thread_options(options).build().unwrap();
    for _ in 0..2 {
        let error = members.start().unwrap_err();
        assert_eq!(error.to_string(), "the system cannot start thread sites-member-watchdog");
    }
    drop(members);
    assert_eq!(started.iter().collect::<Vec<_>>(), [""; 0]);
}
