//! Who is told when an object changes that it does not own.

use std::time::Duration;

use homeostat::objects::{DynamicObject, Kind, Object, ObjectKey, ObjectMeta, TrackRef, Tracker};
use homeostat::{Claim, ManualClock, Reasons, Watch, WorkQueue};

static CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
static SECRET: Kind = Kind::namespaced("", "v1", "Secret");
static NODE: Kind = Kind::cluster("", "v1", "Node");
const LEASE: Duration = Duration::from_secs(3600);
const ALMOST: Duration = Duration::from_nanos(3_600_000_000_000 - 1);

fn name(key: &str) -> TrackRef {
    TrackRef::name(key.parse().unwrap())
}

fn labels(namespace: Option<&str>, selector: &str) -> TrackRef {
    TrackRef::selector(namespace, selector.parse().unwrap())
}

fn config_map() -> ObjectMeta {
    ObjectMeta::new("test-namespace", "test-name").label("app", "test")
}

fn held() -> (ManualClock, Tracker<&'static str>) {
    let clock = ManualClock::new();
    let tracker = Tracker::with_clock(LEASE, clock.clock());
    (clock, tracker)
}

/// Who tracks it, in order; asked by metadata and by JSON.
#[track_caller]
fn trackers(tracker: &Tracker<&'static str>, kind: &Kind, meta: &ObjectMeta) -> Vec<&'static str> {
    let mut found = tracker.trackers_of(kind, meta);
    let json = serde_json::json!({"metadata": serde_json::to_value(meta).unwrap()});
    let mut by_json = tracker.trackers_of_json(kind, &json);
    found.sort_unstable();
    by_json.sort_unstable();
    assert_eq!(found, by_json);
    found
}

/// The cases of reconcilerio/runtime's `tracker/enqueue_test.go` (`TestTracker`), on a held clock.
#[test]
fn who_tracks_is_found() {
    static OTHER_GROUP: Kind = Kind::namespaced("fake", "v1", "ConfigMap");
    type Track = (&'static Kind, TrackRef, &'static str);
    let cases: [(&str, Vec<Track>, &[&str]); 14] = [
        ("empty tracker matches nothing", vec![], &[]),
        ("match by name", vec![(&CONFIG_MAP, name("test-namespace/test-name"), "a")], &["a"]),
        (
            "multiple matches by name",
            vec![
                (&CONFIG_MAP, name("test-namespace/test-name"), "a"),
                (&CONFIG_MAP, name("test-namespace/test-name"), "b"),
            ],
            &["a", "b"],
        ),
        ("does not match other names", vec![(&CONFIG_MAP, name("test-namespace/other-name"), "a")], &[]),
        ("does not match other namespaces", vec![(&CONFIG_MAP, name("other-namespace/test-name"), "a")], &[]),
        ("does not match other groups", vec![(&OTHER_GROUP, name("test-namespace/test-name"), "a")], &[]),
        ("does not match other kinds", vec![(&SECRET, name("test-namespace/test-name"), "a")], &[]),
        ("match by selector", vec![(&CONFIG_MAP, labels(None, "app=test"), "a")], &["a"]),
        (
            "match by selector in namespace",
            vec![(&CONFIG_MAP, labels(Some("test-namespace"), "app=test"), "a")],
            &["a"],
        ),
        (
            "no match by selector in wrong namespace",
            vec![(&CONFIG_MAP, labels(Some("other-namespace"), "app=test"), "a")],
            &[],
        ),
        ("no match by selector missing label", vec![(&CONFIG_MAP, labels(None, "app=other"), "a")], &[]),
        (
            "multiple matches by selector",
            vec![(&CONFIG_MAP, labels(None, "app=test"), "a"), (&CONFIG_MAP, labels(None, "app=test"), "b")],
            &["a", "b"],
        ),
        ("no match by selector of another kind", vec![(&SECRET, labels(None, "app=test"), "a")], &[]),
        (
            "by name and by two selectors is once",
            vec![
                (&CONFIG_MAP, name("test-namespace/test-name"), "a"),
                (&CONFIG_MAP, labels(None, "app=test"), "a"),
                (&CONFIG_MAP, labels(None, "app"), "a"),
            ],
            &["a"],
        ),
    ];
    for (case, tracks, expected) in cases {
        let (clock, tracker) = held();
        let count = tracks.len();
        for (kind, what, by) in tracks {
            tracker.track(kind, what, by);
        }
        assert_eq!(
            (trackers(&tracker, &CONFIG_MAP, &config_map()), tracker.len()),
            (expected.to_vec(), count),
            "{case}"
        );
        // "no match by name for expired lease", "no match by selector for expired lease"
        clock.advance(ALMOST);
        assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), expected, "{case}, just before the end");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), [""; 0], "{case}, at the end");
        assert!(tracker.is_empty());
    }
}

#[test]
fn another_version_of_a_kind_is_the_same() {
    let (_, tracker) = held();
    tracker.track(&Kind::namespaced("", "v1beta1", "ConfigMap"), name("test-namespace/test-name"), "a");
    tracker.track(&NODE, name("node-1"), "b");
    assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["a"]);
    assert_eq!(trackers(&tracker, &NODE, &ObjectMeta::new("", "node-1")), ["b"]);
}

