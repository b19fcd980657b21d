//! `ChildReconciler`: finding, writing, deleting and reflecting a child.
//!
//! The cases of reconciler.io's `reconcilers/child_test.go`, and others.

use std::sync::Arc;

use homeostat::run::Terminal;
use homeostat::{BoxError, Context};
use homeostat_objects::sub::{
    ChildReconciler, DesiredChild, ErrorClass, Failures, Flow, Request, SubContext, SubReconciler, SubResult,
};
use homeostat_objects::{Api, Client, ClientError, DynamicObject, Kind, Object, OwnerReference, Query};
use parking_lot::Mutex;
use serde_json::json;

use crate::hooked_client::HookedClient;
use crate::pages::{Page, Site, manager, out_of_luck};
use crate::support::{Thing, step};
use homeostat::rt::Chain;

const FINALIZER: &str = "example.com/pages";
type Child = ChildReconciler<Thing, Page>;

/// A page with the name and the spec of the thing, or none for an empty spec.
fn desired(_cx: &SubContext<'_>, thing: &mut Thing) -> Result<DesiredChild<Page>, BoxError> {
    let page = Page { data: thing.spec.clone(), ..Page::new(&thing.metadata.name) };
    Ok(Some(page).filter(|page| !page.data.is_empty()).into())
}

/// The same page with a generated name.
fn generated(cx: &SubContext<'_>, thing: &mut Thing) -> Result<DesiredChild<Page>, BoxError> {
    Ok(match desired(cx, thing)? {
        DesiredChild::This(page) => DesiredChild::This(Page { metadata: Page::generated("web-").metadata, ..page }),
        other => other,
    })
}

/// Copies the data of the page or the error to the status.
fn reflect(_cx: &SubContext<'_>, thing: &mut Thing, page: Result<Option<&Page>, &ClientError>) -> SubResult {
    thing.status.fields = match page {
        Ok(page) => page.map(|page| page.data.clone()).unwrap_or_default(),
        Err(error) => [("error".to_owned(), Chain(error).to_string())].into(),
    };
    Ok(Flow::proceed())
}

fn child() -> Child {
    Child::new(desired, reflect, manager())
}

fn never(_cx: &SubContext<'_>, _thing: &mut Thing, _page: Result<Option<&Page>, &ClientError>) -> SubResult {
    unreachable!("not reflected")
}

/// Tracked pages: by the label `of`, in the namespace `pages`.
fn tracked(child: Child) -> Child {
    child.tracked(
        |thing| Query::all().namespace("pages").labels(format!("of={}", thing.metadata.name).parse().unwrap()),
        |_thing, page| !page.data.contains_key("foreign"),
    )
}

/// A tracked page of `web`.
fn away(name: &str) -> Page {
    Page::new(name).in_namespace("pages").label("of", "web")
}

impl Site {
    /// A site that wants a page with this entry.
    fn wanting(key: &str, value: &str) -> Self {
        let mut site = Self::new();
        site.want(key, value);
        site
    }

    fn want(&mut self, key: &str, value: &str) {
        self.web.spec.insert(key.to_owned(), value.to_owned());
    }

    /// Creates a page of `web`.
    fn given_child(&self, name: &str) -> Page {
        self.given(&Page::new(name).with("foo", "bar").of(&self.web))
    }

    fn given_children(&self, names: &[&str]) {
        for name in names {
            self.given_child(name);
        }
    }

    fn reflected(&self, key: &str) -> Option<&str> {
        self.web.status.fields.get(key).map(String::as_str)
    }
}

fn class(result: SubResult) -> ErrorClass {
    ErrorClass::of(&*result.unwrap_err())
}

fn error(result: SubResult) -> String {
    Chain(&*result.unwrap_err()).to_string()
}

#[test]
fn does_nothing_if_no_child_exists_or_is_desired() {
    let mut site = Site::new();
    assert_eq!(site.step(&child()).unwrap(), Flow::proceed());
    site.did(&[], &[]);
}

#[test]
fn keeps_and_reflects_a_child_in_step() {
    let mut site = Site::wanting("foo", "bar");
    let given = site.given_child("web");
    site.go(&child());
    assert_eq!(site.reflected("foo"), Some("bar"));
    site.did(&[], &[]);
    assert_eq!(site.all(), [given]);
}

