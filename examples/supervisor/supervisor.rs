//! The state of all services, and the reconciler that moves one service one step closer to the file.
//!
//! Edits, ends of processes and signals change the state and enqueue names. The queue never lets two threads reconcile
//! one service at the same time, so a reconcile may release the lock while it starts a process. A change during a run
//! leads to another run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use homeostat::run::muted;
use homeostat::{Action, BoxError, Clock, Manager};
use homeostat_host::CrashLoopGuard;
use parking_lot::{Mutex, MutexGuard};

use crate::config::{Config, Service};
use crate::process::Process;
use crate::run::Event;
use crate::table::{render, span};
use crate::unit::{Phase, Step, Unit};

/// A service's name: the key of the controller.
pub(crate) type Name = Arc<str>;

/// The controller of services.
pub(crate) const SERVICES: &str = "services";

pub(crate) struct Supervisor {
    manager: Manager,
    events: Sender<Event>,
    guard: CrashLoopGuard<Name>,
    clock: Clock,
    /// Under this lock, only the lock of a [`Process`] may be taken.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last good file.
    config: Config,
    units: BTreeMap<Name, Unit>,
    stop: Stop,
}

/// Whether all services are being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    /// One after the other, starting with the last in the file.
    InOrder,
    /// All at once, with SIGKILL.
    AtOnce,
}

/// An error of a reconcile, which the retry policy tries again.
#[derive(Debug)]
pub(crate) enum Failure {
    Start(io::Error),
    Signal(io::Error),
    /// The process has ended by itself, and restarts later.
    Ended {
        exit: Option<ExitStatus>,
        back_in: Duration,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot start: {error}"),
            Self::Signal(error) => write!(f, "cannot signal the process group: {error}"),
            Self::Ended { exit: Some(exit), back_in } => write!(f, "ended ({exit}), restart in {}", span(*back_in)),
            Self::Ended { exit: None, back_in } => write!(f, "ended, restart in {}", span(*back_in)),
        }
    }
}

impl std::error::Error for Failure {}

impl State {
    /// Returns the service that should run under this name now.
    fn wanted(&self, name: &str) -> Option<Arc<Service>> {
        match self.stop {
            Stop::No => self.config.find(name).cloned(),
            Stop::InOrder => {
                // Until its turn, a service continues as it is.
                let waits = self.config.find(name).is_some() && self.turn().is_some_and(|turn| **turn != *name);
                let unit = self.units.get(name).filter(|unit| waits && matches!(unit.phase, Phase::Running(_)))?;
                Some(Arc::clone(&unit.service))
            }
            Stop::AtOnce => None,
        }
    }

    /// Returns the service that stops next, in the reverse order of the file.
    fn turn(&self) -> Option<&Name> {
        let alive = |name: &Name| self.units.get(name).is_some_and(Unit::is_alive);
        self.config.services.iter().rev().map(|service| &service.name).find(|name| alive(name))
    }

    fn is_quiet(&self) -> bool {
        !self.units.values().any(Unit::is_alive)
    }

    /// Returns the services in the order of the file, then removed services that are still stopping.
    fn in_order(&self) -> impl Iterator<Item = &Unit> {
        let listed = self.config.services.iter().filter_map(|service| self.units.get(&service.name));
        let removed = self.units.values().filter(|unit| self.config.find(&unit.service.name).is_none());
        listed.chain(removed)
    }
}

impl Supervisor {
    pub(crate) fn new(manager: Manager, events: Sender<Event>, guard: CrashLoopGuard<Name>) -> Self {
        let state = State { config: Config::default(), units: BTreeMap::new(), stop: Stop::No };
        Self { manager, events, guard, clock: Clock::system(), state: Mutex::new(state) }
    }

    /// Makes `config` the desired state. Services that it changes are reconciled at once, even during a backoff.
    pub(crate) fn apply(&self, config: Config) {
        let mut state = self.state.lock();
        if state.stop != Stop::No {
            return;
        }
        let differs = |one: &Config, other: &Config| -> Vec<Name> {
            let differing = one.services.iter().filter(|service| other.find(&service.name) != Some(service));
            differing.map(|service| service.name.clone()).collect()
        };
        let mut touched = differs(&config, &state.config);
        touched.extend(differs(&state.config, &config).into_iter().filter(|name| config.find(name).is_none()));
        log::info!("services in the file: {}; new, changed or gone: {}", config.services.len(), touched.len());
        state.config = config;
        drop(state);
        for name in touched {
            call(&self.manager, name);
        }
    }

    /// Lists the services that differ from the file, for the poller. It finds changes that no event reported.
    pub(crate) fn out_of_step(&self) -> Vec<Name> {
        let state = self.state.lock();
        let now = self.clock.now();
        let known = state.units.iter().filter(|(name, unit)| {
            let wanted = state.wanted(name);
            !matches!(unit.step(wanted.as_ref(), now), Step::Rest | Step::Wait(_) | Step::ComeBack(_))
        });
        let listed = state.config.services.iter().map(|service| &service.name);
        let unknown = listed.filter(|name| !state.units.contains_key(*name));
        known.map(|(name, _)| name).chain(unknown).cloned().collect()
    }

