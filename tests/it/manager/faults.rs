//! Failures around a manager: user code that panics, blocks or calls back at a bad moment, races between threads, and
//! requests that come too early or too late.

#![expect(clippy::unnecessary_wraps, reason = "reconcilers and listings return a result")]

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use homeostat::controller::{RunOutcome, WaitError};
use homeostat::manager::ManagerBuilder;
use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, ThreadGroup, ThreadGroupKind};
use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, CancellationToken, Clock, Component, Context, Controller, EnqueueOutcome, Manager, ManualClock,
    Poller, Running, StartError, Subscriber, ThreadOptions, Watch, WorkQueue, WorkerPool,
};
use parking_lot::Mutex;

use crate::stages::{PanicsInDisplay, SECOND};
use crate::support::{HOUR, MS, with_stop_hook};
use crate::until::until;
use homeostat::base::StartErrorKind;

type Key = &'static str;
type Notes = Arc<Mutex<Vec<String>>>;

fn idle(_: &Context, _: &Key) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

fn controller(name: &str) -> Controller<Key> {
    Controller::builder(name, idle).build().unwrap()
}

/// Returns a controller that runs `code` when it is started.
fn starting(name: &str, code: impl FnOnce() + Send + 'static) -> Controller<Key> {
    starting_by(&Clock::system(), name, code)
}

fn starting_by(clock: &Clock, name: &str, code: impl FnOnce() + Send + 'static) -> Controller<Key> {
    let push = Watch::<Key, u32>::builder().clock(clock.clone()).push();
    push.synced();
    let watch = push.watch().clone();
    let subscriber = move |queue: &WorkQueue<Key>| {
        code();
        Subscriber::to_itself(queue)
    };
    let reconcile = move |_: &Context, _: &Key| -> Result<Action, BoxError> {
        // The reconciler keeps the watch alive as long as the controller.
        let _push = &push;
        Ok(Action::await_change())
    };
    Controller::builder(name, reconcile).clock(clock.clone()).subscribe(&watch, subscriber).build().unwrap()
}

/// Returns a function that notes its begin and its end.
fn noting(name: &'static str, notes: &Notes) -> Component {
    let notes = Arc::clone(notes);
    Component::function(name, move |cx: &Context| {
        notes.lock().push(format!("{name} begins"));
        cx.token().wait();
        notes.lock().push(format!("{name} ends"));
        Ok::<_, Infallible>(())
    })
}

/// Returns a component that notes its stop.
fn noting_its_stop(name: &'static str, notes: &Notes) -> Component {
    let notes = Arc::clone(notes);
    with_stop_hook(name, move || notes.lock().push(format!("{name} is told")), bounded(0).1)
}

fn list(_: &Context) -> Result<[(Key, u32); 1], Infallible> {
    Ok([("disk-1", 1)])
}

/// Blocks until the manager's status is `doing`.
fn until_doing(manager: &Manager, doing: &str) {
    until(doing, || manager.status().doing == doing);
}

#[test]
fn concurrent_requests_for_a_watch_share_the_first_one() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).build().unwrap();
    let starts = AtomicUsize::new(0);
    let (go, gate) = bounded::<()>(0);
    let ask = || {
        manager.watch("disks", || {
            starts.fetch_add(1, SeqCst);
            let _ = gate.recv();
            Poller::new(HOUR, list).clock(clock.clock()).watch()
        })
    };
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        // The other three wait for the first.
        clock.wait_for_sleepers(3);
        drop(go);
        let watches: Vec<Watch<Key, u32>> = askers.into_iter().map(|asker| asker.join().unwrap().unwrap()).collect();
        assert_eq!(starts.load(SeqCst), 1);
        assert!(watches.iter().all(|watch| watch.store().wait_synced(Duration::MAX)));
    });
}

#[test]
fn a_watch_that_could_not_be_started_is_started_by_the_next_request() {
    for panics in [false, true] {
        let clock = ManualClock::new();
        let manager = Manager::builder().clock(clock.clock()).build().unwrap();
        let (go, gate) = bounded::<()>(0);
        let (began, seen) = bounded(1);
        std::thread::scope(|scope| {
            let manager = &manager;
            let first = scope.spawn(move || {
                manager.watch::<Key, u32>("disks", || {
                    began.send(()).unwrap();
                    let _ = gate.recv();
                    assert!(!panics, "out of luck");
                    Poller::new(Duration::ZERO, list).watch()
                })
            });
            seen.recv().unwrap();
            let next = scope
                .spawn(|| manager.watch::<Key, u32>("disks", || Poller::new(HOUR, list).clock(clock.clock()).watch()));
            clock.wait_for_sleepers(1);
            drop(go);
            assert!(!matches!(first.join(), Ok(Ok(_))));
            assert!(!next.join().unwrap().unwrap().is_stopped());
        });
    }
}

