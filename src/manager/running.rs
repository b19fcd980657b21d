//! A manager that runs: its elector, its driver, and the order in which they end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::drive::Driver;
use super::{Failure, Inner, ManagerError, Phase};
use crate::cancel::CancellationToken;
use crate::crew::{Crew, Handle};
use crate::elector::Elector;
use crate::error::StartError;
use crate::pool::WorkerPool;
use crate::reconcile::context::Context;
use crate::thread::shielded;
use crate::wait::run;

/// A manager that runs. Dropping it stops everything, as [`wait`](Self::wait) does in the end.
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
    pub(super) pool: Option<Arc<WorkerPool>>,
    elector: Option<(Handle, CancellationToken)>,
    ended: bool,
}

impl RunningManager {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, pool: None, elector: None, ended: false }
    }

    /// Campaigns on a thread of its own, and looks after the term.
    pub(super) fn elect(&mut self) -> Result<(), StartError> {
        let Some(elector) = self.inner.elector.clone() else { return Ok(()) };
        let resign = CancellationToken::new();
        let crew = Crew::new(format!("{}-elector", self.inner.name), self.inner.clock.clone(), 1, |_| {});
        let mut campaign = Some((Arc::clone(&self.inner), resign.clone()));
        let body = |_seat| {
            let (campaign, elector) = (campaign.take(), Arc::clone(&elector));
            move || {
                if let Some((inner, resign)) = campaign {
                    inner.lead(&*elector, &resign);
                }
            }
        };
        let joiners = crew.start(&self.inner.options, body, None)?;
        let stop = resign.clone();
        let handle = Handle::new(crew, joiners, Box::new(move || stop.cancel()), Duration::MAX);
        self.elector = Some((handle, resign));
        Ok(())
    }

    /// Blocks until the manager is [stopped](Manager::stop) or something has failed; then stops everything, as [`Manager::run`].
    ///
    /// # Errors
    ///
    /// As [`Manager::run`].
    pub fn wait(mut self) -> Result<(), ManagerError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ManagerError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let signal = Arc::clone(&inner.signal);
        let (stopped, aborted) = (Arc::clone(&signal), Arc::clone(&signal));
        let _stopped = inner.stop.on_cancel(move || stopped.set());
        let _aborted = inner.abort.on_cancel(move || aborted.set());
        let mut driver = Driver::new(Arc::clone(&inner));
        run(&mut driver, &signal);
        let mut still_running = driver.still_running();
        for member in driver.members.drain(..) {
            member.part.detach();
        }
        self.end_pool(&mut still_running);
        if let Some((mut handle, resign)) = self.elector.take() {
            if still_running.is_empty() {
                resign.cancel();
                handle.join();
            } else {
                // What goes on must not overlap with what the next leader does: the leadership goes with the process.
                handle.detach();
            }
        }
        let (failure, hooks) = {
            let mut state = inner.state.lock();
            state.phase = Phase::Ended;
            state.crews.clear();
            (state.failure.take(), std::mem::take(&mut state.at_end))
        };
        for hook in hooks.into_iter().rev() {
            shielded("a hook at the end of a manager", hook);
        }
        log::info!(manager = inner.name.as_str(), still_running:?; "the manager has ended");
        let failure = failure.map(|Failure { unit, error }| (unit, error));
        if failure.is_none() && still_running.is_empty() {
            return Ok(());
        }
        Err(ManagerError { failure, still_running })
    }

    /// Ends the pool's threads, but for those that are still in a run.
    fn end_pool(&mut self, still_running: &mut Vec<String>) {
        let shared = self.inner.state.lock().pool.take().and_then(|(_, pool)| pool);
        drop(shared);
        // Somebody who adds a unit at this moment may hold it a little longer.
        let Some(mut pool) = self.pool.take().and_then(Arc::into_inner) else { return };
        pool.stop();
        if still_running.is_empty() {
            pool.shutdown(Duration::ZERO);
        } else if let Err(still) = pool.join_timeout(Duration::ZERO) {
            still_running.extend(still.threads().iter().filter(|name| pool.overdue().contains(name)).cloned());
            still_running.sort();
            still_running.dedup();
            pool.detach();
        }
    }
}

impl Inner {
    /// The body of the elector's thread.
    fn lead(self: &Arc<Self>, elector: &dyn Elector, resign: &CancellationToken) {
        let cx = Context::detached_with(self.clock.clone(), resign.clone());
        let mut term = match elector.campaign(&cx) {
            Ok(term) => term,
            Err(error) if error.is_cancelled() => return,
            Err(error) => return self.fail("elector", &Arc::new(error.into())),
        };
        self.state.lock().leading = true;
        self.signal.set();
        loop {
            if let Err(lost) = term.check() {
                {
                    let mut state = self.state.lock();
                    state.leading = false;
                    state.lost = true;
                }
                return self.fail("elector", &Arc::new(lost.into()));
            }
            if cx.sleep(term.check_interval()).is_err() {
                // Everything has ended: the term is given back.
                return;
            }
        }
    }
}

impl Drop for RunningManager {
    fn drop(&mut self) {
        if !self.ended {
            self.inner.stop.cancel();
            if let Err(error) = self.end() {
                log::error!(manager = self.inner.name.as_str(), error:%; "a manager that was dropped did not end well");
            }
        }
    }
}

impl fmt::Debug for RunningManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningManager").field("name", &self.inner.name).finish_non_exhaustive()
    }
}
