//! Tests of the store on a failing disk: acknowledged writes survive, and memory and file agree.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

mod batches;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use serde_json::{Value, json};

use super::FileClient;
use super::disk::Disk;
use crate::sync::Mutex;
use crate::{Client, ClientError, DeleteOptions, Kind, ObjectKey, ObjectList, Patch, PatchTarget, Query, SharedObject};
use homeostat::ManualClock;
use homeostat::rt::Chain;

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");

/// How the disk fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing can be written.
    Full,
    /// A write stores half of its bytes and fails.
    Torn,
    /// Nothing is synced, but everything is written.
    Sync,
    /// The file cannot grow.
    Grow,
    /// Only pages that were written before can be written: the file is sparse.
    Hole,
    /// The folder cannot be synced.
    Folder,
    /// The driver panics.
    Panic,
}

/// A disk in memory that counts its calls and can fail on request.
#[derive(Debug, Default)]
struct TestDisk {
    bytes: InMemoryBackend,
    state: Mutex<ServerState>,
}

#[derive(Debug, Default)]
struct ServerState {
    /// The number of calls so far that changed the disk.
    calls: usize,
    /// The call at which the disk starts to fail, and how it fails.
    fault: Option<(usize, Fault)>,
    /// The number of failures so far.
    failed: usize,
    /// The names of the calls so far.
    log: Vec<&'static str>,
    /// The number of holes that can still be written. `None` while they are reserved.
    spare: Option<u64>,
    /// The pages that have been written since they became part of the file.
    written: std::collections::BTreeSet<u64>,
    /// The bytes as they were at the last sync: only these survive a crash of the system. `None` if no test needs them.
    synced: Option<Arc<Vec<u8>>>,
}

impl TestDisk {
    /// Makes the disk fail after this many calls.
    fn fail_after(&self, calls: usize, fault: Fault) {
        let mut state = self.state.lock();
        state.fault = Some((state.calls + calls, fault));
    }

    /// Returns all bytes, including those that are not synced.
    fn image(&self) -> io::Result<Vec<u8>> {
        let mut image = vec![0; usize::try_from(self.bytes.len()?).unwrap()];
        self.bytes.read(0, &mut image)?;
        Ok(image)
    }

    fn with(image: &[u8]) -> io::Result<Self> {
        let disk = Self::default();
        disk.bytes.set_len(image.len() as u64)?;
        disk.bytes.write(0, image)?;
        Ok(disk)
    }

    fn repair(&self) {
        self.state.lock().fault = None;
    }

    fn has_failed(&self) -> bool {
        self.state.lock().failed > 0
    }

    fn call(&self, name: &'static str, fails: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut state = self.state.lock();
        state.calls += 1;
        state.log.push(name);
        let fault = state.fault.filter(|(from, fault)| state.calls > *from && fails(*fault))?.1;
        state.failed += 1;
        Some(fault)
    }
}

fn no_space() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl StorageBackend for TestDisk {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let grows = len > self.bytes.len()?;
        match self.call("set_len", |fault| grows && !matches!(fault, Fault::Sync | Fault::Folder | Fault::Hole)) {
            Some(Fault::Panic) => panic!("the driver fails"),
            Some(_) => Err(no_space()),
            None => {
                self.state.lock().written.split_off(&len.div_ceil(4_096));
                self.bytes.set_len(len)
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.call("sync", |fault| matches!(fault, Fault::Sync | Fault::Panic)) {
            Some(Fault::Panic) => panic!("the driver fails"),
            Some(_) => Err(no_space()),
            None => {
                let mut state = self.state.lock();
                if state.synced.is_some() {
                    state.synced = Some(Arc::new(self.image()?));
                }
                Ok(())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let pages = offset / 4_096..(offset + data.len() as u64).div_ceil(4_096);
        let is_hole = !pages.clone().all(|page| self.state.lock().written.contains(&page));
        let spare = self.state.lock().spare.unwrap_or_default();
        let fails = |fault| match fault {
            Fault::Sync | Fault::Grow | Fault::Folder => false,
            Fault::Hole => is_hole && spare < pages.end - pages.start,
            _ => true,
        };
        match self.call("write", fails) {
            Some(Fault::Panic) => panic!("the driver fails"),
            Some(Fault::Torn) => {
                self.bytes.write(offset, &data[..data.len() / 2])?;
                Err(no_space())
            }
            Some(_) => Err(no_space()),
            None => {
                let mut state = self.state.lock();
                if is_hole && state.fault.is_some_and(|(_, fault)| fault == Fault::Hole) {
                    state.spare = Some(spare - (pages.end - pages.start));
                }
                state.written.extend(pages);
                drop(state);
                self.bytes.write(offset, data)
            }
        }
    }
}

impl Disk for Arc<TestDisk> {
    fn bytes(&self) -> &dyn StorageBackend {
        &**self
    }

    fn take_reserve(&self) {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            state.spare = None;
        }
    }

    fn release_reserve(&self) -> bool {
        let mut state = self.state.lock();
        let had_any = state.spare.is_none();
        state.spare.get_or_insert(128);
        had_any
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.call("sync folder", |fault| fault == Fault::Folder).map_or(Ok(()), |_| Err(no_space()))
    }
}

fn open(disk: &Arc<TestDisk>) -> FileClient {
    FileClient::on(FileClient::builder(), Path::new("objects.redb"), Arc::new(Arc::clone(disk))).unwrap()
}

fn thing(name: &str, owner: Option<&Value>) -> Value {
    let owners = owner.map(|owner| {
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
    });
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"namespace": "default", "name": name, "ownerReferences": owners.as_slice()},
    })
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn list(client: &FileClient) -> ObjectList<SharedObject> {
    client.list(&THING, &Query::all()).unwrap()
}

