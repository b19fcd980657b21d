//! Counts the streams that a call wakes, in tests. In a program this does nothing.
//!
//! Each thread counts its own calls, so that parallel tests do not disturb each other.

#[cfg(test)]
thread_local! {
    static WAKEUPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts a woken stream.
#[inline]
pub(super) fn wakeup() {
    #[cfg(test)]
    WAKEUPS.set(WAKEUPS.get() + 1);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::rules::cost::visits;
    use crate::{Client, DeleteOptions, Kind, MemoryClient, ObjectKey, ObjectStream, Propagation, Query, WatchEvent};
    use homeostat::ManualClock;
    use homeostat::base::CancellationToken;

    const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
    const EVENT: Kind = Kind::namespaced("", "v1", "Event");
    const OTHER: Kind = Kind::namespaced("example.com", "v1", "Other");

    fn visits_of<T>(call: impl FnOnce() -> T) -> usize {
        let before = visits();
        call();
        visits() - before
    }

    fn wakeups_of<T>(call: impl FnOnce() -> T) -> usize {
        let before = WAKEUPS.get();
        call();
        WAKEUPS.get() - before
    }

    fn object(kind: &Kind, namespace: &str, name: &str, owners: &[Value]) -> Value {
        json!({"apiVersion": kind.api_version(), "kind": kind.name(),
            "metadata": {"namespace": namespace, "name": name, "ownerReferences": owners}})
    }

    fn create(client: &MemoryClient, name: &str, owners: &[Value]) -> Value {
        client.create(&THING, object(&THING, "default", name, owners)).unwrap().to_value()
    }

    fn owner(object: &Value, blocks: bool) -> Value {
        json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
            "uid": object["metadata"]["uid"], "blockOwnerDeletion": blocks})
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    fn names(client: &MemoryClient) -> Vec<Value> {
        let list = client.list(&THING, &Query::all()).unwrap();
        list.items.iter().map(|object| object.to_value()["metadata"]["name"].clone()).collect()
    }

    #[test]
    fn creating_an_object_with_a_missing_owner_visits_no_other_object() {
        let visits = |objects: usize| {
            let client = MemoryClient::new();
            for number in 0..objects {
                create(&client, &format!("t-{number}"), &[]);
            }
            let missing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "missing", "uid": "none"});
            visits_of(|| create(&client, "child", &[missing]))
        };
        assert_eq!(visits(1_000), visits(10));
    }

    /// Returns how many objects a deletion visits, which deletes the children or leaves them. `others` are further
    /// owners of each child.
    fn cascade(children: usize, propagation: Propagation, blocks: bool, chained: bool, others: &[Value]) -> usize {
        let client = MemoryClient::new();
        let first = create(&client, "owner", &[]);
        let mut last = first.clone();
        for number in 0..children {
            let mut owners = [&[owner(&first, blocks)], others].concat();
            if chained && number > 0 {
                owners.push(owner(&last, blocks));
            }
            last = create(&client, &format!("child-{number:03}"), &owners);
        }
        let options = DeleteOptions::default().propagation(propagation);
        let visits = visits_of(|| client.delete(&THING, &key("owner"), &options).unwrap());
        let left = if propagation == Propagation::Orphan || !others.is_empty() { children } else { 0 };
        assert_eq!(names(&client).len(), left);
        visits
    }

    #[test]
    fn the_cost_of_a_cascade_is_linear() {
        for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
            for (blocks, chained) in [(false, false), (true, false), (false, true), (true, true)] {
                let visits = [100, 200, 400].map(|children| cascade(children, propagation, blocks, chained, &[]));
                let (hundred, two_hundred) = (visits[1] - visits[0], visits[2] - visits[1]);
                assert!(two_hundred <= 2 * hundred, "{propagation:?} {blocks} {chained}: {visits:?} visits");
            }
        }
    }

    /// Owners of unknown kinds count as existing.
    #[test]
    fn the_cost_of_a_cascade_to_children_with_owners_of_unknown_kinds_is_linear() {
        let unknown = json!({"apiVersion": "example.com/v1", "kind": "Unknown", "name": "u", "uid": "u"});
        for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
            let others = std::slice::from_ref(&unknown);
            let visits = [100, 200, 400].map(|children| cascade(children, propagation, false, false, others));
            let (hundred, two_hundred) = (visits[1] - visits[0], visits[2] - visits[1]);
            assert!(two_hundred <= 2 * hundred, "{propagation:?}: {visits:?} visits");
        }
    }

    #[test]
    fn the_cost_of_blocking_children_is_linear() {
        let visits = |children: usize| {
            let client = MemoryClient::new();
            let first = create(&client, "owner", &[]);
            for number in 0..children {
                let mut child = object(&THING, "default", &format!("child-{number}"), &[owner(&first, true)]);
                child["metadata"]["finalizers"] = json!(["example.com/hold"]);
                client.create(&THING, child).unwrap();
            }
            let foreground = DeleteOptions::default().propagation(Propagation::Foreground);
            client.delete(&THING, &key("owner"), &foreground).unwrap();
            assert_eq!(names(&client).len(), children + 1);
            let visits = visits_of(|| {
                for number in 0..children {
                    let none = crate::Patch::Merge(json!({"metadata": {"finalizers": null}}));
                    let key = key(&format!("child-{number}"));
                    client.patch(&THING, &key, &none, crate::PatchTarget::Object).unwrap();
                }
            });
            assert_eq!(names(&client).len(), 0);
            visits
        };
        assert!(visits(400) <= 4 * visits(100));
    }

    fn event(client: &MemoryClient, number: usize, time: &str) {
        let mut event = object(&EVENT, "default", &format!("e-{number}"), &[]);
        event["lastTimestamp"] = json!(time);
        client.create(&EVENT, event).unwrap();
    }

    #[test]
    fn the_cost_of_a_call_does_not_depend_on_the_number_of_events() {
        let visits = |events: usize| {
            let clock = ManualClock::new();
            let client = MemoryClient::builder().clock(clock.clock()).build();
            for number in 0..events {
                event(&client, number, "1970-01-01T00:00:00Z");
            }
            clock.advance(Duration::from_secs(3_599));
            [
                visits_of(|| create(&client, "thing", &[])),
                visits_of(|| event(&client, events, "1970-01-01T00:00:00Z")),
                visits_of(|| client.get(&EVENT, &key("e-0")).unwrap()),
                visits_of(|| client.list(&EVENT, &Query::all()).unwrap()),
            ]
        };
        assert_eq!(visits(1_000), visits(10));
    }

    #[test]
    fn a_write_visits_each_expired_event_once_and_no_other() {
        let visits = |live: usize, expired: usize| {
            let clock = ManualClock::new();
            let client = MemoryClient::builder().clock(clock.clock()).build();
            for number in 0..live + expired {
                event(&client, number, if number < live { "1970-01-01T00:00:01Z" } else { "1970-01-01T00:00:00Z" });
            }
            clock.advance(Duration::from_secs(3_600));
            let visits = visits_of(|| create(&client, "thing", &[]));
            assert_eq!(client.list(&EVENT, &Query::all()).unwrap().items.len(), live);
            visits
        };
        assert_eq!(visits(1_000, 10), visits(10, 10));
        assert_eq!(visits(10, 400) - visits(10, 200), visits(10, 200) - visits(10, 0));
    }

    #[test]
    fn later_writes_do_not_visit_an_event_with_finalizers() {
        let visits = |held: usize| {
            let clock = ManualClock::new();
            let client = MemoryClient::builder().clock(clock.clock()).build();
            for number in 0..held {
                let mut event = object(&EVENT, "default", &format!("e-{number}"), &[]);
                event["metadata"]["finalizers"] = json!(["example.com/hold"]);
                client.create(&EVENT, event).unwrap();
            }
            clock.advance(Duration::from_secs(3_600));
            create(&client, "one", &[]);
            visits_of(|| create(&client, "two", &[]))
        };
        assert_eq!(visits(100), visits(0));
    }

    fn watch(client: &MemoryClient, kind: &Kind, query: &Query, stop: &CancellationToken) -> ObjectStream {
        let mut stream = client.watch(kind, query, None, stop).unwrap();
        assert!(matches!(stream.next(), Some(Ok(WatchEvent::Bookmark(_)))));
        stream
    }

    #[test]
    fn a_write_wakes_only_watches_of_its_kind_and_namespace() {
        let (client, stop) = (MemoryClient::new(), CancellationToken::new());
        let idle: Vec<_> = (0..100)
            .flat_map(|_| {
                let elsewhere = Query::all().namespace("other");
                [watch(&client, &OTHER, &Query::all(), &stop), watch(&client, &THING, &elsewhere, &stop)]
            })
            .collect();
        let mine = Query::all().namespace("default");
        let mut told = [watch(&client, &THING, &Query::all(), &stop), watch(&client, &THING, &mine, &stop)];
        assert_eq!(wakeups_of(|| create(&client, "a", &[])), 2);
        for told in &mut told {
            assert!(matches!(told.next(), Some(Ok(WatchEvent::Added(_)))));
        }
        // A child that is deleted with its owner wakes the watches of the child's kind.
        let parent = client.create(&OTHER, object(&OTHER, "default", "parent", &[])).unwrap().to_value();
        create(&client, "child", &[owner(&parent, true)]);
        let gone = || client.delete(&OTHER, &key("parent"), &DeleteOptions::default()).unwrap();
        assert_eq!(wakeups_of(gone), 100 + 2);
        drop(idle);
    }

    #[test]
    fn every_watch_is_woken_before_the_history_forgets_its_version() {
        let (client, stop) = (MemoryClient::builder().history(40).build(), CancellationToken::new());
        let mut idle = watch(&client, &OTHER, &Query::all(), &stop);
        let mut wakeups = 0;
        for number in 0..110 {
            if wakeups_of(|| create(&client, &format!("t-{number}"), &[])) > 0 {
                wakeups += 1;
                assert!(matches!(idle.next(), Some(Ok(WatchEvent::Bookmark(_)))), "it continues");
            }
        }
        assert_eq!(wakeups, 10, "once in eleven versions: a quarter of the history, and one more");
    }

    #[test]
    fn ended_watches_are_removed() {
        let (client, stop) = (MemoryClient::new(), CancellationToken::new());
        for query in [Query::all(), Query::all().namespace("default")] {
            let (one, other) = (watch(&client, &THING, &query, &stop), watch(&client, &OTHER, &query, &stop));
            drop(one);
            assert!(!client.server.watchers.lock().is_empty(), "the other stream is still registered");
            drop(other);
            assert!(client.server.watchers.lock().is_empty());
        }
        assert!(client.watch(&THING, &Query::all(), Some("no-version"), &stop).is_err());
        assert!(client.server.watchers.lock().is_empty(), "after a watch that was refused");
        let mut stopped = watch(&client, &THING, &Query::all(), &stop);
        stop.cancel();
        assert!(stopped.next().is_none());
        assert!(client.server.watchers.lock().is_empty(), "after a watch that has ended and is not dropped");
    }
}
