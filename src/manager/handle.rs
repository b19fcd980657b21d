//! The handle of a manager, and of a running manager.

use std::any::type_name;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::component::IntoComponent;
use super::drive::Driver;
use super::state::{AddObserver, HOOK, ManagerInner, ManagerPhase};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::end::EndHook;
use crate::base::error::{BoxError, EndError, StartError};
use crate::base::running::{Runnable, Running, RunningStatus};
use crate::base::spawn::spawn;
use crate::base::sync::Mutex;
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, ThreadOptions, shielded};
use crate::base::time::Nanos;
use crate::controller::{ControllerHandle, EndedRun, ManagedController};
use crate::queue::{EnqueueOutcome, Key};
use crate::run::gate::GateKey;
use crate::watch::source::SourceHandle;

/// Runs everything in a program: controllers on one shared pool, pollers, watches and functions.
///
/// Components start in the order in which they were added. This type is a cheap handle: all clones are the same
/// manager.
///
/// The first failure of a component stops the others, and [`run`](Self::run) returns it. A stop has two phases:
///
/// 1. All components stop taking work at once, the last one that was added first. No component waits for another: a
///    controller may finish its runs after its watches have stopped. The context of a function is cancelled. All
///    components share one [grace period](crate::manager::ManagerBuilder::shutdown_grace) to finish their work.
/// 2. Components that have not ended are aborted. After the [abort grace](crate::manager::ManagerBuilder::abort_grace)
///    the manager names the threads that still run, and returns without them.
///
/// With an [`Elector`](crate::Elector), controllers and [leading components](crate::Component::when_leading) wait
/// until this process leads. Watches and pollers run from the start. A loss of leadership is a failure, and aborts
/// everything at once.
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
#[must_use = "a manager does nothing until `run`, `run_until_signal` or `start` is called"]
pub struct Manager {
    pub(super) inner: Arc<ManagerInner>,
}

