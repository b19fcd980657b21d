//! What no object may be: refused with the path of the field and its value, by whatever verb, and nothing is written.

use serde_json::{Value, json};

use super::fixture::{Outcome, Refusal, Subject, failed, holds, same, widget, with, without, zone};
use super::{WIDGET, ZONE};
use crate::objects::{ClientError, FieldOwner, Patch, PatchTarget};

const A: &str = "Widget default/a";

fn long(length: usize) -> String {
    "a".repeat(length)
}

/// Fails unless every verb refuses a widget with this value at `path` of its metadata.
#[track_caller]
fn refused_by_every_verb(subject: &Subject, field: &str, value: &Value, told: &str) -> Outcome {
    let path = format!("metadata.{field}");
    let bad = |object: Value| with(object, &format!("/metadata/{field}"), value.clone());
    let part = |verb: &str| format!("{verb} with {field} {value}");
    let create = subject.invalid("Widget default/new", &path, told, || subject.create(bad(widget("new"))));
    create.map_err(|stop| stop.of(&part("create")))?;
    let apply = |name: &str| {
        let object = format!("Widget default/{name}");
        subject.invalid(&object, &path, told, || subject.apply(bad(widget(name)), &FieldOwner::new("one")))
    };
    apply("new").map_err(|stop| stop.of(&part("apply")))?;
    apply("a").map_err(|stop| stop.of(&part("apply")))?;
    let current = subject.get("a")?;
    let update = subject.invalid(A, &path, told, || subject.update(bad(current)));
    update.map_err(|stop| stop.of(&part("update")))?;
    let merge = json!({"metadata": {field: value}});
    subject.invalid(A, &path, told, || subject.merge("a", merge)).map_err(|stop| stop.of(&part("merge")))?;
    let steps = Patch::Json(json!([{"op": "add", "path": format!("/metadata/{field}"), "value": value}]));
    subject.invalid(A, &path, told, || subject.patch("a", &steps)).map_err(|stop| stop.of(&part("steps")))
}

pub(super) fn names_are_subdomains(subject: &Subject) -> Outcome {
    let too_long = long(254);
    for name in ["Web", "a_b", "-a", "a-", ".a", "a.", "a..b", "a/b", "a b", "é", &too_long] {
        let object = format!("Widget default/{name}");
        let create = subject.invalid(&object, "metadata.name", name, || subject.create(widget(name)));
        create.map_err(|stop| stop.of(name))?;
        let apply = || subject.apply(widget(name), &FieldOwner::new("one"));
        subject.invalid(&object, "metadata.name", name, apply).map_err(|stop| stop.of(name))?;
    }
    for name in ["a", "0", "a.b", "1-2.3", &long(253)] {
        subject.create(widget(name))?;
    }
    Ok(())
}

pub(super) fn names_are_there(subject: &Subject) -> Outcome {
    for said in [widget(""), without(widget(""), "/metadata/name"), with(widget(""), "/metadata/name", json!(null))] {
        subject.invalid("Widget default/", "metadata.name", "", || subject.create(said))?;
    }
    let prefix = with(without(widget(""), "/metadata/name"), "/metadata/generateName", json!("Web_"));
    subject.invalid("Widget default/", "metadata.generateName", "Web_", || subject.create(prefix))?;
    let number = with(widget(""), "/metadata/name", json!(7));
    is_invalid(subject, "metadata.name", || subject.create(number))
}

pub(super) fn namespaces_are_dns_labels(subject: &Subject) -> Outcome {
    let too_long = long(64);
    for namespace in ["Default", "a.b", "-a", "a_b", "a/b", &too_long] {
        let said = with(widget("a"), "/metadata/namespace", json!(namespace));
        let object = format!("Widget {namespace}/a");
        let create = subject.invalid(&object, "metadata.namespace", namespace, || subject.create(said));
        create.map_err(|stop| stop.of(namespace))?;
    }
    Ok(())
}

pub(super) fn widgets_are_in_a_namespace(subject: &Subject) -> Outcome {
    for said in [without(widget("a"), "/metadata/namespace"), with(widget("a"), "/metadata/namespace", json!(""))] {
        subject.invalid("Widget a", "metadata.namespace", "", || subject.create(said.clone()))?;
        subject.invalid("Widget a", "metadata.namespace", "", || subject.apply(said, &FieldOwner::new("one")))?;
    }
    Ok(())
}

pub(super) fn zones_are_in_no_namespace(subject: &Subject) -> Outcome {
    let said = with(zone("a"), "/metadata/namespace", json!("default"));
    let (object, path) = ("Zone default/a", "metadata.namespace");
    subject.invalid(object, path, "default", || subject.create(said.clone()))?;
    subject.invalid(object, path, "default", || subject.apply(said, &FieldOwner::new("one")))?;
    let created = subject.create(zone("a"))?;
    let merge = Patch::Merge(json!({"metadata": {"namespace": "default"}}));
    let call = || subject.client.patch(&ZONE, &crate::objects::ObjectKey::cluster("a"), &merge, PatchTarget::Object);
    subject.refused(Refusal::Invalid, "Zone a", call)?;
    same("what is kept", &subject.create(zone("b"))?["spec"], &created["spec"])
}