/// Makes writes of different kinds until one fails.
fn write_some(client: &FileClient, bytes: usize) -> Result<(), ClientError> {
    client.patch(&THING, &key("kept"), &Patch::Merge(json!({"spec": {"count": 1}})), PatchTarget::Object)?;
    let owner = client.create(&THING, thing("owner", None))?.to_value();
    client.create(&THING, thing("child", Some(&owner)))?;
    client.delete(&THING, &key("owner"), &DeleteOptions::default())?;
    client.patch(&THING, &key("kept"), &Patch::Merge(json!({"data": "x".repeat(bytes)})), PatchTarget::Object)?;
    client.create(&THING, thing("last", None))?;
    Ok(())
}

/// Lets the disk fail at each of its calls in turn, and runs `check` after each failure. Stops once the writes succeed
/// without a failure.
fn at_each_call(fault: Fault, check: impl Fn(&Arc<TestDisk>, FileClient)) {
    // A megabyte does not fit into a new file, so the file must grow.
    let (step, bytes) = if matches!(fault, Fault::Full | Fault::Grow) { (1, 1_200_000) } else { (3, 10_000) };
    for calls in (0..).step_by(step) {
        let disk = Arc::new(TestDisk::default());
        let client = open(&disk);
        client.create(&THING, thing("kept", None)).unwrap();
        disk.fail_after(calls, fault);
        let written = write_some(&client, bytes);
        assert_eq!(written.is_err(), disk.has_failed(), "{fault:?} at {calls}: {written:?}");
        let Err(error) = written else {
            assert!(calls > 20, "the writes need only {calls} calls");
            return;
        };
        assert!(error.is_transport() && Chain(&error).to_string().contains("objects.redb: "), "{error:?}");
        // While the disk fails, nothing is written but everything can be read.
        let before = list(&client);
        if client.create(&THING, thing("more", None)).is_err() {
            assert_eq!(list(&client), before);
        }
        check(&disk, client);
    }
}

const FAULTS: [Fault; 5] = [Fault::Full, Fault::Torn, Fault::Sync, Fault::Grow, Fault::Panic];

#[test]
fn after_a_failure_writes_work_again_and_the_file_equals_memory() {
    for fault in FAULTS {
        at_each_call(fault, |disk, client| {
            disk.repair();
            client.create(&THING, thing("after", None)).unwrap();
            let memory = list(&client);
            drop(client);
            assert_eq!(list(&open(disk)), memory);
        });
    }
}

#[test]
fn a_client_that_ends_after_a_failure_leaves_the_state_of_its_memory() {
    for fault in FAULTS {
        at_each_call(fault, |disk, client| {
            disk.repair();
            let memory = list(&client);
            drop(client);
            assert_eq!(list(&open(disk)), memory);
        });
    }
}

#[test]
fn a_client_that_ends_on_a_full_disk_leaves_all_acknowledged_writes() {
    for fault in FAULTS {
        at_each_call(fault, |disk, client| {
            let memory = list(&client);
            drop(client);
            disk.repair();
            let file = list(&open(disk));
            // The file may contain the whole failed write.
            let (stored, known) = (file.version.parse::<u64>().unwrap(), memory.version.parse::<u64>().unwrap());
            assert!(file == memory || (known + 1..=known + 2).contains(&stored), "{known} {stored}");
        });
    }
}

