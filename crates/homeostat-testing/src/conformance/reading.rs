//! `get` and `list`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::{CaseResult, Refusal, TestedClient, failed, holds, same};
use super::objects::{WIDGET, ZONE, key, meta, version, widget, widget_in, with, zone};
use super::threads::together;
use super::watching::{limit, many_changes};
use homeostat_objects::{ObjectKey, Query, SharedObject};

fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|object| format!("{}/{}", meta(object, "namespace"), meta(object, "name"))).collect()
}

pub(super) fn get_gives_what_was_written(client: &TestedClient) -> CaseResult {
    let created = client.create(with(widget("a"), "/data/deep/er", json!([null, 1.5, {"x": "é\n"}])))?;
    same("the read object", client.get("a")?, created.clone())?;
    same("data", &created["data"], &json!({"deep": {"er": [null, 1.5, {"x": "é\n"}]}}))?;
    same("apiVersion", &created["apiVersion"], &json!(WIDGET.api_version()))?;
    same("kind", &created["kind"], &json!(WIDGET.name()))?;
    let created = client.create(zone("a"))?;
    same("a zone", &client.inner.get(&ZONE, &ObjectKey::cluster("a"))?, &created)
}

pub(super) fn get_of_nothing_is_not_found(client: &TestedClient) -> CaseResult {
    client.create(widget_in("other", "a"))?;
    client.create(zone("a"))?;
    client.create(widget("b"))?;
    client.refused(Refusal::NotFound, "Widget default/a", || client.get("a"))?;
    client.refused(Refusal::NotFound, "Zone b", || client.inner.get(&ZONE, &ObjectKey::cluster("b")))?;
    Ok(())
}

pub(super) fn list_of_nothing_has_a_version(client: &TestedClient) -> CaseResult {
    let (version, items) = client.list(&Query::all())?;
    same("items", items.len(), 0)?;
    let watch = client.watch(&Query::all(), Some(&version))?;
    client.create(widget("a"))?;
    watch.expect_changes(&["Added default/a"]).map(drop)
}

pub(super) fn list_is_in_the_order_of_the_keys(client: &TestedClient) -> CaseResult {
    let keys =
        [("other", "a"), ("default", "b"), ("default", "a-b"), ("other", "b"), ("default", "a"), ("default", "a.c")];
    for (namespace, name) in keys {
        client.create(widget_in(namespace, name))?;
    }
    client.create(zone("z"))?;
    let (_, items) = client.list(&Query::all())?;
    let mut expected = keys.map(|(namespace, name)| ObjectKey::new(namespace, name));
    expected.sort();
    same("the keys", names(&items), expected.map(|key| key.to_string()).to_vec())?;
    for item in items {
        let object = client.inner.get(&WIDGET, &ObjectKey::new(meta(&item, "namespace"), meta(&item, "name")))?;
        same("an item", &object, &item)?;
    }
    let zones = client.inner.list(&ZONE, &Query::all())?;
    same("zones", zones.items.len(), 1)
}

pub(super) fn list_is_of_a_namespace(client: &TestedClient) -> CaseResult {
    for (namespace, name) in [("default", "a"), ("other", "a"), ("other", "b")] {
        client.create(widget_in(namespace, name))?;
    }
    for (namespace, expected) in
        [("default", vec!["default/a"]), ("other", vec!["other/a", "other/b"]), ("none", vec![])]
    {
        same(namespace, names(&client.list(&Query::all().namespace(namespace))?.1), expected)?;
    }
    Ok(())
}

/// Fails unless the list of each query has these names.
fn lists(client: &TestedClient, cases: &[(Query, &str)]) -> CaseResult {
    for (query, expected) in cases {
        let (_, items) = client.list(query)?;
        let names: Vec<_> = items.iter().map(|item| meta(item, "name")).collect();
        same(&format!("{query:?}"), names.join(" "), *expected)?;
    }
    Ok(())
}

pub(super) fn list_selects_by_labels(client: &TestedClient) -> CaseResult {
    let web = json!({"app": "web"});
    let labels = [json!({"app": "web", "tier": "front"}), web, json!({"app": "db"}), json!({})];
    for (name, labels) in ["a", "b", "c", "d"].into_iter().zip(labels) {
        client.create(with(widget(name), "/metadata/labels", labels))?;
    }
    for (selector, expected) in [
        ("app=web", "a b"),
        ("app!=web", "c d"),
        ("app in (db,web),!tier", "b c"),
        ("tier", "a"),
        ("app notin (web)", "c d"),
        ("app=web,app=db", ""),
        ("", "a b c d"),
    ] {
        lists(client, &[(Query::all().labels(selector.parse().map_err(failed)?), expected)])?;
    }
    Ok(())
}

