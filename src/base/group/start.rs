//! Starts the threads of a group, and counts the threads that have not ended.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::watchdog::Watchdog;
use super::{Handle, OverrunHook, ThreadGroup, ThreadGroupKind, WorkerSlot};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::running::Runnable;
use crate::base::spawn::spawn;
use crate::base::task::{Next, Task, TurnContext};
use crate::base::thread::{Joiner, ThreadOptions, panic_message};
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;

impl ThreadGroup {
    /// Creates a group with one member that runs on other threads. The member ends when the [`Attendance`] is dropped.
    pub(crate) fn without_thread(kind: ThreadGroupKind, name: String, clock: Clock) -> (Arc<Self>, Attendance) {
        let slot = WorkerSlot::new(name.clone());
        let group = Self::of_slots(kind, name, clock, 1, [Arc::clone(&slot)].into());
        let attendance = Attendance::new(Arc::clone(&group), slot);
        (group, attendance)
    }

    /// Starts a thread for each slot. `task` creates its task, and `wake` lets the threads check whether to stop. If
    /// `watch` is given, also starts a watchdog: it cancels each run at its deadline, and passes overruns to `watch`.
    /// After an error, all threads have ended: a run that had begun by then was aborted.
    pub(crate) fn start<T: Task + 'static>(
        self: &Arc<Self>,
        options: &ThreadOptions,
        mut task: impl FnMut(Arc<WorkerSlot>) -> T,
        watch: Option<OverrunHook>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Handle, StartError> {
        StartError::check_name(&self.name)?;
        let mut handle = Handle::new(Arc::clone(self), Vec::new(), wake);
        let start = || {
            for (number, slot) in self.slots.iter().enumerate().take(self.size) {
                let event = AutoResetEvent::new(self.clock.clone());
                let spawned = self.start_on(number, options, task(Arc::clone(slot)), &event);
                handle.keep(vec![self.or_stop(&slot.name, spawned)?]);
            }
            handle.keep(self.start_watchdog(options, watch)?);
            Ok(())
        };
        if let Err(error) = start() {
            handle.abort();
            drop(handle.join());
            return Err(error);
        }
        Ok(handle)
    }

    /// Starts the only thread of a group. `event` triggers the next step of its task. After an error, no thread runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has a NUL or if the operating system refuses a thread.
    pub fn start_one(
        self: &Arc<Self>,
        options: &ThreadOptions,
        task: impl Task + 'static,
        event: &Arc<AutoResetEvent>,
        watch: Option<OverrunHook>,
    ) -> Result<Vec<Joiner>, StartError> {
        StartError::check_name(&self.name)?;
        let slot = &self.slots[0];
        let task = self.attending(slot, task);
        // The watchdog starts first: if the system refuses it, there is no task to end. If the system refuses the
        // thread of the task, the watchdog ends, because the group is empty.
        let mut joiners = self.start_watchdog(options, watch)?;
        match self.or_stop(&slot.name, spawn(options, &self.clock, slot.name.clone(), task, event)) {
            Ok(joiner) => joiners.insert(0, joiner),
            Err(error) => {
                joiners.into_iter().for_each(Joiner::join);
                return Err(error);
            }
        }
        Ok(joiners)
    }

    /// Starts the only thread of a group, which runs `function`. Fails in a simulation, which cannot interrupt a
    /// function.
    pub(crate) fn start_function(
        self: &Arc<Self>,
        options: &ThreadOptions,
        function: impl FnOnce() + Send + 'static,
    ) -> Result<Joiner, StartError> {
        StartError::check_name(&self.name)?;
        let slot = &self.slots[0];
        if self.clock.scheduler().is_some() {
            return Err(StartError::not_simulated(&slot.name));
        }
        let attendance = Attendance::new(Arc::clone(self), Arc::clone(slot));
        let body = move || attendance.noting_panics(function);
        self.or_stop(&slot.name, options.spawn(slot.name.clone(), body))
    }

    fn start_watchdog(
        self: &Arc<Self>,
        options: &ThreadOptions,
        watch: Option<OverrunHook>,
    ) -> Result<Vec<Joiner>, StartError> {
        let Some(report) = watch else { return Ok(Vec::new()) };
        let name = format!("{}-watchdog", self.name);
        let watchdog = Watchdog::new(Arc::clone(self), report);
        let spawned = spawn(options, &self.clock, name.clone(), watchdog, &self.watchdog);
        Ok(vec![self.or_stop(&name, spawned)?])
    }

    /// Starts a thread for an unused slot.
    pub(crate) fn start_on(
        self: &Arc<Self>,
        number: usize,
        options: &ThreadOptions,
        task: impl Task + 'static,
        event: &Arc<AutoResetEvent>,
    ) -> std::io::Result<Joiner> {
        let slot = &self.slots[number];
        spawn(options, &self.clock, slot.name.clone(), self.attending(slot, task), event)
    }

    /// Counts `task` as present on `slot` until it is dropped.
    fn attending<T>(self: &Arc<Self>, slot: &Arc<WorkerSlot>, task: T) -> Attending<T> {
        Attending { task, attendance: Attendance::new(Arc::clone(self), Arc::clone(slot)) }
    }

    /// Stops the whole group if the system has refused a thread.
    fn or_stop(&self, name: &str, spawned: std::io::Result<Joiner>) -> Result<Joiner, StartError> {
        spawned.map_err(|error| {
            self.stop();
            self.abort.cancel();
            StartError::thread(name, error)
        })
    }
}

/// Counts one thread of a group as present, from before its start until its end.
pub(crate) struct Attendance(Arc<ThreadGroup>, Arc<WorkerSlot>);

impl Attendance {
    pub(super) fn new(group: Arc<ThreadGroup>, slot: Arc<WorkerSlot>) -> Self {
        group.end.begin_part();
        slot.come();
        Self(group, slot)
    }

    /// Runs a part of the thread's body. Its panic becomes the failure of the group, and continues.
    fn noting_panics<T>(&self, body: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            self.0.fail(format!("thread {} panicked: {}", self.1.name, panic_message(&*panic)).into());
            resume_unwind(panic)
        })
    }
}

/// A task that counts as present until it is dropped.
struct Attending<T> {
    task: T,
    /// Dropped after the task.
    attendance: Attendance,
}

impl<T: Task> Task for Attending<T> {
    fn step(&mut self, now: Nanos) -> Next {
        let Self { task, attendance } = self;
        let _step = attendance.1.begin_step();
        attendance.noting_panics(|| task.step(now))
    }

    fn due(&mut self, next: Nanos) -> Nanos {
        self.task.due(next)
    }

    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        let Self { task, attendance } = self;
        let _step = attendance.1.begin_step();
        attendance.noting_panics(|| task.take_turn(turn))
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let Self(group, slot) = self;
        slot.leave();
        if group.end.end_part() {
            group.watchdog.set();
            group.kind.log_end(&group.name);
            group.end.call_hooks();
        }
    }
}
