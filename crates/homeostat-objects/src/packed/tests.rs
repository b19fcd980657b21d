use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use super::*;
use crate::ValueRef;

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-100_i64..100).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-100_i32..100).prop_map(|number| Value::from(f64::from(number) / 4.0)),
    ]
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof!["[ab/~0-9]{0,3}", ".{0,80}"]
}

/// Any JSON, with names and lengths at the limits of the form.
fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any_name(), "[é\"\\\\\u{0}a]{0,6}", "x{62,66}", "y{4090,4100}"];
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any_number(), text.prop_map(Value::from),];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any_name(), inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Returns the pointers to all values.
fn pointers(json: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), json)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(at, item)| (format!("{path}/{at}"), item)));
            }
            Value::Object(fields) => {
                let step = |name: &str| name.replace('~', "~0").replace('/', "~1");
                open.extend(fields.iter().map(|(name, field)| (format!("{path}/{}", step(name)), field)));
            }
            _ => {}
        }
        found.push(path);
    }
    found
}

proptest! {
    #[test]
    fn packing_loses_nothing(json in any_json()) {
        let packed = pack(&json);
        prop_assert_eq!(&Packed::new(&packed).to_value(), &json);
        prop_assert_eq!(Packed::new(&packed).to_string(), json.to_string(), "floats and the order of fields included");
        prop_assert_eq!(serde_json::to_string(&Packed::new(&packed)).unwrap(), json.to_string());
    }

    #[test]
    fn every_value_is_found_at_its_pointer(json in any_json(), others in prop::collection::vec("(/[ab~01+9-]{0,3}){0,3}", 8)) {
        let packed = pack(&json);
        for pointer in pointers(&json).iter().chain(&others) {
            let found = Packed::new(&packed).pointer(pointer).map(Packed::to_value);
            prop_assert_eq!(found.as_ref(), json.pointer(pointer), "{}", pointer);
        }
    }

    #[test]
    fn packed_values_are_equal_if_their_values_are(one in any_json(), at in any::<prop::sample::Index>(), value in any_json()) {
        let mut other = one.clone();
        *other.pointer_mut(at.get::<String>(&pointers(&one))).unwrap() = value;
        let (packed, other_packed) = (pack(&one), pack(&other));
        let (packed, other_packed) = (ValueRef::packed(Packed::new(&packed)), ValueRef::packed(Packed::new(&other_packed)));
        prop_assert!(packed == one && ValueRef::from(&one) == packed);
        prop_assert_eq!(packed == other, one == other);
        prop_assert_eq!(packed == other_packed, one == other);
    }

    #[test]
    fn a_text_that_is_not_packed_or_cut_off_is_read_without_a_panic(text in ".{0,40}", json in any_json()) {
        let packed = pack(&json);
        let cut = (0..=packed.len().min(200)).filter_map(|end| packed.get(..end));
        for text in cut.chain([&*text]) {
            let packed = Packed::new(text);
            drop((packed.to_value(), packed.to_string(), packed.to_typed::<Value>(), packed.pointer("/a/0")));
        }
    }

    #[test]
    fn types_are_read_as_from_a_value(json in any_json()) {
        alike::<Value>(&json)?;
        alike::<IgnoredAny>(&json)?;
        alike::<Shape>(&json)?;
        alike::<BTreeMap<String, Value>>(&json)?;
        alike::<Vec<Option<f64>>>(&json)?;
        alike::<(bool, Value)>(&json)?;
    }

    #[test]
    fn a_type_is_read_as_from_a_value(shape in any_shape()) {
        alike::<Sample>(&shape)?;
    }
}

/// Checks that a type reads the packed form as it reads the value: with the same result, or with an error in both.
///
/// An array in place of a variant with named fields or with no fields is read as from text: `serde_json` accepts it
/// there, but not in a value.
fn alike<T: DeserializeOwned + Debug>(json: &Value) -> Result<(), TestCaseError> {
    let packed = pack(json);
    let read = Packed::new(&packed).to_typed::<T>().map_err(drop);
    let variant = json.pointer("/shape/Struct").or_else(|| json.pointer("/shape/Empty"));
    let expected = match variant {
        Some(Value::Array(_)) => serde_json::from_str::<T>(&json.to_string()).map_err(drop),
        _ => T::deserialize(json).map_err(drop),
    };
    prop_assert_eq!(format!("{:?}", read), format!("{:?}", expected), "{}", json);
    Ok(())
}

