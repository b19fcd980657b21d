//! The worker slot of one thread. It shows the thread's run to the watchdog.
//!
//! Runs are numbered. A run *begins* when `begun` becomes its number, and is over when `ended` becomes its number. A
//! slot is busy while `begun` is ahead. Data of a run is either written before it begins (start, reasons, deadline,
//! record) or carries its number (overdue mark, token), so that data of one run is never attributed to the next:
//!
//! | written by | in this order |
//! |---|---|
//! | the slot's thread | start, reasons, deadline, record, `begun`; when the run is over, `ended` |
//! | the watchdog | `expired`, when the deadline has passed; then `overdue`, after the [allowance](super::ALLOWANCE) |
//! | the run, if it uses its token | the token and its number, under the lock |
//!
//! **Guarantees for readers.** All fields are stored with `Release` and read with `Acquire`. A reader first reads the
//! number of a run from `begun`, then the other data, then `ended`. If `ended` is below the number, these data
//! belong to that run: a later run changes them only after `ended` has reached the number. (`ended` needs no
//! order for that. Its order lets a reader that sees the end of a run see the run's effects.)
//!
//! **Costs.** A run writes two numbers. A run with a deadline writes two more, and uses an atomic addition for `begun`
//! instead of a store (see [`Watchdog`](super::start::Watchdog) for the reason). A run that uses its token takes the
//! lock for that, and at its end.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::ALLOWANCE;
use crate::base::cancel::CancellationToken;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};
use crate::base::time::Nanos;

/// The slot of one thread, and its current run.
#[derive(Debug)]
// Slots of two threads must not share a cache line. Processors fetch lines in pairs.
#[cfg_attr(not(loom), repr(align(128)))]
pub(crate) struct WorkerSlot {
    /// The name of the thread.
    pub(crate) name: String,
    /// The number of the last run that has begun; 0 before the first.
    begun: AtomicU64,
    /// The number of the last run that is over.
    ended: AtomicU64,
    /// The deadline of the last run that has begun, or of the next one.
    deadline: AtomicU64,
    /// The planned deadline of the next run. Never if the thread plans nothing. No later run has an earlier deadline,
    /// according to the plan.
    planned: AtomicU64,
    /// The queue's record of the run's key.
    record: AtomicU32,
    /// The start of the run, if recorded.
    since: AtomicU64,
    /// The reasons for the run as bits, if its start is recorded.
    reasons: AtomicU16,
    /// The number of the last run with a deadline that the watchdog has seen pass. Only the watchdog uses this.
    expired: AtomicU64,
    /// The number of the last overdue run: still active after the allowance.
    overdue: AtomicU64,
    /// Whether the current run has stored its token. Only the run and its thread use this.
    exposed: AtomicBool,
    /// The number and token of a run that uses its token. Removed when the run ends.
    token: Mutex<Option<(u64, CancellationToken)>>,
    /// Whether the thread has ended or has not been started.
    pub(super) left: AtomicBool,
}

thread_local! {
    /// The slot of the step that runs on this thread. In a simulation, steps nest, and this is the innermost one.
    static CURRENT: Cell<*const WorkerSlot> = const { Cell::new(ptr::null()) };
}

/// A step of a slot's task, until it is dropped.
pub(super) struct SlotStep {
    outer: *const WorkerSlot,
}

impl Drop for SlotStep {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}

/// A run, as seen by another thread.
#[derive(Clone, Debug)]
pub(crate) struct SeenRun {
    pub(crate) slot: Arc<WorkerSlot>,
    number: u64,
    /// The start of the run, if recorded.
    pub(crate) since: Nanos,
    pub(crate) deadline: Nanos,
    /// The reasons for the run as bits, if its start is recorded.
    pub(crate) reasons: u16,
    /// The queue's record of the run's key.
    pub(crate) record: u32,
}

impl SeenRun {
    /// Returns whether the run continues. If so, a key that was found by the run's record before this call belongs to
    /// the run.
    pub(crate) fn goes_on(&self) -> bool {
        !self.slot.is_over(self.number)
    }

    /// Returns the first run of a slot.
    #[cfg(all(test, loom))]
    pub(crate) fn first_of(slot: &Arc<WorkerSlot>) -> Self {
        Self { slot: Arc::clone(slot), number: 1, since: Nanos::ZERO, deadline: Nanos::NEVER, reasons: 0, record: 0 }
    }

