//! `Secondary`: creating, updating, refusing and deleting.

use std::sync::Arc;

use homeostat_objects::{
    Api, ClientError, Kind, MemoryClient, Object, ObjectMeta, OperationResult, OwnerReference, Ownership, Query,
    Secondary,
};

use super::world::{FINALIZER, Page, Site, World, cx, page, page_key, site};
use crate::hooked_client::unreachable;
use homeostat::rt::Chain;

/// Creates a site.
fn created(world: &World, name: &str) -> Site {
    world.sites().create(&site(name, &[])).unwrap()
}

#[test]
fn creates_marks_and_updates_only_differences() {
    for world in World::both() {
        let (pages, a) = (world.pages(), created(&world, "a"));
        world.of_pages.writes();
        let OperationResult::Created(first) = pages.ensure(&cx(), &a, page("p", "one")).unwrap() else {
            panic!("not created")
        };
        assert_eq!(Ownership::new().owner_key(&first.meta(), &Site::KIND), Some(a.key()));
        assert_eq!(first.metadata.labels["homeostat.dev/owner-key"], "default_a");
        assert_eq!(world.of_pages.writes(), ["create Page pages/p"]);

        let again = pages.ensure(&cx(), &a, page("p", "one")).unwrap();
        assert!(!again.is_changed());
        assert_eq!(again, OperationResult::Unchanged(first.clone()));
        assert!(world.of_pages.writes().is_empty());

        let OperationResult::Updated(second) = pages.ensure(&cx(), &a, page("p", "two")).unwrap() else {
            panic!("not updated")
        };
        assert_eq!((second.text.as_str(), &second.metadata.uid), ("two", &first.metadata.uid));
        assert_eq!(world.of_pages.writes(), ["update Page pages/p"]);
        assert_eq!(world.bare_pages().get(&page_key("p")).unwrap(), second);

        // An object that was read may be desired: its version, uid and status are ignored.
        let old = Page { status: Some(7), text: "three".into(), ..first };
        assert!(
            matches!(pages.ensure(&cx(), &a, old.clone()).unwrap(), OperationResult::Updated(now) if now.text == "three")
        );
        world.of_pages.writes();
        assert!(matches!(pages.ensure(&cx(), &a, old.clone()).unwrap(), OperationResult::Unchanged(_)));
        assert!(world.of_pages.writes().is_empty());
        world.bare_pages().purge(&page_key("p")).unwrap();
        assert!(pages.ensure(&cx(), &a, old).unwrap().is_changed());
        let expected = ["created", "updated"].map(|done| format!("Normal Synced Page pages/p is {done}: in step"));
        assert_eq!(world.recorded("a"), expected);
    }
}

#[test]
fn keeps_the_additions_of_others() {
    for world in World::both() {
        let (pages, bare, a) = (world.pages(), world.bare_pages(), created(&world, "a"));
        let mut desired = page("p", "one");
        desired.metadata = desired.metadata.label("tier", "web").annotation("note", "mine");
        let mut theirs = pages.ensure(&cx(), &a, desired.clone()).unwrap().object().clone();
        theirs.metadata = theirs.metadata.label("other", "x").annotation("other", "y").label("tier", "db");
        theirs.metadata.annotations.remove("note");
        theirs.metadata.finalizers.push("other/hold".into());
        let changed = bare.update(&theirs).unwrap();
        bare.update_status(&Page { status: Some(3), ..changed }).unwrap();

        desired.metadata.finalizers.push(FINALIZER.into());
        let OperationResult::Updated(now) = pages.ensure(&cx(), &a, desired.clone()).unwrap() else {
            panic!("not updated")
        };
        let meta = &now.metadata;
        assert_eq!((&*meta.labels["tier"], &*meta.labels["other"]), ("web", "x"));
        assert_eq!((&*meta.annotations["note"], &*meta.annotations["other"]), ("mine", "y"));
        assert_eq!((meta.finalizers.join(" "), now.status), (format!("other/hold {FINALIZER}"), Some(3)));
        assert!(!pages.ensure(&cx(), &a, desired.clone()).unwrap().is_changed());
    }
}

