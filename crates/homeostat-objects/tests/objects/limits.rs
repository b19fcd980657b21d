//! The limits of depth and size, for every verb of every embedded client, and for stored objects beyond the limits.

use std::path::Path;
use std::sync::Arc;

use homeostat_objects::{
    Client, ClientError, DeleteOptions, FieldOwner, FileClient, Kind, MemoryClient, ObjectKey, Patch, PatchTarget,
    Query, SharedObject,
};
use redb::{Database, TableDefinition};
use serde_json::{Value, json};

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
/// The most levels of an object, including the object itself.
const DEPTH: usize = 120;
/// The most bytes of an object's JSON, by default.
const SIZE: usize = 1_536 * 1_024;

type Answer = Result<SharedObject, ClientError>;

/// Returns one client of each type, and the folder for the file.
fn clients() -> (tempfile::TempDir, [Arc<dyn Client>; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let file = FileClient::open(folder.path().join("objects.redb")).unwrap();
    (folder, [Arc::new(MemoryClient::new()), Arc::new(file)])
}

/// Returns this many nested arrays.
fn nest(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, level| {
        if level % 2 == 0 {
            Value::Array(vec![value])
        } else {
            Value::Object([("a".to_owned(), value)].into_iter().collect())
        }
    })
}

fn thing(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": name},
        "spec": {"size": 1},
    })
}

/// Sets a field at the top of an object, so it is one level deeper than the value.
fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Checks that the answer refuses the depth, and names the field and the number of levels.
#[track_caller]
fn too_deep(answer: Answer, field: &str, levels: usize) {
    let error = answer.unwrap_err();
    let [cause] = error.causes() else { panic!("{error}") };
    assert!(cause.field.starts_with(field), "{error}");
    assert_eq!(
        (cause.value.as_str(), cause.rule.as_str()),
        (&*format!("{levels} levels deep"), "must be nested at most 120 levels deep")
    );
}

/// Checks that the answer refuses the size.
#[track_caller]
fn too_large(answer: Answer, bytes: usize) {
    let error = answer.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    let rule = format!("its JSON has {bytes} bytes, but at most {SIZE} are allowed");
    assert!(error.to_string().ends_with(&rule), "{error}");
}

#[test]
fn every_verb_refuses_an_object_that_is_too_deep() {
    let (_folder, clients) = clients();
    let owner = FieldOwner::new("me");
    for client in clients {
        client.create(&THING, thing("a")).unwrap();
        let version = || client.list(&THING, &Query::all()).unwrap().version;
        let before = version();
        let current = || client.get(&THING, &key("a")).unwrap().to_value();
        for levels in [DEPTH, DEPTH + 8, 50_000] {
            let found = levels + 1;
            too_deep(client.create(&THING, with(thing("new"), "spec", nest(levels))), "spec", found);
            too_deep(client.apply(&THING, with(thing("new"), "spec", nest(levels)), &owner), "spec", found);
            too_deep(client.apply(&THING, with(thing("a"), "spec", nest(levels)), &owner), "spec", found);
            too_deep(client.update(&THING, with(current(), "spec", nest(levels))), "spec", found);
            too_deep(client.update_status(&THING, with(current(), "status", nest(levels))), "status", found);
            let mut managed = thing("new");
            managed["metadata"]["managedFields"] = nest(levels + 10);
            too_deep(client.create(&THING, managed), "metadata.managedFields", levels + 10 + 2 - 5);
        }
        for (target, field) in [(PatchTarget::Object, "spec"), (PatchTarget::Status, "status")] {
            let merge = Patch::Merge(json!({ field: nest(DEPTH) }));
            too_deep(client.patch(&THING, &key("a"), &merge, target), field, DEPTH + 1);
            let step = Patch::Json(json!([{"op": "add", "path": format!("/{field}"), "value": nest(DEPTH)}]));
            too_deep(client.patch(&THING, &key("a"), &step, target), field, DEPTH + 1);
            for patch in [Patch::Merge(nest(2_000)), Patch::Json(nest(2_000))] {
                too_deep(client.patch(&THING, &key("a"), &patch, target), "patch", 2_000);
            }
        }
        assert_eq!(version(), before, "nothing has been written");
    }
}

