//! Watches of a client's objects, through failures, new lists and stops.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use homeostat::watch::EventKind;
use homeostat::{
    Action, BoxError, Context, Controller, Event, Exponential, Manager, ManualClock, Predicate, Running, Subscriber,
    Watch, WorkQueue,
};
use homeostat_objects::{
    Api, Client, ClientError, DeleteOptions, DynamicObject, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectRef,
    ObjectStream, ObjectWatch, Patch, PatchTarget, Query, WatchEvent,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::hooked_client::HookedClient;
use crate::waits::until;

const LONG: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Thing {
    metadata: ObjectMeta,
    size: u32,
}

homeostat_objects::object!(Thing, namespaced, "example.com", "v1");

fn thing(name: &str, size: u32) -> Thing {
    Thing { metadata: ObjectMeta::new("default", name), size }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A failure of a flaky client.
enum Fault {
    /// The list fails.
    List,
    /// The list hangs until the other end is dropped.
    Hang(Receiver<()>),
    /// The watch ends with an error after this many events.
    Break(usize),
    /// The watch ends without an error after this many events.
    End(usize),
    /// The watch delivers this many bookmarks and ends.
    Bookmarks(usize),
    /// The watch delivers a bookmark, and ends after this time by the clock.
    Quiet(ManualClock, Duration),
    /// The version is too old.
    Gone,
    Panic,
}

impl Fault {
    fn is_of_lists(&self) -> bool {
        matches!(self, Self::List | Self::Hang(_))
    }
}

/// A client with these faults in its lists and watches, in this order.
fn flaky(faults: impl IntoIterator<Item = Fault>) -> Arc<HookedClient> {
    let faults = Arc::new(Mutex::new(faults.into_iter().collect::<VecDeque<_>>()));
    let client = HookedClient::new(MemoryClient::new());
    let of_lists = Arc::clone(&faults);
    client.before(move |verb, object| {
        let fault = take_first(&of_lists, |fault| verb == "list" && fault.is_of_lists())?;
        match fault {
            Fault::Hang(until) => drop(until.recv()),
            _ => return Some(error(object)),
        }
        None
    });
    client.on_stream(move |from, stream| {
        let from = from.unwrap_or_default().to_owned();
        let fault = take_first(&faults, |fault| !fault.is_of_lists());
        match fault {
            None | Some(Fault::List | Fault::Hang(_)) => Ok(stream),
            Some(Fault::Break(after)) => Ok(ObjectStream::new(stream.take(after).chain([Err(error(&all_things()))]))),
            Some(Fault::End(after)) => Ok(ObjectStream::new(stream.take(after))),
            Some(Fault::Bookmarks(count)) => {
                Ok(ObjectStream::new(vec![Ok(WatchEvent::Bookmark(from)); count].into_iter()))
            }
            Some(Fault::Quiet(clock, time)) => Ok(ObjectStream::new(std::iter::once_with(move || {
                clock.advance(time);
                Ok(WatchEvent::Bookmark(from))
            }))),
            Some(Fault::Gone) => Err(ClientError::gone(all_things(), from)),
            Some(Fault::Panic) => panic!("out of luck"),
        }
    });
    client
}

/// Takes the first fault, if it is a wanted one.
fn take_first(faults: &Mutex<VecDeque<Fault>>, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
    let mut faults = faults.lock();
    if faults.front().is_some_and(wanted) { faults.pop_front() } else { None }
}

/// Returns the objects of a client, without its faults.
fn api(client: &HookedClient) -> Api<Thing> {
    Api::new(Arc::new(client.inner.clone()))
}

/// Returns how many lists and watches a client was asked for.
fn counts(client: &HookedClient) -> [usize; 2] {
    ["list", "watch"].map(|verb| client.count(verb))
}

fn all_things() -> ObjectRef {
    ObjectRef::new(&Thing::KIND, &ObjectKey::cluster(""))
}

fn error(object: &ObjectRef) -> ClientError {
    ClientError::transport(object.clone(), "the line is cut")
}

fn watch(client: &Arc<HookedClient>) -> ObjectWatch<Thing> {
    let client: Arc<dyn Client> = client.clone();
    ObjectWatch::new(Api::new(client)).backoff(Exponential::new(SECOND, 4 * SECOND).jitter(0.0))
}

/// Calls a function with each event.
fn listener(mut call: impl FnMut(&Event<ObjectKey, Thing>) + Send + 'static) -> Subscriber<ObjectKey, Thing> {
    Subscriber::to(&WorkQueue::<u8>::new(), move |event| {
        call(event);
        None
    })
}

/// Returns the events as text, up to the deletion of the object `last`.
fn tell(
    watch: &Watch<ObjectKey, Thing>,
    last: &'static str,
) -> (Running<homeostat::watch::Subscription>, Arc<Mutex<Vec<String>>>) {
    let notice = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&notice);
    let subscription = watch.subscribe(listener(move |event| {
        let size = event.value().map_or(0, |thing| thing.size);
        let key = event.key().map_or("", ObjectKey::name);
        if key != last || event.kind() == EventKind::Deleted {
            to.lock().push(format!("{} {key} {size}", event.kind()));
        }
    }));
    (subscription.unwrap(), notice)
}

#[test]
fn existing_and_changed_objects_are_delivered() {
    let client = flaky([]);
    let api = api(&client);
    api.create(&thing("a", 1)).unwrap();
    let things = watch(&client).start().unwrap();
    assert!(things.watch().store().wait_synced(LONG));
    assert_eq!(things.watch().store().get(&key("a")).unwrap().size, 1);
    let (_subscription, notice) = tell(things.watch(), "end");
    until!(notice.lock().len() == 2);
    let mut a = api.get(&key("a")).unwrap();
    a.size = 2;
    api.update(&a).unwrap();
    until!(notice.lock().len() == 3);
    api.create(&thing("b", 3)).unwrap();
    api.delete(&key("b"), &DeleteOptions::default()).unwrap();
    until!(things.watch().store().len() == 1);
    api.delete(&key("a"), &DeleteOptions::default()).unwrap();
    api.create(&thing("end", 0)).unwrap();
    api.delete(&key("end"), &DeleteOptions::default()).unwrap();
    until!(notice.lock().last().is_some_and(|last| last.contains("end")));
    let notice = notice.lock().clone();
    assert_eq!(notice[..3], ["created a 1", "synced  0", "updated a 2"]);
    assert!(notice.contains(&"deleted b 3".to_owned()) && notice.contains(&"deleted a 2".to_owned()), "{notice:?}");
    assert_eq!(counts(&client), [1, 1]);
}

#[test]
fn the_last_state_of_a_deleted_object_is_delivered() {
    let client = flaky([]);
    let api = api(&client);
    let (mut held, other) = (thing("held", 1), thing("other", 1));
    held.metadata.finalizers.push("example.com/x".into());
    api.create(&held).unwrap();
    api.create(&other).unwrap();
    let things = watch(&client).start().unwrap();
    let (begun, ends) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (created, to) = (Arc::clone(&begun), Arc::clone(&ends));
    let _subscription = things.watch().subscribe(listener(move |event| match event {
        Event::Created { .. } => *created.lock() += 1,
        Event::Deleted { key, last } => {
            to.lock().push((key.name().to_owned(), last.metadata.is_deleting(), last.metadata.finalizers.len()));
        }
        _ => {}
    }));
    // If the subscriber has not handled the creation yet, the deletion would replace it in the buffer.
    until!(*begun.lock() == 2);
    api.purge(&key("held")).unwrap();
    api.delete(&key("other"), &DeleteOptions::default()).unwrap();
    until!(ends.lock().len() == 2);
    // A deletion is visible before it is done only if there are finalizers.
    assert_eq!(*ends.lock(), [("held".to_owned(), false, 1), ("other".to_owned(), false, 0)]);
}

#[test]
fn a_generation_predicate_passes_the_request_to_delete() {
    let client = flaky([]);
    let api = api(&client);
    let mut held = thing("held", 1);
    held.metadata.finalizers.push("example.com/x".into());
    let held = api.create(&held).unwrap();
    let things = watch(&client).start().unwrap();
    let queue = WorkQueue::<ObjectKey>::new();
    let wanted = Predicate::generation(|thing: &Thing| Some(thing.metadata.generation));
    let _subscription = things.watch().subscribe(Subscriber::to_itself(&queue).when(wanted)).unwrap();
    assert!(things.watch().store().wait_synced(LONG));
    queue.dequeue_timeout(LONG).unwrap().done();
    api.delete(&held.key(), &DeleteOptions::default()).unwrap();
    until!(things.watch().store().get(&held.key()).is_some_and(|held| held.metadata.is_deleting()));
    assert_eq!(*queue.dequeue_timeout(LONG).unwrap(), held.key());
}

#[test]
fn retries_after_failures_wait_longer_each_time() {
    let clock = ManualClock::new();
    let client = flaky([Fault::List, Fault::List, Fault::List]);
    api(&client).create(&thing("a", 1)).unwrap();
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    for (lists, wait) in [(1, 1), (2, 2), (3, 4)] {
        clock.wait_for_sleepers(1);
        assert_eq!(counts(&client), [lists, 0]);
        clock.advance(Duration::from_nanos(wait * 1_000_000_000 - 1));
        clock.wait_for_sleepers(1);
        assert_eq!(counts(&client), [lists, 0], "not before its time");
        assert!(!things.watch().store().has_synced());
        clock.advance(Duration::from_nanos(1));
    }
    until!(things.watch().store().has_synced());
    until!(counts(&client) == [4, 1]);
}

#[test]
fn a_broken_stream_resumes_where_it_broke() {
    for fault in [Fault::Break as fn(usize) -> Fault, Fault::End] {
        let clock = ManualClock::new();
        // Each stream delivers an event, so the watch does not pause. The last one delivers none.
        let client = flaky([fault(1), fault(2), fault(0)]);
        let api = api(&client);
        let things = watch(&client).clock(clock.clock()).start().unwrap();
        let (_subscription, notice) = tell(things.watch(), "end");
        until!(things.watch().store().has_synced());
        for size in 1..=6 {
            api.create(&thing(&format!("t-{size}"), size)).unwrap();
        }
        until!(counts(&client) == [1, 3]);
        clock.wait_for_sleepers(1);
        assert_eq!(things.watch().store().len(), 3);
        clock.advance(SECOND);
        until!(notice.lock().len() == 7);
        let notice = notice.lock().clone();
        let created = notice.iter().filter(|line| line.starts_with("created")).count();
        assert_eq!(created, 6, "each once: {notice:?}");
        assert_eq!(counts(&client), [1, 4], "it is not listed again");
    }
}

#[test]
fn a_watch_waits_as_long_as_a_busy_server_asks() {
    let clock = ManualClock::new();
    let client = HookedClient::new(MemoryClient::new());
    let mut delays = [Some(3 * SECOND), None, Some(SECOND)].into_iter();
    client.before(move |verb, object| {
        let delay = if verb == "list" { delays.next()? } else { return None };
        Some(ClientError::too_many_requests(object.clone(), delay, "starting"))
    });
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    // The backoff is 1, 2 and 4 seconds.
    for (lists, wait) in [(1, 3), (2, 2), (3, 4)] {
        clock.wait_for_sleepers(1);
        assert_eq!(client.count("list"), lists);
        clock.advance(Duration::from_nanos(wait * 1_000_000_000 - 1));
        clock.wait_for_sleepers(1);
        assert_eq!(client.count("list"), lists, "not before its time");
        clock.advance(Duration::from_nanos(1));
    }
    until!(things.watch().store().has_synced());
}

/// A server that ends each stream after a bookmark is not called in a tight loop.
#[test]
fn streams_with_only_bookmarks_are_reopened_after_growing_pauses() {
    let clock = ManualClock::new();
    let client = flaky([Fault::Bookmarks(1), Fault::Bookmarks(2), Fault::Bookmarks(0), Fault::Bookmarks(1)]);
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    for (watches, wait) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        clock.wait_for_sleepers(1);
        assert_eq!(counts(&client), [1, watches]);
        clock.advance(Duration::from_nanos(wait * 1_000_000_000 - 1));
        clock.wait_for_sleepers(1);
        assert_eq!(counts(&client), [1, watches], "not before its time");
        clock.advance(Duration::from_nanos(1));
    }
    until!(counts(&client) == [1, 5]);
    api(&client).create(&thing("a", 1)).unwrap();
    until!(things.watch().store().len() == 1);
}

