//! The manager: everything that a program runs, started in order and ended well.

mod builder;
mod component;
mod drive;
pub(crate) mod election;
mod lead;
mod running;
#[cfg(all(unix, feature = "signals"))]
mod signals;
mod start;
mod status;
mod watches;

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::ManagerBuilder;
pub use self::component::Component;
pub use self::election::{AlwaysLeader, Elector, ElectorError, FileElector, Holder, Leadership, LeadershipLost, Term};
pub use self::running::RunningManager;
pub use self::status::{Health, ManagerStatus};

use self::component::Entry;
use self::drive::Member;
use self::running::Course;
use self::watches::Known;
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::Mutex;
use crate::base::thread::{ThreadOptions, shielded};
use crate::base::wait::AutoResetEvent;
use crate::controller::ControllerHandle;
use crate::queue::{EnqueueOutcome, Key};
use crate::run::error::BoxError;
use crate::run::pool::{PoolBuilder, WorkerPool};
use crate::watch::source::SourceHandle;

/// Everything that a program runs: controllers on one shared pool, pollers, watches, functions. Started in order. A cheap handle;
/// clones are the same manager.
///
/// The first failure of anything stops the rest, and is what [`run`](Self::run) returns. Stopping has two phases:
///
/// 1. All components stop taking work at once. The last that was added is told first, and no component waits for the end of another: a
///    controller may finish its runs while its watches have stopped already, and the context of a function is cancelled. All components have
///    the same [grace period](ManagerBuilder::shutdown_grace) to finish what they have begun.
/// 2. Components that have not ended are aborted. After the [abort grace](ManagerBuilder::abort_grace) the manager names the threads that
///    still run, and returns without them.
///
/// With an [`Elector`] controllers and [leading functions](Component::leading_function) do nothing until this process leads; watches and
/// pollers run from the start. Loss of leadership is a failure, and aborts at once.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, CancellationToken, Component, Context, Controller, Manager};
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
/// manager.add(Component::function("until-done", move |cx: &Context| {
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
    /// How long a source may fail before it is not ready.
    unready_after: Duration,
    /// The settings of the shared pool.
    pool: PoolBuilder,
    elector: Option<Arc<dyn Elector>>,
    /// Wakes the thread that drives it.
    signal: Arc<AutoResetEvent>,
    stop: CancellationToken,
    abort: CancellationToken,
    /// Those of others that cancel it.
    _abort_on: Vec<OnCancel>,
    /// Ends the campaign, or the term.
    resign: CancellationToken,
    state: Mutex<State>,
}

struct State {
    phase: ManagerPhase,
    /// What is started when it starts, in this order.
    pending: VecDeque<Component>,
    /// The names of those that are being started while it runs.
    adding: Vec<String>,
    /// What has been started, until the driver has it.
    started: Vec<Member>,
    names: HashSet<String>,
    controllers: HashMap<String, Arc<Entry>>,
    /// Watches that have been asked for by name.
    watches: HashMap<String, Known>,
    pool: Option<Arc<WorkerPool>>,
    at_end: Vec<Box<dyn FnOnce() + Send>>,
    /// How components that list are doing: pollers and watches, by component.
    sources: HashMap<String, SourceHandle>,
    failure: Option<Failure>,
    leading: bool,
    /// The leadership is lost.
    lost: bool,
}

#[derive(Clone)]
struct Failure {
    component: String,
    error: Arc<BoxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManagerPhase {
    Idle,
    /// What has been added is started, in its order; what is added meanwhile comes after it.
    Starting,
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
    #[cfg(all(unix, feature = "signals"))]
    fn of(component: &str, error: impl Into<BoxError>) -> Self {
        Self { failure: Some((component.to_owned(), Arc::new(error.into()))), still_running: Vec::new() }
    }

    /// The name of the component that failed first; `None` if all that is wrong is that something did not end.
    #[must_use]
    pub fn component(&self) -> Option<&str> {
        self.failure.as_ref().map(|(component, _)| component.as_str())
    }

    /// The names of the threads that had not ended when they were given up.
    #[must_use]
    pub fn still_running(&self) -> &[String] {
        &self.still_running
    }
}

impl fmt::Display for ManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((component, error)) = &self.failure {
            // An error about the manager itself has its name already.
            match error.downcast_ref::<StartError>() {
                Some(error) if error.is_about("manager", component) => write!(f, "{error}")?,
                _ => write!(f, "{component}: {error}")?,
            }
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

/// How the log names what is called at the end.
const HOOK: &str = "a hook at the end of a manager";

impl Manager {
    /// Settings for a manager.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }

