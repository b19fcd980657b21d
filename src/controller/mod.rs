//! Controllers: sources, a queue, a reconciler, and the rules that connect them.

mod builder;
mod failed_keys;
mod handle;
mod job;
mod observers;
mod rate;
mod running;
mod sources;
mod state;
mod status;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiters;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::ControllerBuilder;
pub use self::failed_keys::FailedKey;
pub use self::handle::ControllerHandle;
pub use self::observers::{EndedRun, RunOutcome};
pub use self::running::ControllerError;
pub use self::sources::Sources;
pub(crate) use self::status::ManagedController;
pub use self::status::{ActiveRun, ControllerMetrics, ControllerPhase, ControllerStatus};
pub use self::waiters::WaitError;

use self::job::ControllerJob;
use self::running::{ControlTask, ControllerBody};
use self::sources::SourceStart;
use self::state::{ControllerState, Started, control_thread};
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::base::sync::Mutex;
use crate::base::thread::ThreadOptions;
use crate::queue::Key;
use crate::run::pool::WorkerPool;
use crate::run::reconciler::{Reconciler, RetryPolicy};
use crate::run::runner::Reconcile;

/// A reconciler with its sources of keys and its queue.
///
/// It runs on a [`WorkerPool`]: the pool that a [`Manager`](crate::Manager) shares between controllers, or the pool
/// that you pass to [`start`](Self::start). With [`ControllerBuilder::own_threads`] it has its own pool.
///
/// Its pollers start and stop with it. A watch is a component of its own, because several controllers may use it:
/// [`Manager::watch`](crate::Manager::watch) starts one, and [`Manager::add`](crate::Manager::add) takes one that runs.
///
/// No key runs before the initial listings of all sources are complete. Listed keys are enqueued at low priority, so a
/// change runs before a thousand keys that were only listed.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, Watch, WorkerPool};
/// use std::time::Duration;
///
/// let (vms, disks) = (Watch::<&str, u64>::push(), Watch::<&str, &str>::push());
/// let reconcile = |cx: &Context, vm: &&str| -> Result<Action, BoxError> {
///     log::info!("{vm}: {}", cx.reasons());
///     Ok(Action::await_change())
/// };
/// let controller = Controller::builder("vm", reconcile)
///     .watch(vms.watch(), |event| event.key().copied())
///     .watch(disks.watch(), |event| event.value().copied()) // a disk names its VM
///     .max_concurrent_reconciles(2)
///     .reconcile_timeout(Duration::from_secs(60))
///     .resync(Duration::from_secs(600))
///     .build()?;
///
/// let pool = WorkerPool::builder().threads(4).start()?;
/// let running = controller.start(&pool)?;
/// vms.replace_all([("vm-1", 4)]);
/// disks.replace_all([("disk-1", "vm-1")]);
/// running.wait(&"vm-1", Duration::from_secs(10))?;
/// running.shutdown(Duration::from_secs(30))?;
/// # Ok::<_, BoxError>(())
/// ```
///
/// Dropping a controller before its start closes its queue, because no thread would run its keys. Requests through its
/// [handle](Self::handle) then return [`Closed`](crate::EnqueueOutcome::Closed). The same happens if its start fails,
/// or if a [`Manager`](crate::Manager) refuses it.
#[must_use = "a controller does nothing until `Manager::add` or `start` is called"]
pub struct Controller<K: Key> {
    unstarted: Unstarted<K>,
    start: StartSettings,
    reconcile: Reconcile<K>,
    policy: Box<dyn RetryPolicy<K>>,
    sources: Vec<SourceStart<K>>,
}

/// The settings for the start of a controller.
struct StartSettings {
    debounce: Option<(Duration, Duration)>,
    sync_timeout: Duration,
    own_threads: Option<usize>,
    grace: Duration,
    options: Option<ThreadOptions>,
}

/// The state of a controller. Its drop stops the controller, unless `started`: then a [`Running`] stops it.
struct Unstarted<K: Key> {
    state: Arc<ControllerState<K>>,
    started: bool,
}

impl<K: Key> Drop for Unstarted<K> {
    fn drop(&mut self) {
        if !self.started {
            self.state.stop();
        }
    }
}

