//! The scheduler compared with a naive model, in random programs.
//!
//! The model has no list. A waiting member has the number of its first event, and a mark if it is due. The model
//! searches for the next member.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::{Hint, MemberId, RoundRobin};
use crate::base::time::Nanos;

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(usize),
    /// A member that no thread serves.
    Remove(Index),
    Open(Index, bool),
    Offer(Index),
    /// This number of turns begins.
    Next(usize),
    /// A turn ends.
    Done(Index),
    /// No turn for this long from now.
    Hold(Index, u64),
    Limit(Index, usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<Index>;
    prop_oneof![
        2 => (1..4usize).prop_map(Step::Add),
        1 => which().prop_map(Step::Remove),
        3 => (which(), prop::bool::weighted(0.8)).prop_map(|(which, open)| Step::Open(which, open)),
        8 => which().prop_map(Step::Offer),
        6 => (1..4usize).prop_map(Step::Next),
        5 => which().prop_map(Step::Done),
        2 => (which(), 0..6u64).prop_map(|(which, ahead)| Step::Hold(which, ahead)),
        2 => (which(), 1..4usize).prop_map(|(which, limit)| Step::Limit(which, limit)),
        3 => (0..5u64).prop_map(Step::Advance),
    ]
}

/// How a member waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    /// For its time, with the number of the event that began the wait.
    ForTime(u64),
    /// For a thread, with the number of the event and the limit on other members' turns before its own.
    ForThread(u64, usize),
}

struct Member {
    hint: Arc<Hint>,
    limit: usize,
    active: usize,
    open: bool,
    not_before: u64,
    waits: Waits,
}

struct Pair {
    line: RoundRobin,
    members: Vec<Option<Member>>,
    events: u64,
    now: u64,
}

impl Pair {
    fn step(&mut self, step: Step) {
        let now = Nanos(self.now);
        match step {
            Step::Add(limit) => self.add(limit),
            Step::Remove(which) => {
                if let Some(place) = self.choose(which, |member| member.active == 0) {
                    self.line.remove(MemberId(place));
                    self.members[place] = None;
                }
            }
            Step::Open(which, open) => {
                if let Some((place, member)) = self.any(which) {
                    member.open = open;
                    member.waits = if open { member.waits } else { Waits::No };
                    self.line.set_open(place, open);
                }
            }
            Step::Offer(which) => {
                if let Some(place) = self.choose(which, |_| true) {
                    let joins = self.offer(place);
                    assert_eq!(self.line.offer(MemberId(place), || now), joins);
                }
            }
            Step::Next(times) => (0..times).for_each(|_| self.next()),
            Step::Done(which) => {
                if let Some(place) = self.choose(which, |member| member.active > 0) {
                    let member = self.member(place);
                    member.active -= 1;
                    let left = member.active;
                    assert_eq!(self.line.done(MemberId(place)), left);
                }
            }
            Step::Hold(which, ahead) => {
                let time = self.now + ahead;
                if let Some((place, member)) = self.any(which) {
                    member.not_before = time;
                    member.waits = Waits::No;
                    self.line.hold_until(place, Nanos(time));
                }
            }
            Step::Limit(which, limit) => {
                if let Some((place, member)) = self.any(which) {
                    member.limit = limit;
                    member.waits = if member.active < limit { member.waits } else { Waits::No };
                    self.line.set_limit(place, limit);
                }
            }
            Step::Advance(by) => self.now += by,
        }
        self.compare();
    }

    fn choose(&self, which: Index, wanted: impl Fn(&Member) -> bool) -> Option<usize> {
        let found: Vec<_> = self.there().filter(|(_, member)| wanted(member)).map(|(place, _)| place).collect();
        (!found.is_empty()).then(|| *which.get(&found))
    }

    fn any(&mut self, which: Index) -> Option<(MemberId, &mut Member)> {
        let place = self.choose(which, |_| true)?;
        Some((MemberId(place), self.members[place].as_mut()?))
    }

