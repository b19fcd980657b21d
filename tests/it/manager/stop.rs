//! The order in which a manager stops its components, observed by a hook that the manager calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use homeostat::base::RunPhase;
use homeostat::controller::ControllerPhase;
use homeostat::watch::PollWatch;
use homeostat::{Action, BoxError, Component, Context, Controller, Manager, ManualClock};
use parking_lot::Mutex;

use crate::support::{HOUR, SECOND};

#[expect(clippy::unnecessary_wraps, reason = "a reconciler returns a result")]
fn idle<K>(_: &Context, _: &K) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

/// Adds a function that calls `hook` on the thread that stops it.
fn add_function_with_hook(manager: &Manager, hook: impl FnOnce() + Send + 'static) {
    let (began, begins) = bounded(0);
    let function = Component::function("function", move |cx: &Context| {
        cx.on_cancel(hook).detach();
        began.send(()).unwrap();
        cx.token().wait();
        Ok::<_, Infallible>(())
    });
    manager.add(function).unwrap();
    begins.recv().unwrap();
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
    add_function_with_hook(&manager, move || phases.lock().push(handle.status().phase));
    manager.stop();
    running.wait().unwrap();
    assert_eq!(*seen.lock(), [ControllerPhase::Stopped]);
}

#[test]
fn a_watch_that_is_stopped_before_its_unsynced_controller_is_no_failure() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let list = |_: &Context| Err::<Vec<(u32, u32)>, _>("no route to host");
    let watch = PollWatch::new(HOUR, list).name("disks").start().unwrap();
    let controller = Controller::builder("unsynced", idle::<u32>).watch(watch.watch(), |event| event.key().copied());
    let controller = controller.sync_timeout(Duration::MAX).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    // This function stands between the two. It delays the manager until the controller has noticed the end of its
    // watch, or has been stopped.
    add_function_with_hook(&manager, move || {
        while handle.status().phase != ControllerPhase::Stopped {
            thread::yield_now();
        }
    });
    manager.add(watch).unwrap();
    manager.stop();
    running.wait().unwrap();
}

/// The hook stands for user code that takes long, for example the drop of a queued key.
#[test]
fn a_stop_that_takes_long_leaves_the_time_after_an_abort_whole() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).abort_grace(SECOND).build().unwrap();
    let running = manager.start().unwrap();
    let start = clock.now();
    let (ends, ended) = bounded::<()>(0);
    let slow_to_end = Component::function("slow to end", move |cx: &Context| {
        cx.token().wait();
        let _ = ended.recv();
        Ok::<_, Infallible>(())
    });
    manager.add(slow_to_end).unwrap();
    let moved = clock.clone();
    add_function_with_hook(&manager, move || moved.advance(10 * SECOND));
    running.abort();
    while clock.next_alarm() != Some(start + 11 * SECOND) && running.run_status().phase != RunPhase::Ended {
        thread::yield_now();
    }
    drop(ends);
    running.wait().unwrap();
}