impl Manager {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.settings.name
    }

    /// Adds a component, such as a built controller. Starts it with the manager, or now if the manager runs.
    ///
    /// Components start in the order of these calls.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the name is empty, invalid or taken (a controller and its watch need two names), if
    /// the manager is stopping or has ended, or if the component cannot be started. Everything that the component had
    /// started has ended by then: its watches have stopped, and the queue of a controller is closed.
    pub fn add(&self, component: impl IntoComponent) -> Result<(), StartError> {
        self.inner.add(component.into())
    }

    /// Stops a component and removes it. Returns whether a component has this name. The name is free afterwards.
    ///
    /// Blocks until the component has ended. After `grace`, by the manager's clock, the component is aborted, and this
    /// returns without waiting for it. If several threads remove one component, its abort follows the shortest of their
    /// grace periods, and all get the same answer. A component that is still being started is stopped after its start.
    /// Do not call this on a thread of that component: it would wait for itself.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] with the threads that have not ended after the abort. The manager waits for them at its
    /// own end.
    ///
    /// ```
    /// use homeostat::{Component, Context, Manager};
    /// use std::time::Duration;
    ///
    /// let manager = Manager::builder().build()?;
    /// let running = manager.start()?;
    /// let beat = || Component::function("beat", |cx: &Context| {
    ///     while cx.sleep(Duration::from_secs(1)).is_ok() {}
    ///     Ok::<_, std::io::Error>(())
    /// });
    /// manager.add(beat())?;
    /// assert!(manager.remove("beat", Duration::from_secs(10))?);
    /// manager.add(beat())?; // the name is free
    /// running.shutdown(Duration::from_secs(10))?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn remove(&self, name: &str, grace: Duration) -> Result<bool, EndError> {
        self.inner.remove(name, grace)
    }

    /// Returns the handle of a controller that has been added.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if no controller has this name, or if its keys have another type.
    pub fn controller<K: Key + Sync + fmt::Debug>(&self, name: &str) -> Result<ControllerHandle<K>, StartError> {
        let controller = self.managed(name);
        let controller =
            controller.ok_or_else(|| StartError::named("controller", name, "has not been added to the manager"))?;
        let fault = || format!("has keys of another type than {}", type_name::<K>());
        ControllerHandle::of(controller).ok_or_else(|| StartError::named("controller", name, fault()))
    }

    /// Returns the handle of a poller or watch that has been added.
    ///
    /// The handle shows its status, and starts a listing now. The name of a [named watch](Self::watch) is the name it
    /// was requested by. For the sources of a controller, use [`ControllerHandle::sources`].
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if no poller or watch has this name. A watch that reads a channel lists nothing, and has
    /// no handle here.
    pub fn source(&self, name: &str) -> Result<SourceHandle, StartError> {
        let source = self.inner.state.lock().named(name).and_then(|member| member.facts.source.clone());
        source.ok_or_else(|| {
            StartError::named("source", name, "is no poller or watch that has been added to the manager")
        })
    }

    /// Enqueues a key of a controller; see [`ControllerHandle::enqueue`].
    ///
    /// # Errors
    ///
    /// The errors of [`controller`](Self::controller).
    pub fn enqueue<K: Key + Sync + fmt::Debug>(&self, controller: &str, key: K) -> Result<EnqueueOutcome, StartError> {
        Ok(self.controller(controller)?.enqueue(key))
    }

    /// Calls `visit` for each key of a controller that has failed, is suspended, waits or runs, until it returns
    /// [`ControlFlow::Break`]. Does nothing if there is no such controller.
    ///
    /// It may see a key more than once. Keys are copied in slices of at most 1,024, each under the lock of the queue.
    /// `visit` is called without it, so a key that is enqueued or ends meanwhile may be missing.
    pub fn visit_keys(&self, controller: &str, mut visit: impl FnMut(&dyn GateKey) -> ControlFlow<()>) {
        self.managed(controller).into_iter().for_each(|controller| controller.visit_keys(&mut visit));
    }

    /// Observes the runs of all controllers from now on, including controllers that are added later; see
    /// [`ControllerHandle::observe_runs`](crate::ControllerHandle::observe_runs).
    ///
    /// `new` gets the name of a controller, and returns its observer. A panic of `new` is logged.
    pub fn observe_runs<F>(&self, new: impl Fn(&str) -> F + Send + Sync + 'static)
    where
        F: Fn(&EndedRun<'_>) + Send + Sync + 'static,
    {
        let add: AddObserver = Arc::new(move |name, controller| {
            shielded("the observer of a manager's runs", || controller.observe_runs(Arc::new(new(name))));
        });
        self.inner.observe(&add);
    }

    /// Returns the clock of the manager and its controllers.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Returns the options of the manager's threads.
    #[must_use]
    pub fn thread_options(&self) -> &ThreadOptions {
        &self.inner.settings.pool.options
    }

    /// Registers a hook that runs when the manager ends.
    ///
    /// Hooks run after all components have ended or been given up, the last registered first. If the manager has
    /// already ended, the hook runs now. A panic of a hook is logged.
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

    /// Returns a handle that does not keep the manager.
    #[must_use]
    pub fn downgrade(&self) -> WeakManager {
        WeakManager(Arc::downgrade(&self.inner))
    }

    /// Stops all components. Returns at once.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }

    /// Stops all components and aborts their current work. Returns at once.
    pub fn abort(&self) {
        self.inner.settings.abort.cancel();
    }

    /// Returns whether this process leads: its term has not ended. Without an elector, it leads from the start of the
    /// manager.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        let (term, phase) = {
            let state = self.inner.state.lock();
            (state.term.clone(), state.phase)
        };
        match term {
            // A term that has run out counts as ended before the elector says so.
            Some(term) => term.lasts(),
            None => self.inner.settings.elector.is_none() && phase != ManagerPhase::Idle,
        }
    }

    /// Returns a controller.
    pub(super) fn managed(&self, name: &str) -> Option<Arc<dyn ManagedController>> {
        self.inner.state.lock().named(name)?.facts.controller.clone()
    }

    /// Returns the controllers by name, to be queried without the lock: formatting a key is user code.
    pub(super) fn all_managed(&self) -> Vec<(String, Arc<dyn ManagedController>)> {
        let state = self.inner.state.lock();
        let components = state.components.iter();
        components.filter_map(|member| Some((member.facts.name.clone(), member.facts.controller.clone()?))).collect()
    }
}

impl Manager {
    /// Starts all components, and blocks until the manager stops.
    ///
    /// Cancelling `stop`, a failure of a component and [`stop`](Self::stop) each end it. It then stops all components
    /// in two phases; see [`Manager`]. Returns within the grace period and the [abort
    /// grace](super::ManagerBuilder::abort_grace), by the manager's clock.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] if a component failed to start, failed later, or did not end.
    #[doc(alias = "start")]
    #[doc(alias = "block_on")]
    pub fn run(&self, stop: &CancellationToken) -> Result<(), EndError> {
        let driver = Driver::begin(&self.inner)?;
        let own = self.inner.stop.clone();
        let _stopped = stop.on_cancel(move || own.cancel());
        driver.start()?.drive()
    }

