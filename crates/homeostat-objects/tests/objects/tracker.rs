//! Trackers: which keys a change of another object enqueues.

use homeostat::{Claim, Reasons, Watch, WorkQueue};
use homeostat_objects::{DynamicObject, Kind, Object, ObjectKey, ObjectMeta, TrackRef, Tracker};

static CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
static SECRET: Kind = Kind::namespaced("", "v1", "Secret");
static NODE: Kind = Kind::cluster("", "v1", "Node");

fn name(key: &str) -> TrackRef {
    TrackRef::name(key.parse().unwrap())
}

fn labels(namespace: Option<&str>, selector: &str) -> TrackRef {
    TrackRef::selector(namespace, selector.parse().unwrap())
}

fn config_map() -> ObjectMeta {
    ObjectMeta::new("test-namespace", "test-name").label("app", "test")
}

/// Returns the tracking keys in order, found by metadata and by JSON.
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

/// The cases of reconcilerio/runtime's `tracker/enqueue_test.go` (`TestTracker`), without its leases.
#[test]
fn tracking_keys_are_found() {
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
        let tracker = Tracker::new();
        let count = tracks.len();
        for (kind, what, by) in tracks {
            tracker.track(kind, what, by);
        }
        assert_eq!(
            (trackers(&tracker, &CONFIG_MAP, &config_map()), tracker.len()),
            (expected.to_vec(), count),
            "{case}"
        );
        for by in ["a", "b"] {
            tracker.begin(by).end();
        }
        assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), [""; 0], "{case}, after a run that tracks nothing");
        assert!(tracker.is_empty());
    }
}

#[test]
fn versions_of_a_kind_are_equal() {
    let tracker = Tracker::new();
    tracker.track(&Kind::namespaced("", "v1beta1", "ConfigMap"), name("test-namespace/test-name"), "a");
    tracker.track(&NODE, name("node-1"), "b");
    assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["a"]);
    assert_eq!(trackers(&tracker, &NODE, &ObjectMeta::new("", "node-1")), ["b"]);
}

#[test]
fn a_run_ends_only_the_tracks_of_its_key_that_it_does_not_repeat() {
    let tracker = Tracker::new();
    for what in [name("test-namespace/test-name"), labels(None, "app=test")] {
        for by in ["renewed", "left", "other"] {
            tracker.begin(by).track(&CONFIG_MAP, what.clone());
        }
        let (renewed, left) = (tracker.begin("renewed"), tracker.begin("left"));
        renewed.track(&CONFIG_MAP, what);
        renewed.end();
        left.end();
        assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["other", "renewed"]);
        for by in ["renewed", "other"] {
            tracker.begin(by).end();
        }
        assert!(tracker.is_empty());
    }
}

#[test]
fn a_run_that_fails_ends_no_tracks() {
    let tracker = Tracker::new();
    tracker.track(&CONFIG_MAP, name("test-namespace/test-name"), "a");
    let run = tracker.begin("a");
    run.track(&SECRET, name("test-namespace/test-name"));
    drop(run);
    assert_eq!(trackers(&tracker, &CONFIG_MAP, &config_map()), ["a"]);
    assert_eq!(trackers(&tracker, &SECRET, &config_map()), ["a"]);
}

#[test]
fn a_run_ends_no_tracks_of_another_controller_with_the_same_key() {
    let one = Tracker::new();
    let (other, again) = (one.separate(), one.clone());
    for tracker in [&one, &other] {
        tracker.track(&CONFIG_MAP, name("test-namespace/test-name"), "a");
    }
    assert_eq!((trackers(&one, &CONFIG_MAP, &config_map()), other.len()), (vec!["a"], 2), "it is called once");
    again.begin("a").end();
    assert_eq!((trackers(&one, &CONFIG_MAP, &config_map()), one.len()), (vec!["a"], 1));
    other.untrack(&"a");
    assert!(one.is_empty());
}

#[test]
fn an_untracked_key_has_no_tracks() {
    let tracker = Tracker::new();
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
    for by in ["a", "b"] {
        tracker.untrack(&by);
    }
    assert!(tracker.is_empty());
}

/// An update also enqueues keys that selected the old object, so that they learn that it no longer matches.
#[test]
fn a_change_enqueues_the_keys_that_track_the_old_or_new_object() {
    let tracker = Tracker::new();
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
        map.meta_mut().labels.insert("app".into(), app.into());
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

/// The test counts steps instead of measuring time: a hundred thousand names, each visited once.
#[test]
fn a_hundred_thousand_names_are_distinguished() {
    let tracker = Tracker::new();
    let keys: Vec<_> = (0..100_000).map(|number| ObjectKey::new("a", &format!("map-{number}"))).collect();
    for (by, key) in keys.iter().enumerate() {
        tracker.track(&CONFIG_MAP, TrackRef::name(key.clone()), by);
    }
    for (by, key) in keys.iter().enumerate() {
        assert_eq!(tracker.trackers_of(&CONFIG_MAP, &ObjectMeta::new("a", key.name())), [by]);
    }
    (0..keys.len()).for_each(|by| tracker.begin(by).end());
    assert_eq!(tracker.len(), 0);
}
