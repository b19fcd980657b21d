//! Starts the threads of a group and their watchdog, and counts the threads that have not ended.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::{Handle, Joiners, OverrunHook, ThreadGroup, ThreadGroupKind, WorkerSlot};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::running::Runnable;
use crate::base::spawn::spawn;
use crate::base::sync::atomic::Ordering::{Relaxed, Release};
use crate::base::task::{Next, Task};
use crate::base::task_thread::{TaskThread, TaskWaker};
use crate::base::thread::{Joiner, ThreadOptions, panic_message};
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;

impl ThreadGroup {
    /// Creates a group with one member that runs on other threads. The member ends when the [`Attendance`] is dropped.
    pub(crate) fn without_thread(kind: ThreadGroupKind, name: String, clock: Clock) -> (Arc<Self>, Attendance) {
        let slot = WorkerSlot::new(name.clone());
        let group = Self::of_slots(kind, name, clock, [Arc::clone(&slot)].into());
        let attendance = Attendance::new(Arc::clone(&group), slot);
        (group, attendance)
    }

    /// Starts a thread for each of the first `count` slots. `task` creates its task. `wake` lets the threads check
    /// whether to stop. If `watch` is given, also starts a watchdog: it cancels each run at its deadline, and passes
    /// overruns to `watch`. After an error, all threads have ended: a run that had begun by then was aborted.
    pub(crate) fn start(
        self: &Arc<Self>,
        options: &ThreadOptions,
        count: usize,
        mut task: impl FnMut(&Arc<WorkerSlot>) -> Box<dyn Task>,
        watch: Option<OverrunHook>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Handle, StartError> {
        let event = || AutoResetEvent::new(self.clock.clone());
        let tasks = self.slots[..count].iter().map(|slot| (task(slot), event())).collect();
        self.start_tasks(options, tasks, watch, wake)
    }

    /// Starts the only thread of a group. `event` triggers the next step of its task. A stop calls `on_stop`, then sets
    /// the event. After an error, no thread runs.
    ///
    /// If `watch` is given, a watchdog cancels each run at its deadline. It calls `watch` if the run continues 100 ms
    /// after its deadline.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has a NUL or if the operating system refuses a thread.
    pub fn start_one(
        self: &Arc<Self>,
        options: &ThreadOptions,
        task: impl Task + 'static,
        event: Arc<AutoResetEvent>,
        watch: Option<Arc<dyn Fn() + Send + Sync>>,
        on_stop: impl Fn() + Send + Sync + 'static,
    ) -> Result<Handle, StartError> {
        let tasks: Vec<AwaitedTask> = vec![(Box::new(task), Arc::clone(&event))];
        let watch = watch.map(|f| -> OverrunHook { Arc::new(move |run| run.goes_on().then(&*f).unwrap_or_default()) });
        self.start_tasks(options, tasks, watch, move || {
            on_stop();
            event.set();
        })
    }

    /// Starts the threads of the first slots. Each task has an event that triggers its next step.
    fn start_tasks(
        self: &Arc<Self>,
        options: &ThreadOptions,
        tasks: Vec<AwaitedTask>,
        watch: Option<OverrunHook>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Handle, StartError> {
        StartError::check_name(&self.name)?;
        let mut handle = Handle::new(Arc::clone(self), wake);
        // All are present before the watchdog starts, which ends with the last one.
        let tasks: Vec<_> =
            self.slots.iter().zip(tasks).map(|(slot, (task, event))| (self.attending(slot, task), event)).collect();
        let _own = self.task_thread(options);
        let start = || {
            watch.map_or(Ok(()), |report| self.start_watchdog(report))?;
            tasks.into_iter().try_for_each(|(task, event)| self.start_thread(options, task, &event))
        };
        let started = start();
        if started.is_err() {
            handle.abort();
            drop(handle.join());
        }
        started.map(|()| handle)
    }

    /// Starts the only thread of a group, which runs `function`. A stop calls `wake`. Fails in a simulation, which
    /// cannot interrupt a function.
    pub(crate) fn start_function(
        self: &Arc<Self>,
        options: &ThreadOptions,
        function: impl FnOnce() + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Handle, StartError> {
        StartError::check_name(&self.name)?;
        let slot = &self.slots[0];
        if self.clock.scheduler().is_some() {
            return Err(StartError::not_simulated(&slot.name));
        }
        let attendance = Attendance::new(Arc::clone(self), Arc::clone(slot));
        let body = move || attendance.noting_panics(function);
        drop(self.task_thread(options));
        self.keep(&slot.name, || options.spawn(slot.name.clone(), body))?;
        Ok(Handle::new(Arc::clone(self), wake))
    }

    /// Lets the watchdog run on the thread of `waker`, if both follow the same clock. Call it before the start.
    pub(crate) fn watch_on(&self, waker: &TaskWaker) {
        if waker.clock().is(&self.clock) {
            let _ = self.watchdog.set(waker.for_another());
        }
    }

    /// Returns a thread for the watchdog. It is used unless another one was [chosen](Self::watch_on), and ends with the
    /// watchdog.
    fn task_thread(&self, options: &ThreadOptions) -> TaskThread {
        let own = TaskThread::new(format!("{}-watchdog", self.name), options.clone(), self.clock.clone());
        self.watchdog.get_or_init(|| own.waker());
        own
    }

    fn start_watchdog(self: &Arc<Self>, report: OverrunHook) -> Result<(), StartError> {
        let Some(waker) = self.watchdog.get() else { return Ok(()) };
        let added = waker.add(&format!("{}-watchdog", self.name), Watchdog { group: Arc::clone(self), report });
        let joiner = added.map_err(|error| StartError::thread(waker.thread(), error))?;
        self.joiners.lock().watchdog = Some(joiner);
        Ok(())
    }

    /// Cancels a token, and runs its callbacks, which are user code, on a thread of their own: the caller may be a
    /// manager, which must be able to give up. The caller runs them in a simulation, before the start of the group, and
    /// if the system refuses the thread.
    pub fn cancel_aside(self: &Arc<Self>, token: &CancellationToken) {
        self.call_aside(self.clock.scheduler().is_some(), format!("{}-callbacks", self.name), || token.begin_cancel());
    }

    /// Runs user code on a thread of its own, or now; see [`TaskWaker::call_aside`]. The group does not end before it,
    /// unless it has ended already. `begin` returns the code, and may let the threads of the group end.
    fn call_aside<F: FnOnce() + Send + 'static>(
        self: &Arc<Self>,
        here: bool,
        thread: String,
        begin: impl FnOnce() -> Option<F>,
    ) {
        let slot = WorkerSlot::new(thread);
        slot.left.store(false, Release);
        let mut aside = self.aside.lock();
        aside.retain(|earlier| !earlier.has_left());
        aside.push(Arc::clone(&slot));
        drop(aside);
        // Counted after it is listed: a join with a timeout that finds a count finds its thread.
        let attendance = (!self.end.is_empty()).then(|| Attendance::new(Arc::clone(self), Arc::clone(&slot)));
        slot.left.store(attendance.is_none(), Release);
        let Some(call) = begin() else { return };
        let Some(waker) = self.watchdog.get() else { return call() };
        waker.call_aside(here, &slot.name, call, Box::new(attendance));
    }

    fn start_thread(
        &self,
        options: &ThreadOptions,
        task: Attending,
        event: &Arc<AutoResetEvent>,
    ) -> Result<(), StartError> {
        let name = task.attendance.1.name.clone();
        self.keep(&name, || spawn(options, &self.clock, name.clone(), task, event))
    }

    /// Starts a thread for an unused slot.
    pub(crate) fn start_on(
        self: &Arc<Self>,
        number: usize,
        options: &ThreadOptions,
        task: impl Task + 'static,
    ) -> Result<(), StartError> {
        let event = AutoResetEvent::new(self.clock.clone());
        self.start_thread(options, self.attending(&self.slots[number], Box::new(task)), &event)
    }

    /// Starts a thread with `start`, to be joined with the others.
    fn keep(&self, name: &str, start: impl FnOnce() -> io::Result<Joiner>) -> Result<(), StartError> {
        // Under the lock: if the new thread joins its own group, it finds itself here.
        let mut joiners = self.joiners.lock();
        joiners.threads.push(start().map_err(|error| StartError::thread(name, error))?);
        Ok(())
    }

    /// Joins all threads. On a thread of the group or in a call aside, does not wait for calls aside and the watchdog,
    /// which ends last.
    pub(super) fn join(&self) {
        let Joiners { mut threads, watchdog } = std::mem::take(&mut *self.joiners.lock());
        let is_here = threads.iter().any(Joiner::is_current) || self.watchdog.get().is_some_and(TaskWaker::is_current);
        // A second join finds no thread, and does not know whether it is on one of them.
        if !is_here && (watchdog.is_some() || !threads.is_empty()) {
            // A simulation runs calls aside in place, and finds a join of itself.
            let _ = self.clock.scheduler().is_some() || self.end.wait_until_empty(Nanos::NEVER);
            self.watchdog.get().into_iter().for_each(TaskWaker::join_returned);
            watchdog.into_iter().for_each(Joiner::join);
        }
        // The watchdog may start another thread until it ends.
        while !threads.is_empty() {
            threads.drain(..).for_each(Joiner::join);
            threads.append(&mut self.joiners.lock().threads);
        }
    }

    /// Counts `task` as present on `slot` until it is dropped.
    fn attending(self: &Arc<Self>, slot: &Arc<WorkerSlot>, task: Box<dyn Task>) -> Attending {
        Attending { task, attendance: Attendance::new(Arc::clone(self), Arc::clone(slot)) }
    }
}

/// A task, and the event that triggers its next step.
type AwaitedTask = (Box<dyn Task>, Arc<AutoResetEvent>);

/// Counts one thread of a group as present, from before its start until its end.
pub(crate) struct Attendance(Arc<ThreadGroup>, Arc<WorkerSlot>);

impl Attendance {
    pub(super) fn new(group: Arc<ThreadGroup>, slot: Arc<WorkerSlot>) -> Self {
        group.end.begin_part();
        slot.left.store(false, Release);
        Self(group, slot)
    }

    /// Runs a part of the thread's body. Its panic becomes the failure of the group, and continues.
    fn noting_panics<T>(&self, body: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            let failure = format!("thread {} panicked: {}", self.1.name, panic_message(&*panic));
            self.0.end.fail(Arc::new(failure.into()));
            resume_unwind(panic)
        })
    }
}