/// The limit of each list, and whether it asks for another page.
type Pages = Arc<Mutex<Vec<(Option<usize>, bool)>>>;

/// Three objects, listed page by page, and a watch of them. Unless `keeps_versions`, the client forgets a version
/// before it is asked for the second page. `paging` is called before each page.
fn forgetful(
    keeps_versions: bool,
    paging: impl Fn() + Send + 'static,
) -> (Arc<HookedClient>, Pages, ObjectWatch<Thing>) {
    let (client, pages) = (HookedClient::new(MemoryClient::new()), Pages::default());
    for name in ["a", "b", "c"] {
        api(&client).create(&thing(name, 1)).unwrap();
    }
    let listed = Arc::clone(&pages);
    client.on_call(move |call| {
        let query = call.query.filter(|_| call.verb == "list")?;
        listed.lock().push((query.limit, query.continue_token.is_some()));
        paging();
        let is_gone = query.continue_token.is_some() && !keeps_versions;
        is_gone.then(|| ClientError::gone(all_things(), "1"))
    });
    let shared: Arc<dyn Client> = client.clone();
    (client, pages, ObjectWatch::new(Api::new(shared)).query(Query::all().limit(1)))
}

/// The same as in client-go's pager (`tools/pager/pager.go`, `TestListPager_List`, "expired token").
#[test]
fn if_a_page_is_gone_everything_is_listed_without_pages() {
    let (_client, pages, things) = forgetful(false, || {});
    let soon = Duration::from_millis(1);
    let things = things.backoff(Exponential::new(soon, soon)).start().unwrap();
    until!(things.watch().store().has_synced() || pages.lock().len() > 3);
    assert_eq!(things.watch().store().len(), 3);
    assert_eq!(*pages.lock(), [(Some(1), false), (Some(1), true), (None, false)]);
}

