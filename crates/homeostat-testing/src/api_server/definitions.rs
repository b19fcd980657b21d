//! The kinds of a new server, and the kinds of custom resource definitions.

use serde_json::{Value, json};

use homeostat_objects::{Client, Ignore, Kind, KindDefinition, MemoryClient, Patch, PatchTarget, Query, SharedObject};
use homeostat_serve::{IncomingRequest, ObjectApi};

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

/// The fields by which a server selects objects of built-in kinds, besides the name and the namespace.
const SELECTABLE: [(&str, &[&str]); 5] = [
    ("Job", &["status.successful"]),
    ("Namespace", &["status.phase"]),
    ("Node", &["spec.unschedulable"]),
    (
        "Pod",
        &[
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
            "status.podIPs",
        ],
    ),
    ("Secret", &["type"]),
];

/// Returns the definition of a kind that the server has from the start.
pub(super) fn built_in(kind: Kind) -> KindDefinition {
    let fields = SELECTABLE.iter().find(|(name, _)| *name == kind.name()).map_or(&[][..], |(_, fields)| *fields);
    strict(fields.iter().fold(KindDefinition::new(kind), |definition, field| definition.selectable_field(*field)))
}

/// Returns a definition without selectable fields as one that refuses all field selectors, except those by name and
/// namespace. No other API server selects by any field.
pub(super) fn strict(definition: KindDefinition) -> KindDefinition {
    if definition.selectable_fields().is_empty() { definition.selectable_field("metadata.name") } else { definition }
}

/// Returns whether a request may change definitions.
pub(super) fn are_written_by(request: &IncomingRequest) -> bool {
    request.method() != "GET" && request.path().starts_with(PATH) && !request.path().ends_with("/status")
}

/// Serves the kinds of all stored definitions, and reports that in their status. Withdraws the kinds of definitions
/// that were removed or changed. `replace` stores the kinds of all definitions, and returns the earlier ones.
pub(super) fn follow(client: &MemoryClient, api: &ObjectApi, replace: impl FnOnce(Vec<Kind>) -> Vec<Kind>) {
    let stored = client.list(&DEFINITION, &Query::all()).map(|list| list.items).unwrap_or_default();
    let wanted: Vec<_> = stored.iter().flat_map(served).collect();
    let kinds: Vec<_> = wanted.iter().map(KindDefinition::kind).cloned().collect();
    for kind in replace(kinds.clone()).iter().filter(|kind| !kinds.contains(kind)) {
        api.withdraw(kind);
    }
    for definition in wanted {
        // A definition with invalid names is not served.
        let _ = api.serve(definition);
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

/// Returns the served versions of a custom resource definition, without their schemas.
fn served(definition: &SharedObject) -> Vec<KindDefinition> {
    let mut json = definition.to_value();
    let versions = json.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        version.remove("schema");
    }
    let versions = KindDefinition::of_custom_resource(&json).unwrap_or_default();
    versions.into_iter().filter(KindDefinition::is_served).map(strict).collect()
}
