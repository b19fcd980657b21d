//! A thread of several tasks in a simulation.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::Simulation;
use homeostat::base::ThreadOptions;
use homeostat::rt::{Nanos, Next, Task, TaskThread};

const SECOND: Duration = Duration::from_secs(1);

/// A task that reports its steps and wants one each second.
struct Periodic(Sender<Nanos>);

impl Task for Periodic {
    fn step(&mut self, now: Nanos) -> Next {
        let _ = self.0.send(now);
        Next::At(now.after(SECOND))
    }
}

/// A task with one step.
struct Once;

impl Task for Once {
    fn step(&mut self, _now: Nanos) -> Next {
        Next::Finished
    }
}

#[test]
fn a_simulation_plays_each_task_by_itself() {
    let simulation = Simulation::new(7);
    let thread = TaskThread::new("tasks".to_owned(), ThreadOptions::new(), simulation.clock());
    let (report, reported) = channel();
    let at = |seconds: u32| Nanos::ZERO.after(SECOND * seconds);
    let waker = thread.waker();
    let _one = waker.add("one", Periodic(report)).unwrap();
    thread.waker().add("two", Once).unwrap().join();
    simulation.run_for(3 * SECOND);
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3].map(at));
    waker.set();
    simulation.run_for(Duration::ZERO);
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [at(3)]);
    assert_eq!(thread.tasks(), ["one"]);
}
