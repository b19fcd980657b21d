//! All worlds of up to three members with two keys, up to a depth: members join, leave, hang and are expelled; one read
//! is old, or its writes arrive late; writes race, and runs take long.
//!
//! Not covered: clocks of different rates, answers that are lost, and calls that arrive after their sender has given
//! up. The exploration of leases has these.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use super::{
    Assignment, FoundGroup, FoundMember, LEASE, LostRuns, MemberMachine, MemberWrite, Nanos, ShardHash, ShardTable,
    machine,
};
use crate::lease::LeaseTiming;
use crate::members::shards::ShardPlace;
use homeostat_test_support::explore::{World, explore, explore_and_calm};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// After two ticks a lease may be expelled, and the work of its member has ended.
const TICK: Duration = Duration::from_secs(8);
const FAULTS: u8 = 1;
const DEPTH: usize = 6;

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
}

#[derive(Clone, Debug)]
struct Lease {
    version: u64,
    is_gone: bool,
    announced: u64,
}

/// An assignment that was read before the leases.
#[derive(Clone, Debug)]
struct OldRead(Option<(String, Assignment)>);

#[derive(Clone, Debug)]
struct Member {
    is_alive: bool,
    machine: MemberMachine,
    /// When its lease was last renewed.
    renewed: Nanos,
    /// The number of the assignment of each run.
    runs: BTreeMap<usize, u64>,
    /// A read that takes long: it has the assignment, but not the leases.
    reading: Option<OldRead>,
    writes: Vec<MemberWrite>,
    announced: u64,
}

#[derive(Clone, Debug)]
struct GroupWorld {
    mutation: Mutation,
    now: Nanos,
    assignment: Option<(u64, Assignment)>,
    leases: BTreeMap<usize, Lease>,
    /// All members, in the order of their joining.
    members: Vec<Member>,
    /// The member and the number of the last run of each key.
    last: BTreeMap<usize, (usize, u64)>,
    faults_left: u8,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes. Members that do nothing hang.
    Tick,
    Join,
    /// Reads the group, writes the changes, renews the lease, and announces an assignment. Other steps split this.
    Round(usize),
    /// Reads the group. The writes follow later.
    Look(usize),
    /// Reads the assignment. The leases follow later.
    BeginLook(usize),
    Write(usize),
    Leave(usize),
    Run(usize, usize),
    EndRun(usize, usize),
}

/// Returns one of two keys. With all three members, the first belongs to `b` and the second to `c`. With the first two
/// members, the first belongs to `b` and the second to `a`.
fn key(number: usize) -> ShardHash {
    static KEYS: OnceLock<[ShardHash; 2]> = OnceLock::new();
    KEYS.get_or_init(|| [0, 1].map(find_key))[number]
}

fn find_key(number: usize) -> ShardHash {
    let belongs = |key: ShardHash, owner: usize, names: &[&str]| {
        let (me, members) = (ShardHash::of([NAMES[owner]]), names.iter().map(|name| ShardHash::of([*name])).collect());
        ShardTable { number: 1, me: Some(me), members, earlier: Vec::new() }.place(key) == ShardPlace::Here
    };
    let is_it = |key: &ShardHash| belongs(*key, number + 1, &NAMES) && belongs(*key, 1 - number, &NAMES[..2]);
    (0..1_000)
        .map(|number: u32| ShardHash::of([number.to_string()]))
        .find(is_it)
        .unwrap_or_else(|| panic!("no such key"))
}

impl Member {
    fn end(&mut self) {
        self.is_alive = false;
        self.runs.clear();
        self.writes.clear();
        self.reading = None;
    }
}

impl GroupWorld {
    fn is_over(&self, member: &Member) -> bool {
        let is_over = self.now.since(member.renewed) >= LeaseTiming::default().renew_deadline;
        is_over && self.mutation != Mutation::OutlivesItsLease
    }

    fn new(mutation: Mutation) -> Self {
        let mut world = Self {
            mutation,
            now: Nanos::ZERO,
            assignment: None,
            leases: BTreeMap::new(),
            members: Vec::new(),
            last: BTreeMap::new(),
            faults_left: FAULTS,
        };
        world.join();
        world
    }

