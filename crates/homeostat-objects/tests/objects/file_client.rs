//! Objects in a file: acknowledged writes survive a killed process, and only one process can open the file.

use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, FileClient, Kind, Object, ObjectKey, ObjectList, Patch, Query,
    WatchEvent,
};
use redb::{MultimapTableHandle, ReadableDatabase, TableHandle};
use serde_json::json;

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
/// The environment variable that passes the file to the child process.
const FILE: &str = "HOMEOSTAT_TEST_FILE";

fn api(path: &Path) -> Api<DynamicObject> {
    Api::of_kind(Arc::new(FileClient::open(path).unwrap()), THING)
}

fn thing(name: &str) -> DynamicObject {
    DynamicObject::new(&THING, "default", name).with("spec", json!({"count": 0}))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A process that is killed at the end of the test.
struct Writer(Child);

impl Writer {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "file_client::the_child_writes", "--nocapture"]).env(FILE, path);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of the child process: writes forever, and prints each acknowledged write. Each round sets a counter,
/// creates an object with a dependent, and deletes the objects of the previous round in one call.
#[test]
fn the_child_writes() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let api = api(&path);
    let known = api.get(&key("counter")).map(|counter| counter.pointer("/spec/count").unwrap().as_u64().unwrap());
    let known = known.unwrap_or_else(|_| {
        api.create(&thing("counter")).unwrap();
        0
    });
    for count in known + 1.. {
        api.patch(&key("counter"), &Patch::Merge(json!({"spec": {"count": count}}))).unwrap();
        println!("count {count}");
        let owner = api.create(&thing(&format!("owner-{count}"))).unwrap();
        let mut child = thing(&format!("child-{count}"));
        child.meta_mut().owner_references.push(owner.controller_reference());
        api.create(&child).unwrap();
        println!("created {count}");
        if api.delete(&key(&format!("owner-{}", count - 1)), &DeleteOptions::default()).is_ok() {
            println!("deleted {}", count - 1);
        }
    }
}

/// Kills the child a hundred times at random moments. Everything that it had acknowledged is stored, and no call is
/// stored only in part.
#[test]
fn a_killed_writer_loses_no_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let (mut version, mut seen) = (0, 0);
    for round in 0..100_usize {
        let mut writer = Writer::start(&path);
        let lines = BufReader::new(writer.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Read a growing number of lines, then kill the child.
        let mut notice = lines.filter(|line| line.split(' ').count() == 2 && !line.contains("..."));
        let reported: Vec<_> = notice.by_ref().take(3 + round % 7).collect();
        writer.kill();
        let rest: Vec<_> = notice.collect();
        let report = |word: &str| {
            let all =
                reported.iter().chain(&rest).filter_map(|line| line.strip_prefix(word)?.trim().parse::<u64>().ok());
            all.max().unwrap_or(0)
        };
        let api = api(&path);
        let list = api.list(&Query::all()).unwrap();
        let count = api.get(&key("counter")).unwrap().pointer("/spec/count").unwrap().as_u64().unwrap();
        assert!(count >= report("count") && count >= seen, "{count} of {}", report("count"));
        assert!(count <= report("count").max(seen) + 1, "no more than one write can have been under way");
        let is_there = |name: String| list.items.iter().any(|object| object.meta().name == name);
        let (created, deleted) = (report("created"), report("deleted"));
        let next = format!("owner-{}", created + 1);
        assert!(created == 0 || is_there(format!("child-{created}")) || is_there(next));
        assert!(deleted == 0 || !is_there(format!("owner-{deleted}")));
        for object in &list.items {
            if let Some(owner) = object.meta().owner_references.first() {
                assert!(is_there(owner.name.clone()), "an object and its dependents are deleted together");
            }
        }
        let now: u64 = list.version.parse().unwrap();
        assert!(now > version, "versions rise over restarts");
        (version, seen) = (now, count);
    }
    assert!(seen >= 100, "{seen}");
}

