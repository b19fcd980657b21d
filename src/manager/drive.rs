//! The driver of a manager: starts components, stops them, aborts those that do not end, and ends the rest.

use std::sync::Arc;
use std::time::Duration;

use super::component::ComponentStart;
use super::state::{ComponentFailure, HOOK, ManagerInner, ManagerPhase, ManagerState, Member, Settings};
use crate::base::cancel::OnCancel;
use crate::base::end::EndPart;
use crate::base::error::{EndError, StartError};
use crate::base::running::{Runnable, Running, RunningPhase};
use crate::base::spawn::run;
use crate::base::task::{Next, Task};
use crate::base::text::one_line;
use crate::base::thread::{shielded, unless_it_panics};
use crate::base::time::{Nanos, Rounded};
use crate::controller::ActiveRun;
use crate::run::error::{BoxError, Chain};
use crate::run::fence::Fence;

/// The task that drives a manager, from its start to its end.
///
/// # Invariants
///
/// - A step asks only the components that it has heard, so its cost does not depend on the others. When everything is
///   stopped, and again when everything is aborted, each component is asked once.
pub(super) struct Driver {
    inner: Arc<ManagerInner>,
    phase: DriverPhase,
    /// Whether the components know that this process leads.
    led: bool,
    elector: Option<Running<()>>,
    /// Failures that are logged at the end of the step: the logger may block, and the other components are stopped
    /// first.
    unlogged: Vec<ComponentFailure>,
    /// Wakes the driver when the manager is stopped or aborted.
    _stops: [OnCancel; 2],
    /// Dropped last: the manager has ended then.
    _part: EndPart,
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
    /// Begins the only run of a manager. Fails if it has begun before.
    pub(super) fn begin(inner: &Arc<ManagerInner>) -> Result<Self, EndError> {
        let components = {
            let mut state = inner.state.lock();
            if state.phase != ManagerPhase::Idle {
                return Err(inner.not_idle());
            }
            state.phase = ManagerPhase::Starting;
            state.alive.len()
        };
        let manager = inner.settings.name.as_str();
        log::info!(manager, components; "{manager}: the manager starts, components: {components}");
        Ok(Self {
            phase: DriverPhase::Running,
            led: false,
            elector: None,
            unlogged: Vec::new(),
            _stops: [&inner.stop, &inner.settings.abort].map(|token| {
                let signal = Arc::clone(&inner.signal);
                token.on_cancel(move || signal.set())
            }),
            _part: inner.end.part(),
            inner: Arc::clone(inner),
        })
    }

    /// Starts everything. On an error, everything has ended again.
    pub(super) fn start(mut self) -> Result<Self, EndError> {
        let inner = Arc::clone(&self.inner);
        match inner.settings.pool.clone().start() {
            Ok(pool) => {
                inner.state.lock().pool = Some(Arc::new(pool));
                self.start_components();
            }
            Err(error) => inner.fail(&inner.settings.name, error),
        }
        if !inner.is_to_stop() {
            match inner.elect() {
                Ok(elector) => self.elector = elector,
                Err(error) => inner.fail("elector", error),
            }
        }
        if inner.has_failed() {
            self.drive()?;
            return Err(inner.not_idle());
        }
        Ok(self)
    }

    /// Starts the components in order, until all have started or the manager stops.
    fn start_components(&mut self) {
        let inner = Arc::clone(&self.inner);
        let mut last = 0;
        loop {
            let goes_on = !inner.is_to_stop();
            let member = {
                let mut state = inner.state.lock();
                let next = state.alive.iter().find(|member| goes_on && member.number > last).cloned();
                if next.is_none() {
                    // The remaining components are not started.
                    state.phase = if goes_on { ManagerPhase::Running } else { ManagerPhase::Stopping };
                }
                next
            };
            let Some(member) = member else { return };
            last = member.number;
            if !inner.waits_to_lead(&member.facts) {
                let start = member.take_start();
                self.start_member(&member, start);
            }
            self.reap();
        }
    }

