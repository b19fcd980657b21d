//! Delivery on the pushing threads: which thread maps an event, in which order, and when a subscription has ended.

use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::watch::Push;
use homeostat::{Event, Subscriber, Watch, WorkQueue};
use parking_lot::Mutex;

use crate::stages::stage;

type Vms = Push<&'static str, u32>;
type Seen = (Option<&'static str>, Option<u32>);

fn watch() -> (WorkQueue<&'static str>, Vms) {
    let push = Watch::builder().name("vms").push();
    push.synced();
    (WorkQueue::new(), push)
}

fn seen(event: &Event<&'static str, u32>) -> Seen {
    (event.key().copied(), event.value().copied())
}

#[test]
fn the_thread_that_pushes_subscribes_or_resyncs_maps_the_events() {
    let (queue, push) = watch();
    push.set("a", 1);
    let (report, reported) = unbounded::<(Seen, ThreadId)>();
    let mapping = move |event: &Event<&'static str, u32>| {
        report.send((seen(event), thread::current().id())).unwrap();
        event.key().copied()
    };
    let subscription = push.watch().subscribe(Subscriber::to(&queue, mapping)).unwrap();
    let here = thread::current().id();
    assert!(subscription.has_synced());
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [((Some("a"), Some(1)), here), ((None, None), here)]);
    subscription.resync();
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [((Some("a"), Some(1)), here)]);
    let there = thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            push.set("b", 2);
            thread::current().id()
        });
        pushing.join().unwrap()
    });
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [((Some("b"), Some(2)), there)]);
    assert_eq!((subscription.pending(), queue.len()), (0, 2));
}

/// A push does not wait for a mapping that runs on another thread. The store is ahead of the events, which keep their
/// order.
#[test]
fn a_push_during_a_delivery_returns_at_once_and_the_other_thread_delivers() {
    let (queue, push) = watch();
    let (runs, director) = stage();
    let mapping = move |event: &Event<&'static str, u32>| {
        if event.key().is_some() {
            runs.enter((seen(event), thread::current().id()));
        }
        event.key().copied()
    };
    let subscription = push.watch().subscribe(Subscriber::to(&queue, mapping)).unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| push.set("a", 1)).thread().id();
        assert_eq!(director.next(), ((Some("a"), Some(1)), other));
        push.set("b", 1);
        push.set("b", 2);
        push.set("a", 2);
        assert_eq!(subscription.pending(), 2);
        assert_eq!(push.watch().store().get("a").as_deref(), Some(&2));
        assert!(queue.is_empty());
        for expected in [(Some("b"), Some(2)), (Some("a"), Some(2))] {
            director.cue();
            assert_eq!(director.next(), (expected, other));
        }
        director.cue();
    });
    assert_eq!((subscription.pending(), subscription.delivered(), queue.len()), (0, 4, 2));
}

#[test]
fn joining_a_subscription_waits_for_the_delivering_thread() {
    let (queue, push) = watch();
    let (runs, director) = stage();
    let alive = Arc::new(());
    let part = Arc::clone(&alive);
    let mapping = move |event: &Event<&'static str, u32>| {
        let _ = &part;
        if event.key().is_some() {
            runs.enter(());
        }
        None
    };
    let mut subscription = push.watch().subscribe(Subscriber::to(&queue, mapping)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| push.set("a", 1));
        director.next();
        push.set("b", 1);
        subscription.stop();
        assert_eq!(subscription.pending(), 0, "buffered events are dropped");
        let still = subscription.join_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(still.to_string(), "still running: vms-subscription-1");
        let joining = scope.spawn(|| {
            subscription.join().unwrap();
            Arc::strong_count(&alive)
        });
        director.cue();
        assert_eq!(joining.join().unwrap(), 1, "the mapping has been dropped");
    });
    assert!(director.is_quiet());
}

/// An idle subscription has no thread that could end it, so the stop itself ends it.
#[test]
fn stopping_an_idle_subscription_or_its_watch_ends_it_at_once() {
    for stop_the_watch in [false, true] {
        let (queue, push) = watch();
        let alive = Arc::new(());
        let part = Arc::clone(&alive);
        let mapping = move |event: &Event<&'static str, u32>| {
            let _ = &part;
            event.key().copied()
        };
        let mut subscription = push.watch().subscribe(Subscriber::to(&queue, mapping)).unwrap();
        subscription.join_timeout(Duration::ZERO).unwrap_err();
        if stop_the_watch {
            push.stop();
        } else {
            subscription.stop();
        }
        assert_eq!((Arc::strong_count(&alive), push.watch().subscriptions()), (1, 0));
        subscription.join_timeout(Duration::ZERO).unwrap();
    }
}

/// The mappings of two watches push into each other, from two threads. No lock of a watch is held while a mapping runs.
#[test]
fn mappings_may_push_into_each_others_watch() {
    const ROUNDS: u32 = 2_000;
    let pushes = [Watch::<u32, u32>::push(), Watch::push()];
    let queue = WorkQueue::<u32>::new();
    let subscriptions: Vec<_> = [(0, 1), (1, 0)]
        .into_iter()
        .map(|(from, to): (usize, usize)| {
            let to = pushes[to].clone();
            let mapping = move |event: &Event<u32, u32>| {
                if let (Some(key), Some(value)) = (event.key(), event.value())
                    && value % 8 != 0
                {
                    to.set(*key, value - 1);
                }
                event.key().copied()
            };
            pushes[from].watch().subscribe(Subscriber::to(&queue, mapping)).unwrap()
        })
        .collect();
    thread::scope(|scope| {
        for (key, push) in (0..).zip(&pushes) {
            scope.spawn(move || (1..ROUNDS).for_each(|round| _ = push.set(key, round * 8 + 7)));
        }
    });
    for (subscription, push) in subscriptions.iter().zip(&pushes) {
        assert_eq!((subscription.pending(), subscription.panics()), (0, 0));
        assert_eq!(push.watch().store().len(), 2);
    }
    drop(subscriptions);
}

/// Two producers of the same keys. The subscriber records the values of a key in the order in which they were stored.
#[test]
fn events_of_a_key_keep_the_order_of_the_store() {
    let push = Watch::<u32, u64>::push();
    let queue = WorkQueue::<u32>::new();
    let reported = Arc::new(Mutex::new(vec![Vec::new(); 4]));
    let recorded = Arc::clone(&reported);
    let mapping = move |event: &Event<u32, u64>| {
        if let (Some(key), Some(value)) = (event.key(), event.value()) {
            recorded.try_lock().expect("two threads deliver at once")[*key as usize]
                .push((event.old().copied(), *value));
        }
        None
    };
    let subscription = push.watch().subscribe(Subscriber::to(&queue, mapping)).unwrap();
    thread::scope(|scope| {
        for producer in 0..2_u64 {
            let push = &push;
            scope.spawn(move || (0..1_000).for_each(|round| _ = push.set((round % 4) as u32, round * 2 + producer)));
        }
    });
    assert_eq!((subscription.pending(), subscription.panics()), (0, 0));
    for (key, values) in (0..).zip(&*reported.lock()) {
        let mut known = None;
        for (old, value) in values {
            assert_eq!(*old, known, "key {key}");
            known = Some(*value);
        }
        assert_eq!(push.watch().store().get(&key).map(|value| *value), known);
    }
}