#[test]
fn a_reopened_file_has_the_same_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let before = {
        let api = api(&path);
        let mut held = thing("held");
        held.meta_mut().finalizers.push("example.com/x".into());
        let owner = api.create(&held).unwrap();
        let mut child = thing("child");
        child.meta_mut().owner_references.push(owner.controller_reference());
        api.create(&child).unwrap();
        api.create(&thing("gone")).unwrap();
        api.delete(&key("gone"), &DeleteOptions::default()).unwrap();
        api.delete(&key("held"), &DeleteOptions::default()).unwrap();
        api.client()
            .create(
                &Kind::cluster("", "v1", "Node"),
                json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"},
                }),
            )
            .unwrap();
        api.list(&Query::all()).unwrap()
    };
    let api = api(&path);
    assert_eq!(api.list(&Query::all()).unwrap(), before);
    let node = api.client().get(&Kind::cluster("", "v1", "Node"), &ObjectKey::cluster("node-1")).unwrap();
    assert_eq!(node.to_value()["metadata"]["resourceVersion"], before.version);

    // A watch can resume from the last version but from no earlier one, because the history is not stored.
    let stop = CancellationToken::new();
    let older = (before.version.parse::<u64>().unwrap() - 1).to_string();
    assert!(api.watch(&Query::all(), Some(&older), &stop).err().unwrap().is_gone());
    let mut watch = api.watch(&Query::all(), Some(&before.version), &stop).unwrap();

    // Finalizers and owners still work.
    let mut held = api.get(&key("held")).unwrap();
    assert!(held.meta().is_deleting());
    held.meta_mut().finalizers.clear();
    api.update(&held).unwrap();
    assert_eq!(api.list(&Query::all()).unwrap().items, []);
    let names = watch.by_ref().take(2).map(|event| match event.unwrap() {
        WatchEvent::Deleted(object) => object.meta().name.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["held", "child"]);
}

#[test]
fn a_file_can_be_open_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let mut writer = Writer::start(&path);
    let mut lines = BufReader::new(writer.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("created"));
    let error = FileClient::open(&path).unwrap_err();
    assert!(error.is_open_elsewhere());
    assert!(error.to_string().contains("objects.redb: already open"), "{error}");
    writer.kill();

    let first = FileClient::open(&path).unwrap();
    assert!(FileClient::open(&path).unwrap_err().is_open_elsewhere(), "nor twice in one process");
    let handle = first.clone();
    drop(first);
    assert!(FileClient::open(&path).is_err());
    drop(handle);
    FileClient::open(&path).unwrap();
}

#[test]
fn an_error_names_the_file_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be mistaken for one".repeat(100)).unwrap();
    for path in [text.as_path(), folder.path(), &folder.path().join("missing/objects.redb")] {
        let error = FileClient::open(path).unwrap_err();
        assert!(!error.is_open_elsewhere());
        assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&text).unwrap().len(), 5_400, "files that are not databases are left alone");
}

#[test]
fn refused_writes_are_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    {
        let api = api(&path);
        api.create(&thing("a")).unwrap();
        assert!(api.create(&thing("a")).unwrap_err().is_already_exists());
        assert!(api.create(&thing("A")).unwrap_err().is_invalid());
    }
    assert_eq!(api(&path).list(&Query::all()).unwrap().version, "2");
}

/// Random numbers from a seed (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

#[test]
fn numbers_are_the_same_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let mut numbers = Numbers(27);
    let mut floats: Vec<f64> = std::iter::repeat_with(|| f64::from_bits(numbers.next()))
        .filter(|float| float.is_finite())
        .take(5_000)
        .collect();
    floats.extend([0.1, -0.0, 1e20, 1e300 / 3.0, f64::MIN_POSITIVE / 4.0, f64::MAX, f64::from_bits(1), 0.1 + 0.2]);
    let integers = json!([i64::MIN, i64::MAX, u64::MAX, 0, -1, 9_007_199_254_740_993_u64]);
    let beyond: serde_json::Value = serde_json::from_str("[123456789012345678901234567890, -1e25]").unwrap();
    let spec = json!({"floats": floats, "integers": integers, "beyond": beyond});
    let created = api(&path).create(&thing("numbers").with("spec", spec.clone())).unwrap();
    let reopened = api(&path).get(&key("numbers")).unwrap();
    assert_eq!(reopened.pointer("/spec").unwrap(), spec);
    assert_eq!(reopened, created);
    let bits = |object: &DynamicObject| {
        let floats = object.pointer("/spec/floats").unwrap().items();
        floats.map(|float| float.as_f64().unwrap().to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(&reopened), bits(&created), "zeros keep their sign");
}

