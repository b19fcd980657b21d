//! A manager that runs: from its start to its end, and on which thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::drive::Driver;
use super::{Failure, HOOK, Inner, ManagerError, ManagerPhase};
use crate::base::cancel::OnCancel;
use crate::base::error::StartError;
use crate::base::group::Handle;
use crate::base::spawn::{run, spawn};
use crate::base::sync::Mutex;
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, shielded};
use crate::base::time::Nanos;
use crate::run::error::Chain;
use crate::run::pool::WorkerPool;

/// A manager that runs. Dropping it stops everything, as [`wait`](Self::wait) does in the end. On a thread of one of the manager's
/// own components both wait for that thread too, in vain: they return when it has been given up.
///
/// # Examples
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
#[must_use = "dropping it stops the manager"]
pub struct RunningManager {
    inner: Arc<Inner>,
    /// The thread that drives it, until it has been joined.
    driver: Option<Joiner>,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

type Outcome = Result<(), ManagerError>;

impl RunningManager {
    pub(super) fn new(course: Course) -> Result<Self, ManagerError> {
        let (inner, outcome) = (Arc::clone(&course.inner), Arc::new(Mutex::new(None::<Outcome>)));
        let name = format!("{}-driver", inner.name);
        // Where it is taken from again if there is no thread for it.
        let course = Arc::new(Mutex::new(Some(course)));
        let driving = Driving {
            driver: Driver::new(Arc::clone(&inner)),
            course: Arc::clone(&course),
            outcome: Arc::clone(&outcome),
            _stops: inner.wake_on_stop(),
        };
        match spawn(&inner.options, &inner.clock, name.clone(), driving, &inner.signal) {
            Ok(driver) => Ok(Self { inner, driver: Some(driver), outcome }),
            Err(error) => {
                inner.fail(&inner.name, &Arc::new(StartError::thread(&name, error).into()));
                let course = course.lock().take();
                Err(course.and_then(|course| course.drive().err()).unwrap_or_else(|| inner.not_idle()))
            }
        }
    }

    /// Blocks until the manager is [stopped](super::Manager::stop) or something has failed, and everything has been stopped, as
    /// [`Manager::run`](super::Manager::run).
    ///
    /// # Errors
    ///
    /// As [`Manager::run`](super::Manager::run).
    pub fn wait(mut self) -> Result<(), ManagerError> {
        self.join()
    }

    /// Returns at once on the driver's own thread.
    fn join(&mut self) -> Outcome {
        let Some(driver) = self.driver.take().filter(|driver| !driver.is_current()) else { return Ok(()) };
        driver.join();
        self.outcome.lock().take().unwrap_or_else(|| {
            let failure = Some((self.inner.name.clone(), Arc::new("its driver panicked".into())));
            Err(ManagerError { failure, still_running: Vec::new() })
        })
    }
}

impl Drop for RunningManager {
    fn drop(&mut self) {
        if self.driver.is_some() {
            self.inner.stop.cancel();
        }
        if let Err(error) = self.join() {
            let (manager, shown) = (self.inner.name.as_str(), Chain(&error));
            log::error!(manager, error:% = shown; "{manager}: the manager was dropped and did not end well: {shown}");
        }
    }
}

impl fmt::Debug for RunningManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningManager").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// The one course of a manager, from its start to its end. It blocks whatever thread it is on.
pub(super) struct Course {
    inner: Arc<Inner>,
    pool: Option<Arc<WorkerPool>>,
    elector: Option<Handle>,
}

impl Course {
    /// There is only one.
    pub(super) fn begin(inner: &Arc<Inner>) -> Result<Self, ManagerError> {
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

    /// Runs it until it is to stop or something has failed, then stops everything, and says how it has ended.
    pub(super) fn drive(self) -> Outcome {
        let inner = Arc::clone(&self.inner);
        let _stops = inner.wake_on_stop();
        let mut driver = Driver::new(Arc::clone(&inner));
        run(&mut driver, &inner.signal);
        self.end(&mut driver)
    }

    /// Ends what is left once the components have ended, or are given up.
    fn end(mut self, driver: &mut Driver) -> Outcome {
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
        let failure = failure.map(|Failure { component, error }| (component, error));
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
    course: Arc<Mutex<Option<Course>>>,
    outcome: Arc<Mutex<Option<Outcome>>>,
    _stops: [OnCancel; 2],
}

impl Task for Driving {
    fn step(&mut self, now: Nanos) -> Next {
        let next = self.driver.step(now);
        if next == Next::Finished {
            let course = self.course.lock().take();
            let ended = course.map(|course| course.end(&mut self.driver));
            *self.outcome.lock() = ended;
        }
        next
    }
}

impl Inner {
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
