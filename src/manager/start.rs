//! The start of components that are added to a manager.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::component::{Component, ComponentStart, StartEnv};
use super::member::{Member, MemberBody, Removal, RemoveError};
use super::state::{ComponentEntry, ManagerInner, ManagerPhase, ManagerState};
use crate::base::end::EndHook;
use crate::base::error::StartError;
use crate::base::running::Runnable;
use crate::base::thread::panic_message;
use crate::run::pool::WorkerPool;

/// A component that starts while its manager runs. The manager waits for the start within its grace periods.
struct Adding<'a> {
    inner: &'a ManagerInner,
    name: &'a str,
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        self.inner.state.lock().adding.retain(|name| name != self.name);
        self.inner.signal.set();
    }
}

impl ManagerState {
    /// Returns whether components are no longer accepted.
    fn is_closed(&self) -> bool {
        matches!(self.phase, ManagerPhase::Stopping | ManagerPhase::Ended)
    }
}

impl ManagerInner {
    /// Returns the number of the next component, and its hook, which lets the driver ask the component.
    fn next_number(self: &Arc<Self>) -> (u64, EndHook) {
        let number = {
            let mut state = self.state.lock();
            state.numbers += 1;
            state.numbers
        };
        let inner = Arc::downgrade(self);
        let hook = Arc::new(move || {
            if let Some(inner) = inner.upgrade() {
                inner.state.lock().heard.insert(number);
                inner.signal.set();
            }
        });
        (number, hook)
    }

    fn is_stopping(&self) -> StartError {
        StartError::named("manager", &self.name, "is stopping")
    }

    pub(super) fn add(self: &Arc<Self>, mut component: Component) -> Result<(), StartError> {
        let name = component.name.clone();
        StartError::check_required_name(&name)?;
        let pool = {
            let mut state = self.state.lock();
            if state.is_closed() {
                return Err(self.is_stopping());
            }
            let kind = component.kind;
            if let Some(other) = state.components.get(&name).map(|entry| entry.kind) {
                let fault = "is the name of another component of the manager";
                let advice = || format!("{fault}, a {other}: give the {kind} another name");
                let fault: Cow<'static, str> = if other == kind { fault.into() } else { advice().into() };
                return Err(StartError::named("name", &name, fault));
            }
            let controller = component.controller.clone();
            let source = component.source.take().map(|source| source.named(&name));
            state.components.insert(
                name.clone(),
                ComponentEntry { kind, number: None, controller, observers: 0, source, watch: None },
            );
            let running = state.pool.clone().filter(|_| state.phase == ManagerPhase::Running);
            let Some(pool) = running else {
                state.pending.push_back(component);
                drop(state);
                self.add_observers();
                return Ok(());
            };
            state.adding.push(name.clone());
            pool
        };
        // Dropped after the pool and the component. Nothing of either is left when the manager continues.
        let _adding = Adding { inner: self, name: &name };
        self.add_observers();
        let added = self.start_component(component, &pool).and_then(|member| {
            let Some(member) = self.keep(member) else { return Ok(()) };
            member.abort();
            drop(member);
            Err(self.is_stopping())
        });
        drop(pool);
        added.inspect_err(|_| self.forget(&name))
    }

    /// Gives each controller the observers that it does not have yet.
    pub(super) fn add_observers(&self) {
        let mut missing = Vec::new();
        {
            let ManagerState { components, observers, .. } = &mut *self.state.lock();
            for (name, entry) in components {
                let known = std::mem::replace(&mut entry.observers, observers.len());
                let added = |controller: &Arc<_>| (name.clone(), Arc::clone(controller), observers[known..].to_vec());
                missing.extend(entry.controller.as_ref().map(added));
            }
        }
        for (name, controller, observers) in missing {
            observers.iter().for_each(|add| add(&name, &*controller));
        }
    }

    pub(super) fn remove(&self, name: &str, grace: Duration) -> Result<(), RemoveError> {
        let (removal, answer) = Removal::new(name, grace, &self.clock);
        let mut state = self.state.lock();
        if state.is_closed() {
            return Err(RemoveError::Stopping);
        }
        if !state.components.contains_key(name) {
            return Err(RemoveError::NotFound(name.to_owned()));
        }
        let Some(number) = state.pending.iter().position(|component| component.name == name) else {
            state.removals.push(removal);
            drop(state);
            self.signal.set();
            return Removal::wait(&answer);
        };
        let pending = state.pending.remove(number);
        drop(state);
        self.forget(name);
        // Without the lock: the drop may be user code. A controller closes its queue.
        drop(pending);
        Ok(())
    }

    /// Forgets a component, and frees its name.
    pub(super) fn forget(&self, name: &str) {
        let entry = self.state.lock().components.remove(name);
        drop(entry);
    }

    fn start_component(self: &Arc<Self>, component: Component, pool: &WorkerPool) -> Result<Member, StartError> {
        let Component { name, start, waits_to_lead, controller, .. } = component;
        let number = self.next_number();
        let body = if waits_to_lead && self.elector.is_some() {
            MemberBody::WaitsToLead(Some(start))
        } else {
            MemberBody::Running(self.start_one(&name, start, pool)?)
        };
        Ok(Member::new(number, name, body, controller))
    }

    pub(super) fn start_one(
        self: &Arc<Self>,
        name: &str,
        start: ComponentStart,
        pool: &WorkerPool,
    ) -> Result<Box<dyn Runnable>, StartError> {
        // With an elector, only the driver lets components lead. No component can then begin to lead after the driver has seen a
        // loss.
        let leading = self.elector.is_none();
        let fence = self.state.lock().term.clone();
        let env = StartEnv { pool, clock: &self.clock, options: &self.pool.options, leading, fence };
        catch_unwind(AssertUnwindSafe(|| start(&env)))
            .unwrap_or_else(|panic| Err(StartError::panicked(name, panic_message(&*panic))))
    }

    /// Hands a started component to the driver. Returns it if the manager is stopping.
    fn keep(&self, member: Member) -> Option<Member> {
        {
            let mut state = self.state.lock();
            if state.is_closed() {
                return Some(member);
            }
            state.heard.insert(member.number);
            state.started.push(member);
        }
        self.signal.set();
        None
    }

    /// Starts the pending components in order, until none is left or the manager stops. Calls `started` after each start.
    pub(super) fn start_pending(self: &Arc<Self>, pool: &WorkerPool, mut started: impl FnMut()) {
        loop {
            let goes_on = !self.is_to_stop();
            let component = {
                let mut state = self.state.lock();
                let component = if goes_on { state.pending.pop_front() } else { None };
                if component.is_none() {
                    // The remaining components are not started.
                    state.phase = if goes_on { ManagerPhase::Running } else { ManagerPhase::Stopping };
                }
                component
            };
            let Some(component) = component else { return };
            let name = component.name.clone();
            match self.start_component(component, pool) {
                // The manager cannot be stopping yet, because only this thread begins the stop. The driver gets the component.
                Ok(member) => drop(self.keep(member)),
                Err(error) => self.fail(&name, &Arc::new(error.into())),
            }
            started();
        }
    }

    /// Drops the components that were never started. The drop of a controller wakes blocked callers.
    pub(super) fn drop_pending(&self) {
        let pending = std::mem::take(&mut self.state.lock().pending);
        drop(pending);
    }
}
