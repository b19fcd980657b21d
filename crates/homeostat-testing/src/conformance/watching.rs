//! `watch`: its start, its selectors and its end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fixture::{CaseResult, InPart, NotPassed, ObjectEvent, TestedClient, WatchReader, failed, holds, same};
use super::objects::{WIDGET, ZONE, brief, held, key, meta, version, widget, widget_in, with, without, zone};
use homeostat::base::CancellationToken;
use homeostat_objects::{ClientErrorKind, DeleteOptions, ObjectKey, Query, WatchEvent};

pub(super) fn watch_tells_what_each_call_returned(client: &TestedClient) -> CaseResult {
    let watch = client.watch(&Query::all(), Some(&client.version()?))?;
    let created = client.create(held(widget("a")))?;
    let updated = client.update(with(created.clone(), "/spec/size", json!(2)))?;
    let status = client.update_status(with(updated.clone(), "/status/ready", json!(true)))?;
    let merged = client.merge("a", json!({"spec": {"size": 3}}))?;
    let applied = client.apply(widget("a"), &homeostat_objects::FieldOwner::new("one").force())?;
    let deleting = client.begin_deletion("a")?;
    let last = client.release("a")?;
    let again = client.create(widget("a"))?;
    client.delete("a")?;
    let objects = [
        ("Added", created),
        ("Modified", updated),
        ("Modified", status),
        ("Modified", merged),
        ("Modified", applied),
        ("Modified", deleting),
        ("Deleted", last),
        ("Added", again),
    ];
    for (verb, object) in objects {
        let change = watch.change()?;
        same("event", brief(&change), format!("{verb} default/a"))?;
        // The event of a deletion may have a later version, and show the finalizer that was removed.
        let shown = |object: &Value| if verb == "Deleted" { json!(meta(object, "uid")) } else { object.clone() };
        same(verb, change.object().map(shown), Some(shown(&object)))?;
    }
    same("event", brief(&watch.change()?), "Deleted default/a")
}

pub(super) fn watch_from_no_version_begins_with_all(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let b = client.create(widget_in("other", "b"))?;
    client.create(widget("c"))?;
    client.delete("c")?;
    client.create(zone("z"))?;
    let a = client.update(with(a, "/spec/size", json!(2)))?;
    let watch = client.watch(&Query::all(), None)?;
    let mut first = [watch.event()?, watch.event()?];
    first.sort_by_key(brief);
    same("the existing objects", first, [WatchEvent::Added(a), WatchEvent::Added(b)])?;
    let WatchEvent::Bookmark(bookmark) = watch.event()? else {
        return Err(failed("expected a bookmark after the existing objects"));
    };
    client.create(widget("d"))?;
    watch.expect_changes(&["Added default/d"])?;
    client.watch(&Query::all(), Some(&bookmark))?.expect_changes(&["Added default/d"]).map(drop)
}

pub(super) fn watch_of_nothing_begins_with_a_bookmark(client: &TestedClient) -> CaseResult {
    let watch = client.watch(&Query::all(), None)?;
    let WatchEvent::Bookmark(bookmark) = watch.event()? else {
        return Err(failed("the first event is not a bookmark"));
    };
    let resumed = client.watch(&Query::all(), Some(&bookmark))?;
    client.create(widget("a"))?;
    for watch in [watch, resumed] {
        watch.expect_changes(&["Added default/a"])?;
    }
    Ok(())
}

pub(super) fn watch_is_of_one_kind(client: &TestedClient) -> CaseResult {
    let watch = client.watch(&Query::all(), Some(&client.version()?))?;
    client.create(zone("a"))?;
    client.create(widget("a"))?;
    client.inner.delete(&ZONE, &ObjectKey::cluster("a"), &DeleteOptions::default())?;
    client.create(widget("b"))?;
    watch.expect_changes(&["Added default/a", "Added default/b"]).map(drop)
}

pub(super) fn watch_is_of_a_namespace(client: &TestedClient) -> CaseResult {
    client.create(widget_in("other", "old"))?;
    client.create(widget("old"))?;
    let query = Query::all().namespace("other");
    let (none, from) = (client.watch(&query, None)?, client.watch(&query, Some(&client.version()?))?);
    none.begins_with(&["Added other/old"])?;
    for (namespace, name) in [("default", "a"), ("other", "b"), ("default", "c"), ("other", "d")] {
        client.create(widget_in(namespace, name))?;
    }
    [none, from].iter().try_for_each(|watch| watch.expect_changes(&["Added other/b", "Added other/d"]).map(drop))
}

