//! All worlds of two candidates and few faults, up to a depth: clocks of different rates, old reads, answers that are
//! late or lost, writes that arrive later, pauses and releases.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FoundLease, LeaseAnswer, LeaseCall, LeaseMachine, LeaseSpec, LeaseTiming, LeaseWrite, Nanos};
use homeostat_test_support::explore::{World, explore, explore_and_calm};

/// How much a clock advances in a tick of true time, at most and at least. The ratio is that of the lease's duration
/// and the renewal deadline: after two ticks the slow clock is at the deadline, and the fast one at the duration.
const FAST: Duration = Duration::from_millis(1500);
const SLOW: Duration = Duration::from_secs(1);
const FAULTS: u8 = 2;
const DEPTH: usize = 10;

fn timing() -> LeaseTiming {
    LeaseTiming::new(Duration::from_secs(3))
        .stop_margin(Duration::from_millis(500))
        .retry_period(Duration::from_secs(1))
}

/// A fault of the machine or of its caller that the exploration must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// The deadline counts from the answer to a renewal, not from before it was sent.
    CountsFromAnswer,
    /// The store ignores the version of a write.
    AnyVersion,
    /// A candidate waits for less than the duration of the lease.
    ShortWait,
    /// The renewal deadline is longer than the duration.
    LongDeadline,
    /// The rates of the clocks differ more than allowed.
    WildClocks,
    /// A term keeps the number of the term before.
    SameNumber,
}

#[derive(Clone, Debug)]
struct Candidate {
    machine: LeaseMachine,
    now: Nanos,
    tick: Duration,
    /// A call without an answer, and when it was sent. The store has executed it once it has an answer.
    flight: Option<(LeaseCall, Nanos, Option<LeaseAnswer>)>,
    /// When its last known term is cancelled. The work may take the margin longer.
    work_ends: Option<Nanos>,
}

impl Candidate {
    fn is_at_work(&self) -> bool {
        self.work_ends.is_some_and(|end| self.now < end.after(timing().margin))
    }
}

#[derive(Clone, Debug)]
struct LeaseWorld {
    mutation: Mutation,
    candidates: [Candidate; 2],
    version: u64,
    lease: Option<(u64, LeaseSpec)>,
    /// The lease before the last write.
    older: Option<(u64, LeaseSpec)>,
    /// Writes that have not arrived, although their sender no longer waits for them.
    stray: Vec<LeaseCall>,
    holders: BTreeMap<u64, String>,
    faults_left: u8,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Tick,
    /// Makes a call: the store executes and answers it at once.
    Call(usize),
    /// Sends a call. The other steps let it arrive, answer it and fail it.
    Send(usize),
    Arrive(usize),
    Answer(usize),
    Fail(usize),
    /// A read finds the lease as it was before the last write.
    OldRead(usize),
    StrayWrite,
    Release(usize),
}

impl LeaseWorld {
    fn new(mutation: Mutation, ticks: [Duration; 2]) -> Self {
        let wild = mutation == Mutation::WildClocks;
        let candidate = |name: &str, tick: Duration| {
            let mut timing = timing();
            if mutation == Mutation::LongDeadline {
                timing = timing.renew_deadline(Duration::from_secs(4));
            }
            let tick = if wild && tick == FAST { 2 * tick } else { tick };
            Candidate {
                machine: LeaseMachine::new(name.to_owned(), timing),
                now: Nanos::ZERO,
                tick,
                flight: None,
                work_ends: None,
            }
        };
        let [one, other] = ticks;
        Self {
            mutation,
            candidates: [candidate("a", one), candidate("b", other)],
            version: 0,
            lease: None,
            older: None,
            stray: Vec::new(),
            holders: BTreeMap::new(),
            faults_left: FAULTS,
        }
    }

    fn found(&self, lease: Option<&(u64, LeaseSpec)>) -> LeaseAnswer {
        let Some((version, spec)) = lease.cloned() else { return LeaseAnswer::Missing };
        let duration = if self.mutation == Mutation::ShortWait { Some(Duration::from_secs(1)) } else { spec.duration };
        LeaseAnswer::Found(FoundLease { version: version.to_string(), spec: LeaseSpec { duration, ..spec } })
    }

    fn execute(&mut self, call: &LeaseCall) -> Result<LeaseAnswer, String> {
        let LeaseCall::Write(LeaseWrite { version, spec, .. }) = call else {
            return Ok(self.found(self.lease.as_ref()));
        };
        let current = self.lease.as_ref().map(|(version, _)| version.to_string());
        if current != *version && self.mutation != Mutation::AnyVersion {
            return Ok(if current.is_none() { LeaseAnswer::Missing } else { LeaseAnswer::Refused });
        }
        let mut spec = spec.clone();
        if self.mutation == Mutation::SameNumber {
            spec.number = 0;
        }
        if !spec.holder.is_empty() {
            let holder = self.holders.entry(spec.number).or_insert_with(|| spec.holder.clone());
            if *holder != spec.holder {
                return Err(format!("{holder} and {} have the number {}", spec.holder, spec.number));
            }
        }
        self.version += 1;
        self.older = self.lease.replace((self.version, spec));
        Ok(LeaseAnswer::Written(self.version.to_string()))
    }

    fn answer(&mut self, who: usize, sent: Nanos, answer: LeaseAnswer) {
        let candidate = &mut self.candidates[who];
        let sent = if self.mutation == Mutation::CountsFromAnswer { candidate.now } else { sent };
        candidate.machine.answered(sent, candidate.now, answer, 0);
        if let Some((_, work_ends)) = candidate.machine.term() {
            candidate.work_ends = Some(work_ends);
        }
    }

