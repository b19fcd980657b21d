//! Members in random worlds: clocks of different rates, old reads, writes that race, members that hang, die, leave and
//! join, and runs that do not end.

use std::collections::{BTreeMap, VecDeque};

use super::super::machine::MOST_EARLIER;
use super::*;
use crate::lease::LeaseTiming;
use homeostat::rt::Draws;
use homeostat::run::Permit;

/// `HOMEOSTAT_FLEET_SEEDS` sets another number.
const SEEDS: u64 = 100;
const STEPS: usize = 3_000;
const KEYS: usize = 12;
/// The number of earlier states of the store that a read can find.
const OLD_STATES: usize = 50;

/// Counts the events of all worlds. The test checks that enough of each happened.
#[derive(Debug, Default)]
struct WorldCounts {
    runs: usize,
    /// Runs in another member than the previous run of the key, and how many of those began while a member ran a key
    /// that it had lost.
    moves: usize,
    moves_beside_lost_runs: usize,
    /// Members that were expelled while they were paused.
    expelled: usize,
    /// Assignments that keep more than one earlier assignment, and those that keep as many as they can.
    long_assignments: usize,
    longest_assignments: usize,
    old_reads: usize,
}

struct StoredLease {
    version: u64,
    is_gone: bool,
    announced: u64,
}

#[derive(Default)]
struct GroupStore {
    version: u64,
    assignment: Option<(u64, Assignment)>,
    leases: BTreeMap<String, StoredLease>,
}

impl GroupStore {
    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Changes the lease of a member that is not gone.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut StoredLease)) {
        let version = self.next_version();
        if let Some(lease) = self.leases.get_mut(name).filter(|lease| !lease.is_gone) {
            lease.version = version;
            change(lease);
        }
    }

    fn members(&self) -> Vec<FoundMember> {
        let found = |(name, lease): (&String, &StoredLease)| FoundMember {
            is_gone: lease.is_gone,
            ..member(name, lease.version, lease.announced)
        };
        self.leases.iter().map(found).collect()
    }

    fn state(&self) -> GroupState {
        let assignment =
            self.assignment.as_ref().map(|(version, assignment)| (version.to_string(), assignment.clone()));
        GroupState { version: self.version, assignment, members: self.members() }
    }
}

/// The objects of the group at one version of the store.
#[derive(Clone)]
struct GroupState {
    version: u64,
    assignment: Option<(String, Assignment)>,
    members: Vec<FoundMember>,
}

/// A read of the group, which takes several steps.
#[derive(Default)]
enum Reading {
    #[default]
    Nothing,
    Assignment(Option<(String, Assignment)>),
    All(FoundGroup),
}

struct WorldMember {
    name: String,
    machine: MemberMachine,
    /// The rate of its clock in hundredths, and the time of its clock at the start of the world.
    rate: u64,
    offset: u64,
    /// The time by its clock when its lease was last written.
    renewed: Nanos,
    /// The assignment that is in effect, and the runs.
    shards: Shards,
    running: BTreeMap<usize, Permit>,
    reading: Reading,
    writes: Vec<MemberWrite>,
    /// The assignment that an unfinished write of the lease announces.
    announcing: Option<u64>,
    announced: u64,
    /// Its runs do not end.
    is_stuck: bool,
    /// It does nothing, like a process that is stopped.
    is_paused: bool,
}

impl WorldMember {
    /// Returns the time by its clock.
    fn local(&self, now: u64) -> Nanos {
        Nanos(self.offset + now / 100 * self.rate)
    }

    /// Puts the latest assignment into effect, as `MemberTask::divide` does.
    fn divide(&self) {
        let table = self.machine.table();
        let fence = Fence::unlimited(table.number);
        self.shards.divide(table, self.machine.status(), Some(fence));
    }

    fn to_announce(&self) -> u64 {
        self.shards.lost_runs().to_announce(self.machine.table().number, self.announced)
    }
}

fn hash(key: usize) -> ShardHash {
    ShardHash::of([format!("key-{key}")])
}

struct World<'a> {
    draws: Draws,
    now: u64,
    store: GroupStore,
    /// Earlier states of the store, the latest last.
    old_states: VecDeque<GroupState>,
    is_calm: bool,
    members: Vec<WorldMember>,
    joined: usize,
    /// The number and the member of the last run of each key.
    last: BTreeMap<usize, (u64, String)>,
    counts: &'a mut WorldCounts,
}

