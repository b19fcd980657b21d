//! The handle of a group: stops and joins its threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::ThreadGroup;
use crate::base::error::{BoxError, StillRunning};
use crate::base::running::{EndHook, RunPhase, RunStatus, Runnable};
use crate::base::thread::Joiner;

/// Stops and joins the threads of a group. A [`Running`](crate::Running) holds it and ends the group when it is dropped.
///
/// The module [`rt`](crate::rt) has an example.
pub struct Handle {
    pub(crate) group: Arc<ThreadGroup>,
    /// The joiners of the slots in order, then of the watchdog.
    joiners: Vec<Joiner>,
    /// Wakes the group's threads, so that they check whether to stop.
    wake: Box<dyn Fn() + Send + Sync>,
    may_end: bool,
}

impl Handle {
    /// Creates the handle of a group. `wake` wakes its threads, so that they check whether to stop.
    #[must_use]
    pub fn new(group: Arc<ThreadGroup>, joiners: Vec<Joiner>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { group, joiners, wake: Box::new(wake), may_end: false }
    }

    /// Allows the threads to end without a stop.
    #[must_use]
    pub fn that_may_end(mut self) -> Self {
        self.may_end = true;
        self
    }

    /// Returns whether the caller runs on one of the initial threads.
    pub(crate) fn is_current(&self) -> bool {
        self.joiners.iter().any(Joiner::is_current)
    }

    /// Adds threads to be joined.
    pub(crate) fn keep(&mut self, joiners: Vec<Joiner>) {
        self.joiners.extend(joiners);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.group).finish()
    }
}

impl Runnable for Handle {
    fn stop(&self) {
        self.group.stop();
        (self.wake)();
    }

    /// Lets pollers and workers begin no more work. Wakes no thread.
    fn close(&self) {
        self.group.close();
    }

    fn abort(&self) {
        self.stop();
        self.group.abort.cancel();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
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

    /// Joins all threads. On a thread of the group, joins only the threads of the other slots: the watchdog ends last.
    fn join(&mut self) {
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

    /// Does nothing: the threads outlive this handle.
    fn detach(&mut self) {}

    fn status(&self) -> RunStatus {
        let threads = self.group.threads();
        let phase = RunPhase::of(self.group.is_stopping(), &threads);
        RunStatus::new(self.group.name.as_str(), phase, threads)
    }

    fn on_end(&self, hook: EndHook) {
        self.group.on_end(&hook);
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.group.end_hooks.failure()
    }

    fn may_end(&self) -> bool {
        self.may_end
    }

    fn kind(&self) -> &'static str {
        self.group.kind.field()
    }
}
