//! `UpdatingObjectManager`: writes, tracks, events and remembered changes.
//!
//! The cases of reconciler.io's `reconcilers/objectmanager_test.go`, and others.

use std::sync::Arc;
use std::time::Duration;

use homeostat::Context;
use homeostat_objects::sub::{ObjectManager, Request, SubContext, UpdatingObjectManager};
use homeostat_objects::{ClientError, Object};
use parking_lot::Mutex;
use serde_json::json;

use crate::pages::{Page, PageStatus, Site, manager};

const FINALIZER: &str = "example.com/pages";

impl Site {
    fn manage(
        &mut self,
        manager: &impl ObjectManager<Page>,
        current: Option<&Page>,
        desired: Option<Page>,
    ) -> Result<Option<Page>, ClientError> {
        let request = Request::new(&self.web, self.config.clone());
        let cx = Context::detached();
        manager.manage(&SubContext::new("test", &cx, &request), &mut self.web.meta_mut(), current, desired)
    }
}

fn wanted() -> Page {
    Page::new("index").with("hello", "world")
}

#[test]
fn keeps_an_object_in_step() {
    let mut site = Site::new();
    let given = site.given(&wanted().label("a", "b"));
    let result = site.manage(&manager(), Some(&given), Some(wanted().label("a", "b"))).unwrap();
    assert_eq!(result, Some(given));
    site.did(&[], &[]);
}

#[test]
fn creates_a_missing_object() {
    let mut site = Site::new();
    let mut desired = wanted();
    // The desired object may be a copy of an earlier one.
    (desired.metadata.uid, desired.metadata.resource_version) = ("old".into(), "1".into());
    let created = site.manage(&manager(), None, Some(desired)).unwrap().unwrap();
    assert_eq!((created.metadata.generation, &created), (1, &site.page("index")));
    site.did(&["create Page default/index"], &["Normal Created Created Page \"index\""]);

    site.fail("create");
    assert!(site.manage(&manager(), None, Some(Page::generated("other-"))).unwrap_err().is_transport());
    site.did(
        &["create Page default/other-*"],
        &["Warning CreationFailed Failed to create Page \"other-\": Page default/other-*: the call failed: out of luck"],
    );
}

#[test]
fn corrects_drift() {
    let mut site = Site::new();
    let given = site.given(&wanted().with("foo", "bar"));
    let updated = site.manage(&manager(), Some(&given), Some(wanted())).unwrap().unwrap();
    assert_eq!((&updated, &updated.data), (&site.page("index"), &wanted().data));
    site.did(&["update Page default/index"], &["Normal Updated Updated Page \"index\""]);

    site.fail("update");
    assert!(site.manage(&manager(), Some(&updated), Some(wanted().with("a", "b"))).unwrap_err().is_transport());
    site.did(
        &["update Page default/index"],
        &["Warning UpdateFailed Failed to update Page \"index\": Page default/index: the call failed: out of luck"],
    );
}

#[test]
fn deletes_an_object_that_is_not_desired() {
    let mut site = Site::new();
    let given = site.given(&wanted());
    site.fail("delete");
    assert!(site.manage(&manager(), Some(&given), None).unwrap_err().is_transport());
    site.did(
        &["delete Page default/index"],
        &["Warning DeleteFailed Failed to delete Page \"index\": Page default/index: the call failed: out of luck"],
    );
    site.client.heal();
    assert_eq!(site.manage(&manager(), Some(&given), None).unwrap(), None);
    assert!(site.all().is_empty());
    site.did(&["delete Page default/index"], &["Normal Deleted Deleted Page \"index\""]);
    // A stale cache still has it.
    assert_eq!(site.manage(&manager(), Some(&given), None).unwrap(), None);
    site.did(&["delete Page default/index"], &[]);
}

#[test]
fn does_not_write_an_object_that_changed_since_it_was_read() {
    let mut site = Site::new();
    let stale = site.given(&wanted());
    let now = site.pages().update(&Page { data: [("x".to_owned(), "y".to_owned())].into(), ..stale.clone() }).unwrap();
    assert!(site.manage(&manager(), Some(&stale), Some(wanted().with("a", "b"))).unwrap_err().is_conflict());
    assert!(site.manage(&manager(), Some(&stale), None).unwrap_err().is_conflict());
    // A new object with the same name is not written either.
    let mut other = now.clone();
    other.metadata.uid = "other".to_owned();
    assert!(site.manage(&manager(), Some(&other), Some(wanted())).unwrap_err().is_conflict());
    assert!(site.manage(&manager(), Some(&other), None).unwrap_err().is_conflict());
    assert_eq!(site.all(), std::slice::from_ref(&now));
    // An object that is gone is not created again.
    site.pages().purge(&now.key()).unwrap();
    assert!(site.manage(&manager(), Some(&now), Some(wanted().with("a", "b"))).unwrap_err().is_conflict());
    assert!(site.all().is_empty());
    assert_eq!(site.take_events(), [""; 0]);
}

