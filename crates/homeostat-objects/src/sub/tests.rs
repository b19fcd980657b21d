//! No step writes after the term of its run has ended.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

use std::sync::Arc;

use serde_json::json;

use super::{
    ChildReconciler, ChildSetReconciler, Config, DesiredChild, Failures, Flow, Request, ResourceReconciler, SubContext,
    SubReconciler, SubResult, UpdatingObjectManager, WithFinalizer,
};
use crate::{Api, DeleteOptions, DynamicObject, Kind, MemoryClient, Object, Query};
use homeostat::Reconciler;
use homeostat::run::{Cancelled, Context, Fence};

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");

/// The site `a`, and a term that tests can end.
struct World {
    client: Arc<MemoryClient>,
    fence: Fence,
    site: DynamicObject,
}

impl World {
    fn new() -> Self {
        let client = Arc::new(MemoryClient::new());
        let site = Api::of_kind(client.clone(), SITE).create(&DynamicObject::new(&SITE, "default", "a")).unwrap();
        Self { client, fence: Fence::unlimited(1), site }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::of_kind(self.client.clone(), kind)
    }

    fn cx(&self) -> Context {
        Context::detached().in_term(Some(self.fence.clone()))
    }

    /// A hook that ends the term.
    fn end(&self) -> impl Fn() + Send + Sync + 'static {
        let fence = self.fence.clone();
        move || fence.ended().cancel()
    }

    fn run(&mut self, step: &impl SubReconciler<DynamicObject>) -> SubResult {
        let (cx, request) = (self.cx(), Request::new(&self.site, Config::new(self.client.clone())));
        step.reconcile(&SubContext::new("test", &cx, &request), &mut self.site)
    }

    /// Runs a step, which must fail because the term has ended.
    #[track_caller]
    fn is_refused(&mut self, step: &impl SubReconciler<DynamicObject>) {
        let error = self.run(step).unwrap_err();
        assert_eq!(Failures::find::<Cancelled>(&*error), Some(&Cancelled::TermEnded), "{error}");
    }

    fn pages(&self) -> Vec<String> {
        let pages = self.api(PAGE).list(&Query::all()).unwrap().items;
        pages.iter().map(|page| page.name().to_owned()).collect()
    }
}

fn page(name: &str) -> DynamicObject {
    DynamicObject::new(&PAGE, "default", name)
}

fn manager() -> UpdatingObjectManager<DynamicObject> {
    UpdatingObjectManager::of_kind(PAGE, |current: &mut DynamicObject, desired| {
        *current.fields_mut() = desired.fields().into_owned();
    })
}

#[test]
fn the_status_is_not_written() {
    let world = World::new();
    let end = world.end();
    let step = move |_cx: &SubContext<'_>, site: &mut DynamicObject| -> SubResult {
        site.fields_mut().insert("status".to_owned(), json!({"ready": true}));
        end();
        Ok(Flow::proceed())
    };
    let config = Config::new(world.client.clone());
    let reconciler = ResourceReconciler::<DynamicObject>::of_kind("site", SITE, config, step);
    let error = reconciler.reconcile(&world.cx(), &world.site.key()).unwrap_err();
    assert_eq!(Failures::find::<Cancelled>(&*error), Some(&Cancelled::TermEnded), "{error}");
    assert!(world.api(SITE).get(&world.site.key()).unwrap().status().is_none());
}

#[test]
fn a_child_is_neither_created_nor_updated_nor_deleted() {
    let desired: [fn() -> DesiredChild<DynamicObject>; 2] =
        [|| DesiredChild::This(page("a").with("text", json!("new"))), || DesiredChild::Nothing];
    for desired in desired {
        for exists in [true, false] {
            let mut world = World::new();
            if exists {
                let mut old = page("a");
                old.meta_mut().owner_references.push(world.site.controller_reference());
                world.api(PAGE).create(&old).unwrap();
            }
            let end = world.end();
            let wanted = move |_: &SubContext<'_>, _: &mut DynamicObject| {
                end();
                Ok(desired())
            };
            let step = ChildReconciler::of_kind(PAGE, wanted, |_, _, _| Ok(Flow::proceed()), manager());
            let result = world.run(&step);
            assert_eq!(result.is_ok(), desired() == DesiredChild::Nothing && !exists, "{result:?}");
            assert_eq!(world.pages().len(), usize::from(exists));
            assert!(world.api(PAGE).list(&Query::all()).unwrap().items.iter().all(|page| page.get("text").is_none()));
        }
    }
}

/// The term ends while the first child is written.
#[test]
fn no_further_children_are_written() {
    let mut world = World::new();
    let end = world.end();
    let desired = |_: &SubContext<'_>, _: &mut DynamicObject, _: &[DynamicObject]| {
        Ok(DesiredChild::This(["a", "b", "c"].map(page).to_vec()))
    };
    let ends = manager().harmonize(move |_, _| end());
    let identify = |page: &DynamicObject| page.name().to_owned();
    let set = ChildSetReconciler::of_kind(PAGE, desired, identify, |_, _, _| Ok(Flow::proceed()), ends);
    world.is_refused(&set);
    assert_eq!(world.pages(), ["a"]);
}

#[test]
fn no_finalizer_is_added_or_removed() {
    let mut world = World::new();
    let step = || WithFinalizer::new("example.com/x", |_: &SubContext<'_>, _: &mut DynamicObject| Ok(Flow::proceed()));
    assert_eq!(world.run(&step()).unwrap(), Flow::proceed());
    let (sites, key) = (world.api(SITE), world.site.key());
    world.site = sites.delete(&key, &DeleteOptions::default()).unwrap().into_object().unwrap();
    world.end()();
    world.is_refused(&step());
    assert_eq!(sites.get(&key).unwrap().meta().finalizers, ["example.com/x"]);

    let mut world = World::new();
    world.end()();
    world.is_refused(&step());
    assert!(world.api(SITE).get(&world.site.key()).unwrap().meta().finalizers.is_empty());
}