#[test]
fn creates_a_child_for_its_owner() {
    let mut site = Site::wanting("foo", "bar");
    site.go(&child());
    assert_eq!(site.page("web").metadata.owner_references, [site.web.controller_reference()]);
    assert_eq!(site.reflected("foo"), Some("bar"));
    site.did(&["create Page default/web"], &["Normal Created Created Page \"web\""]);
    assert!(site.config.tracker().is_empty());
}

#[test]
fn reflects_the_child_as_the_client_returned_it() {
    let mut site = Site::wanting("foo", "bar");
    site.client.mutate(|object| object["data"]["added"] = "x".into());
    site.go(&child());
    assert_eq!(site.reflected("added"), Some("x"));
}

#[test]
fn keeps_a_controller_reference_set_by_the_desired_child() {
    let mut site = Site::wanting("foo", "bar");
    let own = Child::new(
        |cx, thing| {
            let reference = thing.controller_reference().block_owner_deletion(false);
            Ok(match desired(cx, thing)? {
                DesiredChild::This(page) => {
                    DesiredChild::This(Page { metadata: page.metadata.clone().owner(reference), ..page })
                }
                other => other,
            })
        },
        reflect,
        manager(),
    );
    site.go(&own);
    let references = site.page("web").metadata.owner_references;
    assert_eq!((references.len(), references[0].block_owner_deletion), (1, Some(false)));
}

#[test]
fn updates_a_child() {
    let mut site = Site::wanting("foo", "bar");
    site.given_child("web");
    site.want("new", "field");
    site.go(&child());
    assert_eq!(site.reflected("new"), Some("field"));
    assert_eq!(site.page("web").data, site.web.spec);
    site.did(&["update Page default/web"], &["Normal Updated Updated Page \"web\""]);
}

#[test]
fn keeps_the_name_of_a_child() {
    let mut site = Site::wanting("foo", "bar");
    site.given_child("other");
    site.want("new", "field");
    site.go(&child());
    assert_eq!((site.names(), &site.all()[0].data), (vec!["other".to_owned()], &site.web.spec));
}

#[test]
fn deletes_a_child_that_is_not_desired() {
    let mut site = Site::new();
    site.given_child("web");
    site.web.status.fields.insert("foo".to_owned(), "bar".to_owned());
    site.go(&child());
    assert_eq!((site.all(), site.reflected("foo")), (vec![], None));
    site.did(&["delete Page default/web"], &["Normal Deleted Deleted Page \"web\""]);
}

#[test]
fn does_not_touch_objects_of_other_owners_and_steps() {
    let mut site = Site::new();
    let other = site.things().create(&Thing::new("other")).unwrap();
    let mut owned = Page::new("owned");
    owned.metadata.owner_references.push(site.web.owner_reference());
    for page in [Page::new("a"), Page::new("b").of(&other), owned] {
        site.given(&page);
    }
    site.go(&child());
    site.given(&Page::new("c").with("step", "other").of(&site.web));
    site.go(&child().ours(|_thing, page| !page.data.contains_key("step")));
    assert_eq!(site.names(), ["a", "b", "c", "owned"]);
    site.did(&[], &[]);
}

#[test]
fn does_not_adopt_the_children_of_an_earlier_owner_with_the_same_name() {
    let mut site = Site::wanting("foo", "bar");
    let before = Site::new().web;
    let mut page = Page::new("web").of(&before);
    page.metadata.owner_references.push(site.web.owner_reference());
    let page = site.given(&page);
    site.go(&child());
    assert!(site.reflected("error").unwrap().contains("Page default/web already exists"));
    assert_eq!(site.all(), [page]);
}