#[test]
fn adds_desired_owner_references_to_others() {
    let client = MemoryClient::builder().cascade(false).build();
    let pages = Secondary::new(Api::<Page>::new(Arc::new(client)));
    let owner = |uid: &str| OwnerReference::new(&Kind::of("example.com/v1", "Book"), uid, uid);
    let (a, mut desired) = (site("a", &[]), page("p", "one"));
    pages.ensure(&cx(), &a, desired.clone()).unwrap();
    desired.metadata.owner_references = vec![owner("u"), owner("v")];
    assert!(matches!(pages.ensure(&cx(), &a, desired.clone()).unwrap(), OperationResult::Updated(_)));
    desired.metadata.owner_references.remove(0);
    assert!(!pages.ensure(&cx(), &a, desired.clone()).unwrap().is_changed());
    desired.metadata.owner_references[0].controller = Some(true);
    let owners = pages.ensure(&cx(), &a, desired).unwrap().object().metadata.owner_references.clone();
    let managing: Vec<_> = owners.iter().map(|owner| (&*owner.uid, owner.is_controller())).collect();
    assert_eq!(managing, [("u", false), ("v", true)]);
}

#[test]
fn refuses_and_keeps_objects_of_other_owners() {
    for world in World::both() {
        let (pages, bare) = (world.pages(), world.bare_pages());
        let (a, b) = (created(&world, "a"), created(&world, "b"));
        bare.create(&page("old", "here first")).unwrap();
        pages.ensure(&cx(), &b, page("of-b", "mine")).unwrap();
        let mut lost = pages.ensure(&cx(), &a, page("lost", "mine")).unwrap().object().clone();
        assert!(Ownership::new().unmark(&mut lost));
        bare.update(&lost).unwrap();
        let before = world.texts();
        world.of_pages.writes();

        let refused = |error: ClientError, name: &str, owner: &str| {
            let rule = "it already exists, and this controller does not manage it";
            let found = if owner.is_empty() { ":".to_owned() } else { format!(" is {owner:?}, but") };
            let text =
                format!("Page pages/{name} is invalid: metadata.annotations{found} must name Site default/a: {rule}");
            assert_eq!((error.to_string(), error.is_invalid()), (text, true));
        };
        for (name, owner) in [("old", ""), ("of-b", "Site.example.com default/b"), ("lost", "")] {
            refused(pages.ensure(&cx(), &a, page(name, "taken")).unwrap_err(), name, owner);
            refused(pages.remove(&cx(), &a, &page_key(name)).unwrap_err(), name, owner);
        }
        assert!(pages.prune(&cx(), &a, []).unwrap().is_empty() && pages.list(&a).unwrap().is_empty());
        assert!(world.of_pages.writes().is_empty());
        assert_eq!(world.texts(), before);
        let warning = |name: &str| {
            format!(
                "Warning ErrResourceExists Page pages/{name} already exists, and this controller does not manage it"
            )
        };
        let expected = [warning("lost"), warning("of-b"), warning("old")];
        assert_eq!(
            world.recorded("a").iter().filter(|event| event.starts_with("Warning")).collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
    }
}

/// Owners differ by namespace, name, kind and the names of the marks, even if their labels are equal.
#[test]
fn distinguishes_owners() {
    let world = World::new(2);
    let pages = world.pages();
    let mut one = site("b", &[]);
    one.metadata.namespace = "a-Long".repeat(20);
    let mut other = one.clone();
    other.metadata.name = "c".into();
    pages.ensure(&cx(), &one, page("p", "of one")).unwrap();
    assert!(pages.ensure(&cx(), &other, page("p", "of other")).is_err());
    assert!(pages.list(&other).unwrap().is_empty());
    assert_eq!(pages.list(&one).unwrap().len(), 1);
    let of_page = page("b", "");
    assert!(pages.ensure(&cx(), &of_page, page("p", "of a page")).is_err());
    let named = world.pages().ownership(Ownership::named("example.com/ownerkind", "example.com/ownerkey"));
    assert!(named.ensure(&cx(), &one, page("p", "of one")).is_err());
    assert!(
        named
            .ensure(&cx(), &one, page("q", "of one"))
            .unwrap()
            .object()
            .metadata
            .labels
            .contains_key("example.com/ownerkey")
    );
    assert!(pages.ensure(&cx(), &one, page("q", "of one")).is_err());
    // Labels alone do not name an owner: two owners may have the same.
    let mut mixed = pages.ensure(&cx(), &other, page("s", "")).unwrap().object().clone();
    mixed.metadata.labels = pages.list(&one).unwrap()[0].metadata.labels.clone();
    world.bare_pages().update(&mixed).unwrap();
    assert_eq!(pages.list(&one).unwrap().len(), 1);
    assert_eq!(pages.prune(&cx(), &one, [page_key("p")]).unwrap(), []);
    // The desired object must not have the marks of another owner.
    let mut marked = page("r", "");
    Ownership::new().mark(&other.object_ref(), &mut marked).unwrap();
    let error = pages.ensure(&cx(), &one, marked).unwrap_err();
    assert!(error.is_invalid() && world.bare_pages().get(&page_key("r")).unwrap_err().is_not_found());
    let error = pages.ensure(&cx(), &one, page("", "")).unwrap_err();
    assert_eq!(error.to_string(), "Page pages/ is invalid: metadata.name: must be set");
}

#[test]
fn does_not_overwrite_a_faster_writer() {
    for world in World::both() {
        let (pages, bare) = (world.pages(), world.bare_pages());
        let (a, b) = (created(&world, "a"), created(&world, "b"));
        let bare_pages = Secondary::new(bare.clone());
        // Between the read and the creation, another writer creates it: for another owner, and for the same
        // one.
        for (faster, owner) in [(&b, "b"), (&a, "a")] {
            let (rival, whose, name) = (bare_pages.clone(), faster.clone(), format!("p-{owner}"));
            let mut once = Some(page(&name, "faster"));
            world.of_pages.before(move |verb, _| {
                if verb == "create"
                    && let Some(page) = once.take()
                {
                    rival.ensure(&cx(), &whose, page).unwrap();
                }
                None
            });
            let ensured = pages.ensure(&cx(), &a, page(&name, "mine"));
            if owner == "a" {
                assert!(matches!(ensured.unwrap(), OperationResult::Updated(page) if page.text == "mine"));
            } else {
                assert!(ensured.unwrap_err().is_invalid());
                assert_eq!(bare.get(&page_key(&name)).unwrap().text, "faster");
            }
        }
        // Between the read and the update it changes, or gets another owner.
        let change = |verb: &'static str, change: fn(&mut Page)| {
            let bare = bare.clone();
            let mut once = Some(());
            world.of_pages.before(move |called, _| {
                if called == verb && once.take().is_some() {
                    let mut page = bare.get(&page_key("p-a")).unwrap();
                    change(&mut page);
                    bare.update(&page).unwrap();
                }
                None
            });
        };
        change("update", |page| page.text = "theirs".into());
        assert!(pages.ensure(&cx(), &a, page("p-a", "new")).unwrap_err().is_conflict());
        assert_eq!(bare.get(&page_key("p-a")).unwrap().text, "theirs");
        change("delete", |page| page.text = "theirs again".into());
        assert!(pages.remove(&cx(), &a, &page_key("p-a")).unwrap_err().is_conflict());
        change("delete", |page| {
            Ownership::new().unmark(page);
        });
        assert!(pages.prune(&cx(), &a, []).unwrap_err().is_conflict());
        assert!(pages.prune(&cx(), &a, []).unwrap().is_empty());
        assert_eq!(bare.get(&page_key("p-a")).unwrap().text, "theirs again");
    }
}

