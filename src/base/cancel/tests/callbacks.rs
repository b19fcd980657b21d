//! Callbacks, their guards and waiting threads.

use std::panic;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use super::{CancellationToken, Record};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Runs its function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

// Callbacks.

#[test]
fn callbacks_run_once_in_order_on_the_cancelling_thread() {
    let token = CancellationToken::new();
    let record = Record::default();
    let here = thread::current().id();
    let (sender, receiver) = mpsc::channel();
    let guards = [
        token.on_cancel(record.noting("first")),
        token.on_cancel(record.noting("second")),
        token.on_cancel(move || sender.send(thread::current().id()).unwrap()),
        token.on_cancel(record.noting("third")),
    ];
    assert_eq!(record.taken(), [""; 0]);
    token.cancel();
    token.cancel();
    assert_eq!(record.taken(), ["first", "second", "third"]);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [here]);
    drop(guards);
    assert_eq!(record.taken(), [""; 0]);
}

#[test]
fn a_parents_callbacks_run_before_its_childs_and_after_all_are_cancelled() {
    let root = CancellationToken::new();
    let child = root.child();
    let grandchild = child.child();
    let record = Record::default();
    let all = [root.clone(), child.clone(), grandchild.clone()];
    grandchild.on_cancel(record.noting("grandchild")).detach();
    child.on_cancel(record.noting("child")).detach();
    let note = record.noting("root");
    root.on_cancel(move || {
        assert!(all.iter().all(CancellationToken::is_cancelled));
        note();
    })
    .detach();
    root.cancel();
    assert_eq!(record.taken(), ["root", "child", "grandchild"]);
}

#[test]
fn a_callback_may_use_its_token_in_every_way() {
    let token = CancellationToken::new();
    let record = Record::default();
    let behind = Arc::new(Mutex::new(None));
    let (inside, noted, unregister) = (token.clone(), record.clone(), Arc::clone(&behind));
    let guard = token.on_cancel(move || {
        inside.cancel();
        inside.wait();
        assert!(inside.is_cancelled() && inside.child().is_cancelled());
        inside.on_cancel(noted.noting("nested")).detach();
        drop(unregister.lock().take());
        noted.note("outer");
    });
    *behind.lock() = Some(token.on_cancel(record.noting("unregistered by an earlier one")));
    token.cancel();
    assert_eq!(record.taken(), ["nested", "outer"]);
    drop(guard);
}

#[test]
fn a_panicking_callback_does_not_keep_the_others_from_running() {
    let token = CancellationToken::new();
    let record = Record::default();
    token.on_cancel(|| panic!("seeded: a callback")).detach();
    token.on_cancel(record.noting("second")).detach();
    token.on_cancel(|| panic!("seeded: {}", "formatted")).detach();
    token.child().on_cancel(|| panic!("seeded")).detach();
    let child = token.child();
    child.on_cancel(|| panic::panic_any(7)).detach();
    child.on_cancel(record.noting("child")).detach();
    token.cancel();
    assert_eq!(record.taken(), ["second", "child"]);
}

#[test]
fn a_callback_for_a_cancelled_token_runs_at_once() {
    let token = CancellationToken::new();
    token.cancel();
    let record = Record::default();
    let guard = token.on_cancel(record.noting("at once"));
    assert_eq!(record.taken(), ["at once"]);
    drop(token.on_cancel(|| panic!("seeded: caught here too")));
    drop(guard);
    assert_eq!(Arc::strong_count(&token.node), 1);
}

// The guard.

#[test]
fn a_dropped_guard_unregisters_its_callback_only() {
    let token = CancellationToken::new();
    let record = Record::default();
    let one = token.on_cancel(record.noting("one"));
    let other = token.on_cancel(record.noting("other"));
    drop(one);
    token.cancel();
    assert_eq!(record.taken(), ["other"]);
    drop(other);
}

#[test]
fn captures_are_dropped_outside_the_lock() {
    // Each drop uses the token, and would hang if the token's lock were held.
    let token = CancellationToken::new();
    let count = Arc::new(AtomicUsize::new(0));
    let captured = || {
        let (token, count) = (token.clone(), Arc::clone(&count));
        OnDrop(move || {
            drop(token.child());
            drop(token.on_cancel(|| {}));
            count.fetch_add(1, Ordering::Relaxed);
        })
    };
    let held = captured();
    drop(token.on_cancel(move || drop(held)));
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let held = captured();
    token.on_cancel(move || drop(held)).detach();
    token.cancel();
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let held = captured();
    drop(token.on_cancel(move || drop(held)));
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[test]
fn dropping_a_guard_waits_for_its_callback_running_elsewhere() {
    let token = CancellationToken::new();
    let ended = Arc::new(AtomicBool::new(false));
    let (started, has_started) = mpsc::channel();
    let (dropping, is_dropping) = mpsc::channel();
    let end = Arc::clone(&ended);
    let guard = token.on_cancel(move || {
        started.send(()).unwrap();
        is_dropping.recv().unwrap();
        // Gives the drop many opportunities to return too early.
        (0..10_000).for_each(|_| thread::yield_now());
        end.store(true, Ordering::Relaxed);
    });
    thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        has_started.recv().unwrap();
        dropping.send(()).unwrap();
        drop(guard);
        assert!(ended.load(Ordering::Relaxed));
    });
}