#[test]
fn a_json_patch_cannot_nest_or_copy_beyond_the_limits() {
    let (_folder, clients) = clients();
    for client in clients {
        client.create(&THING, thing("a")).unwrap();
        let version = || client.list(&THING, &Query::all()).unwrap().version;
        let before = version();
        let run = |steps: Vec<Value>| client.patch(&THING, &key("a"), &Patch::Json(steps.into()), PatchTarget::Object);

        // Each step doubles the nested value: twenty steps would make a million levels.
        let mut steps = vec![json!({"op": "add", "path": "/spec", "value": {"a": {}}})];
        for step in 0..20 {
            steps.push(json!({"op": "copy", "from": "/spec", "path": format!("/spec{}", "/a".repeat(1 << step))}));
        }
        too_deep(run(steps), "patch[7]", 130);

        // Each pair of steps nests a value in one more object.
        let mut steps = Vec::new();
        for _ in 0..3_000 {
            steps.push(json!({"op": "add", "path": "/next", "value": {}}));
            steps.push(json!({"op": "move", "from": "/spec", "path": "/next/a"}));
            steps.push(json!({"op": "move", "from": "/next", "path": "/spec"}));
        }
        let error = run(steps).unwrap_err();
        assert!(error.to_string().contains("patch[3"), "{error}");
        assert!(error.to_string().contains("levels deep"), "{error}");

        // Each step doubles the size: forty steps would make a terabyte.
        let mut steps = vec![json!({"op": "add", "path": "/spec", "value": {"a": "x".repeat(1_000)}})];
        for step in 0..40 {
            steps.push(json!({"op": "copy", "from": "/spec", "path": format!("/copy{step}")}));
            steps.push(json!({"op": "move", "from": format!("/copy{step}"), "path": format!("/spec/b{step}")}));
        }
        let error = run(steps).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("must copy at most 1572864 bytes"), "{error}");

        let steps = vec![json!({"op": "test", "path": "/kind", "value": "Thing"}); 10_001];
        assert!(run(steps).unwrap_err().to_string().contains("at most 10000 operations"));
        assert_eq!(version(), before, "nothing has been written");
    }
}

