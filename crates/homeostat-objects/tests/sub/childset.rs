//! `ChildSetReconciler`: several children, each with an identifier.
//!
//! The cases of reconciler.io's `reconcilers/childset_test.go`, and others.

use homeostat::BoxError;
use homeostat::run::Terminal;
use homeostat_objects::sub::{
    ChildResult, ChildSetReconciler, DesiredChild, ErrorClass, Failures, Flow, SubContext, SubResult,
};
use homeostat_objects::{ClientError, Object, Query};

use crate::pages::{Page, Site, manager, out_of_luck};
use crate::support::{Thing, step};
use homeostat::rt::Chain;

const FINALIZER: &str = "example.com/pages";
type Set = ChildSetReconciler<Thing, Page>;

fn id(page: &Page) -> String {
    page.metadata.labels.get("id").cloned().unwrap_or_default()
}

/// The page with this identifier.
fn page(id: &str) -> Page {
    Page::new(&format!("web-{id}")).label("id", id)
}

/// A page for each entry of the spec.
fn desired(_cx: &SubContext<'_>, thing: &mut Thing, _known: &[Page]) -> Result<DesiredChild<Vec<Page>>, BoxError> {
    Ok(DesiredChild::This(thing.spec.iter().map(|(id, value)| page(id).with("foo", value)).collect()))
}

/// Copies the data or the error of each page to the status, in their order.
fn reflect(_cx: &SubContext<'_>, thing: &mut Thing, pages: &[ChildResult<Page>]) -> SubResult {
    let of = |page: &ChildResult<Page>| match &page.child {
        Ok(child) => child.as_ref().map_or("none".to_owned(), |child| child.data["foo"].clone()),
        Err(error) => Chain(error).to_string(),
    };
    let pages = pages.iter().map(|page| format!("{}: {}", page.id, of(page))).collect::<Vec<_>>();
    thing.status.fields.insert("pages".to_owned(), pages.join(", "));
    Ok(Flow::proceed())
}

fn set() -> Set {
    Set::new(desired, id, reflect, manager())
}

fn never(_cx: &SubContext<'_>, _thing: &mut Thing, _pages: &[ChildResult<Page>]) -> SubResult {
    unreachable!("not reflected")
}

impl Site {
    /// A site that wants pages with these entries.
    fn wanting_set(entries: &[(&str, &str)]) -> Self {
        let mut site = Self::new();
        site.want_set(entries);
        site
    }

    fn want_set(&mut self, entries: &[(&str, &str)]) {
        self.web.spec = entries.iter().map(|(id, value)| ((*id).to_owned(), (*value).to_owned())).collect();
    }

    fn given_page(&self, name: &str, id: &str) -> Page {
        let mut page = Page::new(name).with("foo", "bar").of(&self.web);
        if !id.is_empty() {
            page = page.label("id", id);
        }
        self.given(&page)
    }

    fn pages_reflected(&self) -> &str {
        &self.web.status.fields["pages"]
    }
}

#[test]
fn keeps_a_set_in_step() {
    let mut site = Site::new();
    site.go(&set());
    assert_eq!(site.pages_reflected(), "");
    site.want_set(&[("blue", "bar"), ("green", "bar")]);
    site.given_page("web-blue", "blue");
    site.given_page("web-green", "green");
    site.go(&set());
    assert_eq!(site.pages_reflected(), "blue: bar, green: bar");
    site.did(&[], &[]);
}

#[test]
fn writes_children_in_the_order_of_their_identifiers() {
    let mut site = Site::wanting_set(&[("blue", "x"), ("green", "y"), ("red", "z")]);
    site.given_page("web-blue", "blue");
    site.given_page("web-pink", "pink");
    site.given_page("web-red", "red");
    site.go(&set());
    assert_eq!(site.pages_reflected(), "blue: x, green: y, pink: none, red: z");
    assert_eq!(site.names(), ["web-blue", "web-green", "web-red"]);
    assert!(site.all().iter().all(|page| page.metadata.owner_references == [site.web.controller_reference()]));
    site.did(
        &[
            "update Page default/web-blue",
            "create Page default/web-green",
            "delete Page default/web-pink",
            "update Page default/web-red",
        ],
        &[
            "Normal Created Created Page \"web-green\"",
            "Normal Deleted Deleted Page \"web-pink\"",
            "Normal Updated Updated Page \"web-blue\"",
            "Normal Updated Updated Page \"web-red\"",
        ],
    );
    site.web.spec.clear();
    site.go(&Set::new(|_, _, _| Ok(DesiredChild::Nothing), id, reflect, manager()));
    assert_eq!((site.names().len(), site.pages_reflected()), (0, "blue: none, green: none, red: none"));
}

