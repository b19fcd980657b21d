//! The store behind a watch: reads by key and by index, alone and during changes. Includes the test cases of kube-rs's
//! `runtime/src/reflector/store.rs` (Apache-2.0) that do not need Kubernetes scopes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use homeostat::{Action, BoxError, Context, Event, Subscriber, Watch, WorkQueue, Workers};

use crate::support::{held, serve};

#[derive(Clone, Debug, PartialEq)]
struct Disk {
    vm: &'static str,
    labels: Vec<&'static str>,
}

fn disk(vm: &'static str, labels: &[&'static str]) -> Disk {
    Disk { vm, labels: labels.to_vec() }
}

type Disks = Watch<&'static str, Disk>;

fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort();
    values
}

/// kube-rs, `find_element_in_store`: a value is found by its own key only.
#[test]
fn a_value_is_found_until_it_is_removed() {
    let push = Disks::push();
    let store = push.watch().store();
    assert!(store.is_empty() && store.get("disk-1").is_none());
    push.set("disk-1", disk("vm-1", &[]));
    push.set("disk-2", disk("vm-2", &["fast"]));
    assert_eq!(store.get("disk-1").as_deref(), Some(&disk("vm-1", &[])));
    assert!(store.contains("disk-2") && !store.contains("disk-3") && store.get("vm-1").is_none());
    assert_eq!((store.len(), sorted(store.keys())), (2, vec!["disk-1", "disk-2"]));
    push.remove("disk-1");
    assert_eq!(store.keys(), ["disk-2"]);
    assert_eq!(store.snapshot(), [("disk-2", Arc::new(disk("vm-2", &["fast"])))]);
}

/// kube-rs, `reflector/mod.rs`: a restart drops items that are no longer listed. A reader keeps its old value.
#[test]
fn a_new_listing_drops_items_that_it_lacks() {
    let push = Disks::push();
    let store = push.watch().store();
    push.replace_all([("disk-1", disk("vm-1", &[])), ("disk-2", disk("vm-1", &[]))]);
    let before = store.get("disk-1").unwrap();
    push.replace_all([("disk-2", disk("vm-1", &[]))]);
    assert_eq!((store.keys(), before.vm), (vec!["disk-2"], "vm-1"));
}

#[test]
fn indexes_follow_every_change() {
    let push = Disks::push();
    let store = push.watch().store();
    push.set("disk-1", disk("vm-1", &["fast"]));
    let by_vm = store.index(|_, disk: &Disk| [disk.vm]);
    let by_label = store.index(|_, disk: &Disk| disk.labels.clone());
    assert_eq!((by_vm.keys("vm-1"), by_label.keys("fast")), (vec!["disk-1"], vec!["disk-1"]));
    push.set("disk-2", disk("vm-1", &["fast", "big", "fast"]));
    assert_eq!(sorted(by_vm.keys("vm-1")), ["disk-1", "disk-2"]);
    assert_eq!((sorted(by_label.keys("fast")), by_label.keys("big")), (vec!["disk-1", "disk-2"], vec!["disk-2"]));
    assert_eq!(sorted(by_label.index_keys()), ["big", "fast"]);
    push.set("disk-1", disk("vm-2", &[]));
    assert_eq!(
        (by_vm.keys("vm-1"), by_vm.keys("vm-2"), by_label.keys("fast")),
        (vec!["disk-2"], vec!["disk-1"], vec!["disk-2"])
    );
    assert_eq!(by_vm.get("vm-2"), [("disk-1", Arc::new(disk("vm-2", &[])))]);
    push.remove("disk-2");
    assert!(by_vm.keys("vm-1").is_empty() && by_label.is_empty() && by_label.keys("none").is_empty());
    assert_eq!((by_vm.len(), by_label.len()), (1, 0));
    push.replace_all([]);
    assert!(by_vm.is_empty() && store.is_empty());
}

#[test]
fn an_index_is_asked_once_a_change_and_is_gone_with_its_last_handle() {
    let push = Disks::push();
    let store = push.watch().store();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let index = store.index(move |_, disk: &Disk| {
        counter.fetch_add(1, SeqCst);
        [disk.vm]
    });
    push.set("disk-1", disk("vm-1", &[]));
    push.set("disk-1", disk("vm-1", &[]));
    push.set("disk-1", disk("vm-2", &[]));
    push.remove("disk-1");
    assert_eq!(asked.load(SeqCst), 2);
    let clone = index.clone();
    drop(index);
    push.set("disk-1", disk("vm-3", &[]));
    assert_eq!((asked.load(SeqCst), clone.keys("vm-3")), (3, vec!["disk-1"]));
    drop(clone);
    assert_eq!(Arc::strong_count(&asked), 1);
    push.set("disk-1", disk("vm-4", &[]));
    assert_eq!(asked.load(SeqCst), 3);
    assert!(format!("{store:?}").contains("indexes: 0"));
}

