//! A pool: a bounded set of threads that serves any number of members fairly.
//!
//! A member has keys to run; the pool calls it through [`Job`]. A thread takes the next member in round-robin order
//! (`round_robin`), runs keys of that member, and then leaves it for the next one. If other members wait, it leaves
//! after one key; otherwise after the last key. New work of a member therefore waits for at most one key of each other
//! member. A rate-limited member waits in this order from its next token on.
//!
//! A run that continues after its deadline and the allowance is *stuck* until it returns. It keeps its thread, but a
//! spare thread may take its place. The spare thread sleeps again when enough threads are working.
//!
//! Lock order: the pool's lock, then the lock of a member's queue (to check for work).
//!
//! # Invariants
//!
//! - An open member below its limit that has keys to run is in a list of the scheduler, or is served by a thread. That
//!   thread checks the member again under the pool's lock when it leaves.
//! - A stuck run keeps its key, its thread and its place in the limit of its controller. Only its place among the
//!   threads of the pool is given to a spare thread.
//! - No run begins on a thread that is marked as stuck. The thread ends its run before it reads the mark. The watchdog
//!   sets the mark before it checks whether the run continues.
//! - While a thread looks for work before it sleeps, new work wakes no other thread. The looking thread sees the work
//!   under the lock, and then wakes another thread for the rest.

mod handle;
#[cfg(all(test, loom))]
mod models;
mod round_robin;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::thread;

#[cfg(all(test, loom))]
use loom::thread;

pub use self::handle::{WorkerPool, WorkerPoolBuilder};

use self::round_robin::{Hint, MemberId, RoundRobin};
use crate::base::clock::Wake;
use crate::base::group::{Run, SeenRun, ThreadGroup, WorkerSlot};
use crate::base::sync::atomic::AtomicBool;
use crate::base::sync::atomic::Ordering::{AcqRel, Relaxed};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::task::{Next, Task};
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::base::wait::{WaiterCounts, Waiters};
use crate::queue::Reasons;
use crate::run::runner::KeyTurn;

