//! Workers: threads that take keys from one queue and reconcile them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::metrics::{self, RunCounters, WorkersMetrics};
use super::reconciler::{Reconciler, RetryPolicy};
use super::runner::{KeyTurn, RunHooks, RunSettings, Runner, boxed, report_overrun};
use crate::base::backoff::Exponential;
use crate::base::error::StartError;
use crate::base::group::{OverrunHook, Run, SeenRun, ThreadGroup, ThreadGroupKind, WorkerSlot};
use crate::base::running::Running;
use crate::base::sync::atomic::AtomicU64;
use crate::base::task::{Next, Task};
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::queue::{DequeueError, Key, QueueShared, Reasons, WorkQueue};

/// Threads that take keys from one queue and call a [`Reconciler`] for each.
///
/// The result of a run determines the next one. An [`Action`](crate::Action) or a [`RequeueAfter`](crate::RequeueAfter)
/// may request it. A [`Terminal`](crate::run::Terminal) error prevents it. For any other error, the [`RetryPolicy`]
/// decides. A panic is caught and handled as an error. Several `Workers` may share one queue.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, Context, Enqueue, WorkQueue, Workers};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let (done, seen) = std::sync::mpsc::channel();
/// let workers = Workers::new(move |_cx: &Context, vm: &&str| -> Result<Action, std::sync::mpsc::SendError<String>> {
///     done.send(format!("{vm} converged"))?;
///     Ok(Action::await_change())
/// })
/// .threads(4)
/// .reconcile_timeout(Duration::from_secs(300))
/// .start(&queue)?;
///
/// queue.enqueue("vm-1");
/// assert_eq!(seen.recv()?, "vm-1 converged");
/// workers.shutdown(Duration::from_secs(30));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "workers do nothing until `start` is called"]
pub struct Workers<R, P = Exponential> {
    reconciler: R,
    policy: P,
    threads: usize,
    name: String,
    timeout: Option<Duration>,
    grace: Duration,
    options: ThreadOptions,
}

impl<R> Workers<R> {
    /// Creates workers with one thread and no timeout. Failed runs are retried with exponential backoff.
    pub fn new(reconciler: R) -> Self {
        Self {
            reconciler,
            policy: Exponential::default(),
            threads: 1,
            name: "worker".to_owned(),
            timeout: None,
            grace: Duration::from_secs(30),
            options: ThreadOptions::new(),
        }
    }
}

impl<R, P> Workers<R, P> {
    /// Sets the number of threads, and so the number of keys that run at once. Default: 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the name in log lines and thread names (`<name>-0` and so on, `<name>-watchdog`). Default: `worker`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the time limit of a run. The run is cancelled when the limit passes. Default: no limit.
    ///
    /// A run that ends soon after its deadline has [timed out](WorkersMetrics::timeouts). A run that is still active
    /// 100 ms after its deadline is an overrun. It is reported while it runs, in the log, the metrics and
    /// [`WorkersControl::overdue`].
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the policy for failed runs. Default: [`Exponential`], with a longer backoff after each failure.
    /// [`Exponential::max_retries`] of zero never retries.
    pub fn retry<Q>(self, policy: Q) -> Workers<R, Q> {
        let Self { reconciler, policy: _, threads, name, timeout, grace, options } = self;
        Workers { reconciler, policy, threads, name, timeout, grace, options }
    }

    /// Sets how long active runs may continue after the handle is dropped. Then they are aborted. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the options of the threads.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts the threads. From now on the queue measures queueing times
    /// ([`Context::queued_for`](crate::Context::queued_for)).
    ///
    /// The threads end when they are stopped, and when the queue is shut down and empty.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the name is invalid, if the number of threads is zero or above 10,000, if the timeout
    /// is zero, or if the system refuses a thread. Threads that had started by then have ended, and their runs were
    /// aborted.
    pub fn start<K, S>(self, queue: &WorkQueue<K, S>) -> Result<Running<WorkersControl>, StartError>
    where
        K: Key + fmt::Debug,
        R: Reconciler<K> + 'static,
        P: RetryPolicy<K> + 'static,
    {
        StartError::check_threads("threads", self.threads, 1)?;
        self.timeout.map_or(Ok(()), |timeout| StartError::check_time("reconcile_timeout", timeout))?;
        let group = ThreadGroup::new(ThreadGroupKind::Workers, self.name, queue.clock(), self.threads);
        let queue = Arc::clone(&queue.shared);
        queue.measure();
        let runs = Arc::new(RunSettings {
            name: Arc::from(group.name.as_str()),
            clock: group.clock.clone(),
            abort: group.abort.clone(),
            reconcile: boxed(self.reconciler),
            policy: Box::new(self.policy),
            timeout: self.timeout,
            hooks: WorkerHooks(Arc::clone(&group)),
        });
        let (controller, threads, from) = (group.name.as_str(), self.threads, queue.config.name.as_str());
        log::info!(
            controller, threads, queue = from;
            "{controller}: the workers start, threads: {threads}, queue: {from}"
        );
        let overruns = Arc::new(AtomicU64::new(0));
        let watch = self.timeout.map(|timeout| {
            let (queue, overruns, name) = (Arc::clone(&queue), Arc::clone(&overruns), group.name.clone());
            Arc::new(move |overrun: &SeenRun| report_overrun(&name, &queue, timeout, &overruns, overrun)) as OverrunHook
        });
        let mut counters = Vec::with_capacity(self.threads);
        let body = |slot: &Arc<WorkerSlot>| -> Box<dyn Task> {
            let own = Arc::new(RunCounters::default());
            counters.push(Arc::clone(&own));
            let runner = Runner::new(Arc::clone(&runs), own, slot);
            Box::new(Worker { queue: Arc::clone(&queue), group: Arc::clone(&group), slot: Arc::clone(slot), runner })
        };
        let woken = Arc::clone(&queue);
        let handle = group.start(&self.options, self.threads, body, watch, move || woken.wake_all())?.that_may_end();
        Ok(Running::new(WorkersControl { group, counters, overruns }, handle, self.grace))
    }
}

