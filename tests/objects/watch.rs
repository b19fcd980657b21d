//! Watches of a client's objects, through failures, new listings and stops.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use homeostat::objects::{
    Api, Client, ClientError, DeleteOptions, Kind, MemoryClient, Object, ObjectKey, ObjectList, ObjectMeta, ObjectRef,
    ObjectStream, ObjectWatch, Patch, PatchTarget, Query, WatchEvent,
};
use homeostat::watch::EventKind;
use homeostat::{
    Action, BoxError, CancellationToken, Context, Controller, Event, Exponential, Manager, ManualClock, Predicate,
    RunningManager, Subscriber, Watch, WorkQueue,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::clients::hand_on;
use homeostat::Running;

const LONG: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Thing {
    metadata: ObjectMeta,
    size: u32,
}

homeostat::object!(Thing, namespaced, "example.com", "v1");

fn thing(name: &str, size: u32) -> Thing {
    Thing { metadata: ObjectMeta::new("default", name), size }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A failure of a [`Flaky`] client.
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

/// A client with lists and watches that fail in the given order.
struct Flaky {
    inner: MemoryClient,
    faults: Mutex<VecDeque<Fault>>,
    lists: AtomicUsize,
    watches: AtomicUsize,
}

impl Flaky {
    fn new(faults: impl IntoIterator<Item = Fault>) -> Arc<Self> {
        let faults = Mutex::new(faults.into_iter().collect());
        Arc::new(Self { inner: MemoryClient::new(), faults, lists: AtomicUsize::new(0), watches: AtomicUsize::new(0) })
    }

    fn api(&self) -> Api<Thing> {
        Api::new(Arc::new(self.inner.clone()))
    }

    fn counts(&self) -> [usize; 2] {
        [&self.lists, &self.watches].map(|count| count.load(Ordering::SeqCst))
    }

    fn fault(&self, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let mut faults = self.faults.lock();
        if faults.front().is_some_and(wanted) { faults.pop_front() } else { None }
    }
}

fn error(kind: &Kind) -> ClientError {
    ClientError::transport(ObjectRef::new(kind, &ObjectKey::cluster("")), "the line is cut")
}

impl Client for Flaky {
    hand_on!(self.inner: get, create, update, update_status, patch, apply, delete);

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        match self.fault(|fault| matches!(fault, Fault::List | Fault::Hang(_))) {
            Some(Fault::List) => return Err(error(kind)),
            Some(Fault::Hang(until)) => drop(until.recv()),
            _ => {}
        }
        self.inner.list(kind, query)
    }
    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        self.watches.fetch_add(1, Ordering::SeqCst);
        let stream = self.inner.watch(kind, query, from, stop)?;
        match self.fault(|fault| !matches!(fault, Fault::List | Fault::Hang(_))) {
            None | Some(Fault::List | Fault::Hang(_)) => Ok(stream),
            Some(Fault::Break(after)) => Ok(ObjectStream::new(stream.take(after).chain([Err(error(kind))]))),
            Some(Fault::End(after)) => Ok(ObjectStream::new(stream.take(after))),
            Some(Fault::Bookmarks(count)) => {
                let bookmark = WatchEvent::Bookmark(from.unwrap_or_default().to_owned());
                Ok(ObjectStream::new(vec![Ok(bookmark); count].into_iter()))
            }
            Some(Fault::Quiet(clock, time)) => {
                let bookmark = WatchEvent::Bookmark(from.unwrap_or_default().to_owned());
                Ok(ObjectStream::new(std::iter::once_with(move || {
                    clock.advance(time);
                    Ok(bookmark)
                })))
            }
            Some(Fault::Gone) => {
                let object = ObjectRef::new(kind, &ObjectKey::cluster(""));
                Err(ClientError::gone(object, from.unwrap_or_default()))
            }
            Some(Fault::Panic) => panic!("out of luck"),
        }
    }
}

fn watch(client: &Arc<Flaky>) -> ObjectWatch<Thing> {
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
) -> (homeostat::watch::Subscription, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&told);
    let subscription = watch.subscribe(listener(move |event| {
        let size = event.value().map_or(0, |thing| thing.size);
        let key = event.key().map_or("", ObjectKey::name);
        if key != last || event.kind() == EventKind::Deleted {
            to.lock().push(format!("{} {key} {size}", event.kind()));
        }
    }));
    (subscription.unwrap(), told)
}

