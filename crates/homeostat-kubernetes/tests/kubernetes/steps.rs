//! Reconcilers made of steps, with children and a finalizer in a real cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat::{Controller, Manager};
use homeostat_objects::sub::{
    ChildReconciler, ChildResult, ChildSetReconciler, Config, DesiredChild, Flow, ResourceReconciler, Sequence,
    SubContext, UpdatingObjectManager,
};
use homeostat_objects::{Api, ClientError, DeleteOptions, Ignore, Object, ObjectKey, ObjectMeta, Query};
use serde::{Deserialize, Serialize};

use crate::cluster;
use crate::kinds;
use crate::until::within;

/// The finalizers of the three steps that hold the thing.
const FINALIZERS: [&str; 3] = ["steps.example.com/thing", "steps.example.com/front", "steps.example.com/parts"];
const PATIENCE: Duration = Duration::from_secs(120);

/// A thing with a front page and a page for each part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Thing {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: BTreeMap<String, String>,
    #[serde(default)]
    status: ThingStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ThingStatus {
    observed_generation: i64,
    front: String,
    parts: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Page {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

homeostat_objects::object!(Thing, namespaced, "steps.example.com", "v1", status: ThingStatus);
homeostat_objects::object!(Page, namespaced, "steps.example.com", "v1");

fn is(page: &Page, what: &str) -> bool {
    page.metadata.labels.get("is").is_some_and(|is| is == what)
}

fn page(what: &str, name: &str, data: BTreeMap<String, String>) -> Page {
    let mut page = Page { metadata: ObjectMeta::new("default", name), data };
    page.metadata.labels.insert("is".to_owned(), what.to_owned());
    page
}

fn writer(finalizer: &str) -> UpdatingObjectManager<Page> {
    let merge = |current: &mut Page, desired: &Page| {
        current.metadata.labels.clone_from(&desired.metadata.labels);
        current.data.clone_from(&desired.data);
    };
    UpdatingObjectManager::new(merge).finalizer(finalizer)
}

fn front() -> ChildReconciler<Thing, Page> {
    let desired = |_: &SubContext<'_>, thing: &mut Thing| {
        Ok(DesiredChild::This(page("front", &format!("{}-front", thing.metadata.name), thing.spec.clone())))
    };
    let reflect = |_: &SubContext<'_>, thing: &mut Thing, page: Result<Option<&Page>, &ClientError>| {
        thing.status.front = page.map_or_else(ToString::to_string, |page| format!("{:?}", page.map(|page| &page.data)));
        Ok(Flow::proceed())
    };
    ChildReconciler::new(desired, reflect, writer(FINALIZERS[1])).ours(|_, page| is(page, "front")).named("front")
}

fn parts() -> ChildSetReconciler<Thing, Page> {
    let desired = |_: &SubContext<'_>, thing: &mut Thing, _: &[Page]| {
        let part = |(part, text): (&String, &String)| {
            let mut page = page("part", "", BTreeMap::from([("text".to_owned(), text.clone())]));
            page.metadata.generate_name = format!("{}-", thing.metadata.name);
            page.metadata.labels.insert("part".to_owned(), part.clone());
            page
        };
        Ok(DesiredChild::This(thing.spec.iter().map(part).collect()))
    };
    let identify = |page: &Page| page.metadata.labels.get("part").cloned().unwrap_or_default();
    let reflect = |_: &SubContext<'_>, thing: &mut Thing, pages: &[ChildResult<Page>]| {
        thing.status.parts = pages.iter().filter(|page| matches!(page.child, Ok(Some(_)))).count();
        Ok(Flow::proceed())
    };
    ChildSetReconciler::new(desired, identify, reflect, writer(FINALIZERS[2])).ours(|_, page| is(page, "part"))
}

#[test]
fn steps_keep_children_in_a_cluster_in_step_until_their_parent_is_deleted() {
    let client = cluster::client(&cluster::shared());
    for kind in [Thing::KIND, Page::KIND] {
        kinds::define(&client, &kinds::definition(&kind));
    }
    let client = Arc::new(client);
    let (things, pages) = (Api::<Thing>::new(client.clone()), Api::<Page>::new(client.clone()));
    let steps = Sequence::new().then(front()).then(parts());
    let reconciler = ResourceReconciler::<Thing>::new("thing", Config::new(client), steps)
        .finalizer(FINALIZERS[0])
        .observed_generation(|status, generation| status.observed_generation = generation);
    let manager = Manager::builder().build().unwrap();
    let sources = reconciler.setup(&manager).unwrap();
    manager.add(Controller::builder("thing", reconciler).sources(sources).build().unwrap()).unwrap();
    let running = manager.start().unwrap();

    let key = ObjectKey::new("default", "web");
    let spec = |parts: &[(&str, &str)]| {
        parts.iter().map(|(part, text)| ((*part).to_owned(), (*text).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let settles = |expected: &BTreeMap<String, String>| {
        within(PATIENCE, &format!("the pages of {expected:?}"), || {
            let thing = things.get(&key).unwrap();
            let own = pages.list(&Query::all()).unwrap().items.into_iter();
            let own: Vec<_> = own.filter(|page| page.metadata.is_controlled_by(&thing.metadata.uid)).collect();
            let fronts: Vec<_> = own.iter().filter(|page| is(page, "front")).map(|page| page.data.clone()).collect();
            let parts: BTreeMap<_, _> = own
                .iter()
                .filter(|page| is(page, "part"))
                .map(|page| (page.metadata.labels["part"].clone(), page.data["text"].clone()))
                .collect();
            let reflected = (format!("{:?}", Some(expected)), expected.len(), thing.metadata.generation);
            let ThingStatus { front, parts: count, observed_generation } = thing.status;
            (fronts == [expected.clone()]
                && own.len() == expected.len() + 1
                && parts == *expected
                && (front, count, observed_generation) == reflected)
                .then_some(())
        });
    };
    let first = spec(&[("x", "1"), ("y", "2")]);
    let thing =
        Thing { metadata: ObjectMeta::new("default", "web"), spec: first.clone(), status: ThingStatus::default() };
    things.create(&thing).unwrap();
    settles(&first);
    let second = spec(&[("y", "3"), ("z", "4")]);
    within(PATIENCE, "the change is written", || {
        let mut thing = things.get(&key).unwrap();
        thing.spec.clone_from(&second);
        match things.update(&thing) {
            Err(error) if error.is_conflict() => None,
            written => Some(written.unwrap()),
        }
    });
    settles(&second);
    for page in pages.list(&Query::all()).unwrap().items {
        pages.delete(&page.key(), &DeleteOptions::default()).unwrap();
    }
    settles(&second);

    let deletion = things.delete(&key, &DeleteOptions::default()).unwrap();
    let held = &deletion.object().unwrap().metadata;
    assert!(FINALIZERS.iter().all(|finalizer| held.has_finalizer(finalizer)), "{:?}", held.finalizers);
    within(PATIENCE, "the thing is gone", || things.get(&key).ignore_not_found().unwrap().is_none().then_some(()));
    assert!(
        pages.list(&Query::all()).unwrap().items.is_empty(),
        "the finalizers hold the thing until its pages are gone"
    );
    manager.stop();
    running.join().unwrap();
    for kind in [Thing::KIND, Page::KIND] {
        let name = format!("{}.{}", kind.plural(), kind.group());
        things.client().delete(&kinds::DEFINITION, &ObjectKey::cluster(&name), &DeleteOptions::default()).unwrap();
    }
}