#[test]
fn desired_gets_the_existing_children() {
    let mut site = Site::new();
    for name in ["blue", "green", "red"] {
        site.given_page(name, name);
    }
    site.go(&Set::new(|_, _, known| Ok(DesiredChild::This(known.to_vec())), id, reflect, manager()));
    site.did(&[], &[]);
    site.go(&Set::new(|_, _, known| Ok(DesiredChild::This(known[1..2].to_vec())), id, reflect, manager()));
    assert_eq!(site.names(), ["green"]);
    // Each run adds one page.
    let more = |_: &SubContext<'_>, _: &mut Thing, known: &[Page]| {
        let next = Page::generated("more-").label("id", &known.len().to_string()).with("foo", "more");
        Ok(DesiredChild::This([known, &[next]].concat()))
    };
    for _ in 0..2 {
        site.go(&Set::new(more, id, reflect, manager()));
    }
    assert_eq!(site.pages_reflected(), "1: more, 2: more, green: bar");
}

#[test]
fn does_not_touch_children_of_other_steps() {
    let mut site = Site::wanting_set(&[("green", "bar")]);
    site.given_page("web-blue", "blue");
    site.go(&set().ours(|_thing, page| id(page) == "green"));
    assert_eq!(site.names(), ["web-blue", "web-green"]);
    assert_eq!(site.pages_reflected(), "green: bar");
}

/// Returns the error for an invalid set. Nothing is written, and the error is durable.
#[track_caller]
fn refused(pages: Vec<Page>) -> String {
    let mut site = Site::new();
    site.given_page("web-blue", "blue");
    let set = Set::new(move |_, _, _| Ok(DesiredChild::This(pages.clone())), id, never, manager());
    let error = site.step(&set).unwrap_err();
    assert_eq!(ErrorClass::of(&*error), ErrorClass::Durable);
    site.did(&[], &[]);
    Terminal::find(&*error).unwrap().to_string()
}

#[test]
fn refuses_desired_children_without_a_unique_identifier() {
    assert_eq!(
        refused(vec![page("green"), Page::new("web-none")]),
        "Page default/web-none is invalid: identifier: must not be empty"
    );
    assert_eq!(
        refused(vec![page("green"), Page::new("web-other").label("id", "green")]),
        "Page default/web-other is invalid: identifier is \"green\", but must be unique among the desired children"
    );
}

/// Returns the texts of the failures of a step, with their causes.
fn failures(error: &BoxError) -> Vec<String> {
    let Some(failures) = error.downcast_ref::<Failures>() else { panic!("{error:?}") };
    failures.errors().iter().map(|error| Chain(&**error).to_string()).collect()
}

#[test]
fn keeps_one_child_of_each_identifier_and_reports_the_others() {
    let mut site = Site::wanting_set(&[("blue", "x"), ("green", "y")]);
    for name in ["a", "b", "web-blue"] {
        site.given_page(name, "blue");
    }
    let errors = failures(&site.step(&set()).unwrap_err());
    let expected = ["a", "b"].map(|name| {
        format!(
            "Page default/{name} is invalid: metadata.name is {name:?}, but must be \"web-blue\": Thing default/web has one such \
             child; this one is deleted"
        )
    });
    assert_eq!(errors, expected);
    assert_eq!(site.names(), ["web-blue", "web-green"]);
    assert_eq!(site.pages_reflected(), "blue: x, green: y");
    site.go(&set());
}

#[test]
fn deletes_a_child_without_an_identifier() {
    let mut site = Site::wanting_set(&[("blue", "bar")]);
    site.given_page("stray", "");
    site.given_page("web-blue", "blue");
    site.go(&set());
    assert_eq!((site.names(), site.pages_reflected()), (vec!["web-blue".to_owned()], ": none, blue: bar"));
}

