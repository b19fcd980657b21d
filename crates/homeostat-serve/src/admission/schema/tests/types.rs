//! The schema of a type removes, adds and refuses nothing that serde writes for this type.
#![expect(dead_code, reason = "the types are only described")]

use std::collections::{BTreeMap, BTreeSet};

use homeostat_types_test_support::generated::{read, schema, types_with_values};
use homeostat_types_test_support::spelled::{choices, respelled};
use proptest::prelude::*;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::StructuralSchema;

/// Checks that values of `T` survive in a field of an object.
#[track_caller]
fn keeps<T: JsonSchema>(samples: impl IntoIterator<Item = Value>) {
    #[derive(JsonSchema)]
    struct Whole<T> {
        spec: T,
    }

    let generated = schema_for!(Whole<T>).to_value();
    let schema = StructuralSchema::new(&generated).unwrap();
    for sample in samples {
        let whole = json!({"spec": sample});
        let mut object = whole.clone();
        let removed = schema.prune(&mut object);
        schema.fill_in(&mut object);
        assert_eq!((&object, removed), (&whole, vec![]), "{generated:#}");
        assert_eq!(schema.faults(&whole, None), [], "{sample} {generated:#}");
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Inner {
    a: u8,
    b: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Flat<T> {
    name: String,
    #[serde(flatten)]
    source: T,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum External {
    Unit,
    File { path: String },
    Url(String),
    Inner(Inner),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Tagged {
    Unit,
    File { path: String },
    Inner(Inner),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Unit,
    File { path: String },
    Url(String),
    Inner(Inner),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Inner(Inner),
    File { path: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Catch {
    Known { a: u8 },
    Other(Value),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", deny_unknown_fields)]
enum Probe {
    HttpGet {
        #[serde(default = "eighty")]
        port: u16,
    },
    Exec {
        cmd: String,
    },
}

fn eighty() -> u16 {
    80
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Protocol {
    Tcp,
    UdpLite,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Empty {}

/// A field with any content. Its schema only says that it is an object.
struct Raw;

impl JsonSchema for Raw {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Raw".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object"})
    }
}

fn external() -> Vec<Value> {
    vec![json!({"File": {"path": "p"}}), json!({"Url": "u"}), json!({"Inner": {"a": 1, "b": "x"}})]
}

fn tagged() -> Vec<Value> {
    vec![
        json!({"type": "Unit"}),
        json!({"type": "File", "path": "p"}),
        json!({"type": "Inner", "a": 1, "b": null}),
        json!({"type": "Inner", "a": 1}),
    ]
}

fn adjacent() -> Vec<Value> {
    vec![
        json!({"t": "Unit"}),
        json!({"t": "File", "c": {"path": "p"}}),
        json!({"t": "Url", "c": "u"}),
        json!({"t": "Inner", "c": {"a": 1}}),
    ]
}

fn untagged() -> Vec<Value> {
    vec![json!({"a": 1, "b": "x"}), json!({"path": "p"})]
}

/// Returns samples with the name of the struct that flattens them.
fn named(samples: Vec<Value>) -> Vec<Value> {
    let name = |mut sample: Value| {
        sample["name"] = json!("n");
        sample
    };
    samples.into_iter().map(name).collect()
}

fn listed(samples: &[Value]) -> Vec<Value> {
    vec![json!(samples), json!([])]
}

#[test]
fn enums_of_each_form_survive() {
    keeps::<External>([external(), vec![json!("Unit")]].concat());
    keeps::<Tagged>(tagged());
    keeps::<Adjacent>(adjacent());
    keeps::<Untagged>(untagged());
    keeps::<Probe>([json!({"type": "Exec", "cmd": "x"}), json!({"type": "HttpGet", "port": 80})]);
    keeps::<Catch>([json!({"a": 1}), json!({"b": {"c": 2}}), json!({"a": "text", "b": 1})]);
}

#[test]
fn enums_in_boxes_options_and_lists_survive() {
    keeps::<Option<Box<Tagged>>>([tagged(), vec![json!(null)]].concat());
    keeps::<Vec<External>>(listed(&external()));
    keeps::<Vec<Vec<Adjacent>>>([json!([adjacent(), []])]);
    keeps::<BTreeMap<String, Option<Untagged>>>([json!({"x": {"path": "p"}, "y.z": null})]);
}

#[test]
fn flattened_fields_survive() {
    keeps::<Flat<Inner>>([json!({"name": "n", "a": 1, "b": "x"}), json!({"name": "n", "a": 1})]);
    keeps::<Flat<External>>(named(external()));
    keeps::<Flat<Option<External>>>(named([external(), vec![json!({})]].concat()));
    keeps::<Flat<Tagged>>(named(tagged()));
    keeps::<Flat<Option<Tagged>>>(named(tagged()));
    keeps::<Flat<Adjacent>>(named(adjacent()));
    keeps::<Flat<Untagged>>(named(untagged()));
    keeps::<Flat<Catch>>(named(vec![json!({"a": 1}), json!({"b": {"c": 2}})]));
    keeps::<Flat<BTreeMap<String, u8>>>([json!({"name": "n", "x": 1})]);
    keeps::<Flat<BTreeMap<String, Value>>>([json!({"name": "n", "x": {"y": 1}})]);
}

#[test]
fn maps_tuples_and_open_values_survive() {
    keeps::<Value>([json!(null), json!({"a": [{"b": 1}]}), json!(1)]);
    keeps::<Option<Value>>([json!(null), json!({"a": 1})]);
    keeps::<BTreeMap<u8, Inner>>([json!({"1": {"a": 1}})]);
    keeps::<BTreeMap<Protocol, u8>>([json!({"tcp": 1, "udpLite": 2})]);
    keeps::<(u8, String, Inner)>([json!([1, "a", {"a": 1, "b": "x"}])]);
    keeps::<[Inner; 2]>([json!([{"a": 1}, {"a": 2}])]);
    keeps::<BTreeSet<Option<String>>>([json!([null, "a"])]);
    keeps::<serde_json::Map<String, Value>>([json!({"a": {"b": 1}})]);
    keeps::<Raw>([json!({"a": {"b": 1}}), json!({})]);
    keeps::<Empty>([json!({})]);
    keeps::<(u64, i64, f64, char, Option<bool>)>([json!([u64::MAX, i64::MIN, 0.5, "x", null])]);
}

/// In a structural Kubernetes schema, the same words mean that an object has no fields.
#[test]
fn an_object_without_properties_is_closed_in_a_structural_schema() {
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"spec": {"type": "object"}}})).unwrap();
    let mut object = json!({"spec": {"a": 1}});
    assert_eq!(schema.prune(&mut object), ["spec.a"]);
}

/// Returns a value as the schema stores it, and whether the schema accepts it.
fn admitted(schema: &StructuralSchema, value: &Value) -> (Value, bool) {
    let mut object = json!({"spec": value});
    schema.prune(&mut object);
    schema.fill_in(&mut object);
    let is_valid = schema.faults(&object, None).is_empty();
    (object["spec"].take(), is_valid)
}

proptest! {
    /// The schema of some flattened types refuses some of their values, however it is spelled.
    #[test]
    fn all_spellings_of_a_schema_keep_and_accept_the_same_values((of, values) in types_with_values(), choices in choices()) {
        let first = json!({"$schema": "", "type": "object", "properties": {"spec": schema(&of)}});
        let other = respelled(&first, &choices);
        let compiled = [&first, &other].map(|schema| StructuralSchema::new(schema).unwrap());
        for value in &values {
            let (kept, is_valid) = admitted(&compiled[0], value);
            prop_assert_eq!(read(&of, &kept), read(&of, value), "{} became {} by {}", value, kept, first);
            prop_assert_eq!(admitted(&compiled[1], value), (kept, is_valid), "{} by {} and {}", value, first, other);
        }
    }
}