    /// Starts a component that has waited for it.
    fn start_member(&self, member: &Arc<Member>, start: Option<ComponentStart>) {
        let pool = self.inner.state.lock().pool.clone();
        let (Some(start), Some(pool)) = (start, pool) else { return };
        if let Err(error) = self.inner.start_member(member, start, pool) {
            self.inner.retire(member);
            self.inner.fail(&member.facts.name, error);
        }
    }

    /// Drives the manager on this thread, to its end.
    pub(super) fn drive(mut self) -> Result<(), EndError> {
        let inner = Arc::clone(&self.inner);
        run(&mut self, &inner.signal);
        drop(self);
        inner.outcome()
    }

    /// Returns the components that have not ended, in the order of their starts.
    fn alive(&self) -> Vec<Arc<Member>> {
        self.inner.state.lock().alive.clone()
    }

    fn is_empty(&self) -> bool {
        self.inner.state.lock().alive.is_empty()
    }

    /// Returns the names of the unfinished threads, and of the components that are still being started.
    fn still_running(&self) -> Vec<String> {
        self.alive().iter().flat_map(|member| member.threads()).collect()
    }

    /// Asks the components that were heard, and lets them lead if this process leads. Reports their failures, and drops
    /// those that have ended. While the manager runs, the end of a component that was not removed may be a failure.
    fn reap(&mut self) {
        let inner = Arc::clone(&self.inner);
        let is_running = self.phase == DriverPhase::Running;
        let (heard, term) = {
            let mut state = inner.state.lock();
            let mut heard = std::mem::take(&mut state.heard);
            heard.sort_unstable();
            heard.dedup();
            let place = |number| state.alive.binary_search_by_key(number, |member| member.number).ok();
            let heard: Vec<_> = heard.iter().filter_map(place).map(|place| Arc::clone(&state.alive[place])).collect();
            (heard, state.term.clone())
        };
        if let Some(term) = term.filter(|term| is_running && term.lasts()) {
            if !std::mem::replace(&mut self.led, true) {
                self.alive().iter().for_each(|member| self.lead(member, &term));
            }
            for member in &heard {
                self.lead(member, &term);
            }
        }
        for member in heard {
            let Some((has_ended, failure)) = member.ask(is_running) else { continue };
            let name = &member.facts.name;
            if let Some(error) = failure {
                self.unlogged.push(inner.record(name, error));
            }
            if !has_ended {
                continue;
            }
            if is_running {
                if member.ends_unexpectedly() {
                    self.unlogged.push(inner.record(name, Arc::new("it ended unexpectedly".into())));
                }
                // The status still shows a controller, which has failed.
                if member.facts.controller.is_none() {
                    inner.free_name(&member);
                }
            }
            inner.retire(&member);
        }
    }

    /// Lets a component lead. Starts a function that waited for leadership.
    fn lead(&self, member: &Arc<Member>, term: &Fence) {
        let start = member.lead(term);
        self.start_member(member, start);
    }

    /// Asks every component in the next step.
    fn ask_all(&self) {
        {
            let mut state = self.inner.state.lock();
            let ManagerState { heard, alive, .. } = &mut *state;
            *heard = alive.iter().map(|member| member.number).collect();
        }
        self.inner.signal.set();
    }

    /// Logs the failures that this step has recorded.
    fn log_failures(&mut self) {
        for failure in self.unlogged.drain(..) {
            self.inner.log_failure(&failure);
        }
    }

