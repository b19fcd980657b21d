//! A group of members as a plain value, and the steps that change it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::*;
use crate::lease::LeaseTiming;

#[derive(Clone, Debug)]
struct Lease {
    version: u64,
    is_gone: bool,
    announced: u64,
}

/// A write that has not arrived, although its sender no longer waits for it.
#[derive(Clone, Debug)]
enum Stray {
    /// The renewal of a member's lease in this version, with the number that it announces.
    Renewal(usize, u64, u64),
    Write(MemberWrite),
}

/// An assignment that was read before the leases.
#[derive(Clone, Debug)]
struct OldRead(Option<(String, Assignment)>);

#[derive(Clone, Debug)]
struct Member {
    is_alive: bool,
    machine: MemberMachine,
    now: Nanos,
    tick: Duration,
    /// When its lease was last renewed.
    renewed: Nanos,
    /// The number of the assignment of each run.
    runs: BTreeMap<usize, u64>,
    /// A read that takes long: it has the assignment, but not the leases.
    reading: Option<OldRead>,
    writes: Vec<MemberWrite>,
    announced: u64,
    /// A renewal without an answer: the time it was sent, and the number it announces. The store has executed it.
    renewal: Option<(Nanos, u64)>,
}

#[derive(Clone, Debug)]
pub(super) struct GroupWorld {
    mutation: Mutation,
    /// The clocks of all members that may join.
    ticks: &'static [Duration],
    assignment: Option<(u64, Assignment)>,
    leases: BTreeMap<usize, Lease>,
    /// All members, in the order of their joining.
    members: Vec<Member>,
    stray: Vec<Stray>,
    /// The member and the number of the last run of each key.
    last: BTreeMap<usize, (usize, u64)>,
    faults_left: u8,
    /// Whether renewals and writes fail. Otherwise reads are old.
    pub(super) loses_answers: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
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
    /// Renews the lease. The answer is late or lost.
    Renew(usize),
    Answer(usize),
    LoseAnswer(usize),
    /// A renewal arrives after its sender has given up.
    DelayRenewal(usize),
    /// Reads the group, and writes the changes. All answers are lost.
    LoseRound(usize),
    /// Reads the group. The writes arrive after their sender has given up.
    DelayRound(usize),
    Stray,
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
        self.renewal = None;
    }
}

impl GroupWorld {
    fn is_over(&self, member: &Member) -> bool {
        let is_over = member.now.since(member.renewed) >= LeaseTiming::default().renew_deadline;
        is_over && self.mutation != Mutation::OutlivesItsLease
    }

    pub(super) fn new(mutation: Mutation, ticks: &'static [Duration]) -> Self {
        let mut world = Self {
            mutation,
            ticks,
            assignment: None,
            leases: BTreeMap::new(),
            members: Vec::new(),
            stray: Vec::new(),
            last: BTreeMap::new(),
            faults_left: FAULTS,
            loses_answers: false,
        };
        world.join();
        world
    }