pub(super) fn list_selects_by_fields(client: &TestedClient) -> CaseResult {
    for (name, size, phase) in [("a", 1, "Ready"), ("b", 2, "Ready"), ("c", 2, "Failed")] {
        let created = client.create(with(widget(name), "/spec/size", json!(size)))?;
        client.update_status(with(created, "/status/phase", json!(phase)))?;
    }
    let (size, ready) = (Query::all().field("spec.size", "2"), Query::all().field("status.phase", "Ready"));
    lists(
        client,
        &[
            (size.clone(), "b c"),
            (ready, "a b"),
            (size.field("status.phase", "Ready"), "b"),
            (Query::all().field("metadata.name", "c"), "c"),
            (Query::all().field("spec.none", ""), "a b c"),
            (Query::all().field("spec.size", "3"), ""),
        ],
    )?;
    // These characters are part of the syntax of a selector.
    let odd = r"1,2=3\4";
    client.create(with(widget("d"), "/spec/note", json!(odd)))?;
    lists(client, &[(Query::all().field("spec.note", odd), "d"), (Query::all().field("spec.note", "1"), "")])
}

pub(super) fn list_selects_by_name(client: &TestedClient) -> CaseResult {
    for object in [widget("a"), widget("b"), widget_in("other", "b")] {
        client.create(object)?;
    }
    let named = |name: &str| Query::all().field("metadata.name", name);
    let b = named("b");
    lists(client, &[(b.clone(), "b b"), (b.namespace("other"), "b"), (named("c"), ""), (named("a"), "a")])
}

/// A writer sets `a` to a number, then `b` to the same. At each version `b` equals `a`, or is one
/// behind.
pub(super) fn list_is_as_of_one_version(client: &TestedClient) -> CaseResult {
    const ROUNDS: u32 = 60;
    client.needs_history(122)?;
    for name in ["a", "b"] {
        client.create(with(widget(name), "/spec/size", json!(0)))?;
    }
    let shared = client.clone();
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
            same(
                &format!("the change after a list with {a} and {b}"),
                next,
                Some((expected.0.to_owned(), expected.1)),
            )?;
        }
    })?;
    holds("lists were read", checked[1] > 0)
}

/// Returns all pages of a list. Fails if a page exceeds the limit or has another version.
fn pages(client: &TestedClient, query: &Query) -> CaseResult<(String, Vec<Value>)> {
    let is_within = |items: &[_]| query.limit.is_none_or(|limit| limit == 0 || items.len() <= limit);
    let first = client.inner.list(&WIDGET, query)?;
    let (mut items, mut token) = (first.items, first.continue_token);
    holds("no page has more objects than the limit", is_within(&items))?;
    while let Some(next) = token {
        let page = client.inner.list(&WIDGET, &query.clone().continue_from(next))?;
        same("the version of a page", &page.version, &first.version)?;
        holds("no page has more objects than the limit", is_within(&page.items))?;
        items.extend(page.items);
        token = page.continue_token;
    }
    Ok((first.version, items.iter().map(SharedObject::to_value).collect()))
}

pub(super) fn list_in_pages_has_all_objects_once(client: &TestedClient) -> CaseResult {
    for (namespace, name, app) in [
        ("default", "a", "web"),
        ("default", "b", "db"),
        ("default", "c", "web"),
        ("other", "a", "web"),
        ("other", "d", "web"),
        ("other", "e", "db"),
    ] {
        client.create(with(widget_in(namespace, name), "/metadata/labels/app", json!(app)))?;
    }
    for query in [
        Query::all(),
        Query::all().namespace("default"),
        Query::all().namespace("other"),
        Query::all().namespace("none"),
        Query::all().labels("app=web".parse().map_err(failed)?),
        Query::all().field("metadata.name", "a"),
    ] {
        let all = client.list(&query)?.1;
        same("the token of a list without a limit", client.inner.list(&WIDGET, &query)?.continue_token, None)?;
        for limit in [0, 1, 2, 3, 6, 100] {
            let (_, items) = pages(client, &query.clone().limit(limit))?;
            same(&format!("{query:?} in pages of {limit}"), items, all.clone())?;
        }
    }
    Ok(())
}

