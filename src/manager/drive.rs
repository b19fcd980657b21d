//! The driver of a manager: takes over components, stops them, and aborts those that do not end.

use std::sync::Arc;

use super::member::{Member, MemberBody, Removing};
use super::removal::Removal;
use super::state::{ComponentFailure, ManagerInner, ManagerPhase};
use crate::base::running::EndHook;
use crate::base::task::{Next, Task};
use crate::base::time::{Nanos, Rounded};
use crate::run::error::{BoxError, Chain};
use crate::run::fence::Fence;

/// The task that drives a manager.
pub(super) struct Driver {
    pub(super) inner: Arc<ManagerInner>,
    /// The components, in the order of their starts.
    pub(super) members: Vec<Member>,
    phase: DriverPhase,
    led: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverPhase {
    Running,
    /// All components have been stopped. At this time, the remaining ones are aborted.
    Stopping(Nanos),
    /// All remaining components have been aborted. At this time, they are given up.
    Aborting(Nanos),
}

impl Driver {
    pub(super) fn new(inner: Arc<ManagerInner>) -> Self {
        Self { inner, members: Vec::new(), phase: DriverPhase::Running, led: false }
    }

    /// Returns the names of the unfinished threads, and of the components that are still being added.
    pub(super) fn still_running(&mut self) -> Vec<String> {
        let mut running: Vec<_> = self.members.iter_mut().flat_map(Member::threads).collect();
        running.extend_from_slice(&self.inner.state.lock().adding);
        running
    }

