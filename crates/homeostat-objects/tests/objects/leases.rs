//! Electors that use a lease. The calls of their client hang, fail or are slow.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;
use homeostat::{Action, BoxError, CancellationToken, Context, Controller, Elector, Manager, ManualClock};
use homeostat_objects::{Client, ClientError, Kind, LeaseElector, MemoryClient, ObjectKey};
use log::Level;

use crate::hooked_client::HookedClient;
use crate::logs::Logs;
use crate::waits::until;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
const SECOND: Duration = Duration::from_secs(1);

/// Advances to the next alarm if it is near, like the next renewal: the elector's thread then sleeps. In eight seconds
/// its watchdog has only one other alarm.
fn to_a_near_alarm(clock: &ManualClock) {
    let pause = clock.next_alarm().map(|alarm| alarm - clock.now());
    if let Some(pause) = pause.filter(|pause| *pause <= 2 * SECOND) {
        clock.advance(pause);
    }
}

/// The watchdog ends the term, even if the thread that renews it hangs.
#[test]
fn a_renewal_that_never_returns_does_not_prolong_the_term() {
    let clock = ManualClock::new();
    let client = HookedClient::new(MemoryClient::new());
    let elector = LeaseElector::builder(client.clone(), "default", "test").build().unwrap();
    let manager = Manager::builder().clock(clock.clock()).threads(1).elector(elector).build().unwrap();
    let ((begun, begins), (ended, ends)) = (bounded(1), bounded(1));
    let reconcile = move |cx: &Context, _: &&str| -> Result<Action, BoxError> {
        begun.send(())?;
        cx.token().wait();
        ended.send(cx.fence().is_err())?;
        Ok(Action::await_change())
    };
    let controller = Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap();
    controller.handle().enqueue("vm-1");
    manager.add(controller).unwrap();
    let (hangs, hung) = bounded(1);
    let (release, gate) = bounded::<()>(0);
    client.before(move |verb, _| {
        if verb == "update" {
            hangs.send(()).unwrap();
            let _ = gate.recv();
        }
        None
    });
    let start = clock.now();
    let running = manager.start().unwrap();
    begins.recv().unwrap();
    until!({
        to_a_near_alarm(&clock);
        !hung.is_empty()
    });
    assert!(manager.is_leading());
    let left = (8 * SECOND).checked_sub(clock.now() - start).unwrap();
    assert!(!left.is_zero());
    clock.advance(left);
    assert_eq!(ends.recv(), Ok(true), "the run is cancelled at the margin, and its fence is closed");
    assert!(!manager.is_leading());
    // The watchdog reports the hanging call a tenth of a second late, and then has no alarm.
    clock.advance(SECOND / 10);
    // The driver waits up to a second for the controller, then five for the elector's thread, which never ends.
    until!(clock.next_alarm().is_some_and(|alarm| alarm - clock.now() > SECOND));
    clock.advance(5 * SECOND);
    let error = running.join().unwrap_err();
    let expected = "elector: the leadership is lost: its check, or a callback of its term, does not return; still running: manager-elector-0";
    assert_eq!(error.to_string(), expected);
    drop(release);
}

/// Timers do not run while the machine sleeps, so the elector's thread does not notice that the term has run out.
#[test]
fn no_run_begins_after_the_machine_has_slept_through_the_term() {
    let clock = ManualClock::new();
    let elector = LeaseElector::builder(Arc::new(MemoryClient::new()), "default", "test").build().unwrap();
    let manager = Manager::builder().clock(clock.clock()).threads(1).elector(elector).build().unwrap();
    let (begun, begins) = bounded(2);
    let reconcile = move |_: &Context, key: &&'static str| -> Result<Action, BoxError> {
        begun.send(*key)?;
        Ok(Action::await_change())
    };
    let controller = Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap();
    let handle = controller.handle();
    handle.enqueue("before");
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    assert_eq!(begins.recv(), Ok("before"));
    clock.suspend(3600 * SECOND);
    handle.enqueue("after");
    assert_eq!(running.join().unwrap_err().to_string(), "elector: the leadership of default/test is lost");
    assert!(begins.is_empty());
}