/// A producer that stops its watch at the first message.
struct Producer(Push<Key, u32>, Receiver<()>);

impl Task for Producer {
    fn step(&mut self, _now: Nanos) -> Next {
        let _ = self.1.recv();
        self.0.stop();
        Next::Finished
    }
}

/// Starts a watch that ends at a message on `end`.
fn watch_until(end: Sender<()>, ended: Receiver<()>) -> Result<Running<Watch<Key, u32>>, StartError> {
    let push = Watch::builder().name("disks").push();
    let watch = push.watch().clone();
    let group = ThreadGroup::new(ThreadGroupKind::Watch, "disks".to_owned(), watch.clock(), 1);
    let (event, producer) = (AutoResetEvent::new(watch.clock()), Producer(push, ended));
    let stop = move || {
        let _ = end.try_send(());
    };
    let handle = group.start_one(&ThreadOptions::new(), producer, event, None, stop)?;
    Ok(Running::new(watch, handle.that_may_end(), Duration::MAX))
}

#[test]
fn a_watch_that_has_ended_by_itself_can_be_started_again() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let (end, ended) = bounded(1);
    let ask = || manager.watch("disks", || watch_until(end.clone(), ended.clone())).unwrap();
    let first = ask();
    end.send(()).unwrap();
    until("the first watch has stopped", || first.is_stopped());
    until("the watch is started again", || !ask().is_stopped());
    manager.stop();
    running.join().unwrap();
}

#[test]
fn components_added_during_the_start_come_after_the_earlier_ones() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    let (inner, added) = (manager.clone(), Arc::clone(&notes));
    manager
        .add(starting("first", move || {
            assert_eq!(inner.status().doing, "starting");
            assert_eq!(inner.ready().to_string(), "manager: starting");
            inner.add(noting_its_stop("third", &added)).unwrap();
        }))
        .unwrap();
    manager.add(noting_its_stop("second", &notes)).unwrap();
    let running = manager.start().unwrap();
    assert_eq!(manager.status().doing, "running");
    manager.stop();
    running.join().unwrap();
    assert_eq!(*notes.lock(), ["third is told", "second is told"]);
}

/// After a stop during the start, the remaining components are not started.
#[test]
fn a_stop_during_the_start_takes_effect_before_the_next_component() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    let stop = CancellationToken::new();
    let (own, other) = (stop.clone(), manager.clone());
    manager.add(starting("first", move || own.cancel())).unwrap();
    manager.add(noting("never", &notes)).unwrap();
    manager.add(controller("vm")).unwrap();
    let vms = manager.controller::<Key>("vm").unwrap();
    let (report, late) = std::sync::mpsc::channel();
    manager.at_end(move || report.send(other.add(controller("late")).is_err()).unwrap());
    manager.run(&stop).unwrap();
    assert_eq!(late.try_recv(), Ok(true));
    assert_eq!(*notes.lock(), [""; 0]);
    assert_eq!(vms.enqueue("vm-1"), EnqueueOutcome::Closed);
}

#[test]
fn a_wait_for_a_controller_that_is_never_started_ends() {
    let manager = Manager::builder().build().unwrap();
    manager.add(starting("broken", || panic!("out of luck"))).unwrap();
    manager.add(controller("vm")).unwrap();
    manager.enqueue("vm", "vm-1").unwrap();
    let vms = manager.controller::<Key>("vm").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| vms.wait(&"vm-1", Duration::MAX));
        manager.run(&CancellationToken::new()).unwrap_err();
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Stopped));
        assert_eq!(vms.enqueue("vm-1"), EnqueueOutcome::Closed);
    });
}

