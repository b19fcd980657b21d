//! kopf, a framework for operators in Python: `kopf run` with an operator beside this file.

use std::fs::File;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;

use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, Ignore, Kind, KindDefinition, ObjectKey, Patch, PatchTarget, Query,
};
use serde_json::{Value, json};

use super::{beside, python};
use crate::kubectl::Door;
use crate::until::until;

const LAMP: Kind = Kind::namespaced("example.com", "v1", "Lamp");

/// kopf writes its progress and the results of handlers into fields of the status that no schema names.
fn lamps() -> KindDefinition {
    let spec = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    KindDefinition::new(LAMP).schema(json!({"type": "object", "properties": {"spec": spec, "status": status}}))
}

fn lamp(name: &str, colour: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Lamp",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"colour": colour},
    })
}

/// A running operator. It ends when this is dropped.
struct Operator {
    child: Child,
    output: PathBuf,
}

impl Operator {
    fn start(door: &Door) -> Self {
        let program = beside("kopf_operator.py");
        let arguments = ["-m", "kopf", "run", "--standalone", "--namespace", "default", program.to_str().unwrap()];
        let output = door.home().join("output");
        let file = File::create(&output).unwrap();
        let mut command = python(door, &arguments);
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { child, output }
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    /// Returns whether the operator has printed a line.
    fn says(&self, line: &str) -> bool {
        self.output().lines().any(|found| found == line)
    }

    /// Waits for a condition. If it is not met, the failure shows the operator's output.
    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        until(what, || if condition() { Ok(()) } else { Err(self.output()) });
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn stored(door: &Door, name: &str) -> Option<Value> {
    door.client.get(&LAMP, &key(name)).ignore_not_found().unwrap().map(|object| object.to_value())
}

fn shines(door: &Door, name: &str, expected: &str) -> bool {
    stored(door, name).is_some_and(|lamp| lamp["status"]["shines"] == expected)
}

fn change(door: &Door, name: &str, colour: &str) {
    let patch = Patch::Merge(json!({"spec": {"colour": colour}}));
    door.client.patch(&LAMP, &key(name), &patch, PatchTarget::Object).unwrap();
}

#[test]
fn kopf_runs_handlers_timers_and_daemons_also_after_a_restart_of_the_server() {
    let mut door = Door::with(|api| api.serve(lamps()).serve_events());
    door.client.create(&LAMP, lamp("before", "white")).unwrap();
    let operator = Operator::start(&door);
    operator.until("the operator handles what it finds", || shines(&door, "before", "white"));
    door.client.create(&LAMP, lamp("desk", "blue")).unwrap();
    operator.until("a creation is handled", || shines(&door, "desk", "blue"));
    operator.until("the result of a handler is stored", || {
        stored(&door, "desk").unwrap()["status"]["created"] == json!({"watts": 5})
    });
    operator.until("the timer ticks", || stored(&door, "desk").unwrap()["metadata"]["annotations"]["ticks"] == "3");
    operator.until("the daemon runs", || operator.says("serves desk"));
    change(&door, "desk", "red");
    operator.until("an update is handled", || shines(&door, "desk", "red, not blue"));
    let finalizers = stored(&door, "desk").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kopf.zalando.org/KopfFinalizerMarker"]));
    let events =
        Api::<DynamicObject>::of_kind(Arc::new(door.client.clone()), Kind::namespaced("events.k8s.io", "v1", "Event"));
    operator.until("the event is posted", || {
        let all = events.list(&Query::all().namespace("default")).unwrap().items;
        all.iter().any(|event| event.get("note").is_some_and(|note| note.to_value() == "The lamp is blue now."))
    });

    door.restart();
    door.client.create(&LAMP, lamp("after", "grey")).unwrap();
    operator.until("the operator has found the server again", || shines(&door, "after", "grey"));
    change(&door, "desk", "green");
    operator.until("an update is handled again", || shines(&door, "desk", "green, not red"));

    door.client.delete(&LAMP, &key("desk"), &DeleteOptions::default()).unwrap();
    operator.until("the object is released", || stored(&door, "desk").is_none());
    operator.until("the daemon has ended", || operator.says("no longer serves desk"));
    operator.until("the deletion is handled", || operator.says("deleted desk"));
    // kopf compares its patches with what the server has stored.
    let output = operator.output();
    assert!(!output.contains("inconsistencies"), "{output}");
}
