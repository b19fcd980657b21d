//! Rust types: each shape alone, in other types, and flattened.

use std::any::type_name;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;
use std::num::NonZeroI32;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use homeostat_objects::{Condition, ConditionStatus, Kind, KindDefinition, MetaMut, Object, ObjectMeta};

/// A type with values that a server must keep.
///
/// It is not generic, so that the code of all types is compiled once, in this crate.
#[derive(Debug)]
pub struct KeptType {
    pub name: &'static str,
    /// Defines a kind whose `spec` has this type.
    pub definition: KindDefinition,
    /// The values, as serde writes them.
    pub values: Vec<Value>,
    /// Returns an error unless both values are read as equal values of the type. Without it, a stored value must be the
    /// written one.
    read_equal: Option<Comparison>,
}

/// Compares a written value with the stored one. The error shows both.
type Comparison = fn(&Value, &Value) -> Result<(), String>;

impl KeptType {
    /// Returns a type whose samples must be read as they were written. The server may add fields.
    fn with_samples<T: Samples>() -> Self {
        let read_equal = |written: &Value, stored: &Value| {
            let read = |value: &Value| serde_json::from_value::<T>(value.clone()).map_err(|error| error.to_string());
            let (left, right) = (read(written), read(stored));
            (left == right).then_some(()).ok_or_else(|| format!("{left:?} became {right:?}"))
        };
        let values = T::samples().iter().map(|sample| serde_json::to_value(sample).unwrap()).collect();
        Self { name: type_name::<T>(), definition: definition_of::<T>(), values, read_equal: Some(read_equal) }
    }

    /// Returns a type that must keep these values as they are, though it may not read them as itself.
    fn with_values<T: Kept>(values: &[Value]) -> Self {
        let (name, definition) = (type_name::<T>(), definition_of::<T>());
        Self { name, definition, values: values.to_vec(), read_equal: None }
    }

    /// Compares a written value with the stored one.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has not kept the value.
    pub fn check(&self, written: &Value, stored: &Value) -> Result<(), String> {
        let is_kept = if self.read_equal.is_some() { includes(stored, written) } else { stored == written };
        if !is_kept {
            return Err(format!("{written} became {stored}"));
        }
        self.read_equal.map_or(Ok(()), |read_equal| read_equal(written, stored))
    }
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Thing")]
struct Thing<S> {
    metadata: ObjectMeta,
    spec: S,
}

impl<S: Kept> Object for Thing<S> {
    const KIND: Kind = Kind::namespaced("types.example.com", "v1", "Thing");
    type Status = ();

    fn meta(&self) -> Cow<'_, ObjectMeta> {
        Cow::Borrowed(&self.metadata)
    }

    fn meta_mut(&mut self) -> MetaMut<'_> {
        (&mut self.metadata).into()
    }
}

/// Defines a kind whose `spec` has this type.
pub fn definition_of<S: Kept>() -> KindDefinition {
    KindDefinition::described_by::<Thing<S>>()
}

/// A type that a definition can be made of.
pub trait Kept: Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static> Kept for T {}

/// A type with sample values of all its variants.
trait Samples: Kept + PartialEq + Debug {
    fn samples() -> Vec<Self>;
}

impl<T: Samples> Samples for Box<T> {
    fn samples() -> Vec<Self> {
        T::samples().into_iter().map(Self::new).collect()
    }
}

fn without_reason(mut condition: Condition) -> Condition {
    condition.reason.clear();
    condition
}

