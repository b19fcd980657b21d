//! Tables for a sub-reconciler with a child. The cases and their names come from reconcilerio/runtime,
//! `reconcilers/child_test.go` (`TestChildReconciler`).

use homeostat_objects::sub::{ChildReconciler, DesiredChild, ErrorClass, Flow, SubContext, UpdatingObjectManager};
use homeostat_objects::{ClientError, DynamicObject, EventType, Kind, Object, ValueRef, Verb};
use homeostat_testing::{CaseContext, Factory, Reactor, SubReconcilerTable};
use serde_json::{Value, json};

use super::support::{Case, app};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");

/// Returns a sub-reconciler that copies `spec.data` of an app into a config map, and writes the map's name into
/// `status.map`.
fn mapped(_: &CaseContext<'_>) -> ChildReconciler<DynamicObject, DynamicObject> {
    ChildReconciler::of_kind(
        CONFIG_MAP,
        |_: &SubContext<'_>, app: &mut DynamicObject| {
            let Some(data) = app.pointer("/spec/data").map(ValueRef::to_value) else {
                return Ok(DesiredChild::Nothing);
            };
            let mut map = DynamicObject::new(&CONFIG_MAP, &app.meta().namespace, "").with("data", data);
            map.meta_mut().generate_name = format!("{}-", app.meta().name);
            Ok(DesiredChild::This(map))
        },
        |_, app, map: Result<Option<&DynamicObject>, &ClientError>| {
            let name = match map {
                Ok(map) => map.map_or(Value::Null, |map| map.meta().name.clone().into()),
                Err(error) => error.to_string().into(),
            };
            app.fields_mut().insert("status".to_owned(), json!({"map": name}));
            Ok(Flow::proceed())
        },
        UpdatingObjectManager::of_kind(CONFIG_MAP, |current: &mut DynamicObject, desired: &DynamicObject| {
            current.fields_mut().insert("data".to_owned(), desired.fields()["data"].clone());
            current.meta_mut().labels.extend(desired.meta().labels.clone());
        }),
    )
}

/// Returns an app with this colour in its data.
fn wants(sky: &str) -> Factory {
    app("shop").field("/spec/data/sky", sky)
}

fn map(sky: &str) -> Factory {
    Factory::config_map("default", "").generate_name("shop-").controlled_by(&app("shop")).data("sky", sky)
}

fn given(sky: &str) -> Factory {
    map(sky).name("shop-001").created(1)
}

fn of(name: &str, app: &Factory) -> Case {
    Case::new(name, app)
}

fn reflects(app: &Factory, map: impl Into<Value>) -> Factory {
    app.field("/status/map", map)
}

#[test]
fn a_step_with_a_child() {
    let (blue, none) = (wants("blue"), app("shop"));
    let normal = |case: Case, what: &str| {
        case.expect_event(&none, EventType::Normal, what, &format!("{what} ConfigMap \"shop-001\""))
    };
    let failed = |case: Case, what: &str, message: &str| {
        case.expect_event(&none, EventType::Warning, what, message)
            .expect_error("a reactor fails this call")
            .expect_error_class(ErrorClass::Transient)
    };
    SubReconcilerTable::new([
        of("preserve no child", &none).expect_resource(&reflects(&none, Value::Null)),
        of("child is in sync", &blue).given(&given("blue")).expect_resource(&reflects(&blue, "shop-001")),
        normal(of("create child", &blue), "Created")
            .expect_create(&map("blue"))
            .expect_resource(&reflects(&blue, "shop-001")),
        normal(of("update child", &blue), "Updated")
            .given(&given("red"))
            .expect_update(&given("blue"))
            .expect_resource(&reflects(&blue, "shop-001")),
        normal(of("delete child", &none), "Deleted")
            .given(&given("blue"))
            .expect_delete(&given("blue"))
            .expect_resource(&reflects(&none, Value::Null)),
        of("ignore extraneous children", &none)
            .given(&given("blue").meta(|meta| meta.owner_references.clear()))
            .expect_resource(&reflects(&none, Value::Null)),
        failed(
            of("error creating child", &blue),
            "CreationFailed",
            "Failed to create ConfigMap \"shop-\": ConfigMap default/shop-*: the call failed: a reactor fails this call",
        )
        .reactor(Reactor::fail(Verb::Create).kind(&CONFIG_MAP))
        .expect_create(&map("blue")),
        failed(
            of("error updating child", &blue),
            "UpdateFailed",
            "Failed to update ConfigMap \"shop-001\": ConfigMap default/shop-001: the call failed: a reactor fails this call",
        )
        .given(&given("red"))
        .reactor(Reactor::fail(Verb::Update).name("shop-001"))
        .expect_update(&given("blue")),
        of("error listing children", &blue)
            .reactor(Reactor::fail(Verb::List).kind(&CONFIG_MAP))
            .expect_error("a reactor fails this call"),
        // The cache does not have the config map yet.
        of("child is known to the API alone", &blue)
            .given_uncached(&given("blue"))
            .expect_resource(&reflects(&blue, "shop-001")),
        // The sub-reconciler remembers the changes of a webhook.
        normal(of("mutated by a webhook", &blue), "Updated")
            .given(&given("red"))
            .reactor(Reactor::change(Verb::Update, |map| map["data"]["sky"] = "deep blue".into()))
            .expect_update(&given("blue"))
            .expect_resource(&reflects(&blue, "shop-001"))
            .then(of("is not fought", &blue).expect_resource(&reflects(&blue, "shop-001"))),
    ])
    .run(mapped);
}
