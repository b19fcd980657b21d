//! The store, the events and the enqueued keys of a watch, on a manual clock.

use homeostat::queue::KeyState;
use homeostat::watch::{ChangeCounts, EventKind, Push, Subscription};
use homeostat::{Enqueue, Event, ManualClock, Predicate, Priority, Reasons, Running, Subscriber, Watch, WorkQueue};
use std::sync::Arc;
use std::time::Duration;

use crate::stages::just_before;
use crate::support::{SECOND, counts, held, take};
use homeostat::base::StartErrorKind;

type Vms = Push<&'static str, u32>;

/// Returns a manual clock, and a queue and a watch that use it.
fn stage() -> (ManualClock, WorkQueue<&'static str>, Vms) {
    let (clock, queue) = held();
    let push = Watch::builder().name("vms").clock(clock.clock()).push();
    (clock, queue, push)
}

fn subscribed(push: &Vms, subscriber: Subscriber<&'static str, u32>) -> Running<Subscription> {
    push.watch().subscribe(subscriber).unwrap()
}

/// Takes the next key, and returns it with its priority level and its reasons.
fn next(queue: &WorkQueue<&'static str>) -> (&'static str, Priority, Reasons) {
    let claim = take(queue);
    let notice = (*claim, claim.priority(), claim.reasons());
    claim.done();
    notice
}

#[test]
fn the_initial_list_is_enqueued_softly_at_low_priority() {
    let (_clock, queue, push) = stage();
    push.set("a", 1);
    let _subscription = subscribed(&push, Subscriber::to_itself(&queue));
    push.set("b", 1);
    push.synced();
    assert_eq!(next(&queue), ("a", Priority::Low, Reasons::CREATED));
    assert_eq!(next(&queue), ("b", Priority::Low, Reasons::CREATED));
    // The initial list is complete, so a new key counts as a change.
    push.set("c", 1);
    assert_eq!(next(&queue), ("c", Priority::Normal, Reasons::CREATED));
}

#[test]
fn each_kind_of_change_gives_its_reason() {
    let (_clock, queue, push) = stage();
    push.synced();
    let _subscription = subscribed(&push, Subscriber::to_itself(&queue));
    let mut reasons = Vec::new();
    let mut after = |pushed: Option<EventKind>, expected: Option<EventKind>| {
        assert_eq!(pushed, expected);
        reasons.push(next(&queue).2);
    };
    after(push.set("a", 1), Some(EventKind::Created));
    after(push.set("a", 2), Some(EventKind::Updated));
    after(push.remove("a"), Some(EventKind::Deleted));
    assert_eq!(reasons, [Reasons::CREATED, Reasons::UPDATED, Reasons::DELETED]);
    assert_eq!(push.set("b", 1), Some(EventKind::Created));
    assert_eq!(push.set("b", 1), Some(EventKind::Unchanged));
    assert_eq!(push.remove("never there"), Some(EventKind::Unchanged));
    assert_eq!((next(&queue).0, queue.len()), ("b", 0));
}

/// A change runs its key at once and ends a backoff. With a soft subscription it respects a pending delay. The initial
/// list does too.
#[test]
fn a_change_ends_a_delay_unless_the_subscription_is_soft() {
    for soft in [false, true] {
        let (clock, queue, push) = stage();
        push.set("a", 1);
        queue.enqueue_after("a", SECOND);
        let subscriber = Subscriber::to_itself(&queue);
        let subscriber = if soft { subscriber.soft() } else { subscriber };
        let _subscription = subscribed(&push, subscriber);
        push.synced();
        assert_eq!(counts(&queue), [0, 1, 0]);
        push.set("a", 2);
        assert_eq!(counts(&queue), if soft { [0, 1, 0] } else { [1, 0, 0] });
        clock.advance(SECOND);
        let claim = take(&queue);
        assert!(claim.reasons().contains(Reasons::CREATED | Reasons::UPDATED));
        assert_eq!(claim.priority(), Priority::Normal);
    }
}

