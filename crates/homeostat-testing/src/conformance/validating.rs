//! Invalid objects: every method refuses them, names the field and its value, and writes nothing.

use serde_json::{Value, json};

use super::fixture::{CaseResult, InPart, Refusal, TestedClient, failed, holds, same};
use super::objects::{A, ZONE, widget, with, without, zone};
use homeostat_objects::{ClientError, FieldOwner, Patch, PatchTarget, Query};

fn long(length: usize) -> String {
    "a".repeat(length)
}

/// A method that sends a whole widget.
type Send = fn(&TestedClient, Value) -> Result<Value, ClientError>;

const CREATE: (&str, Send) = ("create", |client, object| client.create(object));
const APPLY: (&str, Send) = ("apply", |client, object| client.apply(object, &FieldOwner::new("one")));
const UPDATE: (&str, Send) = ("update", |client, object| client.update(object));
const UPDATE_STATUS: (&str, Send) = ("update_status", |client, object| client.update_status(object));

/// Fails unless `create` and `apply` refuse a new object.
#[track_caller]
fn invalid_if_new(client: &TestedClient, name: &str, path: &str, value: &str, object: &Value) -> CaseResult {
    for (method, send) in [CREATE, APPLY] {
        let refused = client.invalid(name, path, value, || send(client, object.clone()));
        refused.in_part(&format!("{method} of {object}"))?;
    }
    Ok(())
}

/// Fails unless every method refuses a widget with this value in a metadata field, and the error shows the field and
/// the text. The widget `a` exists.
#[track_caller]
fn invalid_by_every_method(client: &TestedClient, field: &str, value: &Value, shown: &str) -> CaseResult {
    let path = format!("metadata.{field}");
    by_every_method(client, field, value, |object, call| client.invalid(object, &path, shown, call))
}

/// Fails unless every method refuses a widget with JSON of another type in a metadata field.
#[track_caller]
fn unreadable_by_every_method(client: &TestedClient, field: &str, value: &Value) -> CaseResult {
    by_every_method(client, field, value, |object, call| client.refused(Refusal::Invalid, object, call).map(drop))
}

fn by_every_method(
    client: &TestedClient,
    field: &str,
    value: &Value,
    check: impl Fn(&str, &dyn Fn() -> Result<Value, ClientError>) -> CaseResult,
) -> CaseResult {
    let bad = |object: Value| with(object, &format!("/metadata/{field}"), value.clone());
    let merge = Patch::Merge(json!({"metadata": {field: value}}));
    let steps = Patch::Json(json!([{"op": "add", "path": format!("/metadata/{field}"), "value": value}]));
    for (method, patch) in [("merge patch", merge), ("JSON patch", steps)] {
        check(A, &|| client.patch("a", &patch)).in_part(&format!("{method} with {field} {value}"))?;
    }
    let (new, known) = ("Widget default/new", client.get("a")?);
    for ((method, send), name, object) in
        [(CREATE, new, widget("new")), (APPLY, new, widget("new")), (APPLY, A, widget("a")), (UPDATE, A, known)]
    {
        check(name, &|| send(client, bad(object.clone()))).in_part(&format!("{method} with {field} {value}"))?;
    }
    Ok(())
}

pub(super) fn names_are_subdomains(client: &TestedClient) -> CaseResult {
    let too_long = long(254);
    for name in ["Web", "a_b", "-a", "a-", ".a", "a.", "a..b", "a/b", "a b", "é", &too_long] {
        invalid_if_new(client, &format!("Widget default/{name}"), "metadata.name", name, &widget(name))?;
    }
    for name in ["a", "0", "a.b", "1-2.3", &long(253)] {
        client.create(widget(name))?;
    }
    Ok(())
}

pub(super) fn names_are_there(client: &TestedClient) -> CaseResult {
    for said in [widget(""), without(widget(""), "/metadata/name"), with(widget(""), "/metadata/name", json!(null))] {
        client.invalid("Widget default/", "metadata.name", "", || client.create(said))?;
    }
    let prefix = with(without(widget(""), "/metadata/name"), "/metadata/generateName", json!("Web_"));
    client.invalid("Widget default/", "metadata.generateName", "Web_", || client.create(prefix))?;
    let number = with(widget(""), "/metadata/name", json!(7));
    is_invalid(client, "metadata.name", || client.create(number))
}

pub(super) fn namespaces_are_dns_labels(client: &TestedClient) -> CaseResult {
    let too_long = long(64);
    for namespace in ["Default", "a.b", "-a", "a_b", "a/b", &too_long] {
        let said = with(widget("a"), "/metadata/namespace", json!(namespace));
        let object = format!("Widget {namespace}/a");
        // A client that looks for the namespace first does not find it.
        match client.create(said) {
            Err(error) if error.is_not_found() => {}
            other => client.invalid(&object, "metadata.namespace", namespace, || other).in_part(namespace)?,
        }
    }
    Ok(())
}

pub(super) fn widgets_are_in_a_namespace(client: &TestedClient) -> CaseResult {
    for object in [without(widget("a"), "/metadata/namespace"), with(widget("a"), "/metadata/namespace", json!(""))] {
        invalid_if_new(client, "Widget a", "metadata.namespace", "", &object)?;
    }
    Ok(())
}

