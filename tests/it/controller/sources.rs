//! Sources that are added to and removed from a running controller, and sources of a detached controller.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::WaitError;
use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, Context, Controller, ControllerHandle, ManualClock, Poller, Reasons, Running, Sources, Watch,
    WorkerPool,
};

use crate::support::HOUR;
use crate::until::until;

type Key = &'static str;

const LONG: Duration = Duration::from_secs(60);

/// A run: its key and its reasons.
type Run = (Key, Reasons);

/// Returns a controller that reports the reasons of each run, and its empty watch.
fn controller(clock: &ManualClock) -> (Controller<Key>, Receiver<Run>, Push<Key, u32>) {
    let (runs, ran) = unbounded();
    let reconcile = move |cx: &Context, key: &Key| -> Result<Action, BoxError> {
        runs.send((*key, cx.reasons()))?;
        Ok(Action::await_change())
    };
    let builder = Controller::builder("vm", reconcile).clock(clock.clock());
    // Only a controller with a watch may have a resync.
    let none = Watch::<Key, u32>::builder().name("none").clock(clock.clock()).push();
    none.synced();
    let built = builder.watch(none.watch(), |event| event.key().copied()).resync(HOUR).build().unwrap();
    (built, ran, none)
}

fn pool(clock: &ManualClock) -> Running<WorkerPool> {
    WorkerPool::builder().threads(1).clock(clock.clock()).start().unwrap()
}

fn watching(watch: &Watch<Key, u32>) -> Sources<Key> {
    let mut sources = Sources::new();
    sources.watch(watch, |event| event.key().copied());
    sources
}

fn names(sources: &[homeostat::watch::SourceHandle]) -> Vec<&str> {
    sources.iter().map(homeostat::watch::SourceHandle::name).collect()
}