#[test]
fn does_not_write_an_object_being_deleted() {
    for world in World::both() {
        let (pages, bare, a) = (world.pages(), world.bare_pages(), created(&world, "a"));
        let mut held = page("p", "one");
        held.metadata.finalizers.push(FINALIZER.into());
        pages.ensure(&cx(), &a, held).unwrap();
        assert!(pages.remove(&cx(), &a, &page_key("p")).unwrap());
        world.of_pages.writes();
        assert!(!pages.remove(&cx(), &a, &page_key("p")).unwrap());
        assert!(pages.prune(&cx(), &a, []).unwrap().is_empty());
        let error = pages.ensure(&cx(), &a, page("p", "two")).unwrap_err();
        assert!(error.is_conflict());
        assert_eq!(
            error.to_string(),
            "Page pages/p: conflict: it is being deleted; once it is gone, it is created again"
        );
        assert!(world.of_pages.writes().is_empty());
        assert_eq!(pages.list(&a).unwrap().len(), 1);
        bare.purge(&page_key("p")).unwrap();
        assert!(!pages.remove(&cx(), &a, &page_key("p")).unwrap());
    }
}

#[test]
fn a_failure_does_not_stop_the_others() {
    for world in World::both() {
        let (pages, a) = (world.pages(), created(&world, "a"));
        for name in ["p", "q", "r", "s"] {
            pages.ensure(&cx(), &a, page(name, "")).unwrap();
        }
        world.of_pages.before(|verb, object| {
            (verb == "delete" && ["p", "r"].contains(&object.key().name())).then(|| unreachable(object))
        });
        let error = pages.prune(&cx(), &a, [page_key("q")]).unwrap_err();
        assert_eq!(Chain(&error).to_string(), "Page pages/p: the call failed: no answer");
        assert_eq!(world.texts().into_keys().collect::<Vec<_>>(), ["p", "q", "r"]);
        world.of_pages.before(|_, _| None);
        assert_eq!(pages.prune(&cx(), &a, [page_key("q")]).unwrap(), [page_key("p"), page_key("r")]);
        let deleted = world.recorded("a").into_iter().filter(|event| event.ends_with("is deleted: in step"));
        assert_eq!(deleted.count(), 3);
        for cut_off in ["get", "list"] {
            world.of_pages.before(move |verb, object| (verb == cut_off).then(|| unreachable(object)));
            assert_eq!(pages.ensure(&cx(), &a, page("t", "")).is_err(), cut_off == "get");
            assert_eq!(pages.list(&a).is_err(), cut_off == "list");
        }
    }
}