    fn join(&mut self) {
        let name = self.members.len();
        self.leases.insert(name, Lease { version: 0, is_gone: false, announced: 0 });
        self.members.push(Member {
            is_alive: true,
            machine: machine(NAMES[name]),
            renewed: self.now,
            runs: BTreeMap::new(),
            reading: None,
            writes: Vec::new(),
            announced: 0,
        });
    }

    fn found(&self, assignment: Option<(String, Assignment)>) -> FoundGroup {
        let found = |(name, lease): (&usize, &Lease)| FoundMember {
            name: NAMES[*name].to_owned(),
            version: lease.version.to_string(),
            is_gone: lease.is_gone,
            duration: Some(LEASE),
            announced: lease.announced,
        };
        FoundGroup { assignment, members: self.leases.iter().map(found).collect() }
    }

    fn current(&self) -> Option<(String, Assignment)> {
        self.assignment.as_ref().map(|(version, assignment)| (version.to_string(), assignment.clone()))
    }

    fn place(&self, who: usize, number: usize) -> ShardPlace {
        let place = self.members[who].machine.table().place(key(number));
        let is_early = self.mutation == Mutation::RunsEarly && place == ShardPlace::HereSoon;
        if is_early { ShardPlace::Here } else { place }
    }

    /// Puts the latest assignment into effect: runs of own keys continue with its number.
    fn divide(&mut self, who: usize) {
        for number in 0..2 {
            let is_here = self.place(who, number) == ShardPlace::Here;
            let member = &mut self.members[who];
            let table = member.machine.table().number;
            member.runs.entry(number).and_modify(|run| *run = if is_here { table } else { *run });
        }
    }

    fn to_announce(&self, who: usize) -> u64 {
        let member = &self.members[who];
        let divided = member.machine.table().number;
        if self.mutation == Mutation::AnnouncesEarly {
            return divided;
        }
        let lost = member.runs.iter().filter(|(number, _)| self.place(who, **number) != ShardPlace::Here);
        let lost = LostRuns { count: lost.clone().count(), number: lost.map(|(_, run)| *run).min() };
        lost.to_announce(divided, member.announced)
    }

    fn look(&mut self, who: usize) {
        let assignment = self.members[who].reading.take().map_or_else(|| self.current(), |OldRead(found)| found);
        let found = self.found(assignment);
        let now = self.now;
        let member = &mut self.members[who];
        member.writes = member.machine.look(now, &found);
        self.divide(who);
    }

    fn round(&mut self, who: usize) {
        self.look(who);
        while !self.members[who].writes.is_empty() {
            self.write(who);
        }
        if self.members[who].is_alive {
            self.announce(who);
        }
    }

    fn announce(&mut self, who: usize) {
        let announced = self.to_announce(who);
        let lease = self.leases.get_mut(&who).filter(|lease| !lease.is_gone);
        let member = &mut self.members[who];
        if let Some(lease) = lease
            && (member.renewed, member.announced) != (self.now, announced)
        {
            (lease.version, lease.announced) = (lease.version + 1, announced);
            (member.renewed, member.announced) = (self.now, announced);
        }
    }

    fn write(&mut self, who: usize) {
        let write = self.members[who].writes.remove(0);
        let index = |name: &str| NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len());
        let fits = |current: Option<u64>, version: Option<&String>| {
            current.map(|version| version.to_string()).as_ref() == version
        };
        match write {
            MemberWrite::Assign { version, mut assignment } => {
                let current = self.assignment.as_ref().map(|(version, _)| *version);
                if fits(current, version.as_ref()) {
                    if self.mutation == Mutation::ForgetsEarlier {
                        assignment.earlier.clear();
                    }
                    self.assignment = Some((current.unwrap_or_default() + 1, assignment.clone()));
                    self.members[who].machine.keep(assignment);
                    self.divide(who);
                }
            }
            MemberWrite::Expel { name, version } => {
                let name = index(&name);
                let current = self.leases.get(&name).map(|lease| lease.version);
                if fits(current, version.as_ref()) {
                    let version = current.unwrap_or_default() + 1;
                    self.leases.insert(name, Lease { version, is_gone: true, announced: 0 });
                    if self.is_over(&self.members[name]) {
                        self.members[name].end();
                    }
                }
            }
            MemberWrite::Forget { name, version } => {
                let name = index(&name);
                if fits(self.leases.get(&name).map(|lease| lease.version), Some(&version)) {
                    self.leases.remove(&name);
                }
            }
        }
    }
}

