//! Controllers with sub-reconcilers: tracks, children and their indexes.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat::{Controller, Manager};
use homeostat_objects::sub::{
    ChildReconciler, Config, DesiredChild, Flow, ResourceReconciler, Sequence, Setup, SubContext, SubResult,
    SyncReconciler, UpdatingObjectManager,
};
use homeostat_objects::{
    Api, DynamicObject, Ignore, Kind, MemoryClient, Object, ObjectKey, Query, ValueRef, set_controller,
};
use homeostat_testing::{Factory, SimulatedTurn, Simulation};
use serde_json::json;

use super::{MINUTE, Notes};

const APP: Kind = Kind::namespaced("example.com", "v1", "App");
const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");

/// Runs five apps that track one config map. Each app has a child with a copy of the data.
fn apps(seed: u64) -> (Vec<String>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let (notes, client) = (Notes::new(&sim), Arc::new(MemoryClient::builder().clock(sim.clock()).build()));
    let [apps, maps] = [APP, CONFIG_MAP].map(|kind| Api::<DynamicObject>::of_kind(client.clone(), kind));
    let config = Config::new(client).with_clock(sim.clock());
    let (own, notice) = (maps.clone(), notes.clone());
    let look = move |cx: &SubContext<'_>, app: &mut DynamicObject| -> SubResult {
        let colours = cx.track_and_get(&own, &ObjectKey::new("default", "colours")).ignore_not_found()?;
        let sky = colours.and_then(|map| map.pointer("/data/sky").map(ValueRef::to_value));
        notice.add(format!("{} {sky:?}", app.meta().name));
        app.fields_mut().insert("status".to_owned(), json!({"sky": sky}));
        Ok(Flow::proceed())
    };
    let tracked = maps.clone();
    let look = SyncReconciler::new(look).setup(move |setup: &mut Setup<'_>| Ok(setup.tracked(&tracked)?));
    let desired = |_: &SubContext<'_>, app: &mut DynamicObject| {
        let name = format!("{}-sky", app.meta().name);
        let mut map = DynamicObject::new(&CONFIG_MAP, "default", name).with("data", app.fields()["status"].clone());
        set_controller(app, &mut map)?;
        Ok(DesiredChild::This(map))
    };
    let merge =
        |current: &mut DynamicObject, desired: &DynamicObject| current.fields_mut().clone_from(&desired.fields());
    let manager = UpdatingObjectManager::of_kind(CONFIG_MAP, merge);
    let child = ChildReconciler::of_kind(CONFIG_MAP, desired, |_, _, _| Ok(Flow::proceed()), manager).indexed();
    let steps = ResourceReconciler::of_kind("app", APP, config, Sequence::new().then(look).then(child));
    let manager = Manager::builder().clock(sim.clock()).build().unwrap();
    let sources = steps.setup(&manager).unwrap();
    manager.add(Controller::builder("app", steps).sources(sources).clock(sim.clock()).build().unwrap()).unwrap();
    let running = manager.start().unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        apps.create(&Factory::dynamic(&APP, "default", name).build()).unwrap();
    }
    sim.run_for(MINUTE);
    maps.create(&Factory::config_map("default", "colours").data("sky", "blue").build()).unwrap();
    sim.run_for(MINUTE);
    assert_eq!(maps.list(&Query::all()).unwrap().items.len(), 6);
    for app in apps.list(&Query::all()).unwrap().items {
        assert_eq!(app.pointer("/status/sky").map(ValueRef::to_value), Some(json!("blue")), "{}", app.key());
    }
    manager.stop();
    running.join().unwrap();
    (notes.whats(), sim.trace())
}

#[test]
fn steps_do_the_same_for_the_same_seed() {
    for seed in 0..10 {
        assert_eq!(apps(seed), apps(seed), "seed {seed}");
    }
    let orders: BTreeSet<_> = (0..10).map(|seed| apps(seed).0).collect();
    assert!(orders.len() >= 5, "{}", orders.len());
}
