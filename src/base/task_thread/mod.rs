//! One thread that runs the steps of many tasks.
//!
//! The thread starts with the first task. It sleeps until the earliest time that a task requests, or until a
//! [`TaskWaker`] is set. Due times are in an ordered set, so the cost of a step hardly depends on the number of tasks.
//! The task that has been due longest comes first: no task that is due again at once delays another one twice.
//!
//! User code is called [aside](TaskWaker::call_aside), on another thread, so a slow call delays no other task.
//!
//! Lock order: a queue takes the lock of the state under its own, to start its timer. Under the lock of the state, only
//! that of a held clock is taken. Tasks run and drop outside.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::process::OwnerProcess;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicBool;
use crate::base::sync::atomic::Ordering::{Acquire, Release};
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, ThreadOptions, log_panic, shielded};
use crate::base::time::Nanos;
use crate::base::wait::Monitor;

/// A thread that runs the steps of any number of [`Task`]s, one step at a time.
///
/// The thread starts with the first task. A step that blocks delays all other tasks. A step that panics ends only its
/// own task, even if the logger panics as well. In a simulation there is no thread: the scheduler runs each task
/// separately.
///
/// Dropping this stops the thread: it ends once every task has left. If all have left by then, the drop joins the
/// thread. In a forked process, the drop does nothing.
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
    owner: OwnerProcess,
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
    state: Arc<Monitor<TaskState>>,
}

#[derive(Default)]
struct TaskState {
    next_id: u64,
    /// The tasks that have not left, by id.
    tasks: BTreeMap<u64, AddedTask>,
    /// The due time of each task.
    due: BTreeSet<(Nanos, u64)>,
    /// Whether the thread ends with its last task.
    stopped: bool,
    /// The thread, until it is joined.
    thread: Option<Joiner>,
    /// The threads of calls aside, each with whether its call has returned.
    aside: Vec<(Arc<AtomicBool>, Joiner)>,
}

struct AddedTask {
    name: String,
    /// Absent during a step, and in a simulation.
    task: Option<Box<dyn Task>>,
    /// The time of the next step. During a step, the time at which its waker was set, or never.
    due: Nanos,
}

impl TaskThread {
    /// Creates the thread without starting it.
    #[must_use]
    pub fn new(name: String, options: ThreadOptions, clock: Clock) -> Self {
        let state = Monitor::of(clock, TaskState::default());
        Self { shared: Arc::new(TaskThreadShared { name, options, state }), owner: OwnerProcess::current() }
    }

    /// Returns the waker for a task that is not added yet.
    #[must_use]
    pub fn waker(&self) -> TaskWaker {
        TaskWaker::new(&self.shared)
    }

    /// Lets the thread end once every task has left. From then on, it rejects new tasks.
    pub fn stop(&self) {
        self.shared.state.change(|state| state.stopped = true);
    }

    /// Returns the names of the tasks that have not left, in the order of their wakers.
    #[must_use]
    pub fn tasks(&self) -> Vec<String> {
        self.shared.state.with(|state| state.tasks.values().map(|entry| entry.name.clone()).collect())
    }
}

impl Drop for TaskThread {
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.stop();
            // Otherwise the thread ends with its last task. A call that has not returned was given up with its part.
            let (thread, aside) =
                self.shared.state.with(|state| (state.take_ended(), std::mem::take(&mut state.aside)));
            let returned = aside.into_iter().filter(|(has_returned, _)| has_returned.load(Acquire));
            thread.into_iter().chain(returned.map(|(_, thread)| thread)).for_each(Joiner::join);
        }
    }
}

impl fmt::Debug for TaskThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.waker().fmt(f)
    }
}