impl World for GroupWorld {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Tick];
        steps.extend((self.members.len() < NAMES.len()).then_some(Step::Join));
        for (who, member) in self.members.iter().enumerate().filter(|(_, member)| member.is_alive) {
            steps.push(Step::Round(who));
            if member.reading.is_none() && self.faults_left > 0 {
                steps.extend([Step::Look(who), Step::BeginLook(who)]);
            }
            steps.extend((!member.writes.is_empty()).then_some(Step::Write(who)));
            steps.extend(member.runs.is_empty().then_some(Step::Leave(who)));
            let can_run =
                |number: &usize| !member.runs.contains_key(number) && self.place(who, *number) == ShardPlace::Here;
            steps.extend((0..2).filter(can_run).map(|number| Step::Run(who, number)));
            steps.extend(member.runs.keys().map(|number| Step::EndRun(who, *number)));
        }
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Tick => {
                self.now = self.now.after(TICK);
                // The deadline ends the work of a member that hangs.
                let over: Vec<_> = self.members.iter().map(|member| self.is_over(member)).collect();
                let ended = self.members.iter_mut().zip(over).filter_map(|(member, over)| over.then_some(member));
                ended.for_each(Member::end);
            }
            Step::Join => self.join(),
            Step::BeginLook(who) => {
                self.faults_left -= 1;
                let current = self.current();
                self.members[who].reading = Some(OldRead(current));
            }
            Step::Look(who) => {
                self.faults_left -= 1;
                self.look(who);
            }
            Step::Round(who) => self.round(who),
            Step::Write(who) => self.write(who),
            Step::Leave(who) => {
                self.members[who].end();
                if let Some(lease) = self.leases.get_mut(&who) {
                    (lease.version, lease.is_gone) = (lease.version + 1, true);
                }
            }
            Step::Run(who, number) => {
                let table = self.members[who].machine.table().number;
                let (owner, before) = self.last.insert(number, (who, table)).unwrap_or_default();
                if before > table || (before == table && owner != who) {
                    return Err(format!("key {number} runs with the number {table} after {before}"));
                }
                self.members[who].runs.insert(number, table);
                if self.members.iter().filter(|member| member.runs.contains_key(&number)).count() > 1 {
                    return Err(format!("key {number} runs at two members"));
                }
            }
            Step::EndRun(who, number) => {
                self.members[who].runs.remove(&number);
            }
        }
        Ok(())
    }
}

/// Continues a world without faults until nothing changes. Afterwards each key belongs to one member.
fn calm(mut world: GroupWorld) -> Result<(), String> {
    let names: Vec<_> = (0..world.members.len()).filter(|who| world.members[*who].is_alive).collect();
    if names.is_empty() {
        return Ok(());
    }
    for _ in 0..6 {
        for &who in &names {
            world.members[who].runs.clear();
            world.round(who);
        }
        world.take(Step::Tick)?;
    }
    for number in 0..2 {
        let owners = names.iter().filter(|who| world.place(**who, number) == ShardPlace::Here).count();
        if owners != 1 {
            return Err(format!("key {number} belongs to {owners} members: {world:#?}"));
        }
    }
    Ok(())
}

/// Returns the worlds from which explorations start: one member that has just joined, and two that divide the keys.
fn starts(mutation: Mutation) -> [GroupWorld; 2] {
    let joined = GroupWorld::new(mutation);
    let mut divided = joined.clone();
    divided.join();
    for _ in 0..3 {
        divided.round(0);
        divided.round(1);
    }
    [joined, divided]
}

#[test]
fn in_all_small_worlds_a_key_runs_at_one_member_and_is_not_forgotten() {
    for start in starts(Mutation::None) {
        let explored = explore_and_calm(start, DEPTH, calm);
        println!("{} states, {} steps, {} at the end", explored.states, explored.steps, explored.last.len());
        assert!(explored.states > 2_000, "{} states", explored.states);
    }
}

#[test]
fn the_exploration_of_members_finds_each_seeded_fault() {
    for mutation in
        [Mutation::AnnouncesEarly, Mutation::RunsEarly, Mutation::ForgetsEarlier, Mutation::OutlivesItsLease]
    {
        let faults = starts(mutation).map(|start| explore(start, DEPTH).map(|explored| explored.states));
        assert!(faults.iter().any(Result::is_err), "{mutation:?}: no fault in {faults:?} states");
    }
}