/// Writes a file with objects of all sizes. Returns its bytes and the final list of objects.
fn used_file(path: &Path) -> (Vec<u8>, ObjectList<DynamicObject>) {
    for round in 0..3 {
        let api = api(path);
        for number in 0..30 {
            let size = [10, 100, 3_000, 9_000][number % 4];
            let made = thing(&format!("thing-{round}-{number}")).with("data", json!("x".repeat(size)));
            api.create(&made).unwrap();
            if number % 3 == 0 {
                api.delete(&key(&format!("thing-{round}-{number}")), &DeleteOptions::default()).unwrap();
            }
        }
    }
    let list = api(path).list(&Query::all()).unwrap();
    (std::fs::read(path).unwrap(), list)
}

/// Opens damaged bytes, and returns whether they hold the written objects. Otherwise an error must name the file.
fn is_as_written(path: &Path, bytes: &[u8], written: &ObjectList<DynamicObject>, what: &str) -> bool {
    std::fs::write(path, bytes).unwrap();
    let opened = catch_unwind(|| FileClient::open(path)).unwrap_or_else(|_| panic!("{what}: open panicked"));
    let client = match opened {
        Ok(client) => client,
        Err(error) => {
            assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{what}: {error}");
            return false;
        }
    };
    let api: Api<DynamicObject> = Api::of_kind(Arc::new(client), THING);
    assert!(api.list(&Query::all()).unwrap() == *written, "{what}: it was opened with other contents");
    let used = catch_unwind(AssertUnwindSafe(|| {
        if let Err(error) = api.create(&thing("another")) {
            assert!(error.to_string().contains(&path.display().to_string()), "{what}: {error}");
        }
        drop(api);
    }));
    assert!(used.is_ok(), "{what}: a write panicked");
    true
}

#[test]
fn a_damaged_file_is_read_correctly_or_an_error_names_it() {
    const PAGE: usize = 4_096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let (bytes, written) = used_file(&path);
    let pages: Vec<usize> = (0..bytes.len() / PAGE).filter(|page| bytes[page * PAGE..][..PAGE] != [0; PAGE]).collect();
    let mut numbers = Numbers(25);
    let (mut damaged, mut noticed) = (0, 0);
    let mut check = |bytes: &[u8], what: &str| {
        damaged += 1;
        noticed += usize::from(!is_as_written(&path, bytes, &written, what));
    };
    let flip = |bit: usize| {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    // Flip every eleventh bit of the header, which locates everything else.
    for bit in (0..320 * 8).step_by(11) {
        check(&flip(bit), &format!("bit {bit} of the header"));
    }
    for _ in 0..150 {
        let bit = pages[numbers.below(pages.len())] * PAGE * 8 + numbers.below(PAGE * 8);
        check(&flip(bit), &format!("bit {bit}"));
    }
    for page in &pages {
        let mut zeroed = bytes.clone();
        zeroed[page * PAGE..][..PAGE].fill(0);
        check(&zeroed, &format!("page {page} zeroed"));
        let mut torn = bytes.clone();
        let other = pages[numbers.below(pages.len())];
        torn[page * PAGE..][..PAGE].copy_from_slice(&bytes[other * PAGE..][..PAGE]);
        check(&torn, &format!("page {page} replaced by page {other}"));
    }
    for _ in 0..30 {
        let len = numbers.below(bytes.len()).max(1);
        check(&bytes[..len], &format!("cut to {len} bytes"));
    }
    assert!(noticed * 3 > damaged, "most damage is in pages that are in use: {noticed} of {damaged}");
}

/// Returns the first megabytes of files that begin with zeros like an unfinished database, but are not databases.
fn foreign_files() -> Vec<(&'static str, Vec<u8>)> {
    let marked = |length: usize, marks: &[(usize, &[u8])]| {
        let mut bytes = vec![0; length];
        for (at, mark) in marks {
            bytes[*at..*at + mark.len()].copy_from_slice(mark);
        }
        bytes
    };
    // The length of a new database.
    let length = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        drop(FileClient::open(&path).unwrap());
        usize::try_from(path.metadata().unwrap().len()).unwrap()
    };
    let mut files = Vec::new();
    for length in [4_096, 1 << 20, length] {
        files.push(("a fresh swap area", marked(length, &[(1_024, &[1]), (4_086, b"SWAPSPACE2")])));
        files.push(("an image with a partition table", marked(length, &[(446, &[0x80, 0, 2]), (510, &[0x55, 0xAA])])));
        files.push(("an image with a volume label", marked(length, &[(512, b"LABELONE")])));
        files.push(("a byte in the header", marked(length, &[(9, &[0xFF])])));
        files.push(("a file that only ends in a text", marked(length, &[(length - 1, b"x")])));
    }
    files.push(("an empty disk", vec![0; 1 << 20]));
    files.push(("an empty page", vec![0; 4_096]));
    files.push(("a few zeros", vec![0; 12]));
    files.push(("a text", b"colours: red".to_vec()));
    files
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    for (what, bytes) in foreign_files() {
        std::fs::write(&path, &bytes).unwrap();
        let error = FileClient::open(&path).err().unwrap_or_else(|| panic!("{what} was opened")).to_string();
        assert!(error.starts_with(&format!("{}: ", path.display())), "{what}: {error}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{what} was written");
    }
}

