//! Definitions of many types, and of random types: the server accepts each, and keeps their values as serde wrote them.

use std::borrow::Cow;
use std::cell::RefCell;

use homeostat_kubernetes::CustomResourceDefinition;
use homeostat_objects::{Kind, KindDefinition};
use homeostat_types_test_support::generated::{Type, read, schema, types_with_values};
use homeostat_types_test_support::kept::{self, KeptType, definition_of};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{RngSeed, TestRunner};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Place, definition};
use crate::kinds;

/// How many types one definition has. A server limits the cost of all rules of a definition.
const FIELDS: usize = 24;

/// Compares a written value with the stored one. The error shows both.
type Check = Box<dyn Fn(&Value, &Value) -> Result<(), String>>;

/// A field of a kind with a type under test, and its values.
struct Field {
    name: String,
    schema: Value,
    values: Vec<Value>,
    check: Check,
}

/// Returns the schema of the field `spec` in a definition.
fn defined(definition: &KindDefinition) -> Value {
    let definition = CustomResourceDefinition::new(definition).unwrap();
    definition.to_json()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

struct Fields(Vec<Field>);

impl From<Vec<KeptType>> for Fields {
    fn from(types: Vec<KeptType>) -> Self {
        let field = |of: KeptType| Field {
            name: of.name.to_owned(),
            schema: defined(&of.definition),
            values: of.values.clone(),
            check: Box::new(move |written, stored| of.check(written, stored)),
        };
        Self(types.into_iter().map(field).collect())
    }
}

impl Fields {
    /// Stores all values in kinds with many fields each. Returns how many.
    fn are_kept(self, kind: &str) -> String {
        let mut stored = 0;
        for (number, fields) in self.0.chunks(FIELDS).enumerate() {
            let name = format!("{kind}{number}");
            let kind = Kind::of(&format!("{kind}.types.example.com/v1"), &name);
            stored += keeps(&Place::empty(kind), fields);
        }
        format!("{} types, {stored} values", self.0.len())
    }
}

/// Defines a kind with these fields, and stores their values. Returns how many.
fn keeps(place: &Place, fields: &[Field]) -> usize {
    let names: Vec<_> = (0..fields.len()).map(|number| format!("field{number}")).collect();
    let explain = |text: &str| {
        let is_about = |name: &String| text.contains(&format!("{name}.")) || text.contains(&format!("{name}:"));
        let found = names.iter().zip(fields).find(|(name, _)| is_about(name));
        found.map_or_else(
            || text.to_owned(),
            |(name, field)| format!("{name} is {}, {}: {text}", field.name, field.schema),
        )
    };
    let properties: Map<_, _> =
        names.iter().zip(fields).map(|(name, field)| (name.clone(), field.schema.clone())).collect();
    let definition = definition(&place.kind, &json!({"type": "object", "properties": properties}));
    if place.minor < 25 {
        // kube-apiserver 1.20, as Go 1.19 compiles it, takes an empty text for null. It checks the definition only.
        kinds::define(&place.client, &definition);
        return 0;
    }
    place.define(&definition);
    let most = fields.iter().map(|field| field.values.len()).max().unwrap();
    let mut count = 0;
    for number in 0..most {
        let present =
            names.iter().zip(fields).filter_map(|(name, field)| Some((name, field, field.values.get(number)?)));
        let spec: Map<_, _> = present.clone().map(|(name, _, value)| (name.clone(), value.clone())).collect();
        let written = Value::Object(spec);
        let stored = place.create(&format!("object-{number}"), &written);
        let stored = stored.unwrap_or_else(|error| panic!("{}", explain(&error.to_string())));
        for (name, field, value) in present {
            (field.check)(value, &stored["spec"][name])
                .unwrap_or_else(|why| panic!("{}: {why} by {}", field.name, field.schema));
            count += 1;
        }
    }
    count
}

#[test]
fn values_of_all_types_are_kept() {
    println!("{}", Fields::from(kept::types()).are_kept("all"));
}

#[test]
fn values_of_flattened_types_are_kept() {
    println!("{}", Fields::from(kept::flattened::types()).are_kept("flat"));
}

#[test]
fn unknown_fields_and_nulls_are_kept() {
    println!("{}", Fields::from(kept::types_with_values()).are_kept("value"));
}

thread_local! {
    /// The schema of [`Random`].
    static RANDOM: RefCell<Value> = const { RefCell::new(Value::Null) };
}

#[derive(Clone, Serialize, Deserialize)]
struct Random(Value);

impl JsonSchema for Random {
    fn schema_name() -> Cow<'static, str> {
        "Random".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        RANDOM.with_borrow(|schema| Schema::try_from(schema.clone()).unwrap())
    }
}

fn random(of: Type, values: Vec<Value>) -> Field {
    RANDOM.set(schema(&of));
    let name = format!("{of:?}");
    let check = move |written: &Value, stored: &Value| {
        (read(&of, written) == read(&of, stored)).then_some(()).ok_or_else(|| format!("{written} became {stored}"))
    };
    Field { name, schema: defined(&definition_of::<Random>()), values, check: Box::new(check) }
}

/// The same types in each run. `HOMEOSTAT_TEST_TYPES` sets their number.
#[test]
fn values_of_random_types_are_kept() {
    let config = proptest::test_runner::Config { rng_seed: RngSeed::Fixed(36), ..Default::default() };
    let mut runner = TestRunner::new(config);
    let count = homeostat_test_support::system::number_of("HOMEOSTAT_TEST_TYPES", 96);
    let fields = (0..count).map(|_| {
        let (of, values) = types_with_values().new_tree(&mut runner).unwrap().current();
        random(of, values)
    });
    println!("{}", Fields(fields.collect()).are_kept("random"));
}