/// Only changes are debounced, not the initial list or a resync. A deletion is a change too.
#[test]
fn a_debounced_subscription_waits_for_quiet_keys_up_to_its_limit() {
    let (clock, queue, push) = stage();
    push.set("a", 1);
    let calm = Subscriber::to_itself(&queue).soft().debounced(2 * SECOND, 5 * SECOND);
    let _subscription = subscribed(&push, calm);
    push.synced();
    assert_eq!(next(&queue), ("a", Priority::Low, Reasons::CREATED));
    push.watch().resync();
    assert_eq!(next(&queue), ("a", Priority::Low, Reasons::RESYNC));

    // Changes at 0 s, 1 s, ..., 4 s: the key is never quiet for 2 s, but it is enqueued after 5 s.
    for value in 2..7 {
        push.set("a", value);
        assert_eq!(counts(&queue), [0, 1, 0]);
        clock.advance(SECOND);
    }
    assert_eq!(next(&queue), ("a", Priority::Normal, Reasons::UPDATED));

    push.set("b", 1);
    push.remove("b");
    clock.advance(just_before(2 * SECOND));
    assert_eq!(counts(&queue), [0, 1, 0]);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(next(&queue), ("b", Priority::Normal, Reasons::CREATED | Reasons::DELETED));
}

#[test]
fn a_resync_runs_idle_and_delayed_keys_but_not_those_in_process() {
    let (_clock, queue, push) = stage();
    push.replace_all([("idle", 1), ("delayed", 1), ("taken", 1)]);
    let _subscription = subscribed(&push, Subscriber::to_itself(&queue));
    crate::support::serve(&queue);
    queue.enqueue_after("delayed", SECOND);
    queue.enqueue("taken");
    let claim = take(&queue);
    push.watch().resync();
    assert_eq!(next(&queue), ("delayed", Priority::Normal, Reasons::RESYNC), "it keeps its lane");
    assert_eq!(next(&queue), ("idle", Priority::Low, Reasons::RESYNC));
    assert_eq!(counts(&queue), [0, 0, 1]);
    claim.done();
    assert_eq!(counts(&queue), [0, 0, 0]);
}

#[test]
fn a_subscription_can_be_resynced_alone() {
    let (clock, queue, push) = stage();
    push.replace_all([("a", 1), ("b", 1)]);
    let subscription = subscribed(&push, Subscriber::to_itself(&queue));
    let other = WorkQueue::<&str>::builder().clock(clock.clock()).build();
    let beside = push.watch().subscribe(Subscriber::to_itself(&other)).unwrap();
    crate::support::serve(&queue);
    crate::support::serve(&other);
    subscription.resync();
    let mut notice = [next(&queue), next(&queue)];
    notice.sort_by_key(|(key, ..)| *key);
    assert_eq!(notice, ["a", "b"].map(|key| (key, Priority::Low, Reasons::RESYNC)));
    assert!(other.is_empty());
    assert_eq!((subscription.delivered(), beside.delivered()), (5, 3));

    subscription.stop();
    subscription.resync();
    push.stop();
    beside.resync();
    assert_eq!((subscription.pending(), beside.pending()), (0, 0));
    subscription.join().unwrap();
    beside.join().unwrap();
    assert!(queue.is_empty() && other.is_empty());
}

/// A buffered change already tells that the key exists, so the resync adds no event for it.
#[test]
fn a_resync_adds_nothing_to_buffered_changes() {
    let (clock, queue, push) = stage();
    push.replace_all([("changed", 1), ("kept", 1)]);
    let (runs, director) = crate::stages::stage();
    let mapping = move |event: &Event<&'static str, u32>| {
        runs.enter((event.key().copied(), event.kind()));
        event.key().copied()
    };
    let subscription = push.watch().subscribe(Subscriber::to(&queue, mapping).buffered()).unwrap();
    let notice = || {
        let notice = director.next();
        director.cue();
        notice
    };
    let mut initial = [notice(), notice(), notice()];
    initial.sort_by_key(|(key, _)| *key);
    assert_eq!(initial[0], (None, EventKind::Synced));
    clock.wait_for_sleepers(1);

    push.set("blocks", 1);
    assert_eq!(director.next(), (Some("blocks"), EventKind::Created));
    push.set("changed", 2);
    push.set("new", 1);
    subscription.resync();
    assert_eq!(subscription.pending(), 4);
    director.cue();
    let mut rest = [notice(), notice(), notice(), notice()];
    rest.sort_by_key(|(key, _)| *key);
    let unchanged = |key| (Some(key), EventKind::Unchanged);
    assert_eq!(
        rest,
        [
            unchanged("blocks"),
            (Some("changed"), EventKind::Updated),
            unchanged("kept"),
            (Some("new"), EventKind::Created)
        ]
    );
    clock.wait_for_sleepers(1);
    assert!(director.is_quiet());
}