    /// Starts all components and returns a handle. Keep it in a variable: dropping it stops the manager.
    ///
    /// `let _ = manager.start()?;` drops the handle at once: the statement starts the manager, stops it, and waits for
    /// its end. `let _running = manager.start()?;` keeps the handle until the end of the block.
    ///
    /// The thread `<name>-driver` then does the work of [`run`](Self::run). [`join`](Running::join) waits for the end:
    /// a call of [`stop`](Self::stop) or a failure of a component begins it. Do not join on a thread of a component:
    /// the manager would wait for that component, and then give it up.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] if the manager was started before, or if a component cannot be started. All components have
    /// been stopped again by then.
    ///
    /// ```
    /// use homeostat::Manager;
    ///
    /// let manager = Manager::builder().build()?;
    /// let running = manager.start()?;
    /// manager.stop();
    /// running.join()?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn start(&self) -> Result<Running<Self>, EndError> {
        let driver = Driver::begin(&self.inner)?.start()?;
        let inner = Arc::clone(&self.inner);
        let thread = format!("{}-driver", inner.settings.name);
        // If no thread starts, the driver is taken back and ends here.
        let driver = Arc::new(Mutex::new(Some(driver)));
        let task = HandedOver(Arc::clone(&driver));
        match spawn(&inner.settings.pool.options, &inner.clock, thread.clone(), task, &inner.signal) {
            Ok(joiner) => {
                let body = ManagerBody { inner: Arc::clone(&inner), driver: Some(joiner), thread };
                Ok(Running::new(Manager { inner }, body, Duration::MAX))
            }
            Err(error) => {
                inner.fail(&inner.settings.name, StartError::thread(&thread, error));
                let driver = driver.lock().take();
                driver.map_or(Ok(()), Driver::drive).and(Err(inner.not_idle()))
            }
        }
    }
}

/// The driver on its own thread.
struct HandedOver(Arc<Mutex<Option<Driver>>>);

impl Task for HandedOver {
    fn step(&mut self, now: Nanos) -> Next {
        self.0.lock().as_mut().map_or(Next::Finished, |driver| driver.step(now))
    }
}

/// A manager with a driver thread.
struct ManagerBody {
    inner: Arc<ManagerInner>,
    /// The driver thread, until it has been joined.
    driver: Option<Joiner>,
    thread: String,
}

impl ManagerBody {
    fn check_thread(&self) -> Result<(), EndError> {
        let is_current = self.driver.as_ref().is_some_and(Joiner::is_current);
        if is_current { Err(EndError::of_threads([self.thread.as_str()])) } else { Ok(()) }
    }
}

impl Runnable for ManagerBody {
    fn stop(&self) {
        self.inner.stop.cancel();
    }

    fn abort(&self) {
        self.inner.settings.abort.cancel();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        self.check_thread()?;
        if !self.inner.end.wait_until_empty(self.inner.clock.nanos().after(timeout)) {
            return Err(EndError::of_threads([self.thread.as_str()]));
        }
        self.join()
    }

    fn join(&mut self) -> Result<(), EndError> {
        self.check_thread()?;
        self.driver.take().into_iter().for_each(Joiner::join);
        // The error also names threads that the manager has given up.
        self.inner.outcome()
    }

    fn detach(&mut self) {
        self.driver = None;
    }

    fn status(&self) -> RunningStatus {
        let given_up = || self.inner.outcome().err().map(|error| error.still_running().to_vec()).unwrap_or_default();
        let threads = if self.inner.end.is_empty() { given_up() } else { vec![self.thread.clone()] };
        RunningStatus::new(self.inner.settings.name.as_str(), self.inner.is_to_stop(), threads)
    }

    fn on_end(&self, hook: EndHook) {
        self.inner.end.add_hook(&hook, || self.inner.end.is_empty());
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        let error = self.inner.outcome().err().filter(|error| error.component().is_some())?;
        Some(Arc::new(error.into()))
    }

    fn may_end(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "manager"
    }
}

/// A handle that does not keep its manager. A component holds its own manager like this, so that the two do not keep
/// each other.
///
/// # Examples
///
/// ```
/// let manager = homeostat::Manager::builder().name("appliance").build()?;
/// let weak = manager.downgrade();
/// assert_eq!(weak.upgrade().unwrap().name(), "appliance");
/// drop(manager);
/// assert!(weak.upgrade().is_none());
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone)]
pub struct WeakManager(Weak<ManagerInner>);

impl WeakManager {
    /// Returns the manager, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Manager> {
        self.0.upgrade().map(|inner| Manager { inner })
    }
}

impl fmt::Debug for WeakManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakManager").field(&self.upgrade()).finish()
    }
}

impl Clone for Manager {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (leading, components) = (self.is_leading(), self.components());
        let state = self.inner.state.lock();
        f.debug_struct("Manager")
            .field("name", &self.inner.settings.name)
            .field("phase", &state.phase)
            .field("components", &components)
            .field("leading", &leading)
            .finish_non_exhaustive()
    }
}
