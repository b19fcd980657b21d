//! Random changes and faults: in the end the store equals a fresh list, and a subscriber has got each change once.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::server::{CallFault, Fault, SECOND, Server, StreamFault, StreamingLists, UNDECODABLE};
use super::watcher::Watcher;
use homeostat::rt::Nanos;

const NAMES: u8 = 5;
/// A watch must catch up within this time after its faults have ended: the longest delay that a server asks for here,
/// two silent streams, a streaming list without an end marker, and pauses.
const PATIENCE: Duration = Duration::from_secs(1800);

#[derive(Clone, Copy, Debug)]
enum Op {
    Put(u8, u8),
    Delete(u8),
    Compact,
    /// Restores the server to an older state, by this many versions.
    Restore(u8),
    Fault(Fault),
    /// The watch makes up to this number of steps.
    Steps(u8),
    /// The watch runs for this number of seconds.
    Wait(u8),
}

fn call_fault() -> impl Strategy<Value = CallFault> {
    prop_oneof![
        3 => Just(CallFault::Transport),
        1 => Just(CallFault::Forbidden),
        1 => (0..30_u8).prop_map(CallFault::TooManyRequests),
        1 => Just(CallFault::KindNotServed),
        2 => Just(CallFault::Gone),
    ]
}

fn stream_fault() -> impl Strategy<Value = StreamFault> {
    prop_oneof![
        2 => Just(StreamFault::End),
        2 => Just(StreamFault::Break),
        2 => Just(StreamFault::Gone),
        1 => Just(StreamFault::KindNotServed),
        2 => Just(StreamFault::Stall),
        1 => Just(StreamFault::SameBookmark),
        1 => (1..6_u8).prop_map(StreamFault::LateBookmark),
        1 => Just(StreamFault::SameEvent),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => call_fault().prop_map(Fault::List),
        2 => (0..NAMES).prop_map(Fault::Page),
        1 => (1..6_u8).prop_map(Fault::OldList),
        2 => call_fault().prop_map(Fault::Open),
        6 => (0..8_u8, stream_fault()).prop_map(|(after, fault)| Fault::Stream(after, fault)),
        1 => Just(Fault::NoMarker),
        1 => Just(Fault::Behind),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..NAMES, 0..=UNDECODABLE).prop_map(|(name, size)| Op::Put(name, size)),
        3 => (0..NAMES).prop_map(Op::Delete),
        1 => Just(Op::Compact),
        1 => (1..6_u8).prop_map(Op::Restore),
        5 => fault().prop_map(Op::Fault),
        5 => (1..12_u8).prop_map(Op::Steps),
        2 => (1..=255_u8).prop_map(Op::Wait),
    ]
}

fn server() -> impl Strategy<Value = (bool, bool, StreamingLists)> {
    let streaming = prop_oneof![
        4 => Just(StreamingLists::Served),
        1 => Just(StreamingLists::Refused),
        1 => Just(StreamingLists::FailInStream),
        1 => Just(StreamingLists::NeverEnd),
    ];
    (any::<bool>(), any::<bool>(), streaming)
}

fn apply(watcher: &mut Watcher, op: Op) {
    // After a restore there is no change until the watch has listed: a client cannot see that a version has another
    // history.
    let is_settled = !watcher.is_ahead;
    match op {
        Op::Put(name, size) if is_settled => watcher.server.put(name, size),
        Op::Delete(name) if is_settled => watcher.server.delete(name),
        Op::Restore(back) if is_settled => watcher.restore(back),
        Op::Put(..) | Op::Delete(_) | Op::Restore(_) => {}
        Op::Compact => watcher.server.compact(),
        // A stream of an embedded client does not stall.
        Op::Fault(Fault::Stream(_, StreamFault::Stall)) if watcher.server.is_local() => {}
        Op::Fault(fault) => watcher.server.faults.push_back(fault),
        Op::Steps(steps) => {
            for _ in 0..steps {
                if !watcher.step(watcher.now.after(30 * SECOND)) {
                    break;
                }
            }
        }
        Op::Wait(seconds) => {
            let until = watcher.now.after(SECOND * seconds.into());
            while watcher.step(until) {}
        }
    }
}

/// Lets the watch run until the store is right.
fn catch_up(watcher: &mut Watcher) -> Result<(), TestCaseError> {
    let until = watcher.now.after(PATIENCE);
    while watcher.is_ahead || !watcher.is_right() {
        let goes_on = watcher.step(until);
        prop_assert!(goes_on, "the store stays wrong: {:?} instead of {:?}", watcher.store, watcher.server.state());
    }
    Ok(())
}

/// Checks the record of the subscriber: versions rise, and each removal corresponds to a deletion.
fn check_told(watcher: &Watcher) -> Result<(), TestCaseError> {
    let (mut versions, mut removals) = (BTreeMap::new(), BTreeMap::<u8, usize>::new());
    for (name, version) in &watcher.told {
        match version {
            Some(version) => {
                let before = versions.insert(name, *version);
                prop_assert!(before.is_none_or(|before| before < *version), "{name} went back to {version}");
            }
            None => *removals.entry(*name).or_default() += 1,
        }
    }
    for (name, removals) in removals {
        let deletions = watcher.server.deletions.get(&name).copied().unwrap_or(0);
        prop_assert!(removals <= deletions, "{name} was removed {removals} times and deleted {deletions} times");
    }
    Ok(())
}

/// Checks that the watch does not loop without pauses: at most `most` calls in any second.
fn check_calls(calls: &[Nanos], most: usize) -> Result<(), TestCaseError> {
    for window in calls.windows(most + 1) {
        let time = window[most].since(window[0]);
        prop_assert!(time >= SECOND, "{} calls in {time:?}", window.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fails_the_store_ends_equal_to_a_fresh_list(
        (local, bookmarks, streaming) in server(),
        limit in prop_oneof![Just(None), (1..4_usize).prop_map(Some)],
        (cached, most) in (any::<bool>(), prop_oneof![Just(usize::MAX), 1..4_usize]),
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut server = Server::new(local, bookmarks && !local, streaming);
        (server.cached, server.most) = (cached, most);
        let mut watcher = Watcher::new(server, limit, seed);
        for op in ops {
            apply(&mut watcher, op);
        }
        watcher.server.faults.clear();
        catch_up(&mut watcher)?;
        // It also follows the next changes.
        for name in 0..NAMES {
            watcher.server.put(name, 1);
            if name % 2 == 0 {
                watcher.server.delete(name);
            }
        }
        catch_up(&mut watcher)?;
        if watcher.server.restores == 0 {
            check_told(&watcher)?;
        }
        check_calls(&watcher.calls, 24)?;
    }
}
