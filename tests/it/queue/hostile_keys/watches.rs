//! A watch of hostile keys. The producer of a change gets the panic, a subscriber loses the events of that key, and no
//! thread ends.

use crossbeam_channel::unbounded;
use homeostat::watch::EventKind;
use homeostat::{Event, Subscriber, Watch};

use super::*;
use crate::stages::{Director, stage};

/// The key and the kind of an event.
type Heard = (Option<u32>, EventKind);

fn reported(event: &Event<Key, u32>) -> Heard {
    (event.key().map(|key| key.0.id), event.kind())
}

/// Returns a subscriber that blocks at each event until the test releases it.
fn slow(queue: &WorkQueue<Key>) -> (Subscriber<Key, u32>, Director<Heard>) {
    let (runs, director) = stage();
    let mapping = move |event: &Event<Key, u32>| {
        runs.enter(reported(event));
        None
    };
    (Subscriber::to(queue, mapping).buffered(), director)
}

/// All code of key 2 panics while the subscriber takes its events.
#[test]
fn a_key_that_panics_in_a_subscriber_loses_only_its_own_events() {
    let traps = Traps::new();
    let (queue, push) = (WorkQueue::new(), Watch::<Key, u32>::push());
    let (subscriber, director) = slow(&queue);
    let subscription = push.watch().subscribe(subscriber).unwrap();
    push.replace_all((0..4).map(|id| (traps.key(id), 1)));
    for _ in 0..5 {
        director.next();
        director.cue();
    }
    push.set(traps.key(0), 2);
    assert_eq!(director.next(), (Some(0), EventKind::Updated));
    for id in 1..3 {
        push.set(traps.key(id), 2);
        push.remove(&traps.probe(id));
    }
    push.set(traps.key(3), 2);
    for op in [Op::Hash, Op::Eq, Op::Clone] {
        traps.arm(op, 2);
    }
    director.cue();
    let notice: Vec<_> = (0..3)
        .map(|_| {
            let notice = director.next();
            director.cue();
            notice
        })
        .collect();
    assert_eq!(notice, [(Some(1), EventKind::Updated), (Some(1), EventKind::Deleted), (Some(3), EventKind::Updated)]);
    traps.disarm();
    // Later events arrive.
    push.set(traps.key(2), 3);
    assert_eq!(director.next(), (Some(2), EventKind::Created));
    director.cue();
    assert_eq!((subscription.panics(), subscription.pending()), (1, 0));
    drop((subscription, push));
    traps.close(queue);
}

/// Undelivered events are dropped without calling any code of the keys, except `Drop`.
#[test]
fn a_subscription_of_keys_that_panic_ends_like_any_other() {
    let traps = Traps::new();
    let (queue, push) = (WorkQueue::new(), Watch::<Key, u32>::push());
    let (subscriber, director) = slow(&queue);
    let subscription = push.watch().subscribe(subscriber).unwrap();
    push.synced();
    director.next();
    push.set(traps.key(1), 1);
    push.set(traps.key(2), 1);
    push.remove(&traps.probe(1));
    push.set(traps.key(1), 2);
    for op in [Op::Hash, Op::Eq, Op::Clone] {
        traps.arm(op, 1);
    }
    subscription.stop();
    drop(director);
    drop(subscription);
    traps.disarm();
    drop(push);
    traps.close(queue);
}

#[test]
fn a_key_that_panics_in_the_producer_changes_nothing() {
    let traps = Traps::new();
    let (queue, push) = (WorkQueue::new(), Watch::<Key, u32>::push());
    let (report, notice) = unbounded();
    let mapping = move |event: &Event<Key, u32>| {
        let _ = report.send(reported(event));
        None
    };
    let subscription = push.watch().subscribe(Subscriber::to(&queue, mapping)).unwrap();
    push.synced();
    push.set(traps.key(1), 1);
    notice.iter().take(2).for_each(drop);
    let calls: [(&str, &dyn Fn()); 3] = [
        ("set", &|| {
            push.set(traps.key(1), 2);
        }),
        ("remove", &|| {
            push.remove(&traps.probe(1));
        }),
        ("replace_all", &|| {
            push.replace_all([(traps.key(1), 2), (traps.key(2), 1)]);
        }),
    ];
    for (call, make) in calls {
        traps.arm(Op::Hash, 1);
        assert_eq!(panics(make), "Hash of 1", "{call}");
        traps.disarm();
    }
    let store = push.watch().store();
    assert_eq!((store.len(), store.get(&traps.probe(1)).as_deref()), (1, Some(&1)));
    assert!(notice.is_empty());
    push.set(traps.key(2), 1);
    assert_eq!(notice.recv().unwrap(), (Some(2), EventKind::Created));
    drop((subscription, push, store));
    traps.close(queue);
}
