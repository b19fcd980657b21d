//! `patch`: what both sorts of patches do, by the examples of their standards, and what a patch may not do.

use serde_json::{Value, json};

use super::fixture::{Outcome, Refusal, Subject, holds, key, meta, owned_answer, same, version, widget, with};
use super::{WIDGET, ZONE};
use crate::objects::{ClientError, ObjectKey, Patch, PatchTarget};

const A: &str = "Widget default/a";

fn json_patch(subject: &Subject, steps: Value) -> Result<Value, ClientError> {
    subject.patch("a", &Patch::Json(steps))
}

/// The examples of RFC 7386, appendix A: a document, a patch, and what comes of it. Each stands in a field here; so what there
/// is `null` as a whole is no field here.
fn merge_examples() -> [(Value, Value, Value); 15] {
    [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"a": "foo"}), json!("bar"), json!("bar")),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ]
}

pub(super) fn patch_merges_as_the_standard_says(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    for (document, patch, merged) in merge_examples() {
        subject.update(with(subject.get("a")?, "/data", document.clone()))?;
        let patched = subject.merge("a", json!({"data": patch.clone()}))?;
        let what = format!("{document} with {patch}");
        let found = patched.get("data").cloned().unwrap_or_default();
        same(&what, found, merged.clone())?;
        same(&format!("whether there is something in {what}"), patched.get("data").is_some(), merged != json!(null))?;
        same(&format!("the rest of {what}"), &patched["spec"], &created["spec"])?;
        same(&format!("what is kept of {what}"), subject.get("a")?, patched)?;
    }
    Ok(())
}

/// The examples of RFC 6902, appendix A: a document, steps, and what comes of it; nothing, if it is an error. Each stands in the
/// field `data` here. Not A.13, which is no JSON that a program could make.
fn step_examples() -> Vec<(&'static str, Value, Value, Option<Value>)> {
    let step = |step: Value| json!([step]);
    let waldo = json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}});
    let moved = json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}});
    let tests = json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]);
    let tested = json!({"baz": "qux", "foo": ["a", 2, "c"]});
    let tilde = json!({"/": 9, "~1": 10});
    vec![
        (
            "A.1",
            json!({"foo": "bar"}),
            step(json!({"op": "add", "path": "/baz", "value": "qux"})),
            Some(json!({"baz": "qux", "foo": "bar"})),
        ),
        (
            "A.2",
            json!({"foo": ["bar", "baz"]}),
            step(json!({"op": "add", "path": "/foo/1", "value": "qux"})),
            Some(json!({"foo": ["bar", "qux", "baz"]})),
        ),
        (
            "A.3",
            json!({"baz": "qux", "foo": "bar"}),
            step(json!({"op": "remove", "path": "/baz"})),
            Some(json!({"foo": "bar"})),
        ),
        (
            "A.4",
            json!({"foo": ["bar", "qux", "baz"]}),
            step(json!({"op": "remove", "path": "/foo/1"})),
            Some(json!({"foo": ["bar", "baz"]})),
        ),
        (
            "A.5",
            json!({"baz": "qux", "foo": "bar"}),
            step(json!({"op": "replace", "path": "/baz", "value": "boo"})),
            Some(json!({"baz": "boo", "foo": "bar"})),
        ),
        ("A.6", waldo, step(json!({"op": "move", "from": "/foo/waldo", "path": "/qux/thud"})), Some(moved)),
        (
            "A.7",
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            step(json!({"op": "move", "from": "/foo/1", "path": "/foo/3"})),
            Some(json!({"foo": ["all", "cows", "eat", "grass"]})),
        ),
        ("A.8", tested.clone(), tests, Some(tested)),
        ("A.9", json!({"baz": "qux"}), step(json!({"op": "test", "path": "/baz", "value": "bar"})), None),
        (
            "A.10",
            json!({"foo": "bar"}),
            step(json!({"op": "add", "path": "/child", "value": {"grandchild": {}}})),
            Some(json!({"foo": "bar", "child": {"grandchild": {}}})),
        ),
        (
            "A.11",
            json!({"foo": "bar"}),
            step(json!({"op": "add", "path": "/baz", "value": "qux", "xyz": 123})),
            Some(json!({"foo": "bar", "baz": "qux"})),
        ),
        ("A.12", json!({"foo": "bar"}), step(json!({"op": "add", "path": "/baz/bat", "value": "qux"})), None),
        ("A.14", tilde.clone(), step(json!({"op": "test", "path": "/~01", "value": 10})), Some(tilde.clone())),
        ("A.15", tilde, step(json!({"op": "test", "path": "/~01", "value": "10"})), None),
        (
            "A.16",
            json!({"foo": ["bar"]}),
            step(json!({"op": "add", "path": "/foo/-", "value": ["abc", "def"]})),
            Some(json!({"foo": ["bar", ["abc", "def"]]})),
        ),
        (
            "copy",
            json!({"foo": [1]}),
            step(json!({"op": "copy", "from": "/foo", "path": "/bar"})),
            Some(json!({"foo": [1], "bar": [1]})),
        ),
    ]
}