#[test]
fn a_failed_write_does_not_stop_the_others() {
    let mut site = Site::wanting_set(&[("blue", "x"), ("green", "y"), ("red", "z"), ("white", "w")]);
    site.given_page("web-blue", "blue");
    site.given_page("web-pink", "pink");
    // A page that is not one of `web`.
    site.given(&Page::new("web-red"));
    site.client
        .before(|_, object| ["web-blue", "web-pink"].contains(&object.key().name()).then(|| out_of_luck(object)));
    let errors = failures(&site.step(&set()).unwrap_err());
    assert_eq!(
        errors,
        ["Page default/web-blue: the call failed: out of luck", "Page default/web-pink: the call failed: out of luck"]
    );
    assert_eq!(
        site.pages_reflected(),
        "blue: Page default/web-blue: the call failed: out of luck, green: y, pink: Page default/web-pink: the call failed: out of luck, \
         red: Page default/web-red already exists, white: w"
    );
    // The deletion of the conflicting object enqueues `web`.
    assert!(site.tracks(&site.page("web-red")));
}

#[test]
fn an_invalid_child_does_not_stop_the_others() {
    let mut site = Site::new();
    let pages = vec![page("blue").in_namespace("other").with("foo", "x"), page("green").with("foo", "y")];
    let error =
        site.step(&Set::new(move |_, _, _| Ok(DesiredChild::This(pages.clone())), id, reflect, manager())).unwrap_err();
    assert_eq!(ErrorClass::of(&*error), ErrorClass::Durable);
    assert_eq!(site.names(), ["web-green"]);
    assert!(site.pages_reflected().starts_with("blue: Page other/web-blue is invalid: metadata.namespace is"));
}

#[test]
fn returns_errors_that_occur_before_the_children() {
    let mut site = Site::new();
    site.given_page("web-blue", "blue");
    let fails = Set::new(|_, _, _| Err("no idea".into()), id, never, manager());
    assert_eq!(site.step(&fails).unwrap_err().to_string(), "no idea");
    site.fail("list");
    let error = site.step(&Set::new(desired, id, never, manager())).unwrap_err();
    assert!(error.downcast_ref::<ClientError>().unwrap().is_transport());
    site.did(&[], &[]);
}

#[test]
fn combines_the_result_of_reflect_with_the_others() {
    let mut site = Site::wanting_set(&[("blue", "x")]);
    let halts = |_: &SubContext<'_>, _: &mut Thing, _: &[ChildResult<Page>]| Ok(Flow::halt());
    assert!(site.step(&Set::new(desired, id, halts, manager())).unwrap().is_halted());
    let fails = |_: &SubContext<'_>, _: &mut Thing, _: &[ChildResult<Page>]| Err("no".into());
    site.fail("update");
    site.want_set(&[("blue", "y")]);
    let error = site.step(&Set::new(desired, id, fails, manager())).unwrap_err();
    assert_eq!(error.to_string(), "Page default/web-blue: the call failed: out of luck; no");
}

#[test]
fn can_leave_children_as_they_are_and_reflect_them() {
    let mut site = Site::new();
    let as_they_are = Set::new(|_, _, _| Ok(DesiredChild::AsItIs), id, reflect, manager());
    site.go(&as_they_are);
    assert_eq!(site.pages_reflected(), "");
    for (name, id) in [("b", "blue"), ("a", "blue"), ("c", "green"), ("d", "")] {
        site.given_page(name, id);
    }
    site.go(&as_they_are);
    assert_eq!(site.pages_reflected(), ": bar, blue: bar, green: bar");
    site.did(&[], &[]);
}

#[test]
fn keeps_the_finalizer_until_the_last_child_is_gone() {
    for deleted in [false, true] {
        let mut site = Site::wanting_set(&[("blue", "x"), ("green", "y")]);
        let set = Set::new(desired, id, reflect, manager().finalizer(FINALIZER));
        site.go(&set);
        assert!(site.web.metadata.has_finalizer(FINALIZER));
        site.want_set(&[("green", "y")]);
        site.go(&set);
        assert!(site.web.metadata.has_finalizer(FINALIZER));
        if deleted {
            site.web = site.things().delete(&site.web.key(), &<_>::default()).unwrap().into_object().unwrap();
        }
        site.want_set(&[]);
        site.given_page("web-pink", "pink");
        site.client.before(|_, object| (object.key().name() == "web-green").then(|| out_of_luck(object)));
        site.step(&set).unwrap_err();
        assert_eq!(site.names(), ["web-green"]);
        assert!(site.web.metadata.has_finalizer(FINALIZER));
        site.client.heal();
        site.go(&set);
        assert!(site.all().is_empty() && site.web.metadata.finalizers.is_empty());
    }
}

