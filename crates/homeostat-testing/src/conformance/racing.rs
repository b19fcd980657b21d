//! Several writers at once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fixture::{CaseResult, Refusal, TestedClient, holds, same};
use super::objects::{held, meta, owned_by, version, widget, with};
use super::threads::{only_one_succeeds, together};
use homeostat_objects::{FieldOwner, Patch, Query, WatchEvent};

const THREADS: usize = 8;

/// Reads, changes and updates the widget `a` until there is no conflict.
fn optimistic(client: &TestedClient, change: impl Fn(Value) -> Value) -> CaseResult {
    loop {
        let read = client.get("a")?;
        std::thread::yield_now();
        match client.update(change(read.clone())) {
            Ok(_) => return Ok(()),
            Err(error) => {
                same("the error", Refusal::of(&error), Refusal::Conflict)?;
                holds("a conflict means that another thread wrote", version(&client.get("a")?) != version(&read))?;
            }
        }
    }
}

/// How often each thread increments the counter.
const EACH: usize = 20;

fn count_up(client: &TestedClient) -> CaseResult {
    let shared = client.clone();
    let counted = together(THREADS, move |_| {
        for _ in 0..EACH {
            optimistic(&shared, |read| {
                let size = read["spec"]["size"].as_u64().unwrap_or_default();
                with(read, "/spec/size", json!(size + 1))
            })?;
        }
        Ok(())
    });
    counted.map(drop)
}

pub(super) fn racing_updates_are_all_counted(client: &TestedClient) -> CaseResult {
    client.create(with(widget("a"), "/spec/size", json!(0)))?;
    count_up(client)?;
    let last = client.get("a")?;
    same("the counted size", &last["spec"]["size"], &json!(THREADS * EACH))?;
    same("generation", &last["metadata"]["generation"], &json!(THREADS * EACH + 1))
}

pub(super) fn racing_updates_are_all_told(client: &TestedClient) -> CaseResult {
    client.needs_history(THREADS * EACH)?;
    let created = client.create(with(widget("a"), "/spec/size", json!(0)))?;
    let watch = client.watch(&Query::all(), Some(version(&created)))?;
    count_up(client)?;
    for size in 1..=THREADS * EACH {
        let watch = watch.change()?;
        same("the size of the event", watch.object().map(|object| object["spec"]["size"].clone()), Some(json!(size)))?;
    }
    Ok(())
}

pub(super) fn racing_updates_of_one_version_succeed_once(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    for round in 0..10 {
        let (read, shared) = (client.get("a")?, client.clone());
        let written = only_one_succeeds(THREADS, Refusal::Conflict, move |thread| {
            if round % 2 == 1 {
                shared.update_status(with(read.clone(), "/status/by", json!([round, thread])))
            } else {
                shared.update(with(read.clone(), "/spec/by", json!([round, thread])))
            }
        })?;
        same("the stored object", client.get("a")?, written)?;
    }
    Ok(())
}

pub(super) fn racing_writers_of_their_own_objects_have_no_conflicts(client: &TestedClient) -> CaseResult {
    let shared = client.clone();
    together(THREADS, move |thread| {
        for round in 0..3 {
            let mut own = shared.create(widget(&format!("own-{thread}")))?;
            for size in 2..5 {
                own = shared.update(with(own, "/spec/size", json!(size)))?;
                own = shared.update_status(with(own, "/status/size", json!(size + round)))?;
            }
            shared.delete(meta(&own, "name"))?;
        }
        Ok(())
    })?;
    same("the remaining objects", client.all()?.len(), 0)
}

pub(super) fn racing_patches_are_all_done(client: &TestedClient) -> CaseResult {
    client.create(with(widget("a"), "/data", json!({})))?;
    let shared = client.clone();
    let versions = together(THREADS, move |thread| {
        let mut versions = Vec::new();
        for round in 0..EACH {
            let name = format!("x-{thread}-{round}");
            let patched = match thread % 4 {
                0 => shared.merge("a", json!({"data": {name: round}}))?,
                1 => shared.patch(
                    "a",
                    &Patch::Json(json!([{"op": "add", "path": format!("/data/{name}"), "value": round}])),
                )?,
                2 => shared.merge_status("a", json!({"status": {name: round}}))?,
                _ => shared.apply(with(widget("a"), &format!("/data/{name}"), json!(round)), &FieldOwner::new(name))?,
            };
            versions.push(version(&patched).to_owned());
        }
        Ok(versions)
    })?;
    let distinct: BTreeSet<_> = versions.iter().flatten().collect();
    same("versions", distinct.len(), THREADS * EACH)?;
    let last = client.get("a")?;
    let count = |field: &str| last[field].as_object().map_or(0, serde_json::Map::len);
    same("the counts of written fields", (count("data"), count("status")), (THREADS * EACH * 3 / 4, THREADS * EACH / 4))
}

pub(super) fn racing_appliers_conflict_or_share(client: &TestedClient) -> CaseResult {
    let shared = client.clone();
    let applied = only_one_succeeds(THREADS, Refusal::Conflict, move |thread| {
        let owner = FieldOwner::new(format!("owner-{thread}"));
        shared.apply(with(widget("a"), "/spec/leader", json!(thread)), &owner)
    })?;
    same("the stored leader", &client.get("a")?["spec"]["leader"], &applied["spec"]["leader"])
}