impl World<'_> {
    fn draw(&mut self, below: usize) -> usize {
        usize::try_from(self.draws.draw() % below as u64).unwrap_or_default()
    }

    fn join(&mut self) {
        self.joined += 1;
        let name = format!("m{}", self.joined);
        let version = self.store.next_version();
        self.store.leases.insert(name.clone(), StoredLease { version, is_gone: false, announced: 0 });
        // The extremes are the interesting rates.
        let rate = [80, 80, 100, 120, 120][self.draw(5)];
        let offset = self.draws.draw() % 1_000_000_000_000;
        let mut member = WorldMember {
            machine: machine(&name),
            name,
            rate,
            offset,
            renewed: Nanos::ZERO,
            shards: Shards::new(LEASE),
            running: BTreeMap::new(),
            reading: Reading::Nothing,
            writes: Vec::new(),
            announcing: None,
            announced: 0,
            is_stuck: false,
            is_paused: false,
        };
        member.renewed = member.local(self.now);
        self.members.push(member);
    }

    fn step(&mut self) {
        if self.old_states.back().is_none_or(|last| last.version != self.store.version) {
            self.old_states.push_back(self.store.state());
            if self.old_states.len() > OLD_STATES {
                self.old_states.pop_front();
            }
        }
        self.now += self.draws.draw() % 100_000_000;
        if self.members.is_empty() || (self.members.len() < 5 && self.draw(40) == 0) {
            return self.join();
        }
        let index = self.draw(self.members.len());
        let action = self.draw(100);
        if self.members[index].is_paused {
            self.members[index].is_paused = action > 2;
            return;
        }
        match action {
            0..30 => self.read(index),
            30..50 => self.write(index),
            50..60 => self.announce(index),
            60..70 => self.renew(index),
            70..85 => self.run(index),
            85..96 => self.end_run(index),
            96 => self.members[index].is_stuck = !self.members[index].is_stuck || self.draw(10) > 0,
            97 => self.leave(index),
            98 => self.members[index].is_paused = self.draw(4) == 0,
            _ if self.draw(5) == 0 => drop(self.members.remove(index)),
            _ => {}
        }
    }

    /// Continues a read of the group.
    fn read(&mut self, index: usize) {
        let state = self.found_state();
        let member = &mut self.members[index];
        member.reading = match std::mem::take(&mut member.reading) {
            Reading::Nothing => Reading::Assignment(state.assignment),
            Reading::Assignment(assignment) => Reading::All(FoundGroup { assignment, members: state.members }),
            Reading::All(found) => {
                member.writes = member.machine.look(member.local(self.now), &found);
                member.divide();
                Reading::Nothing
            }
        };
    }

    /// Returns the state of the store that a read finds, which may be old.
    fn found_state(&mut self) -> GroupState {
        if self.is_calm || self.old_states.is_empty() || self.draw(6) > 0 {
            return self.store.state();
        }
        self.counts.old_reads += 1;
        let late = self.draw(self.old_states.len());
        self.old_states[late].clone()
    }

    fn write(&mut self, index: usize) {
        let member = &mut self.members[index];
        if member.writes.is_empty() {
            return;
        }
        match member.writes.remove(0) {
            MemberWrite::Assign { version, assignment } => {
                let current = self.store.assignment.as_ref().map(|(version, _)| version.to_string());
                if current == version {
                    let version = self.store.next_version();
                    self.counts.long_assignments += usize::from(assignment.earlier.len() > 1);
                    self.counts.longest_assignments += usize::from(assignment.earlier.len() == MOST_EARLIER);
                    self.store.assignment = Some((version, assignment.clone()));
                    member.machine.keep(assignment);
                    member.divide();
                }
            }
            MemberWrite::Expel { name, version } => {
                let current = self.store.leases.get(&name).map(|lease| lease.version.to_string());
                if current == version {
                    let version = self.store.next_version();
                    self.store.leases.insert(name.clone(), StoredLease { version, is_gone: true, announced: 0 });
                    let living = self.members.len();
                    let deadline = LeaseTiming::default().renew_deadline;
                    for member in self.members.iter().filter(|member| member.name == name) {
                        let end = member.renewed.after(deadline);
                        assert!(member.local(self.now) >= end, "{name} is expelled before its runs have ended");
                    }
                    self.members.retain(|member| member.name != name);
                    self.counts.expelled += living - self.members.len();
                }
            }
            MemberWrite::Forget { name, version } => {
                if self.store.leases.get(&name).is_some_and(|lease| lease.version.to_string() == version) {
                    self.store.leases.remove(&name);
                }
            }
        }
    }

    /// Sends a write of the lease, or lets it arrive.
    fn announce(&mut self, index: usize) {
        let member = &mut self.members[index];
        match member.announcing.take() {
            None => member.announcing = Some(member.to_announce()),
            Some(number) => {
                member.announced = number;
                member.renewed = member.local(self.now);
                let announce = |lease: &mut StoredLease| lease.announced = number;
                self.store.change(&self.members[index].name, announce);
            }
        }
    }

    fn renew(&mut self, index: usize) {
        self.members[index].renewed = self.members[index].local(self.now);
        self.store.change(&self.members[index].name, |_| {});
    }

    /// Begins a run of a key, if the member may run it.
    fn run(&mut self, index: usize) {
        let key = self.draw(KEYS);
        let member = &self.members[index];
        if member.running.contains_key(&key) {
            return;
        }
        let ShardEntry::Run(permit) = member.shards.enter(hash(key)) else { return };
        if let Some(other) = self.members.iter().find(|other| other.running.contains_key(&key)) {
            let assignment = &self.store.assignment;
            unreachable!("key {key} runs at {} and {}: {assignment:?}", other.name, member.name);
        }
        let number = member.machine.table().number;
        let (before, owner) = self.last.insert(key, (number, member.name.clone())).unwrap_or_default();
        let is_moved = before > 0 && owner != member.name;
        assert!(before < number || (before == number && !is_moved), "key {key}: number {number} after {before}");
        let is_lost_run = self.members.iter().any(|member| member.shards.lost_runs().count > 0);
        self.counts.runs += 1;
        self.counts.moves += usize::from(is_moved);
        self.counts.moves_beside_lost_runs += usize::from(is_moved && is_lost_run);
        self.members[index].running.insert(key, permit);
    }

    fn end_run(&mut self, index: usize) {
        let member = &mut self.members[index];
        if !member.is_stuck {
            member.running.pop_first();
        }
    }

    fn leave(&mut self, index: usize) {
        if self.members[index].running.is_empty() {
            let member = self.members.remove(index);
            self.store.change(&member.name, |lease| lease.is_gone = true);
        }
    }

    /// Lets all runs end, and all members read the group until nothing changes.
    fn settle(&mut self) {
        self.is_calm = true;
        for _ in 0..100 {
            (0..self.members.len()).for_each(|index| self.renew(index));
            for index in 0..self.members.len() {
                self.members[index].running.clear();
                (0..3).for_each(|_| self.read(index));
                while !self.members[index].writes.is_empty() {
                    self.write(index);
                }
                self.announce(index);
                self.announce(index);
            }
            self.now += 1_000_000_000;
        }
    }
}

