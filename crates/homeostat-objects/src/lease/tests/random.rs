//! Several machines compete for one lease in random worlds: clocks of different rates, calls that are late, lost or
//! executed twice, pauses, partitions, stops, and changes of the lease by others.

use std::collections::BTreeMap;

use super::{Duration, FoundLease, LeaseAnswer, LeaseCall, LeaseMachine, LeaseSpec, LeaseTiming, LeaseWrite, Nanos};
use homeostat::rt::Draws;

/// The length of a step, in milliseconds of true time.
const STEP: u64 = 50;
/// The length of a world, in milliseconds. Faults end earlier, at `CALM`.
const LENGTH: u64 = 150_000;
const CALM: u64 = 100_000;

/// The store: one lease, and one object that leaders write.
#[derive(Default)]
struct LeaseStore {
    version: u64,
    lease: Option<(u64, LeaseSpec)>,
    /// The number and the version of the object.
    object: (u64, u64),
    /// The identity that acquired each number.
    holders: BTreeMap<u64, String>,
}

impl LeaseStore {
    fn carry_out(&mut self, call: &LeaseCall) -> LeaseAnswer {
        match call {
            LeaseCall::Read => self.lease.clone().map_or(LeaseAnswer::Missing, |(version, spec)| {
                LeaseAnswer::Found(FoundLease { version: version.to_string(), spec })
            }),
            LeaseCall::Write(LeaseWrite { version, spec, .. }) => {
                let current = self.lease.as_ref().map(|(version, _)| version.to_string());
                match (&current, version) {
                    (None, Some(_)) => return LeaseAnswer::Missing,
                    (current, version) if *current != *version => return LeaseAnswer::Refused,
                    _ => {}
                }
                if !spec.holder.is_empty() {
                    let holder = self.holders.entry(spec.number).or_insert_with(|| spec.holder.clone());
                    assert_eq!(*holder, spec.holder, "two holders of number {}", spec.number);
                }
                self.version += 1;
                self.lease = Some((self.version, spec.clone()));
                LeaseAnswer::Written(self.version.to_string())
            }
            other => panic!("{other:?} is not for the store"),
        }
    }
}

/// A call that has been sent but not answered.
struct Flight {
    call: LeaseCall,
    sent: Nanos,
    /// When the store executes it.
    arrivals: Vec<u64>,
    /// When the answer or the failure is known.
    answer_at: u64,
    answer: Option<LeaseAnswer>,
    is_lost: bool,
}

struct Candidate {
    machine: LeaseMachine,
    /// The rate of its clock, in thousandths.
    rate: u64,
    offset: u64,
    flight: Option<Flight>,
    paused_until: u64,
    cut_off_until: u64,
    /// When its work is cancelled, by its own clock. `None` if the work has ended.
    work_ends: Option<Nanos>,
    /// When its work has ended and it releases the lease.
    releases_at: Option<u64>,
    /// A write of the object that has been sent: number, version that was read, time of arrival.
    write: Option<(u64, u64, u64)>,
    lives: u64,
}

struct World {
    draws: Draws,
    now: u64,
    store: LeaseStore,
    candidates: Vec<Candidate>,
    /// Writes that arrive after their writers have paused or ended.
    stray: Vec<(LeaseCall, u64)>,
    leaders: u64,
    refused_writes: u64,
}

impl Candidate {
    fn new(draws: &mut Draws, name: &str, lives: u64) -> Self {
        // The extremes are the interesting rates.
        let rate = [800, 800, 1000, 1200, 1200][usize::try_from(draws.draw() % 5).unwrap()];
        Self {
            machine: LeaseMachine::new(format!("{name}-{lives}"), LeaseTiming::default()),
            rate,
            offset: draws.draw() % 1_000_000_000_000,
            flight: None,
            paused_until: 0,
            cut_off_until: 0,
            work_ends: None,
            releases_at: None,
            write: None,
            lives,
        }
    }

    /// Returns the local time.
    fn local(&self, now: u64) -> Nanos {
        Nanos(self.offset + now * self.rate * 1_000)
    }

    /// Returns the number of its term if its work would pass the check now.
    fn may_work(&self, now: u64) -> Option<u64> {
        let (number, work_ends) = self.machine.term()?;
        (self.local(now) < work_ends).then_some(number)
    }

