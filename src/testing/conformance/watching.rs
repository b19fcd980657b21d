//! `watch`: from a version and from none, with selectors, to its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::WIDGET;
use super::fixture::{
    Event, Outcome, Stop, Subject, Told, brief, failed, holds, key, meta, owned_answer, same, version, widget,
    widget_in, with, without, zone,
};
use crate::base::cancel::CancellationToken;
use crate::objects::{ClientError, DeleteOptions, ObjectKey, Query, WatchEvent};

pub(super) fn watch_tells_what_each_call_returned(subject: &Subject) -> Outcome {
    let told = subject.watch(&Query::all(), Some(&subject.version()?))?;
    let created = subject.create(with(widget("a"), "/metadata/finalizers", json!(["example.com/a"])))?;
    let updated = subject.update(with(created.clone(), "/spec/size", json!(2)))?;
    let status = subject.update_status(with(updated.clone(), "/status/ready", json!(true)))?;
    let merged = subject.merge("a", json!({"spec": {"size": 3}}))?;
    let applied = subject.apply(widget("a"), &crate::objects::FieldOwner::new("one"))?;
    let deleting = subject.delete("a")?;
    let last = subject.merge("a", json!({"metadata": {"finalizers": null}}))?;
    let again = subject.create(widget("a"))?;
    let removed = subject.delete("a")?;
    let objects = [
        ("Added", created),
        ("Modified", updated),
        ("Modified", status),
        ("Modified", merged),
        ("Modified", applied),
        ("Modified", deleting),
        ("Deleted", last),
        ("Added", again),
        ("Deleted", removed),
    ];
    for (verb, object) in objects {
        let change = told.change()?;
        same("event", brief(&change), format!("{verb} default/a"))?;
        same(verb, change.object().map(|object| &**object), Some(&object))?;
    }
    Ok(())
}

pub(super) fn watch_from_no_version_begins_with_all(subject: &Subject) -> Outcome {
    let a = subject.create(widget("a"))?;
    let b = subject.create(widget_in("other", "b"))?;
    subject.create(widget("c"))?;
    subject.delete("c")?;
    subject.create(zone("z"))?;
    let a = subject.update(with(a, "/spec/size", json!(2)))?;
    let told = subject.watch(&Query::all(), None)?;
    let mut first = [told.event()?, told.event()?];
    first.sort_by_key(brief);
    same("what is there", first, [WatchEvent::Added(Arc::new(a)), WatchEvent::Added(Arc::new(b))])?;
    let WatchEvent::Bookmark(bookmark) = told.event()? else {
        return Err(failed("no bookmark after all that is there"));
    };
    subject.create(widget("d"))?;
    told.tells(&["Added default/d"])?;
    subject.watch(&Query::all(), Some(&bookmark))?.tells(&["Added default/d"]).map(drop)
}

pub(super) fn watch_of_nothing_begins_with_a_bookmark(subject: &Subject) -> Outcome {
    let told = subject.watch(&Query::all(), None)?;
    let WatchEvent::Bookmark(bookmark) = told.event()? else { return Err(failed("the first is no bookmark")) };
    let resumed = subject.watch(&Query::all(), Some(&bookmark))?;
    subject.create(widget("a"))?;
    for told in [told, resumed] {
        told.tells(&["Added default/a"])?;
    }
    Ok(())
}

pub(super) fn watch_is_of_one_kind(subject: &Subject) -> Outcome {
    let told = subject.watch(&Query::all(), Some(&subject.version()?))?;
    subject.create(zone("a"))?;
    subject.create(widget("a"))?;
    owned_answer(subject.client.delete(&super::ZONE, &ObjectKey::cluster("a"), &DeleteOptions::default()))?;
    subject.create(widget("b"))?;
    told.tells(&["Added default/a", "Added default/b"]).map(drop)
}

pub(super) fn watch_is_of_a_namespace(subject: &Subject) -> Outcome {
    subject.create(widget_in("other", "old"))?;
    subject.create(widget("old"))?;
    let query = Query::all().namespace("other");
    let (none, from) = (subject.watch(&query, None)?, subject.watch(&query, Some(&subject.version()?))?);
    for (namespace, name) in [("default", "a"), ("other", "b"), ("default", "c"), ("other", "d")] {
        subject.create(widget_in(namespace, name))?;
    }
    none.tells(&["Added other/old", "Added other/b", "Added other/d"])?;
    from.tells(&["Added other/b", "Added other/d"]).map(drop)
}