/// An object that begins to match is added, and an object that no longer matches is deleted.
pub(super) fn watch_selects_by_labels(client: &TestedClient) -> CaseResult {
    let labelled = |name: &str, app: &str| with(widget(name), "/metadata/labels/app", json!(app));
    client.create(labelled("a", "web"))?;
    client.create(labelled("b", "db"))?;
    let query = Query::all().labels("app=web".parse().map_err(failed)?);
    let (none, from) = (client.watch(&query, None)?, client.watch(&query, Some(&client.version()?))?);
    none.begins_with(&["Added default/a"])?;
    client.merge("b", json!({"spec": {"size": 2}}))?;
    let began = client.merge("b", json!({"metadata": {"labels": {"app": "web"}}}))?;
    client.merge("b", json!({"spec": {"size": 3}}))?;
    let ceased = client.merge("a", json!({"metadata": {"labels": {"app": null}}}))?;
    client.merge("a", json!({"spec": {"size": 3}}))?;
    client.delete("a")?;
    client.delete("b")?;
    let began_again = client.create(labelled("a", "web"))?;
    for watch in [none, from] {
        let verbs =
            ["Added default/b", "Modified default/b", "Deleted default/a", "Deleted default/b", "Added default/a"];
        let changes = watch.expect_changes(&verbs)?;
        let objects: Vec<_> = changes.iter().filter_map(WatchEvent::object).collect();
        same("the object that begins to match", objects[0], &began)?;
        same("the version of the object that no longer matches", version(objects[2]), version(&ceased))?;
        same("its labels, as they were when it matched", &objects[2]["metadata"]["labels"], &json!({"app": "web"}))?;
        same("the object that matches again", objects[4], &began_again)?;
    }
    Ok(())
}

pub(super) fn watch_selects_by_fields(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let watch = client.watch(&Query::all().field("status.phase", "Ready").field("spec.size", "2"), None)?;
    watch.begins_with(&[])?;
    client.merge("a", json!({"spec": {"size": 2}}))?;
    client.merge_status("a", json!({"status": {"phase": "Ready"}}))?;
    client.merge_status("a", json!({"status": {"phase": "Ready", "more": 1}}))?;
    client.merge("a", json!({"spec": {"size": 3}}))?;
    client.merge("a", json!({"spec": {"size": 2}}))?;
    client.delete("a")?;
    let verbs = ["Added default/a", "Modified default/a", "Deleted default/a", "Added default/a", "Deleted default/a"];
    watch.expect_changes(&verbs).map(drop)
}

/// Returns the expected events of a watch that starts after `history[..from]`: verb, object and version.
fn due(history: &[ObjectEvent], from: usize, query: &Query) -> Vec<(String, String)> {
    let mut objects: BTreeMap<String, Value> = BTreeMap::new();
    let mut due = Vec::new();
    for (number, event) in history.iter().enumerate() {
        let Some(object) = event.object() else { continue };
        let path = format!("{}/{}", meta(object, "namespace"), meta(object, "name"));
        let was = objects.remove(&path).is_some_and(|object| query.selects(&object));
        let is = !matches!(event, WatchEvent::Deleted(_)) && query.selects(object);
        if !matches!(event, WatchEvent::Deleted(_)) {
            objects.insert(path.clone(), object.clone());
        }
        let verb = match (was, is) {
            (false, false) => continue,
            (false, true) => "Added",
            (true, true) => "Modified",
            (true, false) => "Deleted",
        };
        if number >= from {
            due.push((format!("{verb} {path}"), version(object).to_owned()));
        }
    }
    due
}