/// If it hangs, the test runner ends it.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn existing_and_changed_objects_are_delivered() {
    let client = Flaky::new([]);
    let api = client.api();
    api.create(&thing("a", 1)).unwrap();
    let things = watch(&client).start().unwrap();
    assert!(things.watch().store().wait_synced(LONG));
    assert_eq!(things.watch().store().get(&key("a")).unwrap().size, 1);
    let (_subscription, told) = tell(things.watch(), "end");
    until(|| told.lock().len() == 2);
    let mut a = api.get(&key("a")).unwrap();
    a.size = 2;
    api.update(&a).unwrap();
    until(|| told.lock().len() == 3);
    api.create(&thing("b", 3)).unwrap();
    api.delete(&key("b"), &DeleteOptions::default()).unwrap();
    until(|| things.watch().store().len() == 1);
    api.delete(&key("a"), &DeleteOptions::default()).unwrap();
    api.create(&thing("end", 0)).unwrap();
    api.delete(&key("end"), &DeleteOptions::default()).unwrap();
    until(|| told.lock().last().is_some_and(|last| last.contains("end")));
    let told = told.lock().clone();
    assert_eq!(told[..3], ["created a 1", "synced  0", "updated a 2"]);
    assert!(told.contains(&"deleted b 3".to_owned()) && told.contains(&"deleted a 2".to_owned()), "{told:?}");
    assert_eq!(client.counts(), [1, 1]);
}

#[test]
fn the_last_state_of_a_deleted_object_is_delivered() {
    let client = Flaky::new([]);
    let api = client.api();
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
    until(|| *begun.lock() == 2);
    api.purge(&key("held")).unwrap();
    api.delete(&key("other"), &DeleteOptions::default()).unwrap();
    until(|| ends.lock().len() == 2);
    assert_eq!(*ends.lock(), [("held".to_owned(), false, 1), ("other".to_owned(), true, 0)]);
}

#[test]
fn a_generation_predicate_passes_the_request_to_delete() {
    let client = Flaky::new([]);
    let api = client.api();
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
    until(|| things.watch().store().get(&held.key()).is_some_and(|held| held.metadata.is_deleting()));
    assert_eq!(*queue.dequeue_timeout(LONG).unwrap(), held.key());
}

#[test]
fn retries_after_failures_wait_longer_each_time() {
    let clock = ManualClock::new();
    let client = Flaky::new([Fault::List, Fault::List, Fault::List]);
    client.api().create(&thing("a", 1)).unwrap();
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    for (lists, wait) in [(1, 1), (2, 2), (3, 4)] {
        clock.wait_for_sleepers(1);
        assert_eq!(client.counts(), [lists, 0]);
        clock.advance(Duration::from_nanos(wait * 1_000_000_000 - 1));
        clock.wait_for_sleepers(1);
        assert_eq!(client.counts(), [lists, 0], "not before its time");
        assert!(!things.watch().store().has_synced());
        clock.advance(Duration::from_nanos(1));
    }
    until(|| things.watch().store().has_synced());
    until(|| client.counts() == [4, 1]);
}

#[test]
fn a_broken_stream_resumes_where_it_broke() {
    for fault in [Fault::Break as fn(usize) -> Fault, Fault::End] {
        let clock = ManualClock::new();
        // Each stream delivers an event, so the watch does not pause. The last one delivers none.
        let client = Flaky::new([fault(1), fault(2), fault(0)]);
        let api = client.api();
        let things = watch(&client).clock(clock.clock()).start().unwrap();
        let (_subscription, told) = tell(things.watch(), "end");
        until(|| things.watch().store().has_synced());
        for size in 1..=6 {
            api.create(&thing(&format!("t-{size}"), size)).unwrap();
        }
        until(|| client.counts() == [1, 3]);
        // Both the watch and the thread of the subscription sleep.
        clock.wait_for_sleepers(2);
        assert_eq!(things.watch().store().len(), 3);
        clock.advance(SECOND);
        until(|| told.lock().len() == 7);
        let told = told.lock().clone();
        let created = told.iter().filter(|line| line.starts_with("created")).count();
        assert_eq!(created, 6, "each once: {told:?}");
        assert_eq!(client.counts(), [1, 4], "it is not listed again");
    }
}

