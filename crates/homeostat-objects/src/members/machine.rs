//! The decisions about the members of a group as a plain value: the current assignment of keys, and the next writes.
//!
//! Each member keeps its own lease. One more object holds the *assignment*: its number, its members, and the earlier
//! assignments that are not finished. These objects decide where a key runs. A clock only decides when to try to expel
//! another member.
//!
//! # Invariants
//!
//! - An assignment is written in the version that was read, so each one has one successor.
//! - Once a member has announced an assignment, all its runs are of keys that it owns in this assignment or in a later
//!   one. An earlier assignment is finished once each of its members has announced a later one or is gone. Until then
//!   the assignments that follow keep it, so that the new owner of a key waits for the owners in all of them.
//! - A member is gone once its lease names no holder, and stays gone. It clears its lease itself after its last run.
//!   Another member clears it after it has seen the lease unchanged for its duration, in the version that was seen: if
//!   the member has renewed its lease since, it stays.
//! - Stale reads are harmless: a member that is gone, or has announced an assignment, never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::assignment::{Assignment, EarlierAssignment};
use super::shards::{EarlierMember, ShardHash, ShardStatus, ShardTable};
use homeostat::rt::Nanos;

/// How many earlier assignments an assignment may keep. A further one waits.
pub(super) const MOST_EARLIER: usize = 16;

/// The most bytes of names in the earlier assignments, if there are two or more: half the limit for the annotations of
/// an object.
const MOST_NAMES: usize = 128 * 1024;

/// A lease of a member, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundMember {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) is_gone: bool,
    /// The time after which others may expel it. `None` if the lease does not name it.
    pub(super) duration: Option<Duration>,
    /// The number of the last assignment that it has announced. Zero before the first.
    pub(super) announced: u64,
}

/// The objects of a group, as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundGroup {
    /// The assignment and its version.
    pub(super) assignment: Option<(String, Assignment)>,
    pub(super) members: Vec<FoundMember>,
}

/// The next write of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberWrite {
    /// Writes the assignment, in this version. Creates it if there is no version.
    Assign { version: Option<String>, assignment: Assignment },
    /// Clears the lease of a member, in this version. Creates an empty lease if there is no version.
    Expel { name: String, version: Option<String> },
    /// Deletes the lease of a member that is gone, in this version.
    Forget { name: String, version: String },
}

/// The decisions of one member.
#[derive(Clone, Debug)]
pub(super) struct MemberMachine {
    me: String,
    /// The duration of leases that do not name theirs.
    duration: Duration,
    latest: Option<Assignment>,
    /// The version of each lease, and when it was first seen.
    seen: BTreeMap<String, (String, Nanos)>,
    /// The missing leases, and when each was first found missing.
    missing: BTreeMap<String, Nanos>,
    gone: BTreeSet<String>,
    announced: BTreeMap<String, u64>,
    /// Since when another member should have written.
    waiting_since: Option<Nanos>,
}

impl MemberMachine {
    pub(super) fn new(me: String, duration: Duration) -> Self {
        Self {
            me,
            duration,
            latest: None,
            seen: BTreeMap::new(),
            missing: BTreeMap::new(),
            gone: BTreeSet::new(),
            announced: BTreeMap::new(),
            waiting_since: None,
        }
    }

    /// Returns the writes to make after a read of the objects. The first member writes. Another one writes only if the
    /// first has not written for the duration of a lease.
    pub(super) fn look(&mut self, now: Nanos, found: &FoundGroup) -> Vec<MemberWrite> {
        self.learn(now, found);
        let stale: BTreeSet<_> = found.members.iter().filter(|member| self.is_stale(now, member)).collect_names();
        let writes = self.wanted(now, found, &stale);
        if writes.is_empty() {
            self.waiting_since = None;
            return writes;
        }
        let is_first = self.alive(found).find(|name| !stale.contains(*name)) == Some(&self.me);
        let since = *self.waiting_since.get_or_insert(now);
        if is_first || now.since(since) >= self.duration { writes } else { Vec::new() }
    }

