//! `patch`: the examples of both standards, and invalid patches.

use serde_json::{Value, json};

use super::fixture::{CaseResult, InPart, Refusal, TestedClient, owned_answer, same};
use super::objects::{A, WIDGET, ZONE, key, version, widget, with, zone};
use homeostat_objects::{ClientError, ObjectKey, Patch, PatchTarget};

fn json_patch(client: &TestedClient, steps: Value) -> Result<Value, ClientError> {
    client.patch("a", &Patch::Json(steps))
}

/// The examples of RFC 7386, appendix A: document, patch, and result. The document is a field of the widget, so the
/// result `null` means that the field is removed.
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

pub(super) fn patch_merges_as_the_standard_says(client: &TestedClient) -> CaseResult {
    let created = client.create(widget("a"))?;
    for (document, patch, merged) in merge_examples() {
        client.update(with(client.get("a")?, "/data", document.clone()))?;
        let patched = client.merge("a", json!({"data": patch.clone()}))?;
        let what = format!("{document} with {patch}");
        let found = patched.get("data").cloned().unwrap_or_default();
        same(&what, found, merged.clone())?;
        same(&format!("whether the field exists after {what}"), patched.get("data").is_some(), merged != json!(null))?;
        same(&format!("the spec after {what}"), &patched["spec"], &created["spec"])?;
        same(&format!("the stored object after {what}"), client.get("a")?, patched)?;
    }
    Ok(())
}