    /// Returns the number and the record.
    #[cfg(all(test, loom))]
    pub(super) fn identity(&self) -> (u64, u32) {
        (self.number, self.record)
    }
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
            reasons: AtomicU16::new(0),
            expired: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
            exposed: AtomicBool::new(false),
            token: Mutex::new(None),
            left: AtomicBool::new(true),
        })
    }

    /// Begins a step of the slot's task on this thread.
    pub(super) fn begin_step(&self) -> SlotStep {
        SlotStep { outer: CURRENT.replace(self) }
    }

    /// Returns whether the caller is in a step of the slot's task.
    pub(crate) fn is_current(&self) -> bool {
        ptr::eq(CURRENT.get(), self)
    }

    /// Begins a run without a deadline, on a slot without a watchdog. Only the slot's own thread calls this,
    /// [`begin_until`](Self::begin_until) and [`end`](Self::end).
    #[inline]
    pub(super) fn begin(&self) {
        self.begun.store(self.begun.load(Relaxed) + 1, Release);
    }

    /// Records the start and the reasons of the next run.
    #[inline]
    pub(crate) fn starts_at(&self, time: Nanos, reasons: u16) {
        self.since.store(time.0, Release);
        self.reasons.store(reasons, Release);
    }

    /// Begins a run.
    ///
    /// A later call of [`deadline`](Self::deadline) sees this run. If the call came first, this thread sees everything
    /// that the watchdog did before it.
    #[inline]
    pub(super) fn begin_until(&self, deadline: Nanos, record: u32) {
        self.deadline.store(deadline.0, Release);
        self.record.store(record, Release);
        self.begun.fetch_add(1, AcqRel);
    }

    /// Announces the deadline of the next run, so that the watchdog sleeps until then and the run need not wake it. A
    /// run may still begin earlier, with an earlier deadline; then it wakes the watchdog. Only the slot's own thread
    /// calls this.
    pub(crate) fn plan(&self, deadline: Nanos) {
        self.planned.store(deadline.0, Release);
    }

    /// Ends the current run.
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

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Acquire)
    }

    /// Returns the time at which the watchdog must check this slot. Only the watchdog calls this.
    ///
    /// For an active run, that is its deadline, then the end of the allowance, then never once it was reported. For an
    /// idle slot, that is the [planned](Self::plan) deadline of the next run. This is the watchdog's part of the
    /// guarantee of [`begin_until`](Self::begin_until).
    pub(super) fn deadline(&self, now: Nanos) -> Nanos {
        // Adds zero, to be ordered with the additions of beginning runs: each side sees the other's last one.
        let run = self.begun.fetch_add(0, AcqRel);
        let deadline = Nanos(self.deadline.load(Acquire));
        if self.is_over(run) {
            // A past plan does not count: its run wakes the watchdog.
            Some(Nanos(self.planned.load(Acquire))).filter(|&planned| planned > now).unwrap_or(Nanos::NEVER)
        } else if self.overdue.load(Relaxed) == run {
            Nanos::NEVER
        } else if self.expired.load(Relaxed) == run {
            deadline.after(ALLOWANCE)
        } else {
            deadline
        }
    }

    /// Returns the current run, if any.
    pub(crate) fn look(self: &Arc<Self>) -> Option<SeenRun> {
        let number = self.begun.load(Acquire);
        let [since, deadline] = [&self.since, &self.deadline].map(|time| Nanos(time.load(Acquire)));
        let (record, reasons) = (self.record.load(Acquire), self.reasons.load(Acquire));
        (!self.is_over(number)).then(|| SeenRun { slot: Arc::clone(self), number, since, deadline, reasons, record })
    }

    /// Returns how many runs have begun.
    pub(crate) fn runs(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        // If that run is over now, the slot was idle for a moment.
        !self.is_over(self.begun.load(Acquire))
    }

    /// Returns whether the current run was reported as overdue.
    pub(crate) fn is_overdue(&self) -> bool {
        !self.is_over(self.overdue.load(Acquire))
    }

    /// Makes the token of the current run available to the watchdog. Only that run calls this.
    pub(crate) fn expose(&self, token: &CancellationToken) {
        let run = self.begun.load(Relaxed);
        *self.token.lock() = Some((run, token.clone()));
        self.exposed.store(true, Relaxed);
    }

    /// Marks the current run as expired if its deadline has passed. Returns its token, if it uses one, once for each
    /// run. Only the watchdog calls this.
    pub(super) fn expire(self: &Arc<Self>, now: Nanos) -> Option<CancellationToken> {
        let run = self.passes(Duration::ZERO, now, &self.expired)?;
        let token = self.token.lock();
        token.as_ref().filter(|(of, _)| *of == run.number).map(|(_, token)| token.clone())
    }

    /// Marks the current run as overdue if its deadline and the allowance have passed. Returns it once. Only the
    /// watchdog calls this.
    pub(super) fn overrun(self: &Arc<Self>, now: Nanos) -> Option<SeenRun> {
        self.passes(ALLOWANCE, now, &self.overdue)
    }

    /// Writes the number of the current run to `mark` if it is still active this long after its deadline.
    fn passes(self: &Arc<Self>, allowance: Duration, now: Nanos, mark: &AtomicU64) -> Option<SeenRun> {
        let run = self.look()?;
        let time = run.deadline.after(allowance);
        if time > now || time == Nanos::NEVER || mark.load(Relaxed) == run.number {
            return None;
        }
        mark.store(run.number, Release);
        Some(run)
    }

    /// Returns whether run number `run`, which has begun, is over.
    pub(super) fn is_over(&self, run: u64) -> bool {
        self.ended.load(Acquire) >= run
    }
}
