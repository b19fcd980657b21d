//! Knows which keys have moved to or from this process since they were resynced. A plain value.
//!
//! # Invariants
//!
//! - All keys of the first remembered assignment have been enqueued. A key has moved if it belongs to this process in
//!   some of the remembered assignments but not in others: its events may have been dropped here in between.

use std::collections::VecDeque;

use super::hash::ShardHash;

/// How many assignments are remembered. If there are more, all keys count as moved until they have been resynced.
const MOST_KEPT: usize = 16;

/// The members of an assignment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SeenAssignment {
    /// This process. `None` if it was not a member.
    pub(super) me: Option<ShardHash>,
    pub(super) members: Vec<ShardHash>,
}

impl SeenAssignment {
    fn has(&self, key: ShardHash) -> bool {
        key.belongs_to(self.me, &self.members)
    }
}

/// The assignments since the last complete resync.
#[derive(Debug)]
pub(super) struct Moves {
    assignments: VecDeque<SeenAssignment>,
    /// The number of the first of them. Numbers count the assignments that this process has seen.
    first: u64,
    /// All keys of this assignment have been enqueued.
    resynced: u64,
    /// The last assignment before the last resync began.
    begun: u64,
}

impl Moves {
    /// Begins with an assignment in which this process has no keys.
    pub(super) fn new() -> Self {
        Self { assignments: VecDeque::from([SeenAssignment::default()]), first: 0, resynced: 0, begun: 0 }
    }

    /// Adds the current assignment, unless it is already the last one.
    pub(super) fn record(&mut self, assignment: SeenAssignment) {
        if self.assignments.back() == Some(&assignment) {
            return;
        }
        self.assignments.push_back(assignment);
        if self.assignments.len() > MOST_KEPT {
            self.assignments.pop_front();
            self.first += 1;
        }
    }

    /// Begins a resync. `is_done`: whether all keys of the previous resync have been enqueued.
    pub(super) fn begin_resync(&mut self, is_done: bool) {
        if is_done {
            self.resynced = self.begun;
        }
        while self.first < self.resynced && self.assignments.len() > 1 {
            self.assignments.pop_front();
            self.first += 1;
        }
        self.begun = self.first + self.assignments.len() as u64 - 1;
    }

    /// Returns whether a key has moved to or from this process.
    pub(super) fn has_moved(&self, key: ShardHash) -> bool {
        let mut assignments = self.assignments.iter().map(|assignment| assignment.has(key));
        let was_here = assignments.next();
        self.first > self.resynced || assignments.any(|is_here| Some(is_here) != was_here)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn member(number: usize) -> ShardHash {
        ShardHash::of([format!("node-{number}")])
    }

    fn assignment(members: &[usize]) -> SeenAssignment {
        SeenAssignment { me: Some(member(0)), members: members.iter().copied().map(member).collect() }
    }

    /// Returns a key of this process that moves away when member 1 joins, one that stays, and one that is never here.
    fn keys() -> [ShardHash; 3] {
        let keys = (0..1_000).map(|number| ShardHash::of([format!("key-{number}")]));
        let owner = |key: ShardHash, members: &[usize]| {
            key.owner(members.iter().copied().map(member)).map(|index| members[index])
        };
        let find = |with_two: usize, with_three: usize| {
            let found = keys
                .clone()
                .find(|key| owner(*key, &[0, 1]) == Some(with_two) && owner(*key, &[0, 1, 2]) == Some(with_three));
            found.unwrap_or_else(|| panic!("no such key"))
        };
        [find(1, 1), find(0, 0), find(1, 2)]
    }

    fn moved(moves: &Moves) -> [bool; 3] {
        keys().map(|key| moves.has_moved(key))
    }

    #[test]
    fn only_keys_that_have_come_or_gone_have_moved() {
        let mut moves = Moves::new();
        moves.record(assignment(&[0, 1]));
        assert_eq!(moved(&moves), [false, true, false]);
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [false, true, false], "their resync goes on");

        // Members 1 and 2 leave: their keys move here.
        moves.record(assignment(&[0]));
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [true, false, true]);

        // Member 1 joins again: a key that leaves has moved too.
        moves.record(assignment(&[0, 1]));
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [true, false, true]);
        moves.record(assignment(&[0, 1, 2]));
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [false, false, false]);
    }

    #[test]
    fn a_key_that_left_and_came_back_has_moved() {
        let mut moves = Moves::new();
        for members in [&[0][..], &[0]] {
            moves.record(assignment(members));
            moves.begin_resync(true);
        }
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [false, false, false]);
        moves.record(assignment(&[0, 1]));
        moves.record(assignment(&[0]));
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [true, false, true]);

        // There was no member for a while: events of all keys may have been dropped.
        moves.record(SeenAssignment::default());
        moves.record(assignment(&[0]));
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [true, true, true]);
    }

    #[test]
    fn a_key_counts_as_moved_until_its_resync_has_come_to_the_queue() {
        let mut moves = Moves::new();
        moves.record(assignment(&[0]));
        moves.begin_resync(true);
        for _ in 0..3 {
            moves.begin_resync(false);
            assert_eq!(moved(&moves), [true, true, true]);
        }
        moves.begin_resync(true);
        assert_eq!(moved(&moves), [false, false, false]);
    }

    #[test]
    fn all_keys_have_moved_after_too_many_assignments() {
        let mut moves = Moves::new();
        moves.record(assignment(&[0]));
        moves.begin_resync(true);
        moves.begin_resync(true);
        let others: Vec<_> = (10..10 + MOST_KEPT).collect();
        let everyone = assignment(&[&[0], &others[..]].concat());
        let stays = (0..1_000).map(|number| ShardHash::of([format!("key-{number}")])).find(|key| everyone.has(*key));
        for (number, other) in others.into_iter().enumerate() {
            assert!(!moves.has_moved(stays.unwrap()), "after {number} assignments");
            moves.record(assignment(&[0, other]));
        }
        assert_eq!(moved(&moves), [true, true, true]);
        assert!(moves.assignments.len() <= MOST_KEPT);
        moves.begin_resync(true);
        moves.begin_resync(true);
        assert!(!moves.has_moved(keys()[2]));
    }
}
