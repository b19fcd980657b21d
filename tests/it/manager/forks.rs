//! Copies of handles in a process that was forked without `exec`: they leave the locks and threads of their parent
//! alone.

use std::path::Path;

use homeostat::manager::{Leadership, Term};
use homeostat::rt::{Nanos, Next, Task, TaskThread};
use homeostat::{BoxError, Clock, Enqueue, ThreadOptions, WorkQueue};

use crate::forks::{ensure, in_a_fork};
use crate::support::SECOND;

/// A leadership that is given back on drop, like a row of a database.
struct Row(Box<Path>);

impl Leadership for Row {
    fn check(&mut self) -> Result<(), BoxError> {
        Ok(std::fs::write(&self.0, "renewed")?)
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        std::fs::write(&self.0, "given back").unwrap();
    }
}

#[test]
fn a_forked_process_calls_no_leadership_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("row");
    std::fs::write(&path, "mine").unwrap();
    let mut term = Some(Term::new("row", Row(path.as_path().into())));
    in_a_fork(|| {
        let mut term = term.take().unwrap();
        ensure(term.check().is_err(), "the copy of the term counts")?;
        drop(term);
        Ok(())
    });
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    drop(term);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "given back");
}

#[test]
fn a_forked_process_drops_a_queue_with_a_timer_without_a_wait() {
    let queue = WorkQueue::<&str>::new();
    queue.enqueue_after("later", 3_600 * SECOND);
    let mut queue = Some(queue);
    in_a_fork(|| {
        drop(queue.take());
        Ok(())
    });
    queue.unwrap().enqueue_now("later");
}

/// A task with one step.
struct Once;

impl Task for Once {
    fn step(&mut self, _now: Nanos) -> Next {
        Next::Finished
    }
}

#[test]
fn a_forked_process_that_drops_its_copy_of_a_task_thread_does_not_stop_it() {
    let thread = TaskThread::new("tasks".to_owned(), ThreadOptions::new(), Clock::system());
    let waker = thread.waker();
    let mut thread = Some(thread);
    in_a_fork(|| {
        drop(thread.take());
        waker.add("once", Once).map_err(|error| error.to_string())?.join();
        Ok(())
    });
    drop(thread);
    assert!(waker.add("once", Once).is_err(), "the drop in its own process stops it");
}
