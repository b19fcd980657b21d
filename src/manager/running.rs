//! A running manager, from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use super::drive::Driver;
use super::handle::Manager;
use super::state::{ComponentFailure, HOOK, ManagerInner, ManagerPhase};
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::end::{EndHook, EndPart};
use crate::base::error::{EndError, StartError, StillRunning};
use crate::base::running::{RunPhase, RunStatus, Runnable, Running};
use crate::base::spawn::{run, spawn};
use crate::base::sync::Mutex;
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, shielded, unless_it_panics};
use crate::base::time::Nanos;
use crate::run::error::BoxError;
use crate::run::pool::WorkerPool;

type ManagerOutcome = Result<(), EndError>;

impl Manager {
    /// Starts all components, and blocks until the manager stops.
    ///
    /// Cancelling `stop`, a failure of a component and [`stop`](Self::stop) each end it. It then stops all components in two
    /// phases; see [`Manager`]. Returns within the grace period and the [abort grace](super::ManagerBuilder::abort_grace), by the
    /// manager's clock.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] if a component failed to start, failed later, or did not end.
    #[doc(alias = "start")]
    #[doc(alias = "block_on")]
    pub fn run(&self, stop: &CancellationToken) -> Result<(), EndError> {
        let run = ManagerRun::begin(&self.inner)?;
        let own = self.inner.stop.clone();
        let _stopped = stop.on_cancel(move || own.cancel());
        run.start()?.drive()
    }

    /// Starts all components and returns. Does not block until the end.
    ///
    /// The thread `<name>-driver` then does the work of [`run`](Self::run). [`join`](Running::join) waits for the end: a call of
    /// [`stop`](Self::stop) or a failure of a component begins it. Do not join on a thread of a component: the manager would wait for
    /// that component, and then give it up.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] if the manager was started before, or if a component cannot be started. All components have been
    /// stopped again by then.
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
        ManagerRun::begin(&self.inner)?.start()?.run_on_a_thread()
    }
}

impl ManagerInner {
    /// Returns the outcome of the driver thread. `Ok` before its end.
    fn outcome(&self) -> ManagerOutcome {
        if !self.end.is_empty() {
            return Ok(());
        }
        let outcome = self.outcome.lock().clone();
        outcome.unwrap_or_else(|| Err(EndError::failed(&self.name, Arc::new("its driver panicked".into()))))
    }
}

