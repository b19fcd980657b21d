//! One thread that runs the steps of many tasks.
//!
//! The thread starts with the first task. It sleeps until the earliest time that a task requests, or until a
//! [`TaskWaker`] is set. The cost of a wake depends on the tasks with work, not on the other tasks: due times are in an
//! ordered set.
//!
//! Lock order: the lock of the shared state is an inner one. A queue takes it under its own lock, to start its timer.
//! Under it only the lock of a held clock is taken. Tasks run and drop outside it.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::StillRunning;
use crate::base::spawn::spawn;
use crate::base::task::{Next, Task, TurnContext};
use crate::base::thread::{JoinTask, Joiner, ThreadOptions, log_panic};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, Monitor};

/// A thread that runs the steps of any number of [`Task`]s, one step at a time.
///
/// The thread starts with the first task. A step that blocks delays all other tasks. In a simulation there is no
/// thread: the scheduler runs each task separately.
///
/// Dropping this stops the thread: it ends once every task has left. If all have left by then, the drop joins the
/// thread.
///
/// # Examples
///
/// ```
/// use homeostat::rt::{Nanos, Next, Task, TaskThread};
/// use homeostat::{Clock, ThreadOptions};
/// use std::sync::mpsc;
///
/// struct Greeting(mpsc::Sender<&'static str>, &'static str);
///
/// impl Task for Greeting {
///     fn step(&mut self, _now: Nanos) -> Next {
///         let _ = self.0.send(self.1);
///         Next::Finished
///     }
/// }
///
/// let thread = TaskThread::new("greeter".to_owned(), ThreadOptions::new(), Clock::system());
/// let (sender, greetings) = mpsc::channel();
/// thread.waker().add("hello", Greeting(sender, "hello"))?.join();
/// assert_eq!(greetings.recv(), Ok("hello"));
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct TaskThread {
    shared: Arc<TaskThreadShared>,
}

/// Adds one task to a [`TaskThread`], and triggers its steps. Clones are for the same task.
#[derive(Clone)]
pub struct TaskWaker {
    shared: Arc<TaskThreadShared>,
    id: u64,
}

struct TaskThreadShared {
    name: String,
    options: ThreadOptions,
    /// Wakes the thread.
    event: Arc<AutoResetEvent>,
    state: Arc<Monitor<TaskState>>,
}

#[derive(Default)]
struct TaskState {
    next_id: u64,
    /// Tasks that the thread has not taken over yet.
    added: Vec<(u64, ScheduledTask)>,
    /// Tasks that were woken since their last step began.
    woken: BTreeSet<u64>,
    /// The names of the tasks that have not left, by id.
    present: BTreeMap<u64, String>,
    /// Whether new tasks are rejected.
    stopped: bool,
    /// The thread, until it is joined.
    thread: Option<Joiner>,
}

impl TaskThread {
    /// Creates the thread without starting it.
    #[must_use]
    pub fn new(name: String, options: ThreadOptions, clock: Clock) -> Self {
        let shared = Arc::new(TaskThreadShared {
            name,
            options,
            event: AutoResetEvent::new(clock.clone()),
            state: Monitor::of(clock, TaskState::default()),
        });
        Self { shared }
    }

    /// Returns the waker for a task that is not added yet.
    #[must_use]
    pub fn waker(&self) -> TaskWaker {
        let id = self.shared.state.with(|state| {
            state.next_id += 1;
            state.next_id
        });
        TaskWaker { shared: Arc::clone(&self.shared), id }
    }

    /// Rejects new tasks. The thread ends once every task has left.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Returns the names of the tasks that have not left.
    #[must_use]
    pub fn tasks(&self) -> Vec<String> {
        self.shared.state.with(|state| state.present.values().cloned().collect())
    }

    /// Blocks until every task has left, for at most `timeout`. Then joins the thread if it was stopped.
    ///
    /// The last task that leaves wakes this. On the task thread itself it does not wait.
    ///
    /// # Errors
    ///
    /// Returns [`StillRunning`] with the tasks that have not left.
    pub fn join_timeout(&self, timeout: Duration) -> Result<(), StillRunning> {
        let shared = &self.shared;
        let timeout = if shared.is_current() { Duration::ZERO } else { timeout };
        let thread = shared.state.wait_for_some(shared.state.clock().nanos().after(timeout), |state| {
            let thread = if state.stopped { &mut state.thread } else { &mut None };
            state.present.is_empty().then(|| thread.take())
        });
        let thread = thread.ok_or_else(|| StillRunning::new(self.tasks()))?;
        thread.into_iter().for_each(Joiner::join);
        Ok(())
    }
}

impl Drop for TaskThread {
    fn drop(&mut self) {
        self.stop();
        // Otherwise the thread ends with its last task.
        let _ = self.join_timeout(Duration::ZERO);
    }
}

impl fmt::Debug for TaskThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskThread")
            .field("name", &self.shared.name)
            .field("tasks", &self.tasks())
            .finish_non_exhaustive()
    }
}

