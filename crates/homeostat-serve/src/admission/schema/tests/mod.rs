//! Cases for each keyword, like in the JSON schema test suite: a schema, a value, and the faulty fields.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod types;

use serde_json::{Value, json};

use super::StructuralSchema;

/// Returns the faults of a value in the field `v`.
fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"v": schema}})).unwrap();
    schema.faults(&json!({"v": value}), None).iter().map(ToString::to_string).collect()
}

fn assert_all(schema: &Value, valid: &[Value], invalid: &[Value]) {
    for value in valid {
        assert_eq!(faults(schema, value), Vec::<String>::new(), "{schema} {value}");
    }
    for value in invalid {
        let faults = faults(schema, value);
        assert!(!faults.is_empty(), "{schema} {value}");
        assert!(faults.iter().all(|fault| fault.starts_with('v')), "{faults:?}");
    }
}

#[test]
fn types() {
    let (int, float, text) = (json!(1), json!(1.5), json!("a"));
    let (array, object, truth, null) = (json!([]), json!({}), json!(true), json!(null));
    assert_all(
        &json!({"type": "integer"}),
        &[int.clone(), json!(1.0), json!(u64::MAX)],
        &[float.clone(), text.clone(), null.clone()],
    );
    assert_all(&json!({"type": "number"}), &[int.clone(), float.clone()], &[text.clone(), truth.clone()]);
    assert_all(&json!({"type": "string"}), &[text.clone(), json!("")], &[int.clone(), array.clone(), null.clone()]);
    assert_all(&json!({"type": "boolean"}), &[truth.clone(), json!(false)], &[int.clone(), json!("true"), json!(0)]);
    assert_all(&json!({"type": "array"}), std::slice::from_ref(&array), &[object.clone(), text.clone()]);
    assert_all(&json!({"type": "object"}), std::slice::from_ref(&object), &[array.clone(), null.clone()]);
    assert_all(&json!({"type": "string", "nullable": true}), &[text.clone(), null.clone()], std::slice::from_ref(&int));
    assert_all(&json!({"type": ["string", "null"]}), &[text.clone(), null.clone()], std::slice::from_ref(&int));
    assert_all(&json!({"type": ["string", "integer"]}), &[text.clone(), int.clone()], &[null.clone(), float.clone()]);
    assert_all(&json!({"x-kubernetes-int-or-string": true}), &[text, int], &[float, truth]);
    assert_all(&json!({}), &[array, object, null], &[]);
}

#[test]
fn numbers() {
    assert_all(&json!({"type": "number", "minimum": 1.1}), &[json!(1.1), json!(2)], &[json!(0.6)]);
    assert_all(&json!({"type": "integer", "minimum": -2}), &[json!(-2), json!(0)], &[json!(-3)]);
    assert_all(&json!({"type": "number", "maximum": 3}), &[json!(3), json!(2.6)], &[json!(3.5)]);
    assert_all(
        &json!({"minimum": 1, "exclusiveMinimum": true, "type": "number"}),
        &[json!(1.1)],
        &[json!(1), json!(0)],
    );
    assert_all(&json!({"exclusiveMaximum": 3, "type": "number"}), &[json!(2.9)], &[json!(3), json!(4)]);
    assert_all(&json!({"multipleOf": 2, "type": "integer"}), &[json!(10), json!(0)], &[json!(7)]);
    assert_all(&json!({"multipleOf": 0.01, "type": "number"}), &[json!(0.07), json!(4.35)], &[json!(0.075)]);
    assert_all(&json!({"type": "integer", "format": "int32"}), &[json!(2_147_483_647)], &[json!(2_147_483_648_i64)]);
    assert_all(&json!({"type": "integer", "format": "int64"}), &[json!(i64::MAX)], &[json!(u64::MAX)]);
}

#[test]
fn texts() {
    assert_all(&json!({"type": "string", "minLength": 2}), &[json!("foo"), json!("fo")], &[json!("f"), json!("ä")]);
    assert_all(&json!({"type": "string", "maxLength": 2}), &[json!("äö"), json!("")], &[json!("foo")]);
    assert_all(&json!({"type": "string", "pattern": "^a*$"}), &[json!("aaa"), json!("")], &[json!("abc")]);
    assert_all(&json!({"type": "string", "pattern": "a+"}), &[json!("xxaayy")], &[json!("xy")]);
    assert_all(&json!({"type": "string", "enum": ["a", "b"]}), &[json!("a")], &[json!("c"), json!("")]);
    assert_all(
        &json!({"enum": [1, {"a": [false]}]}),
        &[json!(1), json!(1.0), json!({"a": [false]})],
        &[json!(true), json!({"a": [0]})],
    );
}

