//! The cases of controller-runtime's `pkg/manager/manager_test.go` and `pkg/manager/runnable_group_test.go`
//! (Apache-2.0) that apply here, rewritten against this API. Each test names its source by the title of the case.
//!
//! A *runnable* there is a component here. A runnable that needs leader election is a controller or a leading
//! function. Servers, caches, clusters and client configurations have no counterpart.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use homeostat::base::StartErrorKind;
use homeostat::manager::ManagerBuilder;
use homeostat::{Action, BoxError, CancellationToken, Component, Context, Controller, Manager, ManualClock, Poller};
use homeostat_host::FileElector;
use parking_lot::Mutex;

use crate::stages::SECOND;
use crate::support::{HOUR, MS, until_threads_end};
use crate::until::until;

type Key = &'static str;

fn manager() -> ManagerBuilder {
    Manager::builder().shutdown_grace(HOUR)
}

/// Returns a function that waits for its cancellation, and counts its end.
fn waiting(name: impl Into<String>, ended: &Arc<AtomicUsize>) -> Component {
    let ended = Arc::clone(ended);
    Component::function(name, move |cx: &Context| {
        cx.token().wait();
        ended.fetch_add(1, SeqCst);
        Ok::<_, Infallible>(())
    })
}

/// "should Start each Component": the components end at once, which does not end the manager.
#[test]
fn each_component_is_started() {
    let manager = manager().build().unwrap();
    let (report, reported) = bounded(2);
    for name in ["one", "other"] {
        let report = report.clone();
        manager.add(Component::function(name, move |_: &Context| report.send(name))).unwrap();
    }
    let stop = CancellationToken::new();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| manager.run(&stop));
        let mut seen = [reported.recv().unwrap(), reported.recv().unwrap()];
        seen.sort_unstable();
        assert_eq!(seen, ["one", "other"]);
        stop.cancel();
        run.join().unwrap().unwrap();
    });
}

/// "should stop when context is cancelled": here it is cancelled before the start.
#[test]
fn a_token_that_is_cancelled_before_the_start_stops_it() {
    let manager = manager().build().unwrap();
    let ended = Arc::default();
    manager.add(waiting("one", &ended)).unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    manager.run(&stop).unwrap();
    assert_eq!(manager.status().doing, "ended");
}

/// "should start the cache before starting anything else", "should start caches added after Manager has started".
/// There a cache is synced before a runnable starts; here a controller runs no key before its watch is synced.
#[test]
fn no_key_is_run_before_the_initial_listing_even_of_a_watch_added_later() {
    let manager = manager().build().unwrap();
    let running = manager.start().unwrap();
    for (disks, name) in [("disks-1", "vm-1"), ("disks-2", "vm-2")] {
        let (go, gate) = bounded::<()>(0);
        let list = move |_: &Context| {
            let _ = gate.recv();
            Ok::<_, Infallible>([("disk", 1)])
        };
        let watch = manager.watch::<Key, i32>(disks, || Poller::new(HOUR, list).watch()).unwrap();
        let store = watch.store();
        let (report, reported) = unbounded();
        let reconcile = move |_: &Context, _: &Key| -> Result<Action, BoxError> {
            report.send(store.has_synced())?;
            Ok(Action::await_change())
        };
        let vms = Controller::builder(name, reconcile).watch(&watch, |event| event.key().copied()).build().unwrap();
        manager.add(vms).unwrap();
        manager.enqueue(name, "vm").unwrap();
        assert!(!manager.ready().is_ok() && reported.is_empty());
        drop(go);
        assert!(reported.recv().unwrap(), "{name}");
        until("the manager is ready", || manager.ready().is_ok());
    }
    manager.stop();
    running.join().unwrap();
}

/// "should return an error if any Components fail to Start", "… and wait for runnables to stop".
#[test]
fn a_failed_component_is_returned_when_the_others_have_ended() {
    let manager = manager().build().unwrap();
    let ended = Arc::default();
    manager.add(waiting("waits", &ended)).unwrap();
    manager.add(Component::function("fails", |_: &Context| Err("expected error"))).unwrap();
    manager.add(Component::function("ends", |_: &Context| Ok::<_, Infallible>(()))).unwrap();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    assert_eq!((error.component(), error.to_string().as_str()), (Some("fails"), "fails: expected error"));
    // It is open whether the first component had begun by then. No component is left.
    assert!(ended.load(SeqCst) <= 1 && error.still_running().is_empty());
}

