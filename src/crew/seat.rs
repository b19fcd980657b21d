//! One thread's seat: what it is doing, for the watchdog to see. A run costs it two short holds of a lock that nobody else
//! wants but the watchdog and who asks for metrics.

use std::sync::Arc;

use crate::cancel::CancellationToken;
use crate::sync::Mutex;
use crate::time::Nanos;

/// What one thread is doing.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The name of its thread.
    pub(crate) name: String,
    doing: Mutex<Doing>,
}

#[derive(Debug)]
struct Doing {
    /// The number of the run under way or of the last one.
    run: u64,
    busy: bool,
    /// The queue's record of the key under way.
    record: u32,
    /// When the run under way is overdue; never while there is none, or once that has been reported.
    deadline: Nanos,
    /// The run under way has been reported as overdue.
    overdue: bool,
    /// The token of the run under way, if it has asked for one.
    token: Option<CancellationToken>,
    /// The thread has ended.
    left: bool,
}

impl Seat {
    pub(crate) fn new(name: String) -> Arc<Self> {
        let doing =
            Doing { run: 0, busy: false, record: 0, deadline: Nanos::NEVER, overdue: false, token: None, left: false };
        Arc::new(Self { name, doing: Mutex::new(doing) })
    }

    /// A run begins; only the seat's own thread calls this. Returns its number.
    pub(super) fn begin(&self, record: u32, deadline: Nanos) -> u64 {
        let mut doing = self.doing.lock();
        doing.run += 1;
        doing.busy = true;
        doing.record = record;
        doing.deadline = deadline;
        doing.run
    }

    /// The run ends.
    pub(super) fn end(&self) {
        let token = {
            let mut doing = self.doing.lock();
            doing.busy = false;
            doing.deadline = Nanos::NEVER;
            doing.overdue = false;
            doing.token.take()
        };
        // Outside the lock: it may be the last handle.
        drop(token);
    }

    /// The thread ends.
    pub(super) fn leave(&self) {
        self.doing.lock().left = true;
    }

    pub(super) fn has_left(&self) -> bool {
        self.doing.lock().left
    }

    pub(super) fn deadline(&self) -> Nanos {
        self.doing.lock().deadline
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.doing.lock().busy
    }

    /// Whether the run under way has been reported as overdue.
    pub(crate) fn is_overdue(&self) -> bool {
        self.doing.lock().overdue
    }

    /// Lets the watchdog find the token of the run under way; only that run calls this.
    pub(crate) fn expose(&self, token: &CancellationToken) {
        self.doing.lock().token = Some(token.clone());
    }

    /// Marks the run under way as overdue if it is. Returns its number and record, once for each run.
    pub(super) fn overrun(&self, now: Nanos) -> Option<(u64, u32)> {
        let mut doing = self.doing.lock();
        if doing.deadline > now || doing.deadline == Nanos::NEVER {
            return None;
        }
        doing.deadline = Nanos::NEVER;
        doing.overdue = true;
        Some((doing.run, doing.record))
    }

    /// Whether run number `run` is still under way.
    pub(super) fn is_running(&self, run: u64) -> bool {
        let doing = self.doing.lock();
        doing.busy && doing.run == run
    }

    /// The token of run number `run`, if that run is under way and has asked for one.
    pub(super) fn token(&self, run: u64) -> Option<CancellationToken> {
        let doing = self.doing.lock();
        doing.token.as_ref().filter(|_| doing.run == run).cloned()
    }
}
