//! Watches, and the watchers and stores of `kube::runtime`.

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

/// Returns a stream of events in words.
async fn watched(sites: &Api<Site>, params: WatchParams, version: &str) -> BoxStream<'static, String> {
    let events = sites.watch(&params, version).await.unwrap();
    events.map_ok(in_words).map(|event| event.unwrap()).boxed()
}

fn in_words<K: ResourceExt>(event: WatchEvent<K>) -> String {
    match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(mark) if mark.metadata.annotations.contains_key("k8s.io/initial-events-end") => {
            "end of the list".to_owned()
        }
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.reason),
    }
}

/// Returns a watcher's events as a stream of texts. A task runs it.
fn follow(sites: Api<Site>, config: watcher::Config) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(watcher::watcher(sites, config).default_backoff().for_each(move |event| {
        let _ = sender.send(match event {
            Ok(watcher::Event::Init) => "list".to_owned(),
            Ok(watcher::Event::InitApply(site)) => format!("listed {}", site.name_any()),
            Ok(watcher::Event::InitDone) => "end of the list".to_owned(),
            Ok(watcher::Event::Apply(site)) => format!("applied {}", site.name_any()),
            Ok(watcher::Event::Delete(site)) => format!("deleted {}", site.name_any()),
            Err(error) => format!("error: {error}"),
        });
        futures::future::ready(())
    }));
    receiver
}

async fn patch(sites: &Api<Site>, name: &str, merge: Value) {
    sites.patch(name, &PatchParams::default(), &Patch::Merge(merge)).await.unwrap();
}

