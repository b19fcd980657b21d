//! Each keyword of a JSON schema is honoured, or refused by name.

use serde_json::{Value, json};

use super::super::structural::structural;
use super::server::{faults, store};

/// Converts the schema of a field.
fn converted_with(schema: &Value, definitions: &Value) -> Result<Value, String> {
    let root = json!({
        "title": "Thing", "type": "object", "properties": {"spec": schema}, "$defs": definitions,
    });
    structural(&root).map(|root| root["properties"]["spec"].clone()).map_err(|error| error.to_string())
}

fn converted(schema: &Value) -> Value {
    let converted = converted_with(schema, &json!({})).unwrap();
    assert_eq!(faults(&converted), Vec::<String>::new(), "{schema}");
    converted
}

#[track_caller]
fn stores(schema: &Value, values: &[Value]) {
    for value in values {
        assert_eq!(store(value, schema).as_ref(), Ok(value), "{schema}");
    }
}

#[track_caller]
fn refuses(schema: &Value, values: &[Value]) {
    for value in values {
        assert!(store(value, schema).is_err(), "{value} by {schema}");
    }
}

#[test]
fn keywords_that_a_server_lacks_are_refused_by_name() {
    for keyword in [
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "minContains",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unknown",
    ] {
        let error = converted_with(&json!({"type": "object", keyword: {}}), &json!({})).unwrap_err();
        let expected = format!("the schema of spec is unusable: the keyword {keyword:?} is not supported");
        assert!(error.starts_with(&expected) && error.contains("a rule in CEL"), "{error}");
    }
}

#[test]
fn the_stricter_of_two_bounds_holds() {
    let bounds = |least: i32, excluded: i32| {
        converted(
            &json!({"type": "integer", "minimum": least, "exclusiveMinimum": excluded, "maximum": -least, "exclusiveMaximum": -excluded}),
        )
    };
    assert_eq!(bounds(-3, -5), json!({"type": "integer", "minimum": -3, "maximum": 3}));
    let exclusive =
        json!({"type": "integer", "minimum": -3, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": true});
    assert_eq!(bounds(-5, -3), exclusive);
    assert_eq!(bounds(-3, -3), exclusive);
    let largest = converted(&json!({"type": "integer", "minimum": i64::MAX, "exclusiveMinimum": i64::MAX - 1}));
    assert_eq!(largest, json!({"type": "integer", "minimum": i64::MAX}));
    // The field's rule and its type's rule both apply.
    let both = json!({"$ref": "#/$defs/Small", "minimum": 1, "maximum": 300, "pattern": "1"});
    let both =
        converted_with(&both, &json!({"Small": {"type": "integer", "minimum": 5, "maximum": 255, "pattern": "2"}}))
            .unwrap();
    refuses(&both, &[json!(4), json!(256)]);
    stores(&both, &[json!(5), json!(255)]);
}

#[test]
fn fields_of_all_patterns_are_kept() {
    let schema = converted(&json!({
        "type": "object", "additionalProperties": false,
        "patternProperties": {"^a": {"type": "integer"}, "^b": {"type": "string"}, "^c": {"type": "null"}},
    }));
    stores(&schema, &[json!({"a": 1, "b": "x", "c": null})]);
    let schema = converted(&json!({
        "type": "object", "properties": {"known": {"type": "boolean"}}, "unevaluatedProperties": {"type": "string"},
        "anyOf": [{"type": "object", "properties": {"x": {"type": "integer"}}}, {"type": "object", "properties": {"y": {}}}],
    }));
    stores(&schema, &[json!({"known": true, "free": "x", "x": 1}), json!({"y": null})]);
    let struct_of_number =
        converted(&json!({"type": "object", "properties": {"a": {"type": "object"}}, "unevaluatedProperties": false}));
    assert_eq!(store(&json!({"a": {"b": 1}, "c": 1}), &struct_of_number).unwrap(), json!({"a": {"b": 1}}));
}

#[test]
fn an_object_is_closed_only_if_its_fields_are_known() {
    stores(&converted(&json!({"type": "object"})), &[json!({"a": {"b": [null]}})]);
    stores(&converted(&json!({"type": "object", "properties": {}})), &[json!({"a": 1})]);
    stores(&converted(&json!({"type": ["object", "null"], "required": ["a"]})), &[json!({"a": 1}), json!(null)]);
    stores(&converted(&json!({})), &[json!({"a": null}), json!([{"a": 1}]), json!(null), json!(1)]);
    let closed = converted(&json!({"type": "object", "additionalProperties": false}));
    assert_eq!(store(&json!({"a": 1}), &closed).unwrap(), json!({}));
}

#[test]
fn elements_of_tuples_and_the_others_are_combined() {
    let tuple = json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "string"}});
    stores(&converted(&tuple), &[json!([1, true, "x"])]);
    let pair =
        json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": ["string", "null"]}], "items": false});
    let pair = converted(&pair);
    stores(&pair, &[json!([1, null]), json!([1, "x"])]);
    refuses(&pair, &[json!([true])]);
}

