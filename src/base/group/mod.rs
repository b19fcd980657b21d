//! The threads of one poller or of one set of workers: how they are started, watched, stopped and joined.
//!
//! Stopping has two phases. *Stop* ends the taking of new work; *abort* cancels the contexts of what is under way. Both only
//! ask: a thread ends when the code it runs returns.

mod handle;
#[cfg(all(test, loom))]
mod models;
mod seat;
#[cfg(all(test, not(loom)))]
mod tests;
mod watchdog;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use self::handle::Handle;
pub(crate) use self::seat::WorkerSlot;
pub(crate) use crate::base::error::StillRunning;

use self::watchdog::Watchdog;
use crate::base::cancel::CancellationToken;
use crate::base::clock::{Clock, Wake};
use crate::base::error::StartError;
use crate::base::spawn::{spawn, spawn_function};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::base::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(feature = "testing")]
use crate::base::task::TurnContext;
use crate::base::task::{Next, Task};
use crate::base::task_thread::{TaskThread, TaskWaker};
use crate::base::thread::{Joiner, ThreadOptions};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, WaiterCounts, Waiters};

/// What the threads of one crew have in common.
pub(crate) struct ThreadGroup {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    /// One for each thread that starts with it, then those for threads that may be started later.
    pub(crate) seats: Box<[Arc<WorkerSlot>]>,
    size: usize,
    stopping: AtomicBool,
    pub(crate) abort: CancellationToken,
    /// How many threads have not ended, and who waits for that.
    present: Mutex<Present>,
    /// Threads that have been started later, to be joined with the others.
    adopted: Mutex<Vec<Joiner>>,
    left: Waiters,
    /// Up to when the watchdog sleeps; never if it has nothing to watch.
    watching_until: AtomicU64,
    watchdog: Arc<AutoResetEvent>,
    /// What the threads are, for the log.
    kind: ThreadGroupKind,
    /// Called once the last thread has ended.
    on_end: OnceLock<Ended>,
}

#[derive(Debug, Default)]
struct Present {
    threads: usize,
    waiting: WaiterCounts,
}

/// How long after its deadline a run that goes on becomes an overrun. A run that ends because it is cancelled needs a moment for it.
pub(crate) const ALLOWANCE: Duration = Duration::from_millis(100);

/// A run that goes on although its deadline and the [`ALLOWANCE`] have passed.
pub(crate) struct Overrun<'a> {
    pub(crate) thread: &'a str,
    pub(crate) seat: &'a WorkerSlot,
    run: u64,
    pub(crate) record: u32,
}

#[cfg(all(test, loom))]
impl<'a> Overrun<'a> {
    /// That of a seat's first run.
    pub(crate) fn of_first_run(seat: &'a WorkerSlot) -> Self {
        Self { thread: &seat.name, seat, run: 1, record: 0 }
    }
}

impl Overrun<'_> {
    /// Whether it still runs: what was looked up by its record before is then about it.
    pub(crate) fn goes_on(&self) -> bool {
        !self.seat.is_over(self.run)
    }
}

/// What the threads of a crew are, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadGroupKind {
    Controller,
    Elector,
    Pool,
    Poller,
    Subscription,
    Component,
    Watch,
    Workers,
}

impl ThreadGroupKind {
    /// The field of a log line that has the name of the crew.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Controller | Self::Workers => "controller",
            Self::Elector => "elector",
            Self::Pool => "pool",
            Self::Poller | Self::Watch => "source",
            Self::Subscription => "subscription",
            Self::Component => "component",
        }
    }

    /// Logs that the last thread has ended, except of threads that nobody has asked for by name.
    fn log_end(self, name: &str) {
        let field = self.field();
        match self {
            // A poller says it itself: its threads may be named after a controller.
            Self::Controller | Self::Elector | Self::Poller => {}
            Self::Watch => log::info!((field) = name; "{name}: the watch has ended"),
            Self::Workers => log::info!((field) = name; "{name}: the workers have ended"),
            _ => log::info!((field) = name; "{name}: the {field} has ended"),
        }
    }
}

pub(crate) use crate::base::running::EndHook as Ended;

/// What is done about an overrun.
pub(crate) type Watch = Box<dyn Fn(Overrun) + Send>;

/// A run, from begin to end.
#[must_use = "the run ends when this is dropped"]
pub(crate) struct Run<'a>(&'a WorkerSlot);

impl<'a> Run<'a> {
    /// A run without a deadline begins on `seat`, in a crew that has no watchdog.
    #[inline]
    pub(crate) fn begin(seat: &'a WorkerSlot) -> Self {
        seat.begin();
        Self(seat)
    }
}

impl Drop for Run<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

impl ThreadGroup {
    /// A crew of `size` seats, named `<name>-0` and so on.
    pub(crate) fn new(kind: ThreadGroupKind, name: String, clock: Clock, size: usize) -> Arc<Self> {
        Self::with_spares(kind, name, clock, size, 0)
    }