    fn begin_to_stop(&mut self) {
        let inner = Arc::clone(&self.inner);
        let has_led = {
            let mut state = inner.state.lock();
            state.phase = ManagerPhase::Stopping;
            state.term.is_some()
        };
        if !has_led {
            // No work can overlap with another leader's, because this process has not led.
            self.elector.iter().for_each(Running::stop);
        }
        let alive = self.alive();
        // All components stop taking work first. A component's stop drops its queued work, which is user code and may
        // be slow.
        alive.iter().rev().for_each(|member| member.call(Runnable::close));
        let grace = inner.settings.grace;
        self.phase = DriverPhase::Stopping(inner.clock.nanos().after(grace));
        // Components do not wait for each other: each has the whole grace period.
        alive.iter().rev().for_each(|member| member.call(Runnable::stop));
        self.ask_all();
        // The logger may block, so this comes after the stops.
        self.log_failures();
        let (manager, grace) = (inner.settings.name.as_str(), Rounded(grace));
        log::info!(manager, grace:%; "{manager}: stopping; aborts after {grace}, or earlier if its caller does");
    }

    fn begin_to_abort(&mut self) {
        let still_running = self.still_running().join(", ");
        self.alive().iter().rev().for_each(|member| member.call(Runnable::abort));
        // The stops and aborts before this run user code, which may have taken long.
        self.phase = DriverPhase::Aborting(self.inner.clock.nanos().after(self.inner.settings.abort_grace));
        self.ask_all();
        // The logger may block, so this comes after the aborts.
        let manager = self.inner.settings.name.as_str();
        log::warn!(manager, still_running:%; "{manager}: aborting; still running: {still_running}");
    }

    /// Cleans up after the components have ended or been given up. Returns the outcome.
    fn end(&mut self) -> Result<(), EndError> {
        let inner = Arc::clone(&self.inner);
        let mut still_running = self.still_running();
        let given_up = std::mem::take(&mut inner.state.lock().alive);
        for member in given_up {
            let status = member.facts.controller.as_ref().map(|controller| controller.status());
            status.into_iter().flat_map(|status| status.running).for_each(|run| log_run(&member.facts.name, &run));
            member.detach();
        }
        self.end_pool(&mut still_running);
        let has_lost_term = inner.has_lost_term();
        self.end_elector(&mut still_running);
        if has_lost_term && !inner.has_failed() {
            // The elector's thread hangs, so it cannot report the cause.
            inner.fail("elector", "the leadership is lost: its check, or a callback of its term, does not return");
        }
        let (failure, hooks) = {
            let mut state = inner.state.lock();
            state.phase = ManagerPhase::Ended;
            (state.failure.clone(), std::mem::take(&mut state.at_end))
        };
        for hook in hooks.into_iter().rev() {
            shielded(HOOK, hook);
        }
        let (manager, names) = (inner.settings.name.as_str(), still_running.join(", "));
        if still_running.is_empty() {
            log::info!(manager; "{manager}: the manager has ended");
        } else {
            log::warn!(manager, still_running:% = names; "{manager}: the manager gives up; still running: {names}");
        }
        EndError::unless_well(failure, still_running)
    }

    /// Ends the pool's threads, except those that are still in user code.
    fn end_pool(&self, still_running: &mut Vec<String>) {
        let Some(pool) = self.inner.state.lock().pool.take() else { return };
        let mut pool = match Arc::try_unwrap(pool) {
            Ok(pool) => pool,
            // A caller of `add` still starts its component, holds the pool, and ends it.
            Err(shared) => return shared.stop(),
        };
        let timeout = if still_running.is_empty() { self.inner.settings.abort_grace } else { Duration::ZERO };
        pool.stop();
        if pool.join_timeout(timeout).is_err() {
            let hanging = pool.hanging();
            if still_running.is_empty() && hanging.is_empty() {
                // Idle threads end soon.
                return drop(pool.join());
            }
            still_running.extend(hanging);
            still_running.sort();
            still_running.dedup();
            pool.detach();
        }
    }

