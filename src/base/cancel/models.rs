//! Two threads change one small tree at once, in every interleaving. Reference counts are the standard library's here
//! too, so the models switch threads only at locks, flags and condition variables.

use std::sync::Arc;

use loom::thread;

use super::{CancellationToken, OnCancel};
use crate::base::sync::atomic::{AtomicUsize, Ordering};

/// Counts the begins and ends of its callback. The counters are loom's, so that other threads can run between the two.
#[derive(Clone)]
struct CallbackRuns {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl CallbackRuns {
    fn new() -> Self {
        let begun = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicUsize::new(0));
        Self { begun, ended }
    }

    fn count_on(&self, token: &CancellationToken) -> OnCancel {
        let runs = self.clone();
        token.on_cancel(move || {
            runs.begun.fetch_add(1, Ordering::Relaxed);
            runs.ended.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Returns the number of begins and the number of ends.
    fn now(&self) -> (usize, usize) {
        let begun = self.begun.load(Ordering::Relaxed);
        (begun, self.ended.load(Ordering::Relaxed))
    }
}

/// Like `loom::model`, with at most four preemptions: a full search would take minutes.
fn bounded_model(f: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(f);
}

fn spawn_cancel(token: &CancellationToken) -> thread::JoinHandle<()> {
    let token = token.clone();
    thread::spawn(move || token.cancel())
}

#[test]
fn a_callback_registered_during_a_cancel_runs_exactly_once() {
    loom::model(|| {
        let token = CancellationToken::new();
        let runs = CallbackRuns::new();
        let canceller = spawn_cancel(&token);
        let guard = runs.count_on(&token);
        canceller.join().unwrap();
        assert_eq!(runs.now(), (1, 1));
        drop(guard);
    });
}

#[test]
fn once_a_guards_drop_has_returned_its_callback_does_not_run() {
    loom::model(|| {
        let token = CancellationToken::new();
        let runs = CallbackRuns::new();
        let guard = runs.count_on(&token);
        let canceller = spawn_cancel(&token);
        drop(guard);
        let at_return = runs.now();
        assert!(at_return == (0, 0) || at_return == (1, 1));
        canceller.join().unwrap();
        assert_eq!(runs.now(), at_return);
    });
}

#[test]
fn two_guards_dropped_during_a_cancel_are_waited_for_each_alone() {
    loom::model(|| {
        let token = CancellationToken::new();
        let (one, other) = (CallbackRuns::new(), CallbackRuns::new());
        let guards = (one.count_on(&token), other.count_on(&token));
        let canceller = spawn_cancel(&token);
        drop(guards.1);
        let at_return = other.now();
        assert!(at_return == (0, 0) || at_return == (1, 1));
        drop(guards.0);
        canceller.join().unwrap();
        assert_eq!(other.now(), at_return);
    });
}

#[test]
fn a_child_made_during_a_cancel_is_cancelled() {
    loom::model(|| {
        let parent = CancellationToken::new();
        let canceller = spawn_cancel(&parent);
        let child = parent.child();
        // A thread that sees the parent cancelled sees the child cancelled.
        let parent_was = parent.is_cancelled();
        assert!(child.is_cancelled() || !parent_was);
        canceller.join().unwrap();
        assert!(child.is_cancelled());
    });
}

#[test]
fn a_child_dropped_during_a_cancel_does_no_harm() {
    loom::model(|| {
        let parent = CancellationToken::new();
        let runs = CallbackRuns::new();
        let child = parent.child();
        runs.count_on(&child).detach();
        let canceller = spawn_cancel(&parent);
        drop(child);
        canceller.join().unwrap();
        let (begun, ended) = runs.now();
        assert!(begun == ended && begun <= 1);
        assert_eq!(Arc::strong_count(&parent.node), 1);
        assert_eq!(Arc::weak_count(&parent.node), 0);
    });
}

#[test]
fn a_parent_that_reads_as_cancelled_has_only_cancelled_descendants() {
    bounded_model(|| {
        let parent = CancellationToken::new();
        let child = parent.child();
        let grandchild = child.child();
        let canceller = spawn_cancel(&parent);
        // For repeated reads of a flag, the model keeps only the last one, here by the cancelling thread. It would then
        // miss the race of the reads below with the store. A common lock of both threads makes the model explore it.
        drop(grandchild.on_cancel(|| {}));
        if parent.is_cancelled() {
            assert!(child.is_cancelled());
        }
        if child.is_cancelled() {
            assert!(grandchild.is_cancelled());
        }
        canceller.join().unwrap();
    });
}

#[test]
fn a_late_callback_finds_its_token_cancelled() {
    loom::model(|| {
        let token = CancellationToken::new();
        let canceller = spawn_cancel(&token);
        let seen = token.clone();
        let cancelled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&cancelled);
        let guard = token.on_cancel(move || {
            count.fetch_add(usize::from(seen.is_cancelled()), Ordering::Relaxed);
        });
        canceller.join().unwrap();
        assert_eq!(cancelled.load(Ordering::Relaxed), 1);
        drop(guard);
    });
}

#[test]
fn a_waiter_on_a_child_is_woken_before_the_parents_callbacks_end() {
    loom::model(|| {
        let parent = CancellationToken::new();
        let child = parent.child();
        let woken = CancellationToken::new();
        let wait = woken.clone();
        let guard = parent.on_cancel(move || wait.wait());
        let canceller = spawn_cancel(&parent);
        child.wait();
        woken.cancel();
        canceller.join().unwrap();
        drop(guard);
    });
}

#[test]
fn two_cancels_both_return_with_all_cancelled_and_one_runs_the_callback() {
    bounded_model(|| {
        let token = CancellationToken::new();
        let child = token.child();
        let runs = CallbackRuns::new();
        let guard = runs.count_on(&token);
        let canceller = spawn_cancel(&token);
        token.cancel();
        assert!(token.is_cancelled() && child.is_cancelled());
        canceller.join().unwrap();
        assert_eq!(runs.now(), (1, 1));
        drop(guard);
    });
}

#[test]
fn a_guard_dropped_after_the_second_of_two_cancels_waits_for_the_first() {
    bounded_model(|| {
        let token = CancellationToken::new();
        let runs = CallbackRuns::new();
        let guard = runs.count_on(&token);
        let canceller = spawn_cancel(&token);
        token.cancel();
        drop(guard);
        let at_return = runs.now();
        assert!(at_return == (0, 0) || at_return == (1, 1));
        canceller.join().unwrap();
        assert_eq!(runs.now(), at_return);
    });
}

#[test]
fn a_cancel_of_parent_and_child_at_once_returns_with_the_grandchild_cancelled() {
    bounded_model(|| {
        let parent = CancellationToken::new();
        let child = parent.child();
        let grandchild = child.child();
        let runs = CallbackRuns::new();
        let guard = runs.count_on(&grandchild);
        let canceller = spawn_cancel(&child);
        parent.cancel();
        assert!(child.is_cancelled() && grandchild.is_cancelled());
        canceller.join().unwrap();
        assert_eq!(runs.now(), (1, 1));
        drop(guard);
    });
}

#[test]
fn a_cancel_wakes_its_waiter() {
    loom::model(|| {
        let token = CancellationToken::new();
        let canceller = spawn_cancel(&token);
        token.wait();
        assert!(token.is_cancelled());
        canceller.join().unwrap();
    });
}

#[test]
fn a_cancel_of_the_parent_wakes_a_waiter_on_a_child() {
    loom::model(|| {
        let parent = CancellationToken::new();
        let child = parent.child();
        let canceller = spawn_cancel(&parent);
        child.wait();
        assert!(child.is_cancelled());
        canceller.join().unwrap();
    });
}