#[test]
fn a_whole_listing_is_compared_and_only_its_differences_are_events() {
    let (_clock, queue, push) = stage();
    push.replace_all([("kept", 1), ("changed", 1), ("gone", 1)]);
    assert!(push.watch().store().has_synced(), "it is all there is");
    let plain = subscribed(&push, Subscriber::to_itself(&queue));
    let all = WorkQueue::<&str>::new();
    let curious = push.watch().subscribe(Subscriber::to_itself(&all).with_unchanged()).unwrap();
    crate::support::serve(&queue);
    crate::support::serve(&all);
    let changes = push.replace_all([("kept", 1), ("new", 9), ("changed", 2), ("new", 1)]);
    assert_eq!((changes.created, changes.updated, changes.deleted, changes.unchanged), (1, 1, 1, 1));
    let seen: Vec<_> = (0..3).map(|_| next(&queue)).collect();
    let normal = |key, reasons| (key, Priority::Normal, reasons);
    assert_eq!(
        seen,
        [normal("changed", Reasons::UPDATED), normal("new", Reasons::CREATED), normal("gone", Reasons::DELETED),]
    );
    assert!(queue.is_empty());
    let mut seen: Vec<_> = (0..4).map(|_| next(&all)).collect();
    assert_eq!(seen.pop(), Some(("kept", Priority::Low, Reasons::RESYNC)));
    assert_eq!(push.watch().store().get("new").as_deref(), Some(&1), "the last of two counts");
    assert_eq!((plain.panics(), curious.panics()), (0, 0));
    push.stop();
    assert_eq!(push.replace_all([("late", 1)]), ChangeCounts::default());
}

#[test]
fn a_late_subscriber_gets_existing_items_and_then_synced() {
    let (clock, _, push) = stage();
    push.replace_all([("a", 1), ("b", 1)]);
    push.set("a", 2);
    push.remove("b");
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let notice = |event: &Event<&'static str, u32>| [(event.key().copied(), event.kind(), event.value().copied())];
    let subscription = push.watch().subscribe(Subscriber::to(&queue, notice)).unwrap();
    assert!(subscription.has_synced() && subscription.wait_synced(Duration::ZERO));
    let events = crate::support::serve(&queue);
    assert_eq!(events, [(Some("a"), EventKind::Created, Some(2)), (None, EventKind::Synced, None)]);
    assert_eq!((subscription.delivered(), subscription.pending()), (2, 0));
}

#[test]
fn a_subscription_has_synced_after_the_whole_initial_list() {
    let (clock, queue, push) = stage();
    push.set("a", 1);
    let subscription = subscribed(&push, Subscriber::to_itself(&queue));
    assert!(!subscription.has_synced() && !subscription.wait_synced(Duration::ZERO));
    assert!(!push.watch().store().has_synced() && !push.watch().store().wait_synced(Duration::ZERO));
    std::thread::scope(|scope| {
        let store = push.watch().store();
        let waits = [
            scope.spawn(|| subscription.wait_synced(Duration::MAX)),
            scope.spawn(move || store.wait_synced(Duration::MAX)),
        ];
        clock.wait_for_sleepers(2);
        push.synced();
        for wait in waits {
            assert!(wait.join().unwrap());
        }
    });
    assert!(subscription.has_synced());
    push.synced();
    assert_eq!(subscription.delivered(), 2, "one creation, and the end of the list once");
}

#[test]
fn waiting_for_a_list_ends_with_the_time_and_with_the_watch() {
    let (clock, queue, push) = stage();
    let subscription = subscribed(&push, Subscriber::to_itself(&queue));
    let store = push.watch().store();
    std::thread::scope(|scope| {
        let waits = [scope.spawn(|| subscription.wait_synced(SECOND)), scope.spawn(|| store.wait_synced(SECOND))];
        clock.wait_for_sleepers(2);
        clock.advance(SECOND);
        for wait in waits {
            assert!(!wait.join().unwrap());
        }
        let waits =
            [scope.spawn(|| subscription.wait_synced(Duration::MAX)), scope.spawn(|| store.wait_synced(Duration::MAX))];
        clock.wait_for_sleepers(2);
        push.stop();
        for wait in waits {
            assert!(!wait.join().unwrap());
        }
    });
    push.synced();
    assert!(!store.has_synced(), "it is too late");
}

#[test]
fn a_subscription_to_a_stopped_watch_is_an_error_that_names_it() {
    let (_clock, queue, push) = stage();
    let watch = push.watch().clone();
    push.set("a", 1);
    drop(push.clone());
    assert!(!watch.is_stopped(), "a clone of its producer is left");
    drop(push);
    assert!(watch.is_stopped());
    let error = watch.subscribe(Subscriber::to_itself(&queue)).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::Stopped);
    assert_eq!(error.to_string(), "watch \"vms\" has been stopped");
    assert_eq!(watch.store().get("a").as_deref(), Some(&1), "the last value stays");
    watch.resync();
}