/// "should wait for runnables to stop", "should be able to close the group and wait for all runnables to finish",
/// "should wait forever for runnables if gracefulShutdownTimeout is <0": the grace period can be endless.
#[test]
fn a_stop_waits_for_slow_components() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).shutdown_grace(Duration::MAX).build().unwrap();
    let (report, ended) = unbounded();
    for number in 1..=4_u32 {
        let (report, clock) = (report.clone(), clock.clock());
        manager
            .add(Component::function(format!("component-{number}"), move |cx: &Context| {
                cx.token().wait();
                Context::detached_with(clock, CancellationToken::new()).sleep(number * HOUR)?;
                Ok::<_, BoxError>(report.send(number)?)
            }))
            .unwrap();
    }
    let running = manager.start().unwrap();
    manager.stop();
    // The sleepers are the driver, the pool's thread, its watchdog and the four components.
    clock.wait_for_sleepers(7);
    for number in 1..=4 {
        assert_eq!((ended.len(), manager.status().doing), (0, "stopping"));
        clock.advance(HOUR);
        assert_eq!(ended.recv().unwrap(), number);
    }
    running.join().unwrap();
}

/// "should refuse to add runnable if stop procedure is already engaged".
#[test]
fn no_component_is_added_during_the_stop() {
    let manager = manager().build().unwrap();
    let (go, gate) = bounded::<()>(0);
    manager
        .add(Component::function("slow", move |cx: &Context| {
            cx.token().wait();
            let _ = gate.recv();
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    until("the manager stops", || manager.status().doing == "stopping");
    let ended = Arc::default();
    let error = manager.add(waiting("late", &ended)).unwrap_err();
    assert_eq!(error.to_string(), "manager \"manager\" is stopping");
    let start = || Poller::new(HOUR, |_: &Context| Ok::<_, Infallible>([("disk", 1)])).watch();
    assert!(manager.watch::<Key, i32>("late", start).is_err());
    drop(go);
    running.join().unwrap();
}

/// "should not return runnables context.Canceled errors".
#[test]
fn a_component_that_returns_its_own_cancellation_has_not_failed() {
    let manager = manager().build().unwrap();
    let (began, seen) = bounded(2);
    let report = began.clone();
    manager
        .add(Component::function("sleeps", move |cx: &Context| -> Result<(), BoxError> {
            report.send(())?;
            Ok(cx.sleep(Duration::MAX)?)
        }))
        .unwrap();
    manager
        .add(Component::function("checks", move |cx: &Context| -> Result<(), BoxError> {
            began.send(())?;
            cx.token().wait();
            Ok(cx.check()?)
        }))
        .unwrap();
    let running = manager.start().unwrap();
    seen.recv().unwrap();
    seen.recv().unwrap();
    manager.stop();
    running.join().unwrap();

    // A `Cancelled` error without a cancellation is an ordinary failure.
    let manager = Manager::builder().build().unwrap();
    manager.add(Component::function("early", |_: &Context| Err(homeostat::run::Cancelled::Aborted))).unwrap();
    assert_eq!(manager.run(&CancellationToken::new()).unwrap_err().component(), Some("early"));
}

#[derive(Debug)]
struct NotFeelingLikeThat;

impl fmt::Display for NotFeelingLikeThat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not feeling like that")
    }
}

impl Error for NotFeelingLikeThat {}

/// "should return both runnables and stop errors when both error", "should return only stop errors if runnables dont
/// error", "should return only runnables error if stop doesn't error", "should not wait for runnables if
/// gracefulShutdownTimeout is 0".
#[test]
fn the_error_names_the_failed_and_the_stuck_component() {
    for (fails, stuck, expected) in [
        (true, true, "peer-fails: not feeling like that; still running: stuck-0"),
        (false, true, "still running: stuck-0"),
        (true, false, "peer-fails: not feeling like that"),
    ] {
        let clock = ManualClock::new();
        let builder = Manager::builder().clock(clock.clock()).threads(1);
        let manager = builder.shutdown_grace(SECOND).abort_grace(SECOND).build().unwrap();
        let (notice, stopped) = bounded(1);
        let (go, gate) = bounded::<()>(0);
        manager
            .add(Component::function("stuck", move |cx: &Context| {
                cx.token().wait();
                notice.send(())?;
                if stuck {
                    let _ = gate.recv();
                }
                Ok::<_, BoxError>(())
            }))
            .unwrap();
        let (fail, failing) = bounded::<()>(0);
        let (starts, started) = bounded(1);
        manager
            .add(Component::function("peer-fails", move |_: &Context| {
                let _ = starts.send(());
                let _ = failing.recv();
                if fails { Err(NotFeelingLikeThat) } else { Ok(()) }
            }))
            .unwrap();
        let running = manager.start().unwrap();
        // A thread sets its name itself, after its start.
        started.recv().unwrap();
        drop(fail);
        if !fails {
            manager.stop();
        }
        // The last component has ended before the previous one is stopped.
        stopped.recv().unwrap();
        // No time passes while the other one ends.
        until_threads_end("0-peer-fails");
        for _ in 0..if stuck { 2 } else { 0 } {
            // The sleepers are the driver, the pool's thread and its watchdog.
            clock.wait_for_sleepers(3);
            clock.advance(SECOND);
        }
        let error = running.join().unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.component(), fails.then_some("peer-fails"));
        assert_eq!(error.still_running().len(), usize::from(stuck));
        drop(go);
    }
}