pub(super) fn zones_are_in_no_namespace(client: &TestedClient) -> CaseResult {
    let said = with(zone("a"), "/metadata/namespace", json!("default"));
    invalid_if_new(client, "Zone default/a", "metadata.namespace", "default", &said)?;
    let created = client.create(zone("a"))?;
    let merge = Patch::Merge(json!({"metadata": {"namespace": "default"}}));
    match client.inner.patch(&ZONE, &homeostat_objects::ObjectKey::cluster("a"), &merge, PatchTarget::Object) {
        // The client may ignore the namespace.
        Ok(patched) => same("the patched object", patched.to_value(), created)?,
        Err(error) => same("the kind of the error", Refusal::of(&error), Refusal::Invalid)?,
    }
    same("the zones", client.inner.list(&ZONE, &Query::all())?.items.len(), 1)
}

pub(super) fn label_keys_are_qualified_names(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let (name, prefix) = (long(64), format!("{}/a", long(254)));
    for key in ["", "-a", "a-", "a/b/c", "/a", "a/", "A.b/c", "a b", "a%", &name, &prefix] {
        invalid_by_every_method(client, "labels", &json!({"ok": "1", key: "x"}), key)?;
        // As in Kubernetes, the prefix of an annotation may have capitals.
        if key != "A.b/c" {
            invalid_by_every_method(client, "annotations", &json!({"ok": "1", key: "x"}), key)?;
        }
    }
    let (name, prefix) = (long(63), format!("{}/{}", long(253), long(63)));
    let good = json!({"a": "", "A_b.c-d": "x", "example.com/A": "y", name: "z", prefix: "w"});
    let said = with(widget("b"), "/metadata/labels", good.clone());
    let created = client.create(with(said, "/metadata/annotations", good.clone()))?;
    same("labels", &created["metadata"]["labels"], &good)?;
    same("annotations", &created["metadata"]["annotations"], &good)
}

pub(super) fn label_values_are_short_words(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let too_long = long(64);
    for value in ["-a", "a-", "a b", "a/b", "é", &too_long] {
        invalid_by_every_method(client, "labels", &json!({"ok": "1", "bad": value}), value)?;
    }
    for value in [json!(1), json!(true), json!({}), json!(["a"])] {
        unreadable_by_every_method(client, "labels", &json!({"ok": "1", "bad": value}))?;
        unreadable_by_every_method(client, "annotations", &json!({"ok": "1", "bad": value}))?;
    }
    for labels in [json!("a"), json!([]), json!(1)] {
        unreadable_by_every_method(client, "labels", &labels)?;
    }
    let free = json!({"note": "any / text\n{}", "empty": ""});
    let created = client.create(with(widget("b"), "/metadata/annotations", free.clone()))?;
    same("annotations", &created["metadata"]["annotations"], &free)
}

pub(super) fn finalizers_are_qualified_names(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    for finalizer in ["", "-a", "a b", "a/b/c", "example.com/"] {
        invalid_by_every_method(client, "finalizers", &json!(["example.com/ok", finalizer]), finalizer)?;
    }
    for finalizers in [json!([1]), json!("example.com/a"), json!({"a": "b"})] {
        unreadable_by_every_method(client, "finalizers", &finalizers)?;
    }
    Ok(())
}

pub(super) fn finalizers_for_dependents_exclude_each_other(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    for both in [json!(["foregroundDeletion", "orphan"]), json!(["orphan", "example.com/x", "foregroundDeletion"])] {
        invalid_by_every_method(client, "finalizers", &both, "orphan")?;
    }
    Ok(())
}

pub(super) fn owners_are_objects(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    for owners in [json!([1]), json!("a"), json!({"name": "a"})] {
        unreadable_by_every_method(client, "ownerReferences", &owners)?;
    }
    invalid_by_every_method(client, "ownerReferences", &json!([{"name": "a"}]), "")
}

/// Fails unless the call returns `Invalid` and the error names the kind.
#[track_caller]
fn is_invalid(client: &TestedClient, path: &str, call: impl FnOnce() -> Result<Value, ClientError>) -> CaseResult {
    let before = client.all()?;
    let error = match call() {
        Ok(done) => return Err(failed(format_args!("succeeded, expected Invalid: {done}"))),
        Err(error) => error,
    };
    same(&format!("the kind of the error \"{error}\""), Refusal::of(&error), Refusal::Invalid)?;
    let is_named = error.causes().iter().any(|cause| cause.field.starts_with(path));
    holds(&format!("a field begins with {path:?} ({error})"), is_named)?;
    holds(&format!("{error} names the kind"), error.to_string().contains("Widget"))?;
    same("the objects after a refusal", client.all()?, before)
}

pub(super) fn objects_have_metadata(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let mut objects = vec![(without(widget("a"), "/metadata"), "metadata")];
    for value in [json!(null), json!("x"), json!([]), json!(7)] {
        objects.extend([(value.clone(), ""), (with(widget("a"), "/metadata", value), "metadata")]);
    }
    for (object, path) in objects {
        for (method, send) in [CREATE, APPLY, UPDATE, UPDATE_STATUS] {
            is_invalid(client, path, || send(client, object.clone())).in_part(&format!("{method} of {object}"))?;
        }
    }
    Ok(())
}

pub(super) fn objects_are_of_the_kind(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    for (field, wrong) in [
        ("kind", "Gadget"),
        ("kind", "widget"),
        ("apiVersion", "v1"),
        ("apiVersion", "conformance.example.com/v2"),
        ("apiVersion", "v1/conformance.example.com"),
    ] {
        let object = with(created.clone(), &format!("/{field}"), json!(wrong));
        let new = with(widget("b"), &format!("/{field}"), json!(wrong));
        invalid_if_new(client, "Widget default/b", field, wrong, &new)?;
        for (method, send) in [UPDATE, UPDATE_STATUS] {
            let refused = client.invalid(A, field, wrong, || send(client, object.clone()));
            refused.in_part(&format!("{method} with {field} {wrong}"))?;
        }
    }
    same("the stored object", client.get("a")?, created)
}
