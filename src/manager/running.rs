//! A manager that runs: from its start to its end, and on which thread.

use std::sync::Arc;
use std::time::Duration;

use super::drive::Driver;
use super::error::ManagerError;
use super::handle::Manager;
use super::state::{ComponentFailure, HOOK, ManagerInner, ManagerPhase};
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::error::{StartError, StillRunning};
use crate::base::group::Handle;
use crate::base::running::{EndHook, RunPhase, RunStatus, Runnable, Running};
use crate::base::spawn::{run, spawn};
use crate::base::sync::Mutex;
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, shielded};
use crate::base::time::Nanos;
use crate::run::error::Chain;
use crate::run::pool::WorkerPool;

type ManagerOutcome = Result<(), ManagerError>;

impl Manager {
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
        let course = ManagerRun::begin(&self.inner)?;
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
    pub fn start(&self) -> Result<Running<Self>, ManagerError> {
        ManagerRun::begin(&self.inner)?.start()?.run_on_a_thread()
    }
}

impl Running<Manager> {
    /// Blocks until the manager is [stopped](Manager::stop) or a component has failed, and everything has been stopped, as
    /// [`Manager::run`].
    ///
    /// Do not call this from a component: the manager would give up waiting for that component.
    ///
    /// # Errors
    ///
    /// As [`Manager::run`].
    ///
    /// ```
    /// use homeostat::Manager;
    ///
    /// let manager = Manager::builder().build()?;
    /// let running = manager.start()?;
    /// manager.stop();
    /// running.wait()?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn wait(mut self) -> Result<(), ManagerError> {
        Runnable::join(&mut self);
        let inner = &self.inner;
        if !inner.ended.is_open() {
            // This is the driver's own thread.
            return Ok(());
        }
        let outcome = inner.outcome.lock().take();
        outcome.unwrap_or_else(|| {
            let failure = Some((inner.name.clone(), Arc::new("its driver panicked".into())));
            Err(ManagerError { failure, still_running: Vec::new() })
        })
    }
}

/// A manager that runs on a thread of its own.
struct ManagerBody {
    inner: Arc<ManagerInner>,
    /// The thread that drives it, until it has been joined.
    driver: Option<Joiner>,
    thread: String,
}

impl Runnable for ManagerBody {
    fn stop(&self) {
        self.inner.stop.cancel();
    }

    fn abort(&self) {
        self.inner.abort.cancel();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        if self.driver.as_ref().is_some_and(Joiner::is_current) || !self.inner.ended.wait_for(timeout) {
            return Err(StillRunning::new([self.thread.as_str()]));
        }
        if let Some(driver) = self.driver.take() {
            driver.join();
        }
        Ok(())
    }

    fn join(&mut self) {
        if let Some(driver) = self.driver.take_if(|driver| !driver.is_current()) {
            driver.join();
        }
    }

    fn detach(&mut self) {
        self.driver = None;
    }

    fn status(&self) -> RunStatus {
        let ended = self.inner.ended.is_open();
        let threads = if ended { Vec::new() } else { vec![self.thread.clone()] };
        RunStatus::new(self.inner.name.as_str(), RunPhase::of(self.inner.is_to_stop(), &threads), threads)
    }

    fn on_end(&self, hook: EndHook) {
        self.inner.ended.on_set(Box::new(move |_| hook()));
    }

    fn may_end(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "manager"
    }
}

impl Drop for ManagerBody {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.inner.outcome.lock().take() {
            let (manager, shown) = (self.inner.name.as_str(), Chain(&error));
            log::error!(manager, error:% = shown; "{manager}: the manager was dropped and did not end well: {shown}");
        }
    }
}

/// The one course of a manager, from its start to its end. It blocks whatever thread it is on.
pub(super) struct ManagerRun {
    inner: Arc<ManagerInner>,
    pool: Option<Arc<WorkerPool>>,
    elector: Option<Handle>,
}

impl ManagerRun {
    /// There is only one.
    pub(super) fn begin(inner: &Arc<ManagerInner>) -> Result<Self, ManagerError> {
        let components = {
            let mut state = inner.state.lock();
            if state.phase != ManagerPhase::Idle {
                return Err(inner.not_idle());
            }
            state.phase = ManagerPhase::Starting;
            state.leading = inner.elector.is_none();
            state.pending.len()
        };
        let manager = inner.name.as_str();
        log::info!(manager, components; "{manager}: the manager starts, components: {components}");
        Ok(Self { inner: Arc::clone(inner), pool: None, elector: None })
    }

    /// Starts everything. If something cannot be started, everything has ended when this returns.
    pub(super) fn start(mut self) -> Result<Self, ManagerError> {
        let inner = Arc::clone(&self.inner);
        match inner.pool.clone().start() {
            Ok(pool) => {
                let pool = Arc::new(pool);
                inner.state.lock().pool = Some(Arc::clone(&pool));
                inner.start_pending(&pool);
                self.pool = Some(pool);
            }
            Err(error) => inner.fail(&inner.name, &Arc::new(error.into())),
        }
        if !inner.is_to_stop() {
            match inner.elect() {
                Ok(elector) => self.elector = elector,
                Err(error) => inner.fail("elector", &Arc::new(error.into())),
            }
        }
        if inner.has_failed() {
            self.drive()?;
            return Err(inner.not_idle());
        }
        Ok(self)
    }

