//! Watches of objects: lost versions, reconnects, stops, and entries from other programs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use homeostat::{CancellationToken, Running, Watch};
use homeostat_nats::{KvBucket, NatsClient, NatsConnection};
use homeostat_objects::{
    Api, Client, ClientError, DeleteOptions, DynamicObject, ObjectKey, ObjectWatch, Patch, PatchTarget, Query,
    SharedObject, WatchEvent,
};
use serde_json::json;

use super::{WIDGET, client, client_of, connect, entry, key, widget};
use crate::forwarder::{Flow, Forwarder};
use crate::support::server::TestServer;
use crate::support::{LONG, options, pause, removes_markers, spawn};
use crate::until::until;

type Item = Result<WatchEvent<SharedObject>, ClientError>;

struct Reader {
    items: Receiver<Item>,
    stop: CancellationToken,
}

fn read(client: &NatsClient, query: &Query, from: Option<&str>) -> Result<Reader, ClientError> {
    let stop = CancellationToken::new();
    let stream = client.watch(&WIDGET, query, from, &stop)?;
    let (sender, items) = channel();
    drop(spawn(move || stream.map(|item| sender.send(item)).take_while(Result::is_ok).for_each(drop)));
    Ok(Reader { items, stop })
}

impl Reader {
    /// Returns the next change or error. `None` at the end.
    fn next(&self) -> Option<Item> {
        loop {
            match self.items.recv_timeout(LONG) {
                Ok(Ok(WatchEvent::Bookmark(_))) => {}
                Ok(item) => return Some(item),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("no event"),
            }
        }
    }

    fn change(&self) -> String {
        match self.next() {
            Some(Ok(WatchEvent::Added(object))) => format!("added {}", object.name()),
            Some(Ok(WatchEvent::Modified(object))) => format!("modified {}", object.name()),
            Some(Ok(WatchEvent::Deleted(object))) => format!("deleted {}", object.name()),
            other => panic!("{other:?}"),
        }
    }

    fn is_gone(&self) {
        match self.next() {
            Some(Err(error)) => assert!(error.is_gone(), "{error}"),
            other => panic!("expected gone: {other:?}"),
        }
        assert!(self.next().is_none(), "nothing follows");
    }
}

/// Two clients of one bucket.
struct Pair {
    near: NatsClient,
    /// Connected through the proxy.
    far: NatsClient,
    proxy: Forwarder,
    /// Must be the last field, so that the server ends after the clients.
    server: TestServer,
}

/// Deletes the consumers of all watches, as the server does after a while without readers.
fn delete_consumers(server: &TestServer) {
    let connection = connect(server);
    let ask = |method: &str| {
        let answer = connection.request(&format!("$JS.API.CONSUMER.{method}"), b"").unwrap();
        serde_json::from_slice::<serde_json::Value>(&answer.payload).unwrap()
    };
    for name in ask("NAMES.KV_TEST")["consumers"].as_array().unwrap() {
        ask(&format!("DELETE.KV_TEST.{}", name.as_str().unwrap()));
    }
}

impl Pair {
    fn start(create: impl Fn(&NatsConnection) -> NatsClient) -> Self {
        let server = TestServer::start();
        let proxy = Forwarder::to(&server.address());
        let near = create(&connect(&server));
        let far = create(&options(&proxy.address).connect().unwrap());
        Self { near, far, proxy, server }
    }
}

/// Returns a synced watch of a client.
fn stored(client: &NatsClient) -> Running<Watch<ObjectKey, DynamicObject>> {
    let watch = ObjectWatch::new(Api::<DynamicObject>::of_kind(Arc::new(client.clone()), WIDGET)).start().unwrap();
    assert!(watch.watch().store().wait_synced(LONG));
    watch
}

/// Watches from a version, and expects that it is gone.
fn gone_from(client: &NatsClient, version: &str) {
    match read(client, &Query::all(), Some(version)) {
        Err(error) => assert!(error.is_gone(), "{error}"),
        Ok(reader) => reader.is_gone(),
    }
}