/// A server that ends each stream after a bookmark is not called in a tight loop.
#[test]
fn streams_with_only_bookmarks_are_reopened_after_growing_pauses() {
    let clock = ManualClock::new();
    let client = Flaky::new([Fault::Bookmarks(1), Fault::Bookmarks(2), Fault::Bookmarks(0), Fault::Bookmarks(1)]);
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    for (watches, wait) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        clock.wait_for_sleepers(1);
        assert_eq!(client.counts(), [1, watches]);
        clock.advance(Duration::from_nanos(wait * 1_000_000_000 - 1));
        clock.wait_for_sleepers(1);
        assert_eq!(client.counts(), [1, watches], "not before its time");
        clock.advance(Duration::from_nanos(1));
    }
    until(|| client.counts() == [1, 5]);
    client.api().create(&thing("a", 1)).unwrap();
    until(|| things.watch().store().len() == 1);
}

/// A client that lists in pages, and forgets each version before the second page.
struct Forgetful {
    inner: MemoryClient,
    lists: Mutex<Vec<(Option<usize>, bool)>>,
    /// Called before a page is returned.
    paging: Box<dyn Fn() + Send + Sync>,
    keeps_versions: bool,
}

impl Client for Forgetful {
    hand_on!(self.inner: get, create, update, update_status, patch, apply, delete, watch);

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        self.lists.lock().push((query.limit, query.continue_token.is_some()));
        (self.paging)();
        if query.continue_token.is_some() && !self.keeps_versions {
            let object = ObjectRef::new(kind, &ObjectKey::cluster(""));
            return Err(ClientError::gone(object, "1"));
        }
        self.inner.list(kind, query)
    }
}

fn forgetful(keeps_versions: bool, paging: impl Fn() + Send + Sync + 'static) -> (Arc<Forgetful>, ObjectWatch<Thing>) {
    let (inner, lists) = (MemoryClient::new(), Mutex::new(Vec::new()));
    let client = Arc::new(Forgetful { inner, lists, paging: Box::new(paging), keeps_versions });
    let shared: Arc<dyn Client> = client.clone();
    let api = Api::<Thing>::new(shared);
    for name in ["a", "b", "c"] {
        api.create(&thing(name, 1)).unwrap();
    }
    (client, ObjectWatch::new(api).query(Query::all().limit(1)))
}

/// The same as in client-go's pager (`tools/pager/pager.go`, `TestListPager_List`, "expired token").
#[test]
fn if_a_page_is_gone_everything_is_listed_without_pages() {
    let (client, things) = forgetful(false, || {});
    let soon = Duration::from_millis(1);
    let things = things.backoff(Exponential::new(soon, soon)).start().unwrap();
    until(|| things.watch().store().has_synced() || client.lists.lock().len() > 3);
    assert_eq!(things.watch().store().len(), 3);
    assert_eq!(*client.lists.lock(), [(Some(1), false), (Some(1), true), (None, false)]);
}

#[test]
fn a_stopped_watch_requests_no_further_page() {
    let (listing, listed) = bounded(0);
    let (go_on, goes_on) = bounded::<()>(0);
    let (client, things) = forgetful(true, move || {
        // If the test has ended, the list goes on.
        let _ = listing.send(());
        let _ = goes_on.recv();
    });
    let things = things.start().unwrap();
    listed.recv().unwrap();
    things.stop();
    drop((listed, go_on));
    things.shutdown(Duration::MAX);
    assert_eq!(*client.lists.lock(), [(Some(1), false)]);
}

/// Some servers end a quiet watch every few minutes.
#[test]
fn a_long_quiet_stream_is_reopened_at_once() {
    let clock = ManualClock::new();
    let client = Flaky::new((0..5).map(|_| Fault::Quiet(clock.clone(), 300 * SECOND)));
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    until(|| client.counts() == [1, 6]);
    client.api().create(&thing("a", 1)).unwrap();
    until(|| things.watch().store().len() == 1);
}

