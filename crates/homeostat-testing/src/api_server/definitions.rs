//! The kinds of a new server, and the kinds of custom resource definitions.

use serde_json::{Value, json};

use homeostat_objects::{Client, Ignore, Kind, MemoryClient, Patch, PatchTarget, Query, SharedObject};
use homeostat_serve::{IncomingRequest, ObjectApi, ServedResource};

/// The kind of custom resource definitions.
const DEFINITION: Kind = Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
/// Their path.
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The kinds that a new server serves, besides events.
pub(super) const BUILT_IN: [Kind; 15] = [
    Kind::cluster("", "v1", "Namespace"),
    Kind::cluster("", "v1", "Node"),
    Kind::namespaced("", "v1", "ConfigMap"),
    Kind::namespaced("", "v1", "PersistentVolumeClaim"),
    Kind::namespaced("", "v1", "Pod"),
    Kind::namespaced("", "v1", "Secret"),
    Kind::namespaced("", "v1", "Service"),
    Kind::namespaced("", "v1", "ServiceAccount"),
    Kind::namespaced("apps", "v1", "DaemonSet"),
    Kind::namespaced("apps", "v1", "Deployment"),
    Kind::namespaced("apps", "v1", "StatefulSet"),
    Kind::namespaced("batch", "v1", "Job"),
    Kind::namespaced("coordination.k8s.io", "v1", "Lease"),
    Kind::namespaced("networking.k8s.io", "v1", "Ingress"),
    DEFINITION,
];

/// Returns whether a request may change definitions.
pub(super) fn are_written_by(request: &IncomingRequest) -> bool {
    request.method() != "GET" && request.path().starts_with(PATH) && !request.path().ends_with("/status")
}

/// Serves the kinds of all stored definitions, and reports that in their status. Withdraws the kinds of definitions
/// that were removed or changed. `replace` stores the kinds of all definitions, and returns the earlier ones.
pub(super) fn follow(client: &MemoryClient, api: &ObjectApi, replace: impl FnOnce(Vec<Kind>) -> Vec<Kind>) {
    let stored = client.list(&DEFINITION, &Query::all()).map(|list| list.items).unwrap_or_default();
    let wanted: Vec<_> = stored.iter().flat_map(kinds_of).collect();
    let known = replace(wanted.clone());
    for kind in known.iter().filter(|kind| !wanted.contains(kind)) {
        api.withdraw(kind);
    }
    let current = api.kinds();
    for kind in wanted.into_iter().filter(|kind| !current.contains(kind)) {
        // A definition with invalid names is not served.
        let _ = api.serve(ServedResource::new(kind));
    }
    for definition in &stored {
        let patch = Patch::Merge(json!({"status": {
            "acceptedNames": definition.to_value()["spec"]["names"],
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
            ],
        }}));
        // It may have been deleted since.
        let _ = client.patch(&DEFINITION, &definition.key(), &patch, PatchTarget::Status).ignore_not_found();
    }
}

/// Returns the kinds that a definition serves.
fn kinds_of(definition: &SharedObject) -> Vec<Kind> {
    let spec = &definition.to_value()["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, name, plural) = (text(&spec["group"]), text(&spec["names"]["kind"]), text(&spec["names"]["plural"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    let kinds = served.map(|version| {
        let kind = Kind::of(&format!("{group}/{}", text(&version["name"])), &name).with_plural(plural.clone());
        if spec["scope"] == "Cluster" { kind.in_no_namespace() } else { kind }
    });
    kinds.collect()
}
