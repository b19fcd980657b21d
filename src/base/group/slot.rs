//! The slot of one thread, which shows its run to the watchdog.
//!
//! Runs are numbered. A run *begins* when `begun` becomes its number and is over when `ended` has become it; a slot is busy
//! while `begun` is ahead. What belongs to a run is either written before it begins (its deadline, its record) or carries its
//! number (that it is overdue, its token), so that nothing of one run is ever taken for the next one's:
//!
//! | written by | in this order |
//! |---|---|
//! | the slot's thread | deadline, record, `begun`; then, when the run is over, `ended` |
//! | the watchdog | `expired`, when the deadline has passed; then `overdue`, after the [allowance](super::ALLOWANCE) |
//! | the run, if it asks for its token | the token and its number, under the lock |
//!
//! **Guarantees for readers.** All fields are stored with `Release` and read with `Acquire`. A reader reads the number of a run
//! from `begun`, then deadline and record, then `ended`. If `ended` is below the number, deadline and record belong to that run:
//! a later run changes them only after `ended` has reached the number. (`ended` needs no order for that. It has one so that a
//! reader that sees the end of a run sees its effects.)
//!
//! **Costs.** A run writes two numbers; one with a deadline writes two more, and adds to `begun` in one step where
//! others store it (why: see [`watchdog`](super::watchdog)). The lock is taken by a run that asks for its token, as it asks
//! and as it ends.

use std::sync::Arc;
use std::time::Duration;

use super::ALLOWANCE;
use crate::base::cancel::CancellationToken;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::base::time::Nanos;

/// The run of one thread.
#[derive(Debug)]
// Two threads that write to their slots must not share a cache line; processors fetch lines in pairs.
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct WorkerSlot {
    /// The name of its thread.
    pub(crate) name: String,
    /// The number of the last run that has begun; 0 before the first.
    begun: AtomicU64,
    /// The number of the last run that is over.
    ended: AtomicU64,
    /// The deadline of the last run that has begun, or of the one about to begin.
    deadline: AtomicU64,
    /// No later run has a deadline before this time, as its thread has planned; never if its thread plans nothing.
    planned: AtomicU64,
    /// The queue's record of its key.
    record: AtomicU32,
    /// When it began, where that is kept.
    since: AtomicU64,
    /// The number of the last run whose deadline the watchdog has seen pass. Only the watchdog looks at this.
    expired: AtomicU64,
    /// The number of the last run that was found overdue: that went on after the allowance.
    overdue: AtomicU64,
    /// Whether the run under way has put its token into `token`. Only the run itself and its thread look at this.
    exposed: AtomicBool,
    /// The number and the token of a run that has asked for it; taken out again as that run ends.
    token: Mutex<Option<(u64, CancellationToken)>>,
    /// The thread has ended, or has not been started.
    left: AtomicBool,
}

/// A run, as somebody else sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    number: u64,
    /// When it began, where that is kept.
    pub(crate) since: Nanos,
    /// The queue's record of its key.
    pub(crate) record: u32,
}

