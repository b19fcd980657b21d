//! The handle of a group: stops and joins its threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ThreadGroup, WorkerSlot};
use crate::base::error::StillRunning;
use crate::base::running::{EndHook, RunPhase, RunStatus, Runnable};
use crate::base::thread::Joiner;
use crate::base::time::Rounded;

/// Stops and joins the threads of a group.
pub(crate) struct Handle {
    pub(crate) group: Arc<ThreadGroup>,
    /// The joiners of the slots in order, then of the watchdog.
    joiners: Vec<Joiner>,
    /// Wakes the group's threads, so that they check whether to stop.
    nudge: Box<dyn Fn() + Send + Sync>,
    grace: Duration,
    detached: bool,
    may_end: bool,
}

impl Handle {
    pub(crate) fn new(
        group: Arc<ThreadGroup>,
        joiners: Vec<Joiner>,
        nudge: Box<dyn Fn() + Send + Sync>,
        grace: Duration,
    ) -> Self {
        Self { group, joiners, nudge, grace, detached: false, may_end: false }
    }

    /// Allows the threads to end without a stop.
    pub(crate) fn that_may_end(mut self) -> Self {
        self.may_end = true;
        self
    }

    /// Adds threads to be joined.
    pub(crate) fn keep(&mut self, joiners: Vec<Joiner>) {
        self.joiners.extend(joiners);
    }

    pub(crate) fn stop(&self) {
        self.group.stop();
        (self.nudge)();
    }

    pub(crate) fn abort(&self) {
        self.stop();
        self.group.abort.cancel();
    }

    /// Joins all threads. On a thread of the group, joins only the threads of the other slots: the watchdog ends last.
    pub(crate) fn join(&mut self) {
        let mut joiners = std::mem::take(&mut self.joiners);
        let mut adopted = std::mem::take(&mut *self.group.adopted.lock());
        if joiners.iter().chain(&adopted).any(Joiner::is_current) {
            joiners.truncate(self.group.size);
        }
        joiners.append(&mut adopted);
        // The watchdog may start another thread until it ends.
        while !joiners.is_empty() {
            joiners.drain(..).for_each(Joiner::join);
            joiners.append(&mut self.group.adopted.lock());
        }
    }

    /// Blocks until every thread has ended, for at most `timeout`.
    pub(crate) fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        let group = &self.group;
        if !group.wait_until_empty(group.clock.nanos().after(timeout)) {
            let threads = group.threads();
            if !threads.is_empty() {
                return Err(StillRunning::new(threads));
            }
        }
        self.join();
        Ok(())
    }

    /// Stops, aborts after `grace`, and joins.
    pub(crate) fn shutdown(&mut self, grace: Duration) {
        self.stop();
        if self.join_timeout(grace).is_err() {
            let still_running = self.group.names(WorkerSlot::is_busy);
            if !still_running.is_empty() {
                let (field, name) = (self.group.kind.field(), self.group.name.as_str());
                let (grace, still_running) = (Rounded(grace), still_running.join(", "));
                log::warn!(
                    (field) = name, grace:%, still_running:%;
                    "{name}: aborting after the grace period of {grace}; still running: {still_running}"
                );
            }
            self.abort();
            self.join();
        }
    }

    pub(crate) fn detach(&mut self) {
        self.detached = true;
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.detached
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.detached && !self.joiners.is_empty() {
            self.shutdown(self.grace);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |of: fn(&WorkerSlot) -> bool| self.group.slots.iter().filter(|slot| of(slot)).count();
        f.debug_struct("Handle")
            .field("name", &self.group.name)
            .field("threads", &self.group.present.lock().threads)
            .field("busy", &count(WorkerSlot::is_busy))
            .field("overdue", &count(WorkerSlot::is_overdue))
            .field("stopping", &self.group.is_stopping())
            .finish_non_exhaustive()
    }
}

impl Runnable for Handle {
    fn stop(&self) {
        Handle::stop(self);
    }

    fn abort(&self) {
        Handle::abort(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        Handle::join_timeout(self, timeout)
    }

    fn join(&mut self) {
        Handle::join(self);
    }

    fn detach(&mut self) {
        self.detached = true;
    }

    fn status(&self) -> RunStatus {
        let threads = self.group.threads();
        let phase = RunPhase::of(self.group.is_stopping(), &threads);
        RunStatus::new(self.group.name.as_str(), phase, threads)
    }

    fn on_end(&self, hook: EndHook) {
        self.group.on_end(&hook);
    }

    fn may_end(&self) -> bool {
        self.may_end
    }

    fn kind(&self) -> &'static str {
        self.group.kind.field()
    }
}