#[test]
fn a_stopped_watch_requests_no_further_page() {
    let (listing, listed) = bounded(0);
    let (go_on, goes_on) = bounded::<()>(0);
    let (_client, pages, things) = forgetful(true, move || {
        // If the test has ended, the list continues.
        let _ = listing.send(());
        let _ = goes_on.recv();
    });
    let things = things.start().unwrap();
    listed.recv().unwrap();
    things.stop();
    drop((listed, go_on));
    things.shutdown(Duration::MAX).unwrap();
    assert_eq!(*pages.lock(), [(Some(1), false)]);
}

/// Some servers end a quiet watch every few minutes.
#[test]
fn a_long_quiet_stream_is_reopened_at_once() {
    let clock = ManualClock::new();
    let client = flaky((0..5).map(|_| Fault::Quiet(clock.clone(), 300 * SECOND)));
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    until!(counts(&client) == [1, 6]);
    api(&client).create(&thing("a", 1)).unwrap();
    until!(things.watch().store().len() == 1);
}

#[test]
fn after_a_gone_version_a_new_list_finds_deletions() {
    let clock = ManualClock::new();
    let client = flaky([Fault::Break(1), Fault::Gone, Fault::Gone, Fault::Panic]);
    let api = api(&client);
    for name in ["a", "b"] {
        api.create(&thing(name, 1)).unwrap();
    }
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    let (_subscription, notice) = tell(things.watch(), "end");
    until!(things.watch().store().has_synced());
    // The stream breaks after this event. Then its version is gone, and the version of the next list too, so the watch
    // pauses.
    api.create(&thing("c", 1)).unwrap();
    clock.wait_for_sleepers(1);
    assert_eq!(counts(&client), [2, 3]);
    api.delete(&key("a"), &DeleteOptions::default()).unwrap();
    let mut b = api.get(&key("b")).unwrap();
    b.size = 2;
    api.update(&b).unwrap();
    clock.advance(SECOND);
    until!(notice.lock().len() == 6);
    let mut lines = notice.lock().clone();
    lines[..2].sort();
    assert_eq!(lines[..3], ["created a 1", "created b 1", "synced  0"]);
    assert!(lines.contains(&"deleted a 1".to_owned()) && lines.contains(&"updated b 2".to_owned()));
    // A panic of the client does not end the watch either.
    clock.wait_for_sleepers(1);
    clock.advance(2 * SECOND);
    until!(counts(&client) == [4, 5]);
    api.create(&thing("d", 1)).unwrap();
    until!(things.watch().store().get(&key("d")).is_some());
}

