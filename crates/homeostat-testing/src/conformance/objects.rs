//! The objects of the cases, as JSON.

use serde_json::{Value, json};

use homeostat_objects::{Kind, ObjectKey, WatchEvent};

/// The kind of most objects in the cases. They are in the namespaces `default` and `other`.
pub const WIDGET: Kind = Kind::namespaced("conformance.example.com", "v1", "Widget");

/// The kind of the cluster-scoped objects in the cases.
pub const ZONE: Kind = Kind::cluster("conformance.example.com", "v1", "Zone");

/// How errors name the widget `a`.
pub(super) const A: &str = "Widget default/a";

pub(super) fn kind_of(object: &Value) -> Kind {
    if object["kind"] == ZONE.name() { ZONE } else { WIDGET }
}

/// The key of an object in the namespace `default`.
pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A widget in the namespace `default`.
pub(super) fn widget(name: &str) -> Value {
    widget_in("default", name)
}

pub(super) fn widget_in(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": WIDGET.api_version(), "kind": WIDGET.name(),
        "metadata": {"namespace": namespace, "name": name}, "spec": {"size": 1},
    })
}

pub(super) fn zone(name: &str) -> Value {
    json!({"apiVersion": ZONE.api_version(), "kind": ZONE.name(), "metadata": {"name": name}, "spec": {"size": 1}})
}

/// Returns the object with a value at a path, such as `/spec/size`. Missing fields are created.
pub(super) fn with(mut object: Value, path: &str, value: Value) -> Value {
    let place = path.split('/').skip(1).fold(&mut object, |json, name| match name.parse::<usize>() {
        Ok(index) if json.is_array() => &mut json[index],
        _ => &mut json[name],
    });
    *place = value;
    object
}

/// Removes the field at a path.
pub(super) fn without(mut object: Value, path: &str) -> Value {
    if let Some((parent, name)) = path.rsplit_once('/')
        && let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        fields.remove(name);
    }
    object
}

/// Returns a text field of the metadata, or an empty text.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn version(object: &Value) -> &str {
    meta(object, "resourceVersion")
}

/// A reference to this object, for the `ownerReferences` of another object.
pub(super) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
    })
}

/// An event as text: `Added default/a`.
pub(super) fn brief(event: &WatchEvent<Value>) -> String {
    let (verb, object) = match event {
        WatchEvent::Added(object) => ("Added", object),
        WatchEvent::Modified(object) => ("Modified", object),
        WatchEvent::Deleted(object) => ("Deleted", object),
        WatchEvent::Bookmark(_) => return "Bookmark".to_owned(),
    };
    format!("{verb} {}/{}", meta(object, "namespace"), meta(object, "name"))
}

/// Returns a widget that belongs to these objects.
pub(super) fn owned_by(name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<_> = owners.iter().map(|object| owner(object)).collect();
    with(widget(name), "/metadata/ownerReferences", json!(owners))
}

/// Returns the object with one finalizer.
pub(super) fn held(object: Value) -> Value {
    with(object, "/metadata/finalizers", json!([FINALIZER]))
}

pub(super) const FINALIZER: &str = "example.com/a";

/// Returns whether the object has a deletion time, in whole seconds.
pub(super) fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").parse::<jiff::Timestamp>().is_ok_and(|time| time.subsec_nanosecond() == 0)
}