    /// Remembers the facts that were read, unless later ones are known.
    fn learn(&mut self, now: Nanos, found: &FoundGroup) {
        for member in &found.members {
            if member.is_gone {
                self.gone.insert(member.name.clone());
            }
            let announced = self.announced.entry(member.name.clone()).or_default();
            *announced = member.announced.max(*announced);
            self.missing.remove(&member.name);
            let seen = self.seen.entry(member.name.clone()).or_insert_with(|| (member.version.clone(), now));
            if seen.0 != member.version {
                *seen = (member.version.clone(), now);
            }
        }
        if let Some((_, assignment)) = &found.assignment {
            self.keep(assignment.clone());
        }
        let names: BTreeSet<_> = found.members.iter().collect_names();
        let needed: BTreeSet<_> = self.latest.iter().flat_map(Assignment::all_members).cloned().collect();
        let is_known = |name: &String| names.contains(name) || needed.contains(name);
        self.seen.retain(|name, _| names.contains(name));
        self.gone.retain(is_known);
        self.announced.retain(|name, _| is_known(name));
        self.missing.retain(|name, _| needed.contains(name));
        for name in needed.difference(&names).filter(|name| !self.gone.contains(*name)) {
            self.missing.entry(name.clone()).or_insert(now);
        }
    }

    /// Remembers an assignment that was read or written, unless a later one is known.
    pub(super) fn keep(&mut self, assignment: Assignment) {
        if self.latest.as_ref().is_none_or(|latest| latest.number <= assignment.number) {
            self.latest = Some(assignment);
        }
    }

    /// Returns whether a member has not renewed its lease for the lease's duration.
    fn is_stale(&self, now: Nanos, member: &FoundMember) -> bool {
        let unchanged = self.seen.get(&member.name).map_or(Duration::ZERO, |(_, since)| now.since(*since));
        member.name != self.me && !self.gone.contains(&member.name) && unchanged >= self.lasts(member)
    }

    fn lasts(&self, member: &FoundMember) -> Duration {
        member.duration.unwrap_or(self.duration)
    }

    /// Returns the members with a lease that are not gone, in order.
    fn alive<'a>(&'a self, found: &'a FoundGroup) -> impl Iterator<Item = &'a String> {
        let names: BTreeSet<_> = found.members.iter().map(|member| &member.name).collect();
        names.into_iter().filter(|name| !self.gone.contains(*name))
    }

    fn wanted(&self, now: Nanos, found: &FoundGroup, stale: &BTreeSet<String>) -> Vec<MemberWrite> {
        let version = |name: &String| found.members.iter().find(|member| member.name == *name);
        let mut writes: Vec<_> = stale
            .iter()
            .filter_map(|name| {
                Some(MemberWrite::Expel { name: name.clone(), version: Some(version(name)?.version.clone()) })
            })
            .collect();
        let lost = self.missing.iter().filter(|(_, since)| now.since(**since) >= self.duration);
        writes.extend(lost.map(|(name, _)| MemberWrite::Expel { name: name.clone(), version: None }));
        if !writes.is_empty() {
            // The next assignment leaves them out at once.
            return writes;
        }
        let alive: Vec<_> = self.alive(found).cloned().collect();
        writes.extend(
            self.next_assignment(found, alive).map(|(version, assignment)| MemberWrite::Assign { version, assignment }),
        );
        if let Some((_, assignment)) = &found.assignment {
            let needed: BTreeSet<_> = assignment.all_members().collect();
            let forgotten = found.members.iter().filter(|member| member.is_gone && !needed.contains(&member.name));
            writes.extend(
                forgotten
                    .map(|member| MemberWrite::Forget { name: member.name.clone(), version: member.version.clone() }),
            );
        }
        writes
    }