#[test]
fn a_panic_during_the_start_of_a_component_is_a_failure_of_that_component() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    manager.add(noting("first", &notes)).unwrap();
    manager.add(starting("vm", || panic!("out of luck"))).unwrap();
    let error = manager.start().unwrap_err();
    assert_eq!(error.to_string(), "vm: vm panicked as it was started: out of luck");
    assert_eq!(*notes.lock(), ["first begins", "first ends"]);
    assert_eq!(manager.live().to_string(), "vm: vm panicked as it was started: out of luck", "also afterwards");

    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let error: StartError = manager.add(starting("vm", || panic!("out of luck"))).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::Panicked, "{error}");
    manager.add(controller("vm")).unwrap();
    assert_eq!(manager.enqueue("vm", "vm-1").unwrap(), EnqueueOutcome::Queued);
    let vms = manager.controller::<Key>("vm").unwrap();
    vms.wait(&"vm-1", Duration::MAX).unwrap();
    manager.stop();
    running.join().unwrap();
}

/// The manager waits for it within its grace period.
#[test]
fn a_component_that_is_being_started_as_the_manager_stops_ends_before_it() {
    let manager = Manager::builder().shutdown_grace(HOUR).build().unwrap();
    let running = manager.start().unwrap();
    let (began, seen) = bounded(0);
    let (go, gate) = bounded::<()>(0);
    let slow = starting("slow", move || {
        began.send(()).unwrap();
        let _ = gate.recv();
    });
    let handle = slow.handle();
    let (ended, end) = bounded(1);
    manager.at_end(move || ended.send(()).unwrap());
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| manager.add(slow));
        seen.recv().unwrap();
        let waiting = scope.spawn(|| running.join());
        manager.stop();
        until_doing(&manager, "stopping");
        assert!(end.is_empty());
        drop(go);
        let error = adding.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "manager \"manager\" is stopping");
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(handle.enqueue("vm-1"), EnqueueOutcome::Closed);
    assert!(manager.controller::<Key>("slow").is_err());
}

#[test]
fn a_component_whose_start_does_not_return_is_named_and_ends_later() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).shutdown_grace(SECOND).build().unwrap();
    let running = manager.start().unwrap();
    let (began, seen) = bounded(0);
    let (go, gate) = bounded::<()>(0);
    let slow = starting_by(&clock.clock(), "slow", move || {
        began.send(()).unwrap();
        let _ = gate.recv();
    });
    let handle = slow.handle();
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| manager.add(slow));
        seen.recv().unwrap();
        let waiting = scope.spawn(|| running.join());
        manager.stop();
        until_doing(&manager, "stopping");
        // These are the manager's driver, the idle pool thread and the idle watchdog.
        clock.wait_for_sleepers(3);
        clock.advance(SECOND);
        clock.wait_for_sleepers(3);
        clock.advance(SECOND);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "still running: slow");
        drop(go);
        assert!(adding.join().unwrap().is_err());
    });
    assert_eq!(handle.enqueue("vm-1"), EnqueueOutcome::Closed);
    // The pool's threads have ended with its last owner.
    assert_eq!(clock.sleepers(), 0);
}

/// On a component's thread, the drop waits for that thread, until the grace periods have passed.
#[test]
fn a_running_manager_that_its_component_drops_ends_after_the_grace_periods() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).shutdown_grace(SECOND).build().unwrap();
    let slot = Arc::new(Mutex::new(None));
    let (own, report) = (Arc::clone(&slot), Notes::default());
    let notes = Arc::clone(&report);
    let (go, gate) = bounded::<()>(0);
    manager
        .add(Component::function("suicide", move |_: &Context| {
            let _ = gate.recv();
            let running = own.lock().take();
            drop(running);
            notes.lock().push("dropped".to_owned());
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    *slot.lock() = Some(manager.start().unwrap());
    drop(go);
    until_doing(&manager, "stopping");
    for _ in 0..2 {
        clock.wait_for_sleepers(3);
        assert_eq!(*report.lock(), [""; 0]);
        clock.advance(SECOND);
    }
    until_doing(&manager, "ended");
    until("the component has ended", || !report.lock().is_empty());
}

#[test]
fn a_started_manager_ends_without_a_waiter() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    manager.add(noting("other", &notes)).unwrap();
    let (fail, notice) = bounded::<()>(0);
    manager
        .add(Component::function("broken", move |_: &Context| {
            let _ = notice.recv();
            Err("no such device")
        }))
        .unwrap();
    let running = manager.start().unwrap();
    drop(fail);
    until_doing(&manager, "ended");
    assert_eq!(notes.lock().last().map(String::as_str), Some("other ends"));
    assert_eq!(running.join().unwrap_err().component(), Some("broken"));
}

#[test]
fn a_second_run_changes_nothing_about_the_first() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    manager.add(noting("first", &notes)).unwrap();
    let running = manager.start().unwrap();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = manager.run(&cancelled).unwrap_err();
    assert_eq!(error.to_string(), "manager \"manager\" has already been started");
    manager.add(noting("second", &notes)).unwrap();
    manager.stop();
    running.join().unwrap();
}

