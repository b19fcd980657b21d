//! A pool: one bounded set of threads that serves any number of members, fairly.
//!
//! A member has keys to run; the pool knows it as a [`Job`]. A thread takes the member whose turn it is (`line`), lets it run
//! keys, and leaves it for the next one: after each key if another member waits, else once nothing is left to do. So a member
//! that gets work is served after at most one key of each of the others, however many they have. A member that is held by its rate
//! waits from the moment its time has come.
//!
//! A run that goes on after its deadline and the allowance is *stuck* until it returns. It keeps its thread, but another one may work in its place:
//! a spare one, which sleeps again once there are enough.
//!
//! Lock order: the pool's, then that of a member's queue (to ask it whether it has work).

mod handle;
#[cfg(all(test, loom))]
mod models;
mod round_robin;
mod task;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::{Arc, Weak};

pub use self::handle::{PoolBuilder, WorkerPool};

use self::round_robin::{Hint, MemberId, RoundRobin};
use crate::base::clock::Wake;
use crate::base::group::{Overrun, Run, ThreadGroup, WorkerSlot};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicBool;
use crate::base::sync::atomic::Ordering::{AcqRel, Relaxed};
use crate::base::thread::{ThreadOptions, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{WaiterCounts, Waiters};
use crate::run::runner::KeyTurn;

/// The work of a member.
pub(crate) trait Job: Send + Sync {
    /// Runs keys until `turn` is over, or none is left, or none may be run for now. Does not wait for one.
    fn serve(&self, turn: &PoolTurn<'_>);

    /// Whether there is a key to run. Called under the pool's lock.
    fn has_work(&self) -> bool;

    /// When the next key may be run. Called under the pool's lock. After a change, call
    /// [`Membership::release`].
    fn not_before(&self) -> Nanos;

    /// Called when the last thread that served it has left.
    fn left(&self);

    /// Called while a run that `serve` has begun is an overrun, on the watchdog's thread.
    fn overrun(&self, overrun: &Overrun<'_>);

    /// Brings one of the keys that may be next to the front, by a random number. Returns how it is shown. Only where turns are
    /// played.
    #[cfg(feature = "testing")]
    fn shuffle(&self, draw: u64) -> Option<String>;
}

/// A member to serve.
type NextMember = (MemberId, Arc<Hint>, Arc<dyn Job>);

pub(crate) struct Pool {
    pub(crate) group: Arc<ThreadGroup>,
    /// How many runs that are not stuck there may be at once.
    threads: usize,
    options: ThreadOptions,
    state: Mutex<PoolState>,
    /// Rings for threads that wait for a member.
    idle: Waiters,
}

struct PoolState {
    members: RoundRobin,
    /// By member.
    jobs: Vec<Option<Arc<dyn Job>>>,
    idle: WaiterCounts,
    /// By slot.
    slots: Vec<SlotState>,
    /// How many threads serve a member, and how many of them are stuck.
    busy: usize,
    stuck: usize,
    /// How many threads have been started.
    started: usize,
}

/// The work of one thread.
#[derive(Debug, Default)]
struct SlotState {
    serving: Option<MemberId>,
    /// Its run is an overrun. Changed under the lock, read without it after each run.
    stuck: Arc<AtomicBool>,
}

impl Pool {
    pub(crate) fn new(group: Arc<ThreadGroup>, threads: usize, options: ThreadOptions) -> Arc<Self> {
        let state = PoolState {
            members: RoundRobin::new(group.clock.scheduler().is_some()),
            jobs: Vec::new(),
            idle: WaiterCounts::default(),
            slots: group.slots.iter().map(|_| SlotState::default()).collect(),
            busy: 0,
            stuck: 0,
            started: threads,
        };
        Arc::new(Self { group, threads, options, state: Mutex::new(state), idle: Waiters::new() })
    }

    /// A new member, closed for now, that at most `limit` threads serve at once.
    pub(crate) fn join(self: &Arc<Self>, job: Arc<dyn Job>, limit: usize) -> Membership {
        let mut state = self.state.lock();
        let (member, hint) = state.members.add(limit);
        if state.jobs.len() <= member.0 {
            state.jobs.resize_with(member.0 + 1, || None);
        }
        state.jobs[member.0] = Some(job);
        Membership { pool: Arc::clone(self), member, hint, ended: AtomicBool::new(false) }
    }

    /// Serves members until the group is stopping.
    pub(crate) fn work(self: &Arc<Self>, number: usize) {
        let stuck = Arc::clone(&self.state.lock().slots[number].stuck);
        while let Some(found) = self.next(number) {
            self.serve(number, &stuck, found);
        }
    }

    fn serve(self: &Arc<Self>, number: usize, stuck: &AtomicBool, (member, hint, job): NextMember) {
        let turn = PoolTurn { pool: self, member, hint: &hint, slot: &self.group.slots[number], stuck };
        job.serve(&turn);
        self.finish(number, member, &job);
    }

    /// Returns the next member to serve; `None` if the group is stopping. Blocks while no member has work, or enough threads are
    /// at work.
    fn next(self: &Arc<Self>, number: usize) -> Option<NextMember> {
        let mut state = self.state.lock();
        loop {
            if self.group.is_stopping() {
                return None;
            }
            if let Some(found) = self.take(&mut state, number) {
                // The next thread serves the members that are left, or waits for the next time.
                let count = state.mark_woken(&self.group);
                drop(state);
                self.idle.notify(count);
                return Some(found);
            }
            let until = self.waits_until(&state);
            let waker = || Arc::new(IdleTimeout(Arc::downgrade(self))) as Arc<dyn Wake>;
            self.idle.wait(&mut state, |state| &mut state.idle, &self.group.clock, until, waker);
        }
    }

    /// Up to when a thread waits that has found no member.
    fn waits_until(&self, state: &PoolState) -> Nanos {
        // A thread that ends its turn wakes another one.
        if self.is_full(state) { Nanos::NEVER } else { state.members.next_time() }
    }

    /// Whether enough threads are at work.
    fn is_full(&self, state: &PoolState) -> bool {
        state.busy - state.stuck >= self.threads
    }

    fn take(&self, state: &mut PoolState, number: usize) -> Option<NextMember> {
        if self.is_full(state) {
            return None;
        }
        let (member, hint) = state.members.next(|| self.group.clock.nanos())?;
        let job = Arc::clone(state.jobs[member.0].as_ref()?);
        state.busy += 1;
        state.slots[number].serving = Some(member);
        Some((member, hint, job))
    }

    fn finish(&self, number: usize, member: MemberId, job: &Arc<dyn Job>) {
        let mut state = self.state.lock();
        let at = &mut state.slots[number];
        at.serving = None;
        let was_stuck = at.stuck.swap(false, Relaxed);
        state.busy -= 1;
        state.stuck -= usize::from(was_stuck);
        match job.not_before() {
            Nanos::ZERO => state.members.free(member),
            not_before => state.members.hold_until(member, not_before),
        }
        let last = state.members.done(member) == 0;
        // Asked under the lock: work that comes later is offered later.
        if job.has_work() {
            state.members.offer(member, || self.group.clock.nanos());
        }
        let idle = state.mark_woken(&self.group);
        drop(state);
        self.idle.notify(idle);
        if last {
            shielded("the hook of a controller", || job.left());
        }
    }

    /// A member has work, as far as anybody knows.
    fn offer(&self, member: MemberId) {
        let mut state = self.state.lock();
        if !state.members.offer(member, || self.group.clock.nanos()) {
            return;
        }
        let count = state.mark_woken(&self.group);
        drop(state);
        self.idle.notify(count);
    }

    /// Wakes all threads, to look at whether they are to stop.
    pub(crate) fn nudge(&self) {
        let count = self.state.lock().idle.mark_woken(usize::MAX, &self.group.clock);
        self.idle.notify(count);
    }
}

impl PoolState {
    /// Decides to wake a thread, if there is something for one: a member in line, or one to wait for. Returns how many to wake.
    fn mark_woken(&mut self, group: &ThreadGroup) -> usize {
        if self.members.is_empty() && self.members.next_time() == Nanos::NEVER {
            return 0;
        }
        self.idle.mark_woken(1, &group.clock)
    }
}

/// The time that an idle thread of a pool on a held clock waited for has come.
struct IdleTimeout(Weak<Pool>);

impl Wake for IdleTimeout {
    fn wake(&self) {
        if let Some(pool) = self.0.upgrade() {
            pool.nudge();
        }
    }
}

/// A turn of a member: a thread of the pool, for a while.
pub(crate) struct PoolTurn<'a> {
    pool: &'a Arc<Pool>,
    member: MemberId,
    hint: &'a Hint,
    slot: &'a Arc<WorkerSlot>,
    stuck: &'a AtomicBool,
}

impl KeyTurn for PoolTurn<'_> {
    fn begin(&self, start: Nanos, deadline: Nanos, record: u32) -> Run<'_> {
        self.slot.starts_at(start);
        self.pool.group.begin_until(self.slot, deadline, record)
    }

    fn slot(&self) -> &Arc<WorkerSlot> {
        self.slot
    }

    /// A turn ends if another member is ready or its time has come, if this one is not to be served any more, or if a spare
    /// thread has replaced this one.
    ///
    /// **No run begins on a thread that is marked as stuck.** The thread ends its run, then looks at the mark. The watchdog
    /// sets the mark, then looks whether the run goes on, and if not takes the mark back. Both change the mark to look at it:
    /// one change comes after the other, and its thread sees what the other thread did before.
    #[inline]
    fn is_over(&self) -> bool {
        self.hint.turn_is_over(|| self.pool.group.clock.nanos())
            || self.stuck.fetch_or(false, AcqRel)
            || self.pool.group.is_stopping()
    }

    /// Another thread may take one of the keys that are left.
    fn more(&self) {
        if !self.hint.is_ready() {
            self.pool.offer(self.member);
        }
    }
}

