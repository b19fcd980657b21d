//! Checks of a server: rules in CEL, values that an older definition allowed, and selectable fields.

use homeostat_kubernetes::CustomResourceDefinition;
use homeostat_objects::{
    Api, Client, Kind, KindDefinition, Object, ObjectKey, ObjectMeta, Patch, PatchTarget, Query, WatchEvent,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Place, causes, definition, names, shared};
use crate::kinds::DEFINITION;
use homeostat::CancellationToken;

/// Rules are checked since Kubernetes 1.25. Older servers drop them from the definition.
#[test]
fn a_broken_rule_is_one_cause_with_the_whole_message() {
    let rule = json!([{"rule": "self.min <= self.max", "message": "limits: min must not exceed max: 1"}]);
    let number = json!({"type": "integer"});
    let spec = json!({"type": "object", "required": ["min"], "properties": {"min": number, "max": number},
        "x-kubernetes-validations": rule});
    let place = Place::with(Kind::namespaced("rules.custom.example.com", "v1", "Range"), &spec);
    place.create("good", &json!({"min": 1, "max": 2})).unwrap();
    let broken = place.create("bad", &json!({"min": 3, "max": 2}));
    if place.minor < 25 {
        broken.unwrap();
    } else {
        assert_eq!(causes(&broken.unwrap_err()), ["spec: limits: min must not exceed max: 1"]);
    }
    // Current servers add a second cause without a field, which says nothing.
    let error = place.create("worse", &json!({"max": "text"})).unwrap_err();
    let mut found = causes(&error);
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("spec.max") && found[1].starts_with("spec.min"), "{found:?}");
    assert!(!error.to_string().contains("nil"), "{error}");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Gate {
    metadata: ObjectMeta,
    spec: GateSpec,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct GateSpec {
    /// The field has a rule, and its type another.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self.last < 100", "message": "at most 99"}]))]
    span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self.first <= self.last", "message": "in order"}]))]
struct Span {
    first: i32,
    last: i32,
}

homeostat_objects::object!(Gate, namespaced, "gates.custom.example.com", "v1");

fn gate(name: &str, first: i32, last: i32) -> Gate {
    Gate { metadata: ObjectMeta::new("default", name), spec: GateSpec { span: Span { first, last } } }
}

/// Servers before Kubernetes 1.25 refuse a definition with rules, if it is applied.
#[test]
fn the_rules_of_a_field_and_of_its_type_are_both_checked() {
    let place = Place::empty(Gate::KIND);
    let installed = place.install(&CustomResourceDefinition::new(&KindDefinition::described_by::<Gate>()).unwrap());
    if place.minor < 25 {
        let error = format!("{:?}", installed.unwrap_err());
        assert!(error.contains("x-kubernetes-validations"), "{error}");
        return;
    }
    installed.unwrap();
    let gates = Api::<Gate>::new(shared(&place.client));
    gates.create(&gate("good", 1, 2)).unwrap();
    for (name, first, last, message) in [("order", 2, 1, "in order"), ("most", 1, 100, "at most 99")] {
        let error = gates.create(&gate(name, first, last)).unwrap_err();
        assert_eq!(causes(&error), [format!("spec.span: {message}")]);
    }
}

/// A value that was valid once is not checked again while it stays, since Kubernetes 1.30.
#[test]
fn a_value_that_a_new_rule_forbids_stays_until_it_is_changed() {
    let kind = Kind::namespaced("ratchet.custom.example.com", "v1", "Dial");
    let spec = |most: u32| {
        let number = json!({"type": "integer", "maximum": most});
        json!({"type": "object", "properties": {"level": number, "name": {"type": "string"}}})
    };
    let place = Place::with(kind.clone(), &spec(100));
    place.create("a", &json!({"level": 90})).unwrap();
    let schema = definition(&kind, &spec(10))["spec"]["versions"][0]["schema"].clone();
    let patch = Patch::Json(json!([{"op": "replace", "path": "/spec/versions/0/schema", "value": schema}]));
    let name = ObjectKey::cluster("dials.ratchet.custom.example.com");
    place.client.patch(&DEFINITION, &name, &patch, PatchTarget::Object).unwrap();
    crate::until::within(super::PATIENCE, "the new rule holds", || {
        place.client.dry_run().create(&kind, place.object("probe", &json!({"level": 90}))).err()
    });
    let write = |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        place.client.patch(&kind, &ObjectKey::new("default", "a"), &patch, PatchTarget::Object)
    };
    let other = write(json!({"name": "front"}));
    if place.minor < 30 {
        assert!(causes(&other.unwrap_err())[0].starts_with("spec.level"));
    } else {
        assert_eq!(other.unwrap().pointer("/spec/level").unwrap(), json!(90));
    }
    assert!(causes(&write(json!({"level": 91})).unwrap_err())[0].starts_with("spec.level"));
    write(json!({"level": 9})).unwrap();
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Lamp {
    metadata: ObjectMeta,
    spec: LampSpec,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct LampSpec {
    colour: String,
}

homeostat_objects::object!(Lamp, namespaced, "lamps.custom.example.com", "v1");

fn lamp(name: &str, colour: &str) -> Lamp {
    Lamp { metadata: ObjectMeta::new("default", name), spec: LampSpec { colour: colour.to_owned() } }
}

/// Servers select by declared fields since Kubernetes 1.30. For others the client selects.
#[test]
fn objects_are_selected_by_a_declared_field() {
    let place = Place::empty(Lamp::KIND);
    let definition = KindDefinition::described_by::<Lamp>();
    let declared = CustomResourceDefinition::new(&definition.clone().selectable_field(".spec.colour")).unwrap();
    if place.minor < 30 {
        let error = format!("{:?}", place.install(&declared).unwrap_err());
        assert!(error.contains("selectableFields"), "{error}");
        place.install(&CustomResourceDefinition::new(&definition).unwrap()).unwrap();
    } else {
        place.install(&declared).unwrap();
    }
    let lamps = Api::<Lamp>::new(shared(&place.client));
    for (name, colour) in [("a", "blue"), ("b", "red"), ("c", "blue")] {
        lamps.create(&lamp(name, colour)).unwrap();
    }
    let blue = Query::all().namespace("default").field("spec.colour", "blue");
    let listed = place.client.list(&Lamp::KIND, &blue).unwrap();
    assert_eq!(names(&listed), ["a", "c"]);
    let (status, text) =
        place.http().send("GET", &format!("{}?fieldSelector=spec.colour%3Dblue", place.path()), None).unwrap();
    if place.minor < 30 {
        assert_eq!(status, 400, "{text}");
    } else {
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().len(), 2);
    }
    // The watch delivers the deletion of an object that leaves the selection.
    let stop = CancellationToken::new();
    let mut events = place.client.watch(&Lamp::KIND, &blue, Some(&listed.version), &stop).unwrap();
    let paint = Patch::Merge(json!({"spec": {"colour": "red"}}));
    place.client.patch(&Lamp::KIND, &ObjectKey::new("default", "a"), &paint, PatchTarget::Object).unwrap();
    let change = events.by_ref().map(Result::unwrap).find(|event| !matches!(event, WatchEvent::Bookmark(_))).unwrap();
    assert!(matches!(&change, WatchEvent::Deleted(object) if object.name() == "a"), "{change:?}");
}