#[test]
fn an_end_hook_is_called_even_if_it_is_added_late() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    let (inner, early, late) = (manager.clone(), Arc::clone(&notes), Arc::clone(&notes));
    manager.at_end(move || {
        early.lock().push("early".to_owned());
        inner.at_end(move || late.lock().push("in another".to_owned()));
    });
    manager.at_end(|| panic!("out of luck"));
    manager.stop();
    manager.run(&CancellationToken::new()).unwrap();
    assert_eq!(*notes.lock(), ["early", "in another"]);
    let late = Arc::clone(&notes);
    manager.at_end(move || late.lock().push("late".to_owned()));
    manager.at_end(|| panic!("out of luck"));
    assert_eq!(*notes.lock(), ["early", "in another", "late"]);
}

#[test]
fn an_error_whose_display_panics_still_stops_the_rest() {
    let notes = Notes::default();
    let manager = Manager::builder().build().unwrap();
    manager.add(noting("other", &notes)).unwrap();
    manager.add(Component::function("broken", |_: &Context| Err(PanicsInDisplay))).unwrap();
    assert_eq!(manager.run(&CancellationToken::new()).unwrap_err().component(), Some("broken"));
    assert_eq!(notes.lock().last().map(String::as_str), Some("other ends"));
}

/// A key that queries the manager in its `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Asking(Key);

static ASKED: Mutex<Option<Manager>> = Mutex::new(None);

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = ASKED.lock().clone();
        write!(f, "{} {:?}", self.0, asked.map(|manager| manager.is_leading()))
    }
}

/// An error that queries the manager in its `Display`.
#[derive(Debug)]
struct AskingError;

impl fmt::Display for AskingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Asking("bad"), f)
    }
}

impl std::error::Error for AskingError {}

#[test]
fn display_and_debug_of_user_types_may_query_the_manager() {
    let manager = Manager::builder().shutdown_grace(Duration::ZERO).build().unwrap();
    *ASKED.lock() = Some(manager.clone());
    let (entered, seen) = bounded(1);
    let reconcile = move |cx: &Context, _: &Asking| -> Result<Action, BoxError> {
        entered.send(())?;
        cx.token().wait();
        Ok(Action::await_change())
    };
    manager.add(Controller::builder("vm", reconcile).build().unwrap()).unwrap();
    manager.enqueue("vm", Asking("vm-1")).unwrap();
    let running = manager.start().unwrap();
    seen.recv().unwrap();
    assert!(manager.status().to_string().contains("vm: vm-1 Some(true) has been running"));
    // `add` is refused if the failure has already stopped the manager.
    let _ = manager.add(Component::function("broken", |_: &Context| Err(AskingError)));
    until("the manager is not live", || !manager.live().is_ok());
    assert_eq!(manager.live().to_string(), "broken: bad Some(true)");
    manager.abort();
    assert!(running.join().is_err());
    *ASKED.lock() = None;
}

/// `join_timeout` hides no source from concurrent users of the controller.
#[test]
fn the_sources_of_a_controller_stay_visible_during_a_join() {
    let keys = |_: &Context| Ok::<_, Infallible>(["vm-1"]);
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let mut running = Controller::builder("vm", idle).poll(HOUR, keys).build().unwrap().start(&pool).unwrap();
    let handle = (*running).clone();
    let over = CancellationToken::new();
    let joins = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| {
            while !over.is_cancelled() {
                running.join_timeout(Duration::ZERO).unwrap_err();
                joins.fetch_add(1, SeqCst);
            }
        });
        let mut all = true;
        while all && joins.load(SeqCst) < 5_000 {
            all = handle.set_period(HOUR).is_ok();
        }
        over.cancel();
        joining.join().unwrap();
        assert!(all, "a source is missing for a moment");
    });
}

