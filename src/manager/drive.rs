//! The driver of a manager: takes over components, stops them, and aborts those that do not end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::member::{Member, MemberBody, Removing};
use super::state::{ComponentFailure, ManagerInner, ManagerPhase};
use crate::base::task::{Next, Task};
use crate::base::time::{Nanos, Rounded};
use crate::run::error::{BoxError, Chain};
use crate::run::fence::Fence;

/// The task that drives a manager.
///
/// # Invariants
///
/// - A step asks only the components that it has heard, so its cost does not depend on the others. When everything is stopped, and
///   again when everything is aborted, each component is asked once.
pub(super) struct Driver {
    pub(super) inner: Arc<ManagerInner>,
    /// The components by number, that is, in the order of their starts.
    members: BTreeMap<u64, Member>,
    /// The ends of the grace periods of removals, with the numbers of the components.
    removal_ends: BTreeSet<(Nanos, u64)>,
    phase: DriverPhase,
    led: bool,
    /// Failures that are logged at the end of the step: the logger may block, and the other components are stopped first.
    unlogged: Vec<ComponentFailure>,
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
        Self {
            inner,
            members: BTreeMap::new(),
            removal_ends: BTreeSet::new(),
            phase: DriverPhase::Running,
            led: false,
            unlogged: Vec::new(),
        }
    }

    /// Returns the names of the unfinished threads, and of the components that are still being added.
    pub(super) fn still_running(&mut self) -> Vec<String> {
        let mut running: Vec<_> = self.members.values_mut().flat_map(Member::threads).collect();
        running.extend_from_slice(&self.inner.state.lock().adding);
        running
    }

    /// Detaches the components that have not ended.
    pub(super) fn detach(&mut self) {
        std::mem::take(&mut self.members).into_values().for_each(Member::detach);
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
    pub(super) fn take_over(&mut self) {
        let (started, leading, term) = {
            let mut state = self.inner.state.lock();
            let started = std::mem::take(&mut state.started);
            for member in &started {
                if let Some(entry) = state.components.get_mut(&member.name) {
                    entry.number = Some(member.number);
                }
            }
            (started, state.leading, state.term.clone())
        };
        let begins_to_lead = leading && !self.led;
        self.led |= leading;
        let mut leaders: Vec<_> = started.iter().map(|member| member.number).collect();
        self.members.extend(started.into_iter().map(|member| (member.number, member)));
        if begins_to_lead {
            leaders = self.members.keys().copied().collect();
        }
        if let Some(term) = term.filter(|_| self.led) {
            for number in leaders {
                self.lead(number, &term);
            }
        }
    }

    /// Lets a component lead. Starts a function that waited for leadership.
    fn lead(&mut self, number: u64, term: &Fence) {
        let Some(member) = self.members.get_mut(&number) else { return };
        let Some(start) = member.lead(term) else { return };
        let Some(pool) = self.inner.state.lock().pool.clone() else { return };
        match self.inner.start_one(&member.name, start, &pool) {
            Ok(running) => {
                member.body = MemberBody::Running(running);
                member.listen();
            }
            Err(error) => self.inner.fail(&member.name, &Arc::new(error.into())),
        }
    }

    /// Stops each component that a caller wants to remove. All callers that remove one component share its removal, and the shortest
    /// grace period counts.
    fn begin_removals(&mut self) {
        let removals = std::mem::take(&mut self.inner.state.lock().removals);
        for removal in removals {
            let number = match self.inner.state.lock().components.get(&removal.name) {
                Some(entry) => entry.number,
                None => continue, // It has ended by itself.
            };
            let Some(number) = number else {
                // It is still being started.
                self.inner.state.lock().removals.push(removal);
                continue;
            };
            let Some(member) = self.members.get_mut(&number) else { continue };
            if member.waits_to_lead() {
                let member = self.members.remove(&number);
                self.inner.forget(&removal.name);
                drop(member);
                continue;
            }
            // The stop of an earlier component runs user code, which may have taken long.
            let end = self.inner.clock.nanos().after(removal.grace);
            if let Removing::Until(until, removals) = &mut member.removing {
                self.removal_ends.remove(&(*until, number));
                *until = end.min(*until);
                self.removal_ends.insert((*until, number));
                removals.push(removal);
                continue;
            }
            let (manager, component) = (self.inner.name.as_str(), removal.name.as_str());
            log::info!(manager, component; "{manager}: removing component {component}");
            member.close();
            member.stop();
            self.removal_ends.insert((end, number));
            member.removing = Removing::Until(end, vec![removal]);
            self.inner.state.lock().heard.insert(number);
        }
    }

    /// Asks the components that were heard. Reports their failures, and drops those that have ended. While the manager runs, the
    /// end of a component that was not removed may be a failure.
    pub(super) fn reap(&mut self) {
        let heard = std::mem::take(&mut self.inner.state.lock().heard);
        for number in heard {
            let Some(member) = self.members.get_mut(&number) else { continue };
            // A component that waits to lead ends with the manager.
            let goes_on = member.waits_to_lead() && self.phase == DriverPhase::Running;
            let has_ended = !goes_on && member.threads().is_empty();
            // Asked after the end: a component may fail at its very end.
            if let Some(error) = member.take_failure() {
                self.unlogged.push(self.inner.record(&member.name, &error));
            }
            if !has_ended {
                continue;
            }
            let Some(member) = self.members.remove(&number) else { continue };
            match &member.removing {
                Removing::No if self.phase == DriverPhase::Running => {
                    if !member.has_failed && !member.may_end() {
                        let error = Arc::new("it ended unexpectedly".into());
                        self.unlogged.push(self.inner.record(&member.name, &error));
                    }
                    // The status still shows a controller, which has failed.
                    if !member.is_controller() {
                        self.inner.forget(&member.name);
                    }
                }
                Removing::Until(until, _) => {
                    self.removal_ends.remove(&(*until, number));
                    self.inner.forget(&member.name);
                }
                // The name of a component that was given up may belong to another one by now.
                Removing::No | Removing::GivenUp => {}
            }
        }
    }

    /// Aborts removed components after their grace period. Returns the end of the next grace period.
    fn abort_removed(&mut self, now: Nanos) -> Nanos {
        while let Some((until, number)) = self.removal_ends.first().copied() {
            if now < until {
                return until;
            }
            self.removal_ends.pop_first();
            let Some(member) = self.members.get_mut(&number) else { continue };
            member.abort();
            let threads = member.threads();
            self.inner.forget(&member.name);
            member.give_up_removals(&threads);
        }
        Nanos::NEVER
    }

    /// Asks every component in the next step.
    fn ask_all(&self) {
        self.inner.state.lock().heard.extend(self.members.keys());
        self.inner.signal.set();
    }

    /// Logs the failures that this step has recorded.
    fn log_failures(&mut self) {
        for failure in self.unlogged.drain(..) {
            self.inner.log_failure(&failure);
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
            // No work can overlap with another leader's, because this process does not lead.
            inner.resign.cancel();
        }
        // Takes over components from before the change of phase.
        self.take_over();
        // All components stop taking work first. A component's stop drops its queued work, which is user code and may be slow.
        for member in self.members.values().rev() {
            member.close();
        }
        self.phase = DriverPhase::Stopping(self.inner.clock.nanos().after(self.inner.grace));
        // Components do not wait for each other: each has the whole grace period.
        for member in self.members.values().rev() {
            member.stop();
        }
        self.ask_all();
        // The logger may block, so this comes after the stops.
        self.log_failures();
        let (manager, grace) = (self.inner.name.as_str(), Rounded(self.inner.grace));
        log::info!(manager, grace:%; "{manager}: stopping; the grace period is at most {grace}");
    }

    fn begin_to_abort(&mut self) {
        let still_running = self.still_running().join(", ");
        for member in self.members.values().rev() {
            member.abort();
        }
        // The stops and aborts before this run user code, which may have taken long.
        self.phase = DriverPhase::Aborting(self.inner.clock.nanos().after(self.inner.abort_grace));
        self.ask_all();
        // The logger may block, so this comes after the aborts.
        let manager = self.inner.name.as_str();
        log::warn!(manager, still_running:%; "{manager}: aborting; still running: {still_running}");
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
            self.reap();
        }
        // A stop of the manager does not prolong the grace period of a removal.
        let next = self.abort_removed(now);
        if let DriverPhase::Stopping(until) = self.phase
            && !self.is_empty()
            && (now >= until || inner.is_to_abort())
        {
            self.begin_to_abort();
        }
        self.log_failures();
        match self.phase {
            DriverPhase::Running => Next::At(next),
            _ if self.is_empty() => Next::Finished,
            DriverPhase::Aborting(until) if now >= until => Next::Finished,
            DriverPhase::Stopping(until) | DriverPhase::Aborting(until) => Next::At(until.min(next)),
        }
    }
}

impl ManagerInner {
    /// Records and logs a failure of a component. The first failure stops the manager.
    pub(super) fn fail(&self, component: &str, error: &Arc<BoxError>) {
        // Records it first, because formatting the error for the log may panic, and the logger may block.
        let failure = self.record(component, error);
        self.log_failure(&failure);
    }

    fn record(&self, component: &str, error: &Arc<BoxError>) -> ComponentFailure {
        let failure = ComponentFailure { component: component.to_owned(), error: Arc::clone(error) };
        self.state.lock().failure.get_or_insert_with(|| failure.clone());
        self.signal.set();
        failure
    }

    fn log_failure(&self, ComponentFailure { component, error }: &ComponentFailure) {
        let is_first = self.state.lock().failure.as_ref().is_some_and(|first| Arc::ptr_eq(&first.error, error));
        let (manager, component, shown) = (self.name.as_str(), component.as_str(), Chain(&***error));
        if is_first {
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
