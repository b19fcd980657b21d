//! Hooks for the end of a component, beside the hook of its manager.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::base::Runnable;
use homeostat::watch::SourceHandle;
use homeostat::{
    Action, BoxError, Component, Context, Controller, Manager, ManualClock, Poller, Running, WorkQueue, WorkerPool,
};

use crate::support::{HOUR, SECOND};
use crate::until::until;

/// Registers a hook, and returns the count of its calls.
fn count_ends(part: &impl Runnable) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    part.on_end(Arc::new(move || {
        counted.fetch_add(1, SeqCst);
    }));
    calls
}

/// Returns a poller. Its poll reports that it begins, and ends once the sender is dropped.
fn poller(clock: &ManualClock) -> (Running<SourceHandle>, Receiver<()>, Sender<()>) {
    let ((begin, begins), (go_on, held)) = (unbounded(), unbounded::<()>());
    let list = move |_: &Context| {
        begin.send(()).unwrap();
        let _ = held.recv();
        Ok::<_, Infallible>([1])
    };
    let poller = Poller::new(HOUR, list).clock(clock.clock()).start(&WorkQueue::new()).unwrap();
    (poller, begins, go_on)
}

#[test]
fn a_hook_on_a_poller_does_not_keep_its_manager_from_noticing_the_end() {
    let clock = ManualClock::new();
    let (poller, begins, go_on) = poller(&clock);
    let calls = count_ends(&poller);
    begins.recv().unwrap();
    let manager = Manager::builder().clock(clock.clock()).shutdown_grace(SECOND).build().unwrap();
    manager.add(Component::running("poller", poller)).unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    // The driver sleeps until the end of the grace period, which never comes.
    until("the driver waits for the grace period", || clock.next_alarm() == Some(clock.now() + SECOND));
    assert_eq!(calls.load(SeqCst), 0);
    drop(go_on);
    running.join().unwrap();
    assert_eq!(calls.load(SeqCst), 1);
}

#[test]
fn a_hook_on_a_controller_is_called_although_a_manager_has_its_own() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().clock(clock.clock()).start().unwrap();
    let idle = |_: &Context, _: &u32| Ok::<_, BoxError>(Action::await_change());
    let vms = Controller::builder("vm", idle).clock(clock.clock()).build().unwrap().start(&pool).unwrap();
    let calls = count_ends(&vms);
    let before = calls.load(SeqCst);
    let manager = Manager::builder().clock(clock.clock()).build().unwrap();
    manager.add(Component::running("vm", vms)).unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    running.join().unwrap();
    // An idle pool thread that looks for keys as the controller stops is another part that ends.
    assert!(calls.load(SeqCst) > before);
}

#[test]
fn a_hook_that_is_registered_after_the_end_is_called_at_once() {
    let clock = ManualClock::new();
    let (mut poller, _begins, go_on) = poller(&clock);
    drop(go_on);
    let pool = WorkerPool::builder().clock(clock.clock()).start().unwrap();
    let idle = |_: &Context, _: &u32| Ok::<_, BoxError>(Action::await_change());
    let mut vms = Controller::builder("vm", idle).clock(clock.clock()).build().unwrap().start(&pool).unwrap();
    poller.stop();
    vms.stop();
    poller.join_timeout(Duration::MAX).unwrap();
    vms.join_timeout(Duration::MAX).unwrap();
    let (first, second) = (count_ends(&poller), count_ends(&poller));
    assert_eq!([first.load(SeqCst), second.load(SeqCst)], [1, 1]);
    let (first, second) = (count_ends(&vms), count_ends(&vms));
    assert_eq!([first.load(SeqCst), second.load(SeqCst)], [1, 1]);
}