/// A membership of a pool, until its [end](Self::end).
pub(crate) struct Membership {
    pool: Arc<Pool>,
    member: MemberId,
    hint: Arc<Hint>,
    /// The member may be another's by now. Changed under the pool's lock.
    ended: AtomicBool,
}

impl Membership {
    /// Reports that the member may have work.
    pub(crate) fn offer(&self) {
        if !self.hint.is_ready() {
            self.with(|state| state.members.offer(self.member, || self.pool.group.clock.nanos()));
        }
    }

    /// Puts the member into service. It may have work already.
    pub(crate) fn open(&self) {
        self.with(|state| {
            state.members.set_open(self.member, true);
            state.members.offer(self.member, || self.pool.group.clock.nanos())
        });
    }

    /// Takes the member out of service. Runs under way continue, and so does a thread that is taking a key.
    pub(crate) fn close(&self) {
        self.with(|state| {
            state.members.set_open(self.member, false);
            false
        });
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.with(|state| {
            state.members.set_limit(self.member, limit);
            state.members.offer(self.member, || self.pool.group.clock.nanos())
        });
    }

    /// Ends the wait of the member for its time.
    pub(crate) fn release(&self) {
        self.with(|state| {
            state.members.free(self.member);
            state.members.offer(self.member, || self.pool.group.clock.nanos())
        });
    }

    /// Changes something under the pool's lock, and wakes a thread if that gives one something to do.
    fn with(&self, change: impl FnOnce(&mut PoolState) -> bool) {
        let mut state = self.pool.state.lock();
        if self.ended.load(Relaxed) || !change(&mut state) {
            return;
        }
        let count = state.mark_woken(&self.pool.group);
        drop(state);
        self.pool.idle.notify(count);
    }

    /// The slots of the threads that serve it.
    pub(crate) fn slots(&self) -> Vec<Arc<WorkerSlot>> {
        let state = self.pool.state.lock();
        if self.ended.load(Relaxed) {
            return Vec::new();
        }
        let slots = self.pool.group.slots.iter().zip(&state.slots);
        slots.filter(|(_, at)| at.serving == Some(self.member)).map(|(slot, _)| Arc::clone(slot)).collect()
    }

    /// Ends the membership. The member is closed, and no thread serves it.
    pub(crate) fn end(&self) {
        let mut state = self.pool.state.lock();
        if self.ended.swap(true, Relaxed) {
            return;
        }
        state.members.remove(self.member);
        let job = state.jobs[self.member.0].take();
        drop(state);
        drop(job);
    }
}