#[test]
fn excluded_values_are_refused_where_a_server_can_do_that() {
    let number = converted(&json!({"type": "integer", "not": {"const": 0}}));
    assert_eq!(number, json!({"type": "integer", "not": {"enum": [0]}}));
    let fields = json!({
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "not": {"required": ["a", "b"], "properties": {"a": {"exclusiveMinimum": 5}}},
    });
    let fields = converted(&fields);
    stores(&fields, &[json!({"a": 6}), json!({"a": 5, "b": 1})]);
    refuses(&fields, &[json!({"a": 6, "b": 1})]);
    for (excluded, part) in [
        (json!({"type": "string"}), "\"type\""),
        (json!({"required": ["c"]}), "the field \"c\", which the schema around it does not describe"),
        (json!({"properties": {"c": {}}}), "the field \"c\", which the schema around it does not describe"),
        (json!({"const": null}), "the value null"),
    ] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "not": excluded});
        let error = converted_with(&schema, &json!({})).unwrap_err();
        let expected = format!(
            "the schema of spec is unusable: a schema of Kubernetes cannot have {part} within the keyword \"not\"; use a rule"
        );
        assert!(error.starts_with(&expected), "{error}");
    }
    let closed = json!({"type": "object", "not": {"additionalProperties": false}});
    let error = converted_with(&closed, &json!({})).unwrap_err();
    assert!(error.contains("the keyword \"additionalProperties\" is not supported within \"not\""), "{error}");
}

#[test]
fn rules_of_a_field_and_of_its_type_both_hold() {
    let rule = |rule: &str| json!({"rule": rule});
    let field = json!({
        "$ref": "#/$defs/Inner", "x-kubernetes-validations": [rule("field"), rule("both")], "minProperties": 2, "default": {"a": 7, "b": 8},
        "properties": {"b": {"maximum": 9}}, "description": "of the field",
    });
    let inner = json!({
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "maximum": 8, "default": 1}},
        "x-kubernetes-validations": [rule("type"), rule("both")], "minProperties": 1, "default": {}, "description": "of the type",
    });
    let both = converted_with(&field, &json!({"Inner": inner})).unwrap();
    assert_eq!(both["x-kubernetes-validations"], json!([rule("field"), rule("both"), rule("type")]));
    assert_eq!((&both["default"], &both["description"]), (&json!({"a": 7, "b": 8}), &json!("of the field")));
    assert_eq!((&both["minProperties"], &both["allOf"]), (&json!(2), &json!([{"minProperties": 1}])));
    assert_eq!(
        both["properties"]["b"],
        json!({"type": "integer", "maximum": 9, "allOf": [{"maximum": 8}], "default": 1})
    );
}

