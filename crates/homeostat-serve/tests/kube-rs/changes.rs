//! Calls that change objects.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::*;

#[test]
fn objects_are_created_once() {
    with_door(async |door| {
        let (sites, params) = (door.sites(), PostParams::default());
        let created = sites.create(&params, &site("blue")).await.unwrap();
        assert_eq!((created.spec, created.status), (site("blue").spec, None));
        assert!(refused(sites.create(&params, &site("blue")).await).is_already_exists());

        let mut generated = site("");
        generated.metadata.name = None;
        generated.metadata.generate_name = Some("site-".to_owned());
        let generated = sites.create(&params, &generated).await.unwrap();
        assert!(generated.name_any().starts_with("site-"), "{generated:?}");

        sites.create(&PostParams { dry_run: true, field_manager: None }, &site("dry")).await.unwrap();
        assert!(sites.get_opt("dry").await.unwrap().is_none());
        let mut wrong = site("wrong");
        wrong.spec.title.clear();
        let status = refused(sites.create(&params, &wrong).await);
        assert!(status.is_invalid(), "{status:?}");
        assert_eq!(status.details.unwrap().causes[0].field, "spec.title");
    });
}

#[test]
fn a_replacement_needs_the_newest_version() {
    with_door(async |door| {
        let (sites, params) = (door.sites(), PostParams::default());
        let mut blue = door.create("blue").await;
        blue.spec.title = "Blue".to_owned();
        let replaced = sites.replace("blue", &params, &blue).await.unwrap();
        assert_eq!((&*replaced.spec.title, replaced.metadata.generation), ("Blue", Some(2)));
        assert!(refused(sites.replace("blue", &params, &blue).await).is_conflict());

        let mut changed = replaced;
        changed.status = Some(SiteStatus { phase: "Up".to_owned() });
        changed.spec.title = "Not stored".to_owned();
        let replaced = sites.replace_status("blue", &params, &changed).await.unwrap();
        assert_eq!((&replaced.status, &*replaced.spec.title), (&changed.status, "Blue"));
        assert_eq!(replaced.metadata.generation, Some(2));
        assert!(refused(sites.replace_status("blue", &params, &changed).await).is_conflict());
        assert!(refused(sites.replace("red", &params, &site("red")).await).is_not_found());
    });
}

#[test]
fn patches_change_fields() {
    with_door(async |door| {
        let (sites, params) = (door.sites(), PatchParams::default());
        door.create("blue").await;
        let merge = json!({"metadata": {"labels": {"name": null}}, "spec": {"tags": {"a": "b"}}});
        let patched = sites.patch("blue", &params, &Patch::Merge(&merge)).await.unwrap();
        assert!(patched.labels().is_empty() && patched.spec.tags.unwrap()["a"] == "b");
        let strategic = json!({"spec": {"pages": 2}});
        assert_eq!(sites.patch("blue", &params, &Patch::Strategic(strategic)).await.unwrap().spec.pages, 2);

        let steps = json!([
            {"op": "test", "path": "/spec/pages", "value": 2}, {"op": "replace", "path": "/spec/pages", "value": 3},
        ]);
        let steps = Patch::Json::<()>(serde_json::from_value(steps).unwrap());
        assert_eq!(sites.patch("blue", &params, &steps).await.unwrap().spec.pages, 3);
        assert!(refused(sites.patch("blue", &params, &steps).await).is_invalid());

        let metadata = json!({"metadata": {"annotations": {"note": "new"}}});
        let patched = sites.patch_metadata("blue", &params, &Patch::Merge(&metadata)).await.unwrap();
        assert_eq!(patched.metadata.annotations.unwrap()["note"], "new");
        let status = json!({"status": {"phase": "Up"}, "spec": {"pages": 9}});
        let patched = sites.patch_status("blue", &params, &Patch::Merge(&status)).await.unwrap();
        assert_eq!((patched.status.unwrap().phase, patched.spec.pages), ("Up".to_owned(), 3));
        assert_eq!(patched.metadata.annotations.unwrap()["note"], "new");
        let (dry_run, pages) = (PatchParams::default().dry_run(), Patch::Merge(json!({"spec": {"pages": 8}})));
        assert_eq!(sites.patch("blue", &dry_run, &pages).await.unwrap().spec.pages, 8);
        assert_eq!(sites.get("blue").await.unwrap().spec.pages, 3);
        let (strict, unknown) = (PatchParams::default().validation_strict(), json!({"spec": {"titel": "x"}}));
        let status = refused(sites.patch("blue", &strict, &Patch::Merge(unknown)).await);
        assert!(status.code == 400 && status.message.contains("spec.titel"), "{status:?}");
    });
}