impl fmt::Debug for TaskWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskThread").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl TaskWaker {
    fn new(shared: &Arc<TaskThreadShared>) -> Self {
        let id = shared.state.with(|state| {
            state.next_id += 1;
            state.next_id
        });
        Self { shared: Arc::clone(shared), id }
    }

    /// Returns the waker for another task on the same thread.
    pub(crate) fn for_another(&self) -> Self {
        Self::new(&self.shared)
    }

    /// Returns the name of the thread.
    pub(crate) fn thread(&self) -> &str {
        &self.shared.name
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.shared.state.clock()
    }

    /// Returns whether the caller is the task thread, or in a call aside.
    pub(crate) fn is_current(&self) -> bool {
        self.shared.is_current()
    }

    /// Adds the task of this waker, and starts the thread if this is the first task. Its first step runs soon.
    ///
    /// The returned joiner waits until the task has left: it returned [`Next::Finished`], or panicked. On the task
    /// thread itself, joining returns at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the waker has a task already, if the thread was stopped and has no other task, or if the
    /// operating system refuses it.
    pub fn add(&self, name: &str, task: impl Task + 'static) -> io::Result<Joiner> {
        let Self { shared, id } = self;
        let (name, due) = (name.to_owned(), shared.state.clock().nanos());
        let simulation = shared.state.clock().scheduler();
        // A task that is rejected drops outside the lock.
        let mut task: Option<Box<dyn Task>> = Some(Box::new(task));
        shared.state.change(|state| {
            if state.tasks.contains_key(id) {
                return Err(io::Error::other("its waker has a task already"));
            }
            if state.is_over() {
                return Err(io::Error::other("its task thread has been stopped"));
            }
            let mut entry = AddedTask { name: name.clone(), task: None, due };
            if simulation.is_none() {
                if state.thread.is_none() {
                    let shared = Arc::clone(shared);
                    state.thread = Some(self.shared.options.spawn(shared.name.clone(), move || shared.run())?);
                }
                entry.task = task.take();
            }
            state.tasks.insert(*id, entry);
            state.due.insert((due, *id));
            Ok(())
        })?;
        if let (Some((clock, scheduler)), Some(task)) = (simulation, task) {
            let task = SimulatedTask { task, waker: self.clone() };
            return Arc::clone(scheduler).enter(&clock, name, Box::new(task));
        }
        let (asked, shared, id) = (Arc::clone(shared), Arc::clone(shared), *id);
        Ok(Joiner::of_task(name, move || asked.is_current(), move || shared.join(id)))
    }

    /// Calls user code on a thread of its own with this name, then drops `part`. There, joining a task of this task
    /// thread returns at once. The call runs now if `here` is set, or if the system refuses the thread: a late
    /// cancellation would be worse than a late caller.
    pub(crate) fn call_aside(&self, here: bool, name: &str, call: impl FnOnce() + Send + 'static, part: Box<dyn Send>) {
        let kept = Arc::new(Mutex::new(Some((call, part))));
        let (taken, has_returned) = (Arc::clone(&kept), Arc::new(AtomicBool::new(false)));
        let returns = Arc::clone(&has_returned);
        let body = move || {
            let part = run_kept(&taken);
            returns.store(true, Release);
            drop(part);
        };
        // Under the lock: the call may ask whether it is on this thread.
        let has_started = self.shared.state.with(|state| {
            state.aside.retain(|(has_returned, _)| !has_returned.load(Acquire));
            let keep = |joiner| state.aside.push((has_returned, joiner));
            !here && self.shared.options.spawn(name.to_owned(), body).map(keep).is_ok()
        });
        if !has_started {
            drop(run_kept(&kept));
        }
    }

    /// Joins the threads of the calls aside that have returned.
    pub(crate) fn join_returned(&self) {
        let has_returned = |(has_returned, _): &mut (Arc<AtomicBool>, Joiner)| has_returned.load(Acquire);
        let calls: Vec<_> = self.shared.state.with(|state| state.aside.extract_if(.., has_returned).collect());
        calls.into_iter().map(|(_, thread)| thread).for_each(Joiner::join);
    }

    /// Triggers a step of the task, even if a step is running now.
    pub fn set(&self) {
        let now = self.shared.state.clock().nanos();
        self.shared.state.change(|state| state.bring_forward(self.id, now));
    }
}

impl TaskState {
    /// Lets the next step begin at `time`, unless it is due before.
    fn bring_forward(&mut self, id: u64, time: Nanos) {
        // The waker may belong to a task that has left or is not added yet.
        let Some(entry) = self.tasks.get_mut(&id).filter(|entry| time < entry.due) else { return };
        self.due.remove(&(entry.due, id));
        self.due.insert((time, id));
        entry.due = time;
    }

    /// Begins a step of a task. Returns the task, unless a scheduler has it.
    fn begin_step(&mut self, id: u64) -> Option<Box<dyn Task>> {
        let entry = self.tasks.get_mut(&id)?;
        self.due.remove(&(entry.due, id));
        self.due.insert((Nanos::NEVER, id));
        entry.due = Nanos::NEVER;
        entry.task.take()
    }

    fn earliest(&self) -> Nanos {
        self.due.first().map_or(Nanos::NEVER, |(time, _)| *time)
    }

    fn is_over(&self) -> bool {
        self.stopped && self.tasks.is_empty()
    }

    /// Returns the thread, to be joined, if it has been stopped and has no task.
    fn take_ended(&mut self) -> Option<Joiner> {
        if self.is_over() { self.thread.take() } else { None }
    }
}

impl TaskThreadShared {
    /// The body of the thread: runs the steps of all tasks, until it is stopped and every task has left.
    fn run(&self) {
        let clock = self.state.clock();
        loop {
            let next = self.state.with(|state| match state.due.first() {
                None if state.stopped => None,
                Some(&(due, id)) if due <= clock.nanos() => state.begin_step(id).map(|task| Ok((id, task))),
                _ => Some(Err(state.earliest())),
            });
            match next {
                None => return,
                Some(Ok((id, task))) => self.step(id, task),
                Some(Err(due)) => {
                    self.state.wait_for_some(due, |state| (state.earliest() < due || state.is_over()).then_some(()));
                }
            }
        }
    }