async fn newest(sites: &Api<Site>) -> String {
    sites.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

#[test]
fn a_watch_reports_changes_and_continues_at_a_version() {
    with_door(async |door| {
        let sites = door.sites();
        let params = WatchParams::default().disable_bookmarks();
        let mut events = watched(&sites, params.clone(), &newest(&sites).await).await;
        let first = version(&door.create("a").await);
        assert_eq!(events.next().await.unwrap(), "added a");
        patch(&sites, "a", json!({"spec": {"pages": 2}})).await;
        assert_eq!(events.next().await.unwrap(), "modified a");
        sites.delete("a", &DeleteParams::default()).await.unwrap();
        assert_eq!(events.next().await.unwrap(), "deleted a");
        drop(events);
        door.create("b").await;
        let again = watched(&sites, params, &first).await;
        assert_eq!(again.take(3).collect::<Vec<_>>().await, ["modified a", "deleted a", "added b"]);
    });
}

#[test]
fn a_watch_ends_at_its_time_out() {
    with_door(async |door| {
        door.create("a").await;
        let events = watched(&door.sites(), WatchParams::default().disable_bookmarks().timeout(1), "0").await;
        assert_eq!(events.collect::<Vec<_>>().await, ["added a"]);
    });
}

#[test]
fn a_selection_reports_objects_that_leave_it() {
    with_door(async |door| {
        let sites = door.sites();
        let start = newest(&sites).await;
        for name in ["a", "b"] {
            door.create(name).await;
        }
        patch(&sites, "b", json!({"metadata": {"labels": {"name": "a"}}})).await;
        patch(&sites, "a", json!({"metadata": {"labels": null}})).await;
        let labels = WatchParams::default().disable_bookmarks().labels("name=a");
        let events = watched(&sites, labels, &start).await;
        assert_eq!(events.take(3).collect::<Vec<_>>().await, ["added a", "added b", "deleted a"]);
        let fields = WatchParams::default().disable_bookmarks().fields("metadata.name=b");
        let events = watched(&sites, fields, &start).await;
        assert_eq!(events.take(2).collect::<Vec<_>>().await, ["added b", "modified b"]);
    });
}

#[test]
fn a_bookmark_ends_a_streamed_list() {
    with_door(async |door| {
        let sites = door.sites();
        for name in ["a", "b"] {
            door.create(name).await;
        }
        let mut events = watched(&sites, WatchParams::streaming_lists(), "0").await;
        let mut list = [events.next().await.unwrap(), events.next().await.unwrap()];
        list.sort();
        assert_eq!(list, ["added a", "added b"]);
        assert_eq!(events.next().await.unwrap(), "end of the list");
        let metadata = sites.watch_metadata(&WatchParams::streaming_lists().labels("name=b"), "0").await.unwrap();
        let metadata: Vec<_> = metadata.map_ok(in_words).take(2).try_collect().await.unwrap();
        assert_eq!(metadata, ["added b", "end of the list"]);
    });
}

#[test]
fn a_watch_of_a_version_that_is_too_old_ends_with_an_error() {
    with_door(async |door| {
        door.create("a").await;
        let events = watched(&door.sites(), WatchParams::default(), "1").await;
        assert_eq!(events.collect::<Vec<_>>().await, ["error 410 Expired"]);
    });
}

#[test]
fn watchers_list_and_then_watch() {
    with_door(async |door| {
        let sites = door.sites();
        for name in ["a", "b", "c"] {
            door.create(name).await;
        }
        for config in [
            watcher::Config::default().page_size(2),
            watcher::Config::default().any_semantic(),
            watcher::Config::default().streaming_lists(),
        ] {
            let what = format!("{config:?}");
            let mut events = follow(sites.clone(), config);
            let mut list = Vec::new();
            while list.last().is_none_or(|last| last != "end of the list") {
                list.push(events.recv().await.unwrap());
            }
            list[1..4].sort();
            assert_eq!(list, ["list", "listed a", "listed b", "listed c", "end of the list"], "{what}");
            door.create("d").await;
            assert_eq!(events.recv().await.unwrap(), "applied d", "{what}");
            sites.delete("d", &DeleteParams::default()).await.unwrap();
            assert_eq!(events.recv().await.unwrap(), "deleted d", "{what}");
        }
    });
}

#[test]
fn a_watcher_continues_when_its_watch_has_ended() {
    with_door(async |door| {
        let mut events = follow(door.sites(), watcher::Config::default().timeout(1));
        assert_eq!(events.recv().await.unwrap(), "list");
        assert_eq!(events.recv().await.unwrap(), "end of the list");
        let mut watches = door.watches.clone();
        for (name, watch) in [("a", 2), ("b", 3)] {
            watches.wait_for(|count| *count >= watch).await.unwrap();
            door.create(name).await;
            assert_eq!(events.recv().await.unwrap(), format!("applied {name}"));
        }
    });
}

#[test]
fn a_store_holds_the_objects() {
    with_door(async |door| {
        let sites = door.sites();
        door.create("a").await;
        let (store, writer) = reflector::store();
        // Without a pause after errors, its task never lets go of its thread once the server has stopped.
        let stream = watcher::watcher(sites.clone(), watcher::Config::default()).default_backoff();
        let mut touched = reflector::reflector(writer, stream).touched_objects().boxed();
        assert_eq!(touched.try_next().await.unwrap().unwrap().name_any(), "a");
        tokio::spawn(touched.for_each(|_| futures::future::ready(())));
        store.wait_until_ready().await.unwrap();
        let a = store.get(&ObjectRef::new("a").within("default")).unwrap();
        assert_eq!(*a, sites.get("a").await.unwrap());
    });
}

#[test]
fn conditions_are_waited_for() {
    with_door(async |door| {
        let sites = door.sites();
        let wait = tokio::spawn(await_condition(sites.clone(), "a", conditions::is_created()));
        let uid = door.create("a").await.uid().unwrap();
        assert_eq!(wait.await.unwrap().unwrap().unwrap().uid().as_ref(), Some(&uid));
        sites.delete("a", &DeleteParams::default()).await.unwrap();
        assert!(await_condition(sites, "a", conditions::is_deleted(&uid)).await.unwrap().is_none());
    });
}