pub(super) fn patch_takes_steps_as_the_standard_says(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    for (name, document, mut steps, expected) in step_examples() {
        for step in steps.as_array_mut().into_iter().flatten() {
            for path in ["path", "from"] {
                if let Some(text) = step[path].as_str() {
                    step[path] = json!(format!("/data{text}"));
                } else if let Some(step) = step.as_object_mut() {
                    step.remove(path);
                }
            }
        }
        let before = subject.update(with(subject.get("a")?, "/data", document))?;
        if let Some(expected) = expected {
            let patched = json_patch(subject, steps)?;
            same(name, &patched["data"], &expected)?;
            same(&format!("what is kept of {name}"), subject.get("a")?, patched)?;
        } else {
            let refused = subject.refused(Refusal::Invalid, A, || json_patch(subject, steps));
            refused.map_err(|stop| stop.of(name))?;
            same(&format!("what is kept of {name}"), subject.get("a")?, before)?;
        }
    }
    Ok(())
}

pub(super) fn patch_does_all_steps_or_none(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    let replace = json!({"op": "replace", "path": "/spec/size", "value": 2});
    for bad in [
        json!({"op": "test", "path": "/spec/size", "value": 1}),
        json!({"op": "remove", "path": "/spec/none"}),
        json!({"op": "replace", "path": "/spec/none", "value": 1}),
        json!({"op": "move", "from": "/spec/none", "path": "/spec/other"}),
        json!({"op": "copy", "from": "/spec/none", "path": "/spec/other"}),
    ] {
        let steps = json!([replace, bad]);
        subject
            .refused(Refusal::Invalid, A, || json_patch(subject, steps))
            .map_err(|stop| stop.of(&bad.to_string()))?;
    }
    let both = json!([replace, {"op": "test", "path": "/spec/size", "value": 2}]);
    same("the size", &json_patch(subject, both)?["spec"]["size"], &json!(2))
}

pub(super) fn patch_that_is_none_is_invalid(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    for steps in [
        json!({"op": "add", "path": "/x", "value": 1}),
        json!(null),
        json!("x"),
        json!([{"path": "/x", "value": 1}]),
        json!([{"op": "grow", "path": "/x", "value": 1}]),
        json!([{"op": "add", "value": 1}]),
        json!([{"op": "add", "path": "x", "value": 1}]),
        json!([1]),
    ] {
        let refused = subject.refused(Refusal::Invalid, A, || json_patch(subject, steps.clone()));
        refused.map_err(|stop| stop.of(&steps.to_string()))?;
    }
    for merge in [json!(null), json!([]), json!("x"), json!(1)] {
        let refused = subject.refused(Refusal::Invalid, A, || subject.merge("a", merge.clone()));
        refused.map_err(|stop| stop.of(&merge.to_string()))?;
    }
    Ok(())
}

pub(super) fn patch_of_nothing_is_not_found(subject: &Subject) -> Outcome {
    subject.create(with(widget("a"), "/metadata/namespace", json!("other")))?;
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    subject.refused(Refusal::NotFound, A, || subject.merge("a", patch.clone()))?;
    subject.refused(Refusal::NotFound, A, || subject.merge_status("a", json!({"status": {}})))?;
    subject.refused(Refusal::NotFound, A, || json_patch(subject, json!([])))?;
    let zone = ObjectKey::cluster("a");
    let call = || subject.client.patch(&ZONE, &zone, &Patch::Merge(patch), PatchTarget::Object);
    subject.refused(Refusal::NotFound, "Zone a", call).map(drop)
}

pub(super) fn patch_of_a_stale_version_is_a_conflict(subject: &Subject) -> Outcome {
    let stale = subject.create(widget("a"))?;
    let current = subject.update(with(stale.clone(), "/spec/size", json!(2)))?;
    let patch =
        |version: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"size": 3}, "status": {"size": 3}});
    subject.refused(Refusal::Conflict, A, || subject.merge("a", patch(version(&stale))))?;
    subject.refused(Refusal::Conflict, A, || subject.merge_status("a", patch(version(&stale))))?;
    let steps = |version: &str| json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, {"op": "add", "path": "/data", "value": 1}]);
    subject.refused(Refusal::Conflict, A, || json_patch(subject, steps(version(&stale))))?;
    let current = subject.merge("a", patch(version(&current)))?;
    let current = subject.merge_status("a", patch(version(&current)))?;
    same("status", &current["status"], &json!({"size": 3}))?;
    json_patch(subject, steps(version(&current)))?;
    // Without a version, whatever it is.
    same("the size", &subject.merge("a", json!({"spec": {"size": 4}}))?["spec"]["size"], &json!(4))
}