#[test]
fn adds_the_finalizer_before_the_object_and_removes_it_after() {
    let mut site = Site::new();
    let manager = manager().finalizer(FINALIZER);
    assert_eq!(manager.held_by(), Some(FINALIZER));
    let patched = format!("Normal FinalizerPatched Patched finalizer {FINALIZER:?}");
    let created = site.manage(&manager, None, Some(wanted())).unwrap().unwrap();
    assert_eq!(site.things().get(&site.web.key()).unwrap(), site.web);
    assert!(site.web.metadata.has_finalizer(FINALIZER));
    site.did(
        &["patch Thing default/web", "create Page default/index"],
        &["Normal Created Created Page \"index\"", &patched],
    );
    site.manage(&manager, Some(&created), Some(wanted())).unwrap();
    site.did(&[], &[]);

    site.manage(&manager, Some(&created), None).unwrap();
    assert!(site.web.metadata.has_finalizer(FINALIZER));
    site.did(&["delete Page default/index"], &["Normal Deleted Deleted Page \"index\""]);
    site.manage(&manager, None, None).unwrap();
    assert!(!site.web.metadata.has_finalizer(FINALIZER));
    site.did(&["patch Thing default/web"], &[&patched]);
}

#[test]
fn adds_the_finalizer_for_an_existing_object_and_removes_it_for_none() {
    let mut site = Site::new();
    let manager = manager().finalizer(FINALIZER);
    let given = site.given(&wanted());
    assert_eq!(site.manage(&manager, Some(&given), Some(wanted())).unwrap(), Some(given.clone()));
    assert_eq!(site.client.writes(), ["patch Thing default/web"]);
    site.pages().purge(&given.key()).unwrap();
    site.manage(&manager, None, None).unwrap();
    assert_eq!(site.client.writes(), ["patch Thing default/web"]);
    assert!(site.web.metadata.finalizers.is_empty());
}

#[test]
fn keeps_the_finalizer_until_the_object_is_gone() {
    let mut site = Site::new();
    let manager = manager().finalizer(FINALIZER).tracked();
    let mut held = wanted();
    held.metadata.finalizers.push("example.com/slow".to_owned());
    let current = site.manage(&manager, None, Some(held)).unwrap().unwrap();
    site.untrack();
    assert!(!site.tracks(&current));
    site.client.writes();

    assert_eq!(site.manage(&manager, Some(&current), None).unwrap(), None);
    assert_eq!(site.client.writes(), ["delete Page default/index"]);
    assert!(site.web.metadata.has_finalizer(FINALIZER) && site.tracks(&current));

    let deleting = site.page("index");
    site.untrack();
    assert_eq!(site.manage(&manager, Some(&deleting), None).unwrap(), None);
    assert_eq!(site.client.writes(), [""; 0]);
    assert!(site.web.metadata.has_finalizer(FINALIZER) && site.tracks(&current));

    site.pages().purge(&deleting.key()).unwrap();
    site.manage(&manager, None, None).unwrap();
    assert!(site.web.metadata.finalizers.is_empty());
}

#[test]
fn creates_nothing_if_the_finalizer_cannot_be_added() {
    let mut site = Site::new();
    let manager = manager().finalizer(FINALIZER);
    site.delete_web("example.com/other");
    assert!(site.manage(&manager, None, Some(wanted())).unwrap_err().is_invalid());
    assert!(site.all().is_empty());
}

#[test]
fn tracks_managed_objects() {
    let mut site = Site::new();
    let manager = manager().tracked();
    let created = site.manage(&manager, None, Some(Page::generated("p-"))).unwrap().unwrap();
    assert!(created.metadata.name.starts_with("p-") && site.tracks(&created));

    for desired in [Some(created.clone()), Some(created.clone().with("a", "b")), None] {
        site.untrack();
        assert!(!site.tracks(&created));
        // The same after a failure.
        site.client.before(|_, object| Some(ClientError::transport(object.clone(), "out of luck")));
        let _ = site.manage(&manager, Some(&created), desired);
        assert!(site.tracks(&created));
    }
}