#[test]
fn an_object_that_does_not_match_the_type_keeps_its_old_value() {
    let client = flaky([]);
    let api = api(&client);
    let json = |name: &str, size: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": name}, "size": size});
    client.inner.create(&Thing::KIND, json("odd", json!("big"))).unwrap();
    api.create(&thing("even", 1)).unwrap();
    let things = watch(&client).start().unwrap();
    let store = things.watch().store();
    assert!(store.wait_synced(LONG));
    assert_eq!(store.len(), 1);
    client.inner.patch(&Thing::KIND, &key("even"), &Patch::Merge(json!({"size": "big"})), PatchTarget::Object).unwrap();
    client.inner.patch(&Thing::KIND, &key("odd"), &Patch::Merge(json!({"size": 3})), PatchTarget::Object).unwrap();
    until!(store.len() == 2);
    assert_eq!((store.get(&key("even")).unwrap().size, store.get(&key("odd")).unwrap().size), (1, 3));
    client.inner.delete(&Thing::KIND, &key("even"), &DeleteOptions::default()).unwrap();
    until!(store.len() == 1);
}

#[test]
fn a_transformation_drops_fields_before_objects_are_kept() {
    let clock = ManualClock::new();
    // The stream breaks after an event, and then the version is gone.
    let client = flaky([Fault::Break(2), Fault::Gone]);
    let api = Api::<DynamicObject>::of_kind(client.clone(), Thing::KIND);
    let object = |name: &str, size: u32| {
        let object = DynamicObject::new(&Thing::KIND, "default", name).with("size", json!(size));
        object.with("notes", json!("x".repeat(1_000)))
    };
    api.create(&object("a", 1)).unwrap();
    let watch =
        ObjectWatch::new(api.clone()).backoff(Exponential::new(SECOND, SECOND).jitter(0.0)).clock(clock.clock());
    let things = watch.transform(|object| drop(object.fields_mut().remove("notes"))).start().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&events);
    let _subscription =
        things.watch().subscribe(Subscriber::to(&WorkQueue::<u8>::new(), move |event: &Event<_, DynamicObject>| {
            let shown =
                event.value().map(|object| (object.name().to_owned(), Value::from(object.fields().into_owned())));
            to.lock().push((event.kind(), shown));
            None
        }));
    until!(events.lock().len() == 2);
    api.create(&object("b", 2)).unwrap();
    until!(events.lock().len() == 3);
    api.delete(&key("b"), &DeleteOptions::default()).unwrap();
    until!(events.lock().len() == 4);
    // The new list has the same versions, so it causes no events.
    until!(counts(&client)[0] == 2);
    api.create(&object("c", 3)).unwrap();
    until!(events.lock().len() == 5);
    let of = |kind: EventKind, name: &str, size: u32| (kind, Some((name.to_owned(), json!({"size": size}))));
    let expected = [
        of(EventKind::Created, "a", 1),
        (EventKind::Synced, None),
        of(EventKind::Created, "b", 2),
        of(EventKind::Deleted, "b", 2),
        of(EventKind::Created, "c", 3),
    ];
    assert_eq!(*events.lock(), expected);
    assert_eq!(things.watch().store().get(&key("a")).unwrap().get("notes"), None);
    assert!(api.get(&key("a")).unwrap().get("notes").is_some());
}