    /// Detaches the components that have not ended.
    pub(super) fn detach(&mut self) {
        self.members.drain(..).for_each(Member::detach);
        let (removals, adding) = {
            let mut state = self.inner.state.lock();
            (std::mem::take(&mut state.removals), state.adding.clone())
        };
        for removal in removals {
            if adding.contains(&removal.name) {
                let name = removal.name.clone();
                removal.give_up(vec![name]);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.inner.state.lock().adding.is_empty()
    }

    /// Takes over newly started components. Lets them lead if this process leads.
    fn take_over(&mut self) {
        let (started, leading, term) = {
            let mut state = self.inner.state.lock();
            (std::mem::take(&mut state.started), state.leading, state.term.clone())
        };
        let ended = self.inner.ended();
        let begins_to_lead = leading && !self.led;
        self.led |= leading;
        let first_new = self.members.len();
        for member in started {
            member.on_end(&ended);
            self.members.push(member);
        }
        let first = if begins_to_lead { 0 } else { first_new };
        if let Some(term) = term.filter(|_| self.led) {
            for number in first..self.members.len() {
                self.lead(number, &term, &ended);
            }
        }
    }

    /// Lets a component lead. Starts a function that waited for leadership.
    fn lead(&mut self, number: usize, term: &Fence, ended: &EndHook) {
        let member = &mut self.members[number];
        let Some(start) = member.lead(term) else { return };
        let Some(pool) = self.inner.state.lock().pool.clone() else { return };
        match self.inner.start_one(&member.name, start, &pool) {
            Ok(running) => {
                member.body = MemberBody::Running(running);
                member.on_end(ended);
            }
            Err(error) => self.inner.fail(&member.name, &Arc::new(error.into())),
        }
    }

    /// Stops each component that a caller wants to remove. A removal that goes on also answers later callers, and the shortest grace
    /// period counts.
    fn begin_removals(&mut self) {
        let removals = std::mem::take(&mut self.inner.state.lock().removals);
        for removal in removals {
            let of_name =
                |member: &Member| member.name == removal.name && !matches!(member.removing, Removing::GivenUp);
            let Some(number) = self.members.iter().position(of_name) else {
                self.retry_later(removal);
                continue;
            };
            if self.members[number].waits_to_lead() {
                let member = self.members.remove(number);
                self.inner.forget(&removal.name);
                drop(member);
                continue;
            }
            // The stop of an earlier component runs user code, which may have taken long.
            let (member, end) = (&mut self.members[number], self.inner.clock.nanos().after(removal.grace));
            if let Removing::Until(until, removals) = &mut member.removing {
                *until = end.min(*until);
                removals.push(removal);
                continue;
            }
            let (manager, component) = (self.inner.name.as_str(), removal.name.as_str());
            log::info!(manager, component; "{manager}: removing component {component}");
            member.close();
            member.stop();
            member.removing = Removing::Until(end, vec![removal]);
        }
    }

    /// Keeps the removal of a component that is still being started. Otherwise the component has ended by itself.
    fn retry_later(&self, removal: Removal) {
        let mut state = self.inner.state.lock();
        if state.names.contains(&removal.name) {
            state.removals.push(removal);
        } else {
            drop(state);
            drop(removal);
        }
    }

    /// Drops ended components. The end of a component that was not removed may be a failure.
    fn reap(&mut self) {
        let ended = self.members.extract_if(.., |member| !member.waits_to_lead() && member.has_ended());
        for member in ended.collect::<Vec<_>>() {
            match &member.removing {
                Removing::No => {
                    if !member.may_end() {
                        self.inner.fail(&member.name, &Arc::new("it has ended without being asked to".into()));
                    }
                    let mut state = self.inner.state.lock();
                    state.names.remove(&member.name);
                    state.watches.remove(&member.name);
                    state.sources.remove(&member.name);
                }
                Removing::Until(..) => self.inner.forget(&member.name),
                Removing::GivenUp => {}
            }
            drop(member);
        }
    }

    /// Aborts removed components after their grace period. Returns the end of the next grace period.
    fn abort_removed(&mut self, now: Nanos) -> Nanos {
        let mut next = Nanos::NEVER;
        for member in &mut self.members {
            match member.removing {
                Removing::Until(until, _) if now >= until => {
                    member.abort();
                    let threads = member.threads();
                    self.inner.forget(&member.name);
                    member.give_up_removals(&threads);
                }
                Removing::Until(until, _) => next = next.min(until),
                _ => {}
            }
        }
        next
    }

    fn begin_to_stop(&mut self) {
        let inner = &*self.inner;
        let leads = {
            let mut state = inner.state.lock();
            state.phase = ManagerPhase::Stopping;
            state.leading || state.lost
        };
        if !leads {
            // No work can overlap with another leader's, because this process does not lead.
            inner.resign.cancel();
        }
        let (manager, grace) = (inner.name.as_str(), Rounded(inner.grace));
        log::info!(manager, grace:%; "{manager}: stopping, within a grace period of {grace}");
        // Takes over components from before the change of phase.
        self.take_over();
        // All components stop taking work first. A component's stop drops its queued work, which is user code and may be slow.
        for member in self.members.iter().rev() {
            member.close();
        }
        self.phase = DriverPhase::Stopping(self.inner.clock.nanos().after(self.inner.grace));
        // Components do not wait for each other: each has the whole grace period.
        for member in self.members.iter().rev() {
            let (manager, component) = (self.inner.name.as_str(), member.name.as_str());
            log::debug!(manager, component; "{manager}: stopping component {component}");
            member.stop();
        }
    }

    /// Drops the components that have ended.
    fn let_go(&mut self) {
        self.members.retain_mut(|member| !member.has_ended());
    }

    fn begin_to_abort(&mut self) {
        let still_running = self.still_running().join(", ");
        let manager = self.inner.name.as_str();
        log::warn!(manager, still_running:%; "{manager}: aborting; still running: {still_running}");
        for member in self.members.iter().rev() {
            member.abort();
        }
        // The stops and aborts before this run user code, which may have taken long.
        self.phase = DriverPhase::Aborting(self.inner.clock.nanos().after(self.inner.abort_grace));
    }
}

impl Task for Driver {
    fn step(&mut self, now: Nanos) -> Next {
        let inner = Arc::clone(&self.inner);
        if self.phase == DriverPhase::Running {
            self.take_over();
            self.begin_removals();
            self.reap();
            if inner.is_to_stop() {
                self.begin_to_stop();
            }
        }
        if self.phase != DriverPhase::Running {
            // Removals from before the change of phase, and of components that were still being added then.
            self.begin_removals();
            self.let_go();
        }
        // A stop of the manager does not prolong the grace period of a removal.
        let next = self.abort_removed(now);
        if let DriverPhase::Stopping(until) = self.phase
            && !self.is_empty()
            && (now >= until || inner.is_to_abort())
        {
            self.begin_to_abort();
        }
        match self.phase {
            DriverPhase::Running => Next::At(next),
            _ if self.is_empty() => Next::Finished,
            DriverPhase::Aborting(until) if now >= until => Next::Finished,
            DriverPhase::Stopping(until) | DriverPhase::Aborting(until) => Next::At(until.min(next)),
        }
    }
}

impl ManagerInner {
    /// Records a failure of a component. The first failure stops the manager.
    pub(super) fn fail(&self, component: &str, error: &Arc<BoxError>) {
        let first = {
            let mut state = self.state.lock();
            let first = state.failure.is_none();
            if first {
                state.failure = Some(ComponentFailure { component: component.to_owned(), error: Arc::clone(error) });
            }
            first
        };
        // Sets the event first, because formatting the error for the log may panic.
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
