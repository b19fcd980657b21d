//! One thread's seat: what it is doing, for the watchdog to see. A run that uses none of this costs a few atomic writes.

use std::sync::Arc;

use crate::cancel::CancellationToken;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::time::Nanos;

/// What one thread is doing.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The name of its thread.
    pub(crate) name: String,
    /// When the run under way is overdue; never while there is none, or once that has been reported.
    deadline: AtomicU64,
    /// The number of the run under way or of the last one.
    run: AtomicU64,
    /// The queue's record of the key under way.
    record: AtomicU32,
    busy: AtomicBool,
    /// The number of the last run that was reported as overdue.
    overdue: AtomicU64,
    /// The token of the run under way, if it has asked for one.
    token: Mutex<Option<(u64, CancellationToken)>>,
}

impl Seat {
    pub(crate) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            deadline: AtomicU64::new(Nanos::NEVER.0),
            run: AtomicU64::new(0),
            record: AtomicU32::new(0),
            busy: AtomicBool::new(false),
            overdue: AtomicU64::new(0),
            token: Mutex::new(None),
        })
    }

    /// A run begins; only the seat's own thread calls this. Returns its number.
    pub(super) fn begin(&self, record: u32, deadline: Nanos) -> u64 {
        let run = self.run.load(SeqCst) + 1;
        self.run.store(run, SeqCst);
        self.record.store(record, SeqCst);
        self.busy.store(true, SeqCst);
        self.deadline.store(deadline.0, SeqCst);
        run
    }

    /// The run ends.
    pub(super) fn end(&self) {
        self.deadline.store(Nanos::NEVER.0, SeqCst);
        self.busy.store(false, SeqCst);
    }

    pub(super) fn deadline(&self) -> Nanos {
        Nanos(self.deadline.load(SeqCst))
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(SeqCst)
    }

    /// Whether the run under way has been reported as overdue.
    pub(crate) fn is_overdue(&self) -> bool {
        self.is_busy() && self.overdue.load(SeqCst) == self.run.load(SeqCst)
    }

    /// Lets the watchdog find the token of run number `run`.
    pub(crate) fn expose(&self, run: u64, token: &CancellationToken) {
        *self.token.lock() = Some((run, token.clone()));
    }

    pub(crate) fn hide(&self, run: u64) {
        let hidden = self.token.lock().take_if(|(of, _)| *of == run);
        // Outside the lock: it may be the last handle.
        drop(hidden);
    }

    /// Marks the run under way as overdue if it is. Returns its number and record, once for each run.
    pub(super) fn overrun(&self, now: Nanos) -> Option<(u64, u32)> {
        let deadline = self.deadline();
        if deadline > now || deadline == Nanos::NEVER {
            return None;
        }
        // A run that ended meanwhile took its deadline with it, and one that has begun meanwhile brought another one (or,
        // on a held clock, the same one, and is as overdue).
        self.deadline.compare_exchange(deadline.0, Nanos::NEVER.0, SeqCst, SeqCst).ok()?;
        let (run, record) = (self.run.load(SeqCst), self.record.load(SeqCst));
        self.overdue.store(run, SeqCst);
        (self.run.load(SeqCst) == run).then_some((run, record))
    }

    /// Whether run number `run` is still under way.
    pub(super) fn is_running(&self, run: u64) -> bool {
        self.is_busy() && self.run.load(SeqCst) == run
    }

    /// The token of run number `run`, if that run is under way and has asked for one.
    pub(super) fn token(&self, run: u64) -> Option<CancellationToken> {
        self.token.lock().as_ref().filter(|(of, _)| *of == run).map(|(_, token)| token.clone())
    }
}