#[test]
fn after_a_gone_version_a_new_list_finds_deletions() {
    let clock = ManualClock::new();
    let client = Flaky::new([Fault::Break(1), Fault::Gone, Fault::Panic]);
    let api = client.api();
    for name in ["a", "b"] {
        api.create(&thing(name, 1)).unwrap();
    }
    let things = watch(&client).clock(clock.clock()).start().unwrap();
    let (_subscription, told) = tell(things.watch(), "end");
    until(|| things.watch().store().has_synced());
    // The stream breaks after this event. Then the version is gone, and the watch pauses.
    api.create(&thing("c", 1)).unwrap();
    clock.wait_for_sleepers(2);
    assert_eq!(client.counts(), [1, 2]);
    api.delete(&key("a"), &DeleteOptions::default()).unwrap();
    let mut b = api.get(&key("b")).unwrap();
    b.size = 2;
    api.update(&b).unwrap();
    clock.advance(SECOND);
    until(|| told.lock().len() == 6);
    let mut lines = told.lock().clone();
    lines[..2].sort();
    assert_eq!(lines[..3], ["created a 1", "created b 1", "synced  0"]);
    assert!(lines.contains(&"deleted a 1".to_owned()) && lines.contains(&"updated b 2".to_owned()));
    // A panic of the client does not end the watch either.
    clock.wait_for_sleepers(2);
    clock.advance(2 * SECOND);
    until(|| client.counts() == [3, 4]);
    api.create(&thing("d", 1)).unwrap();
    until(|| things.watch().store().get(&key("d")).is_some());
}

#[test]
fn an_object_that_does_not_match_the_type_keeps_its_old_value() {
    let client = Flaky::new([]);
    let api = client.api();
    let json = |name: &str, size: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": name}, "size": size});
    client.inner.create(&Thing::KIND, json("odd", json!("big"))).unwrap();
    api.create(&thing("even", 1)).unwrap();
    let things = watch(&client).start().unwrap();
    let store = things.watch().store();
    assert!(store.wait_synced(LONG));
    assert_eq!(store.len(), 1);
    client.inner.patch(&Thing::KIND, &key("even"), &Patch::Merge(json!({"size": "big"})), PatchTarget::Object).unwrap();
    client.inner.patch(&Thing::KIND, &key("odd"), &Patch::Merge(json!({"size": 3})), PatchTarget::Object).unwrap();
    until(|| store.len() == 2);
    assert_eq!((store.get(&key("even")).unwrap().size, store.get(&key("odd")).unwrap().size), (1, 3));
    client.inner.delete(&Thing::KIND, &key("even"), &DeleteOptions::default()).unwrap();
    until(|| store.len() == 1);
}

#[test]
fn it_stops_while_it_blocks_on_the_stream() {
    let client = Flaky::new([]);
    let mut things = watch(&client).start().unwrap();
    until(|| client.counts() == [1, 1]);
    assert!(things.join_timeout(Duration::ZERO).is_err());
    things.stop();
    things.join_timeout(LONG).unwrap();
    assert!(things.watch().is_stopped());

    // It also stops while it waits for a retry.
    let client = Flaky::new([Fault::List]);
    let things = watch(&client).backoff(Exponential::new(LONG * 60, LONG * 60)).start().unwrap();
    until(|| client.counts() == [1, 0]);
    drop(things);
}

#[test]
fn controllers_share_the_watch_of_a_manager() {
    let client = Flaky::new([]);
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
    client.api().create(&thing("a", 1)).unwrap();
    until(|| seen.iter().all(|seen| *seen.lock() == ["default/a"]));
    until(|| client.counts() == [1, 1]);
    manager.stop();
    running.wait().unwrap();
}

/// Writers and a stream that keeps breaking: in the end, the store equals the client, and the sizes of each object only rose.
#[test]
fn no_change_is_missed_despite_failures() {
    let faults = (0..200).map(|number| match number % 5 {
        0 => Fault::Gone,
        1 => Fault::End(number % 7 + 1),
        2 => Fault::List,
        _ => Fault::Break(number % 11),
    });
    let client = Flaky::new(faults);
    let things = watch(&client).backoff(Exponential::new(Duration::ZERO, Duration::ZERO)).start().unwrap();
    let order = Arc::new(Mutex::new(std::collections::HashMap::<ObjectKey, u32>::new()));
    let sizes = Arc::clone(&order);
    let _subscription = things.watch().subscribe(listener(move |event| {
        if let (Some(key), Some(thing)) = (event.key(), event.value()) {
            let mut sizes = sizes.lock();
            let known = sizes.entry(key.clone()).or_default();
            assert!(*known <= thing.size);
            *known = thing.size;
        }
    }));
    let api = client.api();
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
    until(|| {
        let there = api.list(&Query::all()).unwrap().items;
        there.len() == store.len()
            && there.iter().all(|thing| store.get(&thing.key()).is_some_and(|known| *known == *thing))
    });
}