    /// The same with seats for threads that may be [started later](Self::start_on).
    pub(crate) fn with_spares(
        kind: ThreadGroupKind,
        name: String,
        clock: Clock,
        size: usize,
        spares: usize,
    ) -> Arc<Self> {
        let seats = (0..size + spares).map(|number| WorkerSlot::new(format!("{name}-{number}"))).collect();
        Self::of_slots(kind, name, clock, size, seats)
    }

    /// Creates a group with one member that runs on the threads of others. The member ends when the [`Attendance`] is dropped.
    pub(crate) fn without_thread(kind: ThreadGroupKind, name: String, clock: Clock) -> (Arc<Self>, Attendance) {
        let slot = WorkerSlot::new(name.clone());
        let group = Self::of_slots(kind, name, clock, 1, [Arc::clone(&slot)].into());
        let attendance = Attendance::new(Arc::clone(&group), slot);
        (group, attendance)
    }

    fn of_slots(
        kind: ThreadGroupKind,
        name: String,
        clock: Clock,
        size: usize,
        seats: Box<[Arc<WorkerSlot>]>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            seats,
            size,
            stopping: AtomicBool::new(false),
            abort: CancellationToken::new(),
            present: Mutex::new(Present::default()),
            adopted: Mutex::new(Vec::new()),
            left: Waiters::new(),
            watching_until: AtomicU64::new(Nanos::NEVER.0),
            watchdog: AutoResetEvent::new(clock.clone()),
            clock,
            kind,
            on_end: OnceLock::new(),
        })
    }

    /// Starts a thread for each slot, which runs the task that `task` makes for it, and a watchdog if `watch` is given: it
    /// cancels each run at its deadline, and gives overruns to `watch`.
    pub(crate) fn start<T: Task + 'static>(
        self: &Arc<Self>,
        options: &ThreadOptions,
        mut task: impl FnMut(Arc<WorkerSlot>) -> T,
        watch: Option<Watch>,
    ) -> Result<Vec<Joiner>, StartError> {
        self.check_name()?;
        let mut joiners = Vec::with_capacity(self.seats.len() + 1);
        for (number, seat) in self.seats.iter().enumerate().take(self.size) {
            let event = AutoResetEvent::new(self.clock.clone());
            let spawned = self.start_on(number, options, task(Arc::clone(seat)), &event);
            joiners.push(self.or_stop(&seat.name, spawned)?);
        }
        self.start_watchdog(options, watch, &mut joiners)?;
        Ok(joiners)
    }

    /// Does the same for a group of one thread. `event` brings the next step of its task forward.
    pub(crate) fn start_one(
        self: &Arc<Self>,
        options: &ThreadOptions,
        task: impl Task + 'static,
        event: &Arc<AutoResetEvent>,
        watch: Option<Watch>,
    ) -> Result<Vec<Joiner>, StartError> {
        self.check_name()?;
        let spawned = self.start_on(0, options, task, event);
        let mut joiners = vec![self.or_stop(&self.seats[0].name, spawned)?];
        self.start_watchdog(options, watch, &mut joiners)?;
        Ok(joiners)
    }

    /// Starts the only thread of a group, which runs `function`. A simulation refuses it.
    pub(crate) fn start_function(
        self: &Arc<Self>,
        options: &ThreadOptions,
        function: impl FnOnce() + Send + 'static,
    ) -> Result<Joiner, StartError> {
        self.check_name()?;
        let seat = &self.seats[0];
        let attendance = Attendance::new(Arc::clone(self), Arc::clone(seat));
        let body = move || {
            let _attendance = attendance;
            function();
        };
        let spawned = spawn_function(options, &self.clock, seat.name.clone(), body);
        self.or_stop(&seat.name, spawned)
    }

    /// Adds `task` to `thread` in place of the group's only thread. The group ends when the task leaves.
    #[allow(dead_code, reason = "its users follow")]
    pub(crate) fn start_task(
        self: &Arc<Self>,
        thread: &TaskThread,
        waker: &TaskWaker,
        task: impl Task + 'static,
    ) -> Result<Joiner, StartError> {
        self.check_name()?;
        let seat = &self.seats[0];
        let attendance = Attendance::new(Arc::clone(self), Arc::clone(seat));
        let added = thread.add(waker, &seat.name, Attending { task, _attendance: attendance });
        self.or_stop(&seat.name, added)
    }

    fn start_watchdog(
        self: &Arc<Self>,
        options: &ThreadOptions,
        watch: Option<Watch>,
        joiners: &mut Vec<Joiner>,
    ) -> Result<(), StartError> {
        let Some(report) = watch else { return Ok(()) };
        let name = format!("{}-watchdog", self.name);
        let watchdog = Watchdog::new(Arc::clone(self), report);
        let spawned = spawn(options, &self.clock, name.clone(), watchdog, &self.watchdog);
        joiners.push(self.or_stop(&name, spawned)?);
        Ok(())
    }

    /// Starts a thread for one slot that has none.
    pub(crate) fn start_on(
        self: &Arc<Self>,
        number: usize,
        options: &ThreadOptions,
        task: impl Task + 'static,
        event: &Arc<AutoResetEvent>,
    ) -> std::io::Result<Joiner> {
        let seat = &self.seats[number];
        let attendance = Attendance::new(Arc::clone(self), Arc::clone(seat));
        spawn(options, &self.clock, seat.name.clone(), Attending { task, _attendance: attendance }, event)
    }

    /// Has `hook` called once the last thread has ended, and at once if it has. The first hook counts.
    pub(crate) fn on_end(&self, hook: &Ended) {
        let _ = self.on_end.set(Arc::clone(hook));
        if self.is_empty() {
            hook();
        }
    }

    /// Has `start` start a thread, which is joined with the others.
    pub(crate) fn adopt(&self, start: impl FnOnce() -> std::io::Result<Joiner>) -> std::io::Result<()> {
        // Under the lock, for that thread may join its own crew: it finds itself here.
        let mut adopted = self.adopted.lock();
        adopted.push(start()?);
        Ok(())
    }

    /// The names of the threads whose run is an overrun.
    pub(crate) fn overdue(&self) -> Vec<String> {
        self.names(WorkerSlot::is_overdue)
    }

    /// The names of the threads that have not ended.
    pub(crate) fn threads(&self) -> Vec<String> {
        self.names(|seat| !seat.has_left())
    }

    fn names(&self, of: impl Fn(&WorkerSlot) -> bool) -> Vec<String> {
        self.seats.iter().filter(|seat| of(seat)).map(|seat| seat.name.clone()).collect()
    }

    /// A thread that the system refuses ends the whole crew.
    fn or_stop(&self, name: &str, spawned: std::io::Result<Joiner>) -> Result<Joiner, StartError> {
        spawned.map_err(|error| self.fail(StartError::thread(name, error)))
    }

    fn check_name(&self) -> Result<(), StartError> {
        StartError::check_name(&self.name).map_err(|error| self.fail(error))
    }

    fn fail(&self, error: StartError) -> StartError {
        self.stop();
        self.abort.cancel();
        error
    }

    /// A run begins on `seat`, for the watchdog to see.
    #[inline]
    pub(crate) fn begin_until<'a>(&self, seat: &'a WorkerSlot, deadline: Nanos, record: u32) -> Run<'a> {
        seat.begin_until(deadline, record);
        if deadline.0 < self.watching_until.load(Relaxed) {
            self.watchdog.set();
        }
        Run(seat)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.present.lock().threads == 0
    }

    /// Blocks until every thread has ended or `deadline` has come. The last thread to end wakes it. Returns whether all have.
    pub(crate) fn wait_until_empty(self: &Arc<Self>, deadline: Nanos) -> bool {
        let mut present = self.present.lock();
        while present.threads > 0 {
            if self.clock.reached(deadline) {
                return false;
            }
            self.left.wait(
                &mut present,
                |present| &mut present.waiting,
                &self.clock,
                deadline,
                || Arc::clone(self) as Arc<dyn Wake>,
            );
        }
        true
    }

    fn rouse_waiting(&self) {
        let count = self.present.lock().waiting.rouse(usize::MAX, &self.clock);
        self.left.ring(count);
    }
}

