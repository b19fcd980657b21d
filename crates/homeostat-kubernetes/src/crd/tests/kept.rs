//! A server's pruning, defaulting and checking must leave each value as serde wrote it.

use homeostat_types_test_support::generated::{Type, read, schema, types_with_values};
use homeostat_types_test_support::kept::{self, KeptType};
use homeostat_types_test_support::spelled::{choices, respelled};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::structural::structural;
use super::server::{faults, store};
use super::spec_schema;

/// Checks that a model of a server keeps the values of these types.
fn are_kept(types: Vec<KeptType>) {
    for of in types {
        let schema = spec_schema(&of.definition);
        assert_eq!(faults(&schema), Vec::<String>::new(), "{}", of.name);
        for value in &of.values {
            let stored = store(value, &schema).unwrap_or_else(|why| panic!("{}: {why}", of.name));
            of.check(value, &stored).unwrap_or_else(|why| panic!("{}: {why} by {schema}", of.name));
        }
    }
}

#[test]
fn values_of_all_types_survive_a_server() {
    are_kept(kept::types());
}

#[test]
fn flattened_types_survive_a_server() {
    are_kept(kept::flattened::types());
}

#[test]
fn fields_of_one_direction_unknown_fields_and_nulls_are_kept() {
    are_kept(kept::types_with_values());
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