#[test]
fn applied_fields_have_owners() {
    with_door(async |door| {
        let sites = door.sites();
        let (alice, bob) = (PatchParams::apply("alice"), PatchParams::apply("bob"));
        let applied = sites.patch("blue", &alice, &Patch::Apply(site("blue"))).await.unwrap();
        assert_eq!(applied.spec, site("blue").spec);
        let again = sites.patch("blue", &alice, &Patch::Apply(site("blue"))).await.unwrap();
        assert_eq!(version(&again), version(&applied), "nothing has changed");

        let mut other = site("blue");
        other.spec.title = "Navy".to_owned();
        let status = refused(sites.patch("blue", &bob, &Patch::Apply(&other)).await);
        assert!(status.is_conflict() && status.message.contains("conflict with \"alice\""), "{status:?}");
        assert_eq!(status.details.unwrap().causes[0].field, ".spec.title");
        let forced = sites.patch("blue", &bob.clone().force(), &Patch::Apply(&other)).await.unwrap();
        assert_eq!(forced.spec.title, "Navy");
        let managers: Vec<_> = forced.managed_fields().iter().filter_map(|one| one.manager.as_deref()).collect();
        assert!(managers.contains(&"bob"), "{managers:?}");
        assert_eq!(refused(sites.patch("blue", &PatchParams::default(), &Patch::Apply(&other)).await).code, 400);

        let status = |phase: &str| json!({"apiVersion": "example.com/v1", "kind": "Site", "status": {"phase": phase}});
        let applied = sites.patch_status("blue", &alice, &Patch::Apply(status("Up"))).await.unwrap();
        assert_eq!((applied.spec.title.as_str(), applied.status.unwrap().phase.as_str()), ("Navy", "Up"));
        let status = refused(sites.patch_status("blue", &bob, &Patch::Apply(status("Down"))).await);
        assert_eq!(status.details.unwrap().causes[0].field, ".status.phase");
    });
}

#[test]
fn entries_create_and_replace() {
    with_door(async |door| {
        let sites = door.sites();
        let mut entry = sites.entry("blue").await.unwrap().or_insert(|| site("blue"));
        entry.commit(&PostParams::default()).await.unwrap();
        let mut entry = sites.entry("blue").await.unwrap().or_insert(|| site("other"));
        entry.get_mut().spec.pages = 5;
        entry.commit(&PostParams::default()).await.unwrap();
        assert_eq!(sites.get("blue").await.unwrap().spec, SiteSpec { pages: 5, ..site("blue").spec });
    });
}

#[test]
fn a_deletion_ends_or_waits_for_finalizers() {
    with_door(async |door| {
        let (sites, params) = (door.sites(), DeleteParams::default());
        let blue = door.create("blue").await;
        let other = Preconditions { uid: Some("other".to_owned()), resource_version: None };
        assert!(refused(sites.delete("blue", &params.clone().preconditions(other)).await).is_conflict());
        sites.delete("blue", &params.clone().dry_run()).await.unwrap();
        let status = sites.delete("blue", &DeleteParams::foreground()).await.unwrap().right().unwrap();
        assert!(status.is_success(), "{status:?}");
        assert_eq!(Some(status.details.unwrap().uid), blue.uid());
        assert!(refused(sites.delete("blue", &params).await).is_not_found());

        let mut red = site("red");
        red.finalizers_mut().push("example.com/held".to_owned());
        sites.create(&PostParams::default(), &red).await.unwrap();
        let deleting = sites.delete("red", &params).await.unwrap().left().unwrap();
        assert!(deleting.metadata.deletion_timestamp.is_some(), "{deleting:?}");
        let free = json!({"metadata": {"finalizers": null}});
        sites.patch("red", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
        assert!(sites.get_opt("red").await.unwrap().is_none());
    });
}

#[test]
fn a_collection_is_deleted_with_its_dependents() {
    with_door(async |door| {
        let (sites, maps) = (door.sites(), door.config_maps());
        for name in ["a", "b"] {
            let owner = door.create(name).await.controller_owner_ref(&()).unwrap();
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            map.owner_references_mut().push(owner);
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
        let selected = ListParams::default().labels("name=a");
        let deleted = sites.delete_collection(&DeleteParams::default(), &selected).await.unwrap().left().unwrap();
        assert_eq!(names(&deleted), ["a"]);
        let all = ListParams::default();
        assert_eq!(names(&sites.list(&all).await.unwrap()), ["b"]);
        assert_eq!(names(&maps.list(&all).await.unwrap()), ["b"]);
        let deleted = sites.delete_collection(&DeleteParams::orphan(), &all).await.unwrap().left().unwrap();
        assert_eq!(names(&deleted), ["b"]);
        let orphan = maps.get("b").await.unwrap();
        assert!(orphan.owner_references().is_empty(), "{orphan:?}");
    });
}