impl<R, P> fmt::Debug for Workers<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("name", &self.name)
            .field("threads", &self.threads)
            .field("reconcile_timeout", &self.timeout)
            .field("shutdown_grace", &self.grace)
            .finish_non_exhaustive()
    }
}

/// The control of running workers, used through [`Running<WorkersControl>`](Running).
///
/// The threads use the queue, but hold no handle to it. Dropping the last [`WorkQueue`] handle closes the queue, and
/// the workers end once it is empty. A poller that feeds the queue also holds a handle.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Enqueue, WorkQueue, Workers};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let workers = Workers::new(reconcile).threads(2).start(&queue)?;
/// queue.enqueue("vm-1");
/// assert!(queue.drain(Duration::MAX).is_drained());
/// workers.shutdown(Duration::from_secs(1))?;
/// # Ok::<_, BoxError>(())
/// ```
pub struct WorkersControl {
    group: Arc<ThreadGroup>,
    /// The counters of each thread.
    counters: Vec<Arc<RunCounters>>,
    overruns: Arc<AtomicU64>,
}

impl WorkersControl {
    /// Returns the names of the threads with an overrun: a run still active 100 ms after its deadline.
    #[must_use]
    pub fn overdue(&self) -> Vec<String> {
        self.group.overdue()
    }

    /// Returns the metrics since the start.
    #[must_use]
    pub fn metrics(&self) -> WorkersMetrics {
        let busy = self.group.slots.iter().filter(|slot| slot.is_busy()).count();
        metrics::sum(&self.counters, &self.overruns, busy)
    }
}

impl fmt::Debug for WorkersControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkersControl").field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}

/// The hooks of a worker. It takes keys until its group is closed.
pub(super) struct WorkerHooks(pub(super) Arc<ThreadGroup>);

impl<K> RunHooks<K> for WorkerHooks {
    #[inline]
    fn is_shut(&self) -> bool {
        self.0.is_closed()
    }
}

/// The worker of one thread.
pub(super) struct Worker<K: Key> {
    pub(super) queue: Arc<QueueShared<K>>,
    pub(super) group: Arc<ThreadGroup>,
    pub(super) slot: Arc<WorkerSlot>,
    pub(super) runner: Runner<K, WorkerHooks>,
}

/// The turn of a worker. It lasts until the queue is empty; in a simulation, for one key.
struct WorkerTurn<'a> {
    group: &'a ThreadGroup,
    slot: &'a Arc<WorkerSlot>,
    one_key: bool,
}

impl KeyTurn for WorkerTurn<'_> {
    #[inline]
    fn begin(&self, _start: Nanos, deadline: Nanos, record: u32, _reasons: Reasons) -> Run<'_> {
        match deadline {
            Nanos::NEVER => Run::begin(self.slot),
            deadline => self.group.begin_until(self.slot, deadline, record),
        }
    }

    fn slot(&self) -> &Arc<WorkerSlot> {
        self.slot
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.one_key
    }

    #[inline]
    fn more(&self) {}
}

impl<K: Key + fmt::Debug> Worker<K> {
    /// Runs one key that is ready, or waits for keys and runs them.
    ///
    /// Both have one copy of the run loop. Two copies take more instructions per run.
    #[inline(never)]
    fn serve(&mut self, one_key: bool) -> DequeueError {
        let Self { queue, group, slot, runner } = self;
        runner.serve(&WorkerTurn { group, slot, one_key }, || {
            if one_key { queue.try_dequeue(|| false) } else { queue.dequeue(Nanos::NEVER, || group.is_closed()) }
        })
    }
}

impl<K: Key + fmt::Debug> Task for Worker<K> {
    /// Blocks until the queue is closed and empty, or the group is closed.
    fn step(&mut self, _now: Nanos) -> Next {
        while self.serve(false) == DequeueError::Empty && !self.group.is_closed() {}
        Next::Finished
    }

    fn due(&mut self, _next: Nanos) -> Nanos {
        if self.group.is_closed() || self.queue.is_due() { Nanos::ZERO } else { Nanos::NEVER }
    }

    /// Runs one key.
    fn take_turn(&mut self, _now: Nanos, draw: u64, say: &dyn Fn(String)) -> Next {
        if self.group.is_closed() {
            return Next::Finished;
        }
        if let Some(key) = self.queue.shuffle(draw) {
            say(format!("{:?}", crate::base::text::ShownKey(&key)));
        }
        if let DequeueError::Closed = self.serve(true) { Next::Finished } else { Next::At(Nanos::NEVER) }
    }
}