#[test]
fn formats() {
    for (format, valid, invalid) in [
        ("date-time", "2024-02-29T12:00:00.5+01:00", "2023-02-29T12:00:00Z"),
        ("date-time", "1990-12-31T23:59:59z", "1990-12-31 23:59:59Z"),
        ("date", "2024-02-29", "2023-02-29"),
        ("ipv4", "192.168.0.1", "127.0.0.256"),
        ("ipv6", "::1", "12345::"),
        ("ip", "::1", "localhost"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("cidr", "fd00::/8", "fd00::"),
        ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08aa9811eab4aa73b441d16380"),
        ("byte", "aGVsbG8=", "a?"),
        ("email", "joe.bloggs@example.com", "2962"),
        ("hostname", "www.example.com", "-bad-.example"),
        ("uri", "http://foo.bar/?baz=qux#quux", "//foo.bar"),
        ("uri", "urn:isbn:1", "bar baz:x y"),
    ] {
        assert_all(&json!({"type": "string", "format": format}), &[json!(valid)], &[json!(invalid)]);
    }
    assert_all(&json!({"type": "string", "format": "password"}), &[json!("anything")], &[]);
}

#[test]
fn the_pattern_of_a_text_that_is_too_long_is_not_checked() {
    let short = json!({"type": "string", "maxLength": 3, "pattern": "^a*$"});
    assert_eq!(faults(&short, &json!("bbbb")), ["v: Too long: must have at most 3 characters"]);
    assert_eq!(faults(&short, &json!("bbb")).len(), 1);
}

#[test]
fn arrays() {
    let of_texts = json!({"type": "array", "items": {"type": "string"}});
    assert_all(&of_texts, &[json!([]), json!(["a"])], &[json!(["a", 1])]);
    assert_eq!(faults(&of_texts, &json!(["a", 1])), ["v[1]: Invalid value: 1: must be of type string"]);
    assert_all(
        &json!({"type": "array", "minItems": 1, "maxItems": 2}),
        &[json!([1]), json!([1, 2])],
        &[json!([]), json!([1, 2, 3])],
    );
    let unique = json!({"type": "array", "uniqueItems": true});
    assert_all(
        &unique,
        &[json!([1, 2]), json!([1, true]), json!([{"a": 1}, {"a": 2}]), json!([[1], [2]])],
        &[json!([1, 1]), json!([1, 1.0]), json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])],
    );
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    assert_all(
        &map,
        &[json!([{"name": "a"}, {"name": "b"}])],
        &[json!([{"name": "a", "x": 1}, {"name": "a", "x": 2}])],
    );
}

#[test]
fn objects() {
    let schema = json!({
        "type": "object", "required": ["foo"],
        "properties": {"foo": {"type": "integer"}, "bar": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}},
    });
    assert_all(&schema, &[json!({"foo": 1}), json!({"foo": 1, "quux": []})], &[json!({}), json!({"foo": "a"})]);
    assert_eq!(
        faults(&schema, &json!({"foo": null, "bar": {}})),
        ["v.bar.a: Required value: must be set", "v.foo: Invalid value: null: must be of type integer",]
    );
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    assert_all(&map, &[json!({}), json!({"a": 1})], &[json!({"a.b": "1"})]);
    assert_eq!(faults(&map, &json!({"a.b": "1"}))[0], "v[a.b]: Invalid value: \"1\": must be of type integer");
    assert_all(
        &json!({"type": "object", "minProperties": 1, "maxProperties": 2}),
        &[json!({"a": 1})],
        &[json!({}), json!({"a": 1, "b": 2, "c": 3})],
    );
}

