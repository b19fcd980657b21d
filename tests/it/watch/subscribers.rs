//! Several subscribers of a watch: panics, blocked mappings, dropped subscriptions, and the end of a subscription.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use homeostat::watch::{Push, Subscription};
use homeostat::{Event, ManualClock, Predicate, Running, Subscriber, ThreadOptions, Watch, WorkQueue};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::stage;
use crate::support::{SECOND, held, in_a_process_of_its_own, serve};
use crate::until::until;

type Vms = Push<&'static str, u32>;

fn watch() -> (ManualClock, WorkQueue<&'static str>, Vms) {
    let (clock, queue) = held();
    let push = Watch::builder().name("vms").clock(clock.clock()).push();
    push.synced();
    (clock, queue, push)
}

#[test]
fn a_panic_of_a_mapping_or_a_predicate_skips_only_its_event() {
    let logs = Logs::of("clumsy");
    let (_clock, queue, push) = watch();
    let clumsy = Subscriber::to(&queue, |event: &Event<&'static str, u32>| -> Box<dyn Iterator<Item = &'static str>> {
        match event.value() {
            Some(1) => panic!("out of luck"),
            Some(2) => Box::new(std::iter::once("half").chain(std::iter::from_fn(|| panic!("half way")))),
            Some(3) => std::panic::panic_any(3),
            _ => Box::new(event.key().copied().into_iter()),
        }
    });
    let refuses = Predicate::new(|event: &Event<&'static str, u32>| event.value() != Some(&4) || panic!("unjust"));
    let subscription = push.watch().subscribe(clumsy.when(refuses).name("clumsy")).unwrap();
    let healthy = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)] {
        push.set(key, value);
    }
    assert_eq!((subscription.panics(), subscription.delivered()), (4, 2));
    assert_eq!((healthy.panics(), healthy.delivered()), (0, 6));
    let mut served = serve(&queue);
    served.sort_unstable();
    // Nothing of the interrupted batch arrives, because it is collected before it is enqueued.
    assert_eq!(served, ["a", "b", "c", "d", "e"]);
    let errors: Vec<_> = logs.at(Level::Error).iter().map(|line| line.field("panic").to_owned()).collect();
    assert_eq!(errors, ["out of luck", "half way", "a panic with a non-string payload", "unjust"]);
    assert_eq!(logs.at(Level::Error)[0].field("event"), "created");
}

#[test]
fn a_blocked_subscriber_delays_no_other_and_buffers_one_entry_per_key() {
    let (clock, queue, push) = watch();
    let (runs, director) = stage();
    let slow = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        runs.enter((event.key().copied(), event.old().copied(), event.value().copied()));
        None
    });
    let slow = push.watch().subscribe(slow.buffered()).unwrap();
    assert_eq!(director.next(), (None, None, None), "the end of the list");
    let healthy = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    for round in 0..1000 {
        push.set("a", round);
        push.set("b", round);
    }
    push.remove("b");
    assert_eq!(slow.pending(), 2);
    assert_eq!(healthy.pending(), 0);
    assert_eq!(push.watch().store().get("a").as_deref(), Some(&999));
    let mut served = serve(&queue);
    served.sort_unstable();
    assert_eq!(served, ["a", "b"]);
    director.cue();
    assert_eq!(director.next(), (Some("a"), None, Some(999)));
    director.cue();
    assert_eq!(director.next(), (Some("b"), None, Some(999)));
    director.cue();
    clock.wait_for_sleepers(1);
    assert_eq!(slow.pending(), 0);
    drop(director);
}

/// A mapping may push into its own watch without a deadlock.
#[test]
fn a_mapping_may_change_its_own_watch() {
    let (_clock, queue, push) = watch();
    let back = push.clone();
    let echo = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        if let Some(value) = event.value().filter(|value| **value < 500) {
            back.set("a", *value + 1);
        }
        event.key().copied()
    });
    let subscription = push.watch().subscribe(echo).unwrap();
    push.set("a", 0);
    assert_eq!(push.watch().store().get("a").as_deref(), Some(&500));
    assert_eq!(subscription.delivered(), 502);
}