#[test]
fn does_not_track_by_default() {
    let mut site = Site::new();
    let created = site.manage(&manager(), None, Some(wanted())).unwrap().unwrap();
    site.manage(&manager(), Some(&created), Some(wanted().with("a", "b"))).unwrap();
    site.fail("delete");
    site.manage(&manager(), Some(&created), None).unwrap_err();
    assert!(site.config.tracker().is_empty());
}

#[test]
fn does_not_try_to_change_harmonized_fields() {
    let mut site = Site::new();
    let manager = manager().harmonize(|current: &Page, desired| {
        if current.data.contains_key("fixed") {
            desired.data = current.data.clone();
        }
    });
    let given = site.given(&wanted().with("fixed", "yes"));
    assert_eq!(site.manage(&manager, Some(&given), Some(wanted())).unwrap(), Some(given.clone()));
    site.manage(&manager, Some(&given), Some(wanted().label("a", "b"))).unwrap();
    let updated = site.page("index");
    assert_eq!((updated.data, updated.metadata.labels.len()), (given.data, 1));
}

#[test]
fn does_not_merge_status_and_names() {
    let mut site = Site::new();
    let whole = UpdatingObjectManager::new(|current: &mut Page, desired: &Page| *current = desired.clone());
    let given = site.given(&wanted());
    let given = site.pages().update_status(&Page { status: Some(<_>::default()), ..given }).unwrap();
    let updated = site.manage(&whole, Some(&given), Some(Page::new("other").with("a", "b"))).unwrap().unwrap();
    assert_eq!((&*updated.metadata.name, &updated.metadata.uid), ("index", &given.metadata.uid));
    assert_eq!(updated.status, given.status);
    site.client.writes();
    site.take_events();
    let status =
        UpdatingObjectManager::new(|current: &mut Page, desired: &Page| current.status = desired.status.clone());
    assert_eq!(site.manage(&status, Some(&updated), Some(wanted())).unwrap(), Some(updated));
    site.did(&[], &[]);
}

/// The client changes every `hello` to `hi`, and adds a word.
fn mutating(site: &Site) {
    site.client.mutate(|object| {
        if object["kind"] == "Page" {
            if object["data"]["hello"].is_string() {
                object["data"]["hello"] = json!("hi");
            }
            object["data"]["words"] = json!("2");
        }
    });
}

/// Runs once with the stored page. Returns the number of updates.
fn run(site: &mut Site, manager: &UpdatingObjectManager<Page>, desired: &Page) -> usize {
    let current = site.page("index");
    site.manage(manager, Some(&current), Some(desired.clone())).unwrap();
    site.client.writes().len()
}

#[test]
fn accepts_the_changes_of_the_client() {
    let mut site = Site::new();
    let manager = manager();
    mutating(&site);
    site.manage(&manager, None, Some(wanted())).unwrap();
    site.did(&["create Page default/index"], &["Normal Created Created Page \"index\""]);
    assert_eq!([run(&mut site, &manager, &wanted()), run(&mut site, &manager, &wanted())], [0, 0]);
    // The page was created without the manager: one update without effect, and no event.
    let manager = self::manager();
    let runs: Vec<_> = (0..4).map(|_| run(&mut site, &manager, &wanted())).collect();
    assert_eq!(runs, [1, 0, 0, 0]);
    assert_eq!(site.take_events(), [""; 0]);

    // Another desired state.
    let other = wanted().with("a", "b");
    assert_eq!([run(&mut site, &manager, &other), run(&mut site, &manager, &other)], [1, 0]);
    assert_eq!(site.page("index").data.len(), 3);
    assert_eq!(site.take_events(), ["Normal Updated Updated Page \"index\""]);
    // Another writer has changed it: one update restores the desired state, with the changes that the client
    // makes.
    let drifted = Page { data: [("a".to_owned(), "x".to_owned())].into(), ..site.page("index") };
    site.pages().update(&drifted).unwrap();
    assert_eq!([run(&mut site, &manager, &other), run(&mut site, &manager, &other)], [1, 0]);
    assert_eq!(site.page("index").data["a"], "b");
    // After an hour it is written again.
    site.clock.advance(Duration::from_secs(60 * 60));
    assert_eq!([run(&mut site, &manager, &other), run(&mut site, &manager, &other)], [1, 0]);
    // A new object with the same name has no remembered change.
    site.pages().purge(&drifted.key()).unwrap();
    site.manage(&manager, None, Some(other.clone())).unwrap();
    site.client.writes();
    assert_eq!([run(&mut site, &manager, &other), run(&mut site, &manager, &other)], [0, 0]);
    site.pages().purge(&drifted.key()).unwrap();
    homeostat_objects::Api::new(site.client.clone()).create(&other).unwrap();
    site.client.writes();
    assert_eq!([run(&mut site, &manager, &other), run(&mut site, &manager, &other)], [1, 0]);
}