#[test]
fn every_verb_accepts_an_object_of_the_most_depth() {
    let (folder, clients) = clients();
    let owner = FieldOwner::new("me");
    for client in &clients {
        let deep = nest(DEPTH - 1);
        client.create(&THING, with(thing("created"), "spec", deep.clone())).unwrap();
        client.apply(&THING, with(thing("applied"), "spec", deep.clone()), &owner).unwrap();
        let again = client.apply(&THING, with(thing("applied"), "spec", deep.clone()), &owner).unwrap();
        assert_eq!(again.to_value()["metadata"]["generation"], 1, "the same again changes nothing");
        let mut read = again.to_value();
        read["metadata"]["labels"] = json!({"a": "b"});
        let written = client.update(&THING, with(read, "more", deep.clone())).unwrap();
        assert_eq!(
            written.to_value()["spec"],
            deep,
            "the object that was read is written, including its managed fields"
        );
        client.update_status(&THING, with(written.to_value(), "status", deep.clone())).unwrap();
        client.apply(&THING, thing("applied"), &owner).unwrap();
        client.create(&THING, thing("patched")).unwrap();
        let merge = Patch::Merge(json!({"spec": deep}));
        client.patch(&THING, &key("patched"), &merge, PatchTarget::Object).unwrap();
        let steps = Patch::Json(json!([
            {"op": "add", "path": "/copy", "value": deep}, {"op": "copy", "from": "/copy", "path": "/other"},
            {"op": "test", "path": "/other", "value": deep},
        ]));
        client.patch(&THING, &key("patched"), &steps, PatchTarget::Object).unwrap();
        // A parser with the usual limit can read a list as text.
        let list = client.list(&THING, &Query::all()).unwrap();
        let text = json!({"items": list.items.iter().map(SharedObject::to_value).collect::<Vec<_>>()}).to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
    let [_, file] = clients;
    let before = file.list(&THING, &Query::all()).unwrap();
    drop(file);
    let reopened = FileClient::open(folder.path().join("objects.redb")).unwrap();
    assert_eq!(reopened.list(&THING, &Query::all()).unwrap(), before);
}

#[test]
fn every_verb_refuses_an_object_that_is_too_large() {
    let (_folder, clients) = clients();
    let owner = FieldOwner::new("me");
    for client in clients {
        // Fill the object up to the last byte.
        let empty = client.create(&THING, with(thing("a"), "data", json!(""))).unwrap().to_string().len();
        let data = |bytes: usize| json!("x".repeat(bytes - empty));
        let set = |bytes: usize| Patch::Merge(json!({"data": data(bytes)}));
        let full = client.patch(&THING, &key("a"), &set(SIZE), PatchTarget::Object).unwrap();
        assert!(full.to_string().len() <= SIZE + 1, "{}", full.to_string().len());
        let version = client.list(&THING, &Query::all()).unwrap().version;

        let over = |field: &str, extra: usize| with(full.to_value(), field, json!("x".repeat(extra)));
        let size = |object: &Value| object.to_string().len();
        let larger = over("more", 10);
        too_large(client.update(&THING, larger.clone()), size(&larger));
        let status = over("status", 10);
        too_large(client.update_status(&THING, status.clone()), size(&status));
        let merge = Patch::Merge(json!({"more": "x".repeat(10)}));
        too_large(client.patch(&THING, &key("a"), &merge, PatchTarget::Object), size(&larger));
        let merge = Patch::Merge(json!({"status": "x".repeat(10)}));
        too_large(client.patch(&THING, &key("a"), &merge, PatchTarget::Status), size(&status));
        let step = Patch::Json(json!([{"op": "add", "path": "/more", "value": "x".repeat(10)}]));
        too_large(client.patch(&THING, &key("a"), &step, PatchTarget::Object), size(&larger));
        for answer in [
            client.create(&THING, with(thing("new"), "data", json!("x".repeat(SIZE)))),
            client.apply(&THING, with(thing("new"), "data", json!("x".repeat(SIZE))), &owner),
            client.apply(&THING, with(thing("a"), "more", json!("x".repeat(10))), &owner),
        ] {
            assert!(answer.unwrap_err().to_string().contains("but at most 1572864 are allowed"));
        }
        assert_eq!(client.list(&THING, &Query::all()).unwrap().version, version, "nothing has been written");
    }
}

#[test]
fn the_largest_size_can_be_set() {
    let client = MemoryClient::builder().max_object_bytes(1_000).build();
    let error = client.create(&THING, with(thing("a"), "data", json!("x".repeat(1_000)))).unwrap_err();
    assert!(error.to_string().contains("at most 1000 are allowed"), "{error}");
    client.create(&THING, with(thing("a"), "data", json!("x".repeat(500)))).unwrap();
    let client = MemoryClient::builder().max_object_bytes(usize::MAX).build();
    client.create(&THING, with(thing("a"), "data", json!("x".repeat(2 * SIZE)))).unwrap();
}

/// Writes objects into a file as an earlier version did, without limits.
fn write_file(path: &Path, objects: &[(&str, String)]) {
    const OBJECTS: TableDefinition<(&str, &str, &str), &[u8]> = TableDefinition::new("objects");
    const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
    let database = Database::create(path).unwrap();
    let writing = database.begin_write().unwrap();
    {
        let mut numbers = writing.open_table(NUMBERS).unwrap();
        numbers.insert("format", 1).unwrap();
        numbers.insert("head", 1).unwrap();
        let mut table = writing.open_table(OBJECTS).unwrap();
        for (name, json) in objects {
            table.insert(("example.com/v1", "Thing", &*format!("default/{name}")), json.as_bytes()).unwrap();
        }
    }
    writing.commit().unwrap();
}

#[test]
fn objects_beyond_the_limits_in_a_file_can_be_read_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let levels = 500;
    let stored = |name: &str, spec: &str| {
        let metadata = format!(
            r#""metadata":{{"namespace":"default","name":"{name}","uid":"{name}","resourceVersion":"1","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["example.com/x"]}}"#
        );
        format!(r#"{{"apiVersion":"example.com/v1","kind":"Thing",{metadata},"spec":{spec}}}"#)
    };
    let nested =
        format!(r#"{}["é\"\u0041\\",-2.5e-3,true,null,{{}},[]]{}"#, r#"{"a":["#.repeat(levels), "]}".repeat(levels));
    let deep = stored("deep", &nested);
    let large = stored("large", &format!(r#""{}""#, "x".repeat(2 * SIZE)));
    write_file(&path, &[("deep", deep), ("large", large)]);
    {
        let client = FileClient::open(&path).unwrap();
        let found = client.get(&THING, &key("deep")).unwrap();
        let mut value = &found.to_value()["spec"];
        for _ in 0..levels {
            value = &value["a"][0];
        }
        assert_eq!(value, &json!(["é\"A\\", -2.5e-3, true, null, {}, []]));
        assert_eq!(client.get(&THING, &key("large")).unwrap().to_value()["spec"].as_str().unwrap().len(), 2 * SIZE);

        // The objects can shrink but not grow.
        for name in ["deep", "large"] {
            let grow = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            let labelled = client.patch(&THING, &key(name), &grow, PatchTarget::Object);
            assert_eq!(labelled.is_ok(), name == "deep", "a deep object may become wider, a large one not larger");
            client.delete(&THING, &key(name), &DeleteOptions::default()).unwrap();
            let mut held = client.get(&THING, &key(name)).unwrap().to_value();
            held["metadata"]["finalizers"] = json!([]);
            client.update(&THING, held).unwrap();
            assert!(client.get(&THING, &key(name)).unwrap_err().is_not_found());
        }
    }
    assert_eq!(FileClient::open(&path).unwrap().list(&THING, &Query::all()).unwrap().items.len(), 0);
}