/// Creates, changes, deletes and recreates objects. The last object, `z`, matches all queries of the cases.
fn lively(client: &TestedClient) -> CaseResult {
    let labelled =
        |namespace: &str, name: &str, app: &str| with(widget_in(namespace, name), "/metadata/labels/app", json!(app));
    let label = |app: Value| json!({"metadata": {"labels": {"app": app}}});
    client.create(labelled("default", "a", "web"))?;
    client.create(labelled("other", "b", "web"))?;
    client.create(labelled("default", "c", "db"))?;
    client.create(zone("elsewhere"))?;
    client.merge("a", json!({"spec": {"size": 2}}))?;
    client.merge("a", label(json!("db")))?;
    client.merge("c", label(json!("web")))?;
    client.merge_status("c", json!({"status": {"ready": true}}))?;
    client.merge("a", label(json!("web")))?;
    client.merge("a", json!({"spec": {"size": 1}}))?;
    client.delete("c")?;
    client.create(held(labelled("default", "c", "web")))?;
    client.delete("c")?;
    client.merge("c", label(json!(null)))?;
    client.release("c")?;
    client.inner.delete(&WIDGET, &ObjectKey::new("other", "b"), &DeleteOptions::default())?;
    client.create(labelled("default", "c", "web"))?;
    if client.can_purge() {
        client.purge("c")?;
    } else {
        client.delete("c")?;
    }
    client.merge("a", json!({"spec": {"size": 7}}))?;
    client.create(labelled("default", "z", "web"))?;
    Ok(())
}

pub(super) fn watch_resumes_from_every_version(client: &TestedClient) -> CaseResult {
    let start = client.version()?;
    let watch = client.watch(&Query::all(), Some(&start))?;
    lively(client)?;
    let history = watch.changes_until("z")?;
    let mut queries =
        vec![Query::all(), Query::all().namespace("default"), Query::all().labels("app=web".parse().map_err(failed)?)];
    if client.selects_fields() {
        queries
            .push(Query::all().labels("app=web".parse().map_err(failed)?).namespace("default").field("spec.size", "1"));
        queries.push(Query::all().field("status.ready", ""));
    }
    let versions: Vec<_> = history.iter().filter_map(WatchEvent::object).map(version).collect();
    for query in &queries {
        for from in 0..history.len() {
            let at = if from == 0 { &start } else { versions[from - 1] };
            let part = format!("{query:?} from version {at}, after {from} changes");
            let resumed = client.watch(query, Some(at))?;
            let found = resumed.changes_until("z").in_part(&part)?;
            let tuples: Vec<_> = found
                .iter()
                .map(|event| (brief(event), event.object().map_or("", |object| version(object)).to_owned()))
                .collect();
            same(&part, &tuples, &due(&history, from, query))?;
            if *query == Query::all() {
                same(&part, &found[..], &history[from..])?;
            }
        }
    }
    Ok(())
}

pub(super) fn watch_from_now_tells_what_is_next(client: &TestedClient) -> CaseResult {
    lively(client)?;
    let (now, items) = client.list(&Query::all())?;
    holds("the list has objects", !items.is_empty())?;
    let watch = client.watch(&Query::all(), Some(&now))?;
    client.create(zone("next"))?;
    let next = client.create(widget("next"))?;
    same("the next change", watch.change()?, WatchEvent::Added(next))
}

/// The versions `"0"` and `""` mean any version: the watch begins with the existing objects.
pub(super) fn watch_from_any_version_begins_with_all(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let a = client.merge("a", json!({"spec": {"size": 2}}))?;
    client.create(widget("b"))?;
    client.delete("b")?;
    let watch = [client.watch(&Query::all(), Some("0"))?, client.watch(&Query::all(), Some(""))?];
    for watch in &watch {
        same("the first change", watch.change()?, WatchEvent::Added(a.clone()))?;
    }
    client.create(widget("c"))?;
    watch.iter().try_for_each(|watch| watch.expect_changes(&["Added default/c"]).map(drop))
}

pub(super) fn watch_ends_when_it_is_stopped(client: &TestedClient) -> CaseResult {
    let (watch, other) = (client.watch(&Query::all(), None)?, client.watch(&Query::all(), None)?);
    client.create(widget("a"))?;
    for watch in [&watch, &other] {
        watch.expect_changes(&["Added default/a"])?;
    }
    // The reader is blocked, or is about to block.
    watch.stop.cancel();
    loop {
        match watch.item()? {
            None => break,
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(other) => return Err(failed(format_args!("a stopped watch has an event: {other:?}"))),
        }
    }
    client.create(widget("b"))?;
    other.expect_changes(&["Added default/b"]).map(drop)
}

pub(super) fn watch_that_is_stopped_before_it_begins_ends(client: &TestedClient) -> CaseResult {
    let stop = CancellationToken::new();
    stop.cancel();
    let watch = WatchReader::of(client.inner.watch(&WIDGET, &Query::all(), Some(&client.version()?), &stop)?, stop)?;
    match watch.item()? {
        None => Ok(()),
        Some(item) => Err(failed(format_args!("the stopped watch has an event: {item:?}"))),
    }
}

