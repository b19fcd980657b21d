//! Several writers at once on a failing disk: a batch is stored as a whole or not at all, and readers see only stored
//! changes.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::until::until;
use crate::{SharedObject, ValueRef, WatchEvent};
use homeostat::base::CancellationToken;

fn count(count: u64) -> Patch {
    Patch::Merge(json!({"spec": {"count": count}}))
}

fn count_of(object: &SharedObject) -> u64 {
    object.pointer("/spec/count").and_then(ValueRef::as_u64).unwrap_or_default()
}

/// Makes five calls in one batch. The first one causes the refusal of the last one, unless the last one misses the
/// batch.
fn write_together(client: &FileClient, bytes: usize, then: impl FnOnce()) -> Vec<Result<(), ClientError>> {
    let big = |name: &str| {
        let mut big = thing(name, None);
        big["data"] = json!("x".repeat(bytes));
        big
    };
    let calls: [Box<dyn Fn() -> Result<(), ClientError> + Sync>; 5] = [
        Box::new(|| client.create(&THING, thing("new", None)).map(drop)),
        Box::new(|| client.patch(&THING, &key("kept"), &count(1), PatchTarget::Object).map(drop)),
        Box::new(|| client.delete(&THING, &key("owner"), &DeleteOptions::default()).map(drop)),
        Box::new(|| client.create(&THING, big("big")).map(drop)),
        Box::new(|| client.create(&THING, thing("new", None)).map(drop)),
    ];
    let gate = client.server.writers.hold();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (call, changes) in calls.iter().zip([1, 2, 4, 5, 5]) {
            running.push(scope.spawn(call));
            until("all writers wait", || client.server.writers.waiting() >= changes);
        }
        then();
        drop(gate);
        running.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn a_batch_of_several_writers_is_stored_or_fails_as_a_whole() {
    for fault in FAULTS {
        let bytes = if matches!(fault, Fault::Full | Fault::Grow) { 1_200_000 } else { 10_000 };
        for calls in 0.. {
            let disk = Arc::new(TestDisk::default());
            let client = open(&disk);
            client.create(&THING, thing("kept", None)).unwrap();
            let owner = client.create(&THING, thing("owner", None)).unwrap().to_value();
            client.create(&THING, thing("child", Some(&owner))).unwrap();
            let before = list(&client);
            let answers = write_together(&client, bytes, || disk.fail_after(calls, fault));
            let [writes @ .., refused] = answers.as_slice() else { panic!() };
            let has_failed = disk.has_failed();
            for write in writes {
                let is_lost = write.as_ref().is_err_and(ClientError::is_transport);
                assert_eq!(is_lost, has_failed, "{fault:?} at {calls}: {write:?}");
            }
            let memory = list(&client);
            if has_failed {
                // A refused call that ran late saw the state after the failure, so it was not refused.
                let late = refused.as_ref().map_or(0, |()| 1);
                assert_eq!(memory.items.len(), before.items.len() + late, "{fault:?} at {calls}");
                assert!(late == 1 || memory == before, "{fault:?} at {calls}");
            } else {
                assert!(refused.as_ref().is_err_and(ClientError::is_already_exists), "{refused:?}");
                assert_eq!(memory.items.iter().map(SharedObject::name).collect::<Vec<_>>(), ["big", "kept", "new"]);
                assert_eq!(memory.version, (before.version.parse::<u64>().unwrap() + 5).to_string());
            }
            disk.repair();
            client.create(&THING, thing("after", None)).unwrap();
            let memory = list(&client);
            drop(client);
            assert_eq!(list(&open(&disk)), memory, "{fault:?} at {calls}");
            if !has_failed {
                // The file grows once.
                let fewest = if fault == Fault::Grow { 1 } else { 4 };
                assert!(calls >= fewest, "{fault:?}: the batch needs only {calls} calls");
                break;
            }
        }
    }
}

/// Random numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

const WRITERS: usize = 4;
const WRITES: u64 = 40;

fn counter(writer: usize) -> String {
    format!("counter-{writer}")
}

/// The counters in a list, by name.
fn counts(list: &ObjectList<SharedObject>) -> BTreeMap<String, u64> {
    list.items.iter().map(|object| (object.name().to_owned(), count_of(object))).collect()
}

/// Sets a counter to rising numbers. Returns the numbers that were acknowledged.
fn write_counts(client: &FileClient, writer: usize, acknowledged: &AtomicU64) -> Vec<u64> {
    let mut stored = Vec::new();
    for number in 1..=WRITES {
        match client.patch(&THING, &key(&counter(writer)), &count(number), PatchTarget::Object) {
            Ok(object) => {
                assert_eq!(count_of(&object), number);
                acknowledged.store(number, Ordering::SeqCst);
                stored.push(number);
            }
            Err(error) => assert!(error.is_transport(), "{error}"),
        }
    }
    stored
}

/// Lets the disk fail at random calls, and repairs it a while after each failure.
fn break_and_repair(disk: &TestDisk, random: &mut Random, is_done: &AtomicBool) {
    while !is_done.load(Ordering::SeqCst) {
        let fault = FAULTS[usize::try_from(random.below(FAULTS.len() as u64)).unwrap()];
        let failed = disk.state.lock().failed;
        disk.fail_after(usize::try_from(random.below(60)).unwrap(), fault);
        let more = usize::try_from(random.below(3)).unwrap();
        until("the disk has failed or the writers are done", || {
            disk.state.lock().failed > failed + more || is_done.load(Ordering::SeqCst)
        });
        disk.repair();
    }
}

/// Four writers, a reader and a watch use a disk with failures. Each acknowledged write is in the synced bytes of the
/// file, no failed write is ever visible, and the watch gets all changes in order without a gap.
#[test]
fn writers_on_a_failing_disk_lose_nothing_and_show_nothing_that_is_lost() {
    let seed = RandomState::new().build_hasher().finish();
    let mut random = Random(seed);
    let disk = Arc::new(TestDisk::default());
    let client = open(&disk);
    for writer in 0..WRITERS {
        client.create(&THING, thing(&counter(writer), None)).unwrap();
    }
    disk.state.lock().synced = Some(Arc::new(disk.image().unwrap()));
    let begin = list(&client).version;
    let stop = CancellationToken::new();
    let watch = client.watch(&THING, &Query::all(), Some(&begin), &stop).unwrap();
    let acknowledged: [AtomicU64; WRITERS] = std::array::from_fn(|_| AtomicU64::new(0));
    let is_done = AtomicBool::new(false);
    // The acknowledged counts, and later the synced bytes.
    let mut crashes: Vec<([u64; WRITERS], Arc<Vec<u8>>)> = Vec::new();
    let (written, events) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let events = watch.map(|event| match event.unwrap() {
                WatchEvent::Modified(object) => object,
                other => panic!("{other:?}"),
            });
            // The last write has the highest count.
            events.take_while(|object| count_of(object) <= WRITES).collect::<Vec<_>>()
        });
        let reading = scope.spawn(|| {
            let mut before = counts(&list(&client));
            while !is_done.load(Ordering::SeqCst) {
                let known = acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst));
                let synced = disk.state.lock().synced.clone().unwrap();
                if crashes.last().is_none_or(|(before, _)| before.iter().sum::<u64>() + 20 <= known.iter().sum()) {
                    crashes.push((known, synced));
                }
                let now = counts(&list(&client));
                for (writer, known) in known.iter().enumerate() {
                    assert!(now[&counter(writer)] >= *known, "seed {seed}: an acknowledged write is visible");
                }
                assert!(before.iter().all(|(name, count)| now[name] >= *count), "seed {seed}: counts rise");
                before = now;
            }
        });
        let writing: Vec<_> = acknowledged
            .iter()
            .enumerate()
            .map(|(writer, acknowledged)| {
                let client = &client;
                scope.spawn(move || write_counts(client, writer, acknowledged))
            })
            .collect();
        let breaking = scope.spawn(|| break_and_repair(&disk, &mut random, &is_done));
        let written: Vec<_> = writing.into_iter().map(|writer| writer.join().unwrap()).collect();
        is_done.store(true, Ordering::SeqCst);
        breaking.join().unwrap();
        reading.join().unwrap();
        disk.repair();
        client.patch(&THING, &key(&counter(0)), &count(WRITES + 1), PatchTarget::Object).unwrap();
        (written, watching.join().unwrap())
    });
    let first: u64 = begin.parse().unwrap();
    for (event, version) in events.iter().zip(first + 1..) {
        assert_eq!(event.resource_version(), version.to_string(), "seed {seed}: in order, without a gap");
    }
    for (writer, written) in written.iter().enumerate() {
        let shown = events.iter().filter(|event| event.name() == counter(writer)).map(count_of);
        assert_eq!(shown.collect::<Vec<_>>(), *written, "seed {seed}: the watch sees exactly the acknowledged writes");
    }
    let memory = list(&client);
    drop(client);
    assert_eq!(list(&open(&disk)), memory, "seed {seed}");
    for (known, synced) in crashes {
        let stored = counts(&list(&open(&Arc::new(TestDisk::with(&synced).unwrap()))));
        for (writer, known) in known.iter().enumerate() {
            assert!(stored[&counter(writer)] >= *known, "seed {seed}: an acknowledged write survives a crash");
        }
    }
}
