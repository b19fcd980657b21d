//! Real threads: subscribers that come at any time race with producers, and each checks its events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use homeostat::watch::{Push, Subscription};
use homeostat::{Event, Running, Subscriber, Watch, WorkQueue};
use parking_lot::Mutex;

const KEYS: u32 = 8;
const ROUNDS: u32 = 400;

/// The values that a subscriber has received. Checks that each event fits the events before it.
#[derive(Default)]
struct Believed {
    values: HashMap<u32, u64>,
    synced: bool,
    faults: Vec<String>,
}

impl Believed {
    fn hear(&mut self, event: &Event<u32, u64>) {
        let (fits, now) = match event {
            Event::Created { key, new } => (!self.values.contains_key(key), Some((*key, Some(**new)))),
            Event::Updated { key, old, new } => (self.values.get(key) == Some(&**old), Some((*key, Some(**new)))),
            Event::Deleted { key, last } => {
                (self.values.get(key).is_none_or(|value| *value == **last), Some((*key, None)))
            }
            Event::Unchanged { key, value } => (self.values.get(key) == Some(&**value), None),
            Event::Synced => (!std::mem::replace(&mut self.synced, true), None),
        };
        if !fits {
            self.faults.push(format!("{event:?} after {:?}", self.values));
        }
        match now {
            Some((key, Some(value))) => drop(self.values.insert(key, value)),
            Some((key, None)) => drop(self.values.remove(&key)),
            None => {}
        }
    }
}

/// Subscribes a checker. Every other one is slow, and every other pair is buffered.
fn believer(push: &Push<u32, u64>, number: usize) -> (Running<Subscription>, Arc<Mutex<Believed>>) {
    let believed = Arc::new(Mutex::new(Believed::default()));
    let hearing = Arc::clone(&believed);
    let subscriber = Subscriber::to(&WorkQueue::<u32>::new(), move |event: &Event<u32, u64>| {
        hearing.lock().hear(event);
        if number.is_multiple_of(2) {
            thread::yield_now();
        }
        None
    });
    let subscriber = if (number / 2).is_multiple_of(2) { subscriber } else { subscriber.buffered() };
    (push.watch().subscribe(subscriber.with_unchanged()).unwrap(), believed)
}

/// Two producers change keys one by one, and one relists and resyncs, while subscribers come. In the end each
/// subscriber has exactly the stored values, and no event ever contradicted an earlier one.
#[test]
fn a_late_subscriber_racing_with_changes_believes_every_last_state_exactly() {
    let push = Watch::<u32, u64>::push();
    let versions = AtomicUsize::new(1);
    let mut subscribers = vec![believer(&push, 1)];
    thread::scope(|scope| {
        let producers: Vec<_> = (0..3_u32)
            .map(|producer| {
                let (push, versions) = (&push, &versions);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let version = versions.fetch_add(1, SeqCst) as u64;
                        let key = (round.wrapping_mul(2_654_435_761) >> 7) % KEYS;
                        match (producer, round % 16) {
                            (2, 0) => drop(push.replace_all((0..KEYS / 2).map(|key| (key, version)))),
                            (2, 8) => push.watch().resync(),
                            (2, _) => thread::yield_now(),
                            (_, 3 | 7 | 11) => drop(push.remove(&key)),
                            _ => drop(push.set(key, version)),
                        }
                    }
                })
            })
            .collect();
        while producers.iter().any(|producer| !producer.is_finished()) && subscribers.len() < 60 {
            subscribers.push(believer(&push, subscribers.len()));
        }
    });
    push.synced();
    push.stop();
    let stored: HashMap<_, _> = push.watch().store().snapshot().into_iter().map(|(key, value)| (key, *value)).collect();
    for (mut subscription, believed) in subscribers {
        subscription.join_timeout(Duration::MAX).unwrap();
        let believed = believed.lock();
        assert!(believed.faults.is_empty(), "{:#?}", believed.faults);
        assert_eq!(believed.values, stored);
        assert!(believed.synced && subscription.panics() == 0);
    }
}

/// Each changed key runs after its last change, through a queue with slow workers.
#[test]
fn the_last_change_of_each_key_is_always_run() {
    let push = Watch::<u32, u64>::push();
    let queue = WorkQueue::new();
    let store = push.watch().store();
    let seen = Arc::new(Mutex::new(HashMap::new()));
    let ran = Arc::clone(&seen);
    let known = store.clone();
    let reconcile = move |_cx: &homeostat::Context, key: &u32| -> Result<_, homeostat::BoxError> {
        ran.lock().insert(*key, known.get(key).map(|value| *value));
        thread::yield_now();
        Ok(homeostat::Action::await_change())
    };
    let workers = homeostat::Workers::new(reconcile).threads(2).start(&queue).unwrap();
    let subscription = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    thread::scope(|scope| {
        for producer in 0..2_u64 {
            let push = &push;
            scope.spawn(move || {
                for round in 0..u64::from(ROUNDS) {
                    let key = u32::try_from(round % 5).unwrap() + KEYS * u32::try_from(producer).unwrap();
                    if (round + producer) % 11 == 0 {
                        push.remove(&key);
                    } else {
                        push.set(key, round);
                    }
                }
            });
        }
    });
    push.stop();
    subscription.join().unwrap();
    assert!(queue.drain(Duration::MAX).is_drained());
    workers.shutdown(Duration::MAX).unwrap();
    for (key, value) in seen.lock().iter() {
        assert_eq!(store.get(key).map(|value| *value), *value, "key {key}");
    }
    assert!(store.keys().iter().all(|key| seen.lock().contains_key(key)));
}