    /// Resigns, unless threads still run: their work must not overlap with the next leader's. The leadership then ends
    /// with the process.
    fn end_elector(&mut self, still_running: &mut Vec<String>) {
        let Some(mut elector) = self.elector.take() else { return };
        let Settings { elector: settings, abort_grace, .. } = &self.inner.settings;
        if still_running.is_empty() {
            elector.stop();
        }
        let longest_call = || Ok(settings.as_ref().map(|elector| elector.longest_call()).unwrap_or_default());
        let longest_call = unless_it_panics(longest_call).unwrap_or_default();
        if elector.run_status().phase != RunningPhase::Running
            && let Err(still) = elector.join_timeout((*abort_grace).max(longest_call.saturating_mul(2)))
        {
            still_running.extend_from_slice(still.still_running());
        }
        elector.detach();
    }
}

impl Task for Driver {
    fn step(&mut self, now: Nanos) -> Next {
        let inner = Arc::clone(&self.inner);
        self.reap();
        if self.phase == DriverPhase::Running && inner.is_to_stop() {
            self.begin_to_stop();
            self.reap();
        }
        if let DriverPhase::Stopping(until) = self.phase
            && !self.is_empty()
            && (now >= until || inner.is_to_abort())
        {
            self.begin_to_abort();
        }
        self.log_failures();
        match self.phase {
            DriverPhase::Running => return Next::At(Nanos::NEVER),
            DriverPhase::Stopping(until) if !self.is_empty() => return Next::At(until),
            DriverPhase::Aborting(until) if !self.is_empty() && now < until => return Next::At(until),
            DriverPhase::Stopping(_) | DriverPhase::Aborting(_) => {}
        }
        let outcome = self.end();
        inner.state.lock().outcome = Some(outcome);
        Next::Finished
    }
}

/// Logs a run that has not ended in time after it was cancelled.
fn log_run(controller: &str, run: &ActiveRun) {
    let (key, thread) = (one_line(&run.key), run.thread.as_str());
    log::warn!(
        controller, key:%, thread;
        "{controller}: the run of {key} ignores its cancellation, and still runs on {thread}"
    );
}

impl ManagerInner {
    /// Returns the outcome. `Ok` before the end of the driver.
    pub(super) fn outcome(&self) -> Result<(), EndError> {
        if !self.end.is_empty() {
            return Ok(());
        }
        let outcome = self.state.lock().outcome.clone();
        outcome.unwrap_or_else(|| Err(EndError::failed(&self.settings.name, Arc::new("its driver panicked".into()))))
    }

    pub(super) fn not_idle(&self) -> EndError {
        let name = &self.settings.name;
        EndError::failed(name, Arc::new(StartError::named("manager", name, "has already been started").into()))
    }

    /// Records and logs a failure of a component. The first failure stops the manager.
    pub(super) fn fail(&self, component: &str, error: impl Into<BoxError>) {
        // Records it first, because formatting the error for the log may panic, and the logger may block.
        let failure = self.record(component, Arc::new(error.into()));
        self.log_failure(&failure);
    }

    fn record(&self, component: &str, error: Arc<BoxError>) -> ComponentFailure {
        let failure = (component.to_owned(), error);
        self.state.lock().failure.get_or_insert_with(|| failure.clone());
        self.signal.set();
        failure
    }

    fn log_failure(&self, (component, error): &ComponentFailure) {
        let is_first = self.state.lock().failure.as_ref().is_some_and(|(_, first)| Arc::ptr_eq(first, error));
        let (manager, component, shown) = (self.settings.name.as_str(), component.as_str(), Chain(&***error));
        if is_first {
            log::error!(manager, component, error:% = shown; "{manager}: component {component} has failed, all components are stopped: {shown}");
        } else {
            log::warn!(manager, component, error:% = shown; "{manager}: component {component} has failed as well: {shown}");
        }
    }

    fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    pub(super) fn is_to_stop(&self) -> bool {
        self.stop.is_cancelled() || self.is_to_abort() || self.has_failed()
    }

    fn is_to_abort(&self) -> bool {
        self.settings.abort.is_cancelled() || self.has_lost_term()
    }
}
