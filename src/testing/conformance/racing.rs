//! Many writers at once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fixture::{Outcome, Refusal, Subject, holds, meta, same, together, version, widget, with};
use super::owners::of;
use crate::objects::{FieldOwner, Patch, Query, WatchEvent};

const THREADS: usize = 8;

/// Reads the widget `a`, changes it and writes it, until it is not refused.
fn optimistic(subject: &Subject, change: impl Fn(Value) -> Value) -> Outcome {
    loop {
        let read = subject.get("a")?;
        std::thread::yield_now();
        match subject.update(change(read.clone())) {
            Ok(_) => return Ok(()),
            Err(error) => {
                same("why not", Refusal::of(&error), Refusal::Conflict)?;
                holds("a conflict is only where another has written", version(&subject.get("a")?) != version(&read))?;
            }
        }
    }
}

/// How often each thread counts up.
const EACH: usize = 20;

fn count_up(subject: &Subject) -> Outcome {
    let shared = subject.clone();
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

pub(super) fn racing_updates_are_all_counted(subject: &Subject) -> Outcome {
    subject.create(with(widget("a"), "/spec/size", json!(0)))?;
    count_up(subject)?;
    let last = subject.get("a")?;
    same("the sum", &last["spec"]["size"], &json!(THREADS * EACH))?;
    same("generation", &last["metadata"]["generation"], &json!(THREADS * EACH + 1))
}

pub(super) fn racing_updates_are_all_told(subject: &Subject) -> Outcome {
    subject.needs_history(THREADS * EACH)?;
    let created = subject.create(with(widget("a"), "/spec/size", json!(0)))?;
    let told = subject.watch(&Query::all(), Some(version(&created)))?;
    count_up(subject)?;
    for size in 1..=THREADS * EACH {
        let told = told.change()?;
        same("the size that is told", told.object().map(|object| object["spec"]["size"].clone()), Some(json!(size)))?;
    }
    Ok(())
}

pub(super) fn racing_updates_of_one_version_succeed_once(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    for round in 0..10 {
        let (read, shared) = (subject.get("a")?, subject.clone());
        let status = round % 2 == 1;
        let written = together(THREADS, move |thread| {
            let written = if status {
                shared.update_status(with(read.clone(), "/status/by", json!([round, thread])))
            } else {
                shared.update(with(read.clone(), "/spec/by", json!([round, thread])))
            };
            match written {
                Ok(written) => Ok(Some(written)),
                Err(error) => same("why not", Refusal::of(&error), Refusal::Conflict).map(|()| None),
            }
        })?;
        let written: Vec<_> = written.into_iter().flatten().collect();
        same("how many have written", written.len(), 1)?;
        same("what is kept", subject.get("a")?, written[0].clone())?;
    }
    Ok(())
}

pub(super) fn racing_writers_of_their_own_objects_have_no_conflicts(subject: &Subject) -> Outcome {
    let shared = subject.clone();
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
    same("what is left", subject.all()?.len(), 0)
}

pub(super) fn racing_patches_are_all_done(subject: &Subject) -> Outcome {
    subject.create(with(widget("a"), "/data", json!({})))?;
    let shared = subject.clone();
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
    let last = subject.get("a")?;
    let count = |field: &str| last[field].as_object().map_or(0, serde_json::Map::len);
    same("what has been written", (count("data"), count("status")), (THREADS * EACH * 3 / 4, THREADS * EACH / 4))
}

pub(super) fn racing_appliers_conflict_or_share(subject: &Subject) -> Outcome {
    let shared = subject.clone();
    let done = together(THREADS, move |thread| {
        let owner = FieldOwner::new(format!("owner-{thread}"));
        match shared.apply(with(widget("a"), "/spec/leader", json!(thread)), &owner) {
            Ok(_) => Ok(Some(thread)),
            Err(error) => same("why not", Refusal::of(&error), Refusal::Conflict).map(|()| None),
        }
    })?;
    let leaders: Vec<_> = done.into_iter().flatten().collect();
    same("how many lead", leaders.len(), 1)?;
    same("who leads", &subject.get("a")?["spec"]["leader"], &json!(leaders[0]))
}

/// How often a racing writer creates, changes and deletes its object: ten changes each time.
const ROUNDS: usize = 2;

/// What a racing writer has written: the name of the object, and the version.
type Written = Vec<(String, String)>;

fn write_all_sorts(subject: &Subject, thread: usize) -> Outcome<Written> {
    let own = format!("own-{thread}");
    let mut written = Vec::new();
    let mut note = |object: &Value| written.push((meta(object, "name").to_owned(), version(object).to_owned()));
    for round in 0..ROUNDS {
        let mut object = subject.create(with(widget(&own), "/metadata/finalizers", json!(["example.com/a"])))?;
        note(&object);
        for size in 2..5 {
            object = subject.update(with(object, "/spec/size", json!(size)))?;
            note(&object);
            note(&subject.merge("shared", json!({"spec": {"last": format!("{thread}-{round}-{size}")}}))?);
        }
        object = subject.update_status(with(object, "/status/ready", json!(true)))?;
        note(&object);
        note(&subject.delete(&own)?);
        note(&subject.merge(&own, json!({"metadata": {"finalizers": null}}))?);
    }
    Ok(written)
}

pub(super) fn racing_changes_are_told_once_and_in_order(subject: &Subject) -> Outcome {
    subject.needs_history(THREADS * ROUNDS * 10 + 2)?;
    let start = version(&subject.create(widget("shared"))?).to_owned();
    let watches = (0..3).map(|_| subject.watch(&Query::all(), Some(&start))).collect::<Outcome<Vec<_>>>()?;
    let shared = subject.clone();
    let written = together(THREADS, move |thread| write_all_sorts(&shared, thread))?;
    subject.create(widget("z"))?;
    let mut first: Option<Vec<String>> = None;
    for told in watches.into_iter().chain([subject.watch(&Query::all(), Some(&start))?]) {
        let mut changes = told.changes_until("z")?;
        changes.pop();
        let versions: Vec<_> =
            changes.iter().filter_map(WatchEvent::object).map(|object| version(object).to_owned()).collect();
        let places: BTreeMap<_, _> = versions.iter().zip(0_usize..).collect();
        same("changes that are told twice", versions.len() - places.len(), 0)?;
        same("changes that are told", versions.len(), written.iter().map(Vec::len).sum::<usize>())?;
        for writer in &written {
            let told: Vec<_> = writer.iter().filter_map(|(_, version)| places.get(version)).collect();
            same("changes of one writer that are told", told.len(), writer.len())?;
            holds("they are told in the order in which they were made", told.is_sorted())?;
        }
        match &first {
            None => first = Some(versions),
            Some(first) => same("the order that two watches tell", &versions, first)?,
        }
    }
    Ok(())
}

/// Watches that begin while others write: what is there and what follows it make what is there at the end.
pub(super) fn racing_watches_begin_without_a_gap(subject: &Subject) -> Outcome {
    subject.needs_history(THREADS * ROUNDS * 10 + 2)?;
    subject.create(widget("shared"))?;
    let shared = subject.clone();
    let watches = together(THREADS, move |thread| {
        if thread % 2 == 0 {
            write_all_sorts(&shared, thread)?;
            return Ok(vec![]);
        }
        (0..5).map(|_| shared.watch(&Query::all(), None)).collect()
    })?;
    subject.create(widget("z"))?;
    let (_, expected) = subject.list(&Query::all())?;
    for told in watches.iter().flatten() {
        let mut objects = BTreeMap::new();
        for change in told.changes_until("z")? {
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
            holds(&format!("{change:?} follows from what was told before"), known)?;
        }
        same(
            "what the watch makes of it",
            objects.values().map(|object| (**object).clone()).collect::<Vec<_>>(),
            expected.clone(),
        )?;
    }
    Ok(())
}

pub(super) fn racing_children_of_a_deleted_object_are_deleted(subject: &Subject) -> Outcome {
    subject.needs_cascading()?;
    let parent = subject.create(widget("a"))?;
    let shared = subject.clone();
    together(THREADS, move |thread| {
        for round in 0..EACH {
            if (thread, round) == (0, EACH / 2) {
                shared.delete("a")?;
            }
            shared.create(of(&format!("child-{thread}-{round}"), &[&parent]))?;
        }
        Ok(())
    })?;
    for thread in 0..THREADS {
        for round in 0..EACH {
            subject.vanishes(&format!("child-{thread}-{round}"))?;
        }
    }
    same("what is left", subject.all()?.len(), 0)
}