#[test]
fn keeps_one_of_several_and_reports_the_others() {
    for (names, kept) in [(["a", "b", "c"], "a"), (["a", "b", "web"], "web")] {
        let mut site = Site::wanting("foo", "bar");
        site.given_children(&names);
        site.want("new", "field");
        let result = site.step(&child()).unwrap_err();
        assert_eq!(ErrorClass::of(&*result), ErrorClass::Transient);
        let failures = result.downcast_ref::<Failures>().unwrap().errors();
        let errors: Vec<_> = failures.iter().map(ToString::to_string).collect();
        let others: Vec<_> = names.into_iter().filter(|name| *name != kept).collect();
        let expected = others.iter().map(|name| {
            format!(
                "Page default/{name} is invalid: metadata.name is {name:?}, but must be {kept:?}: Thing default/web has one \
                 such child; this one is deleted"
            )
        });
        assert_eq!(errors, expected.collect::<Vec<_>>());
        assert_eq!((site.names(), site.reflected("new")), (vec![kept.to_owned()], Some("field")));
        assert_eq!(site.step(&child()).unwrap(), Flow::proceed());
    }
}

#[test]
fn keeps_the_oldest_of_several() {
    let clock = homeostat::ManualClock::new();
    let client = homeostat_objects::MemoryClient::builder().clock(clock.clock()).build();
    let (things, pages) = (Api::<Thing>::new(Arc::new(client.clone())), Api::<Page>::new(Arc::new(client.clone())));
    let mut web = things.create(&Thing::new("web")).unwrap();
    web.spec.insert("foo".to_owned(), "bar".to_owned());
    for name in ["z", "a", "b"] {
        pages.create(&Page::new(name).of(&web)).unwrap();
        clock.advance(std::time::Duration::from_secs(1));
    }
    let config = homeostat_objects::sub::Config::new(Arc::new(client));
    step(&child(), &config, &mut web).unwrap_err();
    assert_eq!(pages.list(&Query::all()).unwrap().items[0].metadata.name, "z");
}

#[test]
fn a_child_being_deleted_is_not_surplus() {
    let mut site = Site::wanting("foo", "bar");
    let mut held = Page::new("a").of(&site.web);
    held.metadata.finalizers.push("example.com/slow".to_owned());
    site.given(&held);
    site.pages().delete(&held.key(), &<_>::default()).unwrap();
    site.given_child("b");
    for _ in 0..2 {
        site.go(&child());
        assert_eq!(site.reflected("foo"), Some("bar"));
        site.did(&[], &[]);
    }
    // It is the only child, so it is kept until it is gone.
    site.pages().purge(&Page::new("b").key()).unwrap();
    site.go(&child());
    site.pages().purge(&held.key()).unwrap();
    site.go(&child());
    assert_eq!(site.client.writes(), ["update Page default/a", "create Page default/web"]);
}

#[test]
fn deletes_all_of_several_if_none_is_desired() {
    let mut site = Site::new();
    site.given_children(&["a", "b"]);
    site.go(&child());
    assert!(site.all().is_empty());
}

#[test]
fn reflects_or_returns_an_invalid_child() {
    let mut site = Site::wanting("foo", "bar");
    let invalid = |error_of: &HookedClient| {
        error_of.before(|verb, object| {
            (verb == "create").then(|| ClientError::invalid(object.clone(), "data", "x", "must be y"))
        });
    };
    invalid(&site.client);
    let text = "Page default/web is invalid: data is \"x\", but must be y";
    assert_eq!(site.step(&child()).unwrap(), Flow::proceed());
    assert_eq!(site.reflected("error"), Some(text));
    let strict = Child::new(desired, never, manager()).reflects(|_| false);
    let result = site.step(&strict);
    assert_eq!((class(result), site.all()), (ErrorClass::Transient, vec![]));
    // A step may choose other errors.
    site.fail("create");
    assert_eq!(
        error(site.step(&Child::new(desired, never, manager()))),
        "Page default/web: the call failed: out of luck"
    );
    site.go(&child().reflects(ClientError::is_transport));
    assert_eq!(site.reflected("error"), Some("Page default/web: the call failed: out of luck"));
}

#[test]
fn does_not_claim_an_object_of_another_owner_with_the_name() {
    let mut site = Site::wanting("foo", "bar");
    let foreign = site.given(&Page::new("web"));
    site.go(&child());
    assert_eq!(site.reflected("error"), Some("Page default/web already exists"));
    assert_eq!(site.all(), std::slice::from_ref(&foreign));
    assert!(site.tracks(&foreign));
    // Once it is gone, the child is created.
    site.pages().delete(&foreign.key(), &<_>::default()).unwrap();
    site.go(&child());
    assert_eq!(site.reflected("foo"), Some("bar"));
}