pub(super) fn patch_of_another_uid_is_a_conflict(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let patch = |uid: &str| json!({"metadata": {"uid": uid}, "spec": {"size": 3}, "status": {"size": 3}});
    subject.refused(Refusal::Conflict, A, || subject.merge("a", patch("another")))?;
    subject.refused(Refusal::Conflict, A, || subject.merge_status("a", patch("another")))?;
    same("the size", &subject.merge("a", patch(meta(&created, "uid")))?["spec"]["size"], &json!(3))
}

pub(super) fn patch_leaves_the_status(subject: &Subject) -> Outcome {
    let created = subject.create(widget("a"))?;
    let patched = subject.merge("a", json!({"spec": {"size": 2}, "status": {"ready": true}}))?;
    same("status", patched.get("status"), None)?;
    let written = subject.update_status(with(patched, "/status/ready", json!(true)))?;
    for status in [json!({"ready": false}), json!(null)] {
        same("the object", &subject.merge("a", json!({"status": status}))?, &written)?;
    }
    let steps = json!([{"op": "remove", "path": "/status"}, {"op": "replace", "path": "/spec/size", "value": 3}]);
    let stepped = json_patch(subject, steps)?;
    same("status and size", (&stepped["status"], &stepped["spec"]["size"]), (&json!({"ready": true}), &json!(3)))?;
    holds("the version is another", version(&stepped) != version(&created))
}

pub(super) fn patch_of_the_status_leaves_the_rest(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/metadata/labels/app", json!("web")))?;
    let patch = json!({"metadata": {"labels": {"app": "db"}, "finalizers": ["example.com/a"]}, "spec": null, "status": {"a": 1, "b": 2}});
    let written = subject.merge_status("a", patch)?;
    let expected =
        with(with(created, "/status", json!({"a": 1, "b": 2})), "/metadata/resourceVersion", json!(version(&written)));
    same("what is written", &written, &expected)?;
    same("what is kept", &subject.get("a")?, &written)?;
    let merged = subject.merge_status("a", json!({"status": {"a": null, "b": {"c": 3}}}))?;
    same("status", &merged["status"], &json!({"b": {"c": 3}}))?;
    let steps = Patch::Json(
        json!([{"op": "test", "path": "/spec/size", "value": 1}, {"op": "add", "path": "/status/b/d", "value": 4}]),
    );
    let stepped = owned_answer(subject.client.patch(&WIDGET, &key("a"), &steps, PatchTarget::Status))?;
    same("status", &stepped["status"], &json!({"b": {"c": 3, "d": 4}}))?;
    let gone = subject.merge_status("a", json!({"status": null}))?;
    same("status", gone.get("status"), None)
}

pub(super) fn patch_to_what_is_there_keeps_the_version(subject: &Subject) -> Outcome {
    let created = subject.create(with(widget("a"), "/metadata/labels/app", json!("web")))?;
    let current = subject.update_status(with(created, "/status/ready", json!(true)))?;
    for patch in
        [json!({}), json!({"spec": {"size": 1, "none": null}}), json!({"metadata": {"labels": {"app": "web"}}})]
    {
        same(&patch.to_string(), &subject.merge("a", patch.clone())?, &current)?;
    }
    same("no steps", &json_patch(subject, json!([]))?, &current)?;
    same("status", &subject.merge_status("a", json!({"status": {"ready": true}}))?, &current)?;
    same("what is kept", &subject.get("a")?, &current)
}

pub(super) fn patch_changes_no_name_and_no_kind(subject: &Subject) -> Outcome {
    subject.create(widget("a"))?;
    subject.create(widget("b"))?;
    for patch in [
        json!({"metadata": {"name": "b"}}),
        json!({"metadata": {"name": "c"}}),
        json!({"metadata": {"name": null}}),
        json!({"metadata": {"namespace": "other"}}),
        json!({"metadata": {"namespace": null}}),
        json!({"metadata": null}),
        json!({"metadata": "x"}),
        json!({"kind": "Gadget"}),
        json!({"apiVersion": "v1"}),
    ] {
        let refused = subject.refused(Refusal::Invalid, A, || subject.merge("a", patch.clone()));
        refused.map_err(|stop| stop.of(&patch.to_string()))?;
    }
    let steps = json!([{"op": "replace", "path": "", "value": 1}]);
    subject.refused(Refusal::Invalid, A, || json_patch(subject, steps)).map(drop)
}

pub(super) fn patch_of_labels_removes_with_null(subject: &Subject) -> Outcome {
    subject.create(with(widget("a"), "/metadata/labels", json!({"app": "web", "tier": "front"})))?;
    let patched = subject.merge("a", json!({"metadata": {"labels": {"tier": null, "new": "x"}}}))?;
    same("labels", &patched["metadata"]["labels"], &json!({"app": "web", "new": "x"}))?;
    let patched = json_patch(subject, json!([{"op": "add", "path": "/metadata/labels/example.com~1x", "value": "y"}]))?;
    let labels = json!({"app": "web", "new": "x", "example.com/x": "y"});
    same("labels", &patched["metadata"]["labels"], &labels)
}