/// Returns a manager with this watch on this clock. It is not ready once a source has failed for ten seconds.
fn managed(clock: &ManualClock, things: Running<Watch<ObjectKey, Thing>>) -> (Manager, RunningManager) {
    let manager = Manager::builder().clock(clock.clock()).threads(1).unready_after(10 * SECOND).build().unwrap();
    manager.add(things).unwrap();
    let running = manager.start().unwrap();
    (manager, running)
}

#[test]
fn a_client_that_cannot_list_makes_the_source_fail() {
    let clock = ManualClock::new();
    let client = Flaky::new([Fault::List, Fault::List, Fault::List]);
    let things = watch(&client).name("things").clock(clock.clock()).start().unwrap();
    let (manager, running) = managed(&clock, things);
    let source = manager.source("things").unwrap();
    for (failures, wait) in [(1, 1), (2, 2), (3, 4)] {
        until(|| source.status().failures == failures);
        let said = manager.ready().to_string();
        assert!(
            said.starts_with("things: its first listing is not in (failing for ") && said.contains("the line is cut")
        );
        // The watch, the pool with its watchdog, and the driver.
        clock.wait_for_sleepers(4);
        clock.advance(wait * SECOND);
    }
    until(|| source.status().synced && source.status().failing_for.is_none());
    assert!(manager.ready().is_ok() && source.status().last_error.unwrap().contains("the line is cut"));
    assert!(!source.trigger(), "it follows a stream");
    manager.stop();
    running.wait().unwrap();
}

#[test]
fn live_names_a_listing_of_objects_that_hangs() {
    let clock = ManualClock::new();
    let (go_on, hang) = bounded(0);
    let client = Flaky::new([Fault::Hang(hang)]);
    let things = watch(&client).name("things").list_timeout(20 * SECOND).clock(clock.clock()).start().unwrap();
    let (manager, running) = managed(&clock, things);
    until(|| client.counts()[0] == 1);
    clock.advance(19 * SECOND);
    assert!(manager.live().is_ok());
    clock.advance(SECOND);
    let expected = "things: a listing has been running for 20s, past its deadline";
    assert_eq!(manager.live().to_string(), expected);
    drop(go_on);
    until(|| manager.live().is_ok());
    until(|| manager.ready().is_ok());
    manager.stop();
    running.wait().unwrap();
}

#[test]
fn a_stream_that_breaks_at_once_is_a_failure_but_a_quiet_one_is_not() {
    for (fault, text) in [(Fault::Break as fn(usize) -> Fault, "the line is cut"), (Fault::End, "without an event")] {
        let clock = ManualClock::new();
        let client = Flaky::new([fault(0), fault(0), fault(0)]);
        let things = watch(&client).name("things").clock(clock.clock()).start().unwrap();
        let (manager, running) = managed(&clock, things);
        let source = manager.source("things").unwrap();
        for (failures, wait) in [(1, 1), (2, 2), (3, 4)] {
            until(|| source.status().failures_in_a_row == failures);
            assert!(source.status().synced && source.status().last_error.unwrap().contains(text));
            clock.wait_for_sleepers(4);
            clock.advance(wait * SECOND);
        }
        until(|| client.counts() == [1, 4]);
        // It has resumed, but has not delivered anything yet.
        until(|| source.status().listing_for.is_none());
        assert_eq!(source.status().failing_for, Some(7 * SECOND));
        clock.advance(4 * SECOND);
        assert!(!manager.ready().is_ok());
        clock.advance(SECOND);
        assert!(manager.ready().is_ok());
        manager.stop();
        running.wait().unwrap();
        assert_eq!((source.status().failures, source.status().failures_in_a_row), (3, 0), "a stop is no failure");
    }
}
