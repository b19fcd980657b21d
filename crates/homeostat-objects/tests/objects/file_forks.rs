//! Copies of a client in a process that was forked without `exec`: they leave the file and its lock alone.

use std::path::Path;
use std::sync::Arc;

use homeostat::{Context, Elector};
use homeostat_objects::{Client, FileClient, Kind, LeaseElector, ObjectKey, Query};
use serde_json::{Value, json};

use crate::forks::{ForkedProcess, ensure, in_a_fork};
use homeostat::rt::Chain;

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");

fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": name}})
}

fn names(client: &FileClient) -> Vec<String> {
    let list = client.list(&THING, &Query::all()).unwrap();
    list.items.iter().map(|item| item.to_value()["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn is_open(path: &Path) -> bool {
    FileClient::open(path).is_err_and(|error| error.is_open_elsewhere())
}

#[test]
fn a_forked_process_that_drops_its_copy_neither_unlocks_nor_writes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let client = FileClient::open(&path).unwrap();
    client.create(&THING, thing("a")).unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut client = Some(client);
    in_a_fork(|| {
        drop(client.take());
        ensure(is_open(&path), "the lock is released")
    });
    assert!(is_open(&path));
    assert!(std::fs::read(&path).unwrap() == before, "the forked process has written");
    let client = client.unwrap();
    client.create(&THING, thing("b")).unwrap();
    drop(client);
    assert_eq!(names(&FileClient::open(&path).unwrap()), ["a", "b"]);
}

#[test]
fn a_forked_process_reads_but_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let client = FileClient::open(&path).unwrap();
    client.create(&THING, thing("a")).unwrap();
    let owner = std::process::id();
    in_a_fork(|| {
        ensure(names(&client) == ["a"], "the copy reads something else")?;
        let key = ObjectKey::new("default", "a");
        let deleted = client.delete(&THING, &key, &homeostat_objects::DeleteOptions::default());
        for refused in [client.create(&THING, thing("b")).err(), deleted.err()] {
            let error = refused.ok_or("the copy writes")?;
            let text = Chain(&error).to_string();
            let says = format!("objects.redb: process {owner} owns it, and process {}", std::process::id());
            ensure(error.is_transport() && text.contains(&says), text)?;
        }
        let error = client.compact().err().ok_or("the copy compacts the file")?;
        ensure(error.to_string().contains("was forked from"), error.to_string())?;
        ensure(names(&client) == ["a"], "a refused write is visible")
    });
    client.create(&THING, thing("c")).unwrap();
    assert_eq!(names(&client), ["a", "c"]);
}

#[test]
fn a_client_that_closes_the_file_unlocks_it_while_a_fork_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let client = FileClient::open(&path).unwrap();
    let fork = ForkedProcess::start(|wait| {
        wait();
        Ok(())
    });
    drop(client);
    assert!(FileClient::open(&path).is_ok());
    fork.end();
}

/// A daemon does this if it goes into the background too late.
#[test]
fn a_forked_process_can_open_the_file_after_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let mut client = Some(FileClient::open(&path).unwrap());
    client.as_ref().unwrap().create(&THING, thing("a")).unwrap();
    let fork = ForkedProcess::start(|wait| {
        drop(client.take());
        wait();
        let client = FileClient::open(&path).map_err(|error| error.to_string())?;
        client.create(&THING, thing("b")).map_err(|error| error.to_string())?;
        Ok(())
    });
    drop(client);
    fork.end();
    assert_eq!(names(&FileClient::open(&path).unwrap()), ["a", "b"]);
}

/// A thread of the parent is writing when the process is forked, so the copy finds its locks held.
#[test]
fn a_copy_made_during_a_write_can_be_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let client = FileClient::open(&path).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (writer, ended) = (client.clone(), &ended);
        let writing = scope.spawn(move || {
            let mut count = 0;
            while !ended.load(std::sync::atomic::Ordering::SeqCst) {
                writer.create(&THING, thing(&format!("thing-{count}"))).unwrap();
                count += 1;
            }
            count
        });
        for _ in 0..20 {
            let mut copy = Some(&client).cloned();
            in_a_fork(|| {
                drop(copy.take());
                ensure(is_open(&path), "the lock is released")
            });
        }
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        let count = writing.join().unwrap();
        assert_eq!(names(&client).len(), count);
    });
}

#[test]
fn a_forked_process_does_not_give_back_the_lease_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let client: Arc<dyn Client> = Arc::new(FileClient::open(folder.path().join("objects.redb")).unwrap());
    let elector = LeaseElector::builder(client, "default", "backup").identity("node-1").build().unwrap();
    let mut term = Some(elector.campaign(&Context::detached()).unwrap());
    in_a_fork(|| {
        let mut term = term.take().unwrap();
        ensure(term.fence().check().is_err() && term.check().is_err(), "the copy of the term counts")?;
        drop(term);
        ensure(elector.leader().is_some(), "the copy has given the lease back")
    });
    assert!(term.unwrap().check().is_ok());
}
