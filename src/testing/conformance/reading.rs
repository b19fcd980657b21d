//! `get` and `list`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::{
    Outcome, Refusal, Subject, failed, holds, key, meta, same, together, version, widget, widget_in, with, zone,
};
use super::{WIDGET, ZONE};
use crate::objects::{ObjectKey, Query};

fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|object| format!("{}/{}", meta(object, "namespace"), meta(object, "name"))).collect()
}

pub(super) fn get_gives_what_was_written(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/data/deep/er", json!([null, 1.5, {"x": "é\n"}])))?;
    same("what is got", subject.get("a")?, created.clone())?;
    same("data", &created["data"], &json!({"deep": {"er": [null, 1.5, {"x": "é\n"}]}}))?;
    same("apiVersion", &created["apiVersion"], &json!(WIDGET.api_version()))?;
    same("kind", &created["kind"], &json!(WIDGET.name()))?;
    let created = subject.create(zone("a"))?;
    same("a zone", &*subject.client.get(&ZONE, &ObjectKey::cluster("a"))?, &created)
}

pub(super) fn get_of_nothing_is_not_found(subject: &Subject) -> Outcome {
    subject.create(widget_in("other", "a"))?;
    subject.create(zone("a"))?;
    subject.create(widget("b"))?;
    subject.refused(Refusal::NotFound, "Widget default/a", || subject.get("a"))?;
    subject.refused(Refusal::NotFound, "Zone b", || subject.client.get(&ZONE, &ObjectKey::cluster("b")))?;
    Ok(())
}

pub(super) fn list_of_nothing_has_a_version(subject: &Subject) -> Outcome {
    let (version, items) = subject.list(&Query::all())?;
    same("items", items.len(), 0)?;
    let told = subject.watch(&Query::all(), Some(&version))?;
    subject.create(widget("a"))?;
    told.tells(&["Added default/a"]).map(drop)
}

pub(super) fn list_is_in_the_order_of_the_keys(subject: &Subject) -> Outcome {
    let keys =
        [("other", "a"), ("default", "b"), ("default", "a-b"), ("other", "b"), ("default", "a"), ("default", "a.c")];
    for (namespace, name) in keys {
        subject.create(widget_in(namespace, name))?;
    }
    subject.create(zone("z"))?;
    let (_, items) = subject.list(&Query::all())?;
    let mut expected = keys.map(|(namespace, name)| ObjectKey::new(namespace, name));
    expected.sort();
    same("the keys", names(&items), expected.map(|key| key.to_string()).to_vec())?;
    for item in items {
        let object = subject.client.get(&WIDGET, &ObjectKey::new(meta(&item, "namespace"), meta(&item, "name")))?;
        same("an item", &item, &*object)?;
    }
    let zones = subject.client.list(&ZONE, &Query::all())?;
    same("zones", zones.items.len(), 1)
}

pub(super) fn list_is_of_a_namespace(subject: &Subject) -> Outcome {
    for (namespace, name) in [("default", "a"), ("other", "a"), ("other", "b")] {
        subject.create(widget_in(namespace, name))?;
    }
    for (namespace, expected) in
        [("default", vec!["default/a"]), ("other", vec!["other/a", "other/b"]), ("none", vec![])]
    {
        same(namespace, names(&subject.list(&Query::all().namespace(namespace))?.1), expected)?;
    }
    Ok(())
}

pub(super) fn list_selects_by_labels(subject: &Subject) -> Outcome {
    for (name, labels) in
        [("a", json!({"app": "web", "tier": "front"})), ("b", json!({"app": "web"})), ("c", json!({"app": "db"}))]
    {
        subject.create(with(widget(name), "/metadata/labels", labels))?;
    }
    subject.create(widget("d"))?;
    for (selector, expected) in [
        ("app=web", vec!["a", "b"]),
        ("app!=web", vec!["c", "d"]),
        ("app in (db,web),!tier", vec!["b", "c"]),
        ("tier", vec!["a"]),
        ("app notin (web)", vec!["c", "d"]),
        ("app=web,app=db", vec![]),
        ("", vec!["a", "b", "c", "d"]),
    ] {
        let (_, items) = subject.list(&Query::all().labels(selector.parse().map_err(failed)?))?;
        same(selector, items.iter().map(|item| meta(item, "name")).collect::<Vec<_>>(), expected)?;
    }
    Ok(())
}

