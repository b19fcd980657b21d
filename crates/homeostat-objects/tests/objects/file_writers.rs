//! A file of objects with several writers: a killed process, and a compaction while the file is in use.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use homeostat::CancellationToken;
use homeostat_objects::{
    Client, DeleteOptions, FileClient, Kind, ObjectKey, Patch, PatchTarget, Query, SharedObject, ValueRef, WatchEvent,
};
use serde_json::json;

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
/// The environment variable that passes the file to the child process.
const FILE: &str = "HOMEOSTAT_TEST_FILE_OF_WRITERS";
const WRITERS: usize = 6;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn counter(writer: usize) -> ObjectKey {
    key(&format!("counter-{writer}"))
}

fn create(client: &FileClient, name: &str) -> SharedObject {
    let meta = json!({"namespace": "default", "name": name});
    client.create(&THING, json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta})).unwrap()
}

fn set(client: &FileClient, writer: usize, count: u64) -> SharedObject {
    let patch = Patch::Merge(json!({"spec": {"count": count}}));
    client.patch(&THING, &counter(writer), &patch, PatchTarget::Object).unwrap()
}

fn count_of(object: &SharedObject) -> u64 {
    object.pointer("/spec/count").and_then(ValueRef::as_u64).unwrap_or_default()
}

/// A process that is killed at the end of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(path: &Path) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "file_writers::the_child_writes_from_several_threads", "--nocapture"]).env(FILE, path);
    Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// The body of the child process: each thread raises its own counter forever, and prints each acknowledged write.
#[test]
fn the_child_writes_from_several_threads() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let client = FileClient::open(path).unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let client = &client;
            scope.spawn(move || {
                let known = client.get(&THING, &counter(writer)).map(|object| count_of(&object));
                let known = known.unwrap_or_else(|_| count_of(&create(client, &format!("counter-{writer}"))));
                for count in known + 1.. {
                    set(client, writer, count);
                    writeln!(std::io::stdout(), "writer {writer} {count}").unwrap();
                }
            });
        }
    });
}

#[test]
fn a_killed_process_loses_no_acknowledged_write_of_any_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let (mut counts, mut version) = ([0; WRITERS], 0);
    for round in 0..50_usize {
        let mut child = start(&path);
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut told = lines.filter_map(|line| {
            let mut words = line.strip_prefix("writer ")?.split(' ');
            Some((words.next()?.parse::<usize>().ok()?, words.next()?.parse::<u64>().ok()?))
        });
        // Read a growing number of lines, then kill the child, then read the lines that it had printed before.
        let mut heard: Vec<_> = told.by_ref().take(5 + 3 * (round % 11)).collect();
        child.0.kill().unwrap();
        heard.extend(told);
        drop(child);
        let client = FileClient::open(&path).unwrap();
        for (writer, known) in counts.iter_mut().enumerate() {
            let said = heard.iter().filter(|(said, _)| *said == writer).map(|(_, count)| *count).max();
            let said = said.unwrap_or(*known);
            let found = client.get(&THING, &counter(writer)).map_or(0, |object| count_of(&object));
            assert!((said..=said + 1).contains(&found), "writer {writer}: {found} in the file, {said} acknowledged");
            *known = found;
        }
        let now: u64 = client.list(&THING, &Query::all()).unwrap().version.parse().unwrap();
        assert!(now > version, "versions rise over restarts");
        version = now;
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_file_can_be_compacted_while_it_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let client = FileClient::open(&path).unwrap();
    for writer in 0..WRITERS {
        create(&client, &format!("counter-{writer}"));
    }
    let begin = client.list(&THING, &Query::all()).unwrap().version;
    for number in 0..200 {
        let name = format!("big-{number}");
        create(&client, &name);
        let big = Patch::Merge(json!({"data": "x".repeat(20_000)}));
        client.patch(&THING, &key(&name), &big, PatchTarget::Object).unwrap();
    }
    for number in (0..200).filter(|number| number % 10 > 0) {
        client.delete(&THING, &key(&format!("big-{number}")), &DeleteOptions::default()).unwrap();
    }
    let before = client.file_size().unwrap();
    assert_eq!(before, std::fs::metadata(&path).unwrap().len());
    let stop = CancellationToken::new();
    let watch = client.watch(&THING, &Query::all(), Some(&begin), &stop).unwrap();
    let is_done = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let writing: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (client, is_done) = (&client, &is_done);
                scope.spawn(move || {
                    let mut count = 0;
                    // Fewer changes than the client remembers: the watch is read afterwards.
                    while count < 1_000 && !is_done.load(Ordering::SeqCst) {
                        count += 1;
                        let written = set(client, writer, count);
                        assert_eq!(client.get(&THING, &counter(writer)).unwrap(), written);
                    }
                    count
                })
            })
            .collect();
        for _ in 0..3 {
            client.compact().unwrap();
        }
        is_done.store(true, Ordering::SeqCst);
        writing.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    client.compact().unwrap();
    assert!(client.file_size().unwrap() * 2 < before, "from {before} to {} bytes", client.file_size().unwrap());
    let list = client.list(&THING, &Query::all()).unwrap();
    let version: u64 = list.version.parse().unwrap();
    let changes = usize::try_from(version - begin.parse::<u64>().unwrap()).unwrap();
    let versions = watch.take(changes).map(|event| match event.unwrap() {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            object.resource_version().parse::<u64>().unwrap()
        }
        other @ WatchEvent::Bookmark(_) => panic!("{other:?}"),
    });
    assert!(versions.is_sorted(), "the watch continues in order");
    drop(client);
    let client = FileClient::open(&path).unwrap();
    assert_eq!(client.list(&THING, &Query::all()).unwrap(), list);
    for (writer, count) in counts.into_iter().enumerate() {
        assert_eq!(count_of(&client.get(&THING, &counter(writer)).unwrap()), count);
    }
}

#[cfg(feature = "metrics")]
#[test]
fn the_size_of_the_file_is_exported() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let folder = tempfile::tempdir().unwrap();
    let client = FileClient::open(folder.path().join("objects.redb")).unwrap();
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || client.export_metrics());
    let [(key, _, _, value)] = &recorder.snapshotter().snapshot().into_vec()[..] else { panic!("one gauge") };
    assert_eq!(key.key().name(), "homeostat_file_client_bytes");
    assert!(key.key().labels().any(|label| label.key() == "path" && label.value().ends_with("objects.redb")));
    let DebugValue::Gauge(bytes) = value else { panic!("{value:?}") };
    assert_eq!(bytes.to_string(), client.file_size().unwrap().to_string());
}
