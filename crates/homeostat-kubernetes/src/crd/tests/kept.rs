//! A server's pruning, defaulting and checking must leave each value as serde wrote it.

use homeostat_types_test_support::generated::{Type, read, schema, types_with_values};
use homeostat_types_test_support::kept::{Kept, Samples, Visitor, flattened, includes, visit, visit_values};
use homeostat_types_test_support::spelled::{choices, respelled};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::structural::structural;
use super::schema_of;
use super::server::{faults, store};

/// A model of a server, which stores the values that it receives.
struct Model;

impl Visitor for Model {
    fn samples<T: Samples>(&mut self) {
        let schema = schema_of::<T>();
        let name = std::any::type_name::<T>();
        assert_eq!(faults(&schema), Vec::<String>::new(), "{name}");
        for sample in T::samples() {
            let written = serde_json::to_value(&sample).unwrap();
            let stored = store(&written, &schema).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(includes(&stored, &written), "{name}: {written} became {stored} by {schema}");
            let read = |value: Value| serde_json::from_value::<T>(value).map_err(|error| error.to_string());
            assert_eq!(read(stored), read(written), "{name}");
        }
    }

    fn values<T: Kept>(&mut self, values: &[Value]) {
        let schema = schema_of::<T>();
        assert_eq!(faults(&schema), Vec::<String>::new());
        for value in values {
            assert_eq!(store(value, &schema).as_ref(), Ok(value), "{schema}");
        }
    }
}

#[test]
fn values_of_all_types_survive_a_server() {
    visit(&mut Model);
}

#[test]
fn flattened_types_survive_a_server() {
    flattened::visit(&mut Model);
}

#[test]
fn fields_of_one_direction_unknown_fields_and_nulls_are_kept() {
    visit_values(&mut Model);
}

/// Checks that a model of a server stores values of a type, and that they are read as written.
fn keeps(of: &Type, schema: &Value, values: &[Value]) -> Result<(), TestCaseError> {
    let definition = Value::from(structural(schema).unwrap());
    prop_assert_eq!(faults(&definition), Vec::<String>::new(), "{} by {}", definition, schema);
    for value in values {
        let written = json!({"spec": value});
        let stored = store(&written, &definition);
        prop_assert!(stored.is_ok(), "{} by {} from {}", stored.unwrap_err(), definition, schema);
        let stored = stored.unwrap();
        let (left, right) = (read(of, &stored["spec"]), read(of, &written["spec"]));
        prop_assert_eq!(left, right, "{} became {} by {} from {}", written, stored, definition, schema);
    }
    Ok(())
}

fn whole(of: &Type) -> Value {
    json!({"title": "Thing", "type": "object", "properties": {"spec": schema(of)}})
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn values_of_random_types_survive_a_server((of, values) in types_with_values()) {
        keeps(&of, &whole(&of), &values)?;
    }

    #[test]
    fn values_survive_a_server_however_the_schema_is_spelled((of, values) in types_with_values(), choices in choices()) {
        keeps(&of, &respelled(&whole(&of), &choices), &values)?;
    }
}