/// One that begins to be selected is added, and one that ceases to be is deleted.
pub(super) fn watch_selects_by_labels(subject: &Subject) -> Outcome {
    let labelled = |name: &str, app: &str| with(widget(name), "/metadata/labels/app", json!(app));
    subject.create(labelled("a", "web"))?;
    subject.create(labelled("b", "db"))?;
    let query = Query::all().labels("app=web".parse().map_err(failed)?);
    let (none, from) = (subject.watch(&query, None)?, subject.watch(&query, Some(&subject.version()?))?);
    subject.merge("b", json!({"spec": {"size": 2}}))?;
    let began = subject.merge("b", json!({"metadata": {"labels": {"app": "web"}}}))?;
    subject.merge("b", json!({"spec": {"size": 3}}))?;
    let ceased = subject.merge("a", json!({"metadata": {"labels": {"app": null}}}))?;
    subject.merge("a", json!({"spec": {"size": 3}}))?;
    subject.delete("a")?;
    subject.delete("b")?;
    let began_again = subject.create(labelled("a", "web"))?;
    same("the initial", brief(&none.change()?), "Added default/a".to_owned())?;
    for told in [none, from] {
        let verbs =
            ["Added default/b", "Modified default/b", "Deleted default/a", "Deleted default/b", "Added default/a"];
        let changes = told.tells(&verbs)?;
        let objects: Vec<_> = changes.iter().filter_map(WatchEvent::object).collect();
        same("what has begun", &**objects[0], &began)?;
        same("the version of what has ceased", version(objects[2]), version(&ceased))?;
        same("what has begun again", &**objects[4], &began_again)?;
    }
    Ok(())
}

pub(super) fn watch_selects_by_fields(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let told = subject.watch(&Query::all().field("status.phase", "Ready").field("spec.size", "2"), None)?;
    subject.merge("a", json!({"spec": {"size": 2}}))?;
    subject.merge_status("a", json!({"status": {"phase": "Ready"}}))?;
    subject.merge_status("a", json!({"status": {"phase": "Ready", "more": 1}}))?;
    subject.merge("a", json!({"spec": {"size": 3}}))?;
    subject.merge("a", json!({"spec": {"size": 2}}))?;
    subject.delete("a")?;
    let verbs = ["Added default/a", "Modified default/a", "Deleted default/a", "Added default/a", "Deleted default/a"];
    told.tells(&verbs).map(drop)
}

