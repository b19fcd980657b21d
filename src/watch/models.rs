//! Loom models of a watch and a subscriber: two threads in every order. They use one key, because the order of a
//! listing is not fixed.

use std::sync::{Arc, Mutex};

use loom::thread;

use super::core::WatchCore;
use super::event::Event;
use super::event::EventKind;
use super::store::Store;
use super::subscriber::Subscriber;
use super::subscriber_buffer::SubscriberBuffer;
use super::subscription::{self, Subscription};
use crate::base::clock::ManualClock;
use crate::base::running::Running;
use crate::base::task::Next;
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::queue::{EnqueueMethod, Tally};

type Core = WatchCore<u8, u32>;

fn core() -> Arc<Core> {
    WatchCore::new("model".to_owned(), ManualClock::new().clock(), Box::new(u32::eq))
}

fn set(core: &Core, value: u32) -> Option<EventKind> {
    core.set(&0, &Arc::new(value))
}

/// A checker of events: each event must fit the events before it, and the store must hold its value or a later one.
#[derive(Default)]
struct Believed {
    value: Option<u32>,
    synced: usize,
    events: usize,
    ended: bool,
}

impl Believed {
    fn hear(&mut self, event: &Event<u8, u32>, store: &Store<u8, u32>) {
        assert!(!self.ended, "an event after the end of the subscription");
        self.events += 1;
        match event {
            Event::Created { new, .. } => {
                assert_eq!(self.value.replace(**new), None);
                assert!(store.get(&0).is_none_or(|stored| *stored >= **new), "delivered before it was stored");
            }
            Event::Updated { old, new, .. } => {
                assert_eq!(self.value.replace(**new), Some(**old));
                assert!(store.get(&0).is_none_or(|stored| *stored >= **new), "delivered before it was stored");
            }
            Event::Deleted { last, .. } => assert!(self.value.take().is_none_or(|value| value == **last)),
            Event::Unchanged { value, .. } => assert_eq!(self.value, Some(**value)),
            Event::Synced => self.synced += 1,
        }
    }
}

type Shared = Arc<Mutex<Believed>>;

/// Returns a subscriber that checks its events. Two deliveries at the same time are a failure.
fn believer(core: &Core) -> (Shared, Subscriber<u8, u32>) {
    let believed = Shared::default();
    let (hearing, store) = (Arc::clone(&believed), core.store.clone());
    let subscriber = Subscriber::new(move |event, _| {
        hearing.try_lock().expect("two threads deliver at once").hear(event, &store);
        Tally::default()
    });
    (believed, subscriber)
}

/// Returns a subscriber that records the values of its events, then calls `then`.
fn recorder(then: impl Fn(u32) + Send + 'static) -> (Arc<Mutex<Vec<u32>>>, Subscriber<u8, u32>) {
    let values = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&values);
    let subscriber = Subscriber::new(move |event: &Event<u8, u32>, _| {
        let mut values = reported.try_lock().expect("two threads deliver at once");
        if let Some(value) = event.value() {
            values.push(*value);
            then(*value);
        }
        Tally::default()
    });
    (values, subscriber)
}

/// Subscribes a checker without its own thread. The pushing threads deliver to it.
fn subscribe(core: &Arc<Core>) -> (Shared, Running<Subscription>) {
    let (believed, subscriber) = believer(core);
    (believed, subscription::start(subscriber, core).unwrap())
}

/// A buffered subscriber. The model takes the place of its thread.
struct Buffered {
    believed: Shared,
    buffer: Arc<SubscriberBuffer<u8, u32>>,
    event: Arc<AutoResetEvent>,
}

impl Buffered {
    fn attach(core: &Arc<Core>) -> Option<Self> {
        let (believed, subscriber) = believer(core);
        let event = AutoResetEvent::new(core.clock.clone());
        let buffer = SubscriberBuffer::new("model".to_owned(), &core.clock, false, Some(Arc::clone(&event)));
        core.attach(&buffer).ok()?;
        buffer.begin(subscriber);
        Some(Self { believed, buffer, event })
    }

    /// Delivers all buffered events. Returns whether the subscription has ended.
    fn hear_all(&self) -> bool {
        matches!(self.buffer.deliver(false), Next::Finished)
    }

    fn value(&self) -> Option<u32> {
        self.believed.lock().unwrap().value
    }
}