#[test]
fn a_mapping_may_subscribe_read_the_store_and_stop_the_watch() {
    let (clock, queue, push) = watch();
    let (watched, store) = (push.watch().clone(), push.watch().store());
    let (stopping, target) = (push.clone(), queue.clone());
    let (born, children) = unbounded();
    let busy = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        if event.value() == Some(&1) {
            assert_eq!(store.get("a").as_deref(), Some(&1));
            born.send(watched.subscribe(Subscriber::to_itself(&target)).unwrap()).unwrap();
            stopping.stop();
        }
        None
    });
    let subscription = push.watch().subscribe(busy).unwrap();
    push.set("a", 1);
    let child = children.recv().unwrap();
    child.join().unwrap();
    subscription.join().unwrap();
    assert_eq!(serve(&queue), ["a"]);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_mapping_may_drop_its_own_subscription() {
    let (_clock, queue, push) = watch();
    let (give, take) = bounded::<Running<Subscription>>(1);
    let (report, seen) = unbounded();
    let suicidal = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        if event.value().is_some() {
            drop(take.recv().unwrap());
            report.send(()).unwrap();
        }
        None
    });
    give.send(push.watch().subscribe(suicidal).unwrap()).unwrap();
    push.set("a", 1);
    push.set("b", 1);
    seen.recv().unwrap();
    assert!(seen.recv().is_err(), "it receives no event, and its mapping is dropped");
    assert_eq!(push.watch().subscriptions(), 0);
}

#[test]
fn a_dropped_subscription_asks_for_nothing_more() {
    let (clock, queue, push) = watch();
    let subscription = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    let other = push.watch().subscribe(Subscriber::to_itself(&WorkQueue::new())).unwrap();
    assert_eq!(push.watch().subscriptions(), 2);
    drop(subscription);
    assert_eq!(push.watch().subscriptions(), 1);
    push.set("a", 1);
    assert!(queue.is_empty());
    assert_eq!(other.delivered(), 2);
    drop(other);
    assert_eq!(push.watch().subscriptions(), 0);
    assert_eq!(clock.sleepers(), 0);
}

/// Only the drop of the mapping proves that the subscription has ended.
#[test]
fn a_subscriber_is_dropped_with_its_subscription_and_not_before() {
    let (_clock, queue, push) = watch();
    let alive = Arc::new(());
    let part = Arc::clone(&alive);
    let subscriber = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        let _ = &part;
        event.key().copied()
    });
    let subscription = push.watch().subscribe(subscriber).unwrap();
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(subscription);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn dropping_a_subscription_waits_for_the_mapping_that_runs() {
    let (_clock, queue, push) = watch();
    let (runs, director) = stage();
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let slow = Subscriber::to(&queue, move |_: &Event<&'static str, u32>| {
        runs.enter(());
        ended.store(true, SeqCst);
        None
    });
    let mut subscription = push.watch().subscribe(slow.buffered()).unwrap();
    director.next();
    push.set("never told", 1);
    subscription.stop();
    assert_eq!(subscription.pending(), 0, "waiting events are dropped at once");
    let still = subscription.join_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(still.still_running(), ["vms-subscription-1-0"]);
    thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            drop(subscription);
            assert!(over.load(SeqCst));
        });
        director.cue();
        dropping.join().unwrap();
    });
    assert!(director.is_quiet());
}

#[test]
fn when_the_watch_stops_its_subscribers_hear_the_rest_and_end() {
    let (clock, queue, push) = watch();
    let (runs, director) = stage();
    let slow = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        runs.enter(());
        event.key().copied()
    });
    let mut subscription = push.watch().subscribe(slow.buffered()).unwrap();
    let detached = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    detached.detach();
    director.next();
    for key in ["a", "b", "c"] {
        push.set(key, 1);
    }
    serve(&queue);
    drop(push);
    drop(director);
    subscription.join_timeout(Duration::MAX).unwrap();
    assert_eq!(subscription.delivered(), 4);
    assert_eq!(serve(&queue), ["a", "b", "c"]);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_detached_subscription_still_delivers() {
    let (_clock, queue, push) = watch();
    push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap().detach();
    push.set("a", 1);
    assert_eq!(serve(&queue), ["a"]);
    assert_eq!(push.watch().subscriptions(), 1);
}

#[test]
fn joining_for_a_time_gives_up_when_it_is_over() {
    let (clock, queue, push) = watch();
    let mut subscription = push.watch().subscribe(Subscriber::to_itself(&queue).buffered()).unwrap();
    clock.wait_for_sleepers(1);
    thread::scope(|scope| {
        let joining = scope.spawn(|| subscription.join_timeout(SECOND));
        clock.wait_for_sleepers(2);
        clock.advance(SECOND);
        assert_eq!(joining.join().unwrap().unwrap_err().to_string(), "still running: vms-subscription-1-0");
    });
}

