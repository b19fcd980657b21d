//! The result of each factory method. No method changes its factory.

use homeostat_objects::{Condition, ConditionStatus, DynamicObject, Kind, Object, ObjectMeta, ValueRef};
use homeostat_testing::{Factory, Sample};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::support::app;

type Extend = fn(&Factory) -> Factory;

/// Calls each method once, and checks a JSON path of the result.
const METHODS: [(Extend, &str, &str); 29] = [
    (|f| f.namespace("other"), "/metadata/namespace", "\"other\""),
    (|f| f.name("web"), "/metadata/name", "\"web\""),
    (|f| f.generate_name("web-"), "/metadata/generateName", "\"web-\""),
    (|f| f.add_label("app", "web"), "/metadata/labels/app", "\"web\""),
    (|f| f.add_annotation("note", "x"), "/metadata/annotations/note", "\"x\""),
    (|f| f.finalizer("example.com/a"), "/metadata/finalizers", "[\"example.com/a\"]"),
    (|f| f.controlled_by(&app("o")), "/metadata/ownerReferences/0/controller", "true"),
    (|f| f.owned_by(&app("o")), "/metadata/ownerReferences/0/uid", "\"App.example.com:default/o\""),
    (|f| f.created(90), "/metadata/creationTimestamp", "\"1970-01-01T00:01:30Z\""),
    (|f| f.deleted(91), "/metadata/deletionTimestamp", "\"1970-01-01T00:01:31Z\""),
    (|f| f.generation(7), "/metadata/generation", "7"),
    (|f| f.uid("u"), "/metadata/uid", "\"u\""),
    (|f| f.resource_version("12"), "/metadata/resourceVersion", "\"12\""),
    (|f| f.change(|object| object.set_kind(&Kind::of("v2", "App"))), "/apiVersion", "\"v2\""),
    (|f| f.meta(|meta| meta.name = "z".into()), "/metadata/name", "\"z\""),
    (|f| f.field("/a/b", 1).field("/a/l/-", 2).field("/a/l/0", 3), "/a", r#"{"b": 1, "l": [3]}"#),
    (|f| f.field("/a~1b/~0c", 1), "/a~1b/~0c", "1"),
    (|f| f.field("/x", 1).field("/l", json!([1, 2])).without("/x").without("/l/0"), "/l", "[2]"),
    (|f| f.spec(|spec| spec["size"] = 3.into()), "/spec/size", "3"),
    (|f| f.status(|status| status["ready"] = true.into()), "/status/ready", "true"),
    (|f| f.condition(&ready(ConditionStatus::True)), "/status/conditions/0/status", "\"True\""),
    (|f| f.data("sky", "blue"), "/data/sky", "\"blue\""),
    (|f| f.replicas(3), "/spec/replicas", "3"),
    (|f| f.selector_label("app", "web"), "/spec/selector/matchLabels/app", "\"web\""),
    (|f| f.selector_label("app", "web"), "/spec/template/metadata/labels/app", "\"web\""),
    (|f| f.pod_spec(|pod| pod["hostNetwork"] = true.into()), "/spec/template/spec/hostNetwork", "true"),
    (
        |f| f.container_named("a", |container| container["tty"] = true.into()),
        "/spec/template/spec/containers",
        r#"[{"name": "a", "tty": true}]"#,
    ),
    (|f| f.image("a", "x:1"), "/spec/template/spec/containers", r#"[{"name": "a", "image": "x:1"}]"#),
    (
        |f| f.image("a", "x:1").image("b", "y:1").image("a", "x:2"),
        "/spec/template/spec/containers",
        r#"[{"name": "a", "image": "x:2"}, {"name": "b", "image": "y:1"}]"#,
    ),
];

fn ready(status: ConditionStatus) -> Condition {
    Condition::new("Ready", status, "Because")
}

fn json_of(factory: &Factory) -> Value {
    factory.build().to_json().unwrap()
}

#[test]
fn each_method_sets_its_field() {
    for (method, pointer, expected) in METHODS {
        let json = json_of(&method(&app("shop")));
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer} of {json}");
    }
}

proptest! {
    /// A factory keeps its object when other factories are made from it.
    #[test]
    fn extending_one_changes_no_other(steps in prop::collection::vec((any::<prop::sample::Index>(), 0..METHODS.len()), 0..25)) {
        let mut made = vec![app("shop")];
        let mut were = vec![json_of(&made[0])];
        for (from, method) in steps {
            let next = METHODS[method].0(from.get(&made));
            were.push(json_of(&next));
            made.push(next);
            prop_assert_eq!(&made.iter().map(json_of).collect::<Vec<_>>(), &were);
        }
    }
}

#[test]
fn predefined_factories_have_their_kinds() {
    let made = [
        (Factory::config_map("a", "b"), Kind::of("v1", "ConfigMap")),
        (Factory::deployment("a", "b"), Kind::of("apps/v1", "Deployment")),
        (Factory::pod("a", "b"), Kind::of("v1", "Pod")),
        (Factory::secret("a", "b"), Kind::of("v1", "Secret")),
        (Factory::service("a", "b"), Kind::of("v1", "Service")),
        (Factory::service_account("a", "b"), Kind::of("v1", "ServiceAccount")),
    ];
    for (factory, kind) in made {
        assert_eq!(factory.sample().kind(), kind);
        assert_eq!(factory.sample().key().to_string(), "a/b");
    }
    let pod = Factory::pod("a", "b").image("main", "x:1").build();
    assert_eq!(
        pod.pointer("/spec").map(ValueRef::to_value),
        Some(json!({"containers": [{"name": "main", "image": "x:1"}]}))
    );
    let service = Factory::service("a", "b").selector_label("app", "web").build();
    assert_eq!(service.pointer("/spec").map(ValueRef::to_value), Some(json!({"selector": {"app": "web"}})));
}

#[test]
fn created_objects_are_complete_and_reproducible() {
    let meta = |factory: Factory| factory.build().meta().into_owned();
    let shop = meta(app("shop").created(1));
    assert_eq!(shop, meta(app("shop").created(1)));
    assert_eq!((&*shop.resource_version, shop.generation), ("999", 1));
    assert_eq!(
        meta(app("shop").created(1).created(2)).creation_timestamp,
        meta(app("shop").created(2)).creation_timestamp
    );
    let report = meta(app("shop").uid("u").resource_version("5").generation(3).created(1));
    assert_eq!((&*report.uid, &*report.resource_version, report.generation), ("u", "5", 3));
    let uids = [
        app("shop"),
        app("bank"),
        app("shop").namespace("other"),
        app("").generate_name("shop-"),
        Factory::config_map("default", "shop"),
        Factory::dynamic(&Kind::namespaced("example.org", "v1", "App"), "default", "shop"),
    ]
    .map(|factory| meta(factory.created(1)).uid);
    let different: std::collections::BTreeSet<_> = uids.iter().collect();
    assert_eq!(different.len(), uids.len(), "{uids:?}");
}

#[test]
fn an_owner_reference_has_the_uid_of_the_given_owner() {
    let owned =
        |owner: Factory| Factory::pod("default", "p").controlled_by(&owner).build().meta().owner_references.clone();
    let expected = app("shop").created(9).build().controller_reference();
    for owner in [app("shop"), app("shop").created(3)] {
        assert_eq!(owned(owner), std::slice::from_ref(&expected));
    }
    let twice = Factory::pod("default", "p").controlled_by(&app("a")).owned_by(&app("a")).owned_by(&app("b")).build();
    assert_eq!(twice.meta().owner_references.len(), 2);
    assert_eq!(twice.meta().controller(), None);
}

#[test]
fn a_condition_replaces_another_of_its_type() {
    let status = |factory: Factory| factory.build().fields()["status"].clone();
    let one = app("shop")
        .condition(&Condition::new("Synced", ConditionStatus::True, ""))
        .condition(&ready(ConditionStatus::False));
    let conditions = status(one.condition(&ready(ConditionStatus::True)))["conditions"].as_array().unwrap().clone();
    assert_eq!(conditions.iter().map(|condition| &condition["status"]).collect::<Vec<_>>(), ["True", "True"]);
    assert_eq!(status(one)["conditions"][1]["status"], "False");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Vm {
    metadata: ObjectMeta,
    spec: VmSpec,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct VmSpec {
    cores: u32,
    #[serde(default)]
    note: Option<String>,
}

homeostat_objects::object!(Vm, namespaced, "example.com", "v1");

fn vm() -> Factory<Vm> {
    Factory::of(Vm { metadata: ObjectMeta::new("default", "vm-1"), spec: VmSpec { cores: 2, note: None } })
}

#[test]
fn objects_of_a_type_have_factories() {
    assert_eq!(vm().build(), vm().sample());
    assert_eq!(vm().change(|vm| vm.spec.cores = 4).build().spec.cores, 4);
    assert_eq!(vm().field("/spec/cores", 4).build().spec.cores, 4);
    assert_eq!(vm().field("/spec/note", "x").without("/spec/note").build(), vm().build());
    assert_eq!(vm().spec(|spec| spec["cores"] = 8.into()).add_label("a", "b").build().metadata.labels.len(), 1);
    assert_eq!(vm().created(1).build().metadata.uid, "Vm.example.com:default/vm-1");
}

/// The panic is immediate, and names the object and the field.
#[test]
fn invalid_changes_panic() {
    #[track_caller]
    fn panics(make: impl FnOnce() -> DynamicObject, expected: &str) {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(expected), "{text}");
    }
    let shop = || app("shop").field("/list", json!([1]));
    panics(|| shop().field("spec", 1).build(), "App default/shop, as spec is set: a JSON pointer begins with a slash");
    panics(|| shop().field("/kind/x", 1).build(), "App default/shop, as /kind/x is set: there is no x in a value");
    panics(|| shop().field("/list/2", 1).build(), "as /list/2 is set: the list has no place 2");
    panics(|| shop().field("/list/x", 1).build(), "as /list/x is set: the list has no place x");
    panics(|| shop().without("/spec/x").build(), "App default/shop, as /spec/x is removed: nothing is there");
    panics(|| shop().without("/list/1").build(), "as /list/1 is removed: nothing is there");
    panics(|| shop().deleted(i64::MAX).build(), "is no second of a date");
    let typed = |make: fn() -> Factory<Vm>, expected| {
        panics(|| DynamicObject::from_shared(&make().build().to_json().unwrap().into()).unwrap(), expected);
    };
    typed(|| vm().field("/spec/cores", "two"), "Vm default/vm-1, as /spec/cores is set");
    typed(|| vm().without("/spec/cores"), "missing field `cores`");
    typed(|| vm().field("/spec/coers", 2), "Vm default/vm-1, as /spec/coers is set: its type has no such field");
    typed(|| vm().status(|()| {}), "a Vm.example.com/v1 has no status");
}
