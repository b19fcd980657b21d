//! Decides where a key runs. A plain value.
//!
//! # Invariants
//!
//! - A member runs a key of the current assignment only once the key's owners in all earlier assignments run no key
//!   that they have lost.
//! - An earlier assignment is dropped only once none of its members runs a key that it has lost since.

use super::hash::ShardHash;

/// The members of the current assignment and of earlier ones, as one member knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardTable {
    /// The number of the current assignment. Each later one has a greater number.
    pub(crate) number: u64,
    /// This process. `None` if it is not a member.
    pub(crate) me: Option<ShardHash>,
    pub(crate) members: Vec<ShardHash>,
    /// The members of each unfinished earlier assignment.
    pub(crate) earlier: Vec<Vec<EarlierMember>>,
}

/// A member of an earlier assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlierMember {
    pub(crate) member: ShardHash,
    /// Whether it runs no key that it has lost since that assignment, or has ended.
    pub(crate) has_left: bool,
}

/// Where a key runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardPlace {
    Here,
    /// Here, once the earlier owner has handed over the key.
    HereSoon,
    Elsewhere,
}

impl ShardTable {
    pub(crate) fn place(&self, key: ShardHash) -> ShardPlace {
        if !key.belongs_to(self.me, &self.members) {
            return ShardPlace::Elsewhere;
        }
        let is_awaited = |assignment: &Vec<EarlierMember>| {
            let owner = key.owner(assignment.iter().map(|earlier| earlier.member)).map(|index| assignment[index]);
            owner.is_some_and(|owner| Some(owner.member) != self.me && !owner.has_left)
        };
        if self.earlier.iter().any(is_awaited) { ShardPlace::HereSoon } else { ShardPlace::Here }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn member(name: &str) -> ShardHash {
        ShardHash::of([name])
    }

    fn table(me: &str, members: &[&str], earlier: &[(&str, bool)]) -> ShardTable {
        let earlier =
            earlier.iter().map(|(name, has_left)| EarlierMember { member: member(name), has_left: *has_left });
        let members = members.iter().map(|name| member(name)).collect();
        ShardTable { number: 1, me: Some(member(me)), members, earlier: vec![earlier.collect()] }
    }

    /// Returns a key that moves from `a` to `b` when `b` joins, and one that `a` keeps.
    fn keys() -> [ShardHash; 2] {
        let key = |number: u32| ShardHash::of([format!("key-{number}")]);
        let is_of =
            |key: ShardHash, name: &str| key.owner([member("a"), member("b")]) == Some(usize::from(name == "b"));
        ["b", "a"].map(|name| {
            let found = (0..1_000).map(key).find(|key| is_of(*key, name));
            found.unwrap_or_else(|| panic!("{name} has no key"))
        })
    }

    #[test]
    fn a_key_runs_at_its_owner_once_the_earlier_owner_has_handed_over() {
        use ShardPlace::{Elsewhere, Here, HereSoon};
        let [moving, kept] = keys();
        let places = |table: &ShardTable| [table.place(moving), table.place(kept)];
        assert_eq!(places(&ShardTable::default()), [Elsewhere; 2]);
        assert_eq!(places(&table("a", &["a"], &[])), [Here; 2]);
        assert_eq!(places(&table("b", &["a"], &[])), [Elsewhere; 2]);
        assert_eq!(places(&table("a", &["a", "b"], &[("a", false)])), [Elsewhere, Here]);
        assert_eq!(places(&table("b", &["a", "b"], &[("a", false)])), [HereSoon, Elsewhere]);
        assert_eq!(places(&table("b", &["a", "b"], &[("a", true)])), [Here, Elsewhere]);
        // The other member leaves.
        assert_eq!(places(&table("b", &["b"], &[("a", false), ("b", false)])), [Here, HereSoon]);
        assert_eq!(places(&table("b", &["b"], &[("a", true), ("b", false)])), [Here, Here]);
    }

    #[test]
    fn a_key_waits_for_its_owners_in_all_earlier_assignments() {
        use ShardPlace::{Here, HereSoon};
        let [moving, kept] = keys();
        let place = |key, before: &[(&str, bool)], last: &[(&str, bool)]| {
            let earlier = [before, last].map(|earlier| table("b", &["b"], earlier).earlier.remove(0));
            ShardTable { earlier: earlier.into(), ..table("b", &["b"], &[]) }.place(key)
        };
        assert_eq!(place(moving, &[("a", false)], &[("a", true)]), HereSoon);
        assert_eq!(place(moving, &[("a", true)], &[("a", false), ("b", false)]), Here);
        assert_eq!(place(kept, &[("a", true)], &[("a", false), ("b", false)]), HereSoon);
        assert_eq!(place(kept, &[("b", false)], &[("a", true), ("b", false)]), Here);
    }

    #[test]
    fn in_a_change_no_key_runs_at_two_members_and_each_runs_somewhere_at_last() {
        let names = ["a", "b", "c"];
        let sets: [&[&str]; 7] = [&["a"], &["b"], &["c"], &["a", "b"], &["a", "c"], &["b", "c"], &["a", "b", "c"]];
        for (before, after) in sets.iter().flat_map(|before| sets.map(|after| (*before, after))) {
            for key in (0..50).map(|number| ShardHash::of([format!("key-{number}")])) {
                let at = |members: &[&str], earlier: &[(&str, bool)]| {
                    let here = |name: &&&str| table(name, members, earlier).place(key) == ShardPlace::Here;
                    names.iter().filter(here).copied().collect::<Vec<_>>()
                };
                // The old owner has either not seen the change yet, or has seen it; nobody has handed over.
                let waiting: Vec<_> = before.iter().map(|name| (*name, false)).collect();
                let (old, new) = (at(before, &[]), at(after, &waiting));
                assert_eq!(old.len(), 1);
                assert!(new.is_empty() || new == old, "{before:?} {after:?}: {old:?} {new:?}");
                let done: Vec<_> = before.iter().map(|name| (*name, true)).collect();
                assert_eq!(at(after, &done).len(), 1);
            }
        }
    }
}
