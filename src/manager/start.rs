//! How a manager starts what is added to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::component::{Component, Env, Part, Report};
use super::drive::Member;
use super::{Inner, ManagerPhase, State};
use crate::base::error::StartError;
use crate::base::group::Ended;
use crate::base::thread::{panic_message, shielded};
use crate::run::pool::WorkerPool;

/// A component that is being started while its manager runs: the manager waits for that, within its grace periods.
struct Adding<'a> {
    inner: &'a Inner,
    name: &'a str,
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        self.inner.state.lock().adding.retain(|name| name != self.name);
        self.inner.signal.set();
    }
}

impl State {
    /// No component is added any more.
    fn is_closed(&self) -> bool {
        matches!(self.phase, ManagerPhase::Stopping | ManagerPhase::Ended)
    }
}

impl Inner {
    /// What calls the driver when something has ended.
    pub(super) fn ended(&self) -> Ended {
        let signal = Arc::clone(&self.signal);
        Arc::new(move || signal.set())
    }

    fn report(self: &Arc<Self>) -> Report {
        let inner = Arc::downgrade(self);
        Arc::new(move |component, error| {
            if let Some(inner) = inner.upgrade() {
                inner.fail(component, &error);
            }
        })
    }

    fn is_stopping(&self) -> StartError {
        StartError::named("manager", &self.name, "is stopping")
    }

    pub(super) fn add(self: &Arc<Self>, mut component: Component) -> Result<(), StartError> {
        let name = component.name.clone();
        if name.is_empty() {
            return Err(StartError::named("name", &name, "is empty"));
        }
        StartError::check_name(&name)?;
        let pool = {
            let mut state = self.state.lock();
            if state.is_closed() {
                return Err(self.is_stopping());
            }
            if !state.names.insert(name.clone()) {
                return Err(StartError::named("name", &name, "is the name of another component of the manager"));
            }
            if let Some(source) = component.source.take() {
                state.sources.insert(name.clone(), source.named(&name));
            }
            if let Some(entry) = component.controller.take() {
                state.controllers.insert(name.clone(), Arc::new(entry));
            }
            let running = state.pool.clone().filter(|_| state.phase == ManagerPhase::Running);
            let Some(pool) = running else {
                state.pending.push_back(component);
                return Ok(());
            };
            state.adding.push(name.clone());
            pool
        };
        // Dropped after the pool and what has been started: nothing of this is left when the manager goes on.
        let _adding = Adding { inner: self, name: &name };
        let added = self.start_unit(component, &pool).and_then(|part| {
            self.keep(&name, part).map_err(|part| {
                part.abort();
                shielded("the end of a component", || drop(part));
                self.is_stopping()
            })
        });
        drop(pool);
        added.inspect_err(|_| self.forget(&name))
    }

    fn forget(&self, name: &str) {
        let mut state = self.state.lock();
        state.names.remove(name);
        state.sources.remove(name);
        let entry = state.controllers.remove(name);
        drop(state);
        drop(entry);
    }

    fn start_unit(self: &Arc<Self>, component: Component, pool: &WorkerPool) -> Result<Box<dyn Part>, StartError> {
        let Component { name, start, .. } = component;
        // With an elector the driver alone has components lead, so that none begins to once it has seen the loss.
        let leading = self.elector.is_none();
        let env = Env { pool, clock: &self.clock, options: &self.options, leading, report: self.report() };
        catch_unwind(AssertUnwindSafe(|| start(&env))).unwrap_or_else(|panic| {
            let error = StartError::panicked(&name, panic_message(&*panic));
            shielded("the drop of a panic", || drop(panic));
            Err(error)
        })
    }

    /// Hands a component that has been started to the driver, or back, if that takes none any more.
    fn keep(&self, name: &str, part: Box<dyn Part>) -> Result<(), Box<dyn Part>> {
        {
            let mut state = self.state.lock();
            if state.is_closed() {
                return Err(part);
            }
            state.started.push(Member::new(name.to_owned(), part));
        }
        self.signal.set();
        Ok(())
    }

    /// Starts what has been added, one after the other, until that is all or it is to stop.
    pub(super) fn start_pending(self: &Arc<Self>, pool: &WorkerPool) {
        loop {
            let goes_on = !self.is_to_stop();
            let component = {
                let mut state = self.state.lock();
                let component = if goes_on { state.pending.pop_front() } else { None };
                if component.is_none() {
                    // What is still there is not started.
                    state.phase = if goes_on { ManagerPhase::Running } else { ManagerPhase::Stopping };
                }
                component
            };
            let Some(component) = component else { return };
            let name = component.name.clone();
            match self.start_unit(component, pool) {
                // Nobody has closed it yet.
                Ok(part) => drop(self.keep(&name, part)),
                Err(error) => self.fail(&name, &Arc::new(error.into())),
            }
        }
    }

    /// Lets go of what was never started. Who waits for a controller of it is told.
    pub(super) fn drop_pending(&self) {
        let (pending, controllers) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.pending), state.controllers.values().cloned().collect::<Vec<_>>())
        };
        for component in pending {
            shielded("the drop of a component", || drop(component));
        }
        for controller in controllers {
            (controller.stop)();
        }
    }
}