/// The text is never read, so the stored object always seems to differ.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Blind {
    metadata: ObjectMeta,
    #[serde(skip_deserializing)]
    text: String,
}

homeostat_objects::object!(Blind, namespaced, "example.com", "v1");

#[test]
fn a_write_without_effect_is_not_an_update() {
    let blind = Secondary::new(Api::<Blind>::new(Arc::new(MemoryClient::new())));
    let desired = |text: &str| Blind { metadata: ObjectMeta::new("a", "b"), text: text.into() };
    let a = site("a", &[]);
    assert!(matches!(blind.ensure(&cx(), &a, desired("x")).unwrap(), OperationResult::Created(_)));
    assert!(matches!(blind.ensure(&cx(), &a, desired("x")).unwrap(), OperationResult::Unchanged(_)));
    assert!(matches!(blind.ensure(&cx(), &a, desired("y")).unwrap(), OperationResult::Updated(_)));
}

#[test]
fn restores_removed_labels() {
    let world = World::new(2);
    let (pages, bare, a) = (world.pages(), world.bare_pages(), created(&world, "a"));
    let mut bald = pages.ensure(&cx(), &a, page("p", "")).unwrap().object().clone();
    bald.metadata.labels.clear();
    bare.update(&bald).unwrap();
    assert!(pages.list(&a).unwrap().is_empty());
    assert!(matches!(pages.ensure(&cx(), &a, page("p", "")).unwrap(), OperationResult::Updated(_)));
    assert_eq!(pages.list(&a).unwrap().len(), 1);
    assert_eq!(
        bare.list(&Query::all().labels("homeostat.dev/owner-key=default_a".parse().unwrap())).unwrap().items.len(),
        1
    );
    assert_eq!(bare.get(&page_key("p")).unwrap().text, "");
}
