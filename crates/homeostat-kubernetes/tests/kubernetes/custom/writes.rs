//! Writes of custom resources: apply, unknown fields, scale.

use homeostat_kubernetes::{FieldValidation, Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, FieldOwner, Kind, ObjectKey};
use log::Level;
use serde_json::{Value, json};

use super::{Place, causes, definition};
use crate::cluster;
use crate::logs::Logs;

#[test]
fn fields_and_items_are_applied_by_their_owners() {
    let port = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "number": {"type": "integer"}}});
    let ports = json!({"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    let colours = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let spec =
        json!({"type": "object", "properties": {"ports": ports, "colours": colours, "size": {"type": "integer"}}});
    let place = Place::with(Kind::namespaced("apply.custom.example.com", "v1", "Server"), &spec);
    let [one, two] = ["one", "two"].map(FieldOwner::new);
    let apply = |spec: Value, owner: &FieldOwner| {
        let applied = place.client.apply(&place.kind, place.object("a", &spec), owner)?;
        Ok::<_, homeostat_objects::ClientError>(applied.to_value())
    };
    let http = json!({"name": "http", "number": 80});
    let first = apply(json!({"ports": [http], "colours": ["blue"], "size": 1}), &one).unwrap();
    let again = apply(json!({"ports": [http], "colours": ["blue"], "size": 1}), &one).unwrap();
    assert_eq!(first["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"], "nothing has changed");
    let https = json!({"name": "https", "number": 443});
    let both = apply(json!({"ports": [https], "colours": ["red"]}), &two).unwrap();
    assert_eq!(both["spec"]["ports"], json!([http, https]));
    assert_eq!(both["spec"]["colours"], json!(["blue", "red"]));
    let conflict = apply(json!({"ports": [https], "colours": ["red"], "size": 2}), &two).unwrap_err();
    assert!(conflict.is_conflict(), "{conflict:?}");
    assert!(conflict.to_string().contains("spec.size") && conflict.to_string().contains("one"), "{conflict}");
    let forced = apply(json!({"ports": [https], "colours": ["red"], "size": 2}), &two.clone().force()).unwrap();
    assert_eq!(forced["spec"]["size"], json!(2));
    // The first owner drops its item. It has lost the size.
    let dropped = apply(json!({"colours": ["blue"]}), &one).unwrap();
    assert_eq!(dropped["spec"], json!({"ports": [https], "colours": ["blue", "red"], "size": 2}));
}

/// Servers warn of unknown fields, and refuse them if the client asks, since Kubernetes 1.25.
#[test]
fn unknown_fields_are_dropped_warned_of_or_refused() {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let place = Place::with(Kind::namespaced("fields.custom.example.com", "v1", "Strict"), &spec);
    let of = |validation| {
        let config = Kubeconfig::read(cluster::own().join("kubeconfig")).unwrap().config().unwrap();
        KubernetesClient::builder(config).field_validation(validation).build().unwrap()
    };
    let logs = Logs::of(Box::leak(place.client.server().to_owned().into_boxed_str()));
    let is_current = place.minor >= 25;
    let [ignoring, warned, strict] = [FieldValidation::Ignore, FieldValidation::Warn, FieldValidation::Strict].map(of);
    for (name, client, warnings) in [("a", &ignoring, 0), ("b", &warned, 1), ("c", &warned, 1)] {
        let made = client.create(&place.kind, place.object(name, &json!({"size": 1, "colour": "red"}))).unwrap();
        assert_eq!(made.get("spec").unwrap().to_value(), json!({"size": 1}));
        let lines = logs.at(Level::Warn);
        let told: Vec<_> = lines.iter().filter(|line| line.message.contains(&place.path())).collect();
        assert_eq!(told.len(), if is_current { warnings } else { 0 }, "{told:?}");
        assert!(told.iter().all(|line| line.message.ends_with("unknown field \"spec.colour\"")), "{told:?}");
    }
    let refused = strict.create(&place.kind, place.object("d", &json!({"size": 1, "colour": "red"})));
    if is_current {
        let error = refused.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("unknown field \"spec.colour\""), "{error:?}");
    } else {
        refused.unwrap();
    }
    assert!(
        causes(&strict.create(&place.kind, place.object("e", &json!({"size": "1"}))).unwrap_err())[0]
            .starts_with("spec.size")
    );
    strict.create(&place.kind, place.object("f", &json!({"size": 1}))).unwrap();
}

#[test]
fn custom_objects_are_scaled() {
    let kind = Kind::namespaced("scale.custom.example.com", "v1", "Fleet");
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let mut scalable = definition(&kind, &spec);
    scalable["spec"]["versions"][0]["subresources"]["scale"] = json!({"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"});
    let place = Place::empty(kind.clone());
    place.define(&scalable);
    let mut fleet = place.create("a", &json!({"replicas": 2})).unwrap();
    fleet["status"] = json!({"replicas": 1, "selector": "app=web"});
    place.client.update_status(&kind, fleet).unwrap();
    let key = ObjectKey::new("default", "a");
    let scale = place.client.scale(&kind, &key).unwrap();
    assert_eq!((scale.desired, scale.current, scale.selector.as_str()), (2, 1, "app=web"));
    assert_eq!(place.client.set_scale(&kind, &key, 5).unwrap().desired, 5);
    assert_eq!(place.client.get(&kind, &key).unwrap().pointer("/spec/replicas").unwrap(), json!(5));
}