pub(super) fn label_keys_are_qualified_names(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let (name, prefix) = (long(64), format!("{}/a", long(254)));
    for key in ["", "-a", "a-", "a/b/c", "/a", "a/", "A.b/c", "a b", "a%", &name, &prefix] {
        refused_by_every_verb(subject, "labels", &json!({"ok": "1", key: "x"}), key)?;
        // As in Kubernetes, the prefix of an annotation may have capitals.
        if key != "A.b/c" {
            refused_by_every_verb(subject, "annotations", &json!({"ok": "1", key: "x"}), key)?;
        }
    }
    let (name, prefix) = (long(63), format!("{}/{}", long(253), long(63)));
    let good = json!({"a": "", "A_b.c-d": "x", "example.com/A": "y", name: "z", prefix: "w"});
    let said = with(widget("b"), "/metadata/labels", good.clone());
    let created = subject.create(with(said, "/metadata/annotations", good.clone()))?;
    same("labels", &created["metadata"]["labels"], &good)?;
    same("annotations", &created["metadata"]["annotations"], &good)
}

pub(super) fn label_values_are_short_words(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let too_long = long(64);
    for value in ["-a", "a-", "a b", "a/b", "é", &too_long] {
        refused_by_every_verb(subject, "labels", &json!({"ok": "1", "bad": value}), value)?;
    }
    for value in [json!(1), json!(true), json!({}), json!(["a"])] {
        refused_by_every_verb(subject, "labels", &json!({"ok": "1", "bad": value}), "")?;
        refused_by_every_verb(subject, "annotations", &json!({"ok": "1", "bad": value}), "")?;
    }
    for labels in [json!("a"), json!([]), json!(1)] {
        refused_by_every_verb(subject, "labels", &labels, "")?;
    }
    let free = json!({"note": "any / text\n{}", "empty": ""});
    let created = subject.create(with(widget("b"), "/metadata/annotations", free.clone()))?;
    same("annotations", &created["metadata"]["annotations"], &free)
}

pub(super) fn finalizers_are_qualified_names(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    for finalizer in ["", "-a", "a b", "a/b/c", "example.com/"] {
        refused_by_every_verb(subject, "finalizers", &json!(["example.com/ok", finalizer]), finalizer)?;
    }
    for finalizers in [json!([1]), json!("example.com/a"), json!({"a": "b"})] {
        refused_by_every_verb(subject, "finalizers", &finalizers, "")?;
    }
    Ok(())
}

pub(super) fn owners_are_objects(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    for owners in [json!([1]), json!("a"), json!([{"name": "a"}]), json!({"name": "a"})] {
        refused_by_every_verb(subject, "ownerReferences", &owners, "")?;
    }
    Ok(())
}

/// Fails unless the call is refused as invalid, whatever object that names of the kind.
#[track_caller]
fn is_invalid(subject: &Subject, path: &str, call: impl FnOnce() -> Result<Value, ClientError>) -> Outcome {
    let before = subject.all()?;
    let error = match call() {
        Ok(done) => return Err(failed(format_args!("is done: {done}"))),
        Err(error) => error,
    };
    let ClientError::Invalid { field, .. } = &error else {
        return Err(failed(format_args!("not refused as invalid: {error}")));
    };
    holds(&format!("{field:?} begins with {path:?} ({error})"), field.starts_with(path))?;
    holds(&format!("{error} names the kind"), error.to_string().contains("Widget"))?;
    same("the objects after a refusal", subject.all()?, before)
}

type Verb<'a> = &'a dyn Fn() -> Result<Value, ClientError>;

pub(super) fn objects_have_metadata(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let whole = [json!(null), json!("x"), json!([]), json!(7)].map(|object| (object, ""));
    let metadata =
        [json!(null), json!("x"), json!([]), json!(7)].map(|meta| (with(widget("a"), "/metadata", meta), "metadata"));
    let none = (without(widget("a"), "/metadata"), "metadata");
    let one = FieldOwner::new("one");
    for (object, path) in whole.into_iter().chain(metadata).chain([none]) {
        let verbs: [(&str, Verb<'_>); 4] = [
            ("create", &|| subject.create(object.clone())),
            ("update", &|| subject.update(object.clone())),
            ("update_status", &|| subject.update_status(object.clone())),
            ("apply", &|| subject.apply(object.clone(), &one)),
        ];
        for (verb, call) in verbs {
            is_invalid(subject, path, call).map_err(|stop| stop.of(&format!("{verb} of {object}")))?;
        }
    }
    Ok(())
}

pub(super) fn objects_are_of_the_kind(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let one = FieldOwner::new("one");
    for (field, wrong) in [
        ("kind", "Gadget"),
        ("kind", "widget"),
        ("apiVersion", "v1"),
        ("apiVersion", "conformance.example.com/v2"),
        ("apiVersion", "v1/conformance.example.com"),
    ] {
        let object = with(created.clone(), &format!("/{field}"), json!(wrong));
        let new = with(widget("b"), &format!("/{field}"), json!(wrong));
        let part = |verb: &str| format!("{verb} with {field} {wrong}");
        let (b, client) = ("Widget default/b", &subject.client);
        let create = subject.invalid(b, field, wrong, || client.create(&WIDGET, new.clone()));
        create.map_err(|stop| stop.of(&part("create")))?;
        let apply = subject.invalid(b, field, wrong, || client.apply(&WIDGET, new.clone(), &one));
        apply.map_err(|stop| stop.of(&part("apply")))?;
        let update = subject.invalid(A, field, wrong, || client.update(&WIDGET, object.clone()));
        update.map_err(|stop| stop.of(&part("update")))?;
        let status = subject.invalid(A, field, wrong, || client.update_status(&WIDGET, object.clone()));
        status.map_err(|stop| stop.of(&part("update_status")))?;
    }
    same("what is kept", subject.get("a")?, created)
}
