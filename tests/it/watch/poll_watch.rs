//! A watch of a listing: the changes that it delivers, failures, triggers and shutdown.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::{BoxError, Context, ManualClock, Poller, Priority, Reasons, Subscriber, Watch, WorkQueue};
use log::Level;
use parking_lot::Mutex;

use crate::stages::logs::Logs;
use crate::stages::stage;
use crate::support::{SECOND, held, serve, take};
use homeostat::Running;

const PERIOD: Duration = Duration::from_secs(10);

/// The sleeping threads of an idle watch: the poller and its watchdog.
const IDLE: usize = 2;

type Listing = Result<Vec<(&'static str, u32)>, BoxError>;

/// The result of the next listings.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Vec<(&'static str, u32)>>>);

impl World {
    fn is(&self, items: &[(&'static str, u32)]) {
        *self.0.lock() = items.to_vec();
    }
}

fn vms(clock: &ManualClock, world: &World) -> Poller<Vec<(&'static str, u32)>> {
    let world = world.clone();
    let list = move |_cx: &Context| -> Listing { Ok(world.0.lock().clone()) };
    Poller::new(PERIOD, list).name("vms").clock(clock.clock())
}

fn advance(clock: &ManualClock, by: Duration) {
    clock.wait_for_sleepers(IDLE);
    clock.advance(by);
    clock.wait_for_sleepers(IDLE);
}

fn served(queue: &WorkQueue<&'static str>) -> Vec<(&'static str, Reasons)> {
    std::iter::from_fn(|| {
        let claim = queue.try_dequeue().ok()?;
        let notice = (*claim, claim.reasons());
        claim.done();
        Some(notice)
    })
    .collect()
}

#[test]
fn differences_between_two_listings_are_delivered() {
    let (clock, queue) = held();
    let world = World::default();
    world.is(&[("a", 1), ("b", 1)]);
    let watch = vms(&clock, &world).watch().unwrap();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    advance(&clock, Duration::ZERO);
    assert!(watch.watch().store().has_synced());
    assert_eq!(take(&queue).priority(), Priority::Low);
    clock.advance(SECOND);
    serve(&queue);
    world.is(&[("b", 2), ("c", 1)]);
    advance(&clock, 9 * SECOND);
    assert_eq!(served(&queue), [("b", Reasons::UPDATED), ("c", Reasons::CREATED), ("a", Reasons::DELETED)]);
    advance(&clock, PERIOD);
    assert_eq!(served(&queue), []);
    assert_eq!(watch.source().status().listings, 3);
}

#[test]
fn a_listing_that_fails_deletes_nothing_and_the_next_comes_as_planned() {
    let logs = Logs::of("unlucky");
    let (clock, queue) = held();
    let mut poll = 0;
    let list = move |_cx: &Context| -> Result<Box<dyn Iterator<Item = (&'static str, u32)>>, BoxError> {
        poll += 1;
        match poll {
            1 => Err("no answer".into()),
            2 => panic!("out of luck"),
            3 | 7 => Ok(Box::new([("a", 1), ("b", 1)].into_iter())),
            4 => Err("no answer again".into()),
            5 => Ok(Box::new(std::iter::once(("a", 1)).chain(std::iter::from_fn(|| panic!("half way"))))),
            _ => Ok(Box::new(std::iter::once(("a", 1)))),
        }
    };
    let watch = Poller::new(PERIOD, list).name("unlucky").clock(clock.clock()).watch().unwrap();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    let store = watch.watch().store();
    let mut seen = Vec::new();
    for _ in 0..7 {
        clock.wait_for_sleepers(IDLE);
        seen.push((store.has_synced(), served(&queue)));
        clock.advance(PERIOD);
    }
    let (created, deleted) = (Reasons::CREATED, Reasons::DELETED);
    assert_eq!(
        seen,
        [
            (false, vec![]),
            (false, vec![]),
            (true, vec![("a", created), ("b", created)]),
            (true, vec![]),
            (true, vec![]),
            (true, vec![("b", deleted)]),
            (true, vec![("b", created)]),
        ]
    );
    assert_eq!(watch.source().status().failures, 4);
    let errors: Vec<_> = logs.at(Level::Error).iter().map(|line| line.field("panic").to_owned()).collect();
    assert_eq!(errors, ["out of luck", "half way"]);
    let warnings: Vec<_> = logs.at(Level::Warn).iter().map(|line| line.field("error").to_owned()).collect();
    assert_eq!(warnings, ["no answer", "no answer again"]);
}

#[test]
fn start_refuses_invalid_settings() {
    let list = |_cx: &Context| -> Listing { Ok(vec![]) };
    let error = Poller::new(Duration::ZERO, list).watch().unwrap_err();
    assert_eq!(error.to_string(), "period is 0ns, but must be longer than zero");
    let error = Poller::new(SECOND, list).jitter(1.5).watch().unwrap_err();
    assert_eq!(error.to_string(), "jitter is 1.5, but must be between 0 and 1");
}

#[test]
fn a_trigger_lists_at_once() {
    let (clock, queue) = held();
    let world = World::default();
    let watch = vms(&clock, &world).first_after_period().watch().unwrap();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    clock.wait_for_sleepers(IDLE);
    world.is(&[("a", 1)]);
    assert_eq!(watch.source().status().listings, 0);
    watch.source().trigger();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(served(&queue), [("a", Reasons::CREATED)]);
}

#[test]
fn values_may_be_compared_by_a_version() {
    let (clock, queue) = held();
    let mut load = 0;
    let list = move |_cx: &Context| {
        load += 1;
        Ok::<_, BoxError>([("a", (load / 3, load))])
    };
    let watch = Poller::new(PERIOD, list).clock(clock.clock()).watch_versioned(|vm: &(u32, u32)| vm.0).unwrap();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    clock.wait_for_sleepers(IDLE);
    serve(&queue);
    advance(&clock, PERIOD);
    assert_eq!(served(&queue), []);
    assert_eq!(*watch.watch().store().get("a").unwrap(), (0, 1));
    advance(&clock, PERIOD);
    assert_eq!(served(&queue), [("a", Reasons::UPDATED)]);
    assert_eq!(*watch.watch().store().get("a").unwrap(), (1, 3));
}

#[test]
fn a_listing_that_returns_after_the_stop_is_discarded() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let list = move |_cx: &Context| -> Listing {
        runs.enter(());
        Ok(vec![("a", 1)])
    };
    let watch = Poller::new(PERIOD, list).clock(clock.clock()).watch().unwrap();
    let subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    director.next();
    let (handle, store) = (watch.watch().clone(), watch.watch().store());
    watch.stop();
    assert!(handle.is_stopped() && handle.subscribe(Subscriber::to_itself(&queue)).is_err());
    subscription.join().unwrap();
    director.cue();
    watch.join().unwrap();
    assert!(store.is_empty() && !store.has_synced() && queue.is_empty());
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn the_watch_stops_with_its_handle_unless_it_is_detached() {
    let (clock, queue) = held();
    let world = World::default();
    let watch = vms(&clock, &world).watch().unwrap();
    let handle = watch.watch().clone();
    let subscription = handle.subscribe(Subscriber::to_itself(&queue)).unwrap();
    clock.wait_for_sleepers(IDLE);
    drop(watch);
    assert!(handle.is_stopped());
    subscription.join().unwrap();
    assert_eq!(clock.sleepers(), 0);

    let watch = vms(&clock, &world).watch().unwrap();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    let handle = watch.watch().clone();
    clock.wait_for_sleepers(IDLE);
    watch.detach();
    assert!(!handle.is_stopped());
    world.is(&[("late", 1)]);
    advance(&clock, PERIOD);
    assert_eq!(served(&queue), [("late", Reasons::CREATED)]);
}

#[test]
fn a_listing_that_blocks_is_cancelled_by_an_abort_and_after_the_grace() {
    let asleep = |clock: &ManualClock| -> Running<Watch<&'static str, u32>> {
        let list = |cx: &Context| -> Listing {
            cx.sleep(Duration::MAX)?;
            Ok(vec![("a", 1)])
        };
        Poller::new(Duration::MAX, list).shutdown_grace(Duration::ZERO).clock(clock.clock()).watch().unwrap()
    };
    let clock = ManualClock::new();
    let watch = asleep(&clock);
    clock.wait_for_sleepers(2);
    watch.abort();
    watch.join().unwrap();
    let watch = asleep(&clock);
    clock.wait_for_sleepers(2);
    watch.shutdown(Duration::ZERO).unwrap();
    let mut watch = asleep(&clock);
    clock.wait_for_sleepers(2);
    assert!(watch.join_timeout(Duration::ZERO).is_err());
    drop(watch);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_listing_has_a_deadline() {
    let clock = ManualClock::new();
    let (report, seen) = unbounded();
    let list = move |cx: &Context| -> Listing {
        report.send((cx.remaining(), cx.reasons()))?;
        Ok(vec![])
    };
    let watch = Poller::new(PERIOD, list).clock(clock.clock()).watch().unwrap();
    assert_eq!(seen.recv().unwrap(), (Some(PERIOD), Reasons::POLL));
    assert!(!watch.source().status().overdue && watch.source().status().overruns == 0);
}