/// The work of a member.
pub(crate) trait Job: Send + Sync {
    /// Runs keys until `turn` is over, no key is left, or no key may be run now. Does not wait for keys.
    fn serve(&self, turn: &PoolTurn<'_>);

    /// Returns whether a key is ready. Called under the pool's lock.
    fn has_work(&self) -> bool;

    /// Returns the time at which the next key may run. Called under the pool's lock. After a change, call
    /// [`Membership::release`].
    fn not_before(&self) -> Nanos;

    /// Called when the last thread that serves this member leaves it. If the member is closed, every leaving thread
    /// calls this, because a run that joins its own member waits for the other threads.
    fn left(&self);

    /// Called for an overrun of a run that `serve` began.
    fn overrun(&self, overrun: &SeenRun);

    /// Moves a random one of the possible next keys to the front. Returns its text. Only for simulations.
    fn shuffle(&self, draw: u64) -> Option<String>;
}

/// The maximum number of looks for work before a thread sleeps. A thread begins with one look and gains one with each
/// run, so that looks cost less than runs.
const LOOKS: u64 = 16;

/// A member to serve.
type NextMember = (MemberId, Arc<Hint>, Arc<dyn Job>);

pub(crate) struct Pool {
    pub(crate) group: Arc<ThreadGroup>,
    /// The number of threads that may work at once, without stuck ones.
    threads: usize,
    options: ThreadOptions,
    state: Mutex<PoolState>,
    /// Wakes the threads that wait for a member.
    idle: Waiters,
}

struct PoolState {
    members: RoundRobin,
    /// The jobs, by member.
    jobs: Vec<Option<Arc<dyn Job>>>,
    idle: WaiterCounts,
    /// The states of the threads, by slot.
    slots: Vec<SlotState>,
    /// The number of threads that serve a member, and how many of them are stuck.
    busy: usize,
    stuck: usize,
    /// The number of threads that have been started.
    started: usize,
    /// Whether a thread is looking for work before it sleeps. It also finds work that is offered at that time.
    is_looking: bool,
}

/// The work of one thread.
#[derive(Debug, Default)]
struct SlotState {
    serving: Option<MemberId>,
    /// Whether the thread's run is an overrun. Changed under the lock, and read without it after each run.
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
            is_looking: false,
        };
        Arc::new(Self { group, threads, options, state: Mutex::new(state), idle: Waiters::new() })
    }

    /// Adds a member that at most `limit` threads serve at once. It is closed at first.
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
        let slot = &self.group.slots[number];
        let (mut looks, mut runs) = (1, 0);
        while let Some(found) = self.next(number, &mut looks) {
            self.serve(number, &stuck, found);
            let runs_before = std::mem::replace(&mut runs, slot.runs());
            looks = LOOKS.min(looks + runs - runs_before);
        }
    }

    fn serve(self: &Arc<Self>, number: usize, stuck: &AtomicBool, (member, hint, job): NextMember) {
        let turn = PoolTurn { pool: self, member, hint: &hint, slot: &self.group.slots[number], stuck };
        job.serve(&turn);
        self.finish(number, member, &job);
    }

    /// Returns the next member to serve. `None` if the group is stopping. Blocks while no member has work or enough
    /// threads are working. Looks again up to `looks` times before it sleeps, unless another thread is looking: under
    /// load, the next key often arrives before the thread could fall asleep and be woken.
    fn next(self: &Arc<Self>, number: usize, looks: &mut u64) -> Option<NextMember> {
        let mut state = self.state.lock();
        loop {
            if self.group.is_stopping() {
                return None;
            }
            if let Some(found) = self.take(&mut state, number) {
                // The woken thread serves the remaining members, or waits for the next time.
                let count = state.mark_woken(&self.group);
                drop(state);
                self.idle.notify(count);
                return Some(found);
            }
            // A held clock counts the sleeping threads, so threads sleep at once. Models do not need that count.
            if *looks > 0 && !state.is_looking && (!self.group.clock.is_held() || cfg!(loom)) {
                *looks -= 1;
                state.is_looking = true;
                MutexGuard::unlocked(&mut state, thread::yield_now);
                state.is_looking = false;
                continue;
            }
            let until = self.waits_until(&state);
            let waker = || -> Wake {
                let pool = Arc::downgrade(self);
                Box::new(move || pool.upgrade().into_iter().for_each(|pool| pool.wake()))
            };
            self.idle.wait(&mut state, |state| &mut state.idle, &self.group.clock, until, waker);
        }
    }

    /// Returns the time until which a thread without a member waits.
    fn waits_until(&self, state: &PoolState) -> Nanos {
        // A thread that ends its turn wakes another thread.
        if self.is_full(state) { Nanos::NEVER } else { state.members.next_time() }
    }

    /// Returns whether enough threads are working.
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
        let reports = state.members.done(member) == 0 || !state.members.is_open(member);
        // Checked under the lock: later work is offered later.
        if job.has_work() {
            state.members.offer(member, || self.group.clock.nanos());
        }
        let idle = state.mark_woken(&self.group);
        drop(state);
        self.idle.notify(idle);
        if reports {
            job.left();
        }
    }

    /// Reports that a member probably has work.
    fn offer(&self, member: MemberId) {
        let mut state = self.state.lock();
        if !state.members.offer(member, || self.group.clock.nanos()) {
            return;
        }
        let count = state.mark_woken(&self.group);
        drop(state);
        self.idle.notify(count);
    }

    /// Wakes all threads, so that they check whether to stop.
    pub(crate) fn wake(&self) {
        let count = self.state.lock().idle.mark_woken(usize::MAX, &self.group.clock);
        self.idle.notify(count);
    }
}

impl PoolState {
    /// Marks a sleeping thread to be woken, and returns the number of marked threads. Marks none if a thread is looking
    /// for work, or if no member is ready or waits for a time.
    fn mark_woken(&mut self, group: &ThreadGroup) -> usize {
        if self.is_looking || self.members.is_empty() && self.members.next_time() == Nanos::NEVER {
            return 0;
        }
        self.idle.mark_woken(1, &group.clock)
    }
}

/// The task that serves the members of a pool.
struct PoolTask {
    pool: Arc<Pool>,
    number: usize,
}

impl Task for PoolTask {
    /// Blocks until the pool is stopping.
    fn step(&mut self, _now: Nanos) -> Next {
        self.pool.work(self.number);
        Next::Finished
    }

    fn due(&mut self, _next: Nanos) -> Nanos {
        let state = self.pool.state.lock();
        let ready = !state.members.is_empty() && !self.pool.is_full(&state);
        if ready || self.pool.group.is_stopping() { Nanos::ZERO } else { self.pool.waits_until(&state) }
    }