#[test]
fn alternatives() {
    let any = json!({"anyOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]});
    assert_all(&any, &[json!(1), json!(2.5), json!(3)], &[json!(1.5)]);
    let one = json!({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]});
    assert_all(&one, &[json!(1), json!(2.5)], &[json!(3), json!(1.5)]);
    assert_all(&json!({"allOf": [{"maximum": 30}, {"minimum": 20}]}), &[json!(25)], &[json!(35), json!(15)]);
    assert_all(&json!({"not": {"type": "integer"}}), &[json!("foo")], &[json!(1)]);
    let variants = json!({"oneOf": [
        {"type": "object", "required": ["disk"], "properties": {"disk": {"type": "string"}}},
        {"type": "object", "required": ["net"], "properties": {"net": {"type": "string"}}},
    ]});
    assert_all(&variants, &[json!({"disk": "a"}), json!({"net": "b"})], &[json!({}), json!({"disk": "a", "net": "b"})]);
    assert!(faults(&variants, &json!({}))[0].ends_with("the nearest: v.disk: Required value: must be set"));
}

/// The schema of a type, as `schemars` writes it.
fn generated() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Site", "description": "A website.", "type": "object",
        "properties": {
            "apiVersion": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"$ref": "#/$defs/Spec"},
            "status": {"anyOf": [{"$ref": "#/$defs/Status"}, {"type": "null"}], "default": {"pages": 0}},
        },
        "required": ["metadata", "spec", "status"],
        "$defs": {
            "Spec": {"type": "object", "required": ["title"], "properties": {
                "title": {"type": "string"},
                "mode": {"oneOf": [{"type": "string", "const": "Fast", "description": "Quick."}, {"type": "string", "enum": ["Slow"]}]},
                "owner": {"type": ["string", "null"]},
                "size": {"$ref": "#/$defs/Size", "description": "The size.", "default": {"pages": 1}},
                "any": true,
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "Size": {"type": "object", "properties": {"pages": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}}},
            "Status": {"type": "object", "properties": {"pages": {"type": "integer"}}},
        },
    })
}

#[test]
fn the_schema_of_a_type_becomes_structural() {
    let schema = StructuralSchema::new(&generated()).unwrap();
    assert_eq!(
        *schema.json(),
        json!({
            "description": "A website.", "type": "object",
            "properties": {
                "spec": {"type": "object", "required": ["title"], "properties": {
                    "title": {"type": "string"},
                    "mode": {"type": "string", "enum": ["Fast", "Slow"]},
                    "owner": {"type": "string", "nullable": true},
                    "size": {
                        "type": "object", "description": "The size.", "default": {"pages": 1},
                        "properties": {"pages": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}},
                    },
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                }},
                "status": {"type": "object", "nullable": true, "properties": {"pages": {"type": "integer"}}},
            },
            "required": ["spec"],
        })
    );
    // A structural schema does not change.
    assert_eq!(StructuralSchema::new(schema.json()).unwrap().json(), schema.json());
}

#[test]
fn unknown_fields_are_removed() {
    let schema = StructuralSchema::new(&generated()).unwrap();
    let mut site = json!({
        "apiVersion": "x", "kind": "Site", "metadata": {"name": "a", "any": 1}, "extra": 1,
        "spec": {"title": "t", "titel": "t", "any": {"a": [{"b": 1}]}, "labels": {"a.b": "c"}, "size": {"pages": 2, "lines": 3}},
    });
    assert_eq!(schema.prune(&mut site), ["extra", "spec.size.lines", "spec.titel"]);
    assert_eq!(
        site["spec"],
        json!({"title": "t", "any": {"a": [{"b": 1}]}, "labels": {"a.b": "c"}, "size": {"pages": 2}})
    );
    assert_eq!(site["metadata"], json!({"name": "a", "any": 1}));

    let items = json!({"type": "array", "items": {"type": "object", "properties": {"a": {}}}});
    let variants = json!({"oneOf": [
        {"type": "object", "properties": {"disk": {"type": "string"}}}, {"type": "object", "properties": {"net": {}}},
    ]});
    let map = json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"in": {"type": "object"}}});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
    let properties = json!({"items": items, "variants": variants, "map": map, "open": open, "embedded": embedded});
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": properties})).unwrap();
    let mut object = json!({
        "items": [{"a": 1}, {"b": 1}], "variants": {"disk": "d", "net": 1, "other": 2}, "map": {"x": {"a": 1, "b": 2}},
        "open": {"more": {"deep": 1}, "in": {"no": 1}}, "embedded": {"apiVersion": "v1", "kind": "Pod", "spec": {}},
    });
    let removed = schema.prune(&mut object);
    assert_eq!(removed, ["embedded.spec", "items[1].b", "map[x].b", "open.in.no", "variants.other"]);
    assert_eq!(object["open"], json!({"more": {"deep": 1}, "in": {}}));
}