pub(super) fn list_selects_by_fields(subject: &Subject) -> Outcome {
    for (name, size, phase) in [("a", 1, "Ready"), ("b", 2, "Ready"), ("c", 2, "Failed")] {
        let created = subject.create(with(widget(name), "/spec/size", json!(size)))?;
        subject.update_status(with(created, "/status/phase", json!(phase)))?;
    }
    let query =
        |fields: &[(&str, &str)]| fields.iter().fold(Query::all(), |query, (path, value)| query.field(*path, *value));
    for (fields, expected) in [
        (&[("spec.size", "2")][..], vec!["b", "c"]),
        (&[("status.phase", "Ready")], vec!["a", "b"]),
        (&[("spec.size", "2"), ("status.phase", "Ready")], vec!["b"]),
        (&[("metadata.name", "c")], vec!["c"]),
        (&[("spec.none", "")], vec!["a", "b", "c"]),
        (&[("spec.size", "3")], vec![]),
    ] {
        let (_, items) = subject.list(&query(fields))?;
        same(&format!("{fields:?}"), items.iter().map(|item| meta(item, "name")).collect::<Vec<_>>(), expected)?;
    }
    Ok(())
}

/// One writer brings `a` to a number, then `b`: so at each version `b` is `a`, or one behind.
pub(super) fn list_is_as_of_one_version(subject: &Subject) -> Outcome {
    const ROUNDS: u32 = 60;
    subject.needs_history(122)?;
    for name in ["a", "b"] {
        subject.create(with(widget(name), "/spec/size", json!(0)))?;
    }
    let shared = subject.clone();
    let checked = together(2, move |thread| {
        let size = |item: &Value| item["spec"]["size"].as_u64().unwrap_or_default();
        if thread == 0 {
            for round in 1..=ROUNDS {
                for name in ["a", "b"] {
                    shared.merge(name, json!({"spec": {"size": round}}))?;
                }
            }
            return Ok(0);
        }
        let mut lists = 0;
        loop {
            let (version, items) = shared.list(&Query::all())?;
            lists += 1;
            let (a, b) = (size(&items[0]), size(&items[1]));
            holds(&format!("a list with {a} and {b} is of one version"), a == b || a == b + 1)?;
            if b == u64::from(ROUNDS) {
                return Ok(lists);
            }
            let next = shared.watch(&Query::all(), Some(&version))?.change()?;
            let next = next.object().map(|object| (meta(object, "name").to_owned(), size(object)));
            let expected = if a == b { ("a", a + 1) } else { ("b", a) };
            same(&format!("what follows a list with {a} and {b}"), next, Some((expected.0.to_owned(), expected.1)))?;
        }
    })?;
    holds("lists were read", checked[1] > 0)
}

pub(super) fn versions_are_never_used_twice(subject: &Subject) -> Outcome {
    let mut versions = Vec::new();
    for name in ["a", "b"] {
        let created = subject.create(widget(name))?;
        let updated = subject.update(with(created.clone(), "/spec/size", json!(2)))?;
        let status = subject.update_status(with(updated.clone(), "/status/ready", json!(true)))?;
        let back = subject.update(with(status.clone(), "/spec/size", json!(1)))?;
        subject.delete(name)?;
        let again = subject.create(widget(name))?;
        versions.extend([created, updated, status, back, again].map(|object| version(&object).to_owned()));
    }
    versions.push(version(&subject.create(zone("a"))?).to_owned());
    holds("no version is empty", versions.iter().all(|version| !version.is_empty()))?;
    same(&format!("versions in {versions:?}"), versions.iter().collect::<BTreeSet<_>>().len(), versions.len())
}

pub(super) fn what_was_given_out_does_not_change(subject: &Subject) -> Outcome {
    let created = subject.client.create(&WIDGET, widget("a"))?;
    let list = subject.client.list(&WIDGET, &Query::all())?;
    let (before, got) = ((*created).clone(), subject.client.get(&WIDGET, &key("a"))?);
    subject.update(with(before.clone(), "/spec/size", json!(2)))?;
    subject.delete("a")?;
    for (what, object) in [("created", &created), ("got", &got), ("listed", &list.items[0])] {
        same(what, &**object, &before)?;
    }
    Ok(())
}