/// A stack larger than any address space.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_thread_that_the_system_refuses_leaves_no_subscription() {
    let (_clock, queue, push) = stage();
    let huge = homeostat::ThreadOptions::new().stack_size(1 << 60);
    let error = push.watch().subscribe(Subscriber::to_itself(&queue).buffered().thread_options(huge)).unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread vms-subscription-1-0");
    assert_eq!(push.watch().subscriptions(), 0);
    push.set("a", 1);
}

#[test]
fn both_the_old_and_the_new_owner_run() {
    let (_clock, queue, push) = stage();
    push.synced();
    let owners = ["zero", "one", "two"];
    let owner = move |_key: &&str, owner: &u32| owners.get(*owner as usize).copied();
    let _subscription = subscribed(&push, Subscriber::to_owner(&queue, owner).secondary());
    let notice = || std::iter::from_fn(|| (!queue.is_empty()).then(|| next(&queue))).collect::<Vec<_>>();
    let because = |key, reason| (key, Priority::Normal, reason | Reasons::SECONDARY);
    push.set("disk", 1);
    assert_eq!(notice(), [because("one", Reasons::CREATED)]);
    push.set("disk", 2);
    assert_eq!(notice(), [because("one", Reasons::UPDATED), because("two", Reasons::UPDATED)]);
    push.set("disk", 77);
    assert_eq!(notice(), [because("two", Reasons::UPDATED)]);
    push.set("disk", 0);
    push.remove("disk");
    assert!(notice().iter().any(|(owner, ..)| *owner == "zero"));
}

#[test]
fn a_subscriber_sets_priorities_and_reasons() {
    let (_clock, queue, push) = stage();
    push.set("a", 1);
    let subscriber = Subscriber::to_itself(&queue)
        .priority(Priority::High)
        .initial_priority(Priority::Normal)
        .because(Reasons::user(3))
        .secondary();
    let _subscription = subscribed(&push, subscriber);
    let more = Reasons::user(3) | Reasons::SECONDARY;
    assert_eq!(next(&queue), ("a", Priority::Normal, Reasons::CREATED | more));
    push.set("a", 2);
    assert_eq!(next(&queue), ("a", Priority::High, Reasons::UPDATED | more));
}

#[test]
fn reasons_can_depend_on_the_event() {
    let (_clock, queue, push) = stage();
    push.synced();
    let subscriber = Subscriber::to_itself(&queue).because(Reasons::user(3)).reasons(|event| match event.value() {
        Some(0) => Reasons::PURGED,
        _ => Reasons::NONE,
    });
    let _subscription = subscribed(&push, subscriber);
    for (value, reasons) in [(1, Reasons::user(3)), (0, Reasons::user(3) | Reasons::PURGED)] {
        push.set("a", value);
        assert_eq!(next(&queue), ("a", Priority::Normal, reasons));
    }
}

#[test]
fn refused_events_are_counted_and_not_mapped() {
    let (_clock, queue, push) = stage();
    push.synced();
    let odd = Predicate::matching(|value: &u32| value % 2 == 1);
    let small = Predicate::matching(|value: &u32| *value < 10);
    let subscription = subscribed(&push, Subscriber::to_itself(&queue).when(odd).when(small));
    for (key, value) in [("a", 1), ("b", 2), ("c", 11)] {
        push.set(key, value);
    }
    assert_eq!(crate::support::serve(&queue), ["a"]);
    assert_eq!((subscription.delivered(), subscription.refused()), (2, 2));
    push.remove("c");
    assert_eq!(crate::support::serve(&queue), ["c"], "a deletion passes");
}

#[test]
fn the_stored_value_is_kept_when_the_version_is_unchanged() {
    let (_clock, _queue, _) = stage();
    let push = Watch::versioned(|vm: &(u32, &str)| vm.0).push();
    push.set("a", (1, "first"));
    let before = push.watch().store().get("a").unwrap();
    assert_eq!(push.set("a", (1, "second")), Some(EventKind::Unchanged));
    assert!(Arc::ptr_eq(&before, &push.watch().store().get("a").unwrap()));
    assert_eq!(push.set("a", (2, "third")), Some(EventKind::Updated));
    assert_eq!(push.watch().store().get("a").unwrap().1, "third");
}

#[test]
fn a_queue_that_is_shut_down_stops_no_watch() {
    let (_clock, queue, push) = stage();
    push.synced();
    let subscription = subscribed(&push, Subscriber::to_itself(&queue));
    queue.shutdown(homeostat::Shutdown::Discard);
    push.set("a", 1);
    assert_eq!((subscription.delivered(), queue.state("a")), (2, KeyState::Idle));
}