fn version(client: &NatsClient) -> String {
    client.list(&WIDGET, &Query::all()).unwrap().version
}

fn remove(client: &NatsClient, name: &str) {
    client.delete(&WIDGET, &key(name), &DeleteOptions::default()).unwrap();
}

#[test]
fn a_recreated_bucket_makes_all_earlier_versions_gone() {
    let server = TestServer::start();
    let (connection, client) = (connect(&server), client(&server));
    for name in ["a", "b", "c"] {
        client.create(&WIDGET, widget(name, 1)).unwrap();
    }
    let before = version(&client);
    let live = read(&client, &Query::all(), None).unwrap();
    for _ in 0..3 {
        live.change();
    }
    let store = stored(&client);
    KvBucket::delete_bucket(&connection, "TEST").unwrap();
    let next = client_of(&connection);
    live.is_gone();
    gone_from(&client, &before);
    next.create(&WIDGET, widget("a", 2)).unwrap();
    gone_from(&client, &before);
    for number in 0..20 {
        next.create(&WIDGET, widget(&format!("n-{number}"), 2)).unwrap();
    }
    gone_from(&client, &before);
    gone_from(&next, &before);
    assert!(version(&next) > before);
    until("store that equals the new bucket", || (store.watch().store().len() == 21).then_some(()));
}

