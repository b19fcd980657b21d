//! The manager: everything that a program runs, started in order and ended well.

mod builder;
mod drive;
mod running;
mod status;
mod unit;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::ManagerBuilder;
pub use self::running::RunningManager;
pub use self::status::{Health, ManagerStatus};
pub use self::unit::Unit;

use self::drive::Member;
use self::unit::{Entry, Env, Report};
use crate::cancel::CancellationToken;
use crate::clock::Clock;
use crate::controller::ControllerHandle;
use crate::crew::{Crew, Ended};
use crate::elector::Elector;
use crate::error::StartError;
use crate::pool::{PoolBuilder, WorkerPool};
use crate::queue::{Admission, Key};
use crate::reconcile::error::BoxError;
use crate::sync::Mutex;
use crate::thread::ThreadOptions;
use crate::wait::Signal;
use crate::watch::{Watch, WatchProducer};

/// Everything that a program runs: controllers on one shared pool, pollers, watches, functions. Started in order, stopped in
/// reverse. A cheap handle; clones are the same manager.
///
/// The first failure of anything stops the rest, and is what [`run`](Self::run) returns. Stopping has two phases: each unit, the
/// last first, takes no further work and may finish what it has, all within one grace period; then what is left is aborted.
/// What does not end even so is named.
///
/// With an [`Elector`] controllers and [leading functions](Unit::leading_function) do nothing until this process leads; watches and
/// pollers run from the start. Loss of leadership is a failure, and aborts at once.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, CancellationToken, Context, Controller, Manager, Unit};
/// use std::{convert::Infallible, time::Duration};
///
/// let stop = CancellationToken::new();
/// let manager = Manager::builder().threads(4).shutdown_grace(Duration::from_secs(30)).build()?;
/// let reconcile = |_cx: &Context, vm: &&str| -> Result<Action, BoxError> {
///     log::info!("{vm} is as it should be");
///     Ok(Action::await_change())
/// };
/// let vms = Controller::builder("vm", reconcile)
///     .poll(Duration::from_secs(30), |_cx| Ok::<_, Infallible>(["vm-1", "vm-2"]))
///     .max_concurrent_reconciles(2)
///     .build()?;
/// let handle = vms.handle();
/// manager.add(vms)?;
/// let enough = stop.clone();
/// manager.add(Unit::function("until-done", move |cx: &Context| {
///     handle.enqueue("vm-3");
///     handle.wait(&"vm-3", Duration::from_secs(10))?;
///     enough.cancel();
///     Ok::<_, BoxError>(())
/// }))?;
/// manager.run(&stop)?; // blocks until `stop` is cancelled or something has failed
/// # Ok::<_, BoxError>(())
/// ```
pub struct Manager {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    clock: Clock,
    grace: Duration,
    abort_grace: Duration,
    options: ThreadOptions,
    elector: Option<Arc<dyn Elector>>,
    /// Wakes the thread that drives it.
    signal: Arc<Signal>,
    stop: CancellationToken,
    abort: CancellationToken,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// What is started when it starts.
    pending: Vec<Unit>,
    /// What has been started, until the driver has it.
    started: Vec<Member>,
    names: HashSet<String>,
    controllers: HashMap<String, Entry>,
    /// Watches that have been asked for by name.
    watches: HashMap<String, Box<dyn Any + Send>>,
    pool: Option<(PoolBuilder, Option<Arc<WorkerPool>>)>,
    at_end: Vec<Box<dyn FnOnce() + Send>>,
    /// Those whose watchdogs see listings that take too long, by unit.
    crews: HashMap<String, Arc<Crew>>,
    failure: Option<Failure>,
    leading: bool,
    /// The leadership is lost.
    lost: bool,
}

struct Failure {
    unit: String,
    error: Arc<BoxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Running,
    Stopping,
    Ended,
}

/// Why a manager did not end well: what has failed first, and what did not end.
#[derive(Clone, Debug)]
pub struct ManagerError {
    failure: Option<(String, Arc<BoxError>)>,
    still_running: Vec<String>,
}

impl ManagerError {
    /// The name of the unit that failed first; `None` if all that is wrong is that something did not end.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.failure.as_ref().map(|(unit, _)| unit.as_str())
    }

    /// The names of the threads that had not ended when they were given up.
    #[must_use]
    pub fn still_running(&self) -> &[String] {
        &self.still_running
    }
}

impl fmt::Display for ManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((unit, error)) = &self.failure {
            write!(f, "{unit}: {error}")?;
        }
        match (&self.failure, self.still_running.is_empty()) {
            (_, true) => Ok(()),
            (None, false) => write!(f, "still running: {}", self.still_running.join(", ")),
            (Some(_), false) => write!(f, "; still running: {}", self.still_running.join(", ")),
        }
    }
}