#[test]
fn a_file_that_could_not_be_created_can_be_created_later() {
    for fault in FAULTS {
        for calls in 0.. {
            let disk = Arc::new(TestDisk::default());
            disk.fail_after(calls, fault);
            let made = FileClient::on(FileClient::builder(), Path::new("objects.redb"), Arc::new(Arc::clone(&disk)));
            let done = made.is_ok();
            if let Err(error) = made {
                assert!(error.to_string().starts_with("objects.redb: "), "{error}");
            } else {
                drop(made);
            }
            disk.repair();
            let client = open(&disk);
            client.create(&THING, thing("a", None)).unwrap();
            drop(client);
            assert_eq!(list(&open(&disk)).items.len(), 1, "{fault:?} at {calls}");
            if done {
                assert!(calls > 0, "{fault:?}");
                break;
            }
        }
    }
}

#[test]
fn the_folder_of_a_new_file_is_synced_before_the_file_is_used() {
    let disk = Arc::new(TestDisk::default());
    drop(open(&disk));
    let log = std::mem::take(&mut disk.state.lock().log);
    let at = log.iter().position(|call| *call == "sync folder").unwrap();
    assert!(log[..at].contains(&"sync") && log[at..].contains(&"sync"), "between the file and its tables: {log:?}");
    drop(open(&disk));
    assert!(!disk.state.lock().log.contains(&"sync folder"), "once is enough");
}

#[test]
fn a_folder_that_could_not_be_synced_is_synced_when_the_file_is_opened_again() {
    let disk = Arc::new(TestDisk::default());
    disk.fail_after(0, Fault::Folder);
    let made = FileClient::on(FileClient::builder(), Path::new("objects.redb"), Arc::new(Arc::clone(&disk)));
    assert!(made.is_err() && disk.has_failed());
    disk.repair();
    disk.state.lock().log.clear();
    drop(open(&disk));
    assert!(disk.state.lock().log.contains(&"sync folder"));
}

#[test]
fn a_file_that_lost_an_acknowledged_write_is_never_written_again() {
    let disk = Arc::new(TestDisk::default());
    let client = open(&disk);
    client.create(&THING, thing("a", None)).unwrap();
    let older = disk.image().unwrap();
    let lost = client.create(&THING, thing("b", None)).unwrap();
    disk.fail_after(0, Fault::Full);
    client.create(&THING, thing("c", None)).unwrap_err();
    disk.bytes.set_len(older.len() as u64).unwrap();
    disk.bytes.write(0, &older).unwrap();
    disk.repair();
    let version = lost.to_value()["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    for _ in 0..2 {
        let error = Chain(&client.create(&THING, thing("d", None)).unwrap_err()).to_string();
        let says = format!("version {version} was stored, but the file has version {} now", version - 1);
        assert!(error.contains(&says), "{error}");
    }
    assert_eq!(list(&client).items.len(), 2, "the objects in memory can still be read");
}

/// Creates objects and deletes nine of ten.
fn create_and_delete_many(client: &FileClient) {
    for number in 0..300 {
        let mut object = thing(&format!("thing-{number}"), None);
        object["data"] = json!("x".repeat(10_000));
        client.create(&THING, object).unwrap();
    }
    for number in (0..300).filter(|number| number % 10 > 0) {
        client.delete(&THING, &key(&format!("thing-{number}")), &DeleteOptions::default()).unwrap();
    }
}

#[test]
fn a_compaction_makes_the_file_smaller_after_deletions() {
    let disk = Arc::new(TestDisk::default());
    let client = open(&disk);
    create_and_delete_many(&client);
    let (before, memory) = (client.file_size().unwrap(), list(&client));
    client.compact().unwrap();
    let after = client.file_size().unwrap();
    assert!(after * 2 < before, "from {before} to {after} bytes");
    client.create(&THING, thing("after", None)).unwrap();
    client.delete(&THING, &key("after"), &DeleteOptions::default()).unwrap();
    drop(client);
    assert_eq!(list(&open(&disk)).items, memory.items);
}

