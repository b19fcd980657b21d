//! The state of all services, and the reconciler that moves one of them a step nearer to what the file says.
//!
//! Everything that happens (an edit, a death, a signal) only changes the state and names services to the work queue. The
//! queue never lets two threads reconcile one service at a time, so a reconcile may let go of the lock while it starts a
//! process; and it never loses a wakeup, so whatever happens meanwhile is looked at by a later run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use homeostat::run::{CrashLoopGuard, muted};
use homeostat::{Action, BoxError, Clock, Manager};
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
    /// Everything that changes. Under it only the lock of a [`Process`] is taken.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last good file.
    config: Config,
    units: BTreeMap<Name, Unit>,
    stop: Stop,
}

/// Whether the supervisor is stopping everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    /// The last of the file first, each when the one before it is gone.
    InOrder,
    /// All of them, with SIGKILL.
    AtOnce,
}

/// A reconcile that failed, and that the retry policy tries again.
#[derive(Debug)]
pub(crate) enum Failure {
    Start(io::Error),
    Signal(io::Error),
    /// The process has ended by itself, and comes back.
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
    /// What ought to run under this name now.
    fn wanted(&self, name: &str) -> Option<Arc<Service>> {
        match self.stop {
            Stop::No => self.config.find(name).cloned(),
            Stop::InOrder => {
                // Whoever waits for its turn runs on as it is.
                let waits = self.config.find(name).is_some() && self.turn().is_some_and(|turn| **turn != *name);
                let unit = self.units.get(name).filter(|unit| waits && matches!(unit.phase, Phase::Running(_)))?;
                Some(Arc::clone(&unit.service))
            }
            Stop::AtOnce => None,
        }
    }

    /// Who is to stop next, in the reverse order of the file.
    fn turn(&self) -> Option<&Name> {
        let alive = |name: &Name| self.units.get(name).is_some_and(Unit::is_alive);
        self.config.services.iter().rev().map(|service| &service.name).find(|name| alive(name))
    }

    fn is_quiet(&self) -> bool {
        !self.units.values().any(Unit::is_alive)
    }

    /// In the order of the file, followed by those that are no longer in it and still stopping.
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

    /// Takes `config` as what is wanted from now on. What an edit has touched is reconciled at once, whatever backoff it
    /// is in.
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

    /// Every service that is not as the file wants it: what the poller offers, in case anything was ever missed.
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

    /// Something has stopped: lets the next one stop, or says that none is left.
    fn hand_on(&self, state: &State) {
        if let Some(turn) = state.turn() {
            call(&self.manager, turn.clone());
        }
        if state.is_quiet() {
            // Nobody listens any more only if this has been said before.
            let _ = self.events.send(Event::Quiet);
        }
    }

    /// The status tables: of the services, and of what looks after them.
    pub(crate) fn table(&self) -> String {
        let services = render(self.state.lock().in_order(), self.clock.now());
        format!("{services}\n{}", self.manager.status())
    }

    /// The names of the services that still have a process.
    pub(crate) fn alive(&self) -> Vec<Name> {
        let state = self.state.lock();
        state.units.iter().filter(|(_, unit)| unit.is_alive()).map(|(name, _)| name.clone()).collect()
    }

    /// Brings one service to what is wanted of it, as far as that goes without waiting.
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
                    // So the status table shows it as failing. The log has it already.
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

/// Has a service reconciled at once, whatever backoff it is in.
fn call(manager: &Manager, name: Name) {
    if let Err(error) = manager.enqueue(SERVICES, name) {
        log::error!("{error}");
    }
}