    pub(super) fn join(&mut self) {
        let name = self.members.len();
        let tick = self.ticks[name];
        let tick = if self.mutation == Mutation::WildClocks && tick == SLOW { tick / 2 } else { tick };
        self.leases.insert(name, Lease { version: 0, is_gone: false, announced: 0 });
        self.members.push(Member {
            is_alive: true,
            machine: machine(NAMES[name]),
            now: Nanos::ZERO,
            tick,
            renewed: Nanos::ZERO,
            runs: BTreeMap::new(),
            reading: None,
            writes: Vec::new(),
            announced: 0,
            renewal: None,
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

    pub(super) fn place(&self, who: usize, number: usize) -> ShardPlace {
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
        let member = &mut self.members[who];
        member.writes = member.machine.look(member.now, &found);
        self.divide(who);
    }

    pub(super) fn round(&mut self, who: usize) {
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
        let is_lost = self.leases.get(&who).is_none_or(|lease| lease.is_gone);
        let member = &mut self.members[who];
        if !is_lost && (member.renewed, member.announced) != (member.now, announced) {
            (member.renewed, member.announced) = (member.now, announced);
            self.renew(who, announced);
        }
    }

    /// Executes a renewal.
    fn renew(&mut self, who: usize, announced: u64) {
        if let Some(lease) = self.leases.get_mut(&who).filter(|lease| !lease.is_gone) {
            (lease.version, lease.announced) = (lease.version + 1, announced);
        }
    }

    fn write(&mut self, who: usize) {
        let write = self.members[who].writes.remove(0);
        if let Some(assignment) = self.execute(write) {
            self.members[who].machine.keep(assignment);
            self.divide(who);
        }
    }

    /// Executes a write. Returns the assignment that was written.
    fn execute(&mut self, write: MemberWrite) -> Option<Assignment> {
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
                    return Some(assignment);
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
        None
    }
}

impl World for GroupWorld {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Tick];
        steps.extend((self.members.len() < self.ticks.len()).then_some(Step::Join));
        for (who, member) in self.members.iter().enumerate().filter(|(_, member)| member.is_alive) {
            steps.push(Step::Round(who));
            if self.faults_left > 0 && self.loses_answers {
                steps.extend([Step::LoseRound(who), Step::DelayRound(who), Step::Renew(who), Step::DelayRenewal(who)]);
            } else if self.faults_left > 0 && member.reading.is_none() {
                steps.extend([Step::Look(who), Step::BeginLook(who)]);
            }
            steps.extend(member.renewal.iter().flat_map(|_| [Step::Answer(who), Step::LoseAnswer(who)]));
            steps.extend((!member.writes.is_empty()).then_some(Step::Write(who)));
            steps.extend(member.runs.is_empty().then_some(Step::Leave(who)));
            let can_run =
                |number: &usize| !member.runs.contains_key(number) && self.place(who, *number) == ShardPlace::Here;
            steps.extend((0..2).filter(can_run).map(|number| Step::Run(who, number)));
            steps.extend(member.runs.keys().map(|number| Step::EndRun(who, *number)));
        }
        steps.extend((!self.stray.is_empty()).then_some(Step::Stray));
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Tick => {
                for member in &mut self.members {
                    member.now = member.now.after(member.tick);
                }
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
            Step::Renew(who) => {
                self.faults_left -= 1;
                let announced = self.to_announce(who);
                self.members[who].renewal = Some((self.members[who].now, announced));
                self.renew(who, announced);
            }
            Step::Answer(who) => {
                let member = &mut self.members[who];
                if let Some((sent, announced)) = member.renewal.take() {
                    let sent = if self.mutation == Mutation::CountsFromAnswer { member.now } else { sent };
                    (member.renewed, member.announced) = (member.renewed.max(sent), member.announced.max(announced));
                }
            }
            Step::LoseAnswer(who) => self.members[who].renewal = None,
            Step::DelayRenewal(who) => {
                self.faults_left -= 1;
                let announced = self.to_announce(who);
                if self.mutation == Mutation::CountsFailures {
                    self.members[who].renewed = self.members[who].now;
                }
                let lease = self.leases.get(&who);
                self.stray.extend(lease.map(|lease| Stray::Renewal(who, lease.version, announced)));
            }
            Step::LoseRound(who) => {
                self.faults_left -= 1;
                self.look(who);
                for write in std::mem::take(&mut self.members[who].writes) {
                    self.execute(write);
                }
            }
            Step::DelayRound(who) => {
                self.faults_left -= 1;
                self.look(who);
                let writes = std::mem::take(&mut self.members[who].writes);
                self.stray.extend(writes.into_iter().map(Stray::Write));
            }
            Step::Stray => match self.stray.remove(0) {
                Stray::Write(write) => drop(self.execute(write)),
                Stray::Renewal(who, version, announced) => {
                    if self.leases.get(&who).is_some_and(|lease| lease.version == version) {
                        self.renew(who, announced);
                    }
                }
            },
        }
        Ok(())
    }
}

/// Continues a world without faults until nothing changes. Afterwards each key belongs to one member.
pub(super) fn calm(mut world: GroupWorld) -> Result<(), String> {
    while !world.stray.is_empty() {
        world.take(Step::Stray)?;
    }
    let is_alive = |world: &GroupWorld, who: &usize| world.members[*who].is_alive;
    for _ in 0..8 {
        for who in (0..world.members.len()).filter(|who| is_alive(&world, who)).collect::<Vec<_>>() {
            world.members[who].runs.clear();
            world.round(who);
        }
        world.take(Step::Tick)?;
    }
    let alive: Vec<_> = (0..world.members.len()).filter(|who| is_alive(&world, who)).collect();
    for number in 0..2 {
        let owners = alive.iter().filter(|who| world.place(**who, number) == ShardPlace::Here).count();
        if owners != 1 && !alive.is_empty() {
            return Err(format!("key {number} belongs to {owners} members: {world:#?}"));
        }
    }
    Ok(())
}