    /// Runs a step of a task. A panic ends this task only.
    fn step(&self, id: u64, mut task: Box<dyn Task>) {
        let now = self.state.clock().nanos();
        let next = catch_unwind(AssertUnwindSafe(|| task.step(now))).unwrap_or_else(|panic| {
            log_panic(&self.name_of(id), &*panic);
            Next::Finished
        });
        match next {
            Next::At(time) => self.state.with(|state| {
                state.tasks.entry(id).and_modify(|entry| entry.task = Some(task));
                state.bring_forward(id, time.max(now));
            }),
            Next::Finished => {
                // A drop that panics must not end the other tasks.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
                self.leave(id);
            }
        }
    }

    fn name_of(&self, id: u64) -> String {
        self.state.with(|state| state.tasks.get(&id).map(|entry| entry.name.clone()).unwrap_or_default())
    }

    fn leave(&self, id: u64) {
        self.state.change(|state| {
            let entry = state.tasks.remove(&id);
            state.due.remove(&(entry.map_or(Nanos::NEVER, |entry| entry.due), id));
        });
    }

    /// Returns whether the caller is the task thread, or in a call aside.
    fn is_current(&self) -> bool {
        self.state.with(|state| {
            state.thread.iter().chain(state.aside.iter().map(|(_, thread)| thread)).any(Joiner::is_current)
        })
    }

    /// Blocks until a task has left. Also joins the thread if it has been stopped, and this was its last task.
    fn join(&self, id: u64) {
        let has_left = |state: &mut TaskState| (!state.tasks.contains_key(&id)).then(|| state.take_ended());
        self.state.wait_for_some(Nanos::NEVER, has_left).flatten().into_iter().for_each(Joiner::join);
    }
}

/// Runs a call, unless it was taken. Returns its part.
fn run_kept(kept: &Mutex<Option<(impl FnOnce(), Box<dyn Send>)>>) -> Option<Box<dyn Send>> {
    let (call, part) = kept.lock().take()?;
    shielded("a call", call);
    Some(part)
}

/// A task that the scheduler of a simulation runs, until it is dropped.
struct SimulatedTask {
    task: Box<dyn Task>,
    waker: TaskWaker,
}

impl Task for SimulatedTask {
    fn step(&mut self, now: Nanos) -> Next {
        self.task.step(now)
    }

    fn due(&mut self, next: Nanos) -> Nanos {
        let TaskWaker { shared, id } = &self.waker;
        let woken = shared.state.with(|state| state.tasks.get(id).is_some_and(|entry| entry.due != Nanos::NEVER));
        if woken { Nanos::ZERO } else { self.task.due(next) }
    }

    fn take_turn(&mut self, now: Nanos, draw: u64, say: &dyn Fn(String)) -> Next {
        self.waker.shared.state.with(|state| state.begin_step(self.waker.id));
        self.task.take_turn(now, draw, say)
    }
}

impl Drop for SimulatedTask {
    fn drop(&mut self) {
        self.waker.shared.leave(self.waker.id);
    }
}

/// For tests and models that run the steps themselves.
#[cfg(test)]
mod stepped {
    use super::*;

    /// Takes the place of a task.
    struct Idle;

    impl Task for Idle {
        fn step(&mut self, _now: Nanos) -> Next {
            Next::At(Nanos::NEVER)
        }
    }

    impl TaskThread {
        /// Creates a task thread that starts no thread.
        pub(crate) fn without_thread(clock: Clock) -> Self {
            let thread = Self::new("tasks".to_owned(), ThreadOptions::new(), clock);
            thread.shared.state.with(|state| state.thread = Some(Joiner::of_task("tasks".to_owned(), || false, || ())));
            thread
        }
    }

    impl TaskWaker {
        /// Returns the waker of a task that is stepped by the caller.
        pub(crate) fn without_thread(clock: Clock) -> Self {
            let thread = TaskThread::without_thread(clock);
            let waker = thread.waker();
            assert!(waker.add("task", Idle).is_ok());
            waker.take_set();
            waker
        }

        /// Returns whether the waker was set since the last call.
        pub(crate) fn take_set(&self) -> bool {
            self.shared.state.with(|state| {
                let is_set = state.earliest() != Nanos::NEVER;
                let task = state.begin_step(self.id);
                state.tasks.entry(self.id).and_modify(|entry| entry.task = task);
                is_set
            })
        }

        /// Runs the steps of `task` until it is finished.
        #[cfg(loom)]
        pub(crate) fn run(&self, mut task: impl Task) {
            while let Next::At(time) = task.step(self.clock().nanos()) {
                let is_set = |state: &mut TaskState| (state.earliest() != Nanos::NEVER).then_some(());
                self.shared.state.wait_for_some(time, is_set);
                self.take_set();
            }
        }
    }
}