/// Each try reads the lease, which succeeds, and then fails to create it.
#[test]
fn a_missing_namespace_is_logged_once_and_named() {
    let logs = Logs::of("no-such-namespace/test");
    let clock = ManualClock::new();
    let client = HookedClient::new(MemoryClient::new());
    client.before(|verb, object| (verb == "create").then(|| ClientError::not_found(object.clone())));
    let elector = LeaseElector::builder(client.clone(), "no-such-namespace", "test").build().unwrap();
    let mut candidate = elector.candidate();
    let cx = Context::detached_with(clock.clock(), CancellationToken::new());
    for _ in 0..60 {
        let Ok(ControlFlow::Continue(after)) = candidate(&cx) else { panic!("nothing can be created") };
        clock.advance(after);
    }
    let warnings = logs.at(Level::Warn);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].message.ends_with("does its namespace exist?"), "{warnings:?}");
    assert!(!logs.all().iter().any(|line| line.message.contains("again")));
    client.heal();
    assert!(matches!(candidate(&cx), Ok(ControlFlow::Break(_))));
    assert!(logs.at(Level::Info).iter().any(|line| line.message.ends_with("the lease can be written again")));
}

/// A stop waits for a call in progress, and for the release.
#[test]
fn a_stop_during_a_slow_call_is_not_a_failure() {
    let client = HookedClient::new(MemoryClient::new());
    let elector = LeaseElector::builder(client.clone(), "default", "test").build().unwrap();
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).abort_grace(SECOND / 100).elector(elector).build().unwrap();
    let (entered, calls) = bounded(1);
    let (answer, gate) = bounded::<()>(0);
    client.before(move |verb, _| {
        if verb == "create" {
            let _ = entered.try_send(());
            let _ = gate.recv();
        }
        None
    });
    let running = manager.start().unwrap();
    calls.recv().unwrap();
    manager.stop();
    until!(clock.next_alarm().is_some_and(|alarm| alarm - clock.now() > SECOND));
    clock.advance(SECOND);
    drop(answer);
    running.join().unwrap();
}

/// The lease is released after all work has ended, even if that takes long. Until then it is renewed.
#[test]
fn a_slow_end_of_work_keeps_the_lease() {
    let clock = ManualClock::new();
    let client = Arc::new(MemoryClient::new());
    let elector = |name: &str| LeaseElector::builder(client.clone(), "default", "test").identity(name).build().unwrap();
    let one = elector("one");
    let manager =
        Manager::builder().clock(clock.clock()).shutdown_grace(1000 * SECOND).elector(one.clone()).build().unwrap();
    let (begun, begins) = bounded(1);
    let (finish, gate) = bounded::<()>(0);
    let reconcile = move |_: &Context, _: &&str| -> Result<Action, BoxError> {
        begun.send(())?;
        let _ = gate.recv();
        Ok(Action::await_change())
    };
    let controller = Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap();
    controller.handle().enqueue("vm-1");
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    begins.recv().unwrap();
    manager.stop();
    // The other process has another clock, which runs at the same rate.
    let theirs = ManualClock::new();
    let mut other = elector("other").candidate();
    let cx = Context::detached_with(theirs.clock(), CancellationToken::new());
    let version = || client.get(&LEASE, &ObjectKey::new("default", "test")).unwrap().resource_version().to_owned();
    for _ in 0..30 {
        let before = version();
        until!({
            to_a_near_alarm(&clock);
            version() != before
        });
        theirs.advance(2 * SECOND);
        assert!(matches!(other(&cx), Ok(ControlFlow::Continue(_))));
    }
    drop(finish);
    running.join().unwrap();
    theirs.advance(SECOND);
    assert!(matches!(other(&cx), Ok(ControlFlow::Break(_))));
}