#[test]
fn threads_are_made_and_named_as_asked() {
    let (clock, queue, push) = watch();
    let (started, names) = unbounded();
    let options = ThreadOptions::new().stack_size(256 * 1024).on_start(move |name| {
        assert_eq!(thread::current().name(), Some(name));
        started.send(name.to_owned()).unwrap();
    });
    let subscriber = || Subscriber::to_itself(&queue).buffered().thread_options(options.clone());
    let one = push.watch().subscribe(subscriber()).unwrap();
    let other = push.watch().subscribe(subscriber().name("pods to vms")).unwrap();
    clock.wait_for_sleepers(2);
    let mut names: Vec<_> = names.try_iter().collect();
    names.sort();
    assert_eq!(names, ["pods to vms-0", "vms-subscription-1-0"]);
    assert_eq!((one.name(), other.name()), ("vms-subscription-1", "pods to vms"));
}

/// A comparison that panics changes nothing, even in the middle of a listing.
#[test]
fn a_comparison_that_panics_changes_nothing() {
    let (clock, queue) = held::<&str>();
    let push = Watch::versioned(|value: &i32| {
        assert!(*value >= 0, "no such version");
        *value
    });
    let push = push.clock(clock.clock()).push();
    push.replace_all([("a", 1), ("b", 1)]);
    let _subscription = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    serve(&queue);
    let broken = || push.replace_all([("c", 1), ("a", 2), ("b", -1)]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(broken)).is_err());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| push.set("a", -1))).is_err());
    assert!(queue.is_empty());
    let mut items = push.watch().store().snapshot();
    items.sort();
    assert_eq!(items, [("a", Arc::new(1)), ("b", Arc::new(1))]);
    push.set("a", 3);
    assert_eq!(serve(&queue), ["a"]);
}

/// There are as many threads as buffered subscriptions, and none when all handles have been dropped, in any order.
#[cfg(target_os = "linux")]
#[test]
fn every_thread_ends_in_every_order_of_drops() {
    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }
    /// The system may list a joined thread for another moment.
    fn settle(expected: usize) {
        until("the number of threads is as expected", || threads() == expected);
    }
    in_a_process_of_its_own("watch::subscribers::every_thread_ends_in_every_order_of_drops", || {
        let before = threads();
        for order in 0..48 {
            let clock = ManualClock::new();
            let queue = WorkQueue::builder().clock(clock.clock()).build();
            let push = Watch::builder().clock(clock.clock()).push();
            let watch = push.watch().clone();
            let first = watch.subscribe(Subscriber::to_itself(&queue).buffered()).unwrap();
            let second = watch.subscribe(Subscriber::to_itself(&queue).buffered()).unwrap();
            let without_thread = watch.subscribe(Subscriber::to_itself(&queue)).unwrap();
            clock.wait_for_sleepers(2);
            push.set("a", 1_u32);
            assert_eq!(threads(), before + 2);
            let mut parts: Vec<Box<dyn std::any::Any>> = vec![
                Box::new(push),
                Box::new(watch),
                Box::new(first),
                Box::new(second),
                Box::new(without_thread),
                Box::new(queue),
            ];
            let mut number = order;
            for left in (1..=parts.len()).rev() {
                drop(parts.remove(number % left));
                number /= 2;
            }
            settle(before);
            assert_eq!(clock.sleepers(), 0);
        }
    });
}

/// More subscribers come and go while changes arrive. The others miss no event.
#[test]
fn subscriptions_come_and_go_while_events_flow() {
    let push = Watch::push();
    let notice = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&notice);
    let queue = WorkQueue::new();
    let steady = Subscriber::to(&queue, move |event: &Event<u32, u32>| {
        seen.fetch_add(usize::from(event.key().is_some()), SeqCst);
        event.key().copied()
    });
    let mut steady = push.watch().subscribe(steady).unwrap();
    thread::scope(|scope| {
        let producer = scope.spawn(|| {
            for key in 0..5_000_u32 {
                push.set(key, key);
            }
        });
        let mut rounds = 0;
        while !producer.is_finished() || rounds < 20 {
            let other = WorkQueue::new();
            let passing = push.watch().subscribe(Subscriber::to_itself(&other)).unwrap();
            thread::yield_now();
            drop(passing);
            let after = other.len();
            thread::yield_now();
            assert_eq!(other.len(), after, "a dropped subscription asks for nothing more");
            rounds += 1;
        }
        producer.join().unwrap();
    });
    assert_eq!(push.watch().subscriptions(), 1);
    push.stop();
    steady.join_timeout(Duration::MAX).unwrap();
    assert_eq!((notice.load(SeqCst), queue.len()), (5_000, 5_000));
}
