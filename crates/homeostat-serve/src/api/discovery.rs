//! Discovery: lists the served groups, versions and kinds.

use serde_json::{Value, json};

use super::accept::DiscoveryForm;
use crate::kinds::{KindRegistry, ObjectSource, ServedResource};
use homeostat_objects::Kind;

/// The Kubernetes version that the server resembles.
const VERSION: (&str, &str) = ("1", "34");

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];
const NAMESPACE_VERBS: [&str; 6] = ["create", "get", "list", "patch", "update", "watch"];

/// Returns the answer to a discovery request.
pub(super) fn discover(kinds: &KindRegistry, segments: &[String], form: DiscoveryForm) -> Option<Value> {
    let names: Vec<_> = segments.iter().map(String::as_str).collect();
    match (&names[..], form) {
        (["version"], _) => {
            let (major, minor) = VERSION;
            let version = format!("v{major}.{minor}.0+homeostat.{}", env!("CARGO_PKG_VERSION"));
            let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
            // Typed clients require all of these fields.
            Some(json!({
                "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "",
                "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": platform,
            }))
        }
        ([root @ ("api" | "apis")], DiscoveryForm::Aggregated(version)) => {
            Some(aggregated(kinds, *root == "api", version))
        }
        (["api"], _) => Some(json!({
            "kind": "APIVersions", "versions": kinds.groups()[""],
            "serverAddressByClientCIDRs": [],
        })),
        (["apis"], _) => {
            let groups = kinds.groups();
            let others = groups.iter().filter(|(name, _)| !name.is_empty());
            let groups: Vec<_> = others.map(|(name, versions)| group(name, versions)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        (["apis", name], _) => {
            let groups = kinds.groups();
            let versions = groups.get(name).filter(|_| !name.is_empty())?;
            let mut group = group(name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Some(group)
        }
        (["api", version], _) => resources(kinds, "", version),
        (["apis", name, version], _) if !name.is_empty() => resources(kinds, name, version),
        _ => None,
    }
}

fn group(name: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<_> = versions.iter().map(entry).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// Lists the kinds of a group and version.
fn resources(kinds: &KindRegistry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in kinds.of_version(group, version) {
        let kind = resource.kind();
        let (name, namespaced) = (kind.name(), kind.is_namespaced());
        let mut entry = json!({
            "name": kind.plural(), "singularName": resource.definition().singular_name(), "namespaced": namespaced, "kind": name,
            "verbs": verbs(resource),
        });
        put_lists(&mut entry, resource);
        resources.push(entry);
        if resource.has_status() {
            let plural = format!("{}/status", kind.plural());
            resources.push(json!({
                "name": plural, "singularName": "", "namespaced": namespaced, "kind": name, "verbs": STATUS_VERBS,
            }));
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let list =
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources});
    (!resources.is_empty()).then_some(list)
}

fn verbs(resource: &ServedResource) -> &'static [&'static str] {
    match resource.source() {
        ObjectSource::Stored | ObjectSource::Events => &VERBS,
        ObjectSource::Namespaces => &NAMESPACE_VERBS,
    }
}

fn put_lists(entry: &mut Value, resource: &ServedResource) {
    let definition = resource.definition();
    for (field, names) in [("shortNames", definition.short_names()), ("categories", definition.categories())] {
        if !names.is_empty() {
            entry[field] = names.into();
        }
    }
}

/// Returns one list with all groups, or with the core group.
fn aggregated(kinds: &KindRegistry, is_core: bool, list_version: &str) -> Value {
    let groups = kinds.groups();
    let items = groups.iter().filter(|(name, _)| name.is_empty() == is_core).map(|(name, versions)| {
        let versions: Vec<_> = versions
            .iter()
            .map(|version| {
                let resources: Vec<_> = kinds.of_version(name, version).map(aggregated_resource).collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata =
            if is_core { json!({"creationTimestamp": null}) } else { json!({"name": name, "creationTimestamp": null}) };
        json!({"metadata": metadata, "versions": versions})
    });
    let items: Vec<_> = items.collect();
    let version = format!("apidiscovery.k8s.io/{list_version}");
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "metadata": {}, "items": items})
}

fn response_kind(kind: &Kind) -> Value {
    json!({"group": kind.group(), "version": kind.version(), "kind": kind.name()})
}

fn aggregated_resource(resource: &ServedResource) -> Value {
    let kind = resource.kind();
    let mut entry = json!({
        "resource": kind.plural(), "responseKind": response_kind(kind), "singularResource": resource.definition().singular_name(),
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" }, "verbs": verbs(resource),
    });
    put_lists(&mut entry, resource);
    if resource.has_status() {
        let status = json!({"subresource": "status", "responseKind": response_kind(kind), "verbs": STATUS_VERBS});
        entry["subresources"] = json!([status]);
    }
    entry
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

    use super::*;
    use homeostat_objects::KindDefinition;

    fn registry() -> KindRegistry {
        let site = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site")).short_name("si").category("all");
        let older = ServedResource::new(Kind::namespaced("example.com", "v1beta1", "Site"));
        let node = KindDefinition::new(Kind::cluster("", "v1", "Node")).with_status(false);
        KindRegistry::new([site.into(), older, node.into(), ServedResource::virtual_namespaces()]).unwrap()
    }

    fn discovered(path: &str, form: DiscoveryForm) -> Option<Value> {
        let segments: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        discover(&registry(), &segments, form)
    }

    #[test]
    fn groups_versions_and_kinds_are_listed() {
        let of = |path| discovered(path, DiscoveryForm::Separate);
        assert_eq!(of("/api").unwrap()["versions"], json!(["v1"]));
        let group = of("/apis/example.com").unwrap();
        assert_eq!(group["preferredVersion"], json!({"groupVersion": "example.com/v1", "version": "v1"}));
        assert_eq!(of("/apis").unwrap()["groups"][0]["versions"].as_array().unwrap().len(), 2);
        let sites = of("/apis/example.com/v1").unwrap();
        assert_eq!(sites["groupVersion"], "example.com/v1");
        assert_eq!(sites["resources"][0]["shortNames"], json!(["si"]));
        assert_eq!(sites["resources"][1]["name"], "sites/status");
        let core: Vec<_> =
            of("/api/v1").unwrap()["resources"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(core, ["namespaces", "nodes"]);
        let namespaces = &of("/api/v1").unwrap()["resources"][0];
        assert_eq!((&namespaces["shortNames"], &namespaces["verbs"]), (&json!(["ns"]), &json!(NAMESPACE_VERBS)));
        assert_eq!(of("/apis/example.com/v2"), None);
        assert_eq!(of("/apis/other.com"), None);
        let version = of("/version").unwrap();
        let fields: Vec<_> = version.as_object().unwrap().keys().map(String::as_str).collect();
        let known = [
            "buildDate",
            "compiler",
            "gitCommit",
            "gitTreeState",
            "gitVersion",
            "goVersion",
            "major",
            "minor",
            "platform",
        ];
        assert_eq!((&version["major"], &fields[..]), (&json!("1"), &known[..]));
    }

    #[test]
    fn an_aggregated_list_has_all_kinds() {
        let list = discovered("/apis", DiscoveryForm::Aggregated("v2beta1")).unwrap();
        assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        let site = &list["items"][0]["versions"][0]["resources"][0];
        assert_eq!((&site["resource"], &site["scope"]), (&json!("sites"), &json!("Namespaced")));
        assert_eq!(site["subresources"][0]["verbs"], json!(["get", "patch", "update"]));
        let core = discovered("/api", DiscoveryForm::Aggregated("v2")).unwrap();
        assert_eq!(core["items"][0]["versions"][0]["resources"][0]["resource"], "namespaces");
    }
}