#[test]
fn a_watch_from_before_removed_markers_is_gone() {
    let server = TestServer::start();
    let client = client(&server);
    if !removes_markers(&connect(&server)) {
        return;
    }
    for name in ["a", "b"] {
        client.create(&WIDGET, widget(name, 1)).unwrap();
    }
    let before = version(&client);
    let page = client.list(&WIDGET, &Query::all().limit(1)).unwrap();
    let live = read(&client, &Query::all(), None).unwrap();
    assert_eq!([live.change(), live.change()], ["added a", "added b"]);
    remove(&client, "b");
    assert_eq!(live.change(), "deleted b");
    assert_eq!(client.remove_markers(Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(read(&client, &Query::all(), Some(&before)).unwrap().change(), "deleted b");
    assert_eq!(client.remove_markers(Duration::ZERO).unwrap(), 1);
    gone_from(&client, &before);
    let continued = Query::all().continue_from(page.continue_token.unwrap());
    assert!(client.list(&WIDGET, &continued).unwrap_err().is_gone());
    let after = version(&client);
    client.create(&WIDGET, widget("b", 2)).unwrap();
    assert_eq!(live.change(), "added b", "a watch that has read the marker continues");
    assert_eq!(read(&client, &Query::all(), Some(&after)).unwrap().change(), "added b");
}

#[test]
fn a_watch_that_was_away_while_markers_were_removed_is_gone() {
    let Pair { near, far, proxy, server } = Pair::start(client_of);
    if !removes_markers(&connect(&server)) {
        return;
    }
    for name in ["a", "b"] {
        near.create(&WIDGET, widget(name, 1)).unwrap();
    }
    let live = read(&far, &Query::all(), None).unwrap();
    assert_eq!([live.change(), live.change()], ["added a", "added b"]);
    let store = stored(&far);
    proxy.refuse(true);
    proxy.cut();
    remove(&near, "b");
    assert_eq!(near.remove_markers(Duration::ZERO).unwrap(), 0, "the server keeps the consumers for a while");
    delete_consumers(&server);
    assert_eq!(near.remove_markers(Duration::ZERO).unwrap(), 1);
    proxy.refuse(false);
    // No other change makes the watches check.
    live.is_gone();
    until("store without the deleted object", || {
        let names: Vec<_> = store.watch().store().keys().iter().map(|key| key.name().to_owned()).collect();
        (names == ["a"]).then_some(())
    });
}

#[test]
fn a_watch_resumes_after_a_reconnect_and_misses_nothing() {
    let Pair { near, far, proxy, server: _server } = Pair::start(client_of);
    let live = read(&far, &Query::all(), None).unwrap();
    for round in 0..10 {
        let name = format!("a-{round}");
        near.create(&WIDGET, widget(&name, 1)).unwrap();
        assert_eq!(live.change(), format!("added {name}"));
        proxy.refuse(true);
        proxy.cut();
        let grow = Patch::Merge(json!({"spec": {"size": 2}}));
        near.patch(&WIDGET, &key(&name), &grow, PatchTarget::Object).unwrap();
        remove(&near, &name);
        proxy.refuse(false);
        assert_eq!([live.change(), live.change()], [format!("modified {name}"), format!("deleted {name}")]);
    }
}

#[test]
fn a_watch_that_a_short_history_has_outrun_is_gone_and_its_store_still_ends_right() {
    let create = |connection: &_| NatsClient::create(connection, &NatsClient::bucket("short").history(2)).unwrap();
    let Pair { near, far, proxy, server: _server } = Pair::start(create);
    near.create(&WIDGET, widget("a", 1)).unwrap();
    near.create(&WIDGET, widget("b", 1)).unwrap();
    let live = read(&far, &Query::all(), None).unwrap();
    assert_eq!([live.change(), live.change()], ["added a", "added b"]);
    let store = stored(&far);
    proxy.refuse(true);
    proxy.cut();
    // The object is deleted and created again, and only its last two changes are kept.
    remove(&near, "a");
    near.create(&WIDGET, widget("a", 2)).unwrap();
    let grow = |size: u64| Patch::Merge(json!({"spec": {"size": size}}));
    for size in 3..6 {
        near.patch(&WIDGET, &key("a"), &grow(size), PatchTarget::Object).unwrap();
    }
    proxy.refuse(false);
    live.is_gone();
    let last = near.get(&WIDGET, &key("a")).unwrap();
    until("store with the last state", || {
        let found = store.watch().store().get(&key("a"))?;
        (homeostat_objects::Object::meta(&*found).resource_version == last.resource_version()).then_some(())
    });
}

#[test]
fn a_cancelled_watch_ends_also_without_a_connection() {
    let mut server = TestServer::start();
    let client = client(&server);
    let readers: Vec<_> = (0..20).map(|_| read(&client, &Query::all(), None).unwrap()).collect();
    client.create(&WIDGET, widget("a", 1)).unwrap();
    assert!(readers.iter().all(|reader| reader.change() == "added a"));
    let (first, rest) = readers.split_at(10);
    let end = |readers: &[Reader]| {
        for reader in readers {
            reader.stop.cancel();
        }
        assert!(readers.iter().all(|reader| reader.next().is_none()));
    };
    end(first);
    client.create(&WIDGET, widget("b", 1)).unwrap();
    assert!(rest.iter().all(|reader| reader.change() == "added b"), "the other watches continue");
    server.kill();
    end(rest);
}

#[test]
fn a_stop_ends_the_opening_of_a_watch_that_waits_for_the_server() {
    let mut server = TestServer::start();
    let proxy = Forwarder::to(&server.address());
    let connection = |url: &str| options(url).request_timeout(Duration::from_secs(3600)).connect().unwrap();
    let (killed, stalled) = (client_of(&connection(&server.url())), client_of(&connection(&proxy.address)));
    let from = version(&killed);
    proxy.set_flow(Flow::Held);
    server.kill();
    for client in [killed, stalled] {
        for from in [None, Some(from.clone())] {
            let (stop, opening) = (CancellationToken::new(), client.clone());
            let (stopped, query) = (stop.clone(), Query::all());
            let thread = spawn(move || opening.watch(&WIDGET, &query, from.as_deref(), &stopped).map(Iterator::count));
            pause(Duration::from_millis(20));
            stop.cancel();
            until("end of the call", || thread.is_finished().then_some(()));
            assert_eq!(thread.join().unwrap().unwrap(), 0);
        }
    }
}

#[test]
fn entries_of_other_programs_are_read_or_named() {
    let server = TestServer::start();
    let client = client(&server);
    let bucket = KvBucket::bind(&connect(&server), "TEST").unwrap();
    let created = client.create(&WIDGET, widget("a", 1)).unwrap();
    let live = read(&client, &Query::all(), None).unwrap();
    assert_eq!(live.change(), "added a");
    let mut edited = created.to_value();
    edited["spec"]["size"] = json!(7);
    bucket.put(&entry("a"), edited.to_string().as_bytes()).unwrap();
    assert_eq!(live.change(), "modified a");
    assert_eq!(client.get(&WIDGET, &key("a")).unwrap().pointer("/spec/size").unwrap(), json!(7));
    bucket.put(&entry("b"), b"no object").unwrap();
    let error = live.next().unwrap().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("default/b"), "{error}");
    let error = client.get(&WIDGET, &key("b")).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("default/b"), "{error}");
    bucket.delete(&entry("a")).unwrap();
    assert_eq!(live.change(), "deleted a", "the stream has gone on");
    let mut again = widget("a", 8);
    again["metadata"]["labels"] = json!({"app": "web"});
    client.create(&WIDGET, again).unwrap();
    assert_eq!(live.change(), "added a");
}