impl Wake for ThreadGroup {
    fn wake(&self) {
        self.rouse_waiting();
    }
}

/// Counts one thread of a crew, from before it is spawned until it has ended in whatever way.
pub(crate) struct Attendance(Arc<ThreadGroup>, Arc<WorkerSlot>);

impl Attendance {
    fn new(crew: Arc<ThreadGroup>, seat: Arc<WorkerSlot>) -> Self {
        crew.present.lock().threads += 1;
        seat.come();
        Self(crew, seat)
    }
}

/// A task that is counted as present until it is dropped.
struct Attending<T> {
    task: T,
    /// Dropped after the task.
    _attendance: Attendance,
}

impl<T: Task> Task for Attending<T> {
    fn step(&mut self, now: Nanos) -> Next {
        self.task.step(now)
    }

    #[cfg(feature = "testing")]
    fn due(&mut self, next: Nanos) -> Nanos {
        self.task.due(next)
    }

    #[cfg(feature = "testing")]
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        self.task.take_turn(turn)
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let Self(crew, seat) = self;
        seat.leave();
        let last = {
            let mut present = crew.present.lock();
            present.threads -= 1;
            present.threads == 0
        };
        if last {
            crew.rouse_waiting();
            crew.watchdog.set();
            crew.kind.log_end(&crew.name);
            if let Some(hook) = crew.on_end.get() {
                hook();
            }
        }
    }
}
