//! The threads of one poller or one set of workers: their start, watchdog, stop and join.
//!
//! Stopping has two phases. *Stop* ends the taking of new work. *Abort* cancels the contexts of active work. Both are
//! requests: a thread ends when its code returns.

#[cfg(all(test, loom))]
mod models;
mod slot;
mod start;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use self::slot::{SeenRun, WorkerSlot};
pub(crate) use self::start::Attendance;

use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::end::{End, EndHook};
use crate::base::error::{BoxError, EndError};
use crate::base::running::{Runnable, RunningStatus};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::base::sync::atomic::{AtomicBool, AtomicU64};
use crate::base::task_thread::TaskWaker;
use crate::base::thread::Joiner;
use crate::base::time::Nanos;

/// The threads of one part of a program, such as a source.
///
/// Its [`Handle`] stops and joins them. The module [`rt`](crate::rt) has an example of a source.
///
/// # Examples
///
/// A call with a deadline. A function for overruns asks for a watchdog:
///
/// ```
/// use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, ThreadGroup, ThreadGroupKind};
/// use homeostat::{CancellationToken, Clock, Running, ThreadOptions};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// struct Call(Arc<ThreadGroup>);
///
/// impl Task for Call {
///     fn step(&mut self, now: Nanos) -> Next {
///         let stop = CancellationToken::new();
///         let run = self.0.begin_call(now.after(Duration::from_millis(10)), &stop);
///         stop.wait(); // a call that ends when `stop` is cancelled
///         drop(run);
///         Next::Finished
///     }
/// }
///
/// let group = ThreadGroup::new(ThreadGroupKind::Component, "call".to_owned(), Clock::system(), 1);
/// let event = AutoResetEvent::new(Clock::system());
/// let report = Arc::new(|| log::warn!("the call ignores its end"));
/// let handle = group.start_one(&ThreadOptions::new(), Call(Arc::clone(&group)), event, Some(report), || ())?;
/// drop(Running::new((), handle, Duration::MAX)); // joins the threads
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub struct ThreadGroup {
    /// The name, from which the names of its threads are made.
    pub name: String,
    /// The clock of its threads.
    pub clock: Clock,
    /// The slots of the initial threads, then the slots of threads that may start later.
    pub(crate) slots: Box<[Arc<WorkerSlot>]>,
    /// The slots of the calls aside: callbacks of cancelled tokens, and reports of overruns.
    aside: Mutex<Vec<Arc<WorkerSlot>>>,
    /// Whether the threads begin no more work. Set before `stopping`, or with it.
    closed: AtomicBool,
    stopping: AtomicBool,
    /// Cancelled when active calls are to end.
    pub abort: CancellationToken,
    /// Its parts are the threads. The hooks are called once the last thread has ended.
    pub(crate) end: Arc<End>,
    joiners: Mutex<Joiners>,
    /// The time until which the watchdog sleeps. Never if it has nothing to watch.
    watching_until: AtomicU64,
    /// Wakes the watchdog, if there is one, and makes calls aside. Empty in a group that starts no thread.
    watchdog: OnceLock<TaskWaker>,
    /// The kind of group, for the log.
    kind: ThreadGroupKind,
}

/// The threads that have not been joined.
#[derive(Default)]
struct Joiners {
    threads: Vec<Joiner>,
    watchdog: Option<Joiner>,
}

/// The time after its deadline at which a run becomes an overrun. A cancelled run needs a moment to end.
pub(crate) const ALLOWANCE: Duration = Duration::from_millis(100);

/// The kind of a group: the name of its field in log lines, and whether its end is logged. [`ThreadGroup`] has an
/// example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadGroupKind {
    /// An elector.
    Elector,
    /// A pool.
    Pool,
    /// A poller.
    Poller,
    /// A buffered subscriber.
    Subscription,
    /// A component of a manager.
    Component,
    /// A source of changes.
    Watch,
    /// Workers.
    Workers,
}

impl ThreadGroupKind {
    /// Returns the field name for the group in log lines.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Workers => "controller",
            Self::Elector => "elector",
            Self::Pool => "pool",
            Self::Poller | Self::Watch => "source",
            Self::Subscription => "subscription",
            Self::Component => "component",
        }
    }

    /// Logs the end of the last thread. Skips internal threads.
    fn log_end(self, name: &str) {
        let field = self.field();
        match self {
            // A poller logs its own end, because its threads may be named after a controller.
            Self::Elector | Self::Poller => {}
            Self::Watch => log::info!((field) = name; "{name}: the watch has ended"),
            Self::Workers => log::info!((field) = name; "{name}: the workers have ended"),
            _ => log::info!((field) = name; "{name}: the {field} has ended"),
        }
    }
}

/// Handles an overrun: a run that continues although its deadline has passed by more than the [allowance](ALLOWANCE).
/// It may run user code.
pub(crate) type OverrunHook = Arc<dyn Fn(&SeenRun) + Send + Sync>;

/// An active run. Dropping it ends the run.
#[derive(Debug)]
#[must_use = "the run ends when this is dropped"]
pub(crate) struct Run<'a>(&'a WorkerSlot);

impl<'a> Run<'a> {
    /// Begins a run without a deadline on `slot`, in a group without a watchdog.
    #[inline]
    pub(crate) fn begin(slot: &'a WorkerSlot) -> Self {
        slot.begin();
        Self(slot)
    }
}

impl Drop for Run<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

impl ThreadGroup {
    /// Creates a group of at most `size` threads, named `<name>-0` and so on.
    #[must_use]
    pub fn new(kind: ThreadGroupKind, name: String, clock: Clock, size: usize) -> Arc<Self> {
        let slots = (0..size).map(|number| WorkerSlot::new(format!("{name}-{number}"))).collect();
        Self::of_slots(kind, name, clock, slots)
    }