/// Changes one object this many times. Returns its versions, beginning with the one before the changes.
pub(super) fn many_changes(client: &TestedClient, changes: usize) -> CaseResult<Vec<String>> {
    let created = client.create(with(widget("a"), "/spec/size", json!(-1)))?;
    let mut versions = vec![version(&created).to_owned()];
    for size in 0..changes {
        versions.push(version(&client.merge("a", json!({"spec": {"size": size}}))?).to_owned());
    }
    Ok(versions)
}

/// Returns the length of the history. Skips the case if it is unknown or too long to exceed.
pub(super) fn limit(client: &TestedClient) -> CaseResult<usize> {
    match client.history {
        None => Err(NotPassed::Skipped("the length of the history is unknown".to_owned())),
        Some(history) if history > 5000 => {
            Err(NotPassed::Skipped(format!("the history of {history} changes is too long for the case")))
        }
        Some(history) => Ok(history),
    }
}

pub(super) fn watch_from_before_the_history_is_gone(client: &TestedClient) -> CaseResult {
    let history = limit(client)?;
    let versions = many_changes(client, 2 * history + 2)?;
    let oldest = &versions[versions.len() - 1 - history];
    let stop = CancellationToken::new();
    let watch = WatchReader::of(client.inner.watch(&WIDGET, &Query::all(), Some(oldest), &stop)?, stop)?;
    for expected in &versions[versions.len() - history..] {
        let change = watch.change()?;
        same("version", change.object().map(version), Some(&**expected))?;
    }
    for query in [Query::all(), Query::all().namespace("default"), Query::all().field("metadata.name", "none")] {
        let stop = CancellationToken::new();
        let error = match client.inner.watch(&WIDGET, &query, Some(&versions[0]), &stop) {
            Err(error) => error,
            Ok(stream) => {
                let watch = WatchReader::of(stream, stop)?;
                let Some(Err(error)) = watch.item()? else {
                    return Err(failed("the watch has an event, expected an error"));
                };
                same("whether an item follows the error", watch.item()?.is_some(), false)?;
                error
            }
        };
        let ClientErrorKind::Gone { version, .. } = error.kind() else {
            return Err(failed(format_args!("expected Gone: {error}")));
        };
        same("the version of the error", version, &versions[0])?;
        holds(&format!("{error} names the kind"), error.to_string().contains("Widget"))?;
    }
    let stop = CancellationToken::new();
    let watch = WatchReader::of(client.inner.watch(&WIDGET, &Query::all(), None, &stop)?, stop)?;
    watch.expect_changes(&["Added default/a"]).map(drop)
}

/// A slow reader gets either all events or the error `Gone`.
pub(super) fn watch_that_lags_misses_nothing_unsaid(client: &TestedClient) -> CaseResult {
    let history = client.history.map_or(1000, |history| history.min(5000));
    let stop = CancellationToken::new();
    let start = client.version()?;
    let stream = client.inner.watch(&WIDGET, &Query::all(), Some(&start), &stop)?;
    let versions = many_changes(client, 2 * history + 2)?;
    let watch = WatchReader::of(stream, stop)?;
    for expected in &versions {
        let change = match watch.item()? {
            Some(Ok(WatchEvent::Bookmark(_))) => continue,
            Some(Ok(change)) => change,
            Some(Err(error)) if error.is_gone() => {
                return same("whether an item follows the error", watch.item()?.is_some(), false);
            }
            other => return Err(failed(format_args!("expected a change or Gone: {other:?}"))),
        };
        same("version", change.object().map(version), Some(&**expected))?;
    }
    Ok(())
}

/// A change can be read as soon as a watch has its event.
pub(super) fn watch_tells_what_can_be_read(client: &TestedClient) -> CaseResult {
    let watch = client.watch(&Query::all(), Some(&client.version()?))?;
    for size in 0..50 {
        let written = if size == 0 {
            client.create(widget("a"))?
        } else {
            client.merge("a", json!({"spec": {"size": size + 1}}))?
        };
        same("the event", watch.change()?.object(), Some(&written))?;
        same("the read object", &client.inner.get(&WIDGET, &key("a"))?, &written)?;
    }
    client.delete("a")?;
    let WatchEvent::Deleted(gone) = watch.change()? else { return Err(failed("the event is not a deletion")) };
    same("the existing objects", client.list(&Query::all())?.1, Vec::<Value>::new())?;
    holds("the last state has a spec", without(gone, "/metadata").get("spec").is_some())
}
