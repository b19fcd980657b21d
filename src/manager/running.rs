//! A running manager: its run on the caller's thread or on its own.

use std::sync::Arc;
use std::time::Duration;

use super::drive::Driver;
use super::handle::Manager;
use super::state::ManagerInner;
use crate::base::cancel::CancellationToken;
use crate::base::end::EndHook;
use crate::base::error::{BoxError, EndError, StartError, StillRunning};
use crate::base::running::{RunPhase, RunStatus, Runnable, Running};
use crate::base::spawn::spawn;
use crate::base::sync::Mutex;
use crate::base::task::{Next, Task};
use crate::base::thread::Joiner;
use crate::base::time::Nanos;

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
        let driver = Driver::begin(&self.inner)?;
        let own = self.inner.stop.clone();
        let _stopped = stop.on_cancel(move || own.cancel());
        driver.start()?.drive()
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
        if is_current { Err(StillRunning::new([self.thread.as_str()]).into()) } else { Ok(()) }
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
            return Err(StillRunning::new([self.thread.as_str()]).into());
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

    fn status(&self) -> RunStatus {
        let given_up = || self.inner.outcome().err().map(|error| error.still_running().to_vec()).unwrap_or_default();
        let threads = if self.inner.end.is_empty() { given_up() } else { vec![self.thread.clone()] };
        RunStatus::new(self.inner.settings.name.as_str(), RunPhase::of(self.inner.is_to_stop(), &threads), threads)
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
