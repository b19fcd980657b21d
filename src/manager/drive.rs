//! The course of a manager: running, stopping in reverse, aborting, and what is left.

use std::sync::Arc;

use super::unit::Part;
use super::{Failure, Inner, Phase};
use crate::reconcile::error::BoxError;
use crate::time::Nanos;
use crate::wait::{Next, Task};

/// A part, with its name.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) part: Box<dyn Part>,
    stopped: bool,
}

impl Member {
    pub(super) fn new(name: String, part: Box<dyn Part>) -> Self {
        Self { name, part, stopped: false }
    }
}

/// What the thread that waits for a manager does.
pub(super) struct Driver {
    pub(super) inner: Arc<Inner>,
    /// In the order in which they were started.
    pub(super) members: Vec<Member>,
    course: Course,
    led: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Running,
    /// One after the other is stopped; all are aborted then.
    Stopping(Nanos),
    /// What has not ended then is given up.
    Aborting(Nanos),
}

impl Driver {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, members: Vec::new(), course: Course::Running, led: false }
    }

    /// The names of the threads that have not ended.
    pub(super) fn still_running(&mut self) -> Vec<String> {
        let running = self.members.iter_mut().filter_map(|member| member.part.try_join().err());
        running.flat_map(|still| still.threads().to_vec()).collect()
    }

    /// Takes over what has been started meanwhile, and tells it who leads.
    fn take_over(&mut self) {
        let (started, leading) = {
            let mut state = self.inner.state.lock();
            (std::mem::take(&mut state.started), state.leading)
        };
        let ended = self.inner.ended();
        for mut member in started {
            member.part.on_end(&ended);
            if leading && self.led {
                member.part.lead();
            }
            self.members.push(member);
        }
        if leading && !self.led {
            self.led = true;
            for member in &mut self.members {
                member.part.lead();
            }
        }
    }

    /// Lets go of parts that have ended by themselves.
    fn reap(&mut self) {
        let inner = &self.inner;
        self.members.retain_mut(|member| {
            if member.part.try_join().is_err() {
                return true;
            }
            // One that waits to lead has no thread yet.
            if member.part.is_waiting() {
                return true;
            }
            if !member.part.may_end() {
                inner.fail(&member.name, &Arc::new("it has ended without being asked to".into()));
            }
            inner.state.lock().names.remove(&member.name);
            false
        });
    }

    fn begin_to_stop(&mut self, now: Nanos) {
        let inner = &*self.inner;
        inner.state.lock().phase = Phase::Stopping;
        log::info!(manager = inner.name.as_str(), grace:? = inner.grace; "stopping");
        self.course = Course::Stopping(now.after(inner.grace));
        // What was being added at this moment.
        self.take_over();
    }

    /// Stops the last, then the one before it, and so on, as far as they have ended.
    fn stop_in_reverse(&mut self) {
        while let Some(member) = self.members.last_mut() {
            if !std::mem::replace(&mut member.stopped, true) {
                log::debug!(manager = self.inner.name.as_str(), unit = member.name.as_str(); "stopping a unit");
                member.part.stop();
            }
            if member.part.try_join().is_err() {
                return;
            }
            self.members.pop();
        }
    }

    fn begin_to_abort(&mut self, now: Nanos) {
        let threads = self.still_running();
        log::warn!(manager = self.inner.name.as_str(), threads:?; "aborting");
        for member in self.members.iter().rev() {
            member.part.abort();
        }
        self.course = Course::Aborting(now.after(self.inner.abort_grace));
    }
}

impl Task for Driver {
    fn step(&mut self, now: Nanos) -> Next {
        let inner = Arc::clone(&self.inner);
        if self.course == Course::Running {
            self.take_over();
            self.reap();
            if inner.is_to_stop() {
                self.begin_to_stop(now);
            }
        }
        if let Course::Stopping(until) = self.course {
            self.stop_in_reverse();
            if !self.members.is_empty() && (now >= until || inner.is_to_abort()) {
                self.begin_to_abort(now);
            }
        }
        match self.course {
            Course::Running => Next::At(Nanos::NEVER),
            _ if self.members.is_empty() => Next::Finished,
            Course::Stopping(until) => Next::At(until),
            Course::Aborting(until) => {
                self.members.retain_mut(|member| member.part.try_join().is_err());
                if self.members.is_empty() || now >= until { Next::Finished } else { Next::At(until) }
            }
        }
    }
}

impl Inner {
    /// Something cannot go on. The first one counts.
    pub(super) fn fail(&self, unit: &str, error: &Arc<BoxError>) {
        let first = {
            let mut state = self.state.lock();
            let first = state.failure.is_none();
            if first {
                state.failure = Some(Failure { unit: unit.to_owned(), error: Arc::clone(error) });
            }
            first
        };
        if first {
            log::error!(manager = self.name.as_str(), unit, error:% = error; "a unit has failed; all are stopped");
        } else {
            log::warn!(manager = self.name.as_str(), unit, error:% = error; "a further unit has failed");
        }
        self.signal.set();
    }

    fn is_to_stop(&self) -> bool {
        self.stop.is_cancelled() || self.is_to_abort() || self.state.lock().failure.is_some()
    }

    fn is_to_abort(&self) -> bool {
        self.abort.is_cancelled() || self.state.lock().lost
    }
}
