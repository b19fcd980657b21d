//! Controllers: sources, a queue, a reconciler, and the rules between them.

mod book;
mod builder;
mod core;
#[cfg(feature = "metrics")]
mod export;
mod failed;
mod handle;
mod keeper;
mod rate;
mod source;
mod status;
mod troubles;
mod waiting;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub use self::book::{RunFailure, RunOutcome, WaitError};
pub use self::builder::ControllerBuilder;
pub use self::handle::{ControllerHandle, RunningController};
pub use self::keeper::ControllerError;
pub use self::source::Sources;
pub(crate) use self::status::ControllerHealth;
pub use self::status::{ControllerMetrics, ControllerPhase, ControllerStatus, RunningKey};
pub use self::troubles::FailedKey;

use self::core::Common;
use self::keeper::ControllerThread;
use self::source::{Start, Target, with_name_of_its_own};
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::thread::ThreadOptions;
use crate::base::wait::{AutoResetEvent, Stepping};
use crate::queue::Key;
use crate::run::pool::{Job, WorkerPool};
use crate::run::reconciler::Reconciler;

/// A controller: where keys come from, their queue, what is done for each, and the rules between them.
///
/// It runs on a [`WorkerPool`], shared with others by a [`Manager`](crate::Manager) or given to [`start`](Self::start), or on
/// threads of its own ([`ControllerBuilder::own_threads`]).
///
/// No key is run before the initial listing of every source is in; what comes from them goes in line at low priority, so that a
/// change is served before a thousand keys that have only been listed.
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
/// running.shutdown(Duration::from_secs(30));
/// # Ok::<_, BoxError>(())
/// ```
///
/// Dropping a controller that has not been started closes its queue, because nothing would run its keys: requests by its
/// [handle](Self::handle) answer [`Closed`](crate::EnqueueOutcome::Closed). The same holds if it cannot be started, or if a
/// [`Manager`](crate::Manager) refuses it.
#[must_use = "a controller does nothing until it is started"]
pub struct Controller<K: Key> {
    common: Unstarted<K>,
    job: Arc<dyn Job>,
    sources: Vec<Start<K>>,
    debounce: Option<(Duration, Duration)>,
    sync_timeout: Duration,
    own_threads: Option<usize>,
    grace: Duration,
    options: Option<ThreadOptions>,
}

/// The common part of a controller that nothing runs yet. Dropped before [`started`](Self::started), it stops the controller.
struct Unstarted<K: Key> {
    common: Arc<Common<K>>,
    started: bool,
}

impl<K: Key> Unstarted<K> {
    fn new(common: Arc<Common<K>>) -> Self {
        Self { common, started: false }
    }

    /// A [`RunningController`] stops it from now on.
    fn started(mut self) {
        self.started = true;
    }
}

impl<K: Key> Deref for Unstarted<K> {
    type Target = Arc<Common<K>>;

    fn deref(&self) -> &Arc<Common<K>> {
        &self.common
    }
}

impl<K: Key> Drop for Unstarted<K> {
    fn drop(&mut self) {
        if !self.started {
            self.common.stop();
        }
    }
}