#[test]
fn does_not_claim_a_child_of_another_step_with_the_name() {
    let mut site = Site::wanting("foo", "bar");
    let given = site.given(&Page::new("web").with("step", "other").of(&site.web));
    site.go(&child().ours(|_thing, page| !page.data.contains_key("step")));
    assert_eq!((site.reflected("error"), site.all()), (Some("Page default/web already exists"), vec![given]));
}

#[test]
fn updates_a_child_that_appears_during_the_run() {
    let mut site = Site::wanting("foo", "bar");
    // Another writer creates it between the listing and the creation.
    let (inner, page) = (site.pages(), Page::new("web").with("old", "x").of(&site.web));
    site.client.before(move |verb, _| {
        if verb == "create" {
            let _ = inner.create(&page);
        }
        None
    });
    site.go(&child());
    assert_eq!((&site.page("web").data, site.reflected("foo")), (&site.web.spec, Some("bar")));
}

#[test]
fn retries_if_the_object_with_the_name_vanishes() {
    let mut site = Site::wanting("foo", "bar");
    site.client.before(|verb, object| (verb == "create").then(|| ClientError::already_exists(object.clone())));
    let error = site.step(&Child::new(desired, never, manager())).unwrap_err();
    assert!(error.downcast_ref::<ClientError>().unwrap().is_conflict());
}

#[test]
fn retries_if_a_generated_name_is_taken() {
    let mut site = Site::wanting("foo", "bar");
    site.client.before(|verb, object| (verb == "create").then(|| ClientError::already_exists(object.clone())));
    let error = site.step(&Child::new(generated, never, manager())).unwrap_err();
    assert_eq!(error.to_string(), "Page default/: conflict: the generated name is already taken");
}

#[test]
fn objects_of_other_owners_need_not_fit_the_type() {
    let mut site = Site::wanting("foo", "bar");
    let odd = |name: &str, owners: &[OwnerReference]| {
        let metadata = json!({"namespace": "default", "name": name, "ownerReferences": owners});
        json!({"apiVersion": "example.com/v1", "kind": "Page", "metadata": metadata, "data": [5]})
    };
    site.client.create(&Page::KIND, odd("others", &[])).unwrap();
    site.go(&child());
    assert_eq!(site.reflected("foo"), Some("bar"));
    site.client.create(&Page::KIND, odd("ours", &[site.web.controller_reference()])).unwrap();
    assert!(error(site.step(&Child::new(desired, never, manager()))).contains("Page default/ours is invalid"));
}

#[test]
fn finds_the_children_of_a_cluster_owner_in_all_namespaces() {
    const ROOM: Kind = Kind::cluster("example.com", "v1", "Room");
    let site = Site::new();
    let api = Api::<DynamicObject>::of_kind(site.client.clone(), ROOM);
    let mut room = api.create(&DynamicObject::new(&ROOM, "", "hall")).unwrap();
    let child = ChildReconciler::new(
        |_cx, _room: &mut DynamicObject| Ok(DesiredChild::This(Page::new("door").with("a", "b"))),
        |_cx, _room, _page: Result<Option<&Page>, &ClientError>| Ok(Flow::proceed()),
        manager(),
    );
    for _ in 0..2 {
        let request = Request::new(&room, site.config.clone());
        let cx = Context::detached();
        let flow = child.reconcile(&SubContext::new("test", &cx, &request), &mut room).unwrap();
        assert_eq!((flow, site.names()), (Flow::proceed(), vec!["door".to_owned()]));
    }
    assert_eq!(site.client.writes(), ["create Room hall", "create Page default/door"]);
}

