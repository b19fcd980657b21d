//! Starts the threads of tasks, or passes the tasks to the scheduler of a simulation.

use std::io;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, ThreadOptions};
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;

/// Starts a thread that runs `task`. Setting `event` triggers its next step. In a simulation, the scheduler runs the
/// steps.
///
/// The thread ends after the last step. Join it with the returned handle.
///
/// # Errors
///
/// Returns an error if the operating system refuses a thread, if `name` has a NUL, or if the simulation has ended.
///
/// # Examples
///
/// A task that counts the times at which it was woken:
///
/// ```
/// use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, spawn};
/// use homeostat::{Clock, ThreadOptions};
///
/// struct ThreeSteps(u32);
///
/// impl Task for ThreeSteps {
///     fn step(&mut self, _now: Nanos) -> Next {
///         self.0 += 1;
///         if self.0 == 3 { Next::Finished } else { Next::At(Nanos::ZERO) }
///     }
/// }
///
/// let clock = Clock::system();
/// let event = AutoResetEvent::new(clock.clone());
/// spawn(&ThreadOptions::new(), &clock, "counter".to_owned(), ThreeSteps(0), &event)?.join();
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn spawn(
    options: &ThreadOptions,
    clock: &Clock,
    name: String,
    task: impl Task + 'static,
    event: &Arc<AutoResetEvent>,
) -> io::Result<Joiner> {
    let event = Arc::clone(event);
    match clock.scheduler() {
        None => options.spawn(name, move || run(&mut { task }, &event)),
        Some((clock, scheduler)) => Arc::clone(scheduler).enter(&clock, name, Box::new(EventTask { task, event })),
    }
}

/// Runs the steps of a task until it is finished. Between steps, waits for `event` or for the time of the next step.
pub(crate) fn run(task: &mut impl Task, event: &Arc<AutoResetEvent>) {
    while let Next::At(time) = task.step(event.clock().nanos()) {
        event.wait_until(time);
    }
}

/// A task that is due when its event is set.
struct EventTask<T> {
    task: T,
    event: Arc<AutoResetEvent>,
}

impl<T: Task> Task for EventTask<T> {
    fn step(&mut self, now: Nanos) -> Next {
        self.event.clear();
        self.task.step(now)
    }

    fn due(&mut self, next: Nanos) -> Nanos {
        if self.event.is_set() { Nanos::ZERO } else { self.task.due(next) }
    }

    fn take_turn(&mut self, now: Nanos, draw: u64, say: &dyn Fn(String)) -> Next {
        self.event.clear();
        self.task.take_turn(now, draw, say)
    }
}