#[test]
fn knows_changes_of_the_client_since_the_creation() {
    let mut site = Site::new();
    let manager = manager().harmonize(|current: &Page, desired: &mut Page| {
        desired.data.extend(current.data.get("words").map(|words| ("words".to_owned(), words.clone())));
    });
    mutating(&site);
    site.manage(&manager, None, Some(wanted())).unwrap();
    site.client.writes();
    assert_eq!(run(&mut site, &manager, &wanted()), 0);
    assert_eq!(site.page("index").data["hello"], "hi");
}

#[test]
fn corrects_labels_and_accepts_the_changes_of_the_client() {
    let mut site = Site::new();
    let manager = manager();
    mutating(&site);
    site.manage(&manager, None, Some(wanted())).unwrap();
    run(&mut site, &manager, &wanted());
    let before = site.page("index");
    site.pages().update(&before.clone().label("stray", "yes")).unwrap();
    assert_eq!([run(&mut site, &manager, &wanted()), run(&mut site, &manager, &wanted())], [1, 0]);
    assert_eq!((site.page("index").data, site.page("index").metadata.labels), (before.data, before.metadata.labels));
}

#[test]
fn many_threads_manage_objects_at_once() {
    let site = Site::new();
    let manager = Arc::new(manager());
    mutating(&site);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (site, manager) = (&site, Arc::clone(&manager));
            scope.spawn(move || {
                let request = Request::new(&site.web, site.config.clone());
                let (cx, mut meta) = (Context::detached(), site.web.metadata.clone());
                let cx = SubContext::new("test", &cx, &request);
                let mut pages = vec![];
                for number in 0..50 {
                    let desired = Page::new(&format!("p-{thread}-{number}")).with("hello", "world");
                    let created = manager.manage(&cx, &mut meta, None, Some(desired.clone())).unwrap();
                    let desired = desired.with("more", "of it");
                    let updated = manager.manage(&cx, &mut meta, created.as_ref(), Some(desired.clone())).unwrap();
                    pages.push((updated, desired));
                }
                for (page, desired) in pages {
                    assert_eq!(manager.manage(&cx, &mut meta, page.as_ref(), Some(desired)).unwrap(), page);
                }
            });
        }
    });
    // Each was created, and updated once.
    assert_eq!(site.client.writes().len(), 2 * 4 * 50);
}

/// The desired object is often a copy of the stored one, with the fields that the client has set.
#[test]
fn fields_set_by_the_client_do_not_change_the_desired_state() {
    let mut site = Site::new();
    let manager = manager();
    mutating(&site);
    let made = site.manage(&manager, None, Some(wanted())).unwrap().unwrap();
    site.client.writes();
    let like = |known: &Page| Page { data: wanted().data, ..known.clone() };
    assert_eq!(run(&mut site, &manager, &like(&made)), 0);
    for visits in 0..3 {
        let seen = site.page("index");
        site.pages().update_status(&Page { status: Some(PageStatus { visits }), ..seen }).unwrap();
        let seen = site.page("index");
        assert_eq!(run(&mut site, &manager, &like(&seen)), 0);
    }
}

/// Otherwise nobody would notice its deletion in between.
#[test]
fn tracks_an_object_with_finalizers_before_deleting_it() {
    for finalizers in [vec![], vec!["example.com/slow".to_owned()]] {
        let mut site = Site::new();
        let (tracker, counts) = (site.config.tracker().clone(), Arc::new(Mutex::new(Vec::new())));
        let mut held = wanted();
        held.metadata.finalizers = finalizers;
        let given = site.given(&held);
        let (seen, meta) = (Arc::clone(&counts), given.metadata.clone());
        site.client.before(move |_, _| {
            seen.lock().push(tracker.trackers_of(&Page::KIND, &meta).len());
            None
        });
        site.manage(&manager().tracked(), Some(&given), None).unwrap();
        assert_eq!((*counts.lock()).as_slice(), [given.metadata.finalizers.len()]);
    }
}