impl<K: Key + Sync + fmt::Debug> Controller<K> {
    /// Returns a builder with the default settings.
    ///
    /// `name` appears in the names of the queue and the threads, in metrics and in log lines. It must be unique in a
    /// manager.
    ///
    /// `reconciler` may be a closure with its types written out, as in `|cx: &Context, key: &String| ->
    /// Result<Action, BoxError> { … }`. Without them, `rustc` reports that it cannot infer `E`, or that the closure is
    /// *not general enough*. [`Reconciler`] lists such errors, and how to mend them.
    #[doc(alias = "reconciler")]
    pub fn builder<R: Reconciler<K> + 'static>(name: impl Into<String>, reconciler: R) -> ControllerBuilder<K> {
        ControllerBuilder::new(name.into(), reconciler)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.unstarted.state.name
    }

    /// Returns a handle. It works before the start and after the end.
    #[must_use]
    pub fn handle(&self) -> ControllerHandle<K> {
        ControllerHandle::new(Arc::clone(&self.unstarted.state))
    }

    pub(crate) fn managed(&self) -> Arc<dyn ManagedController> {
        Arc::clone(&self.unstarted.state) as _
    }

    /// Starts the sources, and runs the keys on `pool`. Returns without waiting for the initial listings.
    ///
    /// A controller with [its own threads](ControllerBuilder::own_threads) does not use `pool`.
    ///
    /// A `shutdown` of the returned handle waits for every active run. If the stop must end in time, add the controller
    /// to a [`Manager`](crate::Manager): it gives up after its abort grace.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if a source cannot be started, if the pool has another clock or has been stopped, or if
    /// the system refuses a thread. Everything that had started by then has ended.
    pub fn start(self, pool: &WorkerPool) -> Result<Running<ControllerHandle<K>>, StartError> {
        self.start_as(pool, true, &ThreadOptions::new())
    }

    /// Starts like [`start`](Self::start). Unless `leading`, keys run only after [`ManagedController::lead`]. A
    /// controller without thread options uses `inherited`.
    pub(crate) fn start_as(
        self,
        pool: &WorkerPool,
        leading: bool,
        inherited: &ThreadOptions,
    ) -> Result<Running<ControllerHandle<K>>, StartError> {
        let Self { mut unstarted, start, reconcile, policy, sources } = self;
        let StartSettings { debounce, sync_timeout, own_threads, grace, options } = start;
        let state = Arc::clone(&unstarted.state);
        let options = options.unwrap_or_else(|| inherited.clone());
        let name = state.name.as_str();
        let own = |threads| WorkerPool::builder().name(name).threads(threads).clock(state.clock.clone());
        let own_pool = own_threads.map(|threads| own(threads).thread_options(options.clone()).start()).transpose()?;
        let pool = own_pool.as_deref().unwrap_or(pool);
        if !pool.clock().is(&state.clock) {
            return Err(StartError::named("controller", name, "has another clock than its pool"));
        }
        if pool.is_stopping() {
            return Err(StartError::named("pool", pool.name(), "has been stopped"));
        }
        let refused = |error| StartError::thread(&format!("{name}-timer"), error);
        state.queue.shared.use_timer(&pool.timer).map_err(refused)?;
        let started = {
            // Locked, so that a change of the limit either happens before the start or reaches the pool.
            let max_concurrent = state.max_concurrent.lock();
            let membership = pool.pool.join(ControllerJob::new(&state, reconcile, policy), *max_concurrent);
            let part = Mutex::new(Some(state.end.part()));
            let started = Started { part, membership, control: pool.timer.waker(), debounce, options };
            Arc::clone(state.started.get_or_init(|| Arc::new(started)))
        };
        state.set_conditions(|conditions| conditions.leading = leading);
        let count = sources.len();
        log::info!(controller = name, sources = count; "{name}: the controller starts, sources: {count}");
        let mut body =
            ControllerBody { state: Arc::clone(&state), started: Arc::clone(&started), control: None, own_pool };
        unstarted.started = true;
        let sources = sources.into_iter().try_for_each(|start| state.start_source(&started, start).map(drop));
        let control = sources.and_then(|()| {
            let now = state.clock.nanos();
            let task = ControlTask {
                state: Arc::clone(&state),
                sync_timeout,
                sync_until: now.after(sync_timeout),
                resynced: now,
            };
            let thread = control_thread(name);
            started.control.add(&thread, task).map_err(|error| StartError::thread(&thread, error))
        });
        // After an error, a drop of the handle ends the running parts.
        let failed = control.map(|joiner| body.control = Some(joiner)).err();
        let running = Running::new(ControllerHandle::new(state), body, grace);
        failed.map_or(Ok(running), Err)
    }
}

impl<K: Key> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.unstarted.state.name)
            .field("sources", &self.sources.len())
            .field("max_concurrent_reconciles", &*self.unstarted.state.max_concurrent.lock())
            .field("reconcile_timeout", &self.unstarted.state.timeout)
            .finish_non_exhaustive()
    }
}