#[test]
fn a_key_runs_at_one_member_at_a_time_and_at_last_at_one() {
    let mut counts = WorldCounts::default();
    let seeds = std::env::var("HOMEOSTAT_FLEET_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut world = World {
            draws: Draws::new(seed),
            now: 0,
            store: GroupStore::default(),
            old_states: VecDeque::new(),
            is_calm: false,
            members: Vec::new(),
            joined: 0,
            last: BTreeMap::new(),
            counts: &mut counts,
        };
        (0..STEPS).for_each(|_| world.step());
        if world.members.is_empty() {
            world.join();
        }
        world.settle();
        let mut alive: Vec<_> = world.members.iter().map(|member| member.name.clone()).collect();
        alive.sort_unstable();
        for member in &world.members {
            assert_eq!(member.machine.status().members, alive, "seed {seed}");
        }
        for key in 0..KEYS {
            let owners = world.members.iter().filter(|member| member.shards.owns(hash(key))).count();
            assert_eq!(owners, 1, "seed {seed}, key {key}");
        }
    }
    println!("{counts:?}");
    let seeds = usize::try_from(seeds).unwrap();
    let enough = counts.runs > 15 * seeds && counts.moves > 5 * seeds && counts.moves_beside_lost_runs > 2 * seeds;
    let rare = 4 * counts.expelled > seeds && 20 * counts.longest_assignments > seeds;
    assert!(enough && rare && counts.old_reads > 20 * seeds, "too little happens: {counts:?}");
}