    /// Begins to stop everything, in order. [`Event::Quiet`] follows.
    pub(crate) fn stop_in_order(&self) {
        self.stop(Stop::InOrder);
    }

    /// Kills everything. [`Event::Quiet`] follows.
    pub(crate) fn stop_at_once(&self) {
        self.stop(Stop::AtOnce);
    }

    fn stop(&self, how: Stop) {
        let mut state = self.state.lock();
        state.stop = how;
        if how == Stop::AtOnce {
            let now = self.clock.now();
            for (name, unit) in &mut state.units {
                if let Err(error) = unit.kill(now) {
                    log::error!("{name}: {}", Failure::Signal(error));
                }
            }
        }
        let names: Vec<Name> = state.units.keys().cloned().collect();
        self.hand_on(&state);
        drop(state);
        for name in names {
            call(&self.manager, name);
        }
    }

    /// Stops the next service, or reports that none remains. Called when a service has stopped.
    fn hand_on(&self, state: &State) {
        if let Some(turn) = state.turn() {
            call(&self.manager, turn.clone());
        }
        if state.is_quiet() {
            // The receiver is gone only if it has already received this event.
            let _ = self.events.send(Event::Quiet);
        }
    }

    /// Returns two status tables: of the services, and of the manager.
    pub(crate) fn table(&self) -> String {
        let services = render(self.state.lock().in_order(), self.clock.now());
        format!("{services}\n{}", self.manager.status())
    }

    /// Returns the names of services that still have a process.
    pub(crate) fn alive(&self) -> Vec<Name> {
        let state = self.state.lock();
        state.units.iter().filter(|(_, unit)| unit.is_alive()).map(|(name, _)| name.clone()).collect()
    }

    /// Moves one service to its desired state, without waiting.
    pub(crate) fn reconcile(&self, name: &Name) -> Result<Action, BoxError> {
        let mut state = self.state.lock();
        loop {
            let now = self.clock.now();
            let wanted = state.wanted(name);
            let stop = state.stop;
            let Some(unit) = state.units.get_mut(name) else {
                let Some(service) = wanted else { return Ok(Action::await_change()) };
                state.units.insert(name.clone(), Unit::new(service, now));
                continue;
            };
            match unit.step(wanted.as_ref(), now) {
                Step::Rest => return Ok(Action::await_change()),
                Step::Wait(until) => return Ok(Action::requeue_after(until.saturating_duration_since(now))),
                Step::ComeBack(until) => {
                    let back_in = until.saturating_duration_since(now);
                    // Return an error, so that the status table shows the service as failing. The log has it already.
                    return Err(muted(Failure::Ended { exit: unit.last_exit, back_in }).into());
                }
                Step::Start(service) => {
                    unit.begin(Arc::clone(&service), &self.guard, now);
                    let started = MutexGuard::unlocked(&mut state, || self.start(&service));
                    if let Some(unit) = state.units.get_mut(name) {
                        unit.started(started, &self.guard, self.clock.now()).map_err(Failure::Start)?;
                    }
                }
                Step::Adopt(service) => unit.adopt(service, now),
                Step::Stop(process) => {
                    let patience = if stop == Stop::AtOnce { Duration::ZERO } else { unit.service.stop_timeout };
                    unit.stopping(&process, now + patience, now);
                    if !patience.is_zero() {
                        let signal = unit.service.stop_signal;
                        log::info!("{name}: stopping pid {} with {signal}", process.id());
                        process.ask(signal.signal).map_err(Failure::Signal)?;
                    }
                }
                Step::Kill => unit.kill(now).map_err(Failure::Signal)?,
                Step::Settle(exit) => {
                    let returns = wanted.is_some() && stop == Stop::No;
                    unit.settle(exit, returns.then_some(&self.guard), now);
                }
                Step::Forget if stop == Stop::No => {
                    log::info!("{name}: is no longer in the file");
                    self.guard.forget(name);
                    state.units.remove(name);
                    return Ok(Action::await_change());
                }
                Step::Forget => {
                    unit.rest(now);
                    self.hand_on(&state);
                    return Ok(Action::await_change());
                }
            }
        }
    }

    fn start(&self, service: &Service) -> io::Result<Process> {
        let (manager, name) = (self.manager.clone(), service.name.clone());
        Process::start(service, move || call(&manager, name))
    }
}

/// Reconciles a service at once, even during a backoff.
fn call(manager: &Manager, name: Name) {
    if let Err(error) = manager.enqueue(SERVICES, name) {
        log::error!("{error}");
    }
}