#[test]
fn an_index_function_that_panics_loses_no_change() {
    let (clock, queue) = held();
    let push = Watch::<&str, Disk>::builder().clock(clock.clock()).push();
    push.synced();
    let store = push.watch().store();
    let broken = store.index(|_, disk: &Disk| -> Vec<&'static str> {
        assert!(disk.vm != "vm-2", "it does not like this one");
        vec![disk.vm]
    });
    let sound = store.index(|_, disk: &Disk| [disk.vm]);
    let _subscription = push.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    push.set("disk-1", disk("vm-1", &[]));
    push.set("disk-1", disk("vm-2", &[]));
    assert_eq!(serve(&queue), ["disk-1"]);
    assert_eq!((broken.len(), sound.keys("vm-2")), (0, vec!["disk-1"]));
    push.set("disk-1", disk("vm-3", &[]));
    assert_eq!((broken.keys("vm-3"), sound.keys("vm-3")), (vec!["disk-1"], vec!["disk-1"]));
}

/// Index and items are read at one moment: during changes, a reader finds under an index key only items that belong
/// there.
#[test]
fn indexes_and_items_are_never_seen_apart() {
    let push = Watch::<u32, u32>::push();
    let store = push.watch().store();
    let by_parity = store.index(|_, value: &u32| [value % 2]);
    // These keys stay; the others come and go.
    for key in 0..5 {
        push.set(key, key);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for parity in 0..2 {
            let (by_parity, over) = (&by_parity, &over);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    assert!(by_parity.get(&parity).iter().all(|(_, value)| **value % 2 == parity));
                }
            });
        }
        // Indexes come and go meanwhile. Each is complete once `index` returns.
        let (store, over) = (&store, &over);
        scope.spawn(move || {
            while !over.load(SeqCst) {
                let index = store.index(|key: &u32, _| [key % 3]);
                let found: usize = (0..3).map(|rest| index.keys(&rest).len()).sum();
                assert!(found >= 5, "{found}");
            }
        });
        for round in 0..4_000_u32 {
            push.set(round % 10, round);
            if round % 10 >= 5 {
                push.remove(&(round % 10));
            }
        }
        over.store(true, SeqCst);
    });
}

/// Checks the contract "the store is updated before the key is enqueued". Each value is a version, and a run must find
/// a version at least as new as the newest one that the key was enqueued for.
#[test]
fn the_store_holds_a_change_before_its_key_comes_out_of_the_queue() {
    for round in 0..10 {
        let push = Watch::<u32, u32>::push();
        let store = push.watch().store();
        let by_parity = store.index(|_, value: &u32| [value % 2]);
        let notice = Arc::new(parking_lot::Mutex::new(HashMap::<u32, Option<u32>>::new()));
        let queue = WorkQueue::new();
        let (seen, at_hand) = (Arc::clone(&notice), store.clone());
        let checked = Subscriber::to(&queue, move |event: &Event<u32, u32>| {
            let key = event.key().copied()?;
            let value = event.value().copied().unwrap_or_default();
            let stored = at_hand.get(&key).map(|value| *value);
            match event {
                // After a deletion, the key may have been created again with a later version, never an earlier one.
                Event::Deleted { .. } => assert!(stored.is_none_or(|stored| stored > value)),
                _ => assert!(stored.is_none_or(|stored| stored >= value)),
            }
            seen.lock().insert(key, (!matches!(event, Event::Deleted { .. })).then_some(value));
            Some(key)
        });
        let mut subscription = push.watch().subscribe(checked).unwrap();
        let reconciler = {
            let (store, notice) = (store.clone(), Arc::clone(&notice));
            move |_cx: &Context, key: &u32| -> Result<Action, BoxError> {
                let version = notice.lock().get(key).copied().flatten();
                let found = store.get(key).map(|value| *value);
                if let (Some(version), Some(found)) = (version, found) {
                    assert!(found >= version, "key {key}: told of {version}, found {found}");
                }
                Ok(Action::await_change())
            }
        };
        let workers = Workers::new(reconciler).threads(2).start(&queue).unwrap();
        thread::scope(|scope| {
            for producer in 0..2_u32 {
                let push = &push;
                scope.spawn(move || {
                    for version in 1..1_000_u32 {
                        let key = producer * 4 + version % 4;
                        if (version + round) % 7 == 0 {
                            push.remove(&key);
                        } else {
                            push.set(key, version);
                        }
                    }
                });
            }
        });
        push.stop();
        subscription.join_timeout(Duration::MAX).unwrap();
        assert_eq!(subscription.panics(), 0);
        assert!(queue.drain(Duration::MAX).is_drained());
        assert_eq!(workers.metrics().panics, 0);
        let believed: HashMap<_, _> = notice.lock().iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect();
        let stored: HashMap<_, _> = store.snapshot().into_iter().map(|(key, value)| (key, *value)).collect();
        assert_eq!(believed, stored);
        assert_eq!(by_parity.get(&0).len() + by_parity.get(&1).len(), stored.len());
        workers.shutdown(Duration::MAX).unwrap();
    }
}