/// A manager on its own driver thread.
struct ManagerBody {
    inner: Arc<ManagerInner>,
    /// The driver thread, until it has been joined.
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

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        if self.driver.as_ref().is_some_and(Joiner::is_current)
            || !self.inner.end.wait_until_empty(self.inner.clock.nanos().after(timeout))
        {
            return Err(StillRunning::new([self.thread.as_str()]).into());
        }
        if let Some(driver) = self.driver.take() {
            driver.join();
        }
        // The error also names threads that the manager has given up.
        self.inner.outcome()
    }

    fn join(&mut self) -> Result<(), EndError> {
        if let Some(driver) = self.driver.take_if(|driver| !driver.is_current()) {
            driver.join();
        }
        if self.driver.is_some() { Err(StillRunning::new([self.thread.as_str()]).into()) } else { self.inner.outcome() }
    }

    fn detach(&mut self) {
        self.driver = None;
    }

    fn status(&self) -> RunStatus {
        let ended = self.inner.end.is_empty();
        let given_up = || self.inner.outcome().err().map(|error| error.still_running().to_vec()).unwrap_or_default();
        let threads = if ended { given_up() } else { vec![self.thread.clone()] };
        RunStatus::new(self.inner.name.as_str(), RunPhase::of(self.inner.is_to_stop(), &threads), threads)
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

/// One run of a manager, from start to end. Blocks the thread that drives it.
pub(super) struct ManagerRun {
    inner: Arc<ManagerInner>,
    driver: Driver,
    pool: Option<Arc<Running<WorkerPool>>>,
    elector: Option<Running<()>>,
}

impl ManagerRun {
    /// Begins the only run of a manager. Fails if it has begun before.
    pub(super) fn begin(inner: &Arc<ManagerInner>) -> Result<Self, EndError> {
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
        Ok(Self { inner: Arc::clone(inner), driver: Driver::new(Arc::clone(inner)), pool: None, elector: None })
    }

    /// Starts everything. On an error, everything has ended again.
    pub(super) fn start(mut self) -> Result<Self, EndError> {
        let inner = Arc::clone(&self.inner);
        match inner.pool.clone().start() {
            Ok(pool) => {
                let pool = Arc::new(pool);
                inner.state.lock().pool = Some(Arc::clone(&pool));
                inner.start_pending(&pool, || {
                    self.driver.take_over();
                    self.driver.reap();
                });
                self.pool = Some(pool);
            }
            Err(error) => inner.fail(&inner.name, &Arc::new(error.into())),
        }
        if !inner.is_to_stop() {
            match inner.elect() {
                Ok(elector) => self.elector = elector,
                Err(error) => inner.fail("elector", &Arc::new(error)),
            }
        }
        if inner.has_failed() {
            self.drive()?;
            return Err(inner.not_idle());
        }
        Ok(self)
    }

    /// Runs the manager on a driver thread.
    pub(super) fn run_on_a_thread(self) -> Result<Running<Manager>, EndError> {
        let inner = Arc::clone(&self.inner);
        let thread = format!("{}-driver", inner.name);
        // If no thread starts, this run is taken back and ends here.
        let manager_run = Arc::new(Mutex::new(Some(self)));
        let (handed_over, stops) = (Arc::clone(&manager_run), inner.wake_on_stop());
        let driving =
            Driving { inner: Arc::clone(&inner), handed_over, run: None, _stops: stops, _part: inner.end.part() };
        match spawn(&inner.pool.options, &inner.clock, thread.clone(), driving, &inner.signal) {
            Ok(driver) => {
                let body = ManagerBody { inner: Arc::clone(&inner), driver: Some(driver), thread };
                Ok(Running::new(Manager { inner }, body, Duration::MAX))
            }
            Err(error) => {
                inner.fail(&inner.name, &Arc::new(StartError::thread(&thread, error).into()));
                let manager_run = manager_run.lock().take();
                Err(manager_run.and_then(|run| run.drive().err()).unwrap_or_else(|| inner.not_idle()))
            }
        }
    }

    /// Runs until a stop or a failure, then stops everything. Returns the outcome.
    pub(super) fn drive(mut self) -> ManagerOutcome {
        let inner = Arc::clone(&self.inner);
        let _stops = inner.wake_on_stop();
        run(&mut self.driver, &inner.signal);
        self.end()
    }

    /// Cleans up after the components have ended or been given up.
    fn end(mut self) -> ManagerOutcome {
        let inner = Arc::clone(&self.inner);
        let mut still_running = self.driver.still_running();
        self.driver.detach();
        inner.drop_pending();
        self.end_pool(&mut still_running);
        self.end_elector(&mut still_running);
        if inner.state.lock().lost && !inner.has_failed() {
            // The elector's thread hangs, so it cannot report the cause.
            inner.fail("elector", &Arc::new("the leadership is lost: its check does not return".into()));
        }
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
        EndError::unless_well(failure, still_running)
    }

    /// Ends the pool's threads, except those that are still in a run.
    fn end_pool(&mut self, still_running: &mut Vec<String>) {
        drop(self.inner.state.lock().pool.take());
        let Some(pool) = self.pool.take() else { return };
        let mut pool = match Arc::try_unwrap(pool) {
            Ok(pool) => pool,
            // A caller of `add` still starts its component, holds the pool, and ends it.
            Err(shared) => return shared.stop(),
        };
        if still_running.is_empty() {
            drop(pool.shutdown(Duration::ZERO));
            return;
        }
        pool.stop();
        if let Err(still) = pool.join_timeout(Duration::ZERO) {
            still_running.extend(still.still_running().iter().filter(|name| pool.overdue().contains(name)).cloned());
            still_running.sort();
            still_running.dedup();
            pool.detach();
        }
    }

    /// Resigns, unless threads still run: their work must not overlap with the next leader's. The leadership then ends with the
    /// process.
    fn end_elector(&mut self, still_running: &mut Vec<String>) {
        let Some(mut elector) = self.elector.take() else { return };
        if still_running.is_empty() {
            self.inner.resign.cancel();
        }
        let longest_call = || Ok(self.inner.elector.as_ref().map(|elector| elector.longest_call()).unwrap_or_default());
        let longest_call = unless_it_panics(longest_call).unwrap_or_default();
        if self.inner.resign.is_cancelled()
            && let Err(still) = elector.join_timeout(self.inner.abort_grace.max(longest_call.saturating_mul(2)))
        {
            still_running.extend_from_slice(still.still_running());
        }
        elector.detach();
    }
}

/// The task of a manager's driver thread.
struct Driving {
    inner: Arc<ManagerInner>,
    /// The run, until the first step takes it.
    handed_over: Arc<Mutex<Option<ManagerRun>>>,
    run: Option<ManagerRun>,
    _stops: [OnCancel; 2],
    /// Dropped last: the manager has ended then.
    _part: EndPart,
}

impl Task for Driving {
    fn step(&mut self, now: Nanos) -> Next {
        if self.run.is_none() {
            self.run = self.handed_over.lock().take();
        }
        let next = self.run.as_mut().map_or(Next::Finished, |run| run.driver.step(now));
        if next == Next::Finished {
            let ended = self.run.take().map(ManagerRun::end);
            *self.inner.outcome.lock() = ended;
        }
        next
    }
}

impl ManagerInner {
    /// Wakes the driver when the manager is stopped or aborted.
    fn wake_on_stop(&self) -> [OnCancel; 2] {
        [&self.stop, &self.abort].map(|token| {
            let signal = Arc::clone(&self.signal);
            token.on_cancel(move || signal.set())
        })
    }

    fn not_idle(&self) -> EndError {
        let error = StartError::named("manager", &self.name, "has already been started");
        EndError::failed(&self.name, Arc::new(error.into()))
    }
}
