//! The conformance suite against a real server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use homeostat::{BoxError, CancellationToken};
use homeostat_nats::{NatsClient, NatsError, NatsErrorKind};
use homeostat_objects::{Client, ClientErrorKind, DeleteOptions, Patch, PatchTarget, Query, SharedObject, WatchEvent};
use homeostat_testing::conformance::Backend;

use serde_json::json;

use super::{WIDGET, key, owned, widget};
use crate::support::options;
use crate::support::server::TestServer;
use homeostat::rt::Chain;

thread_local! {
    /// The server for this thread's test.
    static SERVER: RefCell<Option<TestServer>> = const { RefCell::new(None) };
}

/// Returns the guide's lines with permissions.
fn rights() -> impl Iterator<Item = String> {
    let guide = include_str!("../../../src/guide/nats.md");
    let rights = guide.split("```text\n").nth(1).and_then(|text| text.split("```").next()).unwrap();
    rights.lines().map(|line| line.replace("machines", "conformance"))
}

/// Starts a server with one user with these permissions.
fn server_with(rights: impl Iterator<Item = String>) -> TestServer {
    let rights: Vec<_> = rights.collect();
    let user = format!("{{ user: u, password: p, permissions: {{\n{}\n}} }}", rights.join("\n"));
    TestServer::with_config(&format!("jetstream: {{}}\nauthorization: {{ users: [ {user} ] }}\n"))
}

fn client_of_user(server: &TestServer, history: u8) -> Result<NatsClient, NatsError> {
    let connection = options(&server.url()).user("u", "p").connect()?;
    NatsClient::create(&connection, &NatsClient::bucket("conformance").history(history))
}

/// A new server with a bucket with this history. The user has only the permissions that the guide lists.
struct Nats {
    history: u8,
}

impl Backend for Nats {
    fn client(&self) -> Arc<dyn Client> {
        let server = server_with(rights());
        let client = client_of_user(&server, self.history).unwrap();
        SERVER.set(Some(server));
        Arc::new(client)
    }
}

// The watches of the cases read continually, so they are complete even if one object changes more often than the
// bucket keeps. History is counted for each object, so changes of one object do not prevent a list of others.
homeostat_testing::conformance_tests!(Nats { history: 64 }, skipped: [
    "list_goes_on_from_before_the_history_is_gone",
    "watch_from_before_the_history_is_gone",
]);

/// Like the skipped case, but a watch of another object has missed nothing.
#[test]
fn a_watch_from_before_the_history_is_gone() {
    for history in [2, 5, 64] {
        let server = server_with(rights());
        let client = client_of_user(&server, history).unwrap();
        let version = |object: SharedObject| object.resource_version().to_owned();
        let mut versions = vec![version(client.create(&WIDGET, widget("a", 1)).unwrap())];
        for size in 0..2 * u64::from(history) + 2 {
            let patch = Patch::Merge(json!({"spec": {"size": size}}));
            versions.push(version(client.patch(&WIDGET, &key("a"), &patch, PatchTarget::Object).unwrap()));
        }
        let kept = versions.len() - usize::from(history);
        let stop = CancellationToken::new();
        let mut watch = client.watch(&WIDGET, &Query::all(), Some(&versions[kept - 1]), &stop).unwrap();
        for expected in &versions[kept..] {
            let Some(Ok(WatchEvent::Modified(object))) = watch.next() else { panic!("{expected}") };
            assert_eq!(object.resource_version(), expected);
        }
        for query in [Query::all(), Query::all().namespace("default")] {
            let mut watch = client.watch(&WIDGET, &query, Some(&versions[0]), &stop).unwrap();
            let Some(Err(error)) = watch.next() else { panic!() };
            let ClientErrorKind::Gone { version, .. } = error.kind() else { panic!("{error:?}") };
            assert_eq!(*version, versions[0]);
            assert!(watch.next().is_none());
        }
        let other = Query::all().field("metadata.name", "b");
        let mut watch = client.watch(&WIDGET, &other, Some(&versions[0]), &stop).unwrap();
        client.create(&WIDGET, widget("b", 1)).unwrap();
        assert!(matches!(watch.next(), Some(Ok(WatchEvent::Added(_)))));
    }
}