#[cfg(unix)]
#[test]
fn only_a_regular_file_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let error = FileClient::open("/dev/null").unwrap_err().to_string();
    assert_eq!(error, "/dev/null: it is not a regular file");
    assert!(FileClient::open(folder.path()).is_err());
}

#[cfg(unix)]
#[test]
fn a_new_file_is_for_its_owner_only_and_an_old_one_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
    drop(FileClient::open(&path).unwrap());
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    drop(FileClient::open(&path).unwrap());
    assert_eq!(mode(), 0o640);
}

#[test]
fn a_database_of_another_program_is_refused_and_unchanged() {
    const OTHERS: redb::TableDefinition<u64, &str> = redb::TableDefinition::new("users");
    const SAME: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("numbers");
    const MANY: redb::MultimapTableDefinition<u64, u64> = redb::MultimapTableDefinition::new("visits");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.redb");
    let tables = |database: &redb::Database| {
        let reading = database.begin_read().unwrap();
        let mut names: Vec<_> = reading.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
        names.extend(reading.list_multimap_tables().unwrap().map(|table| table.name().to_owned()));
        names.sort();
        names
    };
    {
        let database = redb::Database::create(&path).unwrap();
        let writing = database.begin_write().unwrap();
        writing.open_table(OTHERS).unwrap().insert(1, "ann").unwrap();
        writing.open_table(SAME).unwrap().insert("one", 1).unwrap();
        writing.open_multimap_table(MANY).unwrap().insert(1, 2).unwrap();
        writing.commit().unwrap();
    }
    let error = FileClient::open(&path).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}: the file is a redb database of another program", path.display())),
        "{error}"
    );
    assert!(error.contains("users") && error.contains("visits"), "{error}");
    let database = redb::Database::open(&path).unwrap();
    assert_eq!(tables(&database), ["numbers", "users", "visits"]);
    drop(database);

    // A database without tables belongs to no program.
    let empty = folder.path().join("empty.redb");
    drop(redb::Database::create(&empty).unwrap());
    FileClient::open(&empty).unwrap();
}

/// Creates objects of this size until the disk is full. Returns their number.
#[cfg(target_os = "linux")]
fn fill(client: &FileClient, names: &mut Vec<String>, size: usize) {
    loop {
        let name = format!("thing-{}", names.len());
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"namespace": "default", "name": name}, "data": "x".repeat(size),
        });
        if client.create(&THING, object).is_err() {
            return;
        }
        names.push(name);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_on_a_full_volume_can_be_emptied() {
    crate::mounts::with_mounts("file_client::a_store_on_a_full_volume_can_be_emptied", |folder| {
        for (megabytes, sizes) in [(3, [9_000, 100]), (4, [100_000, 5_000]), (5, [1_500, 10]), (6, [30_000, 4_000])] {
            let volume = folder.join(megabytes.to_string());
            std::fs::create_dir(&volume).unwrap();
            crate::mounts::mount_memory(&volume, megabytes << 20);
            let client = FileClient::open(volume.join("objects.redb")).unwrap();
            let mut names = Vec::new();
            for size in sizes {
                fill(&client, &mut names, size);
            }
            // Another program takes the remaining space.
            let rest = std::fs::write(volume.join("rest"), vec![0; 8 << 20]);
            assert!(rest.is_err() && names.len() > 10, "{} objects", names.len());
            for (deleted, name) in names.iter().enumerate() {
                let deletion = client.delete(&THING, &key(name), &DeleteOptions::default());
                assert!(deletion.is_ok(), "{megabytes} MB: {deleted} of {} deleted: {deletion:?}", names.len());
            }
            std::fs::remove_file(volume.join("rest")).unwrap();
            client.create(&THING, serde_json::to_value(thing("after")).unwrap()).unwrap();
        }
    });
}
