//! Copies of handles in a process that was forked without `exec`: they leave the locks and threads of their parent
//! alone.

use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Barrier, Once};
use std::thread;

use homeostat::manager::{Leadership, Term};
use homeostat::rt::{Nanos, Next, Task, TaskThread};
use homeostat::{BoxError, Clock, Enqueue, EnqueueOutcome, ThreadOptions, WorkQueue};

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

/// A key whose first comparison waits twice at the barrier, under the lock of its queue.
#[derive(Clone, Default)]
struct Slow(Option<Arc<(Barrier, Once)>>);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Eq for Slow {}

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        if let Some(pause) = self.0.as_ref().or(other.0.as_ref()) {
            pause.1.call_once(|| {
                pause.0.wait();
                pause.0.wait();
            });
        }
        true
    }
}

#[test]
fn a_forked_process_drops_a_queue_whose_lock_was_held_at_the_fork() {
    let queue = WorkQueue::new();
    queue.enqueue(Slow::default());
    let pause = Arc::new((Barrier::new(2), Once::new()));
    let other = (queue.clone(), Slow(Some(Arc::clone(&pause))));
    let mut queue = Some(queue);
    thread::scope(|scope| {
        let request = scope.spawn(|| other.0.enqueue(other.1));
        pause.0.wait();
        in_a_fork(|| {
            drop(queue.take());
            Ok(())
        });
        pause.0.wait();
        assert_eq!(request.join().unwrap(), EnqueueOutcome::Merged);
    });
}

/// A task with one step.
struct OneStep;

impl Task for OneStep {
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
        waker.add("once", OneStep).map_err(|error| error.to_string())?.join();
        Ok(())
    });
    drop(thread);
    assert!(waker.add("once", OneStep).is_err(), "the drop in its own process stops it");
}