impl<K: Key + Sync + fmt::Debug> Controller<K> {
    /// Settings for a controller. `name` is that of its queue, its metrics, its log lines and its threads; of all controllers of a
    /// manager each has its own.
    pub fn builder<R: Reconciler<K> + 'static>(name: impl Into<String>, reconciler: R) -> ControllerBuilder<K, R> {
        ControllerBuilder::new(name.into(), reconciler)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.common.name
    }

    /// What the rest of the program has of it: also before it is started, and after it has ended.
    #[must_use]
    pub fn handle(&self) -> ControllerHandle<K> {
        ControllerHandle::new(Arc::clone(&self.common))
    }

    /// Starts its sources, and has `pool` run its keys, unless it has [threads of its own](ControllerBuilder::own_threads).
    /// Returns without waiting for the initial listings.
    ///
    /// # Errors
    ///
    /// If a source cannot be started, or goes by another clock than the pool, or the system gives no thread. What has been
    /// started by then has ended when this returns.
    pub fn start(self, pool: &WorkerPool) -> Result<RunningController<K>, StartError> {
        self.start_as(pool, true, &ThreadOptions::new())
    }

    /// As [`start`](Self::start); no key is run before it is told that this process leads, unless it does already. A
    /// controller without thread options of its own uses `inherited`.
    pub(crate) fn start_as(
        self,
        pool: &WorkerPool,
        leading: bool,
        inherited: &ThreadOptions,
    ) -> Result<RunningController<K>, StartError> {
        let Self { common: unstarted, job, sources, debounce, sync_timeout, own_threads, grace, options } = self;
        let common = Arc::clone(&unstarted);
        let options = options.unwrap_or_else(|| inherited.clone());
        common.queue.shared.set_threads(&options);
        let name = common.name.as_str();
        let own_pool = match own_threads {
            None => None,
            Some(threads) => {
                let own = WorkerPool::builder().name(name).threads(threads).clock(common.clock.clone());
                Some(own.thread_options(options.clone()).start()?)
            }
        };
        let pool = own_pool.as_ref().unwrap_or(pool);
        if !pool.clock().is(&common.clock) {
            return Err(StartError::setting("clock", &name, "the same for a controller and its pool"));
        }
        #[cfg(feature = "metrics")]
        let _ = common.exporter.set(export::Exporter::new(name));
        let max_concurrent = *common.max_concurrent.lock();
        let membership = Arc::new(pool.pool.join(job, max_concurrent));
        let crew = ThreadGroup::new(ThreadGroupKind::Controller, format!("{name}-keeper"), common.clock.clone(), 1);
        let signal = AutoResetEvent::new(common.clock.clone());
        let _ = common.membership.set(Arc::clone(&membership));
        let changed = Arc::clone(&signal);
        let _ = common.changed.set(Box::new(move || changed.set()));
        common.set_doors(|doors| doors.leading = leading);
        let count = sources.len();
        log::info!(controller = name, sources = count; "{name}: the controller starts, sources: {count}");
        let nudged = Arc::clone(&signal);
        let mut running = RunningController::new(
            ControllerHandle::new(Arc::clone(&common)),
            membership,
            Handle::new(Arc::clone(&crew), Vec::new(), Box::new(move || nudged.set()), grace),
            own_pool,
            grace,
        );
        unstarted.started();
        let mut missing = Vec::with_capacity(sources.len());
        for (number, start) in sources.into_iter().enumerate() {
            let thread_name = format!("{name}-source-{number}");
            let target = Target { queue: &common.queue, controller: name, thread_name, debounce, options: &options };
            // An error drops what runs already, which stops it.
            let (source, handle) = start(&target)?;
            let handle = with_name_of_its_own(handle, &missing);
            let told = Arc::clone(&signal);
            handle.synced().on_settled(Box::new(move |_| told.set()));
            missing.push(handle.clone());
            let handed_over = Arc::clone(&common.book);
            source.on_progress(Box::new(move || handed_over.settle()));
            common.sources.lock().push(source);
            common.source_handles.lock().push(handle);
        }
        let now = common.clock.nanos();
        let keeper = ControllerThread {
            crew: Arc::clone(&crew),
            common: Arc::clone(&common),
            missing,
            sync_timeout,
            sync_until: now.after(sync_timeout),
            resynced: now,
            synced: false,
        };
        let joiners = crew.start_one(&options, Stepping::new(keeper, &signal), None)?;
        running.keep(joiners);
        Ok(running)
    }
}

impl<K: Key> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.common.name)
            .field("sources", &self.sources.len())
            .field("max_concurrent_reconciles", &*self.common.max_concurrent.lock())
            .field("reconcile_timeout", &self.common.timeout)
            .finish_non_exhaustive()
    }
}