#[test]
fn a_compaction_that_fails_leaves_all_objects() {
    let full = Arc::new(TestDisk::default());
    create_and_delete_many(&open(&full));
    let image = full.image().unwrap();
    for fault in FAULTS {
        for calls in (0..).step_by(17) {
            let disk = Arc::new(TestDisk::with(&image).unwrap());
            let client = open(&disk);
            let before = list(&client);
            disk.fail_after(calls, fault);
            let compacted = client.compact();
            assert_eq!(compacted.is_err(), disk.has_failed(), "{fault:?} at {calls}: {compacted:?}");
            if let Err(error) = &compacted {
                let says = error.to_string();
                assert!(says.starts_with("objects.redb: ") && says.contains("no object is lost"), "{says}");
            }
            assert_eq!(list(&client), before);
            let crashed = Arc::new(TestDisk::with(&disk.image().unwrap()).unwrap());
            assert_eq!(list(&open(&crashed)), before, "{fault:?} at {calls}");
            disk.repair();
            client.create(&THING, thing("after", None)).unwrap();
            client.compact().unwrap();
            let memory = list(&client);
            drop(client);
            assert_eq!(list(&open(&disk)), memory, "{fault:?} at {calls}");
            if compacted.is_ok() {
                break;
            }
        }
    }
}

/// Creates objects of different sizes, then more until the disk is full. Returns their names.
fn fill(client: &FileClient, disk: &TestDisk, fault: Fault, seed: u64) -> Vec<String> {
    let mut names = Vec::new();
    let mut failures = 0;
    let mut size = 7 + seed;
    loop {
        if names.len() == 100 {
            disk.fail_after(0, fault);
        }
        let name = format!("thing-{:08}", (names.len() as u64 * 7_919 + seed) % 1_000_003);
        let mut object = thing(&name, None);
        size = (size * 48_271) % 30_011;
        object["data"] = json!("x".repeat(usize::try_from(size).unwrap() >> (7 * failures)));
        match client.create(&THING, object) {
            Ok(_) => names.push(name),
            // Smaller ones may still fit.
            Err(error) if failures == 3 => {
                assert!(error.is_transport(), "{error}");
                return names;
            }
            Err(_) => failures += 1,
        }
    }
}

#[test]
fn a_full_store_can_be_emptied_without_room_on_the_disk() {
    for fault in [Fault::Grow, Fault::Hole] {
        for seed in 0..4 {
            let disk = Arc::new(TestDisk::default());
            let client = open(&disk);
            let mut names = fill(&client, &disk, fault, seed);
            if seed % 2 > 0 {
                names.reverse();
            }
            let most = names.len();
            for (deleted, name) in names.iter().enumerate() {
                if let Err(error) = client.delete(&THING, &key(name), &DeleteOptions::default()) {
                    panic!("{fault:?}, seed {seed}: {deleted} of {most} can be deleted: {error}");
                }
            }
            assert!(list(&client).items.is_empty());
            disk.repair();
            client.create(&THING, thing("after", None)).unwrap();
            drop(client);
            assert_eq!(list(&open(&disk)).items.len(), 1);
        }
    }
}

#[test]
fn a_cluster_wide_object_can_be_patched_after_the_file_is_opened_again() {
    const NODE: Kind = Kind::cluster("", "v1", "Node");
    let disk = Arc::new(TestDisk::default());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    open(&disk).create(&NODE, node).unwrap();
    let (client, node_1) = (open(&disk), ObjectKey::cluster("node-1"));
    for (target, field) in [(PatchTarget::Object, "spec"), (PatchTarget::Status, "status")] {
        let patched = client.patch(&NODE, &node_1, &Patch::Merge(json!({field: {"count": 1}})), target).unwrap();
        assert_eq!(patched.to_value()[field]["count"], 1);
    }
}

#[test]
fn expired_events_stay_readable_until_their_deletion_is_stored() {
    const EVENT: Kind = Kind::namespaced("", "v1", "Event");
    let (clock, disk) = (ManualClock::new(), Arc::new(TestDisk::default()));
    let settings = || FileClient::builder().clock(clock.clock());
    let on = |disk: &Arc<TestDisk>| FileClient::on(settings(), Path::new("o"), Arc::new(Arc::clone(disk))).unwrap();
    let client = on(&disk);
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "default", "name": "a"}});
    client.create(&EVENT, event).unwrap();
    clock.advance(Duration::from_secs(3_600));
    disk.fail_after(0, Fault::Full);
    assert!(client.get(&EVENT, &key("a")).is_ok(), "a full disk does not end reading");
    assert!(disk.has_failed() && client.create(&THING, thing("b", None)).is_err());
    let failed = disk.state.lock().failed;
    for _ in 0..3 {
        assert!(client.get(&EVENT, &key("a")).is_ok());
    }
    assert_eq!(disk.state.lock().failed, failed, "reads leave a disk alone that has failed");
    disk.repair();
    client.create(&THING, thing("b", None)).unwrap();
    assert!(client.get(&EVENT, &key("a")).unwrap_err().is_not_found());
    drop(client);
    assert!(on(&disk).list(&EVENT, &Query::all()).unwrap().items.is_empty());
}
