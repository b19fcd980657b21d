//! Whose turn it is: the members of a pool, in line for its threads. A plain value; the pool's lock guards it.
//!
//! A member with work is in line once, at most, whatever it has to do; one that is served as often as it may be, is closed, or
//! must wait for a time is not. Round robin, so a member that joins the line has at most the others ahead of it.
//!
//! What a thread has to know after each run ([`Hint`]) can be read without the lock. It may be old by then: it decides whether a
//! turn ends a run sooner or later, and nothing else.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::time::Nanos;

/// The place of a member. Used again after [`Line::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) usize);

#[derive(Debug, Default)]
pub(super) struct Line {
    members: Vec<Option<Member>>,
    /// Those that are served next, in this order.
    ready: VecDeque<Place>,
    /// Those that wait for their time.
    held: Vec<Place>,
    /// How many are ready.
    waiting: Arc<AtomicUsize>,
    /// A turn is over after one key, whether or not another member waits.
    one_a_turn: bool,
}

/// What can be seen of a member without the lock.
#[derive(Debug)]
pub(super) struct Hint {
    /// How many members are ready, this one perhaps among them.
    waiting: Arc<AtomicUsize>,
    ready: AtomicBool,
    /// It is closed, or more threads serve it than may, or a turn is one key.
    enough: AtomicBool,
}

impl Hint {
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Whether a thread that has served one key for this member leaves it: it has to, or another waits.
    #[inline]
    pub(super) fn turn_is_over(&self) -> bool {
        self.enough.load(Relaxed) || self.waiting.load(Relaxed) > usize::from(self.ready.load(Relaxed))
    }
}

#[derive(Debug)]
struct Member {
    limit: usize,
    /// How many threads serve it.
    active: usize,
    open: bool,
    not_before: Nanos,
    lined: Lined,
    one_a_turn: bool,
    hint: Arc<Hint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lined {
    No,
    Ready,
    Held,
}

impl Member {
    fn set_lined(&mut self, lined: Lined) -> Lined {
        self.hint.ready.store(lined == Lined::Ready, Relaxed);
        std::mem::replace(&mut self.lined, lined)
    }

    fn update(&self) {
        self.hint.enough.store(!self.open || self.active > self.limit || self.one_a_turn, Relaxed);
    }
}

impl Line {
    /// With nobody in it.
    pub(super) fn new(one_a_turn: bool) -> Self {
        Self { one_a_turn, ..Self::default() }
    }

    /// A new member, which `limit` threads may serve at once. It is closed.
    pub(super) fn add(&mut self, limit: usize) -> (Place, Arc<Hint>) {
        let (ready, enough) = (AtomicBool::new(false), AtomicBool::new(true));
        let hint = Arc::new(Hint { waiting: Arc::clone(&self.waiting), ready, enough });
        let own = Arc::clone(&hint);
        let member = Member {
            limit,
            active: 0,
            open: false,
            not_before: Nanos::ZERO,
            lined: Lined::No,
            one_a_turn: self.one_a_turn,
            hint: own,
        };
        let free = self.members.iter().position(Option::is_none).unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        self.members[free] = Some(member);
        (Place(free), hint)
    }

    /// The member is gone. No thread serves it.
    pub(super) fn remove(&mut self, place: Place) {
        self.step_out(place);
        self.members[place.0] = None;
    }

    /// It has work, as far as anybody knows. Returns whether it joins the line by that.
    pub(super) fn offer(&mut self, place: Place, now: impl FnOnce() -> Nanos) -> bool {
        let Some(member) = self.members[place.0].as_mut() else { return false };
        if !member.open || member.lined != Lined::No || member.active >= member.limit {
            return false;
        }
        if member.not_before > Nanos::ZERO && member.not_before > now() {
            member.set_lined(Lined::Held);
            self.held.push(place);
        } else {
            member.set_lined(Lined::Ready);
            self.ready.push_back(place);
            self.count();
        }
        true
    }

    /// The member whose turn it is. A thread serves it from now on.
    pub(super) fn next(&mut self, now: impl FnOnce() -> Nanos) -> Option<(Place, Arc<Hint>)> {
        if !self.held.is_empty() {
            self.let_in(now());
        }
        let place = self.ready.pop_front()?;
        self.count();
        let member = self.members[place.0].as_mut()?;
        member.set_lined(Lined::No);
        member.active += 1;
        Some((place, Arc::clone(&member.hint)))
    }

    fn count(&self) {
        self.waiting.store(self.ready.len(), Relaxed);
    }

    /// Those whose time has come join the line, in the order of their times.
    fn let_in(&mut self, now: Nanos) {
        let members = &mut self.members;
        let mut time = |place: &Place| members[place.0].as_ref().map_or(Nanos::ZERO, |member| member.not_before);
        self.held.sort_by_key(&mut time);
        let due = self.held.partition_point(|place| time(place) <= now);
        for place in self.held.drain(..due) {
            if let Some(member) = &mut members[place.0] {
                member.set_lined(Lined::Ready);
                self.ready.push_back(place);
            }
        }
        self.count();
    }

    /// A thread serves it no longer. Returns how many still do.
    pub(super) fn done(&mut self, place: Place) -> usize {
        self.members[place.0].as_mut().map_or(0, |member| {
            member.active -= 1;
            member.update();
            member.active
        })
    }

    /// It is not to be served before `time`.
    pub(super) fn hold_until(&mut self, place: Place, time: Nanos) {
        if let Some(member) = self.members[place.0].as_mut() {
            member.not_before = time;
        }
        self.step_out(place);
    }

    /// It may be served, or (false) not any more.
    pub(super) fn set_open(&mut self, place: Place, open: bool) {
        if let Some(member) = self.members[place.0].as_mut() {
            member.open = open;
            member.update();
        }
        if !open {
            self.step_out(place);
        }
    }

    pub(super) fn set_limit(&mut self, place: Place, limit: usize) {
        if let Some(member) = self.members[place.0].as_mut() {
            member.limit = limit;
            member.update();
            if member.active >= limit {
                self.step_out(place);
            }
        }
    }

    fn step_out(&mut self, place: Place) {
        let Some(member) = self.members[place.0].as_mut() else { return };
        match member.set_lined(Lined::No) {
            Lined::No => {}
            Lined::Ready => {
                self.ready.retain(|other| *other != place);
                self.count();
            }
            Lined::Held => self.held.retain(|other| *other != place),
        }
    }

    pub(super) fn active(&self, place: Place) -> usize {
        self.members[place.0].as_ref().map_or(0, |member| member.active)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// When one of those that wait for their time is to be served.
    pub(super) fn next_time(&self) -> Nanos {
        let members = self.held.iter().filter_map(|place| self.members[place.0].as_ref());
        members.map(|member| member.not_before).min().unwrap_or(Nanos::NEVER)
    }
}