    /// Returns whether it may still be working: cancelled work has the margin to end.
    fn is_at_work(&self, now: u64) -> bool {
        let margin = LeaseTiming::default().margin;
        self.work_ends.is_some_and(|end| self.local(now) < end.after(margin))
    }
}

impl World {
    fn new(seed: u64, count: usize) -> Self {
        let mut draws = Draws::new(seed);
        let candidates = (0..count).map(|who| Candidate::new(&mut draws, &format!("p{who}"), 0)).collect();
        let store = LeaseStore::default();
        Self { draws, now: 0, store, candidates, stray: Vec::new(), leaders: 0, refused_writes: 0 }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.draws.draw().is_multiple_of(one_in)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.draws.draw() % bound
    }

    fn run(&mut self) {
        while self.now < LENGTH {
            self.now += STEP;
            let now = self.now;
            let stray = std::mem::take(&mut self.stray);
            let (due, later): (Vec<_>, _) = stray.into_iter().partition(|(_, at)| *at <= now);
            self.stray = later;
            for (call, _) in due {
                self.store.carry_out(&call);
            }
            if now < CALM {
                self.disturb();
            }
            for who in 0..self.candidates.len() {
                self.step(who);
            }
            let at_work: Vec<_> =
                (0..self.candidates.len()).filter(|&who| self.candidates[who].is_at_work(now)).collect();
            assert!(at_work.len() <= 1, "{at_work:?} work at once at {now} ms");
        }
        let leading = self.candidates.iter().filter(|candidate| candidate.may_work(self.now).is_some()).count();
        assert_eq!(leading, 1, "after {} ms without faults, one leads", LENGTH - CALM);
    }

    fn disturb(&mut self) {
        for who in 0..self.candidates.len() {
            if self.chance(400) {
                self.candidates[who].paused_until = self.now + self.below(40_000);
            }
            if self.chance(400) {
                self.candidates[who].cut_off_until = self.now + self.below(25_000);
            }
            if self.chance(600) && self.candidates[who].may_work(self.now).is_some() {
                // A stop: the work ends after a while, and then the lease is released.
                self.candidates[who].releases_at = Some(self.now + self.below(4_000));
            }
        }
        if self.chance(1_000) {
            // Another program adds a label.
            self.store.version += 1;
            let version = self.store.version;
            if let Some((current, _)) = &mut self.store.lease {
                *current = version;
            }
        }
    }

    fn step(&mut self, who: usize) {
        let now = self.now;
        self.deliver(who);
        if self.candidates[who].paused_until > now {
            return;
        }
        self.write_object(who);
        if self.candidates[who].releases_at.is_some_and(|at| at <= now) && self.candidates[who].flight.is_none() {
            self.candidates[who].releases_at = None;
            self.candidates[who].work_ends = None;
            // The caller has ended all work.
            self.candidates[who].machine.release();
        }
        while self.candidates[who].flight.is_none() {
            let local = self.candidates[who].local(now);
            match self.candidates[who].machine.next(local) {
                LeaseCall::Wait(until) => {
                    assert!(until > local);
                    return;
                }
                LeaseCall::Ended(_) => {
                    if self.candidates[who].is_at_work(now) {
                        return;
                    }
                    // The process becomes a candidate again, with the same clock.
                    let (offset, rate) = (self.candidates[who].offset, self.candidates[who].rate);
                    let lives = self.candidates[who].lives + 1;
                    let next = Candidate::new(&mut self.draws, &format!("p{who}"), lives);
                    self.candidates[who] = Candidate { rate, offset, ..next };
                }
                call => self.send(who, call, local),
            }
            self.deliver(who);
        }
    }

    /// Sends a call. In calm times it takes less than half a second.
    fn send(&mut self, who: usize, call: LeaseCall, sent: Nanos) {
        let now = self.now;
        let is_calm = now >= CALM;
        let (there, back) = match () {
            () if is_calm || self.chance(2) => (self.below(200), self.below(200)),
            () => (self.below(3_000), self.below(9_000)),
        };
        let is_cut_off = self.candidates[who].cut_off_until > now;
        let is_lost = is_cut_off || (!is_calm && self.chance(12));
        let mut arrivals = Vec::new();
        let vanishes = is_cut_off || (is_lost && self.chance(2));
        if !vanishes {
            arrivals.push(now + there);
            if !is_calm && self.chance(15) {
                // The network delivers it a second time, much later.
                arrivals.push(now + there + self.below(30_000));
            }
        }
        let answer_at = if is_lost { now + 2_500 } else { now + there + back };
        self.candidates[who].flight = Some(Flight { call, sent, arrivals, answer_at, answer: None, is_lost });
    }