#[test]
fn a_transformation_that_panics_skips_its_object() {
    let client = flaky([]);
    let api = api(&client);
    for (name, size) in [("even", 2), ("odd", 1)] {
        api.create(&thing(name, size)).unwrap();
    }
    let things =
        watch(&client).transform(|thing| assert!(thing.size % 2 == 0, "{} is odd", thing.size)).start().unwrap();
    let store = things.watch().store();
    assert!(store.wait_synced(LONG));
    assert_eq!(store.keys(), [key("even")]);
    let status = things.watch().source().status();
    assert_eq!(status.undecodable, 1);
    assert!(status.undecodable_error.unwrap().contains("the transformation panicked: 1 is odd"));
    let mut odd = api.get(&key("odd")).unwrap();
    odd.size = 4;
    api.update(&odd).unwrap();
    until!(store.len() == 2);
    assert_eq!(things.watch().source().status().undecodable, 0);
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Touchy {
    metadata: ObjectMeta,
    #[serde(deserialize_with = "small")]
    size: u32,
}

homeostat_objects::object!(Touchy, namespaced, "example.com", "v1");

fn small<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let size: u32 = serde::Deserialize::deserialize(deserializer)?;
    assert!(size < 10, "{size} is too large");
    Ok(size)
}

#[test]
fn an_object_whose_deserialization_panics_hides_no_other() {
    let client = HookedClient::new(MemoryClient::new());
    let api = Api::<Touchy>::new(client.clone());
    let touchy = |name: &str, size| Touchy { metadata: ObjectMeta::new("default", name), size };
    api.create(&touchy("a", 1)).unwrap();
    let objects = client.inner(&Touchy::KIND);
    let large = DynamicObject::new(&Touchy::KIND, "default", "large").with("size", json!(20));
    objects.create(&large).unwrap();
    let watch = ObjectWatch::new(api.clone()).start().unwrap();
    let store = watch.watch().store();
    assert!(store.wait_synced(LONG));
    assert_eq!(store.keys(), [key("a")]);
    // An event has the same effect as a list.
    objects.create(&DynamicObject::new(&Touchy::KIND, "default", "larger").with("size", json!(30))).unwrap();
    api.create(&touchy("b", 2)).unwrap();
    until!(store.len() == 2);
    assert!(store.get(&key("b")).is_some());
    let status = watch.watch().source().status();
    assert_eq!((status.undecodable, status.failures), (2, 0));
    assert!(status.undecodable_error.unwrap().contains("its deserialization panicked: 30 is too large"));
    objects.delete(&key("larger"), &DeleteOptions::default()).unwrap();
    objects.delete(&key("large"), &DeleteOptions::default()).unwrap();
    until!(watch.watch().source().status().undecodable == 0);
    assert_eq!(client.count("list"), 1);
}