    /// Returns the next assignment and the version of the current one, if the members have changed.
    fn next_assignment(&self, found: &FoundGroup, alive: Vec<String>) -> Option<(Option<String>, Assignment)> {
        if alive.is_empty() {
            return None;
        }
        let (version, latest) = match (&found.assignment, &self.latest) {
            (Some((version, assignment)), Some(latest)) if assignment == latest => (Some(version.clone()), latest),
            (None, Some(latest)) if self.announced.values().all(|number| *number <= latest.number) => (None, latest),
            // Members that know a deleted assignment write it again. Once these members have ended, none of its keys
            // runs.
            (None, None) if alive.iter().all(|name| self.announced.get(name).is_none_or(|number| *number == 0)) => {
                // Perhaps nobody has announced the last ones.
                let last = self.announced.values().max().copied().filter(|last| *last > 0);
                let number = last.map_or(1, |last| last + MOST_EARLIER as u64 + 2);
                return Some((None, Assignment { number, members: alive, earlier: Vec::new() }));
            }
            // Either the assignment that was read is old, or members know a deleted one and will write it again.
            _ => return None,
        };
        if latest.members.iter().any(|name| self.missing.contains_key(name)) {
            // Perhaps the list is old, and the member has a lease.
            return None;
        }
        let current = EarlierAssignment { number: latest.number, members: latest.members.clone() };
        let earlier = latest.earlier.iter().cloned().chain([current]);
        let earlier: Vec<_> = earlier.filter(|earlier| !self.is_finished(earlier)).collect();
        let is_new = version.is_none() || alive != latest.members;
        let names = earlier.iter().flat_map(|earlier| &earlier.members);
        let is_small = earlier.len() <= 1 || names.map(String::len).sum::<usize>() <= MOST_NAMES;
        let may_follow = earlier.len() <= MOST_EARLIER && is_small;
        let next = Assignment { number: latest.number + 1, members: alive, earlier };
        (is_new && may_follow).then_some((version, next))
    }

    /// Returns whether no member of an earlier assignment runs a key that it has lost since.
    fn is_finished(&self, earlier: &EarlierAssignment) -> bool {
        earlier.members.iter().all(|name| self.has_left(name, earlier))
    }

    /// Returns whether a member runs no key that it has lost since an earlier assignment.
    fn has_left(&self, name: &String, earlier: &EarlierAssignment) -> bool {
        self.has_announced(name, earlier.number + 1)
    }

    /// Returns whether a member has announced this assignment or a later one, or is gone.
    fn has_announced(&self, name: &String, number: u64) -> bool {
        self.gone.contains(name) || self.announced.get(name).is_some_and(|announced| *announced >= number)
    }

    /// Returns the assignment in the form that keys need.
    pub(super) fn table(&self) -> ShardTable {
        let Some(Assignment { number, members, earlier }) = &self.latest else { return ShardTable::default() };
        let hash = |name: &String| ShardHash::of([name]);
        let earlier = earlier.iter().filter(|assignment| !self.is_finished(assignment)).map(|assignment| {
            let member = |name| EarlierMember { member: hash(name), has_left: self.has_left(name, assignment) };
            assignment.members.iter().map(member).collect()
        });
        ShardTable {
            number: *number,
            me: members.contains(&self.me).then(|| hash(&self.me)),
            members: members.iter().map(hash).collect(),
            earlier: earlier.collect(),
        }
    }

    /// Returns the assignment for display.
    pub(super) fn status(&self) -> ShardStatus {
        let Some(Assignment { number, members, earlier }) = &self.latest else { return ShardStatus::default() };
        let mut status = ShardStatus::default();
        if members.contains(&self.me) {
            status.name.clone_from(&self.me);
        }
        status.members.clone_from(members);
        status.number = *number;
        let awaited = earlier.iter().flat_map(|assignment| {
            assignment.members.iter().filter(|name| **name != self.me && !self.has_left(name, assignment))
        });
        status.waits_for = awaited.collect::<BTreeSet<_>>().into_iter().cloned().collect();
        status
    }

    /// Returns whether no change is expected: all members with a lease are in the assignment, and this member waits for
    /// none of them.
    pub(super) fn is_settled(&self, found: &FoundGroup) -> bool {
        let is_current = |latest: &Assignment| self.alive(found).eq(&latest.members);
        self.latest.as_ref().is_some_and(is_current) && self.status().waits_for.is_empty()
    }

    /// Returns the time at which the next lease may become stale.
    pub(super) fn next_stale(&self, now: Nanos, found: &FoundGroup) -> Nanos {
        let others = found.members.iter().filter(|member| member.name != self.me && !self.gone.contains(&member.name));
        let ends = others.filter_map(|member| Some(self.seen.get(&member.name)?.1.after(self.lasts(member))));
        ends.filter(|end| *end > now).min().unwrap_or(Nanos::NEVER)
    }
}

/// Collects the names of members.
trait CollectNames {
    fn collect_names(self) -> BTreeSet<String>;
}

impl<'a, I: Iterator<Item = &'a FoundMember>> CollectNames for I {
    fn collect_names(self) -> BTreeSet<String> {
        self.map(|member| member.name.clone()).collect()
    }
}
