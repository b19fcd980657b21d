//! Bad input: the error names the object and the field, and the table shows it.

use homeostat_objects::sub::{
    CastResource, ChildReconciler, DesiredChild, ErrorClass, Flow, StashKey, SubContext, SubReconciler, SubResult,
    UpdatingObjectManager, While,
};
use homeostat_objects::{ClientError, DynamicObject, EventType, Kind, Object, ObjectMeta};
use homeostat_testing::{Factory, SubReconcilerTable};
use serde::{Deserialize, Serialize};

use super::support::{Case, app};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const IMAGE: StashKey<String> = StashKey::new("image");

fn map() -> Factory {
    Factory::config_map("default", "shop").controlled_by(&app("shop")).data("sky", "blue")
}

/// Returns a sub-reconciler that creates a config map in `namespace`, with the name of the app.
fn child(namespace: &'static str) -> ChildReconciler<DynamicObject, DynamicObject> {
    ChildReconciler::of_kind(
        CONFIG_MAP,
        move |_: &SubContext<'_>, app: &mut DynamicObject| {
            let map = DynamicObject::new(&CONFIG_MAP, namespace, &app.meta().name);
            Ok(DesiredChild::This(map.with("data", serde_json::json!({"sky": "blue"}))))
        },
        |_, _, _: Result<Option<&DynamicObject>, &ClientError>| Ok(Flow::proceed()),
        UpdatingObjectManager::of_kind(CONFIG_MAP, |current: &mut DynamicObject, desired: &DynamicObject| {
            current.fields_mut().clone_from(&desired.fields());
        }),
    )
}

/// Fails unless the sub-reconciler returns an error with this class and text.
#[track_caller]
fn fails<S: SubReconciler<DynamicObject>>(case: Case, class: ErrorClass, text: &str, step: impl Fn() -> S) {
    SubReconcilerTable::new([case.expect_error(text).expect_error_class(class)]).run(|_| step());
}

#[test]
fn a_child_of_another_namespace() {
    let text = "ConfigMap other/shop is invalid: metadata.namespace is \"other\", but must be the namespace of its owner, App default/shop";
    fails(Case::new("another namespace", &app("shop")), ErrorClass::Durable, text, || child("other"));
}

#[test]
fn two_children_where_one_is_desired() {
    let (kept, extra) = (map().created(2), map().name("shop-2").created(1));
    let case = Case::new("two of them", &app("shop")).given(&kept).given(&extra).expect_delete(&extra).expect_event(
        &app("shop"),
        EventType::Normal,
        "Deleted",
        "Deleted ConfigMap \"shop-2\"",
    );
    let text = "ConfigMap default/shop-2 is invalid: metadata.name is \"shop-2\", but must be \"shop\"";
    fails(case, ErrorClass::Transient, text, || child("default"));
}

#[test]
fn a_cast_that_does_not_fit() {
    #[derive(Serialize, Deserialize)]
    struct Replicated {
        metadata: ObjectMeta,
        spec: Replicas,
    }
    #[derive(Serialize, Deserialize)]
    struct Replicas {
        replicas: u32,
    }
    let case = Case::new("many", &app("shop").field("/spec/replicas", "many"));
    let never = |_: &SubContext<'_>, _: &mut Replicated| -> SubResult { unreachable!() };
    let text = "App default/shop is invalid: /spec/replicas is \"many\"";
    fails(case, ErrorClass::Durable, text, || CastResource::<DynamicObject, Replicated>::new(never));
}

#[test]
fn a_loop_without_end() {
    let on = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::proceed()) };
    let text = "App default/shop: a loop has not ended after 3 passes";
    fails(Case::new("for ever", &app("shop")), ErrorClass::Transient, text, || While::new(|_, _| true, on).at_most(3));
}

#[test]
fn an_unknown_stash_key() {
    let takes = |cx: &SubContext<'_>, _: &mut DynamicObject| -> SubResult {
        cx.stashed(IMAGE)?;
        Ok(Flow::proceed())
    };
    let text = "App default/shop: nothing is stashed as \"image\"";
    fails(Case::new("nothing there", &app("shop")), ErrorClass::Transient, text, || takes);
}