impl Error for ManagerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.as_ref().and_then(|(_, error)| error.source())
    }
}

/// No unit of this name, or of another kind.
fn unknown(field: &'static str, name: &str, rule: &'static str) -> StartError {
    StartError::setting(field, &name, rule)
}

impl Manager {
    /// Settings for a manager.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }

    /// Adds a unit. It is started with the manager, in the order of these calls; or at once, if that is running.
    ///
    /// # Errors
    ///
    /// If there is a unit of its name, the manager is stopping or has ended, or it cannot be started.
    pub fn add(&self, unit: impl Into<Unit>) -> Result<(), StartError> {
        self.inner.add(unit.into())
    }

    /// The watch of this name: that of the one who asked first, who started it with `start`. It runs from then on, and is stopped
    /// with the manager, as if it had been added by that first call.
    ///
    /// ```
    /// use homeostat::{Context, Manager, PollWatch, Watch};
    /// use std::time::Duration;
    ///
    /// fn disks(manager: &Manager) -> Result<Watch<String, u64>, homeostat::StartError> {
    ///     let list = |_cx: &Context| Ok::<_, std::io::Error>([("disk-1".to_owned(), 10)]);
    ///     manager.watch("disks", || PollWatch::new(Duration::from_secs(5), list).name("disks").start())
    /// }
    ///
    /// let manager = Manager::builder().build()?;
    /// let (one, other) = (disks(&manager)?, disks(&manager)?);
    /// assert!(one.store().wait_synced(Duration::from_secs(10)) && other.store().has_synced());
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If it cannot be started, or there is a watch of this name of other things, or as [`add`](Self::add).
    pub fn watch<K, T, P>(
        &self,
        name: &str,
        start: impl FnOnce() -> Result<P, StartError>,
    ) -> Result<Watch<K, T>, StartError>
    where
        K: Key + Sync,
        T: Send + Sync + 'static,
        P: WatchProducer<K, T> + Into<Unit>,
    {
        if let Some(known) = self.inner.state.lock().watches.get(name) {
            let watch = known.downcast_ref::<Watch<K, T>>().cloned();
            return watch.ok_or_else(|| unknown("watch", name, "one of the same keys and values"));
        }
        let producer = start()?;
        let watch = producer.watch().clone();
        let mut unit: Unit = producer.into();
        name.clone_into(&mut unit.name);
        self.inner.add(unit)?;
        self.inner.state.lock().watches.insert(name.to_owned(), Box::new(watch.clone()));
        Ok(watch)
    }

    /// The handle of a controller that has been added.
    ///
    /// # Errors
    ///
    /// If there is no controller of this name, or its keys are of another type.
    pub fn controller<K: Key + Sync + fmt::Debug>(&self, name: &str) -> Result<ControllerHandle<K>, StartError> {
        let state = self.inner.state.lock();
        let entry =
            state.controllers.get(name).ok_or_else(|| unknown("controller", name, "one that has been added"))?;
        let handle = entry.handle.downcast_ref::<ControllerHandle<K>>().cloned();
        handle.ok_or_else(|| unknown("controller", name, "one with keys of this type"))
    }

    /// Puts a key of a controller in line; see [`ControllerHandle::enqueue`].
    ///
    /// # Errors
    ///
    /// As [`controller`](Self::controller).
    pub fn enqueue<K: Key + Sync + fmt::Debug>(&self, controller: &str, key: K) -> Result<Admission, StartError> {
        Ok(self.controller(controller)?.enqueue(key))
    }

    /// Calls `hook` at the end, when everything has ended or been given up; the last one that was added first. A panic of it is logged.
    pub fn at_end(&self, hook: impl FnOnce() + Send + 'static) {
        self.inner.state.lock().at_end.push(Box::new(hook));
    }

    /// Starts everything, and blocks until `stop` is cancelled, something has failed, or [`stop`](Self::stop) is called; then
    /// stops everything, as the type's documentation says. Returns within the grace period and the
    /// [abort grace](ManagerBuilder::abort_grace), by the manager's clock.
    ///
    /// # Errors
    ///
    /// [`ManagerError`], if something has failed (also as it was started), or did not end.
    pub fn run(&self, stop: &CancellationToken) -> Result<(), ManagerError> {
        let own = self.inner.stop.clone();
        let _stopped = stop.on_cancel(move || own.cancel());
        self.start().and_then(RunningManager::wait)
    }

    /// Starts everything, and returns: for a thread that has something else to do meanwhile.
    ///
    /// # Errors
    ///
    /// If it has been started before, or something cannot be started: everything has been stopped again then.
    pub fn start(&self) -> Result<RunningManager, ManagerError> {
        self.inner.start()
    }

