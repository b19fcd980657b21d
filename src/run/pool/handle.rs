//! The handle of a worker pool, and its spare threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Pool, PoolTask, SlotState};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{SeenRun, ThreadGroup, ThreadGroupKind, WorkerSlot};
use crate::base::running::Running;
use crate::base::sync::atomic::Ordering::AcqRel;
use crate::base::task::Task;
use crate::base::task_thread::TaskThread;
use crate::base::thread::ThreadOptions;
use crate::run::error::Chain;

/// A bounded pool of worker threads that controllers share. Dropping it stops it and joins its threads.
///
/// The controllers also share a thread for time: it ends delays, cancels runs and polls at their deadlines, and waits
/// for initial listings. It runs none of your code: callbacks of cancelled runs and reports of overruns have threads of
/// their own, which end after the call.
///
/// A pool is fair: new work of a controller waits for at most one key of each other controller, however many keys are
/// queued. [`max_concurrent_reconciles`](crate::controller::ControllerBuilder::max_concurrent_reconciles) limits the
/// threads that run keys of one controller at once.
///
/// A run that blocks keeps its thread. Do not let runs [wait](crate::ControllerHandle::wait) for keys of another
/// controller of the pool: they can occupy all threads and then never end.
///
/// # Stuck runs
///
/// A run that is still active 100 ms after its deadline keeps its key and its thread, because threads cannot be killed.
/// It is reported while it runs. If a [spare](WorkerPoolBuilder::spares) thread is available, it takes the place of the
/// stuck one. When the run returns, the pool has its original size again.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().threads(4).start()?;
/// let reconcile = |_cx: &Context, vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let vms = Controller::builder("vm", reconcile).build()?.start(&pool)?;
/// vms.enqueue("vm-1");
/// vms.shutdown(Duration::from_secs(30))?;
/// # Ok::<_, BoxError>(())
/// ```
#[doc(alias = "thread pool")]
pub struct WorkerPool {
    pub(crate) pool: Arc<Pool>,
    /// Ends the delays of the controllers. Runs their control tasks, and the watchdogs of the pool and of their
    /// pollers.
    pub(crate) timer: TaskThread,
}

/// A builder for a [`WorkerPool`].
///
/// # Examples
///
/// ```
/// use homeostat::WorkerPool;
///
/// let error = WorkerPool::builder().threads(0).start().unwrap_err();
/// assert_eq!(error.to_string(), "threads is 0, but must be at least 1");
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `start` is called"]
pub struct WorkerPoolBuilder {
    name: String,
    pub(crate) threads: usize,
    spares: usize,
    pub(crate) clock: Clock,
    grace: Duration,
    pub(crate) options: ThreadOptions,
}

impl WorkerPoolBuilder {
    /// Sets the pool's name, in log lines and thread names (`<name>-0` and so on, `<name>-timer`).
    /// Default: `pool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the number of threads, which limits the runs at once. At least 1 and at most 10,000. Default: 4.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the number of extra threads that may replace threads with stuck runs. At most 10,000. Default: 4.
    pub fn spares(mut self, spares: usize) -> Self {
        self.spares = spares;
        self
    }

    /// Sets the clock of the pool and its controllers. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the time that active runs may continue after the pool is dropped. Then they are aborted. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the options of the threads.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = options;
        self
    }

    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        StartError::check_name(&self.name)?;
        StartError::check_threads("threads", self.threads, 1)?;
        StartError::check_threads("spares", self.spares, 0)
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the name is invalid, if a number of threads is out of its range, or if the system
    /// refuses a thread.
    pub fn start(self) -> Result<Running<WorkerPool>, StartError> {
        self.check()?;
        let timer = TaskThread::new(format!("{}-timer", self.name), self.options.clone(), self.clock.clone());
        let group = ThreadGroup::new(ThreadGroupKind::Pool, self.name, self.clock, self.threads + self.spares);
        group.watch_on(&timer.waker());
        let pool = Pool::new(Arc::clone(&group), self.threads, self.options.clone());
        let (pool_name, threads, spares) = (group.name.as_str(), self.threads, self.spares);
        log::info!(pool = pool_name, threads, spares; "{pool_name}: the pool starts, threads: {threads}, spares: {spares}");
        let mut number = 0..;
        let body = |_: &Arc<WorkerSlot>| -> Box<dyn Task> {
            Box::new(PoolTask { pool: Arc::clone(&pool), number: number.next().unwrap_or_default() })
        };
        let watched = Arc::downgrade(&pool);
        let watch = move |overrun: &SeenRun| watched.upgrade().into_iter().for_each(|pool| pool.overrun(overrun));
        let woken = Arc::clone(&pool);
        let handle = group.start(&self.options, self.threads, body, Some(Arc::new(watch)), move || woken.wake())?;
        Ok(Running::new(WorkerPool { pool, timer }, handle, self.grace))
    }
}

impl WorkerPool {
    /// Returns a builder with the default settings.
    pub fn builder() -> WorkerPoolBuilder {
        WorkerPoolBuilder {
            name: "pool".to_owned(),
            threads: 4,
            spares: 4,
            clock: Clock::system(),
            grace: Duration::from_secs(30),
            options: ThreadOptions::new(),
        }
    }

    /// Returns the pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.pool.group.name
    }

    /// Returns the clock of the pool and its controllers.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.pool.group.clock.clone()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.pool.group.is_stopping()
    }

    /// Returns the names of the threads with an overrun or in a callback of a deadline.
    pub(crate) fn hanging(&self) -> Vec<String> {
        self.pool.group.hanging()
    }

    /// Returns the names of the threads with an overrun: a run still active 100 ms after its deadline.
    #[must_use]
    pub fn overdue(&self) -> Vec<String> {
        self.pool.group.overdue()
    }
}

impl Pool {
    /// Reports an overrun, and lets another thread take the place of the stuck one.
    pub(crate) fn overrun(self: &Arc<Self>, overrun: &SeenRun) {
        let Some(number) = self.group.slots.iter().position(|slot| Arc::ptr_eq(slot, &overrun.slot)) else { return };
        let mut state = self.state.lock();
        let SlotState { serving: Some(member), stuck } = &state.slots[number] else { return };
        // Marks first, then checks: see `PoolTurn::is_over`. A late report keeps the mark of a later run.
        let was_stuck = stuck.swap(true, AcqRel);
        if !overrun.goes_on() {
            stuck.swap(was_stuck, AcqRel);
            return;
        }
        let (job, number) = (state.jobs[member.0].clone(), state.started);
        state.stuck += 1;
        let spare = (number < self.group.slots.len() && state.stuck > number - self.threads).then(|| {
            // Locked: another overrun must not start the same thread.
            self.group.start_on(number, &self.options, PoolTask { pool: Arc::clone(self), number })
        });
        state.started += usize::from(matches!(spare, Some(Ok(()))));
        let count = state.mark_woken(&self.group);
        drop(state);
        self.idle.notify(count);
        if let Some(job) = job {
            job.overrun(overrun);
        }
        let Some(started) = spare else { return };
        let (pool, thread) = (self.group.name.as_str(), self.group.slots[number].name.as_str());
        match started {
            Ok(()) => log::warn!(pool, thread; "{pool}: thread {thread} is started in place of a stuck one"),
            Err(error) => {
                // The next overrun tries again.
                let error = Chain(&error);
                log::error!(pool, thread, error:%; "{pool}: cannot start thread {thread} in place of a stuck one: {error}");
            }
        }
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool")
            .field("name", &self.name())
            .field("overdue", &self.overdue())
            .finish_non_exhaustive()
    }
}
