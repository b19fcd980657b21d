//! Ends watches at their timeouts, with one thread for all of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::atomic::{AtomicBool, Ordering};
use homeostat::base::{CancellationToken, Clock, ThreadOptions};
use homeostat::rt::{Nanos, Next, Task, TaskThread, TaskWaker};

/// Cancels tokens at their deadlines. The thread starts with the first deadline.
pub(super) struct WatchDeadlines {
    clock: Clock,
    thread: TaskThread,
}

/// A deadline. Dropping it removes the deadline.
pub(super) struct WatchDeadline {
    over: Arc<AtomicBool>,
    waker: TaskWaker,
}

struct DeadlineTask {
    at: Nanos,
    stop: CancellationToken,
    /// Whether the watch has ended.
    over: Arc<AtomicBool>,
}

impl WatchDeadlines {
    pub(super) fn new(clock: Clock) -> Self {
        let thread = TaskThread::new("serve-deadlines".to_owned(), ThreadOptions::new(), clock.clone());
        Self { clock, thread }
    }

    /// Cancels a token after this time, unless the returned deadline is dropped first.
    pub(super) fn cancel_after(&self, timeout: Duration, stop: &CancellationToken) -> io::Result<WatchDeadline> {
        let (over, waker) = (Arc::new(AtomicBool::new(false)), self.thread.waker());
        let at = self.clock.nanos().after(timeout);
        let joiner = waker.add("deadline", DeadlineTask { at, stop: stop.clone(), over: Arc::clone(&over) })?;
        drop(joiner);
        Ok(WatchDeadline { over, waker })
    }
}

impl Drop for WatchDeadline {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.waker.set();
    }
}

impl Task for DeadlineTask {
    fn step(&mut self, now: Nanos) -> Next {
        if self.over.load(Ordering::Acquire) {
            return Next::Finished;
        }
        if now < self.at {
            return Next::At(self.at);
        }
        self.stop.cancel();
        Next::Finished
    }
}
