//! All worlds of up to three members with two keys, up to a depth: members join, leave, hang and are expelled; writes
//! race, and runs take long. There is one fault: a read is old; an answer is late or lost; a write arrives late, or
//! after its sender has given up. Clocks have equal or different rates.
//!
//! A repeated write is refused, because its version is old: for its sender, that is a lost answer.
//!
//! Not covered: two faults; a clock that changes its rate; a deleted assignment.

mod world;

use std::time::Duration;

use self::world::{GroupWorld, Step, calm};
use super::{
    Assignment, FoundGroup, FoundMember, LEASE, LostRuns, MemberMachine, MemberWrite, Nanos, ShardHash, ShardTable,
    machine,
};
use crate::members::shards::ShardPlace;
use homeostat_test_support::explore::{World, explore, explore_and_calm};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// How much a clock advances in a tick of true time, at most and at least. After two ticks, the slow clock is at the
/// renewal deadline of a lease, and the fast one at its duration.
const FAST: Duration = Duration::from_millis(7_500);
const SLOW: Duration = Duration::from_secs(5);
/// After two ticks of equal clocks a lease may be expelled, and the work of its member has ended.
const EQUAL: Duration = Duration::from_secs(8);
const FAULTS: u8 = 1;
const DEPTH: usize = 6;
/// The depth for clocks of different rates. One member starts with a run.
const DEPTH_OF_CLOCKS: usize = 9;

/// A fault of the machine or of its caller that the exploration must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A member announces an assignment although it still runs a lost key.
    AnnouncesEarly,
    /// A key runs although its earlier owner has not handed it over.
    RunsEarly,
    /// An assignment forgets the earlier ones.
    ForgetsEarlier,
    /// An expelled member continues to work.
    OutlivesItsLease,
    /// The deadline counts from the answer to a renewal, not from before it was sent.
    CountsFromAnswer,
    /// The rates of the clocks differ more than allowed.
    WildClocks,
    /// A renewal that has failed counts as done.
    CountsFailures,
}

/// Returns the world of one member, with equal clocks.
fn joined(mutation: Mutation) -> GroupWorld {
    GroupWorld::new(mutation, &[EQUAL; 3])
}

/// Lets a second member join, and divides the keys.
fn divided(mut world: GroupWorld) -> GroupWorld {
    world.join();
    for _ in 0..3 {
        world.round(0);
        world.round(1);
    }
    world
}

/// Returns the world of two members, one with a slow clock. This member runs a key. Answers may be lost.
fn with_clocks(mutation: Mutation, slow: usize) -> GroupWorld {
    let mut world = divided(GroupWorld::new(mutation, if slow == 0 { &[SLOW, FAST] } else { &[FAST, SLOW] }));
    world.loses_answers = true;
    let own = (0..2).find(|number| world.place(slow, *number) == ShardPlace::Here);
    world.take(Step::Run(slow, own.unwrap_or_else(|| panic!("no key")))).unwrap_or_else(|fault| panic!("{fault}"));
    world
}

/// Explores a world. Returns a report.
fn explore_world(start: GroupWorld, depth: usize) -> String {
    let explored = explore_and_calm(start, depth, calm);
    assert!(explored.states > 2_000, "{} states", explored.states);
    format!("{} states, {} steps, {} at the end", explored.states, explored.steps, explored.last.len())
}

#[test]
fn in_all_small_worlds_after_the_first_member_a_key_runs_at_one_member_and_is_not_forgotten() {
    println!("{}", explore_world(joined(Mutation::None), DEPTH));
}

#[test]
fn in_all_small_worlds_after_two_members_a_key_runs_at_one_member_and_is_not_forgotten() {
    println!("{}", explore_world(divided(joined(Mutation::None)), DEPTH));
}

#[test]
fn in_all_small_worlds_with_a_slow_first_member_a_key_runs_at_one_member_and_is_not_forgotten() {
    println!("{}", explore_world(with_clocks(Mutation::None, 0), DEPTH_OF_CLOCKS));
}

#[test]
fn in_all_small_worlds_with_a_fast_first_member_a_key_runs_at_one_member_and_is_not_forgotten() {
    println!("{}", explore_world(with_clocks(Mutation::None, 1), DEPTH_OF_CLOCKS));
}

#[test]
fn the_exploration_of_members_finds_each_seeded_fault() {
    use Mutation::*;
    let check = |mutation: Mutation, starts: [GroupWorld; 2], depth: usize| {
        let faults = starts.map(|start| explore(start, depth).map(|explored| explored.states));
        let shown =
            faults.clone().map(|fault| fault.map_err(|text| text.lines().next().unwrap_or_default().to_owned()));
        println!("{mutation:?}: {shown:?}");
        assert!(faults.iter().any(Result::is_err), "{mutation:?}: no fault in {faults:?} states");
    };
    for mutation in [AnnouncesEarly, RunsEarly, ForgetsEarlier, OutlivesItsLease] {
        check(mutation, [joined(mutation), divided(joined(mutation))], DEPTH);
    }
    for mutation in [CountsFromAnswer, CountsFailures, WildClocks] {
        check(mutation, [0, 1].map(|slow| with_clocks(mutation, slow)), DEPTH_OF_CLOCKS);
    }
}