#[test]
fn defaults_are_filled_in_from_the_outside_in() {
    let size = json!({"type": "object", "default": {}, "properties": {"pages": {"type": "integer", "default": 3}}});
    let list = json!({"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}});
    let owner = json!({"type": "string", "nullable": true, "default": "root"});
    let spec = json!({"type": "object", "properties": {"size": size, "list": list, "owner": owner}});
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
    let filled = |mut object: Value| {
        schema.fill_in(&mut object);
        object
    };
    assert_eq!(filled(json!({})), json!({}));
    assert_eq!(filled(json!({"spec": {}})), json!({"spec": {"size": {"pages": 3}, "owner": "root"}}));
    let given = json!({"spec": {"size": null, "owner": null, "list": [{}, {"on": false}]}});
    let expected = json!({"spec": {"size": {"pages": 3}, "owner": null, "list": [{"on": true}, {"on": false}]}});
    assert_eq!(filled(given), expected);
}

#[test]
fn unusable_schemas_are_refused_with_their_path() {
    let fault = |schema: Value| {
        let whole = json!({"type": "object", "properties": {"spec": schema}, "$defs": {"Loop": {"properties": {"l": {"$ref": "#/$defs/Loop"}}}}});
        StructuralSchema::new(&whole).unwrap_err().to_string()
    };
    for (schema, expected) in [
        (json!({"type": "text"}), "the schema of spec is unusable: \"text\" is not a type"),
        (json!({"properties": {"a": {"pattern": "["}}}), "spec.a"),
        (json!({"$ref": "#/$defs/None"}), "\"#/$defs/None\", which is not defined"),
        (json!({"$ref": "#/$defs/Loop"}), "contains itself"),
        (json!({"x-kubernetes-validations": [{"rule": "true"}]}), "CEL"),
        (json!({"minimum": "1"}), "its minimum is \"1\""),
        (json!({"required": [1]}), "1 is not a name"),
        (json!({"items": 3}), "3 is not a schema"),
    ] {
        let found = fault(schema);
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn the_stricter_of_two_bounds_holds() {
    let of = |bounds: Value| {
        let mut schema = json!({"type": "number"});
        schema.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        schema
    };
    assert_all(&of(json!({"minimum": 5, "exclusiveMinimum": 3})), &[json!(5), json!(6)], &[json!(4), json!(3)]);
    assert_all(&of(json!({"minimum": 3, "exclusiveMinimum": 5})), &[json!(6)], &[json!(5), json!(4)]);
    assert_all(&of(json!({"minimum": 5, "exclusiveMinimum": 5})), &[json!(5.5)], &[json!(5)]);
    assert_all(&of(json!({"maximum": 3, "exclusiveMaximum": 5})), &[json!(3)], &[json!(4), json!(5)]);
    assert_all(&of(json!({"maximum": 5, "exclusiveMaximum": 3})), &[json!(2)], &[json!(3), json!(4)]);
    assert_all(&of(json!({"maximum": 5, "exclusiveMaximum": 5})), &[json!(4)], &[json!(5)]);
}

#[test]
fn first_elements_have_schemas_of_their_own() {
    let pair = json!({
        "type": "array", "prefixItems": [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}],
        "minItems": 2, "maxItems": 2,
    });
    assert_all(&pair, &[json!([1, {}])], &[json!(["a", {}]), json!([1, 2]), json!([1])]);
    assert_eq!(faults(&pair, &json!(["a", {}]))[0], "v[0]: Invalid value: \"a\": must be of type integer");
    let rest = json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}});
    assert_all(&rest, &[json!([1, "a"]), json!([])], &[json!([1, 2]), json!(["a"])]);
    assert_all(&json!({"prefixItems": [{"type": "integer"}], "items": false}), &[json!([1])], &[json!([1, 2])]);
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"v": pair}})).unwrap();
    let mut object = json!({"v": [1, {"b": 2}]});
    assert_eq!(schema.prune(&mut object), ["v[1].b"]);
    schema.fill_in(&mut object);
    assert_eq!(object, json!({"v": [1, {"a": "x"}]}));
}

