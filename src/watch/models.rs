//! A watch and one subscriber in every interleaving of two threads. One key: with more, the order of a listing is chance.

use std::sync::Arc;

use loom::thread;

use super::event::Event;
use super::hub::WatchCore;
use super::line::{Line, Take};
use super::push::PushOutcome;
use crate::base::clock::ManualClock;
use crate::base::time::Nanos;

type Subject = WatchCore<u8, u32>;

fn hub() -> Arc<Subject> {
    WatchCore::new("model".to_owned(), ManualClock::new().clock(), Box::new(u32::eq))
}

fn set(hub: &Subject, value: u32) -> PushOutcome {
    hub.set(0, Arc::new(value))
}

/// What a subscriber believes, from what it is told: each event must fit what it believed before, and the store must hold what
/// it is told of or something later.
#[derive(Default)]
struct Believer {
    value: Option<u32>,
    synced: usize,
}

impl Believer {
    fn hear_all(&mut self, line: &Line<u8, u32>, hub: &Subject) -> bool {
        loop {
            let told = match line.take() {
                Take::Tell(told) => told,
                Take::Wait => return false,
                Take::Finish => return true,
            };
            match &told.event {
                Event::Created { new, .. } => {
                    assert_eq!(self.value.replace(**new), None);
                    assert!(hub.store.get(&0).is_none_or(|stored| *stored >= **new), "told before it was stored");
                }
                Event::Updated { old, new, .. } => {
                    assert_eq!(self.value.replace(**new), Some(**old));
                    assert!(hub.store.get(&0).is_none_or(|stored| *stored >= **new), "told before it was stored");
                }
                Event::Deleted { last, .. } => assert!(self.value.take().is_none_or(|value| value == **last)),
                Event::Unchanged { value, .. } => assert_eq!(self.value, Some(**value)),
                Event::Synced => self.synced += 1,
            }
        }
    }
}

#[test]
fn a_late_subscriber_that_races_with_changes_believes_what_is_stored() {
    loom::model(|| {
        let hub = hub();
        set(&hub, 1);
        let producer = Arc::clone(&hub);
        let changing = thread::spawn(move || {
            set(&producer, 2);
            producer.synced();
        });
        let (line, _) = hub.attach(false).unwrap();
        let mut believer = Believer::default();
        believer.hear_all(&line, &hub);
        changing.join().unwrap();
        believer.hear_all(&line, &hub);
        assert_eq!(believer.value, Some(2));
        assert_eq!(believer.synced, 1);
    });
}

#[test]
fn a_deletion_that_races_with_a_late_subscriber_is_told_or_was_never_believed() {
    loom::model(|| {
        let hub = hub();
        set(&hub, 1);
        let producer = Arc::clone(&hub);
        let changing = thread::spawn(move || producer.remove(&0, None));
        let (line, _) = hub.attach(false).unwrap();
        let mut believer = Believer::default();
        believer.hear_all(&line, &hub);
        assert_eq!(changing.join().unwrap(), PushOutcome::Deleted);
        believer.hear_all(&line, &hub);
        assert_eq!(believer.value, None);
    });
}

/// What it is told of again is what it believes, or it has been told better.
#[test]
fn a_resync_of_one_subscriber_that_races_with_changes_tells_it_nothing_that_is_over() {
    loom::model(|| {
        let hub = hub();
        set(&hub, 1);
        let (line, _) = hub.attach(false).unwrap();
        let (other, _) = hub.attach(false).unwrap();
        let mut believer = Believer::default();
        believer.hear_all(&line, &hub);
        let producer = Arc::clone(&hub);
        let changing = thread::spawn(move || {
            set(&producer, 2);
            producer.remove(&0, None)
        });
        hub.resync(|told| Arc::ptr_eq(told, &line));
        believer.hear_all(&line, &hub);
        changing.join().unwrap();
        believer.hear_all(&line, &hub);
        assert_eq!(believer.value, None);
        assert_eq!(other.len(), 1);
    });
}

/// Two producers of one key: each change is told, in the order in which it was stored.
#[test]
fn two_producers_take_turns() {
    loom::model(|| {
        let hub = hub();
        let (line, _) = hub.attach(false).unwrap();
        let other = Arc::clone(&hub);
        let changing = thread::spawn(move || set(&other, 1));
        set(&hub, 2);
        changing.join().unwrap();
        let mut told = Vec::new();
        while let Take::Tell(event) = line.take() {
            told.push(event.event.value().copied());
        }
        assert_eq!(told.last().copied().flatten(), hub.store.get(&0).map(|value| *value));
    });
}

/// A subscriber's thread that finds nothing goes to sleep; whoever adds to its empty line wakes it.
#[test]
fn a_change_is_seen_by_a_subscriber_on_its_way_to_sleep_or_wakes_it() {
    loom::model(|| {
        let hub = hub();
        let (line, _) = hub.attach(false).unwrap();
        let producer = Arc::clone(&hub);
        let changing = thread::spawn(move || set(&producer, 1));
        let mut believer = Believer::default();
        while believer.value.is_none() {
            believer.hear_all(&line, &hub);
            if believer.value.is_none() {
                // For ever, if nobody sets it.
                line.signal.wait_until(Nanos::NEVER);
            }
        }
        changing.join().unwrap();
    });
}

#[test]
fn a_stop_wakes_a_subscriber_that_sleeps_and_lets_it_hear_the_rest() {
    loom::model(|| {
        let hub = hub();
        let (line, _) = hub.attach(false).unwrap();
        let producer = Arc::clone(&hub);
        let changing = thread::spawn(move || {
            set(&producer, 1);
            producer.stop();
        });
        let mut believer = Believer::default();
        while !believer.hear_all(&line, &hub) {
            line.signal.wait_until(Nanos::NEVER);
        }
        assert_eq!(believer.value, Some(1));
        changing.join().unwrap();
    });
}

#[test]
fn a_subscription_to_a_watch_that_stops_is_refused_or_ends() {
    loom::model(|| {
        let hub = hub();
        set(&hub, 1);
        let stopping = Arc::clone(&hub);
        let stop = thread::spawn(move || stopping.stop());
        let attached = hub.attach(false);
        stop.join().unwrap();
        match attached {
            Ok((line, _)) => {
                let mut believer = Believer::default();
                assert!(believer.hear_all(&line, &hub));
                assert_eq!(believer.value, Some(1));
                assert!(!line.synced.wait_until(Nanos::ZERO));
            }
            Err(error) => assert!(error.is_stopped()),
        }
        assert_eq!(set(&hub, 2), PushOutcome::Closed);
    });
}

#[test]
fn who_waits_for_the_initial_list_is_woken_by_its_end() {
    loom::model(|| {
        let hub = hub();
        let producer = Arc::clone(&hub);
        let syncing = thread::spawn(move || {
            producer.replace_all(vec![(0, Arc::new(1))]);
        });
        assert!(hub.store.wait_synced(std::time::Duration::MAX));
        assert_eq!(hub.store.get(&0).as_deref(), Some(&1));
        syncing.join().unwrap();
    });
}