    /// Adds a component. It is started with the manager, in the order of these calls; or at once, by this call, if that is running.
    ///
    /// # Errors
    ///
    /// If it has no name, there is a component of that name, the manager is stopping or has ended, or it cannot be started. What has been
    /// started of it by then has ended when this returns: watches have stopped, and the queue of a controller is closed.
    pub fn add(&self, component: impl Into<Component>) -> Result<(), StartError> {
        self.inner.add(component.into())
    }

    /// The handle of a controller that has been added.
    ///
    /// # Errors
    ///
    /// If there is no controller of this name, or its keys are of another type.
    pub fn controller<K: Key + Sync + fmt::Debug>(&self, name: &str) -> Result<ControllerHandle<K>, StartError> {
        let entry = self.inner.state.lock().controllers.get(name).cloned();
        let entry = entry.ok_or_else(|| StartError::named("controller", name, "has not been added to the manager"))?;
        let handle = entry.handle.downcast_ref::<ControllerHandle<K>>().cloned();
        handle.ok_or_else(|| StartError::named("controller", name, "has keys of another type"))
    }

    /// A handle of a poller or a watch that has been added: to ask how it is doing, and to have it list right now. A watch that has
    /// been asked for by name has that name. Those of a controller: [`ControllerHandle::sources`].
    ///
    /// # Errors
    ///
    /// If there is no poller or watch of this name, or only one that reads a channel, which lists nothing.
    pub fn source(&self, name: &str) -> Result<SourceHandle, StartError> {
        let source = self.inner.state.lock().sources.get(name).cloned();
        source.ok_or_else(|| {
            StartError::named("source", name, "is no poller or watch that has been added to the manager")
        })
    }

    /// Puts a key of a controller in line; see [`ControllerHandle::enqueue`].
    ///
    /// # Errors
    ///
    /// As [`controller`](Self::controller).
    pub fn enqueue<K: Key + Sync + fmt::Debug>(&self, controller: &str, key: K) -> Result<EnqueueOutcome, StartError> {
        Ok(self.controller(controller)?.enqueue(key))
    }

    /// The clock that it and its controllers go by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// How its threads are made.
    #[cfg(feature = "objects")]
    pub(crate) fn thread_options(&self) -> &ThreadOptions {
        &self.inner.options
    }

    /// Calls `hook` at the end, when everything has ended or been given up; the last one that was added first. Once the manager has
    /// ended, at once. A panic of it is logged.
    pub fn at_end(&self, hook: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.inner.state.lock();
            if state.phase != ManagerPhase::Ended {
                state.at_end.push(Box::new(hook));
                return;
            }
        }
        shielded(HOOK, hook);
    }

    /// Starts everything, and blocks until `stop` is cancelled, something has failed, or [`stop`](Self::stop) is called; then
    /// stops everything, as the type's documentation says. Returns within the grace period and the
    /// [abort grace](ManagerBuilder::abort_grace), by the manager's clock.
    ///
    /// # Errors
    ///
    /// [`ManagerError`], if something has failed (also as it was started), or did not end.
    #[doc(alias = "start")]
    #[doc(alias = "block_on")]
    pub fn run(&self, stop: &CancellationToken) -> Result<(), ManagerError> {
        let course = Course::begin(&self.inner)?;
        let own = self.inner.stop.clone();
        let _stopped = stop.on_cancel(move || own.cancel());
        course.start()?.drive()
    }

    /// Starts everything, and returns: for a thread that has something else to do meanwhile. What [`run`](Self::run) does on the
    /// calling thread, one of its own does from then on: `<name>-driver`.
    ///
    /// # Errors
    ///
    /// If it has been started before, or something cannot be started: everything has been stopped again then.
    pub fn start(&self) -> Result<RunningManager, ManagerError> {
        RunningManager::new(Course::begin(&self.inner)?.start()?)
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
            .field("components", &state.names)
            .field("leading", &state.leading)
            .finish_non_exhaustive()
    }
}