/// What a watch of the query from the version of `history[..from]` has to tell of the rest: verb, object and version.
fn due(history: &[Event], from: usize, query: &Query) -> Vec<(String, String)> {
    let mut objects: BTreeMap<String, Arc<Value>> = BTreeMap::new();
    let mut due = Vec::new();
    for (number, event) in history.iter().enumerate() {
        let Some(object) = event.object() else { continue };
        let path = format!("{}/{}", meta(object, "namespace"), meta(object, "name"));
        let was = objects.remove(&path).is_some_and(|object| query.selects(&object));
        let is = !matches!(event, WatchEvent::Deleted(_)) && query.selects(object);
        if !matches!(event, WatchEvent::Deleted(_)) {
            objects.insert(path.clone(), Arc::clone(object));
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

/// Objects that come, change, are no longer selected, go and come again; at the end one that all queries here select.
fn lively(subject: &Subject) -> Outcome {
    let labelled =
        |namespace: &str, name: &str, app: &str| with(widget_in(namespace, name), "/metadata/labels/app", json!(app));
    let label = |app: Value| json!({"metadata": {"labels": {"app": app}}});
    subject.create(labelled("default", "a", "web"))?;
    subject.create(labelled("other", "b", "web"))?;
    subject.create(labelled("default", "c", "db"))?;
    subject.create(zone("elsewhere"))?;
    subject.merge("a", json!({"spec": {"size": 2}}))?;
    subject.merge("a", label(json!("db")))?;
    subject.merge("c", label(json!("web")))?;
    subject.merge_status("c", json!({"status": {"ready": true}}))?;
    subject.merge("a", label(json!("web")))?;
    subject.merge("a", json!({"spec": {"size": 1}}))?;
    subject.delete("c")?;
    subject.create(with(labelled("default", "c", "web"), "/metadata/finalizers", json!(["example.com/c"])))?;
    subject.delete("c")?;
    subject.merge("c", label(json!(null)))?;
    subject.merge("c", json!({"metadata": {"finalizers": null}}))?;
    owned_answer(subject.client.delete(&WIDGET, &ObjectKey::new("other", "b"), &DeleteOptions::default()))?;
    subject.create(labelled("default", "c", "web"))?;
    subject.delete_with("c", &DeleteOptions::default().purge())?;
    subject.merge("a", json!({"spec": {"size": 7}}))?;
    subject.create(labelled("default", "z", "web"))?;
    Ok(())
}

pub(super) fn watch_resumes_from_every_version(subject: &Subject) -> Outcome {
    let start = subject.version()?;
    let told = subject.watch(&Query::all(), Some(&start))?;
    lively(subject)?;
    let history = told.changes_until("z")?;
    let queries = [
        Query::all(),
        Query::all().namespace("default"),
        Query::all().labels("app=web".parse().map_err(failed)?),
        Query::all().labels("app=web".parse().map_err(failed)?).namespace("default").field("spec.size", "1"),
        Query::all().field("status.ready", ""),
    ];
    let versions: Vec<_> = history.iter().filter_map(WatchEvent::object).map(|object| version(object)).collect();
    for query in &queries {
        for from in 0..history.len() {
            let at = if from == 0 { &start } else { versions[from - 1] };
            let part = format!("{query:?} from version {at}, after {from} changes");
            let resumed = subject.watch(query, Some(at))?;
            let found = resumed.changes_until("z").map_err(|stop| stop.of(&part))?;
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

pub(super) fn watch_from_now_tells_what_is_next(subject: &Subject) -> Outcome {
    lively(subject)?;
    let (now, items) = subject.list(&Query::all())?;
    holds("something is there", !items.is_empty())?;
    let told = subject.watch(&Query::all(), Some(&now))?;
    subject.create(zone("next"))?;
    let next = subject.create(widget("next"))?;
    same("what is next", told.change()?, WatchEvent::Added(Arc::new(next)))
}

/// Versions `"0"` and `""` stand for any version: the watch begins with what is there, and tells nothing of what was.
pub(super) fn watch_from_any_version_begins_with_all(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let a = subject.merge("a", json!({"spec": {"size": 2}}))?;
    subject.create(widget("b"))?;
    subject.delete("b")?;
    let told = [subject.watch(&Query::all(), Some("0"))?, subject.watch(&Query::all(), Some(""))?];
    let a = Arc::new(a);
    for told in &told {
        same("the first change", told.change()?, WatchEvent::Added(Arc::clone(&a)))?;
    }
    subject.create(widget("c"))?;
    told.iter().try_for_each(|told| told.tells(&["Added default/c"]).map(drop))
}

pub(super) fn watch_ends_when_it_is_stopped(subject: &Subject) -> Outcome {
    let (told, other) = (subject.watch(&Query::all(), None)?, subject.watch(&Query::all(), None)?);
    subject.create(widget("a"))?;
    for told in [&told, &other] {
        told.tells(&["Added default/a"])?;
    }
    // It blocks now, or is about to.
    told.stop.cancel();
    loop {
        match told.item()? {
            None => break,
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(other) => return Err(failed(format_args!("after its end the watch tells {other:?}"))),
        }
    }
    subject.create(widget("b"))?;
    other.tells(&["Added default/b"]).map(drop)
}

pub(super) fn watch_that_is_stopped_before_it_begins_ends(subject: &Subject) -> Outcome {
    let stop = CancellationToken::new();
    stop.cancel();
    let told = Told::of(subject.client.watch(&WIDGET, &Query::all(), Some(&subject.version()?), &stop)?, stop)?;
    match told.item()? {
        None => Ok(()),
        Some(item) => Err(failed(format_args!("it tells {item:?}"))),
    }
}

/// The changes of one object, and its versions in their order: the first is that before all changes.
pub(super) fn many_changes(subject: &Subject, changes: usize) -> Outcome<Vec<String>> {
    let created = subject.create(with(widget("a"), "/spec/size", json!(-1)))?;
    let mut versions = vec![version(&created).to_owned()];
    for size in 0..changes {
        versions.push(version(&subject.merge("a", json!({"spec": {"size": size}}))?).to_owned());
    }
    Ok(versions)
}

/// How far the history goes, if it is known and can be exceeded here.
pub(super) fn limit(subject: &Subject) -> Outcome<usize> {
    match subject.history {
        None => Err(Stop::Skipped("the length of its history is not known".to_owned())),
        Some(history) if history > 5000 => Err(Stop::Skipped(format!("its history of {history} changes is too long"))),
        Some(history) => Ok(history),
    }
}

pub(super) fn watch_from_before_the_history_is_gone(subject: &Subject) -> Outcome {
    let history = limit(subject)?;
    let versions = many_changes(subject, 2 * history + 2)?;
    let oldest = &versions[versions.len() - 1 - history];
    let stop = CancellationToken::new();
    let told = Told::of(subject.client.watch(&WIDGET, &Query::all(), Some(oldest), &stop)?, stop)?;
    for expected in &versions[versions.len() - history..] {
        let change = told.change()?;
        same("version", change.object().map(|object| version(object)), Some(&**expected))?;
    }
    for query in [Query::all(), Query::all().namespace("default"), Query::all().field("metadata.name", "none")] {
        let stop = CancellationToken::new();
        let error = match subject.client.watch(&WIDGET, &query, Some(&versions[0]), &stop) {
            Err(error) => error,
            Ok(stream) => {
                let told = Told::of(stream, stop)?;
                let Some(Err(error)) = told.item()? else {
                    return Err(failed("the watch tells something, and no error"));
                };
                same("what follows the error", told.item()?.is_some(), false)?;
                error
            }
        };
        let ClientError::Gone { version, .. } = &error else { return Err(failed(format_args!("not gone: {error}"))) };
        same("the version of the error", version, &versions[0])?;
        holds(&format!("{error} names the kind"), error.to_string().contains("Widget"))?;
    }
    let stop = CancellationToken::new();
    let told = Told::of(subject.client.watch(&WIDGET, &Query::all(), None, &stop)?, stop)?;
    told.tells(&["Added default/a"]).map(drop)
}

/// A reader that comes too late is told everything, or that it has missed something.
pub(super) fn watch_that_lags_misses_nothing_unsaid(subject: &Subject) -> Outcome {
    let history = subject.history.map_or(1000, |history| history.min(5000));
    let stop = CancellationToken::new();
    let start = subject.version()?;
    let stream = subject.client.watch(&WIDGET, &Query::all(), Some(&start), &stop)?;
    let versions = many_changes(subject, 2 * history + 2)?;
    let told = Told::of(stream, stop)?;
    for expected in &versions {
        let change = match told.item()? {
            Some(Ok(WatchEvent::Bookmark(_))) => continue,
            Some(Ok(change)) => change,
            Some(Err(ClientError::Gone { .. })) => {
                return same("what follows the error", told.item()?.is_some(), false);
            }
            other => return Err(failed(format_args!("neither a change nor gone: {other:?}"))),
        };
        same("version", change.object().map(|object| version(object)), Some(&**expected))?;
    }
    Ok(())
}

/// No version is told of that has not been kept: who hears of a change can read it.
pub(super) fn watch_tells_what_can_be_read(subject: &Subject) -> Outcome {
    let told = subject.watch(&Query::all(), Some(&subject.version()?))?;
    for size in 0..50 {
        let written = if size == 0 {
            subject.create(widget("a"))?
        } else {
            subject.merge("a", json!({"spec": {"size": size + 1}}))?
        };
        same("what is told", told.change()?.object().map(|object| &**object), Some(&written))?;
        same("what is got", &*subject.client.get(&WIDGET, &key("a"))?, &written)?;
    }
    let gone = subject.delete("a")?;
    same("what is told", told.change()?, WatchEvent::Deleted(Arc::new(gone.clone())))?;
    same("what is there", subject.list(&Query::all())?.1, Vec::<Value>::new())?;
    holds("its spec was there to the end", without(gone, "/metadata").get("spec").is_some())
}
