//! Starts the threads of tasks, or passes the tasks to the scheduler of a simulation.

use std::io;
use std::sync::Arc;

use crate::base::clock::Clock;
#[cfg(feature = "testing")]
use crate::base::task::TurnContext;
use crate::base::task::{Next, Task};
use crate::base::thread::{Joiner, ThreadOptions};
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;

/// Starts a thread that runs `task`. Setting `event` triggers its next step. In a simulation, the scheduler runs the steps.
///
/// # Errors
///
/// Returns an error if the operating system refuses a thread, or if the simulation has ended.
pub(crate) fn spawn(
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

    #[cfg(feature = "testing")]
    fn due(&mut self, next: Nanos) -> Nanos {
        if self.event.is_set() { Nanos::ZERO } else { self.task.due(next) }
    }

    #[cfg(feature = "testing")]
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        self.event.clear();
        self.task.take_turn(turn)
    }
}