#[test]
fn a_track_that_is_made_again_lives_longer() {
    let (clock, tracker) = held();
    for what in [name("test-namespace/test-name"), labels(None, "app=test")] {
        tracker.track(&CONFIG_MAP, what.clone(), "renewed");
        tracker.track(&CONFIG_MAP, what.clone(), "left");
        clock.advance(LEASE / 2);
        tracker.track(&CONFIG_MAP, what, "renewed");
        assert_eq!(tracker.len(), 2);
        clock.advance(LEASE / 2);
        assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["renewed"]);
        assert_eq!(tracker.len(), 1);
        clock.advance(LEASE / 2);
        assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), [""; 0]);
        assert!(tracker.is_empty());
    }
}

/// reconcilerio/runtime purges a reference only when that one is asked for, so others stay for ever.
#[test]
fn what_has_ended_is_forgotten_though_nobody_asks_for_it() {
    let (clock, tracker) = held();
    for number in 0..10 {
        let key = ObjectKey::new("test-namespace", &format!("map-{number}"));
        tracker.track(&CONFIG_MAP, TrackRef::name(key), "a");
        tracker.track(&CONFIG_MAP, labels(None, &format!("app=map-{number}")), "b");
    }
    assert_eq!(tracker.len(), 20);
    clock.advance(LEASE);
    tracker.track(&SECRET, name("test-namespace/other"), "c");
    assert_eq!(tracker.len(), 1);
    tracker.untrack(&"c");
    assert!(tracker.is_empty());
}

#[test]
fn who_is_gone_tracks_nothing() {
    let (clock, tracker) = held();
    for by in ["a", "b"] {
        tracker.track(&CONFIG_MAP, name("test-namespace/test-name"), by);
        tracker.track(&CONFIG_MAP, labels(None, "app=test"), by);
        tracker.track(&SECRET, labels(None, "app=test"), by);
    }
    tracker.untrack(&"a");
    tracker.untrack(&"nobody");
    assert_eq!((trackers(&tracker, &CONFIG_MAP, &config_map()), tracker.len()), (vec!["b"], 3));
    tracker.track(&CONFIG_MAP, labels(None, "app=test"), "a");
    assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["a", "b"]);
    clock.advance(LEASE);
    assert!(tracker.is_empty());
}

#[test]
fn a_lease_may_never_end() {
    let clock = ManualClock::new();
    let tracker = Tracker::with_clock(Duration::MAX, clock.clock());
    tracker.track(&CONFIG_MAP, name("test-namespace/test-name"), "a");
    clock.advance(Duration::from_secs(1 << 33));
    assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["a"]);
}

/// Of an update it matters what was as well as what is: who selected the object before learns that it has gone.
#[test]
fn a_change_calls_who_asked_for_what_was_or_is() {
    let tracker = Tracker::new(LEASE);
    let queue = WorkQueue::new();
    let watch = Watch::<ObjectKey, DynamicObject>::push();
    watch.synced();
    let _subscription = watch.watch().subscribe(tracker.subscriber(&CONFIG_MAP, &queue)).unwrap();
    tracker.track(&CONFIG_MAP, labels(None, "app=test"), "before");
    tracker.track(&CONFIG_MAP, labels(None, "app=other"), "after");
    tracker.track(&CONFIG_MAP, name("a/map"), "always");
    tracker.track(&CONFIG_MAP, labels(Some("b"), "app"), "never");
    tracker.track(&SECRET, name("a/map"), "never");

    let set = |app: &str| {
        let mut map = DynamicObject::new(&CONFIG_MAP, "a", "map");
        map.metadata.labels.insert("app".into(), app.into());
        watch.set(map.key(), map);
    };
    let called = |count: usize, because: Reasons| {
        let claims: Vec<_> = (0..count).map(|_| queue.dequeue().unwrap()).collect();
        let mut called: Vec<_> = claims.iter().map(|claim| **claim).collect();
        assert!(claims.iter().all(|claim| claim.reasons() == because | Reasons::SECONDARY));
        claims.into_iter().for_each(Claim::done);
        called.sort_unstable();
        called
    };
    set("test");
    assert_eq!(called(2, Reasons::CREATED), ["always", "before"]);
    set("other");
    assert_eq!(called(3, Reasons::UPDATED), ["after", "always", "before"]);
    watch.remove(&ObjectKey::new("a", "map"));
    assert_eq!(called(2, Reasons::DELETED), ["after", "always"]);
    assert!(queue.is_empty());
}

/// What it does is counted, not timed: a hundred thousand names, each looked at once.
#[test]
fn a_hundred_thousand_names_are_told_apart() {
    let clock = ManualClock::new();
    let tracker = Tracker::with_clock(LEASE, clock.clock());
    let keys: Vec<_> = (0..100_000).map(|number| ObjectKey::new("a", &format!("map-{number}"))).collect();
    for (by, key) in keys.iter().enumerate() {
        tracker.track(&CONFIG_MAP, TrackRef::name(key.clone()), by);
    }
    for (by, key) in keys.iter().enumerate() {
        assert_eq!(tracker.trackers_of(&CONFIG_MAP, &ObjectMeta::new("a", key.name())), [by]);
    }
    clock.advance(LEASE);
    assert_eq!(tracker.len(), 0);
}
