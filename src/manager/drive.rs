//! The course of a manager: running, stopping, aborting, and what is left.

use std::sync::Arc;

use super::component::Part;
use super::{Failure, Inner, ManagerPhase};
use crate::base::task::{Next, Task};
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};
use crate::run::error::{BoxError, Chain};

/// A part, with its name.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) part: Box<dyn Part>,
}

impl Member {
    pub(super) fn new(name: String, part: Box<dyn Part>) -> Self {
        Self { name, part }
    }

    fn stop(&self) {
        shielded("a component that stops", || self.part.stop());
    }

    /// The names of the threads that have not ended; none once it has.
    fn threads(&mut self) -> Vec<String> {
        let mut threads = Vec::new();
        let ended = || threads = self.part.try_join().map_or_else(|still| still.threads().to_vec(), |()| Vec::new());
        // What it was made of may be dropped here.
        shielded("a component that ends", ended);
        threads
    }

    fn has_ended(&mut self) -> bool {
        self.threads().is_empty()
    }

    fn end(self) {
        shielded("the drop of a component", || drop(self.part));
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
    /// All have been stopped. What has not ended at this time is aborted.
    Stopping(Nanos),
    /// What has not ended at this time is given up.
    Aborting(Nanos),
}

impl Driver {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, members: Vec::new(), course: Course::Running, led: false }
    }

    /// The names of the threads that have not ended, and of the components that are still being added.
    pub(super) fn still_running(&mut self) -> Vec<String> {
        let mut running: Vec<_> = self.members.iter_mut().flat_map(Member::threads).collect();
        running.extend_from_slice(&self.inner.state.lock().adding);
        running
    }

    /// Leaves what has not ended to itself.
    pub(super) fn detach(&mut self) {
        for member in self.members.drain(..) {
            shielded("a component that is left to itself", || member.part.detach());
        }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.inner.state.lock().adding.is_empty()
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
        // One that waits to lead has no thread yet.
        let ended = self.members.extract_if(.., |member| member.has_ended() && !member.part.is_waiting());
        for member in ended.collect::<Vec<_>>() {
            if !member.part.may_end() {
                self.inner.fail(&member.name, &Arc::new("it has ended without being asked to".into()));
            }
            {
                let mut state = self.inner.state.lock();
                state.names.remove(&member.name);
                state.watches.remove(&member.name);
                state.sources.remove(&member.name);
            }
            member.end();
        }
    }

    fn begin_to_stop(&mut self) {
        let inner = &*self.inner;
        let leads = {
            let mut state = inner.state.lock();
            state.phase = ManagerPhase::Stopping;
            state.leading || state.lost
        };
        if !leads {
            // Nothing of it goes on that must not overlap with the work of another leader.
            inner.resign.cancel();
        }
        let (manager, grace) = (inner.name.as_str(), Rounded(inner.grace));
        log::info!(manager, grace:%; "{manager}: stopping, within a grace period of {grace}");
        // What was added before this moment.
        self.take_over();
        // None takes work any more before the first one drops what it has, which is user code and may take its time.
        for member in self.members.iter().rev() {
            member.part.close();
        }
        self.course = Course::Stopping(self.inner.clock.nanos().after(self.inner.grace));
        // None waits for the end of another: each has the whole grace period for what it has begun.
        for member in self.members.iter().rev() {
            let (manager, component) = (self.inner.name.as_str(), member.name.as_str());
            log::debug!(manager, component; "{manager}: stopping component {component}");
            member.stop();
        }
    }

    /// Lets go of the components that have ended.
    fn let_go(&mut self) {
        for member in self.members.extract_if(.., Member::has_ended).collect::<Vec<_>>() {
            member.end();
        }
    }

    fn begin_to_abort(&mut self, now: Nanos) {
        let still_running = self.still_running().join(", ");
        let manager = self.inner.name.as_str();
        log::warn!(manager, still_running:%; "{manager}: aborting; still running: {still_running}");
        for member in self.members.iter().rev() {
            shielded("a component that is aborted", || member.part.abort());
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
                self.begin_to_stop();
            }
        }
        if self.course != Course::Running {
            self.let_go();
        }
        if let Course::Stopping(until) = self.course
            && !self.is_empty()
            && (now >= until || inner.is_to_abort())
        {
            self.begin_to_abort(now);
        }
        match self.course {
            Course::Running => Next::At(Nanos::NEVER),
            _ if self.is_empty() => Next::Finished,
            Course::Aborting(until) if now >= until => Next::Finished,
            Course::Stopping(until) | Course::Aborting(until) => Next::At(until),
        }
    }
}

impl Inner {
    /// Something cannot go on. The first one counts.
    pub(super) fn fail(&self, component: &str, error: &Arc<BoxError>) {
        let first = {
            let mut state = self.state.lock();
            let first = state.failure.is_none();
            if first {
                state.failure = Some(Failure { component: component.to_owned(), error: Arc::clone(error) });
            }
            first
        };
        // The log shows the error, which may panic.
        self.signal.set();
        let (manager, shown) = (self.name.as_str(), Chain(&***error));
        if first {
            log::error!(manager, component, error:% = shown; "{manager}: component {component} has failed, all components are stopped: {shown}");
        } else {
            log::warn!(manager, component, error:% = shown; "{manager}: component {component} has failed as well: {shown}");
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    pub(super) fn is_to_stop(&self) -> bool {
        self.stop.is_cancelled() || self.is_to_abort() || self.has_failed()
    }

    fn is_to_abort(&self) -> bool {
        self.abort.is_cancelled() || self.state.lock().lost
    }
}