    /// Executes a call when it arrives, and answers it.
    fn deliver(&mut self, who: usize) {
        let now = self.now;
        let Some(mut flight) = self.candidates[who].flight.take() else { return };
        while let Some(at) = flight.arrivals.iter().position(|at| *at <= now) {
            flight.arrivals.remove(at);
            let answer = self.store.carry_out(&flight.call);
            flight.answer.get_or_insert(answer);
        }
        if flight.answer_at > now || self.candidates[who].paused_until > now {
            self.candidates[who].flight = Some(flight);
            return;
        }
        let call = flight.call;
        self.stray.extend(flight.arrivals.into_iter().map(|at| (call.clone(), at)));
        let answer = flight.answer.filter(|_| !flight.is_lost).unwrap_or(LeaseAnswer::Failed);
        let draw = self.draws.draw();
        let before = self.candidates[who].machine.term();
        let local = self.candidates[who].local(now);
        self.candidates[who].machine.answered(flight.sent, local, answer, draw);
        let term = self.candidates[who].machine.term();
        self.leaders += u64::from(before.is_none() && term.is_some());
        if let Some((_, work_ends)) = term {
            self.candidates[who].work_ends = Some(work_ends);
        }
    }

    /// Writes the object as [`ObjectMeta::mark_term`] documents. A pause may fall between the check and
    /// the write.
    fn write_object(&mut self, who: usize) {
        let now = self.now;
        if let Some((number, version, _)) = self.candidates[who].write.take_if(|(.., at)| *at <= now) {
            let (stored, current) = self.store.object;
            if version == current {
                assert!(number >= stored, "a write with the old number {number} after {stored}");
                self.store.object = (number, current + 1);
            } else {
                self.refused_writes += 1;
            }
        }
        if let Some(number) = self.candidates[who].may_work(now)
            && self.candidates[who].write.is_none()
            && self.store.object.0 <= number
        {
            let delay = if self.chance(5) { self.below(40_000) } else { self.below(100) };
            self.candidates[who].write = Some((number, self.store.object.1, now + delay));
        }
    }
}

/// Runs the worlds of these seeds. Returns the numbers of leaders and of refused writes.
fn worlds(seeds: std::ops::Range<u64>) -> (u64, u64) {
    let mut counts = (0, 0);
    for seed in seeds {
        for count in [2, 3] {
            let mut world = World::new(seed, count);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
            assert!(outcome.is_ok(), "seed {seed} with {count} candidates, see above");
            counts = (counts.0 + world.leaders, counts.1 + world.refused_writes);
        }
    }
    counts
}

#[test]
fn no_two_work_at_once_no_number_has_two_holders_and_no_old_number_is_written() {
    let (leaders, refused) = worlds(0..400);
    // Enough happens in these worlds: most have several leaders, and writes of earlier leaders arrive.
    assert!(leaders > 2_000, "{leaders}");
    assert!(refused > 50, "{refused}");
}

/// If the leader dies right after a renewal, a failover takes at most one lease and a second.
#[test]
fn another_candidate_leads_one_lease_and_a_second_after_the_death_of_the_leader() {
    for seed in 0..200 {
        let mut draws = Draws::new(seed);
        let mut store = LeaseStore::default();
        let timing = LeaseTiming::default();
        let mut machines = ["dead", "alive"].map(|name| LeaseMachine::new(name.to_owned(), timing));
        let (mut now, mut death) = (Nanos::ZERO, Nanos::NEVER);
        let dies_after = Nanos::ZERO.after(Duration::from_millis(draws.draw() % 60_000));
        while machines[1].term().is_none() {
            for (who, machine) in machines.iter_mut().enumerate() {
                while who == 1 || death == Nanos::NEVER {
                    let call = machine.next(now);
                    if let LeaseCall::Wait(_) = call {
                        break;
                    }
                    let answer = store.carry_out(&call);
                    let renews = who == 0 && matches!(call, LeaseCall::Write(_));
                    machine.answered(now, now, answer, draws.draw());
                    if renews && now >= dies_after {
                        death = now;
                    }
                }
            }
            now = now.after(Duration::from_millis(1));
        }
        assert!(now.since(death) <= timing.duration + Duration::from_secs(1), "seed {seed}: {:?}", now.since(death));
    }
}
