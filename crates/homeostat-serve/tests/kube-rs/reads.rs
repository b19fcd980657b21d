//! Calls that read.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{GetParams, ListParams, VersionMatch};
use serde_json::json;

use super::*;

#[test]
fn one_object_is_read() {
    with_door(async |door| {
        let sites = door.sites();
        let created = door.create("blue").await;
        assert_eq!(sites.get("blue").await.unwrap(), created);
        assert_eq!(sites.get_with("blue", &GetParams::any()).await.unwrap(), created);
        assert_eq!(sites.get_status("blue").await.unwrap(), created);
        assert!(created.creation_timestamp().is_some() && created.uid().is_some());

        let metadata = sites.get_metadata("blue").await.unwrap();
        assert_eq!(metadata.metadata, created.metadata);
        assert_eq!(metadata.types.unwrap().kind, "PartialObjectMetadata");
        assert!(sites.get_opt("red").await.unwrap().is_none());
        assert!(sites.get_metadata_opt("red").await.unwrap().is_none());
        let status = refused(sites.get("red").await);
        assert!(status.is_not_found() && status.message == "sites.example.com \"red\" not found", "{status:?}");
        let details = status.details.unwrap();
        assert_eq!((&*details.name, &*details.kind, &*details.group), ("red", "sites", "example.com"));
    });
}

#[test]
fn lists_select_and_have_pages() {
    with_door(async |door| {
        let sites = door.sites();
        for name in ["a", "b", "c"] {
            door.create(name).await;
        }
        let all = sites.list(&ListParams::default()).await.unwrap();
        assert_eq!((names(&all), &*all.types.kind), (["a", "b", "c"].map(str::to_owned).to_vec(), "SiteList"));
        for (params, expected) in [
            (ListParams::default().labels("name=b"), &["b"][..]),
            (ListParams::default().labels("name in (a, c)"), &["a", "c"]),
            (ListParams::default().labels("!name"), &[]),
            (ListParams::default().fields("metadata.name!=b"), &["a", "c"]),
            (ListParams::default().match_any(), &["a", "b", "c"]),
        ] {
            assert_eq!(names(&sites.list(&params).await.unwrap()), expected, "{params:?}");
        }
        let bad = refused(sites.list(&ListParams::default().labels("name=(")).await);
        assert_eq!((bad.code, &*bad.reason), (400, "BadRequest"));

        let page = sites.list(&ListParams::default().limit(2)).await.unwrap();
        assert_eq!(names(&page), ["a", "b"]);
        let token = page.metadata.continue_.unwrap();
        door.create("d").await;
        // All pages show one state.
        let rest = sites.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
        assert_eq!((names(&rest), rest.metadata.continue_), (vec!["c".to_owned()], None));

        let later = all.metadata.resource_version.unwrap();
        let at_least = ListParams::default().at(&later).matching(VersionMatch::NotOlderThan);
        assert_eq!(sites.list(&at_least).await.unwrap().items.len(), 4);
        let metadata = sites.list_metadata(&ListParams::default().labels("name=d")).await.unwrap();
        assert_eq!(metadata.items[0].metadata.name.as_deref(), Some("d"));
    });
}

#[test]
fn namespaces_are_those_of_objects() {
    with_door(async |door| {
        let elsewhere: Api<Site> = Api::namespaced(door.client.clone(), "elsewhere");
        elsewhere.create(&PostParams::default(), &site("blue")).await.unwrap();
        let everywhere: Api<Site> = Api::all(door.client.clone());
        let all = everywhere.list(&ListParams::default()).await.unwrap();
        assert_eq!(all.items[0].namespace().as_deref(), Some("elsewhere"));
        assert!(door.sites().get_opt("blue").await.unwrap().is_none());

        let namespaces: Api<Namespace> = Api::all(door.client.clone());
        let found = namespaces.list(&ListParams::default()).await.unwrap();
        assert_eq!(names(&found), ["default", "elsewhere"]);
        let phase = namespaces.get("elsewhere").await.unwrap().status.unwrap().phase;
        assert_eq!(phase.as_deref(), Some("Active"));
    });
}

#[test]
fn reviews_tell_the_own_access() {
    with_door(async |door| {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(door.client.clone());
        for (group, resource, expected) in [("example.com", "sites", true), ("", "secrets", false)] {
            let attributes = json!({"verb": "get", "group": group, "resource": resource, "namespace": "default"});
            let review = serde_json::from_value(json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "metadata": {}, "spec": {"resourceAttributes": attributes},
            }));
            let review = reviews.create(&PostParams::default(), &review.unwrap()).await.unwrap();
            assert_eq!(review.status.unwrap().allowed, expected, "{resource}");
        }
    });
}