#[test]
fn it_stops_while_it_blocks_on_the_stream() {
    let client = flaky([]);
    let mut things = watch(&client).start().unwrap();
    until!(counts(&client) == [1, 1]);
    assert!(things.join_timeout(Duration::ZERO).is_err());
    things.stop();
    things.join_timeout(LONG).unwrap();
    assert!(things.watch().is_stopped());

    // It also stops while it waits for a retry.
    let client = flaky([Fault::List]);
    let things = watch(&client).backoff(Exponential::new(LONG * 60, LONG * 60)).start().unwrap();
    until!(counts(&client) == [1, 0]);
    drop(things);
}

#[test]
fn controllers_share_the_watch_of_a_manager() {
    let client = flaky([]);
    let manager = Manager::builder().build().unwrap();
    let start = || -> Result<Running<Watch<ObjectKey, Thing>>, _> { watch(&client).name("things").start() };
    let seen: [Arc<Mutex<Vec<String>>>; 2] = Default::default();
    for (name, seen) in ["one", "two"].into_iter().zip(&seen) {
        let things = manager.watch("things", start).unwrap();
        let seen = Arc::clone(seen);
        let reconcile = move |_cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
            seen.lock().push(key.to_string());
            Ok(Action::await_change())
        };
        let controller =
            Controller::builder(name, reconcile).subscribe(&things, Subscriber::to_itself).build().unwrap();
        manager.add(controller).unwrap();
    }
    let running = manager.start().unwrap();
    api(&client).create(&thing("a", 1)).unwrap();
    until!(seen.iter().all(|seen| *seen.lock() == ["default/a"]));
    until!(counts(&client) == [1, 1]);
    manager.stop();
    running.join().unwrap();
}

/// Writers change objects, and a stream keeps breaking. In the end, the store equals the client, and the size of each
/// object has only risen.
#[test]
fn no_change_is_missed_despite_failures() {
    let faults = (0..200).map(|number| match number % 5 {
        0 => Fault::Gone,
        1 => Fault::End(number % 7 + 1),
        2 => Fault::List,
        _ => Fault::Break(number % 11),
    });
    let client = flaky(faults);
    let things = watch(&client).backoff(Exponential::new(Duration::ZERO, Duration::ZERO)).start().unwrap();
    let order = Arc::new(Mutex::new(std::collections::HashMap::<ObjectKey, u32>::new()));
    let sizes = Arc::clone(&order);
    let subscription = things.watch().subscribe(listener(move |event| {
        if let (Some(key), Some(thing)) = (event.key(), event.value()) {
            let mut sizes = sizes.lock();
            let known = sizes.entry(key.clone()).or_default();
            assert!(*known <= thing.size);
            *known = thing.size;
        }
    }));
    let subscription = subscription.unwrap();
    let api = api(&client);
    thread::scope(|scope| {
        for writer in 0..4_u32 {
            let api = api.clone();
            scope.spawn(move || {
                for round in 0..150 {
                    let name = format!("t-{writer}-{}", round % 5);
                    match api.get(&key(&name)) {
                        Err(_) => drop(api.create(&thing(&name, round)).unwrap()),
                        Ok(_) if round % 13 == 0 => drop(api.delete(&key(&name), &DeleteOptions::default()).unwrap()),
                        Ok(mut thing) => {
                            thing.size = round;
                            api.update(&thing).unwrap();
                        }
                    }
                }
            });
        }
    });
    let store = things.watch().store();
    until!({
        let there = api.list(&Query::all()).unwrap().items;
        there.len() == store.len()
            && there.iter().all(|thing| store.get(&thing.key()).is_some_and(|known| *known == *thing))
    });
    assert_eq!(subscription.panics(), 0);
    assert!(!order.lock().is_empty());
}