#[test]
fn a_stale_cache_causes_no_second_child() {
    for child in [Child::new(desired, reflect, manager()), Child::new(generated, reflect, manager())] {
        let mut site = Site::wanting("foo", "bar");
        let stale = site.with_stale_cache();
        for _ in 0..2 {
            site.go_with(&stale, &child);
            assert_eq!(site.reflected("foo"), Some("bar"));
        }
        assert_eq!((site.all().len(), site.client.writes().len()), (1, 1));
        assert_eq!(site.take_events().len(), 1);
        // It is also updated if the cache does not have it.
        site.want("new", "field");
        site.go_with(&stale, &child);
        assert_eq!(site.all()[0].data, site.web.spec);
    }
}

#[test]
fn a_stale_cache_does_not_move_a_child_to_another_step() {
    for child in [Child::new(desired, reflect, manager()), Child::new(generated, reflect, manager())] {
        let mut site = Site::wanting("foo", "bar");
        let stale = site.with_stale_cache();
        site.given(&Page::new("web").with("step", "other").of(&site.web));
        let ours = child.ours(|_thing, page| !page.data.contains_key("step"));
        site.go_with(&stale, &ours);
        assert_eq!(site.page("web").data, Page::new("").with("step", "other").data);
    }
}

#[test]
fn a_stale_cache_causes_no_overwrite_and_no_blocked_deletion() {
    let mut site = Site::wanting("foo", "bar");
    site.given_child("web");
    let stale = site.with_stale_cache();
    site.pages().update(&site.page("web").with("foo", "other")).unwrap();
    site.want("new", "field");
    let error = step(&child(), &stale, &mut site.web).unwrap_err();
    assert!(error.downcast_ref::<ClientError>().unwrap().is_conflict());
    assert_eq!(site.page("web").data["foo"], "other");

    site.pages().purge(&Page::new("web").key()).unwrap();
    site.web.spec.clear();
    site.go_with(&stale, &child());
}

#[test]
fn can_leave_a_child_as_it_is_and_reflect_it() {
    let as_it_is = Child::new(|_cx, _thing| Ok(DesiredChild::AsItIs), reflect, manager());
    let mut site = Site::new();
    site.go(&as_it_is);
    assert_eq!(site.web.status.fields.len(), 0);
    site.given_children(&["a", "web"]);
    site.go(&as_it_is);
    assert_eq!(site.reflected("foo"), Some("bar"));
    site.did(&[], &[]);
}

#[test]
fn returns_errors_of_the_client() {
    let mut site = Site::wanting("foo", "bar");
    let strict = || Child::new(desired, never, manager());
    site.fail("list");
    assert_eq!(error(site.step(&strict())), "Page default/*: the call failed: out of luck");
    site.client.heal();
    site.given_child("web");
    for (verb, value) in [("update", "field"), ("delete", "")] {
        site.fail(verb);
        site.want("new", value);
        if verb == "delete" {
            site.web.spec.clear();
        }
        assert_eq!(error(site.step(&strict())), "Page default/web: the call failed: out of luck", "{verb}");
    }
}

#[test]
fn changes_none_of_several_while_one_cannot_be_deleted() {
    let mut site = Site::wanting("foo", "bar");
    site.given_children(&["a", "b", "c"]);
    site.client.before(|verb, object| (verb == "delete" && object.key().name() == "c").then(|| out_of_luck(object)));
    site.want("new", "field");
    let error = site.step(&Child::new(desired, never, manager())).unwrap_err();
    let errors = error.downcast_ref::<Failures>().unwrap().errors();
    assert_eq!(
        (errors.len(), Chain(&*errors[0]).to_string()),
        (2, "Page default/c: the call failed: out of luck".to_owned())
    );
    assert_eq!(site.names(), ["a", "c"]);
    assert_eq!(site.page("a").data.len(), 1);
}

#[test]
fn returns_an_error_of_desired() {
    let mut site = Site::new();
    site.given_child("web");
    let fails = Child::new(|_cx, _thing| Err("no idea".into()), never, manager());
    assert_eq!(error(site.step(&fails)), "no idea");
    site.did(&[], &[]);
}

#[test]
fn returns_the_result_of_reflect() {
    let mut site = Site::wanting("foo", "bar");
    let halts = Child::new(desired, |_cx, _thing, _page| Ok(Flow::halt()), manager());
    assert!(site.step(&halts).unwrap().is_halted());
    let fails = Child::new(desired, |_cx, _thing, _page| Err("no".into()), manager());
    assert_eq!(error(site.step(&fails)), "no");
}