/// A listing that does not return is named, and the controller has not ended.
#[test]
fn a_join_of_a_controller_names_a_source_that_has_not_ended() {
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let (began, seen) = bounded(1);
    let (go, gate) = bounded::<()>(0);
    let keys = move |_: &Context| {
        let _ = began.try_send(());
        let _ = gate.recv();
        Ok::<_, Infallible>(["vm-1"])
    };
    let mut running = Controller::builder("vm", idle).poll(HOUR, keys).build().unwrap().start(&pool).unwrap();
    seen.recv().unwrap();
    running.abort();
    let still = until("only the source is left", || {
        let still = running.join_timeout(Duration::ZERO).unwrap_err();
        (still.still_running().len() == 1).then_some(still)
    });
    assert_eq!(still.still_running(), ["vm-source-0-0"]);
    drop(go);
    running.join_timeout(Duration::MAX).unwrap();
}

/// It is aborted at once, without a grace period.
#[test]
fn a_component_that_has_been_started_too_late_is_aborted() {
    let manager = Manager::builder().shutdown_grace(HOUR).build().unwrap();
    let running = manager.start().unwrap();
    let (began, seen) = bounded(1);
    let other = manager.clone();
    let late = Controller::builder("late", idle).shutdown_grace(HOUR).poll(HOUR, move |cx: &Context| {
        let _ = began.try_send(());
        cx.token().wait();
        Ok::<_, Infallible>(["vm-1"])
    });
    let push = Watch::<Key, u32>::push();
    let late = late.subscribe(push.watch(), move |queue| {
        // The listing is under way, and the manager no longer accepts the controller.
        seen.recv().unwrap();
        other.stop();
        until_doing(&other, "stopping");
        Subscriber::to_itself(queue)
    });
    let error = manager.add(late.build().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "manager \"manager\" is stopping");
    running.join().unwrap();
}

/// This holds even if no part of the controller has been started.
#[test]
fn a_controller_that_cannot_be_started_takes_no_keys() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let vms = Controller::builder("vm", idle).clock(ManualClock::new().clock()).build().unwrap();
    let handle = vms.handle();
    assert_eq!(manager.add(vms).unwrap_err().kind(), StartErrorKind::InvalidSetting);
    assert_eq!(
        (handle.enqueue("vm-1"), handle.wait(&"vm-1", Duration::MAX)),
        (EnqueueOutcome::Closed, Err(WaitError::Stopped))
    );
    manager.stop();
    running.join().unwrap();
}

/// A key that is enqueued before the start runs after it.
#[test]
fn keys_that_are_enqueued_before_the_start_run_after_it() {
    let manager = Manager::builder().threads(1).build().unwrap();
    let (report, reported) = unbounded();
    let reconcile = move |_: &Context, key: &Key| -> Result<Action, BoxError> {
        report.send(*key)?;
        Ok(Action::await_change())
    };
    manager.add(Controller::builder("vm", reconcile).build().unwrap()).unwrap();
    let vms = manager.controller::<Key>("vm").unwrap();
    assert_eq!(manager.enqueue("vm", "vm-1").unwrap(), EnqueueOutcome::Queued);
    assert_eq!(manager.enqueue("vm", "vm-1").unwrap(), EnqueueOutcome::Merged);
    vms.suspend("vm-2");
    assert_eq!(manager.enqueue("vm", "vm-2").unwrap(), EnqueueOutcome::Queued);
    assert_eq!(vms.wait(&"vm-1", MS), Err(WaitError::NotStarted));
    let running = manager.start().unwrap();
    assert!(matches!(vms.wait(&"vm-1", Duration::MAX), Ok(None | Some(RunOutcome::Succeeded))));
    manager.stop();
    running.join().unwrap();
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), ["vm-1"]);
}