    /// Returns the call that a candidate wants to make now.
    fn due(&self, who: usize) -> Option<LeaseCall> {
        let candidate = &self.candidates[who];
        let call = candidate.machine.clone().next(candidate.now);
        (candidate.flight.is_none() && matches!(call, LeaseCall::Read | LeaseCall::Write(_))).then_some(call)
    }
}

impl World for LeaseWorld {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Tick];
        for who in 0..self.candidates.len() {
            let (due, may_fail) = (self.due(who), self.faults_left > 0);
            match &self.candidates[who].flight {
                None if due.is_some() => {
                    steps.push(Step::Call(who));
                    if may_fail {
                        steps.push(Step::Send(who));
                    }
                    if may_fail && due == Some(LeaseCall::Read) && self.older.is_some() {
                        steps.push(Step::OldRead(who));
                    }
                }
                None => {}
                Some((_, _, None)) => steps.extend([Step::Arrive(who), Step::Fail(who)]),
                Some((_, _, Some(_))) => steps.extend([Step::Answer(who), Step::Fail(who)]),
            }
            if may_fail && self.candidates[who].flight.is_none() && self.candidates[who].machine.term().is_some() {
                steps.push(Step::Release(who));
            }
        }
        if !self.stray.is_empty() {
            steps.push(Step::StrayWrite);
        }
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        self.faults_left -= u8::from(matches!(step, Step::Send(_) | Step::OldRead(_) | Step::Release(_)));
        match step {
            Step::Tick => {
                for candidate in &mut self.candidates {
                    candidate.now = candidate.now.after(candidate.tick);
                    // A caller asks at each change whether the term has run out.
                    candidate.machine.next(candidate.now);
                }
            }
            Step::Call(who) => {
                let (sent, call) = (self.candidates[who].now, self.due(who).into_iter());
                for call in call {
                    let answer = self.execute(&call)?;
                    self.answer(who, sent, answer);
                }
            }
            Step::Send(who) => {
                self.candidates[who].flight = self.due(who).map(|call| (call, self.candidates[who].now, None));
            }
            Step::Arrive(who) => {
                if let Some((call, sent, _)) = self.candidates[who].flight.take() {
                    let answer = self.execute(&call)?;
                    self.candidates[who].flight = Some((call, sent, Some(answer)));
                }
            }
            Step::Answer(who) => {
                if let Some((_, sent, Some(answer))) = self.candidates[who].flight.take() {
                    self.answer(who, sent, answer);
                }
            }
            Step::Fail(who) => {
                if let Some((call, sent, answer)) = self.candidates[who].flight.take() {
                    self.stray.extend(answer.is_none().then_some(call).filter(|call| *call != LeaseCall::Read));
                    self.answer(who, sent, LeaseAnswer::Failed);
                }
            }
            Step::OldRead(who) => {
                let (sent, answer) = (self.candidates[who].now, self.found(self.older.as_ref()));
                self.answer(who, sent, answer);
            }
            Step::StrayWrite => {
                let call = self.stray.remove(0);
                self.execute(&call)?;
            }
            Step::Release(who) => {
                // The caller has ended all work.
                self.candidates[who].work_ends = None;
                self.candidates[who].machine.release();
            }
        }
        if self.candidates.iter().all(Candidate::is_at_work) { Err("both work".to_owned()) } else { Ok(()) }
    }
}

/// Continues a world without faults. Afterwards one candidate leads, unless all machines have ended.
fn calm(mut world: LeaseWorld) -> Result<(), String> {
    world.faults_left = 0;
    for _ in 0..40 {
        while let Some(step) = world.steps().into_iter().find(|step| !matches!(step, Step::Tick)) {
            world.take(step)?;
        }
        world.take(Step::Tick)?;
    }
    let ended = |candidate: &Candidate| matches!(candidate.machine.clone().next(candidate.now), LeaseCall::Ended(_));
    let leading = world.candidates.iter().filter(|candidate| candidate.machine.term().is_some()).count();
    if leading == 1 || world.candidates.iter().all(ended) { Ok(()) } else { Err(format!("{leading} lead: {world:#?}")) }
}

#[test]
fn in_all_small_worlds_one_works_at_a_time_and_no_number_has_two_holders() {
    for ticks in [[SLOW, FAST], [FAST, SLOW], [FAST, FAST]] {
        let explored = explore_and_calm(LeaseWorld::new(Mutation::None, ticks), DEPTH, calm);
        println!("{ticks:?}: {} states, {} steps, {} at the end", explored.states, explored.steps, explored.last.len());
        assert!(explored.states > 2_000, "{} states", explored.states);
    }
}

#[test]
fn the_exploration_finds_each_seeded_fault() {
    for mutation in [
        Mutation::CountsFromAnswer,
        Mutation::AnyVersion,
        Mutation::ShortWait,
        Mutation::LongDeadline,
        Mutation::WildClocks,
        Mutation::SameNumber,
    ] {
        let fault =
            explore(LeaseWorld::new(mutation, [SLOW, FAST]), DEPTH).map(|explored| explored.states).unwrap_err();
        let expected = match mutation {
            Mutation::SameNumber | Mutation::AnyVersion => "a and b have the number 0",
            _ => "both work",
        };
        assert!(fault.starts_with(expected), "{mutation:?}: {fault}");
    }
}