/// Returns the error for an invalid page of `web`. Nothing is written, and the error is durable.
#[track_caller]
fn refused(site: &mut Site, child: &Child) -> String {
    let error = site.step(child).unwrap_err();
    assert_eq!(ErrorClass::of(&*error), ErrorClass::Durable);
    site.did(&[], &[]);
    Terminal::find(&*error).unwrap().to_string()
}

#[test]
fn refuses_an_invalid_desired_child() {
    let mut site = Site::new();
    let of = |page: Page| Child::new(move |_cx, _thing| Ok(DesiredChild::This(page.clone())), never, manager());
    assert_eq!(
        refused(&mut site, &of(Page::new("a").in_namespace("other"))),
        "Page other/a is invalid: metadata.namespace is \"other\", but must be the namespace of its owner, Thing default/web"
    );
    let other = site.things().create(&Thing::new("other")).unwrap();
    assert_eq!(
        refused(&mut site, &of(Page::new("a").of(&other))),
        "Page default/a is invalid: metadata.ownerReferences is \"Thing other\", but must contain no other controller before \
         Thing default/web can manage it"
    );
    // A valid owner reference in another namespace.
    let elsewhere = Page::new("a").of(&site.web).in_namespace("other");
    assert!(refused(&mut site, &of(elsewhere)).contains("metadata.namespace"));
    let not_ours = of(Page::new("a")).ours(|_thing, page| page.data.contains_key("ours"));
    assert_eq!(
        refused(&mut site, &not_ours),
        "Page default/a is invalid: must be accepted by `ours` as a child of Thing default/web, or it is not found again"
    );
    site.web.metadata.uid.clear();
    assert!(refused(&mut site, &of(Page::new("a"))).contains("metadata.uid"));
}

#[test]
fn leaves_the_children_of_a_deleted_owner_to_the_garbage_collection() {
    let mut site = Site::wanting("foo", "bar");
    site.given_child("web");
    site.delete_web("example.com/other");
    site.go(&Child::new(|_, _| unreachable!(), never, manager()));
    assert_eq!(site.names(), ["web"]);
    site.did(&[], &[]);
}

#[test]
fn a_tracked_child_has_no_owner_reference_and_any_namespace() {
    let mut site = Site::wanting("foo", "bar");
    let anywhere = |cx: &SubContext<'_>, thing: &mut Thing| {
        Ok(match desired(cx, thing)? {
            DesiredChild::This(page) => DesiredChild::This(Page { metadata: away("p").metadata, ..page }),
            other => other,
        })
    };
    let child = tracked(Child::new(anywhere, reflect, manager()));
    let foreign = site.given(&away("foreign").with("foreign", "x"));
    let other = site.given(&away("other").label("of", "other"));
    site.go(&child);
    let page = site.pages().get(&away("p").key()).unwrap();
    assert_eq!((page.metadata.owner_references.len(), site.reflected("foo")), (0, Some("bar")));
    assert!(site.tracks(&page) && !site.tracks(&other));
    assert!(site.tracks(&foreign), "a change can make it a child");

    site.untrack();
    assert!(!site.tracks(&page));
    site.go(&child);
    assert!(site.tracks(&page));

    // It is deleted with its owner, but other objects are not.
    site.delete_web(FINALIZER);
    site.go(&child);
    assert_eq!(site.names(), ["foreign", "other"]);
}

/// Otherwise nobody would notice a child that appears in between.
#[test]
fn tracks_tracked_children_before_listing_them() {
    let mut site = Site::new();
    let (tracker, counts) = (site.config.tracker().clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&counts);
    site.client.before(move |verb, object| {
        if (verb, object.kind()) == ("list", &Page::KIND) {
            seen.lock().push(tracker.trackers_of(&Page::KIND, &away("p").metadata).len());
        }
        None
    });
    site.go(&tracked(Child::new(desired, reflect, manager())));
    assert_eq!(*counts.lock(), [1]);
}

