//! The expiry of events in the embedded clients, as in an API server.

use std::time::Duration;

use homeostat::{CancellationToken, ManualClock};
use homeostat_objects::{Client, DeleteOptions, Kind, MemoryClient, ObjectKey, Patch, PatchTarget, Query, WatchEvent};
use serde_json::{Value, json};

const EVENT: Kind = Kind::namespaced("", "v1", "Event");
const NEW_EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event");
const OTHER_EVENT: Kind = Kind::namespaced("example.com", "v1", "Event");
const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");

const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;

fn memory(clock: &ManualClock) -> MemoryClient {
    MemoryClient::builder().clock(clock.clock()).build()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn create(client: &impl Client, kind: &Kind, name: &str, mut fields: Value) {
    let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.name(),
        "metadata": {"namespace": "default", "name": name}});
    object.as_object_mut().unwrap().append(fields.as_object_mut().unwrap());
    client.create(kind, object).unwrap();
}

fn names(client: &impl Client, kind: &Kind) -> Vec<String> {
    let list = client.list(kind, &Query::all()).unwrap();
    list.items.iter().map(|object| object.to_value()["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn version(client: &impl Client) -> u64 {
    client.list(&THING, &Query::all()).unwrap().version.parse().unwrap()
}

#[test]
fn an_event_expires_an_hour_after_the_latest_of_its_times() {
    let clock = ManualClock::new();
    let client = memory(&clock);
    let time = "1970-01-01T00:30:00.000000Z";
    for kind in [EVENT, NEW_EVENT] {
        create(&client, &kind, "created", json!({"lastTimestamp": null, "eventTime": "no time"}));
        create(&client, &kind, "event-time", json!({"eventTime": time}));
        create(&client, &kind, "last", json!({"lastTimestamp": time, "eventTime": "1970-01-01T00:00:00Z"}));
        create(&client, &kind, "last-deprecated", json!({"deprecatedLastTimestamp": time}));
        create(&client, &kind, "series", json!({"series": {"count": 3, "lastObservedTime": time}, "eventTime": null}));
    }
    create(&client, &OTHER_EVENT, "other", json!({"lastTimestamp": time}));
    create(&client, &THING, "thing", json!({"lastTimestamp": time}));

    let later = ["event-time", "last", "last-deprecated", "series"];
    clock.advance(Duration::from_secs(HOUR - 1));
    for kind in [EVENT, NEW_EVENT] {
        assert_eq!(names(&client, &kind).len(), 5, "{kind}");
        assert!(client.get(&kind, &key("created")).is_ok());
    }
    clock.advance(Duration::from_secs(1));
    for kind in [EVENT, NEW_EVENT] {
        assert!(client.get(&kind, &key("created")).unwrap_err().is_not_found());
        assert_eq!(names(&client, &kind), later, "{kind}");
    }
    clock.advance(Duration::from_secs(30 * MINUTE - 1));
    assert_eq!(names(&client, &EVENT), later);
    clock.advance(Duration::from_secs(1));
    for kind in [EVENT, NEW_EVENT] {
        assert!(names(&client, &kind).is_empty(), "{kind}");
    }
    assert_eq!((names(&client, &OTHER_EVENT).len(), names(&client, &THING).len()), (1, 1), "these are no events");
}

#[test]
fn the_lifetime_of_events_can_be_set() {
    let clock = ManualClock::new();
    let of = |ttl| MemoryClient::builder().clock(clock.clock()).event_ttl(ttl).build();
    let (short, endless) = (of(Duration::from_secs(5 * MINUTE)), of(Duration::MAX));
    for client in [&short, &endless] {
        create(client, &EVENT, "a", json!({}));
    }
    clock.advance(Duration::from_secs(5 * MINUTE - 1));
    assert_eq!(names(&short, &EVENT), ["a"]);
    clock.advance(Duration::from_secs(1));
    assert!(names(&short, &EVENT).is_empty());
    clock.advance(Duration::from_secs(1_000_000 * HOUR));
    create(&endless, &THING, "thing", json!({}));
    assert_eq!(names(&endless, &EVENT), ["a"]);
}

#[test]
fn an_event_that_happens_again_lives_an_hour_from_then() {
    let clock = ManualClock::new();
    let client = memory(&clock);
    create(&client, &EVENT, "a", json!({"count": 1, "lastTimestamp": "1970-01-01T00:00:00Z"}));
    for minutes in [50, 100, 150] {
        clock.advance(Duration::from_secs(50 * MINUTE));
        let last = format!("1970-01-01T{:02}:{:02}:00Z", minutes / 60, minutes % 60);
        let patch = Patch::Merge(json!({"count": minutes, "lastTimestamp": last}));
        client.patch(&EVENT, &key("a"), &patch, PatchTarget::Object).unwrap();
    }
    clock.advance(Duration::from_secs(HOUR - 1));
    create(&client, &THING, "one", json!({}));
    assert_eq!(names(&client, &EVENT), ["a"]);
    clock.advance(Duration::from_secs(1));
    let patch = Patch::Merge(json!({"count": 7}));
    assert!(client.patch(&EVENT, &key("a"), &patch, PatchTarget::Object).unwrap_err().is_not_found(), "it is too late");
    create(&client, &EVENT, "a", json!({"count": 8}));
    assert_eq!(client.get(&EVENT, &key("a")).unwrap().to_value()["count"], 8);
}

#[test]
fn the_next_write_deletes_expired_events_and_watches_see_it() {
    let (clock, stop) = (ManualClock::new(), CancellationToken::new());
    let client = memory(&clock);
    create(&client, &EVENT, "a", json!({}));
    create(&client, &EVENT, "b", json!({"eventTime": "1970-01-01T00:00:01Z"}));
    let now = version(&client).to_string();
    let mut watch = client.watch(&EVENT, &Query::all(), Some(&now), &stop).unwrap();
    clock.advance(Duration::from_secs(HOUR));
    assert_eq!(version(&client).to_string(), now, "time alone changes nothing");
    create(&client, &THING, "one", json!({}));
    let Some(Ok(WatchEvent::Deleted(gone))) = watch.next() else { panic!("no deletion") };
    assert_eq!((gone.name(), gone.is_deleting()), ("a", false));

    // A reader sees the same as a watch.
    clock.advance(Duration::from_secs(1));
    assert!(client.get(&EVENT, &key("b")).unwrap_err().is_not_found());
    assert!(matches!(watch.next(), Some(Ok(WatchEvent::Deleted(gone))) if gone.to_value()["metadata"]["name"] == "b"));
    let mut first = client.watch(&EVENT, &Query::all(), None, &stop).unwrap();
    assert!(matches!(first.next(), Some(Ok(WatchEvent::Bookmark(_)))), "a new watch begins without them");
}

#[test]
fn a_watch_begins_without_expired_events() {
    let (clock, stop) = (ManualClock::new(), CancellationToken::new());
    let client = memory(&clock);
    create(&client, &EVENT, "a", json!({}));
    clock.advance(Duration::from_secs(HOUR));
    let mut watch = client.watch(&EVENT, &Query::all(), None, &stop).unwrap();
    assert!(matches!(watch.next(), Some(Ok(WatchEvent::Bookmark(_)))));
}

#[test]
fn finalizers_hold_an_expired_event_too() {
    let clock = ManualClock::new();
    let client = memory(&clock);
    let metadata = json!({"namespace": "default", "name": "a", "finalizers": ["example.com/hold"]});
    create(&client, &EVENT, "a", json!({"metadata": metadata}));
    clock.advance(Duration::from_secs(2 * HOUR));
    let held = client.get(&EVENT, &key("a")).unwrap();
    assert_eq!(held.to_value()["metadata"]["deletionTimestamp"], "1970-01-01T02:00:00Z");
    clock.advance(Duration::from_secs(2 * HOUR));
    assert_eq!(client.get(&EVENT, &key("a")).unwrap(), held, "it is deleted once");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    client.patch(&EVENT, &key("a"), &release, PatchTarget::Object).unwrap();
    assert!(names(&client, &EVENT).is_empty());
}

#[test]
fn a_deleted_event_does_not_expire_again() {
    let clock = ManualClock::new();
    let client = memory(&clock);
    create(&client, &EVENT, "a", json!({}));
    client.delete(&EVENT, &key("a"), &DeleteOptions::default()).unwrap();
    let before = version(&client);
    clock.advance(Duration::from_secs(2 * HOUR));
    create(&client, &THING, "one", json!({}));
    assert_eq!(version(&client), before + 1);
}

#[cfg(feature = "file-client")]
#[test]
fn opening_a_file_deletes_expired_events() {
    use homeostat_objects::FileClient;

    let clock = ManualClock::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let open = || FileClient::builder().clock(clock.clock()).open(&path).unwrap();
    let client = open();
    create(&client, &EVENT, "a", json!({}));
    create(&client, &EVENT, "b", json!({"lastTimestamp": "1970-01-01T00:30:00Z"}));
    create(&client, &THING, "thing", json!({}));
    let before = version(&client);
    drop(client);

    clock.advance(Duration::from_secs(HOUR));
    let client = open();
    assert_eq!(version(&client), before + 1, "opening deletes them");
    assert_eq!((names(&client, &EVENT), names(&client, &THING)), (vec!["b".to_owned()], vec!["thing".to_owned()]));
    drop(client);

    let client = open();
    assert_eq!(version(&client), before + 1, "they are deleted in the file");
    clock.advance(Duration::from_secs(30 * MINUTE));
    assert!(names(&client, &EVENT).is_empty(), "events that were read from the file expire like others");
}

#[test]
fn many_events_that_expire_at_once_do_not_end_the_watches_of_other_kinds() {
    let (clock, stop) = (ManualClock::new(), CancellationToken::new());
    let client = MemoryClient::builder().clock(clock.clock()).history(40).build();
    for number in 0..100 {
        create(&client, &EVENT, &format!("e-{number}"), json!({}));
    }
    let now = version(&client).to_string();
    let mut watch = client.watch(&THING, &Query::all(), Some(&now), &stop).unwrap();
    clock.advance(Duration::from_secs(HOUR));
    for name in ["a", "b", "c", "d", "e", "f"] {
        create(&client, &THING, name, json!({}));
        let next = watch.find(|notice| !matches!(notice, Ok(WatchEvent::Bookmark(_))));
        assert!(
            matches!(&next, Some(Ok(WatchEvent::Added(thing))) if thing.to_value()["metadata"]["name"] == name),
            "{next:?}"
        );
    }
    assert!(names(&client, &EVENT).is_empty());
}

#[test]
fn a_read_finds_no_expired_event_even_with_a_short_history() {
    for history in [0, 1, 7] {
        let clock = ManualClock::new();
        let client = MemoryClient::builder().clock(clock.clock()).history(history).build();
        for number in 0..20 {
            create(&client, &EVENT, &format!("e-{number}"), json!({}));
        }
        clock.advance(Duration::from_secs(HOUR));
        assert!(names(&client, &EVENT).is_empty(), "a history of {history}");
    }
}