/// Returns a manager with this watch on this clock. It is not ready once a source has failed for ten seconds.
fn managed(clock: &ManualClock, things: Running<Watch<ObjectKey, Thing>>) -> (Manager, Running<Manager>) {
    let manager = Manager::builder().clock(clock.clock()).threads(1).unready_after(10 * SECOND).build().unwrap();
    manager.add(things).unwrap();
    let running = manager.start().unwrap();
    (manager, running)
}

#[test]
fn a_client_that_cannot_list_makes_the_source_fail() {
    let clock = ManualClock::new();
    let client = flaky([Fault::List, Fault::List, Fault::List]);
    let things = watch(&client).name("things").clock(clock.clock()).start().unwrap();
    let (manager, running) = managed(&clock, things);
    let source = manager.source("things").unwrap();
    for (failures, wait) in [(1, 1), (2, 2), (3, 4)] {
        until!(source.status().failures == failures);
        let report = manager.ready().to_string();
        assert!(
            report.starts_with("things: its first listing has not completed (failing for ")
                && report.contains("the line is cut")
        );
        // The watch, the pool with its watchdog, and the driver.
        clock.wait_for_sleepers(4);
        clock.advance(wait * SECOND);
    }
    until!(source.status().synced && source.status().failing_for.is_none());
    assert!(manager.ready().is_ok() && source.status().last_error.unwrap().contains("the line is cut"));
    assert!(!source.trigger(), "it follows a stream");
    manager.stop();
    running.join().unwrap();
}

#[test]
fn live_names_a_listing_of_objects_that_hangs() {
    let clock = ManualClock::new();
    let (go_on, hang) = bounded(0);
    let client = flaky([Fault::Hang(hang)]);
    let things = watch(&client).name("things").list_timeout(20 * SECOND).clock(clock.clock()).start().unwrap();
    let (manager, running) = managed(&clock, things);
    until!(counts(&client)[0] == 1);
    clock.advance(19 * SECOND);
    assert!(manager.live().is_ok());
    clock.advance(SECOND);
    let expected = "things: a listing has been running for 20s, past its deadline";
    assert_eq!(manager.live().to_string(), expected);
    drop(go_on);
    until!(manager.live().is_ok());
    until!(manager.ready().is_ok());
    manager.stop();
    running.join().unwrap();
}

#[test]
fn a_stream_that_breaks_at_once_is_a_failure_but_a_quiet_one_is_not() {
    for (fault, text) in [(Fault::Break as fn(usize) -> Fault, "the line is cut"), (Fault::End, "without an event")] {
        let clock = ManualClock::new();
        let client = flaky([fault(0), fault(0), fault(0)]);
        let things = watch(&client).name("things").clock(clock.clock()).start().unwrap();
        let (manager, running) = managed(&clock, things);
        let source = manager.source("things").unwrap();
        for (failures, wait) in [(1, 1), (2, 2), (3, 4)] {
            until!(source.status().failures_in_a_row == failures);
            assert!(source.status().synced && source.status().last_error.unwrap().contains(text));
            clock.wait_for_sleepers(4);
            let status = source.status();
            assert_eq!((status.next_listing, status.period), (Some(wait * SECOND), None));
            clock.advance(wait * SECOND);
        }
        until!(counts(&client) == [1, 4]);
        // It has resumed, but has not delivered anything yet.
        until!(source.status().listing_for.is_none());
        assert_eq!(source.status().failing_for, Some(7 * SECOND));
        clock.advance(4 * SECOND);
        assert!(!manager.ready().is_ok());
        clock.advance(SECOND);
        assert!(manager.ready().is_ok());
        manager.stop();
        running.join().unwrap();
        assert_eq!((source.status().failures, source.status().failures_in_a_row), (3, 0), "a stop is no failure");
    }
}