#[derive(Debug, serde::Deserialize)]
#[expect(dead_code, reason = "the derived `Debug` reads the fields")]
enum Shape {
    Unit,
    New(u8),
    Tuple(u8, String),
    Empty(),
    Struct { side: f32 },
}

#[derive(Debug, serde::Deserialize)]
#[expect(dead_code, reason = "the derived `Debug` reads the fields")]
struct Sample {
    shape: Shape,
    #[serde(default)]
    wrapped: Option<Wrapper>,
    by_number: BTreeMap<i16, bool>,
    by_bool: Option<BTreeMap<bool, u64>>,
    unit: (),
    letter: char,
    bytes: Vec<u8>,
    pair: (i128, u128),
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, serde::Deserialize)]
#[expect(dead_code, reason = "the derived `Debug` reads the fields")]
struct Wrapper(f64);

/// JSON that often has the form of [`Sample`].
fn any_shape() -> impl Strategy<Value = Value> {
    let shape = prop::sample::select(vec![
        json!("Unit"),
        json!("New"),
        json!({"Unit": null}),
        json!({"Unit": 1}),
        json!({"New": 7}),
        json!({"New": 256}),
        json!({"Tuple": [1, "x"]}),
        json!({"Tuple": [1]}),
        json!({"Tuple": [1, "x", 2]}),
        json!({"Empty": []}),
        json!({"Struct": {"side": 1.5}}),
        json!({"Struct": {"side": 2, "more": 1}}),
        json!({"Struct": [1]}),
        json!({}),
        json!({"New": 1, "Unit": null}),
        json!(3),
        json!(null),
        json!([1]),
        json!(true),
        json!("Other"),
    ]);
    let by_number = prop::sample::select(vec![
        json!({}),
        json!({"1": true, "-5": false}),
        json!({"70000": true}),
        json!({"1.5": true}),
        json!({" 1": true}),
        json!({"1 ": true}),
        json!({"x": true}),
        json!({"": true}),
        json!({"+1": true}),
        json!({"01": true}),
    ]);
    let by_bool =
        prop::sample::select(vec![json!(null), json!({"true": 1}), json!({"false": -1}), json!({"maybe": 1})]);
    let letter = prop::sample::select(vec![json!("é"), json!("ab"), json!(1)]);
    let pair = prop::sample::select(vec![json!([-1, 1]), json!([u64::MAX, u64::MAX]), json!([1.5, 1]), json!([1])]);
    let parts = (shape, by_number, by_bool, letter, pair, any_json(), any_number());
    parts.prop_map(|(shape, by_number, by_bool, letter, pair, rest, number)| {
        json!({"shape": shape, "by_number": by_number, "by_bool": by_bool, "unit": null, "letter": letter, "bytes": [1, 2],
            "pair": pair, "wrapped": number, "more": rest})
    })
}

#[test]
fn a_packed_object_is_smaller_than_its_text() {
    let json = json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"replicas": 3, "ratio": 0.5, "paused": false}});
    assert_eq!(pack(&json).len(), json.to_string().len() - 23);
}

#[test]
fn packed_values_of_any_depth_are_read() {
    const LEVELS: usize = 100_000;
    let mut json = json!(1);
    for level in 0..LEVELS {
        json = if level % 2 == 0 {
            Value::Array(vec![json, 2.into()])
        } else {
            Value::Object([("a".to_owned(), json)].into_iter().collect())
        };
    }
    let packed = pack(&json);
    let text = Packed::new(&packed).to_string();
    assert!(text.starts_with(r#"{"a":[{"a":["#) && text.ends_with(",2]},2]}") && text.len() > 4 * LEVELS);
    assert_eq!(Packed::new(&packed).pointer(&"/a/0".repeat(LEVELS / 2)).map(Packed::to_value), Some(json!(1)));
    let copy = Packed::new(&packed).to_value();
    assert_eq!(pack(&copy), packed);
    let error = Packed::new(&packed).to_typed::<Value>().unwrap_err();
    assert!(error.to_string().contains("256 levels"), "{error}");
    // Dropping a deep value recurses.
    for deep in [json, copy] {
        crate::rules::limits::dismantle(deep);
    }
}