    /// Runs the manager on a thread of its own.
    pub(super) fn run_on_a_thread(self) -> Result<Running<Manager>, ManagerError> {
        let inner = Arc::clone(&self.inner);
        let thread = format!("{}-driver", inner.name);
        // From here it is taken back if there is no thread for it.
        let course = Arc::new(Mutex::new(Some(self)));
        let driving = Driving {
            driver: Driver::new(Arc::clone(&inner)),
            course: Arc::clone(&course),
            _stops: inner.wake_on_stop(),
        };
        match spawn(&inner.options, &inner.clock, thread.clone(), driving, &inner.signal) {
            Ok(driver) => {
                let body = ManagerBody { inner: Arc::clone(&inner), driver: Some(driver), thread };
                Ok(Running::new(Manager { inner }, body, Duration::MAX))
            }
            Err(error) => {
                inner.fail(&inner.name, &Arc::new(StartError::thread(&thread, error).into()));
                let course = course.lock().take();
                Err(course.and_then(|course| course.drive().err()).unwrap_or_else(|| inner.not_idle()))
            }
        }
    }

    /// Runs it until it is to stop or something has failed, then stops everything, and says how it has ended.
    pub(super) fn drive(self) -> ManagerOutcome {
        let inner = Arc::clone(&self.inner);
        let _stops = inner.wake_on_stop();
        let mut driver = Driver::new(Arc::clone(&inner));
        run(&mut driver, &inner.signal);
        self.end(&mut driver)
    }

    /// Ends what is left once the components have ended, or are given up.
    fn end(mut self, driver: &mut Driver) -> ManagerOutcome {
        let inner = Arc::clone(&self.inner);
        let mut still_running = driver.still_running();
        driver.detach();
        inner.drop_pending();
        self.end_pool(&mut still_running);
        self.end_elector(&mut still_running);
        let (failure, hooks) = {
            let mut state = inner.state.lock();
            state.phase = ManagerPhase::Ended;
            (state.failure.clone(), std::mem::take(&mut state.at_end))
        };
        for hook in hooks.into_iter().rev() {
            shielded(HOOK, hook);
        }
        let (manager, names) = (inner.name.as_str(), still_running.join(", "));
        if still_running.is_empty() {
            log::info!(manager; "{manager}: the manager has ended");
        } else {
            log::warn!(manager, still_running:% = names; "{manager}: the manager gives up; still running: {names}");
        }
        let failure = failure.map(|ComponentFailure { component, error }| (component, error));
        if failure.is_none() && still_running.is_empty() {
            return Ok(());
        }
        Err(ManagerError { failure, still_running })
    }

    /// Ends the pool's threads, but for those that are still in a run.
    fn end_pool(&mut self, still_running: &mut Vec<String>) {
        drop(self.inner.state.lock().pool.take());
        let Some(pool) = self.pool.take() else { return };
        pool.stop();
        // Somebody whose component takes too long to start has it still, and ends it.
        let Some(mut pool) = Arc::into_inner(pool) else { return };
        if still_running.is_empty() {
            pool.shutdown(Duration::ZERO);
        } else if let Err(still) = pool.join_timeout(Duration::ZERO) {
            still_running.extend(still.threads().iter().filter(|name| pool.overdue().contains(name)).cloned());
            still_running.sort();
            still_running.dedup();
            pool.detach();
        }
    }

    /// Gives the leadership back, unless something goes on that must not overlap with what the next leader does: then it goes
    /// with the process.
    fn end_elector(&mut self, still_running: &mut Vec<String>) {
        let Some(mut elector) = self.elector.take() else { return };
        if still_running.is_empty() {
            self.inner.resign.cancel();
        }
        if self.inner.resign.is_cancelled()
            && let Err(still) = elector.join_timeout(self.inner.abort_grace)
        {
            still_running.extend_from_slice(still.threads());
        }
        elector.detach();
    }
}

/// What a manager's driver does on a thread of its own.
struct Driving {
    driver: Driver,
    course: Arc<Mutex<Option<ManagerRun>>>,
    _stops: [OnCancel; 2],
}

impl Task for Driving {
    fn step(&mut self, now: Nanos) -> Next {
        let next = self.driver.step(now);
        if next == Next::Finished {
            let course = self.course.lock().take();
            let ended = course.map(|course| course.end(&mut self.driver));
            *self.driver.inner.outcome.lock() = ended;
        }
        next
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.driver.inner.ended.set(true);
    }
}

impl ManagerInner {
    /// Has the driver look whether it is to stop, or to abort, when it is.
    fn wake_on_stop(&self) -> [OnCancel; 2] {
        [&self.stop, &self.abort].map(|token| {
            let signal = Arc::clone(&self.signal);
            token.on_cancel(move || signal.set())
        })
    }

    fn not_idle(&self) -> ManagerError {
        let error = StartError::named("manager", &self.name, "has already been started");
        let failure = Some((self.name.clone(), Arc::new(error.into())));
        ManagerError { failure, still_running: Vec::new() }
    }
}