/// The run replaces the tracks of the previous runs.
#[test]
fn tracks_a_tracked_child_that_it_leaves_as_it_is() {
    let mut site = Site::new();
    let page = site.given(&away("p"));
    site.go(&tracked(Child::new(|_cx, _thing| Ok(DesiredChild::AsItIs), reflect, manager())));
    assert!(site.tracks(&page));
}

#[test]
fn the_end_of_a_tracked_child_enqueues_its_owner() {
    let mut site = Site::new();
    let child = tracked(Child::new(desired, reflect, manager()));
    let mut held = away("p");
    held.metadata.finalizers.push("example.com/slow".to_owned());
    let page = site.given(&held);
    for _ in 0..2 {
        assert!(!site.tracks(&page));
        site.go(&child);
        assert!(site.tracks(&page));
        site.untrack();
    }
}

#[test]
fn removes_the_finalizer_after_the_last_child() {
    let mut site = Site::wanting("foo", "bar");
    let child = Child::new(desired, reflect, manager().finalizer(FINALIZER));
    site.go(&child);
    assert!(site.web.metadata.has_finalizer(FINALIZER));
    let mut held = Page::new("held").of(&site.web);
    held.metadata.finalizers.push("example.com/slow".to_owned());
    site.given(&held);

    site.web = site.things().delete(&site.web.key(), &<_>::default()).unwrap().into_object().unwrap();
    site.go(&child);
    assert_eq!(site.names(), ["held"]);
    assert!(site.web.metadata.has_finalizer(FINALIZER));
    site.pages().purge(&held.key()).unwrap();
    site.go(&child);
    assert!(site.things().get(&site.web.key()).unwrap_err().is_not_found());
}

#[test]
fn removes_the_finalizer_in_the_run_that_deletes_the_last_child() {
    for deleted in [false, true] {
        let mut site = Site::wanting("foo", "bar");
        let child = Child::new(desired, reflect, manager().finalizer(FINALIZER));
        site.go(&child);
        if deleted {
            site.web = site.things().delete(&site.web.key(), &<_>::default()).unwrap().into_object().unwrap();
        }
        site.web.spec.clear();
        site.go(&child);
        assert!(site.all().is_empty() && site.web.metadata.finalizers.is_empty());
    }
}

#[test]
fn keeps_the_finalizer_for_a_child_missing_in_a_cache() {
    for deleted in [false, true] {
        let mut site = Site::wanting("foo", "bar");
        let stale = site.with_stale_cache();
        let child = Child::new(desired, reflect, manager().finalizer(FINALIZER));
        site.go(&child);
        if deleted {
            site.web = site.things().delete(&site.web.key(), &<_>::default()).unwrap().into_object().unwrap();
        }
        site.web.spec.clear();
        site.fail("delete");
        step(&child, &stale, &mut site.web).unwrap_err();
        assert!(site.web.metadata.has_finalizer(FINALIZER));
        site.client.heal();
        site.go_with(&stale, &child);
        assert!(site.all().is_empty() && site.web.metadata.finalizers.is_empty());
    }
}

/// The server orphans the children after it has marked the owner. If a run deleted them at this point, they
/// would be lost.
#[test]
fn leaves_children_alone_while_the_server_orphans_them() {
    let mut site = Site::new();
    let child = Child::new(desired, never, manager().finalizer(FINALIZER));
    site.given_children(&["a"]);
    site.delete_web(FINALIZER);
    site.web.metadata.finalizers.push("orphan".to_owned());
    assert_eq!(site.step(&child).unwrap(), Flow::proceed());
    assert_eq!(site.names(), ["a"]);
    assert!(site.web.metadata.has_finalizer(FINALIZER));

    let mut page = site.page("a");
    page.metadata.owner_references.clear();
    site.pages().update(&page).unwrap();
    site.web.metadata.finalizers.retain(|finalizer| finalizer != "orphan");
    assert_eq!(site.step(&child).unwrap(), Flow::proceed());
    assert_eq!(site.names(), ["a"]);
    assert!(!site.web.metadata.has_finalizer(FINALIZER));
}