/// "should not gracefully wait for runnables if leader election is lost": a loss aborts at once. The tests of leaders
/// cover "should cancel the leader election only after all runnables are done" for controllers.
#[test]
fn a_lost_leadership_leaves_no_grace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.lock");
    let clock = ManualClock::new();
    let manager = Manager::builder()
        .clock(clock.clock())
        .threads(1)
        .shutdown_grace(Duration::MAX)
        .elector(FileElector::new(&path).interval(SECOND))
        .build()
        .unwrap();
    let (entered, seen) = bounded(1);
    let reconcile = move |cx: &Context, _: &Key| -> Result<Action, BoxError> {
        entered.send(())?;
        // Only an abort ends the run.
        cx.sleep(Duration::MAX)?;
        Ok(Action::await_change())
    };
    manager.add(Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap()).unwrap();
    manager.enqueue("vm", "vm-1").unwrap();
    let running = manager.start().unwrap();
    seen.recv().unwrap();
    // The sleepers are the driver, the elector, the timer thread and the run. The elector sleeps after its first
    // check, which would already notice that the file is gone.
    clock.wait_for_sleepers(4);
    std::fs::remove_file(&path).unwrap();
    clock.advance(SECOND);
    assert_eq!(running.join().unwrap_err().component(), Some("elector"));
}

/// "should return nil if leader election is not held and the manager is stopped", "should prevent leader election when
/// shutting down a non-elected manager".
#[test]
fn a_manager_that_stops_before_it_leads_is_not_elected_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.lock");
    let elector = FileElector::new(&path).interval(MS);
    let first = elector.clone();
    let term = homeostat::Elector::campaign(&first, &Context::detached()).unwrap();
    let manager = manager().abort_grace(HOUR).elector(elector.clone()).build().unwrap();
    let (go, gate) = bounded::<()>(0);
    manager
        .add(Component::function("slow", move |cx: &Context| {
            cx.token().wait();
            let _ = gate.recv();
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    let led = Arc::new(Mutex::new(false));
    let leads = Arc::clone(&led);
    manager
        .add(
            Component::function("leads", move |_: &Context| {
                *leads.lock() = true;
                Ok::<_, Infallible>(())
            })
            .when_leading(),
        )
        .unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    until("the manager stops", || manager.status().doing == "stopping");
    drop(term);
    // Another elector is elected although this manager has not ended.
    let other = homeostat::Elector::campaign(&elector, &Context::detached()).unwrap();
    assert_eq!((manager.status().doing, manager.is_leading()), ("stopping", false));
    drop(go);
    running.join().unwrap();
    drop(other);
    assert!(!*led.lock());
}

/// "should be able to add new runnables before it starts", "… before and after start", "… before and after start
/// concurrently", "should be able to wait for all runnables to be ready at different intervals".
#[test]
fn components_are_added_before_during_and_after_the_start() {
    let manager = manager().build().unwrap();
    let ended = Arc::<AtomicUsize>::default();
    let running = std::thread::scope(|scope| {
        for thread in 0..4 {
            let (manager, ended) = (&manager, &ended);
            scope.spawn(move || {
                for number in 0..5 {
                    manager.add(waiting(format!("component-{thread}-{number}"), ended)).unwrap();
                }
            });
        }
        scope.spawn(|| manager.start()).join().unwrap().unwrap()
    });
    manager.stop();
    running.join().unwrap();
    assert_eq!(ended.load(SeqCst), 20);
}

/// "should be able to handle adding runnables while stopping".
#[test]
fn components_are_added_or_refused_during_the_stop() {
    let manager = manager().build().unwrap();
    let ended = Arc::<AtomicUsize>::default();
    let added = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (manager, ended, added) = (&manager, &ended, &added);
            scope.spawn(move || {
                for number in 0..50 {
                    match manager.add(waiting(format!("component-{thread}-{number}"), ended)) {
                        Ok(()) => {
                            added.fetch_add(1, SeqCst);
                        }
                        Err(error) => assert_eq!(error.kind(), StartErrorKind::InvalidSetting, "{error}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            let running = manager.start().unwrap();
            until("some components are added", || added.load(SeqCst) > 20);
            manager.stop();
            running.join().unwrap();
        });
    });
    // A component that was started and then refused, because the manager began to stop, has ended too.
    assert!(ended.load(SeqCst) >= added.load(SeqCst));
}
