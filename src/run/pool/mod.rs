//! A pool: one bounded set of threads that serves any number of members, fairly.
//!
//! A member is whatever has keys to run: to the pool a [`Job`]. A thread takes the member whose turn it is (`line`), lets it run
//! keys, and leaves it for the next one: after each key if another member waits, else once nothing is left to do. So a member
//! that gets work is served after at most one key of each of the others, however many they have. A member that is held by its rate
//! waits from the moment its time has come.
//!
//! A run that goes on after its deadline and the allowance is *stuck* until it returns. It keeps its thread, but another one may work in its place:
//! a spare one, which sleeps again once there are enough.
//!
//! Lock order: the pool's, then that of a member's queue (to ask it whether it has work).

mod handle;
mod line;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
mod working;

use std::sync::{Arc, Weak};

pub use self::handle::{PoolBuilder, WorkerPool};

use self::line::{Hint, Line, Place};
use self::working::Working;
use crate::base::clock::Wake;
use crate::base::group::{Overrun, Run, ThreadGroup, WorkerSlot};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicBool;
use crate::base::sync::atomic::Ordering::{AcqRel, Relaxed};
use crate::base::thread::{ThreadOptions, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, WaiterCounts, Waiters};
use crate::run::runner::Turn;

/// What a member does with the pool's threads.
pub(crate) trait Job: Send + Sync {
    /// Runs keys until `turn` is over, or none is left, or none may be run for now. Does not wait for one.
    fn serve(&self, turn: &PoolTurn<'_>);

    /// Whether there is a key to run. Called under the pool's lock.
    fn has_work(&self) -> bool;

    /// When the next key may be run. Called under the pool's lock, so that whoever changes it and then
    /// [releases](Membership::release) it has the last word.
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
type Found = (Place, Arc<Hint>, Arc<dyn Job>);

pub(crate) struct Pool {
    pub(crate) crew: Arc<ThreadGroup>,
    /// How many runs that are not stuck there may be at once.
    threads: usize,
    options: ThreadOptions,
    state: Mutex<State>,
    /// Rings for threads that wait for a member.
    idle: Waiters,
}

struct State {
    line: Line,
    /// By place.
    jobs: Vec<Option<Arc<dyn Job>>>,
    idle: WaiterCounts,
    /// By seat.
    seats: Vec<At>,
    /// How many threads serve a member, and how many of them are stuck.
    busy: usize,
    stuck: usize,
    /// How many threads have been started.
    started: usize,
}

/// What a thread is doing.
#[derive(Debug, Default)]
struct At {
    serving: Option<Place>,
    /// Its run is an overrun. Changed under the lock, read without it after each run.
    stuck: Arc<AtomicBool>,
}

impl Pool {
    pub(crate) fn new(crew: Arc<ThreadGroup>, threads: usize, options: ThreadOptions) -> Arc<Self> {
        let state = State {
            line: Line::new(crew.clock.scheduler().is_some()),
            jobs: Vec::new(),
            idle: WaiterCounts::default(),
            seats: crew.seats.iter().map(|_| At::default()).collect(),
            busy: 0,
            stuck: 0,
            started: threads,
        };
        Arc::new(Self { crew, threads, options, state: Mutex::new(state), idle: Waiters::new() })
    }

    /// A new member, closed for now, that at most `limit` threads serve at once.
    pub(crate) fn join(self: &Arc<Self>, job: Arc<dyn Job>, limit: usize) -> Membership {
        let mut state = self.state.lock();
        let (place, hint) = state.line.add(limit);
        if state.jobs.len() <= place.0 {
            state.jobs.resize_with(place.0 + 1, || None);
        }
        state.jobs[place.0] = Some(job);
        Membership { pool: Arc::clone(self), place, hint, ended: AtomicBool::new(false) }
    }

    /// What each of the pool's threads does until the crew is stopping.
    pub(crate) fn work(self: &Arc<Self>, number: usize) {
        let stuck = Arc::clone(&self.state.lock().seats[number].stuck);
        while let Some(found) = self.next(number) {
            self.serve(number, &stuck, found);
        }
    }

    fn serve(self: &Arc<Self>, number: usize, stuck: &AtomicBool, (place, hint, job): Found) {
        let turn = PoolTurn { pool: self, place, hint: &hint, seat: &self.crew.seats[number], stuck };
        job.serve(&turn);
        self.finish(number, place, &job);
    }

    /// The member whose turn it is. Blocks while there is none, or enough threads are at work; `None` once the crew is stopping.
    fn next(self: &Arc<Self>, number: usize) -> Option<Found> {
        let mut state = self.state.lock();
        loop {
            if self.crew.is_stopping() {
                return None;
            }
            if let Some(found) = self.take(&mut state, number) {
                // Whoever is woken next sees to what is left, or waits for what comes later.
                let count = state.rouse(&self.crew);
                drop(state);
                self.idle.ring(count);
                return Some(found);
            }
            let until = self.waits_until(&state);
            let waker = || Arc::new(IdleTimeout(Arc::downgrade(self))) as Arc<dyn Wake>;
            self.idle.wait(&mut state, |state| &mut state.idle, &self.crew.clock, until, waker);
        }
    }

    /// Up to when a thread waits that has found no member.
    fn waits_until(&self, state: &State) -> Nanos {
        // Without a place for it no time matters: who leaves one wakes a thread.
        if self.is_full(state) { Nanos::NEVER } else { state.line.next_time() }
    }

    /// Whether enough threads are at work.
    fn is_full(&self, state: &State) -> bool {
        state.busy - state.stuck >= self.threads
    }

    fn take(&self, state: &mut State, number: usize) -> Option<Found> {
        if self.is_full(state) {
            return None;
        }
        let (place, hint) = state.line.next(|| self.crew.clock.nanos())?;
        let job = Arc::clone(state.jobs[place.0].as_ref()?);
        state.busy += 1;
        state.seats[number].serving = Some(place);
        Some((place, hint, job))
    }

    fn finish(&self, number: usize, place: Place, job: &Arc<dyn Job>) {
        let mut state = self.state.lock();
        let at = &mut state.seats[number];
        at.serving = None;
        let was_stuck = at.stuck.swap(false, Relaxed);
        state.busy -= 1;
        state.stuck -= usize::from(was_stuck);
        match job.not_before() {
            Nanos::ZERO => state.line.free(place),
            not_before => state.line.hold_until(place, not_before),
        }
        let last = state.line.done(place) == 0;
        // It is asked under the lock: what it gets later, it offers later.
        if job.has_work() {
            state.line.offer(place, || self.crew.clock.nanos());
        }
        let idle = state.rouse(&self.crew);
        drop(state);
        self.idle.ring(idle);
        if last {
            shielded("the hook of a controller", || job.left());
        }
    }

    /// A member has work, as far as anybody knows.
    fn offer(&self, place: Place) {
        let mut state = self.state.lock();
        if !state.line.offer(place, || self.crew.clock.nanos()) {
            return;
        }
        let count = state.rouse(&self.crew);
        drop(state);
        self.idle.ring(count);
    }

    /// A run is an overrun: says so, and sees to it that a thread works in its place. Called by the watchdog.
    pub(crate) fn overrun(self: &Arc<Self>, overrun: &Overrun<'_>) {
        let Some(number) = self.crew.seats.iter().position(|seat| std::ptr::eq(Arc::as_ptr(seat), overrun.seat)) else {
            return;
        };
        let mut state = self.state.lock();
        let At { serving: Some(place), stuck } = &state.seats[number] else { return };
        // First marked, then looked at: see `PoolTurn::is_over`.
        stuck.swap(true, AcqRel);
        if !overrun.goes_on() {
            stuck.swap(false, AcqRel);
            return;
        }
        let job = state.jobs[place.0].clone();
        let mut spare = None;
        state.stuck += 1;
        if state.started < self.crew.seats.len() && state.stuck > state.started - self.threads {
            spare = Some(state.started);
            state.started += 1;
        }
        let count = state.rouse(&self.crew);
        drop(state);
        self.idle.ring(count);
        // First what has happened, then what is done about it.
        if let Some(job) = job {
            shielded("the report of an overrun", || job.overrun(overrun));
        }
        if let Some(spare) = spare {
            self.start_spare(spare);
        }
    }

    fn start_spare(self: &Arc<Self>, number: usize) {
        let body = Working { pool: Arc::clone(self), number };
        let event = AutoResetEvent::new(self.crew.clock.clone());
        let (pool, thread) = (self.crew.name.as_str(), self.crew.seats[number].name.as_str());
        match self.crew.adopt(|| self.crew.start_on(number, &self.options, body, &event)) {
            Ok(()) => {
                log::warn!(pool, thread; "{pool}: thread {thread} is started in place of a stuck one");
            }
            Err(error) => {
                log::error!(pool, thread, error:%; "{pool}: cannot start thread {thread} in place of a stuck one: {error}");
                // The next overrun tries again: no other thread is started meanwhile, for this is the watchdog's.
                self.state.lock().started -= 1;
            }
        }
    }

    /// Wakes all threads, to look at whether they are to stop.
    pub(crate) fn nudge(&self) {
        let count = self.state.lock().idle.rouse(usize::MAX, &self.crew.clock);
        self.idle.ring(count);
    }
}

impl State {
    /// Decides to wake a thread, if there is something for one: a member in line, or one to wait for. Returns how many to wake.
    fn rouse(&mut self, crew: &ThreadGroup) -> usize {
        if self.line.is_empty() && self.line.next_time() == Nanos::NEVER {
            return 0;
        }
        self.idle.rouse(1, &crew.clock)
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
    place: Place,
    hint: &'a Hint,
    seat: &'a Arc<WorkerSlot>,
    stuck: &'a AtomicBool,
}

impl Turn for PoolTurn<'_> {
    fn begin(&self, start: Nanos, deadline: Nanos, record: u32) -> Run<'_> {
        self.seat.starts_at(start);
        self.pool.crew.begin_until(self.seat, deadline, record)
    }

    fn seat(&self) -> &Arc<WorkerSlot> {
        self.seat
    }

    /// A turn ends if another member is ready or its time has come, if this one is not to be served any more, or if a spare
    /// thread has replaced this one.
    ///
    /// **No run begins on a thread that is marked as stuck.** The thread ends its run, then looks at the mark. The watchdog
    /// sets the mark, then looks whether the run goes on, and if not takes the mark back. Both change the mark to look at it:
    /// one change comes after the other, and its thread sees what the other thread did before.
    #[inline]
    fn is_over(&self) -> bool {
        self.hint.turn_is_over(|| self.pool.crew.clock.nanos())
            || self.stuck.fetch_or(false, AcqRel)
            || self.pool.crew.is_stopping()
    }

    /// Another thread may take one of the keys that are left.
    fn more(&self) {
        if !self.hint.is_ready() {
            self.pool.offer(self.place);
        }
    }
}

/// A member's place in a pool, until it is [given up](Self::end).
pub(crate) struct Membership {
    pool: Arc<Pool>,
    place: Place,
    hint: Arc<Hint>,
    /// The place may be another's by now. Changed under the pool's lock.
    ended: AtomicBool,
}

impl Membership {
    /// It has work, as far as anybody knows.
    pub(crate) fn offer(&self) {
        if !self.hint.is_ready() {
            self.with(|state| state.line.offer(self.place, || self.pool.crew.clock.nanos()));
        }
    }

