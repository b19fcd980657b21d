//! The round-robin scheduler of a pool's members. A plain value, protected by the pool's lock.
//!
//! A member with work is in the ready list at most once. It is not in the list if its number of threads is at its
//! limit, if it is closed, or if it waits for a time. A member that joins the list is behind each other member at most
//! once.
//!
//! After each run, a thread reads the [`Hint`] of its member without the lock. An outdated hint only ends a turn one
//! run earlier or later.
//!
//! A member is *full* if its number of threads is at its limit. The hint has a flag for that. An offer reads the flag
//! after it has released the lock of the member's keys. A thread that leaves clears the flag, then looks for keys under
//! that lock. Therefore either the offer finds the flag cleared, or the thread finds the key.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::base::time::Nanos;

/// The id of a member. Reused after [`RoundRobin::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberId(pub(super) usize);

#[derive(Debug)]
pub(super) struct RoundRobin {
    members: Vec<Option<MemberState>>,
    /// The next members to be served, in order.
    ready: VecDeque<MemberId>,
    /// Members that wait for a time, by that time, then by arrival.
    held: BTreeMap<HeldAt, MemberId>,
    /// The number of waits for a time so far.
    held_so_far: u64,
    waiting: Arc<Waiting>,
    /// Whether a turn is always over after one key.
    one_a_turn: bool,
}

/// The time that a member waits for, and a number that distinguishes members with the same time.
type HeldAt = (Nanos, u64);

/// The waiting members, readable without the lock.
#[derive(Debug)]
struct Waiting {
    /// The number of ready members.
    ready: AtomicUsize,
    /// The first time at which a held member becomes ready, in nanoseconds.
    next_time: AtomicU64,
}

/// The state of a member that can be read without the lock.
#[derive(Debug)]
pub(super) struct Hint {
    /// All waiting members, possibly including this one.
    waiting: Arc<Waiting>,
    ready: AtomicBool,
    full: AtomicBool,
    /// Whether the thread must leave: the member is closed, has more threads than its limit, or has one key a turn.
    enough: AtomicBool,
}

impl Hint {
    /// Returns whether an offer may change anything: the member is neither ready nor full.
    #[inline]
    pub(super) fn takes_offers(&self) -> bool {
        !self.ready.load(Relaxed) && !self.full.load(Relaxed)
    }

    /// Returns whether a thread leaves this member after a key: it must leave, another member is ready, or a held
    /// member is due. Reads the clock only if a member is held.
    #[inline]
    pub(super) fn turn_is_over(&self, now: impl FnOnce() -> Nanos) -> bool {
        let Waiting { ready, next_time } = &*self.waiting;
        if self.enough.load(Relaxed) || ready.load(Relaxed) > usize::from(self.ready.load(Relaxed)) {
            return true;
        }
        let next_time = Nanos(next_time.load(Relaxed));
        next_time != Nanos::NEVER && next_time <= now()
    }
}

#[derive(Debug)]
struct MemberState {
    limit: usize,
    /// The number of threads that serve this member.
    active: usize,
    open: bool,
    not_before: Nanos,
    place: MemberPlace,
    one_a_turn: bool,
    hint: Arc<Hint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberPlace {
    None,
    Ready,
    Held(HeldAt),
}

impl MemberState {
    fn set_place(&mut self, place: MemberPlace) -> MemberPlace {
        self.hint.ready.store(place == MemberPlace::Ready, Relaxed);
        std::mem::replace(&mut self.place, place)
    }

    fn update(&self) {
        self.hint.enough.store(!self.open || self.active > self.limit || self.one_a_turn, Relaxed);
        self.hint.full.store(self.active >= self.limit, Relaxed);
    }
}

impl RoundRobin {
    /// Creates a scheduler without members.
    pub(super) fn new(one_a_turn: bool) -> Self {
        let waiting = Waiting { ready: AtomicUsize::new(0), next_time: AtomicU64::new(Nanos::NEVER.0) };
        Self {
            members: Vec::new(),
            ready: VecDeque::new(),
            held: BTreeMap::new(),
            held_so_far: 0,
            waiting: Arc::new(waiting),
            one_a_turn,
        }
    }

    /// Adds a member that at most `limit` threads serve at once. It is closed at first.
    pub(super) fn add(&mut self, limit: usize) -> (MemberId, Arc<Hint>) {
        let [ready, full, enough] = [false, false, true].map(AtomicBool::new);
        let hint = Arc::new(Hint { waiting: Arc::clone(&self.waiting), ready, full, enough });
        let own = Arc::clone(&hint);
        let member = MemberState {
            limit,
            active: 0,
            open: false,
            not_before: Nanos::ZERO,
            place: MemberPlace::None,
            one_a_turn: self.one_a_turn,
            hint: own,
        };
        let free = self.members.iter().position(Option::is_none).unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        self.members[free] = Some(member);
        (MemberId(free), hint)
    }