    /// Runs one key.
    fn take_turn(&mut self, _now: Nanos, draw: u64, say: &dyn Fn(String)) -> Next {
        let Self { pool, number } = self;
        if pool.group.is_stopping() {
            return Next::Finished;
        }
        let (found, stuck) = {
            let mut state = pool.state.lock();
            (pool.take(&mut state, *number), Arc::clone(&state.slots[*number].stuck))
        };
        if let Some(found) = found {
            if let Some(key) = found.2.shuffle(draw) {
                say(key);
            }
            pool.serve(*number, &stuck, found);
        }
        Next::At(Nanos::NEVER)
    }
}

/// A turn of a member on a thread of the pool.
pub(crate) struct PoolTurn<'a> {
    pool: &'a Arc<Pool>,
    member: MemberId,
    hint: &'a Hint,
    slot: &'a Arc<WorkerSlot>,
    stuck: &'a AtomicBool,
}

impl KeyTurn for PoolTurn<'_> {
    fn begin(&self, start: Nanos, deadline: Nanos, record: u32, reasons: Reasons) -> Run<'_> {
        self.slot.starts_at(start, reasons.bits());
        self.pool.group.begin_until(self.slot, deadline, record)
    }

    fn slot(&self) -> &Arc<WorkerSlot> {
        self.slot
    }

    /// Returns whether the turn is over.
    ///
    /// A turn ends if another member is ready, if a held member is due, if the thread must leave this member, if a
    /// spare thread has replaced this one, or if the pool is stopping.
    ///
    /// **No run begins on a thread that is marked as stuck.** The thread ends its run, then reads the mark. The
    /// watchdog sets the mark, then checks whether the run continues; if not, it removes the mark. Both read the mark
    /// with a read-modify-write operation. These are ordered: the thread with the second one sees everything that the
    /// other thread did before.
    #[inline]
    fn is_over(&self) -> bool {
        self.hint.turn_is_over(|| self.pool.group.clock.nanos())
            || self.stuck.fetch_or(false, AcqRel)
            || self.pool.group.is_stopping()
    }

    /// Offers the remaining keys to another thread.
    fn more(&self) {
        if self.hint.takes_offers() {
            self.pool.offer(self.member);
        }
    }
}

/// A membership in a pool, which lasts until its [end](Self::end).
pub(crate) struct Membership {
    pool: Arc<Pool>,
    member: MemberId,
    hint: Arc<Hint>,
    /// Whether the id may belong to another member by now. Changed under the pool's lock.
    ended: AtomicBool,
}

impl Membership {
    /// Reports that the member may have work.
    pub(crate) fn offer(&self) {
        if self.hint.takes_offers() {
            self.with(|state| state.members.offer(self.member, || self.pool.group.clock.nanos()));
        }
    }

    /// Opens the member. It may already have work.
    pub(crate) fn open(&self) {
        self.with(|state| {
            state.members.set_open(self.member, true);
            state.members.offer(self.member, || self.pool.group.clock.nanos())
        });
    }

    /// Closes the member. Active runs continue. A thread that is taking a key continues as well.
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

    /// Ends the member's wait for a time.
    pub(crate) fn release(&self) {
        self.with(|state| {
            state.members.free(self.member);
            state.members.offer(self.member, || self.pool.group.clock.nanos())
        });
    }

    /// Applies `change` under the pool's lock. If it returns true, may wake a thread.
    fn with(&self, change: impl FnOnce(&mut PoolState) -> bool) {
        let mut state = self.pool.state.lock();
        if self.ended.load(Relaxed) || !change(&mut state) {
            return;
        }
        let count = state.mark_woken(&self.pool.group);
        drop(state);
        self.pool.idle.notify(count);
    }

    /// Returns the slots of the threads that serve the member.
    pub(crate) fn slots(&self) -> Vec<Arc<WorkerSlot>> {
        let state = self.pool.state.lock();
        if self.ended.load(Relaxed) {
            return Vec::new();
        }
        let slots = self.pool.group.slots.iter().zip(&state.slots);
        slots.filter(|(_, at)| at.serving == Some(self.member)).map(|(slot, _)| Arc::clone(slot)).collect()
    }

    /// Ends the membership, unless a thread serves the member. The member must be closed.
    pub(crate) fn end(&self) {
        let mut state = self.pool.state.lock();
        let is_served = state.slots.iter().any(|at| at.serving == Some(self.member));
        if is_served || self.ended.swap(true, Relaxed) {
            return;
        }
        state.members.remove(self.member);
        let job = state.jobs[self.member.0].take();
        drop(state);
        drop(job);
    }
}
