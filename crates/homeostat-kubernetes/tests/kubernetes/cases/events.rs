//! Events of `events.k8s.io/v1`, on a real server: case 24.

use std::sync::Arc;
use std::time::Duration;

use homeostat_objects::{
    Client, DeleteOptions, DynamicObject, EventRecorder, EventType, Ignore, Kind, Object, ObjectKey, Query,
    SharedObject,
};
use serde_json::{Value, json};

use crate::definitions::client;
use crate::until::within;

const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");
const CORE_EVENT: Kind = Kind::namespaced("", "v1", "Event");
const PATIENCE: Duration = Duration::from_secs(60);

fn recorder(client: &Arc<dyn Client>, component: &str) -> EventRecorder {
    EventRecorder::builder(component).client(client.clone()).log(false).build()
}

/// Returns the stored events about an object with this name.
fn events(client: &Arc<dyn Client>, namespace: &str, kind: &Kind, name: &str) -> Vec<Value> {
    let listed = client.list(kind, &Query::all().namespace(namespace)).unwrap().items;
    let regards = |event: &Value| ["regarding", "involvedObject"].iter().any(|field| event[*field]["name"] == name);
    listed.iter().map(SharedObject::to_value).filter(regards).collect()
}

/// Returns an object with a name that no earlier run has used.
fn vm(name: &str) -> DynamicObject {
    let mut vm = DynamicObject::new(&VM, "default", format!("{name}-{}", std::process::id()));
    vm.meta_mut().uid = format!("uid-{name}");
    vm
}

#[test]
fn case_24_repetitions_become_a_series_and_a_restarted_recorder_begins_another() {
    let client = client();
    let vm = vm("repeats");
    let first = recorder(&client, "example.com/vm-controller");
    for _ in 0..3 {
        first.event(&vm, EventType::Warning, "NoDisk", "disk-1 is not there");
        first.flush();
    }
    let [event] = &events(&client, "default", &EventRecorder::KIND, vm.name())[..] else { panic!("one event") };
    assert_eq!(
        (&event["series"]["count"], &event["reportingController"]),
        (&json!(3), &json!("example.com/vm-controller"))
    );
    assert_eq!((&event["note"], &event["action"]), (&json!("disk-1 is not there"), &json!("Reconcile")));
    // `kubectl describe` reads the core form.
    let [event] = &events(&client, "default", &CORE_EVENT, vm.name())[..] else { panic!("one event") };
    assert_eq!((&event["message"], &event["series"]["count"]), (&json!("disk-1 is not there"), &json!(3)));

    let restarted = recorder(&client, "example.com/vm-controller");
    restarted.event(&vm, EventType::Warning, "NoDisk", "disk-1 is not there");
    restarted.flush();
    let stored = events(&client, "default", &EventRecorder::KIND, vm.name());
    let mut counts: Vec<_> = stored.iter().map(|event| event["series"]["count"].as_i64().unwrap_or(1)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 3]);
}

#[test]
fn case_24_the_server_accepts_odd_names_and_long_texts() {
    let client = client();
    let vm = vm("odd");
    let odd = recorder(&client, "my controller, number 1").action("a".repeat(300));
    odd.event(&vm, EventType::Normal, &"R".repeat(300), &"é".repeat(2000));
    odd.flush();
    let [event] = &events(&client, "default", &EventRecorder::KIND, vm.name())[..] else { panic!("one event") };
    assert_eq!(event["reportingController"], "my-controller--number-1");
    assert_eq!(event["note"].as_str().unwrap().len(), 1024);
}

#[test]
fn case_24_an_event_of_a_deleted_namespace_is_dropped_and_later_ones_are_stored() {
    let client = client();
    let name = format!("doomed-{}", std::process::id());
    let namespace = DynamicObject::new(&NAMESPACE, "", name.clone());
    client.create(&NAMESPACE, namespace.to_json().unwrap()).unwrap();
    client.delete(&NAMESPACE, &ObjectKey::cluster(&name), &DeleteOptions::default()).unwrap();
    let recorder = recorder(&client, "vms");
    // The namespace is terminating now, and will be gone later.
    let doomed = DynamicObject::new(&VM, name.clone(), "doomed");
    recorder.event(&doomed, EventType::Normal, "Stopped", "terminating");
    recorder.flush();
    let gone =
        || client.get(&NAMESPACE, &ObjectKey::cluster(&name)).ignore_not_found().unwrap().is_none().then_some(());
    within(PATIENCE, "the namespace is gone", gone);
    recorder.event(&doomed, EventType::Normal, "Stopped", "gone");
    let vm = vm("survivor");
    recorder.event(&vm, EventType::Normal, "Started", "after the others");
    recorder.flush();
    assert_eq!(events(&client, "default", &EventRecorder::KIND, vm.name()).len(), 1);
    assert_eq!((events(&client, &name, &EventRecorder::KIND, "doomed").len(), recorder.dropped()), (0, 0));
}
