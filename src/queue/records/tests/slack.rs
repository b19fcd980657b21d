//! Delays with slack, compared with a naive model: a sorted list of rounded due times.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use proptest::prelude::*;

use super::super::super::request::{BATCH, EnqueueMethod};
use super::*;

/// The tick of the system clock.
const TICK_SHIFT: u32 = 17;

/// A key's due time, the tick that it is rounded up to, and the order of equal ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Delay {
    turn: u64,
    number: u64,
    key: u32,
    due: u64,
    /// No key is later than this.
    latest: u64,
}

/// The limits of a slack, as numbers.
#[derive(Clone, Copy, Debug)]
struct Limits {
    part: u64,
    most: u64,
}

#[derive(Clone, Debug)]
enum Step {
    /// Replaces any delay of the key.
    Reschedule(u32, u64),
    Cancel(u32),
    /// Lets this much time pass.
    Pass(u64),
    /// Lets time pass up to the next turn of the wheel, or one nanosecond less.
    PassToTurn(bool),
}

fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![1..1_000_000_u64, 1..100_000_000_u64, 1..5_000_000_000_u64, 1..200_000_000_000_u64]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u32, nanos()).prop_map(|(key, delay)| Step::Reschedule(key, delay)),
        1 => (0..8_u32).prop_map(Step::Cancel),
        2 => nanos().prop_map(Step::Pass),
        5 => any::<bool>().prop_map(Step::PassToTurn),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let part = prop_oneof![2 => Just(256_u64), 1 => 0..2_000_u64];
    let most = prop_oneof![2 => Just(1_u64 << 23), 1 => Just(0), 1 => 1..2_000_000_000_u64, 1 => Just(u64::MAX)];
    (part, most).prop_map(|(part, most)| Limits { part, most })
}

/// Returns the largest power of two up to `bound`, and at least one tick.
fn power_up_to(bound: u64) -> u64 {
    (TICK_SHIFT..64).map(|exponent| 1 << exponent).take_while(|&power| power <= bound).last().unwrap_or(1 << TICK_SHIFT)
}

struct Pair {
    limits: Limits,
    now: u64,
    records: Records<u32>,
    delays: Vec<Delay>,
    numbers: u64,
}

impl Pair {
    fn new(limits: Limits) -> Self {
        let slack = TimerSlack::new(u32::try_from(limits.part).unwrap(), Duration::from_nanos(limits.most));
        Self { limits, now: 0, records: Records::new(settings(TICK_SHIFT, slack)), delays: Vec::new(), numbers: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Reschedule(key, delay) => self.reschedule(key, delay),
            Step::Cancel(key) => self.cancel(key),
            Step::Pass(time) => self.pass_to(self.now + time),
            Step::PassToTurn(before) => {
                let turn = self.records.next_turn();
                if turn < Nanos::NEVER {
                    self.pass_to(turn.0 - u64::from(before));
                }
            }
        }
        self.delays.sort_unstable();
        let earliest = self.delays.iter().map(|delay| delay.due).min();
        assert_eq!(self.records.next_delayed().map(|(_, due)| due), earliest.map(Nanos));
        let first = self.delays.first().map_or(u64::MAX, |delay| delay.turn);
        assert!((self.now..=first).contains(&self.records.next_turn().0), "a turn in time");
    }

    fn reschedule(&mut self, key: u32, delay: u64) {
        let request = EnqueueRequest::new(EnqueueMethod::Reschedule(Duration::from_nanos(delay)));
        let wanted = Wanted { key: &mut Some(key), hash: key, request: &request };
        let now = || Nanos(self.now);
        let outcome = self.records.request(wanted, |one, other| one == other, |key| key, &now, &mut Effects::default());
        assert_eq!(outcome, EnqueueOutcome::Scheduled);
        self.delays.retain(|other| other.key != key);
        let due = self.now + delay;
        let slack = power_up_to((delay / self.limits.part.max(1).next_power_of_two()).min(self.limits.most));
        let turn = due.next_multiple_of(slack);
        // The documented bound.
        let latest = due + (delay / self.limits.part.max(1)).min(self.limits.most).max(1 << TICK_SHIFT);
        self.delays.push(Delay { turn, number: self.numbers, key, due, latest });
        self.numbers += 1;
    }

    fn cancel(&mut self, key: u32) {
        self.delays.retain(|other| other.key != key);
        if let Some(index) = self.records.find(key, |known| *known == key) {
            let gone = self.records.cancel(index, &|| Nanos(self.now), &mut Effects::default());
            assert_eq!(gone, Some(key));
        }
    }

    /// Expires the delays up to `now`. Forgets the keys that become ready, and compares their order.
    fn pass_to(&mut self, now: u64) {
        let turn = self.records.next_turn().0;
        let before = self.now;
        self.now = self.now.max(now);
        let mut gone = Vec::new();
        while self.records.next_turn().0 <= self.now {
            self.records.expire(Nanos(self.now), BATCH, &mut gone, &mut Effects::default());
        }
        assert!(gone.is_empty());
        self.delays.sort_unstable();
        let due = self.delays.partition_point(|delay| delay.turn <= self.now);
        for delay in self.delays.drain(..due) {
            assert!(before < delay.turn && delay.due <= self.now, "early: {delay:?} at {}", self.now);
            assert!(self.now > turn || self.now <= delay.latest, "late: {delay:?} at {}", self.now);
            let index = self.records.front().unwrap();
            assert_eq!(*self.records.key(index), delay.key, "the order");
            self.records.take(index, delay.key, &|| Nanos(self.now));
            let gone = self.records.end(index, Ending::Done, &|| Nanos(self.now), &mut Effects::default());
            assert_eq!(gone, Some(delay.key));
        }
        assert_eq!(self.records.front(), None, "a key is ready too early");
    }
}

proptest! {
    #[test]
    fn delays_with_slack_end_when_the_model_says(limits in limits(), steps in prop::collection::vec(step(), 1..80)) {
        let mut pair = Pair::new(limits);
        for step in &steps {
            pair.step(step);
        }
        pair.pass_to(pair.now + 300_000_000_000);
        assert!(pair.delays.is_empty() || limits.most > 1 << 30);
    }
}

/// Returns how often the wheel turns until 10,000 keys have become ready within `span` after a lead of the same length.
fn turns(slack: TimerSlack, span: Duration) -> u32 {
    let mut records = Records::new(settings(TICK_SHIFT, slack));
    for key in 0..10_000 {
        let delay = span + span * key / 10_000;
        let request = EnqueueRequest::new(EnqueueMethod::EnqueueAfter(delay));
        let wanted = Wanted { key: &mut Some(key), hash: key, request: &request };
        records.request(wanted, |one, other| one == other, |key| key, &|| Nanos::ZERO, &mut Effects::default());
    }
    let mut turns = 0;
    while records.ready() < 10_000 {
        records.expire(records.next_turn(), u32::MAX, &mut Vec::new(), &mut Effects::default());
        turns += 1;
    }
    turns
}

#[test]
fn keys_that_are_due_together_share_a_turn() {
    let second = Duration::from_secs(1);
    // One of 131 µs each, and some to cascade.
    assert!((7_600..8_000).contains(&turns(TimerSlack::NONE, second)), "{}", turns(TimerSlack::NONE, second));
    // Every 2 ms, and every 4 ms.
    let shared = turns(TimerSlack::DEFAULT, second);
    assert!((238..500).contains(&shared), "{shared} turns");
    // Every 8.4 ms.
    let minute = turns(TimerSlack::DEFAULT, second * 60);
    assert!((7_000..7_300).contains(&minute), "{minute} turns");
}