    fn member(&mut self, place: usize) -> &mut Member {
        self.members[place].as_mut().unwrap_or_else(|| panic!("nobody is at {place}"))
    }

    fn there(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter_map(|(place, member)| Some((place, member.as_ref()?)))
    }

    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn add(&mut self, limit: usize) {
        let (MemberId(place), hint) = self.line.add(limit);
        let free = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        assert_eq!(place, free);
        let member = Member { hint, limit, active: 0, open: false, not_before: 0, waits: Waits::No };
        self.members.resize_with(self.members.len().max(place + 1), || None);
        self.members[place] = Some(member);
    }

    /// Returns the number of members that wait for a thread.
    fn ready(&self) -> usize {
        self.there().filter(|(_, member)| matches!(member.waits, Waits::ForThread(..))).count()
    }

    /// Offers a member. Returns whether it begins to wait.
    fn offer(&mut self, place: usize) -> bool {
        let member = self.member(place);
        if !member.open || member.waits != Waits::No || member.active >= member.limit {
            return false;
        }
        self.admit_due();
        let (event, ahead, now) = (self.event(), self.ready(), self.now);
        let member = self.member(place);
        let held = member.not_before > now;
        member.waits = if held { Waits::ForTime(event) } else { Waits::ForThread(event, ahead) };
        true
    }

    /// Moves the members that are due to the wait for a thread, in the order of their times.
    fn admit_due(&mut self) {
        let due = self.there().filter_map(|(place, member)| match member.waits {
            Waits::ForTime(since) if member.not_before <= self.now => Some((member.not_before, since, place)),
            _ => None,
        });
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        for (_, _, place) in due {
            let (event, ahead) = (self.event(), self.ready());
            self.member(place).waits = Waits::ForThread(event, ahead);
        }
    }

    fn next(&mut self) {
        self.admit_due();
        let first = self.there().filter_map(|(place, member)| match member.waits {
            Waits::ForThread(since, _) => Some((since, place)),
            _ => None,
        });
        let first = first.min().map(|(_, place)| place);
        let now = Nanos(self.now);
        let served = self.line.next(|| now).map(|(MemberId(place), _)| place);
        assert_eq!(served, first);
        let Some(served) = served else { return };
        let member = self.member(served);
        (member.waits, member.active) = (Waits::No, member.active + 1);
        assert!(member.open && member.active <= member.limit, "it may not be served");
        assert!(member.not_before <= self.now, "it is served before its time");
        for member in self.members.iter_mut().flatten() {
            if let Waits::ForThread(_, ahead) = &mut member.waits {
                assert!(*ahead > 0, "another is served before one that was there first");
                *ahead -= 1;
            }
        }
    }

    /// Checks that the scheduler agrees with the model.
    fn compare(&self) {
        let ready = self.ready();
        assert_eq!(self.line.is_empty(), ready == 0);
        let held = self.there().filter(|(_, member)| matches!(member.waits, Waits::ForTime(_)));
        let first = held.map(|(_, member)| Nanos(member.not_before)).min();
        assert_eq!(self.line.next_time(), first.unwrap_or(Nanos::NEVER));
        let (now, due) = (Nanos(self.now), first.is_some_and(|first| first <= Nanos(self.now)));
        for (place, member) in self.there() {
            assert_eq!(self.line.active(MemberId(place)), member.active);
            let waits = matches!(member.waits, Waits::ForThread(..));
            assert_eq!(member.hint.takes_offers(), !waits && member.active < member.limit);
            let others = ready > usize::from(waits);
            let over = others || due || !member.open || member.active > member.limit;
            assert_eq!(member.hint.turn_is_over(|| now), over);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_line_equals_its_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut pair = Pair { line: RoundRobin::new(false), members: Vec::new(), events: 0, now: 0 };
        for step in steps {
            pair.step(step);
        }
    }
}
