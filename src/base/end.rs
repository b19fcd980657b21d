//! The end of something that runs: its parts that have not ended, its failure, and the callbacks for both.

use std::sync::Arc;

use super::clock::Clock;
use super::error::BoxError;
use super::thread::shielded;
use super::time::Nanos;
use super::wait::Monitor;

/// A callback for the end of a [`Runnable`](super::Runnable).
pub type EndHook = Arc<dyn Fn() + Send + Sync>;

/// The end of a group of threads, of a controller or of a manager.
pub(crate) type End = Monitor<EndState>;

#[derive(Default)]
pub(crate) struct EndState {
    /// The number of parts that have not ended.
    parts: usize,
    /// Whether [`End::notify`] was called since the last wait for it.
    notified: bool,
    failure: Option<Arc<BoxError>>,
    hooks: Vec<EndHook>,
}

impl End {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Self::of(clock, EndState::default())
    }

    /// Begins a part. It ends when the returned value is dropped, which calls the hooks.
    pub(crate) fn part(self: &Arc<Self>) -> EndPart {
        self.begin_part();
        EndPart(Arc::clone(self))
    }

    pub(crate) fn begin_part(&self) {
        self.with(|end| end.parts += 1);
    }

    /// Ends a part. Returns whether it was the last one; then wakes the threads that wait, but calls no hook.
    pub(crate) fn end_part(&self) -> bool {
        let is_last = self.with(|end| {
            end.parts -= 1;
            end.parts == 0
        });
        if is_last {
            self.change(|_| ());
        }
        is_last
    }

    /// Returns whether every part has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.with(|end| end.parts == 0)
    }

    /// Blocks until every part has ended or `deadline` has passed. Returns whether all have ended.
    pub(crate) fn wait_until_empty(self: &Arc<Self>, deadline: Nanos) -> bool {
        self.wait_for_some(deadline, |end| (end.parts == 0).then_some(())).is_some()
    }

    /// Keeps the first failure. The caller then calls the hooks.
    pub(crate) fn fail(&self, error: Arc<BoxError>) {
        self.with(|end| {
            end.failure.get_or_insert(error);
        });
    }

    pub(crate) fn failure(&self) -> Option<Arc<BoxError>> {
        self.with(|end| end.failure.clone())
    }

    /// Adds a hook, and calls it if everything has ended or failed already. Checks this after the hook is added, so
    /// that nothing is missed.
    pub(crate) fn add_hook(&self, hook: &EndHook, has_ended: impl FnOnce() -> bool) {
        self.with(|end| end.hooks.push(Arc::clone(hook)));
        if has_ended() || self.failure().is_some() {
            call(hook);
        }
    }

    /// Calls all hooks, without the lock. A panic of a hook is logged.
    pub(crate) fn call_hooks(&self) {
        let hooks = self.with(|end| end.hooks.clone());
        hooks.iter().for_each(call);
    }

    /// Wakes the thread in [`wait_for_notice`](Self::wait_for_notice), and calls the hooks.
    pub(crate) fn notify(&self) {
        self.change(|end| end.notified = true);
        self.call_hooks();
    }

    /// Blocks until [`notify`](Self::notify) was called since the last wait, or `deadline` has passed.
    pub(crate) fn wait_for_notice(self: &Arc<Self>, deadline: Nanos) {
        self.wait_for_some(deadline, |end| std::mem::take(&mut end.notified).then_some(()));
    }
}

/// A part of something that runs, until it is dropped.
pub(crate) struct EndPart(Arc<End>);

impl Drop for EndPart {
    fn drop(&mut self) {
        self.0.end_part();
        self.0.notify();
    }
}

fn call(hook: &EndHook) {
    shielded("a hook for an end", || hook());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::task::{Next, Task};
    use crate::base::task_thread::TaskThread;
    use crate::base::thread::ThreadOptions;

    /// A task that ends at its second step.
    struct Twice(bool, #[expect(dead_code, reason = "it ends with the task")] EndPart);

    impl Task for Twice {
        fn step(&mut self, _now: Nanos) -> Next {
            if std::mem::replace(&mut self.0, true) { Next::Finished } else { Next::At(Nanos::NEVER) }
        }
    }

    #[test]
    fn a_part_ends_when_its_task_leaves() {
        let clock = ManualClock::new();
        let thread = TaskThread::new("tasks".to_owned(), ThreadOptions::new(), clock.clock());
        let (end, waker, calls) = (End::new(clock.clock()), thread.waker(), Arc::new(AtomicUsize::new(0)));
        let joiner = waker.add("task", Twice(false, end.part())).unwrap();
        clock.wait_for_sleepers(1);
        let counted = Arc::clone(&calls);
        end.add_hook(
            &(Arc::new(move || {
                counted.fetch_add(1, SeqCst);
            }) as EndHook),
            || end.is_empty(),
        );
        assert!(!end.is_empty() && !end.wait_until_empty(Nanos::ZERO));
        waker.set();
        joiner.join();
        assert!(end.wait_until_empty(Nanos::NEVER));
        assert_eq!(calls.load(SeqCst), 1);
    }

    #[test]
    fn the_first_failure_counts_and_is_told_to_later_hooks() {
        let end = End::new(ManualClock::new().clock());
        let (part, calls) = (end.part(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        let hook: EndHook = Arc::new(move || {
            counted.fetch_add(1, SeqCst);
        });
        end.add_hook(&hook, || end.is_empty());
        assert_eq!(calls.load(SeqCst), 0);
        end.fail(Arc::new("first".into()));
        end.fail(Arc::new("second".into()));
        assert_eq!(end.failure().unwrap().to_string(), "first");
        end.add_hook(&hook, || end.is_empty());
        assert_eq!(calls.load(SeqCst), 1, "it has failed before");
        drop(part);
        assert_eq!(calls.load(SeqCst), 3, "both hooks hear of the end");
        end.wait_for_notice(Nanos::NEVER);
    }
}
