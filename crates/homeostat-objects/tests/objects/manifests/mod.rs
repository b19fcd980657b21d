//! Manifests of a cluster: reading and writing them loses nothing.

use std::sync::Arc;

use homeostat_objects::{
    Api, Client, DynamicObject, Kind, MemoryClient, Object, ObjectMeta, Patch, Query, Scheme, SharedObject, ValueRef,
};
use serde_json::{Value, json};

/// Each file, with a description.
const FILES: [(&str, &str); 11] = [
    ("config-map", include_str!("config-map.json")),
    ("custom-resource-definition", include_str!("custom-resource-definition.json")),
    ("custom-resource", include_str!("custom-resource.json")),
    ("deployment", include_str!("deployment.json")),
    ("event", include_str!("event.json")),
    ("list", include_str!("list.json")),
    ("node", include_str!("node.json")),
    ("pod-list", include_str!("pod-list.json")),
    ("pod", include_str!("pod.json")),
    ("secret", include_str!("secret.json")),
    ("service", include_str!("service.json")),
];

/// Returns the kinds in the files, without kinds that only an owner reference names.
pub(super) fn scheme() -> Scheme {
    let core = ["ConfigMap", "Event", "Pod", "Secret", "Service"].map(|name| Kind::namespaced("", "v1", name));
    core.into_iter()
        .fold(Scheme::new(), Scheme::register_kind)
        .register_kind(Kind::cluster("", "v1", "Node"))
        .register_kind(Kind::namespaced("apps", "v1", "Deployment"))
        .register_kind(Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
        .register_kind(Kind::namespaced("compute.example.com", "v1beta2", "VirtualMachine"))
}

pub(super) fn file(name: &str) -> Value {
    serde_json::from_str(FILES.iter().find(|(known, _)| *known == name).unwrap().1).unwrap()
}

fn objects() -> Vec<(Kind, Value)> {
    let objects: Vec<_> = FILES.iter().flat_map(|(name, _)| scheme().objects(&file(name)).unwrap()).collect();
    assert_eq!(objects.len(), 14);
    objects
}

#[test]
fn objects_are_unchanged_by_reading_and_writing() {
    for (kind, json) in objects() {
        let object = DynamicObject::from_shared(&SharedObject::from(&json)).unwrap();
        assert_eq!(serde_json::to_value(&object).unwrap(), json, "{kind}");
        assert_eq!(object.to_json().unwrap(), json, "{kind}");
        assert_eq!(object.kind(), kind);
        assert_eq!(object.key().name(), json["metadata"]["name"]);
        let meta: ObjectMeta = serde_json::from_value(json["metadata"].clone()).unwrap();
        assert_eq!(serde_json::to_value(&meta).unwrap(), json["metadata"], "{kind}");
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(serde_json::from_str::<DynamicObject>(&text).unwrap(), object, "{kind}");
    }
}

/// A list has no name and no registered kind, but it can also be read as one object.
#[test]
fn lists_are_unchanged_by_reading_and_writing() {
    for name in ["list", "pod-list"] {
        let list = DynamicObject::from_shared(&file(name).into()).unwrap();
        assert_eq!(serde_json::to_value(&list).unwrap(), file(name));
        assert!(list.fields()["items"].as_array().unwrap().len() >= 2);
    }
}

#[test]
fn metadata_is_understood() {
    let pod = DynamicObject::from_shared(&file("pod").into()).unwrap();
    assert_eq!(pod.key().to_string(), "shop/web-6d5f8c7b9-x2x8p");
    assert_eq!(pod.meta().generate_name, "web-6d5f8c7b9-");
    assert_eq!(pod.meta().controller().unwrap().kind, "ReplicaSet");
    assert_eq!(pod.meta().creation_timestamp.unwrap().to_string(), "2024-05-05T08:14:32Z");
    assert!(!pod.meta().is_deleting() && pod.meta().annotations.is_empty() && pod.meta().finalizers.is_empty());
    let vm = DynamicObject::from_shared(&file("custom-resource").into()).unwrap();
    assert!(vm.meta().is_deleting() && vm.meta().has_finalizer("foregroundDeletion"));
    assert_eq!(vm.pointer("/spec/big").map(ValueRef::to_value), Some(json!(u64::MAX)));
    assert_eq!(vm.pointer("/spec/negative").map(ValueRef::to_value), Some(json!(i64::MIN)));
    assert_eq!(vm.meta().generation, 12);
}

/// The fields of the metadata that the client sets or ignores.
const CLIENTS: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

fn as_a_writer_says_it(json: &Value) -> Value {
    let mut json = json.clone();
    let meta = json["metadata"].as_object_mut().unwrap();
    // The client drops empty fields.
    let empty = [json!(null), json!({}), json!([]), json!("")];
    meta.retain(|name, value| !CLIENTS.contains(&name.as_str()) && !empty.contains(value));
    json
}

#[test]
fn a_client_keeps_manifests_unchanged() {
    let client: Arc<dyn Client> = Arc::new(MemoryClient::builder().cascade(false).build());
    for (kind, json) in objects() {
        let mut report = json.clone();
        report["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let created = client.create(&kind, report).unwrap();
        let mut expected = as_a_writer_says_it(&json);
        let status = expected.as_object_mut().unwrap().remove("status");
        assert_eq!(as_a_writer_says_it(&created.to_value()), expected, "{kind}");

        let api = Api::<DynamicObject>::of_kind(Arc::clone(&client), kind.clone());
        let mut object = api.get(&DynamicObject::from_shared(&SharedObject::from(&json)).unwrap().key()).unwrap();
        if let Some(status) = status {
            object.fields_mut().insert("status".to_owned(), status);
            object = api.update_status(&object).unwrap();
        }
        assert_eq!(as_a_writer_says_it(&object.to_json().unwrap()), as_a_writer_says_it(&json), "{kind}");
        assert_eq!(api.update(&object).unwrap(), object, "{kind}: there is nothing to be written");
        let unchanged = api.patch(&object.key(), &Patch::Merge(json!({}))).unwrap();
        assert_eq!(unchanged, object, "{kind}: nor patched");
    }
    let pods = Api::<DynamicObject>::of_kind(client, Kind::of("v1", "Pod"));
    let failed = pods.list(&Query::all().field("status.phase", "Failed")).unwrap();
    assert_eq!(failed.items.iter().map(|pod| pod.key().to_string()).collect::<Vec<_>>(), ["other/b"]);
}