/// If an object watch has no stream, it lists. One unreadable entry must not leave its store outdated.
#[test]
fn a_list_has_the_objects_beside_an_entry_that_cannot_be_read() {
    let server = TestServer::start();
    let client = client(&server);
    let bucket = KvBucket::bind(&connect(&server), "TEST").unwrap();
    for name in ["a", "c"] {
        client.create(&WIDGET, widget(name, 1)).unwrap();
    }
    bucket.put(&entry("b"), b"no object").unwrap();
    let error = client.list(&WIDGET, &Query::all()).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("default/b"), "{error}");
    let names = |query: &Query| {
        let (list, unreadable) = client.list_readable(&WIDGET, query, &CancellationToken::new()).unwrap();
        assert!(unreadable.iter().all(ClientError::is_invalid), "{unreadable:?}");
        let found: Vec<_> = list.items.iter().map(|object| object.name().to_owned()).collect();
        let odd: Vec<_> = unreadable.iter().map(|error| error.object().key().name().to_owned()).collect();
        (found.join(" "), odd.join(" "), list.continue_token)
    };
    assert_eq!(names(&Query::all()), ("a c".to_owned(), "b".to_owned(), None));
    let mut query = Query::all().limit(1);
    for expected in [("a", ""), ("", "b"), ("c", "")] {
        let (found, odd, token) = names(&query);
        assert_eq!((&*found, &*odd, token.is_some()), (expected.0, expected.1, expected.0 != "c"), "one page");
        query = Query::all().limit(1).continue_from(token.unwrap_or_default());
    }
}

#[test]
fn a_page_of_a_list_whose_objects_have_changed_too_often_is_gone() {
    let server = TestServer::start();
    let client = NatsClient::create(&connect(&server), &NatsClient::bucket("short").history(3)).unwrap();
    for name in ["a", "b"] {
        client.create(&WIDGET, widget(name, 0)).unwrap();
    }
    let token = client.list(&WIDGET, &Query::all().limit(1)).unwrap().continue_token.unwrap();
    let rest = Query::all().continue_from(token);
    for size in 1..=5 {
        let grow = Patch::Merge(json!({"spec": {"size": size}}));
        client.patch(&WIDGET, &key("b"), &grow, PatchTarget::Object).unwrap();
        match client.list(&WIDGET, &rest) {
            Ok(list) => {
                assert!(size < 3, "size {size}");
                assert_eq!(list.items[0].pointer("/spec/size").unwrap(), json!(0), "as it was");
            }
            Err(error) => assert!(size >= 3 && error.is_gone(), "size {size}: {error}"),
        }
    }
}