#[test]
fn late_buffered_subscriber_ends_with_the_stored_value() {
    loom::model(|| {
        let core = core();
        set(&core, 1);
        let producer = Arc::clone(&core);
        let changing = thread::spawn(move || {
            set(&producer, 2);
            producer.synced();
        });
        let subscriber = Buffered::attach(&core).unwrap();
        subscriber.hear_all();
        changing.join().unwrap();
        subscriber.hear_all();
        assert_eq!(subscriber.value(), Some(2));
        assert_eq!(subscriber.believed.lock().unwrap().synced, 1);
    });
}

#[test]
fn deleted_key_is_gone_for_a_late_buffered_subscriber() {
    loom::model(|| {
        let core = core();
        set(&core, 1);
        let producer = Arc::clone(&core);
        let changing = thread::spawn(move || producer.remove(&0, None));
        let subscriber = Buffered::attach(&core).unwrap();
        subscriber.hear_all();
        assert_eq!(changing.join().unwrap(), Some(EventKind::Deleted));
        subscriber.hear_all();
        assert_eq!(subscriber.value(), None);
    });
}

#[test]
fn a_resync_of_one_subscriber_that_races_with_changes_delivers_nothing_outdated() {
    loom::model(|| {
        let core = core();
        set(&core, 1);
        let subscriber = Buffered::attach(&core).unwrap();
        let other = Buffered::attach(&core).unwrap();
        subscriber.hear_all();
        let producer = Arc::clone(&core);
        let changing = thread::spawn(move || {
            set(&producer, 2);
            producer.remove(&0, None)
        });
        core.resync(EnqueueMethod::EnqueueResync, |buffer| Arc::ptr_eq(buffer, &subscriber.buffer));
        subscriber.hear_all();
        changing.join().unwrap();
        subscriber.hear_all();
        assert_eq!(subscriber.value(), None);
        assert_eq!(other.buffer.len(), 1);
    });
}

#[test]
fn two_producers_append_in_the_order_in_which_they_store() {
    loom::model(|| {
        let core = core();
        let subscriber = Buffered::attach(&core).unwrap();
        let other = Arc::clone(&core);
        let changing = thread::spawn(move || set(&other, 1));
        set(&core, 2);
        changing.join().unwrap();
        subscriber.hear_all();
        assert_eq!(subscriber.value(), core.store.get(&0).map(|value| *value));
    });
}

#[test]
fn change_is_not_missed_by_a_thread_that_goes_to_sleep() {
    loom::model(|| {
        let core = core();
        let subscriber = Buffered::attach(&core).unwrap();
        let producer = Arc::clone(&core);
        let changing = thread::spawn(move || set(&producer, 1));
        while subscriber.value().is_none() {
            subscriber.hear_all();
            if subscriber.value().is_none() {
                // Without a wakeup the model would hang here.
                subscriber.event.wait_until(Nanos::NEVER);
            }
        }
        changing.join().unwrap();
    });
}

#[test]
fn a_stop_wakes_a_sleeping_thread_and_lets_it_deliver_the_rest() {
    loom::model(|| {
        let core = core();
        let subscriber = Buffered::attach(&core).unwrap();
        let producer = Arc::clone(&core);
        let changing = thread::spawn(move || {
            set(&producer, 1);
            producer.stop();
        });
        while !subscriber.hear_all() {
            subscriber.event.wait_until(Nanos::NEVER);
        }
        assert_eq!(subscriber.value(), Some(1));
        changing.join().unwrap();
    });
}

#[test]
fn a_subscription_to_a_watch_that_stops_is_refused_or_ends() {
    loom::model(|| {
        let core = core();
        set(&core, 1);
        let stopping = Arc::clone(&core);
        let stop = thread::spawn(move || stopping.stop());
        let attached = Buffered::attach(&core);
        stop.join().unwrap();
        if let Some(subscriber) = attached {
            assert!(subscriber.hear_all());
            assert_eq!(subscriber.value(), Some(1));
            assert!(!subscriber.buffer.delivery.synced.wait_until(Nanos::ZERO));
        }
        assert_eq!(set(&core, 2), None);
    });
}

#[test]
fn the_end_of_the_initial_list_wakes_a_thread_that_waits_for_it() {
    loom::model(|| {
        let core = core();
        let producer = Arc::clone(&core);
        let syncing = thread::spawn(move || {
            producer.replace_all(&[(0, Arc::new(1))]);
        });
        assert!(core.store.wait_synced(std::time::Duration::MAX));
        assert_eq!(core.store.get(&0).as_deref(), Some(&1));
        syncing.join().unwrap();
    });
}