impl TaskWaker {
    /// Adds the task of this waker, and starts the thread if this is the first task. Its first step runs soon.
    ///
    /// The returned joiner waits until the task has left: it returned [`Next::Finished`], or panicked. On the task
    /// thread itself, joining returns at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread was stopped, or if the operating system refuses it.
    pub fn add(&self, name: &str, task: impl Task + 'static) -> io::Result<Joiner> {
        let Self { shared, id } = self;
        let simulation = shared.state.clock().scheduler();
        let mut task: Option<Box<dyn Task>> = Some(Box::new(task));
        // A task that is rejected drops outside the lock.
        let entry = shared.state.with(|state| {
            if state.stopped {
                return Err(io::Error::other("its task thread has been stopped"));
            }
            if state.thread.is_none() && simulation.is_none() {
                state.thread = Some(shared.start()?);
            }
            state.present.insert(*id, name.to_owned());
            let presence = Presence { shared: Arc::clone(shared), id: *id };
            let entry = task.take().map(|task| ScheduledTask { task, due: Nanos::ZERO, presence });
            if simulation.is_some() {
                return Ok(entry);
            }
            state.added.extend(entry.map(|task| (*id, task)));
            Ok(None)
        })?;
        let (Some(task), Some((clock, scheduler))) = (entry, simulation) else {
            shared.event.set();
            return Ok(Joiner::of_task(name.to_owned(), self.clone()));
        };
        Arc::clone(scheduler).enter(&clock, name.to_owned(), Box::new(task))
    }

    /// Triggers a step of the task, even if a step is running now.
    pub fn set(&self) {
        // If the task is already in the set, the thread that added it wakes this thread.
        if self.shared.state.with(|state| state.woken.insert(self.id)) {
            self.shared.event.set();
        }
    }
}

impl fmt::Debug for TaskWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskWaker").field("thread", &self.shared.name).field("id", &self.id).finish()
    }
}

impl JoinTask for TaskWaker {
    fn is_current(&self) -> bool {
        self.shared.is_current()
    }

    fn join(&self) {
        self.shared.state.wait_for_some(Nanos::NEVER, |state| (!state.present.contains_key(&self.id)).then_some(()));
    }
}

impl TaskThreadShared {
    fn start(self: &Arc<Self>) -> io::Result<Joiner> {
        spawn(&self.options, self.state.clock(), self.name.clone(), Executor::new(self), &self.event)
    }

    fn stop(&self) {
        self.state.with(|state| state.stopped = true);
        self.event.set();
    }

    /// Returns whether the caller is the task thread.
    fn is_current(&self) -> bool {
        self.state.with(|state| state.thread.as_ref().is_some_and(Joiner::is_current))
    }
}

/// A task and the time of its next step.
struct ScheduledTask {
    task: Box<dyn Task>,
    due: Nanos,
    /// Dropped after the task.
    presence: Presence,
}

impl Task for ScheduledTask {
    /// A panic ends this task only.
    fn step(&mut self, now: Nanos) -> Next {
        catch_unwind(AssertUnwindSafe(|| self.task.step(now))).unwrap_or_else(|panic| {
            log_panic(&self.presence.name(), &*panic);
            Next::Finished
        })
    }

    fn due(&mut self, next: Nanos) -> Nanos {
        let Presence { shared, id } = &self.presence;
        let woken = shared.state.with(|state| state.woken.contains(id));
        if woken { Nanos::ZERO } else { self.task.due(next) }
    }

    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        let Presence { shared, id } = &self.presence;
        shared.state.with(|state| state.woken.remove(id));
        self.task.take_turn(turn)
    }
}

/// Counts a task as present until it is dropped.
struct Presence {
    shared: Arc<TaskThreadShared>,
    id: u64,
}

impl Presence {
    fn name(&self) -> String {
        self.shared.state.with(|state| state.present.get(&self.id).cloned().unwrap_or_default())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.shared.state.change(|state| {
            state.present.remove(&self.id);
            state.woken.remove(&self.id);
        });
    }
}

/// The work of the thread: the steps of all its tasks.
struct Executor {
    shared: Arc<TaskThreadShared>,
    tasks: BTreeMap<u64, ScheduledTask>,
    /// The tasks in the order of their due times, without those that wait only for their waker.
    due: BTreeSet<(Nanos, u64)>,
}

impl Executor {
    fn new(shared: &Arc<TaskThreadShared>) -> Self {
        Self { shared: Arc::clone(shared), tasks: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Returns the tasks to run now: new tasks, woken tasks, and tasks due at `now`.
    fn ready(&mut self, now: Nanos) -> Vec<u64> {
        let (added, woken) =
            self.shared.state.with(|state| (std::mem::take(&mut state.added), std::mem::take(&mut state.woken)));
        let mut ready = woken;
        for (id, task) in added {
            self.tasks.insert(id, task);
            ready.insert(id);
        }
        while let Some(&(time, id)) = self.due.first().filter(|(time, _)| *time <= now) {
            self.due.remove(&(time, id));
            ready.insert(id);
        }
        ready.into_iter().collect()
    }

    fn step_one(&mut self, id: u64) {
        // The waker may belong to a task that has left or is not added yet.
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.due.remove(&(task.due, id));
        match task.step(self.shared.state.clock().nanos()) {
            Next::Finished => {
                self.tasks.remove(&id);
            }
            Next::At(time) => {
                task.due = time;
                if time != Nanos::NEVER {
                    self.due.insert((time, id));
                }
            }
        }
    }
}

impl Task for Executor {
    fn step(&mut self, now: Nanos) -> Next {
        for id in self.ready(now) {
            self.step_one(id);
        }
        if self.tasks.is_empty() && self.shared.state.with(|state| state.stopped && state.added.is_empty()) {
            return Next::Finished;
        }
        Next::At(self.due.first().map_or(Nanos::NEVER, |(time, _)| *time))
    }
}