/// Many threads add components while another one stops the manager. In the end, every added component has ended.
#[test]
fn a_component_added_during_start_and_stop_ends_or_is_refused() {
    let manager = Manager::builder().shutdown_grace(HOUR).build().unwrap();
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let added = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (manager, begun, ended, added) = (&manager, &begun, &ended, &added);
            scope.spawn(move || {
                for number in 0..20 {
                    let (begun, ended) = (Arc::clone(begun), Arc::clone(ended));
                    let component = Component::function(format!("component-{thread}-{number}"), move |cx: &Context| {
                        begun.fetch_add(1, SeqCst);
                        cx.token().wait();
                        ended.fetch_add(1, SeqCst);
                        Ok::<_, Infallible>(())
                    });
                    if manager.add(component).is_ok() {
                        added.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        scope.spawn(|| {
            until("enough components are added or the manager stops", || {
                added.load(SeqCst) >= 20 || manager.status().doing != "running"
            });
            manager.stop();
        });
        manager.run(&CancellationToken::new()).unwrap();
        let counts = (begun.load(SeqCst), ended.load(SeqCst));
        assert_eq!(counts.0, counts.1, "begun and ended when it returns");
    });
    assert!(begun.load(SeqCst) <= 60);
    assert_eq!(manager.status().doing, "ended");
}

#[test]
fn a_name_that_no_thread_can_have_is_an_error() {
    let manager = Manager::builder().build().unwrap();
    let nothing = |_: &Context| Ok::<_, Infallible>(());
    let error = manager.add(Component::function("", nothing)).unwrap_err();
    assert_eq!(error.to_string(), "name \"\" is empty");
    let error = manager.add(Component::function("a\0b", nothing)).unwrap_err();
    assert_eq!(error.to_string(), "name is \"a\\0b\", but must be free of NUL characters");
}

/// A key with a clone that panics on the thread of the pool, during a resync, once the flag is set.
#[derive(Debug)]
struct Resynced(Arc<AtomicBool>);

impl Clone for Resynced {
    fn clone(&self) -> Self {
        let panics = self.0.load(SeqCst) && std::thread::current().name() == Some("manager-pool-0");
        assert!(!panics, "out of luck");
        Self(Arc::clone(&self.0))
    }
}

impl PartialEq for Resynced {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Resynced {}

impl std::hash::Hash for Resynced {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u8(1);
    }
}

/// The threads of the sources live on.
#[test]
fn a_panic_of_a_resync_fails_the_manager() {
    let clock = ManualClock::new();
    let push = Watch::<Resynced, u32>::builder().clock(clock.clock()).push();
    let panics = Arc::new(AtomicBool::new(false));
    push.replace_all([(Resynced(Arc::clone(&panics)), 1)]);
    let reconcile = |_: &Context, _: &Resynced| Ok::<_, Infallible>(Action::await_change());
    let vms = Controller::builder("vm", reconcile).clock(clock.clock()).resync(SECOND);
    let vms = vms.subscribe(push.watch(), Subscriber::to_itself).build().unwrap();
    let manager = Manager::builder().clock(clock.clock()).threads(1).shutdown_grace(HOUR).build().unwrap();
    manager.add(vms).unwrap();
    let vms = manager.controller::<Resynced>("vm").unwrap();
    let running = manager.start().unwrap();
    // These are the manager's driver, the pool thread and its timer thread.
    clock.wait_for_sleepers(3);
    clock.advance(SECOND);
    clock.wait_for_sleepers(3);
    assert!(manager.live().is_ok());
    panics.store(true, SeqCst);
    clock.advance(SECOND);
    let error = running.join().unwrap_err();
    assert_eq!(error.to_string(), "controller vm: its resync panicked: out of luck");
    assert_eq!(vms.failure().unwrap().to_string(), "controller vm: its resync panicked: out of luck");
    assert_eq!(vms.enqueue(Resynced(panics)), EnqueueOutcome::Closed);
}

/// For example, the first and the second signal have a token each.
#[test]
fn each_of_several_tokens_aborts_a_manager() {
    for number in 0..3 {
        let tokens = [(); 3].map(|()| CancellationToken::new());
        let builder =
            tokens.iter().fold(Manager::builder().shutdown_grace(HOUR).abort_grace(HOUR), ManagerBuilder::abort_on);
        let manager = builder.build().unwrap();
        let (begun, entered) = bounded(1);
        let reconcile = move |cx: &Context, _: &Key| -> Result<Action, BoxError> {
            begun.send(())?;
            // The run ends when it is aborted, but not when the manager stops.
            cx.token().wait();
            Ok(Action::await_change())
        };
        manager.add(Controller::builder("vm", reconcile).build().unwrap()).unwrap();
        manager.enqueue("vm", "vm-1").unwrap();
        let running = manager.start().unwrap();
        entered.recv().unwrap();
        tokens[number].cancel();
        running.join().unwrap();
        assert_eq!(tokens.each_ref().map(CancellationToken::is_cancelled), [0, 1, 2].map(|other| other == number));
    }
}