/// A task that counts as present until it is dropped.
struct Attending {
    task: Box<dyn Task>,
    /// Dropped after the task.
    attendance: Attendance,
}

impl Task for Attending {
    fn step(&mut self, now: Nanos) -> Next {
        let Self { task, attendance } = self;
        let _step = attendance.1.begin_step();
        attendance.noting_panics(|| task.step(now))
    }

    fn due(&mut self, next: Nanos) -> Nanos {
        self.task.due(next)
    }

    fn take_turn(&mut self, now: Nanos, draw: u64, say: &dyn Fn(String)) -> Next {
        let Self { task, attendance } = self;
        let _step = attendance.1.begin_step();
        attendance.noting_panics(|| task.take_turn(now, draw, say))
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let Self(group, slot) = self;
        slot.left.store(true, Release);
        if group.end.end_part() {
            group.wake_watchdog();
            group.kind.log_end(&group.name);
            group.end.call_hooks();
        }
    }
}

/// The watchdog: cancels runs at their deadlines, and reports runs that continue after the
/// [allowance](super::ALLOWANCE).
///
/// Deadlines are stored in the slots, so a run costs no timer. The watchdog sleeps until the earliest deadline that it
/// has seen. A new run wakes it only if its deadline is earlier. All runs of a group usually have the same time limit,
/// so that happens only if the watchdog had nothing to watch. A poller announces the deadline of its next poll: the
/// watchdog then sleeps until that time, and wakes once a period.
///
/// A watchdog is a task. The watchdogs of a pool and of the sources of its controllers share the thread of the pool's
/// timers. Another watchdog has its own thread.
///
/// Callbacks of cancelled tokens and reports are user code. A watchdog calls them aside, so that a slow one delays
/// neither the other tasks of its thread nor the next deadline of this group.
///
/// **The watchdog misses no deadline**, because the slot sees the store of the watchdog, or the watchdog sees the run.
/// A slot adds one to its count of runs, then reads `watching_until`. The watchdog writes "never" to `watching_until`,
/// then adds zero to the count, and reads the slot. Only such additions change the count, and each one sees everything
/// before the earlier ones.
///
/// If the slot's addition is first, the watchdog sees its run. If the watchdog's is first, the slot reads "never" or
/// the watchdog's later store: the earliest of the deadlines that it then saw, at which it wakes. Plain loads and
/// stores would not suffice: each side could read before its own store is visible.
pub(super) struct Watchdog {
    pub(super) group: Arc<ThreadGroup>,
    pub(super) report: OverrunHook,
}

impl Watchdog {
    /// Returns the earliest time at which a slot must be checked, and publishes it.
    fn earliest(&self, now: Nanos) -> Nanos {
        // From here on each new run with a deadline sets the event. Earlier runs are seen below.
        self.group.watching_until.store(Nanos::NEVER.0, Relaxed);
        let earliest = self.group.slots.iter().map(|slot| slot.deadline(now)).min().unwrap_or(Nanos::NEVER);
        self.group.watching_until.store(earliest.0, Relaxed);
        earliest
    }
}

impl Task for Watchdog {
    fn step(&mut self, now: Nanos) -> Next {
        // On a held clock, calls run here: time does not pass meanwhile, and the sleeping threads show when they have
        // ended.
        let here = self.group.clock.is_held();
        for slot in &self.group.slots {
            let thread = || format!("{}-deadline", slot.name);
            if let Some(token) = slot.expire(now) {
                self.group.call_aside(here, thread(), || token.begin_cancel());
            }
            if let Some(overrun) = slot.overrun(now) {
                let report = Arc::clone(&self.report);
                self.group.call_aside(here, thread(), || Some(move || report(&overrun)));
            }
        }
        if self.group.end.is_empty() { Next::Finished } else { Next::At(self.earliest(now)) }
    }
}