    /// Stops everything. Returns at once.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }

    /// Stops everything and aborts at once what is under way. Returns at once.
    pub fn abort(&self) {
        self.inner.abort.cancel();
    }

    /// Whether this process leads; always, without an elector, once it has been started.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.inner.state.lock().leading
    }
}

impl Inner {
    /// What calls the driver when something has ended.
    fn ended(&self) -> Ended {
        let signal = Arc::clone(&self.signal);
        Arc::new(move || signal.set())
    }

    fn report(self: &Arc<Self>) -> Report {
        let inner = Arc::downgrade(self);
        Arc::new(move |unit, error| {
            if let Some(inner) = inner.upgrade() {
                inner.fail(unit, &error);
            }
        })
    }

    fn add(self: &Arc<Self>, mut unit: Unit) -> Result<(), StartError> {
        {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Stopping | Phase::Ended) {
                return Err(unknown("manager", &self.name, "one that is not stopping"));
            }
            if !state.names.insert(unit.name.clone()) {
                return Err(unknown("name", &unit.name, "one that no other unit of the manager has"));
            }
            if let Some(entry) = unit.controller.take() {
                state.controllers.insert(unit.name.clone(), entry);
            }
            if state.phase == Phase::Idle {
                state.pending.push(unit);
                return Ok(());
            }
        }
        let name = unit.name.clone();
        self.start_unit(unit).inspect_err(|_| self.forget(&name))
    }

    fn forget(&self, name: &str) {
        let mut state = self.state.lock();
        state.names.remove(name);
        let entry = state.controllers.remove(name);
        drop(state);
        drop(entry);
    }

    /// Starts a unit and hands it to the driver.
    fn start_unit(self: &Arc<Self>, unit: Unit) -> Result<(), StartError> {
        let (pool, leading) = {
            let state = self.state.lock();
            (state.pool.as_ref().and_then(|(_, pool)| pool.clone()), state.leading)
        };
        let Some(pool) = pool else {
            return Err(unknown("manager", &self.name, "one that is not stopping"));
        };
        let env = Env { pool: &pool, clock: &self.clock, options: &self.options, leading, report: self.report() };
        let part = (unit.start)(&env)?;
        let mut state = self.state.lock();
        if state.phase == Phase::Ended {
            drop(state);
            part.abort();
            return Err(unknown("manager", &self.name, "one that is not stopping"));
        }
        if let Some(crew) = part.crew() {
            state.crews.insert(unit.name.clone(), Arc::clone(crew));
        }
        // One that is stopping stops it with the others: nobody knows how far it has come.
        state.started.push(Member::new(unit.name, part));
        drop(state);
        self.signal.set();
        Ok(())
    }

    fn start(self: &Arc<Self>) -> Result<RunningManager, ManagerError> {
        let failed = |unit: &str, error: StartError| ManagerError {
            failure: Some((unit.to_owned(), Arc::new(error.into()))),
            still_running: Vec::new(),
        };
        let (pool, pending) = {
            let mut state = self.state.lock();
            if state.phase != Phase::Idle {
                return Err(failed(&self.name, unknown("manager", &self.name, "one that has not been started")));
            }
            state.phase = Phase::Running;
            state.leading = self.elector.is_none();
            (state.pool.as_ref().map(|(settings, _)| settings.clone()), std::mem::take(&mut state.pending))
        };
        log::info!(manager = self.name.as_str(), units = pending.len(); "the manager starts");
        let mut running = RunningManager::new(Arc::clone(self));
        let pool = pool.unwrap_or_else(WorkerPool::builder);
        match pool.start() {
            Ok(pool) => {
                let pool = Arc::new(pool);
                running.pool = Some(Arc::clone(&pool));
                if let Some((_, slot)) = &mut self.state.lock().pool {
                    *slot = Some(pool);
                }
            }
            Err(error) => self.fail(&self.name, &Arc::new(error.into())),
        }
        for unit in pending {
            let name = unit.name.clone();
            if self.state.lock().failure.is_some() {
                break;
            }
            if let Err(error) = self.start_unit(unit) {
                self.fail(&name, &Arc::new(error.into()));
            }
        }
        if self.state.lock().failure.is_none()
            && let Err(error) = running.elect()
        {
            self.fail("elector", &Arc::new(error.into()));
        }
        if self.state.lock().failure.is_some() {
            return Err(running
                .wait()
                .err()
                .unwrap_or_else(|| failed(&self.name, unknown("manager", &self.name, "sound"))));
        }
        Ok(running)
    }
}

impl Clone for Manager {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("Manager")
            .field("name", &self.inner.name)
            .field("phase", &state.phase)
            .field("units", &state.names)
            .field("leading", &state.leading)
            .finish_non_exhaustive()
    }
}
