//! The kinds of the conformance suite, as custom resource definitions.

use std::time::Duration;

use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Client, Ignore, Kind, ObjectKey};
use homeostat_testing::conformance::{WIDGET, ZONE};
use serde_json::{Value, json};

use crate::cluster::Programs;
use crate::until::within;

/// The kind of custom resource definitions.
pub(crate) const DEFINITION: Kind = Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition");

const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

/// Returns the definitions of all kinds.
pub(crate) fn all() -> [Value; 2] {
    [definition(&WIDGET), definition(&ZONE)]
}

/// Returns a definition of a kind with a status subresource and any fields.
pub(crate) fn definition(kind: &Kind) -> Value {
    let singular = kind.name().to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{}", kind.group())},
        "spec": {
            "group": kind.group(),
            "names": {"kind": kind.name(), "plural": plural, "singular": singular},
            "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": kind.version(), "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Creates the kinds and the namespaces of the conformance suite, unless they exist.
pub(crate) fn install(client: &KubernetesClient) {
    if Programs::find().are_complete() {
        for namespace in ["default", "other"] {
            create_namespace(client, namespace);
        }
    }
    for definition in all() {
        define(client, &definition);
    }
}

/// Creates a namespace, unless it exists.
pub(crate) fn create_namespace(client: &KubernetesClient, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    if client.get(&NAMESPACE, &ObjectKey::cluster(name)).ignore_not_found().unwrap().is_none() {
        client.create(&NAMESPACE, namespace).ignore_already_exists().unwrap();
    }
}

/// Creates a kind, unless it exists, and waits until it is served.
pub(crate) fn define(client: &KubernetesClient, definition: &Value) {
    let key = ObjectKey::cluster(definition["metadata"]["name"].as_str().unwrap());
    if client.get(&DEFINITION, &key).ignore_not_found().unwrap().is_none() {
        client.create(&DEFINITION, definition.clone()).ignore_already_exists().unwrap();
    }
    within(Duration::from_secs(60), "the kind is established", || {
        let conditions = client.get(&DEFINITION, &key).unwrap().to_value()["status"]["conditions"].clone();
        let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        conditions.as_array().is_some_and(|all| all.iter().any(established)).then_some(())
    });
}
