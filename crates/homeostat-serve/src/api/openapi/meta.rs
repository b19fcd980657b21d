//! The schemas that all kinds share.

use serde_json::{Map, Value, json};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";

/// Returns the shared schemas by name.
pub(super) fn schemas() -> Map<String, Value> {
    Map::from_iter([
        (OBJECT_META.to_owned(), object_meta()),
        (LIST_META.to_owned(), list_meta()),
        (OWNER_REFERENCE.to_owned(), owner_reference()),
    ])
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn texts(description: &str) -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string", "default": ""}, "description": description})
}

fn object_meta() -> Value {
    let grace =
        json!({"type": "integer", "format": "int64", "description": "Always 0 while the object is being deleted."});
    let generation =
        "A number that rises with each change of the object outside its metadata and status. Set by the server.";
    json!({"type": "object", "description": "The metadata of an object.", "properties": {
        "name": text("The name of the object, unique for its kind and namespace. It cannot be changed."),
        "generateName": text("The beginning of a generated name, for an object that is created without a name."),
        "namespace": text("The namespace of the object. It cannot be changed."),
        "labels": texts("Names and values by which objects are selected."),
        "annotations": texts("Names and values for tools. Selectors cannot use them."),
        "uid": text("A unique identifier that is never used again. Set by the server."),
        "resourceVersion": text("The version of the object. An update must name the version that it replaces. Set by the server."),
        "generation": {"type": "integer", "format": "int64", "description": generation},
        "creationTimestamp": time("The time of the creation. Set by the server."),
        "deletionTimestamp": time("The time at which the deletion of the object began. Set by the server."),
        "deletionGracePeriodSeconds": grace,
        "finalizers": {
            "type": "array", "items": {"type": "string", "default": ""}, "x-kubernetes-list-type": "set",
            "description": "Names that must all be removed before the server removes a deleted object.",
        },
        "ownerReferences": {
            "type": "array", "items": {"allOf": [super::reference(OWNER_REFERENCE)], "default": {}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "description": "The objects that this object depends on. It is deleted when all of them are gone.",
        },
        "managedFields": {
            "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "description": "The owners of applied fields. Set by the server.",
        },
    }})
}

fn list_meta() -> Value {
    json!({"type": "object", "description": "The metadata of a list.", "properties": {
        "resourceVersion": text("The version of the list. A watch from this version shows all later changes."),
        "continue": text("The token of the next page; empty for the last one."),
    }})
}

fn owner_reference() -> Value {
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    json!({
        "type": "object", "description": "A reference to an owner.", "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text("The group and version of the owner."), "kind": text("The kind of the owner."),
            "name": text("The name of the owner."), "uid": text("The identifier of the owner."),
            "controller": flag("Whether the owner manages the object."),
            "blockOwnerDeletion": flag("Whether a foreground deletion of the owner waits for the object."),
        },
    })
}