#[test]
fn keeps_the_finalizer_for_children_missing_in_a_cache() {
    let mut site = Site::wanting_set(&[("blue", "x")]);
    let stale = site.with_stale_cache();
    let set = Set::new(desired, id, reflect, manager().finalizer(FINALIZER));
    site.go(&set);
    site.want_set(&[]);
    site.fail("delete");
    assert!(step(&set, &stale, &mut site.web).is_err());
    assert!(site.web.metadata.has_finalizer(FINALIZER));
    site.client.heal();
    site.go_with(&stale, &set);
    assert!(site.all().is_empty() && site.web.metadata.finalizers.is_empty());
}

#[test]
fn leaves_the_children_of_a_deleted_owner_to_the_garbage_collection() {
    let mut site = Site::wanting_set(&[]);
    site.given_page("web-blue", "blue");
    site.delete_web("example.com/other");
    site.go(&Set::new(|_, _, _| unreachable!(), id, never, manager()));
    site.did(&[], &[]);
}

#[test]
fn a_stale_cache_causes_no_second_children() {
    let generated = |_: &SubContext<'_>, thing: &mut Thing, _: &[Page]| {
        let page = |(id, value): (&String, &String)| Page::generated("p-").label("id", id).with("foo", value);
        Ok(DesiredChild::This(thing.spec.iter().map(page).collect()))
    };
    for set in [set(), Set::new(generated, id, reflect, manager())] {
        let mut site = Site::wanting_set(&[("blue", "x"), ("green", "y")]);
        let stale = site.with_stale_cache();
        for _ in 0..2 {
            site.go_with(&stale, &set);
            assert_eq!((site.pages_reflected(), site.all().len()), ("blue: x, green: y", 2));
        }
        site.want_set(&[("blue", "x"), ("green", "z"), ("red", "r")]);
        site.go_with(&stale, &set);
        assert_eq!((site.pages_reflected(), site.all().len()), ("blue: x, green: z, red: r", 3));
    }
}

#[test]
fn a_stale_cache_causes_no_second_child_with_another_name() {
    let mut site = Site::wanting_set(&[("blue", "x")]);
    let stale = site.with_stale_cache();
    site.given_page("old-name", "blue");
    site.go_with(&stale, &set());
    assert_eq!((site.names(), site.pages_reflected()), (vec!["old-name".to_owned()], "blue: x"));
}

#[test]
fn does_not_overwrite_a_sibling_with_the_name() {
    let mut site = Site::wanting_set(&[("blue", "x")]);
    let stale = site.with_stale_cache();
    let green = site.given_page("web-blue", "green");
    site.go_with(&stale, &set());
    assert_eq!(site.pages_reflected(), "blue: Page default/web-blue already exists");
    assert_eq!(site.all(), [green]);
}

#[test]
fn tracked_children_have_no_owner_reference_and_any_namespace() {
    let mut site = Site::wanting_set(&[("blue", "x"), ("green", "y")]);
    let away = |cx: &SubContext<'_>, thing: &mut Thing, known: &[Page]| {
        let DesiredChild::This(pages) = desired(cx, thing, known)? else { unreachable!() };
        Ok(DesiredChild::This(pages.into_iter().map(|page| page.in_namespace("pages")).collect()))
    };
    let set = Set::new(away, id, reflect, manager()).tracked(|_| Query::all().namespace("pages"), |_, _| true);
    site.go(&set);
    assert!(site.all().iter().all(|page| page.metadata.owner_references.is_empty() && site.tracks(page)));
    assert_eq!(site.pages_reflected(), "blue: x, green: y");
    site.delete_web(FINALIZER);
    site.go(&set);
    assert_eq!(site.all(), []);
}

#[test]
fn tracks_tracked_children_that_it_leaves_as_they_are() {
    let mut site = Site::new();
    let page = site.given_page("a", "a");
    let set = Set::new(|_, _, _| Ok(DesiredChild::AsItIs), id, reflect, manager());
    site.go(&set.tracked(|_| Query::all().namespace("default"), |_, _| true));
    assert!(site.tracks(&page));
}

#[test]
fn one_failed_deletion_does_not_stop_the_others() {
    let mut site = Site::new();
    for name in ["a", "b", "c"] {
        site.given_page(name, "");
    }
    site.client.before(|verb, object| (verb == "delete" && object.key().name() == "a").then(|| out_of_luck(object)));
    assert_eq!(Chain(&*site.step(&set()).unwrap_err()).to_string(), "Page default/a: the call failed: out of luck");
    assert_eq!(
        (site.names(), site.pages_reflected()),
        (vec!["a".to_owned()], ": Page default/a: the call failed: out of luck")
    );
}
