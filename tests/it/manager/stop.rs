//! The order in which a manager stops its components, observed by a hook that the manager calls.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use homeostat::base::RunningPhase;
use homeostat::controller::ControllerPhase;
use homeostat::watch::SourceHandle;
use homeostat::{
    Action, BoxError, Component, Context, Controller, Enqueue, Manager, ManualClock, Poller, WorkQueue, Workers,
};
use parking_lot::Mutex;

use crate::support::{HOUR, SECOND, with_stop_hook};
use crate::until::until;

#[expect(clippy::unnecessary_wraps, reason = "a reconciler returns a result")]
fn idle<K>(_: &Context, _: &K) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

#[test]
fn no_controller_takes_a_key_once_the_first_component_is_stopped() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let first = Controller::builder("first", idle::<u32>).build().unwrap();
    let handle = first.handle();
    manager.add(first).unwrap();
    handle.wait_synced(Duration::MAX).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let phases = Arc::clone(&seen);
    manager.add(with_stop_hook("function", move || phases.lock().push(handle.status().phase), bounded(0).1)).unwrap();
    manager.stop();
    running.join().unwrap();
    assert_eq!(*seen.lock(), [ControllerPhase::Stopped]);
}

/// The hook gives pollers and workers time for more work, which they must not begin.
#[test]
fn no_poller_lists_and_no_worker_runs_a_key_once_the_first_component_is_stopped() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let (begin, reports) = unbounded();
    let poller = |name: &'static str| {
        let listed = begin.clone();
        let list = move |_: &Context| {
            listed.send(name).unwrap();
            Ok::<_, BoxError>(Vec::<u32>::new())
        };
        Poller::new(HOUR, list)
    };
    let controller = Controller::builder("first", idle::<u32>).poller(poller("first")).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let queue = WorkQueue::new();
    manager.add(Component::poller("second", poller("second"), &queue)).unwrap();
    let run = begin.clone();
    let reconcile = move |_: &Context, _: &u32| -> Result<Action, BoxError> {
        run.send("third").unwrap();
        Ok(Action::await_change())
    };
    manager.add(Component::running("third", Workers::new(reconcile).start(&queue).unwrap())).unwrap();
    queue.enqueue(1);
    let mut parts: Vec<_> = reports.iter().take(3).collect();
    parts.sort_unstable();
    assert_eq!(parts, ["first", "second", "third"]);
    let sources = [handle.sources().remove(0), manager.source("second").unwrap()];
    let hook = move || {
        assert!(sources.iter().all(SourceHandle::trigger));
        queue.enqueue(2);
        for _ in 0..1_000 {
            thread::yield_now();
        }
    };
    manager.add(with_stop_hook("function", hook, bounded(0).1)).unwrap();
    manager.stop();
    running.join().unwrap();
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_watch_that_is_stopped_before_its_unsynced_controller_is_no_failure() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let list = |_: &Context| Err::<Vec<(u32, u32)>, _>("no route to host");
    let watch = Poller::new(HOUR, list).name("disks").watch().unwrap();
    let controller = Controller::builder("unsynced", idle::<u32>).watch(watch.watch(), |event| event.key().copied());
    let controller = controller.sync_timeout(Duration::MAX).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    // This function stands between the two. It delays the manager until the controller has noticed the end of its
    // watch, or has been stopped.
    let hook = move || until("the controller is stopped", || handle.status().phase == ControllerPhase::Stopped);
    manager.add(with_stop_hook("function", hook, bounded(0).1)).unwrap();
    manager.add(watch).unwrap();
    manager.stop();
    running.join().unwrap();
}

/// The hook acts like slow user code, for example the drop of a queued key.
#[test]
fn a_stop_that_takes_long_leaves_the_time_after_an_abort_whole() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).abort_grace(SECOND).build().unwrap();
    let running = manager.start().unwrap();
    let start = clock.now();
    let (ends, ended) = bounded::<()>(0);
    manager.add(with_stop_hook("slow to end", || {}, ended)).unwrap();
    let moved = clock.clone();
    manager.add(with_stop_hook("function", move || moved.advance(10 * SECOND), bounded(0).1)).unwrap();
    running.abort();
    until("the manager waits or has ended", || {
        clock.next_alarm() == Some(start + 11 * SECOND) || running.run_status().phase == RunningPhase::Ended
    });
    drop(ends);
    running.join().unwrap();
}
