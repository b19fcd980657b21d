//! Discovery, and objects without types.

use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Discovery, Scope, verbs};
use serde_json::json;

use super::*;

fn kind(group: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", kind)
}

/// Checks the result of a discovery.
fn check(found: &Discovery) {
    let mut groups: Vec<_> = found.groups().map(|group| group.name().to_owned()).collect();
    groups.sort();
    assert_eq!(groups, ["", "events.k8s.io", "example.com"]);
    let (site, capabilities) = found.resolve_gvk(&kind("example.com", "Site")).unwrap();
    assert_eq!((&*site.plural, &*site.api_version), ("sites", "example.com/v1"));
    assert_eq!(capabilities.scope, Scope::Namespaced);
    for verb in [verbs::CREATE, verbs::DELETE_COLLECTION, verbs::PATCH, verbs::WATCH] {
        assert!(capabilities.supports_operation(verb), "{verb}");
    }
    let subresources: Vec<_> = capabilities.subresources.iter().map(|(status, _)| &*status.plural).collect();
    assert_eq!(subresources, ["status"]);
    let (namespace, capabilities) = found.resolve_gvk(&kind("", "Namespace")).unwrap();
    assert_eq!((&*namespace.plural, capabilities.scope), ("namespaces", Scope::Cluster));
    let (_, capabilities) = found.resolve_gvk(&kind("", "Event")).unwrap();
    assert!(capabilities.supports_operation(verbs::CREATE));
    assert!(found.resolve_gvk(&kind("example.com", "House")).is_none());
}

#[test]
fn kinds_are_found_one_by_one_and_all_at_once() {
    with_door(async |door| {
        let client = &door.client;
        check(&Discovery::new(client.clone()).run().await.unwrap());
        check(&Discovery::new(client.clone()).run_aggregated().await.unwrap());
        let group = discovery::group(client, "example.com").await.unwrap();
        assert_eq!((group.preferred_version(), group.recommended_resources().len()), (Some("v1"), 1));
        let (map, _) = discovery::pinned_kind(client, &kind("", "ConfigMap")).await.unwrap();
        assert_eq!(map.plural, "configmaps");
        assert!(discovery::group(client, "none.example.com").await.is_err());
        let version = client.apiserver_version().await.unwrap();
        assert!(version.major == "1" && version.git_version.starts_with("v1."), "{version:?}");
    });
}

#[test]
fn objects_without_types_are_changed() {
    with_door(async |door| {
        let (site, _) = discovery::pinned_kind(&door.client, &kind("example.com", "Site")).await.unwrap();
        let sites: Api<DynamicObject> = Api::default_namespaced_with(door.client.clone(), &site);
        let blue = DynamicObject::new("blue", &site).data(json!({"spec": {"title": "Blue"}}));
        let created = sites.create(&PostParams::default(), &blue).await.unwrap();
        assert_eq!(created.data["spec"], json!({"title": "Blue", "pages": 0}));
        let patch = Patch::Merge(json!({"status": {"phase": "Up"}}));
        let patched = sites.patch_status("blue", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(patched.data["status"], json!({"phase": "Up"}));
        assert_eq!(names(&sites.list(&ListParams::default()).await.unwrap()), ["blue"]);
        assert!(sites.delete("blue", &Default::default()).await.unwrap().is_right());
    });
}