    /// It is served from now on; it may have work already.
    pub(crate) fn open(&self) {
        self.with(|state| {
            state.line.set_open(self.place, true);
            state.line.offer(self.place, || self.pool.crew.clock.nanos())
        });
    }

    /// It is not served any more; runs under way go on, and those who take a key at this moment.
    pub(crate) fn close(&self) {
        self.with(|state| {
            state.line.set_open(self.place, false);
            false
        });
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.with(|state| {
            state.line.set_limit(self.place, limit);
            state.line.offer(self.place, || self.pool.crew.clock.nanos())
        });
    }

    /// It waits for no time any more.
    pub(crate) fn release(&self) {
        self.with(|state| {
            state.line.free(self.place);
            state.line.offer(self.place, || self.pool.crew.clock.nanos())
        });
    }

    /// Changes something under the pool's lock, and wakes a thread if that gives one something to do.
    fn with(&self, change: impl FnOnce(&mut State) -> bool) {
        let mut state = self.pool.state.lock();
        if self.ended.load(Relaxed) || !change(&mut state) {
            return;
        }
        let count = state.rouse(&self.pool.crew);
        drop(state);
        self.pool.idle.ring(count);
    }

    /// The seats of the threads that serve it.
    pub(crate) fn seats(&self) -> Vec<Arc<WorkerSlot>> {
        let state = self.pool.state.lock();
        if self.ended.load(Relaxed) {
            return Vec::new();
        }
        let seats = self.pool.crew.seats.iter().zip(&state.seats);
        seats.filter(|(_, at)| at.serving == Some(self.place)).map(|(seat, _)| Arc::clone(seat)).collect()
    }

    /// Gives the place up. It is closed, and no thread serves it.
    pub(crate) fn end(&self) {
        let mut state = self.pool.state.lock();
        if self.ended.swap(true, Relaxed) {
            return;
        }
        state.line.remove(self.place);
        let job = state.jobs[self.place.0].take();
        drop(state);
        drop(job);
    }
}