#[test]
fn arrays_contain_elements() {
    let one = json!({"type": "array", "contains": {"type": "integer"}});
    assert_all(&one, &[json!([1]), json!(["a", 1, 2])], &[json!([]), json!(["a"])]);
    let some = json!({"type": "array", "contains": {"const": "a"}, "minContains": 2, "maxContains": 3});
    assert_all(&some, &[json!(["a", "b", "a"])], &[json!(["a"]), json!(["a", "a", "a", "a"])]);
    assert_all(&json!({"contains": {"const": 1}, "minContains": 0, "maxContains": 1}), &[json!([])], &[json!([1, 1])]);
}

#[test]
fn names_of_fields_are_checked() {
    let names = json!({"type": "object", "propertyNames": {"enum": ["tcp", "udp"]}, "additionalProperties": {"type": "integer"}});
    assert_all(&names, &[json!({"tcp": 1}), json!({})], &[json!({"http": 1}), json!({"tcp": "1"})]);
    assert_eq!(
        faults(&names, &json!({"http": 1})),
        ["v[http]: Unsupported value: \"http\": supported values: \"tcp\", \"udp\""]
    );
    // The head of an object has its own names.
    let whole = StructuralSchema::new(&json!({"type": "object", "propertyNames": {"maxLength": 4}})).unwrap();
    assert_eq!(whole.faults(&json!({"apiVersion": "v1", "metadata": {}, "spec": 1}), None), []);
    let together = json!({"type": "object", "dependentRequired": {"user": ["password", "realm"], "other": []}});
    assert_all(
        &together,
        &[json!({}), json!({"user": 1, "password": 2, "realm": 3})],
        &[json!({"user": 1, "realm": 3})],
    );
    assert_eq!(
        faults(&together, &json!({"user": 1, "realm": 2})),
        ["v.password: Required value: must be set beside user"]
    );
}

#[test]
fn each_pattern_of_names_has_its_schema() {
    let patterns = json!({
        "type": "object", "properties": {"n1": {"minimum": 5}},
        "patternProperties": {
            "^n": {"type": "integer"}, "^t": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}, "9$": {"maximum": 3},
        },
        "additionalProperties": false,
    });
    assert_all(
        &patterns,
        &[json!({"n1": 5, "n9": 3, "t": {}})],
        &[json!({"n2": "a"}), json!({"n1": 4}), json!({"n9": 4})],
    );
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"v": patterns}})).unwrap();
    let mut object = json!({"v": {"n1": 5, "t": {"b": 1}, "x": 1}});
    assert_eq!(schema.prune(&mut object), ["v[t].b", "v.x"]);
    schema.fill_in(&mut object);
    assert_eq!(object, json!({"v": {"n1": 5, "t": {"a": 1}}}));
    let others = json!({"type": "object", "patternProperties": {"^[0-9]+$": {"type": "string"}}, "additionalProperties": {"type": "integer"}});
    assert_all(&others, &[json!({"1": "a", "b": 1})], &[json!({"1": 1}), json!({"b": "a"})]);
}

