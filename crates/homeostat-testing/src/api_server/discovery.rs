//! The served kinds, as clients discover them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use homeostat_objects::{Kind, SharedObject};

/// The kind of custom resource definitions.
pub(super) const DEFINITION: Kind = Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition");

/// The kinds that a new server serves.
pub(super) const BUILT_IN: [Kind; 17] = [
    Kind::cluster("", "v1", "Namespace"),
    Kind::cluster("", "v1", "Node"),
    Kind::namespaced("", "v1", "ConfigMap"),
    Kind::namespaced("", "v1", "Event"),
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
    Kind::namespaced("events.k8s.io", "v1", "Event"),
    Kind::namespaced("networking.k8s.io", "v1", "Ingress"),
    DEFINITION,
];

/// Returns the answer to a discovery request. `path` is the path without its leading slash, in
/// parts.
pub(super) fn discover(kinds: &[Kind], path: &[&str]) -> Option<Value> {
    match path {
        ["version"] => Some(json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["api", version] => resources(kinds, "", version),
        ["apis"] => {
            let names: BTreeSet<_> = kinds.iter().map(Kind::group).filter(|group| !group.is_empty()).collect();
            let groups: Vec<_> = names.into_iter().filter_map(|name| group(kinds, name)).collect();
            Some(json!({"apiVersion": "v1", "kind": "APIGroupList", "groups": groups}))
        }
        ["apis", name] => group(kinds, name),
        ["apis", group, version] => resources(kinds, group, version),
        _ => None,
    }
}

fn group(kinds: &[Kind], name: &str) -> Option<Value> {
    let versions: BTreeSet<_> = kinds.iter().filter(|kind| kind.group() == name).map(Kind::version).collect();
    let entry = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<_> = versions.iter().map(entry).collect();
    let preferred = versions.first()?.clone();
    let kind = "APIGroup";
    Some(json!({"apiVersion": "v1", "kind": kind, "name": name, "versions": versions, "preferredVersion": preferred}))
}

fn resources(kinds: &[Kind], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    let mut api_version = None;
    for kind in kinds.iter().filter(|kind| kind.group() == group && kind.version() == version) {
        api_version = Some(kind.api_version());
        let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let resource = |name: &str, verbs: &[&str]| {
            json!({
                "name": name, "singularName": kind.name().to_lowercase(), "kind": kind.name(),
                "namespaced": kind.is_namespaced(), "verbs": verbs,
            })
        };
        resources.push(resource(&kind.plural(), &verbs));
        resources.push(resource(&format!("{}/status", kind.plural()), &["get", "patch", "update"]));
    }
    let group_version = api_version?;
    let kind = "APIResourceList";
    Some(json!({"apiVersion": "v1", "kind": kind, "groupVersion": group_version, "resources": resources}))
}

/// Returns the kinds that a custom resource definition serves.
pub(super) fn kinds_of(definition: &SharedObject) -> Vec<Kind> {
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