    fn of_slots(kind: ThreadGroupKind, name: String, clock: Clock, slots: Box<[Arc<WorkerSlot>]>) -> Arc<Self> {
        Arc::new(Self {
            name,
            slots,
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            abort: CancellationToken::new(),
            end: End::new(clock.clone()),
            joiners: Mutex::new(Joiners::default()),
            aside: Mutex::default(),
            watching_until: AtomicU64::new(Nanos::NEVER.0),
            watchdog: OnceLock::new(),
            clock,
            kind,
        })
    }

    fn wake_watchdog(&self) {
        self.watchdog.get().into_iter().for_each(TaskWaker::set);
    }

    /// Returns the names of the threads with an overrun.
    pub(crate) fn overdue(&self) -> Vec<String> {
        self.names(WorkerSlot::is_overdue)
    }

    /// Returns the names of the threads that have not ended.
    pub(crate) fn threads(&self) -> Vec<String> {
        self.names(|slot| !slot.has_left()).into_iter().chain(self.calls_aside()).collect()
    }

    /// Returns the names of the threads with an overrun, or with a call aside.
    pub(crate) fn hanging(&self) -> Vec<String> {
        self.overdue().into_iter().chain(self.calls_aside()).collect()
    }

    fn calls_aside(&self) -> Vec<String> {
        self.aside.lock().iter().filter(|slot| !slot.has_left()).map(|slot| slot.name.clone()).collect()
    }

    fn names(&self, of: impl Fn(&WorkerSlot) -> bool) -> Vec<String> {
        self.slots.iter().filter(|slot| of(slot)).map(|slot| slot.name.clone()).collect()
    }

    /// Returns whether the watchdog was woken since the last call. Its waker must be [`TaskWaker::without_thread`].
    #[cfg(test)]
    fn is_watchdog_woken(&self) -> bool {
        self.watchdog.get().is_some_and(TaskWaker::take_set)
    }

    /// Begins a run on `slot`, visible to the watchdog.
    #[inline]
    pub(crate) fn begin_until<'a>(&self, slot: &'a WorkerSlot, deadline: Nanos, record: u32) -> Run<'a> {
        slot.begin_until(deadline, record);
        if deadline.0 < self.watching_until.load(Relaxed) {
            self.wake_watchdog();
        }
        Run(slot)
    }

    /// Begins a call on the first thread, which ends when the returned value is dropped. The watchdog cancels `stop` at
    /// `deadline`, unless the call has ended by then.
    #[must_use = "the call ends when this is dropped"]
    pub fn begin_call<'a>(&'a self, deadline: Nanos, stop: &CancellationToken) -> impl Sized + use<'a> {
        let slot = &self.slots[0];
        let run = self.begin_until(slot, deadline, 0);
        slot.expose(stop);
        if self.clock.reached(deadline) {
            // The watchdog may have been here before the token.
            stop.cancel();
        }
        run
    }

    /// Lets pollers and workers begin no more work. A poller does not end before it is stopped: its watch ends with it,
    /// and the readers of the watch must be closed first.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.close();
        self.stopping.store(true, SeqCst);
    }

    /// Returns whether the threads must end. A task then returns [`Next::Finished`](crate::rt::Next::Finished).
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }
}

/// Stops and joins the threads of a group. A [`Running`](crate::Running) holds it and ends the group when it is
/// dropped.
///
/// The module [`rt`](crate::rt) has an example.
pub struct Handle {
    pub(crate) group: Arc<ThreadGroup>,
    /// Wakes the group's threads, so that they check whether to stop.
    wake: Box<dyn Fn() + Send + Sync>,
    may_end: bool,
}

impl Handle {
    /// Creates the handle of a group. `wake` wakes its threads, so that they check whether to stop.
    pub(crate) fn new(group: Arc<ThreadGroup>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { group, wake: Box::new(wake), may_end: false }
    }

    /// Allows the threads to end without a stop.
    #[must_use]
    pub fn that_may_end(mut self) -> Self {
        self.may_end = true;
        self
    }

    /// Joins this too, with the threads.
    pub(crate) fn with(self, joiner: Joiner) -> Self {
        self.group.joiners.lock().threads.push(joiner);
        self
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.group).finish()
    }
}

impl Runnable for Handle {
    fn stop(&self) {
        self.group.stop();
        (self.wake)();
    }

    /// Lets pollers and workers begin no more work. Wakes no thread.
    fn close(&self) {
        self.group.close();
    }

    fn abort(&self) {
        self.stop();
        self.group.cancel_aside(&self.group.abort);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        let group = &self.group;
        if !group.end.wait_until_empty(group.clock.nanos().after(timeout)) {
            let threads = group.threads();
            if !threads.is_empty() {
                return Err(EndError::of_threads(threads));
            }
        }
        self.join()
    }

    fn join(&mut self) -> Result<(), EndError> {
        self.group.join();
        EndError::unless_well(None, self.group.threads())
    }

    /// Does nothing: the threads outlive this handle.
    fn detach(&mut self) {}

    fn status(&self) -> RunningStatus {
        RunningStatus::new(self.group.name.as_str(), self.group.is_stopping(), self.group.threads())
    }

    fn on_end(&self, hook: EndHook) {
        self.group.end.add_hook(&hook, || self.group.end.is_empty());
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.group.end.failure()
    }

    fn may_end(&self) -> bool {
        self.may_end
    }

    fn kind(&self) -> &'static str {
        self.group.kind.field()
    }
}

impl fmt::Debug for ThreadGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadGroup")
            .field("name", &self.name)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}