#[test]
fn a_source_that_is_added_feeds_the_controller_and_is_resynced() {
    let clock = ManualClock::new();
    let pool = pool(&clock);
    let (controller, ran, _none) = controller(&clock);
    let running = controller.start(&pool).unwrap();
    running.wait_synced(LONG).unwrap();
    let disks = Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push();
    let added = running.add_sources(watching(disks.watch())).unwrap();
    assert_eq!(names(&added), ["disks"]);
    assert_eq!(names(&running.sources()), ["none", "disks"]);
    assert!(running.has_synced(), "its initial listing is missing, but the controller runs already");
    disks.set("vm-1", 1);
    running.wait(&"vm-1", LONG).unwrap();
    assert_eq!(ran.try_recv().unwrap().0, "vm-1");
    clock.advance(HOUR);
    let (key, reasons) = ran.recv_timeout(LONG).unwrap();
    assert!(key == "vm-1" && reasons.contains(Reasons::RESYNC), "{key} {reasons}");
    running.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_source_that_is_removed_feeds_the_controller_no_more_and_its_name_is_free() {
    let clock = ManualClock::new();
    let pool = pool(&clock);
    let (controller, ran, _none) = controller(&clock);
    let running = controller.start(&pool).unwrap();
    // From now on, a source without an initial listing delays no key.
    running.wait_synced(LONG).unwrap();
    let disks = Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push();
    for value in 1..=3 {
        assert_eq!(names(&running.add_sources(watching(disks.watch())).unwrap()), ["disks"]);
        disks.set("vm-1", value);
        running.wait(&"vm-1", LONG).unwrap();
        assert!(running.remove_source("disks", LONG).unwrap());
        assert!(ran.try_iter().all(|(key, _)| key == "vm-1"));
        disks.set("vm-1", 10 * value);
        assert_eq!(running.wait(&"vm-1", LONG), Ok(None));
        assert_eq!(ran.try_recv().ok(), None);
    }
    assert!(!running.remove_source("disks", LONG).unwrap());
    running.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_removal_of_the_last_unsynced_source_lets_the_controller_run_keys() {
    let clock = ManualClock::new();
    let pool = pool(&clock);
    let (runs, ran) = unbounded();
    let reconcile = move |_: &Context, key: &Key| -> Result<Action, BoxError> {
        runs.send(*key)?;
        Ok(Action::await_change())
    };
    let never = Watch::<Key, u32>::builder().name("never").clock(clock.clock()).push();
    let builder = Controller::builder("vm", reconcile).clock(clock.clock());
    let running = builder.watch(never.watch(), |event| event.key().copied()).build().unwrap().start(&pool).unwrap();
    running.enqueue("vm-1");
    assert!(!running.has_synced());
    assert!(running.remove_source("never", LONG).unwrap());
    running.wait_synced(LONG).unwrap();
    assert_eq!(ran.recv_timeout(LONG), Ok("vm-1"));
    assert_eq!(running.failure().map(|error| error.to_string()), None);
    running.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_poll_that_does_not_end_is_aborted_and_named_when_its_source_is_removed() {
    let clock = ManualClock::new();
    let pool = pool(&clock);
    let (controller, _ran, _none) = controller(&clock);
    let mut running = controller.start(&pool).unwrap();
    let (began, starts) = unbounded();
    let (go_on, notice) = unbounded::<()>();
    let stuck = Poller::new(HOUR, move |_: &Context| {
        began.send(()).unwrap();
        let _ = notice.recv();
        Ok::<_, Infallible>(["vm-1"])
    });
    let mut sources = Sources::new();
    sources.poller(stuck.name("stuck"));
    running.add_sources(sources).unwrap();
    starts.recv_timeout(LONG).unwrap();
    let still = running.remove_source("stuck", Duration::ZERO).unwrap_err();
    assert_eq!(still.still_running(), ["vm-source-1-0"]);
    assert_eq!(names(&running.sources()), ["none"]);
    running.stop();
    let still = running.join_timeout(Duration::ZERO).unwrap_err();
    assert!(still.still_running().contains(&"vm-source-1-0".to_owned()), "{still}");
    drop(go_on);
    running.join_timeout(Duration::MAX).unwrap();
}

/// Asks a controller when it is dropped.
struct AsksAtLast {
    handle: ControllerHandle<Key>,
    answer: Sender<(usize, usize)>,
}

impl Drop for AsksAtLast {
    fn drop(&mut self) {
        let _ = self.answer.send((self.handle.sources().len(), self.handle.status().sources.len()));
    }
}

/// The end of a subscription drops its mapping.
#[test]
fn the_drop_of_a_mapping_may_ask_the_controller_that_ends_or_removes_its_source() {
    for (end, left) in [("remove", 1), ("stop", 2), ("abort", 2)] {
        let clock = ManualClock::new();
        let pool = pool(&clock);
        let (controller, _ran, _none) = controller(&clock);
        let (answer, answered) = unbounded();
        let asks = AsksAtLast { handle: controller.handle(), answer };
        let running = controller.start(&pool).unwrap();
        let disks = Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push();
        let mut sources = Sources::new();
        sources.watch(disks.watch(), move |event| {
            let _kept = &asks;
            event.key().copied()
        });
        running.add_sources(sources).unwrap();
        match end {
            "remove" => assert!(running.remove_source("disks", LONG).unwrap()),
            "stop" => running.stop(),
            _ => running.abort(),
        }
        assert_eq!(answered.try_recv(), Ok((left, left)), "{end}");
        running.shutdown(Duration::ZERO).unwrap();
    }
}

#[test]
fn a_controller_that_does_not_run_takes_no_source() {
    let clock = ManualClock::new();
    let pool = pool(&clock);
    let disks = Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push();
    let (controller, _ran, _none) = controller(&clock);
    let handle = controller.handle();
    let error = handle.add_sources(watching(disks.watch())).unwrap_err();
    assert_eq!(error.to_string(), "controller \"vm\" has not been started");
    let running = controller.start(&pool).unwrap();
    running.shutdown(Duration::ZERO).unwrap();
    let error = handle.add_sources(watching(disks.watch())).unwrap_err();
    assert_eq!(error.to_string(), "controller \"vm\" has been stopped");
    assert_eq!(disks.watch().subscriptions(), 0);
}

/// A source that is accepted is stopped with the controller. The others are refused.
#[test]
fn sources_that_are_added_and_removed_while_a_controller_stops_end_with_it() {
    for abort in [false, true] {
        let clock = ManualClock::new();
        let pool = pool(&clock);
        let (controller, _ran, _none) = controller(&clock);
        let handle = controller.handle();
        let running = controller.start(&pool).unwrap();
        let disks = Arc::new(Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push());
        thread::scope(|scope| {
            for _ in 0..2 {
                let (handle, disks) = (handle.clone(), Arc::clone(&disks));
                scope.spawn(move || {
                    while let Ok(added) = handle.add_sources(watching(disks.watch())) {
                        let _ = handle.remove_source(added[0].name(), LONG);
                        let _ = handle.add_sources(watching(disks.watch()));
                    }
                });
            }
            until("there are four sources", || {
                disks.set("vm-1", 1);
                handle.sources().len() >= 4
            });
            if abort {
                running.abort();
            }
            running.shutdown(Duration::MAX).unwrap();
        });
        assert_eq!(disks.watch().subscriptions(), 0);
    }
}

#[test]
fn a_detached_controller_still_waits_for_its_sources_and_resyncs_them() {
    let clock = ManualClock::new();
    let pool = pool(&clock);
    let (runs, ran) = unbounded();
    let reconcile = move |cx: &Context, key: &Key| -> Result<Action, BoxError> {
        runs.send((*key, cx.reasons()))?;
        Ok(Action::await_change())
    };
    let disks = Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push();
    disks.replace_all([("vm-1", 1)]);
    let (inside, listing) = unbounded();
    let (go_on, held) = unbounded::<()>();
    // The listing returns, but hands over its key only when the test continues.
    let poller = Poller::new(10 * HOUR, move |_: &Context| {
        let (inside, held) = (inside.clone(), held.clone());
        let keys = std::iter::once_with(move || {
            inside.send(()).unwrap();
            let _ = held.recv();
            "vm-2"
        });
        Ok::<_, Infallible>(keys)
    });
    let builder = Controller::builder("vm", reconcile).clock(clock.clock()).resync(HOUR);
    let builder = builder.watch(disks.watch(), |event| event.key().copied()).poller(poller);
    let controller = builder.build().unwrap();
    let handle = controller.handle();
    controller.start(&pool).unwrap().detach();
    listing.recv_timeout(LONG).unwrap();
    assert_eq!(
        handle.wait(&"other", Duration::ZERO),
        Err(WaitError::NotSynced),
        "the poller has not handed over its key"
    );
    drop(go_on);
    handle.wait_synced(LONG).unwrap();
    assert_eq!(handle.wait(&"other", LONG), Ok(None));
    handle.wait(&"vm-2", LONG).unwrap();
    handle.wait(&"vm-1", LONG).unwrap();
    assert_eq!(ran.try_iter().count(), 2);
    // The sleepers are the poller's thread, and the pool's thread and timer thread. The subscription has none.
    clock.wait_for_sleepers(3);
    clock.advance(HOUR);
    let (key, reasons) = ran.recv_timeout(LONG).unwrap();
    assert!(key == "vm-1" && reasons.contains(Reasons::RESYNC), "{key} {reasons}");
}
