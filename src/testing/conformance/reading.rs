//! `get` and `list`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::{
    Outcome, Refusal, Subject, failed, holds, key, meta, same, together, version, widget, widget_in, with, zone,
};
use super::watching::{limit, many_changes};
use super::{WIDGET, ZONE};
use crate::objects::{ClientError, ObjectKey, Query};

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

/// The pages of a list, from the one that this query gives to the last: no page has more than the limit, and all are of one version.
fn pages(subject: &Subject, query: &Query) -> Outcome<(String, Vec<Value>)> {
    let is_within = |items: &[_]| query.limit.is_none_or(|limit| limit == 0 || items.len() <= limit);
    let first = subject.client.list(&WIDGET, query)?;
    let (mut items, mut token) = (first.items, first.continue_token);
    holds("no page has more objects than the limit", is_within(&items))?;
    while let Some(next) = token {
        let page = subject.client.list(&WIDGET, &query.clone().continue_from(next))?;
        same("the version of a page", &page.version, &first.version)?;
        holds("no page has more objects than the limit", is_within(&page.items))?;
        items.extend(page.items);
        token = page.continue_token;
    }
    Ok((first.version, items.iter().map(|item| (**item).clone()).collect()))
}

pub(super) fn list_in_pages_has_all_objects_once(subject: &Subject) -> Outcome {
    for (namespace, name, app) in [
        ("default", "a", "web"),
        ("default", "b", "db"),
        ("default", "c", "web"),
        ("other", "a", "web"),
        ("other", "d", "web"),
        ("third", "a", "db"),
    ] {
        subject.create(with(widget_in(namespace, name), "/metadata/labels/app", json!(app)))?;
    }
    for query in [
        Query::all(),
        Query::all().namespace("default"),
        Query::all().namespace("other"),
        Query::all().namespace("none"),
        Query::all().labels("app=web".parse().map_err(failed)?),
        Query::all().field("metadata.name", "a"),
    ] {
        let all = subject.list(&query)?.1;
        same("the token of a list without a limit", subject.client.list(&WIDGET, &query)?.continue_token, None)?;
        for limit in [0, 1, 2, 3, 6, 100] {
            let (_, items) = pages(subject, &query.clone().limit(limit))?;
            same(&format!("{query:?} in pages of {limit}"), items, all.clone())?;
        }
    }
    Ok(())
}

pub(super) fn list_in_pages_is_as_of_the_version_of_the_first(subject: &Subject) -> Outcome {
    subject.needs_history(10)?;
    for name in ["a", "b", "c", "d", "e"] {
        subject.create(widget(name))?;
    }
    let then = subject.list(&Query::all())?;
    let query = Query::all().limit(2);
    let first = subject.client.list(&WIDGET, &query)?;
    let Some(token) = first.continue_token else { return Err(failed("the first page has no token")) };
    subject.delete("d")?;
    subject.merge("e", json!({"spec": {"size": 2}}))?;
    subject.delete("a")?;
    subject.create(widget("c-new"))?;
    subject.merge("c-new", json!({"spec": {"size": 2}}))?;
    subject.delete("c")?;
    subject.create(widget("c"))?;
    let rest = pages(subject, &query.continue_from(token.clone()))?;
    let mut items: Vec<_> = first.items.iter().map(|item| (**item).clone()).collect();
    items.extend(rest.1);
    same("all pages", items, then.1)?;
    same("the version", &rest.0, &then.0)?;
    // Without a limit a token gives all that is left; it can be used more than once.
    let left = subject.client.list(&WIDGET, &Query::all().continue_from(token))?;
    same("what is left", left.items.len(), 3)?;
    let told = subject.watch(&Query::all(), Some(&rest.0))?;
    told.tells(&["Deleted default/d", "Modified default/e", "Deleted default/a"]).map(drop)
}

pub(super) fn list_goes_on_from_a_token_only(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    for text in ["no token", ""] {
        let query = Query::all().limit(1).continue_from(text);
        match subject.client.list(&WIDGET, &query) {
            Err(ClientError::Invalid { field, .. }) if !text.is_empty() => same("field", &*field, "continue")?,
            // An empty token is none.
            Ok(list) if text.is_empty() => same("items", list.items.len(), 1)?,
            other => return Err(failed(format_args!("{text:?} gives {other:?}"))),
        }
    }
    Ok(())
}

pub(super) fn list_goes_on_from_before_the_history_is_gone(subject: &Subject) -> Outcome {
    let history = limit(subject)?;
    subject.create(widget("b"))?;
    subject.create(widget("c"))?;
    let query = Query::all().limit(1);
    let Some(token) = subject.client.list(&WIDGET, &query)?.continue_token else { return Err(failed("no token")) };
    many_changes(subject, 2 * history + 2)?;
    match subject.client.list(&WIDGET, &query.continue_from(token)) {
        Err(error) if error.is_gone() => holds("the error names the kind", error.to_string().contains("Widget")),
        other => Err(failed(format_args!("not gone: {other:?}"))),
    }
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