/// How often a writer creates, changes and deletes its object. Each round makes ten changes.
const ROUNDS: usize = 2;

/// The writes of one thread: the name of the object and its new version.
type WrittenVersions = Vec<(String, String)>;

fn write_all_sorts(client: &TestedClient, thread: usize) -> CaseResult<WrittenVersions> {
    let own = format!("own-{thread}");
    let mut written = Vec::new();
    let mut note = |object: &Value| written.push((meta(object, "name").to_owned(), version(object).to_owned()));
    for round in 0..ROUNDS {
        let mut object = client.create(held(widget(&own)))?;
        note(&object);
        for size in 2..5 {
            object = client.update(with(object, "/spec/size", json!(size)))?;
            note(&object);
            note(&client.merge("shared", json!({"spec": {"last": format!("{thread}-{round}-{size}")}}))?);
        }
        object = client.update_status(with(object, "/status/ready", json!(true)))?;
        note(&object);
        note(&client.begin_deletion(&own)?);
        // The event of the removal may have a later version.
        client.release(&own)?;
    }
    Ok(written)
}

pub(super) fn racing_changes_are_told_once_and_in_order(client: &TestedClient) -> CaseResult {
    client.needs_history(THREADS * ROUNDS * 10 + 2)?;
    let start = version(&client.create(widget("shared"))?).to_owned();
    let watches = (0..3).map(|_| client.watch(&Query::all(), Some(&start))).collect::<CaseResult<Vec<_>>>()?;
    let shared = client.clone();
    let written = together(THREADS, move |thread| write_all_sorts(&shared, thread))?;
    client.create(widget("z"))?;
    let mut first: Option<Vec<String>> = None;
    for watch in watches.into_iter().chain([client.watch(&Query::all(), Some(&start))?]) {
        let mut changes = watch.changes_until("z")?;
        changes.pop();
        let versions: Vec<_> =
            changes.iter().filter_map(WatchEvent::object).map(|object| version(object).to_owned()).collect();
        let places: BTreeMap<_, _> = versions.iter().zip(0_usize..).collect();
        same("the count of repeated changes", versions.len() - places.len(), 0)?;
        let deletions = changes.iter().filter(|change| matches!(change, WatchEvent::Deleted(_))).count();
        same("the count of deletions", deletions, THREADS * ROUNDS)?;
        let writes = versions.len() - deletions;
        same("the count of other changes", writes, written.iter().map(Vec::len).sum::<usize>())?;
        for writer in &written {
            let watch: Vec<_> = writer.iter().filter_map(|(_, version)| places.get(version)).collect();
            same("the count of changes of one writer", watch.len(), writer.len())?;
            holds("the watch keeps the order of the writes of one thread", watch.is_sorted())?;
        }
        match &first {
            None => first = Some(versions),
            Some(first) => same("the order of changes in two watches", &versions, first)?,
        }
    }
    Ok(())
}

/// The initial objects of a watch plus its events give the final objects, even if the watch begins while others write.
pub(super) fn racing_watches_begin_without_a_gap(client: &TestedClient) -> CaseResult {
    client.needs_history(THREADS * ROUNDS * 10 + 2)?;
    client.create(widget("shared"))?;
    let shared = client.clone();
    let watches = together(THREADS, move |thread| {
        if thread % 2 == 0 {
            write_all_sorts(&shared, thread)?;
            return Ok(vec![]);
        }
        (0..5).map(|_| shared.watch(&Query::all(), None)).collect()
    })?;
    client.create(widget("z"))?;
    let (_, expected) = client.list(&Query::all())?;
    for watch in watches.iter().flatten() {
        let mut objects = BTreeMap::new();
        for change in watch.changes_until("z")? {
            let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = &change
            else {
                continue;
            };
            let name = meta(object, "name").to_owned();
            let known = match &change {
                WatchEvent::Deleted(_) => objects.remove(&name).is_some(),
                WatchEvent::Added(_) => objects.insert(name, object.clone()).is_none(),
                _ => objects.insert(name, object.clone()).is_some(),
            };
            holds(&format!("{change:?} fits the earlier events"), known)?;
        }
        same("the objects according to the watch", objects.values().cloned().collect::<Vec<_>>(), expected.clone())?;
    }
    Ok(())
}

pub(super) fn racing_children_of_a_deleted_object_are_deleted(client: &TestedClient) -> CaseResult {
    client.needs_cascading()?;
    let parent = client.create(widget("a"))?;
    let shared = client.clone();
    together(THREADS, move |thread| {
        for round in 0..EACH {
            if (thread, round) == (0, EACH / 2) {
                shared.delete("a")?;
            }
            shared.create(owned_by(&format!("child-{thread}-{round}"), &[&parent]))?;
        }
        Ok(())
    })?;
    for thread in 0..THREADS {
        for round in 0..EACH {
            client.vanishes(&format!("child-{thread}-{round}"))?;
        }
    }
    same("the remaining objects", client.all()?.len(), 0)
}