#[test]
fn alternative_rules_for_the_fields_of_a_struct_are_kept() {
    let fields = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let schema = json!({"type": "object", "properties": fields, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let schema = converted(&schema);
    stores(&schema, &[json!({"a": "x"}), json!({"b": "x"})]);
    refuses(&schema, &[json!({}), json!({"a": "x", "b": "x"})]);
    let text = converted(&json!({"type": "string", "anyOf": [{"pattern": "^a"}, {"const": "b"}]}));
    stores(&text, &[json!("ab"), json!("b")]);
    refuses(&text, &[json!("c")]);
}

/// Without formats and types, a value may satisfy the rules of several alternatives.
#[test]
fn alternatives_exclude_each_other_only_if_their_rules_do() {
    let variant = |of: &str| json!({"type": "object", "properties": {"a": {"type": of}}, "required": ["a"]});
    let schema = converted(&json!({"oneOf": [variant("integer"), variant("boolean")]}));
    stores(&schema, &[json!({"a": 1}), json!({"a": true})]);
    let texts = converted(
        &json!({"oneOf": [{"type": "string", "format": "date", "maxLength": 10}, {"type": "string", "maxLength": 20}]}),
    );
    stores(&texts, &[json!("short")]);
    // A map beside an enum may have the field of another variant.
    let variant = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let schema = converted(&json!({
        "type": "object", "properties": {"n": {"type": "string"}}, "unevaluatedProperties": true, "oneOf": [variant("a"), variant("b")],
    }));
    stores(&schema, &[json!({"n": "x", "a": "y", "b": "z"})]);
}

#[test]
fn types_with_any_name_are_found() {
    let schema = json!({"$ref": "#/$defs/List%3Ca~1b~0c%3E"});
    assert_eq!(
        converted_with(&schema, &json!({"List<a/b~c>": {"type": "string"}})).unwrap(),
        json!({"type": "string"})
    );
    for reference in ["#/$defs/Missing", "https://example.com/schema"] {
        let error = converted_with(&json!({"$ref": reference}), &json!({})).unwrap_err();
        assert_eq!(error, format!("the schema of spec is unusable: it refers to {reference:?}, which is not defined"));
    }
    assert!(converted_with(&json!({"$ref": "#"}), &json!({})).unwrap_err().contains("contains itself"));
}

#[test]
fn values_of_an_enum_may_be_null_or_of_several_types() {
    stores(&converted(&json!({"type": ["string", "null"], "enum": ["a", null]})), &[json!("a"), json!(null)]);
    stores(&converted(&json!({"enum": [null, 1]})), &[json!(1), json!(null)]);
    let mixed = converted(&json!({"enum": ["a", 1, {"b": {"c": null}}]}));
    stores(&mixed, &[json!("a"), json!(1), json!({"b": {"c": null}})]);
    refuses(&mixed, &[json!(2), json!(null)]);
}

#[test]
fn defaults_that_a_server_refuses_are_dropped() {
    let default = |schema: Value| converted(&schema).get("default").cloned();
    let fields = json!({"a": {"type": "integer", "maximum": 3}});
    for (schema, expected) in [
        (json!({"type": "integer", "minimum": 1, "default": 0}), None),
        (json!({"type": "integer", "minimum": 0, "default": 0}), Some(json!(0))),
        (json!({"type": "integer", "exclusiveMinimum": 0, "default": 0}), None),
        (json!({"type": "string", "pattern": "^a", "default": "b"}), None),
        (json!({"type": "string", "pattern": "^a", "default": "ab"}), Some(json!("ab"))),
        (json!({"type": "string", "default": ""}), None),
        (json!({"type": "array", "minItems": 1, "default": []}), None),
        (json!({"type": "object", "properties": fields, "default": {"a": 4}}), None),
        (json!({"type": "object", "properties": fields, "default": {"a": 3, "b": 1}}), None),
        (json!({"type": "object", "properties": fields, "default": {"a": 3}}), Some(json!({"a": 3}))),
        (
            json!({"type": "object", "additionalProperties": {"type": ["string", "null"]}, "default": {"a": null}}),
            Some(json!({"a": null})),
        ),
        (json!({"enum": ["a", "b"], "default": "c"}), None),
        (json!({"default": {"any": [null]}}), Some(json!({"any": [null]}))),
    ] {
        assert_eq!(default(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn the_list_type_of_a_field_replaces_the_one_of_its_type() {
    let items = json!({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]});
    let map =
        json!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]});
    let field = json!({"$ref": "#/$defs/List", "x-kubernetes-list-type": "atomic"});
    let list = converted_with(&field, &json!({"List": map})).unwrap();
    assert_eq!((&list["x-kubernetes-list-type"], list.get("x-kubernetes-list-map-keys")), (&json!("atomic"), None));
    assert_eq!(faults(&list), Vec::<String>::new());
}

#[test]
fn sets_have_no_null() {
    let set = |of: Value| {
        converted(&json!({"type": "array", "uniqueItems": true, "items": {"type": of}}))["x-kubernetes-list-type"]
            .clone()
    };
    assert_eq!(set(json!("string")), json!("set"));
    assert_eq!(set(json!(["string", "null"])), json!(null));
    assert_eq!(set(json!("object")), json!(null));
}

#[test]
fn a_list_is_a_map_by_the_keys_that_the_type_of_its_elements_names() {
    let item = json!({
        "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "x-list-map-keys": ["name"],
    });
    let inline = converted(&json!({"type": "array", "items": item}));
    let named = json!({"type": "array", "items": {"$ref": "#/$defs/Item"}});
    let named = converted_with(&named, &json!({"Item": item})).unwrap();
    assert_eq!(inline, named);
    assert_eq!(inline["x-kubernetes-list-map-keys"], json!(["name"]));
    refuses(&inline, &[json!([{"name": "a"}, {"name": "a"}])]);
}