impl WorkerSlot {
    pub(crate) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            deadline: AtomicU64::new(Nanos::NEVER.0),
            planned: AtomicU64::new(Nanos::NEVER.0),
            record: AtomicU32::new(0),
            since: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
            exposed: AtomicBool::new(false),
            token: Mutex::new(None),
            left: AtomicBool::new(true),
        })
    }

    /// A run without a deadline begins, on a slot that no watchdog looks at. As [`begin_until`](Self::begin_until) and
    /// [`end`](Self::end), only the slot's own thread calls this.
    #[inline]
    pub(super) fn begin(&self) {
        let run = self.begun.load(Relaxed) + 1;
        self.begun.store(run, Release);
    }

    /// The next run begins at this time.
    #[inline]
    pub(crate) fn starts_at(&self, time: Nanos) {
        self.since.store(time.0, Release);
    }

    /// A run begins.
    ///
    /// A later call of [`deadline`](Self::deadline) sees this run. If the call came first, this thread sees everything that the
    /// watchdog did before it.
    #[inline]
    pub(super) fn begin_until(&self, deadline: Nanos, record: u32) {
        self.deadline.store(deadline.0, Release);
        self.record.store(record, Release);
        self.begun.fetch_add(1, AcqRel);
    }

    /// Tells the watchdog the deadline of the next run, so that it can sleep until then and the run need not wake it. A run may
    /// still begin sooner, with an earlier deadline: it wakes the watchdog. Only the slot's own thread calls this.
    pub(crate) fn plan(&self, deadline: Nanos) {
        self.planned.store(deadline.0, Release);
    }

    /// The run under way is over.
    #[inline]
    pub(super) fn end(&self) {
        self.ended.store(self.begun.load(Relaxed), Release);
        if self.exposed.load(Relaxed) {
            self.take_back();
        }
    }

    #[cold]
    fn take_back(&self) {
        self.exposed.store(false, Relaxed);
        let token = self.token.lock().take();
        // Outside the lock: it may be the last handle.
        drop(token);
    }

    /// A thread is started for it.
    pub(super) fn come(&self) {
        self.left.store(false, Release);
    }

    /// The thread ends.
    pub(super) fn leave(&self) {
        self.left.store(true, Release);
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Acquire)
    }

    /// When the watchdog has to look at the slot: at the deadline of the run under way, and again after the allowance. While there is
    /// no run, at the deadline that is [planned](Self::plan) for the next. Never once a run has been reported as overdue. Only the watchdog calls this: it is its half of what
    /// [`begin_until`](Self::begin_until) promises.
    pub(super) fn deadline(&self, now: Nanos) -> Nanos {
        // Adding nothing, but in line with the additions of runs that begin: each of the two sides sees the other's last one.
        let run = self.begun.fetch_add(0, AcqRel);
        let deadline = Nanos(self.deadline.load(Acquire));
        if self.is_over(run) {
            // A plan whose time has passed does not count: its run wakes the watchdog.
            Some(Nanos(self.planned.load(Acquire))).filter(|&planned| planned > now).unwrap_or(Nanos::NEVER)
        } else if self.overdue.load(Relaxed) == run {
            Nanos::NEVER
        } else if self.expired.load(Relaxed) == run {
            deadline.after(ALLOWANCE)
        } else {
            deadline
        }
    }

    /// Returns the run under way, if any.
    pub(crate) fn look(&self) -> Option<Look> {
        let number = self.begun.load(Acquire);
        let since = Nanos(self.since.load(Acquire));
        let look = Look { number, since, record: self.record.load(Acquire) };
        self.is_at(&look).then_some(look)
    }

    /// Whether that run is still under way. If so, a key found by its record before this call is its key.
    pub(crate) fn is_at(&self, run: &Look) -> bool {
        !self.is_over(run.number)
    }

    pub(crate) fn is_busy(&self) -> bool {
        // If that run is over by now, the slot was idle for a moment.
        !self.is_over(self.begun.load(Acquire))
    }

    /// Whether the run under way has been reported as overdue.
    pub(crate) fn is_overdue(&self) -> bool {
        let run = self.overdue.load(Acquire);
        !self.is_over(run)
    }

    /// Lets the watchdog find the token of the run under way; only that run calls this.
    pub(crate) fn expose(&self, token: &CancellationToken) {
        let run = self.begun.load(Relaxed);
        *self.token.lock() = Some((run, token.clone()));
        self.exposed.store(true, Relaxed);
    }

    /// Marks the run under way as expired if its deadline has passed. Returns its number, once for each run. Only the watchdog calls
    /// this.
    pub(super) fn expire(&self, now: Nanos) -> Option<u64> {
        self.passes(Duration::ZERO, now, &self.expired).map(|(run, _)| run)
    }

    /// Marks the run under way as overdue if its deadline and the allowance have passed. Returns its number and record, once for each
    /// run. Only the watchdog calls this.
    pub(super) fn overrun(&self, now: Nanos) -> Option<(u64, u32)> {
        self.passes(ALLOWANCE, now, &self.overdue)
    }

    /// Writes the number of the run under way to `mark` if it still runs so long after its deadline.
    fn passes(&self, allowance: Duration, now: Nanos, mark: &AtomicU64) -> Option<(u64, u32)> {
        let run = self.begun.load(Acquire);
        let deadline = Nanos(self.deadline.load(Acquire));
        let record = self.record.load(Acquire);
        let time = deadline.after(allowance);
        if time > now || time == Nanos::NEVER || self.is_over(run) || mark.load(Relaxed) == run {
            return None;
        }
        mark.store(run, Release);
        Some((run, record))
    }

    /// Whether run number `run`, which has begun, is over.
    pub(super) fn is_over(&self, run: u64) -> bool {
        self.ended.load(Acquire) >= run
    }

    /// The token of run number `run`, if that run is under way and has asked for one.
    pub(super) fn token(&self, run: u64) -> Option<CancellationToken> {
        let token = self.token.lock();
        token.as_ref().filter(|(of, _)| *of == run).map(|(_, token)| token.clone())
    }
}