/// The guide lists the permissions that a reader does not need.
#[test]
fn a_user_without_the_rights_to_write_can_read_list_and_watch() {
    let is_for_writers =
        |line: &str| ["$KV.", ".PURGE.", ".CONSUMER.NAMES.", ".CONSUMER.INFO."].iter().any(|part| line.contains(part));
    let user = |name: &str, lines: Vec<String>| {
        format!("{{ user: {name}, password: p, permissions: {{\n{}\n}} }}", lines.join("\n"))
    };
    let users =
        [user("u", rights().collect()), user("reader", rights().filter(|line| !is_for_writers(line)).collect())];
    let config = format!("jetstream: {{}}\nauthorization: {{ users: [ {} ] }}\n", users.join(", "));
    let server = TestServer::with_config(&config);
    let writer = client_of_user(&server, 4).unwrap();
    let owner = writer.create(&WIDGET, widget("a", 1)).unwrap().to_value();
    writer.create(&WIDGET, owned("b", &owner)).unwrap();
    let connection = options(&server.url()).user("reader", "p").connect().unwrap();
    let reader = NatsClient::create(&connection, &NatsClient::bucket("conformance").history(4)).unwrap();
    assert_eq!(reader.get(&WIDGET, &key("a")).unwrap().to_value(), owner);
    assert_eq!(reader.list(&WIDGET, &Query::all()).unwrap().items.len(), 2);
    let stop = CancellationToken::new();
    let mut watch = reader.watch(&WIDGET, &Query::all(), None, &stop).unwrap();
    assert!((0..3).all(|_| watch.next().unwrap().is_ok()));
    writer.delete(&WIDGET, &key("b"), &DeleteOptions::default()).unwrap();
    assert!(matches!(watch.next(), Some(Ok(WatchEvent::Deleted(_)))));
    let error = reader.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::Forbidden, "{error}");
    let error = reader.create(&WIDGET, widget("c", 1)).unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::Forbidden, "{error}");
    assert_eq!(writer.list(&WIDGET, &Query::all()).unwrap().items.len(), 1);
}

/// Writes, reads, lists and deletes. Returns the first error.
fn first_error(server: &TestServer) -> Option<String> {
    let run = || -> Result<(), BoxError> {
        let client = client_of_user(server, 4)?;
        let owner = client.create(&WIDGET, widget("a", 1))?.to_value();
        client.create(&WIDGET, owned("b", &owner))?;
        client.get(&WIDGET, &key("a"))?;
        client.update(&WIDGET, owner)?;
        client.list(&WIDGET, &Query::all())?;
        client.delete(&WIDGET, &key("a"), &DeleteOptions::default())?;
        // The watch's consumer must exist when markers are removed.
        let stop = CancellationToken::new();
        let mut watch = client.watch(&WIDGET, &Query::all(), None, &stop)?;
        client.create(&WIDGET, widget("c", 1))?;
        watch.next().transpose()?;
        match client.remove_markers(Duration::ZERO) {
            Err(error) if error.kind() == NatsErrorKind::Unsupported => Ok(()),
            removed => Ok(removed.map(|_| ())?),
        }
    };
    run().err().map(|error| Chain(&*error).to_string())
}

#[test]
fn without_a_right_of_the_guide_the_error_names_it() {
    let server = server_with(rights());
    assert_eq!(first_error(&server), None);
    let client = client_of_user(&server, 4).unwrap();
    let is_old = client.remove_markers(Duration::ZERO).is_err_and(|error| error.kind() == NatsErrorKind::Unsupported);
    for missing in rights().filter(|line| line.trim_start().starts_with('"')) {
        let subject = missing.split('"').nth(1).unwrap();
        let is_silent = [".FC.", ".CONSUMER.DELETE.", ".DIRECT.GET."].iter().any(|part| subject.contains(part));
        let is_for_markers = [".PURGE.", ".NAMES.", ".CONSUMER.INFO."].iter().any(|part| subject.contains(part));
        if is_silent || (is_for_markers && is_old) {
            continue;
        }
        let server = server_with(rights().filter(|line| *line != missing));
        let error = first_error(&server).unwrap_or_else(|| panic!("{subject} is not needed"));
        assert!(error.contains(subject.trim_end_matches('>')), "{subject}: {error}");
    }
}