#[test]
fn one_failed_deletion_with_the_owner_does_not_stop_the_others() {
    let mut site = Site::new();
    let child = Child::new(desired, never, manager().finalizer(FINALIZER));
    site.given_children(&["a", "b", "c"]);
    site.delete_web(FINALIZER);
    site.client.before(|verb, object| (verb == "delete" && object.key().name() == "a").then(|| out_of_luck(object)));
    assert_eq!(error(site.step(&child)), "Page default/a: the call failed: out of luck");
    assert_eq!(site.names(), ["a"]);
    assert!(site.web.metadata.has_finalizer(FINALIZER));
}

#[test]
fn lists_children_in_the_namespace_of_the_owner_or_by_a_query() {
    let mut site = Site::wanting("foo", "bar");
    let queries = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&queries);
    let child = child().listed_by(move |thing| {
        *counted.lock() += 1;
        Query::all().namespace("default").field("metadata.name", &*thing.metadata.name)
    });
    site.given_child("other");
    site.go(&child);
    assert_eq!((*queries.lock(), site.names()), (1, vec!["other".to_owned(), "web".to_owned()]));
}

/// Otherwise nobody would notice its deletion in between.
#[test]
fn tracks_a_conflicting_object_before_reading_it() {
    let mut site = Site::wanting("foo", "bar");
    let foreign = site.given(&Page::new("web"));
    let (tracker, meta) = (site.config.tracker().clone(), foreign.metadata.clone());
    let looked_at = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&looked_at);
    site.client.before(move |verb, object| {
        if (verb, object.kind()) == ("get", &Page::KIND) {
            seen.lock().push(tracker.trackers_of(&Page::KIND, &meta).len());
        }
        None
    });
    site.go(&child());
    assert_eq!(*looked_at.lock(), [1]);
}

/// Otherwise nobody would notice a change in between.
#[test]
fn tracks_a_child_without_owner_reference_before_creating_it() {
    let made_by_manager = Child::new(desired, reflect, manager().tracked());
    let made_away = tracked(Child::new(
        |cx: &SubContext<'_>, thing: &mut Thing| {
            Ok(match desired(cx, thing)? {
                DesiredChild::This(page) => DesiredChild::This(Page { data: page.data, ..away("web") }),
                other => other,
            })
        },
        reflect,
        manager(),
    ));
    for (child, page) in [(made_by_manager, Page::new("web")), (made_away, away("web"))] {
        let mut site = Site::wanting("foo", "bar");
        let (tracker, counts) = (site.config.tracker().clone(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&counts);
        site.client.mutate(move |_page| seen.lock().push(tracker.trackers_of(&Page::KIND, &page.metadata).len()));
        site.go(&child);
        assert_eq!(*counts.lock(), [1]);
    }
}

#[test]
fn a_stale_cache_causes_no_second_child_with_another_name() {
    let mut site = Site::wanting("foo", "bar");
    let stale = site.with_stale_cache();
    site.given_child("old-name");
    site.go_with(&stale, &child());
    assert_eq!(site.names(), ["old-name"]);
    assert_eq!(site.page("old-name").data, site.web.spec);
}

/// The oldest child is gone, and only a cache still has it. The other one is the child.
#[test]
fn a_stale_cache_causes_no_surplus_child() {
    let mut site = Site::wanting("foo", "bar");
    site.given_children(&["a", "b"]);
    let stale = site.with_stale_cache();
    site.pages().purge(&Page::new("a").key()).unwrap();
    site.go_with(&stale, &Child::new(generated, reflect, manager()));
    assert_eq!(site.names(), ["b"]);
    site.did(&[], &[]);
}

#[test]
fn a_conflicting_object_need_not_fit_the_type() {
    let mut site = Site::wanting("foo", "bar");
    let stale = site.with_stale_cache();
    let odd = json!({"apiVersion": "example.com/v1", "kind": "Page", "metadata": {"namespace": "default", "name": "web"}, "data": [5]});
    site.client.create(&Page::KIND, odd).unwrap();
    for config in [site.config.clone(), stale] {
        site.go_with(&config, &child());
        assert_eq!(site.reflected("error"), Some("Page default/web already exists"));
        assert!(site.tracks(&Page::new("web")));
    }
}
