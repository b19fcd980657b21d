//! A latch in every interleaving of two threads: all waiters and callbacks receive one outcome, once.

use std::sync::Arc;

use loom::thread;

use super::Latch;
use crate::base::clock::ManualClock;
use crate::base::sync::Mutex;
use crate::base::time::Nanos;

fn latch() -> Arc<Latch> {
    Latch::new(ManualClock::new().clock())
}

/// Registers a callback that records its outcomes.
fn listen(latch: &Latch) -> Arc<Mutex<Vec<bool>>> {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&reported);
    latch.on_set(Box::new(move |truth| writes.lock().push(truth)));
    reported
}

#[test]
fn a_callback_registered_during_a_set_runs_once() {
    loom::model(|| {
        let latch = latch();
        let other = Arc::clone(&latch);
        let setting = thread::spawn(move || other.set(true));
        let reported = listen(&latch);
        setting.join().unwrap();
        assert_eq!(*reported.lock(), [true]);
    });
}

#[test]
fn waiters_and_callbacks_get_the_same_outcome_of_two_sets() {
    loom::model(|| {
        let latch = latch();
        let reported = listen(&latch);
        let other = Arc::clone(&latch);
        let giving_up = thread::spawn(move || other.set(false));
        latch.set(true);
        let truth = latch.wait_until(Nanos::NEVER);
        giving_up.join().unwrap();
        assert_eq!(*reported.lock(), [truth]);
    });
}

#[test]
fn a_set_wakes_the_waiter() {
    loom::model(|| {
        let latch = latch();
        let other = Arc::clone(&latch);
        let setting = thread::spawn(move || other.set(true));
        assert!(latch.wait_until(Nanos::NEVER));
        setting.join().unwrap();
    });
}