#[test]
fn dropping_a_guard_does_not_wait_for_another_callback() {
    let token = CancellationToken::new();
    let record = Record::default();
    let (started, has_started) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let before = token.on_cancel(record.noting("before"));
    let running = token.on_cancel(move || {
        started.send(()).unwrap();
        is_released.recv().unwrap();
    });
    let after = token.on_cancel(record.noting("after"));
    thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        has_started.recv().unwrap();
        drop((before, after));
        release.send(()).unwrap();
    });
    drop(running);
    assert_eq!(record.taken(), ["before"]);
}

#[test]
fn a_guard_dropped_from_inside_its_callback_does_not_wait() {
    let token = CancellationToken::new();
    let slot = Arc::new(Mutex::new(None));
    let own = Arc::clone(&slot);
    let record = Record::default();
    let note = record.noting("returned");
    *slot.lock() = Some(token.on_cancel(move || {
        let guard = own.lock().take();
        drop(guard);
        note();
    }));
    token.cancel();
    assert_eq!(record.taken(), ["returned"]);
}

#[test]
fn a_guard_dropped_deeper_on_the_callbacks_own_thread_does_not_wait() {
    let (outer, inner) = (CancellationToken::new(), CancellationToken::new());
    let slot = Arc::new(Mutex::new(None));
    let own = Arc::clone(&slot);
    inner.on_cancel(move || drop(own.lock().take())).detach();
    *slot.lock() = Some(outer.on_cancel(move || inner.cancel()));
    outer.cancel();
    assert!(slot.lock().is_none());
}

#[test]
fn a_guard_keeps_its_token_and_so_its_callback() {
    let parent = CancellationToken::new();
    let record = Record::default();
    let guard = parent.child().on_cancel(record.noting("child"));
    parent.cancel();
    assert_eq!(record.taken(), ["child"]);
    drop(guard);
}

#[test]
fn a_detached_callback_stays_for_the_life_of_its_token() {
    let token = CancellationToken::new();
    let record = Record::default();
    token.on_cancel(record.noting("ran")).detach();
    let child = token.child();
    child.on_cancel(record.noting("never")).detach();
    let grandchild = child.child();
    drop(child);
    assert_eq!(Arc::strong_count(&record.0), 3);
    drop(grandchild); // The last handle that kept `child`.
    assert_eq!(Arc::strong_count(&record.0), 2);
    token.cancel();
    assert_eq!(record.taken(), ["ran"]);
    assert_eq!(Arc::strong_count(&record.0), 1);
}

// Threads.

#[test]
fn a_second_cancel_does_not_wait_for_the_callbacks_of_the_first() {
    let token = CancellationToken::new();
    let child = token.child();
    let (started, has_started) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let guard = token.on_cancel(move || {
        started.send(()).unwrap();
        is_released.recv().unwrap();
    });
    thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        has_started.recv().unwrap();
        token.cancel();
        child.cancel();
        assert!(token.is_cancelled() && child.is_cancelled());
        // A new callback does not wait for the blocked one.
        let record = Record::default();
        drop(token.on_cancel(record.noting("at once")));
        assert_eq!(record.taken(), ["at once"]);
        release.send(()).unwrap();
    });
    drop(guard);
}

#[test]
fn wait_returns_when_the_token_or_an_ancestor_is_cancelled() {
    let root = CancellationToken::new();
    let tokens = [root.clone(), root.child(), root.child().child()];
    thread::scope(|scope| {
        let (ready, are_ready) = mpsc::channel();
        for token in tokens.iter().chain(&tokens) {
            let ready = ready.clone();
            scope.spawn(move || {
                ready.send(()).unwrap();
                token.wait();
                assert!(token.is_cancelled());
            });
        }
        are_ready.iter().take(6).for_each(drop);
        root.cancel();
    });
    root.wait();
}

#[test]
fn children_and_callbacks_added_during_a_cancel_are_cancelled_once() {
    for _ in 0..200 {
        let root = CancellationToken::new();
        let runs = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let joined: Vec<_> = (0..20)
                        .map(|_| {
                            let child = root.child().child();
                            let runs = Arc::clone(&runs);
                            let guard = child.on_cancel(move || {
                                runs.fetch_add(1, Ordering::Relaxed);
                            });
                            (child, guard)
                        })
                        .collect();
                    root.cancel();
                    assert!(joined.iter().all(|(child, _)| child.is_cancelled()));
                    // Dropping a guard would unregister a callback before the other thread runs it.
                    for (_, guard) in joined {
                        guard.detach();
                    }
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 40);
    }
}