/// The initial list is complete, no event arrives twice, and all events have been delivered once both calls have
/// returned.
#[test]
fn late_subscriber_has_all_changes_when_the_calls_return() {
    loom::model(|| {
        let core = core();
        set(&core, 1);
        let producer = Arc::clone(&core);
        let changing = thread::spawn(move || {
            set(&producer, 2);
            producer.synced();
        });
        let (believed, subscription) = subscribe(&core);
        changing.join().unwrap();
        assert_eq!((subscription.pending(), subscription.panics(), subscription.has_synced()), (0, 0, true));
        let believed = believed.lock().unwrap();
        assert_eq!((believed.value, believed.synced), (Some(2), 1));
    });
}

/// One thread delivers at a time, in the order of the store, and the buffer is empty when both calls have returned.
#[test]
fn two_producers_of_a_key_deliver_everything_in_order() {
    loom::model(|| {
        let core = core();
        let (values, recorder) = recorder(|_| ());
        let subscription = subscription::start(recorder, &core).unwrap();
        let progress = subscription.source.progress();
        let accepted = progress.accepted();
        let other = Arc::clone(&core);
        let changing = thread::spawn(move || set(&other, 1));
        set(&core, 2);
        changing.join().unwrap();
        assert_eq!((subscription.pending(), subscription.panics()), (0, 0));
        assert!([accepted, progress.accepted()].into_iter().all(|count| progress.has_enqueued(count)));
        assert_eq!(values.lock().unwrap().last().copied(), core.store.get(&0).map(|value| *value));
    });
}

#[test]
fn a_resync_that_races_with_a_deletion_delivers_the_item_before_it_or_not_at_all() {
    loom::model(|| {
        let core = core();
        set(&core, 1);
        let (believed, subscription) = subscribe(&core);
        let other = Arc::clone(&core);
        let changing = thread::spawn(move || other.remove(&0, None));
        subscription.resync();
        changing.join().unwrap();
        assert_eq!(believed.lock().unwrap().value, None);
        assert_eq!((subscription.pending(), subscription.panics()), (0, 0));
    });
}

/// After the drop, no event is delivered and the mapping has been dropped.
#[test]
fn dropping_a_subscription_waits_for_a_delivering_producer() {
    loom::model(|| {
        let core = core();
        let (believed, subscription) = subscribe(&core);
        let other = Arc::clone(&core);
        let changing = thread::spawn(move || set(&other, 1));
        drop(subscription);
        assert_eq!(Arc::strong_count(&believed), 1, "the mapping still exists");
        believed.lock().unwrap().ended = true;
        changing.join().unwrap();
        assert_eq!(core.subscriptions(), 0);
    });
}

#[test]
fn a_stop_that_races_with_a_change_ends_the_subscription_after_the_last_event() {
    loom::model(|| {
        let core = core();
        let (believed, subscription) = subscribe(&core);
        let other = Arc::clone(&core);
        let changing = thread::spawn(move || set(&other, 1));
        core.stop();
        assert!(!subscription.wait_synced(std::time::Duration::MAX), "the initial list never comes");
        drop(subscription.join());
        assert_eq!(Arc::strong_count(&believed), 1, "the mapping still exists");
        let stored = changing.join().unwrap() == Some(EventKind::Created);
        assert_eq!(believed.lock().unwrap().value, stored.then_some(1));
    });
}

/// A mapping pushes into its own watch while another thread pushes into it.
#[test]
fn a_mapping_that_pushes_waits_for_no_other_producer() {
    loom::model(|| {
        let core = core();
        let back = Arc::clone(&core);
        let (values, echo) = recorder(move |value| {
            if value == 1 {
                set(&back, 2);
            }
        });
        let subscription = subscription::start(echo, &core).unwrap();
        let other = Arc::clone(&core);
        let changing = thread::spawn(move || set(&other, 3));
        set(&core, 1);
        changing.join().unwrap();
        assert_eq!((subscription.pending(), subscription.panics()), (0, 0));
        assert_eq!(values.lock().unwrap().last().copied(), core.store.get(&0).map(|value| *value));
        drop(subscription);
    });
}