pub(super) fn list_in_pages_is_as_of_the_version_of_the_first(client: &TestedClient) -> CaseResult {
    client.needs_history(10)?;
    for name in ["a", "b", "c", "d", "e"] {
        client.create(widget(name))?;
    }
    let then = client.list(&Query::all())?.1;
    let query = Query::all().limit(2);
    let first = client.inner.list(&WIDGET, &query)?;
    let Some(token) = first.continue_token else { return Err(failed("the first page has no token")) };
    client.delete("d")?;
    client.merge("e", json!({"spec": {"size": 2}}))?;
    client.delete("a")?;
    client.create(widget("c-new"))?;
    client.merge("c-new", json!({"spec": {"size": 2}}))?;
    client.delete("c")?;
    client.create(widget("c"))?;
    let rest = pages(client, &query.continue_from(token.clone()))?;
    let mut items: Vec<_> = first.items.iter().map(SharedObject::to_value).collect();
    items.extend(rest.1);
    same("all pages", items, then)?;
    same("the version", &rest.0, &first.version)?;
    // A token can be used twice. Without a limit it returns all remaining objects.
    let left = client.inner.list(&WIDGET, &Query::all().continue_from(token))?;
    same("the remaining objects", left.items.len(), 3)?;
    let watch = client.watch(&Query::all(), Some(&rest.0))?;
    watch.expect_changes(&["Deleted default/d", "Modified default/e", "Deleted default/a"]).map(drop)
}

pub(super) fn list_goes_on_from_a_token_only(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    for text in ["no token", ""] {
        let query = Query::all().limit(1).continue_from(text);
        match client.inner.list(&WIDGET, &query) {
            Err(error) if error.is_invalid() && !text.is_empty() => {
                holds(&format!("{error} names the token"), error.to_string().contains("continue"))?;
            }
            // An empty token counts as no token.
            Ok(list) if text.is_empty() => same("items", list.items.len(), 1)?,
            other => return Err(failed(format_args!("unexpected result for the token {text:?}: {other:?}"))),
        }
    }
    Ok(())
}

pub(super) fn list_goes_on_from_before_the_history_is_gone(client: &TestedClient) -> CaseResult {
    let history = limit(client)?;
    client.create(widget("b"))?;
    client.create(widget("c"))?;
    let query = Query::all().limit(1);
    let Some(token) = client.inner.list(&WIDGET, &query)?.continue_token else {
        return Err(failed("the page has no token"));
    };
    many_changes(client, 2 * history + 2)?;
    match client.inner.list(&WIDGET, &query.continue_from(token)) {
        Err(error) if error.is_gone() => holds("the error names the kind", error.to_string().contains("Widget")),
        other => Err(failed(format_args!("expected Gone: {other:?}"))),
    }
}

pub(super) fn versions_are_never_used_twice(client: &TestedClient) -> CaseResult {
    let mut versions = Vec::new();
    for name in ["a", "b"] {
        let created = client.create(widget(name))?;
        let updated = client.update(with(created.clone(), "/spec/size", json!(2)))?;
        let status = client.update_status(with(updated.clone(), "/status/ready", json!(true)))?;
        let back = client.update(with(status.clone(), "/spec/size", json!(1)))?;
        client.delete(name)?;
        let again = client.create(widget(name))?;
        versions.extend([created, updated, status, back, again].map(|object| version(&object).to_owned()));
    }
    versions.push(version(&client.create(zone("a"))?).to_owned());
    holds("no version is empty", versions.iter().all(|version| !version.is_empty()))?;
    same(&format!("versions in {versions:?}"), versions.iter().collect::<BTreeSet<_>>().len(), versions.len())
}

pub(super) fn what_was_given_out_does_not_change(client: &TestedClient) -> CaseResult {
    let created = client.inner.create(&WIDGET, widget("a"))?;
    let list = client.inner.list(&WIDGET, &Query::all())?;
    let (before, got) = (created.to_value(), client.inner.get(&WIDGET, &key("a"))?);
    client.update(with(before.clone(), "/spec/size", json!(2)))?;
    client.delete("a")?;
    for (what, object) in [("created", &created), ("got", &got), ("listed", &list.items[0])] {
        same(what, object, &before)?;
    }
    Ok(())
}