/// The examples of RFC 6902, appendix A: name, document, steps, and the result, or `null` for an error. Paths start at
/// the field `data`. A.13 is missing, because no program can produce its JSON.
fn step_examples() -> Value {
    json!([
        ["A.1", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}],
        ["A.2", {"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}],
        ["A.3", {"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}],
        ["A.4", {"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}],
        ["A.5", {"baz": "qux", "foo": "bar"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo", "foo": "bar"}],
        ["A.6", {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}],
        ["A.7", {"foo": ["all", "grass", "cows", "eat"]}, [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]}],
        ["A.8", {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]}],
        ["A.9", {"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], null],
        ["A.10", {"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
            {"foo": "bar", "child": {"grandchild": {}}}],
        ["A.11", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}], {"foo": "bar", "baz": "qux"}],
        ["A.12", {"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], null],
        ["A.14", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}],
        ["A.15", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], null],
        ["A.16", {"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}], {"foo": ["bar", ["abc", "def"]]}],
        // Not in the standard: in a test operation, a missing field of an object equals null.
        ["absence", {"foo": "bar"}, [{"op": "test", "path": "/b~1z", "value": null}], {"foo": "bar"}],
        ["no absence", {"foo": "bar"}, [{"op": "test", "path": "/foo", "value": null}], null],
        ["absent value", {"foo": "bar"}, [{"op": "test", "path": "/baz", "value": 1}], null],
        ["absent parent", {"foo": "bar"}, [{"op": "test", "path": "/baz/x", "value": null}], null],
        ["copy", {"foo": [1]}, [{"op": "copy", "from": "/foo", "path": "/bar"}], {"foo": [1], "bar": [1]}],
    ])
}

pub(super) fn patch_takes_steps_as_the_standard_says(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    for example in step_examples().as_array().into_iter().flatten() {
        let [name, document, steps, expected] = [0, 1, 2, 3].map(|part| &example[part]);
        let (name, mut steps) = (name.as_str().unwrap_or_default(), steps.clone());
        for step in steps.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            for (_, path) in step.iter_mut().filter(|(field, _)| ["path", "from"].contains(&field.as_str())) {
                *path = json!(format!("/data{}", path.as_str().unwrap_or_default()));
            }
        }
        let before = client.update(with(client.get("a")?, "/data", document.clone()))?;
        let after = if expected.is_null() {
            client.refused(Refusal::Invalid, A, || json_patch(client, steps)).in_part(name)?;
            before
        } else {
            let patched = json_patch(client, steps)?;
            same(name, &patched["data"], expected)?;
            patched
        };
        same(&format!("the stored object after {name}"), client.get("a")?, after)?;
    }
    Ok(())
}

pub(super) fn patch_does_all_steps_or_none(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    let replace = json!({"op": "replace", "path": "/spec/size", "value": 2});
    for bad in [
        json!({"op": "test", "path": "/spec/size", "value": 1}),
        json!({"op": "remove", "path": "/spec/none"}),
        json!({"op": "remove", "path": "/spec/none/x"}),
        json!({"op": "replace", "path": "/spec/none/x", "value": 1}),
        json!({"op": "move", "from": "/spec/none/x", "path": "/spec/other"}),
        json!({"op": "copy", "from": "/spec/none/x", "path": "/spec/other"}),
    ] {
        let steps = json!([replace, bad]);
        client.refused(Refusal::Invalid, A, || json_patch(client, steps)).in_part(&bad.to_string())?;
    }
    let both = json!([replace, {"op": "test", "path": "/spec/size", "value": 2}]);
    same("the size", &json_patch(client, both)?["spec"]["size"], &json!(2))
}

pub(super) fn patch_that_is_none_is_invalid(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
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
        let refused = client.refused(Refusal::Invalid, A, || json_patch(client, steps.clone()));
        refused.in_part(&steps.to_string())?;
    }
    for merge in [json!([]), json!("x"), json!(1)] {
        let refused = client.refused(Refusal::Invalid, A, || client.merge("a", merge.clone()));
        refused.in_part(&merge.to_string())?;
    }
    Ok(())
}

pub(super) fn patch_of_the_status_leaves_the_rest(client: &TestedClient) -> CaseResult {
    let created = client.create(with(widget("a"), "/metadata/labels/app", json!("web")))?;
    let patch = json!({"metadata": {"labels": {"app": "db"}, "finalizers": ["example.com/a"]}, "spec": null, "status": {"a": 1, "b": 2}});
    let written = client.merge_status("a", patch)?;
    let expected =
        with(with(created, "/status", json!({"a": 1, "b": 2})), "/metadata/resourceVersion", json!(version(&written)));
    same("the written object", &written, &expected)?;
    same("the stored object", &client.get("a")?, &written)?;
    let merged = client.merge_status("a", json!({"status": {"a": null, "b": {"c": 3}}}))?;
    same("status", &merged["status"], &json!({"b": {"c": 3}}))?;
    let steps = Patch::Json(
        json!([{"op": "test", "path": "/spec/size", "value": 1}, {"op": "add", "path": "/status/b/d", "value": 4}]),
    );
    let stepped = owned_answer(client.inner.patch(&WIDGET, &key("a"), &steps, PatchTarget::Status))?;
    same("status", &stepped["status"], &json!({"b": {"c": 3, "d": 4}}))?;
    let gone = client.merge_status("a", json!({"status": null}))?;
    same("status", gone.get("status"), None)
}

pub(super) fn patch_changes_no_name_and_no_kind(client: &TestedClient) -> CaseResult {
    client.create(widget("a"))?;
    client.create(widget("b"))?;
    for patch in [
        json!({"metadata": {"name": "b"}}),
        json!({"metadata": {"name": "c"}}),
        json!({"metadata": {"name": null}}),
        json!({"metadata": {"namespace": "other"}}),
        json!({"metadata": null}),
        json!({"metadata": "x"}),
        json!({"kind": "Gadget"}),
        json!({"apiVersion": "v1"}),
    ] {
        let refused = client.refused(Refusal::Invalid, A, || client.merge("a", patch.clone()));
        refused.in_part(&patch.to_string())?;
    }
    let steps = json!([{"op": "replace", "path": "", "value": 1}]);
    client.refused(Refusal::Invalid, A, || json_patch(client, steps)).map(drop)
}

pub(super) fn patch_of_labels_removes_with_null(client: &TestedClient) -> CaseResult {
    client.create(with(widget("a"), "/metadata/labels", json!({"app": "web", "tier": "front"})))?;
    let patched = client.merge("a", json!({"metadata": {"labels": {"tier": null, "new": "x"}}}))?;
    same("labels", &patched["metadata"]["labels"], &json!({"app": "web", "new": "x"}))?;
    let patched = json_patch(client, json!([{"op": "add", "path": "/metadata/labels/example.com~1x", "value": "y"}]))?;
    let labels = json!({"app": "web", "new": "x", "example.com/x": "y"});
    same("labels", &patched["metadata"]["labels"], &labels)
}

pub(super) fn patch_in_no_namespace(client: &TestedClient) -> CaseResult {
    client.create(zone("a"))?;
    let (a, size) = (ObjectKey::cluster("a"), json!({"spec": {"size": 2}}));
    let patched = owned_answer(client.inner.patch(&ZONE, &a, &Patch::Merge(size), PatchTarget::Object))?;
    same("the size", &patched["spec"]["size"], &json!(2))?;
    let ready = Patch::Merge(json!({"status": {"ready": true}}));
    let patched = owned_answer(client.inner.patch(&ZONE, &a, &ready, PatchTarget::Status))?;
    same("the status", &patched["status"], &json!({"ready": true}))?;
    same("the stored object", &client.inner.get(&ZONE, &a)?, &patched)
}