#[test]
fn a_reference_holds_beside_other_keywords() {
    let whole = |schema: Value| {
        StructuralSchema::new(&json!({"type": "object", "properties": {"v": schema}, "$defs": {
            "Inner": {
                "type": "object", "description": "Inside.", "required": ["a"],
                "properties": {"a": {"type": "integer"}, "both": {"minimum": 3}},
            },
            "Number": {"type": "integer", "minimum": 3},
            "Map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }}))
        .unwrap()
    };
    // The schema that `schemars` writes for an internally tagged variant with content.
    let tagged = whole(json!({
        "$ref": "#/$defs/Inner", "type": "object", "required": ["type"],
        "properties": {"type": {"type": "string", "const": "A"}},
    }));
    let mut object = json!({"v": {"type": "A", "a": 1, "x": 2}});
    assert_eq!(tagged.prune(&mut object), ["v.x"]);
    assert_eq!(tagged.faults(&object, None), []);
    let faults = |schema: &StructuralSchema, value: Value| schema.faults(&json!({"v": value}), None).len();
    assert_eq!((faults(&tagged, json!({"type": "A"})), faults(&tagged, json!({"a": 1}))), (1, 1));
    assert_eq!(tagged.json()["properties"]["v"]["description"], "Inside.");
    let number = whole(json!({"$ref": "#/$defs/Number", "minimum": 1, "maximum": 5}));
    assert_eq!([1, 3, 6].map(|value| faults(&number, json!(value))), [1, 0, 1]);
    let same = whole(json!({"$ref": "#/$defs/Inner", "properties": {"both": {"maximum": 5}}}));
    assert_eq!([2, 4, 6].map(|value| faults(&same, json!({"a": 1, "both": value}))), [1, 0, 1]);
    let map = whole(json!({"$ref": "#/$defs/Map", "properties": {"text": {"type": "string"}}}));
    let mut object = json!({"v": {"text": "a", "other": 1}});
    assert_eq!(map.prune(&mut object), Vec::<String>::new());
    // Both apply, as JSON schema requires, and no text is an integer.
    assert_eq!((faults(&map, object["v"].take()), faults(&map, json!({"other": 1}))), (1, 0));
    let optional =
        whole(json!({"anyOf": [{"$ref": "#/$defs/Number"}, {"type": "null"}], "minimum": 4, "description": "Mine."}));
    assert_eq!([json!(3), json!(4), json!(null)].map(|value| faults(&optional, value)), [1, 0, 0]);
    assert_eq!(optional.json()["properties"]["v"]["description"], "Mine.");
}

#[test]
fn keywords_are_honoured_or_refused_by_name() {
    let built = |schema: Value| StructuralSchema::new(&json!({"type": "object", "properties": {"spec": schema}}));
    for keyword in [
        "$dynamicRef",
        "$recursiveRef",
        "additionalItems",
        "dependencies",
        "dependentSchemas",
        "else",
        "if",
        "then",
        "unevaluatedItems",
        "x-kubernetes-unknown",
        "minimun",
    ] {
        let error = built(json!({keyword: {}})).unwrap_err().to_string();
        assert!(
            error.contains("the schema of spec") && error.contains(&format!("{keyword:?} is not supported")),
            "{error}"
        );
    }
    for (schema, expected) in [
        (json!({"unevaluatedProperties": {"type": "string"}}), "\"unevaluatedProperties\" is not supported"),
        (json!({"items": [{"type": "string"}]}), "is not a schema"),
        (json!({"pattern": 3}), "its pattern is 3"),
        (json!({"format": true}), "its format is true"),
        (json!({"uniqueItems": "yes"}), "its uniqueItems is \"yes\""),
        (json!({"nullable": 1}), "its nullable is 1"),
        (json!({"exclusiveMinimum": "3"}), "its exclusiveMinimum is \"3\""),
        (json!({"patternProperties": {"[": {}}}), "its pattern \"[\""),
        (json!({"patternProperties": []}), "its patternProperties is []"),
        (json!({"dependentRequired": {"a": "b"}}), "its dependentRequired of a"),
        (json!({"prefixItems": {}}), "its prefixItems is {}"),
        (json!({"multipleOf": 0}), "its multipleOf is 0"),
        (json!({"minContains": "1", "contains": {}}), "its minContains is \"1\""),
        (json!({"x-kubernetes-list-type": "bag"}), "its x-kubernetes-list-type is \"bag\""),
    ] {
        let error = built(schema).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let silent = json!({
        "$comment": "c", "$anchor": "a", "x-my-tool": 1, "readOnly": true, "externalDocs": {}, "unevaluatedProperties": false,
        "x-kubernetes-map-type": "atomic", "contentSchema": {}, "format": "my-own", "examples": [],
    });
    built(silent).unwrap();
}

#[test]
fn a_schema_knows_the_paths_of_its_fields() {
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"a": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "any": true,
        "either": {"oneOf": [{"type": "object", "properties": {"b": {}}}, {"type": "object", "properties": {"c": {"type": "object"}}}]},
    }}));
    let schema = schema.unwrap();
    for path in ["spec", "spec.a", "spec.list", "map.x", "open.x.y", "any.x", "either.b", "either.b.x", "either.c"] {
        assert!(schema.knows(path), "{path}");
    }
    for path in ["x", "spec.b", "spec.a.x", "spec.list.0", "map.x.y", "either.d", "either.c.x"] {
        assert!(!schema.knows(path), "{path}");
    }
}