    /// Removes a member. No thread may serve it.
    pub(super) fn remove(&mut self, id: MemberId) {
        self.leave_list(id);
        self.members[id.0] = None;
    }

    /// Reports that a member may have work. Returns whether it joins the ready list, behind held members that are due.
    pub(super) fn offer(&mut self, id: MemberId, now: impl FnOnce() -> Nanos) -> bool {
        let Some(member) = self.members[id.0].as_mut() else { return false };
        if !member.open || member.place != MemberPlace::None || member.active >= member.limit {
            return false;
        }
        let not_before = member.not_before;
        let now = if not_before > Nanos::ZERO || !self.held.is_empty() { now() } else { Nanos::ZERO };
        self.admit_due(now);
        let place = if not_before > now {
            let at = (not_before, self.held_so_far);
            self.held_so_far += 1;
            self.held.insert(at, id);
            MemberPlace::Held(at)
        } else {
            self.ready.push_back(id);
            MemberPlace::Ready
        };
        if let Some(member) = self.members[id.0].as_mut() {
            member.set_place(place);
        }
        self.publish();
        true
    }

    /// Takes the next member to serve, and counts a thread for it.
    pub(super) fn next(&mut self, now: impl FnOnce() -> Nanos) -> Option<(MemberId, Arc<Hint>)> {
        if !self.held.is_empty() {
            self.admit_due(now());
        }
        let id = self.ready.pop_front();
        self.publish();
        let id = id?;
        let member = self.members[id.0].as_mut()?;
        member.set_place(MemberPlace::None);
        member.active += 1;
        member.update();
        Some((id, Arc::clone(&member.hint)))
    }

    /// Publishes the waiting members for readers without the lock.
    fn publish(&self) {
        self.waiting.ready.store(self.ready.len(), Relaxed);
        self.waiting.next_time.store(self.next_time().0, Relaxed);
    }

    /// Moves the held members that are due to the ready list, in the order of their times.
    fn admit_due(&mut self, now: Nanos) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            let id = first.remove();
            if let Some(member) = &mut self.members[id.0] {
                member.set_place(MemberPlace::Ready);
                self.ready.push_back(id);
            }
        }
    }

    /// Ends the turn of a thread. Returns the number of threads that still serve the member.
    pub(super) fn done(&mut self, id: MemberId) -> usize {
        self.members[id.0].as_mut().map_or(0, |member| {
            member.active -= 1;
            member.update();
            member.active
        })
    }

    pub(super) fn is_open(&self, id: MemberId) -> bool {
        self.members[id.0].as_ref().is_some_and(|member| member.open)
    }

    /// Prevents turns of a member before `time`.
    pub(super) fn hold_until(&mut self, id: MemberId, time: Nanos) {
        if let Some(member) = self.members[id.0].as_mut() {
            member.not_before = time;
        }
        self.leave_list(id);
    }

    /// Ends a member's wait for a time. A held member leaves the list, and the caller offers it again. A ready member
    /// keeps its place.
    pub(super) fn free(&mut self, id: MemberId) {
        let Some(member) = self.members[id.0].as_mut() else { return };
        member.not_before = Nanos::ZERO;
        if member.place != MemberPlace::Ready {
            self.leave_list(id);
        }
    }

    /// Opens or closes a member.
    pub(super) fn set_open(&mut self, id: MemberId, open: bool) {
        if let Some(member) = self.members[id.0].as_mut() {
            member.open = open;
            member.update();
        }
        if !open {
            self.leave_list(id);
        }
    }

    pub(super) fn set_limit(&mut self, id: MemberId, limit: usize) {
        if let Some(member) = self.members[id.0].as_mut() {
            member.limit = limit;
            member.update();
            if member.active >= limit {
                self.leave_list(id);
            }
        }
    }

    fn leave_list(&mut self, id: MemberId) {
        let Some(member) = self.members[id.0].as_mut() else { return };
        match member.set_place(MemberPlace::None) {
            MemberPlace::None => {}
            MemberPlace::Ready => self.ready.retain(|other| *other != id),
            MemberPlace::Held(at) => {
                self.held.remove(&at);
            }
        }
        self.publish();
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn active(&self, id: MemberId) -> usize {
        self.members[id.0].as_ref().map_or(0, |member| member.active)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the first time that a held member waits for.
    pub(super) fn next_time(&self) -> Nanos {
        self.held.first_key_value().map_or(Nanos::NEVER, |((time, _), _)| *time)
    }
}