macro_rules! types {
    ($($(#[$of:meta])* $name:ident $body:tt = [$($sample:expr),+ $(,)?];)+) => {$(
        types!(@define $(#[$of])* $name $body);
        impl Samples for $name {
            fn samples() -> Vec<Self> {
                vec![$($sample),+]
            }
        }
    )+};
    (@define $(#[$of:meta])* $name:ident (enum $variants:tt)) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        $(#[$of])*
        enum $name $variants
    };
    (@define $(#[$of:meta])* $name:ident (struct $fields:tt)) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        $(#[$of])*
        struct $name $fields
    };
}

fn eighty() -> u16 {
    80
}

fn text(text: &str) -> String {
    text.to_owned()
}

types! {
    Colour (enum { Red, Green }) = [Self::Red, Self::Green];
    External (enum { File { path: String }, Url(String) }) = [Self::File { path: text("p") }, Self::Url(text("u"))];
    Mixed (enum { Nothing, Path(String), Port { #[serde(default = "eighty")] port: u16 } })
        = [Self::Nothing, Self::Path(text("p")), Self::Port { port: 1 }];
    #[serde(tag = "type")]
    Internal (enum { File { path: String, #[serde(default = "eighty")] port: u16 }, Url { path: Option<String> }, None })
        = [Self::File { path: text("p"), port: 1 }, Self::Url { path: None }, Self::Url { path: Some(text("p")) }, Self::None];
    #[serde(tag = "type", deny_unknown_fields)]
    Probe (enum { HttpGet { #[serde(default = "eighty")] port: u16 }, Exec { cmd: String } })
        = [Self::HttpGet { port: 1 }, Self::Exec { cmd: text("x") }];
    #[serde(tag = "t", content = "c")]
    Adjacent (enum { Text(String), Number(i32), Port { #[serde(default = "eighty")] port: u16 }, Exec { cmd: String }, None })
        = [Self::Text(text("t")), Self::Number(7), Self::Port { port: 1 }, Self::Exec { cmd: text("x") }, Self::None];
    #[serde(untagged)]
    Untagged (enum { One { one: String, #[serde(default = "eighty")] port: u16 }, Two { two: BTreeMap<String, u8> } })
        = [Self::One { one: text("1"), port: 1 }, Self::Two { two: [(text("k"), 2)].into() }];
    #[serde(untagged)]
    Port (enum { Number(i32), Name(String) }) = [Self::Number(1), Self::Name(text("http"))];
    #[serde(untagged)]
    Catch (enum { Known { a: u8 }, Other(Value) })
        = [Self::Known { a: 1 }, Self::Other(json!({"b": {"c": 2}})), Self::Other(json!({"a": {"c": [null, {"d": null}]}}))];
    #[serde(untagged)]
    CatchMap (enum { Known { a: Nested }, Other(BTreeMap<String, Nested>) })
        = [Self::Known { a: Nested::samples().remove(0) }, Self::Other([(text("b"), Nested::samples().remove(1))].into())];
    #[serde(tag = "type")]
    Holder (enum { Map(BTreeMap<String, String>), Fields(Map<String, Value>), Meta(ObjectMeta), Nested(Nested), Deep(Deep) })
        = [
            Self::Map([(text("k"), text("v"))].into()),
            Self::Fields(json!({"a": {"b": null}}).as_object().unwrap().clone()),
            Self::Nested(Nested::samples().remove(0)),
            Self::Deep(Deep::samples().remove(0)),
        ];
    Nested (struct { number: i32, #[serde(default)] text: String, #[serde(default = "eighty")] port: u16, maybe: Option<bool> })
        = [
            Self { number: 1, text: text(""), port: 80, maybe: None },
            Self { number: -1, text: text("t"), port: 1, maybe: Some(true) },
        ];
    Deep (struct { list: Vec<Nested>, map: BTreeMap<String, Option<Nested>>, pair: (u8, Option<String>), unit: (), any: Value })
        = [Self {
            list: Nested::samples(),
            map: [(text("a"), None), (text("b"), Some(Nested::samples().remove(1)))].into(),
            pair: (1, None),
            unit: (),
            any: Value::Null,
        }];
    Empty (struct {}) = [Self {}];
    #[serde(deny_unknown_fields)]
    Closed (struct { #[serde(default = "eighty", skip_serializing_if = "is_eighty")] port: u16 })
        = [Self { port: 80 }, Self { port: 1 }];
    Defaulted (struct { #[serde(default)] nested: Option<Closed>, #[serde(default)] list: Vec<String> })
        = [Self { nested: None, list: Vec::new() }, Self { nested: Some(Closed { port: 1 }), list: vec![text("a")] }];
    Open (struct { number: i32, #[serde(flatten)] others: BTreeMap<String, Nested> })
        = [Self { number: 1, others: BTreeMap::new() }, Self { number: 1, others: [(text("o"), Nested::samples().remove(0))].into() }];
    Numbered (struct { #[serde(flatten)] by_number: BTreeMap<u32, String>, by_colour: BTreeMap<Key, String> })
        = [Self { by_number: [(7, text("seven"))].into(), by_colour: [(Key::Red, text("r"))].into() }];
    Sets (struct { names: BTreeSet<String>, maybe: BTreeSet<Option<String>>, pairs: HashSet<(u8, u8)> })
        = [Self { names: [text("a")].into(), maybe: [None, Some(text("a"))].into(), pairs: [(1, 2)].into() }];
    Template (struct { metadata: ObjectMeta, spec: Nested }) = [Self {
        metadata: serde_json::from_value(json!({"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["f"]})).unwrap(),
        spec: Nested::samples().remove(0),
    }];
    Conditions (struct { conditions: Vec<Condition> }) = [Self {
        conditions: vec![
            Condition::new("Ready", ConditionStatus::True, "R"),
            without_reason(Condition::new("Done", ConditionStatus::Unknown, "")),
        ],
    }];
    /// Values that violate their own fields' rules can also be defaults.
    Ruled (struct {
        #[serde(default)]
        #[schemars(range(min = 1, max = 9))]
        replicas: u8,
        #[serde(default)]
        #[schemars(length(min = 1))]
        names: Vec<String>,
        non_zero: NonZeroI32,
    }) = [Self { replicas: 1, names: vec![text("n")], non_zero: NonZeroI32::MIN }];
    Directions (struct {
        #[serde(skip_deserializing)]
        computed: Option<Nested>,
        #[serde(skip_serializing)]
        secret: Option<String>,
        #[serde(rename(serialize = "new", deserialize = "old"))]
        renamed: Option<u8>,
    }) = [Self { computed: Some(Nested::samples().remove(0)), secret: None, renamed: Some(1) }];
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
enum Key {
    Red,
    Green,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "how serde calls it")]
fn is_eighty(port: &u16) -> bool {
    *port == 80
}

/// Types that contain another one.
macro_rules! wrappers {
    ($($(#[$of:meta])* $name:ident<$inner:ident> $body:tt = |$sample:ident| [$($value:expr),+ $(,)?];)+) => {$(
        wrappers!(@define $(#[$of])* $name<$inner> $body);
        impl<$inner: Samples> Samples for $name<$inner> {
            fn samples() -> Vec<Self> {
                $inner::samples().into_iter().flat_map(|$sample| vec![$($value),+]).collect()
            }
        }
    )+};
    (@define $(#[$of:meta])* $name:ident<$inner:ident> (enum $variants:tt)) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        $(#[$of])*
        enum $name<$inner> $variants
    };
    (@define $(#[$of:meta])* $name:ident<$inner:ident> (struct $fields:tt)) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        $(#[$of])*
        struct $name<$inner> $fields
    };
}

wrappers! {
    Fields<T> (struct { plain: T, boxed: Box<T>, list: Vec<T>, map: BTreeMap<String, T>, some: Option<T>, pair: (T, u8) }) = |one| [Self {
        plain: one.clone(),
        boxed: Box::new(one.clone()),
        list: vec![one.clone(), one.clone()],
        map: [(text("k"), one.clone())].into(),
        some: Some(one.clone()),
        pair: (one, 1),
    }];
    Nothing<T> (struct { some: Option<T>, list: Vec<Option<T>>, nested: Option<Vec<Option<T>>> })
        = |one| [Self { some: None, list: vec![None, Some(one)], nested: Some(vec![None]) }];
    InVariant<T> (enum { Holds(T), Has { field: T, #[serde(default = "eighty")] port: u16 }, Many(Vec<T>) })
        = |one| [Self::Holds(one.clone()), Self::Has { field: one.clone(), port: 1 }, Self::Many(vec![one])];
    #[serde(tag = "of")]
    InTagged<T> (enum { Has { field: T, #[serde(default = "eighty")] port: u16 }, Text { field: String }, None })
        = |one| [Self::Has { field: one, port: 1 }, Self::Text { field: text("t") }, Self::None];
    #[serde(tag = "t2", content = "c2")]
    InContent<T> (enum { Holds(T), Many(Vec<T>), Nested(Nested) })
        = |one| [Self::Holds(one.clone()), Self::Many(vec![one]), Self::Nested(Nested::samples().remove(0))];
    #[serde(untagged)]
    InUntagged<T> (enum { Has { field: T }, Text(String), Any { any: Value } })
        = |one| [Self::Has { field: one }, Self::Text(text("t")), Self::Any { any: json!({"field": null}) }];
}

/// Types that flatten another type into their fields.
pub mod flattened {
    use super::*;

    wrappers! {
        Flat<T> (struct { name: String, #[serde(flatten)] inner: T }) = |one| [Self { name: text("n"), inner: one }];
        FlatBox<T> (struct { name: String, #[serde(flatten)] inner: Box<T> }) = |one| [Self { name: text("n"), inner: Box::new(one) }];
        Alone<T> (struct { #[serde(flatten)] inner: T }) = |one| [Self { inner: one }];
        Beside<T> (struct { name: String, #[serde(flatten)] inner: T, #[serde(flatten)] rest: BTreeMap<String, Value> })
            = |one| [Self { name: text("n"), inner: one, rest: [(text("more"), json!({"x": null}))].into() }];
        Twice<T> (struct { name: String, #[serde(flatten)] inner: Flat<T>, #[serde(flatten)] other: TwiceOther }) = |one| [
            Self { name: text("n"), inner: Flat { name: text("n"), inner: one.clone() }, other: TwiceOther::This(1) },
            Self { name: text("n"), inner: Flat { name: text("n"), inner: one }, other: TwiceOther::That { deep: true } },
        ];
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    enum TwiceOther {
        This(u8),
        That { deep: bool },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct FlatOption<T> {
        name: String,
        #[serde(flatten)]
        inner: Option<T>,
    }

    impl<T: Samples> Samples for FlatOption<T> {
        fn samples() -> Vec<Self> {
            let some = T::samples().into_iter().map(Some);
            some.chain([None]).map(|inner| Self { name: text("n"), inner }).collect()
        }
    }

    /// Returns types that flatten another type.
    pub fn types() -> Vec<KeptType> {
        let mut all = Vec::new();
        macro_rules! each {
            ($($of:ident)+) => {$(
                all.push(KeptType::with_samples::<Flat<$of>>());
                all.push(KeptType::with_samples::<FlatBox<$of>>());
                all.push(KeptType::with_samples::<Alone<$of>>());
                all.push(KeptType::with_samples::<Beside<$of>>());
                all.push(KeptType::with_samples::<FlatOption<$of>>());
                all.push(KeptType::with_samples::<Fields<FlatOption<$of>>>());
                all.push(KeptType::with_samples::<InVariant<Flat<$of>>>());
            )+};
        }
        each!(External Internal Adjacent Untagged Catch CatchMap Colour Mixed Probe Holder Open Nested);
        macro_rules! nested {
            ($($of:ident)+) => {$(
                all.push(KeptType::with_samples::<FlatOption<Box<$of>>>());
                all.push(KeptType::with_samples::<Fields<FlatOption<Box<$of>>>>());
                all.push(KeptType::with_samples::<Flat<Flat<FlatOption<$of>>>>());
                all.push(KeptType::with_samples::<FlatOption<Flat<FlatOption<$of>>>>());
                all.push(KeptType::with_samples::<Twice<$of>>());
            )+};
        }
        nested!(External Internal Adjacent Untagged);
        all
    }
}

/// Returns all types, except those that flatten another type.
pub fn types() -> Vec<KeptType> {
    let mut all = Vec::new();
    macro_rules! each {
        ($($of:ident)+) => {$(
            all.push(KeptType::with_samples::<$of>());
            all.push(KeptType::with_samples::<Fields<$of>>());
            all.push(KeptType::with_samples::<Nothing<$of>>());
            all.push(KeptType::with_samples::<InVariant<$of>>());
            all.push(KeptType::with_samples::<InTagged<$of>>());
            all.push(KeptType::with_samples::<InContent<$of>>());
            all.push(KeptType::with_samples::<InUntagged<$of>>());
        )+};
    }
    each!(Colour External Mixed Internal Probe Adjacent Untagged Port Catch CatchMap Holder Nested Deep Empty Closed Defaulted
        Open Numbered Sets Template Conditions Ruled);
    all.push(KeptType::with_samples::<InVariant<InTagged<InContent<InUntagged<External>>>>>());
    all.push(KeptType::with_samples::<InUntagged<InContent<InTagged<InVariant<Internal>>>>>());
    all.push(KeptType::with_samples::<InTagged<Fields<Nothing<Probe>>>>());
    all
}

/// Returns types with values that they may not read as themselves: fields of one direction, unknown fields, nulls.
pub fn types_with_values() -> Vec<KeptType> {
    let computed = json!({"number": 1, "text": "", "port": 1, "maybe": null});
    vec![
        KeptType::with_values::<Directions>(&[
            json!({"computed": computed, "new": 1}),
            json!({"computed": null, "secret": "s", "old": 1}),
        ]),
        KeptType::with_values::<Extended>(&[
            json!({"raw": {"a": {"b": null}}, "list": [{"c": [{"d": 1}]}], "any": null}),
        ]),
        KeptType::with_values::<Template>(&[json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{"fieldsV1": {"f:a": {}}}]},
            "spec": {"number": 1, "text": "", "port": 1, "maybe": null},
        })]),
        KeptType::with_values::<Catch>(&[json!({"a": 1}), json!({"b": {"c": 2}}), json!(null), json!([{"a": 1}])]),
        KeptType::with_values::<Probe>(&[json!({"type": "Exec", "cmd": "x"})]),
    ]
}

/// The schema of Kubernetes' `RawExtension` and `FieldsV1`.
#[derive(Clone, Serialize, Deserialize)]
struct Raw(Value);

impl JsonSchema for Raw {
    fn schema_name() -> Cow<'static, str> {
        "Raw".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object"})
    }
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Extended {
    raw: Raw,
    list: Vec<Raw>,
    any: Value,
}

/// Returns whether a value has all fields of another value, with equal values.
fn includes(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(fields), Value::Object(parts)) => {
            parts.iter().all(|(name, part)| fields.get(name).is_some_and(|value| includes(value, part)))
        }
        (Value::Array(items), Value::Array(parts)) => {
            items.len() == parts.len() && items.iter().zip(parts).all(|(item, part)| includes(item, part))
        }
        _ => value == part,
    }
}
